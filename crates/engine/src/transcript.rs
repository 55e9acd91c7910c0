//! A run as the messages of a model's session: each call and its result as a pair, followed by the calls that it made,
//! so that a reader sees the real tools and not only the control tool through which they were reached.

use crate::view::RunExport;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use toolyard_protocol::{CallId, ToolCall, ToolResult};

/// The messages of a run, in order.
pub fn transcript(run: &RunExport) -> Vec<Value> {
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
        messages.push(asked(call, id));
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

fn asked(call: &ToolCall, id: &str) -> Value {
    json!({
        "role": "assistant", "timestamp": call.created_at,
        "content": [{"type": "toolCall", "id": id, "name": call.tool, "arguments": call.args}],
    })
}

fn answered(call: &ToolCall, id: &str, result: &ToolResult) -> Value {
    let details = match (&result.data, &result.error) {
        (Some(data), None) => data.clone(),
        (_, Some(error)) => {
            Map::from_iter([("status".to_owned(), "error".into()), ("error".to_owned(), error.message.as_str().into())])
        }
        (None, None) => Map::new(),
    };
    let text = match &result.error {
        Some(error) => error.message.clone(),
        None => serde_json::to_string_pretty(&details).unwrap_or_default(),
    };
    json!({
        "role": "toolResult", "toolCallId": id, "toolName": call.tool, "isError": !result.ok,
        "content": [{"type": "text", "text": text}], "details": details, "timestamp": result.ended_at,
    })
}
