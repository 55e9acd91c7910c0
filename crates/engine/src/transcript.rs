//! A run as the messages of a model's session: each call and its result as a pair, followed by the calls that it made,
//! so that a reader sees the real tools and not only the control tool through which they were reached.

use crate::{facts, view::RunExport};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::HashMap, sync::Arc};
use toolyard_protocol::{CallId, Confirmation, ToolCall, ToolName, ToolResult};

/// The messages of a run, in order.
pub fn transcript(run: &RunExport) -> Vec<SessionMessage> {
    let results: HashMap<CallId, &ToolResult> = run.results.iter().map(|result| (result.call_id, result)).collect();
    let mut nested: HashMap<CallId, Vec<&ToolCall>> = HashMap::new();
    let mut own: Vec<&ToolCall> = Vec::new();
    for call in &run.calls {
        match parent(run, call) {
            Some(parent) => nested.entry(parent).or_default().push(call),
            None => own.push(call),
        }
    }
    let mut messages = Vec::new();
    let mut tell = |call: &ToolCall, id: &str| {
        messages.push(asked(run, call, id));
        messages.extend(results.get(&call.call_id).map(|result| answered(call, id, result)));
    };
    for call in own {
        tell(call, &call.call_id.to_string());
        for inner in nested.remove(&call.call_id).unwrap_or_default() {
            let id = inner.preview.clone().unwrap_or_else(|| inner.call_id.to_string());
            tell(inner, &id);
        }
    }
    messages
}

/// The call that made this one: a nested call's preview is `<parent tool>:<parent call>:<tool>:<number>`.
fn parent(run: &RunExport, call: &ToolCall) -> Option<CallId> {
    let preview = call.preview.as_deref()?;
    let made = |candidate: &&ToolCall| {
        candidate.call_id != call.call_id
            && preview
                .strip_prefix(candidate.tool.as_str())
                .and_then(|rest| rest.strip_prefix(':'))
                .and_then(|rest| rest.strip_prefix(&candidate.call_id.to_string()))
                .is_some_and(|rest| rest.starts_with(':'))
    };
    run.calls.iter().find(made).map(|parent| parent.call_id)
}

/// A message of a session, in the form that models' interfaces know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "role", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SessionMessage {
    /// The model asks for a tool.
    Assistant {
        /// The time of the event.
        timestamp: Timestamp,
        /// The calls.
        content: Vec<CallContent>,
        /// Who allowed the call, if somebody had to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval: Option<Box<CallApproval>>,
    },
    /// A tool answers.
    ToolResult {
        /// The call.
        tool_call_id: String,
        /// The tool.
        tool_name: ToolName,
        /// Whether it failed.
        is_error: bool,
        /// The answer for a model.
        content: Vec<TextContent>,
        /// The tool's data, or the failure.
        details: Map<String, Value>,
        /// The time of the event.
        timestamp: Timestamp,
    },
}

/// Who allowed a call, and what that person was shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallApproval {
    /// The person who answered.
    pub by: String,
    /// By which door.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<String>,
    /// The time of the event.
    pub at: Timestamp,
    /// The hash of what was shown; a grant and a person's own act have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// The question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// The grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_id: Option<String>,
}

impl From<&Confirmation> for CallApproval {
    fn from(given: &Confirmation) -> Self {
        Self {
            by: given.by.clone(),
            door: given.door.clone(),
            at: given.at,
            shown: given.shown.clone(),
            approval_id: given.approval_id.clone(),
            grant_id: given.grant_id.clone(),
        }
    }
}

/// A call of a tool, in a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "toolCall")]
pub struct CallContent {
    /// The call.
    pub id: String,
    /// The tool.
    pub name: ToolName,
    /// Its arguments.
    pub arguments: Arc<Map<String, Value>>,
}

/// Text in a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "text")]
pub struct TextContent {
    /// The text.
    pub text: String,
}

#[derive(Serialize)]
struct FailureDetails<'a> {
    status: &'static str,
    error: &'a str,
}

fn asked(run: &RunExport, call: &ToolCall, id: &str) -> SessionMessage {
    let is_its = |given: &&Confirmation| call.confirmation_id == Some(given.confirmation_id);
    let approval = run.approvals.iter().find(is_its).map(|given| Box::new(given.into()));
    let content = CallContent { id: id.to_owned(), name: call.tool.clone(), arguments: call.args.clone() };
    SessionMessage::Assistant { timestamp: call.created_at, content: vec![content], approval }
}

fn answered(call: &ToolCall, id: &str, result: &ToolResult) -> SessionMessage {
    let details = match (&result.data, &result.error) {
        (Some(data), None) => data.clone(),
        (_, Some(error)) => facts::payload(&FailureDetails { status: "error", error: &error.message }),
        (None, None) => Map::new(),
    };
    let text = match &result.error {
        Some(error) => error.message.clone(),
        None => format!("{:#}", Value::Object(details.clone())),
    };
    SessionMessage::ToolResult {
        tool_call_id: id.to_owned(),
        tool_name: call.tool.clone(),
        is_error: !result.ok,
        content: vec![TextContent { text }],
        details,
        timestamp: result.ended_at,
    }
}
