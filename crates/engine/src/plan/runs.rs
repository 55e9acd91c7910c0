//! Functions of the engine for whole runs of plans.

use super::{
    check::{CheckReport, CompiledPlan},
    consent,
    executor::{Ended, Executor, Mode},
    kept::kept_plan,
    memo::{CallKey, Memo},
    report::{self, Deviation, RunReport, StepReport},
    scheduler::RunEnd,
};
use crate::{
    Caller, Engine,
    authority::Approver,
    facts::{self, DeviationFacts},
    record::{NoteRecord, Record, RunStarted},
    scope::RunScope,
    store::{Durability, RunKind},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{ActionPlan, Effects, ErrorCode, EventLevel, Failure, RunId, RunStatus, StepId, ToolResult};

/// A person's approval of a run, or how to get one.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Consent {
    /// None was given. Only plans without side effects run.
    #[default]
    None,
    /// A person approved exactly this.
    Approved {
        /// The person who approved.
        by: Approver,
        /// Hash of the plan they saw; the run is refused when it differs.
        plan_hash: Option<String>,
        /// Hash of the policy they saw it under.
        policy_hash: Option<String>,
        /// Hash of the preview they saw; it is computed again and must be the same.
        preview_hash: Option<String>,
    },
    /// Ask connected approvers and wait.
    Ask,
}

/// A plan to be run.
#[derive(Debug, Clone, Default)]
pub struct PlanRequest {
    /// Answers to the plan's context requests, by kind.
    pub context: Map<String, Value>,
    /// The approval.
    pub consent: Consent,
    /// The run from which this one was forked, or which it undoes.
    pub parent_run_id: Option<RunId>,
    /// The run's id, from [`Engine::new_run_id`], for callers that want to subscribe before the first event.
    pub run_id: Option<RunId>,
    /// The version of the planner that wrote the plan; it is recorded with every call.
    pub planner_version: Option<String>,
}

/// A run that has been recorded and can now be driven.
pub struct StartedRun {
    pub(super) engine: Engine,
    pub(super) executor: Executor,
    pub(super) title: String,
    pub(super) started_at: Timestamp,
    pub(super) consent: Consent,
    pub(super) predicted: Option<Effects>,
    /// Nobody waits for the run's end: it may wait for an approver who is not connected now.
    pub(super) is_detached: bool,
}

/// What a dry run predicts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DryRunReport {
    /// `finished` when every step could be predicted to succeed.
    pub status: RunStatus,
    /// Hash of the plan.
    pub plan_hash: String,
    /// Hash of the policy.
    pub policy_hash: String,
    /// Hash of this prediction: an approval is bound to it.
    pub preview_hash: String,
    /// The outcome of each step.
    pub steps: Vec<StepReport>,
    /// The predicted effects.
    pub effects: Effects,
    /// Unified diff of everything that would change.
    pub diff: String,
    /// Why it would not finish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

/// What a replay found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayReport {
    /// The run that was replayed.
    pub run_id: RunId,
    /// True when every argument resolved as recorded.
    pub ok: bool,
    /// Number of calls whose arguments were resolved again.
    pub calls_checked: u64,
    /// The first difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

impl Engine {
    /// Checks a plan without running it.
    pub fn check_plan(&self, caller: &Caller, plan: &ActionPlan) -> CheckReport {
        self.compile(plan, &self.policy_for(caller)).0
    }

    /// Runs a plan to its end. `Err` means that nothing was started.
    pub async fn run_plan(
        &self,
        caller: Arc<Caller>,
        plan: &ActionPlan,
        request: PlanRequest,
    ) -> Result<RunReport, Failure> {
        self.start_plan(caller, plan, request, HashMap::new()).await?.drive().await
    }

    /// Records a run's beginning. Drive it with [`StartedRun::drive`]. `Err` means that nothing was started.
    pub async fn start_plan(
        &self,
        caller: Arc<Caller>,
        plan: &ActionPlan,
        request: PlanRequest,
        imported: HashMap<CallKey, ToolResult>,
    ) -> Result<StartedRun, Failure> {
        self.check_not_draining()?;
        let caller = caller.settled();
        let policy = self.policy_for(&caller);
        let (report, compiled) = self.compile(plan, &policy);
        let compiled = match compiled {
            Some(compiled) => Arc::new(compiled),
            None => {
                return Err(report
                    .to_failure()
                    .unwrap_or_else(|| Failure::new(ErrorCode::ValidationError, "the plan cannot be run")));
            }
        };
        check_context(plan, &request.context)?;
        let side_effects = compiled.steps.iter().any(|s| s.side_effects);
        let needs_consent = side_effects && policy.snapshot().confirmations_required;
        let predicted = self.check_consent(&caller, plan, &compiled, &request, needs_consent, policy.hash()).await?;

        let run_id = request.run_id.unwrap_or_else(|| self.new_run_id());
        let scope = self.scope(run_id, caller, CancellationToken::new(), None);
        let scope = Arc::new(RunScope { planner_version: request.planner_version.clone(), ..scope });
        scope.recorder.secrets().learn_looks(&request.context);
        let started_at = self.clock().now();
        let mut imported_steps: Vec<StepId> =
            imported.keys().map(|k| k.0.clone()).collect::<HashSet<_>>().into_iter().collect();
        imported_steps.sort();
        scope.recorder.push(&Record::RunStarted(RunStarted {
            run_id,
            kind: RunKind::Plan,
            plan: Some(kept_plan(&scope, plan)?),
            plan_hash: Some(compiled.plan_hash.clone()),
            policy_hash: scope.policy.hash().to_owned(),
            policy: Some((**scope.policy.snapshot()).clone()),
            policy_blob: None,
            registry_version: scope.tools.snapshot.version().to_owned(),
            executor_version: crate::EXECUTOR_VERSION.to_owned(),
            planner_version: scope.planner_version.clone(),
            caller: scope.caller.to_map(),
            context: request.context.clone(),
            started_at,
            parent_run_id: request.parent_run_id,
            imported_steps,
            preview_hash: match &request.consent {
                Consent::Approved { preview_hash, .. } => preview_hash.clone(),
                _ => None,
            },
            title: None,
        }));
        scope.recorder.set_row(self.row(&scope, RunKind::Plan, &plan.goal, started_at, RunStatus::Running, None));
        // The run and its approval become durable together; without an approval the run rides along with its first call.
        let consent = match request.consent {
            Consent::Approved { by, preview_hash, .. } => {
                let allowance = consent::own_act(&by, self.clock().now());
                consent::record(self, &scope, &compiled.plan_hash, allowance, preview_hash);
                scope.recorder.sync().await?;
                Consent::None
            }
            other => {
                scope.recorder.flush(Durability::Deferred)?;
                if needs_consent { other } else { Consent::None }
            }
        };
        let mut executor = Executor::new(self.clone(), scope, compiled, Mode::Live, started_at);
        executor.context = request.context;
        executor.imported = imported;
        let (engine, title) = (self.clone(), plan.goal.clone());
        Ok(StartedRun { engine, executor, title, started_at, consent, predicted, is_detached: false })
    }

    /// Whether the approval is for this very plan, policy and preview. Answers the predicted effects, if there was a preview.
    async fn check_consent(
        &self,
        caller: &Arc<Caller>,
        plan: &ActionPlan,
        compiled: &CompiledPlan,
        request: &PlanRequest,
        needed: bool,
        policy_hash: &str,
    ) -> Result<Option<Effects>, Failure> {
        match &request.consent {
            Consent::None if needed => Err(Failure::new(
                ErrorCode::ConfirmationRequired,
                "the plan has side effects and needs a person's approval",
            )
            .detail("planHash", compiled.plan_hash.as_str())
            .detail("policyHash", policy_hash)
            .retryable(false)),
            Consent::None | Consent::Ask => Ok(None),
            Consent::Approved { plan_hash, policy_hash: approved_policy, preview_hash, .. } => {
                if let Some(was) = plan_hash.as_deref().filter(|h| *h != compiled.plan_hash) {
                    return Err(consent::stale("plan", was, &compiled.plan_hash));
                }
                if let Some(was) = approved_policy.as_deref().filter(|h| *h != policy_hash) {
                    return Err(consent::stale("policy", was, policy_hash));
                }
                let Some(was) = preview_hash else { return Ok(None) };
                let now = self.dry_run(caller.clone(), plan, request.context.clone()).await?;
                if *was != now.preview_hash {
                    return Err(consent::stale("preview", was, &now.preview_hash));
                }
                Ok(Some(now.effects))
            }
        }
    }

    /// Predicts a plan's effects on an overlay, where later steps see earlier writes.
    pub async fn dry_run(
        &self,
        caller: Arc<Caller>,
        plan: &ActionPlan,
        context: Map<String, Value>,
    ) -> Result<DryRunReport, Failure> {
        let caller = caller.settled();
        let (report, compiled) = self.compile(plan, &self.policy_for(&caller));
        let Some(compiled) = compiled else {
            return Err(report
                .to_failure()
                .unwrap_or_else(|| Failure::new(ErrorCode::ValidationError, "the plan cannot be run")));
        };
        check_context(plan, &context)?;
        // A fixed id and time, so that the same plan over the same vault has the same preview.
        let run_id = RunId::from_uuid(uuid_of(&compiled.plan_hash));
        let scope = Arc::new(self.scope(run_id, caller, CancellationToken::new(), Some(Default::default())));
        let policy_hash = scope.policy.hash().to_owned();
        let plan_hash = compiled.plan_hash.clone();
        let mut executor =
            Executor::new(self.clone(), scope.clone(), Arc::new(compiled), Mode::DryRun, Timestamp::UNIX_EPOCH);
        executor.context = context;
        let end = executor.drive().await;
        let (status, error) = conclude(&end, &executor);
        let diff = scope.previews.as_ref().map(crate::scope::Previews::diff).unwrap_or_default();
        let steps: Vec<StepReport> =
            executor.reports.iter().map(|r| StepReport { duration_ms: None, ..r.clone() }).collect();
        let effects = executor.effects.clone();
        let preview_hash = report::preview_hash(&diff, &effects, &steps)?;
        Ok(DryRunReport { status, plan_hash, policy_hash, preview_hash, steps, effects, diff, error })
    }

    /// Resolves every recorded call's arguments again and demands the recorded hash. No tool is called.
    pub async fn replay(&self, run_id: RunId) -> Result<ReplayReport, Failure> {
        let memo = self.load_memo(run_id).await?;
        let Some(plan) = memo.started.plan.clone() else {
            return Err(Failure::new(ErrorCode::PreconditionFailed, "a single call has no plan to replay"));
        };
        let caller = caller_of(&memo);
        let (report, compiled) = self.compile(&plan, &self.policy_for(&caller));
        let Some(compiled) = compiled else {
            return Err(report
                .to_failure()
                .unwrap_or_else(|| Failure::new(ErrorCode::ValidationError, "the plan cannot be read any more")));
        };
        // The twin scope records into memory: a replay leaves no trace in the store.
        let scope = Arc::new(self.scope(run_id, caller, CancellationToken::new(), Some(Default::default())));
        let mut executor =
            Executor::new(self.clone(), scope, Arc::new(compiled), Mode::Replay, memo.started.started_at);
        executor.context = memo.started.context.clone();
        executor.memo = Some(Arc::new(memo));
        let error = match executor.drive().await {
            Ended::Run(_) | Ended::Interrupted => None,
            Ended::Mismatch(failure) => Some(failure),
            Ended::Broken(failure) => return Err(failure),
        };
        Ok(ReplayReport { run_id, ok: error.is_none(), calls_checked: executor.calls_checked, error })
    }

    /// A new run that reuses the results of another run before a step and continues from there, with the same plan or
    /// an edited one.
    pub async fn fork(
        &self,
        caller: Arc<Caller>,
        run_id: RunId,
        from: &StepId,
        edited: Option<ActionPlan>,
        mut request: PlanRequest,
    ) -> Result<StartedRun, Failure> {
        let memo = self.load_memo(run_id).await?;
        let Some(original) = memo.started.plan.clone() else {
            return Err(Failure::new(ErrorCode::PreconditionFailed, "a single call has no plan to fork"));
        };
        let plan = edited.unwrap_or_else(|| original.clone());
        let (report, compiled) = self.compile(&plan, &self.policy_for(&caller));
        let Some(compiled) = compiled else {
            return Err(report
                .to_failure()
                .unwrap_or_else(|| Failure::new(ErrorCode::ValidationError, "the plan cannot be run")));
        };
        let Some(start) = compiled.steps.iter().position(|s| s.step().id == *from) else {
            return Err(Failure::new(ErrorCode::NotFound, format!("the plan has no step {from}")));
        };
        let unchanged: Vec<bool> = compiled.steps.iter().map(|now| original.steps.contains(now.step())).collect();
        // Besides the step itself: what was edited, and everything that builds on either.
        let edited = (0..compiled.steps.len()).filter(|&i| !unchanged[i]);
        let again = downstream(&compiled, edited.chain([start]).collect());
        let mut imported = HashMap::new();
        let store = self.store().clone();
        for ((step, index, attempt), recorded) in &memo.results {
            let Some(at) = compiled.steps.iter().position(|s| s.step().id == *step) else { continue };
            if !again.contains(&at) {
                let result = memo.result(&*store, step, recorded)?;
                imported.insert((step.clone(), *index, *attempt), result);
            }
        }
        request.parent_run_id = Some(run_id);
        if request.context.is_empty() {
            request.context = memo.started.context.clone();
        }
        self.start_plan(caller, &plan, request, imported).await
    }

    pub(crate) async fn load_memo(&self, run_id: RunId) -> Result<Memo, Failure> {
        let (store, verifier) = (self.store().clone(), self.signer().verifier());
        let loaded = tokio::task::spawn_blocking(move || {
            store.settle()?;
            Memo::load(&*store, run_id, &verifier)
        })
        .await;
        loaded.unwrap_or_else(|_| Err(Failure::new(ErrorCode::InternalError, "reading the run failed unexpectedly")))
    }
}

impl StartedRun {
    /// The run's id, known before it is driven.
    pub fn run_id(&self) -> RunId {
        self.executor.scope.run_id
    }

    /// A run that was resumed.
    pub(super) fn resumed(
        engine: Engine,
        executor: Executor,
        title: String,
        started_at: Timestamp,
        consent: Consent,
    ) -> Self {
        Self { engine, executor, title, started_at, consent, predicted: None, is_detached: true }
    }

    /// The run of a caller that does not wait for its end.
    #[must_use]
    pub fn detached(self) -> Self {
        Self { is_detached: true, ..self }
    }

    /// Waits until the beginning of the run is durable, where several nodes share the store: if this node is lost,
    /// another node resumes a run that was reported to a caller.
    pub async fn recorded(&self) -> Result<(), Failure> {
        if self.engine.store().is_shared() {
            self.executor.scope.recorder.sync().await?;
        }
        Ok(())
    }

    /// Drives the run to its end.
    pub async fn drive(mut self) -> Result<RunReport, Failure> {
        let scope = self.executor.scope.clone();
        let engine = self.engine.clone();
        let _registered = engine.register_run(&scope);
        engine.show_others(&scope);
        let consent = tokio::select! {
            biased;
            consent = self.obtain_consent(&scope) => Some(consent),
            () = engine.shutdown_token().cancelled() => None,
        };
        match consent {
            Some(Ok(())) => {}
            Some(Err(failure)) => return Ok(self.close(&scope, RunStatus::Cancelled, Some(failure)).await),
            None => return Ok(self.leave(&scope, RunStatus::Pending).await),
        }
        let end = self.executor.drive().await;
        if let Ended::Interrupted = end {
            return Ok(self.leave(&scope, RunStatus::Running).await);
        }
        let (status, error) = conclude(&end, &self.executor);
        Ok(self.close(&scope, status, error).await)
    }

    async fn close(&mut self, scope: &Arc<RunScope>, status: RunStatus, error: Option<Failure>) -> RunReport {
        let deviation = match (&self.predicted, status) {
            (Some(predicted), RunStatus::Finished) => Deviation::between(predicted, &self.executor.effects),
            _ => None,
        };
        if let Some(deviation) = &deviation {
            scope.recorder.push(&Record::Note(NoteRecord {
                at: self.engine.clock().now(),
                level: EventLevel::Warn,
                message: "What happened differs from the preview that was approved".to_owned(),
                call_id: None,
                step_id: None,
                payload: facts::payload(&DeviationFacts { deviation }),
            }));
        }
        let ended_at = if status == RunStatus::Paused {
            // Another process may resume the run, so the records of this one are signed.
            scope.recorder.checkpoint();
            let row = self.engine.row(scope, RunKind::Plan, &self.title, self.started_at, RunStatus::Paused, None);
            scope.recorder.set_row(row);
            scope.recorder.release();
            None
        } else {
            let ok =
                self.executor.reports.iter().filter(|r| r.status == Some(toolyard_protocol::ResultStatus::Ok)).count();
            let message = format!("{}: {ok} of {} steps succeeded", status.as_str(), self.executor.reports.len());
            let ended = self.engine.finish_run(
                scope,
                RunKind::Plan,
                &self.title,
                self.started_at,
                status,
                error.clone(),
                message,
            );
            if let Err(error) = ended {
                // The sync below fails for the same reason, and the report contains it.
                tracing::error!(%error, run = %scope.run_id, "the end of a run could not be recorded");
            }
            Some(self.engine.clock().now())
        };
        let failed = scope.recorder.sync().await.err().map(Failure::from);
        // A head that is not stored is not sealed: the node that continues the run records another one.
        if failed.is_none() {
            self.engine.seal_paused(scope, status);
        }
        self.report(status, failed.or(error), ended_at, deviation)
    }

    /// Leaves the run because the engine shuts down: nothing more is recorded, and the next start resumes the run.
    async fn leave(&mut self, scope: &Arc<RunScope>, status: RunStatus) -> RunReport {
        let row = self.engine.row(scope, RunKind::Plan, &self.title, self.started_at, status, None);
        scope.recorder.set_row(row);
        scope.recorder.release();
        let error = scope.recorder.sync().await.err().map(Failure::from);
        self.report(status, error, None, None)
    }

    fn report(
        &mut self,
        status: RunStatus,
        error: Option<Failure>,
        ended_at: Option<Timestamp>,
        deviation: Option<Deviation>,
    ) -> RunReport {
        RunReport {
            run_id: self.executor.scope.run_id,
            status,
            goal: self.title.clone(),
            outputs: self.executor.plan.plan.outputs.clone(),
            steps: std::mem::take(&mut self.executor.reports),
            effects: std::mem::take(&mut self.executor.effects),
            error,
            started_at: self.started_at,
            ended_at,
            deviation,
        }
    }
}

fn conclude(end: &Ended, executor: &Executor) -> (RunStatus, Option<Failure>) {
    match end {
        Ended::Run(RunEnd::Finished) => (RunStatus::Finished, None),
        Ended::Run(RunEnd::Failed { step }) => {
            let report = &executor.reports[*step];
            let failure =
                report.error.clone().unwrap_or_else(|| Failure::new(ErrorCode::InternalError, "a step failed"));
            (RunStatus::Failed, Some(failure.detail("step", report.id.to_string())))
        }
        Ended::Run(RunEnd::Cancelled) => {
            let stopped = || Failure::new(ErrorCode::Cancelled, "the run was stopped");
            (RunStatus::Cancelled, Some(executor.stopped.clone().unwrap_or_else(stopped)))
        }
        Ended::Run(RunEnd::Paused) => (
            RunStatus::Paused,
            Some(Failure::new(ErrorCode::InDoubt, "a call was interrupted and its outcome is not known")),
        ),
        Ended::Interrupted => (RunStatus::Running, None),
        Ended::Mismatch(failure) | Ended::Broken(failure) => (RunStatus::Failed, Some(failure.clone())),
    }
}

fn check_context(plan: &ActionPlan, given: &Map<String, Value>) -> Result<(), Failure> {
    let missing: Vec<&str> =
        plan.context_requests.iter().map(|r| r.kind.as_str()).filter(|kind| !given.contains_key(*kind)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::PreconditionFailed,
        format!("the plan asks for context that nobody supplied: {}", missing.join(", ")),
    )
    .suggest("Connect a client that knows it, or pass it with --context KIND=JSON.")
    .detail("missing", missing)
    .retryable(false))
}

pub(crate) fn caller_of(memo: &Memo) -> Arc<Caller> {
    let value = Value::Object(memo.started.caller.clone());
    Arc::new(serde_json::from_value(value).unwrap_or_else(|_| Caller {
        is_person: false,
        scopes: Vec::new(),
        ..Caller::cli("unknown")
    }))
}

fn downstream(plan: &CompiledPlan, mut again: HashSet<usize>) -> HashSet<usize> {
    loop {
        let before = again.len();
        for (i, step) in plan.steps.iter().enumerate() {
            if step.shape.depends_on.iter().any(|d| again.contains(d)) {
                again.insert(i);
            }
        }
        if again.len() == before {
            return again;
        }
    }
}

/// A UUID derived from a plan, for dry runs.
fn uuid_of(plan_hash: &str) -> uuid::Uuid {
    let hex = plan_hash.trim_start_matches("sha256:");
    u128::from_str_radix(hex.get(..32).unwrap_or("0"), 16).map_or(uuid::Uuid::nil(), uuid::Uuid::from_u128)
}
