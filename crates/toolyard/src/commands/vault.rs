//! `toolyard vault`: the notes' index from the command line. Every command is a call of one of the `obsidian_rag_*` tools,
//! in a running Toolyard or in this process.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{FileStateArg, Global, IndexArgs, SearchArgs, VaultCommand},
    config,
    output::{self, Paint, plain},
    progress::IndexProgress,
    wiring::Needs,
};
use serde_json::{Value, json};
use std::{process::ExitCode, time::Duration};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::local::{ToolsCall, ToolsCallParams};

/// How long one call waits for a job before the next one asks again: how often progress is shown.
const WAIT_MS: u64 = 500;
/// Notes with trouble that are listed after indexing.
const SHOWN_ERRORS: usize = 20;
/// How often a watched index is looked at.
const WATCH_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn run(global: &Global, command: VaultCommand) -> Outcome {
    let mut backend = Backend::open(global, Needs::Store).await?;
    let is_indexing = matches!(&command, VaultCommand::Index(args) if !args.cancel);
    let done = tokio::select! {
        done = dispatch(global, &mut backend, command) => done,
        _ = tokio::signal::ctrl_c() => {
            // What was indexed so far stays: the next job goes on there.
            match &backend {
                Backend::Here(yard) => yard.cancel_indexing(),
                Backend::There(_) if is_indexing => {
                    output::note("the running Toolyard goes on indexing; `toolyard vault index --cancel` stops it");
                }
                Backend::There(_) => {}
            }
            backend.close().await;
            output::failure(global, &Failure::new(ErrorCode::Cancelled, "interrupted"));
            return Ok(ExitCode::from(output::INTERRUPTED));
        }
    };
    backend.close().await;
    done
}

async fn dispatch(global: &Global, backend: &mut Backend, command: VaultCommand) -> Outcome {
    match command {
        VaultCommand::Index(args) => index(global, backend, &args).await,
        VaultCommand::Search(args) => search(global, backend, args).await,
        VaultCommand::Status { files, limit, offset } => status(global, backend, files, limit, offset).await,
        VaultCommand::Watch => watch(global, backend).await,
        VaultCommand::Rollback => {
            let envelope = call(backend, "obsidian_rag_index", json!({"mode": "rollback"})).await?;
            finish(global, &envelope, |data| {
                let version = envelope["meta"]["index_version"].as_str().unwrap_or_default();
                output::note(&format!("back at version {version}, {} chunks", data["total_chunks"]));
            })
        }
    }
}

/// One call down the one road; the answer is the tool's envelope.
async fn call(backend: &mut Backend, tool: &str, args: Value) -> Result<Value, Failure> {
    let Value::Object(args) = args else {
        return Err(Failure::new(ErrorCode::InternalError, "the arguments of a tool must be an object"));
    };
    let params = ToolsCallParams { name: tool.to_owned(), args, ..ToolsCallParams::default() };
    let result = backend.call::<ToolsCall>(&params, None).await?.result;
    match (result.error.clone(), result.data.clone()) {
        (Some(error), _) => Err(error),
        (None, Some(data)) => Ok(Value::Object(data)),
        (None, None) => Err(Failure::new(ErrorCode::InternalError, "the tool answered nothing")),
    }
}

/// Prints the envelope as JSON, or what is in it; says what is wrong; ends with the matching code.
fn finish(global: &Global, envelope: &Value, show: impl FnOnce(&Value)) -> Outcome {
    let has_data = !envelope["data"].is_null();
    if global.json {
        output::json(envelope);
    } else {
        if has_data {
            show(&envelope["data"]);
        }
        tell_problem(global, envelope);
    }
    Ok(if has_data && envelope["status"] != "unavailable" { ExitCode::SUCCESS } else { ExitCode::from(output::FAILED) })
}

fn tell_problem(global: &Global, envelope: &Value) {
    let error = &envelope["error"];
    if error.is_null() || (global.quiet && envelope["status"] != "unavailable" && !envelope["data"].is_null()) {
        return;
    }
    let paint = Paint::stderr();
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    let word = envelope["status"].as_str().unwrap_or_default();
    let failed = word == "unavailable" || envelope["data"].is_null();
    let word = if failed { paint.red("error:") } else { paint.yellow(&format!("{word}:")) };
    output::note(&format!("{word} {} [{}]", plain(&text("message")), text("code")));
    // The suggestion is for an agent; who types is the user.
    let hint = match text("code").as_str() {
        "SENSITIVE_FILTERED" => "Add --confirm-sensitive to see them.".to_owned(),
        _ => text("suggestion"),
    };
    output::note(&format!("{} {hint}", paint.bold("hint:")));
}

async fn index(global: &Global, backend: &mut Backend, args: &IndexArgs) -> Outcome {
    if args.cancel {
        return cancel(global, backend).await;
    }
    if args.detach && !backend.is_remote() {
        return Err(Failure::new(ErrorCode::PreconditionFailed, "--detach needs a running Toolyard")
            .suggest("Start one with `toolyard up`."));
    }
    let mode = match (args.full, args.rebuild) {
        (_, true) => "reindex",
        (true, false) => "full",
        (false, false) => "sync",
    };
    let progress = IndexProgress::new(global);
    let mut envelope = loop {
        let envelope = call(backend, "obsidian_rag_index", json!({"mode": mode})).await?;
        if envelope["data"].is_null() || envelope["data"]["started"] == true {
            break envelope;
        }
        // The job that runs does something else, or may have passed what changed already.
        if args.detach {
            return Err(Failure::new(
                ErrorCode::PreconditionFailed,
                "another job is indexing; this one was not started",
            )
            .suggest("Call again without --detach to wait for it, or stop it with `toolyard vault index --cancel`."));
        }
        if !global.quiet {
            output::note("another job is indexing; waiting for its end");
        }
        ended(backend, &envelope["data"]["job_id"], &progress).await?;
    };
    if args.detach {
        return finish(global, &envelope, |_| output::note("indexing in the running Toolyard"));
    }
    if envelope["data"]["state"] == "running" {
        let mut status = ended(backend, &envelope["data"]["job_id"], &progress).await?;
        let job = status["data"]["job"].take();
        for key in ["status", "error", "meta"] {
            envelope[key] = status[key].take();
        }
        for key in
            ["state", "indexed_files", "removed_files", "embedded_chunks", "duration_ms", "errors", "error_count"]
        {
            envelope["data"][key] = job[key].clone();
        }
        envelope["data"]["total_chunks"] = status["data"]["total_chunks"].take();
    }
    progress.finish();
    let failed = envelope["data"]["state"] != "done";
    let outcome = finish(global, &envelope, |data| {
        let seconds = data["duration_ms"].as_f64().unwrap_or(0.0) / 1e3;
        output::note(&format!(
            "{}: {} notes indexed, {} removed, {} chunks in all, {seconds:.1} s",
            data["state"].as_str().unwrap_or_default(),
            data["indexed_files"],
            data["removed_files"],
            data["total_chunks"],
        ));
        for error in data["errors"].as_array().into_iter().flatten().take(SHOWN_ERRORS) {
            let text = |key: &str| plain(error[key].as_str().unwrap_or_default());
            output::note(&format!("  {}: {}", text("file"), text("message")));
        }
        let more = data["error_count"].as_u64().unwrap_or(0).saturating_sub(SHOWN_ERRORS as u64);
        if more > 0 {
            output::note(&format!("  and {more} more; `toolyard vault status --files failed` and `skipped` list them"));
        }
    })?;
    Ok(if failed { ExitCode::from(output::FAILED) } else { outcome })
}

/// Waits for the end of a job, by its id: another one may run by then. The answer is the status, with the job in it.
async fn ended(backend: &mut Backend, id: &Value, progress: &IndexProgress) -> Result<Value, Failure> {
    loop {
        let status = call(backend, "obsidian_rag_status", json!({"job_id": id, "wait_ms": WAIT_MS})).await?;
        let job = &status["data"]["job"];
        if job.is_null() {
            return Err(Failure::new(ErrorCode::NotFound, "the job is not known any more")
                .suggest("See `toolyard vault status`, and index again."));
        }
        progress.show(job["done_files"].as_u64().unwrap_or(0), job["total_files"].as_u64().unwrap_or(0));
        if job["state"] != "running" {
            return Ok(status);
        }
    }
}

/// Stops the job that runs, wherever it does. Nothing to stop is no failure; a job that does not stop is one.
async fn cancel(global: &Global, backend: &mut Backend) -> Outcome {
    let before = call(backend, "obsidian_rag_status", json!({})).await?;
    let envelope = call(backend, "obsidian_rag_index", json!({"mode": "cancel"})).await?;
    if envelope["data"].is_null() && !before["data"]["active_job"].is_null() {
        return finish(global, &envelope, |_| {});
    }
    let state = envelope["data"]["state"].as_str().unwrap_or_default();
    let word = match (before["data"]["active_job"].is_null(), state) {
        (_, "running") => "the job has not stopped yet",
        (true, _) => "no job was running",
        (false, "cancelled") => "stopped; the next job goes on there",
        (false, _) => "the job had ended already",
    };
    if global.json {
        output::json(&envelope);
    } else {
        output::note(word);
    }
    Ok(if state == "running" { ExitCode::from(output::FAILED) } else { ExitCode::SUCCESS })
}

async fn search(global: &Global, backend: &mut Backend, args: SearchArgs) -> Outcome {
    let mut asked = json!({"query": args.query.join(" "), "max_results": args.limit, "explain": args.explain});
    if !args.folder.is_empty() {
        asked["directory_filter"] = json!(args.folder);
    }
    if !args.tag.is_empty() {
        asked["tags"] = json!(args.tag);
    }
    if args.from.is_some() || args.to.is_some() {
        let mut range = json!({});
        for (key, day) in [("from", &args.from), ("to", &args.to)] {
            if let Some(day) = day {
                range[key] = json!(day);
            }
        }
        asked["date_range"] = range;
    }
    if args.confirm_sensitive {
        asked["confirm_sensitive"] = true.into();
    }
    let mut envelope = call(backend, "obsidian_rag_search", asked.clone()).await?;
    if envelope["error"]["code"] == "INDEX_NOT_FOUND" && index_first(global, backend).await? {
        envelope = call(backend, "obsidian_rag_search", asked).await?;
    }
    finish(global, &envelope, |data| {
        let paint = Paint::stdout();
        let results = data["results"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut lines = Vec::new();
        for (number, result) in results.iter().enumerate() {
            lines.push(shown(number + 1, result, paint));
        }
        if results.is_empty() {
            output::note("nothing found");
        } else {
            output::data(&lines.join("\n"));
        }
    })
}

/// Waits for the job that makes the first index; where none runs, makes the index for a person, who asked a question and
/// not for a second command. A script gets the envelope and decides. Answers whether there may be an index now.
async fn index_first(global: &Global, backend: &mut Backend) -> Result<bool, Failure> {
    let progress = IndexProgress::new(global);
    let status = call(backend, "obsidian_rag_status", json!({})).await?;
    let mut job = status["data"]["active_job"]["id"].clone();
    if job.is_null() {
        if global.json {
            return Ok(false);
        }
        let started = call(backend, "obsidian_rag_index", json!({"mode": "full"})).await?;
        job = started["data"]["job_id"].clone();
        if job.is_null() {
            return Ok(false);
        }
    }
    if !global.quiet {
        output::note("the vault has no index yet; it is being indexed");
    }
    ended(backend, &job, &progress).await?;
    progress.finish();
    Ok(true)
}

/// One result for people.
fn shown(number: usize, result: &Value, paint: Paint) -> String {
    // What stands in notes is anybody's: it is shown, and does nothing to the terminal.
    let text = |key: &str| plain(result[key].as_str().unwrap_or_default());
    let mut place = paint.bold(&text("source_file"));
    if let Some(section) = result["section"].as_str() {
        place.push_str(&format!(" › {}", plain(section)));
    }
    let mut facts = vec![format!("{:.2}", result["score"].as_f64().unwrap_or(0.0))];
    if result["kind"] == "memory" {
        facts.push("remembered".to_owned());
    }
    facts.extend(result["date"].as_str().map(plain));
    let tags = result["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
    facts.extend(tags.map(|tag| format!("#{}", plain(tag))));
    let mut out = format!("{number:>2}. {place}  {}\n    {}\n", paint.dim(&facts.join(" ")), text("snippet"));
    let explain = &result["explain"];
    if !explain.is_null() {
        let part = |key: &str| {
            let part = &explain[key];
            format!("{key} {:.3} x {:.2}", part["part"].as_f64().unwrap_or(0.0), part["weight"].as_f64().unwrap_or(0.0))
        };
        let terms = |key: &str| {
            let terms = explain[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(plain);
            terms.collect::<Vec<_>>().join(" ")
        };
        let parts = [part("full_text"), part("vector"), part("links")].join(" + ");
        let mut told = format!("{parts}; terms: {}", terms("matched_terms"));
        let repeated = terms("repeated_terms");
        if !repeated.is_empty() {
            told.push_str(&format!("; counted more than once: {repeated}"));
        }
        out.push_str(&format!("    {}\n", paint.dim(&told)));
    }
    out
}

async fn status(
    global: &Global,
    backend: &mut Backend,
    files: Option<FileStateArg>,
    limit: usize,
    offset: usize,
) -> Outcome {
    let mut asked = json!({});
    if let Some(state) = files {
        asked = json!({"files": state.word(), "limit": limit, "offset": offset});
    }
    let envelope = call(backend, "obsidian_rag_status", asked).await?;
    finish(global, &envelope, |data| {
        let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let row = |name: &str, value: String| vec![name.to_owned(), value];
        let counts = &data["files"];
        let mut rows = vec![
            row("health", word(&data["plugin_health"])),
            row(
                "notes",
                format!(
                    "{} indexed, {} empty, {} skipped, {} failed",
                    counts["indexed"], counts["empty"], counts["skipped"], counts["failed"]
                ),
            ),
            row("chunks", data["total_chunks"].to_string()),
            row("to be indexed", data["unindexed_files"].to_string()),
            row("last sync", data["last_sync"].as_str().unwrap_or("never").to_owned()),
        ];
        if let Some(index) = data["index"].as_object() {
            let memory = if index["vectors_in_memory"] == true { "in memory" } else { "on disk" };
            rows.push(row(
                "version",
                format!(
                    "{} of {}, {} kept",
                    word(&index["version"]),
                    word(&index["completed_at"]),
                    index["versions_kept"]
                ),
            ));
            rows.push(row(
                "vectors",
                format!("{}, {} dimensions, {memory}", word(&index["embedder"]), index["dimensions"]),
            ));
        }
        rows.push(row(
            "embedder",
            format!("{} {}", word(&data["embedder"]["status"]), word(&data["embedder"]["id"])).trim_end().to_owned(),
        ));
        rows.push(row("Ollama", word(&data["ollama_status"])));
        if let Some(job) = data["active_job"].as_object() {
            rows.push(row("indexing", format!("{} of {} notes", job["done_files"], job["total_files"])));
        }
        output::data(&output::table(&rows));
        let list: Vec<Vec<String>> = data["file_list"]["files"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|file| {
                vec![
                    word(&file["state"]),
                    plain(&word(&file["path"])),
                    plain(file["reason"].as_str().unwrap_or_default()),
                ]
            })
            .collect();
        if !list.is_empty() {
            output::data(&output::table(&list));
        }
        if let Some(list) = data["file_list"].as_object()
            && !global.quiet
        {
            output::note(&page(list));
        }
    })
}

/// Which of the files were listed, and how to see the next ones.
fn page(list: &serde_json::Map<String, Value>) -> String {
    let number = |key: &str| list.get(key).and_then(Value::as_u64).unwrap_or(0);
    let shown = list.get("files").and_then(Value::as_array).map_or(0, Vec::len) as u64;
    let (total, first) = (number("total"), number("offset"));
    let next = first + shown;
    if first == 0 && next >= total {
        format!("{total} files")
    } else if next >= total {
        format!("{shown} of {total} files, the last ones")
    } else {
        format!("{shown} of {total} files; --offset {next} for the next ones")
    }
}

/// Watches until interrupted, telling what happens.
async fn watch(global: &Global, backend: &mut Backend) -> Outcome {
    match backend {
        Backend::There(_) if !config::resolve(global)?.config.knowledge.indexing.watch => {
            let message = "the running Toolyard does not watch the vault: knowledge.indexing.watch is false";
            return Err(Failure::new(ErrorCode::PreconditionFailed, message)
                .suggest("Set it and start Toolyard again, or watch in this process with --in-process."));
        }
        Backend::There(_) => output::note("the running Toolyard watches the vault; ctrl-c ends this view only"),
        Backend::Here(yard) => {
            yard.watch_notes_in_any_case();
            output::note("watching the vault; ctrl-c to stop");
        }
    }
    let mut last = Value::Null;
    loop {
        let envelope = call(backend, "obsidian_rag_status", json!({})).await?;
        if last.is_null() && envelope["error"]["code"] == "INDEX_NOT_FOUND" {
            output::note("no index yet: indexing");
            call(backend, "obsidian_rag_index", json!({"mode": "full"})).await?;
        }
        let job = envelope["data"]["last_job"].clone();
        if !job.is_null() && job["id"] != last["id"] {
            if global.json {
                output::json(&job);
            } else {
                let word = |key: &str| job[key].as_str().unwrap_or_default().to_owned();
                output::data(&format!(
                    "{} {}: {} indexed, {} removed, {} ms",
                    word("ended_at"),
                    word("state"),
                    job["indexed_files"],
                    job["removed_files"],
                    job["duration_ms"]
                ));
            }
        }
        last = if job.is_null() { json!({}) } else { job };
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_files_says_what_is_missing() {
        let told = |total: usize, offset: usize, shown: usize| {
            let list = json!({"total": total, "offset": offset, "files": vec![0; shown]});
            page(list.as_object().unwrap())
        };
        assert_eq!(told(6_500, 0, 100), "100 of 6500 files; --offset 100 for the next ones");
        assert_eq!(told(6_500, 6_400, 100), "100 of 6500 files, the last ones");
        assert_eq!(told(3, 0, 3), "3 files");
    }

    #[test]
    fn a_result_shows_what_a_note_says_and_nothing_else() {
        let result = json!({"source_file": "a\u{1b}[31m.md", "section": "b\u{7}", "snippet": "c\u{1b}[2Jd", "score": 1.0,
            "tags": ["e\u{9b}"], "date": null});
        let shown = shown(1, &result, Paint::stdout());
        assert!(!shown.replace('\n', "").contains(char::is_control), "{shown:?}");
    }

    #[test]
    fn an_explanation_names_the_terms_that_the_question_repeats() {
        let explained = |repeated: Value| {
            let explain = json!({"matched_terms": ["boat", "sail"], "repeated_terms": repeated});
            let result = json!({"source_file": "a.md", "snippet": "b", "score": 1.0, "explain": explain});
            shown(1, &result, Paint::stdout())
        };
        assert!(explained(json!(["boat"])).contains("terms: boat sail; counted more than once: boat"));
        assert!(!explained(json!([])).contains("counted more than once"));
    }
}
