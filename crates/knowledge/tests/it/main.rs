//! Tests of the whole crate: real files, real jobs, calls through the engine, and stand-in servers that implement the
//! embedding interfaces with real vectors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod embedders;
#[path = "../../../../tests/faults/plan.rs"]
mod fault_plan;
mod faults;
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
