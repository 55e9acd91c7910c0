//! The patch engine: operations on headings, blocks, front matter keys and text, byte ranges, and unified diffs.
//!
//! Works on text in memory and does not access files. A patch is applied as a whole or not at all: each operation sees
//! the result of the previous ones, and the first that does not match ends the patch.

use crate::{
    error::{VaultResult, validation},
    markdown::{
        frontmatter,
        headings::{Block, Heading, blocks, find_heading, headings},
        scan::Scan,
    },
    text::{dominant_eol, with_eol},
    unified,
    view::MAX_FILE_BYTES,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::ops::Range;
use toolyard_protocol::{ErrorCode, Failure};

/// A patch has at most this many operations.
pub(crate) const MAX_OPERATIONS: usize = 1000;
/// How many candidates an error names.
const MAX_NAMED: usize = 20;

/// What to change. Give exactly one of `operations`, `replaceRange` and `diff`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Patch {
    /// Operations, applied in order; if one does not fit, none is applied.
    #[serde(default)]
    pub(crate) operations: Option<Vec<Operation>>,
    /// Replace a stretch of the file.
    #[serde(default)]
    pub(crate) replace_range: Option<ReplaceRange>,
    /// A unified diff of this one file. Every context and removed line must match exactly.
    #[serde(default)]
    pub(crate) diff: Option<String>,
}

/// A part of the file, as UTF-8 byte offsets between characters.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReplaceRange {
    /// The first byte.
    pub(crate) start: usize,
    /// The byte after the last one.
    pub(crate) end: usize,
    /// What to put there.
    pub(crate) text: String,
    /// The current text of this part; if it differs, nothing is changed.
    #[serde(default)]
    pub(crate) expected_text: Option<String>,
}

/// One edit.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Operation {
    /// `insert` adds, `delete` removes the target, `replace` puts `value` in its place.
    pub(crate) op: Op,
    /// What to edit.
    pub(crate) target: Target,
    /// For insert: `start` is right under a heading, before a block, before the text, or first in the front matter;
    /// `end` (the usual) is at the end of what stands under the heading itself, before its first subheading, or after
    /// the block or text, or last in the front matter.
    #[serde(default)]
    pub(crate) position: Option<Position>,
    /// What to insert or put in place: text, or any JSON value for a front matter key. Not for delete.
    #[serde(default, deserialize_with = "given")]
    pub(crate) value: Option<Value>,
}

/// `"value": null` is a value; only a missing one is none.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Op {
    /// Add text.
    Insert,
    /// Remove the target.
    Delete,
    /// Replace the target.
    Replace,
}

/// Before or after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Position {
    /// At the beginning.
    Start,
    /// At the end.
    End,
}

/// Where an operation works.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Target {
    /// A heading. Replace changes everything below it, subheadings included, and keeps the heading itself; delete
    /// removes the heading too. It is never created.
    Heading {
        /// The heading's exact text, preceded by the texts of its parent headings as far as needed to identify it:
        /// ["Projects", "Tasks"]. A text may include its hashes ("## Tasks") to fix the level.
        path: Vec<String>,
    },
    /// A block that ends in `^id`. Replace keeps the id.
    Block {
        /// The id, without the caret.
        id: String,
    },
    /// A top-level key of the front matter. Only that key's own bytes change.
    Frontmatter {
        /// The key.
        key: String,
    },
    /// A piece of text, found literally.
    Text {
        /// What to look for.
        find: String,
        /// How often it must occur (usually 1); every occurrence is edited.
        #[serde(default)]
        count: Option<usize>,
    },
}

/// The new text and how many operations were applied.
pub(crate) fn apply(text: &str, patch: &Patch) -> VaultResult<(String, usize)> {
    match (&patch.operations, &patch.replace_range, &patch.diff) {
        (Some(operations), None, None) => {
            if operations.is_empty() || operations.len() > MAX_OPERATIONS {
                return Err(validation(format!(
                    "a patch has 1 to {MAX_OPERATIONS} operations, not {}",
                    operations.len()
                )));
            }
            let mut out = text.to_owned();
            for (index, operation) in operations.iter().enumerate() {
                out = apply_operation(&out, operation).map_err(|mut failure| {
                    failure.message = format!("operation {}: {}", index + 1, failure.message);
                    failure.detail("operation", index)
                })?;
            }
            Ok((out, operations.len()))
        }
        (None, Some(range), None) => Ok((replace_range(text, range)?, 1)),
        (None, None, Some(diff)) => unified::apply(text, diff),
        _ => Err(validation("a patch has exactly one of operations, replaceRange and diff")),
    }
}

fn replace_range(text: &str, range: &ReplaceRange) -> VaultResult<String> {
    let Some(old) = text.get(range.start..range.end).filter(|_| range.start <= range.end) else {
        return Err(validation(format!(
            "{}..{} is not a stretch of whole characters in a text of {} bytes",
            range.start,
            range.end,
            text.len()
        ))
        .suggest("Offsets count UTF-8 bytes and must lie between characters; start must not lie after end."));
    };
    if let Some(expected) = range.expected_text.as_ref().filter(|e| e.as_str() != old) {
        return Err(Failure::new(ErrorCode::Conflict, "the text at this range is not what was expected")
            .detail("expectedText", cut(expected))
            .detail("currentText", cut(old)));
    }
    let mut out = text.to_owned();
    let new = with_eol(&range.text, dominant_eol(text));
    check_size(text.len() - (range.end - range.start) + new.len())?;
    out.replace_range(range.start..range.end, &new);
    Ok(out)
}

fn apply_operation(text: &str, operation: &Operation) -> VaultResult<String> {
    match (operation.op, &operation.value) {
        (Op::Delete, Some(_)) => return Err(validation("delete takes no value")),
        (Op::Insert | Op::Replace, None) => return Err(validation("insert and replace need a value")),
        _ => {}
    }
    if operation.position.is_some() && operation.op != Op::Insert {
        return Err(validation("only insert takes a position"));
    }
    let at_start = operation.position == Some(Position::Start);
    let edit = match &operation.target {
        Target::Heading { path } => {
            let all = headings(&Scan::new(text));
            let heading = &all[one_heading(&all, path)?];
            match operation.op {
                Op::Delete => (heading.start..heading.section_end, String::new()),
                Op::Insert if at_start => insert_lines(text, heading.body, text_value(operation)?),
                Op::Insert => {
                    insert_lines(text, last_line_end(text, heading.body, heading.own_end), text_value(operation)?)
                }
                Op::Replace => replace_section(text, heading, text_value(operation)?),
            }
        }
        Target::Block { id } => {
            let block = one_block(&Scan::new(text), id)?;
            match operation.op {
                Op::Delete => (block.range, String::new()),
                Op::Insert if at_start => insert_lines(text, block.range.start, text_value(operation)?),
                Op::Insert => insert_lines(text, block.range.end, text_value(operation)?),
                Op::Replace => replace_block(text, &block, text_value(operation)?),
            }
        }
        Target::Frontmatter { key } => {
            let scan = Scan::new(text);
            match (operation.op, &operation.value) {
                (Op::Insert, Some(value)) => frontmatter::insert(&scan, key, value, at_start)?,
                (Op::Replace, Some(value)) => frontmatter::replace(&scan, key, value)?,
                _ => frontmatter::delete(&scan, key)?,
            }
        }
        Target::Text { find, count } => return edit_text(text, operation, find, *count, at_start),
    };
    check_size(text.len() - edit.0.len() + edit.1.len())?;
    let mut out = text.to_owned();
    out.replace_range(edit.0, &edit.1);
    Ok(out)
}

/// Refuses an edit before its result is made: operations that each double the text would otherwise fill the memory.
fn check_size(bytes: usize) -> VaultResult<()> {
    if bytes as u64 <= MAX_FILE_BYTES {
        return Ok(());
    }
    let message = format!("the patched text would have {bytes} bytes, more than the {MAX_FILE_BYTES} of a file");
    Err(Failure::new(ErrorCode::LimitExceeded, message).suggest("Insert less, or split the note into several files."))
}

fn text_value(operation: &Operation) -> VaultResult<&str> {
    match &operation.value {
        Some(Value::String(text)) => Ok(text),
        _ => Err(validation("the value must be a string, except for a front matter key")),
    }
}

fn one_heading(all: &[Heading], path: &[String]) -> VaultResult<usize> {
    if path.is_empty() {
        return Err(validation("a heading path has at least one text"));
    }
    match find_heading(all, path).as_slice() {
        [one] => Ok(*one),
        [] => {
            let last = path.last().map(|s| s.trim_start_matches('#').trim().to_lowercase()).unwrap_or_default();
            let line = |h: &Heading| format!("{} {} (line {})", "#".repeat(h.level.into()), h.text, h.line);
            let near: Vec<String> = all
                .iter()
                .filter(|h| {
                    let text = h.text.to_lowercase();
                    !last.is_empty() && (text.contains(&last) || !text.is_empty() && last.contains(&text))
                })
                .chain(all.iter())
                .map(line)
                .fold(Vec::new(), |mut seen, heading| {
                    if !seen.contains(&heading) && seen.len() < MAX_NAMED {
                        seen.push(heading);
                    }
                    seen
                });
            Err(Failure::new(ErrorCode::NotFound, format!("there is no heading {}", path.join(" > ")))
                .suggest("Use the exact text of an existing heading (see details.headings); headings are never made silently.")
                .detail("headings", near))
        }
        many => {
            let lines: Vec<usize> = many.iter().map(|&i| all[i].line).collect();
            let text = lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            Err(Failure::new(
                ErrorCode::Conflict,
                format!("{} headings fit {} (lines {text})", many.len(), path.join(" > ")),
            )
            .suggest("Put the texts of the headings above it in front, or its hashes (\"## Tasks\").")
            .detail("lines", lines))
        }
    }
}

fn one_block(scan: &Scan<'_>, id: &str) -> VaultResult<Block> {
    let id = id.trim_start_matches('^');
    let all = blocks(scan);
    let mut hits: Vec<&Block> = all.iter().filter(|b| b.id == id).collect();
    match (hits.pop(), hits.len()) {
        (Some(block), 0) => Ok(block.clone()),
        (None, _) => Err(Failure::new(ErrorCode::NotFound, format!("there is no block ^{id}"))
            .detail("blocks", all.iter().take(MAX_NAMED).map(|b| b.id.as_str()).collect::<Vec<_>>())),
        (Some(last), _) => {
            let lines: Vec<usize> = hits.iter().map(|b| b.line).chain([last.line]).collect();
            Err(Failure::new(ErrorCode::Conflict, format!("the id ^{id} occurs {} times", lines.len()))
                .detail("lines", lines))
        }
    }
}

/// Where the last line that is not blank ends (line ending included) between two line starts.
fn last_line_end(text: &str, from: usize, to: usize) -> usize {
    let content = text[from..to].trim_end();
    if content.is_empty() {
        return from;
    }
    let end = from + content.len();
    text[end..to].find('\n').map_or(to, |i| end + i + 1)
}

/// Inserts whole lines at the beginning of a line, or at an end of file without a last newline, which stays without.
fn insert_lines(text: &str, at: usize, value: &str) -> (Range<usize>, String) {
    let eol = dominant_eol(text);
    let value = with_eol(value, eol);
    if at == text.len() && !text.is_empty() && !text.ends_with('\n') {
        return (at..at, format!("{eol}{}", value.strip_suffix(eol).unwrap_or(&value)));
    }
    let end = if value.is_empty() || value.ends_with('\n') { "" } else { eol };
    (at..at, format!("{value}{end}"))
}

/// Keeps the blank lines around the section's content.
fn replace_section(text: &str, heading: &Heading, value: &str) -> (Range<usize>, String) {
    let section = &text[heading.body..heading.section_end];
    let content = section.trim_start_matches(['\n', '\r', ' ', '\t']);
    if content.is_empty() {
        return insert_lines(text, heading.body, value);
    }
    let first = heading.body + (section.len() - content.len());
    // Back to the beginning of that line: its indentation belongs to the content.
    let first = text[..first].rfind('\n').map_or(first, |i| (i + 1).max(heading.body));
    let last = last_line_end(text, heading.body, heading.section_end);
    let eol = dominant_eol(text);
    let value = with_eol(value, eol);
    let had_newline = text[first..last].ends_with('\n');
    let body = value.strip_suffix(eol).unwrap_or(&value);
    let end = if had_newline && !body.is_empty() { eol } else { "" };
    (first..last, format!("{body}{end}"))
}

fn replace_block(text: &str, block: &Block, value: &str) -> (Range<usize>, String) {
    let eol = dominant_eol(text);
    let value = with_eol(value, eol);
    let body = value.trim_end_matches(['\n', '\r']);
    let tail = &text[block.marker.end..block.range.end];
    let marker = &text[block.marker.clone()];
    let has_id = body.ends_with(&format!("^{}", block.id));
    // An id on a line of its own stays on a line of its own.
    let line_start = text[..block.marker.end].rfind('\n').map_or(0, |i| i + 1);
    let alone = text[line_start..block.marker.end].trim() == format!("^{}", block.id);
    let kept = match (has_id, alone) {
        (true, _) => String::new(),
        (false, true) => {
            let before = text[block.range.start..line_start].trim_end();
            text[block.range.start + before.len()..block.marker.end].to_owned()
        }
        (false, false) => marker.to_owned(),
    };
    (block.range.clone(), format!("{body}{kept}{tail}"))
}

fn edit_text(
    text: &str,
    operation: &Operation,
    find: &str,
    count: Option<usize>,
    at_start: bool,
) -> VaultResult<String> {
    if find.is_empty() {
        return Err(validation("the text to find is empty"));
    }
    let eol = dominant_eol(text);
    let find = with_eol(find, eol);
    let wanted = count.unwrap_or(1);
    let hits = text.matches(find.as_ref()).count();
    if hits != wanted || wanted == 0 {
        let scan = Scan::new(text);
        let found = text.match_indices(find.as_ref()).take(MAX_NAMED);
        let lines: Vec<usize> = found.map(|(i, _)| scan.line_number(i)).collect();
        let code = if wanted == 0 { ErrorCode::ValidationError } else { ErrorCode::Conflict };
        return Err(Failure::new(code, format!("the text occurs {hits} times, expected {wanted}"))
            .suggest("Give a longer text that occurs once, or the right count.")
            .detail("found", hits)
            .detail("expected", wanted)
            .detail("lines", lines));
    }
    let value = match operation.op {
        Op::Delete => String::new(),
        Op::Replace => with_eol(text_value(operation)?, eol).into_owned(),
        Op::Insert if at_start => format!("{}{find}", with_eol(text_value(operation)?, eol)),
        Op::Insert => format!("{find}{}", with_eol(text_value(operation)?, eol)),
    };
    check_size((text.len() - hits * find.len()).saturating_add(hits.saturating_mul(value.len())))?;
    Ok(text.replace(find.as_ref(), &value))
}

fn cut(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(text: &str, operation: Value) -> VaultResult<String> {
        let patch: Patch = serde_json::from_value(json!({"operations":[operation]})).unwrap();
        apply(text, &patch).map(|(text, _)| text)
    }
    fn heading(op: &str, path: &[&str], value: Option<&str>, position: Option<&str>) -> Value {
        let mut operation = json!({"op":op,"target":{"type":"heading","path":path}});
        if let Some(value) = value {
            operation["value"] = value.into();
        }
        if let Some(position) = position {
            operation["position"] = position.into();
        }
        operation
    }

    #[test]
    fn under_a_heading() {
        let note = "# A\n\ntext\n\n## B\nsub\n\n# C\n";
        let insert = |path: &[&str], position| patched(note, heading("insert", path, Some("new"), position)).unwrap();
        assert_eq!(insert(&["A"], None), "# A\n\ntext\nnew\n\n## B\nsub\n\n# C\n");
        assert_eq!(insert(&["A"], Some("start")), "# A\nnew\n\ntext\n\n## B\nsub\n\n# C\n");
        assert_eq!(insert(&["C"], None), "# A\n\ntext\n\n## B\nsub\n\n# C\nnew\n");
        assert_eq!(insert(&["A", "B"], None), "# A\n\ntext\n\n## B\nsub\nnew\n\n# C\n");
        assert_eq!(patched(note, heading("replace", &["A"], Some("x"), None)).unwrap(), "# A\n\nx\n\n# C\n");
        assert_eq!(patched(note, heading("delete", &["B"], None, None)).unwrap(), "# A\n\ntext\n\n# C\n");
        assert_eq!(patched("# A", heading("insert", &["A"], Some("x\n"), None)).unwrap(), "# A\nx");
        assert_eq!(
            patched("# A\r\nb\r\n", heading("insert", &["A"], Some("x\ny"), None)).unwrap(),
            "# A\r\nb\r\nx\r\ny\r\n"
        );
    }

    #[test]
    fn operations_that_multiply_the_text_are_refused_before_they_fill_the_memory() {
        let double =
            |n: u32| json!({"op":"replace","target":{"type":"text","find":"a","count":1u64 << n},"value":"aa"});
        let patch = |n: u32| -> Patch {
            serde_json::from_value(json!({"operations": (0..n).map(double).collect::<Vec<_>>()})).unwrap()
        };
        let (grown, _) = apply("a", &patch(10)).unwrap();
        assert_eq!(grown.len(), 1 << 10);
        let mut last = patch(10);
        let large =
            json!({"op":"replace","target":{"type":"text","find":"a","count":1 << 10},"value":"x".repeat(1 << 17)});
        last.operations.as_mut().unwrap().push(serde_json::from_value(large).unwrap());
        let refused = apply("a", &last).unwrap_err();
        assert_eq!(refused.code, ErrorCode::LimitExceeded, "{refused}");
    }

    #[test]
    fn blocks_keep_their_id() {
        let note = "a ^x\n\ntable\n\n^t\n";
        let op = |op: &str, id: &str, value: &str| json!({"op":op,"target":{"type":"block","id":id},"value":value});
        assert_eq!(patched(note, op("replace", "x", "new")).unwrap(), "new ^x\n\ntable\n\n^t\n");
        assert_eq!(patched(note, op("replace", "t", "new\n")).unwrap(), "a ^x\n\nnew\n\n^t\n");
        assert_eq!(patched(note, op("insert", "^x", "b")).unwrap(), "a ^x\nb\n\ntable\n\n^t\n");
        assert_eq!(
            patched(note, json!({"op":"delete","target":{"type":"block","id":"x"}})).unwrap(),
            "\ntable\n\n^t\n"
        );
        assert_eq!(patched(note, op("replace", "no", "n")).unwrap_err().code, ErrorCode::NotFound);
    }

    #[test]
    fn text_must_occur_as_often_as_expected() {
        let op = |count: usize| json!({"op":"replace","target":{"type":"text","find":"a","count":count},"value":"b"});
        assert_eq!(patched("a a", op(2)).unwrap(), "b b");
        let failure = patched("a a", op(1)).unwrap_err();
        assert_eq!((failure.code, failure.details.unwrap()["found"].clone()), (ErrorCode::Conflict, json!(2)));
        assert_eq!(patched("x", op(1)).unwrap_err().code, ErrorCode::Conflict);
        let insert = json!({"op":"insert","target":{"type":"text","find":"x"},"position":"start","value":"1"});
        assert_eq!(patched("axb", insert).unwrap(), "a1xb");
    }

    #[test]
    fn ranges_need_whole_characters_and_the_expected_text() {
        let range = |start, end, expected: Option<&str>| {
            apply(
                "aäb",
                &Patch {
                    replace_range: Some(ReplaceRange {
                        start,
                        end,
                        text: "x".into(),
                        expected_text: expected.map(str::to_owned),
                    }),
                    ..Patch::default()
                },
            )
            .map(|(text, _)| text)
        };
        assert_eq!(range(1, 3, Some("ä")).unwrap(), "axb");
        assert_eq!(range(1, 3, Some("a")).unwrap_err().code, ErrorCode::Conflict);
        for (start, end) in [(1, 2), (2, 3), (3, 1), (0, 9)] {
            assert_eq!(range(start, end, None).unwrap_err().code, ErrorCode::ValidationError);
        }
    }

    #[test]
    fn a_patch_is_one_thing_and_all_or_nothing() {
        assert!(apply("a", &Patch::default()).is_err());
        let patch: Patch = serde_json::from_value(json!({"operations":[
            {"op":"replace","target":{"type":"text","find":"a"},"value":"b"},
            {"op":"delete","target":{"type":"heading","path":["None"]}}]}))
        .unwrap();
        let failure = apply("a", &patch).unwrap_err();
        assert!(failure.message.starts_with("operation 2"), "{failure}");
        for bad in [
            json!({"op":"delete","target":{"type":"text","find":"a"},"value":"x"}),
            json!({"op":"insert","target":{"type":"text","find":"a"}}),
        ] {
            assert_eq!(patched("a", bad).unwrap_err().code, ErrorCode::ValidationError);
        }
    }
}
