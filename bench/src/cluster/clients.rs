//! Ten thousand clients of a cluster while one node is killed. `bench/cluster.py` starts the nodes and the balancers, runs
//! this program, and kills the node when it is told so on this program's output.

use super::load_average;
use crate::{
    Setup,
    gateway::wire::{Wire, contains, request},
    report::{Good, Report},
    stats::{most, quantile},
};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::{
    io::{BufRead, Write},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, mpsc};

/// Connections that are opened at the same time.
const OPENED_AT_ONCE: usize = 64;
/// Calls per second of all clients together: ten nodes share the processors of one machine with the clients.
const CALLS_PER_SECOND: f64 = 60.0;
/// How long calls are measured before the kill, and after it.
const SPAN: Duration = Duration::from_secs(25);
/// A client that lost its connection tries again after this time.
const RETRY: Duration = Duration::from_millis(200);
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// What a client saw.
enum Seen {
    /// A call was answered: its line, when it was sent, how long it took.
    Call { line: String, sent: Instant, took: Duration },
    /// The connection was lost, and is there again.
    Back { lost: Instant, back: Instant },
    /// A call was not answered, or refused.
    Failed,
}

struct Client {
    number: usize,
    balancer: SocketAddr,
    token: Arc<str>,
    seen: mpsc::UnboundedSender<Seen>,
    opening: Arc<Semaphore>,
    ends: Arc<AtomicBool>,
    connected: Arc<AtomicUsize>,
}

impl Client {
    async fn open(&self) -> Wire {
        loop {
            if let Ok(_place) = self.opening.acquire().await
                && let Ok(Ok(wire)) =
                    tokio::time::timeout(ANSWER_WITHIN, Wire::connect(self.balancer, &self.token)).await
            {
                return wire;
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Stays connected, and calls once in a while.
    async fn run(self, clients: usize) {
        let every = Duration::from_secs_f64(clients as f64 / CALLS_PER_SECOND);
        let mut wire = self.open().await;
        self.connected.fetch_add(1, Ordering::AcqRel);
        // Calls are spread over the interval.
        let mut next = tokio::time::Instant::now() + every.mul_f64(self.number as f64 / clients as f64);
        let mut calls = 0;
        while !self.ends.load(Ordering::Acquire) {
            let is_lost = tokio::select! {
                event = wire.event() => event.is_err(),
                () = tokio::time::sleep_until(next) => {
                    next += every;
                    calls += 1;
                    !self.call(&mut wire, calls).await
                }
            };
            if is_lost {
                let lost = Instant::now();
                self.connected.fetch_sub(1, Ordering::AcqRel);
                wire = self.open().await;
                self.connected.fetch_add(1, Ordering::AcqRel);
                self.tell(Seen::Back { lost, back: Instant::now() });
            }
        }
    }

    /// Whether the call was answered.
    async fn call(&self, wire: &mut Wire, number: usize) -> bool {
        let line = format!("client-{}-{number}", self.number);
        let frame = request("r", "tools.invoke", &json!({"name": "effects__append", "args": {"id": line}}));
        let sent = Instant::now();
        let answered = match tokio::time::timeout(ANSWER_WITHIN, wire.call(&frame)).await {
            Ok(Ok(answer)) => Some(contains(answer, br#""payload":{"ok":true"#)),
            _ => None,
        };
        self.tell(match answered {
            Some(true) => Seen::Call { line, sent, took: sent.elapsed() },
            _ => Seen::Failed,
        });
        answered.is_some()
    }

    fn tell(&self, seen: Seen) {
        // The receiver is dropped when the measurement is over.
        drop(self.seen.send(seen));
    }
}

/// Writes a line for `bench/cluster.py`, which reads this program's output.
fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Connected clients, one node killed: when all are back, and how long calls of the others take meanwhile. The lines of
/// acknowledged calls are written to `--data`, to be compared with what happened.
pub(crate) fn clients(setup: &Setup) -> Result<Report> {
    let report = || {
        Report::new("cluster-clients", "allBackSeconds", Good::AtMost, 10.0).also("othersP99Ratio", Good::AtMost, 1.5)
    };
    let Some(url) = &setup.url else {
        return Ok(report().skipped("run it with bench/cluster.py clients".to_owned()));
    };
    // TOKEN@ADDRESS,ADDRESS
    let (token, addresses) = url.split_once('@').context("--url is TOKEN@ADDRESS,...")?;
    let balancers: Vec<SocketAddr> = addresses.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let count = setup.clients;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (seen, mut seeing) = mpsc::unbounded_channel();
    let (opening, ends) = (Arc::new(Semaphore::new(OPENED_AT_ONCE)), Arc::new(AtomicBool::new(false)));
    let connected = Arc::new(AtomicUsize::new(0));
    let token: Arc<str> = Arc::from(token);
    for number in 0..count {
        let client = Client {
            number,
            balancer: balancers[number % balancers.len()],
            token: token.clone(),
            seen: seen.clone(),
            opening: opening.clone(),
            ends: ends.clone(),
            connected: connected.clone(),
        };
        runtime.spawn(client.run(count));
    }
    let began = Instant::now();
    while connected.load(Ordering::Acquire) < count {
        ensure!(began.elapsed() < Duration::from_secs(300), "only {} connected", connected.load(Ordering::Acquire));
        std::thread::sleep(Duration::from_millis(100));
    }
    let opened = began.elapsed();
    std::thread::sleep(SPAN);
    say("kill")?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let killed = Instant::now();
    std::thread::sleep(SPAN);
    let missing = count.saturating_sub(connected.load(Ordering::Acquire));
    ends.store(true, Ordering::Release);
    let (mut before, mut after, mut back, mut lines, mut failed) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), 0.0);
    while let Ok(seen) = seeing.try_recv() {
        match seen {
            Seen::Call { line, sent, took } => {
                let side = if sent >= killed { &mut after } else { &mut before };
                if sent + SPAN >= killed {
                    side.push(took.as_secs_f64() * 1e3);
                }
                lines.push(line);
            }
            Seen::Back { lost, back: at } => back.push((lost, at)),
            Seen::Failed => failed += 1.0,
        }
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    let file = setup.data.as_ref().context("--data names the file of acknowledged calls")?;
    std::fs::write(file, lines.join("\n"))?;
    // Missing clients are counted as later than the target.
    let seconds: Vec<f64> = back.iter().map(|(_, at)| at.saturating_duration_since(killed).as_secs_f64()).collect();
    let last = if missing > 0 { SPAN.as_secs_f64() } else { most(&seconds) };
    let (p99, p99_before) = (quantile(&after, 0.99), quantile(&before, 0.99));
    Ok(report()
        .figure("allBackSeconds", last)
        .figure("othersP99Ratio", p99 / p99_before)
        .figure("p99BeforeMs", p99_before)
        .figure("p99AfterMs", p99)
        .figure("p50BeforeMs", quantile(&before, 0.5))
        .figure("p50AfterMs", quantile(&after, 0.5))
        .figure("clients", count as f64)
        .figure("lostConnections", back.len() as f64)
        .figure("missing", missing as f64)
        .figure("acknowledged", lines.len() as f64)
        .figure("unanswered", failed)
        .figure("openedInSeconds", opened.as_secs_f64())
        .figure("load", load_average()))
}
