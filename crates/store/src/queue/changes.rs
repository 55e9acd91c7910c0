//! Queued changes, and how their callers are answered.

use crate::blob_files::StoredBlob;
use std::sync::mpsc::{Receiver, SyncSender};
use toolyard_engine::store::{LedgerEntry, RunRow, StoreError, Swap};
use toolyard_protocol::RunId;

pub(crate) type Answer<T> = Result<T, StoreError>;
pub(crate) type Reply<T> = SyncSender<Answer<T>>;

/// One change, waiting to be written.
pub(crate) enum Op {
    Append(Append),
    Put(Fact),
    Remove {
        space: String,
        key: String,
    },
    Swap {
        swap: FactSwap,
        reply: Reply<Swap>,
    },
    /// `from` is this process's epoch or one that is not alive.
    Claim {
        run_id: RunId,
        from: Option<i64>,
        reply: Reply<bool>,
    },
    Fence {
        epoch: i64,
        reply: Reply<()>,
    },
    RemoveRuns {
        runs: Vec<RunId>,
        reply: Reply<u64>,
    },
    /// Starts or stops recording which blobs batches contain.
    WatchBlobs {
        on: bool,
        reply: Reply<()>,
    },
    /// Removes those of these blobs that no batch has contained since.
    RemoveBlobs {
        hashes: Vec<[u8; 32]>,
        reply: Reply<Vec<RemovedBlob>>,
    },
    Ledger(LedgerOp),
}

/// A blob that is not in the database any more.
pub(crate) struct RemovedBlob {
    pub(crate) hash: String,
    pub(crate) bytes: u64,
    /// Whether it is in a file, compressed or not.
    pub(crate) file: Option<bool>,
}

pub(crate) struct Append {
    pub(crate) run_id: RunId,
    pub(crate) frames: Vec<StoredFrame>,
    pub(crate) blobs: Blobs,
    pub(crate) row: Option<RunRow>,
    pub(crate) release: bool,
}

impl Append {
    /// Whether the run has no holder afterwards.
    pub(crate) fn ends_hold(&self) -> bool {
        self.release || self.row.as_ref().is_some_and(|row| row.status.is_final())
    }
}

/// A frame as it goes into the database.
pub(crate) struct StoredFrame {
    pub(crate) seq: u32,
    pub(crate) kind: i64,
    pub(crate) payload: Vec<u8>,
    pub(crate) chain: [u8; 32],
}

/// A batch's blobs: ready, or still being compressed and written elsewhere.
pub(crate) enum Blobs {
    Ready(Vec<StoredBlob>),
    Pending(Receiver<Answer<Vec<StoredBlob>>>),
    Failed(StoreError),
}

pub(crate) struct Fact {
    pub(crate) space: String,
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
    /// Microseconds since 1970.
    pub(crate) expires_at: Option<i64>,
}

/// A fact that becomes `new` if it is what is expected.
pub(crate) struct FactSwap {
    pub(crate) space: String,
    pub(crate) key: String,
    pub(crate) expected: Option<Vec<u8>>,
    pub(crate) new: Option<Fact>,
}

/// The entry is made on the caller's thread, while the writer waits, because the maker cannot be sent to another
/// thread.
pub(crate) struct LedgerOp {
    pub(crate) ask: SyncSender<Option<LedgerEntry>>,
    pub(crate) answer: Receiver<(Vec<u8>, [u8; 32])>,
    pub(crate) reply: Reply<LedgerEntry>,
}

impl Op {
    /// Whether a caller waits for this change and must be notified at once if it fails. Other changes may be retried.
    pub(crate) fn has_reply(&self) -> bool {
        !matches!(self, Self::Append(_) | Self::Put(_) | Self::Remove { .. })
    }

    /// Notifies the caller that waits for this change that it has failed.
    pub(crate) fn refuse(self, error: &StoreError) {
        match self {
            Self::Swap { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Fence { reply, .. } | Self::WatchBlobs { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::RemoveRuns { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::RemoveBlobs { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Claim { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Ledger(LedgerOp { reply, .. }) => drop(reply.send(Err(error.clone()))),
            Self::Append(_) | Self::Put(_) | Self::Remove { .. } => {}
        }
    }
}
