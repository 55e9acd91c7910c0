//! [`ActionPlan`]: the steps that a planner (a model or a person) wants to run.
//!
//! Strict at every level: an unknown key is an error, because a misspelt `dependsOn` that is quietly ignored changes
//! what a plan does. What a plan cannot say is as important: it has no conditions, no policy and no confirmation of
//! its own.

use crate::{RiskLevel, StepId};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value};

/// The `$id` of the plan schema.
pub const PLAN_SCHEMA_ID: &str = "https://example.com/obsidian-embedded-agent/action-plan.schema.json";

/// A whole plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ActionPlan {
    /// Version of the plan format, `1.0` or `1.1.0`.
    #[serde(deserialize_with = "plan_version")]
    #[schemars(regex(pattern = r"^[0-9]+\.[0-9]+(\.[0-9]+)?$"))]
    pub version: String,
    /// The purpose of the plan.
    #[serde(deserialize_with = "non_empty")]
    #[schemars(length(min = 1))]
    pub goal: String,
    /// What the planner took for granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "non_empty_items")]
    #[schemars(inner(length(min = 1)))]
    pub assumptions: Vec<String>,
    /// The highest risk among the tools it uses.
    pub risk_level: RiskLevel,
    /// What a door must supply before the run starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context_requests: Vec<ContextRequest>,
    /// Defaults for steps that do not set these values.
    #[serde(default, skip_serializing_if = "is_default")]
    pub defaults: PlanDefaults,
    /// The steps, at least one.
    #[serde(deserialize_with = "at_least_one_step")]
    #[schemars(length(min = 1))]
    pub steps: Vec<Step>,
    /// What the closing report shows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outputs: PlanOutputs,
    /// For display; never affects execution.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ui_hints: UiHints,
}

/// Something only a connected client knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContextRequest {
    /// The requested value; it is available as `$ctx.<kind>`.
    pub kind: ContextKind,
    /// Free options for the client.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
}

/// Kinds of context a plan can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ContextKind {
    /// Path of the note in front of the user.
    ActiveFilePath,
    /// The selected text.
    Selection,
    /// The position of the cursor.
    Cursor,
    /// Open panes and views.
    WorkspaceContext,
    /// Commands the client can run.
    CommandList,
    /// Files of the vault; Toolyard answers this one itself.
    VaultFileList,
}

impl ContextKind {
    /// The name used in plans and in `$ctx.` references.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ActiveFilePath => "activeFilePath",
            Self::Selection => "selection",
            Self::Cursor => "cursor",
            Self::WorkspaceContext => "workspaceContext",
            Self::CommandList => "commandList",
            Self::VaultFileList => "vaultFileList",
        }
    }
}

/// Defaults for all steps of a plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanDefaults {
    /// What to do when a step fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
    /// How often to try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
}

/// What happens to the rest of the plan when a step fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// End the run as failed.
    Stop,
    /// Go on; steps that depend on this one are skipped.
    Skip,
    /// Retry the step; if all attempts fail, stop the run.
    Retry,
}

/// How often to try and how long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicy {
    /// Total tries, the first included.
    #[serde(deserialize_with = "attempts")]
    #[schemars(range(min = 1, max = 10))]
    pub max_attempts: u32,
    /// First delay; doubles each time, with jitter.
    #[serde(default = "default_backoff", deserialize_with = "backoff")]
    #[schemars(range(max = 600_000))]
    pub backoff_ms: u64,
}

fn default_backoff() -> u64 {
    250
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_attempts: 3, backoff_ms: default_backoff() }
    }
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// Unique in the plan.
    pub id: StepId,
    /// The tool's name.
    #[serde(deserialize_with = "non_empty")]
    #[schemars(length(min = 1))]
    pub tool: String,
    /// Arguments; strings may hold references.
    pub args: Map<String, Value>,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "non_empty_option")]
    #[schemars(length(min = 1))]
    pub preview: Option<String>,
    /// Steps that must have succeeded before.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "unique_steps")]
    #[schemars(extend("uniqueItems" = true))]
    pub depends_on: Vec<StepId>,
    /// Run once for each item of a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreach: Option<Foreach>,
    /// Also keep the output as `$vars.<name>`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "capture_name")]
    #[schemars(regex(pattern = r"^[A-Za-z][A-Za-z0-9_\-\.]*$"))]
    pub capture_as: Option<String>,
    /// What to do when it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
    /// How often to try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// How long one try may take.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub timeout_ms: Option<u64>,
    /// Free labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "non_empty_items")]
    #[schemars(inner(length(min = 1)))]
    pub tags: Vec<String>,
}

/// Run a step once for each item of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Foreach {
    /// A reference to a list, for example `$steps.parse.items`.
    #[serde(deserialize_with = "non_empty")]
    #[schemars(length(min = 1))]
    pub from: String,
    /// The name of the item in `{item.field}`.
    #[serde(deserialize_with = "binding_name")]
    #[schemars(regex(pattern = r"^[A-Za-z][A-Za-z0-9_\-]*$"))]
    pub item_name: String,
    /// The name of the index. Default: `index`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "binding_name_option")]
    #[schemars(regex(pattern = r"^[A-Za-z][A-Za-z0-9_\-]*$"))]
    pub index_name: Option<String>,
    /// Maximum number of iterations in flight. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "positive_u32")]
    #[schemars(range(min = 1))]
    pub concurrency: Option<u32>,
}

/// What the closing report shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PlanOutputs {
    /// List new files.
    pub show_created_files: bool,
    /// List changed files.
    pub show_modified_files: bool,
    /// List commands that ran.
    pub show_command_runs: bool,
}

impl Default for PlanOutputs {
    fn default() -> Self {
        Self { show_created_files: true, show_modified_files: true, show_command_runs: true }
    }
}

/// For display only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UiHints {
    /// A heading for display.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "non_empty_option")]
    #[schemars(length(min = 1))]
    pub title: Option<String>,
    /// A paragraph for display.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "non_empty_option")]
    #[schemars(length(min = 1))]
    pub summary: Option<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    value == &T::default()
}

fn non_empty<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    let text = String::deserialize(d)?;
    if text.is_empty() { Err(D::Error::custom("must not be empty")) } else { Ok(text) }
}

fn non_empty_option<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    non_empty(d).map(Some)
}

fn non_empty_items<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    let items = Vec::<String>::deserialize(d)?;
    if items.iter().any(String::is_empty) { Err(D::Error::custom("items must not be empty")) } else { Ok(items) }
}

fn plan_version<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    let text = String::deserialize(d)?;
    let parts: Vec<&str> = text.split('.').collect();
    let digits = |p: &&str| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit());
    if (2..=3).contains(&parts.len()) && parts.iter().all(digits) {
        if parts[0] != "1" {
            return Err(D::Error::custom(format!(
                "plan format version {text} is not supported; this Toolyard reads 1.x"
            )));
        }
        Ok(text)
    } else {
        Err(D::Error::custom(format!("plan version {text:?} must look like \"1.0\" or \"1.1.0\"")))
    }
}

fn at_least_one_step<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Step>, D::Error> {
    let steps = Vec::<Step>::deserialize(d)?;
    if steps.is_empty() { Err(D::Error::custom("a plan needs at least one step")) } else { Ok(steps) }
}

fn unique_steps<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<StepId>, D::Error> {
    let ids = Vec::<StepId>::deserialize(d)?;
    let mut seen = std::collections::HashSet::new();
    match ids.iter().find(|id| !seen.insert(id.as_str())) {
        Some(twice) => Err(D::Error::custom(format!("dependsOn names {twice} twice"))),
        None => Ok(ids),
    }
}

fn attempts<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
    match u32::deserialize(d)? {
        n @ 1..=10 => Ok(n),
        n => Err(D::Error::custom(format!("maxAttempts is {n}; it must be 1 to 10"))),
    }
}

fn backoff<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    match u64::deserialize(d)? {
        n @ 0..=600_000 => Ok(n),
        n => Err(D::Error::custom(format!("backoffMs is {n}; it must be 0 to 600000"))),
    }
}

fn positive<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    match u64::deserialize(d)? {
        0 => Err(D::Error::custom("must be at least 1")),
        n => Ok(Some(n)),
    }
}

fn positive_u32<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    match u32::deserialize(d)? {
        0 => Err(D::Error::custom("must be at least 1")),
        n => Ok(Some(n)),
    }
}

fn binding_name<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    StepId::deserialize(d).map(String::from)
}

fn binding_name_option<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    binding_name(d).map(Some)
}

fn capture_name<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(d)?;
    let mut bytes = text.bytes();
    let ok = text.len() <= 128
        && bytes.next().is_some_and(|b| b.is_ascii_alphabetic())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    if ok { Ok(Some(text)) } else { Err(D::Error::custom(format!("captureAs {text:?} is not a valid name"))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn minimal() -> Value {
        json!({"version":"1.0","goal":"g","riskLevel":"read-only","steps":[{"id":"a","tool":"t","args":{}}]})
    }

    #[test]
    fn a_minimal_plan_round_trips_without_growing() {
        let plan: ActionPlan = serde_json::from_value(minimal()).unwrap();
        assert_eq!(serde_json::to_value(&plan).unwrap(), minimal());
    }

    #[toolyard_shows::shows("002-0-03", "002-2-01")]
    #[test]
    fn every_rule_of_the_schema_is_enforced() {
        let cases = [
            ("/version", json!("1"), "must look like"),
            ("/version", json!("2.0"), "not supported"),
            ("/goal", json!(""), "must not be empty"),
            ("/riskLevel", json!("none"), "unknown variant"),
            ("/steps", json!([]), "at least one step"),
            ("/extra", json!(1), "unknown field"),
            ("/steps/0/id", json!("1a"), "step id"),
            ("/steps/0/args", json!("x"), "invalid type"),
            ("/steps/0/when", json!("x"), "unknown field"),
            ("/steps/0/preview", json!(""), "must not be empty"),
            ("/steps/0/dependsOn", json!(["b", "b"]), "twice"),
            ("/steps/0/timeoutMs", json!(0), "at least 1"),
            ("/steps/0/retry", json!({"maxAttempts":11}), "1 to 10"),
            ("/steps/0/retry", json!({"maxAttempts":1,"backoffMs":600001}), "0 to 600000"),
            ("/steps/0/retry", json!({}), "missing field"),
            ("/steps/0/foreach", json!({"from":"","itemName":"i"}), "must not be empty"),
            ("/steps/0/foreach", json!({"from":"$steps.a","itemName":"i","concurrency":0}), "at least 1"),
            ("/steps/0/captureAs", json!("9"), "not a valid name"),
            ("/steps/0/onError", json!("ignore"), "unknown variant"),
            ("/contextRequests", json!([{"kind":"weather"}]), "unknown variant"),
            ("/uiHints", json!({"title":""}), "must not be empty"),
        ];
        for (pointer, bad, why) in cases {
            let mut value = minimal();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            value.pointer_mut(parent).unwrap()[key] = bad;
            let err = serde_json::from_value::<ActionPlan>(value).unwrap_err().to_string();
            assert!(err.contains(why), "{pointer}: {err}");
        }
    }
}
