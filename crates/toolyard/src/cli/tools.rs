//! Calling a tool, and finding one.

use clap::{Args, Subcommand, ValueEnum};

/// `toolyard call`.
#[derive(Debug, Args)]
pub struct CallArgs {
    /// The tool's name, for example vault.readFile
    pub name: String,
    /// Arguments as a JSON object; `@FILE` reads a file, `-` standard input
    #[arg(long, default_value = "{}", value_name = "JSON")]
    pub args: String,
    /// How long it may take
    #[arg(long, value_name = "MS")]
    pub timeout_ms: Option<u64>,
    /// The same key with the same arguments within 24 hours gives the recorded result
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Predict instead of doing
    #[arg(long)]
    pub dry_run: bool,
}

/// `toolyard tools`.
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools you may use
    List {
        /// Only this category
        #[arg(long)]
        category: Option<String>,
        /// With their schemas
        #[arg(long)]
        schemas: bool,
    },
    /// Show everything about one tool
    Describe {
        /// Its name or id
        name: String,
    },
    /// Find tools; several queries are searched at once, one per step of a task works best
    Search {
        /// What the tool should do
        #[arg(required = true, num_args = 1..=16)]
        query: Vec<String>,
        /// Show as well what a model is shown in this mode
        #[arg(long)]
        mode: Option<SearchMode>,
        /// At most this many tools for each query [default: tools.toolSearch.searchDefaultLimit]
        #[arg(long, value_name = "N")]
        limit: Option<u32>,
        /// Say why each tool was found
        #[arg(long)]
        explain: bool,
    },
}

/// How a model reaches the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SearchMode {
    /// One tool that runs scripts
    Code,
    /// Search, describe, call
    Tools,
    /// The same, with a bounded list in the prompt
    Directory,
}
