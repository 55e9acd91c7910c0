//! [`Connection`]: one client that is in, what it may do, and how it is shown to others.

use super::{
    Share, lock,
    outbox::{Outbox, Outgoing},
};
use crate::ws::heard::LastHeard;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    net::IpAddr,
    ops::Deref,
    sync::{Arc, Mutex, atomic::AtomicUsize},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use toolyard_engine::{
    Caller, Door,
    approvals::ApproverPresence,
    authority::{self, Demand, Refusal, holds},
};

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
pub(crate) struct ClientInfo {
    pub(crate) id: String,
    pub(crate) mode: String,
    pub(crate) version: String,
    pub(crate) platform: String,
    pub(crate) device_family: Option<String>,
    pub(crate) model_identifier: Option<String>,
    pub(crate) time_zone: Option<String>,
    pub(crate) display_name: Option<String>,
    pub(crate) instance_id: Option<String>,
}

impl ClientInfo {
    /// What people call it.
    pub(crate) fn label(&self) -> &str {
        self.display_name.as_deref().unwrap_or(&self.id)
    }
}

/// What a node says it can do: shown by `node.list`, and asked of it where a tool needs an editor.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeSurface {
    pub(crate) commands: Vec<String>,
    pub(crate) permissions: Map<String, Value>,
    pub(crate) path_env: Option<String>,
}

/// What the handshake found out about a client.
pub(crate) struct Admitted {
    pub(crate) id: String,
    pub(crate) client: ClientInfo,
    pub(crate) role: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) caps: Vec<String>,
    pub(crate) device: Option<String>,
    pub(crate) address: IpAddr,
    /// Only for nodes.
    pub(crate) node: Option<Box<NodeSurface>>,
}

/// One client that is in; what the handshake found out about it is read through `Deref`.
pub(crate) struct Connection {
    admitted: Admitted,
    pub(crate) principal: String,
    pub(crate) outbox: Outbox,
    pub(crate) stop: CancellationToken,
    /// Requests under way in the ordinary and the waiting lane, and in the express lane.
    pub(crate) in_flight: AtomicUsize,
    pub(crate) express_in_flight: AtomicUsize,
    pub(crate) share: Share,
    pub(crate) online_since: i64,
    heard: LastHeard,
    /// The caller that this connection's credential makes, outside of any session.
    standing: Caller,
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
    pub(super) fn new(admitted: Admitted, heard: LastHeard, stop: CancellationToken) -> (Self, Outgoing) {
        let (outbox, outgoing) = Outbox::new();
        let principal = admitted.device.as_ref().map_or_else(|| "operator".to_owned(), |d| format!("device:{d}"));
        let standing = Caller {
            door: Door::Gateway,
            principal: principal.clone(),
            agent: "main".to_owned(),
            session: None,
            scopes: admitted.scopes.clone(),
            is_person: false,
        };
        let connection = Self {
            stop,
            standing,
            in_flight: AtomicUsize::new(0),
            express_in_flight: AtomicUsize::new(0),
            share: Share::new(&principal, &admitted.id),
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

    /// The caller that requests of this connection act as, in a session. The last one is kept: most connections work
    /// in one session.
    pub(crate) fn caller(&self, agent: &str, session: Option<String>) -> Arc<Caller> {
        let mut last = lock(&self.last_caller);
        if let Some(caller) = last.as_ref().filter(|c| c.agent == agent && c.session == session) {
            return caller.clone();
        }
        let caller = Arc::new(Caller { agent: agent.to_owned(), session, ..self.standing.clone() });
        *last = Some(caller.clone());
        caller
    }

    /// A node is known by its device; one without is known only as long as it is connected.
    pub(crate) fn node_id(&self) -> &str {
        self.device.as_deref().unwrap_or(&self.id)
    }

    pub(crate) fn has(&self, scope: &str) -> bool {
        holds(&self.scopes, scope)
    }

    /// The caller that this connection's credential makes, outside of any session.
    pub(crate) fn standing(&self) -> &Caller {
        &self.standing
    }

    /// Whether this connection's credential meets a demand.
    pub(crate) fn may(&self, demand: &Demand) -> Result<(), Refusal> {
        authority::decide(&self.standing, demand)
    }

    /// Whether this client shows approvals of a kind and may decide them.
    pub(crate) fn shows_approvals(&self, kind: &str) -> bool {
        self.role == "operator"
            && self.has("operator.approvals")
            && (APPROVER_CLIENTS.contains(&self.client.id.as_str())
                || self.caps.iter().any(|cap| {
                    cap == "approvals"
                        || (cap == "exec-approvals" && kind == "exec")
                        || (cap == "plugin-approvals" && kind != "exec")
                }))
    }

    /// Whether nothing was heard of it since it was pinged. One that came later was heard when it came.
    pub(super) fn silent_since(&self, pinged: Instant) -> bool {
        self.heard.is_before(pinged)
    }

    /// Keeps the token of a call that waits for its place findable by its request id.
    pub(crate) fn queue_call(&self, request_id: &str, token: CancellationToken) {
        lock(&self.queued_calls).insert(request_id.to_owned(), token);
    }
    pub(crate) fn forget_queued_call(&self, request_id: &str) {
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

    /// Backend clients without a device are machinery and are not shown.
    pub(super) fn is_shown(&self) -> bool {
        self.device.is_some() || self.client.mode != "backend"
    }

    pub(super) fn presence(&self) -> Value {
        let client = &self.client;
        let mut entry = json!({
            "host": client.label(), "ip": self.address.to_string(), "version": client.version,
            "platform": client.platform, "mode": client.mode, "reason": "connect", "roles": [self.role],
            "scopes": self.scopes, "onlineSince": self.online_since, "ts": self.online_since,
            "text": format!("Node: {} ({}) · app {} · mode {}", client.id, self.address, client.version, client.mode),
        });
        for (name, value) in [
            ("deviceFamily", &client.device_family),
            ("modelIdentifier", &client.model_identifier),
            ("timeZone", &client.time_zone),
            ("deviceId", &self.device),
            ("instanceId", &client.instance_id),
        ] {
            if let Some(value) = value.as_ref().filter(|v| !v.is_empty()) {
                entry[name] = value.as_str().into();
            }
        }
        entry
    }
}
