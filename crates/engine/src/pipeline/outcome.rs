//! Stages 11 and 12 of the pipeline: turn any outcome into exactly one [`ToolResult`] and record it.

use super::{FinishedCall, StepCall};
use crate::{
    Blob, Engine, Failed, Output,
    facts::{self, Externalized},
    record::{INLINE_BYTES, OutcomeRecord, Record, RefusedRecord, ResultRecord},
    redact::redactor,
    scope::RunScope,
    secrets::{Placeholders, SecretMarks},
    store::{Durability, Position, StoreError},
    view,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use toolyard_catalog::ToolEntry;
use toolyard_protocol::{
    CallId, Effects, ErrorCode, Failure, ResultStatus, StepId, ToolCall, ToolName, ToolResult, ToolResultParts,
    canonical,
};

#[allow(clippy::too_many_arguments)] // the parts of one result
pub(super) fn settle(
    engine: &Engine,
    scope: &RunScope,
    entry: &ToolEntry,
    envelope: &ToolCall,
    started: Timestamp,
    outcome: Result<Output, Failed>,
    status: ResultStatus,
    side_effects: bool,
) -> FinishedCall {
    let outcome = outcome.and_then(|output| check_output(entry, output));
    let (outcome, apart) = to_record(engine, scope, started, status, outcome);
    let record = Record::Result(ResultRecord { call_id: envelope.call_id, outcome });
    scope.recorder.push(&record);
    // `Deferred`: the next intent, or a call that depends on this result, makes it durable. This needs one sync per step
    // instead of two.
    let position = flush_result(scope);
    let outcome = record.into_outcome().unwrap_or_else(|| OutcomeRecord::new(ResultStatus::Error, started));
    let data_blob = outcome.data_blob.clone();
    let mut result =
        to_result(envelope.call_id, scope, &envelope.step_id, &envelope.tool, envelope.attempt, outcome, apart);
    let whole = hand_over_by_reference(&mut result, data_blob.as_deref(), scope.limits().max_output_bytes);
    for hook in engine.hooks().iter() {
        hook.after(&result);
    }
    match position {
        Ok(position) => FinishedCall { result, whole, position, side_effects },
        Err(error) => FinishedCall::new(with_store_failure(result, error.into()), Position::default(), side_effects),
    }
}

/// Queues a result. In a run of one call, the end of the run follows at once, and both are written as one batch.
fn flush_result(scope: &RunScope) -> Result<Position, StoreError> {
    if scope.is_one_call { Ok(Position::default()) } else { scope.recorder.flush(Durability::Deferred) }
}

/// Checks the output against the tool's schema. A tool whose output does not fit has failed, but its effects are still
/// reported.
fn check_output(entry: &ToolEntry, mut output: Output) -> Result<Output, Failed> {
    let data = Value::Object(std::mem::take(&mut output.data));
    let checked = entry.check_output(&data);
    if let Value::Object(data) = data {
        output.data = data;
    }
    match checked {
        Ok(()) => Ok(output),
        Err(violations) => {
            let errors: Vec<Value> = violations.iter().map(|v| json!({"path": v.path, "message": v.message})).collect();
            let failure = Failure::new(
                ErrorCode::InternalError,
                format!("the output of {} does not fit its own schema", entry.name()),
            )
            .suggest("The effects listed did happen. Report this to the tool's author.")
            .detail("errors", errors)
            .retryable(false);
            Err(Failed::after(failure, output.effects))
        }
    }
}

/// The outcome as it is recorded, and the output if it is too large to be part of the record.
fn to_record(
    engine: &Engine,
    scope: &RunScope,
    started: Timestamp,
    status: ResultStatus,
    outcome: Result<Output, Failed>,
) -> (OutcomeRecord, Option<Map<String, Value>>) {
    let took_us = (engine.clock().now().as_microsecond() - started.as_microsecond()).max(0);
    let mut record = OutcomeRecord { took_us, ..OutcomeRecord::new(status, started) };
    let keep = |effects: Effects| (!effects.is_empty()).then_some(effects);
    match outcome {
        Ok(output) => {
            record.effects = keep(output.effects);
            scope.recorder.push_blobs(output.blobs);
            record.user_message = output.user_message;
            record.debug_message = output.debug_message.map(|text| redactor().text(&text).into_owned());
            if json_size(&output.data) <= INLINE_BYTES {
                record.data = Some(output.data);
                (record, None)
            } else {
                match without_secrets(scope, &output.data) {
                    Ok(json) => {
                        let blob = Blob::new(json);
                        record.data_blob = Some(blob.sha256.clone());
                        scope.recorder.push_blobs([blob]);
                        (record, Some(output.data))
                    }
                    Err(error) => {
                        let message = format!("the output cannot be written: {error}");
                        record.status = ResultStatus::Error;
                        record.error = Some(Failure::new(ErrorCode::InternalError, message));
                        (record, None)
                    }
                }
            }
        }
        Err(failed) => {
            record.status = if status == ResultStatus::Ok { ResultStatus::Error } else { status };
            record.effects = keep(failed.effects);
            // A provider's error message may quote its configuration, so secrets are hidden.
            record.error = Some(redactor().failure(failed.failure));
            record.debug_message = failed.debug_message.map(|text| redactor().text(&text).into_owned());
            (record, None)
        }
    }
}

/// A large output that is stored as a blob.
fn without_secrets(scope: &RunScope, data: &Map<String, Value>) -> serde_json::Result<Vec<u8>> {
    let secrets = scope.recorder.secrets();
    if !secrets.is_used() {
        return serde_json::to_vec(data);
    }
    let mut kept = data.clone();
    secrets.hide_map(&mut kept);
    serde_json::to_vec(&kept)
}

/// An output that is too large to hand over is replaced by a reference to the blob that holds it. Answers the output
/// itself, which later steps of a plan still refer into.
pub(crate) fn hand_over_by_reference(
    result: &mut ToolResult,
    data_blob: Option<&str>,
    max_output: u64,
) -> Option<Map<String, Value>> {
    let sha256 = data_blob?;
    let bytes = json_size(result.data.as_ref()?);
    if bytes as u64 <= max_output {
        return None;
    }
    let reference = Externalized { externalized: true, reference: format!("blob:sha256:{sha256}"), bytes };
    let mut parts = result.clone().into_parts();
    let whole = parts.data.replace(facts::payload(&reference));
    *result = ToolResult::or_internal_error(parts);
    whole
}

/// The size of a JSON object in bytes, without building its text. For a small object this is only an upper bound, at
/// most [`INLINE_BYTES`]; a larger one is counted exactly.
fn json_size(data: &Map<String, Value>) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut room = INLINE_BYTES;
    if take_map(data, &mut room).is_some() {
        return INLINE_BYTES - room;
    }
    let mut counter = Counter(0);
    // A value that cannot be serialised counts as too large.
    serde_json::to_writer(&mut counter, data).map_or(usize::MAX, |()| counter.0)
}

/// Takes the most bytes that a value's JSON can have from the room; `None` when it may not fit.
fn take_value(value: &Value, room: &mut usize) -> Option<()> {
    const LONGEST_NUMBER: usize = 32;
    match value {
        Value::Null | Value::Bool(_) => take(room, 5),
        Value::Number(_) => take(room, LONGEST_NUMBER),
        Value::String(text) => take_text(text, room),
        Value::Array(items) => {
            take(room, 2 + items.len())?;
            items.iter().try_for_each(|item| take_value(item, room))
        }
        Value::Object(map) => take_map(map, room),
    }
}

fn take_map(map: &Map<String, Value>, room: &mut usize) -> Option<()> {
    take(room, 2 + 2 * map.len())?;
    map.iter().try_for_each(|(key, value)| take_text(key, room).and_then(|()| take_value(value, room)))
}

/// A control character becomes six bytes, `\u001f`.
fn take_text(text: &str, room: &mut usize) -> Option<()> {
    take(room, text.len().saturating_mul(6).saturating_add(2))
}

fn take(room: &mut usize, bytes: usize) -> Option<()> {
    *room = room.checked_sub(bytes)?;
    Some(())
}

pub(super) fn to_result(
    call_id: CallId,
    scope: &RunScope,
    step_id: &StepId,
    tool: &ToolName,
    attempt: u32,
    outcome: OutcomeRecord,
    apart: Option<Map<String, Value>>,
) -> ToolResult {
    let data = outcome.data.or(apart);
    let parts = ToolResultParts {
        call_id,
        run_id: scope.run_id,
        step_id: step_id.clone(),
        tool: tool.clone(),
        attempt,
        status: outcome.status,
        ok: outcome.status == ResultStatus::Ok,
        data_hash: match (&outcome.data_blob, &data) {
            (Some(_), Some(data)) => canonical::hash(data).ok(),
            _ => None,
        },
        data,
        error: outcome.error,
        started_at: view::micros(outcome.started),
        ended_at: view::micros(outcome.started + outcome.took_us),
        duration_ms: (outcome.took_us as u64).div_ceil(1000),
        effects: outcome.effects,
        user_message: outcome.user_message,
        debug_message: outcome.debug_message,
    };
    ToolResult::or_internal_error(parts)
}

/// An outcome without a dispatched call: recorded, so that what was refused can be seen afterwards.
pub(crate) fn refuse(
    engine: &Engine,
    scope: &RunScope,
    call_id: CallId,
    call: &StepCall,
    failure: Failure,
) -> FinishedCall {
    let Failed { failure, debug_message, .. } = failure.into();
    let status = match failure.code {
        ErrorCode::Cancelled => ResultStatus::Cancelled,
        ErrorCode::Timeout => ResultStatus::Timeout,
        _ => ResultStatus::Error,
    };
    let now = engine.clock().now();
    let marks = SecretMarks::of(&scope.tools.snapshot, &scope.policy, &call.tool);
    let kept = scope.recorder.secrets().keep(marks, &call.args, Placeholders::Hide);
    let args = kept.map_or_else(|| call.args.clone(), |kept| Map::clone(&kept.args));
    let asked = (json_size(&args) <= INLINE_BYTES).then_some(Value::Object(args));
    let refusal = Refusal { args: asked, status, error: Some(failure), debug_message, user_message: None };
    finish_refusal(scope, call_id, call, now, refusal)
}

/// A step that is not going to run.
pub(crate) fn skip(engine: &Engine, scope: &RunScope, call: &StepCall, why: String) -> FinishedCall {
    let now = engine.clock().now();
    let call_id = CallId::from_uuid(engine.clock().new_id());
    finish_refusal(scope, call_id, call, now, Refusal::skipped(why))
}

/// A dry run of a tool that cannot predict itself.
pub(super) fn unpredictable(
    engine: &Engine,
    scope: &RunScope,
    call_id: CallId,
    call: &StepCall,
    side_effects: &[std::borrow::Cow<'static, str>],
) -> FinishedCall {
    let kinds = if side_effects.is_empty() { "unknown effects".to_owned() } else { side_effects.join(", ") };
    let why = format!("Cannot be predicted: {} would have {kinds}", call.tool);
    finish_refusal(scope, call_id, call, engine.clock().now(), Refusal::skipped(why))
}

/// How a call ended that was never dispatched.
struct Refusal {
    /// The arguments, if they are small enough to be kept.
    args: Option<Value>,
    status: ResultStatus,
    error: Option<Failure>,
    /// For logs.
    debug_message: Option<String>,
    user_message: Option<String>,
}

impl Refusal {
    fn skipped(why: String) -> Self {
        Self { args: None, status: ResultStatus::Skipped, error: None, debug_message: None, user_message: Some(why) }
    }
}

fn finish_refusal(
    scope: &RunScope,
    call_id: CallId,
    call: &StepCall,
    now: Timestamp,
    Refusal { args, status, error, debug_message, user_message }: Refusal,
) -> FinishedCall {
    let tool = tool_name(&call.tool);
    let debug_message = debug_message.map(|text| redactor().text(&text).into_owned());
    let outcome = OutcomeRecord { error, user_message, debug_message, ..OutcomeRecord::new(status, now) };
    let result = to_result(call_id, scope, &call.step_id, &tool, call.attempt, outcome.clone(), None);
    let index = call.iteration.as_ref().map(|i| i.index);
    scope.recorder.push(&Record::Refused(RefusedRecord {
        call_id,
        step_id: call.step_id.clone(),
        tool,
        attempt: call.attempt,
        never_ran: call.never_ran,
        index,
        args,
        outcome,
    }));
    match flush_result(scope) {
        Ok(position) => FinishedCall::new(result, position, false),
        Err(failure) => {
            // Nothing was done, so the caller gets the reason and not the failure to record it.
            tracing::error!(%failure, run = %scope.run_id, "a refused call could not be recorded");
            FinishedCall::new(result, Position::default(), false)
        }
    }
}

/// The store failed before the call was dispatched.
pub(super) fn unrecorded(
    engine: &Engine,
    call: &StepCall,
    envelope: &ToolCall,
    started: Timestamp,
    failure: Failure,
) -> FinishedCall {
    let parts = ToolResultParts {
        call_id: envelope.call_id,
        run_id: envelope.run_id,
        step_id: call.step_id.clone(),
        tool: envelope.tool.clone(),
        attempt: envelope.attempt,
        status: ResultStatus::Error,
        ok: false,
        data: None,
        data_hash: None,
        error: Some(failure),
        started_at: started,
        ended_at: engine.clock().now().max(started),
        duration_ms: 0,
        effects: None,
        user_message: None,
        debug_message: None,
    };
    let result = ToolResult::or_internal_error(parts);
    FinishedCall::new(result, Position::default(), false)
}

/// Adds a store failure to a result that was not made durable: the effects happened, but the record of them cannot be
/// relied upon.
pub(crate) fn with_store_failure(result: ToolResult, failure: Failure) -> ToolResult {
    let parts = ToolResultParts {
        status: ResultStatus::Error,
        ok: false,
        data: None,
        data_hash: None,
        error: Some(failure),
        ..result.into_parts()
    };
    ToolResult::or_internal_error(parts)
}

/// A name that fits the envelope, whatever was asked for.
fn tool_name(asked: &str) -> ToolName {
    if let Ok(name) = ToolName::parse(asked) {
        return name;
    }
    let cleaned: String = asked
        .chars()
        .take(100)
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-') { c } else { '_' })
        .collect();
    ToolName::parse(&format!("unknown:{cleaned}")).unwrap_or_else(|_| ToolName::unknown())
}
