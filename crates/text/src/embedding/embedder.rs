//! [`StaticEmbedder`] turns a text into a vector.

use super::{
    asset::{ASSET, DIMENSIONS},
    pieces,
    vocabulary::Vocabulary,
    weights::PieceWeights,
};
use std::sync::LazyLock;

/// The vector of a text, normalised to unit length.
pub type Vector = [f32; DIMENSIONS];

/// Identifies the embedding table of this build. Vectors from different tables cannot be compared and must be computed
/// again.
pub const MODEL_ID: &str = "toolyard-static-minilm-256/4";

/// The largest number of pieces of a text that are added to its vector together.
const BATCH: usize = 1024;

static SHARED: LazyLock<StaticEmbedder> = LazyLock::new(StaticEmbedder::new);

/// The built-in static embedding.
#[derive(Debug)]
pub struct StaticEmbedder {
    vocabulary: Vocabulary,
}

impl StaticEmbedder {
    /// The process-wide embedder. The first call creates it in about a millisecond.
    pub fn shared() -> &'static Self {
        &SHARED
    }

    fn new() -> Self {
        Self { vocabulary: Vocabulary::new(ASSET.vocabulary) }
    }

    /// Number of known word pieces. Row numbers are below this.
    pub fn pieces(&self) -> usize {
        ASSET.rows()
    }

    /// A word piece as spelled in the vocabulary. The prefix `##` marks a piece that continues a word.
    pub fn piece(&self, row: u16) -> Option<&'static str> {
        (usize::from(row) < self.pieces()).then(|| std::str::from_utf8(self.vocabulary.piece(row)).unwrap_or_default())
    }

    /// Calls `emit` with the row of each word piece of a text, in order. Run time grows with the length of the text;
    /// memory use does not.
    pub fn tokenize(&self, text: &str, emit: impl FnMut(u16)) {
        pieces::pieces(&self.vocabulary, text, emit);
    }

    /// The unit-length vector of a text, or `None` when the text has no known piece. `weights` multiply the weights
    /// that the table itself gives to each piece.
    pub fn embed(&self, text: &str, weights: Option<&PieceWeights>) -> Option<Vector> {
        let mut sum = [0.0f32; DIMENSIONS];
        let mut rows = Vec::new();
        self.tokenize(text, |row| {
            rows.push(row);
            if rows.len() == BATCH {
                add_rows(&mut sum, &mut rows, weights);
            }
        });
        add_rows(&mut sum, &mut rows, weights);
        unit(sum)
    }
}

/// Adds rows to a sum. A row that occurs several times is read from the table once.
fn add_rows(sum: &mut Vector, rows: &mut Vec<u16>, weights: Option<&PieceWeights>) {
    rows.sort_unstable();
    for same in rows.chunk_by(|a, b| a == b) {
        let weight = weights.map_or(1.0, |weights| weights.of(same[0]));
        ASSET.add(same[0], weight * same.len() as f32, sum);
    }
    rows.clear();
}

fn unit(mut sum: Vector) -> Option<Vector> {
    let norm = sum.iter().map(|x| x * x).sum::<f32>().sqrt();
    if !norm.is_normal() {
        return None;
    }
    sum.iter_mut().for_each(|x| *x /= norm);
    Some(sum)
}
