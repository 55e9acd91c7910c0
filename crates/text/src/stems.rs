//! Stemming: reduces the forms of an English word to one stem. Words of other languages and scripts are unchanged.

use rust_stemmers::{Algorithm, Stemmer};
use std::{borrow::Cow, sync::LazyLock};

/// Shorter words are not stemmed.
const LEAST_LETTERS: usize = 3;
/// Shorter words are not stemmed by [`light`].
const LEAST_LIGHT: usize = 4;
/// Words that end like a plural but are not one.
const NOT_PLURAL: [&str; 5] = ["news", "lens", "series", "species", "always"];

static SNOWBALL: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// Snowball's English stem of a lower-case word.
pub fn snowball(word: &str) -> Cow<'_, str> {
    let is_english = word.len() >= LEAST_LETTERS && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'\'');
    if is_english { SNOWBALL.stem(word) } else { word.into() }
}

/// The base form of a common irregular verb or noun; any other word unchanged.
pub fn base_form(word: &str) -> &str {
    IRREGULAR.binary_search_by_key(&word, |(form, _)| form).map_or(word, |at| IRREGULAR[at].1)
}

/// A light English stemmer: it removes plural, tense and the most common derivational endings, so that "calculates",
/// "calculating", "calculator" and "calculation" share one stem. The stem need not be a word.
pub fn light(word: &str) -> String {
    if word.len() < LEAST_LIGHT || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let mut stem = word.to_owned();
    plural(&mut stem);
    tense(&mut stem);
    if stem.len() > 5 && stem.ends_with("ly") {
        stem.truncate(stem.len() - 2);
    }
    derivation(&mut stem);
    if stem.len() > 3 && stem.ends_with('e') {
        stem.pop();
    }
    if let [.., before, b'y'] = stem.as_bytes()
        && stem.len() > 3
        && !matches!(before, b'a' | b'e' | b'o' | b'u')
    {
        stem.pop();
        stem.push('i');
    }
    stem
}

fn plural(stem: &mut String) {
    let n = stem.len();
    if NOT_PLURAL.contains(&stem.as_str()) {
        return;
    }
    if stem.ends_with("sses") || stem.ends_with("shes") || stem.ends_with("ches") || stem.ends_with("xes") {
        stem.truncate(n - 2);
    } else if n > 4 && stem.ends_with("ies") {
        stem.truncate(n - 3);
        stem.push('y');
    } else if stem.ends_with('s') && !["ss", "us", "is", "as", "os"].iter().any(|end| stem.ends_with(end)) {
        stem.truncate(n - 1);
    }
}

fn tense(stem: &mut String) {
    for suffix in ["ing", "ed"] {
        let Some(rest) = stem.strip_suffix(suffix) else { continue };
        if rest.len() < 3 || !has_vowel(rest) || rest.ends_with('e') {
            return;
        }
        stem.truncate(rest.len());
        undouble(stem);
        return;
    }
}

/// "planning" -> "plan", but "selling" -> "sell".
fn undouble(stem: &mut String) {
    if let [.., a, b] = stem.as_bytes()
        && a == b
        && !matches!(b, b'l' | b's' | b'z')
    {
        stem.pop();
    }
}

fn derivation(stem: &mut String) {
    for (suffix, least) in [("ment", 5), ("ness", 4), ("er", 5), ("or", 5), ("ion", 5)] {
        let Some(rest) = stem.strip_suffix(suffix) else { continue };
        let fits = match suffix {
            "ion" => rest.ends_with('t') || rest.ends_with('s'),
            "or" => rest.ends_with('t'),
            _ => has_vowel(rest),
        };
        if rest.len() >= least && fits {
            stem.truncate(rest.len());
            undouble(stem);
            break;
        }
    }
    for suffix in ["ate", "at"] {
        if stem.len() >= 7 && stem.ends_with(suffix) {
            stem.truncate(stem.len() - suffix.len());
            return;
        }
    }
}

fn has_vowel(text: &str) -> bool {
    text.bytes().any(|b| matches!(b, b'a' | b'e' | b'i' | b'o' | b'u' | b'y'))
}

/// Sorted by the first column for binary search.
const IRREGULAR: [(&str, &str); 109] = [
    ("ate", "eat"),
    ("became", "become"),
    ("began", "begin"),
    ("begun", "begin"),
    ("bit", "bite"),
    ("blew", "blow"),
    ("bought", "buy"),
    ("broke", "break"),
    ("broken", "break"),
    ("brought", "bring"),
    ("built", "build"),
    ("came", "come"),
    ("caught", "catch"),
    ("children", "child"),
    ("chose", "choose"),
    ("chosen", "choose"),
    ("dealt", "deal"),
    ("drank", "drink"),
    ("drawn", "draw"),
    ("drew", "draw"),
    ("driven", "drive"),
    ("drove", "drive"),
    ("eaten", "eat"),
    ("fallen", "fall"),
    ("fed", "feed"),
    ("feet", "foot"),
    ("fell", "fall"),
    ("felt", "feel"),
    ("flew", "fly"),
    ("flown", "fly"),
    ("forgot", "forget"),
    ("forgotten", "forget"),
    ("fought", "fight"),
    ("found", "find"),
    ("froze", "freeze"),
    ("gave", "give"),
    ("given", "give"),
    ("gone", "go"),
    ("gotten", "get"),
    ("grew", "grow"),
    ("grown", "grow"),
    ("heard", "hear"),
    ("held", "hold"),
    ("hid", "hide"),
    ("hidden", "hide"),
    ("kept", "keep"),
    ("knew", "know"),
    ("known", "know"),
    ("led", "lead"),
    ("left", "leave"),
    ("lent", "lend"),
    ("lost", "lose"),
    ("made", "make"),
    ("mailed", "mail"),
    ("meant", "mean"),
    ("men", "man"),
    ("met", "meet"),
    ("mice", "mouse"),
    ("mom", "mother"),
    ("mum", "mother"),
    ("paid", "pay"),
    ("ran", "run"),
    ("rang", "ring"),
    ("ridden", "ride"),
    ("risen", "rise"),
    ("rode", "ride"),
    ("rose", "rise"),
    ("said", "say"),
    ("sang", "sing"),
    ("sat", "sit"),
    ("saw", "see"),
    ("seen", "see"),
    ("sent", "send"),
    ("shook", "shake"),
    ("shot", "shoot"),
    ("slept", "sleep"),
    ("sold", "sell"),
    ("sought", "seek"),
    ("spent", "spend"),
    ("spoke", "speak"),
    ("spoken", "speak"),
    ("stole", "steal"),
    ("stolen", "steal"),
    ("stood", "stand"),
    ("struck", "strike"),
    ("stuck", "stick"),
    ("sung", "sing"),
    ("swam", "swim"),
    ("swum", "swim"),
    ("taken", "take"),
    ("taught", "teach"),
    ("teeth", "tooth"),
    ("thought", "think"),
    ("threw", "throw"),
    ("thrown", "throw"),
    ("told", "tell"),
    ("took", "take"),
    ("torn", "tear"),
    ("understood", "understand"),
    ("went", "go"),
    ("woke", "wake"),
    ("woken", "wake"),
    ("women", "woman"),
    ("won", "win"),
    ("wore", "wear"),
    ("worn", "wear"),
    ("wove", "weave"),
    ("written", "write"),
    ("wrote", "write"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn forms_of_one_word_have_one_light_stem() {
        for forms in [
            vec!["calculate", "calculates", "calculating", "calculator", "calculation", "calculated"],
            vec!["translate", "translation", "translator", "translating"],
            vec!["convert", "converts", "converter", "converting"],
            vec!["plan", "plans", "planning", "planned", "planner"],
            vec!["city", "cities"],
            vec!["try", "tries"],
            vec!["box", "boxes"],
            vec!["movie", "movies"],
            vec!["pay", "pays", "paying"],
            vec!["recommend", "recommendation", "recommends"],
        ] {
            let stems: HashSet<String> = forms.iter().map(|form| light(form)).collect();
            assert_eq!(stems.len(), 1, "{forms:?}: {stems:?}");
        }
        for (a, b) in [("news", "new"), ("bus", "bu"), ("string", "str"), ("user", "us"), ("water", "wat")] {
            assert_ne!(light(a), light(b), "{a} {b}");
        }
    }

    #[test]
    fn the_irregular_forms_are_sorted() {
        assert!(IRREGULAR.is_sorted_by_key(|(form, _)| form));
    }
}
