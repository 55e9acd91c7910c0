//! The Gateway's frames: requests in, responses and events out. Text processing only; uses no socket and no method.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use std::sync::LazyLock;
use toolyard_service::{
    RpcError,
    hub::{EventBody, Versions},
    params::{Checker, Text},
};

/// What a request may hold, for the words in which a bad one is refused.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct RequestShape {
    r#type: RequestKind,
    id: Text,
    method: Text,
    params: Option<Value>,
    #[schemars(length(max = 128))]
    traceparent: Option<Text>,
    #[schemars(length(max = 128))]
    expected_profile_id: Option<Text>,
}

static REQUEST: LazyLock<Checker> = LazyLock::new(Checker::of::<RequestShape>);

/// A request that has the right shape.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Request {
    #[serde(rename = "type")]
    kind: RequestKind,
    pub(crate) id: String,
    pub(crate) method: String,
    #[serde(default)]
    pub(crate) params: Option<Value>,
    #[serde(default)]
    pub(crate) traceparent: Option<String>,
    #[serde(default)]
    pub(crate) expected_profile_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
enum RequestKind {
    #[serde(rename = "req")]
    Req,
}

/// Why a text is not a request.
#[derive(Debug)]
pub(crate) enum BadFrame {
    /// Not JSON.
    NotJson,
    /// JSON, but not a request; the id is the one to answer with.
    NotARequest { id: Value, error: Box<RpcError> },
}

/// The id of a frame that is not a request.
#[derive(Deserialize)]
struct Identified {
    id: Value,
}

/// Reads a request.
pub(crate) fn read(bytes: &[u8]) -> Result<Request, BadFrame> {
    if let Ok(request) = serde_json::from_slice::<Request>(bytes)
        && !request.id.is_empty()
        && !request.method.is_empty()
        && request.traceparent.as_ref().is_none_or(|t| t.len() <= 128)
        && request.expected_profile_id.as_ref().is_none_or(|p| (1..=128).contains(&p.len()))
    {
        let RequestKind::Req = request.kind;
        return Ok(request);
    }
    // The slow path, which finds the exact problem.
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) if error.to_string().starts_with("recursion limit") => {
            let error = Box::new(RpcError::invalid("invalid request frame: nested too deeply"));
            return Err(BadFrame::NotARequest { id: "invalid".into(), error });
        }
        Err(_) => return Err(BadFrame::NotJson),
    };
    let problems = REQUEST.problems(&value);
    let id = match Identified::deserialize(&value) {
        Ok(Identified { id: id @ (Value::String(_) | Value::Number(_)) }) => id,
        _ => "invalid".into(),
    };
    let text = if problems.is_empty() { "must be a request".to_owned() } else { problems.join("; ") };
    let error = Box::new(RpcError::invalid(format!("invalid request frame: {text}")));
    Err(BadFrame::NotARequest { id, error })
}

#[derive(Serialize)]
struct Response<'a, I> {
    r#type: &'static str,
    id: &'a I,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RpcError>,
}

/// Writes a response.
pub(crate) fn response(id: &impl Serialize, answer: &Result<Box<RawValue>, RpcError>) -> String {
    let frame = match answer {
        Ok(payload) => Response { r#type: "res", id, ok: true, payload: Some(payload), error: None },
        Err(error) => Response { r#type: "res", id, ok: false, payload: None, error: Some(error) },
    };
    // Values and errors always serialise; an empty object is still better than no answer.
    serde_json::to_string(&frame).unwrap_or_else(|_| "{}".to_owned())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    r#type: &'static str,
    event: &'a str,
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_version: Option<Versions>,
}

/// Writes an event; `connect.challenge` alone has no sequence number.
pub(crate) fn event(body: &EventBody, seq: Option<u64>) -> String {
    let frame = Event { r#type: "event", event: &body.name, payload: &body.payload, seq, state_version: body.versions };
    serde_json::to_string(&frame).unwrap_or_else(|_| "{}".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(text: &str) -> (Value, String) {
        match read(text.as_bytes()) {
            Err(BadFrame::NotARequest { id, error }) => (id, error.message),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn bad_frames_are_refused_in_the_words_of_the_recordings() {
        assert_eq!(
            refused(r#"{"type":"req","method":"health"}"#),
            (json!("invalid"), "invalid request frame: must have required property 'id'".into())
        );
        assert_eq!(
            refused(r#"{"type":"req","id":5,"method":"health"}"#),
            (json!(5), "invalid request frame: at /id: must be string".into())
        );
        assert_eq!(
            refused(r#"{"type":"req","id":"x","method":"health","bogus":1}"#),
            (json!("x"), "invalid request frame: at root: unexpected property 'bogus'".into())
        );
        assert_eq!(refused("[1,2]").1, "invalid request frame: must be object");
        let deep =
            format!(r#"{{"type":"req","id":"d","method":"m","params":{}1{}}}"#, "[".repeat(500), "]".repeat(500));
        assert!(refused(&deep).1.contains("nested too deeply"));
        assert!(matches!(read(b"{oops"), Err(BadFrame::NotJson)));
    }

    #[test]
    fn frames_are_written_as_clients_read_them() {
        let text = response(&json!("a"), &Err(RpcError::invalid("no").detail("code", "X")));
        assert_eq!(
            text,
            r#"{"type":"res","id":"a","ok":false,"error":{"code":"INVALID_REQUEST","message":"no","details":{"code":"X"}}}"#
        );
        let body = EventBody::new("tick", &json!({"ts":1})).with_versions(Versions { presence: 2, health: 3 });
        assert_eq!(
            event(&body, Some(7)),
            r#"{"type":"event","event":"tick","payload":{"ts":1},"seq":7,"stateVersion":{"presence":2,"health":3}}"#
        );
    }
}
