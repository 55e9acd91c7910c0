//! What speaks for a turn of a conversation, as numbers: the signs that [`super::fitted`] weighs.

/// One sign. Which numbers it has is said beside it; all are made so that they mean the same for every question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Sign {
    /// Words of the question in the turn, as BM25 counts: 0 to 1.
    Words,
    /// The same with two turns on each side.
    Window5,
    /// Words of the question in the turn before.
    Before,
    /// The share of the question's different terms that stand in the turn; four are enough for all of it.
    Overlap,
    /// The share of the question's neighbouring terms that are neighbours in the turn.
    Pairs,
    /// Likeness of meaning, every word of the question alike: -1 to 1.
    Meaning,
    /// The same, with one turn on each side.
    MeaningWindow,
    /// Likeness of meaning, rare words of the question more.
    MeaningWeighted,
    /// Words of the question, or words near them, in the turn: 0 to 1.
    Near,
    /// How near the nearest words are, beyond what a text of its length has by chance.
    MaxSim,
    /// The same of the turns on each side.
    MaxSimBeside,
    /// The turn before asks for what the question asks.
    Answers,
    /// Words of the question, or words near them, anywhere in the session.
    Topic,
    /// The question asks when, and the turn tells.
    When,
    /// The question asks for what somebody likes, and the turn says so.
    Preference,
    /// The turn is about a day the question names.
    Day,
    /// The turn is recent.
    Recency,
    /// It is said by whom the question is about.
    SaidBy,
    /// The same, and in the first person.
    SaidByFirst,
    /// It is said by somebody else, to "you".
    ToldSecond,
    /// The next turn is said by whom the question is about.
    NextSaidBy,
    /// The question asks for a name, a number, a reason or a person, and the turn has one: 0 to 1.
    Shape,
    /// The question asks for a kind of things (a sport, a city), and the turn has a member of it.
    Kind,
}

/// How many signs there are.
pub const SIGNS: usize = Sign::Kind as usize + 1;

/// The signs of one turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Signs(pub [f32; SIGNS]);

impl Default for Signs {
    fn default() -> Self {
        Self([0.0; SIGNS])
    }
}

impl std::ops::Index<Sign> for Signs {
    type Output = f32;

    fn index(&self, sign: Sign) -> &f32 {
        &self.0[sign as usize]
    }
}

impl std::ops::IndexMut<Sign> for Signs {
    fn index_mut(&mut self, sign: Sign) -> &mut f32 {
        &mut self.0[sign as usize]
    }
}
