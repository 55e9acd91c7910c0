//! The types of the scheduler: its view of a step, its events and its actions.

use toolyard_protocol::{ErrorCode, OnError};

/// A step as the scheduler sees it.
#[derive(Debug, Clone)]
pub struct StepShape {
    /// Steps that must have succeeded before.
    pub depends_on: Vec<usize>,
    /// Whether the step may run in parallel with other read-only steps.
    pub read_only: bool,
    /// Iterations side by side; `None` when the step is not a foreach.
    pub foreach: Option<u32>,
    /// What happens when the step fails.
    pub on_error: OnError,
    /// Total tries, already clamped by policy.
    pub max_attempts: u32,
    /// First delay between tries.
    pub backoff_ms: u64,
}

/// An input of the scheduler.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The run starts.
    Start,
    /// A foreach's list is known.
    Expanded {
        /// The position of the step.
        step: usize,
        /// The number of items.
        count: u32,
    },
    /// A call has its outcome.
    Settled {
        /// The position of the step.
        step: usize,
        /// Iteration, 0 for a plain step.
        index: u32,
        /// The outcome of the call.
        outcome: Outcome,
    },
    /// A wait is over.
    TimerFired {
        /// The position of the step.
        step: usize,
        /// The position of the iteration.
        index: u32,
    },
    /// The run is to be stopped.
    Cancel,
}

/// The result of a call, as far as scheduling needs it.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The call succeeded.
    Ok,
    /// The call failed.
    Failed {
        /// The error code.
        code: ErrorCode,
        /// Whether the tool said that a retry can help.
        retryable: Option<bool>,
        /// The delay that the tool asks for before a retry; if it is missing, the step's backoff is used.
        retry_after_ms: Option<u64>,
    },
    /// The call was cancelled.
    Cancelled,
    /// The outcome is unknown, and a person must decide.
    InDoubt,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Resolve the list of a foreach, then apply `Expanded` (or `Settled` with a failure).
    Expand {
        /// The position of the step.
        step: usize,
    },
    /// Make a call, then say `Settled`.
    Call {
        /// The position of the step.
        step: usize,
        /// The position of the iteration.
        index: u32,
        /// Try, from 1.
        attempt: u32,
    },
    /// Wait, then say `TimerFired`.
    Wait {
        /// The position of the step.
        step: usize,
        /// The position of the iteration.
        index: u32,
        /// The try that comes after.
        attempt: u32,
        /// The delay in milliseconds.
        delay_ms: u64,
    },
    /// A step ended.
    Ended {
        /// The position of the step.
        step: usize,
        /// The final state of the step.
        state: StepState,
    },
    /// The run ended.
    Done(RunEnd),
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepState {
    /// The step succeeded.
    Ok,
    /// The step failed.
    Failed,
    /// It never ran, because of this step.
    Skipped {
        /// The position of the step that caused this.
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
    /// A step failed, and the plan stops on errors.
    Failed {
        /// The position of the step.
        step: usize,
    },
    /// It was stopped.
    Cancelled,
    /// It waits for a person.
    Paused,
}
