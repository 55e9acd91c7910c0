//! [`Mux`]: many requests over one pair of streams. Responses are matched to requests by id; everything else goes to an
//! [`Inbox`].

use super::{oauth::RequestBlocked, pipe::Pipe, questions::Questions};
use crate::{
    RpcError,
    jsonrpc::{self, INTERNAL_ERROR, Incoming},
    wire::{Cancelled, Payload},
};
use futures_util::future::BoxFuture;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use toolyard_engine::{RETRY_AFTER, redact::redactor};

/// Messages that wait to be written.
const WRITE_BUFFER: usize = 256;
/// How long a message that could not be sent waits for the reason.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// Why a request is cancelled.
pub(crate) const TAKEN_BACK: &str = "taken back";

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LinkError {
    /// The server responded with an error.
    Rpc(RpcError),
    /// The server has ended or cannot be reached. Whether it had begun the work is unknown.
    Unavailable(ServerUnavailable),
    /// We took the request back.
    Cancelled,
    /// The server does not know the session any more; it has done nothing.
    Forgotten,
    /// The server wants a token, or another one; it has done nothing.
    Unauthorised(RequestBlocked),
}

/// Why a server cannot be used, with further details.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ServerUnavailable {
    /// The reason, for people.
    pub(crate) why: String,
    /// The causes, for logs.
    pub(crate) causes: Option<String>,
    /// The status of its HTTP answer, where there was one.
    pub(crate) status: Option<StatusCode>,
    /// How long it asks to wait before the next request.
    pub(crate) retry_after: Option<Duration>,
}

impl From<String> for ServerUnavailable {
    fn from(why: String) -> Self {
        Self { why, ..Self::default() }
    }
}

impl LinkError {
    /// A server that has ended, without further details.
    pub(crate) fn unavailable(why: impl Into<String>) -> Self {
        Self::Unavailable(why.into().into())
    }

    /// The same as the reason why a server could not be started.
    pub(crate) fn into_unavailable(self) -> ServerUnavailable {
        match self {
            Self::Unavailable(unavailable) => unavailable,
            Self::Rpc(error) => {
                let wait = error.data.as_ref().and_then(|data| data.get(RETRY_AFTER)?.as_u64());
                ServerUnavailable { retry_after: wait.map(Duration::from_millis), ..error.message.into() }
            }
            other => RpcError::from(other).message.into(),
        }
    }
}

/// Receives requests and notifications from a server.
pub(crate) trait Inbox: Send + Sync + 'static {
    /// A notification arrived.
    fn notified(&self, method: &str, params: Payload);
    /// A request arrived; returns its answer.
    fn asked<'a>(&'a self, method: &'a str, params: Payload) -> BoxFuture<'a, Result<Value, RpcError>>;
}

/// Where messages go.
enum Outgoing {
    /// To a queue.
    Queue(mpsc::Sender<String>),
    /// Into a child.
    Pipe(Arc<Pipe>),
}

impl Outgoing {
    async fn send(&self, message: String) -> Result<(), Closed> {
        match self {
            Self::Queue(queue) => queue.send(message).await.map_err(|_| Closed),
            Self::Pipe(pipe) => pipe.send(message).await.map_err(|_| Closed),
        }
    }

    fn try_send(&self, message: String) {
        match self {
            Self::Queue(queue) => {
                if queue.try_send(message).is_err() {
                    tracing::debug!("a notification to an upstream server was dropped: it takes no messages");
                }
            }
            Self::Pipe(pipe) => pipe.try_send(message),
        }
    }
}

/// The receiver of messages is gone.
struct Closed;

/// Requests over one pair of streams.
pub(crate) struct Mux {
    outgoing: Outgoing,
    pending: Mutex<HashMap<u64, oneshot::Sender<Result<Value, RpcError>>>>,
    next: AtomicU64,
    /// Fires when the streams have ended.
    pub(crate) closed: CancellationToken,
    reason: Mutex<Option<String>>,
    questions: Arc<Questions>,
}

impl Mux {
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<String>) {
        let (outgoing, receiver) = mpsc::channel(WRITE_BUFFER);
        (Self::over(Outgoing::Queue(outgoing)), receiver)
    }

    /// Messages go into a child.
    pub(crate) fn into_child(pipe: Arc<Pipe>) -> Arc<Self> {
        Self::over(Outgoing::Pipe(pipe))
    }

    fn over(outgoing: Outgoing) -> Arc<Self> {
        Arc::new(Self {
            outgoing,
            pending: Mutex::default(),
            next: AtomicU64::new(1),
            closed: CancellationToken::new(),
            reason: Mutex::default(),
            questions: Arc::default(),
        })
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Result<Value, RpcError>>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: &Value,
        cancel: &CancellationToken,
    ) -> Result<Value, LinkError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.pending().insert(id, answer);
        let _forget = PendingGuard { mux: self, id };
        let text = jsonrpc::request(&Value::from(id), method, params);
        tokio::select! {
            sent = self.send(text) => sent?,
            () = cancel.cancelled() => return Err(LinkError::Cancelled),
        }
        tokio::select! {
            biased;
            outcome = answered => match outcome {
                Ok(outcome) => outcome.map_err(LinkError::Rpc),
                Err(_) => Err(self.unavailable()),
            },
            () = self.closed.cancelled() => Err(self.unavailable()),
            () = cancel.cancelled() => {
                let cancelled = Cancelled { request_id: &Value::from(id), reason: TAKEN_BACK };
                self.outgoing.try_send(jsonrpc::notification("notifications/cancelled", Some(&cancelled)));
                Err(LinkError::Cancelled)
            }
        }
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, method: &str, params: &impl Serialize) -> Result<(), LinkError> {
        self.send(jsonrpc::notification(method, Some(params))).await
    }

    async fn send(&self, message: String) -> Result<(), LinkError> {
        if self.outgoing.send(message).await.is_ok() {
            return Ok(());
        }
        // The task that watches the other side is about to report the reason.
        if tokio::time::timeout(TOLD_WITHIN, self.closed.cancelled()).await.is_err() {
            tracing::debug!("an upstream server takes no messages and has not ended");
        }
        Err(self.unavailable())
    }

    /// Takes one message of the server.
    pub(crate) fn receive(self: &Arc<Self>, text: &[u8], inbox: &Arc<dyn Inbox>) {
        // A server may quote what it was started with.
        let text = redactor().known_bytes(text);
        match Incoming::read(&text) {
            Ok(Incoming::Response { id, outcome }) => {
                let waiter = id.as_u64().and_then(|id| self.pending().remove(&id));
                if waiter.is_some_and(|waiter| waiter.send(outcome).is_err()) {
                    tracing::debug!("an upstream server answered a cancelled request");
                }
            }
            Ok(Incoming::Notification { method, params }) => inbox.notified(&method, params),
            Ok(Incoming::Request { id, method, params }) => {
                let Some(question) = self.questions.take(text.len()) else {
                    return self.close(Questions::TOO_MANY);
                };
                let (mux, inbox) = (self.clone(), inbox.clone());
                tokio::spawn(async move {
                    let _question = question;
                    let answer = tokio::select! {
                        answer = inbox.asked(&method, params) => answer,
                        () = mux.closed.cancelled() => return,
                    };
                    if mux.outgoing.send(jsonrpc::answer(&id, answer)).await.is_err() {
                        tracing::debug!(method, "an upstream server ended before its question was answered");
                    }
                });
            }
            Err(bad) => tracing::debug!(error = bad.error.message, "an upstream server sent what is no message"),
        }
    }

    /// Fails all pending requests with this reason.
    pub(crate) fn close(&self, reason: &str) {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| reason.to_owned());
        self.closed.cancel();
        self.pending().clear();
    }

    fn unavailable(&self) -> LinkError {
        let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        LinkError::unavailable(reason.unwrap_or_else(|| "the connection ended".to_owned()))
    }
}

struct PendingGuard<'a> {
    mux: &'a Mux,
    id: u64,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        self.mux.pending().remove(&self.id);
    }
}

/// The error for a server's request with an unknown method.
pub(crate) fn unknown(method: &str) -> RpcError {
    RpcError::method(method)
}

impl From<LinkError> for RpcError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Rpc(error) => error,
            LinkError::Unavailable(ServerUnavailable { why, .. })
            | LinkError::Unauthorised(RequestBlocked::Person(why) | RequestBlocked::TemporaryFailure(why)) => {
                Self::new(INTERNAL_ERROR, why)
            }
            LinkError::Cancelled => Self::new(INTERNAL_ERROR, "the request was cancelled"),
            LinkError::Forgotten => Self::new(INTERNAL_ERROR, "the server has forgotten our session"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct NeverAnswers;

    impl Inbox for NeverAnswers {
        fn notified(&self, _: &str, _: Payload) {}
        fn asked<'a>(&'a self, _: &'a str, _: Payload) -> BoxFuture<'a, Result<Value, RpcError>> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn a_server_that_asks_without_end_is_hung_up_on() {
        let (mux, _queue) = Mux::new();
        let inbox: Arc<dyn Inbox> = Arc::new(NeverAnswers);
        for id in 0..10_000 {
            let question = json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {}});
            mux.receive(question.to_string().as_bytes(), &inbox);
            if mux.closed.is_cancelled() {
                assert!(id > 100, "some questions at once are answered");
                return;
            }
        }
        panic!("10,000 questions wait for an answer at once");
    }
}
