//! The `toolyard` program itself: CPU time of a short command, and memory of an idle server.

use crate::{
    Setup,
    report::{Good, Report},
    stats::{median, most},
    usage::{Memory, Whose, cpu_micros},
};
use anyhow::{Context, Result, ensure};
use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

const PROGRAM: &str = "toolyard";
/// How long the server is idle before its memory is measured.
const IDLE: Duration = Duration::from_secs(2);
/// Maximum private memory of an idle server.
const IDLE_PRIVATE_MEGABYTES: f64 = 8.0;
/// Starts per round.
const STARTS: usize = 4;

/// The path of the program, or why it cannot be used.
pub(crate) fn program(setup: &Setup) -> Result<PathBuf, String> {
    let beside = || std::env::current_exe().ok()?.parent().map(|dir| dir.join(PROGRAM));
    match setup.binary.clone().or_else(beside) {
        Some(path) if path.is_file() => Ok(path),
        Some(path) => Err(format!("there is no {}; build it or name it with --binary", path.display())),
        None => Err("name the program with --binary".to_owned()),
    }
}

pub(crate) fn command(program: &PathBuf, home: &TempDir) -> Command {
    let mut command = Command::new(program);
    // The user's own configuration must not affect the measurement.
    command.env_remove("TOOLYARD_HOME").arg("--home").arg(home.path().join("home"));
    command.arg("--vault").arg(home.path().join("vault")).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

pub(crate) fn home(setup: &Setup) -> Result<TempDir> {
    let home = TempDir::with_prefix_in("toolyard-bench-", &setup.dir)?;
    std::fs::create_dir(home.path().join("vault"))?;
    Ok(home)
}

/// CPU time of `toolyard tools list`, from start to exit.
pub(crate) fn cold_start(setup: &Setup) -> Result<Report> {
    let report = Report::new("cold-start", "cpuMs", Good::Below, 50.0);
    let program = match program(setup) {
        Ok(program) => program,
        Err(why) => return Ok(report.skipped(why)),
    };
    let home = home(setup)?;
    let start = || -> Result<f64> {
        let before = cpu_micros(Whose::Children)?;
        let status = command(&program, &home).args(["tools", "list", "--json"]).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "`toolyard tools list` ended with {status}");
        Ok((cpu_micros(Whose::Children)? - before) / 1000.0)
    };
    start()?; // makes its home
    let times = (0..setup.rounds * STARTS).map(|_| start()).collect::<Result<Vec<f64>>>()?;
    Ok(report.figure("cpuMs", median(&times)).figure("worstMs", most(&times)).figure("starts", times.len() as f64))
}

/// A server process, killed on drop.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The main program: its size on disk, the time of `--version` beyond that of `/bin/true`, and idle private memory.
pub(crate) fn main_program(setup: &Setup) -> Result<Report> {
    let report = Report::new("main-program", "megabytes", Good::Below, 30.0)
        .also("versionMsOverTrue", Good::Below, 2.0)
        .also("idlePrivateMegabytes", Good::Below, IDLE_PRIVATE_MEGABYTES);
    let program = match program(setup) {
        Ok(program) => program,
        Err(why) => return Ok(report.skipped(why)),
    };
    let time = |mut command: Command| -> Result<f64> {
        let start = std::time::Instant::now();
        let status = command.stdout(Stdio::null()).status()?;
        ensure!(status.success(), "a start ended with {status}");
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };
    let (mut own, mut nothing) = (Vec::new(), Vec::new());
    for _ in 0..setup.rounds * STARTS * 5 {
        let mut version = Command::new(&program);
        version.arg("--version");
        own.push(time(version)?);
        nothing.push(time(Command::new("/bin/true"))?);
    }
    let home = home(setup)?;
    let (running, _) = start_up(&program, &home)?;
    std::thread::sleep(IDLE);
    let (private, resident) = Memory::of(running.id())?.megabytes();
    Ok(report
        .figure("megabytes", std::fs::metadata(&program)?.len() as f64 / 1e6)
        .figure("versionMsOverTrue", median(&own) - median(&nothing))
        .figure("versionMs", median(&own))
        .figure("idlePrivateMegabytes", private)
        .figure("idleResidentMegabytes", resident))
}

/// Memory of an idle `toolyard up`.
pub(crate) fn idle_rss(setup: &Setup) -> Result<Report> {
    let report = Report::new("idle-rss", "privateMegabytes", Good::Below, IDLE_PRIVATE_MEGABYTES);
    let program = match program(setup) {
        Ok(program) => program,
        Err(why) => return Ok(report.skipped(why)),
    };
    let home = home(setup)?;
    let (running, _) = start_up(&program, &home)?;
    std::thread::sleep(IDLE);
    let (private, resident) = Memory::of(running.id())?.megabytes();
    Ok(report.figure("privateMegabytes", private).figure("residentMegabytes", resident))
}

/// Starts `toolyard up`, waits until it reports that it is ready, and returns its URL.
pub(crate) fn start_up(program: &PathBuf, home: &TempDir) -> Result<(Running, String)> {
    let mut up = command(program, home);
    let mut running = Running(up.args(["up", "--port", "0", "--json"]).stdout(Stdio::piped()).spawn()?);
    let out = running.0.stdout.take().context("the server has no output")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    let ready: serde_json::Value =
        serde_json::from_str(&line).with_context(|| format!("the server did not say that it is ready: {line:?}"))?;
    ensure!(ready["ready"] == true, "the server is not ready: {line}");
    let url = ready["url"].as_str().context("the server does not say where it is")?.to_owned();
    Ok((running, url))
}
