//! The revisions of the protocol and their differences.

use crate::wire::Payload;
use serde_json::Value;

/// In `_meta` of a request: the revision (2026-07-28).
pub const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// In `_meta` of a request: what the client can do.
pub const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// In `_meta` of a request: the log level wanted.
pub const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// A supported revision of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// Revision 2025-06-18.
    V20250618,
    /// Revision 2025-11-25.
    V20251125,
    /// 2026-07-28: no handshake, every request carries what it needs.
    V20260728,
}

impl Revision {
    /// All, newest first.
    pub const ALL: [Self; 3] = [Self::V20260728, Self::V20251125, Self::V20250618];
    /// The newest that begins with a handshake.
    pub const NEWEST_WITH_HANDSHAKE: Self = Self::V20251125;

    /// As written on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V20250618 => "2025-06-18",
            Self::V20251125 => "2025-11-25",
            Self::V20260728 => "2026-07-28",
        }
    }

    /// Parses a revision.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.as_str() == text)
    }

    /// The response to `initialize`: the requested revision if it is supported and has a handshake, otherwise the
    /// newest that has one.
    pub fn negotiate(asked: &str) -> Self {
        Self::parse(asked).filter(|r| r.has_handshake()).unwrap_or(Self::NEWEST_WITH_HANDSHAKE)
    }

    /// Whether it begins with `initialize` and has sessions.
    pub fn has_handshake(self) -> bool {
        self < Self::V20260728
    }

    /// The names of all, newest first.
    pub fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|r| r.as_str()).collect()
    }
}

/// The client's capabilities. They are shown and used to choose how to ask, never to decide what the client may do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClientCapabilities(pub Payload);

impl ClientCapabilities {
    /// Reads the capabilities; a value that is not an object counts as none.
    pub fn read(value: Option<&Value>) -> Self {
        Self(value.and_then(Value::as_object).cloned().unwrap_or_default())
    }

    /// Whether it can answer a request of this method.
    pub fn answers(&self, method: &str) -> bool {
        match method {
            "elicitation/create" => self.0.contains_key("elicitation"),
            "sampling/createMessage" => self.0.contains_key("sampling"),
            "roots/list" => self.0.contains_key("roots"),
            _ => false,
        }
    }

    /// Whether it can show a form to a person: an empty object means forms.
    pub fn shows_forms(&self) -> bool {
        self.0.get("elicitation").and_then(Value::as_object).is_some_and(|e| e.is_empty() || e.contains_key("form"))
    }

    /// Whether the client can answer any request of the server.
    pub fn answers_anything(&self) -> bool {
        ["elicitation", "sampling", "roots"].iter().any(|key| self.0.contains_key(*key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_handshake_never_agrees_on_the_revision_that_has_none() {
        assert_eq!(Revision::negotiate("2025-06-18"), Revision::V20250618);
        assert_eq!(Revision::negotiate("2026-07-28"), Revision::V20251125);
        assert_eq!(Revision::negotiate("1999-01-01"), Revision::V20251125);
    }

    #[test]
    fn an_empty_elicitation_capability_means_forms() {
        let of = |value: Value| ClientCapabilities::read(Some(&value));
        assert!(of(json!({"elicitation": {}})).shows_forms());
        assert!(of(json!({"elicitation": {"form": {}}})).shows_forms());
        assert!(!of(json!({"elicitation": {"url": {}}})).shows_forms());
        assert!(!of(json!({})).answers_anything());
    }
}
