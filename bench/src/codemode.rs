//! Cold start of code mode: a sandboxed child is created, runs an empty script and exits. The baseline is Node with its
//! permission flag and an empty module.

use crate::{
    Setup,
    process::program,
    report::{Good, Report},
    stats::{median, most},
    usage::{Whose, cpu_micros},
};
use anyhow::{Result, anyhow, ensure};
use std::{
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use toolyard_engine::BoxFuture;
use toolyard_sandbox::{Bridge, Limits, Method, ScriptRunner, wire::ScriptException};

/// Scripts per round.
const SCRIPTS: usize = 10;

struct Nobody;

impl Bridge for Nobody {
    fn ask(&self, _: Method, _: Vec<serde_json::Value>) -> BoxFuture<'_, Result<serde_json::Value, ScriptException>> {
        Box::pin(async { Err(ScriptException::new("Error", "an empty script asks nothing")) })
    }
    fn stop(&self) {}
}

/// The permission flag of this Node version; it was called experimental before version 22.
fn permission_flag() -> Option<&'static str> {
    ["--permission", "--experimental-permission"].into_iter().find(|flag| node(flag).is_ok())
}

/// CPU time of Node with an empty module, in milliseconds.
fn node(flag: &str) -> Result<f64> {
    let before = cpu_micros(Whose::Children)?;
    let mut command = Command::new("node");
    command.args([flag, "--input-type=module", "--eval", ""]);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    ensure!(status.success(), "node ended with {status}");
    Ok((cpu_micros(Whose::Children)? - before) / 1e3)
}

/// CPU time of the child and of Node, measured alternately.
pub(crate) fn start(setup: &Setup) -> Result<Report> {
    let report = Report::new("codemode-start", "cpuMs", Good::Below, 5.0).also("nodeRatio", Good::AtLeast, 10.0);
    let program = match program(setup) {
        Ok(program) => program,
        Err(why) => return Ok(report.skipped(why)),
    };
    let Some(flag) = permission_flag() else {
        return Ok(report.skipped("there is no node with a permission flag to compare with".to_owned()));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let runner = ScriptRunner::with_program(program);
    let script = || -> Result<(f64, f64)> {
        let before = cpu_micros(Whose::Children)?;
        let begun = Instant::now();
        let ran = runner.run("", Limits::default(), Arc::new(Nobody), CancellationToken::new());
        runtime.block_on(ran).map_err(|failure| anyhow!("the script did not run: {}", failure.cause))?;
        let took = begun.elapsed().as_secs_f64() * 1e3;
        Ok(((cpu_micros(Whose::Children)? - before) / 1e3, took))
    };
    script()?; // whatever is read for the first time is read now
    let (mut ours, mut walls, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..setup.rounds {
        for _ in 0..SCRIPTS {
            let (cpu, wall) = script()?;
            ours.push(cpu);
            walls.push(wall);
        }
        theirs.push(node(flag)?);
    }
    Ok(report
        .figure("cpuMs", median(&ours))
        .figure("worstCpuMs", most(&ours))
        .figure("wallMs", median(&walls))
        .figure("nodeCpuMs", median(&theirs))
        .figure("nodeRatio", median(&theirs) / median(&ours).max(0.001)))
}
