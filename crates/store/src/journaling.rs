//! Decides which changes go through the journal, and tracks which of them are not written. Part of the queue, under its
//! lock; does no I/O.
//!
//! The journal is on while it contains, in order, every change that the database has not synced. A sync of the journal
//! then gives the same guarantee as a sync of the database. The first change that cannot go through the journal (a
//! fact, a claim, a run that this process has not seen, a large payload) turns it off; a sync of the database that
//! covers the change turns it on again, from its beginning.

use crate::{
    journal::format::{self, EntryPosition},
    limits,
    queue::{Append, Blobs},
};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};
use toolyard_protocol::RunId;

/// The journal's side of the queue.
#[derive(Default)]
pub(crate) struct Journaling {
    /// Whether there is a file to write to.
    pub(crate) exists: bool,
    is_on: bool,
    next: EntryPosition,
    /// The number of the first entry in the buffer; all entries in the buffer are synced together.
    group_first: u32,
    /// Where the buffer will be written.
    offset: u64,
    buffer: Vec<u8>,
    /// The position of the last change in the journal.
    last: u64,
    /// The last change that is not in the journal.
    last_outside: u64,
    /// The last position that a caller waits for.
    wanted: u64,
    /// Whether a thread is writing.
    is_busy: bool,
    /// How long the last sync took.
    took: Duration,
    /// The last frame of each run that this process continues.
    heads: HashMap<RunId, u32>,
    /// When a caller was last notified of a sync.
    pub(crate) synced_at: Option<Instant>,
    /// The last change that had to be synced came within [`limits::SPIN`] of that.
    pub(crate) follows_closely: bool,
}

/// What the journal's thread writes next.
pub(crate) struct Piece {
    pub(crate) bytes: Vec<u8>,
    pub(crate) offset: u64,
    pub(crate) upto: u64,
}

impl Journaling {
    pub(crate) fn new(last_generation: Option<u64>) -> Self {
        let next = EntryPosition { generation: last_generation.unwrap_or(0), number: 0 };
        Self { exists: last_generation.is_some(), next, ..Self::default() }
    }

    /// Puts an append into the journal if it can go there.
    pub(crate) fn offer(&mut self, position: u64, append: &Append, database_durable: u64) -> Option<EntryPosition> {
        let place = self.try_offer(position, append, database_durable);
        if place.is_none() {
            self.pass(position);
        }
        place
    }

    fn try_offer(&mut self, position: u64, append: &Append, database_durable: u64) -> Option<EntryPosition> {
        let Blobs::Ready(blobs) = &append.blobs else { return None };
        let head = *self.heads.get(&append.run_id)?;
        let continues = append.frames.iter().zip(head + 1..).all(|(frame, seq)| frame.seq == seq);
        if !continues || !self.turn_on(database_durable) {
            return None;
        }
        let weight = weight(append, blobs);
        let end = self.offset + (self.buffer.len() + weight) as u64;
        if weight > limits::JOURNAL_ENTRY_BYTES || end > limits::JOURNAL_BYTES {
            return None;
        }
        if self.buffer.len() > limits::JOURNAL_IDLE_BYTES && self.wanted < self.last {
            // No caller waits for these entries, and the database has them soon.
            self.buffer.clear();
            return None;
        }
        let place = self.next;
        self.next.number += 1;
        if self.buffer.is_empty() {
            self.group_first = place.number;
        }
        format::encode(&mut self.buffer, place, self.group_first, append, blobs);
        self.last = position;
        if append.ends_hold() {
            // Another process may claim the run as soon as the database has this change.
            self.heads.remove(&append.run_id);
        } else if let Some(frame) = append.frames.last() {
            self.heads.insert(append.run_id, frame.seq);
        }
        Some(place)
    }

    fn turn_on(&mut self, database_durable: u64) -> bool {
        if self.is_on {
            return true;
        }
        if !self.exists || self.is_busy || self.last_outside > database_durable {
            return false;
        }
        // The remaining entries in the buffer are already synced in the database.
        self.buffer.clear();
        self.offset = format::ENTRIES_AT as u64;
        // The clock makes the number unique, also among entries of earlier processes that never reached the disk.
        let now = u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or(0);
        self.next = EntryPosition { generation: now.max(self.next.generation + 1), number: 0 };
        self.is_on = true;
        true
    }

    /// Registers a change that goes to the database only.
    pub(crate) fn pass(&mut self, position: u64) {
        self.last_outside = position;
        self.is_on = false;
    }

    /// Asks for a sync. `false` if the journal cannot make this promise: then the database must.
    pub(crate) fn want(&mut self, position: u64) -> bool {
        // The position is already requested. This also holds if it was never in the journal: then the database synced
        // it before the journal was turned on.
        if position <= self.wanted {
            return true;
        }
        if !self.is_on || position <= self.last_outside {
            return false;
        }
        self.wanted = self.wanted.max(position);
        true
    }

    /// Records whether a change that must be synced follows the last sync closely.
    pub(crate) fn hurried(&mut self, at: Instant) {
        if let Some(synced_at) = self.synced_at.take() {
            self.follows_closely = at.saturating_duration_since(synced_at) < limits::SPIN;
        }
    }

    /// Until when to poll for a change that closely follows the last sync.
    pub(crate) fn spin_until(&self) -> Option<Instant> {
        self.synced_at.filter(|_| self.follows_closely).map(|at| at + limits::SPIN)
    }

    /// Everything that is not written, if a caller waits for any of it.
    pub(crate) fn take(&mut self, durable: u64, spare: &mut Vec<u8>) -> Option<Piece> {
        if self.is_busy || self.wanted <= durable || self.buffer.is_empty() {
            return None;
        }
        let bytes = std::mem::replace(&mut self.buffer, std::mem::take(spare));
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        self.is_busy = true;
        Some(Piece { bytes, offset, upto: self.last })
    }

    /// Records that a piece is on the disk, and how long that took.
    pub(crate) fn rest(&mut self, took: Duration) {
        self.is_busy = false;
        self.took = took;
    }

    /// Whether a caller waits for more than is durable.
    pub(crate) fn is_wanted(&self, durable: u64) -> bool {
        self.wanted > durable && !self.buffer.is_empty()
    }

    /// Whether a sync is short enough to be done on a thread that has other things to do as well.
    pub(crate) fn is_quick(&self) -> bool {
        self.took < limits::SYNC_HERE
    }

    /// Records up to which frame the database has this run.
    pub(crate) fn learn(&mut self, run_id: RunId, seq: u32) {
        if self.heads.len() >= limits::RUN_NUMBERS {
            self.heads.clear();
        }
        self.heads.insert(run_id, seq);
    }

    /// Turns the journal off, because its file cannot be written; all changes go to the database from now on.
    pub(crate) fn abandon(&mut self) {
        self.exists = false;
        self.is_on = false;
        self.is_busy = false;
        self.buffer = Vec::new();
        // Syncs that were requested from the journal are now requested from the database.
        self.wanted = 0;
        self.last_outside = self.last_outside.max(self.last);
    }

    /// Drops the cached state of this run.
    pub(crate) fn forget(&mut self, run_id: RunId) {
        self.heads.remove(&run_id);
    }
}

/// An upper bound for the size of an append's entry.
fn weight(append: &Append, blobs: &[crate::blob_files::StoredBlob]) -> usize {
    let row = append.row.as_ref().map_or(0, |row| 256 + row.title.len() + row.session.as_ref().map_or(0, String::len));
    64 + row
        + append.frames.iter().map(|frame| 64 + frame.payload.len()).sum::<usize>()
        + blobs.iter().map(|blob| 64 + blob.bytes.as_ref().map_or(0, Vec::len)).sum::<usize>()
}
