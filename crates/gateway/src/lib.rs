//! The doors: how requests come in and answers go out.
//!
//! Every door offers the same methods ([`methods`]); a door only turns its own frames into a method with parameters
//! and a [`Caller`](toolyard_engine::Caller), and the answer back into its own words. Nothing here decides policy,
//! validates arguments or runs a tool: the engine does.

pub mod http;
pub mod local;
pub mod methods;

pub use methods::{EventSink, Service};
