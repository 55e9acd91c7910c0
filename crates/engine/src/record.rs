//! The record of a run: the payload of each frame, as compact JSON.
//!
//! A frame contains only what cannot be derived. The policy, versions and plan are stored once, in `RunStarted`; a
//! result refers to its call for step, tool and attempt; events are derived from the records (see [`crate::view`]).
//! This keeps a step near half a kilobyte, and an event can never disagree with the call that it reports.

use crate::{Intent, ledger::LedgerPoint, secrets::SecretArgument, store::RunKind};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use toolyard_protocol::{
    ActionPlan, CallId, Confirmation, ConfirmationId, Effects, EventLevel, Failure, Iteration, PolicySnapshot,
    ResultStatus, RiskLevel, RunId, RunStatus, StepId, ToolName,
};

/// Arguments and data larger than this (as JSON) are kept as blobs, so that a record stays small.
pub const INLINE_BYTES: usize = 64 << 10;

/// The kind of a frame's payload. The numbers are stored on disk and must never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// The payload is a [`RunStarted`].
    RunStarted = 1,
    /// The payload is a [`ConfirmationRequested`].
    ConfirmationRequested = 2,
    /// The payload is a [`Confirmed`].
    Confirmed = 3,
    /// The payload is a [`CallRecord`].
    Call = 4,
    /// [`ResultRecord`] of a recorded call.
    Result = 5,
    /// [`RefusedRecord`]: a result without a dispatched call.
    Refused = 6,
    /// The payload is a [`RetryRecord`].
    Retry = 7,
    /// The payload is a [`NoteRecord`].
    Note = 8,
    /// The payload is a [`CancelRecord`].
    Cancel = 9,
    /// The payload is a [`PausedRecord`].
    Paused = 10,
    /// The payload is a [`SettledRecord`].
    Settled = 11,
    /// The payload is a [`FinishedRecord`].
    Finished = 12,
    /// The payload is a [`crate::chain::Checkpoint`].
    Checkpoint = 13,
}

impl RecordKind {
    /// Reads the number on disk.
    pub fn from_u8(kind: u8) -> Option<Self> {
        use RecordKind::*;
        [
            RunStarted,
            ConfirmationRequested,
            Confirmed,
            Call,
            Result,
            Refused,
            Retry,
            Note,
            Cancel,
            Paused,
            Settled,
            Finished,
            Checkpoint,
        ]
        .into_iter()
        .find(|k| *k as u8 == kind)
    }
}

/// A record of any kind.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // short-lived; boxing would cost an allocation on the hot path
pub enum Record {
    /// A run began.
    RunStarted(RunStarted),
    /// A person is asked.
    ConfirmationRequested(ConfirmationRequested),
    /// A person answered.
    Confirmed(Confirmed),
    /// A call, durable before its effect.
    Call(CallRecord),
    /// The outcome of a recorded call.
    Result(ResultRecord),
    /// An outcome without a dispatched call: refused, invalid, skipped.
    Refused(RefusedRecord),
    /// Another try, and when.
    Retry(RetryRecord),
    /// Information that changes nothing.
    Note(NoteRecord),
    /// The run was asked to stop.
    Cancel(CancelRecord),
    /// The run waits for a person to settle a call.
    Paused(PausedRecord),
    /// A person decided about a call whose outcome was unknown.
    Settled(SettledRecord),
    /// The run ended.
    Finished(FinishedRecord),
    /// A signature over the chain so far.
    Checkpoint(crate::chain::Checkpoint),
}

/// The facts that hold for the whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStarted {
    /// The run.
    pub run_id: RunId,
    /// `plan` or `call`.
    pub kind: RunKind,
    /// The plan; a direct call has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<ActionPlan>,
    /// The hash of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_hash: Option<String>,
    /// The policy in force, by content: `policyHash` names it, the blob store holds it.
    pub policy_hash: String,
    /// The policy, unless it is in the blob store (single calls share one copy).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicySnapshot>,
    /// SHA-256 of the policy in the blob store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_blob: Option<String>,
    /// The version of the catalog.
    pub registry_version: String,
    /// The version of Toolyard.
    pub executor_version: String,
    /// The version of the planner that wrote the plan, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planner_version: Option<String>,
    /// The caller.
    pub caller: Map<String, Value>,
    /// Answers to context requests.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub context: Map<String, Value>,
    /// When the run started.
    pub started_at: Timestamp,
    /// Forked from, or taking back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// Steps whose results come from the parent run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imported_steps: Vec<StepId>,
    /// The hash of the preview that was shown, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview_hash: Option<String>,
    /// The tool as it was asked for; a plan has its goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where the ledger stood; absent in records of earlier versions and while the ledger is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerPoint>,
}

/// A person is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfirmationRequested {
    /// What is asked.
    pub message: String,
    /// When it was asked.
    pub at: Timestamp,
    /// The question; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// The hash of what the question shows; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
}

/// A person answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Confirmed(pub Confirmation);

/// A call about to be dispatched. Short keys: there is one of these for every step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// The id of the call.
    #[serde(rename = "c")]
    pub call_id: CallId,
    /// The step.
    #[serde(rename = "s")]
    pub step_id: StepId,
    /// The tool.
    #[serde(rename = "t")]
    pub tool: ToolName,
    /// The number of the attempt.
    #[serde(rename = "n")]
    pub attempt: u32,
    /// Arguments, unless they are in the blob store.
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Arc<Map<String, Value>>>,
    /// SHA-256 of the arguments' JSON in the blob store.
    #[serde(rename = "ab", default, skip_serializing_if = "Option::is_none")]
    pub args_blob: Option<String>,
    /// `argsHash` without its `sha256:` prefix: what a replay must reach again.
    #[serde(rename = "h")]
    pub args_hash: String,
    /// The hash of the arguments as the plan asked for them, when a hook rewrote them.
    #[serde(rename = "ah", default, skip_serializing_if = "Option::is_none")]
    pub asked_hash: Option<String>,
    /// The tool's id, when its name alone does not say which tool it is.
    #[serde(rename = "ti", default, skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<String>,
    /// The timeout in milliseconds.
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Created at, microseconds.
    #[serde(rename = "at")]
    pub at: i64,
    /// Whether the call cannot be cancelled.
    #[serde(rename = "nc", default, skip_serializing_if = "is_false")]
    pub not_cancellable: bool,
    /// The position in a foreach.
    #[serde(rename = "i", default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<Iteration>,
    /// The preview line.
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// The risk level of the tool.
    #[serde(rename = "r")]
    pub risk: RiskLevel,
    /// The category of the tool.
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// The approval.
    #[serde(rename = "ok", default, skip_serializing_if = "Option::is_none")]
    pub confirmation_id: Option<ConfirmationId>,
    /// `step.scheduled` comes before `step.started`. Records of earlier versions have it for the first call of a step only.
    #[serde(rename = "f", default, skip_serializing_if = "is_false")]
    pub scheduled: bool,
    /// What is going to change.
    #[serde(rename = "in", default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// Made again after a crash, with the same call id.
    #[serde(rename = "rec", default, skip_serializing_if = "is_false")]
    pub recovered: bool,
    /// Arguments of which an HMAC is kept; see [`crate::secrets`].
    #[serde(rename = "sx", default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretArgument>,
}

impl CallRecord {
    /// What finds the tool in a catalog.
    pub fn lookup(&self) -> &str {
        self.tool_id.as_deref().unwrap_or(self.tool.as_str())
    }
}

/// The outcome of a recorded call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultRecord {
    /// The call.
    #[serde(rename = "c")]
    pub call_id: CallId,
    /// The outcome.
    #[serde(rename = "o")]
    pub outcome: OutcomeRecord,
}

/// The part of a result that is not derived from its call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutcomeRecord {
    /// The status.
    #[serde(rename = "st")]
    pub status: ResultStatus,
    /// Data, unless it is in the blob store.
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Map<String, Value>>,
    /// SHA-256 of the data's JSON in the blob store.
    #[serde(rename = "db", default, skip_serializing_if = "Option::is_none")]
    pub data_blob: Option<String>,
    /// The error.
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// When the attempt started, in microseconds since 1970.
    #[serde(rename = "b")]
    pub started: i64,
    /// The duration in microseconds.
    #[serde(rename = "us")]
    pub took_us: i64,
    /// The observed effects.
    #[serde(rename = "fx", default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<Effects>,
    /// A message for people.
    #[serde(rename = "um", default, skip_serializing_if = "Option::is_none")]
    pub user_message: Option<String>,
    /// A message for logs.
    #[serde(rename = "dm", default, skip_serializing_if = "Option::is_none")]
    pub debug_message: Option<String>,
}

impl OutcomeRecord {
    /// An outcome of which only its status and its beginning are known.
    pub(crate) fn new(status: ResultStatus, started: Timestamp) -> Self {
        Self {
            status,
            data: None,
            data_blob: None,
            error: None,
            started: started.as_microsecond(),
            took_us: 0,
            effects: None,
            user_message: None,
            debug_message: None,
        }
    }
}

/// An outcome without a dispatched call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusedRecord {
    /// The id the call would have had.
    #[serde(rename = "c")]
    pub call_id: CallId,
    /// The step.
    #[serde(rename = "s")]
    pub step_id: StepId,
    /// Tool, as it was asked for.
    #[serde(rename = "t")]
    pub tool: ToolName,
    /// The number that the attempt would have had. Earlier versions wrote 0 for a step without an attempt.
    #[serde(rename = "n")]
    pub attempt: u32,
    /// The step ended without any call.
    #[serde(rename = "nr", default, skip_serializing_if = "is_false")]
    pub never_ran: bool,
    /// The position in a foreach.
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// The requested arguments, if they are known and not large.
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
    /// The outcome.
    #[serde(rename = "o")]
    pub outcome: OutcomeRecord,
}

/// Another try, and when: an absolute time, so that a restart waits for the rest only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetryRecord {
    /// The step.
    #[serde(rename = "s")]
    pub step_id: StepId,
    /// The position in a foreach.
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// The attempt that will be made.
    #[serde(rename = "n")]
    pub attempt: u32,
    /// When the retry is due.
    #[serde(rename = "at")]
    pub due: Timestamp,
    /// When this was recorded.
    #[serde(rename = "w")]
    pub at: Timestamp,
}

/// Information that changes nothing: a late answer, a recovery, a deviation from the preview.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NoteRecord {
    /// When this was recorded.
    pub at: Timestamp,
    /// The severity.
    pub level: EventLevel,
    /// A line of text.
    pub message: String,
    /// The call it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// The step it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// Details of the note, for readers of the record.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub payload: Map<String, Value>,
}

/// The run was asked to stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelRecord {
    /// When the run was cancelled.
    pub at: Timestamp,
    /// Who, or what.
    pub by: String,
    /// The reason.
    pub reason: String,
}

/// The run waits for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PausedRecord {
    /// When the run was paused.
    pub at: Timestamp,
    /// The calls in doubt.
    pub call_ids: Vec<CallId>,
    /// What is asked.
    pub message: String,
}

/// A person's decision about a call whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Settlement {
    /// The call happened.
    AssumeDone,
    /// The call did not happen; make it now.
    Rerun,
    /// End the run.
    Abort,
}

/// A person decided about a call whose outcome was unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SettledRecord {
    /// When the decision was made.
    pub at: Timestamp,
    /// The call.
    pub call_id: CallId,
    /// The decision.
    pub choice: Settlement,
    /// The name of the person.
    pub by: String,
}

/// The run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FinishedRecord {
    /// When the run ended.
    pub at: Timestamp,
    /// The final status.
    pub status: RunStatus,
    /// Why, when it is not `finished`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// A line of text.
    pub message: String,
}

fn is_false(b: &bool) -> bool {
    !*b
}

impl Record {
    /// The kind that goes into the frame.
    pub fn kind(&self) -> RecordKind {
        match self {
            Self::RunStarted(_) => RecordKind::RunStarted,
            Self::ConfirmationRequested(_) => RecordKind::ConfirmationRequested,
            Self::Confirmed(_) => RecordKind::Confirmed,
            Self::Call(_) => RecordKind::Call,
            Self::Result(_) => RecordKind::Result,
            Self::Refused(_) => RecordKind::Refused,
            Self::Retry(_) => RecordKind::Retry,
            Self::Note(_) => RecordKind::Note,
            Self::Cancel(_) => RecordKind::Cancel,
            Self::Paused(_) => RecordKind::Paused,
            Self::Settled(_) => RecordKind::Settled,
            Self::Finished(_) => RecordKind::Finished,
            Self::Checkpoint(_) => RecordKind::Checkpoint,
        }
    }

    /// The payload's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode_into(&mut bytes);
        bytes
    }

    /// Adds the payload's bytes to a buffer.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let encoded = match self {
            Self::RunStarted(r) => serde_json::to_writer(out, r),
            Self::ConfirmationRequested(r) => serde_json::to_writer(out, r),
            Self::Confirmed(r) => serde_json::to_writer(out, r),
            Self::Call(r) => serde_json::to_writer(out, r),
            Self::Result(r) => serde_json::to_writer(out, r),
            Self::Refused(r) => serde_json::to_writer(out, r),
            Self::Retry(r) => serde_json::to_writer(out, r),
            Self::Note(r) => serde_json::to_writer(out, r),
            Self::Cancel(r) => serde_json::to_writer(out, r),
            Self::Paused(r) => serde_json::to_writer(out, r),
            Self::Settled(r) => serde_json::to_writer(out, r),
            Self::Finished(r) => serde_json::to_writer(out, r),
            Self::Checkpoint(r) => serde_json::to_writer(out, r),
        };
        // Plain structs with string keys always serialise.
        debug_assert!(encoded.is_ok());
    }

    /// The outcome of a call, taken from its record.
    pub(crate) fn into_outcome(self) -> Option<OutcomeRecord> {
        match self {
            Self::Result(result) => Some(result.outcome),
            _ => None,
        }
    }

    /// Reads a frame's payload.
    pub fn decode(kind: u8, payload: &[u8]) -> Result<Self, RecordError> {
        fn read<T: for<'de> Deserialize<'de>>(payload: &[u8]) -> Result<T, RecordError> {
            serde_json::from_slice(payload).map_err(|e| RecordError(format!("payload cannot be read: {e}")))
        }
        let kind = RecordKind::from_u8(kind).ok_or_else(|| RecordError(format!("unknown record kind {kind}")))?;
        Ok(match kind {
            RecordKind::RunStarted => Self::RunStarted(read(payload)?),
            RecordKind::ConfirmationRequested => Self::ConfirmationRequested(read(payload)?),
            RecordKind::Confirmed => Self::Confirmed(read(&crate::end_tag::without_tag(payload))?),
            RecordKind::Call => Self::Call(read(payload)?),
            RecordKind::Result => Self::Result(read(payload)?),
            RecordKind::Refused => Self::Refused(read(payload)?),
            RecordKind::Retry => Self::Retry(read(payload)?),
            RecordKind::Note => Self::Note(read(payload)?),
            RecordKind::Cancel => Self::Cancel(read(payload)?),
            RecordKind::Paused => Self::Paused(read(payload)?),
            RecordKind::Settled => Self::Settled(read(payload)?),
            RecordKind::Finished => Self::Finished(read(payload)?),
            RecordKind::Checkpoint => Self::Checkpoint(read(payload)?),
        })
    }

    /// The number of events that are generated from this record.
    pub fn event_count(&self) -> u64 {
        match self {
            Self::Call(c) => 1 + u64::from(c.scheduled),
            Self::Checkpoint(_) => 0,
            _ => 1,
        }
    }
}

/// A payload that does not match its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RecordError(pub String);
