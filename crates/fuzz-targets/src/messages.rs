//! What arrives over connections: WebSocket frames, requests of the Gateway, JSON-RPC, frames of the bridge.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::fmt::Debug;
use toolyard_bridge::{
    frames::{self, FromPlugin, FromServer},
    plugin::flatten,
    verdict,
};
use toolyard_gateway::fuzzing::{Message, RequestOutcome, read_messages, read_request};
use toolyard_mcp::jsonrpc::{Incoming, RpcError, answer, error_text, notification, request};

/// The longest message while a WebSocket is read here.
const LONGEST_MESSAGE: usize = 64 << 10;
/// An answer to a bad request says what is wrong in at most this many bytes beyond the request's own.
const LONGEST_REFUSAL: usize = 16 << 10;
/// Limits of what Claude Code is told about a message, as `toolyard-bridge` documents them.
const MAX_META_ENTRIES: usize = 64;
const MAX_META_VALUE_BYTES: usize = 4 << 10;

/// What a client sends after the opening handshake.
pub fn websocket_frame(sent: &[u8]) -> bool {
    let messages = read_messages(sent, LONGEST_MESSAGE);
    let total: usize = messages.iter().map(|message| message.payload.len()).sum();
    assert!(total <= sent.len(), "messages are never larger than what was sent");
    for message in &messages {
        assert!(message.payload.len() <= LONGEST_MESSAGE);
        if message.is_text {
            assert!(std::str::from_utf8(&message.payload).is_ok(), "text is UTF-8");
            rpc_request(&message.payload);
        }
    }
    // The same bytes as the content of one frame arrive as they were sent.
    if let Ok(text) = std::str::from_utf8(sent)
        && sent.len() <= LONGEST_MESSAGE
    {
        let expected = Message { is_text: true, payload: text.as_bytes().to_vec() };
        assert_eq!(read_messages(&masked_text_frame(sent), LONGEST_MESSAGE), [expected]);
        assert!(
            sent.is_empty() || read_messages(&masked_text_frame(sent), sent.len() - 1).is_empty(),
            "the limit holds"
        );
    }
    !messages.is_empty()
}

/// A whole text message in one frame, masked as RFC 6455 demands of clients.
fn masked_text_frame(payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x1f, 0x2e, 0x3d, 0x4c];
    let mut frame = vec![0x81];
    match payload.len() {
        length @ 0..=125 => frame.push(0x80 | length as u8),
        length @ 126..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&MASK);
    frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// A text message of the Gateway's WebSocket.
pub fn rpc_request(text: &[u8]) -> bool {
    match read_request(text) {
        RequestOutcome::Request { id, method, params } => {
            assert!(!id.is_empty() && !method.is_empty());
            let again = serde_json::json!({"type": "req", "id": id, "method": method, "params": params});
            let RequestOutcome::Request { id: id2, method: method2, params: params2 } =
                read_request(again.to_string().as_bytes())
            else {
                panic!("a request that was read is a request when it is written again");
            };
            assert_eq!((id, method), (id2, method2));
            assert_eq!(params.unwrap_or_default(), params2.unwrap_or_default());
            true
        }
        RequestOutcome::Refused(response) => {
            assert!(response.len() <= LONGEST_REFUSAL + 8 * text.len(), "a refusal is short");
            let response: Value = serde_json::from_str(&response).expect("a refusal is JSON");
            assert_eq!((&response["type"], &response["ok"]), (&Value::from("res"), &Value::from(false)));
            assert!(response["id"].is_string() || response["id"].is_number());
            assert!(response["error"]["message"].is_string());
            false
        }
        RequestOutcome::NotJson => {
            // Numbers beyond a double and lone surrogates are JSON to others and not to us; a plain value must be read.
            assert!(serde_json::from_slice::<Value>(text).is_err(), "JSON is never called something else");
            false
        }
    }
}

/// A message of MCP.
pub fn jsonrpc(text: &[u8]) -> bool {
    match Incoming::read(text) {
        Ok(message) => {
            let written = match &message {
                Incoming::Request { id, method, params } => request(id, method, &Value::Object(params.clone())),
                Incoming::Notification { method, params } => notification(method, Some(params)),
                Incoming::Response { id, outcome } => answer(id, outcome.clone()),
            };
            assert_eq!(Incoming::read(written.as_bytes()).expect("what was written is a message"), message);
            true
        }
        Err(unreadable) => {
            assert!(unreadable.id.is_null() || unreadable.id.is_string() || unreadable.id.is_number());
            let written = error_text(&unreadable.id, &unreadable.error);
            let read: Value = serde_json::from_str(&written).expect("an error answer is JSON");
            let error: RpcError = serde_json::from_value(read["error"].clone()).expect("with code and message");
            assert_eq!(error, unreadable.error);
            false
        }
    }
}

/// A frame of the bridge, in either direction, and what a person may answer to a permission question.
pub fn bridge_frame(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    if let Some((_, id)) = verdict::read(text) {
        assert!(verdict::is_request_id(&id), "only an id that a question can have is taken as one");
        assert_eq!(text.split_whitespace().count(), 2);
    }
    let from_server = read_and_write::<FromServer>(text);
    if let Some(FromServer::InboundMessage(message)) = &from_server {
        let flat = flatten(&message.meta);
        assert!(flat.len() <= MAX_META_ENTRIES);
        for (key, value) in &flat {
            assert!(!key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{key:?}");
            assert!(value.as_str().is_some_and(|value| value.len() <= MAX_META_VALUE_BYTES), "{key}");
        }
    }
    let from_plugin = read_and_write::<FromPlugin>(text);
    if let Some(FromPlugin::Hello(hello)) = &from_plugin
        && hello.token.len() > 8
        && !hello.openclaw_session.contains(&hello.token)
    {
        assert!(!format!("{hello:?}").contains(&hello.token), "a token is never logged");
    }
    from_plugin.is_some() || from_server.is_some()
}

fn read_and_write<T: DeserializeOwned + Serialize + PartialEq + Debug>(text: &str) -> Option<T> {
    let frame = frames::read::<T>(text).ok()?;
    let written = frames::write(&frame);
    assert_eq!(frames::read::<T>(&written).as_ref(), Ok(&frame), "{written}");
    Some(frame)
}
