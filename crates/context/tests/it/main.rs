//! Tests of the store, its HTTP interface and its tools from outside.

// Test helpers may panic, as tests do.
#![allow(clippy::print_stderr, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;
mod facts;
#[path = "../../../../tests/faults/plan.rs"]
mod fault_plan;
mod faults;
mod http_replay;
mod model;
mod place;
mod roles;
mod shared;
mod store;
mod tools_replay;
mod transfer;
mod watches;
