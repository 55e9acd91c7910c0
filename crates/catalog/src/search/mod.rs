//! Tool Search: which tools of a catalog fit what an agent asks for.
//!
//! Words first: fielded BM25 over names, descriptions and (of trusted tools) parameters, with stemming, a small
//! thesaurus, and character n-grams for words the catalog does not know. Meaning second: where a [`MeaningModel`] has
//! read the catalog, its similarity is added by score. An exact name always comes first, and a query without a usable word finds
//! nothing: a dump of arbitrary tools helps nobody.
//!
//! The index knows a [`crate::Snapshot`] and nothing else. Who may see a tool is the caller's filter, asked before a
//! tool is returned, so that search can never offer what a call would refuse.

mod fuzzy;
mod index;
mod meaning;
mod rank;
mod words;

pub use index::{Field, SearchIndex, Weights};
pub use meaning::{Meaning, MeaningModel};
pub use rank::{Contribution, Explanation, Hit, MAX_BATCH_QUERIES, MAX_QUERY_CHARS, MAX_RESULTS, SearchOptions};
