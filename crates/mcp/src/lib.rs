//! The Model Context Protocol in both directions: Toolyard as a server ([`server`]), and upstream servers as tools
//! ([`client`]).
//!
//! Written without an SDK: one endpoint serves three revisions at the same time, two with a handshake and one without;
//! lists of thousands of tools are sent as text that is written once; and a call must add little to the time of the
//! upstream server.
//!
//! Has no sockets, no axum and no configuration file: HTTP arrives as an [`http::Request`] whose sender has been
//! checked, and every call passes the engine's pipeline.

pub mod asks;
pub mod client;
pub mod headers;
pub mod jsonrpc;
pub mod revision;
pub mod server;
pub mod wire;

pub use asks::ClientRoutes;
pub use client::{ServerConfig, Upstreams};
pub use jsonrpc::RpcError;
pub use revision::{ClientCapabilities, Revision};
pub use server::{McpServer, ServerParts};
pub use wire::Implementation;
