//! [`Store`]: where runs, their records and small durable facts are kept. The engine decides what is kept; a store
//! decides how.
//!
//! A store keeps bytes in order and nothing more. The engine decides what the bytes mean, how they are chained and
//! signed, and what must be durable before what, so that every store gives the same proof. One test suite
//! (`crates/store/tests/contract.rs`) applies to every implementation.

use crate::{Blob, BoxFuture};
use jiff::Timestamp;
use schemars::JsonSchema;
use std::ops::ControlFlow;
use toolyard_protocol::{ErrorCode, Failure, RunId, RunStatus};

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
    /// How far it is.
    pub status: RunStatus,
    /// The plan's goal, or the tool's name.
    pub title: String,
    /// The session it belongs to.
    pub session: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The process that runs it: see [`Lease`].
    pub lease: Option<Lease>,
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

/// The process that works on a run. If the process is dead, another one may take over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Kernel boot id: process ids mean nothing across boots.
    pub boot_id: String,
    /// The process id.
    pub pid: u32,
    /// The process's start time (clock ticks since boot), because process ids are used again.
    pub started: u64,
}

/// When a batch must have reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// With the next batch that syncs, or soon: losing it to a power cut loses nothing that cannot be done again.
    Ride,
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
    /// Only runs whose id is smaller than this one (ids sort by time), for the next page.
    pub before: Option<RunId>,
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

/// A failure of the store.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::new(ErrorCode::StoreUnavailable, error.0)
    }
}

/// Makes the next ledger entry from the last one (`None` for the first): `(payload, chain)`. May read the store. When it
/// fails, nothing is appended.
pub type LedgerMaker<'a> = &'a mut dyn FnMut(Option<&LedgerEntry>) -> Result<(Vec<u8>, [u8; 32]), StoreError>;

/// Called with each frame in order; `Break` ends the walk.
pub type FrameVisitor<'a> = &'a mut dyn FnMut(Frame) -> ControlFlow<()>;

/// Keeps runs and small facts. Methods that read may block: call them from a blocking thread.
///
/// Every store gives these guarantees:
/// 1. Batches of one process become visible in the order of their `append` calls, each whole or not at all.
/// 2. Once `durable(p)` has answered Ok, every batch appended up to `p` survives a power cut.
/// 3. A `Ride` batch survives `kill -9` of the process within 100 ms of its append.
/// 4. After a failed sync, every later `append` and `durable` fails: a log that may have a hole is never continued.
/// 5. A run's `(runId, seq)` is unique: appending a frame that exists already fails.
pub trait Store: Send + Sync + 'static {
    /// Queues a batch. Fails at once when the store is poisoned; waits only when the queue is full.
    fn append(&self, batch: Batch) -> Result<Position, StoreError>;

    /// Answers when everything up to the position is durable. Makes `Ride` batches durable as well.
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

    /// Rows, newest first.
    fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError>;

    /// A run's frames in order, from a sequence number on.
    fn frames(&self, run_id: RunId, from_seq: u64, visit: FrameVisitor<'_>) -> Result<(), StoreError>;

    /// Takes over a run: succeeds if the row's lease equals `expected` (or there is none).
    fn claim(&self, run_id: RunId, expected: Option<&Lease>, new: &Lease) -> Result<bool, StoreError>;

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

    /// Sets a fact only when the key is not there (or has expired); otherwise answers what is there.
    fn put_if_absent(
        &self,
        space: &str,
        key: &str,
        value: Vec<u8>,
        expires_at: Option<Timestamp>,
    ) -> Result<Option<Vec<u8>>, StoreError>;

    /// A fact, unless it has expired.
    fn get(&self, space: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Removes a fact.
    fn remove(&self, space: &str, key: &str) -> Result<Position, StoreError>;

    /// All facts of a space, by key.
    fn list(&self, space: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError>;

    /// Appends one entry to the ledger, made from the last one, durable when this returns.
    fn ledger_append(&self, make: LedgerMaker<'_>) -> Result<LedgerEntry, StoreError>;

    /// Ledger entries in order, from a sequence number on, at most `limit`.
    fn ledger(&self, from_seq: u64, limit: usize) -> Result<Vec<LedgerEntry>, StoreError>;
}
