//! `toolyard backup`, `restore`, `prune` and `store`.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{BackupArgs, Global, PruneArgs, RestoreArgs, StoreCommand},
    home::Home,
    output,
    upkeep::{self, BackupParams, PruneParams, StoreBackup, StoreCheck, StorePrune, StoreStatsMethod},
    wiring::RequiredParts,
};
use serde::Serialize;
use std::process::ExitCode;
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::NoParams;

fn tell(global: &Global, answer: &impl Serialize, line: impl FnOnce() -> String) {
    if global.json {
        output::json(answer);
    } else {
        output::data(&line());
    }
}

pub(super) async fn backup(global: &Global, args: BackupArgs) -> Outcome {
    // A running Toolyard may have another working directory.
    let out = std::path::absolute(&args.out)
        .map_err(|e| Failure::new(ErrorCode::UsageError, format!("{}: {e}", args.out.display())))?;
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let params = BackupParams { out, without_keys: args.without_keys };
    let answer = backend.call::<StoreBackup>(&params, None).await;
    backend.close().await;
    let report = answer?;
    tell(global, &report, || {
        format!("{} files, {} bytes in {} as of {}", report.files, report.bytes, report.path.display(), report.at)
    });
    Ok(ExitCode::SUCCESS)
}

pub(super) fn restore(global: &Global, args: &RestoreArgs) -> Outcome {
    let home =
        Home::resolve(global.home.as_deref()).map_err(|e| Failure::new(ErrorCode::UsageError, format!("{e:#}")))?;
    let report = upkeep::restore(&args.from, &home)?;
    tell(global, &report, || report.summary());
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn prune(global: &Global, args: PruneArgs) -> Outcome {
    if let Some(age) = &args.older_than {
        upkeep::parse_age(age)?;
    }
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let params = PruneParams { older_than: args.older_than, max_megabytes: args.max_megabytes };
    let answer = backend.call::<StorePrune>(&params, None).await;
    backend.close().await;
    let report = answer?;
    tell(global, &report, || {
        format!(
            "removed {} runs and {} blobs ({} bytes), and snapshots of {} projects ({} bytes)",
            report.removed.runs,
            report.removed.blobs,
            report.removed.blob_bytes,
            report.snapshots.projects,
            report.snapshots.bytes
        )
    });
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn store(global: &Global, command: StoreCommand) -> Outcome {
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let outcome = match command {
        StoreCommand::Check => check(global, &mut backend).await,
        StoreCommand::Stats => stats(global, &mut backend).await,
    };
    backend.close().await;
    outcome
}

async fn check(global: &Global, backend: &mut Backend) -> Outcome {
    let checked = backend.call::<StoreCheck>(&NoParams {}, None).await?;
    tell(global, &checked, || {
        let seen = format!(
            "{} runs, {} frames, {} blobs, {} journals",
            checked.runs, checked.frames, checked.blobs, checked.journals
        );
        match checked.ok {
            true => format!("nothing is wrong: {seen}"),
            false => format!("{}\n{} problems in {seen}", checked.problems.join("\n"), checked.problem_count),
        }
    });
    Ok(if checked.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn stats(global: &Global, backend: &mut Backend) -> Outcome {
    let stats = backend.call::<StoreStatsMethod>(&NoParams {}, None).await?;
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    tell(global, &stats, || {
        output::table(&[
            row("format version", stats.version.to_string()),
            row("runs", format!("{} ({} open)", stats.runs, stats.open_runs)),
            row("frames", stats.frames.to_string()),
            row("blobs", stats.blobs.to_string()),
            row("facts", stats.facts.to_string()),
            row("ledger entries", stats.ledger_entries.to_string()),
            row("database bytes", format!("{} ({} free)", stats.database_bytes, stats.free_bytes)),
            row("log bytes", stats.log_bytes.to_string()),
            row("blob file bytes", stats.blob_file_bytes.to_string()),
            row("journal bytes", stats.journal_bytes.to_string()),
            row("used bytes", stats.used_bytes.to_string()),
            row("oldest run", stats.oldest_run.map_or_else(|| "none".to_owned(), |at| at.to_string())),
            row("processes", stats.processes.to_string()),
        ])
    });
    Ok(ExitCode::SUCCESS)
}
