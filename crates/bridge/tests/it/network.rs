//! A simulated network that loses, delays and half-closes connections, with its own clock. The seed determines
//! everything.

use crate::random::Random;
use serde_json::{Map, Value, json};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
};
use toolyard_bridge::{
    frames::InboundMessage,
    mailbox::MailboxLimits,
    plugin::{Identity, Output, Plugin},
    server::{Action, ApprovalRole, ConnectionId, Hub, NewSession, Offer, SessionTerms},
};

pub(crate) const SESSION: &str = "agent:main:claude";
pub(crate) const TOKEN: &str = "a-secret-of-the-session";

pub(crate) fn opening() -> NewSession {
    let opening = SessionTerms {
        session: SESSION.to_owned(),
        token_sha256: SessionTerms::digest(TOKEN),
        claude_session: "claude-1".to_owned(),
        allowed_senders: vec!["u1".to_owned()],
        meta: Map::new(),
    };
    NewSession { opening, limits: MailboxLimits::default() }
}

pub(crate) fn identity() -> Identity {
    Identity {
        url: "ws://127.0.0.1:1/bridge".to_owned(),
        token: TOKEN.to_owned(),
        openclaw_session: SESSION.to_owned(),
        claude_session: "claude-1".to_owned(),
        pid: 42,
    }
}

pub(crate) fn message(id: &str) -> InboundMessage {
    let meta = json!({"chat_id": "c", "user_id": "u1"});
    InboundMessage {
        request_id: id.to_owned(),
        content: format!("text of {id}"),
        meta: meta.as_object().unwrap().clone(),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Dial,
    ToServer(u64, String),
    ToPlugin(u64, String),
    PluginSeesEnd(u64, Option<u16>),
    ServerSeesEnd(u64),
    Welcome(ConnectionId),
    CallEnds(String),
    Tick,
    Message,
    ClaudeCalls,
    ClaudeAsks,
    Fault,
}

struct Wire {
    connection: ConnectionId,
    /// Nothing arrives any more.
    is_lost: bool,
    /// Nothing arrives at the server any more; the other way is open.
    is_deaf: bool,
    delay: u64,
    /// Arrival of the last frame in each direction: what is sent later arrives later.
    last_up: u64,
    last_down: u64,
    hello: Option<String>,
}

/// The events that the test checks.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) sent: Vec<String>,
    pub(crate) told: Vec<String>,
    pub(crate) dropped: Vec<String>,
    pub(crate) joined: usize,
    /// Requests of Claude's, and how often each was answered.
    pub(crate) answers: BTreeMap<u64, usize>,
    pub(crate) verdicts: BTreeMap<String, usize>,
    pub(crate) asked: usize,
    pub(crate) faults: BTreeMap<&'static str, usize>,
    pub(crate) closes: BTreeMap<u16, usize>,
}

pub(crate) struct Network {
    pub(crate) hub: Hub,
    pub(crate) plugin: Plugin,
    pub(crate) seen: Seen,
    random: Random,
    now: u64,
    number: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    wires: HashMap<u64, Wire>,
    /// The plugin's own connection.
    current: Option<u64>,
    pub(crate) is_bad: bool,
    messages: u64,
    requests: u64,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        let mut hub = Hub::default();
        hub.open(opening());
        let mut plugin = Plugin::new(identity(), seed);
        plugin.line(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#, 0);
        let hello = plugin.tick(5_000);
        assert!(matches!(&hello[0], Output::Line(line) if line.contains("claude/channel")));
        plugin.line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, 0);
        let mut network = Self {
            hub,
            plugin,
            seen: Seen::default(),
            random: Random(seed),
            now: 0,
            number: 0,
            queue: BinaryHeap::new(),
            wires: HashMap::new(),
            current: None,
            is_bad: true,
            messages: 0,
            requests: 0,
        };
        for event in [Event::Dial, Event::Tick, Event::Message, Event::ClaudeCalls, Event::ClaudeAsks, Event::Fault] {
            network.after(0, event);
        }
        network
    }

    fn after(&mut self, ms: u64, event: Event) {
        self.number += 1;
        self.queue.push(Reverse((self.now + ms, self.number, event)));
    }

    /// Lets the next thing happen.
    pub(crate) fn step(&mut self) {
        let Some(Reverse((at, _, event))) = self.queue.pop() else { panic!("nothing happens any more") };
        self.now = at;
        match event {
            Event::Dial => self.dial(),
            Event::ToServer(wire, text) => {
                if self.wires.get(&wire).is_some_and(|w| !w.is_lost && !w.is_deaf) {
                    let connection = self.wires[&wire].connection;
                    let actions = self.hub.text(connection, &text, self.now);
                    self.serve(actions);
                }
            }
            Event::ToPlugin(wire, text) => {
                if self.current == Some(wire) && self.wires.get(&wire).is_some_and(|w| !w.is_lost) {
                    let out = self.plugin.frame(&text, self.now);
                    self.carry(out);
                    if text.contains("\"hello_ack\"") {
                        self.seen.joined += 1;
                    }
                }
            }
            Event::PluginSeesEnd(wire, code) => {
                if self.current == Some(wire) {
                    self.current = None;
                    let out = self.plugin.down(code, "gone");
                    self.carry(out);
                }
            }
            Event::ServerSeesEnd(wire) => {
                if let Some(wire) = self.wires.remove(&wire) {
                    let actions = self.hub.disconnected(wire.connection);
                    self.serve(actions);
                }
            }
            Event::Welcome(connection) => {
                let actions = self.hub.welcome(
                    connection,
                    Offer { tools: vec![json!({"name": "echo", "inputSchema": {}})], instructions: None },
                );
                self.serve(actions);
            }
            Event::CallEnds(call_id) => {
                let actions = self.hub.call_done(SESSION, &call_id, Ok(json!({"done": call_id})));
                self.serve(actions);
            }
            Event::Tick => self.tick(),
            Event::Message => self.message(),
            Event::ClaudeCalls => self.claude_calls(),
            Event::ClaudeAsks => self.claude_asks(),
            Event::Fault => self.fault(),
        }
    }

    fn dial(&mut self) {
        if self.is_bad && self.random.below(5) == 0 {
            let out = self.plugin.down(None, "refused");
            return self.carry(out);
        }
        let connection = self.hub.connected(self.now);
        let wire = self.number;
        let delay = 1 + self.random.below(20);
        self.wires.insert(
            wire,
            Wire { connection, is_lost: false, is_deaf: false, delay, last_up: 0, last_down: 0, hello: None },
        );
        self.current = Some(wire);
        let out = self.plugin.up(self.now);
        self.carry(out);
    }

    /// Carries out the plugin's actions.
    fn carry(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Line(line) => self.hear(&serde_json::from_str(&line).unwrap()),
                Output::Frame(text) => {
                    let Some(number) = self.current else { continue };
                    let jitter = self.random.below(10);
                    let Some(wire) = self.wires.get_mut(&number) else { continue };
                    if text.contains("\"hello\"") {
                        wire.hello = Some(text.clone());
                    }
                    wire.last_up = wire.last_up.max(self.now + wire.delay + jitter);
                    let wait = wire.last_up - self.now;
                    self.after(wait, Event::ToServer(number, text));
                }
                Output::Hangup => self.current = None,
                Output::Dial { after_ms } => self.after(after_ms, Event::Dial),
            }
        }
    }

    /// What Claude Code reads.
    fn hear(&mut self, line: &Value) {
        match line["method"].as_str() {
            Some("notifications/claude/channel") => {
                let text = line["params"]["content"].as_str().unwrap();
                self.seen.told.push(text.trim_start_matches("text of ").to_owned());
            }
            Some("notifications/claude/channel/permission") => {
                let id = line["params"]["request_id"].as_str().unwrap();
                *self.seen.verdicts.entry(id.to_owned()).or_default() += 1;
            }
            Some(_) => {}
            None => *self.seen.answers.entry(line["id"].as_u64().unwrap()).or_default() += 1,
        }
    }

    /// Carries out the hub's actions.
    fn serve(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send { to, frame, receipt } => {
                    assert!(receipt.is_none(), "our plugin confirms by itself");
                    let jitter = self.random.below(10);
                    let Some((number, wire)) = self.wires.iter_mut().find(|(_, w)| w.connection == to) else {
                        continue;
                    };
                    wire.last_down = wire.last_down.max(self.now + wire.delay + jitter);
                    let (number, wait) = (*number, wire.last_down - self.now);
                    self.after(wait, Event::ToPlugin(number, frame));
                }
                Action::Close { to, code, .. } => {
                    *self.seen.closes.entry(code).or_default() += 1;
                    let Some((number, wire)) = self.wires.iter().find(|(_, w)| w.connection == to) else { continue };
                    let (number, wait, lost) =
                        (*number, wire.last_down.saturating_sub(self.now) + wire.delay, wire.is_lost);
                    if !lost {
                        self.after(wait, Event::PluginSeesEnd(number, Some(code)));
                    }
                    self.after(wait + 1, Event::ServerSeesEnd(number));
                }
                Action::Welcome { to, .. } => {
                    let wait = self.random.below(50);
                    self.after(wait, Event::Welcome(to));
                }
                Action::Call(order) => {
                    let wait = self.random.below(3_000);
                    self.after(wait, Event::CallEnds(order.call_id));
                }
                Action::Dropped { request_id, .. } => self.seen.dropped.push(request_id),
                Action::Asked { question, .. } => {
                    self.seen.asked += 1;
                    // Two people answer; one counts.
                    for by in ["a", "b"] {
                        let behavior = toolyard_bridge::frames::Behavior::Allow;
                        let replied = self.hub.permission_reply(SESSION, &question.request_id, behavior, by);
                        assert_eq!(replied.is_ok(), by == "a");
                        self.serve(replied.unwrap_or_default());
                    }
                }
                _ => {}
            }
        }
    }

    fn tick(&mut self) {
        let out = self.plugin.tick(self.now);
        self.carry(out);
        let mut connections: Vec<ConnectionId> = self.wires.values().map(|w| w.connection).collect();
        connections.sort();
        for connection in connections {
            let actions = self.hub.tick(connection, self.now);
            self.serve(actions);
        }
        self.after(1_000, Event::Tick);
    }

    fn message(&mut self) {
        let waiting = self.hub.view(Some(SESSION), ApprovalRole::Approver)[0].waiting;
        if self.is_bad && waiting < 95 {
            self.messages += 1;
            let id = format!("m{}", self.messages);
            let (_, actions) = self.hub.inbound(SESSION, message(&id), ApprovalRole::Approver).unwrap();
            self.seen.sent.push(id);
            self.serve(actions);
        }
        let wait = self.random.below(4_000);
        self.after(wait, Event::Message);
    }

    fn claude_calls(&mut self) {
        if self.is_bad {
            self.requests += 1;
            self.seen.answers.insert(self.requests, 0);
            let line = json!({"jsonrpc": "2.0", "id": self.requests, "method": "tools/call",
                "params": {"name": "echo", "arguments": {"n": self.requests}}});
            let out = self.plugin.line(&line.to_string(), self.now);
            self.carry(out);
        }
        let wait = self.random.below(4_000);
        self.after(wait, Event::ClaudeCalls);
    }

    fn claude_asks(&mut self) {
        if self.is_bad {
            let letters = b"abcdefghijkmnopqrstuvwxyz";
            let id: String = (0..5).map(|_| char::from(letters[self.random.below(25) as usize])).collect();
            let params = json!({"request_id": id, "tool_name": "Bash", "description": "d", "input_preview": "{}"});
            let line = json!({"jsonrpc": "2.0", "method": "notifications/claude/channel/permission_request", "params": params});
            let out = self.plugin.line(&line.to_string(), self.now);
            self.carry(out);
        }
        let wait = self.random.below(20_000);
        self.after(wait, Event::ClaudeAsks);
    }

    fn fault(&mut self) {
        let wait = 500 + self.random.below(8_000);
        self.after(wait, Event::Fault);
        let (true, Some(number)) = (self.is_bad, self.current) else { return };
        let (kind, pause) = (self.random.below(9), self.random.below(200));
        let far = self.random.below(60_000);
        // The heartbeats must detect connections that are already broken.
        let Some(wire) = self.wires.get_mut(&number).filter(|w| !w.is_lost && !w.is_deaf) else { return };
        let name = match kind {
            0 | 1 => {
                // Frames in transit are lost, and both ends notice.
                wire.is_lost = true;
                self.after(pause, Event::PluginSeesEnd(number, None));
                self.after(pause / 2, Event::ServerSeesEnd(number));
                "cut"
            }
            2 => {
                // The plugin sees it; what it sent still arrives, perhaps long after it has connected again.
                wire.delay += far;
                wire.last_up += far;
                self.after(0, Event::PluginSeesEnd(number, None));
                "plugin sees it first"
            }
            3 => {
                self.after(0, Event::ServerSeesEnd(number));
                "server sees it first"
            }
            4 => {
                // Neither sees it: only the heartbeat does.
                wire.is_lost = true;
                "black hole"
            }
            8 => {
                wire.is_deaf = true;
                "one way"
            }
            5 => {
                wire.delay += far / 10;
                "slow"
            }
            6 => {
                // The same hello once more, on the same connection.
                let hello = wire.hello.clone().unwrap_or_default();
                let connection = wire.connection;
                let actions = self.hub.text(connection, &hello, self.now);
                self.serve(actions);
                "hello twice"
            }
            _ => {
                // A delayed hello arrives on its own connection while a newer one is in use; then the plugin
                // reconnects.
                let Some(hello) = wire.hello.clone() else { return };
                let old = hello.replace("\"attempt\":", "\"attempt\":0,\"was\":");
                let connection = self.hub.connected(self.now);
                let ghost =
                    Wire { connection, is_lost: true, is_deaf: false, delay: 1, last_up: 0, last_down: 0, hello: None };
                self.number += 1;
                self.wires.insert(self.number, ghost);
                let actions = self.hub.text(connection, &old, self.now);
                self.serve(actions);
                "old hello"
            }
        };
        *self.seen.faults.entry(name).or_default() += 1;
    }
}
