//! The directory: a list of limited size of the tools that are not shown with their schemas. Only tools that the
//! operator installed are listed with their own description; a tool of an untrusted source is listed with its name and
//! a line written by Toolyard.

use super::one_line;
use crate::registry::ToolEntry;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};
use toolyard_protocol::RiskLevel;

/// The directory is never longer than this.
const MAX_DIRECTORY_CHARS: usize = 18_000;
/// Nor shorter, whatever the model's context.
const MIN_DIRECTORY_CHARS: usize = 768;
/// Tokens of context for each character of the directory.
const TOKENS_PER_CHAR: usize = 10;
/// Lengths of descriptions tried, longest first, before names are left out.
const DESCRIPTION_STEPS: [usize; 3] = [180, 64, 0];
/// Bytes of a name that is listed.
const MAX_NAME_BYTES: usize = 128;

/// The directory's text.
pub(super) fn write(entries: &[&Arc<ToolEntry>], context_tokens: Option<usize>) -> String {
    let room = context_tokens.map_or(MAX_DIRECTORY_CHARS, |tokens| {
        (tokens / TOKENS_PER_CHAR).clamp(MIN_DIRECTORY_CHARS, MAX_DIRECTORY_CHARS)
    });
    if entries.is_empty() {
        return "### Deferred Tool Schemas\n\nAvailable deferred-schema tools: none.".to_owned();
    }
    let mut named: BTreeMap<&str, Vec<&Arc<ToolEntry>>> = BTreeMap::new();
    for entry in entries {
        named.entry(entry.name().as_str()).or_default().push(entry);
    }
    let listed: Vec<&Arc<ToolEntry>> = named
        .iter()
        .filter(|(name, entries)| entries.len() == 1 && is_plain(name))
        .filter_map(|(_, entries)| entries.first().copied())
        .collect();
    let left_out = entries.len() - listed.len();
    let mut lines = Vec::new();
    let mut shown = 0;
    for chars in DESCRIPTION_STEPS {
        lines = listed.iter().map(|entry| line(entry, chars)).collect();
        shown = fitting(&lines, left_out, room);
        if shown == lines.len() {
            break;
        }
    }
    text(&lines[..shown], entries.len() - shown)
}

/// How many lines fit, by bisection: more lines never make the text shorter.
fn fitting(lines: &[String], left_out: usize, room: usize) -> usize {
    let fits = |count: usize| text(&lines[..count], lines.len() - count + left_out).chars().count() <= room;
    let (mut low, mut high) = (0, lines.len());
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

fn text(lines: &[String], omitted: usize) -> String {
    let mut text = "### Deferred Tool Schemas\n\nAvailable deferred-schema tools:\n".to_owned();
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
    if omitted > 0 {
        text.push_str(&format!("{omitted} additional tools omitted. Use tool_search to find them, "));
        text.push_str("one short query per step of the task. ");
    }
    text.push_str("Use tool_describe for a tool's schema and tool_call to call it.");
    text
}

fn line(entry: &ToolEntry, chars: usize) -> String {
    let name = entry.name();
    if chars == 0 {
        return format!("- {name}");
    }
    let description = if entry.source().is_trusted() {
        one_line(&entry.definition().description, chars)
    } else {
        one_line(&summary(entry), chars)
    };
    let description = if description.is_empty() { "No description.".to_owned() } else { description };
    format!("- {name} ({}): {description}", entry.source().name)
}

/// A summary of an untrusted tool, written by Toolyard.
fn summary(entry: &ToolEntry) -> String {
    let definition = entry.definition();
    let does = match definition.risk_level {
        RiskLevel::ReadOnly => "reads",
        RiskLevel::Writes => "changes something",
        RiskLevel::Commands => "runs commands",
    };
    let arguments = definition.input_schema.parse().get("properties").and_then(Value::as_object).map_or(0, |p| p.len());
    let plural = if arguments == 1 { "" } else { "s" };
    format!("MCP tool, {does}, {arguments} argument{plural}.")
}

/// Names that are nothing but a name.
fn is_plain(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= MAX_NAME_BYTES
        && bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b))
}
