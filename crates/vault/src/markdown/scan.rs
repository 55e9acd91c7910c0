//! [`Scan`]: the lines of a note, and which bytes are code or comments and must be skipped.

use crate::text::BOM;
use memchr::memmem;
use std::ops::Range;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    pub(crate) start: usize,
    /// Without the line ending.
    pub(crate) end: usize,
    /// Where the next line begins.
    pub(crate) next: usize,
}

/// Lines and opaque stretches of a note.
pub(crate) struct Scan<'a> {
    pub(crate) text: &'a str,
    pub(crate) lines: Vec<Line>,
    /// The front matter with both its fences, if there is one.
    pub(crate) front_matter: Option<Range<usize>>,
    /// Code and comments, in order, not overlapping.
    opaque: Vec<Range<usize>>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let lines = split_lines(text);
        let front_matter = find_front_matter(text, &lines);
        let body = front_matter.as_ref().map_or(0, |r| r.end);
        let opaque = find_opaque(text, &lines, body);
        Self { text, lines, front_matter, opaque }
    }

    pub(crate) fn line(&self, line: &Line) -> &'a str {
        &self.text[line.start..line.end]
    }

    /// Where the text after front matter (and byte order mark) begins.
    pub(crate) fn body_start(&self) -> usize {
        match &self.front_matter {
            Some(range) => range.end,
            None if self.text.starts_with(BOM) => BOM.len(),
            None => 0,
        }
    }

    pub(crate) fn is_opaque(&self, offset: usize) -> bool {
        self.opaque_after(offset).is_some_and(|range| range.start <= offset)
    }

    /// The first opaque stretch that ends after the offset.
    pub(crate) fn opaque_after(&self, offset: usize) -> Option<&Range<usize>> {
        let index = self.opaque.partition_point(|range| range.end <= offset);
        self.opaque.get(index)
    }

    /// Code and comments, in order, not overlapping.
    pub(crate) fn into_opaque(self) -> Vec<Range<usize>> {
        self.opaque
    }

    /// One-based line number of an offset.
    pub(crate) fn line_number(&self, offset: usize) -> usize {
        self.lines.partition_point(|line| line.start <= offset).max(1)
    }
}

fn split_lines(text: &str) -> Vec<Line> {
    let bytes = text.as_bytes();
    let mut lines = Vec::new();
    let mut start = if text.starts_with(BOM) { BOM.len() } else { 0 };
    for newline in memchr::memchr_iter(b'\n', bytes) {
        let end = if newline > start && bytes[newline - 1] == b'\r' { newline - 1 } else { newline };
        lines.push(Line { start, end, next: newline + 1 });
        start = newline + 1;
    }
    if start < bytes.len() {
        lines.push(Line { start, end: bytes.len(), next: bytes.len() });
    }
    lines
}

fn find_front_matter(text: &str, lines: &[Line]) -> Option<Range<usize>> {
    let first = lines.first()?;
    if text[first.start..first.end].trim_end() != "---" {
        return None;
    }
    let close = lines.iter().skip(1).find(|l| matches!(text[l.start..l.end].trim_end(), "---" | "..."))?;
    Some(first.start..close.next)
}

/// Leading spaces (a tab counts to the next multiple of four) and the rest of the line.
pub(crate) fn indent(line: &str) -> (usize, &str) {
    let mut width = 0;
    for (i, c) in line.char_indices() {
        match c {
            ' ' => width += 1,
            '\t' => width += 4 - width % 4,
            _ => return (width, &line[i..]),
        }
    }
    (width, "")
}

/// `- `, `* `, `+ `, `1. `, `1) `, or the marker alone on its line.
pub(crate) fn is_list_item(rest: &str) -> bool {
    let after = match rest.as_bytes().first() {
        Some(b'-' | b'*' | b'+') => &rest[1..],
        Some(b'0'..=b'9') => {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            match rest.as_bytes().get(digits) {
                Some(b'.' | b')') if digits <= 9 => &rest[digits + 1..],
                _ => return false,
            }
        }
        _ => return false,
    };
    after.is_empty() || after.starts_with([' ', '\t'])
}

fn fence_of(rest: &str) -> Option<(u8, usize)> {
    let mark = *rest.as_bytes().first().filter(|b| matches!(b, b'`' | b'~'))?;
    let length = rest.bytes().take_while(|b| *b == mark).count();
    let info = &rest[length..];
    (length >= 3 && !(mark == b'`' && info.contains('`'))).then_some((mark, length))
}

/// A code span may be fenced with at most this many backticks; more are just text.
const MAX_TICKS: usize = 80;

/// Intermediate results, so that no part of a note is searched again for every mark in it.
#[derive(Default)]
struct ScanState {
    /// The end of the paragraph that was examined last.
    paragraph_end: usize,
    /// No `%%` follows any more.
    no_percents: bool,
    /// No `-->` follows any more.
    no_arrow: bool,
}

fn find_opaque(text: &str, lines: &[Line], body: usize) -> Vec<Range<usize>> {
    let mut opaque: Vec<Range<usize>> = Vec::new();
    let mut searched = ScanState::default();
    let mut fence: Option<(u8, usize, usize)> = None;
    let mut in_list = false;
    let mut previous_blank = true;
    let mut in_indented_code = false;
    for (index, line) in lines.iter().enumerate() {
        if line.start < body {
            continue;
        }
        let masked_until = opaque.last().map_or(0, |r| r.end);
        let content = &text[line.start..line.end];
        let (width, rest) = indent(content);
        if let Some((mark, length, start)) = fence {
            let closes = fence_of(rest).is_some_and(|(m, l)| m == mark && l >= length)
                && rest.trim_end().bytes().all(|b| b == mark);
            if closes {
                opaque.push(start..line.next);
                fence = None;
            }
            continue;
        }
        if masked_until >= line.next && line.next > line.start {
            continue;
        }
        if rest.is_empty() {
            previous_blank = true;
            continue;
        }
        let resumed = masked_until > line.start;
        if !resumed {
            if let Some((mark, length)) = fence_of(rest).filter(|_| width <= 3 || in_list) {
                fence = Some((mark, length, line.start));
                previous_blank = false;
                continue;
            }
            if width >= 4 && !in_list && (previous_blank || in_indented_code) {
                opaque.push(line.start..line.next);
                in_indented_code = true;
                previous_blank = false;
                continue;
            }
            in_indented_code = false;
            if is_list_item(rest) {
                in_list = true;
            } else if width == 0 && (previous_blank || rest.starts_with('#')) {
                in_list = false;
            }
        }
        previous_blank = false;
        scan_inline(text, lines, index, line.start.max(masked_until), &mut searched, &mut opaque);
    }
    if let Some((_, _, start)) = fence {
        opaque.push(start..text.len());
    }
    opaque
}

/// Code spans and comments that begin on this line; they may end on a later one.
fn scan_inline(
    text: &str,
    lines: &[Line],
    index: usize,
    from: usize,
    searched: &mut ScanState,
    opaque: &mut Vec<Range<usize>>,
) {
    let bytes = text.as_bytes();
    let line = lines[index];
    let first = line.start + (line.end - line.start - text[line.start..line.end].trim_start().len());
    let mut at = from;
    while at < line.end {
        let Some(found) = memchr::memchr3(b'`', b'%', b'<', &bytes[at..line.end]).map(|i| at + i) else { return };
        let escaped = bytes[at..found].iter().rev().take_while(|b| **b == b'\\').count() % 2 == 1;
        at = found + 1;
        if escaped {
            continue;
        }
        let stretch = if bytes[found] == b'`' {
            let length = bytes[found..].iter().take_while(|b| **b == b'`').count();
            at = found + length;
            if searched.paragraph_end < line.end {
                searched.paragraph_end = paragraph_end(text, lines, index);
            }
            close_code_span(bytes, at, length, searched.paragraph_end).map(|end| found..end)
        } else if text[found..].starts_with("%%") {
            at = found + 2;
            close(bytes, at, b"%%", found == first, &mut searched.no_percents).map(|end| found..end)
        } else if text[found..].starts_with("<!--") {
            at = found + 4;
            close(bytes, at, b"-->", found == first, &mut searched.no_arrow).map(|end| found..end)
        } else {
            None
        };
        if let Some(stretch) = stretch {
            at = stretch.end;
            opaque.push(stretch);
        }
    }
}

/// A comment that begins its line runs to the end of the note when nothing closes it; elsewhere it is just text.
fn close(bytes: &[u8], from: usize, end: &[u8], begins_line: bool, is_over: &mut bool) -> Option<usize> {
    let found = if *is_over { None } else { memmem::find(&bytes[from..], end) };
    *is_over = found.is_none();
    match found {
        Some(i) => Some(from + i + end.len()),
        None => begins_line.then_some(bytes.len()),
    }
}

fn close_code_span(bytes: &[u8], from: usize, length: usize, limit: usize) -> Option<usize> {
    if length > MAX_TICKS {
        return None;
    }
    let mut at = from;
    while at < limit {
        at += memchr::memchr(b'`', &bytes[at..limit])?;
        let run = bytes[at..limit].iter().take_while(|b| **b == b'`').count();
        at += run;
        if run == length {
            return Some(at);
        }
    }
    None
}

/// Where the paragraph around a line ends: blank line, heading or fence.
fn paragraph_end(text: &str, lines: &[Line], index: usize) -> usize {
    let mut end = lines[index].end;
    for line in &lines[index + 1..] {
        let (_, rest) = indent(&text[line.start..line.end]);
        if rest.is_empty() || rest.starts_with('#') || fence_of(rest).is_some() || is_list_item(rest) {
            break;
        }
        end = line.end;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opaque(text: &str) -> Vec<&str> {
        Scan::new(text).opaque.into_iter().map(|r| &text[r]).collect()
    }

    #[test]
    fn code_and_comments_are_found() {
        assert_eq!(opaque("a `b` c"), ["`b`"]);
        assert_eq!(opaque("``a ` b`` `x"), ["``a ` b``"]);
        assert_eq!(opaque("x\n```js\n# no\n```\ny"), ["```js\n# no\n```\n"]);
        assert_eq!(opaque("~~~\n```\n~~~\nz"), ["~~~\n```\n~~~\n"]);
        assert_eq!(opaque("a <!-- b\nc --> d %%e%% 100%%"), ["<!-- b\nc -->", "%%e%%"]);
        assert_eq!(opaque("%%\nx\n\ny\n%%\nz"), ["%%\nx\n\ny\n%%"]);
        assert_eq!(opaque("```\nnever closed"), ["```\nnever closed"]);
        assert_eq!(opaque("\\`a\\`"), Vec::<&str>::new());
        assert_eq!(opaque("p\n\n    code\n\nq"), ["    code\n"]);
        assert_eq!(opaque("- a\n    ```\n    x\n    ```\n"), ["    ```\n    x\n    ```\n"]);
    }

    #[test]
    fn what_closes_nothing_is_text_wherever_it_was_looked_for() {
        assert_eq!(opaque("a `b\nc `d` e\n\nf `g`"), ["`b\nc `", "`g`"]);
        assert_eq!(opaque("a <!-- b %% c\nd <!-- e %%f"), ["%% c\nd <!-- e %%"]);
        assert_eq!(opaque("a %%b\n\n%%\nc"), ["%%b\n\n%%"]);
        assert_eq!(opaque("a <!-- b\n<!-- c"), ["<!-- c"]);
        let long = "`".repeat(MAX_TICKS + 1);
        assert_eq!(opaque(&format!("a {long}b{long} `c`")), ["`c`"]);
    }

    /// Each of these takes minutes when every mark is looked for in all that follows it.
    #[test]
    fn notes_full_of_marks_are_read_in_one_go() {
        assert_eq!(opaque(&"one `code` span\n".repeat(200_000)).len(), 200_000);
        assert_eq!(opaque(&"a <!-- b %x\n".repeat(300_000)).len(), 0);
        assert_eq!(opaque(&"x <!-- ".repeat(500_000)).len(), 0);
        let ticks: String = (1..1_500).map(|length| format!("{} ", "`".repeat(length))).collect();
        assert_eq!(opaque(&format!("x {ticks}")).len(), 0);
    }

    #[test]
    fn front_matter_needs_both_fences_at_the_top() {
        assert_eq!(Scan::new("---\na: 1\n---\nx").front_matter, Some(0..13));
        assert_eq!(Scan::new("\u{feff}---\r\na: 1\r\n---\r\nx").front_matter, Some(3..19));
        assert_eq!(Scan::new("---\na: 1\n").front_matter, None);
        assert_eq!(Scan::new("\n---\na: 1\n---\n").front_matter, None);
    }
}
