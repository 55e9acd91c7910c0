//! Splits text into word pieces exactly as the tokenizer of the distilled model does (BERT, uncased): text is
//! lower-cased and stripped of accents, split at spaces and punctuation, and every Chinese character is a word. Each
//! word is split into the longest known pieces from the left. A word that cannot be split into known pieces is skipped.

use super::vocabulary::Vocabulary;
use unicode_normalization::char::decompose_canonical;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// Longer words are skipped, as the original tokenizer does.
const MAX_WORD_CHARS: usize = 100;

/// Calls `emit` with the row of each piece of a text, in order.
pub(crate) fn pieces(vocabulary: &Vocabulary, text: &str, mut emit: impl FnMut(u16)) {
    let mut word = Word { vocabulary, letters: String::with_capacity(32), rows: Vec::with_capacity(8) };
    for c in text.chars() {
        match class(c) {
            Class::Inside => word.push(c),
            Class::Alone => {
                word.end(&mut emit);
                word.push(c);
                word.end(&mut emit);
            }
            Class::Space => word.end(&mut emit),
            Class::Nothing => {}
        }
    }
    word.end(&mut emit);
}

enum Class {
    /// Part of a word.
    Inside,
    /// A one-character word.
    Alone,
    /// A separator between words.
    Space,
    /// Skipped without ending the word.
    Nothing,
}

fn class(c: char) -> Class {
    if c.is_ascii() {
        return match c {
            ' ' | '\t' | '\n' | '\r' => Class::Space,
            _ if c.is_ascii_punctuation() => Class::Alone,
            _ if c.is_ascii_control() => Class::Nothing,
            _ => Class::Inside,
        };
    }
    if c.is_whitespace() {
        return Class::Space;
    }
    match c.general_category_group() {
        GeneralCategoryGroup::Other => Class::Nothing,
        GeneralCategoryGroup::Punctuation => Class::Alone,
        _ if c == char::REPLACEMENT_CHARACTER => Class::Nothing,
        _ if is_han(c) => Class::Alone,
        _ => Class::Inside,
    }
}

fn is_han(c: char) -> bool {
    matches!(c as u32, 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x2A6DF | 0x2A700..=0x2CEAF
        | 0x2F800..=0x2FA1F)
}

/// The word that is being read.
struct Word<'a> {
    vocabulary: &'a Vocabulary,
    letters: String,
    rows: Vec<u16>,
}

impl Word<'_> {
    fn push(&mut self, c: char) {
        if c.is_ascii() {
            self.letters.push(c.to_ascii_lowercase());
            return;
        }
        let letters = &mut self.letters;
        decompose_canonical(c, |part| {
            if part.general_category() != GeneralCategory::NonspacingMark {
                letters.extend(part.to_lowercase());
            }
        });
    }

    /// Splits the word into pieces and starts a new word.
    fn end(&mut self, emit: &mut impl FnMut(u16)) {
        let whole = self.letters.as_bytes();
        if whole.is_empty() {
            return;
        }
        self.rows.clear();
        let short = whole.len() <= MAX_WORD_CHARS || self.letters.chars().count() <= MAX_WORD_CHARS;
        let mut start = 0;
        while short && start < whole.len() {
            let mut end = whole.len().min(start + self.vocabulary.longest);
            let found = loop {
                if end <= start {
                    break None;
                }
                // A slice that ends inside a character matches no piece.
                match self.vocabulary.row(&whole[start..end], start > 0) {
                    Some(row) => break Some(row),
                    None => end -= 1,
                }
            };
            let Some(row) = found else {
                self.rows.clear();
                break;
            };
            self.rows.push(row);
            start = end;
        }
        self.rows.iter().for_each(|row| emit(*row));
        self.letters.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedding::asset::ASSET;
    use proptest::prelude::*;

    fn cut(text: &str) -> Vec<String> {
        let vocabulary = Vocabulary::new(ASSET.vocabulary);
        let mut found = Vec::new();
        pieces(&vocabulary, text, |row| found.push(String::from_utf8_lossy(vocabulary.piece(row)).into_owned()));
        found
    }

    #[test]
    fn words_are_cut_as_the_teacher_cuts_them() {
        // Expected values come from the original tokenizer.
        assert_eq!(
            cut("Unaffable re-embedding, isn't it?"),
            ["una", "##ffa", "##ble", "re", "-", "em", "##bed", "##ding", ",", "isn", "'", "t", "it", "?"]
        );
        assert_eq!(cut("Café NAÏVE Łódź"), ["cafe", "naive", "łodz"]);
        assert_eq!(cut("photosynthesis"), ["photos", "##yn", "##thesis"]);
        assert_eq!(cut("a\u{200b}b\u{0}c\td"), ["abc", "d"]);
        assert_eq!(cut("«über»"), ["«", "uber", "»"]);
        assert_eq!(cut(""), Vec::<String>::new());
    }

    #[test]
    fn a_word_that_is_too_long_or_unknown_is_left_out_and_the_rest_stays() {
        let long = "a".repeat(MAX_WORD_CHARS + 1);
        assert_eq!(cut(&format!("one {long} two")), ["one", "two"]);
        assert_eq!(cut("one \u{16A0}\u{16A1} two"), ["one", "two"]);
    }

    proptest! {
        #[test]
        fn any_text_is_cut_without_panic_and_twice_the_same(text in any::<String>()) {
            prop_assert_eq!(cut(&text), cut(&text));
        }
    }
}
