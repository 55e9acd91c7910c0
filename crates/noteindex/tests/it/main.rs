//! The index crate as a whole: the contract suite over the index in memory and over a pipe, and a program that ends, hangs,
//! talks nonsense or is of another version.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod index_suite;
mod memory_index;
mod remote_index;
mod standing_in;
