//! `tools.offer`: a client brings tools of its own for its session. `tools.result`: what came of a call of one of them,
//! which it heard of by the event `tools.call`.

use super::{Ask, RpcError, sessions};
use crate::{
    hub::{NotOffered, Unanswered},
    rpc::sessions::Key,
    ws::params::{Field, Kind, check, count, flag, text},
};
use serde_json::{Map, Value, json};
use toolyard_protocol::{Availability, DEFAULT_TIMEOUT_MS, Idempotency, RiskLevel, ToolDefinition, ToolName, Undo};

/// Tools that one client may offer.
const MAX_TOOLS: usize = 64;
/// A call of one of them gets at most this long.
const MAX_TIMEOUT_MS: u64 = 600_000;
/// Characters of a client's own words that are passed on.
const MAX_WORDS: usize = 500;

const OFFER: &[Field] = &[
    Field::required("sessionKey", Kind::Text),
    Field::optional("agentId", Kind::Text),
    Field::required("tools", Kind::Any),
];
const TOOL: &[Field] = &[
    Field::required("name", Kind::Text),
    Field::optional("title", Kind::Text),
    Field::optional("description", Kind::AnyText),
    Field::optional("inputSchema", Kind::Object),
    Field::optional("outputSchema", Kind::Object),
    Field::optional("readOnly", Kind::Flag),
    Field::optional("timeoutMs", Kind::Between(1, MAX_TIMEOUT_MS)),
];

pub(super) async fn offer(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, OFFER)?;
    let given = text(&params, "sessionKey").unwrap_or_default();
    let key = Key::read(given, text(&params, "agentId"))?;
    if !sessions::exists(ask.gateway, &key).await? {
        return Err(sessions::unknown(given));
    }
    let wrong = |problem: String| RpcError::invalid(format!("invalid tools.offer params: {problem}"));
    let Some(Value::Array(listed)) = params.get("tools") else {
        return Err(wrong("at /tools: must be array".to_owned()));
    };
    if listed.len() > MAX_TOOLS {
        return Err(wrong(format!("at /tools: must NOT have more than {MAX_TOOLS} items")));
    }
    let tools = listed
        .iter()
        .enumerate()
        .map(|(at, tool)| {
            let tool = check(ask.method, Some(tool.clone()), TOOL)
                .map_err(|error| RpcError::invalid(format!("{} (at /tools/{at})", error.message)))?;
            definition(&tool).map_err(|problem| wrong(format!("at /tools/{at}: {problem}")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    match ask.gateway.offer(ask.connection, &key.full, tools) {
        Ok(ids) => Ok(json!({"sessionKey": key.full, "tools": ids})),
        Err(NotOffered::Conflict(names)) => {
            Err(RpcError::invalid(format!("client tool name conflict: {}", names.join(", "))))
        }
        Err(NotOffered::Refused(error)) => Err(wrong(error.to_string())),
    }
}

fn definition(tool: &Map<String, Value>) -> Result<ToolDefinition, String> {
    let name = text(tool, "name").unwrap_or_default();
    let reads = flag(tool, "readOnly");
    let description = text(tool, "description").filter(|text| !text.trim().is_empty()).unwrap_or("No description.");
    let anything = || json!({"type": "object"}).as_object().cloned().unwrap_or_default();
    let schema = |key: &str| tool.get(key).and_then(Value::as_object).cloned();
    Ok(ToolDefinition {
        name: ToolName::parse(name).map_err(|error| error.to_string())?,
        title: text(tool, "title").unwrap_or(name).to_owned(),
        description: description.to_owned(),
        category: "client".into(),
        risk_level: if reads { RiskLevel::ReadOnly } else { RiskLevel::Writes },
        version: "1.0.0".into(),
        input_schema: schema("inputSchema").unwrap_or_else(anything).into(),
        output_schema: schema("outputSchema").map(Into::into),
        side_effects: if reads { Vec::new() } else { vec!["external".into()] },
        idempotency: if reads { Idempotency::Pure } else { Idempotency::None },
        required_permissions: Vec::new(),
        availability: Availability { requires: vec!["client".to_owned()] },
        cancellable: true,
        supports_dry_run: false,
        default_timeout_ms: count(tool, "timeoutMs").unwrap_or(DEFAULT_TIMEOUT_MS),
        max_timeout_ms: Some(MAX_TIMEOUT_MS),
        undo: Undo::None,
    })
}

const RESULT: &[Field] = &[
    Field::required("id", Kind::Text),
    Field::required("ok", Kind::Flag),
    Field::optional("output", Kind::ObjectOrNull),
    Field::optional("error", Kind::ObjectOrNull),
];

/// Takes a client's answer. One that nobody waits for any more is no mistake of the client's.
pub(super) fn result(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let mut params = check(ask.method, params, RESULT)?;
    let id = text(&params, "id").unwrap_or_default().to_owned();
    let outcome = match (flag(&params, "ok"), params.remove("output")) {
        (true, Some(output @ Value::Object(_))) => Ok(output),
        (true, _) => Ok(json!({})),
        (false, _) => Err(refused(params.get("error"), "the client gave no reason")),
    };
    Ok(took(ask, &id, outcome))
}

/// A client's own words for why it would not.
pub(super) fn refused(error: Option<&Value>, otherwise: &str) -> Unanswered {
    let error = error.and_then(Value::as_object);
    let word = |key: &str, otherwise: &str| {
        let told = error.and_then(|error| text(error, key)).unwrap_or(otherwise);
        told.chars().take(MAX_WORDS).collect::<String>()
    };
    Unanswered::Refused { code: word("code", "UNAVAILABLE"), message: word("message", otherwise) }
}

/// Hands an answer to whoever waits for it.
pub(super) fn took(ask: &Ask<'_>, id: &str, outcome: Result<Value, Unanswered>) -> Value {
    let waited = ask.gateway.inner.questions.answered(ask.connection, id, outcome);
    if waited { json!({"ok": true}) } else { json!({"ok": true, "ignored": true}) }
}
