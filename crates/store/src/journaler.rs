//! The thread that writes the journal: one write and one sync for all waiting callers.

use crate::{failed, journal::Journal, journaling::Piece, queue::Queue};
use std::{sync::Arc, thread::JoinHandle, time::Instant};
use toolyard_engine::store::StoreError;

/// Starts the thread.
pub(crate) fn start(journal: Arc<Journal>, queue: Arc<Queue>) -> Result<JoinHandle<()>, StoreError> {
    std::thread::Builder::new()
        .name("store-journal".into())
        .stack_size(256 << 10)
        .spawn(move || {
            let guard = Guard(&queue);
            work(&journal, &queue);
            std::mem::forget(guard);
        })
        .map_err(|e| failed("cannot start the store's journal", e))
}

/// Poisons the queue if the thread panics, so that nobody waits forever.
struct Guard<'a>(&'a Queue);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.poison(StoreError("the store's journal stopped".into()));
    }
}

fn work(journal: &Journal, queue: &Queue) {
    let mut spare = Vec::new();
    while let Some(piece) = queue.next_piece(std::mem::take(&mut spare)) {
        match write(journal, queue, piece) {
            Ok(bytes) => spare = bytes,
            Err(_) => return,
        }
    }
}

/// Writes one piece, notifies the callers that wait for it, and returns its buffer.
///
/// A failed sync is never tried again: the kernel may have dropped what it could not write.
pub(crate) fn write(journal: &Journal, queue: &Queue, piece: Piece) -> Result<Vec<u8>, StoreError> {
    let began = Instant::now();
    if let Err(error) = journal.write(&piece.bytes, piece.offset) {
        let error = failed("cannot write the store's journal", error);
        tracing::error!(%error, "the store cannot go on");
        queue.poison(error.clone());
        return Err(error);
    }
    queue.journaled(piece.upto, began.elapsed());
    let mut bytes = piece.bytes;
    bytes.clear();
    Ok(bytes)
}
