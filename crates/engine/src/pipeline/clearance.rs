//! Stages 2 to 6 of the pipeline: decide whether this call may be made with these arguments.

use super::{
    Checked, Cleared, StepCall,
    approve::{AskedCall, Question, answer_ahead, approve_all},
    cancelled,
};
use crate::{
    Engine, HookCall, HookVerdict, authority,
    engine::{AheadAnswer, AheadTerms},
    scope::RunScope,
    secrets::{Placeholders, SecretMarks},
};
use futures_util::FutureExt;
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use toolyard_catalog::{Decision, ToolEntry, Violation};
use toolyard_protocol::{
    CallId, ErrorCode, Failure,
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
    let mut policy_asks = apply_policy(scope, &entry, &call.args, &call.args)?;
    // 4 validate
    // A `Value`, because the schema is checked against one: a large argument is not copied for the check.
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
            // Questions about the earlier arguments are asked about the current ones.
            policy_asks = apply_policy(scope, &entry, &call.args, fields(&args)?)?;
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
    let questions: Vec<Question> = policy_asks.into_iter().chain(hook_asks).collect();
    let mut approved = None;
    if scope.previews.is_none() && !questions.is_empty() {
        let args = fields(&args)?;
        let asked = AskedCall { engine, scope, call_id, call, entry: &entry, args, checked: &checked, stop };
        // Boxed, because most calls ask nobody, and the future of a question is large.
        approved = Box::pin(approve_all(&asked, questions)).await?;
    }
    let Value::Object(args) = args else { return Err(not_an_object()) };
    Ok(Cleared { entry, args, checked, asked_hash, side_effects, approved })
}

/// Stages 2 to 4 and the policy's question of a call that has not been made. Hooks run when it is made.
pub(crate) async fn ask_ahead(
    engine: &Engine,
    scope: &RunScope,
    call: &StepCall,
) -> Result<Option<(AheadTerms, AheadAnswer)>, Failure> {
    let entry = look_up(scope, &call.tool)?;
    let Some(question) = apply_policy(scope, &entry, &call.args, &call.args)? else { return Ok(None) };
    let checked = validate(scope, &entry, &Value::Object(call.args.clone()))?;
    let call_id = CallId::from_uuid(engine.clock().new_id());
    let (args, stop) = (&call.args, &call.cancel);
    let asked = AskedCall { engine, scope, call_id, call, entry: &entry, args, checked: &checked, stop };
    let answer = answer_ahead(&asked, question).await?;
    Ok(answer.map(|answer| (asked.terms(), answer)))
}

/// Hooks together may take as long as the call itself.
fn hook_time(scope: &RunScope, entry: &ToolEntry, call: &StepCall) -> Duration {
    let ms = call.timeout_ms.unwrap_or(entry.definition().default_timeout_ms).min(scope.limits().max_call_ms);
    Duration::from_millis(ms.max(1))
}

/// Runs one hook. If the hook fails or hangs, the call is refused.
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
fn apply_policy(
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
    // Secrets are found first, because errors about invalid arguments may quote them.
    let secrets = scope.recorder.secrets();
    let marks = SecretMarks { tool: Some(entry), tools: &scope.tools.snapshot, policy: &scope.policy };
    let kept = secrets.keep(marks, fields(args)?, Placeholders::Hide);
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
    if !entry.reports_invalid_arguments_itself() {
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

fn shown(name: &str) -> String {
    format!("{:?}", name.chars().take(80).collect::<String>())
}
