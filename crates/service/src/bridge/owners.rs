//! Which node has a bridged session, where several nodes use the store.
//!
//! A session belongs to the node where it was opened, during that node's current epoch. Requests for it at another node
//! are passed on there, and its events are sent to the clients of every node. When the node is gone, the first node
//! that is asked for the session takes it over with its waiting messages. A plugin that reconnects through a load
//! balancer brings its session along: the node that it reaches has the session handed over.

use super::{INBOX, OPENINGS, SAID};
use crate::{
    Entry, Hub, MethodError, RpcError,
    cluster::{Ask, Cluster, envelope::NodeLife},
    hub::{Connection, lock},
    method::ClientRequest,
    sessions::Key,
};
use serde_json::{Value, value::RawValue};
use std::{sync::Arc, time::Duration};
use subtle::ConstantTimeEq;
use toolyard_bridge::{
    frames::{FromPlugin, InboundMessage, OutboundMessage},
    server::{NewSession, SessionTerms},
};
use toolyard_engine::{
    Caller, Door, Store,
    store::{Owner, StoreError, Swap},
};
use toolyard_protocol::{ErrorCode, Failure, WorkspaceId};

/// The node that has each session.
const OWNERS: &str = "bridge.owners";
/// The methods that are passed on to the node that has the session in their parameters.
const ROUTED: [&str; 6] =
    ["bridge.open", "bridge.close", "bridge.inbound", "bridge.outbound", "bridge.status", "bridge.permission.reply"];
/// How long a node may take to answer for its session.
const ROUTE_WITHIN: Duration = Duration::from_secs(15);
/// How long a node may take to hand a session over.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(5);
/// Facts of one session that are read at a time.
const FACTS_PER_PAGE: usize = 1000;

/// The node that has a session.
enum SessionHolder {
    /// This node has had it.
    Here,
    /// This node has it from now on, and must read it.
    Taken,
    Elsewhere(Owner),
    /// It is not open.
    Nowhere,
}

/// The stored state of a session.
struct StoredSession {
    opening: SessionTerms,
    inbox: Vec<InboundMessage>,
    said: Vec<(u64, OutboundMessage)>,
}

fn life(owner: &Owner) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(&NodeLife::from(owner)).map_err(|error| StoreError::failed(error.to_string()))
}

/// Finds who has a session, and takes it if its node is gone. May block.
fn claim(store: &dyn Store, session: &str) -> Result<SessionHolder, StoreError> {
    let me = store.owner();
    loop {
        let found = store.get(OWNERS, session)?;
        let owner = found.as_deref().and_then(|bytes| serde_json::from_slice::<NodeLife>(bytes).ok());
        match owner.map(|life| life.owner()) {
            Some(owner) if owner == me => return Ok(SessionHolder::Here),
            Some(owner) if store.is_alive(&owner)? => return Ok(SessionHolder::Elsewhere(owner)),
            _ => {}
        }
        if store.get(OPENINGS, session)?.is_none() {
            return Ok(SessionHolder::Nowhere);
        }
        // Another node may be quicker.
        if store.compare_and_set(OWNERS, session, found.as_deref(), Some((life(&me)?, None)))? == Swap::Done {
            return Ok(SessionHolder::Taken);
        }
    }
}

/// Reads a session. May block.
fn read(store: &dyn Store, session: &str) -> Result<Option<StoredSession>, StoreError> {
    let opening = store.get(OPENINGS, session)?.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let Some(opening) = opening else { return Ok(None) };
    let prefix = format!("{session}\n");
    let page = |space: &str| store.list_page(space, &prefix, None, FACTS_PER_PAGE);
    let inbox = page(INBOX)?.into_iter().filter_map(|(_, bytes)| serde_json::from_slice(&bytes).ok());
    let said = page(SAID)?.into_iter().filter_map(|(key, bytes)| {
        let seq = key.rsplit_once('\n')?.1.parse().ok()?;
        Some((seq, serde_json::from_slice(&bytes).ok()?))
    });
    Ok(Some(StoredSession { opening, inbox: inbox.collect(), said: said.collect() }))
}

/// Claims every session that no living node has. May block.
fn claim_all(store: &dyn Store) -> Result<Vec<StoredSession>, StoreError> {
    let mut mine = Vec::new();
    for (session, _) in store.list(OPENINGS)? {
        if matches!(claim(store, &session)?, SessionHolder::Taken | SessionHolder::Here) {
            mine.extend(read(store, &session)?);
        }
    }
    Ok(mine)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|_| Failure::new(ErrorCode::InternalError, "the store did not answer"))??)
}

impl Hub {
    /// Restores the sessions that no living node has.
    pub(super) fn restore_unowned(&self) {
        match claim_all(&**self.store()) {
            Ok(kept) => kept.into_iter().for_each(|kept| self.adopt(kept)),
            Err(error) => tracing::error!(%error, "the bridge's sessions cannot be read"),
        }
    }

    fn adopt(&self, kept: StoredSession) {
        let StoredSession { opening, inbox, said } = kept;
        let session = opening.session.clone();
        let mut rules = lock(&self.inner.bridge.rules);
        rules.open(NewSession { opening, limits: self.inner.bridge.limits });
        inbox.into_iter().for_each(|message| rules.restore(&session, message));
        said.into_iter().for_each(|(seq, message)| rules.restore_outbound(&session, seq, message));
    }

    /// The other node that has a session. A session whose node is gone is this node's afterwards.
    async fn bridge_elsewhere(&self, session: &str) -> Result<Option<Owner>, Failure> {
        let (store, key) = (self.store().clone(), session.to_owned());
        let found = blocking(move || {
            let held = claim(&*store, &key)?;
            let kept = if matches!(held, SessionHolder::Taken) { read(&*store, &key)? } else { None };
            Ok((held, kept))
        });
        match found.await? {
            (SessionHolder::Elsewhere(owner), _) => Ok(Some(owner)),
            (_, Some(kept)) => {
                tracing::info!(session, "a bridged session of a node that is gone was taken over");
                self.adopt(kept);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Notes that this node has a session that is being opened. False if another node that is alive has it.
    pub(super) async fn own_bridge(&self, session: &str) -> Result<bool, StoreError> {
        if self.service().cluster().is_none() {
            return Ok(true);
        }
        let (store, key) = (self.store().clone(), session.to_owned());
        let own = move || -> Result<bool, StoreError> {
            match claim(&*store, &key)? {
                SessionHolder::Elsewhere(_) => Ok(false),
                SessionHolder::Here | SessionHolder::Taken => Ok(true),
                SessionHolder::Nowhere => {
                    let found = store.get(OWNERS, &key)?;
                    let mine = Some((life(&store.owner())?, None));
                    Ok(store.compare_and_set(OWNERS, &key, found.as_deref(), mine)? == Swap::Done)
                }
            }
        };
        tokio::task::spawn_blocking(own).await.unwrap_or_else(|_| Err(StoreError::failed("the store did not answer")))
    }

    /// Notes that a session is closed.
    pub(super) fn disown_bridge(&self, session: &str) -> Result<(), StoreError> {
        match self.service().cluster() {
            Some(_) => self.store().remove(OWNERS, session).map(|_| ()),
            None => Ok(()),
        }
    }

    /// The answer of the node that has the session of a bridge method; `None` if this node answers itself.
    pub(crate) async fn answered_elsewhere(
        &self,
        entry: &Entry,
        client: &ClientRequest<'_>,
        params: &Value,
    ) -> Option<Result<Box<RawValue>, MethodError>> {
        let cluster = self.service().cluster()?;
        if !ROUTED.contains(&entry.name) {
            return None;
        }
        let text = |name: &str| params.as_object().and_then(|params| params.get(name)).and_then(Value::as_str);
        // Parameters that cannot be read are refused by the method itself.
        let key = Key::read(&client.connection.workspace, text(SESSION_KEY)?, text(AGENT_ID)).ok()?;
        let owner = match self.bridge_elsewhere(&key.full).await {
            Ok(owner) => owner?,
            Err(failure) => return Some(Err(failure.into())),
        };
        let ask = Ask::Method { method: entry.name.to_owned(), params: params.clone() };
        let caller =
            Caller { principal: client.connection.principal.clone(), ..Caller::clone(client.connection.standing()) };
        let answer = cluster.ask::<Box<RawValue>>(&owner, &caller, ask, ROUTE_WITHIN).await;
        Some(answer.map_err(MethodError::from))
    }

    /// A message for Claude that came by HTTP, for a session at another node; `None` if this node answers itself.
    pub async fn received_elsewhere(
        &self,
        workspace: &WorkspaceId,
        message: &super::Message,
    ) -> Option<Result<Box<RawValue>, Failure>> {
        let cluster = self.service().cluster()?;
        let key = Key::read(workspace, &message.session_key, message.agent_id.as_deref()).ok()?;
        let owner = match self.bridge_elsewhere(&key.full).await {
            Ok(owner) => owner?,
            Err(failure) => return Some(Err(failure)),
        };
        let params = serde_json::to_value(message).ok()?;
        // The gateway's token sends messages, and answers no questions.
        let caller = Caller {
            door: Door::Http,
            principal: "http".to_owned(),
            agent: key.agent,
            session: None,
            scopes: vec!["operator.write".to_owned()],
            is_person: false,
            workspace: workspace.clone(),
        };
        let ask = Ask::Method { method: "bridge.inbound".to_owned(), params };
        Some(cluster.ask(&owner, &caller, ask, ROUTE_WITHIN).await)
    }

    /// Answers a method for a client of another node, with the scopes of that client and nothing else of it.
    pub(crate) async fn answer_method(
        &self,
        caller: &Caller,
        method: &str,
        params: Value,
    ) -> Result<Box<RawValue>, Failure> {
        let methods = self.service().methods();
        let entry = methods.find(method).filter(|entry| ROUTED.contains(&entry.name));
        let entry = entry.ok_or_else(|| crate::registry::no_method(method))?;
        let connection = Arc::new(Connection::of_caller(caller, self.inner.stop.child_token()));
        let client = ClientRequest { connection: &connection, id: "", early: &|_| {} };
        self.answer(entry, client, Some(params)).await.map_err(MethodError::into_failure)
    }

    /// Brings the session of a plugin's first frame to this node. Whatever is wrong with the frame is answered when it is
    /// handled.
    pub async fn bring_bridge(&self, hello: &str) {
        let Some(cluster) = self.service().cluster().cloned() else { return };
        let Ok(FromPlugin::Hello(hello)) = serde_json::from_str::<FromPlugin>(hello) else { return };
        if self.see_bridge(|rules| rules.is_open(&hello.openclaw_session)) {
            return;
        }
        let digest = SessionTerms::digest(&hello.token);
        if let Err(failure) = self.fetch_bridge(&cluster, &hello.openclaw_session, digest).await {
            tracing::warn!(error = %failure.message, session = hello.openclaw_session, "a session could not be brought here");
        }
    }

    async fn fetch_bridge(&self, cluster: &Arc<Cluster>, session: &str, digest: String) -> Result<(), Failure> {
        let (store, key) = (self.store().clone(), session.to_owned());
        let Some(kept) = blocking(move || read(&*store, &key)).await? else { return Ok(()) };
        // A request without the session's secret cannot move the session.
        if !bool::from(kept.opening.token_sha256.as_bytes().ct_eq(digest.as_bytes())) {
            return Ok(());
        }
        let Some(owner) = self.bridge_elsewhere(session).await? else { return Ok(()) };
        let caller = Caller {
            door: Door::Bridge,
            principal: format!("bridge:{session}"),
            agent: super::agent_of(session),
            session: Some(session.to_owned()),
            scopes: Vec::new(),
            is_person: false,
            workspace: WorkspaceId::of(session).0,
        };
        let ask = Ask::HandOverBridge { session: session.to_owned(), token_sha256: digest, to: cluster.me().into() };
        if cluster.ask::<bool>(&owner, &caller, ask, HAND_OVER_WITHIN).await? {
            let (store, key) = (self.store().clone(), session.to_owned());
            if let Some(kept) = blocking(move || read(&*store, &key)).await? {
                self.adopt(kept);
            }
        }
        Ok(())
    }

    /// Hands a session over to another node, whose plugin knows its secret. Its messages stay in the store.
    pub(crate) async fn hand_over_bridge(
        &self,
        session: &str,
        token_sha256: &str,
        to: &NodeLife,
    ) -> Result<bool, Failure> {
        let (store, key) = (self.store().clone(), session.to_owned());
        let Some(kept) = blocking(move || read(&*store, &key)).await? else { return Ok(false) };
        if !bool::from(kept.opening.token_sha256.as_bytes().ct_eq(token_sha256.as_bytes())) {
            return Err(Failure::new(ErrorCode::PolicyDenied, "the plugin does not know the session's secret"));
        }
        self.with_bridge(|rules| ((), rules.hand_over(session).unwrap_or_default()));
        let (store, key, to) = (self.store().clone(), session.to_owned(), to.owner());
        let swapped = blocking(move || {
            // What this node wrote about the session is visible before the other node reads it.
            store.settle()?;
            store.compare_and_set(OWNERS, &key, Some(&life(&store.owner())?), Some((life(&to)?, None)))
        });
        Ok(swapped.await? == Swap::Done)
    }
}

/// The parameters that name a session.
const SESSION_KEY: &str = "sessionKey";
const AGENT_ID: &str = "agentId";

/// The refusal of a session that another node opened at the same moment.
pub(super) fn opened_elsewhere() -> RpcError {
    RpcError::unavailable("another node opens this session at the moment; try again")
}
