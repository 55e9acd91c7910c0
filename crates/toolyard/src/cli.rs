//! What can be typed. Help, completions and the documentation all come from these definitions.

use clap::{Args, Parser, Subcommand, ValueEnum, builder::TypedValueParser};
use std::path::PathBuf;

/// The place where AI agents keep their tools.
///
/// Data goes to standard output, everything else to standard error. Exit codes: 0 it worked; 1 it failed; 2 the command
/// line was wrong; 3 a person's approval is needed; 4 a run waits for a person to settle a call; 130 it was interrupted.
#[derive(Debug, Parser)]
#[command(
    name = "toolyard",
    version,
    propagate_version = true,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// Options every command takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options every command takes.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Where Toolyard keeps its state [default: ~/.toolyard]
    #[arg(long, global = true, env = "TOOLYARD_HOME", value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// The folder of notes that the vault tools work on [default: the one in config.toml, else HOME/vault]
    #[arg(long, global = true, env = "TOOLYARD_VAULT", value_name = "DIR")]
    pub vault: Option<PathBuf>,
    /// Print JSON, and nothing else, on standard output
    #[arg(long, global = true)]
    pub json: bool,
    /// Say less on standard error
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Run in this process even if a Toolyard is running
    #[arg(long, global = true)]
    pub in_process: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start Toolyard and serve until stopped
    Up(UpArgs),
    /// Call one tool
    Call(CallArgs),
    /// Look at the tools
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Check, predict, run, replay, fork and take back plans
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Look at runs and their records
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Talk to a running gateway over its WebSocket
    #[command(subcommand)]
    Gateway(GatewayCommand),
    /// Messages to a joined Claude Code, what it says, and answers to its permission questions
    #[command(subcommand)]
    Bridge(BridgeCommand),
    /// Start Claude Code joined to a session
    #[command(subcommand)]
    Claude(ClaudeCommand),
    /// The MCP server that Claude Code starts, joined to the bridge by the SYNTHESIS_* variables
    ClaudePlugin(ClaudePluginArgs),
    /// Serve MCP on standard input and output, for a client that starts this command
    Mcp(McpArgs),
    /// Install, look after and remove plugins
    #[command(subcommand)]
    Plugins(PluginsCommand),
    /// Devices that may connect: list, let in, turn away, forget
    #[command(subcommand)]
    Devices(DevicesCommand),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Index and search the notes of the vault
    #[command(subcommand)]
    Vault(VaultCommand),
    /// What agents remember: list, read, search, bring in and remove what lies in viking://
    #[command(subcommand)]
    Ctx(CtxCommand),
    /// Measure on your own data
    #[command(subcommand)]
    Eval(EvalCommand),
    /// Explain an error code
    Explain(ExplainArgs),
    /// Find out what is wrong with this installation
    Doctor,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// `toolyard up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Address to listen on; anything beyond loopback needs a token
    #[arg(long, value_name = "ADDR")]
    pub host: Option<std::net::IpAddr>,
    /// Port to listen on; 0 takes a free one [default: 18789]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// The token clients must show [default: the one in state/token, made at first start]
    #[arg(long, env = "TOOLYARD_TOKEN", value_name = "T", hide_env_values = true)]
    pub token: Option<String>,
}

/// `toolyard plugins`.
#[derive(Debug, Subcommand)]
pub enum PluginsCommand {
    /// Install a plugin: its manifest is checked, its package unpacked, nothing of it runs outside its walls
    Install {
        /// A folder, a tarball, npm:NAME or git:URL
        source: String,
        /// What it may touch: network, read:PATH, write:PATH or env:NAME
        #[arg(long, value_name = "WHAT")]
        grant: Vec<String>,
    },
    /// List plugins and how they are
    List,
    /// Everything about one plugin
    Info {
        /// The plugin's id
        id: String,
    },
    /// Use a plugin, and grant it more if wanted
    Enable {
        /// The plugin's id
        id: String,
        /// What it may touch: network, read:PATH, write:PATH or env:NAME
        #[arg(long, value_name = "WHAT")]
        grant: Vec<String>,
    },
    /// Stop using a plugin
    Disable {
        /// The plugin's id
        id: String,
    },
    /// Fetch a plugin again from where it came
    Update {
        /// The plugin's id
        id: String,
    },
    /// Remove a plugin
    Remove {
        /// The plugin's id
        id: String,
        /// Remove the plugin's own data as well
        #[arg(long)]
        data: bool,
    },
    /// Start every plugin that is used and ask it how it is
    Doctor,
}

/// `toolyard mcp`: alone it serves; with a command it looks after upstream servers.
#[derive(Debug, Args)]
pub struct McpArgs {
    /// What to do with upstream servers
    #[command(subcommand)]
    pub command: Option<McpCommand>,
}

/// What can be done with upstream servers.
#[derive(Debug, Subcommand)]
pub enum McpCommand {
    /// List upstream servers: how they are, what they offer, what is held back
    Servers,
    /// Start a server now and look at what it offers
    Start {
        /// The server's name in config.toml
        server: String,
    },
    /// Stop a server; the next call starts it again
    Stop {
        /// The server's name
        server: String,
    },
    /// Approve tool definitions that are held back because they changed
    Approve {
        /// The server's name
        server: String,
        /// The tools; all that are held back if none is named
        tools: Vec<String>,
    },
    /// Forget what was seen and approved of a server
    Forget {
        /// The server's name
        server: String,
    },
    /// Let Toolyard use a server in your name, where the server asks for that (OAuth)
    Login {
        /// The server's name
        server: String,
        /// Seconds to wait for your answer
        #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=3600))]
        wait: u64,
    },
    /// Forget the tokens of a server
    Logout {
        /// The server's name
        server: String,
    },
}

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

/// `toolyard eval`.
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Measure tool search on a labelled set
    Tools {
        /// Tools, one JSON object a line: {"name","description","parameters"}
        #[arg(long, value_name = "FILE")]
        catalog: PathBuf,
        /// Queries, one JSON object a line: {"query","gold":[names],"steps":[queries]}
        #[arg(long, value_name = "FILE")]
        queries: PathBuf,
        /// Search a query's steps as a batch and merge
        #[arg(long)]
        steps: bool,
        /// Rank by words alone, without the built-in embedding
        #[arg(long)]
        words_only: bool,
    },
    /// Measure note search on a labelled corpus: full text, vectors, and both as searches use them
    Notes {
        /// Documents, one JSON object a line: {"_id","title","text"}
        #[arg(long, value_name = "FILE")]
        corpus: PathBuf,
        /// Questions, one JSON object a line: {"_id","text"}
        #[arg(long, value_name = "FILE")]
        queries: PathBuf,
        /// Which document answers which question: query, document and grade, with tabs between, after a header
        #[arg(long, value_name = "FILE")]
        qrels: PathBuf,
    },
    /// Measure recall of conversations: how much of the evidence is among the first turns recalled
    Memory {
        /// Turns, one JSON object a line: {"conv","session","session_time","id","speaker","text","image_caption"}
        #[arg(long, value_name = "FILE")]
        turns: PathBuf,
        /// Questions, one JSON object a line: {"conv","qid","category_name","question","evidence":[turn ids]}
        #[arg(long, value_name = "FILE")]
        questions: PathBuf,
    },
}

/// `toolyard vault`.
#[derive(Debug, Subcommand)]
pub enum VaultCommand {
    /// Bring the index up to date
    Index(IndexArgs),
    /// Find what the notes say
    Search(SearchArgs),
    /// Tell how fresh the index is and what became of each note
    Status {
        /// List the notes in this state, with reasons
        #[arg(long, value_name = "STATE")]
        files: Option<FileStateArg>,
        /// At most this many of them
        #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000).map(usize::from))]
        limit: usize,
    },
    /// Index what changes until stopped
    Watch,
    /// Return to the complete version before the current one
    Rollback,
}

/// `toolyard vault index`.
#[derive(Debug, Args)]
pub struct IndexArgs {
    /// Look at the content of every note, not only at those whose time or size changed
    #[arg(long)]
    pub full: bool,
    /// Build a new index from nothing; the old one answers until it is done
    #[arg(long, conflicts_with = "full")]
    pub rebuild: bool,
    /// Return at once; needs a running Toolyard
    #[arg(long)]
    pub detach: bool,
}

/// `toolyard vault search`.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// What to look for
    #[arg(required = true)]
    pub query: Vec<String>,
    /// At most this many results
    #[arg(long, short = 'n', default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=50).map(usize::from))]
    pub limit: usize,
    /// Only notes in this folder (repeatable)
    #[arg(long, value_name = "DIR")]
    pub folder: Vec<String>,
    /// Only notes with this tag (repeatable: any of them)
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<String>,
    /// Only notes of this day or later
    #[arg(long, value_name = "DAY")]
    pub from: Option<String>,
    /// Only notes of this day or earlier
    #[arg(long, value_name = "DAY")]
    pub to: Option<String>,
    /// Show results that are withheld as sensitive
    #[arg(long)]
    pub confirm_sensitive: bool,
    /// Say how each score came about
    #[arg(long)]
    pub explain: bool,
}

/// What became of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileStateArg {
    /// It can be found
    Indexed,
    /// There is nothing in it
    Empty,
    /// It was left out on purpose
    Skipped,
    /// It could not be read
    Failed,
    /// Every note
    All,
}

impl FileStateArg {
    /// The word the tool takes.
    pub fn word(self) -> &'static str {
        match self {
            Self::Indexed => "indexed",
            Self::Empty => "empty",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::All => "all",
        }
    }
}

/// A plan file and what it needs.
#[derive(Debug, Args)]
pub struct PlanFile {
    /// The plan, a JSON file; `-` for standard input
    pub file: String,
    /// Answer a context request: KIND=JSON (repeatable)
    #[arg(long, value_name = "KIND=JSON")]
    pub context: Vec<String>,
}

/// A person's approval.
#[derive(Debug, Clone, Default, Args)]
pub struct Approval {
    /// Approve without being asked
    #[arg(long, short)]
    pub yes: bool,
    /// Run only if the preview still has this hash (from `plan dry-run`)
    #[arg(long, value_name = "HASH")]
    pub preview_hash: Option<String>,
}

/// `toolyard plan`.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Check a plan without running anything
    Check {
        /// The plan, a JSON file; `-` for standard input
        file: String,
    },
    /// Predict a plan's effects on an overlay, with a unified diff
    DryRun(PlanFile),
    /// Run a plan
    Run {
        /// The plan
        #[command(flatten)]
        plan: PlanFile,
        /// The approval
        #[command(flatten)]
        approval: Approval,
        /// Start it and return at once; needs a running Toolyard
        #[arg(long)]
        detach: bool,
        /// Version of whatever wrote the plan, kept on every call
        #[arg(long, value_name = "V")]
        planner_version: Option<String>,
    },
    /// Resolve a run's arguments again and demand the recorded hashes; calls no tool
    Replay {
        /// The run
        run: String,
    },
    /// Start a new run from a step of another, taking over what came before
    Fork {
        /// The run
        run: String,
        /// The step to begin with
        #[arg(long, value_name = "STEP")]
        from: String,
        /// An edited plan to go on with
        #[arg(long, value_name = "FILE")]
        edit: Option<String>,
        /// Answer a context request: KIND=JSON (repeatable)
        #[arg(long, value_name = "KIND=JSON")]
        context: Vec<String>,
        /// The approval
        #[command(flatten)]
        approval: Approval,
    },
    /// Take a run back with inverse calls, guarded by etags
    Undo {
        /// The run
        run: String,
        /// Show what would be done
        #[arg(long)]
        dry_run: bool,
        /// Take back what can be, even if some calls cannot
        #[arg(long)]
        partial: bool,
        /// The approval
        #[command(flatten)]
        approval: Approval,
    },
}

/// How a person settles a call in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SettleChoice {
    /// It happened
    AssumeDone,
    /// It did not; do it now
    Rerun,
    /// End the run
    Abort,
}

/// `toolyard runs`.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// List runs, newest first
    List {
        /// Only this state: pending, running, paused, finished, failed, cancelled (repeatable)
        #[arg(long)]
        status: Vec<String>,
        /// Only `plan` or `call`
        #[arg(long)]
        kind: Option<String>,
        /// At most this many
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: usize,
        /// Runs before this one: the next page
        #[arg(long, value_name = "RUN")]
        before: Option<String>,
    },
    /// Show one run: its calls and results
    Show {
        /// The run
        run: String,
    },
    /// Print a run as the messages of a session: calls and results, with what a script called after the script
    Transcript {
        /// The run
        run: String,
    },
    /// Write run.json, calls.jsonl, results.jsonl and events.jsonl
    Export {
        /// The run
        run: String,
        /// The folder, made if missing
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Prove that a run's record was not edited, shortened or reordered
    Verify {
        /// The run; without one, the whole ledger
        run: Option<String>,
    },
    /// Take a run up again after a crash, or after a call in doubt
    Resume {
        /// The run
        run: String,
        /// The call in doubt happened
        #[arg(long, conflicts_with_all = ["rerun", "abort"])]
        assume_done: bool,
        /// The call in doubt did not happen; do it now
        #[arg(long, conflicts_with = "abort")]
        rerun: bool,
        /// End the run
        #[arg(long)]
        abort: bool,
        /// Approve it again where the policy changed
        #[arg(long, short)]
        yes: bool,
    },
    /// Stop a run
    Cancel {
        /// The run
        run: String,
    },
}

/// Where a gateway is and how to get in.
#[derive(Debug, Args)]
pub struct GatewayTarget {
    /// Where it listens [default: the address in config.toml]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// The token [default: the one in config.toml or state/token]
    #[arg(long, env = "TOOLYARD_TOKEN", value_name = "T", hide_env_values = true)]
    pub token: Option<String>,
    /// Sign with this machine's device key, made at first use; the token that the gateway then gives is kept and used
    #[arg(long)]
    pub device: bool,
    /// Believe this certificate (PEM) beside those the system believes, for wss://
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// How long connecting and answering may take
    #[arg(long, default_value_t = 30_000, value_name = "MS")]
    pub timeout: u64,
}

/// `toolyard gateway`.
#[derive(Debug, Subcommand)]
pub enum GatewayCommand {
    /// Call one method and print its payload
    Call {
        /// The method, for example health or tools.invoke
        method: String,
        /// Its parameters as a JSON object; `@FILE` reads a file, `-` standard input
        #[arg(long, default_value = "{}", value_name = "JSON")]
        params: String,
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Find out whether a gateway answers
    Probe {
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
}

/// How a session is opened for Claude Code.
#[derive(Debug, Args)]
pub struct BridgeOpening {
    /// Where the session's messages come from, told to Claude
    #[arg(long, value_name = "NAME")]
    pub source_channel: Option<String>,
    /// The chat that the session serves, told to Claude
    #[arg(long, value_name = "ID")]
    pub chat_id: Option<String>,
    /// Who may answer permission questions in words ("yes abxyz"), by user id (repeatable)
    #[arg(long, value_name = "USER")]
    pub allow_sender: Vec<String>,
}

impl BridgeOpening {
    /// The parameters of `bridge.open`.
    pub fn params(&self, session: &str) -> serde_json::Value {
        serde_json::json!({
            "sessionKey": session, "sourceChannel": self.source_channel, "chatId": self.chat_id,
            "allowedSenders": self.allow_sender,
        })
    }
}

/// A person's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Verdict {
    /// Yes
    Allow,
    /// No
    Deny,
}

/// `toolyard bridge`.
#[derive(Debug, Subcommand)]
pub enum BridgeCommand {
    /// Prepare a session; prints the environment and the MCP configuration for Claude Code
    Open {
        /// The session's key
        #[arg(long, value_name = "KEY")]
        session: String,
        /// How
        #[command(flatten)]
        opening: BridgeOpening,
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Close a session: its token is worth nothing, and its Claude Code is disconnected
    Close {
        /// The session's key
        #[arg(long, value_name = "KEY")]
        session: String,
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Send Claude a message; it waits while Claude Code is not connected
    Inbound {
        /// The session's key
        #[arg(long, value_name = "KEY")]
        session: String,
        /// The text; `-` for standard input
        content: String,
        /// Who, where and when, as a JSON object: chat_id, message_id, user, user_id, ts, source_channel, attachments
        #[arg(long, default_value = "{}", value_name = "JSON")]
        meta: String,
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Print what Claude said
    Outbound {
        /// The session's key
        #[arg(long, value_name = "KEY")]
        session: String,
        /// Only what came after this number
        #[arg(long, default_value_t = 0, value_name = "SEQ")]
        after: u64,
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Answer a permission question of Claude Code's
    Reply {
        /// The session's key
        #[arg(long, value_name = "KEY")]
        session: String,
        /// The question's id, five letters
        request_id: String,
        /// The answer
        verdict: Verdict,
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Show the sessions: connected or not, messages that wait, open questions
    Status {
        /// Only this session
        #[arg(long, value_name = "KEY")]
        session: Option<String>,
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
}

/// `toolyard claude`.
#[derive(Debug, Subcommand)]
pub enum ClaudeCommand {
    /// Start Claude Code joined to a session, and stop it with this command
    Start(ClaudeStart),
}

/// `toolyard claude start`.
#[derive(Debug, Args)]
pub struct ClaudeStart {
    /// The session's key, made if it is new
    #[arg(long, value_name = "KEY")]
    pub session: String,
    /// How Claude Code takes channel events: `server:toolyard` (development), `plugin:NAME@MARKETPLACE`, or `none`
    #[arg(long, value_name = "SPEC", default_value = "server:toolyard")]
    pub channel: Vec<String>,
    /// The Claude Code program
    #[arg(long, env = "TOOLYARD_CLAUDE", default_value = "claude", value_name = "PATH")]
    pub claude: PathBuf,
    /// How the session is opened
    #[command(flatten)]
    pub opening: BridgeOpening,
    /// Where the gateway is
    #[command(flatten)]
    pub target: GatewayTarget,
    /// More arguments for Claude Code, after `--`
    #[arg(last = true)]
    pub args: Vec<String>,
}

/// `toolyard claude-plugin`.
#[derive(Debug, Args)]
pub struct ClaudePluginArgs {
    /// Believe this certificate (PEM) beside those the system believes, for a bridge behind wss://
    #[arg(long, env = "TOOLYARD_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

/// `toolyard devices`.
#[derive(Debug, Subcommand)]
pub enum DevicesCommand {
    /// List paired devices and those that wait
    List,
    /// Let a device in
    Approve {
        /// The request's id, or the beginning of the device's
        request: String,
    },
    /// Turn a device away
    Reject {
        /// The request's id, or the beginning of the device's
        request: String,
    },
    /// Forget a device: its token is worth nothing and its connections are closed
    Revoke {
        /// The device's id, or its beginning (8 characters or more)
        device: String,
    },
}

/// `toolyard ctx`.
#[derive(Debug, Subcommand)]
pub enum CtxCommand {
    /// List what lies in a folder
    Ls {
        /// The folder
        #[arg(default_value = "viking://")]
        uri: String,
        /// Everything below it as well
        #[arg(long, short)]
        recursive: bool,
        /// Hidden files as well
        #[arg(long, short)]
        all: bool,
        /// At most so many entries
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: usize,
    },
    /// List a folder as a tree, with what each folder is about
    Tree {
        /// The folder
        #[arg(default_value = "viking://")]
        uri: String,
        /// How far down
        #[arg(long, value_name = "N", default_value_t = 3)]
        depth: usize,
    },
    /// Print a file
    Read {
        /// The file
        uri: String,
        /// Lines left out at the beginning
        #[arg(long, value_name = "N", default_value_t = 0)]
        offset: usize,
        /// Lines at most; -1 for all
        #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
        limit: i64,
    },
    /// Search by words and meaning
    Find {
        /// In words
        query: String,
        /// Only below here
        #[arg(long, value_name = "URI")]
        uri: Option<String>,
        /// Only memory, resource or skill
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        /// At most so many results
        #[arg(long, value_name = "N", default_value_t = 10)]
        limit: usize,
    },
    /// Search lines by a regular expression
    Grep {
        /// The expression
        pattern: String,
        /// Only below here
        #[arg(long, value_name = "URI", default_value = "viking://resources")]
        uri: String,
        /// Letters in either case
        #[arg(long, short)]
        ignore_case: bool,
    },
    /// Bring in a file, folder, archive, web page or Git repository
    Add {
        /// A path or an address
        source: String,
        /// Exactly here
        #[arg(long, value_name = "URI", conflicts_with = "parent")]
        to: Option<String>,
        /// Below here
        #[arg(long, value_name = "URI")]
        parent: Option<String>,
        /// Why; remembered
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Look again every so many minutes
        #[arg(long, value_name = "MINUTES")]
        watch: Option<f64>,
    },
    /// Remove a file, or a folder with everything in it
    Rm {
        /// What
        uri: String,
        /// A folder with everything in it
        #[arg(long, short)]
        recursive: bool,
    },
    /// List sessions, or show one
    Sessions {
        /// The session's id
        id: Option<String>,
    },
    /// Show what was recalled, the newest first
    Trace {
        /// Only this one
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        /// Only of auto_recall, memory_recall, ov_search or ov_archive_search
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
        /// Only of this session
        #[arg(long, value_name = "KEY")]
        session: Option<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Run a slash command: /ov-search, /add-resource, /add-skill, /ov-query-config, /ov-recall-trace
    Command {
        /// The whole line
        line: String,
        /// In this session
        #[arg(long, value_name = "KEY", default_value = "agent:main:main")]
        session: String,
    },
}

/// `toolyard config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the configuration as resolved, secrets hidden
    Show,
    /// Check the configuration file
    Check,
    /// Print the reference of every key, in Markdown
    #[command(hide = true)]
    Reference,
}

/// `toolyard explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The code, for example POLICY_DENIED; without one, all codes are listed
    pub code: Option<String>,
}
