//! Our requests to upstream servers, and the parts of their responses that we read. The rest of a response is passed on
//! unchanged.

use super::{Arguments, Empty, Implementation, Payload, answers::Content, requests::Complete};
use crate::client::HookInterest;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The parameters of `initialize`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Initialize<'a> {
    pub(crate) protocol_version: &'static str,
    pub(crate) capabilities: OfferedCapabilities,
    pub(crate) client_info: &'a Implementation,
}

/// The capabilities that we declare: those of the call's client.
#[derive(Debug, Default, Serialize)]
pub(crate) struct OfferedCapabilities {
    elicitation: ElicitationOffer,
    sampling: Empty,
    roots: Empty,
}

#[derive(Debug, Default, Serialize)]
struct ElicitationOffer {
    form: Empty,
    url: Empty,
}

/// A server's answer to `initialize`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Initialized {
    pub(crate) protocol_version: String,
    pub(crate) capabilities: Option<Payload>,
    pub(crate) server_info: Option<Value>,
}

/// A server's answer to `server/discover` (2026-07-28).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Discovered {
    #[serde(default)]
    pub(crate) supported_versions: Vec<String>,
    pub(crate) capabilities: Option<Payload>,
    pub(crate) server_info: Option<Value>,
    #[serde(rename = "_meta")]
    pub(crate) meta: Option<DiscoveredMeta>,
}

/// `_meta` of it.
#[derive(Debug, Deserialize)]
pub(crate) struct DiscoveredMeta {
    #[serde(rename = "io.modelcontextprotocol/serverInfo")]
    pub(crate) server: Option<Value>,
}

/// The revisions that a server supports, in its refusal of ours.
#[derive(Debug, Deserialize)]
pub(crate) struct RevisionsSpoken {
    #[serde(default)]
    pub(crate) supported: Vec<String>,
}

/// `_meta` of a request to a server.
#[derive(Debug, Default, Serialize)]
pub(crate) struct RequestMeta<'a> {
    #[serde(rename = "progressToken", skip_serializing_if = "Option::is_none")]
    pub(crate) progress_token: Option<u64>,
    #[serde(flatten)]
    pub(crate) modern: Option<ModernMeta<'a>>,
}

impl RequestMeta<'_> {
    fn is_empty(&self) -> bool {
        self.progress_token.is_none() && self.modern.is_none()
    }
}

/// The metadata of every request of a revision without a handshake.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct ModernMeta<'a> {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    pub(crate) version: &'static str,
    #[serde(rename = "io.modelcontextprotocol/clientInfo")]
    pub(crate) client: &'a Implementation,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    pub(crate) capabilities: &'a Payload,
}

/// The parameters of a request with what goes along with any.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestParams<'a, P> {
    #[serde(flatten)]
    pub(crate) params: &'a P,
    /// Answers to what the server asked in the round before (2026-07-28).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input_responses: Option<BTreeMap<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_state: Option<Value>,
    #[serde(rename = "_meta", skip_serializing_if = "RequestMeta::is_empty")]
    pub(crate) meta: RequestMeta<'a>,
}

/// A request that may raise questions.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Question<'a> {
    Tool { name: &'a str, arguments: &'a Arguments },
    Prompt { name: &'a str, arguments: &'a Arguments },
    Resource { uri: &'a str },
    Completion(&'a Complete),
}

impl Question<'_> {
    pub(crate) fn method(&self) -> &'static str {
        match self {
            Self::Tool { .. } => "tools/call",
            Self::Prompt { .. } => "prompts/get",
            Self::Resource { .. } => "resources/read",
            Self::Completion(_) => "completion/complete",
        }
    }

    /// The subject of the request, for the header `Mcp-Name`.
    pub(crate) fn subject(&self) -> Option<&str> {
        match self {
            Self::Tool { name, .. } | Self::Prompt { name, .. } => Some(name),
            Self::Resource { uri } => Some(uri),
            Self::Completion(_) => None,
        }
    }
}

/// A call in the format of the plugins' line protocol.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LineCall<'a> {
    pub(crate) tool: &'a str,
    pub(crate) args: &'a Arguments,
    pub(crate) progress_token: Option<u64>,
}

/// What a plugin that speaks the line protocol answers to `start`.
#[derive(Debug, Deserialize)]
pub(crate) struct LineStarted {
    #[serde(default)]
    pub(crate) plugin: Value,
    pub(crate) tools: Option<Vec<Value>>,
    pub(crate) hooks: Option<Vec<HookInterest>>,
    #[serde(default)]
    pub(crate) health: Value,
}

/// The result of a plugin's call, if its answer is not already in MCP's form.
#[derive(Debug, Serialize)]
pub(crate) struct LineResult {
    pub(crate) content: Content,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Value>,
}

/// Whether a result is complete (2026-07-28).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResultKind<'a> {
    #[serde(borrow)]
    pub(crate) result_type: Option<&'a str>,
}

impl ResultKind<'_> {
    /// Whether the server wants answers before it gives a result.
    pub(crate) fn wants_input(result: &Value) -> bool {
        ResultKind::deserialize(result).is_ok_and(|kind| kind.result_type == Some("input_required"))
    }
}

/// What a server wants to know before it answers (2026-07-28).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InputRequired {
    pub(crate) request_state: Option<Value>,
    pub(crate) input_requests: Option<BTreeMap<String, InputRequest>>,
}

/// One of the things it wants to know.
#[derive(Debug, Deserialize)]
pub(crate) struct InputRequest {
    pub(crate) method: String,
    #[serde(default)]
    pub(crate) params: Value,
}

/// The parameters of a list's page.
#[derive(Debug, Serialize)]
pub(crate) struct Listing {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<String>,
}

/// One of a server's lists.
#[derive(Debug, Clone, Copy)]
pub(crate) enum List {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl List {
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }
}

/// A page of any of them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListPage {
    tools: Vec<Value>,
    prompts: Vec<Value>,
    resources: Vec<Value>,
    resource_templates: Vec<Value>,
    pub(crate) next_cursor: Option<String>,
}

impl ListPage {
    /// The entries of the list that was asked for.
    pub(crate) fn take(&mut self, list: List) -> Vec<Value> {
        std::mem::take(match list {
            List::Tools => &mut self.tools,
            List::Prompts => &mut self.prompts,
            List::Resources => &mut self.resources,
            List::Templates => &mut self.resource_templates,
        })
    }
}

/// A prompt of another server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForwardedPrompt {
    /// The name.
    pub name: String,
    /// The rest, passed on as it came.
    #[serde(flatten)]
    pub rest: Payload,
}

/// A resource of another server, on a list or read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForwardedResource {
    /// The URI.
    pub uri: String,
    /// The rest, passed on as it came.
    #[serde(flatten)]
    pub rest: Payload,
}

/// A URI template of another server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForwardedTemplate {
    /// The URI template.
    pub uri_template: String,
    /// The rest, passed on as it came.
    #[serde(flatten)]
    pub rest: Payload,
}

/// A server's answer to `resources/read`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ResourceRead {
    pub(crate) contents: Vec<Payload>,
}

/// A server's answer to `completion/complete`.
#[derive(Debug, Deserialize)]
pub(crate) struct Completed {
    pub(crate) completion: Value,
}

/// A server's answer to `tools/call`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallResult {
    pub(crate) content: Option<Value>,
    #[serde(default)]
    pub(crate) is_error: Value,
    pub(crate) structured_content: Option<Value>,
    pub(crate) details: Option<Value>,
    #[serde(rename = "_meta")]
    pub(crate) meta: Option<Value>,
}

/// The parameters of a server's `notifications/progress`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Progress {
    pub(crate) progress_token: Value,
    pub(crate) message: Option<String>,
    #[serde(flatten)]
    pub(crate) step: ProgressStep,
}

/// The progress of a call.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct ProgressStep {
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Value>,
}

/// The parameters of a server's `notifications/resources/updated`.
#[derive(Debug, Deserialize)]
pub(crate) struct ResourceUpdated {
    pub(crate) uri: String,
}

/// The answer to `roots/list` if nobody can be asked.
#[derive(Debug, Default, Serialize)]
pub(crate) struct EmptyRoots {
    roots: [(); 0],
}

/// The parts of a server's tool definition that the catalog does not contain; they are passed on to clients in lists.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDetails {
    /// The annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
    /// Icons of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icons: Option<Value>,
    /// Other metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// The schema of its structured content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// How it can be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Value>,
}

/// An error answer of a server, in the details of the failure that it becomes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpstreamError {
    pub(crate) rpc_code: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rpc_data: Option<Value>,
}

/// The parts of a plugin's health report that are used.
#[derive(Debug, Deserialize)]
pub(crate) struct ReportedHealth<'a> {
    #[serde(borrow)]
    pub(crate) status: Option<&'a str>,
}
