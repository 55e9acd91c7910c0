//! The batch of rows to be written, with its size limits. They bound the memory, and the work that a cancelled job has
//! to repeat.

use super::prepare::{Prepared, Room};
use crate::index::FileRow;
use std::time::Duration;

/// A batch is written when it has this many chunks,
const MAX_CHUNKS: usize = 4_096;
/// or takes this many bytes,
const MAX_BYTES: usize = 16 << 20;
/// or this many files, written or only looked at.
const MAX_FILES: usize = 2_000;
/// The first batch has this many chunks, until it is known how quickly they are embedded,
const FIRST_CHUNKS: usize = 256;
/// and no batch has fewer, however long that takes.
const MIN_CHUNKS: usize = 64;
/// A batch has as many chunks as are embedded in about this time: so much is lost when a job is stopped.
const EMBED_FOR: Duration = Duration::from_secs(10);

/// Which of a file's rows a piece holds. Only a file that is larger than a batch has more than one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Whole,
    First,
    Middle,
    Last,
}

/// A file, or as much of it as is written at once.
pub(super) struct Piece {
    pub(super) prepared: Prepared,
    pub(super) place: Place,
    /// The file's current row in the index.
    pub(super) old: Option<FileRow>,
}

/// What waits to be written.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) pieces: Vec<Piece>,
    /// Files of which only the row changed.
    pub(super) touched: Vec<FileRow>,
    pub(super) removed: Vec<String>,
    /// Number of files that were processed completely.
    pub(super) looked: u64,
    chunks: usize,
    bytes: usize,
}

impl Batch {
    pub(super) fn push(&mut self, piece: Piece, room: Room) {
        self.chunks += piece.prepared.chunks.len();
        self.bytes += piece.prepared.bytes(room.dimensions);
        self.pieces.push(piece);
    }

    pub(super) fn is_full(&self, room: Room) -> bool {
        let files = (self.pieces.len() + self.touched.len()).max(usize::try_from(self.looked).unwrap_or(usize::MAX));
        self.chunks >= room.chunks || self.bytes >= room.bytes || files >= MAX_FILES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.touched.is_empty() && self.removed.is_empty()
    }
}

/// How large batches are. Embedding servers differ a thousandfold; each gets batches that take it about as long.
pub(super) struct Pace(Room);

impl Pace {
    pub(super) fn new(dimensions: usize) -> Self {
        let chunks = if dimensions == 0 { MAX_CHUNKS } else { FIRST_CHUNKS };
        Self(Room { chunks, bytes: MAX_BYTES, dimensions })
    }

    pub(super) fn room(&self) -> Room {
        self.0
    }

    /// So many chunks of a batch had to be embedded, and it took so long.
    pub(super) fn embedded(&mut self, count: usize, took: Duration) {
        let in_time = EMBED_FOR.as_secs_f64() * count as f64 / took.as_secs_f64().max(1e-6);
        // Where nothing had to be embedded, nothing was learned; but what is known already is likely to go on.
        let chunks = if count == 0 { self.0.chunks.saturating_mul(2) } else { in_time as usize };
        self.0.chunks = chunks.clamp(MIN_CHUNKS, MAX_CHUNKS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_what_the_embedder_does_in_a_while() {
        let mut pace = Pace::new(8);
        assert_eq!(pace.room().chunks, FIRST_CHUNKS, "nothing is known of the embedder yet");
        pace.embedded(256, Duration::from_millis(20));
        assert_eq!(pace.room().chunks, MAX_CHUNKS, "a table in memory");
        pace.embedded(256, Duration::from_secs(10));
        assert_eq!(pace.room().chunks, 256);
        pace.embedded(0, Duration::ZERO);
        assert_eq!(pace.room().chunks, 512, "all of it was known");
        pace.embedded(64, Duration::from_secs(600));
        assert_eq!(pace.room().chunks, MIN_CHUNKS);
        assert_eq!(Pace::new(0).room().chunks, MAX_CHUNKS, "nothing is embedded at all");
    }
}
