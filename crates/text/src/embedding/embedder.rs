//! [`StaticEmbedder`]: from text to vector.

use super::{
    asset::{ASSET, DIMENSIONS},
    pieces,
    vocabulary::Vocabulary,
    weights::PieceWeights,
};
use std::sync::LazyLock;

/// A text's vector: unit length.
pub type Vector = [f32; DIMENSIONS];

/// Which table this build carries. Vectors made with another one cannot be compared: make them anew.
pub const MODEL_ID: &str = "toolyard-static-minilm-256/2";

static SHARED: LazyLock<StaticEmbedder> = LazyLock::new(StaticEmbedder::new);

/// The embedding that is part of the program.
#[derive(Debug)]
pub struct StaticEmbedder {
    vocabulary: Vocabulary,
}

impl StaticEmbedder {
    /// The one embedder of this process; made at the first call, in about a millisecond.
    pub fn shared() -> &'static Self {
        &SHARED
    }

    fn new() -> Self {
        Self { vocabulary: Vocabulary::new(ASSET.vocabulary) }
    }

    /// How many word pieces it knows; rows are numbered below this.
    pub fn pieces(&self) -> usize {
        ASSET.rows()
    }

    /// A word piece as the vocabulary spells it; `##` stands before one that continues a word.
    pub fn piece(&self, row: u16) -> Option<&'static str> {
        (usize::from(row) < self.pieces()).then(|| std::str::from_utf8(self.vocabulary.piece(row)).unwrap_or_default())
    }

    /// Calls `emit` with the row of each word piece of a text, in order. Time goes with the text's length; memory does
    /// not.
    pub fn tokenize(&self, text: &str, emit: impl FnMut(u16)) {
        pieces::pieces(&self.vocabulary, text, emit);
    }

    /// The vector of a text, at unit length; `None` when it has no known piece. With weights, each piece counts as
    /// they say on top of what it counts by itself.
    pub fn embed(&self, text: &str, weights: Option<&PieceWeights>) -> Option<Vector> {
        let mut sum = [0.0f32; DIMENSIONS];
        self.tokenize(text, |row| add_row(&mut sum, row, weights.map_or(1.0, |weights| weights.of(row))));
        unit(sum)
    }
}

fn add_row(sum: &mut Vector, row: u16, weight: f32) {
    let (values, scale) = ASSET.row(row);
    let scale = scale * weight;
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += scale * f32::from(*value as i8);
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
