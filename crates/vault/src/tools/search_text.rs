//! `vault.searchText`: finds text in notes. The time is linear in the size of the vault for every expression.

use super::{Args, Run, Tool, answer, parse, reads, schema::PathArg};
use crate::{
    error::{VaultResult, validation},
    path::VaultPath,
    text::floor_boundary,
    view::{Purpose, StopCondition, View, parse_folder_prefix, walk_until},
};
use regex::RegexBuilder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use toolyard_engine::Output;
use toolyard_protocol::{EntryKind, ErrorCode};

/// Default number of matches in one answer.
const DEFAULT_LIMIT: u64 = 50;
/// Maximum number of matches in one answer.
const MAX_LIMIT: u64 = 1000;
/// Default number of characters of a snippet.
const DEFAULT_SNIPPET: u64 = 120;
/// Maximum number of characters of a snippet.
const MAX_SNIPPET: u64 = 1000;
/// A query is at most this long.
const MAX_QUERY_BYTES: usize = 4096;
/// A compiled expression takes at most this much memory.
const MAX_REGEX_BYTES: usize = 4 << 20;
/// Larger files are skipped: no note is that large.
const MAX_SEARCHED_BYTES: u64 = 16 << 20;
/// A NUL byte this early marks a file as binary.
const BINARY_PROBE: usize = 8192;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Input {
    /// What to look for.
    query: String,
    /// "plain" (default), or "regex" (no look-around, no back-references).
    #[serde(default)]
    mode: Option<Mode>,
    /// Only in these folders or files.
    #[serde(default)]
    paths: Option<Vec<PathArg>>,
    /// Tell upper and lower case apart (default false).
    #[serde(default)]
    case_sensitive: Option<bool>,
    /// At most this many matches (default 50, at most 1000).
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u64>,
    /// Characters of text around each match (default 120, at most 1000).
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    snippet_length: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Plain,
    Regex,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SearchMatch {
    path: String,
    /// Line number, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    /// UTF-8 byte offset of the match in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<u64>,
    /// The byte after the match.
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<u64>,
    snippet: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Data {
    matches: Vec<SearchMatch>,
    /// Whether there are more matches than the limit.
    truncated: bool,
}

pub(super) const TOOL: Tool = Tool {
    name: "vault.searchText",
    define: || {
        reads::<Input, Data>(
            "Search text",
            "Finds text in the files of the vault, in the order of their paths. Binary and hidden files are skipped.",
        )
    },
    run: Run::Read(run),
};

fn run(view: &dyn View, args: Args, stop: &StopCondition) -> VaultResult<Output> {
    let input: Input = parse(args)?;
    let limit = input.limit.unwrap_or(DEFAULT_LIMIT);
    let snippet = input.snippet_length.unwrap_or(DEFAULT_SNIPPET);
    if input.query.is_empty() || input.query.len() > MAX_QUERY_BYTES {
        return Err(validation(format!("query has 1 to {MAX_QUERY_BYTES} bytes")));
    }
    if !(1..=MAX_LIMIT).contains(&limit) || !(1..=MAX_SNIPPET).contains(&snippet) {
        return Err(validation(format!("limit is 1 to {MAX_LIMIT}, snippetLength 1 to {MAX_SNIPPET}")));
    }
    let pattern = match input.mode.unwrap_or_default() {
        Mode::Plain => regex::escape(&input.query),
        Mode::Regex => input.query.clone(),
    };
    let regex = RegexBuilder::new(&pattern)
        .case_insensitive(input.case_sensitive != Some(true))
        .multi_line(true)
        .size_limit(MAX_REGEX_BYTES)
        .dfa_size_limit(MAX_REGEX_BYTES)
        .build()
        .map_err(|error| validation(format!("the expression cannot be used: {error}")))?;
    let mut search = Search { regex, limit, snippet, matches: Vec::new(), truncated: false };
    let roots: Vec<Option<VaultPath>> = match &input.paths {
        None => vec![None],
        Some(paths) => paths.iter().map(|p| parse_folder_prefix(&p.0)).collect::<Result<_, _>>()?,
    };
    let roots = without_nested(roots);
    for root in &roots {
        let kind = match root {
            Some(path) => {
                view.stat(path, Purpose::Read)?.map(|s| s.kind).ok_or_else(|| crate::view::missing(view, path))?
            }
            None => EntryKind::Folder,
        };
        let flow = match (kind, root) {
            (EntryKind::File, Some(path)) => search.file(view, path)?,
            _ => walk_until(view, root.as_ref(), stop, &mut |path, kind| {
                stop.check()?;
                if kind == EntryKind::File { search.file(view, path) } else { Ok(ControlFlow::Continue(())) }
            })?,
        };
        if flow.is_break() {
            break;
        }
    }
    let message =
        format!("{} matches{}", search.matches.len(), if search.truncated { ", and there are more" } else { "" });
    answer(&Data { matches: search.matches, truncated: search.truncated }, message)
}

/// A path below another one of the list would be searched twice.
fn without_nested(mut roots: Vec<Option<VaultPath>>) -> Vec<Option<VaultPath>> {
    if roots.contains(&None) {
        return vec![None];
    }
    roots.sort();
    roots.dedup();
    let all = roots.clone();
    roots.retain(|root| root.as_ref().is_none_or(|path| !all.iter().flatten().any(|other| path.is_below(other))));
    roots
}

struct Search {
    regex: regex::Regex,
    limit: u64,
    snippet: u64,
    matches: Vec<SearchMatch>,
    truncated: bool,
}

impl Search {
    fn file(&mut self, view: &dyn View, path: &VaultPath) -> VaultResult<ControlFlow<()>> {
        let go_on = Ok(ControlFlow::Continue(()));
        match view.stat(path, Purpose::Read) {
            Ok(Some(stat)) if stat.size <= MAX_SEARCHED_BYTES => {}
            Ok(_) => return go_on,
            Err(failure) if failure.code == ErrorCode::InternalError => return Err(failure),
            Err(_) => return go_on,
        }
        // A file that cannot be read (permissions, gone meanwhile) is not a reason to fail the whole search.
        let Ok(Some(content)) = view.read(path, Purpose::Read) else { return go_on };
        if memchr::memchr(0, &content.bytes[..content.bytes.len().min(BINARY_PROBE)]).is_some() {
            return go_on;
        }
        let Ok(text) = std::str::from_utf8(&content.bytes) else { return go_on };
        let (mut line, mut counted) = (1, 0);
        for found in self.regex.find_iter(text).filter(|m| !m.is_empty()) {
            if self.matches.len() as u64 == self.limit {
                self.truncated = true;
                return Ok(ControlFlow::Break(()));
            }
            line += memchr::memchr_iter(b'\n', &text.as_bytes()[counted..found.start()]).count() as u64;
            counted = found.start();
            self.matches.push(SearchMatch {
                path: path.to_string(),
                line: Some(line),
                start: Some(found.start() as u64),
                end: Some(found.end() as u64),
                snippet: snippet(text, found.start(), found.end(), self.snippet as usize),
            });
        }
        go_on
    }
}

/// The match with text around it, about `length` characters, on one line.
fn snippet(text: &str, start: usize, end: usize, length: usize) -> String {
    let shown = floor_boundary(text, end.min(start + length * 4));
    let matched = text[start..shown].chars().take(length).count();
    let around = (length - matched) / 2;
    let from = text[..start].char_indices().rev().take(around).last().map_or(start, |(i, _)| i);
    text[from..].chars().take(length).map(|c| if c == '\n' || c == '\r' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snippets_fit_and_never_split_characters() {
        assert_eq!(snippet("ääää b ääää", 9, 10, 5), "ä b ä");
        assert_eq!(snippet("abc", 0, 3, 1), "a");
        assert_eq!(snippet("a\nb", 0, 1, 10), "a b");
    }

    #[test]
    fn nested_roots_are_searched_once() {
        let path = |t: &str| Some(VaultPath::parse(t).unwrap());
        assert_eq!(without_nested(vec![path("a/b"), path("a"), path("c"), path("a")]), [path("a"), path("c")]);
        assert_eq!(without_nested(vec![path("a"), None]), [None]);
    }
}
