//! What `config.toml` may say. Every key is documented on its type.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};
use toolyard_catalog::{PolicyConfig, native::NativePreset};
use toolyard_context::ContextConfig;
use toolyard_hooks::{SnapshotLimits, SnapshotRetention};
use toolyard_knowledge::KnowledgeConfig;
use toolyard_mcp::{
    ServerConfig,
    server::{ClientApprovals, HttpClientApprovals},
};
use toolyard_notify::NotifyConfig;
use toolyard_plugins::PluginsConfig;
use toolyard_toolsearch::ToolSearchConfig;

/// `config.toml`. Every key is optional; unknown keys are errors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// The folder of notes.
    pub vault: VaultConfig,
    /// Which tools may be called, by whom.
    pub policy: PolicyConfig,
    /// How tools are shown to models.
    pub tools: ToolsConfig,
    /// The index of the notes: what is indexed, how it is embedded, and what is withheld.
    pub knowledge: KnowledgeConfig,
    /// The program that keeps the index of the notes.
    pub index: IndexProgramConfig,
    /// The viking:// context store: memories, resources, skills and sessions.
    pub context: ContextConfig,
    /// Settings for agents.
    pub agents: AgentsConfig,
    /// The Gateway, to which clients connect.
    pub gateway: GatewayConfig,
    /// The bridge to Claude Code.
    pub bridge: BridgeConfig,
    /// The Model Context Protocol, as a server and as a client.
    pub mcp: McpConfig,
    /// Hooks of coding agents.
    pub hooks: HooksConfig,
    /// Notifications to a person who is not looking at the console. See docs/guide/notify.md.
    pub notify: NotifyConfig,
    /// Plugins.
    pub plugins: PluginsConfig,
    /// How calls run.
    pub engine: EngineConfig,
    /// Which files are written for each run, in addition to the store.
    pub record: RecordConfig,
    /// How long the record of runs is kept.
    pub retention: RetentionConfig,
    /// Where state is kept: on this machine's disk, or in a PostgreSQL that several nodes share.
    pub store: StoreConfig,
    /// This node of a cluster.
    pub node: NodeConfig,
    /// What is logged, to standard error.
    pub log: LogConfig,
}

/// Where state is kept. Without `url` it is a database in the folder `state` of the home.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StoreConfig {
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with `sslmode` (`disable`, `prefer`, `require`, `verify-full`)
    /// and `sslrootcert` as in libpq. All Toolyards with the same URL are nodes of one cluster. The variable
    /// `TOOLYARD_STORE_URL` takes precedence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "url"))]
    pub url: Option<String>,
    /// `s3://BUCKET/PREFIX`: where blobs over 64 KiB are kept. Endpoint, region and credentials come from the
    /// environment (`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, ...). Unset means in the database. Needs
    /// `store.url`, and is the same on all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// Whether a server that replicates asynchronously is accepted. A failover of such a server loses calls that were
    /// acknowledged.
    pub allow_async_replication: bool,
    /// A private file with 64 hexadecimal digits, the same on all nodes: the secret that protects the cluster's keys.
    /// Unset means that the first node keeps one in the database, where everybody who can read the database can read
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "file"))]
    pub secret_file: Option<PathBuf>,
}

/// This node of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeConfig {
    /// Its name, different from the other nodes' names: letters, digits, `-`, `_` and `.`, at most 64. Unset means the
    /// machine's name and a hash of the home.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where the other nodes reach this one: `http://HOST:PORT` or `https://HOST:PORT`. Unset means the address on
    /// which it listens, which others cannot use if it is `0.0.0.0` or behind address translation. Requests may name its
    /// host, as if it were in `gateway.allowedHosts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// How long the record of runs is kept. What is removed is noted in the ledger, which keeps the proof that it existed.
/// Without a limit everything is kept. Applied once an hour while Toolyard runs, and by `toolyard prune`.
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
    /// An alias for `knowledge.index.program`, which takes precedence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// How tools are shown to models.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ToolsConfig {
    /// Experimental. Whether models search for tools instead of being shown all of them: `true` (code mode), `false`,
    /// or a table with `mode` (`code`, `tools`, `directory`), `alwaysVisible` (tools and groups that are shown in every
    /// mode), `codeTimeoutMs` (1000 to 60000), `searchDefaultLimit` and `maxSearchLimit` (up to 50). See
    /// docs/guide/tool-search.md.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_search: Option<ToolSearchConfig>,
}

/// Settings for agents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentsConfig {
    /// Defaults for all agents.
    pub defaults: AgentDefaults,
}

/// Defaults for all agents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentDefaults {
    /// Experimental settings, which may change.
    pub experimental: ExperimentalConfig,
}

/// Experimental settings, which may change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExperimentalConfig {
    /// For small local models. If `tools.toolSearch` is not set, this turns on its `tools` mode with short answers (5
    /// tools, at most 10) and denies the tools `browser`, `cron` and `message`.
    pub local_model_lean: bool,
}

/// The Gateway, to which clients connect.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// The address to listen on. Any address other than loopback needs a token of at least 16 characters.
    pub host: IpAddr,
    /// The port to listen on; 0 chooses a free one.
    pub port: u16,
    /// The token that clients must present. Unset: the one in `state/token`, created at the first start.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "value"))]
    pub token: Option<String>,
    /// The address at which browsers reach the console, for example `https://yard.example.org`, where it is not the one
    /// that Toolyard listens on: behind a proxy, or for a phone. `toolyard console` prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// Browser origins that may connect in addition to the gateway's own, for example `https://console.example.org`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_origins: Vec<String>,
    /// Host names, in addition to localhost, that clients may use for a gateway that listens on loopback.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_hosts: Vec<String>,
    /// Addresses of proxies whose forwarding headers are trusted. Forwarding headers from other addresses are refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trusted_proxies: Vec<IpAddr>,
    /// Whether a client on another machine needs a paired device (`toolyard devices`) in addition to the token.
    pub require_device: bool,
    /// Milliseconds between two `tick` events; 1000 to 600000.
    #[schemars(range(min = 1000, max = 600_000))]
    pub tick_interval_ms: u64,
    /// Rate limit for wrong credentials.
    pub rate_limit: RateLimitConfig,
    /// TLS. It is on if both files are set.
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
            public_url: None,
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

/// Rate limit for wrong credentials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RateLimitConfig {
    /// Number of wrong credentials from one address within the window after which it is locked out.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_attempts: u32,
    /// The window, in milliseconds.
    #[schemars(range(min = 1000, max = 86_400_000))]
    pub window_ms: u64,
    /// How long the lockout lasts, in milliseconds.
    #[schemars(range(min = 1000, max = 86_400_000))]
    pub lockout_ms: u64,
    /// Whether clients on this machine are exempt. Browsers are never exempt.
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
    /// The address of the bridge for Claude Code's plugin, `ws://HOST:PORT/bridge`. Unset: the gateway's own address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "url"))]
    pub url: Option<String>,
    /// Maximum number of messages that wait for Claude in each session. Beyond it, the oldest is dropped with a
    /// warning.
    #[schemars(range(min = 1, max = 10_000))]
    pub buffer_messages: usize,
    /// Maximum number of bytes that wait for Claude in each session. Beyond it, the oldest messages are dropped with a
    /// warning.
    #[schemars(range(min = 1024, max = 268_435_456))]
    pub buffer_bytes: usize,
    /// Ids of users who may answer permission questions in words ("yes abxyz"), in every session.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_senders: Vec<String>,
}

impl Default for BridgeConfig {
    fn default() -> Self {
        Self { url: None, buffer_messages: 100, buffer_bytes: 4 << 20, allowed_senders: Vec::new() }
    }
}

/// The Model Context Protocol, as a server and as a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct McpConfig {
    /// The agent on whose behalf MCP clients act. The policy's layers for agents use this name.
    pub agent: String,
    /// `search`: `tools.toolSearch` determines which tools are listed. `direct`: every tool is listed.
    pub exposure: Exposure,
    /// Who approves what the policy asks about, for clients that start `toolyard mcp`. `client`: the client asks its
    /// own user before it calls a tool, as Claude Code does, so its calls count as approved. `toolyard`: the console, a
    /// phone or a channel. `policy`: nobody is asked; what the policy would ask about is refused. Unset:
    /// `clientApprovals` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvals: Option<ApprovalsBy>,
    /// Whether the user of a client that starts `toolyard mcp` may approve that client's calls. `off`: no. `ask`: a
    /// client that can show forms is asked. `trust`: the client asks its own user before it calls a tool, as Claude
    /// Code does, so its calls count as approved. An approval is valid for one call, and the record says that the
    /// client reported it.
    pub client_approvals: ClientApprovals,
    /// The same for clients over HTTP: `off` or `ask`.
    pub http_client_approvals: HttpClientApprovals,
    /// Folders of skills (each a folder with a SKILL.md) that are offered as prompts, in addition to `skills` in
    /// TOOLYARD_HOME.
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
            approvals: None,
            client_approvals: ClientApprovals::Off,
            http_client_approvals: HttpClientApprovals::Off,
            skills: Vec::new(),
            servers: BTreeMap::new(),
        }
    }
}

/// Who approves what the policy asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalsBy {
    /// The client's own prompt.
    Client,
    /// Toolyard: the console, a phone or a channel.
    Toolyard,
    /// Nobody: what the policy asks about is refused.
    Policy,
}

impl McpConfig {
    /// How a client on standard input and output takes part in approvals.
    pub fn client_approvals(&self) -> ClientApprovals {
        match self.approvals {
            Some(ApprovalsBy::Client) => ClientApprovals::Trust,
            Some(ApprovalsBy::Toolyard) => ClientApprovals::Off,
            Some(ApprovalsBy::Policy) => ClientApprovals::Refuse,
            None => self.client_approvals,
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

/// Hooks of coding agents: what happens to calls of their own tools. See docs/guide/hooks.md.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HooksConfig {
    /// `observe`: every call runs and is recorded. `careful`: a person is asked about calls that destroy something,
    /// leave the project or cannot be classified. `locked`: reads run, a person is asked about changes of the project,
    /// everything else is refused.
    pub preset: NativePreset,
    /// Snapshots of projects before and after commands, with which a command is undone.
    pub snapshots: SnapshotsConfig,
}

/// Snapshots of projects in which coding agents run commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SnapshotsConfig {
    /// Maximum number of seconds for a snapshot. If it takes longer, the command cannot be undone.
    #[schemars(range(min = 1, max = 60))]
    pub max_seconds: u64,
    /// Maximum number of new or changed files in one snapshot.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_files: usize,
    /// Maximum number of megabytes of new or changed files in one snapshot.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_megabytes: u64,
    /// Days after which the snapshots of a project in which no agent ran a command are removed.
    #[schemars(range(min = 1, max = 36_500))]
    pub keep_days: u64,
    /// While the snapshots of all projects take more megabytes than this, those of the project that was used least
    /// recently are removed. Toolyard applies `keepDays` and `keepMegabytes` once an hour while it runs, and when
    /// `toolyard prune` runs.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub keep_megabytes: u64,
}

impl Default for SnapshotsConfig {
    fn default() -> Self {
        Self { max_seconds: 8, max_files: 20_000, max_megabytes: 512, keep_days: 14, keep_megabytes: 4096 }
    }
}

impl SnapshotsConfig {
    /// What one snapshot may take.
    pub(crate) fn limits(&self) -> SnapshotLimits {
        SnapshotLimits {
            time: Duration::from_secs(self.max_seconds.max(1)),
            files: self.max_files,
            bytes: self.max_megabytes.saturating_mul(1 << 20),
        }
    }

    /// How long snapshots are kept.
    pub(crate) fn retention(&self) -> SnapshotRetention {
        SnapshotRetention {
            unused_for: Some(Duration::from_secs(self.keep_days.saturating_mul(86_400))),
            max_bytes: Some(self.keep_megabytes.saturating_mul(1 << 20)),
        }
    }
}

/// How calls run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EngineConfig {
    /// Milliseconds that a cancelled call has to clean up.
    #[schemars(range(max = 60_000))]
    pub grace_ms: u64,
    /// Milliseconds during which the late answer of an abandoned call is still accepted.
    #[schemars(range(max = 600_000))]
    pub late_window_ms: u64,
    /// Maximum number of calls in flight, over all runs.
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

/// Which files are written for each run, in addition to the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RecordConfig {
    /// Which runs get `run.json`, `calls.jsonl`, `results.jsonl` and `events.jsonl` under `runs/`: `all`, `plans` or
    /// `none`. They are copies of the store's records, written in the background; `toolyard runs export` writes them at
    /// any time.
    pub files: RunFilesMode,
    /// Number of folders of single calls that are kept; the oldest are removed first. Folders of plans are always kept.
    pub keep_call_folders: usize,
    /// Further places for signed heads of the ledger, in addition to `state/heads.jsonl`, with which a rollback of this
    /// machine is found: the path of a file (a line is added), `git:` and the folder of a repository (a commit is
    /// made), or an address that begins with `https://` or `http://` (a POST is sent, which ntfy understands).
    // The topic of an ntfy address is all that is needed to read it.
    #[schemars(extend("x-secret" = "value"))]
    pub heads: Vec<String>,
    /// Minimum number of seconds between two heads that are sent to the same place.
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
