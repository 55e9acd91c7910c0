//! [`Cluster`]: sends requests to other nodes, and decides which of their requests this node answers.
//!
//! A socket, a session or a run belongs to one node. A request that needs it at another node goes there directly, over
//! HTTP, in a signed [`envelope`]. It carries the caller on whose behalf it is made, and the receiving node decides with
//! that caller's rights, as if the caller had come to its own door. An owner that is dead, or dies while it is asked, is
//! `UNAVAILABLE` at once.
//!
//! None of this exists over a store that one machine uses alone. *Has no* sockets: a [`NodeTransport`] carries requests.

mod asks;
pub mod envelope;

pub use asks::{Ask, ForwardedHead, ForwardedRequest, NodeRequest, OfferedCall, Reply};

use envelope::{BadEnvelope, Envelope, Frames, MAX_FRAME, NodeKey, Numbers, SignedRequest, Unsigned};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc;
use toolyard_engine::{
    BoxFuture, Caller, Store,
    store::{NodeRow, NodeState, Owner, StoreError},
};
use toolyard_protocol::{ErrorCode, Failure};

/// How often the owner's lease is looked at while it is asked, if no hint comes.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Lives of other nodes whose numbers are remembered.
const MAX_LIVES: usize = 1024;
/// A request of a node to another one takes this long at most.
pub const MAX_WITHIN: Duration = Duration::from_secs(600);

/// The bytes of an answer, as they come.
pub type AnswerBytes = mpsc::Receiver<Result<Vec<u8>, String>>;

/// Carries signed requests to other nodes.
pub trait NodeTransport: Send + Sync + 'static {
    /// Sends a request to a node's address. Answers once the head of the answer has come.
    fn send<'a>(&'a self, address: &'a str, request: SignedRequest) -> BoxFuture<'a, Result<AnswerBytes, String>>;
}

/// This node among the others.
pub struct Cluster {
    store: Arc<dyn Store>,
    me: Owner,
    key: NodeKey,
    transport: OnceLock<Arc<dyn NodeTransport>>,
    last_number: AtomicU64,
    seen: Mutex<HashMap<Owner, Numbers>>,
    differing: Mutex<DifferingNodes>,
}

/// The nodes that work with other settings than this one.
#[derive(Default)]
struct DifferingNodes {
    nodes: Vec<DifferingNode>,
    /// Those of them that were logged.
    logged: Vec<DifferingNode>,
}

/// A node that works with other settings than this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DifferingNode {
    /// Its name.
    pub node: String,
    /// What is different there: `policy`, `version`.
    pub differs: Vec<String>,
}

/// Chunks of another node's answer, checked.
pub struct Answer {
    frames: Frames,
    bytes: AnswerBytes,
    ready: std::collections::VecDeque<Vec<u8>>,
    from: Owner,
}

impl Cluster {
    /// This node's place in its cluster; `None` over a store that one machine uses alone.
    pub(crate) fn of(store: &Arc<dyn Store>) -> Option<Self> {
        let secret = store.shared_secret().filter(|_| store.is_shared())?;
        Some(Self {
            me: store.owner(),
            key: NodeKey::derive(&secret),
            store: store.clone(),
            transport: OnceLock::new(),
            last_number: AtomicU64::new(0),
            seen: Mutex::default(),
            differing: Mutex::default(),
        })
    }

    /// Sets what carries requests to other nodes; later calls have no effect.
    pub fn connect(&self, transport: Arc<dyn NodeTransport>) {
        if self.transport.set(transport).is_err() {
            tracing::debug!("requests to other nodes are carried already");
        }
    }

    /// This node with its current epoch.
    pub fn me(&self) -> &Owner {
        &self.me
    }

    /// The nodes that work with other settings than this one, as far as is known.
    pub fn differing(&self) -> Vec<DifferingNode> {
        self.differing.lock().unwrap_or_else(PoisonError::into_inner).nodes.clone()
    }

    /// Notes which nodes work with other settings than this one. Each is logged when it is found a second time: nodes take up
    /// a new version of their configuration one after the other.
    pub(crate) fn note_differing(&self, now: Vec<DifferingNode>) {
        let mut known = self.differing.lock().unwrap_or_else(PoisonError::into_inner);
        let DifferingNodes { nodes, logged } = &mut *known;
        logged.retain(|node| now.contains(node));
        let again: Vec<DifferingNode> =
            now.iter().filter(|node| nodes.contains(node) && !logged.contains(node)).cloned().collect();
        logged.extend(again.iter().cloned());
        for DifferingNode { node, differs } in again {
            tracing::warn!(
                node,
                ?differs,
                "another node works with other settings: calls are decided differently there"
            );
        }
        *nodes = now;
    }

    /// The key that signs answers.
    pub fn key(&self) -> &NodeKey {
        &self.key
    }

    /// The other nodes that are alive.
    pub async fn others(&self) -> Result<Vec<NodeRow>, Failure> {
        let (store, me) = (self.store.clone(), self.me.clone());
        let others = move || -> Result<Vec<NodeRow>, StoreError> {
            let mut nodes = store.nodes()?;
            nodes.retain(|node| node.owner != me && node.state != NodeState::Dead);
            Ok(nodes)
        };
        Ok(tokio::task::spawn_blocking(others).await.map_err(|_| unanswered())??)
    }

    /// Asks another node, and reads its answer.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        to: &Owner,
        caller: &Caller,
        ask: Ask,
        within: Duration,
    ) -> Result<T, Failure> {
        let mut answer = self.open(to, caller, ask, within).await?;
        let whole = async {
            let mut whole = Vec::new();
            while let Some(chunk) = answer.next().await? {
                whole.extend(chunk);
                if whole.len() > MAX_FRAME {
                    return Err(Failure::new(ErrorCode::LimitExceeded, "the answer of another node is too large"));
                }
            }
            Ok(whole)
        };
        let whole = self.while_alive(to, within, whole).await?;
        match serde_json::from_slice(&whole) {
            Ok(Reply::Ok(answer)) => Ok(answer),
            Ok(Reply::Error(failure)) => Err(*failure),
            Err(error) => Err(Failure::new(ErrorCode::InternalError, format!("{to} answered something else: {error}"))),
        }
    }

    /// Asks another node; its answer is read as it comes.
    pub async fn open(&self, to: &Owner, caller: &Caller, ask: Ask, within: Duration) -> Result<Answer, Failure> {
        let within = within.min(MAX_WITHIN);
        let address = self.address(to).await?;
        let transport = self.transport.get().ok_or_else(|| {
            Failure::new(ErrorCode::Unavailable, format!("{to} is another node, and this process reaches none"))
                .suggest("Ask a Toolyard that is running (`toolyard up`).")
        })?;
        let unwritten = |e: serde_json::Error| Failure::new(ErrorCode::InternalError, e.to_string());
        let body = serde_json::to_vec(&NodeRequest { caller: caller.clone(), ask }).map_err(unwritten)?;
        let request = self.key.sign(Unsigned {
            from: &self.me,
            to,
            number: self.last_number.fetch_add(1, Ordering::AcqRel) + 1,
            sent_at_ms: Timestamp::now().as_millisecond(),
            within_ms: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
            body,
        });
        let request = request.map_err(unwritten)?;
        let frames = Frames::new(self.key.clone(), request.mac.clone());
        let sent = async { transport.send(&address, request).await.map_err(|why| unreached(to, &why)) };
        let bytes = self.while_alive(to, within, sent).await?;
        Ok(Answer { frames, bytes, ready: Default::default(), from: to.clone() })
    }

    /// Where a node that is alive is reached.
    async fn address(&self, to: &Owner) -> Result<String, Failure> {
        let nodes = self.others().await?;
        let node = nodes.into_iter().find(|node| node.owner == *to).ok_or_else(|| gone(to))?;
        node.address.ok_or_else(|| unreached(to, "it has not announced an address"))
    }

    /// Waits for an answer for as long as the owner is alive and the time is not up.
    async fn while_alive<T>(
        &self,
        to: &Owner,
        within: Duration,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut hints = self.store.watch();
        let mut answer = std::pin::pin!(answer);
        let end = tokio::time::Instant::now() + within;
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                () = tokio::time::sleep_until(end) => {
                    let message = format!("node {} did not answer in time", to.node);
                    return Err(Failure::new(ErrorCode::Timeout, message).retryable(false));
                }
                _ = hints.changed() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let (store, owner) = (self.store.clone(), to.clone());
            let alive = tokio::task::spawn_blocking(move || store.is_alive(&owner));
            let alive = tokio::select! {
                answer = &mut answer => return answer,
                alive = alive => alive.map_err(|_| unanswered())??,
            };
            if !alive {
                return Err(gone(to));
            }
            // Hints may come fast; the owner's lease is not looked at more often than this.
            tokio::select! {
                answer = &mut answer => return answer,
                () = tokio::time::sleep(LOOK_EVERY / 5) => {}
            }
        }
    }

    /// Checks the head of a request of another node: its envelope, and that it did not come before.
    pub async fn admit(&self, envelope: &str, mac: &str) -> Result<Envelope, Failure> {
        let refused = |why: BadEnvelope| Failure::new(ErrorCode::PolicyDenied, why.message());
        let opened = self.key.open(envelope, mac, &self.me, Timestamp::now().as_millisecond()).map_err(refused)?;
        let from = opened.from.owner();
        // Asked before the number is taken, so that a flood of a fenced node leaves nothing here.
        let (store, sender) = (self.store.clone(), from.clone());
        let alive = tokio::task::spawn_blocking(move || store.is_alive(&sender)).await.map_err(|_| unanswered())??;
        if !alive {
            return Err(Failure::new(
                ErrorCode::PolicyDenied,
                format!("node {from} was fenced: its requests are refused"),
            ));
        }
        let mut seen = self.seen();
        if seen.len() >= MAX_LIVES && !seen.contains_key(&from) {
            // Earlier lives of the same node ask no more.
            seen.retain(|life, _| life.node != from.node);
            if seen.len() >= MAX_LIVES {
                return Err(Failure::new(ErrorCode::LimitExceeded, "too many nodes have asked this one"));
            }
        }
        match seen.entry(from).or_default().take(opened.number()) {
            true => Ok(opened),
            false => Err(refused(BadEnvelope::Repeated)),
        }
    }

    /// Reads the body of a request that was admitted.
    pub fn read(&self, envelope: &Envelope, body: &[u8]) -> Result<NodeRequest, Failure> {
        envelope.check_body(body).map_err(|why| Failure::new(ErrorCode::PolicyDenied, why.message()))?;
        serde_json::from_slice(body)
            .map_err(|e| Failure::new(ErrorCode::ValidationError, format!("this node does not know the request: {e}")))
    }

    /// The id of a session of this node: it names the node, so that every other node finds it.
    pub fn session_id(&self, plain: &str) -> String {
        self.key.session_id(plain, &self.me)
    }

    /// The other node that has a session. `None` if it is this one's, or no node of this cluster made the id.
    pub fn session_elsewhere(&self, id: &str) -> Option<Owner> {
        self.key.session_owner(id).filter(|owner| *owner != self.me)
    }

    /// Passes an HTTP request on to the node that has its session. The answer's head, and its body as it comes.
    pub async fn pass_on(
        &self,
        to: &Owner,
        caller: &Caller,
        request: ForwardedRequest,
    ) -> Result<(ForwardedHead, Answer), Failure> {
        let mut answer = self.open(to, caller, Ask::Http(request), MAX_WITHIN).await?;
        let head = self.while_alive(to, MAX_WITHIN, answer.next()).await?.unwrap_or_default();
        let head: ForwardedHead = serde_json::from_slice(&head)
            .map_err(|e| Failure::new(ErrorCode::InternalError, format!("{to} answered something else: {e}")))?;
        match head.error {
            Some(failure) => Err(*failure),
            None => Ok((head, answer)),
        }
    }

    /// Tells the other nodes where this one is reached.
    pub async fn announce(&self, address: String) -> Result<(), Failure> {
        let store = self.store.clone();
        let announced = tokio::task::spawn_blocking(move || store.set_address(&address)).await;
        Ok(announced.map_err(|_| unanswered())??)
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<Owner, Numbers>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answer {
    /// The next chunk; `None` after the last one. An answer that breaks off is an error.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Ok(Some(chunk));
            }
            if self.frames.is_over() {
                return Ok(None);
            }
            let bytes = match self.bytes.recv().await {
                Some(Ok(bytes)) => bytes,
                Some(Err(why)) => return Err(unreached(&self.from, &why)),
                None => return Err(unreached(&self.from, "its answer broke off")),
            };
            let chunks = self.frames.take(&bytes).map_err(|_| {
                Failure::new(ErrorCode::Unavailable, format!("an answer that is not of {} was dropped", self.from))
                    .retryable(false)
            })?;
            self.ready.extend(chunks);
        }
    }
}

fn unanswered() -> Failure {
    Failure::new(ErrorCode::InternalError, "the store did not answer")
}

/// The failure of a request whose owner is dead.
pub(crate) fn gone(owner: &Owner) -> Failure {
    Failure::new(ErrorCode::Unavailable, format!("node {} is gone", owner.node))
        .detail("node", owner.node.clone())
        .detail("reason", "NODE_GONE")
        .suggest("Another node continues the runs of the lost node; open sessions and connections again.")
        .retryable(false)
}

fn unreached(owner: &Owner, why: &str) -> Failure {
    Failure::new(ErrorCode::Unavailable, format!("node {} could not be reached: {why}", owner.node))
        .detail("node", owner.node.clone())
        .detail("reason", "NODE_UNREACHED")
        .suggest("See `toolyard nodes list`: every node must reach the others at the addresses listed there.")
        .retryable(false)
}
