//! Searching: ranks tools for a query, with the reasons for each position.

use super::{
    index::{Field, SearchIndex, field_shares, pair},
    meaning::checked,
};
use crate::registry::ToolEntry;
use serde::Serialize;
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};
use toolyard_text::terms::{Side, TOOLS};

/// A search returns at most this many tools.
pub const MAX_RESULTS: usize = 50;
/// Of a longer query only the first characters count.
pub const MAX_QUERY_CHARS: usize = 8_192;
/// Maximum number of queries in a batch; further ones are ignored.
pub const MAX_BATCH_QUERIES: usize = 16;
/// Different terms of a query that count, the rarest first.
const MAX_QUERY_TERMS: usize = 128;
/// A tool that shares no word with the query is found only if it is this near in meaning.
const LEAST_MEANING_ALONE: f32 = 0.3;
/// Similarities are measured by the nearest tool's, or by this if even that is farther off.
const LEAST_NEAREST: f32 = 0.35;
/// Repeating a word in the query counts less each time: (k + 1) n / (k + n).
const REPETITION: f32 = 1.0;

static THESAURUS: LazyLock<HashMap<String, Vec<String>>> = LazyLock::new(|| {
    let mut related: HashMap<String, Vec<String>> = HashMap::new();
    for group in super::words::thesaurus() {
        let stems: Vec<String> = group.iter().map(|word| TOOLS.stem_of(word)).collect();
        for word in &stems {
            let list = related.entry(word.clone()).or_default();
            list.extend(stems.iter().filter(|other| *other != word).cloned());
        }
    }
    related
});

/// How to search.
#[derive(Debug, Clone, Copy, Default)]
pub struct SearchOptions {
    /// At most this many tools; [`MAX_RESULTS`] is the most.
    pub limit: usize,
    /// Whether each hit is explained.
    pub explain: bool,
}

impl SearchOptions {
    /// Options with this limit and without explanations.
    pub fn limit(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }
}

/// A tool that was found.
#[derive(Debug, Clone)]
pub struct Hit {
    /// The tool that was found.
    pub entry: Arc<ToolEntry>,
    /// How well it fits. Comparable within one search only.
    pub score: f32,
    /// Whether the query names the tool.
    pub exact: bool,
    /// Why it was found, when asked for.
    pub explain: Option<Explanation>,
}

/// Why a tool was found. Without a model of meaning, the parts add up to the score.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What each word gave in each field, the most important first.
    pub words: Vec<Contribution>,
    /// Bonus for the part of the tool's name that the query covers.
    pub coverage: f32,
    /// The score for words that are adjacent both in the query and in the tool's name or description.
    pub neighbours: f32,
    /// The similarity of meaning, -1 to 1, if a model of meaning was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub similarity: Option<f32>,
}

/// What one word gave in one field.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contribution {
    /// The term of the catalog that matched, as a stem.
    pub term: String,
    /// The field that contains the term.
    pub field: Field,
    /// The score of this word.
    pub score: f32,
    /// The term of the query that it replaces, if it is not the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// A term of the catalog that the query asks for.
#[derive(Debug)]
struct QueryTerm {
    number: u32,
    weight: f32,
    /// Whether the query itself has it.
    literal: bool,
    /// The query's own term.
    from: String,
}

/// What a query asks for.
struct ParsedQuery {
    /// The terms to look for.
    wanted: Vec<QueryTerm>,
    /// Pairs of adjacent terms of the query.
    pairs: Vec<u64>,
    /// Whether the query has a usable word, known or not.
    usable: bool,
}

/// Scores of all tools for one query.
struct Scores {
    total: Vec<f32>,
    coverage: Vec<f32>,
    neighbours: Vec<f32>,
    similarity: Option<Vec<f32>>,
}

impl SearchIndex {
    /// Finds the best tools for a query among those that the filter accepts. Tools that the query names come first. A
    /// query without a usable word finds nothing else.
    pub fn search(&self, query: &str, options: &SearchOptions, filter: impl Fn(&ToolEntry) -> bool) -> Vec<Hit> {
        let limit = options.limit.min(MAX_RESULTS);
        let query = match query.char_indices().nth(MAX_QUERY_CHARS) {
            Some((end, _)) => &query[..end],
            None => query,
        };
        if limit == 0 || query.trim().is_empty() {
            return Vec::new();
        }
        let ParsedQuery { wanted, pairs, usable } = self.parse(query);
        let scores = self.score(query, usable, &wanted, &pairs);
        let named = self.named(query);
        let hit = |number: u32, exact: bool| -> Option<Hit> {
            let entry = self.snapshot.at(number as usize).filter(|entry| filter(entry))?;
            let explain = options.explain.then(|| self.explain(number, &wanted, &scores));
            Some(Hit { entry: Arc::clone(entry), score: scores.total[number as usize], exact, explain })
        };
        let mut hits: Vec<Hit> = named.iter().filter_map(|&number| hit(number, true)).take(limit).collect();
        let mut ranked: Vec<(f32, u32)> = Vec::new();
        for (number, &score) in scores.total.iter().enumerate() {
            if score > 0.0 && !named.contains(&(number as u32)) {
                ranked.push((score, number as u32));
            }
        }
        // Usually the best few pass the filter; only if they do not are the others put in order too.
        let mut ready = 0;
        while hits.len() < limit && ready < ranked.len() {
            let rest = &mut ranked[ready..];
            let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
            let part = rest.len().min((limit * 2).max(ready));
            if part < rest.len() {
                rest.select_nth_unstable_by(part - 1, order);
            }
            rest[..part].sort_unstable_by(order);
            let missing = limit - hits.len();
            hits.extend(rest[..part].iter().filter_map(|&(_, number)| hit(number, false)).take(missing));
            ready += part;
        }
        hits
    }

    /// Several queries in one: the best of each, then the second best of each, and so on, every tool once. Each hit
    /// comes with the positions of the queries that found it.
    pub fn search_batch(
        &self,
        queries: &[&str],
        options: &SearchOptions,
        filter: impl Fn(&ToolEntry) -> bool,
    ) -> Vec<(Hit, Vec<usize>)> {
        let limit = options.limit.min(MAX_RESULTS);
        let found: Vec<Vec<Hit>> =
            queries.iter().take(MAX_BATCH_QUERIES).map(|query| self.search(query, options, &filter)).collect();
        let mut merged: Vec<(Hit, Vec<usize>)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for rank in 0..limit {
            for (query, hits) in found.iter().enumerate() {
                let Some(hit) = hits.get(rank) else { continue };
                match places.get(hit.entry.id()) {
                    Some(&place) => merged[place].1.push(query),
                    None => {
                        places.insert(hit.entry.id().to_owned(), merged.len());
                        merged.push((hit.clone(), vec![query]));
                    }
                }
            }
        }
        merged.truncate(limit);
        merged
    }

    /// The tools a query names: as a whole, or by a word in it that can only be a tool's name.
    fn named(&self, query: &str) -> Vec<u32> {
        let whole = query.trim().to_lowercase();
        let mut named = self.exact.get(&whole).cloned().unwrap_or_default();
        for word in query.split_whitespace() {
            let word = word.trim_matches(|c: char| !c.is_alphanumeric());
            let inner_capital = word.chars().skip(1).any(char::is_uppercase) && word.chars().any(char::is_lowercase);
            if !(inner_capital || word.contains(['_', '.', ':', '/'])) {
                continue;
            }
            for &number in self.exact.get(&word.to_lowercase()).map(Vec::as_slice).unwrap_or_default() {
                if !named.contains(&number) {
                    named.push(number);
                }
            }
        }
        named
    }

    /// The terms to search for: those of the query, their synonyms, and similar terms for unknown words; with the pairs
    /// of adjacent terms of the query.
    fn parse(&self, query: &str) -> ParsedQuery {
        let mut counts: HashMap<String, u32> = HashMap::new();
        let mut order: Vec<String> = Vec::new();
        let mut previous: Option<u32> = None;
        let mut pairs: Vec<u64> = Vec::new();
        TOOLS.terms(query, Side::Question, |term, _| {
            let number = self.numbers.get(term).copied();
            pairs.extend(previous.zip(number).map(|(first, second)| pair(first, second)));
            previous = number;
            let count = counts.entry(term.to_owned()).or_default();
            *count += 1;
            if *count == 1 {
                order.push(term.to_owned());
            }
        });
        let mut wanted: Vec<QueryTerm> = Vec::new();
        let mut unknown: Vec<&String> = Vec::new();
        for term in &order {
            match self.numbers.get(term) {
                Some(&number) => {
                    let count = counts.get(term).copied().unwrap_or(1) as f32;
                    let weight = (REPETITION + 1.0) * count / (REPETITION + count);
                    wanted.push(QueryTerm { number, weight, literal: true, from: term.clone() });
                }
                None => unknown.push(term),
            }
        }
        wanted.sort_by(|a, b| self.rarity(b.number).total_cmp(&self.rarity(a.number)));
        wanted.truncate(MAX_QUERY_TERMS);
        for term in unknown.into_iter().take(MAX_QUERY_TERMS) {
            for (number, likeness) in self.fuzzy.like(term) {
                let weight = self.weights.fuzzy * likeness;
                add(&mut wanted, QueryTerm { number, weight, literal: false, from: term.clone() });
            }
        }
        for term in &order {
            for related in THESAURUS.get(term).map(Vec::as_slice).unwrap_or_default() {
                if let Some(&number) = self.numbers.get(related) {
                    // A rare word must not count for more than the common word that it replaces.
                    let own = self.numbers.get(term).map_or(f32::MAX, |&own| self.rarity(own));
                    let weight = self.weights.thesaurus * (own / self.rarity(number).max(0.1)).min(1.0);
                    add(&mut wanted, QueryTerm { number, weight, literal: false, from: term.clone() });
                }
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        ParsedQuery { wanted, pairs, usable: !order.is_empty() }
    }

    fn rarity(&self, number: u32) -> f32 {
        self.terms.get(number as usize).map_or(0.0, |term| term.rarity)
    }

    fn score(&self, query: &str, usable: bool, wanted: &[QueryTerm], pairs: &[u64]) -> Scores {
        let mut total = vec![0.0f32; self.lengths.len()];
        let mut coverage = vec![0.0f32; self.lengths.len()];
        for want in wanted {
            let Some(term) = self.terms.get(want.number as usize) else { continue };
            for posting in &term.postings {
                let tool = posting.tool as usize;
                total[tool] += want.weight * posting.impact;
                if posting.counts[0] > 0 {
                    coverage[tool] += want.weight.min(1.0) * term.rarity;
                }
            }
        }
        let neighbours = self.neighbours(pairs);
        total.iter_mut().zip(&neighbours).for_each(|(total, more)| *total += more);
        for ((total, coverage), all) in total.iter_mut().zip(&mut coverage).zip(&self.name_rarity) {
            if *coverage > 0.0 && *all > 0.0 {
                *coverage *= self.weights.coverage * (*coverage / all);
                *total += *coverage;
            }
        }
        // Words that say nothing mean nothing either.
        let meaning = self.meaning.as_ref().filter(|_| usable);
        let similarity = meaning.and_then(|meaning| checked(meaning.similarities(query), total.len()));
        if let Some(similarity) = &similarity {
            self.fuse(&mut total, similarity);
        }
        Scores { total, coverage, neighbours, similarity }
    }

    /// Adds the similarity of meaning to the word scores, each divided by its best value, because a raw cosine says
    /// little: some queries are far from every tool. A tool that shares no word with the query must be very similar to
    /// be found.
    fn fuse(&self, total: &mut [f32], similarity: &[f32]) {
        let best = total.iter().copied().fold(0.0f32, f32::max).max(f32::MIN_POSITIVE);
        let nearest = similarity.iter().copied().fold(LEAST_NEAREST, f32::max);
        for (total, similarity) in total.iter_mut().zip(similarity) {
            if *total > 0.0 || *similarity >= LEAST_MEANING_ALONE {
                *total = *total / best + self.weights.meaning * similarity.max(0.0) / nearest;
            }
        }
    }

    /// The scores for words of the query that are also adjacent in a tool.
    fn neighbours(&self, pairs: &[u64]) -> Vec<f32> {
        let mut scores = vec![0.0; self.lengths.len()];
        for &key in pairs {
            let from = self.neighbours.partition_point(|(known, _)| *known < key);
            let tools = self.neighbours[from..].iter().take_while(|(known, _)| *known == key);
            let count = tools.clone().count() as f32;
            let rarity = (1.0 + (self.lengths.len() as f32 - count + 0.5) / (count + 0.5)).ln();
            for (_, tool) in tools {
                scores[*tool as usize] += self.weights.neighbours * rarity;
            }
        }
        scores
    }

    fn explain(&self, number: u32, wanted: &[QueryTerm], scores: &Scores) -> Explanation {
        let tool = number as usize;
        let mut words = Vec::new();
        for want in wanted {
            let Some(term) = self.terms.get(want.number as usize) else { continue };
            let Ok(at) = term.postings.binary_search_by_key(&number, |posting| posting.tool) else { continue };
            let posting = &term.postings[at];
            let shares = field_shares(&self.weights, &posting.counts, &self.lengths[tool]);
            let all: f32 = shares.iter().sum();
            let name = self.names.get(want.number as usize);
            for (field, share) in Field::ALL.into_iter().zip(shares).filter(|(_, share)| *share > 0.0) {
                words.push(Contribution {
                    term: name.cloned().unwrap_or_default(),
                    field,
                    score: want.weight * posting.impact * share / all,
                    from: (!want.literal).then(|| want.from.clone()),
                });
            }
        }
        words.sort_by(|a, b| b.score.total_cmp(&a.score));
        let similarity = scores.similarity.as_ref().and_then(|all| all.get(tool)).copied();
        Explanation { words, coverage: scores.coverage[tool], neighbours: scores.neighbours[tool], similarity }
    }
}

/// Adds a term, or raises the weight it has already.
fn add(wanted: &mut Vec<QueryTerm>, more: QueryTerm) {
    match wanted.iter_mut().find(|known| known.number == more.number) {
        Some(known) => known.weight = known.weight.max(more.weight),
        None => wanted.push(more),
    }
}
