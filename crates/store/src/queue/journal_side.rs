//! The journal's view of the queue: what to write next, and which callers to notify when it is durable.

use super::{Queue, State};
use crate::journaling::Piece;
use std::{
    sync::{PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};
use toolyard_engine::store::Position;

impl Queue {
    /// Has the journal synced up to a position; `false` if it cannot.
    pub(super) fn wake_journal(&self, state: &mut State, position: u64) -> bool {
        if !state.journaling.want(position) {
            return false;
        }
        self.journal_bell.store(true, Ordering::Release);
        if state.journal_parked {
            state.journal_parked = false;
            self.journal_work.notify_one();
        }
        true
    }

    /// What the journal's thread writes next; sleeps until there is something. `None` when the store closes.
    pub(crate) fn next_piece(&self, mut spare: Vec<u8>) -> Option<Piece> {
        let mut state = self.lock();
        let mut spun = false;
        loop {
            state.journal_parked = false;
            // When the store closes, the database is synced, which answers all waiters.
            if state.poisoned.is_some() || state.closing {
                return None;
            }
            let done = state.on_disk();
            if let Some(piece) = state.journaling.take(done, &mut spare) {
                return Some(piece);
            }
            if !spun && let Some(until) = state.journaling.spin_until() {
                spun = true;
                self.journal_bell.store(false, Ordering::Release);
                drop(state);
                while !self.journal_bell.load(Ordering::Acquire) && Instant::now() < until {
                    std::hint::spin_loop();
                }
                state = self.lock();
                continue;
            }
            state.journal_parked = true;
            state = self.journal_work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The journal's file could not be written. Everything in it is queued for the database as well, which is asked for a
    /// sync instead.
    pub(crate) fn journal_failed(&self) {
        let mut state = self.lock();
        state.journaling.abandon();
        state.wanted_durable =
            state.waiters.iter().map(|(position, _)| *position).max().unwrap_or(0).max(state.wanted_durable);
        self.wake_writer(&mut state);
    }

    /// Everything up to a position is on the disk, in the journal or in the database.
    pub(crate) fn journaled(&self, upto: u64, took: Duration) {
        let mut state = self.lock();
        state.journaling.rest(took);
        self.tell_durable(state, upto, true);
    }

    /// Gives a piece to the calling thread instead of the journal's thread, if nobody else waits and a sync is fast.
    pub(crate) fn lead(&self, position: Position) -> Option<Piece> {
        let mut state = self.lock();
        let done = state.on_disk();
        let alone = state.waiters.is_empty() && state.poisoned.is_none() && !state.closing;
        if !alone || position.0 <= done.anywhere || !state.journaling.is_quick() || !state.journaling.want(position.0) {
            return None;
        }
        state.journaling.take(done, &mut Vec::new())
    }
}
