//! Sessions: names under which calls are routed and recorded. Durable facts in the store, nothing more.

use super::{Ask, RpcError, blocking, promptly, without_nulls};
use crate::{
    hub::Gateway,
    ws::params::{Field, Kind, check, count, flag, text},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use toolyard_engine::{
    Store,
    store::{RunFilter, StoreError},
};
use toolyard_protocol::RunStatus;

const SPACE: &str = "sessions";
/// The agent that is meant when none is named.
pub(crate) const DEFAULT_AGENT: &str = "main";
/// The name of the session that is there from the start.
const MAIN: &str = "main";
/// Runs that are counted for `status`.
const MAX_OPEN_RUNS: usize = 10_000;
/// Runs among which the session in use is looked for.
const RUNS_LOOKED_AT: usize = 100;
/// Sessions kept at once.
const MAX_SESSIONS: usize = 10_000;
/// A key is at most this long.
const MAX_KEY_BYTES: usize = 512;
const DEFAULT_LIMIT: u64 = 100;
const MAX_LIMIT: u64 = 1000;

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Session {
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

/// A session key with its agent: `main` stands for `agent:main:main`, `x` for `agent:main:x`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) full: String,
    pub(crate) agent: String,
}

impl Key {
    pub(crate) fn read(given: &str, agent: Option<&str>) -> Result<Self, RpcError> {
        let bad = given.is_empty() || given.len() > MAX_KEY_BYTES || given.chars().any(char::is_control);
        if bad {
            return Err(RpcError::invalid(format!(
                "invalid session key: 1 to {MAX_KEY_BYTES} bytes without control characters"
            )));
        }
        let mut parts = given.splitn(3, ':');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("agent"), Some(owner), Some(rest)) if !owner.is_empty() && !rest.is_empty() => {
                if let Some(wanted) = agent.filter(|wanted| *wanted != owner) {
                    return Err(RpcError::invalid(format!(
                        "The agent-scoped session key belongs to \"{owner}\", not \"{wanted}\"."
                    )));
                }
                Ok(Self { full: given.to_owned(), agent: owner.to_owned() })
            }
            _ => {
                let agent = agent.unwrap_or(DEFAULT_AGENT);
                Ok(Self { full: format!("agent:{agent}:{given}"), agent: agent.to_owned() })
            }
        }
    }
}

/// The session that every gateway has from the start: `agent:main:main`, or `main` for short.
pub fn main_key() -> String {
    format!("agent:{DEFAULT_AGENT}:{MAIN}")
}

/// Makes the main session if it is not there. May block; for the gateway's start.
pub(crate) fn ensure_main(store: &Arc<dyn Store>) -> Result<(), StoreError> {
    let key = main_key();
    if load(store, &key)?.is_some() {
        return Ok(());
    }
    let session = Session { created_via: "gateway".to_owned(), ..Session::new(key.clone(), DEFAULT_AGENT.to_owned()) };
    let bytes = serde_json::to_vec(&session).map_err(|e| StoreError(e.to_string()))?;
    store.put(SPACE, &key, bytes, None).map(drop)
}

/// Whether policy knows an agent.
pub(crate) fn knows_agent(gateway: &Gateway, agent: &str) -> bool {
    agent == DEFAULT_AGENT || gateway.settings().agents.iter().any(|known| known == agent)
}

fn unknown_agent(agent: &str) -> RpcError {
    let shown: String = agent.chars().take(80).collect();
    RpcError::invalid(format!("unknown agent id \"{shown}\""))
}

/// The error for a key nobody made.
pub(crate) fn unknown(given: &str) -> RpcError {
    let shown: String = given.chars().take(200).collect();
    RpcError::invalid(format!("unknown session key \"{shown}\""))
}

/// Whether a session was made.
pub(crate) async fn exists(gateway: &Gateway, key: &Key) -> Result<bool, RpcError> {
    let (store, full) = (gateway.service().engine().store().clone(), key.full.clone());
    blocking(move || Ok(load(&store, &full)?.is_some())).await
}

fn load(store: &Arc<dyn Store>, key: &str) -> Result<Option<Session>, StoreError> {
    Ok(store.get(SPACE, key)?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

fn all(store: &Arc<dyn Store>) -> Result<Vec<Session>, StoreError> {
    let mut all: Vec<Session> =
        store.list(SPACE)?.into_iter().filter_map(|(_, bytes)| serde_json::from_slice(&bytes).ok()).collect();
    all.sort_by(|a, b| b.updated_at.cmp(&a.updated_at).then_with(|| a.key.cmp(&b.key)));
    Ok(all)
}

async fn save(gateway: &Gateway, session: &Session) -> Result<(), RpcError> {
    let store = gateway.service().engine().store();
    let bytes = serde_json::to_vec(session).map_err(|e| RpcError::new("UNAVAILABLE", e.to_string()))?;
    let position = store.put(SPACE, &session.key, bytes, None)?;
    gateway.inner.health.forget();
    Ok(store.durable(position).await?)
}

/// How many there are, and the newest.
pub(crate) async fn summary(gateway: &Gateway, most: usize) -> Result<(usize, Vec<Value>), RpcError> {
    let store = gateway.service().engine().store().clone();
    let sessions = promptly(move || Ok(all(&store)?)).await?;
    Ok(recent(&sessions, None, most))
}

/// All sessions, the newest first.
pub(super) async fn newest_first(gateway: &Gateway) -> Result<Vec<Session>, RpcError> {
    let store = gateway.service().engine().store().clone();
    blocking(move || Ok(all(&store)?)).await
}

/// How many of an agent, or of all, and the newest of them.
pub(super) fn recent(sessions: &[Session], agent: Option<&str>, most: usize) -> (usize, Vec<Value>) {
    let now = Timestamp::now().as_millisecond();
    let own = || sessions.iter().filter(|s| agent.is_none_or(|agent| agent == s.agent_id));
    let shown = own()
        .take(most)
        .map(|s| json!({"key": s.key, "updatedAt": s.updated_at, "age": (now - s.updated_at).max(0)}))
        .collect();
    (own().count(), shown)
}

/// The key of the session in use; the main one where none was used. May block.
pub(crate) fn in_use(store: &Arc<dyn Store>) -> Result<String, StoreError> {
    Ok(current(store, &all(store)?)?.unwrap_or_else(main_key))
}

/// The key of the session that is in use: the one that was called in or changed last. None where there is no session.
pub(super) fn current(store: &Arc<dyn Store>, newest_first: &[Session]) -> Result<Option<String>, StoreError> {
    store.settle()?;
    let mut open = newest_first.iter().filter(|s| !s.archived);
    let runs = store.runs(&RunFilter { limit: RUNS_LOOKED_AT, ..RunFilter::default() })?;
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

/// Runs that are not over, by status.
pub(super) fn open_runs(store: &Arc<dyn Store>) -> Result<BTreeMap<&'static str, usize>, StoreError> {
    let open = [RunStatus::Pending, RunStatus::Running, RunStatus::Paused];
    let filter = RunFilter { statuses: open.to_vec(), limit: MAX_OPEN_RUNS, ..RunFilter::default() };
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

const CREATE: &[Field] = &[
    Field::optional("key", Kind::TextUpTo(MAX_KEY_BYTES)),
    Field::optional("idempotencyKey", Kind::Text),
    Field::optional("agentId", Kind::Text),
    Field::optional("label", Kind::TextUpTo(512)),
    Field::optional("displayName", Kind::TextUpTo(500)),
    Field::optional("category", Kind::TextUpTo(512)),
];

pub(super) async fn create(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, CREATE)?;
    let new_id = uuid::Uuid::new_v4().to_string();
    // With an idempotency key the name follows from it, so that a repeated request finds the same session.
    let given = match (text(&params, "key"), text(&params, "idempotencyKey")) {
        (Some(key), _) => key.to_owned(),
        (None, Some(once)) => {
            format!("dashboard:{}", &toolyard_protocol::canonical::sha256_hex(once.as_bytes())[..32])
        }
        (None, None) => format!("dashboard:{new_id}"),
    };
    let key = Key::read(&given, text(&params, "agentId"))?;
    if !knows_agent(ask.gateway, &key.agent) {
        return Err(unknown_agent(&key.agent));
    }
    let (store, full) = (ask.gateway.service().engine().store().clone(), key.full.clone());
    let (known, many) = blocking(move || Ok((load(&store, &full)?, store.list(SPACE)?.len()))).await?;
    let session = match known {
        Some(session) => session,
        None if many >= MAX_SESSIONS => {
            return Err(RpcError::invalid(format!("there are {MAX_SESSIONS} sessions; delete some first")));
        }
        None => {
            let own = |name: &str| text(&params, name).map(str::to_owned);
            let session = Session {
                session_id: new_id,
                label: own("label"),
                display_name: own("displayName"),
                category: own("category"),
                ..Session::new(key.full, key.agent)
            };
            save(ask.gateway, &session).await?;
            session
        }
    };
    Ok(json!({
        "ok": true, "key": session.key, "sessionId": session.session_id, "entry": session, "runStarted": false,
        "resolved": {},
    }))
}

const LIST: &[Field] = &[
    Field::optional("limit", Kind::Count),
    Field::optional("offset", Kind::Count),
    Field::optional("activeMinutes", Kind::Count),
    Field::optional("agentId", Kind::Text),
    Field::optional("label", Kind::Text),
    Field::optional("search", Kind::AnyText),
    Field::optional("archived", Kind::FlagOr("all")),
    Field::optional("sortBy", Kind::OneOf(&["updatedAt", "lastInteractionAt"])),
    Field::optional("requireLastInteraction", Kind::Flag),
    Field::optional("configuredAgentsOnly", Kind::Flag),
    // Every session here has an agent and a key: there are no global and unknown ones to include.
    Field::optional("includeGlobal", Kind::Flag),
    Field::optional("includeUnknown", Kind::Flag),
];

pub(super) async fn list(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, LIST)?;
    let mut sessions = newest_first(ask.gateway).await?;
    let now = Timestamp::now().as_millisecond();
    let archived = params.get("archived").cloned().unwrap_or(Value::Bool(false));
    let search = text(&params, "search").unwrap_or_default().to_lowercase();
    let active_ms =
        count(&params, "activeMinutes").map(|m| i64::try_from(m).unwrap_or(i64::MAX).saturating_mul(60_000));
    sessions.retain(|s| {
        (archived == "all" || archived.as_bool().unwrap_or_default() == s.archived)
            && text(&params, "agentId").is_none_or(|agent| agent == s.agent_id)
            && (!flag(&params, "configuredAgentsOnly") || knows_agent(ask.gateway, &s.agent_id))
            && text(&params, "label").is_none_or(|label| Some(label) == s.label.as_deref())
            && active_ms.is_none_or(|within| now - s.updated_at <= within)
            && (search.is_empty()
                || s.key.to_lowercase().contains(&search)
                || s.label.as_ref().is_some_and(|l| l.to_lowercase().contains(&search)))
    });
    let limit = count(&params, "limit").unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let offset = count(&params, "offset").unwrap_or_default();
    let by_interaction = text(&params, "sortBy") == Some("lastInteractionAt");
    let needs_one = flag(&params, "requireLastInteraction");
    let store = ask.gateway.service().engine().store().clone();
    let (page, total) = blocking(move || {
        let dated = |session: Session| -> Result<(Session, Option<i64>), RpcError> {
            let at = last_interaction(&store, &session.key)?;
            Ok((session, at))
        };
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        if !by_interaction && !needs_one {
            let total = sessions.len() as u64;
            let page = sessions.into_iter().skip(skip).take(limit as usize).map(dated);
            return Ok((page.collect::<Result<Vec<_>, _>>()?, total));
        }
        let mut sessions = sessions.into_iter().map(dated).collect::<Result<Vec<_>, _>>()?;
        sessions.retain(|(_, at)| !needs_one || at.is_some());
        if by_interaction {
            // Stable: among those that were never used the newest stay first.
            sessions.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
        }
        let total = sessions.len() as u64;
        Ok((sessions.into_iter().skip(skip).take(limit as usize).collect(), total))
    })
    .await?;
    let page: Vec<Value> = page.iter().map(row).collect();
    let end = offset.saturating_add(page.len() as u64);
    let more = end < total;
    Ok(json!({
        "ts": now, "path": ask.gateway.settings().state_path, "count": page.len(), "totalCount": total,
        "limitApplied": limit, "nextOffset": more.then_some(end), "hasMore": more, "owners": [],
        "defaults": {"modelProvider": null, "model": null, "contextTokens": null}, "sessions": page,
    }))
}

fn row((session, at): &(Session, Option<i64>)) -> Value {
    let mut row = serde_json::to_value(session).unwrap_or_default();
    if let Some(at) = at {
        row["lastInteractionAt"] = (*at).into();
    }
    row
}

const ONE: &[Field] = &[Field::required("key", Kind::Text), Field::optional("agentId", Kind::Text)];

async fn find(ask: &Ask<'_>, given: &str, agent: Option<&str>) -> Result<Session, RpcError> {
    let key = Key::read(given, agent)?;
    let store = ask.gateway.service().engine().store().clone();
    blocking(move || Ok(load(&store, &key.full)?)).await?.ok_or_else(|| unknown(given))
}

pub(super) async fn get(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, ONE)?;
    let session = find(ask, text(&params, "key").unwrap_or_default(), text(&params, "agentId")).await?;
    Ok(json!({"key": session.key, "sessionId": session.session_id, "entry": session}))
}

const PATCH: &[Field] = &[
    Field::required("key", Kind::Text),
    Field::optional("agentId", Kind::Text),
    Field::optional("expectedSessionId", Kind::Text),
    Field::optional("expectedLifecycleRevision", Kind::Text),
    Field::optional("label", Kind::TextOrNull),
    Field::optional("displayName", Kind::TextOrNull),
    Field::optional("category", Kind::TextOrNull),
    Field::optional("archived", Kind::Flag),
    Field::optional("pinned", Kind::Flag),
];

pub(super) async fn patch(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, PATCH)?;
    let mut session = find(ask, text(&params, "key").unwrap_or_default(), text(&params, "agentId")).await?;
    expect(&session, text(&params, "expectedSessionId"), text(&params, "expectedLifecycleRevision"))?;
    for (name, place) in
        [("label", &mut session.label), ("displayName", &mut session.display_name), ("category", &mut session.category)]
    {
        if let Some(value) = params.get(name) {
            *place = value.as_str().map(|t| t.chars().take(512).collect());
        }
    }
    for (name, place) in [("archived", &mut session.archived), ("pinned", &mut session.pinned)] {
        if params.contains_key(name) {
            *place = flag(&params, name);
        }
    }
    session.updated_at = Timestamp::now().as_millisecond();
    save(ask.gateway, &session).await?;
    Ok(json!({"ok": true, "key": session.key, "entry": session, "resolved": {}}))
}

fn expect(session: &Session, id: Option<&str>, revision: Option<&str>) -> Result<(), RpcError> {
    let same = id.is_none_or(|id| id == session.session_id)
        && revision.is_none_or(|revision| revision == session.lifecycle_revision);
    if same {
        return Ok(());
    }
    Err(RpcError::invalid("the session has changed").details(without_nulls(json!({
        "reason": "SESSION_CHANGED", "sessionId": session.session_id,
        "lifecycleRevision": session.lifecycle_revision,
    }))))
}

const DELETE: &[Field] = &[
    Field::required("key", Kind::Text),
    Field::optional("agentId", Kind::Text),
    Field::optional("deleteTranscript", Kind::Flag),
    Field::optional("expectedSessionId", Kind::Text),
    Field::optional("expectedLifecycleRevision", Kind::Text),
];

/// Forgets the session. The records of its runs stay: they are not the session's to take.
pub(super) async fn delete(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, DELETE)?;
    let given = text(&params, "key").unwrap_or_default();
    let key = Key::read(given, text(&params, "agentId"))?;
    if flag(&params, "deleteTranscript") {
        return Err(RpcError::invalid("the records of runs cannot be deleted with a session"));
    }
    let (store, full) = (ask.gateway.service().engine().store().clone(), key.full.clone());
    let known = blocking(move || Ok(load(&store, &full)?)).await?;
    let deleted = known.is_some();
    if let Some(session) = known {
        expect(&session, text(&params, "expectedSessionId"), text(&params, "expectedLifecycleRevision"))?;
        let store = ask.gateway.service().engine().store();
        let position = store.remove(SPACE, &key.full)?;
        ask.gateway.inner.health.forget();
        store.durable(position).await?;
    }
    Ok(json!({"ok": true, "key": key.full, "deleted": deleted, "archived": []}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_completed_and_owners_checked() {
        let key = |given, agent| Key::read(given, agent).map(|k| (k.full, k.agent)).map_err(|e| e.message);
        assert_eq!(key("main", None), Ok(("agent:main:main".into(), "main".into())));
        assert_eq!(key("agent:other:x:y", None), Ok(("agent:other:x:y".into(), "other".into())));
        assert_eq!(key("x", Some("bot")), Ok(("agent:bot:x".into(), "bot".into())));
        assert!(key("agent:other:main", Some("main")).unwrap_err().contains("belongs to \"other\""));
        assert!(key("a\nb", None).is_err());
        assert!(key(&"x".repeat(600), None).is_err());
    }
}
