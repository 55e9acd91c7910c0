//! One attempt of a call, with deadline, cancellation (with a grace period) and protection against panics.

use crate::{BackgroundTask, CallContext, Failed, Output, Prepared, Provider};
use futures_util::FutureExt;
use std::{any::Any, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::time::Instant;
use toolyard_protocol::{ErrorCode, Failure, ResultStatus, ToolCall};

/// How long looking at the target of a lost call may take.
pub(crate) const OBSERVE_TIME: Duration = Duration::from_secs(5);

/// `details.reason` of a call that panicked: it may have done part of its work.
pub(crate) const PANIC: &str = "PANIC";

/// One attempt of a call.
pub(crate) struct Attempt<'a> {
    provider: &'a Arc<dyn Provider>,
    context: &'a Arc<CallContext>,
    call: &'a Arc<ToolCall>,
    deadline: Instant,
    timeout: Duration,
    grace: Duration,
}

/// Why an attempt did not end well.
#[allow(clippy::large_enum_variant)] // short-lived; there is one of these for each failed call
pub(crate) enum Stopped {
    /// The provider reported a failure.
    Failed(Failed),
    /// It ran out of time; `Some` when it still answered within the grace period.
    TimedOut { timeout: Duration, answer: Option<Box<Result<Output, Failed>>> },
    /// The call was cancelled; `Some` if it still answered within the grace period.
    Cancelled { answer: Option<Box<Result<Output, Failed>>> },
    /// The provider panicked.
    Panicked(String),
}

impl Stopped {
    /// Whether the provider was abandoned before it reported its effects.
    pub(crate) fn lost_sight(&self) -> bool {
        matches!(self, Self::TimedOut { answer: None, .. } | Self::Cancelled { answer: None } | Self::Panicked(_))
    }

    /// Status and failure for the result.
    pub(crate) fn into_outcome(self, call: &ToolCall) -> (ResultStatus, Failed) {
        // The changes that a provider had made when it was stopped, and its text for logs.
        let with_answer = |failure: Failure, answer: Option<Box<Result<Output, Failed>>>| match answer.map(|a| *a) {
            Some(Ok(output)) => Failed::after(failure, output.effects),
            Some(Err(failed)) => Failed::after(failure, failed.effects).debug(failed.debug_message),
            None => failure.into(),
        };
        match self {
            Self::Failed(failed) => (ResultStatus::Error, failed),
            Self::TimedOut { timeout, answer } => {
                let failure = Failure::new(
                    ErrorCode::Timeout,
                    format!("{} did not finish within {} ms", call.tool, timeout.as_millis()),
                )
                .detail("timeoutMs", timeout.as_millis() as u64);
                (ResultStatus::Timeout, with_answer(failure, answer))
            }
            Self::Cancelled { answer } => {
                let failure = Failure::new(ErrorCode::Cancelled, format!("{} was stopped", call.tool)).retryable(false);
                (ResultStatus::Cancelled, with_answer(failure, answer))
            }
            Self::Panicked(message) => {
                let failure = Failure::new(ErrorCode::InternalError, format!("{} failed unexpectedly", call.tool))
                    .detail("reason", PANIC);
                (ResultStatus::Error, Failed::from(failure).debug(Some(format!("panic: {message}"))))
            }
        }
    }
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(
        provider: &'a Arc<dyn Provider>,
        context: &'a Arc<CallContext>,
        call: &'a Arc<ToolCall>,
        timeout: Duration,
        grace: Duration,
    ) -> Self {
        Self { provider, context, call, deadline: Instant::now() + timeout, timeout, grace }
    }

    /// Asks the provider what will change. Nothing has happened at this point, so a cancelled future is dropped without
    /// a grace period.
    pub(crate) async fn prepare(&self) -> Result<Prepared, Stopped> {
        // The provider is called inside the future, so that a panic before its first await is caught too.
        let mut work =
            Box::pin(AssertUnwindSafe(async { self.provider.prepare(self.context, self.call).await }).catch_unwind());
        // Most providers have nothing to prepare and answer at once: no timer is needed for those.
        if let Some(answer) = (&mut work).now_or_never() {
            return self.flatten(answer);
        }
        tokio::select! {
            biased;
            answer = work => self.flatten(answer),
            () = tokio::time::sleep_until(self.deadline) => Err(Stopped::TimedOut { timeout: self.timeout, answer: None }),
            () = self.context.cancel.cancelled() => Err(Stopped::Cancelled { answer: None }),
        }
    }

    /// Runs a call without side effects. Past the grace period it is dropped.
    pub(crate) async fn execute(&self, prepared: Prepared) -> Result<Output, Stopped> {
        let mut work = Box::pin(
            AssertUnwindSafe(async { self.provider.execute(self.context, self.call, prepared).await }).catch_unwind(),
        );
        if let Some(answer) = (&mut work).now_or_never() {
            return self.flatten(answer);
        }
        match self.until_stopped(&mut work).await {
            Ok(answer) => self.flatten(answer),
            Err(reason) => {
                self.context.cancel.cancel();
                let answer = tokio::time::timeout(self.grace, work).await.ok().and_then(Result::ok).map(Box::new);
                Err(self.stopped(reason, answer))
            }
        }
    }

    /// Runs a call with side effects in a separate task, so that it can be observed after its deadline: a late answer
    /// goes to `late`, and after the window the call is dropped. It continues when the caller goes away.
    pub(crate) async fn execute_detached(
        &self,
        prepared: Prepared,
        window: Duration,
        late: impl FnOnce(Result<Output, Failed>) + Send + 'static,
    ) -> Result<Output, Stopped> {
        let (provider, context, call) = (self.provider.clone(), self.context.clone(), self.call.clone());
        let mut work = BackgroundTask::new(async move { provider.execute(&context, &call, prepared).await });
        // A call that answers at once needs no timer.
        if let Some(answer) = (&mut work).now_or_never() {
            return self.flatten(answer);
        }
        match self.until_stopped(&mut work).await {
            Ok(answer) => self.flatten(answer),
            Err(reason) => {
                self.context.cancel.cancel();
                match tokio::time::timeout(self.grace, &mut work).await {
                    Ok(Ok(answer)) => Err(self.stopped(reason, Some(Box::new(answer)))),
                    Ok(Err(panic)) => Err(Stopped::Panicked(panic_message(panic))),
                    Err(_) => {
                        tokio::spawn(async move {
                            if let Ok(Some(Ok(answer))) = tokio::time::timeout(window, work.rest()).await {
                                late(answer);
                            }
                        });
                        Err(self.stopped(reason, None))
                    }
                }
            }
        }
    }

    /// Waits for the work, the deadline or a stop, whichever comes first. A call that cannot be cancelled is waited for.
    async fn until_stopped<F: Future + Unpin>(&self, work: &mut F) -> Result<F::Output, Reason> {
        if !self.call.cancellable {
            return Ok(work.await);
        }
        tokio::select! {
            biased;
            answer = &mut *work => Ok(answer),
            () = self.context.cancel.cancelled() => Err(Reason::Cancel),
            () = tokio::time::sleep_until(self.deadline) => Err(Reason::Deadline),
        }
    }

    fn flatten<T>(&self, answer: Result<Result<T, Failed>, Box<dyn Any + Send>>) -> Result<T, Stopped> {
        match answer {
            Ok(answer) => answer.map_err(|failed| self.failed(failed)),
            Err(panic) => Err(Stopped::Panicked(panic_message(panic))),
        }
    }

    /// A provider that answers before the stop is checked counts as stopped too.
    fn failed(&self, failed: Failed) -> Stopped {
        if failed.failure.code == ErrorCode::Cancelled && self.context.cancel.is_cancelled() {
            return Stopped::Cancelled { answer: Some(Box::new(Err(failed))) };
        }
        Stopped::Failed(failed)
    }

    fn stopped(&self, reason: Reason, answer: Option<Box<Result<Output, Failed>>>) -> Stopped {
        match reason {
            Reason::Deadline => Stopped::TimedOut { timeout: self.timeout, answer },
            Reason::Cancel => Stopped::Cancelled { answer },
        }
    }
}

enum Reason {
    Deadline,
    Cancel,
}

fn panic_message(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => {
            panic.downcast::<&'static str>().map_or_else(|_| "no message".to_owned(), |text| (*text).to_owned())
        }
    }
}
