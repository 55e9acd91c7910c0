//! The commands `call` and `tools`.

use clap::{Args, Subcommand, ValueEnum};

/// `toolyard call`.
#[derive(Debug, Args)]
pub struct CallArgs {
    /// The tool's name, for example vault.readFile
    pub name: String,
    /// Arguments as a JSON object; `@FILE` reads a file, `-` standard input
    #[arg(long, default_value = "{}", value_name = "JSON")]
    pub args: String,
    /// How long the call may take, in milliseconds
    #[arg(long, value_name = "MS")]
    pub timeout_ms: Option<u64>,
    /// A second call with the same key and arguments within 24 hours returns the recorded result
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Predict the effect instead of making the call
    #[arg(long)]
    pub dry_run: bool,
}

/// `toolyard tools`.
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools that you may call
    List {
        /// Only this category
        #[arg(long)]
        category: Option<String>,
        /// Include the schemas
        #[arg(long)]
        schemas: bool,
    },
    /// Show everything about one tool
    Describe {
        /// Its name or id
        name: String,
    },
    /// Explain what the policy decides about a call, and which rule decides it
    Policy {
        /// The tool
        name: String,
        /// Arguments as a JSON object; without them, rules about paths are left out
        #[arg(long, value_name = "JSON")]
        args: Option<String>,
        /// The agent [default: main]
        #[arg(long, value_name = "AGENT")]
        agent: Option<String>,
        /// The door by which the call comes: cli, gateway, http, mcp, bridge, script, console, hooks [default: gateway]
        #[arg(long, value_name = "DOOR")]
        door: Option<String>,
    },
    /// Show the bytes and tokens that Tool Search saved, by day and door
    Savings {
        /// How many days, the current one included
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=400), value_name = "N")]
        days: u32,
    },
    /// Find tools; several queries can be given, and one for each step of a task works best
    Search {
        /// What the tool should do
        #[arg(required = true, num_args = 1..=16)]
        query: Vec<String>,
        /// Also show what a model is shown in this mode
        #[arg(long)]
        mode: Option<SearchMode>,
        /// Maximum number of tools for each query [default: tools.toolSearch.searchDefaultLimit]
        #[arg(long, value_name = "N")]
        limit: Option<u32>,
        /// Explain why each tool was found
        #[arg(long)]
        explain: bool,
    },
}

/// The modes of Tool Search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SearchMode {
    /// One tool that runs scripts
    Code,
    /// Search, describe, call
    Tools,
    /// Search, describe, call, and a list of tools in the prompt
    Directory,
}

/// `toolyard why`.
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// Where to search
    pub corpus: CorpusArg,
    /// The question
    pub query: String,
    /// The expected result: a note's path, a memory's URI or a tool's name
    pub expect: String,
}

/// Where something is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CorpusArg {
    /// The notes of the vault
    Notes,
    /// What agents remember
    Memory,
    /// The tools
    Tools,
}
