//! [`VaultPath`]: a valid path inside the vault. An invalid one cannot be constructed.
//!
//! Text rules only; no disk access. [`crate::root`] checks that a path does not lead out of the vault through a
//! symlink.

mod disguise;

use serde::{Deserialize, Serialize};
use std::fmt;
use toolyard_protocol::{ErrorCode, Failure};
use unicode_normalization::UnicodeNormalization;

/// A whole path is at most this long.
pub const MAX_PATH_BYTES: usize = 4096;
/// One segment is at most this long: what file systems allow.
pub const MAX_SEGMENT_BYTES: usize = 255;
/// Folders may be nested this deep.
pub const MAX_DEPTH: usize = 128;
/// The folder deleted files go to.
pub(crate) const TRASH: &str = ".trash";
/// How often percent-decoding is repeated, to detect double encoding. Input that is still encoded after that is
/// refused.
const MAX_DECODES: usize = 8;

/// Names that Windows gives to devices, with any extension.
const RESERVED: [&str; 4] = ["CON", "PRN", "AUX", "NUL"];

/// A vault-relative path: forward slashes, no empty, `.` or `..` segment, nothing absolute, encoded or hidden.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VaultPath(String);

/// Why a path is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Not a vault path.
    #[error("{path:?} is not a vault path: {problem}")]
    Malformed {
        /// What was given, cut to 200 characters.
        path: String,
        /// The rule it breaks.
        problem: &'static str,
    },
    /// A path that tools may not touch.
    #[error("{path:?} is off limits: {problem}")]
    Blocked {
        /// What was given, cut to 200 characters.
        path: String,
        /// The rule it breaks.
        problem: &'static str,
    },
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        let (code, suggestion) = match &error {
            PathError::Malformed { .. } => (
                ErrorCode::ValidationError,
                "Give the path from the vault's root with forward slashes, for example \"Projects/Plan.md\".",
            ),
            PathError::Blocked { .. } => (
                ErrorCode::PolicyDenied,
                "Hidden files and folders (.obsidian, .trash, .git and the like) are never touched; use another path.",
            ),
        };
        let path = match &error {
            PathError::Malformed { path, .. } | PathError::Blocked { path, .. } => path.clone(),
        };
        Failure::new(code, error.to_string()).suggest(suggestion).detail("path", path).retryable(false)
    }
}

impl VaultPath {
    /// Checks every rule for a path given from outside.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let path = Self::parse_internal(text)?;
        if path.segments().any(|s| s.starts_with('.')) {
            return Err(PathError::Blocked { path: cut(text), problem: "it has a segment that begins with a dot" });
        }
        check_disguises(text)?;
        Ok(path)
    }

    /// As [`VaultPath::parse`], but dot names are allowed: the trash and staged files. Never for outside input.
    pub(crate) fn parse_internal(text: &str) -> Result<Self, PathError> {
        let bad = |problem| PathError::Malformed { path: cut(text), problem };
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        if text.len() > MAX_PATH_BYTES {
            return Err(bad("it is longer than 4096 bytes"));
        }
        if text.contains("://") {
            return Err(bad("it is a URL"));
        }
        check_segments(text).map_err(bad)?;
        let mut decoded = text.to_owned();
        for _ in 0..MAX_DECODES {
            let Some(next) = percent_decode(&decoded) else { break };
            if next.matches('/').count() != text.matches('/').count() {
                return Err(bad("it hides a slash in percent-encoding"));
            }
            check_segments(&next).map_err(|_| bad("it hides traversal or control characters in percent-encoding"))?;
            decoded = next;
        }
        Ok(Self(text.to_owned()))
    }

    /// A path inside the trash, given from outside: `.trash/` followed by a legal path.
    pub(crate) fn parse_trash(text: &str) -> Result<Self, PathError> {
        match text.strip_prefix(TRASH).and_then(|rest| rest.strip_prefix('/')) {
            Some(rest) => {
                Self::parse(rest)?;
                Self::parse_internal(text)
            }
            None => Err(PathError::Malformed { path: cut(text), problem: "a trash path begins with .trash/" }),
        }
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The segments from the root down.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// The last segment.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The parent folder; `None` at the top level.
    pub fn parent(&self) -> Option<VaultPath> {
        self.0.rsplit_once('/').map(|(parent, _)| Self(parent.to_owned()))
    }

    /// Its parents from the top down, itself not included.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = VaultPath> + '_ {
        self.0.match_indices('/').map(|(i, _)| Self(self.0[..i].to_owned()))
    }

    /// What follows the last dot of the name, without it.
    pub fn extension(&self) -> Option<&str> {
        self.name().rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, extension)| extension)
    }

    /// Whether this is a Markdown note.
    pub fn is_note(&self) -> bool {
        self.extension().is_some_and(|e| e.eq_ignore_ascii_case("md") || e.eq_ignore_ascii_case("markdown"))
    }

    /// A child. The name comes from a directory entry or was checked before; illegal ones are refused again here.
    pub(crate) fn child(folder: Option<&VaultPath>, name: &str) -> Result<Self, PathError> {
        match folder {
            Some(folder) => Self::parse_internal(&format!("{}/{name}", folder.0)),
            None => Self::parse_internal(name),
        }
    }

    /// Whether the path is below the folder.
    pub fn is_below(&self, folder: &VaultPath) -> bool {
        self.0.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
    }

    /// The same path below another folder: `a/b/c` moved from `a` to `x/y` is `x/y/b/c`.
    pub(crate) fn rebase(&self, from: &VaultPath, to: &VaultPath) -> Result<Self, PathError> {
        if self == from {
            return Ok(to.clone());
        }
        match self.0.strip_prefix(from.as_str()) {
            Some(rest) => Self::parse_internal(&format!("{}{rest}", to.0)),
            None => Ok(self.clone()),
        }
    }

    /// The form in which names are compared: NFC, lower case. Two paths that share it cannot both be created.
    pub fn folded(&self) -> String {
        fold(&self.0)
    }

    pub(crate) fn is_trash(&self) -> bool {
        self.0 == TRASH || self.0.starts_with(".trash/")
    }

    /// `Note.md` -> `Note (2).md`.
    pub(crate) fn numbered(&self, number: u32) -> Result<Self, PathError> {
        let name = self.name();
        let (stem, extension) = match name.rsplit_once('.') {
            Some((stem, extension)) if !stem.is_empty() => (stem, format!(".{extension}")),
            _ => (name, String::new()),
        };
        Self::child(self.parent().as_ref(), &format!("{stem} ({number}){extension}"))
    }

    /// The rules for a name that is about to be created: it must work on every system and inside links.
    pub(crate) fn check_new_name(&self) -> Result<(), PathError> {
        let name = self.name();
        let bad = |problem| Err(PathError::Malformed { path: cut(&self.0), problem });
        if name.contains(['*', '"', '<', '>', ':', '|', '?']) {
            return bad("a new name cannot contain * \" < > : | ? (other systems refuse them)");
        }
        if name.contains(['#', '^', '[', ']']) {
            return bad("a new name cannot contain # ^ [ ] (links to it would break)");
        }
        if name.ends_with(['.', ' ']) || name.starts_with(' ') {
            return bad("a new name cannot end with a dot or begin or end with a space");
        }
        let stem = name.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
        let numbered = |prefix: &str| {
            stem.strip_prefix(prefix).is_some_and(|n| n.len() == 1 && matches!(n.as_bytes()[0], b'1'..=b'9'))
        };
        if RESERVED.contains(&stem.as_str()) || numbered("COM") || numbered("LPT") {
            return bad("it is a device name on Windows");
        }
        Ok(())
    }
}

/// Refuses a path that is valid as written but would lead elsewhere after decoding or normalisation. For input only: a
/// folder may contain such names, and they are listed.
fn check_disguises(text: &str) -> Result<(), PathError> {
    let bad = |problem| PathError::Malformed { path: cut(text), problem };
    let mut form = text.to_owned();
    for _ in 0..=MAX_DECODES {
        form = disguise::without_lookalikes(&form);
        check_shape(&form).map_err(|_| bad("it hides traversal or control characters"))?;
        if form.split('/').any(|segment| segment.starts_with('.')) {
            return Err(PathError::Blocked { path: cut(text), problem: "it hides a segment that begins with a dot" });
        }
        if disguise::hides_traversal(&form) {
            return Err(bad("it hides traversal behind characters that look like dots and slashes"));
        }
        let Some(next) = disguise::decoded(&form) else { return Ok(()) };
        if next.matches('/').count() != form.matches('/').count() {
            return Err(bad("it hides a slash in percent-encoding"));
        }
        form = next;
    }
    Err(bad("it is percent-encoded more often than any name is"))
}

/// NFC and lower case.
pub(crate) fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.nfc().collect::<String>().to_lowercase().nfc().collect()
}

fn check_segments(text: &str) -> Result<(), &'static str> {
    check_shape(text)?;
    if text.split('/').any(|segment| segment.len() > MAX_SEGMENT_BYTES) {
        return Err("a segment is longer than 255 bytes");
    }
    if text.split('/').count() > MAX_DEPTH {
        return Err("it is nested deeper than 128 folders");
    }
    Ok(())
}

/// The rules of [`check_segments`] that are not about lengths.
fn check_shape(text: &str) -> Result<(), &'static str> {
    if text.starts_with('/') {
        return Err("it is absolute");
    }
    let mut start = text.chars();
    if start.next().is_some_and(|c| c.is_ascii_alphabetic()) && start.next() == Some(':') {
        return Err("it begins with a drive letter");
    }
    if text.contains('\\') {
        return Err("it contains a backslash");
    }
    if text.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        return Err("it contains a control character");
    }
    for segment in text.split('/') {
        match segment {
            "" => return Err("it has an empty segment"),
            "." | ".." => return Err("it has a \".\" or \"..\" segment"),
            // Some systems drop trailing dots and spaces: ".. " would then be "..".
            s if s.trim_end_matches(['.', ' ']).is_empty() => return Err("a segment is only dots and spaces"),
            _ => {}
        }
    }
    Ok(())
}

/// `None` if there is nothing to decode. Invalid UTF-8 after decoding becomes U+FFFD, because the result is only
/// inspected.
fn percent_decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut changed = false;
    let mut i = 0;
    while i < bytes.len() {
        let pair = bytes.get(i + 1..i + 3).and_then(|p| std::str::from_utf8(p).ok());
        let value = pair.filter(|p| p.bytes().all(|b| b.is_ascii_hexdigit()));
        match value.and_then(|p| u8::from_str_radix(p, 16).ok()) {
            Some(byte) if bytes[i] == b'%' => {
                out.push(byte);
                changed = true;
                i += 3;
            }
            _ => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    changed.then(|| String::from_utf8_lossy(&out).into_owned())
}

fn cut(text: &str) -> String {
    text.chars().take(200).collect()
}

impl fmt::Display for VaultPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for VaultPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl TryFrom<String> for VaultPath {
    type Error = PathError;
    fn try_from(text: String) -> Result<Self, PathError> {
        Self::parse_internal(&text)
    }
}

impl From<VaultPath> for String {
    fn from(path: VaultPath) -> String {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_inside_names_are_legal() {
        for good in [
            "a..b.md",
            "a...md",
            "Ünï/日本語.md",
            "x/y/z",
            "100%.md",
            "100%25.md",
            "a%20b.md",
            "a%2eb.md",
            "x:y.txt.md",
        ]
        .into_iter()
        .filter(|p| !p.starts_with("x:"))
        {
            assert!(VaultPath::parse(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn new_names_must_work_everywhere() {
        for bad in ["a?.md", "CON", "con.md", "Lpt1.txt", "a.", "a ", " a", "a#b.md", "[x].md", "a|b", "x/nul .md"] {
            let path = VaultPath::parse(bad).unwrap();
            assert!(path.check_new_name().is_err(), "{bad}");
        }
        for good in ["a.md", "COM.md", "COM10.md", "Console.md", "a'b (2).md", "ÄÖ.md"] {
            VaultPath::parse(good).unwrap().check_new_name().unwrap();
        }
    }

    #[test]
    fn numbering_and_folding() {
        let path = VaultPath::parse("A/Title.v2.md").unwrap();
        assert_eq!(path.numbered(2).unwrap().as_str(), "A/Title.v2 (2).md");
        assert_eq!(VaultPath::parse("Folder").unwrap().numbered(3).unwrap().as_str(), "Folder (3)");
        assert_eq!(VaultPath::parse("CAFÉ.md").unwrap().folded(), VaultPath::parse("cafe\u{301}.md").unwrap().folded());
    }

    #[test]
    fn trash_paths_stay_in_the_trash() {
        assert!(VaultPath::parse_trash(".trash/a/b.md").is_ok());
        for bad in [".trash", ".trash/", ".trash/../a.md", ".trash/.git/x", "a.md", ".trashy/a.md"] {
            assert!(VaultPath::parse_trash(bad).is_err(), "{bad}");
        }
    }
}
