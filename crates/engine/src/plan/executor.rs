//! Runs a plan: carries out the scheduler's actions through the pipeline, and keeps the steps' outputs.
//!
//! `drive` is the main loop, `act` carries out one action, `dispatch` makes a call. The submodules compute the arguments of a
//! call ([`arguments`]), look it up in the record ([`recorded`]), apply its result ([`outcome`]), and handle steps that
//! repeat ([`loops`]).

mod arguments;
mod loops;
mod outcome;
mod recorded;

use self::loops::Loop;
use super::{
    check::CompiledPlan,
    memo::{CallKey, Memo},
    report::StepReport,
    scheduler::{Action, Event, Outcome, RunEnd, Scheduler},
};
use crate::{
    Engine,
    pipeline::{self, FinishedCall},
    record::{CancelRecord, PausedRecord, Record, RetryRecord},
    scope::RunScope,
    secrets,
    store::{Durability, Position},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use serde_json::{Map, Value};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use toolyard_protocol::{CallId, Effects, ErrorCode, Failure, ToolResult};

/// The purpose of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Execute the plan; calls in the memo are not made again.
    Live,
    /// Predict: results are not durable, and steps that cannot be predicted are skipped.
    DryRun,
    /// Call nothing; demand that every argument resolves as recorded.
    Replay,
}

/// How driving ended.
pub(super) enum Ended {
    /// The scheduler is done.
    Run(RunEnd),
    /// The engine is shutting down; the run can be resumed.
    Interrupted,
    /// A replay resolved other arguments than recorded.
    Mismatch(Failure),
    /// The record cannot be read or written.
    Broken(Failure),
}

type Work = Pin<Box<dyn Future<Output = Finished> + Send>>;
/// A call in a separate task; `None` if it was aborted.
type Task = Pin<Box<dyn Future<Output = Option<Finished>> + Send>>;

/// Runs a call in a separate task, which ends with the run or when it is aborted.
fn task(work: Work, cut_off: CancellationToken) -> Task {
    let task = AbortOnDropHandle::new(tokio::spawn(async move { cut_off.run_until_cancelled(work).await }));
    Box::pin(async move {
        match task.await {
            Ok(finished) => finished,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => None,
            },
        }
    })
}

#[allow(clippy::large_enum_variant)] // moved once, from the future that made it
enum Finished {
    Call { step: usize, index: u32, settled: FinishedCall },
    Timer { step: usize, index: u32 },
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

/// The calls in flight while a plan is executed.
struct Drive {
    scheduler: Scheduler,
    actions: VecDeque<Action>,
    calls: FuturesUnordered<Work>,
    /// Calls with effects that may run in parallel with others, on separate tasks, so that one is prepared while
    /// another's record reaches the disk, on any free core.
    tasks: FuturesUnordered<Task>,
    timers: FuturesUnordered<Work>,
    cut_off: CancellationToken,
    cancelled: bool,
    /// Set when the engine shuts down: until then, calls under way may end by themselves.
    give_up: Option<Instant>,
}

impl Drive {
    fn new(mut scheduler: Scheduler) -> Self {
        Self {
            actions: scheduler.apply(Event::Start).into(),
            scheduler,
            calls: FuturesUnordered::new(),
            tasks: FuturesUnordered::new(),
            timers: FuturesUnordered::new(),
            cut_off: CancellationToken::new(),
            cancelled: false,
            give_up: None,
        }
    }

    fn apply(&mut self, event: Event) {
        self.actions.extend(self.scheduler.apply(event));
    }

    /// Drops the calls in flight. They have no result, as after a crash, and are handled in the same way when the run
    /// is resumed. Therefore no task may remain that would record a result when it is stopped.
    async fn cut_off(&mut self) {
        self.calls.clear();
        self.cut_off.cancel();
        while self.tasks.next().await.is_some() {}
    }
}

/// Runs one plan.
pub(super) struct Executor {
    pub(super) engine: Engine,
    pub(super) scope: Arc<RunScope>,
    pub(super) plan: Arc<CompiledPlan>,
    pub(super) memo: Option<Arc<Memo>>,
    pub(super) mode: Mode,
    pub(super) context: Map<String, Value>,
    pub(super) started_at: jiff::Timestamp,
    /// Results of another run that are used in this one (a fork).
    pub(super) imported: HashMap<CallKey, ToolResult>,

    outputs: HashMap<String, Value>,
    loops: HashMap<usize, Loop>,
    /// The position of the last result with side effects of each step; dependent steps wait for it.
    barriers: Vec<Option<Position>>,
    unpredictable: HashSet<usize>,
    pub(super) reports: Vec<StepReport>,
    pub(super) effects: Effects,
    pub(super) calls_checked: u64,
    in_doubt: Vec<CallId>,
    /// Who gave up a call in doubt, until the run has been stopped for it.
    aborted_by: Option<String>,
    /// The reason why the run was stopped, if nobody cancelled it.
    pub(super) stopped: Option<Failure>,
}

impl Executor {
    pub(super) fn new(
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
    pub(super) async fn drive(&mut self) -> Ended {
        let ids = self.plan.steps.iter().map(|s| s.step().id.clone()).collect();
        let shapes = self.plan.steps.iter().map(|s| s.shape.clone()).collect();
        let max_concurrency = if self.mode == Mode::Live { self.scope.limits().max_concurrency } else { 1 };
        let scheduler = match Scheduler::new(self.scope.run_id, ids, shapes, max_concurrency) {
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
        let mut on = Drive::new(scheduler);
        loop {
            while let Some(action) = on.actions.pop_front() {
                if let Some(ended) = self.act(&mut on, action).await {
                    return ended;
                }
            }
            if on.give_up.is_some() && on.calls.is_empty() && on.tasks.is_empty() {
                return Ended::Interrupted;
            }
            let finished = tokio::select! {
                biased;
                // Stops come first: in a run of calls that end at once they would otherwise never be seen, and a call that
                // ended because the run was stopped must not count as its step's own failure.
                () = self.scope.cancel.cancelled(), if !on.cancelled => {
                    self.cancel(&mut on, "a request", "cancelled");
                    None
                }
                () = self.engine.shutdown_token().cancelled(), if on.give_up.is_none() && self.mode == Mode::Live => {
                    // Waiting need not continue: a wait is recorded with the time at which it ends.
                    on.timers.clear();
                    on.give_up = Some(Instant::now() + self.engine.options().grace / 2);
                    None
                }
                () = until(on.give_up), if on.give_up.is_some() => {
                    on.cut_off().await;
                    self.scope.cancel.cancel();
                    return Ended::Interrupted;
                }
                () = &mut run_deadline, if !on.cancelled => {
                    self.scope.cancel.cancel();
                    let limit = self.scope.limits().max_run_ms;
                    let reason = format!("the run took longer than maxRunMs = {limit}");
                    let failure = Failure::new(ErrorCode::LimitExceeded, reason.clone());
                    self.stopped = Some(failure.detail("limit", "maxRunMs").detail("value", limit).retryable(false));
                    self.cancel(&mut on, "the policy", &reason);
                    None
                }
                finished = on.calls.next(), if !on.calls.is_empty() => finished,
                finished = on.tasks.next(), if !on.tasks.is_empty() => finished.flatten(),
                finished = on.timers.next(), if on.give_up.is_none() && !on.timers.is_empty() => finished,
            };
            if let Some(finished) = finished {
                let event = self.take_in(finished);
                on.apply(event);
            }
        }
    }

    /// Carries out the scheduler's action. Returns how the run ended, if the action ends it.
    async fn act(&mut self, on: &mut Drive, action: Action) -> Option<Ended> {
        match action {
            Action::Done(end) => return Some(self.finish(end)),
            Action::Ended { step, state } => self.step_ended(step, state),
            Action::Expand { step } => {
                let event = self.expand(step);
                on.apply(event);
            }
            Action::Wait { step, index, attempt, delay_ms } => {
                let delay = self.delay(step, index, attempt, delay_ms);
                on.timers.push(Box::pin(async move {
                    tokio::time::sleep(delay).await;
                    Finished::Timer { step, index }
                }));
            }
            Action::Call { step, index, attempt } if on.give_up.is_none() => {
                match self.recorded(step, index, attempt).await {
                    Ok(Some(settled)) => {
                        if let Some(by) = self.aborted_by.take() {
                            self.cancel(on, &by, "a call in doubt was given up");
                        }
                        let event = self.settled(step, index, settled);
                        if !on.cancelled && is_cancelled(&event) {
                            // Recorded as stopped before the process died: the run is, too.
                            self.cancel(on, "a request", "cancelled");
                        }
                        on.apply(event);
                    }
                    Ok(None) => {
                        let is_alone = on.calls.is_empty() && on.tasks.is_empty() && on.actions.is_empty();
                        let work = self.dispatch(step, index, attempt, is_alone);
                        if is_alone || !self.plan.steps[step].side_effects || self.mode != Mode::Live {
                            on.calls.push(work);
                        } else {
                            on.tasks.push(task(work, on.cut_off.clone()));
                        }
                    }
                    Err(ended) => return Some(ended),
                }
            }
            Action::Call { .. } => {}
        }
        None
    }

    /// The future that makes a call.
    fn dispatch(&mut self, step: usize, index: u32, attempt: u32, is_alone: bool) -> Work {
        let plan = self.plan.clone();
        let compiled = &plan.steps[step];
        let iteration = self.iteration(compiled, step, index);
        let key: CallKey = (compiled.step().id.clone(), iteration.as_ref().map(|i| i.index), attempt);
        let recovered = self.memo.as_ref().and_then(|m| m.pending.get(&key)).map(|c| c.call_id);
        let args = self.resolve(compiled, iteration.as_ref());
        let args = match args.and_then(|args| secrets::demand_secrets(&args).map(|()| args)) {
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
        if let Err(error) = self.scope.recorder.flush(Durability::Deferred) {
            tracing::error!(%error, "a retry could not be recorded");
        }
        delay
    }

    fn take_in(&mut self, finished: Finished) -> Event {
        match finished {
            Finished::Call { step, index, settled } => self.settled(step, index, settled),
            Finished::Timer { step, index } => Event::TimerFired { step, index },
        }
    }

    fn cancel(&mut self, on: &mut Drive, by: &str, reason: &str) {
        if self.mode == Mode::Live && self.memo.as_ref().is_none_or(|m| !m.cancelled) {
            let at = self.engine.clock().now();
            self.scope.recorder.push(&Record::Cancel(CancelRecord {
                at,
                by: by.to_owned(),
                reason: reason.to_owned(),
            }));
        }
        on.cancelled = true;
        on.apply(Event::Cancel);
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
}
