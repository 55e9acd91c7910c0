//! From a question to candidates, and from candidates to answers.
//!
//! Candidates are the best by words and the best by meaning, with their neighbours in a conversation: an answer often
//! shares nothing with the question but stands beside what does. Only candidates are weighed in full.

use super::{
    Hit, Question, RecallIndex,
    admit::Admits,
    names::NONE,
    rank::{self, Seen},
};
use crate::text::{
    temporal::{self, TimeIntent},
    terms,
};
use toolyard_embed::{Quantised, StaticEmbedder};

/// Candidates by words.
const BY_WORDS: usize = 320;
/// Candidates by meaning.
const BY_MEANING: usize = 128;
/// Neighbours on each side that become candidates too.
const NEIGHBOURS: usize = 2;
/// Terms of a question at most.
const MAX_QUESTION_TERMS: usize = 48;
/// How soon more of the same word stops counting.
pub(super) const K1: f32 = 1.2;
/// How much long texts are marked down.
pub(super) const B: f32 = 0.5;

/// One term of a question.
pub(super) struct Wanted {
    /// Its number, if the index has it.
    pub(super) term: Option<u32>,
    /// How rare it is.
    pub(super) rarity: f32,
    /// For words near in meaning.
    pub(super) vector: Option<Quantised>,
}

/// A question, taken apart.
pub(super) struct Read {
    pub(super) wanted: Vec<Wanted>,
    pub(super) vector: Option<Quantised>,
    pub(super) time: TimeIntent,
    pub(super) preference: bool,
    /// Speakers it names.
    pub(super) speakers: Vec<u32>,
    pub(super) average_length: f32,
}

impl RecallIndex {
    /// The best answers, best first.
    pub fn search(&self, question: &Question<'_>) -> Vec<Hit> {
        if self.is_empty() || question.limit == 0 {
            return Vec::new();
        }
        let read = self.read(question);
        let admits = Admits::new(self, &question.filter);
        let candidates = self.candidates(&read, &admits);
        let seen = Seen::new(self, &read, candidates);
        let mut hits: Vec<(f32, f32, u32, super::Parts)> =
            seen.weigh(question).filter(|(score, ..)| *score >= question.least).collect();
        hits.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.2.cmp(&b.2)));
        hits.truncate(question.limit);
        hits.into_iter()
            .map(|(score, rank, number, parts)| {
                let place = &self.places[number as usize];
                Hit {
                    id: place.id.to_string(),
                    score,
                    rank,
                    kind: place.kind,
                    category: place.category,
                    level: place.level,
                    time_ms: place.time_ms,
                    parts,
                }
            })
            .collect()
    }

    /// Takes a question apart.
    pub(super) fn read(&self, question: &Question<'_>) -> Read {
        let embedder = StaticEmbedder::shared();
        let mut speakers: Vec<u32> = Vec::new();
        terms::words(question.text, |word| {
            let word = word.strip_suffix("'s").unwrap_or(word);
            for number in self.speaker_words.get(word).into_iter().flatten() {
                if !speakers.contains(number) {
                    speakers.push(*number);
                }
            }
        });
        let mut wanted: Vec<(String, Wanted)> = Vec::new();
        let living = self.len() as f32;
        let mut rest = String::new();
        terms::terms(question.text, |term, word| {
            // Who is asked about is a sign of its own; among the words it would find whoever talks to them.
            if self.speaker_words.contains_key(word) {
                return;
            }
            rest.push_str(word);
            rest.push(' ');
            if wanted.len() >= MAX_QUESTION_TERMS || wanted.iter().any(|(known, _)| known == term) {
                return;
            }
            let number = self.terms.find(term);
            let having = number.map_or(0.0, |number| self.lists[number as usize].living as f32);
            let rarity = ((living - having + 0.5) / (having + 0.5)).ln_1p();
            let vector = embedder.embed(word, None).map(|vector| Quantised::new(&vector));
            wanted.push((term.to_owned(), Wanted { term: number, rarity, vector }));
        });
        let today = question.now_ms.map(temporal::date_of_ms);
        Read {
            wanted: wanted.into_iter().map(|(_, wanted)| wanted).collect(),
            vector: embedder
                .embed(if rest.is_empty() { question.text } else { &rest }, None)
                .map(|vector| Quantised::new(&vector)),
            time: temporal::intent(question.text, today),
            preference: rank::asks_preference(question.text),
            speakers,
            average_length: (self.total_length / f64::from(self.len().max(1) as u32)).max(1.0) as f32,
        }
    }

    /// Numbers of candidates, in order.
    fn candidates(&self, read: &Read, admits: &Admits<'_>) -> Vec<u32> {
        let mut chosen = self.by_words(read, admits);
        if let Some(vector) = &read.vector {
            let near = self.vectors.nearest(vector, BY_MEANING, |number| admits.admits(&self.places[number]));
            chosen.extend(near.into_iter().map(|(number, _)| number as u32));
        }
        let mut all = chosen.clone();
        for number in chosen {
            if self.places[number as usize].group != NONE {
                let (before, after) = self.neighbours(number, NEIGHBOURS);
                let beside = before.iter().chain(after).map(|(_, member)| *member);
                all.extend(beside.filter(|member| admits.admits(&self.places[*member as usize])));
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    fn by_words(&self, read: &Read, admits: &Admits<'_>) -> Vec<u32> {
        let mut scores = vec![0.0f32; self.places.len()];
        for wanted in &read.wanted {
            let Some(term) = wanted.term else { continue };
            for packed in &self.lists[term as usize].list {
                let number = (packed >> 8) as usize;
                let count = (packed & 0xFF) as f32 / 4.0;
                scores[number] += wanted.rarity * saturate(count, self.places[number].length, read.average_length);
            }
        }
        let mut found: Vec<(f32, u32)> = scores
            .iter()
            .enumerate()
            .filter(|(number, score)| **score > 0.0 && admits.admits(&self.places[*number]))
            .map(|(number, score)| (*score, number as u32))
            .collect();
        if found.len() > BY_WORDS {
            found.select_nth_unstable_by(BY_WORDS - 1, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            found.truncate(BY_WORDS);
        }
        found.into_iter().map(|(_, number)| number).collect()
    }
}

/// What a count of a term is worth in a text of a length: BM25's part without the rarity, 0 to below `K1 + 1`.
pub(super) fn saturate(count: f32, length: f32, average: f32) -> f32 {
    count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / average))
}
