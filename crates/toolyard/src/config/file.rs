//! What `config.toml` may say. Every key is documented on its type.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};
use toolyard_catalog::PolicyConfig;
use toolyard_context::ContextConfig;
use toolyard_knowledge::KnowledgeConfig;
use toolyard_mcp::{
    ServerConfig,
    server::{ClientApprovals, HttpClientApprovals},
};
use toolyard_plugins::PluginsConfig;
use toolyard_toolsearch::ToolSearchConfig;

/// `config.toml`. Every key is optional; unknown keys are errors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// The folder of notes.
    pub vault: VaultConfig,
    /// Who may call what.
    pub policy: PolicyConfig,
    /// How models are shown the tools.
    pub tools: ToolsConfig,
    /// Notes that can be asked: what is indexed, how it is embedded, what is held back.
    pub knowledge: KnowledgeConfig,
    /// The program that keeps the index of the notes.
    pub index: IndexProgramConfig,
    /// The viking:// context store: memories, resources, skills and sessions.
    pub context: ContextConfig,
    /// What holds for all agents.
    pub agents: AgentsConfig,
    /// Where clients connect.
    pub gateway: GatewayConfig,
    /// The bridge to Claude Code.
    pub bridge: BridgeConfig,
    /// The Model Context Protocol: what clients are shown.
    pub mcp: McpConfig,
    /// Plugins.
    pub plugins: PluginsConfig,
    /// How calls run.
    pub engine: EngineConfig,
    /// What is kept of each run beside the store.
    pub record: RecordConfig,
    /// How long the record of runs is kept.
    pub retention: RetentionConfig,
    /// What is logged, to standard error.
    pub log: LogConfig,
}

/// How long the record of runs is kept. What is removed is noted in the ledger, which keeps the proof that it existed. Without
/// a limit everything is kept. Applied once an hour while Toolyard runs, and by `toolyard prune`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RetentionConfig {
    /// Runs that ended longer ago than this are removed: a number and `m`, `h`, `d` or `w`, such as `30d`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than: Option<String>,
    /// While the store uses more megabytes than this, the oldest ended runs are removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_megabytes: Option<u64>,
}

/// The folder of notes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VaultConfig {
    /// The folder; `~/` stands for the user's home. Unset means `vault` inside TOOLYARD_HOME.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

/// The program that keeps the index of the notes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IndexProgramConfig {
    /// The same as `knowledge.index.program`, which goes before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// How models are shown the tools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ToolsConfig {
    /// Experimental. Whether and how models find tools by search instead of being shown them all: `true` (code mode),
    /// `false`, or a table with `mode` (`code`, `tools`, `directory`), `alwaysVisible` (tools and groups that are shown in
    /// every mode), `codeTimeoutMs` (1000 to 60000), `searchDefaultLimit` and `maxSearchLimit` (up to 50). See
    /// docs/tool-search.md.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_search: Option<ToolSearchConfig>,
}

/// What holds for all agents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentsConfig {
    /// Unless an agent has its own.
    pub defaults: AgentDefaults,
}

/// Unless an agent has its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentDefaults {
    /// What may change.
    pub experimental: ExperimentalConfig,
}

/// What may change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExperimentalConfig {
    /// For small local models: where `tools.toolSearch` is not set, models find tools by search in `tools` mode with
    /// short answers (5 tools, at most 10), and the tools `browser`, `cron` and `message` are denied.
    pub local_model_lean: bool,
}

/// Where clients connect.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// Address to listen on. Anything beyond loopback needs a token of at least 16 characters.
    pub host: IpAddr,
    /// Port to listen on; 0 takes a free one.
    pub port: u16,
    /// The token clients must show. Unset means the one in `state/token`, made at first start.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "value"))]
    pub token: Option<String>,
    /// Browser origins that may connect beside the gateway's own, for example `https://console.example.org`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_origins: Vec<String>,
    /// Host names, beside localhost, by which clients reach a gateway that listens on loopback.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_hosts: Vec<String>,
    /// Addresses of proxies whose forwarding headers are believed. From anybody else they are refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trusted_proxies: Vec<IpAddr>,
    /// Whether a client beyond loopback needs a paired device (`toolyard devices`) beside the token.
    pub require_device: bool,
    /// Milliseconds between two `tick` events; 1000 to 600000.
    #[schemars(range(min = 1000, max = 600_000))]
    pub tick_interval_ms: u64,
    /// How wrong credentials are slowed down.
    pub rate_limit: RateLimitConfig,
    /// TLS, when both files are set.
    pub tls: TlsConfig,
}

impl std::fmt::Debug for GatewayConfig {
    /// Without what may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayConfig").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            host: IpAddr::from([127, 0, 0, 1]),
            port: 18789,
            token: None,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            require_device: true,
            tick_interval_ms: 30_000,
            rate_limit: RateLimitConfig::default(),
            tls: TlsConfig::default(),
        }
    }
}

/// How wrong credentials are slowed down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RateLimitConfig {
    /// Wrong credentials of one address within the window before it is locked out.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_attempts: u32,
    /// The window, in milliseconds.
    #[schemars(range(min = 1000, max = 86_400_000))]
    pub window_ms: u64,
    /// How long the lockout lasts, in milliseconds.
    #[schemars(range(min = 1000, max = 86_400_000))]
    pub lockout_ms: u64,
    /// Whether clients on this machine are exempt; browsers never are.
    pub exempt_loopback: bool,
}

impl Default for RateLimitConfig {
    fn default() -> Self {
        Self { max_attempts: 10, window_ms: 60_000, lockout_ms: 300_000, exempt_loopback: true }
    }
}

/// Certificate and key, both PEM files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TlsConfig {
    /// The certificate chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// The private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "file"))]
    pub key_file: Option<PathBuf>,
}

/// The bridge to Claude Code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BridgeConfig {
    /// Where Claude Code's plugin finds the bridge, `ws://HOST:PORT/bridge`. Unset means where the gateway listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "url"))]
    pub url: Option<String>,
    /// Messages that wait for Claude in each session; then the oldest is dropped with a warning.
    #[schemars(range(min = 1, max = 10_000))]
    pub buffer_messages: usize,
    /// Bytes that wait for Claude in each session; then the oldest messages are dropped with a warning.
    #[schemars(range(min = 1024, max = 268_435_456))]
    pub buffer_bytes: usize,
    /// Who may answer permission questions in words ("yes abxyz"), by user id, in every session.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_senders: Vec<String>,
}

impl Default for BridgeConfig {
    fn default() -> Self {
        Self { url: None, buffer_messages: 100, buffer_bytes: 4 << 20, allowed_senders: Vec::new() }
    }
}

/// The Model Context Protocol: what clients are shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct McpConfig {
    /// The agent on whose behalf MCP clients act; policy layers for agents go by it.
    pub agent: String,
    /// `search`: tools are shown as `tools.toolSearch` says. `direct`: every tool is shown, whatever it says.
    pub exposure: Exposure,
    /// Whether the user of a client that starts `toolyard mcp` may approve that client's calls. `off`: no. `ask`: a
    /// client that can show forms is asked. `trust`: the client asks its own user before it calls a tool, as Claude Code
    /// does, so its call counts as approved. Either holds for one call and is recorded as the client's word.
    pub client_approvals: ClientApprovals,
    /// The same for clients over HTTP: `off` or `ask`.
    pub http_client_approvals: HttpClientApprovals,
    /// Folders of skills (each a folder with a SKILL.md) that are offered as prompts, beside `skills` in TOOLYARD_HOME.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<PathBuf>,
    /// Upstream MCP servers by name, each a table with a `command` to start or a `url`. Their tools are called
    /// `<name>__<tool>`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub servers: BTreeMap<String, ServerConfig>,
}

impl Default for McpConfig {
    fn default() -> Self {
        Self {
            agent: "main".to_owned(),
            exposure: Exposure::Search,
            client_approvals: ClientApprovals::Off,
            http_client_approvals: HttpClientApprovals::Off,
            skills: Vec::new(),
            servers: BTreeMap::new(),
        }
    }
}

/// How MCP clients are shown the tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Exposure {
    /// As `tools.toolSearch` says.
    #[default]
    Search,
    /// All of them.
    Direct,
}

/// How calls run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EngineConfig {
    /// Milliseconds a stopped call gets to clean up.
    #[schemars(range(max = 60_000))]
    pub grace_ms: u64,
    /// Milliseconds a call that did not stop is listened to, for its late answer.
    #[schemars(range(max = 600_000))]
    pub late_window_ms: u64,
    /// Calls under way at once, over all runs.
    #[schemars(range(min = 1, max = 65_536))]
    pub max_calls: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { grace_ms: 2000, late_window_ms: 60_000, max_calls: 1024 }
    }
}

/// Which runs get the four files of the specification under `runs/`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunFilesMode {
    /// Every run.
    #[default]
    All,
    /// Plans only.
    Plans,
    /// None; `toolyard runs export` writes them when asked.
    None,
}

/// What is kept of each run beside the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RecordConfig {
    /// Which runs get `run.json`, `calls.jsonl`, `results.jsonl` and `events.jsonl` under `runs/`: `all`, `plans` or
    /// `none`. They are written in the background from the store, which stays the truth; `toolyard runs export` writes
    /// them at any time.
    pub files: RunFilesMode,
    /// How many folders of single calls are kept; the oldest go first. Plans' folders are kept.
    pub keep_call_folders: usize,
    /// Where signed heads of the ledger are kept beside `state/heads.jsonl`, so that a rollback of this machine is found:
    /// the path of a file (a line is added), `git:` and the folder of a repository (a commit is made), or an address that
    /// begins with `https://` or `http://` (a POST is sent, which ntfy understands).
    pub heads: Vec<String>,
    /// At most one head in this many seconds goes to each of these places.
    pub heads_every_seconds: u64,
}

impl Default for RecordConfig {
    fn default() -> Self {
        Self { files: RunFilesMode::All, keep_call_folders: 1000, heads: Vec::new(), heads_every_seconds: 60 }
    }
}

/// What is logged, to standard error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LogConfig {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `toolyard_engine=debug,warn`.
    pub level: String,
    /// `text` or `json`.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "warn".to_owned(), format: LogFormat::Text }
    }
}
