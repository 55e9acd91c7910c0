//! The doors: how requests arrive and responses are sent.
//!
//! Every door uses the methods of one list ([`toolyard_service::Methods`]). A door only translates its own frames into
//! a method with parameters and a [`Caller`](toolyard_engine::Caller), and the answer into its own format. This crate
//! decides no policy, reads no parameters, keeps no sessions and runs no tools; `service` and the engine do.
//!
//! To follow a network request, read three files: `ws/connection.rs` reads the frame, `rpc.rs` finds the method and
//! checks the caller, and one file of `crates/service` answers.

pub mod admission;
mod auth;
mod bridge;
mod console;
pub mod echo;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
pub mod http;
mod http_methods;
pub mod listen;
pub mod local;
pub mod mount;
pub mod node;
mod request_slots;
pub mod routes;
mod rpc;
pub mod settings;
mod shared_auth_failures;
pub mod tls;
mod writes;
mod ws;

pub use gateway::Gateway;
pub use settings::Settings;
