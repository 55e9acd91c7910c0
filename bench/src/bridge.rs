//! The Claude bridge: latency from `bridge.inbound` to the notification on the plugin's standard output. The gateway
//! and the plugin run in separate processes. The baseline is a `health` request over the same connection.

use crate::{
    Setup,
    process::{home, program, start_up},
    report::{Good, Report},
    stats::{median, micros, quantile},
};
use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};
use toolyard_client::{CallError, Client, Connect, Credential};

/// Messages before the measurement starts.
const WARM_UP: usize = 200;
/// Messages per round.
const MESSAGES: usize = 400;
/// A message that takes longer than this counts as lost.
const LOST: Duration = Duration::from_secs(10);

/// The plugin process, killed on drop.
struct Plugin(Child);

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the plugin as Claude Code does; returns its output lines with their times.
fn start_plugin(program: &Path, env: &Value) -> Result<(Plugin, mpsc::Receiver<(Instant, String)>)> {
    let mut command = Command::new(program);
    for (name, value) in env.as_object().context("no environment")? {
        command.env(name, value.as_str().unwrap_or_default());
    }
    let mut plugin = Plugin(
        command.arg("claude-plugin").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?,
    );
    let out = plugin.0.stdout.take().context("the plugin has no output")?;
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.send((Instant::now(), line)).is_err() {
                return;
            }
        }
    });
    let input = plugin.0.stdin.as_mut().context("the plugin has no input")?;
    writeln!(input, "{}", json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}))?;
    writeln!(input, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
    Ok((plugin, lines))
}

/// The time at which the next message was written.
fn next(lines: &mpsc::Receiver<(Instant, String)>) -> Result<Instant> {
    loop {
        let (at, line) = lines.recv_timeout(LOST).context("a message did not come out of the plugin")?;
        if line.contains("notifications/claude/channel") {
            return Ok(at);
        }
    }
}

/// Latency from the message to the notification.
pub(crate) fn inbound(setup: &Setup) -> Result<Report> {
    let report = Report::new("bridge-inbound", "p50Ms", Good::Below, 1.0);
    let program = match program(setup) {
        Ok(program) => program,
        Err(why) => return Ok(report.skipped(why)),
    };
    let home = home(setup)?;
    let (_running, url) = start_up(&program, &home)?;
    let token = std::fs::read_to_string(home.path().join("home/state/token"))?.trim().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let failed = |error: CallError| anyhow!("the gateway refused: {}", error.message);
    let connect = Connect {
        url: url.replacen("http://", "ws://", 1),
        ca_file: None,
        credential: Credential::Shared(token),
        identity: None,
        scopes: vec!["operator.write".to_owned()],
        mode: "cli".to_owned(),
        timeout: LOST,
    };
    let mut client = runtime.block_on(Client::connect(&connect)).map_err(|e| anyhow!(e.message))?;
    let opened = runtime.block_on(client.call("bridge.open", json!({"sessionKey": "bench"}))).map_err(failed)?;
    let (_plugin, lines) = start_plugin(&program, &opened["env"])?;
    let message = json!({"sessionKey": "bench", "content": "hello", "meta": {"chat_id": "1", "user_id": "u"}});
    let (mut through, mut asked) = (Vec::new(), Vec::new());
    for n in 0..WARM_UP + setup.rounds * MESSAGES {
        let began = Instant::now();
        runtime.block_on(client.call("bridge.inbound", message.clone())).map_err(failed)?;
        let took = next(&lines)?.saturating_duration_since(began);
        let began = Instant::now();
        runtime.block_on(client.call("health", json!({}))).map_err(failed)?;
        if n >= WARM_UP {
            through.push(micros(took) / 1000.0);
            asked.push(micros(began.elapsed()) / 1000.0);
        }
    }
    let (p50, baseline) = (median(&through), median(&asked));
    Ok(report
        .figure("p50Ms", p50)
        .figure("p99Ms", quantile(&through, 0.99))
        .figure("healthP50Ms", baseline)
        .figure("ratio", p50 / baseline.max(f64::EPSILON))
        .figure("messages", through.len() as f64))
}
