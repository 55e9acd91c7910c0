//! Configuration in stages: what the file says ([`Config`]), then what it means with the command line on top
//! ([`Resolved`]). Every key is documented on its type; `docs/configuration.md` is generated from there.

use crate::{cli::Global, home::Home};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};
use toolyard_catalog::{Policy, PolicyConfig};
use toolyard_engine::EngineOptions;
use toolyard_knowledge::KnowledgeConfig;
use toolyard_mcp::ServerConfig;
use toolyard_plugins::PluginsConfig;
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_toolsearch::ToolSearchConfig;
use toolyard_viking::ContextConfig;

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
    /// What is logged, to standard error.
    pub log: LogConfig,
}

/// The folder of notes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VaultConfig {
    /// The folder; `~/` stands for the user's home. Unset means `vault` inside TOOLYARD_HOME.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

/// How models are shown the tools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ToolsConfig {
    /// Whether and how models find tools by search instead of being shown them all: `true` (code mode), `false`, or a
    /// table with `mode` (`code`, `tools`, `directory`), `codeTimeoutMs` (1000 to 60000), `searchDefaultLimit` and
    /// `maxSearchLimit` (up to 50). See docs/tool-search.md.
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

/// Tools that small local models do better without.
const LEAN_REMOVES: [&str; 3] = ["browser", "cron", "message"];

/// Where clients connect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// Address to listen on. Anything beyond loopback needs a token of at least 16 characters.
    pub host: IpAddr,
    /// Port to listen on; 0 takes a free one.
    pub port: u16,
    /// The token clients must show. Unset means the one in `state/token`, made at first start.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    pub key_file: Option<PathBuf>,
}

/// The bridge to Claude Code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BridgeConfig {
    /// Where Claude Code's plugin finds the bridge, `ws://HOST:PORT/bridge`. Unset means where the gateway listens.
    #[serde(skip_serializing_if = "Option::is_none")]
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
        let servers = BTreeMap::new();
        Self { agent: "main".to_owned(), exposure: Exposure::Search, skills: Vec::new(), servers }
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
}

impl Default for RecordConfig {
    fn default() -> Self {
        Self { files: RunFilesMode::All, keep_call_folders: 1000 }
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

/// What the program means to do, with every question answered.
pub struct Resolved {
    /// Where state lies.
    pub home: Home,
    /// The vault.
    pub vault: PathBuf,
    /// Whether the vault was named on the command line or in the environment.
    pub vault_was_given: bool,
    /// The compiled policy.
    pub policy: Policy,
    /// The file, for showing.
    pub config: Config,
}

/// Reads `config.toml`; a missing file means the defaults.
pub fn load(home: &Home) -> Result<Config, Failure> {
    let path = home.config();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Config::default()),
        Err(e) => return Err(invalid(format!("{} cannot be read: {e}", path.display()))),
    };
    toml::from_str(&text).map_err(|e| invalid(format!("{}: {}", path.display(), e.to_string().trim_end())))
}

/// Works out what the configuration means, with the command line on top.
pub fn resolve(global: &Global) -> Result<Resolved, Failure> {
    let home = Home::resolve(global.home.as_deref()).map_err(|e| invalid(format!("{e:#}")))?;
    let config = load(&home)?;
    check_numbers(&config)?;
    let mut rules = config.policy.clone();
    if config.is_lean() {
        rules.deny.extend(LEAN_REMOVES.map(str::to_owned));
    }
    config.tool_search().admit_controls(&mut rules);
    if config.context.enabled && !config.context.ask_before_writing {
        // What an agent remembers changes nothing but its own memory; whoever wants to be asked says so.
        rules.approval.allowed_tools.extend(toolyard_viking::writing_tools().into_iter().map(str::to_owned));
    }
    let policy = Policy::compile(&rules).map_err(|e| invalid(format!("{}: policy: {e}", home.config().display())))?;
    let vault_was_given = global.vault.is_some();
    let vault = match (&global.vault, &config.vault.path) {
        (Some(path), _) => path.clone(),
        (None, Some(path)) => expand(path),
        (None, None) => home.default_vault(),
    };
    let vault = std::path::absolute(&vault).map_err(|e| invalid(format!("vault {}: {e}", vault.display())))?;
    Ok(Resolved { home, vault, vault_was_given, policy, config })
}

fn check_numbers(config: &Config) -> Result<(), Failure> {
    let e = &config.engine;
    let range = |key: &str, value: u64, least: u64, most: u64| {
        if (least..=most).contains(&value) {
            Ok(())
        } else {
            Err(invalid(format!("{key} is {value}; it must be {least} to {most}")))
        }
    };
    range("engine.graceMs", e.grace_ms, 0, 60_000)?;
    range("engine.lateWindowMs", e.late_window_ms, 0, 600_000)?;
    range("engine.maxCalls", e.max_calls as u64, 1, 65_536)?;
    range("bridge.bufferMessages", config.bridge.buffer_messages as u64, 1, 10_000)?;
    range("bridge.bufferBytes", config.bridge.buffer_bytes as u64, 1024, 268_435_456)?;
    let g = &config.gateway;
    range("gateway.tickIntervalMs", g.tick_interval_ms, 1000, 600_000)?;
    range("gateway.rateLimit.maxAttempts", u64::from(g.rate_limit.max_attempts), 1, 10_000)?;
    range("gateway.rateLimit.windowMs", g.rate_limit.window_ms, 1000, 86_400_000)?;
    range("gateway.rateLimit.lockoutMs", g.rate_limit.lockout_ms, 1000, 86_400_000)?;
    for (name, server) in &config.mcp.servers {
        server.check(name).map_err(|why| invalid(format!("mcp.servers.{name}: {why}")))?;
    }
    if g.tls.cert_file.is_some() != g.tls.key_file.is_some() {
        return Err(invalid("gateway.tls needs both certFile and keyFile".to_owned()));
    }
    config.knowledge.check().map_err(invalid)?;
    config.context.check().map_err(invalid)?;
    if config.gateway.token.as_ref().is_some_and(|t| t.trim().is_empty()) {
        return Err(invalid("gateway.token is empty; leave the key out to have one made".to_owned()));
    }
    Ok(())
}

pub(crate) fn expand(path: &std::path::Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => path.to_owned(),
    }
}

fn invalid(message: String) -> Failure {
    Failure::new(ErrorCode::ConfigInvalid, message)
}

impl Config {
    /// Whether the lean settings for small local models hold: they give way to any `tools.toolSearch` of one's own.
    fn is_lean(&self) -> bool {
        self.agents.defaults.experimental.local_model_lean && self.tools.tool_search.is_none()
    }

    /// How models find tools.
    pub fn tool_search(&self) -> toolyard_toolsearch::Settings {
        match &self.tools.tool_search {
            Some(config) => config.settings(),
            None if self.is_lean() => ToolSearchConfig::lean().settings(),
            None => ToolSearchConfig::default().settings(),
        }
    }

    /// The engine's numbers.
    pub fn engine_options(&self) -> EngineOptions {
        EngineOptions {
            grace: Duration::from_millis(self.engine.grace_ms),
            late_window: Duration::from_millis(self.engine.late_window_ms),
            max_calls: self.engine.max_calls,
            ..EngineOptions::default()
        }
    }

    /// What the network doors are told.
    pub fn gateway_settings(&self, token: String, host: IpAddr, home: &Home) -> toolyard_gateway::Settings {
        let shown = serde_json::to_value(self.redacted()).unwrap_or_default();
        let agents = self.policy.agents.keys().filter(|name| !name.contains('*') && *name != "main").cloned();
        let limit = &self.gateway.rate_limit;
        let raw = toml::to_string(&self.redacted()).unwrap_or_default();
        toolyard_gateway::Settings {
            loopback_only: host.is_loopback(),
            address: Some(host),
            allowed_origins: self.gateway.allowed_origins.clone(),
            allowed_hosts: self.gateway.allowed_hosts.clone(),
            trusted_proxies: self.gateway.trusted_proxies.clone(),
            require_device: self.gateway.require_device,
            rate_limit: toolyard_gateway::settings::RateLimit {
                max_attempts: limit.max_attempts,
                window: Duration::from_millis(limit.window_ms),
                lockout: Duration::from_millis(limit.lockout_ms),
                exempt_loopback: limit.exempt_loopback,
            },
            tick: Duration::from_millis(self.gateway.tick_interval_ms),
            agents: agents.collect(),
            profile: self.policy.profile.and_then(|p| serde_json::to_value(p).ok()?.as_str().map(str::to_owned)),
            config: serde_json::json!({
                "path": home.config().display().to_string(), "exists": home.config().exists(),
                "hash": toolyard_protocol::canonical::sha256_hex(raw.as_bytes()), "raw": raw, "parsed": shown, "config": shown,
                "valid": true, "issues": [], "warnings": [],
            }),
            state_path: home.state().display().to_string(),
            bridge_url: self.bridge.url.clone(),
            bridge_buffer: toolyard_bridge::mailbox::MailboxLimits {
                messages: self.bridge.buffer_messages,
                bytes: self.bridge.buffer_bytes,
            },
            bridge_senders: self.bridge.allowed_senders.clone(),
            ..toolyard_gateway::Settings::new(token)
        }
    }

    /// For showing: secrets are hidden.
    pub fn redacted(&self) -> Self {
        let mut shown = self.clone();
        if shown.gateway.token.is_some() {
            shown.gateway.token = Some("(hidden)".to_owned());
        }
        for entry in shown.plugins.entries.values_mut() {
            entry.config.values_mut().for_each(|value| *value = "(hidden)".into());
        }
        for server in shown.mcp.servers.values_mut() {
            *server = server.redacted();
        }
        for (key, value) in &mut shown.knowledge.index.storage_options {
            let key = key.to_lowercase();
            if ["secret", "token", "password", "key"].iter().any(|word| key.contains(word)) {
                *value = "(hidden)".to_owned();
            }
        }
        shown
    }
}

/// The reference of every key, in Markdown, from the types.
pub fn reference() -> String {
    let schema: serde_json::Value = schemars::generate::SchemaSettings::draft2020_12()
        .with(|s| s.inline_subschemas = true)
        .into_generator()
        .into_root_schema_for::<Config>()
        .into();
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut out = String::from(
        "# Configuration\n\n`TOOLYARD_HOME/config.toml`. Every key is optional, and an unknown key is an error. `toolyard config check` checks the \
         file, `toolyard config show` prints it as resolved. This page is generated from the types (`make docs`).\n\n\
         | key | type | default | meaning |\n| --- | --- | --- | --- |\n",
    );
    rows(&schema, &defaults, "", &mut out);
    out
}

fn rows(schema: &serde_json::Value, defaults: &serde_json::Value, prefix: &str, out: &mut String) {
    use serde_json::Value;
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (key, property) in properties {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let default = defaults.get(key);
        let meaning = property
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .replace('\n', " ")
            .replace('|', "\\|");
        if property.get("properties").is_some() {
            out.push_str(&format!("| `[{path}]` | table | | {meaning} |\n"));
            rows(property, default.unwrap_or(&Value::Null), &path, out);
            continue;
        }
        let shown = default.map_or_else(|| "unset".to_owned(), |d| format!("`{d}`")).replace('|', "\\|");
        out.push_str(&format!("| `{path}` | {} | {shown} | {meaning} |\n", type_of(property)));
        if let Some(layer) = property.get("additionalProperties").filter(|l| l.get("properties").is_some()) {
            rows(layer, &Value::Null, &format!("{path}.<name>"), out);
        }
        if let Some(item) = property.get("items").filter(|i| i.get("properties").is_some()) {
            rows(item, &Value::Null, &format!("{path}[]"), out);
        }
    }
}

fn type_of(property: &serde_json::Value) -> String {
    use serde_json::Value;
    let words = |v: &Value| {
        v.as_array()
            .map(|a| a.iter().filter_map(Value::as_str).filter(|t| *t != "null").map(str::to_owned).collect::<Vec<_>>())
    };
    if let Some(options) = property.get("oneOf").or(property.get("anyOf")).and_then(Value::as_array) {
        let mut all: Vec<String> = options.iter().map(type_of).filter(|t| t != "null").collect();
        all.dedup();
        return all.join(" or ");
    }
    if let Some(word) = property.get("const") {
        return format!("`{word}`");
    }
    if let Some(options) = property.get("enum").and_then(words) {
        return options.iter().map(|o| format!("`\"{o}\"`")).collect::<Vec<_>>().join(" or ");
    }
    match property.get("type") {
        Some(Value::String(t)) if t == "array" => {
            format!("list of {}", property.get("items").map_or("any".to_owned(), type_of))
        }
        Some(Value::String(t)) => t.clone(),
        Some(list) => words(list).unwrap_or_default().join(" or "),
        None => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home_with(text: &str) -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.toml"), text).unwrap();
        let home = Home::resolve(Some(dir.path())).unwrap();
        (dir, home)
    }

    #[test]
    fn bad_configuration_is_named_with_its_place() {
        for (text, why) in [
            ("[gateway]\nprot = 1", "prot"),
            ("[gateway]\nport = \"x\"", "port"),
            ("[gateway", "line 1"),
            ("[policy]\nprofile = \"huge\"", "profile"),
            ("[tools.toolSearch]\ncodeTimeoutMs = 0", "toolSearch"),
            ("[tools.toolSearch]\nsources = []", "toolSearch"),
        ] {
            let (_dir, home) = home_with(text);
            let failure = load(&home).unwrap_err();
            assert_eq!(failure.code, ErrorCode::ConfigInvalid);
            assert!(failure.message.contains(why), "{text}: {}", failure.message);
        }
    }

    #[test]
    fn the_reference_names_every_key_of_the_default() {
        let page = reference();
        for key in [
            "gateway.port",
            "policy.limits.maxConcurrency",
            "policy.sandbox.allowedRoots",
            "tools.toolSearch",
            "engine.graceMs",
            "record.files",
            "log.level",
            "knowledge.embedding.kind",
        ] {
            assert!(page.contains(&format!("`{key}`")), "{key}");
        }
    }
}
