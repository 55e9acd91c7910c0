//! The plan scheduler: a pure state machine. An event goes in, actions come out; it has no clock, tools or store.
//!
//! Steps start in a fixed order: the order of the plan, changed only where a dependency requires it. A step starts when
//! the steps before it have started and its dependencies have ended. Several steps run at the same time only if all of
//! them are read-only; a step that writes runs alone, but its foreach iterations may run in parallel.

mod order;
mod retry;
#[cfg(test)]
mod tests;
mod words;

pub use order::topological_order;
pub use retry::retry_delay;
pub use words::{Action, Event, Outcome, RunEnd, StepShape, StepState};

use self::retry::may_retry;
use std::collections::{BTreeSet, HashMap};
use toolyard_protocol::{OnError, RunId, StepId};

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
                Outcome::Failed { code, retryable, retry_after_ms } => {
                    let attempt = r.attempts.get(&index).copied().unwrap_or(1);
                    if !halted && attempt < shape.max_attempts && may_retry(shape.on_error, code, retryable) {
                        let delay_ms = retry_after_ms.unwrap_or_else(|| delay_of(attempt));
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
