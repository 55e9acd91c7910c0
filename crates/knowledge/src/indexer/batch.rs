//! The batch of rows to be written, with its size limits. They bound the memory, and the work that a cancelled job has
//! to repeat.

use super::prepare::{PartLimits, Prepared};
use crate::index::FileRow;
use std::time::Duration;

/// Maximum number of chunks in a batch.
const MAX_CHUNKS: usize = 4_096;
/// Maximum size of a batch, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// Maximum number of files in a batch, whether written or only examined.
const MAX_FILES: usize = 2_000;
/// Number of chunks in the first batch, before the speed of the embedder is known.
const FIRST_CHUNKS: usize = 256;
/// Minimum number of chunks in a batch, however slow the embedder is.
const MIN_CHUNKS: usize = 64;
/// Target time for embedding a batch. It bounds the work that is lost when a job is stopped.
const EMBED_FOR: Duration = Duration::from_secs(10);

/// Which of a file's rows a piece holds. Only a file that is larger than a batch has more than one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PiecePosition {
    Whole,
    First,
    Middle,
    Last,
}

/// A file, or the part of it that is written at once.
pub(super) struct Piece {
    pub(super) prepared: Prepared,
    pub(super) place: PiecePosition,
    /// The file's current row in the index.
    pub(super) old: Option<FileRow>,
}

/// The rows to be written.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) pieces: Vec<Piece>,
    /// Files of which only the record changed.
    pub(super) touched: Vec<FileRow>,
    pub(super) removed: Vec<String>,
    /// Number of files that were processed completely.
    pub(super) looked: u64,
    chunks: usize,
    bytes: usize,
}

impl Batch {
    pub(super) fn push(&mut self, piece: Piece, room: PartLimits) {
        self.chunks += piece.prepared.chunks.len();
        self.bytes += piece.prepared.bytes(room.dimensions);
        self.pieces.push(piece);
    }

    pub(super) fn is_full(&self, room: PartLimits) -> bool {
        let files = (self.pieces.len() + self.touched.len()).max(usize::try_from(self.looked).unwrap_or(usize::MAX));
        self.chunks >= room.chunks || self.bytes >= room.bytes || files >= MAX_FILES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.touched.is_empty() && self.removed.is_empty()
    }
}

/// The size of batches, adapted to the embedder. Embedding servers differ by a factor of a thousand in speed; each gets
/// batches that take about the same time.
pub(super) struct BatchSizer(PartLimits);

impl BatchSizer {
    pub(super) fn new(dimensions: usize) -> Self {
        let chunks = if dimensions == 0 { MAX_CHUNKS } else { FIRST_CHUNKS };
        Self(PartLimits { chunks, bytes: MAX_BYTES, dimensions })
    }

    pub(super) fn room(&self) -> PartLimits {
        self.0
    }

    /// Adapts the size: `count` chunks of the batch had to be embedded, in the time `took`.
    pub(super) fn embedded(&mut self, count: usize, took: Duration) {
        let in_time = EMBED_FOR.as_secs_f64() * count as f64 / took.as_secs_f64().max(1e-6);
        // When nothing had to be embedded, the speed is unknown; but the next chunks are probably known too, so the
        // batch grows.
        let chunks = if count == 0 { self.0.chunks.saturating_mul(2) } else { in_time as usize };
        self.0.chunks = chunks.clamp(MIN_CHUNKS, MAX_CHUNKS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_what_the_embedder_does_in_a_while() {
        let mut pace = BatchSizer::new(8);
        assert_eq!(pace.room().chunks, FIRST_CHUNKS, "nothing is known of the embedder yet");
        pace.embedded(256, Duration::from_millis(20));
        assert_eq!(pace.room().chunks, MAX_CHUNKS, "a table in memory");
        pace.embedded(256, Duration::from_secs(10));
        assert_eq!(pace.room().chunks, 256);
        pace.embedded(0, Duration::ZERO);
        assert_eq!(pace.room().chunks, 512, "all of it was known");
        pace.embedded(64, Duration::from_secs(600));
        assert_eq!(pace.room().chunks, MIN_CHUNKS);
        assert_eq!(BatchSizer::new(0).room().chunks, MAX_CHUNKS, "nothing is embedded at all");
    }
}
