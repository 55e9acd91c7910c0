//! Words: what full-text search counts, and what a result shows of a chunk.

mod snippet;
mod terms;

pub use snippet::snippet;
pub use terms::{index_terms, query_terms, term_set};

pub(crate) use toolyard_noteindex::names::nfc;
