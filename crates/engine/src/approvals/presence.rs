//! Which approvers and people could answer a question now. They are counted by workspace, because a client of one
//! workspace never answers questions of another.

use super::{Approvals, RemoteQuestions};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use toolyard_protocol::WorkspaceId;

/// The number of connected approvers and of people who can be reached, by workspace.
#[derive(Default)]
pub(super) struct Presence(Mutex<BTreeMap<WorkspaceId, Counts>>);

#[derive(Default)]
struct Counts {
    approvers: usize,
    people: usize,
}

/// Who can be reached in a workspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reachable {
    /// Somebody is connected who may answer questions.
    pub(super) approvers: bool,
    /// A person who may answer everything can be reached.
    pub(super) people: bool,
}

impl Reachable {
    pub(super) fn or(self, other: Self) -> Self {
        Self { approvers: self.approvers || other.approvers, people: self.people || other.people }
    }
}

impl Presence {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkspaceId, Counts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, workspace: &WorkspaceId, change: impl FnOnce(&mut Counts)) {
        let mut all = self.lock();
        let counts = all.entry(workspace.clone()).or_default();
        change(counts);
        if counts.approvers == 0 {
            all.remove(workspace);
        }
    }

    /// Who can be reached here, by workspace. A person counts as an approver, so nobody is left out.
    pub(super) fn reached(&self) -> BTreeMap<WorkspaceId, Reachable> {
        let of = |counts: &Counts| Reachable { approvers: counts.approvers > 0, people: counts.people > 0 };
        self.lock().iter().map(|(workspace, counts)| (workspace.clone(), of(counts))).collect()
    }

    fn of(&self, workspace: &WorkspaceId) -> Reachable {
        self.reached().get(workspace).copied().unwrap_or_default()
    }
}

/// Somebody who can answer is connected for as long as this lives.
pub struct ApproverPresence {
    approvals: Arc<Approvals>,
    workspace: WorkspaceId,
}

impl Drop for ApproverPresence {
    fn drop(&mut self) {
        self.approvals.presence.change(&self.workspace, |counts| counts.approvers -= 1);
        self.approvals.reach_changed();
    }
}

/// A person who may answer everything can be reached for as long as this lives.
pub struct PersonPresence(ApproverPresence);

impl Drop for PersonPresence {
    fn drop(&mut self) {
        self.0.approvals.presence.change(&self.0.workspace, |counts| counts.people -= 1);
        self.0.approvals.reach_changed();
    }
}

impl Approvals {
    /// Registers that an approver of a workspace is connected.
    pub fn approver_connected(self: &Arc<Self>, workspace: &WorkspaceId) -> ApproverPresence {
        self.presence.change(workspace, |counts| counts.approvers += 1);
        self.reach_changed();
        ApproverPresence { approvals: self.clone(), workspace: workspace.clone() }
    }

    /// Registers that a person who may answer everything in a workspace can be reached without a connection: somebody
    /// watches the list at this machine, or is sent notifications.
    pub fn person_reachable(self: &Arc<Self>, workspace: &WorkspaceId) -> PersonPresence {
        let presence = self.approver_connected(workspace);
        self.presence.change(workspace, |counts| counts.people += 1);
        PersonPresence(presence)
    }

    /// Whether such a person can be reached, by this node or another one.
    pub fn is_person_reachable(&self, workspace: &WorkspaceId) -> bool {
        self.reach_of(workspace).people
    }

    /// Who can be reached, as far as is known without asking the store.
    pub(super) fn reach_of(&self, workspace: &WorkspaceId) -> Reachable {
        let others = self.remote.as_ref().map(|remote| remote.reached(workspace)).unwrap_or_default();
        self.presence.of(workspace).or(others)
    }

    pub(super) fn reach_changed(&self) {
        if let Some(remote) = self.remote.as_ref() {
            RemoteQuestions::reach_changed(remote);
        }
    }
}
