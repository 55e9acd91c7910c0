//! [`ApiError`]: what the store says when it does not do what was asked, in the words of its HTTP interface.

use serde::{Serialize, Serializer, ser::SerializeStruct};

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

/// What an error says beside its code and message. An error of the interface carries an empty object where nothing more is
/// known.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Details {
    /// What the resource is: `file`, `directory` or `session`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// The URI or id that the request named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// What the request needs at that place,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<&'static str>,
    /// and what is there instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual: Option<&'static str>,
    /// A URI that cannot be read,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Everything that is wrong with the parameters of a request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validation_errors: Vec<ValidationError>,
}

/// One thing that is wrong with the parameters of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ValidationError {
    /// `body` or `query`, then the field.
    pub loc: Vec<String>,
    /// In words.
    pub message: String,
    /// The name of the rule that was broken.
    #[serde(rename = "type")]
    pub kind: &'static str,
}

/// A request that was not done.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// What callers branch on.
    pub code: Code,
    /// For people and models.
    pub message: String,
    /// What is known about the place or the parameters; unset where the interface sends no details at all.
    pub details: Option<Box<Details>>,
    /// The original answers some errors without `result`, `telemetry` and `profile`.
    pub bare: bool,
    /// What lies behind it, for logs; never part of an answer.
    pub causes: Option<String>,
}

/// What the store's functions answer.
pub type Result<T, E = ApiError> = std::result::Result<T, E>;

impl ApiError {
    /// A code and a message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Some(Box::default()), bare: false, causes: None }
    }

    /// The same with details.
    #[must_use]
    pub fn with(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// The same about a URI or an id.
    #[must_use]
    pub fn about(self, resource: impl Into<String>) -> Self {
        self.with(Details { resource: Some(resource.into()), ..Details::default() })
    }

    /// An argument that cannot be used.
    pub fn argument(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// No such file.
    pub fn no_file(uri: &str) -> Self {
        let details = Details { kind: Some("file"), resource: Some(uri.to_owned()), ..Details::default() };
        Self::new(Code::NotFound, format!("File not found: {uri}")).with(details)
    }

    /// No such directory.
    pub fn no_directory(uri: &str) -> Self {
        let details = Details { kind: Some("directory"), resource: Some(uri.to_owned()), ..Details::default() };
        Self::new(Code::NotFound, format!("Directory not found: {uri}")).with(details)
    }

    /// A place that must be free and is not.
    pub fn exists(uri: &str) -> Self {
        Self::new(Code::AlreadyExists, format!("File already exists: {uri}")).about(uri)
    }

    /// Something that is named by id and not there; answered without details.
    pub fn none_such(message: impl Into<String>) -> Self {
        Self { details: None, bare: true, ..Self::new(Code::NotFound, message) }
    }

    /// As the plugin's tools put it.
    pub fn told(&self) -> String {
        format!("OpenViking request failed [{}]: {}", self.code.as_str(), self.message)
    }
}

/// The error object of an answer: `code`, `message` and, where there are any, `details`.
impl Serialize for ApiError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = if self.details.is_some() { 3 } else { 2 };
        let mut error = serializer.serialize_struct("ApiError", fields)?;
        error.serialize_field("code", self.code.as_str())?;
        error.serialize_field("message", &self.message)?;
        if let Some(details) = &self.details {
            error.serialize_field("details", details)?;
        }
        error.end()
    }
}

/// A value of ours that cannot be written as JSON is a defect.
impl From<serde_json::Error> for ApiError {
    fn from(error: serde_json::Error) -> Self {
        tracing::error!(%error, "a value of the context store could not be written or read as JSON");
        Self::new(Code::Internal, format!("a record of the store cannot be used: {error}"))
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
