//! Summaries of archived conversations: requests, key points and memories.

use super::{
    MAX_ABSTRACT_CHARS,
    memories::{Message, Options, memories},
    outline::Overview,
    salience,
};
use toolyard_text::{
    dates,
    sentences::{clip, collapse, sentences},
};

/// Maximum number of requests listed.
const MAX_REQUESTS: usize = 12;
/// Maximum number of key points.
const MAX_POINTS: usize = 14;
/// Maximum number of memories listed.
const MAX_FACTS: usize = 10;
/// Maximum length of a line, in characters.
const MAX_LINE_CHARS: usize = 240;

/// The summary of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The abstract, in at most [`MAX_ABSTRACT_CHARS`] characters.
    pub summary: String,
    /// The overview, in at most [`super::MAX_OVERVIEW_CHARS`] characters.
    pub overview: String,
}

/// Summarises messages, oldest first. Tool messages are only counted.
pub fn summarise(title: &str, messages: &[Message<'_>]) -> Summary {
    let spoken: Vec<&Message<'_>> = messages.iter().filter(|message| is_spoken(message.role)).collect();
    let asked: Vec<String> = spoken
        .iter()
        .filter(|message| message.role != "assistant")
        .filter_map(|message| request(message.text))
        .collect();
    let prose: Vec<(&str, &str)> = spoken
        .iter()
        .flat_map(|message| sentences(message.text).into_iter().map(|sentence| (who(message), sentence)))
        .collect();
    let texts: Vec<&str> = prose.iter().map(|(_, sentence)| *sentence).collect();
    let telling = salience::most_telling(&texts, MAX_POINTS);
    let summary = abstract_of(messages, &asked, &telling, &texts);
    let mut overview = Overview::new(title, &summary);
    overview.section("Messages", facts_of(messages));
    overview.section("Requests", asked.iter().take(MAX_REQUESTS).map(|line| format!("- {line}")));
    overview.section(
        "Key points",
        telling.iter().map(|at| format!("- {}: {}", prose[*at].0, clip(&collapse(prose[*at].1), MAX_LINE_CHARS))),
    );
    let learned = memories(messages, &Options::default());
    overview.section(
        "Learned",
        learned
            .iter()
            .take(MAX_FACTS)
            .map(|memory| format!("- [{}] {}", memory.category.name(), clip(&collapse(&memory.text), MAX_LINE_CHARS))),
    );
    Summary { summary, overview: overview.text }
}

fn is_spoken(role: &str) -> bool {
    !matches!(role, "tool" | "toolResult" | "system")
}

fn who<'a>(message: &Message<'a>) -> &'a str {
    message.speaker.unwrap_or(message.role)
}

fn abstract_of(messages: &[Message<'_>], asked: &[String], telling: &[usize], texts: &[&str]) -> String {
    let mut pieces: Vec<String> = Vec::new();
    if let Some(first) = asked.first() {
        pieces.push(clip(first, MAX_ABSTRACT_CHARS / 2));
    }
    if let Some(last) = asked.last().filter(|last| asked.len() > 1 && Some(*last) != asked.first()) {
        pieces.push(clip(last, MAX_ABSTRACT_CHARS / 3));
    }
    pieces.extend(telling.iter().map(|at| collapse(texts[*at])));
    let mut text = String::new();
    for piece in pieces {
        if text.contains(&piece) || text.chars().count() + piece.chars().count() + 1 > MAX_ABSTRACT_CHARS {
            continue;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&piece);
    }
    if text.is_empty() {
        text = match texts.first() {
            Some(first) => collapse(first),
            None => format!("{} messages without text.", messages.len()),
        };
    }
    clip(&text, MAX_ABSTRACT_CHARS)
}

/// The number of messages per speaker, and the time range.
fn facts_of(messages: &[Message<'_>]) -> Vec<String> {
    let mut speakers: Vec<(&str, usize)> = Vec::new();
    for message in messages {
        match speakers.iter_mut().find(|(name, _)| *name == who(message)) {
            Some((_, count)) => *count += 1,
            None => speakers.push((who(message), 1)),
        }
    }
    let counts: Vec<String> = speakers.iter().take(8).map(|(name, count)| format!("{name} {count}")).collect();
    let mut lines = vec![format!("- {} in all: {}", messages.len(), counts.join(", "))];
    let times = messages.iter().filter_map(|message| message.time_ms);
    if let (Some(first), Some(last)) = (times.clone().min(), times.max()) {
        let (first, last) = (dates::date_of_ms(first), dates::date_of_ms(last));
        lines.push(if first == last { format!("- on {first}") } else { format!("- from {first} to {last}") });
    }
    lines
}

/// What the message asks for: its first question, else its first sentence with enough content.
fn request(text: &str) -> Option<String> {
    let all = sentences(text);
    let substance = |sentence: &&&str| sentence.chars().filter(|c| c.is_alphanumeric()).count() >= 8;
    let found = all
        .iter()
        .find(|sentence| sentence.ends_with(['?', '？']) && substance(sentence))
        .or_else(|| all.iter().find(substance))?;
    Some(clip(&collapse(found), MAX_LINE_CHARS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::MAX_OVERVIEW_CHARS;
    use proptest::prelude::*;

    fn message<'a>(role: &'a str, text: &'a str) -> Message<'a> {
        Message { role, speaker: None, text, time_ms: Some(1_683_550_560_000) }
    }

    #[test]
    fn a_summary_has_what_was_asked_and_said() {
        let messages = [
            message("user", "Hi! How do I capture packets on port 443?"),
            message("assistant", "Run tcpdump with the filter port 443. It writes packets to a file with -w."),
            message("user", "I prefer Wireshark for reading the capture."),
        ];
        let summary = summarise("archive_001", &messages);
        assert!(summary.summary.contains("How do I capture packets on port 443?"), "{}", summary.summary);
        assert!(summary.overview.starts_with("# archive_001\n\n"));
        for wanted in ["tcpdump", "3 in all: user 2, assistant 1", "on 2023-05-08", "[preferences]"] {
            assert!(summary.overview.contains(wanted), "{wanted} in {}", summary.overview);
        }
    }

    #[test]
    fn a_conversation_without_text_has_a_summary_too() {
        assert_eq!(summarise("a", &[message("tool", "x")]).summary, "1 messages without text.");
        assert!(!summarise("a", &[]).overview.is_empty());
    }

    proptest! {
        #[test]
        fn nothing_is_too_long(texts in prop::collection::vec(any::<String>(), 0..20)) {
            let messages: Vec<Message<'_>> = texts.iter().map(|text| message("user", text)).collect();
            let summary = summarise("t", &messages);
            prop_assert!(summary.summary.chars().count() <= MAX_ABSTRACT_CHARS);
            prop_assert!(summary.overview.chars().count() <= MAX_OVERVIEW_CHARS);
        }
    }
}
