//! The proof of the record: verifying a whole store, and verifying one receipt.

use crate::{
    Setup,
    report::{Good, Report},
    rig::{Rig, caller, signer},
    stats::{median, most},
    tools::ECHO,
    workloads,
};
use anyhow::{Result, ensure};
use serde_json::json;
use std::{sync::Arc, time::Instant};
use toolyard_engine::{
    CallRequest, Store,
    ledger::{Receipt, VerifyOptions, verify_ledger, verify_receipt, verify_run},
};
use toolyard_protocol::RunId;

/// Iterations of the long run; each has two records.
const ITERATIONS: usize = 100_000;
/// Number of direct calls besides it, each a run of its own.
const CALLS: usize = 25_000;
/// Calls between two ledger entries, as at a few hundred calls per second.
const CALLS_PER_ENTRY: usize = 200;
/// Number of calls in the ledger of which one is proven.
const RECEIPT_CALLS: usize = 5000;
/// Receipts verified per round.
const RECEIPTS: u32 = 200;

/// Makes direct calls, seals them periodically, and returns the runs.
fn calls(rig: &Rig, n: usize) -> Result<Vec<RunId>> {
    let engine = rig.engine.clone();
    let args = json!({"text": "one", "n": 1}).as_object().cloned().unwrap_or_default();
    rig.runtime.block_on(async move {
        let mut runs = Vec::with_capacity(n);
        for i in 0..n {
            let request = CallRequest { tool: ECHO.to_owned(), args: args.clone(), ..CallRequest::default() };
            let answer = engine.call(caller(), request).await;
            ensure!(answer.result.ok, "a call failed: {:?}", answer.result.error);
            runs.push(answer.result.run_id);
            if i % CALLS_PER_ENTRY == 0 {
                engine.seal().await.map_err(|failure| anyhow::anyhow!("{failure}"))?;
            }
        }
        engine.seal().await.map_err(|failure| anyhow::anyhow!("{failure}"))?;
        Ok(runs)
    })
}

/// Verifies every record, chain, tag, signature and leaf of a store, and separately its long run.
pub(crate) fn verify(setup: &Setup) -> Result<Report> {
    let rig = Rig::new(setup)?;
    let run = rig.run(&Arc::new(workloads::echo_loop(ITERATIONS)?))?;
    calls(&rig, CALLS)?;
    rig.store.settle()?;
    let verifier = signer().verifier();
    let (mut rates, mut one_run, mut records) = (Vec::new(), Vec::new(), 0);
    for _ in 0..setup.rounds {
        let started = Instant::now();
        let report = verify_ledger(&*rig.store, &verifier, &VerifyOptions::default())
            .map_err(|failure| anyhow::anyhow!("the store cannot be read: {failure}"))?;
        ensure!(report.ok, "the store does not hold: {:?}", report.first_bad);
        records = report.records;
        rates.push(records as f64 / started.elapsed().as_secs_f64());
        let started = Instant::now();
        let report = verify_run(&*rig.store, run.run_id, &verifier)
            .map_err(|failure| anyhow::anyhow!("the run cannot be read: {failure}"))?;
        ensure!(report.ok && report.ledger_entry.is_some(), "the run does not hold: {:?}", report.first_bad);
        one_run.push(report.records as f64 / started.elapsed().as_secs_f64());
    }
    ensure!(records >= 250_000, "the store has only {records} records");
    rig.close();
    Ok(Report::new("verify", "recordsPerSecond", Good::AtLeast, 200_000.0)
        .figure("recordsPerSecond", median(&rates))
        .figure("best", most(&rates))
        .figure("oneRunRecordsPerSecond", median(&one_run))
        .figure("records", records as f64)
        .figure("runs", CALLS as f64 + 1.0))
}

/// Creates one receipt and verifies it with the public key alone.
pub(crate) fn receipt_verify(setup: &Setup) -> Result<Report> {
    let rig = Rig::new(setup)?;
    let runs = calls(&rig, RECEIPT_CALLS)?;
    rig.store.settle()?;
    let (signer, keys) = (signer(), [signer().verifier()]);
    let (mut made, mut checked, mut bytes) = (Vec::new(), Vec::new(), 0);
    for round in 0..setup.rounds {
        let run_id = runs[(round * 997) % runs.len()];
        let started = Instant::now();
        let receipt = Receipt::make(&*rig.store, &signer, run_id, None)
            .map_err(|failure| anyhow::anyhow!("the run cannot be proven: {failure}"))?;
        made.push(started.elapsed().as_secs_f64() * 1e3);
        let text = serde_json::to_string(&receipt)?;
        bytes = text.len();
        let started = Instant::now();
        for _ in 0..RECEIPTS {
            let receipt: Receipt = serde_json::from_str(&text)?;
            ensure!(verify_receipt(&receipt, &keys).ok, "the receipt does not hold");
        }
        checked.push(started.elapsed().as_secs_f64() * 1e3 / f64::from(RECEIPTS));
    }
    rig.close();
    Ok(Report::new("receipt-verify", "milliseconds", Good::Below, 1.0)
        .figure("milliseconds", median(&checked))
        .figure("makeMilliseconds", median(&made))
        .figure("leaves", RECEIPT_CALLS as f64)
        .figure("bytes", bytes as f64))
}
