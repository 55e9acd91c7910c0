//! The doors: how requests come in and answers go out.
//!
//! Every door offers the same methods ([`methods`]); a door only turns its own frames into a method with parameters
//! and a [`Caller`](toolyard_engine::Caller), and the answer back into its own words. Nothing here decides policy,
//! validates arguments or runs a tool: the engine does.
//!
//! A request over the network is followed in three files: `ws/connection.rs` reads the frame, `rpc/mod.rs` finds the
//! method and checks its scope, and one file under `rpc/` answers.

pub mod admission;
mod auth;
mod bridge;
pub mod client;
mod devices;
pub mod echo;
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
mod hub;
pub mod listen;
pub mod local;
pub mod logs;
pub mod methods;
mod metrics;
pub mod mount;
mod pulse;
pub mod registry;
mod rpc;
pub mod settings;
pub mod tls;
mod writes;
mod ws;

pub use bridge::SessionTools;
pub use hub::{Gateway, Lane, Unanswered, WeakGateway};
pub use methods::{EventSink, Service};
pub use rpc::sessions::main_key as main_session_key;
pub use settings::Settings;
