//! Conversations: live messages, appended one line at a time and durable before they are acknowledged.

pub(crate) mod archive;
pub(crate) mod autocommit;
pub(crate) mod externalise;
pub(crate) mod jsonl;
pub(crate) mod model;
pub(crate) mod tasks;
pub(crate) mod writer;

use crate::{
    error::{ApiError, Code, Result},
    store::{
        account::{Account, lock},
        disk::{self, Keep},
        uri::{Identity, Place},
    },
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex},
};

/// A session's id is at most this long.
const MAX_ID_BYTES: usize = 200;
/// A message is at most this long, as JSON, before its large outputs are taken out.
pub const MAX_MESSAGE_BYTES: usize = 32 << 20;
/// Sessions held in memory; beyond it, those nobody uses are let go.
const MAX_HELD: usize = 1024;
/// Who may speak.
const ROLES: [&str; 4] = ["user", "assistant", "system", "tool"];

/// By user and id.
type Held = HashMap<(String, String), Arc<Mutex<Session>>>;

/// The sessions of an account that are in memory.
#[derive(Default)]
pub struct Sessions {
    held: Mutex<Held>,
}

/// What is noted about a session beside its messages.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Meta {
    pub(crate) created_at: String,
    pub(crate) commit_count: u64,
    pub(crate) archived_messages: u64,
    pub(crate) memories_extracted: HashMap<String, u64>,
    pub(crate) last_commit_at: String,
    pub(crate) keep_recent_count: u64,
    /// Messages that were committed with a budget of turns keep so many turns.
    pub(crate) keep_recent_turn_count: u64,
    pub(crate) retention_mode: String,
    pub(crate) auto_commit: Option<crate::sessions::autocommit::AutoCommit>,
    pub(crate) last_auto_commit_at: String,
    /// Archives up to this number are history: the context began anew after them.
    pub(crate) reset_after: u64,
}

/// One session.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) exists: bool,
    pub(crate) meta: Meta,
    pub(crate) messages: Vec<Value>,
    pub(crate) pending_tokens: u64,
}

/// Tokens of a text, as the contract estimates them.
pub fn tokens(text: &str) -> f64 {
    text.chars()
        .map(|c| match c as u32 {
            0x3040..=0x30ff
            | 0x3400..=0x4dbf
            | 0x4e00..=0x9fff
            | 0xac00..=0xd7af
            | 0xf900..=0xfaff
            | 0x20000..=0x3134f => 1.5,
            0x10000.. => 2.0,
            _ => 0.25,
        })
        .sum()
}

/// Tokens of a message.
pub(crate) fn message_tokens(message: &Value) -> u64 {
    let Some(parts) = message["parts"].as_array() else { return 0 };
    let sum: f64 = parts
        .iter()
        .map(|part| {
            let words = ["text", "abstract", "tool_name", "tool_output"]
                .iter()
                .map(|key| part[*key].as_str().map_or(0.0, tokens))
                .sum::<f64>();
            words + part.get("tool_input").filter(|i| !i.is_null()).map_or(0.0, |input| tokens(&jsonl::line(input)))
        })
        .sum();
    sum.ceil() as u64
}

/// Whether an id can name a session. What could leave the folder, or be read in two ways, cannot.
pub fn check_id(id: &str) -> Result<()> {
    let bad = id.is_empty()
        || id.len() > MAX_ID_BYTES
        || id.starts_with('.')
        || id.chars().any(|c| c.is_control() || matches!(c, '/' | '\\' | ':' | '<' | '>' | '"' | '|' | '?' | '*'));
    if bad {
        let shown: String = id.chars().take(80).collect();
        return Err(ApiError::argument(format!(
            "Invalid session id {shown:?}: 1 to {MAX_ID_BYTES} bytes without / \\ : < > \" | ? * or control characters"
        )));
    }
    Ok(())
}

pub(crate) fn place(who: &Identity, id: &str) -> Place {
    who.home().child("sessions").child(id)
}

/// The error for a session nobody began.
pub(crate) fn unknown(id: &str) -> ApiError {
    ApiError::none_such(format!("Session {id} not found"))
}

impl Session {
    fn load(account: &Account, who: &Identity, id: &str) -> Result<Self> {
        let folder = account.path(&place(who, id));
        if disk::look(&folder)?.is_none() {
            return Ok(Self::default());
        }
        let meta = disk::read_text(&folder.join(".meta.json")).ok();
        let meta = meta.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let text = disk::read_text(&folder.join("messages.jsonl")).unwrap_or_default();
        let mut messages = jsonl::parse(&text);
        // A crash between archiving and clearing leaves messages in both; they are archived.
        if let Some(last) = archives(account, who, id)?.last() {
            let archived =
                disk::read_text(&folder.join("history").join(last).join("messages.jsonl")).unwrap_or_default();
            let ids: HashSet<String> =
                jsonl::parse(&archived).iter().filter_map(|m| m["id"].as_str().map(str::to_owned)).collect();
            messages.retain(|m| m["id"].as_str().is_none_or(|id| !ids.contains(id)));
        }
        let pending_tokens = messages.iter().map(message_tokens).sum();
        Ok(Self { exists: true, meta, messages, pending_tokens })
    }

    pub(crate) fn create(&mut self, account: &Account, who: &Identity, id: &str) -> Result<()> {
        let folder = account.path(&place(who, id));
        disk::make_folders(&folder)?;
        self.meta = Meta { created_at: crate::store::fs::millis(Timestamp::now()), ..Meta::default() };
        self.save(&folder)?;
        self.exists = true;
        Ok(())
    }

    pub(crate) fn save(&self, folder: &std::path::Path) -> Result<()> {
        let text = serde_json::to_vec(&self.meta).unwrap_or_default();
        Ok(disk::write(&folder.join(".meta.json"), &text, Keep::Durable)?)
    }
}

/// A session's archives by name, the oldest first.
pub(crate) fn archives(account: &Account, who: &Identity, id: &str) -> Result<Vec<String>> {
    let folder = account.path(&place(who, id)).join("history");
    if disk::look(&folder)?.is_none() {
        return Ok(Vec::new());
    }
    let mut names: Vec<String> = disk::list(&folder)?
        .into_iter()
        .filter(|found| found.is_folder && found.name.starts_with("archive_"))
        .map(|found| found.name)
        .collect();
    names.sort_by_key(|name| number(name));
    Ok(names)
}

/// The number in an archive's name.
pub(crate) fn number(archive: &str) -> u64 {
    archive.trim_start_matches("archive_").parse().unwrap_or_default()
}

/// The name of the archive after these.
pub(crate) fn next_archive(archives: &[String]) -> String {
    format!("archive_{:03}", archives.last().map_or(0, |last| number(last)) + 1)
}

impl Sessions {
    /// A session, from memory or disk. It may not exist yet.
    pub(crate) fn open(&self, account: &Account, who: &Identity, id: &str) -> Result<Arc<Mutex<Session>>> {
        check_id(id)?;
        let key = (who.user.clone(), id.to_owned());
        let mut held = lock(&self.held);
        if let Some(session) = held.get(&key) {
            return Ok(session.clone());
        }
        if held.len() >= MAX_HELD {
            held.retain(|_, session| Arc::strong_count(session) > 1);
        }
        let session = Arc::new(Mutex::new(Session::load(account, who, id)?));
        held.insert(key, session.clone());
        Ok(session)
    }

    /// Lets go of a session that was removed.
    pub(crate) fn drop_held(&self, who: &Identity, id: &str) {
        lock(&self.held).remove(&(who.user.clone(), id.to_owned()));
    }
}

/// `POST /sessions`.
pub fn create(account: &Account, who: &Identity, id: &str) -> Result<Value> {
    let session = account.sessions.open(account, who, id)?;
    let mut session = lock(&session);
    if session.exists {
        return Err(ApiError::new(Code::AlreadyExists, format!("Session {id} already exists"))
            .with(json!({"resource": id, "type": "session"})));
    }
    session.create(account, who, id)?;
    Ok(json!({
        "session_id": id, "uri": place(who, id).to_string(),
        "user": {"account_id": who.account, "user_id": who.user},
        "auto_commit_policy": null, "memory_extraction_config": {"events": {"tags": []}},
    }))
}

/// A message as it comes in.
#[derive(Debug, Clone, Default)]
pub struct NewMessage {
    /// Who speaks.
    pub role: String,
    /// Text, tool calls, context.
    pub parts: Vec<Value>,
    /// Which peer speaks or is spoken of.
    pub peer_id: Option<String>,
    /// When; now if unset.
    pub created_at: Option<String>,
}

/// Brings a part into the stored form.
fn stored_part(part: &Value) -> Result<Value> {
    let bad = |why: &str| Err(ApiError::argument(format!("Invalid message part: {why}")));
    let Some(map) = part.as_object() else { return bad("each part is an object") };
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    match map.get("type").and_then(Value::as_str).unwrap_or("text") {
        "text" => Ok(json!({"type": "text", "text": text("text")})),
        "context" => Ok(json!({
            "type": "context", "uri": text("uri"), "context_type": text("context_type"), "abstract": text("abstract"),
        })),
        "tool" => {
            let status = map.get("tool_status").and_then(Value::as_str).unwrap_or("completed");
            let mut stored = Map::new();
            stored.insert("type".to_owned(), "tool".into());
            for key in ["tool_id", "tool_name", "tool_uri", "skill_uri"] {
                stored.insert(key.to_owned(), text(key).into());
            }
            stored.insert("tool_status".to_owned(), status.into());
            stored.insert("tool_input".to_owned(), map.get("tool_input").cloned().unwrap_or(Value::Null));
            let output = match map.get("tool_output") {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(output)) => output.clone(),
                Some(other) => other.to_string(),
            };
            stored.insert("tool_output".to_owned(), output.into());
            Ok(Value::Object(stored))
        }
        "image" => Ok(part.clone()),
        other => bad(&format!("type {other:?} is none of text, context, tool, image")),
    }
}

/// A message in the stored form.
fn stored(who: &Identity, new: &NewMessage) -> Result<Value> {
    if !ROLES.contains(&new.role.as_str()) {
        return Err(ApiError::argument(format!("Invalid role {:?}: use one of {}", cut(&new.role), ROLES.join(", "))));
    }
    let parts = new.parts.iter().map(stored_part).collect::<Result<Vec<_>>>()?;
    if let Some(peer) = &new.peer_id {
        Identity::new(&who.account, &who.user, Some(peer))?;
    }
    let mut message = json!({
        "id": format!("msg_{}", uuid::Uuid::new_v4().simple()), "role": new.role, "parts": parts,
        "created_at": new.created_at.clone().unwrap_or_else(now_micros),
    });
    if let Some(peer) = &new.peer_id {
        message["peer_id"] = peer.as_str().into();
    }
    if jsonl::line(&message).len() > MAX_MESSAGE_BYTES {
        return Err(ApiError::new(Code::ResourceExhausted, format!("a message has at most {MAX_MESSAGE_BYTES} bytes")));
    }
    Ok(message)
}

/// Adds a message. A session that does not exist is begun.
pub fn add_message(account: &Account, who: &Identity, id: &str, new: &NewMessage) -> Result<Value> {
    add_messages(account, who, id, std::slice::from_ref(new))
}

/// Adds several messages, one after the other; none if something is wrong with one.
pub fn add_messages(account: &Account, who: &Identity, id: &str, new: &[NewMessage]) -> Result<Value> {
    let mut messages = new.iter().map(|new| stored(who, new)).collect::<Result<Vec<_>>>()?;
    let session = account.sessions.open(account, who, id)?;
    let mut session = lock(&session);
    if !session.exists {
        session.create(account, who, id)?;
    }
    for message in &mut messages {
        externalise::outputs(account, who, id, message)?;
    }
    let lines: String = messages.iter().map(|message| jsonl::line(message) + "\n").collect();
    disk::append(&account.path(&place(who, id)).join("messages.jsonl"), lines.as_bytes())?;
    session.pending_tokens += messages.iter().map(message_tokens).sum::<u64>();
    session.messages.extend(messages);
    Ok(json!({
        "session_id": id, "message_count": session.messages.len(), "pending_tokens": session.pending_tokens,
    }))
}

fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Now, with microseconds and a zone, as the original writes it.
pub(crate) fn now_micros() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string()
}

/// `GET /sessions/{id}`.
pub fn describe(account: &Account, who: &Identity, id: &str) -> Result<Value> {
    let session = account.sessions.open(account, who, id)?;
    let session = lock(&session);
    if !session.exists {
        return Err(unknown(id));
    }
    let meta = &session.meta;
    let last = session.messages.last().and_then(|m| m["created_at"].as_str()).unwrap_or_default();
    let updated = disk::look(&account.path(&place(who, id)).join("messages.jsonl"))?
        .map_or_else(|| meta.created_at.clone(), |found| crate::store::fs::millis(found.modified));
    let total: u64 = meta.memories_extracted.values().sum();
    let mut extracted = json!({"total": total});
    for (category, count) in &meta.memories_extracted {
        extracted[category] = (*count).into();
    }
    Ok(json!({
        "session_id": id, "created_at": meta.created_at, "updated_at": updated,
        "created_by_account_id": who.account, "created_by_user_id": who.user,
        "message_count": session.messages.len(), "commit_count": meta.commit_count,
        "memories_extracted": extracted, "last_commit_at": meta.last_commit_at,
        "llm_token_usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "cached_tokens": 0, "reasoning_tokens": 0},
        "embedding_token_usage": {"total_tokens": 0}, "pending_tokens": session.pending_tokens,
        "keep_recent_count": meta.keep_recent_count, "retention_mode": meta.retention_mode,
        "keep_recent_turn_count": meta.keep_recent_turn_count,
        "retained_message_token_budget": 0, "min_raw_tail_steps": 1, "memory_policy": null,
        "auto_commit_policy": meta.auto_commit, "last_message_at": last, "last_auto_commit_at": meta.last_auto_commit_at, "last_idle_commit_accepted_at": "",
        "total_message_count": meta.archived_messages + session.messages.len() as u64,
        "uri": place(who, id).to_string(), "user": {"account_id": who.account, "user_id": who.user},
        "memory_extraction_config": {"events": {"tags": []}},
    }))
}

/// `GET /sessions`: the newest first.
pub fn list(account: &Account, who: &Identity) -> Result<Value> {
    let root = who.home().child("sessions");
    let mut all = disk::list(&account.path(&root))?;
    all.retain(|found| found.is_folder);
    all.sort_by_key(|found| std::cmp::Reverse(found.modified));
    Ok(all
        .iter()
        .map(|found| {
            json!({
                "session_id": found.name, "uri": root.child(&found.name).to_string(), "is_dir": true,
                "mod_time": found.modified.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            })
        })
        .collect())
}

/// `DELETE /sessions/{id}`.
pub fn delete(account: &Account, who: &Identity, id: &str) -> Result<Value> {
    let session = account.sessions.open(account, who, id)?;
    let mut session = lock(&session);
    if !session.exists {
        return Err(unknown(id));
    }
    account.take_away(&place(who, id))?;
    *session = Session::default();
    account.sessions.drop_held(who, id);
    Ok(json!({"session_id": id}))
}

/// The folder of an archive, if it is there.
pub(crate) fn archive_folder(account: &Account, who: &Identity, id: &str, archive: &str) -> Result<PathBuf> {
    check_id(id)?;
    let missing = || ApiError::none_such(format!("Archive {archive} not found"));
    let fits = archive.len() < 40
        && archive.strip_prefix("archive_").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    if !fits {
        return Err(missing());
    }
    let folder = account.path(&place(who, id)).join("history").join(archive);
    if disk::look(&folder)?.is_some_and(|found| found.is_folder) { Ok(folder) } else { Err(missing()) }
}

/// `GET /sessions/{id}/archives/{archive}`: also while it is still being summarised.
pub fn archive(account: &Account, who: &Identity, id: &str, archive: &str) -> Result<Value> {
    let folder = archive_folder(account, who, id, archive)?;
    let text = |name: &str| {
        disk::read_text(&folder.join(name)).map(|text| crate::store::layers::body(&text).to_owned()).unwrap_or_default()
    };
    let messages = jsonl::parse(&disk::read_text(&folder.join("messages.jsonl"))?);
    Ok(json!({
        "archive_id": archive, "abstract": text(crate::store::layers::ABSTRACT), "overview": text(crate::store::layers::OVERVIEW),
        "messages": messages,
    }))
}

/// Tool calls and results of one id that stand in different messages; they come or go together.
fn pairs(messages: &[Value]) -> Vec<Vec<String>> {
    messages
        .iter()
        .map(|message| {
            let parts = message["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
            parts
                .iter()
                .filter(|part| part["type"] == "tool")
                .filter_map(|part| part["tool_id"].as_str().filter(|id| !id.is_empty()).map(str::to_owned))
                .collect()
        })
        .collect()
}

/// The first message that is kept so that the rest fits, without tearing a call from its result.
fn first_kept(messages: &[Value], budget: u64) -> usize {
    let mut used = 0;
    let mut first = messages.len();
    for (at, message) in messages.iter().enumerate().rev() {
        used += message_tokens(message);
        if used > budget {
            break;
        }
        first = at;
    }
    let ids = pairs(messages);
    while first < messages.len() {
        let dropped: HashSet<&String> = ids[..first].iter().flatten().collect();
        if first == 0 || !ids[first..].iter().flatten().any(|id| dropped.contains(id)) {
            break;
        }
        // The last kept message that shares an id with a dropped one goes too, and all before it.
        let last = (first..messages.len()).rev().find(|at| ids[*at].iter().any(|id| dropped.contains(id)));
        first = last.map_or(messages.len(), |at| at + 1);
    }
    first
}

/// `GET /sessions/{id}/context`: the newest archive's overview, abstracts of those before, live messages; within a
/// budget, the newest first.
pub fn context(account: &Account, who: &Identity, id: &str, budget: u64) -> Result<Value> {
    let session = account.sessions.open(account, who, id)?;
    let session = lock(&session);
    if !session.exists {
        return Err(unknown(id));
    }
    let mut names = archives(account, who, id)?;
    names.retain(|name| number(name) > session.meta.reset_after);
    let first = first_kept(&session.messages, budget);
    let messages = &session.messages[first..];
    let active: u64 = messages.iter().map(message_tokens).sum();
    let mut left = budget.saturating_sub(active);
    let history = account.path(&place(who, id)).join("history");
    let told = |name: &str, file: &str| {
        disk::read_text(&history.join(name).join(file))
            .map(|t| crate::store::layers::body(&t).to_owned())
            .unwrap_or_default()
    };
    let (mut overview, mut abstracts, mut included) = (String::new(), Vec::new(), 0);
    let mut archive_tokens = 0;
    for (back, name) in names.iter().rev().enumerate() {
        let text = told(name, if back == 0 { crate::store::layers::OVERVIEW } else { crate::store::layers::ABSTRACT });
        let cost = tokens(&text).ceil() as u64;
        if cost > left || text.is_empty() {
            if cost > left {
                break;
            }
            continue;
        }
        left -= cost;
        archive_tokens += cost;
        included += 1;
        if back == 0 {
            overview = text;
        } else {
            abstracts.push(json!({"archive_id": name, "abstract": text}));
        }
    }
    abstracts.reverse();
    let failed = names.iter().filter(|n| history.join(n).join(".failed.json").exists()).count();
    Ok(json!({
        "latest_archive_overview": overview, "pre_archive_abstracts": abstracts, "messages": messages,
        "estimatedTokens": active + archive_tokens,
        "stats": {
            "totalArchives": names.len(), "includedArchives": included, "droppedArchives": names.len() - included,
            "failedArchives": failed, "activeTokens": active, "archiveTokens": archive_tokens,
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(n: usize) -> Value {
        json!({"parts": [{"type": "text", "text": "x".repeat(n)}]})
    }
    fn tool(id: &str, n: usize) -> Value {
        json!({"parts": [{"type": "tool", "tool_id": id, "tool_output": "x".repeat(n)}]})
    }

    #[test]
    fn the_oldest_messages_go_first_and_calls_stay_with_their_results() {
        let messages = [text(400), text(400), text(400)];
        assert_eq!(first_kept(&messages, 250), 1);
        assert_eq!(first_kept(&messages, 10_000), 0);
        assert_eq!(first_kept(&messages, 10), 3);
        let torn = [text(400), tool("a", 400), tool("a", 400), text(400)];
        assert_eq!(first_kept(&torn, 200), 3, "the result goes with its call");
        assert_eq!(first_kept(&torn, 300), 1);
    }

    #[test]
    fn tokens_are_estimated_by_script() {
        assert_eq!(tokens("I prefer TypeScript and I ran tcpdump on port 443.").ceil(), 13.0);
        assert_eq!(tokens("記憶"), 3.0);
        assert_eq!(tokens("🙂"), 2.0);
    }

    #[test]
    fn ids_that_could_lead_elsewhere_are_refused() {
        for bad in ["", "a/b:c", "..", ".x", "a\\b", "a\0", &"x".repeat(300)] {
            assert_eq!(check_id(bad).unwrap_err().code, Code::InvalidArgument, "{bad}");
        }
        assert!(check_id("memory-store-1794770476420-hpanbc").is_ok());
        assert!(check_id("__openviking_resource_reason__").is_ok());
    }
}
