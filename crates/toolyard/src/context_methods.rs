//! The methods about the context store. Their answers have the format of OpenViking, whose interface the store
//! implements, with the types of `toolyard_context::wire`; `context.request` passes on what the store's HTTP interface
//! answers, which has no one type.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use toolyard_context::{
    ContextStore, PLUGIN, SessionIds, session_of,
    store::resources::NewResource,
    wire::{
        ImportShape, commands,
        http::HttpDoor,
        tools::{self, Answer, ToolFailure},
        turns,
    },
};
use toolyard_engine::{
    CallRequest, Caller, Engine,
    authority::{self, Power},
};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{AnyJson, Call, Handle, MethodError, Methods, NoParams, Object, Terms, methods};

methods! {
    /// Reports which tools and commands of the context store are enabled.
    FeatureGates = "openviking.feature.gates", Terms::read().everywhere(), NoParams => Gates;
    /// Runs a slash command of the context store.
    ContextCommand = "context.command", Terms::run().everywhere().may_use(&[Power::HostPaths]), CommandParams => commands::Reply;
    /// Captures the messages of a turn.
    ContextCapture = "context.capture", Terms::write().everywhere(), CaptureParams => turns::Captured;
    /// Assembles the context for a model's turn.
    ContextAssemble = "context.assemble", Terms::write().everywhere(), AssembleParams => turns::Assembled;
    /// Archives the captured messages of a session.
    ContextCompact = "context.compact", Terms::write().everywhere(), CompactParams => turns::Compacted;
    /// Imports a path of this machine.
    ContextAdd = "context.add", Terms::administer().uses(&[Power::HostPaths]), AddParams => ImportShape;
    /// Sends a request to the context store's HTTP interface.
    ContextRequest = "context.request", Terms::administer(), RequestParams => AnyJson;
}

/// Declares the methods; without a context store they cannot be called.
pub(crate) fn declare(methods: &mut Methods, store: Option<&ContextMethods>) {
    methods.add::<FeatureGates, _>(store);
    methods.add::<ContextCommand, _>(store);
    methods.add::<ContextCapture, _>(store);
    methods.add::<ContextAssemble, _>(store);
    methods.add::<ContextCompact, _>(store);
    methods.add::<ContextAdd, _>(store);
    methods.add::<ContextRequest, _>(store);
}

/// Answers the methods about the context store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ContextMethods(Arc<Inner>);

struct Inner {
    store: Arc<ContextStore>,
    door: HttpDoor,
    ids: SessionIds,
    engine: Engine,
}

impl ContextMethods {
    pub(crate) fn new(store: Arc<ContextStore>, engine: &Engine) -> Self {
        let (door, ids) = (HttpDoor::new(store.clone()), crate::context::session_ids(engine));
        Self(Arc::new(Inner { door, ids, store, engine: engine.clone() }))
    }

    /// The caller in the session it named; only a person may name another session than its own, and none of another workspace.
    fn caller(&self, call: &Call<'_>, session: Option<String>) -> Arc<Caller> {
        let workspace = &call.caller.workspace;
        match session.map(|key| workspace.key(&key).into_owned()) {
            Some(key) if call.caller.is_person && workspace.owns(&key) => {
                Arc::new(Caller { session: Some(key), ..Caller::clone(&call.caller) })
            }
            _ => call.caller.clone(),
        }
    }
}

/// The enabled parts of the context store.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gates {
    plugin: &'static str,
    enabled: bool,
    tools: Vec<String>,
    commands: Vec<CommandUsage>,
    trace_recall: bool,
    add_resource_tool: bool,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct CommandUsage {
    name: &'static str,
    usage: &'static str,
}

impl Handle<FeatureGates> for ContextMethods {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<Gates, MethodError> {
        let config = self.0.store.config();
        let tools = tools::enabled(config).unwrap_or_default();
        Ok(Gates {
            plugin: PLUGIN,
            enabled: true,
            tools: tools.into_iter().map(Into::into).collect(),
            commands: commands::COMMANDS.iter().map(|(name, usage)| CommandUsage { name, usage }).collect(),
            trace_recall: config.trace_recall,
            add_resource_tool: config.enable_add_resource_tool,
        })
    }
}

/// A slash command.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandParams {
    /// The command with its arguments.
    pub(crate) text: String,
    /// The session, if a person names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
}

impl Handle<ContextCommand> for ContextMethods {
    async fn handle(&self, call: &Call<'_>, params: CommandParams) -> Result<commands::Reply, MethodError> {
        let caller = self.caller(call, params.session);
        let session = session_of(&caller, &self.0.ids);
        let (store, engine, text) = (self.0.store.clone(), self.0.engine.clone(), params.text);
        let may_name_host_paths = authority::decide_power(&caller, &call.demand, Power::HostPaths).is_ok();
        let runtime = tokio::runtime::Handle::current();
        let answered = blocking(move || {
            let call = |tool: &str, args: Object| {
                // A person may use the command even if the tool is disabled; the import is then the same as by
                // `context.add`. For all other callers the command goes through the pipeline, which refuses a disabled
                // tool.
                let by_person = may_name_host_paths && !store.config().enable_add_resource_tool;
                if tool == "add_resource" && by_person {
                    return tools::run(&store, &session, tool, &args).map_err(|thrown| thrown.message);
                }
                runtime.block_on(by_the_road(&engine, &caller, tool, args))
            };
            Ok(commands::run(&store, &session, &text, &call))
        })
        .await?;
        Ok(answered.ok_or_else(|| {
            let names: Vec<&str> = commands::COMMANDS.iter().map(|(name, _)| *name).collect();
            Failure::new(ErrorCode::NotFound, "there is no such command")
                .suggest(format!("Use one of {}.", names.join(", ")))
        })?)
    }
}

/// The messages of a turn.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CaptureParams {
    #[serde(default)]
    #[schemars(with = "Vec<AnyJson>")]
    messages: Vec<turns::TurnMessage>,
    token_budget: Option<u64>,
    session: Option<String>,
}

impl Handle<ContextCapture> for ContextMethods {
    async fn handle(&self, call: &Call<'_>, params: CaptureParams) -> Result<turns::Captured, MethodError> {
        let session = session_of(&self.caller(call, params.session), &self.0.ids);
        let store = self.0.store.clone();
        let capture = move || {
            let budget = params.token_budget;
            store.request_in(&session, || turns::capture(&store, &session, &params.messages, budget)).map_err(thrown)
        };
        Ok(blocking(capture).await?)
    }
}

/// A turn that is about to begin.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AssembleParams {
    prompt: Option<String>,
    token_budget: Option<u64>,
    session: Option<String>,
}

impl Handle<ContextAssemble> for ContextMethods {
    async fn handle(&self, call: &Call<'_>, params: AssembleParams) -> Result<turns::Assembled, MethodError> {
        let session = session_of(&self.caller(call, params.session), &self.0.ids);
        let store = self.0.store.clone();
        let assemble = move || {
            let (prompt, budget) = (params.prompt.as_deref(), params.token_budget);
            store.request_in(&session, || turns::assemble(&store, &session, prompt, budget)).map_err(thrown)
        };
        Ok(blocking(assemble).await?)
    }
}

/// The session, if a person names one.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompactParams {
    session: Option<String>,
}

impl Handle<ContextCompact> for ContextMethods {
    async fn handle(&self, call: &Call<'_>, params: CompactParams) -> Result<turns::Compacted, MethodError> {
        let session = session_of(&self.caller(call, params.session), &self.0.ids);
        let store = self.0.store.clone();
        Ok(blocking(move || store.request_in(&session, || turns::compact(&store, &session)).map_err(thrown)).await?)
    }
}

/// The source and the target of an import.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddParams {
    /// A file, a folder or an address.
    pub(crate) source: String,
    /// The target URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
    /// The folder for the import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    /// The reason for the import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The interval between two checks for changes, in minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) watch: Option<f64>,
}

impl Handle<ContextAdd> for ContextMethods {
    async fn handle(&self, _: &Call<'_>, params: AddParams) -> Result<ImportShape, MethodError> {
        let store = self.0.store.clone();
        let add = move || {
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
            let added = store.own_request(|| store.import(&*store.account(&who)?, &who, &new));
            Ok(ImportShape::new(added.map_err(|error| thrown(error.into()))?, &who))
        };
        Ok(blocking(add).await?)
    }
}

/// A request to the store's own HTTP interface.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestParams {
    pub(crate) method: String,
    pub(crate) path: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(crate) body: AnyJson,
}

/// The part of an answer that says what went wrong.
#[derive(Deserialize)]
struct ErrorAnswer {
    error: Option<AnswerError>,
}

#[derive(Deserialize)]
struct AnswerError {
    #[serde(default)]
    code: String,
    message: Option<String>,
}

impl Handle<ContextRequest> for ContextMethods {
    async fn handle(&self, _: &Call<'_>, params: RequestParams) -> Result<AnyJson, MethodError> {
        let body = if params.body.is_null() { Bytes::new() } else { Bytes::from(params.body.to_string()) };
        let request = http::Request::builder().method(params.method.as_str()).uri(params.path.as_str()).body(body);
        let request = request.map_err(|e| Failure::new(ErrorCode::ValidationError, format!("no request: {e}")))?;
        let response = self.0.door.handle(None, request).await;
        let answer: AnyJson = serde_json::from_slice(response.body())
            .map_err(|e| Failure::new(ErrorCode::InternalError, format!("the answer is no JSON: {e}")))?;
        let Some(error) = ErrorAnswer::deserialize(&answer).ok().and_then(|answered| answered.error) else {
            return Ok(answer);
        };
        let code = match error.code.as_str() {
            "NOT_FOUND" => ErrorCode::NotFound,
            "PERMISSION_DENIED" => ErrorCode::PolicyDenied,
            "ALREADY_EXISTS" | "CONFLICT" => ErrorCode::Conflict,
            "INVALID_ARGUMENT" | "INVALID_URI" => ErrorCode::ValidationError,
            _ => ErrorCode::InternalError,
        };
        Err(Failure::new(code, error.message.unwrap_or_else(|| "it failed".to_owned())).into())
    }
}

/// What a tool of the context store answers.
#[derive(Deserialize)]
struct ToolData {
    #[serde(default)]
    content: Vec<ToolText>,
    #[serde(default)]
    details: AnyJson,
}

#[derive(Deserialize)]
struct ToolText {
    #[serde(default)]
    text: String,
}

/// Calls a tool for a slash command through the pipeline.
async fn by_the_road(engine: &Engine, caller: &Arc<Caller>, tool: &str, args: Object) -> Result<Answer, String> {
    let request = CallRequest { tool: tool.to_owned(), args, ..CallRequest::default() };
    let parts = engine.call(caller.clone(), request).await.result.into_parts();
    if let Some(error) = parts.error {
        return Err(error.message);
    }
    let data = Value::Object(parts.data.unwrap_or_default());
    let data: ToolData =
        serde_json::from_value(data).map_err(|e| format!("the answer of {tool} cannot be read: {e}"))?;
    let text = data.content.into_iter().next().map(|content| content.text).unwrap_or_default();
    Ok(Answer { text, details: data.details })
}

fn thrown(thrown: ToolFailure) -> Failure {
    Failure::new(thrown.code, thrown.message)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(Failure::new(ErrorCode::InternalError, "the context store failed unexpectedly")))
}
