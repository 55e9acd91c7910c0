//! Parses the events that clients send to their hooks. Every client's format becomes the same type.

use crate::Client;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::PathBuf;
use toolyard_protocol::canonical;

/// The name under which `toolyard connect` enters Toolyard's own MCP server.
const OWN_SERVER: &str = "toolyard";
/// Characters of a tool's response that are kept.
const MAX_RESPONSE_CHARS: usize = 4096;

/// An event of a client.
#[derive(Debug)]
pub(crate) enum Event {
    /// A call is about to be made.
    Before(NativeCall),
    /// A call has ended.
    After(CallEnd),
    /// The client is about to ask its user about a call.
    Permission(NativeCall),
    /// No call of the session is in flight: the end of a call that is still open will not be reported.
    Quiet { session: String },
    /// The client's settings changed.
    SettingsChanged { file: Option<PathBuf> },
    /// Nothing to do.
    Other,
}

/// A call of a client's own tool.
#[derive(Debug, Clone)]
pub(crate) struct NativeCall {
    pub(crate) client: Client,
    pub(crate) session: String,
    pub(crate) prompt: Option<String>,
    pub(crate) subagent: Option<String>,
    pub(crate) subagent_kind: Option<String>,
    pub(crate) tool: String,
    pub(crate) input: Map<String, Value>,
    pub(crate) cwd: PathBuf,
    pub(crate) call: Option<String>,
    /// Its name at Toolyard's MCP server, if it is one of Toolyard's own tools: the MCP door decides and records those.
    pub(crate) own_tool: Option<String>,
}

/// The end of a call.
#[derive(Debug)]
pub(crate) struct CallEnd {
    pub(crate) key: CallKey,
    pub(crate) has_failed: bool,
    pub(crate) response: Option<String>,
}

/// What the events of one call have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    client: Client,
    session: String,
    /// The client's id of the call; Gemini has none, so there it is the tool and the hash of its input.
    call: String,
}

impl CallKey {
    pub(crate) fn is_of(&self, client: Client, session: &str) -> bool {
        self.client == client && self.session == session
    }
}

#[derive(Deserialize)]
struct Raw {
    session_id: String,
    hook_event_name: String,
    #[serde(default)]
    cwd: PathBuf,
    tool_name: Option<String>,
    #[serde(default)]
    tool_input: Map<String, Value>,
    tool_response: Option<Value>,
    tool_use_id: Option<String>,
    prompt_id: Option<String>,
    turn_id: Option<String>,
    agent_id: Option<String>,
    agent_type: Option<String>,
    error: Option<String>,
    file_path: Option<PathBuf>,
}

impl Event {
    /// Reads an event. The reason for one that cannot be read is shown to the person at the client.
    pub(crate) fn read(client: Client, payload: Value) -> Result<Self, String> {
        let raw =
            Raw::deserialize(payload).map_err(|error| format!("{client} sent an event of another form: {error}"))?;
        let event = raw.hook_event_name.clone();
        match event.as_str() {
            "PreToolUse" | "BeforeTool" => Ok(Self::Before(raw.call(client)?)),
            "PermissionRequest" => Ok(Self::Permission(raw.call(client)?)),
            "PostToolUse" | "AfterTool" => Ok(Self::After(raw.end(client, false)?)),
            "PostToolUseFailure" => Ok(Self::After(raw.end(client, true)?)),
            // A subagent's end says nothing about the calls of others in the session.
            "Stop" | "SessionEnd" | "UserPromptSubmit" | "BeforeAgent" | "AfterAgent" | "Interrupt"
                if raw.agent_id.is_none() =>
            {
                Ok(Self::Quiet { session: raw.session_id })
            }
            "ConfigChange" => Ok(Self::SettingsChanged { file: raw.file_path }),
            _ => Ok(Self::Other),
        }
    }
}

impl NativeCall {
    /// The command of a shell, or the patch.
    pub(crate) fn command(&self) -> Option<&str> {
        self.input.get("command").and_then(Value::as_str)
    }

    pub(crate) fn key(&self) -> CallKey {
        let call = self.call.clone().unwrap_or_else(|| {
            let input = Value::Object(self.input.clone());
            let hash = canonical::hash(&input).unwrap_or_else(|_| input.to_string());
            format!("{} {hash}", self.tool)
        });
        CallKey { client: self.client, session: self.session.clone(), call }
    }
}

impl Raw {
    fn call(self, client: Client) -> Result<NativeCall, String> {
        let tool = self.tool_name.ok_or_else(|| format!("{client} sent a call without the name of its tool"))?;
        if !self.cwd.is_absolute() {
            return Err(format!("{client} sent a call without the folder it works in"));
        }
        let own = match client {
            Client::Claude | Client::Codex => format!("mcp__{OWN_SERVER}__"),
            Client::Gemini => format!("mcp_{OWN_SERVER}_"),
            Client::Opencode => format!("{OWN_SERVER}_"),
        };
        Ok(NativeCall {
            client,
            own_tool: tool.strip_prefix(&own).map(str::to_owned),
            tool,
            session: self.session_id,
            prompt: self.prompt_id.or(self.turn_id),
            subagent: self.agent_id,
            subagent_kind: self.agent_type,
            input: self.tool_input,
            cwd: self.cwd,
            call: self.tool_use_id,
        })
    }

    fn end(mut self, client: Client, has_failed: bool) -> Result<CallEnd, String> {
        let response = self.error.take().or_else(|| self.tool_response.take().map(text_of));
        let response = response.map(|text| text.chars().take(MAX_RESPONSE_CHARS).collect());
        let is_error = response.as_deref().is_some_and(|text: &str| text.contains("\"error\":{"));
        let key = self.call(client)?.key();
        Ok(CallEnd { key, has_failed: has_failed || is_error, response })
    }
}

fn text_of(response: Value) -> String {
    match response {
        Value::String(text) => text,
        Value::Object(mut fields) => match fields.remove("llmContent").or_else(|| fields.remove("stdout")) {
            Some(Value::String(text)) => text,
            _ => Value::Object(fields).to_string(),
        },
        other => other.to_string(),
    }
}
