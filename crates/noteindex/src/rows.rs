//! The data of an index: chunks with terms and vectors, file records, versions, filters and errors. These are plain
//! types that are also sent over the pipe between the two programs.

use crate::names::tag_matches;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How an index was built. Vectors of different embedders cannot be compared, so a new embedder requires a new table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexSpec {
    /// Identifies the embedder and its model; empty for full text only.
    pub embedder: String,
    /// Number of dimensions of a vector; 0 without vectors.
    pub dimensions: usize,
    /// How notes are split into chunks. Files indexed with another recipe are indexed again.
    pub recipe: String,
}

impl IndexSpec {
    /// Whether rows of both can be stored in one table.
    pub fn shares_table(&self, other: &IndexSpec) -> bool {
        self.embedder == other.embedder && self.dimensions == other.dimensions
    }
}

/// A stored chunk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChunkRow {
    /// The vault path of the file.
    pub source_file: String,
    /// Index of the chunk in its file, from 0.
    pub chunk_index: u32,
    /// The headings above the chunk.
    pub section: Option<String>,
    /// Offset of the first byte in the file.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
    /// The displayed text.
    pub text: String,
    /// Code, comments and properties: searchable, but not displayed as the chunk's text.
    pub opaque: String,
    /// The full-text terms, each followed by a space.
    pub terms: String,
    /// The note's tags.
    pub tags: Vec<String>,
    /// The note's date as written (`2024-03-05`).
    pub date: Option<String>,
    /// The day used by date filters: the note's date, otherwise the day of its last change.
    pub day: i32,
    /// Hash of the embedded text: chunks with the same hash have the same vector.
    pub hash: u64,
    /// The vector; `None` where the chunk could not be embedded.
    pub vector: Option<Vec<f32>>,
}

impl ChunkRow {
    /// The [`file_id`] of the chunk's file.
    pub fn file_id(&self) -> u64 {
        file_id(&self.source_file)
    }
}

/// A 64-bit id of a file, derived from its path.
pub fn file_id(path: &str) -> u64 {
    hash64(&[path.as_bytes()])
}

/// The first 64 bits of SHA-256 over the parts, each prefixed with its length.
pub fn hash64(parts: &[&[u8]]) -> u64 {
    use sha2::{Digest, Sha256};
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().iter().take(8).fold(0, |value, byte| (value << 8) | u64::from(*byte))
}

/// The indexing state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileState {
    /// Its chunks are searchable.
    Indexed,
    /// The file is empty; it can be found by its name.
    Empty,
    /// Skipped on purpose; the reason is recorded.
    Skipped,
    /// The file could not be read or parsed.
    Failed,
}

impl FileState {
    /// The name of the state in the stored form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Indexed => "indexed",
            Self::Empty => "empty",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }

    /// Parses the name of a state.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Indexed, Self::Empty, Self::Skipped, Self::Failed].into_iter().find(|state| state.as_str() == word)
    }
}

/// The record of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileRow {
    /// The vault path, or a lossy form of a name that is not valid UTF-8.
    pub path: String,
    /// The indexing state.
    pub state: FileState,
    /// Why the file was skipped or failed, or what is missing; empty otherwise.
    pub reason: String,
    /// Hash of the content.
    pub hash: u64,
    /// Size in bytes.
    pub size: u64,
    /// Modification time when the file was indexed.
    pub mtime_ms: i64,
    /// Hash of the recipe with which it was split.
    pub recipe: u64,
    /// Number of chunks.
    pub chunks: u32,
    /// Number of chunks without a vector, although the index has vectors.
    pub unembedded: u32,
    /// The note's title.
    pub title: String,
    /// The note's aliases.
    pub aliases: Vec<String>,
    /// The note's tags.
    pub tags: Vec<String>,
    /// Names of the notes it links to.
    pub links: Vec<String>,
    /// The day used by date filters.
    pub day: i32,
}

/// A complete version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionInfo {
    /// Number of the complete version; the highest is current.
    pub generation: u64,
    /// The table's own version: `index_version` in responses.
    pub version: String,
    /// How the index was built.
    pub spec: IndexSpec,
    /// Number of chunks.
    pub chunks: u64,
    /// Number of known files.
    pub files: u64,
    /// When it was completed.
    pub completed_at: Timestamp,
}

/// Errors of an index. Messages contain at most file names of the index, never the content of notes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum IndexError {
    /// The index exists but cannot be read.
    #[error("the index is damaged: {0}")]
    Corrupted(String),
    /// Another process is writing.
    #[error("another process is indexing this vault")]
    Busy,
    /// There is no earlier version to roll back to.
    #[error("there is no earlier version")]
    NoEarlierVersion,
    /// The disk or the object store is unreachable, full, or denies access.
    #[error("the index cannot be reached: {0}")]
    Unavailable(String),
    /// The index program is missing, does not start, or ended during a request.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// Errors of the index program. They say nothing about the state of the index itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ProgramError {
    /// The program is not installed.
    #[error("the index program is not installed: {0}")]
    Missing(String),
    /// The program's version differs from this program's.
    #[error("{0}")]
    OtherVersion(String),
    /// The program could not be started, or ended before the handshake.
    #[error("the index program could not be started: {0}")]
    NotStarted(String),
    /// The program ended while it handled a request.
    #[error("the index program ended before it answered: {0}")]
    Ended(String),
    /// The program was restarted and the version being read is no longer the newest: the caller must open the newest
    /// version.
    #[error("the index program was started again and has a newer version: {0}")]
    Replaced(String),
    /// One side violated the protocol.
    #[error("the index program broke the protocol: {0}")]
    Protocol(String),
    /// The notes do not fit into the in-memory stand-in.
    #[error("the notes are more than can be searched without the index program: {0}")]
    TooMany(String),
}

/// The result of an index operation.
pub type IndexResult<T> = Result<T, IndexError>;

/// How a writer starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriterStart {
    /// From the state of the last writer, complete or not, if the embedder is the same; otherwise from an empty index.
    Continue,
    /// From an empty index.
    Fresh,
}

/// Restricts which chunks a search may return. Empty lists and `None` match everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkFilter {
    /// Only chunks in these folders or files.
    pub folders: Vec<String>,
    /// Only chunks with one of these tags or a nested tag.
    pub tags: Vec<String>,
    /// Only chunks between these days, both included.
    pub days: Option<(i32, i32)>,
}

impl ChunkFilter {
    /// Whether the filter matches everything.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.tags.is_empty() && self.days.is_none()
    }

    /// Whether the filter matches a file.
    pub fn admits(&self, path: &str, tags: &[String], day: i32) -> bool {
        let in_folder = |folder: &String| {
            path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        (self.folders.is_empty() || self.folders.iter().any(in_folder))
            && (self.tags.is_empty() || self.tags.iter().any(|wanted| tags.iter().any(|tag| tag_matches(tag, wanted))))
            && self.days.is_none_or(|(from, to)| (from..=to).contains(&day))
    }
}

/// A search hit: a row and its score.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RowScore {
    /// Row id, valid for this reader only.
    pub row: u64,
    /// Higher is better.
    pub score: f32,
}

/// The vector of a chunk, read to build the in-memory vector set.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorRow<'a> {
    /// Row id, valid for this reader only.
    pub row: u64,
    /// The file's [`file_id`].
    pub file: u64,
    /// The chunk's [`ChunkRow::hash`].
    pub hash: u64,
    /// The vector, if it was requested.
    pub vector: Option<&'a [f32]>,
}

/// Which columns of the chunks are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum VectorColumns {
    /// Rows and files of all chunks, including those without a vector. Hashes are 0.
    FilesOnly,
    /// Rows, files and hashes of the chunks that have a vector.
    KeysOnly,
    /// Rows, files, hashes and vectors of the chunks that have a vector.
    All,
}

/// A batch of changes. Everything known about the files in `files` and `removed` is replaced.
///
/// A file with too many chunks for one batch is written in several. The first batch has the file in `files`, with a
/// record that marks it as unfinished. The following batches contain only chunks. The last batch has the final record
/// in `touched`. Chunks of a file that is not in `files` are added to its existing chunks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct WriteBatch {
    /// New or replaced files.
    pub files: Vec<FileRow>,
    /// The chunks of those files, and further chunks of files from earlier batches.
    pub chunks: Vec<ChunkRow>,
    /// Files whose record alone changed; their chunks are kept.
    pub touched: Vec<FileRow>,
    /// Deleted files.
    pub removed: Vec<String>,
}

impl WriteBatch {
    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.chunks.is_empty() && self.touched.is_empty() && self.removed.is_empty()
    }
}
