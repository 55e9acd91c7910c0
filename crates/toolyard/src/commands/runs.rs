//! `toolyard runs`: lists, shows, exports and resumes runs.

use super::{Outcome, input, verify, watch};
use crate::{
    backend::Backend,
    cli::{Global, RunFilterArgs, RunsCommand},
    output::{self, Paint},
    progress::PlanProgress,
    run_files,
    terminal::counted,
    wiring::RequiredParts,
};
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};
use toolyard_engine::{record::Settlement, view::RunExport};
use toolyard_protocol::{Confirmation, ErrorCode, Failure, RunId, ToolResult};
use toolyard_service::{
    plans::PlanRun,
    run_digest::DigestParams,
    run_pages::{CallsParams, RecordParams, RunsRecord},
    runs::{
        ExportedRun, ResumeParams, RunDetail, RunList, RunParams, RunSummary, RunsCancel, RunsExport, RunsGet,
        RunsList, RunsListParams, RunsResume, RunsTranscript, VerifyParams,
    },
};

fn named(run: &str) -> Result<RunParams, Failure> {
    Ok(RunParams { run_id: input::run_id(run)? })
}

pub(super) async fn run(global: &Global, command: RunsCommand) -> Outcome {
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let outcome = answer(global, &mut backend, command).await;
    backend.close().await;
    outcome
}

/// The parameters that the options of a filter mean.
fn filtered(filter: RunFilterArgs) -> RunsListParams {
    let RunFilterArgs { agent, tool, door, text, from, to, counts } = filter;
    RunsListParams { agent, tool, door, text, from, to, counts, total: true, ..RunsListParams::default() }
}

async fn answer(global: &Global, backend: &mut Backend, command: RunsCommand) -> Outcome {
    match command {
        RunsCommand::List { status, kind, limit, before, filter } => {
            let before = before.as_deref().map(input::run_id).transpose()?;
            let status = status.iter().map(|word| input::word("--status", word)).collect::<Result<_, _>>()?;
            let kind = kind.map(|word| input::word("--kind", &word)).transpose()?;
            let params = RunsListParams { status, kind, before, limit: Some(limit), ..filtered(filter) };
            list(global, &backend.call::<RunsList>(&params, None).await?);
            Ok(ExitCode::SUCCESS)
        }
        RunsCommand::Calls { run, after, limit, failed, tool } => {
            let params = CallsParams { run_id: input::run_id(&run)?, after, limit: Some(limit), failed, tool };
            watch::calls(global, backend, &params).await
        }
        RunsCommand::Digest { since } => watch::digest(global, backend, &DigestParams { since, until: None }).await,
        RunsCommand::Record { run, from } => {
            let params = RecordParams { run_id: input::run_id(&run)?, from: Some(from), limit: None };
            output::json(&backend.call::<RunsRecord>(&params, None).await?);
            Ok(ExitCode::SUCCESS)
        }
        RunsCommand::Watch => watch::runs(global, backend).await,
        RunsCommand::Show { run } => {
            let answer = backend.call::<RunsGet>(&named(&run)?, None).await?;
            if global.json {
                output::json(&answer)
            } else {
                show(&answer)
            }
            Ok(ExitCode::SUCCESS)
        }
        RunsCommand::Transcript { run } => {
            let answer = backend.call::<RunsTranscript>(&named(&run)?, None).await?;
            if global.json {
                output::json(&answer);
            } else {
                answer.messages.iter().for_each(output::json);
            }
            Ok(ExitCode::SUCCESS)
        }
        RunsCommand::Export { run, out } => export(global, backend, &run, &out).await,
        RunsCommand::Verify { run, head, receipt, secret } => {
            let params = verify_params(run.as_deref(), head, receipt, secret)?;
            verify::verify(global, backend, &params).await
        }
        RunsCommand::Head { tiles } => verify::head(global, backend, tiles).await,
        RunsCommand::Prove { id, out } => verify::prove(global, backend, &id, &out).await,
        RunsCommand::Resume { run, assume_done, rerun, abort, yes } => {
            let settle = match (assume_done, rerun, abort) {
                (true, ..) => Some(Settlement::AssumeDone),
                (_, true, _) => Some(Settlement::Rerun),
                (.., true) => Some(Settlement::Abort),
                _ => None,
            };
            let progress = PlanProgress::new(global, 0);
            let params = ResumeParams { run_id: input::run_id(&run)?, settle, approve: yes };
            let report = backend.call::<RunsResume>(&params, progress.sink()).await;
            progress.finish();
            super::plan::finish_run(global, &PlanRun::Report(Box::new(report?)))
        }
        RunsCommand::Cancel { run } => {
            let answer = backend.call::<RunsCancel>(&named(&run)?, None).await?;
            if global.json {
                output::json(&answer)
            } else {
                output::data("stopping")
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn verify_params(
    run: Option<&str>,
    head: Option<PathBuf>,
    receipt: Option<PathBuf>,
    secret: Option<PathBuf>,
) -> Result<VerifyParams, Failure> {
    let read = |path: Option<PathBuf>| path.as_deref().map(input::text_file).transpose();
    // An editor ends a file with a line break, which is not part of the secret in it.
    let secret = read(secret)?.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
    let run_id = run.map(input::run_id).transpose()?;
    Ok(VerifyParams { run_id, head: read(head)?, receipt: read(receipt)?, secret })
}

fn list(global: &Global, answer: &RunList) {
    if global.json {
        return output::json(answer);
    }
    let row = |run: &RunSummary| {
        let (run_id, started) = (run.run_id.to_string(), run.started_at.to_string());
        let mut row = vec![run_id, run.status.as_str().to_owned(), output::word(&run.kind), started];
        if let Some(counts) = &run.counts {
            let calls = counted(counts.calls, "call");
            let calls = format!("{calls}, {} failed, {} changed", counts.failed, counts.changed);
            row.extend([output::plain(&counts.agent), counts.door.clone(), calls]);
        }
        let subject = run.counts.as_ref().filter(|counts| counts.calls <= 1).and_then(|counts| counts.subject.as_ref());
        let subject = subject.map(|subject| format!(" {subject}")).unwrap_or_default();
        row.push(output::plain(&format!("{}{subject}", run.title)));
        row
    };
    output::data(&output::table(&answer.runs.iter().map(row).collect::<Vec<_>>()));
    if let Some(total) = answer.total.filter(|total| *total > answer.runs.len() as u64 && !global.quiet) {
        output::note(&format!("{} of {}", answer.runs.len(), counted(total, "run")));
    }
    if let Some(next) = answer.next {
        output::note(&format!("there may be more: --before {next}"));
    }
}

fn show(answer: &RunDetail) {
    let paint = Paint::stdout();
    let run = &answer.run;
    let title = run.plan.as_ref().map_or("direct call", |plan| plan.goal.as_str());
    let title = output::plain(title);
    output::data(&format!("{} {} {title}", paint.bold(&run.run_id.to_string()), paint.status(run.status.as_str())));
    output::data(&format!("started {}  head {} {}", run.started_at, run.head.seq, run.head.hash));
    answer.approvals.iter().for_each(|given| output::data(&approval_line(given)));
    let row = |result: &ToolResult| {
        let message = result.error.as_ref().map(|error| &error.message).or(result.user_message.as_ref());
        vec![
            result.status.as_str().to_owned(),
            result.step_id.to_string(),
            result.tool.to_string(),
            format!("{} ms", result.duration_ms),
            message.map(|message| output::plain(message)).unwrap_or_default(),
        ]
    };
    output::data(&output::table(&answer.results.iter().map(row).collect::<Vec<_>>()));
}

/// One approval: who, by which door, when, and the hash of what was shown.
fn approval_line(given: &Confirmation) -> String {
    let door = given.door.as_deref().map(|door| format!(" by {door}")).unwrap_or_default();
    let shown = match (&given.shown, &given.grant_id) {
        (Some(shown), _) => format!("shown {shown}"),
        (None, Some(grant)) => format!("grant {grant}"),
        (None, None) => "their own act".to_owned(),
    };
    format!("approved ({}) {} {}{door}, {shown}", given.scope, given.at, given.by)
}

/// What an export wrote.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Exported {
    run_id: RunId,
    files: Vec<String>,
    calls: usize,
    results: usize,
    events: usize,
}

async fn export(global: &Global, backend: &mut Backend, run: &str, out: &Path) -> Outcome {
    let answer = backend.call::<RunsExport>(&named(run)?, None).await?;
    let ExportedRun { run, calls, results, events, approvals } = answer;
    let export = RunExport { manifest: run, calls, results, events, approvals };
    let out =
        std::path::absolute(out).map_err(|e| Failure::new(ErrorCode::UsageError, format!("{}: {e}", out.display())))?;
    run_files::write_export(&export, &out).map_err(|e| {
        Failure::new(ErrorCode::UsageError, format!("{} cannot be written: {e}", out.display()))
            .suggest("Choose another folder with --out.")
    })?;
    if global.json {
        output::json(&Exported {
            run_id: export.manifest.run_id,
            files: run_files::FILES.iter().map(|file| out.join(file).display().to_string()).collect(),
            calls: export.calls.len(),
            results: export.results.len(),
            events: export.events.len(),
        });
    } else {
        output::data(&out.display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}
