//! From text to terms: lower case, no accents on Latin letters, stemmed where the word is English in looks; pairs of
//! characters for scripts without spaces. Memories and questions are cut the same way.

use rust_stemmers::{Algorithm, Stemmer};
use std::{borrow::Cow, sync::LazyLock};
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

/// Longer words are cut.
const MAX_TERM_CHARS: usize = 40;

static STEMMER: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// Words that say nothing about a memory: function words, question words, and what people say to keep a talk going.
/// Sorted, because it is searched by halves.
const STOPWORDS: [&str; 154] = [
    "a", "about", "after", "ain't", "all", "also", "am", "an", "and", "any", "are", "aren't", "as", "at", "be",
    "because", "been", "before", "being", "between", "both", "but", "by", "can", "can't", "could", "couldn't", "did",
    "didn't", "do", "does", "doesn't", "doing", "don't", "during", "each", "few", "for", "from", "get", "got", "had",
    "has", "have", "having", "he", "he's", "her", "here", "hers", "hey", "hi", "him", "his", "how", "i", "i'd", "i'll",
    "i'm", "i've", "if", "in", "into", "is", "isn't", "it", "it's", "its", "just", "let", "let's", "like", "may", "me",
    "might", "mine", "more", "most", "much", "my", "no", "nor", "not", "of", "off", "oh", "on", "or", "other", "our",
    "ours", "out", "over", "own", "really", "same", "shall", "she", "she's", "should", "so", "some", "such", "than",
    "that", "that's", "the", "their", "theirs", "them", "then", "there", "these", "they", "they're", "they've", "this",
    "those", "through", "to", "too", "under", "up", "us", "very", "was", "wasn't", "we", "we're", "we've", "were",
    "what", "what's", "when", "where", "which", "while", "who", "whom", "whose", "why", "will", "with", "would", "wow",
    "yeah", "yes", "you", "you'd", "you'll", "you're", "you've", "your", "yours",
];

/// Whether a lower-case word says nothing about what a text is about.
pub fn is_stopword(word: &str) -> bool {
    STOPWORDS.binary_search(&word).is_ok()
}

/// Calls `emit` with each term of a text and the word it was made from (lower case, unstemmed), in order.
pub fn terms(text: &str, mut emit: impl FnMut(&str, &str)) {
    words(text, |word| {
        if word.chars().next().is_some_and(is_unspaced) {
            unspaced_terms(word, &mut emit);
        } else if !is_stopword(word) {
            stemmed(word, &mut emit);
        }
    });
}

/// Calls `emit` with each word of a text, lower case and folded, function words included. A run of characters of a
/// script without spaces is one word here.
pub fn words(text: &str, mut emit: impl FnMut(&str)) {
    let text: Cow<'_, str> = if text.is_ascii() { text.into() } else { text.nfkc().collect::<String>().into() };
    let mut start: Option<usize> = None;
    let mut folded = String::new();
    let mut end_word = |from: usize, to: usize| fold_runs(&text[from..to], &mut folded, &mut emit);
    for (at, c) in text.char_indices() {
        let inside = c.is_alphanumeric() || (!c.is_ascii() && is_combining_mark(c)) || is_apostrophe(&text, at, c);
        match start {
            None if inside && !matches!(c, '\'' | '’') => start = Some(at),
            Some(from) if !inside => {
                end_word(from, at);
                start = None;
            }
            _ => {}
        }
    }
    if let Some(from) = start {
        end_word(from, text.len());
    }
}

/// An apostrophe inside a word belongs to it: "don't", "l'été".
fn is_apostrophe(text: &str, at: usize, c: char) -> bool {
    matches!(c, '\'' | '’') && text[at + c.len_utf8()..].chars().next().is_some_and(char::is_alphabetic)
}

fn fold_runs(word: &str, folded: &mut String, emit: &mut impl FnMut(&str)) {
    folded.clear();
    if word.is_ascii() {
        folded.extend(word.chars().map(|c| c.to_ascii_lowercase()));
        return emit(folded);
    }
    let chars: Vec<char> = word.chars().collect();
    for run in chars.chunk_by(|a, b| is_unspaced(*a) == is_unspaced(*b)) {
        folded.clear();
        let mut after_latin = false;
        for c in run.iter().flat_map(|c| c.to_lowercase()).nfd() {
            if is_combining_mark(c) {
                if !after_latin {
                    folded.push(c);
                }
                continue;
            }
            after_latin = c.is_ascii_alphabetic();
            folded.push(if c == '’' { '\'' } else { c });
        }
        // Other scripts' marks come back together with their letters.
        let whole: String = folded.nfc().collect();
        if !whole.is_empty() {
            emit(&whole);
        }
    }
}

fn stemmed(word: &str, emit: &mut impl FnMut(&str, &str)) {
    let word = word.strip_suffix("'s").unwrap_or(word);
    if word.is_empty() || is_stopword(word) {
        return;
    }
    let word = word.char_indices().nth(MAX_TERM_CHARS).map_or(word, |(end, _)| &word[..end]);
    if word.len() > 2 && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'\'') {
        let irregular = base_form(word);
        emit(&STEMMER.stem(irregular), word);
    } else {
        emit(word, word);
    }
}

/// Forms of common verbs and nouns that no rule of spelling leads back to their base.
fn base_form(word: &str) -> &str {
    IRREGULAR.binary_search_by_key(&word, |(form, _)| form).map_or(word, |at| IRREGULAR[at].1)
}

/// Sorted by form.
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

/// Pairs of neighbouring characters, and single ones so that a question of one character finds something.
fn unspaced_terms(run: &str, emit: &mut impl FnMut(&str, &str)) {
    let starts: Vec<usize> = run.char_indices().map(|(at, _)| at).chain([run.len()]).collect();
    if starts.len() <= 2 {
        return emit(run, run);
    }
    for pair in starts.windows(3) {
        let pair = &run[pair[0]..pair[2]];
        emit(pair, pair);
    }
}

/// Characters of scripts that are written without spaces between words.
pub(crate) fn is_unspaced(c: char) -> bool {
    matches!(c as u32,
        0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF | 0x3040..=0x30FF | 0x31F0..=0x31FF | 0x3400..=0x4DBF
        | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0xFF66..=0xFF9D | 0x20000..=0x2FA1F)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        terms(text, |term, _| found.push(term.to_owned()));
        found
    }

    #[test]
    fn the_tables_are_sorted() {
        assert!(STOPWORDS.is_sorted());
        assert!(IRREGULAR.is_sorted_by_key(|(form, _)| form));
    }

    #[test]
    fn words_of_one_base_are_one_term() {
        assert_eq!(cut("Caroline's paintings"), cut("caroline painting"));
        assert_eq!(cut("She went camping"), cut("going to the camp"));
        assert_eq!(cut("Café"), cut("cafe"));
    }

    #[test]
    fn scripts_without_spaces_are_cut_in_pairs() {
        assert_eq!(cut("偏好Rust后端"), ["偏好", "rust", "后端"]);
        assert_eq!(cut("用户偏好"), ["用户", "户偏", "偏好"]);
        assert_eq!(cut("猫"), ["猫"]);
    }

    proptest! {
        #[test]
        fn any_text_is_cut_without_panic(text in any::<String>()) {
            prop_assert_eq!(cut(&text), cut(&text));
        }
    }
}
