//! Clients of a gateway's WebSocket ([`Client`]), of its bridge ([`BridgeConnector`]) and of the local socket ([`local`]).
//!
//! A client sends requests and reads responses. It makes no decisions and holds no state except a device key that it is
//! given. The line format and the secret of the local socket are defined here, because both of its ends must agree on
//! them.

mod bridge;
mod gateway;
mod identity;
pub mod local;
mod wire;

pub use bridge::BridgeConnector;
pub use gateway::{CallError, Client, Connect, Credential, Hello, Probe, ProbedMethod, probe, scopes_for};
pub use identity::Identity;
