//! Runs and calls in flight in this process, so that they can be found and cancelled.

use super::{Engine, lock};
use std::{collections::HashMap, hash::Hash, sync::Mutex};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{CallId, RunId};

/// The cancellation tokens of all runs and calls in flight.
#[derive(Default)]
pub(super) struct UnderWay {
    runs: Mutex<HashMap<RunId, CancellationToken>>,
    calls: Mutex<HashMap<CallId, CancellationToken>>,
}

impl UnderWay {
    /// Whether no run is in flight.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.runs).is_empty()
    }
}

/// Keeps a run or call registered while it is in flight.
pub(crate) struct Registered<'a, K: Hash + Eq> {
    map: &'a Mutex<HashMap<K, CancellationToken>>,
    key: K,
}

impl<K: Hash + Eq> Drop for Registered<'_, K> {
    fn drop(&mut self) {
        lock(self.map).remove(&self.key);
    }
}

impl Engine {
    /// Cancels a run. `false` if it is not in flight in this process.
    pub fn cancel_run(&self, run_id: RunId) -> bool {
        let token = lock(&self.inner.under_way.runs).get(&run_id).cloned();
        token.is_some_and(|t| {
            t.cancel();
            true
        })
    }

    /// Cancels one call. `false` if it is not in flight in this process.
    pub fn cancel_call(&self, call_id: CallId) -> bool {
        let token = lock(&self.inner.under_way.calls).get(&call_id).cloned();
        token.is_some_and(|t| {
            t.cancel();
            true
        })
    }

    /// The runs in flight in this process.
    pub fn active_runs(&self) -> Vec<RunId> {
        lock(&self.inner.under_way.runs).keys().copied().collect()
    }

    pub(crate) fn register_call(&self, call_id: CallId, token: CancellationToken) -> Registered<'_, CallId> {
        lock(&self.inner.under_way.calls).insert(call_id, token);
        Registered { map: &self.inner.under_way.calls, key: call_id }
    }
    pub(crate) fn register_run(&self, run_id: RunId, token: CancellationToken) -> Registered<'_, RunId> {
        self.note_own_run(run_id);
        lock(&self.inner.under_way.runs).insert(run_id, token);
        Registered { map: &self.inner.under_way.runs, key: run_id }
    }
}
