//! Loops: the list of a `foreach`, the results of its iterations, and the combined result of the step.

use super::{Executor, Mode};
use crate::{
    pipeline,
    plan::{
        check::CompiledStep,
        reference,
        report::IterationReport,
        scheduler::{Event, Outcome, StepState},
    },
};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use toolyard_protocol::{CallId, ErrorCode, Failure, Iteration, ResultStatus};

/// A loop in progress.
pub(super) struct Loop {
    items: Vec<Value>,
    results: Vec<Option<IterationReport>>,
    /// Outputs that the results only refer to.
    whole: HashMap<u64, Map<String, Value>>,
}

impl Loop {
    fn over(items: Vec<Value>) -> Self {
        Self { results: vec![None; items.len()], items, whole: HashMap::new() }
    }

    /// Adds the result of an iteration, and its output if the result only refers to it.
    pub(super) fn take(&mut self, iteration: IterationReport, whole: Option<Map<String, Value>>) {
        let index = iteration.index;
        if let Some(slot) = self.results.get_mut(index as usize) {
            *slot = Some(iteration);
        }
        if let Some(whole) = whole {
            self.whole.insert(index, whole);
        }
    }
}

impl Executor {
    /// Finds out a loop's list.
    pub(super) fn expand(&mut self, step: usize) -> Event {
        let plan = self.plan.clone();
        let compiled = &plan.steps[step];
        let failed = |code| Event::Settled {
            step,
            index: 0,
            outcome: Outcome::Failed { code, retryable: Some(false), retry_after_ms: None },
        };
        match self.items(compiled) {
            Ok(items) => {
                let count = items.len() as u32;
                self.reports[step].iterations = Some(Vec::new());
                self.loops.insert(step, Loop::over(items));
                Event::Expanded { step, count }
            }
            Err(failure) if self.mode == Mode::DryRun && self.depends_on_unpredictable(compiled) => {
                self.unpredictable.insert(step);
                self.reports[step].user_message = Some(format!("Cannot be predicted: {}", failure.message));
                self.loops.insert(step, Loop::over(Vec::new()));
                Event::Expanded { step, count: 0 }
            }
            Err(failure) => {
                let code = failure.code;
                let recorded =
                    self.memo.as_ref().is_some_and(|m| m.results.contains_key(&(compiled.step().id.clone(), None, 1)));
                self.reports[step].fail(ResultStatus::Error, failure.clone());
                if !recorded {
                    let call = self.step_call(compiled, None, 1, Map::new());
                    let call_id = CallId::from_uuid(self.engine.clock().new_id());
                    pipeline::refuse(&self.engine, &self.scope, call_id, &call, failure);
                }
                failed(code)
            }
        }
    }

    fn items(&self, compiled: &CompiledStep) -> Result<Vec<Value>, Failure> {
        let invalid = |message: String| {
            Failure::new(ErrorCode::ValidationError, format!("foreach of step {}: {message}", compiled.step().id))
                .retryable(false)
        };
        let Some(from) = &compiled.from else { return Err(invalid("has no list".into())) };
        let (run_id, started_at) = (self.scope.run_id.to_string(), self.started_at.to_string());
        let value = reference::look_up(from, &self.env(None, &run_id, &started_at)).map_err(invalid)?;
        let limit = self.scope.limits().max_iterations as usize;
        match value.into_owned() {
            Value::Array(items) if items.len() > limit => Err(Failure::new(
                ErrorCode::LimitExceeded,
                format!("foreach of step {} has {} items; maxIterations is {limit}", compiled.step().id, items.len()),
            )
            .detail("limit", "maxIterations")
            .detail("value", limit as u64)
            .retryable(false)),
            Value::Array(items) => Ok(items),
            Value::Object(map) if map.get("items").is_some_and(Value::is_array) => {
                Err(invalid(format!("{from} is an object; did you mean {from}.items?")))
            }
            _ => Err(invalid(format!("{from} is not a list"))),
        }
    }

    /// The iteration that a call of a loop belongs to.
    pub(super) fn iteration(&self, compiled: &CompiledStep, step: usize, index: u32) -> Option<Iteration> {
        let foreach = compiled.step().foreach.as_ref()?;
        let item_value = self.loops.get(&step).and_then(|l| l.items.get(index as usize)).cloned().unwrap_or_default();
        Some(Iteration { index: u64::from(index), item_name: foreach.item_name.clone(), item_value })
    }

    /// Ends a loop: its report, and its output for the steps after it.
    pub(super) fn loop_ended(&mut self, step: usize, looped: Loop, state: StepState) {
        let plan = self.plan.clone();
        let compiled = &plan.steps[step];
        let count = looped.results.len();
        let results: Vec<IterationReport> = looped.results.into_iter().flatten().collect();
        let ok_count = results.iter().filter(|r| r.status == ResultStatus::Ok).count();
        if state == StepState::Ok {
            let mut whole = looped.whole;
            let complete = results.iter().cloned().map(|mut r| {
                r.data = whole.remove(&r.index).or(r.data);
                r
            });
            self.loop_output(compiled, count, ok_count, &complete.collect::<Vec<_>>());
        }
        self.reports[step].take_loop(state, results, ok_count);
    }

    fn loop_output(&mut self, compiled: &CompiledStep, count: usize, ok_count: usize, results: &[IterationReport]) {
        let id = compiled.step().id.as_str();
        for alias in &self.plan.aliases {
            let Some(n) = alias.strip_prefix(id).and_then(|t| t.strip_prefix('_')).and_then(|n| n.parse::<u64>().ok())
            else {
                continue;
            };
            if let Some(data) = results.iter().find(|r| r.index == n).and_then(|r| r.data.clone()) {
                self.outputs.insert(alias.clone(), Value::Object(data));
            }
        }
        let mut items = vec![Value::Null; count];
        for r in results {
            if let (Some(slot), Some(data)) = (items.get_mut(r.index as usize), &r.data) {
                *slot = Value::Object(data.clone());
            }
        }
        let results = crate::facts::written(results);
        self.outputs
            .insert(id.to_owned(), json!({"items": items, "results": results, "count": count, "okCount": ok_count}));
    }
}
