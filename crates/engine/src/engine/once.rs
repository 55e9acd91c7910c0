//! Idempotency keys: a second call with the same key gets the recorded result.

use super::{CallAnswer, CallRequest, Engine, lock};
use crate::{
    Caller, Store,
    record::RecordKind,
    scope::RetryKey,
    secrets::{Placeholders, RunSecrets, SecretMarks},
    store::{Hints, Owner, StoreError, Swap},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{ErrorCode, Failure, RunId, ToolResult};

/// How often a call that waits for its twin at another node looks at the store when no hint comes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the other nodes may take to continue a run of a dead node before its outcome counts as unknown.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(15);

/// Where the store keeps idempotency keys.
pub(crate) const KEYS: &str = "idempotency";

/// What is stored for a key: the call for which it was first used.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyUse {
    tool: String,
    args_hash: String,
    run_id: RunId,
    /// The first run of the call, where it was made again because nothing had been dispatched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<RunId>,
    /// The node that makes the call, where several nodes use the store: until the first record of the run is stored,
    /// nothing else says who works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<NodeEpoch>,
}

/// A node during one run of its process: its name and its epoch.
#[derive(Clone, Serialize, Deserialize)]
struct NodeEpoch {
    node: String,
    epoch: u64,
}

impl NodeEpoch {
    /// This node, where there are others.
    fn of(store: &dyn Store) -> Option<Self> {
        let Owner { node, epoch } = store.is_shared().then(|| store.owner())?;
        Some(Self { node, epoch })
    }

    fn owner(&self) -> Owner {
        Owner { node: self.node.clone(), epoch: self.epoch }
    }
}

/// The state of the run for which a key was used.
struct EarlierRun {
    result: Option<ToolResult>,
    /// Whether nothing was dispatched and nobody works on the run any more, so that the call can be made.
    may_run: bool,
    /// Who works on it, where several nodes use the store.
    elsewhere: RemoteState,
}

/// Whether another node has a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemoteState {
    /// No node works on it any more, or the store is used by this machine only.
    No,
    /// A node that is alive works on it.
    UnderWay,
    /// Its node is dead, and no other node continues the run yet.
    LeftBehind,
}

/// The run of a direct call, and how its caller can get the result later.
pub(super) struct KeyedRun {
    pub(super) origin: RunId,
    pub(super) retry_key: RetryKey,
}

/// Keys with a call in flight.
#[derive(Default)]
pub(super) struct KeyLocks(Mutex<HashMap<String, watch::Receiver<()>>>);

impl KeyLocks {
    /// Waits until no other call uses the idempotency key. The lock is released when the returned value is dropped, also if
    /// the caller goes away.
    async fn take(&self, key: &str) -> KeyLock<'_> {
        loop {
            let mut other = {
                let mut keys = lock(&self.0);
                match keys.get(key) {
                    Some(other) => other.clone(),
                    None => {
                        let (done, waiting) = watch::channel(());
                        keys.insert(key.to_owned(), waiting);
                        return KeyLock { locks: self, key: key.to_owned(), _done: done };
                    }
                }
            };
            // Nothing is ever sent on the channel: this returns when the other lock is dropped.
            let _ = other.changed().await;
        }
    }
}

/// The right to work under an idempotency key.
struct KeyLock<'a> {
    locks: &'a KeyLocks,
    key: String,
    _done: watch::Sender<()>,
}

impl Drop for KeyLock<'_> {
    fn drop(&mut self) {
        lock(&self.locks.0).remove(&self.key);
    }
}

impl Engine {
    /// A direct call with an idempotency key. If callers can get the result later, the call of a disconnected caller
    /// continues, and waits for a person as long as the caller would have.
    pub(super) async fn call_keyed(&self, caller: Arc<Caller>, request: CallRequest, key: String) -> CallAnswer {
        if !self.approvals().keeps_questions() {
            return self.call_once(caller, request, key).await;
        }
        let (engine, who, same) = (self.clone(), caller.clone(), request.clone());
        match tokio::spawn(async move { engine.call_once(caller, request, key).await }).await {
            Ok(answer) => answer,
            Err(_) => {
                let failure = Failure::new(ErrorCode::InternalError, "the call failed unexpectedly");
                self.refuse_direct(who, &same, failure)
            }
        }
    }

    async fn call_once(&self, caller: Arc<Caller>, request: CallRequest, key: String) -> CallAnswer {
        // Arguments without a canonical form are refused where all arguments are checked.
        let args_hash = self.kept_hash(&caller, &request).unwrap_or_default();
        let full_key = format!("{}\n{}\n{key}", caller.principal, caller.session.as_deref().unwrap_or_default());
        let run_id = request.run_id.unwrap_or_else(|| self.new_run_id());
        let by = NodeEpoch::of(&*self.inner.store);
        let mine = KeyUse { tool: request.tool.clone(), args_hash: args_hash.clone(), run_id, origin: None, by };
        let _lock = self.inner.key_locks.take(&full_key).await;
        let expires = self.inner.clock.now().checked_add(self.inner.options.idempotency_window).ok();
        let bytes = match serde_json::to_vec(&mine) {
            Ok(bytes) => bytes,
            Err(error) => {
                let failure = Failure::new(ErrorCode::InternalError, format!("the call cannot be written: {error}"));
                return self.refuse_direct(caller, &request, failure);
            }
        };
        let store = self.inner.store.clone();
        let (space_key, entry) = (full_key.clone(), bytes.clone());
        let existing = tokio::task::spawn_blocking(move || store.put_if_absent(KEYS, &space_key, bytes, expires)).await;
        match existing {
            Ok(Ok(None)) => {
                let keyed = KeyedRun { origin: run_id, retry_key: RetryKey { key: full_key, entry } };
                CallAnswer { result: self.call_in_run(caller, request, run_id, Some(keyed)).await, deduplicated: false }
            }
            Ok(Ok(Some(earlier))) => self.earlier_answer(caller, request, full_key, mine, earlier).await,
            Ok(Err(error)) => self.refuse_direct(caller, &request, error.into()),
            Err(_) => {
                self.refuse_direct(caller, &request, Failure::new(ErrorCode::InternalError, "the store did not answer"))
            }
        }
    }

    /// The hash of the arguments as the record keeps them: that of a secret itself could be guessed.
    fn kept_hash(&self, caller: &Caller, request: &CallRequest) -> Option<String> {
        let (tools, policy) = (self.tools(), self.policy_for(caller));
        let marks = SecretMarks::of(&tools.snapshot, &policy, &request.tool);
        let secrets = RunSecrets::new(self.inner.signer.clone());
        secrets.hash(marks, &request.args, Placeholders::Hide).ok()
    }

    async fn earlier_answer(
        &self,
        caller: Arc<Caller>,
        request: CallRequest,
        full_key: String,
        mine: KeyUse,
        found: Vec<u8>,
    ) -> CallAnswer {
        let Ok(earlier) = serde_json::from_slice::<KeyUse>(&found) else {
            return self.refuse_direct(
                caller,
                &request,
                Failure::new(ErrorCode::InternalError, "the idempotency key's entry cannot be read"),
            );
        };
        if earlier.args_hash != mine.args_hash || earlier.tool != request.tool {
            let failure =
                Failure::new(ErrorCode::Conflict, "this idempotency key was used with another tool or other arguments")
                    .suggest("Use a new key for a new call.")
                    .detail("runId", earlier.run_id.to_string())
                    .retryable(false);
            return self.refuse_direct(caller, &request, failure);
        }
        let run_id = earlier.run_id;
        let max_output = self.policy_for(&caller).limits().max_output_bytes;
        let cancel = request.cancel.clone().unwrap_or_else(|| self.call_token());
        let Some(looked) = self.look_until_over(&earlier, max_output, &cancel).await else {
            let failure =
                Failure::new(ErrorCode::Cancelled, "stopped while another node made the call").retryable(false);
            return self.refuse_direct(caller, &request, failure);
        };
        match looked {
            Ok(EarlierRun { may_run: true, .. }) => {
                let again = KeyUse { origin: Some(earlier.origin.unwrap_or(run_id)), ..mine };
                self.call_again(caller, request, full_key, found, again).await
            }
            Ok(EarlierRun { result: Some(result), .. }) => CallAnswer { result, deduplicated: true },
            _ => {
                let failure = Failure::new(
                    ErrorCode::Conflict,
                    "a call with this idempotency key was interrupted; its outcome is not known",
                )
                .suggest("Look at the run with `toolyard runs show`, then use a new key.")
                .detail("runId", run_id.to_string())
                .detail("reason", "IN_DOUBT");
                self.refuse_direct(caller, &request, failure)
            }
        }
    }

    /// What became of the earlier call. A call that another node makes is waited for, until it has its result or its
    /// node is fenced and another one has settled it. `None` when the caller goes away.
    async fn look_until_over(
        &self,
        earlier: &KeyUse,
        max_output: u64,
        cancel: &CancellationToken,
    ) -> Option<Result<EarlierRun, Failure>> {
        let mut watching: Option<Hints> = None;
        let mut left_since = None;
        loop {
            if let Some(hints) = &mut watching {
                hints.mark_unchanged();
            }
            let (store, of) = (self.inner.store.clone(), earlier.clone());
            // A sweep of this node may have taken the run over.
            let is_here = store.is_shared() && self.active_runs().contains(&earlier.run_id);
            let looked = tokio::task::spawn_blocking(move || look_up(&*store, &of, is_here, max_output)).await;
            let looked =
                looked.unwrap_or_else(|_| Err(Failure::new(ErrorCode::InternalError, "the store did not answer")));
            match &looked {
                Ok(EarlierRun { elsewhere: RemoteState::UnderWay, .. }) => left_since = None,
                Ok(EarlierRun { elsewhere: RemoteState::LeftBehind, .. }) => {
                    let since = left_since.get_or_insert_with(tokio::time::Instant::now);
                    if since.elapsed() > TAKEN_OVER_WITHIN {
                        return Some(looked);
                    }
                }
                _ => return Some(looked),
            }
            // Looked at once more after the first hint could have come.
            let Some(hints) = &mut watching else {
                watching = Some(self.inner.store.watch());
                continue;
            };
            tokio::select! {
                _ = hints.changed() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = cancel.cancelled() => return None,
            }
        }
    }

    /// Makes a call whose earlier run dispatched nothing: its caller repeats it after a person has answered, or the
    /// process died while it waited for the answer.
    async fn call_again(
        &self,
        caller: Arc<Caller>,
        request: CallRequest,
        full_key: String,
        found: Vec<u8>,
        again: KeyUse,
    ) -> CallAnswer {
        let entry = match serde_json::to_vec(&again) {
            Ok(entry) => entry,
            Err(error) => {
                let failure = Failure::new(ErrorCode::InternalError, format!("the call cannot be written: {error}"));
                return self.refuse_direct(caller, &request, failure);
            }
        };
        let expires = self.inner.clock.now().checked_add(self.inner.options.idempotency_window).ok();
        let (store, key, wanted) = (self.inner.store.clone(), full_key.clone(), entry.clone());
        let swap = move || store.compare_and_set(KEYS, &key, Some(&found), Some((wanted, expires)));
        match tokio::task::spawn_blocking(swap).await {
            Ok(Ok(Swap::Done)) => {
                let (run_id, origin) = (again.run_id, again.origin.unwrap_or(again.run_id));
                let keyed = KeyedRun { origin, retry_key: RetryKey { key: full_key, entry } };
                CallAnswer { result: self.call_in_run(caller, request, run_id, Some(keyed)).await, deduplicated: false }
            }
            // Another node was quicker: its call is waited for.
            Ok(Ok(Swap::Differs(Some(now)))) if self.inner.store.is_shared() => {
                Box::pin(self.earlier_answer(caller, request, full_key, again, now)).await
            }
            Ok(Ok(Swap::Differs(_))) => {
                let failure = Failure::new(ErrorCode::Conflict, "another process makes this call now")
                    .suggest("Make the call again with the same key to get its result.");
                self.refuse_direct(caller, &request, failure)
            }
            Ok(Err(error)) => self.refuse_direct(caller, &request, error.into()),
            Err(_) => {
                self.refuse_direct(caller, &request, Failure::new(ErrorCode::InternalError, "the store did not answer"))
            }
        }
    }
}

/// The state of the run that a key was used for. May block.
fn look_up(store: &dyn Store, earlier: &KeyUse, is_here: bool, max_output: u64) -> Result<EarlierRun, Failure> {
    let run_id = earlier.run_id;
    store.settle()?;
    let elsewhere = elsewhere(store, earlier, is_here)?;
    if elsewhere != RemoteState::No {
        return Ok(EarlierRun { result: None, may_run: false, elsewhere });
    }
    let is_held = is_held_elsewhere(store, run_id)?;
    let mut is_dispatched = false;
    store.frames(run_id, 1, &mut |frame| {
        is_dispatched = frame.kind == RecordKind::Call as u8;
        if is_dispatched { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let is_known = store.head(run_id)?.is_some();
    let result = match is_known {
        true => crate::view::last_result(store, run_id, max_output)?,
        false => None,
    };
    let waits = result
        .as_ref()
        .is_none_or(|result| result.error.as_ref().is_some_and(|error| error.code == ErrorCode::ConfirmationRequired));
    // A node that was fenced before it stored the first record of its run has dispatched nothing.
    let may_begin = is_known || (store.is_shared() && earlier.by.is_some());
    Ok(EarlierRun { result, may_run: may_begin && waits && !is_dispatched && !is_held, elsewhere })
}

/// Whether another node has the run, or a sweep of this one works on it.
fn elsewhere(store: &dyn Store, earlier: &KeyUse, is_here: bool) -> Result<RemoteState, StoreError> {
    let Some(by) = earlier.by.as_ref().filter(|_| store.is_shared()).map(NodeEpoch::owner) else {
        return Ok(RemoteState::No);
    };
    match store.holder(earlier.run_id)? {
        Some(holder) if holder == store.owner() && !is_here => Ok(RemoteState::No),
        Some(holder) if store.is_alive(&holder)? => Ok(RemoteState::UnderWay),
        Some(_) => Ok(RemoteState::LeftBehind),
        None if store.head(earlier.run_id)?.is_some() => Ok(RemoteState::No),
        None if by != store.owner() && store.is_alive(&by)? => Ok(RemoteState::UnderWay),
        None => {
            // Nothing of a dead node is stored once it is fenced, so that the call can be made.
            if by != store.owner() {
                store.fence(&by)?;
            }
            match store.holder(earlier.run_id)? {
                Some(_) => Ok(RemoteState::LeftBehind),
                None => Ok(RemoteState::No),
            }
        }
    }
}

fn is_held_elsewhere(store: &dyn Store, run_id: RunId) -> Result<bool, StoreError> {
    match store.holder(run_id)? {
        Some(holder) if holder != store.owner() => store.is_alive(&holder),
        _ => Ok(false),
    }
}
