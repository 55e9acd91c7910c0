//! Stage 6 of the pipeline: a question to a person about this very call, and the answer, bound to what was shown.

use super::{CALL_SCOPE, Checked, StepCall, cancelled, predict::predict};
use crate::{
    Asking, Caller, Engine, Intent, IntentTarget,
    approvals::{
        Allowance, Answer, ApprovalRequest, MAX_WAIT_MS, Opened, Prediction, REQUESTER, Route, Shown, allowed_by,
    },
    engine::{AheadAnswer, AheadTerms},
    record::{ConfirmationRequested, Confirmed, Record},
    scope::RunScope,
    store::Durability,
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use toolyard_catalog::ToolEntry;
use toolyard_protocol::{
    ApprovedVia, CallId, Confirmation, ConfirmationDecision, ConfirmationId, ErrorCode, Failure, RunId, StepId,
    canonical,
};

/// `details.reason` of a call that was refused because a person was shown something else than would happen now.
pub(crate) const SHOWN_CHANGED: &str = "CHANGED_SINCE_APPROVAL";

/// A question of the policy or of a hook.
pub(super) struct Question {
    pub(super) title: String,
    pub(super) reason: String,
    pub(super) rule: String,
    pub(super) timeout_ms: u64,
    pub(super) by_hook: bool,
}

/// A call for which a person's approval is requested.
pub(super) struct AskedCall<'a> {
    pub(super) engine: &'a Engine,
    pub(super) scope: &'a RunScope,
    pub(super) call_id: CallId,
    pub(super) call: &'a StepCall,
    pub(super) entry: &'a ToolEntry,
    pub(super) args: &'a Map<String, Value>,
    /// The arguments as they are recorded: what a person is shown, and the hash of it.
    pub(super) checked: &'a Checked,
    pub(super) stop: &'a CancellationToken,
}

impl AskedCall<'_> {
    /// What an answer that is given ahead is bound to.
    pub(super) fn terms(&self) -> AheadTerms {
        AheadTerms {
            tool: self.entry.id().to_string(),
            args_hash: self.checked.hash.clone(),
            policy_hash: self.scope.policy.hash().to_owned(),
        }
    }
}

/// A person's answer, with what was shown.
struct Consent {
    allowance: Allowance,
    shown: Option<Shown>,
}

/// The approval of one call.
pub(super) struct Approved {
    pub(super) id: ConfirmationId,
    /// The files that the person was shown, with their state before and after. Empty where nothing was predicted.
    shown: Vec<IntentTarget>,
}

impl Approved {
    /// How the predicted changes differ from those that the person was shown.
    pub(super) fn deviation(&self, intent: Option<&Intent>) -> Option<Failure> {
        let intent = intent?;
        let now = |path: &str| intent.targets.iter().find(|target| target.path == path);
        let differs = |shown: &&IntentTarget| {
            now(&shown.path).is_none_or(|target| target.before != shown.before || target.after != shown.after)
        };
        let is_unshown = |target: &&IntentTarget| !self.shown.iter().any(|shown| shown.path == target.path);
        let mut changed: Vec<&str> = self.shown.iter().filter(differs).map(|target| target.path.as_str()).collect();
        if !self.shown.is_empty() {
            changed.extend(intent.targets.iter().filter(is_unshown).map(|target| target.path.as_str()));
        }
        let first = changed.first()?;
        Some(
            Failure::new(
                ErrorCode::Conflict,
                format!("{first} changed after a person was shown what the call would do"),
            )
            .suggest("Read the current state and make the call again; a person is asked again.")
            .detail("reason", SHOWN_CHANGED)
            .detail("changed", changed.iter().map(|path| Value::from(*path)).collect::<Vec<_>>())
            .retryable(false),
        )
    }
}

/// Asks every question. Each has its own answer; the first approval is the one that the call names.
pub(super) async fn approve_all(asked: &AskedCall<'_>, questions: Vec<Question>) -> Result<Option<Approved>, Failure> {
    let mut prediction = None;
    let mut first = None;
    for question in questions {
        let given = approve(asked, question, &mut prediction).await?;
        first = first.or(given);
    }
    let shown = prediction.map(|prediction| prediction.targets).unwrap_or_default();
    Ok(first.map(|id| Approved { id, shown }))
}

/// Asks the policy's question about a call that has not been made. `None` where nobody has to be asked.
pub(super) async fn answer_ahead(asked: &AskedCall<'_>, question: Question) -> Result<Option<AheadAnswer>, Failure> {
    let rule = question.rule.clone();
    let mut prediction = None;
    let consent = consent(asked, question, &mut prediction).await?;
    let targets = prediction.map(|prediction| prediction.targets).unwrap_or_default();
    Ok(consent.map(|Consent { allowance, shown }| AheadAnswer { rule, allowance, shown, targets }))
}

async fn approve(
    asked: &AskedCall<'_>,
    question: Question,
    prediction: &mut Option<Prediction>,
) -> Result<Option<ConfirmationId>, Failure> {
    if !question.by_hook
        && let Some(given) = asked.engine.answered_ahead(asked.scope, &asked.terms(), &question.rule)
    {
        let AheadAnswer { allowance, shown, targets, .. } = given;
        *prediction = Some(Prediction { targets, ..Prediction::default() });
        return Ok(Some(confirm(asked, allowance, shown.as_ref())));
    }
    let consent = consent(asked, question, prediction).await?;
    Ok(consent.map(|Consent { allowance, shown }| confirm(asked, allowance, shown.as_ref())))
}

/// The answer to a question: by what was approved before, or by asking. `None` where nobody has to be asked.
async fn consent(
    asked: &AskedCall<'_>,
    question: Question,
    prediction: &mut Option<Prediction>,
) -> Result<Option<Consent>, Failure> {
    let AskedCall { engine, scope, call, .. } = *asked;
    let unshown = |allowance| Ok(Some(Consent { allowance, shown: None }));
    // A run that a person approved as a whole, or a deliberate act of a person, answers the policy's question.
    // A hook's question is about these very arguments and is asked even then, except of the person themselves.
    if scope.confirmation.get().is_some() && !question.by_hook {
        return Ok(None);
    }
    if scope.caller.is_person {
        return unshown(own_act(scope, engine.clock().now()));
    }
    let mut request = request(asked, &question);
    let approvals = engine.approvals();
    if let Some(grant) = approvals.grant_for(&request)? {
        return unshown(Allowance { at: engine.clock().now(), ..allowed_by(&grant) });
    }
    let reports = call.asking == Asking::Report;
    if reports && scope.retry_key.is_none() {
        return Err(unasked(question));
    }
    if prediction.is_none() {
        *prediction = Some(predict(asked).await);
    }
    let predicted = prediction.get_or_insert_default();
    // A question is stored and shown to others than the caller.
    let secrets = scope.recorder.secrets();
    predicted.diff = secrets.hide_string(std::mem::take(&mut predicted.diff));
    predicted.problem = predicted.problem.take().map(|problem| secrets.hide_string(problem));
    let args = asked.checked.kept.as_ref().map_or(asked.args, |kept| &kept.args);
    let (policy, rule) = (scope.policy.hash(), &question.rule);
    let shown = Shown::new(args, &asked.checked.hash, predicted, None, policy, rule)?;
    name(&mut request, asked, shown.hash.clone())?;
    request.shown = Some(shown);
    let answer = match (reports, approvals.get(&request.id)?) {
        (true, Some(earlier)) if earlier.decision.is_some() => {
            match approvals.open(request.clone(), Route::None, 1).await? {
                Opened::Answered(answer) => answer,
                Opened::Waiting(_) => return Err(unasked(question)),
            }
        }
        (true, _) => return Err(unasked(question)),
        (false, _) => ask(asked, request.clone(), question.timeout_ms).await?,
    };
    match answer {
        Answer::Allowed(allowance) => {
            check_policy(asked, &allowance)?;
            Ok(Some(Consent { allowance: *allowance, shown: request.shown }))
        }
        Answer::Denied(denial) => {
            Err(denial.into_failure().detail("approvalId", request.id).detail("rule", request.rule))
        }
        Answer::StillOpen(until) => Err(still_open(&request.id, until)),
        Answer::Cancelled => Err(cancelled()),
    }
}

/// Asks the question and waits for its answer.
async fn ask(asked: &AskedCall<'_>, request: ApprovalRequest, wait_ms: u64) -> Result<Answer, Failure> {
    let AskedCall { engine, scope, call, .. } = *asked;
    scope.recorder.push(&Record::ConfirmationRequested(ConfirmationRequested {
        message: request.description.clone(),
        at: request.created_at,
        approval_id: Some(request.id.clone()),
        shown: Some(request.shown_hash().to_owned()),
    }));
    if let Some(retry_key) = scope.retry_key.as_ref().filter(|_| request.is_kept) {
        // The run is stored before the question can be answered, so that a caller that comes back finds that nothing
        // was dispatched.
        scope.recorder.flush(Durability::Deferred)?;
        let remembered = request.expires_at.checked_add(engine.options().idempotency_window).ok();
        engine.store().put(crate::engine::KEYS, &retry_key.key, retry_key.entry.clone(), remembered)?;
    }
    let route = match (&call.asking, request.is_kept) {
        (Asking::Unreachable, _) => Route::None,
        (_, true) => Route::Later,
        (_, false) => Route::AnyApprover,
    };
    match engine.approvals().open(request, route, wait_ms).await? {
        Opened::Answered(answer) => Ok(answer),
        Opened::Waiting(waiting) => engine.approvals().wait(waiting, asked.stop).await,
    }
}

/// The question, without what it shows and without its id.
fn request(asked: &AskedCall<'_>, question: &Question) -> ApprovalRequest {
    let AskedCall { engine, scope, call, entry, .. } = *asked;
    let now = engine.clock().now();
    let mut extra = Map::new();
    if let Asking::Wait { requester: Some(requester) } = &call.asking {
        extra.insert(REQUESTER.to_owned(), requester.as_str().into());
    }
    let secrets = scope.recorder.secrets();
    let is_kept = scope.retry_key.is_some() && engine.approvals().keeps_questions();
    let open_ms = match is_kept {
        true => scope.policy.approval_keep_ms(),
        false => question.timeout_ms.clamp(1, MAX_WAIT_MS),
    };
    ApprovalRequest {
        kind: if question.by_hook { "plugin" } else { "policy" }.to_owned(),
        // A hook may quote the arguments.
        title: secrets.hide_text(&question.title).chars().take(80).collect(),
        description: secrets.hide_text(&question.reason).chars().take(512).collect(),
        severity: "warning".to_owned(),
        tool: entry.name().to_string(),
        args_hash: asked.checked.hash.clone(),
        call_id: Some(asked.call_id),
        run_id: Some(scope.run_id),
        agent: scope.caller.agent.clone(),
        session: scope.caller.session.clone(),
        rule: question.rule.clone(),
        paths: entry.path_arguments(asked.args).into_iter().map(|(_, path)| path.to_owned()).collect(),
        is_kept,
        extra,
        created_at: now,
        expires_at: now.checked_add(Duration::from_millis(open_ms)).unwrap_or(now),
        ..ApprovalRequest::default()
    }
}

/// Which call of which run asks, by which rule.
#[derive(Serialize)]
struct Slot<'a> {
    origin: RunId,
    parent: Option<CallId>,
    step: &'a StepId,
    index: Option<u64>,
    attempt: u32,
    rule: &'a str,
}

/// Gives the question its id. The same call of the same run asks the same question again after a restart, and another
/// one if what it shows has changed.
fn name(request: &mut ApprovalRequest, asked: &AskedCall<'_>, shown: String) -> Result<(), Failure> {
    let AskedCall { scope, call, .. } = *asked;
    let slot = Slot {
        origin: scope.origin,
        parent: scope.parent,
        step: &call.step_id,
        index: call.iteration.as_ref().map(|iteration| iteration.index),
        attempt: call.attempt,
        rule: &request.rule,
    };
    let unnamed = |e: canonical::CanonicalError| Failure::new(ErrorCode::InternalError, e.to_string());
    let slot = canonical::hash(&slot).map_err(unnamed)?;
    request.id = question_id(&scope.caller, &request.kind, &slot, &shown);
    request.slot = Some(slot);
    Ok(())
}

/// The id of a question that is asked once, however often its run is taken up.
pub(crate) fn question_id(caller: &Caller, kind: &str, slot: &str, shown: &str) -> String {
    let digest = canonical::sha256(format!("{slot}\n{shown}").as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    let id = format!("{kind}:{}", uuid::Builder::from_custom_bytes(bytes).into_uuid());
    caller.workspace.key(&id).into_owned()
}

/// The policy must be the one that the person was shown.
fn check_policy(asked: &AskedCall<'_>, allowance: &Allowance) -> Result<(), Failure> {
    if allowance.shown.is_none() {
        return Ok(());
    }
    let scope = asked.scope;
    let second = (scope.acting.door != scope.caller.door).then_some(scope.acting.door);
    let now = asked.engine.policy_through(&scope.caller, second);
    if now.hash() == scope.policy.hash() {
        return Ok(());
    }
    Err(Failure::new(ErrorCode::ConfirmationRequired, "the policy changed since the call was approved")
        .suggest("Make the call again; it is decided and asked about under the new policy.")
        .detail("reason", SHOWN_CHANGED)
        .detail("changed", vec![Value::from("policy")])
        .detail("approved", scope.policy.hash())
        .detail("now", now.hash())
        .retryable(false))
}

fn unasked(question: Question) -> Failure {
    Failure::new(ErrorCode::ConfirmationRequired, question.reason)
        .suggest("Make the same call with `confirm: true` to ask a person, and wait for the answer.")
        .detail("rule", question.rule)
        .retryable(false)
}

fn still_open(id: &str, until: Timestamp) -> Failure {
    Failure::new(
        ErrorCode::ConfirmationRequired,
        format!("nobody has answered yet; the question is open until {until}"),
    )
    .suggest("Make the same call with the same idempotency key later: it runs once a person has allowed it.")
    .detail("approvalId", id)
    .detail("openUntil", until.to_string())
    .retryable(true)
}

/// A person's own act counts as its approval.
fn own_act(scope: &RunScope, at: Timestamp) -> Allowance {
    Allowance {
        by: scope.caller.principal.clone(),
        via: ApprovedVia::Operator,
        door: Some(scope.caller.door.as_str().to_owned()),
        at,
        approval_id: None,
        grant_id: None,
        shown: None,
    }
}

/// Records an approval of this call and no other. It becomes durable with the call it allows, which is before the effect.
fn confirm(asked: &AskedCall<'_>, allowance: Allowance, shown: Option<&Shown>) -> ConfirmationId {
    let AskedCall { engine, scope, .. } = *asked;
    let id = ConfirmationId::from_uuid(engine.clock().new_id());
    // A grant covers calls that no person has seen.
    let preview_hash = shown.filter(|_| allowance.shown.is_some()).and_then(|shown| shown.preview_hash.clone());
    scope.recorder.push(&Record::Confirmed(Confirmed(Confirmation {
        confirmation_id: id,
        plan_hash: asked.checked.hash.clone(),
        policy_hash: scope.policy.hash().to_owned(),
        preview_hash,
        decision: ConfirmationDecision::Approved,
        by: allowance.by,
        via: allowance.via,
        at: allowance.at,
        expires_at: None,
        scope: CALL_SCOPE.to_owned(),
        door: allowance.door,
        approval_id: allowance.approval_id,
        shown: allowance.shown,
        grant_id: allowance.grant_id,
    })));
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str, before: &str) -> IntentTarget {
        IntentTarget {
            path: path.to_owned(),
            before: Some(before.to_owned()),
            after: Some("after".to_owned()),
            before_blob: None,
        }
    }

    #[test]
    fn a_file_that_was_not_shown_stops_the_call() {
        let shown = vec![target("a.md", "1"), target("b.md", "1")];
        let approved = Approved { id: ConfirmationId::from_uuid(uuid::Uuid::nil()), shown };
        let deviates = |targets: Vec<IntentTarget>| {
            let intent = Intent { targets, ..Intent::default() };
            approved.deviation(Some(&intent)).and_then(|failure| failure.details?.get("changed").cloned())
        };
        let (a, b) = (target("a.md", "1"), target("b.md", "1"));
        assert_eq!(deviates(vec![a.clone(), b.clone()]), None);
        assert_eq!(deviates(vec![a.clone()]), Some(serde_json::json!(["b.md"])));
        assert_eq!(deviates(vec![a.clone(), target("b.md", "2")]), Some(serde_json::json!(["b.md"])));
        assert_eq!(deviates(vec![a, b, target("c.md", "1")]), Some(serde_json::json!(["c.md"])));
    }
}
