//! Conversations. Live messages are appended line by line and are durable before they are acknowledged.

pub(crate) mod archive;
pub(crate) mod autocommit;
pub mod context;
pub(crate) mod externalise;
pub(crate) mod jsonl;
pub mod message;
pub(crate) mod model;
pub(crate) mod tasks;
pub(crate) mod writer;

use crate::{
    error::{ApiError, Code, Details, Result},
    store::{
        account::{Account, lock},
        disk::{self, Durability},
        uri::{Identity, StorePath},
    },
};
pub use context::{Archive, Context, archive, context};
use jiff::Timestamp;
pub use message::{Message, NewMessage, Part, Role};
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

/// Maximum length of a session id, in bytes.
const MAX_ID_BYTES: usize = 200;
/// Maximum size of a message as JSON, before large outputs are moved to files.
pub const MAX_MESSAGE_BYTES: usize = 32 << 20;
/// Maximum number of sessions in memory; beyond it, unused sessions are evicted.
const MAX_HELD: usize = 256;

/// Sessions by user and id.
type SessionMap = HashMap<(String, String), Arc<Mutex<Session>>>;

/// The sessions of an account that are in memory.
#[derive(Default)]
pub struct Sessions {
    held: Mutex<SessionMap>,
}

/// Metadata of a session.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Meta {
    pub(crate) created_at: String,
    pub(crate) commit_count: u64,
    pub(crate) archived_messages: u64,
    pub(crate) memories_extracted: HashMap<String, u64>,
    pub(crate) last_commit_at: String,
    pub(crate) keep_recent_count: u64,
    /// Number of turns to keep live, for a session committed with a budget of turns.
    pub(crate) keep_recent_turn_count: u64,
    pub(crate) retention_mode: String,
    pub(crate) auto_commit: Option<crate::sessions::autocommit::AutoCommit>,
    pub(crate) last_auto_commit_at: String,
    /// Archives up to this number are excluded from the context, which was reset after them.
    pub(crate) reset_after: u64,
}

/// One session.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) exists: bool,
    pub(crate) meta: Meta,
    pub(crate) messages: Vec<Message>,
    pub(crate) pending_tokens: u64,
}

/// Estimated number of tokens, by the formula of OpenViking.
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

/// Checks that an id can name a session: it must not leave the folder or be ambiguous.
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

pub(crate) fn place(who: &Identity, id: &str) -> StorePath {
    who.home().child("sessions").child(id)
}

/// The error for an unknown session.
pub(crate) fn unknown(id: &str) -> ApiError {
    ApiError::none_such(format!("Session {id} not found"))
}

impl Session {
    fn load(account: &Account, who: &Identity, id: &str) -> Result<Self> {
        let folder = account.path(&place(who, id));
        if disk::look(&folder)?.is_none() {
            return Ok(Self::default());
        }
        let meta = match disk::read_if_there(&folder.join(".meta.json"))? {
            None => Meta::default(),
            Some(text) => serde_json::from_str(&text).unwrap_or_else(|error| {
                tracing::warn!(%error, session = id, "the metadata of a session cannot be read; its messages are used without it");
                Meta::default()
            }),
        };
        let text = disk::read_if_there(&folder.join("messages.jsonl"))?.unwrap_or_default();
        let mut messages: Vec<Message> = jsonl::parse(&text);
        externalise::rename_references(&mut messages);
        // A crash between archiving and clearing leaves messages in both files; they count as archived.
        if let Some(last) = archives(account, who, id)?.last() {
            let path = folder.join("history").join(last).join("messages.jsonl");
            let archived: Vec<Message> = jsonl::parse(&disk::read_if_there(&path)?.unwrap_or_default());
            let ids: HashSet<&str> = archived.iter().map(|message| message.id.as_str()).collect();
            messages.retain(|message| message.id.is_empty() || !ids.contains(message.id.as_str()));
        }
        let pending_tokens = messages.iter().map(Message::tokens).sum();
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
        let text = serde_json::to_vec(&self.meta)?;
        Ok(disk::write(&folder.join(".meta.json"), &text, Durability::Durable)?)
    }
}

/// The names of a session's archives, oldest first.
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

/// The name of the next archive.
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

    /// Removes from memory the sessions below a place that another node changed.
    pub(crate) fn forget(&self, names: &[String]) {
        let (user, id) = (names.get(1), names.get(3));
        lock(&self.held).retain(|(held_user, held_id), _| {
            user.is_some_and(|user| user != held_user) || id.is_some_and(|id| id != held_id)
        });
    }

    /// Removes a deleted session from memory.
    pub(crate) fn drop_held(&self, who: &Identity, id: &str) {
        lock(&self.held).remove(&(who.user.clone(), id.to_owned()));
    }
}

/// Creates a session.
pub fn create(account: &Account, who: &Identity, id: &str) -> Result<()> {
    let session = account.sessions.open(account, who, id)?;
    let mut session = lock(&session);
    if session.exists {
        let details = Details { kind: Some("session"), resource: Some(id.to_owned()), ..Details::default() };
        return Err(ApiError::new(Code::AlreadyExists, format!("Session {id} already exists")).with(details));
    }
    session.create(account, who, id)
}

/// Converts a message to its stored form.
fn stored(who: &Identity, new: &NewMessage) -> Result<Message> {
    if let Some(peer) = &new.peer_id {
        Identity::new(&who.account, &who.user, Some(peer))?;
    }
    let message = Message {
        id: format!("msg_{}", uuid::Uuid::new_v4().simple()),
        role: new.role,
        parts: new.parts.clone(),
        created_at: new.created_at.clone().unwrap_or_else(now_micros),
        peer_id: new.peer_id.clone(),
        remember: new.remember,
    };
    if jsonl::lines(std::slice::from_ref(&message))?.len() > MAX_MESSAGE_BYTES {
        return Err(ApiError::new(Code::ResourceExhausted, format!("a message has at most {MAX_MESSAGE_BYTES} bytes")));
    }
    Ok(message)
}

/// The state of a session after messages were added.
#[derive(Debug, Clone, Serialize)]
pub struct AddedMessages {
    /// The session id.
    pub session_id: String,
    /// Number of live messages.
    pub message_count: usize,
    /// Tokens of the live messages.
    pub pending_tokens: u64,
}

/// Adds a message and creates the session if it does not exist.
pub fn add_message(account: &Account, who: &Identity, id: &str, new: &NewMessage) -> Result<AddedMessages> {
    add_messages(account, who, id, std::slice::from_ref(new))
}

/// Adds several messages in order, or none if one is invalid.
pub fn add_messages(account: &Account, who: &Identity, id: &str, new: &[NewMessage]) -> Result<AddedMessages> {
    let mut messages = new.iter().map(|new| stored(who, new)).collect::<Result<Vec<_>>>()?;
    let session = account.sessions.open(account, who, id)?;
    let mut session = lock(&session);
    if !session.exists {
        session.create(account, who, id)?;
    }
    for message in &mut messages {
        externalise::outputs(account, who, id, message)?;
    }
    let lines = jsonl::lines(&messages)?;
    disk::append(&account.path(&place(who, id)).join("messages.jsonl"), lines.as_bytes())?;
    session.pending_tokens += messages.iter().map(Message::tokens).sum::<u64>();
    session.messages.extend(messages);
    Ok(AddedMessages {
        session_id: id.to_owned(),
        message_count: session.messages.len(),
        pending_tokens: session.pending_tokens,
    })
}

/// The current time with microseconds and offset, as the original server writes it.
pub(crate) fn now_micros() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string()
}

/// Information about a session.
pub(crate) struct Description {
    pub(crate) meta: Meta,
    pub(crate) message_count: usize,
    pub(crate) pending_tokens: u64,
    pub(crate) last_message_at: String,
    pub(crate) updated_at: String,
}

/// Information about an existing session.
pub(crate) fn describe(account: &Account, who: &Identity, id: &str) -> Result<Description> {
    let session = account.sessions.open(account, who, id)?;
    let session = lock(&session);
    if !session.exists {
        return Err(unknown(id));
    }
    let updated_at = disk::look(&account.path(&place(who, id)).join("messages.jsonl"))?
        .map_or_else(|| session.meta.created_at.clone(), |found| crate::store::fs::millis(found.modified));
    Ok(Description {
        meta: session.meta.clone(),
        message_count: session.messages.len(),
        pending_tokens: session.pending_tokens,
        last_message_at: session.messages.last().map(|message| message.created_at.clone()).unwrap_or_default(),
        updated_at,
    })
}

/// A session in a list.
pub(crate) struct ListedSession {
    pub(crate) id: String,
    pub(crate) place: StorePath,
    pub(crate) modified: Timestamp,
}

/// The caller's sessions, newest first.
pub(crate) fn list(account: &Account, who: &Identity) -> Result<Vec<ListedSession>> {
    let root = who.home().child("sessions");
    let mut all = disk::list(&account.path(&root))?;
    all.retain(|found| found.is_folder);
    all.sort_by_key(|found| std::cmp::Reverse(found.modified));
    let listed = all.into_iter().map(|found| ListedSession {
        place: root.child(&found.name),
        id: found.name,
        modified: found.modified,
    });
    Ok(listed.collect())
}

/// Deletes a session with its archives.
pub fn delete(account: &Account, who: &Identity, id: &str) -> Result<()> {
    let session = account.sessions.open(account, who, id)?;
    let mut session = lock(&session);
    if !session.exists {
        return Err(unknown(id));
    }
    account.take_away(&place(who, id))?;
    *session = Session::default();
    account.sessions.drop_held(who, id);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
