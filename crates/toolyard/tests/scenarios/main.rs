//! Scenarios that drive the real binary, as a user would.

// The helpers of tests fail tests by panicking, just as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod commands;
mod crash;
mod gateway;
mod harness;
mod plans;
mod server;
mod tool_search;
mod tool_search_gateway;
