//! A client's description of its question: which fields it may have, and which of them are stored with the question.

use crate::{
    AnyJson, Object,
    params::{Count, Text},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::approvals::ApprovalRequest;

/// The key under which a client's description is stored with its question.
pub(super) const REQUEST: &str = "request";

/// The possible answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DecisionWord {
    /// This call only.
    AllowOnce,
    /// This call and others like it.
    AllowAlways,
    /// The call is denied.
    Deny,
}

impl DecisionWord {
    pub(super) const ALL: [Self; 3] = [Self::AllowOnce, Self::AllowAlways, Self::Deny];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow-once",
            Self::AllowAlways => "allow-always",
            Self::Deny => "deny",
        }
    }
}

/// The severity of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// For information.
    Info,
    /// The call should be checked.
    Warning,
    /// The call's effects are hard to undo.
    Critical,
}

impl Severity {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// A question that a plugin's client asks.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginQuestion {
    #[schemars(length(max = 80))]
    pub(super) title: Text,
    #[schemars(length(max = 512))]
    pub(super) description: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub(super) plugin_id: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    detail: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub(super) severity: Option<Severity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    scope: Option<Object>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub(super) tool_name: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    tool_call_id: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), extend("nullable" = true))]
    pub(super) allowed_decisions: Option<Vec<DecisionWord>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub(super) agent_id: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub(super) session_key: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    approval_reviewer_device_ids: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    turn_source_channel: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    turn_source_to: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    turn_source_account_id: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_source_thread_id: Option<AnyJson>,
    #[serde(skip_serializing)]
    pub(super) timeout_ms: Option<Count>,
    #[serde(default, skip_serializing)]
    pub(super) two_phase: bool,
}

/// The one decision that a command's question can rule out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unavailable {
    /// Every command needs its own answer.
    AllowAlways,
}

/// A question whether a command may run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecQuestion {
    #[serde(skip_serializing)]
    #[schemars(length(max = 128))]
    pub(super) id: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub(super) command: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) command_argv: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) system_run_plan: Option<Object>,
    /// Only the names of the environment's variables are kept, because their values may be secret.
    #[serde(skip_serializing)]
    pub(super) env: Option<Object>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub(super) cwd: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub(super) node_id: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub(super) host: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    security: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub(super) ask: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    warning_text: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    scope: Option<Object>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), extend("nullable" = true))]
    pub(super) unavailable_decisions: Option<Vec<Unavailable>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command_spans: Option<AnyJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub(super) agent_id: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    resolved_path: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub(super) session_key: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    session_id: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    run_id: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    tool_call_id: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    turn_source_channel: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    turn_source_to: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    turn_source_account_id: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_source_thread_id: Option<AnyJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    approval_reviewer_device_ids: Option<Vec<String>>,
    #[serde(skip_serializing)]
    pub(super) require_delivery_route: Option<bool>,
    /// Accepted and ignored: questions are always delivered to approval clients.
    #[serde(default, skip_serializing, rename = "deliverToApprovalClientsOnly")]
    _deliver_to_approval_clients_only: bool,
    #[serde(skip_serializing)]
    pub(super) timeout_ms: Option<Count>,
    #[serde(default, skip_serializing)]
    pub(super) two_phase: bool,
    /// Names of the environment's variables.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub(super) env_keys: Option<Vec<String>>,
}

/// The stored part of a client's description, for every kind of question.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct StoredQuestion {
    pub(super) plugin_id: Option<String>,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) severity: Option<String>,
    pub(super) tool_name: Option<String>,
    pub(super) allowed_decisions: Option<Vec<DecisionWord>>,
    pub(super) approval_reviewer_device_ids: Option<Vec<String>>,
    pub(super) command: Option<String>,
    pub(super) command_argv: Option<Vec<String>>,
    pub(super) system_run_plan: Option<Object>,
    pub(super) env_keys: Option<Vec<String>>,
    pub(super) cwd: Option<String>,
    pub(super) node_id: Option<String>,
    pub(super) host: Option<String>,
    pub(super) security: Option<String>,
    pub(super) ask: Option<String>,
    pub(super) warning_text: Option<String>,
    pub(super) scope: Option<Object>,
    pub(super) unavailable_decisions: Option<Vec<Unavailable>>,
    pub(super) command_spans: Option<AnyJson>,
    pub(super) agent_id: Option<String>,
    pub(super) resolved_path: Option<String>,
    pub(super) session_key: Option<String>,
    pub(super) session_id: Option<String>,
    pub(super) run_id: Option<String>,
    pub(super) tool_call_id: Option<String>,
    pub(super) turn_source_channel: Option<String>,
    pub(super) turn_source_to: Option<String>,
    pub(super) turn_source_account_id: Option<String>,
    pub(super) turn_source_thread_id: Option<AnyJson>,
}

impl StoredQuestion {
    /// The client's description that is stored with a question; `None` if no client asked it.
    pub(super) fn of(request: &ApprovalRequest) -> Option<Self> {
        let kept = request.extra.get(REQUEST)?;
        // A description that an older version stored and this one cannot read is shown as empty.
        Some(Self::deserialize(kept).unwrap_or_default())
    }
}
