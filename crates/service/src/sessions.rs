//! Sessions: names under which calls are routed and recorded. A session is a durable fact in the store.

mod key;

pub use key::Key;

use crate::{
    Call, Handle, Hub, MethodError, RpcError, Terms,
    express::promptly,
    methods,
    params::{Count, FlagOrAll, Patch, Text},
    service::blocking,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};
use toolyard_engine::{
    Caller, Store,
    store::{RunFilter, StoreError},
};
use toolyard_protocol::{RunStatus, WorkspaceId};

methods! {
    /// Creates a session, or returns the existing one with the same key.
    SessionsCreate = "sessions.create", Terms::write(), CreateParams => CreatedSession;
    /// Lists sessions, filtered and sorted.
    SessionsList = "sessions.list", Terms::read(), ListParams => SessionList;
    /// Shows a session.
    SessionsGet = "sessions.get", Terms::read(), SessionParams => FoundSession;
    /// Changes a session's label, name, category or flags.
    SessionsPatch = "sessions.patch", Terms::write(), PatchParams => PatchedSession;
    /// Deletes a session. The records of its runs are kept.
    SessionsDelete = "sessions.delete", Terms::write(), DeleteParams => DeletedSession;
}

const SPACE: &str = "sessions";
/// The agent that is meant when none is named.
pub(crate) const DEFAULT_AGENT: &str = "main";
/// The name of the session that always exists.
const MAIN: &str = "main";
/// Runs that are counted for `status`.
const MAX_OPEN_RUNS: usize = 10_000;
/// Runs among which the session in use is looked for.
const RUNS_LOOKED_AT: usize = 100;
/// Sessions kept at once.
const MAX_SESSIONS: usize = 10_000;
/// How many characters of a caller's name are repeated in an error.
const MAX_SHOWN: usize = 80;
/// Characters of a label, a name or a category.
const MAX_LABEL: usize = 512;
/// The number of sessions in one page, by default.
const DEFAULT_LIMIT: u64 = 100;
/// The most sessions in one page.
const MAX_LIMIT: u64 = 1000;

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    key: String,
    session_id: String,
    agent_id: String,
    lifecycle_revision: String,
    created_at: i64,
    updated_at: i64,
    created_via: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    display_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    category: Option<String>,
    #[serde(default)]
    archived: bool,
    #[serde(default)]
    pinned: bool,
}

impl Session {
    fn new(key: String, agent_id: String) -> Self {
        let now = Timestamp::now().as_millisecond();
        Self {
            key,
            session_id: uuid::Uuid::new_v4().to_string(),
            agent_id,
            lifecycle_revision: uuid::Uuid::new_v4().to_string(),
            created_at: now,
            updated_at: now,
            created_via: "operator".to_owned(),
            label: None,
            display_name: None,
            category: None,
            archived: false,
            pinned: false,
        }
    }
}

/// The session that every workspace has from the start: `agent:main:main`, or `main` for short.
pub fn main_key(workspace: &WorkspaceId) -> String {
    workspace.key(&format!("agent:{DEFAULT_AGENT}:{MAIN}")).into_owned()
}

/// Makes the main session of a workspace if it is not there. May block.
pub(crate) fn ensure_main(store: &Arc<dyn Store>, workspace: &WorkspaceId) -> Result<(), StoreError> {
    let key = main_key(workspace);
    if load(store, &key)?.is_some() {
        return Ok(());
    }
    let session = Session { created_via: "gateway".to_owned(), ..Session::new(key.clone(), DEFAULT_AGENT.to_owned()) };
    let bytes = serde_json::to_vec(&session).map_err(|e| StoreError::failed(e.to_string()))?;
    store.put(SPACE, &key, bytes, None).map(drop)
}

/// The key of the session in use; the main one where none was used. May block.
pub(crate) fn in_use(store: &Arc<dyn Store>, workspace: &WorkspaceId) -> Result<String, StoreError> {
    Ok(current(store, workspace, &all(store, workspace)?)?.unwrap_or_else(|| main_key(workspace)))
}

/// The id of a session, as the store has it under its full key.
pub fn session_id(store: &dyn Store, key: &str) -> Option<String> {
    let bytes = store.get(SPACE, key).ok().flatten()?;
    serde_json::from_slice::<Session>(&bytes).ok().map(|session| session.session_id)
}

impl Hub {
    /// Whether policy knows an agent.
    pub fn knows_agent(&self, agent: &str) -> bool {
        agent == DEFAULT_AGENT || self.settings().agents.iter().any(|known| known == agent)
    }

    /// Refuses an agent that policy does not know.
    pub(crate) fn check_agent(&self, agent: &str) -> Result<(), RpcError> {
        let shown: String = agent.chars().take(MAX_SHOWN).collect();
        match self.knows_agent(agent) {
            true => Ok(()),
            false => Err(RpcError::invalid(format!("unknown agent id \"{shown}\""))),
        }
    }
}

/// The error for an unknown key.
pub(crate) fn unknown(given: &str) -> RpcError {
    let shown: String = given.chars().take(200).collect();
    RpcError::invalid(format!("unknown session key \"{shown}\""))
}

/// Whether a session was made.
pub(crate) async fn exists(hub: &Hub, key: &Key) -> Result<bool, MethodError> {
    let (store, full) = (hub.service().engine().store().clone(), key.full.clone());
    blocking(move || Ok::<_, MethodError>(load(&store, &full)?.is_some())).await
}

fn load(store: &Arc<dyn Store>, key: &str) -> Result<Option<Session>, StoreError> {
    Ok(store.get(SPACE, key)?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

fn all(store: &Arc<dyn Store>, workspace: &WorkspaceId) -> Result<Vec<Session>, StoreError> {
    let own = store.list(SPACE)?.into_iter().filter(|(key, _)| workspace.owns(key));
    let mut all: Vec<Session> = own.filter_map(|(_, bytes)| serde_json::from_slice(&bytes).ok()).collect();
    all.sort_by(|a, b| b.updated_at.cmp(&a.updated_at).then_with(|| a.key.cmp(&b.key)));
    Ok(all)
}

async fn save(hub: &Hub, session: &Session) -> Result<(), MethodError> {
    let store = hub.service().engine().store();
    let bytes = serde_json::to_vec(session).map_err(|e| RpcError::unavailable(e.to_string()))?;
    let position = store.put(SPACE, &session.key, bytes, None)?;
    hub.inner.health.forget();
    Ok(store.durable(position).await?)
}

/// A session in a summary.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecentSession {
    key: String,
    updated_at: i64,
    age: i64,
}

/// The number of sessions, and the newest of them.
pub(crate) async fn summary(
    hub: &Hub,
    workspace: &WorkspaceId,
    most: usize,
) -> Result<(usize, Vec<RecentSession>), MethodError> {
    let (store, workspace) = (hub.service().engine().store().clone(), workspace.clone());
    let sessions = promptly(move || Ok(all(&store, &workspace)?)).await?;
    Ok(recent(&sessions, None, most))
}

/// All sessions of a workspace, the newest first.
pub(crate) async fn newest_first(hub: &Hub, workspace: &WorkspaceId) -> Result<Vec<Session>, MethodError> {
    let (store, workspace) = (hub.service().engine().store().clone(), workspace.clone());
    blocking(move || Ok::<_, MethodError>(all(&store, &workspace)?)).await
}

/// The number of sessions of an agent, or of all, and the newest of them.
pub(crate) fn recent(sessions: &[Session], agent: Option<&str>, most: usize) -> (usize, Vec<RecentSession>) {
    let now = Timestamp::now().as_millisecond();
    let own = || sessions.iter().filter(|s| agent.is_none_or(|agent| agent == s.agent_id));
    let shown = own()
        .take(most)
        .map(|s| RecentSession { key: s.key.clone(), updated_at: s.updated_at, age: (now - s.updated_at).max(0) })
        .collect();
    (own().count(), shown)
}

/// The key of the session that is in use: the one that was called in or changed last. None where there is no session.
pub(crate) fn current(
    store: &Arc<dyn Store>,
    workspace: &WorkspaceId,
    newest_first: &[Session],
) -> Result<Option<String>, StoreError> {
    store.settle()?;
    let mut open = newest_first.iter().filter(|s| !s.archived);
    let workspace = Some(workspace.clone());
    let runs = store.runs(&RunFilter { workspace, limit: RUNS_LOOKED_AT, ..RunFilter::default() })?;
    let used = runs.iter().find_map(|run| {
        let session = open.clone().find(|s| Some(&s.key) == run.session.as_ref())?;
        Some((run.started_at.as_millisecond(), session))
    });
    let changed = open.next();
    let current = match (used, changed) {
        (Some((at, used)), Some(changed)) if at >= changed.updated_at => Some(used),
        (_, changed) => changed,
    };
    Ok(current.map(|s| s.key.clone()))
}

/// Runs of a workspace that are not over, by status.
pub(crate) fn open_runs(
    store: &Arc<dyn Store>,
    workspace: &WorkspaceId,
) -> Result<BTreeMap<&'static str, usize>, StoreError> {
    let open = [RunStatus::Pending, RunStatus::Running, RunStatus::Paused];
    let workspace = Some(workspace.clone());
    let filter = RunFilter { statuses: open.to_vec(), workspace, limit: MAX_OPEN_RUNS, ..RunFilter::default() };
    let mut counted: BTreeMap<&'static str, usize> = open.iter().map(|status| (status.as_str(), 0)).collect();
    for row in store.runs(&filter)? {
        *counted.entry(row.status.as_str()).or_default() += 1;
    }
    Ok(counted)
}

/// When a session's last call or plan began.
fn last_interaction(store: &Arc<dyn Store>, key: &str) -> Result<Option<i64>, StoreError> {
    let filter = RunFilter { session: Some(key.to_owned()), limit: 1, ..RunFilter::default() };
    Ok(store.runs(&filter)?.first().map(|row| row.started_at.as_millisecond()))
}

/// The parameters of a new session.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateParams {
    #[schemars(length(max = 512))]
    pub(crate) key: Option<Text>,
    pub(crate) idempotency_key: Option<Text>,
    pub(crate) agent_id: Option<Text>,
    #[schemars(length(max = 512))]
    pub(crate) label: Option<Text>,
    #[schemars(length(max = 500))]
    pub(crate) display_name: Option<Text>,
    #[schemars(length(max = 512))]
    pub(crate) category: Option<Text>,
}

/// A session that was created or found.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedSession {
    ok: bool,
    key: String,
    session_id: String,
    entry: Session,
    run_started: bool,
    resolved: Resolved,
}

/// The model that a session's fields resolve to; this program runs none.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Resolved {}

impl Hub {
    /// Creates a session, or returns the existing one with the same key.
    pub(crate) async fn create_session(&self, caller: &Caller, params: CreateParams) -> Result<Session, MethodError> {
        let new_id = uuid::Uuid::new_v4().to_string();
        // With an idempotency key the name follows from it, so that a repeated request finds the same session.
        let given = match (params.key, params.idempotency_key) {
            (Some(key), _) => key.0,
            (None, Some(once)) => {
                format!("dashboard:{}", &toolyard_protocol::canonical::sha256_hex(once.as_bytes())[..32])
            }
            (None, None) => format!("dashboard:{new_id}"),
        };
        let key = Key::read(&caller.workspace, &given, params.agent_id.as_deref())?;
        self.check_agent(&key.agent)?;
        let (store, full, of) = (self.service().engine().store().clone(), key.full.clone(), caller.workspace.clone());
        let look = move || Ok::<_, MethodError>((load(&store, &full)?, all(&store, &of)?.len()));
        let (known, many) = blocking(look).await?;
        if let Some(session) = known {
            return Ok(session);
        }
        if many >= MAX_SESSIONS {
            return Err(RpcError::invalid(format!("there are {MAX_SESSIONS} sessions; delete some first")).into());
        }
        let session = Session {
            session_id: new_id,
            label: params.label.map(String::from),
            display_name: params.display_name.map(String::from),
            category: params.category.map(String::from),
            ..Session::new(key.full, key.agent)
        };
        save(self, &session).await?;
        Ok(session)
    }
}

impl Handle<SessionsCreate> for Hub {
    async fn handle(&self, call: &Call<'_>, params: CreateParams) -> Result<CreatedSession, MethodError> {
        let entry = self.create_session(&call.caller, params).await?;
        let (key, session_id) = (entry.key.clone(), entry.session_id.clone());
        Ok(CreatedSession { ok: true, key, session_id, entry, run_started: false, resolved: Resolved {} })
    }
}

/// Which sessions are listed, and how.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListParams {
    limit: Option<Count>,
    offset: Option<Count>,
    active_minutes: Option<Count>,
    agent_id: Option<Text>,
    label: Option<Text>,
    search: Option<String>,
    archived: Option<FlagOrAll>,
    sort_by: Option<SortBy>,
    #[serde(default)]
    require_last_interaction: bool,
    #[serde(default)]
    configured_agents_only: bool,
    /// Every session here has an agent: there are no global ones to include.
    #[serde(default, rename = "includeGlobal")]
    _include_global: bool,
    /// Every session here has a key: there are no unknown ones to include.
    #[serde(default, rename = "includeUnknown")]
    _include_unknown: bool,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SortBy {
    /// The session that was changed last comes first.
    UpdatedAt,
    /// The session that was used last comes first.
    LastInteractionAt,
}

/// A page of sessions.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionList {
    ts: i64,
    path: String,
    count: usize,
    total_count: u64,
    limit_applied: u64,
    next_offset: Option<u64>,
    has_more: bool,
    owners: Vec<String>,
    defaults: Defaults,
    sessions: Vec<ListedSession>,
}

/// The model a session would use; this program runs none.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defaults {
    model_provider: Option<String>,
    model: Option<String>,
    context_tokens: Option<u64>,
}

/// A session in a list.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedSession {
    #[serde(flatten)]
    session: Session,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_interaction_at: Option<i64>,
}

impl ListParams {
    fn wants(&self, hub: &Hub, session: &Session, now: i64) -> bool {
        let is_archived = match self.archived {
            Some(FlagOrAll::All(_)) => session.archived,
            Some(FlagOrAll::Flag(archived)) => archived,
            None => false,
        };
        let active_ms = self.active_minutes.map(|minutes| minutes.0.saturating_mul(60_000));
        let search = self.search.as_deref().unwrap_or_default().to_lowercase();
        let is_found = |text: &str| text.to_lowercase().contains(&search);
        session.archived == is_archived
            && self.agent_id.as_deref().is_none_or(|agent| agent == session.agent_id)
            && (!self.configured_agents_only || hub.knows_agent(&session.agent_id))
            && self.label.as_deref().is_none_or(|label| Some(label) == session.label.as_deref())
            && active_ms.is_none_or(|within| now.saturating_sub(session.updated_at).max(0).unsigned_abs() <= within)
            && (search.is_empty() || is_found(&session.key) || session.label.as_deref().is_some_and(is_found))
    }

    /// The page of a list, and how many sessions the list has. May block.
    fn page(&self, sessions: Vec<Session>, store: &Arc<dyn Store>) -> Result<(Vec<ListedSession>, u64), StoreError> {
        let dated = |session: Session| {
            let last_interaction_at = last_interaction(store, &session.key)?;
            Ok::<_, StoreError>(ListedSession { session, last_interaction_at })
        };
        let (skip, limit) = (self.offset.unwrap_or_default().as_usize(), self.limit() as usize);
        let by_interaction = self.sort_by == Some(SortBy::LastInteractionAt);
        if !by_interaction && !self.require_last_interaction {
            let total = sessions.len() as u64;
            let page = sessions.into_iter().skip(skip).take(limit).map(dated);
            return Ok((page.collect::<Result<_, _>>()?, total));
        }
        let mut sessions = sessions.into_iter().map(dated).collect::<Result<Vec<_>, _>>()?;
        sessions.retain(|listed| !self.require_last_interaction || listed.last_interaction_at.is_some());
        if by_interaction {
            // Stable: among those that were never used the newest stay first.
            sessions.sort_by_key(|listed| std::cmp::Reverse(listed.last_interaction_at));
        }
        let total = sessions.len() as u64;
        Ok((sessions.into_iter().skip(skip).take(limit).collect(), total))
    }

    fn limit(&self) -> u64 {
        self.limit.map_or(DEFAULT_LIMIT, |limit| limit.0).clamp(1, MAX_LIMIT)
    }
}

impl Handle<SessionsList> for Hub {
    async fn handle(&self, call: &Call<'_>, params: ListParams) -> Result<SessionList, MethodError> {
        let mut sessions = newest_first(self, &call.caller.workspace).await?;
        let now = Timestamp::now().as_millisecond();
        sessions.retain(|session| params.wants(self, session, now));
        let (limit, offset) = (params.limit(), params.offset.unwrap_or_default().0);
        let store = self.service().engine().store().clone();
        let (page, total) = blocking(move || Ok::<_, MethodError>(params.page(sessions, &store)?)).await?;
        let end = offset.saturating_add(page.len() as u64);
        let more = end < total;
        Ok(SessionList {
            ts: now,
            path: self.settings().state_path.clone(),
            count: page.len(),
            total_count: total,
            limit_applied: limit,
            next_offset: more.then_some(end),
            has_more: more,
            owners: Vec::new(),
            defaults: Defaults::default(),
            sessions: page,
        })
    }
}

/// A session by key.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionParams {
    key: Text,
    agent_id: Option<Text>,
}

/// A session that was found.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FoundSession {
    key: String,
    session_id: String,
    entry: Session,
}

async fn find(hub: &Hub, call: &Call<'_>, given: &str, agent: Option<&str>) -> Result<Session, MethodError> {
    let key = Key::read(&call.caller.workspace, given, agent)?;
    let store = hub.service().engine().store().clone();
    let found = blocking(move || Ok::<_, MethodError>(load(&store, &key.full)?)).await?;
    found.ok_or_else(|| unknown(given).into())
}

impl Handle<SessionsGet> for Hub {
    async fn handle(&self, call: &Call<'_>, params: SessionParams) -> Result<FoundSession, MethodError> {
        let entry = find(self, call, &params.key, params.agent_id.as_deref()).await?;
        Ok(FoundSession { key: entry.key.clone(), session_id: entry.session_id.clone(), entry })
    }
}

/// The changes to a session.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchParams {
    key: Text,
    agent_id: Option<Text>,
    expected_session_id: Option<Text>,
    expected_lifecycle_revision: Option<Text>,
    #[serde(default)]
    label: Patch<Text>,
    #[serde(default)]
    display_name: Patch<Text>,
    #[serde(default)]
    category: Patch<Text>,
    archived: Option<bool>,
    pinned: Option<bool>,
}

/// A session that was changed.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PatchedSession {
    ok: bool,
    key: String,
    entry: Session,
    resolved: Resolved,
}

impl Handle<SessionsPatch> for Hub {
    async fn handle(&self, call: &Call<'_>, params: PatchParams) -> Result<PatchedSession, MethodError> {
        let mut session = find(self, call, &params.key, params.agent_id.as_deref()).await?;
        let revision = params.expected_lifecycle_revision.as_deref();
        expect(&session, params.expected_session_id.as_deref(), revision)?;
        for (change, field) in [
            (params.label, &mut session.label),
            (params.display_name, &mut session.display_name),
            (params.category, &mut session.category),
        ] {
            change.map(|text| text.chars().take(MAX_LABEL).collect()).apply(field);
        }
        session.archived = params.archived.unwrap_or(session.archived);
        session.pinned = params.pinned.unwrap_or(session.pinned);
        session.updated_at = Timestamp::now().as_millisecond();
        save(self, &session).await?;
        Ok(PatchedSession { ok: true, key: session.key.clone(), entry: session, resolved: Resolved {} })
    }
}

fn expect(session: &Session, id: Option<&str>, revision: Option<&str>) -> Result<(), RpcError> {
    let same = id.is_none_or(|id| id == session.session_id)
        && revision.is_none_or(|revision| revision == session.lifecycle_revision);
    if same {
        return Ok(());
    }
    Err(RpcError::invalid("the session has changed")
        .detail("reason", "SESSION_CHANGED")
        .detail("sessionId", session.session_id.as_str())
        .detail("lifecycleRevision", session.lifecycle_revision.as_str()))
}

/// The session to delete.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteParams {
    key: Text,
    agent_id: Option<Text>,
    #[serde(default)]
    delete_transcript: bool,
    expected_session_id: Option<Text>,
    expected_lifecycle_revision: Option<Text>,
}

/// Whether a session was deleted.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DeletedSession {
    ok: bool,
    key: String,
    deleted: bool,
    archived: Vec<String>,
}

impl Handle<SessionsDelete> for Hub {
    /// The records of the session's runs are kept: they do not belong to the session.
    async fn handle(&self, call: &Call<'_>, params: DeleteParams) -> Result<DeletedSession, MethodError> {
        let key = Key::read(&call.caller.workspace, &params.key, params.agent_id.as_deref())?;
        if params.delete_transcript {
            return Err(RpcError::invalid("the records of runs cannot be deleted with a session").into());
        }
        let (store, full) = (self.service().engine().store().clone(), key.full.clone());
        let known = blocking(move || Ok::<_, MethodError>(load(&store, &full)?)).await?;
        let deleted = known.is_some();
        if let Some(session) = known {
            let revision = params.expected_lifecycle_revision.as_deref();
            expect(&session, params.expected_session_id.as_deref(), revision)?;
            let store = self.service().engine().store();
            let position = store.remove(SPACE, &key.full)?;
            self.inner.health.forget();
            store.durable(position).await?;
        }
        Ok(DeletedSession { ok: true, key: key.full, deleted, archived: Vec::new() })
    }
}
