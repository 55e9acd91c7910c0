//! Steps whose record must be on disk before they are executed.

use crate::{
    Setup,
    disk::BareLog,
    report::{Good, Report},
    rig::Rig,
    stats::{median, micros, quantile},
    workloads,
};
use anyhow::Result;
use std::{sync::Arc, time::Instant};

/// Steps in one slice of the sequential run: few, so that steps and bare disk see the same background load.
const SLICE: usize = 50;
/// Slices per round.
const SLICES: usize = 16;
/// Steps of one sequential run that is compared with a loop.
const SEQUENCE: usize = 200;
/// Iterations in one slice of the loop: it is about 16 times as fast, so both slices take about the same time.
const LOOP: usize = 3000;

/// Sequential durable steps against a bare append and fdatasync of the same size, in alternating slices.
pub(crate) fn steps(setup: &Setup) -> Result<Report> {
    let rig = Rig::new(setup)?;
    let plan = Arc::new(workloads::writes(SLICE)?);
    let warm = rig.run(&plan)?;
    rig.tools.take_writes();
    // The bytes that one step adds to the record. The bytes of the whole run would include the plan.
    let (_, with_steps) = rig.size_of(warm.run_id)?;
    let one = rig.run(&Arc::new(workloads::writes(1)?))?;
    let plan_bytes = serde_json::to_vec(&*plan)?.len() as u64;
    let (_, without_steps) = rig.size_of(one.run_id)?;
    let step_bytes = (with_steps.saturating_sub(plan_bytes).saturating_sub(without_steps) / (SLICE as u64 - 1)).max(1);
    rig.tools.take_writes();

    let slices = setup.rounds * SLICES;
    let mut bare = BareLog::create(&rig.dir().join("bare"), step_bytes as usize, slices * SLICE)?;
    let (mut disk, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..slices {
        let bare: Vec<f64> = (0..SLICE).map(|_| bare.append().map(micros)).collect::<Result<_>>()?;
        rig.run(&plan)?;
        // The time between the execution of two consecutive steps is Toolyard's own cost.
        let steps: Vec<f64> = rig.tools.take_writes().windows(2).map(|pair| micros(pair[1] - pair[0])).collect();
        ratios.push(median(&steps) / median(&bare));
        disk.extend(bare);
        ours.extend(steps);
    }
    let (disk_p50, step_p50) = (median(&disk), median(&ours));
    rig.close();
    Ok(Report::new("durable-steps", "ratio", Good::AtMost, 1.3)
        .figure("ratio", step_p50 / disk_p50)
        .figure("ratioOfSlicesP50", median(&ratios))
        .figure("stepP50Us", step_p50)
        .figure("diskP50Us", disk_p50)
        .figure("stepP25Us", quantile(&ours, 0.25))
        .figure("diskP25Us", quantile(&disk, 0.25))
        .figure("stepP99Us", quantile(&ours, 0.99))
        .figure("diskP99Us", quantile(&disk, 0.99))
        .figure("bytes", step_bytes as f64)
        .figure("steps", ours.len() as f64))
}

/// A durable loop with 16 concurrent iterations against sequential durable steps, in alternating slices.
pub(crate) fn foreach(setup: &Setup) -> Result<Report> {
    let rig = Rig::new(setup)?;
    let sequential = Arc::new(workloads::writes(SEQUENCE)?);
    let looped = Arc::new(workloads::write_loop(LOOP)?);
    let rate = |plan, count: usize| -> Result<f64> {
        let started = Instant::now();
        rig.run(plan)?;
        anyhow::ensure!(rig.tools.take_writes().len() == count, "every step is executed once");
        Ok(count as f64 / started.elapsed().as_secs_f64())
    };
    rate(&sequential, SEQUENCE)?;
    rate(&looped, LOOP)?;
    let (mut one, mut many, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..setup.rounds * 2 {
        let (s, l) = (rate(&sequential, SEQUENCE)?, rate(&looped, LOOP)?);
        one.push(s);
        many.push(l);
        ratios.push(l / s);
    }
    rig.close();
    Ok(Report::new("foreach-durable", "ratio", Good::AtLeast, 6.0)
        .figure("ratio", median(&ratios))
        .figure("sequentialPerSecond", median(&one))
        .figure("foreachPerSecond", median(&many))
        .figure("concurrency", 16.0))
}
