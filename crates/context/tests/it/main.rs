//! Tests of the store, its HTTP interface and its tools from outside.

// Test helpers may panic, as tests do.
#![allow(clippy::print_stderr, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;
mod facts;
mod http_replay;
mod model;
mod place;
mod roles;
mod store;
mod tools_replay;
mod watches;
