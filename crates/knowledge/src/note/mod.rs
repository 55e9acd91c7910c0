//! The content of a note: title, aliases, tags, date, links, and its chunks with byte offsets.
//!
//! Pure: text in, [`Note`] out. Does not know files, indexes or embedders. Any text is a note; what cannot be parsed is
//! left out.

mod chunk;
mod clean;
mod dates;
mod markup;
mod properties;
mod tags;

pub use chunk::{Chunk, ChunkSizes, MAX_CHUNK_CHARS, MIN_CHUNK_CHARS, chunks};
pub use clean::plain_text;
pub use dates::{date_in_name, day_number, day_of_millis, leading_date, parse_date};
pub use properties::{Property, read_properties};
pub use tags::{inline_tags, normal_tag};
pub use toolyard_noteindex::names::{link_name, stem, tag_matches};

use dates::written_date;
use jiff::civil::Date;
use std::collections::BTreeSet;
use toolyard_vault::outline;

/// Maximum number of tags of a note, and of aliases and of links.
const MAX_LIST: usize = 1_000;
/// Maximum total length of the aliases, and of the tags, in characters, because every chunk repeats them.
const MAX_NAMES_CHARS: usize = 4_000;
/// Titles are truncated to this many characters, for the same reason.
const MAX_TITLE_CHARS: usize = 300;
/// Properties that contain a note's date, the most explicit first.
const DATE_KEYS: [&str; 3] = ["date", "day", "created"];

/// A parsed note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The title from front matter, otherwise the file name.
    pub title: String,
    /// Other names, from front matter.
    pub aliases: Vec<String>,
    /// The tags, in lower case, without the hash, sorted.
    pub tags: Vec<String>,
    /// The date from the file name, otherwise from front matter.
    pub date: Option<Date>,
    /// Names of the notes it links to, without folders and extension, in lower case, sorted.
    pub links: Vec<String>,
    /// Its chunks in order.
    pub chunks: Vec<Chunk>,
    /// Whether the note has no content except its name, by which it can still be found.
    pub is_empty: bool,
}

impl Note {
    /// Parses a note. `path` is its path in the vault.
    pub fn parse(path: &str, text: &str, sizes: ChunkSizes) -> Note {
        let outline = outline(text);
        let stem = stem(path);
        let properties = outline.front_matter.clone().map(|range| read_properties(&text[range])).unwrap_or_default();
        let values = |names: &[&str]| {
            let wanted = |p: &&Property| names.iter().any(|name| p.key.eq_ignore_ascii_case(name));
            properties.iter().filter(wanted).flat_map(|p| p.values.iter()).cloned().collect::<Vec<_>>()
        };
        let mut tags: BTreeSet<String> =
            // Both `tags: a b` and `tags: a, b` are in use.
            values(&["tags", "tag"]).iter().flat_map(|v| v.split([',', ' '])).filter_map(normal_tag).collect();
        for line in &outline.lines {
            let opaque = |at: usize| {
                let index = outline.opaque.partition_point(|range| range.end <= at);
                outline.opaque.get(index).is_some_and(|range| range.start <= at)
            };
            for (tag, range) in inline_tags(&text[line.clone()]) {
                if !opaque(line.start + range.start) {
                    tags.insert(tag);
                }
            }
        }
        let date = date_in_name(stem)
            .or_else(|| DATE_KEYS.iter().find_map(|key| values(&[*key]).iter().find_map(|value| written_date(value))));
        let links: BTreeSet<String> = outline.links.iter().map(|target| link_name(target)).collect();
        let mut chunks = chunks(text, &outline, leading_date(stem).is_some(), sizes);
        // Properties with a field of their own are not repeated.
        let own = ["title", "tags", "tag", "aliases", "alias"];
        let shown_properties = properties
            .iter()
            .filter(|p| !p.values.is_empty() && !own.iter().any(|name| p.key.eq_ignore_ascii_case(name)))
            .map(|p| format!("{}: {}", p.key, p.values.join(", ")))
            .collect::<Vec<_>>()
            .join("\n");
        if !shown_properties.is_empty() {
            match chunks.first_mut() {
                // Words in properties are found with the first chunk of the note.
                Some(first) => {
                    first.opaque = if first.opaque.is_empty() {
                        shown_properties
                    } else {
                        format!("{shown_properties}\n{}", first.opaque)
                    };
                }
                None => chunks.push(Chunk {
                    range: 0..text.len(),
                    section: None,
                    text: shown_properties.chars().take(MAX_CHUNK_CHARS).collect(),
                    opaque: String::new(),
                }),
            }
        }
        let title = values(&["title"]).into_iter().next().unwrap_or_else(|| stem.to_owned());
        let title: String = title.chars().take(MAX_TITLE_CHARS).collect();
        let (aliases, tags) = (within(values(&["aliases", "alias"])), within(tags));
        let is_empty = chunks.is_empty() && aliases.is_empty() && tags.is_empty();
        if chunks.is_empty() {
            // A note without content is found by its title.
            chunks.push(Chunk { range: 0..text.len(), section: None, text: title.clone(), opaque: String::new() });
        }
        Note {
            title,
            aliases,
            tags,
            date,
            links: links.into_iter().filter(|name| !name.is_empty()).take(MAX_LIST).collect(),
            chunks,
            is_empty,
        }
    }
}

/// The first names that fit into the limits.
fn within(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut room = MAX_NAMES_CHARS;
    let fits = |name: &String| {
        let chars = name.chars().count();
        let fits = chars <= room;
        room = room.saturating_sub(chars);
        fits
    };
    names.into_iter().take_while(fits).take(MAX_LIST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: ChunkSizes = ChunkSizes { chars: 1_500, overlap: 100 };

    #[test]
    fn a_note_says_what_it_is() {
        let text = "---\ntitle: The Plan\naliases: [Plan B]\ntags: work, Life/Home\ncreated: 2024-01-02\n---\n\
                    # Start\n#urgent see [[People/Anna.md|Anna]] and `#code`\n```\n#no\n```\n";
        let note = Note::parse("Projects/plan.md", text, SIZES);
        assert_eq!(note.title, "The Plan");
        assert_eq!(note.aliases, ["Plan B"]);
        assert_eq!(note.tags, ["life/home", "urgent", "work"]);
        assert_eq!(note.date, Some(jiff::civil::date(2024, 1, 2)));
        assert_eq!(note.links, ["anna"]);
        assert_eq!(note.chunks.len(), 1);
        assert!(note.chunks[0].opaque.contains("created: 2024-01-02") && note.chunks[0].opaque.contains("#no"));
        assert_eq!(note.chunks[0].text, "#urgent see Anna and #code");
    }

    #[test]
    fn the_name_gives_title_and_date_where_nothing_else_does() {
        let note = Note::parse("Journal/2024-03-05 Tuesday.md", "text", SIZES);
        assert_eq!((note.title.as_str(), note.date), ("2024-03-05 Tuesday", Some(jiff::civil::date(2024, 3, 5))));
        let only_properties = Note::parse("a.md", "---\nmood: calm\n---\n", SIZES);
        assert_eq!(only_properties.chunks[0].text, "mood: calm");
    }

    #[test]
    fn a_note_without_text_is_found_by_what_it_is_called() {
        for (text, is_empty) in [
            ("", true),
            (" \n", true),
            ("---\n---\n", true),
            ("---\naliases: [Router]\n---\n", false),
            ("---\ntags: home\n---\n", false),
        ] {
            let note = Note::parse("x/Wifi password.md", text, SIZES);
            assert_eq!((note.chunks.len(), note.is_empty), (1, is_empty), "{text:?}");
            assert_eq!((note.chunks[0].text.as_str(), &note.chunks[0].range), ("Wifi password", &(0..text.len())));
        }
    }

    #[test]
    fn the_plainest_date_counts_whatever_comes_first() {
        let date = |front: &str| Note::parse("a.md", &format!("---\n{front}\n---\n"), SIZES).date;
        let wanted = Some(jiff::civil::date(2024, 3, 5));
        assert_eq!(date("created: 2020-01-01\ndate: 2024-03-05 Tuesday"), wanted);
        assert_eq!(date("created: 2020-01-01\ndate: soon\nday: \"[[2024-03-05]]\""), wanted);
        assert_eq!(date("created: 2024-03-05T10:00\ndate: 2020-01-01garbage"), wanted);
    }

    #[test]
    fn a_name_is_the_same_name_in_both_spellings_of_a_letter() {
        assert_eq!(link_name("Caf\u{e9}"), link_name("x/CAFE\u{301}.md"));
        let note = Note::parse("a.md", "#caf\u{e9} #cafe\u{301} [[Cafe\u{301}]] [[Caf\u{e9}]]", SIZES);
        assert_eq!((note.tags.len(), note.links.len()), (1, 1));
    }

    #[test]
    fn names_that_every_chunk_carries_are_limited() {
        let aliases: Vec<String> = (0..400).map(|number| format!("{number}{}", "x".repeat(1_000))).collect();
        let text = format!("---\ntitle: {}\naliases: [{}]\n---\n", "t".repeat(1_900), aliases.join(", "));
        let note = Note::parse("a.md", &text, SIZES);
        assert_eq!((note.title.len(), note.aliases.len()), (MAX_TITLE_CHARS, 3));
    }
}
