//! Tags: `#word` in the text and `tags` in front matter. Stored in lower case without the hash; `a/b` is a subtag of
//! `a`.

use super::markup;
use crate::text::nfc;
use std::ops::Range;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// Maximum length of a tag, in characters.
const MAX_TAG_CHARS: usize = 100;

/// The normalised form of a tag; `None` when it is not a tag. A tag needs a character that is not a digit.
pub fn normal_tag(text: &str) -> Option<String> {
    let text = text.trim().trim_start_matches('#').trim_matches('/');
    let fits = !text.is_empty() && text.chars().count() <= MAX_TAG_CHARS && text.chars().all(is_tag_char);
    (fits && text.chars().any(|c| !c.is_numeric() && c != '/')).then(|| nfc(&text.to_lowercase()).into_owned())
}

fn is_tag_char(c: char) -> bool {
    // Combining marks (Devanagari vowels, for example) are neither letters nor digits but belong to the word, as do the
    // joiners of Persian, Hindi and emoji.
    c.is_alphanumeric()
        || matches!(c, '_' | '-' | '/' | '\u{200C}' | '\u{200D}')
        || unicode_normalization::char::is_combining_mark(c)
        || is_emoji(c)
}

/// Emoji are symbols; skin tones, which may follow them, are modifiers.
fn is_emoji(c: char) -> bool {
    !c.is_ascii() && c.general_category() == GeneralCategory::OtherSymbol || ('\u{1F3FB}'..='\u{1F3FF}').contains(&c)
}

/// The tags in a line of text, in order, with their positions. The caller excludes code.
pub fn inline_tags(text: &str) -> Vec<(String, Range<usize>)> {
    let mut found = Vec::new();
    let mut hashes = memchr::memchr_iter(b'#', text.as_bytes()).peekable();
    // In a link or an HTML tag a hash starts an anchor or a colour.
    let targets = if hashes.peek().is_some() { markup::link_targets(text) } else { Vec::new() };
    let (mut targets, mut in_target_until) = (targets.into_iter().peekable(), 0);
    for at in hashes {
        while let Some(target) = targets.next_if(|target| target.start <= at) {
            in_target_until = target.end.max(in_target_until);
        }
        if at < in_target_until {
            continue;
        }
        // `a#b` is a link to a heading or an anchor, `\#` is escaped, `##` a heading.
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| !(c.is_whitespace() || matches!(c, '(' | '[' | '{' | ',' | ';' | '"' | '\''))) {
            continue;
        }
        let rest = &text[at + 1..];
        let length = rest.find(|c| !is_tag_char(c)).unwrap_or(rest.len());
        if let Some(tag) = normal_tag(&rest[..length]) {
            found.push((tag, at..at + 1 + length));
        }
    }
    found
}

/// The line, if it consists of tags only; such a line starts a section in a date note.
pub(super) fn tag_line(line: &str) -> Option<&str> {
    let line = line.trim();
    let mut words = line.split_whitespace().peekable();
    words.peek()?;
    words.all(|word| word.starts_with('#') && !word.starts_with("##") && normal_tag(word).is_some()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolyard_noteindex::names::tag_matches;

    #[test]
    fn tags_are_told_from_headings_anchors_and_numbers() {
        let tags = |text: &str| inline_tags(text).into_iter().map(|(tag, _)| tag).collect::<Vec<_>>();
        assert_eq!(
            tags("#One two#no #two/Three, (#vier) ##x #123 #y2024 https://a/#b \\#c"),
            ["one", "two/three", "vier", "y2024"]
        );
        assert_eq!(tags("#日本語 #हिन्दी #naïve"), ["日本語", "हिन्दी", "naïve"]);
        assert_eq!(tags("#nai\u{308}ve #CAFE\u{301}"), ["naïve", "café"], "one spelling of each letter");
        assert_eq!(tags("#🚀 #todo/🔥 #👩🏽‍🚀 #❤️ #2024 #1️⃣"), ["🚀", "todo/🔥", "👩🏽‍🚀", "❤️", "1️⃣"]);
        assert_eq!(
            tags(
                "[Intro](#intro) [[#Goals]] [[Note#Heading]] [[Note #Heading|x]] <a href=\"#top\"> ![x](<#y z>) \
                  <font color='#ff0000'> https://a.org/b#c <https://a.org/ #d> [#real](x) (#too) [t](u \"#title\")"
            ),
            ["d", "real", "too"]
        );
        assert_eq!(tags("[ref]: #anchor"), Vec::<String>::new());
        assert_eq!(tags("[^1]: #noted"), ["noted"]);
        assert_eq!(tag_line(" #DayInShort #x "), Some("#DayInShort #x"));
        assert_eq!(tag_line("#a b"), None);
        assert_eq!(tag_line("# a"), None);
        assert_eq!(tag_line(""), None);
        assert!(tag_matches("a/b", "a") && tag_matches("a", "a") && !tag_matches("ab", "a"));
    }
}
