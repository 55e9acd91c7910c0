//! [`ApiError`]: what the store says when it does not do what was asked, in the words of its HTTP interface.

use serde_json::{Map, Value, json};

/// The codes of the interface, each with its HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The request cannot mean anything.
    InvalidArgument,
    /// Not a URI of this store.
    InvalidUri,
    /// No credential, or a wrong one.
    Unauthenticated,
    /// Not this caller's to see or change.
    PermissionDenied,
    /// Nothing there.
    NotFound,
    /// Something is there already.
    AlreadyExists,
    /// Somebody else is at it.
    Conflict,
    /// Something else has to happen first.
    FailedPrecondition,
    /// Too much or too large.
    ResourceExhausted,
    /// The disk or a defect.
    Internal,
    /// A source could not be turned into text.
    ProcessingError,
    /// Not here.
    Unimplemented,
    /// Not now.
    Unavailable,
    /// Not in time.
    DeadlineExceeded,
}

impl Code {
    /// As it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::InvalidUri => "INVALID_URI",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::Conflict => "CONFLICT",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::Internal => "INTERNAL",
            Self::ProcessingError => "PROCESSING_ERROR",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Unavailable => "UNAVAILABLE",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
        }
    }

    /// Its HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidArgument | Self::InvalidUri => 400,
            Self::Unauthenticated => 401,
            Self::PermissionDenied => 403,
            Self::NotFound => 404,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::FailedPrecondition => 412,
            Self::ResourceExhausted => 429,
            Self::Internal | Self::ProcessingError => 500,
            Self::Unimplemented => 501,
            Self::Unavailable => 503,
            Self::DeadlineExceeded => 504,
        }
    }
}

/// A request that was not done.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// What callers branch on.
    pub code: Code,
    /// For people and models.
    pub message: String,
    /// More, by key.
    pub details: Option<Map<String, Value>>,
    /// The original answers some errors without `result`, `telemetry` and `profile`.
    pub bare: bool,
}

/// What the store's functions answer.
pub type Result<T, E = ApiError> = std::result::Result<T, E>;

impl ApiError {
    /// A code and a message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Some(Map::new()), bare: false }
    }

    /// The same with details.
    #[must_use]
    pub fn with(mut self, details: Value) -> Self {
        if let Value::Object(map) = details {
            self.details = Some(map);
        }
        self
    }

    /// An argument that cannot be used.
    pub fn argument(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// No such file.
    pub fn no_file(uri: &str) -> Self {
        Self::new(Code::NotFound, format!("File not found: {uri}")).with(json!({"type": "file", "resource": uri}))
    }

    /// No such directory.
    pub fn no_directory(uri: &str) -> Self {
        Self::new(Code::NotFound, format!("Directory not found: {uri}"))
            .with(json!({"type": "directory", "resource": uri}))
    }

    /// Something that is named by id and not there; answered without details.
    pub fn none_such(message: impl Into<String>) -> Self {
        Self { details: None, bare: true, ..Self::new(Code::NotFound, message) }
    }

    /// As the plugin's tools put it.
    pub fn told(&self) -> String {
        format!("OpenViking request failed [{}]: {}", self.code.as_str(), self.message)
    }

    /// The error object of an answer.
    pub fn to_value(&self) -> Value {
        let mut error = json!({"code": self.code.as_str(), "message": self.message});
        if let Some(details) = &self.details {
            error["details"] = Value::Object(details.clone());
        }
        error
    }
}

impl From<std::io::Error> for ApiError {
    fn from(error: std::io::Error) -> Self {
        tracing::warn!(%error, "the context store could not do its work");
        let code = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Code::ResourceExhausted,
            _ => Code::Internal,
        };
        Self::new(code, format!("the store's files cannot be used: {error}"))
    }
}
