//! The types of the scheduler: its view of a step, its events and its actions.

use toolyard_protocol::{ErrorCode, OnError};

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
        /// How long the tool asks to wait before another try; the step's backoff where it names no time.
        retry_after_ms: Option<u64>,
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
