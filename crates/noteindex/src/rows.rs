//! What an index keeps: chunks with their words and vectors, files with their state, versions, filters and errors. Plain
//! data that also crosses the pipe between the two programs.

use crate::names::tag_matches;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What an index is made with. Vectors of different embedders cannot be compared, so a change means a new table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexSpec {
    /// Names the embedder and its model exactly; empty for full text only.
    pub embedder: String,
    /// Length of a vector; 0 where there are none.
    pub dimensions: usize,
    /// How notes were cut. Files indexed with another recipe are indexed again.
    pub recipe: String,
}

impl IndexSpec {
    /// Whether rows of the two can stand in one table.
    pub fn shares_table(&self, other: &IndexSpec) -> bool {
        self.embedder == other.embedder && self.dimensions == other.dimensions
    }
}

/// One chunk as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChunkRow {
    /// The file, as a vault path.
    pub source_file: String,
    /// Which chunk of the file, from 0.
    pub chunk_index: u32,
    /// The headings it stands under.
    pub section: Option<String>,
    /// First byte in the file.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
    /// What is shown.
    pub text: String,
    /// Code, comments and properties: searched by words, not shown as the chunk's text.
    pub opaque: String,
    /// The terms that full text counts, with a space after each.
    pub terms: String,
    /// The note's tags.
    pub tags: Vec<String>,
    /// The note's date as written (`2024-03-05`).
    pub date: Option<String>,
    /// The day that date filters compare: the note's date, else when it was last changed.
    pub day: i32,
    /// Names what was embedded: chunks with the same hash have the same vector.
    pub hash: u64,
    /// The vector; absent where none could be made.
    pub vector: Option<Vec<f32>>,
}

impl ChunkRow {
    /// Names the file in a column of numbers.
    pub fn file_id(&self) -> u64 {
        file_id(&self.source_file)
    }
}

/// Names a file in a column of numbers.
pub fn file_id(path: &str) -> u64 {
    hash64(&[path.as_bytes()])
}

/// The first 64 bits of SHA-256 over the parts, each with its length.
pub fn hash64(parts: &[&[u8]]) -> u64 {
    use sha2::{Digest, Sha256};
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().iter().take(8).fold(0, |value, byte| (value << 8) | u64::from(*byte))
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileState {
    /// Its chunks can be found.
    Indexed,
    /// There is nothing in it; it can be found by its name.
    Empty,
    /// Left out on purpose; the reason says why.
    Skipped,
    /// It could not be read or understood.
    Failed,
}

impl FileState {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Indexed => "indexed",
            Self::Empty => "empty",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Indexed, Self::Empty, Self::Skipped, Self::Failed].into_iter().find(|state| state.as_str() == word)
    }
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileRow {
    /// The vault path, or the name as well as it can be spelled.
    pub path: String,
    /// What became of it.
    pub state: FileState,
    /// Why it was skipped or failed, or what is missing; empty otherwise.
    pub reason: String,
    /// Hash of its bytes.
    pub hash: u64,
    /// Its size.
    pub size: u64,
    /// When it was last written, as seen when it was indexed.
    pub mtime_ms: i64,
    /// How it was cut.
    pub recipe: u64,
    /// How many chunks it has.
    pub chunks: u32,
    /// Chunks that have no vector though the index has vectors.
    pub unembedded: u32,
    /// Its title.
    pub title: String,
    /// Its other names.
    pub aliases: Vec<String>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Names it links to.
    pub links: Vec<String>,
    /// The day that date filters compare.
    pub day: i32,
}

/// A complete version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionInfo {
    /// Counts complete versions; the largest is the current one.
    pub generation: u64,
    /// The table's own version: `index_version` in answers.
    pub version: String,
    /// What it was made with.
    pub spec: IndexSpec,
    /// Chunks in it.
    pub chunks: u64,
    /// Files known to it.
    pub files: u64,
    /// When it was completed.
    pub completed_at: Timestamp,
}

/// What is wrong with an index. Messages name files of the index at most, never what notes say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum IndexError {
    /// It is there and cannot be read.
    #[error("the index is damaged: {0}")]
    Corrupted(String),
    /// Another process is writing.
    #[error("another process is indexing this vault")]
    Busy,
    /// There is no version to go back to.
    #[error("there is no earlier version")]
    NoEarlierVersion,
    /// The disk or the object store does not answer, is full or refuses.
    #[error("the index cannot be reached: {0}")]
    Unavailable(String),
    /// The index program is not there, does not start, or ended during the work.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// What is wrong with the index program. None of it says anything about the index itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ProgramError {
    /// There is no such program.
    #[error("the index program is not installed: {0}")]
    Missing(String),
    /// It is of another version than this program.
    #[error("{0}")]
    OtherVersion(String),
    /// It could not be started, or ended before it answered the handshake.
    #[error("the index program could not be started: {0}")]
    NotStarted(String),
    /// It ended while it worked on a request.
    #[error("the index program ended before it answered: {0}")]
    Ended(String),
    /// It was started again, and the version that is read is not the newest one any more: the newest is to be opened.
    #[error("the index program was started again and has a newer version: {0}")]
    Replaced(String),
    /// It sent or was sent something that the protocol does not allow.
    #[error("the index program broke the protocol: {0}")]
    Protocol(String),
    /// The notes are more than fit the stand-in in memory.
    #[error("the notes are more than can be searched without the index program: {0}")]
    TooMany(String),
}

/// Work on an index.
pub type IndexResult<T> = Result<T, IndexError>;

/// How a writer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    /// From what the last writer left, complete or not, if it was made with the same embedder; else from nothing.
    Continue,
    /// From nothing.
    Fresh,
}

/// Which chunks may be found. Empty lists and `None` admit everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkFilter {
    /// In these folders or files.
    pub folders: Vec<String>,
    /// With one of these tags, or one below them.
    pub tags: Vec<String>,
    /// Between these days, both included.
    pub days: Option<(i32, i32)>,
}

impl ChunkFilter {
    /// Whether it admits everything.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.tags.is_empty() && self.days.is_none()
    }

    /// Whether a file's chunks may be found.
    pub fn admits(&self, path: &str, tags: &[String], day: i32) -> bool {
        let in_folder = |folder: &String| {
            path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        (self.folders.is_empty() || self.folders.iter().any(in_folder))
            && (self.tags.is_empty() || self.tags.iter().any(|wanted| tags.iter().any(|tag| tag_matches(tag, wanted))))
            && self.days.is_none_or(|(from, to)| (from..=to).contains(&day))
    }
}

/// A chunk that was found: the row to fetch and how well it fits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Good for this reader only.
    pub row: u64,
    /// Larger fits better.
    pub score: f32,
}

/// Where a chunk's vector is: what the in-memory scan is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorRow<'a> {
    /// Good for this reader only.
    pub row: u64,
    /// The file's [`file_id`].
    pub file: u64,
    /// The chunk's [`ChunkRow::hash`].
    pub hash: u64,
    /// The vector, where it was asked for.
    pub vector: Option<&'a [f32]>,
}

/// What is read of the chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum VectorColumns {
    /// Rows and files of all chunks, those without a vector too. Hashes are 0.
    FilesOnly,
    /// Rows, files and hashes of the chunks that have a vector.
    KeysOnly,
    /// The vectors too.
    All,
}

/// What one write changes: everything known of the files in `files` and `removed` is replaced.
///
/// A file with too many chunks for one write comes in several. The first has it in `files`, with a row that says it is
/// unfinished; those between have chunks of it alone; the last has its row in `touched`. Chunks of a file that is not in
/// `files` are added to those it has.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct WriteBatch {
    /// Files as they are now.
    pub files: Vec<FileRow>,
    /// The chunks of those files, and more of files that were begun before.
    pub chunks: Vec<ChunkRow>,
    /// Files of which only the row changed; their chunks stay.
    pub touched: Vec<FileRow>,
    /// Files that are gone.
    pub removed: Vec<String>,
}

impl WriteBatch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.chunks.is_empty() && self.touched.is_empty() && self.removed.is_empty()
    }
}
