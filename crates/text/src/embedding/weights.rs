//! What a word piece counts in one collection: a piece that most of its texts have says little about any of them.

use super::embedder::StaticEmbedder;

/// The power of the inverse document frequency. Half of it: the table has weights of its own already, from general
/// text.
const POWER: f32 = 0.5;
/// What a piece of every text still counts, before the power.
const LEAST: f32 = 0.05;

/// In how many texts of a collection each piece stands. Texts can be added and taken away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DocumentCounts {
    documents: u32,
    containing: Vec<u32>,
}

impl DocumentCounts {
    /// No texts yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Texts counted.
    pub fn documents(&self) -> u32 {
        self.documents
    }

    /// Adds a text.
    pub fn add(&mut self, embedder: &StaticEmbedder, text: &str) {
        self.documents = self.documents.saturating_add(1);
        self.change(embedder, text, |count| count.saturating_add(1));
    }

    /// Takes away a text that was added.
    pub fn remove(&mut self, embedder: &StaticEmbedder, text: &str) {
        self.documents = self.documents.saturating_sub(1);
        self.change(embedder, text, |count| count.saturating_sub(1));
    }

    /// The weights: inverse document frequency to the power of a half.
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

/// What each piece counts, on top of the table's own weights.
#[derive(Debug, Clone, PartialEq)]
pub struct PieceWeights {
    weights: Vec<f32>,
    unseen: f32,
}

impl PieceWeights {
    /// What a piece counts.
    pub fn of(&self, row: u16) -> f32 {
        self.weights.get(usize::from(row)).copied().unwrap_or(self.unseen)
    }
}
