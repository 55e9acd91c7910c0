//! Writing systems: which characters are written without spaces between words, and how letters are folded so that a
//! query matches a word regardless of accents, vowel points or joined forms.

use std::borrow::Cow;
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// Whether a character belongs to a script that is written without spaces between words, or to Hangul, where particles
/// are attached to words. Such text is indexed by pairs of neighbouring characters.
pub fn is_unspaced(c: char) -> bool {
    matches!(c as u32,
        0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF // Thai, Lao, Myanmar, Khmer
        | 0x3040..=0x30FF | 0x31F0..=0x31FF | 0xFF66..=0xFF9D // kana
        | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF // Han
        | 0xAC00..=0xD7AF) // Hangul
}

/// Normalises a text for matching: compatibility characters are composed, and format characters inside words (joiners,
/// soft hyphens, direction marks) are removed, because they change how a word is displayed and not which word it is.
/// The zero-width space is kept because it separates words.
pub fn normalise(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return text.into();
    }
    let is_drawn = |c: char| !c.is_ascii() && c != '\u{200B}' && c.general_category() == GeneralCategory::Format;
    text.nfkc().filter(|c| !is_drawn(*c)).collect::<String>().into()
}

/// Appends a word in lower case, without marks that writers use optionally: accents, vowel points, tatweel. Marks that
/// form a different letter are kept: the vowel signs of Indian scripts, `й`, `ї`.
pub fn fold(word: &str, out: &mut String) {
    if word.is_ascii() {
        out.extend(word.bytes().map(|byte| byte.to_ascii_lowercase() as char));
        return;
    }
    let mut letters = String::with_capacity(word.len());
    let mut base = '\0';
    for c in word.chars().flat_map(char::to_lowercase).nfd() {
        if is_combining_mark(c) {
            if is_letter_part(base, c) {
                letters.push(c);
            }
            continue;
        }
        base = c;
        match c {
            '’' => letters.push('\''),
            'ς' => letters.push('σ'),
            'ـ' => {} // tatweel
            // Variants of the same letter, depending on the keyboard layout.
            'ٱ' => letters.push('ا'),
            'ی' | 'ى' => letters.push('ي'),
            'ک' => letters.push('ك'),
            c => letters.push(c),
        }
    }
    out.extend(letters.nfc());
}

/// Whether a combining mark turns the base character into a different letter.
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
