//! Recall without a language model. The crate has three parts, all pure: no files, no threads, no clock, and the same
//! result everywhere.
//!
//! - [`index`]: an in-memory index over small documents (memories, turns, passages) that are added and removed one by
//!   one. It ranks by words, windows of neighbouring turns, meaning ([`toolyard_text::embedding`]), speaker and time.
//!   Every hit states the components of its rank.
//! - [`extract`]: rule-based extraction of abstracts, overviews, conversation summaries and memories.
//! - [`evaluate`]: measures how well the index finds the evidence of labelled questions.
//!
//! Terms, dates, sentences and vectors come from [`toolyard_text`].
//!
//! This crate knows no stores, URIs, users or tools: ids, owners and scopes are opaque to it.

pub mod evaluate;
pub mod extract;
pub mod index;
