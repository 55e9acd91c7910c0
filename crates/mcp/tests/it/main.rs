//! The MCP server over both transports, in all revisions, against a real engine.

mod harness;
mod http;
mod stdio;
mod upstream;
