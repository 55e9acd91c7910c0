//! Idempotency keys: a second call with the same key gets the recorded result.

use super::{CallAnswer, CallRequest, Engine, lock};
use crate::{
    Caller, Store,
    record::RecordKind,
    scope::Comeback,
    secrets::{Marks, Placeholders, RunSecrets},
    store::{StoreError, Swap},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{Arc, Mutex},
};
use tokio::sync::watch;
use toolyard_protocol::{ErrorCode, Failure, RunId, ToolResult};

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
}

/// What is known of the run that a key was used for.
struct Earlier {
    result: Option<ToolResult>,
    /// Nothing was dispatched, and nobody works on the run any more: the call can be made.
    may_run: bool,
}

/// A direct call's run, and how its caller can come back for the result.
pub(super) struct KeyedRun {
    pub(super) origin: RunId,
    pub(super) comeback: Comeback,
}

/// Keys with a call in flight.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<String, watch::Receiver<()>>>);

impl Turns {
    /// Waits until no other call uses the idempotency key. The turn ends when the returned value is dropped, also if
    /// the caller goes away.
    async fn take(&self, key: &str) -> Turn<'_> {
        loop {
            let mut other = {
                let mut keys = lock(&self.0);
                match keys.get(key) {
                    Some(other) => other.clone(),
                    None => {
                        let (done, waiting) = watch::channel(());
                        keys.insert(key.to_owned(), waiting);
                        return Turn { turns: self, key: key.to_owned(), _done: done };
                    }
                }
            };
            // Nothing is ever sent: this answers when the other turn is dropped.
            let _ = other.changed().await;
        }
    }
}

/// The right to work under an idempotency key.
struct Turn<'a> {
    turns: &'a Turns,
    key: String,
    _done: watch::Sender<()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.turns.0).remove(&self.key);
    }
}

impl Engine {
    /// A direct call with an idempotency key. Where callers can come back, a caller that goes away leaves its call to
    /// itself: it goes on, and waits for a person as long as the caller would have.
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
        let mine = KeyUse { tool: request.tool.clone(), args_hash: args_hash.clone(), run_id, origin: None };
        let _turn = self.inner.turns.take(&full_key).await;
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
                let keyed = KeyedRun { origin: run_id, comeback: Comeback { key: full_key, entry } };
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
        let marks = Marks::of(&tools.snapshot, &policy, &request.tool);
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
        let store = self.inner.store.clone();
        let run_id = earlier.run_id;
        let max_output = self.policy_for(&caller).limits().max_output_bytes;
        let looked = tokio::task::spawn_blocking(move || look_up(&*store, run_id, max_output)).await;
        let looked = looked.ok().and_then(Result::ok);
        match looked {
            Some(Earlier { may_run: true, .. }) => {
                let again = KeyUse { origin: Some(earlier.origin.unwrap_or(run_id)), ..mine };
                self.call_again(caller, request, full_key, found, again).await
            }
            Some(Earlier { result: Some(result), .. }) => CallAnswer { result, deduplicated: true },
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

    /// Makes a call whose earlier run dispatched nothing: its caller comes back for the answer of a person, or the
    /// process died while it waited for one.
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
                let keyed = KeyedRun { origin, comeback: Comeback { key: full_key, entry } };
                CallAnswer { result: self.call_in_run(caller, request, run_id, Some(keyed)).await, deduplicated: false }
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

/// What became of the run that a key was used for. May block.
fn look_up(store: &dyn Store, run_id: RunId, max_output: u64) -> Result<Earlier, Failure> {
    store.settle()?;
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
    Ok(Earlier { result, may_run: is_known && waits && !is_dispatched && !is_held })
}

fn is_held_elsewhere(store: &dyn Store, run_id: RunId) -> Result<bool, StoreError> {
    match store.holder(run_id)? {
        Some(holder) if holder != store.owner() => store.is_alive(&holder),
        _ => Ok(false),
    }
}
