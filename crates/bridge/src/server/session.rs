//! One open session: its secret, its mailbox, and its calls and questions in flight.

use super::{
    Action, ConnectionId, MAX_CLOSED, MAX_OUTBOUND, MAX_QUESTIONS, QUESTION_OPEN_MS, QuestionOutcome, hub::ApprovalRole,
};
use crate::{
    frames::{Behavior, OutboundMessage, Question},
    mailbox::{Mailbox, MailboxLimits},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::collections::{HashSet, VecDeque};

/// Characters of a question's arguments that are posted in a chat.
const MAX_POSTED_PREVIEW: usize = 1_000;

/// The properties of a session that are fixed when it is opened. They can be stored and opened again after a restart:
/// the secret itself is not among them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionTerms {
    /// The session.
    pub session: String,
    /// The secret's SHA-256, in hex.
    pub token_sha256: String,
    /// Claude's own session.
    pub claude_session: String,
    /// Users who may answer a permission question in words, by `meta.user_id`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_senders: Vec<String>,
    /// Given to the plugin: agent, channel, chat.
    #[serde(default)]
    pub meta: Map<String, Value>,
}

/// A session about to be opened.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Everything but the secret.
    pub opening: SessionTerms,
    /// How much its mailbox holds.
    pub limits: MailboxLimits,
}

impl SessionTerms {
    /// How a secret is kept.
    pub fn digest(token: &str) -> String {
        Sha256::digest(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A session as people see it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// The session.
    pub session_key: String,
    /// Claude's own session.
    pub claude_session: String,
    /// Whether a plugin is in.
    pub connected: bool,
    /// The plugin's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Messages that wait for Claude.
    pub waiting: usize,
    /// The bytes of the waiting messages.
    pub waiting_bytes: usize,
    /// Messages that were dropped since the session was opened.
    pub dropped: u64,
    /// Number of calls in flight.
    pub calls: usize,
    /// How many questions are open.
    pub open_questions: usize,
    /// The questions themselves, for those who may answer them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub questions: Option<Vec<Question>>,
}

/// A connection whose plugin sent `hello`.
#[derive(Debug, Clone)]
pub(super) struct BoundConnection {
    pub(super) connection: ConnectionId,
    pub(super) acks: bool,
    /// Whether the plugin was accepted: before that, nothing else is sent.
    pub(super) is_welcome: bool,
    pub(super) pid: u32,
    pub(super) claude_session: String,
    pub(super) attempt: Option<u64>,
}

#[derive(Debug)]
struct OpenQuestion {
    question: Question,
    closes_at: u64,
}

/// A message from Claude to people.
#[derive(Debug)]
struct StoredReply {
    seq: u64,
    message: OutboundMessage,
    /// Whether the message is durable: before that, nobody is notified of it.
    is_stored: bool,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) opening: SessionTerms,
    pub(super) mailbox: Mailbox,
    pub(super) bound: Option<BoundConnection>,
    /// The chat of the last message from a sender who may answer questions.
    pub(super) last_chat: Option<String>,
    /// Calls in flight for which the plugin waits.
    pub(super) calls: HashSet<String>,
    questions: Vec<OpenQuestion>,
    closed: VecDeque<String>,
    outbound: VecDeque<StoredReply>,
    next_outbound: u64,
    pub(super) dropped: u64,
}

impl Session {
    pub(super) fn new(new: NewSession) -> Self {
        Self {
            opening: new.opening,
            mailbox: Mailbox::new(new.limits),
            bound: None,
            last_chat: None,
            calls: HashSet::new(),
            questions: Vec::new(),
            closed: VecDeque::new(),
            outbound: VecDeque::new(),
            next_outbound: 1,
            dropped: 0,
        }
    }

    fn name(&self) -> String {
        self.opening.session.clone()
    }

    /// The connection that may be sent to.
    pub(super) fn welcome_connection(&self) -> Option<(ConnectionId, bool)> {
        self.bound.as_ref().filter(|b| b.is_welcome).map(|b| (b.connection, b.acks))
    }

    pub(super) fn ask(&mut self, question: Question, now: u64, actions: &mut Vec<Action>) {
        // A repeated question keeps its state.
        if self.questions.iter().any(|open| open.question.request_id == question.request_id) {
            return;
        }
        if self.questions.len() >= MAX_QUESTIONS {
            let oldest = self.questions.remove(0);
            self.settle(oldest.question.request_id, QuestionOutcome::Withdrawn, actions);
        }
        // Ids may be reused.
        self.closed.retain(|id| *id != question.request_id);
        let closes_at = now + QUESTION_OPEN_MS;
        self.questions.push(OpenQuestion { question: question.clone(), closes_at });
        let post = self.post(&question);
        actions.push(Action::Asked { session: self.name(), question, closes_at });
        if let Some(post) = post {
            self.say(post, actions);
        }
    }

    /// The sender that a message names, if that sender may answer questions.
    pub(super) fn approving_sender<'a>(&self, meta: &'a Map<String, Value>) -> Option<&'a str> {
        let sender = meta.get("user_id").and_then(Value::as_str).filter(|sender| !sender.is_empty())?;
        self.opening.allowed_senders.iter().any(|known| known == sender).then_some(sender)
    }

    /// A question as it is posted in the session's chat; `None` where no chat is known.
    fn post(&self, question: &Question) -> Option<OutboundMessage> {
        let opened_with = self.opening.meta.get("chat_id").and_then(Value::as_str);
        let chat_id = self.last_chat.as_deref().or(opened_with)?.to_owned();
        let Question { request_id, tool, rationale, input_preview, .. } = question;
        let mut lines = vec![match rationale.is_empty() {
            true => format!("Claude asks to use {tool}."),
            false => format!("Claude asks to use {tool}: {rationale}"),
        }];
        lines.extend(input_preview.as_deref().map(|text| text.chars().take(MAX_POSTED_PREVIEW).collect()));
        lines.push(format!("Approve? Reply `yes {request_id}` or `no {request_id}`."));
        Some(OutboundMessage {
            call_id: String::new(),
            chat_id,
            text: lines.join("\n"),
            reply_to: None,
            files: Vec::new(),
            permission: Some(request_id.clone()),
        })
    }

    pub(super) fn is_open(&self, request_id: &str) -> bool {
        self.questions.iter().any(|open| open.question.request_id == request_id)
    }

    /// Whether any question is open.
    pub(super) fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Whether a question of this id was closed lately.
    pub(super) fn was_open(&self, request_id: &str) -> bool {
        self.closed.iter().any(|id| id == request_id)
    }

    /// Closes a question with an answer. False when it is not open: only the first answer counts.
    pub(super) fn answer(&mut self, request_id: &str, behavior: Behavior, by: &str, actions: &mut Vec<Action>) -> bool {
        let Some(at) = self.questions.iter().position(|open| open.question.request_id == request_id) else {
            return false;
        };
        self.questions.remove(at);
        self.settle(request_id.to_owned(), QuestionOutcome::Answered { behavior, by: by.to_owned() }, actions);
        true
    }

    pub(super) fn expire(&mut self, now: u64, actions: &mut Vec<Action>) {
        while let Some(at) = self.questions.iter().position(|open| open.closes_at <= now) {
            let gone = self.questions.remove(at);
            self.settle(gone.question.request_id, QuestionOutcome::Expired, actions);
        }
    }

    fn settle(&mut self, request_id: String, how: QuestionOutcome, actions: &mut Vec<Action>) {
        if self.closed.len() >= MAX_CLOSED {
            self.closed.pop_front();
        }
        self.closed.push_back(request_id.clone());
        actions.push(Action::QuestionClosed { session: self.name(), request_id, how });
    }

    /// Removes the state of a closed connection; the mailbox is kept.
    pub(super) fn unbind(&mut self, actions: &mut Vec<Action>) {
        let Some(bound) = self.bound.take() else { return };
        self.mailbox.rewind();
        self.calls.clear();
        for open in std::mem::take(&mut self.questions) {
            self.settle(open.question.request_id, QuestionOutcome::Withdrawn, actions);
        }
        if bound.is_welcome {
            actions.push(Action::Presence { session: self.name(), connected: false });
        }
    }

    pub(super) fn say(&mut self, message: OutboundMessage, actions: &mut Vec<Action>) {
        let seq = self.next_outbound;
        self.next_outbound += 1;
        self.outbound.push_back(StoredReply { seq, message: message.clone(), is_stored: false });
        actions.push(Action::Outbound { session: self.name(), seq, message });
        if self.outbound.len() > MAX_OUTBOUND
            && let Some(oldest) = self.outbound.pop_front()
        {
            actions.push(Action::ForgetSaid { session: self.name(), seq: oldest.seq });
        }
    }

    /// A message is durable, or could not be stored. Returns the call that sent it.
    pub(super) fn outbound_stored(&mut self, seq: u64, is_stored: bool) -> Option<String> {
        let at = self.outbound.iter().position(|said| said.seq == seq)?;
        let said = self.outbound.get_mut(at)?;
        let call_id = said.message.call_id.clone();
        if is_stored {
            said.is_stored = true;
        } else {
            self.outbound.remove(at);
        }
        // A question that the bridge posted answers no call.
        Some(call_id).filter(|id| !id.is_empty())
    }

    /// Restores messages from before this process started, oldest first.
    pub(super) fn restore_outbound(&mut self, seq: u64, message: OutboundMessage) {
        self.outbound.push_back(StoredReply { seq, message, is_stored: true });
        self.next_outbound = self.next_outbound.max(seq + 1);
    }

    pub(super) fn outbound_after(&self, seq: u64) -> Vec<(u64, OutboundMessage)> {
        let kept = self.outbound.iter().filter(|said| said.is_stored && said.seq > seq);
        kept.map(|said| (said.seq, said.message.clone())).collect()
    }

    /// The numbers of all stored messages.
    pub(super) fn outbound_numbers(&self) -> Vec<u64> {
        self.outbound.iter().map(|said| said.seq).collect()
    }

    pub(super) fn view(&self, to: ApprovalRole) -> SessionView {
        SessionView {
            session_key: self.name(),
            claude_session: self.opening.claude_session.clone(),
            connected: self.welcome_connection().is_some(),
            pid: self.bound.as_ref().map(|b| b.pid),
            waiting: self.mailbox.len(),
            waiting_bytes: self.mailbox.bytes(),
            dropped: self.dropped,
            calls: self.calls.len(),
            open_questions: self.questions.len(),
            questions: (to == ApprovalRole::Approver)
                .then(|| self.questions.iter().map(|open| open.question.clone()).collect()),
        }
    }
}
