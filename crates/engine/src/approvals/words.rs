//! Texts about a waiting call for the client that made it, and how a denial is reported to the caller.

use toolyard_protocol::{ErrorCode, Failure};

/// What the client of a waiting call says about it. It holds for this one call: a client cannot say anything lasting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAnswer {
    /// The client's user allows this call.
    AllowOnce,
    /// The client's user does not allow it.
    Deny,
    /// Nobody was asked; the sentence says why, for the caller.
    NobodyAsked(String),
}

/// How the approver is named when all there is to it is the client's word.
pub const CLIENT_USER: &str = "the client's user, as the client says";

/// Why a question was answered with no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialCause {
    /// Somebody with the right to approve said no.
    User,
    /// The user of the client that made the call said no, as the client says.
    ClientUser,
    /// The client that made the call was to ask its user, and asked nobody.
    NobodyAsked,
    /// Nobody answered in time.
    Timeout,
    /// Nobody who can approve is connected.
    NoRoute,
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
        }
    }
}

/// A no, as the caller is told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// A sentence.
    pub reason: String,
    /// Why.
    pub cause: DenialCause,
}

impl Denial {
    pub(super) fn new(cause: DenialCause, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), cause }
    }

    /// The error that ends the call.
    pub fn into_failure(self) -> Failure {
        Failure::new(ErrorCode::ApprovalDenied, self.reason).detail("cause", self.cause.as_str()).retryable(false)
    }
}
