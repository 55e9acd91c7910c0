//! [`Gateway`]: what all network connections share. Connections, their queues, places and what they are told have a file
//! each.
//!
//! Nothing here waits for a client: what is sent to one goes into its queue, which is bounded in bytes; a client that
//! lets it fill is closed.

mod connection;
mod news;
mod offers;
mod outbox;
mod places;
mod questions;

pub(crate) use connection::{Admitted, ClientInfo, Connection, NodeSurface};
pub(crate) use offers::NotOffered;
use offers::Offers;
pub(crate) use outbox::{Out, Outgoing};
pub use places::Lane;
pub(crate) use places::{Permit, Place, QueuedPlace, Share};
use questions::Questions;
pub use questions::Unanswered;

use crate::{
    admission::{body::Bodies, seats::Seats},
    auth::{Guesses, Secret},
    bridge::Bridge,
    devices::Devices,
    methods::Service,
    metrics::Metrics,
    mount::{Endpoint, Mount},
    pulse::Pulse,
    rpc::health::HealthCache,
    settings::Settings,
    writes::Writes,
    ws::{frame::EventBody, heard::LastHeard},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use toolyard_engine::redact::redactor;

/// Presence lists name at most this many clients, the newest: it is a list for people, and everybody gets it.
const MAX_SHOWN: usize = 100;

/// What all network connections share. Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    pub(crate) inner: Arc<Inner>,
}

/// A Gateway that may be gone: for what the Gateway itself holds on to.
pub struct WeakGateway(Weak<Inner>);

impl WeakGateway {
    /// The Gateway, if it is still there.
    pub fn upgrade(&self) -> Option<Gateway> {
        self.0.upgrade().map(|inner| Gateway { inner })
    }
}

pub(crate) struct Inner {
    pub(crate) service: Service,
    pub(crate) settings: Settings,
    pub(crate) devices: Arc<Devices>,
    pub(crate) secret: Secret,
    pub(crate) guesses: Guesses,
    pub(crate) seats: Arc<Seats>,
    pub(crate) bodies: Arc<Bodies>,
    pub(crate) writes: Writes,
    pub(crate) metrics: Metrics,
    pub(crate) pulse: Pulse,
    pub(crate) health: HealthCache,
    pub(crate) boot_id: String,
    pub(crate) instance_id: String,
    pub(crate) stop: CancellationToken,
    pub(crate) bridge: Bridge,
    pub(crate) questions: Questions,
    offers: Offers,
    places: places::Places,
    connections: RwLock<HashMap<String, Arc<Connection>>>,
    presence_version: AtomicU64,
    presence_changed: Notify,
    health_version: AtomicU64,
    mounts: RwLock<Vec<Mount>>,
}

impl Gateway {
    /// Makes the shared state and starts what keeps it current. Must be called inside a tokio runtime.
    pub fn new(service: Service, settings: Settings, stop: CancellationToken) -> Self {
        redactor().learn(&settings.token);
        let devices = service.devices().clone();
        let inner = Arc::new(Inner {
            secret: Secret::new(&settings.token),
            guesses: Guesses::new(settings.rate_limit.clone()),
            seats: Seats::new(),
            bodies: Arc::default(),
            writes: Writes::default(),
            metrics: Metrics::default(),
            pulse: Pulse::default(),
            health: HealthCache::default(),
            boot_id: uuid::Uuid::now_v7().to_string(),
            instance_id: uuid::Uuid::now_v7().to_string(),
            bridge: Bridge::new(settings.bridge_buffer),
            questions: Questions::default(),
            offers: Offers::default(),
            places: places::Places::default(),
            connections: RwLock::default(),
            presence_version: AtomicU64::new(1),
            presence_changed: Notify::new(),
            health_version: AtomicU64::new(1),
            mounts: RwLock::default(),
            service,
            settings,
            devices,
            stop,
        });
        let gateway = Self { inner };
        if let Err(error) = crate::rpc::sessions::ensure_main(gateway.service().engine().store()) {
            tracing::error!(%error, "the main session cannot be made");
        }
        gateway.restore_bridge();
        gateway.start_telling();
        gateway
    }

    /// The same Gateway, not kept alive by whoever holds this.
    pub fn downgrade(&self) -> WeakGateway {
        WeakGateway(Arc::downgrade(&self.inner))
    }

    /// Adds an endpoint at a path. Its rule says who may call it.
    pub fn mount(&self, path: &'static str, endpoint: Arc<dyn Endpoint>) {
        let mut mounts = self.inner.mounts.write().unwrap_or_else(PoisonError::into_inner);
        mounts.push(Mount { path, endpoint, tree: false });
    }

    /// Adds an endpoint at a path and everything below it. Its rule says who may call it.
    pub fn mount_tree(&self, path: &'static str, endpoint: Arc<dyn Endpoint>) {
        let mut mounts = self.inner.mounts.write().unwrap_or_else(PoisonError::into_inner);
        mounts.push(Mount { path, endpoint, tree: true });
    }

    pub(crate) fn mounted(&self, path: &str) -> Option<Mount> {
        let mounts = self.inner.mounts.read().unwrap_or_else(PoisonError::into_inner);
        mounts.iter().find(|mount| mount.serves(path)).cloned()
    }

    pub(crate) fn service(&self) -> &Service {
        &self.inner.service
    }
    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Takes a client in.
    pub(crate) fn admit(&self, admitted: Admitted, heard: LastHeard) -> (Arc<Connection>, Outgoing) {
        let (mut connection, outgoing) = Connection::new(admitted, heard, self.inner.stop.child_token());
        if connection.shows_approvals("exec") || connection.shows_approvals("plugin") {
            connection.approver = Some(self.service().engine().approvals().approver_connected());
        }
        let connection = Arc::new(connection);
        self.write_connections().insert(connection.id.clone(), connection.clone());
        self.inner.metrics.connected();
        if connection.is_shown() {
            self.presence_changed();
        }
        (connection, outgoing)
    }

    /// Lets a client go.
    pub(crate) fn dismiss(&self, connection: &Arc<Connection>) {
        self.write_connections().remove(&connection.id);
        connection.stop.cancel();
        self.inner.questions.gone(connection);
        self.withdraw(connection);
        self.inner.metrics.disconnected();
        if connection.is_shown() {
            self.presence_changed();
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.read_connections().len()
    }

    /// Whether a connection is there that fits.
    pub(crate) fn any(&self, wanted: impl Fn(&Connection) -> bool) -> bool {
        self.read_connections().values().any(|c| wanted(c))
    }

    /// Connections of nodes, the oldest first.
    pub(crate) fn nodes(&self) -> Vec<Arc<Connection>> {
        let mut nodes: Vec<_> = self.read_connections().values().filter(|c| c.node.is_some()).cloned().collect();
        nodes.sort_by(|a, b| a.online_since.cmp(&b.online_since).then_with(|| a.id.cmp(&b.id)));
        nodes
    }

    /// Sends an event to every connection that fits.
    pub(crate) fn broadcast(&self, body: EventBody, wanted: impl Fn(&Connection) -> bool) {
        let body = Arc::new(body);
        for connection in self.read_connections().values() {
            if wanted(connection) && !connection.outbox.event(&body) {
                self.inner.metrics.event_dropped();
            }
        }
    }

    /// Everybody who is here, this gateway first.
    pub(crate) fn presence(&self) -> Vec<Value> {
        let system = rustix::system::uname();
        let word = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let (host, version) = (word(system.nodename()), env!("CARGO_PKG_VERSION"));
        let mut own = json!({
            "host": host, "version": version,
            "platform": format!("{} {}", std::env::consts::OS, word(system.release())),
            "deviceFamily": word(system.sysname()), "mode": "gateway", "reason": "self",
            "instanceId": self.inner.instance_id,
            "text": format!("Gateway: {host} · app {version} · mode gateway · reason self"),
            "ts": Timestamp::now().as_millisecond(),
        });
        if let Some(address) = self.settings().address {
            own["ip"] = address.to_string().into();
        }
        let connections = self.read_connections();
        let mut others: Vec<&Arc<Connection>> = connections.values().filter(|c| c.is_shown()).collect();
        if others.len() > MAX_SHOWN {
            let rest = others.len() - MAX_SHOWN;
            others.select_nth_unstable_by_key(rest, |c| c.online_since);
            others.drain(..rest);
        }
        others.sort_by_key(|c| c.online_since);
        std::iter::once(own).chain(others.into_iter().map(|c| c.presence())).collect()
    }

    pub(crate) fn versions(&self) -> (u64, u64) {
        (self.inner.presence_version.load(Ordering::Acquire), self.inner.health_version.load(Ordering::Acquire))
    }

    fn presence_changed(&self) {
        self.inner.presence_version.fetch_add(1, Ordering::AcqRel);
        self.inner.presence_changed.notify_one();
    }

    fn read_connections(&self) -> std::sync::RwLockReadGuard<'_, HashMap<String, Arc<Connection>>> {
        self.inner.connections.read().unwrap_or_else(PoisonError::into_inner)
    }
    fn write_connections(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<String, Arc<Connection>>> {
        self.inner.connections.write().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
