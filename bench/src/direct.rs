//! Sequential calls without a plan.

use crate::{
    Setup,
    report::{Good, Report},
    rig::{Rig, caller},
    tools::ECHO,
    usage::{Whose, cpu_micros},
};
use anyhow::{Result, ensure};
use serde_json::{Map, Value};
use std::{hint::black_box, time::Instant};
use toolyard_engine::{CallRequest, Store};

const CALLS: u64 = 50_000;
const WARM_UP: u64 = 2000;

pub(crate) fn request(n: u64) -> CallRequest {
    let args = [("text".to_owned(), Value::from(format!("call number {n}"))), ("n".to_owned(), Value::from(n))];
    CallRequest { tool: ECHO.to_owned(), args: Map::from_iter(args), ..CallRequest::default() }
}

/// CPU time of the whole process, including the store's threads, per call of a no-op tool.
pub(crate) fn pipeline_cpu(setup: &Setup) -> Result<Report> {
    let rig = Rig::new(setup)?;
    let calls = |from: u64, count: u64| -> Result<()> {
        let engine = rig.engine.clone();
        let task = rig.runtime.spawn(async move {
            let caller = caller();
            let mut failed = 0;
            for n in from..from + count {
                failed += u64::from(!engine.call(caller.clone(), request(n)).await.result.ok);
            }
            failed
        });
        ensure!(rig.runtime.block_on(task)? == 0, "every call succeeds");
        // Queued writes belong to these calls.
        Ok(rig.store.settle()?)
    };
    calls(0, WARM_UP)?;

    let before = cpu_micros(Whose::Ours)?;
    for n in 0..CALLS {
        black_box((caller(), request(black_box(n))));
    }
    let empty = cpu_micros(Whose::Ours)? - before;

    let (before, started) = (cpu_micros(Whose::Ours)?, Instant::now());
    calls(WARM_UP, CALLS)?;
    let (cpu, wall) = (cpu_micros(Whose::Ours)? - before, started.elapsed());
    rig.close();
    Ok(Report::new("pipeline-cpu", "cpuUsPerCall", Good::Below, 40.0)
        .figure("cpuUsPerCall", (cpu - empty) / CALLS as f64)
        .figure("emptyLoopUs", empty / CALLS as f64)
        .figure("wallUsPerCall", wall.as_secs_f64() * 1e6 / CALLS as f64)
        .figure("calls", CALLS as f64))
}
