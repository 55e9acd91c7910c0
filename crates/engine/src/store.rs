//! [`Store`]: where runs, their records and small durable facts are kept. The engine decides what is kept; a store
//! decides how.
//!
//! A store keeps bytes in order and nothing more. The engine decides what the bytes mean, how they are chained and
//! signed, and what must be durable before what, so that every store gives the same proof. One test suite
//! (`crates/store/tests/contract.rs`) applies to every implementation.

pub mod checks;

use crate::{Blob, BoxFuture};
use jiff::Timestamp;
use schemars::JsonSchema;
use std::ops::ControlFlow;
use toolyard_protocol::{ErrorCode, Failure, RunId, RunStatus, WorkspaceId};

/// Rows read at a time by a store that counts runs by listing them.
const RUNS_PER_COUNT: usize = 1000;

/// One record of a run, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Position in the run, counted from 1 without gaps.
    pub seq: u64,
    /// The kind of the payload; see [`crate::record::RecordKind`].
    pub kind: u8,
    /// The payload: JSON in UTF-8.
    pub payload: Vec<u8>,
    /// SHA-256 over the previous frame's chain value and this frame.
    pub chain: [u8; 32],
}

/// What can be asked of runs without reading their records. Derived from the records, kept for listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// The run.
    pub run_id: RunId,
    /// `plan` or `call`.
    pub kind: RunKind,
    /// The status of the run.
    pub status: RunStatus,
    /// The plan's goal, or the tool's name.
    pub title: String,
    /// The session it belongs to.
    pub session: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// A plan's run, or a single direct call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunKind {
    /// The run of a plan.
    Plan,
    /// A direct call.
    Call,
}

/// The owner of runs: a node and its epoch (one run of its process). Only the store interprets an owner, and knows
/// whether it is alive.
///
/// A store handle has one owner for as long as it is open. A later start of the same node has a higher epoch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The home or the machine.
    pub node: String,
    /// The number of the start of its process; it grows with every start.
    pub epoch: u64,
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.node, self.epoch)
    }
}

/// How a node of a cluster is doing, as the store knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// Its lease is current.
    Live,
    /// It finishes its work and takes no new work.
    Draining,
    /// Its lease has run out. Another node takes over its runs.
    Dead,
}

/// A node that works on a shared store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Its name and epoch.
    pub owner: Owner,
    /// Where other nodes reach it, once it has said so; see [`Store::set_address`].
    pub address: Option<String>,
    /// Whether the node is live, draining or dead.
    pub state: NodeState,
}

/// The last frame of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Its number.
    pub seq: u64,
    /// Its chain value.
    pub chain: [u8; 32],
}

/// A run that is neither ended nor paused and that no living owner holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftBehind {
    /// The run.
    pub row: RunRow,
    /// The owner that held it. `None` if the owner released it.
    pub holder: Option<Owner>,
}

/// When a batch must have reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// With the next batch that syncs, or soon: losing it to a power cut loses nothing that cannot be done again.
    Deferred,
    /// Before [`Store::durable`] answers.
    Sync,
}

/// A set of changes that becomes visible and durable together.
#[derive(Debug)]
pub struct Batch {
    /// The run the frames belong to.
    pub run_id: RunId,
    /// New records, in order.
    pub frames: Vec<Frame>,
    /// Blobs the records refer to.
    pub blobs: Vec<Blob>,
    /// The run's row, when it is new or has changed.
    pub row: Option<RunRow>,
    /// The life in which this was recorded. A store takes nothing of an earlier life: see [`StoreError::Fenced`].
    pub epoch: u64,
    /// Nobody holds the run after this batch. A batch whose row is final does the same.
    pub release: bool,
    /// When it must have reached the disk.
    pub durability: Durability,
}

/// A place in the store's order of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position(pub u64);

/// Which runs to list.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Only these states; empty means all.
    pub statuses: Vec<RunStatus>,
    /// Only this kind.
    pub kind: Option<RunKind>,
    /// Only this session.
    pub session: Option<String>,
    /// Only runs of this workspace, which their sessions name; those of all where it is absent.
    pub workspace: Option<WorkspaceId>,
    /// Only runs whose id is smaller than this one (ids sort by time), for the next page.
    pub before: Option<RunId>,
    /// Only runs whose id is larger than this one, the oldest first. The nil id begins with the oldest of all.
    pub after: Option<RunId>,
    /// At most this many; 0 means 100, and 10,000 is the most.
    pub limit: usize,
}

/// An entry of the store-wide ledger: leaves of the tree over ended runs, signed; see [`crate::ledger`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Position, counted from 1 without gaps.
    pub seq: u64,
    /// The payload: JSON in UTF-8.
    pub payload: Vec<u8>,
    /// The root of the tree with this entry.
    pub chain: [u8; 32],
}

/// The reason for which a store refuses or fails a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be read or written, or its content is invalid.
    #[error("{0}")]
    Failed(String),
    /// Another owner has taken over, and the store refuses everything that this owner writes.
    #[error("{0} was fenced: another process has taken over its runs")]
    Fenced(Owner),
    /// There is no room. The store serves again by itself once there is.
    #[error("{0}")]
    DiskFull(String),
    /// It holds a fact that this program did not write, or an older one that was put back.
    #[error("{0}")]
    Tampered(String),
}

impl StoreError {
    /// A failure that has no kind of its own.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed(reason.into())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match error {
            StoreError::Tampered(_) => ErrorCode::RecordCorrupted,
            _ => ErrorCode::StoreUnavailable,
        };
        let failure = Failure::new(code, error.to_string());
        match error {
            StoreError::Tampered(_) => failure.suggest("Run `toolyard runs verify`: it names what was changed."),
            StoreError::DiskFull(_) => {
                failure.suggest("Free some space on the disk of the state folder; Toolyard then continues by itself.")
            }
            StoreError::Fenced(_) => failure.suggest("Restart this process."),
            StoreError::Failed(_) => failure,
        }
    }
}

/// The result of [`Store::compare_and_set`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swap {
    /// The fact is now as wanted.
    Done,
    /// Nothing was changed; this is the current value.
    Differs(Option<Vec<u8>>),
}

/// A fact as the store holds it, with its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFact {
    /// Its key within its space.
    pub key: String,
    /// Its bytes.
    pub value: Vec<u8>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// What [`Store::remove_unused_blobs`] removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovedBlobs {
    /// How many.
    pub blobs: u64,
    /// Their bytes, before compression.
    pub bytes: u64,
}

/// A fact as it is to become: its value and when it expires. `None` removes it.
pub type NewFact = Option<(Vec<u8>, Option<Timestamp>)>;

/// A hint that something in the store changed, in any process. The number increases; hints are coalesced, so a receiver
/// must read everything after what it knows.
pub type Hints = tokio::sync::watch::Receiver<u64>;

/// Makes the next ledger entry from the last one (`None` for the first): `(payload, chain)`. May read the store. When it
/// fails, nothing is appended.
pub type LedgerMaker<'a> = &'a mut dyn FnMut(Option<&LedgerEntry>) -> Result<(Vec<u8>, [u8; 32]), StoreError>;

/// Called with each frame in order; `Break` ends the walk.
pub type FrameVisitor<'a> = &'a mut dyn FnMut(Frame) -> ControlFlow<()>;

/// Facts answered by one page of [`Store::list`].
const FACTS_PER_PAGE: usize = 1000;

/// Keeps runs and small facts. Methods that read may block: call them from a blocking thread.
///
/// Every store gives these guarantees:
/// 1. Batches of one process become visible in the order of their `append` calls, each whole or not at all.
/// 2. Once `durable(p)` has answered Ok, every batch appended up to `p` survives a power cut.
/// 3. A `Deferred` batch survives `kill -9` of the process within 100 ms of its append.
/// 4. After a failed sync, every later `append` and `durable` fails: a log that may have a hole is never continued.
/// 5. A run's `(runId, seq)` is unique: appending a frame that exists already fails.
/// 6. A full disk fails the batches that found no room, and the runs they belong to until these are claimed again. Once
///    there is room the store goes on.
/// 7. Once [`Store::fence`] has answered, nothing more of that owner becomes visible, and what it had been told is durable
///    is visible.
pub trait Store: Send + Sync + 'static {
    /// Queues a batch. Fails at once when the store is poisoned; waits only when the queue is full.
    fn append(&self, batch: Batch) -> Result<Position, StoreError>;

    /// Answers when everything up to the position is durable. Makes `Deferred` batches durable as well.
    fn durable(&self, position: Position) -> BoxFuture<'static, Result<(), StoreError>>;

    /// The same as [`Store::durable`], for a caller whose thread has no other work: the store may perform a short sync
    /// on it, which avoids waking another thread.
    fn durable_here(&self, position: Position) -> BoxFuture<'static, Result<(), StoreError>> {
        self.durable(position)
    }

    /// Whether the store can be written to now, as far as it knows without writing. Answers at once.
    fn writable(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Answers when everything appended so far is visible to reads (not necessarily synced).
    fn settle(&self) -> Result<(), StoreError>;

    /// A run's row.
    fn run(&self, run_id: RunId) -> Result<Option<RunRow>, StoreError>;

    /// Rows, newest first; with [`RunFilter::after`], oldest first.
    fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError>;

    /// How many runs fit; `limit` does not count. A store that can count without reading the rows does so.
    fn count_runs(&self, filter: &RunFilter) -> Result<u64, StoreError> {
        let mut page = RunFilter { limit: RUNS_PER_COUNT, ..filter.clone() };
        let mut total = 0;
        loop {
            let rows = self.runs(&page)?;
            total += rows.len() as u64;
            let last = rows.last().map(|row| row.run_id).filter(|_| rows.len() == RUNS_PER_COUNT);
            match (last, filter.after) {
                (None, _) => return Ok(total),
                (last, Some(_)) => page.after = last,
                (last, None) => page.before = last,
            }
        }
    }

    /// Runs that have frames and no row, at most `limit`. Nothing lists them, so verification asks for them.
    fn unlisted_runs(&self, limit: usize) -> Result<Vec<RunId>, StoreError>;

    /// A run's frames in order, from a sequence number on.
    fn frames(&self, run_id: RunId, from_seq: u64, visit: FrameVisitor<'_>) -> Result<(), StoreError>;

    /// The last frame of a run. After an error that leaves open whether a batch was written, this tells: the batch's last
    /// frame means that it was, the frame before it that it was not, anything else that somebody else writes the run.
    fn head(&self, run_id: RunId) -> Result<Option<Head>, StoreError>;

    /// The owner of this handle. The owner that appends the first batch of a run holds the run.
    fn owner(&self) -> Owner;

    /// The life that [`Store::owner`] names: what this handle's batches carry.
    fn epoch(&self) -> u64 {
        self.owner().epoch
    }

    /// Whether an owner is alive, as far as the store can tell.
    fn is_alive(&self, owner: &Owner) -> Result<bool, StoreError>;

    /// Revokes an owner's right to write, whether it is alive or not; see promise 7.
    fn fence(&self, owner: &Owner) -> Result<(), StoreError>;

    /// Whether several nodes work on this store at once. Everything that exists for a cluster is behind this: a store of
    /// one machine answers `false`, and nothing changes for it.
    fn is_shared(&self) -> bool {
        false
    }

    /// The nodes that serve on this store, by name; empty for a store that is not shared. A node that closed its store
    /// is not listed. One that died is listed as dead until another node has fenced it.
    fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        Ok(Vec::new())
    }

    /// Says where other nodes reach this one. Does nothing if the store is not shared.
    fn set_address(&self, _address: &str) -> Result<(), StoreError> {
        Ok(())
    }

    /// Says that this node takes no new work. Does nothing if the store is not shared.
    fn set_draining(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The secret that all nodes of a shared store know. Keys are derived from it and it is never used itself: see
    /// [`crate::derive_shared`]. `None` for a store that is not shared.
    fn shared_secret(&self) -> Option<[u8; 32]> {
        None
    }

    /// Whether this owner may begin an effect now. A node whose lease may have run out answers an error: another node may
    /// be about to take over its runs. Reads a clock and nothing else; always fine for a store that is not shared.
    fn may_dispatch(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Who holds a run.
    fn holder(&self, run_id: RunId) -> Result<Option<Owner>, StoreError>;

    /// Pending and running runs that no living owner holds, newest first, at most `limit`.
    fn left_behind(&self, limit: usize) -> Result<Vec<LeftBehind>, StoreError>;

    /// Takes a run for this handle's owner: succeeds if nobody holds it, or `from` does and is this owner or not alive.
    /// Of two claims at once one succeeds. An owner from whom a run is taken is fenced first. A run that lost a batch
    /// can be continued after it is claimed.
    fn claim(&self, run_id: RunId, from: Option<&Owner>) -> Result<bool, StoreError>;

    /// Reads the blob with this SHA-256.
    fn blob(&self, sha256: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// The hashes of blobs that come after one (empty for the first), in order, at most `limit`.
    fn blob_hashes(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Sets a small durable fact: sessions, approvals, idempotency keys. Ordered with `append`; visible at once to `get`.
    fn put(
        &self,
        space: &str,
        key: &str,
        value: Vec<u8>,
        expires_at: Option<Timestamp>,
    ) -> Result<Position, StoreError>;

    /// Sets or removes a fact if its current value is the expected one (`None`: absent or expired). Durable when this
    /// returns.
    fn compare_and_set(
        &self,
        space: &str,
        key: &str,
        expected: Option<&[u8]>,
        wanted: NewFact,
    ) -> Result<Swap, StoreError>;

    /// Sets a fact if the key is absent or has expired; otherwise returns the current value.
    fn put_if_absent(
        &self,
        space: &str,
        key: &str,
        value: Vec<u8>,
        expires_at: Option<Timestamp>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        match self.compare_and_set(space, key, None, Some((value, expires_at)))? {
            Swap::Done => Ok(None),
            Swap::Differs(found) => Ok(found),
        }
    }

    /// A fact, unless it has expired.
    fn get(&self, space: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Removes a fact.
    fn remove(&self, space: &str, key: &str) -> Result<Position, StoreError>;

    /// Facts of a space whose key begins with `prefix` and sorts after `after`, by key, at most `limit`.
    fn list_page(
        &self,
        space: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Vec<u8>)>, StoreError>;

    /// All facts of a space, by key.
    fn list(&self, space: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let mut all: Vec<(String, Vec<u8>)> = Vec::new();
        loop {
            let page = self.list_page(space, "", all.last().map(|(key, _)| key.as_str()), FACTS_PER_PAGE)?;
            let is_last = page.len() < FACTS_PER_PAGE;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// The spaces that hold facts, by name.
    fn fact_spaces(&self) -> Result<Vec<String>, StoreError>;

    /// Facts of a space as the store holds them, by key, from after a key on, at most `limit`. A store that seals its
    /// facts answers the sealed bytes: this is what verification reads.
    fn stored_facts(&self, space: &str, after: Option<&str>, limit: usize) -> Result<Vec<StoredFact>, StoreError>;

    /// Removes runs that have ended, with their frames, and returns how many. The caller must first record the removal
    /// in the ledger.
    fn remove_runs(&self, runs: &[RunId]) -> Result<u64, StoreError>;

    /// Removes blobs that no record names, except these.
    fn remove_unused_blobs(&self, keep: &[String]) -> Result<RemovedBlobs, StoreError>;

    /// Bytes the store uses, where it knows: what retention by size is about.
    fn used_bytes(&self) -> Result<Option<u64>, StoreError>;

    /// Hints that something changed, in this process or in another one.
    fn watch(&self) -> Hints;

    /// Appends one entry to the ledger, made from the last one, durable when this returns.
    fn ledger_append(&self, make: LedgerMaker<'_>) -> Result<LedgerEntry, StoreError>;

    /// Ledger entries in order, from a sequence number on, at most `limit`.
    fn ledger(&self, from_seq: u64, limit: usize) -> Result<Vec<LedgerEntry>, StoreError>;
}
