//! What can be typed. Help, completions and the documentation all come from these definitions: here what every command
//! shares and the list of commands, in `cli/` a file for each family of them.

mod approvals;
mod begin;
mod bridge;
mod config;
mod connect;
mod ctx;
mod eval;
mod extensions;
mod gateway;
mod hooks;
mod lazy_args;
mod nodes;
mod notify;
mod plan;
pub mod reference;
mod runs;
mod tools;
mod upkeep;
mod vault;
mod workspaces;

pub use approvals::{AllowArgs, ApprovalsCommand, GrantScopeArg, GrantsCommand};
pub use begin::{InitArgs, ReportArgs, SelfCommand};
pub use bridge::{BridgeCommand, BridgeOpening, ClaudeCommand, ClaudePluginArgs, ClaudeStart, Verdict};
pub use config::{ConfigCommand, ExplainArgs};
pub use connect::{ConnectArgs, ImportCommand, ImportMcpArgs};
pub use ctx::CtxCommand;
pub use eval::EvalCommand;
pub use extensions::{McpAdd, McpArgs, McpCommand, PluginsCommand};
pub use gateway::{ConsoleArgs, DevicesCommand, GatewayCommand, GatewayTarget, UpArgs};
pub use hooks::{HookRunner, HooksClient, HooksClientArgs, HooksCommand, HooksInstallArgs, HooksRunArgs, ManagedArgs};
pub use lazy_args::LazyArgs;
pub use nodes::{MigrateArgs, NodesCommand};
pub use notify::NotifyCommand;
pub use plan::{Approval, PlanCommand, PlanFile};
pub use runs::{KeysCommand, RunFilterArgs, RunsCommand};
pub use tools::{CallArgs, CorpusArg, SearchMode, ToolsCommand, WhyArgs};
pub use upkeep::{BackupArgs, LogsArgs, PruneArgs, RestoreArgs, StoreCommand};
pub use vault::{FileStateArg, IndexArgs, SearchArgs, VaultCommand};
pub use workspaces::WorkspacesCommand;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Registers, checks, runs and records the tools of AI agents.
///
/// Without a command it prints its status: whether it is running, its address, the vault, the index, open questions and
/// what to do next.
///
/// Data goes to standard output, everything else to standard error. Exit codes: 0 success; 1 failure; 2 the command
/// line was wrong; 3 a person's approval is needed; 4 a run waits until a person decides about a call; 130 interrupted.
#[derive(Debug, Parser)]
#[command(name = "toolyard", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// Options every command takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Options every command takes.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Where Toolyard keeps its state [default: ~/.toolyard]
    #[arg(long, global = true, env = "TOOLYARD_HOME", value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// The folder of notes that the vault tools use [default: the one in config.toml, otherwise HOME/vault]
    #[arg(long, global = true, env = "TOOLYARD_VAULT", value_name = "DIR")]
    pub vault: Option<PathBuf>,
    /// Print JSON, and nothing else, on standard output
    #[arg(long, global = true)]
    pub json: bool,
    /// Write less to standard error
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Run in this process even if a Toolyard is running
    #[arg(long, global = true)]
    pub in_process: bool,
    /// Act in this workspace instead of the default one; only the person at this machine may
    #[arg(long, global = true, value_name = "NAME")]
    pub workspace: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Set up Toolyard: asks a few questions, writes a commented config.toml, and indexes the notes
    Init(LazyArgs<InitArgs>),
    /// Start Toolyard and serve until stopped
    Up(LazyArgs<UpArgs>),
    /// Pair a browser with the running Toolyard and open the web console
    Console(LazyArgs<ConsoleArgs>),
    /// Print the status: running or not, address, vault, index, session key, open questions, what to do next
    Status,
    /// Call one tool
    Call(LazyArgs<CallArgs>),
    /// List, describe and search tools
    #[command(subcommand)]
    Tools(LazyArgs<ToolsCommand>),
    /// Check, predict, run, replay, fork and undo plans
    #[command(subcommand)]
    Plan(LazyArgs<PlanCommand>),
    /// List, show, export, verify, resume and cancel runs
    #[command(subcommand)]
    Runs(LazyArgs<RunsCommand>),
    /// Print log lines of the running Toolyard
    Logs(LazyArgs<LogsArgs>),
    /// Show what the running Toolyard is doing, refreshed when something happens, until interrupted
    Top,
    /// List, show and answer the questions of agents
    #[command(subcommand)]
    Approvals(LazyArgs<ApprovalsCommand>),
    /// List and revoke lasting permissions
    #[command(subcommand)]
    Grants(LazyArgs<GrantsCommand>),
    /// Show the channels of notifications, and send a test message
    #[command(subcommand)]
    Notify(LazyArgs<NotifyCommand>),
    /// Summarise what every agent did in a span of time
    Report(LazyArgs<ReportArgs>),
    /// Copy everything that Toolyard stores into a folder; Toolyard may be running
    Backup(LazyArgs<BackupArgs>),
    /// Restore a backup into an empty home (--home)
    Restore(LazyArgs<RestoreArgs>),
    /// Remove old runs; the ledger keeps the proof that they existed
    Prune(LazyArgs<PruneArgs>),
    /// Check and measure the store
    #[command(subcommand)]
    Store(LazyArgs<StoreCommand>),
    /// List and replace the keys that sign the record
    #[command(subcommand)]
    Keys(LazyArgs<KeysCommand>),
    /// List, drain and fence the nodes of a cluster
    #[command(subcommand)]
    Nodes(LazyArgs<NodesCommand>),
    /// List, add and remove workspaces, which keep the state of several people apart
    #[command(subcommand)]
    Workspaces(LazyArgs<WorkspacesCommand>),
    /// Move the state of this home into a PostgreSQL database that several nodes share, or back
    Migrate(LazyArgs<MigrateArgs>),
    /// Call a running gateway over its WebSocket
    #[command(subcommand)]
    Gateway(LazyArgs<GatewayCommand>),
    /// Send messages to a connected Claude Code, read its replies, and answer its permission questions
    #[command(subcommand)]
    Bridge(LazyArgs<BridgeCommand>),
    /// Start Claude Code connected to a session
    #[command(subcommand)]
    Claude(LazyArgs<ClaudeCommand>),
    /// The MCP server that Claude Code starts; it connects to the bridge with the SYNTHESIS_* variables
    ClaudePlugin(LazyArgs<ClaudePluginArgs>),
    /// Serve MCP on standard input and output, for a client that starts this command
    Mcp(LazyArgs<McpArgs>),
    /// Install, list, update and remove plugins
    #[command(subcommand)]
    Plugins(LazyArgs<PluginsCommand>),
    /// Enter Toolyard into a client's settings: its MCP server and, where the client has them, hooks
    Connect(LazyArgs<ConnectArgs>),
    /// Import settings of other clients
    #[command(subcommand)]
    Import(LazyArgs<ImportCommand>),
    /// Put hooks into coding agents, so that Toolyard decides about and records the calls of their own tools, and can
    /// undo them
    #[command(subcommand)]
    Hooks(LazyArgs<HooksCommand>),
    /// List, approve, reject and revoke devices
    #[command(subcommand)]
    Devices(LazyArgs<DevicesCommand>),
    /// Show and check the configuration
    #[command(subcommand)]
    Config(LazyArgs<ConfigCommand>),
    /// Index and search the notes of the vault
    #[command(subcommand)]
    Vault(LazyArgs<VaultCommand>),
    /// List, read, search, import and remove what agents remember (viking://)
    #[command(subcommand)]
    Ctx(LazyArgs<CtxCommand>),
    /// Explain why a note, a memory or a tool was found for a question, or was not
    Why(LazyArgs<WhyArgs>),
    /// Measure search quality on your own data
    #[command(subcommand)]
    Eval(LazyArgs<EvalCommand>),
    /// Explain an error code
    Explain(LazyArgs<ExplainArgs>),
    /// Check this installation and report problems
    Doctor,
    /// Print the version of this program
    Version,
    /// Check this installation of the program
    #[command(subcommand, name = "self")]
    SelfCommand(LazyArgs<SelfCommand>),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}
