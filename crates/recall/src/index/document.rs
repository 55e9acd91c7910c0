//! What is indexed, and what may be asked about it.

use super::persons::Role;
use serde::{Deserialize, Serialize};

/// What sort of thing a document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Something remembered.
    #[default]
    Memory,
    /// One message of a conversation.
    Turn,
    /// A passage of something imported.
    Resource,
    /// A skill.
    Skill,
}

/// What sort of memory one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Who somebody is.
    Profile,
    /// What somebody likes, wants or is used to.
    Preferences,
    /// A person, animal, place, project or thing.
    Entities,
    /// What happened or will happen.
    Events,
    /// A problem and how it was solved.
    Cases,
}

impl Category {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Profile, Self::Preferences, Self::Entities, Self::Events, Self::Cases];

    /// As it is spelled in paths and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Preferences => "preferences",
            Self::Entities => "entities",
            Self::Events => "events",
            Self::Cases => "cases",
        }
    }

    /// By its name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.name() == name)
    }
}

/// The level of a leaf: whole content. 0 is a directory's abstract, 1 its overview.
pub const LEAF: u8 = 2;

/// Something that can be recalled. Make it with [`Document::new`] and set what is known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    /// Its id, for example a URI. Adding another document of the same id replaces it.
    pub id: String,
    /// What it is.
    pub kind: Kind,
    /// What sort of memory.
    pub category: Option<Category>,
    /// Whose it is: an opaque name that filters compare whole.
    pub owner: String,
    /// Where it lies: a path that filters compare by whole leading parts, usually the URI of its directory.
    pub scope: String,
    /// Its title or name; counts more than the text.
    pub title: String,
    /// Its text.
    pub text: String,
    /// Further text that counts less: captions, tags.
    pub also: String,
    /// Who said it, by name.
    pub speaker: Option<String>,
    /// Which part they have in the conversation, where it is one with an agent.
    pub role: Option<Role>,
    /// When it was said or happened, in milliseconds since 1970.
    pub time_ms: Option<i64>,
    /// The conversation or file it is a part of; its neighbours there help to find it.
    pub group: Option<String>,
    /// Its place in the group.
    pub position: u64,
    /// Its level: 2 for content, 1 for an overview, 0 for an abstract.
    pub level: u8,
}

impl Document {
    /// A memory with a text, content by level, and nothing else known.
    pub fn new(id: impl Into<String>, text: impl Into<String>) -> Self {
        Self { id: id.into(), text: text.into(), level: LEAF, ..Self::default() }
    }
}

/// Which documents may be answered. Everything that is set must hold.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Filter {
    /// Only of these owners; empty: of all.
    pub owners: Vec<String>,
    /// Only under one of these scopes, or with one of these ids; empty: anywhere.
    pub scopes: Vec<String>,
    /// Only these kinds; empty: all.
    pub kinds: Vec<Kind>,
    /// Only these categories; empty: all, and documents without one.
    pub categories: Vec<Category>,
    /// Only of these levels; empty: all.
    pub levels: Vec<u8>,
    /// Not before this time. A document without a time is not answered where a time is asked for.
    pub since_ms: Option<i64>,
    /// Not after this time.
    pub until_ms: Option<i64>,
    /// Only of this group.
    pub group: Option<String>,
}

/// How much each sign counts in the order of answers. The first five are the runtime configuration's `rankingWeights`,
/// with its names and defaults; the others are this index's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RankingWeights {
    /// The relevance itself.
    pub base_score: f32,
    /// Content before abstracts and overviews.
    pub leaf: f32,
    /// An event, or a text that tells when, for a question about time.
    pub event: f32,
    /// A preference for a question about preferences.
    pub preference: f32,
    /// Words of the question that stand in the text, at most.
    pub lexical_overlap_max: f32,
    /// Said by somebody the question names.
    pub speaker: f32,
    /// About a day the question names.
    pub day: f32,
    /// Newer before older; half of it is left after [`crate::index::RECENCY_HALF_LIFE_DAYS`].
    pub recency: f32,
}

impl Default for RankingWeights {
    fn default() -> Self {
        Self {
            base_score: 1.0,
            leaf: 0.12,
            event: 0.10,
            preference: 0.08,
            lexical_overlap_max: 0.20,
            speaker: 0.09,
            day: 0.39,
            recency: 0.02,
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Question<'a> {
    /// In words.
    pub text: &'a str,
    /// What "last week" is relative to, and what recency is counted from.
    pub now_ms: Option<i64>,
    /// Which documents may be answered.
    pub filter: Filter,
    /// How many answers at most.
    pub limit: usize,
    /// Answers less relevant than this are left out.
    pub least: f32,
    /// How signs are weighed.
    pub weights: RankingWeights,
}

impl<'a> Question<'a> {
    /// With nothing but words and a limit.
    pub fn new(text: &'a str, limit: usize) -> Self {
        Self { text, now_ms: None, filter: Filter::default(), limit, least: 0.0, weights: RankingWeights::default() }
    }
}

/// What an answer's place is made of.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Parts {
    /// Words of the question in the text itself, as BM25 counts, 0 to 1.
    pub words: f32,
    /// The same with its neighbours, in a window of five.
    pub window: f32,
    /// Likeness of meaning, -1 to 1.
    pub meaning: f32,
    /// Words of the question that stand in the text or near in meaning, 0 to 1.
    pub coverage: f32,
    /// What was added because it is content.
    pub leaf: f32,
    /// What was added because the question is about time and this tells when.
    pub event: f32,
    /// What was added because the question is about preferences and so is this.
    pub preference: f32,
    /// What was added for words in common.
    pub lexical_overlap: f32,
    /// What was added or taken because of who said it: by whom the question is about (whom it names, or whoever asks in
    /// the first person), of themselves or to somebody.
    pub speaker: f32,
    /// What was added because it is about a day the question names.
    pub day: f32,
    /// What was added because it is recent.
    pub recency: f32,
    /// What was added because the question asks for a name, a number, a reason or a person, and this turn has one.
    pub shape: f32,
    /// What was added because the question asks for a kind of things, a sport or a city, and this turn names one of them.
    pub kind: f32,
    /// What a turn's words, meaning and neighbours add, by the fitted weights; 0 for what is no turn.
    pub turn: f32,
}

impl Parts {
    /// To four digits, as they are shown.
    pub fn rounded(self) -> Self {
        let round = |part: f32| (part * 1e4).round() / 1e4;
        Self {
            words: round(self.words),
            window: round(self.window),
            meaning: round(self.meaning),
            coverage: round(self.coverage),
            leaf: round(self.leaf),
            event: round(self.event),
            preference: round(self.preference),
            lexical_overlap: round(self.lexical_overlap),
            speaker: round(self.speaker),
            day: round(self.day),
            recency: round(self.recency),
            shape: round(self.shape),
            kind: round(self.kind),
            turn: round(self.turn),
        }
    }

    /// Everything that was added to the score.
    pub(super) fn added(&self) -> f32 {
        self.leaf
            + self.event
            + self.preference
            + self.lexical_overlap
            + self.speaker
            + self.day
            + self.recency
            + self.shape
            + self.kind
            + self.turn
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hit {
    /// The document's id.
    pub id: String,
    /// How relevant it is by itself, 0 to 1: below about 0.15 by chance, from 0.85 nearly word for word. Comparable
    /// between questions; thresholds mean this.
    pub score: f32,
    /// What answers are ordered by: the score, weighed, with what was added.
    pub rank: f32,
    /// What the document is.
    pub kind: Kind,
    /// What sort of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// Its level.
    pub level: u8,
    /// Its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<i64>,
    /// Why it stands where it stands.
    pub parts: Parts,
}
