//! Selects candidates for a question and ranks them.
//!
//! Candidates are the best documents by words and the best by meaning, plus their neighbours in a conversation: an
//! answer often shares nothing with the question but stands next to a turn that does. Only candidates are scored in
//! full.

use super::{
    Hit, Kind, Question, RankParts, RecallIndex, admit::ResolvedFilter, rank::Candidates, read::ParsedQuestion,
    signals::Signals,
};

/// Number of candidates by words.
const BY_WORDS: usize = 320;
/// Number of candidates by meaning.
const BY_MEANING: usize = 128;
/// Number of neighbours on each side that become candidates too.
const NEIGHBOURS: usize = 2;
/// BM25's term saturation parameter.
const K1: f32 = 1.2;
/// BM25's length normalisation parameter.
const B: f32 = 0.5;

impl RecallIndex {
    /// The best hits, best first.
    pub fn search(&self, question: &Question<'_>) -> Vec<Hit> {
        if self.is_empty() || question.limit == 0 {
            return Vec::new();
        }
        let admits = ResolvedFilter::new(self, &question.filter);
        let read = self.read(question, &admits);
        let candidates = self.candidates(&read, &admits);
        let seen = Candidates::new(self, &read, candidates);
        let mut hits: Vec<(f32, f32, u32, RankParts)> =
            seen.scored(question).filter(|(score, ..)| *score >= question.least).collect();
        hits.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.2.cmp(&b.2)));
        hits.truncate(question.limit);
        hits.into_iter().map(|(score, rank, number, parts)| self.hit(number, score, rank, parts)).collect()
    }

    /// The candidate turns of a question with their signals, on which the weights are fitted.
    pub fn signals(&self, question: &Question<'_>) -> Vec<(&str, Signals)> {
        let admits = ResolvedFilter::new(self, &question.filter);
        let read = self.read(question, &admits);
        let seen = Candidates::new(self, &read, self.candidates(&read, &admits));
        seen.turns(question.now_ms).map(|(number, signals)| (&*self.places[number as usize].id, signals)).collect()
    }

    fn hit(&self, number: u32, score: f32, rank: f32, parts: RankParts) -> Hit {
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

    /// Document numbers of the candidates, in order.
    fn candidates(&self, read: &ParsedQuestion, admits: &ResolvedFilter<'_>) -> Vec<u32> {
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

    fn by_words(&self, read: &ParsedQuestion, admits: &ResolvedFilter<'_>) -> Vec<u32> {
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

/// BM25's weight of a term count without the inverse document frequency; 1 for a single occurrence in a text of average
/// length.
pub(super) fn saturate(count: f32, length: f32, average: f32) -> f32 {
    count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / average))
}
