//! Claude's end: an MCP server on standard input and output that Claude Code starts, and a client of the bridge.
//!
//! [`Plugin`] is a state machine between the two. It works while the bridge is disconnected: known tools stay listed,
//! and a call fails with the reason. [`drive`] connects it to its pipes.

mod approve;
mod backoff;
pub mod drive;
mod mcp;
mod meta;

pub use approve::APPROVE;
pub use mcp::{REPLY, REVISION};
pub use meta::flatten;

use crate::{
    frames::{self, FromPlugin, FromServer, HEARTBEAT_MS, Hello, InboundMessage, Question, close},
    server::MAX_QUESTIONS,
    verdict,
};
use backoff::Backoff;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet, VecDeque};

/// Maximum number of message ids that are remembered, so that no message is delivered twice.
const MAX_REMEMBERED: usize = 10_000;
/// Messages that wait for Claude Code's `initialized`; beyond it they are left with the server, unconfirmed.
const MAX_HELD: usize = 1_000;
/// How long `initialize` and `tools/list` wait for the bridge before they are answered with what is known.
const BRIDGE_WAIT_MS: u64 = 5_000;
/// Maximum number of Claude's calls in flight.
const MAX_CALLS: usize = 256;
/// How long a call may take before it is given up; the server has its own, shorter limits.
const CALL_WITHIN_MS: u64 = 60 * 60_000;
/// How long a reply may take.
const REPLY_WITHIN_MS: u64 = 30_000;
/// The number of half heartbeats without a frame from the server after which the connection is closed.
const SILENT_HALF_BEATS: u64 = 5;

/// Who the plugin is, from the environment.
#[derive(Clone)]
pub struct Identity {
    /// Where the bridge is, for messages.
    pub url: String,
    /// The session's secret.
    pub token: String,
    /// The session.
    pub openclaw_session: String,
    /// Claude's own session.
    pub claude_session: String,
    /// The id of this process.
    pub pid: u32,
}

impl std::fmt::Debug for Identity {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("url", &self.url)
            .field("session", &self.openclaw_session)
            .finish_non_exhaustive()
    }
}

/// The actions, in order: an acknowledgement follows the message that it acknowledges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A line for Claude Code.
    Line(String),
    /// A frame for the bridge.
    Frame(String),
    /// Close the connection, because the server does not answer.
    Hangup,
    /// Connect, after a pause.
    Dial {
        /// The delay in milliseconds.
        after_ms: u64,
    },
}

#[derive(Debug, PartialEq, Eq)]
enum Link {
    /// Not connected; the reason is for people.
    Down(String),
    /// Connected, `hello` is on its way.
    Greeting,
    /// The connection is established.
    Up,
    /// Not connected, and a retry cannot succeed.
    Refused(String),
}

struct Call {
    id: Value,
    give_up_at: u64,
}

/// The state machine of the plugin.
pub struct Plugin {
    identity: Identity,
    link: Link,
    attempt: u64,
    backoff: Backoff,
    heard_at: u64,
    heartbeat_ms: u64,
    is_initialized: bool,
    tools: Vec<Value>,
    was_welcome: bool,
    /// Whether an attempt to connect has failed or a connection was lost.
    has_failed: bool,
    /// The server's text for the model, in addition to the plugin's instructions.
    instructions: Option<String>,
    /// Requests that wait for the bridge, with the time they are answered anyway.
    early: Vec<(EarlyRequest, u64)>,
    calls: HashMap<String, Call>,
    next_call: u64,
    remembered: HashSet<String>,
    order: VecDeque<String>,
    held: VecDeque<InboundMessage>,
    questions: HashMap<String, QuestionSource>,
}

/// A request that Claude Code sends at its start, and that is answered better after the bridge is connected.
enum EarlyRequest {
    /// `initialize`, with its parameters.
    Hello(Value, Option<Value>),
    /// A `tools/list` request.
    List(Value),
}

/// Who waits for a person's answer.
enum QuestionSource {
    /// The channel: Claude Code also shows its own dialog.
    Channel,
    /// A call of the tool `approve`.
    Call(approve::PendingApproval),
}

impl Plugin {
    /// A plugin that has not connected yet. The seed randomises its delays.
    pub fn new(identity: Identity, seed: u64) -> Self {
        Self {
            identity,
            link: Link::Down("it has not answered yet".to_owned()),
            attempt: 0,
            backoff: Backoff::new(seed),
            heard_at: 0,
            heartbeat_ms: HEARTBEAT_MS,
            is_initialized: false,
            tools: Vec::new(),
            was_welcome: false,
            has_failed: false,
            instructions: None,
            early: Vec::new(),
            calls: HashMap::new(),
            next_call: 0,
            remembered: HashSet::new(),
            order: VecDeque::new(),
            held: VecDeque::new(),
            questions: HashMap::new(),
        }
    }

    /// Whether it is connected.
    pub fn is_up(&self) -> bool {
        self.link == Link::Up
    }

    /// Why there will be no further attempt, if so.
    pub fn refused(&self) -> Option<&str> {
        match &self.link {
            Link::Refused(why) => Some(why),
            _ => None,
        }
    }

    /// The connection was established.
    pub fn up(&mut self, now: u64) -> Vec<Output> {
        self.attempt += 1;
        self.link = Link::Greeting;
        self.heard_at = now;
        let hello = Hello {
            openclaw_session: self.identity.openclaw_session.clone(),
            claude_session: self.identity.claude_session.clone(),
            pid: self.identity.pid,
            token: self.identity.token.clone(),
            acks: true,
            attempt: Some(self.attempt),
        };
        vec![Output::Frame(frames::write(&FromPlugin::Hello(hello)))]
    }

    /// The connection ended, or could not be opened. `code` is the WebSocket's close code, if any.
    pub fn down(&mut self, code: Option<u16>, reason: &str) -> Vec<Output> {
        let mut out = Vec::new();
        if matches!(self.link, Link::Refused(_)) {
            return out;
        }
        self.has_failed = true;
        let refused = match code {
            Some(close::BAD_TOKEN) => Some("it refused the token"),
            Some(close::UNKNOWN_SESSION) => Some("it does not know the session"),
            _ => None,
        };
        if code == Some(close::SUPERSEDED) {
            // Another plugin serves the session now. Reconnecting at once would only take the session back.
            self.backoff.exhaust();
        }
        for (_, asked) in self.questions.drain() {
            if let QuestionSource::Call(waiting) = asked {
                let why = "The bridge to Toolyard was lost before a person answered.";
                out.push(Output::Line(approve::refused(&waiting, why)));
            }
        }
        let calls: Vec<Call> = self.calls.drain().map(|(_, call)| call).collect();
        let lost = "The bridge to Toolyard was lost while this was under way. It may have been done or not: look before \
                    you try again.";
        out.extend(calls.iter().map(|call| Output::Line(mcp::response(&call.id, mcp::failure(lost)))));
        match refused {
            Some(why) => {
                self.link =
                    Link::Refused(format!("{why} ({reason}); start Claude Code anew with `toolyard claude start`"));
            }
            None => {
                // A peer may close without a reason.
                let reason = if reason.is_empty() { "the connection was closed" } else { reason };
                self.link = Link::Down(reason.to_owned());
                out.push(Output::Dial { after_ms: self.backoff.pause() });
            }
        }
        self.answer_early(&mut out);
        out
    }

    /// Checks timeouts. Call it about every second.
    pub fn tick(&mut self, now: u64) -> Vec<Output> {
        let mut out = Vec::new();
        let silent_ms = self.heartbeat_ms.saturating_mul(SILENT_HALF_BEATS) / 2;
        if matches!(self.link, Link::Up | Link::Greeting) && now.saturating_sub(self.heard_at) > silent_ms {
            out.push(Output::Hangup);
            out.extend(self.down(None, "the bridge is silent"));
        }
        if self.early.iter().any(|(_, until)| *until <= now) {
            self.answer_early(&mut out);
        }
        let unanswered: Vec<String> = self
            .questions
            .iter()
            .filter(|(_, asked)| matches!(asked, QuestionSource::Call(waiting) if waiting.give_up_at <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for request_id in unanswered {
            if let Some(QuestionSource::Call(waiting)) = self.questions.remove(&request_id) {
                out.push(Output::Line(approve::refused(&waiting, "Nobody answered in time.")));
            }
        }
        let late: Vec<String> =
            self.calls.iter().filter(|(_, call)| call.give_up_at <= now).map(|(id, _)| id.clone()).collect();
        for call_id in late {
            if let Some(call) = self.calls.remove(&call_id) {
                let text =
                    "The bridge did not answer in time. It may have been done or not: look before you try again.";
                out.push(Output::Line(mcp::response(&call.id, mcp::failure(text))));
                out.push(Output::Frame(frames::write(&FromPlugin::ToolCancel { call_id })));
            }
        }
        out
    }

    /// A frame from the bridge.
    pub fn frame(&mut self, text: &str, now: u64) -> Vec<Output> {
        let mut out = Vec::new();
        if !matches!(self.link, Link::Up | Link::Greeting) {
            return out;
        }
        self.heard_at = now;
        let frame = match frames::read::<FromServer>(text) {
            Ok(frame) => frame,
            Err(error) => {
                tracing::warn!(error, "a frame from the bridge cannot be read");
                return out;
            }
        };
        match frame {
            FromServer::HelloAck { tools, session_meta } => {
                self.link = Link::Up;
                self.backoff.reset();
                if let Some(every) = session_meta.get("heartbeat_ms").and_then(Value::as_u64).filter(|ms| *ms >= 1_000)
                {
                    self.heartbeat_ms = every;
                }
                self.instructions = session_meta.get("instructions").and_then(Value::as_str).map(str::to_owned);
                self.set_tools(tools, &mut out);
                self.was_welcome = true;
                self.answer_early(&mut out);
            }
            FromServer::ToolsChanged { tools } => self.set_tools(tools, &mut out),
            FromServer::InboundMessage(message) => self.inbound(message, &mut out),
            FromServer::PermissionReply { request_id, behavior } => {
                // An answer to a question that was not asked on this connection, or was answered already, is ignored.
                match self.questions.remove(&request_id) {
                    Some(QuestionSource::Channel) => {
                        let params = json!({"request_id": request_id, "behavior": behavior});
                        let method = "notifications/claude/channel/permission";
                        out.push(Output::Line(mcp::notification(method, Some(params))));
                    }
                    Some(QuestionSource::Call(waiting)) => {
                        out.push(Output::Line(approve::answered(&waiting, behavior)))
                    }
                    None => {}
                }
            }
            FromServer::ToolResult { call_id, ok, result, error } => {
                if let Some(call) = self.calls.remove(&call_id) {
                    let result = match (ok, result, error) {
                        (true, result, _) => mcp::result(result.unwrap_or(Value::Null)),
                        // The server may have rendered the failure as a result; otherwise its text is used.
                        (false, Some(result), _) if mcp::is_failure(&result) => result,
                        (false, _, error) => mcp::failure(error.as_deref().unwrap_or("the tool failed")),
                    };
                    out.push(Output::Line(mcp::response(&call.id, result)));
                }
            }
            FromServer::Ping { ts } => out.push(Output::Frame(frames::write(&FromPlugin::Pong { ts }))),
            FromServer::Pong { .. } | FromServer::Unknown => {}
        }
        out
    }

    fn set_tools(&mut self, mut tools: Vec<Value>, out: &mut Vec<Output>) {
        // These are the plugin's own; one of the same name elsewhere would be shadowed.
        let is_ours = |name: &str| name == REPLY || name == APPROVE;
        tools.retain(|tool| tool.get("name").and_then(Value::as_str).is_some_and(|name| !is_ours(name)));
        let changed = tools != self.tools;
        self.tools = tools;
        if changed && self.is_initialized && self.early.is_empty() {
            out.push(Output::Line(mcp::notification("notifications/tools/list_changed", None)));
        }
    }

    fn answer_early(&mut self, out: &mut Vec<Output>) {
        for (early, _) in std::mem::take(&mut self.early) {
            out.push(Output::Line(self.answer(&early)));
        }
    }

    /// Answers now, or after the bridge is connected if that may happen soon.
    fn answer_soon(&mut self, early: EarlyRequest, now: u64, out: &mut Vec<Output>) {
        let may_come = !self.was_welcome && (!self.has_failed || self.link == Link::Greeting);
        if may_come && self.early.len() < MAX_CALLS {
            self.early.push((early, now + BRIDGE_WAIT_MS));
        } else {
            out.push(Output::Line(self.answer(&early)));
        }
    }

    fn answer(&self, early: &EarlyRequest) -> String {
        match early {
            EarlyRequest::Hello(id, params) => {
                mcp::response(id, mcp::initialize(params.as_ref(), self.instructions.as_deref()))
            }
            EarlyRequest::List(id) => {
                let mut tools = vec![mcp::reply_tool(), approve::tool()];
                tools.extend(self.tools.iter().cloned());
                mcp::response(id, json!({"tools": tools}))
            }
        }
    }

    fn inbound(&mut self, message: InboundMessage, out: &mut Vec<Output>) {
        if self.remembered.contains(&message.request_id) {
            // The message was already delivered, but its acknowledgement was lost. A held message is acknowledged on
            // delivery.
            if !self.held.iter().any(|held| held.request_id == message.request_id) {
                out.push(ack(message.request_id));
            }
            return;
        }
        if !self.is_initialized {
            if self.held.len() < MAX_HELD {
                self.remember(&message.request_id);
                self.held.push_back(message);
            }
            return;
        }
        self.remember(&message.request_id);
        tell(message, out);
    }

    fn remember(&mut self, request_id: &str) {
        if self.order.len() >= MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.remembered.remove(&oldest);
        }
        self.remembered.insert(request_id.to_owned());
        self.order.push_back(request_id.to_owned());
    }

    /// A line from Claude Code.
    pub fn line(&mut self, line: &str, now: u64) -> Vec<Output> {
        let mut out = Vec::new();
        let line = line.trim();
        if line.is_empty() {
            return out;
        }
        let message: Value = match serde_json::from_str(line) {
            Ok(message) => message,
            Err(error) => {
                let text = format!("the line is not JSON: {error}");
                out.push(Output::Line(mcp::error(&Value::Null, mcp::PARSE_ERROR, &text)));
                return out;
            }
        };
        let id = message.get("id").filter(|id| id.is_string() || id.is_number()).cloned();
        let method = message.get("method").and_then(Value::as_str);
        let params = message.get("params");
        match (method, id) {
            (Some(method), Some(id)) => self.request(method, id, params, now, &mut out),
            (Some(method), None) => self.notified(method, params, &mut out),
            // The plugin sends no requests to the client, so responses from the client are ignored.
            (None, Some(_)) if message.get("result").is_some() || message.get("error").is_some() => {}
            (None, id) => {
                let text = "a message needs a method; batches are not taken";
                out.push(Output::Line(mcp::error(&id.unwrap_or(Value::Null), mcp::INVALID_REQUEST, text)));
            }
        }
        out
    }

    fn request(&mut self, method: &str, id: Value, params: Option<&Value>, now: u64, out: &mut Vec<Output>) {
        match method {
            "initialize" => self.answer_soon(EarlyRequest::Hello(id, params.cloned()), now, out),
            "ping" => out.push(Output::Line(mcp::response(&id, json!({})))),
            "tools/list" => self.answer_soon(EarlyRequest::List(id), now, out),
            "tools/call" => self.call(id, params, now, out),
            other => {
                let shown: String = other.chars().take(80).collect();
                out.push(Output::Line(mcp::error(&id, mcp::METHOD_NOT_FOUND, &format!("Method not found: {shown}"))));
            }
        }
    }

    fn notified(&mut self, method: &str, params: Option<&Value>, out: &mut Vec<Output>) {
        match method {
            "notifications/initialized" => {
                self.is_initialized = true;
                for message in std::mem::take(&mut self.held) {
                    tell(message, out);
                }
            }
            "notifications/cancelled" => {
                let wanted = params.and_then(|p| p.get("requestId"));
                // A cancelled question needs no answer.
                self.questions.retain(|_, asked| !matches!(asked, QuestionSource::Call(w) if Some(&w.id) == wanted));
                let call_id = self.calls.iter().find(|(_, call)| Some(&call.id) == wanted).map(|(id, _)| id.clone());
                if let Some(call_id) = call_id {
                    // A cancelled request needs no answer.
                    self.calls.remove(&call_id);
                    out.push(Output::Frame(frames::write(&FromPlugin::ToolCancel { call_id })));
                }
            }
            "notifications/claude/channel/permission_request" => self.permission(params, out),
            _ => {}
        }
    }

    fn permission(&mut self, params: Option<&Value>, out: &mut Vec<Output>) {
        let text = |key: &str| params.and_then(|p| p.get(key)).and_then(Value::as_str).unwrap_or_default().to_owned();
        let request_id = text("request_id");
        // While the bridge is disconnected nobody can be asked; Claude Code's own dialog stays open.
        if !verdict::is_request_id(&request_id) || self.link != Link::Up {
            return;
        }
        let preview = text("input_preview");
        // A shortened preview is not valid JSON; only a complete one contains the arguments.
        let args = match serde_json::from_str::<Map<String, Value>>(&preview) {
            Ok(args) => args,
            Err(_) => Map::new(),
        };
        self.questions.insert(request_id.clone(), QuestionSource::Channel);
        out.push(Output::Frame(frames::write(&FromPlugin::PermissionRequest(Question {
            request_id,
            tool: text("tool_name"),
            args,
            rationale: text("description"),
            input_preview: Some(preview),
        }))));
    }

    fn call(&mut self, id: Value, params: Option<&Value>, now: u64, out: &mut Vec<Output>) {
        let name = params.and_then(|p| p.get("name")).and_then(Value::as_str).unwrap_or_default();
        let arguments = match params.and_then(|p| p.get("arguments")) {
            None | Some(Value::Null) => Some(Map::new()),
            Some(Value::Object(map)) => Some(map.clone()),
            Some(_) => None,
        };
        let (Some(args), false) = (arguments, name.is_empty()) else {
            let text = "tools/call needs a name, and arguments that are an object";
            return out.push(Output::Line(mcp::error(&id, mcp::INVALID_PARAMS, text)));
        };
        if name == APPROVE {
            return self.approve(id, &args, now, out);
        }
        if let Some(why) = self.why_not() {
            return out.push(Output::Line(mcp::response(&id, mcp::failure(&why))));
        }
        self.next_call += 1;
        let call_id = format!("tc_{}_{}", self.identity.pid, self.next_call);
        let (frame, within) = if name == REPLY {
            match mcp::reply(&call_id, &args) {
                Ok(message) => (FromPlugin::OutboundMessage(message), REPLY_WITHIN_MS),
                Err(why) => return out.push(Output::Line(mcp::response(&id, mcp::failure(&why)))),
            }
        } else {
            (FromPlugin::ToolCall { call_id: call_id.clone(), tool: name.to_owned(), args }, CALL_WITHIN_MS)
        };
        let text = frames::write(&frame);
        if text.len() > frames::MAX_FRAME_BYTES {
            let why = format!(
                "The arguments have {} bytes; the bridge carries at most {}.",
                text.len(),
                frames::MAX_FRAME_BYTES
            );
            return out.push(Output::Line(mcp::response(&id, mcp::failure(&why))));
        }
        self.calls.insert(call_id, Call { id, give_up_at: now + within });
        out.push(Output::Frame(text));
    }

    /// A permission question as a call. If nobody can be asked, the question is denied.
    fn approve(&mut self, id: Value, args: &Map<String, Value>, now: u64, out: &mut Vec<Output>) {
        let mut request_id = approve::request_id(self.backoff.draw());
        while self.questions.contains_key(&request_id) {
            request_id = approve::request_id(self.backoff.draw());
        }
        let (waiting, question) = match approve::read(id.clone(), args, request_id.clone(), now) {
            Ok(read) => read,
            Err(why) => return out.push(Output::Line(mcp::error(&id, mcp::INVALID_PARAMS, &why))),
        };
        if let Some(why) = self.why_not() {
            return out.push(Output::Line(approve::refused(&waiting, &why)));
        }
        let text = frames::write(&FromPlugin::PermissionRequest(question));
        if self.questions.len() >= MAX_QUESTIONS || text.len() > frames::MAX_FRAME_BYTES {
            let why = format!("Nobody was asked: {MAX_QUESTIONS} questions are open, or this one is too long.");
            return out.push(Output::Line(approve::refused(&waiting, &why)));
        }
        self.questions.insert(request_id, QuestionSource::Call(waiting));
        out.push(Output::Frame(text));
    }

    /// Why a call cannot be made now.
    fn why_not(&self) -> Option<String> {
        let url = &self.identity.url;
        match &self.link {
            Link::Up if self.calls.len() >= MAX_CALLS => Some(format!("{MAX_CALLS} calls are under way already.")),
            Link::Up => None,
            Link::Refused(why) => Some(format!("The bridge to Toolyard at {url} is closed: {why}.")),
            Link::Down(why) => Some(format!(
                "The bridge to Toolyard at {url} is down: {why}. It is tried again by itself; nothing was done. Is \
                 `toolyard up` running?"
            )),
            Link::Greeting => Some(format!("The bridge to Toolyard at {url} is just being joined. Try again shortly.")),
        }
    }
}

fn ack(request_id: String) -> Output {
    Output::Frame(frames::write(&FromPlugin::Ack { request_id }))
}

/// The notification, and then its confirmation.
fn tell(message: InboundMessage, out: &mut Vec<Output>) {
    let params = json!({"content": message.content, "meta": flatten(&message.meta)});
    out.push(Output::Line(mcp::notification("notifications/claude/channel", Some(params))));
    out.push(ack(message.request_id));
}
