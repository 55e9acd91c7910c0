//! Creates file names from headings and titles, and sanitises paths.

use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization;

/// Maximum length of a name made from a heading or file name, in characters.
const MAX_NAME_CHARS: usize = 50;
/// Maximum length of the name of a file with several sections, in characters.
const MAX_MERGED_CHARS: usize = 32;
/// Number of hash digits in a shortened name.
const HASH_DIGITS: usize = 8;

/// Turns a heading or file stem into a name: white space becomes `_`, path characters are removed, and a long name is
/// truncated with a part of its hash appended.
pub fn section_name(heading: &str) -> String {
    let clean = sanitize(heading);
    if clean.is_empty() {
        return "section".to_owned();
    }
    if clean.chars().count() <= MAX_NAME_CHARS {
        return clean;
    }
    let kept: String = clean.chars().take(MAX_NAME_CHARS - HASH_DIGITS - 1).collect();
    format!("{}_{}", kept.trim_end_matches('_'), hash8(heading))
}

/// The name of a file with several sections: the first heading, the number of further ones, and a part of the hash of
/// all headings.
pub fn merged_name(headings: &[&str]) -> String {
    let first = headings.first().copied().unwrap_or("section");
    if headings.len() <= 1 {
        return section_name(first);
    }
    let tail = format!("_{}more_{}", headings.len() - 1, hash8(&headings.join("\n")));
    let room = MAX_MERGED_CHARS.saturating_sub(tail.chars().count()).max(1);
    let kept: String = sanitize(first).chars().take(room).collect();
    let kept = if kept.is_empty() { "section".to_owned() } else { kept };
    format!("{}{tail}", kept.trim_end_matches('_'))
}

fn sanitize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.trim().nfc() {
        let c = match c {
            c if c.is_whitespace() => '_',
            '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|' | '#' | '%' | '`' | '[' | ']' | '{' | '}' | '~'
            | '&' | '$' | '!' | '\'' => {
                continue;
            }
            c if c.is_control() || is_invisible(c) => continue,
            c => c,
        };
        if c == '_' && out.ends_with('_') {
            continue;
        }
        out.push(c);
    }
    // Leading dots would hide a file or refer to a parent folder.
    out.trim_matches(['_', '.', ' ', '-']).to_owned()
}

/// Invisible characters and direction controls.
fn is_invisible(c: char) -> bool {
    matches!(c as u32, 0x00AD | 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x2069 | 0xFEFF | 0xFFF9..=0xFFFB)
}

fn hash8(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(HASH_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// Sanitises a relative path from an archive: no `.`, `..`, drives, backslashes or control characters. Returns `None`
/// when the path is absolute or leaves the root, because only a malicious archive contains such a path.
pub fn safe_path(path: &str) -> Option<String> {
    if path.starts_with(['/', '\\']) || path.get(1..2) == Some(":") || path.contains('\0') {
        return None;
    }
    let mut parts: Vec<String> = Vec::new();
    for part in path.split(['/', '\\']) {
        match part {
            "" | "." => {}
            ".." => return None,
            part => parts.push(part.chars().filter(|c| !c.is_control() && !is_invisible(*c)).collect()),
        }
    }
    let safe = parts.join("/");
    (!safe.is_empty() && !parts.iter().any(String::is_empty)).then_some(safe)
}

/// A file name without its last extension.
pub fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem })
}

/// The extension in lower case, without the dot; empty when there is none.
pub fn extension(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map_or_else(String::new, |(_, ext)| ext.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headings_become_names() {
        assert_eq!(section_name("Getting started"), "Getting_started");
        assert_eq!(section_name("a/b: c?"), "ab_c");
        assert_eq!(section_name("..."), "section");
        assert_eq!(section_name("安装 指南"), "安装_指南");
        let long = section_name(&"word ".repeat(40));
        assert!(long.chars().count() <= MAX_NAME_CHARS && long.contains('_'), "{long}");
        let merged = merged_name(&["Introduction to the thing", "b", "c"]);
        assert!(merged.contains("_2more_") && merged.chars().count() <= MAX_MERGED_CHARS, "{merged}");
    }

    #[test]
    fn paths_that_climb_are_refused() {
        for bad in ["../x", "a/../../x", "/etc/passwd", "C:\\x", "\\x", "", ".", "a\0b", "a/\u{200b}/b"] {
            assert_eq!(safe_path(bad), None, "{bad:?}");
        }
        assert_eq!(safe_path("a//./b\\c.md").as_deref(), Some("a/b/c.md"));
    }

    proptest! {
        #[test]
        fn a_name_is_always_one_safe_part(text in any::<String>()) {
            let name = section_name(&text);
            prop_assert!(!name.is_empty() && name.chars().count() <= MAX_NAME_CHARS);
            prop_assert_eq!(safe_path(&name), Some(name.clone()));
            prop_assert!(!name.contains('/'));
        }
    }
}
