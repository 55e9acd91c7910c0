//! The one road. Every call, whichever door it came in by, is one run through [`run_call`], top to bottom.
//!
//! ```text
//!  1 session    (the scope: caller, policy, cancel token)
//!  2 catalog    exact name or id, from one immutable snapshot
//!  3 policy     Allow | Deny | Ask
//!  4 validate   size, integers, input schema; canonical JSON -> argsHash
//!  5 hooks      may block, rewrite (then 3 and 4 again) or ask
//!  6 approve    Ask: recorded question, recorded answer
//!  7 permit     a place among the run's and the engine's concurrent calls
//!  8 prepare    the provider says what will change; limits are checked
//!  9 record     the ToolCall is durable before the effect
//! 10 attempt    deadline, cancellation, panics
//! 11 normalise  any outcome -> ToolResult; output schema; observed effects; large output by reference
//! 12 record     the ToolResult
//! ```
//!
//! Retries belong to the plan scheduler: each try is a new trip down this road with a new envelope.

use crate::{
    Asking, Blob, CallContext, Engine, Failed, HookCall, HookVerdict, NestedCalls, Output, Prepared, Progress,
    Provider, Reconciled,
    approvals::{Answer, ApprovalRequest, Opened, Route},
    attempt::{self, Attempt},
    record::{
        CallRecord, ConfirmationRequested, Confirmed, INLINE_BYTES, NoteRecord, OutcomeRecord, Record, RefusedRecord,
        ResultRecord,
    },
    scope::RunScope,
    store::{Durability, Position, StoreError},
    view,
};
use futures_util::FutureExt;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use toolyard_catalog::{Decision, ToolEntry, Violation};
use toolyard_protocol::{
    CallId, Confirmation, ConfirmationDecision, ConfirmationId, Effects, ErrorCode, EventLevel, Failure, Idempotency,
    Iteration, ResultStatus, StepId, ToolCall, ToolCallParts, ToolName, ToolResult, ToolResultParts,
    canonical::{self, CanonicalError},
};
use tracing::Instrument as _;

/// One trip down the road.
pub(crate) struct StepCall {
    pub(crate) step_id: StepId,
    pub(crate) tool: String,
    pub(crate) args: Map<String, Value>,
    pub(crate) iteration: Option<Iteration>,
    pub(crate) attempt: u32,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) preview: Option<String>,
    pub(crate) first_of_step: bool,
    /// A call made again after a crash keeps its id.
    pub(crate) recovered: Option<CallId>,
    /// Stops this call alone.
    pub(crate) cancel: CancellationToken,
    /// What to do when a person must be asked.
    pub(crate) asking: Asking,
}

/// The `scope` of an approval that is for one call alone.
pub(crate) const CALL_SCOPE: &str = "call";

/// A call with its result.
pub(crate) struct Settled {
    pub(crate) result: ToolResult,
    /// The output itself, where the result only refers to it.
    pub(crate) whole: Option<Map<String, Value>>,
    /// Where the result stands in the store's order; wait for it before anything that depends on the result.
    pub(crate) position: Position,
    /// Whether the result must be durable before it is acted on.
    pub(crate) side_effects: bool,
}

impl Settled {
    pub(crate) fn new(result: ToolResult, position: Position, side_effects: bool) -> Self {
        Self { result, whole: None, position, side_effects }
    }
}

/// A call that passed every check.
struct Cleared {
    entry: Arc<ToolEntry>,
    args: Map<String, Value>,
    args_json: Vec<u8>,
    args_hash: String,
    /// Of the arguments as they were asked for, before any hook rewrote them.
    asked_hash: String,
    side_effects: bool,
    /// The approval of this very call, where it needed one of its own.
    confirmation: Option<ConfirmationId>,
}

/// What goes into the record of a call.
struct Made<'a> {
    call: &'a StepCall,
    envelope: &'a ToolCall,
    entry: &'a ToolEntry,
    args_json: &'a [u8],
    asked_hash: &'a str,
}

/// Takes a call down the road. Always answers with exactly one result.
pub(crate) async fn run_call(engine: &Engine, scope: &RunScope, call: StepCall) -> Settled {
    let call_id = call.recovered.unwrap_or_else(|| CallId::from_uuid(engine.clock().new_id()));
    // From here on the call can be stopped by its id, while it waits for a person as well as while it runs.
    let stop = call.cancel.child_token();
    let _registered = engine.register_call(call_id, stop.clone());
    let cleared = match clear(engine, scope, call_id, &call, &stop).await {
        Ok(cleared) => cleared,
        Err(failure) => return refuse(engine, scope, call_id, &call, failure),
    };
    let side_effects = cleared.side_effects;

    // 7 permit
    let permits = tokio::select! {
        biased;
        () = stop.cancelled() => return refuse(engine, scope, call_id, &call, cancelled()),
        permits = async {
            // A nested call stands on its parent's place in the engine: were it to wait for another, parents that wait
            // for their children could fill all places.
            let engine_wide = if scope.is_nested() { Ok(None) } else { engine.permits().acquire().await.map(Some) };
            (scope.permits.acquire().await, engine_wide)
        } => permits,
    };
    if permits.0.is_err() || permits.1.is_err() {
        return refuse(
            engine,
            scope,
            call_id,
            &call,
            Failure::new(ErrorCode::Unavailable, "Toolyard is shutting down"),
        );
    }

    let Cleared { entry, args, args_json, args_hash, asked_hash, confirmation, .. } = cleared;
    let definition = entry.definition().clone();
    let Some(provider) = scope.tools.provider(entry.id()).cloned() else {
        return refuse(
            engine,
            scope,
            call_id,
            &call,
            Failure::new(ErrorCode::Unavailable, format!("nothing runs {} now", definition.name)),
        );
    };
    let provider: Arc<dyn Provider> = match &scope.previews {
        None => provider,
        Some(previews) if !side_effects => match previews.of(&provider) {
            Some(twin) => twin,
            None => provider,
        },
        Some(previews) => match previews.of(&provider) {
            Some(twin) if definition.supports_dry_run => twin,
            _ => return unpredictable(engine, scope, call_id, &call, &definition.side_effects),
        },
    };

    let created_at = engine.clock().now();
    let limits = scope.limits();
    let timeout_ms = call
        .timeout_ms
        .unwrap_or(definition.default_timeout_ms)
        .min(definition.max_timeout_ms.unwrap_or(u64::MAX))
        .min(limits.max_call_ms)
        .max(1);
    let preview = call.preview.clone().unwrap_or_else(|| generated_preview(&entry, &args));
    let parts = ToolCallParts {
        call_id,
        run_id: scope.run_id,
        step_id: call.step_id.clone(),
        tool: definition.name.clone(),
        attempt: call.attempt.max(1),
        args,
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
        category: Some(definition.category.clone()),
        policy: scope.policy.snapshot().clone(),
        confirmation_id: confirmation.or(scope.confirmation.get().copied()),
    };
    let envelope = match ToolCall::with_known_hash(parts) {
        Ok(envelope) => Arc::new(envelope),
        Err(e) => return refuse(engine, scope, call_id, &call, Failure::new(ErrorCode::InternalError, e.to_string())),
    };
    let context = Arc::new(CallContext {
        cancel: stop.clone(),
        caller: scope.caller.clone(),
        progress: progress_of(scope, &envelope),
        blobs: engine.blobs(),
        calls: if provider.makes_calls() {
            NestedCalls::of(engine, scope, &envelope, call.cancel.clone(), call.asking.clone())
        } else {
            NestedCalls::none()
        },
    });
    let made = Made { call: &call, envelope: &envelope, entry: &entry, args_json: &args_json, asked_hash: &asked_hash };
    let attempt =
        Attempt::new(&provider, &context, &envelope, Duration::from_millis(timeout_ms), engine.options().grace);

    // 8 prepare
    let started = engine.clock().now();
    let prepared = match attempt.prepare().await {
        Ok(mut prepared) => {
            let intent = prepared.intent.as_ref();
            let usage =
                scope.usage.take(limits, intent.map_or(0, |i| i.bytes_written), intent.map_or(0, |i| i.deletes));
            match usage {
                Ok(()) => {
                    scope.recorder.push_blobs(std::mem::take(&mut prepared.blobs));
                    prepared
                }
                Err(failure) => {
                    record_call(scope, &made, None);
                    return settle(
                        engine,
                        scope,
                        &entry,
                        &envelope,
                        started,
                        Err(failure.into()),
                        ResultStatus::Error,
                        side_effects,
                    );
                }
            }
        }
        Err(stopped) => {
            record_call(scope, &made, None);
            let (status, failed) = stopped.into_outcome(&envelope);
            return settle(engine, scope, &entry, &envelope, started, Err(failed), status, side_effects);
        }
    };

    // 9 record
    record_call(scope, &made, Some(&prepared));
    if side_effects && let Err(error) = scope.recorder.sync().await {
        // Nothing was dispatched, and nothing more can be recorded: this result lives in the answer only.
        return unrecorded(engine, &call, &envelope, started, error.into());
    }
    if stop.is_cancelled() {
        let (status, failed) = attempt::Stopped::Cancelled { answer: None }.into_outcome(&envelope);
        return settle(engine, scope, &entry, &envelope, started, Err(failed), status, side_effects);
    }

    // 10 attempt
    let intent = prepared.intent.clone();
    // One span a call, named and labelled as OpenTelemetry's conventions for generative AI have it.
    let span = tracing::debug_span!(
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
    );
    let outcome = if side_effects {
        let late = late_note(engine, scope, &envelope);
        attempt.execute_detached(prepared, engine.options().late_window, late).instrument(span.clone()).await
    } else {
        attempt.execute(prepared).instrument(span.clone()).await
    };

    // 11 normalise
    let (status, outcome) = match outcome {
        Ok(output) => (ResultStatus::Ok, Ok(output)),
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
            (status, Err(failed))
        }
    };
    settle(engine, scope, &entry, &envelope, started, outcome, status, side_effects)
}

/// One line for people, where the plan has none: what kind of thing, and to what.
fn generated_preview(entry: &ToolEntry, args: &Map<String, Value>) -> String {
    let title = &entry.definition().title;
    match entry.path_arguments(args).first() {
        Some((_, path)) => format!("{title}: {}", path.chars().take(120).collect::<String>()),
        None => title.clone(),
    }
}

/// Stages 2 to 6.
async fn clear(
    engine: &Engine,
    scope: &RunScope,
    call_id: CallId,
    call: &StepCall,
    stop: &CancellationToken,
) -> Result<Cleared, Failure> {
    if stop.is_cancelled() {
        return Err(cancelled());
    }
    // 2 catalog
    let entry = look_up(scope, &call.tool)?;
    // 3 policy
    let mut policy_asks = weigh(scope, &entry, &call.args)?;
    // 4 validate
    let mut args = call.args.clone();
    let (mut args_json, mut args_hash) = validate(scope, &entry, &args)?;
    let asked_hash = args_hash.clone();
    // 5 hooks
    let mut hook_asks = Vec::new();
    let hooks = engine.hooks();
    let deadline = tokio::time::Instant::now() + hook_time(scope, &entry, call);
    for hook in hooks.iter() {
        let seen = HookCall { caller: &scope.caller, tool: &entry, args: &args };
        let mut verdict = ask_hook(&**hook, seen, deadline, stop).await?;
        let rewritten = match &mut verdict {
            HookVerdict::Rewrite(args) | HookVerdict::RewriteAndAsk { args, .. } => Some(std::mem::take(args)),
            _ => None,
        };
        if let Some(rewritten) = rewritten {
            args = rewritten;
            // What was asked about the arguments as they were is asked about what they are now.
            policy_asks = weigh(scope, &entry, &args)?;
            (args_json, args_hash) = validate(scope, &entry, &args)?;
        }
        match verdict {
            HookVerdict::Proceed | HookVerdict::Rewrite(_) => {}
            HookVerdict::Block { reason } => {
                return Err(Failure::new(ErrorCode::PolicyDenied, reason).detail("hook", hook.name()).retryable(false));
            }
            HookVerdict::Ask { title, description, timeout_ms }
            | HookVerdict::RewriteAndAsk { title, description, timeout_ms, .. } => {
                hook_asks.push(Question {
                    title,
                    reason: description,
                    rule: format!("hook {}", hook.name()),
                    timeout_ms,
                    by_hook: true,
                });
            }
        }
    }
    let side_effects = entry.definition().has_side_effects();
    // 6 approve: every question has its own answer.
    let mut confirmation = None;
    if scope.previews.is_none() {
        for question in policy_asks.into_iter().chain(hook_asks) {
            let given = approve(engine, scope, call_id, &entry, &args_hash, question, call, stop).await?;
            confirmation = confirmation.or(given);
        }
    }
    Ok(Cleared { entry, args, args_json, args_hash, asked_hash, side_effects, confirmation })
}

/// Hooks together may take as long as the call itself.
fn hook_time(scope: &RunScope, entry: &ToolEntry, call: &StepCall) -> Duration {
    let ms = call.timeout_ms.unwrap_or(entry.definition().default_timeout_ms).min(scope.limits().max_call_ms);
    Duration::from_millis(ms.max(1))
}

/// Asks one hook. A hook that breaks or hangs lets nothing through.
async fn ask_hook(
    hook: &dyn crate::Hook,
    call: HookCall<'_>,
    deadline: tokio::time::Instant,
    stop: &CancellationToken,
) -> Result<HookVerdict, Failure> {
    let asked = std::panic::AssertUnwindSafe(async { hook.before(call).await }).catch_unwind();
    tokio::select! {
        biased;
        verdict = asked => verdict.map_err(|_| {
            Failure::new(ErrorCode::InternalError, format!("the hook {} failed unexpectedly", hook.name()))
                .detail("hook", hook.name())
                .retryable(false)
        }),
        () = stop.cancelled() => Err(cancelled()),
        () = tokio::time::sleep_until(deadline) => {
            Err(Failure::new(ErrorCode::Timeout, format!("the hook {} did not answer in time", hook.name()))
                .detail("hook", hook.name()))
        }
    }
}

struct Question {
    title: String,
    reason: String,
    rule: String,
    timeout_ms: u64,
    by_hook: bool,
}

fn look_up(scope: &RunScope, name: &str) -> Result<Arc<ToolEntry>, Failure> {
    use toolyard_catalog::Resolution;
    match scope.tools.snapshot.resolve(name) {
        Resolution::Found(entry) => Ok(entry.clone()),
        Resolution::Ambiguous(ids) => Err(Failure::new(
            ErrorCode::ValidationError,
            format!("several tools are called {}; use an exact id", shown(name)),
        )
        .detail("ids", ids)
        .retryable(false)),
        Resolution::Unknown { suggestions } => {
            // A suggestion must not give away a tool that the caller may not see.
            let suggestions: Vec<String> = suggestions
                .into_iter()
                .filter(|s| {
                    scope
                        .tools
                        .snapshot
                        .get(s)
                        .is_some_and(|e| !matches!(scope.policy.decide(e, None), Decision::Deny { .. }))
                })
                .collect();
            let failure =
                Failure::new(ErrorCode::NotFound, format!("there is no tool called {}", shown(name))).retryable(false);
            Err(if suggestions.is_empty() {
                failure.suggest("List the tools with `toolyard tools list`.")
            } else {
                let text = format!("Did you mean {}?", suggestions.join(", "));
                failure.suggest(text).detail("suggestions", suggestions)
            })
        }
    }
}

/// What the policy wants asked about these arguments.
fn weigh(scope: &RunScope, entry: &ToolEntry, args: &Map<String, Value>) -> Result<Option<Question>, Failure> {
    match scope.policy.decide(entry, Some(args)) {
        Decision::Allow => Ok(None),
        Decision::Deny { reason, rule } => {
            Err(Failure::new(ErrorCode::PolicyDenied, reason).detail("rule", rule).retryable(false))
        }
        Decision::Ask { reason, rule, timeout_ms } => {
            let title = format!("Run {}", entry.name());
            Ok(Some(Question { title, reason, rule, timeout_ms, by_hook: false }))
        }
    }
}

fn validate(scope: &RunScope, entry: &ToolEntry, args: &Map<String, Value>) -> Result<(Vec<u8>, String), Failure> {
    let invalid = |violations: Vec<Violation>| {
        let first = violations
            .first()
            .map(|v| format!("{}: {}", if v.path.is_empty() { "arguments" } else { &v.path }, v.message));
        let errors: Vec<Value> = violations.iter().map(|v| json!({"path": v.path, "message": v.message})).collect();
        Failure::new(
            ErrorCode::ValidationError,
            format!("the arguments do not fit {}: {}", entry.name(), first.unwrap_or_default()),
        )
        .detail("errors", errors)
        .retryable(false)
    };
    let bytes = canonical::to_vec(args)
        .map_err(|e| invalid(vec![Violation { path: String::new(), message: e.to_string() }]))?;
    let limit = scope.limits().max_args_bytes;
    if bytes.len() as u64 > limit {
        return Err(Failure::new(
            ErrorCode::LimitExceeded,
            format!("the arguments are {} bytes; maxArgsBytes is {limit}", bytes.len()),
        )
        .detail("limit", "maxArgsBytes")
        .detail("value", limit)
        .retryable(false));
    }
    for (key, value) in args {
        if value.is_number() || value.is_array() || value.is_object() {
            canonical::check_integers(value).map_err(|e| {
                let below = match &e {
                    CanonicalError::UnsafeInteger { path } => path.trim_end_matches('/'),
                    CanonicalError::Unrepresentable(_) => "",
                };
                let path = format!("/{}{below}", key.replace('~', "~0").replace('/', "~1"));
                invalid(vec![Violation { path, message: e.to_string() }])
            })?;
        }
    }
    entry.check_input(args).map_err(invalid)?;
    let hash = format!("sha256:{}", canonical::sha256_hex(&bytes));
    Ok((bytes, hash))
}

#[allow(clippy::too_many_arguments)] // the parts of one question
async fn approve(
    engine: &Engine,
    scope: &RunScope,
    call_id: CallId,
    entry: &ToolEntry,
    args_hash: &str,
    question: Question,
    call: &StepCall,
    cancel: &CancellationToken,
) -> Result<Option<ConfirmationId>, Failure> {
    // A run that a person approved as a whole, or a deliberate act of a person, answers the policy's question.
    // A hook's question is about these very arguments and is asked even then, except of the person themselves.
    if scope.confirmation.get().is_some() && !question.by_hook {
        return Ok(None);
    }
    let now = engine.clock().now();
    if scope.caller.is_person {
        return Ok(Some(confirm(engine, scope, args_hash, scope.caller.principal.clone(), now)));
    }
    if call.asking == Asking::Report {
        if let Some(by) = engine.approvals().granted(&scope.caller.agent, entry.name().as_str())? {
            return Ok(Some(confirm(engine, scope, args_hash, format!("{by} (allow-always)"), now)));
        }
        return Err(Failure::new(ErrorCode::ConfirmationRequired, question.reason)
            .suggest("Make the same call with `confirm: true` to ask a person, and wait for the answer.")
            .detail("rule", question.rule)
            .retryable(false));
    }
    let mut extra = Map::new();
    if let Asking::Wait { requester: Some(requester) } = &call.asking {
        extra.insert(crate::approvals::REQUESTER.to_owned(), requester.as_str().into());
    }
    let wait = question.timeout_ms.clamp(1, crate::approvals::MAX_WAIT_MS);
    let request = ApprovalRequest {
        id: format!("{}:{}", if question.by_hook { "plugin" } else { "policy" }, engine.clock().new_id()),
        kind: if question.by_hook { "plugin" } else { "policy" }.to_owned(),
        title: question.title.chars().take(80).collect(),
        description: question.reason.chars().take(512).collect(),
        severity: "warning".to_owned(),
        tool: entry.name().to_string(),
        args_hash: args_hash.to_owned(),
        call_id: Some(call_id),
        run_id: Some(scope.run_id),
        agent: scope.caller.agent.clone(),
        session: scope.caller.session.clone(),
        rule: question.rule,
        extra,
        created_at: now,
        expires_at: now.checked_add(Duration::from_millis(wait)).unwrap_or(now),
    };
    let message = request.description.clone();
    scope.recorder.push(Record::ConfirmationRequested(ConfirmationRequested { message, at: now }));
    let route = if call.asking == Asking::Unreachable { Route::None } else { Route::AnyApprover };
    let (id, approvals) = (request.id.clone(), engine.approvals());
    let answer = match approvals.open(request, route).await? {
        Opened::Answered(answer) => answer,
        Opened::Waiting(waiting) => approvals.wait(waiting, cancel).await?,
    };
    match answer {
        Answer::Allowed { by } => Ok(Some(confirm(engine, scope, args_hash, by, engine.clock().now()))),
        Answer::Denied { reason } => {
            Err(Failure::new(ErrorCode::ApprovalDenied, reason).detail("approvalId", id).retryable(false))
        }
        Answer::Cancelled => Err(cancelled()),
    }
}

/// Records an approval of this call and no other. It becomes durable with the call it allows, which is before the effect.
fn confirm(engine: &Engine, scope: &RunScope, shown_hash: &str, by: String, at: Timestamp) -> ConfirmationId {
    let id = ConfirmationId::from_uuid(engine.clock().new_id());
    scope.recorder.push(Record::Confirmed(Confirmed(Confirmation {
        confirmation_id: id,
        plan_hash: shown_hash.to_owned(),
        policy_hash: scope.policy.hash().to_owned(),
        preview_hash: None,
        decision: ConfirmationDecision::Approved,
        by,
        at,
        expires_at: None,
        scope: CALL_SCOPE.to_owned(),
    })));
    id
}

fn record_call(scope: &RunScope, made: &Made<'_>, prepared: Option<&Prepared>) {
    let Made { call, envelope, entry, args_json, asked_hash } = *made;
    // A name that several tools share does not say which of them it was.
    let by_name = scope.tools.snapshot.get(envelope.tool.as_str());
    let tool_id = by_name.is_none_or(|e| e.id() != entry.id()).then(|| entry.id().to_owned());
    let (args, args_blob) = if args_json.len() > INLINE_BYTES {
        let blob = Blob::new(args_json);
        let sha256 = blob.sha256.clone();
        scope.recorder.push_blobs([blob]);
        (None, Some(sha256))
    } else {
        (Some(envelope.args.clone()), None)
    };
    scope.recorder.push(Record::Call(CallRecord {
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
        first_of_step: call.first_of_step,
        intent: prepared.and_then(|p| p.intent.clone()),
        recovered: call.recovered.is_some(),
    }));
}

#[allow(clippy::too_many_arguments)] // the parts of one result
fn settle(
    engine: &Engine,
    scope: &RunScope,
    entry: &ToolEntry,
    envelope: &ToolCall,
    started: Timestamp,
    outcome: Result<Output, Failed>,
    status: ResultStatus,
    side_effects: bool,
) -> Settled {
    let outcome = outcome.and_then(|output| check_output(entry, output));
    let (outcome, data) = to_record(engine, scope, started, status, outcome);
    let mut result =
        to_result(envelope.call_id, scope, &envelope.step_id, &envelope.tool, envelope.attempt, &outcome, data);
    let whole = hand_over_by_reference(&mut result, outcome.data_blob.as_deref(), scope.limits().max_output_bytes);
    scope.recorder.push(Record::Result(ResultRecord { call_id: envelope.call_id, outcome }));
    // Ride: the next intent, or whoever depends on this result, makes it durable. That is one sync a step, not two.
    let position = flush_result(scope);
    for hook in engine.hooks().iter() {
        hook.after(&result);
    }
    match position {
        Ok(position) => Settled { result, whole, position, side_effects },
        Err(error) => Settled::new(with_store_failure(result, error.into()), Position::default(), side_effects),
    }
}

/// Queues a result. The end of a run of one call comes right after its result and takes it along: one batch, not two.
fn flush_result(scope: &RunScope) -> Result<Position, StoreError> {
    if scope.is_one_call { Ok(Position::default()) } else { scope.recorder.flush(Durability::Ride) }
}

/// A tool whose output does not fit its own schema has failed, but what it changed is still reported.
fn check_output(entry: &ToolEntry, output: Output) -> Result<Output, Failed> {
    match entry.check_output(&output.data) {
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
            Err(Failed { failure, effects: output.effects, debug_message: None })
        }
    }
}

fn to_record(
    engine: &Engine,
    scope: &RunScope,
    started: Timestamp,
    status: ResultStatus,
    outcome: Result<Output, Failed>,
) -> (OutcomeRecord, Option<Map<String, Value>>) {
    let took_us = (engine.clock().now().as_microsecond() - started.as_microsecond()).max(0);
    let mut record = OutcomeRecord {
        status,
        data: None,
        data_blob: None,
        error: None,
        started: started.as_microsecond(),
        took_us,
        effects: None,
        user_message: None,
        debug_message: None,
    };
    let keep = |effects: Effects| (!effects.is_empty()).then_some(effects);
    match outcome {
        Ok(output) => {
            record.effects = keep(output.effects);
            record.user_message = output.user_message;
            if json_size(&output.data) <= INLINE_BYTES {
                record.data = Some(output.data.clone());
            } else {
                let blob = Blob::new(serde_json::to_vec(&output.data).unwrap_or_default());
                record.data_blob = Some(blob.sha256.clone());
                scope.recorder.push_blobs([blob]);
            }
            (record, Some(output.data))
        }
        Err(failed) => {
            record.status = if status == ResultStatus::Ok { ResultStatus::Error } else { status };
            record.effects = keep(failed.effects);
            record.error = Some(failed.failure);
            record.debug_message = failed.debug_message;
            (record, None)
        }
    }
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
    let reference = json!({"externalized": true, "ref": format!("blob:sha256:{sha256}"), "bytes": bytes});
    let mut parts = result.clone().into_parts();
    let whole = parts.data.replace(reference.as_object().cloned().unwrap_or_default());
    *result = valid(parts);
    whole
}

/// The bytes of a JSON object, without building its text. Of a small one this is only a bound, and at most
/// [`INLINE_BYTES`]; what is larger is counted exactly.
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
    let _ = serde_json::to_writer(&mut counter, data);
    counter.0
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

fn to_result(
    call_id: CallId,
    scope: &RunScope,
    step_id: &StepId,
    tool: &ToolName,
    attempt: u32,
    outcome: &OutcomeRecord,
    data: Option<Map<String, Value>>,
) -> ToolResult {
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
        error: outcome.error.clone(),
        started_at: view::micros(outcome.started),
        ended_at: view::micros(outcome.started + outcome.took_us),
        duration_ms: (outcome.took_us as u64).div_ceil(1000),
        effects: outcome.effects.clone(),
        user_message: outcome.user_message.clone(),
        debug_message: outcome.debug_message.clone(),
    };
    valid(parts)
}

/// A result from its parts. The fallback is unreachable by construction; if a defect ever builds an inconsistent result, the caller still gets a valid one.
pub(crate) fn valid(mut parts: ToolResultParts) -> ToolResult {
    // The fallback has no data, so the data, which may be large, is not copied for it.
    let data = parts.data.take();
    let fallback = parts.clone();
    parts.data = data;
    let problem = match ToolResult::new(parts) {
        Ok(result) => return result,
        Err(e) => e.to_string(),
    };
    let fallback = ToolResultParts {
        status: ResultStatus::Error,
        ok: false,
        data: None,
        data_hash: None,
        error: Some(Failure::new(ErrorCode::InternalError, problem)),
        ended_at: fallback.started_at,
        ..fallback
    };
    match ToolResult::new(fallback) {
        Ok(result) => result,
        Err(_) => std::process::abort(),
    }
}

/// An outcome without a dispatched call: recorded, so that what was refused can be seen afterwards.
pub(crate) fn refuse(engine: &Engine, scope: &RunScope, call_id: CallId, call: &StepCall, failure: Failure) -> Settled {
    let status = match failure.code {
        ErrorCode::Cancelled => ResultStatus::Cancelled,
        ErrorCode::Timeout => ResultStatus::Timeout,
        _ => ResultStatus::Error,
    };
    let now = engine.clock().now();
    let args = Value::Object(call.args.clone());
    let asked = (json_size(&call.args) <= INLINE_BYTES).then_some(args);
    finish_refusal(engine, scope, call_id, call, now, asked, status, Some(failure), None)
}

/// A step that is not going to run.
pub(crate) fn skip(engine: &Engine, scope: &RunScope, call: &StepCall, why: String) -> Settled {
    let now = engine.clock().now();
    let call_id = CallId::from_uuid(engine.clock().new_id());
    finish_refusal(engine, scope, call_id, call, now, None, ResultStatus::Skipped, None, Some(why))
}

/// A dry run of a tool that cannot predict itself.
fn unpredictable(
    engine: &Engine,
    scope: &RunScope,
    call_id: CallId,
    call: &StepCall,
    side_effects: &[String],
) -> Settled {
    let kinds = if side_effects.is_empty() { "unknown effects".to_owned() } else { side_effects.join(", ") };
    let why = format!("Cannot be predicted: {} would have {kinds}", call.tool);
    finish_refusal(engine, scope, call_id, call, engine.clock().now(), None, ResultStatus::Skipped, None, Some(why))
}

#[allow(clippy::too_many_arguments)] // the parts of one record
fn finish_refusal(
    engine: &Engine,
    scope: &RunScope,
    call_id: CallId,
    call: &StepCall,
    now: Timestamp,
    args: Option<Value>,
    status: ResultStatus,
    error: Option<Failure>,
    user_message: Option<String>,
) -> Settled {
    let _ = engine;
    let tool = tool_name(&call.tool);
    let outcome = OutcomeRecord {
        status,
        data: None,
        data_blob: None,
        error,
        started: now.as_microsecond(),
        took_us: 0,
        effects: None,
        user_message,
        debug_message: None,
    };
    let result = to_result(call_id, scope, &call.step_id, &tool, call.attempt, &outcome, None);
    let index = call.iteration.as_ref().map(|i| i.index);
    scope.recorder.push(Record::Refused(RefusedRecord {
        call_id,
        step_id: call.step_id.clone(),
        tool,
        attempt: call.attempt,
        index,
        args,
        outcome,
    }));
    match flush_result(scope) {
        Ok(position) => Settled::new(result, position, false),
        Err(_) => Settled::new(result, Position::default(), false),
    }
}

/// The store failed before the call was dispatched.
fn unrecorded(engine: &Engine, call: &StepCall, envelope: &ToolCall, started: Timestamp, failure: Failure) -> Settled {
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
    let result = valid(parts);
    Settled::new(result, Position::default(), false)
}

/// A result that did not reach the disk: the effects stand, but nobody may rely on the record of them.
pub(crate) fn with_store_failure(result: ToolResult, failure: Failure) -> ToolResult {
    let parts = ToolResultParts {
        status: ResultStatus::Error,
        ok: false,
        data: None,
        data_hash: None,
        error: Some(failure),
        ..result.into_parts()
    };
    valid(parts)
}

/// The call ended out of our sight; look at what it was going to change.
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

/// Asks a provider what became of a call; it may neither hang nor panic in the answer.
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
        let (message, payload) = match outcome {
            Ok(output) => (
                "A late answer arrived: it worked".to_owned(),
                json!({"late": true, "ok": true, "effects": output.effects}),
            ),
            Err(failed) => (
                format!("A late answer arrived: {}", failed.failure),
                json!({"late": true, "ok": false, "effects": failed.effects}),
            ),
        };
        recorder.push(Record::Note(NoteRecord {
            at: clock.now(),
            level: EventLevel::Warn,
            message,
            call_id: Some(envelope.call_id),
            step_id: Some(envelope.step_id.clone()),
            payload: match payload {
                Value::Object(map) => map,
                _ => Map::new(),
            },
        }));
        if let Err(error) = recorder.flush(Durability::Ride) {
            tracing::error!(%error, "a late answer could not be recorded");
        }
    }
}

fn progress_of(scope: &RunScope, envelope: &Arc<ToolCall>) -> Progress {
    let recorder = scope.recorder.clone();
    let envelope = envelope.clone();
    Progress::new(move |message, payload| {
        recorder.progress(envelope.call_id, &envelope.step_id, &envelope.tool, message, payload);
    })
}

fn cancelled() -> Failure {
    Failure::new(ErrorCode::Cancelled, "stopped before it was dispatched").retryable(false)
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
    ToolName::parse(&format!("unknown:{cleaned}"))
        .or_else(|_| ToolName::parse("unknown"))
        .unwrap_or_else(|_| std::process::abort())
}

fn shown(name: &str) -> String {
    format!("{:?}", name.chars().take(80).collect::<String>())
}

// After a crash: calls that were recorded and have no result. See the table in docs/durability.md.

/// What looking at the target of an interrupted, etag-guarded call has found.
#[allow(clippy::large_enum_variant)] // short-lived; there is one of these for each interrupted call
pub(crate) enum Reconciliation {
    /// The call has its result now.
    Settled(Settled),
    /// It did not happen and can be made.
    NotDone,
    /// It could not be found out.
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
    // Without an intent it was cut off before it said what it would change, so nothing changed.
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
    scope.recorder.push(Record::Note(NoteRecord {
        at: engine.clock().now(),
        level: EventLevel::Warn,
        message: format!("The process died during {}. {what}", record.tool),
        call_id: Some(record.call_id),
        step_id: Some(record.step_id.clone()),
        payload: Map::from_iter([("recovered".to_owned(), Value::Bool(true))]),
    }));
}

/// Nobody knows whether it happened. Not recorded as a result: the person's answer will be.
pub(crate) fn in_doubt(engine: &Engine, scope: &RunScope, record: &CallRecord) -> Settled {
    let failure = doubt(record);
    let outcome = outcome_of(engine, ResultStatus::Error, Some(failure), None);
    let result = to_result(record.call_id, scope, &record.step_id, &record.tool, record.attempt, &outcome, None);
    Settled::new(result, Position::default(), false)
}

/// A person says that it happened.
pub(crate) fn assume_done(engine: &Engine, scope: &RunScope, record: &CallRecord, by: &str) -> Settled {
    close(
        engine,
        scope,
        record,
        ResultStatus::Skipped,
        None,
        Some(format!("Interrupted by a crash; {by} says that it happened")),
    )
}

/// A person gives it up.
pub(crate) fn abandon(engine: &Engine, scope: &RunScope, record: &CallRecord, by: &str) -> Settled {
    close(engine, scope, record, ResultStatus::Error, Some(doubt(record).detail("abortedBy", by)), None)
}

/// A direct call that nobody waits for any more.
pub(crate) fn interrupted(engine: &Engine, scope: &RunScope, record: &CallRecord) -> Settled {
    let failure = Failure::new(ErrorCode::Cancelled, "the process ended before the call was made; nothing happened")
        .retryable(true);
    close(engine, scope, record, ResultStatus::Cancelled, Some(failure), None)
}

/// A direct call that may or may not have happened.
pub(crate) fn left_in_doubt(engine: &Engine, scope: &RunScope, record: &CallRecord) -> Settled {
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
) -> Settled {
    let outcome = outcome_of(engine, status, error, user_message);
    let result = to_result(record.call_id, scope, &record.step_id, &record.tool, record.attempt, &outcome, None);
    scope.recorder.push(Record::Result(ResultRecord { call_id: record.call_id, outcome }));
    let position = scope.recorder.flush(Durability::Ride).unwrap_or_default();
    Settled::new(result, position, true)
}
