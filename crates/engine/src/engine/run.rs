//! What all runs have in common, single calls and plans: the scope, the row in the store, and the end.

use super::{Engine, lock};
use crate::{
    Caller, EventBus, Recorder, Store,
    ledger::TITLE_CHARS,
    record::{FinishedRecord, Record},
    scope::{RunScope, Usage},
    store::{Durability, RunKind, RunRow, StoreError},
};
use jiff::Timestamp;
use std::sync::{Arc, OnceLock};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolyard_catalog::EffectivePolicy;
use toolyard_protocol::{Failure, RunId, RunStatus};

/// Policies remembered as stored.
const MAX_STORED_POLICIES: usize = 1024;

/// A listener that receives every run that ends or pauses. It must return at once.
pub type RunEndListener = Box<dyn Fn(RunId, RunKind, RunStatus) + Send + Sync>;

impl Engine {
    /// Sets the listener for ended runs.
    pub fn on_run_end(&self, listener: RunEndListener) {
        self.inner.run_end.store(Some(Arc::new(listener)));
    }

    fn tell_run_end(&self, run_id: RunId, kind: RunKind, status: RunStatus) {
        if let Some(listener) = &*self.inner.run_end.load() {
            listener(run_id, kind, status);
        }
    }

    pub(crate) fn scope(
        &self,
        run_id: RunId,
        caller: Arc<Caller>,
        cancel: CancellationToken,
        previews: Option<crate::scope::Previews>,
    ) -> RunScope {
        let caller = caller.settled();
        let policy = self.policy_for(&caller);
        // A dry run is not recorded and sends no notifications.
        let (store, bus): (Arc<dyn Store>, Arc<EventBus>) = if previews.is_some() {
            (Arc::new(crate::memory_store::MemoryStore::new()), Arc::default())
        } else {
            (self.inner.store.clone(), self.inner.bus.clone())
        };
        let recorder = Recorder::begin(run_id, caller.session.clone(), store, bus, self.inner.signer.clone());
        self.scope_with(run_id, caller, policy, cancel, previews, recorder)
    }

    pub(crate) fn scope_with(
        &self,
        run_id: RunId,
        caller: Arc<Caller>,
        policy: Arc<EffectivePolicy>,
        cancel: CancellationToken,
        previews: Option<crate::scope::Previews>,
        recorder: Recorder,
    ) -> RunScope {
        RunScope {
            run_id,
            permits: Semaphore::new(policy.limits().max_concurrency.max(1) as usize),
            acting: caller.clone(),
            caller,
            tools: self.tools(),
            policy,
            recorder: Arc::new(recorder),
            cancel,
            confirmation: OnceLock::new(),
            usage: Usage::default(),
            policy_blob: OnceLock::new(),
            is_one_call: false,
            planner_version: None,
            previews,
            parent: None,
            origin: run_id,
            retry_key: None,
            client_call: None,
        }
    }

    /// Single calls share one copy of their policy, kept by content. Until a run that carries it has ended (and so has
    /// been handed to the store) every run carries it: one that still waits for a person has stored nothing.
    /// `None` where it cannot be written: then the run's first record carries it.
    pub(super) fn policy_blob(&self, scope: &RunScope) -> Option<String> {
        if scope.previews.is_none()
            && let Some(sha256) = lock(&self.inner.stored_policies).get(scope.policy.hash())
        {
            return Some(sha256.clone());
        }
        let bytes = serde_json::to_vec(&**scope.policy.snapshot())
            .inspect_err(|error| tracing::error!(%error, run = %scope.run_id, "a policy cannot be stored as a blob"))
            .ok()?;
        let blob = crate::Blob::new(bytes);
        let sha256 = blob.sha256.clone();
        scope.recorder.push_blobs([blob]);
        // A run has one policy, so a value that was set before is the same.
        scope.policy_blob.get_or_init(|| sha256.clone());
        Some(sha256)
    }

    pub(crate) fn row(
        &self,
        scope: &RunScope,
        kind: RunKind,
        title: &str,
        started_at: Timestamp,
        status: RunStatus,
        ended_at: Option<Timestamp>,
    ) -> RunRow {
        RunRow {
            run_id: scope.run_id,
            kind,
            status,
            title: title.chars().take(TITLE_CHARS).collect(),
            session: scope.caller.session.clone(),
            started_at,
            ended_at,
        }
    }

    /// Records a run's end and hands its head to the ledger. An error is logged here as well.
    #[allow(clippy::too_many_arguments)] // the parts of one closing record
    pub(crate) fn finish_run(
        &self,
        scope: &RunScope,
        kind: RunKind,
        title: &str,
        started_at: Timestamp,
        status: RunStatus,
        error: Option<Failure>,
        message: String,
    ) -> Result<(), StoreError> {
        let at = self.inner.clock.now();
        scope.recorder.push(&Record::Finished(FinishedRecord { at, status, error, message }));
        if kind == RunKind::Plan {
            scope.recorder.checkpoint();
        }
        scope.recorder.set_row(self.row(scope, kind, title, started_at, status, Some(at)));
        match scope.recorder.flush(Durability::Deferred) {
            Ok(_) => {
                if scope.previews.is_none() {
                    if let Some(sha256) = scope.policy_blob.get() {
                        let mut stored = lock(&self.inner.stored_policies);
                        if stored.len() >= MAX_STORED_POLICIES {
                            stored.clear(); // a blob that is stored twice is kept once
                        }
                        stored.insert(scope.policy.hash().to_owned(), sha256.clone());
                    }
                    let (seq, chain) = scope.recorder.head();
                    self.inner.sealer.run_ended(scope.run_id, seq, &chain);
                    self.tell_run_end(scope.run_id, kind, status);
                }
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, run_id = %scope.run_id, "the end of a run could not be recorded");
                self.note_interrupted(scope.run_id);
                Err(error)
            }
        }
    }
}
