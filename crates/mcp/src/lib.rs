//! The Model Context Protocol in both directions: Toolyard as a server ([`server`]), and upstream servers as tools
//! ([`client`]).
//!
//! Written by hand, without an SDK: one endpoint serves three revisions at once, two of which begin with a handshake and
//! one of which has none, tool lists of thousands of tools are sent as text that is written once, and a call must add
//! little to what the upstream server itself takes.
//!
//! Knows no socket, no axum and no configuration file: HTTP arrives as an [`http::Request`] whose sender has been
//! checked, and everything a client wants goes down the engine's road like any other call.

pub mod asks;
pub mod client;
pub mod headers;
pub mod jsonrpc;
pub mod revision;
pub mod server;
pub mod wire;

pub use asks::Asks;
pub use client::{ServerConfig, Upstreams};
pub use jsonrpc::RpcError;
pub use revision::{ClientCapabilities, Revision};
pub use server::{McpServer, ServerParts};
pub use wire::Implementation;
