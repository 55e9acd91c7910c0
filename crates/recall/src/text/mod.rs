//! Text as everything here reads it: terms for searching, sentences for extracting, days for asking about time.

pub mod sentences;
pub mod temporal;
pub mod terms;
