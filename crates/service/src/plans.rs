//! The methods about plans: check, dry run, run, fork, undo, replay. The engine does the work; this module reads
//! parameters and forwards events.

use crate::{AnyJson, Call, EventSink, Handle, MethodError, Object, Service, Terms, methods, runs::RunParams};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::HashMap, sync::Arc};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolyard_engine::{
    CallRequest, Caller, Door, Subscription,
    authority::{Approver, Effect, Power, Scope, holds},
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

/// A plan and the options of its run.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanParams {
    /// The plan.
    pub plan: AnyJson,
    /// The answers to the plan's context requests, by kind.
    #[serde(default)]
    pub context: Object,
    /// A person's approval.
    #[serde(default)]
    pub consent: ConsentParams,
    /// Whether to answer as soon as the run has begun.
    #[serde(default)]
    pub detach: bool,
    /// The version of the planner that wrote the plan, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planner_version: Option<String>,
}

impl PlanParams {
    fn plan(&self) -> Result<ActionPlan, Failure> {
        parse_plan(self.plan.to_string().as_bytes())
    }
}

/// A person's approval in a request.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConsentParams {
    /// Whether the person approves.
    #[serde(default)]
    pub approved: bool,
    /// Whether to ask connected approvers.
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
    /// Only a person can approve; `approved` from an agent is treated as a request to ask a person.
    fn into_consent(self, caller: &Caller) -> Consent {
        // `operator.approvals` alone does not make the caller the approving person: it would approve its own plan.
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

/// A run of a plan: its report or, if requested, only that it has begun.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PlanRun {
    /// The report of a run that has ended or is paused.
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

/// The parameters of a fork.
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
    /// The answers to the plan's context requests, by kind.
    #[serde(default)]
    pub context: Object,
    /// A person's approval.
    #[serde(default)]
    pub consent: ConsentParams,
}

/// The parameters of an undo.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UndoParams {
    /// The run.
    pub run_id: RunId,
    /// Whether to show only what would be undone.
    #[serde(default)]
    pub dry_run: bool,
    /// Whether to undo what can be undone if some calls cannot.
    #[serde(default)]
    pub partial: bool,
    /// The steps of the preview's plan that are run; all of them where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<StepId>>,
    /// A person's approval.
    #[serde(default)]
    pub consent: ConsentParams,
}

/// The result of an undo.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum UndoAnswer {
    /// The run that performed the undo.
    Report(Box<RunReport>),
    /// What the undo would do.
    Preview(Box<UndoPreview>),
    /// The run changed nothing.
    Nothing(NothingToUndo),
}

/// What an undo would do.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UndoPreview {
    /// The plan of inverse calls.
    pub plan: ActionPlan,
    /// Calls that cannot be undone, and why.
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
            run.recorded().await?;
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
                format!("{} calls of the run cannot be undone", undo.not_undoable.len()),
            )
            .suggest("Look at them with --dry-run; undo the rest with --partial.")
            .detail("notUndoable", serde_json::to_value(&undo.not_undoable).map_err(unwritten)?)
            .into());
        }
        let Some(mut plan) = undo.plan else {
            return Ok(UndoAnswer::Nothing(NothingToUndo {
                run_id: None,
                status: RunStatus::Finished,
                steps: Vec::new(),
                effects: Effects::default(),
                message: "there is nothing to undo".to_owned(),
            }));
        };
        if let Some(only) = &params.only {
            keep_only(&mut plan, only)?;
        }
        let caller = &self.undoing(caller, &plan);
        let preview = self.engine().dry_run(caller.clone(), &plan, Object::new()).await?;
        if params.dry_run {
            let not_undoable = undo.not_undoable;
            return Ok(UndoAnswer::Preview(Box::new(UndoPreview { plan, not_undoable, preview })));
        }
        if preview.status != RunStatus::Finished && !params.partial {
            // Checked before anything is undone: a partial undo would leave the vault in a state that nobody chose.
            let failure = preview
                .error
                .unwrap_or_else(|| Failure::new(ErrorCode::Conflict, "the run cannot be undone as a whole"));
            let hint = "Something changed since. Look at it with --dry-run; undo what can be undone with --partial.";
            return Err(failure.suggest(hint).into());
        }
        let run_id = self.engine().new_run_id();
        let watching = call.events.clone().map(|sink| self.watch(run_id, sink));
        let request = PlanRequest {
            consent: params.consent.into_consent(&call.caller),
            parent_run_id: Some(params.run_id),
            run_id: Some(run_id),
            ..PlanRequest::default()
        };
        let run = self.engine().start_plan(caller.clone(), &plan, request, HashMap::new()).await?;
        Ok(UndoAnswer::Report(Box::new(drive(run, watching).await?)))
    }
}

/// Leaves the named steps in an undo plan. They are undone in the same order.
fn keep_only(plan: &mut ActionPlan, only: &[StepId]) -> Result<(), Failure> {
    if let Some(unknown) = only.iter().find(|id| !plan.steps.iter().any(|step| step.id == **id)) {
        return Err(Failure::new(ErrorCode::ValidationError, format!("the undo has no step {unknown}"))
            .suggest("Look at its steps with dryRun."));
    }
    plan.steps.retain(|step| only.contains(&step.id));
    if plan.steps.is_empty() {
        return Err(Failure::new(ErrorCode::ValidationError, "only names no step of the undo"));
    }
    let mut before: Option<StepId> = None;
    for step in &mut plan.steps {
        step.depends_on = before.replace(step.id.clone()).into_iter().collect();
    }
    Ok(())
}

impl Service {
    /// The caller as which an undo runs. The engine made the plan from the record, so its paths are those that the recorded
    /// calls changed, and nobody named them. The owner's browser, which may not name a path of the host, may therefore take
    /// back changes of a coding agent; anybody else runs the plan with their own rights.
    fn undoing(&self, caller: &Arc<Caller>, plan: &ActionPlan) -> Arc<Caller> {
        let is_owners_browser =
            caller.door == Door::Console && caller.is_person && holds(&caller.scopes, Scope::Admin.as_str());
        let tools = self.engine().tools();
        let names_paths = |tool: &str| tools.snapshot.get(tool).is_some_and(|entry| !entry.host_arguments().is_empty());
        match is_owners_browser && plan.steps.iter().any(|step| names_paths(&step.tool)) {
            true => Arc::new(Caller { door: Door::Internal, ..Caller::clone(caller) }),
            false => caller.clone(),
        }
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

/// Drives a run in a separate task, so that it continues if its caller disconnects.
async fn drive(run: StartedRun, watching: Option<EventForwarder>) -> Result<RunReport, Failure> {
    let run_id = run.run_id();
    let report = tokio::spawn(run.drive()).await.map_err(|_| {
        Failure::new(ErrorCode::InternalError, "the run failed unexpectedly").detail("runId", run_id.to_string())
    })?;
    end(watching).await;
    report
}

impl Service {
    /// Forwards a run's events until [`EventForwarder::end`], which first forwards the waiting events.
    pub(crate) fn watch(&self, run_id: RunId, sink: EventSink) -> EventForwarder {
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
        EventForwarder { stop: stop.drop_guard(), task }
    }

    /// Adds the context that Toolyard knows itself; the rest must be in the request.
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
pub(crate) struct EventForwarder {
    stop: DropGuard,
    task: tokio::task::JoinHandle<()>,
}

/// Ends forwarding and waits until the last event has been sent, so that the answer follows its events.
pub(crate) async fn end(watching: Option<EventForwarder>) {
    if let Some(EventForwarder { stop, task }) = watching {
        drop(stop);
        if let Err(error) = task.await {
            tracing::error!(%error, "forwarding a run's events failed");
        }
    }
}
