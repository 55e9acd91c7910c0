//! [`StaticTable`]: the built-in table of word vectors. It needs no server, sends no data, and takes microseconds for a
//! vector.

use super::{EmbedError, Embedder, EmbedderInfo, Purpose, Vectors};
use std::sync::Arc;
use toolyard_engine::BoxFuture;
use toolyard_text::embedding::{DIMENSIONS, DocumentCounts, MODEL_ID, PieceWeights, StaticEmbedder};

/// Number of texts embedded before the task yields to others.
const TURN: usize = 32;

/// The built-in embedding table.
#[derive(Default)]
pub struct StaticTable {
    /// Weights of word pieces in queries, by their rarity in the notes. Notes are embedded without weights, so that
    /// their vectors stay valid when notes are added.
    weights: Option<PieceWeights>,
}

impl StaticTable {
    /// Creates the table without weights.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Embedder for StaticTable {
    fn is_local(&self) -> bool {
        true
    }

    fn describe(&self) -> BoxFuture<'_, Result<EmbedderInfo, EmbedError>> {
        Box::pin(async { Ok(EmbedderInfo { id: format!("static/{MODEL_ID}"), dimensions: DIMENSIONS }) })
    }

    fn embed<'a>(&'a self, texts: &'a [String], purpose: Purpose) -> BoxFuture<'a, Vectors> {
        Box::pin(async move {
            let weights = match purpose {
                Purpose::Query => self.weights.as_ref(),
                Purpose::Passage => None,
            };
            let embedder = StaticEmbedder::shared();
            let mut out = Vec::with_capacity(texts.len());
            for part in texts.chunks(TURN) {
                out.extend(part.iter().map(|text| embedder.embed(text, weights).map(|vector| vector.to_vec())));
                tokio::task::yield_now().await;
            }
            Ok(out)
        })
    }

    fn attuned(&self, samples: &[String]) -> Option<Arc<dyn Embedder>> {
        let mut counts = DocumentCounts::new();
        samples.iter().for_each(|text| counts.add(StaticEmbedder::shared(), text));
        Some(Arc::new(Self { weights: Some(counts.weights()) }))
    }
}
