//! Measures what Toolyard promises, on this machine and this disk: `cargo run --release -p toolyard-bench -- NAME`.
//!
//! Each benchmark prints one JSON line with its figures, its target and whether it was met. Whatever has a baseline
//! measures it in the same run, in alternating slices, because the machine is never the same twice. The tools it calls
//! are its own and do nothing, so that only Toolyard is measured. Knows nothing of vaults.

mod bridge;
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

/// Measures Toolyard; prints one JSON line a benchmark.
#[derive(Parser)]
#[command(name = "toolyard-bench")]
struct Options {
    /// Which benchmark
    #[arg(value_enum)]
    name: Name,
    /// Where to keep the data while measuring; it chooses the disk [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How many rounds, where a benchmark repeats itself
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How long gateway-soak lasts; what it promises is about 600
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(75..=86_400))]
    seconds: u64,
    /// The `toolyard` program, for cold-start, idle-rss and gateway-start [default: beside this program]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// A catalog, one tool a line, for tools-context [default: a generated one]
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// Folders with catalog.jsonl and queries.jsonl, for tools-quality; with turns.jsonl and questions.jsonl, for
    /// fit-memory
    #[arg(long, value_name = "DIR", num_args = 1..)]
    sets: Vec<PathBuf>,
    /// What each of the folders of --sets counts in fit-memory [default: 1 each]
    #[arg(long, value_name = "WEIGHT", num_args = 1..)]
    weights: Vec<f64>,
    /// The labelled set of notes-quality (a folder with corpus.jsonl, queries.jsonl and qrels.tsv) or of memory-quality
    /// (turns.jsonl and questions.jsonl)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// How many chunks notes-million makes
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    chunks: usize,
    /// End with a failure when a target is missed
    #[arg(long)]
    strict: bool,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Everything below, one after another
    All,
    /// Sequential durable steps against the bare disk
    DurableSteps,
    /// A plan of 10,000 read-only steps
    ReadonlySteps,
    /// One foreach of 10,000 read-only iterations, 16 at once
    ReadonlyForeach,
    /// A durable foreach, 16 at once, against sequential steps
    ForeachDurable,
    /// Bytes of database a step
    LogBytes,
    /// Proving every record of a store
    Verify,
    /// Checking one receipt
    ReceiptVerify,
    /// Taking a run up again out of a million records
    Recovery,
    /// CPU of one direct call
    PipelineCpu,
    /// CPU of `toolyard tools list`
    ColdStart,
    /// Memory of an idle `toolyard up`
    IdleRss,
    /// Calls through Toolyard to an MCP echo server
    McpProxy,
    /// A hundred upstream MCP servers with 5,000 tools
    McpMany,
    /// One search over 2,500 and over 20,000 tools
    ToolsSearch,
    /// From 2,500 registered tools to the first search
    ToolsBuild,
    /// CPU of an empty script in its sandbox, against Node's
    CodemodeStart,
    /// Starting a program within walls against starting it without, and exchanging lines with it
    WallsStart,
    /// What a model is shown in code mode against every schema (--catalog)
    ToolsContext,
    /// nDCG of the ranking on labelled sets (--sets)
    ToolsQuality,
    /// Recalling out of 100,000 memories, one thread
    MemoryRecall,
    /// Evidence recalled on labelled conversations (--data: a folder with turns.jsonl and questions.jsonl)
    MemoryQuality,
    /// Fits the weights of recall on labelled conversations and prints them (--sets, --weights); no benchmark
    FitMemory,
    /// nDCG@10 of note search on a labelled set
    NotesQuality,
    /// Indexing 6,500 notes, then nothing, then one changed note
    NotesIndex,
    /// Searching 40,000 chunks
    NotesSearch,
    /// Searching a million chunks beyond the vectors' memory
    NotesMillion,
    /// A call through the Gateway: one connection, sixteen, CPU
    GatewayEcho,
    /// Ten thousand idle connections: memory each, ticks on time
    GatewayIdle,
    /// A thousand connections calling: errors, p99
    GatewayMany,
    /// From the start of `toolyard up` to its first answer; idle memory
    GatewayStart,
    /// A hanging tool, a client that never reads: what others notice
    GatewayNeighbours,
    /// A mixed load for --seconds: memory at the end against memory after the first minute
    GatewaySoak,
    /// One address without a token: the memory and the sockets it can take, whatever it sends
    AdmissionStrangers,
    /// 4,096 slow peers and 2,000 hung calls: how quickly health, approvals and cancel are answered
    AdmissionBusy,
    /// CPU of admitting a request
    AdmissionCpu,
    /// Bringing 500 Markdown files into the context store, and finding in them (--data for a corpus)
    CtxImport,
    /// Looking through 100,000 recall traces
    CtxTrace,
    /// From the start of the index program to its first answer
    IndexStart,
    /// The main program: its size, the time of `--version`, its private memory while nobody asks anything
    MainProgram,
    /// From a message for Claude to the notification on the plugin's output
    BridgeInbound,
    /// (internal) a gateway with the benchmark's tools
    #[value(hide = true)]
    ServeGateway,
    /// (internal) fills a store and dies, for recovery
    #[value(hide = true)]
    FillAndDie,
}

/// What a benchmark may need to know.
struct Setup {
    dir: PathBuf,
    rounds: usize,
    binary: Option<PathBuf>,
    data: Option<PathBuf>,
    chunks: usize,
    catalog: Option<PathBuf>,
    sets: Vec<PathBuf>,
    seconds: Duration,
}

const IN_ORDER: [Name; 39] = [
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
        // In a list, a benchmark that cannot run is reported and the others go on. Asked for by name, it has failed.
        if let Some(why) = report.why_skipped().filter(|_| options.name != Name::All) {
            anyhow::bail!("nothing was measured: {why}");
        }
    }
    Ok(if options.strict && !all_met { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
