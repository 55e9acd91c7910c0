//! The WebSocket door: upgrade, handshake, and one task for each connection.

pub(crate) mod connection;
pub(crate) mod control_frames;
pub(crate) mod frame;
pub(crate) mod handshake;
pub(crate) mod trace;
pub(crate) mod tracked_stream;
pub(crate) mod upgrade;
