//! Approvals over the nodes of a cluster.
//!
//! A question and its answer are facts in the store, so that any node can store the answer; a compare-and-set decides
//! which answer was first. Nodes exchange two further kinds of facts. [`OPEN`] lists the questions that wait: when a
//! question disappears from the list, the node of the waiting caller reads the answer and wakes the caller. [`REACH`]
//! says which nodes have a connected approver. Both are read once a second, and after hints of the store while a caller
//! waits.
//!
//! A store that only one machine uses has none of these facts.

use super::{
    Approval, ApprovalDecision, ApprovalEvent, ApprovalOutcome, Approvals, SPACE, Settler, presence::Reachable,
};
use crate::store::{Hints, Owner, Store, StoreError};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{Failure, WorkspaceId};

/// Questions that wait, by id.
const OPEN: &str = "openQuestions";
/// The nodes with somebody who can answer, by node.
const REACH: &str = "reach";
/// How often the questions of other nodes are read at most.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// How often they are read when no hint comes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A question of another node is closed this long after its end, if that node did not close it.
const CLOSED_FOR_OTHERS_AFTER: Duration = Duration::from_secs(5);

/// The questions of other nodes, as this node knows them.
#[derive(Default)]
pub(super) struct RemoteQuestions {
    questions: Mutex<HashMap<String, RemoteQuestion>>,
    /// Questions of this node whose callers went away, to be taken off the list of open ones.
    withdrawn: Mutex<Vec<String>>,
    reached: Mutex<BTreeMap<WorkspaceId, Reachable>>,
    changed: Notify,
}

/// A question of another node.
struct RemoteQuestion {
    approval: Arc<Approval>,
    by: Owner,
}

/// The value of a fact in [`OPEN`]: who asks.
#[derive(Serialize, Deserialize)]
struct OpenQuestion {
    node: String,
    epoch: u64,
}

/// The value of a fact in [`REACH`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct NodeReachability {
    node: String,
    epoch: u64,
    /// Who can be reached in the default workspace.
    #[serde(flatten)]
    default: Reachable,
    /// Who can be reached in the other workspaces.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    workspaces: BTreeMap<WorkspaceId, Reachable>,
}

/// The result of reading the store once.
struct StoreScan {
    open: HashMap<String, Owner>,
    /// Questions that were not known here.
    new: Vec<RemoteQuestion>,
    /// Questions known here that do not wait any more.
    over: Vec<(String, Option<Approval>)>,
    /// Questions whose end has passed long ago.
    expired: Vec<String>,
    reached: BTreeMap<WorkspaceId, Reachable>,
}

impl RemoteQuestions {
    fn questions(&self) -> MutexGuard<'_, HashMap<String, RemoteQuestion>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller of a question of this node went away.
    pub(super) fn withdraw(&self, id: &str) {
        self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner).push(id.to_owned());
        self.changed.notify_one();
    }

    /// Somebody who can answer came or went.
    pub(super) fn reach_changed(&self) {
        self.changed.notify_one();
    }

    /// Whom other nodes reach in a workspace, as of the last look.
    pub(super) fn reached(&self, workspace: &WorkspaceId) -> Reachable {
        let reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        reached.get(workspace).copied().unwrap_or_default()
    }

    /// The questions of other nodes.
    pub(super) fn asked(&self) -> Vec<Arc<Approval>> {
        self.questions().values().map(|asked| asked.approval.clone()).collect()
    }
}

/// Waits for a hint; for ever if none are wanted.
async fn hinted(hints: &mut Option<Hints>) {
    if let Some(hints) = hints
        && hints.changed().await.is_ok()
    {
        return;
    }
    // A store that ended sends no more hints.
    std::future::pending().await
}

/// Puts a question on the list that the nodes share.
pub(super) fn list_open(store: &dyn Store, id: &str) -> Result<(), StoreError> {
    let Owner { node, epoch } = store.owner();
    let value = serde_json::to_vec(&OpenQuestion { node, epoch }).map_err(|e| StoreError::failed(e.to_string()))?;
    store.put(OPEN, id, value, None).map(|_| ())
}

/// Takes a question off that list.
pub(super) fn unlist(store: &dyn Store, id: &str) -> Result<(), StoreError> {
    store.remove(OPEN, id).map(|_| ())
}

/// Whether a question is on that list.
pub(super) fn is_listed(store: &dyn Store, id: &str) -> Result<bool, StoreError> {
    Ok(store.get(OPEN, id)?.is_some())
}

/// Whom other nodes that are alive can reach, by workspace.
fn reached(store: &dyn Store) -> Result<BTreeMap<WorkspaceId, Reachable>, StoreError> {
    let mine = store.owner();
    let mut found: BTreeMap<WorkspaceId, Reachable> = BTreeMap::new();
    for (key, value) in store.list(REACH)? {
        let Ok(reach) = serde_json::from_slice::<NodeReachability>(&value) else { continue };
        let owner = Owner { node: reach.node, epoch: reach.epoch };
        if owner == mine {
            continue;
        }
        match store.is_alive(&owner)? {
            true => {
                for (workspace, reached) in
                    reach.workspaces.into_iter().chain([(WorkspaceId::default(), reach.default)])
                {
                    let known = found.entry(workspace).or_default();
                    *known = known.or(reached);
                }
            }
            // The first node that sees a question of a dead node removes it.
            false => drop(store.remove(REACH, &key)?),
        }
    }
    Ok(found)
}

impl Approvals {
    /// Whether somebody connected to another node can answer, asked of the store itself. May block.
    pub(super) fn is_reached_elsewhere(&self, workspace: &WorkspaceId) -> Result<bool, StoreError> {
        match &self.remote {
            Some(_) => Ok(reached(&*self.store)?.get(workspace).is_some_and(|reached| reached.approvers)),
            None => Ok(false),
        }
    }

    /// Whether a question was asked by a caller of this node.
    pub fn is_asked_here(&self, id: &str) -> bool {
        self.lock().contains_key(id)
    }

    /// Keeps what this node knows of the others' questions current, until stopped. Returns at once over a store that
    /// no other node uses.
    pub(crate) async fn follow_others(self: Arc<Self>, stop: CancellationToken) {
        let Some(remote) = &self.remote else { return };
        let mut told = None;
        loop {
            // Hints cost the other nodes something, and are wanted while a caller waits here.
            let mut hints = self.waits().then(|| self.store.watch());
            if let Err(failure) = self.look(remote, &mut told).await {
                tracing::warn!(error = %failure.message, "the questions of other nodes cannot be read");
            }
            tokio::select! {
                () = hinted(&mut hints) => {}
                () = remote.changed.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = stop.cancelled() => break,
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_PAUSE) => {}
                () = stop.cancelled() => break,
            }
        }
        let (store, key) = (self.store.clone(), self.store.owner().to_string());
        if told.is_some() && tokio::task::spawn_blocking(move || store.remove(REACH, &key)).await.is_err() {
            tracing::debug!("the others still believe that people can be reached here");
        }
    }

    async fn look(&self, remote: &RemoteQuestions, told: &mut Option<NodeReachability>) -> Result<(), Failure> {
        let withdrawn = std::mem::take(&mut *remote.withdrawn.lock().unwrap_or_else(PoisonError::into_inner));
        let here: HashSet<String> = self.lock().keys().cloned().collect();
        let known: HashSet<String> = remote.questions().keys().cloned().collect();
        let reach = self.reach();
        let is_somebody = reach.default != Reachable::default() || !reach.workspaces.is_empty();
        let is_news = told.as_ref() != Some(&reach) && (told.is_some() || is_somebody);
        let (store, clock, mine) = (self.store.clone(), self.clock.clone(), reach.clone());
        let look = move || -> Result<StoreScan, StoreError> {
            for id in &withdrawn {
                unlist(&*store, id)?;
            }
            if is_news {
                let value = serde_json::to_vec(&mine).map_err(|e| StoreError::failed(e.to_string()))?;
                store.put(REACH, &store.owner().to_string(), value, None)?;
            }
            read(&*store, clock.now(), &here, &known)
        };
        let look = tokio::task::spawn_blocking(look).await;
        let look = look.map_err(|_| StoreError::failed("the store did not answer"))??;
        if is_news {
            *told = Some(reach);
        }
        remote.reached.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&look.reached);
        self.take_in(remote, look).await
    }

    /// Whether a caller of this node waits for an answer.
    fn waits(&self) -> bool {
        !self.lock().is_empty()
    }

    fn reach(&self) -> NodeReachability {
        let Owner { node, epoch } = self.store.owner();
        let mut workspaces = self.presence.reached();
        let default = workspaces.remove(&WorkspaceId::default()).unwrap_or_default();
        NodeReachability { node, epoch, default, workspaces }
    }

    async fn take_in(&self, remote: &RemoteQuestions, look: StoreScan) -> Result<(), Failure> {
        for asked in look.new {
            let approval = asked.approval.clone();
            let id = approval.request.id.clone();
            // A caller of this node may have joined the question meanwhile.
            if !self.lock().contains_key(&id) && remote.questions().insert(id, asked).is_none() {
                self.announce(ApprovalEvent::Requested(approval));
            }
        }
        for (id, answered) in look.over {
            let was_elsewhere = remote.questions().remove(&id).is_some();
            let Some(answered) = answered else { continue };
            let waiters = self.lock().remove(&id).map(|pending| pending.waiters);
            let was_here = waiters.is_some();
            let approval = Arc::new(answered);
            for waiter in waiters.unwrap_or_default() {
                // A call that was stopped meanwhile does not wait any more.
                drop(waiter.send(ApprovalOutcome { approval: approval.clone(), denial: None }));
            }
            if was_elsewhere || was_here {
                self.announce(ApprovalEvent::Resolved(approval));
            }
        }
        for (id, by) in look.open {
            if let Some(asked) = remote.questions().get_mut(&id) {
                asked.by = by;
            }
        }
        for id in look.expired {
            self.finish(&id, ApprovalDecision::Deny, Settler::default(), "timeout").await?;
        }
        Ok(())
    }

    /// Whether the caller of another node's question can be waiting for it.
    pub(super) fn is_awaited_elsewhere(&self, id: &str) -> bool {
        let Some(remote) = &self.remote else { return false };
        let by = remote.questions().get(id).map(|asked| asked.by.clone());
        by.is_some_and(|by| self.store.is_alive(&by).unwrap_or(false))
    }
}

fn read(
    store: &dyn Store,
    now: jiff::Timestamp,
    here: &HashSet<String>,
    known: &HashSet<String>,
) -> Result<StoreScan, StoreError> {
    let question = |id: &str| -> Result<Option<Approval>, StoreError> {
        Ok(store.get(SPACE, id)?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    };
    let (mut open, mut new, mut over, mut expired) = (HashMap::new(), Vec::new(), Vec::new(), Vec::new());
    for (id, value) in store.list(OPEN)? {
        let Ok(OpenQuestion { node, epoch }) = serde_json::from_slice(&value) else { continue };
        let by = Owner { node, epoch };
        if !here.contains(&id) && !known.contains(&id) {
            match question(&id)? {
                Some(approval) if approval.decision.is_none() => {
                    let long_over = approval.request.expires_at.checked_add(CLOSED_FOR_OTHERS_AFTER);
                    match long_over.is_ok_and(|end| end < now) {
                        true => expired.push(id.clone()),
                        false => new.push(RemoteQuestion { approval: Arc::new(approval), by: by.clone() }),
                    }
                }
                // Its node stopped between the answer and the list.
                _ => unlist(store, &id)?,
            }
        }
        open.insert(id, by);
    }
    for id in here.iter().chain(known).filter(|id| !open.contains_key(*id)) {
        match question(id)? {
            Some(approval) if approval.decision.is_some() => over.push((id.clone(), Some(approval))),
            // It waits here, and the list does not say so.
            Some(_) if here.contains(id) => list_open(store, id)?,
            _ => over.push((id.clone(), None)),
        }
    }
    Ok(StoreScan { open, new, over, expired, reached: reached(store)? })
}
