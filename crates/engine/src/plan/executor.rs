//! Drives a plan: carries out what the scheduler decides, through the one pipeline, and keeps what steps produced.

use super::{
    check::{CompiledPlan, CompiledStep},
    memo::{CallKey, Memo},
    reference::{self, Env},
    report::{IterationReport, StepReport},
    scheduler::{Action, Event, Outcome, RunEnd, Scheduler, StepState},
};
use crate::{
    Blob, Engine,
    pipeline::{self, Reconciliation, Settled, StepCall},
    record::{CancelRecord, INLINE_BYTES, PausedRecord, Record, RefusedRecord, RetryRecord, Settlement},
    scope::RunScope,
    store::{Durability, Position},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use serde_json::{Map, Value, json};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use toolyard_protocol::{
    CallId, Effects, ErrorCode, Failure, Idempotency, Iteration, ResultStatus, ToolResult, canonical,
};

/// What the memo is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Run for real; what the memo has is not done again.
    Live,
    /// Predict: results are not durable, what cannot be predicted is skipped.
    DryRun,
    /// Call nothing; demand that every argument resolves as recorded.
    Replay,
}

/// How driving ended.
pub(crate) enum Ended {
    /// The scheduler is done.
    Run(RunEnd),
    /// The engine is shutting down; the run can be taken up again.
    Interrupted,
    /// A replay resolved other arguments than recorded.
    Mismatch(Failure),
    /// The record cannot be read or written.
    Broken(Failure),
}

type Work = Pin<Box<dyn Future<Output = Finished> + Send>>;

#[allow(clippy::large_enum_variant)] // moved once, from the future that made it
enum Finished {
    Call { step: usize, index: u32, settled: Settled },
    Timer { step: usize, index: u32 },
}

struct Loop {
    items: Arc<Vec<Value>>,
    results: Vec<Option<IterationReport>>,
    /// Outputs that the results only refer to.
    whole: HashMap<u64, Map<String, Value>>,
}

fn is_cancelled(event: &Event) -> bool {
    matches!(event, Event::Settled { outcome: Outcome::Cancelled, .. })
}

/// Waits for a moment that may not have been set.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Runs one plan.
pub(crate) struct Executor {
    pub(crate) engine: Engine,
    pub(crate) scope: Arc<RunScope>,
    pub(crate) plan: Arc<CompiledPlan>,
    pub(crate) memo: Option<Arc<Memo>>,
    pub(crate) mode: Mode,
    pub(crate) context: Map<String, Value>,
    pub(crate) started_at: jiff::Timestamp,
    /// Results of another run that stand for this one's: for a fork.
    pub(crate) imported: HashMap<CallKey, ToolResult>,

    outputs: HashMap<String, Value>,
    loops: HashMap<usize, Loop>,
    /// Where the last result with side effects of each step stands; dependents wait for it.
    barriers: Vec<Option<Position>>,
    scheduled: HashSet<usize>,
    unpredictable: HashSet<usize>,
    pub(crate) reports: Vec<StepReport>,
    pub(crate) effects: Effects,
    pub(crate) calls_checked: u64,
    in_doubt: Vec<CallId>,
    /// Who gave up a call in doubt, until the run has been stopped for it.
    aborted_by: Option<String>,
    /// Why the run was stopped, when nobody asked for it.
    pub(crate) stopped: Option<Failure>,
}

impl Executor {
    pub(crate) fn new(
        engine: Engine,
        scope: Arc<RunScope>,
        plan: Arc<CompiledPlan>,
        mode: Mode,
        started_at: jiff::Timestamp,
    ) -> Self {
        let reports = plan.steps.iter().map(|s| StepReport::new(s.step())).collect();
        let barriers = vec![None; plan.steps.len()];
        Self {
            engine,
            scope,
            plan,
            memo: None,
            mode,
            context: Map::new(),
            started_at,
            imported: HashMap::new(),
            outputs: HashMap::new(),
            loops: HashMap::new(),
            barriers,
            scheduled: HashSet::new(),
            unpredictable: HashSet::new(),
            reports,
            effects: Effects::default(),
            calls_checked: 0,
            in_doubt: Vec::new(),
            aborted_by: None,
            stopped: None,
        }
    }

    /// Drives the plan to its end.
    pub(crate) async fn drive(&mut self) -> Ended {
        let ids = self.plan.steps.iter().map(|s| s.step().id.clone()).collect();
        let shapes = self.plan.steps.iter().map(|s| s.shape.clone()).collect();
        let max_concurrency = if self.mode == Mode::Live { self.scope.limits().max_concurrency } else { 1 };
        let mut scheduler = match Scheduler::new(self.scope.run_id, ids, shapes, max_concurrency) {
            Ok(scheduler) => scheduler,
            Err(_) => {
                return Ended::Broken(Failure::new(
                    ErrorCode::ValidationError,
                    "the plan's steps depend on each other in a circle",
                ));
            }
        };
        let run_deadline = tokio::time::sleep(Duration::from_millis(self.scope.limits().max_run_ms));
        tokio::pin!(run_deadline);
        let mut calls: FuturesUnordered<Work> = FuturesUnordered::new();
        let mut timers: FuturesUnordered<Work> = FuturesUnordered::new();
        let mut actions: VecDeque<Action> = scheduler.apply(Event::Start).into();
        let mut cancelled = false;
        // Set when the engine shuts down: until then, calls under way may end by themselves.
        let mut give_up: Option<Instant> = None;
        loop {
            while let Some(action) = actions.pop_front() {
                match action {
                    Action::Done(end) => return self.finish(end),
                    Action::Ended { step, state } => self.step_ended(step, state),
                    Action::Expand { step } => {
                        let event = self.expand(step).await;
                        actions.extend(scheduler.apply(event));
                    }
                    Action::Wait { step, index, attempt, delay_ms } => {
                        let delay = self.delay(step, index, attempt, delay_ms);
                        timers.push(Box::pin(async move {
                            tokio::time::sleep(delay).await;
                            Finished::Timer { step, index }
                        }));
                    }
                    Action::Call { step, index, attempt } if give_up.is_none() => {
                        match self.call(step, index, attempt).await {
                            Ok(Some(settled)) => {
                                if let Some(by) = self.aborted_by.take() {
                                    cancelled = true;
                                    actions.extend(self.cancel(&mut scheduler, &by, "a call in doubt was given up"));
                                }
                                let event = self.settled(step, index, settled);
                                if !cancelled && is_cancelled(&event) {
                                    // Recorded as stopped before the process died: the run is, too.
                                    cancelled = true;
                                    actions.extend(self.cancel(&mut scheduler, "a request", "cancelled"));
                                }
                                actions.extend(scheduler.apply(event));
                            }
                            Ok(None) => {
                                let future = self.dispatch(step, index, attempt);
                                calls.push(future);
                            }
                            Err(ended) => return ended,
                        }
                    }
                    Action::Call { .. } => {}
                }
            }
            if give_up.is_some() && calls.is_empty() {
                return Ended::Interrupted;
            }
            tokio::select! {
                biased;
                // Stops come first: in a run of calls that end at once they would otherwise never be seen, and a call that
                // ended because the run was stopped must not count as its step's own failure.
                () = self.scope.cancel.cancelled(), if !cancelled => {
                    cancelled = true;
                    actions.extend(self.cancel(&mut scheduler, "a request", "cancelled"));
                }
                () = self.engine.shutdown_token().cancelled(), if give_up.is_none() && self.mode == Mode::Live => {
                    // Waits need not be sat out: they are recorded with the time at which they end.
                    timers.clear();
                    give_up = Some(Instant::now() + self.engine.options().grace / 2);
                }
                () = until(give_up), if give_up.is_some() => {
                    // What is cut off here has no result, just as after a crash, and is settled the same way when the
                    // run is taken up again. So nobody may be left who would record one when told to stop.
                    calls.clear();
                    self.scope.cancel.cancel();
                    return Ended::Interrupted;
                }
                () = &mut run_deadline, if !cancelled => {
                    cancelled = true;
                    self.scope.cancel.cancel();
                    let limit = self.scope.limits().max_run_ms;
                    let reason = format!("the run took longer than maxRunMs = {limit}");
                    let failure = Failure::new(ErrorCode::LimitExceeded, reason.clone());
                    self.stopped = Some(failure.detail("limit", "maxRunMs").detail("value", limit).retryable(false));
                    actions.extend(self.cancel(&mut scheduler, "the policy", &reason));
                }
                finished = calls.next(), if !calls.is_empty() => {
                    if let Some(event) = finished.map(|f| self.take_in(f)) {
                        actions.extend(scheduler.apply(event));
                    }
                }
                finished = timers.next(), if give_up.is_none() && !timers.is_empty() => {
                    if let Some(event) = finished.map(|f| self.take_in(f)) {
                        actions.extend(scheduler.apply(event));
                    }
                }
            }
        }
    }

    fn take_in(&mut self, finished: Finished) -> Event {
        match finished {
            Finished::Call { step, index, settled } => self.settled(step, index, settled),
            Finished::Timer { step, index } => Event::TimerFired { step, index },
        }
    }

    fn cancel(&mut self, scheduler: &mut Scheduler, by: &str, reason: &str) -> Vec<Action> {
        if self.mode == Mode::Live && self.memo.as_ref().is_none_or(|m| !m.cancelled) {
            let at = self.engine.clock().now();
            self.scope.recorder.push(&Record::Cancel(CancelRecord {
                at,
                by: by.to_owned(),
                reason: reason.to_owned(),
            }));
        }
        scheduler.apply(Event::Cancel)
    }

    fn finish(&mut self, end: RunEnd) -> Ended {
        if end == RunEnd::Paused && self.mode == Mode::Live {
            let message =
                "A call was interrupted and cannot be asked whether it happened. Choose: assume-done, rerun or abort.";
            let at = self.engine.clock().now();
            let call_ids = std::mem::take(&mut self.in_doubt);
            self.scope.recorder.push(&Record::Paused(PausedRecord { at, call_ids, message: message.to_owned() }));
        }
        Ended::Run(end)
    }

    fn env<'a>(&'a self, item: Option<(&'a Value, u64)>, run_id: &'a str, started_at: &'a str) -> Env<'a> {
        Env { steps: &self.outputs, vars: &self.plan.vars, run_id, started_at, context: &self.context, item }
    }

    /// Finds out a loop's list.
    async fn expand(&mut self, step: usize) -> Event {
        let plan = self.plan.clone();
        let compiled = &plan.steps[step];
        let failed =
            |code| Event::Settled { step, index: 0, outcome: Outcome::Failed { code, retryable: Some(false) } };
        match self.items(compiled) {
            Ok(items) => {
                let count = items.len() as u32;
                let results = vec![None; items.len()];
                self.reports[step].iterations = Some(Vec::new());
                self.loops.insert(step, Loop { items: Arc::new(items), results, whole: HashMap::new() });
                Event::Expanded { step, count }
            }
            Err(failure) if self.mode == Mode::DryRun && self.depends_on_unpredictable(compiled) => {
                self.unpredictable.insert(step);
                self.reports[step].user_message = Some(format!("Cannot be predicted: {}", failure.message));
                self.loops.insert(step, Loop { items: Arc::default(), results: Vec::new(), whole: HashMap::new() });
                Event::Expanded { step, count: 0 }
            }
            Err(failure) => {
                let code = failure.code;
                let recorded =
                    self.memo.as_ref().is_some_and(|m| m.results.contains_key(&(compiled.step().id.clone(), None, 0)));
                self.reports[step].fail(ResultStatus::Error, failure.clone());
                if !recorded {
                    let call = self.step_call(compiled, None, 0, Map::new());
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

    fn depends_on_unpredictable(&self, compiled: &CompiledStep) -> bool {
        compiled.shape.depends_on.iter().any(|d| self.unpredictable.contains(d))
    }

    fn step_call(
        &self,
        compiled: &CompiledStep,
        iteration: Option<Iteration>,
        attempt: u32,
        args: Map<String, Value>,
    ) -> StepCall {
        StepCall {
            step_id: compiled.step().id.clone(),
            tool: compiled.step().tool.clone(),
            args,
            preview: compiled.step().preview.as_deref().map(|text| self.preview(compiled, text, iteration.as_ref())),
            iteration,
            attempt,
            timeout_ms: compiled.step().timeout_ms,
            first_of_step: false,
            recovered: None,
            cancel: self.scope.cancel.child_token(),
            asking: crate::Asking::default(),
        }
    }

    /// The plan's own line, with loop bindings filled in where that is possible: it is for people, so it never fails.
    fn preview(&self, compiled: &CompiledStep, text: &str, iteration: Option<&Iteration>) -> String {
        let (Some(foreach), Some(iteration)) = (&compiled.step().foreach, iteration) else { return text.to_owned() };
        let names = reference::BindingNames {
            item: &foreach.item_name,
            index: foreach.index_name.as_deref().unwrap_or("index"),
        };
        let env = self.env(Some((&iteration.item_value, iteration.index)), "", "");
        let filled =
            reference::compile(&Value::from(text), &[], Some(names)).and_then(|t| reference::resolve(&t, &env));
        match filled {
            Ok(Value::String(line)) => line.chars().take(500).collect(),
            _ => text.to_owned(),
        }
    }

    fn iteration(&self, compiled: &CompiledStep, step: usize, index: u32) -> Option<Iteration> {
        let foreach = compiled.step().foreach.as_ref()?;
        let item_value = self.loops.get(&step).and_then(|l| l.items.get(index as usize)).cloned().unwrap_or_default();
        Some(Iteration { index: u64::from(index), item_name: foreach.item_name.clone(), item_value })
    }

    fn resolve(&self, compiled: &CompiledStep, iteration: Option<&Iteration>) -> Result<Map<String, Value>, Failure> {
        let (run_id, started_at) = if compiled.args.iter().all(|(_, t)| matches!(t, reference::Template::Literal(_))) {
            (String::new(), String::new())
        } else {
            (self.scope.run_id.to_string(), self.started_at.to_string())
        };
        let env = self.env(iteration.map(|i| (&i.item_value, i.index)), &run_id, &started_at);
        let mut args = Map::with_capacity(compiled.args.len());
        for (key, template) in &compiled.args {
            let value = reference::resolve(template, &env).map_err(|e| {
                Failure::new(
                    ErrorCode::ValidationError,
                    format!("step {}, argument {key}: {}", compiled.step().id, e.message),
                )
                .detail("errors", vec![json!({"path": format!("/{key}{}", e.path), "message": e.message})])
                .retryable(false)
            })?;
            args.insert(key.clone(), value);
        }
        Ok(args)
    }

    /// Settles a call without dispatching it, where that is possible: recorded, imported, unresolvable.
    async fn call(&mut self, step: usize, index: u32, attempt: u32) -> Result<Option<Settled>, Ended> {
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
            return Ok(Some(Settled { whole, ..Settled::new(result, Position::default(), false) }));
        }
        match memo.pending.get(&key) {
            _ if self.mode == Mode::Replay => Ok(Some(self.beyond_record(compiled, index, attempt))),
            Some(call) => self.recover(compiled, call).await,
            None => Ok(None),
        }
    }

    /// Takes a parent run's result over into this run's record.
    fn import(&mut self, key: &CallKey, result: ToolResult) -> Settled {
        let parent = result.run_id;
        let mut parts = result.into_parts();
        parts.run_id = self.scope.run_id;
        parts.effects = None; // the parent had them, not this run
        parts.user_message = Some(format!("Taken over from run {parent}"));
        let blob = parts.data.as_ref().and_then(|data| {
            let json = serde_json::to_vec(data).unwrap_or_default();
            (json.len() > INLINE_BYTES).then(|| Blob::new(json))
        });
        let data_blob = blob.as_ref().map(|b| b.sha256.clone());
        self.scope.recorder.push_blobs(blob);
        self.scope.recorder.push(&Record::Refused(RefusedRecord {
            call_id: parts.call_id,
            step_id: key.0.clone(),
            tool: parts.tool.clone(),
            attempt: parts.attempt,
            index: key.1,
            args: None,
            outcome: crate::record::OutcomeRecord {
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
        let position = self.scope.recorder.flush(Durability::Ride).unwrap_or_default();
        let mut result = pipeline::valid(parts);
        let limit = self.scope.limits().max_output_bytes;
        let whole = pipeline::hand_over_by_reference(&mut result, data_blob.as_deref(), limit);
        Settled { whole, ..Settled::new(result, position, false) }
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
        let hash = canonical::hash(&args).unwrap_or_default();
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

    /// In a replay, what the record does not have did not happen.
    fn beyond_record(&self, compiled: &CompiledStep, index: u32, attempt: u32) -> Settled {
        let mut call = self.step_call(compiled, None, attempt, Map::new());
        call.first_of_step = false;
        let _ = index;
        pipeline::skip(&self.engine, &self.scope, &call, "The record ends before this call".to_owned())
    }

    /// A call that was under way when the process died: the table of the durability contract.
    async fn recover(
        &mut self,
        compiled: &CompiledStep,
        call: &crate::record::CallRecord,
    ) -> Result<Option<Settled>, Ended> {
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
            Idempotency::Pure | Idempotency::Idempotent | Idempotency::Key => false,
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

    /// The future that makes a call.
    fn dispatch(&mut self, step: usize, index: u32, attempt: u32) -> Work {
        let plan = self.plan.clone();
        let compiled = &plan.steps[step];
        let iteration = self.iteration(compiled, step, index);
        let first_of_step = self.scheduled.insert(step)
            && !self.memo.as_ref().is_some_and(|m| m.scheduled.contains(&compiled.step().id));
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
        call.first_of_step = first_of_step;
        call.recovered = recovered;
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
    fn delay(&mut self, step: usize, index: u32, attempt: u32, delay_ms: u64) -> Duration {
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
        let delay = Duration::from_millis(delay_ms);
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

    /// Takes a call's result in.
    fn settled(&mut self, step: usize, index: u32, settled: Settled) -> Event {
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
            // In a dry run a step that cannot be predicted does not hold up the rest; a call a person vouched for neither.
            ResultStatus::Skipped => {
                self.unpredictable.insert(step);
                Outcome::Ok
            }
            ResultStatus::Cancelled if self.scope.cancel.is_cancelled() => Outcome::Cancelled,
            _ if in_doubt => Outcome::InDoubt,
            status => {
                let error = result.error.as_ref();
                let code = error.map_or(ErrorCode::InternalError, |e| e.code);
                // A call that may have happened and cannot be asked is never made again on our own account.
                let reason =
                    error.and_then(|e| e.details.as_ref()).and_then(|d| d.get("reason")).and_then(Value::as_str);
                let unsafe_again = compiled.idempotency == Idempotency::None
                    && (status == ResultStatus::Timeout || reason == Some(crate::attempt::PANIC));
                let retryable = if unsafe_again { Some(false) } else { error.and_then(|e| e.retryable) };
                Outcome::Failed { code, retryable }
            }
        };
        let report = &mut self.reports[step];
        report.attempts += 1;
        if compiled.step().foreach.is_some() {
            let iteration = IterationReport::new(u64::from(index), result);
            if let Some(looped) = self.loops.get_mut(&step) {
                if let Some(slot) = looped.results.get_mut(index as usize) {
                    *slot = Some(iteration);
                }
                if let Some(whole) = settled.whole {
                    looped.whole.insert(u64::from(index), whole);
                }
            }
        } else {
            report.take(result);
            if let Some(data) = settled.whole.or_else(|| result.data.clone()) {
                self.outputs.insert(compiled.step().id.to_string(), Value::Object(data));
            }
        }
        Event::Settled { step, index, outcome }
    }

    fn step_ended(&mut self, step: usize, state: StepState) {
        let plan = self.plan.clone();
        let compiled = &plan.steps[step];
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
        let results = serde_json::to_value(results).unwrap_or_default();
        self.outputs
            .insert(id.to_owned(), json!({"items": items, "results": results, "count": count, "okCount": ok_count}));
    }

    fn never_ran(&mut self, step: usize, why: String) {
        let plan = self.plan.clone();
        let compiled = &plan.steps[step];
        self.reports[step].skip(why.clone());
        let recorded = self.memo.as_ref().is_some_and(|m| m.skipped.contains(&compiled.step().id));
        if self.mode == Mode::Live && !recorded {
            let call = self.step_call(compiled, None, 0, Map::new());
            pipeline::skip(&self.engine, &self.scope, &call, why);
        }
    }
}
