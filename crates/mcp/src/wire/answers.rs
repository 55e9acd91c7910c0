//! Our responses, notifications and requests to clients.

use super::{Empty, Implementation, Item, Payload, requests::ListenFilter, upstream};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use toolyard_protocol::{Failure, RunId};

/// In `_meta` of a result: the name and version of this server.
const META_SERVER: &str = "io.modelcontextprotocol/serverInfo";
/// In `_meta` of a result: the failure with its code and suggestion.
const META_ERROR: &str = "dev.toolyard/error";
/// In `_meta` of a result: the run to look it up by.
const META_RUN: &str = "dev.toolyard/runId";

/// A result with what its revision adds to every result.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer<T> {
    #[serde(flatten)]
    pub(crate) result: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result_type: Option<ResultType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache_scope: Option<CacheScope>,
    #[serde(rename = "_meta", skip_serializing_if = "ResultMeta::is_empty")]
    pub(crate) meta: ResultMeta,
}

/// Whether a request has ended (2026-07-28).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResultType {
    Complete,
    InputRequired,
}

/// Who may keep a result (2026-07-28).
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CacheScope {
    Private,
}

/// `_meta` of a result. Our own members replace those that another server sent under the same key.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ResultMeta {
    #[serde(flatten)]
    forwarded: Payload,
    #[serde(rename = "dev.toolyard/runId", skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    #[serde(rename = "dev.toolyard/error", skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
    #[serde(rename = "io.modelcontextprotocol/serverInfo", skip_serializing_if = "Option::is_none")]
    server: Option<Implementation>,
    #[serde(rename = "io.modelcontextprotocol/subscriptionId", skip_serializing_if = "Option::is_none")]
    subscription: Option<Value>,
}

impl ResultMeta {
    /// The metadata of another server.
    pub(crate) fn forwarding(forwarded: Payload) -> Self {
        Self { forwarded, ..Self::default() }
    }

    /// For everything that belongs to a subscription.
    pub(crate) fn of_subscription(id: Value) -> Self {
        Self { subscription: Some(id), ..Self::default() }
    }

    pub(crate) fn with_run(mut self, run_id: RunId) -> Self {
        self.forwarded.remove(META_RUN);
        Self { run_id: Some(run_id), ..self }
    }

    pub(crate) fn with_error(mut self, error: Failure) -> Self {
        self.forwarded.remove(META_ERROR);
        Self { error: Some(error), ..self }
    }

    pub(crate) fn with_server(mut self, server: Implementation) -> Self {
        self.forwarded.remove(META_SERVER);
        Self { server: Some(server), ..self }
    }

    /// Whether there is nothing to say.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The result of `initialize`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Initialized<'a> {
    pub(crate) protocol_version: &'static str,
    pub(crate) capabilities: ServerCapabilities,
    pub(crate) server_info: &'a Implementation,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instructions: Option<String>,
}

/// The result of `server/discover` (2026-07-28).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Discovered {
    pub(crate) supported_versions: Vec<&'static str>,
    pub(crate) capabilities: ServerCapabilities,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instructions: Option<String>,
}

/// What we can do.
#[derive(Debug, Serialize)]
pub(crate) struct ServerCapabilities {
    tools: ListCapability,
    resources: ResourcesCapability,
    prompts: ListCapability,
    completions: Empty,
    /// Revisions without a handshake name the level in `_meta` instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    logging: Option<Empty>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ListCapability {
    list_changed: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourcesCapability {
    subscribe: bool,
    list_changed: bool,
}

impl ServerCapabilities {
    pub(crate) fn new(handshake: bool) -> Self {
        Self {
            tools: ListCapability { list_changed: true },
            resources: ResourcesCapability { subscribe: true, list_changed: true },
            prompts: ListCapability { list_changed: true },
            completions: Empty {},
            logging: handshake.then_some(Empty {}),
        }
    }
}

/// The part after the tools in the result of `tools/list`; the tools are serialised separately.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AfterTools {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// A tool on a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListedTool<'a> {
    pub(crate) name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<&'a str>,
    pub(crate) description: &'a str,
    pub(crate) input_schema: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_schema: Option<Value>,
    pub(crate) annotations: Item<ToolAnnotations, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) icons: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) execution: Option<Value>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub(crate) meta: Option<Value>,
}

/// The annotations of our own tools.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnnotations {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read_only_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destructive_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idempotent_hint: Option<bool>,
    pub(crate) open_world_hint: bool,
}

/// The content of a result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Content {
    /// One text made by Toolyard.
    Text([TextContent; 1]),
    /// The content of a tool, a plugin or another server, passed on unchanged.
    Forwarded(Value),
}

impl Content {
    /// A content with one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text([TextContent { text: text.into() }])
    }
}

/// A text content.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename = "text")]
pub struct TextContent {
    /// The text itself.
    pub text: String,
}

/// The result of `tools/call`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallToolResult {
    /// What a model reads.
    pub content: Content,
    /// The output as JSON, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// Whether the tool failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    /// Metadata of the result.
    #[serde(rename = "_meta", skip_serializing_if = "ResultMeta::is_empty")]
    pub meta: ResultMeta,
}

impl CallToolResult {
    /// A result with content for a model.
    pub(crate) fn of(content: Content) -> Self {
        Self { content, structured_content: None, is_error: None, meta: ResultMeta::default() }
    }

    /// A failed result.
    pub(crate) fn failed(content: Content) -> Self {
        Self { is_error: Some(true), ..Self::of(content) }
    }
}

/// The result of a successful call, prompt or resource.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Outcome {
    Tool(Box<CallToolResult>),
    Prompt(Item<PromptResult>),
    Resource(ReadResourceResult),
}

impl Outcome {
    /// Takes `_meta` out, so that it can be completed and serialised separately.
    pub(crate) fn take_meta(&mut self) -> ResultMeta {
        match self {
            Self::Tool(result) => std::mem::take(&mut result.meta),
            Self::Prompt(Item::Forwarded(result)) => match result.remove("_meta") {
                Some(Value::Object(meta)) => ResultMeta::forwarding(meta),
                _ => ResultMeta::default(),
            },
            Self::Prompt(Item::Own(_)) | Self::Resource(_) => ResultMeta::default(),
        }
    }
}

/// Questions that the request's repetition must answer (2026-07-28).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InputRequired {
    pub(crate) input_requests: BTreeMap<String, InputRequest>,
    pub(crate) request_state: String,
}

/// One question.
#[derive(Debug, Serialize)]
pub(crate) struct InputRequest {
    pub(crate) method: String,
    pub(crate) params: Value,
}

/// The result of `resources/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceList {
    pub(crate) resources: Vec<Item<Resource, upstream::ForwardedResource>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// A resource on a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// The URI.
    pub uri: String,
    /// A name for programs.
    pub name: String,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// The result of `resources/templates/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TemplateList {
    pub(crate) resource_templates: Vec<Item<Template, upstream::ForwardedTemplate>>,
}

/// A URI template on a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// The URI template.
    pub uri_template: String,
    /// A name for programs.
    pub name: String,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The result of `resources/read`.
#[derive(Debug, Serialize)]
pub(crate) struct ReadResourceResult {
    pub(crate) contents: Vec<Item<ResourceContents>>,
}

/// The contents of a resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceContents {
    /// The URI.
    pub uri: String,
    /// The media type.
    pub mime_type: String,
    /// The content.
    #[serde(flatten)]
    pub body: ResourceBody,
    /// Metadata of the result.
    #[serde(rename = "_meta")]
    pub meta: ContentsMeta,
}

/// The bytes of a resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ResourceBody {
    /// The content as text.
    Text(String),
    /// The content in base64.
    Blob(String),
}

/// Further metadata of a resource's contents.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ContentsMeta {
    /// The version that was read.
    #[serde(rename = "dev.toolyard/etag", skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Whether the rest was left out.
    #[serde(rename = "dev.toolyard/truncated", skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
}

/// The result of `prompts/list`.
#[derive(Debug, Serialize)]
pub(crate) struct PromptList {
    pub(crate) prompts: Vec<Item<Prompt, upstream::ForwardedPrompt>>,
}

/// A prompt on a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prompt {
    /// A name for programs.
    pub name: String,
    /// A name for people.
    pub title: String,
    /// The description.
    pub description: String,
    /// The arguments of the prompt.
    pub arguments: Vec<PromptArgument>,
}

/// What a prompt takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PromptArgument {
    /// The name.
    pub name: &'static str,
    /// The description.
    pub description: &'static str,
    /// Whether it must be given.
    pub required: bool,
}

/// The result of `prompts/get`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PromptResult {
    /// The description.
    pub description: String,
    /// The messages.
    pub messages: Vec<PromptMessage>,
}

/// A message of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PromptMessage {
    /// `user` or `assistant`.
    pub role: &'static str,
    /// The content.
    pub content: TextContent,
}

/// The result of `completion/complete`.
#[derive(Debug, Serialize)]
pub(crate) struct Completed {
    pub(crate) completion: Item<Completion, Value>,
}

/// Suggestions for an argument.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// The best suggestions.
    pub values: Vec<String>,
    /// Number of suggestions in total.
    pub total: usize,
    /// Whether there are more suggestions than listed.
    pub has_more: bool,
}

/// The parameters of `notifications/subscriptions/acknowledged` (2026-07-28).
#[derive(Debug, Serialize)]
pub(crate) struct Acknowledged<'a> {
    #[serde(rename = "_meta")]
    pub(crate) meta: &'a ResultMeta,
    pub(crate) notifications: &'a ListenFilter,
}

/// The parameters of a notification that something changed.
#[derive(Debug, Serialize)]
pub(crate) struct ChangeNotification<'a> {
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub(crate) meta: Option<&'a ResultMeta>,
    /// The URI, if it is a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uri: Option<&'a str>,
}

/// The parameters of `notifications/progress`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Progress<'a> {
    pub(crate) progress_token: &'a Value,
    pub(crate) progress: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<Value>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) message: &'a str,
}

/// The parameters of an `elicitation/create` that shows a form.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ElicitationForm {
    pub(crate) mode: &'static str,
    pub(crate) message: String,
    /// A JSON Schema.
    pub(crate) requested_schema: Value,
}

/// The details of an error with a suggestion.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SuggestionDetails<'a> {
    pub(crate) suggestion: &'a str,
}

/// Facts of an error about a resource that is not there.
#[derive(Debug, Serialize)]
pub(crate) struct MissingResource<'a> {
    pub(crate) uri: &'a str,
}

/// Facts of an error about a revision that is not spoken here.
#[derive(Debug, Serialize)]
pub(crate) struct Unsupported<'a> {
    pub(crate) supported: Vec<&'static str>,
    pub(crate) requested: &'a str,
}
