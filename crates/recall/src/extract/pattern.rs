//! [`Pattern`]: a regular expression that is matched against one byte for each character of a sentence.
//!
//! A class such as `\p{L}` compiles to hundreds of states, because it lists every letter of Unicode in UTF-8. The rules
//! have dozens of them: as patterns on UTF-8 they took 13 MB, and 10 MB more of caches for each thread that used them.
//! Here a [`Sentence`] has one byte for each character, in which letters outside ASCII are two classes. The same rules
//! take less than 1 MB.

use regex::{Regex, bytes};
use std::ops::Range;

/// Stands for a letter outside ASCII that is no capital. It is a byte that `\b` counts as part of a word.
const LETTER: u8 = b'_';
/// Stands for a capital letter outside ASCII.
const CAPITAL: u8 = 0xC0;
/// Stands for any other character outside ASCII, and for an underscore.
const OTHER: u8 = 0x80;

/// A sentence, and the bytes that patterns see.
pub(super) struct Sentence<'a> {
    text: &'a str,
    bytes: Vec<u8>,
    /// Where each character begins in the text; empty when each character is one byte.
    starts: Vec<usize>,
}

impl<'a> Sentence<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let bytes = text.chars().map(byte_of).collect();
        let starts = if text.is_ascii() { Vec::new() } else { text.char_indices().map(|(at, _)| at).collect() };
        Self { text, bytes, starts }
    }

    /// The text of these characters.
    fn part(&self, characters: Range<usize>) -> &'a str {
        let at = |character: usize| match self.starts.is_empty() {
            true => character,
            false => self.starts.get(character).copied().unwrap_or(self.text.len()),
        };
        self.text.get(at(characters.start)..at(characters.end)).unwrap_or_default()
    }
}

fn byte_of(c: char) -> u8 {
    match u8::try_from(c) {
        Ok(b'_') => OTHER,
        Ok(byte) if byte.is_ascii() => byte,
        _ if c.is_uppercase() => CAPITAL,
        _ if c.is_alphabetic() => LETTER,
        _ => OTHER,
    }
}

/// A compiled pattern.
pub(super) enum Pattern {
    /// Matched against the bytes of a sentence.
    Bytes(bytes::Regex),
    /// Matched against the text: the pattern has words in a script other than Latin.
    Text(Regex),
}

impl Pattern {
    /// Compiles a pattern. `\p{Lu}` may occur outside of a class, and `\p{L}` inside one.
    pub(super) fn new(pattern: &str) -> Option<Self> {
        let flat = pattern.replace(r"\p{Lu}", r"[A-Z\xC0]").replace(r"\p{L}", r"A-Za-z_\xC0").replace('é', "_");
        if flat.is_ascii() {
            return bytes::RegexBuilder::new(&flat).unicode(false).build().ok().map(Self::Bytes);
        }
        Regex::new(pattern).ok().map(Self::Text)
    }

    /// The named groups of the first match.
    pub(super) fn captures<'a>(&self, sentence: &Sentence<'a>) -> Option<Groups<'a>> {
        let group = |found: Option<&'a str>| found.map_or("", str::trim);
        match self {
            Self::Bytes(pattern) => {
                let caught = pattern.captures(&sentence.bytes)?;
                let named = |name: &str| group(caught.name(name).map(|found| sentence.part(found.range())));
                Some(Groups { subject: named("s"), attribute: named("k"), object: named("o") })
            }
            Self::Text(pattern) => {
                let caught = pattern.captures(sentence.text)?;
                let named = |name: &str| group(caught.name(name).map(|found| found.as_str()));
                Some(Groups { subject: named("s"), attribute: named("k"), object: named("o") })
            }
        }
    }
}

/// What the named groups of a rule matched, without space around it; empty when a group did not take part.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Groups<'a> {
    /// The group `s`.
    pub(super) subject: &'a str,
    /// The group `k`.
    pub(super) attribute: &'a str,
    /// The group `o`.
    pub(super) object: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups<'a>(pattern: &str, text: &'a str) -> Option<(&'a str, &'a str)> {
        Pattern::new(pattern).unwrap().captures(&Sentence::new(text)).map(|groups| (groups.subject, groups.object))
    }

    #[test]
    fn letters_of_any_script_are_letters() {
        let pattern = r"^(?P<s>\p{Lu}[\p{L}-]+) likes (?P<o>[^,;.!?()]+)";
        assert_eq!(groups(pattern, "Zoë likes crème brûlée, daily"), Some(("Zoë", "crème brûlée")));
        assert_eq!(groups(pattern, "Łucja likes żurek"), Some(("Łucja", "żurek")));
        assert_eq!(groups(pattern, "Ольга likes 東京 in spring"), Some(("Ольга", "東京 in spring")));
        assert_eq!(groups(pattern, "ольга likes tea"), None);
        assert_eq!(groups(pattern, "Zo_e likes tea"), None);
        assert_eq!(groups(pattern, "Zo😀 likes tea"), None);
    }

    #[test]
    fn a_word_does_not_begin_within_a_word_of_another_script() {
        let pattern = r"(?P<s>\b[Ii]) like (?P<o>.+)";
        assert_eq!(groups(pattern, "éi like tea"), None);
        assert_eq!(groups(pattern, "– I like tea"), Some(("I", "tea")));
    }

    #[test]
    fn words_of_other_scripts_are_matched_in_the_text() {
        let pattern = r"(?P<s>我|用户)是(?P<o>[^，。！？]+)";
        assert!(matches!(Pattern::new(pattern), Some(Pattern::Text(_))));
        assert_eq!(groups(pattern, "我是工程师。"), Some(("我", "工程师")));
    }
}
