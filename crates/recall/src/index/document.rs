//! Documents, questions and hits.

use super::persons::Role;
use serde::{Deserialize, Serialize};

/// What a document represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A memory.
    #[default]
    Memory,
    /// One message of a conversation.
    Turn,
    /// A passage of an imported resource.
    Resource,
    /// A skill.
    Skill,
}

/// The category of a memory.
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
    /// All categories.
    pub const ALL: [Self; 5] = [Self::Profile, Self::Preferences, Self::Entities, Self::Events, Self::Cases];

    /// The name used in paths and responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Preferences => "preferences",
            Self::Entities => "entities",
            Self::Events => "events",
            Self::Cases => "cases",
        }
    }

    /// The category of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.name() == name)
    }
}

/// The level of full content. Level 0 is a directory's abstract, level 1 its overview.
pub const LEAF: u8 = 2;

/// A document to index. Create it with [`Document::new`] and set the known fields.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    /// Its id, for example a URI. Adding a document with the same id replaces this one.
    pub id: String,
    /// What the document represents.
    pub kind: Kind,
    /// The category, for a memory.
    pub category: Option<Category>,
    /// The owner: an opaque name that filters compare as a whole.
    pub owner: String,
    /// The location: a path that filters compare by leading path segments, usually the URI of its directory.
    pub scope: String,
    /// Its title or name, weighted higher than the text.
    pub title: String,
    /// Its text.
    pub text: String,
    /// Additional text with a lower weight: captions, tags.
    pub also: String,
    /// Name of the speaker.
    pub speaker: Option<String>,
    /// The speaker's role, in a conversation with an agent.
    pub role: Option<Role>,
    /// When it was said or when it happened, in milliseconds since 1970.
    pub time_ms: Option<i64>,
    /// The conversation or file that contains it. Its neighbours in this group help to find it.
    pub group: Option<String>,
    /// Its position in the group.
    pub position: u64,
    /// Its level: 2 for content, 1 for an overview, 0 for an abstract.
    pub level: u8,
}

impl Document {
    /// A memory of level [`LEAF`] with this id and text; all other fields are empty.
    pub fn new(id: impl Into<String>, text: impl Into<String>) -> Self {
        Self { id: id.into(), text: text.into(), level: LEAF, ..Self::default() }
    }
}

/// Restricts which documents a search may return. Every field that is set must match.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Filter {
    /// Only documents of these owners; empty: all owners.
    pub owners: Vec<String>,
    /// Only documents inside one of these scopes, or with one of these ids; empty: everywhere.
    pub scopes: Vec<String>,
    /// Only these kinds; empty: all.
    pub kinds: Vec<Kind>,
    /// Only these categories; empty: all documents, including those without a category.
    pub categories: Vec<Category>,
    /// Only these levels; empty: all.
    pub levels: Vec<u8>,
    /// Only documents from this time on. A document without a time never matches a time filter.
    pub since_ms: Option<i64>,
    /// Only documents up to this time.
    pub until_ms: Option<i64>,
    /// Only documents of this group.
    pub group: Option<String>,
}

/// The weight of each signal in the ranking. The first five are the `rankingWeights` of the runtime configuration, with
/// the same names and defaults; the others belong to this index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RankingWeights {
    /// Factor of the relevance score.
    pub base_score: f32,
    /// Bonus for full content over abstracts and overviews.
    pub leaf: f32,
    /// Bonus for an event, or a text that says when something happened, when the question is about time.
    pub event: f32,
    /// Bonus for a preference when the question is about preferences.
    pub preference: f32,
    /// Maximum bonus for question words that occur in the text.
    pub lexical_overlap_max: f32,
    /// Bonus for a text said by a person whom the question names.
    pub speaker: f32,
    /// Bonus for a text about a day that the question names.
    pub day: f32,
    /// Bonus for recent documents; it halves every [`crate::index::RECENCY_HALF_LIFE_DAYS`].
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

/// A search request.
#[derive(Debug, Clone, PartialEq)]
pub struct Question<'a> {
    /// The question text.
    pub text: &'a str,
    /// The current time: relative dates are resolved against it, and recency is measured from it.
    pub now_ms: Option<i64>,
    /// Which documents may be returned.
    pub filter: Filter,
    /// Maximum number of hits.
    pub limit: usize,
    /// Hits with a lower relevance score are left out.
    pub least: f32,
    /// The ranking weights.
    pub weights: RankingWeights,
}

impl<'a> Question<'a> {
    /// A question with a limit and default settings.
    pub fn new(text: &'a str, limit: usize) -> Self {
        Self { text, now_ms: None, filter: Filter::default(), limit, least: 0.0, weights: RankingWeights::default() }
    }
}

/// The components of a hit's rank.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RankParts {
    /// BM25 score of the question's words in the text itself, 0 to 1.
    pub words: f32,
    /// BM25 score over a window of five turns, 0 to 1.
    pub window: f32,
    /// Semantic similarity, -1 to 1.
    pub meaning: f32,
    /// The share of question words that occur in the text, exactly or as words of similar meaning, 0 to 1.
    pub coverage: f32,
    /// Bonus for full content.
    pub leaf: f32,
    /// Bonus because the question is about time and the document says when.
    pub event: f32,
    /// Bonus because both the question and the document are about preferences.
    pub preference: f32,
    /// Bonus for shared words.
    pub lexical_overlap: f32,
    /// Bonus or penalty for the speaker: whether the text is by the person whom the question is about (named, or asking
    /// in the first person), and whether it is about that person or addressed to somebody else.
    pub speaker: f32,
    /// Bonus because the document is about a day that the question names.
    pub day: f32,
    /// Bonus for recency.
    pub recency: f32,
    /// Bonus because the question asks for a name, a number, a reason or a person, and this turn contains one.
    pub shape: f32,
    /// Bonus because the question asks for a kind of thing, such as a sport or a city, and this turn names a member of
    /// it.
    pub kind: f32,
    /// Contribution of a turn's words, meaning, neighbours and session by the fitted weights; 0 for other documents.
    pub turn: f32,
}

impl RankParts {
    /// The values rounded to four digits, for display.
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

    /// The sum of all bonuses.
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

/// A search result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hit {
    /// The document's id.
    pub id: String,
    /// The relevance of the document by itself, 0 to 1: below about 0.15 it is chance, from 0.85 on it is nearly a
    /// literal match. Scores are comparable between questions, and thresholds refer to this value.
    pub score: f32,
    /// The value by which hits are ordered: the weighted score plus the bonuses.
    pub rank: f32,
    /// What the document represents.
    pub kind: Kind,
    /// The category, for a memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// The level of the document.
    pub level: u8,
    /// The time of the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<i64>,
    /// The components of the rank.
    pub parts: RankParts,
}
