//! [`StaticEmbedder`] turns a text into a vector.

use super::{
    asset::{ASSET, DIMENSIONS, LEVELS},
    pieces,
    vocabulary::Vocabulary,
    weights::PieceWeights,
};
use std::sync::LazyLock;

/// The vector of a text, normalised to unit length.
pub type Vector = [f32; DIMENSIONS];

/// Identifies the embedding table of this build. Vectors from different tables cannot be compared and must be computed
/// again.
pub const MODEL_ID: &str = "toolyard-static-minilm-256/3";

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
        self.tokenize(text, |row| add_row(&mut sum, row, weights.map_or(1.0, |weights| weights.of(row))));
        unit(sum)
    }
}

fn add_row(sum: &mut Vector, row: u16, weight: f32) {
    let (values, scale) = ASSET.row(row);
    let levels: [f32; LEVELS] = ASSET.levels.map(|level| level * scale * weight);
    for (sums, pair) in sum.as_chunks_mut::<2>().0.iter_mut().zip(values) {
        sums[0] += levels[usize::from(pair & 0xF)];
        sums[1] += levels[usize::from(pair >> 4)];
    }
}

fn unit(mut sum: Vector) -> Option<Vector> {
    let norm = sum.iter().map(|x| x * x).sum::<f32>().sqrt();
    if !norm.is_normal() {
        return None;
    }
    sum.iter_mut().for_each(|x| *x /= norm);
    Some(sum)
}
