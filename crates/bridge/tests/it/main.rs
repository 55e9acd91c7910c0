//! Both ends of the bridge without a socket: alone, and against each other over a simulated network.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod hub;
mod network;
mod plugin;
#[path = "../../../../tests/random.rs"]
mod random;
mod simulation;
