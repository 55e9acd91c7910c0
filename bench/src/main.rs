//! Measures Toolyard's performance targets on this machine and disk: `cargo run --release -p toolyard-bench -- NAME`.
//!
//! Each benchmark prints one JSON line with its figures, its target and whether the target was met. A benchmark with a
//! baseline measures it in the same run, in alternating slices, because the load of a machine varies. The tools it
//! calls are no-ops, so that only Toolyard is measured. It knows no vaults.

mod bridge;
mod cluster;
mod codemode;
mod context;
mod direct;
mod disk;
mod durable;
mod fit;
mod gateway;
mod mcp;
mod memory;
mod notes;
mod notes_text;
mod plans;
mod process;
mod proof;
#[path = "../../tests/random.rs"]
mod random;
mod recovery;
mod report;
mod rig;
mod search;
mod stats;
mod tools;
mod usage;
mod walls;
mod workloads;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use report::Report;
use std::{path::PathBuf, process::ExitCode, time::Duration};

/// Measures Toolyard; prints one JSON line per benchmark.
#[derive(Parser)]
#[command(name = "toolyard-bench")]
struct Options {
    /// Name of the benchmark
    #[arg(value_enum)]
    name: Name,
    /// Folder for the data; it determines the disk [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Number of rounds, for benchmarks that repeat
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Duration of gateway-soak in seconds; its target is defined for 600
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(75..=86_400))]
    seconds: u64,
    /// The `toolyard` program, for benchmarks that run it [default: beside this program]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// A catalog, one tool per line, for tools-context [default: a generated one]
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// Folders with catalog.jsonl and queries.jsonl, for tools-quality; with turns.jsonl and questions.jsonl, for
    /// fit-memory
    #[arg(long, value_name = "DIR", num_args = 1..)]
    sets: Vec<PathBuf>,
    /// Weights of the folders of --sets in fit-memory [default: 1 each]
    #[arg(long, value_name = "WEIGHT", num_args = 1..)]
    weights: Vec<f64>,
    /// The labelled data set of notes-quality (a folder with corpus.jsonl, queries.jsonl and qrels.tsv) or of
    /// memory-quality (turns.jsonl and questions.jsonl)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Number of chunks in notes-million
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    chunks: usize,
    /// A PostgreSQL server on which databases may be made, for the benchmarks of a cluster (bench/cluster.py starts one)
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Number of clients in cluster-clients
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    clients: usize,
    /// Exit with a failure when a target is missed
    #[arg(long)]
    strict: bool,
}

/// The benchmarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// All benchmarks below, in this order
    All,
    /// Sequential durable steps against the bare disk
    DurableSteps,
    /// A plan of 10,000 read-only steps
    ReadonlySteps,
    /// One foreach of 10,000 read-only iterations, 16 at once
    ReadonlyForeach,
    /// A durable foreach, 16 at once, against sequential steps
    ForeachDurable,
    /// Bytes of database per step
    LogBytes,
    /// Verifying every record of a store
    Verify,
    /// Verifying one receipt
    ReceiptVerify,
    /// Resuming a run from a store with a million records
    Recovery,
    /// CPU time of one direct call
    PipelineCpu,
    /// CPU time of `toolyard tools list`
    ColdStart,
    /// Memory of an idle `toolyard up`
    IdleRss,
    /// Calls through Toolyard to an MCP echo server
    McpProxy,
    /// A hundred upstream MCP servers with 5,000 tools
    McpMany,
    /// One search over 2,500 and over 20,000 tools
    ToolsSearch,
    /// CPU time from 2,500 registered tools to the first search
    ToolsBuild,
    /// CPU time of an empty script in its sandbox, against Node's
    CodemodeStart,
    /// Starting a program in the sandbox against starting it without, and exchanging lines with it
    WallsStart,
    /// Bytes that a model receives in code mode against every schema (--catalog)
    ToolsContext,
    /// nDCG of the ranking on labelled data sets (--sets)
    ToolsQuality,
    /// Recall from 100,000 memories, one thread
    MemoryRecall,
    /// Recall of evidence on labelled conversations (--data: a folder with turns.jsonl and questions.jsonl)
    MemoryQuality,
    /// Fits the weights of recall on labelled conversations and prints them (--sets, --weights); not a benchmark
    FitMemory,
    /// nDCG@10 of note search on a labelled data set
    NotesQuality,
    /// Indexing 6,500 notes, then without changes, then with one changed note
    NotesIndex,
    /// Searching 40,000 chunks
    NotesSearch,
    /// Searching a million chunks whose vectors exceed the memory limit
    NotesMillion,
    /// A call through the Gateway: latency with one connection, throughput with sixteen, CPU time
    GatewayEcho,
    /// Ten thousand idle connections: memory of each, delay of ticks
    GatewayIdle,
    /// A thousand calling connections: errors, p99
    GatewayMany,
    /// Time from the start of `toolyard up` to its first response; idle memory
    GatewayStart,
    /// Effect of a hanging tool, and of a client that never reads, on other clients
    GatewayNeighbours,
    /// A mixed load for --seconds: memory at the end against memory after the first minute
    GatewaySoak,
    /// One address without a token: the memory and sockets it can take, whatever it sends
    AdmissionStrangers,
    /// 4,096 slow peers and 2,000 hung calls: latency of health, approvals and cancel
    AdmissionBusy,
    /// CPU time of admitting a request
    AdmissionCpu,
    /// Importing 500 Markdown files into the context store, and searching them (--data for a corpus)
    CtxImport,
    /// Querying 100,000 recall traces
    CtxTrace,
    /// Time from the start of the index program to its first response
    IndexStart,
    /// The main program: its size, the time of `--version`, its private memory when idle
    MainProgram,
    /// Latency from a message for Claude to the notification on the plugin's output
    BridgeInbound,
    /// Sequential durable steps on PostgreSQL against bare commits (--url)
    ClusterSteps,
    /// Durable loops on PostgreSQL, 16 and 64 wide, against sequential steps (--url)
    ClusterForeach,
    /// What hints to another node cost appends on PostgreSQL (--url)
    ClusterNotify,
    /// Steps per second on PostgreSQL against PyPI's DBOS (--url)
    ClusterDbos,
    /// How late ten nodes hear what one of them records (--url)
    ClusterEvents,
    /// Connected clients of a cluster while a node is killed (run it with bench/cluster.py)
    ClusterClients,
    /// (internal) a gateway with the benchmark's tools
    #[value(hide = true)]
    ServeGateway,
    /// (internal) fills a store and exits without closing it, for recovery
    #[value(hide = true)]
    FillAndDie,
}

/// The settings of the benchmarks.
struct Setup {
    dir: PathBuf,
    rounds: usize,
    binary: Option<PathBuf>,
    data: Option<PathBuf>,
    chunks: usize,
    catalog: Option<PathBuf>,
    sets: Vec<PathBuf>,
    seconds: Duration,
    url: Option<String>,
    clients: usize,
}

const IN_ORDER: [Name; 45] = [
    Name::DurableSteps,
    Name::ReadonlySteps,
    Name::ReadonlyForeach,
    Name::ForeachDurable,
    Name::LogBytes,
    Name::Verify,
    Name::ReceiptVerify,
    Name::Recovery,
    Name::PipelineCpu,
    Name::MainProgram,
    Name::ColdStart,
    Name::IdleRss,
    Name::ToolsSearch,
    Name::ToolsBuild,
    Name::CodemodeStart,
    Name::WallsStart,
    Name::ToolsContext,
    Name::ToolsQuality,
    Name::GatewayEcho,
    Name::GatewayIdle,
    Name::GatewayMany,
    Name::GatewayStart,
    Name::GatewayNeighbours,
    Name::GatewaySoak,
    Name::AdmissionStrangers,
    Name::AdmissionBusy,
    Name::AdmissionCpu,
    Name::McpProxy,
    Name::McpMany,
    Name::BridgeInbound,
    Name::CtxImport,
    Name::CtxTrace,
    Name::MemoryRecall,
    Name::MemoryQuality,
    Name::NotesQuality,
    Name::NotesIndex,
    Name::NotesSearch,
    Name::NotesMillion,
    Name::IndexStart,
    Name::ClusterSteps,
    Name::ClusterForeach,
    Name::ClusterNotify,
    Name::ClusterDbos,
    Name::ClusterEvents,
    Name::ClusterClients,
];

fn measure(name: Name, setup: &Setup) -> Result<Report> {
    match name {
        Name::DurableSteps => durable::steps(setup),
        Name::ReadonlySteps => plans::readonly_steps(setup),
        Name::ReadonlyForeach => plans::readonly_foreach(setup),
        Name::ForeachDurable => durable::foreach(setup),
        Name::LogBytes => plans::log_bytes(setup),
        Name::Verify => proof::verify(setup),
        Name::ReceiptVerify => proof::receipt_verify(setup),
        Name::Recovery => recovery::recovery(setup),
        Name::PipelineCpu => direct::pipeline_cpu(setup),
        Name::ColdStart => process::cold_start(setup),
        Name::IdleRss => process::idle_rss(setup),
        Name::ToolsSearch => search::search(setup),
        Name::ToolsBuild => search::build(setup),
        Name::CodemodeStart => codemode::start(setup),
        Name::WallsStart => walls::start(setup),
        Name::ToolsContext => search::context(setup),
        Name::ToolsQuality => search::quality(setup),
        Name::MemoryRecall => memory::recall(setup),
        Name::MemoryQuality => memory::quality(setup),
        Name::NotesQuality => notes::quality(setup),
        Name::NotesIndex => notes::indexing(setup),
        Name::NotesSearch => notes::searching(setup),
        Name::NotesMillion => notes::million(setup),
        Name::IndexStart => notes::index_start(setup),
        Name::MainProgram => process::main_program(setup),
        Name::GatewayEcho => gateway::echoes(setup),
        Name::GatewayIdle => gateway::idle(setup),
        Name::GatewayMany => gateway::many(setup),
        Name::GatewayStart => gateway::start(setup),
        Name::GatewayNeighbours => gateway::neighbours(setup),
        Name::GatewaySoak => gateway::soak(setup),
        Name::AdmissionStrangers => gateway::strangers(setup),
        Name::AdmissionBusy => gateway::busy(setup),
        Name::AdmissionCpu => gateway::cpu(setup),
        Name::BridgeInbound => bridge::inbound(setup),
        Name::CtxImport => context::import(setup),
        Name::CtxTrace => context::traces(setup),
        Name::ClusterSteps => cluster::steps(setup),
        Name::ClusterForeach => cluster::foreach(setup),
        Name::ClusterNotify => cluster::notify(setup),
        Name::ClusterDbos => cluster::dbos(setup),
        Name::ClusterEvents => cluster::events(setup),
        Name::ClusterClients => cluster::clients(setup),
        Name::FitMemory => anyhow::bail!("a fit is no benchmark"),
        Name::ServeGateway => anyhow::bail!("a gateway is no benchmark"),
        Name::McpProxy => mcp::proxy(setup),
        Name::McpMany => mcp::many(setup),
        Name::FillAndDie => recovery::fill_and_die(setup),
        Name::All => anyhow::bail!("all is a list, not a benchmark"),
    }
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let dir = options.dir.unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&dir)?;
    let setup = Setup {
        dir,
        rounds: options.rounds as usize,
        binary: options.binary,
        catalog: options.catalog,
        sets: options.sets,
        data: options.data,
        chunks: options.chunks,
        seconds: Duration::from_secs(options.seconds),
        url: options.url,
        clients: options.clients,
    };
    if options.name == Name::ServeGateway {
        gateway::serve(&setup)?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.name == Name::FitMemory {
        fit::memory(&setup, &options.weights)?;
        return Ok(ExitCode::SUCCESS);
    }
    let names = if options.name == Name::All { IN_ORDER.to_vec() } else { vec![options.name] };
    let mut all_met = true;
    for name in names {
        let report = measure(name, &setup)?;
        report.print()?;
        all_met &= report.met() != Some(false);
        // In a list, a benchmark that cannot run is reported and the others continue. If it was requested by name, that
        // is a failure.
        if let Some(why) = report.why_skipped().filter(|_| options.name != Name::All) {
            anyhow::bail!("nothing was measured: {why}");
        }
    }
    Ok(if options.strict && !all_met { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
