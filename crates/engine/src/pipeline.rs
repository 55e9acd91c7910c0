//! The pipeline. Every call, from every door, is one pass through [`run_call`] from top to bottom.
//!
//! ```text
//!  1 session    (the scope: caller, policy, cancel token)
//!  2 catalog    exact name or id, from one immutable snapshot
//!  3 policy     Allow | Deny | Ask
//!  4 validate   size, integers, input schema; canonical JSON -> argsHash
//!  5 hooks      may block, rewrite (then 3 and 4 again) or ask
//!  6 approve    Ask: recorded question, recorded answer
//!  7 permit     a slot among the run's and the engine's concurrent calls
//!  8 prepare    the provider says what will change; limits are checked; it must be what an approver was shown
//!  9 record     the ToolCall is durable before the effect
//! 10 attempt    deadline, cancellation, panics
//! 11 normalise  any outcome -> ToolResult; output schema; observed effects; large output by reference
//! 12 record     the ToolResult
//! ```
//!
//! The plan scheduler handles retries: each attempt is a new pass through the pipeline with a new envelope.

mod after_crash;
mod approve;
mod clearance;
mod outcome;
mod predict;

pub(crate) use after_crash::{Reconciliation, abandon, assume_done, in_doubt, interrupted, left_in_doubt, reconcile};
pub(crate) use approve::question_id;
pub(crate) use clearance::ask_ahead;
pub(crate) use outcome::{hand_over_by_reference, refuse, skip, with_store_failure};

use crate::{
    Asking, Blob, CallContext, Engine, Failed, NestedCalls, Output, Prepared, Progress, ProgressKind, Provider,
    Reconciled,
    attempt::{self, Attempt},
    facts::{self, LateFacts},
    record::{CallRecord, INLINE_BYTES, NoteRecord, Record},
    scope::RunScope,
    secrets::StoredArguments,
    store::{Durability, Position, StoreError},
    view,
};
use approve::Approved;
use clearance::clear;
use futures_util::FutureExt;
use outcome::{settle, unpredictable, unrecorded};
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};
use tokio::sync::{AcquireError, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use toolyard_catalog::ToolEntry;
use toolyard_protocol::{
    CallId, ConfirmationId, ErrorCode, EventLevel, Failure, Idempotency, Iteration, ResultStatus, StepId, ToolCall,
    ToolCallParts, ToolResult,
};
use tracing::Instrument as _;

/// How often a call that waits for this node's lease looks at it.
const LEASE_LOOK: Duration = Duration::from_millis(20);

/// One pass through the pipeline.
pub(crate) struct StepCall {
    pub(crate) step_id: StepId,
    pub(crate) tool: String,
    pub(crate) args: Map<String, Value>,
    pub(crate) iteration: Option<Iteration>,
    pub(crate) attempt: u32,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) preview: Option<String>,
    /// The step came to its end without a call: nothing is looked up under this attempt when the run is resumed or forked.
    pub(crate) never_ran: bool,
    /// A call made again after a crash keeps its id.
    pub(crate) recovered: Option<CallId>,
    /// No other call of the run is in flight, so the calling thread may perform the sync itself.
    pub(crate) is_alone: bool,
    /// Stops this call alone.
    pub(crate) cancel: CancellationToken,
    /// What to do when a person must be asked.
    pub(crate) asking: Asking,
}

/// The `scope` of an approval that is for one call alone.
pub(crate) const CALL_SCOPE: &str = "call";

/// A call with its result.
pub(crate) struct FinishedCall {
    pub(crate) result: ToolResult,
    /// The output, if the result only refers to it.
    pub(crate) whole: Option<Map<String, Value>>,
    /// The position of the result in the store; wait for it before anything that depends on the result.
    pub(crate) position: Position,
    /// Whether the result must be durable before it is acted on.
    pub(crate) side_effects: bool,
}

impl FinishedCall {
    pub(crate) fn new(result: ToolResult, position: Position, side_effects: bool) -> Self {
        Self { result, whole: None, position, side_effects }
    }
}

/// A call that passed every check.
struct Cleared {
    entry: Arc<ToolEntry>,
    args: Map<String, Value>,
    checked: Checked,
    /// Of the arguments as they were asked for, before any hook rewrote them.
    asked_hash: String,
    side_effects: bool,
    /// The approval of this call, if it needed its own.
    approved: Option<Approved>,
}

/// Arguments that fit their schema, as they are recorded.
struct Checked {
    /// Canonical JSON.
    json: Vec<u8>,
    /// `argsHash`: the hash of that JSON.
    hash: String,
    /// What is recorded in place of the arguments, when some of them are secret.
    kept: Option<StoredArguments>,
}

/// What goes into the record of a call.
struct CallParts<'a> {
    call: &'a StepCall,
    envelope: &'a ToolCall,
    entry: &'a ToolEntry,
    checked: &'a Checked,
    asked_hash: &'a str,
}

/// Runs a call through the pipeline. Always returns exactly one result.
pub(crate) async fn run_call(engine: &Engine, scope: &RunScope, call: StepCall) -> FinishedCall {
    let call_id = call.recovered.unwrap_or_else(|| CallId::from_uuid(engine.clock().new_id()));
    // From here on the call can be stopped by its id, while it waits for a person as well as while it runs.
    let stop = call.cancel.child_token();
    let _registered = engine.register_call(scope, call_id, stop.clone());
    let cleared = match clear(engine, scope, call_id, &call, &stop).await {
        Ok(cleared) => cleared,
        Err(failure) => return refuse(engine, scope, call_id, &call, failure),
    };
    let side_effects = cleared.side_effects;

    // 7 permit
    let _permits = match permit(engine, scope, &stop).await {
        Ok(permits) => permits,
        Err(failure) => return refuse(engine, scope, call_id, &call, failure),
    };

    let Cleared { entry, args, checked, asked_hash, approved, .. } = cleared;
    let confirmation = approved.as_ref().map(|approved| approved.id);
    let definition = entry.definition().clone();
    let provider = match runner(scope, &entry, side_effects) {
        Ok(Some(provider)) => provider,
        Ok(None) => return unpredictable(engine, scope, call_id, &call, &definition.side_effects),
        Err(failure) => return refuse(engine, scope, call_id, &call, failure),
    };
    let args_hash = checked.hash.clone();
    let envelope = match envelope(engine, scope, call_id, &call, &entry, args, args_hash, confirmation) {
        Ok(envelope) => envelope,
        Err(failure) => return refuse(engine, scope, call_id, &call, failure),
    };
    let context = context_of(engine, scope, &call, &envelope, &provider, stop.clone());
    let made =
        CallParts { call: &call, envelope: &envelope, entry: &entry, checked: &checked, asked_hash: &asked_hash };
    let timeout = Duration::from_millis(envelope.timeout_ms.unwrap_or(definition.default_timeout_ms));
    let attempt = Attempt::new(&provider, &context, &envelope, timeout, engine.options().grace);

    // 8 prepare
    let started = engine.clock().now();
    let end = |status, outcome| settle(engine, scope, &entry, &envelope, started, outcome, status, side_effects);
    let prepared = match prepare(scope, &attempt, &envelope).await {
        Ok(prepared) => prepared,
        Err((status, failed)) => {
            record_call(scope, &made, None);
            return end(status, Err(failed));
        }
    };

    // The effects that the call would have now must be those that the person was shown.
    if let Some(failure) = approved.as_ref().and_then(|approved| approved.deviation(prepared.intent.as_ref())) {
        return refuse(engine, scope, call_id, &call, failure);
    }

    // 9 record
    record_call(scope, &made, Some(&prepared));
    if side_effects {
        let synced = if call.is_alone { scope.recorder.sync_here().await } else { scope.recorder.sync().await };
        if let Err(error) = synced {
            // Nothing was dispatched, and nothing more can be recorded: this result lives in the answer only.
            return unrecorded(engine, &call, &envelope, started, error.into());
        }
    }
    if let Err((status, failed)) = may_begin(engine, &stop, timeout, &envelope, side_effects).await {
        return end(status, Err(failed));
    }

    // 10 attempt
    let intent = prepared.intent.clone();
    let span = span_of(scope, &envelope);
    let outcome = if side_effects {
        let late = late_note(engine, scope, &envelope);
        attempt.execute_detached(prepared, engine.options().late_window, late).instrument(span.clone()).await
    } else {
        attempt.execute(prepared).instrument(span.clone()).await
    };

    // 11 normalise, 12 record
    match outcome {
        Ok(output) => end(ResultStatus::Ok, Ok(output)),
        Err(stopped) => {
            let lost_sight = stopped.lost_sight();
            let (status, mut failed) = stopped.into_outcome(&envelope);
            span.record("error.type", failed.failure.code.as_str());
            if lost_sight
                && definition.idempotency == Idempotency::Etag
                && let Some(intent) = &intent
            {
                observe(&provider, &context, &envelope, intent, &mut failed).await;
            }
            end(status, Err(failed))
        }
    }
}

/// Whether the call may be dispatched: it was not cancelled, and this node's lease is good. While the lease may have run
/// out, another node may be about to take over the run, so a call with side effects waits for the next beat, at most as
/// long as the call itself may take. A store that is not shared answers at once.
async fn may_begin(
    engine: &Engine,
    stop: &CancellationToken,
    patience: Duration,
    envelope: &ToolCall,
    side_effects: bool,
) -> Result<(), (ResultStatus, Failed)> {
    let began = tokio::time::Instant::now();
    while !stop.is_cancelled() {
        match engine.store().may_dispatch() {
            Err(error) if side_effects => {
                if matches!(error, StoreError::Fenced(_)) || began.elapsed() >= patience {
                    return Err((ResultStatus::Error, Failure::from(error).into()));
                }
                tokio::time::sleep(LEASE_LOOK).await;
            }
            _ => return Ok(()),
        }
    }
    Err(attempt::Stopped::Cancelled { answer: None }.into_outcome(envelope))
}

/// A slot among the run's concurrent calls and, except for a nested call, one among the engine's.
type Permits<'a> = (Option<SemaphorePermit<'a>>, SemaphorePermit<'a>);

/// Waits for a slot, until the call is stopped.
async fn permit<'a>(engine: &'a Engine, scope: &'a RunScope, stop: &CancellationToken) -> Result<Permits<'a>, Failure> {
    let places = async {
        // A nested call uses its parent's slot in the engine. If it waited for another one, parents that wait for their
        // children could occupy all slots.
        let engine_wide = if scope.is_nested() { None } else { Some(engine.permits().acquire().await?) };
        Ok::<_, AcquireError>((engine_wide, scope.permits.acquire().await?))
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(cancelled()),
        permits = places => permits.map_err(|_| Failure::new(ErrorCode::Unavailable, "Toolyard is shutting down")),
    }
}

/// The provider of the tool; in a dry run, the provider's preview. `None` if a dry run cannot predict what the tool would do.
fn runner(scope: &RunScope, entry: &ToolEntry, side_effects: bool) -> Result<Option<Arc<dyn Provider>>, Failure> {
    let definition = entry.definition();
    let Some(provider) = scope.tools.provider(entry.id()).cloned() else {
        return Err(Failure::new(ErrorCode::Unavailable, format!("nothing runs {} now", definition.name)));
    };
    let Some(previews) = &scope.previews else { return Ok(Some(provider)) };
    Ok(match previews.of(&provider) {
        Some(twin) if !side_effects || definition.supports_dry_run => Some(twin),
        None if !side_effects => Some(provider),
        _ => None,
    })
}

/// The call's envelope and the decisions about it.
#[allow(clippy::too_many_arguments)] // the parts of one envelope
fn envelope(
    engine: &Engine,
    scope: &RunScope,
    call_id: CallId,
    call: &StepCall,
    entry: &ToolEntry,
    args: Map<String, Value>,
    args_hash: String,
    confirmation: Option<ConfirmationId>,
) -> Result<Arc<ToolCall>, Failure> {
    let definition = entry.definition();
    let created_at = engine.clock().now();
    let timeout_ms = call
        .timeout_ms
        .unwrap_or(definition.default_timeout_ms)
        .min(definition.max_timeout_ms.unwrap_or(u64::MAX))
        .min(scope.limits().max_call_ms)
        .max(1);
    let preview = call.preview.clone().unwrap_or_else(|| generated_preview(entry, &args));
    let parts = ToolCallParts {
        call_id,
        run_id: scope.run_id,
        step_id: call.step_id.clone(),
        tool: definition.name.clone(),
        attempt: call.attempt.max(1),
        args: args.into(),
        args_hash: Some(args_hash),
        timeout_ms: Some(timeout_ms),
        deadline_at: created_at.checked_add(Duration::from_millis(timeout_ms)).ok(),
        cancellable: definition.cancellable,
        loop_id: call.iteration.as_ref().map(|_| view::loop_id(scope.run_id, &call.step_id)),
        iteration: call.iteration.clone(),
        created_at,
        planner_version: scope.planner_version.clone(),
        executor_version: crate::EXECUTOR_VERSION.to_owned(),
        tool_registry_version: scope.tools.snapshot.version().to_owned(),
        preview: Some(preview),
        risk_level: definition.risk_level,
        category: Some(definition.category.to_string()),
        policy: scope.policy.snapshot().clone(),
        confirmation_id: confirmation.or(scope.confirmation.get().copied()),
    };
    ToolCall::with_known_hash(parts).map(Arc::new).map_err(|e| Failure::new(ErrorCode::InternalError, e.to_string()))
}

/// The context that the provider receives with the call.
fn context_of(
    engine: &Engine,
    scope: &RunScope,
    call: &StepCall,
    envelope: &Arc<ToolCall>,
    provider: &Arc<dyn Provider>,
    cancel: CancellationToken,
) -> Arc<CallContext> {
    Arc::new(CallContext {
        cancel,
        caller: scope.acting.clone(),
        progress: progress_of(engine, scope, envelope),
        blobs: engine.blobs(),
        calls: if provider.makes_calls() {
            NestedCalls::of(engine, scope, envelope, call.cancel.clone(), call.asking.clone())
        } else {
            NestedCalls::none()
        },
    })
}

/// The changes that the provider will make, within the limits of the run; otherwise the outcome of the call.
async fn prepare(
    scope: &RunScope,
    attempt: &Attempt<'_>,
    envelope: &ToolCall,
) -> Result<Prepared, (ResultStatus, Failed)> {
    let mut prepared = attempt.prepare().await.map_err(|stopped| stopped.into_outcome(envelope))?;
    let (bytes, deletes) = prepared.intent.as_ref().map_or((0, 0), |intent| (intent.bytes_written, intent.deletes));
    scope.usage.take(scope.limits(), bytes, deletes).map_err(|failure| (ResultStatus::Error, failure.into()))?;
    scope.recorder.push_blobs(std::mem::take(&mut prepared.blobs));
    Ok(prepared)
}

/// One span a call, named and labelled as OpenTelemetry's conventions for generative AI have it.
fn span_of(scope: &RunScope, envelope: &ToolCall) -> tracing::Span {
    tracing::debug_span!(
        "execute_tool",
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = %envelope.tool,
        gen_ai.tool.call.id = %envelope.call_id,
        gen_ai.tool.type = "function",
        toolyard.run_id = %scope.run_id,
        toolyard.step_id = %envelope.step_id,
        toolyard.attempt = envelope.attempt,
        toolyard.args_hash = envelope.args_hash(),
        error.type = tracing::field::Empty,
    )
}

/// A preview line for people if the plan has none: the kind of action and its target.
fn generated_preview(entry: &ToolEntry, args: &Map<String, Value>) -> String {
    let title = &entry.definition().title;
    match entry.path_arguments(args).first() {
        Some((_, path)) => format!("{title}: {}", path.chars().take(120).collect::<String>()),
        None => title.clone(),
    }
}

fn record_call(scope: &RunScope, made: &CallParts<'_>, prepared: Option<&Prepared>) {
    let CallParts { call, envelope, entry, checked, asked_hash } = *made;
    // A name that several tools share does not say which of them it was.
    let by_name = scope.tools.snapshot.get(envelope.tool.as_str());
    let tool_id = by_name.is_none_or(|e| e.id() != entry.id()).then(|| entry.id().to_owned());
    let (args, args_blob) = if checked.json.len() > INLINE_BYTES {
        let blob = Blob::new(&checked.json[..]);
        let sha256 = blob.sha256.clone();
        scope.recorder.push_blobs([blob]);
        (None, Some(sha256))
    } else {
        (Some(checked.kept.as_ref().map_or_else(|| envelope.args.clone(), |kept| kept.args.clone())), None)
    };
    scope.recorder.push(&Record::Call(CallRecord {
        call_id: envelope.call_id,
        step_id: envelope.step_id.clone(),
        tool: envelope.tool.clone(),
        attempt: envelope.attempt,
        args,
        args_blob,
        args_hash: envelope.args_hash().trim_start_matches("sha256:").to_owned(),
        asked_hash: (asked_hash != envelope.args_hash()).then(|| asked_hash.trim_start_matches("sha256:").to_owned()),
        tool_id,
        timeout_ms: envelope.timeout_ms,
        at: envelope.created_at.as_microsecond(),
        not_cancellable: !envelope.cancellable,
        iteration: envelope.iteration.clone(),
        preview: envelope.preview.clone(),
        risk: envelope.risk_level,
        category: envelope.category.clone(),
        confirmation_id: envelope.confirmation_id,
        scheduled: true,
        intent: prepared.and_then(|p| p.intent.clone()),
        recovered: call.recovered.is_some(),
        secrets: checked.kept.as_ref().map(|kept| kept.secrets.clone()).unwrap_or_default(),
    }));
}

/// Looks at the target of a call that was abandoned, to report what it changed.
async fn observe(
    provider: &Arc<dyn Provider>,
    context: &CallContext,
    envelope: &ToolCall,
    intent: &crate::Intent,
    failed: &mut Failed,
) {
    if let Ok(Reconciled::Done(output)) = look(provider, context, envelope, intent).await {
        failed.effects = output.effects;
    }
}

/// Asks a provider for the outcome of a call, with a timeout and protection against panics.
async fn look(
    provider: &Arc<dyn Provider>,
    context: &CallContext,
    envelope: &ToolCall,
    intent: &crate::Intent,
) -> Result<Reconciled, Failed> {
    let asked = std::panic::AssertUnwindSafe(async { provider.reconcile(context, envelope, intent).await });
    match tokio::time::timeout(attempt::OBSERVE_TIME, asked.catch_unwind()).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(Failed::new(ErrorCode::InternalError, format!("{} failed when asked", envelope.tool))),
        Err(_) => {
            Err(Failed::new(ErrorCode::Timeout, format!("{} did not say what became of the call", envelope.tool)))
        }
    }
}

fn late_note(
    engine: &Engine,
    scope: &RunScope,
    envelope: &Arc<ToolCall>,
) -> impl FnOnce(Result<Output, Failed>) + Send + 'static {
    let recorder = scope.recorder.clone();
    let clock = engine.clock().clone();
    let envelope = envelope.clone();
    move |outcome| {
        let (message, ok, effects) = match outcome {
            Ok(output) => ("A late answer arrived: it worked".to_owned(), true, output.effects),
            Err(failed) => (format!("A late answer arrived: {}", failed.failure), false, failed.effects),
        };
        recorder.push(&Record::Note(NoteRecord {
            at: clock.now(),
            level: EventLevel::Warn,
            message,
            call_id: Some(envelope.call_id),
            step_id: Some(envelope.step_id.clone()),
            payload: facts::payload(&LateFacts { late: true, ok, effects }),
        }));
        if let Err(error) = recorder.flush(Durability::Deferred) {
            tracing::error!(%error, "a late answer could not be recorded");
        }
    }
}

fn progress_of(engine: &Engine, scope: &RunScope, envelope: &Arc<ToolCall>) -> Progress {
    let (clock, recorder, envelope) = (engine.clock().clone(), scope.recorder.clone(), envelope.clone());
    Progress::new(move |kind, message, payload| match kind {
        ProgressKind::Passing => {
            recorder.progress(envelope.call_id, &envelope.step_id, &envelope.tool, message, payload);
        }
        // It is written with the call's result, and as durable as that.
        ProgressKind::Kept => recorder.push(&Record::Note(NoteRecord {
            at: clock.now(),
            level: EventLevel::Info,
            message,
            call_id: Some(envelope.call_id),
            step_id: Some(envelope.step_id.clone()),
            payload: payload.unwrap_or_default(),
        })),
    })
}

fn cancelled() -> Failure {
    Failure::new(ErrorCode::Cancelled, "stopped before it was dispatched").retryable(false)
}
