//! [`Session`]: one client of a revision with a handshake, and [`ClientOutput`], the queue of messages to a client.

use crate::{
    jsonrpc::{self, INTERNAL_ERROR, RpcError},
    revision::{ClientCapabilities, Revision},
    wire::{self, Cancelled, Payload, requests::CancelledRequest},
};
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// The largest number of messages that wait for one client; beyond that, notifications are dropped.
pub(crate) const OUTLET_BUFFER: usize = 1024;
/// Maximum number of requests of one client in flight.
pub(crate) const MAX_IN_FLIGHT: usize = 512;
/// Resources one client may subscribe to.
const MAX_SUBSCRIPTIONS: usize = 1000;
/// How long a client may take to answer a question.
const ANSWER_WITHIN: Duration = Duration::from_secs(600);

/// The levels of log messages, in ascending severity.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Reads a log level.
pub(crate) fn level(text: &str) -> Option<usize> {
    LEVELS.iter().position(|level| *level == text)
}

/// Where messages to a client go: standard output, or the answer to one HTTP request.
#[derive(Clone)]
pub(crate) struct ClientOutput(pub(crate) mpsc::Sender<String>);

impl ClientOutput {
    pub(crate) fn new() -> (Self, mpsc::Receiver<String>) {
        let (sender, receiver) = mpsc::channel(OUTLET_BUFFER);
        (Self(sender), receiver)
    }

    /// Sends a message that must arrive.
    pub(crate) async fn send(&self, text: String) -> bool {
        self.0.send(text).await.is_ok()
    }

    /// Sends what can be missed.
    pub(crate) fn tell(&self, method: &str, params: Option<&impl Serialize>) {
        if self.0.try_send(jsonrpc::notification(method, params)).is_err() {
            tracing::debug!(method, "a notification was dropped: the client is slow or gone");
        }
    }
}

struct State {
    revision: Revision,
    capabilities: Arc<ClientCapabilities>,
    log_level: usize,
    subscriptions: HashSet<String>,
    last_used: Instant,
}

/// One client of a revision with a handshake: an HTTP session, or a whole stdio process.
pub(crate) struct Session {
    pub(crate) id: String,
    state: Mutex<State>,
    /// Questions to the client that wait for an answer.
    pending: Mutex<HashMap<String, oneshot::Sender<Result<Value, RpcError>>>>,
    /// Requests of the client in flight.
    in_flight: Mutex<HashMap<String, CancellationToken>>,
    next_id: AtomicU64,
    /// Fires when the session ends.
    pub(crate) ended: CancellationToken,
    /// The outlet for messages that belong to no request, while the client listens.
    pub(crate) listener: Mutex<Option<ClientOutput>>,
}

impl Session {
    pub(crate) fn new(id: String, revision: Revision, capabilities: ClientCapabilities) -> Self {
        Self {
            id,
            state: Mutex::new(State {
                revision,
                capabilities: Arc::new(capabilities),
                log_level: 1,
                subscriptions: HashSet::new(),
                last_used: Instant::now(),
            }),
            pending: Mutex::default(),
            in_flight: Mutex::default(),
            next_id: AtomicU64::new(1),
            ended: CancellationToken::new(),
            listener: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// What `initialize` agreed on.
    pub(crate) fn agree(&self, revision: Revision, capabilities: ClientCapabilities) {
        let mut state = self.state();
        state.revision = revision;
        state.capabilities = Arc::new(capabilities);
    }

    pub(crate) fn revision(&self) -> Revision {
        self.state().revision
    }
    pub(crate) fn capabilities(&self) -> Arc<ClientCapabilities> {
        self.state().capabilities.clone()
    }
    pub(crate) fn touch(&self) {
        self.state().last_used = Instant::now();
    }
    pub(crate) fn idle_for(&self) -> Duration {
        let busy = !lock(&self.in_flight).is_empty() || lock(&self.listener).is_some();
        if busy { Duration::ZERO } else { self.state().last_used.elapsed() }
    }

    /// Sets the lowest level of messages that are sent.
    pub(crate) fn set_log_level(&self, level: usize) {
        self.state().log_level = level;
    }
    pub(crate) fn log_level(&self) -> usize {
        self.state().log_level
    }

    pub(crate) fn subscribe(&self, uri: &str) -> Result<(), RpcError> {
        let mut state = self.state();
        if state.subscriptions.len() >= MAX_SUBSCRIPTIONS && !state.subscriptions.contains(uri) {
            return Err(RpcError::params(format!("at most {MAX_SUBSCRIPTIONS} resources can be subscribed to")));
        }
        state.subscriptions.insert(uri.to_owned());
        Ok(())
    }
    pub(crate) fn unsubscribe(&self, uri: &str) {
        self.state().subscriptions.remove(uri);
    }
    pub(crate) fn is_subscribed(&self, uri: &str) -> bool {
        self.state().subscriptions.contains(uri)
    }

    /// Sends a message that belongs to no request, if the client listens.
    pub(crate) fn tell(&self, method: &str, params: Option<&impl Serialize>) {
        if let Some(outlet) = &*lock(&self.listener) {
            outlet.tell(method, params);
        }
    }

    /// Registers a request's token; `None` if too many are in flight.
    pub(crate) fn begin(self: &Arc<Self>, id: &Value, token: CancellationToken) -> Option<InFlight> {
        let mut in_flight = lock(&self.in_flight);
        if in_flight.len() >= MAX_IN_FLIGHT {
            return None;
        }
        let key = id.to_string();
        in_flight.insert(key.clone(), token);
        Some(InFlight { session: self.clone(), key })
    }

    /// The client cancels a request.
    pub(crate) fn cancel(&self, id: &Value) {
        if let Some(token) = lock(&self.in_flight).get(&id.to_string()) {
            token.cancel();
        }
    }

    /// A notification from the client. Only a cancellation has an effect.
    pub(crate) fn notified(&self, method: &str, params: Payload) {
        if method != "notifications/cancelled" {
            return;
        }
        match wire::read::<CancelledRequest>(method, params) {
            Ok(CancelledRequest { request_id }) => self.cancel(&request_id),
            Err(error) => tracing::debug!(error = error.message, "a client cancels a request without naming it"),
        }
    }

    /// The client answers a question.
    pub(crate) fn answered(&self, id: &Value, outcome: Result<Value, RpcError>) {
        let waiter = lock(&self.pending).remove(&id.to_string());
        if waiter.is_some_and(|waiter| waiter.send(outcome).is_err()) {
            tracing::debug!("a client answered a question that was withdrawn");
        }
    }

    /// Asks the client something by one of its outlets and waits for the answer.
    pub(crate) async fn ask(
        &self,
        outlet: &ClientOutput,
        method: &str,
        params: &Value,
        give_up: &CancellationToken,
    ) -> Result<Value, RpcError> {
        let id = Value::from(format!("toolyard-{}", self.next_id.fetch_add(1, Ordering::Relaxed)));
        let (waiter, answer) = oneshot::channel();
        lock(&self.pending).insert(id.to_string(), waiter);
        let _forget = PendingGuard { session: self, key: id.to_string() };
        let gone = || RpcError::new(INTERNAL_ERROR, "the client disconnected");
        if !outlet.send(jsonrpc::request(&id, method, params)).await {
            return Err(gone());
        }
        let why = tokio::select! {
            outcome = answer => return outcome.unwrap_or_else(|_| Err(gone())),
            () = give_up.cancelled() => "no longer needed",
            () = self.ended.cancelled() => return Err(gone()),
            () = tokio::time::sleep(ANSWER_WITHIN) => "took too long",
        };
        outlet.tell("notifications/cancelled", Some(&Cancelled { request_id: &id, reason: why }));
        Err(RpcError::new(INTERNAL_ERROR, format!("the question was withdrawn: {why}")))
    }

    /// Ends the session and cancels everything in flight.
    pub(crate) fn end(&self) {
        self.ended.cancel();
        for token in lock(&self.in_flight).values() {
            token.cancel();
        }
        lock(&self.listener).take();
    }
}

/// A request in flight; removed from the list when dropped.
pub(crate) struct InFlight {
    session: Arc<Session>,
    key: String,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        lock(&self.session.in_flight).remove(&self.key);
        self.session.touch();
    }
}

struct PendingGuard<'a> {
    session: &'a Session,
    key: String,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        lock(&self.session.pending).remove(&self.key);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
