//! The index traits: [`NoteIndex`], the [`IndexReader`] of a complete version, and the [`IndexWriter`] of the next
//! version.

use crate::{
    rows::{
        ChunkFilter, ChunkRow, FileRow, IndexResult, IndexSpec, ProgramError, RowScore, VectorColumns, VectorRow,
        VersionInfo, WriteBatch, WriterStart,
    },
    search::{SearchQuery, SearchResult},
};
use std::{collections::HashMap, pin::Pin, sync::Arc};

/// A boxed future, for trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Receives vector rows while they are read.
pub type VectorSink<'a> = &'a mut (dyn FnMut(VectorRow<'_>) + Send);

/// An index of notes.
pub trait NoteIndex: Send + Sync + 'static {
    /// Opens the newest complete version and checks that it is readable; `None` when there is none.
    fn current(&self) -> BoxFuture<'_, IndexResult<Option<Arc<dyn IndexReader>>>>;

    /// The newest complete generation. This is cheap, so that callers can poll for versions made by other processes.
    fn generation(&self) -> BoxFuture<'_, IndexResult<Option<u64>>>;

    /// Opens a writer. There is one writer at a time.
    fn write<'a>(&'a self, spec: &'a IndexSpec, start: WriterStart)
    -> BoxFuture<'a, IndexResult<Box<dyn IndexWriter>>>;

    /// The complete versions that are kept, oldest first.
    fn versions(&self) -> BoxFuture<'_, IndexResult<Vec<VersionInfo>>>;

    /// Makes the previous version current again and returns it.
    fn rollback(&self) -> BoxFuture<'_, IndexResult<VersionInfo>>;

    /// Whether the index has been idle for a while, so that its program is stopped or soon will be. Periodic probes
    /// skip an idle index.
    fn is_resting(&self) -> bool {
        false
    }

    /// Declares that this process is a server, which may serve from memory while the index program is missing. A
    /// short-lived command has no use for an in-memory index, which is lost when the command exits.
    fn set_serving(&self) {}

    /// Why the index program cannot be used, while a stand-in serves in its place.
    fn program_problem(&self) -> Option<ProgramError> {
        None
    }

    /// Whether notes are served from memory although the index program is available. The next sync then moves them.
    fn wants_move(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { false })
    }

    /// Stops what was started for this index.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// An immutable complete version.
pub trait IndexReader: Send + Sync {
    /// Which version this is.
    fn info(&self) -> &VersionInfo;

    /// All known files.
    fn files(&self) -> BoxFuture<'_, IndexResult<Vec<FileRow>>>;

    /// The chunks that match the terms best by BM25, best first.
    fn full_text<'a>(
        &'a self,
        terms: &'a [String],
        filter: &'a ChunkFilter,
        limit: usize,
    ) -> BoxFuture<'a, IndexResult<Vec<RowScore>>>;

    /// The [`crate::file_id`] of each row. This is not part of a search result because most searches have it in memory,
    /// and reading it for hundreds of rows takes longer than the search itself.
    fn files_of<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<u64>>>;

    /// The chunks with the highest cosine similarity, best first.
    fn nearest<'a>(
        &'a self,
        vector: &'a [f32],
        filter: &'a ChunkFilter,
        limit: usize,
    ) -> BoxFuture<'a, IndexResult<Vec<RowScore>>>;

    /// Iterates over the chunks and reads the requested columns.
    fn vectors<'a>(&'a self, columns: VectorColumns, sink: VectorSink<'a>) -> BoxFuture<'a, IndexResult<()>>;

    /// The vectors of the given rows, in the same order; `None` for a row without a vector.
    fn vectors_of<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<Option<Vec<f32>>>>>;

    /// The texts of at most `count` chunks, sampled evenly.
    fn sample(&self, count: usize) -> BoxFuture<'_, IndexResult<Vec<String>>>;

    /// The given rows, in the same order, without vectors.
    fn fetch<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<ChunkRow>>>;

    /// For a reader that runs whole queries itself ([`IndexReader::ask`]): loads the vectors that fit into `budget`
    /// bytes. `None` means that the caller holds the vectors and fuses the results of full text and vectors
    /// ([`crate::search`]).
    fn prepare(&self, _budget: u64) -> Option<BoxFuture<'_, IndexResult<()>>> {
        None
    }

    /// Runs a whole query, if the reader does that itself.
    fn ask<'a>(&'a self, _question: &'a SearchQuery) -> Option<BoxFuture<'a, IndexResult<SearchResult>>> {
        None
    }
}

/// Writes the next version.
pub trait IndexWriter: Send + Sync {
    /// The files as this writer sees them, including the work of an interrupted writer.
    fn files(&self) -> BoxFuture<'_, IndexResult<Vec<FileRow>>>;

    /// The stored vectors for these hashes.
    fn known_vectors<'a>(&'a self, hashes: &'a [u64]) -> BoxFuture<'a, IndexResult<HashMap<u64, Vec<f32>>>>;

    /// Writes a batch. After a crash each file of the batch is in its old state, in its new state, or unknown and
    /// indexed again.
    fn put(&mut self, batch: WriteBatch) -> BoxFuture<'_, IndexResult<()>>;

    /// Whether this writer or an interrupted one has written anything since the last complete version.
    fn is_changed(&self) -> bool;

    /// Publishes everything written as a complete version.
    fn complete(self: Box<Self>) -> BoxFuture<'static, IndexResult<VersionInfo>>;
}
