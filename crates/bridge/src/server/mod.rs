//! The server's end: [`Hub`] holds every open session and every connection. It receives events and the time, and
//! returns [`Action`]s; the code that drives it provides sockets, tools and people.

mod check;
mod hub;
mod session;
mod tools;

pub use check::check_message;
pub use hub::{ApprovalRole, Hub, InboundOutcome, PermissionOutcome, ReplyError};
pub use session::{NewSession, SessionTerms, SessionView};
pub use tools::{BoxFuture, CallFailure, Offer};

use crate::frames::{InboundMessage, OutboundMessage, Question};
use serde_json::{Map, Value};

/// A question is open for this long.
pub const QUESTION_OPEN_MS: u64 = 10 * 60_000;
/// Questions of one session open at once; beyond it the oldest is closed.
pub const MAX_QUESTIONS: usize = 32;
/// Ids of closed questions that are remembered, so that a late answer is not taken for chat.
pub const MAX_CLOSED: usize = 64;
/// Maximum number of Claude's messages that are kept for later queries.
pub const MAX_OUTBOUND: usize = 100;
/// Sessions open at once.
pub const MAX_SESSIONS: usize = 10_000;

/// A connection, as the hub knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// What the driver must do. In order: what goes to one connection must keep its order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send a frame.
    Send {
        /// The connection.
        to: ConnectionId,
        /// The text of the frame.
        frame: String,
        /// Call [`Hub::written`] with this after the frame is written.
        receipt: Option<String>,
    },
    /// Close the connection.
    Close {
        /// The connection.
        to: ConnectionId,
        /// The WebSocket's code.
        code: u16,
        /// The reason, in words.
        reason: &'static str,
    },
    /// A plugin has been authenticated: list the session's tools and call [`Hub::welcome`].
    Welcome {
        /// The connection.
        to: ConnectionId,
        /// The session.
        session: String,
    },
    /// Run a tool and call [`Hub::call_done`].
    Call(ToolCallRequest),
    /// Cancel a call; its result is still reported.
    Cancel {
        /// The session.
        session: String,
        /// The call.
        call_id: String,
    },
    /// Ask the people of the session.
    Asked {
        /// The session.
        session: String,
        /// The question.
        question: Question,
        /// When it closes by itself, on the hub's clock.
        closes_at: u64,
    },
    /// A question is closed.
    QuestionClosed {
        /// The session.
        session: String,
        /// The id of the question.
        request_id: String,
        /// The outcome.
        how: QuestionOutcome,
    },
    /// A message from Claude to people: store it, and call [`Hub::outbound_stored`] when it is durable.
    Outbound {
        /// The session.
        session: String,
        /// Its number in the session.
        seq: u64,
        /// The message.
        message: OutboundMessage,
    },
    /// Store a message until [`Action::Forget`], so that it survives a restart.
    Keep {
        /// The session.
        session: String,
        /// The message.
        message: InboundMessage,
    },
    /// A stored message can be deleted.
    Forget {
        /// The session.
        session: String,
        /// The id of the message.
        request_id: String,
    },
    /// A stored message of Claude can be deleted.
    ForgetSaid {
        /// The session.
        session: String,
        /// Its number in the session.
        seq: u64,
    },
    /// A message was dropped because too many wait.
    Dropped {
        /// The session.
        session: String,
        /// The id of the message.
        request_id: String,
    },
    /// A plugin connected or disconnected.
    Presence {
        /// The session.
        session: String,
        /// Whether a plugin is connected now.
        connected: bool,
    },
}

/// A call to make.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCallRequest {
    /// The session.
    pub session: String,
    /// The plugin's id for it.
    pub call_id: String,
    /// The same for the same call of the same plugin process, however often it is sent.
    pub once: String,
    /// The tool.
    pub tool: String,
    /// The arguments.
    pub args: Map<String, Value>,
}

/// How a question was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionOutcome {
    /// A person answered.
    Answered {
        /// The answer.
        behavior: crate::frames::Behavior,
        /// The name of the person.
        by: String,
    },
    /// Nobody answered in time.
    Expired,
    /// The plugin disconnected, or asked too many questions.
    Withdrawn,
}
