//! Undoes a run: a plan of inverse calls, guarded by the etags that the run left behind.

use super::memo::{CallKey, Recorded};
use crate::{Engine, InverseCall, view};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_protocol::{ActionPlan, CallId, ErrorCode, Failure, RiskLevel, RunId, RunStatus, Step, StepId};

/// The plan that undoes a run, and the calls that it cannot undo.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UndoPlan {
    /// The run to be taken back.
    pub run_id: RunId,
    /// The plan; absent if there is nothing to undo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<ActionPlan>,
    /// Calls that cannot be undone, and why.
    pub not_undoable: Vec<NotUndoable>,
}

/// A call that cannot be undone.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotUndoable {
    /// The call.
    pub call_id: CallId,
    /// The step of the call.
    pub step_id: StepId,
    /// The reason.
    pub reason: String,
}

impl Engine {
    /// Computes the plan that undoes a run. Nothing changes until that plan is run, like any other plan.
    pub async fn plan_undo(&self, run_id: RunId) -> Result<UndoPlan, Failure> {
        let memo = self.load_memo(run_id).await?;
        if memo.finished.is_none() {
            let row = self.store().run(run_id)?;
            if row.is_none_or(|r| r.status != RunStatus::Paused) {
                return Err(Failure::new(ErrorCode::PreconditionFailed, "the run has not ended")
                    .suggest("Stop it first with `toolyard runs cancel`."));
            }
        }
        let store = self.store().clone();
        let tools = self.tools();
        let done = memo.results.iter().filter(|(_, r)| r.outcome.effects.is_some() && r.call.is_some()).collect();
        let mut inverse: Vec<InverseCall> = Vec::new();
        let mut not_undoable = Vec::new();
        for overlapping in last_first(done) {
            let mut waiting: Vec<InverseCall> = Vec::new();
            for ((step_id, ..), recorded) in overlapping {
                let Some(call) = &recorded.call else { continue };
                let provider = tools.snapshot.get(call.lookup()).and_then(|e| tools.provider(e.id()));
                let envelope = memo.view.tool_call(call, view::call_args(&*store, call)?)?;
                let result = memo.result(&*store, step_id, recorded)?;
                let calls = match provider {
                    Some(provider) => provider.inverse(&envelope, &result, call.intent.as_ref()),
                    None => Err(Failure::new(ErrorCode::Unavailable, format!("{} is gone", call.tool))),
                };
                match calls {
                    Ok(calls) => {
                        let (later, now): (Vec<_>, Vec<_>) =
                            calls.into_iter().partition(|call| call.waits_at_depth.is_some());
                        inverse.extend(now);
                        waiting.extend(later);
                    }
                    Err(failure) => {
                        not_undoable.push(NotUndoable {
                            call_id: call.call_id,
                            step_id: step_id.clone(),
                            reason: failure.message,
                        });
                    }
                }
            }
            waiting.sort_by_key(|call| std::cmp::Reverse(call.waits_at_depth));
            inverse.extend(waiting);
        }
        let plan = (!inverse.is_empty()).then(|| undo_plan(run_id, inverse)).transpose()?;
        Ok(UndoPlan { run_id, plan, not_undoable })
    }
}

/// The calls in the order in which they are undone, the last one first, in groups of calls that overlapped in time: for
/// these, it is not known whose effect came first.
fn last_first<'a>(mut done: Vec<(&'a CallKey, &'a Recorded)>) -> Vec<Vec<(&'a CallKey, &'a Recorded)>> {
    // Call ids sort by time.
    done.sort_by_key(|(_, r)| (r.outcome.started, r.call_id));
    let mut groups: Vec<Vec<_>> = Vec::new();
    let mut busy_until = i64::MIN;
    for call in done {
        let outcome = &call.1.outcome;
        match groups.last_mut() {
            Some(group) if outcome.started < busy_until => group.push(call),
            _ => groups.push(vec![call]),
        }
        busy_until = busy_until.max(outcome.started.saturating_add(outcome.took_us));
    }
    groups.reverse();
    for group in &mut groups {
        group.reverse();
    }
    groups
}

fn undo_plan(run_id: RunId, inverse: Vec<InverseCall>) -> Result<ActionPlan, Failure> {
    let mut steps: Vec<Step> = Vec::with_capacity(inverse.len());
    for (i, call) in inverse.into_iter().enumerate() {
        let id = StepId::parse(&format!("undo{}", i + 1))
            .map_err(|e| Failure::new(ErrorCode::InternalError, e.to_string()))?;
        let depends_on = steps.last().map(|s: &Step| vec![s.id.clone()]).unwrap_or_default();
        steps.push(Step {
            id,
            tool: call.tool,
            // A path may look like a reference; in a plan it must be escaped to stay a path.
            args: call.args.into_iter().map(|(k, v)| (k, super::reference::escape(v))).collect(),
            preview: Some(call.preview).filter(|p| !p.is_empty()),
            depends_on,
            foreach: None,
            capture_as: None,
            on_error: None,
            retry: None,
            timeout_ms: None,
            tags: Vec::new(),
        });
    }
    Ok(ActionPlan {
        version: "1.0".to_owned(),
        goal: format!("Take back run {run_id}"),
        assumptions: Vec::new(),
        risk_level: RiskLevel::Writes,
        context_requests: Vec::new(),
        defaults: Default::default(),
        steps,
        outputs: Default::default(),
        ui_hints: Default::default(),
    })
}
