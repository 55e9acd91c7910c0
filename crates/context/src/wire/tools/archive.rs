//! `ov_archive_search` and `ov_archive_expand`: search and read the archived messages of a session.

use super::{Call, Outcome, text_result};
use crate::{
    error::ApiError,
    find::{
        query_config::ResourceType,
        scan::{self, Grep, GrepMatch},
        trace::{Hit, Search, Selected, preview},
    },
    sessions::{self, Message, Part},
};
use serde_json::json;
use std::time::Instant;

/// Maximum number of matches shown.
const SHOWN: usize = 12;
/// Maximum length of a shown match, in characters.
const MAX_SHOWN_CHARS: usize = 1500;
/// Maximum number of matches counted.
const COUNTED: usize = 256;

fn missing(param: &str) -> Outcome {
    text_result(format!("Error: {param} is required."), json!({"error": "missing_param", "param": param}))
}

fn no_session() -> Outcome {
    text_result("Error: no active session.", json!({"error": "no_session"}))
}

pub(super) fn search(call: &Call<'_>) -> Outcome {
    let Some(query) = call.text("query").map(str::trim) else { return missing("query") };
    let Some(session) = call.session.ov_id() else { return no_session() };
    let archive = call.text("archiveId").map(str::trim);
    let started = Instant::now();
    let found = grep(call, &session, query, archive);
    let mut search = Search {
        archive_id: archive.map(str::to_owned),
        case_insensitive: Some(true),
        duration_ms: started.elapsed().as_millis() as u64,
        ..Search::new(ResourceType::Archive, SHOWN)
    };
    let matches = match found {
        Ok(matches) => matches,
        Err(error) => {
            let message = error.tool_message();
            search.error = Some(message.clone());
            record(call, query, search, &[]);
            return text_result(format!("Archive search failed: {message}"), json!({"error": message}));
        }
    };
    search.total = matches.len();
    record(call, query, search, &matches);
    if matches.is_empty() {
        return text_result(
            format!(
                "No matches found for \"{query}\". Try a different keyword, a shorter phrase, or another name for it."
            ),
            json!({"query": query, "matchCount": 0}),
        );
    }
    let blocks: Vec<String> = matches.iter().take(SHOWN).enumerate().map(|(at, m)| block(at + 1, m)).collect();
    let first = if matches.len() > SHOWN { format!(" (showing first {SHOWN})") } else { String::new() };
    text_result(
        format!("Found {} match(es) for \"{query}\"{first}:\n\n{}", matches.len(), blocks.join("\n\n")),
        json!({"query": query, "matchCount": matches.len()}),
    )
}

/// A match, formatted for people.
fn block(number: usize, found: &GrepMatch) -> String {
    let name = found.uri.rsplit('/').nth(1).unwrap_or_default();
    let line = if found.content.chars().count() > MAX_SHOWN_CHARS {
        found.content.chars().take(MAX_SHOWN_CHARS).chain("…(truncated)".chars()).collect()
    } else {
        found.content.clone()
    };
    format!("## Match {number}: {name} (line {})\n{line}", found.line)
}

fn grep(call: &Call<'_>, session: &str, query: &str, archive: Option<&str>) -> Result<Vec<GrepMatch>, ApiError> {
    sessions::check_id(session)?;
    let account = call.store.account(&call.who)?;
    let history = sessions::place(&call.who, session).child("history");
    let place = match archive {
        Some(archive) => crate::store::uri::StorePath::parse(&format!("{history}/{archive}"), &call.who)?,
        None => history,
    };
    let pattern = regex::escape(query);
    let how = Grep {
        pattern: &pattern,
        case_insensitive: true,
        node_limit: COUNTED,
        level_limit: 4,
        before: 0,
        after: 0,
        exclude: None,
    };
    let mut found = scan::grep(&account, &call.who, &place, &how)?.matches;
    found.retain(|found| found.uri.ends_with("/messages.jsonl"));
    Ok(found)
}

fn record(call: &Call<'_>, query: &str, search: Search, matches: &[GrepMatch]) {
    let (config, shown) = (call.config(), &matches[..matches.len().min(SHOWN)]);
    let selected = shown.iter().map(|found| Selected {
        line: Some(found.line),
        displayed: Some(true),
        ..Selected::plain(&found.uri, ResourceType::Session, &found.content, config)
    });
    let results = shown.iter().map(|found| Hit {
        uri: found.uri.clone(),
        resource_type: ResourceType::Session,
        category: None,
        score: None,
        parts: None,
        level: None,
        abstract_preview: preview(&found.content, config.trace_recall_preview_chars),
        result_type: "archive_match".to_owned(),
    });
    let mut trace = call.trace_of("ov_archive_search", "archive_grep", query);
    trace.resource_types = vec![ResourceType::Session];
    trace.searches = vec![Search { results: results.collect(), ..search }];
    trace.selected = selected.collect();
    trace.stats.candidate_count = matches.len();
    trace.stats.selected_count = trace.selected.len();
    call.record(trace);
}

pub(super) fn expand(call: &Call<'_>) -> Outcome {
    let Some(archive) = call.text("archiveId").map(str::trim) else { return missing("archiveId") };
    let Some(session) = call.session.ov_id() else { return no_session() };
    let id = call.session.id.clone().or_else(|| call.session.key.clone()).unwrap_or_default();
    let read =
        call.store.account(&call.who).and_then(|account| sessions::archive(&account, &call.who, &session, archive));
    let read = match read {
        Ok(read) => read,
        Err(error) => {
            let message = error.tool_message();
            return text_result(
                format!("Failed to expand {archive}: {message}"),
                json!({"error": message, "archiveId": archive, "sessionId": id, "ovSessionId": session}),
            );
        }
    };
    let mut lines = vec![format!("## {archive}")];
    if !read.abstract_.is_empty() {
        lines.push(format!("**Summary**: {}", read.abstract_));
    }
    lines.push(format!("**Messages**: {}", read.messages.len()));
    let body: Vec<String> = read.messages.iter().map(spoken).collect();
    text_result(
        format!("{}\n\n{}", lines.join("\n"), body.join("\n\n")),
        json!({
            "action": "expanded", "archiveId": archive, "messageCount": read.messages.len(), "sessionId": id,
            "ovSessionId": session,
        }),
    )
}

/// A message, formatted for people.
fn spoken(message: &Message) -> String {
    let parts: Vec<String> = message
        .parts
        .iter()
        .map(|part| match part {
            Part::Text { text } => text.clone(),
            Part::Context(context) => format!("[context {}]", context.uri),
            Part::Tool(tool) => {
                let input = if tool.tool_input.is_null() { String::new() } else { tool.tool_input.to_string() };
                let head = format!("[tool {} {}] {input}", tool.tool_name, tool.tool_status);
                if tool.tool_output.is_empty() { head } else { format!("{head}\n{}", tool.tool_output) }
            }
            Part::Image(_) => "[image]".to_owned(),
        })
        .collect();
    format!("[{}]: {}", message.role.as_str(), parts.join("\n"))
}
