//! [`ToolResult`]: the outcome of a call. Success, failure, timeout and cancellation have the same shape.

use crate::{CallId, Effects, EnvelopeError, ErrorCode, RunId, StepId, ToolName};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::ops::Deref;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResultStatus {
    /// The call succeeded; `data` is set.
    Ok,
    /// The call failed; `error` is set.
    Error,
    /// It did not finish in time.
    Timeout,
    /// It was stopped.
    Cancelled,
    /// It was never dispatched, because of an earlier step or a choice in the plan.
    Skipped,
}

impl ResultStatus {
    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
        }
    }
}

/// A structured error: a code to branch on, a sentence to show, what to do next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Failure {
    /// The kind of failure. `toolyard explain CODE` prints a page for each.
    pub code: ErrorCode,
    /// One sentence, safe to show.
    pub message: String,
    /// Structured facts, for example `{currentEtag}` or `{errors:[{path,message}]}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Map<String, Value>>,
    /// Whether trying again may help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// What lies behind the message, one cause a line. Never written with the failure: it becomes the result's
    /// `debugMessage`, which models do not see.
    #[serde(skip)]
    causes: Option<String>,
}

/// Causes of causes that are looked at; an error that names itself as its cause would go on for ever.
const MAX_CAUSES: usize = 16;

/// The texts of an error and of its causes, outermost first, one a line, without those that `said` or the line before
/// has already. `None` where there is nothing more to say.
pub fn cause_chain(error: &dyn std::error::Error, said: &str) -> Option<String> {
    let mut lines: Vec<String> = Vec::new();
    let chain = std::iter::successors(Some(error), |error| error.source());
    for text in chain.take(MAX_CAUSES).map(ToString::to_string) {
        let is_known = said.contains(&text) || lines.last().is_some_and(|last| last.contains(&text));
        if !text.trim().is_empty() && !is_known {
            lines.push(text);
        }
    }
    (!lines.is_empty()).then(|| lines.join("\ncaused by: "))
}

impl Failure {
    /// A failure with the code's usual suggestion.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: None,
            retryable: None,
            suggestion: Some(code.suggestion().to_owned()),
            causes: None,
        }
    }
    /// Adds what the error and its causes say and the message does not, for logs.
    #[must_use]
    pub fn caused_by(self, error: &dyn std::error::Error) -> Self {
        let causes = cause_chain(error, &self.message);
        self.with_causes(causes)
    }
    /// Adds what lies behind the message, where that is known as text only.
    #[must_use]
    pub fn with_causes(mut self, causes: Option<String>) -> Self {
        self.causes = match (self.causes, causes) {
            (Some(known), Some(more)) => Some(format!("{known}\n{more}")),
            (known, more) => known.or(more),
        };
        self
    }
    /// Removes and returns the debug message, for callers that keep it beside the failure.
    pub fn take_causes(&mut self) -> Option<String> {
        self.causes.take()
    }
    /// Replaces the suggestion.
    #[must_use]
    pub fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }
    /// Adds one fact.
    #[must_use]
    pub fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.get_or_insert_default().insert(key.to_owned(), value.into());
        self
    }
    /// Says whether trying again may help.
    #[must_use]
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = Some(retryable);
        self
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Failure {}

/// The fields of a [`ToolResult`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "ToolResult")]
pub struct ToolResultParts {
    /// The call this answers.
    pub call_id: CallId,
    /// The run it belongs to.
    pub run_id: RunId,
    /// The plan step it came from.
    pub step_id: StepId,
    /// The tool's name.
    pub tool: ToolName,
    /// Which try this was, from 1; of a call that was not dispatched, the try it would have been.
    #[schemars(range(min = 1))]
    pub attempt: u32,
    /// How it ended.
    pub status: ResultStatus,
    /// `status == "ok"`.
    pub ok: bool,
    /// The output; there exactly when ok.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Map<String, Value>>,
    /// `sha256:` + hex over the canonical JSON of `data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_hash: Option<String>,
    /// Why it failed; there whenever not ok, except that `skipped` may say it in `userMessage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// When work began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// The time between, in milliseconds.
    pub duration_ms: u64,
    /// Changes that were observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<Effects>,
    /// Short and safe to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_message: Option<String>,
    /// Further details, for logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debug_message: Option<String>,
}

/// A result that satisfies the specification's invariants. Read its fields through `Deref`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ToolResultParts", into = "ToolResultParts")]
pub struct ToolResult(ToolResultParts);

impl ToolResultParts {
    /// Checks the invariants.
    pub fn check(&self) -> Result<(), EnvelopeError> {
        let fail = |problem: &str| Err(EnvelopeError { envelope: "ToolResult", problem: problem.to_owned() });
        if self.ok != (self.status == ResultStatus::Ok) {
            return fail("ok must be true exactly when status is \"ok\"");
        }
        if self.ok != self.data.is_some() {
            return fail("data must be there exactly when status is \"ok\"");
        }
        if self.ok && self.error.is_some() {
            return fail("an ok result carries no error");
        }
        if !self.ok && self.error.is_none() && self.status != ResultStatus::Skipped {
            return fail("error must be there when status is not \"ok\"");
        }
        if self.status == ResultStatus::Skipped && self.error.is_none() && self.user_message.is_none() {
            return fail("a skipped result says why, in error or in userMessage");
        }
        if self.attempt == 0 {
            return fail("attempt counts from 1");
        }
        if self.ended_at < self.started_at {
            return fail("endedAt lies before startedAt");
        }
        Ok(())
    }
}

impl ToolResult {
    /// Checks the invariants.
    pub fn new(parts: ToolResultParts) -> Result<Self, EnvelopeError> {
        parts.check()?;
        Ok(Self(parts))
    }

    /// The result as a model may see it: what is meant for logs stays in the record.
    pub fn without_debug_message(mut self) -> Self {
        self.0.debug_message = None;
        self
    }

    /// Builds the result or, if the parts contradict each other, an `INTERNAL_ERROR` that says how. For callers that
    /// must return a result in any case.
    pub fn or_internal_error(parts: ToolResultParts) -> Self {
        match parts.check() {
            Ok(()) => Self(parts),
            Err(problem) => Self(ToolResultParts {
                status: ResultStatus::Error,
                ok: false,
                data: None,
                data_hash: None,
                error: Some(Failure::new(ErrorCode::InternalError, problem.to_string())),
                ended_at: parts.started_at,
                attempt: parts.attempt.max(1),
                ..parts
            }),
        }
    }

    /// Takes the result apart again.
    pub fn into_parts(self) -> ToolResultParts {
        self.0
    }

    /// The same result with another suggestion in its error. A result without an error is unchanged.
    pub fn with_suggestion(mut self, suggestion: String) -> Self {
        if let Some(error) = &mut self.0.error {
            error.suggestion = Some(suggestion);
        }
        self
    }
}

impl JsonSchema for ToolResult {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        ToolResultParts::schema_name()
    }
    fn schema_id() -> std::borrow::Cow<'static, str> {
        ToolResultParts::schema_id()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        ToolResultParts::json_schema(generator)
    }
}

impl Deref for ToolResult {
    type Target = ToolResultParts;
    fn deref(&self) -> &ToolResultParts {
        &self.0
    }
}

impl TryFrom<ToolResultParts> for ToolResult {
    type Error = EnvelopeError;
    fn try_from(parts: ToolResultParts) -> Result<Self, EnvelopeError> {
        Self::new(parts)
    }
}

impl From<ToolResult> for ToolResultParts {
    fn from(result: ToolResult) -> Self {
        result.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The canonical ToolResult printed in the specification, with real UUIDs in place of "uuid".
    fn sample() -> Value {
        json!({
          "callId": "0193cf0e-0000-7000-8000-000000000001", "runId": "0193cf0e-0000-7000-8000-000000000002",
          "stepId": "s5", "tool": "vault.createFile", "attempt": 1, "status": "ok", "ok": true,
          "data": { "path": "XYZ/Foo.md", "etag": "abc123", "mtime": 1734372720000i64 },
          "startedAt": "2025-12-16T18:12:01Z", "endedAt": "2025-12-16T18:12:01Z", "durationMs": 240,
          "effects": { "sideEffectsObserved": ["create-file"], "created": [{ "path": "XYZ/Foo.md", "kind": "file" }] },
          "userMessage": "Created XYZ/Foo.md"
        })
    }

    #[toolyard_shows::shows(
        "002-2-08",
        "002-3.2-01",
        "002-3.2-02",
        "002-3.2-03",
        "002-3.2-04",
        "002-3.2-18",
        "002-3.2-19",
        "002-3.2-20",
        "002-3.2-24",
        "002-8-05"
    )]
    #[test]
    fn the_specifications_sample_is_read_and_written_back() {
        let result: ToolResult = serde_json::from_value(sample()).unwrap();
        assert_eq!(serde_json::to_value(&result).unwrap(), sample());
    }

    #[test]
    fn parts_that_contradict_each_other_become_a_valid_internal_error() {
        let sound: ToolResult = serde_json::from_value(sample()).unwrap();
        assert_eq!(ToolResult::or_internal_error(sound.clone().into_parts()), sound);
        let before = "2020-01-01T00:00:00Z".parse().unwrap();
        let parts = ToolResultParts { ok: false, ended_at: before, ..sound.into_parts() };
        let repaired = ToolResult::or_internal_error(parts);
        repaired.check().unwrap();
        assert_eq!(repaired.error.as_ref().unwrap().code, ErrorCode::InternalError);
    }

    #[toolyard_shows::shows(
        "002-2-05",
        "002-2-07",
        "002-3.2-05",
        "002-3.2-09",
        "002-3.2-10",
        "002-3.2-13",
        "002-3.2-14",
        "002-3.2-17",
        "002-3.2-26",
        "002-3.2-27",
        "002-3.2-28"
    )]
    #[test]
    fn invalid_results_cannot_be_built() {
        let error = json!({"code":"NOT_FOUND","message":"x"});
        for (change, why) in [
            (json!({"ok":false}), "ok must be true"),
            (json!({"data":null}), "data must be there"),
            (json!({"error":error}), "no error"),
            (json!({"status":"error","ok":false}), "data must be there"),
            (json!({"status":"error","ok":false,"data":null}), "error must be there"),
            (json!({"status":"skipped","ok":false,"data":null,"userMessage":null}), "says why"),
            (json!({"endedAt":"2020-01-01T00:00:00Z"}), "before startedAt"),
            (json!({"error":{"code":"NO_SUCH_CODE","message":"x"}}), "unknown variant"),
        ] {
            let mut value = sample();
            for (k, v) in change.as_object().unwrap() {
                if v.is_null() {
                    value.as_object_mut().unwrap().remove(k);
                } else {
                    value[k] = v.clone();
                }
            }
            let err = serde_json::from_value::<ToolResult>(value).unwrap_err().to_string();
            assert!(err.contains(why), "{change}: {err}");
        }
    }
}
