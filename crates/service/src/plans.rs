//! Plans by method: checked, tried, run, forked, taken back, replayed. The engine does it; here parameters are read and
//! events handed on.

use crate::{AnyJson, Call, EventSink, Handle, MethodError, Object, Service, Terms, methods, runs::RunParams};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::HashMap, sync::Arc};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolyard_engine::{
    CallRequest, Caller, Subscription,
    authority::{Approver, Effect, Power, Scope},
    plan::{
        CheckReport, Consent, DryRunReport, NotUndoable, PlanRequest, ReplayReport, RunReport, StartedRun, parse_plan,
    },
};
use toolyard_protocol::{ActionPlan, ContextKind, Effects, ErrorCode, Failure, RunId, RunStatus, StepId};

methods! {
    /// Checks a plan without running it.
    PlansCheck = "plans.check", Terms::read().everywhere(), PlanParams => CheckReport;
    /// Predicts the effects of a plan, step by step.
    PlansDryRun = "plans.dryRun", Terms::new(Some(Scope::Write), Effect::None).everywhere(), PlanParams => DryRunReport;
    /// Runs a plan.
    PlansRun = "plans.run", Terms::run().everywhere().may_use(&[Power::Approve]), PlanParams => PlanRun;
    /// Resolves the arguments of a recorded run again and compares them with the record.
    PlansReplay = "plans.replay", Terms::read().everywhere(), RunParams => ReplayReport;
    /// Starts a new run from one step of a recorded run, with the results of the earlier steps.
    PlansFork = "plans.fork", Terms::run().everywhere().may_use(&[Power::Approve]), ForkParams => PlanRun;
    /// Undoes a run with a plan of inverse calls.
    PlansUndo = "plans.undo", Terms::run().everywhere().may_use(&[Power::Approve]), UndoParams => UndoAnswer;
}

/// A plan and how it is to be run.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanParams {
    /// The plan.
    pub plan: AnyJson,
    /// What the plan asks to know, by kind.
    #[serde(default)]
    pub context: Object,
    /// A person's approval.
    #[serde(default)]
    pub consent: ConsentParams,
    /// Whether the answer comes as soon as the run has begun.
    #[serde(default)]
    pub detach: bool,
    /// Which planner made the plan, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planner_version: Option<String>,
}

impl PlanParams {
    fn plan(&self) -> Result<ActionPlan, Failure> {
        parse_plan(self.plan.to_string().as_bytes())
    }
}

/// How a person's approval comes with a request.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConsentParams {
    /// The person said yes.
    #[serde(default)]
    pub approved: bool,
    /// Ask whoever can approve.
    #[serde(default)]
    pub ask: bool,
    /// The plan that was approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_hash: Option<String>,
    /// The policy under which it was approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_hash: Option<String>,
    /// The preview that was approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview_hash: Option<String>,
}

impl ConsentParams {
    /// Only a person can approve; an agent's `approved` is taken as a request to ask one.
    fn into_consent(self, caller: &Caller) -> Consent {
        // With `operator.approvals` alone a caller is not taken for the person who approves: it would approve its own plan.
        let approver = Approver::of(caller).ok().filter(|_| caller.is_person);
        match (self.approved, self.ask, approver) {
            (true, _, Some(by)) => Consent::Approved {
                by,
                plan_hash: self.plan_hash,
                policy_hash: self.policy_hash,
                preview_hash: self.preview_hash,
            },
            (true, _, None) | (false, true, _) => Consent::Ask,
            (false, false, _) => Consent::None,
        }
    }
}

/// A run of a plan: its report, or, where it was asked for, only that it has begun.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PlanRun {
    /// How it ended, or where it waits.
    Report(Box<RunReport>),
    /// It has begun.
    Begun(BegunRun),
}

/// A run that has begun.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BegunRun {
    /// The run.
    pub run_id: RunId,
    /// `running`.
    pub status: RunStatus,
}

/// What a run is forked from, and how.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForkParams {
    /// The recorded run.
    pub run_id: RunId,
    /// The first step that runs again.
    pub from: StepId,
    /// An edited plan in place of the recorded one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<AnyJson>,
    /// What the plan asks to know, by kind.
    #[serde(default)]
    pub context: Object,
    /// A person's approval.
    #[serde(default)]
    pub consent: ConsentParams,
}

/// Which run is taken back, and how.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UndoParams {
    /// The run.
    pub run_id: RunId,
    /// Whether it is only shown what would be taken back.
    #[serde(default)]
    pub dry_run: bool,
    /// Whether what can be taken back is, although not all of it can be.
    #[serde(default)]
    pub partial: bool,
    /// A person's approval.
    #[serde(default)]
    pub consent: ConsentParams,
}

/// What came of taking a run back.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum UndoAnswer {
    /// The run that took it back.
    Report(Box<RunReport>),
    /// What taking it back would do.
    Preview(Box<UndoPreview>),
    /// The run changed nothing.
    Nothing(NothingToUndo),
}

/// What taking a run back would do.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UndoPreview {
    /// The plan of inverse calls.
    pub plan: ActionPlan,
    /// Calls that cannot be taken back, and why.
    pub not_undoable: Vec<NotUndoable>,
    /// What the plan would change.
    pub preview: DryRunReport,
}

/// The answer for a run that changed nothing.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NothingToUndo {
    /// Always null: no run was needed.
    pub run_id: Option<RunId>,
    /// `finished`.
    pub status: RunStatus,
    /// Always empty.
    pub steps: Vec<AnyJson>,
    /// Always empty.
    pub effects: Effects,
    /// One sentence for people.
    pub message: String,
}

impl Handle<PlansCheck> for Service {
    async fn handle(&self, call: &Call<'_>, params: PlanParams) -> Result<CheckReport, MethodError> {
        Ok(self.engine().check_plan(&call.caller, &params.plan()?))
    }
}

impl Handle<PlansDryRun> for Service {
    async fn handle(&self, call: &Call<'_>, params: PlanParams) -> Result<DryRunReport, MethodError> {
        let plan = params.plan()?;
        let context = self.context(&call.caller, &plan, params.context).await;
        Ok(self.engine().dry_run(call.caller.clone(), &plan, context).await?)
    }
}

impl Handle<PlansRun> for Service {
    async fn handle(&self, call: &Call<'_>, params: PlanParams) -> Result<PlanRun, MethodError> {
        let plan = params.plan()?;
        let context = self.context(&call.caller, &plan, params.context).await;
        let run_id = self.engine().new_run_id();
        let watching = call.events.clone().map(|sink| self.watch(run_id, sink));
        let request = PlanRequest {
            context,
            consent: params.consent.into_consent(&call.caller),
            run_id: Some(run_id),
            planner_version: params.planner_version,
            ..PlanRequest::default()
        };
        let run = self.engine().start_plan(call.caller.clone(), &plan, request, HashMap::new()).await?;
        if params.detach {
            let run_id = run.run_id();
            tokio::spawn(run.detached().drive());
            return Ok(PlanRun::Begun(BegunRun { run_id, status: RunStatus::Running }));
        }
        Ok(PlanRun::Report(Box::new(drive(run, watching).await?)))
    }
}

impl Handle<PlansFork> for Service {
    async fn handle(&self, call: &Call<'_>, params: ForkParams) -> Result<PlanRun, MethodError> {
        let edited = params.plan.as_ref().map(|plan| parse_plan(plan.to_string().as_bytes())).transpose()?;
        let context = match &edited {
            Some(plan) => self.context(&call.caller, plan, params.context).await,
            None => params.context,
        };
        let run_id = self.engine().new_run_id();
        let watching = call.events.clone().map(|sink| self.watch(run_id, sink));
        let consent = params.consent.into_consent(&call.caller);
        let request = PlanRequest { context, consent, run_id: Some(run_id), ..PlanRequest::default() };
        let run = self.engine().fork(call.caller.clone(), params.run_id, &params.from, edited, request).await?;
        Ok(PlanRun::Report(Box::new(drive(run, watching).await?)))
    }
}

impl Handle<PlansUndo> for Service {
    async fn handle(&self, call: &Call<'_>, params: UndoParams) -> Result<UndoAnswer, MethodError> {
        let caller = &call.caller;
        let undo = self.engine().plan_undo(params.run_id).await?;
        if !undo.not_undoable.is_empty() && !params.partial && !params.dry_run {
            return Err(Failure::new(
                ErrorCode::PreconditionFailed,
                format!("{} calls of the run cannot be taken back", undo.not_undoable.len()),
            )
            .suggest("Look at them with --dry-run; take back the rest with --partial.")
            .detail("notUndoable", serde_json::to_value(&undo.not_undoable).map_err(unwritten)?)
            .into());
        }
        let Some(plan) = undo.plan else {
            return Ok(UndoAnswer::Nothing(NothingToUndo {
                run_id: None,
                status: RunStatus::Finished,
                steps: Vec::new(),
                effects: Effects::default(),
                message: "there is nothing to take back".to_owned(),
            }));
        };
        let preview = self.engine().dry_run(caller.clone(), &plan, Object::new()).await?;
        if params.dry_run {
            let not_undoable = undo.not_undoable;
            return Ok(UndoAnswer::Preview(Box::new(UndoPreview { plan, not_undoable, preview })));
        }
        if preview.status != RunStatus::Finished && !params.partial {
            // Known beforehand: half of an undo would leave the vault in a state nobody chose.
            let failure = preview
                .error
                .unwrap_or_else(|| Failure::new(ErrorCode::Conflict, "the run cannot be taken back as a whole"));
            let hint = "Something changed since. Look at it with --dry-run; take back what can be with --partial.";
            return Err(failure.suggest(hint).into());
        }
        let run_id = self.engine().new_run_id();
        let watching = call.events.clone().map(|sink| self.watch(run_id, sink));
        let request = PlanRequest {
            consent: params.consent.into_consent(caller),
            parent_run_id: Some(params.run_id),
            run_id: Some(run_id),
            ..PlanRequest::default()
        };
        let run = self.engine().start_plan(caller.clone(), &plan, request, HashMap::new()).await?;
        Ok(UndoAnswer::Report(Box::new(drive(run, watching).await?)))
    }
}

impl Handle<PlansReplay> for Service {
    async fn handle(&self, _: &Call<'_>, params: RunParams) -> Result<ReplayReport, MethodError> {
        Ok(self.engine().replay(params.run_id).await?)
    }
}

fn unwritten(error: serde_json::Error) -> Failure {
    Failure::new(ErrorCode::InternalError, error.to_string())
}

/// Drives a run in a task of its own: a caller that goes away does not take the run with it.
async fn drive(run: StartedRun, watching: Option<Watching>) -> Result<RunReport, Failure> {
    let run_id = run.run_id();
    let report = tokio::spawn(run.drive()).await.map_err(|_| {
        Failure::new(ErrorCode::InternalError, "the run failed unexpectedly").detail("runId", run_id.to_string())
    })?;
    end(watching).await;
    report
}

impl Service {
    /// Forwards a run's events until it is ended; what is still waiting then is forwarded first.
    pub(crate) fn watch(&self, run_id: RunId, sink: EventSink) -> Watching {
        let mut events =
            self.engine().bus().subscribe(Subscription { run_id: Some(run_id), ..Subscription::default() });
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    event = events.next() => match event {
                        Some(event) => sink(event),
                        None => return,
                    },
                    () = stopped.cancelled() => {
                        while let Some(event) = events.try_next() {
                            sink(event);
                        }
                        return;
                    }
                }
            }
        });
        Watching { stop: stop.drop_guard(), task }
    }

    /// Answers what Toolyard knows itself; the rest must have come with the request.
    async fn context(&self, caller: &Arc<Caller>, plan: &ActionPlan, mut given: Object) -> Object {
        for request in &plan.context_requests {
            if request.kind == ContextKind::VaultFileList && !given.contains_key(request.kind.as_str()) {
                let call = CallRequest {
                    tool: "vault.listFiles".to_owned(),
                    args: request.options.clone(),
                    ..CallRequest::default()
                };
                let result = self.engine().call(caller.clone(), call).await.result;
                if let Some(data) = &result.data {
                    given.insert(request.kind.as_str().to_owned(), Value::Object(data.clone()));
                }
            }
        }
        given
    }
}

/// Events being forwarded, until dropped or ended.
pub(crate) struct Watching {
    stop: DropGuard,
    task: tokio::task::JoinHandle<()>,
}

/// Ends forwarding and waits until the last event has gone out: an answer comes after its events.
pub(crate) async fn end(watching: Option<Watching>) {
    if let Some(Watching { stop, task }) = watching {
        drop(stop);
        if let Err(error) = task.await {
            tracing::error!(%error, "forwarding a run's events failed");
        }
    }
}
