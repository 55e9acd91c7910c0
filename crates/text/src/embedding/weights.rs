//! Weights of word pieces within one collection. A piece that occurs in most texts says little about any of them.

use super::embedder::StaticEmbedder;

/// Exponent applied to the inverse document frequency. It is one half because the table already contains weights from
/// general text.
const POWER: f32 = 0.5;
/// Lower bound of the inverse document frequency, for a piece that occurs in every text.
const LEAST: f32 = 0.05;

/// The number of texts in a collection that contain each piece. Texts can be added and removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DocumentCounts {
    documents: u32,
    containing: Vec<u32>,
}

impl DocumentCounts {
    /// Counts for an empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of texts counted.
    pub fn documents(&self) -> u32 {
        self.documents
    }

    /// Adds a text.
    pub fn add(&mut self, embedder: &StaticEmbedder, text: &str) {
        self.documents = self.documents.saturating_add(1);
        self.change(embedder, text, |count| count.saturating_add(1));
    }

    /// Removes a text that was added before.
    pub fn remove(&mut self, embedder: &StaticEmbedder, text: &str) {
        self.documents = self.documents.saturating_sub(1);
        self.change(embedder, text, |count| count.saturating_sub(1));
    }

    /// The weights: the square root of the inverse document frequency.
    pub fn weights(&self) -> PieceWeights {
        let all = self.documents as f32 + 1.0;
        let weight = |containing: u32| (all / (containing as f32 + 0.5)).ln().max(LEAST).powf(POWER);
        PieceWeights { unseen: weight(0), weights: self.containing.iter().map(|count| weight(*count)).collect() }
    }

    fn change(&mut self, embedder: &StaticEmbedder, text: &str, change: impl Fn(u32) -> u32) {
        let mut rows = Vec::new();
        embedder.tokenize(text, |row| rows.push(row));
        rows.sort_unstable();
        rows.dedup();
        self.containing.resize(embedder.pieces(), 0);
        for row in rows {
            if let Some(count) = self.containing.get_mut(usize::from(row)) {
                *count = change(*count);
            }
        }
    }
}

/// The weight of each piece, multiplied with the table's own weight.
#[derive(Debug, Clone, PartialEq)]
pub struct PieceWeights {
    weights: Vec<f32>,
    unseen: f32,
}

impl PieceWeights {
    /// The weight of one piece.
    pub fn of(&self, row: u16) -> f32 {
        self.weights.get(usize::from(row)).copied().unwrap_or(self.unseen)
    }
}
