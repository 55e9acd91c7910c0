//! Words: what full-text search counts, and what a result shows of a chunk.

mod snippet;
mod terms;

pub use snippet::snippet;
pub use terms::{index_terms, query_terms, term_set};

use std::borrow::Cow;
use unicode_normalization::{UnicodeNormalization, is_nfc};

/// The form in which names, tags and paths are compared: `é` is one letter, however the disk or the keyboard spells it.
pub(crate) fn nfc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_nfc(text) { text.into() } else { text.nfc().collect::<String>().into() }
}
