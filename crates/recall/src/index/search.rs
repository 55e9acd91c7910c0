//! From a question to candidates, and from candidates to answers.
//!
//! Candidates are the best by words and the best by meaning, with their neighbours in a conversation: an answer often
//! shares nothing with the question but stands beside what does. Only candidates are weighed in full.

use super::{
    Hit, Kind, Parts, Question, RecallIndex,
    admit::Admits,
    rank::{self, Seen},
};
use crate::text::{
    temporal::{self, TimeIntent},
    terms,
};
use toolyard_embed::{DIMENSIONS, Quantised, StaticEmbedder};

/// Candidates by words.
const BY_WORDS: usize = 320;
/// Candidates by meaning.
const BY_MEANING: usize = 128;
/// Neighbours on each side that become candidates too.
const NEIGHBOURS: usize = 2;
/// Terms of a question at most.
const MAX_QUESTION_TERMS: usize = 48;
/// How soon more of the same word stops counting.
const K1: f32 = 1.2;
/// How much long texts are marked down.
const B: f32 = 0.5;

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
    /// What it means, every word alike,
    pub(super) vector: Option<Quantised>,
    /// and rare words more.
    pub(super) weighted: Option<Quantised>,
    /// Terms that stand side by side in it.
    pub(super) pairs: Vec<u32>,
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
        let mut hits: Vec<(f32, f32, u32, Parts)> =
            seen.weigh(question).filter(|(score, ..)| *score >= question.least).collect();
        hits.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.2.cmp(&b.2)));
        hits.truncate(question.limit);
        hits.into_iter().map(|(score, rank, number, parts)| self.hit(number, score, rank, parts)).collect()
    }

    fn hit(&self, number: u32, score: f32, rank: f32, parts: Parts) -> Hit {
        let key = &self.keys[number as usize];
        Hit {
            id: self.places[number as usize].id.to_string(),
            score,
            rank,
            kind: key.kind,
            category: key.category,
            level: key.level,
            time_ms: key.time_ms,
            parts,
        }
    }

    /// Takes a question apart.
    fn read(&self, question: &Question<'_>) -> Read {
        let embedder = StaticEmbedder::shared();
        let mut wanted: Vec<(String, Wanted)> = Vec::new();
        let mut order: Vec<u32> = Vec::new();
        let mut rest = String::new();
        let living = self.len() as f32;
        terms::terms(question.text, |term, word| {
            let number = self.terms.find(term);
            order.extend(number);
            // Who is asked about is a sign of its own; among the words it would find whoever talks to them.
            if self.speaker_words.contains_key(word) {
                return;
            }
            rest.push_str(word);
            rest.push(' ');
            if wanted.len() >= MAX_QUESTION_TERMS || wanted.iter().any(|(known, _)| known == term) {
                return;
            }
            let having = number.map_or(0.0, |number| self.lists[number as usize].living as f32);
            let rarity = ((living - having + 0.5) / (having + 0.5)).ln_1p();
            let vector = embedder.embed(word, None).map(|vector| Quantised::new(&vector));
            wanted.push((term.to_owned(), Wanted { term: number, rarity, vector }));
        });
        let wanted: Vec<Wanted> = wanted.into_iter().map(|(_, wanted)| wanted).collect();
        let plain = embedder.embed(if rest.is_empty() { question.text } else { &rest }, None);
        let vector = plain.map(|vector| Quantised::new(&vector));
        Read {
            weighted: weighted(&wanted).or_else(|| vector.clone()),
            vector,
            wanted,
            pairs: order.windows(2).map(|two| super::pair(two[0], two[1])).collect(),
            time: temporal::intent(question.text, question.now_ms.map(temporal::date_of_ms)),
            preference: rank::asks_preference(question.text),
            speakers: self.named_speakers(question.text),
            average_length: (self.total_length / f64::from(self.len().max(1) as u32)).max(1.0) as f32,
        }
    }

    fn named_speakers(&self, question: &str) -> Vec<u32> {
        let mut speakers: Vec<u32> = Vec::new();
        terms::words(question, |word| {
            let word = word.strip_suffix("'s").unwrap_or(word);
            for number in self.speaker_words.get(word).into_iter().flatten() {
                if !speakers.contains(number) {
                    speakers.push(*number);
                }
            }
        });
        speakers
    }

    /// Numbers of candidates, in order.
    fn candidates(&self, read: &Read, admits: &Admits<'_>) -> Vec<u32> {
        let may = |number: u32| admits.admits(number, &self.keys[number as usize]);
        let mut all = self.by_words(read, admits);
        if let Some(vector) = &read.weighted {
            let near = self.vectors.nearest(vector, BY_MEANING, |number| may(number as u32));
            all.extend(near.into_iter().map(|(number, _)| number as u32));
        }
        for at in 0..all.len() {
            if self.keys[all[at] as usize].kind == Kind::Turn {
                let (before, after) = self.neighbours(all[at], NEIGHBOURS);
                all.extend(before.iter().chain(after).map(|(_, member)| *member).filter(|member| may(*member)));
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    fn by_words(&self, read: &Read, admits: &Admits<'_>) -> Vec<u32> {
        let mut scores = vec![0.0f32; self.keys.len()];
        for wanted in &read.wanted {
            let Some(term) = wanted.term else { continue };
            for packed in &self.lists[term as usize].list {
                let number = (packed >> 8) as usize;
                let count = (packed & 0xFF) as f32 / 4.0;
                scores[number] += wanted.rarity * saturate(count, self.keys[number].length, read.average_length);
            }
        }
        let scored = scores.iter().enumerate().filter(|(_, score)| **score > 0.0);
        let mut found: Vec<(f32, u32)> = scored
            .filter(|(number, _)| admits.admits(*number as u32, &self.keys[*number]))
            .map(|(number, score)| (*score, number as u32))
            .collect();
        if found.len() > BY_WORDS {
            found.select_nth_unstable_by(BY_WORDS - 1, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            found.truncate(BY_WORDS);
        }
        found.into_iter().map(|(_, number)| number).collect()
    }
}

/// What a count of a term is worth in a text of a length: BM25's part without the rarity; 1 for one in a text of
/// average length.
pub(super) fn saturate(count: f32, length: f32, average: f32) -> f32 {
    count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / average))
}

/// The vector of a question in which rare words count more.
fn weighted(wanted: &[Wanted]) -> Option<Quantised> {
    let mut sum = [0.0f32; DIMENSIONS];
    for (rarity, vector) in wanted.iter().filter_map(|one| Some((one.rarity, one.vector.as_ref()?))) {
        for (total, value) in sum.iter_mut().zip(vector.values()) {
            *total += rarity * vector.scale() * f32::from(*value);
        }
    }
    let norm = sum.iter().map(|x| x * x).sum::<f32>().sqrt();
    norm.is_normal().then(|| Quantised::new(&sum.map(|x| x / norm)))
}
