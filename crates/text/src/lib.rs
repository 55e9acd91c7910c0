//! Text, read once and the same way for notes, memories and tools.
//!
//! - [`scripts`]: which characters are written without spaces, and how letters are folded.
//! - [`terms`]: what full-text search counts, with one set of [`terms::Rules`] for each kind of collection.
//! - [`stems`]: one form for the forms of an English word.
//! - [`stopwords`]: words that say nothing about a text.
//! - [`dates`]: which days a text or a question speaks of.
//! - [`sentences`]: sentences of a text, as slices of it.
//! - [`embedding`]: meaning without a server, and exact scans over vectors of 8 bits.
//!
//! This crate knows no notes, memories, tools, files, threads or clock. The same text gives the same terms everywhere.

pub mod dates;
pub mod embedding;
pub mod scripts;
pub mod sentences;
pub mod stems;
pub mod stopwords;
pub mod terms;
