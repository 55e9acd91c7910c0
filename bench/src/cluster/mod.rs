//! The store of a cluster: durable steps, loops and hints on PostgreSQL, each against a baseline on the same server in
//! alternating slices of one run. `bench/cluster.py` starts the server and names it with `--url`.

mod clients;
mod events;

pub(crate) use clients::clients;
pub(crate) use events::events;

use crate::{
    Setup,
    process::Running,
    report::{Good, Report},
    rig::{caller, signer},
    stats::{median, micros, quantile},
    tools::{self, BenchTools},
    workloads,
};
use anyhow::{Context, Result, bail, ensure};
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, Statement, types::Type};
use toolyard_catalog::{Policy, PolicyConfig};
use toolyard_engine::{
    Caller, Engine, EngineOptions, EngineParts, Store,
    authority::Approver,
    plan::{Consent, PlanRequest},
    store::Hints,
    system_clock,
};
use toolyard_postgres::{PostgresOptions, PostgresStore};
use toolyard_protocol::{ActionPlan, RunStatus};
use uuid::Uuid;

/// Steps in one slice of sequential steps, and commits in one slice of the baseline.
const SLICE: usize = 100;
/// Slices per round.
const SLICES: usize = 8;
/// Iterations of a loop in one slice.
const LOOP: usize = 1500;
/// Maximum number of steps, iterations and concurrent calls of a run in a benchmark.
const LONG: u32 = 1_000_000;
const WIDEST: u32 = 64;
/// Bytes of the row of a bare commit: about what one step adds to the record.
const ROW_BYTES: usize = 600;
/// Nodes tell each other with their beats, every 500 ms, whether somebody watches.
const BEATS: Duration = Duration::from_millis(1300);
/// Steps of one workflow of DBOS, per slice and client.
const DBOS_STEPS: usize = 60;
/// The version of PyPI's `dbos` that is measured.
const DBOS: &str = "dbos==3.4.0";
/// The other engine's side: reads "CLIENTS STEPS" from its input and answers with the seconds that these took.
const DBOS_SCRIPT: &str = include_str!("../../dbos_steps.py");

/// An engine over a store in a new database.
struct Node {
    engine: Engine,
    // Closed after the engine.
    _store: Arc<PostgresStore>,
    tools: Arc<BenchTools>,
}

/// Everything of one benchmark. The runtime is last: the others' tasks run on it.
struct Bench {
    node: Node,
    url: String,
    runtime: Runtime,
}

impl Bench {
    fn new(server: &str) -> Result<Self> {
        let workers = toolyard_gateway::listen::worker_threads();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
        let url = runtime.block_on(new_database(server))?;
        let node = Node::open(&url, "measured", &runtime)?;
        Ok(Self { node, url, runtime })
    }

    fn run(&self, plan: &Arc<ActionPlan>) -> Result<()> {
        self.node.run(plan, &self.runtime)
    }

    /// Runs a plan: writes per second.
    fn rate(&self, plan: &Arc<ActionPlan>, count: usize) -> Result<f64> {
        let started = Instant::now();
        self.run(plan)?;
        ensure!(self.node.tools.take_writes().len() == count, "every step is executed once");
        Ok(count as f64 / started.elapsed().as_secs_f64())
    }

    /// Runs sequential steps: microseconds from one execution to the next.
    fn steps(&self, plan: &Arc<ActionPlan>) -> Result<Vec<f64>> {
        self.run(plan)?;
        Ok(self.node.tools.take_writes().windows(2).map(|pair| micros(pair[1] - pair[0])).collect())
    }

    fn close(self) {
        let Self { node, runtime, .. } = self;
        runtime.block_on(node.engine.shutdown());
        drop(node);
        runtime.shutdown_timeout(Duration::from_secs(5));
    }
}

impl Node {
    fn open(url: &str, name: &str, runtime: &Runtime) -> Result<Self> {
        let store = Arc::new(open_store(url, name)?);
        let tools = Arc::new(BenchTools::default());
        let mut config = PolicyConfig::default();
        config.limits.max_iterations = LONG;
        config.limits.max_steps = LONG;
        config.limits.max_concurrency = WIDEST;
        let _inside = runtime.enter();
        let engine = Engine::new(EngineParts {
            store: store.clone(),
            signer: signer(),
            policy: Policy::compile(&config)?,
            clock: system_clock(),
            options: EngineOptions::default(),
        });
        engine.register(tools::entries()?, tools.clone())?;
        Ok(Self { engine, _store: store, tools })
    }

    /// Runs a plan on a worker thread, as a server does, and checks that it finishes.
    fn run(&self, plan: &Arc<ActionPlan>, runtime: &Runtime) -> Result<()> {
        let (engine, plan) = (self.engine.clone(), plan.clone());
        let by = Approver::of(&Caller::cli("bench")).map_err(|refusal| anyhow::anyhow!("{}", refusal.message()))?;
        let consent = Consent::Approved { by, plan_hash: None, policy_hash: None, preview_hash: None };
        let request = PlanRequest { consent, ..PlanRequest::default() };
        let run = runtime.spawn(async move { engine.run_plan(caller(), &plan, request).await });
        let report = runtime.block_on(run)?.map_err(|failure| anyhow::anyhow!("{failure}"))?;
        if report.status != RunStatus::Finished {
            bail!("the run ended as {}: {:?}", report.status.as_str(), report.error);
        }
        Ok(())
    }
}

fn open_store(url: &str, name: &str) -> Result<PostgresStore> {
    Ok(PostgresStore::open(PostgresOptions {
        url: url.to_owned(),
        node: name.to_owned(),
        home: name.to_owned(),
        serves: true,
        allow_async_replication: true,
        secret: None,
        is_moved: false,
        large_blobs: None,
    })?)
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.context("the server of --url")?;
    tokio::spawn(connection);
    Ok(client)
}

/// A new database on the server: its URL.
async fn new_database(server: &str) -> Result<String> {
    let name = format!("bench_{}", Uuid::now_v7().simple());
    connect(server).await?.batch_execute(&format!("CREATE DATABASE {name}")).await?;
    let (base, _) = server.rsplit_once('/').context("--url has no database")?;
    Ok(format!("{base}/{name}"))
}

/// Commits of one row each, on a connection of their own.
struct Bare {
    client: Client,
    insert: Statement,
    number: i64,
}

impl Bare {
    async fn new(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        client.batch_execute("CREATE TABLE bare (id int8 PRIMARY KEY, payload bytea)").await?;
        let insert = client.prepare_typed("INSERT INTO bare VALUES ($1, $2)", &[Type::INT8, Type::BYTEA]).await?;
        Ok(Self { client, insert, number: 0 })
    }

    /// Microseconds of each of `count` commits.
    async fn commits(&mut self, count: usize) -> Result<Vec<f64>> {
        let payload = vec![b'x'; ROW_BYTES];
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            self.number += 1;
            let began = Instant::now();
            self.client.execute(&self.insert, &[&self.number, &payload]).await?;
            times.push(micros(began.elapsed()));
        }
        Ok(times)
    }
}

/// The server of `--url`, or the report of a benchmark that was skipped.
fn server(setup: &Setup, report: Report) -> std::result::Result<String, Report> {
    setup
        .url
        .clone()
        .ok_or_else(|| report.skipped("no --url: bench/cluster.py starts a server and names it".to_owned()))
}

fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default()
}

/// Sequential durable steps against bare commits of one row.
pub(crate) fn steps(setup: &Setup) -> Result<Report> {
    let report = || Report::new("cluster-steps", "ratio", Good::AtMost, 1.3);
    let server = match server(setup, report()) {
        Ok(server) => server,
        Err(skipped) => return Ok(skipped),
    };
    let bench = Bench::new(&server)?;
    let mut bare = bench.runtime.block_on(Bare::new(&bench.url))?;
    let plan = Arc::new(workloads::writes(SLICE)?);
    bench.steps(&plan)?;
    let (mut commits, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..setup.rounds * SLICES {
        // On a worker thread, as the steps are.
        let (back, times) = bench.runtime.block_on(bench.runtime.spawn(async move {
            let times = bare.commits(SLICE).await;
            (bare, times)
        }))?;
        bare = back;
        let (times, steps) = (times?, bench.steps(&plan)?);
        ratios.push(median(&steps) / median(&times));
        commits.extend(times);
        ours.extend(steps);
    }
    bench.close();
    Ok(report()
        .figure("ratio", median(&ours) / median(&commits))
        .figure("ratioOfSlicesP50", median(&ratios))
        .figure("stepP50Us", median(&ours))
        .figure("commitP50Us", median(&commits))
        .figure("stepP99Us", quantile(&ours, 0.99))
        .figure("commitP99Us", quantile(&commits, 0.99))
        .figure("steps", ours.len() as f64)
        .figure("load", load_average()))
}

/// Durable loops, 16 and 64 wide, against sequential durable steps.
pub(crate) fn foreach(setup: &Setup) -> Result<Report> {
    let report = || Report::new("cluster-foreach", "ratio16", Good::AtLeast, 5.0).also("ratio64", Good::AtLeast, 12.0);
    let server = match server(setup, report()) {
        Ok(server) => server,
        Err(skipped) => return Ok(skipped),
    };
    let bench = Bench::new(&server)?;
    let sequential = Arc::new(workloads::writes(SLICE)?);
    let wide = Arc::new(workloads::wide_write_loop(LOOP, 16)?);
    let wider = Arc::new(workloads::wide_write_loop(LOOP, WIDEST)?);
    bench.rate(&sequential, SLICE)?;
    bench.rate(&wider, LOOP)?;
    let (mut one, mut by_16, mut by_64) = (Vec::new(), Vec::new(), Vec::new());
    let (mut ratios_16, mut ratios_64) = (Vec::new(), Vec::new());
    for _ in 0..setup.rounds * 2 {
        let (s, w, x) = (bench.rate(&sequential, SLICE)?, bench.rate(&wide, LOOP)?, bench.rate(&wider, LOOP)?);
        one.push(s);
        by_16.push(w);
        by_64.push(x);
        ratios_16.push(w / s);
        ratios_64.push(x / s);
    }
    bench.close();
    Ok(report()
        .figure("ratio16", median(&ratios_16))
        .figure("ratio64", median(&ratios_64))
        .figure("sequentialPerSecond", median(&one))
        .figure("foreach16PerSecond", median(&by_16))
        .figure("foreach64PerSecond", median(&by_64))
        .figure("load", load_average()))
}

/// What it costs sequential appends that another node watches, so that this one sends its hints.
pub(crate) fn notify(setup: &Setup) -> Result<Report> {
    let report = || Report::new("cluster-notify", "costPercent", Good::AtMost, 3.0);
    let server = match server(setup, report()) {
        Ok(server) => server,
        Err(skipped) => return Ok(skipped),
    };
    let bench = Bench::new(&server)?;
    let watcher = open_store(&bench.url, "watcher")?;
    let plan = Arc::new(workloads::writes(SLICE * 4)?);
    bench.steps(&plan)?;
    let (mut alone, mut watched, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..setup.rounds * SLICES {
        let mut hints: Option<Hints> = None;
        let mut medians = [0.0; 2];
        // Which of the two comes first changes, so that a load that grows or shrinks favours neither.
        for side in [round % 2, (round + 1) % 2] {
            hints = if side == 0 { None } else { hints.or_else(|| Some(watcher.watch())) };
            std::thread::sleep(BEATS);
            let steps = bench.steps(&plan)?;
            medians[side] = median(&steps);
            if side == 0 {
                alone.extend(steps)
            } else {
                watched.extend(steps)
            };
        }
        ratios.push(medians[1] / medians[0]);
    }
    drop(watcher);
    bench.close();
    Ok(report()
        .figure("costPercent", (median(&ratios) - 1.0) * 100.0)
        .figure("costPercentOfP50", (median(&watched) / median(&alone) - 1.0) * 100.0)
        .figure("aloneP50Us", median(&alone))
        .figure("watchedP50Us", median(&watched))
        .figure("pairs", ratios.len() as f64)
        .figure("load", load_average()))
}

/// The other engine, in a process of its own.
struct Dbos {
    _child: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Dbos {
    /// `None` if it cannot be installed.
    fn start(url: &str) -> Result<Option<Self>> {
        let Some(python) = dbos_python() else { return Ok(None) };
        let mut command = Command::new(python);
        command.args(["-c", DBOS_SCRIPT, url]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Some(Self { _child: Running(child), input, output }))
    }

    /// Workflows of `steps` steps each, `clients` at once: steps per second.
    fn rate(&mut self, clients: usize, steps: usize) -> Result<f64> {
        writeln!(self.input, "{clients} {steps}")?;
        self.input.flush()?;
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "DBOS ended");
        let seconds: f64 = line.trim().parse().with_context(|| format!("DBOS says {line}"))?;
        Ok((clients * steps) as f64 / seconds)
    }
}

/// The Python that has DBOS, which is installed into an environment of its own on first use.
fn dbos_python() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("HOME")?).join(".cache/toolyard/pypi").join(DBOS.replace("==", "-"));
    let (python, stamp) = (folder.join("bin/python"), folder.join("installed"));
    if stamp.is_file() {
        return Some(python);
    }
    let run = |program: &Path, args: &[&str]| {
        let done = Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    let made = run(Path::new("python3"), &["-m", "venv", folder.to_str()?])
        && run(&folder.join("bin/pip"), &["install", "--quiet", "--disable-pip-version-check", DBOS]);
    (made && std::fs::write(stamp, DBOS).is_ok()).then_some(python)
}

/// Steps a second against DBOS on the same server: sequential, and 16 at once.
pub(crate) fn dbos(setup: &Setup) -> Result<Report> {
    let report = || Report::new("cluster-dbos", "times1", Good::AtLeast, 15.0).also("times16", Good::AtLeast, 15.0);
    let server = match server(setup, report()) {
        Ok(server) => server,
        Err(skipped) => return Ok(skipped),
    };
    let bench = Bench::new(&server)?;
    let Some(mut dbos) = Dbos::start(&bench.url)? else {
        bench.close();
        return Ok(report().skipped(format!("{DBOS} cannot be installed from PyPI")));
    };
    let sequential = Arc::new(workloads::writes(SLICE * 4)?);
    let wide = Arc::new(workloads::wide_write_loop(LOOP, 16)?);
    bench.rate(&sequential, SLICE * 4)?;
    bench.rate(&wide, LOOP)?;
    dbos.rate(16, 2)?;
    let (mut ours_1, mut ours_16, mut theirs_1, mut theirs_16) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut times_1, mut times_16) = (Vec::new(), Vec::new());
    for _ in 0..setup.rounds {
        let (a, b) = (bench.rate(&sequential, SLICE * 4)?, dbos.rate(1, DBOS_STEPS)?);
        let (c, d) = (bench.rate(&wide, LOOP)?, dbos.rate(16, DBOS_STEPS / 4)?);
        times_1.push(a / b);
        times_16.push(c / d);
        ours_1.push(a);
        theirs_1.push(b);
        ours_16.push(c);
        theirs_16.push(d);
    }
    drop(dbos);
    bench.close();
    Ok(report()
        .figure("times1", median(&times_1))
        .figure("times16", median(&times_16))
        .figure("stepsPerSecond1", median(&ours_1))
        .figure("dbosPerSecond1", median(&theirs_1))
        .figure("stepsPerSecond16", median(&ours_16))
        .figure("dbosPerSecond16", median(&theirs_16))
        .figure("load", load_average()))
}
