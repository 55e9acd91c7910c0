//! The control tools.

use schemars::JsonSchema;
use serde_json::{Map, Number, Value};
use toolyard_catalog::{
    RegistryError, ToolEntry, ToolSource,
    surface::{CALL, CODE, DESCRIBE, DISPATCH, SEARCH},
};
use toolyard_engine::BuiltIn;
use toolyard_protocol::{ToolDefinition, ToolDefinitionError};

/// The timeout of a control call. Scripts have their own timeout.
const CONTROL_TIMEOUT_MS: u64 = 120_000;

const SEARCH_TEXT: &str = "Search the tool catalog. Ask in English, one short query per step of the task, and send all of them at once in `queries`: \
that finds far more than one query for the whole task. Answers with ids, names and descriptions.";
const DESCRIBE_TEXT: &str =
    "Show everything about one tool found with tool_search, with the exact JSON Schema of its arguments.";
const CALL_TEXT: &str = "Call one tool found with tool_search. Put the tool's arguments into `args`.";
const CODE_TEXT: &str = "Find and call tools from a catalog that is not listed here, with JavaScript. The body of an async function; use return. No network, no files. \
API: await openclaw.tools.search(query | [query, ...], {limit}) finds tools: give one short English query per step of the task, all at once, which finds far more than one query for the whole; \
await openclaw.tools.describe(id) gives the exact input schema; await openclaw.tools.call(id, args) runs the tool and gives {tool, result: {content, details}}; console.log(...). \
Failed calls throw an Error with a code.";

// The fields' comments are what models read.

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code, reason = "`arguments` reads what models send; here it only makes the schema")]
struct CodeArgs {
    /// JavaScript body for an async function. Use return for the result.
    code: String,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code, reason = "`arguments` reads what models send; here it only makes the schema")]
struct SearchArgs {
    /// One query per step of the task.
    #[schemars(length(max = 16))]
    queries: Option<Vec<StepQuery>>,
    /// What the tool should do, in a few English words.
    query: Option<String>,
    /// At most this many tools.
    limit: Option<Number>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code, reason = "`arguments` reads what models send; here it only makes the schema")]
struct StepQuery {
    /// What the tool should do, in a few English words.
    query: String,
    /// At most this many tools.
    limit: Option<Number>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code, reason = "`arguments` reads what models send; here it only makes the schema")]
struct DescribeArgs {
    /// The tool's id or its exact name.
    id: String,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code, reason = "`arguments` reads what models send; here it only makes the schema")]
struct CallArgs {
    /// The tool's id or its exact name.
    id: String,
    /// The tool's arguments.
    args: Option<Map<String, Value>>,
}

/// The definitions to register. The control tools themselves change nothing: the tools that they call are decided,
/// recorded and counted separately.
///
/// # Errors
/// The first tool that is described wrongly.
pub fn definitions() -> Result<Vec<ToolDefinition>, ToolDefinitionError> {
    let call = || BuiltIn::reads("Call a tool", CALL_TEXT).arguments::<CallArgs>();
    [
        (CODE, BuiltIn::reads("Tool search with code", CODE_TEXT).arguments::<CodeArgs>()),
        (SEARCH, BuiltIn::reads("Search tools", SEARCH_TEXT).arguments::<SearchArgs>()),
        (DESCRIBE, BuiltIn::reads("Describe a tool", DESCRIBE_TEXT).arguments::<DescribeArgs>()),
        (CALL, call()),
        (DISPATCH, call()),
    ]
    .into_iter()
    .map(|(name, tool)| tool.category("tools").dry_run(true).timeout_ms(CONTROL_TIMEOUT_MS, None).build(name))
    .collect()
}

/// The entries to register. The tools check their arguments themselves: a model that gets the form slightly wrong is
/// understood (see [`crate::arguments`]) rather than refused by the schema check.
pub(crate) fn entries() -> Result<Vec<ToolEntry>, RegistryError> {
    let entry = |definition| Ok(ToolEntry::new(definition, ToolSource::core())?.with_own_checks(true));
    definitions()?.into_iter().map(entry).collect()
}
