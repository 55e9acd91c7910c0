//! The command `hooks`: hooks of coding agents.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use toolyard_hooks::Client;

/// `toolyard hooks`.
#[derive(Debug, Subcommand)]
pub enum HooksCommand {
    /// Put Toolyard's hooks into a coding agent's settings
    Install(HooksInstallArgs),
    /// Take Toolyard's hooks out of a coding agent's settings
    Uninstall(HooksClientArgs),
    /// Check whether the hooks are installed and can run
    Status(HooksClientArgs),
    /// Answer one event of a coding agent; the installed hooks run this command
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

/// A client whose events are answered.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum HookRunner {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// opencode, through the plugin that `connect opencode --plugin` writes
    Opencode,
}

impl From<HookRunner> for Client {
    fn from(client: HookRunner) -> Self {
        match client {
            HookRunner::Claude => Self::Claude,
            HookRunner::Codex => Self::Codex,
            HookRunner::Gemini => Self::Gemini,
            HookRunner::Opencode => Self::Opencode,
        }
    }
}

/// Which client.
#[derive(Debug, Args)]
pub struct HooksClientArgs {
    /// The coding agent
    #[arg(value_enum)]
    pub client: HooksClient,
    /// The settings that are meant
    #[command(flatten)]
    pub managed: ManagedArgs,
}

/// What is installed.
#[derive(Debug, Args)]
pub struct HooksInstallArgs {
    /// The coding agent
    #[arg(value_enum)]
    pub client: HooksClient,
    /// Codex only: also mark the hooks as trusted in Codex's configuration, instead of reviewing them in its terminal
    #[arg(long, conflicts_with = "managed")]
    pub trust: bool,
    /// The settings that are meant
    #[command(flatten)]
    pub managed: ManagedArgs,
}

/// The settings of the whole machine.
#[derive(Debug, Args)]
pub struct ManagedArgs {
    /// Use the settings of the whole machine, which a repository's own settings cannot override; changing them needs
    /// root
    #[arg(long)]
    pub managed: bool,
    /// The root folder of the machine or of an image that is being built
    #[arg(long, value_name = "DIR", default_value = "/", requires = "managed")]
    pub root: PathBuf,
}

/// Whose event it is.
#[derive(Debug, Args)]
pub struct HooksRunArgs {
    /// The coding agent whose hook this is
    #[arg(long, value_enum)]
    pub client: HookRunner,
}
