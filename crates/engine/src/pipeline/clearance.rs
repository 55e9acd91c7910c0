//! Stages 2 to 6 of the pipeline: decide whether this call may be made with these arguments.

use super::{CALL_SCOPE, Checked, Cleared, StepCall, cancelled};
use crate::{
    Asking, Engine, HookCall, HookVerdict,
    approvals::{Answer, ApprovalRequest, Opened, Route},
    authority,
    record::{ConfirmationRequested, Confirmed, Record},
    scope::RunScope,
    secrets::Placeholders,
};
use futures_util::FutureExt;
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use toolyard_catalog::{Decision, ToolEntry, Violation};
use toolyard_protocol::{
    ApprovedVia, CallId, Confirmation, ConfirmationDecision, ConfirmationId, ErrorCode, Failure,
    canonical::{self, CanonicalError},
};

/// Stages 2 to 6.
pub(super) async fn clear(
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
    let mut policy_asks = weigh(scope, &entry, &call.args, &call.args)?;
    // 4 validate
    // As a value, because that is what the schema is checked on: a large argument is not copied for it.
    let mut args = Value::Object(call.args.clone());
    let mut checked = validate(scope, &entry, &args)?;
    let asked_hash = checked.hash.clone();
    // 5 hooks
    let mut hook_asks = Vec::new();
    let hooks = engine.hooks();
    let deadline = tokio::time::Instant::now() + hook_time(scope, &entry, call);
    for hook in hooks.iter() {
        let seen = HookCall { caller: &scope.caller, tool: &entry, args: fields(&args)? };
        let mut verdict = ask_hook(&**hook, seen, deadline, stop).await?;
        let rewritten = match &mut verdict {
            HookVerdict::Rewrite(args) | HookVerdict::RewriteAndAsk { args, .. } => Some(std::mem::take(args)),
            _ => None,
        };
        if let Some(rewritten) = rewritten {
            args = Value::Object(rewritten);
            // What was asked about the arguments as they were is asked about what they are now.
            policy_asks = weigh(scope, &entry, &call.args, fields(&args)?)?;
            checked = validate(scope, &entry, &args)?;
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
            let question = question.without_secrets(scope);
            let given = approve(engine, scope, call_id, &entry, &checked.hash, question, call, stop).await?;
            confirmation = confirmation.or(given);
        }
    }
    let Value::Object(args) = args else { return Err(not_an_object()) };
    Ok(Cleared { entry, args, checked, asked_hash, side_effects, confirmation })
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

impl Question {
    /// A hook may quote the arguments. A question is stored and shown to others than the caller.
    fn without_secrets(self, scope: &RunScope) -> Self {
        let secrets = scope.recorder.secrets();
        Self { title: secrets.hide_string(self.title), reason: secrets.hide_string(self.reason), ..self }
    }
}

fn look_up(scope: &RunScope, name: &str) -> Result<Arc<ToolEntry>, Failure> {
    use toolyard_catalog::{Resolution, did_you_mean};
    match scope.tools.snapshot.resolve_visible(name, |entry| scope.policy.knows(entry)) {
        Resolution::Found(entry) => Ok(entry.clone()),
        Resolution::Ambiguous(ids) => Err(Failure::new(
            ErrorCode::ValidationError,
            format!("several tools are called {}; use an exact id", shown(name)),
        )
        .detail("ids", ids)
        .retryable(false)),
        Resolution::Unknown(suggestions) => {
            let near = suggestions.only(|entry| !scope.policy.decide(entry, None).is_denied()).names();
            let failure =
                Failure::new(ErrorCode::NotFound, format!("there is no tool called {}", shown(name))).retryable(false);
            Err(match did_you_mean(&near) {
                Some(question) => failure.suggest(question).detail("suggestions", near),
                None => failure.suggest("List the tools with `toolyard tools list`."),
            })
        }
    }
}

/// The policy's decision about these arguments, which hooks may have changed from those that were `given`.
fn weigh(
    scope: &RunScope,
    entry: &ToolEntry,
    given: &Map<String, Value>,
    args: &Map<String, Value>,
) -> Result<Option<Question>, Failure> {
    let question = match scope.policy.decide(entry, Some(args)) {
        Decision::Allow => None,
        Decision::Deny { reason, rule } => {
            return Err(Failure::new(ErrorCode::PolicyDenied, reason).detail("rule", rule).retryable(false));
        }
        Decision::Ask { reason, rule, timeout_ms } => {
            let title = format!("Run {}", entry.name());
            Some(Question { title, reason, rule, timeout_ms, by_hook: false })
        }
    };
    authority::decide_arguments(&scope.acting, entry, given, args)?;
    Ok(question)
}

/// The arguments' fields. They are an object from the start; the failure is for the type alone.
fn fields(args: &Value) -> Result<&Map<String, Value>, Failure> {
    args.as_object().ok_or_else(not_an_object)
}

fn not_an_object() -> Failure {
    Failure::new(ErrorCode::ValidationError, "the arguments are not an object").retryable(false)
}

fn validate(scope: &RunScope, entry: &ToolEntry, args: &Value) -> Result<Checked, Failure> {
    // First of all: what is said about arguments that do not fit may quote them.
    let secrets = scope.recorder.secrets();
    let kept = secrets.keep(Some(entry), &scope.policy, fields(args)?, Placeholders::Hide);
    let invalid = |mut violations: Vec<Violation>| {
        for violation in &mut violations {
            if kept.iter().flat_map(|kept| &kept.secrets).any(|secret| secret.path == violation.path) {
                violation.message = "does not fit the schema; the value is secret and not shown".to_owned();
            }
        }
        Violation::refusal(entry.name().as_str(), &violations)
    };
    let bytes = canonical::value_to_vec(args)
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
    for (key, value) in fields(args)? {
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
    if !entry.answers_misfits() {
        entry.check_input(args).map_err(invalid)?;
    }
    let json = match &kept {
        Some(kept) => canonical::to_vec(&*kept.args)
            .map_err(|e| invalid(vec![Violation { path: String::new(), message: e.to_string() }]))?,
        None => bytes,
    };
    let hash = format!("sha256:{}", canonical::sha256_hex(&json));
    Ok(Checked { json, hash, kept })
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
        let by = scope.caller.principal.clone();
        return Ok(Some(confirm(engine, scope, args_hash, by, ApprovedVia::Operator, now)));
    }
    if call.asking == Asking::Report {
        if let Some(by) = engine.approvals().granted(&scope.caller.agent, entry.name().as_str())? {
            let by = format!("{by} (allow-always)");
            return Ok(Some(confirm(engine, scope, args_hash, by, ApprovedVia::Operator, now)));
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
    scope.recorder.push(&Record::ConfirmationRequested(ConfirmationRequested { message, at: now }));
    let route = if call.asking == Asking::Unreachable { Route::None } else { Route::AnyApprover };
    let (id, approvals) = (request.id.clone(), engine.approvals());
    let answer = match approvals.open(request, route).await? {
        Opened::Answered(answer) => answer,
        Opened::Waiting(waiting) => approvals.wait(waiting, cancel).await?,
    };
    match answer {
        Answer::Allowed { by, via } => Ok(Some(confirm(engine, scope, args_hash, by, via, engine.clock().now()))),
        Answer::Denied(denial) => Err(denial.into_failure().detail("approvalId", id)),
        Answer::Cancelled => Err(cancelled()),
    }
}

/// Records an approval of this call and no other. It becomes durable with the call it allows, which is before the effect.
fn confirm(
    engine: &Engine,
    scope: &RunScope,
    shown_hash: &str,
    by: String,
    via: ApprovedVia,
    at: Timestamp,
) -> ConfirmationId {
    let id = ConfirmationId::from_uuid(engine.clock().new_id());
    scope.recorder.push(&Record::Confirmed(Confirmed(Confirmation {
        confirmation_id: id,
        plan_hash: shown_hash.to_owned(),
        policy_hash: scope.policy.hash().to_owned(),
        preview_hash: None,
        decision: ConfirmationDecision::Approved,
        by,
        via,
        at,
        expires_at: None,
        scope: CALL_SCOPE.to_owned(),
    })));
    id
}

fn shown(name: &str) -> String {
    format!("{:?}", name.chars().take(80).collect::<String>())
}
