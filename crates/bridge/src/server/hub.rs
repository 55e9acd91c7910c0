//! [`Hub`]: turns events of connections and sessions into actions.

use super::{
    Action, CallFailure, ConnectionId, Offer, ToolCallRequest,
    session::{BoundConnection, NewSession, Session, SessionTerms, SessionView},
};
use crate::{
    frames::{
        self, Behavior, FromPlugin, FromServer, HEARTBEAT_MS, HELLO_WITHIN_MS, Hello, InboundMessage,
        MAX_CONTENT_BYTES, MAX_FRAME_BYTES, MAX_HELLO_BYTES, MAX_ID_BYTES, MAX_IN_FLIGHT, OutboundMessage, PROTOCOL,
        close,
    },
    verdict,
};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use subtle::ConstantTimeEq;

/// The number of unanswered pings after which a plugin is considered disconnected.
const MAX_MISSED: u32 = 2;

/// All sessions and connections of one bridge.
#[derive(Debug, Default)]
pub struct Hub {
    sessions: HashMap<String, Session>,
    /// The session that each open session's secret belongs to, by the secret's digest.
    secrets: HashMap<String, String>,
    connections: HashMap<ConnectionId, Connection>,
    next: u64,
}

#[derive(Debug)]
struct Connection {
    since: u64,
    /// Set by `hello`.
    session: Option<String>,
    pinged_at: u64,
    /// Pings since the last frame from the plugin.
    unanswered: u32,
    /// The connection was asked to close: its further frames are ignored.
    is_closing: bool,
}

/// What a caller may do with Claude Code's permission questions. The door decides this from the caller's scopes, never
/// from the sender in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalRole {
    /// The caller holds `operator.approvals`: it sees the questions, and a verdict that it passes on counts.
    Approver,
    /// Any other client: its messages are passed on, its verdicts are refused, and it is not shown questions.
    Messenger,
}

/// The result of a message for Claude.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InboundOutcome {
    /// The message was sent, or waits for the plugin.
    Message {
        /// Whether it was sent at once.
        sent: bool,
    },
    /// It answered a question and goes no further.
    Verdict(PermissionOutcome),
}

/// The outcome of an answer in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionOutcome {
    /// The answer counts.
    Counted(Behavior),
    /// The sender may not answer.
    NotAllowed,
    /// The client that passed the message on may not pass on verdicts. The question is not looked up, so that ids
    /// cannot be guessed in this way.
    NeedsApprover,
    /// The question is closed.
    TooLate,
}

/// Why an answer does not count, or a session does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyError {
    /// The session is not open.
    UnknownSession,
    /// The question was never open, or is closed: an answer counts once, in time, and while the plugin is connected.
    NotOpen,
}

impl Hub {
    /// Opens a session. A session that is already open gets the new secret and keeps its mailbox and its plugin.
    pub fn open(&mut self, new: NewSession) {
        if let Some(session) = self.sessions.get(&new.opening.session) {
            self.secrets.remove(&session.opening.token_sha256);
        }
        self.secrets.insert(new.opening.token_sha256.clone(), new.opening.session.clone());
        match self.sessions.get_mut(&new.opening.session) {
            Some(session) => session.opening = new.opening,
            None => {
                self.sessions.insert(new.opening.session.clone(), Session::new(new));
            }
        }
    }

    /// Restores a message that was stored when the last process ended.
    pub fn restore(&mut self, session: &str, message: InboundMessage) {
        if let Some(session) = self.sessions.get_mut(session) {
            session.mailbox.put(message);
        }
    }

    /// Restores Claude's messages from before a restart, in order.
    pub fn restore_outbound(&mut self, session: &str, seq: u64, message: OutboundMessage) {
        if let Some(session) = self.sessions.get_mut(session) {
            session.restore_outbound(seq, message);
        }
    }

    /// Closes a session. Its plugin receives the close code for an unknown session.
    pub fn close(&mut self, session: &str) -> Option<Vec<Action>> {
        let (mut gone, mut actions) = self.take_out(session, close::UNKNOWN_SESSION, "the session was closed")?;
        for message in gone.mailbox.take_unsent() {
            actions.push(Action::Forget { session: session.to_owned(), request_id: message.request_id });
        }
        let forgotten = gone.outbound_numbers().into_iter();
        actions.extend(forgotten.map(|seq| Action::ForgetSaid { session: session.to_owned(), seq }));
        Some(actions)
    }

    /// Ends a session here because another server has it from now on. Its messages stay where they are kept, and its
    /// plugin is to connect again. `None` if it is not open.
    pub fn hand_over(&mut self, session: &str) -> Option<Vec<Action>> {
        self.take_out(session, close::GOING_AWAY, "another node has the session").map(|(_, actions)| actions)
    }

    fn take_out(&mut self, session: &str, code: u16, reason: &'static str) -> Option<(Session, Vec<Action>)> {
        let mut gone = self.sessions.remove(session)?;
        self.secrets.remove(&gone.opening.token_sha256);
        let mut actions = Vec::new();
        let bound = gone.bound.as_ref().map(|b| b.connection);
        gone.unbind(&mut actions);
        if let Some(connection) = bound {
            self.end(connection, code, reason, &mut actions);
        }
        Some((gone, actions))
    }

    /// How many sessions are open.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether no session is open.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Whether a session is open.
    pub fn is_open(&self, session: &str) -> bool {
        self.sessions.contains_key(session)
    }

    /// The users who may answer a session's questions in words; empty if the session is not open.
    pub fn allowed_senders(&self, session: &str) -> Vec<String> {
        self.sessions.get(session).map(|s| s.opening.allowed_senders.clone()).unwrap_or_default()
    }

    /// The metadata of a session: agent, channel, chat, user. Empty if the session is not open.
    pub fn session_meta(&self, session: &str) -> Map<String, Value> {
        self.sessions.get(session).map(|s| s.opening.meta.clone()).unwrap_or_default()
    }

    /// A session, or all of them by name. The questions themselves are shown to approvers alone.
    pub fn view(&self, session: Option<&str>, to: ApprovalRole) -> Vec<SessionView> {
        let mut views: Vec<SessionView> = self
            .sessions
            .values()
            .filter(|s| session.is_none_or(|name| name == s.opening.session))
            .map(|s| s.view(to))
            .collect();
        views.sort_by(|a, b| a.session_key.cmp(&b.session_key));
        views
    }

    /// Claude's messages after a number. Posted questions are shown to approvers only.
    pub fn outbound_after(&self, session: &str, seq: u64, to: ApprovalRole) -> Option<Vec<(u64, OutboundMessage)>> {
        let mut said = self.sessions.get(session)?.outbound_after(seq);
        said.retain(|(_, message)| to == ApprovalRole::Approver || message.permission.is_none());
        Some(said)
    }

    /// A plugin connected.
    pub fn connected(&mut self, now: u64) -> ConnectionId {
        self.next += 1;
        let id = ConnectionId(self.next);
        let connection = Connection { since: now, session: None, pinged_at: now, unanswered: 0, is_closing: false };
        self.connections.insert(id, connection);
        id
    }

    /// Removes a closed connection.
    pub fn disconnected(&mut self, id: ConnectionId) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(connection) = self.connections.remove(&id) {
            self.release(id, connection.session.as_deref(), &mut actions);
        }
        actions
    }

    fn release(&mut self, id: ConnectionId, session: Option<&str>, actions: &mut Vec<Action>) {
        if let Some(session) = session.and_then(|name| self.sessions.get_mut(name))
            && session.bound.as_ref().is_some_and(|b| b.connection == id)
        {
            session.unbind(actions);
        }
    }

    fn end(&mut self, id: ConnectionId, code: u16, reason: &'static str, actions: &mut Vec<Action>) {
        let Some(connection) = self.connections.get_mut(&id).filter(|c| !c.is_closing) else { return };
        connection.is_closing = true;
        let session = connection.session.take();
        self.release(id, session.as_deref(), actions);
        actions.push(Action::Close { to: id, code, reason });
    }

    /// Handles a text frame.
    pub fn text(&mut self, id: ConnectionId, text: &str, now: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        let Some(connection) = self.connections.get_mut(&id).filter(|c| !c.is_closing) else { return actions };
        connection.unanswered = 0;
        let limit = if connection.session.is_some() { MAX_FRAME_BYTES } else { MAX_HELLO_BYTES };
        if text.len() > limit {
            self.end(id, close::TOO_BIG, "the frame is too big", &mut actions);
            return actions;
        }
        let frame = frames::read::<FromPlugin>(text);
        match (connection.session.clone(), frame) {
            (None, Ok(FromPlugin::Hello(hello))) => self.hello(id, hello, now, &mut actions),
            (None, _) => self.end(id, close::NOT_HELLO, "the first frame must be hello", &mut actions),
            (Some(session), Ok(frame)) => self.frame(id, &session, frame, now, &mut actions),
            (Some(session), Err(error)) => {
                // One invalid frame does not close the connection.
                tracing::warn!(session, error, "a frame from the plugin cannot be read");
            }
        }
        actions
    }

    fn hello(&mut self, id: ConnectionId, hello: Hello, now: u64, actions: &mut Vec<Action>) {
        // The secret is checked first. A client without a valid secret learns nothing about which sessions exist: an
        // unknown session is compared like a known one, and both fail with the same code and message.
        let digest = SessionTerms::digest(&hello.token);
        let session = self.sessions.get(&hello.openclaw_session);
        let known = session.map_or(NO_DIGEST, |session| session.opening.token_sha256.as_str());
        if !same_digest(&digest, known) {
            let (code, reason) = if self.secrets.contains_key(&digest) {
                (close::UNKNOWN_SESSION, "the token belongs to another session")
            } else {
                (close::BAD_TOKEN, "bad token")
            };
            return self.end(id, code, reason, actions);
        }
        let older = session.and_then(|session| session.bound.clone());
        if let Some(held) = &older
            && held.pid == hello.pid
            && held.claude_session == hello.claude_session
            && let (Some(there), Some(here)) = (held.attempt, hello.attempt)
            && here < there
        {
            // The frame was delayed for so long that the same plugin has reconnected meanwhile.
            return self.end(id, close::SUPERSEDED, "superseded by a newer connection", actions);
        }
        if let Some(older) = older {
            self.end(older.connection, close::SUPERSEDED, "superseded by a newer connection", actions);
        }
        let Some(session) = self.sessions.get_mut(&hello.openclaw_session) else { return };
        session.bound = Some(BoundConnection {
            connection: id,
            acks: hello.acks,
            is_welcome: false,
            pid: hello.pid,
            claude_session: hello.claude_session,
            attempt: hello.attempt,
        });
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.session = Some(hello.openclaw_session.clone());
            connection.pinged_at = now;
        }
        actions.push(Action::Welcome { to: id, session: hello.openclaw_session });
    }

    /// Whether a connection has shown its session's secret.
    pub fn is_bound(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(|c| c.session.is_some() && !c.is_closing)
    }

    /// The tools of a session whose plugin sent `hello`: accepts it and sends it the waiting messages.
    pub fn welcome(&mut self, id: ConnectionId, offer: Offer) -> Vec<Action> {
        let mut actions = Vec::new();
        let Offer { tools, instructions } = offer;
        let Some(session) = self.session_of(id) else { return actions };
        let Some(bound) = session.bound.as_mut().filter(|b| !b.is_welcome) else { return actions };
        bound.is_welcome = true;
        let mut session_meta = session.opening.meta.clone();
        for (key, value) in [
            ("protocol", json!(PROTOCOL)),
            ("openclaw_session", json!(session.opening.session)),
            ("heartbeat_ms", json!(HEARTBEAT_MS)),
            ("limits", json!({"max_frame": MAX_FRAME_BYTES, "max_inflight": MAX_IN_FLIGHT})),
            ("outbound", json!(true)),
        ] {
            session_meta.insert(key.to_owned(), value);
        }
        if let Some(text) = instructions {
            session_meta.insert("instructions".to_owned(), text.into());
        }
        actions.push(send_tools(id, tools, |tools| FromServer::HelloAck { tools, session_meta: session_meta.clone() }));
        actions.push(Action::Presence { session: session.opening.session.clone(), connected: true });
        flush(session, &mut actions);
        actions
    }

    fn session_of(&mut self, id: ConnectionId) -> Option<&mut Session> {
        let name = self.connections.get(&id).filter(|c| !c.is_closing)?.session.as_ref()?;
        self.sessions.get_mut(name).filter(|s| s.bound.as_ref().is_some_and(|b| b.connection == id))
    }

    fn frame(&mut self, id: ConnectionId, name: &str, frame: FromPlugin, now: u64, actions: &mut Vec<Action>) {
        let Some(session) = self.session_of(id) else { return };
        match frame {
            // A second hello on the same connection has no effect.
            FromPlugin::Hello(_) | FromPlugin::Pong { .. } | FromPlugin::Unknown => {}
            FromPlugin::Ping { ts } => actions.push(send(id, &FromServer::Pong { ts })),
            FromPlugin::Ack { request_id } => confirm(session, request_id, actions),
            FromPlugin::ToolCancel { call_id } => {
                if session.calls.contains(&call_id) {
                    actions.push(Action::Cancel { session: name.to_owned(), call_id });
                }
            }
            FromPlugin::ToolCall { call_id, tool, args } => {
                if let Some(refused) = refuse_call(session, &call_id) {
                    return actions.push(send(id, &failed(call_id, refused)));
                }
                // The call was sent twice while it runs: it has one result, which is sent when it is ready.
                if session.calls.insert(call_id.clone())
                    && let Some(bound) = &session.bound
                {
                    let once = format!("bridge:{}:{}:{call_id}", bound.claude_session, bound.pid);
                    actions.push(Action::Call(ToolCallRequest { session: name.to_owned(), call_id, once, tool, args }));
                }
            }
            FromPlugin::PermissionRequest(question) => {
                if verdict::is_request_id(&question.request_id) {
                    session.ask(question, now, actions);
                } else {
                    tracing::warn!(session = name, "a permission question without a proper id is ignored");
                }
            }
            FromPlugin::OutboundMessage(message) => {
                let message = OutboundMessage { permission: None, ..message };
                let call_id = message.call_id.clone();
                let too_long = message.text.len() > MAX_CONTENT_BYTES;
                if let Some(refused) = bad_id(&call_id) {
                    actions.push(send(id, &failed(call_id, refused)));
                } else if too_long {
                    let refused = format!("the text is longer than {MAX_CONTENT_BYTES} bytes");
                    actions.push(send(id, &failed(call_id, refused)));
                } else {
                    // Answered by `outbound_stored`, once it is durable.
                    session.say(message, actions);
                }
            }
        }
    }

    /// A message of Claude is durable, or could not be stored: the plugin that sent it is notified.
    pub fn outbound_stored(&mut self, session: &str, seq: u64, kept: Result<(), String>) -> Vec<Action> {
        let Some(session) = self.sessions.get_mut(session) else { return Vec::new() };
        let Some(call_id) = session.outbound_stored(seq, kept.is_ok()) else { return Vec::new() };
        let Some((to, _)) = session.welcome_connection() else { return Vec::new() };
        let answer = match kept {
            Ok(()) => FromServer::ToolResult { call_id, ok: true, result: Some(json!({"sent": true})), error: None },
            Err(why) => failed(call_id, why),
        };
        vec![send(to, &answer)]
    }

    /// The outcome of a call. Nobody is notified if the plugin that made it is gone.
    pub fn call_done(&mut self, session: &str, call_id: &str, outcome: Result<Value, CallFailure>) -> Vec<Action> {
        let Some(session) = self.sessions.get_mut(session) else { return Vec::new() };
        if !session.calls.remove(call_id) {
            return Vec::new();
        }
        let Some((to, _)) = session.welcome_connection() else { return Vec::new() };
        let frame = match outcome {
            Ok(result) => {
                FromServer::ToolResult { call_id: call_id.to_owned(), ok: true, result: Some(result), error: None }
            }
            Err(failure) => FromServer::ToolResult {
                call_id: call_id.to_owned(),
                ok: false,
                result: failure.result,
                error: Some(failure.text),
            },
        };
        let mut text = frames::write(&frame);
        if text.len() > MAX_FRAME_BYTES {
            let error = format!("the result has {} bytes; the bridge carries at most {MAX_FRAME_BYTES}", text.len());
            text = frames::write(&failed(call_id.to_owned(), error));
        }
        vec![Action::Send { to, frame: text, receipt: None }]
    }

    /// A frame with a receipt is written. Where the plugin confirms by itself, that is waited for instead.
    pub fn written(&mut self, id: ConnectionId, receipt: &str) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(session) = self.session_of(id) {
            confirm(session, receipt.to_owned(), &mut actions);
        }
        actions
    }

    /// A message to Claude, or an answer in words to a permission question. An answer counts if both the client that
    /// passes it on and the sender that it names may answer.
    pub fn inbound(
        &mut self,
        session: &str,
        message: InboundMessage,
        from: ApprovalRole,
    ) -> Result<(InboundOutcome, Vec<Action>), ReplyError> {
        let held = self.sessions.get_mut(session).ok_or(ReplyError::UnknownSession)?;
        let mut actions = Vec::new();
        let verdict = verdict::read(&message.content);
        if from == ApprovalRole::Messenger {
            // While no question is open, a text such as "yes maybe" is a message.
            if verdict.is_some() && held.has_questions() {
                return Ok((InboundOutcome::Verdict(PermissionOutcome::NeedsApprover), actions));
            }
        } else if let Some((behavior, id)) = verdict
            && (held.is_open(&id) || held.was_open(&id))
        {
            // The sender decides, not the chat: otherwise everybody in a chat room could approve.
            let permitted = if let Some(sender) = held.approving_sender(&message.meta) {
                match self.permission_reply(session, &id, behavior, &format!("sender:{sender}")) {
                    Ok(more) => {
                        actions.extend(more);
                        PermissionOutcome::Counted(behavior)
                    }
                    Err(_) => PermissionOutcome::TooLate,
                }
            } else {
                PermissionOutcome::NotAllowed
            };
            return Ok((InboundOutcome::Verdict(permitted), actions));
        }
        // Questions are posted where somebody wrote who may answer them. Anybody else would have them, with the arguments of
        // Claude's tools, posted in a chat of their own.
        if from == ApprovalRole::Approver
            && held.approving_sender(&message.meta).is_some()
            && let Some(chat) = message.meta.get("chat_id").and_then(Value::as_str)
        {
            held.last_chat = Some(chat.to_owned());
        }
        actions.push(Action::Keep { session: session.to_owned(), message: message.clone() });
        for request_id in held.mailbox.put(message) {
            held.dropped += 1;
            actions.push(Action::Forget { session: session.to_owned(), request_id: request_id.clone() });
            actions.push(Action::Dropped { session: session.to_owned(), request_id });
        }
        let sent = held.welcome_connection().is_some();
        flush(held, &mut actions);
        Ok((InboundOutcome::Message { sent }, actions))
    }

    /// A person's answer. It counts once.
    pub fn permission_reply(
        &mut self,
        session: &str,
        request_id: &str,
        behavior: Behavior,
        by: &str,
    ) -> Result<Vec<Action>, ReplyError> {
        let session = self.sessions.get_mut(session).ok_or(ReplyError::UnknownSession)?;
        let (to, _) = session.welcome_connection().ok_or(ReplyError::NotOpen)?;
        let mut actions = Vec::new();
        if !session.answer(request_id, behavior, by, &mut actions) {
            return Err(ReplyError::NotOpen);
        }
        actions.push(send(to, &FromServer::PermissionReply { request_id: request_id.to_owned(), behavior }));
        Ok(actions)
    }

    /// Sessions with a connected plugin, which are notified of changed tools.
    pub fn connected_sessions(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .sessions
            .values()
            .filter(|s| s.welcome_connection().is_some())
            .map(|s| s.opening.session.clone())
            .collect();
        names.sort();
        names
    }

    /// A session's tools have changed.
    pub fn tools_changed(&mut self, session: &str, tools: Vec<Value>) -> Vec<Action> {
        let to = self.sessions.get(session).and_then(Session::welcome_connection);
        to.map(|(to, _)| send_tools(to, tools, |tools| FromServer::ToolsChanged { tools })).into_iter().collect()
    }

    /// Checks the timeouts of a connection: `hello`, heartbeats and questions. Call it about every second.
    pub fn tick(&mut self, id: ConnectionId, now: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        let Some(connection) = self.connections.get_mut(&id).filter(|c| !c.is_closing) else { return actions };
        let Some(name) = connection.session.clone() else {
            if now.saturating_sub(connection.since) >= HELLO_WITHIN_MS {
                self.end(id, close::NO_HELLO, "no hello in time", &mut actions);
            }
            return actions;
        };
        if now.saturating_sub(connection.pinged_at) >= HEARTBEAT_MS {
            if connection.unanswered >= MAX_MISSED {
                self.end(id, close::HEARTBEAT_LOST, "two pings were not answered", &mut actions);
                return actions;
            }
            connection.pinged_at = now;
            connection.unanswered += 1;
            if self.session_of(id).is_some_and(|s| s.welcome_connection().is_some()) {
                actions.push(send(id, &FromServer::Ping { ts: json!(now) }));
            }
        }
        if let Some(session) = self.sessions.get_mut(&name) {
            session.expire(now, &mut actions);
        }
        actions
    }
}

/// The digest that is compared for an unknown session; no secret has it.
const NO_DIGEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Whether two digests are equal, compared in constant time.
fn same_digest(shown: &str, known: &str) -> bool {
    shown.as_bytes().ct_eq(known.as_bytes()).into()
}

fn send(to: ConnectionId, frame: &FromServer) -> Action {
    Action::Send { to, frame: frames::write(frame), receipt: None }
}

/// A frame with tools. More of them than a frame carries are cut off at the end, with a warning.
fn send_tools(to: ConnectionId, mut tools: Vec<Value>, frame: impl Fn(Vec<Value>) -> FromServer) -> Action {
    loop {
        let text = frames::write(&frame(tools.clone()));
        if text.len() <= MAX_FRAME_BYTES || tools.is_empty() {
            return Action::Send { to, frame: text, receipt: None };
        }
        let kept = tools.len() / 2;
        tracing::warn!(tools = tools.len(), kept, "a session's tools do not fit into a frame; use Tool Search");
        tools.truncate(kept);
    }
}

fn failed(call_id: String, error: String) -> FromServer {
    FromServer::ToolResult { call_id, ok: false, result: None, error: Some(error) }
}

/// Sends the messages that have not been sent on this connection.
fn flush(session: &mut Session, actions: &mut Vec<Action>) {
    let Some((to, acks)) = session.welcome_connection() else { return };
    for message in session.mailbox.take_unsent() {
        let receipt = (!acks).then(|| message.request_id.clone());
        actions.push(Action::Send { to, frame: frames::write(&FromServer::InboundMessage(message)), receipt });
    }
}

fn confirm(session: &mut Session, request_id: String, actions: &mut Vec<Action>) {
    if session.mailbox.confirm(&request_id) {
        actions.push(Action::Forget { session: session.opening.session.clone(), request_id });
    }
}

fn bad_id(call_id: &str) -> Option<String> {
    let bad = call_id.is_empty() || call_id.len() > MAX_ID_BYTES || call_id.chars().any(char::is_control);
    bad.then(|| format!("call_id must have 1 to {MAX_ID_BYTES} bytes without control characters"))
}

fn refuse_call(session: &Session, call_id: &str) -> Option<String> {
    bad_id(call_id).or_else(|| {
        (session.calls.len() >= MAX_IN_FLIGHT && !session.calls.contains(call_id))
            .then(|| format!("{MAX_IN_FLIGHT} calls are under way already; wait for one to end"))
    })
}
