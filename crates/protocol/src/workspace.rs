//! [`WorkspaceId`]: whose state something is, where several people share one installation.
//!
//! Names that belong to a workspace (sessions, questions, principals, keys of facts) carry it in front: `@NAME:` and the
//! name itself. Names of the default workspace carry nothing, so that an installation without workspaces has the keys it
//! always had. [`WorkspaceId::key`] and [`WorkspaceId::of`] are the only functions that know this form.

use crate::InvalidId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, sync::Arc};

/// The longest name of a workspace, in bytes.
pub const MAX_WORKSPACE_BYTES: usize = 32;
/// How the default workspace is shown. No other workspace may have this name.
const DEFAULT_NAME: &str = "default";
/// The first character of a name that belongs to a workspace.
const MARK: char = '@';
/// The character between the workspace and the name.
const END: char = ':';
/// The character that follows [`END`] in the order of bytes.
const AFTER_END: char = ';';

/// A workspace: the default one, or one that the owner of the installation made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkspaceId(Option<Arc<str>>);

impl WorkspaceId {
    /// Reads a name: lower-case letters, digits and hyphens, the first one a letter or digit; at most 32 bytes. The word
    /// `default` means the default workspace.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        if text == DEFAULT_NAME {
            return Ok(Self::default());
        }
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_valid = text.len() <= MAX_WORKSPACE_BYTES
            && text.bytes().next().is_some_and(is_word)
            && text.bytes().all(|byte| is_word(byte) || byte == b'-');
        match is_valid {
            true => Ok(Self(Some(text.into()))),
            false => Err(InvalidId {
                kind: "workspace",
                value: text.chars().take(80).collect(),
                expected: "1 to 32 lower-case letters, digits or hyphens",
            }),
        }
    }

    /// Whether this is the default workspace.
    pub fn is_default(&self) -> bool {
        self.0.is_none()
    }

    /// The name for people and files.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or(DEFAULT_NAME)
    }

    /// A name as it is kept for this workspace. A name that already carries this workspace stays as it is, so that
    /// what a client was shown can be sent back.
    pub fn key<'a>(&self, name: &'a str) -> Cow<'a, str> {
        match &self.0 {
            None => Cow::Borrowed(name),
            Some(_) if self.owns(name) => Cow::Borrowed(name),
            Some(workspace) => Cow::Owned(format!("{MARK}{workspace}{END}{name}")),
        }
    }

    /// The workspace that a kept name belongs to, and the name without it.
    pub fn of(kept: &str) -> (Self, &str) {
        let carried = kept.strip_prefix(MARK).and_then(|rest| rest.split_once(END));
        match carried.and_then(|(workspace, name)| Some((Self::parse(workspace).ok()?, name))) {
            Some((workspace, name)) if !workspace.is_default() => (workspace, name),
            _ => (Self::default(), kept),
        }
    }

    /// Whether a kept name belongs to this workspace.
    pub fn owns(&self, kept: &str) -> bool {
        Self::of(kept).0 == *self
    }

    /// The kept names of this workspace as a range of texts in the order of bytes, the end excluded. `None` for the
    /// default workspace, whose names are those outside of [`WorkspaceId::all_keys`].
    pub fn key_range(&self) -> Option<(String, String)> {
        let workspace = self.0.as_ref()?;
        Some((format!("{MARK}{workspace}{END}"), format!("{MARK}{workspace}{AFTER_END}")))
    }

    /// The range that includes the kept names of every workspace but the default one, the end excluded.
    pub fn all_keys() -> (&'static str, &'static str) {
        ("@", "A")
    }
}

impl fmt::Display for WorkspaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for WorkspaceId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for WorkspaceId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for WorkspaceId {
    fn schema_name() -> Cow<'static, str> {
        "WorkspaceId".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,31}$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> WorkspaceId {
        WorkspaceId::parse(name).unwrap()
    }

    #[test]
    fn a_key_names_its_workspace_and_the_default_one_adds_nothing() {
        let (none, bob) = (WorkspaceId::default(), named("bob"));
        assert_eq!(none.key("agent:main:main"), "agent:main:main");
        assert_eq!(bob.key("agent:main:main"), "@bob:agent:main:main");
        assert_eq!(bob.key("@bob:agent:main:main"), "@bob:agent:main:main", "what was shown can be sent back");
        for workspace in [&none, &bob, &named("b"), &named("bob-2")] {
            for name in ["agent:main:main", "operator", "policy:1", "", "@", "@x", "x@bob:y"] {
                let kept = workspace.key(name);
                assert_eq!(WorkspaceId::of(&kept), (workspace.clone(), name), "{workspace} {name:?}");
            }
        }
    }

    #[test]
    fn no_workspace_reaches_a_name_of_another_by_spelling_it() {
        let (none, bob, eve) = (WorkspaceId::default(), named("bob"), named("eve"));
        let kept = bob.key("agent:main:main");
        assert!(bob.owns(&kept) && !eve.owns(&kept) && !none.owns(&kept));
        assert!(eve.owns(&eve.key(&kept)), "a foreign name becomes an unknown name of one's own");
        assert_ne!(eve.key(&kept), kept);
        assert!(named("bo").owns("@bo:x") && !named("bo").owns(&kept));
    }

    #[test]
    fn ranges_hold_exactly_the_names_of_a_workspace() {
        let (from, to) = named("bob").key_range().unwrap();
        for (kept, is_inside) in
            [("@bob:", true), ("@bob:agent:main:é", true), ("@bob-2:x", false), ("@bo:x", false), ("agent:main", false)]
        {
            assert_eq!(from.as_str() <= kept && kept < to.as_str(), is_inside, "{kept}");
            assert_eq!(named("bob").owns(kept), is_inside, "{kept}");
        }
        let (from, to) = WorkspaceId::all_keys();
        assert!(
            from <= "@bob:x"
                && "@bob:x" < to
                && "agent:main:main" >= to
                && WorkspaceId::default().key_range().is_none()
        );
    }

    #[test]
    fn names_are_short_plain_words() {
        for good in ["a", "0", "ada-2", &"a".repeat(MAX_WORKSPACE_BYTES)] {
            assert_eq!(named(good).as_str(), good);
        }
        for bad in ["", "-a", "A", "a b", "a:b", "@a", "é", "a/b", &"a".repeat(MAX_WORKSPACE_BYTES + 1)] {
            assert!(WorkspaceId::parse(bad).is_err(), "{bad}");
        }
        assert!(named("default").is_default());
        assert_eq!(serde_json::to_string(&WorkspaceId::default()).unwrap(), "\"default\"");
        assert_eq!(serde_json::from_str::<WorkspaceId>("\"bob\"").unwrap(), named("bob"));
    }
}
