//! The context engine around an agent's turn: it captures messages, assembles the context of the next turn and compacts
//! long sessions. The plugin does this through the HTTP interface; agents connected to Toolyard use these functions.

use crate::{
    config::{ContextConfig, PeerRole},
    error::Code,
    service::ContextStore,
    sessions::{
        self, Message, NewMessage, Part, Role, archive::Retain, context::ContextStats, message::ToolPart, tokens,
    },
    wire::{
        given,
        shapes::CommitShape,
        tools::{self, Call, Session, ToolFailure},
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Shorter queries recall nothing.
const MIN_QUERY_CHARS: usize = 5;
/// Queries are truncated to this length.
const MAX_QUERY_CHARS: usize = 4000;
/// The default token budget.
const DEFAULT_BUDGET: u64 = 128_000;
/// Share of the budget reserved for the response; for budgets from 40,000 tokens on, at most [`RESERVED_MOST`] tokens.
const RESERVED_SHARE: f64 = 0.15;
const RESERVED_MOST: u64 = 20_000;

/// Removes the blocks that earlier recalls inserted, and a leading timestamp.
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

/// A message of a turn, as the agent's host sends it.
#[derive(Debug, Clone, Deserialize)]
pub struct TurnMessage {
    #[serde(default = "user")]
    role: String,
    parts: Option<Vec<Value>>,
    text: Option<String>,
    content: Option<String>,
    created_at: Option<String>,
}

fn user() -> String {
    Role::User.as_str().to_owned()
}

impl TurnMessage {
    fn message(&self, config: &ContextConfig, peer: Option<&String>) -> Result<NewMessage, ToolFailure> {
        let role = Role::parse(&self.role)?;
        let parts = match (&self.parts, self.text.as_ref().or(self.content.as_ref())) {
            (Some(parts), _) => parts.iter().map(given::part).collect::<crate::error::Result<Vec<_>>>()?,
            (None, Some(text)) => vec![Part::text(sanitized(text))],
            (None, None) => return Err(ToolFailure::argument("each message has parts, text or content")),
        };
        let speaks =
            matches!((config.peer_role, role), (PeerRole::Assistant, Role::Assistant) | (PeerRole::Person, Role::User));
        let peer_id = peer.filter(|_| speaks).cloned();
        Ok(NewMessage { role, parts, peer_id, created_at: self.created_at.clone(), remember: false })
    }
}

/// The reason reported for a bypassed session.
const BYPASSED: &str = "session_bypassed";

/// The result of capturing a turn.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Captured {
    captured: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ov_session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<CommitShape>,
}

/// Stores the messages of a turn, and archives the session when it exceeds its share of the budget.
pub fn capture(
    store: &Arc<ContextStore>,
    session: &Session,
    messages: &[TurnMessage],
    budget: Option<u64>,
) -> Result<Captured, ToolFailure> {
    let config = store.config();
    if tools::is_bypassed(config, session) {
        return Ok(Captured { reason: Some(BYPASSED), ..Captured::default() });
    }
    let id = session.ov_id().ok_or_else(no_session)?;
    let who = store.identity_in(session, None);
    let account = store.account(&who)?;
    let peer = session.peer(config)?;
    let mut pending = 0;
    for message in messages {
        let new = message.message(config, peer.as_ref())?;
        pending = sessions::add_message(&account, &who, &id, &new)?.pending_tokens;
    }
    let threshold = (budget.unwrap_or(DEFAULT_BUDGET) as f64 * config.commit_token_threshold_ratio).floor() as u64;
    let commit = if !messages.is_empty() && pending >= threshold {
        let commit = store.commit(&who, &id, Retain::last(config.commit_keep_recent_count), false)?;
        Some(CommitShape::new(commit, false, false))
    } else {
        None
    };
    Ok(Captured {
        captured: messages.len(),
        reason: None,
        ov_session_id: Some(id),
        pending_tokens: Some(pending),
        commit,
    })
}

fn no_session() -> ToolFailure {
    ToolFailure::argument("openviking: need sessionId or sessionKey for OV session path")
}

/// A message in the form for models.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
enum Turn {
    /// A text message.
    Said { role: &'static str, content: String },
    /// A tool call.
    #[serde(rename_all = "camelCase")]
    Call { role: &'static str, tool_call: ToolCall },
    /// The result of the preceding call.
    #[serde(rename_all = "camelCase")]
    Result { role: &'static str, tool_call_id: String, content: String, is_error: bool },
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct ToolCall {
    id: String,
    name: String,
    input: Value,
}

/// The context for a model.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Assembled {
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ov_session_id: Option<String>,
    messages: Vec<Turn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_prompt_addition: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<ContextStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recalled_tokens: Option<u64>,
}

/// Assembles the context for a model: the summarised history, the live messages, and memories relevant to the prompt.
/// `prompt` is the user's new message.
pub fn assemble(
    store: &Arc<ContextStore>,
    session: &Session,
    prompt: Option<&str>,
    budget: Option<u64>,
) -> Result<Assembled, ToolFailure> {
    let config = store.config();
    let prompt_text = prompt.map(str::to_owned);
    if tools::is_bypassed(config, session) {
        return Ok(Assembled { reason: BYPASSED, prompt: prompt_text, ..Assembled::default() });
    }
    let id = session.ov_id().ok_or_else(no_session)?;
    let who = store.identity_in(session, session.peer(config)?);
    let account = store.account(&who)?;
    let budget = budget.unwrap_or(DEFAULT_BUDGET);
    let reserved = ((budget as f64 * RESERVED_SHARE) as u64).min(if budget >= 40_000 { RESERVED_MOST } else { budget });
    let mut assembled = match sessions::context(&account, &who, &id, budget.saturating_sub(reserved)) {
        Ok(context) => history(context),
        Err(error) if error.code == Code::NotFound => Assembled { reason: "session_not_found", ..Assembled::default() },
        Err(error) => return Err(error.into()),
    };
    assembled.ov_session_id = Some(id);
    assembled.prompt = prompt_text;
    if let Some(prompt) = prompt {
        let query = sanitized(prompt);
        if config.auto_recall && query.chars().count() >= MIN_QUERY_CHARS && !prompt.contains("<relevant-memories>") {
            let cut: String = query.chars().take(MAX_QUERY_CHARS).collect();
            let args = Map::new();
            let call = Call { store, session, args: &args, who };
            if let Some(block) = tools::memory::auto_recall(&call, &query, &cut)? {
                assembled.recalled_tokens = Some(tokens(&block).ceil() as u64);
                assembled.prompt = Some(format!("{block}\n\n{prompt}"));
            }
        }
    }
    Ok(assembled)
}

/// The summarised history of a session, and its live messages.
fn history(context: sessions::Context) -> Assembled {
    let mut assembled = Assembled {
        estimated_tokens: Some(context.estimated_tokens),
        stats: Some(context.stats),
        ..Assembled::default()
    };
    if !context.latest_archive_overview.is_empty() {
        let content = format!("[Session History Summary]\n{}", context.latest_archive_overview);
        assembled.messages.push(Turn::Said { role: Role::User.as_str(), content });
        assembled.system_prompt_addition = Some(
            "Earlier messages were archived. Find details in them with ov_archive_search and read them with ov_archive_expand.",
        );
    }
    assembled.messages.extend(context.messages.iter().flat_map(turns));
    assembled.reason = if assembled.messages.is_empty() { "no_ov_data" } else { "assembled" };
    assembled
}

/// Converts a stored message for a model: text, then each tool call followed by its result.
fn turns(message: &Message) -> Vec<Turn> {
    let role = message.role.as_str();
    let mut out = Vec::new();
    let mut text: Vec<&str> = Vec::new();
    for part in &message.parts {
        match part {
            Part::Tool(tool) => {
                if !text.is_empty() {
                    out.push(Turn::Said { role, content: text.join("\n") });
                    text.clear();
                }
                out.extend(tool_turns(tool));
            }
            Part::Text { text: said } => text.push(said),
            Part::Context(context) => text.push(&context.abstract_),
            Part::Image(_) => {}
        }
    }
    if !text.is_empty() {
        out.push(Turn::Said { role, content: text.join("\n") });
    }
    out
}

fn tool_turns(tool: &ToolPart) -> [Turn; 2] {
    let mut content = tool.tool_output.clone();
    if let Some(kept) = &tool.kept {
        content.push_str(&format!("\n[tool-result-ref] {} original_chars={}", kept.reference, kept.original_chars));
    }
    let call = ToolCall { id: tool.tool_id.clone(), name: tool.tool_name.clone(), input: tool.tool_input.clone() };
    [
        Turn::Call { role: Role::Assistant.as_str(), tool_call: call },
        Turn::Result {
            role: "toolResult",
            tool_call_id: tool.tool_id.clone(),
            content,
            is_error: tool.tool_status == "error",
        },
    ]
}

/// The result of compacting a session.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Compacted {
    ok: bool,
    compacted: bool,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Compaction>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Compaction {
    summary: String,
    first_kept_entry_id: String,
    tokens_before: u64,
    tokens_after: u64,
    details: CompactionDetails,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CompactionDetails {
    archive_uri: String,
}

/// Archives all messages and reports the result.
pub fn compact(store: &Arc<ContextStore>, session: &Session) -> Result<Compacted, ToolFailure> {
    let nothing = |ok: bool, reason: &'static str| Ok(Compacted { ok, compacted: false, reason, result: None });
    if tools::is_bypassed(store.config(), session) {
        return nothing(true, BYPASSED);
    }
    let id = session.ov_id().ok_or_else(no_session)?;
    let who = store.identity_in(session, None);
    let account = store.account(&who)?;
    let before = match sessions::describe(&account, &who, &id) {
        Ok(session) => session.pending_tokens,
        Err(error) if error.code == Code::NotFound => return nothing(false, "session_not_found"),
        Err(error) => return Err(error.into()),
    };
    let Some(made) = store.commit(&who, &id, Retain::default(), true)?.archive else {
        return nothing(true, "commit_no_archive");
    };
    let name = made.uri.rsplit('/').next().unwrap_or_default();
    let overview = sessions::archive(&account, &who, &id, name)?.overview;
    let result = Compaction {
        tokens_after: tokens(&overview).ceil() as u64,
        summary: overview,
        first_kept_entry_id: name.to_owned(),
        tokens_before: before,
        details: CompactionDetails { archive_uri: made.uri.clone() },
    };
    Ok(Compacted { ok: true, compacted: true, reason: "commit_completed", result: Some(result) })
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
        let tool = ToolPart {
            tool_id: "c1".into(),
            tool_name: "Run".into(),
            tool_output: "out".into(),
            tool_status: "error".into(),
            ..ToolPart::default()
        };
        let message = Message {
            role: Role::Assistant,
            parts: vec![Part::text("I look."), Part::Tool(Box::new(tool))],
            ..Message::default()
        };
        let turns = turns(&message);
        assert_eq!(turns.len(), 3);
        assert!(matches!(&turns[1], Turn::Call { tool_call, .. } if tool_call.id == "c1"), "{turns:?}");
        assert!(matches!(&turns[2], Turn::Result { tool_call_id, is_error: true, .. } if tool_call_id == "c1"));
    }
}
