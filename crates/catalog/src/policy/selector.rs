//! Selectors: the entries of allow, deny and ask lists, each of which matches some tools. A selector matches names and
//! sources; it makes no decision.

use super::{Profile, layers::PolicyError};
use crate::registry::{SourceKind, ToolEntry, safe_name};
use std::collections::BTreeMap;

/// The file and command tools that `group:openclaw` leaves out.
const HOST_TOOLS: [&str; 8] = ["read", "write", "edit", "apply_patch", "exec", "process", "code_execution", "canvas"];

/// A built-in group: categories and names, of trusted sources only. An untrusted source must not get its tool into a
/// group of built-in tools by choosing a name or a category.
struct Group {
    name: &'static str,
    categories: &'static [&'static str],
    names: &'static [&'static str],
}

const GROUPS: [Group; 15] = [
    Group { name: "fs", categories: &["fs", "vault"], names: &["read", "write", "edit", "apply_patch"] },
    Group { name: "vault", categories: &["vault"], names: &[] },
    Group { name: "editor", categories: &["editor", "workspace"], names: &[] },
    Group { name: "util", categories: &["util"], names: &[] },
    Group { name: "memory", categories: &["memory", "knowledge"], names: &["memory_search", "memory_get"] },
    Group { name: "web", categories: &["web"], names: &["web_search", "x_search", "web_fetch"] },
    Group { name: "runtime", categories: &["runtime", "commands"], names: &["exec", "process", "code_execution"] },
    Group { name: "sessions", categories: &["sessions"], names: &["sessions_*", "session_status"] },
    Group { name: "messaging", categories: &["messaging"], names: &["message"] },
    Group { name: "ui", categories: &["ui"], names: &["browser", "canvas"] },
    Group { name: "automation", categories: &["automation"], names: &["cron", "gateway"] },
    Group { name: "nodes", categories: &["nodes"], names: &["nodes", "computer"] },
    Group { name: "agents", categories: &["agents"], names: &["agents_list"] },
    Group { name: "media", categories: &["media"], names: &["image", "image_generate", "tts"] },
    Group { name: "skills", categories: &["skills"], names: &["skills.*"] },
];

/// The built-in groups that go by source.
const SOURCE_GROUPS: [&str; 4] = ["plugins", "openclaw", "client", "mcp"];

/// One selector, ready to match.
#[derive(Debug, Clone)]
enum Selector {
    /// A name or glob, matched on the name, its safe spelling, the id, `<server>__<tool>`, and a plugin's id.
    Pattern(Glob),
    /// A built-in group by categories and names.
    Group(usize),
    Plugins,
    OpenClaw,
    Client,
    Mcp,
}

/// A list of names, globs and groups that matches tools, with the original entries.
#[derive(Debug, Clone, Default)]
pub struct Selectors(Vec<(String, Selector)>);

impl Selectors {
    /// Parses a list. `key` is its configuration key, `groups` are the user-defined groups.
    ///
    /// # Errors
    /// An empty word, a group that does not exist, or one that contains itself.
    pub fn parse(key: &str, words: &[String], groups: &BTreeMap<String, Vec<String>>) -> Result<Self, PolicyError> {
        let mut parsed = Vec::new();
        for word in words {
            expand(key, word, word, groups, &mut Vec::new(), &mut parsed)?;
        }
        Ok(Self(parsed))
    }

    /// Whether the list matches this tool.
    pub fn contains(&self, tool: &ToolEntry) -> bool {
        self.matching(tool).is_some()
    }

    /// The entry of the list that matches this tool.
    pub(super) fn matching(&self, tool: &ToolEntry) -> Option<&str> {
        if self.0.is_empty() {
            return None;
        }
        let spellings = MatchTexts::of(tool);
        self.0.iter().find(|(_, selector)| selector.matches(tool, &spellings)).map(|(word, _)| word.as_str())
    }
}

fn expand(
    key: &str,
    written: &str,
    word: &str,
    groups: &BTreeMap<String, Vec<String>>,
    trail: &mut Vec<String>,
    out: &mut Vec<(String, Selector)>,
) -> Result<(), PolicyError> {
    let word = word.trim();
    if word.is_empty() {
        return Err(PolicyError::new(key, "an empty entry; write a tool name, a glob or a group"));
    }
    let lower = word.to_ascii_lowercase();
    if lower == "bundle-mcp" {
        out.push((written.to_owned(), Selector::Mcp));
        return Ok(());
    }
    let Some(group) = lower.strip_prefix("group:") else {
        out.push((written.to_owned(), Selector::Pattern(Glob::new(word))));
        return Ok(());
    };
    if let Some(selector) = builtin(group) {
        out.push((written.to_owned(), selector));
        return Ok(());
    }
    let Some((_, members)) = groups.iter().find(|(name, _)| name.eq_ignore_ascii_case(group)) else {
        let problem =
            format!("there is no group:{group}; define it under policy.groups or use one of {}", known_groups());
        return Err(PolicyError::new(key, problem));
    };
    if trail.iter().any(|seen| seen == group) {
        return Err(PolicyError::new(key, format!("group:{group} contains itself")));
    }
    trail.push(group.to_owned());
    for member in members {
        expand(key, written, member, groups, trail, out)?;
    }
    trail.pop();
    Ok(())
}

fn builtin(group: &str) -> Option<Selector> {
    match group {
        "plugins" => Some(Selector::Plugins),
        "openclaw" => Some(Selector::OpenClaw),
        "client" => Some(Selector::Client),
        "mcp" => Some(Selector::Mcp),
        _ => GROUPS.iter().position(|known| known.name == group).map(Selector::Group),
    }
}

/// Whether a user's group would hide a built-in one.
pub(super) fn is_builtin_group(name: &str) -> bool {
    builtin(&name.to_ascii_lowercase()).is_some()
}

fn known_groups() -> String {
    let names = GROUPS.iter().map(|group| group.name).chain(SOURCE_GROUPS);
    names.map(|name| format!("group:{name}")).collect::<Vec<_>>().join(", ")
}

/// The texts a pattern is tried on.
struct MatchTexts {
    name: String,
    safe: String,
    with_server: Option<String>,
}

impl MatchTexts {
    fn of(tool: &ToolEntry) -> Self {
        let name = tool.name().to_string();
        let with_server = (tool.source().kind == SourceKind::Mcp).then(|| format!("{}__{name}", tool.source().name));
        Self { safe: safe_name(tool.name()), name, with_server }
    }
}

impl Selector {
    fn matches(&self, tool: &ToolEntry, spellings: &MatchTexts) -> bool {
        let kind = tool.source().kind;
        match self {
            Self::Pattern(glob) => {
                glob.matches(&spellings.name)
                    || glob.matches(&spellings.safe)
                    || glob.matches(tool.id())
                    || spellings.with_server.as_deref().is_some_and(|text| glob.matches(text))
                    // A plugin's id matches its tools; a glob over plugin ids does not.
                    || (kind == SourceKind::Plugin && glob.is_literal() && glob.matches(&tool.source().name))
            }
            Self::Group(index) => GROUPS.get(*index).is_some_and(|group| group.contains(tool)),
            Self::Plugins => kind == SourceKind::Plugin,
            Self::OpenClaw => kind == SourceKind::Core && !HOST_TOOLS.contains(&spellings.name.as_str()),
            Self::Client => kind == SourceKind::Client,
            Self::Mcp => kind == SourceKind::Mcp,
        }
    }
}

impl Group {
    fn contains(&self, tool: &ToolEntry) -> bool {
        tool.source().is_trusted()
            && (self.categories.iter().any(|category| tool.definition().category.eq_ignore_ascii_case(category))
                || self.names.iter().any(|name| Glob::new(name).matches(tool.name().as_str())))
    }
}

/// Whether a tool belongs to a profile.
pub(super) fn in_profile(profile: Profile, tool: &ToolEntry) -> bool {
    if profile == Profile::Full {
        return true;
    }
    // Only ours may say which profile they belong to.
    if tool.source().is_trusted() && !tool.profiles().is_empty() {
        return tool.profiles().contains(&profile);
    }
    let groups: &[&str] = match profile {
        Profile::Minimal => &["util"],
        Profile::Coding => &["fs", "vault", "editor", "runtime", "util", "memory", "web", "sessions"],
        Profile::Messaging => &["messaging", "util", "memory", "sessions"],
        Profile::Full => &[],
    };
    let strangers_welcome = profile != Profile::Minimal && !tool.source().is_trusted();
    strangers_welcome
        || (tool.source().is_trusted() && tool.name().as_str() == "session_status")
        || GROUPS.iter().any(|group| groups.contains(&group.name) && group.contains(tool))
}

/// A pattern in which `*` matches any text; letter case does not matter.
#[derive(Debug, Clone)]
pub(super) struct Glob(Vec<u8>);

impl Glob {
    pub(super) fn new(pattern: &str) -> Self {
        Self(pattern.to_ascii_lowercase().into_bytes())
    }

    pub(super) fn is_literal(&self) -> bool {
        !self.0.contains(&b'*')
    }

    /// Linear in the text for each star: on a mismatch only the last star is tried again.
    pub(super) fn matches(&self, text: &str) -> bool {
        let (pattern, text) = (self.0.as_slice(), text.as_bytes());
        let (mut p, mut t) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        while t < text.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    retry = Some((p + 1, t));
                    p += 1;
                }
                Some(&c) if c == text[t].to_ascii_lowercase() => {
                    p += 1;
                    t += 1;
                }
                _ => match retry {
                    Some((after_star, from)) => {
                        p = after_star;
                        t = from + 1;
                        retry = Some((after_star, from + 1));
                    }
                    None => return false,
                },
            }
        }
        pattern[p..].iter().all(|&c| c == b'*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_stand_for_any_text_and_case_does_not_matter() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "x"),
            ("vault.*", "vault.readFile"),
            ("VAULT.READ*", "vault.readFile"),
            ("*File", "vault.readFile"),
            ("a*b*c", "aXbbYc"),
            ("**", "q"),
            ("exact", "Exact"),
        ] {
            assert!(Glob::new(pattern).matches(text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("", "x"), ("a", ""), ("vault.*", "vault"), ("a*b", "ac"), ("a*b*c", "acb"), ("a?", "ab")]
        {
            assert!(!Glob::new(pattern).matches(text), "{pattern} {text}");
        }
    }

    /// The definition, for comparison: try every length for a star.
    fn slow(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.first(), text.first()) {
            (None, None) => true,
            (Some(b'*'), _) => slow(&pattern[1..], text) || (!text.is_empty() && slow(pattern, &text[1..])),
            (Some(a), Some(b)) if a == b => slow(&pattern[1..], &text[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_definition(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(Glob::new(&pattern).matches(&text), slow(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn no_pattern_and_no_text_makes_it_fall_over(pattern in any::<String>(), text in any::<String>()) {
            let _ = Glob::new(&pattern).matches(&text);
            prop_assert!(Glob::new("*").matches(&text));
        }
    }
}
