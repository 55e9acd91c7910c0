//! The four tools: one file each, with the arguments (whose comments are what models read), the data and what it does.

mod index;
mod memory_store;
mod search;
mod status;

use crate::{
    envelope::{Envelope, Health, Meta, Problem},
    service::Knowledge,
};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::{sync::Arc, time::Instant};
use toolyard_catalog::Violation;
use toolyard_engine::{BoxFuture, CallContext, Output};
use toolyard_protocol::{
    Availability, ErrorCode, Failure, Idempotency, RiskLevel, ToolCall, ToolDefinition, ToolName, Undo,
};
use toolyard_vault::VaultPath;

/// Calls get this long unless more is asked for,
const TIMEOUT_MS: u64 = 30_000;
/// and at most this long.
const MAX_TIMEOUT_MS: u64 = 600_000;
// A search has to answer by words after it has waited for vectors in vain.
const _: () = assert!(crate::embed::LONGEST_WAIT.as_millis() * 3 / 2 < TIMEOUT_MS as u128);

pub(crate) type Args = Map<String, Value>;

/// What a tool is called with.
pub(crate) struct Call<'a> {
    pub(crate) knowledge: &'a Arc<Knowledge>,
    pub(crate) context: &'a CallContext,
    pub(crate) call: &'a ToolCall,
    pub(crate) started: Instant,
}

type Run = for<'a> fn(Call<'a>, Args) -> BoxFuture<'a, Result<Output, Failure>>;

pub(crate) struct Tool {
    pub(crate) name: &'static str,
    title: &'static str,
    description: &'static str,
    nature: Nature,
    input: fn() -> Args,
    output: fn() -> Args,
    pub(crate) run: Run,
}

/// What a tool does to the world, and what it takes to be let do it.
struct Nature {
    risk: RiskLevel,
    idempotency: Idempotency,
    side_effects: &'static [&'static str],
    permissions: &'static [&'static str],
}

impl Nature {
    /// Looks at notes.
    const READS: Self = Self {
        risk: RiskLevel::ReadOnly,
        idempotency: Idempotency::Pure,
        side_effects: &[],
        permissions: &["vault:read"],
    };

    /// Writes to what is kept beside the notes; doing it twice is doing it once.
    const fn writes(side_effects: &'static [&'static str], permissions: &'static [&'static str]) -> Self {
        Self { risk: RiskLevel::Writes, idempotency: Idempotency::Idempotent, side_effects, permissions }
    }
}

pub(crate) static TOOLS: &[&Tool] = &[&search::TOOL, &index::TOOL, &status::TOOL, &memory_store::TOOL];

pub(crate) fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().copied().find(|tool| tool.name == name)
}

/// The tools as the registry takes them.
pub fn definitions() -> Vec<ToolDefinition> {
    TOOLS.iter().filter_map(|tool| tool.definition()).collect()
}

impl Tool {
    fn definition(&self) -> Option<ToolDefinition> {
        let strings = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Some(ToolDefinition {
            name: ToolName::parse(self.name).ok()?,
            title: self.title.to_owned(),
            description: self.description.to_owned(),
            category: "memory".into(),
            risk_level: self.nature.risk,
            version: "1.0.0".into(),
            input_schema: (self.input)().into(),
            output_schema: Some((self.output)().into()),
            side_effects: self.nature.side_effects.iter().map(|effect| (*effect).into()).collect(),
            idempotency: self.nature.idempotency,
            required_permissions: strings(self.nature.permissions),
            availability: Availability { requires: vec!["vault".to_owned()] },
            cancellable: true,
            supports_dry_run: false,
            default_timeout_ms: TIMEOUT_MS,
            max_timeout_ms: Some(MAX_TIMEOUT_MS),
            undo: Undo::None,
        })
    }
}

fn input_schema<T: JsonSchema>() -> Args {
    toolyard_vault::args_schema::<T>()
}

/// The whole envelope with this data.
fn output_schema<T: JsonSchema + Serialize>() -> Args {
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

/// The engine has checked the arguments against the schema; this is for callers that did not.
fn parse<T: DeserializeOwned>(args: Args) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(args))
        .map_err(|error| Failure::new(ErrorCode::ValidationError, format!("the arguments do not fit: {error}")))
}

/// An argument that no schema can tell from a good one, refused as those are that a schema tells. `place` is a JSON
/// Pointer, empty for the arguments as a whole.
fn misfit(call: &Call<'_>, place: &str, message: &str, suggestion: &str) -> Failure {
    let violation = Violation { path: place.to_owned(), message: message.to_owned() };
    Violation::refusal(call.call.tool.as_str(), &[violation]).suggest(suggestion)
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
    let data = Envelope { status, data, error, meta }.into_map();
    Ok(Output { user_message: Some(message), ..Output::data(data) })
}

impl Call<'_> {
    /// An answer that is only a problem.
    async fn refused<T: Serialize>(&self, problem: Problem) -> Result<Output, Failure> {
        let library = self.knowledge.library().await.ok();
        let meta = self.knowledge.meta(self.started, library.as_deref(), 0);
        answer::<T>(problem.status(), None, Some(problem), meta, "")
    }

    /// A path from an argument: inside the vault, not hidden, not through a link that leads out, and allowed.
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
