//! [`ExecutionEvent`]: a notification from the executor to subscribers.

use crate::{CallId, RunId, StepId, ToolName};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum EventType {
    /// A run began.
    #[serde(rename = "run.started")]
    RunStarted,
    /// A run waits for a person.
    #[serde(rename = "run.confirmationRequested")]
    RunConfirmationRequested,
    /// A person approved the run.
    #[serde(rename = "run.confirmed")]
    RunConfirmed,
    /// A run was stopped.
    #[serde(rename = "run.cancelled")]
    RunCancelled,
    /// A step's turn has come.
    #[serde(rename = "step.scheduled")]
    StepScheduled,
    /// A call is about to be dispatched.
    #[serde(rename = "step.started")]
    StepStarted,
    /// A call reports how far it is.
    #[serde(rename = "step.progress")]
    StepProgress,
    /// A call succeeded.
    #[serde(rename = "step.finished")]
    StepFinished,
    /// A call failed.
    #[serde(rename = "step.failed")]
    StepFailed,
    /// A run ended.
    #[serde(rename = "run.finished")]
    RunFinished,
}

impl EventType {
    /// Whether it is about a run as a whole, not about one of its steps.
    pub fn is_of_run(self) -> bool {
        match self {
            Self::RunStarted
            | Self::RunConfirmationRequested
            | Self::RunConfirmed
            | Self::RunCancelled
            | Self::RunFinished => true,
            Self::StepScheduled | Self::StepStarted | Self::StepProgress | Self::StepFinished | Self::StepFailed => {
                false
            }
        }
    }

    /// The name on the wire, for example `step.started`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunStarted => "run.started",
            Self::RunConfirmationRequested => "run.confirmationRequested",
            Self::RunConfirmed => "run.confirmed",
            Self::RunCancelled => "run.cancelled",
            Self::StepScheduled => "step.scheduled",
            Self::StepStarted => "step.started",
            Self::StepProgress => "step.progress",
            Self::StepFinished => "step.finished",
            Self::StepFailed => "step.failed",
            Self::RunFinished => "run.finished",
        }
    }
}

/// The severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventLevel {
    /// An ordinary event.
    Info,
    /// Worth a look.
    Warn,
    /// A failure.
    Error,
}

/// One event of a run's stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecutionEvent {
    /// Position in the run's stream, counted from 1. Events that are not part of the record (progress) repeat the last one.
    pub seq: u64,
    /// The run that the event belongs to.
    pub run_id: RunId,
    /// The kind of the event.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// When the event happened.
    pub timestamp: Timestamp,
    /// The severity of the event.
    pub level: EventLevel,
    /// One line for people.
    pub message: String,
    /// The call that the event belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// The step that the event belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// The tool that the event belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
    /// Details, depending on the kind of event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Map<String, Value>>,
}
