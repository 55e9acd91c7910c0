//! [`Caller`]: who makes a request, through which door, and in which session.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use toolyard_protocol::WorkspaceId;

/// The way a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// The command line, in process or over the local socket.
    Cli,
    /// OpenClaw's WebSocket RPC.
    Gateway,
    /// The HTTP endpoints.
    Http,
    /// The Model Context Protocol.
    Mcp,
    /// The Claude bridge.
    Bridge,
    /// A code-mode script.
    Script,
    /// The web console.
    Console,
    /// Hooks of coding agents: calls of the agents' own tools.
    Hooks,
    /// Toolyard itself: recovery, undo, health.
    Internal,
}

impl Door {
    /// The word used in records and policies.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Gateway => "gateway",
            Self::Http => "http",
            Self::Mcp => "mcp",
            Self::Bridge => "bridge",
            Self::Script => "script",
            Self::Console => "console",
            Self::Hooks => "hooks",
            Self::Internal => "internal",
        }
    }
}

/// Who asks. A door builds it from credentials, never from what a request claims about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Caller {
    /// The way in.
    pub door: Door,
    /// A user, device or token name.
    pub principal: String,
    /// The agent on whose behalf the request is made.
    pub agent: String,
    /// The session, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// What the credential allows, for example `operator.write`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// True when the request itself is a person's deliberate act (a typed command, a clicked button): the policy's Ask
    /// counts as answered. Never true for an agent.
    #[serde(default)]
    pub is_person: bool,
    /// The workspace that the credential names. What belongs to another one does not exist for this caller.
    #[serde(default, skip_serializing_if = "WorkspaceId::is_default")]
    pub workspace: WorkspaceId,
}

/// The session of callers who name none, in a workspace that is not the default one.
const MAIN_SESSION: &str = "agent:main:main";

impl Caller {
    /// The person at the command line.
    pub fn cli(principal: impl Into<String>) -> Self {
        Self {
            door: Door::Cli,
            principal: principal.into(),
            agent: "main".to_owned(),
            session: None,
            scopes: vec!["operator.admin".to_owned()],
            is_person: true,
            workspace: WorkspaceId::default(),
        }
    }

    /// The same caller in a workspace: its name and its session are that workspace's.
    #[must_use]
    pub fn in_workspace(self, workspace: WorkspaceId) -> Self {
        let caller = Self { workspace, ..self };
        match caller.is_settled() {
            true => caller,
            false => caller.settled_copy(),
        }
    }

    /// The caller with a name and a session of its own workspace. Everything that is kept under either is thereby kept
    /// apart, and the row of a run says whose it is. Nothing changes for the default workspace.
    pub(crate) fn settled(self: Arc<Self>) -> Arc<Self> {
        match self.is_settled() {
            true => self,
            false => Arc::new(self.settled_copy()),
        }
    }

    fn is_settled(&self) -> bool {
        let is_own_session = self.session.as_deref().is_some_and(|session| self.workspace.owns(session));
        self.workspace.is_default() || (is_own_session && self.workspace.owns(&self.principal))
    }

    fn settled_copy(&self) -> Self {
        let session = self.session.as_deref().unwrap_or(MAIN_SESSION);
        Self {
            session: Some(self.workspace.key(session).into_owned()),
            principal: self.workspace.key(&self.principal).into_owned(),
            ..self.clone()
        }
    }

    /// Whether the caller may name any path of the host: a person who types it on the host, not a script that the person
    /// started, and not a browser, which may be on another machine.
    pub fn names_host_paths(&self) -> bool {
        self.is_person && !matches!(self.door, Door::Script | Door::Console)
    }

    /// The caller as a JSON object, for `run.json`.
    pub fn to_map(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        }
    }
}
