//! The store, its HTTP interface and its tools, from outside.

// The helpers of tests fail tests by panicking, just as the tests themselves do.
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
