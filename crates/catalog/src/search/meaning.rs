//! Traits for ranking by meaning in addition to words. This crate contains no model and no vectors.

/// A model of meaning. Comes from outside.
pub trait MeaningModel: Send + Sync {
    /// Reads the texts of a catalog's tools, in the catalog's order; `None` when it can say nothing about them.
    fn read(&self, texts: &[String]) -> Option<Box<dyn Meaning>>;
}

/// What a model knows about the tools of one catalog.
pub trait Meaning: Send + Sync {
    /// The similarity of each tool to a query, -1 to 1, in the catalog's order; `None` if the model has no vector for
    /// the query.
    fn similarities(&self, query: &str) -> Option<Vec<f32>>;
}

/// A model's answer is used only if it is whole: one finite number for each tool.
pub(super) fn checked(similarities: Option<Vec<f32>>, tools: usize) -> Option<Vec<f32>> {
    similarities.filter(|all| all.len() == tools && all.iter().all(|one| one.is_finite()))
}
