//! The traits of an index: [`NoteIndex`], the [`IndexReader`] of a complete version, the [`IndexWriter`] of the next one.

use crate::{
    rows::{
        ChunkFilter, ChunkRow, FileRow, Found, IndexResult, IndexSpec, ProgramError, Start, VectorColumns, VectorRow,
        VersionInfo, WriteBatch,
    },
    search::{Answer, Question},
};
use std::{collections::HashMap, pin::Pin, sync::Arc};

/// A future behind a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Takes vector rows as they are read.
pub type VectorSink<'a> = &'a mut (dyn FnMut(VectorRow<'_>) + Send);

/// An index of notes.
pub trait NoteIndex: Send + Sync + 'static {
    /// The newest complete version, found readable; `None` when there is none.
    fn current(&self) -> BoxFuture<'_, IndexResult<Option<Arc<dyn IndexReader>>>>;

    /// The newest complete generation, cheaply: to notice that another process made one.
    fn generation(&self) -> BoxFuture<'_, IndexResult<Option<u64>>>;

    /// Begins to write. There is one writer at a time.
    fn write<'a>(&'a self, spec: &'a IndexSpec, start: Start) -> BoxFuture<'a, IndexResult<Box<dyn IndexWriter>>>;

    /// The complete versions that are kept, oldest first.
    fn versions(&self) -> BoxFuture<'_, IndexResult<Vec<VersionInfo>>>;

    /// Makes the version before the current one current again, and says which that is.
    fn rollback(&self) -> BoxFuture<'_, IndexResult<VersionInfo>>;

    /// Whether nobody has used the index for a while, so that its program is stopped or soon will be. Periodic probes leave
    /// such an index alone.
    fn is_resting(&self) -> bool {
        false
    }

    /// Says that this process is a server, which may answer from memory while the index program is missing. A command that
    /// ends at once has no use for an index that ends with it.
    fn set_serving(&self) {}

    /// Why the index program cannot be used, while something else answers in its place.
    fn program_problem(&self) -> Option<ProgramError> {
        None
    }

    /// Whether notes are answered from memory although the index program could keep them: a sync moves them.
    fn wants_move(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { false })
    }

    /// Ends what was started for this index.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// A complete version that does not change.
pub trait IndexReader: Send + Sync {
    /// Which version this is.
    fn info(&self) -> &VersionInfo;

    /// Every file known.
    fn files(&self) -> BoxFuture<'_, IndexResult<Vec<FileRow>>>;

    /// The chunks with most of the terms, by BM25, best first.
    fn full_text<'a>(
        &'a self,
        terms: &'a [String],
        filter: &'a ChunkFilter,
        limit: usize,
    ) -> BoxFuture<'a, IndexResult<Vec<Found>>>;

    /// The [`crate::file_id`] of each row. Not a part of what is found: for most searches it is in memory already, and reading it
    /// for hundreds of rows takes longer than finding them.
    fn files_of<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<u64>>>;

    /// The chunks whose vectors are nearest by cosine, best first.
    fn nearest<'a>(
        &'a self,
        vector: &'a [f32],
        filter: &'a ChunkFilter,
        limit: usize,
    ) -> BoxFuture<'a, IndexResult<Vec<Found>>>;

    /// Goes through the chunks, in the columns that are asked for.
    fn vectors<'a>(&'a self, columns: VectorColumns, sink: VectorSink<'a>) -> BoxFuture<'a, IndexResult<()>>;

    /// The vectors of some rows, in their order; `None` for a row that has none.
    fn vectors_of<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<Option<Vec<f32>>>>>;

    /// The texts of at most so many chunks, taken evenly from all of them.
    fn sample(&self, count: usize) -> BoxFuture<'_, IndexResult<Vec<String>>>;

    /// Some rows, in their order, without vectors.
    fn fetch<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<ChunkRow>>>;

    /// For a reader that answers whole questions itself ([`IndexReader::ask`]): loads the vectors that fit `budget` bytes.
    /// `None` means that the caller keeps the vectors and puts the legs together ([`crate::search`]).
    fn prepare(&self, _budget: u64) -> Option<BoxFuture<'_, IndexResult<()>>> {
        None
    }

    /// Answers a whole question, where the reader does that itself.
    fn ask<'a>(&'a self, _question: &'a Question) -> Option<BoxFuture<'a, IndexResult<Answer>>> {
        None
    }
}

/// Writes the next version.
pub trait IndexWriter: Send + Sync {
    /// The files as this writer finds them, the work of an interrupted one included.
    fn files(&self) -> BoxFuture<'_, IndexResult<Vec<FileRow>>>;

    /// The vectors already there for these hashes.
    fn known_vectors<'a>(&'a self, hashes: &'a [u64]) -> BoxFuture<'a, IndexResult<HashMap<u64, Vec<f32>>>>;

    /// Writes. After a crash the files of a batch are either as before, as after, or unknown, and then indexed again.
    fn put(&mut self, batch: WriteBatch) -> BoxFuture<'_, IndexResult<()>>;

    /// Whether anything was written, by this writer or by an interrupted one, since the last complete version.
    fn is_changed(&self) -> bool;

    /// Makes everything written a complete version.
    fn complete(self: Box<Self>) -> BoxFuture<'static, IndexResult<VersionInfo>>;
}
