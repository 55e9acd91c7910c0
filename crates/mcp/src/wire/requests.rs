//! Requests of clients: `_meta` and the parameters of each method.

use super::{Arguments, Payload};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// How Codex names a turn of `codex exec`, which has no terminal.
const HEADLESS_TURN: &str = "exec";

/// The `_meta` of a request. Values are read later, so that a wrong one gets a specific error.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RequestMeta {
    /// The revision (2026-07-28).
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    pub(crate) version: Option<Value>,
    /// What the client can do (2026-07-28).
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    pub(crate) capabilities: Option<Value>,
    /// The lowest level of log messages that are sent (2026-07-28).
    #[serde(rename = "io.modelcontextprotocol/logLevel")]
    pub(crate) log_level: Option<Value>,
    /// The token for progress notifications.
    #[serde(rename = "progressToken")]
    pub(crate) progress_token: Option<Value>,
    /// Claude Code's id of the call.
    #[serde(rename = "claudecode/toolUseId")]
    tool_use_id: Option<Value>,
    /// Codex's id of the call.
    #[serde(rename = "callId")]
    call_id: Option<Value>,
    /// What Codex says of the turn.
    #[serde(rename = "x-codex-turn-metadata")]
    turn: Option<Value>,
}

/// What a coding agent says of the call that it makes.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallOrigin {
    /// Its own id of the call, which its hook named before.
    pub(crate) id: Option<String>,
    /// Nobody sits at its terminal.
    pub(crate) is_headless: bool,
}

impl RequestMeta {
    /// Takes `_meta` out of a request's parameters. A value that is not an object is ignored.
    pub(crate) fn take(params: &mut Payload) -> Self {
        params.remove("_meta").and_then(|meta| serde_json::from_value(meta).ok()).unwrap_or_default()
    }

    /// What a coding agent says of its call.
    pub(crate) fn origin(&self) -> CallOrigin {
        let id = self.tool_use_id.as_ref().or(self.call_id.as_ref()).and_then(Value::as_str);
        let trigger = self.turn.as_ref().and_then(|turn| turn.get("turn_trigger")).and_then(Value::as_str);
        CallOrigin { id: id.map(str::to_owned), is_headless: trigger == Some(HEADLESS_TURN) }
    }

    /// Whether the request says that it belongs to a revision without a handshake.
    pub(crate) fn says_modern(&self) -> bool {
        self.version.is_some() || self.capabilities.is_some()
    }
}

/// A request with its parsed `_meta`.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) meta: RequestMeta,
    /// The parameters without `_meta`.
    pub(crate) params: Payload,
}

impl Request {
    pub(crate) fn new(id: Value, method: String, mut params: Payload) -> Self {
        let meta = RequestMeta::take(&mut params);
        Self { id, method, meta, params }
    }
}

/// The parameters of `initialize`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Initialize {
    pub(crate) protocol_version: String,
    pub(crate) capabilities: Option<Value>,
}

/// The parameters of `notifications/cancelled`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CancelledRequest {
    pub(crate) request_id: Value,
}

/// The parameters of `logging/setLevel`.
#[derive(Debug, Deserialize)]
pub(crate) struct SetLevel {
    pub(crate) level: String,
}

/// The parts of an upstream server's `notifications/message` that are read.
#[derive(Debug, Deserialize)]
pub(crate) struct LogMessage<'a> {
    #[serde(borrow)]
    pub(crate) level: &'a str,
}

/// The parameters of `tools/list`, `resources/list` and similar methods.
#[derive(Debug, Deserialize)]
pub(crate) struct Listing {
    pub(crate) cursor: Option<String>,
}

/// What a request sends along to answer the questions of an earlier one (2026-07-28).
pub(crate) type InputResponses = BTreeMap<String, Payload>;

/// `tools/call` and `prompts/get`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NamedCall {
    pub(crate) name: String,
    pub(crate) arguments: Option<Arguments>,
    pub(crate) input_responses: Option<InputResponses>,
    pub(crate) request_state: Option<String>,
}

/// The parameters of `resources/read`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadResource {
    pub(crate) uri: String,
    pub(crate) input_responses: Option<InputResponses>,
    pub(crate) request_state: Option<String>,
}

/// `resources/subscribe` and `resources/unsubscribe`.
#[derive(Debug, Deserialize)]
pub(crate) struct Subscribe {
    pub(crate) uri: String,
}

/// `subscriptions/listen` (2026-07-28), in either direction.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Listen {
    pub(crate) notifications: ListenFilter,
}

/// The changes that a client wants to be notified of and, in our answer, those that it will be notified of.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListenFilter {
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) tools_list_changed: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) prompts_list_changed: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) resources_list_changed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_subscriptions: Vec<String>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// `completion/complete`. It may be passed on to an upstream server, with members that are not known here.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Complete {
    /// What has the argument.
    #[serde(rename = "ref")]
    pub reference: Reference,
    /// The argument.
    pub argument: CompletedArgument,
    /// The rest, passed on as it came.
    #[serde(flatten)]
    pub rest: Payload,
}

/// The prompt or resource template whose argument is completed.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(tag = "type")]
pub enum Reference {
    /// A prompt.
    #[serde(rename = "ref/prompt")]
    Prompt {
        /// The name.
        name: String,
        /// The rest, passed on as it came.
        #[serde(flatten)]
        rest: Payload,
    },
    /// A resource template.
    #[serde(rename = "ref/resource")]
    Resource {
        /// Its URI template.
        uri: String,
        /// The rest, passed on as it came.
        #[serde(flatten)]
        rest: Payload,
    },
}

/// An argument that can be completed.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct CompletedArgument {
    /// The name.
    pub name: String,
    /// Its current value and other fields, passed on unchanged.
    #[serde(flatten)]
    pub rest: Payload,
}
