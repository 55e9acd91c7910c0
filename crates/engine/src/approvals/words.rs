//! Texts about a waiting call for the client that made it, and how a denial is reported to the caller.

use super::Approval;
use toolyard_protocol::{ErrorCode, Failure};

/// The answer that the client of a waiting call reports. It is valid for this call only; a client cannot give a lasting
/// permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAnswer {
    /// The client's user allows this call.
    AllowOnce,
    /// The client's user does not allow it.
    Deny,
    /// Nobody was asked; the text gives the reason to the caller.
    NobodyAsked(String),
}

/// The approver's name if only the client's report exists.
pub const CLIENT_USER: &str = "the client's user, as the client says";

/// Why a question was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialCause {
    /// A person with the right to approve denied the call.
    User,
    /// The client that made the call reports that its user denied it.
    ClientUser,
    /// The client that made the call should have asked its user and did not.
    NobodyAsked,
    /// Nobody answered in time.
    Timeout,
    /// Nobody who may approve is connected.
    NoRoute,
    /// Another question replaced it, because the predicted changes were different.
    Superseded,
}

impl DenialCause {
    /// The word used in records and in the details of an error.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::ClientUser => "client-user",
            Self::NobodyAsked => "nobody-asked",
            Self::Timeout => "timeout",
            Self::NoRoute => "no-route",
            Self::Superseded => "superseded",
        }
    }
}

/// A denial, as it is reported to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The reason, as a sentence.
    pub reason: String,
    /// The cause, as a code.
    pub cause: DenialCause,
}

impl Denial {
    pub(super) fn new(cause: DenialCause, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), cause }
    }

    /// The denial that results from an answered question. Its cause is recorded.
    pub(super) fn by_user(approval: &Approval) -> Self {
        let (cause, reason) = match approval.terminal_reason.as_deref() {
            Some("timeout") => (DenialCause::Timeout, "Approval timed out"),
            Some("no-route") => (DenialCause::NoRoute, "Nobody who can approve was connected (no approval route)."),
            Some("superseded") => {
                (DenialCause::Superseded, "What was asked about has changed; another question replaced this one.")
            }
            _ => (DenialCause::User, "Denied by user. The tool call did not run."),
        };
        let reason = match &approval.note {
            Some(note) => format!("{reason} Reason: {note}"),
            None => reason.to_owned(),
        };
        Self::new(cause, reason)
    }

    /// The error that ends the call.
    pub fn into_failure(self) -> Failure {
        Failure::new(ErrorCode::ApprovalDenied, self.reason).detail("cause", self.cause.as_str()).retryable(false)
    }
}
