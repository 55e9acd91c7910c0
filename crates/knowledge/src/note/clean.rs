//! From Markdown to plain text: what is shown and embedded. Never longer than what it was made from.

use regex::Regex;
use std::{borrow::Cow, ops::Range, sync::LazyLock};

/// HTML tags; text between them stays. A lone `<` is left alone.
static HTML_TAG: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"</?[A-Za-z][^<>\n]{0,500}>").ok());
/// `[[target#heading|alias]]` and embeds.
static WIKI_LINK: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"!?\[\[([^\[\]\n|]*)(?:\|([^\[\]\n]*))?\]\]").ok());
/// `[text](target)` and images.
static MARKDOWN_LINK: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"!?\[([^\[\]\n]*)\]\([^()\n]*\)").ok());

/// The text of a stretch without what is opaque (code blocks, comments), without tags of HTML and marks of Markdown,
/// white space normalised. Inline code stays as text: it is part of its sentence.
pub fn plain_text(text: &str, range: &Range<usize>, opaque: &[Range<usize>]) -> String {
    let mut kept = String::with_capacity(range.len());
    let mut at = range.start;
    for stretch in overlapping(opaque, range) {
        kept.push_str(&text[at..stretch.start.max(at)]);
        if is_inline_code(text, stretch) {
            // A window may end inside it: only its part of the code is its own.
            kept.push_str(text[stretch.start.max(at)..stretch.end.min(range.end)].trim_matches('`'));
        } else {
            kept.push('\n');
        }
        at = stretch.end.min(range.end).max(at);
    }
    kept.push_str(&text[at..range.end]);
    tidy(&without_markup(&kept))
}

/// The code and comments of a stretch: searchable as words, kept out of what is shown and embedded.
pub(super) fn opaque_text(text: &str, range: &Range<usize>, opaque: &[Range<usize>]) -> String {
    let mut out = String::new();
    for stretch in overlapping(opaque, range).filter(|stretch| !is_inline_code(text, stretch)) {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(text[stretch.start.max(range.start)..stretch.end.min(range.end)].trim());
    }
    out
}

fn overlapping<'a>(opaque: &'a [Range<usize>], range: &'a Range<usize>) -> impl Iterator<Item = &'a Range<usize>> {
    let first = opaque.partition_point(|stretch| stretch.end <= range.start);
    opaque[first..].iter().take_while(|stretch| stretch.start < range.end)
}

fn is_inline_code(text: &str, stretch: &Range<usize>) -> bool {
    let code = &text[stretch.clone()];
    code.starts_with('`') && !code.starts_with("```")
}

fn without_markup(text: &str) -> String {
    let mut text = Cow::Borrowed(text);
    let mut replace = |regex: &Option<Regex>, by: &dyn Fn(&regex::Captures<'_>) -> String| {
        if let Some(regex) = regex
            && let Cow::Owned(changed) = regex.replace_all(&text, by)
        {
            text = Cow::Owned(changed);
        }
    };
    replace(&WIKI_LINK, &|found| {
        let target = found.get(1).map_or("", |m| m.as_str());
        found.get(2).map_or(target, |alias| alias.as_str()).trim_end_matches('\\').to_owned()
    });
    replace(&MARKDOWN_LINK, &|found| found[1].to_owned());
    replace(&HTML_TAG, &|_| " ".to_owned());
    text.into_owned()
}

/// Emphasis marks, list and quote marks at the beginnings of lines, and runs of white space go. Lines stay lines.
fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || c == '>');
        let line = line.strip_prefix("- [ ] ").or_else(|| line.strip_prefix("- [x] ")).unwrap_or(line);
        let mut wrote = false;
        for word in line.split_whitespace() {
            let word = strip_emphasis(word);
            if word.is_empty() || is_rule(word) {
                continue;
            }
            if wrote {
                out.push(' ');
            } else if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(word);
            wrote = true;
        }
    }
    out
}

/// `**word**`, `__word__`, `==word==`, `~~word~~`, `*word*` at the edges of a word; `snake_case` and `*args` stay.
fn strip_emphasis(word: &str) -> &str {
    let mut word = word;
    for mark in ["**", "__", "==", "~~"] {
        word = word.strip_prefix(mark).unwrap_or(word);
        word = word.strip_suffix(mark).unwrap_or(word);
    }
    match (word.strip_prefix('*'), word.strip_suffix('*')) {
        (Some(_), Some(_)) if word.len() > 2 => &word[1..word.len() - 1],
        _ => word,
    }
}

/// Lines and table borders drawn with punctuation.
fn is_rule(word: &str) -> bool {
    word.len() >= 3 && word.bytes().all(|b| matches!(b, b'-' | b'=' | b'*' | b'_' | b'|' | b':' | b'+'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use toolyard_vault::outline;

    fn plain(text: &str) -> String {
        plain_text(text, &(0..text.len()), &outline(text).opaque)
    }

    #[test]
    fn markup_goes_and_text_stays() {
        assert_eq!(
            plain("**Bold** and [[Note|alias]] or [[Other#h]] <b>x</b> [l](http://a) ![i](b.png)"),
            "Bold and alias or Other#h x l i"
        );
        assert_eq!(plain("a `code` b\n\n```rust\nfn main() {}\n```\nc <!-- hidden --> d"), "a code b\nc\nd");
        assert_eq!(plain("> quote\n\n\n  - [x] done\n| a | b |\n|---|---|"), "quote\ndone\n| a | b |");
        assert_eq!(plain("1 < 2 and x_y_z *args"), "1 < 2 and x_y_z *args");
    }

    #[test]
    fn code_and_comments_are_kept_apart() {
        let text = "a `i` b\n```\nfn x\n```\n<!-- c --> d";
        assert_eq!(opaque_text(text, &(0..text.len()), &outline(text).opaque), "```\nfn x\n```\n<!-- c -->");
    }

    proptest! {
        #[test]
        fn plain_text_is_never_longer(text in "(?s)([a-z\\[\\]|`<>*_ \n#é日!()-]{0,120})") {
            prop_assert!(plain(&text).chars().count() <= text.chars().count());
        }
    }
}
