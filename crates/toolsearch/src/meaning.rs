//! [`StaticMeaning`]: the built-in embedding as the model of meaning for the ranking.

use toolyard_catalog::search::{Meaning, MeaningModel};
use toolyard_text::embedding::{Quantised, StaticEmbedder, VectorTable};

/// Nearness in meaning by the built-in static embedding. Costs nothing until a catalog is indexed.
#[derive(Debug, Clone, Copy, Default)]
pub struct StaticMeaning;

impl MeaningModel for StaticMeaning {
    fn read(&self, texts: &[String]) -> Option<Box<dyn Meaning>> {
        let embedder = StaticEmbedder::shared();
        let mut table = VectorTable::with_capacity(texts.len());
        texts.iter().for_each(|text| table.push(embedder.embed(text, None).as_ref()));
        Some(Box::new(Vectors(table)))
    }
}

/// The vectors of one catalog's tools, in its order: 260 bytes each.
struct Vectors(VectorTable);

impl Meaning for Vectors {
    fn similarities(&self, query: &str) -> Option<Vec<f32>> {
        let query = Quantised::new(&StaticEmbedder::shared().embed(query, None)?);
        let mut all = Vec::with_capacity(self.0.len());
        self.0.scan(&query, |_, similarity| all.push(similarity));
        Some(all)
    }
}
