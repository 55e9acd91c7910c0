//! `toolyard vault`: the notes' index from the command line. Every command is a call of one of the `obsidian_rag_*` tools,
//! in a running Toolyard or in this process.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{Global, IndexArgs, SearchArgs, VaultCommand},
    config,
    output::{self, Paint, plain},
    progress::IndexProgress,
    terminal::counted,
    wiring::RequiredParts,
};
use serde::Serialize;
use serde_json::Value;
use std::{process::ExitCode, time::Duration};
use toolyard_client::local::unread;
use toolyard_knowledge::{
    envelope::{Envelope, Health, ProblemCode},
    indexer::{Job, JobState},
    tools::{
        NotesTool,
        index::{self, Index, Mode},
        search::{self, DateRange, Kind, Part, ResultItem, Search},
        status::{self, FileList, Status},
    },
};
use toolyard_protocol::{ErrorCode, Failure, ToolResult};
use toolyard_service::local::{ToolsCall, ToolsCallParams};

/// How long one call waits for a job, and therefore how often progress is shown, in milliseconds.
const WAIT_MS: u64 = 500;
/// How many notes with errors are listed after indexing.
const SHOWN_ERRORS: usize = 20;
/// How often a watched index is looked at.
const WATCH_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn run(global: &Global, command: VaultCommand) -> Outcome {
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let is_indexing = matches!(&command, VaultCommand::Index(args) if !args.cancel);
    let done = tokio::select! {
        done = dispatch(global, &mut backend, command) => done,
        _ = tokio::signal::ctrl_c() => {
            // What was indexed so far is kept; the next job continues there.
            match &backend {
                Backend::Here(app) => app.cancel_indexing(),
                Backend::There(_) if is_indexing => {
                    output::note("the running Toolyard continues to index; `toolyard vault index --cancel` stops it");
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
        VaultCommand::Status { files, limit, offset } => {
            let input = match files {
                Some(state) => status::Input {
                    files: Some(state.into()),
                    limit: Some(limit),
                    offset: Some(offset),
                    ..status::Input::default()
                },
                None => status::Input::default(),
            };
            let envelope = call::<Status>(backend, &input).await?;
            finish(global, &envelope, |data| show_status(global, data))
        }
        VaultCommand::Watch => watch(global, backend).await,
        VaultCommand::Rollback => {
            let envelope = start(backend, Mode::Rollback).await?;
            finish(global, &envelope, |data| {
                let version = &envelope.meta.index_version;
                output::note(&format!("back at version {version}, {} chunks", data.total_chunks));
            })
        }
    }
}

/// Calls a notes tool through the pipeline.
async fn call<T: NotesTool>(backend: &mut Backend, input: &T::Input) -> Result<Envelope<T::Data>, Failure> {
    read::<T>(backend.call::<ToolsCall>(&request::<T>(input)?, None).await?.result)
}

/// A call of a notes tool, as `tools.call` takes it.
pub(super) fn request<T: NotesTool>(input: &T::Input) -> Result<ToolsCallParams, Failure> {
    match serde_json::to_value(input) {
        Ok(Value::Object(args)) => Ok(ToolsCallParams { name: T::NAME.to_owned(), args, ..ToolsCallParams::default() }),
        Ok(_) => Err(Failure::new(ErrorCode::InternalError, "the arguments of a tool must be an object")),
        Err(error) => Err(Failure::new(ErrorCode::InternalError, format!("the arguments cannot be written: {error}"))),
    }
}

/// Reads the envelope that a notes tool returned.
pub(super) fn read<T: NotesTool>(result: ToolResult) -> Result<Envelope<T::Data>, Failure> {
    let result = result.into_parts();
    match (result.error, result.data) {
        (Some(error), _) => Err(error),
        (None, Some(data)) => serde_json::from_value(Value::Object(data)).map_err(|error| unread(T::NAME, &error)),
        (None, None) => Err(Failure::new(ErrorCode::InternalError, "the tool answered nothing")),
    }
}

/// Calls the index tool in a mode: starts a job, or performs the mode's action.
async fn start(backend: &mut Backend, mode: Mode) -> Result<Envelope<index::Data>, Failure> {
    call::<Index>(backend, &index::Input { mode, wait_ms: None }).await
}

/// The current status of the notes' index.
async fn look(backend: &mut Backend) -> Result<Envelope<status::Data>, Failure> {
    call::<Status>(backend, &status::Input::default()).await
}

/// Prints the envelope as JSON or as text, prints its errors, and returns the matching exit code.
fn finish<T: Serialize>(global: &Global, envelope: &Envelope<T>, show: impl FnOnce(&T)) -> Outcome {
    if global.json {
        output::json(envelope);
    } else {
        if let Some(data) = &envelope.data {
            show(data);
        }
        tell_problem(global, envelope);
    }
    Ok(if is_failed(envelope) { ExitCode::from(output::FAILED) } else { ExitCode::SUCCESS })
}

fn is_failed<T>(envelope: &Envelope<T>) -> bool {
    envelope.status == Health::Unavailable || envelope.data.is_none()
}

fn tell_problem<T>(global: &Global, envelope: &Envelope<T>) {
    let Some(problem) = &envelope.error else { return };
    let failed = is_failed(envelope);
    if global.quiet && !failed {
        return;
    }
    let paint = Paint::stderr();
    let word = if failed { paint.red("error:") } else { paint.yellow(&format!("{}:", envelope.status.as_str())) };
    output::note(&format!("{word} {} [{}]", plain(&problem.message), output::word(&problem.code)));
    // The suggestion is written for an agent; the reader here is the user.
    let hint = match problem.code {
        ProblemCode::SensitiveFiltered => "Add --confirm-sensitive to see them.",
        _ => &problem.suggestion,
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
        (_, true) => Mode::Reindex,
        (true, false) => Mode::Full,
        (false, false) => Mode::Sync,
    };
    let progress = IndexProgress::new(global);
    let mut envelope = loop {
        let envelope = start(backend, mode).await?;
        let Some(data) = &envelope.data else { break envelope };
        if data.started {
            break envelope;
        }
        // The running job has another mode, or may have passed the changed notes already.
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
        ended(backend, data.job_id.as_deref(), &progress).await?;
    };
    if args.detach {
        return finish(global, &envelope, |_| output::note("indexing in the running Toolyard"));
    }
    if let Some(data) = envelope.data.as_mut().filter(|data| data.state == JobState::Running.as_str()) {
        let (job, ended) = ended(backend, data.job_id.as_deref(), &progress).await?;
        data.state = job.state.as_str().to_owned();
        data.indexed_files = job.indexed_files;
        data.removed_files = job.removed_files;
        data.embedded_chunks = job.embedded_chunks;
        data.duration_ms = job.duration_ms;
        data.errors = job.errors;
        data.error_count = job.error_count;
        data.total_chunks = ended.data.map_or(0, |data| data.total_chunks);
        (envelope.status, envelope.error, envelope.meta) = (ended.status, ended.error, ended.meta);
    }
    progress.finish();
    let is_done = envelope.data.as_ref().is_some_and(|data| data.state == JobState::Done.as_str());
    let outcome = finish(global, &envelope, show_job)?;
    Ok(if is_done { outcome } else { ExitCode::from(output::FAILED) })
}

fn show_job(data: &index::Data) {
    let seconds = data.duration_ms as f64 / 1e3;
    output::note(&format!(
        "{}: {} indexed, {} removed, {} in all, {seconds:.1} s",
        data.state,
        counted(data.indexed_files, "note"),
        data.removed_files,
        counted(data.total_chunks, "chunk"),
    ));
    for error in data.errors.iter().take(SHOWN_ERRORS) {
        output::note(&format!("  {}: {}", plain(&error.file), plain(&error.message)));
    }
    let more = data.error_count.saturating_sub(SHOWN_ERRORS as u64);
    if more > 0 {
        output::note(&format!("  and {more} more; `toolyard vault status --files failed` and `skipped` list them"));
    }
}

/// Waits for the end of the job with this id; another job may run by then. Returns the job and the status.
async fn ended(
    backend: &mut Backend,
    id: Option<&str>,
    progress: &IndexProgress,
) -> Result<(Job, Envelope<status::Data>), Failure> {
    let input = status::Input { job_id: id.map(str::to_owned), wait_ms: Some(WAIT_MS), ..status::Input::default() };
    loop {
        let mut status = call::<Status>(backend, &input).await?;
        let Some(job) = status.data.as_mut().and_then(|data| data.job.take()) else {
            return Err(Failure::new(ErrorCode::NotFound, "the job is not known any more")
                .suggest("See `toolyard vault status`, and index again."));
        };
        progress.show(job.done_files, job.total_files);
        if job.state != JobState::Running {
            return Ok((job, status));
        }
    }
}

/// Stops the running job, in whichever process it runs. It is no failure if no job runs; a job that does not stop is
/// one.
async fn cancel(global: &Global, backend: &mut Backend) -> Outcome {
    let was_running = look(backend).await?.data.is_some_and(|data| data.active_job.is_some());
    let envelope = start(backend, Mode::Cancel).await?;
    if envelope.data.is_none() && was_running {
        return finish(global, &envelope, |_| {});
    }
    let state = envelope.data.as_ref().map(|data| data.state.as_str()).unwrap_or_default();
    let word = match (was_running, state) {
        (_, "running") => "the job has not stopped yet",
        (false, _) => "no job was running",
        (true, "cancelled") => "stopped; the next job continues there",
        (true, _) => "the job had ended already",
    };
    if global.json {
        output::json(&envelope);
    } else {
        output::note(word);
    }
    Ok(if state == "running" { ExitCode::from(output::FAILED) } else { ExitCode::SUCCESS })
}

async fn search(global: &Global, backend: &mut Backend, args: SearchArgs) -> Outcome {
    let date_range = (args.from.is_some() || args.to.is_some()).then_some(DateRange { from: args.from, to: args.to });
    let input = search::Input {
        query: args.query.join(" "),
        max_results: Some(args.limit),
        directory_filter: (!args.folder.is_empty()).then_some(args.folder),
        date_range,
        tags: (!args.tag.is_empty()).then_some(args.tag),
        confirm_sensitive: args.confirm_sensitive.then_some(true),
        explain: Some(args.explain),
    };
    let mut envelope = call::<Search>(backend, &input).await?;
    let has_no_index = envelope.error.as_ref().is_some_and(|problem| problem.code == ProblemCode::IndexNotFound);
    if has_no_index && index_first(global, backend).await? {
        envelope = call::<Search>(backend, &input).await?;
    }
    finish(global, &envelope, |data| {
        let paint = Paint::stdout();
        let lines: Vec<String> =
            data.results.iter().enumerate().map(|(number, result)| shown(number + 1, result, paint)).collect();
        if lines.is_empty() {
            output::note("nothing found");
        } else {
            output::data(&lines.join("\n"));
        }
    })
}

/// Waits for the job that builds the first index. If no job runs, starts one for a person, so that a search needs no
/// second command; with `--json` the script receives the envelope and decides. Returns whether an index may exist now.
async fn index_first(global: &Global, backend: &mut Backend) -> Result<bool, Failure> {
    let progress = IndexProgress::new(global);
    let running = look(backend).await?.data.and_then(|data| data.active_job);
    let job = match running {
        Some(job) => job.id,
        None if global.json => return Ok(false),
        None => match start(backend, Mode::Full).await?.data.and_then(|data| data.job_id) {
            Some(id) => id,
            None => return Ok(false),
        },
    };
    if !global.quiet {
        output::note("the vault has no index yet; it is being indexed");
    }
    ended(backend, Some(&job), &progress).await?;
    progress.finish();
    Ok(true)
}

/// One result for people.
fn shown(number: usize, result: &ResultItem, paint: Paint) -> String {
    // Notes may contain text by anybody, so control characters are replaced before the text is printed.
    let mut place = paint.bold(&plain(&result.source_file));
    if let Some(section) = &result.section {
        place.push_str(&format!(" › {}", plain(section)));
    }
    let mut facts = vec![format!("{:.2}", result.score)];
    if result.kind == Kind::Memory {
        facts.push("remembered".to_owned());
    }
    facts.extend(result.date.as_deref().map(plain));
    facts.extend(result.tags.iter().map(|tag| format!("#{}", plain(tag))));
    let mut out = format!("{number:>2}. {place}  {}\n    {}\n", paint.dim(&facts.join(" ")), plain(&result.snippet));
    if let Some(explain) = &result.explain {
        let part = |name: &str, part: &Part| format!("{name} {:.3} x {:.2}", part.part, part.weight);
        let terms = |terms: &[String]| terms.iter().map(|term| plain(term)).collect::<Vec<_>>().join(" ");
        let parts =
            [part("full_text", &explain.full_text), part("vector", &explain.vector), part("links", &explain.links)];
        let mut line = format!("{}; terms: {}", parts.join(" + "), terms(&explain.matched_terms));
        if !explain.repeated_terms.is_empty() {
            line.push_str(&format!("; counted more than once: {}", terms(&explain.repeated_terms)));
        }
        out.push_str(&format!("    {}\n", paint.dim(&line)));
    }
    out
}

fn show_status(global: &Global, data: &status::Data) {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let counts = &data.files;
    let mut rows = vec![
        row("health", data.plugin_health.as_str().to_owned()),
        row(
            "notes",
            format!(
                "{} indexed, {} empty, {} skipped, {} failed",
                counts.indexed, counts.empty, counts.skipped, counts.failed
            ),
        ),
        row("chunks", data.total_chunks.to_string()),
        row("to be indexed", data.unindexed_files.to_string()),
        row("last sync", data.last_sync.clone().unwrap_or_else(|| "never".to_owned())),
    ];
    if let Some(index) = &data.index {
        let memory = if index.vectors_in_memory { "in memory" } else { "on disk" };
        let version = format!("{} of {}, {} kept", index.version, index.completed_at, index.versions_kept);
        rows.push(row("version", version));
        rows.push(row("vectors", format!("{}, {} dimensions, {memory}", index.embedder, index.dimensions)));
    }
    rows.push(row("embedder", format!("{} {}", data.embedder.status, data.embedder.id).trim_end().to_owned()));
    rows.push(row("Ollama", data.ollama_status.clone()));
    if let Some(job) = &data.active_job {
        rows.push(row("indexing", format!("{} of {}", job.done_files, counted(job.total_files, "note"))));
    }
    output::data(&output::table(&rows));
    let Some(list) = &data.file_list else { return };
    let files: Vec<Vec<String>> =
        list.files.iter().map(|file| vec![file.state.clone(), plain(&file.path), plain(&file.reason)]).collect();
    if !files.is_empty() {
        output::data(&output::table(&files));
    }
    if !global.quiet {
        output::note(&page(list));
    }
}

/// Which of the files were listed, and how to see the next ones.
fn page(list: &FileList) -> String {
    let (total, first, shown) = (list.total, list.offset, list.files.len());
    let next = first + shown;
    if first == 0 && next >= total {
        format!("{total} files")
    } else if next >= total {
        format!("{shown} of {total} files, the last ones")
    } else {
        format!("{shown} of {total} files; --offset {next} for the next ones")
    }
}

/// Watches until interrupted and prints what happens.
async fn watch(global: &Global, backend: &mut Backend) -> Outcome {
    match backend {
        Backend::There(_) if !config::resolve(global)?.config.knowledge.indexing.watch => {
            let message = "the running Toolyard does not watch the vault: knowledge.indexing.watch is false";
            return Err(Failure::new(ErrorCode::PreconditionFailed, message)
                .suggest("Set it and start Toolyard again, or watch in this process with --in-process."));
        }
        Backend::There(_) => output::note("the running Toolyard watches the vault; ctrl-c ends this view only"),
        Backend::Here(app) => {
            app.watch_notes_in_any_case();
            output::note("watching the vault; ctrl-c to stop");
        }
    }
    // The last job that was reported; `None` before the first status.
    let mut told: Option<Option<String>> = None;
    loop {
        let envelope = look(backend).await?;
        let has_no_index = envelope.error.is_some_and(|problem| problem.code == ProblemCode::IndexNotFound);
        if told.is_none() && has_no_index {
            output::note("no index yet: indexing");
            start(backend, Mode::Full).await?;
        }
        let job = envelope.data.and_then(|data| data.last_job);
        if let Some(job) = job.as_ref().filter(|job| told.as_ref().and_then(Option::as_deref) != Some(&job.id)) {
            if global.json {
                output::json(job);
            } else {
                output::data(&format!(
                    "{} {}: {} indexed, {} removed, {} ms",
                    job.ended_at.map(|time| time.to_string()).unwrap_or_default(),
                    job.state.as_str(),
                    job.indexed_files,
                    job.removed_files,
                    job.duration_ms
                ));
            }
        }
        told = Some(job.map(|job| job.id));
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolyard_knowledge::tools::{search::Explanation, status::FileData};

    #[test]
    fn a_page_of_files_says_what_is_missing() {
        let told = |total: usize, offset: usize, shown: usize| {
            let file = || FileData { path: String::new(), state: String::new(), reason: String::new(), chunks: 0 };
            page(&FileList { total, offset, files: std::iter::repeat_with(file).take(shown).collect() })
        };
        assert_eq!(told(6_500, 0, 100), "100 of 6500 files; --offset 100 for the next ones");
        assert_eq!(told(6_500, 6_400, 100), "100 of 6500 files, the last ones");
        assert_eq!(told(3, 0, 3), "3 files");
    }

    fn result(explain: Option<Explanation>) -> ResultItem {
        ResultItem {
            chunk_text: String::new(),
            score: 1.0,
            source_file: "a\u{1b}[31m.md".to_owned(),
            section: Some("b\u{7}".to_owned()),
            date: None,
            tags: vec!["e\u{9b}".to_owned()],
            chunk_index: 0,
            kind: Kind::Note,
            title: String::new(),
            snippet: "c\u{1b}[2Jd".to_owned(),
            byte_range: None,
            explain,
        }
    }

    #[test]
    fn a_result_shows_what_a_note_says_and_nothing_else() {
        let shown = shown(1, &result(None), Paint::stdout());
        assert!(!shown.replace('\n', "").contains(char::is_control), "{shown:?}");
    }

    #[test]
    fn an_explanation_names_the_terms_that_the_question_repeats() {
        let part = || Part { raw: None, part: 0.0, weight: 0.0 };
        let explained = |repeated_terms: Vec<String>| {
            let matched_terms = vec!["boat".to_owned(), "sail".to_owned()];
            let explain =
                Explanation { full_text: part(), vector: part(), links: part(), matched_terms, repeated_terms };
            shown(1, &result(Some(explain)), Paint::stdout())
        };
        assert!(explained(vec!["boat".to_owned()]).contains("terms: boat sail; counted more than once: boat"));
        assert!(!explained(Vec::new()).contains("counted more than once"));
    }
}
