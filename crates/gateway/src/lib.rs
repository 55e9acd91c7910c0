//! The doors: how requests come in and answers go out.
//!
//! Every door carries methods of the one list ([`toolyard_service::Methods`]); a door only turns its own frames into a
//! method with parameters and a [`Caller`](toolyard_engine::Caller), and the answer back into its own words. Nothing here
//! decides policy, reads parameters, keeps sessions or runs a tool: `service` and the engine do.
//!
//! A request over the network is followed in three files: `ws/connection.rs` reads the frame, `rpc.rs` finds the method
//! and checks who asks, and one file of `crates/service` answers.

pub mod admission;
mod auth;
mod bridge;
pub mod echo;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
pub mod http;
pub mod listen;
pub mod local;
pub mod mount;
mod places;
pub mod routes;
mod rpc;
pub mod settings;
pub mod tls;
mod writes;
mod ws;

pub use gateway::Gateway;
pub use settings::Settings;
