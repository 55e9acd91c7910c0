//! The thread that writes the journal: one write and one sync for everybody who waits.

use crate::{failed, journal::Journal, queue::Queue};
use std::{sync::Arc, thread::JoinHandle};
use toolyard_engine::store::StoreError;

/// Starts the thread.
pub(crate) fn start(journal: Journal, queue: Arc<Queue>) -> Result<JoinHandle<()>, StoreError> {
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

/// Poisons the queue if the thread panics: nobody may wait for ever.
struct Guard<'a>(&'a Queue);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.poison(StoreError("the store's journal stopped".into()));
    }
}

fn work(journal: &Journal, queue: &Queue) {
    let mut spare = Vec::new();
    while let Some(piece) = queue.next_piece(std::mem::take(&mut spare)) {
        // A failed sync is never tried again: the kernel may have dropped what it could not write.
        if let Err(error) = journal.write(&piece.bytes, piece.offset) {
            let error = failed("cannot write the store's journal", error);
            tracing::error!(%error, "the store cannot go on");
            queue.poison(error);
            return;
        }
        spare = piece.bytes;
        spare.clear();
        queue.journaled(piece.upto);
    }
}
