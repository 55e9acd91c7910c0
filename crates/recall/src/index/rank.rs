//! Weighing candidates: how relevant each is by itself, and what else speaks for it.

use super::{
    Category, LEAF, Parts, Place, Question, RecallIndex,
    search::{Read, saturate},
};
use crate::text::temporal::{self, DaySpan};
use std::collections::HashMap;
use toolyard_embed::Quantised;

/// After so many days half of what recency adds is left.
pub const RECENCY_HALF_LIFE_DAYS: f32 = 30.0;
/// Words nearer in meaning than this stand for each other, the more the nearer.
const NEAR_WORD: f32 = 0.45;
/// A day a question names fades over so many days on both sides.
const DAY_FADES: f32 = 14.0;

/// How the signs of relevance are mixed. Fitted on conversations, checked on others than they were fitted on.
pub(super) struct Mix {
    pub(super) words: f32,
    pub(super) window3: f32,
    pub(super) window5: f32,
    pub(super) meaning: f32,
    pub(super) meaning_window: f32,
    pub(super) coverage: f32,
    pub(super) coverage_window: f32,
    pub(super) asks: f32,
    pub(super) answers: f32,
}

pub(super) const MIX: Mix = Mix {
    words: 0.19,
    window3: 0.09,
    window5: 0.06,
    meaning: 0.13,
    meaning_window: 0.07,
    coverage: 0.33,
    coverage_window: 0.13,
    asks: -0.04,
    answers: 0.06,
};

/// Signs of one candidate. All but `meaning` are 0 to 1.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Signs {
    pub(super) words: f32,
    pub(super) window3: f32,
    pub(super) window5: f32,
    pub(super) meaning: f32,
    pub(super) meaning_window: f32,
    pub(super) coverage: f32,
    pub(super) coverage_window: f32,
    /// It asks more than it says.
    pub(super) asks: f32,
    /// The one before it asks, and has words of the question.
    pub(super) answers: f32,
}

/// What is known of a candidate before its neighbours are looked at.
#[derive(Clone)]
struct Own {
    /// How often each wanted term stands in it.
    counts: Vec<f32>,
    /// How near the nearest of its words is to each wanted term.
    near: Vec<f32>,
    meaning: f32,
    words: f32,
}

/// Candidates with what they share with a question.
pub(super) struct Seen<'a> {
    index: &'a RecallIndex,
    read: &'a Read,
    candidates: Vec<u32>,
    /// Of candidates and their neighbours.
    own: HashMap<u32, Own>,
    rarity: f32,
}

impl<'a> Seen<'a> {
    pub(super) fn new(index: &'a RecallIndex, read: &'a Read, candidates: Vec<u32>) -> Self {
        let mut seen = Self {
            index,
            read,
            own: HashMap::with_capacity(candidates.len() * 2),
            rarity: read.wanted.iter().map(|wanted| wanted.rarity).sum::<f32>().max(f32::EPSILON),
            candidates,
        };
        let mut likeness = Likeness { index, read, known: HashMap::new() };
        for at in 0..seen.candidates.len() {
            let number = seen.candidates[at];
            seen.look(number, &mut likeness);
            let (before, after) = index.neighbours(number, 2);
            for (_, member) in before.iter().chain(after) {
                seen.look(*member, &mut likeness);
            }
        }
        seen
    }

    fn look(&mut self, number: u32, likeness: &mut Likeness<'_>) {
        if self.own.contains_key(&number) {
            return;
        }
        let place = &self.index.places[number as usize];
        let wanted = &self.read.wanted;
        let mut own = Own { counts: vec![0.0; wanted.len()], near: vec![0.0; wanted.len()], meaning: 0.0, words: 0.0 };
        for entry in &place.terms {
            for ((wanted, count), near) in wanted.iter().zip(&mut own.counts).zip(&mut own.near) {
                if wanted.term == Some(entry.term) {
                    *count = f32::from(entry.quarters) / 4.0;
                    *near = 1.0;
                }
            }
            for (near, likeness) in own.near.iter_mut().zip(likeness.of(entry.term)) {
                *near = near.max(*likeness);
            }
        }
        own.words = self.bm25(&own.counts, place.length);
        if let (Some(question), Some(vector)) = (&self.read.vector, self.index.vectors.get(number as usize)) {
            own.meaning = question.dot(&vector);
        }
        self.own.insert(number, own);
    }

    /// Of 1: every wanted term once in a text of average length.
    fn bm25(&self, counts: &[f32], length: f32) -> f32 {
        let sum: f32 = self
            .read
            .wanted
            .iter()
            .zip(counts)
            .filter(|(_, count)| **count > 0.0)
            .map(|(wanted, count)| wanted.rarity * saturate(*count, length, self.read.average_length))
            .sum();
        (sum / self.rarity).min(1.0)
    }

    fn covered(&self, near: &[f32]) -> f32 {
        self.read.wanted.iter().zip(near).map(|(wanted, near)| wanted.rarity * near).sum::<f32>() / self.rarity
    }

    pub(super) fn signs(&self, number: u32) -> Signs {
        let Some(own) = self.own.get(&number) else { return Signs::default() };
        let place = &self.index.places[number as usize];
        let (before, after) = self.index.neighbours(number, 2);
        let mut signs = Signs {
            words: own.words,
            window3: own.words,
            window5: own.words,
            meaning: own.meaning,
            meaning_window: own.meaning,
            coverage: self.covered(&own.near),
            asks: f32::from(u8::from(place.marks.asks)),
            ..Signs::default()
        };
        signs.coverage_window = signs.coverage;
        if before.is_empty() && after.is_empty() {
            return signs;
        }
        let nearest = [before.last(), after.first()];
        let (counts, near, length, meaning) = self.joined(own, place, nearest.into_iter().flatten());
        signs.window3 = self.bm25(&counts, length / 3.0);
        signs.coverage_window = self.covered(&near);
        signs.meaning_window = meaning;
        let (counts, _, length, _) = self.joined(own, place, before.iter().chain(after));
        signs.window5 = self.bm25(&counts, length / 5.0);
        if let Some((_, previous)) = before.last()
            && let Some(theirs) = self.own.get(previous)
            && self.index.places[*previous as usize].marks.asks
        {
            signs.answers = self.covered(&theirs.near);
        }
        signs
    }

    /// A candidate and some of its neighbours as one text.
    fn joined<'b>(
        &self,
        own: &Own,
        place: &Place,
        others: impl Iterator<Item = &'b (u64, u32)>,
    ) -> (Vec<f32>, Vec<f32>, f32, f32) {
        let (mut counts, mut near, mut length) = (own.counts.clone(), own.near.clone(), place.length);
        let (mut meaning, mut texts) = (own.meaning, 1.0f32);
        for (_, member) in others {
            let Some(theirs) = self.own.get(member) else { continue };
            for (sum, count) in counts.iter_mut().zip(&theirs.counts) {
                *sum += count;
            }
            for (most, theirs) in near.iter_mut().zip(&theirs.near) {
                *most = most.max(*theirs);
            }
            length += self.index.places[*member as usize].length;
            meaning += theirs.meaning;
            texts += 1.0;
        }
        (counts, near, length, meaning / texts)
    }

    /// Score, rank and parts of every candidate.
    pub(super) fn weigh(&self, question: &Question<'_>) -> impl Iterator<Item = (f32, f32, u32, Parts)> {
        let weights = question.weights.clone();
        let now = question.now_ms.map(temporal::day_of_ms);
        self.candidates.iter().map(move |number| {
            let place = &self.index.places[*number as usize];
            let signs = self.signs(*number);
            let score = relevance(&signs);
            let parts = Parts {
                words: signs.words,
                window: signs.window3.max(signs.window5),
                meaning: signs.meaning,
                coverage: signs.coverage,
                leaf: if place.level == LEAF { weights.leaf } else { 0.0 },
                event: weights.event * self.event(place),
                preference: weights.preference * self.preference(place),
                lexical_overlap: weights.lexical_overlap_max * self.overlap(*number),
                speaker: if self.read.speakers.contains(&place.speaker) { weights.speaker } else { 0.0 },
                day: weights.day * self.day(place),
                recency: weights.recency * recency(place.time_ms, now),
            };
            let rank = score * weights.base_score
                + parts.leaf
                + parts.event
                + parts.preference
                + parts.lexical_overlap
                + parts.speaker
                + parts.day
                + parts.recency;
            (score, rank, *number, parts)
        })
    }

    fn event(&self, place: &Place) -> f32 {
        match (&self.read.time, place.category, place.marks.tells_when) {
            (time, ..) if !time.temporal => 0.0,
            (_, Some(Category::Events), _) => 1.0,
            (time, _, true) if time.asks_when => 1.0,
            _ => 0.0,
        }
    }

    fn preference(&self, place: &Place) -> f32 {
        if !self.read.preference {
            return 0.0;
        }
        if place.category == Some(Category::Preferences) || place.marks.prefers { 1.0 } else { 0.0 }
    }

    /// The share of the question's terms that stand in it word for word; four are enough for all of it.
    fn overlap(&self, number: u32) -> f32 {
        let Some(own) = self.own.get(&number) else { return 0.0 };
        let considered = self.read.wanted.len().clamp(1, 4) as f32;
        let standing = own.counts.iter().filter(|count| **count > 0.0).count() as f32;
        (standing / considered).min(1.0)
    }

    fn day(&self, place: &Place) -> f32 {
        let near =
            |asked: &DaySpan| place.days.iter().map(|day| asked.distance(day) as f32).fold(f32::INFINITY, f32::min);
        self.read.time.spans.iter().map(|asked| (1.0 - near(asked) / DAY_FADES).max(0.0)).fold(0.0, f32::max)
    }
}

fn relevance(signs: &Signs) -> f32 {
    let sum = MIX.words * signs.words
        + MIX.window3 * signs.window3
        + MIX.window5 * signs.window5
        + MIX.meaning * signs.meaning
        + MIX.meaning_window * signs.meaning_window
        + MIX.coverage * signs.coverage
        + MIX.coverage_window * signs.coverage_window
        + MIX.asks * signs.asks
        + MIX.answers * signs.answers;
    sum.clamp(0.0, 1.0)
}

fn recency(time_ms: Option<i64>, now: Option<i32>) -> f32 {
    let (Some(time), Some(now)) = (time_ms, now) else { return 0.0 };
    let age = now.saturating_sub(temporal::day_of_ms(time)).max(0) as f32;
    (-age / RECENCY_HALF_LIFE_DAYS).exp2()
}

/// Whether a question is about what somebody likes or is used to.
pub(super) fn asks_preference(question: &str) -> bool {
    let mut found = false;
    crate::text::terms::words(question, |word| {
        found |= matches!(
            word,
            "prefer"
                | "prefers"
                | "preferred"
                | "preference"
                | "preferences"
                | "favorite"
                | "favourite"
                | "favorites"
                | "favourites"
                | "like"
                | "likes"
                | "love"
                | "loves"
                | "enjoy"
                | "enjoys"
                | "hate"
                | "hates"
                | "dislike"
                | "dislikes"
                | "hobby"
                | "hobbies"
                | "interest"
                | "interests"
                | "usually"
                | "habit"
                | "habits"
        );
    });
    found || ["偏好", "喜欢", "喜歡", "习惯", "讨厌", "好き"].iter().any(|word| question.contains(word))
}

/// How near the terms met so far are to each wanted term.
struct Likeness<'a> {
    index: &'a RecallIndex,
    read: &'a Read,
    known: HashMap<u32, Box<[f32]>>,
}

impl Likeness<'_> {
    fn of(&mut self, term: u32) -> &[f32] {
        let (index, read) = (self.index, self.read);
        self.known.entry(term).or_insert_with(|| {
            let vector = index.term_vectors.get(term as usize);
            let like = |wanted: &Option<Quantised>| match (wanted, &vector) {
                (Some(wanted), Some(vector)) => ((wanted.dot(vector) - NEAR_WORD) / (1.0 - NEAR_WORD)).max(0.0),
                _ => 0.0,
            };
            read.wanted.iter().map(|wanted| like(&wanted.vector)).collect()
        })
    }
}
