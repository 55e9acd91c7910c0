//! Recall without a model. Three parts, all pure: no files, no threads, no clock, the same answers everywhere.
//!
//! - [`index`]: an index in memory over small documents (memories, turns, passages) that takes and gives up documents
//!   one by one, and answers questions by words, by windows of neighbouring turns, by meaning ([`toolyard_text::embedding`]), by
//!   who said it and by when. Every answer says what its place is made of.
//! - [`extract`]: abstracts, overviews, summaries of conversations and memories, taken out of texts by rules.
//! - [`evaluate`]: how well the index finds the evidence of labelled questions.
//!
//! Terms, dates, sentences and vectors come from [`toolyard_text`].
//!
//! This crate knows no stores, URIs, users or tools: ids, owners and scopes are opaque to it.

pub mod evaluate;
pub mod extract;
pub mod index;
