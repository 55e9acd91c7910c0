//! Runs and calls in flight in this process, so that they can be found and cancelled.

use super::{Engine, lock};
use crate::{Caller, authority, scope::RunScope};
use std::{collections::HashMap, hash::Hash, sync::Mutex};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{CallId, ErrorCode, Failure, RunId, WorkspaceId};

/// The cancellation tokens of all runs and calls in flight.
#[derive(Default)]
pub(super) struct InFlight {
    runs: Mutex<HashMap<RunId, Active>>,
    calls: Mutex<HashMap<CallId, Active>>,
}

/// A run or call in flight.
struct Active {
    cancel: CancellationToken,
    workspace: WorkspaceId,
}

impl InFlight {
    /// Whether no run is in flight.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.runs).is_empty()
    }
}

fn cancel<K: Hash + Eq>(map: &Mutex<HashMap<K, Active>>, key: K, may: impl Fn(&WorkspaceId) -> bool) -> bool {
    let token = lock(map).get(&key).filter(|active| may(&active.workspace)).map(|active| active.cancel.clone());
    token.is_some_and(|token| {
        token.cancel();
        true
    })
}

/// Keeps a run or call registered while it is in flight.
struct Registered<'a, K: Hash + Eq, V> {
    map: &'a Mutex<HashMap<K, V>>,
    key: K,
}

impl<K: Hash + Eq, V> Drop for Registered<'_, K, V> {
    fn drop(&mut self) {
        lock(self.map).remove(&self.key);
    }
}

impl Engine {
    /// Cancels a run. `false` if it is not in flight in this process.
    pub fn cancel_run(&self, run_id: RunId) -> bool {
        cancel(&self.inner.in_flight.runs, run_id, |_| true)
    }

    /// Cancels a run of a caller's workspace. `false` if no such run is in flight in this process.
    pub fn cancel_run_for(&self, caller: &Caller, run_id: RunId) -> bool {
        cancel(&self.inner.in_flight.runs, run_id, |workspace| authority::sees(caller, workspace))
    }

    /// Cancels one call of a caller's workspace. `false` if no such call is in flight in this process.
    pub fn cancel_call_for(&self, caller: &Caller, call_id: CallId) -> bool {
        cancel(&self.inner.in_flight.calls, call_id, |workspace| authority::sees(caller, workspace))
    }

    /// The number of runs of a workspace in flight in this process.
    pub fn count_active(&self, workspace: &WorkspaceId) -> usize {
        lock(&self.inner.in_flight.runs).values().filter(|run| run.workspace == *workspace).count()
    }

    /// The runs in flight in this process.
    pub fn active_runs(&self) -> Vec<RunId> {
        lock(&self.inner.in_flight.runs).keys().copied().collect()
    }

    /// The workspace of a run; `None` if there is no such run. May block.
    pub fn workspace_of(&self, run_id: RunId) -> Result<Option<WorkspaceId>, Failure> {
        if let Some(run) = lock(&self.inner.in_flight.runs).get(&run_id) {
            return Ok(Some(run.workspace.clone()));
        }
        let store = &self.inner.store;
        store.settle()?;
        let of_row =
            |session: Option<String>| session.map_or_else(WorkspaceId::default, |kept| WorkspaceId::of(&kept).0);
        Ok(store.run(run_id)?.map(|row| of_row(row.session)))
    }

    /// Refuses a run of another workspace as if it did not exist. May block.
    pub fn check_run(&self, caller: &Caller, run_id: RunId) -> Result<(), Failure> {
        let is_seen = match self.workspace_of(run_id)? {
            Some(workspace) => authority::sees(caller, &workspace),
            // A run that nobody knows is refused where it is looked for.
            None => caller.workspace.is_default(),
        };
        match is_seen {
            true => Ok(()),
            false => Err(unknown_run(run_id)),
        }
    }

    pub(crate) fn register_call(&self, scope: &RunScope, call_id: CallId, cancel: CancellationToken) -> impl Drop {
        let call = Active { cancel, workspace: scope.caller.workspace.clone() };
        lock(&self.inner.in_flight.calls).insert(call_id, call);
        Registered { map: &self.inner.in_flight.calls, key: call_id }
    }
    pub(crate) fn register_run(&self, scope: &RunScope) -> impl Drop {
        let run_id = scope.run_id;
        self.note_own_run(run_id);
        let run = Active { cancel: scope.cancel.clone(), workspace: scope.caller.workspace.clone() };
        lock(&self.inner.in_flight.runs).insert(run_id, run);
        Registered { map: &self.inner.in_flight.runs, key: run_id }
    }
}

/// The refusal of a run that does not exist, or not for this caller.
fn unknown_run(run_id: RunId) -> Failure {
    Failure::new(ErrorCode::NotFound, format!("there is no run {run_id}"))
}
