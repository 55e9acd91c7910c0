//! Runs a plan: carries out the scheduler's actions through the pipeline, and keeps the steps' outputs.
//!
//! `drive` is the main loop. The submodules compute the arguments of a call ([`arguments`]), look it up in the record
//! ([`recorded`]), make it ([`dispatch`]), apply its result ([`outcome`]), and handle steps that repeat ([`loops`]).

mod arguments;
mod dispatch;
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
    pipeline::Settled,
    record::{CancelRecord, PausedRecord, Record},
    scope::RunScope,
    store::Position,
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
    Call { step: usize, index: u32, settled: Settled },
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
        // Calls with effects that others run beside: on tasks of their own, so that one is prepared while another's record
        // reaches the disk, on whichever core is free.
        let mut tasks: FuturesUnordered<Task> = FuturesUnordered::new();
        let cut_off = CancellationToken::new();
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
                        let event = self.expand(step);
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
                        match self.recorded(step, index, attempt).await {
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
                                let is_alone = calls.is_empty() && tasks.is_empty() && actions.is_empty();
                                let work = self.dispatch(step, index, attempt, is_alone);
                                if is_alone || !self.plan.steps[step].side_effects || self.mode != Mode::Live {
                                    calls.push(work);
                                } else {
                                    tasks.push(task(work, cut_off.clone()));
                                }
                            }
                            Err(ended) => return ended,
                        }
                    }
                    Action::Call { .. } => {}
                }
            }
            if give_up.is_some() && calls.is_empty() && tasks.is_empty() {
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
                    cut_off.cancel();
                    while tasks.next().await.is_some() {}
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
                finished = tasks.next(), if !tasks.is_empty() => {
                    if let Some(event) = finished.flatten().map(|f| self.take_in(f)) {
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
}
