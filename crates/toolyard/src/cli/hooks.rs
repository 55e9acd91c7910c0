//! The command `hooks`: hooks of coding agents.

use clap::{Args, Subcommand, ValueEnum};
use toolyard_hooks::Client;

/// `toolyard hooks`.
#[derive(Debug, Subcommand)]
pub enum HooksCommand {
    /// Put Toolyard's hooks into a coding agent's settings
    Install(HooksInstallArgs),
    /// Take Toolyard's hooks out of a coding agent's settings
    Uninstall(HooksClientArgs),
    /// Say whether the hooks are there and can work
    Status(HooksClientArgs),
    /// Answer one event of a coding agent; its hooks run this
    Run(HooksRunArgs),
}

/// A client with hooks.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum HooksClient {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
}

impl From<HooksClient> for Client {
    fn from(client: HooksClient) -> Self {
        match client {
            HooksClient::Claude => Self::Claude,
            HooksClient::Codex => Self::Codex,
            HooksClient::Gemini => Self::Gemini,
        }
    }
}

/// Which client.
#[derive(Debug, Args)]
pub struct HooksClientArgs {
    /// The coding agent
    #[arg(value_enum)]
    pub client: HooksClient,
}

/// What is installed.
#[derive(Debug, Args)]
pub struct HooksInstallArgs {
    /// The coding agent
    #[arg(value_enum)]
    pub client: HooksClient,
    /// Codex: also write its trust in the hooks, instead of reviewing them in its terminal
    #[arg(long)]
    pub trust: bool,
}

/// Whose event it is.
#[derive(Debug, Args)]
pub struct HooksRunArgs {
    /// The coding agent whose hook this is
    #[arg(long, value_enum)]
    pub client: HooksClient,
}
