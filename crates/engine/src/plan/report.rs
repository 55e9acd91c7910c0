//! The report of a run.

use super::scheduler::StepState;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolyard_protocol::{
    Effects, ErrorCode, Failure, PlanOutputs, ResultStatus, RunId, RunStatus, Step, StepId, ToolResult, canonical,
};

/// A run's outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunReport {
    /// The run.
    pub run_id: RunId,
    /// How it ended.
    pub status: RunStatus,
    /// The purpose of the plan.
    pub goal: String,
    /// What the plan wants shown of it.
    #[serde(default)]
    pub outputs: PlanOutputs,
    /// Each step, in plan order.
    pub steps: Vec<StepReport>,
    /// Everything that was seen to change.
    pub effects: Effects,
    /// Why it did not finish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended; absent while it can still go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// How the effects differ from the approved preview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<Deviation>,
}

/// Predicted and observed effects that do not match.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deviation {
    /// Predicted, not observed.
    pub missing: Vec<String>,
    /// Observed, not predicted.
    pub unexpected: Vec<String>,
}

/// A step's outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepReport {
    /// The id of the step.
    pub id: StepId,
    /// The tool of the step.
    pub tool: String,
    /// How it ended; absent when it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ResultStatus>,
    /// Calls made, over all iterations and tries.
    pub attempts: u32,
    /// A loop's iterations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<Vec<IterationReport>>,
    /// The output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Map<String, Value>>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// A message for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_message: Option<String>,
    /// Milliseconds of the last call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// One iteration's outcome: also what `$steps.<id>.results` holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IterationReport {
    /// The position of the iteration.
    pub index: u64,
    /// How it ended.
    pub status: ResultStatus,
    /// The output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Map<String, Value>>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

impl IterationReport {
    pub(crate) fn new(index: u64, result: &ToolResult) -> Self {
        Self { index, status: result.status, data: result.data.clone(), error: result.error.clone() }
    }
}

impl StepReport {
    pub(crate) fn new(step: &Step) -> Self {
        Self {
            id: step.id.clone(),
            tool: step.tool.clone(),
            status: None,
            attempts: 0,
            iterations: None,
            data: None,
            error: None,
            user_message: None,
            duration_ms: None,
        }
    }

    pub(crate) fn take(&mut self, result: &ToolResult) {
        self.status = Some(result.status);
        self.data = result.data.clone();
        self.error = result.error.clone();
        self.user_message = result.user_message.clone();
        self.duration_ms = Some(result.duration_ms);
    }

    pub(crate) fn fail(&mut self, status: ResultStatus, error: Failure) {
        self.status = Some(status);
        self.error = Some(error);
    }

    pub(crate) fn skip(&mut self, why: String) {
        self.status = Some(ResultStatus::Skipped);
        self.user_message = Some(why);
    }

    pub(crate) fn take_loop(&mut self, state: StepState, results: Vec<IterationReport>, ok_count: usize) {
        if self.status.is_none() {
            self.status = Some(match state {
                StepState::Ok => ResultStatus::Ok,
                StepState::Failed => ResultStatus::Error,
                StepState::Skipped { .. } => ResultStatus::Skipped,
                StepState::Cancelled => ResultStatus::Cancelled,
            });
        }
        if state == StepState::Failed && self.error.is_none() {
            self.error = results.iter().find_map(|r| r.error.clone());
        }
        self.user_message.get_or_insert_with(|| format!("{ok_count} of {} iterations succeeded", results.len()));
        self.iterations = Some(results);
    }
}

impl Deviation {
    /// Compares predicted with observed effects. `None` when they agree.
    pub fn between(predicted: &Effects, observed: &Effects) -> Option<Self> {
        let (predicted, observed) = (lines(predicted), lines(observed));
        let missing: Vec<String> = predicted.iter().filter(|l| !observed.contains(l)).cloned().collect();
        let unexpected: Vec<String> = observed.iter().filter(|l| !predicted.contains(l)).cloned().collect();
        (!missing.is_empty() || !unexpected.is_empty()).then_some(Self { missing, unexpected })
    }
}

fn lines(effects: &Effects) -> Vec<String> {
    let created = effects.created.iter().map(|c| format!("create {}", c.path));
    let modified =
        effects.modified.iter().map(|m| format!("modify {} -> {}", m.path, m.after_etag.as_deref().unwrap_or("?")));
    let deleted = effects.deleted.iter().map(|d| format!("delete {}", d.path));
    let renamed = effects.renamed.iter().map(|r| format!("rename {} -> {}", r.from, r.to));
    created.chain(modified).chain(deleted).chain(renamed).collect()
}
/// What a preview's hash is of.
#[derive(Serialize)]
struct Previewed<'a> {
    diff: &'a str,
    effects: &'a Effects,
    steps: Vec<(&'a StepId, Option<ResultStatus>)>,
}

/// The hash of everything that a person who approves a preview has seen.
pub(super) fn preview_hash(diff: &str, effects: &Effects, steps: &[StepReport]) -> Result<String, Failure> {
    let steps = steps.iter().map(|step| (&step.id, step.status)).collect();
    canonical::hash(&Previewed { diff, effects, steps })
        .map_err(|error| Failure::new(ErrorCode::InternalError, format!("the preview has no hash: {error}")))
}
