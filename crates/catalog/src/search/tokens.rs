//! From text to terms: words split at case and punctuation, stems of English words, pairs of characters for scripts
//! that are written without spaces.

use std::{borrow::Cow, collections::HashSet, sync::LazyLock};
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

/// Longer words are cut: nobody searches for them.
const MAX_WORD_CHARS: usize = 40;

/// Words that end like a plural and are none.
const NOT_PLURAL: [&str; 5] = ["news", "lens", "series", "species", "always"];

static STOPWORDS: LazyLock<HashSet<&'static str>> = LazyLock::new(|| super::words::stopwords().collect());

/// Calls `emit` with each term of a text, in order.
pub(super) fn terms(text: &str, mut emit: impl FnMut(&str)) {
    words(text, |word| word_terms(word, &mut emit));
}

/// Calls `emit` with each word of a text as it is written, in order.
pub(super) fn words(text: &str, mut emit: impl FnMut(&str)) {
    let folded: Cow<'_, str> = if text.is_ascii() { text.into() } else { text.nfkc().collect::<String>().into() };
    let mut start: Option<usize> = None;
    for (at, c) in folded.char_indices() {
        // An apostrophe belongs to the word: "what's" is one word that says nothing.
        let inside = c.is_alphanumeric() || (c == '\'' && start.is_some()) || (!c.is_ascii() && is_combining_mark(c));
        match start {
            None if inside => start = Some(at),
            Some(from) if !inside => {
                emit(&folded[from..at]);
                start = None;
            }
            _ => {}
        }
    }
    if let Some(from) = start {
        emit(&folded[from..]);
    }
}

/// Calls `emit` with the terms of one word. A word of several parts (`createFile`) gives the whole and its parts.
pub(super) fn word_terms(word: &str, emit: &mut impl FnMut(&str)) {
    let word = word.trim_end_matches('\'');
    let word = word.strip_suffix("'s").unwrap_or(word);
    if word.chars().any(is_unspaced) {
        unspaced_terms(word, emit);
        return;
    }
    let mut parts = Vec::new();
    split_case(word, &mut parts);
    if parts.len() > 1 {
        emit_word(&word.to_lowercase(), emit);
    }
    for part in &parts {
        emit_word(part, emit);
    }
}

fn emit_word(word: &str, emit: &mut impl FnMut(&str)) {
    if word.is_empty() || STOPWORDS.contains(word) {
        return;
    }
    let cut: String;
    let word = match word.char_indices().nth(MAX_WORD_CHARS) {
        Some((end, _)) => {
            cut = word[..end].to_owned();
            cut.as_str()
        }
        None => word,
    };
    emit(&stem(word));
}

/// `getHTTPResponse2` -> get, http, response, 2. All in lower case.
fn split_case(word: &str, parts: &mut Vec<String>) {
    let chars: Vec<char> = word.chars().collect();
    let mut part = String::new();
    for (i, &c) in chars.iter().enumerate() {
        let previous = i.checked_sub(1).map(|p| chars[p]);
        let next = chars.get(i + 1);
        let starts = previous.is_some_and(|p| {
            (c.is_uppercase() && p.is_lowercase())
                || (c.is_uppercase() && p.is_uppercase() && next.is_some_and(|n| n.is_lowercase()))
                || (c.is_numeric() != p.is_numeric() && !is_combining_mark(c))
        });
        if starts && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
        }
        part.extend(c.to_lowercase());
    }
    if !part.is_empty() {
        parts.push(part);
    }
}

/// Scripts that are written without spaces between words.
fn is_unspaced(c: char) -> bool {
    matches!(c as u32,
        0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF // Thai, Lao, Myanmar, Khmer
        | 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF) // kana, Han
}

/// Runs of such a script give every pair of neighbours (and a single character when it stands alone); what lies
/// between them gives words.
fn unspaced_terms(word: &str, emit: &mut impl FnMut(&str)) {
    let chars: Vec<char> = word.chars().collect();
    for run in chars.chunk_by(|a, b| is_unspaced(*a) == is_unspaced(*b)) {
        if !run.first().is_some_and(|c| is_unspaced(*c)) {
            emit_word(&run.iter().collect::<String>().to_lowercase(), emit);
        } else if let [single] = run {
            emit(single.encode_utf8(&mut [0; 4]));
        } else {
            run.windows(2).for_each(|pair| emit(&pair.iter().collect::<String>()));
        }
    }
}

/// A light English stem: plural, tense and the commonest derivations are taken off, so that "calculates",
/// "calculating", "calculator" and "calculation" are one term. The stem need not be a word.
pub(super) fn stem(word: &str) -> String {
    if word.len() < 4 || !word.bytes().all(|b| b.is_ascii_lowercase()) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        terms(text, |term| found.push(term.to_owned()));
        found
    }

    #[test]
    fn forms_of_one_word_have_one_stem() {
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
            let stems: HashSet<String> = forms.iter().map(|form| stem(form)).collect();
            assert_eq!(stems.len(), 1, "{forms:?}: {stems:?}");
        }
        for (a, b) in [("news", "new"), ("bus", "bu"), ("string", "str"), ("user", "us"), ("water", "wat")] {
            assert_ne!(stem(a), stem(b), "{a} {b}");
        }
    }

    #[test]
    fn names_are_split_at_case_and_punctuation_and_kept_whole() {
        assert_eq!(list("vault.createFile"), ["vault", "createfil", "creat", "fil"]);
        assert_eq!(list("getHTTPResponse2"), ["gethttpresponse2", "get", "http", "respons", "2"]);
        assert_eq!(list("YouTube"), ["youtub", "tub"]);
        assert_eq!(list("What's the user's name?"), ["user", "nam"]);
    }

    #[test]
    fn scripts_without_spaces_give_pairs_and_marks_stay_with_their_letters() {
        assert_eq!(list("查询天气API2"), ["查询", "询天", "天气", "api2"]);
        assert_eq!(list("天"), ["天"]);
        assert_eq!(list("मौसम की जानकारी"), ["मौसम", "की", "जानकारी"]);
        assert_eq!(list("हिन्दी"), ["हिन्दी"]);
    }

    proptest! {
        #[test]
        fn any_text_gives_terms_without_panic(text in any::<String>()) {
            prop_assert!(list(&text).iter().all(|term| !term.is_empty()));
        }
    }
}
