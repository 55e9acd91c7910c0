//! The fifteen tools: their arguments and callers. There is one file for each group of tools; `table.rs` lists them.
//!
//! Two kinds of failure exist, as in the original: a tool throws ([`ToolFailure`]: the call failed), or it returns normally
//! and reports the error in `details.error`.

mod archive;
mod import;
pub(crate) mod memory;
mod query;
mod results;
mod table;
pub(crate) mod trace;

pub use table::{PLUGIN, definitions, enabled, host_arguments, writing_tools};

use crate::{
    config::{ContextConfig, PeerRole},
    error::{ApiError, Code},
    find::{
        query_config::{Effective, QueryParams, ResourceType},
        trace::{Speaker, Trace, Trigger},
    },
    service::ContextStore,
    store::{host_paths::HostPaths, uri::Identity},
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{ErrorCode, canonical::sha256_hex};

/// A failed call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolFailure {
    /// The error code for callers.
    pub code: ErrorCode,
    /// The message in the original's wording.
    pub message: String,
    /// The underlying causes, for logs.
    pub causes: Option<String>,
}

impl ToolFailure {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), causes: None }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ValidationError, message)
    }
}

impl From<ApiError> for ToolFailure {
    fn from(error: ApiError) -> Self {
        let code = match error.code {
            Code::InvalidArgument | Code::InvalidUri => ErrorCode::ValidationError,
            Code::NotFound => ErrorCode::NotFound,
            Code::PermissionDenied | Code::Unauthenticated => ErrorCode::PolicyDenied,
            Code::AlreadyExists | Code::Conflict => ErrorCode::Conflict,
            Code::FailedPrecondition => ErrorCode::PreconditionFailed,
            Code::ResourceExhausted => ErrorCode::LimitExceeded,
            Code::DeadlineExceeded => ErrorCode::Timeout,
            Code::Unavailable | Code::Unimplemented => ErrorCode::Unavailable,
            Code::Internal | Code::ProcessingError => ErrorCode::InternalError,
        };
        Self { code, message: error.tool_message(), causes: error.causes }
    }
}

/// The result of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The text for a model.
    pub text: String,
    /// The details for programs.
    pub details: Value,
}

impl Answer {
    /// The result in the form of a tool result: a list of contents, and details.
    pub(crate) fn into_data(self) -> Map<String, Value> {
        let content = json!([{"type": "text", "text": self.text}]);
        Map::from_iter([("content".to_owned(), content), ("details".to_owned(), self.details)])
    }
}

/// The result of a call, or its failure.
pub type Outcome = Result<Answer, ToolFailure>;

/// A result with details. Details that cannot be serialised are a defect.
pub(crate) fn text_result(text: impl Into<String>, details: impl Serialize) -> Outcome {
    Ok(Answer { text: text.into(), details: crate::wire::shapes::value(details)? })
}

/// The session of a call.
#[derive(Debug, Clone, Default)]
pub struct Session {
    /// The account of the session's workspace; the configured one where it is absent.
    pub account: Option<String>,
    /// The session key, for example `agent:main:main`.
    pub key: Option<String>,
    /// The session id.
    pub id: Option<String>,
    /// The agent.
    pub agent: Option<String>,
    /// The sender of the message, where peers are persons.
    pub sender: Option<String>,
    /// The local paths that may be read for this session.
    pub host_paths: HostPaths,
    /// Cancels long operations.
    pub cancel: CancellationToken,
}

/// Whether an id is a valid folder name.
fn is_plain(id: &str) -> bool {
    !id.is_empty() && !id.chars().any(|c| c.is_control() || matches!(c, ':' | '<' | '>' | '"' | '\\' | '/' | '|' | '?'))
}

fn as_uuid(id: &str) -> Option<String> {
    (id.len() == 36).then(|| uuid::Uuid::try_parse(id).ok()).flatten().map(|u| u.hyphenated().to_string())
}

impl Session {
    /// The id of the session in the store.
    pub fn ov_id(&self) -> Option<String> {
        if let Some(id) = self.id.as_deref().and_then(as_uuid) {
            return Some(id);
        }
        if let Some(key) = &self.key {
            return Some(sha256_hex(key.as_bytes()));
        }
        let id = self.id.as_deref().filter(|id| !id.is_empty())?;
        Some(if is_plain(id) { id.to_owned() } else { sha256_hex(format!("openclaw-session:{id}").as_bytes()) })
    }

    /// The session id for a reference in an argument.
    pub(crate) fn named(reference: &str) -> String {
        match as_uuid(reference) {
            Some(id) => id,
            None if is_plain(reference) => reference.to_owned(),
            None => sha256_hex(reference.as_bytes()),
        }
    }

    /// The agent's id in the form of a peer id.
    pub fn agent_id(&self, config: &ContextConfig) -> String {
        let from_key =
            self.key.as_deref().and_then(|key| key.strip_prefix("agent:")).and_then(|rest| rest.split(':').next());
        let agent = self.agent.as_deref().or(from_key).filter(|a| !a.is_empty()).unwrap_or("main");
        let whole =
            if config.peer_prefix.is_empty() { agent.to_owned() } else { format!("{}_{agent}", config.peer_prefix) };
        sanitized(&whole)
    }

    /// The key of the query configuration of an agent, which is another one in each workspace.
    pub(crate) fn claw_key(&self, config: &ContextConfig) -> String {
        let agent = self.agent_id(config);
        match &self.account {
            Some(account) => format!("{account}/{agent}"),
            None => agent,
        }
    }

    /// The acting peer.
    pub fn peer(&self, config: &ContextConfig) -> Result<Option<String>, ToolFailure> {
        match config.peer_role {
            PeerRole::None => Ok(None),
            PeerRole::Assistant => Ok(Some(self.agent_id(config))),
            PeerRole::Person => match self.sender.as_deref().filter(|s| !s.is_empty()) {
                Some(sender) => Ok(Some(sanitized(sender))),
                None => Err(ToolFailure::argument("openviking: peer_role=person requires a sender identity")),
            },
        }
    }

    /// The session as recorded in traces.
    pub(crate) fn traced(&self, config: &ContextConfig) -> Speaker {
        Speaker {
            session_id: self.id.clone(),
            session_key: self.key.clone(),
            ov_session_id: self.ov_id(),
            agent_id: self.agent_id(config),
        }
    }

    /// The key of its query configuration.
    pub(crate) fn query_key(&self) -> Option<String> {
        self.ov_id().map(|id| format!("ov:{id}"))
    }
}

fn sanitized(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }) {
        if c != '_' || !out.ends_with('_') {
            out.push(c);
        }
    }
    let out = out.strip_prefix('_').unwrap_or(&out);
    let out = out.strip_suffix('_').unwrap_or(out);
    if out.is_empty() { "default".to_owned() } else { out.to_owned() }
}

/// The context of a tool call.
pub(crate) struct Call<'a> {
    pub(crate) store: &'a Arc<ContextStore>,
    pub(crate) session: &'a Session,
    pub(crate) args: &'a Map<String, Value>,
    pub(crate) who: Identity,
}

impl Call<'_> {
    pub(crate) fn config(&self) -> &ContextConfig {
        self.store.config()
    }

    /// A text argument that is not blank.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.args.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty())
    }

    /// A local path that may be read for this session.
    pub(crate) fn host_path(&self, named: &str) -> Result<std::path::PathBuf, ToolFailure> {
        self.store.host_roots().admit(self.session.host_paths, named)
    }

    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        self.args.get(name).and_then(Value::as_f64)
    }

    /// An integer argument, at least 1.
    pub(crate) fn count(&self, name: &str, default: usize) -> usize {
        self.number(name).map_or(default, |n| n.floor().clamp(1.0, 1e9) as usize)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.args.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(crate) fn owner(&self) -> String {
        format!("{}/{}", self.who.account, self.who.user)
    }

    /// Starts the trace of a query.
    pub(crate) fn trace_of(&self, source: &str, operation: &str, query: &str) -> Trace {
        let most = self.config().trace_recall_query_max_chars;
        let trigger = Trigger { query: crate::store::fs::cut(query, most), ..Trigger::default() };
        Trace::new(source, operation, self.session.traced(self.config()), trigger)
    }

    /// Records a trace, if tracing is enabled.
    pub(crate) fn record(&self, trace: Trace) {
        self.store.traces.record(&self.owner(), trace);
    }

    /// The effective query parameters of this session.
    pub(crate) fn effective(&self, request: &QueryParams) -> Effective {
        let config = self.config();
        let key = self.session.query_key();
        self.store.queries.effective(config, key.as_deref(), &self.session.claw_key(config), request)
    }

    /// The types that an argument names; `None` if it names none.
    pub(crate) fn resource_types(&self, name: &str) -> Result<Option<Vec<ResourceType>>, ToolFailure> {
        let Some(given) = self.args.get(name) else { return Ok(None) };
        let words = crate::wire::given::words(given);
        let types = ResourceType::parse_all(words.iter().map(String::as_str)).map_err(ToolFailure::argument)?;
        Ok((!types.is_empty()).then_some(types))
    }
}

/// Whether the tools ignore a session. `**` matches anything, `*` anything except `:`.
pub(crate) fn is_bypassed(config: &ContextConfig, session: &Session) -> bool {
    let Some(name) = session.key.as_deref().or(session.id.as_deref()) else { return false };
    config.bypass_session_patterns.iter().filter(|p| !p.trim().is_empty()).any(|pattern| {
        let escaped = regex::escape(pattern.trim()).replace(r"\*\*", ".*").replace(r"\*", "[^:]*");
        regex::Regex::new(&format!("(?s)^{escaped}$")).is_ok_and(|re| re.is_match(name))
    })
}

/// Runs a tool. May block.
pub fn run(store: &Arc<ContextStore>, session: &Session, name: &str, args: &Map<String, Value>) -> Outcome {
    if is_bypassed(store.config(), session) {
        return text_result(
            format!("OpenViking is bypassed for this session by bypassSessionPatterns; {name} was skipped."),
            json!({"action": "bypassed", "reason": "session_bypassed", "toolName": name}),
        );
    }
    let who = store.identity_in(session, session.peer(store.config())?);
    let call = Call { store, session, args, who };
    store.request(&call.who.account, || match name {
        "ov_search" => query::search(&call),
        "ov_read" => query::read(&call),
        "ov_multi_read" => query::multi_read(&call),
        "ov_list" => query::list(&call),
        "memory_recall" => memory::recall(&call),
        "memory_store" => memory::store(&call),
        "memory_forget" => memory::forget(&call),
        "add_skill" => import::skill(&call),
        "add_resource" => import::resource(&call),
        "ov_archive_search" => archive::search(&call),
        "ov_archive_expand" => archive::expand(&call),
        "ov_recall_trace" => trace::query(&call),
        "openviking_tool_result_list" => results::list(&call),
        "openviking_tool_result_search" => results::search(&call),
        "openviking_tool_result_read" => results::read(&call),
        other => Err(ToolFailure::new(ErrorCode::NotFound, format!("Tool not available: {other}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_and_peers_get_the_ids_of_the_contract() {
        let session = |key: Option<&str>, id: Option<&str>| Session {
            key: key.map(str::to_owned),
            id: id.map(str::to_owned),
            ..Session::default()
        };
        let uuid = "E211BE14-AD73-4F0B-861B-9E2B39C390FE";
        assert_eq!(session(Some("k"), Some(uuid)).ov_id(), Some(uuid.to_lowercase()));
        assert_eq!(session(Some("agent:main:main"), None).ov_id().unwrap().len(), 64);
        assert_eq!(session(None, Some("plain")).ov_id().as_deref(), Some("plain"));
        assert_eq!(session(None, Some("a:b")).ov_id(), Some(sha256_hex(b"openclaw-session:a:b")));
        assert_eq!(session(None, None).ov_id(), None);
        assert_eq!(Session::named("a/b"), sha256_hex(b"a/b"));
        let config = ContextConfig { peer_prefix: "my bot".into(), ..ContextConfig::default() };
        assert_eq!(session(Some("agent:ops:x"), None).agent_id(&config), "my_bot_ops");
        assert_eq!(sanitized("__"), "default");
        let person = ContextConfig { peer_role: PeerRole::Person, ..ContextConfig::default() };
        assert!(session(None, None).peer(&person).unwrap_err().message.contains("requires a sender identity"));
    }

    #[test]
    fn bypass_patterns_are_anchored_and_a_star_stops_at_a_colon() {
        let config =
            |p: &str| ContextConfig { bypass_session_patterns: vec![p.to_owned()], ..ContextConfig::default() };
        let session = Session { key: Some("agent:main:cron:job1".into()), ..Session::default() };
        assert!(is_bypassed(&config("agent:*:cron:**"), &session));
        assert!(is_bypassed(&config("agent:*:cron:*"), &session));
        assert!(!is_bypassed(&config("agent:*"), &session));
        assert!(!is_bypassed(&config("cron"), &session));
    }
}
