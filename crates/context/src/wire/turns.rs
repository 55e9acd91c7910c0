//! What happens around an agent's turn: messages are captured, context is put together before the next one, and a long
//! session is compacted. The plugin does this with the HTTP interface; agents that are joined to Toolyard have it here.

use crate::{
    service::ContextStore,
    sessions::{self, NewMessage, archive::Retain, tokens},
    wire::tools::{self, Call, Session, Thrown},
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// A question shorter than this recalls nothing.
const MIN_QUERY_CHARS: usize = 5;
/// A question is cut here.
const MAX_QUERY_CHARS: usize = 4000;
/// The budget when none is given.
const DEFAULT_BUDGET: u64 = 128_000;
/// Share of the budget that is left for the answer, at most this many tokens from 40,000 on.
const RESERVED_SHARE: f64 = 0.15;
const RESERVED_MOST: u64 = 20_000;

/// Takes out what earlier recalls put in, and a leading time stamp.
pub fn sanitized(text: &str) -> String {
    let mut out = text.to_owned();
    while let Some(start) = out.find("<relevant-memories>") {
        let end =
            out[start..].find("</relevant-memories>").map_or(out.len(), |at| start + at + "</relevant-memories>".len());
        out.replace_range(start..end, "");
    }
    let trimmed = out.trim();
    let without = match trimmed.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((stamp, rest))
            if stamp.len() <= 40 && stamp.chars().any(|c| c.is_ascii_digit()) && stamp.contains(':') =>
        {
            rest
        }
        _ => trimmed,
    };
    without.replace("[Subagent Context]", "").trim().to_owned()
}

/// Keeps messages of a turn, and archives the session when it has grown past its share of the budget.
pub fn capture(
    store: &Arc<ContextStore>,
    session: &Session,
    messages: &[Value],
    budget: Option<u64>,
) -> Result<Value, Thrown> {
    let config = store.config();
    if tools::is_bypassed(config, session) {
        return Ok(json!({"captured": 0, "reason": "session_bypassed"}));
    }
    let id = session.ov_id().ok_or_else(no_session)?;
    let who = store.identity(None);
    let account = store.account(&who)?;
    let peer = session.peer(config)?;
    let mut captured = 0;
    let mut pending = 0;
    for message in messages {
        let role = message["role"].as_str().unwrap_or("user").to_owned();
        let parts = match (message["parts"].as_array(), message["text"].as_str().or(message["content"].as_str())) {
            (Some(parts), _) => parts.clone(),
            (None, Some(text)) => vec![json!({"type": "text", "text": sanitized(text)})],
            (None, None) => return Err(Thrown::argument("each message has parts, text or content")),
        };
        let speaks = matches!(
            (config.peer_role, role.as_str()),
            (crate::config::PeerRole::Assistant, "assistant") | (crate::config::PeerRole::Person, "user")
        );
        let new = NewMessage {
            role,
            parts,
            peer_id: peer.clone().filter(|_| speaks),
            created_at: message["created_at"].as_str().map(str::to_owned),
        };
        let told = sessions::add_message(&account, &who, &id, &new)?;
        pending = told["pending_tokens"].as_u64().unwrap_or_default();
        captured += 1;
    }
    let mut told = json!({"captured": captured, "ovSessionId": id, "pendingTokens": pending});
    let threshold = (budget.unwrap_or(DEFAULT_BUDGET) as f64 * config.commit_token_threshold_ratio).floor() as u64;
    if captured > 0 && pending >= threshold {
        told["commit"] = store.commit(&who, &id, Retain::last(config.commit_keep_recent_count), false)?;
    }
    Ok(told)
}

fn no_session() -> Thrown {
    Thrown::argument("openviking: need sessionId or sessionKey for OV session path")
}

/// Puts together what a model should see: the history in short, the live messages, and what is remembered about the
/// question. `prompt` is the user's new message.
pub fn assemble(
    store: &Arc<ContextStore>,
    session: &Session,
    prompt: Option<&str>,
    budget: Option<u64>,
) -> Result<Value, Thrown> {
    let config = store.config();
    if tools::is_bypassed(config, session) {
        return Ok(json!({"reason": "session_bypassed", "messages": [], "prompt": prompt}));
    }
    let id = session.ov_id().ok_or_else(no_session)?;
    let who = store.identity(session.peer(config)?);
    let account = store.account(&who)?;
    let budget = budget.unwrap_or(DEFAULT_BUDGET);
    let reserved = ((budget as f64 * RESERVED_SHARE) as u64).min(if budget >= 40_000 { RESERVED_MOST } else { budget });
    let mut told = json!({"ovSessionId": id, "messages": []});
    match sessions::context(&account, &who, &id, budget.saturating_sub(reserved)) {
        Ok(context) => {
            let mut messages = Vec::new();
            if let Some(overview) = context["latest_archive_overview"].as_str().filter(|o| !o.is_empty()) {
                messages.push(json!({"role": "user", "content": format!("[Session History Summary]\n{overview}")}));
                told["systemPromptAddition"] =
                    "Earlier messages were archived. Find details in them with ov_archive_search and read them with ov_archive_expand.".into();
            }
            for message in context["messages"].as_array().into_iter().flatten() {
                messages.extend(turns(message));
            }
            told["reason"] = if messages.is_empty() { "no_ov_data" } else { "assembled" }.into();
            told["messages"] = messages.into();
            told["estimatedTokens"] = context["estimatedTokens"].clone();
            told["stats"] = context["stats"].clone();
        }
        Err(error) if error.code == crate::error::Code::NotFound => told["reason"] = "session_not_found".into(),
        Err(error) => return Err(error.into()),
    }
    if let Some(prompt) = prompt {
        told["prompt"] = prompt.into();
        let query = sanitized(prompt);
        if config.auto_recall && query.chars().count() >= MIN_QUERY_CHARS && !prompt.contains("<relevant-memories>") {
            let cut: String = query.chars().take(MAX_QUERY_CHARS).collect();
            let args = Map::new();
            let call = Call { store, session, args: &args, who };
            if let Some(block) = tools::memory::auto_recall(&call, &query, &cut)? {
                told["recalledTokens"] = (tokens(&block).ceil() as u64).into();
                told["prompt"] = format!("{block}\n\n{prompt}").into();
            }
        }
    }
    Ok(told)
}

/// A stored message as models take it: text, then each tool call with its result right after it.
fn turns(message: &Value) -> Vec<Value> {
    let role = message["role"].as_str().unwrap_or("user");
    let mut out = Vec::new();
    let mut text = Vec::new();
    for part in message["parts"].as_array().into_iter().flatten() {
        match part["type"].as_str() {
            Some("tool") => {
                if !text.is_empty() {
                    out.push(json!({"role": role, "content": text.join("\n")}));
                    text.clear();
                }
                out.push(json!({"role": "assistant", "toolCall": {"id": part["tool_id"], "name": part["tool_name"], "input": part["tool_input"]}}));
                let mut output = part["tool_output"].as_str().unwrap_or_default().to_owned();
                if let Some(uri) = part["tool_output_ref"].as_str() {
                    output.push_str(&format!(
                        "\n[tool-result-ref] {uri} original_chars={}",
                        part["tool_output_original_chars"]
                    ));
                }
                out.push(json!({"role": "toolResult", "toolCallId": part["tool_id"], "content": output, "isError": part["tool_status"] == "error"}));
            }
            Some("text") => text.extend(part["text"].as_str().map(str::to_owned)),
            Some("context") => text.extend(part["abstract"].as_str().map(str::to_owned)),
            _ => {}
        }
    }
    if !text.is_empty() {
        out.push(json!({"role": role, "content": text.join("\n")}));
    }
    out
}

/// Archives everything and says what is left of it.
pub fn compact(store: &Arc<ContextStore>, session: &Session) -> Result<Value, Thrown> {
    if tools::is_bypassed(store.config(), session) {
        return Ok(json!({"ok": true, "compacted": false, "reason": "session_bypassed"}));
    }
    let id = session.ov_id().ok_or_else(no_session)?;
    let who = store.identity(None);
    let account = store.account(&who)?;
    let before = match sessions::describe(&account, &who, &id) {
        Ok(told) => told["pending_tokens"].as_i64().unwrap_or(-1),
        Err(_) => return Ok(json!({"ok": false, "compacted": false, "reason": "session_not_found"})),
    };
    let done = store.commit(&who, &id, Retain::default(), true)?;
    let Some(uri) = done["archive_uri"].as_str() else {
        return Ok(json!({"ok": true, "compacted": false, "reason": "commit_no_archive"}));
    };
    let name = uri.rsplit('/').next().unwrap_or_default();
    let archive = sessions::archive(&account, &who, &id, name)?;
    let overview = archive["overview"].as_str().unwrap_or_default();
    Ok(json!({
        "ok": true, "compacted": true, "reason": "commit_completed",
        "result": {
            "summary": overview, "firstKeptEntryId": name, "tokensBefore": before,
            "tokensAfter": tokens(overview).ceil() as u64, "details": {"archiveUri": uri},
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_before_is_taken_out() {
        assert_eq!(sanitized("<relevant-memories>\nx\n</relevant-memories>\n\nhello there"), "hello there");
        assert_eq!(sanitized("[Mon 2026-06-05 10:00] what is it?"), "what is it?");
        assert_eq!(sanitized("[link] stays"), "[link] stays");
        assert_eq!(sanitized("<relevant-memories> open"), "");
    }

    #[test]
    fn calls_and_results_come_in_pairs() {
        let message = json!({"role": "assistant", "parts": [
            {"type": "text", "text": "I look."},
            {"type": "tool", "tool_id": "c1", "tool_name": "Run", "tool_input": {"a": 1}, "tool_output": "out", "tool_status": "error"},
        ]});
        let turns = turns(&message);
        assert_eq!(turns.len(), 3);
        assert_eq!((&turns[1]["toolCall"]["id"], &turns[2]["toolCallId"]), (&json!("c1"), &json!("c1")));
        assert_eq!(turns[2]["isError"], true);
    }
}
