//! Terms of notes for full-text search ([`toolyard_text::terms::NOTES`]), and snippets.

mod snippet;

pub use snippet::snippet;

pub(crate) use toolyard_noteindex::names::nfc;

use std::collections::HashSet;
use toolyard_text::terms::{NOTES, Side};

/// Maximum number of distinct terms of a query.
const MAX_QUERY_TERMS: usize = 256;
/// Maximum count of a repeated term in a query.
const MAX_REPEATS: usize = 8;

/// Appends the terms of a text, each followed by a space.
pub fn index_terms(text: &str, out: &mut String) {
    NOTES.terms(text, Side::Document, |term, _| {
        out.push_str(term);
        out.push(' ');
    });
}

/// The distinct terms of a query, in order, at most [`MAX_QUERY_TERMS`].
pub fn query_terms(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    NOTES.terms(text, Side::Question, |term, _| {
        if found.len() < MAX_QUERY_TERMS && !found.iter().any(|known| known == term) {
            found.push(term.to_owned());
        }
    });
    found
}

/// The terms of a query for full text: a repeated term is counted up to [`MAX_REPEATS`] times, because a long query
/// repeats what it is about.
pub fn counted_terms(text: &str) -> Vec<String> {
    let mut found: Vec<(String, usize)> = Vec::new();
    NOTES.terms(text, Side::Question, |term, _| {
        if let Some(at) = found.iter().position(|(known, _)| known == term) {
            found[at].1 = (found[at].1 + 1).min(MAX_REPEATS);
        } else if found.len() < MAX_QUERY_TERMS {
            found.push((term.to_owned(), 1));
        }
    });
    found.into_iter().flat_map(|(term, count)| std::iter::repeat_n(term, count)).collect()
}

/// All terms by which a note with this text is found.
pub fn term_set(text: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    NOTES.terms(text, Side::Document, |term, _| {
        if !found.contains(term) {
            found.insert(term.to_owned());
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_term_counts_as_often_as_it_is_said_up_to_a_limit() {
        assert_eq!(counted_terms("boat sail boats"), ["boat", "boat", "sail"]);
        assert_eq!(query_terms("boat sail boats"), ["boat", "sail"]);
        assert_eq!(counted_terms(&"boat ".repeat(50)).len(), MAX_REPEATS);
    }
}
