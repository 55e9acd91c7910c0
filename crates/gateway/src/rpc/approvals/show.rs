//! Questions and answers in the shapes that lists, events and snapshots have.

use super::REQUEST;
use jiff::Timestamp;
use serde_json::{Value, json};
use toolyard_engine::approvals::{Approval, ApprovalDecision, ApprovalRequest};

/// Everything that can be answered.
pub(super) const DECISIONS: [&str; 3] = ["allow-once", "allow-always", "deny"];

/// As events and lists show a plugin's question.
const PLUGIN_SHOWN: [&str; 15] = [
    "pluginId",
    "title",
    "description",
    "scope",
    "detail",
    "severity",
    "toolName",
    "toolCallId",
    "agentId",
    "sessionKey",
    "runId",
    "turnSourceChannel",
    "turnSourceTo",
    "turnSourceAccountId",
    "turnSourceThreadId",
];

/// As events and lists show a command's question.
const EXEC_SHOWN: [&str; 21] = [
    "command",
    "systemRunPlan",
    "cwd",
    "nodeId",
    "host",
    "security",
    "ask",
    "warningText",
    "scope",
    "commandSpans",
    "allowedDecisions",
    "agentId",
    "resolvedPath",
    "sessionKey",
    "sessionId",
    "runId",
    "toolCallId",
    "turnSourceChannel",
    "turnSourceTo",
    "turnSourceAccountId",
    "turnSourceThreadId",
];

/// Shown only where they were given.
const SHOWN_IF_GIVEN: [&str; 3] = ["commandArgv", "envKeys", "unavailableDecisions"];

/// What kind of question clients take it for.
pub(crate) fn kind(request: &ApprovalRequest) -> &'static str {
    if request.kind == "exec" { "exec" } else { "plugin" }
}

/// The answers a question takes. No is always one of them.
pub(super) fn allowed(request: &ApprovalRequest) -> Vec<&'static str> {
    let given = request.extra.get(REQUEST);
    let names = |field: &str| given.and_then(|g| g.get(field)).and_then(Value::as_array);
    let holds = |list: Option<&Vec<Value>>, word: &str| list.is_some_and(|list| list.iter().any(|item| item == word));
    let is_taken = |word: &&str| match (*word, kind(request)) {
        ("deny", _) => true,
        ("allow-always", "exec") => {
            let always_asked = given.and_then(|g| g.get("ask")).and_then(Value::as_str) == Some("always");
            !always_asked && !holds(names("unavailableDecisions"), "allow-always")
        }
        (_, "exec") => true,
        (word, _) => names("allowedDecisions").is_none() || holds(names("allowedDecisions"), word),
    };
    DECISIONS.into_iter().filter(is_taken).collect()
}

/// The question itself, as it was put.
fn shown(request: &ApprovalRequest) -> Value {
    let is_exec = kind(request) == "exec";
    let fields: &[&str] = if is_exec { &EXEC_SHOWN } else { &PLUGIN_SHOWN };
    let given = request.extra.get(REQUEST).and_then(Value::as_object);
    let own = |name: &str| -> Value {
        match name {
            _ if given.is_some() => Value::Null,
            "title" => request.title.as_str().into(),
            "description" => request.description.as_str().into(),
            "severity" => request.severity.as_str().into(),
            "toolName" => request.tool.as_str().into(),
            "toolCallId" => request.call_id.map_or(Value::Null, |id| id.to_string().into()),
            "runId" => request.run_id.map_or(Value::Null, |id| id.to_string().into()),
            "agentId" => request.agent.as_str().into(),
            "sessionKey" => request.session.as_deref().map_or(Value::Null, Into::into),
            _ => Value::Null,
        }
    };
    let value = |name: &str| match name {
        "allowedDecisions" => allowed(request).into(),
        _ => given.and_then(|g| g.get(name)).cloned().unwrap_or_else(|| own(name)),
    };
    let mut shown: serde_json::Map<_, _> = fields.iter().map(|name| ((*name).to_owned(), value(name))).collect();
    for name in SHOWN_IF_GIVEN {
        if let Some(value) = given.and_then(|g| g.get(name)) {
            shown.insert(name.to_owned(), value.clone());
        }
    }
    if !is_exec && given.is_some_and(|g| g.get("allowedDecisions").is_some_and(Value::is_array)) {
        shown.insert("allowedDecisions".to_owned(), allowed(request).into());
    }
    Value::Object(shown)
}

/// A question as lists and events show it.
pub(crate) fn requested(approval: &Approval) -> Value {
    let request = &approval.request;
    json!({
        "approvalKind": kind(request), "id": request.id, "request": shown(request),
        "createdAtMs": request.created_at.as_millisecond(), "expiresAtMs": request.expires_at.as_millisecond(),
    })
}

/// An answer as events show it.
pub(crate) fn resolved(approval: &Approval) -> Value {
    json!({
        "id": approval.request.id, "decision": approval.decision.as_ref().map(word),
        "resolvedBy": approval.resolved_with.as_ref().or(approval.resolved_by.as_ref()),
        "ts": approval.resolved_at.map(|at| at.as_millisecond()), "request": shown(&approval.request),
    })
}

/// `{id, decision, createdAtMs, expiresAtMs}`; the decision is null when nobody made one.
pub(super) fn decided(approval: &Approval) -> Value {
    let decision = approval.decision.as_ref().filter(|_| approval.resolved_by.is_some());
    json!({
        "id": approval.request.id, "decision": decision.map(word),
        "createdAtMs": approval.request.created_at.as_millisecond(),
        "expiresAtMs": approval.request.expires_at.as_millisecond(),
    })
}

/// A command's question for whoever is about to answer it.
pub(super) fn command(approval: &Approval) -> Value {
    let request = &approval.request;
    let given = |name: &str| request.extra.get(REQUEST).and_then(|g| g.get(name)).cloned().unwrap_or_default();
    json!({
        "id": request.id, "commandText": given("command"), "commandPreview": null,
        "allowedDecisions": allowed(request), "host": given("host"), "nodeId": given("nodeId"),
        "agentId": given("agentId"), "expiresAtMs": request.expires_at.as_millisecond(),
    })
}

pub(super) fn word(decision: &ApprovalDecision) -> &'static str {
    match decision {
        ApprovalDecision::AllowOnce => "allow-once",
        ApprovalDecision::AllowAlways { .. } => "allow-always",
        ApprovalDecision::Deny => "deny",
    }
}

/// A question with its fate, whatever its kind.
pub(super) fn snapshot(approval: &Approval, now: Timestamp) -> Value {
    let request = &approval.request;
    let given = request.extra.get(REQUEST);
    let presentation = if kind(request) == "exec" {
        let command = given.and_then(|g| g.get("command")).and_then(Value::as_str).unwrap_or(&request.description);
        json!({"kind": "exec", "commandText": command, "agentId": request.agent, "allowedDecisions": allowed(request)})
    } else {
        json!({
            "kind": "plugin", "title": request.title, "description": request.description,
            "severity": request.severity, "pluginId": given.and_then(|g| g.get("pluginId")).cloned(),
            "toolName": request.call_id.is_some().then_some(request.tool.as_str()), "agentId": request.agent,
            "allowedDecisions": allowed(request),
        })
    };
    let mut value = json!({
        "id": request.id, "status": "pending", "presentation": presentation,
        "urlPath": format!("/approve/{}", request.id.replace(':', "%3A")),
        "createdAtMs": request.created_at.as_millisecond(), "expiresAtMs": request.expires_at.as_millisecond(),
    });
    let Some(decision) = &approval.decision else {
        // The process that asked is gone and its time is over: nobody can answer any more.
        if request.expires_at < now {
            value["status"] = "expired".into();
            value["reason"] = "timeout".into();
            value["resolvedAtMs"] = request.expires_at.as_millisecond().into();
        }
        return value;
    };
    let (status, reason) = match (decision, approval.terminal_reason.as_deref()) {
        (ApprovalDecision::Deny, Some("timeout")) => ("expired", "timeout"),
        (ApprovalDecision::Deny, Some("cancelled")) => ("cancelled", "run-aborted"),
        (ApprovalDecision::Deny, Some("restart")) => ("cancelled", "gateway-restart"),
        (ApprovalDecision::Deny, Some("no-route")) => ("denied", "no-route"),
        (ApprovalDecision::Deny, Some("malformed-verdict")) => ("denied", "malformed-verdict"),
        (ApprovalDecision::Deny, _) => ("denied", "user"),
        _ => ("allowed", "user"),
    };
    value["status"] = status.into();
    value["reason"] = reason.into();
    value["resolvedAtMs"] = approval.resolved_at.map_or(Value::Null, |at| at.as_millisecond().into());
    let mut source = serde_json::Map::from_iter([("agentId".to_owned(), Value::from(request.agent.as_str()))]);
    if let Some(session) = &request.session {
        source.insert("sessionKey".to_owned(), session.as_str().into());
    }
    value["source"] = Value::Object(source);
    if matches!(status, "allowed" | "denied") {
        value["decision"] = word(decision).into();
    }
    if let Some(by) = &approval.resolved_by {
        value["resolver"] = match by.strip_prefix("device:") {
            Some(device) => json!({"kind": "device", "id": device}),
            None => json!({"kind": "runtime", "id": approval.resolved_with.as_ref().unwrap_or(by)}),
        };
    }
    value
}
