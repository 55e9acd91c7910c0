//! JSON-RPC 2.0 as MCP uses it: parses one message, writes responses. Knows no methods.

use crate::wire::Payload;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolyard_protocol::{ErrorCode, Failure};

/// The version of JSON-RPC.
const VERSION: &str = "2.0";
/// The text is not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// The JSON is not a message.
pub const INVALID_REQUEST: i64 = -32600;
/// There is no such method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters do not fit the method.
pub const INVALID_PARAMS: i64 = -32602;
/// An internal error of this server.
pub const INTERNAL_ERROR: i64 = -32603;
/// A resource that does not exist, up to revision 2025-11-25.
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// Headers and body of a request disagree (2026-07-28).
pub const HEADER_MISMATCH: i64 = -32020;
/// The request needs a capability that the client did not declare (2026-07-28).
pub const MISSING_CAPABILITY: i64 = -32021;
/// The revision asked for is not spoken here (2026-07-28).
pub const UNSUPPORTED_REVISION: i64 = -32022;

/// An error answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RpcError {
    /// The error code.
    pub code: i64,
    /// The message.
    pub message: String,
    /// Details of the error, as the method defines them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// An error without facts.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
    /// Adds details.
    #[must_use]
    pub fn with(self, data: &impl Serialize) -> Self {
        Self { data: as_data(data), ..self }
    }
    /// The parameters do not fit.
    pub fn params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }
    /// There is no such method.
    pub fn method(method: &str) -> Self {
        let shown: String = method.chars().take(80).collect();
        Self::new(METHOD_NOT_FOUND, format!("Method not found: {shown}"))
    }
}

impl From<Failure> for RpcError {
    /// For methods other than `tools/call`, whose failures are results.
    fn from(failure: Failure) -> Self {
        let code = match failure.code {
            ErrorCode::ValidationError | ErrorCode::NotFound | ErrorCode::PolicyDenied => INVALID_PARAMS,
            _ => INTERNAL_ERROR,
        };
        let message = failure.message.clone();
        Self { code, message, data: as_data(&failure) }
    }
}

/// The details of an error. If they cannot be serialised, the error is sent without them.
fn as_data(data: &impl Serialize) -> Option<Value> {
    serde_json::to_value(data)
        .inspect_err(|error| tracing::error!(%error, "the facts of an error cannot be written"))
        .ok()
}

/// A message as it was read.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// Wants an answer.
    Request {
        /// To be repeated in the answer: a string or a number.
        id: Value,
        /// The method.
        method: String,
        /// The parameters.
        params: Payload,
    },
    /// A notification, which has no answer.
    Notification {
        /// The method.
        method: String,
        /// The parameters.
        params: Payload,
    },
    /// Answers a request of ours.
    Response {
        /// The id of our request.
        id: Value,
        /// The result or the error.
        outcome: Result<Value, RpcError>,
    },
}

/// A text that is not a message, with its id, if it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct Unreadable {
    /// The id, or null.
    pub id: Value,
    /// What is wrong.
    pub error: RpcError,
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    jsonrpc: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    id: Option<Value>,
    #[serde(default)]
    method: Option<Value>,
    #[serde(default)]
    params: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
}

/// An explicit null is different from a missing member.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Incoming {
    /// Reads one message.
    pub fn read(text: &[u8]) -> Result<Self, Unreadable> {
        let bad = |id: Option<Value>, code, message: String| Unreadable {
            id: id.filter(is_id).unwrap_or(Value::Null),
            error: RpcError::new(code, message),
        };
        let raw: Raw = match serde_json::from_slice(text) {
            Ok(raw) => raw,
            Err(e) if e.is_data() => {
                return Err(bad(None, INVALID_REQUEST, "a message must be one JSON object".to_owned()));
            }
            Err(e) => return Err(bad(None, PARSE_ERROR, format!("not JSON: {e}"))),
        };
        let Raw { jsonrpc, id, method, params, result, error } = raw;
        if jsonrpc.as_ref().and_then(Value::as_str) != Some(VERSION) {
            return Err(bad(id, INVALID_REQUEST, "jsonrpc must be \"2.0\"".to_owned()));
        }
        match method {
            Some(Value::String(method)) => {
                let params = match params {
                    None | Some(Value::Null) => Payload::new(),
                    Some(Value::Object(params)) => params,
                    Some(_) => return Err(bad(id, INVALID_PARAMS, "params must be an object".to_owned())),
                };
                match id {
                    None => Ok(Self::Notification { method, params }),
                    Some(id) if is_id(&id) => Ok(Self::Request { id, method, params }),
                    Some(_) => Err(bad(None, INVALID_REQUEST, "id must be a string or a number".to_owned())),
                }
            }
            Some(_) => Err(bad(id, INVALID_REQUEST, "method must be a string".to_owned())),
            None => match (id.filter(is_id), result, error) {
                (Some(id), Some(result), None) => Ok(Self::Response { id, outcome: Ok(result) }),
                (Some(id), None, Some(error)) => {
                    let error = serde_json::from_value(error)
                        .unwrap_or_else(|_| RpcError::new(INTERNAL_ERROR, "an error without code and message"));
                    Ok(Self::Response { id, outcome: Err(error) })
                }
                (id, _, _) => Err(bad(id, INVALID_REQUEST, "neither a request nor a response".to_owned())),
            },
        }
    }
}

fn is_id(id: &Value) -> bool {
    id.is_string() || id.is_number()
}

/// A request or notification of ours.
#[derive(Serialize)]
struct Outgoing<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<P>,
}

/// An error answer of ours.
#[derive(Serialize)]
struct Refusal<'a> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    error: &'a RpcError,
}

/// What is sent in place of a message that cannot be written.
const UNWRITABLE: &str = r#"{"jsonrpc":"2.0","error":{"code":-32603,"message":"a message could not be written"}}"#;

fn text(message: &impl Serialize) -> String {
    serde_json::to_string(message).unwrap_or_else(|error| {
        tracing::error!(%error, "a message of ours cannot be written");
        UNWRITABLE.to_owned()
    })
}

/// A response.
pub fn answer(id: &Value, outcome: Result<Value, RpcError>) -> String {
    match outcome {
        Ok(result) => result_text(id, &result.to_string()),
        Err(error) => error_text(id, &error),
    }
}

/// A response whose result, if there is one, is already serialised.
pub fn answer_text(id: &Value, outcome: Result<String, RpcError>) -> String {
    match outcome {
        Ok(result) => result_text(id, &result),
        Err(error) => error_text(id, &error),
    }
}

/// A response whose result is already serialised.
pub fn result_text(id: &Value, result: &str) -> String {
    let mut text = String::with_capacity(result.len() + 64);
    text.push_str("{\"jsonrpc\":\"2.0\",\"id\":");
    text.push_str(&id.to_string());
    text.push_str(",\"result\":");
    text.push_str(result);
    text.push('}');
    text
}

/// An error answer. Without an id, none is written: newer revisions forbid null.
pub fn error_text(id: &Value, error: &RpcError) -> String {
    text(&Refusal { jsonrpc: VERSION, id: Some(id).filter(|id| !id.is_null()), error })
}

/// A notification message.
pub fn notification(method: &str, params: Option<&impl Serialize>) -> String {
    text(&Outgoing { jsonrpc: VERSION, id: None, method, params })
}

/// A request message.
pub fn request(id: &Value, method: &str, params: &impl Serialize) -> String {
    text(&Outgoing { jsonrpc: VERSION, id: Some(id), method, params: Some(params) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_are_told_apart() {
        let read = |text: &str| Incoming::read(text.as_bytes());
        assert!(matches!(
            read(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#),
            Ok(Incoming::Request { method, .. }) if method == "ping"
        ));
        assert!(matches!(read(r#"{"jsonrpc":"2.0","method":"x","params":{}}"#), Ok(Incoming::Notification { .. })));
        assert!(matches!(read(r#"{"jsonrpc":"2.0","id":"a","result":null}"#), Ok(Incoming::Response { .. })));
        for (text, code, id) in [
            ("{", PARSE_ERROR, Value::Null),
            ("[]", INVALID_REQUEST, Value::Null),
            ("7", INVALID_REQUEST, Value::Null),
            (r#"{"id":1,"method":"x"}"#, INVALID_REQUEST, json!(1)),
            (r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, INVALID_REQUEST, Value::Null),
            (r#"{"jsonrpc":"2.0","id":3,"method":"x","params":[1]}"#, INVALID_PARAMS, json!(3)),
            (r#"{"jsonrpc":"2.0","id":4}"#, INVALID_REQUEST, json!(4)),
            (r#"{"jsonrpc":"2.0","id":{"a":1},"method":"x"}"#, INVALID_REQUEST, Value::Null),
        ] {
            let bad = read(text).unwrap_err();
            assert_eq!((bad.error.code, bad.id), (code, id), "{text}");
        }
    }

    #[test]
    fn an_error_without_an_id_has_none() {
        let text = error_text(&Value::Null, &RpcError::new(PARSE_ERROR, "x"));
        assert_eq!(text, r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}"#);
    }
}
