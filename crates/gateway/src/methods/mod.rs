//! The methods every door shares, by name, with JSON in and JSON out.
//!
//! The command line calls them in process or over the local socket, other doors over theirs: there is one way to run a
//! plan, however it was asked for.

mod plans;
mod runs;

use crate::{devices::Devices, registry};
use plans::end;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use std::{
    sync::{Arc, OnceLock, PoisonError, RwLock},
    time::Instant,
};
use toolyard_catalog::{Decision, ToolEntry};
use toolyard_engine::{
    BoxFuture, CallAnswer, CallRequest, Caller, Engine, ModelView, authority, chain::Verifier, store::Lease,
};
use toolyard_protocol::{ErrorCode, ExecutionEvent, Failure, Schema};

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
    extensions: RwLock<Vec<Arc<dyn MethodExtension>>>,
    models: OnceLock<Arc<dyn ModelView>>,
}

/// Methods that somebody else brings.
pub trait MethodExtension: Send + Sync + 'static {
    /// Answers a method; `None` when it is not one of its own.
    fn call<'a>(
        &'a self,
        caller: &'a Caller,
        method: &'a str,
        params: &'a Value,
    ) -> BoxFuture<'a, Option<Result<Value, Failure>>>;
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
                extensions: RwLock::default(),
                models: OnceLock::new(),
            }),
        }
    }

    /// Adds methods.
    pub fn extend(&self, extension: Arc<dyn MethodExtension>) {
        self.inner.extensions.write().unwrap_or_else(PoisonError::into_inner).push(extension);
    }

    /// Answers a method of an extension.
    async fn extended(&self, caller: &Caller, method: &str, params: &Value) -> Result<Value, Failure> {
        let extensions = self.inner.extensions.read().unwrap_or_else(PoisonError::into_inner).clone();
        for extension in extensions {
            if let Some(answer) = extension.call(caller, method, params).await {
                return answer;
            }
        }
        Err(no_method(method))
    }

    /// Plugins and how they are, where there are any.
    pub(crate) async fn plugins(&self) -> Vec<Value> {
        let caller = Caller::cli("internal");
        let listed = self.extended(&caller, "plugins.list", &json!({})).await;
        let mut listed = listed.unwrap_or_default();
        match listed.get_mut("plugins").map(Value::take) {
            Some(Value::Array(plugins)) => plugins,
            _ => Vec::new(),
        }
    }

    /// Why a tool that a plugin has is not available, where that is so: its manifest does not list it, for example.
    pub(crate) async fn why_left_out(&self, tool: &str) -> Option<String> {
        self.plugins().await.iter().find_map(|plugin| {
            let left_out = plugin["leftOut"].as_array()?.iter().find(|left_out| left_out["tool"] == tool)?;
            Some(format!("The plugin {} is without it: {}", plugin["id"].as_str()?, left_out["reason"].as_str()?))
        })
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
        // What is not declared in the registry cannot be called, whoever implements it.
        let Some(known) = registry::find(method).filter(|known| known.is_local()) else {
            return Err(no_method(method));
        };
        authority::decide(&caller, &known.demand)?;
        match method {
            "status" => self.status(params["full"] == true).await,
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
            "devices.reject" => self.devices_reject(&caller, read(params)?).await,
            "devices.revoke" => self.devices_revoke(&caller, read(params)?).await,
            _ => self.extended(&caller, method, &params).await,
        }
    }

    /// What this process is. In full, with what takes a look at the store.
    async fn status(&self, full: bool) -> Result<Value, Failure> {
        let mut status = self.inner.info.clone();
        status.insert("uptimeMs".to_owned(), self.uptime_ms().into());
        status.insert("tools".to_owned(), self.engine().tools().snapshot.len().into());
        status.insert("registryVersion".to_owned(), self.engine().tools().snapshot.version().into());
        status.insert("activeRuns".to_owned(), self.engine().active_runs().len().into());
        status.insert("publicKey".to_owned(), self.inner.verifier.to_text().into());
        if full {
            let store = self.engine().store().clone();
            let looked = tokio::task::spawn_blocking(move || crate::rpc::sessions::in_use(&store)).await;
            let key = looked.map_err(|e| Failure::new(ErrorCode::InternalError, e.to_string()))??;
            status.insert("sessionKey".to_owned(), key.into());
            status.insert("openQuestions".to_owned(), self.engine().approvals().pending().len().into());
        }
        Ok(Value::Object(status))
    }

    async fn devices_approve(&self, caller: &Caller, params: IdParams) -> Result<Value, Failure> {
        let request = self.inner.devices.request_named(&params.id)?;
        let device = self.inner.devices.approve(&request, caller).await?;
        Ok(json!({"deviceId": device.device_id, "role": device.role, "scopes": device.scopes}))
    }

    async fn devices_reject(&self, caller: &Caller, params: IdParams) -> Result<Value, Failure> {
        let request = self.inner.devices.request_named(&params.id)?;
        self.inner.devices.reject(&request, caller).await?;
        Ok(json!({"deviceId": request.device.device_id, "rejected": true}))
    }

    async fn devices_revoke(&self, caller: &Caller, params: IdParams) -> Result<Value, Failure> {
        let named = self.inner.devices.device_named(&params.id)?;
        let device = self.inner.devices.revoke(&named.device_id, caller, None).await?;
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
                    row["inputSchema"] = d.input_schema.value();
                    row["outputSchema"] = d.output_schema.as_ref().map_or(Value::Null, Schema::value);
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
            let near = match tools.snapshot.resolve_visible(name, |e| !policy.decide(e, None).is_denied()) {
                toolyard_catalog::Resolution::Unknown(suggestions) => suggestions.names(),
                _ => Vec::new(),
            };
            let failure = Failure::new(
                ErrorCode::NotFound,
                format!("there is no tool {:?}", name.chars().take(80).collect::<String>()),
            );
            let question = toolyard_catalog::did_you_mean(&near);
            failure.suggest(question.unwrap_or_else(|| "List the tools with `toolyard tools list`.".to_owned()))
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
            tool: params.name.clone(),
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
        let is_missing = answer.result.error.as_ref().is_some_and(|e| e.code == ErrorCode::NotFound)
            && self.engine().tools().snapshot.get(&params.name).is_none();
        let mut answer = json!({"result": answer.result, "deduplicated": answer.deduplicated});
        if is_missing && let Some(why) = self.why_left_out(&params.name).await {
            answer["result"]["error"]["suggestion"] = why.into();
        }
        Ok(answer)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IdParams {
    id: String,
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

fn no_method(method: &str) -> Failure {
    let shown: String = method.chars().take(80).collect();
    Failure::new(ErrorCode::NotFound, format!("there is no method {shown:?}"))
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
