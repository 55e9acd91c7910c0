//! Idempotency keys: a second call with the same key gets the recorded result.

use super::{CallAnswer, CallRequest, Engine, lock};
use crate::{
    Caller,
    secrets::{Placeholders, RunSecrets},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};
use tokio::sync::watch;
use toolyard_protocol::{ErrorCode, Failure, RunId};

/// What is stored for a key: the call for which it was first used.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyUse {
    tool: String,
    args_hash: String,
    run_id: RunId,
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
    /// A direct call with an idempotency key.
    pub(super) async fn call_once(&self, caller: Arc<Caller>, request: CallRequest, key: String) -> CallAnswer {
        // Arguments without a canonical form are refused where all arguments are checked.
        let args_hash = self.kept_hash(&caller, &request).unwrap_or_default();
        let full_key = format!("{}\n{}\n{key}", caller.principal, caller.session.as_deref().unwrap_or_default());
        let run_id = request.run_id.unwrap_or_else(|| self.new_run_id());
        let mine = KeyUse { tool: request.tool.clone(), args_hash: args_hash.clone(), run_id };
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
        let space_key = full_key.clone();
        let existing =
            tokio::task::spawn_blocking(move || store.put_if_absent("idempotency", &space_key, bytes, expires)).await;
        match existing {
            Ok(Ok(None)) => CallAnswer { result: self.call_in_run(caller, request, run_id).await, deduplicated: false },
            Ok(Ok(Some(earlier))) => self.earlier_answer(caller, request, &args_hash, &earlier).await,
            Ok(Err(error)) => self.refuse_direct(caller, &request, error.into()),
            Err(_) => {
                self.refuse_direct(caller, &request, Failure::new(ErrorCode::InternalError, "the store did not answer"))
            }
        }
    }

    /// The hash of the arguments as the record keeps them: that of a secret itself could be guessed.
    fn kept_hash(&self, caller: &Caller, request: &CallRequest) -> Option<String> {
        let (tools, policy) = (self.tools(), self.policy_for(caller));
        let tool = tools.snapshot.get(&request.tool).map(|entry| &**entry);
        let secrets = RunSecrets::new(self.inner.signer.clone());
        secrets.hash(tool, &policy, &request.args, Placeholders::Hide).ok()
    }

    async fn earlier_answer(
        &self,
        caller: Arc<Caller>,
        request: CallRequest,
        args_hash: &str,
        earlier: &[u8],
    ) -> CallAnswer {
        let Ok(earlier) = serde_json::from_slice::<KeyUse>(earlier) else {
            return self.refuse_direct(
                caller,
                &request,
                Failure::new(ErrorCode::InternalError, "the idempotency key's entry cannot be read"),
            );
        };
        if earlier.args_hash != args_hash || earlier.tool != request.tool {
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
        let recorded = tokio::task::spawn_blocking(move || {
            store.settle()?;
            crate::view::last_result(&*store, run_id, max_output)
        })
        .await;
        let result = recorded.ok().and_then(Result::ok).flatten();
        match result {
            Some(result) => CallAnswer { result, deduplicated: true },
            None => {
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
}
