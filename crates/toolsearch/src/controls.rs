//! The control tools as they are registered and as models are shown them.
//!
//! The registered schemas are wider than the shown ones: models that get the form slightly wrong are understood (see
//! [`crate::arguments`]) rather than refused by the schema check.

use serde_json::{Map, Value, json};
use toolyard_protocol::{Idempotency, RiskLevel, ToolDefinition, ToolName};

/// Runs a script.
pub(crate) const CODE: &str = "tool_search_code";
/// Searches.
pub(crate) const SEARCH: &str = "tool_search";
/// Describes.
pub(crate) const DESCRIBE: &str = "tool_describe";
/// Calls.
pub(crate) const CALL: &str = "tool_call";
/// Calls, under the name newer clients use.
pub(crate) const DISPATCH: &str = "dispatch_action";

/// Names that are never part of a catalog.
pub const CONTROL_NAMES: [&str; 5] = [CODE, SEARCH, DESCRIBE, CALL, DISPATCH];

/// Whether a tool is one of the control tools.
pub fn is_control(name: &str) -> bool {
    CONTROL_NAMES.contains(&name)
}

/// The time a control call gets beyond what it calls: scripts are held by their own clock.
const CONTROL_TIMEOUT_MS: u64 = 120_000;

const SEARCH_TEXT: &str = "Search the tool catalog. Ask in English, one short query per step of the task, and send all of them at once in `queries`: \
that finds far more than one query for the whole task. Answers with ids, names and descriptions.";
const DESCRIBE_TEXT: &str =
    "Show everything about one tool found with tool_search, with the exact JSON Schema of its arguments.";
const CALL_TEXT: &str = "Call one tool found with tool_search. Put the tool's arguments into `args`.";
const CODE_TEXT: &str = "Find and call tools from a catalog that is not listed here, with JavaScript. The body of an async function; use return. No network, files or timers. \
API: await openclaw.tools.search(query | [query, ...], {limit}) finds tools: give one short English query per step of the task, all at once, which finds far more than one query for the whole; \
await openclaw.tools.describe(id) gives the exact input schema; await openclaw.tools.call(id, args) runs the tool and gives {tool, result: {content, details}}; console.log(...). \
Failed calls throw an Error with a code.";

/// What a model is shown of a control tool: description and schema.
pub(crate) fn shown(name: &str) -> Option<(&'static str, Map<String, Value>)> {
    let id = json!({"type": "string", "description": "The tool's id or its exact name."});
    let query = json!({"type": "string", "description": "What the tool should do, in a few English words."});
    let limit = json!({"type": "number", "description": "At most this many tools."});
    let (description, schema) = match name {
        CODE => (
            CODE_TEXT,
            json!({"type": "object", "properties": {
                "code": {"type": "string", "description": "JavaScript body for an async function. Use return for the result."},
            }, "required": ["code"], "additionalProperties": false}),
        ),
        SEARCH => (
            SEARCH_TEXT,
            json!({"type": "object", "properties": {
                "queries": {"type": "array", "maxItems": 16, "description": "One query per step of the task.", "items": {
                    "type": "object", "properties": {"query": query, "limit": limit}, "required": ["query"], "additionalProperties": false,
                }},
                "query": query, "limit": limit,
            }, "additionalProperties": false}),
        ),
        DESCRIBE => (
            DESCRIBE_TEXT,
            json!({"type": "object", "properties": {"id": id}, "required": ["id"], "additionalProperties": false}),
        ),
        CALL | DISPATCH => (
            CALL_TEXT,
            json!({"type": "object", "properties": {
                "id": id, "args": {"type": "object", "description": "The tool's arguments.", "additionalProperties": true},
            }, "required": ["id"], "additionalProperties": false}),
        ),
        _ => return None,
    };
    match schema {
        Value::Object(schema) => Some((description, schema)),
        _ => None,
    }
}

/// The definitions to register. Reading and calling through them changes nothing by itself: what is called is judged,
/// recorded and counted as itself.
pub fn definitions() -> Vec<ToolDefinition> {
    CONTROL_NAMES.into_iter().filter_map(definition).collect()
}

fn definition(name: &'static str) -> Option<ToolDefinition> {
    let (description, schema) = shown(name)?;
    // The same properties without their types: what is wrong with them is said by the tool, in its own words.
    let mut properties = Map::new();
    if let Some(Value::Object(given)) = schema.get("properties") {
        for (key, property) in given {
            let text = property.get("description").cloned().unwrap_or_default();
            properties.insert(key.clone(), json!({"description": text}));
        }
    }
    let open = Map::from_iter([
        ("type".to_owned(), json!("object")),
        ("properties".to_owned(), Value::Object(properties)),
        ("additionalProperties".to_owned(), json!(true)),
    ]);
    let title = match name {
        CODE => "Tool search with code",
        SEARCH => "Search tools",
        DESCRIBE => "Describe a tool",
        _ => "Call a tool",
    };
    Some(ToolDefinition {
        name: ToolName::parse(name).ok()?,
        title: title.to_owned(),
        description: description.to_owned(),
        category: "tools".into(),
        risk_level: RiskLevel::ReadOnly,
        version: "1.0.0".into(),
        input_schema: open.into(),
        output_schema: None,
        side_effects: Vec::new(),
        idempotency: Idempotency::Pure,
        required_permissions: Vec::new(),
        availability: Default::default(),
        cancellable: true,
        supports_dry_run: true,
        default_timeout_ms: CONTROL_TIMEOUT_MS,
        max_timeout_ms: None,
        undo: Default::default(),
    })
}
