//! Plans of read-only steps, and the bytes that steps leave on disk.

use crate::{
    Setup,
    report::{Good, Report},
    rig::Rig,
    stats::{median, most},
    usage::{Whose, cpu_micros},
    workloads,
};
use anyhow::Result;
use std::{path::Path, sync::Arc, time::Instant};
use toolyard_protocol::ActionPlan;

/// Number of direct calls whose bytes are counted.
const DIRECT_CALLS: u64 = 5000;
const STEPS: usize = 10_000;
/// Durable steps are two hundred times slower; this many are enough to determine their size.
const DURABLE_STEPS: usize = 2000;
const STEPS_PER_SECOND: f64 = 25_000.0;

/// 10,000 steps, from the plan to the report, with the record written to disk.
pub(crate) fn readonly_steps(setup: &Setup) -> Result<Report> {
    rate(
        setup,
        Report::new("readonly-steps", "stepsPerSecond", Good::AtLeast, STEPS_PER_SECOND),
        workloads::echoes(STEPS)?,
    )
}

/// The same as one loop with 16 concurrent iterations.
pub(crate) fn readonly_foreach(setup: &Setup) -> Result<Report> {
    let report = Report::new("readonly-foreach", "stepsPerSecond", Good::AtLeast, STEPS_PER_SECOND);
    rate(setup, report, workloads::echo_loop(STEPS)?)
}

fn rate(setup: &Setup, report: Report, plan: ActionPlan) -> Result<Report> {
    let rig = Rig::new(setup)?;
    let plan = Arc::new(plan);
    rig.run(&plan)?;
    let mut rates = Vec::new();
    let cpu = cpu_micros(Whose::Ours)?;
    for _ in 0..setup.rounds {
        let started = Instant::now();
        rig.run(&plan)?;
        rates.push(STEPS as f64 / started.elapsed().as_secs_f64());
    }
    let cpu = cpu_micros(Whose::Ours)? - cpu;
    rig.close();
    Ok(report
        .figure("stepsPerSecond", median(&rates))
        .figure("best", most(&rates))
        .figure("cpuUsPerStep", cpu / (STEPS * setup.rounds) as f64)
        .figure("steps", STEPS as f64))
}

/// Bytes of database per step, including the plan's copy in the record.
pub(crate) fn log_bytes(setup: &Setup) -> Result<Report> {
    let (echo, echo_payload) = bytes_of(setup, workloads::echoes(STEPS)?, STEPS)?;
    let (write, write_payload) = bytes_of(setup, workloads::writes(DURABLE_STEPS)?, DURABLE_STEPS)?;
    let direct = bytes_of_calls(setup)?;
    Ok(Report::new("log-bytes", "bytesPerStep", Good::AtMost, 1024.0)
        .also("bytesPerDirectCall", Good::AtMost, 1024.0)
        .figure("bytesPerDirectCall", direct)
        .figure("bytesPerStep", echo.max(write))
        .figure("readOnlyBytes", echo)
        .figure("readOnlyRecordBytes", echo_payload)
        .figure("durableBytes", write)
        .figure("durableRecordBytes", write_payload))
}

/// Bytes of database per direct call of a no-op tool, including its ledger entry.
fn bytes_of_calls(setup: &Setup) -> Result<f64> {
    let rig = Rig::new(setup)?;
    let empty = size(&rig.state())?;
    let engine = rig.engine.clone();
    rig.runtime.block_on(rig.runtime.spawn(async move {
        for n in 0..DIRECT_CALLS {
            engine.call(crate::rig::caller(), crate::direct::request(n)).await;
        }
    }))?;
    let state = rig.state();
    let dir = rig.close();
    let full = size(&state)?;
    drop(dir);
    Ok(full.saturating_sub(empty) as f64 / DIRECT_CALLS as f64)
}

fn bytes_of(setup: &Setup, plan: ActionPlan, steps: usize) -> Result<(f64, f64)> {
    let rig = Rig::new(setup)?;
    let empty = size(&rig.state())?;
    let report = rig.run(&Arc::new(plan))?;
    let (_, record) = rig.size_of(report.run_id)?;
    let state = rig.state();
    let dir = rig.close();
    // The store is closed, so the log has been moved into the database.
    let full = size(&state)?;
    drop(dir);
    Ok((full.saturating_sub(empty) as f64 / steps as f64, record as f64 / steps as f64))
}

/// The size of the database and its blobs, without the write-ahead log, whose size is fixed.
fn size(state: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(state)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            bytes += size(&entry.path())?;
        } else if !name.ends_with("-wal") && !name.ends_with("-shm") {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}
