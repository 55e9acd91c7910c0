//! The server side of the Claude bridge: stores its sessions and sends its frames and events. The rules are in
//! `toolyard_bridge::server::Hub`, whose actions this module carries out. The door owns the sockets.
//!
//! Frames for a plugin are queued while the bridge's state is locked, so that their order is kept.

mod calls;
mod methods;
mod owners;
mod queue;

pub use calls::SessionTools;
pub use methods::{
    BehaviorWord, BridgeClose, BridgeInbound, BridgeOpen, BridgeOutbound, BridgePermissionReply, BridgeStatus,
    InboundParams, Message, OpenParams, OutboundParams, Receive, ReplyParams, SessionParams, StatusParams,
};
use queue::Queue;
pub use queue::{BridgeOut, BridgeOutgoing};

use crate::{
    Hub, Object,
    hub::{EventBody, lock},
    sessions::Key,
};
use jiff::Timestamp;
use serde::Serialize;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock},
    time::Instant,
};
use tokio::sync::{mpsc, watch};
use toolyard_bridge::{
    frames::{InboundMessage, OutboundMessage},
    mailbox::MailboxLimits,
    server::{Action, ConnectionId, Hub as Rules, NewSession, QuestionOutcome, SessionTerms, ToolCallRequest},
};
use toolyard_engine::{
    Store,
    authority::{Demand, Effect, Scope},
    store::{Position, StoreError},
};
use toolyard_protocol::WorkspaceId;

/// What the call of a tool by a bridged session demands.
const BRIDGED_CALL: Demand = Demand::new(Some(Scope::Write), Effect::Recorded);

/// The frames that a bridged session sends, and what each demands. None answers a permission question: answers come by
/// `bridge.permission.reply` alone.
pub const BRIDGE_FRAMES: &[(&str, Demand)] = &[
    ("hello", Demand::new(None, Effect::State)),
    ("tool_call", BRIDGED_CALL),
    ("tool_cancel", Demand::new(None, Effect::State)),
    ("permission_request", Demand::new(None, Effect::State)),
    ("outbound_message", Demand::new(None, Effect::State)),
    ("ack", Demand::new(None, Effect::State)),
    ("ping", Demand::new(None, Effect::None)),
    ("pong", Demand::new(None, Effect::None)),
];

/// Open sessions, without their secrets.
const OPENINGS: &str = "bridge.sessions";
/// Messages that wait for Claude.
const INBOX: &str = "bridge.inbox";
/// Claude's last messages to people, by session.
const SAID: &str = "bridge.said";
/// A message from Claude, and its position in the store.
struct QueuedMessage {
    session: String,
    seq: u64,
    message: OutboundMessage,
    kept: Result<Position, StoreError>,
}

/// The bridge of a gateway.
pub(crate) struct Bridge {
    rules: Mutex<Rules>,
    /// Held while a session is opened.
    pub(crate) opening: tokio::sync::Mutex<()>,
    queues: Mutex<HashMap<ConnectionId, Queue>>,
    calls: Mutex<HashMap<(String, String), watch::Sender<bool>>>,
    tools: OnceLock<Arc<dyn SessionTools>>,
    /// Claude's messages, in order, waiting to be stored and then delivered.
    said: mpsc::UnboundedSender<QueuedMessage>,
    /// The receiving end, until the delivering task takes it.
    queued_messages: Mutex<Option<mpsc::UnboundedReceiver<QueuedMessage>>>,
    limits: MailboxLimits,
    began: Instant,
}

impl Bridge {
    pub(crate) fn new(limits: MailboxLimits) -> Self {
        let (said, queued_messages) = mpsc::unbounded_channel();
        Self {
            rules: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            queues: Mutex::default(),
            calls: Mutex::default(),
            tools: OnceLock::new(),
            said,
            queued_messages: Mutex::new(Some(queued_messages)),
            limits,
            began: Instant::now(),
        }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }
}

impl Hub {
    /// Restores the sessions and messages that were open when the last process ended.
    pub(crate) fn restore_bridge(&self) {
        if self.service().cluster().is_some() {
            return self.restore_unowned();
        }
        let store = self.service().engine().store().clone();
        let kept = || Ok::<_, StoreError>((store.list(OPENINGS)?, store.list(INBOX)?, store.list(SAID)?));
        let (openings, inbox, said) = match kept() {
            Ok(kept) => kept,
            Err(error) => return tracing::error!(%error, "the bridge's sessions cannot be read"),
        };
        let mut hub = lock(&self.inner.bridge.rules);
        for opening in openings.iter().filter_map(|(_, bytes)| serde_json::from_slice::<SessionTerms>(bytes).ok()) {
            hub.open(NewSession { opening, limits: self.inner.bridge.limits });
        }
        // Ids sort by time, and so do the keys of one session.
        for (key, bytes) in inbox {
            let session = key.rsplit_once('\n').map(|(session, _)| session).unwrap_or_default();
            if let Ok(message) = serde_json::from_slice::<InboundMessage>(&bytes) {
                hub.restore(session, message);
            }
        }
        // Numbers are written with zeros in front, so that these sort too.
        for (key, bytes) in said {
            if let Some((session, seq)) = key.rsplit_once('\n')
                && let (Ok(seq), Ok(message)) = (seq.parse(), serde_json::from_slice::<OutboundMessage>(&bytes))
            {
                hub.restore_outbound(session, seq, message);
            }
        }
    }

    /// Opens a session for a plugin, durably. The secret is returned once and not stored.
    pub(crate) async fn open_bridge(&self, opening: SessionTerms) -> Result<(), StoreError> {
        let store = self.service().engine().store();
        let bytes = serde_json::to_vec(&opening).map_err(|e| StoreError::failed(e.to_string()))?;
        let position = store.put(OPENINGS, &opening.session, bytes, None)?;
        store.durable(position).await?;
        let limits = self.inner.bridge.limits;
        lock(&self.inner.bridge.rules).open(NewSession { opening, limits });
        Ok(())
    }

    /// Closes a session. False when it was not open.
    pub(crate) async fn close_bridge(&self, session: &str) -> Result<bool, StoreError> {
        let store = self.service().engine().store();
        let position = store.remove(OPENINGS, session)?;
        self.disown_bridge(session)?;
        let was_open = self.with_bridge(|hub| match hub.close(session) {
            Some(actions) => (true, actions),
            None => (false, Vec::new()),
        });
        store.durable(position).await?;
        Ok(was_open)
    }

    /// Reads the hub's state.
    pub(crate) fn see_bridge<T>(&self, look: impl FnOnce(&Rules) -> T) -> T {
        look(&lock(&self.inner.bridge.rules))
    }

    /// Passes an event to the hub and carries out the resulting actions.
    pub(crate) fn with_bridge<T>(&self, tell: impl FnOnce(&mut Rules) -> (T, Vec<Action>)) -> T {
        self.with_bridge_kept(tell).0
    }

    /// The same, and returns the store position of what was stored, so that the caller can wait until it is durable.
    pub(crate) fn with_bridge_kept<T>(
        &self,
        tell: impl FnOnce(&mut Rules) -> (T, Vec<Action>),
    ) -> (T, Option<Result<Position, StoreError>>) {
        let mut kept = None;
        let (answer, rest) = {
            let mut hub = lock(&self.inner.bridge.rules);
            let (answer, actions) = tell(&mut hub);
            let queues = lock(&self.inner.bridge.queues);
            let mut rest = Vec::new();
            for action in actions {
                match action {
                    Action::Send { to, frame, receipt } => {
                        if let Some(queue) = queues.get(&to) {
                            queue.put(BridgeOut::Frame { text: frame, receipt });
                        }
                    }
                    Action::Close { to, code, reason } => {
                        if let Some(queue) = queues.get(&to) {
                            queue.put(BridgeOut::Close(code, reason));
                        }
                    }
                    // Store operations follow the hub's order too: a message is stored before it is removed.
                    Action::Keep { session, message } => kept = Some(self.keep(&session, &message)),
                    Action::Outbound { session, seq, message } => self.keep_said(session, seq, message),
                    Action::ForgetSaid { session, seq } => {
                        self.warn_store(self.store().remove(SAID, &said_key(&session, seq)).map(drop));
                    }
                    Action::Forget { session, request_id } => {
                        self.warn_store(self.store().remove(INBOX, &format!("{session}\n{request_id}")).map(drop));
                    }
                    other => rest.push(other),
                }
            }
            (answer, rest)
        };
        for action in rest {
            self.carry_out(action);
        }
        (answer, kept)
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.service().engine().store()
    }

    fn keep(&self, session: &str, message: &InboundMessage) -> Result<Position, StoreError> {
        let bytes = serde_json::to_vec(message).map_err(|e| StoreError::failed(e.to_string()))?;
        self.store().put(INBOX, &format!("{session}\n{}", message.request_id), bytes, None)
    }

    fn keep_said(&self, session: String, seq: u64, message: OutboundMessage) {
        let bytes = serde_json::to_vec(&message).map_err(|e| StoreError::failed(e.to_string()));
        let kept = bytes.and_then(|bytes| self.store().put(SAID, &said_key(&session, seq), bytes, None));
        if self.inner.bridge.said.send(QueuedMessage { session, seq, message, kept }).is_err() {
            tracing::error!("a message of Claude is stored and not delivered: the gateway is stopping");
        }
    }

    /// Delivers Claude's messages to people and confirms them to Claude, in order, after each is durable.
    pub(crate) async fn tell_said(self) {
        let Some(mut queued_messages) = lock(&self.inner.bridge.queued_messages).take() else { return };
        loop {
            let saying = tokio::select! {
                saying = queued_messages.recv() => saying,
                () = self.inner.stop.cancelled() => return,
            };
            let Some(QueuedMessage { session, seq, message, kept }) = saying else { return };
            let kept = match kept {
                Ok(position) => self.store().durable(position).await,
                Err(error) => Err(error),
            };
            if kept.is_ok() {
                let said = OutboundEvent {
                    session_key: &session,
                    seq,
                    chat_id: &message.chat_id,
                    text: &message.text,
                    reply_to: message.reply_to.as_deref(),
                    files: &message.files,
                    request_id: message.permission.as_deref(),
                    ts: Timestamp::now().as_millisecond(),
                };
                let scope = if message.permission.is_some() { "operator.approvals" } else { "operator.read" };
                self.tell(&session, "bridge.outbound", &said, scope);
            }
            let kept = kept.map_err(|error| format!("the message could not be kept, and was not sent: {error}"));
            self.with_bridge(|hub| ((), hub.outbound_stored(&session, seq, kept)));
        }
    }

    fn warn_store(&self, outcome: Result<(), StoreError>) {
        if let Err(error) = outcome {
            tracing::error!(%error, "a message of the bridge is only in memory: the store does not take it");
        }
    }

    fn carry_out(&self, action: Action) {
        match action {
            Action::Welcome { to, session } => {
                let hub = self.clone();
                tokio::spawn(async move {
                    let offer = hub.bridged_offer(&session).await;
                    hub.with_bridge(|rules| ((), rules.welcome(to, offer)));
                });
            }
            Action::Call(order) => self.start_bridged_call(order),
            Action::Cancel { session, call_id } => {
                if let Some(stop) = lock(&self.inner.bridge.calls).get(&(session, call_id)) {
                    stop.send_replace(true);
                }
            }
            Action::Asked { session, question, closes_at } => {
                let left = closes_at.saturating_sub(self.inner.bridge.now());
                let now = Timestamp::now().as_millisecond();
                let asked = PermissionRequestedEvent {
                    session_key: &session,
                    request_id: &question.request_id,
                    tool: &question.tool,
                    args: &question.args,
                    rationale: &question.rationale,
                    input_preview: question.input_preview.as_deref(),
                    created_at_ms: now,
                    expires_at_ms: now.saturating_add_unsigned(left),
                };
                self.tell(&session, "bridge.permission.requested", &asked, "operator.approvals");
            }
            Action::QuestionClosed { session, request_id, how } => {
                let (decision, by) = match how {
                    QuestionOutcome::Answered { behavior, by } => (behavior.as_str(), Some(by)),
                    QuestionOutcome::Expired => ("expired", None),
                    QuestionOutcome::Withdrawn => ("withdrawn", None),
                };
                let ts = Timestamp::now().as_millisecond();
                let settled = PermissionResolvedEvent { session_key: session.clone(), request_id, decision, by, ts };
                self.tell(&session, "bridge.permission.resolved", &settled, "operator.approvals");
            }
            Action::Dropped { session, request_id } => {
                tracing::warn!(session, request_id, "the oldest message for Claude was dropped: too many wait");
                let dropped = DroppedEvent { session_key: session.clone(), request_id };
                self.tell(&session, "bridge.dropped", &dropped, "operator.read");
            }
            Action::Presence { session, connected } => {
                let joined = ConnectionEvent { session_key: session.clone(), connected };
                self.tell(&session, "bridge.connection", &joined, "operator.read");
            }
            // Carried out in the hub's order.
            Action::Send { .. }
            | Action::Close { .. }
            | Action::Keep { .. }
            | Action::Forget { .. }
            | Action::Outbound { .. }
            | Action::ForgetSaid { .. } => {}
        }
    }

    /// Sends an event of a session to the clients of its workspace.
    fn tell(&self, session: &str, event: &'static str, payload: &impl Serialize, scope: &str) {
        let (body, (workspace, _)) = (EventBody::new(event, payload), WorkspaceId::of(session));
        self.tell_everywhere(&workspace, &body, scope);
        self.broadcast_in(&workspace, body, |c| c.role == "operator" && c.has(scope));
    }

    /// Starts a call. It continues if the plugin disconnects; its result is recorded either way.
    fn start_bridged_call(&self, order: ToolCallRequest) {
        let (stop, stopped) = watch::channel(false);
        let place = (order.session.clone(), order.call_id.clone());
        lock(&self.inner.bridge.calls).insert(place.clone(), stop);
        let hub = self.clone();
        tokio::spawn(async move {
            let outcome = hub.bridged_call(order, stopped).await;
            let (session, call_id) = &place;
            lock(&hub.inner.bridge.calls).remove(&place);
            hub.with_bridge(|rules| ((), rules.call_done(session, call_id, outcome)));
        });
    }

    /// Notifies plugins when tools are added or removed.
    pub(crate) async fn tell_bridge_tools(self) {
        let mut changes = self.service().engine().watch_tools();
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = self.inner.stop.cancelled() => return,
            }
            for session in self.see_bridge(Rules::connected_sessions) {
                let offer = self.bridged_offer(&session).await;
                self.with_bridge(|hub| ((), hub.tools_changed(&session, offer.tools)));
            }
        }
    }
}

/// The agent of a session's key.
fn agent_of(session: &str) -> String {
    Key::agent_of(session)
}

fn said_key(session: &str, seq: u64) -> String {
    format!("{session}\n{seq:020}")
}

/// The event `bridge.outbound`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OutboundEvent<'a> {
    session_key: &'a str,
    seq: u64,
    chat_id: &'a str,
    text: &'a str,
    reply_to: Option<&'a str>,
    files: &'a [String],
    request_id: Option<&'a str>,
    ts: i64,
}

/// The event `bridge.permission.requested`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PermissionRequestedEvent<'a> {
    session_key: &'a str,
    request_id: &'a str,
    tool: &'a str,
    args: &'a Object,
    rationale: &'a str,
    input_preview: Option<&'a str>,
    created_at_ms: i64,
    expires_at_ms: i64,
}

/// The event `bridge.permission.resolved`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PermissionResolvedEvent {
    session_key: String,
    request_id: String,
    decision: &'static str,
    by: Option<String>,
    ts: i64,
}

/// The event `bridge.dropped`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DroppedEvent {
    session_key: String,
    request_id: String,
}

/// The event `bridge.connection`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConnectionEvent {
    session_key: String,
    connected: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolyard_bridge::frames::FromPlugin;

    /// The name of a frame's type. A new frame type does not compile until it is named here.
    fn frame_name(frame: &FromPlugin) -> Option<&'static str> {
        Some(match frame {
            FromPlugin::Hello(_) => "hello",
            FromPlugin::ToolCall { .. } => "tool_call",
            FromPlugin::ToolCancel { .. } => "tool_cancel",
            FromPlugin::PermissionRequest(_) => "permission_request",
            FromPlugin::OutboundMessage(_) => "outbound_message",
            FromPlugin::Ack { .. } => "ack",
            FromPlugin::Ping { .. } => "ping",
            FromPlugin::Pong { .. } => "pong",
            FromPlugin::Unknown => return None,
        })
    }

    #[test]
    fn every_frame_of_a_bridged_session_is_declared() {
        for (name, demand) in BRIDGE_FRAMES {
            assert!(demand.uses.is_empty() && demand.may_use.is_empty(), "{name}");
            // A frame without its fields is read as its own type or refused for the missing fields.
            let read = serde_json::from_value::<FromPlugin>(serde_json::json!({"type": name}));
            assert!(read.as_ref().ok().and_then(frame_name).is_none_or(|own| own == *name), "{name}");
            assert!(!matches!(read, Ok(FromPlugin::Unknown)), "{name} is no frame");
        }
    }
}
