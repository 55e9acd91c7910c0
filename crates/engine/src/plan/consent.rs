//! The approval of a plan as a whole: asked once, bound to the plan, the policy and the dry run that were shown.

use super::{
    kept::kept_plan,
    runs::{Consent, StartedRun},
};
use crate::{
    Engine,
    approvals::{Allowance, Answer, ApprovalRequest, MAX_WAIT_MS, Opened, Prediction, PreviewState, Route, Shown},
    authority::Approver,
    pipeline::question_id,
    record::{ConfirmationRequested, Confirmed, Record},
    scope::RunScope,
    store::{Durability, RunKind},
};
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};
use toolyard_protocol::{
    ApprovedVia, Confirmation, ConfirmationDecision, ConfirmationId, Effects, ErrorCode, Failure, RunStatus, canonical,
};

/// The kind and the rule of a plan's question.
const KIND: &str = "policy";
const RULE: &str = "confirmationsRequired";

/// What is shown of a plan, and the effects that its dry run predicts.
struct ShownPlan {
    shown: Shown,
    effects: Option<Effects>,
}

impl StartedRun {
    /// Asks for the approval of the plan, if it needs one that nobody has given.
    pub(super) async fn obtain_consent(&mut self, scope: &Arc<RunScope>) -> Result<(), Failure> {
        match std::mem::take(&mut self.consent) {
            Consent::None | Consent::Approved { .. } => return Ok(()),
            Consent::Ask => {}
        }
        let plan_hash = self.executor.plan.plan_hash.clone();
        let before = self.show(scope).await?;
        let allowance = self.ask(scope, &before.shown, &plan_hash).await?;
        self.check_unchanged(scope, &before.shown).await?;
        self.predicted = before.effects;
        record(&self.engine, scope, &plan_hash, allowance, before.shown.preview_hash);
        let running = self.engine.row(scope, RunKind::Plan, &self.title, self.started_at, RunStatus::Running, None);
        scope.recorder.set_row(running);
        scope.recorder.sync().await?;
        Ok(())
    }

    /// The plan and its dry run, as a question shows them.
    async fn show(&self, scope: &RunScope) -> Result<ShownPlan, Failure> {
        let compiled = &self.executor.plan;
        let secrets = scope.recorder.secrets();
        let context = self.executor.context.clone();
        let dry_run = Box::pin(self.engine.dry_run(scope.caller.clone(), &compiled.plan, context)).await;
        let (prediction, preview_hash) = match dry_run {
            Ok(report) => {
                let prediction = Prediction {
                    state: PreviewState::Made,
                    effects: Some(report.effects),
                    diff: secrets.hide_string(report.diff),
                    problem: report.error.map(|error| secrets.hide_string(error.to_string())),
                    targets: Vec::new(),
                };
                (prediction, Some(report.preview_hash))
            }
            Err(failure) => {
                let problem = Some(secrets.hide_string(failure.to_string()));
                (Prediction { state: PreviewState::Failed, problem, ..Prediction::default() }, None)
            }
        };
        let args = match serde_json::to_value(kept_plan(scope, &compiled.plan)?) {
            Ok(Value::Object(plan)) => plan,
            _ => Map::new(),
        };
        let policy_hash = scope.policy.hash();
        let shown = Shown::new(&args, &compiled.plan_hash, &prediction, preview_hash, policy_hash, RULE)?;
        Ok(ShownPlan { shown, effects: prediction.effects })
    }

    /// Asks, and waits until somebody has answered or the question has expired.
    async fn ask(&self, scope: &Arc<RunScope>, shown: &Shown, plan_hash: &str) -> Result<Allowance, Failure> {
        let request = self.question(scope, shown, plan_hash)?;
        let waiting = self.engine.row(scope, RunKind::Plan, &self.title, self.started_at, RunStatus::Pending, None);
        scope.recorder.set_row(waiting);
        let approvals = self.engine.approvals();
        if approvals.get(&request.id)?.is_none() {
            scope.recorder.push(&Record::ConfirmationRequested(ConfirmationRequested {
                message: request.description.clone(),
                at: request.created_at,
                approval_id: Some(request.id.clone()),
                shown: Some(shown.hash.clone()),
            }));
        }
        scope.recorder.flush(Durability::Deferred)?;
        // A waiting caller receives an error at once if nobody can be asked now.
        let route = if request.is_kept && self.is_detached { Route::Later } else { Route::AnyApprover };
        let wait_ms = if request.is_kept { MAX_WAIT_MS } else { scope.policy.approval_timeout_ms() };
        loop {
            let answer = match approvals.open(request.clone(), route, wait_ms).await? {
                Opened::Answered(answer) => answer,
                Opened::Waiting(waiting) => approvals.wait(waiting, &scope.cancel).await?,
            };
            match answer {
                Answer::Allowed(allowance) => return Ok(*allowance),
                Answer::Denied(denial) => return Err(denial.into_failure().detail("approvalId", request.id)),
                Answer::Cancelled => {
                    return Err(Failure::new(ErrorCode::Cancelled, "stopped before it was approved"));
                }
                // The run is not a caller that gives up: it waits for as long as the question is open.
                Answer::StillOpen(_) => {}
            }
        }
    }

    fn question(&self, scope: &RunScope, shown: &Shown, plan_hash: &str) -> Result<ApprovalRequest, Failure> {
        let at = self.engine.clock().now();
        let is_kept = self.engine.approvals().keeps_questions();
        let open_ms = match is_kept {
            true => scope.policy.approval_keep_ms(),
            false => scope.policy.approval_timeout_ms(),
        };
        let slot = canonical::hash(&(scope.run_id, "plan"))
            .map_err(|e| Failure::new(ErrorCode::InternalError, e.to_string()))?;
        Ok(ApprovalRequest {
            id: question_id(&scope.caller, KIND, &slot, &shown.hash),
            kind: KIND.to_owned(),
            title: "Run a plan".to_owned(),
            description: format!("May this plan run? {}", scope.recorder.secrets().hide_text(&self.title))
                .chars()
                .take(512)
                .collect(),
            severity: "warning".to_owned(),
            tool: "plans.run".to_owned(),
            args_hash: plan_hash.to_owned(),
            run_id: Some(scope.run_id),
            agent: scope.caller.agent.clone(),
            session: scope.caller.session.clone(),
            rule: RULE.to_owned(),
            shown: Some(shown.clone()),
            slot: Some(slot),
            is_kept,
            created_at: at,
            expires_at: at.checked_add(Duration::from_millis(open_ms)).unwrap_or(at),
            ..ApprovalRequest::default()
        })
    }

    /// What the person was shown must still hold when the answer comes, which may be days later.
    async fn check_unchanged(&self, scope: &RunScope, shown: &Shown) -> Result<(), Failure> {
        let policy = self.engine.policy_for(&scope.caller);
        if policy.hash() != shown.policy_hash {
            return Err(stale("policy", &shown.policy_hash, policy.hash()));
        }
        let now = self.show(scope).await?.shown;
        match (&shown.preview_hash, &now.preview_hash) {
            (Some(was), Some(is)) if was != is => Err(stale("preview", was, is)),
            _ => Ok(()),
        }
    }
}

/// The refusal of a run whose plan, policy or preview is not the one that was approved.
pub(super) fn stale(what: &str, was: &str, is: &str) -> Failure {
    Failure::new(ErrorCode::ConfirmationRequired, format!("the {what} changed since it was approved"))
        .detail("approved", was)
        .detail("now", is)
        .retryable(false)
}

/// The consent of a person who starts or resumes the run.
pub(super) fn own_act(by: &Approver, at: Timestamp) -> Allowance {
    Allowance {
        by: by.name().to_owned(),
        via: ApprovedVia::Operator,
        door: Some(by.door().as_str().to_owned()),
        at,
        approval_id: None,
        grant_id: None,
        shown: None,
    }
}

/// Records that a person approved the run as a whole.
pub(super) fn record(
    engine: &Engine,
    scope: &RunScope,
    plan_hash: &str,
    allowance: Allowance,
    preview_hash: Option<String>,
) {
    let id = *scope.confirmation.get_or_init(|| ConfirmationId::from_uuid(engine.clock().new_id()));
    scope.recorder.push(&Record::Confirmed(Confirmed(Confirmation {
        confirmation_id: id,
        plan_hash: plan_hash.to_owned(),
        policy_hash: scope.policy.hash().to_owned(),
        preview_hash,
        decision: ConfirmationDecision::Approved,
        by: allowance.by,
        via: allowance.via,
        at: allowance.at,
        expires_at: None,
        scope: "run".to_owned(),
        door: allowance.door,
        approval_id: allowance.approval_id,
        shown: allowance.shown,
        grant_id: allowance.grant_id,
    })));
}
