//! Cuts a note into chunks: by headings first, then at paragraphs and sentences, never inside a character. Every chunk
//! knows its bytes in the file, so that whoever finds it can open it there.

use super::{clean, tags::tag_line};
use std::ops::Range;
use toolyard_vault::Outline;

/// A chunk is made from at most this many characters of the file, so what is embedded and shown has at most as many.
pub const MAX_CHUNK_CHARS: usize = 2_000;
/// The least a configuration may ask for.
pub const MIN_CHUNK_CHARS: usize = 200;
/// What is left at the end of a section is added to the chunk before it if it is smaller than this.
const SMALL_REST_CHARS: usize = 200;

/// How large chunks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSizes {
    /// A section longer than this many characters is cut.
    pub chars: usize,
    /// A chunk that goes on in the middle of a section repeats up to this many characters of the one before.
    pub overlap: usize,
}

/// A chunk of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its bytes in the file, headings above its text included.
    pub range: Range<usize>,
    /// The headings it stands under, ` > ` between them.
    pub section: Option<String>,
    /// Plain text: what is shown and embedded.
    pub text: String,
    /// Code and comments: searched by words only.
    pub opaque: String,
}

/// The bytes under one heading (or before the first).
struct Section {
    /// Where the heading begins.
    start: usize,
    /// Where the text under it begins.
    body: usize,
    end: usize,
    title: Option<String>,
}

/// The chunks of a note in the order of the file. In a date note, a line of nothing but tags begins a section as well.
pub fn chunks(text: &str, outline: &Outline, is_date_note: bool, sizes: ChunkSizes) -> Vec<Chunk> {
    let mut found = Vec::new();
    // Headings with nothing to show under them go with what follows, so that they are found too.
    let mut pending: Option<(usize, String)> = None;
    let all = sections(text, outline, is_date_note);
    for (index, section) in all.iter().enumerate() {
        let (start, title) = match pending.take() {
            Some((start, before)) => (start, Some(section.title.clone().unwrap_or(before))),
            None => (section.start, section.title.clone()),
        };
        let pieces = windows(text, outline, &(section.body..section.end), sizes).into_iter().map(|range| {
            let shown = clean::plain_text(text, &range, &outline.opaque);
            let opaque = clean::opaque_text(text, &range, &outline.opaque);
            (range, shown, opaque)
        });
        let mut pieces = pieces.filter(|(_, shown, opaque)| !shown.is_empty() || !opaque.is_empty()).peekable();
        match title {
            Some(title) if pieces.peek().is_none() && index + 1 < all.len() => pending = Some((start, title)),
            Some(title) if pieces.peek().is_none() => found.push(Chunk {
                range: start..section.end,
                text: title.chars().take(MAX_CHUNK_CHARS).collect(),
                section: Some(title),
                opaque: String::new(),
            }),
            _ => found.extend(pieces.enumerate().map(|(number, (range, text, opaque))| {
                let range = if number == 0 { start.min(range.start)..range.end } else { range };
                Chunk { range, section: section.title.clone(), text, opaque }
            })),
        }
    }
    found
}

fn sections(text: &str, outline: &Outline, is_date_note: bool) -> Vec<Section> {
    let mut all: Vec<Section> = vec![Section { start: outline.body, body: outline.body, end: text.len(), title: None }];
    for heading in &outline.headings {
        let mut path = heading.parents.clone();
        path.push(heading.text.clone());
        path.retain(|part| !part.is_empty());
        let title = (!path.is_empty()).then(|| path.join(" > "));
        all.push(Section { start: heading.start, body: heading.body, end: text.len(), title });
    }
    if is_date_note {
        for line in &outline.lines {
            if let Some(tags) = tag_line(&text[line.clone()])
                && !is_opaque(outline, line.start)
            {
                // The tags stay part of the text; they only begin a section.
                all.push(Section {
                    start: line.start,
                    body: line.start,
                    end: text.len(),
                    title: Some(tags.to_owned()),
                });
            }
        }
        all.sort_by_key(|section| section.start);
    }
    let starts: Vec<usize> = all.iter().skip(1).map(|section| section.start).collect();
    for (section, next) in all.iter_mut().zip(starts) {
        section.end = next.max(section.body);
    }
    all
}

fn is_opaque(outline: &Outline, at: usize) -> bool {
    let index = outline.opaque.partition_point(|range| range.end <= at);
    outline.opaque.get(index).is_some_and(|range| range.start <= at)
}

/// Cuts a section's text into stretches of at most `sizes.chars` characters.
fn windows(text: &str, outline: &Outline, body: &Range<usize>, sizes: ChunkSizes) -> Vec<Range<usize>> {
    let limit = sizes.chars.clamp(MIN_CHUNK_CHARS, MAX_CHUNK_CHARS);
    let body = trimmed(text, body);
    if text[body.clone()].chars().count() <= limit {
        return vec![body];
    }
    let atoms = atoms(text, outline, &body, limit);
    let size = |atom: &Range<usize>| text[atom.clone()].chars().count();
    let mut out: Vec<Range<usize>> = Vec::new();
    let (mut first, mut chars) = (0, 0);
    for (index, atom) in atoms.iter().enumerate() {
        let more = size(atom);
        if chars > 0 && chars + more > limit {
            out.push(atoms[first].start..atoms[index - 1].end);
            // Go back over as many whole sentences as the overlap allows and the new chunk has room for.
            let (mut back, mut repeated) = (index, 0);
            while back > first + 1 {
                let next = size(&atoms[back - 1]);
                if repeated + next > sizes.overlap || repeated + next + more > limit {
                    break;
                }
                repeated += next;
                back -= 1;
            }
            (first, chars) = (back, repeated);
        }
        chars += more;
    }
    if let Some(last) = atoms.last() {
        let rest = atoms[first].start..last.end;
        match out.last_mut() {
            // A few words alone are found badly and say little.
            Some(previous)
                if chars < SMALL_REST_CHARS.min(limit / 4)
                    && text[previous.start..rest.end].chars().count() <= MAX_CHUNK_CHARS =>
            {
                previous.end = rest.end;
            }
            _ => out.push(rest),
        }
    }
    out.into_iter().map(|range| trimmed(text, &range)).filter(|range| !range.is_empty()).collect()
}

/// The pieces chunks are made of: lines, cut at ends of sentences where they are long, and anywhere where even that is
/// not enough. They follow each other without a gap.
fn atoms(text: &str, outline: &Outline, body: &Range<usize>, limit: usize) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    let mut start = body.start;
    for newline in memchr::memchr_iter(b'\n', &text.as_bytes()[body.clone()]) {
        cut_line(text, start..body.start + newline + 1, is_opaque(outline, start), limit, &mut out);
        start = body.start + newline + 1;
    }
    cut_line(text, start..body.end, is_opaque(outline, start), limit, &mut out);
    out
}

fn cut_line(text: &str, line: Range<usize>, is_code: bool, limit: usize, out: &mut Vec<Range<usize>>) {
    let mut start = line.start;
    if !is_code {
        let mut chars = text[line.clone()].char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let end = line.start + at + c.len_utf8();
            let ends = match c {
                '.' | '!' | '?' | ';' => chars.peek().is_some_and(|(_, next)| next.is_whitespace()),
                '。' | '！' | '？' | '；' | '।' => true,
                _ => false,
            };
            if ends {
                cut_long(text, start..end, limit, out);
                start = end;
            }
        }
    }
    cut_long(text, start..line.end, limit, out);
}

fn cut_long(text: &str, range: Range<usize>, limit: usize, out: &mut Vec<Range<usize>>) {
    let mut start = range.start;
    while start < range.end {
        let rest = &text[start..range.end];
        let Some((hard, _)) = rest.char_indices().nth(limit) else {
            out.push(start..range.end);
            return;
        };
        // After a space in the last quarter, or wherever the limit falls.
        let soft =
            rest[..hard].rfind(char::is_whitespace).map(|at| at + rest[at..].chars().next().map_or(1, char::len_utf8));
        let end = soft.filter(|at| *at >= hard - hard / 4).unwrap_or(hard);
        out.push(start..start + end);
        start += end;
    }
}

fn trimmed(text: &str, range: &Range<usize>) -> Range<usize> {
    let inner = &text[range.clone()];
    let start = range.start + (inner.len() - inner.trim_start().len());
    start..(start + inner.trim().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use toolyard_vault::outline;

    const SIZES: ChunkSizes = ChunkSizes { chars: 400, overlap: 80 };

    fn cut(text: &str) -> Vec<Chunk> {
        chunks(text, &outline(text), false, SIZES)
    }

    #[test]
    fn sections_are_chunks_and_know_their_headings() {
        let text = "intro\n\n# A\n\n## B\ntext b\n\n```sh\nls\n```\n\n## C\n\n### D\n";
        let found = cut(text);
        let seen: Vec<_> = found.iter().map(|c| (c.section.as_deref(), c.text.as_str(), c.opaque.as_str())).collect();
        assert_eq!(
            seen,
            [(None, "intro", ""), (Some("A > B"), "text b", "```sh\nls\n```"), (Some("A > C > D"), "A > C > D", ""),]
        );
        // A heading without text of its own is found with what follows.
        assert!(text[found[1].range.clone()].starts_with("# A"));
        assert!(text[found[2].range.clone()].starts_with("## C"));
    }

    #[test]
    fn date_notes_are_cut_at_tag_lines_too() {
        let text = "morning\n\n#DayInShort\nran 5 km\n\n#Money\nspent 12\n";
        let found = chunks(text, &outline(text), true, SIZES);
        let seen: Vec<_> = found.iter().map(|c| c.section.as_deref()).collect();
        assert_eq!(seen, [None, Some("#DayInShort"), Some("#Money")]);
        assert_eq!(found[1].text, "#DayInShort\nran 5 km");
        assert_eq!(cut(text).len(), 1);
    }

    #[test]
    fn long_sections_are_cut_at_sentences_and_overlap() {
        let text = (0..60).map(|i| format!("Sentence number {i} is here. ")).collect::<String>();
        let found = cut(&text);
        assert!(found.len() > 3);
        for pair in found.windows(2) {
            assert!(pair[1].range.start < pair[0].range.end, "they overlap");
            assert!(pair[0].text.ends_with("here."), "{}", pair[0].text);
        }
    }

    #[test]
    fn headings_with_nothing_to_show_are_found_all_the_same() {
        for (text, wanted) in [
            ("# A\n<b>\r\n# A", vec!["# A\n<b>\r\n# A"]),
            ("# Alone\n#\n", vec!["# Alone\n#\n"]),
            ("# A\n\n# B\n\ntext", vec!["# A\n\n# B\n\ntext"]),
        ] {
            let found = cut(text);
            let ranges: Vec<&str> = found.iter().map(|chunk| &text[chunk.range.clone()]).collect();
            assert_eq!(ranges, wanted, "{found:?}");
        }
    }

    const PIECES: &[&str] = &[
        "# A",
        "## B",
        "word ",
        "Sentence. ",
        "日本語の文。",
        "हिन्दी ",
        "\n",
        "\n\n",
        "```",
        "<!--",
        "-->",
        "%%",
        "`c`",
        "[[L|a]]",
        "<b>",
        "#tag",
        "---",
        "- item",
        "| a | b |",
        "🙂",
        "\r\n",
        "\t",
        "    code",
    ];

    fn any_note() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            6 => prop::sample::select(PIECES).prop_map(str::to_owned),
            1 => "[a-z ]{0,600}",
            1 => "\\PC{0,40}",
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn chunks_cover_the_note_in_order_and_within_limits(text in any_note(), dated in any::<bool>()) {
            let outline = outline(&text);
            let found = chunks(&text, &outline, dated, SIZES);
            let mut covered = outline.body;
            for chunk in &found {
                prop_assert!(text.get(chunk.range.clone()).is_some(), "on character boundaries");
                prop_assert!(chunk.range.start >= outline.body && !chunk.range.is_empty());
                prop_assert!(chunk.text.chars().count() <= MAX_CHUNK_CHARS);
                prop_assert!(!chunk.text.is_empty() || !chunk.opaque.is_empty());
                if chunk.range.start > covered {
                    // Whatever lies between has nothing to show: white space, marks, headings of nothing.
                    let gap = clean::plain_text(&text, &(covered..chunk.range.start), &outline.opaque);
                    prop_assert!(gap.is_empty() , "left out: {gap:?}");
                }
                covered = covered.max(chunk.range.end);
            }
            let rest = clean::plain_text(&text, &(covered..text.len()), &outline.opaque);
            prop_assert!(rest.is_empty() || found.is_empty() && rest.is_empty(), "left out at the end: {rest:?}");
            prop_assert_eq!(&found, &chunks(&text, &outline, dated, SIZES), "the same note gives the same chunks");
        }
    }
}
