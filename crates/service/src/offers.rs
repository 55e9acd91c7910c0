//! `tools.offer`: a client offers tools of its own for its session. `tools.result`: the client's result of a call that
//! it received with the event `tools.call`.

use crate::{
    AnyJson, Call, Handle, Hub, Lane, MethodError, Object, RequestError, RpcError, Terms,
    hub::{Connection, OfferError},
    methods,
    params::{Count, Text},
    sessions::{self, Key},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolyard_protocol::{
    Availability, DEFAULT_TIMEOUT_MS, Idempotency, RiskLevel, Schema, ToolDefinition, ToolName, Undo,
};

/// The longest timeout of a call of a client's tool, in milliseconds.
const MAX_TIMEOUT_MS: u64 = 600_000;
/// How many characters of a client's message are passed on.
const MAX_WORDS: usize = 500;

methods! {
    /// Offers the client's own tools for a session, replacing those it offered before.
    ToolsOffer = "tools.offer", Terms::write(), OfferParams => Offered;
    /// Accepts a client's answer to a call of one of its tools.
    ToolsResult = "tools.result", Terms::write().lane(Lane::Express), ToolResultParams => ResultReceipt;
}

/// Tools that a client answers itself.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OfferParams {
    session_key: Text,
    agent_id: Option<Text>,
    #[schemars(length(max = 64))]
    tools: Vec<OfferedTool>,
}

/// A tool that a client answers itself.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct OfferedTool {
    name: Text,
    title: Option<Text>,
    description: Option<String>,
    input_schema: Option<Object>,
    output_schema: Option<Object>,
    #[serde(default)]
    read_only: bool,
    #[schemars(range(min = 1, max = 600_000))]
    timeout_ms: Option<Count>,
}

/// The ids of the tools that were offered.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Offered {
    session_key: String,
    tools: Vec<String>,
}

impl Handle<ToolsOffer> for Hub {
    async fn handle(&self, call: &Call<'_>, params: OfferParams) -> Result<Offered, MethodError> {
        let key = Key::read(&call.caller.workspace, &params.session_key, params.agent_id.as_deref())?;
        if !sessions::exists(self, &key).await? {
            return Err(sessions::unknown(&params.session_key).into());
        }
        let wrong = |problem: String| RpcError::invalid(format!("invalid tools.offer params: {problem}"));
        let tools = params.tools.into_iter().enumerate();
        let tools = tools
            .map(|(at, tool)| definition(tool).map_err(|problem| wrong(format!("at /tools/{at}: {problem}"))))
            .collect::<Result<Vec<_>, _>>()?;
        match self.offer(call.connection()?, &key.full, tools) {
            Ok(tools) => Ok(Offered { session_key: key.full, tools }),
            Err(OfferError::Conflict(names)) => {
                Err(RpcError::invalid(format!("client tool name conflict: {}", names.join(", "))).into())
            }
            Err(OfferError::Refused(error)) => Err(wrong(error.to_string()).into()),
        }
    }
}

fn definition(tool: OfferedTool) -> Result<ToolDefinition, String> {
    let reads = tool.read_only;
    let description = tool.description.filter(|text| !text.trim().is_empty());
    let anything = || Object::from_iter([("type".to_owned(), Value::from("object"))]);
    Ok(ToolDefinition {
        name: ToolName::parse(&tool.name).map_err(|error| error.to_string())?,
        title: tool.title.unwrap_or(tool.name).into(),
        description: description.unwrap_or_else(|| "No description.".to_owned()),
        category: "client".into(),
        risk_level: if reads { RiskLevel::ReadOnly } else { RiskLevel::Writes },
        version: "1.0.0".into(),
        input_schema: tool.input_schema.unwrap_or_else(anything).into(),
        output_schema: tool.output_schema.map(Schema::from),
        side_effects: if reads { Vec::new() } else { vec!["external".into()] },
        idempotency: if reads { Idempotency::Pure } else { Idempotency::None },
        required_permissions: Vec::new(),
        availability: Availability { requires: vec!["client".to_owned()] },
        cancellable: true,
        supports_dry_run: false,
        default_timeout_ms: tool.timeout_ms.map_or(DEFAULT_TIMEOUT_MS, |timeout| timeout.0),
        max_timeout_ms: Some(MAX_TIMEOUT_MS),
        undo: Undo::None,
    })
}

/// A client's answer to a call of one of its tools.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolResultParams {
    id: Text,
    ok: bool,
    #[serde(default)]
    #[schemars(extend("nullable" = true))]
    output: Option<Object>,
    #[serde(default)]
    #[schemars(extend("nullable" = true))]
    error: Option<RefusalReason>,
}

/// A client's reason for a refusal; other fields are ignored.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct RefusalReason {
    #[serde(default)]
    code: AnyJson,
    #[serde(default)]
    message: AnyJson,
}

impl RefusalReason {
    pub(crate) fn read(words: Option<Self>, otherwise: &str) -> RequestError {
        let words = words.unwrap_or_default();
        let word = |said: &AnyJson, otherwise: &str| {
            said.as_str().unwrap_or(otherwise).chars().take(MAX_WORDS).collect::<String>()
        };
        let (code, message) = (word(&words.code, "UNAVAILABLE"), word(&words.message, otherwise));
        RequestError::Refused { code, message }
    }
}

/// The confirmation of an answer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ResultReceipt {
    ok: bool,
    /// True if nobody waits for the answer any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    ignored: Option<bool>,
}

impl Handle<ToolsResult> for Hub {
    /// An answer for which nobody waits any more is accepted: it is not the client's error.
    async fn handle(&self, call: &Call<'_>, params: ToolResultParams) -> Result<ResultReceipt, MethodError> {
        let outcome = match params.ok {
            true => Ok(Value::Object(params.output.unwrap_or_default())),
            false => Err(RefusalReason::read(params.error, "the client gave no reason")),
        };
        Ok(self.take_answer(call.connection()?, &params.id, outcome))
    }
}

impl Hub {
    /// Passes an answer to the call that waits for it.
    pub(crate) fn take_answer(
        &self,
        client: &Connection,
        id: &str,
        outcome: Result<Value, RequestError>,
    ) -> ResultReceipt {
        let waited = self.inner.questions.answered(client, id, outcome);
        ResultReceipt { ok: true, ignored: (!waited).then_some(true) }
    }
}
