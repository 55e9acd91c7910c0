//! Finds the links of a note: wikilinks, embeds, Markdown links and reference definitions, front matter included. Code
//! and comments are skipped. Only the path of a link is located; heading, block, alias and title stay unchanged.

use super::scan::{Scan, indent};
use std::ops::Range;

/// Parentheses in a link's target may be nested this deep.
const MAX_PARENTHESES: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkForm {
    /// `[[target#heading|alias]]`, with or without `!`.
    Wiki,
    /// A link `[text](target)`.
    Markdown,
    /// A link `[text](<target>)`.
    Angle,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) form: LinkForm,
    /// The bytes of the path in the note.
    pub(crate) range: Range<usize>,
    /// The path, percent-decoded for Markdown links.
    pub(crate) target: String,
}

pub(crate) fn links(scan: &Scan<'_>) -> Vec<Link> {
    let text = scan.text;
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(offset) = memchr::memchr2(b'[', b']', &bytes[at..]) {
        let here = at + offset;
        at = here + 1;
        if let Some(range) = scan.opaque_after(here).filter(|r| r.start <= here) {
            at = range.end.max(at);
            continue;
        }
        if is_escaped(bytes, here) {
            continue;
        }
        if bytes[here] == b'[' {
            if let Some((link, end)) = wiki(text, here) {
                found.extend(link);
                at = end;
            } else if let Some(link) = definition(scan, here) {
                found.push(link);
            }
        } else if bytes.get(here + 1) == Some(&b'(')
            && let Some(link) = inline(text, here + 2)
        {
            at = link.range.end;
            found.push(link);
        }
    }
    found
}

fn is_escaped(bytes: &[u8], at: usize) -> bool {
    bytes[..at].iter().rev().take_while(|b| **b == b'\\').count() % 2 == 1
}

/// The link, if it names a file, and where it ends.
fn wiki(text: &str, at: usize) -> Option<(Option<Link>, usize)> {
    let inner_start = at + 2;
    if text.as_bytes().get(at + 1) != Some(&b'[') {
        return None;
    }
    let rest = text.get(inner_start..)?;
    let end = rest.find(['\n', '[']).unwrap_or(rest.len());
    let close = rest[..end].find("]]")?;
    let inner = &rest[..close];
    let target_end = inner.find(['|', '#']).unwrap_or(inner.len());
    let raw = inner[..target_end].trim_end_matches('\\');
    let trimmed = raw.trim();
    let start = inner_start + (raw.len() - raw.trim_start().len());
    let end = inner_start + close + 2;
    let names_file = !trimmed.is_empty() && !trimmed.contains("://");
    Some((
        names_file.then(|| Link {
            form: LinkForm::Wiki,
            range: start..start + trimmed.len(),
            target: trimmed.to_owned(),
        }),
        end,
    ))
}

/// The destination of `](`, beginning at `at`.
fn inline(text: &str, at: usize) -> Option<Link> {
    let rest = &text[at..];
    let skipped = rest.len() - rest.trim_start_matches([' ', '\t']).len();
    destination(text, at + skipped, true)
}

/// `[label]: destination` at the beginning of a line.
fn definition(scan: &Scan<'_>, at: usize) -> Option<Link> {
    let text = scan.text;
    let line = scan.lines[scan.line_number(at) - 1];
    let (width, rest) = indent(scan.line(&line));
    if width > 3 || line.end - rest.len() != at {
        return None;
    }
    let label_end = text[at..line.end].find("]:")?;
    let after = at + label_end + 2;
    let skipped = text[after..line.end].len() - text[after..line.end].trim_start().len();
    if text[at..].starts_with("[^") || after + skipped == line.end {
        return None;
    }
    destination(text, after + skipped, false)
}

fn destination(text: &str, start: usize, in_parentheses: bool) -> Option<Link> {
    let rest = text.get(start..)?;
    let (form, path_start, raw) = if let Some(inner) = rest.strip_prefix('<') {
        let end = inner.find(['>', '\n', '<']).filter(|&i| inner.as_bytes()[i] == b'>')?;
        (LinkForm::Angle, start + 1, &inner[..end])
    } else {
        let mut depth = 0usize;
        let mut end = None;
        for (i, c) in rest.char_indices() {
            match c {
                '(' if depth == MAX_PARENTHESES => return None,
                '(' => depth += 1,
                ')' if depth == 0 && in_parentheses => {
                    end = Some(i);
                    break;
                }
                ')' => depth = depth.saturating_sub(1),
                c if c.is_whitespace() || c.is_control() => {
                    // In parentheses only a title may follow.
                    let after = rest[i..].trim_start();
                    end = (!in_parentheses || after.starts_with([')', '"', '\'', '('])).then_some(i);
                    break;
                }
                _ => {}
            }
        }
        let end = match end {
            Some(end) if depth == 0 => end,
            None if !in_parentheses && depth == 0 => rest.len(),
            _ => return None,
        };
        (LinkForm::Markdown, start, &rest[..end])
    };
    let path = raw.split('#').next().unwrap_or_default();
    if path.is_empty() || has_scheme(path) {
        return None;
    }
    Some(Link { form, range: path_start..path_start + path.len(), target: percent_decode(path) })
}

fn has_scheme(path: &str) -> bool {
    path.starts_with("//")
        || path.split_once(':').is_some_and(|(scheme, _)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '-'))
        })
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let value = bytes
            .get(i + 1..i + 3)
            .filter(|pair| bytes[i] == b'%' && pair.iter().all(u8::is_ascii_hexdigit))
            .and_then(|pair| std::str::from_utf8(pair).ok())
            .and_then(|pair| u8::from_str_radix(pair, 16).ok());
        out.push(value.unwrap_or(bytes[i]));
        i += if value.is_some() { 3 } else { 1 };
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// A path encoded for a link of this form.
pub(crate) fn encode(form: LinkForm, path: &str) -> String {
    match form {
        LinkForm::Wiki => path.to_owned(),
        LinkForm::Angle => path.replace('%', "%25").replace('<', "%3C").replace('>', "%3E").replace('#', "%23"),
        LinkForm::Markdown => {
            let mut out = String::with_capacity(path.len());
            for c in path.chars() {
                match c {
                    ' ' | '(' | ')' | '<' | '>' | '%' | '#' | '?' | '"' => out.push_str(&format!("%{:02X}", c as u32)),
                    c => out.push(c),
                }
            }
            out
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<(String, String)> {
        links(&Scan::new(text)).into_iter().map(|l| (text[l.range].to_owned(), l.target)).collect()
    }
    fn same(names: &[&str]) -> Vec<(String, String)> {
        names.iter().map(|n| ((*n).to_owned(), (*n).to_owned())).collect()
    }

    #[test]
    fn every_form_is_found() {
        assert_eq!(
            targets("[[A]] ![[B.png|100]] [[C#h|x]] [[D#^b]] | [[E\\|t]] |"),
            same(&["A", "B.png", "C", "D", "E"])
        );
        assert_eq!(targets("[[#only]] [[https://x]] [x](https://y) [x](mailto:z) [x](#h) \\[[no]]"), []);
        assert_eq!(
            targets("[x](a%20b.md#h \"t\") ![y](<c d.md>) [z](e(1).md)\n[r]: ../f.md 'title'\n[^1]: note"),
            [
                ("a%20b.md".to_owned(), "a b.md".to_owned()),
                ("c d.md".to_owned(), "c d.md".to_owned()),
                ("e(1).md".to_owned(), "e(1).md".to_owned()),
                ("../f.md".to_owned(), "../f.md".to_owned()),
            ]
        );
        assert_eq!(targets("[[a[b]] [[c\n]] [[d]]"), same(&["d"]));
        assert_eq!(
            targets("---\nup: \"[[A]]\"\n---\n`[[n]]` <!-- [[n]] --> %%[[n]]%%\n```\n[[n]]\n```\n[[B]]"),
            same(&["A", "B"])
        );
    }

    /// Each of these takes minutes when every bracket is looked for in all that follows it.
    #[test]
    fn notes_full_of_brackets_are_read_in_one_go() {
        assert_eq!(targets(&"[[".repeat(500_000)).len(), 0);
        assert_eq!(targets(&"[[a ".repeat(300_000)).len(), 0);
        assert_eq!(targets(&"](a".repeat(500_000)).len(), 0);
        assert_eq!(targets(&"[x](<a".repeat(300_000)).len(), 0);
    }
}
