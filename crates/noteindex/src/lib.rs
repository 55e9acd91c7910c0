//! What an index of notes is, whichever program keeps it: rows, the index traits, vectors in memory, the search over both,
//! and the protocol between `toolyard` and `toolyard-index`.
//!
//! A writer works where no reader looks. Only [`IndexWriter::complete`] makes a version, all at once; a writer that is
//! killed leaves the last complete version as it was, and what it had written is there for the next one to go on with.
//!
//! `toolyard` holds a [`remote::RemoteIndex`]; `toolyard-index` runs [`serve::serve`] over LanceDB. Both sides of the pipe
//! run the same [`search`], so an answer does not depend on where the index lies.
//!
//! Knows no notes, embedders, tools or LanceDB, and puts up no walls: how the program is started is given to it.

mod index;
pub mod memory;
pub mod names;
pub mod remote;
mod rows;
pub mod search;
pub mod serve;
pub mod standin;
pub mod storage;
pub mod wire;

pub use index::{BoxFuture, IndexReader, IndexWriter, NoteIndex, VectorSink};
pub use rows::{
    ChunkFilter, ChunkRow, FileRow, FileState, Found, IndexError, IndexResult, IndexSpec, ProgramError, Start,
    VectorColumns, VectorRow, VersionInfo, WriteBatch, file_id, hash64,
};
