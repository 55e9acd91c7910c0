//! The configuration of an upstream server. Doc comments here are the configuration reference.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};
use toolyard_engine::redact::{self, redactor};

/// A server's name is at most this long.
pub const MAX_SERVER_NAME: usize = 48;
/// Variables that every child gets if they are set; no other variable is passed unless it is named.
const ALWAYS_PASSED: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TMPDIR", "TZ"];

/// How a server is reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// `stdio` if there is a command; otherwise streamable HTTP, or SSE if the server supports only that.
    #[default]
    Auto,
    /// A child process, one message a line.
    Stdio,
    /// The streamable HTTP transport.
    #[serde(alias = "streamable-http", alias = "streamableHttp")]
    Http,
    /// HTTP with Server-Sent Events, as before revision 2025-03-26.
    Sse,
}

/// Which revision is spoken with a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RevisionChoice {
    /// Starts with a handshake; uses 2026-07-28 if the server has none.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// Revision 2026-07-28 only.
    #[serde(rename = "2026-07-28")]
    V20260728,
    /// Revision 2025-11-25, or the one that the server chooses.
    #[serde(rename = "2025-11-25")]
    V20251125,
    /// Revision 2025-06-18, or the one that the server chooses.
    #[serde(rename = "2025-06-18")]
    V20250618,
}

/// Which of a server's statements about its tools are trusted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// Nothing: every tool counts as one that writes, so people are asked.
    #[default]
    None,
    /// Annotations are trusted: a tool that is marked as read-only counts as read-only.
    Annotations,
}

/// Which tool definitions a person must approve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pinning {
    /// A definition that changed. New tools are taken as they are when first seen.
    #[default]
    Changed,
    /// New ones as well, except those of the first contact.
    All,
    /// No definition needs approval.
    Off,
}

/// How tokens are obtained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrantKind {
    /// A person agrees once, with `toolyard mcp login`.
    #[default]
    AuthorizationCode,
    /// The configured client has its own rights; nobody logs in.
    ClientCredentials,
}

/// OAuth with a server over HTTP that asks for it. Nothing here needs to be set for servers at which clients register
/// themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OauthConfig {
    /// Whether Toolyard requests a token when the server requires one.
    pub enabled: bool,
    /// The grant type: `authorization_code` (a person logs in once with `toolyard mcp login`) or `client_credentials`
    /// (the configured client has its own rights).
    pub grant: GrantKind,
    /// The id of a client that is already registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The variable of Toolyard's environment that holds the client's secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "variable"))]
    pub client_secret_env: Option<String>,
    /// The file that holds the client's secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "file"))]
    pub client_secret_file: Option<PathBuf>,
    /// The https address of a client id metadata document that you publish. It is used as the client's id if the
    /// authorisation server supports such documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "url"))]
    pub client_metadata_url: Option<String>,
    /// The authorisation server to use. Any other is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "url"))]
    pub issuer: Option<String>,
    /// Scopes to request instead of those that the server names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The port on which `toolyard mcp login` waits for the redirect; 0 chooses a free one. The redirect address is
    /// `http://127.0.0.1:PORT/callback`.
    pub redirect_port: u16,
}

impl Default for OauthConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            grant: GrantKind::AuthorizationCode,
            client_id: None,
            client_secret_env: None,
            client_secret_file: None,
            client_metadata_url: None,
            issuer: None,
            scopes: Vec::new(),
            redirect_port: 0,
        }
    }
}

impl OauthConfig {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn has_secret(&self) -> bool {
        self.client_secret_env.is_some() || self.client_secret_file.is_some()
    }

    /// The configured client's secret, if it has one.
    pub(crate) fn secret(&self) -> Result<Option<String>, String> {
        from_outside(self.client_secret_env.as_deref(), self.client_secret_file.as_deref())
    }

    fn check(&self) -> Result<(), String> {
        if let Some(document) = &self.client_metadata_url {
            let uri: http::Uri = document.parse().map_err(|e| format!("oauth.clientMetadataUrl {document:?}: {e}"))?;
            if uri.scheme_str() != Some("https") || uri.path() == "/" {
                return Err(format!("oauth.clientMetadataUrl {document:?} must be https:// with a path"));
            }
        }
        if let Some(bad) = self.scopes.iter().find(|scope| !super::oauth::is_scope(scope)) {
            return Err(format!("oauth.scopes: {bad:?} cannot be a scope"));
        }
        if self.client_id.as_ref().is_some_and(|id| id.is_empty()) {
            return Err("oauth.clientId is empty".to_owned());
        }
        if self.has_secret() && self.client_id.is_none() {
            return Err("oauth.clientSecretEnv and oauth.clientSecretFile need oauth.clientId".to_owned());
        }
        if self.grant == GrantKind::ClientCredentials && !self.has_secret() {
            return Err("oauth.grant client_credentials needs oauth.clientId and its secret".to_owned());
        }
        Ok(())
    }
}

/// A secret from a variable of our environment or a file.
fn from_outside(variable: Option<&str>, file: Option<&std::path::Path>) -> Result<Option<String>, String> {
    if let Some(name) = variable {
        let secret = std::env::var(name).map_err(|_| format!("the variable {name} is not set"))?;
        redactor().learn(&secret);
        return Ok(Some(secret.trim().to_owned()));
    }
    if let Some(file) = file {
        let secret = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        redactor().learn(&secret);
        return Ok(Some(secret.trim().to_owned()));
    }
    Ok(None)
}

/// The values that files hold.
fn read_all(files: &BTreeMap<String, PathBuf>) -> Result<Vec<(String, String)>, String> {
    let read = |(name, file): (&String, &PathBuf)| {
        let value = from_outside(None, Some(file))?.unwrap_or_default();
        Ok((name.clone(), value))
    };
    files.iter().map(read).collect()
}

/// Variables that a sandboxed child gets if they are set; no other variable is passed unless it is named.
const PASSED_TO_CONFINED: [&str; 5] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ"];

/// How much a program may use, with everything it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Maximum number of processes at the same time. A further one fails to start.
    #[schemars(range(min = 1, max = 4096))]
    pub processes: u32,
    /// Maximum memory in MiB. A program that uses more is stopped.
    #[schemars(range(min = 16, max = 1_048_576))]
    pub memory_mb: u64,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self { processes: 64, memory_mb: 512 }
    }
}

impl LimitsConfig {
    /// Whether nothing was configured.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What is wrong with them, if anything.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=4096).contains(&self.processes) {
            return Err(format!("limits.processes is {}; it must be 1 to 4096", self.processes));
        }
        if !(16..=1_048_576).contains(&self.memory_mb) {
            return Err(format!("limits.memoryMb is {}; it must be 16 to 1048576", self.memory_mb));
        }
        Ok(())
    }
}

/// What a server that is started as a child may access, in addition to the system's programs and libraries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SandboxConfig {
    /// Whether the program runs in the sandbox.
    pub enabled: bool,
    /// Files and folders it may read and execute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<PathBuf>,
    /// Files and folders it may read and change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<PathBuf>,
    /// Whether it may use the network.
    pub network: bool,
    /// Names of variables of Toolyard's environment that are passed to the program, in addition to PATH, HOME, LANG,
    /// LC_ALL and TZ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Limits for the program.
    #[serde(skip_serializing_if = "LimitsConfig::is_default")]
    pub limits: LimitsConfig,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            read: Vec::new(),
            write: Vec::new(),
            network: false,
            env: Vec::new(),
            limits: LimitsConfig::default(),
        }
    }
}

/// One upstream MCP server: a `command` to start, or a `url`.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Whether the server is used.
    pub enabled: bool,
    /// The program to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-secret" = "argument"))]
    pub args: Vec<String>,
    /// The folder it starts in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// Variables set for it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-secret" = "value"))]
    pub env: BTreeMap<String, String>,
    /// Files that hold the values of further variables; read when the program starts. `toolyard import mcp` writes them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-secret" = "file"))]
    pub env_files: BTreeMap<String, PathBuf>,
    /// Names of variables of Toolyard's environment that are passed to the program, in addition to PATH, HOME, USER,
    /// LOGNAME, SHELL, LANG, LC_ALL, TMPDIR and TZ. No other variables are passed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-secret" = "variable"))]
    pub pass_env: Vec<String>,
    /// The sandbox of the program. Without this table the program runs without a sandbox, and Toolyard warns. `toolyard
    /// mcp add` writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxConfig>,
    /// The address of a server over HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "url"))]
    pub url: Option<String>,
    /// `auto`, `stdio`, `http` or `sse`.
    #[serde(alias = "type")]
    pub transport: Transport,
    /// Headers sent with every request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-secret" = "value"))]
    pub headers: BTreeMap<String, String>,
    /// Files that hold the values of further headers; read for each connection.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-secret" = "file"))]
    pub header_files: BTreeMap<String, PathBuf>,
    /// The variable of Toolyard's environment that holds the bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "variable"))]
    pub bearer_token_env: Option<String>,
    /// The file that holds the bearer token; read for each connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "file"))]
    pub bearer_token_file: Option<PathBuf>,
    /// OAuth settings, used if the server requires it and no credential is configured.
    #[serde(skip_serializing_if = "OauthConfig::is_default")]
    pub oauth: OauthConfig,
    /// The prefix of the names of its tools and prompts. Unset: the server's name and two underscores. With an empty
    /// prefix, a tool whose name is already in use is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Whether the server's annotations are trusted: `none` or `annotations`.
    pub trust: Trust,
    /// Which tool definitions need a person's approval: `changed`, `all` or `off`.
    pub pin: Pinning,
    /// The protocol revision to use: `auto`, `2026-07-28`, `2025-11-25` or `2025-06-18`.
    pub protocol: RevisionChoice,
    /// Milliseconds that a call may take, unless the call sets its own timeout.
    #[schemars(range(min = 1, max = 86_400_000))]
    pub timeout_ms: u64,
    /// Milliseconds that the server may take to start and list its tools.
    #[schemars(range(min = 100, max = 600_000))]
    pub start_timeout_ms: u64,
    /// Seconds without a call after which the server is stopped; the next call starts it again. 0 means never.
    pub idle_seconds: u64,
    /// Maximum number of calls in flight; further calls wait.
    #[schemars(range(min = 1, max = 4096))]
    pub max_concurrent: usize,
    /// Maximum number of tools; further tools are left out.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_tools: usize,
    /// Maximum number of bytes in a message; a longer one ends the connection.
    #[schemars(range(min = 1024, max = 268_435_456))]
    pub max_message_bytes: usize,
}

impl std::fmt::Debug for ServerConfig {
    /// Without what may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerConfig")
            .field("enabled", &self.enabled)
            .field("command", &self.command)
            .field("transport", &self.transport)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            command: None,
            args: Vec::new(),
            cwd: None,
            env: BTreeMap::new(),
            env_files: BTreeMap::new(),
            pass_env: Vec::new(),
            sandbox: None,
            url: None,
            transport: Transport::Auto,
            headers: BTreeMap::new(),
            header_files: BTreeMap::new(),
            bearer_token_env: None,
            bearer_token_file: None,
            oauth: OauthConfig::default(),
            prefix: None,
            trust: Trust::None,
            pin: Pinning::Changed,
            protocol: RevisionChoice::Auto,
            timeout_ms: 60_000,
            start_timeout_ms: 30_000,
            idle_seconds: 600,
            max_concurrent: 64,
            max_tools: 2000,
            max_message_bytes: 16 << 20,
        }
    }
}

impl ServerConfig {
    /// What is wrong with it, if anything.
    pub fn check(&self, name: &str) -> Result<(), String> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        if name.is_empty() || name.len() > MAX_SERVER_NAME || !name.bytes().all(plain) || name.contains("__") {
            return Err(format!(
                "a server's name is 1 to {MAX_SERVER_NAME} letters, digits, '-' or single '_', not {name:?}"
            ));
        }
        if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Err(format!("a server's name begins with a letter or digit, not {name:?}"));
        }
        match (&self.command, &self.url) {
            (Some(command), None) if command.trim().is_empty() => return Err("command is empty".to_owned()),
            (Some(_), None) if matches!(self.transport, Transport::Auto | Transport::Stdio) => {}
            (None, Some(url)) if !matches!(self.transport, Transport::Stdio) => {
                let uri: http::Uri = url.parse().map_err(|e| format!("url cannot be read: {e}"))?;
                if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
                    let shown = redact::url(url);
                    return Err(format!("url {shown:?} must be http:// or https:// with a host"));
                }
            }
            (Some(_), None) | (None, Some(_)) => return Err("transport does not fit command or url".to_owned()),
            _ => return Err("exactly one of command and url is needed".to_owned()),
        }
        for (name, value) in &self.headers {
            http::HeaderName::try_from(name.as_str()).map_err(|_| format!("{name:?} is no header name"))?;
            http::HeaderValue::try_from(value.as_str())
                .map_err(|_| format!("the value of header {name} cannot be sent"))?;
        }
        if let Some(sandbox) = &self.sandbox {
            if self.command.is_none() {
                return Err("sandbox is for servers with a command".to_owned());
            }
            sandbox.limits.check().map_err(|why| format!("sandbox.{why}"))?;
        }
        if self.command.is_some() && !self.oauth.is_default() {
            return Err("oauth is for servers with a url".to_owned());
        }
        self.oauth.check()?;
        for name in self.header_files.keys() {
            http::HeaderName::try_from(name.as_str()).map_err(|_| format!("{name:?} is no header name"))?;
        }
        let mut variables = self.env.keys().chain(self.env_files.keys());
        if let Some(bad) = variables.find(|key| key.is_empty() || key.contains(['=', '\0'])) {
            return Err(format!("{bad:?} is no name of a variable"));
        }
        if let Some(prefix) = &self.prefix
            && (prefix.len() > MAX_SERVER_NAME || !prefix.bytes().all(plain))
        {
            return Err(format!("prefix {prefix:?} may hold letters, digits, '_' and '-' only"));
        }
        let range = |key: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("{key} is {value}; it must be {least} to {most}"))
            }
        };
        range("timeoutMs", self.timeout_ms, 1, 86_400_000)?;
        range("startTimeoutMs", self.start_timeout_ms, 100, 600_000)?;
        range("maxConcurrent", self.max_concurrent as u64, 1, 4096)?;
        range("maxTools", self.max_tools as u64, 1, 10_000)?;
        range("maxMessageBytes", self.max_message_bytes as u64, 1024, 268_435_456)
    }

    /// The prefix of names.
    pub fn prefix(&self, name: &str) -> String {
        self.prefix.clone().unwrap_or_else(|| format!("{name}__"))
    }

    /// The sandbox of the child, if it is configured and enabled.
    pub fn confinement(&self) -> Option<&SandboxConfig> {
        self.sandbox.as_ref().filter(|sandbox| sandbox.enabled)
    }

    /// The child's whole environment.
    ///
    /// # Errors
    /// A file of `envFiles` that cannot be read.
    pub fn environment(&self) -> Result<Vec<(String, String)>, String> {
        let (usual, named): (&[&str], &[String]) = match self.confinement() {
            Some(sandbox) => (&PASSED_TO_CONFINED, &sandbox.env),
            None => (&ALWAYS_PASSED, &[]),
        };
        let passed = usual.iter().copied().chain(self.pass_env.iter().chain(named).map(String::as_str));
        let mut all: BTreeMap<String, String> =
            passed.filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))).collect();
        all.extend(self.env.clone());
        all.extend(read_all(&self.env_files)?);
        Ok(all.into_iter().collect())
    }

    /// The headers that are sent with every request, with those whose values lie in files.
    pub(crate) fn all_headers(&self) -> Result<BTreeMap<String, String>, String> {
        let mut all = self.headers.clone();
        all.extend(read_all(&self.header_files)?);
        Ok(all)
    }

    /// The bearer token, if one is configured.
    pub(crate) fn bearer(&self) -> Result<Option<String>, String> {
        from_outside(self.bearer_token_env.as_deref(), self.bearer_token_file.as_deref())
    }

    /// Whether a credential is configured; then no other is asked for.
    pub(crate) fn has_credential(&self) -> bool {
        self.bearer_token_env.is_some()
            || self.bearer_token_file.is_some()
            || self
                .headers
                .keys()
                .chain(self.header_files.keys())
                .any(|name| name.eq_ignore_ascii_case("authorization"))
    }

    pub(crate) fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.start_timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused() {
        let stdio = ServerConfig { command: Some("x".into()), ..ServerConfig::default() };
        assert!(stdio.check("good-name_1").is_ok());
        for name in ["", "a__b", "ä", "a b", "-x", &"x".repeat(49)] {
            assert!(stdio.check(name).is_err(), "{name}");
        }
        let neither = ServerConfig::default();
        let both = ServerConfig { url: Some("http://x/".into()), ..stdio.clone() };
        let wrong = ServerConfig { url: Some("ftp://x/".into()), ..ServerConfig::default() };
        let http = ServerConfig { transport: Transport::Http, ..stdio.clone() };
        for config in [neither, both, wrong, http] {
            assert!(config.check("a").is_err(), "{config:?}");
        }
    }

    #[test]
    fn oauth_that_cannot_work_is_refused() {
        let with =
            |oauth: OauthConfig| ServerConfig { url: Some("https://x/".into()), oauth, ..ServerConfig::default() };
        let good = OauthConfig {
            client_id: Some("me".into()),
            client_secret_env: Some("SECRET".into()),
            grant: GrantKind::ClientCredentials,
            scopes: vec!["a:b".into()],
            client_metadata_url: Some("https://x.org/client.json".into()),
            ..OauthConfig::default()
        };
        assert!(with(good.clone()).check("a").is_ok());
        for bad in [
            OauthConfig { client_secret_env: None, ..good.clone() },
            OauthConfig { client_id: None, ..good.clone() },
            OauthConfig { scopes: vec!["a b".into()], ..good.clone() },
            OauthConfig { client_metadata_url: Some("http://x.org/client.json".into()), ..good.clone() },
            OauthConfig { client_metadata_url: Some("https://x.org".into()), ..good.clone() },
        ] {
            assert!(with(bad.clone()).check("a").is_err(), "{bad:?}");
        }
        let child = ServerConfig { command: Some("x".into()), oauth: good, ..ServerConfig::default() };
        assert!(child.check("a").is_err());
        let header =
            ServerConfig { headers: [("authorization".into(), "x".into())].into(), ..with(OauthConfig::default()) };
        assert!(header.has_credential() && !with(OauthConfig::default()).has_credential());
    }

    #[test]
    fn a_child_gets_only_what_is_named() {
        let config = ServerConfig { env: [("MINE".to_owned(), "1".to_owned())].into(), ..ServerConfig::default() };
        let names: Vec<String> = config.environment().unwrap().into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"MINE".to_owned()));
        assert!(names.iter().all(|name| name == "MINE" || ALWAYS_PASSED.contains(&name.as_str())), "{names:?}");
        let confined = ServerConfig { sandbox: Some(SandboxConfig::default()), ..config };
        let names: Vec<String> = confined.environment().unwrap().into_iter().map(|(name, _)| name).collect();
        assert!(names.iter().all(|name| name == "MINE" || PASSED_TO_CONFINED.contains(&name.as_str())), "{names:?}");
    }
}
