//! Headings (ATX and setext) and blocks with an id, as byte ranges.

use super::scan::{Line, Scan, indent, is_list_item};
use std::ops::Range;
use unicode_normalization::UnicodeNormalization;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heading {
    pub(crate) level: u8,
    pub(crate) text: String,
    /// Line number, from 1.
    pub(crate) line: usize,
    /// Where the heading itself begins.
    pub(crate) start: usize,
    /// Where the text below the heading begins.
    pub(crate) body: usize,
    /// Where the next heading of any level begins, or the end.
    pub(crate) own_end: usize,
    /// Where the next heading of the same or a higher rank begins, or the end.
    pub(crate) section_end: usize,
    /// The headings above it, outermost first, as indices.
    pub(crate) parents: Vec<usize>,
}

pub(crate) fn headings(scan: &Scan<'_>) -> Vec<Heading> {
    let mut found: Vec<Heading> = Vec::new();
    let mut paragraph: Option<usize> = None;
    let body = scan.body_start();
    for (index, line) in scan.lines.iter().enumerate() {
        if line.start < body {
            continue;
        }
        let content = scan.line(line);
        let (width, rest) = indent(content);
        let first = line.end - rest.len();
        if rest.is_empty() || scan.is_opaque(first) && !starts_with_code_span(scan, first) {
            paragraph = None;
            continue;
        }
        if let Some((level, text)) = atx(width, rest) {
            found.push(heading(level, text, index + 1, line.start, line.next));
            paragraph = None;
            continue;
        }
        if let (Some(start), Some(level)) = (paragraph, setext(width, rest)) {
            let text = scan.lines[start..index].iter().map(|l| scan.line(l).trim()).collect::<Vec<_>>().join(" ");
            found.push(heading(level, &text, start + 1, scan.lines[start].start, line.next));
            paragraph = None;
            continue;
        }
        let continues = paragraph.is_some();
        let opens = width <= 3 && !is_list_item(rest) && !rest.starts_with(['>', '|', '<']);
        paragraph = if continues && opens { paragraph } else { opens.then_some(index) };
    }
    nest(&mut found, scan.text.len());
    found
}

/// A line may begin with inline code and still be a paragraph or (with `#` before it) a heading.
fn starts_with_code_span(scan: &Scan<'_>, first: usize) -> bool {
    scan.opaque_after(first).is_some_and(|range| range.start == first && scan.text.as_bytes()[first] == b'`')
        && !scan.text[first..].starts_with("```")
}

fn heading(level: u8, text: &str, line: usize, start: usize, body: usize) -> Heading {
    Heading { level, text: text.to_owned(), line, start, body, own_end: 0, section_end: 0, parents: Vec::new() }
}

fn nest(found: &mut [Heading], end: usize) {
    let mut open: Vec<usize> = Vec::new();
    for i in 0..found.len() {
        while open.last().is_some_and(|&top| found[top].level >= found[i].level) {
            open.pop();
        }
        found[i].parents = open.clone();
        open.push(i);
        found[i].own_end = found.get(i + 1).map_or(end, |next| next.start);
        let level = found[i].level;
        found[i].section_end = found[i + 1..].iter().find(|h| h.level <= level).map_or(end, |h| h.start);
    }
}

fn atx(width: usize, rest: &str) -> Option<(u8, &str)> {
    let level = rest.bytes().take_while(|b| *b == b'#').count();
    if width > 3 || !(1..=6).contains(&level) {
        return None;
    }
    let after = &rest[level..];
    if !after.is_empty() && !after.starts_with([' ', '\t']) {
        return None;
    }
    let text = after.trim();
    let without = text.trim_end_matches('#');
    let text = if without.is_empty() || without.ends_with([' ', '\t']) { without.trim_end() } else { text };
    u8::try_from(level).ok().map(|level| (level, text))
}

fn setext(width: usize, rest: &str) -> Option<u8> {
    let mark = rest.trim_end();
    match mark.as_bytes().first() {
        Some(b'=') if width <= 3 && mark.bytes().all(|b| b == b'=') => Some(1),
        Some(b'-') if width <= 3 && mark.bytes().all(|b| b == b'-') => Some(2),
        _ => None,
    }
}

/// The headings that a path of texts names: those whose complete chain of parents matches, otherwise those whose
/// nearest parents match. An element may include its hashes (`## Tasks`), which then must match the level.
pub(crate) fn find_heading(all: &[Heading], path: &[String]) -> Vec<usize> {
    let wanted: Vec<(Option<u8>, String)> = path.iter().map(|element| parse_element(element)).collect();
    let fits = |(level, text): &(Option<u8>, String), heading: &Heading| {
        level.is_none_or(|l| l == heading.level) && normal(&heading.text) == *text
    };
    let Some((last, parents)) = wanted.split_last() else { return Vec::new() };
    let matches = |whole: bool| -> Vec<usize> {
        (0..all.len())
            .filter(|&i| {
                let chain = &all[i].parents;
                fits(last, &all[i])
                    && chain.len() >= parents.len()
                    && (!whole || chain.len() == parents.len())
                    && parents.iter().rev().zip(chain.iter().rev()).all(|(w, &p)| fits(w, &all[p]))
            })
            .collect()
    };
    let whole = matches(true);
    if whole.is_empty() { matches(false) } else { whole }
}

fn parse_element(element: &str) -> (Option<u8>, String) {
    match atx(0, element.trim()) {
        Some((level, text)) if !text.is_empty() => (Some(level), normal(text)),
        _ => (None, normal(element)),
    }
}

fn normal(text: &str) -> String {
    text.trim().nfc().collect()
}

/// A block that carries `^id`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) id: String,
    /// One-based line of the id.
    pub(crate) line: usize,
    /// The byte range, in whole lines.
    pub(crate) range: Range<usize>,
    /// From the space before the caret to the end of its line.
    pub(crate) marker: Range<usize>,
}

pub(crate) fn blocks(scan: &Scan<'_>) -> Vec<Block> {
    let body = scan.body_start();
    let mut found = Vec::new();
    for (index, line) in scan.lines.iter().enumerate() {
        if line.start < body {
            continue;
        }
        let content = scan.line(line);
        let Some(caret) = content.rfind('^') else { continue };
        let id = content[caret + 1..].trim_end();
        let before = &content[..caret];
        let is_id = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let set_apart = before.is_empty() || before.ends_with([' ', '\t']);
        if !is_id || !set_apart || scan.is_opaque(line.start + caret) {
            continue;
        }
        let alone = before.trim().is_empty();
        let first = block_start(scan, index, alone);
        let marker_start = line.start + before.trim_end().len();
        found.push(Block {
            id: id.to_owned(),
            line: index + 1,
            range: scan.lines[first].start..line.next,
            marker: marker_start..line.end,
        });
    }
    found
}

/// The start of a block. A list item is its own block; a paragraph reaches up to a blank line, heading or list item; an
/// id alone on its line belongs to the text above it, with or without a blank line in between.
fn block_start(scan: &Scan<'_>, index: usize, alone: bool) -> usize {
    let body = scan.body_start();
    let text = |i: usize| indent(scan.line(&scan.lines[i])).1;
    let is_heading = |line: &Line| atx_line(scan, line);
    let mut at = index;
    if alone
        && at > 0
        && text(at - 1).is_empty()
        && at > 1
        && !text(at - 2).is_empty()
        && scan.lines[at - 2].start >= body
    {
        at -= 2;
    }
    while at > 0 {
        if !(alone && at == index) && is_list_item(text(at)) {
            break;
        }
        let above = &scan.lines[at - 1];
        if above.start < body || text(at - 1).is_empty() || is_heading(above) {
            break;
        }
        at -= 1;
    }
    at
}

fn atx_line(scan: &Scan<'_>, line: &Line) -> bool {
    let (width, rest) = indent(scan.line(line));
    atx(width, rest).is_some() && !scan.is_opaque(line.end - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<(u8, String, usize)> {
        headings(&Scan::new(text)).into_iter().map(|h| (h.level, h.text, h.line)).collect()
    }

    #[test]
    fn both_styles_are_headings_and_code_is_not() {
        let note = "---\n# no: 1\n---\n# A #\ntext\n\nB\nc\n===\n```\n# no\n```\n%%\n# no\n%%\n<!--\n# no\n-->\nC\n---\n#no\n    # no\n- x\n---\n";
        assert_eq!(texts(note), [(1, "A".into(), 4), (1, "B c".into(), 7), (2, "C".into(), 19)]);
    }

    #[test]
    fn paths_prefer_the_whole_chain_and_report_ambiguity() {
        let all = headings(&Scan::new("# A\n## T\n# B\n## T\n# T\n### T\n"));
        let find = |path: &[&str]| find_heading(&all, &path.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        assert_eq!(find(&["A", "T"]), [1]);
        assert_eq!(find(&["T"]), [4]);
        assert_eq!(find(&["## T"]), [1, 3]);
        assert_eq!(find(&["### T"]), [5]);
        assert_eq!(find(&["C"]), Vec::<usize>::new());
    }

    #[test]
    fn blocks_have_their_lines() {
        let note = "# H\npara one\nstill ^p1\n\n- a ^l1\n- b\n\n| t |\n|---|\n\n^t1\n`x ^no`\n";
        let scan = Scan::new(note);
        let found: Vec<(String, &str)> = blocks(&scan).into_iter().map(|b| (b.id, &note[b.range])).collect();
        assert_eq!(
            found,
            [
                ("p1".into(), "para one\nstill ^p1\n"),
                ("l1".into(), "- a ^l1\n"),
                ("t1".into(), "| t |\n|---|\n\n^t1\n"),
            ]
        );
    }
}
