//! Clients: of a gateway's WebSocket ([`Client`]), of its bridge ([`Dialler`]), and of the local socket ([`local`]).
//!
//! A client sends words and reads words; it decides nothing and keeps nothing but a device's key that it is given. The line
//! format and the secret of the local socket are here, because both of its ends must agree on them.

mod bridge;
mod gateway;
mod identity;
pub mod local;
mod wire;

pub use bridge::Dialler;
pub use gateway::{CallError, Client, Connect, Credential, Hello, Probe, ProbedMethod, probe, scopes_for};
pub use identity::Identity;
