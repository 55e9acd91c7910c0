//! [`ToolCall`]: one invocation of a tool, as the executor passes it to the provider.

use crate::{CallId, ConfirmationId, EnvelopeError, PolicySnapshot, RiskLevel, RunId, StepId, ToolName, canonical};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{ops::Deref, sync::Arc};

/// Where in a foreach a call belongs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Iteration {
    /// Position in the list, from 0.
    pub index: u64,
    /// The name the plan gave the item.
    pub item_name: String,
    /// The item itself.
    pub item_value: Value,
}

/// The fields of a [`ToolCall`]. A bag of parts may be anything; only [`ToolCall::new`] makes it a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "ToolCall")]
pub struct ToolCallParts {
    /// Globally unique id of this invocation.
    pub call_id: CallId,
    /// The run it belongs to.
    pub run_id: RunId,
    /// The plan step it came from (`call` for a direct call).
    pub step_id: StepId,
    /// The tool's name.
    pub tool: ToolName,
    /// Which try this is, counted from 1.
    #[schemars(range(min = 1))]
    pub attempt: u32,
    /// Arguments after every reference was resolved, valid against the tool's input schema.
    pub args: Arc<Map<String, Value>>,
    /// `sha256:` + hex over the canonical JSON of `args`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args_hash: Option<String>,
    /// How long it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout_ms: Option<u64>,
    /// When it must be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    /// Whether it can be stopped once started.
    pub cancellable: bool,
    /// Where in a foreach it belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<Iteration>,
    /// Stable id of the foreach expansion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_id: Option<String>,
    /// When the call was made.
    pub created_at: Timestamp,
    /// Version of whatever wrote the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planner_version: Option<String>,
    /// Version of Toolyard.
    pub executor_version: String,
    /// Version and fingerprint of the catalog it was looked up in.
    pub tool_registry_version: String,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// The tool's risk level.
    pub risk_level: RiskLevel,
    /// The tool's category.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// What was allowed at the time.
    pub policy: Arc<PolicySnapshot>,
    /// The approval it was made under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmation_id: Option<ConfirmationId>,
}

/// A call that satisfies the specification's invariants. Read its fields through `Deref`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ToolCallParts", into = "ToolCallParts")]
pub struct ToolCall(ToolCallParts);

impl ToolCall {
    /// Checks the invariants; fills in `argsHash` when it is missing and refuses a wrong one.
    pub fn new(mut parts: ToolCallParts) -> Result<Self, EnvelopeError> {
        let fail = |problem: String| Err(EnvelopeError { envelope: "ToolCall", problem });
        if parts.attempt == 0 {
            return fail("attempt counts from 1".into());
        }
        if parts.timeout_ms == Some(0) {
            return fail("timeoutMs must be at least 1".into());
        }
        if parts.deadline_at.is_some_and(|d| d < parts.created_at) {
            return fail("deadlineAt lies before createdAt".into());
        }
        if parts.loop_id.is_some() != parts.iteration.is_some() {
            return fail("iteration and loopId go together".into());
        }
        let hash =
            canonical::hash(&parts.args).map_err(|e| EnvelopeError { envelope: "ToolCall", problem: e.to_string() })?;
        match &parts.args_hash {
            Some(given) if *given != hash => {
                return fail(format!("argsHash is {given}, but the arguments hash to {hash}"));
            }
            _ => parts.args_hash = Some(hash),
        }
        Ok(Self(parts))
    }

    /// Wraps parts whose `argsHash` the caller has just computed from the same arguments. The pipeline computes the
    /// hash once, because hooks and approval need it earlier; computing it again here would double the cost.
    pub fn with_known_hash(parts: ToolCallParts) -> Result<Self, EnvelopeError> {
        if parts.args_hash.is_none() {
            return Self::new(parts);
        }
        if parts.attempt == 0 || parts.timeout_ms == Some(0) || parts.loop_id.is_some() != parts.iteration.is_some() {
            return Self::new(parts);
        }
        Ok(Self(parts))
    }

    /// `argsHash`, always there.
    pub fn args_hash(&self) -> &str {
        self.0.args_hash.as_deref().unwrap_or_default()
    }

    /// Takes the call apart again.
    pub fn into_parts(self) -> ToolCallParts {
        self.0
    }
}

impl JsonSchema for ToolCall {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        ToolCallParts::schema_name()
    }
    fn schema_id() -> std::borrow::Cow<'static, str> {
        ToolCallParts::schema_id()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        ToolCallParts::json_schema(generator)
    }
}

impl Deref for ToolCall {
    type Target = ToolCallParts;
    fn deref(&self) -> &ToolCallParts {
        &self.0
    }
}

impl TryFrom<ToolCallParts> for ToolCall {
    type Error = EnvelopeError;
    fn try_from(parts: ToolCallParts) -> Result<Self, EnvelopeError> {
        // The specification's own sample has an iteration without a loopId, so reading accepts it.
        if parts.iteration.is_some() && parts.loop_id.is_none() {
            let loop_id = canonical::sha256_hex(format!("{}/{}", parts.run_id, parts.step_id).as_bytes());
            return Self::new(ToolCallParts { loop_id: Some(loop_id), ..parts });
        }
        Self::new(parts)
    }
}

impl From<ToolCall> for ToolCallParts {
    fn from(call: ToolCall) -> Self {
        call.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The canonical ToolCall printed in the specification, with real UUIDs in place of "uuid".
    fn sample() -> Value {
        json!({
          "callId": "0193cf0e-0000-7000-8000-000000000001", "runId": "0193cf0e-0000-7000-8000-000000000002",
          "stepId": "s5", "tool": "vault.createFile", "attempt": 1,
          "args": { "path": "XYZ/Foo.md", "content": "..." }, "timeoutMs": 30000, "cancellable": true,
          "iteration": { "index": 3, "itemName": "item", "itemValue": { "path": "XYZ/Foo.md" } },
          "createdAt": "2025-12-16T18:12:00Z", "executorVersion": "1.0.0", "toolRegistryVersion": "1.0",
          "preview": "Create note “Foo” in folder XYZ", "riskLevel": "writes", "category": "vault",
          "policy": { "confirmationsRequired": true,
            "sandbox": { "enabled": true, "allowedRoots": ["/"], "denyPatterns": ["..","://"] },
            "limits": { "maxConcurrency": 4 } },
          "confirmationId": "0193cf0e-0000-7000-8000-000000000003"
        })
    }

    #[toolyard_shows::shows(
        "002-0-01",
        "002-3.1-01",
        "002-3.1-02",
        "002-3.1-03",
        "002-3.1-12",
        "002-3.1-13",
        "002-3.1-14",
        "002-3.1-16",
        "002-3.1-20",
        "002-8-01",
        "002-8-02",
        "002-8-03",
        "002-8-04"
    )]
    #[test]
    fn the_specifications_sample_is_read_and_written_back() {
        let call: ToolCall = serde_json::from_value(sample()).unwrap();
        assert_eq!(call.policy.limits.max_concurrency, 4);
        let written = serde_json::to_value(&call).unwrap();
        for (key, value) in sample().as_object().unwrap() {
            if key != "policy" {
                assert_eq!(&written[key], value, "{key}");
            }
        }
        assert!(written["argsHash"].as_str().unwrap().starts_with("sha256:"));
    }

    #[toolyard_shows::shows("002-3.1-04", "002-3.1-06", "002-3.1-08", "002-3.1-09", "002-3.1-10", "002-3.1-19")]
    #[test]
    fn invalid_calls_cannot_be_built() {
        for (key, bad, why) in [
            ("attempt", json!(0), "attempt counts from 1"),
            ("timeoutMs", json!(0), "timeoutMs"),
            ("deadlineAt", json!("2020-01-01T00:00:00Z"), "deadlineAt"),
            ("argsHash", json!("sha256:00"), "argsHash"),
            ("stepId", json!("5 s"), "step id"),
            ("riskLevel", json!("mild"), "unknown variant"),
            ("surprise", json!(1), "unknown field"),
            ("args", json!([]), "invalid type"),
        ] {
            let mut value = sample();
            value[key] = bad;
            let err = serde_json::from_value::<ToolCall>(value).unwrap_err().to_string();
            assert!(err.contains(why), "{key}: {err}");
        }
    }
}
