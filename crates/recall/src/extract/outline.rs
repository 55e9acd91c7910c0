//! Abstracts and overviews of files and directories.
//!
//! An overview starts with a heading and has the abstract as its first paragraph, so that the abstract can be read from
//! it.

use super::{MAX_ABSTRACT_CHARS, MAX_OVERVIEW_CHARS, salience};
use toolyard_text::sentences::{clip, collapse, sentences};

/// Maximum number of headings in an overview.
const MAX_HEADINGS: usize = 40;
/// Maximum number of sentences under "Key points".
const MAX_POINTS: usize = 12;
/// Maximum length of a list item, in characters.
const MAX_ITEM_CHARS: usize = 220;
/// Maximum number of children in an overview.
const MAX_CHILDREN: usize = 60;
/// Only this many bytes of a text are read.
const MAX_BYTES: usize = 1 << 20;

/// A direct child of a directory.
#[derive(Debug, Clone, Copy)]
pub struct Child<'a> {
    /// Its name, without a path.
    pub name: &'a str,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Its abstract; empty when there is none.
    pub summary: &'a str,
}

/// An abstract of a text, in at most [`MAX_ABSTRACT_CHARS`] characters: its first informative sentences.
pub fn text_abstract(name: &str, text: &str) -> String {
    let parts = Parts::of(text);
    parts.summary(name)
}

/// An overview of a text, in at most [`MAX_OVERVIEW_CHARS`] characters: heading, abstract, outline and most informative
/// sentences.
pub fn text_overview(name: &str, text: &str) -> String {
    let parts = Parts::of(text);
    let title = parts.title.clone().unwrap_or_else(|| name.to_owned());
    let mut overview = Overview::new(&title, &parts.summary(name));
    let headings: Vec<String> = parts
        .headings
        .iter()
        .skip(usize::from(parts.title.is_some()))
        .take(MAX_HEADINGS)
        .map(|(level, heading)| {
            format!("{}- {}", "  ".repeat(level.saturating_sub(2).min(3)), clip(heading, MAX_ITEM_CHARS))
        })
        .collect();
    overview.section("Outline", headings);
    let prose = parts.sentences();
    let telling = salience::most_telling(&prose, MAX_POINTS);
    overview.section(
        "Key points",
        telling.into_iter().map(|at| format!("- {}", clip(&collapse(prose[at]), MAX_ITEM_CHARS))),
    );
    overview.text
}

/// An abstract of a directory, in at most [`MAX_ABSTRACT_CHARS`] characters.
pub fn directory_abstract(name: &str, children: &[Child<'_>]) -> String {
    if children.is_empty() {
        return clip(&format!("{name} is empty."), MAX_ABSTRACT_CHARS);
    }
    if let [only] = children
        && !only.summary.is_empty()
    {
        return clip(&collapse(only.summary), MAX_ABSTRACT_CHARS);
    }
    let directories = children.iter().filter(|child| child.is_directory).count();
    let files = children.len() - directories;
    let mut counted = Vec::new();
    for (count, one, many) in [(directories, "directory", "directories"), (files, "file", "files")] {
        match count {
            0 => {}
            1 => counted.push(format!("1 {one}")),
            _ => counted.push(format!("{count} {many}")),
        }
    }
    let mut text = format!("{name}: {}.", counted.join(" and "));
    // What the children are about says more than their number, so as many summaries as fit are added.
    for child in children {
        let item = if child.summary.is_empty() { stem(child.name).to_owned() } else { first_sentence(child.summary) };
        let item = format!(" {}", item.trim_end_matches(['.', '…']));
        if text.chars().count() + item.chars().count() + 2 > MAX_ABSTRACT_CHARS {
            continue;
        }
        text.push_str(&item);
        text.push(';');
    }
    clip(text.trim_end_matches(';'), MAX_ABSTRACT_CHARS)
}

/// An overview of a directory, in at most [`MAX_OVERVIEW_CHARS`] characters, made from the abstracts of its children.
pub fn directory_overview(name: &str, children: &[Child<'_>]) -> String {
    let mut overview = Overview::new(name, &directory_abstract(name, children));
    let line = |child: &Child<'_>| {
        let summary = clip(&collapse(child.summary), MAX_ITEM_CHARS);
        let slash = if child.is_directory { "/" } else { "" };
        if summary.is_empty() {
            format!("- {}{slash}", child.name)
        } else {
            format!("- {}{slash}: {summary}", child.name)
        }
    };
    let listed = |directories: bool| {
        children.iter().filter(move |child| child.is_directory == directories).take(MAX_CHILDREN).map(line)
    };
    overview.section("Directories", listed(true));
    overview.section("Files", listed(false));
    overview.text
}

/// A page with a maximum size: the first line that does not fit and everything after it are dropped.
pub(super) struct Overview {
    pub(super) text: String,
    chars: usize,
}

impl Overview {
    pub(super) fn new(title: &str, summary: &str) -> Self {
        let text = format!("# {}\n\n{summary}\n", clip(&collapse(title), MAX_ITEM_CHARS));
        Self { chars: text.chars().count(), text }
    }

    pub(super) fn section(&mut self, heading: &str, lines: impl IntoIterator<Item = String>) {
        let mut opened = false;
        for line in lines {
            let opening = if opened { String::new() } else { format!("\n## {heading}\n\n") };
            let needed = opening.chars().count() + line.chars().count() + 1;
            if self.chars + needed > MAX_OVERVIEW_CHARS {
                return;
            }
            self.text.push_str(&opening);
            self.text.push_str(&line);
            self.text.push('\n');
            self.chars += needed;
            opened = true;
        }
    }
}

/// The parts of a Markdown or plain text.
struct Parts {
    title: Option<String>,
    headings: Vec<(usize, String)>,
    /// Paragraphs without markup, in order.
    paragraphs: Vec<String>,
    description: Option<String>,
}

impl Parts {
    fn of(text: &str) -> Self {
        let mut end = text.len().min(MAX_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let (front, body) = front_matter(&text[..end]);
        let mut parts = Self { title: None, headings: Vec::new(), paragraphs: Vec::new(), description: None };
        for (key, value) in front {
            match key {
                "title" | "name" if parts.title.is_none() => parts.title = Some(value.to_owned()),
                "description" | "summary" => parts.description = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut paragraph = String::new();
        let mut fence: Option<&str> = None;
        let mut comment = false;
        for line in body.lines() {
            let trimmed = line.trim();
            if comment {
                comment = !trimmed.contains("-->");
                continue;
            }
            if let Some(mark) = fence {
                if trimmed.starts_with(mark) {
                    fence = None;
                }
                continue;
            }
            if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
                fence = Some(&trimmed[..3]);
                parts.end(&mut paragraph);
            } else if trimmed.starts_with("<!--") {
                comment = !trimmed.contains("-->");
            } else if let Some((level, heading)) = heading(trimmed) {
                parts.end(&mut paragraph);
                if parts.title.is_none() && parts.headings.is_empty() && level == 1 {
                    parts.title = Some(heading.clone());
                }
                parts.headings.push((level, heading));
            } else if trimmed.is_empty() {
                parts.end(&mut paragraph);
            } else if !is_decoration(trimmed) {
                if !paragraph.is_empty() {
                    // List items stay separate sentences.
                    paragraph.push(if is_item(trimmed) { '\n' } else { ' ' });
                }
                paragraph.push_str(&plain(trimmed));
            }
        }
        parts.end(&mut paragraph);
        // A title from front matter becomes the first heading, unless it already is.
        if parts.title.is_some()
            && parts.headings.first().map(|(_, heading)| Some(heading)) != Some(parts.title.as_ref())
        {
            parts.headings.insert(0, (1, parts.title.clone().unwrap_or_default()));
        }
        parts
    }

    fn end(&mut self, paragraph: &mut String) {
        if paragraph.chars().any(char::is_alphanumeric) {
            self.paragraphs.push(std::mem::take(paragraph));
        }
        paragraph.clear();
    }

    fn sentences(&self) -> Vec<&str> {
        self.paragraphs.iter().flat_map(|paragraph| sentences(paragraph)).collect()
    }

    fn summary(&self, name: &str) -> String {
        if let Some(description) = &self.description
            && !description.trim().is_empty()
        {
            return clip(&collapse(description), MAX_ABSTRACT_CHARS);
        }
        let all = self.sentences();
        let mut text = String::new();
        for sentence in all.iter().take(8) {
            let sentence = collapse(sentence);
            let room = MAX_ABSTRACT_CHARS.saturating_sub(text.chars().count() + 1);
            if sentence.chars().count() > room {
                if text.chars().count() < MAX_ABSTRACT_CHARS / 3 {
                    if !text.is_empty() {
                        text.push(' ');
                    }
                    text.push_str(&clip(&sentence, room));
                }
                break;
            }
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(&sentence);
        }
        // A short line such as "Overview" says less than the title.
        if text.chars().count() < 40 {
            let title = self.title.clone().unwrap_or_else(|| name.to_owned());
            text = if text.is_empty() { title } else { format!("{title}: {text}") };
            let headings: Vec<&str> = self.headings.iter().skip(1).map(|(_, heading)| heading.as_str()).collect();
            if !headings.is_empty() {
                text = format!("{text} ({})", headings.join(", "));
            }
        }
        clip(&collapse(&text), MAX_ABSTRACT_CHARS)
    }
}

/// Returns the simple `key: value` lines of the front matter, and the rest of the text.
fn front_matter(text: &str) -> (Vec<(&str, &str)>, &str) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Some(rest) = text.strip_prefix("---\n").or_else(|| text.strip_prefix("---\r\n")) else {
        return (Vec::new(), text);
    };
    let mut offset = 0;
    let mut pairs = Vec::new();
    for line in rest.split_inclusive('\n') {
        offset += line.len();
        let trimmed = line.trim_end();
        if trimmed == "---" || trimmed == "..." {
            return (pairs, &rest[offset..]);
        }
        if let Some((key, value)) = trimmed.split_once(':')
            && !key.starts_with([' ', '-', '#'])
        {
            pairs.push((key.trim(), value.trim().trim_matches(['"', '\''])));
        }
    }
    (Vec::new(), text)
}

fn heading(line: &str) -> Option<(usize, String)> {
    let level = line.bytes().take_while(|b| *b == b'#').count();
    let rest = line.get(level..)?;
    if !(1..=6).contains(&level) || !(rest.is_empty() || rest.starts_with(' ')) {
        return None;
    }
    let text = plain(rest.trim().trim_end_matches('#').trim_end());
    (!text.is_empty()).then_some((level, text))
}

/// Whether a line is only a rule, a table border, an image or a badge.
fn is_decoration(line: &str) -> bool {
    !line.chars().any(char::is_alphanumeric)
        || line.starts_with("![")
        || line.starts_with("[![")
        || line.starts_with('<')
        || (line.starts_with('|') && line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' ')))
}

fn is_item(line: &str) -> bool {
    line.starts_with("- ")
        || line.starts_with("* ")
        || line.starts_with("+ ")
        || line.split_once(['.', ')']).is_some_and(|(number, rest)| {
            !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) && rest.starts_with(' ')
        })
}

/// A line without Markdown markup: link texts are kept, emphasis and bullets are removed.
fn plain(line: &str) -> String {
    let mut line = line.trim_start_matches(['>', ' ']);
    if is_item(line) {
        line = line.split_once(' ').map_or(line, |(_, rest)| rest).trim_start();
        line = line.strip_prefix("[ ] ").or_else(|| line.strip_prefix("[x] ")).unwrap_or(line);
    }
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(['*', '_', '`', '[', '!', '|', ']']) {
        out.push_str(&rest[..at]);
        let mark = rest[at..].chars().next().unwrap_or(' ');
        let after = &rest[at + mark.len_utf8()..];
        rest = match mark {
            '!' if after.starts_with('[') => after.find(')').map_or(after, |end| &after[end + 1..]),
            ']' => match after.strip_prefix('(').and_then(|target| target.find(')').map(|end| &target[end + 1..])) {
                Some(behind) => behind,
                None => after,
            },
            '[' => after.strip_prefix('[').unwrap_or(after),
            // An underscore inside a word is part of the word.
            '_' if out.ends_with(char::is_alphanumeric) && after.starts_with(char::is_alphanumeric) => {
                out.push('_');
                after
            }
            '|' => {
                out.push(' ');
                after
            }
            '!' => {
                out.push('!');
                after
            }
            _ => after,
        };
    }
    out.push_str(rest);
    collapse(&out)
}

fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem })
}

fn first_sentence(text: &str) -> String {
    collapse(sentences(text).first().copied().unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: &str = "---\ntags: [x]\n---\n# Backups\n\n[![badge](x.svg)](y)\n\nBackups run **every night** at [two](https://e.org). They are kept for a week.\n\n## Restore\n\n- Stop the server\n- Copy the files\n\n```sh\ncp a b\n```\n\n### Check\n\nCompare the sums.\n";

    #[test]
    fn an_abstract_is_the_first_prose() {
        assert!(
            text_abstract("backups.md", PAGE).starts_with("Backups run every night at two. They are kept for a week.")
        );
        assert_eq!(text_abstract("x.md", "---\nname: n\ndescription: \"Does a thing\"\n---\nBody"), "Does a thing");
        assert_eq!(text_abstract("notes.txt", ""), "notes.txt");
    }

    #[test]
    fn an_overview_begins_with_heading_and_abstract() {
        let overview = text_overview("backups.md", PAGE);
        assert!(overview.starts_with("# Backups\n\nBackups run every night"), "{overview}");
        assert!(overview.contains("- Restore\n  - Check\n"), "{overview}");
        assert!(!overview.contains("cp a b"));
    }

    #[test]
    fn a_directory_says_what_it_holds() {
        let children = [
            Child { name: "api", is_directory: true, summary: "How to call it. More." },
            Child { name: "intro.md", is_directory: false, summary: "" },
        ];
        assert_eq!(directory_abstract("docs", &children), "docs: 1 directory and 1 file. How to call it; intro");
        let overview = directory_overview("docs", &children);
        assert!(overview.contains("## Directories\n\n- api/: How to call it. More.\n"), "{overview}");
    }

    proptest! {
        #[test]
        fn nothing_is_too_long_and_nothing_panics(name in ".{0,40}", text in any::<String>()) {
            prop_assert!(text_abstract(&name, &text).chars().count() <= MAX_ABSTRACT_CHARS);
            prop_assert!(text_overview(&name, &text).chars().count() <= MAX_OVERVIEW_CHARS);
        }

        #[test]
        fn any_markdown_is_outlined_within_its_size(lines in prop::collection::vec(prop::sample::select(vec!["# A", "## 長い見出し", "- item [a](b", "![x](", "```", "text *with* _marks_ a_b", "| a | b |", "---", "<!-- c", "1. one", "> quoted. Two."]), 0..400)) {
            let text = lines.join("\n");
            prop_assert!(text_abstract("n", &text).chars().count() <= MAX_ABSTRACT_CHARS);
            prop_assert!(text_overview("n", &text).chars().count() <= MAX_OVERVIEW_CHARS);
        }
    }
}
