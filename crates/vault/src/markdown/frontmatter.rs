//! Front matter, edited in place: an edit replaces the bytes of one key's value and nothing else. Comments, quotes,
//! order and inline lists of other keys stay as they are, because they are never parsed.

use super::{
    scan::{Line, Scan, indent},
    yaml,
};
use crate::{
    error::VaultResult,
    text::{BOM, dominant_eol, with_eol},
};
use serde_json::Value;
use std::ops::Range;
use toolyard_protocol::{ErrorCode, Failure};

/// A top-level key and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// Line number, from 1.
    pub(crate) line: usize,
    /// Its lines, line endings included.
    pub(crate) range: Range<usize>,
    /// From after the colon to the end of the value, last line ending excluded.
    value: Range<usize>,
}

/// A replacement of some bytes.
pub(crate) type Edit = (Range<usize>, String);

pub(crate) fn entries(scan: &Scan<'_>) -> VaultResult<Vec<Entry>> {
    let Some(block) = &scan.front_matter else { return Ok(Vec::new()) };
    let mut found: Vec<Entry> = Vec::new();
    let inner: Vec<(usize, &Line)> =
        scan.lines.iter().enumerate().filter(|(_, l)| l.start >= block.start && l.start < block.end).collect();
    let inner = &inner[1..inner.len() - 1];
    for (index, line) in inner {
        let content = scan.line(line);
        let (width, rest) = indent(content);
        if rest.is_empty() || width == 0 && rest.starts_with('#') {
            continue;
        }
        let continues = width > 0 || rest == "-" || rest.starts_with("- ") || rest.starts_with([']', '}']);
        if continues {
            match found.last_mut() {
                Some(entry) => {
                    entry.range.end = line.next;
                    entry.value.end = line.end;
                }
                None if rest.starts_with('#') => {}
                None => return Err(unreadable(index + 1)),
            }
            continue;
        }
        let (key, colon) = key_of(content).ok_or_else(|| unreadable(index + 1))?;
        found.push(Entry {
            key,
            line: index + 1,
            range: line.start..line.next,
            value: line.start + colon + 1..line.end,
        });
    }
    Ok(found)
}

fn unreadable(line: usize) -> Failure {
    Failure::new(ErrorCode::PreconditionFailed, format!("line {line} of the front matter is not `key: value`"))
        .suggest("Edit it with a text target instead, or correct the front matter by hand.")
        .detail("line", line)
}

/// The key and the offset of its colon.
fn key_of(line: &str) -> Option<(String, usize)> {
    let ends_key = |rest: &str| rest.is_empty() || rest.starts_with([' ', '\t']);
    match line.as_bytes().first()? {
        quote @ (b'"' | b'\'') => {
            let mut escaped = false;
            let close = line.bytes().enumerate().skip(1).find_map(|(i, b)| {
                if escaped {
                    escaped = false;
                } else if *quote == b'"' && b == b'\\' {
                    escaped = true;
                } else if b == *quote {
                    return Some(i);
                }
                None
            })?;
            let after = &line[close + 1..];
            let colon = close + 1 + (after.len() - after.trim_start().len());
            if !line[colon..].starts_with(':') || !ends_key(&line[colon + 1..]) {
                return None;
            }
            let key = if *quote == b'"' {
                serde_json::from_str(&line[..=close]).ok()?
            } else {
                line[1..close].replace("''", "'")
            };
            Some((key, colon))
        }
        b'?' | b'{' | b'[' | b'|' | b'>' | b'@' | b'`' | b'%' | b'&' | b'*' | b'!' => None,
        _ => {
            let colon = line.match_indices(':').map(|(i, _)| i).find(|i| ends_key(&line[i + 1..]))?;
            Some((line[..colon].trim_end().to_owned(), colon))
        }
    }
}

fn find<'a>(entries: &'a [Entry], key: &str) -> VaultResult<Option<&'a Entry>> {
    let mut hits = entries.iter().filter(|e| e.key == key);
    let first = hits.next();
    if let (Some(first), Some(second)) = (first, hits.next()) {
        return Err(Failure::new(
            ErrorCode::Conflict,
            format!("the front matter has {key:?} twice, on lines {} and {}", first.line, second.line),
        )
        .suggest("Remove one of them by hand or with a text target.")
        .detail("lines", vec![first.line, second.line]));
    }
    Ok(first)
}

fn missing(entries: &[Entry], key: &str) -> Failure {
    let keys: Vec<&str> = entries.iter().map(|e| e.key.as_str()).collect();
    Failure::new(ErrorCode::NotFound, format!("the front matter has no key {key:?}"))
        .suggest("Use op \"insert\" to add it.")
        .detail("keys", keys)
}

/// Gives an existing key another value.
pub(crate) fn replace(scan: &Scan<'_>, key: &str, value: &Value) -> VaultResult<Edit> {
    let entries = entries(scan)?;
    let entry = find(&entries, key)?.ok_or_else(|| missing(&entries, key))?;
    let old = &scan.text[entry.value.clone()];
    let first_line = old.split('\n').next().unwrap_or_default().trim_end_matches('\r');
    let comment = comment_of(first_line);
    let old_value = first_line[..comment].trim();
    let item_indent =
        old.split('\n').nth(1).map(indent).filter(|(_, rest)| rest.starts_with('-')).map_or(2, |(width, _)| width);
    let new = match value {
        Value::Array(_) if old_value.starts_with('[') => format!(" {}", yaml::flow(value)),
        value => yaml::after_colon(value, 0, item_indent, 1),
    };
    let is_block_scalar = old_value.starts_with(['|', '>']);
    let kept = if is_block_scalar { "" } else { first_line[comment..].trim_end() };
    let (head, tail) = new.split_once('\n').map_or((new.as_str(), None), |(head, tail)| (head, Some(tail)));
    let mut out = head.to_owned();
    out.push_str(kept);
    if let Some(tail) = tail {
        out.push('\n');
        out.push_str(tail);
    }
    Ok((entry.value.clone(), with_eol(&out, dominant_eol(scan.text)).into_owned()))
}

/// Where a comment (with the space before it) begins on the first line of a value; its length when there is none.
fn comment_of(line: &str) -> usize {
    let in_flow = line.trim_start().starts_with(['[', '{']);
    let mut quote: Option<char> = None;
    let mut escaped = false;
    let mut space_from: Option<usize> = None;
    // A quote opens a quoted scalar only where a scalar can begin: an apostrophe inside a plain one is a letter.
    let mut scalar_begins = true;
    let mut after_colon = false;
    for (i, c) in line.char_indices() {
        if let Some(open) = quote {
            if escaped {
                escaped = false;
            } else if open == '"' && c == '\\' {
                escaped = true;
            } else if c == open {
                quote = None;
            }
            continue;
        }
        match c {
            ' ' | '\t' => {
                space_from.get_or_insert(i);
                scalar_begins |= after_colon;
                after_colon = false;
                continue;
            }
            '#' if space_from.is_some() => return space_from.unwrap_or(i),
            '"' | '\'' if scalar_begins => {
                quote = Some(c);
                scalar_begins = false;
            }
            '[' | '{' | ',' if in_flow => scalar_begins = true,
            _ => scalar_begins = false,
        }
        after_colon = in_flow && c == ':';
        space_from = None;
    }
    line.len()
}

/// Adds a key that is not there yet, making the block when there is none.
pub(crate) fn insert(scan: &Scan<'_>, key: &str, value: &Value, at_start: bool) -> VaultResult<Edit> {
    let entries = entries(scan)?;
    if let Some(entry) = find(&entries, key)? {
        return Err(Failure::new(
            ErrorCode::Conflict,
            format!("the front matter already has {key:?} on line {}", entry.line),
        )
        .suggest("Use op \"replace\" to change its value.")
        .detail("line", entry.line));
    }
    let mut single = serde_json::Map::new();
    single.insert(key.to_owned(), value.clone());
    let lines = yaml::mapping(&single);
    let eol = dominant_eol(scan.text);
    match &scan.front_matter {
        None => {
            let at = if scan.text.starts_with(BOM) { BOM.len() } else { 0 };
            Ok((at..at, with_eol(&format!("---\n{lines}---\n"), eol).into_owned()))
        }
        Some(block) => {
            let first = scan.lines.iter().find(|l| l.start == block.start).map_or(block.start, |l| l.next);
            let close = scan.lines.iter().rfind(|l| l.start < block.end).map_or(block.end, |l| l.start);
            let at = if at_start { first } else { close };
            Ok((at..at, with_eol(&lines, eol).into_owned()))
        }
    }
}

/// Takes a key out; a block that is empty then goes as well.
pub(crate) fn delete(scan: &Scan<'_>, key: &str) -> VaultResult<Edit> {
    let all = entries(scan)?;
    let entry = find(&all, key)?.ok_or_else(|| missing(&all, key))?;
    if let Some(block) = scan.front_matter.clone().filter(|_| all.len() == 1) {
        let first = scan.lines.iter().find(|l| l.start == block.start).map_or(block.start, |l| l.next);
        let close = scan.lines.iter().rfind(|l| l.start < block.end).map_or(block.end, |l| l.start);
        let rest_blank = scan.text[first..entry.range.start].trim().is_empty()
            && scan.text[entry.range.end..close].trim().is_empty();
        if rest_blank {
            return Ok((block, String::new()));
        }
    }
    Ok((entry.range.clone(), String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn apply(text: &str, edit: VaultResult<Edit>) -> String {
        let (range, new) = edit.unwrap();
        let mut out = text.to_owned();
        out.replace_range(range, &new);
        out
    }

    const NOTE: &str = "---\n# my note\ntitle: 'It''s' # quoted\ntags: [a, b]   # inline\ndate: 2024-01-02\naliases:\n- one\n- two\n\n\"odd key\": |\n  text\n\n  more\nlast: x\n---\nbody\n";

    #[test]
    fn only_the_named_key_changes() {
        let scan = Scan::new(NOTE);
        let replaced = |key, value: Value| apply(NOTE, replace(&scan, key, &value));
        assert_eq!(replaced("title", json!("New")), NOTE.replace("'It''s' # quoted", "New # quoted"));
        assert_eq!(replaced("tags", json!(["c"])), NOTE.replace("[a, b]   # inline", "[c]   # inline"));
        assert_eq!(replaced("aliases", json!(["three"])), NOTE.replace("- one\n- two", "- three"));
        assert_eq!(replaced("odd key", json!(1)), NOTE.replace("|\n  text\n\n  more", "1"));
        assert_eq!(replaced("date", json!(["x"])), NOTE.replace(" 2024-01-02", "\n  - x"));
        assert_eq!(apply(NOTE, delete(&scan, "aliases")), NOTE.replace("aliases:\n- one\n- two\n", ""));
        assert_eq!(
            apply(NOTE, insert(&scan, "new", &json!(true), false)),
            NOTE.replace("last: x\n", "last: x\nnew: true\n")
        );
        assert_eq!(
            apply(NOTE, insert(&scan, "new", &json!(true), true)),
            NOTE.replacen("---\n", "---\nnew: true\n", 1)
        );
    }

    #[test]
    fn a_block_comes_and_goes() {
        let note = "\u{feff}a\r\nb\r\n";
        let with = apply(note, insert(&Scan::new(note), "k", &json!("v"), false));
        assert_eq!(with, "\u{feff}---\r\nk: v\r\n---\r\na\r\nb\r\n");
        assert_eq!(apply(&with, delete(&Scan::new(&with), "k")), note);
    }

    #[test]
    fn trouble_is_named() {
        let code = |text: &str, key: &str| replace(&Scan::new(text), key, &json!(1)).unwrap_err().code;
        assert_eq!(code("---\na: 1\na: 2\n---\n", "a"), ErrorCode::Conflict);
        assert_eq!(code("---\na: 1\n---\n", "b"), ErrorCode::NotFound);
        assert_eq!(code("---\n{a: 1}\n---\n", "a"), ErrorCode::PreconditionFailed);
        assert_eq!(code("no front matter", "a"), ErrorCode::NotFound);
        assert_eq!(
            insert(&Scan::new("---\na: 1\n---\n"), "a", &json!(1), false).unwrap_err().code,
            ErrorCode::Conflict
        );
    }

    #[test]
    fn hashes_inside_values_are_not_comments() {
        for (value, comment) in
            [(" it's # c", " # c"), (" [a '] # c", " # c"), (" ['#', \" # \"]  # c", "  # c"), (" {a: '# x'}", "")]
        {
            assert_eq!(&value[comment_of(value)..], comment, "{value}");
        }
        let note = "---\na: \"x # y\" # c\nb: c#d\n---\n";
        let scan = Scan::new(note);
        assert_eq!(apply(note, replace(&scan, "a", &json!(1))), "---\na: 1 # c\nb: c#d\n---\n");
        assert_eq!(apply(note, replace(&scan, "b", &json!(1))), "---\na: \"x # y\" # c\nb: 1\n---\n");
    }
}
