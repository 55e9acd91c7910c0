//! The server's end: [`Hub`] holds every open session and every connection. It receives events and the time, and
//! returns [`Action`]s; the code that drives it provides sockets, tools and people.

mod hub;
mod session;
mod tools;

pub use hub::{Accepted, Hub, Permitted, ReplyError, Standing, check_message};
pub use session::{NewSession, Opening, SessionView};
pub use tools::{BoxFuture, CallFailure, Offer};

use crate::frames::{InboundMessage, OutboundMessage, Question};
use serde_json::{Map, Value};

/// A question is open for this long.
pub const QUESTION_OPEN_MS: u64 = 10 * 60_000;
/// Questions of one session open at once; beyond it the oldest is closed.
pub const MAX_QUESTIONS: usize = 32;
/// Ids of closed questions that are remembered, so that a late answer is not taken for chat.
pub const MAX_CLOSED: usize = 64;
/// Messages of Claude's that are kept for whoever asks later.
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
        /// To whom.
        to: ConnectionId,
        /// The text.
        frame: String,
        /// Say [`Hub::written`] with this once it is written.
        receipt: Option<String>,
    },
    /// Close the connection.
    Close {
        /// Which.
        to: ConnectionId,
        /// The WebSocket's code.
        code: u16,
        /// Why, in words.
        reason: &'static str,
    },
    /// A plugin is in: list the session's tools and say [`Hub::welcome`].
    Welcome {
        /// Its connection.
        to: ConnectionId,
        /// Its session.
        session: String,
    },
    /// Run a tool and say [`Hub::call_done`].
    Call(CallOrder),
    /// Stop a call; its result is still told.
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
    Settled {
        /// The session.
        session: String,
        /// The question.
        request_id: String,
        /// How.
        how: Settled,
    },
    /// Claude says something to people: keep it, and say [`Hub::said`] once it is durable.
    Outbound {
        /// The session.
        session: String,
        /// Its number in the session.
        seq: u64,
        /// The message.
        message: OutboundMessage,
    },
    /// Keep a message until [`Action::Forget`], in case this process ends.
    Keep {
        /// The session.
        session: String,
        /// The message.
        message: InboundMessage,
    },
    /// A message needs no keeping any more.
    Forget {
        /// The session.
        session: String,
        /// The message.
        request_id: String,
    },
    /// What Claude said needs no keeping any more.
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
        /// The message.
        request_id: String,
    },
    /// A plugin came or went.
    Presence {
        /// The session.
        session: String,
        /// Whether one is there now.
        connected: bool,
    },
}

/// A call to make.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOrder {
    /// The session.
    pub session: String,
    /// The plugin's id for it.
    pub call_id: String,
    /// The same for the same call of the same plugin process, however often it is sent.
    pub once: String,
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub args: Map<String, Value>,
}

/// How a question was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// Somebody answered.
    Answered {
        /// What.
        behavior: crate::frames::Behavior,
        /// Who.
        by: String,
    },
    /// Nobody answered in time.
    Expired,
    /// The plugin is gone, or asked too much.
    Withdrawn,
}
