//! Decides which changes go through the journal, and tracks which of them are not written. Part of the queue, under its
//! lock; does no I/O.
//!
//! The journal is on while it contains, in order, every change that the database has not synced. A sync of the journal
//! then gives the same guarantee as a sync of the database. The first change that cannot go through the journal (a
//! fact, a claim, a run that this process has not seen, a large payload) turns it off; a sync of the database that
//! covers the change turns it on again, from its beginning.
//!
//! A file that is full is written from its beginning again, once the database has synced everything in it. Until then
//! new entries are kept in memory. If they went to the database instead, the journal would be turned off, and with many
//! callers there is hardly a moment at which the database has synced every change that was made meanwhile.

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
    /// The position of the first change in the buffer.
    buffer_first: u64,
    /// The position of the last change in the journal.
    last: u64,
    /// The buffer overwrites entries up to this position. It is written only after the database has synced them.
    overwrites: u64,
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

/// Up to which positions changes are on the disk.
#[derive(Clone, Copy)]
pub(crate) struct Synced {
    /// In the database or in the journal.
    pub(crate) anywhere: u64,
    pub(crate) in_database: u64,
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
        if weight > limits::JOURNAL_ENTRY_BYTES {
            return None;
        }
        let end = self.offset + (self.buffer.len() + weight) as u64;
        if end > limits::JOURNAL_BYTES {
            if self.overwrites > database_durable {
                // As much is waiting for the database as the file can hold.
                return None;
            }
            self.overwrites = self.last;
            self.begin_generation();
        }
        if self.buffer.len() > limits::JOURNAL_IDLE_BYTES && self.wanted < self.buffer_first {
            // No caller waits for these entries, and the database has them soon.
            self.buffer.clear();
            return None;
        }
        let place = self.next;
        self.next.number += 1;
        if self.buffer.is_empty() {
            self.group_first = place.number;
            self.buffer_first = position;
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
        self.begin_generation();
        self.is_on = true;
        true
    }

    /// The next entry is the first one in the file. Entries in the buffer are dropped: those who wait for them are answered
    /// when the database has synced them, and nothing is written over the file before that.
    fn begin_generation(&mut self) {
        self.buffer.clear();
        self.offset = format::ENTRIES_AT as u64;
        // The clock makes the number unique, also among entries of earlier processes that never reached the disk.
        let now = u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or(0);
        self.next = EntryPosition { generation: now.max(self.next.generation + 1), number: 0 };
    }

    /// The position up to which the database must be synced, so that the journal can be written again.
    pub(crate) fn awaits_database(&self) -> u64 {
        self.overwrites
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
    pub(crate) fn take(&mut self, done: Synced, spare: &mut Vec<u8>) -> Option<Piece> {
        if self.is_busy || !self.is_wanted(done) {
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

    /// Whether a caller waits for more than is durable, and the file may be written.
    pub(crate) fn is_wanted(&self, done: Synced) -> bool {
        self.wanted > done.anywhere && !self.buffer.is_empty() && self.overwrites <= done.in_database
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::StoredFrame;

    fn append(run_id: RunId, seq: u32, bytes: usize) -> Append {
        let frame = StoredFrame { seq, kind: 4, payload: vec![b'x'; bytes], chain: [0; 32] };
        Append { run_id, frames: vec![frame], blobs: Blobs::Ready(Vec::new()), row: None, release: false }
    }

    /// A journal that is on for one run, of which the database has the first frame at position 1.
    fn started() -> (Journaling, RunId) {
        let (mut journaling, run_id) = (Journaling::new(Some(7)), RunId::from_uuid(uuid::Uuid::from_u128(1)));
        journaling.pass(1);
        journaling.learn(run_id, 1);
        (journaling, run_id)
    }

    fn synced(anywhere: u64, in_database: u64) -> Synced {
        Synced { anywhere, in_database }
    }

    #[test]
    fn a_full_journal_goes_on_when_the_database_has_synced_what_is_in_it() {
        let (mut journaling, run_id) = started();
        let (mut position, mut offset) = (1, 0);
        let generation = loop {
            position += 1;
            let place = journaling.offer(position, &append(run_id, position as u32, 60 << 10), 1).unwrap();
            if journaling.awaits_database() > 0 {
                assert_eq!(place.number, 0);
                break place.generation;
            }
            assert!(journaling.want(position));
            let piece = journaling.take(synced(position - 1, 1), &mut Vec::new()).unwrap();
            assert!(piece.offset > offset && piece.upto == position);
            offset = piece.offset;
            journaling.rest(Duration::ZERO);
        };
        // Everything before it is in the file, and must not be overwritten before the database has it.
        assert_eq!(journaling.awaits_database(), position - 1);
        assert!(journaling.want(position));
        assert!(journaling.take(synced(position - 1, position - 2), &mut Vec::new()).is_none());
        let next = journaling.offer(position + 1, &append(run_id, position as u32 + 1, 10), 1).unwrap();
        assert_eq!(next, EntryPosition { generation, number: 1 }, "it is kept for the new beginning of the file");
        let piece = journaling.take(synced(position - 1, position - 1), &mut Vec::new()).unwrap();
        assert_eq!((piece.offset, piece.upto), (format::ENTRIES_AT as u64, position + 1));
    }

    #[test]
    fn what_does_not_fit_behind_a_full_journal_goes_to_the_database() {
        let (mut journaling, run_id) = started();
        let passed = (2..200).find(|position| {
            journaling.want(*position - 1);
            journaling.offer(*position, &append(run_id, *position as u32, 60 << 10), 1).is_none()
        });
        let bytes = passed.unwrap() * (60 << 10);
        assert!(bytes > limits::JOURNAL_BYTES && bytes < 2 * limits::JOURNAL_BYTES + (200 << 10), "{bytes}");
    }

    #[test]
    fn entries_that_somebody_waits_for_are_not_dropped() {
        let (mut journaling, run_id) = started();
        journaling.offer(2, &append(run_id, 2, 100), 1).unwrap();
        assert!(journaling.want(2));
        for position in 3..10 {
            // Nobody waits for these, and they are more than is kept for nobody.
            journaling.offer(position, &append(run_id, position as u32, 100 << 10), 1);
        }
        let piece = journaling.take(synced(1, 1), &mut Vec::new()).unwrap();
        assert!(piece.upto >= 2 && piece.bytes.len() > 100);
    }
}
