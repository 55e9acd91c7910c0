//! The Claude bridge: connects a running Claude Code to a session. Messages go to Claude; tool calls, replies and
//! permission questions come back.
//!
//! Both ends are state machines: they receive what happened and the time, and return what to do. [`server::Hub`]
//! handles all sessions of a gateway, [`plugin::Plugin`] is the MCP server that Claude Code starts. A thousand
//! reconnects over a bad network are therefore an ordinary test. [`plugin::drive`] connects the plugin to standard
//! input and output.
//!
//! Has no sockets, tools or policy: a gateway provides the sockets, and calls pass the engine's pipeline.

pub mod frames;
pub mod mailbox;
pub mod plugin;
pub mod server;
pub mod verdict;
