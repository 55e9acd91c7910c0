//! The plan scheduler: a pure state machine. An event goes in, actions come out; no clock, no tools, no store.
//!
//! Steps start in a fixed order: the plan's own, bent only where a dependency demands it. A step starts when those
//! before it have started and what it depends on has ended. Several steps run at once only if all of them are
//! read-only; a step that writes runs alone, though its foreach iterations may run side by side.

use std::collections::{BTreeSet, HashMap};
use toolyard_protocol::{ErrorCode, OnError, RunId, StepId, canonical};

/// The longest wait between two tries.
const MAX_DELAY_MS: u64 = 30_000;

/// A step as the scheduler sees it.
#[derive(Debug, Clone)]
pub struct StepShape {
    /// Steps that must have succeeded before.
    pub depends_on: Vec<usize>,
    /// Whether it may run beside other read-only steps.
    pub read_only: bool,
    /// Iterations side by side; `None` when the step is not a foreach.
    pub foreach: Option<u32>,
    /// What a failure does.
    pub on_error: OnError,
    /// Total tries, already clamped by policy.
    pub max_attempts: u32,
    /// First delay between tries.
    pub backoff_ms: u64,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Begin.
    Start,
    /// A foreach's list is known.
    Expanded {
        /// Step.
        step: usize,
        /// Items.
        count: u32,
    },
    /// A call has its outcome.
    Settled {
        /// Step.
        step: usize,
        /// Iteration, 0 for a plain step.
        index: u32,
        /// Outcome.
        outcome: Outcome,
    },
    /// A wait is over.
    TimerFired {
        /// Step.
        step: usize,
        /// Iteration.
        index: u32,
    },
    /// Somebody wants it to stop.
    Cancel,
}

/// How a call ended, as far as scheduling cares.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Well.
    Ok,
    /// Badly.
    Failed {
        /// The code.
        code: ErrorCode,
        /// What the tool said about trying again.
        retryable: Option<bool>,
    },
    /// Stopped.
    Cancelled,
    /// Nobody knows: a person must say.
    InDoubt,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Find out a foreach's list, then say `Expanded` (or `Settled` with a failure).
    Expand {
        /// Step.
        step: usize,
    },
    /// Make a call, then say `Settled`.
    Call {
        /// Step.
        step: usize,
        /// Iteration.
        index: u32,
        /// Try, from 1.
        attempt: u32,
    },
    /// Wait, then say `TimerFired`.
    Wait {
        /// Step.
        step: usize,
        /// Iteration.
        index: u32,
        /// The try that comes after.
        attempt: u32,
        /// How long.
        delay_ms: u64,
    },
    /// A step ended.
    Ended {
        /// Step.
        step: usize,
        /// How.
        state: StepState,
    },
    /// The run ended.
    Done(RunEnd),
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepState {
    /// Well.
    Ok,
    /// Badly.
    Failed,
    /// It never ran, because of this step.
    Skipped {
        /// The step whose end was the cause.
        because: usize,
    },
    /// It never ran or did not finish, because the run was stopped.
    Cancelled,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// As the plan allows.
    Finished,
    /// This step failed and the plan says stop.
    Failed {
        /// Which.
        step: usize,
    },
    /// It was stopped.
    Cancelled,
    /// It waits for a person.
    Paused,
}

#[derive(Debug, Clone)]
enum Phase {
    Waiting,
    Expanding,
    Running(Running),
    Ended(StepState),
}

#[derive(Debug, Clone, Default)]
struct Running {
    count: u32,
    next: u32,
    in_flight: u32,
    ok: u32,
    failed: u32,
    cancelled: u32,
    /// No further iterations are started.
    closed: bool,
    attempts: HashMap<u32, u32>,
    timers: BTreeSet<u32>,
}

/// The state of a plan's run.
pub struct Scheduler {
    run_id: RunId,
    ids: Vec<StepId>,
    shapes: Vec<StepShape>,
    phases: Vec<Phase>,
    order: Vec<usize>,
    cursor: usize,
    running: BTreeSet<usize>,
    max_concurrency: u32,
    failed_by: Option<usize>,
    cancelled: bool,
    in_doubt: bool,
    done: bool,
}

/// Orders steps: the plan's order, bent only where a dependency demands it. `Err` holds one cycle.
pub fn topological_order(dependencies: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let n = dependencies.len();
    let mut missing: Vec<usize> = dependencies.iter().map(Vec::len).collect();
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); n];
    for (step, needs) in dependencies.iter().enumerate() {
        for &needed in needs {
            dependents[needed].push(step);
        }
    }
    let mut ready: BTreeSet<usize> = (0..n).filter(|&i| missing[i] == 0).collect();
    let mut order = Vec::with_capacity(n);
    while let Some(step) = ready.pop_first() {
        order.push(step);
        for &dependent in &dependents[step] {
            missing[dependent] -= 1;
            if missing[dependent] == 0 {
                ready.insert(dependent);
            }
        }
    }
    if order.len() == n {
        return Ok(order);
    }
    // Every step left has an unmet dependency that is left too: following those must come back to itself.
    let left: BTreeSet<usize> = (0..n).filter(|&i| missing[i] > 0).collect();
    let mut path: Vec<usize> = Vec::new();
    let mut at = left.first().copied().unwrap_or_default();
    while !path.contains(&at) {
        path.push(at);
        at = dependencies[at].iter().copied().find(|d| left.contains(d)).unwrap_or(at);
    }
    let begin = path.iter().position(|&p| p == at).unwrap_or_default();
    Err(path.split_off(begin))
}

/// The wait before a try: doubles each time, at most 30 s, with full jitter that depends on nothing but these names.
pub fn retry_delay(run_id: RunId, step: &StepId, index: u32, failed_attempt: u32, backoff_ms: u64) -> u64 {
    let exponent = failed_attempt.saturating_sub(1).min(20);
    let ceiling = backoff_ms.saturating_mul(1 << exponent).min(MAX_DELAY_MS);
    let seed = canonical::sha256_hex(format!("{run_id}/{step}/{index}/{failed_attempt}").as_bytes());
    let fraction = u64::from_str_radix(&seed[..13], 16).unwrap_or_default(); // 52 bits
    ((u128::from(ceiling + 1) * u128::from(fraction)) >> 52) as u64
}

impl Scheduler {
    /// A run that has not begun. The dependencies must have no cycle.
    pub fn new(
        run_id: RunId,
        ids: Vec<StepId>,
        shapes: Vec<StepShape>,
        max_concurrency: u32,
    ) -> Result<Self, Vec<usize>> {
        let dependencies: Vec<Vec<usize>> = shapes.iter().map(|s| s.depends_on.clone()).collect();
        let order = topological_order(&dependencies)?;
        let phases = vec![Phase::Waiting; shapes.len()];
        Ok(Self {
            run_id,
            ids,
            shapes,
            phases,
            order,
            cursor: 0,
            running: BTreeSet::new(),
            max_concurrency: max_concurrency.max(1),
            failed_by: None,
            cancelled: false,
            in_doubt: false,
            done: false,
        })
    }

    /// Takes an event. Events that make no sense in the present state are ignored: a late timer, a second answer.
    pub fn apply(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.done {
            return actions;
        }
        match event {
            Event::Start => {}
            Event::Expanded { step, count } => {
                if matches!(self.phases[step], Phase::Expanding) {
                    self.phases[step] = Phase::Running(Running { count, ..Running::default() });
                }
            }
            Event::Settled { step, index, outcome } => self.settled(step, index, outcome, &mut actions),
            Event::TimerFired { step, index } => {
                let halted = self.halted();
                if let Phase::Running(r) = &mut self.phases[step]
                    && r.timers.remove(&index)
                {
                    if halted {
                        r.in_flight -= 1;
                        r.failed += 1;
                    } else {
                        let attempt = r.attempts.get(&index).copied().unwrap_or(1);
                        actions.push(Action::Call { step, index, attempt });
                    }
                }
            }
            Event::Cancel => {
                self.cancelled = true;
                for phase in &mut self.phases {
                    if let Phase::Running(r) = phase {
                        r.closed = true;
                        r.in_flight -= r.timers.len() as u32;
                        r.cancelled += r.timers.len() as u32;
                        r.timers.clear();
                    }
                }
            }
        }
        self.advance(&mut actions);
        actions
    }

    fn settled(&mut self, step: usize, index: u32, outcome: Outcome, actions: &mut Vec<Action>) {
        let halted = self.halted();
        let shape = &self.shapes[step];
        let delay_of = |attempt: u32| retry_delay(self.run_id, &self.ids[step], index, attempt, shape.backoff_ms);
        match &mut self.phases[step] {
            // The list could not be found out: the step itself has failed.
            Phase::Expanding => {
                let mut r = Running { closed: true, ..Running::default() };
                match outcome {
                    Outcome::Cancelled => r.cancelled = 1,
                    Outcome::InDoubt | Outcome::Failed { .. } | Outcome::Ok => r.failed = 1,
                }
                self.phases[step] = Phase::Running(r);
            }
            Phase::Running(r) if r.in_flight > 0 && !r.timers.contains(&index) => match outcome {
                Outcome::Ok => {
                    r.in_flight -= 1;
                    r.ok += 1;
                    r.attempts.remove(&index);
                }
                Outcome::Cancelled => {
                    r.in_flight -= 1;
                    r.cancelled += 1;
                }
                Outcome::InDoubt => {
                    r.in_flight -= 1;
                    r.closed = true;
                    self.in_doubt = true;
                }
                Outcome::Failed { code, retryable } => {
                    let attempt = r.attempts.get(&index).copied().unwrap_or(1);
                    if !halted && attempt < shape.max_attempts && may_retry(shape.on_error, code, retryable) {
                        let delay_ms = delay_of(attempt);
                        r.attempts.insert(index, attempt + 1);
                        r.timers.insert(index);
                        actions.push(Action::Wait { step, index, attempt: attempt + 1, delay_ms });
                    } else {
                        r.in_flight -= 1;
                        r.failed += 1;
                        if shape.on_error != OnError::Skip {
                            r.closed = true;
                        }
                    }
                }
            },
            _ => {}
        }
    }

    /// Calls under way or waiting for another try, over all steps.
    fn in_flight(&self) -> u32 {
        self.running.iter().map(|&s| if let Phase::Running(r) = &self.phases[s] { r.in_flight } else { 0 }).sum()
    }

    fn halted(&self) -> bool {
        self.cancelled || self.failed_by.is_some() || self.in_doubt
    }

    fn advance(&mut self, actions: &mut Vec<Action>) {
        loop {
            self.pump(actions);
            if !self.start_next(actions) {
                break;
            }
        }
        if self.running.is_empty() && (self.cursor == self.order.len() || self.in_doubt) {
            self.done = true;
            actions.push(Action::Done(if self.in_doubt && !self.cancelled {
                RunEnd::Paused
            } else if self.cancelled {
                RunEnd::Cancelled
            } else {
                self.failed_by.map_or(RunEnd::Finished, |step| RunEnd::Failed { step })
            }));
        }
    }

    /// Starts iterations of running steps and ends those that have none left.
    fn pump(&mut self, actions: &mut Vec<Action>) {
        let halted = self.halted();
        let mut free = self.max_concurrency.saturating_sub(self.in_flight());
        for step in self.running.clone() {
            let width = self.shapes[step].foreach.map_or(1, |c| c.min(self.max_concurrency).max(1));
            let Phase::Running(r) = &mut self.phases[step] else { continue };
            while !halted && !r.closed && r.next < r.count && r.in_flight < width && free > 0 {
                free -= 1;
                actions.push(Action::Call { step, index: r.next, attempt: 1 });
                r.next += 1;
                r.in_flight += 1;
            }
            let finished = r.in_flight == 0 && (r.closed || halted || r.next == r.count);
            if !finished || self.in_doubt {
                if finished && self.in_doubt {
                    self.running.remove(&step); // left open: a person will say how it ended
                }
                continue;
            }
            let state = end_state(self.shapes[step].on_error, self.shapes[step].foreach.is_some(), r);
            if state == StepState::Failed && self.shapes[step].on_error != OnError::Skip {
                self.failed_by.get_or_insert(step);
            }
            self.phases[step] = Phase::Ended(state);
            self.running.remove(&step);
            actions.push(Action::Ended { step, state });
        }
    }

    /// Starts or skips the next step in order. False when it has to wait.
    fn start_next(&mut self, actions: &mut Vec<Action>) -> bool {
        let Some(&step) = self.order.get(self.cursor) else { return false };
        if self.in_doubt {
            return false;
        }
        if self.cancelled || self.failed_by.is_some() {
            if !self.running.is_empty() {
                return false; // let what runs end first, so that its outcome is known
            }
            let state = match self.failed_by {
                Some(because) if !self.cancelled => StepState::Skipped { because },
                _ => StepState::Cancelled,
            };
            return self.end_unstarted(step, state, actions);
        }
        for &needed in &self.shapes[step].depends_on {
            match self.phases[needed] {
                Phase::Ended(StepState::Ok) => {}
                Phase::Ended(_) => return self.end_unstarted(step, StepState::Skipped { because: needed }, actions),
                _ => return false,
            }
        }
        let alone = self.running.is_empty();
        let beside = self.shapes[step].read_only
            && (self.running.len() as u32) < self.max_concurrency
            && self.running.iter().all(|&other| self.shapes[other].read_only);
        if !alone && !beside {
            return false;
        }
        self.cursor += 1;
        self.running.insert(step);
        if self.shapes[step].foreach.is_some() {
            self.phases[step] = Phase::Expanding;
            actions.push(Action::Expand { step });
        } else {
            self.phases[step] = Phase::Running(Running { count: 1, ..Running::default() });
        }
        true
    }

    fn end_unstarted(&mut self, step: usize, state: StepState, actions: &mut Vec<Action>) -> bool {
        self.cursor += 1;
        self.phases[step] = Phase::Ended(state);
        actions.push(Action::Ended { step, state });
        true
    }
}

fn end_state(on_error: OnError, is_foreach: bool, r: &Running) -> StepState {
    if r.cancelled > 0 {
        StepState::Cancelled
    } else if r.failed == 0 || (on_error == OnError::Skip && is_foreach && r.ok > 0) {
        StepState::Ok // a loop told to skip failures has done what it could; its output shows which items failed
    } else {
        StepState::Failed
    }
}

fn may_retry(on_error: OnError, code: ErrorCode, retryable: Option<bool>) -> bool {
    use ErrorCode::{ApprovalDenied, Cancelled, Conflict, LimitExceeded, PolicyDenied, ValidationError};
    let never = matches!(code, ValidationError | PolicyDenied | Cancelled | ApprovalDenied | LimitExceeded | Conflict);
    !never && (retryable == Some(true) || (on_error == OnError::Retry && retryable != Some(false)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn run_id() -> RunId {
        RunId::from_uuid(Uuid::from_u128(1))
    }

    fn shape(depends_on: &[usize]) -> StepShape {
        StepShape {
            depends_on: depends_on.to_vec(),
            read_only: false,
            foreach: None,
            on_error: OnError::Stop,
            max_attempts: 1,
            backoff_ms: 10,
        }
    }

    fn scheduler(shapes: Vec<StepShape>, max: u32) -> Scheduler {
        let ids = (0..shapes.len()).map(|i| StepId::parse(&format!("s{i}")).unwrap()).collect();
        Scheduler::new(run_id(), ids, shapes, max).unwrap()
    }

    const FAIL: Outcome = Outcome::Failed { code: ErrorCode::InternalError, retryable: None };

    #[allow(clippy::type_complexity)] // everything a test may want to look at
    /// Drives a scheduler to its end; `outcome` decides each call. Returns the calls in order, the ends, the run's end.
    fn drive(
        s: &mut Scheduler,
        counts: &dyn Fn(usize) -> u32,
        outcome: &mut dyn FnMut(usize, u32, u32) -> Outcome,
        pick: &mut dyn FnMut(usize) -> usize,
    ) -> (Vec<(usize, u32, u32)>, HashMap<usize, StepState>, RunEnd, usize) {
        let (mut calls, mut ends, mut end, mut widest) = (Vec::new(), HashMap::new(), None, 0);
        let mut open: Vec<Event> = Vec::new();
        let mut pending = s.apply(Event::Start);
        for _ in 0..100_000 {
            let mut in_flight = 0;
            for action in std::mem::take(&mut pending) {
                match action {
                    Action::Expand { step } => open.push(Event::Expanded { step, count: counts(step) }),
                    Action::Call { step, index, attempt } => {
                        calls.push((step, index, attempt));
                        open.push(Event::Settled { step, index, outcome: outcome(step, index, attempt) });
                    }
                    Action::Wait { step, index, .. } => open.push(Event::TimerFired { step, index }),
                    Action::Ended { step, state } => {
                        assert!(ends.insert(step, state).is_none(), "step {step} ended twice")
                    }
                    Action::Done(e) => assert!(end.replace(e).is_none(), "done twice"),
                }
            }
            for e in &open {
                in_flight += usize::from(matches!(e, Event::Settled { .. }));
            }
            widest = widest.max(in_flight);
            if open.is_empty() {
                break;
            }
            let at = pick(open.len());
            pending = s.apply(open.swap_remove(at));
        }
        (calls, ends, end.expect("the run ends"), widest)
    }

    #[test]
    fn a_dependency_later_in_the_list_runs_first_and_dependents_of_failures_are_skipped() {
        let mut shapes = vec![shape(&[2]), shape(&[]), shape(&[]), shape(&[1])];
        shapes[1].on_error = OnError::Skip;
        let (calls, ends, end, _) = drive(
            &mut scheduler(shapes, 4),
            &|_| 0,
            &mut |step, _, _| if step == 1 { FAIL } else { Outcome::Ok },
            &mut |_| 0,
        );
        assert_eq!(calls.iter().map(|c| c.0).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(ends[&3], StepState::Skipped { because: 1 });
        assert_eq!(ends[&0], StepState::Ok);
        assert_eq!(end, RunEnd::Finished);
    }

    #[test]
    fn stop_is_the_default_and_nothing_runs_after_it() {
        let (calls, ends, end, _) = drive(
            &mut scheduler(vec![shape(&[]), shape(&[]), shape(&[])], 4),
            &|_| 0,
            &mut |s, _, _| if s == 1 { FAIL } else { Outcome::Ok },
            &mut |_| 0,
        );
        assert_eq!(calls.len(), 2);
        assert_eq!(ends[&2], StepState::Skipped { because: 1 });
        assert_eq!(end, RunEnd::Failed { step: 1 });
    }

    #[test]
    fn retries_stop_at_the_limit_and_never_happen_for_codes_that_cannot_improve() {
        let mut one = shape(&[]);
        one.on_error = OnError::Retry;
        one.max_attempts = 3;
        let (calls, _, end, _) = drive(&mut scheduler(vec![one.clone()], 1), &|_| 0, &mut |_, _, _| FAIL, &mut |_| 0);
        assert_eq!(calls, [(0, 0, 1), (0, 0, 2), (0, 0, 3)]);
        assert_eq!(end, RunEnd::Failed { step: 0 });
        for code in
            [ErrorCode::ValidationError, ErrorCode::PolicyDenied, ErrorCode::Conflict, ErrorCode::ApprovalDenied]
        {
            let refused = Outcome::Failed { code, retryable: Some(true) };
            let (calls, ..) =
                drive(&mut scheduler(vec![one.clone()], 1), &|_| 0, &mut |_, _, _| refused.clone(), &mut |_| 0);
            assert_eq!(calls.len(), 1, "{code}");
        }
        let told = Outcome::Failed { code: ErrorCode::InternalError, retryable: Some(false) };
        let (calls, ..) = drive(&mut scheduler(vec![one], 1), &|_| 0, &mut |_, _, _| told.clone(), &mut |_| 0);
        assert_eq!(calls.len(), 1);
    }

    #[test]
    fn a_loop_runs_at_most_its_width_and_reports_partial_success() {
        let mut looped = shape(&[]);
        looped.foreach = Some(3);
        looped.on_error = OnError::Skip;
        let (calls, ends, _, widest) = drive(
            &mut scheduler(vec![looped.clone(), shape(&[0])], 8),
            &|_| 10,
            &mut |s, i, _| if s == 0 && i % 2 == 0 { FAIL } else { Outcome::Ok },
            &mut |n| n - 1,
        );
        assert_eq!(calls.len(), 11);
        assert_eq!(widest, 3);
        assert_eq!(ends[&0], StepState::Ok);
        looped.on_error = OnError::Stop;
        let (calls, _, end, _) = drive(
            &mut scheduler(vec![looped], 8),
            &|_| 10,
            &mut |_, i, _| if i == 0 { FAIL } else { Outcome::Ok },
            &mut |_| 0,
        );
        assert!(calls.len() < 6);
        assert_eq!(end, RunEnd::Failed { step: 0 });
    }

    #[test]
    fn an_empty_loop_succeeds() {
        let mut looped = shape(&[]);
        looped.foreach = Some(1);
        let (calls, ends, end, _) =
            drive(&mut scheduler(vec![looped, shape(&[0])], 1), &|_| 0, &mut |_, _, _| Outcome::Ok, &mut |_| 0);
        assert_eq!((calls.len(), ends[&0], end), (1, StepState::Ok, RunEnd::Finished));
    }

    #[test]
    fn doubt_pauses_the_run_and_leaves_the_rest_unstarted() {
        let (calls, ends, end, _) = drive(
            &mut scheduler(vec![shape(&[]), shape(&[]), shape(&[])], 1),
            &|_| 0,
            &mut |s, _, _| if s == 1 { Outcome::InDoubt } else { Outcome::Ok },
            &mut |_| 0,
        );
        assert_eq!((calls.len(), ends.len(), end), (2, 1, RunEnd::Paused));
    }

    #[test]
    fn cancelling_ends_waits_at_once_and_everything_else_when_it_answers() {
        let mut one = shape(&[]);
        one.on_error = OnError::Retry;
        one.max_attempts = 5;
        let mut s = scheduler(vec![one, shape(&[])], 1);
        s.apply(Event::Start);
        let wait = s.apply(Event::Settled { step: 0, index: 0, outcome: FAIL });
        assert!(matches!(wait[..], [Action::Wait { attempt: 2, .. }]));
        let actions = s.apply(Event::Cancel);
        assert_eq!(
            actions,
            [
                Action::Ended { step: 0, state: StepState::Cancelled },
                Action::Ended { step: 1, state: StepState::Cancelled },
                Action::Done(RunEnd::Cancelled)
            ]
        );
        assert!(s.apply(Event::TimerFired { step: 0, index: 0 }).is_empty());
    }

    #[test]
    fn cycles_are_found_and_named() {
        assert_eq!(topological_order(&[vec![], vec![3, 0], vec![1], vec![2]]).unwrap_err().len(), 3);
        assert_eq!(topological_order(&[vec![0]]).unwrap_err(), [0]);
        assert_eq!(topological_order(&[vec![1], vec![]]).unwrap(), [1, 0]);
    }

    #[test]
    fn delays_double_with_seeded_jitter_below_a_ceiling() {
        let step = StepId::parse("a").unwrap();
        let delays: Vec<u64> = (1..8).map(|n| retry_delay(run_id(), &step, 0, n, 1000)).collect();
        assert_eq!(
            delays,
            (1..8).map(|n| retry_delay(run_id(), &step, 0, n, 1000)).collect::<Vec<_>>(),
            "same names, same delay"
        );
        assert!(delays.iter().enumerate().all(|(n, d)| *d <= (1000 << n).min(30_000)), "{delays:?}");
        assert_ne!(retry_delay(run_id(), &step, 1, 5, 1000), delays[4]);
        assert_eq!(retry_delay(run_id(), &step, 0, 1, 0), 0);
    }

    fn any_plan() -> impl Strategy<Value = (Vec<StepShape>, u32)> {
        let step = (any::<bool>(), prop::option::of(1u32..4), 0..3u8, 1u32..4, prop::collection::vec(0usize..12, 0..3));
        (prop::collection::vec(step, 1..12), 1u32..5).prop_map(|(steps, max)| {
            let shapes = steps
                .into_iter()
                .enumerate()
                .map(|(i, (read_only, foreach, on_error, max_attempts, deps))| {
                    let mut depends_on: Vec<usize> = deps.into_iter().filter(|d| *d < i).collect();
                    depends_on.sort_unstable();
                    depends_on.dedup();
                    let on_error = [OnError::Stop, OnError::Skip, OnError::Retry][on_error as usize];
                    StepShape { depends_on, read_only, foreach, on_error, max_attempts, backoff_ms: 1 }
                })
                .collect();
            (shapes, max)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn every_plan_ends_and_every_step_ends_once(
            (shapes, max) in any_plan(),
            outcomes in prop::collection::vec(0..4u8, 64),
            picks in prop::collection::vec(any::<usize>(), 256),
            cancel_after in prop::option::of(0usize..20),
        ) {
            let mut s = scheduler(shapes.clone(), max);
            let (mut n, mut p) = (0usize, 0usize);
            let mut ended: HashMap<usize, StepState> = HashMap::new();
            let mut open: Vec<Event> = Vec::new();
            let mut in_flight: HashMap<(usize, u32), u32> = HashMap::new();
            let mut done = None;
            let mut pending = s.apply(Event::Start);
            let mut turns = 0;
            loop {
                for action in std::mem::take(&mut pending) {
                    match action {
                        Action::Expand { step } => open.push(Event::Expanded { step, count: (step % 4) as u32 }),
                        Action::Call { step, index, attempt } => {
                            // never before its dependencies have succeeded, never twice at once, never beyond the limit
                            for d in &shapes[step].depends_on { prop_assert_eq!(ended.get(d), Some(&StepState::Ok)); }
                            prop_assert!(attempt <= shapes[step].max_attempts);
                            prop_assert!(in_flight.insert((step, index), attempt).is_none());
                            prop_assert!(in_flight.len() <= max as usize, "never more at once than allowed");
                            let others_read = in_flight.keys().all(|(other, _)| *other == step || (shapes[*other].read_only && shapes[step].read_only));
                            prop_assert!(others_read, "a writing step shares its time with nobody");
                            n += 1;
                            let outcome = match outcomes[n % outcomes.len()] { 0 => FAIL, 1 => Outcome::Failed { code: ErrorCode::Timeout, retryable: Some(true) }, _ => Outcome::Ok };
                            open.push(Event::Settled { step, index, outcome });
                        }
                        Action::Wait { step, index, .. } => open.push(Event::TimerFired { step, index }),
                        Action::Ended { step, state } => prop_assert!(ended.insert(step, state).is_none()),
                        Action::Done(e) => prop_assert!(done.replace(e).is_none()),
                    }
                }
                if Some(turns) == cancel_after { pending = s.apply(Event::Cancel); turns += 1; continue; }
                turns += 1;
                if open.is_empty() { break; }
                p += 1;
                let mut event = open.swap_remove(picks[p % picks.len()] % open.len());
                if let Event::Settled { step, index, .. } = &event { in_flight.remove(&(*step, *index)); }
                if cancel_after.is_some_and(|c| turns > c) && let Event::Settled { outcome, .. } = &mut event { *outcome = Outcome::Cancelled; }
                pending = s.apply(event);
                prop_assert!(turns < 10_000);
            }
            prop_assert!(done.is_some(), "the run ends");
            prop_assert_eq!(ended.len(), shapes.len(), "every step has an end");
        }
    }
}
