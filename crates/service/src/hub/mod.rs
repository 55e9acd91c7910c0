//! [`Hub`]: what the clients of network doors share. Connections, their queues and their events each have a file.
//!
//! Nothing here waits for a client: frames go into the client's queue, which is bounded in bytes, and a client whose
//! queue is full is closed. This module has no sockets: a door takes frames from the queue and writes them.

mod activity;
mod connection;
mod event;
mod news;
mod offers;
mod outbox;
mod questions;
mod remote;

pub use activity::LastActivity;
pub use connection::{Admitted, ClientInfo, Connection, NodeSurface, OwnPresence, Presence, PresenceEntry};
pub use event::{EventBody, Versions};
pub(crate) use offers::OfferError;
use offers::Offers;
pub use outbox::{Outbox, OutboxItem, Outgoing};
use questions::Questions;
pub use questions::RequestError;
use remote::RemoteClients;

pub use crate::settings::MAX_BUFFERED_BYTES;

use crate::{
    HubSettings, Service, bridge::Bridge, console::Feed, health::HealthCache, load_monitor::LoadMonitor,
    metrics::Metrics,
};
use jiff::Timestamp;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use toolyard_protocol::WorkspaceId;

/// The largest number of clients in a presence list, newest first. The list is for people, and every client receives
/// it.
const MAX_SHOWN: usize = 100;

/// What network clients share. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    pub(crate) inner: Arc<Inner>,
}

/// A weak reference to a Hub, for objects that the Hub owns.
pub struct WeakHub(Weak<Inner>);

impl WeakHub {
    /// The Hub, if it still exists.
    pub fn upgrade(&self) -> Option<Hub> {
        self.0.upgrade().map(|inner| Hub { inner })
    }
}

pub(crate) struct Inner {
    pub(crate) service: Service,
    pub(crate) settings: HubSettings,
    pub(crate) metrics: Metrics,
    pub(crate) load_monitor: LoadMonitor,
    pub(crate) health: HealthCache,
    pub(crate) instance_id: String,
    pub(crate) stop: CancellationToken,
    pub(crate) bridge: Bridge,
    pub(crate) questions: Questions,
    pub(crate) feed: Feed,
    offers: Offers,
    pub(crate) remote: RemoteClients,
    connections: RwLock<HashMap<String, Arc<Connection>>>,
    presence_version: AtomicU64,
    presence_changed: Notify,
    health_version: AtomicU64,
}

impl Hub {
    /// Creates the shared state and starts the tasks that keep it current. Must be called inside a tokio runtime.
    pub fn new(service: Service, settings: HubSettings, stop: CancellationToken) -> Self {
        let inner = Arc::new(Inner {
            metrics: Metrics::default(),
            load_monitor: LoadMonitor::default(),
            health: HealthCache::default(),
            instance_id: uuid::Uuid::now_v7().to_string(),
            bridge: Bridge::new(settings.bridge_buffer),
            questions: Questions::default(),
            feed: Feed::default(),
            offers: Offers::default(),
            remote: RemoteClients::default(),
            connections: RwLock::default(),
            presence_version: AtomicU64::new(1),
            presence_changed: Notify::new(),
            health_version: AtomicU64::new(1),
            service,
            settings,
            stop,
        });
        let hub = Self { inner };
        if let Err(error) = crate::sessions::ensure_main(hub.service().engine().store(), &WorkspaceId::default()) {
            tracing::error!(%error, "the main session cannot be made");
        }
        hub.restore_bridge();
        hub.start_telling();
        hub
    }

    /// A weak reference, which does not keep the Hub alive.
    pub fn downgrade(&self) -> WeakHub {
        WeakHub(Arc::downgrade(&self.inner))
    }

    /// The application.
    pub fn service(&self) -> &Service {
        &self.inner.service
    }

    /// What an operator set.
    pub fn settings(&self) -> &HubSettings {
        &self.inner.settings
    }

    /// The counters that `/metrics` reports.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// How late this process is with its own work.
    pub fn load_monitor(&self) -> &LoadMonitor {
        &self.inner.load_monitor
    }

    /// The token that stops all work for clients.
    pub fn stop(&self) -> &CancellationToken {
        &self.inner.stop
    }

    /// Adds a client.
    pub fn admit(&self, admitted: Admitted, heard: LastActivity) -> (Arc<Connection>, Outgoing) {
        let (mut connection, outgoing) = Connection::new(admitted, heard, self.inner.stop.child_token());
        if connection.shows_approvals("exec") || connection.shows_approvals("plugin") {
            connection.approver = Some(self.service().engine().approvals().approver_connected(&connection.workspace));
        }
        let connection = Arc::new(connection);
        if connection.approver.is_some() {
            self.inner.remote.changed();
        }
        self.write_connections().insert(connection.id.clone(), connection.clone());
        self.inner.metrics.connected();
        if connection.is_shown() {
            self.presence_changed();
        }
        (connection, outgoing)
    }

    /// Removes a client.
    pub fn dismiss(&self, connection: &Arc<Connection>) {
        self.write_connections().remove(&connection.id);
        connection.stop.cancel();
        self.inner.questions.gone(connection);
        self.withdraw(connection);
        self.inner.metrics.disconnected();
        self.inner.remote.changed();
        if connection.is_shown() {
            self.presence_changed();
        }
    }

    /// The number of connected clients.
    pub fn count(&self) -> usize {
        self.read_connections().len()
    }

    /// Whether a matching connection exists.
    pub(crate) fn any(&self, wanted: impl Fn(&Connection) -> bool) -> bool {
        self.read_connections().values().any(|c| wanted(c))
    }

    /// Connections of a workspace's nodes, the oldest first.
    pub(crate) fn nodes(&self, workspace: &WorkspaceId) -> Vec<Arc<Connection>> {
        let is_one = |c: &&Arc<Connection>| c.node.is_some() && c.workspace == *workspace;
        let mut nodes: Vec<_> = self.read_connections().values().filter(is_one).cloned().collect();
        nodes.sort_by(|a, b| a.online_since.cmp(&b.online_since).then_with(|| a.id.cmp(&b.id)));
        nodes
    }

    /// The number of clients of a workspace that are connected.
    pub(crate) fn count_of(&self, workspace: &WorkspaceId) -> usize {
        self.read_connections().values().filter(|c| c.workspace == *workspace).count()
    }

    /// The workspaces of the clients that are connected.
    pub(super) fn connected_workspaces(&self) -> BTreeSet<WorkspaceId> {
        self.read_connections().values().map(|c| c.workspace.clone()).collect()
    }

    /// Sends an event to every matching connection of a workspace.
    pub(crate) fn broadcast_in(&self, workspace: &WorkspaceId, body: EventBody, wanted: impl Fn(&Connection) -> bool) {
        self.broadcast(body, |c| c.workspace == *workspace && wanted(c));
    }

    /// Sends an event to every matching connection, whatever its workspace.
    fn broadcast(&self, body: EventBody, wanted: impl Fn(&Connection) -> bool) {
        let body = Arc::new(body);
        for connection in self.read_connections().values() {
            if wanted(connection) && !connection.outbox.event(&body) {
                self.inner.metrics.event_dropped();
            }
        }
    }

    /// This gateway and all connected clients of a workspace.
    pub fn presence(&self, workspace: &WorkspaceId) -> Vec<PresenceEntry> {
        let system = rustix::system::uname();
        let word = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let (host, version) = (word(system.nodename()), env!("CARGO_PKG_VERSION"));
        let own = OwnPresence {
            version,
            platform: format!("{} {}", std::env::consts::OS, word(system.release())),
            device_family: word(system.sysname()),
            mode: "gateway",
            reason: "self",
            instance_id: self.inner.instance_id.clone(),
            text: format!("Gateway: {host} · app {version} · mode gateway · reason self"),
            ts: Timestamp::now().as_millisecond(),
            ip: self.settings().address.map(|address| address.to_string()),
            host,
        };
        let connections = self.read_connections();
        let mut others: Vec<&Arc<Connection>> =
            connections.values().filter(|c| c.is_shown() && c.workspace == *workspace).collect();
        if others.len() > MAX_SHOWN {
            let rest = others.len() - MAX_SHOWN;
            others.select_nth_unstable_by_key(rest, |c| c.online_since);
            others.drain(..rest);
        }
        others.sort_by_key(|c| c.online_since);
        let others = others.into_iter().map(|c| c.presence()).chain(self.inner.remote.presence(workspace));
        let others = others.map(|presence| PresenceEntry::Client(Box::new(presence)));
        std::iter::once(PresenceEntry::Own(own)).chain(others).collect()
    }

    /// The versions of presence and health.
    pub fn versions(&self) -> Versions {
        Versions {
            presence: self.inner.presence_version.load(Ordering::Acquire),
            health: self.inner.health_version.load(Ordering::Acquire),
        }
    }

    fn presence_changed(&self) {
        self.inner.remote.changed();
        self.inner.presence_version.fetch_add(1, Ordering::AcqRel);
        self.inner.presence_changed.notify_one();
    }

    fn read_connections(&self) -> RwLockReadGuard<'_, HashMap<String, Arc<Connection>>> {
        self.inner.connections.read().unwrap_or_else(PoisonError::into_inner)
    }
    fn write_connections(&self) -> RwLockWriteGuard<'_, HashMap<String, Arc<Connection>>> {
        self.inner.connections.write().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
