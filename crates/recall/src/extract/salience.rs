//! Which sentences of a text say most about it: those whose words the text has often, early ones first.

use std::collections::{HashMap, HashSet};
use toolyard_text::terms::{MEMORIES, Side};

/// Sentences shorter than this say too little by themselves.
const MIN_CHARS: usize = 24;
/// Longer ones are tables or lists that lost their lines.
const MAX_CHARS: usize = 420;
/// Sentences looked at; the rest of a very long text is not summarised.
const MAX_SENTENCES: usize = 2_000;

/// Numbers of the most telling sentences, at most so many, in the order of the text, none saying the same as another.
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

/// The different terms of a text.
pub(super) fn bag(text: &str) -> HashSet<String> {
    let mut bag = HashSet::new();
    MEMORIES.terms(text, Side::Question, |term, _| {
        if !bag.contains(term) {
            bag.insert(term.to_owned());
        }
    });
    bag
}

/// Shared terms out of all, 0 to 1.
pub(super) fn likeness(a: &HashSet<String>, b: &HashSet<String>) -> f32 {
    let shared = a.intersection(b).count();
    let all = a.len() + b.len() - shared;
    if all == 0 { 0.0 } else { shared as f32 / all as f32 }
}

/// The share of the smaller one's terms that the other has too.
pub(super) fn containment(a: &HashSet<String>, b: &HashSet<String>) -> f32 {
    let least = a.len().min(b.len());
    if least == 0 { 0.0 } else { a.intersection(b).count() as f32 / least as f32 }
}
