//! `ov_archive_search` and `ov_archive_expand`: what a session said before it was archived.

use super::{Call, Outcome, query::trigger, said};
use crate::{
    error::ApiError,
    find::{
        scan::{self, Grep},
        trace::{Draft, preview},
    },
    sessions,
};
use serde_json::{Value, json};
use std::time::Instant;

/// Matches that are shown.
const SHOWN: usize = 12;
/// Characters of a match that are shown.
const MAX_SHOWN_CHARS: usize = 1500;
/// Matches that are counted.
const COUNTED: usize = 256;

fn missing(param: &str) -> Outcome {
    said(format!("Error: {param} is required."), json!({"error": "missing_param", "param": param}))
}

fn no_session() -> Outcome {
    said("Error: no active session.", json!({"error": "no_session"}))
}

pub(super) fn search(call: &Call<'_>) -> Outcome {
    let Some(query) = call.text("query").map(str::trim) else { return missing("query") };
    let Some(session) = call.session.ov_id() else { return no_session() };
    let archive = call.text("archiveId").map(str::trim);
    let started = Instant::now();
    let found = grep(call, &session, query, archive);
    let told = |total: usize, results: Vec<Value>, error: Option<&str>| {
        let mut search = json!({"resourceType": "archive", "limit": SHOWN, "durationMs": started.elapsed().as_millis() as u64, "total": total, "results": results});
        search["caseInsensitive"] = true.into();
        if let Some(archive) = archive {
            search["archiveId"] = archive.into();
        }
        if let Some(error) = error {
            search["error"] = error.into();
        }
        search
    };
    let matches = match found {
        Ok(matches) => matches,
        Err(error) => {
            let message = error.told();
            trace(call, query, told(0, Vec::new(), Some(&message)), Vec::new(), 0);
            return said(format!("Archive search failed: {message}"), json!({"error": message}));
        }
    };
    let most = call.config().trace_recall_preview_chars;
    let shown = &matches[..matches.len().min(SHOWN)];
    let selected: Vec<Value> = shown
        .iter()
        .map(|m| json!({"uri": m["uri"], "resourceType": "session", "line": m["line"], "abstractPreview": preview(m["content"].as_str().unwrap_or_default(), most), "displayed": true}))
        .collect();
    let results = shown
        .iter()
        .map(|m| json!({"uri": m["uri"], "resourceType": "session", "abstractPreview": preview(m["content"].as_str().unwrap_or_default(), most), "resultType": "archive_match"}))
        .collect();
    trace(call, query, told(matches.len(), results, None), selected, matches.len());
    if matches.is_empty() {
        return said(
            format!(
                "No matches found for \"{query}\". Try a different keyword, a shorter phrase, or another name for it."
            ),
            json!({"query": query, "matchCount": 0}),
        );
    }
    let blocks: Vec<String> = shown
        .iter()
        .enumerate()
        .map(|(at, m)| {
            let uri = m["uri"].as_str().unwrap_or_default();
            let name = uri.rsplit('/').nth(1).unwrap_or_default();
            let line = m["content"].as_str().unwrap_or_default();
            let line = if line.chars().count() > MAX_SHOWN_CHARS {
                line.chars().take(MAX_SHOWN_CHARS).chain("…(truncated)".chars()).collect()
            } else {
                line.to_owned()
            };
            format!("## Match {}: {name} (line {})\n{line}", at + 1, m["line"])
        })
        .collect();
    let first = if matches.len() > SHOWN { format!(" (showing first {SHOWN})") } else { String::new() };
    said(
        format!("Found {} match(es) for \"{query}\"{first}:\n\n{}", matches.len(), blocks.join("\n\n")),
        json!({"query": query, "matchCount": matches.len()}),
    )
}

fn grep(call: &Call<'_>, session: &str, query: &str, archive: Option<&str>) -> Result<Vec<Value>, ApiError> {
    sessions::check_id(session)?;
    let account = call.store.account(&call.who)?;
    let history = sessions::place(&call.who, session).child("history");
    let place = match archive {
        Some(archive) => crate::store::uri::Place::parse(&format!("{history}/{archive}"), &call.who)?,
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
    let found = scan::grep(&account, &call.who, &place, &how)?;
    let all = found["matches"].as_array().cloned().unwrap_or_default();
    Ok(all.into_iter().filter(|m| m["uri"].as_str().is_some_and(|uri| uri.ends_with("/messages.jsonl"))).collect())
}

fn trace(call: &Call<'_>, query: &str, search: Value, selected: Vec<Value>, candidates: usize) {
    call.trace(Draft {
        source: "ov_archive_search",
        operation: "archive_grep",
        resource_types: vec!["session".to_owned()],
        trigger: trigger(call, query),
        searches: vec![search],
        stats: json!({"candidateCount": candidates, "selectedCount": selected.len(), "injectedCount": 0}),
        selected,
    });
}

pub(super) fn expand(call: &Call<'_>) -> Outcome {
    let Some(archive) = call.text("archiveId").map(str::trim) else { return missing("archiveId") };
    let Some(session) = call.session.ov_id() else { return no_session() };
    let id = call.session.id.clone().or_else(|| call.session.key.clone()).unwrap_or_default();
    let read =
        call.store.account(&call.who).and_then(|account| sessions::archive(&account, &call.who, &session, archive));
    let told = match read {
        Ok(told) => told,
        Err(error) => {
            let message = error.told();
            return said(
                format!("Failed to expand {archive}: {message}"),
                json!({"error": message, "archiveId": archive, "sessionId": id, "ovSessionId": session}),
            );
        }
    };
    let messages = told["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut lines = vec![format!("## {archive}")];
    if let Some(summary) = told["abstract"].as_str().filter(|s| !s.is_empty()) {
        lines.push(format!("**Summary**: {summary}"));
    }
    lines.push(format!("**Messages**: {}", messages.len()));
    let body: Vec<String> = messages.iter().map(spoken).collect();
    said(
        format!("{}\n\n{}", lines.join("\n"), body.join("\n\n")),
        json!({
            "action": "expanded", "archiveId": archive, "messageCount": messages.len(), "sessionId": id, "ovSessionId": session,
        }),
    )
}

/// A message as people read it.
fn spoken(message: &Value) -> String {
    let role = message["role"].as_str().unwrap_or_default();
    let parts: Vec<String> = message["parts"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|part| match part["type"].as_str() {
            Some("tool") => {
                let input = part.get("tool_input").filter(|i| !i.is_null()).map(Value::to_string).unwrap_or_default();
                let head = format!(
                    "[tool {} {}] {input}",
                    part["tool_name"].as_str().unwrap_or_default(),
                    part["tool_status"].as_str().unwrap_or_default()
                );
                let output = part["tool_output"].as_str().unwrap_or_default();
                if output.is_empty() { head } else { format!("{head}\n{output}") }
            }
            Some("context") => format!("[context {}]", part["uri"].as_str().unwrap_or_default()),
            Some("text") => part["text"].as_str().unwrap_or_default().to_owned(),
            other => format!("[{}]", other.unwrap_or_default()),
        })
        .collect();
    format!("[{role}]: {}", parts.join("\n"))
}
