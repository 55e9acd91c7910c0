//! Configuration in two stages: the file as it is written ([`Config`], in `config/file.rs`), and the settings with
//! defaults and command line applied ([`Resolved`]). `docs/reference/configuration.md` is generated from the types
//! (`config/page.rs`).

mod file;
mod page;
mod patch;
mod secrets;

pub use file::{
    AgentDefaults, AgentsConfig, ApprovalsBy, BridgeConfig, Config, EngineConfig, ExperimentalConfig, Exposure,
    GatewayConfig, HooksConfig, LogConfig, LogFormat, McpConfig, NodeConfig, RateLimitConfig, RecordConfig,
    RetentionConfig, RunFilesMode, StoreConfig, TlsConfig, ToolsConfig, VaultConfig,
};
pub use page::{reference, schema_text};
pub(crate) use patch::{Change, is_applied_live, is_within};
pub use secrets::texts;

use crate::{cli::Global, home::Home, shared_config::SharedConfig, stores::Opened};
use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use toolyard_catalog::Policy;
use toolyard_engine::{EngineOptions, redact::redactor};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_toolsearch::ToolSearchConfig;

/// Tools that small local models do better without.
const LEAN_REMOVES: [&str; 3] = ["browser", "cron", "message"];

/// The configuration with defaults, environment and command line applied.
pub struct Resolved {
    /// The folder with Toolyard's state.
    pub home: Home,
    /// The vault.
    pub vault: PathBuf,
    /// Whether the vault was named on the command line or in the environment.
    pub vault_was_given: bool,
    /// The compiled policy.
    pub policy: Policy,
    /// The file, for showing.
    pub config: Config,
    /// Whether this process serves, and so is a node of a cluster if the store is shared.
    pub serves: bool,
    /// The version of the cluster's configuration that `config` has; 0 if there is none.
    pub version: u64,
    /// The store, if it was opened already.
    pub(crate) opened: Option<Opened>,
}

/// Reads `config.toml`; a missing file means the defaults.
pub fn load(home: &Home) -> Result<Config, Failure> {
    let path = home.config();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Config::default()),
        Err(e) => return Err(invalid(format!("{} cannot be read: {e}", path.display()))),
    };
    parsed(&text, &path.display().to_string())
}

/// Reads the text of a configuration. `from` names it in messages.
pub(crate) fn parsed(text: &str, from: &str) -> Result<Config, Failure> {
    let config: Config = toml::from_str(text).map_err(|e| invalid(format!("{from}: {}", misread(text, &e))))?;
    secrets::learn(&config);
    Ok(config)
}

/// A configuration as JSON.
pub(crate) fn as_value(config: &Config) -> serde_json::Value {
    secrets::as_value(config)
}

/// The keys of settings in which two configurations differ.
pub(crate) fn differences(before: &Config, after: &Config) -> Vec<String> {
    patch::differences(&secrets::as_value(before), &secrets::as_value(after))
}

/// What is wrong with the file, by line and key. The line itself is not shown, nor the text that was found: either may be
/// a secret in the wrong place.
fn misread(text: &str, error: &toml::de::Error) -> String {
    let what = without_found_text(error.message());
    let Some(span) = error.span() else { return what };
    let before = text.get(..span.start).unwrap_or(text);
    let (line, from) = (before.matches('\n').count() + 1, before.rfind('\n').map_or(0, |at| at + 1));
    let whole = text.get(from..).unwrap_or_default().lines().next().unwrap_or_default();
    let key = whole.split('=').next().unwrap_or_default().trim();
    let is_key = key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'[' | b']'));
    let at = if is_key && !key.is_empty() { format!(" ({key})") } else { String::new() };
    format!("line {line}{at}: {what}")
}

/// `invalid type: string "x", expected u16` without the `x`.
fn without_found_text(message: &str) -> String {
    match (message.find(": string \""), message.rfind("\", expected")) {
        (Some(from), Some(to)) if from < to => {
            format!("{}: a text{}", &message[..from], &message[to + 1..])
        }
        _ => message.to_owned(),
    }
}

/// Tells the process's redactor what is secret in a configuration.
pub(crate) fn learn_secrets(config: &Config) {
    secrets::learn(config);
}

/// The hash of a configuration file. It is keyed, because the file may hold a secret that is short enough to be guessed from
/// a plain hash.
pub(crate) fn file_hash(home: &Home, text: &str) -> Result<String, Failure> {
    let key = home.config_key().map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{e:#}")))?;
    let keyed = [key.as_slice(), text.as_bytes()].concat();
    Ok(toolyard_protocol::canonical::sha256_hex(&keyed))
}

/// The configuration as `config.get` answers, secrets hidden: the file as it is now, and what a node of a cluster works with.
fn shown(home: &Home, shared: Option<&SharedConfig>) -> toolyard_service::ConfigAnswer {
    let file = home.config();
    if let Some(shared) = shared {
        let hash = shared.hash().unwrap_or_else(|failure| {
            tracing::error!(error = failure.message, "the cluster's configuration cannot be read");
            String::new()
        });
        return shared.in_use().redacted().described(&file, hash);
    }
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let read = load(home).and_then(|config| checked_policy(&config, &file).map(|_| config));
    let hash = file_hash(home, &text).unwrap_or_else(|failure| {
        tracing::error!(error = failure.message, "the configuration has no hash");
        String::new()
    });
    match read {
        Ok(config) => config.redacted().described(&file, hash),
        Err(failure) => {
            let mut answer = Config::default().described(&file, hash);
            (answer.valid, answer.issues) = (false, vec![failure.message.into()]);
            answer
        }
    }
}

/// Checks what the types do not, and compiles the policy.
pub(crate) fn checked_policy(config: &Config, file: &Path) -> Result<Policy, Failure> {
    check_numbers(config)?;
    let mut rules = config.policy.clone();
    rules.native = config.hooks.preset;
    if config.is_lean() {
        rules.deny.extend(LEAN_REMOVES.map(str::to_owned));
    }
    config.tool_search()?.admit_controls(&mut rules);
    if config.context.enabled && !config.context.ask_before_writing {
        // Storing a memory changes nothing but the agent's own memory, so a person is asked only if the configuration
        // says so.
        rules.approval.allowed_tools.extend(toolyard_context::writing_tools().into_iter().map(str::to_owned));
    }
    Policy::compile(&rules).map_err(|e| invalid(format!("{}: policy: {e}", file.display())))
}

/// Works out what the configuration means, with the command line on top.
pub fn resolve(global: &Global) -> Result<Resolved, Failure> {
    let home = Home::resolve(global.home.as_deref()).map_err(|e| invalid(format!("{e:#}")))?;
    let mut config = load(&home)?;
    let policy = checked_policy(&config, &home.config())?;
    let named = config.index.program.clone();
    config.knowledge.index.program = config.knowledge.index.program.or(named);
    let vault_was_given = global.vault.is_some();
    let vault = match (&global.vault, &config.vault.path) {
        (Some(path), _) => path.clone(),
        (None, Some(path)) => expand(path),
        (None, None) => home.default_vault(),
    };
    let vault = std::path::absolute(&vault).map_err(|e| invalid(format!("vault {}: {e}", vault.display())))?;
    Ok(Resolved { home, vault, vault_was_given, policy, config, serves: false, version: 0, opened: None })
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
    config.notify.check().map_err(invalid)?;
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

pub(crate) fn invalid(message: String) -> Failure {
    redactor().failure(Failure::new(ErrorCode::ConfigInvalid, message))
}

impl Config {
    /// Whether the lean settings for small local models hold: a configured `tools.toolSearch` takes precedence.
    fn is_lean(&self) -> bool {
        self.agents.defaults.experimental.local_model_lean && self.tools.tool_search.is_none()
    }

    /// How models find tools.
    ///
    /// # Errors
    /// An unknown mode, a number out of its range, a group that does not exist.
    pub fn tool_search(&self) -> Result<toolyard_toolsearch::Settings, Failure> {
        let config = match &self.tools.tool_search {
            Some(config) => config.clone(),
            None if self.is_lean() => ToolSearchConfig::lean(),
            None => ToolSearchConfig::default(),
        };
        config.settings(&self.policy.groups).map_err(|error| invalid(error.to_string()))
    }

    /// The engine's limits.
    pub fn engine_options(&self) -> EngineOptions {
        EngineOptions {
            grace: Duration::from_millis(self.engine.grace_ms),
            late_window: Duration::from_millis(self.engine.late_window_ms),
            max_calls: self.engine.max_calls,
            ..EngineOptions::default()
        }
    }

    /// The host of `node.address`. Other nodes and the balancer ask for it, and it differs from node to node, while
    /// `gateway.allowedHosts` is shared.
    fn node_host(&self) -> Option<String> {
        let address: http::Uri = self.node.address.as_ref()?.parse().ok()?;
        Some(address.host()?.trim_matches(['[', ']']).to_owned())
    }

    /// The settings of the network doors.
    pub(crate) fn gateway_settings(
        &self,
        token: String,
        host: IpAddr,
        home: &Home,
        shared: Option<SharedConfig>,
    ) -> toolyard_gateway::Settings {
        let agents = self.policy.agents.keys().filter(|name| !name.contains('*') && *name != "main").cloned();
        let limit = &self.gateway.rate_limit;
        let (own_home, file) = (home.clone(), home.config());
        toolyard_gateway::Settings {
            loopback_only: host.is_loopback(),
            address: Some(host),
            allowed_origins: self.gateway.allowed_origins.clone(),
            allowed_hosts: self.gateway.allowed_hosts.iter().cloned().chain(self.node_host()).collect(),
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
            config_path: Some(file.display().to_string()),
            config: Arc::new(move || shown(&own_home, shared.as_ref())),
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

    /// As `config.get` answers.
    fn described(&self, file: &Path, hash: String) -> toolyard_service::ConfigAnswer {
        let raw = toml::to_string(self).unwrap_or_else(|error| {
            tracing::error!(%error, "the configuration cannot be written as TOML");
            String::new()
        });
        let parsed = secrets::as_value(self);
        toolyard_service::ConfigAnswer {
            path: file.display().to_string(),
            exists: file.exists(),
            hash,
            raw,
            config: parsed.clone(),
            parsed,
            valid: true,
            issues: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// A copy that can be shown, with secrets hidden.
    pub fn redacted(&self) -> Self {
        secrets::redacted(self)
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
    fn an_unknown_mode_and_a_number_out_of_range_are_refused() {
        for (keys, why) in [
            ("mode = \"tool\"", "tools.toolSearch.mode: there is no mode"),
            ("codeTimeoutMs = 999", "999 is not between 1000 and 60000"),
            ("maxSearchLimit = 51", "51 is not between 1 and 50"),
            ("maxSearchLimit = 5\nsearchDefaultLimit = 6", "6 is not between 1 and 5"),
            ("alwaysVisible = [\"group:nobody\"]", "there is no group:nobody"),
        ] {
            let (_dir, home) = home_with(&format!("[tools.toolSearch]\n{keys}\n"));
            let failure = load(&home).unwrap().tool_search().unwrap_err();
            assert_eq!(failure.code, ErrorCode::ConfigInvalid);
            assert!(failure.message.contains(why), "{keys}: {}", failure.message);
        }
    }

    #[test]
    fn a_secret_in_the_wrong_place_is_not_quoted() {
        for text in [
            "[mcp.servers.x]\ncommand = \"c\"\nheaders = \"Bearer CANARY-1\"",
            "[mcp.servers.x]\ncommand = \"c\"\nenv = { KEY = [\"CANARY-1\"] }",
            "[gateway]\ntoken = \"CANARY-1",
            "[gateway]\ntoken = CANARY-1",
            "[mcp.servers.x]\nurl = \"ftp://ada:CANARY-1@x/?k=CANARY-1\"",
            "[mcp.servers.x]\nurl = \"https://ada:CANARY-1@x y/\"",
        ] {
            let (_dir, home) = home_with(text);
            let failure = load(&home).and_then(|config| check_numbers(&config)).unwrap_err();
            assert!(!format!("{failure:?}").contains("CANARY"), "{text}: {failure:?}");
        }
    }
}
