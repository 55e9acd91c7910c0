//! Parses a question: its terms, vector, time and subject.

use super::{
    Question, RecallIndex,
    admit::ResolvedFilter,
    kinds::Kinds,
    names::NONE,
    persons::{GrammaticalPersons, Role, is_mistyped},
    shape::AnswerForms,
};
use toolyard_text::{
    dates::{self, TimeIntent},
    embedding::{DIMENSIONS, Quantised, StaticEmbedder},
    stopwords,
    terms::{self, MEMORIES, Side},
};

/// Maximum number of terms of a question.
const MAX_QUESTION_TERMS: usize = 48;

/// One term of a question.
pub(super) struct QueryTerm {
    /// The number of the term, if the index has it.
    pub(super) term: Option<u32>,
    /// Inverse document frequency, multiplied by the count in the question.
    pub(super) rarity: f32,
    /// The vector of the term, to match words of similar meaning.
    pub(super) vector: Option<Quantised>,
}

/// Whom a question is about.
#[derive(Debug, Default)]
pub(super) struct QuestionSubject {
    /// Speakers that the question names.
    pub(super) speakers: Vec<u32>,
    /// The role meant by "I" or "you", where the question names nobody.
    pub(super) role: Option<Role>,
}

/// A parsed question.
pub(super) struct ParsedQuestion {
    pub(super) wanted: Vec<QueryTerm>,
    /// Vector of the question, all words weighted equally.
    pub(super) vector: Option<Quantised>,
    /// Vector of the question, words weighted by rarity.
    pub(super) weighted: Option<Quantised>,
    /// Hashes of neighbouring terms.
    pub(super) pairs: Vec<u32>,
    pub(super) time: TimeIntent,
    pub(super) preference: bool,
    /// The form of answer that the question asks for.
    pub(super) asks: AnswerForms,
    /// Term numbers of members of the kinds that the question asks for.
    pub(super) members: Vec<u32>,
    pub(super) about: QuestionSubject,
    pub(super) average_length: f32,
}

impl RecallIndex {
    /// Parses a question.
    pub(super) fn read(&self, question: &Question<'_>, admits: &ResolvedFilter<'_>) -> ParsedQuestion {
        let embedder = StaticEmbedder::shared();
        let about = self.about(question.text, admits);
        let mut wanted: Vec<(String, QueryTerm)> = Vec::new();
        let mut order: Vec<u32> = Vec::new();
        let mut rest = String::new();
        let living = self.len() as f32;
        MEMORIES.terms(question.text, Side::Question, |term, word| {
            let number = self.terms.find(term);
            order.extend(number);
            // The person whom the question is about is a separate signal. As a search word the name would find whoever
            // talks to that person.
            if self.names_speaker(word, &about.speakers) {
                return;
            }
            rest.push_str(word);
            rest.push(' ');
            let having = number.map_or(0.0, |number| self.lists[number as usize].living as f32);
            let rarity = ((living - having + 0.5) / (having + 0.5)).ln_1p();
            if let Some((_, known)) = wanted.iter_mut().find(|(known, _)| known == term) {
                known.rarity += rarity;
                return;
            }
            if wanted.len() >= MAX_QUESTION_TERMS {
                return;
            }
            let vector = embedder.embed(word, None).map(|vector| Quantised::new(&vector));
            wanted.push((term.to_owned(), QueryTerm { term: number, rarity, vector }));
        });
        let wanted: Vec<QueryTerm> = wanted.into_iter().map(|(_, wanted)| wanted).collect();
        let kinds = Kinds::of_question(question.text);
        let mut members = Vec::new();
        // A member that the question names is treated as an ordinary word.
        kinds.members(|term| members.extend(self.terms.find(term).filter(|number| !order.contains(number))));
        let plain = embedder.embed(if rest.is_empty() { question.text } else { &rest }, None);
        let vector = plain.map(|vector| Quantised::new(&vector));
        ParsedQuestion {
            weighted: weighted(&wanted).or_else(|| vector.clone()),
            vector,
            wanted,
            pairs: order.windows(2).map(|two| super::pair(two[0], two[1])).collect(),
            time: dates::intent(question.text, question.now_ms.map(dates::date_of_ms)),
            preference: asks_preference(question.text),
            asks: AnswerForms::of(question.text, kinds),
            members,
            about,
            average_length: (self.total_length / f64::from(self.len().max(1) as u32)).max(1.0) as f32,
        }
    }

    /// The speakers that a question names, or the role behind a pronoun: "I" is the user, "you" is the assistant.
    fn about(&self, question: &str, admits: &ResolvedFilter<'_>) -> QuestionSubject {
        let mut speakers: Vec<u32> = Vec::new();
        let mut unknown: Vec<String> = Vec::new();
        let capitalised = capitalised(question);
        terms::words(question, |word| {
            let word = word.strip_suffix("'s").unwrap_or(word);
            match self.speaker_words.get(word) {
                Some(_) if stopwords::is_talk(word) && !capitalised.iter().any(|name| name == word) => {}
                Some(numbers) => speakers.extend(numbers.iter().filter(|number| self.is_heard(**number, admits))),
                None => unknown.push(word.to_owned()),
            }
        });
        if speakers.is_empty() {
            let nobodys = unknown.iter().filter(|word| self.is_unsaid(word, admits));
            for word in nobodys {
                let near = self.speaker_words.iter().filter(|(name, _)| is_mistyped(word, name));
                speakers.extend(near.flat_map(|(_, n)| n).filter(|number| self.is_heard(**number, admits)));
            }
        }
        speakers.sort_unstable();
        speakers.dedup();
        let persons = GrammaticalPersons::of_question(question);
        let role = match persons {
            // A summary of a conversation needs what both sides said.
            _ if !speakers.is_empty() || asks_summary(question) => None,
            GrammaticalPersons { second: true, first: false } => Some(Role::Assistant),
            GrammaticalPersons { first: true, .. } => Some(Role::User),
            _ => None,
        };
        QuestionSubject { speakers, role }
    }

    /// Whether the filter admits anything that a speaker said.
    fn is_heard(&self, speaker: u32, admits: &ResolvedFilter<'_>) -> bool {
        self.speaker_owners.get(speaker as usize).is_some_and(|owners| owners.iter().any(|o| admits.admits_owner(*o)))
    }

    /// Whether a word occurs in no document that the filter admits.
    fn is_unsaid(&self, word: &str, admits: &ResolvedFilter<'_>) -> bool {
        let mut unsaid = !stopwords::is_talk(word);
        MEMORIES.terms(word, Side::Question, |term, _| {
            let list = self.terms.find(term).map(|number| self.lists[number as usize].list.as_slice());
            unsaid &= !list.unwrap_or_default().iter().any(|packed| {
                let number = packed >> 8;
                admits.admits(number, &self.keys[number as usize])
            });
        });
        unsaid
    }

    fn names_speaker(&self, word: &str, speakers: &[u32]) -> bool {
        self.speaker_words.get(word).is_some_and(|numbers| numbers.iter().any(|number| speakers.contains(number)))
    }
}

impl QuestionSubject {
    /// Whether a turn was said by the person whom the question is about.
    pub(super) fn is_said_by(&self, speaker: u32, role: Option<Role>) -> bool {
        match self.role {
            Some(wanted) => role == Some(wanted),
            None => speaker != NONE && self.speakers.contains(&speaker),
        }
    }

    /// Whether the question is about a known person.
    pub(super) fn is_known(&self) -> bool {
        self.role.is_some() || !self.speakers.is_empty()
    }
}

/// The vector of a question, with words weighted by rarity.
fn weighted(wanted: &[QueryTerm]) -> Option<Quantised> {
    let mut sum = [0.0f32; DIMENSIONS];
    for (rarity, vector) in wanted.iter().filter_map(|one| Some((one.rarity, one.vector.as_ref()?))) {
        for (total, value) in sum.iter_mut().zip(vector.values()) {
            *total += rarity * vector.scale() * f32::from(*value);
        }
    }
    let norm = sum.iter().map(|x| x * x).sum::<f32>().sqrt();
    norm.is_normal().then(|| Quantised::new(&sum.map(|x| x / norm)))
}

/// The folded words of a question that are capitalised, except the first. A speaker may have a function word as a name
/// (Will, May), and only the capital tells the two apart.
fn capitalised(question: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut begins = true;
    terms::written_words(question, |written| {
        if !begins && written.chars().next().is_some_and(char::is_uppercase) {
            terms::words(written, |word| found.push(word.strip_suffix("'s").unwrap_or(word).to_owned()));
        }
        begins = false;
    });
    found
}

fn asks_summary(question: &str) -> bool {
    let mut found = false;
    terms::words(question, |word| {
        found |= matches!(word, "summary" | "summarize" | "summarise" | "recap" | "overview");
    });
    found
}

/// Whether a question is about somebody's preferences or habits.
fn asks_preference(question: &str) -> bool {
    /// Sorted, because it is searched by bisection.
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
    terms::words(question, |word| found |= WORDS.binary_search(&word).is_ok());
    found || ["偏好", "喜欢", "喜歡", "习惯", "讨厌", "好き"].iter().any(|word| question.contains(word))
}
