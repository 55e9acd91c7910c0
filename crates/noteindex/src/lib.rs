//! The abstraction of a note index, independent of the program that stores it: rows, index traits, in-memory vectors,
//! the search over both, and the protocol between `toolyard` and `toolyard-index`.
//!
//! A writer's changes are invisible to readers. Only [`IndexWriter::complete`] publishes a version, atomically. A
//! writer that is killed leaves the last complete version unchanged, and the next writer continues from what it had
//! written.
//!
//! `toolyard` holds a [`remote::RemoteIndex`]; `toolyard-index` runs [`serve::serve`] over LanceDB. Both sides of the
//! pipe run the same [`search`], so the result does not depend on where the index is stored.
//!
//! This crate knows no notes, embedders, tools or LanceDB. It does no sandboxing: the caller provides the command that
//! starts the program.

pub mod fallback;
mod index;
pub mod memory;
pub mod names;
pub mod remote;
mod rows;
pub mod search;
pub mod serve;
pub mod storage;
pub mod wire;

pub use index::{BoxFuture, IndexReader, IndexWriter, NoteIndex, VectorSink};
pub use rows::{
    ChunkFilter, ChunkRow, FileRow, FileState, IndexError, IndexResult, IndexSpec, ProgramError, RowScore,
    VectorColumns, VectorRow, VersionInfo, WriteBatch, WriterStart, file_id, hash64,
};
