//! Makes a call, and waits before a retry.

use super::{Executor, Finished, Mode, Work};
use crate::{
    pipeline,
    plan::memo::CallKey,
    record::{Record, RetryRecord},
    store::Durability,
};
use serde_json::Map;
use std::time::Duration;
use toolyard_protocol::CallId;

impl Executor {
    /// The future that makes a call.
    pub(super) fn dispatch(&mut self, step: usize, index: u32, attempt: u32, is_alone: bool) -> Work {
        let plan = self.plan.clone();
        let compiled = &plan.steps[step];
        let iteration = self.iteration(compiled, step, index);
        let key: CallKey = (compiled.step().id.clone(), iteration.as_ref().map(|i| i.index), attempt);
        let recovered = self.memo.as_ref().and_then(|m| m.pending.get(&key)).map(|c| c.call_id);
        let args = match self.resolve(compiled, iteration.as_ref()) {
            Ok(args) => args,
            Err(failure) => {
                let call = self.step_call(compiled, iteration, attempt, Map::new());
                let settled = if self.mode == Mode::DryRun && self.depends_on_unpredictable(compiled) {
                    pipeline::skip(
                        &self.engine,
                        &self.scope,
                        &call,
                        format!("Cannot be predicted: {}", failure.message),
                    )
                } else {
                    let call_id = CallId::from_uuid(self.engine.clock().new_id());
                    pipeline::refuse(&self.engine, &self.scope, call_id, &call, failure)
                };
                return Box::pin(async move { Finished::Call { step, index, settled } });
            }
        };
        let mut call = self.step_call(compiled, iteration, attempt, args);
        call.recovered = recovered;
        call.is_alone = is_alone;
        // A call without effects of its own makes no sync; if it depends on an effect, that effect's result must be
        // durable first. A call with effects syncs anyway, and everything before it with it.
        let wait_for = if compiled.side_effects {
            None
        } else {
            compiled.shape.depends_on.iter().filter_map(|&d| self.barriers[d]).max()
        };
        let (engine, scope) = (self.engine.clone(), self.scope.clone());
        Box::pin(async move {
            if let Some(position) = wait_for
                && let Err(error) = scope.recorder.durable(position).await
            {
                let call_id = CallId::from_uuid(engine.clock().new_id());
                let settled = pipeline::refuse(&engine, &scope, call_id, &call, error.into());
                return Finished::Call { step, index, settled };
            }
            let settled = pipeline::run_call(&engine, &scope, call).await;
            Finished::Call { step, index, settled }
        })
    }

    /// How long to wait before another try: less after a restart, nothing when the try is recorded already.
    pub(super) fn delay(&mut self, step: usize, index: u32, attempt: u32, delay_ms: u64) -> Duration {
        let compiled = &self.plan.steps[step];
        let position = compiled.step().foreach.as_ref().map(|_| u64::from(index));
        let key: CallKey = (compiled.step().id.clone(), position, attempt);
        let now = self.engine.clock().now();
        if self.imported.contains_key(&key) {
            return Duration::ZERO;
        }
        if let Some(memo) = &self.memo {
            if memo.results.contains_key(&key) || memo.pending.contains_key(&key) || self.mode == Mode::Replay {
                return Duration::ZERO;
            }
            if let Some(due) = memo.retries.get(&key) {
                return Duration::from_micros((due.as_microsecond() - now.as_microsecond()).max(0) as u64);
            }
        }
        let delay = Duration::from_millis(delay_ms.min(self.scope.limits().max_retry_delay_ms));
        let due = now.checked_add(delay).unwrap_or(now);
        self.scope.recorder.push(&Record::Retry(RetryRecord {
            step_id: key.0,
            index: position,
            attempt,
            due,
            at: now,
        }));
        // Nothing else may be recorded until the wait is over, and a crash must not begin it anew.
        if let Err(error) = self.scope.recorder.flush(Durability::Ride) {
            tracing::error!(%error, "a retry could not be recorded");
        }
        delay
    }
}
