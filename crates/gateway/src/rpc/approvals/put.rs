//! Questions that clients put themselves: `plugin.approval.request` and `exec.approval.request`, answered in one
//! response or two.

use super::{Asker, REQUEST, RpcError, show};
use crate::{
    rpc::{Ask, from_failure, promptly},
    ws::{
        connection,
        params::{Field, Kind, check, count, flag, text},
    },
};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use toolyard_engine::approvals::{Answer, ApprovalRequest, MAX_WAIT_MS, Opened, REQUESTER, Route};
use toolyard_protocol::canonical;

/// A question waits this long unless it says otherwise.
const DEFAULT_WAIT_MS: u64 = 120_000;
/// Reviewer devices one question may name.
const MAX_REVIEWERS: usize = 64;

const PLUGIN_REQUEST: &[Field] = &[
    Field::required("title", Kind::TextUpTo(320)),
    Field::required("description", Kind::TextUpTo(2048)),
    Field::optional("pluginId", Kind::TextOrNull),
    Field::optional("detail", Kind::TextOrNull),
    Field::optional("severity", Kind::OneOfOrNull(&["info", "warning", "critical"])),
    Field::optional("scope", Kind::ObjectOrNull),
    Field::optional("toolName", Kind::TextOrNull),
    Field::optional("toolCallId", Kind::TextOrNull),
    Field::optional("allowedDecisions", Kind::WordsOrNull(&show::DECISIONS)),
    Field::optional("agentId", Kind::TextOrNull),
    Field::optional("sessionKey", Kind::TextOrNull),
    Field::optional("approvalReviewerDeviceIds", Kind::Texts),
    Field::optional("turnSourceChannel", Kind::TextOrNull),
    Field::optional("turnSourceTo", Kind::TextOrNull),
    Field::optional("turnSourceAccountId", Kind::TextOrNull),
    Field::optional("turnSourceThreadId", Kind::Any),
    Field::optional("timeoutMs", Kind::Count),
    Field::optional("twoPhase", Kind::Flag),
];

const EXEC_REQUEST: &[Field] = &[
    Field::optional("id", Kind::TextUpTo(128)),
    Field::optional("command", Kind::TextUpTo(64 << 10)),
    Field::optional("commandArgv", Kind::Texts),
    Field::optional("systemRunPlan", Kind::Object),
    Field::optional("env", Kind::Object),
    Field::optional("cwd", Kind::TextOrNull),
    Field::optional("nodeId", Kind::TextOrNull),
    Field::optional("host", Kind::TextOrNull),
    Field::optional("security", Kind::TextOrNull),
    Field::optional("ask", Kind::TextOrNull),
    Field::optional("warningText", Kind::TextOrNull),
    Field::optional("scope", Kind::ObjectOrNull),
    Field::optional("unavailableDecisions", Kind::WordsOrNull(&["allow-always"])),
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
    Field::optional("approvalReviewerDeviceIds", Kind::Texts),
    Field::optional("requireDeliveryRoute", Kind::Flag),
    // There is no other way to deliver one here.
    Field::optional("deliverToApprovalClientsOnly", Kind::Flag),
    Field::optional("timeoutMs", Kind::Count),
    Field::optional("twoPhase", Kind::Flag),
];

pub(super) async fn plugin(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, PLUGIN_REQUEST)?;
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
    let subject =
        json!([params.get("pluginId"), params.get("toolName"), title, description, params.get("allowedDecisions")]);
    let question = Question {
        id: format!("plugin:{}", uuid::Uuid::new_v4()),
        kind: "plugin",
        title,
        description,
        severity: text(&params, "severity").unwrap_or("warning").to_owned(),
        tool: text(&params, "toolName").unwrap_or("plugin").to_owned(),
        subject,
    };
    put(ask, question, params).await
}

pub(super) async fn exec(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let mut params = check(ask.method, params, EXEC_REQUEST)?;
    let command = match (text(&params, "command"), params.get("commandArgv").and_then(Value::as_array)) {
        (Some(command), _) => command.to_owned(),
        (None, Some(argv)) if !argv.is_empty() => argv.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    };
    let refuse = |message: &str| Err(RpcError::invalid(message));
    if text(&params, "host") == Some("node") {
        if text(&params, "nodeId").is_none() {
            return refuse("nodeId is required for host=node");
        }
        if !params.contains_key("systemRunPlan") {
            return refuse("systemRunPlan is required for host=node");
        }
        if params.get("commandArgv").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            return refuse("commandArgv is required for host=node");
        }
    }
    if command.trim().is_empty() {
        return refuse("command is required");
    }
    if text(&params, "id").is_some_and(|id| id.starts_with("plugin:")) {
        return refuse("approval ids starting with plugin: are reserved");
    }
    // Of the environment only the names are kept: its values are nobody else's business.
    if let Some(Value::Object(env)) = params.remove("env") {
        let mut names: Vec<String> = env.into_iter().map(|(name, _)| name).collect();
        names.sort();
        params.insert("envKeys".to_owned(), names.into());
    }
    params.insert("command".to_owned(), command.as_str().into());
    let subject = json!([
        command,
        params.get("commandArgv"),
        params.get("cwd"),
        params.get("host"),
        params.get("nodeId"),
        params.get("envKeys"),
        params.get("ask"),
        params.get("unavailableDecisions"),
    ]);
    let question = Question {
        id: text(&params, "id").map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned),
        kind: "exec",
        title: "Run a command".to_owned(),
        description: command.chars().take(512).collect(),
        severity: "warning".to_owned(),
        tool: "exec".to_owned(),
        subject,
    };
    put(ask, question, params).await
}

struct Question {
    id: String,
    kind: &'static str,
    title: String,
    description: String,
    severity: String,
    tool: String,
    /// What an allow-always would cover: this and nothing else. The answers it takes are part of it, so that a question
    /// that wants to be asked each time is not answered by an allow-always to one that did not.
    subject: Value,
}

/// Puts a client's question and waits for its answer, in one response or two.
async fn put(ask: &Ask<'_>, question: Question, mut params: Map<String, Value>) -> Result<Value, RpcError> {
    let reviewers = params.get("approvalReviewerDeviceIds").and_then(Value::as_array).map_or(0, Vec::len);
    if reviewers > MAX_REVIEWERS {
        return Err(RpcError::invalid(format!(
            "invalid {} params: at /approvalReviewerDeviceIds: must not have more than {MAX_REVIEWERS} items",
            ask.method
        )));
    }
    let wait = count(&params, "timeoutMs").unwrap_or(DEFAULT_WAIT_MS).clamp(1, MAX_WAIT_MS);
    let two_phase = flag(&params, "twoPhase");
    // Without a route a question ends at once, unless its asker would rather wait for one to appear.
    let needs_route = params.get("requireDeliveryRoute").and_then(Value::as_bool).unwrap_or(true);
    for name in ["timeoutMs", "twoPhase", "id", "requireDeliveryRoute", "deliverToApprovalClientsOnly"] {
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
        extra: Map::from_iter([
            (REQUEST.to_owned(), Value::Object(params)),
            (REQUESTER.to_owned(), Asker::note(ask.connection).into()),
        ]),
        created_at,
        expires_at,
    };
    let (created, expires) = (created_at.as_millisecond(), expires_at.as_millisecond());
    let last = |decision: Option<&str>| json!({"id": question.id, "decision": decision, "createdAtMs": created, "expiresAtMs": expires});
    let is_heard = Asker::of(&request).is_heard(ask.gateway, question.kind);
    let route = match (is_heard, needs_route) {
        (true, _) => Route::AnyApprover,
        (false, true) => Route::None,
        (false, false) => Route::Later,
    };
    let approvals = ask.gateway.service().engine().approvals();
    let waiting = match approvals.open(request, route).await.map_err(from_failure)? {
        Opened::Answered(Answer::Allowed { .. }) => return Ok(last(Some("allow-always"))),
        Opened::Answered(_) => return Ok(last(None)),
        Opened::Waiting(waiting) => waiting,
    };
    if two_phase {
        let accepted = json!({
            "status": "accepted", "id": question.id, "deliveryRoute": if is_heard { "approval-client" } else { "none" },
            "createdAtMs": created, "expiresAtMs": expires,
        });
        connection::answer(ask.connection, ask.id, &Ok(accepted.into()));
    }
    approvals.wait(waiting, &CancellationToken::new()).await.map_err(from_failure)?;
    let id = question.id.clone();
    let approvals = approvals.clone();
    let settled = promptly(move || Ok(approvals.get(&id)?)).await?;
    Ok(settled.map_or_else(|| last(None), |approval| show::decided(&approval)))
}
