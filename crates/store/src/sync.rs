//! Syncs the write-ahead log and notifies the callers that wait for it.
//!
//! Under load a helper thread performs the sync, so that the next transaction can be made in the meantime. One sync
//! covers everything that was committed before it began.

use crate::{
    apply::{self, Pledge},
    failed,
    queue::{Op, Queue},
};
use std::{
    fs::File,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};
use toolyard_engine::store::StoreError;

/// The notifications that are due when everything up to a position is durable.
pub(crate) struct PendingSync {
    pub(crate) upto: u64,
    pub(crate) replies: Vec<(Op, Pledge)>,
}

impl PendingSync {
    /// Syncs and answers. A failed sync is never tried again: the kernel may have dropped what it could not write.
    pub(crate) fn pay(self, log: &File, queue: &Queue) -> Result<(), StoreError> {
        if let Err(error) = log.sync_data() {
            let error = failed("cannot sync the store's log", error);
            self.replies.into_iter().for_each(|(op, _)| op.refuse(&error));
            return Err(error);
        }
        queue.synced(self.upto);
        self.replies.into_iter().for_each(|(op, pledge)| apply::keep(op, pledge));
        Ok(())
    }
}

/// The second thread. Dropping it waits until it has paid everything.
pub(crate) struct SyncHelper {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    owed: Option<PendingSync>,
    busy: bool,
    closing: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SyncHelper {
    pub(crate) fn start(log: &File, queue: &Arc<Queue>) -> Result<Self, StoreError> {
        let doing = "cannot start the store's sync thread";
        let log = log.try_clone().map_err(|e| failed(doing, e))?;
        let desk = Arc::new(Desk::default());
        let (shared, queue) = (Arc::clone(&desk), Arc::clone(queue));
        let thread = std::thread::Builder::new()
            .name("store-sync".into())
            .stack_size(256 << 10)
            .spawn(move || work(&shared, &log, &queue))
            .map_err(|e| failed(doing, e))?;
        Ok(Self { desk, thread: Some(thread) })
    }

    pub(crate) fn is_busy(&self) -> bool {
        let state = self.desk.lock();
        state.busy || state.owed.is_some()
    }

    pub(crate) fn take_over(&self, new: PendingSync) {
        let mut state = self.desk.lock();
        match &mut state.owed {
            Some(owed) => {
                owed.upto = owed.upto.max(new.upto);
                owed.replies.extend(new.replies);
            }
            None => state.owed = Some(new),
        }
        if !state.busy {
            self.desk.changed.notify_one();
        }
    }
}

impl Drop for SyncHelper {
    fn drop(&mut self) {
        self.desk.lock().closing = true;
        self.desk.changed.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the store's sync thread panicked");
        }
    }
}

/// Poisons the queue if the thread ends unexpectedly, so that nobody waits forever.
struct Guard<'a>(&'a Queue, bool);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.poison(StoreError("the store's sync thread stopped".into()));
        }
    }
}

fn work(desk: &Desk, log: &File, queue: &Queue) {
    let mut guard = Guard(queue, false);
    let mut state = desk.lock();
    loop {
        if let Some(owed) = state.owed.take() {
            state.busy = true;
            drop(state);
            if let Err(error) = owed.pay(log, queue) {
                tracing::error!(%error, "the store cannot go on");
                queue.poison(error);
                // Whatever else is owed goes with the desk: its answers are refused by being dropped.
                return;
            }
            state = desk.lock();
            state.busy = false;
        } else if state.closing {
            guard.1 = true;
            return;
        } else {
            state = desk.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
