//! The signals of a conversation turn that [`super::fitted`] weights.

/// One signal. Its range is stated with each variant; every signal is scaled so that it is comparable between
/// questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Signal {
    /// BM25 of the question's words in the turn: 0 to 1.
    Words,
    /// BM25 over the turn and two turns on each side.
    Window5,
    /// BM25 of the question's words in the previous turn.
    Before,
    /// The share of the question's distinct terms that occur in the turn; four terms suffice for the full value.
    Overlap,
    /// The share of the question's neighbouring term pairs that are neighbours in the turn.
    Pairs,
    /// Semantic similarity, all question words weighted equally: -1 to 1.
    Meaning,
    /// Semantic similarity with one turn on each side.
    MeaningWindow,
    /// Semantic similarity, question words weighted by rarity.
    MeaningWeighted,
    /// The share of question words that occur in the turn, exactly or as words of similar meaning: 0 to 1.
    Near,
    /// Similarity of the nearest words, corrected for what a text of this length reaches by chance.
    MaxSim,
    /// The share of question words, or words of similar meaning, that occur anywhere in the session.
    Topic,
    /// The question asks when, and the turn says when.
    When,
    /// The question asks for a preference, and the turn states one.
    Preference,
    /// The turn is about a day that the question names.
    Day,
    /// The turn is recent.
    Recency,
    /// The turn was said by the person whom the question is about.
    SaidBy,
    /// [`Signal::SaidBy`], and the turn is in the first person.
    SaidByFirst,
    /// The turn was said by somebody else and addresses "you".
    ToldSecond,
    /// The next turn was said by the person whom the question is about.
    NextSaidBy,
    /// The question asks for a name, a number, a reason or a person, and the turn contains one: 0 to 1.
    Shape,
    /// The question asks for a kind of thing (a sport, a city), and the turn has a member of it.
    Kind,
    /// Mean relevance of the session's three most relevant turns.
    Session,
}

/// Number of signals.
pub const SIGNALS: usize = Signal::Session as usize + 1;

/// The signals of one turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Signals(pub [f32; SIGNALS]);

impl Default for Signals {
    fn default() -> Self {
        Self([0.0; SIGNALS])
    }
}

impl std::ops::Index<Signal> for Signals {
    type Output = f32;

    fn index(&self, signal: Signal) -> &f32 {
        &self.0[signal as usize]
    }
}

impl std::ops::IndexMut<Signal> for Signals {
    fn index_mut(&mut self, signal: Signal) -> &mut f32 {
        &mut self.0[signal as usize]
    }
}
