//! The tools, one file each. A file contains the arguments (whose comments are the descriptions that models read), the
//! output, the implementation, and its tests. To add a tool, add a file and a line in [`TOOLS`].
//!
//! Read tools answer from a [`View`]; write tools only plan ([`WritePlan`]); client tools are answered by a connected
//! editor.

mod clients;
mod create_file;
mod delete;
mod ensure_folder;
mod list_files;
mod parse_bullets;
mod patch_file;
mod read_file;
mod rename;
mod restore_file;
mod schema;
mod search_text;
mod slugify;
pub(crate) mod support;
mod write_file;

use crate::{
    change::WritePlan,
    error::VaultResult,
    locks::LockScope,
    view::{StopCondition, View},
};
use schema::{CommonArgs, DryRunArgs};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::{collections::HashMap, sync::LazyLock};
use toolyard_engine::{Blobs, BuiltIn, Output};
use toolyard_protocol::{ErrorCode, Failure, Idempotency, RiskLevel, ToolDefinition, ToolDefinitionError, Undo};

type Args = Map<String, Value>;

/// What a write tool may look at while it plans.
pub(crate) struct PlanContext<'a> {
    pub(crate) view: &'a dyn View,
    pub(crate) stop: &'a StopCondition,
    pub(crate) blobs: &'a dyn Blobs,
    /// Which other paths the call may see, in addition to those that it names.
    pub(crate) paths: &'a toolyard_catalog::PathFilter,
}

/// How a tool runs.
pub(crate) enum Run {
    Read(fn(&dyn View, Args, &StopCondition) -> VaultResult<Output>),
    Write {
        scope: fn(Args) -> VaultResult<LockScope>,
        plan: fn(&PlanContext<'_>, Args) -> VaultResult<WritePlan>,
    },
    /// A connected editor answers; `check` validates the arguments first.
    Client {
        check: fn(&dyn View, Args) -> VaultResult<()>,
        writes: bool,
    },
}

pub(crate) struct Tool {
    pub(crate) name: &'static str,
    define: fn() -> BuiltIn,
    pub(crate) run: Run,
}

/// A tool that reads the vault.
fn reads<A: JsonSchema, O: JsonSchema>(title: &'static str, description: &'static str) -> BuiltIn {
    vault_tool::<A, O>(BuiltIn::reads(title, description)).permissions(&["vault:read"])
}

/// A tool that changes the vault.
fn writes<A: JsonSchema, O: JsonSchema>(
    title: &'static str,
    description: &'static str,
    side_effects: &'static [&'static str],
) -> BuiltIn {
    vault_tool::<A, O>(BuiltIn::writes(title, description, side_effects))
        .idempotency(Idempotency::Etag)
        .permissions(&["vault:write"])
        .undo(Undo::RestoreBlob)
}

fn vault_tool<A: JsonSchema, O: JsonSchema>(tool: BuiltIn) -> BuiltIn {
    tool.arguments::<A>().answers::<O>().requires(&["vault"])
}

static TOOLS: &[&Tool] = &[
    &ensure_folder::TOOL,
    &list_files::TOOL,
    &read_file::TOOL,
    &create_file::TOOL,
    &write_file::TOOL,
    &patch_file::TOOL,
    &rename::TOOL,
    &delete::TOOL,
    &search_text::TOOL,
    &restore_file::TOOL,
    &clients::GET_SELECTION,
    &clients::REPLACE_SELECTION,
    &clients::INSERT_AT_CURSOR,
    &clients::REPLACE_RANGE,
    &clients::GET_ACTIVE_FILE_PATH,
    &clients::GET_CONTEXT,
    &clients::OPEN_FILE,
    &clients::LIST_COMMANDS,
    &clients::RUN_COMMAND,
    &parse_bullets::TOOL,
    &slugify::TOOL,
];

static BY_NAME: LazyLock<HashMap<&'static str, &'static Tool>> =
    LazyLock::new(|| TOOLS.iter().map(|tool| (tool.name, *tool)).collect());

pub(crate) fn find(name: &str) -> VaultResult<&'static Tool> {
    BY_NAME.get(name).copied().ok_or_else(|| Failure::new(ErrorCode::NotFound, format!("the vault has no tool {name}")))
}

impl Tool {
    /// Whether `dryRun` means anything for it.
    pub(crate) fn can_dry_run(&self) -> bool {
        !matches!(self.run, Run::Client { writes: true, .. })
    }

    fn definition(&self) -> Result<ToolDefinition, ToolDefinitionError> {
        let mut tool = (self.define)().dry_run(self.can_dry_run()).also_takes::<CommonArgs>();
        if self.can_dry_run() {
            tool = tool.also_takes::<DryRunArgs>();
        }
        tool.build(self.name)
    }
}

/// Every tool of the provider.
///
/// # Errors
/// The first tool that is described wrongly.
pub fn definitions() -> Result<Vec<ToolDefinition>, ToolDefinitionError> {
    TOOLS.iter().map(|tool| tool.definition()).collect()
}

/// The arguments without those that every tool takes, and whether this is a dry run.
pub(crate) fn split_meta(args: &Args, can_dry_run: bool) -> VaultResult<(Args, bool)> {
    let mut args = args.clone();
    for key in ["note", "requestId"] {
        args.remove(key);
    }
    let dry_run = match args.get("dryRun") {
        Some(Value::Bool(dry_run)) if can_dry_run => *dry_run,
        None => false,
        Some(_) if can_dry_run => return Err(crate::error::validation("dryRun is true or false")),
        Some(_) => return Err(crate::error::validation("this tool cannot predict its effects, so it takes no dryRun")),
    };
    args.remove("dryRun");
    Ok((args, dry_run))
}

/// Reads a tool's own arguments. The engine has checked them against the schema; this is for callers that did not.
fn parse<T: DeserializeOwned>(args: Args) -> VaultResult<T> {
    serde_json::from_value(Value::Object(args))
        .map_err(|error| crate::error::validation(format!("the arguments do not fit: {error}")))
}

fn to_map<T: Serialize>(data: &T) -> VaultResult<Args> {
    match serde_json::to_value(data) {
        Ok(Value::Object(map)) => Ok(map),
        _ => Err(Failure::new(ErrorCode::InternalError, "the output is not an object")),
    }
}

fn answer<T: Serialize>(data: &T, message: impl Into<String>) -> VaultResult<Output> {
    Ok(Output { data: to_map(data)?, user_message: Some(message.into()), ..Output::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_definition_is_sound_and_strict() {
        let all = definitions().unwrap();
        assert_eq!(all.len(), TOOLS.len());
        for definition in &all {
            definition.check().unwrap();
            for schema in [&definition.input_schema, definition.output_schema.as_ref().unwrap()] {
                assert_eq!(schema.parse()["additionalProperties"], json!(false), "{}", definition.name);
                let text = schema.text();
                assert!(!text.contains("\"null\"") && !text.contains("$ref"), "{}: {text}", definition.name);
            }
        }
    }

    #[test]
    fn path_arguments_can_be_found_by_the_policy() {
        for definition in definitions().unwrap().into_iter().filter(|d| !d.name.as_str().starts_with("commands.")) {
            for (name, schema) in definition.input_schema.parse()["properties"].as_object().unwrap() {
                if ["path", "fromPath", "toPath", "prefix"].contains(&name.as_str()) {
                    assert_eq!(schema["format"], "vault-path", "{} {name}", definition.name);
                }
                if name == "paths" {
                    assert_eq!(schema["items"]["format"], "vault-path", "{}", definition.name);
                }
            }
        }
    }

    #[test]
    fn meta_arguments_are_split_off() {
        let args = json!({"a":1,"note":"n","requestId":"r","dryRun":true});
        let (own, dry_run) = split_meta(args.as_object().unwrap(), true).unwrap();
        assert_eq!((Value::Object(own), dry_run), (json!({"a":1}), true));
        assert!(split_meta(args.as_object().unwrap(), false).is_err());
    }
}
