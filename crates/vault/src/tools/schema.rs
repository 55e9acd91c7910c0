//! Argument types that several tools share.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use std::borrow::Cow;

/// A path from the vault's root, with forward slashes.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(crate) struct PathArg(pub(crate) String);

impl JsonSchema for PathArg {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "VaultPath".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "vault-path", "maxLength": crate::path::MAX_PATH_BYTES })
    }
}

/// The arguments that every tool takes.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "`split_meta` reads them; here they only make the schema")]
pub(super) struct CommonArgs {
    /// Why this is done; kept in the record.
    #[schemars(length(max = 2000))]
    note: Option<String>,
    /// Set by the executor, never by a planner.
    #[schemars(length(max = 200))]
    request_id: Option<String>,
}

/// What a tool takes that can predict its effects.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "`split_meta` reads it; here it only makes the schema")]
pub(super) struct DryRunArgs {
    /// Predict what would happen and change nothing.
    #[serde(default)]
    dry_run: bool,
}
