//! Converts Markdown to plain text, which is shown and embedded. The result is never longer than the input.

use super::markup;
use std::ops::Range;

/// Marks around the number of a piece of inline code while the text around it is cleaned. They are noncharacters, so
/// that nothing is lost if a note contains them.
const CODE_MARKS: [char; 2] = ['\u{FDD0}', '\u{FDD1}'];

/// A part of a note without markup.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PlainText {
    /// The text that is shown and embedded.
    pub(super) text: String,
    /// Link targets that the text does not contain: searched by words only.
    pub(super) targets: Vec<String>,
}

/// The text of a range without opaque parts (code blocks, comments), HTML tags and Markdown markup, and with normalised
/// white space. Inline code is kept as text, because it is part of its sentence.
pub fn plain_text(text: &str, range: &Range<usize>, opaque: &[Range<usize>]) -> String {
    plain(text, range, opaque).text
}

/// Like [`plain_text`], with the link targets.
pub(super) fn plain(text: &str, range: &Range<usize>, opaque: &[Range<usize>]) -> PlainText {
    let mut kept = String::with_capacity(range.len());
    let mut code: Vec<String> = Vec::new();
    let mut at = range.start;
    let [open, close] = CODE_MARKS;
    for stretch in overlapping(opaque, range) {
        push_unmarked(&mut kept, &text[at..stretch.start.max(at)]);
        if is_inline_code(text, stretch) {
            // A range may end inside inline code; only the part within the range belongs to it.
            let own = text[stretch.start.max(at)..stretch.end.min(range.end)].trim_matches('`');
            let own = own.split_whitespace().collect::<Vec<_>>().join(" ");
            if !own.is_empty() {
                kept.push_str(&format!("{open}{}{close}", code.len()));
                code.push(own);
            }
        } else {
            kept.push('\n');
        }
        at = stretch.end.min(range.end).max(at);
    }
    push_unmarked(&mut kept, &text[at..range.end]);
    let (shown, targets) = markup::without_markup(&kept);
    PlainText {
        text: with_code(&tidy(&shown), &code),
        targets: targets.iter().map(|target| with_code(target, &code)).collect(),
    }
}

fn push_unmarked(out: &mut String, text: &str) {
    if text.contains(CODE_MARKS) {
        out.extend(text.chars().filter(|c| !CODE_MARKS.contains(c)));
    } else {
        out.push_str(text);
    }
}

/// Restores inline code.
fn with_code(text: &str, code: &[String]) -> String {
    let [open, close] = CODE_MARKS;
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(open) {
        out.push_str(before);
        let (number, after) = after.split_once(close).unwrap_or((after, ""));
        out.push_str(number.parse().ok().and_then(|number: usize| code.get(number)).map_or("", String::as_str));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The code and comments of a range: searchable by words, but neither shown nor embedded.
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

/// Removes emphasis, list and quote markers at the start of lines, and repeated white space. Line breaks are kept.
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

/// Strips `**word**`, `__word__`, `==word==`, `~~word~~`, `*word*`; `snake_case` and `*args` are kept.
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

/// Rules and table borders made of punctuation.
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
        assert_eq!(plain("[![alt](i.png)](http://a/(b)) <br/> <details open>x</details>"), "alt x");
    }

    #[test]
    fn only_tags_of_html_are_markup() {
        for (text, wanted) in [
            ("a `Vec<String>` b", "a Vec<String> b"),
            ("open `<details>` first", "open <details> first"),
            ("`**kwargs` and `--- x`", "**kwargs and --- x"),
            ("`[[link]]` in [`code`](http://x)", "[[link]] in code"),
            ("a HashMap<String, u8> b", "a HashMap<String, u8> b"),
            ("a <b and c> d", "a <b and c> d"),
            ("cp <source-file> <dest>", "cp <source-file> <dest>"),
            ("see <https://example.org/x> or <a@b.org>", "see https://example.org/x or a@b.org"),
            ("<my-icon name=\"x\"> <B>bold</B> <p class=a>", "bold"),
            ("a\u{FDD0}0\u{FDD1}b `c`", "a0b c"),
        ] {
            assert_eq!(plain(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_links_lead_to_is_kept_where_the_text_does_not_say_it() {
        let targets = |text: &str| super::plain(text, &(0..text.len()), &outline(text).opaque).targets;
        assert_eq!(
            targets("[[Anna|my boss]] [[Bob]] [x](https://a.org/b \"t\") ![](<c d.png>) [e](f%20g.md) [h](#i)"),
            ["Anna", "https://a.org/b", "c d.png", "f g.md"]
        );
        assert_eq!(targets("<a href=\"http://x.org\">y</a> <img src='z.png'>"), ["http://x.org", "z.png"]);
        assert_eq!(targets("![](data:image/png;base64,AAAA) [a](a) `[b](c)`"), Vec::<String>::new());
    }

    #[test]
    fn code_and_comments_are_kept_apart() {
        let text = "a `i` b\n```\nfn x\n```\n<!-- c --> d";
        assert_eq!(opaque_text(text, &(0..text.len()), &outline(text).opaque), "```\nfn x\n```\n<!-- c -->");
    }

    proptest! {
        #[test]
        fn plain_text_is_never_longer(text in "(?s)([a-z\\[\\]|`<>*_ \n#é日!()@:=\u{FDD0}-]{0,120})") {
            prop_assert!(plain(&text).chars().count() <= text.chars().count());
        }
    }
}
