//! The content of `run.json`: the plan, the policy and the approval of a run.

use crate::{ActionPlan, ConfirmationId, PolicySnapshot, RunId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Waits for a person's approval.
    Pending,
    /// The run is in progress.
    Running,
    /// The run waits until a person decides about a call whose outcome is unknown.
    Paused,
    /// Every step ended as the plan allows.
    Finished,
    /// A step failed, and the plan stops on errors.
    Failed,
    /// Stopped by a person, a deadline or a lost caller.
    Cancelled,
}

impl RunStatus {
    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
    /// Whether nothing more will happen.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::Cancelled)
    }
}

/// What a person decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConfirmationDecision {
    /// The run or call may proceed.
    Approved,
    /// The run or call may not proceed.
    Denied,
    /// The plan was changed instead; the change needs its own approval.
    Edited,
}

/// Who gave an approval, as far as Toolyard can vouch for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovedVia {
    /// Somebody who showed Toolyard a credential with the right to approve.
    #[default]
    Operator,
    /// The user of the client that made the call, as reported by that client. Toolyard cannot verify it.
    ClientUser,
}

impl ApprovedVia {
    /// Whether Toolyard itself checked the right to approve.
    pub fn is_operator(&self) -> bool {
        *self == Self::Operator
    }
}

/// A person's approval of one run, bound to exactly what they were shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Confirmation {
    /// Travels on every call made under it.
    pub confirmation_id: ConfirmationId,
    /// Hash of the plan that was shown.
    pub plan_hash: String,
    /// Hash of the policy in force.
    pub policy_hash: String,
    /// The hash of the dry run that was shown, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview_hash: Option<String>,
    /// What was decided.
    pub decision: ConfirmationDecision,
    /// The name of the person or device that decided.
    pub by: String,
    /// How that is known; absent means that an operator's credential was checked.
    #[serde(default, skip_serializing_if = "ApprovedVia::is_operator")]
    pub via: ApprovedVia,
    /// When the decision was made.
    pub at: Timestamp,
    /// Until when it may be used to start the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// `run`: one approval, one run. `call`: the approval of one call inside a run.
    pub scope: String,
    /// The door by which the answer came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<String>,
    /// The question that was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// The hash of everything that the person was shown: arguments or plan, prediction, policy and rule. Absent where a
    /// grant or the person's own act stands for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// The grant that covers it, or that came with the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_id: Option<String>,
}

/// The end of a run's record chain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogHead {
    /// Number of the last record.
    pub seq: u64,
    /// Chain hash up to and including it, in hex.
    pub hash: String,
}

/// The content of `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunManifest {
    /// The id of the run.
    pub run_id: RunId,
    /// Hash of the plan; a direct call has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_hash: Option<String>,
    /// The plan as it was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<ActionPlan>,
    /// The policy in force.
    pub policy: PolicySnapshot,
    /// Hash of the policy.
    pub policy_hash: String,
    /// Version and fingerprint of the catalog.
    pub registry_version: String,
    /// Version of Toolyard.
    pub executor_version: String,
    /// Who asked: door, principal, session, agent.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub caller: Map<String, Value>,
    /// Answers to the plan's context requests.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub context: Map<String, Value>,
    /// When it began; `$run.startedAt` in references.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The status of the run.
    pub status: RunStatus,
    /// The approval it was made under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<Confirmation>,
    /// The run from which this one was forked, or which it undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// The run this one replays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_of: Option<RunId>,
    /// The end of its record chain.
    pub head: LogHead,
}
