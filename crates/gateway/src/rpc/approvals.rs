//! Approvals over the Gateway: questions of policy and hooks, and those that clients put themselves (`exec.*`,
//! `plugin.*`). The engine keeps questions and answers; here they are shown, and it is checked who may answer.

use super::{Ask, RpcError, blocking, from_failure};
use crate::{
    hub::{Connection, Gateway},
    ws::{
        connection,
        params::{Field, Kind, check, count, flag, text},
    },
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use toolyard_engine::approvals::{
    Answer, Approval, ApprovalDecision, ApprovalRequest, MAX_WAIT_MS, Opened, REQUESTER, Route,
};
use toolyard_protocol::canonical;

/// A question waits this long unless it says otherwise.
const DEFAULT_WAIT_MS: u64 = 120_000;
/// Where a client's own words about its question are kept.
const REQUEST: &str = "request";
/// History in one page.
const MAX_PAGE: u64 = 200;
const DECISIONS: [&str; 3] = ["allow-once", "allow-always", "deny"];

const ID: &[Field] = &[Field::required("id", Kind::Text)];
const NOTHING: &[Field] = &[];
const RESOLVE: &[Field] = &[
    Field::required("id", Kind::Text),
    Field::required("decision", Kind::Text),
    Field::optional("kind", Kind::OneOf(&["exec", "plugin", "system-agent"])),
    Field::optional("reviewer", Kind::Object),
    Field::optional("grantExpiresInDays", Kind::Count),
    Field::optional("grantExpiresInMs", Kind::Count),
];
const HISTORY: &[Field] = &[
    Field::optional("cursor", Kind::TextUpTo(512)),
    Field::optional("limit", Kind::Count),
    Field::optional("kind", Kind::OneOf(&["exec", "plugin", "system-agent"])),
];

const PLUGIN_REQUEST: &[Field] = &[
    Field::required("title", Kind::TextUpTo(320)),
    Field::required("description", Kind::TextUpTo(2048)),
    Field::optional("pluginId", Kind::TextOrNull),
    Field::optional("detail", Kind::TextOrNull),
    Field::optional("severity", Kind::Any),
    Field::optional("scope", Kind::Any),
    Field::optional("toolName", Kind::TextOrNull),
    Field::optional("toolCallId", Kind::TextOrNull),
    Field::optional("mcpTool", Kind::Object),
    Field::optional("allowedDecisions", Kind::Any),
    Field::optional("agentId", Kind::TextOrNull),
    Field::optional("sessionKey", Kind::TextOrNull),
    Field::optional("approvalReviewerDeviceIds", Kind::Any),
    Field::optional("turnSourceChannel", Kind::TextOrNull),
    Field::optional("turnSourceTo", Kind::TextOrNull),
    Field::optional("turnSourceAccountId", Kind::TextOrNull),
    Field::optional("turnSourceThreadId", Kind::Any),
    Field::optional("timeoutMs", Kind::Count),
    Field::optional("twoPhase", Kind::Flag),
];
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

const EXEC_REQUEST: &[Field] = &[
    Field::optional("id", Kind::TextUpTo(128)),
    Field::optional("command", Kind::TextUpTo(64 << 10)),
    Field::optional("commandArgv", Kind::Texts),
    Field::optional("systemRunPlan", Kind::Any),
    Field::optional("env", Kind::Object),
    Field::optional("cwd", Kind::TextOrNull),
    Field::optional("nodeId", Kind::TextOrNull),
    Field::optional("host", Kind::TextOrNull),
    Field::optional("security", Kind::TextOrNull),
    Field::optional("ask", Kind::TextOrNull),
    Field::optional("warningText", Kind::TextOrNull),
    Field::optional("scope", Kind::Any),
    Field::optional("unavailableDecisions", Kind::Any),
    Field::optional("commandSpans", Kind::Any),
    Field::optional("agentId", Kind::TextOrNull),
    Field::optional("resolvedPath", Kind::TextOrNull),
    Field::optional("sessionKey", Kind::TextOrNull),
    Field::optional("sessionId", Kind::TextOrNull),
    Field::optional("runId", Kind::TextOrNull),
    Field::optional("toolCallId", Kind::TextOrNull),
    Field::optional("turnSourceChannel", Kind::TextOrNull),
    Field::optional("turnSourceTo", Kind::TextOrNull),
    Field::optional("turnSourceAccountId", Kind::TextOrNull),
    Field::optional("turnSourceThreadId", Kind::Any),
    Field::optional("approvalReviewerDeviceIds", Kind::Any),
    Field::optional("timeoutMs", Kind::Count),
    Field::optional("twoPhase", Kind::Flag),
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

pub(super) async fn answer(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    match ask.method {
        "plugin.approval.request" => request_plugin(ask, params).await,
        "exec.approval.request" => request_exec(ask, params).await,
        "plugin.approval.list" => list(ask, params, "plugin"),
        "exec.approval.list" => list(ask, params, "exec"),
        "plugin.approval.waitDecision" => wait(ask, params, "plugin").await,
        "exec.approval.waitDecision" => wait(ask, params, "exec").await,
        "plugin.approval.resolve" => resolve(ask, params, Some("plugin")).await,
        "exec.approval.resolve" => resolve(ask, params, Some("exec")).await,
        "approval.resolve" => resolve(ask, params, None).await,
        "approval.history" => history(ask, params).await,
        "exec.approval.get" => get(ask, params, Some("exec")).await,
        _ => get(ask, params, None).await,
    }
}

/// What kind of question clients take it for.
pub(crate) fn kind(request: &ApprovalRequest) -> &'static str {
    if request.kind == "exec" { "exec" } else { "plugin" }
}

fn shown(request: &ApprovalRequest) -> Value {
    let fields: &[&str] = if kind(request) == "exec" { &EXEC_SHOWN } else { &PLUGIN_SHOWN };
    let given = request.extra.get(REQUEST).and_then(Value::as_object);
    let own = |name: &str| -> Value {
        match name {
            "allowedDecisions" => DECISIONS.into(),
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
    let value = |name: &str| given.and_then(|g| g.get(name)).cloned().unwrap_or_else(|| own(name));
    Value::Object(fields.iter().map(|name| ((*name).to_owned(), value(name))).collect())
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
        "resolvedBy": approval.resolved_by, "request": shown(&approval.request),
        "ts": approval.resolved_at.map(|at| at.as_millisecond()),
    })
}

fn word(decision: &ApprovalDecision) -> &'static str {
    match decision {
        ApprovalDecision::AllowOnce => "allow-once",
        ApprovalDecision::AllowAlways { .. } => "allow-always",
        ApprovalDecision::Deny => "deny",
    }
}

fn snapshot(approval: &Approval) -> Value {
    let request = &approval.request;
    let given = request.extra.get(REQUEST);
    let presentation = if kind(request) == "exec" {
        let command = given.and_then(|g| g.get("command")).and_then(Value::as_str).unwrap_or(&request.description);
        json!({"kind": "exec", "commandText": command, "agentId": request.agent, "allowedDecisions": DECISIONS})
    } else {
        json!({
            "kind": "plugin", "title": request.title, "description": request.description,
            "severity": request.severity, "pluginId": given.and_then(|g| g.get("pluginId")).cloned(),
            "toolName": request.call_id.is_some().then_some(request.tool.as_str()), "agentId": request.agent,
            "allowedDecisions": DECISIONS,
        })
    };
    let mut value = json!({
        "id": request.id, "status": "pending", "presentation": presentation,
        "urlPath": format!("/approve/{}", request.id.replace(':', "%3A")),
        "createdAtMs": request.created_at.as_millisecond(), "expiresAtMs": request.expires_at.as_millisecond(),
    });
    let Some(decision) = &approval.decision else { return value };
    let (status, reason) = match (decision, approval.terminal_reason.as_deref()) {
        (ApprovalDecision::Deny, Some("timeout")) => ("expired", "timeout"),
        (ApprovalDecision::Deny, Some("cancelled")) => ("cancelled", "run-aborted"),
        (ApprovalDecision::Deny, Some("restart")) => ("cancelled", "gateway-restart"),
        (ApprovalDecision::Deny, Some("no-route")) => ("denied", "no-route"),
        (ApprovalDecision::Deny, _) => ("denied", "user"),
        _ => ("allowed", "user"),
    };
    value["status"] = status.into();
    value["reason"] = reason.into();
    value["resolvedAtMs"] = approval.resolved_at.map_or(Value::Null, |at| at.as_millisecond().into());
    if matches!(status, "allowed" | "denied") {
        value["decision"] = word(decision).into();
    }
    if let Some(by) = &approval.resolved_by {
        value["resolver"] = match by.strip_prefix("device:") {
            Some(device) => json!({"kind": "device", "id": device}),
            None => json!({"kind": "runtime", "id": by}),
        };
    }
    value
}

fn not_found() -> RpcError {
    RpcError::invalid("unknown or expired approval id").details(json!({
        "reason": "APPROVAL_NOT_FOUND",
        "remediation": "List what waits with plugin.approval.list or exec.approval.list, or see approval.history.",
    }))
}

/// An approval that this connection may see and decide: whoever asked is not the one to answer, unless it is an
/// administrator. Which connection a plan's question comes from is not known, so whoever could have started the plan is
/// kept from it.
pub(crate) fn visible(connection: &Connection, approval: &Approval) -> bool {
    if connection.has("operator.admin") {
        return true;
    }
    match approval.request.extra.get(REQUESTER).and_then(Value::as_str) {
        Some(requester) => requester != connection.id,
        None => approval.request.run_id.is_none() || !connection.has("operator.write"),
    }
}

async fn find(ask: &Ask<'_>, id: &str, wanted: Option<&'static str>) -> Result<Approval, RpcError> {
    let (approvals, id) = (ask.gateway.service().engine().approvals().clone(), id.to_owned());
    let found = blocking(move || Ok(approvals.get(&id)?)).await?;
    found
        .filter(|a| wanted.is_none_or(|wanted| kind(&a.request) == wanted) && visible(ask.connection, a))
        .ok_or_else(not_found)
}

fn list(ask: &Ask<'_>, params: Option<Value>, wanted: &str) -> Result<Value, RpcError> {
    check(ask.method, params, NOTHING)?;
    let pending = ask.gateway.service().engine().approvals().pending();
    let fits = |a: &Approval| kind(&a.request) == wanted && visible(ask.connection, a);
    Ok(pending.iter().filter(|a| fits(a)).map(|a| requested(a)).collect())
}

async fn get(ask: &Ask<'_>, params: Option<Value>, wanted: Option<&'static str>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, ID)?;
    let approval = find(ask, text(&params, "id").unwrap_or_default(), wanted).await?;
    if wanted == Some("exec") {
        return Ok(requested(&approval));
    }
    Ok(json!({"approval": snapshot(&approval)}))
}

async fn resolve(ask: &Ask<'_>, params: Option<Value>, wanted: Option<&'static str>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, RESOLVE)?;
    let wanted = wanted.or(match text(&params, "kind") {
        Some("exec") => Some("exec"),
        Some("plugin") => Some("plugin"),
        Some(_) => return Err(not_found()),
        None => None,
    });
    let decision = match text(&params, "decision").unwrap_or_default() {
        "allow-once" => ApprovalDecision::AllowOnce,
        "allow-always" => ApprovalDecision::AllowAlways { until: grant_end(&params)? },
        "deny" => ApprovalDecision::Deny,
        _ => return Err(RpcError::invalid("invalid decision")),
    };
    let id = text(&params, "id").unwrap_or_default();
    let approval = find(ask, id, wanted).await?;
    let approvals = ask.gateway.service().engine().approvals();
    let by = ask.connection.caller("main", None);
    let was_open = approval.decision.is_none();
    let outcome = approvals.resolve(id, decision, &by).await;
    if ask.method == "approval.resolve" {
        let now = find(ask, id, wanted).await?;
        return match outcome {
            Ok(()) => Ok(json!({"applied": was_open, "approval": snapshot(&now)})),
            Err(_) if now.decision.is_some() => Ok(json!({"applied": false, "approval": snapshot(&now)})),
            Err(failure) => Err(plain(failure)),
        };
    }
    outcome.map(|()| json!({"ok": true})).map_err(plain)
}

/// In the real gateway's words: the reason alone, no code.
fn plain(failure: toolyard_protocol::Failure) -> RpcError {
    match failure.details.as_ref().and_then(|d| d.get("reason")).and_then(Value::as_str) {
        Some("APPROVAL_NOT_FOUND") => not_found(),
        Some(reason) => RpcError::invalid(failure.message.clone()).details(json!({"reason": reason})),
        None => from_failure(failure),
    }
}

/// When an allow-always ends; never, unless it was said.
fn grant_end(params: &Map<String, Value>) -> Result<Option<Timestamp>, RpcError> {
    let days = count(params, "grantExpiresInDays").map(|days| days.saturating_mul(86_400_000));
    let Some(ms) = count(params, "grantExpiresInMs").or(days) else { return Ok(None) };
    let far = || RpcError::invalid("grantExpiresIn lies too far ahead");
    let span = SignedDuration::from_millis(i64::try_from(ms).map_err(|_| far())?);
    Timestamp::now().checked_add(span).map(Some).map_err(|_| far())
}

async fn history(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, HISTORY)?;
    let approvals = ask.gateway.service().engine().approvals().clone();
    let all = blocking(move || Ok(approvals.history()?)).await?;
    let wanted = text(&params, "kind");
    let limit = count(&params, "limit").unwrap_or(50).clamp(1, MAX_PAGE) as usize;
    let skip: usize = match text(&params, "cursor") {
        Some(cursor) => cursor.parse().map_err(|_| RpcError::invalid("invalid cursor"))?,
        None => 0,
    };
    let fits: Vec<&Approval> = all.iter().filter(|a| wanted.is_none_or(|w| w == kind(&a.request))).collect();
    let items: Vec<Value> = fits.iter().skip(skip).take(limit).map(|a| snapshot(a)).collect();
    let mut page = json!({"items": items});
    if skip.saturating_add(limit) < fits.len() {
        page["nextCursor"] = (skip + limit).to_string().into();
    }
    Ok(page)
}

async fn wait(ask: &Ask<'_>, params: Option<Value>, wanted: &'static str) -> Result<Value, RpcError> {
    let params = check(ask.method, params, ID)?;
    let id = text(&params, "id").unwrap_or_default();
    find(ask, id, Some(wanted)).await?;
    let settled = ask.gateway.service().engine().approvals().settled(id).await?.ok_or_else(not_found)?;
    let mut value = decided(&settled);
    value["terminalReason"] = settled.terminal_reason.clone().map_or(Value::Null, Value::String);
    Ok(value)
}

/// `{id, decision, createdAtMs, expiresAtMs}`; the decision is null when nobody made one.
fn decided(approval: &Approval) -> Value {
    let by_somebody = approval.terminal_reason.as_deref() == Some("user");
    json!({
        "id": approval.request.id,
        "decision": approval.decision.as_ref().filter(|_| by_somebody).map(word),
        "createdAtMs": approval.request.created_at.as_millisecond(),
        "expiresAtMs": approval.request.expires_at.as_millisecond(),
    })
}

async fn request_plugin(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let mut params = check(ask.method, params, PLUGIN_REQUEST)?;
    let own = |name: &str| text(&params, name).unwrap_or_default().to_owned();
    let (title, description) = (own("title"), own("description"));
    for (name, value, most) in [("title", &title, 80), ("description", &description, 512)] {
        if value.chars().count() > most {
            return Err(RpcError::invalid(format!(
                "invalid {} params: at /{name}: must not have more than {most} characters",
                ask.method
            )));
        }
    }
    let severity = text(&params, "severity").unwrap_or("warning").to_owned();
    if !matches!(severity.as_str(), "info" | "warning" | "critical") {
        return Err(RpcError::invalid(format!(
            "invalid {} params: at /severity: must be equal to one of the allowed values",
            ask.method
        )));
    }
    params.insert("severity".to_owned(), severity.as_str().into());
    let subject = json!([params.get("pluginId"), params.get("toolName"), title, description]);
    let request = Question {
        id: format!("plugin:{}", uuid::Uuid::new_v4()),
        kind: "plugin",
        title,
        description,
        severity,
        tool: text(&params, "toolName").unwrap_or("plugin").to_owned(),
        subject,
    };
    put(ask, request, params).await
}

async fn request_exec(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let mut params = check(ask.method, params, EXEC_REQUEST)?;
    let command = match (text(&params, "command"), params.get("commandArgv").and_then(Value::as_array)) {
        (Some(command), _) => command.to_owned(),
        (None, Some(argv)) if !argv.is_empty() => argv.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        _ => {
            return Err(RpcError::invalid(
                "invalid exec.approval.request params: must have required property 'command'",
            ));
        }
    };
    params.insert("command".to_owned(), command.as_str().into());
    let subject =
        json!([command, params.get("commandArgv"), params.get("cwd"), params.get("host"), params.get("nodeId")]);
    let request = Question {
        id: text(&params, "id").map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned),
        kind: "exec",
        title: "Run a command".to_owned(),
        description: command.chars().take(512).collect(),
        severity: "warning".to_owned(),
        tool: "exec".to_owned(),
        subject,
    };
    put(ask, request, params).await
}

struct Question {
    id: String,
    kind: &'static str,
    title: String,
    description: String,
    severity: String,
    tool: String,
    /// What an allow-always would cover: this and nothing else.
    subject: Value,
}

/// Puts a client's question and waits for its answer, in one response or two.
async fn put(ask: &Ask<'_>, question: Question, mut params: Map<String, Value>) -> Result<Value, RpcError> {
    let wait = count(&params, "timeoutMs").unwrap_or(DEFAULT_WAIT_MS).clamp(1, MAX_WAIT_MS);
    let two_phase = flag(&params, "twoPhase");
    for name in ["timeoutMs", "twoPhase", "id", "env"] {
        params.remove(name);
    }
    let created_at = ask.gateway.service().engine().clock().now();
    let expires_at = created_at.checked_add(Duration::from_millis(wait)).unwrap_or(created_at);
    let agent = text(&params, "agentId").unwrap_or("main").to_owned();
    let session = text(&params, "sessionKey").map(str::to_owned);
    let request = ApprovalRequest {
        id: question.id.clone(),
        kind: question.kind.to_owned(),
        title: question.title,
        description: question.description,
        severity: question.severity,
        tool: question.tool,
        args_hash: canonical::hash(&question.subject).unwrap_or_default(),
        call_id: None,
        run_id: None,
        agent,
        session,
        rule: format!("{}.approval.request", question.kind),
        extra: Map::from_iter([(REQUEST.to_owned(), Value::Object(params))]),
        created_at,
        expires_at,
    };
    let (created, expires) = (created_at.as_millisecond(), expires_at.as_millisecond());
    let last = |decision: Option<&str>| json!({"id": question.id, "decision": decision, "createdAtMs": created, "expiresAtMs": expires});
    let approvals = ask.gateway.service().engine().approvals();
    let waiting = match approvals.open(request, route(ask.gateway, question.kind)).await.map_err(from_failure)? {
        Opened::Answered(Answer::Allowed { .. }) => return Ok(last(Some("allow-always"))),
        Opened::Answered(_) => return Ok(last(None)),
        Opened::Waiting(waiting) => waiting,
    };
    if two_phase {
        let accepted = json!({
            "status": "accepted", "id": question.id, "deliveryRoute": "approval-client",
            "createdAtMs": created, "expiresAtMs": expires,
        });
        connection::answer(ask.connection, ask.id, &Ok(accepted));
    }
    approvals.wait(waiting, &CancellationToken::new()).await.map_err(from_failure)?;
    let id = question.id.clone();
    let approvals = approvals.clone();
    let settled = blocking(move || Ok(approvals.get(&id)?)).await?;
    Ok(settled.map_or_else(|| last(None), |approval| decided(&approval)))
}

/// A client's own question may be shown to itself: it asks on behalf of something else.
fn route(gateway: &Gateway, kind: &str) -> Route {
    if gateway.approver_beside(None, kind) { Route::AnyApprover } else { Route::None }
}
