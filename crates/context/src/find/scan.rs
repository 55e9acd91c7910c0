//! `grep` searches file contents; `glob` matches file names.

use crate::{
    error::{ApiError, Result},
    find::library::Library,
    store::{
        account::Account,
        disk,
        uri::{Identity, StorePath},
    },
};
use regex::RegexBuilder;
use serde::Serialize;

/// Maximum length of a pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 4096;
/// Maximum memory of a compiled pattern, in bytes.
const MAX_PATTERN_MEMORY: usize = 1 << 20;
/// Larger files are not searched.
const MAX_SEARCHED_BYTES: u64 = 32 << 20;
/// Maximum number of context lines.
const MAX_CONTEXT: usize = 100;

/// A `grep` request.
#[derive(Debug, Clone)]
pub struct Grep<'a> {
    /// A regular expression.
    pub pattern: &'a str,
    /// Ignore case.
    pub case_insensitive: bool,
    /// Maximum number of matches.
    pub node_limit: usize,
    /// Maximum depth of folders.
    pub level_limit: usize,
    /// Number of context lines before a match.
    pub before: usize,
    /// Number of context lines after a match.
    pub after: usize,
    /// A place that is not searched.
    pub exclude: Option<StorePath>,
}

/// A matching line.
#[derive(Debug, Clone, Serialize)]
pub struct GrepMatch {
    /// Line number, from 1.
    pub line: usize,
    /// The URI of the file.
    pub uri: String,
    /// The content of the line.
    pub content: String,
    /// The lines before it, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_context: Option<Vec<String>>,
    /// The lines after it, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_context: Option<Vec<String>>,
}

/// The result of a `grep`.
#[derive(Debug, Clone, Default)]
pub struct GrepResult {
    /// The matches, in file order.
    pub matches: Vec<GrepMatch>,
    /// Number of files read.
    pub files_scanned: usize,
}

/// Searches files for a pattern.
pub fn grep(account: &Account, who: &Identity, place: &StorePath, how: &Grep<'_>) -> Result<GrepResult> {
    if how.pattern.len() > MAX_PATTERN_BYTES {
        return Err(ApiError::argument(format!("pattern is longer than {MAX_PATTERN_BYTES} bytes")));
    }
    let pattern = RegexBuilder::new(how.pattern)
        .case_insensitive(how.case_insensitive)
        .size_limit(MAX_PATTERN_MEMORY)
        .build()
        .map_err(|error| ApiError::argument(format!("Invalid regular expression: {error}")))?;
    let mut found = GrepResult::default();
    let context = |lines: &[&str]| Some(lines.iter().map(|line| (*line).to_owned()).collect());
    files(account, who, place, how.level_limit, &mut |file| {
        if how.exclude.as_ref().is_some_and(|out| file.is_within(out)) {
            return Ok(true);
        }
        let path = account.path(file);
        if disk::look(&path)?.is_none_or(|found| found.size > MAX_SEARCHED_BYTES) {
            return Ok(true);
        }
        found.files_scanned += 1;
        let Ok(whole) = disk::read_text(&path) else { return Ok(true) };
        let text = Library::readable(file, &whole);
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| pattern.is_match(line)) {
            let before = &lines[at.saturating_sub(how.before.min(MAX_CONTEXT))..at];
            let after = &lines[at + 1..(at + 1 + how.after.min(MAX_CONTEXT)).min(lines.len())];
            found.matches.push(GrepMatch {
                line: at + 1,
                uri: file.to_string(),
                content: (*line).to_owned(),
                before_context: if how.before > 0 { context(before) } else { None },
                after_context: if how.after > 0 { context(after) } else { None },
            });
            if found.matches.len() >= how.node_limit {
                return Ok(false);
            }
        }
        Ok(true)
    })?;
    Ok(found)
}

/// The files whose path relative to a place matches a pattern.
pub fn glob(account: &Account, who: &Identity, place: &StorePath, pattern: &str, limit: usize) -> Result<Vec<String>> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(ApiError::argument(format!("pattern is longer than {MAX_PATTERN_BYTES} bytes")));
    }
    let glob = globset::GlobBuilder::new(pattern)
        .literal_separator(true)
        .build()
        .map_err(|error| ApiError::argument(format!("Invalid pattern: {error}")))?
        .compile_matcher();
    let root = place.to_string();
    let root = root.trim_end_matches('/');
    let mut matches: Vec<String> = Vec::new();
    files(account, who, place, usize::MAX, &mut |file| {
        let uri = file.to_string();
        let relative = uri.strip_prefix(root).map_or(uri.as_str(), |rest| rest.trim_start_matches('/'));
        if glob.is_match(relative) {
            matches.push(uri);
        }
        Ok(matches.len() < limit)
    })?;
    Ok(matches)
}

/// Visits the files that are not hidden, until the visitor returns `false`.
fn files(
    account: &Account,
    who: &Identity,
    place: &StorePath,
    levels: usize,
    each: &mut dyn FnMut(&StorePath) -> Result<bool>,
) -> Result<bool> {
    match disk::look(&account.path(place))? {
        None => Err(ApiError::no_file(&place.to_string())),
        Some(found) if !found.is_folder => each(place),
        Some(_) => walk(account, who, place, levels.min(64), each),
    }
}

fn walk(
    account: &Account,
    who: &Identity,
    place: &StorePath,
    levels: usize,
    each: &mut dyn FnMut(&StorePath) -> Result<bool>,
) -> Result<bool> {
    for found in disk::list(&account.path(place))? {
        let child = place.child(&found.name);
        let own = place.is_root() && !crate::store::uri::SHOWN_SCOPES.contains(&found.name.as_str());
        if own || found.is_hidden() || !child.visible_to(who) {
            continue;
        }
        let go_on = if !found.is_folder {
            each(&child)?
        } else if levels > 0 {
            walk(account, who, &child, levels - 1, each)?
        } else {
            true
        };
        if !go_on {
            return Ok(false);
        }
    }
    Ok(true)
}
