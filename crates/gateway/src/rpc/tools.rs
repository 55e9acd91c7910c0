//! `tools.catalog`, `tools.effective`, `tools.invoke`, `tools.cancel`. Calls go down the engine's road like any other;
//! here they only change clothes.

use super::{Ask, RpcError, approvals::Asker, blocking, sessions};
use crate::{
    hub::{Connection, Gateway},
    rpc::sessions::Key,
    ws::{
        frame::Payload,
        params::{Field, Kind, check, count, flag, text},
    },
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};
use tokio_util::sync::CancellationToken;
use toolyard_catalog::{SourceKind, ToolEntry, surface::Turn};
use toolyard_engine::{Asking, CallAnswer, CallRequest, Caller, ModelView, redact::redactor};
use toolyard_protocol::{CallId, ErrorCode, Failure, RiskLevel, RunId};

/// A short description has at most this many characters.
const SHORT: usize = 120;

const CATALOG: &[Field] = &[
    Field::optional("agentId", Kind::Text),
    Field::optional("includePlugins", Kind::Flag),
    Field::optional("includeSchemas", Kind::Flag),
];

pub(super) fn catalog(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, CATALOG)?;
    let agent = text(&params, "agentId").unwrap_or("main");
    if !sessions::knows_agent(ask.gateway, agent) {
        let shown: String = agent.chars().take(80).collect();
        return Err(RpcError::invalid(format!("unknown agent id \"{shown}\"")));
    }
    let plugins = params.get("includePlugins").and_then(Value::as_bool).unwrap_or(true);
    let schemas = flag(&params, "includeSchemas");
    let tools = ask.gateway.service().engine().tools();
    let mut groups: BTreeMap<(bool, String), Vec<Value>> = BTreeMap::new();
    for entry in tools.snapshot.iter() {
        let (definition, source) = (entry.definition(), entry.source());
        let is_core = source.kind == SourceKind::Core;
        // What one session has is no part of the catalog.
        if (!is_core && !plugins) || entry.session().is_some() {
            continue;
        }
        let mut tool = json!({
            "id": definition.name, "label": definition.name, "description": short(&definition.description),
            "source": if is_core { "core" } else { "plugin" }, "risk": risk(definition.risk_level),
            "defaultProfiles": entry.profiles(),
        });
        if !is_core {
            tool["pluginId"] = (*source.name).into();
        }
        if entry.optional() {
            tool["optional"] = true.into();
        }
        add_schemas(&mut tool, entry, schemas);
        let group = if is_core { definition.category.to_string() } else { source.name.to_string() };
        groups.entry((!is_core, group)).or_default().push(tool);
    }
    let groups: Vec<Value> = groups
        .into_iter()
        .map(|((is_plugin, name), tools)| {
            if is_plugin {
                json!({"id": format!("plugin:{name}"), "label": name, "source": "plugin", "pluginId": name, "tools": tools})
            } else {
                json!({"id": name, "label": titled(&name), "source": "core", "tools": tools})
            }
        })
        .collect();
    Ok(json!({
        "agentId": agent,
        "profiles": [
            {"id": "minimal", "label": "Minimal"}, {"id": "coding", "label": "Coding"},
            {"id": "messaging", "label": "Messaging"}, {"id": "full", "label": "Full"},
        ],
        "groups": groups,
    }))
}

fn add_schemas(tool: &mut Value, entry: &ToolEntry, wanted: bool) {
    if wanted {
        let definition = entry.definition();
        tool["inputSchema"] = definition.input_schema.value();
        if let Some(schema) = &definition.output_schema {
            tool["outputSchema"] = schema.value();
        }
    }
}

const EFFECTIVE: &[Field] = &[
    Field::required("sessionKey", Kind::Text),
    Field::optional("agentId", Kind::Text),
    Field::optional("includeSchemas", Kind::Flag),
    // Beyond the real gateway: what a model of this session is shown, rather than what the session has.
    Field::optional("forModel", Kind::Flag),
    Field::optional("prompt", Kind::AnyText),
    Field::optional("contextTokens", Kind::Count),
    Field::optional("requiredTools", Kind::Texts),
];

pub(super) async fn effective(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, EFFECTIVE)?;
    let given = text(&params, "sessionKey").unwrap_or_default();
    let key = Key::read(given, text(&params, "agentId"))?;
    if !sessions::exists(ask.gateway, &key).await? {
        return Err(sessions::unknown(given));
    }
    let schemas = flag(&params, "includeSchemas");
    // The session's tools, for whoever may call any at all: without operator.write nothing can be invoked, and a reader
    // asks what the session has, not what the reader has.
    let mut caller = Caller::clone(&ask.connection.caller(&key.agent, Some(key.full.clone())));
    if !ask.connection.has("operator.write") {
        caller.scopes.push("operator.write".to_owned());
    }
    let profile = ask.gateway.settings().profile.clone().unwrap_or_else(|| "full".to_owned());
    let mut answer = json!({"agentId": key.agent, "profile": profile});
    let mut groups = Groups::default();
    match ask.gateway.service().models().filter(|_| flag(&params, "forModel")) {
        Some(view) => for_model(ask, &caller, &params, &**view, &mut groups, &mut answer).await?,
        None => {
            for entry in ask.gateway.service().engine().visible_tools(&caller) {
                let (place, mut tool) = effective_tool(&entry);
                add_schemas(&mut tool, &entry, schemas);
                groups.add(place, tool);
            }
        }
    }
    answer["groups"] = groups.into_value();
    Ok(answer)
}

/// What a model of the session is shown: the tools with their schemas, in its own names, and how they were chosen.
async fn for_model(
    ask: &Ask<'_>,
    caller: &Caller,
    params: &Map<String, Value>,
    view: &dyn ModelView,
    groups: &mut Groups,
    answer: &mut Value,
) -> Result<(), RpcError> {
    let required: Vec<String> = params
        .get("requiredTools")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    let turn = Turn {
        prompt: text(params, "prompt"),
        context_tokens: count(params, "contextTokens").map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX)),
        required: &required,
    };
    let engine = ask.gateway.service().engine();
    let shown = view.show(engine, caller, turn).await.map_err(|failure| RpcError::invalid(failure.message))?;
    for tool in &shown.surface.tools {
        let (place, mut row) = if tool.is_control() {
            (0, json!({"label": tool.name, "description": short(tool.description()), "source": "core"}))
        } else {
            effective_tool(&tool.entry)
        };
        row["id"] = tool.name.as_str().into();
        row["rawDescription"] = tool.description().into();
        row["inputSchema"] = tool.input_schema().value();
        groups.add(place, row);
    }
    answer["toolSearch"] = serde_json::to_value(shown.surface.summary())
        .map_err(|e| RpcError::new("UNAVAILABLE", format!("the answer cannot be written: {e}")))?;
    if let Some(notice) = shown.notice {
        answer["notices"] = json!([{"id": "tool-search", "severity": "warning", "message": notice}]);
    }
    Ok(())
}

/// Tools by where they come from: core, connected, MCP.
#[derive(Default)]
struct Groups([Vec<Value>; 3]);

impl Groups {
    const NAMES: [(&'static str, &'static str); 3] =
        [("core", "Built-in tools"), ("plugin", "Connected tools"), ("mcp", "MCP tools")];

    fn add(&mut self, place: usize, tool: Value) {
        if let Some(group) = self.0.get_mut(place) {
            group.push(tool);
        }
    }

    /// Those that have any.
    fn into_value(self) -> Value {
        let named = Self::NAMES.into_iter().zip(self.0).filter(|(_, tools)| !tools.is_empty());
        named.map(|((id, label), tools)| json!({"id": id, "label": label, "source": id, "tools": tools})).collect()
    }
}

/// A tool as `tools.effective` shows it, and the place of its group.
fn effective_tool(entry: &ToolEntry) -> (usize, Value) {
    let (definition, source) = (entry.definition(), entry.source());
    let (place, kind) = match source.kind {
        SourceKind::Core => (0, "core"),
        SourceKind::Plugin | SourceKind::Client => (1, "plugin"),
        SourceKind::Mcp => (2, "mcp"),
    };
    let mut tool = json!({
        "id": definition.name, "label": definition.title, "description": short(&definition.description),
        "rawDescription": definition.description, "source": kind, "risk": risk(definition.risk_level),
    });
    match source.kind {
        SourceKind::Core => {}
        SourceKind::Plugin | SourceKind::Client => tool["pluginId"] = (*source.name).into(),
        SourceKind::Mcp => tool["mcpServer"] = (*source.name).into(),
    }
    (place, tool)
}

fn risk(level: RiskLevel) -> &'static str {
    match level {
        RiskLevel::ReadOnly => "low",
        RiskLevel::Writes => "medium",
        RiskLevel::Commands => "high",
    }
}

/// The first sentence, or as much of it as fits.
fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let sentence = line.split_inclusive(". ").next().unwrap_or(line).trim_end();
    if sentence.chars().count() <= SHORT {
        return sentence.to_owned();
    }
    sentence.chars().take(SHORT - 1).chain(['…']).collect()
}

fn titled(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

const INVOKE: &[Field] = &[
    Field::required("name", Kind::Text),
    Field::optional("args", Kind::Object),
    Field::optional("sessionKey", Kind::Text),
    Field::optional("agentId", Kind::Text),
    Field::optional("confirm", Kind::Flag),
    Field::optional("idempotencyKey", Kind::TextUpTo(512)),
    Field::optional("conversationReadOrigin", Kind::OneOf(&["direct-operator"])),
    Field::optional("timeoutMs", Kind::Count),
    Field::optional("dryRun", Kind::Flag),
];

/// A call as a network door wants it.
pub(crate) struct Invocation {
    pub(crate) name: String,
    pub(crate) args: Map<String, Value>,
    pub(crate) caller: Arc<Caller>,
    pub(crate) asking: Asking,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) dry_run: bool,
    pub(crate) cancel: Option<CancellationToken>,
}

/// How a call ended, in the doors' words.
pub(crate) struct Invoked {
    pub(crate) outcome: Result<Output, Refused>,
    pub(crate) source: &'static str,
    pub(crate) deduplicated: bool,
}

/// What a tool gave, as `{content, details, meta}`.
#[derive(Debug, Serialize)]
pub(crate) struct Output {
    /// What a model reads.
    content: Content,
    details: Value,
    /// What the tool gave beside the two.
    #[serde(flatten)]
    more: Map<String, Value>,
    meta: Meta,
}

/// Parts as the tool gave them, or one part of text.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Content {
    Given(Value),
    Text([Text; 1]),
}

#[derive(Debug, Serialize)]
struct Text {
    r#type: &'static str,
    text: String,
}

/// Where the call is on record.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    call_id: CallId,
    run_id: RunId,
}

/// Why a tool did not do what was asked.
pub(crate) struct Refused {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) details: Map<String, Value>,
    pub(crate) requires_approval: bool,
    /// Whether the caller may see the tool at all.
    pub(crate) known: bool,
}

/// A call's answer on the wire.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    ok: bool,
    tool_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    requires_approval: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a Output>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Trouble<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deduplicated: Option<bool>,
}

#[derive(Serialize)]
struct Trouble<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Map::is_empty")]
    details: &'a Map<String, Value>,
}

pub(super) async fn invoke(ask: &Ask<'_>, params: Option<Value>) -> Result<Payload, RpcError> {
    let mut params = check(ask.method, params, INVOKE)?;
    let name = text(&params, "name").unwrap_or_default().to_owned();
    let key = Key::read(text(&params, "sessionKey").unwrap_or("main"), text(&params, "agentId"))?;
    if !sessions::knows_agent(ask.gateway, &key.agent) {
        let shown: String = key.agent.chars().take(80).collect();
        return Ok(json!({"ok": false, "toolName": name, "error": {
            "code": "validation_error", "message": format!("Unknown agent id \"{shown}\""),
        }})
        .into());
    }
    let args = match params.remove("args") {
        Some(Value::Object(args)) => args,
        _ => Map::new(),
    };
    let request_id = ask.id.as_str().unwrap_or_default();
    // A call that waited for its place has a token already, and may have been cancelled meanwhile.
    let cancel = ask.connection.queued_call(request_id).unwrap_or_else(|| ask.gateway.service().engine().call_token());
    ask.connection.start_call(request_id, cancel.clone());
    let invocation = Invocation {
        name: name.clone(),
        args,
        caller: ask.connection.caller(&key.agent, Some(key.full)),
        asking: if flag(&params, "confirm") { route(ask.gateway, Some(ask.connection)) } else { Asking::Report },
        timeout_ms: count(&params, "timeoutMs"),
        idempotency_key: text(&params, "idempotencyKey").map(str::to_owned),
        dry_run: flag(&params, "dryRun"),
        cancel: Some(cancel),
    };
    let invoked = run(ask.gateway, invocation).await;
    ask.connection.end_call(request_id);
    let (output, refused) = match &invoked.outcome {
        Ok(output) => (Some(output), None),
        Err(refused) => (None, Some(refused)),
    };
    let answer = Answer {
        ok: output.is_some(),
        tool_name: &name,
        requires_approval: refused.filter(|r| r.requires_approval).map(|_| true),
        output,
        source: output.map(|_| invoked.source),
        error: refused.map(|r| Trouble { code: &r.code, message: &r.message, details: &r.details }),
        deduplicated: invoked.deduplicated.then_some(true),
    };
    let written = serde_json::value::to_raw_value(&answer)
        .map_err(|e| RpcError::new("UNAVAILABLE", format!("the answer cannot be written: {e}")))?;
    Ok(Payload::Written(written))
}

/// Where a question of this caller would go: to somebody else, never to itself.
pub(crate) fn route(gateway: &Gateway, connection: Option<&Arc<Connection>>) -> Asking {
    let connection = connection.map(Arc::as_ref);
    if Asker::about_a_call(connection).is_heard(gateway, "plugin") {
        Asking::Wait { requester: connection.map(Asker::note) }
    } else {
        Asking::Unreachable
    }
}

/// Runs a call down the engine's road and puts its result into the doors' words.
pub(crate) async fn run(gateway: &Gateway, invocation: Invocation) -> Invoked {
    let engine = gateway.service().engine();
    let tools = engine.tools();
    let entry = tools.snapshot.get(&invocation.name).cloned();
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
        idempotency_key: invocation.idempotency_key,
        dry_run: invocation.dry_run,
        asking: invocation.asking,
        cancel: invocation.cancel,
        run_id: None,
    };
    // Boxed: a call's way through the engine is long, and would be copied at each step on the way there.
    let CallAnswer { result, deduplicated } = Box::pin(gateway.service().invoke(invocation.caller, request)).await;
    let parts = result.into_parts();
    gateway.inner.metrics.tool(parts.status.as_str());
    let meta = Meta { call_id: parts.call_id, run_id: parts.run_id };
    let outcome = match (parts.data, parts.error) {
        (Some(data), _) => Ok(output(data, meta)),
        (None, failure) => {
            let failure = failure.unwrap_or_else(|| {
                Failure::new(ErrorCode::InternalError, parts.user_message.unwrap_or_else(|| "skipped".to_owned()))
            });
            // Only a refusal may give away that there is such a tool.
            let is_missing = entry.is_none() && failure.code == ErrorCode::NotFound;
            let visible = entry.is_some_and(|e| !engine.policy_for(&caller).decide(&e, None).is_denied());
            let mut refused = refusal(&invocation.name, failure, visible);
            if is_missing && let Some(why) = gateway.service().why_left_out(&invocation.name).await {
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

/// A tool's data as `{content, details}`. What has that shape already (plugins, MCP) stays as it is.
fn output(mut data: Map<String, Value>, meta: Meta) -> Output {
    let shaped = data.get("content").is_some_and(|content| {
        content.as_array().is_some_and(|parts| parts.iter().all(|part| part.get("type").is_some()))
    });
    if shaped {
        let content = Content::Given(data.shift_remove("content").unwrap_or_default());
        let details = data.shift_remove("details").unwrap_or_else(|| json!({}));
        data.shift_remove("meta");
        return Output { content, details, more: data, meta };
    }
    let text = serde_json::to_string_pretty(&data).unwrap_or_default();
    let content = Content::Text([Text { r#type: "text", text }]);
    Output { content, details: Value::Object(data), more: Map::new(), meta }
}

fn refusal(name: &str, failure: Failure, known: bool) -> Refused {
    let shown: String = name.chars().take(200).collect();
    let plain = |code: &str, message: String| Refused {
        code: code.to_owned(),
        message,
        details: Map::new(),
        requires_approval: false,
        known,
    };
    // A tool the caller may not see looks like one that does not exist.
    if !known && matches!(failure.code, ErrorCode::NotFound | ErrorCode::PolicyDenied) {
        return plain("not_found", format!("Tool not available: {shown}"));
    }
    let mut details = failure.details.unwrap_or_default();
    if let Some(suggestion) = failure.suggestion {
        details.insert("suggestion".to_owned(), suggestion.into());
    }
    if let Some(retryable) = failure.retryable {
        details.insert("retryable".to_owned(), retryable.into());
    }
    let code = match failure.code {
        ErrorCode::PolicyDenied => "forbidden".to_owned(),
        ErrorCode::ConfirmationRequired | ErrorCode::ApprovalDenied => {
            return Refused { details, requires_approval: true, ..plain("requires_approval", failure.message) };
        }
        other => other.as_str().to_ascii_lowercase(),
    };
    Refused { details, ..plain(&code, failure.message) }
}

const CANCEL: &[Field] = &[
    Field::optional("callId", Kind::Text),
    Field::optional("runId", Kind::Text),
    Field::optional("requestId", Kind::Text),
];

/// Stops a call: by its own id, its run's, or the id of the request that made it on this connection.
pub(super) fn cancel(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, CANCEL)?;
    let engine = ask.gateway.service().engine();
    let wrong = |what: &str| RpcError::invalid(format!("invalid tools.cancel params: at /{what}: must be a UUID"));
    let cancelled = if let Some(id) = text(&params, "callId") {
        engine.cancel_call(CallId::parse(id).map_err(|_| wrong("callId"))?)
    } else if let Some(id) = text(&params, "runId") {
        engine.cancel_run(RunId::parse(id).map_err(|_| wrong("runId"))?)
    } else if let Some(id) = text(&params, "requestId") {
        ask.connection.cancel_call(id)
    } else {
        return Err(RpcError::invalid("invalid tools.cancel params: must have callId, runId or requestId"));
    };
    Ok(json!({"ok": true, "cancelled": cancelled}))
}

/// The run's events from the record.
pub(crate) async fn recorded_events(gateway: &Gateway, run_id: RunId) -> Result<Vec<Value>, RpcError> {
    let store = gateway.service().engine().store().clone();
    blocking(move || {
        store.settle()?;
        let export = toolyard_engine::view::export_run(&*store, run_id).map_err(super::from_failure)?;
        Ok(export.events.iter().map(|event| serde_json::to_value(event).unwrap_or_default()).collect())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(refusal("t", denied(), false).message, "Tool not available: t");
        assert_eq!(refusal("t", denied(), true).code, "forbidden");
        let asked = refusal("t", Failure::new(ErrorCode::ConfirmationRequired, "may I?"), true);
        assert!(asked.requires_approval && asked.code == "requires_approval" && asked.message == "may I?");
        assert_eq!(refusal("t", Failure::new(ErrorCode::Timeout, "slow"), true).code, "timeout");
    }

    #[test]
    fn descriptions_are_cut_at_a_sentence() {
        assert_eq!(short("Reads a note. Gives its etag."), "Reads a note.");
        assert_eq!(short(&"x".repeat(300)).chars().count(), SHORT);
    }
}
