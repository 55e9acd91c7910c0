//! Handles calls that were recorded and have no result because the process died. docs/guide/durability.md has the
//! table.

use super::{
    FinishedCall, look,
    outcome::{settle, to_result},
};
use crate::{
    CallContext, Engine, NestedCalls, Progress, Reconciled,
    facts::{self, RecoveredFacts},
    record::{CallRecord, NoteRecord, OutcomeRecord, Record, ResultRecord},
    scope::RunScope,
    store::{Durability, Position},
    view,
};
use std::sync::Arc;
use toolyard_protocol::{ErrorCode, EventLevel, Failure, ResultStatus};

/// What looking at the target of an interrupted, etag-guarded call has found.
#[allow(clippy::large_enum_variant)] // short-lived; there is one of these for each interrupted call
pub(crate) enum Reconciliation {
    /// The call has its result now.
    Settled(FinishedCall),
    /// It did not happen and can be made.
    NotDone,
    /// The outcome could not be determined.
    Unknown,
}

/// Looks at the target of an interrupted, etag-guarded call.
pub(crate) async fn reconcile(
    engine: &Engine,
    scope: &RunScope,
    run: &view::RunView,
    record: &CallRecord,
) -> Result<Reconciliation, Failure> {
    let entry = scope.tools.snapshot.get(record.lookup()).cloned();
    let provider = entry.as_ref().and_then(|e| scope.tools.provider(e.id())).cloned();
    let (Some(entry), Some(provider)) = (entry, provider) else { return Ok(Reconciliation::Unknown) };
    // Without an intent the process died before the provider had reported the changes it would make, so nothing
    // changed.
    let Some(intent) = record.intent.as_ref() else { return Ok(Reconciliation::NotDone) };
    let args = view::call_args(&**engine.store(), record)?;
    let envelope = Arc::new(run.tool_call(record, args)?);
    let context = CallContext {
        cancel: scope.cancel.child_token(),
        caller: scope.caller.clone(),
        progress: Progress::none(),
        blobs: engine.blobs(),
        calls: NestedCalls::none(),
    };
    let started = engine.clock().now();
    let (status, outcome, word) = match look(&provider, &context, &envelope, intent).await {
        Ok(Reconciled::NotDone) => {
            note_recovery(engine, scope, record, "It had not happened.");
            return Ok(Reconciliation::NotDone);
        }
        Ok(Reconciled::Done(output)) => {
            (ResultStatus::Ok, Ok(output), "It had happened; its result was worked out from what is there.")
        }
        Ok(Reconciled::Conflict(failed)) => (ResultStatus::Error, Err(failed), "Something else is there now."),
        Err(failed) => {
            note_recovery(engine, scope, record, &format!("Whether it happened is not known: {}", failed.failure));
            return Ok(Reconciliation::Unknown);
        }
    };
    note_recovery(engine, scope, record, word);
    let settled = settle(engine, scope, &entry, &envelope, started, outcome, status, true);
    Ok(Reconciliation::Settled(settled))
}

fn note_recovery(engine: &Engine, scope: &RunScope, record: &CallRecord, what: &str) {
    scope.recorder.push(&Record::Note(NoteRecord {
        at: engine.clock().now(),
        level: EventLevel::Warn,
        message: format!("The process died during {}. {what}", record.tool),
        call_id: Some(record.call_id),
        step_id: Some(record.step_id.clone()),
        payload: facts::payload(&RecoveredFacts { recovered: true }),
    }));
}

/// The result of a call whose outcome is unknown. It is not recorded; the person's decision will be.
pub(crate) fn in_doubt(engine: &Engine, scope: &RunScope, record: &CallRecord) -> FinishedCall {
    let failure = doubt(record);
    let outcome = outcome_of(engine, ResultStatus::Error, Some(failure), None);
    let result = to_result(record.call_id, scope, &record.step_id, &record.tool, record.attempt, outcome.clone(), None);
    FinishedCall::new(result, Position::default(), false)
}

/// Records that a person said that the call happened.
pub(crate) fn assume_done(engine: &Engine, scope: &RunScope, record: &CallRecord, by: &str) -> FinishedCall {
    close(
        engine,
        scope,
        record,
        ResultStatus::Skipped,
        None,
        Some(format!("Interrupted by a crash; {by} says that it happened")),
    )
}

/// Records that a person gave the call up.
pub(crate) fn abandon(engine: &Engine, scope: &RunScope, record: &CallRecord, by: &str) -> FinishedCall {
    close(engine, scope, record, ResultStatus::Error, Some(doubt(record).detail("abortedBy", by)), None)
}

/// Closes an interrupted direct call for which nobody waits.
pub(crate) fn interrupted(engine: &Engine, scope: &RunScope, record: &CallRecord) -> FinishedCall {
    let failure = Failure::new(ErrorCode::Cancelled, "the process ended before the call was made; nothing happened")
        .retryable(true);
    close(engine, scope, record, ResultStatus::Cancelled, Some(failure), None)
}

/// A direct call that may or may not have happened.
pub(crate) fn left_in_doubt(engine: &Engine, scope: &RunScope, record: &CallRecord) -> FinishedCall {
    close(engine, scope, record, ResultStatus::Error, Some(doubt(record)), None)
}

fn doubt(record: &CallRecord) -> Failure {
    Failure::new(
        ErrorCode::InternalError,
        format!("the process died while {} ran; whether it happened is not known", record.tool),
    )
    .suggest(ErrorCode::InDoubt.suggestion())
    .detail("reason", "IN_DOUBT")
    .detail("callId", record.call_id.to_string())
    .retryable(false)
}

fn outcome_of(
    engine: &Engine,
    status: ResultStatus,
    error: Option<Failure>,
    user_message: Option<String>,
) -> OutcomeRecord {
    OutcomeRecord {
        status,
        data: None,
        data_blob: None,
        error,
        started: engine.clock().now().as_microsecond(),
        took_us: 0,
        effects: None,
        user_message,
        debug_message: None,
    }
}

fn close(
    engine: &Engine,
    scope: &RunScope,
    record: &CallRecord,
    status: ResultStatus,
    error: Option<Failure>,
    user_message: Option<String>,
) -> FinishedCall {
    let outcome = outcome_of(engine, status, error, user_message);
    let result = to_result(record.call_id, scope, &record.step_id, &record.tool, record.attempt, outcome.clone(), None);
    scope.recorder.push(&Record::Result(ResultRecord { call_id: record.call_id, outcome }));
    let position = scope.recorder.flush(Durability::Deferred).unwrap_or_default();
    FinishedCall::new(result, position, true)
}
