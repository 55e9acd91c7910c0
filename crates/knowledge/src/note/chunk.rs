//! Splits a note into chunks: first at headings, then at paragraphs and sentences, never inside a character. Every
//! chunk has its byte range in the file, so that a result can be opened there.

use super::{clean, tags::tag_line};
use std::ops::Range;
use toolyard_vault::Outline;

/// Maximum number of characters of the file in a chunk, and therefore of the text that is embedded and shown.
pub const MAX_CHUNK_CHARS: usize = 2_000;
/// The minimum chunk size that a configuration may set.
pub const MIN_CHUNK_CHARS: usize = 200;
/// A rest at the end of a section that is smaller than this is added to the previous chunk.
const SMALL_REST_CHARS: usize = 200;
/// Maximum total length of a chunk's headings, in characters. A longer heading is also indexed as text.
const MAX_SECTION_CHARS: usize = 300;
/// Maximum number of sections of a note; text under later headings belongs to the last one.
const MAX_SECTIONS: usize = 5_000;

/// The sizes of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSizes {
    /// A section longer than this many characters is split.
    pub chars: usize,
    /// A chunk that continues a section repeats up to this many characters of the previous chunk.
    pub overlap: usize,
}

/// A chunk of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its byte range in the file, including the headings directly above its text.
    pub range: Range<usize>,
    /// The headings above it, separated by ` > `.
    pub section: Option<String>,
    /// Plain text, which is shown and embedded.
    pub text: String,
    /// Code, comments, link targets and headings without text: searched by words only.
    pub opaque: String,
}

/// The bytes under one heading (or before the first).
struct Section {
    /// Start of the heading.
    start: usize,
    /// Start of the text after the heading.
    body: usize,
    end: usize,
    /// The headings above it and its own, outermost first, shortened.
    path: Vec<String>,
    /// Its own heading, truncated.
    own: Option<String>,
}

impl Section {
    fn title(&self) -> Option<String> {
        (!self.path.is_empty()).then(|| self.path.join(" > "))
    }
}

/// Headings without text: they are added to the chunk that follows, so that they can be found.
struct Pending {
    start: usize,
    /// The text of each.
    headings: Vec<String>,
    /// The path of the last heading that has one.
    path: Vec<String>,
}

impl Pending {
    /// The headings that are not in the given path.
    fn unsaid(&self, path: &[String]) -> String {
        let unsaid: Vec<&str> = self.headings.iter().filter(|h| !path.contains(h)).map(String::as_str).collect();
        unsaid.join("\n")
    }

    /// The chunk for headings at the end of a note that have no text.
    fn into_chunk(self, end: usize) -> Chunk {
        let (unsaid, section) = (self.unsaid(&self.path), self.path.join(" > "));
        let whole = joined(unsaid.clone(), &section);
        let text: String = whole.chars().take(MAX_CHUNK_CHARS).collect();
        let opaque = if text.len() < whole.len() { unsaid } else { String::new() };
        Chunk { range: self.start..end, section: Some(section), text, opaque }
    }
}

/// Joins two texts with a line break.
fn joined(mut first: String, second: &str) -> String {
    if !first.is_empty() && !second.is_empty() {
        first.push('\n');
    }
    first.push_str(second);
    first
}

/// The chunks of a note in file order. In a date note, a line that consists of tags also starts a section.
pub fn chunks(text: &str, outline: &Outline, is_date_note: bool, sizes: ChunkSizes) -> Vec<Chunk> {
    let mut found = Vec::new();
    let mut pending: Option<Pending> = None;
    let mut end = outline.body;
    for section in sections(text, outline, is_date_note) {
        end = section.end;
        let start = pending.as_ref().map_or(section.start, |before| before.start);
        let mut pieces = windows(text, outline, &(section.body..section.end), sizes).into_iter().filter_map(|range| {
            let plain = clean::plain(text, &range, &outline.opaque);
            let opaque = clean::opaque_text(text, &range, &outline.opaque);
            let opaque = joined(opaque, &plain.targets.join("\n"));
            (!plain.text.is_empty() || !opaque.is_empty()).then_some((range, plain.text, opaque))
        });
        let Some((first, shown, opaque)) = pieces.next() else {
            if section.title().is_some() || pending.is_some() {
                let before = pending.get_or_insert(Pending { start, headings: Vec::new(), path: Vec::new() });
                before.headings.extend(section.own);
                if !section.path.is_empty() {
                    before.path = section.path;
                }
            }
            continue;
        };
        let unsaid = pending.take().map(|before| before.unsaid(&section.path)).unwrap_or_default();
        let range = start.min(first.start)..first.end;
        found.push(Chunk { range, section: section.title(), text: shown, opaque: joined(unsaid, &opaque) });
        found.extend(pieces.map(|(range, text, opaque)| Chunk { range, section: section.title(), text, opaque }));
    }
    found.extend(pending.map(|left| left.into_chunk(end)));
    found
}

fn sections(text: &str, outline: &Outline, is_date_note: bool) -> Vec<Section> {
    let before = Section { start: outline.body, body: outline.body, end: text.len(), path: Vec::new(), own: None };
    let mut all: Vec<Section> = vec![before];
    for heading in &outline.headings {
        let parents = heading.parents.iter().filter_map(|&parent| outline.headings.get(parent));
        let path: Vec<&str> = parents.map(|parent| parent.text.as_str()).chain([heading.text.as_str()]).collect();
        let own = cut(&heading.text, MAX_SECTION_CHARS);
        // A heading that is truncated in the section is also indexed as text, so that nothing of it is lost.
        let body = if own.len() < heading.text.len() { after_marks(text, heading.start) } else { heading.body };
        let own = (!own.is_empty()).then(|| own.to_owned());
        all.push(Section { start: heading.start, body, end: text.len(), path: cut_path(&path), own });
    }
    if is_date_note {
        for line in &outline.lines {
            if let Some(tags) = tag_line(&text[line.clone()])
                && !is_opaque(outline, line.start)
            {
                // The tags stay part of the text; they only start a section.
                let path = vec![cut(tags, MAX_SECTION_CHARS).to_owned()];
                all.push(Section { start: line.start, body: line.start, end: text.len(), path, own: None });
            }
        }
        all.sort_by_key(|section| section.start);
    }
    all.truncate(MAX_SECTIONS);
    let starts: Vec<usize> = all.iter().skip(1).map(|section| section.start).collect();
    for (section, next) in all.iter_mut().zip(starts) {
        section.end = next.max(section.body);
    }
    all
}

/// Truncates a text to this many characters.
fn cut(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(end, _)| &text[..end])
}

/// The headings of a path: the innermost in full if possible, the others as far as there is room.
fn cut_path(path: &[&str]) -> Vec<String> {
    let mut room = MAX_SECTION_CHARS;
    let mut kept: Vec<String> = Vec::new();
    for heading in path.iter().rev() {
        let part = cut(heading, room);
        room -= part.chars().count();
        if !part.is_empty() {
            kept.push(part.to_owned());
        }
    }
    kept.reverse();
    kept
}

/// Start of a heading's text.
fn after_marks(text: &str, start: usize) -> usize {
    text.len() - text[start..].trim_start_matches([' ', '\t', '#']).len()
}

fn is_opaque(outline: &Outline, at: usize) -> bool {
    let index = outline.opaque.partition_point(|range| range.end <= at);
    outline.opaque.get(index).is_some_and(|range| range.start <= at)
}

/// Splits the text of a section into ranges of at most `sizes.chars` characters.
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
            // A chunk of a few words is hard to find and says little, so it is merged into the previous one.
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

/// The pieces of which chunks consist: lines, split at sentence ends if they are long, and anywhere if that is not
/// enough. They are contiguous.
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
        // Cut after white space in the last quarter, otherwise exactly at the limit.
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
    use crate::text::{index_terms, query_terms};
    use proptest::prelude::*;
    use toolyard_vault::outline;

    const SIZES: ChunkSizes = ChunkSizes { chars: 400, overlap: 80 };

    fn chunked(text: &str) -> Vec<Chunk> {
        chunks(text, &outline(text), false, SIZES)
    }

    #[test]
    fn sections_are_chunks_and_know_their_headings() {
        let text = "intro\n\n# A\n\n## B\ntext b\n\n```sh\nls\n```\n\n## C\n\n### D\n";
        let found = chunked(text);
        let seen: Vec<_> = found.iter().map(|c| (c.section.as_deref(), c.text.as_str(), c.opaque.as_str())).collect();
        assert_eq!(
            seen,
            [(None, "intro", ""), (Some("A > B"), "text b", "```sh\nls\n```"), (Some("A > C > D"), "A > C > D", ""),]
        );
        // A heading without text is found with the chunk that follows.
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
        assert_eq!(chunked(text).len(), 1);
    }

    #[test]
    fn long_sections_are_cut_at_sentences_and_overlap() {
        let text = (0..60).map(|i| format!("Sentence number {i} is here. ")).collect::<String>();
        let found = chunked(&text);
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
            let found = chunked(text);
            let ranges: Vec<&str> = found.iter().map(|chunk| &text[chunk.range.clone()]).collect();
            assert_eq!(ranges, wanted, "{found:?}");
        }
    }

    /// Checked by the terms of the chunks: text that is missing there cannot be found.
    #[test]
    fn every_heading_is_found_by_its_words() {
        for (text, headings) in [
            ("## Blue bicycle\n\n## Red car\ntext", vec!["blue bicycle", "red car"]),
            ("# Blue\n# Red", vec!["blue", "red"]),
            ("text\n# Blue\n## Green\n# Red\n#\n", vec!["blue", "green", "red"]),
            ("# Blue\n#\ntext", vec!["blue"]),
            ("# Blue\n## Green\n# Red\n![](photo.png)", vec!["blue", "green", "red", "photo"]),
        ] {
            let mut terms = String::new();
            for chunk in chunked(text) {
                index_terms(&format!("{}\n{:?}\n{}", chunk.text, chunk.section, chunk.opaque), &mut terms);
            }
            let terms: Vec<&str> = terms.split(' ').collect();
            for term in headings.iter().flat_map(|heading| query_terms(heading)) {
                assert!(terms.contains(&term.as_str()), "{term} in {text:?}: {:?}", chunked(text));
            }
        }
        let many: String = (0..3_000).map(|number| format!("# heading{number}\n")).collect();
        let found = chunked(&many);
        assert_eq!(found.len(), 1);
        assert!(found[0].text.chars().count() <= MAX_CHUNK_CHARS && found[0].opaque.contains("heading2998"));
    }

    /// Without a limit, one huge heading above thousands of sections would be copied into each of them.
    #[test]
    fn a_huge_heading_costs_its_own_length_only() {
        let huge = "long ".repeat(200_000);
        let text = format!("# {huge}end\n{}", "## a\nb\n".repeat(20_000));
        let found = chunked(&text);
        let size: usize =
            found.iter().map(|c| c.text.len() + c.opaque.len() + c.section.as_deref().map_or(0, str::len)).sum();
        assert!(size < 4 * text.len(), "{size} bytes of chunks from {}", text.len());
        assert!(found.len() < 20_000);
        assert!(found.iter().all(|c| c.section.as_deref().is_none_or(|s| s.chars().count() <= MAX_SECTION_CHARS + 20)));
        assert!(found.iter().any(|c| c.text.ends_with("end")), "its last word is found");
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
                    // The text between two chunks has no visible content: white space, markup, empty headings.
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
