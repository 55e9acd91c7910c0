//! [`Gateway`]: what all network connections share, and [`Connection`], one of them.
//!
//! Nothing here waits for a client: what is sent to one goes into its queue, which is bounded in bytes; a client that
//! lets it fill is closed.

use crate::{
    auth::Guesses,
    devices::{DeviceEvent, Devices},
    methods::Service,
    metrics::Metrics,
    mount::{Endpoint, Mount},
    pulse::Pulse,
    settings::{
        HEALTH_EVERY, MAX_BUFFERED_BYTES, MAX_PREAUTH_PER_ADDRESS, MAX_RUNNING_REQUESTS, MAX_WAITING_BYTES,
        MAX_WAITING_REQUESTS, PONG_WITHIN, SLOW_BYTES, Settings,
    },
    ws::frame::EventBody,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use toolyard_engine::{
    Caller, Door,
    approvals::{ApprovalEvent, ApproverPresence},
};

/// Clients whose purpose is to show approvals, whatever capabilities they name.
const APPROVER_CLIENTS: [&str; 7] = [
    "openclaw-control-ui",
    "webchat-ui",
    "openclaw-tui",
    "openclaw-macos",
    "openclaw-linux",
    "openclaw-ios",
    "openclaw-android",
];

/// Presence is told at most this often.
const PRESENCE_PAUSE: Duration = Duration::from_millis(250);

/// What all network connections share. Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) service: Service,
    pub(crate) settings: Settings,
    pub(crate) devices: Arc<Devices>,
    pub(crate) guesses: Guesses,
    pub(crate) metrics: Metrics,
    pub(crate) pulse: Pulse,
    pub(crate) boot_id: String,
    pub(crate) instance_id: String,
    pub(crate) stop: CancellationToken,
    connections: RwLock<HashMap<String, Arc<Connection>>>,
    presence_version: AtomicU64,
    presence_changed: Notify,
    health_version: AtomicU64,
    preauth: Mutex<HashMap<IpAddr, usize>>,
    running: Arc<Semaphore>,
    waiting: AtomicUsize,
    waiting_bytes: AtomicUsize,
    mounts: RwLock<Vec<Mount>>,
}

/// Who a client says it is; shown, never trusted.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientInfo {
    pub(crate) id: String,
    pub(crate) mode: String,
    pub(crate) version: String,
    pub(crate) platform: String,
    pub(crate) device_family: Option<String>,
    pub(crate) display_name: Option<String>,
    pub(crate) instance_id: Option<String>,
}

/// One client that is in.
pub(crate) struct Connection {
    pub(crate) id: String,
    pub(crate) client: ClientInfo,
    pub(crate) role: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) caps: Vec<String>,
    pub(crate) device: Option<String>,
    pub(crate) address: IpAddr,
    pub(crate) principal: String,
    pub(crate) outbox: Outbox,
    pub(crate) stop: CancellationToken,
    pub(crate) in_flight: AtomicUsize,
    pub(crate) online_since: i64,
    last_seen: Mutex<Instant>,
    calls: Mutex<HashMap<String, CancellationToken>>,
    pub(crate) watches: Mutex<HashMap<String, CancellationToken>>,
    _approver: Option<ApproverPresence>,
}

/// Something on its way to a client.
pub(crate) enum Out {
    /// A whole frame.
    Frame(String),
    /// An event; its number is given when it is written.
    Event(Arc<EventBody>),
    /// A WebSocket ping.
    Ping,
    /// The end.
    Close(u16, String),
}

/// A client's queue, bounded in bytes.
pub(crate) struct Outbox {
    sender: mpsc::UnboundedSender<Out>,
    queued: Arc<AtomicUsize>,
    /// Fires when the client lets its queue fill.
    pub(crate) overflow: CancellationToken,
}

/// The writing end's view of a queue.
pub(crate) struct Outgoing {
    pub(crate) receiver: mpsc::UnboundedReceiver<Out>,
    queued: Arc<AtomicUsize>,
}

impl Outbox {
    pub(crate) fn new() -> (Self, Outgoing) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        (Self { sender, queued: queued.clone(), overflow: CancellationToken::new() }, Outgoing { receiver, queued })
    }

    pub(crate) fn send(&self, out: Out) {
        let weight = out.weight();
        if self.queued.fetch_add(weight, Ordering::AcqRel) + weight > MAX_BUFFERED_BYTES {
            self.queued.fetch_sub(weight, Ordering::AcqRel);
            self.overflow.cancel();
            return;
        }
        if self.sender.send(out).is_err() {
            self.queued.fetch_sub(weight, Ordering::AcqRel);
        }
    }

    /// False when it was dropped because much is unread.
    pub(crate) fn event(&self, body: &Arc<EventBody>) -> bool {
        if body.drop_if_slow && self.queued.load(Ordering::Acquire) > SLOW_BYTES {
            return false;
        }
        self.send(Out::Event(body.clone()));
        true
    }
}

impl Outgoing {
    /// What was taken out has been written.
    pub(crate) fn written(&self, weight: usize) {
        self.queued.fetch_sub(weight, Ordering::AcqRel);
    }
}

impl Out {
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Frame(text) => text.len(),
            Self::Event(body) => body.weight(),
            Self::Ping => 8,
            Self::Close(_, reason) => reason.len() + 8,
        }
    }
}

/// What the handshake found out about a client.
pub(crate) struct Admitted {
    pub(crate) id: String,
    pub(crate) client: ClientInfo,
    pub(crate) role: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) caps: Vec<String>,
    pub(crate) device: Option<String>,
    pub(crate) address: IpAddr,
}

impl Connection {
    /// The caller that requests of this connection act as, in a session.
    pub(crate) fn caller(&self, agent: &str, session: Option<String>) -> Arc<Caller> {
        Arc::new(Caller {
            door: Door::Gateway,
            principal: self.principal.clone(),
            agent: agent.to_owned(),
            session,
            scopes: self.scopes.clone(),
            is_person: false,
        })
    }

    pub(crate) fn has(&self, scope: &str) -> bool {
        has_scope(&self.scopes, scope)
    }

    /// Whether this client shows approvals of a kind and may decide them.
    pub(crate) fn shows_approvals(&self, kind: &str) -> bool {
        self.role == "operator"
            && self.has("operator.approvals")
            && (APPROVER_CLIENTS.contains(&self.client.id.as_str())
                || self.caps.iter().any(|cap| {
                    cap == "approvals"
                        || (cap == "exec-approvals" && kind == "exec")
                        || (cap == "plugin-approvals" && kind != "exec")
                }))
    }

    pub(crate) fn seen(&self) {
        *lock(&self.last_seen) = Instant::now();
    }

    /// Keeps a call's token findable by its request id.
    pub(crate) fn start_call(&self, request_id: &str, token: CancellationToken) {
        lock(&self.calls).insert(request_id.to_owned(), token);
    }
    pub(crate) fn end_call(&self, request_id: &str) {
        lock(&self.calls).remove(request_id);
    }
    pub(crate) fn cancel_call(&self, request_id: &str) -> bool {
        let token = lock(&self.calls).get(request_id).cloned();
        token.is_some_and(|token| {
            token.cancel();
            true
        })
    }

    /// Backend clients without a device are machinery and are not shown.
    fn is_shown(&self) -> bool {
        self.device.is_some() || self.client.mode != "backend"
    }

    fn presence(&self) -> Value {
        let mut entry = json!({
            "host": self.client.display_name.clone().unwrap_or_else(|| self.client.id.clone()),
            "ip": self.address.to_string(), "version": self.client.version, "platform": self.client.platform,
            "mode": self.client.mode, "reason": "connect", "roles": [self.role], "scopes": self.scopes,
            "onlineSince": self.online_since, "ts": self.online_since,
            "text": format!("Node: {} ({}) · app {} · mode {}", self.client.id, self.address, self.client.version, self.client.mode),
        });
        if let Some(family) = self.client.device_family.as_ref().filter(|f| !f.is_empty()) {
            entry["deviceFamily"] = family.as_str().into();
        }
        if let Some(id) = &self.device {
            entry["deviceId"] = id.as_str().into();
        }
        if let Some(id) = self.client.instance_id.as_ref().filter(|i| !i.is_empty()) {
            entry["instanceId"] = id.as_str().into();
        }
        entry
    }
}

/// Whether scopes include one: admin includes all, write includes read and talk.
pub(crate) fn has_scope(scopes: &[String], wanted: &str) -> bool {
    scopes.iter().any(|held| {
        held == wanted
            || (held == "operator.admin" && wanted.starts_with("operator."))
            || (held == "operator.write" && matches!(wanted, "operator.read" | "operator.talk"))
    })
}

/// A place among the requests under way.
pub(crate) enum Place {
    /// It may start.
    Now(OwnedSemaphorePermit),
    /// It waits its turn.
    Queued(QueuedPlace),
}

/// A place in the queue, given back when dropped.
pub(crate) struct QueuedPlace {
    inner: Arc<Inner>,
    bytes: usize,
}

impl QueuedPlace {
    pub(crate) async fn turn(self) -> Option<OwnedSemaphorePermit> {
        self.inner.running.clone().acquire_owned().await.ok()
    }
}

impl Drop for QueuedPlace {
    fn drop(&mut self) {
        self.inner.waiting.fetch_sub(1, Ordering::AcqRel);
        self.inner.waiting_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Counts a connection that has not shown a credential yet.
pub(crate) struct Unproven {
    inner: Arc<Inner>,
    address: IpAddr,
}

impl Drop for Unproven {
    fn drop(&mut self) {
        let mut preauth = lock(&self.inner.preauth);
        if let Some(count) = preauth.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                preauth.remove(&self.address);
            }
        }
    }
}

impl Gateway {
    /// Makes the shared state and starts what keeps it current. Must be called inside a tokio runtime.
    pub fn new(service: Service, settings: Settings, stop: CancellationToken) -> Self {
        let devices = service.devices().clone();
        let inner = Arc::new(Inner {
            guesses: Guesses::new(settings.rate_limit.clone()),
            metrics: Metrics::default(),
            pulse: Pulse::default(),
            boot_id: uuid::Uuid::now_v7().to_string(),
            instance_id: uuid::Uuid::now_v7().to_string(),
            connections: RwLock::default(),
            presence_version: AtomicU64::new(1),
            presence_changed: Notify::new(),
            health_version: AtomicU64::new(1),
            preauth: Mutex::default(),
            running: Arc::new(Semaphore::new(MAX_RUNNING_REQUESTS)),
            waiting: AtomicUsize::new(0),
            waiting_bytes: AtomicUsize::new(0),
            mounts: RwLock::default(),
            service,
            settings,
            devices,
            stop,
        });
        let gateway = Self { inner };
        tokio::spawn(gateway.clone().tick());
        tokio::spawn(gateway.clone().tell_presence());
        tokio::spawn(gateway.clone().tell_health());
        tokio::spawn(gateway.clone().tell_approvals());
        tokio::spawn(gateway.clone().tell_devices());
        tokio::spawn(gateway.clone().take_pulse());
        gateway
    }

    /// Adds an endpoint at a path. Whoever calls it must show the shared credential.
    pub fn mount(&self, path: &'static str, endpoint: Arc<dyn Endpoint>) {
        let mut mounts = self.inner.mounts.write().unwrap_or_else(PoisonError::into_inner);
        mounts.push(Mount { path, endpoint });
    }

    pub(crate) fn mounted(&self, path: &str) -> Option<Mount> {
        let mounts = self.inner.mounts.read().unwrap_or_else(PoisonError::into_inner);
        mounts.iter().find(|mount| mount.path == path).cloned()
    }

    pub(crate) fn service(&self) -> &Service {
        &self.inner.service
    }
    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Takes a client in.
    pub(crate) fn admit(&self, admitted: Admitted) -> (Arc<Connection>, Outgoing) {
        let (outbox, outgoing) = Outbox::new();
        let Admitted { id, client, role, scopes, caps, device, address } = admitted;
        let principal = device.as_ref().map_or_else(|| "operator".to_owned(), |d| format!("device:{d}"));
        let mut connection = Connection {
            stop: self.inner.stop.child_token(),
            in_flight: AtomicUsize::new(0),
            online_since: Timestamp::now().as_millisecond(),
            last_seen: Mutex::new(Instant::now()),
            calls: Mutex::default(),
            watches: Mutex::default(),
            _approver: None,
            id,
            client,
            role,
            scopes,
            caps,
            device,
            address,
            principal,
            outbox,
        };
        if connection.shows_approvals("exec") || connection.shows_approvals("plugin") {
            connection._approver = Some(self.service().engine().approvals().approver_connected());
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
        self.inner.metrics.disconnected();
        if connection.is_shown() {
            self.presence_changed();
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.read_connections().len()
    }

    /// Whether somebody other than a connection can decide an approval.
    pub(crate) fn approver_beside(&self, connection_id: Option<&str>, kind: &str) -> bool {
        self.read_connections().values().any(|c| Some(c.id.as_str()) != connection_id && c.shows_approvals(kind))
    }

    /// Whether somebody can decide an approval whose asker is no connection of ours.
    pub(crate) fn approver_for_others(&self) -> bool {
        self.read_connections()
            .values()
            .any(|c| c.shows_approvals("plugin") && (c.has("operator.admin") || !c.has("operator.write")))
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
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let version = env!("CARGO_PKG_VERSION");
        let own = json!({
            "host": host, "ip": "127.0.0.1", "version": version, "platform": std::env::consts::OS,
            "deviceFamily": "Linux", "mode": "gateway", "reason": "self", "instanceId": self.inner.instance_id,
            "text": format!("Gateway: {host} · app {version} · mode gateway · reason self"),
            "ts": Timestamp::now().as_millisecond(),
        });
        let connections = self.read_connections();
        let mut others: Vec<&Arc<Connection>> = connections.values().filter(|c| c.is_shown()).collect();
        others.sort_by_key(|c| c.online_since);
        // A list for people: with very many clients the newest thousand are enough.
        let skip = others.len().saturating_sub(1000);
        std::iter::once(own).chain(others.into_iter().skip(skip).map(|c| c.presence())).collect()
    }

    pub(crate) fn versions(&self) -> (u64, u64) {
        (self.inner.presence_version.load(Ordering::Acquire), self.inner.health_version.load(Ordering::Acquire))
    }

    fn presence_changed(&self) {
        self.inner.presence_version.fetch_add(1, Ordering::AcqRel);
        self.inner.presence_changed.notify_one();
    }

    /// Many who come and go at once are told of together: the list is as long as they are many.
    async fn tell_presence(self) {
        loop {
            tokio::select! {
                () = self.inner.presence_changed.notified() => {}
                () = self.inner.stop.cancelled() => return,
            }
            tokio::time::sleep(PRESENCE_PAUSE).await;
            if self.read_connections().values().any(|c| c.has("operator.read")) {
                let (presence, health) = self.versions();
                let body = EventBody::new("presence", &json!({"presence": self.presence()}));
                self.broadcast(body.with_versions(presence, health).droppable(), |c| c.has("operator.read"));
            }
        }
    }

    /// Counts a connection whose handshake is not done; `None` when its address has too many.
    pub(crate) fn unproven(&self, address: IpAddr) -> Option<Unproven> {
        let mut preauth = lock(&self.inner.preauth);
        let count = preauth.entry(address).or_default();
        if *count >= MAX_PREAUTH_PER_ADDRESS {
            return None;
        }
        *count += 1;
        Some(Unproven { inner: self.inner.clone(), address })
    }

    /// A place for a request, or `None` when the queue is full.
    pub(crate) fn place(&self, bytes: usize) -> Option<Place> {
        if let Ok(permit) = self.inner.running.clone().try_acquire_owned() {
            return Some(Place::Now(permit));
        }
        let place = QueuedPlace { inner: self.inner.clone(), bytes };
        let ahead = self.inner.waiting.fetch_add(1, Ordering::AcqRel);
        let ahead_bytes = self.inner.waiting_bytes.fetch_add(bytes, Ordering::AcqRel);
        // Dropping the place gives both back.
        (ahead < MAX_WAITING_REQUESTS && ahead_bytes + bytes <= MAX_WAITING_BYTES).then_some(Place::Queued(place))
    }

    async fn tick(self) {
        let mut every = tokio::time::interval(self.settings().tick);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        every.tick().await;
        let sweep_after = PONG_WITHIN.min(self.settings().tick * 5 / 6);
        loop {
            tokio::select! {
                _ = every.tick() => {}
                () = self.inner.stop.cancelled() => return,
            }
            let pinged = Instant::now();
            self.broadcast(
                EventBody::new("tick", &json!({"ts": Timestamp::now().as_millisecond()})).droppable(),
                |c| {
                    c.outbox.send(Out::Ping);
                    true
                },
            );
            let gateway = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(sweep_after).await;
                for connection in gateway.read_connections().values() {
                    if *lock(&connection.last_seen) < pinged && connection.online_since_before(pinged) {
                        connection.stop.cancel();
                    }
                }
            });
        }
    }

    async fn tell_health(self) {
        let mut every = tokio::time::interval(HEALTH_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        every.tick().await;
        loop {
            tokio::select! {
                _ = every.tick() => {}
                () = self.inner.stop.cancelled() => return,
            }
            if self.count() == 0 {
                continue;
            }
            let health = crate::rpc::health::health(&self).await;
            let version = self.inner.health_version.fetch_add(1, Ordering::AcqRel) + 1;
            let body = EventBody::new("health", &health).with_versions(self.versions().0, version);
            self.broadcast(body.droppable(), |c| c.has("operator.read"));
        }
    }

    async fn tell_approvals(self) {
        let mut events = self.service().engine().approvals().subscribe();
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = self.inner.stop.cancelled() => return,
            };
            let (name, approval, payload) = match event {
                Ok(ApprovalEvent::Requested(approval)) => {
                    let payload = crate::rpc::approvals::requested(&approval);
                    ("requested", approval, payload)
                }
                Ok(ApprovalEvent::Resolved(approval)) => {
                    let payload = crate::rpc::approvals::resolved(&approval);
                    ("resolved", approval, payload)
                }
                // Whoever missed one still has the lists.
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => continue,
                Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
            };
            let kind = crate::rpc::approvals::kind(&approval.request);
            self.broadcast(EventBody::new(format!("{kind}.approval.{name}"), &payload), |c| {
                c.shows_approvals(kind) && crate::rpc::approvals::visible(c, &approval)
            });
        }
    }

    async fn tell_devices(self) {
        let mut events = self.inner.devices.subscribe();
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = self.inner.stop.cancelled() => return,
            };
            let now = Timestamp::now().as_millisecond();
            match event {
                Ok(DeviceEvent::Requested(request)) => {
                    let d = &request.device;
                    let payload = json!({
                        "requestId": request.request_id, "deviceId": d.device_id, "publicKey": d.public_key,
                        "platform": d.platform, "clientId": d.client_id, "clientMode": d.client_mode, "role": d.role,
                        "scopes": d.scopes, "remoteIp": request.remote_ip, "ts": request.ts,
                    });
                    self.broadcast(EventBody::new("device.pair.requested", &payload), |c| c.has("operator.pairing"));
                }
                Ok(DeviceEvent::Resolved { request_id, device_id, decision }) => {
                    let payload =
                        json!({"requestId": request_id, "deviceId": device_id, "decision": decision, "ts": now});
                    self.broadcast(EventBody::new("device.pair.resolved", &payload), |c| c.has("operator.pairing"));
                }
                Ok(DeviceEvent::Revoked { device_id }) => {
                    for connection in self.read_connections().values() {
                        if connection.device.as_deref() == Some(device_id.as_str()) {
                            connection.outbox.send(Out::Close(1008, "device token revoked".to_owned()));
                        }
                    }
                }
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
                Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
            }
        }
    }

    async fn take_pulse(self) {
        loop {
            let before = Instant::now();
            tokio::select! {
                () = tokio::time::sleep(crate::pulse::BEAT) => {}
                () = self.inner.stop.cancelled() => return,
            }
            self.inner.pulse.beat(before.elapsed());
        }
    }

    /// Says goodbye to everybody; call it before stopping.
    pub async fn farewell(&self, reason: &str) {
        self.broadcast(EventBody::new("shutdown", &json!({"reason": reason})), |c| {
            let _ = c;
            true
        });
        for connection in self.read_connections().values() {
            connection.outbox.send(Out::Close(1012, "service restart".to_owned()));
        }
        let give_up = Instant::now() + Duration::from_secs(1);
        while self.count() > 0 && Instant::now() < give_up {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn read_connections(&self) -> std::sync::RwLockReadGuard<'_, HashMap<String, Arc<Connection>>> {
        self.inner.connections.read().unwrap_or_else(PoisonError::into_inner)
    }
    fn write_connections(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<String, Arc<Connection>>> {
        self.inner.connections.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// A client that came after a ping was never pinged.
    fn online_since_before(&self, pinged: Instant) -> bool {
        let age = Timestamp::now().as_millisecond() - self.online_since;
        age >= 0 && Duration::from_millis(age as u64) > pinged.elapsed()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_include_one_another_as_documented() {
        let held = |s: &str| vec![s.to_owned()];
        assert!(has_scope(&held("operator.admin"), "operator.pairing"));
        assert!(has_scope(&held("operator.write"), "operator.read"));
        assert!(!has_scope(&held("operator.read"), "operator.write"));
        assert!(!has_scope(&held("operator.approvals"), "operator.read"));
        assert!(!has_scope(&[], "operator.read"));
    }

    #[test]
    fn a_queue_that_is_not_read_overflows_and_drops_what_can_be_missed() {
        let (outbox, _outgoing) = Outbox::new();
        let tick = Arc::new(EventBody::new("tick", &json!({})).droppable());
        assert!(outbox.event(&tick));
        for _ in 0..2 {
            outbox.send(Out::Frame("x".repeat(SLOW_BYTES)));
        }
        assert!(!outbox.event(&tick));
        for _ in 0..47 {
            outbox.send(Out::Frame("x".repeat(1 << 20)));
        }
        assert!(!outbox.overflow.is_cancelled());
        for _ in 0..3 {
            outbox.send(Out::Frame("x".repeat(1 << 20)));
        }
        assert!(outbox.overflow.is_cancelled());
    }
}
