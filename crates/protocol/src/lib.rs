//! The vocabulary every part of Toolyard shares: envelopes, plans, tool definitions, policy snapshots, error codes.
//!
//! Plain data and pure functions only. This crate knows no IO, no async, no clock and no transport: a value built
//! here means the same in a door, in the engine and in the record, and two processes that serialise it get the same
//! bytes.
//!
//! Envelopes ([`ToolCall`], [`ToolResult`]) cannot be built invalid: their fields are read through `Deref`, and the
//! only ways in are constructors and `serde`, both of which check the invariants of the specification.

mod call;
pub mod canonical;
mod definition;
mod effects;
mod error_code;
mod event;
mod ids;
mod plan;
mod policy;
mod result;
mod run;
pub mod schema;
mod schema_text;
mod workspace;

pub use call::{Iteration, ToolCall, ToolCallParts};
pub use definition::{
    Availability, DEFAULT_TIMEOUT_MS, Idempotency, MAX_TOOL_NAME_BYTES, RiskLevel, ToolDefinition, ToolDefinitionError,
    Undo,
};
pub use effects::{Created, Deleted, Effects, EntryKind, FileKind, Modified, Renamed};
pub use error_code::{ErrorCode, ErrorPage};
pub use event::{EventLevel, EventType, ExecutionEvent};
pub use ids::{CallId, ConfirmationId, InvalidId, RunId, StepId, ToolName};
pub use plan::{
    ActionPlan, ContextKind, ContextRequest, Foreach, OnError, PLAN_SCHEMA_ID, PlanDefaults, PlanOutputs, RetryPolicy,
    Step, UiHints,
};
pub use policy::{PolicyLimits, PolicySnapshot, Sandbox};
pub use result::{Failure, ResultStatus, ToolResult, ToolResultParts, cause_chain};
pub use run::{ApprovedVia, Confirmation, ConfirmationDecision, LogHead, RunManifest, RunStatus};
pub use schema_text::Schema;
pub use workspace::{MAX_WORKSPACE_BYTES, WorkspaceId};

/// Why an envelope could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{envelope}: {problem}")]
pub struct EnvelopeError {
    /// Which envelope: `ToolCall` or `ToolResult`.
    pub envelope: &'static str,
    /// The invariant that does not hold.
    pub problem: String,
}
