//! [`Connection`]: one connected client, its rights, and how it is shown to others.

use super::{
    LastActivity, lock,
    outbox::{Outbox, Outgoing},
};
use crate::{Object, Terms, console::Rights};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    collections::HashMap,
    net::IpAddr,
    ops::Deref,
    sync::{Arc, Mutex},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use toolyard_engine::{
    Caller, Door,
    approvals::ApproverPresence,
    authority::{self, Demand, Refusal, holds},
};
use toolyard_protocol::WorkspaceId;

/// Clients whose purpose is to show approvals, whatever capabilities they name.
const APPROVER_CLIENTS: [&str; 7] = [
    "openclaw-control-ui",
    "webchat-ui",
    "openclaw-tui",
    "openclaw-macos",
    "openclaw-linux",
    "openclaw-ios",
    "openclaw-android",
];

/// Who a client says it is; shown, never trusted.
#[derive(Debug, Clone, Default)]
pub struct ClientInfo {
    /// The program.
    pub id: String,
    /// What it is used as: `cli`, `ui`, `backend` and so on.
    pub mode: String,
    /// Its version.
    pub version: String,
    /// The operating system it runs on.
    pub platform: String,
    /// The kind of machine.
    pub device_family: Option<String>,
    /// The model of the machine.
    pub model_identifier: Option<String>,
    /// Its time zone.
    pub time_zone: Option<String>,
    /// Its name for people.
    pub display_name: Option<String>,
    /// This instance of the program.
    pub instance_id: Option<String>,
}

impl ClientInfo {
    /// What people call it.
    pub(crate) fn label(&self) -> &str {
        self.display_name.as_deref().unwrap_or(&self.id)
    }
}

/// What a node says it can do: shown by `node.list`, and asked of it where a tool needs an editor.
#[derive(Debug, Clone, Default)]
pub struct NodeSurface {
    /// Commands it runs.
    pub commands: Vec<String>,
    /// What its system allows it, by name.
    pub permissions: Object,
    /// Its `PATH`.
    pub path_env: Option<String>,
}

/// The result of a client's handshake.
#[derive(Debug)]
pub struct Admitted {
    /// The connection.
    pub id: String,
    /// Who it says it is.
    pub client: ClientInfo,
    /// `operator` or `node`.
    pub role: String,
    /// What its credential allows.
    pub scopes: Vec<String>,
    /// What it says it can show.
    pub caps: Vec<String>,
    /// The device that signed, if any.
    pub device: Option<String>,
    /// Where it comes from.
    pub address: IpAddr,
    /// What it can do, where it is a node.
    pub node: Option<Box<NodeSurface>>,
    /// What it may do as a person's browser; absent at the WebSocket door.
    pub console: Option<Rights>,
    /// The workspace that its credential names.
    pub workspace: WorkspaceId,
    /// Which token of the workspace it showed; absent for the gateway's own token and for devices.
    pub token_generation: Option<u64>,
}

/// One connected client; the results of its handshake are read through `Deref`.
pub struct Connection {
    admitted: Admitted,
    /// The name under which its requests are recorded.
    pub principal: String,
    /// Its queue.
    pub outbox: Outbox,
    /// Closes the connection.
    pub stop: CancellationToken,
    pub(crate) online_since: i64,
    heard: LastActivity,
    /// The caller that this connection's credential makes, outside of any session.
    standing: Arc<Caller>,
    last_caller: Mutex<Option<Arc<Caller>>>,
    calls: Mutex<HashMap<String, CancellationToken>>,
    queued_calls: Mutex<HashMap<String, CancellationToken>>,
    pub(crate) watches: Mutex<HashMap<String, CancellationToken>>,
    pub(super) approver: Option<ApproverPresence>,
}

impl Deref for Connection {
    type Target = Admitted;

    fn deref(&self) -> &Admitted {
        &self.admitted
    }
}

impl Connection {
    pub(super) fn new(admitted: Admitted, heard: LastActivity, stop: CancellationToken) -> (Self, Outgoing) {
        let (outbox, outgoing) = Outbox::new();
        let kind = if admitted.console.is_some() { "console" } else { "device" };
        let principal = admitted.device.as_ref().map_or_else(|| "operator".to_owned(), |d| format!("{kind}:{d}"));
        let standing = Caller {
            door: if admitted.console.is_some() { Door::Console } else { Door::Gateway },
            principal,
            agent: "main".to_owned(),
            session: None,
            scopes: admitted.scopes.clone(),
            is_person: admitted.console.is_some_and(Rights::is_person),
            workspace: WorkspaceId::default(),
        };
        let standing = Arc::new(standing.in_workspace(admitted.workspace.clone()));
        let principal = standing.principal.clone();
        let connection = Self {
            stop,
            standing,
            online_since: Timestamp::now().as_millisecond(),
            heard,
            last_caller: Mutex::default(),
            calls: Mutex::default(),
            queued_calls: Mutex::default(),
            watches: Mutex::default(),
            approver: None,
            admitted,
            principal,
            outbox,
        };
        (connection, outgoing)
    }

    /// A client of another node, as a request of that node describes it: its scopes, and nothing that it could be sent.
    pub(crate) fn of_caller(caller: &Caller, stop: CancellationToken) -> Self {
        let admitted = Admitted {
            id: uuid::Uuid::now_v7().to_string(),
            client: ClientInfo::default(),
            role: "operator".to_owned(),
            scopes: caller.scopes.clone(),
            caps: Vec::new(),
            device: None,
            address: IpAddr::from([0, 0, 0, 0]),
            node: None,
            console: None,
            workspace: caller.workspace.clone(),
            token_generation: None,
        };
        let (connection, _) = Self::new(admitted, LastActivity::default(), stop);
        Self { principal: caller.principal.clone(), ..connection }
    }

    /// The caller that requests of this connection act as, in a session. The last one is kept: most connections work
    /// in one session.
    pub(crate) fn caller(&self, agent: &str, session: Option<String>) -> Arc<Caller> {
        let mut last = lock(&self.last_caller);
        if let Some(caller) = last.as_ref().filter(|c| c.agent == agent && c.session == session) {
            return caller.clone();
        }
        let caller = Arc::new(Caller { agent: agent.to_owned(), session, ..Caller::clone(&self.standing) });
        *last = Some(caller.clone());
        caller
    }

    /// A node is identified by its device, or by its connection if it has no device.
    pub(crate) fn node_id(&self) -> &str {
        self.device.as_deref().unwrap_or(&self.id)
    }

    pub(crate) fn has(&self, scope: &str) -> bool {
        holds(&self.scopes, scope)
    }

    /// The caller that this connection's credential makes, outside of any session.
    pub(crate) fn standing(&self) -> &Arc<Caller> {
        &self.standing
    }

    /// Whether this connection's credential meets a demand.
    pub fn may(&self, demand: &Demand) -> Result<(), Refusal> {
        authority::decide(&self.standing, demand)
    }

    /// Whether it is a person's browser.
    pub fn is_console(&self) -> bool {
        self.console.is_some()
    }

    /// Whether the door of this connection carries a method. A person's browser may call what the local socket carries
    /// as well; what its device may do is decided by the method's demand.
    pub fn carries(&self, terms: &Terms) -> bool {
        terms.is_on_gateway() || self.is_console()
    }

    /// Whether this client shows approvals of a kind and may decide them.
    pub(crate) fn shows_approvals(&self, kind: &str) -> bool {
        self.role == "operator"
            && self.has("operator.approvals")
            && (self.is_console()
                || APPROVER_CLIENTS.contains(&self.client.id.as_str())
                || self.caps.iter().any(|cap| {
                    cap == "approvals"
                        || (cap == "exec-approvals" && kind == "exec")
                        || (cap == "plugin-approvals" && kind != "exec")
                }))
    }

    /// Whether nothing has arrived since a ping was sent. A client that connected after the ping counts as heard.
    pub(super) fn silent_since(&self, pinged: Instant) -> bool {
        self.heard.is_before(pinged)
    }

    /// Keeps the token of a call that waits for its place findable by its request id.
    pub fn queue_call(&self, request_id: &str, token: CancellationToken) {
        lock(&self.queued_calls).insert(request_id.to_owned(), token);
    }
    /// Forgets the token of a call that no longer waits.
    pub fn forget_queued_call(&self, request_id: &str) {
        lock(&self.queued_calls).remove(request_id);
    }
    /// The token of a call that waited and is to start now.
    pub(crate) fn queued_call(&self, request_id: &str) -> Option<CancellationToken> {
        lock(&self.queued_calls).remove(request_id)
    }

    /// Keeps a call's token findable by its request id.
    pub(crate) fn start_call(&self, request_id: &str, token: CancellationToken) {
        lock(&self.calls).insert(request_id.to_owned(), token);
    }
    pub(crate) fn end_call(&self, request_id: &str) {
        lock(&self.calls).remove(request_id);
    }
    pub(crate) fn cancel_call(&self, request_id: &str) -> bool {
        let running = lock(&self.calls).get(request_id).cloned();
        let token = running.or_else(|| lock(&self.queued_calls).get(request_id).cloned());
        token.is_some_and(|token| {
            token.cancel();
            true
        })
    }

    /// Backend clients without a device are internal and are not shown.
    pub(super) fn is_shown(&self) -> bool {
        self.device.is_some() || self.client.mode != "backend"
    }

    pub(super) fn presence(&self) -> Presence {
        let client = &self.client;
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Presence {
            host: client.label().to_owned(),
            ip: Some(self.address.to_string()),
            version: client.version.clone(),
            platform: client.platform.clone(),
            mode: client.mode.clone(),
            reason: Cow::Borrowed("connect"),
            roles: vec![self.role.clone()],
            scopes: self.scopes.clone(),
            online_since: self.online_since,
            ts: self.online_since,
            text: format!("Node: {} ({}) · app {} · mode {}", client.id, self.address, client.version, client.mode),
            device_family: given(&client.device_family),
            model_identifier: given(&client.model_identifier),
            time_zone: given(&client.time_zone),
            device_id: given(&self.device),
            instance_id: given(&client.instance_id),
        }
    }
}

/// A client's entry in the presence list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Presence {
    host: String,
    ip: Option<String>,
    version: String,
    platform: String,
    mode: String,
    reason: Cow<'static, str>,
    roles: Vec<String>,
    scopes: Vec<String>,
    online_since: i64,
    ts: i64,
    text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device_family: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model_identifier: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instance_id: Option<String>,
}

/// This gateway's entry in the presence list.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnPresence {
    pub(super) host: String,
    pub(super) version: &'static str,
    pub(super) platform: String,
    pub(super) device_family: String,
    pub(super) mode: &'static str,
    pub(super) reason: &'static str,
    pub(super) instance_id: String,
    pub(super) text: String,
    pub(super) ts: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ip: Option<String>,
}

/// An entry of the presence list: this gateway, or a client.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum PresenceEntry {
    /// This gateway.
    Own(OwnPresence),
    /// A connected client.
    Client(Box<Presence>),
}
