//! The Gateway's frames: requests in, responses and events out. Plain text work; knows no socket and no method.

use super::params::{Field, Kind, problems};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

/// What a request may hold.
const REQUEST: &[Field] = &[
    Field::required("type", Kind::OneOf(&["req"])),
    Field::required("id", Kind::Text),
    Field::required("method", Kind::Text),
    Field::optional("params", Kind::Any),
    Field::optional("traceparent", Kind::TextUpTo(128)),
    Field::optional("expectedProfileId", Kind::TextUpTo(128)),
];

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

#[derive(Debug, Deserialize)]
enum RequestKind {
    #[serde(rename = "req")]
    Req,
}

/// Why a text is not a request.
#[derive(Debug)]
pub(crate) enum BadFrame {
    /// Not JSON at all.
    NotJson,
    /// JSON, but not a request; the id is the one to answer with.
    NotARequest { id: Value, error: Box<RpcError> },
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
    // The slow way: say exactly what is wrong.
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) if error.to_string().starts_with("recursion limit") => {
            let error = Box::new(RpcError::invalid("invalid request frame: nested too deeply"));
            return Err(BadFrame::NotARequest { id: "invalid".into(), error });
        }
        Err(_) => return Err(BadFrame::NotJson),
    };
    let id = match value.get("id") {
        Some(id @ (Value::String(_) | Value::Number(_))) => id.clone(),
        _ => "invalid".into(),
    };
    let problems = problems(&value, REQUEST);
    let text = if problems.is_empty() { "must be a request".to_owned() } else { problems.join("; ") };
    let error = Box::new(RpcError::invalid(format!("invalid request frame: {text}")));
    Err(BadFrame::NotARequest { id, error })
}

/// An error as it stands in a response.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RpcError {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retryable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ms: Option<u64>,
}

impl RpcError {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None, retryable: None, retry_after_ms: None }
    }
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new("INVALID_REQUEST", message)
    }
    pub(crate) fn unavailable(message: impl Into<String>, retry_after_ms: u64) -> Self {
        Self { retryable: Some(true), retry_after_ms: Some(retry_after_ms), ..Self::new("UNAVAILABLE", message) }
    }
    pub(crate) fn details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }
}

/// What a method answers: a value, or text that is JSON already, for answers that are made often.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Payload {
    Value(Value),
    Written(Box<RawValue>),
}

impl From<Value> for Payload {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

#[derive(Serialize)]
struct Response<'a> {
    r#type: &'static str,
    id: &'a Value,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a Payload>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RpcError>,
}

/// Writes a response.
pub(crate) fn response(id: &Value, answer: &Result<Payload, RpcError>) -> String {
    let frame = match answer {
        Ok(payload) => Response { r#type: "res", id, ok: true, payload: Some(payload), error: None },
        Err(error) => Response { r#type: "res", id, ok: false, payload: None, error: Some(error) },
    };
    // Values and errors always serialise; an empty object is still better than no answer.
    serde_json::to_string(&frame).unwrap_or_else(|_| "{}".to_owned())
}

/// What an event says; the sequence number is the connection's own and comes last.
#[derive(Debug)]
pub(crate) struct EventBody {
    pub(crate) name: String,
    pub(crate) payload: Box<RawValue>,
    /// `(presence, health)`.
    pub(crate) versions: Option<(u64, u64)>,
    /// Not sent to a connection that has much unread.
    pub(crate) drop_if_slow: bool,
}

impl EventBody {
    pub(crate) fn new(name: impl Into<String>, payload: &Value) -> Self {
        let payload = serde_json::value::to_raw_value(payload).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self { name: name.into(), payload, versions: None, drop_if_slow: false }
    }
    pub(crate) fn droppable(mut self) -> Self {
        self.drop_if_slow = true;
        self
    }
    pub(crate) fn with_versions(mut self, presence: u64, health: u64) -> Self {
        self.versions = Some((presence, health));
        self
    }
    /// Bytes it will take, roughly.
    pub(crate) fn weight(&self) -> usize {
        self.payload.get().len() + self.name.len() + 96
    }
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

#[derive(Serialize)]
struct Versions {
    presence: u64,
    health: u64,
}

/// Writes an event; `connect.challenge` alone has no sequence number.
pub(crate) fn event(body: &EventBody, seq: Option<u64>) -> String {
    let state_version = body.versions.map(|(presence, health)| Versions { presence, health });
    let frame = Event { r#type: "event", event: &body.name, payload: &body.payload, seq, state_version };
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
        let text = response(&json!("a"), &Err(RpcError::invalid("no").details(json!({"code":"X"}))));
        assert_eq!(
            text,
            r#"{"type":"res","id":"a","ok":false,"error":{"code":"INVALID_REQUEST","message":"no","details":{"code":"X"}}}"#
        );
        let body = EventBody::new("tick", &json!({"ts":1})).with_versions(2, 3);
        assert_eq!(
            event(&body, Some(7)),
            r#"{"type":"event","event":"tick","payload":{"ts":1},"seq":7,"stateVersion":{"presence":2,"health":3}}"#
        );
    }
}
