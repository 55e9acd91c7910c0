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
//! | `journal` | the journal file and its recovery after a crash |
//! | `sync` | the log's sync, and a second thread for it under load |
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
mod journal;
mod journaler;
mod journaling;
pub mod limits;
mod queue;
mod reader;
mod rows;
mod schema;
mod sqlite;
mod sync;
mod writer;

pub use sqlite::{SqliteStore, StoreOptions};

use toolyard_engine::store::StoreError;

/// Says what was being done when SQLite failed.
fn failed(doing: &str, error: impl std::fmt::Display) -> StoreError {
    StoreError(format!("{doing}: {error}"))
}
