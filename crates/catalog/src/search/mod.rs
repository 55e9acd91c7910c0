//! Tool Search: finds the tools of a catalog that match a query.
//!
//! The word score is fielded BM25 over names, descriptions and (for trusted tools) parameters, with stemming, a small
//! thesaurus, and character n-grams for words that the catalog does not contain. If a [`MeaningModel`] is available,
//! its similarity is added to the score. A tool that the query names exactly always comes first. A query without a
//! usable word finds nothing, because a list of arbitrary tools does not help.
//!
//! The index reads a [`crate::Snapshot`] only. The caller passes a filter that says which tools may be seen, and the
//! filter is applied before a tool is returned, so that search never offers a tool that a call would refuse.

mod fuzzy;
mod index;
mod meaning;
mod rank;
mod words;

pub use index::{Field, SearchIndex, Weights};
pub use meaning::{Meaning, MeaningModel};
pub use rank::{Contribution, Explanation, Hit, MAX_BATCH_QUERIES, MAX_QUERY_CHARS, MAX_RESULTS, SearchOptions};
