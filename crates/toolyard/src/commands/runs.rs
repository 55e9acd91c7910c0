//! `toolyard runs`: what happened, and the proof of it.

use super::{Outcome, input};
use crate::{
    backend::Backend,
    cli::{Global, RunsCommand},
    output::{self, Paint},
    progress::PlanProgress,
    run_files,
    wiring::Needs,
};
use serde_json::{Value, json};
use std::{path::Path, process::ExitCode};
use toolyard_engine::view::RunExport;
use toolyard_protocol::{ErrorCode, Failure};

pub(super) async fn run(global: &Global, command: RunsCommand) -> Outcome {
    let mut backend = Backend::open(global, Needs::Store).await?;
    let outcome = answer(global, &mut backend, command).await;
    backend.close().await;
    outcome
}

async fn answer(global: &Global, backend: &mut Backend, command: RunsCommand) -> Outcome {
    match command {
        RunsCommand::List { status, kind, limit, before } => {
            let before = before.as_deref().map(input::run_id).transpose()?;
            let params = json!({"status": status, "kind": kind, "limit": limit, "before": before});
            let answer = backend.call("runs.list", params, None).await?;
            if global.json {
                output::json(&answer)
            } else {
                list(&answer)
            }
            Ok(ExitCode::SUCCESS)
        }
        RunsCommand::Show { run } => {
            let answer = backend.call("runs.get", json!({"runId": input::run_id(&run)?}), None).await?;
            if global.json {
                output::json(&answer)
            } else {
                show(&answer)
            }
            Ok(ExitCode::SUCCESS)
        }
        RunsCommand::Transcript { run } => {
            let answer = backend.call("runs.transcript", json!({"runId": input::run_id(&run)?}), None).await?;
            if global.json {
                output::json(&answer);
            } else {
                answer["messages"].as_array().into_iter().flatten().for_each(output::json);
            }
            Ok(ExitCode::SUCCESS)
        }
        RunsCommand::Export { run, out } => export(global, backend, &run, &out).await,
        RunsCommand::Verify { run } => verify(global, backend, run.as_deref()).await,
        RunsCommand::Resume { run, assume_done, rerun, abort, yes } => {
            let settle = match (assume_done, rerun, abort) {
                (true, ..) => Some("assume-done"),
                (_, true, _) => Some("rerun"),
                (.., true) => Some("abort"),
                _ => None,
            };
            let progress = PlanProgress::new(global, 0);
            let params = json!({"runId": input::run_id(&run)?, "settle": settle, "approve": yes});
            let report = backend.call("runs.resume", params, progress.sink()).await;
            progress.finish();
            super::plan::finish_run(global, &report?)
        }
        RunsCommand::Cancel { run } => {
            let answer = backend.call("runs.cancel", json!({"runId": input::run_id(&run)?}), None).await?;
            if global.json {
                output::json(&answer)
            } else {
                output::data("stopping")
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn list(answer: &Value) {
    let rows: Vec<Vec<String>> = answer["runs"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|run| {
            let text = |key: &str| run[key].as_str().unwrap_or_default().to_owned();
            vec![text("runId"), text("status"), text("kind"), text("startedAt"), text("title")]
        })
        .collect();
    output::data(&output::table(&rows));
}

fn show(answer: &Value) {
    let paint = Paint::stdout();
    let run = &answer["run"];
    let title = run["plan"]["goal"].as_str().unwrap_or("direct call");
    output::data(&format!(
        "{} {} {title}",
        paint.bold(run["runId"].as_str().unwrap_or_default()),
        paint.status(run["status"].as_str().unwrap_or_default())
    ));
    output::data(&format!(
        "started {}  head {} {}",
        run["startedAt"].as_str().unwrap_or_default(),
        run["head"]["seq"],
        run["head"]["hash"].as_str().unwrap_or_default()
    ));
    if let Some(by) = run["confirmation"]["by"].as_str() {
        output::data(&format!(
            "approved by {by}, {}",
            run["confirmation"]["confirmationId"].as_str().unwrap_or_default()
        ));
    }
    let rows: Vec<Vec<String>> = answer["results"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|r| {
            let text = |key: &str| r[key].as_str().unwrap_or_default().to_owned();
            let message = r["error"]["message"].as_str().or(r["userMessage"].as_str()).unwrap_or_default().to_owned();
            vec![text("status"), text("stepId"), text("tool"), format!("{} ms", r["durationMs"]), message]
        })
        .collect();
    output::data(&output::table(&rows));
}

async fn export(global: &Global, backend: &mut Backend, run: &str, out: &Path) -> Outcome {
    let mut answer = backend.call("runs.export", json!({"runId": input::run_id(run)?}), None).await?;
    let unreadable =
        |e: serde_json::Error| Failure::new(ErrorCode::InternalError, format!("the answer cannot be read: {e}"));
    let export = RunExport {
        manifest: serde_json::from_value(answer["run"].take()).map_err(unreadable)?,
        calls: serde_json::from_value(answer["calls"].take()).map_err(unreadable)?,
        results: serde_json::from_value(answer["results"].take()).map_err(unreadable)?,
        events: serde_json::from_value(answer["events"].take()).map_err(unreadable)?,
    };
    let out =
        std::path::absolute(out).map_err(|e| Failure::new(ErrorCode::UsageError, format!("{}: {e}", out.display())))?;
    run_files::write_export(&export, &out).map_err(|e| {
        Failure::new(ErrorCode::UsageError, format!("{} cannot be written: {e}", out.display()))
            .suggest("Choose another folder with --out.")
    })?;
    if global.json {
        let files: Vec<String> = run_files::FILES.iter().map(|f| out.join(f).display().to_string()).collect();
        output::json(
            &json!({"runId": export.manifest.run_id, "files": files, "calls": export.calls.len(), "results": export.results.len(), "events": export.events.len()}),
        );
    } else {
        output::data(&out.display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}

async fn verify(global: &Global, backend: &mut Backend, run: Option<&str>) -> Outcome {
    let run_id = run.map(input::run_id).transpose()?;
    let report = backend.call("runs.verify", json!({"runId": run_id}), None).await?;
    let ok = report["ok"] == true;
    if global.json {
        output::json(&report);
    } else if ok {
        let what = if run.is_some() {
            format!("{} records", report["records"])
        } else {
            format!("{} ledger entries, {} runs, {} records", report["entries"], report["runs"], report["records"])
        };
        output::data(&format!("verified: {what}"));
        say_what_is_unproven(&report);
    } else {
        let message = match first_problem(&report) {
            Some(problem) => problem,
            None => {
                let missing = report["missingRuns"].as_array().map_or(0, Vec::len);
                format!("{missing} runs named in the ledger are gone from the store")
            }
        };
        return Ok(output::failure(global, &Failure::new(ErrorCode::RecordCorrupted, message)));
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::from(output::FAILED) })
}

/// The first bad record of the run or ledger, or the first bad run of the store and how many more there are.
fn first_problem(report: &Value) -> Option<String> {
    let record = |bad: &Value| {
        let seq = bad["seq"].as_u64()?;
        Some(format!("record {seq}: {}", bad["problem"].as_str().unwrap_or_default()))
    };
    record(&report["firstBad"]).or_else(|| {
        let bad = &report["badRuns"][0];
        let more = report["bad"].as_u64().unwrap_or(1).saturating_sub(1);
        let more = if more > 0 { format!(" ({more} more runs do not verify: see --json)") } else { String::new() };
        Some(format!("run {}, {}{more}", bad["runId"].as_str().unwrap_or_default(), record(bad)?))
    })
}

/// Records and runs that hold, and whose proof has a gap that a crash explains as well as an attack does.
fn say_what_is_unproven(report: &Value) {
    for range in report["unsigned"].as_array().into_iter().flatten() {
        output::note(&format!("records {} to {} were found unsigned after a crash", range["from"], range["to"]));
    }
    for run in report["unsignedRuns"].as_array().into_iter().flatten() {
        let run_id = run["runId"].as_str().unwrap_or_default();
        output::note(&format!(
            "run {run_id}: records {} to {} were found unsigned after a crash",
            run["from"], run["to"]
        ));
    }
    if let Some(late) = report["sealedAtStart"].as_u64().filter(|n| *n > 0) {
        output::note(&format!(
            "{late} runs were sealed at a later start, after a crash or after their entry was removed"
        ));
    }
}
