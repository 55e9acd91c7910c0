//! Extracts memories from messages: what was said about whom, by whom and when, each in its original words.

use super::{
    pattern::Sentence,
    phrases::{is_empty_talk, is_event, is_mood, is_no_name, strip_lead, until_clause},
    rules::{self, COMPILED},
    salience,
};
use crate::index::{Category, Role};
use serde::{Deserialize, Serialize};
use toolyard_text::{
    dates::{self, DaySpan},
    sentences::{clip, collapse, sentences},
    terms::{MEMORIES, Side},
};

/// Maximum number of memories extracted from one set of messages.
const MAX_MEMORIES: usize = 200;
/// Maximum length of a memory's text, in characters.
const MAX_TEXT_CHARS: usize = 1_000;
/// Longer sentences, in characters, are skipped because they are lists or code.
const MAX_SENTENCE_CHARS: usize = 500;
/// Number of an object's terms that go into the key.
const KEY_TERMS: usize = 4;

/// A message from which memories are extracted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Message<'a> {
    /// `user`, `assistant`, `tool`, …
    pub role: &'a str,
    /// The speaker's name, where it is known.
    pub speaker: Option<&'a str>,
    /// The text of the message.
    pub text: &'a str,
    /// When it was sent, in milliseconds since 1970.
    pub time_ms: Option<i64>,
}

/// Options of the extraction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Sentences that match no rule are kept as they are. This is for texts that somebody asked to remember.
    pub keep_unmatched: bool,
}

/// An extracted memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// The category of the memory.
    pub category: Category,
    /// Whom or what the memory is about: a name, or `user`.
    pub subject: String,
    /// The attribute of the subject, in lower case: `home`, `favourite book`, `about coffee`.
    pub key: String,
    /// The key can have only one value at a time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub single: bool,
    /// Whether the statement is affirmative; `false` for something that somebody dislikes.
    #[serde(default = "yes")]
    pub positive: bool,
    /// The value of the key, or the whole sentence where no value was extracted.
    pub value: String,
    /// The original sentence.
    pub text: String,
    /// The name of the speaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    /// The speaker's role in the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// When it was said, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said_ms: Option<i64>,
    /// The days the memory is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<DaySpan>,
}

fn yes() -> bool {
    true
}

impl Memory {
    /// Creates a memory from a text that somebody wrote by hand.
    pub fn plain(category: Category, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            category,
            subject: "user".to_owned(),
            key: key_terms(&text),
            single: false,
            positive: true,
            value: text.clone(),
            text,
            speaker: None,
            role: None,
            said_ms: None,
            days: None,
        }
    }

    /// A short file name of letters, digits and hyphens, made from subject and key. It is not unique.
    pub fn slug(&self) -> String {
        let mut slug = String::new();
        let subject = if self.subject == "user" { "" } else { self.subject.as_str() };
        for c in format!("{subject} {}", self.key).chars().flat_map(char::to_lowercase) {
            if c.is_alphanumeric() {
                slug.push(c);
            } else if !slug.is_empty() && !slug.ends_with('-') {
                slug.push('-');
            }
            if slug.chars().count() >= 48 {
                break;
            }
        }
        let slug = slug.trim_end_matches('-').to_owned();
        if slug.is_empty() { self.category.name().to_owned() } else { slug }
    }

    /// The text with speaker, time and days, for people and models to read.
    pub fn rendered(&self) -> String {
        let mut notes = Vec::new();
        if let Some(days) = &self.days {
            notes.push(match days.from == days.to {
                true => format!("about {}", days.first()),
                false => format!("about {} to {}", days.first(), days.last()),
            });
        }
        match (&self.speaker, self.said_ms.map(dates::date_of_ms)) {
            (Some(who), Some(day)) => notes.push(format!("said by {who} on {day}")),
            (Some(who), None) => notes.push(format!("said by {who}")),
            (None, Some(day)) => notes.push(format!("said on {day}")),
            (None, None) => {}
        }
        if notes.is_empty() { self.text.clone() } else { format!("{} ({})", self.text, notes.join("; ")) }
    }
}

/// Extracts memories from messages, oldest first, without duplicates: of the same key and value the first is kept; of a
/// key with a single value the last is kept.
pub fn memories(messages: &[Message<'_>], options: &Options) -> Vec<Memory> {
    let mut found: Vec<Memory> = Vec::new();
    let mut problem: Option<String> = None;
    for message in messages.iter().filter(|message| !matches!(message.role, "tool" | "toolResult" | "system")) {
        let before = found.len();
        let all = sentences(message.text);
        for sentence in &all {
            if found.len() >= MAX_MEMORIES {
                break;
            }
            if sentence.chars().count() <= MAX_SENTENCE_CHARS {
                from_sentence(message, sentence, &mut problem, &mut found);
            }
        }
        if options.keep_unmatched && found.len() == before && message.text.chars().any(char::is_alphanumeric) {
            let mut memory =
                Memory::plain(fallback_category(message.text), clip(&collapse(message.text), MAX_TEXT_CHARS));
            memory.speaker = message.speaker.map(str::to_owned);
            memory.role = Role::of_name(message.role);
            memory.said_ms = message.time_ms;
            memory.days = days_of(message.text, message.time_ms);
            found.push(memory);
        }
    }
    super::reconcile::settle(found)
}

fn from_sentence(message: &Message<'_>, sentence: &str, problem: &mut Option<String>, found: &mut Vec<Memory>) {
    let text = collapse(sentence).replace('’', "'");
    let asks = text.ends_with(['?', '？']);
    if rules::tells_solution(&text) && !asks {
        found.push(case_of(message, &text, problem.take()));
        return;
    }
    if rules::tells_problem(&text) {
        *problem = Some(text.clone());
    }
    // An unnamed assistant talks about itself or repeats what the user said.
    if asks || (message.role == "assistant" && message.speaker.is_none()) {
        return;
    }
    if let Some(memory) = by_rules(message, &text) {
        found.push(memory);
        return;
    }
    if is_event(&text)
        && let Some(days) = days_of(&text, message.time_ms)
    {
        found.push(Memory {
            category: Category::Events,
            subject: subject_of(message, "I"),
            key: key_terms(&text),
            single: false,
            positive: true,
            value: text.clone(),
            text: clip(&text, MAX_TEXT_CHARS),
            speaker: message.speaker.map(str::to_owned),
            role: Role::of_name(message.role),
            said_ms: message.time_ms,
            days: Some(days),
        });
    }
}

fn by_rules(message: &Message<'_>, text: &str) -> Option<Memory> {
    let body = strip_lead(text);
    let sentence = Sentence::new(body);
    for rule in COMPILED.iter() {
        if rule.category == Category::Preferences && rules::is_courtesy(body) {
            continue;
        }
        let Some(caught) = rule.pattern.captures(&sentence) else { continue };
        let object = until_clause(caught.object);
        if object.is_empty() || !object.chars().any(char::is_alphanumeric) || is_empty_talk(object) {
            continue;
        }
        let who = caught.subject;
        if is_no_name(who) || (rule.key == "is {o}" && is_mood(object)) {
            continue;
        }
        let subject = subject_of(message, who);
        let key = rule.key.replace("{k}", &caught.attribute.to_lowercase()).replace("{o}", &key_terms(object));
        // A dated action is an event, even when the sentence also matches another category.
        let category = match rule.category {
            Category::Preferences | Category::Entities
                if is_event(text) && days_of(text, message.time_ms).is_some() && rule.key.contains("{o}") =>
            {
                Category::Events
            }
            category => category,
        };
        return Some(Memory {
            category,
            subject,
            key: collapse(&key),
            single: rule.single,
            positive: rule.positive,
            value: object.to_owned(),
            text: clip(text, MAX_TEXT_CHARS),
            speaker: message.speaker.map(str::to_owned),
            role: Role::of_name(message.role),
            said_ms: message.time_ms,
            days: days_of(text, message.time_ms),
        });
    }
    None
}

fn case_of(message: &Message<'_>, solution: &str, problem: Option<String>) -> Memory {
    let text = match &problem {
        Some(problem) if problem != solution => format!("Problem: {problem} Solution: {solution}"),
        _ => solution.to_owned(),
    };
    Memory {
        category: Category::Cases,
        subject: "user".to_owned(),
        key: key_terms(problem.as_deref().unwrap_or(solution)),
        single: false,
        positive: true,
        value: solution.to_owned(),
        text: clip(&text, MAX_TEXT_CHARS),
        speaker: message.speaker.map(str::to_owned),
        role: Role::of_name(message.role),
        said_ms: message.time_ms,
        days: None,
    }
}

fn subject_of(message: &Message<'_>, who: &str) -> String {
    match who.trim_end_matches("'s").to_lowercase().as_str() {
        "" | "i" | "we" | "my" | "our" | "我" => message.speaker.unwrap_or("user").to_owned(),
        "the user" | "user" | "用户" => "user".to_owned(),
        _ => who.trim_end_matches("'s").to_owned(),
    }
}

fn days_of(text: &str, time_ms: Option<i64>) -> Option<DaySpan> {
    dates::spans(text, time_ms.map(dates::date_of_ms)).first().copied()
}

fn fallback_category(text: &str) -> Category {
    if rules::states_preference(text) {
        Category::Preferences
    } else if is_event(text) && dates::tells_when(text) {
        Category::Events
    } else {
        Category::Entities
    }
}

/// The first significant terms of a text, used as a key.
pub(super) fn key_terms(text: &str) -> String {
    let mut key: Vec<String> = Vec::new();
    MEMORIES.terms(text, Side::Question, |_, word| {
        if key.len() < KEY_TERMS && !key.iter().any(|known| known == word) {
            key.push(word.to_owned());
        }
    });
    if key.is_empty() { salience::bag(text).into_iter().min().unwrap_or_default() } else { key.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 2023-05-25, a Thursday.
    const NOW: i64 = 1_685_000_000_000;

    fn said<'a>(speaker: Option<&'a str>, text: &'a str) -> Message<'a> {
        Message { role: "user", speaker, text, time_ms: Some(NOW) }
    }

    fn one(text: &str) -> Memory {
        let found = memories(&[said(None, text)], &Options::default());
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        found.into_iter().next().unwrap()
    }

    #[test]
    fn each_sort_of_memory_is_found() {
        let cases = [
            ("My name is Ada Lovelace.", Category::Profile, "user", "name", "Ada Lovelace"),
            ("I live in Lisbon now.", Category::Profile, "user", "home", "Lisbon now"),
            ("I work as a nurse in a small clinic.", Category::Profile, "user", "work as", "a nurse in a small clinic"),
            ("My favorite color is green.", Category::Preferences, "user", "favourite color", "green"),
            (
                "Remember that I prefer tabs over spaces.",
                Category::Preferences,
                "user",
                "about tabs spaces",
                "tabs over spaces",
            ),
            (
                "The user prefers Python for backend work.",
                Category::Preferences,
                "user",
                "about python backend work",
                "Python for backend work",
            ),
            (
                "Anna loves hiking in the mountains.",
                Category::Preferences,
                "Anna",
                "about hiking mountains",
                "hiking in the mountains",
            ),
            ("My dog is called Rex.", Category::Entities, "user", "dog name", "Rex"),
            ("我喜欢爬山。", Category::Preferences, "user", "about 爬山", "爬山"),
        ];
        for (text, category, subject, key, value) in cases {
            let memory = one(text);
            assert_eq!(
                (memory.category, memory.subject.as_str(), memory.key.as_str(), memory.value.as_str()),
                (category, subject, key, value),
                "{text}"
            );
        }
        assert_eq!(one("用户偏好使用 TypeScript 编写 OpenClaw 插件。").category, Category::Preferences);
        for disliked in
            ["I don't like coffee.", "I'm not really into crowds.", "Anna no longer eats meat.", "I can't stand noise."]
        {
            let memory = one(disliked);
            assert_eq!((memory.category, memory.positive), (Category::Preferences, false), "{disliked}");
        }
    }

    #[test]
    fn events_have_their_day_and_their_speaker() {
        let found = memories(
            &[said(Some("Caroline"), "I went to a support group yesterday and it was powerful.")],
            &Options::default(),
        );
        let event = &found[0];
        assert_eq!((event.category, event.subject.as_str()), (Category::Events, "Caroline"));
        assert_eq!(event.days.unwrap().first().to_string(), "2023-05-24");
        assert!(
            event.rendered().ends_with("(about 2023-05-24; said by Caroline on 2023-05-25)"),
            "{}",
            event.rendered()
        );
    }

    #[test]
    fn a_solution_is_kept_with_its_problem() {
        let found = memories(
            &[
                said(None, "The build fails with a linker error."),
                Message { role: "assistant", ..said(None, "It turned out that lld was missing.") },
            ],
            &Options::default(),
        );
        assert_eq!(found[0].category, Category::Cases);
        assert_eq!(
            found[0].text,
            "Problem: The build fails with a linker error. Solution: It turned out that lld was missing."
        );
    }

    #[test]
    fn questions_courtesies_and_assistants_leave_nothing() {
        for text in [
            "Do you like tea?",
            "I'd like you to open the file.",
            "Hello there!",
            "That sounds like fun.",
            "I'm a bit tired.",
            "I never said that to Bob.",
        ] {
            assert_eq!(memories(&[said(None, text)], &Options::default()), [], "{text}");
        }
        let assistant = Message { role: "assistant", ..said(None, "I love helping with code.") };
        assert_eq!(memories(&[assistant], &Options::default()), []);
    }

    #[test]
    fn what_somebody_wants_remembered_is_kept_in_any_case() {
        let found = memories(&[said(None, "blue folder, third shelf")], &Options { keep_unmatched: true });
        assert_eq!(found[0].text, "blue folder, third shelf");
    }

    #[test]
    fn a_slug_is_fit_for_a_file_name() {
        assert_eq!(one("Anna loves hiking in the mountains.").slug(), "anna-about-hiking-mountains");
        assert_eq!(Memory::plain(Category::Events, "…").slug(), "events");
    }

    proptest! {
        #[test]
        fn any_message_is_read_without_panic(texts in prop::collection::vec(any::<String>(), 0..4)) {
            let messages: Vec<Message<'_>> = texts.iter().map(|text| said(None, text)).collect();
            for memory in memories(&messages, &Options { keep_unmatched: true }) {
                prop_assert!(memory.text.chars().count() <= MAX_TEXT_CHARS);
                prop_assert!(!memory.slug().is_empty());
            }
        }
    }
}
