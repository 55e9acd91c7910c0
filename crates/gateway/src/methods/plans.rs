//! Plans by method: checked, tried, run, forked, taken back, replayed. The engine does it; here parameters are read and
//! events handed on.

use super::{EventSink, Service, runs::RunParams, to_value};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{collections::HashMap, sync::Arc};
use toolyard_engine::{
    CallRequest, Caller, Subscription,
    authority::Approver,
    plan::{Consent, PlanRequest, RunReport, StartedRun, parse_plan},
};
use toolyard_protocol::{ActionPlan, ContextKind, ErrorCode, Failure, RunId, RunStatus, StepId};

impl Service {
    pub(super) fn plans_check(&self, caller: &Caller, params: PlanParams) -> Result<Value, Failure> {
        let plan = params.plan()?;
        Ok(serde_json::to_value(self.engine().check_plan(caller, &plan)).unwrap_or_default())
    }

    pub(super) async fn plans_dry_run(&self, caller: Arc<Caller>, params: PlanParams) -> Result<Value, Failure> {
        let plan = params.plan()?;
        let context = self.context(&caller, &plan, params.context).await?;
        to_value(self.engine().dry_run(caller, &plan, context).await?)
    }

    pub(super) async fn plans_run(
        &self,
        caller: Arc<Caller>,
        params: PlanParams,
        events: Option<EventSink>,
    ) -> Result<Value, Failure> {
        let plan = params.plan()?;
        let context = self.context(&caller, &plan, params.context).await?;
        let request = PlanRequest { context, consent: params.consent.into_consent(&caller), ..PlanRequest::default() };
        let run_id = self.engine().new_run_id();
        let watching = events.map(|sink| self.watch(run_id, sink));
        let request = PlanRequest { run_id: Some(run_id), planner_version: params.planner_version, ..request };
        let run = self.engine().start_plan(caller, &plan, request, HashMap::new()).await?;
        self.drive(run, params.detach, watching).await
    }

    pub(super) async fn plans_fork(
        &self,
        caller: Arc<Caller>,
        params: ForkParams,
        events: Option<EventSink>,
    ) -> Result<Value, Failure> {
        let edited = params.plan.as_ref().map(|plan| parse_plan(plan.to_string().as_bytes())).transpose()?;
        let context = match &edited {
            Some(plan) => self.context(&caller, plan, params.context).await?,
            None => params.context,
        };
        let request = PlanRequest { context, consent: params.consent.into_consent(&caller), ..PlanRequest::default() };
        let run_id = self.engine().new_run_id();
        let watching = events.map(|sink| self.watch(run_id, sink));
        let request = PlanRequest { run_id: Some(run_id), ..request };
        let run = self.engine().fork(caller, params.run_id, &params.from, edited, request).await?;
        self.drive(run, false, watching).await
    }

    pub(super) async fn plans_undo(
        &self,
        caller: Arc<Caller>,
        params: UndoParams,
        events: Option<EventSink>,
    ) -> Result<Value, Failure> {
        let undo = self.engine().plan_undo(params.run_id).await?;
        if !undo.not_undoable.is_empty() && !params.partial && !params.dry_run {
            return Err(Failure::new(
                ErrorCode::PreconditionFailed,
                format!("{} calls of the run cannot be taken back", undo.not_undoable.len()),
            )
            .suggest("Look at them with --dry-run; take back the rest with --partial.")
            .detail("notUndoable", serde_json::to_value(&undo.not_undoable).unwrap_or_default()));
        }
        let Some(plan) = undo.plan.clone() else {
            return Ok(
                json!({"runId": Value::Null, "status": "finished", "steps": [], "effects": {}, "message": "there is nothing to take back"}),
            );
        };
        let preview = self.engine().dry_run(caller.clone(), &plan, Map::new()).await?;
        if params.dry_run {
            return Ok(json!({"plan": plan, "notUndoable": undo.not_undoable, "preview": preview}));
        }
        if preview.status != RunStatus::Finished && !params.partial {
            // Known beforehand: half of an undo would leave the vault in a state nobody chose.
            let failure = preview
                .error
                .unwrap_or_else(|| Failure::new(ErrorCode::Conflict, "the run cannot be taken back as a whole"));
            let hint = "Something changed since. Look at it with --dry-run; take back what can be with --partial.";
            return Err(failure.suggest(hint));
        }
        let run_id = self.engine().new_run_id();
        let watching = events.map(|sink| self.watch(run_id, sink));
        let request = PlanRequest {
            consent: params.consent.into_consent(&caller),
            parent_run_id: Some(params.run_id),
            run_id: Some(run_id),
            ..PlanRequest::default()
        };
        let run = self.engine().start_plan(caller, &plan, request, HashMap::new()).await?;
        self.drive(run, false, watching).await
    }

    pub(super) async fn plans_replay(&self, params: RunParams) -> Result<Value, Failure> {
        to_value(self.engine().replay(params.run_id).await?)
    }

    /// Drives a run in a task of its own: a caller that goes away does not take the run with it.
    async fn drive(&self, run: StartedRun, detach: bool, watching: Option<Watching>) -> Result<Value, Failure> {
        let run_id = run.run_id();
        let task = tokio::spawn(run.drive());
        if detach {
            return Ok(json!({"runId": run_id, "status": RunStatus::Running}));
        }
        let report = task.await.map_err(|_| {
            Failure::new(ErrorCode::InternalError, "the run failed unexpectedly").detail("runId", run_id.to_string())
        })?;
        end(watching).await;
        to_value::<RunReport>(report?)
    }

    /// Forwards a run's events until it is ended; what is still waiting then is forwarded first.
    pub(super) fn watch(&self, run_id: RunId, sink: EventSink) -> Watching {
        let mut events =
            self.engine().bus().subscribe(Subscription { run_id: Some(run_id), ..Subscription::default() });
        let stop = tokio_util::sync::CancellationToken::new();
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
        Watching { _stop: stop.drop_guard(), task }
    }

    /// Answers what Toolyard knows itself; the rest must have come with the request.
    async fn context(
        &self,
        caller: &Arc<Caller>,
        plan: &ActionPlan,
        mut given: Map<String, Value>,
    ) -> Result<Map<String, Value>, Failure> {
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
        Ok(given)
    }
}

/// Events being forwarded, until dropped or ended.
pub(super) struct Watching {
    _stop: tokio_util::sync::DropGuard,
    task: tokio::task::JoinHandle<()>,
}

/// Ends forwarding and waits until the last event has gone out: an answer comes after its events.
pub(super) async fn end(watching: Option<Watching>) {
    if let Some(Watching { _stop, task }) = watching {
        drop(_stop);
        let _ = task.await;
    }
}

/// How a person's approval comes with a request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConsentParams {
    /// The person said yes.
    #[serde(default)]
    approved: bool,
    /// Ask whoever can approve.
    #[serde(default)]
    ask: bool,
    #[serde(default)]
    plan_hash: Option<String>,
    #[serde(default)]
    policy_hash: Option<String>,
    #[serde(default)]
    preview_hash: Option<String>,
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PlanParams {
    plan: Value,
    #[serde(default)]
    context: Map<String, Value>,
    #[serde(default)]
    consent: ConsentParams,
    #[serde(default)]
    detach: bool,
    #[serde(default)]
    planner_version: Option<String>,
}

impl PlanParams {
    fn plan(&self) -> Result<ActionPlan, Failure> {
        parse_plan(self.plan.to_string().as_bytes())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ForkParams {
    run_id: RunId,
    from: StepId,
    #[serde(default)]
    plan: Option<Value>,
    #[serde(default)]
    context: Map<String, Value>,
    #[serde(default)]
    consent: ConsentParams,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct UndoParams {
    run_id: RunId,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    partial: bool,
    #[serde(default)]
    consent: ConsentParams,
}
