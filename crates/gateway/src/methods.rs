//! The methods every door shares, by name, with JSON in and JSON out.
//!
//! The command line calls them in process or over the local socket, other doors over theirs: there is one way to run a
//! plan, however it was asked for.

use crate::{devices::Devices, models::ModelView};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Instant,
};
use toolyard_catalog::{Decision, ToolEntry};
use toolyard_engine::{
    CallAnswer, CallRequest, Caller, Engine, Subscription,
    chain::Verifier,
    ledger,
    plan::{Consent, PlanRequest, RunReport, StartedRun, parse_plan},
    record::Settlement,
    store::{Lease, RunFilter, RunKind, RunRow},
    view,
};
use toolyard_protocol::{ActionPlan, ContextKind, ErrorCode, ExecutionEvent, Failure, RunId, RunStatus, StepId};

/// Where a method sends events while it works.
pub type EventSink = Arc<dyn Fn(Arc<ExecutionEvent>) + Send + Sync>;

/// What methods work on.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    devices: Arc<Devices>,
    verifier: Verifier,
    is_alive: Box<dyn Fn(&Lease) -> bool + Send + Sync>,
    started: Instant,
    info: Map<String, Value>,
    models: OnceLock<Arc<dyn ModelView>>,
}

impl Service {
    /// `info` is shown by `status`; `is_alive` says whether the process of a lease still runs.
    pub fn new(
        engine: Engine,
        info: Map<String, Value>,
        is_alive: impl Fn(&Lease) -> bool + Send + Sync + 'static,
    ) -> Self {
        let verifier = engine.signer().verifier();
        let devices = Arc::new(Devices::new(engine.store().clone(), engine.clock().clone()));
        Self {
            inner: Arc::new(Inner {
                engine,
                devices,
                verifier,
                is_alive: Box::new(is_alive),
                started: Instant::now(),
                info,
                models: OnceLock::new(),
            }),
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// Sets who decides what models are shown; the first to be set stays. Without one, models are shown everything.
    pub fn show_models(&self, view: Arc<dyn ModelView>) {
        let _ = self.inner.models.set(view);
    }

    /// Who decides what models are shown.
    pub(crate) fn models(&self) -> Option<&Arc<dyn ModelView>> {
        self.inner.models.get()
    }

    /// Devices that may connect.
    pub(crate) fn devices(&self) -> &Arc<Devices> {
        &self.inner.devices
    }

    /// Calls a tool: the one way every door takes.
    pub async fn invoke(&self, caller: Arc<Caller>, request: CallRequest) -> CallAnswer {
        self.engine().call(caller, request).await
    }

    /// Milliseconds since the service began.
    pub fn uptime_ms(&self) -> u64 {
        self.inner.started.elapsed().as_millis() as u64
    }

    /// Takes up what a process that is gone left behind.
    pub async fn recover(&self) -> Result<toolyard_engine::plan::Recovered, Failure> {
        self.inner.engine.recover(|lease| (self.inner.is_alive)(lease)).await
    }

    /// Calls a method by name.
    pub async fn call(
        &self,
        caller: Arc<Caller>,
        method: &str,
        params: Value,
        events: Option<EventSink>,
    ) -> Result<Value, Failure> {
        match method {
            "status" => Ok(self.status()),
            "tools.list" => self.tools_list(&caller, read(params)?),
            "tools.describe" => self.tools_describe(&caller, read(params)?),
            "tools.call" => self.tools_call(caller, read(params)?, events).await,
            "plans.check" => self.plans_check(&caller, read(params)?),
            "plans.dryRun" => self.plans_dry_run(caller, read(params)?).await,
            "plans.run" => self.plans_run(caller, read(params)?, events).await,
            "plans.replay" => self.plans_replay(read(params)?).await,
            "plans.fork" => self.plans_fork(caller, read(params)?, events).await,
            "plans.undo" => self.plans_undo(caller, read(params)?, events).await,
            "runs.list" => self.runs_list(read(params)?).await,
            "runs.get" => self.runs_get(read(params)?).await,
            "runs.export" => self.runs_export(read(params)?).await,
            "runs.transcript" => self.runs_transcript(read(params)?).await,
            "runs.verify" => self.runs_verify(read(params)?).await,
            "runs.resume" => self.runs_resume(caller, read(params)?, events).await,
            "runs.cancel" => self.runs_cancel(read(params)?),
            "devices.list" => Ok(self.inner.devices.overview()?),
            "devices.approve" => self.devices_approve(&caller, read(params)?).await,
            "devices.reject" => self.devices_reject(read(params)?).await,
            "devices.revoke" => self.devices_revoke(read(params)?).await,
            _ => Err(Failure::new(
                ErrorCode::NotFound,
                format!("there is no method {:?}", method.chars().take(80).collect::<String>()),
            )),
        }
    }

    fn status(&self) -> Value {
        let mut status = self.inner.info.clone();
        status.insert("uptimeMs".to_owned(), self.uptime_ms().into());
        status.insert("tools".to_owned(), self.engine().tools().snapshot.len().into());
        status.insert("registryVersion".to_owned(), self.engine().tools().snapshot.version().into());
        status.insert("activeRuns".to_owned(), self.engine().active_runs().len().into());
        status.insert("publicKey".to_owned(), self.inner.verifier.to_text().into());
        Value::Object(status)
    }

    async fn devices_approve(&self, caller: &Caller, params: IdParams) -> Result<Value, Failure> {
        let device = self.inner.devices.approve(&params.id, &caller.principal).await?;
        Ok(json!({"deviceId": device.device_id, "role": device.role, "scopes": device.scopes}))
    }

    async fn devices_reject(&self, params: IdParams) -> Result<Value, Failure> {
        let request = self.inner.devices.reject(&params.id).await?;
        Ok(json!({"deviceId": request.device.device_id, "rejected": true}))
    }

    async fn devices_revoke(&self, params: IdParams) -> Result<Value, Failure> {
        let device = self.inner.devices.revoke(&params.id).await?;
        Ok(json!({"deviceId": device.device_id, "revoked": true}))
    }

    fn tools_list(&self, caller: &Caller, params: ToolsList) -> Result<Value, Failure> {
        let policy = self.engine().policy_for(caller);
        let tools: Vec<Value> = self
            .engine()
            .visible_tools(caller)
            .iter()
            .filter(|e| params.category.as_ref().is_none_or(|c| *c == e.definition().category))
            .map(|entry| {
                let d = entry.definition();
                let mut row = json!({
                    "name": d.name, "id": entry.id(), "title": d.title, "description": d.description, "category": d.category,
                    "riskLevel": d.risk_level, "needsApproval": matches!(policy.decide(entry, None), Decision::Ask { .. }),
                });
                if params.schemas {
                    row["inputSchema"] = Value::Object(d.input_schema.clone());
                    row["outputSchema"] = d.output_schema.clone().map_or(Value::Null, Value::Object);
                }
                row
            })
            .collect();
        Ok(json!({"tools": tools, "registryVersion": self.engine().tools().snapshot.version()}))
    }

    fn tools_describe(&self, caller: &Caller, params: ToolName) -> Result<Value, Failure> {
        let entry = self.visible(caller, &params.name)?;
        let mut value = serde_json::to_value(&**entry.definition()).unwrap_or_default();
        value["id"] = entry.id().into();
        value["source"] = serde_json::to_value(entry.source()).unwrap_or_default();
        let (decision, reason) = match self.engine().policy_for(caller).decide(&entry, None) {
            Decision::Allow => ("allow", None),
            Decision::Ask { reason, .. } => ("ask", Some(reason)),
            Decision::Deny { reason, .. } => ("deny", Some(reason)),
        };
        value["policy"] = json!({"decision": decision, "reason": reason});
        Ok(value)
    }

    fn visible(&self, caller: &Caller, name: &str) -> Result<Arc<ToolEntry>, Failure> {
        let tools = self.engine().tools();
        let policy = self.engine().policy_for(caller);
        let found = tools.snapshot.get(name).filter(|e| !policy.decide(e, None).is_denied()).cloned();
        found.ok_or_else(|| {
            // A suggestion must not give away a tool that the caller may not see.
            let near = match tools.snapshot.resolve_visible(name, |e| !policy.decide(e, None).is_denied()) {
                toolyard_catalog::Resolution::Unknown { suggestions } => suggestions,
                _ => Vec::new(),
            };
            let failure = Failure::new(
                ErrorCode::NotFound,
                format!("there is no tool {:?}", name.chars().take(80).collect::<String>()),
            );
            if near.is_empty() {
                failure.suggest("List the tools with `toolyard tools list`.")
            } else {
                failure.suggest(format!("Did you mean {}?", near.join(", ")))
            }
        })
    }

    async fn tools_call(
        &self,
        caller: Arc<Caller>,
        params: ToolsCall,
        events: Option<EventSink>,
    ) -> Result<Value, Failure> {
        let run_id = self.engine().new_run_id();
        let watching = events.map(|sink| self.watch(run_id, sink));
        let request = CallRequest {
            tool: params.name,
            args: params.args,
            timeout_ms: params.timeout_ms,
            preview: None,
            idempotency_key: params.idempotency_key,
            dry_run: params.dry_run,
            run_id: Some(run_id),
            ..CallRequest::default()
        };
        let answer = self.invoke(caller, request).await;
        end(watching).await;
        Ok(json!({"result": answer.result, "deduplicated": answer.deduplicated}))
    }

    fn plans_check(&self, caller: &Caller, params: PlanParams) -> Result<Value, Failure> {
        let plan = params.plan()?;
        Ok(serde_json::to_value(self.engine().check_plan(caller, &plan)).unwrap_or_default())
    }

    async fn plans_dry_run(&self, caller: Arc<Caller>, params: PlanParams) -> Result<Value, Failure> {
        let plan = params.plan()?;
        let context = self.context(&caller, &plan, params.context).await?;
        to_value(self.engine().dry_run(caller, &plan, context).await?)
    }

    async fn plans_run(
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

    async fn plans_fork(
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

    async fn plans_undo(
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

    async fn plans_replay(&self, params: RunParams) -> Result<Value, Failure> {
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
    fn watch(&self, run_id: RunId, sink: EventSink) -> Watching {
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

    async fn runs_list(&self, params: RunsList) -> Result<Value, Failure> {
        let filter = RunFilter {
            statuses: params.status,
            kind: params.kind,
            session: params.session,
            before: params.before,
            limit: params.limit.unwrap_or(50).clamp(1, 10_000),
        };
        let store = self.engine().store().clone();
        let rows = blocking(move || {
            store.settle()?;
            Ok(store.runs(&filter)?)
        })
        .await?;
        let rows: Vec<Value> = rows.iter().map(row_json).collect();
        Ok(json!({"runs": rows}))
    }

    async fn runs_get(&self, params: RunParams) -> Result<Value, Failure> {
        let store = self.engine().store().clone();
        let export = blocking(move || {
            store.settle()?;
            view::export_run(&*store, params.run_id)
        })
        .await?;
        Ok(json!({"run": export.manifest, "calls": export.calls, "results": export.results}))
    }

    async fn runs_transcript(&self, params: RunParams) -> Result<Value, Failure> {
        let store = self.engine().store().clone();
        let export = blocking(move || {
            store.settle()?;
            view::export_run(&*store, params.run_id)
        })
        .await?;
        Ok(json!({"runId": export.manifest.run_id, "messages": toolyard_engine::transcript(&export)}))
    }

    async fn runs_export(&self, params: RunParams) -> Result<Value, Failure> {
        let store = self.engine().store().clone();
        let export = blocking(move || {
            store.settle()?;
            view::export_run(&*store, params.run_id)
        })
        .await?;
        Ok(json!({"run": export.manifest, "calls": export.calls, "results": export.results, "events": export.events}))
    }

    async fn runs_verify(&self, params: VerifyParams) -> Result<Value, Failure> {
        self.engine().seal().await?;
        let store = self.engine().store().clone();
        let verifier = self.inner.verifier.clone();
        blocking(move || {
            store.settle()?;
            match params.run_id {
                Some(run_id) => to_value(ledger::verify_run(&*store, run_id, &verifier)?),
                None => to_value(ledger::verify_ledger(&*store, &verifier)?),
            }
        })
        .await
    }

    async fn runs_resume(
        &self,
        caller: Arc<Caller>,
        params: ResumeParams,
        events: Option<EventSink>,
    ) -> Result<Value, Failure> {
        if let Some(choice) = params.settle {
            self.engine().settle(params.run_id, choice, &caller.principal).await?;
        }
        let watching = events.map(|sink| self.watch(params.run_id, sink));
        let approved_by = params.approve.then(|| caller.principal.clone());
        let service = self.clone();
        let task = tokio::spawn(async move {
            service.engine().resume(params.run_id, approved_by, |lease| (service.inner.is_alive)(lease)).await
        });
        let report = task.await;
        end(watching).await;
        to_value(report.map_err(|_| Failure::new(ErrorCode::InternalError, "the run failed unexpectedly"))??)
    }

    fn runs_cancel(&self, params: RunParams) -> Result<Value, Failure> {
        if self.engine().cancel_run(params.run_id) {
            return Ok(json!({"runId": params.run_id, "cancelled": true}));
        }
        match self.engine().store().run(params.run_id)? {
            None => Err(Failure::new(ErrorCode::NotFound, format!("there is no run {}", params.run_id))),
            Some(row) if row.status.is_final() => {
                Err(Failure::new(ErrorCode::PreconditionFailed, format!("the run has ended: {}", row.status.as_str())))
            }
            Some(_) => Err(Failure::new(ErrorCode::PreconditionFailed, "the run is not under way in this process")
                .suggest("If its process is gone, end it with `toolyard runs resume RUN --abort`.")),
        }
    }
}

/// Events being forwarded, until dropped or ended.
struct Watching {
    _stop: tokio_util::sync::DropGuard,
    task: tokio::task::JoinHandle<()>,
}

/// Ends forwarding and waits until the last event has gone out: an answer comes after its events.
async fn end(watching: Option<Watching>) {
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
        match (self.approved, self.ask, caller.is_person) {
            (true, _, true) => Consent::Approved {
                by: caller.principal.clone(),
                plan_hash: self.plan_hash,
                policy_hash: self.policy_hash,
                preview_hash: self.preview_hash,
            },
            (true, _, false) | (false, true, _) => Consent::Ask,
            (false, false, _) => Consent::None,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PlanParams {
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
struct ForkParams {
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
struct UndoParams {
    run_id: RunId,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    partial: bool,
    #[serde(default)]
    consent: ConsentParams,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IdParams {
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RunParams {
    run_id: RunId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VerifyParams {
    #[serde(default)]
    run_id: Option<RunId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResumeParams {
    run_id: RunId,
    #[serde(default)]
    settle: Option<Settlement>,
    #[serde(default)]
    approve: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RunsList {
    status: Vec<RunStatus>,
    kind: Option<RunKind>,
    session: Option<String>,
    before: Option<RunId>,
    limit: Option<usize>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ToolsList {
    category: Option<String>,
    schemas: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ToolName {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ToolsCall {
    name: String,
    #[serde(default)]
    args: Map<String, Value>,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    idempotency_key: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

/// A row as doors show it.
fn row_json(row: &RunRow) -> Value {
    let mut value = json!({
        "runId": row.run_id, "kind": row.kind, "status": row.status, "title": row.title, "startedAt": row.started_at,
    });
    if let Some(ended) = row.ended_at {
        value["endedAt"] = ended.to_string().into();
        value["durationMs"] = (ended.as_millisecond() - row.started_at.as_millisecond()).into();
    }
    if let Some(session) = &row.session {
        value["session"] = session.as_str().into();
    }
    value
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T, Failure> {
    let params = if params.is_null() { Value::Object(Map::new()) } else { params };
    serde_json::from_value(params).map_err(|e| {
        Failure::new(ErrorCode::ValidationError, format!("the parameters cannot be read: {e}")).retryable(false)
    })
}

fn to_value<T: Serialize>(value: T) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|e| Failure::new(ErrorCode::InternalError, e.to_string()))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(Failure::new(ErrorCode::InternalError, "reading the store failed unexpectedly")))
}
