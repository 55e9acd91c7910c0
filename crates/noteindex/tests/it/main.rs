//! Tests of the whole crate: the contract suite over the in-memory index and over a pipe, and index programs that end,
//! hang, violate the protocol or have another version.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod index_suite;
mod memory_index;
mod remote_index;
mod standing_in;
