//! From a note to the rows of the index: its file, its chunks, and what is embedded of each.

use crate::{
    index::{ChunkRow, FileRow, FileState, hash64},
    note::{Note, day_number, day_of_millis},
    sensitive::{Guard, Material},
    text::index_terms,
};

/// Title and aliases are repeated this often among a chunk's terms, so that they count more than a word of the text.
const TITLE_WEIGHT: usize = 2;

/// What is known of a file beside what it says.
#[derive(Debug, Clone, Copy)]
pub struct Stat {
    /// Hash of its bytes.
    pub hash: u64,
    /// Its size.
    pub size: u64,
    /// When it was last written.
    pub mtime_ms: i64,
    /// How it is cut.
    pub recipe: u64,
}

/// A file that was read and cut, before its vectors.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The file.
    pub file: FileRow,
    /// Its chunks.
    pub chunks: Vec<ChunkRow>,
    /// What is embedded of each chunk; nothing where it must not leave the machine.
    pub inputs: Vec<Option<String>>,
}

/// A file of which nothing is known yet.
pub(super) fn blank_file(path: String, state: FileState, reason: String) -> FileRow {
    FileRow {
        path,
        state,
        reason,
        hash: 0,
        size: 0,
        mtime_ms: 0,
        recipe: 0,
        chunks: 0,
        unembedded: 0,
        title: String::new(),
        aliases: Vec::new(),
        tags: Vec::new(),
        links: Vec::new(),
        day: 0,
    }
}

impl Prepared {
    /// A file without chunks.
    pub(super) fn without_chunks(file: FileRow) -> Self {
        Self { file, chunks: Vec::new(), inputs: Vec::new() }
    }

    /// A note's rows. A guard keeps sensitive chunks from being embedded.
    pub fn new(path: &str, note: &Note, stat: Stat, guard: Option<&Guard>) -> Self {
        let state = if note.is_empty { FileState::Empty } else { FileState::Indexed };
        let mut file = FileRow {
            hash: stat.hash,
            size: stat.size,
            mtime_ms: stat.mtime_ms,
            recipe: stat.recipe,
            chunks: note.chunks.len() as u32,
            title: note.title.clone(),
            aliases: note.aliases.clone(),
            tags: note.tags.clone(),
            links: note.links.clone(),
            day: note.date.map_or_else(|| day_of_millis(stat.mtime_ms), day_number),
            ..blank_file(path.to_owned(), state, String::new())
        };
        let (chunks, inputs) = rows(note, &file, guard);
        let withheld = inputs.iter().filter(|input| input.is_none()).count();
        if withheld > 0 {
            file.reason = format!("{withheld} sensitive chunks are not sent to the embedding server");
        }
        Self { file, chunks, inputs }
    }
}

/// The rows of a note, and what is embedded of each.
fn rows(note: &Note, file: &FileRow, guard: Option<&Guard>) -> (Vec<ChunkRow>, Vec<Option<String>>) {
    let mut names = String::new();
    for _ in 0..TITLE_WEIGHT {
        index_terms(&note.title, &mut names);
    }
    note.aliases.iter().chain(&note.tags).for_each(|name| index_terms(name, &mut names));
    let date = note.date.map(|date| date.to_string());
    let mut rows = Vec::with_capacity(note.chunks.len());
    let mut inputs = Vec::with_capacity(note.chunks.len());
    for (number, chunk) in note.chunks.iter().enumerate() {
        let mut terms = String::with_capacity(chunk.text.len() + names.len());
        index_terms(&chunk.text, &mut terms);
        terms.push_str(&names);
        if let Some(section) = &chunk.section {
            index_terms(section, &mut terms);
        }
        index_terms(&chunk.opaque, &mut terms);
        let input = embedding_input(&note.title, chunk.section.as_deref(), &chunk.text);
        // All that is sent, and what the note is said to be about. Code and comments are not sent.
        let sent = Material {
            title: &note.title,
            section: chunk.section.as_deref(),
            text: &chunk.text,
            opaque: "",
            tags: &note.tags,
        };
        let sensitive = guard.is_some_and(|guard| !guard.categories_of(sent).is_empty());
        rows.push(ChunkRow {
            source_file: file.path.clone(),
            chunk_index: number as u32,
            section: chunk.section.clone(),
            start: chunk.range.start as u64,
            end: chunk.range.end as u64,
            text: chunk.text.clone(),
            opaque: chunk.opaque.clone(),
            terms,
            tags: note.tags.clone(),
            date: date.clone(),
            day: file.day,
            hash: hash64(&[input.as_bytes()]),
            vector: None,
        });
        inputs.push((!sensitive).then_some(input));
    }
    (rows, inputs)
}

/// What is embedded of a chunk: where it stands, and what it says. Code is left out.
fn embedding_input(title: &str, section: Option<&str>, text: &str) -> String {
    match section {
        Some(section) => format!("{title}\n{section}\n{text}"),
        None => format!("{title}\n{text}"),
    }
}
