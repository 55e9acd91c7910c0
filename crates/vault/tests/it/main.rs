//! The vault as the engine uses it: calls go through `prepare` and `execute` on real folders.

// Helpers outside of test functions are tests all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::result_large_err)]

mod concurrency;
mod crash;
#[path = "../../../../tests/faults/plan.rs"]
mod fault_plan;
mod faults;
mod figures;
mod overlay;
mod paths;
mod regression;
mod rename;
mod support;
mod tools;
mod undo;
