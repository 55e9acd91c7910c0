//! A gateway in a separate process, so that its CPU time and memory can be measured alone: this program again, with the
//! benchmark's tools behind the real endpoints.

use crate::{Setup, rig::Rig, usage::Memory};
use anyhow::{Context, Result, ensure};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use toolyard_gateway::{Gateway, Settings, listen};
use toolyard_service::{ProcessInfo, Service};

pub(crate) const TOKEN: &str = "bench-token-0123456789";
/// Interval of ticks: shorter than the default, so that a benchmark need not wait half a minute for one, but long
/// enough to generate the load between two of them, because a client that does not answer a ping is disconnected.
const TICK: Duration = Duration::from_secs(15);

/// A gateway that runs until it is dropped.
pub(crate) struct Served {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Served {
    pub(crate) fn start(setup: &Setup) -> Result<Self> {
        let program = std::env::current_exe().context("which program is this?")?;
        let mut child = Command::new(program)
            .arg("serve-gateway")
            .arg("--dir")
            .arg(&setup.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().context("the gateway has no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| format!("the gateway did not start: {line:?}"))?;
        Ok(Self { child, address })
    }

    /// Private memory, in bytes.
    pub(crate) fn memory(&self) -> Result<f64> {
        Ok(Memory::of(self.child.id())?.private)
    }

    /// Number of open sockets.
    pub(crate) fn sockets(&self) -> Result<usize> {
        let path = format!("/proc/{}/fd", self.child.id());
        let files = std::fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?;
        let is_socket = |file: std::fs::DirEntry| {
            std::fs::read_link(file.path()).is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
        };
        Ok(files.filter_map(std::io::Result::ok).map(is_socket).filter(|socket| *socket).count())
    }

    /// User and system time so far, in microseconds.
    pub(crate) fn cpu_micros(&self) -> Result<f64> {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok());
        let (user, system) = ticks(11).zip(ticks(12)).with_context(|| format!("{path} has no times"))?;
        // The kernel counts in hundredths of a second on all supported machines.
        Ok((user + system) * 10_000.0)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Closing its input ends the process.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The gateway process: serves until its input is closed.
pub(crate) fn serve(setup: &Setup) -> Result<()> {
    let rig = Rig::new(setup)?;
    let stop = CancellationToken::new();
    let (engine, stopped) = (rig.engine.clone(), stop.clone());
    let address = rig.runtime.block_on(async move {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let service = Service::new(engine, ProcessInfo::default());
        let gateway = Gateway::new(service, Settings { tick: TICK, ..Settings::new(TOKEN) }, stopped.clone());
        tokio::spawn(listen::serve(listener, gateway, stopped));
        anyhow::Ok(address)
    })?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{address}")?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    stop.cancel();
    rig.close();
    Ok(())
}

/// Raises the soft limit on open files to the hard limit; fails if fewer than `needed` are allowed.
pub(crate) fn open_files(needed: u64) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard })?;
    let hard = hard.unwrap_or(u64::MAX);
    ensure!(hard >= needed, "{hard} files may be open at once, and {needed} are needed");
    Ok(())
}
