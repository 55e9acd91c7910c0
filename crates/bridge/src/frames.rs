//! The frames of both directions: JSON objects with a `type`. Both ends ignore an unknown type
//! ([`Unknown`](FromPlugin::Unknown)), so that either can add new ones first.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// The version of Toolyard's additions to the specification's frames, in `session_meta.protocol`.
pub const PROTOCOL: u32 = 1;
/// A frame once `hello` was taken.
pub const MAX_FRAME_BYTES: usize = 16 << 20;
/// The first frame.
pub const MAX_HELLO_BYTES: usize = 64 << 10;
/// Maximum number of tool calls of one session in flight.
pub const MAX_IN_FLIGHT: usize = 64;
/// An id that either end makes up.
pub const MAX_ID_BYTES: usize = 128;
/// The text of one message, in either direction.
pub const MAX_CONTENT_BYTES: usize = 1 << 20;
/// The description of one message (`meta`), written as JSON.
pub const MAX_META_BYTES: usize = 64 << 10;
/// The server pings this often.
pub const HEARTBEAT_MS: u64 = 30_000;
/// `hello` must have come within this time.
pub const HELLO_WITHIN_MS: u64 = 5_000;

/// Why the server closes a connection.
pub mod close {
    /// The token is not the session's.
    pub const BAD_TOKEN: u16 = 4001;
    /// Close code: the session is not open.
    pub const UNKNOWN_SESSION: u16 = 4002;
    /// No `hello` in time.
    pub const NO_HELLO: u16 = 4003;
    /// The first frame was not a `hello`.
    pub const NOT_HELLO: u16 = 4004;
    /// A newer `hello` took the session over.
    pub const SUPERSEDED: u16 = 4005;
    /// Two pings went unanswered.
    pub const HEARTBEAT_LOST: u16 = 4006;
    /// The server stops.
    pub const GOING_AWAY: u16 = 1001;
    /// The plugin does not read.
    pub const SLOW: u16 = 1008;
    /// A frame was too big.
    pub const TOO_BIG: u16 = 1009;
}

/// A person's answer to a permission question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Behavior {
    /// The action is allowed.
    Allow,
    /// The action is denied.
    Deny,
}

impl Behavior {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// The first frame of a plugin.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The session it serves.
    pub openclaw_session: String,
    /// Claude's own session, for traces.
    #[serde(default)]
    pub claude_session: String,
    /// The plugin's process.
    #[serde(default)]
    pub pid: u32,
    /// The session's secret.
    pub token: String,
    /// Whether it confirms each message with `ack`. Not in the specification: for a plugin that does not, a message counts as
    /// delivered once it is written.
    #[serde(default, skip_serializing_if = "is_false")]
    pub acks: bool,
    /// Which connection of this process it is, counted up: a `hello` that arrives late does not supersede a newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
}

impl std::fmt::Debug for Hello {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hello").field("openclaw_session", &self.openclaw_session).field("pid", &self.pid).finish()
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// A message for Claude.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InboundMessage {
    /// Its id, for `ack` and for warnings.
    pub request_id: String,
    /// What the user wrote.
    pub content: String,
    /// Who, where and when.
    #[serde(default)]
    pub meta: Map<String, Value>,
}

/// A question of Claude Code's to a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Five letters out of `[a-km-z]`.
    pub request_id: String,
    /// The tool Claude wants to use.
    pub tool: String,
    /// The arguments, if the preview shows them completely.
    #[serde(default)]
    pub args: Map<String, Value>,
    /// The reason for the action.
    #[serde(default)]
    pub rationale: String,
    /// The arguments as Claude Code shows them, possibly cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_preview: Option<String>,
}

/// A message from Claude to the people in a chat, or a permission question on behalf of Claude Code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutboundMessage {
    /// The id for the `tool_result` that answers this. Empty if the bridge itself asks.
    pub call_id: String,
    /// The chat.
    pub chat_id: String,
    /// The text.
    pub text: String,
    /// The message it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Paths of files to go with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The permission question that the message asks: such a message is for those who may answer it. A plugin cannot set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<String>,
}

/// From the plugin to the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromPlugin {
    /// The first frame.
    Hello(Hello),
    /// Claude calls a tool.
    ToolCall {
        /// The plugin's id for it.
        call_id: String,
        /// The tool.
        tool: String,
        /// The arguments.
        #[serde(default)]
        args: Map<String, Value>,
    },
    /// Claude has cancelled the call. Not in the specification.
    ToolCancel {
        /// The call.
        call_id: String,
    },
    /// Claude Code asks a person.
    PermissionRequest(Question),
    /// A message from Claude. Not in the specification.
    OutboundMessage(OutboundMessage),
    /// A message was written to Claude Code. Not in the specification.
    Ack {
        /// The id of the message.
        request_id: String,
    },
    /// A heartbeat, which the other side answers.
    Ping {
        /// Returned unchanged.
        #[serde(default)]
        ts: Value,
    },
    /// The answer to a ping.
    Pong {
        /// The timestamp of the ping.
        #[serde(default)]
        ts: Value,
    },
    /// Something newer; ignored.
    #[serde(other)]
    Unknown,
}

/// From the server to the plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromServer {
    /// The plugin is in.
    HelloAck {
        /// MCP Tool objects.
        #[serde(default)]
        tools: Vec<Value>,
        /// Information about the session, for the plugin.
        #[serde(default)]
        session_meta: Map<String, Value>,
    },
    /// A message for Claude.
    InboundMessage(InboundMessage),
    /// A person's answer.
    PermissionReply {
        /// The id of the question.
        request_id: String,
        /// The answer.
        behavior: Behavior,
    },
    /// How a call or an outbound message ended.
    ToolResult {
        /// The call.
        call_id: String,
        /// Whether the call succeeded.
        ok: bool,
        /// The result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        /// The error, if the call failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The list of tools has changed.
    ToolsChanged {
        /// The complete current list.
        #[serde(default)]
        tools: Vec<Value>,
    },
    /// A heartbeat, which the other side answers.
    Ping {
        /// Returned unchanged.
        #[serde(default)]
        ts: Value,
    },
    /// The answer to a ping.
    Pong {
        /// The timestamp of the ping.
        #[serde(default)]
        ts: Value,
    },
    /// Something newer; ignored.
    #[serde(other)]
    Unknown,
}

/// Parses a frame of either direction; the error says what is wrong.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

/// Writes a frame of either direction.
pub fn write<T: Serialize>(frame: &T) -> String {
    // Frames hold strings, numbers and JSON: they always serialise.
    serde_json::to_string(frame).unwrap_or_else(|_| "{}".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[toolyard_shows::shows("004-1-02", "004-2-01", "004-3-01")]
    #[test]
    fn the_seeds_frames_are_read_and_written_as_they_stand_there() {
        let hello = r#"{"type":"hello","openclaw_session":"s","claude_session":"c","pid":12345,"token":"t"}"#;
        let FromPlugin::Hello(read_hello) = read(hello).unwrap() else { panic!("hello") };
        assert!(!read_hello.acks && read_hello.pid == 12345);
        assert_eq!(write(&FromPlugin::Hello(read_hello)), hello);
        let call = r#"{"type":"tool_call","call_id":"tc_001","tool":"pcexec","args":{"a":1}}"#;
        assert_eq!(write(&read::<FromPlugin>(call).unwrap()), call);
        let asked = r#"{"type":"permission_request","request_id":"abxyz","tool":"Bash","args":{},"rationale":"why"}"#;
        assert_eq!(write(&read::<FromPlugin>(asked).unwrap()), asked);
        for text in [
            r#"{"type":"hello_ack","tools":[{"name":"t"}],"session_meta":{"a":1}}"#,
            r#"{"type":"inbound_message","request_id":"msg_abc123","content":"hi","meta":{"chat_id":"1"}}"#,
            r#"{"type":"permission_reply","request_id":"abxyz","behavior":"allow"}"#,
            r#"{"type":"tool_result","call_id":"tc_001","ok":true,"result":{"x":1}}"#,
            r#"{"type":"tool_result","call_id":"tc_001","ok":false,"error":"no"}"#,
            r#"{"type":"ping","ts":5}"#,
        ] {
            assert_eq!(write(&read::<FromServer>(text).unwrap()), text);
        }
    }

    #[test]
    fn new_types_are_ignored_and_broken_frames_are_not() {
        assert_eq!(read::<FromPlugin>(r#"{"type":"later","x":1}"#), Ok(FromPlugin::Unknown));
        assert_eq!(read::<FromServer>(r#"{"type":"later"}"#), Ok(FromServer::Unknown));
        for bad in ["", "[]", "{}", "nonsense", r#"{"type":"tool_call"}"#, r#"{"type":7}"#] {
            assert!(read::<FromPlugin>(bad).is_err(), "{bad}");
        }
        assert_eq!(read::<FromServer>(r#"{"type":"ping"}"#), Ok(FromServer::Ping { ts: json!(null) }));
        let hello = format!("{:?}", read::<FromPlugin>(r#"{"type":"hello","openclaw_session":"s","token":"secret"}"#));
        assert!(!hello.contains("secret"), "a token is never logged");
    }
}
