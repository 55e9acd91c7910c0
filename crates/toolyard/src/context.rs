//! Puts the context store together with the rest: its tools, its HTTP interface, its methods for every door.

use crate::{home::Home, wiring};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::{path::Path, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use toolyard_catalog::{RegistryError, ToolEntry, ToolSource};
use toolyard_context::{
    ContextConfig, ContextProvider, ContextStore, PLUGIN, SessionIds,
    error::{ApiError, Code},
    session_of,
    store::resources::NewResource,
    wire::{
        ImportShape, commands,
        http::{BODY_WITHIN, HttpDoor, MAX_BODY_BYTES, PREFIX, refusal},
        tools::{self, Answer, Thrown},
        turns,
    },
};
use toolyard_engine::{BoxFuture, CallRequest, Caller, Engine, Provider, authority::Power};
use toolyard_gateway::{
    Lane,
    admission::Rule,
    methods::MethodExtension,
    mount::{Endpoint, MountBody},
    registry,
};
use toolyard_protocol::{ErrorCode, Failure};

/// Where the interface is: at the gateway's own root, and below a path of its own with `/health`.
pub(crate) const PATHS: [&str; 3] = ["/api/v1", "/api/openviking", PREFIX];
/// How often watched sources are looked at.
const WATCH_EVERY: Duration = Duration::from_secs(30);
/// Where the gateway keeps its sessions.
const SESSIONS: &str = "sessions";

/// Opens the store and registers its tools. Without it everything else still works: the tools then say why not.
pub(crate) fn open(
    config: &ContextConfig,
    home: &Home,
    vault: &Path,
    engine: &Engine,
) -> Result<Option<Arc<ContextStore>>, Failure> {
    let import_roots = config.import_roots.iter().map(|folder| crate::config::expand(folder)).collect();
    let config = &ContextConfig { import_roots, ..config.clone() };
    let root = config.path.as_deref().map_or_else(|| home.context(), crate::config::expand);
    match ContextStore::open(root, config.clone()) {
        Ok(store) => {
            store.protect(&[vault.to_owned(), home.path().to_owned()]);
            store.keep_media(home.path().join("media"));
            let provider = ContextProvider::new(store.clone(), session_ids(engine));
            register(engine, config, Arc::new(provider))?;
            Ok(Some(store))
        }
        Err(error) => {
            tracing::warn!(error = %error.message, "the context store is not open");
            register(engine, config, Arc::new(wiring::Described))?;
            Ok(None)
        }
    }
}

/// The tools as entries of the plugin they stand for. They answer bad arguments in words of their own.
pub(crate) fn entries(config: &ContextConfig) -> Result<Vec<ToolEntry>, RegistryError> {
    let granted = !config.import_roots.is_empty();
    toolyard_context::definitions(config)?
        .into_iter()
        .map(|definition| {
            let host = tools::host_arguments(definition.name.as_str());
            let entry = ToolEntry::new(definition, ToolSource::plugin(PLUGIN))?;
            Ok(entry.with_own_checks(true).with_host_arguments(host, granted))
        })
        .collect()
}

/// Adds the tools.
pub(crate) fn register(engine: &Engine, config: &ContextConfig, provider: Arc<dyn Provider>) -> Result<(), Failure> {
    engine.register(entries(config).map_err(wiring::refused)?, provider).map_err(wiring::refused)
}

/// What is read of a session that the gateway keeps.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct KnownSession {
    session_id: String,
}

/// The gateway's own ids of its sessions.
fn session_ids(engine: &Engine) -> SessionIds {
    let store = engine.store().clone();
    Arc::new(move |key: &str| {
        let bytes = store.get(SESSIONS, key).ok().flatten()?;
        serde_json::from_slice::<KnownSession>(&bytes).ok().map(|session| session.session_id)
    })
}

/// Looks at watched sources now and then.
pub(crate) async fn watch(store: Arc<ContextStore>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(WATCH_EVERY) => {}
            () = stop.cancelled() => return,
        }
        let store = store.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || store.run_watches()).await {
            tracing::error!(%error, "looking at watched sources ended unexpectedly");
        }
    }
}

/// The HTTP interface as the gateway mounts it.
pub(crate) struct ContextEndpoint(HttpDoor);

impl ContextEndpoint {
    pub(crate) fn new(store: Arc<ContextStore>) -> Arc<Self> {
        Arc::new(Self(HttpDoor::new(store)))
    }
}

impl Endpoint for ContextEndpoint {
    fn rule(&self, path: &str) -> Rule {
        match path.strip_prefix(PREFIX) {
            Some("/health" | "/ready") => Rule::open(),
            _ => Rule::credential(MAX_BODY_BYTES, BODY_WITHIN).or_api_key(),
        }
    }

    fn lane(&self, _: &http::Request<Bytes>) -> Lane {
        Lane::Ordinary
    }

    fn refuse(&self, status: http::StatusCode) -> Option<http::Response<MountBody>> {
        (status == http::StatusCode::UNAUTHORIZED).then(|| {
            let error = ApiError::new(Code::Unauthenticated, "Missing or invalid API key");
            refusal(&error).map(MountBody::Whole)
        })
    }

    fn handle(&self, request: http::Request<Bytes>) -> BoxFuture<'_, http::Response<MountBody>> {
        Box::pin(async move { self.0.handle(request).await.map(MountBody::Whole) })
    }
}

/// The methods about the context store.
pub(crate) struct ContextMethods {
    store: Arc<ContextStore>,
    door: HttpDoor,
    ids: SessionIds,
    engine: Engine,
}

#[derive(serde::Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Params {
    /// `context.request`: an HTTP request to the interface.
    method: String,
    path: String,
    body: Value,
    /// `context.add`.
    source: String,
    to: Option<String>,
    parent: Option<String>,
    reason: Option<String>,
    watch: Option<f64>,
    /// `context.command` and the methods around turns.
    text: String,
    session: Option<String>,
    prompt: Option<String>,
    messages: Vec<turns::TurnMessage>,
    token_budget: Option<u64>,
}

impl ContextMethods {
    pub(crate) fn new(store: Arc<ContextStore>, engine: &Engine) -> Self {
        Self { door: HttpDoor::new(store.clone()), store, ids: session_ids(engine), engine: engine.clone() }
    }

    async fn answer(&self, caller: &Caller, method: &str, params: &Value) -> Result<Value, Failure> {
        let params = if params.is_null() { json!({}) } else { params.clone() };
        let params: Params = serde_json::from_value(params)
            .map_err(|e| Failure::new(ErrorCode::ValidationError, format!("the parameters cannot be read: {e}")))?;
        let caller = match &params.session {
            Some(key) if caller.is_person => &Caller { session: Some(key.clone()), ..caller.clone() },
            _ => caller,
        };
        let session = session_of(caller, &self.ids);
        match method {
            "openviking.feature.gates" => Ok(json!({
                "plugin": PLUGIN, "enabled": true, "tools": tools::enabled(self.store.config()).unwrap_or_default(),
                "commands": commands::COMMANDS.map(|(name, usage)| json!({"name": name, "usage": usage})),
                "traceRecall": self.store.config().trace_recall, "addResourceTool": self.store.config().enable_add_resource_tool,
            })),
            "context.command" => {
                let (store, text) = (self.store.clone(), params.text);
                let (engine, caller) = (self.engine.clone(), Arc::new(caller.clone()));
                let may_name_host_paths = registry::decide_power(&caller, method, Power::HostPaths).is_ok();
                let runtime = tokio::runtime::Handle::current();
                let answered = blocking(move || {
                    let call = |tool: &str, args: Map<String, Value>| {
                        // The tool is hidden unless it is enabled, and the command is a person's all the same: an
                        // import as by `context.add`. Whoever else gives the command takes the pipeline, which
                        // refuses a tool that is switched off.
                        let by_person = may_name_host_paths && !store.config().enable_add_resource_tool;
                        if tool == "add_resource" && by_person {
                            return tools::run(&store, &session, tool, &args).map_err(|thrown| thrown.message);
                        }
                        runtime.block_on(by_the_road(&engine, &caller, tool, args))
                    };
                    Ok(commands::run(&store, &session, &text, &call))
                })
                .await?;
                answered.map(answer).transpose()?.ok_or_else(|| {
                    let names: Vec<&str> = commands::COMMANDS.iter().map(|(name, _)| *name).collect();
                    Failure::new(ErrorCode::NotFound, "there is no such command")
                        .suggest(format!("Use one of {}.", names.join(", ")))
                })
            }
            "context.capture" => {
                let store = self.store.clone();
                blocking(move || {
                    turns::capture(&store, &session, &params.messages, params.token_budget)
                        .map_err(thrown)
                        .and_then(answer)
                })
                .await
            }
            "context.assemble" => {
                let store = self.store.clone();
                blocking(move || {
                    turns::assemble(&store, &session, params.prompt.as_deref(), params.token_budget)
                        .map_err(thrown)
                        .and_then(answer)
                })
                .await
            }
            "context.compact" => {
                let store = self.store.clone();
                blocking(move || turns::compact(&store, &session).map_err(thrown).and_then(answer)).await
            }
            _ if !caller.is_person => {
                Err(Failure::new(ErrorCode::PolicyDenied, "only a person looks into the context store this way"))
            }
            "context.add" => self.add(params).await,
            _ => self.request(params).await,
        }
    }

    /// Brings in what lies on this machine, for the person at it.
    async fn add(&self, params: Params) -> Result<Value, Failure> {
        let store = self.store.clone();
        blocking(move || {
            let who = store.identity(None);
            let new = NewResource {
                path: Some(params.source),
                to: params.to,
                parent: params.parent,
                reason: params.reason,
                watch_minutes: params.watch,
                describe: true,
                plain_file: true,
                host_paths: true,
                ..NewResource::default()
            };
            let added = store.account(&who).and_then(|account| store.import(&account, &who, &new));
            answer(ImportShape::new(added.map_err(|error| thrown(error.into()))?, &who))
        })
        .await
    }

    async fn request(&self, params: Params) -> Result<Value, Failure> {
        let body = if params.body.is_null() { Bytes::new() } else { Bytes::from(params.body.to_string()) };
        let request = http::Request::builder().method(params.method.as_str()).uri(params.path.as_str()).body(body);
        let request = request.map_err(|e| Failure::new(ErrorCode::ValidationError, format!("no request: {e}")))?;
        let response = self.door.handle(request).await;
        let answer: Value = serde_json::from_slice(response.body())
            .map_err(|e| Failure::new(ErrorCode::InternalError, format!("the answer is no JSON: {e}")))?;
        match answer.get("error").filter(|error| !error.is_null()) {
            None => Ok(answer),
            Some(error) => {
                let code = match error["code"].as_str().unwrap_or_default() {
                    "NOT_FOUND" => ErrorCode::NotFound,
                    "PERMISSION_DENIED" => ErrorCode::PolicyDenied,
                    "ALREADY_EXISTS" | "CONFLICT" => ErrorCode::Conflict,
                    "INVALID_ARGUMENT" | "INVALID_URI" => ErrorCode::ValidationError,
                    _ => ErrorCode::InternalError,
                };
                Err(Failure::new(code, error["message"].as_str().unwrap_or("it failed")))
            }
        }
    }
}

/// Calls a tool for a command as any door does.
async fn by_the_road(
    engine: &Engine,
    caller: &Arc<Caller>,
    tool: &str,
    args: Map<String, Value>,
) -> Result<Answer, String> {
    let request = CallRequest { tool: tool.to_owned(), args, ..CallRequest::default() };
    let parts = engine.call(caller.clone(), request).await.result.into_parts();
    if let Some(error) = parts.error {
        return Err(error.message);
    }
    let mut data = parts.data.unwrap_or_default();
    let text = data.get("content").and_then(|content| content[0]["text"].as_str()).unwrap_or_default().to_owned();
    Ok(Answer { text, details: data.remove("details").unwrap_or_default() })
}

/// A method's answer as JSON. One that cannot be written is a defect.
fn answer(answer: impl serde::Serialize) -> Result<Value, Failure> {
    serde_json::to_value(answer)
        .map_err(|error| Failure::new(ErrorCode::InternalError, format!("the answer cannot be written: {error}")))
}

fn thrown(thrown: Thrown) -> Failure {
    Failure::new(thrown.code, thrown.message)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(Failure::new(ErrorCode::InternalError, "the context store failed unexpectedly")))
}

impl MethodExtension for ContextMethods {
    fn call<'a>(
        &'a self,
        caller: &'a Caller,
        method: &'a str,
        params: &'a Value,
    ) -> BoxFuture<'a, Option<Result<Value, Failure>>> {
        Box::pin(async move {
            let known = method == "openviking.feature.gates"
                || ["request", "add", "command", "capture", "assemble", "compact"]
                    .iter()
                    .any(|verb| method.strip_prefix("context.") == Some(*verb));
            if known { Some(self.answer(caller, method, params).await) } else { None }
        })
    }
}
