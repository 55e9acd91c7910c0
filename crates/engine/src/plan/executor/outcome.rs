//! The consequences of a call's result for its step, and of a step's end for the run.

use super::{Executor, Mode};
use crate::{
    RETRY_AFTER,
    pipeline::{self, FinishedCall},
    plan::{
        check::CompiledStep,
        report::IterationReport,
        scheduler::{Event, Outcome, StepState},
    },
};
use serde_json::{Map, Value};
use toolyard_protocol::{ErrorCode, Failure, Idempotency, ResultStatus};

fn retry_after_ms(failure: &Failure) -> Option<u64> {
    let wait = failure.details.as_ref()?.get(RETRY_AFTER)?;
    // A tool written in JavaScript may name a fraction of a millisecond; `as` takes a negative number for zero.
    wait.as_u64().or_else(|| wait.as_f64().map(|ms| ms.ceil() as u64))
}

impl Executor {
    /// Takes a call's result in.
    pub(super) fn settled(&mut self, step: usize, index: u32, settled: FinishedCall) -> Event {
        let compiled = &self.plan.steps[step];
        let result = &settled.result;
        if settled.side_effects {
            // Iterations side by side may be taken in out of order.
            self.barriers[step] = self.barriers[step].max(Some(settled.position));
        }
        if let Some(effects) = &result.effects {
            self.effects.merge(effects);
        }
        let in_doubt = self.in_doubt.contains(&result.call_id);
        let outcome = match result.status {
            ResultStatus::Ok => Outcome::Ok,
            // A step that cannot be predicted in a dry run, and a call that a person settled, do not stop the other
            // steps.
            ResultStatus::Skipped => {
                self.unpredictable.insert(step);
                Outcome::Ok
            }
            ResultStatus::Cancelled if self.scope.cancel.is_cancelled() => Outcome::Cancelled,
            _ if in_doubt => Outcome::InDoubt,
            status => {
                let error = result.error.as_ref();
                let code = error.map_or(ErrorCode::InternalError, |e| e.code);
                // A call that may have happened and cannot be reconciled is never repeated automatically.
                let reason =
                    error.and_then(|e| e.details.as_ref()).and_then(|d| d.get("reason")).and_then(Value::as_str);
                let unsafe_again = compiled.idempotency == Idempotency::None
                    && (status == ResultStatus::Timeout || reason == Some(crate::attempt::PANIC));
                let retryable = if unsafe_again { Some(false) } else { error.and_then(|e| e.retryable) };
                Outcome::Failed { code, retryable, retry_after_ms: error.and_then(retry_after_ms) }
            }
        };
        let report = &mut self.reports[step];
        report.attempts += 1;
        if compiled.step().foreach.is_some() {
            let iteration = IterationReport::new(u64::from(index), result);
            if let Some(looped) = self.loops.get_mut(&step) {
                looped.take(iteration, settled.whole);
            }
        } else {
            report.take(result);
            if let Some(data) = settled.whole.or_else(|| result.data.clone()) {
                self.outputs.insert(compiled.step().id.to_string(), Value::Object(data));
            }
        }
        Event::Settled { step, index, outcome }
    }

    pub(super) fn step_ended(&mut self, step: usize, state: StepState) {
        let looped = self.loops.remove(&step);
        match state {
            StepState::Skipped { because } => {
                let cause = &self.plan.steps[because].step().id;
                self.never_ran(step, format!("Not run, because step {cause} did not succeed"));
            }
            StepState::Cancelled if self.reports[step].attempts == 0 && looped.is_none() => {
                self.never_ran(step, "Not run, because the run was stopped".to_owned());
            }
            _ => {}
        }
        if let Some(looped) = looped {
            self.loop_ended(step, looped, state);
        }
    }

    /// In a dry run: something before this step could not be predicted.
    pub(super) fn depends_on_unpredictable(&self, compiled: &CompiledStep) -> bool {
        compiled.shape.depends_on.iter().any(|d| self.unpredictable.contains(d))
    }

    fn never_ran(&mut self, step: usize, why: String) {
        let plan = self.plan.clone();
        let compiled = &plan.steps[step];
        self.reports[step].skip(why.clone());
        let recorded = self.memo.as_ref().is_some_and(|m| m.skipped.contains(&compiled.step().id));
        if self.mode == Mode::Live && !recorded {
            let mut call = self.step_call(compiled, None, 1, Map::new());
            call.never_ran = true;
            pipeline::skip(&self.engine, &self.scope, &call, why);
        }
    }
}
