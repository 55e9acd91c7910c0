//! The cost of the sandbox: starting a program in the sandbox against starting it without, and exchanging lines with
//! it.

use crate::{
    Setup,
    process::program,
    report::{Good, Report},
    stats::{median, most},
};
use anyhow::{Context, Result, ensure};
use std::{process::Stdio, time::Instant};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
};
use toolyard_sandbox::launch::{ConfinedLauncher, Confinement, Program};

/// Starts per round, with and without the sandbox.
const STARTS: usize = 20;
/// Slices of exchanges per round, alternately with and without the sandbox.
const SLICES: usize = 10;
/// Lines exchanged per slice.
const LINES: usize = 300;
/// Maximum number of milliseconds that the sandbox may add to a start.
const MOST_START_MS: f64 = 15.0;
/// Maximum ratio of an exchange in the sandbox to one without. The exchange makes no system call that the supervisor
/// decides on, so only noise is measured.
const MOST_CALL_RATIO: f64 = 1.1;

/// A program that returns each line.
struct Echo {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Echo {
    /// Starts the program and waits for its first response; returns the milliseconds between.
    async fn start(launcher: Option<&ConfinedLauncher>, walls: &Confinement) -> Result<(Self, f64)> {
        let env = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        let cat = Program { program: "cat", args: &[], cwd: None, env: &env };
        let begun = Instant::now();
        let mut command = match launcher {
            Some(launcher) => launcher.command(walls, &cat).map_err(anyhow::Error::msg)?,
            None => {
                let mut command = tokio::process::Command::new("cat");
                command.env_clear().envs(env);
                command
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = command.spawn()?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?).lines();
        let mut echo = Self { child, input, output };
        echo.exchange().await?;
        Ok((echo, begun.elapsed().as_secs_f64() * 1e3))
    }

    async fn exchange(&mut self) -> Result<()> {
        self.input.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").await?;
        self.input.flush().await?;
        ensure!(self.output.next_line().await?.is_some(), "the program ended");
        Ok(())
    }

    async fn end(mut self) -> Result<()> {
        drop(self.input);
        ensure!(self.child.wait().await?.success(), "the program failed");
        Ok(())
    }

    /// Microseconds per exchange.
    async fn exchanges(&mut self) -> Result<f64> {
        let begun = Instant::now();
        for _ in 0..LINES {
            self.exchange().await?;
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6 / LINES as f64)
    }
}

/// Starts and exchanges, alternately with and without the sandbox.
pub(crate) fn start(setup: &Setup) -> Result<Report> {
    let report = Report::new("walls-start", "addedMs", Good::AtMost, MOST_START_MS).also(
        "callRatio",
        Good::AtMost,
        MOST_CALL_RATIO,
    );
    let program = match program(setup) {
        Ok(program) => program,
        Err(why) => return Ok(report.skipped(why)),
    };
    // The small launcher beside the program, with which a running Toolyard starts plugins.
    let small = program.with_file_name("toolyard-script");
    let launcher = ConfinedLauncher::with_program(if small.exists() { small } else { program });
    let data = tempfile::tempdir_in(&setup.dir)?;
    let walls = Confinement { write: vec![data.path().to_owned()], network: true, ..Confinement::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let (mut call_with, mut call_without) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        Echo::start(Some(&launcher), &walls).await?.0.end().await?; // what is read for the first time is read now
        for _ in 0..setup.rounds {
            for _ in 0..STARTS {
                for (launcher, times) in [(Some(&launcher), &mut with), (None, &mut without)] {
                    let (echo, took) = Echo::start(launcher, &walls).await?;
                    times.push(took);
                    echo.end().await?;
                }
            }
            let (mut inside, _) = Echo::start(Some(&launcher), &walls).await?;
            let (mut outside, _) = Echo::start(None, &walls).await?;
            for _ in 0..SLICES {
                call_with.push(inside.exchanges().await?);
                call_without.push(outside.exchanges().await?);
            }
            inside.end().await?;
            outside.end().await?;
        }
        anyhow::Ok(())
    })?;
    Ok(report
        .figure("addedMs", median(&with) - median(&without))
        .figure("startMs", median(&with))
        .figure("worstStartMs", most(&with))
        .figure("plainStartMs", median(&without))
        .figure("callMicros", median(&call_with))
        .figure("plainCallMicros", median(&call_without))
        .figure("callRatio", median(&call_with) / median(&call_without).max(0.001)))
}
