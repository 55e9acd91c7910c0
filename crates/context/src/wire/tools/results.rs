//! `openviking_tool_result_list`, `_search`, `_read`: access to large tool results that are stored separately.

use super::{Answer, Call, Outcome, text_result};
use crate::{sessions::externalise, store::uri::SCHEME, wire::http::decode};
use serde_json::{Value, json};

fn error(text: &str, details: Value) -> Answer {
    Answer { text: format!("Error: {text}"), details }
}

/// A reference to a stored result.
struct Reference<'a> {
    given: &'a str,
    id: String,
}

/// Parses `viking://session/<session>/tool-results/<id>`, or the form printed in stubs,
/// `viking://user/<user>/sessions/…`, and checks that it belongs to this session.
fn reference<'a>(call: &'a Call<'_>, session: &str) -> Result<Reference<'a>, Answer> {
    let given =
        ["tool_output_ref", "ref", "uri"].iter().find_map(|name| call.text(name)).map(str::trim).unwrap_or_default();
    let bad = || {
        error(
            "tool_output_ref must be a viking://session/.../tool-results/... URI.",
            json!({"error": "invalid_tool_output_ref"}),
        )
    };
    let path = given.strip_prefix(SCHEME).ok_or_else(bad)?;
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let names: Vec<String> = path.split('/').map(decode).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (owner, id) = match names.as_slice() {
        ["session", owner, "tool-results", id] => (*owner, *id),
        ["user", user, "sessions", owner, "tool-results", id] if *user == call.who.user => (*owner, *id),
        ["~", "sessions", owner, "tool-results", id] => (*owner, *id),
        _ => return Err(bad()),
    };
    if owner.is_empty() || id.is_empty() {
        return Err(bad());
    }
    if owner != session {
        return Err(error(
            "tool_output_ref belongs to another session.",
            json!({"error": "session_mismatch", "requestedSessionId": owner, "currentSessionId": session}),
        ));
    }
    Ok(Reference { given, id: id.to_owned() })
}

fn session(call: &Call<'_>) -> Result<String, Answer> {
    call.session.ov_id().ok_or_else(|| error("no active session.", json!({"error": "no_session"})))
}

/// The session, and a reference to one of its results.
fn own_reference<'a>(call: &'a Call<'_>) -> Result<(String, Reference<'a>), Answer> {
    let session = session(call)?;
    let wanted = reference(call, &session)?;
    Ok((session, wanted))
}

pub(super) fn list(call: &Call<'_>) -> Outcome {
    let session = match session(call) {
        Ok(session) => session,
        Err(answer) => return Ok(answer),
    };
    let tool = call.text("tool_name").or_else(|| call.text("toolName")).map(str::trim);
    let limit = call.count("limit", 50);
    let found =
        call.store.account(&call.who).and_then(|account| externalise::list(&account, &call.who, &session, tool, limit));
    let mut all = match found {
        Ok(all) => all,
        Err(failed) => {
            let message = failed.tool_message();
            return text_result(
                format!("Tool result list failed: {message}"),
                json!({"error": message, "session_id": session}),
            );
        }
    };
    for result in &mut all {
        result.storage_uri = externalise::reference(&session, &result.tool_result_id);
    }
    let details =
        json!({"action": "listed", "session_id": session, "tool_name": tool, "count": all.len(), "tool_results": all});
    if all.is_empty() {
        let of = tool.map(|tool| format!(" for tool \"{tool}\"")).unwrap_or_default();
        return text_result(format!("No externalized tool results found{of} in current session."), details);
    }
    let mut lines = vec![format!("Found {} externalized tool result(s) in current session:", all.len()), String::new()];
    for (at, meta) in all.iter().enumerate() {
        lines.push(format!(
            "{}. {} original_chars={} created_at={}",
            at + 1,
            meta.tool_name,
            meta.original_chars,
            meta.created_at
        ));
        lines.push(format!("ref: {}", meta.storage_uri));
    }
    text_result(lines.join("\n"), details)
}

pub(super) fn search(call: &Call<'_>) -> Outcome {
    let (session, wanted) = match own_reference(call) {
        Ok(found) => found,
        Err(answer) => return Ok(answer),
    };
    let Some(query) = call.args.get("query").and_then(Value::as_str).filter(|q| !q.is_empty()) else {
        return Ok(error("query is required.", json!({"error": "missing_param", "param": "query"})));
    };
    let limit = call.count("limit", 20);
    let around = call.number("context_chars").or_else(|| call.number("contextChars"));
    let around = around.map_or(300, |n| n.floor().max(0.0) as usize);
    let loaded =
        call.store.account(&call.who).and_then(|account| externalise::load(&account, &call.who, &session, &wanted.id));
    let (output, _) = match loaded {
        Ok(loaded) => loaded,
        Err(failed) => return failure("search", &wanted, &failed.tool_message()),
    };
    let matches = externalise::search(&output, query, limit, around);
    let details = json!({
        "action": "searched", "tool_output_ref": wanted.given, "tool_result_id": wanted.id, "query": query,
        "match_count": matches.len(), "matches": matches,
    });
    if matches.is_empty() {
        return text_result(format!("No matches found for \"{query}\" in {}.", wanted.given), details);
    }
    let blocks: Vec<String> = matches
        .iter()
        .enumerate()
        .map(|(at, m)| format!("## Match {} (offset {})\n{}", at + 1, m.offset, m.snippet))
        .collect();
    text_result(
        format!("Found {} match(es) for \"{query}\" in {}:\n\n{}", matches.len(), wanted.given, blocks.join("\n")),
        details,
    )
}

fn failure(what: &str, wanted: &Reference<'_>, message: &str) -> Outcome {
    text_result(
        format!("Tool result {what} failed: {message}"),
        json!({"error": message, "tool_output_ref": wanted.given, "tool_result_id": wanted.id}),
    )
}

pub(super) fn read(call: &Call<'_>) -> Outcome {
    let (session, wanted) = match own_reference(call) {
        Ok(found) => found,
        Err(answer) => return Ok(answer),
    };
    let offset = call.number("offset").map_or(0, |n| n.floor().max(0.0) as usize);
    let limit = call.number("limit").map_or(20_000.0, f64::floor);
    if limit < -1.0 {
        return Ok(error(
            "limit must be -1 or greater than or equal to 0.",
            json!({"error": "invalid_limit", "limit": call.args.get("limit")}),
        ));
    }
    let limit = limit as i64;
    let loaded =
        call.store.account(&call.who).and_then(|account| externalise::load(&account, &call.who, &session, &wanted.id));
    let (output, metadata) = match loaded {
        Ok(loaded) => loaded,
        Err(failed) => return failure("read", &wanted, &failed.tool_message()),
    };
    let chunk = externalise::read(&wanted.id, &output, offset, limit);
    let returned = chunk.content.chars().count();
    let text = if chunk.content.is_empty() { "(empty tool result chunk)" } else { chunk.content.as_str() };
    text_result(
        text,
        json!({
            "action": "read", "tool_output_ref": wanted.given, "tool_result_id": wanted.id, "offset": offset, "limit": limit,
            "returned_chars": returned, "total_chars": chunk.total_chars, "has_more": chunk.has_more,
            "next_offset": chunk.has_more.then_some(offset + returned), "metadata": metadata,
        }),
    )
}
