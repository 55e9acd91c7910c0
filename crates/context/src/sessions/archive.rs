//! Commits a session: its messages are archived at once. The summary and the memories follow in a second phase, which
//! is completed after a restart, before any request is served, if the process was killed.

use crate::{
    error::{ApiError, Result},
    find::library::SearchRequest,
    sessions::{self, Message, Role, archives, jsonl, next_archive, place, tasks::TaskResult, writer::Writer},
    store::{
        account::{Account, lock},
        digest::collapse,
        disk::{self, Durability},
        layers,
        memory::{Fields, parse_time},
        uri::{Identity, Kind, StorePath},
    },
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use toolyard_recall::{
    extract::{self, Change, Memory, Options, StoredMemory},
    index::{self, Category, LEAF},
};

/// Number of known memories that are compared with a new one.
const COMPARED: usize = 8;
/// Prefix of sessions whose messages somebody asked to remember: OpenViking's plugin creates one session for each
/// memory.
const TOLD_TO_REMEMBER: &str = "memory-store-";

/// The second phase of a commit, to be completed after a restart.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Pending {
    user: String,
    session: String,
    archive: String,
    pub(crate) task: String,
    /// Every message of the session is to be stored as a memory.
    keep_all: bool,
}

impl Pending {
    pub(crate) fn user(&self) -> &str {
        &self.user
    }
    pub(crate) fn session(&self) -> &str {
        &self.session
    }
}

/// Metadata stored with the messages of an archive.
#[derive(Serialize)]
struct ArchiveMeta<'a> {
    session_id: &'a str,
    archive_id: &'a str,
    created_at: String,
    message_count: usize,
    task_id: &'a str,
    first_message_id: Option<&'a str>,
    last_message_id: Option<&'a str>,
    tokens: u64,
}

/// The change to one memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MemoryChange {
    /// The kind of change.
    pub change: MemoryAction,
    /// The memory's file.
    pub uri: String,
    /// The memory's category.
    pub category: String,
}

/// The kind of change to a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MemoryAction {
    /// The memory is new.
    Create,
    /// The memory replaces one that it corrects.
    Replace,
    /// The memory was already known; the repetition is recorded.
    Repeat,
}

impl MemoryAction {
    /// The word for people and models.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Create => "new",
            Self::Replace => "corrected",
            Self::Repeat => "known already",
        }
    }
}

/// The changes that an archive made to memories, stored with it.
#[derive(Serialize)]
struct MemoryDiff<'a> {
    changes: &'a [MemoryChange],
}

/// The result of the second phase of a commit.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Extraction {
    /// The session id.
    pub session_id: String,
    /// The archive; `None` where a crash left nothing to archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive_uri: Option<String>,
    /// Whether there is an archive.
    pub archived: bool,
    /// Number of memories by category, including repetitions.
    pub memories_extracted: BTreeMap<String, u64>,
    /// What the configured language model failed to do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// The change to each memory.
    #[serde(skip)]
    pub changes: Vec<MemoryChange>,
}

/// The result of the first phase.
pub(crate) struct Committed {
    pub(crate) pending: Option<Pending>,
    pub(crate) archive_uri: Option<String>,
    pub(crate) active_tokens: u64,
}

fn marker(account: &Account, pending: &Pending) -> std::path::PathBuf {
    account.folder.join("_system/pending").join(format!("{}.json", pending.task))
}

/// Default number of turns that stay live when a commit asks for a budget of turns.
const KEPT_TURNS: usize = 3;
/// Maximum tokens of the turns that stay live; the newest turn stays regardless of its length.
const KEPT_TOKENS: u64 = 16_000;

/// What a commit leaves live.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retain {
    /// Number of last messages.
    pub messages: usize,
    /// Number of last turns instead of messages, as far as they fit into the token budget. A turn starts with a user
    /// message.
    pub turns: Option<usize>,
    /// Leave no messages and no summary: the context starts empty.
    pub reset: bool,
}

impl Retain {
    /// Keeps the last messages.
    pub fn last(messages: usize) -> Self {
        Self { messages, ..Self::default() }
    }

    /// Keeps whole turns: this many, or the default number.
    pub fn turns(count: Option<usize>) -> Self {
        Self { turns: Some(count.unwrap_or(KEPT_TURNS)), ..Self::default() }
    }

    fn count(&self, messages: &[Message]) -> usize {
        match self.turns {
            _ if self.reset => 0,
            None => self.messages,
            Some(turns) => {
                let (mut kept, mut seen, mut used) = (0, 0, 0);
                for (at, message) in messages.iter().enumerate().rev() {
                    used += message.tokens();
                    if seen >= turns || (used > KEPT_TOKENS && seen > 0) {
                        break;
                    }
                    if message.role == Role::User {
                        seen += 1;
                        kept = messages.len() - at;
                    }
                }
                kept
            }
        }
    }
}

/// Archives all messages except those that stay live. When this returns, the archived messages are durable.
pub(crate) fn commit(account: &Account, who: &Identity, id: &str, retain: Retain, task: &str) -> Result<Committed> {
    let session = account.sessions.open(account, who, id)?;
    let mut session = lock(&session);
    if !session.exists {
        return Err(sessions::unknown(id));
    }
    let keep = retain.count(&session.messages);
    let count = session.messages.len().saturating_sub(keep);
    if count == 0 {
        if retain.reset {
            session.meta.reset_after = archives(account, who, id)?.last().map_or(0, |last| sessions::number(last));
            session.save(&account.path(&place(who, id)))?;
        }
        return Ok(Committed { pending: None, archive_uri: None, active_tokens: session.pending_tokens });
    }
    let names = archives(account, who, id)?;
    let archive = next_archive(&names);
    let pending = Pending {
        user: who.user.clone(),
        session: id.to_owned(),
        archive: archive.clone(),
        task: task.to_owned(),
        keep_all: id.starts_with(TOLD_TO_REMEMBER),
    };
    // The order is: marker, archive, live messages. After a crash the files show which steps are missing.
    disk::write(&marker(account, &pending), &serde_json::to_vec(&pending)?, Durability::Durable)?;
    let folder = account.path(&place(who, id));
    let (archived, kept) = session.messages.split_at(count);
    let staged = account.staging()?;
    toolyard_faults::write(&staged.join("messages.jsonl"), jsonl::lines(archived)?)?;
    let meta = ArchiveMeta {
        session_id: id,
        archive_id: &archive,
        created_at: Timestamp::now().to_string(),
        message_count: count,
        task_id: task,
        first_message_id: archived.first().map(|message| message.id.as_str()),
        last_message_id: archived.last().map(|message| message.id.as_str()),
        tokens: archived.iter().map(Message::tokens).sum(),
    };
    toolyard_faults::write(&staged.join(".meta.json"), serde_json::to_vec(&meta)?)?;
    for name in ["messages.jsonl", ".meta.json"] {
        toolyard_faults::sync_data(&std::fs::File::open(staged.join(name))?)?;
    }
    disk::sync_folder(&staged)?;
    let history = folder.join("history");
    disk::make_folders(&history)?;
    disk::rename(&staged, &history.join(&archive))?;
    disk::sync_folder(&history)?;
    disk::write(&folder.join("messages.jsonl"), jsonl::lines(kept)?.as_bytes(), Durability::Durable)?;
    let kept = kept.to_vec();
    session.pending_tokens = kept.iter().map(Message::tokens).sum();
    session.messages = kept;
    session.meta.commit_count += 1;
    session.meta.archived_messages += count as u64;
    session.meta.keep_recent_count = retain.messages as u64;
    session.meta.keep_recent_turn_count = retain.turns.unwrap_or_default() as u64;
    session.meta.retention_mode = if retain.turns.is_some() { "turn_budget".to_owned() } else { String::new() };
    if retain.reset {
        session.meta.reset_after = sessions::number(&archive);
    }
    session.meta.last_commit_at = crate::store::fs::millis(Timestamp::now());
    session.save(&folder)?;
    let uri = place(who, id).child("history").child(&archive).to_string();
    Ok(Committed { pending: Some(pending), archive_uri: Some(uri), active_tokens: session.pending_tokens })
}

/// The content of a message, and the peer whose memories it belongs to.
struct AttributedText {
    role: Role,
    speaker: Option<String>,
    text: String,
    time_ms: Option<i64>,
    peer: Option<String>,
    /// Somebody asked to remember this.
    stated: bool,
}

fn attributed_text(message: &Message) -> AttributedText {
    AttributedText {
        role: message.role,
        // A role is not a name.
        speaker: message.peer_id.clone().filter(|name| !matches!(name.as_str(), "user" | "assistant")),
        text: message.text(),
        time_ms: parse_time(&message.created_at),
        peer: message.peer_id.clone(),
        stated: message.remember,
    }
}

/// Summarises an archive and extracts memories from it. The operation is idempotent.
pub(crate) fn finish(account: &Account, pending: &Pending, writer: &Writer) -> TaskResult {
    let done = finish_archive(account, pending, writer);
    let ended = match &done {
        Ok(extraction) => TaskResult { result: Some(extraction.clone()), error: None },
        Err(error) => TaskResult { result: None, error: Some(error.message.clone()) },
    };
    if done.is_ok() {
        let path = marker(account, pending);
        let removed = disk::remove_file(&path).and_then(|()| path.parent().map_or(Ok(()), disk::sync_folder));
        if let Err(error) = removed {
            tracing::warn!(%error, "a finished archive is still marked as unfinished");
        }
    }
    ended
}

fn finish_archive(account: &Account, pending: &Pending, writer: &Writer) -> Result<Extraction> {
    let who = Identity::new(&account.name, &pending.user, None)?;
    let home = place(&who, &pending.session).child("history").child(&pending.archive);
    let folder = account.path(&home);
    if disk::look(&folder)?.is_none() {
        // The archive was never moved into place: the messages are still live.
        return Ok(Extraction { session_id: pending.session.clone(), ..Extraction::default() });
    }
    let messages: Vec<Message> = jsonl::parse(&disk::read_text(&folder.join("messages.jsonl"))?);
    let mut all: Vec<AttributedText> = messages.iter().map(attributed_text).collect();
    for content in &mut all {
        content.stated |= pending.keep_all;
    }
    let spoken: Vec<extract::Message<'_>> = all.iter().map(as_message).collect();
    let mut notices = Vec::new();
    let summary = writer.summary(&pending.archive, &spoken, &mut notices);
    for (name, body) in [(layers::OVERVIEW, &summary.overview), (layers::ABSTRACT, &summary.summary)] {
        let text = format!(
            "---\ndirectory: {home}/\ngenerated_by:\n  component: Extractor\n  trigger: session_commit\n---\n\n{body}\n"
        );
        disk::write(&folder.join(name), text.as_bytes(), Durability::Derived)?;
    }
    let mut changes = Vec::new();
    let mut by_peer: BTreeMap<Option<&str>, Vec<&AttributedText>> = BTreeMap::new();
    let counts = |content: &&AttributedText| {
        let speaks = content.stated || !matches!(content.role, Role::System | Role::Tool);
        speaks && !content.text.trim().is_empty()
    };
    for content in all.iter().filter(counts) {
        by_peer.entry(content.peer.as_deref()).or_default().push(content);
    }
    for (peer, content) in by_peer {
        let spoken: Vec<extract::Message<'_>> = content.iter().map(|content| as_message(content)).collect();
        let found = writer.memories(&spoken, &Options::default(), &mut notices);
        let root = match peer {
            Some(peer) => who.home().child("peers").child(peer).child("memories"),
            None => who.home().child("memories"),
        };
        // One extraction at a time per user, because the decisions depend on the stored memories.
        let _held = account.remember(&who.user);
        let stated: Vec<&AttributedText> = content.into_iter().filter(|content| content.stated).collect();
        let kept = state(account, &who, &root, &stated, &home)?;
        changes.extend(remember(account, &who, &root, found, &home, &kept)?);
        changes.extend(kept);
    }
    let diff = serde_json::to_vec(&MemoryDiff { changes: &changes })?;
    disk::write(&folder.join("memory_diff.json"), &diff, Durability::Derived)?;
    disk::write(&folder.join(".done"), b"", Durability::Durable)?;
    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    for change in &changes {
        // A repeated memory counts too, although it needs no file of its own.
        *counted.entry(change.category.clone()).or_default() += 1;
    }
    count_memories(account, &who, &pending.session, &counted)?;
    Ok(Extraction {
        session_id: pending.session.clone(),
        archive_uri: Some(home.to_string()),
        archived: true,
        memories_extracted: counted,
        notices,
        changes,
    })
}

/// Adds to the counts of a session. If the session was removed meanwhile, nothing is recorded.
fn count_memories(account: &Account, who: &Identity, id: &str, counted: &BTreeMap<String, u64>) -> Result<()> {
    let session = account.sessions.open(account, who, id)?;
    let mut session = lock(&session);
    if !session.exists {
        return Ok(());
    }
    for (category, count) in counted {
        *session.meta.memories_extracted.entry(category.clone()).or_default() += count;
    }
    session.save(&account.path(&place(who, id)))
}

fn as_message(content: &AttributedText) -> extract::Message<'_> {
    extract::Message {
        role: content.role.as_str(),
        speaker: content.speaker.as_deref(),
        text: &content.text,
        time_ms: content.time_ms,
    }
}

/// Stores texts that somebody asked to remember, each as one memory in its original words. A text that is already
/// stored is not stored again.
fn state(
    account: &Account,
    who: &Identity,
    root: &StorePath,
    stated: &[&AttributedText],
    source: &StorePath,
) -> Result<Vec<MemoryChange>> {
    let now = Timestamp::now().to_string();
    let mut changes = Vec::new();
    for content in stated {
        let text = content.text.trim();
        let same = |known: &KnownMemory| collapse(&known.text) == collapse(text);
        if let Some(mut known) = alike(account, who, root, text)?.into_iter().find(same) {
            known.fields.stated = true;
            if known.fields.source.as_deref() != Some(&source.to_string()) {
                known.fields.mentions += 1;
                known.fields.updated_at.clone_from(&now);
            }
            account.put(&known.place, &known.fields.join(&known.text)?)?;
            let category = known.place.category().unwrap_or_default().to_owned();
            changes.push(MemoryChange { change: MemoryAction::Repeat, uri: known.place.to_string(), category });
            continue;
        }
        // The rules only determine the category.
        let spoken = extract::Message { role: Role::User.as_str(), ..as_message(content) };
        let sorted = extract::memories(&[spoken], &Options { keep_unmatched: true });
        let category = sorted.first().map_or(Category::Entities, |memory| memory.category);
        let memory = Memory {
            said_ms: content.time_ms,
            speaker: content.speaker.clone(),
            role: index::Role::of_name(content.role.as_str()),
            ..Memory::plain(category, text)
        };
        let place = root.child(category.name()).child(&file_name(&memory));
        let fields = Fields { stated: true, memory: None, ..fields_of(&memory, source, &now, &now) };
        account.put(&place, &fields.join(text)?)?;
        let category = category.name().to_owned();
        changes.push(MemoryChange { change: MemoryAction::Create, uri: place.to_string(), category });
    }
    Ok(changes)
}

/// A stored memory.
struct KnownMemory {
    place: StorePath,
    text: String,
    fields: Fields,
}

/// The stored memories that are most similar to a text.
fn alike(account: &Account, who: &Identity, root: &StorePath, text: &str) -> Result<Vec<KnownMemory>> {
    let wanted = SearchRequest {
        within: vec![root.clone()],
        kinds: vec![Kind::Memory],
        levels: vec![LEAF],
        ..SearchRequest::new(text, COMPARED)
    };
    let mut known = Vec::new();
    for hit in account.library.search(account, who, &wanted)? {
        let place = StorePath::parse(&hit.uri, who)?;
        // The memory was forgotten between the search and the read.
        let Some(file) = disk::read_if_there(&account.path(&place))? else { continue };
        let (text, fields) = Fields::split(&file);
        known.push(KnownMemory { text: text.to_owned(), fields, place });
    }
    Ok(known)
}

/// Writes new memories, replaces corrected ones and counts repetitions. A memory that somebody asked to remember is
/// never replaced; `kept` lists those that were just stored.
fn remember(
    account: &Account,
    who: &Identity,
    root: &StorePath,
    found: Vec<Memory>,
    source: &StorePath,
    kept: &[MemoryChange],
) -> Result<Vec<MemoryChange>> {
    let (mut known, mut stated): (Vec<StoredMemory>, HashSet<String>) = Default::default();
    for memory in &found {
        for like in alike(account, who, root, &memory.text)? {
            let id = like.place.to_string();
            if known.iter().any(|known| known.id == id) {
                continue;
            }
            if like.fields.stated {
                stated.insert(id.clone());
            }
            let category = like.place.category().and_then(Category::of_name);
            let memory = like.fields.memory.or_else(|| category.map(|category| Memory::plain(category, like.text)));
            known.extend(memory.map(|memory| StoredMemory { id, memory }));
        }
    }
    let now = Timestamp::now().to_string();
    let mut changes = Vec::new();
    for change in extract::reconcile(&known, &found) {
        let change = match change {
            Change::Replace { id, memory } if stated.contains(&id) => Change::Create(memory),
            Change::Skip { id, .. } if kept.iter().any(|kept| kept.uri == id) => continue,
            change => change,
        };
        changes.extend(apply(account, who, root, source, change, &now)?);
    }
    Ok(changes)
}

/// Writes one change. If the memory was forgotten meanwhile, nothing is written.
fn apply(
    account: &Account,
    who: &Identity,
    root: &StorePath,
    source: &StorePath,
    change: Change,
    now: &str,
) -> Result<Option<MemoryChange>> {
    let (change, uri, category) = match change {
        Change::Create(memory) => {
            let place = root.child(memory.category.name()).child(&file_name(&memory));
            let fields = fields_of(&memory, source, now, now);
            account.put(&place, &fields.join(&memory.rendered())?)?;
            (MemoryAction::Create, place.to_string(), memory.category.name())
        }
        Change::Replace { id, memory } => {
            let place = StorePath::parse(&id, who)?;
            let before = disk::read_if_there(&account.path(&place))?.unwrap_or_default();
            let created = Fields::split(&before).1.created_at;
            let created = if created.is_empty() { now } else { &created };
            let fields = fields_of(&memory, source, created, now);
            account.put(&place, &fields.join(&memory.rendered())?)?;
            (MemoryAction::Replace, id, memory.category.name())
        }
        Change::Skip { id, memory } => {
            let place = StorePath::parse(&id, who)?;
            let Some(before) = disk::read_if_there(&account.path(&place))? else { return Ok(None) };
            let (body, mut fields) = Fields::split(&before);
            if fields.source.as_deref() != Some(&source.to_string()) {
                fields.mentions += 1;
                now.clone_into(&mut fields.updated_at);
                account.put(&place, &fields.join(body)?)?;
            }
            (MemoryAction::Repeat, id, memory.category.name())
        }
    };
    Ok(Some(MemoryChange { change, uri, category: category.to_owned() }))
}

/// The same memory gets the same file name, so that an interrupted extraction can be repeated.
fn file_name(memory: &Memory) -> String {
    let hash = toolyard_protocol::canonical::sha256_hex(
        format!("{}\n{}\n{}", memory.subject, memory.key, memory.text).as_bytes(),
    );
    format!("{}-{}.md", memory.slug(), &hash[..8])
}

fn fields_of(memory: &Memory, source: &StorePath, created: &str, now: &str) -> Fields {
    let time = memory.said_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok()).map(|t| t.to_string());
    Fields {
        category: memory.category.name().to_owned(),
        speaker: memory.speaker.clone(),
        role: memory.role,
        time,
        source: Some(source.to_string()),
        created_at: created.to_owned(),
        updated_at: now.to_owned(),
        stated: false,
        mentions: 0,
        memory: Some(memory.clone()),
    }
}

/// The unfinished commits of earlier processes.
pub(crate) fn unfinished(account: &Account) -> Result<Vec<Pending>> {
    let folder = account.folder.join("_system/pending");
    let mut all = Vec::new();
    for found in disk::list(&folder)? {
        let path = folder.join(&found.name);
        match serde_json::from_str(&disk::read_text(&path)?) {
            Ok(pending) => all.push(pending),
            Err(error) => {
                tracing::warn!(%error, name = found.name, "the marker of an unfinished archive cannot be read");
                disk::discard(&path);
            }
        }
    }
    Ok(all)
}

/// The error for a commit with an invalid number of messages to keep.
pub(crate) fn bad_keep(keep: i64) -> ApiError {
    ApiError::argument(format!("keep_recent_count is {keep}; it must be 0 to 1000"))
}
