//! `viking://` URIs, without file access. A [`StorePath`] is canonical, visible to the caller and cannot leave its account.

use crate::error::{ApiError, Code, Details, Result};
use std::fmt;

/// The scheme of every URI.
pub const SCHEME: &str = "viking://";
/// Maximum length of a URI, in bytes.
const MAX_URI_BYTES: usize = 4096;
/// Maximum length of a name in a URI, in bytes; the limit of file systems.
const MAX_NAME_BYTES: usize = 255;
/// Maximum length of an account, user or peer id, in characters.
const MAX_ID_CHARS: usize = 128;
/// The folders of a user.
pub const USER_FOLDERS: [&str; 6] = ["memories", "resources", "skills", "peers", "sessions", "privacy"];
/// The scopes of URIs.
pub const SCOPES: [&str; 3] = ["agent", "resources", "user"];

/// The scopes that lists show. `agent` holds shared skills; it has URIs but is not listed.
pub const SHOWN_SCOPES: [&str; 2] = ["resources", "user"];

/// The identity on whose behalf a request runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The account. Accounts share nothing.
    pub account: String,
    /// The user. Users of an account share resources and the agent's folders.
    pub user: String,
    /// The acting peer. It cannot access the memories of other peers.
    pub peer: Option<String>,
}

impl Default for Identity {
    fn default() -> Self {
        Self { account: "default".to_owned(), user: "default".to_owned(), peer: None }
    }
}

/// The first character of a workspace's account. No request may name such an account.
pub(crate) const WORKSPACE_ACCOUNT: char = '@';

impl Identity {
    /// Validates the ids.
    pub fn new(account: &str, user: &str, peer: Option<&str>) -> Result<Self> {
        for (what, id) in [("account", Some(account)), ("user", Some(user)), ("actor peer", peer)] {
            if let Some(id) = id
                && !is_id(id)
            {
                return Err(ApiError::argument(format!(
                    "Invalid {what} id: use letters, digits, '_', '-', '.' and '@', at most {MAX_ID_CHARS}"
                )));
            }
        }
        if USER_FOLDERS.contains(&user) {
            return Err(ApiError::argument(format!("Invalid user id: {user} is a reserved name")));
        }
        Ok(Self { account: account.to_owned(), user: user.to_owned(), peer: peer.map(str::to_owned) })
    }

    /// The root of the user's folders.
    pub fn home(&self) -> StorePath {
        StorePath { names: vec!["user".to_owned(), self.user.clone()] }
    }
}

fn is_id(id: &str) -> bool {
    !id.is_empty()
        && id.chars().count() <= MAX_ID_CHARS
        && id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@'))
        && !id.starts_with('.')
        // The store's internal folders have these names.
        && !matches!(id, "_system" | "_trash" | "_staging" | "_uploads")
}

/// A place in the store: a path of names relative to the account's folder, none of which leads outside.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StorePath {
    names: Vec<String>,
}

/// What a place contains, as searches distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Memories.
    Memory,
    /// Imported resources.
    Resource,
    /// Skills.
    Skill,
    /// Conversations; not searched by meaning.
    Session,
}

impl Kind {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Resource => "resource",
            Self::Skill => "skill",
            Self::Session => "session",
        }
    }
}

impl StorePath {
    /// Parses a URI on behalf of a caller.
    pub fn parse(text: &str, who: &Identity) -> Result<Self> {
        let bad = |reason: String| {
            let shown: String = text.chars().take(300).collect();
            let message = format!("Invalid URI: {shown} ({reason})");
            let details = Details { uri: Some(shown), reason: Some(reason), ..Details::default() };
            ApiError::new(Code::InvalidUri, message).with(details)
        };
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return Err(bad("URI must start with 'viking://'".to_owned()));
        };
        if text.len() > MAX_URI_BYTES {
            return Err(bad(format!("URI is longer than {MAX_URI_BYTES} bytes")));
        }
        let rest = with_calendar(rest.trim_end_matches('/'));
        if rest.is_empty() {
            return Ok(Self { names: Vec::new() });
        }
        let mut names: Vec<String> = rest.split('/').map(str::to_owned).collect();
        for name in &names {
            if name.is_empty() || name == "." || name == ".." {
                return Err(bad("empty and relative path segments are not allowed".to_owned()));
            }
            if name.len() > MAX_NAME_BYTES {
                return Err(bad(format!("a path segment is longer than {MAX_NAME_BYTES} bytes")));
            }
            if name.chars().any(|c| c.is_control() || c == '\\') {
                return Err(bad("control characters and backslashes are not allowed".to_owned()));
            }
            if name.starts_with(crate::store::disk::STAGED) {
                return Err(bad("the name is reserved".to_owned()));
            }
        }
        match names[0].as_str() {
            "~" => {
                names.splice(..1, who.home().names);
            }
            // The older form without the user's id.
            "user" if names.get(1).is_some_and(|name| USER_FOLDERS.contains(&name.as_str())) => {
                names.insert(1, who.user.clone());
            }
            "session" => return Err(bad(format!("Legacy session URI is not canonical: {rest}"))),
            scope if SCOPES.contains(&scope) => {}
            scope => return Err(bad(format!("Unknown scope '{scope}'"))),
        }
        let place = Self { names };
        place.check_owner(who)?;
        Ok(place)
    }

    fn check_owner(&self, who: &Identity) -> Result<()> {
        if self.visible_to(who) {
            return Ok(());
        }
        Err(ApiError::new(Code::PermissionDenied, format!("Access denied: {self} belongs to somebody else"))
            .about(self.to_string()))
    }

    /// Whether the caller may know about the place: not another user's, and not another peer's if a peer is acting.
    pub fn visible_to(&self, who: &Identity) -> bool {
        if self.names.first().is_none_or(|scope| scope != "user") {
            return true;
        }
        if self.names.get(1).is_some_and(|user| *user != who.user) {
            return false;
        }
        match (&who.peer, self.names.get(2).map(String::as_str), self.names.get(3)) {
            (Some(own), Some("peers"), Some(peer)) => own == peer,
            _ => true,
        }
    }

    /// The names from the account's root.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether this is the root of the account.
    pub fn is_root(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether this is a fixed folder.
    pub fn is_fixed(&self) -> bool {
        match self.names.first().map(String::as_str) {
            None => true,
            Some("user") => {
                self.names.len() <= 2 || (self.names.len() == 3 && USER_FOLDERS.contains(&self.names[2].as_str()))
            }
            Some("agent") => self.names.len() == 1 || (self.names.len() == 2 && self.names[1] == "skills"),
            Some(_) => self.names.len() == 1,
        }
    }

    /// Whether this is a fixed folder of a scope that is not listed. Lists and searches do not return it.
    pub fn is_hidden(&self) -> bool {
        self.is_fixed() && self.names.first().is_some_and(|scope| !SHOWN_SCOPES.contains(&scope.as_str()))
    }

    /// The child with this name. The caller has validated the name.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        let mut names = self.names.clone();
        names.push(name.to_owned());
        Self { names }
    }

    /// A descendant, by a relative path that the store created.
    #[must_use]
    pub fn below(&self, path: &str) -> Self {
        let mut names = self.names.clone();
        names.extend(path.split('/').filter(|n| !n.is_empty()).map(str::to_owned));
        Self { names }
    }

    /// The place with these names, which are names of files.
    pub(crate) fn of_names(names: Vec<String>) -> Self {
        Self { names }
    }

    /// The parent.
    pub fn parent(&self) -> Option<Self> {
        let (_, rest) = self.names.split_last()?;
        Some(Self { names: rest.to_vec() })
    }

    /// The last name.
    pub fn name(&self) -> &str {
        self.names.last().map_or("", String::as_str)
    }

    /// Whether this equals the other place or is inside it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.names.starts_with(&other.names)
    }

    /// What the place contains.
    pub fn kind(&self) -> Kind {
        let name = |at: usize| self.names.get(at).map(String::as_str);
        match (name(0), name(2)) {
            (Some("agent"), _) if name(1) == Some("skills") => Kind::Skill,
            (Some("user"), Some("memories")) => Kind::Memory,
            (Some("user"), Some("peers")) => Kind::Memory,
            (Some("user"), Some("skills")) => Kind::Skill,
            (Some("user"), Some("sessions" | "privacy")) => Kind::Session,
            _ => Kind::Resource,
        }
    }

    /// The category of a memory: the folder inside `memories`, or the name of the file.
    pub fn category(&self) -> Option<&str> {
        let at = self.names.iter().position(|name| name == "memories")?;
        match self.names.len() - at {
            0 | 1 => None,
            2 => Some(self.names[at + 1].trim_end_matches(".md")),
            _ => Some(&self.names[at + 1]),
        }
    }
}

impl fmt::Display for StorePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        f.write_str(&self.names.join("/"))
    }
}

/// Replaces `{calendar:…}` by parts of the current date in UTC.
fn with_calendar(text: &str) -> String {
    if !text.contains("{calendar:") {
        return text.to_owned();
    }
    let today = jiff::Zoned::now().with_time_zone(jiff::tz::TimeZone::UTC).date();
    let yesterday = today.yesterday().unwrap_or(today);
    let week = today.iso_week_date();
    let parts = [
        ("today", today.to_string()),
        ("yesterday", yesterday.to_string()),
        ("year", format!("{:04}", today.year())),
        ("month", format!("{:02}", today.month())),
        ("day", format!("{:02}", today.day())),
        ("ym", format!("{:04}-{:02}", today.year(), today.month())),
        ("quarter", format!("{:04}-Q{}", today.year(), (today.month() - 1) / 3 + 1)),
        ("week", format!("{:04}-W{:02}", week.year(), week.week())),
    ];
    parts.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{calendar:{name}}}"), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who() -> Identity {
        Identity::new("default", "anna", None).unwrap()
    }

    #[test]
    fn uris_become_canonical() {
        for (given, meant) in [
            ("viking://", "viking://"),
            ("viking://~", "viking://user/anna"),
            ("viking://~/memories/", "viking://user/anna/memories"),
            ("viking://user/memories/x.md", "viking://user/anna/memories/x.md"),
            ("viking://resources/a b/ü.md", "viking://resources/a b/ü.md"),
        ] {
            assert_eq!(StorePath::parse(given, &who()).unwrap().to_string(), meant);
        }
        let dated = StorePath::parse("viking://resources/{calendar:ym}/x", &who()).unwrap().to_string();
        assert!(!dated.contains('{') && dated.len() == "viking://resources/2026-11/x".len(), "{dated}");
    }

    #[test]
    fn nothing_leads_out_of_the_account_or_to_another_user() {
        for bad in [
            "viking://../x",
            "viking://resources/../../x",
            "viking://resources//x",
            "viking://resources/a\\b",
            "viking://resources/a\0b",
            "viking://_system/x",
            "viking://temp/x",
            "file:///etc",
            "viking://session/s/history",
        ] {
            assert_eq!(StorePath::parse(bad, &who()).unwrap_err().code, Code::InvalidUri, "{bad}");
        }
        assert_eq!(StorePath::parse("viking://user/bob/memories", &who()).unwrap_err().code, Code::PermissionDenied);
        let peer = Identity::new("default", "anna", Some("main")).unwrap();
        assert!(StorePath::parse("viking://~/peers/main/memories", &peer).is_ok());
        assert!(StorePath::parse("viking://~/peers/other/memories", &peer).is_err());
        for id in ["", "../x", "a/b", ".x", "_system", "memories"] {
            assert!(Identity::new("default", id, None).is_err(), "{id}");
        }
    }

    #[test]
    fn kinds_and_categories_follow_the_place() {
        let place = |uri: &str| StorePath::parse(uri, &who()).unwrap();
        assert_eq!(place("viking://~/memories/events/a.md").kind(), Kind::Memory);
        assert_eq!(place("viking://~/memories/events/a.md").category(), Some("events"));
        assert_eq!(place("viking://~/memories/profile.md").category(), Some("profile"));
        assert_eq!(place("viking://~/peers/p/memories/entities/a.md").category(), Some("entities"));
        assert_eq!(place("viking://agent/skills/a").kind(), Kind::Skill);
        assert_eq!(place("viking://~/resources/a").kind(), Kind::Resource);
        assert_eq!(place("viking://resources/memories/a.md").kind(), Kind::Resource);
    }
}
