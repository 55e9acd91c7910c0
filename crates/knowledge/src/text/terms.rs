//! From text to terms. The same terms are made for notes and for questions, whichever index counts them, so that
//! what is written in any script is found: words for scripts with spaces, pairs of characters for those without.

use rust_stemmers::{Algorithm, Stemmer};
use std::{borrow::Cow, collections::HashSet, sync::LazyLock};
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// Longer words are cut.
const MAX_TERM_CHARS: usize = 40;
/// A question has at most this many different terms.
const MAX_QUERY_TERMS: usize = 256;
/// A word is taken apart at changes of case only into parts of at least this many letters: `createFile`, not `mRNA`.
const MIN_PART: usize = 3;

/// English words that say nothing about a note.
const STOPWORDS: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of",
    "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
];

/// Short words that French and Italian write together with the next one: `l'école` is found by `école`.
const ELIDED: [&str; 22] = [
    "l", "d", "qu", "c", "s", "n", "m", "t", "j", "jusqu", "lorsqu", "puisqu", "quelqu", "quoiqu", "un", "dell", "all",
    "nell", "sull", "dall", "quest", "bell",
];

static STEMMER: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// Whom the terms are for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// A note: single characters of scripts without spaces too, so that a question of one character finds something.
    Index,
    /// A question: pairs only, where there are any.
    Query,
}

/// Appends the terms of a text, each followed by a space.
pub fn index_terms(text: &str, out: &mut String) {
    terms(text, Side::Index, &mut |term| {
        out.push_str(term);
        out.push(' ');
    });
}

/// The different terms of a question, in order, at most [`MAX_QUERY_TERMS`].
pub fn query_terms(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    terms(text, Side::Query, &mut |term| {
        if found.len() < MAX_QUERY_TERMS && !found.iter().any(|known| known == term) {
            found.push(term.to_owned());
        }
    });
    found
}

/// Every term that a note of this text would be found by.
pub fn term_set(text: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    terms(text, Side::Index, &mut |term| {
        if !found.contains(term) {
            found.insert(term.to_owned());
        }
    });
    found
}

fn terms(text: &str, side: Side, emit: &mut impl FnMut(&str)) {
    let text: Cow<'_, str> = if text.is_ascii() {
        text.into()
    } else {
        text.nfkc().filter(|c| !is_unwritten(*c)).collect::<String>().into()
    };
    let mut start: Option<usize> = None;
    for (at, c) in text.char_indices() {
        let inside = c.is_alphanumeric() || (!c.is_ascii() && is_combining_mark(c)) || is_apostrophe(&text, at, c);
        match start {
            None if inside && c != '\'' && c != '’' => start = Some(at),
            Some(from) if !inside => {
                word_terms(&text[from..at], side, emit);
                start = None;
            }
            _ => {}
        }
    }
    if let Some(from) = start {
        word_terms(&text[from..], side, emit);
    }
}

/// Format characters inside words (joiners, soft hyphens, marks of direction) say how a word is drawn, not what it is.
/// The space of no width does end a word.
fn is_unwritten(c: char) -> bool {
    !c.is_ascii() && c != '\u{200B}' && c.general_category() == GeneralCategory::Format
}

/// An apostrophe inside a word belongs to it: "don't", "l'été".
fn is_apostrophe(text: &str, at: usize, c: char) -> bool {
    (c == '\'' || c == '’') && text[at + c.len_utf8()..].chars().next().is_some_and(char::is_alphabetic)
}

fn word_terms(word: &str, side: Side, emit: &mut impl FnMut(&str)) {
    if word.is_ascii() {
        // Nearly every word of most vaults: no folding, no scripts to look for.
        let word = word.strip_suffix("'s").unwrap_or(word);
        if word.bytes().any(|b| b.is_ascii_uppercase()) {
            let parts = case_parts(word);
            if parts.len() > 1 {
                parts.iter().for_each(|part| emit_word(&part.to_ascii_lowercase(), emit));
            }
            emit_whole(&word.to_ascii_lowercase(), emit);
        } else {
            emit_whole(word, emit);
        }
        return;
    }
    let chars: Vec<char> = word.chars().collect();
    for run in chars.chunk_by(|a, b| is_unspaced(*a) == is_unspaced(*b)) {
        if run.first().is_some_and(|c| is_unspaced(*c)) {
            unspaced_terms(run, side, emit);
        } else {
            let folded = fold(run);
            emit_whole(folded.strip_suffix("'s").unwrap_or(&folded), emit);
        }
    }
}

/// A word, and the one it was written together with.
fn emit_whole(word: &str, emit: &mut impl FnMut(&str)) {
    emit_word(word, emit);
    if let Some((short, rest)) = word.split_once('\'')
        && ELIDED.contains(&short)
    {
        emit_word(rest, emit);
    }
}

fn emit_word(word: &str, emit: &mut impl FnMut(&str)) {
    if word.is_empty() || STOPWORDS.contains(&word) {
        return;
    }
    let word = word.char_indices().nth(MAX_TERM_CHARS).map_or(word, |(end, _)| &word[..end]);
    if word.len() > 2 && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'\'') {
        emit(&STEMMER.stem(word));
    } else {
        emit(word);
    }
}

/// Lower case, without what is written or left out as one likes: accents, vowel points, tatweel. Letters stay letters:
/// the vowel signs of Indian scripts, `й`, `ї`.
fn fold(chars: &[char]) -> String {
    let mut out = String::with_capacity(chars.len() * 2);
    let mut base = '\0';
    for c in chars.iter().flat_map(|c| c.to_lowercase()).nfd() {
        if is_combining_mark(c) {
            if is_letter_part(base, c) {
                out.push(c);
            }
            continue;
        }
        base = c;
        match c {
            '’' => out.push('\''),
            'ς' => out.push('σ'),
            'ـ' => {} // tatweel
            // One letter each, which keyboards write differently.
            'ٱ' => out.push('ا'),
            'ی' | 'ى' => out.push('ي'),
            'ک' => out.push('ك'),
            c => out.push(c),
        }
    }
    out.nfc().collect()
}

/// Whether a mark makes another letter of the one before it.
fn is_letter_part(base: char, mark: char) -> bool {
    match (base, mark as u32) {
        (_, 0x0591..=0x05C7) => false, // Hebrew points
        (_, 0x0610..=0x061A | 0x064B..=0x0652 | 0x0656..=0x065F | 0x0670 | 0x06D6..=0x06ED) => false, // Arabic vowels
        ('ا', 0x0653..=0x0655) => false, // alef with hamza or madda
        (base, _) if base.is_ascii_alphabetic() => false,
        ('\u{0370}'..='\u{03FF}', _) => false, // Greek
        ('е', 0x0308) => false,                // ё
        ('а' | 'е' | 'и' | 'о' | 'у' | 'ы' | 'э' | 'ю' | 'я' | 'і' | 'є', 0x0300 | 0x0301) => false, // stress
        _ => true,
    }
}

/// `getHTTPResponse` -> get, HTTP, Response; a word with shorter parts is left whole.
fn case_parts(word: &str) -> Vec<&str> {
    let bytes = word.as_bytes();
    let mut cuts = vec![0];
    for i in 1..bytes.len() {
        let (before, here, after) = (bytes[i - 1], bytes[i], bytes.get(i + 1));
        let starts = (here.is_ascii_uppercase() && before.is_ascii_lowercase())
            || (here.is_ascii_uppercase() && before.is_ascii_uppercase() && after.is_some_and(u8::is_ascii_lowercase));
        if starts {
            cuts.push(i);
        }
    }
    cuts.push(bytes.len());
    let parts: Vec<&str> = cuts.windows(2).map(|cut| &word[cut[0]..cut[1]]).collect();
    if parts.iter().all(|part| part.len() >= MIN_PART) { parts } else { vec![word] }
}

/// Scripts written without spaces between words, and Hangul, whose words carry their particles with them.
pub(super) fn is_unspaced(c: char) -> bool {
    matches!(c as u32,
        0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF // Thai, Lao, Myanmar, Khmer
        | 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF // kana, Han
        | 0xAC00..=0xD7AF) // Hangul
}

fn unspaced_terms(run: &[char], side: Side, emit: &mut impl FnMut(&str)) {
    let mut term = String::with_capacity(8);
    if side == Side::Index || run.len() == 1 {
        for c in run {
            emit(c.encode_utf8(&mut [0; 4]));
        }
    }
    for pair in run.windows(2) {
        term.clear();
        term.extend(pair);
        emit(&term);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn indexed(text: &str) -> Vec<String> {
        let mut out = String::new();
        index_terms(text, &mut out);
        out.split(' ').filter(|t| !t.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn words_are_folded_and_stemmed() {
        assert_eq!(
            indexed("The Runners' running, CAFÉS and naïve Anna's don't"),
            ["runner", "run", "cafe", "naiv", "anna", "don't"]
        );
        assert_eq!(query_terms("café"), query_terms("cafe\u{301}"));
        assert_eq!(
            indexed("createFile mRNA BRCA1 IL-6 getHTTPResponse"),
            ["creat", "file", "createfil", "mrna", "brca1", "il", "6", "get", "http", "respons", "gethttprespons"]
        );
    }

    #[test]
    fn scripts_without_spaces_are_found_by_any_part() {
        for (note, question) in [
            ("私は黒い猫が好きです", "猫"),
            ("私は黒い猫が好きです", "黒い猫"),
            ("今日の天気は晴れ", "天気"),
            ("한국어 문서를 검색합니다", "검색"),
            ("ภาษาไทยไม่มีช่องว่าง", "ไทย"),
            ("मौसम की जानकारी", "मौसम"),
        ] {
            let terms = indexed(note);
            assert!(query_terms(question).iter().all(|term| terms.contains(term)), "{question} in {note}: {terms:?}");
        }
        assert_eq!(query_terms("हिन्दी"), ["हिन्दी"]);
        assert_eq!(query_terms("天気API"), ["天気", "api"]);
    }

    #[test]
    fn a_word_is_found_however_its_letters_are_pointed_joined_or_accented() {
        for (note, question) in [
            ("مُحَمَّد كَتَبَ", "محمد"),
            ("أحمد وإبراهيم وآدم", "احمد"),
            ("كتـــاب", "كتاب"),
            ("کتاب فارسی", "كتاب"),
            ("می\u{200c}خواهم", "میخواهم"),
            ("שָׁלוֹם", "שלום"),
            ("Ο ΔΡΟΜΟΣ της πόλης", "δρόμος"),
            ("Καλημέρα", "καλημερα"),
            ("Ёлка", "елка"),
            ("за́мок", "замок"),
            ("co\u{ad}opera\u{ad}tion", "cooperation"),
            ("क्\u{200d}ष", "क्ष"),
            ("l'école", "école"),
            ("l’École d’été", "ecole"),
            ("jusqu'à l'Allemagne", "allemagne"),
            ("dell’acqua", "acqua"),
            ("I don’t know", "don't"),
            ("Anna’s", "anna"),
            ("une idée", "l'idée"),
        ] {
            let terms = indexed(note);
            assert!(query_terms(question).iter().any(|term| terms.contains(term)), "{question} in {note}: {terms:?}");
        }
        for (one, other) in [("мой", "мои"), ("मौसम", "मसम"), ("їжа", "іжа"), ("سؤال", "سوال")]
        {
            assert_ne!(query_terms(one), query_terms(other), "these are letters, not accents");
        }
        assert_eq!(query_terms("l'école"), ["l'ecol", "ecol"]);
        assert_eq!(query_terms("don't o'clock rock'n'roll"), ["don't", "o'clock", "rock'n'rol"]);
        assert_eq!(indexed("sala\u{200b}mandra"), ["sala", "mandra"], "a space is a space, seen or not");
    }

    proptest! {
        #[test]
        fn whatever_is_asked_in_the_words_of_a_note_is_found(text in "\\PC{0,80}") {
            let terms = indexed(&text);
            for term in query_terms(&text) {
                prop_assert!(!term.is_empty() && !term.contains(char::is_whitespace), "{term:?}");
                prop_assert!(terms.contains(&term), "{term:?} in {terms:?}");
            }
        }
    }
}
