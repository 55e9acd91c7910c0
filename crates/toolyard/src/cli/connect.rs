//! The commands `connect` and `import`: clients that use Toolyard, and what they already have.

use crate::{clients::servers::McpClient, config::ApprovalsBy};
use clap::{Args, Subcommand};

/// `toolyard connect`.
#[derive(Debug, Args)]
pub struct ConnectArgs {
    /// The client
    #[arg(value_enum)]
    pub client: McpClient,
    /// Who approves what the policy asks about: the client's own prompt, Toolyard (console, phone, channel), or nobody
    #[arg(long, value_enum, value_name = "WHO")]
    pub approvals: Option<ApprovalsBy>,
    /// Do not wait for the first call
    #[arg(long)]
    pub no_wait: bool,
    /// Print the new content of the client's file, and change nothing
    #[arg(long, conflicts_with = "undo")]
    pub print: bool,
    /// Write a plugin package with the server, hooks and a skill, for the client's own plugin command; with --undo,
    /// remove it
    #[arg(long, conflicts_with_all = ["print", "approvals"])]
    pub plugin: bool,
    /// Remove Toolyard from the client's settings and restore the files
    #[arg(long)]
    pub undo: bool,
}

/// `toolyard import`.
#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// Copy the MCP servers of other clients into config.toml, in a sandbox and pinned
    Mcp(ImportMcpArgs),
}

/// `toolyard import mcp`.
#[derive(Debug, Args)]
pub struct ImportMcpArgs {
    /// Only the servers of this client (repeatable)
    #[arg(long, value_enum, value_name = "CLIENT")]
    pub from: Vec<McpClient>,
    /// Show which servers would be copied, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}
