//! Splits a Markdown text into files at its headings: small neighbouring sections are merged, large sections are split
//! into parts, and the subsections of a large section go into a directory with its name.

use crate::names::{merged_name, section_name};
use std::collections::HashSet;

/// Sections of at most this many tokens are merged with their neighbours.
const SMALL_TOKENS: usize = 512;
/// Target maximum number of tokens of a file.
const LARGE_TOKENS: usize = 2_048;
/// A file never exceeds this multiple of [`LARGE_TOKENS`].
const FLEXIBLE: f64 = 1.3;
/// Maximum number of characters of a file, regardless of tokens.
const MAX_CHARS: usize = 16_000;
/// Sections nested deeper than this stay in their parent's file.
const MAX_NESTING: usize = 4;

/// One output file of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The path relative to the document's directory, with `/` as separator, ending in `.md`.
    pub path: String,
    /// The title: the headings that the file contains, outermost first.
    pub title: String,
    /// The content as Markdown.
    pub content: String,
}

/// Estimated number of tokens: 0.3 per character, 0.7 for Chinese, Japanese and Korean characters.
pub fn tokens(text: &str) -> usize {
    let mut tenths = 0usize;
    for c in text.chars() {
        tenths += if is_cjk(c) { 7 } else { 3 };
    }
    tenths.div_ceil(10)
}

fn is_cjk(c: char) -> bool {
    matches!(c as u32, 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0x20000..=0x2FA1F)
}

/// Splits a text into files. `stem` names text without a heading.
pub fn split(stem: &str, text: &str) -> Vec<Section> {
    let name = section_name(stem);
    if fits(text) {
        return vec![Section { path: format!("{name}.md"), title: stem.to_owned(), content: text.to_owned() }];
    }
    let blocks = blocks(text);
    let mut writer = Writer { sections: Vec::new(), used: HashSet::new() };
    writer.write("", stem, &blocks, 0);
    writer.sections
}

fn fits(text: &str) -> bool {
    tokens(text) <= LARGE_TOKENS && text.len() <= MAX_CHARS * 4 && text.chars().count() <= MAX_CHARS
}

fn fits_flexibly(text: &str) -> bool {
    (tokens(text) as f64) <= LARGE_TOKENS as f64 * FLEXIBLE && text.chars().count() <= MAX_CHARS
}

/// A heading and the text up to the next heading. Level 0 is the text before the first heading.
#[derive(Debug, Clone, Copy)]
struct Block<'a> {
    level: usize,
    heading: &'a str,
    text: &'a str,
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut found: Vec<(usize, &str, usize)> = Vec::new();
    let mut fence: Option<(u8, usize)> = None;
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        let mark = trimmed.bytes().next().filter(|b| matches!(b, b'`' | b'~'));
        let run = mark.map_or(0, |mark| trimmed.bytes().take_while(|b| *b == mark).count());
        match (fence, mark) {
            (None, Some(mark)) if run >= 3 => fence = Some((mark, run)),
            (Some((open, length)), Some(mark)) if mark == open && run >= length && run == trimmed.len() => fence = None,
            (None, _) => {
                let level = trimmed.bytes().take_while(|b| *b == b'#').count();
                if (1..=6).contains(&level) && trimmed[level..].starts_with([' ', '\t']) && !line.starts_with("    ") {
                    found.push((level, trimmed[level..].trim().trim_end_matches('#').trim_end(), offset));
                }
            }
            _ => {}
        }
        offset += line.len();
    }
    let mut blocks = Vec::with_capacity(found.len() + 1);
    let first = found.first().map_or(text.len(), |(_, _, at)| *at);
    if !text[..first].trim().is_empty() {
        blocks.push(Block { level: 0, heading: "", text: &text[..first] });
    }
    for (number, (level, heading, at)) in found.iter().enumerate() {
        let end = found.get(number + 1).map_or(text.len(), |(_, _, next)| *next);
        blocks.push(Block { level: *level, heading, text: &text[*at..end] });
    }
    blocks
}

struct Writer {
    sections: Vec<Section>,
    used: HashSet<String>,
}

/// Sections that are collected to be merged into one file.
#[derive(Default)]
struct PendingSections<'a> {
    headings: Vec<&'a str>,
    text: String,
}

impl Writer {
    /// Writes blocks into a directory. `name` is used for text before the first heading.
    fn write(&mut self, directory: &str, name: &str, blocks: &[Block<'_>], nesting: usize) {
        let mut waiting = PendingSections::default();
        for group in groups(blocks) {
            let heading = group.first().map_or("", |block| block.heading);
            let heading = if heading.is_empty() { name } else { heading };
            let text: String = group.iter().map(|block| block.text).collect();
            let joined = tokens(&waiting.text) + tokens(&text);
            if tokens(&text) <= SMALL_TOKENS && joined <= LARGE_TOKENS {
                waiting.headings.push(heading);
                waiting.text.push_str(&text);
                continue;
            }
            self.flush(directory, &mut waiting);
            if tokens(&text) <= SMALL_TOKENS {
                waiting.headings.push(heading);
                waiting.text.push_str(&text);
            } else if fits_flexibly(&text) {
                self.put(directory, &section_name(heading), heading, &text);
            } else if group.len() > 1 && nesting < MAX_NESTING {
                let inside = self.directory(directory, &section_name(heading));
                self.nested(&inside, heading, group, nesting);
            } else {
                self.parts(directory, heading, &text);
            }
        }
        self.flush(directory, &mut waiting);
    }

    /// Writes a large section: its own text first, then its subsections.
    fn nested(&mut self, directory: &str, heading: &str, group: &[Block<'_>], nesting: usize) {
        let Some((own, rest)) = group.split_first() else { return };
        let bare = Block { level: 0, heading: "", text: own.text };
        // A heading without text does not become a file of its own; it is the name of the directory.
        let has_text = own.text.lines().skip(usize::from(own.level > 0)).any(|line| !line.trim().is_empty());
        if has_text || rest.is_empty() {
            let mut blocks = vec![bare];
            blocks.extend_from_slice(rest);
            self.write(directory, heading, &blocks, nesting + 1);
        } else {
            self.write(directory, heading, rest, nesting + 1);
        }
    }

    fn flush(&mut self, directory: &str, waiting: &mut PendingSections<'_>) {
        let PendingSections { headings, text } = std::mem::take(waiting);
        if !text.trim().is_empty() {
            self.put(directory, &merged_name(&headings), &headings.join(", "), &text);
        }
    }

    /// Splits a large section without subsections into parts, between paragraphs where possible.
    fn parts(&mut self, directory: &str, heading: &str, text: &str) {
        let name = section_name(heading);
        for (number, part) in cut(text).into_iter().enumerate() {
            self.put(directory, &format!("{name}_{}", number + 1), heading, &part);
        }
    }

    fn put(&mut self, directory: &str, name: &str, title: &str, content: &str) {
        let mut path = join(directory, &format!("{name}.md"));
        let mut number = 1;
        while !self.used.insert(path.to_lowercase()) {
            number += 1;
            path = join(directory, &format!("{name}_{number}.md"));
        }
        self.sections.push(Section {
            path,
            title: title.to_owned(),
            content: content.trim_matches('\n').to_owned() + "\n",
        });
    }

    fn directory(&mut self, directory: &str, name: &str) -> String {
        let mut path = join(directory, name);
        let mut number = 1;
        while !self.used.insert(format!("{}/", path.to_lowercase())) {
            number += 1;
            path = join(directory, &format!("{name}_{number}"));
        }
        path
    }
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// Groups each block with its subsections: a group starts at each block of the highest level present.
fn groups<'a, 'b>(blocks: &'b [Block<'a>]) -> Vec<&'b [Block<'a>]> {
    let Some(top) = blocks.iter().map(|block| block.level).filter(|level| *level > 0).min() else {
        return if blocks.is_empty() { Vec::new() } else { vec![blocks] };
    };
    let mut found = Vec::new();
    let mut start = 0;
    for (at, block) in blocks.iter().enumerate().skip(1) {
        if block.level <= top || blocks[start].level == 0 {
            found.push(&blocks[start..at]);
            start = at;
        }
    }
    found.push(&blocks[start..]);
    // If everything is under a single title, its subsections are the groups.
    if let [only] = found[..]
        && only.len() > 1
        && only[0].level == top
    {
        let (first, rest) = only.split_at(1);
        let mut inner = groups(rest);
        inner.insert(0, first);
        return inner;
    }
    found
}

/// Splits a text between paragraphs, a long paragraph between lines, and a long line between words or characters.
fn cut(text: &str) -> Vec<String> {
    let mut parts = SectionJoiner::default();
    for paragraph in text.split_inclusive("\n\n") {
        if fits(paragraph) {
            parts.add(paragraph);
            continue;
        }
        for line in paragraph.split_inclusive('\n') {
            if fits(line) {
                parts.add(line);
                continue;
            }
            for piece in line.split_inclusive(|c: char| c.is_whitespace() || matches!(c, '。' | '，' | '、')) {
                let mut rest = piece;
                while !fits(rest) {
                    // This many characters fit, because a character counts as less than one token.
                    let end = rest.char_indices().nth(LARGE_TOKENS).map_or(rest.len(), |(at, _)| at);
                    parts.add(&rest[..end]);
                    rest = &rest[end..];
                }
                parts.add(rest);
            }
        }
    }
    parts.finish()
}

/// Joins pieces as long as they fit into one file.
#[derive(Default)]
struct SectionJoiner {
    done: Vec<String>,
    current: String,
    tokens: usize,
    chars: usize,
}

impl SectionJoiner {
    fn add(&mut self, piece: &str) {
        let (tokens, chars) = (tokens(piece), piece.chars().count());
        if !self.current.is_empty() && (self.tokens + tokens > LARGE_TOKENS || self.chars + chars > MAX_CHARS) {
            self.done.push(std::mem::take(&mut self.current));
            (self.tokens, self.chars) = (0, 0);
        }
        self.current.push_str(piece);
        self.tokens += tokens;
        self.chars += chars;
    }

    fn finish(mut self) -> Vec<String> {
        if !self.current.trim().is_empty() {
            self.done.push(self.current);
        }
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_small_text_is_one_file_of_its_name() {
        let sections = split("widget", "# Widget\n\nSmall.\n");
        assert_eq!(sections.len(), 1);
        assert_eq!(sections[0].path, "widget.md");
        assert_eq!(sections[0].content, "# Widget\n\nSmall.\n");
    }

    #[test]
    fn small_neighbours_are_together_and_large_sections_apart() {
        let filler = |words: usize| "lorem ipsum dolor ".repeat(words);
        let text = format!(
            "# Guide\n\nIntro.\n\n## Install\n\n{}\n\n## Use\n\nShort.\n\n## Tips\n\nShort too.\n\n## Reference\n\n{}\n",
            filler(250),
            filler(300)
        );
        let paths: Vec<String> = split("guide", &text).into_iter().map(|section| section.path).collect();
        assert_eq!(paths[0], "Guide.md", "{paths:?}");
        assert_eq!(paths[1], "Install.md");
        assert!(paths[2].starts_with("Use_1more_"), "{paths:?}");
        assert_eq!(paths[3], "Reference.md");
    }

    #[test]
    fn a_huge_section_with_subsections_is_a_directory_and_one_without_is_cut() {
        let filler = "lorem ipsum dolor sit amet\n\n".repeat(200);
        let text =
            format!("# A\n\n## Big\n\n### One\n\n{filler}\n### Two\n\n{filler}\n## Flat\n\n{filler}{filler}{filler}");
        let sections = split("a", &text);
        let paths: Vec<&str> = sections.iter().map(|section| section.path.as_str()).collect();
        assert!(paths.contains(&"Big/One.md") && paths.contains(&"Big/Two.md"), "{paths:?}");
        assert!(paths.contains(&"Flat_1.md") && paths.contains(&"Flat_2.md"), "{paths:?}");
        assert!(sections.iter().all(|section| fits_flexibly(&section.content)), "{paths:?}");
    }

    #[test]
    fn a_heading_in_code_is_no_heading() {
        let filler = "word ".repeat(2_000);
        let text = format!("# A\n\n```sh\n# not a heading\n```\n{filler}\n\n# B\n\n{filler}");
        assert!(split("x", &text).iter().all(|section| !section.path.contains("not")));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_is_too_large(pieces in prop::collection::vec((0usize..7, "[a-z猫]{1,8}", 0usize..900), 1..14)) {
            let mut text = String::new();
            for (level, word, times) in &pieces {
                if *level > 0 {
                    text.push_str(&format!("{} {word}\n\n", "#".repeat(*level)));
                }
                for _ in 0..*times {
                    text.push_str(word);
                    text.push(' ');
                }
                text.push_str("\n\n");
            }
            let sections = split("stem", &text);
            let squash = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            let whole: String = sections.iter().map(|section| section.content.as_str()).collect::<Vec<_>>().join("\n");
            let lost: Vec<&str> = text.split_whitespace().filter(|word| !word.starts_with('#')).collect();
            let kept: Vec<&str> = whole.split_whitespace().filter(|word| !word.starts_with('#')).collect();
            // A heading without text becomes only the name of its directory.
            prop_assert!(kept.len() <= lost.len());
            prop_assert!(lost.len() - kept.len() <= pieces.len(), "{} {}", squash(&text).len(), squash(&whole).len());
            let mut paths = HashSet::new();
            for section in &sections {
                prop_assert!(paths.insert(section.path.clone()), "{}", section.path);
                prop_assert!(fits_flexibly(&section.content) || sections.len() == 1, "{}", section.path);
            }
        }
    }
}
