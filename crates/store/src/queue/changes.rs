//! Queued changes, and how their callers are answered.

use crate::blob_files::StoredBlob;
use std::sync::mpsc::{Receiver, SyncSender};
use toolyard_engine::store::{Lease, LedgerEntry, RunRow, StoreError};
use toolyard_protocol::RunId;

pub(crate) type Answer<T> = Result<T, StoreError>;
pub(crate) type Reply<T> = SyncSender<Answer<T>>;

/// One change, waiting to be written.
pub(crate) enum Op {
    Append(Append),
    Put(Fact),
    Remove { space: String, key: String },
    PutIfAbsent { fact: Fact, reply: Reply<Option<Vec<u8>>> },
    Claim { run_id: RunId, expected: Option<Lease>, new: Lease, reply: Reply<bool> },
    Ledger(LedgerOp),
}

pub(crate) struct Append {
    pub(crate) run_id: RunId,
    pub(crate) frames: Vec<StoredFrame>,
    pub(crate) blobs: Blobs,
    pub(crate) row: Option<RunRow>,
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

/// The entry is made on the caller's thread, between a question and an answer, because the maker cannot travel.
pub(crate) struct LedgerOp {
    pub(crate) ask: SyncSender<Option<LedgerEntry>>,
    pub(crate) answer: Receiver<(Vec<u8>, [u8; 32])>,
    pub(crate) reply: Reply<LedgerEntry>,
}

impl Op {
    /// Notifies the waiting caller that this change will not happen.
    pub(crate) fn refuse(self, error: &StoreError) {
        match self {
            Self::PutIfAbsent { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Claim { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Ledger(LedgerOp { reply, .. }) => drop(reply.send(Err(error.clone()))),
            Self::Append(_) | Self::Put(_) | Self::Remove { .. } => {}
        }
    }
}
