//! Turns a note into the rows of the index: its file, its chunks, and the text that is embedded.

use crate::{
    index::{ChunkRow, FileRow, FileState, hash64},
    note::{Note, day_number, day_of_millis},
    sensitive::{Guard, ScanInput},
    text::index_terms,
};
use std::ops::Range;

/// Title and aliases are repeated this often among a chunk's terms, so that they weigh more than a word of the text.
const TITLE_WEIGHT: usize = 2;
/// Approximate size of a row without its texts and vector.
const ROW_BYTES: usize = 256;
/// The status of a file whose chunks were only partly written.
const UNFINISHED: &str = "it was not indexed to its end";

/// The limits of one part of a note.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartLimits {
    /// Maximum number of chunks.
    pub(super) chunks: usize,
    /// Maximum size of their rows, in bytes.
    pub(super) bytes: usize,
    /// Number of dimensions of their vectors.
    pub(super) dimensions: usize,
}

impl PartLimits {
    /// No limit.
    const ANY: Self = Self { chunks: usize::MAX, bytes: usize::MAX, dimensions: 0 };
}

/// The metadata of a file.
#[derive(Debug, Clone, Copy)]
pub struct Stat {
    /// Hash of the content.
    pub hash: u64,
    /// The size in bytes.
    pub size: u64,
    /// When it was last written.
    pub mtime_ms: i64,
    /// Hash of the recipe with which it is split.
    pub recipe: u64,
}

/// A file that was read and split, without vectors.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The row of the file.
    pub file: FileRow,
    /// The rows of its chunks.
    pub chunks: Vec<ChunkRow>,
    /// The text to embed for each chunk; `None` if it must not leave the machine.
    pub inputs: Vec<Option<String>>,
}

/// A file record without content.
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

/// The record of a file whose chunks were only partly written.
pub(super) fn unfinished(path: &str) -> FileRow {
    blank_file(path.to_owned(), FileState::Failed, UNFINISHED.to_owned())
}

/// Whether only a part of a file's chunks was written.
pub(super) fn is_unfinished(file: &FileRow) -> bool {
    file.state == FileState::Failed && file.reason == UNFINISHED
}

impl Prepared {
    /// A file without chunks.
    pub(super) fn without_chunks(file: FileRow) -> Self {
        Self { file, chunks: Vec::new(), inputs: Vec::new() }
    }

    /// The rows of a note. The guard prevents sensitive chunks from being embedded.
    pub fn new(path: &str, note: &Note, stat: Stat, guard: Option<&Guard>) -> Self {
        let mut file = file_row(path, note, stat);
        let (chunks, inputs) = rows(note, &file, guard, 0, PartLimits::ANY);
        withhold(&mut file, &inputs, 0);
        Self { file, chunks, inputs }
    }

    /// Approximate size in bytes.
    pub(super) fn bytes(&self, dimensions: usize) -> usize {
        let file = &self.file;
        let names = file.aliases.iter().chain(&file.tags).chain(&file.links).map(String::len).sum::<usize>();
        let rows = self.chunks.iter().map(|row| row_bytes(row, dimensions)).sum::<usize>();
        ROW_BYTES + file.path.len() + file.title.len() + names + rows
    }
}

/// A note whose rows are created in parts.
pub(super) struct SplitNote {
    file: FileRow,
    note: Note,
    next: usize,
    withheld: usize,
}

impl SplitNote {
    pub(super) fn new(path: &str, note: Note, stat: Stat) -> Self {
        Self { file: file_row(path, &note, stat), note, next: 0, withheld: 0 }
    }

    /// The record of the file.
    pub(super) fn file(&self) -> &FileRow {
        &self.file
    }

    /// The next rows, as many as the limits allow but at least one, and whether they are the last.
    pub(super) fn part(&mut self, guard: Option<&Guard>, room: PartLimits) -> (Prepared, bool) {
        let (chunks, inputs) = rows(&self.note, &self.file, guard, self.next, room);
        self.next += chunks.len();
        self.withheld = withhold(&mut self.file, &inputs, self.withheld);
        (Prepared { file: self.file.clone(), chunks, inputs }, self.next >= self.note.chunks.len())
    }
}

fn file_row(path: &str, note: &Note, stat: Stat) -> FileRow {
    let state = if note.is_empty { FileState::Empty } else { FileState::Indexed };
    FileRow {
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
    }
}

/// Records in the file's reason how many chunks are withheld from embedding, and returns the number.
fn withhold(file: &mut FileRow, inputs: &[Option<String>], before: usize) -> usize {
    let withheld = before + inputs.iter().filter(|input| input.is_none()).count();
    if withheld > 0 {
        file.reason = format!("{withheld} sensitive chunks are not sent to the embedding server");
    }
    withheld
}

/// Approximate size of a row in bytes, including the text to embed.
fn row_bytes(row: &ChunkRow, dimensions: usize) -> usize {
    let section = row.section.as_ref().map_or(0, String::len);
    let tags = row.tags.iter().map(|tag| tag.len() + std::mem::size_of::<String>()).sum::<usize>();
    let vector = dimensions * std::mem::size_of::<f32>();
    ROW_BYTES
        + row.source_file.len()
        + 2 * (row.text.len() + section)
        + row.opaque.len()
        + row.terms.len()
        + tags
        + vector
}

/// The rows of a note from a chunk on, as many as the limits allow, with the text to embed for each.
fn rows(
    note: &Note,
    file: &FileRow,
    guard: Option<&Guard>,
    from: usize,
    room: PartLimits,
) -> (Vec<ChunkRow>, Vec<Option<String>>) {
    let mut names = String::new();
    for _ in 0..TITLE_WEIGHT {
        index_terms(&note.title, &mut names);
    }
    note.aliases.iter().chain(&note.tags).for_each(|name| index_terms(name, &mut names));
    let date = note.date.map(|date| date.to_string());
    let which: Range<usize> = from..note.chunks.len().min(from.saturating_add(room.chunks.max(1)));
    let mut rows = Vec::with_capacity(which.len());
    let mut inputs = Vec::with_capacity(which.len());
    let mut bytes = 0;
    for (number, chunk) in note.chunks.iter().enumerate().take(which.end).skip(which.start) {
        if bytes >= room.bytes {
            break;
        }
        let mut terms = String::with_capacity(chunk.text.len() + names.len());
        index_terms(&chunk.text, &mut terms);
        terms.push_str(&names);
        if let Some(section) = &chunk.section {
            index_terms(section, &mut terms);
        }
        index_terms(&chunk.opaque, &mut terms);
        let input = embedding_input(&note.title, chunk.section.as_deref(), &chunk.text);
        // Everything that would be sent, plus the tags. Code and comments are not sent.
        let sent = ScanInput {
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
        bytes += rows.last().map_or(0, |row| row_bytes(row, room.dimensions));
        inputs.push((!sensitive).then_some(input));
    }
    (rows, inputs)
}

/// The text of a chunk that is embedded: its headings and its content, without code.
fn embedding_input(title: &str, section: Option<&str>, text: &str) -> String {
    match section {
        Some(section) => format!("{title}\n{section}\n{text}"),
        None => format!("{title}\n{text}"),
    }
}
