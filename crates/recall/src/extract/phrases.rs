//! Word lists that classify sentences: fillers at their start, clauses at their end, sentences without content, and
//! sentences that report an event.
//!
//! [`super::memories`] uses them before and after its rules. They know no messages and no memories.

use toolyard_text::terms::{self, MEMORIES, Side};

/// Removes fillers such as "Hey Mel, ", "Well, ", "Remember that " and "By the way, ".
pub(super) fn strip_lead(text: &str) -> &str {
    const LEADS: [&str; 22] = [
        "remember that ",
        "remember: ",
        "please remember that ",
        "please remember ",
        "note that ",
        "by the way, ",
        "btw, ",
        "well, ",
        "so, ",
        "yes, ",
        "yeah, ",
        "no, ",
        "actually, ",
        "and ",
        "but ",
        "also, ",
        "oh, ",
        "honestly, ",
        "personally, ",
        "anyway, ",
        "correction: ",
        "fyi, ",
    ];
    let mut rest = text;
    loop {
        let lead =
            LEADS.iter().find(|lead| rest.get(..lead.len()).is_some_and(|start| start.eq_ignore_ascii_case(lead)));
        match lead.and_then(|lead| rest.get(lead.len()..)) {
            Some(after) => rest = after,
            None => return rest,
        }
    }
}

/// Cuts an object where the next clause starts.
pub(super) fn until_clause(object: &str) -> &str {
    const ENDS: [&str; 12] = [
        " because ",
        " since ",
        " but ",
        " so that ",
        " although ",
        " though ",
        " while ",
        " and i ",
        " and we ",
        " and my ",
        " - ",
        " which ",
    ];
    let lower = object.to_lowercase();
    let end = ENDS.iter().filter_map(|end| lower.find(end)).min().unwrap_or(object.len());
    object.get(..end).unwrap_or(object).trim()
}

/// Whether an object carries no meaning without the preceding conversation.
pub(super) fn is_empty_talk(object: &str) -> bool {
    let mut telling = false;
    MEMORIES.terms(object, Side::Question, |_, word| {
        telling |= !matches!(
            word,
            "one"
                | "thing"
                | "things"
                | "lot"
                | "bit"
                | "little"
                | "way"
                | "sure"
                | "know"
                | "think"
                | "mean"
                | "idea"
                | "time"
        )
    });
    !telling
}

/// Whether an object describes a mood: "I'm a bit tired" does not say who somebody is.
pub(super) fn is_mood(object: &str) -> bool {
    let first = object.split(' ').next().unwrap_or_default().to_lowercase();
    matches!(
        first.as_str(),
        "bit"
            | "little"
            | "lot"
            | "tad"
            | "while"
            | "few"
            | "good"
            | "bad"
            | "great"
            | "big"
            | "huge"
            | "fan"
            | "same"
            | "one"
            | "only"
            | "best"
    )
}

/// Whether a capitalised word at the start of a sentence is not a name.
pub(super) fn is_no_name(who: &str) -> bool {
    if who.eq_ignore_ascii_case("the user") {
        return false;
    }
    let first = who.split(' ').next().unwrap_or_default().trim_end_matches("'s").to_lowercase();
    matches!(
        first.as_str(),
        "it" | "this"
            | "that"
            | "there"
            | "he"
            | "she"
            | "they"
            | "you"
            | "these"
            | "those"
            | "what"
            | "who"
            | "here"
            | "everyone"
            | "everybody"
            | "people"
            | "nobody"
            | "someone"
            | "something"
            | "everything"
            | "nothing"
            | "your"
            | "his"
            | "her"
            | "their"
            | "its"
            | "how"
            | "when"
            | "where"
            | "why"
            | "if"
            | "and"
            | "but"
            | "so"
            | "then"
            | "now"
            | "hope"
            | "glad"
            | "thanks"
            | "wow"
            | "hey"
            | "hi"
            | "yes"
            | "no"
            | "the"
            | "a"
            | "an"
            | "one"
            | "some"
            | "all"
            | "each"
            | "most"
            | "many"
            | "to"
            | "in"
            | "on"
            | "at"
            | "for"
            | "with"
            | "of"
            | "let"
            | "just"
            | "not"
            | "maybe"
            | "perhaps"
            | "please"
            | "today"
            | "yesterday"
            | "tomorrow"
    )
}

/// Whether a sentence reports something that happened or is planned, rather than a general statement about the present.
pub(super) fn is_event(text: &str) -> bool {
    let mut first_person = false;
    let mut acts = false;
    let mut named = text.chars().next().is_some_and(char::is_uppercase);
    terms::words(text, |word| {
        first_person |=
            matches!(word, "i" | "we" | "i'm" | "i've" | "i'll" | "we're" | "we've" | "we'll" | "my" | "our");
        acts |= matches!(
            word,
            "went"
                | "going"
                | "was"
                | "were"
                | "had"
                | "did"
                | "will"
                | "gonna"
                | "got"
                | "took"
                | "met"
                | "saw"
                | "made"
                | "bought"
                | "came"
                | "left"
                | "won"
                | "lost"
                | "ran"
                | "gave"
                | "began"
                | "found"
                | "held"
                | "taught"
                | "wrote"
                | "read"
                | "planning"
                | "scheduled"
                | "booked"
                | "i'll"
                | "we'll"
                | "attending"
                | "visiting"
                | "starting"
                | "moving"
                | "meeting"
                | "deadline"
                | "due"
                | "trip"
                | "appointment"
        ) || (word.len() > 4 && word.ends_with("ed"));
    });
    named &= acts;
    (first_person && acts) || named || ["了", "将", "要去", "会议", "计划"].iter().any(|word| text.contains(word))
}
