//! [`ApiError`]: the errors of the store, in the form of its HTTP interface.

use serde::{Serialize, Serializer, ser::SerializeStruct};

/// The error codes of the interface, each with an HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The request is invalid.
    InvalidArgument,
    /// The URI does not belong to this store.
    InvalidUri,
    /// The credential is missing or wrong.
    Unauthenticated,
    /// The caller may not read or change this.
    PermissionDenied,
    /// The resource does not exist.
    NotFound,
    /// The resource already exists.
    AlreadyExists,
    /// Another operation is in progress on the resource.
    Conflict,
    /// A precondition is not met.
    FailedPrecondition,
    /// A limit is exceeded.
    ResourceExhausted,
    /// A disk error or a defect.
    Internal,
    /// A source could not be converted to text.
    ProcessingError,
    /// This server does not implement the operation.
    Unimplemented,
    /// The service is temporarily unavailable.
    Unavailable,
    /// The operation timed out.
    DeadlineExceeded,
}

impl Code {
    /// The code as sent to clients.
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

    /// The HTTP status of the code.
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

/// Details of an error besides its code and message. When no details are known, the interface sends an empty object.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Details {
    /// The kind of the resource: `file`, `directory` or `session`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// The URI or id in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The kind of resource that the request needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<&'static str>,
    /// The kind of resource that exists instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual: Option<&'static str>,
    /// An invalid URI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Why the URI is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// All invalid parameters of the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validation_errors: Vec<ValidationError>,
}

/// One invalid parameter of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ValidationError {
    /// `body` or `query`, then the field.
    pub loc: Vec<String>,
    /// The message for people.
    pub message: String,
    /// The name of the violated rule.
    #[serde(rename = "type")]
    pub kind: &'static str,
}

/// The error of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// The code that callers branch on.
    pub code: Code,
    /// The message for people and models.
    pub message: String,
    /// Details about the resource or the parameters; `None` where the interface sends no details.
    pub details: Option<Box<Details>>,
    /// Whether the response omits `result`, `telemetry` and `profile`, as the original server does for some errors.
    pub bare: bool,
    /// The underlying causes, for logs; never part of a response.
    pub causes: Option<String>,
}

/// The result of the store's functions.
pub type Result<T, E = ApiError> = std::result::Result<T, E>;

impl ApiError {
    /// An error with a code and a message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Some(Box::default()), bare: false, causes: None }
    }

    /// Adds details.
    #[must_use]
    pub fn with(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// Adds the URI or id that the error is about.
    #[must_use]
    pub fn about(self, resource: impl Into<String>) -> Self {
        self.with(Details { resource: Some(resource.into()), ..Details::default() })
    }

    /// An invalid argument.
    pub fn argument(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// The file does not exist.
    pub fn no_file(uri: &str) -> Self {
        let details = Details { kind: Some("file"), resource: Some(uri.to_owned()), ..Details::default() };
        Self::new(Code::NotFound, format!("File not found: {uri}")).with(details)
    }

    /// The directory does not exist.
    pub fn no_directory(uri: &str) -> Self {
        let details = Details { kind: Some("directory"), resource: Some(uri.to_owned()), ..Details::default() };
        Self::new(Code::NotFound, format!("Directory not found: {uri}")).with(details)
    }

    /// The resource already exists.
    pub fn exists(uri: &str) -> Self {
        Self::new(Code::AlreadyExists, format!("File already exists: {uri}")).about(uri)
    }

    /// An unknown id; the response has no details.
    pub fn none_such(message: impl Into<String>) -> Self {
        Self { details: None, bare: true, ..Self::new(Code::NotFound, message) }
    }

    /// The message as the plugin's tools phrase it.
    pub fn tool_message(&self) -> String {
        format!("OpenViking request failed [{}]: {}", self.code.as_str(), self.message)
    }
}

/// Serialises the error object of a response: `code`, `message` and, if present, `details`.
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

/// A value of the store that cannot be serialised is a defect.
impl From<serde_json::Error> for ApiError {
    fn from(error: serde_json::Error) -> Self {
        tracing::error!(%error, "a value of the context store could not be serialised or parsed as JSON");
        Self::new(Code::Internal, format!("a record of the store cannot be used: {error}"))
    }
}

impl From<std::io::Error> for ApiError {
    fn from(error: std::io::Error) -> Self {
        tracing::warn!(%error, "an I/O operation of the context store failed");
        let code = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Code::ResourceExhausted,
            _ => Code::Internal,
        };
        Self::new(code, format!("the store's files cannot be used: {error}"))
    }
}
