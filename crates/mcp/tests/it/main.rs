//! The MCP server over both transports, in all revisions, against a real engine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod approvals;
mod harness;
mod http;
mod oauth;
mod resources;
mod rmcp_peers;
mod stdio;
mod upstream;
mod upstream_http;
