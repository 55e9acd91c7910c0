//! Identifiers as their own types, so that a run id can never be passed where a call id is meant.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};
use uuid::Uuid;

/// An identifier that does not have the form its kind asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {kind} {value:?}: {expected}")]
pub struct InvalidId {
    /// Which kind of identifier.
    pub kind: &'static str,
    /// What was given (cut to 80 characters).
    pub value: String,
    /// The form that was expected.
    pub expected: &'static str,
}

impl InvalidId {
    fn new(kind: &'static str, value: &str, expected: &'static str) -> Self {
        Self { kind, value: value.chars().take(80).collect(), expected }
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID; the engine makes version 7 ones, which sort by time.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }
            /// The UUID itself.
            pub const fn as_uuid(&self) -> &Uuid {
                &self.0
            }
            /// Reads the usual hyphenated form.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                Uuid::parse_str(text).map(Self).map_err(|_| InvalidId::new(stringify!($name), text, "a UUID"))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "format": "uuid" })
            }
        }
    };
}

uuid_id!(
    /// One execution run: a whole plan, or a single direct call.
    RunId
);
uuid_id!(
    /// One invocation of one tool, unique for ever.
    CallId
);
uuid_id!(
    /// The approval of a run (or of one call) by a person.
    ConfirmationId
);

/// A plan step's id: a letter, then letters, digits, `_` or `-`; at most 128 bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct StepId(Arc<str>);

impl StepId {
    /// Checks the form and wraps it.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let mut bytes = text.bytes();
        let ok = text.len() <= 128
            && bytes.next().is_some_and(|b| b.is_ascii_alphabetic())
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if ok {
            Ok(Self(text.into()))
        } else {
            Err(InvalidId::new("step id", text, "a letter, then letters, digits, '_' or '-', at most 128 bytes"))
        }
    }
    /// The step id every direct (plan-less) call carries.
    pub fn direct() -> Self {
        Self("call".into())
    }
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A tool's name as registered, for example `vault.createFile` or `ov_search`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct ToolName(Arc<str>);

impl ToolName {
    /// Checks the form (ASCII letters, digits and `_ . : / -`, at most 128 bytes) and wraps it.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let mut bytes = text.bytes();
        let ok = text.len() <= crate::MAX_TOOL_NAME_BYTES
            && bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
            && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'/' | b'-'));
        if ok {
            Ok(Self(text.into()))
        } else {
            Err(InvalidId::new(
                "tool name",
                text,
                "a letter or digit, then letters, digits or '_.:/-', at most 128 bytes",
            ))
        }
    }
    /// A placeholder for a tool whose name is not known.
    pub fn unknown() -> Self {
        Self("unknown".into())
    }
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! text_id {
    ($name:ident, $pattern:literal) => {
        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern, "maxLength": 128 })
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }
        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::parse(&text)
            }
        }
        // Written as it lies there: a call's record names both several times.
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.as_str().to_owned()
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

text_id!(StepId, r"^[A-Za-z][A-Za-z0-9_\-]*$");
text_id!(ToolName, r"^[A-Za-z0-9][A-Za-z0-9_.:/\-]*$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_ids_follow_the_plan_grammar() {
        for good in ["a", "s5", "read_all", "A-b"] {
            assert!(StepId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "5s", "_a", "a b", "a.b", "é", &"x".repeat(129)] {
            assert!(StepId::parse(bad).is_err(), "{bad}");
        }
    }

    #[toolyard_shows::shows("002-3.1-05")]
    #[test]
    fn tool_names_accept_what_every_door_uses() {
        for good in ["vault.createFile", "ov_search", "mcp:calendar:create_event", "a/b", "x-1"] {
            assert!(ToolName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", ".x", "a b", "a\n", "naïve", &"x".repeat(129)] {
            assert!(ToolName::parse(bad).is_err(), "{bad}");
        }
    }
}
