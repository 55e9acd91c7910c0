//! Access to private parsers for the fuzz targets (`crates/fuzz-targets`). Not part of the public interface.

use crate::ws::{
    frame::{self, BadFrame},
    upgrade,
};
use futures_util::{FutureExt, StreamExt};
use serde_json::Value;

/// The result of parsing a text as a request.
#[derive(Debug)]
pub enum RequestOutcome {
    /// A request frame.
    Request {
        /// The id of the request.
        id: String,
        /// The method.
        method: String,
        /// The parameters.
        params: Option<Value>,
    },
    /// Refused with this response frame.
    Refused(String),
    /// Not JSON: the connection is closed.
    NotJson,
}

/// Reads a text as the Gateway does.
pub fn read_request(bytes: &[u8]) -> RequestOutcome {
    match frame::read(bytes) {
        Ok(request) => RequestOutcome::Request { id: request.id, method: request.method, params: request.params },
        Err(BadFrame::NotJson) => RequestOutcome::NotJson,
        Err(BadFrame::NotARequest { id, error }) => RequestOutcome::Refused(frame::response(&id, &Err(*error))),
    }
}

/// A message of a WebSocket.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// Whether it is text.
    pub is_text: bool,
    /// The payload.
    pub payload: Vec<u8>,
}

/// The messages in what a client sent after its handshake, up to the first thing that ends the connection.
pub fn read_messages(sent: &[u8], longest: usize) -> Vec<Message> {
    let stream = tokio::io::join(sent, tokio::io::sink());
    let mut socket = upgrade::server(longest).serve(stream);
    let mut messages = Vec::new();
    // All bytes are in memory, so a read never waits.
    while let Some(Some(Ok(message))) = socket.next().now_or_never() {
        if message.is_text() || message.is_binary() {
            messages.push(Message { is_text: message.is_text(), payload: message.as_payload().to_vec() });
        }
    }
    messages
}
