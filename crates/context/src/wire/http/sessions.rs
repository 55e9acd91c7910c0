//! The routes of sessions: messages, commits, context, archives and stored tool results.

use super::{
    Answer, Ask,
    params::Params,
    routes::{no_route, usize_of},
};
use crate::{
    error::{ApiError, Code, Result},
    sessions::{
        self, AddedMessages, NewMessage, Part, Role,
        archive::{self, Retain},
        autocommit::{self, AutoCommit, Policy, PolicyPatch},
        externalise,
    },
    store::account::Account,
    wire::{
        given,
        shapes::{
            ChunkShape, CommitShape, ListedSessionShape, MatchesShape, NewSessionShape, SessionConfigShape,
            SessionShape,
        },
    },
};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// A message sent by a client.
struct GivenMessage {
    role: String,
    content: Option<String>,
    parts: Option<Vec<Value>>,
    peer_id: Option<String>,
    created_at: Option<String>,
}

impl GivenMessage {
    fn read(body: &mut Params) -> Result<Self> {
        let role = body.required("role");
        let content = body.text("content");
        let parts = body.list("parts");
        let (peer_id, created_at) = (body.text("peer_id"), body.text("created_at"));
        body.accept(&["turn_id", "role_id", "telemetry", "metadata"]);
        if content.is_none() && parts.is_none() {
            body.whole("Either 'content' or 'parts' must be provided");
        }
        body.finish()?;
        Ok(Self { role, content, parts, peer_id, created_at })
    }

    fn message(self) -> Result<NewMessage> {
        let role = Role::parse(&self.role)?;
        let parts = match self.parts {
            Some(parts) => parts.iter().map(given::part).collect::<Result<Vec<_>>>()?,
            None => vec![Part::text(self.content.unwrap_or_default())],
        };
        Ok(NewMessage { role, parts, peer_id: self.peer_id, created_at: self.created_at, remember: false })
    }
}

/// A session policy sent by a client.
fn policy(policy_fields: serde_json::Map<String, Value>) -> Result<PolicyPatch> {
    serde_json::from_value(Value::Object(policy_fields))
        .map_err(|error| ApiError::argument(format!("Invalid auto_commit_policy: {error}")))
}

/// The number of messages that a batch added, and the state of the session.
#[derive(Serialize)]
struct BatchShape {
    #[serde(flatten)]
    session: AddedMessages,
    added: usize,
}

/// `DELETE /sessions/{id}`.
#[derive(Serialize)]
struct DeletedShape<'a> {
    session_id: &'a str,
}

/// `GET /sessions/{id}/archives`.
#[derive(Serialize)]
struct ArchivesShape {
    archives: Vec<String>,
}

/// `GET /sessions/{id}/tool-results`.
#[derive(Serialize)]
struct ResultsShape {
    tool_results: Vec<externalise::Metadata>,
}

/// Archives a session that exceeds the thresholds of its policy.
fn commit_when_full(ask: &Ask<'_>, id: &str) -> Result<()> {
    let account = ask.store.account(&ask.who)?;
    if let Some(keep) = autocommit::due(&account, &ask.who, id)? {
        ask.store.commit(&ask.who, id, Retain::last(keep), false)?;
    }
    Ok(())
}

pub(super) fn answer(ask: &Ask<'_>, rest: &[&str]) -> Result<Answer> {
    let account = ask.store.account(&ask.who)?;
    let who = &ask.who;
    let mut query = Params::query(ask.query);
    match (ask.method.as_str(), rest) {
        ("GET", []) => {
            let listed = sessions::list(&account, who)?;
            Answer::full(listed.into_iter().map(ListedSessionShape::from).collect::<Vec<_>>())
        }
        ("POST", []) => create(ask, &account),
        ("GET", [id]) => {
            let create = query.flag("auto_create").unwrap_or_default();
            query.finish()?;
            if create {
                match sessions::create(&account, who, id) {
                    Err(error) if error.code != Code::AlreadyExists => return Err(error),
                    _ => {}
                }
            }
            Answer::full(SessionShape::new(who, id, sessions::describe(&account, who, id)?))
        }
        ("DELETE", [id]) => {
            sessions::delete(&account, who, id)?;
            Answer::full(DeletedShape { session_id: id })
        }
        ("POST", [id, "messages"]) => {
            let mut body = Params::body(ask.body)?;
            let new = GivenMessage::read(&mut body)?.message()?;
            let added = sessions::add_message(&account, who, id, &new)?;
            commit_when_full(ask, id)?;
            Answer::full(added)
        }
        ("POST", [id, "messages", "batch"]) => add_batch(ask, &account, id),
        ("PATCH", [id, "config"]) => configure(ask, &account, id),
        ("POST", [id, "commit"]) => commit(ask, &mut query, id),
        ("GET", [id, "context"]) => {
            let budget = query.integer("token_budget", 0).unwrap_or(128_000);
            query.finish()?;
            Answer::full(sessions::context(&account, who, id, u64::try_from(budget).unwrap_or_default())?)
        }
        ("GET", [id, "archives"]) => {
            sessions::check_id(id)?;
            Answer::full(ArchivesShape { archives: sessions::archives(&account, who, id)? })
        }
        ("GET", [id, "archives", name]) => Answer::full(sessions::archive(&account, who, id, name)?),
        ("GET", [id, "tool-results", rest @ ..]) => tool_results(ask, &account, id, rest),
        _ => Err(no_route(ask)),
    }
}

/// Creates a session.
fn create(ask: &Ask<'_>, account: &Arc<Account>) -> Result<Answer> {
    let mut body = Params::body(ask.body)?;
    let id = body.text("session_id").unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let policy_fields = body.object("auto_commit_policy");
    body.accept(&["telemetry"]);
    body.refuse(&["memory_policy", "memory_extraction_config"]);
    body.finish()?;
    let policy = policy_fields.map(policy).transpose()?;
    if let Some(patch) = &policy {
        AutoCommit::default().with(patch)?;
    }
    sessions::create(account, &ask.who, &id)?;
    let set = match policy {
        Some(patch) => autocommit::configure(account, &ask.who, &id, &Policy::Merge(patch))?,
        None => None,
    };
    Answer::full(NewSessionShape::new(&ask.who, &id, set))
}

/// Adds several messages, all or none.
fn add_batch(ask: &Ask<'_>, account: &Arc<Account>, id: &str) -> Result<Answer> {
    let mut body = Params::body(ask.body)?;
    let all = body.list("messages").unwrap_or_default();
    body.accept(&["telemetry"]);
    if all.is_empty() {
        body.whole("'messages' must hold at least one message");
    }
    body.finish()?;
    let mut read = Vec::new();
    for message in &all {
        read.push(GivenMessage::read(&mut Params::body(message.to_string().as_bytes())?)?);
    }
    // All messages are validated before one is stored.
    let messages = read.into_iter().map(GivenMessage::message).collect::<Result<Vec<_>>>()?;
    let session = sessions::add_messages(account, &ask.who, id, &messages)?;
    commit_when_full(ask, id)?;
    Answer::full(BatchShape { session, added: messages.len() })
}

/// Configures automatic archiving of a session.
fn configure(ask: &Ask<'_>, account: &Arc<Account>, id: &str) -> Result<Answer> {
    let mut body = Params::body(ask.body)?;
    let off = body.is_null("auto_commit_policy");
    let policy_fields = body.object("auto_commit_policy");
    body.accept(&["telemetry"]);
    body.refuse(&["memory_extraction_config"]);
    body.finish()?;
    let policy = match policy_fields {
        Some(policy_fields) => Policy::Merge(policy(policy_fields)?),
        None if off => Policy::Off,
        None => Policy::Same,
    };
    Answer::full(SessionConfigShape::new(id, autocommit::configure(account, &ask.who, id, &policy)?))
}

/// Archives the messages of a session.
fn commit(ask: &Ask<'_>, query: &mut Params, id: &str) -> Result<Answer> {
    let mut body = Params::body(ask.body)?;
    let keep = body.integer("keep_recent_count", 0).unwrap_or_default();
    let turns = body.integer("keep_recent_turn_count", 0);
    let budget = body.one_of("retention_mode", &["", "message_count", "turn_budget"]) == Some("turn_budget");
    let reset = body.flag("reset_context").unwrap_or_default();
    let summary = body.flag("enable_working_memory").unwrap_or_default();
    let wait = body.flag("wait").unwrap_or_default() || query.flag("wait").unwrap_or_default();
    body.accept(&["telemetry"]);
    body.finish()?;
    query.finish()?;
    if keep > 1000 {
        return Err(archive::bad_keep(keep));
    }
    sessions::check_id(id)?;
    let retain =
        if budget || turns.is_some() { Retain::turns(turns.map(usize_of)) } else { Retain::last(usize_of(keep)) };
    let commit = ask.store.commit(&ask.who, id, Retain { reset, ..retain }, wait)?;
    Answer::short(CommitShape::new(commit, summary, reset))
}

/// Large tool results that a session stores separately.
fn tool_results(ask: &Ask<'_>, account: &Arc<Account>, id: &str, rest: &[&str]) -> Result<Answer> {
    let who = &ask.who;
    let mut query = Params::query(ask.query);
    match rest {
        [] => {
            let tool = query.text("tool_name");
            let limit = query.integer("limit", 1).unwrap_or(50);
            query.finish()?;
            sessions::check_id(id)?;
            let mut tool_results = externalise::list(account, who, id, tool.as_deref(), usize_of(limit))?;
            for result in &mut tool_results {
                // The form of reference that the plugin reads back.
                result.storage_uri = externalise::reference(id, &result.tool_result_id);
            }
            Answer::full(ResultsShape { tool_results })
        }
        [name] => {
            let offset = query.integer("offset", 0).unwrap_or_default();
            let limit = query.integer("limit", -1).unwrap_or(20_000);
            let meta = query.flag("include_metadata").unwrap_or(true);
            query.finish()?;
            sessions::check_id(id)?;
            let (output, metadata) = externalise::load(account, who, id, name)?;
            let chunk = externalise::read(name, &output, usize_of(offset), limit);
            Answer::full(ChunkShape { chunk, metadata: meta.then_some(metadata) })
        }
        [name, "search"] => {
            let words = query.required("q");
            let limit = query.integer("limit", 1).unwrap_or(20);
            let around = query.integer("context_chars", 0).unwrap_or(300);
            query.finish()?;
            sessions::check_id(id)?;
            let (output, _) = externalise::load(account, who, id, name)?;
            let matches = externalise::search(&output, &words, usize_of(limit), usize_of(around));
            Answer::full(MatchesShape { tool_result_id: name, matches })
        }
        _ => Err(no_route(ask)),
    }
}
