//! The thread that writes the journal: one write and one sync for all waiting callers.

use crate::{
    failed,
    journal::{Journal, Refusal},
    journaling::Piece,
    queue::Queue,
};
use std::{sync::Arc, thread::JoinHandle, time::Instant};
use toolyard_engine::store::{Owner, StoreError};

/// Starts the thread.
pub(crate) fn start(journal: Arc<Journal>, queue: Arc<Queue>, owner: Owner) -> Result<JoinHandle<()>, StoreError> {
    std::thread::Builder::new()
        .name("store-journal".into())
        .stack_size(256 << 10)
        .spawn(move || {
            let guard = Guard(&queue);
            work(&journal, &queue, &owner);
            std::mem::forget(guard);
        })
        .map_err(|e| failed("cannot start the store's journal", e))
}

/// Poisons the queue if the thread panics, so that no caller waits forever.
struct Guard<'a>(&'a Queue);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.poison(StoreError::failed("the store's journal stopped"));
    }
}

fn work(journal: &Journal, queue: &Queue, owner: &Owner) {
    let mut spare = Vec::new();
    while let Some(piece) = queue.next_piece(std::mem::take(&mut spare)) {
        match write(journal, queue, piece, owner) {
            Some(bytes) => spare = bytes,
            None => return,
        }
    }
}

/// Writes one piece, notifies its waiters, and returns its buffer. `None` if the journal is not used any more.
///
/// A failed sync is never tried again: the kernel may have dropped what it could not write. The entries are queued for the
/// database as well, so those who wait are answered when the database has synced.
pub(crate) fn write(journal: &Journal, queue: &Queue, piece: Piece, owner: &Owner) -> Option<Vec<u8>> {
    let began = Instant::now();
    match journal.write(&piece.bytes, piece.offset) {
        Ok(()) => {
            queue.journaled(piece.upto, began.elapsed());
            let mut bytes = piece.bytes;
            bytes.clear();
            Some(bytes)
        }
        Err(Refusal::Disk(error)) => {
            tracing::error!(%error, "the store's journal cannot be written and is not used any more");
            queue.journal_failed();
            None
        }
        Err(Refusal::Fenced) => {
            let error = StoreError::Fenced(owner.clone());
            tracing::error!(%error, "the store cannot go on");
            queue.poison(error);
            None
        }
    }
}
