//! Questions and answers in the formats of lists, events and snapshots.

use super::question::{DecisionWord, StoredQuestion, Unavailable};
use crate::{AnyJson, Object};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use toolyard_engine::approvals::{Approval, ApprovalDecision, ApprovalRequest};

/// The kind of a question, as clients know it.
pub(crate) fn kind(request: &ApprovalRequest) -> &'static str {
    if request.kind == "exec" { "exec" } else { "plugin" }
}

/// The answers that a question offers. Denial is always one of them.
pub(super) fn allowed(request: &ApprovalRequest) -> Vec<DecisionWord> {
    let asked = StoredQuestion::of(request).unwrap_or_default();
    let is_exec = kind(request) == "exec";
    let is_taken = |word: &DecisionWord| match (word, is_exec) {
        (DecisionWord::Deny, _) => true,
        (DecisionWord::AllowAlways, true) => {
            let always_asked = asked.ask.as_deref() == Some("always");
            !always_asked && asked.unavailable_decisions.as_ref().is_none_or(|ruled_out| ruled_out.is_empty())
        }
        (_, true) => true,
        (word, false) => asked.allowed_decisions.as_ref().is_none_or(|allowed| allowed.contains(word)),
    };
    DecisionWord::ALL.into_iter().filter(is_taken).collect()
}

/// A plugin's question as events and lists show it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PluginShown {
    plugin_id: Option<String>,
    title: Option<String>,
    description: Option<String>,
    scope: Option<Object>,
    detail: Option<String>,
    severity: Option<String>,
    tool_name: Option<String>,
    tool_call_id: Option<String>,
    agent_id: Option<String>,
    session_key: Option<String>,
    run_id: Option<String>,
    turn_source_channel: Option<String>,
    turn_source_to: Option<String>,
    turn_source_account_id: Option<String>,
    turn_source_thread_id: Option<AnyJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_decisions: Option<Vec<DecisionWord>>,
}

/// A command's question as events and lists show it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ExecShown {
    command: Option<String>,
    system_run_plan: Option<Object>,
    cwd: Option<String>,
    node_id: Option<String>,
    host: Option<String>,
    security: Option<String>,
    ask: Option<String>,
    warning_text: Option<String>,
    scope: Option<Object>,
    command_spans: Option<AnyJson>,
    allowed_decisions: Vec<DecisionWord>,
    agent_id: Option<String>,
    resolved_path: Option<String>,
    session_key: Option<String>,
    session_id: Option<String>,
    run_id: Option<String>,
    tool_call_id: Option<String>,
    turn_source_channel: Option<String>,
    turn_source_to: Option<String>,
    turn_source_account_id: Option<String>,
    turn_source_thread_id: Option<AnyJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command_argv: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    env_keys: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unavailable_decisions: Option<Vec<Unavailable>>,
}

/// The question itself, as it was asked.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
enum ShownQuestion {
    Plugin(Box<PluginShown>),
    Exec(Box<ExecShown>),
}

impl From<&ApprovalRequest> for ShownQuestion {
    fn from(request: &ApprovalRequest) -> Self {
        let asked = StoredQuestion::of(request);
        match kind(request) {
            "exec" => Self::Exec(Box::new(ExecShown::new(request, asked.unwrap_or_default()))),
            _ => Self::Plugin(Box::new(
                asked.map_or_else(|| PluginShown::of_engine(request), |a| PluginShown::new(request, a)),
            )),
        }
    }
}

impl PluginShown {
    /// A question that a client asked: its own fields, without defaults for missing ones.
    fn new(request: &ApprovalRequest, asked: StoredQuestion) -> Self {
        let allowed_decisions = asked.allowed_decisions.is_some().then(|| allowed(request));
        Self {
            plugin_id: asked.plugin_id,
            title: asked.title,
            description: asked.description,
            scope: asked.scope,
            detail: asked.detail,
            severity: asked.severity,
            tool_name: asked.tool_name,
            tool_call_id: asked.tool_call_id,
            agent_id: asked.agent_id,
            session_key: asked.session_key,
            run_id: asked.run_id,
            turn_source_channel: asked.turn_source_channel,
            turn_source_to: asked.turn_source_to,
            turn_source_account_id: asked.turn_source_account_id,
            turn_source_thread_id: asked.turn_source_thread_id,
            allowed_decisions,
        }
    }

    /// A question of policy or of a hook.
    fn of_engine(request: &ApprovalRequest) -> Self {
        Self {
            plugin_id: None,
            title: Some(request.title.clone()),
            description: Some(request.description.clone()),
            scope: None,
            detail: None,
            severity: Some(request.severity.clone()),
            tool_name: Some(request.tool.clone()),
            tool_call_id: request.call_id.map(|id| id.to_string()),
            agent_id: Some(request.agent.clone()),
            session_key: request.session.clone(),
            run_id: request.run_id.map(|id| id.to_string()),
            turn_source_channel: None,
            turn_source_to: None,
            turn_source_account_id: None,
            turn_source_thread_id: None,
            allowed_decisions: None,
        }
    }
}

impl ExecShown {
    fn new(request: &ApprovalRequest, asked: StoredQuestion) -> Self {
        Self {
            command: asked.command,
            system_run_plan: asked.system_run_plan,
            cwd: asked.cwd,
            node_id: asked.node_id,
            host: asked.host,
            security: asked.security,
            ask: asked.ask,
            warning_text: asked.warning_text,
            scope: asked.scope,
            command_spans: asked.command_spans,
            allowed_decisions: allowed(request),
            agent_id: asked.agent_id,
            resolved_path: asked.resolved_path,
            session_key: asked.session_key,
            session_id: asked.session_id,
            run_id: asked.run_id,
            tool_call_id: asked.tool_call_id,
            turn_source_channel: asked.turn_source_channel,
            turn_source_to: asked.turn_source_to,
            turn_source_account_id: asked.turn_source_account_id,
            turn_source_thread_id: asked.turn_source_thread_id,
            command_argv: asked.command_argv,
            env_keys: asked.env_keys,
            unavailable_decisions: asked.unavailable_decisions,
        }
    }
}

/// A question as lists and events show it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Requested {
    approval_kind: &'static str,
    id: String,
    request: ShownQuestion,
    created_at_ms: i64,
    expires_at_ms: i64,
}

impl From<&Approval> for Requested {
    fn from(approval: &Approval) -> Self {
        let request = &approval.request;
        Self {
            approval_kind: kind(request),
            id: request.id.clone(),
            request: request.into(),
            created_at_ms: request.created_at.as_millisecond(),
            expires_at_ms: request.expires_at.as_millisecond(),
        }
    }
}

/// An answer as events show it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resolved {
    id: String,
    decision: Option<DecisionWord>,
    resolved_by: Option<String>,
    ts: Option<i64>,
    request: ShownQuestion,
}

impl From<&Approval> for Resolved {
    fn from(approval: &Approval) -> Self {
        Self {
            id: approval.request.id.clone(),
            decision: approval.decision.as_ref().map(word),
            resolved_by: approval.resolved_with.as_ref().or(approval.resolved_by.as_ref()).cloned(),
            ts: approval.resolved_at.map(|at| at.as_millisecond()),
            request: (&approval.request).into(),
        }
    }
}

/// What was decided; the decision is null when nobody made one.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    pub(super) id: String,
    pub(super) decision: Option<DecisionWord>,
    pub(super) created_at_ms: i64,
    pub(super) expires_at_ms: i64,
}

impl From<&Approval> for Decided {
    fn from(approval: &Approval) -> Self {
        let decision = approval.decision.as_ref().filter(|_| approval.resolved_by.is_some());
        Self {
            id: approval.request.id.clone(),
            decision: decision.map(word),
            created_at_ms: approval.request.created_at.as_millisecond(),
            expires_at_ms: approval.request.expires_at.as_millisecond(),
        }
    }
}

/// A question about a command, with what an approver needs to answer it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandQuestion {
    id: String,
    command_text: Option<String>,
    command_preview: Option<String>,
    allowed_decisions: Vec<DecisionWord>,
    host: Option<String>,
    node_id: Option<String>,
    agent_id: Option<String>,
    expires_at_ms: i64,
}

impl From<&ApprovalRequest> for CommandQuestion {
    fn from(request: &ApprovalRequest) -> Self {
        let asked = StoredQuestion::of(request).unwrap_or_default();
        Self {
            id: request.id.clone(),
            command_text: asked.command,
            command_preview: None,
            allowed_decisions: allowed(request),
            host: asked.host,
            node_id: asked.node_id,
            agent_id: asked.agent_id,
            expires_at_ms: request.expires_at.as_millisecond(),
        }
    }
}

pub(super) fn word(decision: &ApprovalDecision) -> DecisionWord {
    match decision {
        ApprovalDecision::AllowOnce => DecisionWord::AllowOnce,
        ApprovalDecision::AllowAlways { .. } => DecisionWord::AllowAlways,
        ApprovalDecision::Deny => DecisionWord::Deny,
    }
}

/// A question of any kind, with its outcome.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Snapshot {
    id: String,
    status: &'static str,
    presentation: Presentation,
    url_path: String,
    created_at_ms: i64,
    expires_at_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_at_ms: Option<Option<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<QuestionSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<DecisionWord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolver: Option<Resolver>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", rename_all_fields = "camelCase")]
enum Presentation {
    Exec {
        command_text: String,
        agent_id: String,
        allowed_decisions: Vec<DecisionWord>,
    },
    Plugin {
        title: String,
        description: String,
        severity: String,
        plugin_id: Option<String>,
        tool_name: Option<String>,
        agent_id: String,
        allowed_decisions: Vec<DecisionWord>,
    },
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct QuestionSource {
    agent_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_key: Option<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct Resolver {
    kind: &'static str,
    id: String,
}

impl Presentation {
    fn of(request: &ApprovalRequest) -> Self {
        let asked = StoredQuestion::of(request).unwrap_or_default();
        let (agent_id, allowed_decisions) = (request.agent.clone(), allowed(request));
        match kind(request) {
            "exec" => {
                let command_text = asked.command.unwrap_or_else(|| request.description.clone());
                Self::Exec { command_text, agent_id, allowed_decisions }
            }
            _ => Self::Plugin {
                title: request.title.clone(),
                description: request.description.clone(),
                severity: request.severity.clone(),
                plugin_id: asked.plugin_id,
                tool_name: request.call_id.map(|_| request.tool.clone()),
                agent_id,
                allowed_decisions,
            },
        }
    }
}

impl Snapshot {
    pub(super) fn of(approval: &Approval, now: Timestamp) -> Self {
        let request = &approval.request;
        let snapshot = Self {
            id: request.id.clone(),
            status: "pending",
            presentation: Presentation::of(request),
            url_path: format!("/approve/{}", request.id.replace(':', "%3A")),
            created_at_ms: request.created_at.as_millisecond(),
            expires_at_ms: request.expires_at.as_millisecond(),
            reason: None,
            resolved_at_ms: None,
            source: None,
            decision: None,
            resolver: None,
        };
        let Some(decision) = &approval.decision else {
            if request.expires_at >= now {
                return snapshot;
            }
            // The process that asked has ended and the question has expired, so it cannot be answered any more.
            let resolved_at_ms = Some(Some(request.expires_at.as_millisecond()));
            return Self { status: "expired", reason: Some("timeout"), resolved_at_ms, ..snapshot };
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
        let resolver = approval.resolved_by.as_ref().map(|by| match by.strip_prefix("device:") {
            Some(device) => Resolver { kind: "device", id: device.to_owned() },
            None => Resolver { kind: "runtime", id: approval.resolved_with.as_ref().unwrap_or(by).clone() },
        });
        Self {
            status,
            reason: Some(reason),
            resolved_at_ms: Some(approval.resolved_at.map(|at| at.as_millisecond())),
            source: Some(QuestionSource { agent_id: request.agent.clone(), session_key: request.session.clone() }),
            decision: matches!(status, "allowed" | "denied").then(|| word(decision)),
            resolver,
            ..snapshot
        }
    }
}
