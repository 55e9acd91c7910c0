//! Selects the most informative sentences of a text: those whose terms are frequent in the text, with earlier ones
//! preferred.

use std::collections::{HashMap, HashSet};
use toolyard_text::terms::{MEMORIES, Side};

/// Shorter sentences carry too little information by themselves.
const MIN_CHARS: usize = 24;
/// Longer sentences are tables or lists whose line breaks were lost.
const MAX_CHARS: usize = 420;
/// Maximum number of sentences scored; the rest of a very long text is not summarised.
const MAX_SENTENCES: usize = 2_000;

/// Indexes of the most informative sentences, at most `count`, in text order and without near-duplicates.
pub(super) fn most_telling(sentences: &[&str], count: usize) -> Vec<usize> {
    let bags: Vec<HashSet<String>> = sentences.iter().take(MAX_SENTENCES).map(|sentence| bag(sentence)).collect();
    let mut having: HashMap<&str, u32> = HashMap::new();
    for term in bags.iter().flatten() {
        *having.entry(term).or_default() += 1;
    }
    let mut ranked: Vec<(f32, usize)> = bags
        .iter()
        .enumerate()
        .map(|(at, bag)| {
            let sum: f32 =
                bag.iter().map(|term| having.get(term.as_str()).map_or(0.0, |n| ((*n).min(12) as f32).ln_1p())).sum();
            let chars = sentences[at].chars().count();
            let fit = if (MIN_CHARS..=MAX_CHARS).contains(&chars) { 1.0 } else { 0.3 };
            let early = 1.0 + 0.5 / (1.0 + at as f32 / 3.0);
            (sum / (bag.len() as f32 + 3.0).sqrt() * fit * early, at)
        })
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut chosen: Vec<usize> = Vec::new();
    for (_, at) in ranked {
        if chosen.len() >= count {
            break;
        }
        if !bags[at].is_empty() && chosen.iter().all(|other| likeness(&bags[at], &bags[*other]) < 0.6) {
            chosen.push(at);
        }
    }
    chosen.sort_unstable();
    chosen
}

/// The distinct terms of a text.
pub(super) fn bag(text: &str) -> HashSet<String> {
    let mut bag = HashSet::new();
    MEMORIES.terms(text, Side::Question, |term, _| {
        if !bag.contains(term) {
            bag.insert(term.to_owned());
        }
    });
    bag
}

/// Jaccard similarity: shared terms divided by all terms, 0 to 1.
pub(super) fn likeness(a: &HashSet<String>, b: &HashSet<String>) -> f32 {
    let shared = a.intersection(b).count();
    let all = a.len() + b.len() - shared;
    if all == 0 { 0.0 } else { shared as f32 / all as f32 }
}

/// The share of the smaller set's terms that the other set contains.
pub(super) fn containment(a: &HashSet<String>, b: &HashSet<String>) -> f32 {
    let least = a.len().min(b.len());
    if least == 0 { 0.0 } else { a.intersection(b).count() as f32 / least as f32 }
}
