//! `toolyard runs verify | head | prove`: verifies the record, prints its head, and writes receipts for others.

use super::{Outcome, input};
use crate::{backend::Backend, cli::Global, output};
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};
use toolyard_engine::ledger::{LedgerReport, VerifyReport, WrittenTiles};
use toolyard_protocol::{CallId, ErrorCode, Failure, RunId};
use toolyard_service::{
    NoParams,
    proof::{ProveParams, RunsHead, RunsProve, RunsTiles, TilesParams, Verified},
    runs::{RunsVerify, VerifyParams},
};

/// The problem, if the record does not verify.
fn problem(report: &Verified) -> Option<String> {
    match report {
        Verified::Run(report) => {
            let bad = report.first_bad.as_ref().map(|bad| format!("record {}: {}", bad.seq, bad.problem));
            let unknown = report.secret_arguments.as_ref().is_some_and(Vec::is_empty);
            bad.or_else(|| unknown.then(|| "no argument of the run held this secret".to_owned()))
        }
        Verified::Receipt(report) => report.first_bad.as_ref().map(|bad| bad.problem.clone()),
        Verified::Ledger(report) => report.first_bad.as_ref().map(|bad| {
            let more = report.bad.saturating_sub(1);
            let more = if more > 0 { format!(" ({more} more runs do not verify: see --json)") } else { String::new() };
            format!("{bad}{more}")
        }),
    }
}

pub(super) async fn verify(global: &Global, backend: &mut Backend, params: &VerifyParams) -> Outcome {
    let report = backend.call::<RunsVerify>(params, None).await?;
    let problem = problem(&report);
    if global.json {
        output::json(&report);
        return Ok(if problem.is_none() { ExitCode::SUCCESS } else { ExitCode::from(output::FAILED) });
    }
    if let Some(problem) = problem {
        return Ok(output::failure(global, &Failure::new(ErrorCode::RecordCorrupted, problem)));
    }
    match &report {
        Verified::Run(report) => {
            let approvals = match report.approvals {
                0 => String::new(),
                approvals => format!(", {approvals} approvals"),
            };
            output::data(&format!("verified: {} records{approvals}", report.records));
            for held in report.secret_arguments.iter().flatten() {
                output::data(&format!("call {} held this secret in {}", held.call_id, held.path));
            }
            say_what_is_unproven(report);
        }
        Verified::Receipt(report) => {
            let what = report.call_id.map_or_else(|| format!("run {}", report.run_id), |call| format!("call {call}"));
            output::data(&format!("verified: {what} is in the ledger of {} leaves", report.size));
        }
        Verified::Ledger(report) => {
            let LedgerReport { entries, runs, records, heads, .. } = &**report;
            output::data(&format!(
                "verified: {entries} ledger entries, {runs} runs, {records} records, {heads} kept heads"
            ));
            say_which_are_unproven(report);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints how many records are consistent but unproven, because an earlier version wrote them without proof.
fn say_what_is_unproven(report: &VerifyReport) {
    for range in &report.unsigned {
        output::note(&format!("records {} to {} carry no proof: an earlier version wrote them", range.from, range.to));
    }
}

/// Prints the same for all runs in the store.
fn say_which_are_unproven(report: &LedgerReport) {
    for run in &report.unsigned_runs {
        let (run_id, from, to) = (run.run_id, run.records.from, run.records.to);
        output::note(&format!("run {run_id}: records {from} to {to} carry no proof: an earlier version wrote them"));
    }
    if report.sealed_at_start > 0 {
        let late = report.sealed_at_start;
        output::note(&format!("{late} runs were sealed at a later start, after a crash"));
    }
}

pub(super) async fn head(global: &Global, backend: &mut Backend, tiles: Option<PathBuf>) -> Outcome {
    if let Some(out) = tiles {
        let out = input::absolute(&out)?;
        let WrittenTiles { size, files, head } = backend.call::<RunsTiles>(&TilesParams { out }, None).await?;
        if global.json {
            output::json(&WrittenTiles { size, files, head });
        } else {
            output::data(&format!("{files} files for {size} leaves"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let head = backend.call::<RunsHead>(&NoParams {}, None).await?;
    if global.json {
        output::json(&head);
    } else {
        output::data(head.note.trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

/// What `runs prove` wrote.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenReceipt {
    run_id: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<CallId>,
    file: String,
    index: u64,
    records: usize,
}

pub(super) async fn prove(global: &Global, backend: &mut Backend, id: &str, out: &Path) -> Outcome {
    let receipt = backend.call::<RunsProve>(&ProveParams { id: input::run_id(id)? }, None).await?;
    let text = serde_json::to_string_pretty(&receipt)
        .map_err(|error| Failure::new(ErrorCode::InternalError, format!("the receipt cannot be written: {error}")))?;
    std::fs::write(out, text + "\n").map_err(|error| {
        Failure::new(ErrorCode::UsageError, format!("{} cannot be written: {error}", out.display()))
            .suggest("Choose another file with --out.")
    })?;
    if global.json {
        output::json(&WrittenReceipt {
            run_id: receipt.run_id,
            call_id: receipt.call_id,
            file: out.display().to_string(),
            index: receipt.index,
            records: receipt.records.len(),
        });
    } else {
        output::data(&out.display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}
