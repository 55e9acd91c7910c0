//! The errors of methods. Each door writes them in its own format.

use crate::Object;
use serde::Serialize;
use serde_json::Value;
use toolyard_engine::{authority::Refusal, redact::redactor, store::StoreError};
use toolyard_protocol::{ErrorCode, Failure};

/// The error of a method.
#[derive(Debug, Clone)]
pub enum MethodError {
    /// A failure with a code of ours.
    Failure(Box<Failure>),
    /// An error in the format that clients of the real gateway know.
    Rpc(Box<RpcError>),
}

/// An error in a response of the WebSocket door.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RpcError {
    /// `INVALID_REQUEST`, `FORBIDDEN`, `UNAVAILABLE` or `NOT_PAIRED`.
    pub code: &'static str,
    /// What a person reads.
    pub message: String,
    /// What a program acts on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Object>,
    /// Whether the same request may succeed later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// When to try again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl RpcError {
    /// An error without details.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None, retryable: None, retry_after_ms: None }
    }

    /// An invalid request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new("INVALID_REQUEST", message)
    }

    /// Something that is unavailable.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new("UNAVAILABLE", message)
    }

    /// Something that is busy and can be tried again later.
    pub fn busy(message: impl Into<String>, retry_after_ms: u64) -> Self {
        Self { retryable: Some(true), retry_after_ms: Some(retry_after_ms), ..Self::new("UNAVAILABLE", message) }
    }

    /// Adds a detail that a program acts on.
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.get_or_insert_default().insert(name.to_owned(), value.into());
        self
    }

    /// A text among the details.
    pub fn detail_text(&self, name: &str) -> Option<&str> {
        self.details.as_ref()?.get(name)?.as_str()
    }
}

impl MethodError {
    /// What a person reads.
    pub fn message(&self) -> &str {
        match self {
            Self::Failure(failure) => &failure.message,
            Self::Rpc(error) => &error.message,
        }
    }

    /// The error in the format of the WebSocket door.
    pub fn into_rpc(self) -> RpcError {
        match self {
            Self::Failure(failure) => from_failure(*failure),
            Self::Rpc(error) => *error,
        }
    }

    /// The error in the format of the local socket and the command line.
    pub fn into_failure(self) -> Failure {
        let error = match self {
            Self::Failure(failure) => return *failure,
            Self::Rpc(error) => *error,
        };
        let code = match error.code {
            "FORBIDDEN" => ErrorCode::PolicyDenied,
            "UNAVAILABLE" => ErrorCode::Unavailable,
            _ => ErrorCode::ValidationError,
        };
        let mut failure = Failure::new(code, error.message).retryable(error.retryable.unwrap_or(false));
        for (name, value) in error.details.into_iter().flatten() {
            failure = failure.detail(&name, value);
        }
        failure
    }
}

/// A failure of the engine in the format of a response.
fn from_failure(failure: Failure) -> RpcError {
    let failure = redactor().failure(failure);
    let code = match failure.code {
        ErrorCode::Unavailable | ErrorCode::StoreUnavailable | ErrorCode::LimitExceeded | ErrorCode::InternalError => {
            "UNAVAILABLE"
        }
        ErrorCode::PolicyDenied => "FORBIDDEN",
        _ => "INVALID_REQUEST",
    };
    let mut details = failure.details.unwrap_or_default();
    // A refusal of the authority has a code of its own, which clients of the real gateway know.
    if !details.contains_key("missingScope") {
        details.insert("code".to_owned(), failure.code.as_str().into());
    }
    if let Some(suggestion) = failure.suggestion {
        details.insert("suggestion".to_owned(), suggestion.into());
    }
    RpcError { retryable: failure.retryable, details: Some(details), ..RpcError::new(code, failure.message) }
}

impl From<Refusal> for RpcError {
    fn from(refusal: Refusal) -> Self {
        Self { details: Some(refusal.details()), ..RpcError::new("FORBIDDEN", refusal.message()) }
    }
}

impl From<Failure> for MethodError {
    fn from(failure: Failure) -> Self {
        Self::Failure(Box::new(failure))
    }
}

impl From<RpcError> for MethodError {
    fn from(error: RpcError) -> Self {
        Self::Rpc(Box::new(error))
    }
}

impl From<StoreError> for MethodError {
    fn from(error: StoreError) -> Self {
        Self::from(Failure::from(error))
    }
}

impl From<Refusal> for MethodError {
    fn from(refusal: Refusal) -> Self {
        Self::from(Failure::from(refusal))
    }
}
