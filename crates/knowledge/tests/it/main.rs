//! The knowledge crate as a whole: real files, real jobs, calls through the engine's one road, and stand-ins that speak
//! the embedding servers' interfaces with real vectors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod embedders;
#[path = "../../../noteindex/tests/it/index_suite.rs"]
mod index_suite;
mod indexing;
mod jobs;
mod loaded;
mod server;
mod stale;
mod support;
mod tools;
mod watch;
