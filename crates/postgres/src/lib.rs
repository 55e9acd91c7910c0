//! [`PostgresStore`]: the engine's [`Store`](toolyard_engine::Store) on PostgreSQL, for several nodes at once.
//!
//! A crate of its own, beside `toolyard-store`: a PostgreSQL client with TLS is nothing that the store of one machine needs.
//! Both pass the same suite (`crates/store/tests/contract.rs`). Like every store it keeps bytes in order and *does not
//! know* what a record means.
//!
//! | module | holds |
//! |---|---|
//! | `store` | `PostgresStore`: checks input, and passes it to the queue or to a query |
//! | `statements` | what does not wait for the group commit |
//! | `queue` | what is queued: order, waiting callers, facts that are set but not written |
//! | `writer` | the group commit, and what became of a commit whose answer was lost |
//! | `waiting` | how a caller's thread waits |
//! | `reads` | every query |
//! | `lease` | registration, beats, hints |
//! | `large_blobs` | blobs too large to lie beside the records |
//! | `server` | connections, TLS, which servers are refused |
//! | `upkeep` | counts and checks for an operator |
//! | `schema` | migrations; the statements are in `sql/` |
//! | `limits` | every number |
//!
//! The trait's reads block. The store has a runtime thread of its own; a read runs there, and the caller waits for its
//! answer with a timeout. On a worker of a multi-thread runtime the wait is announced with `block_in_place`, so that the
//! runtime moves its other tasks. Beats run on the store's thread too, so that a busy engine does not lose its lease.
//!
//! The group commit has a connection that no runtime drives: the writer's thread, or a caller who would only wait for it,
//! sends and reads by itself (`server/line.rs`).

mod large_blobs;
mod lease;
pub mod limits;
mod queue;
mod reads;
mod rows;
mod schema;
mod server;
mod statements;
mod store;
mod upkeep;
mod waiting;
mod writer;

pub use large_blobs::LargeBlobs;
pub use server::{ServerReport, check_server, describe_url};
pub use statements::ClusterKeys;
pub use store::{PostgresOptions, PostgresStore};
pub use upkeep::{Check, Stats};
