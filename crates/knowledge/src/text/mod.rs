//! Words: what full-text search counts of notes ([`toolyard_text::terms::NOTES`]), and what a result shows of a chunk.

mod snippet;

pub use snippet::snippet;

pub(crate) use toolyard_noteindex::names::nfc;

use std::collections::HashSet;
use toolyard_text::terms::{NOTES, Side};

/// A question has at most this many different terms.
const MAX_QUERY_TERMS: usize = 256;

/// Appends the terms of a text, each followed by a space.
pub fn index_terms(text: &str, out: &mut String) {
    NOTES.terms(text, Side::Document, |term, _| {
        out.push_str(term);
        out.push(' ');
    });
}

/// The different terms of a question, in order, at most [`MAX_QUERY_TERMS`].
pub fn query_terms(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    NOTES.terms(text, Side::Question, |term, _| {
        if found.len() < MAX_QUERY_TERMS && !found.iter().any(|known| known == term) {
            found.push(term.to_owned());
        }
    });
    found
}

/// Every term that a note of this text would be found by.
pub fn term_set(text: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    NOTES.terms(text, Side::Document, |term, _| {
        if !found.contains(term) {
            found.insert(term.to_owned());
        }
    });
    found
}
