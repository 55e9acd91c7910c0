//! Weighing candidates: how relevant each is by itself, and what else speaks for it.

use super::{
    Category, Kind, LEAF, Parts, Place, Question, RecallIndex,
    names::NONE,
    search::{Read, saturate},
};
use crate::text::temporal::{self, DaySpan};
use std::collections::HashMap;

/// After so many days half of what recency adds is left.
pub const RECENCY_HALF_LIFE_DAYS: f32 = 30.0;
/// Words nearer in meaning than this stand for each other, the more the nearer.
const NEAR_WORD: f32 = 0.45;
/// A day a question names fades over so many days on both sides.
const DAY_FADES: f32 = 14.0;
/// Texts longer than this many terms are not preferred for their length any further.
const LONG_TERMS: f32 = 60.0;
/// Turns on each side that count as one text with a turn for its words.
const WORD_REACH: usize = 2;

/// How the signs of relevance are mixed. Fitted on labelled conversations, each time without the one it was then
/// measured on; the ones that carried nothing were left out. For a document that is no turn of a conversation the first
/// six make up the score, and add to 1.
mod mix {
    /// Words, in the window of five.
    pub(super) const WORDS: f32 = 0.37;
    /// Meaning, every word of the question alike.
    pub(super) const MEANING: f32 = 0.03;
    /// The same in the window of three.
    pub(super) const MEANING_WINDOW: f32 = 0.235;
    /// Words of the question, or near ones, anywhere in the conversation.
    pub(super) const TOPIC: f32 = 0.215;
    /// Meaning, rare words of the question more.
    pub(super) const MEANING_WEIGHTED: f32 = 0.115;
    /// Words that are neighbours in the question and here.
    pub(super) const PAIRS: f32 = 0.035;
    /// The turn before asks for what the question asks.
    pub(super) const ANSWERS: f32 = 0.125;
    /// Words of the question in the turn before,
    pub(super) const BEFORE: f32 = 0.07;
    /// and in the turn after, where they answer this one.
    pub(super) const AFTER: f32 = -0.075;
    /// It asks more than it says.
    pub(super) const ASKS: f32 = -0.04;
    /// It says much.
    pub(super) const LENGTH: f32 = 0.27;
}

/// Signs of one candidate. All but the three of meaning are 0 to 1.
#[derive(Debug, Clone, Copy, Default)]
struct Signs {
    words: f32,
    window: f32,
    meaning: f32,
    meaning_window: f32,
    meaning_weighted: f32,
    coverage: f32,
    topic: f32,
    pairs: f32,
    answers: f32,
    before: f32,
    after: f32,
}

impl Signs {
    fn relevance(&self) -> f32 {
        let sum = mix::WORDS * self.window
            + mix::MEANING * self.meaning
            + mix::MEANING_WINDOW * self.meaning_window
            + mix::TOPIC * self.topic
            + mix::MEANING_WEIGHTED * self.meaning_weighted
            + mix::PAIRS * self.pairs
            + mix::ANSWERS * self.answers
            + mix::BEFORE * self.before
            + mix::AFTER * self.after;
        sum.clamp(0.0, 1.0)
    }
}

/// What is known of a candidate before its neighbours are looked at.
struct Own {
    /// How often each wanted term stands in it.
    counts: Vec<f32>,
    /// How near the nearest of its words is to each wanted term.
    near: Vec<f32>,
    meaning: f32,
    meaning_weighted: f32,
    words: f32,
}

/// Candidates with what they share with a question.
pub(super) struct Seen<'a> {
    index: &'a RecallIndex,
    read: &'a Read,
    candidates: Vec<u32>,
    /// Of candidates, and of the neighbours of those that are turns.
    own: HashMap<u32, Own>,
    /// How near any word of a conversation is to each wanted term.
    topics: HashMap<u32, Vec<f32>>,
    rarity: f32,
}

impl<'a> Seen<'a> {
    pub(super) fn new(index: &'a RecallIndex, read: &'a Read, candidates: Vec<u32>) -> Self {
        let mut seen = Self {
            index,
            read,
            own: HashMap::with_capacity(candidates.len() * 2),
            topics: HashMap::new(),
            rarity: read.wanted.iter().map(|wanted| wanted.rarity).sum::<f32>().max(f32::EPSILON),
            candidates,
        };
        let mut likeness = Likeness::new(index, read);
        for at in 0..seen.candidates.len() {
            let number = seen.candidates[at];
            seen.look(number, &mut likeness);
            if index.keys[number as usize].kind == Kind::Turn {
                let (before, after) = index.neighbours(number, WORD_REACH);
                for (_, member) in before.iter().chain(after) {
                    seen.look(*member, &mut likeness);
                }
            }
        }
        seen
    }

    fn look(&mut self, number: u32, likeness: &mut Likeness<'_>) {
        if self.own.contains_key(&number) {
            return;
        }
        let (key, place) = (&self.index.keys[number as usize], &self.index.places[number as usize]);
        let wanted = &self.read.wanted;
        let mut own = Own {
            counts: vec![0.0; wanted.len()],
            near: vec![0.0; wanted.len()],
            meaning: 0.0,
            meaning_weighted: 0.0,
            words: 0.0,
        };
        for entry in &place.terms {
            let (like, is_wanted) = likeness.of(entry.term);
            for (near, like) in own.near.iter_mut().zip(like) {
                *near = if *like > *near { *like } else { *near };
            }
            if is_wanted {
                for (wanted, count) in wanted.iter().zip(&mut own.counts) {
                    if wanted.term == Some(entry.term) {
                        *count = f32::from(entry.quarters) / 4.0;
                    }
                }
            }
        }
        own.words = self.bm25(&own.counts, key.length);
        if let Some(vector) = self.index.vectors.get(number as usize) {
            own.meaning = self.read.vector.as_ref().map_or(0.0, |question| question.dot(&vector));
            own.meaning_weighted = self.read.weighted.as_ref().map_or(0.0, |question| question.dot(&vector));
        }
        if key.kind == Kind::Turn && key.group != NONE {
            let topic = self.topics.entry(key.group).or_insert_with(|| vec![0.0; wanted.len()]);
            for (most, near) in topic.iter_mut().zip(&own.near) {
                *most = most.max(*near);
            }
        }
        self.own.insert(number, own);
    }

    /// Of 1: every wanted term once in a text of average length.
    fn bm25(&self, counts: &[f32], length: f32) -> f32 {
        let standing = self.read.wanted.iter().zip(counts).filter(|(_, count)| **count > 0.0);
        let worth = standing.map(|(wanted, count)| wanted.rarity * saturate(*count, length, self.read.average_length));
        (worth.sum::<f32>() / self.rarity).min(1.0)
    }

    fn covered(&self, near: &[f32]) -> f32 {
        let sum: f32 = self.read.wanted.iter().zip(near).map(|(wanted, near)| wanted.rarity * near).sum();
        (sum / self.rarity).min(1.0)
    }

    fn signs(&self, number: u32) -> Signs {
        let Some(own) = self.own.get(&number) else { return Signs::default() };
        let (key, place) = (&self.index.keys[number as usize], &self.index.places[number as usize]);
        let coverage = self.covered(&own.near);
        let mut signs = Signs {
            words: own.words,
            window: own.words,
            meaning: own.meaning,
            meaning_window: own.meaning,
            meaning_weighted: own.meaning_weighted,
            coverage,
            topic: coverage,
            pairs: self.pairs(place),
            ..Signs::default()
        };
        if key.kind != Kind::Turn || key.group == NONE {
            return signs;
        }
        let (before, after) = self.index.neighbours(number, WORD_REACH);
        let beside = |member: Option<&(u64, u32)>| member.and_then(|(_, member)| self.own.get(member));
        let (previous, next) = (beside(before.last()), beside(after.first()));
        signs.topic = self.topics.get(&key.group).map_or(coverage, |near| self.covered(near));
        signs.window = self.window(own, key.length, before.iter().chain(after));
        let meanings = [Some(own), previous, next].into_iter().flatten().map(|own| own.meaning);
        signs.meaning_window = meanings.clone().sum::<f32>() / meanings.count() as f32;
        signs.before = previous.map_or(0.0, |own| own.words);
        signs.after = next.map_or(0.0, |own| own.words);
        if let (Some((_, member)), Some(previous)) = (before.last(), previous)
            && self.index.places[*member as usize].marks.asks
        {
            signs.answers = self.covered(&previous.near);
        }
        signs
    }

    /// Words of a turn and its neighbours, as one text of the average length of one.
    fn window<'b>(&self, own: &Own, length: f32, others: impl Iterator<Item = &'b (u64, u32)>) -> f32 {
        let (mut counts, mut length, mut texts) = (own.counts.clone(), length, 1.0f32);
        for (_, member) in others {
            let Some(theirs) = self.own.get(member) else { continue };
            for (sum, count) in counts.iter_mut().zip(&theirs.counts) {
                *sum += count;
            }
            length += self.index.keys[*member as usize].length;
            texts += 1.0;
        }
        self.bm25(&counts, length / texts)
    }

    /// The share of the question's neighbouring terms that are neighbours here too.
    fn pairs(&self, place: &Place) -> f32 {
        let pairs = &self.read.pairs;
        let found = pairs.iter().filter(|pair| place.pairs.binary_search(pair).is_ok()).count();
        if pairs.is_empty() { 0.0 } else { found as f32 / pairs.len() as f32 }
    }

    /// Score, rank and parts of every candidate.
    pub(super) fn weigh(&self, question: &Question<'_>) -> impl Iterator<Item = (f32, f32, u32, Parts)> {
        let weights = question.weights.clone();
        let now = question.now_ms.map(temporal::day_of_ms);
        self.candidates.iter().map(move |number| {
            let (key, place) = (&self.index.keys[*number as usize], &self.index.places[*number as usize]);
            let signs = self.signs(*number);
            let score = signs.relevance();
            let parts = Parts {
                words: signs.words,
                window: signs.window,
                meaning: signs.meaning_weighted,
                coverage: signs.coverage,
                leaf: if key.level == LEAF { weights.leaf } else { 0.0 },
                event: weights.event * self.event(key.category, place),
                preference: weights.preference * self.preference(key.category, place),
                lexical_overlap: weights.lexical_overlap_max * self.overlap(*number),
                speaker: if self.read.speakers.contains(&place.speaker) { weights.speaker } else { 0.0 },
                day: weights.day * self.day(place),
                recency: weights.recency * recency(key.time_ms, now),
                substance: if key.kind == Kind::Turn { substance(key.length, place.marks.asks) } else { 0.0 },
            };
            (score, score * weights.base_score + parts.added(), *number, parts)
        })
    }

    fn event(&self, category: Option<Category>, place: &Place) -> f32 {
        let time = &self.read.time;
        let is_event = category == Some(Category::Events);
        if (time.temporal && is_event) || (time.asks_when && place.marks.tells_when) { 1.0 } else { 0.0 }
    }

    fn preference(&self, category: Option<Category>, place: &Place) -> f32 {
        let prefers = category == Some(Category::Preferences) || place.marks.prefers;
        if self.read.preference && prefers { 1.0 } else { 0.0 }
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

/// What a turn is worth by its looks: one that says much before a greeting, one that says before one that asks.
fn substance(length: f32, asks: bool) -> f32 {
    let said = mix::LENGTH * (length.min(LONG_TERMS) + 1.0).ln() / 4.0;
    said + if asks { mix::ASKS } else { 0.0 }
}

fn recency(time_ms: Option<i64>, now: Option<i32>) -> f32 {
    let (Some(time), Some(now)) = (time_ms, now) else { return 0.0 };
    let age = now.saturating_sub(temporal::day_of_ms(time)).max(0) as f32;
    (-age / RECENCY_HALF_LIFE_DAYS).exp2()
}

/// Whether a question is about what somebody likes or is used to.
pub(super) fn asks_preference(question: &str) -> bool {
    const WORDS: [&str; 24] = [
        "dislike",
        "dislikes",
        "enjoy",
        "enjoys",
        "favorite",
        "favorites",
        "favourite",
        "favourites",
        "habit",
        "habits",
        "hate",
        "hates",
        "hobbies",
        "hobby",
        "interest",
        "interests",
        "like",
        "likes",
        "love",
        "loves",
        "prefer",
        "preference",
        "preferred",
        "prefers",
    ];
    let mut found = false;
    crate::text::terms::words(question, |word| found |= WORDS.contains(&word));
    found || ["偏好", "喜欢", "喜歡", "习惯", "讨厌", "好き"].iter().any(|word| question.contains(word))
}

/// How near the terms met so far are to each wanted term. A long text has hundreds of terms and there are hundreds of
/// texts: a row is found by the term's number, without hashing.
struct Likeness<'a> {
    index: &'a RecallIndex,
    read: &'a Read,
    /// By term: the number of its row, from 1, with [`Self::WANTED`] where the term itself is wanted; 0 before it is met.
    places: Vec<u32>,
    rows: Vec<f32>,
    met: u32,
}

impl<'a> Likeness<'a> {
    const WANTED: u32 = 1 << 31;

    fn new(index: &'a RecallIndex, read: &'a Read) -> Self {
        Self { index, read, places: Vec::new(), rows: Vec::new(), met: 0 }
    }

    /// How near it is to each, and whether it is one of them.
    fn of(&mut self, term: u32) -> (&[f32], bool) {
        let at = term as usize;
        if at >= self.places.len() {
            self.places.resize(at + 1, 0);
        }
        if self.places[at] == 0 {
            self.places[at] = self.meet(term);
        }
        let place = self.places[at];
        let (row, width) = ((place & !Self::WANTED) as usize, self.read.wanted.len());
        (&self.rows[(row - 1) * width..row * width], place & Self::WANTED != 0)
    }

    fn meet(&mut self, term: u32) -> u32 {
        let vector = self.index.term_vectors.get(term as usize);
        let mut is_wanted = false;
        for wanted in &self.read.wanted {
            let like = match (&wanted.vector, &vector) {
                _ if wanted.term == Some(term) => {
                    is_wanted = true;
                    1.0
                }
                (Some(wanted), Some(vector)) => ((wanted.dot(vector) - NEAR_WORD) / (1.0 - NEAR_WORD)).max(0.0),
                _ => 0.0,
            };
            self.rows.push(like);
        }
        self.met += 1;
        if is_wanted { self.met | Self::WANTED } else { self.met }
    }
}
