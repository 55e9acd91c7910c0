//! The writer's view of the queue: what to write next, and which callers to notify when it is done.

use super::{Queue, Queued, State, Urgency, Writer};
use crate::limits;
use std::{
    sync::{PoisonError, atomic::Ordering},
    time::Instant,
};
use toolyard_engine::store::StoreError;
use toolyard_protocol::RunId;

/// The writer's next action.
pub(crate) enum Work {
    Write {
        ops: Vec<Queued>,
        sync: bool,
    },
    Sync {
        upto: u64,
    },
    /// The disk had no room, and nothing waits that could be tried.
    Probe,
    /// There has been nothing to do for a while.
    Rest,
    Close,
    /// Another thread poisoned the store; the writer stops.
    Stop,
}

/// What became of a transaction.
#[derive(Default)]
pub(crate) struct TransactionOutcome {
    pub(crate) upto: u64,
    /// Whether a sync follows at once.
    pub(crate) sync: bool,
    pub(crate) bytes: usize,
    pub(crate) rejected: Vec<(u64, RunId, StoreError)>,
    pub(crate) claimed: Vec<RunId>,
    /// The last frames of runs whose records came to the database without the journal.
    pub(crate) heads: Vec<(RunId, u32)>,
}

impl Queue {
    /// The writer's next action; sleeps until there is one. With `may_rest`, it returns when there has been none for a
    /// while.
    pub(crate) fn next(&self, may_rest: bool) -> Work {
        let mut state = self.lock();
        let (mut spun, mut dozed) = (false, false);
        loop {
            state.writer = Writer::Working;
            if state.poisoned.is_some() {
                return Work::Stop;
            }
            if let Some(full) = &state.full {
                let left = full.retry_at.saturating_duration_since(Instant::now());
                if !left.is_zero() && !state.closing {
                    state = self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
                return match state.queue.is_empty() {
                    true if state.closing => Work::Close,
                    true => Work::Probe,
                    false => state.take(),
                };
            }
            let waited = state.queue.front().map(|oldest| oldest.at.elapsed());
            if let Some(waited) = waited
                && (state.is_due() || waited >= self.ride_delay)
            {
                return state.take();
            }
            if waited.is_none() && state.wanted_durable > state.sync_begun {
                state.sync_begun = state.visible;
                return Work::Sync { upto: state.visible };
            }
            if waited.is_none() && state.closing {
                return Work::Close;
            }
            if !spun && let Some(until) = state.spin_until() {
                spun = true;
                self.bell.store(false, Ordering::Release);
                drop(state);
                while !self.bell.load(Ordering::Acquire) && Instant::now() < until {
                    std::hint::spin_loop();
                }
                state = self.lock();
                continue;
            }
            if let Some(waited) = waited {
                state.writer = Writer::Gathering;
                let left = self.ride_delay - waited;
                state = self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            if !dozed {
                dozed = true;
                state.writer = Writer::Gathering;
                state = self.work.wait_timeout(state, self.ride_delay).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            state.writer = Writer::Parked;
            if may_rest {
                let (woken, timeout) =
                    self.work.wait_timeout(state, limits::IDLE_AFTER).unwrap_or_else(PoisonError::into_inner);
                state = woken;
                if timeout.timed_out() && state.writer == Writer::Parked {
                    state.writer = Writer::Working;
                    return Work::Rest;
                }
            } else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Everything up to a position is committed.
    pub(crate) fn written(&self, written: TransactionOutcome) {
        let mut state = self.lock();
        state.visible = state.visible.max(written.upto);
        if state.full.take().is_some() {
            tracing::info!("the store's disk has room again");
        }
        if written.sync {
            state.sync_begun = state.sync_begun.max(written.upto);
        }
        state.bytes = state.bytes.saturating_sub(written.bytes);
        for (position, run_id, error) in written.rejected {
            state.rejected.insert(position, error.clone());
            state.stopped_runs.insert(run_id, error);
            state.journaling.forget(run_id);
        }
        for (run_id, seq) in written.heads {
            state.journaling.learn(run_id, seq);
        }
        for run_id in written.claimed {
            state.stopped_runs.remove(&run_id);
            state.journaling.forget(run_id);
        }
        if !state.pending.is_empty() {
            state.pending.retain(|_, facts| {
                facts.retain(|_, pending| pending.position > written.upto);
                !facts.is_empty()
            });
        }
        if state.watchers > 0 {
            self.progress.notify_all();
        }
    }

    /// The database has synced everything up to a position.
    pub(crate) fn synced(&self, upto: u64) {
        let mut state = self.lock();
        state.database_durable = state.database_durable.max(upto);
        self.tell_durable(state, upto, false);
    }
}

impl State {
    /// Until when to poll for a change that closely follows the last sync.
    fn spin_until(&self) -> Option<Instant> {
        self.synced_at.filter(|_| self.follows_closely).map(|at| at + limits::SPIN)
    }

    fn is_due(&self) -> bool {
        self.closing
            || self.most_urgent > Urgency::Deferred
            || self.wanted_durable > self.sync_begun
            || self.wanted_visible > self.visible
            || self.bytes >= limits::EARLY_COMMIT_BYTES
    }

    fn take(&mut self) -> Work {
        let mut bytes = 0;
        let mut count = 0;
        for queued in &self.queue {
            if count > 0 && bytes + queued.bytes > limits::TRANSACTION_BYTES {
                break;
            }
            bytes += queued.bytes;
            count += 1;
        }
        let ops: Vec<Queued> = self.queue.drain(..count).collect();
        let sync = self.wanted_durable > self.sync_begun || ops.iter().any(|queued| queued.urgency == Urgency::Sync);
        self.most_urgent = self.queue.iter().map(|queued| queued.urgency).max().unwrap_or(Urgency::Deferred);
        Work::Write { ops, sync }
    }
}
