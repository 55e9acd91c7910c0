//! Responses about sessions, commits, tasks and stored tool results.

use crate::{
    service::Commit,
    sessions::{self, archive::Extraction, autocommit::AutoCommit, externalise, tasks::TaskState},
    store::{fs, uri::Identity},
    wire::compat::Compat,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct UserShape<'a> {
    account_id: &'a str,
    user_id: &'a str,
}

impl<'a> UserShape<'a> {
    fn of(who: &'a Identity) -> Self {
        Self { account_id: &who.account, user_id: &who.user }
    }
}

/// `POST /sessions`.
#[derive(Serialize)]
pub(crate) struct NewSessionShape<'a> {
    session_id: &'a str,
    uri: String,
    user: UserShape<'a>,
    auto_commit_policy: Option<AutoCommit>,
    #[serde(flatten)]
    compat: Compat,
}

impl<'a> NewSessionShape<'a> {
    pub(crate) fn new(who: &'a Identity, session_id: &'a str, auto_commit_policy: Option<AutoCommit>) -> Self {
        let uri = sessions::place(who, session_id).to_string();
        Self { session_id, uri, user: UserShape::of(who), auto_commit_policy, compat: Compat::new_session() }
    }
}

/// `PATCH /sessions/{id}/config`.
#[derive(Serialize)]
pub(crate) struct SessionConfigShape<'a> {
    session_id: &'a str,
    auto_commit_policy: Option<AutoCommit>,
    #[serde(flatten)]
    compat: Compat,
}

impl<'a> SessionConfigShape<'a> {
    pub(crate) fn new(session_id: &'a str, auto_commit_policy: Option<AutoCommit>) -> Self {
        Self { session_id, auto_commit_policy, compat: Compat::new_session() }
    }
}

#[derive(Serialize)]
struct Extracted {
    total: u64,
    #[serde(flatten)]
    by_category: BTreeMap<String, u64>,
}

/// `GET /sessions/{id}`.
#[derive(Serialize)]
pub(crate) struct SessionShape<'a> {
    session_id: &'a str,
    created_at: String,
    updated_at: String,
    created_by_account_id: &'a str,
    created_by_user_id: &'a str,
    message_count: usize,
    commit_count: u64,
    memories_extracted: Extracted,
    last_commit_at: String,
    pending_tokens: u64,
    keep_recent_count: u64,
    retention_mode: String,
    keep_recent_turn_count: u64,
    auto_commit_policy: Option<AutoCommit>,
    last_message_at: String,
    last_auto_commit_at: String,
    total_message_count: u64,
    uri: String,
    user: UserShape<'a>,
    #[serde(flatten)]
    compat: Compat,
}

impl<'a> SessionShape<'a> {
    pub(crate) fn new(who: &'a Identity, session_id: &'a str, session: sessions::Description) -> Self {
        let meta = session.meta;
        Self {
            session_id,
            created_at: meta.created_at,
            updated_at: session.updated_at,
            created_by_account_id: &who.account,
            created_by_user_id: &who.user,
            message_count: session.message_count,
            commit_count: meta.commit_count,
            memories_extracted: Extracted {
                total: meta.memories_extracted.values().sum(),
                by_category: meta.memories_extracted.into_iter().collect(),
            },
            last_commit_at: meta.last_commit_at,
            pending_tokens: session.pending_tokens,
            keep_recent_count: meta.keep_recent_count,
            retention_mode: meta.retention_mode,
            keep_recent_turn_count: meta.keep_recent_turn_count,
            auto_commit_policy: meta.auto_commit,
            last_message_at: session.last_message_at,
            last_auto_commit_at: meta.last_auto_commit_at,
            total_message_count: meta.archived_messages + session.message_count as u64,
            uri: sessions::place(who, session_id).to_string(),
            user: UserShape::of(who),
            compat: Compat::session(),
        }
    }
}

/// A session in `GET /sessions`.
#[derive(Serialize)]
pub(crate) struct ListedSessionShape {
    session_id: String,
    uri: String,
    is_dir: bool,
    mod_time: String,
}

impl From<sessions::ListedSession> for ListedSessionShape {
    fn from(listed: sessions::ListedSession) -> Self {
        Self {
            session_id: listed.id,
            uri: listed.place.to_string(),
            is_dir: true,
            mod_time: fs::seconds(listed.modified),
        }
    }
}

/// `POST /sessions/{id}/commit`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CommitShape {
    pub(super) session_id: String,
    pub(super) status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    pub(super) task_id: Option<String>,
    pub(super) archive_uri: Option<String>,
    archived: bool,
    estimated_active_tokens: u64,
    /// Whether the client requested an overview; an archive always gets one.
    effective_enable_working_memory: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_context: Option<bool>,
    #[serde(flatten)]
    compat: Compat,
}

impl CommitShape {
    pub(crate) fn new(commit: Commit, working_memory: bool, reset: bool) -> Self {
        let archived = commit.archive.is_some();
        let (archive_uri, task_id) = commit.archive.map(|archive| (archive.uri, archive.task)).unzip();
        Self {
            session_id: commit.session,
            status: if archived { "accepted" } else { "skipped" },
            reason: (!archived).then_some("no_messages"),
            task_id,
            archive_uri,
            archived,
            estimated_active_tokens: commit.active_tokens,
            effective_enable_working_memory: working_memory,
            reset_context: reset.then_some(true),
            compat: Compat::commit(),
        }
    }
}

/// A task.
#[derive(Serialize)]
pub(crate) struct TaskShape {
    task_id: String,
    task_type: &'static str,
    status: &'static str,
    created_at: f64,
    updated_at: f64,
    processing_seconds: f64,
    resource_id: String,
    result: Option<Extraction>,
    error: Option<String>,
    created_at_iso: String,
    updated_at_iso: String,
    #[serde(flatten)]
    compat: Compat,
}

impl From<TaskState> for TaskShape {
    fn from(task: TaskState) -> Self {
        let status = task.status();
        let ended = task.ended.unwrap_or_default();
        Self {
            task_id: task.id,
            task_type: task.kind,
            status,
            created_at: task.created.0,
            updated_at: task.updated.0,
            processing_seconds: task.seconds,
            resource_id: task.resource,
            result: ended.result,
            error: ended.error,
            created_at_iso: task.created.1,
            updated_at_iso: task.updated.1,
            compat: Compat::task(),
        }
    }
}

/// A range of a stored tool result, with its metadata if requested.
#[derive(Serialize)]
pub(crate) struct ChunkShape {
    #[serde(flatten)]
    pub(crate) chunk: externalise::Chunk,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<externalise::Metadata>,
}

/// The occurrences of a text in a stored tool result.
#[derive(Serialize)]
pub(crate) struct MatchesShape<'a> {
    pub(crate) tool_result_id: &'a str,
    pub(crate) matches: Vec<externalise::Match>,
}
