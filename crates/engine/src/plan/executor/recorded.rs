//! Calls that need not be made because a record contains them: this run's own after a crash or in a replay, another
//! run's in a fork.

use super::{Ended, Executor, Mode};
use crate::{
    Blob,
    pipeline::{self, FinishedCall, Reconciliation},
    plan::{check::CompiledStep, memo::CallKey},
    record::{CallRecord, INLINE_BYTES, OutcomeRecord, Record, RefusedRecord, Settlement},
    secrets::{Placeholders, SecretMarks},
    store::{Durability, Position},
};
use serde_json::{Map, Value};
use toolyard_protocol::{ErrorCode, Failure, Idempotency, ToolResult};

impl Executor {
    /// Completes a call without dispatching it, if possible: recorded, imported, or with unresolvable references.
    pub(super) async fn recorded(
        &mut self,
        step: usize,
        index: u32,
        attempt: u32,
    ) -> Result<Option<FinishedCall>, Ended> {
        let plan = self.plan.clone();
        let compiled = &plan.steps[step];
        let key: CallKey =
            (compiled.step().id.clone(), compiled.step().foreach.as_ref().map(|_| u64::from(index)), attempt);
        if let Some(result) = self.imported.remove(&key) {
            return Ok(Some(self.import(&key, result)));
        }
        let Some(memo) = self.memo.clone() else { return Ok(None) };
        if let Some(recorded) = memo.results.get(&key) {
            if self.mode == Mode::Replay {
                self.demand_equal(compiled, step, index, recorded.args_hash.as_deref()).map_err(Ended::Mismatch)?;
                self.calls_checked += 1;
            }
            let store = self.engine.store().clone();
            let mut result = memo.result(&*store, &key.0, recorded).map_err(Ended::Broken)?;
            let limit = self.scope.limits().max_output_bytes;
            let whole = pipeline::hand_over_by_reference(&mut result, recorded.outcome.data_blob.as_deref(), limit);
            return Ok(Some(FinishedCall { whole, ..FinishedCall::new(result, Position::default(), false) }));
        }
        match memo.pending.get(&key) {
            _ if self.mode == Mode::Replay => Ok(Some(self.beyond_record(compiled, attempt))),
            Some(call) => self.recover(compiled, call).await,
            None => Ok(None),
        }
    }

    /// Takes a parent run's result over into this run's record.
    fn import(&mut self, key: &CallKey, result: ToolResult) -> FinishedCall {
        let parent = result.run_id;
        let mut parts = result.into_parts();
        parts.run_id = self.scope.run_id;
        parts.effects = None; // the parent had them, not this run
        parts.user_message = Some(format!("Taken over from run {parent}"));
        let blob = parts.data.as_ref().and_then(|data| {
            let json = serde_json::to_vec(data).ok()?; // JSON that was read from a record can be written again
            (json.len() > INLINE_BYTES).then(|| Blob::new(json))
        });
        let data_blob = blob.as_ref().map(|b| b.sha256.clone());
        self.scope.recorder.push_blobs(blob);
        self.scope.recorder.push(&Record::Refused(RefusedRecord {
            call_id: parts.call_id,
            step_id: key.0.clone(),
            tool: parts.tool.clone(),
            attempt: parts.attempt,
            never_ran: false,
            index: key.1,
            args: None,
            outcome: OutcomeRecord {
                status: parts.status,
                data: parts.data.clone().filter(|_| data_blob.is_none()),
                data_blob: data_blob.clone(),
                error: parts.error.clone(),
                started: parts.started_at.as_microsecond(),
                took_us: parts.ended_at.as_microsecond() - parts.started_at.as_microsecond(),
                effects: None,
                user_message: parts.user_message.clone(),
                debug_message: None,
            },
        }));
        let position = self.scope.recorder.flush(Durability::Deferred).unwrap_or_default();
        let mut result = ToolResult::or_internal_error(parts);
        let limit = self.scope.limits().max_output_bytes;
        let whole = pipeline::hand_over_by_reference(&mut result, data_blob.as_deref(), limit);
        FinishedCall { whole, ..FinishedCall::new(result, position, false) }
    }

    fn demand_equal(
        &self,
        compiled: &CompiledStep,
        step: usize,
        index: u32,
        recorded: Option<&str>,
    ) -> Result<(), Failure> {
        let Some(recorded) = recorded else { return Ok(()) };
        let iteration = self.iteration(compiled, step, index);
        let args = self.resolve(compiled, iteration.as_ref())?;
        let marks = SecretMarks::of(&self.scope.tools.snapshot, &self.scope.policy, &compiled.step().tool);
        let secrets = self.scope.recorder.secrets();
        let hash = secrets
            .hash(marks, &args, Placeholders::Stay)
            .map_err(|e| Failure::new(ErrorCode::ReplayMismatch, format!("the arguments have no hash: {e}")))?;
        let resolved = hash.trim_start_matches("sha256:");
        if resolved == recorded {
            return Ok(());
        }
        Err(Failure::new(
            ErrorCode::ReplayMismatch,
            format!("step {} resolves to other arguments than recorded", compiled.step().id),
        )
        .detail("step", compiled.step().id.to_string())
        .detail("iteration", iteration.map_or(Value::Null, |i| i.index.into()))
        .detail("recorded", format!("sha256:{recorded}"))
        .detail("resolved", format!("sha256:{resolved}")))
    }

    /// In a replay, a call that is not in the record did not happen.
    fn beyond_record(&self, compiled: &CompiledStep, attempt: u32) -> FinishedCall {
        let call = self.step_call(compiled, None, attempt, Map::new());
        pipeline::skip(&self.engine, &self.scope, &call, "The record ends before this call".to_owned())
    }

    /// Handles a call that was in flight when the process died, as described in the durability guide.
    async fn recover(&mut self, compiled: &CompiledStep, call: &CallRecord) -> Result<Option<FinishedCall>, Ended> {
        let settlement = self.memo.as_ref().and_then(|m| m.settlements.get(&call.call_id)).cloned();
        match settlement {
            Some((Settlement::AssumeDone, by)) => {
                return Ok(Some(pipeline::assume_done(&self.engine, &self.scope, call, &by)));
            }
            Some((Settlement::Rerun, _)) => return Ok(None),
            Some((Settlement::Abort, by)) => {
                let settled = pipeline::abandon(&self.engine, &self.scope, call, &by);
                self.scope.cancel.cancel();
                self.aborted_by = Some(by);
                return Ok(Some(settled));
            }
            None => {}
        }
        let in_doubt = match compiled.idempotency {
            Idempotency::None => true,
            Idempotency::Pure => false,
            // A call is made again with its arguments, and a secret one is not kept.
            Idempotency::Idempotent | Idempotency::Key => !call.secrets.is_empty(),
            Idempotency::Etag => {
                let Some(memo) = self.memo.clone() else { return Ok(None) };
                match pipeline::reconcile(&self.engine, &self.scope, &memo.view, call).await.map_err(Ended::Broken)? {
                    Reconciliation::Settled(settled) => return Ok(Some(settled)),
                    Reconciliation::NotDone => false,
                    Reconciliation::Unknown => true,
                }
            }
        };
        if !in_doubt {
            return Ok(None);
        }
        self.in_doubt.push(call.call_id);
        Ok(Some(pipeline::in_doubt(&self.engine, &self.scope, call)))
    }
}
