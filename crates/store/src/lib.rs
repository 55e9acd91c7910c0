//! Durable state behind the engine's [`Store`](toolyard_engine::Store) trait: [`SqliteStore`], one SQLite database with
//! a journal for each process and a directory of large blobs.
//!
//! Handles bytes, files and SQL. Does not know what a record means, how records are chained, or who may see them; the
//! engine decides that. `tests/contract.rs` tests the guarantees of every store.
//!
//! | module | holds |
//! |---|---|
//! | `sqlite` | [`SqliteStore`]: checks input and passes it to the writer or a reader |
//! | `queue` | the queue between callers and the writer: order, waiting, back-pressure, pending facts |
//! | `writer` | the one thread that writes: group commit, sync, checkpoint |
//! | `journaling` | which changes go through the journal |
//! | `journaler` | the thread that writes the journal |
//! | `journal` | the journal's file, how it comes back after a crash, and its format |
//! | `owners` | which processes have the store open, and whether they still do |
//! | `packing` | payloads of frames as they lie in the database |
//! | `upkeep` | copies, checks and figures of a store |
//! | `hints` | tells watchers that something changed |
//! | `apply` | one queued change as SQL |
//! | `reader` | read-only connections and the queries |
//! | `schema` | files, modes, versions and migrations |
//! | `blob_files` | compression, and blobs too large for the database |
//! | `rows` | run rows and times as columns |
//! | `limits` | every number |

mod apply;
mod blob_files;
#[doc(hidden)]
pub mod fuzzing;
mod hints;
mod journal;
mod journaler;
mod journaling;
pub mod limits;
mod owners;
mod packing;
mod queue;
mod reader;
mod rows;
mod schema;
mod sqlite;
mod upkeep;
mod writer;

pub use sqlite::{SqliteStore, StoreOptions};
pub use upkeep::{Checked, Copied, StoreStats, copy_file};

use toolyard_engine::store::StoreError;

/// Adds what was being done to a failure of SQLite.
fn failed(doing: &str, error: impl std::fmt::Display) -> StoreError {
    StoreError::failed(format!("{doing}: {error}"))
}

/// As [`failed`] for a failed read: distinguishes a value of another type than Toolyard writes, and a damaged file, from
/// a database that cannot be read at the moment.
fn failed_read(doing: &str, error: &rusqlite::Error) -> StoreError {
    use rusqlite::{Error, ErrorCode};
    match error {
        Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::InvalidColumnType(..)
        | Error::Utf8Error(..) => {
            StoreError::Tampered(format!("{doing}: the database holds a value that Toolyard does not write: {error}"))
        }
        Error::SqliteFailure(code, _) if matches!(code.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Tampered(format!("{doing}: the database file is damaged: {error}. Restore a backup of it"))
        }
        error => failed(doing, error),
    }
}

/// As [`failed`], but distinguishes a full disk from other failures.
fn failed_io(doing: &str, error: &std::io::Error) -> StoreError {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            StoreError::DiskFull(format!("{doing}: {error}"))
        }
        _ => failed(doing, error),
    }
}
