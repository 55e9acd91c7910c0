//! Answers of a real OpenClaw gateway, as `scripts/recordings/make.py` wrote them: requests to send again, and of each
//! answer the codes, the keys and the types of values.

use crate::harness::TOKEN;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Facts {
    /// Keys and types of payloads, by the names that steps refer to.
    pub(super) shapes: BTreeMap<String, Value>,
    pub(super) scenarios: Vec<Scenario>,
    pub(super) http: Vec<Exchange>,
}

/// Recordings that are played on one gateway, merged into one list of steps.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Scenario {
    pub(super) recordings: Vec<String>,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Step {
    /// Which of the scenario's recordings it belongs to. Each recording is a connection.
    #[serde(default)]
    pub(super) of: usize,
    #[serde(flatten)]
    pub(super) act: Act,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Act {
    Open {
        #[serde(default)]
        origin: Option<String>,
    },
    Send {
        frame: Value,
        #[serde(default)]
        device: Option<Device>,
    },
    /// A text that is not a frame, or a frame too long to be kept.
    SendText {
        text: String,
        #[serde(default)]
        pad_to: usize,
    },
    Answer(Box<Answer>),
    Event(Event),
    Close {
        code: u16,
        reason: String,
    },
    /// No answer comes.
    Silence,
    /// The client closes the connection.
    Leave,
}

/// How a connect request is signed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Device {
    /// Names the key pair; the same name is the same device.
    pub(super) key: String,
    /// How old the signature is when it is sent.
    pub(super) age_ms: u64,
    /// Signed instead of the nonce that the gateway sent.
    #[serde(default)]
    pub(super) nonce: Option<String>,
    #[serde(default)]
    pub(super) signature: Option<Signature>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Signature {
    /// As long as a signature, and not one.
    Wrong,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    pub(super) id: Value,
    pub(super) ok: bool,
    #[serde(default)]
    pub(super) code: Option<Value>,
    #[serde(default)]
    pub(super) details_code: Option<Value>,
    #[serde(default)]
    pub(super) details_reason: Option<Value>,
    #[serde(default)]
    pub(super) payload_ok: Option<Value>,
    #[serde(default)]
    pub(super) payload_code: Option<Value>,
    /// The name of a shape.
    #[serde(default)]
    pub(super) payload: Option<String>,
    /// Pointers to what the gateway made up, and the names that later requests use for it.
    #[serde(default)]
    pub(super) learn: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    pub(super) event: String,
    /// Whether the frame has a sequence number,
    #[serde(default)]
    pub(super) seq: bool,
    /// and the versions of the gateway's state.
    #[serde(default)]
    pub(super) state_version: bool,
    #[serde(default)]
    pub(super) decision: Value,
    #[serde(default)]
    pub(super) resolved_by: Value,
    /// The name of a shape.
    #[serde(default)]
    pub(super) payload: Option<String>,
    #[serde(default)]
    pub(super) learn: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Exchange {
    pub(super) case: String,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) auth: Credential,
    #[serde(default)]
    pub(super) body: String,
    pub(super) status: u16,
    #[serde(default)]
    pub(super) ok: Value,
    #[serde(default)]
    pub(super) error_type: Value,
    /// The name of the body's shape, where the body is JSON.
    #[serde(default)]
    pub(super) shape: Option<String>,
    /// The whole body, where it is not.
    #[serde(default)]
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) enum Credential {
    #[serde(rename = "y")]
    Right,
    #[serde(rename = "bad")]
    Wrong,
    #[serde(rename = "n")]
    None,
}

impl Facts {
    pub(super) fn read() -> Self {
        let text = include_str!("../../../../../tests/recordings/openclaw.json").replace("<token>", TOKEN);
        serde_json::from_str(&text).unwrap()
    }

    /// The shape with that name; of no name, the one that everything fits.
    pub(super) fn shape(&self, name: Option<&String>) -> &Value {
        name.map_or(&Value::Null, |name| self.shapes.get(name).unwrap_or_else(|| panic!("there is no shape {name}")))
    }
}
