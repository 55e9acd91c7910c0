//! The form of an answer: a question for a name, a number, a reason or a person is answered by a turn that contains
//! one.

use super::kinds::Kinds;
use toolyard_text::terms;

/// Names in a text are counted up to this number.
const MOST_NAMES: u8 = 3;
/// Weight of a reason relative to a name or a number. Most texts that give a reason do not answer the question.
const REASON: f32 = 0.6;

/// What a text contains that answers may need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TextShape {
    /// Number of capitalised words inside sentences, at most [`MOST_NAMES`].
    names: u8,
    /// The text contains quotation marks, as around a title.
    quotes: bool,
    numbers: bool,
    reasons: bool,
    /// The text mentions a relative, a friend or a colleague.
    persons: bool,
}

/// The forms of answer that a question asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct AnswerForms {
    name: bool,
    number: bool,
    reason: bool,
    person: bool,
}

impl TextShape {
    /// The shape of a text before its words are [read](Self::read). `is_speaker` tells whether a folded word is a
    /// speaker's name; such a name usually only addresses the person.
    pub(super) fn of_writing(text: &str, is_speaker: impl Fn(&str) -> bool) -> Self {
        let numbers = text.bytes().any(|byte| byte.is_ascii_digit());
        Self { names: names(text, is_speaker), quotes: has_quotation(text), numbers, ..Self::default() }
    }

    /// Adds one folded word; `before` is the previous word.
    pub(super) fn read(&mut self, word: &str, before: &str) {
        self.numbers |= NUMBERS.binary_search(&word).is_ok();
        self.persons |= PERSONS.binary_search(&word).is_ok();
        self.reasons |= REASONS.binary_search(&word).is_ok() || REASON_PAIRS.contains(&(before, word));
    }

    /// How much of what a question asks for the text contains, 0 to 1.
    pub(super) fn answers(self, asks: AnswerForms) -> f32 {
        let has = |asked: bool, has: bool| if asked && has { 1.0 } else { 0.0 };
        let names = f32::from(self.names) / f32::from(MOST_NAMES);
        let name = if asks.name { (names + has(true, self.quotes)) / 2.0 } else { 0.0 };
        let reason = REASON * has(asks.reason, self.reasons);
        name.max(reason).max(has(asks.number, self.numbers)).max(has(asks.person, self.persons))
    }
}

impl AnswerForms {
    /// The forms of answer that a question asks for; `kinds` are the kinds it mentions.
    pub(super) fn of(question: &str, kinds: Kinds) -> Self {
        let mut asks = Self::default();
        let mut before = String::new();
        let mut which = false;
        terms::words(question, |word| {
            asks.person |= matches!(word, "who" | "whose" | "whom");
            asks.name |= matches!(word, "where" | "name" | "names" | "named" | "called");
            asks.number |= matches!(word, "number" | "percent" | "percentage")
                || (before == "how" && matches!(word, "many" | "much" | "often" | "old" | "long"));
            asks.reason |= matches!(word, "why" | "reason" | "reasons")
                || word.starts_with("motivat")
                || word.starts_with("inspir");
            which |= matches!(word, "what" | "which");
            before.clear();
            before.push_str(word);
        });
        asks.name |= asks.person || (which && kinds.have_names());
        asks
    }
}

/// Number of capitalised words that neither start a sentence nor are "I" or a speaker's name.
fn names(text: &str, is_speaker: impl Fn(&str) -> bool) -> u8 {
    let mut found = 0;
    let mut begins = true;
    for written in text.split_whitespace() {
        let word = written.trim_matches(|c: char| !c.is_alphanumeric());
        let named = !begins && word.chars().next().is_some_and(char::is_uppercase) && word.chars().nth(1).is_some();
        if named && found < MOST_NAMES {
            let folded = word.to_lowercase().replace('’', "'");
            let bare = folded.strip_suffix("'s").unwrap_or(&folded);
            if !bare.starts_with("i'") && INTERJECTIONS.binary_search(&bare).is_err() && !is_speaker(bare) {
                found += 1;
            }
        }
        begins = written.ends_with(['.', '?', '!', '"', '”', ':']);
    }
    found
}

/// Whether more than one character stands in quotation marks.
fn has_quotation(text: &str) -> bool {
    let Some((_, rest)) = text.split_once(['"', '“']) else { return false };
    rest.find(['"', '”']).is_some_and(|end| rest[..end].chars().nth(1).is_some())
}

/// Words that are capitalised inside a message but are not names. Sorted.
const INTERJECTIONS: [&str; 12] =
    ["ah", "great", "hello", "hey", "hi", "no", "oh", "ok", "thanks", "wow", "yeah", "yes"];
/// Sorted, because it is searched by bisection.
const NUMBERS: [&str; 20] = [
    "couple", "dozen", "eight", "eleven", "five", "four", "hundred", "nine", "once", "one", "second", "seven",
    "several", "six", "ten", "third", "three", "twelve", "twice", "two",
];
/// Sorted, because it is searched by bisection.
const REASONS: [&str; 8] = ["because", "decided", "helps", "inspired", "motivated", "reason", "since", "why"];
/// Pairs of words that introduce a reason.
const REASON_PAIRS: [(&str, &str); 6] =
    [("so", "that"), ("wanted", "to"), ("want", "to"), ("to", "help"), ("makes", "me"), ("made", "me")];
/// Sorted, because it is searched by bisection.
const PERSONS: [&str; 39] = [
    "aunt",
    "auntie",
    "boss",
    "boyfriend",
    "brother",
    "buddy",
    "children",
    "coach",
    "colleague",
    "colleagues",
    "cousin",
    "dad",
    "daughter",
    "father",
    "fiance",
    "friend",
    "friends",
    "girlfriend",
    "grandfather",
    "grandma",
    "grandmother",
    "grandpa",
    "husband",
    "kids",
    "mom",
    "mother",
    "mum",
    "neighbor",
    "neighbour",
    "nephew",
    "niece",
    "parents",
    "partner",
    "sister",
    "son",
    "teammate",
    "teammates",
    "uncle",
    "wife",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> TextShape {
        let mut shape = TextShape::of_writing(text, |word| word == "ana");
        let mut before = String::new();
        terms::words(text, |word| {
            shape.read(word, &before);
            before = word.to_owned();
        });
        shape
    }

    #[test]
    fn the_lists_are_sorted() {
        assert!(INTERJECTIONS.is_sorted() && NUMBERS.is_sorted() && REASONS.is_sorted() && PERSONS.is_sorted());
    }

    #[test]
    fn names_stand_inside_sentences_and_are_not_those_of_speakers() {
        assert_eq!(shape("Thanks, Ana! We went to Lisbon and Porto.").names, 2);
        assert_eq!(shape("Hello. This is fine, I'm here. Yes.").names, 0);
        assert!(shape("I read \"Dune\" twice").quotes && !shape("it is 5\" wide").quotes);
    }

    #[test]
    fn a_question_is_answered_by_what_it_asks_for() {
        let asks = |question: &str| AnswerForms::of(question, Kinds::of_question(question));
        assert_eq!(shape("We have three dogs").answers(asks("How many dogs does Ana have?")), 1.0);
        assert_eq!(shape("We have dogs").answers(asks("How many dogs does Ana have?")), 0.0);
        assert_eq!(shape("My aunt gave it to me").answers(asks("Who gave Ana the ring?")), 1.0);
        assert_eq!(shape("I left because it rained").answers(asks("Why did Ana leave?")), REASON);
        assert!(shape("I have been to Lisbon").answers(asks("Which cities has Ana visited?")) > 0.0);
        assert_eq!(shape("I have been to Lisbon").answers(asks("Did Ana like it?")), 0.0);
    }
}
