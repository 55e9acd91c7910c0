//! What clients of other nodes have: their presence, the tools they offer, which of them show approvals, and devices
//! that were revoked.
//!
//! Each node keeps a few facts about its own clients in the store that the nodes share, and reads those of the others
//! once a second. Facts of a node that is not alive do not count. Nothing of this is done over a store
//! that one machine uses alone.

use super::{Connection, EventBody, Hub, OutboxItem, Presence, WeakHub, lock};
use crate::{
    RequestError,
    approvals::Answerer,
    cluster::{Ask, Cluster, DifferingNode, OfferedCall, envelope::NodeLife},
    sessions::DEFAULT_AGENT,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::{Notify, mpsc};
use toolyard_catalog::{SourceKind, ToolEntry, ToolSource};
use toolyard_engine::{
    BoxFuture, CallContext, Caller, Door, Failed, Output, Prepared, Provider, Store, ToolExchange,
    store::{NodeState, Owner, StoreError},
};
use toolyard_protocol::{DEFAULT_TIMEOUT_MS, ErrorCode, Failure, ToolCall, ToolDefinition, WorkspaceId, canonical};

/// The clients of each node, by node.
const CLIENTS: &str = "nodeClients";
/// The tools that clients offer, by node and connection.
const OFFERS: &str = "offers";
/// Devices that were revoked, by device.
const REVOKED: &str = "revokedDevices";
/// A revocation is remembered this long: a node that cannot read the store for longer closes its connections itself.
const REVOCATION_LIFE: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);
/// How often the facts of other nodes are read at most.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// How often they are read while nothing changes here.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Clients that show approvals which a node tells the others of.
const MAX_APPROVERS: usize = 100;
/// Events for other nodes that wait to be sent; one more is dropped.
const MAX_NEWS: usize = 1024;
/// How long a node may take to accept an event.
const NEWS_WITHIN: Duration = Duration::from_secs(2);
/// Events that another node may have this one send to its clients.
const NEWS_PREFIX: &str = "bridge.";
/// How much longer than its tool's own time a call at another node may take.
const ROUTE_TIME: Duration = Duration::from_secs(2);

/// The clients of other nodes, as this node knows them.
pub(crate) struct RemoteClients {
    known: Mutex<KnownClients>,
    changed: Notify,
    /// Events for the clients of other nodes, in order.
    news: mpsc::Sender<ForwardedEvent>,
    /// The receiving end, until the sending task takes it.
    waiting_news: Mutex<Option<mpsc::Receiver<ForwardedEvent>>>,
}

/// An event for the clients of other nodes.
struct ForwardedEvent {
    event: String,
    payload: Value,
    scope: String,
    workspace: WorkspaceId,
}

impl Default for RemoteClients {
    fn default() -> Self {
        let (news, waiting) = mpsc::channel(MAX_NEWS);
        Self { known: Mutex::default(), changed: Notify::new(), news, waiting_news: Mutex::new(Some(waiting)) }
    }
}

#[derive(Default)]
struct KnownClients {
    clients: Vec<Clients>,
    /// The node that has each offered tool, by the tool's id.
    tools: HashMap<Arc<str>, Owner>,
    /// The offers that were read, to see what changed.
    offers: BTreeMap<String, OfferFact>,
    revoked: Option<HashSet<(String, i64)>>,
}

/// The clients of a node, as other nodes read them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Clients {
    life: NodeLife,
    settings: SettingsFact,
    presence: Vec<PresenceFact>,
    approvers: Vec<ApproverFact>,
}

/// A client in the presence list of its workspace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PresenceFact {
    #[serde(flatten)]
    presence: Presence,
    #[serde(default, skip_serializing_if = "WorkspaceId::is_default")]
    workspace: WorkspaceId,
}

/// The settings that must be the same at all nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SettingsFact {
    version: String,
    /// A hash over the policies of all agents.
    policy: String,
}

impl SettingsFact {
    /// How another node's settings differ from these.
    fn differs(&self, other: &Self) -> Vec<String> {
        let parts = [("policy", self.policy != other.policy), ("version", self.version != other.version)];
        parts.into_iter().filter(|(_, differs)| *differs).map(|(part, _)| part.to_owned()).collect()
    }
}

/// A client that shows approvals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApproverFact {
    connection: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    scopes: Vec<String>,
    is_person: bool,
    exec: bool,
    plugin: bool,
    #[serde(default, skip_serializing_if = "WorkspaceId::is_default")]
    workspace: WorkspaceId,
}

/// The tools that one client offers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfferFact {
    life: NodeLife,
    tools: Vec<OfferedToolFact>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OfferedToolFact {
    session: String,
    definition: ToolDefinition,
}

/// A revocation, as other nodes read it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Revocation {
    at_ms: i64,
}

/// The result of reading the store once.
struct StoreScan {
    clients: Vec<Clients>,
    offers: BTreeMap<String, OfferFact>,
    revoked: HashSet<(String, i64)>,
}

fn written(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|error| StoreError::failed(error.to_string()))
}

/// The facts of a space that can be read.
fn read_all<T: DeserializeOwned>(store: &dyn Store, space: &str) -> Result<Vec<(String, T)>, StoreError> {
    let facts = store.list(space)?.into_iter();
    Ok(facts.filter_map(|(key, value)| Some((key, serde_json::from_slice(&value).ok()?))).collect())
}

/// Reads the entries of other nodes, and removes those of dead nodes.
fn look(store: &dyn Store) -> Result<StoreScan, StoreError> {
    let me = store.owner();
    let nodes = store.nodes()?;
    let is_alive = |life: &NodeLife| {
        let owner = life.owner();
        nodes.iter().any(|node| node.owner == owner && node.state != NodeState::Dead)
    };
    let (mut clients, mut offers) = (Vec::new(), BTreeMap::new());
    for (key, fact) in read_all::<Clients>(store, CLIENTS)? {
        match fact.life.owner() == me {
            true => {}
            false if is_alive(&fact.life) => clients.push(fact),
            false => drop(store.remove(CLIENTS, &key)?),
        }
    }
    for (key, fact) in read_all::<OfferFact>(store, OFFERS)? {
        match fact.life.owner() == me {
            true => {}
            false if is_alive(&fact.life) => drop(offers.insert(key, fact)),
            false => drop(store.remove(OFFERS, &key)?),
        }
    }
    let revoked = read_all::<Revocation>(store, REVOKED)?;
    let revoked = revoked.into_iter().map(|(device, revocation)| (device, revocation.at_ms)).collect();
    Ok(StoreScan { clients, offers, revoked })
}

impl RemoteClients {
    /// Something about this node's clients changed.
    pub(super) fn changed(&self) {
        self.changed.notify_one();
    }

    /// The clients of other nodes, for the presence list.
    pub(super) fn presence(&self, workspace: &WorkspaceId) -> Vec<Presence> {
        let known = lock(&self.known);
        let shown = known.clients.iter().flat_map(|clients| &clients.presence);
        shown.filter(|shown| shown.workspace == *workspace).map(|shown| shown.presence.clone()).collect()
    }

    /// Whether a client of another node shows approvals of a kind and passes a check.
    pub(crate) fn any_approver(&self, kind: &str, may: impl Fn(&Answerer<'_>) -> bool) -> bool {
        let known = lock(&self.known);
        let mut approvers = known.clients.iter().flat_map(|clients| &clients.approvers);
        approvers.any(|approver| {
            let shows = if kind == "exec" { approver.exec } else { approver.plugin };
            shows
                && may(&Answerer {
                    connection: &approver.connection,
                    device: approver.device.as_deref(),
                    scopes: &approver.scopes,
                    is_person: approver.is_person,
                    workspace: &approver.workspace,
                })
        })
    }
}

impl Hub {
    /// Whether several nodes use the store.
    fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.service().cluster()
    }

    /// Tells other nodes about this one's clients, and reads about theirs, until stopped.
    pub(super) async fn tell_others(self) {
        let Some(cluster) = self.cluster().cloned() else { return };
        let mut told = BTreeMap::new();
        loop {
            self.tell_clients(&cluster, &mut told).await;
            self.look_at_others().await;
            tokio::select! {
                () = self.inner.remote.changed.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.inner.stop.cancelled() => return,
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_PAUSE) => {}
                () = self.inner.stop.cancelled() => return,
            }
        }
    }

    /// Has the clients of other nodes receive an event.
    pub(crate) fn tell_everywhere(&self, workspace: &WorkspaceId, body: &EventBody, scope: &str) {
        if self.cluster().is_none() {
            return;
        }
        let payload = match serde_json::from_str(body.payload.get()) {
            Ok(payload) => payload,
            Err(error) => {
                tracing::error!(%error, event = body.name, "an event cannot be sent to other nodes");
                return self.inner.metrics.event_dropped();
            }
        };
        let news =
            ForwardedEvent { event: body.name.clone(), payload, scope: scope.to_owned(), workspace: workspace.clone() };
        if self.inner.remote.news.try_send(news).is_err() {
            self.inner.metrics.event_dropped();
        }
    }

    /// Sends events to other nodes, one after another, until stopped.
    pub(super) async fn send_news(self) {
        let Some(mut waiting) = lock(&self.inner.remote.waiting_news).take() else { return };
        let Some(cluster) = self.cluster().cloned() else { return };
        let Owner { node, .. } = cluster.me().clone();
        let sender = |workspace| Caller {
            door: Door::Internal,
            principal: format!("node:{node}"),
            agent: "main".to_owned(),
            session: None,
            scopes: Vec::new(),
            is_person: false,
            workspace,
        };
        loop {
            let ForwardedEvent { event, payload, scope, workspace } = tokio::select! {
                news = waiting.recv() => match news {
                    Some(news) => news,
                    None => return,
                },
                () = self.inner.stop.cancelled() => return,
            };
            let others = match cluster.others().await {
                Ok(others) => others,
                Err(failure) => {
                    tracing::warn!(error = %failure.message, event, "the clients of other nodes miss an event");
                    continue;
                }
            };
            let caller = Arc::new(sender(workspace));
            let mut asked = tokio::task::JoinSet::new();
            for other in others {
                let ask = Ask::Tell { event: event.clone(), payload: payload.clone(), scope: scope.clone() };
                let (cluster, caller) = (cluster.clone(), caller.clone());
                asked.spawn(async move { cluster.ask::<()>(&other.owner, &caller, ask, NEWS_WITHIN).await });
            }
            while let Some(told) = asked.join_next().await {
                if let Ok(Err(failure)) = told {
                    tracing::warn!(error = %failure.message, event, "the clients of another node miss an event");
                }
            }
        }
    }

    /// Sends an event of another node to the clients of this one.
    pub(crate) fn take_news(
        &self,
        workspace: &WorkspaceId,
        event: String,
        payload: &Value,
        scope: &str,
    ) -> Result<(), Failure> {
        if !event.starts_with(NEWS_PREFIX) {
            return Err(Failure::new(ErrorCode::PolicyDenied, "a node may send events of bridged sessions only"));
        }
        self.broadcast_in(workspace, EventBody::new(event, payload), |c| c.role == "operator" && c.has(scope));
        Ok(())
    }

    /// The facts about this node's clients, by space and key.
    fn facts(&self, cluster: &Cluster) -> Result<BTreeMap<(&'static str, String), Vec<u8>>, StoreError> {
        let life = NodeLife::from(cluster.me());
        let key = cluster.me().to_string();
        let mut facts = BTreeMap::new();
        for (connection, tools) in self.offered() {
            let offer = OfferFact { life: life.clone(), tools };
            facts.insert((OFFERS, format!("{key} {connection}")), written(&offer)?);
        }
        let (presence, approvers) = (self.own_presence(), self.own_approvers());
        let clients = Clients { life, settings: self.settings_fact(), presence, approvers };
        facts.insert((CLIENTS, key), written(&clients)?);
        Ok(facts)
    }

    fn settings_fact(&self) -> SettingsFact {
        let engine = self.service().engine();
        let mut agents = self.settings().agents.clone();
        agents.push(DEFAULT_AGENT.to_owned());
        agents.sort();
        agents.dedup();
        let policies = agents.into_iter().map(|agent| {
            let caller = Caller { door: Door::Gateway, agent, scopes: Vec::new(), is_person: false, ..Caller::cli("") };
            format!("{} {}\n", caller.agent, engine.policy_for(&caller).hash())
        });
        let policy = canonical::hex(&canonical::sha256(policies.collect::<String>().as_bytes()));
        SettingsFact { version: env!("CARGO_PKG_VERSION").to_owned(), policy }
    }

    /// Writes the facts that changed since they were written.
    async fn tell_clients(&self, cluster: &Cluster, told: &mut BTreeMap<(&'static str, String), Vec<u8>>) {
        let (store, before) = (self.service().engine().store().clone(), told.clone());
        let now = match self.facts(cluster) {
            Ok(now) => now,
            Err(error) => return tracing::error!(%error, "what other nodes are told cannot be written"),
        };
        if now == before {
            return;
        }
        let wanted = now.clone();
        let write = move || -> Result<(), StoreError> {
            for ((space, key), value) in wanted.iter().filter(|(place, value)| before.get(*place) != Some(*value)) {
                store.put(space, key, value.clone(), None)?;
            }
            for (space, key) in before.keys().filter(|place| !wanted.contains_key(*place)) {
                store.remove(space, key)?;
            }
            Ok(())
        };
        match tokio::task::spawn_blocking(write).await {
            Ok(Ok(())) => *told = now,
            Ok(Err(error)) => tracing::warn!(%error, "other nodes cannot be told about the clients of this one"),
            Err(error) => tracing::error!(%error, "telling other nodes failed unexpectedly"),
        }
    }

    async fn look_at_others(&self) {
        let store = self.service().engine().store().clone();
        let look = match tokio::task::spawn_blocking(move || look(&*store)).await {
            Ok(Ok(look)) => look,
            Ok(Err(error)) => return tracing::warn!(%error, "the clients of other nodes cannot be read"),
            Err(error) => return tracing::error!(%error, "reading about other nodes failed unexpectedly"),
        };
        let StoreScan { clients, offers, revoked } = look;
        if let Some(cluster) = self.cluster() {
            let mine = self.settings_fact();
            let differing = clients
                .iter()
                .map(|other| DifferingNode { node: other.life.node.clone(), differs: mine.differs(&other.settings) });
            cluster.note_differing(differing.filter(|node| !node.differs.is_empty()).collect());
        }
        let (offers_changed, new_revocations, presence_changed) = {
            let mut known = lock(&self.inner.remote.known);
            let offers_changed = known.offers != offers;
            let presence = |clients: &[Clients]| clients.iter().map(|node| node.presence.len()).collect::<Vec<_>>();
            let presence_changed = presence(&known.clients) != presence(&clients);
            known.clients = clients;
            // What was revoked before this node looked for the first time has no connection here.
            let new: Vec<String> = match &known.revoked {
                Some(before) => revoked.difference(before).map(|(device, _)| device.clone()).collect(),
                None => Vec::new(),
            };
            known.revoked = Some(revoked);
            (offers_changed, new, presence_changed)
        };
        for device in new_revocations {
            self.close_device(&device);
        }
        if offers_changed {
            self.take_offers(offers);
        }
        if presence_changed {
            self.presence_changed();
        }
    }

    /// Puts the tools that clients of other nodes offer into the catalog.
    fn take_offers(&self, offers: BTreeMap<String, OfferFact>) {
        let engine = self.service().engine();
        let out: Vec<Arc<str>> = lock(&self.inner.remote.known).tools.keys().cloned().collect();
        let provider = Arc::new(RemoteTools(self.downgrade()));
        let removed = ToolExchange { out, entries: Vec::new(), provider: provider.clone() };
        if let Err(error) = engine.exchange(vec![removed]) {
            return tracing::error!(%error, "the tools of other nodes' clients could not be removed");
        }
        let mut tools = HashMap::new();
        for fact in offers.values() {
            for OfferedToolFact { session, definition } in &fact.tools {
                let name = definition.name.clone();
                let entry = ToolEntry::new(definition.clone(), ToolSource::client());
                let entry = entry.map(|entry| entry.with_session(session.as_str()));
                let id = entry.as_ref().ok().map(|entry| entry.shared_id().clone());
                let added = entry.and_then(|entry| engine.register(vec![entry], provider.clone()));
                match (added, id) {
                    (Ok(()), Some(id)) => drop(tools.insert(id, fact.life.owner())),
                    (Err(error), _) => {
                        tracing::warn!(%error, tool = %name, "a tool that a client of another node offers is left out");
                    }
                    (Ok(()), None) => {}
                }
            }
        }
        let mut known = lock(&self.inner.remote.known);
        known.tools = tools;
        known.offers = offers;
    }

    /// Has other nodes close their connections of a device, and closes those of this one.
    pub(super) async fn revoke_everywhere(&self, device_id: &str) {
        self.close_device(device_id);
        if self.cluster().is_none() {
            return;
        }
        let (engine, key) = (self.service().engine(), device_id.to_owned());
        let (store, now) = (engine.store().clone(), engine.clock().now());
        let until = now.checked_add(REVOCATION_LIFE).ok();
        let write = move || -> Result<(), StoreError> {
            store.put(REVOKED, &key, written(&Revocation { at_ms: now.as_millisecond() })?, until).map(|_| ())
        };
        match tokio::task::spawn_blocking(write).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, device_id, "other nodes were not told that a device was revoked"),
            Err(error) => tracing::error!(%error, "telling other nodes failed unexpectedly"),
        }
    }

    fn close_device(&self, device_id: &str) {
        for connection in self.read_connections().values() {
            if connection.device.as_deref() == Some(device_id) {
                connection.outbox.send(OutboxItem::Close(1008, "device token revoked".to_owned()));
            }
        }
    }

    fn own_presence(&self) -> Vec<PresenceFact> {
        let connections = self.read_connections();
        let mut shown: Vec<&Arc<Connection>> = connections.values().filter(|c| c.is_shown()).collect();
        shown.sort_by(|a, b| b.online_since.cmp(&a.online_since).then_with(|| a.id.cmp(&b.id)));
        shown.truncate(super::MAX_SHOWN);
        let fact = |c: &Arc<Connection>| PresenceFact { presence: c.presence(), workspace: c.workspace.clone() };
        shown.into_iter().map(fact).collect()
    }

    fn own_approvers(&self) -> Vec<ApproverFact> {
        let connections = self.read_connections();
        let mut approvers: Vec<ApproverFact> = connections
            .values()
            .map(|connection| ApproverFact {
                connection: connection.id.clone(),
                device: connection.device.clone(),
                scopes: connection.scopes.clone(),
                is_person: connection.standing().is_person,
                exec: connection.shows_approvals("exec"),
                plugin: connection.shows_approvals("plugin"),
                workspace: connection.workspace.clone(),
            })
            .filter(|approver| approver.exec || approver.plugin)
            .collect();
        approvers.sort_by(|a, b| a.connection.cmp(&b.connection));
        approvers.truncate(MAX_APPROVERS);
        approvers
    }

    /// The tools that clients of this node offer, by connection.
    fn offered(&self) -> BTreeMap<String, Vec<OfferedToolFact>> {
        let tools = self.service().engine().tools();
        let mut offered: BTreeMap<String, Vec<OfferedToolFact>> = BTreeMap::new();
        for (connection, id) in self.offered_ids() {
            let Some(entry) = tools.snapshot.with_id(&id).and_then(|at| tools.snapshot.at(at)) else { continue };
            let fact = OfferedToolFact {
                session: entry.session().unwrap_or_default().to_owned(),
                definition: ToolDefinition::clone(entry.definition()),
            };
            offered.entry(connection).or_default().push(fact);
        }
        for tools in offered.values_mut() {
            tools.sort_by(|a, b| a.definition.name.as_str().cmp(b.definition.name.as_str()));
        }
        offered
    }

    /// Runs a tool of a client of this node for a caller of another one.
    pub(crate) async fn call_offered(&self, caller: &Caller, call: OfferedCall) -> Result<Value, Failure> {
        let engine = self.service().engine();
        let tools = engine.tools();
        let unknown = || Failure::new(ErrorCode::NotFound, format!("no client here offers {}", call.tool));
        let entry = tools.snapshot.get(call.tool.as_str()).filter(|entry| entry.source().kind == SourceKind::Client);
        let entry = entry.ok_or_else(unknown)?;
        // The pipeline of the other node has decided about the call; a caller that may not see the tool here is refused.
        if let toolyard_catalog::Decision::Deny { .. } = engine.policy_for(caller).decide(entry, None) {
            return Err(unknown());
        }
        let client = self.offered_by(call.tool.as_str()).ok_or_else(unknown)?;
        let tool = call.tool.clone();
        let outcome = self.ask_client(&client, caller.session.as_deref(), call).await;
        outcome.map_err(|why| why.failure("the client", tool.as_str()))
    }
}

/// Runs tools that clients of other nodes offer, by asking those nodes.
struct RemoteTools(WeakHub);

impl RemoteTools {
    async fn ask(&self, context: &CallContext, call: &ToolCall) -> Result<Value, Failure> {
        let gone = || RequestError::Nobody.failure("the client", call.tool.as_str());
        let hub = self.0.upgrade().ok_or_else(gone)?;
        let cluster = hub.cluster().ok_or_else(gone)?;
        let owner = {
            let tools = hub.service().engine().tools();
            let entry = tools.snapshot.get(call.tool.as_str()).ok_or_else(gone)?;
            lock(&hub.inner.remote.known).tools.get(entry.id()).cloned()
        };
        let owner = owner.ok_or_else(gone)?;
        let timeout_ms = call.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
        let ask = Ask::CallOffered(OfferedCall {
            tool: call.tool.clone(),
            args: call.args.as_ref().clone(),
            call_id: call.call_id,
            run_id: call.run_id,
            timeout_ms,
        });
        let within = Duration::from_millis(timeout_ms) + ROUTE_TIME;
        cluster.ask(&owner, &context.caller, ask, within).await
    }
}

impl Provider for RemoteTools {
    fn execute<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async move {
            match self.ask(context, call).await {
                Ok(Value::Object(data)) => Ok(Output::data(data)),
                Ok(_) => Err(Failure::new(ErrorCode::InternalError, "the client's output is no object").into()),
                Err(failure) => Err(failure.into()),
            }
        })
    }
}
