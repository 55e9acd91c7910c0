//! The Claude bridge: a running Claude Code joined to a session. Messages go in; tool calls, replies and permission
//! questions come out.
//!
//! Both ends are state machines that are told what happened and what time it is, and answer with what to do:
//! [`server::Hub`] for all sessions of a gateway, [`plugin::Plugin`] for the MCP server that Claude Code starts. So a
//! thousand reconnects over a bad network are an ordinary test. [`plugin::drive`] is the thin layer that gives the
//! plugin its standard input and output.
//!
//! Knows no socket, no tool and no policy: a gateway brings the sockets, and calls go down the engine's road.

pub mod frames;
pub mod mailbox;
pub mod plugin;
pub mod server;
pub mod verdict;
