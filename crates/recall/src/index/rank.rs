//! Ranks candidates: relevance scores and bonuses.

use super::{
    Category, DocumentFields, Kind, LEAF, Question, RankParts, RecallIndex,
    document::RankingWeights,
    fitted,
    names::NONE,
    read::ParsedQuestion,
    search::saturate,
    signals::{SIGNALS, Signal, Signals},
};
use std::collections::HashMap;
use toolyard_text::dates::{self, DaySpan};

/// The recency bonus halves after this many days.
pub const RECENCY_HALF_LIFE_DAYS: f32 = 30.0;
/// Minimum similarity at which one word counts as a match for another. The match grows with the similarity.
const NEAR_WORD: f32 = 0.45;
/// Mean similarity of two unrelated words.
const CHANCE_MEAN: f32 = 0.07;
/// Standard deviation of the similarity of unrelated words.
const CHANCE_SPREAD: f32 = 0.11;
/// The bonus for a named day falls to zero over this many days on both sides.
const DAY_FADES: f32 = 14.0;
/// Number of turns on each side that are scored together with a turn.
const WORD_REACH: usize = 2;
/// Number of turns whose relevance makes up the relevance of their session. A single turn matches by chance more often.
const SESSION_BEST: usize = 3;

/// Weights of the relevance score. They add up to 1.
mod mix {
    /// BM25 in the window of five turns.
    pub(super) const WORDS: f32 = 0.37;
    /// Semantic similarity, all question words weighted equally.
    pub(super) const MEANING: f32 = 0.03;
    /// Semantic similarity in the window of three turns.
    pub(super) const MEANING_WINDOW: f32 = 0.235;
    /// Question words, or words of similar meaning, anywhere in the conversation.
    pub(super) const TOPIC: f32 = 0.215;
    /// Semantic similarity, question words weighted by rarity.
    pub(super) const MEANING_WEIGHTED: f32 = 0.115;
    /// Pairs of words that are neighbours in both the question and the text.
    pub(super) const PAIRS: f32 = 0.035;
}

/// What is computed for a candidate before its neighbours are considered.
struct CandidateFeatures {
    /// Count of each question term in the document.
    counts: Vec<f32>,
    /// Highest similarity of any of its words to each question term.
    like: Vec<f32>,
    meaning: f32,
    meaning_weighted: f32,
    words: f32,
    /// The document has a member of a kind that the question asks for.
    member: bool,
}

/// Candidates and their features with respect to a question.
pub(super) struct Candidates<'a> {
    index: &'a RecallIndex,
    read: &'a ParsedQuestion,
    candidates: Vec<u32>,
    /// Features of the candidates and of the neighbours of candidate turns.
    own: HashMap<u32, CandidateFeatures>,
    /// By conversation: the highest similarity of any of its words to each question term.
    sessions: HashMap<u32, Vec<f32>>,
    rarity: f32,
}

impl<'a> Candidates<'a> {
    pub(super) fn new(index: &'a RecallIndex, read: &'a ParsedQuestion, candidates: Vec<u32>) -> Self {
        let mut seen = Self {
            index,
            read,
            own: HashMap::with_capacity(candidates.len() * 2),
            sessions: HashMap::new(),
            rarity: read.wanted.iter().map(|wanted| wanted.rarity).sum::<f32>().max(f32::EPSILON),
            candidates,
        };
        let mut likeness = SimilarityCache::new(index, read);
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

    fn look(&mut self, number: u32, likeness: &mut SimilarityCache<'_>) {
        if self.own.contains_key(&number) {
            return;
        }
        let (key, place) = (&self.index.keys[number as usize], &self.index.places[number as usize]);
        let wanted = &self.read.wanted;
        let mut own = CandidateFeatures {
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

    /// BM25, normalised so that a text of average length with every question term once scores 1.
    fn bm25(&self, counts: &[f32], length: f32) -> f32 {
        let standing = self.read.wanted.iter().zip(counts).filter(|(_, count)| **count > 0.0);
        let worth = standing.map(|(wanted, count)| wanted.rarity * saturate(*count, length, self.read.average_length));
        (worth.sum::<f32>() / self.rarity).min(1.0)
    }

    /// The share of question terms that a text contains, exactly or as words of similar meaning.
    fn covered(&self, like: &[f32]) -> f32 {
        let near = |like: f32| ((like - NEAR_WORD) / (1.0 - NEAR_WORD)).max(0.0);
        let sum: f32 = self.read.wanted.iter().zip(like).map(|(wanted, like)| wanted.rarity * near(*like)).sum();
        (sum / self.rarity).min(1.0)
    }

    /// Similarity of the nearest words to the question terms, corrected for chance. The maximum of `n` similarities
    /// grows with the square root of the logarithm of `n`, so a long text has similar words to everything.
    fn max_sim(&self, number: u32) -> f32 {
        let Some(own) = self.own.get(&number) else { return 0.0 };
        let terms = self.index.places[number as usize].terms.len().max(1) as f32;
        let chance = CHANCE_MEAN + CHANCE_SPREAD * (2.0 * terms.ln()).sqrt();
        let beyond = |like: f32| (like - chance) / (1.0 - chance);
        let sum: f32 = self.read.wanted.iter().zip(&own.like).map(|(w, like)| w.rarity * beyond(*like)).sum();
        (sum / self.rarity).max(-1.0)
    }

    /// Signals of a document that is not a conversation turn. Its own words and meaning take the place of a window.
    fn alone(&self, number: u32) -> Signals {
        let mut signals = Signals::default();
        let Some(own) = self.own.get(&number) else { return signals };
        let (key, place) = (&self.index.keys[number as usize], &self.index.places[number as usize]);
        let near = self.covered(&own.like);
        signals[Signal::Words] = own.words;
        signals[Signal::Window5] = own.words;
        signals[Signal::Meaning] = own.meaning;
        signals[Signal::MeaningWindow] = own.meaning;
        signals[Signal::MeaningWeighted] = own.meaning_weighted;
        signals[Signal::Near] = near;
        signals[Signal::Topic] = near;
        signals[Signal::Pairs] = self.pairs(place);
        signals[Signal::Overlap] = self.overlap(own);
        signals[Signal::Day] = self.day(place);
        signals[Signal::When] = self.event(key.category, place);
        signals[Signal::Preference] = self.preference(key.category, place);
        signals[Signal::SaidBy] = flag(self.read.about.is_said_by(place.speaker, place.role));
        signals
    }

    /// Signals of a conversation turn.
    fn turn(&self, number: u32) -> Signals {
        let mut signals = self.alone(number);
        let Some(own) = self.own.get(&number) else { return signals };
        let (key, place) = (&self.index.keys[number as usize], &self.index.places[number as usize]);
        let (before, after) = self.index.neighbours(number, 1);
        let beside = |member: Option<&(u64, u32)>| member.map(|(_, member)| *member);
        let (previous, next) = (beside(before.last()), beside(after.first()));
        let (left, right) = (previous.and_then(|n| self.own.get(&n)), next.and_then(|n| self.own.get(&n)));
        signals[Signal::Window5] = self.window(number);
        if let Some(topic) = self.sessions.get(&key.group) {
            signals[Signal::Topic] = self.covered(topic);
        }
        let meanings = [Some(own), left, right].into_iter().flatten().map(|own| own.meaning);
        signals[Signal::MeaningWindow] = meanings.clone().sum::<f32>() / meanings.count() as f32;
        signals[Signal::Before] = left.map_or(0.0, |own| own.words);
        signals[Signal::Shape] = place.marks.shape.answers(self.read.asks);
        signals[Signal::Kind] = flag(own.member);
        signals[Signal::MaxSim] = self.max_sim(number);
        self.speaker_signals(&mut signals, place, next);
        signals
    }

    /// What people say about themselves is the best evidence about them. What others say to "you" is mostly about
    /// somebody else.
    fn speaker_signals(&self, signals: &mut Signals, place: &DocumentFields, next: Option<u32>) {
        let about = &self.read.about;
        if !about.is_known() {
            return;
        }
        let is_said_by = signals[Signal::SaidBy] > 0.0;
        signals[Signal::SaidByFirst] = flag(is_said_by && place.marks.persons.first);
        signals[Signal::ToldSecond] = flag(!is_said_by && place.marks.persons.second);
        let next = next.map(|next| &self.index.places[next as usize]);
        signals[Signal::NextSaidBy] = flag(next.is_some_and(|next| about.is_said_by(next.speaker, next.role)));
    }

    /// BM25 of a turn with its neighbours, treated as one text of the average length of one turn.
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

    /// The share of the question's neighbouring term pairs that are neighbours here too.
    fn pairs(&self, place: &DocumentFields) -> f32 {
        let pairs = &self.read.pairs;
        let found = pairs.iter().filter(|pair| place.pairs.binary_search(pair).is_ok()).count();
        if pairs.is_empty() { 0.0 } else { found as f32 / pairs.len() as f32 }
    }

    /// The signals of every candidate turn, for fitting.
    pub(super) fn turns(&self, now_ms: Option<i64>) -> impl Iterator<Item = (u32, Signals)> {
        self.signals(now_ms).into_iter().filter(|(number, _)| self.is_turn(*number))
    }

    /// The signals of every candidate, in order.
    fn signals(&self, now_ms: Option<i64>) -> Vec<(u32, Signals)> {
        let now = now_ms.map(dates::day_of_ms);
        let mut all: Vec<(u32, Signals)> = Vec::with_capacity(self.candidates.len());
        let mut sessions: HashMap<u32, [f32; SESSION_BEST]> = HashMap::new();
        for number in self.candidates.iter().copied() {
            let key = &self.index.keys[number as usize];
            let is_turn = self.is_turn(number);
            let mut signals = if is_turn { self.turn(number) } else { self.alone(number) };
            signals[Signal::Recency] = recency(key.time_ms, now);
            if is_turn {
                keep_best(sessions.entry(key.group).or_default(), relevance(&signals));
            }
            all.push((number, signals));
        }
        for (number, signals) in &mut all {
            let best = sessions.get(&self.index.keys[*number as usize].group).filter(|_| self.is_turn(*number));
            signals[Signal::Session] = best.map_or(0.0, |best| best.iter().sum::<f32>() / SESSION_BEST as f32);
        }
        all
    }

    fn is_turn(&self, number: u32) -> bool {
        let key = &self.index.keys[number as usize];
        key.kind == Kind::Turn && key.group != NONE
    }

    /// Score, rank and components of every candidate.
    pub(super) fn scored(&self, question: &Question<'_>) -> impl Iterator<Item = (f32, f32, u32, RankParts)> {
        let weights = question.weights.clone();
        self.signals(question.now_ms).into_iter().map(move |(number, signals)| {
            let score = relevance(&signals);
            let mut parts = RankParts::of(&signals, &weights);
            parts.leaf = if self.index.keys[number as usize].level == LEAF { weights.leaf } else { 0.0 };
            let rank = if self.is_turn(number) {
                parts.take_fitted(&signals, &weights);
                parts.added()
            } else {
                score * weights.base_score + parts.added()
            };
            (score, rank, number, parts)
        })
    }

    fn event(&self, category: Option<Category>, place: &DocumentFields) -> f32 {
        let time = &self.read.time;
        let is_event = category == Some(Category::Events);
        flag((time.temporal && is_event) || (time.asks_when && place.marks.tells_when))
    }

    fn preference(&self, category: Option<Category>, place: &DocumentFields) -> f32 {
        let prefers = category == Some(Category::Preferences) || place.marks.prefers;
        flag(self.read.preference && prefers)
    }

    /// The share of question terms that occur exactly; four terms suffice for the full value.
    fn overlap(&self, own: &CandidateFeatures) -> f32 {
        let considered = self.read.wanted.len().clamp(1, 4) as f32;
        let standing = own.counts.iter().filter(|count| **count > 0.0).count() as f32;
        (standing / considered).min(1.0)
    }

    fn day(&self, place: &DocumentFields) -> f32 {
        let near =
            |asked: &DaySpan| place.days.iter().map(|day| asked.distance(day) as f32).fold(f32::INFINITY, f32::min);
        self.read.time.spans.iter().map(|asked| (1.0 - near(asked) / DAY_FADES).max(0.0)).fold(0.0, f32::max)
    }
}

fn relevance(signals: &Signals) -> f32 {
    let sum = mix::WORDS * signals[Signal::Window5]
        + mix::MEANING * signals[Signal::Meaning]
        + mix::MEANING_WINDOW * signals[Signal::MeaningWindow]
        + mix::TOPIC * signals[Signal::Topic]
        + mix::MEANING_WEIGHTED * signals[Signal::MeaningWeighted]
        + mix::PAIRS * signals[Signal::Pairs];
    sum.clamp(0.0, 1.0)
}

impl RankParts {
    /// The bonuses by the configured weights.
    fn of(signals: &Signals, weights: &RankingWeights) -> Self {
        Self {
            words: signals[Signal::Words],
            window: signals[Signal::Window5],
            meaning: signals[Signal::MeaningWeighted],
            coverage: signals[Signal::Near],
            event: weights.event * signals[Signal::When],
            preference: weights.preference * signals[Signal::Preference],
            lexical_overlap: weights.lexical_overlap_max * signals[Signal::Overlap],
            speaker: weights.speaker * signals[Signal::SaidBy],
            day: weights.day * signals[Signal::Day],
            recency: weights.recency * signals[Signal::Recency],
            ..Self::default()
        }
    }

    /// For a turn, the fitted weights replace the configured ones. A configured weight that differs from its default
    /// scales its group of signals.
    fn take_fitted(&mut self, signals: &Signals, weights: &RankingWeights) {
        let usual = RankingWeights::default();
        let mut groups = [0.0f32; SIGNALS];
        for (sum, (signal, weight)) in groups.iter_mut().zip(signals.0.iter().zip(fitted::BY_SIGN)) {
            *sum = signal * weight;
        }
        let of = |signals: &[Signal]| signals.iter().map(|signal| groups[*signal as usize]).sum::<f32>();
        let share = |own: f32, usual: f32| if usual > 0.0 { own / usual } else { 1.0 };
        let speaker = of(&[Signal::SaidBy, Signal::SaidByFirst, Signal::ToldSecond, Signal::NextSaidBy]);
        self.event = share(weights.event, usual.event) * of(&[Signal::When]);
        self.preference = share(weights.preference, usual.preference) * of(&[Signal::Preference]);
        self.lexical_overlap = share(weights.lexical_overlap_max, usual.lexical_overlap_max) * of(&[Signal::Overlap]);
        self.speaker = share(weights.speaker, usual.speaker) * speaker;
        self.day = share(weights.day, usual.day) * of(&[Signal::Day]);
        // Recency only decides between turns that are otherwise equal.
        self.recency *= fitted::UNIT;
        self.shape = weights.base_score * of(&[Signal::Shape]);
        self.kind = weights.base_score * of(&[Signal::Kind]);
        let named = of(&[Signal::When, Signal::Preference, Signal::Overlap, Signal::Day, Signal::Shape, Signal::Kind]);
        let all: f32 = groups.iter().sum();
        self.turn = weights.base_score * (all - named - speaker);
    }
}

/// Keeps the largest values, in descending order.
fn keep_best(best: &mut [f32; SESSION_BEST], value: f32) {
    let at = best.partition_point(|kept| *kept >= value);
    if let Some(later) = best.get_mut(at..).filter(|later| !later.is_empty()) {
        later.rotate_right(1);
        later[0] = value;
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

/// Cache of the similarity of each term to the question terms. A candidate can have hundreds of terms and there are
/// hundreds of candidates, so a row is addressed by term number without hashing.
struct SimilarityCache<'a> {
    index: &'a RecallIndex,
    read: &'a ParsedQuestion,
    /// By term: the row number, from 1, with the flag [`Self::WANTED`] for a question term and [`Self::MEMBER`] for a
    /// member of a kind that the question asks for; 0 when the term is not cached yet.
    places: Vec<u32>,
    rows: Vec<f32>,
    met: u32,
}

impl<'a> SimilarityCache<'a> {
    const WANTED: u32 = 1 << 31;
    const MEMBER: u32 = 1 << 30;

    fn new(index: &'a RecallIndex, read: &'a ParsedQuestion) -> Self {
        Self { index, read, places: Vec::new(), rows: Vec::new(), met: 0 }
    }

    /// The similarity of a term to each question term, whether it is a question term, and whether it is a member of a
    /// kind that the question asks for.
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
