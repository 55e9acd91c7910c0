//! `tools.invoke` and `tools.cancel`, and the calls of every network door. Calls pass the engine's pipeline; this
//! module writes their results in the format that clients know. `tools/shown.rs` lists the tools.

mod shown;

pub use shown::{ToolsCatalog, ToolsEffective};

use crate::{
    Call, Handle, Hub, Lane, MethodError, Object, RpcError, Terms,
    approvals::Asker,
    hub::Connection,
    methods,
    params::{Count, Text},
    sessions::Key,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use toolyard_catalog::SourceKind;
use toolyard_engine::{Asking, CallAnswer, CallRequest, Caller, redact::redactor};
use toolyard_protocol::{CallId, ErrorCode, Failure, RunId};

/// How many characters of a caller's tool name are repeated in an error.
const MAX_SHOWN: usize = 200;

methods! {
    /// Calls a tool.
    ToolsInvoke = "tools.invoke", Terms::run(), InvokeParams => InvokeAnswer;
    /// Cancels a call, by its id, its run's id, or the id of the request that made it on this connection.
    ToolsCancel = "tools.cancel", Terms::write().lane(Lane::Express), CancelParams => Cancelled;
}

/// A call of a tool.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InvokeParams {
    /// The tool.
    name: Text,
    /// Its arguments.
    #[serde(default)]
    args: Object,
    /// The session in which it is called.
    session_key: Option<Text>,
    /// The agent on whose behalf.
    agent_id: Option<Text>,
    /// Whether the call waits if a person must be asked.
    #[serde(default)]
    confirm: bool,
    /// A second call with the same key and arguments answers with the first one's result.
    #[schemars(length(max = 512))]
    idempotency_key: Option<Text>,
    /// The origin of the call in a conversation; accepted and ignored.
    #[serde(rename = "conversationReadOrigin")]
    _conversation_read_origin: Option<ReadOrigin>,
    /// The timeout in milliseconds.
    timeout_ms: Option<Count>,
    /// Whether effects are only predicted.
    #[serde(default)]
    dry_run: bool,
}

/// Where a call came from in a conversation.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReadOrigin {
    /// An operator called the tool.
    DirectOperator,
}

/// The result of a call.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InvokeAnswer {
    ok: bool,
    tool_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    requires_approval: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Output>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ToolError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deduplicated: Option<bool>,
}

/// Why a call failed or was refused.
#[derive(Debug, Serialize, JsonSchema)]
struct ToolError {
    code: String,
    message: String,
    #[serde(skip_serializing_if = "Object::is_empty")]
    details: Object,
}

impl InvokeAnswer {
    fn refused(tool_name: String, refused: Refused) -> Self {
        Self {
            ok: false,
            tool_name,
            requires_approval: refused.requires_approval.then_some(true),
            output: None,
            source: None,
            error: Some(ToolError { code: refused.code, message: refused.message, details: refused.details }),
            deduplicated: None,
        }
    }
}

impl Handle<ToolsInvoke> for Hub {
    async fn handle(&self, call: &Call<'_>, params: InvokeParams) -> Result<InvokeAnswer, MethodError> {
        let name = params.name.0;
        let session = params.session_key.as_deref().unwrap_or("main");
        let key = Key::read(&call.caller.workspace, session, params.agent_id.as_deref())?;
        if !self.knows_agent(&key.agent) {
            let shown: String = key.agent.chars().take(MAX_SHOWN).collect();
            let refused = Refused::plain("validation_error", format!("Unknown agent id \"{shown}\""), true);
            return Ok(InvokeAnswer::refused(name, refused));
        }
        let client = call.client()?;
        let connection = client.connection;
        // A call that waited in the queue has a token already, and may have been cancelled meanwhile.
        let cancel = connection.queued_call(client.id).unwrap_or_else(|| self.service().engine().call_token());
        connection.start_call(client.id, cancel.clone());
        let is_keyed = params.idempotency_key.is_some() && !params.dry_run;
        let invocation = Invocation {
            name: name.clone(),
            args: params.args,
            caller: connection.caller(&key.agent, Some(key.full)),
            asking: if params.confirm { self.route(&call.caller, Some(connection), is_keyed) } else { Asking::Report },
            timeout_ms: params.timeout_ms.map(|timeout| timeout.0),
            idempotency_key: params.idempotency_key.map(String::from),
            dry_run: params.dry_run,
            cancel: Some(cancel),
        };
        let invoked = self.run_call(invocation).await;
        connection.end_call(client.id);
        let deduplicated = invoked.deduplicated.then_some(true);
        Ok(match invoked.outcome {
            Ok(output) => InvokeAnswer {
                ok: true,
                tool_name: name,
                requires_approval: None,
                output: Some(output),
                source: Some(invoked.source),
                error: None,
                deduplicated,
            },
            Err(refused) => InvokeAnswer { deduplicated, ..InvokeAnswer::refused(name, refused) },
        })
    }
}

/// The call to cancel.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelParams {
    call_id: Option<CallId>,
    run_id: Option<RunId>,
    request_id: Option<Text>,
}

/// Whether a call was cancelled.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Cancelled {
    ok: bool,
    cancelled: bool,
}

impl Handle<ToolsCancel> for Hub {
    async fn handle(&self, call: &Call<'_>, params: CancelParams) -> Result<Cancelled, MethodError> {
        let service = self.service();
        let cancelled = match (params.call_id, params.run_id, params.request_id) {
            (Some(call_id), _, _) => service.cancel_call_anywhere(&call.caller, call_id).await?,
            (None, Some(run_id), _) => service.cancel_anywhere(&call.caller, run_id).await?,
            (None, None, Some(request_id)) => call.connection()?.cancel_call(&request_id),
            (None, None, None) => {
                let problem = "invalid tools.cancel params: must have callId, runId or requestId";
                return Err(RpcError::invalid(problem).into());
            }
        };
        Ok(Cancelled { ok: true, cancelled })
    }
}

/// A call from a network door.
pub struct Invocation {
    /// The tool.
    pub name: String,
    /// Its arguments.
    pub args: Object,
    /// On whose behalf.
    pub caller: Arc<Caller>,
    /// What happens where a person must be asked.
    pub asking: Asking,
    /// The timeout in milliseconds.
    pub timeout_ms: Option<u64>,
    /// A second call with the same key and arguments answers with the first one's result.
    pub idempotency_key: Option<String>,
    /// Whether effects are only predicted.
    pub dry_run: bool,
    /// Stops it.
    pub cancel: Option<CancellationToken>,
}

/// The result of a call, in the format of the network doors.
pub struct Invoked {
    /// The tool's output, or the reason for its failure.
    pub outcome: Result<Output, Refused>,
    /// Where the tool comes from.
    pub source: &'static str,
    /// Whether it is the recorded result of an earlier call with the same idempotency key.
    pub deduplicated: bool,
}

/// A tool's output, as `{content, details, meta}`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// What a model reads.
    content: Content,
    details: Value,
    /// Further fields of the tool's output.
    #[serde(flatten)]
    more: Object,
    meta: Meta,
}

/// Parts as the tool gave them, or one part of text.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Content {
    Given(Value),
    Text([TextPart; 1]),
}

#[derive(Debug, Serialize, JsonSchema)]
struct TextPart {
    r#type: &'static str,
    text: String,
}

/// The run and the call in the record.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Meta {
    call_id: CallId,
    run_id: RunId,
}

/// Why a call failed or was refused.
pub struct Refused {
    /// The code that clients branch on.
    pub code: String,
    /// What a person reads.
    pub message: String,
    /// What a program acts on.
    pub details: Object,
    /// Whether a person must be asked.
    pub requires_approval: bool,
    /// Whether the caller may see the tool.
    pub known: bool,
}

impl Refused {
    fn plain(code: &str, message: String, known: bool) -> Self {
        Self { code: code.to_owned(), message, details: Object::new(), requires_approval: false, known }
    }

    /// A failure of the engine in the format of the network doors.
    fn new(name: &str, failure: Failure, known: bool) -> Self {
        // A tool the caller may not see looks like one that does not exist.
        if !known && matches!(failure.code, ErrorCode::NotFound | ErrorCode::PolicyDenied) {
            let shown: String = name.chars().take(MAX_SHOWN).collect();
            return Self::plain("not_found", format!("Tool not available: {shown}"), known);
        }
        let mut details = failure.details.unwrap_or_default();
        if let Some(suggestion) = failure.suggestion {
            details.insert("suggestion".to_owned(), suggestion.into());
        }
        if let Some(retryable) = failure.retryable {
            details.insert("retryable".to_owned(), retryable.into());
        }
        let requires_approval = matches!(failure.code, ErrorCode::ConfirmationRequired | ErrorCode::ApprovalDenied);
        let code = match failure.code {
            ErrorCode::PolicyDenied => "forbidden".to_owned(),
            _ if requires_approval => "requires_approval".to_owned(),
            other => other.as_str().to_ascii_lowercase(),
        };
        Self { details, requires_approval, ..Self::plain(&code, failure.message, known) }
    }
}

impl Hub {
    /// Where a question about this caller's call goes: to other clients, never to the caller itself. A caller with an
    /// idempotency key can come back for the answer, so its question stays open even if nobody is connected.
    pub fn route(&self, caller: &Caller, connection: Option<&Arc<Connection>>, can_come_back: bool) -> Asking {
        let workspace = &caller.workspace;
        let connection = connection.map(Arc::as_ref);
        let approvals = self.service().engine().approvals();
        let stays_open = can_come_back && approvals.keeps_questions();
        let is_heard = || Asker::about_a_call(workspace, connection).is_heard(self, "plugin");
        if stays_open || approvals.is_person_reachable(workspace) || is_heard() {
            Asking::Wait { requester: connection.map(Asker::note) }
        } else {
            Asking::Unreachable
        }
    }

    /// Runs a call through the engine and returns the result in the format of the network doors.
    pub async fn run_call(&self, invocation: Invocation) -> Invoked {
        let engine = self.service().engine();
        let tools = engine.tools();
        let entry = tools.snapshot.get_in(&invocation.caller.workspace, &invocation.name).cloned();
        let source = entry.as_ref().map_or("core", |entry| match entry.source().kind {
            SourceKind::Core => "core",
            SourceKind::Plugin | SourceKind::Client => "plugin",
            SourceKind::Mcp => "mcp",
        });
        let caller = invocation.caller.clone();
        let request = CallRequest {
            tool: invocation.name.clone(),
            args: invocation.args,
            timeout_ms: invocation.timeout_ms,
            preview: None,
            title: None,
            idempotency_key: invocation.idempotency_key,
            dry_run: invocation.dry_run,
            asking: invocation.asking,
            cancel: invocation.cancel,
            run_id: None,
            client_call: None,
        };
        // Boxed, because the future of a call is large and would be copied at each step.
        let CallAnswer { result, deduplicated } = Box::pin(self.service().invoke(invocation.caller, request)).await;
        let parts = result.into_parts();
        self.metrics().tool(parts.status.as_str());
        let meta = Meta { call_id: parts.call_id, run_id: parts.run_id };
        let outcome = match (parts.data, parts.error) {
            (Some(data), _) => Ok(output(data, meta)),
            (None, failure) => {
                let failure = failure.unwrap_or_else(|| {
                    Failure::new(ErrorCode::InternalError, parts.user_message.unwrap_or_else(|| "skipped".to_owned()))
                });
                // Only a refusal may reveal that the tool exists.
                let is_missing = entry.is_none() && failure.code == ErrorCode::NotFound;
                let visible = entry.is_some_and(|e| !engine.policy_for(&caller).decide(&e, None).is_denied());
                let mut refused = Refused::new(&invocation.name, failure, visible);
                if is_missing && let Some(why) = self.service().why_left_out(&invocation.name) {
                    refused.details.insert("suggestion".to_owned(), why.into());
                }
                refused.message = redactor().text(&refused.message).into_owned();
                if visible {
                    refused.details.insert("callId".to_owned(), meta.call_id.to_string().into());
                    refused.details.insert("runId".to_owned(), meta.run_id.to_string().into());
                }
                Err(refused)
            }
        };
        Invoked { outcome, source, deduplicated }
    }
}

/// A tool's data as `{content, details}`. Data that already has this form (plugins, MCP) stays unchanged.
fn output(mut data: Object, meta: Meta) -> Output {
    let has_type = |part: &Value| part.as_object().is_some_and(|part| part.contains_key("type"));
    let content = data.get("content").and_then(Value::as_array);
    if content.is_some_and(|parts| parts.iter().all(has_type)) {
        let content = Content::Given(data.shift_remove("content").unwrap_or_default());
        let details = data.shift_remove("details").unwrap_or_else(|| Value::Object(Object::new()));
        data.shift_remove("meta");
        return Output { content, details, more: data, meta };
    }
    let details = Value::Object(data);
    let content = Content::Text([TextPart { r#type: "text", text: format!("{details:#}") }]);
    Output { content, details, more: Object::new(), meta }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_with_content_keep_their_shape_and_others_get_one() {
        let id = "01a1e17c-0385-7610-8843-1050c8653910";
        let meta = Meta { call_id: CallId::parse(id).unwrap(), run_id: RunId::parse(id).unwrap() };
        let shown = |data: Value| serde_json::to_value(output(data.as_object().unwrap().clone(), meta)).unwrap();
        let shaped = shown(json!({"content":[{"type":"text","text":"hi"}], "isError": false}));
        assert_eq!(shaped["content"][0]["text"], "hi");
        assert_eq!((&shaped["details"], &shaped["isError"]), (&json!({}), &json!(false)));
        let plain = shown(json!({"content":"a note","path":"a.md"}));
        assert_eq!(plain["details"]["path"], "a.md");
        assert!(plain["content"][0]["text"].as_str().unwrap().contains("a note"));
        assert_eq!(plain["meta"]["callId"], id);
    }

    #[test]
    fn what_may_not_be_seen_looks_like_what_does_not_exist() {
        let denied = || Failure::new(ErrorCode::PolicyDenied, "rule x says no");
        assert_eq!(Refused::new("t", denied(), false).message, "Tool not available: t");
        assert_eq!(Refused::new("t", denied(), true).code, "forbidden");
        let asked = Refused::new("t", Failure::new(ErrorCode::ConfirmationRequired, "may I?"), true);
        assert!(asked.requires_approval && asked.code == "requires_approval" && asked.message == "may I?");
        assert_eq!(Refused::new("t", Failure::new(ErrorCode::Timeout, "slow"), true).code, "timeout");
    }
}
