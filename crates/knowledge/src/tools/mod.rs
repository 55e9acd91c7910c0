//! The four tools, one file each, with the arguments (whose comments are the descriptions that models read), the data
//! and the implementation.

pub mod index;
mod memory_store;
pub mod search;
pub mod status;

use crate::{
    envelope::{Envelope, Health, Meta, Problem},
    service::Knowledge,
};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::{
    sync::{Arc, LazyLock},
    time::Instant,
};
use toolyard_catalog::{RegistryError, ToolEntry, ToolSource};
use toolyard_engine::{BoxFuture, BuiltIn, CallContext, Output};
use toolyard_protocol::{ErrorCode, Failure, Idempotency, ToolCall, ToolDefinition, ToolDefinitionError};
use toolyard_vault::VaultPath;

/// Default timeout of a call.
const TIMEOUT_MS: u64 = 30_000;
/// Maximum timeout of a call.
const MAX_TIMEOUT_MS: u64 = 600_000;
// A search must still have time for full text after waiting for a vector without success.
const _: () = assert!(crate::embed::LONGEST_WAIT.as_millis() * 3 / 2 < TIMEOUT_MS as u128);

pub(crate) type Args = Map<String, Value>;

/// A tool for callers in Rust: its input, and the data in its [`Envelope`].
pub trait NotesTool {
    /// The tool's name.
    const NAME: &'static str;
    /// The arguments.
    type Input: Serialize;
    /// The data in the envelope.
    type Data: Serialize + DeserializeOwned;
}

/// The context of a tool call.
pub(crate) struct Call<'a> {
    pub(crate) knowledge: &'a Arc<Knowledge>,
    pub(crate) context: &'a CallContext,
    pub(crate) call: &'a ToolCall,
    pub(crate) started: Instant,
}

type Run = for<'a> fn(Call<'a>, Args) -> BoxFuture<'a, Result<Output, Failure>>;

pub(crate) struct Tool {
    pub(crate) name: &'static str,
    define: fn() -> BuiltIn,
    pub(crate) run: Run,
}

/// A tool that reads notes.
fn reads<A: JsonSchema, D: JsonSchema>(title: &'static str, description: &'static str) -> BuiltIn {
    notes_tool::<A, D>(BuiltIn::reads(title, description)).permissions(&["vault:read"])
}

/// A tool that writes Toolyard's own state. A second call with the same arguments changes nothing.
fn writes<A: JsonSchema, D: JsonSchema>(
    title: &'static str,
    description: &'static str,
    side_effects: &'static [&'static str],
) -> BuiltIn {
    notes_tool::<A, D>(BuiltIn::writes(title, description, side_effects)).idempotency(Idempotency::Idempotent)
}

fn notes_tool<A: JsonSchema, D: JsonSchema>(tool: BuiltIn) -> BuiltIn {
    tool.arguments::<A>()
        .answer_schema(envelope_schema::<D>())
        .category("memory")
        .requires(&["vault"])
        .timeout_ms(TIMEOUT_MS, Some(MAX_TIMEOUT_MS))
}

pub(crate) static TOOLS: &[&Tool] = &[&search::TOOL, &index::TOOL, &status::TOOL, &memory_store::TOOL];

pub(crate) fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().copied().find(|tool| tool.name == name)
}

/// The tool definitions for the registry.
///
/// # Errors
/// The first tool whose definition is invalid.
pub fn definitions() -> Result<Vec<ToolDefinition>, ToolDefinitionError> {
    TOOLS.iter().map(|tool| (tool.define)().build(tool.name)).collect()
}

/// The registry entries of the tools. Invalid arguments are reported in the envelope, like every other problem.
///
/// # Errors
/// The first tool whose definition is invalid.
pub fn entries() -> Result<Vec<ToolEntry>, RegistryError> {
    let entry = |definition| {
        let entry = ToolEntry::new(definition, ToolSource::core())?;
        Ok(entry.reporting_invalid_arguments_itself().of_owner())
    };
    definitions()?.into_iter().map(entry).collect()
}

/// The tools' schemas, compiled once.
static CHECKED: LazyLock<Vec<ToolEntry>> = LazyLock::new(|| {
    entries().unwrap_or_else(|error| {
        tracing::error!(%error, "the schemas of the note tools are invalid");
        Vec::new()
    })
});

/// The problem with a tool's arguments, if they do not match the schema.
pub(crate) fn misfit(tool: &str, args: &Value) -> Option<Problem> {
    let entry = CHECKED.iter().find(|entry| entry.name().as_str() == tool)?;
    let violations = entry.check_input(args).err()?;
    let texts: Vec<String> = violations.iter().map(|v| format!("{}: {}", v.path, v.message)).collect();
    Some(Problem::argument("", &texts.join("; "), "Correct what is named, then call again."))
}

/// The schema of the envelope with this data.
fn envelope_schema<T: JsonSchema>() -> Args {
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let value: Value = settings.into_generator().into_root_schema_for::<Envelope<T>>().into();
    match value {
        Value::Object(mut map) => {
            map.remove("title");
            map
        }
        _ => Map::new(),
    }
}

/// Parses the arguments. The engine has already validated them against the schema; other callers have not.
fn parse<T: DeserializeOwned>(args: Args) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(args))
        .map_err(|error| Failure::new(ErrorCode::ValidationError, format!("the arguments do not fit: {error}")))
}

fn answer<T: Serialize>(
    status: Health,
    data: Option<T>,
    error: Option<Problem>,
    meta: Meta,
    message: impl Into<String>,
) -> Result<Output, Failure> {
    let message = match &error {
        Some(problem) => format!("{} {}", problem.message, problem.suggestion),
        None => message.into(),
    };
    let debug_message = error.as_ref().and_then(|problem| problem.causes.clone());
    let data = Envelope { status, data, error, meta }.into_map();
    Ok(Output { user_message: Some(message), debug_message, ..Output::data(data) })
}

impl Call<'_> {
    /// A response that contains only a problem.
    pub(crate) async fn refused<T: Serialize>(&self, problem: Problem) -> Result<Output, Failure> {
        let library = self.knowledge.library().await.ok();
        let meta = self.knowledge.meta(self.started, library.as_deref(), 0);
        answer::<T>(problem.status(), None, Some(problem), meta, "")
    }

    /// A path from an argument: inside the vault, not hidden, not through a link that leads outside, and allowed by the
    /// policy.
    async fn path(&self, text: &str, which: &str) -> Result<VaultPath, Problem> {
        let path = VaultPath::parse(text.trim_end_matches('/')).map_err(|_| Problem::path(which))?;
        let filter = self.knowledge.paths_of(&self.call.policy.sandbox);
        if !filter.allows(path.as_str()) && !filter.leads_to_allowed(path.as_str()) {
            return Err(Problem::path(which));
        }
        let (vault, asked) = (self.knowledge.vault.clone(), path.clone());
        match tokio::task::spawn_blocking(move || vault.reaches(&asked)).await {
            Ok(Ok(_)) => Ok(path),
            _ => Err(Problem::path(which)),
        }
    }
}
