//! Text analysis that notes, memories and tools share.
//!
//! - [`scripts`]: which characters are written without spaces, and how letters are folded.
//! - [`terms`]: the terms of full-text search, with one set of [`terms::Rules`] for each kind of collection.
//! - [`stems`]: stemming of English words.
//! - [`stopwords`]: words that full-text search ignores.
//! - [`dates`]: the days that a text or a question mentions.
//! - [`sentences`]: the sentences of a text, as slices of it.
//! - [`embedding`]: a built-in static embedding, and exact scans over 8-bit vectors.
//!
//! This crate knows no notes, memories, tools, files, threads or clock. The same text gives the same terms everywhere.

pub mod dates;
pub mod embedding;
pub mod scripts;
pub mod sentences;
pub mod stems;
pub mod stopwords;
pub mod terms;
