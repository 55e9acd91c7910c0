//! [`ToolDefinition`]: a tool's description of itself.

use crate::{Schema, ToolName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;

/// A tool name is at most this long.
pub const MAX_TOOL_NAME_BYTES: usize = 128;
/// The timeout of a call if the tool, the step and the policy do not set another one.
pub const DEFAULT_TIMEOUT_MS: u64 = 30_000;
/// A tool's version when it does not say one.
const DEFAULT_TOOL_VERSION: &str = "1.0.0";
/// A description longer than this is refused: it would be sent to models again and again.
const MAX_DESCRIPTION_BYTES: usize = 16 << 10;
/// A schema larger than this (as JSON) is refused.
const MAX_SCHEMA_BYTES: usize = 256 << 10;

/// How much harm a tool can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RiskLevel {
    /// Only reads.
    ReadOnly,
    /// Changes files or state that Toolyard can describe and mostly undo.
    Writes,
    /// Runs commands whose effects Toolyard cannot observe.
    Commands,
}

/// How a call whose result is unknown after a crash may be handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Idempotency {
    /// The tool has no effect: it can be run again at any time.
    Pure,
    /// The same arguments lead to the same state: run it again with the same call id.
    Idempotent,
    /// Guarded by content hashes: look at the target and decide.
    Etag,
    /// The tool itself deduplicates on `requestId` (the call id).
    Key,
    /// Never run again without a person's word.
    None,
}

/// How a call can be taken back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Undo {
    /// The call must not be repeated, and its outcome cannot be determined.
    #[default]
    None,
    /// From the effects it observed and the before-images kept by content hash.
    RestoreBlob,
}

/// What has to be there for the tool to work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Availability {
    /// For example `vault`, or `client` for what a connected editor answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
}

/// A tool's entry in the registry: a superset of what MCP clients read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolDefinition {
    /// Unique name, for example `vault.createFile`.
    pub name: ToolName,
    /// A short name for people.
    pub title: String,
    /// What the tool does and when to use it, written for a model.
    pub description: String,
    /// A coarse family: `vault`, `editor`, `util`.
    pub category: Cow<'static, str>,
    /// How much harm it can do.
    pub risk_level: RiskLevel,
    /// The tool's own version.
    #[serde(default = "default_version")]
    pub version: Cow<'static, str>,
    /// JSON Schema (2020-12) of the arguments; always an object schema.
    pub input_schema: Schema,
    /// JSON Schema of the data; always an object schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Schema>,
    /// Kinds of side effect it may have; empty for pure tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub side_effects: Vec<Cow<'static, str>>,
    /// What may be done after a crash in the middle of a call.
    pub idempotency: Idempotency,
    /// Permissions a caller needs, for example `vault:write`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_permissions: Vec<String>,
    /// What has to be there for it to work.
    #[serde(default, skip_serializing_if = "is_default")]
    pub availability: Availability,
    /// Whether a running call can be stopped.
    #[serde(default = "yes")]
    pub cancellable: bool,
    /// Whether it can predict its effects without having them.
    #[serde(default)]
    pub supports_dry_run: bool,
    /// The timeout of a call that does not set one, in milliseconds.
    #[serde(default = "default_timeout")]
    pub default_timeout_ms: u64,
    /// The most time a call may ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_timeout_ms: Option<u64>,
    /// How a call is taken back.
    #[serde(default, skip_serializing_if = "is_default")]
    pub undo: Undo,
}

fn default_version() -> Cow<'static, str> {
    DEFAULT_TOOL_VERSION.into()
}
fn default_timeout() -> u64 {
    DEFAULT_TIMEOUT_MS
}
fn yes() -> bool {
    true
}
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    value == &T::default()
}

/// Why a definition is refused at registration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tool {tool}: {problem}")]
pub struct ToolDefinitionError {
    /// The name of the tool.
    pub tool: String,
    /// What is wrong with its definition.
    pub problem: String,
}

impl ToolDefinition {
    /// Whether a call of this tool must be durable before it is made.
    pub fn has_side_effects(&self) -> bool {
        self.risk_level != RiskLevel::ReadOnly || !self.side_effects.is_empty() || self.idempotency != Idempotency::Pure
    }

    /// Checks what the type system cannot: consistency between risk, side effects and idempotency, sizes, schema shape.
    pub fn check(&self) -> Result<(), ToolDefinitionError> {
        let fail =
            |problem: &str| Err(ToolDefinitionError { tool: self.name.to_string(), problem: problem.to_owned() });
        if self.description.trim().is_empty() {
            return fail("a description is required");
        }
        if self.description.len() > MAX_DESCRIPTION_BYTES {
            return fail("the description is longer than 16 KiB");
        }
        if self.title.trim().is_empty() {
            return fail("a title is required");
        }
        for schema in std::iter::once(&self.input_schema).chain(&self.output_schema) {
            if schema.parse().get("type").and_then(Value::as_str) != Some("object") {
                return fail("input and output schemas must have \"type\":\"object\"");
            }
            if schema.text().len() > MAX_SCHEMA_BYTES {
                return fail("a schema is larger than 256 KiB");
            }
        }
        if self.risk_level == RiskLevel::ReadOnly && self.idempotency != Idempotency::Pure {
            return fail("a read-only tool must be idempotency \"pure\"");
        }
        if self.risk_level == RiskLevel::ReadOnly && !self.side_effects.is_empty() {
            return fail("a read-only tool cannot declare side effects");
        }
        if self.default_timeout_ms == 0 || self.max_timeout_ms == Some(0) {
            return fail("timeouts must be at least 1 ms");
        }
        Ok(())
    }
}
