//! Scenarios that drive the real binary, as a user would.

// The helpers of tests fail tests by panicking, just as the tests themselves do.
#![allow(clippy::print_stderr, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admission;
mod approvals;
mod authority;
mod bad_input;
mod bridge;
mod call_crash;
mod causes;
mod commands;
mod connect;
mod context;
mod context_crash;
mod context_seed;
mod crash;
mod doors;
mod first_minutes;
mod gateway;
mod harness;
mod hooks;
mod hostile;
mod index_crash;
mod mcp;
mod notes;
mod notes_on_load;
mod notify;
mod oauth;
mod plans;
mod plugins;
mod proof;
#[path = "../../../../tests/random.rs"]
mod random;
mod recall;
mod secret_arguments;
mod secrets;
mod server;
mod tool_search;
mod tool_search_gateway;
mod upkeep;
mod walls;
mod workspace_methods;
mod workspaces;
