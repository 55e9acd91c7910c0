//! What a script costs to start: spawn, confine, run an empty script, exit. `cold_start PROGRAM [ROUNDS] [NODE]`.
//!
//! `PROGRAM` is Toolyard itself or the script child alone; `NODE`, where given, does the same with Node's permission
//! flag in the same run, in turn. Prints one JSON object with processor and wall time in milliseconds.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::unwrap_used, clippy::panic, unsafe_code)]

use serde_json::{Value, json};
use std::{
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use toolyard_sandbox::{BoxFuture, Bridge, Limits, Method, ScriptRunner, wire::ScriptException};

struct Nothing;

impl Bridge for Nothing {
    fn ask(&self, _: Method, _: Vec<Value>) -> BoxFuture<'_, Result<Value, ScriptException>> {
        Box::pin(async { Ok(Value::Null) })
    }
}

/// Processor time of all children that have been waited for, in milliseconds.
fn children_ms() -> f64 {
    // SAFETY: `getrusage` fills the structure it is given, for which all zeroes is a valid value.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    ms(usage.ru_utime) + ms(usage.ru_stime)
}

/// What a median child cost.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2] * 1e3).round() / 1e3
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().expect("usage: cold_start PROGRAM [ROUNDS] [NODE]");
    let rounds: usize = arguments.next().map_or(50, |n| n.parse().expect("a number"));
    let node = arguments.next();
    let flag = node.as_deref().map(|node| {
        let takes = |flag: &str| {
            let ran = Command::new(node).args([flag, "--eval", "0"]).stderr(Stdio::null()).status();
            ran.is_ok_and(|status| status.success())
        };
        if takes("--permission") { "--permission" } else { "--experimental-permission" }
    });
    let runner = ScriptRunner::with_program(program);
    let (mut ours, mut our_wall, mut theirs, mut their_wall) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (cpu, wall) = (children_ms(), Instant::now());
        runner.run("", Limits::default(), Arc::new(Nothing), CancellationToken::new()).await.expect("a script");
        our_wall.push(wall.elapsed().as_secs_f64() * 1e3);
        ours.push(children_ms() - cpu);
        if let (Some(node), Some(flag)) = (&node, flag) {
            let (cpu, wall) = (children_ms(), Instant::now());
            let vm = "import vm from 'node:vm'; const c = vm.createContext(Object.create(null), {codeGeneration: {strings: false, wasm: false}}); await vm.runInContext('(async () => {})()', c); process.exit(0)";
            let status = Command::new(node)
                .args([flag, "--input-type=module", "--eval", vm])
                .env_clear()
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .expect("node");
            assert!(status.success());
            their_wall.push(wall.elapsed().as_secs_f64() * 1e3);
            theirs.push(children_ms() - cpu);
        }
    }
    let mut report = json!({"rounds": rounds, "cpu_ms": median(ours.clone()), "wall_ms": median(our_wall)});
    if !theirs.is_empty() {
        report["node_flag"] = flag.into();
        report["node_cpu_ms"] = median(theirs.clone()).into();
        report["node_wall_ms"] = median(their_wall).into();
        report["times_less"] = (median(theirs) / median(ours)).round().into();
    }
    println!("{report}");
}
