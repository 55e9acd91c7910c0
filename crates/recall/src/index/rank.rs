//! Weighing candidates: how relevant each is by itself, and what else speaks for it.

use super::{
    Category, Kind, LEAF, Parts, Place, Question, RecallIndex,
    document::RankingWeights,
    fitted,
    names::NONE,
    read::Read,
    search::saturate,
    signs::{SIGNS, Sign, Signs},
};
use std::collections::HashMap;
use toolyard_text::dates::{self, DaySpan};

/// After so many days half of what recency adds is left.
pub const RECENCY_HALF_LIFE_DAYS: f32 = 30.0;
/// Words nearer in meaning than this stand for each other, the more the nearer.
const NEAR_WORD: f32 = 0.45;
/// How near two words of no relation are on average,
const CHANCE_MEAN: f32 = 0.07;
/// and how far such likenesses spread.
const CHANCE_SPREAD: f32 = 0.11;
/// A day a question names fades over so many days on both sides.
const DAY_FADES: f32 = 14.0;
/// Turns on each side that count as one text with a turn for its words.
const WORD_REACH: usize = 2;

/// How the score of a document is mixed, which says how relevant it is by itself. They add to 1.
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
}

/// What is known of a candidate before its neighbours are looked at.
struct Own {
    /// How often each wanted term stands in it.
    counts: Vec<f32>,
    /// The likeness of the nearest of its words to each wanted term.
    like: Vec<f32>,
    meaning: f32,
    meaning_weighted: f32,
    words: f32,
    /// It has a member of a kind that the question asks for.
    member: bool,
}

/// Candidates with what they share with a question.
pub(super) struct Seen<'a> {
    index: &'a RecallIndex,
    read: &'a Read,
    candidates: Vec<u32>,
    /// Of candidates, and of the neighbours of those that are turns.
    own: HashMap<u32, Own>,
    /// By conversation: how near any of its words is to each wanted term.
    sessions: HashMap<u32, Vec<f32>>,
    rarity: f32,
}

impl<'a> Seen<'a> {
    pub(super) fn new(index: &'a RecallIndex, read: &'a Read, candidates: Vec<u32>) -> Self {
        let mut seen = Self {
            index,
            read,
            own: HashMap::with_capacity(candidates.len() * 2),
            sessions: HashMap::new(),
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
            like: vec![0.0; wanted.len()],
            meaning: 0.0,
            meaning_weighted: 0.0,
            words: 0.0,
            member: false,
        };
        for entry in &place.terms {
            let (like, is_wanted, is_member) = likeness.of(entry.term);
            own.member |= is_member;
            for (most, like) in own.like.iter_mut().zip(like) {
                *most = if *like > *most { *like } else { *most };
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
            let topic = self.sessions.entry(key.group).or_insert_with(|| vec![0.0; wanted.len()]);
            for (most, like) in topic.iter_mut().zip(&own.like) {
                *most = most.max(*like);
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

    /// The share of the wanted terms that stand in a text, or that near words stand for.
    fn covered(&self, like: &[f32]) -> f32 {
        let near = |like: f32| ((like - NEAR_WORD) / (1.0 - NEAR_WORD)).max(0.0);
        let sum: f32 = self.read.wanted.iter().zip(like).map(|(wanted, like)| wanted.rarity * near(*like)).sum();
        (sum / self.rarity).min(1.0)
    }

    /// How near the nearest words are to the wanted terms, beyond what so many words are near by chance: the largest of
    /// `n` likenesses grows with the root of the logarithm of `n`, so a long text has near words to everything.
    fn max_sim(&self, number: u32) -> f32 {
        let Some(own) = self.own.get(&number) else { return 0.0 };
        let terms = self.index.places[number as usize].terms.len().max(1) as f32;
        let chance = CHANCE_MEAN + CHANCE_SPREAD * (2.0 * terms.ln()).sqrt();
        let beyond = |like: f32| (like - chance) / (1.0 - chance);
        let sum: f32 = self.read.wanted.iter().zip(&own.like).map(|(w, like)| w.rarity * beyond(*like)).sum();
        (sum / self.rarity).max(-1.0)
    }

    /// Signs of a document that is no turn of a conversation: its own words and meaning stand for those of a window.
    fn alone(&self, number: u32) -> Signs {
        let mut signs = Signs::default();
        let Some(own) = self.own.get(&number) else { return signs };
        let (key, place) = (&self.index.keys[number as usize], &self.index.places[number as usize]);
        let near = self.covered(&own.like);
        signs[Sign::Words] = own.words;
        signs[Sign::Window5] = own.words;
        signs[Sign::Meaning] = own.meaning;
        signs[Sign::MeaningWindow] = own.meaning;
        signs[Sign::MeaningWeighted] = own.meaning_weighted;
        signs[Sign::Near] = near;
        signs[Sign::Topic] = near;
        signs[Sign::Pairs] = self.pairs(place);
        signs[Sign::Overlap] = self.overlap(own);
        signs[Sign::Day] = self.day(place);
        signs[Sign::When] = self.event(key.category, place);
        signs[Sign::Preference] = self.preference(key.category, place);
        signs[Sign::SaidBy] = flag(self.read.about.is_said_by(place.speaker, place.role));
        signs
    }

    /// Signs of a turn.
    fn turn(&self, number: u32) -> Signs {
        let mut signs = self.alone(number);
        let Some(own) = self.own.get(&number) else { return signs };
        let (key, place) = (&self.index.keys[number as usize], &self.index.places[number as usize]);
        let (before, after) = self.index.neighbours(number, 1);
        let beside = |member: Option<&(u64, u32)>| member.map(|(_, member)| *member);
        let (previous, next) = (beside(before.last()), beside(after.first()));
        let (left, right) = (previous.and_then(|n| self.own.get(&n)), next.and_then(|n| self.own.get(&n)));
        signs[Sign::Window5] = self.window(number);
        if let Some(topic) = self.sessions.get(&key.group) {
            signs[Sign::Topic] = self.covered(topic);
        }
        let meanings = [Some(own), left, right].into_iter().flatten().map(|own| own.meaning);
        signs[Sign::MeaningWindow] = meanings.clone().sum::<f32>() / meanings.count() as f32;
        signs[Sign::Before] = left.map_or(0.0, |own| own.words);
        signs[Sign::Shape] = place.marks.shape.answers(self.read.asks);
        signs[Sign::Kind] = flag(own.member);
        signs[Sign::MaxSim] = self.max_sim(number);
        signs[Sign::MaxSimBeside] =
            [previous, next].into_iter().flatten().map(|n| self.max_sim(n)).fold(-1.0, f32::max);
        if let (Some(previous), Some(left)) = (previous, left)
            && self.index.places[previous as usize].marks.asks
        {
            signs[Sign::Answers] = self.covered(&left.like);
        }
        self.speaker_signs(&mut signs, place, next);
        signs
    }

    /// A person is known best from what they say of themselves; what others say to "you" is mostly about somebody else.
    fn speaker_signs(&self, signs: &mut Signs, place: &Place, next: Option<u32>) {
        let about = &self.read.about;
        if !about.is_known() {
            return;
        }
        let is_said_by = signs[Sign::SaidBy] > 0.0;
        signs[Sign::SaidByFirst] = flag(is_said_by && place.marks.persons.first);
        signs[Sign::ToldSecond] = flag(!is_said_by && place.marks.persons.second);
        let next = next.map(|next| &self.index.places[next as usize]);
        signs[Sign::NextSaidBy] = flag(next.is_some_and(|next| about.is_said_by(next.speaker, next.role)));
    }

    /// Words of a turn and its neighbours, as one text of the average length of one.
    fn window(&self, number: u32) -> f32 {
        let Some(own) = self.own.get(&number) else { return 0.0 };
        let (before, after) = self.index.neighbours(number, WORD_REACH);
        let (mut counts, mut length, mut texts) = (own.counts.clone(), self.index.keys[number as usize].length, 1.0f32);
        for (_, member) in before.iter().chain(after) {
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

    /// The signs of every candidate that is a turn of a conversation, for fitting.
    pub(super) fn turns(&self, now_ms: Option<i64>) -> impl Iterator<Item = (u32, Signs)> {
        let now = now_ms.map(dates::day_of_ms);
        self.candidates.iter().filter(|number| self.is_turn(**number)).map(move |number| {
            let mut signs = self.turn(*number);
            signs[Sign::Recency] = recency(self.index.keys[*number as usize].time_ms, now);
            (*number, signs)
        })
    }

    fn is_turn(&self, number: u32) -> bool {
        let key = &self.index.keys[number as usize];
        key.kind == Kind::Turn && key.group != NONE
    }

    /// Score, rank and parts of every candidate.
    pub(super) fn weigh(&self, question: &Question<'_>) -> impl Iterator<Item = (f32, f32, u32, Parts)> {
        let weights = question.weights.clone();
        let now = question.now_ms.map(dates::day_of_ms);
        self.candidates.iter().map(move |number| {
            let key = &self.index.keys[*number as usize];
            let is_turn = self.is_turn(*number);
            let mut signs = if is_turn { self.turn(*number) } else { self.alone(*number) };
            signs[Sign::Recency] = recency(key.time_ms, now);
            let score = relevance(&signs);
            let mut parts = Parts::of(&signs, &weights);
            parts.leaf = if key.level == LEAF { weights.leaf } else { 0.0 };
            let rank = if is_turn {
                parts.take_fitted(&signs, &weights);
                parts.added()
            } else {
                score * weights.base_score + parts.added()
            };
            (score, rank, *number, parts)
        })
    }

    fn event(&self, category: Option<Category>, place: &Place) -> f32 {
        let time = &self.read.time;
        let is_event = category == Some(Category::Events);
        flag((time.temporal && is_event) || (time.asks_when && place.marks.tells_when))
    }

    fn preference(&self, category: Option<Category>, place: &Place) -> f32 {
        let prefers = category == Some(Category::Preferences) || place.marks.prefers;
        flag(self.read.preference && prefers)
    }

    /// The share of the question's terms that stand in it word for word; four are enough for all of it.
    fn overlap(&self, own: &Own) -> f32 {
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
    let sum = mix::WORDS * signs[Sign::Window5]
        + mix::MEANING * signs[Sign::Meaning]
        + mix::MEANING_WINDOW * signs[Sign::MeaningWindow]
        + mix::TOPIC * signs[Sign::Topic]
        + mix::MEANING_WEIGHTED * signs[Sign::MeaningWeighted]
        + mix::PAIRS * signs[Sign::Pairs];
    sum.clamp(0.0, 1.0)
}

impl Parts {
    /// What the configured weights add.
    fn of(signs: &Signs, weights: &RankingWeights) -> Self {
        Self {
            words: signs[Sign::Words],
            window: signs[Sign::Window5],
            meaning: signs[Sign::MeaningWeighted],
            coverage: signs[Sign::Near],
            event: weights.event * signs[Sign::When],
            preference: weights.preference * signs[Sign::Preference],
            lexical_overlap: weights.lexical_overlap_max * signs[Sign::Overlap],
            speaker: weights.speaker * signs[Sign::SaidBy],
            day: weights.day * signs[Sign::Day],
            recency: weights.recency * signs[Sign::Recency],
            ..Self::default()
        }
    }

    /// What the fitted weights add for a turn, in the place of the configured ones. A configured weight that is not the
    /// usual one scales its group of signs.
    fn take_fitted(&mut self, signs: &Signs, weights: &RankingWeights) {
        let usual = RankingWeights::default();
        let mut groups = [0.0f32; SIGNS];
        for (sum, (sign, weight)) in groups.iter_mut().zip(signs.0.iter().zip(fitted::BY_SIGN)) {
            *sum = sign * weight;
        }
        let of = |signs: &[Sign]| signs.iter().map(|sign| groups[*sign as usize]).sum::<f32>();
        let share = |own: f32, usual: f32| if usual > 0.0 { own / usual } else { 1.0 };
        let speaker = of(&[Sign::SaidBy, Sign::SaidByFirst, Sign::ToldSecond, Sign::NextSaidBy]);
        self.event = share(weights.event, usual.event) * of(&[Sign::When]);
        self.preference = share(weights.preference, usual.preference) * of(&[Sign::Preference]);
        self.lexical_overlap = share(weights.lexical_overlap_max, usual.lexical_overlap_max) * of(&[Sign::Overlap]);
        self.speaker = share(weights.speaker, usual.speaker) * speaker;
        self.day = share(weights.day, usual.day) * of(&[Sign::Day]);
        self.shape = weights.base_score * of(&[Sign::Shape]);
        self.kind = weights.base_score * of(&[Sign::Kind]);
        let named = of(&[Sign::When, Sign::Preference, Sign::Overlap, Sign::Day, Sign::Shape, Sign::Kind]);
        let all: f32 = groups.iter().sum();
        self.turn = weights.base_score * (all - named - speaker);
    }
}

fn flag(holds: bool) -> f32 {
    if holds { 1.0 } else { 0.0 }
}

fn recency(time_ms: Option<i64>, now: Option<i32>) -> f32 {
    let (Some(time), Some(now)) = (time_ms, now) else { return 0.0 };
    let age = now.saturating_sub(dates::day_of_ms(time)).max(0) as f32;
    (-age / RECENCY_HALF_LIFE_DAYS).exp2()
}

/// How near the terms met so far are to each wanted term. A long text has hundreds of terms and there are hundreds of
/// texts: a row is found by the term's number, without hashing.
struct Likeness<'a> {
    index: &'a RecallIndex,
    read: &'a Read,
    /// By term: the number of its row, from 1, with [`Self::WANTED`] where the term itself is wanted and [`Self::MEMBER`]
    /// where it is a member of a kind that is; 0 before it is met.
    places: Vec<u32>,
    rows: Vec<f32>,
    met: u32,
}

impl<'a> Likeness<'a> {
    const WANTED: u32 = 1 << 31;
    const MEMBER: u32 = 1 << 30;

    fn new(index: &'a RecallIndex, read: &'a Read) -> Self {
        Self { index, read, places: Vec::new(), rows: Vec::new(), met: 0 }
    }

    /// How near it is to each, whether it is one of them, and whether it is a member of a kind that is asked for.
    fn of(&mut self, term: u32) -> (&[f32], bool, bool) {
        let at = term as usize;
        if at >= self.places.len() {
            self.places.resize(at + 1, 0);
        }
        if self.places[at] == 0 {
            self.places[at] = self.meet(term);
        }
        let place = self.places[at];
        let row = (place & !(Self::WANTED | Self::MEMBER)) as usize;
        let width = self.read.wanted.len();
        (&self.rows[(row - 1) * width..row * width], place & Self::WANTED != 0, place & Self::MEMBER != 0)
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
                (Some(wanted), Some(vector)) => wanted.dot(vector).max(0.0),
                _ => 0.0,
            };
            self.rows.push(like);
        }
        self.met += 1;
        let wanted = if is_wanted { Self::WANTED } else { 0 };
        let member = if self.read.members.contains(&term) { Self::MEMBER } else { 0 };
        self.met | wanted | member
    }
}
