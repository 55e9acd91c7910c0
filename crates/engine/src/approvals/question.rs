//! A question to a person, what it shows, and its answer, as they are stored.

use super::grants::GrantScope;
use crate::{Door, IntentTarget};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolyard_protocol::{ApprovedVia, CallId, Effects, ErrorCode, Failure, RunId, WorkspaceId, canonical};

/// A question to a person.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequest {
    /// The unique id of the question. It names the workspace in which the question is asked.
    pub id: String,
    /// `policy`, `plugin` or `exec`.
    pub kind: String,
    /// A few words.
    pub title: String,
    /// What is asked.
    pub description: String,
    /// `info`, `warning` or `critical`.
    pub severity: String,
    /// The tool that should be called.
    pub tool: String,
    /// Hash of the arguments that would be used: the answer is for these and no others.
    pub args_hash: String,
    /// The call that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// The run of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The agent that made the call.
    pub agent: String,
    /// The session of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The rule or hook that asked.
    pub rule: String,
    /// What the person is shown of the call; absent in questions of clients and of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Shown>,
    /// The path arguments of the call, which a grant for a folder is compared with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The place in a run that asks: two questions with the same slot are about the same call, and the later one
    /// replaces the earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// The question stays open when its caller stops waiting, because the caller can ask for the answer later: the run of
    /// a plan continues after a restart, and a call with an idempotency key can be made again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_kept: bool,
    /// Further fields that a door shows.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
    /// When it was asked.
    pub created_at: Timestamp,
    /// When it is too late.
    pub expires_at: Timestamp,
}

impl ApprovalRequest {
    /// The workspace in which the question is asked.
    pub fn workspace(&self) -> WorkspaceId {
        WorkspaceId::of(&self.id).0
    }

    /// The hash of what is shown. A question of a client shows what its `args_hash` covers.
    pub fn shown_hash(&self) -> &str {
        self.shown.as_ref().map_or(&self.args_hash, |shown| &shown.hash)
    }
}

/// What a question shows of a call, with secrets hidden and within limits. The hash covers the whole of it: the
/// arguments and the prediction before anything was hidden or cut, the policy, and the rule that asks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    /// The arguments. Long ones are shortened.
    pub args: Map<String, Value>,
    /// Some of the arguments are too long to be shown whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub args_cut: bool,
    /// Whether the call's effects could be predicted.
    pub preview: PreviewState,
    /// The predicted effects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<Effects>,
    /// The unified diff of everything that would change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// The diff is too long to be shown whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub diff_cut: bool,
    /// Why the prediction failed: the call itself would fail in the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The hash of the prediction: effects, diff and problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview_hash: Option<String>,
    /// The hash of the policy that asks.
    pub policy_hash: String,
    /// The hash of all of it. An answer names the hash of what was shown to the person who gave it.
    pub hash: String,
}

/// Whether a question shows what the call would do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PreviewState {
    /// The call was predicted by a dry run of it.
    Made,
    /// The tool has no dry run.
    #[default]
    None,
    /// The dry run failed.
    Failed,
}

/// The effects that a dry run of this call predicted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prediction {
    pub(crate) state: PreviewState,
    pub(crate) effects: Option<Effects>,
    pub(crate) diff: String,
    pub(crate) problem: Option<String>,
    /// The files that would change, with their state before and after.
    pub(crate) targets: Vec<IntentTarget>,
}

/// The longest diff that a question carries, in bytes.
const MAX_DIFF_BYTES: usize = 64 << 10;
/// The longest text inside the arguments that a question shows whole, in bytes.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// The most items of one list that a question shows.
const MAX_ITEMS: usize = 100;
/// All shown arguments together, in bytes of JSON.
const MAX_ARGS_BYTES: usize = 32 << 10;

/// What the hash of a prediction covers.
#[derive(Serialize)]
struct PredictionDigest<'a> {
    effects: &'a Option<Effects>,
    diff: &'a str,
    problem: &'a Option<String>,
}

/// What the hash of everything shown covers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownDigest<'a> {
    args_hash: &'a str,
    preview_hash: Option<&'a str>,
    policy_hash: &'a str,
    rule: &'a str,
}

impl Prediction {
    /// The hash of the prediction; `None` where nothing was predicted.
    fn hash(&self) -> Result<Option<String>, Failure> {
        if self.state == PreviewState::None {
            return Ok(None);
        }
        let digest = PredictionDigest { effects: &self.effects, diff: &self.diff, problem: &self.problem };
        canonical::hash(&digest).map(Some).map_err(unhashed)
    }
}

impl Shown {
    /// What a question shows of a call with these arguments and this prediction.
    pub(crate) fn new(
        args: &Map<String, Value>,
        args_hash: &str,
        prediction: &Prediction,
        preview_hash: Option<String>,
        policy_hash: &str,
        rule: &str,
    ) -> Result<Self, Failure> {
        let redactor = crate::redact::redactor();
        let preview_hash = match preview_hash {
            Some(hash) => Some(hash),
            None => prediction.hash()?,
        };
        let digest = ShownDigest { args_hash, preview_hash: preview_hash.as_deref(), policy_hash, rule };
        let hash = canonical::hash(&digest).map_err(unhashed)?;
        let mut shown = Value::Object(args.clone());
        redactor.value(&mut shown);
        let args_cut = shorten(&mut shown);
        let args = match shown {
            Value::Object(args) => args,
            _ => Map::new(),
        };
        let whole = redactor.text(&prediction.diff);
        let diff = cut(&whole, MAX_DIFF_BYTES);
        let diff_cut = diff.len() < whole.len();
        Ok(Self {
            args,
            args_cut,
            preview: prediction.state,
            effects: prediction.effects.clone(),
            diff: (!diff.is_empty()).then(|| diff.to_owned()),
            diff_cut,
            problem: prediction.problem.as_deref().map(|problem| redactor.text(problem).into_owned()),
            preview_hash,
            policy_hash: policy_hash.to_owned(),
            hash,
        })
    }
}

fn unhashed(error: canonical::CanonicalError) -> Failure {
    Failure::new(ErrorCode::InternalError, format!("what a question shows has no hash: {error}"))
}

/// The beginning of a text, at most so many bytes of it.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    &text[..end]
}

/// Shortens what is too long to be shown; true if anything was.
fn shorten(args: &mut Value) -> bool {
    let mut is_cut = shorten_value(args);
    let Value::Object(map) = args else { return is_cut };
    let mut room = MAX_ARGS_BYTES;
    for value in map.values_mut() {
        let bytes = value.to_string().len();
        match room.checked_sub(bytes) {
            Some(rest) => room = rest,
            None => {
                *value = format!("({bytes} bytes are not shown)").into();
                is_cut = true;
            }
        }
    }
    is_cut
}

fn shorten_value(value: &mut Value) -> bool {
    match value {
        Value::String(text) if text.len() > MAX_TEXT_BYTES => {
            let kept = cut(text, MAX_TEXT_BYTES);
            *text = format!("{kept} ({} more bytes)", text.len() - kept.len());
            true
        }
        Value::Array(items) => {
            let more = items.len().saturating_sub(MAX_ITEMS);
            items.truncate(MAX_ITEMS);
            let mut is_cut = more > 0;
            for item in items.iter_mut() {
                is_cut |= shorten_value(item);
            }
            if more > 0 {
                items.push(format!("({more} more)").into());
            }
            is_cut
        }
        Value::Object(map) => {
            let mut is_cut = false;
            for item in map.values_mut() {
                is_cut |= shorten_value(item);
            }
            is_cut
        }
        _ => false,
    }
}

/// What a person can say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalDecision {
    /// This call only.
    AllowOnce,
    /// This agent may make such calls from now on, or until a time: this call and a [`super::Grant`].
    AllowAlways {
        /// Until when; for ever when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// Which calls are covered. Earlier versions knew only the whole tool.
        #[serde(default, skip_serializing_if = "GrantScope::is_tool")]
        scope: GrantScope,
    },
    /// The call is denied.
    Deny,
}

impl ApprovalDecision {
    /// Whether both say the same, whatever the time limit and the scope.
    pub fn is_same_word(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// A question with its answer, if there is one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The question.
    pub request: ApprovalRequest,
    /// The answer, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<ApprovalDecision>,
    /// Who answered; absent when time ran out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
    /// The name that the answering client gives itself; it is shown and never trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_with: Option<String>,
    /// How it is known who answered.
    #[serde(default, skip_serializing_if = "ApprovedVia::is_operator")]
    pub resolved_via: ApprovedVia,
    /// The door by which the answer came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_door: Option<Door>,
    /// When the question was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<Timestamp>,
    /// The cause: a [`super::DenialCause`], a [`Verdict`], `user`, `cancelled`, `superseded` or `restart`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_reason: Option<String>,
    /// What the person wrote about a denial, for the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The grant that came with the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_id: Option<String>,
}

impl Approval {
    /// A question without an answer.
    pub(super) fn open(request: ApprovalRequest) -> Self {
        Self { request, ..Self::default() }
    }

    /// Whether an answer would still count.
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.decision.is_none() && self.request.expires_at > now
    }
}

/// A person's answer, as a door passes it to the engine.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The answer.
    pub decision: ApprovalDecision,
    /// What the answering client calls itself.
    pub client: Option<String>,
    /// Why it ends so: `user`, unless the answer could not be taken as it was given.
    pub reason: &'static str,
    /// The hash of what the person was shown; the answer is refused if the question shows something else.
    pub shown: Option<String>,
    /// What the person wrote about a denial, for the caller.
    pub note: Option<String>,
}

impl From<ApprovalDecision> for Verdict {
    fn from(decision: ApprovalDecision) -> Self {
        Self { decision, client: None, reason: "user", shown: None, note: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(args: Value) -> Shown {
        let Value::Object(args) = args else { panic!("an object") };
        Shown::new(&args, "sha256:a", &Prediction::default(), None, "sha256:p", "policy.risk.writes").unwrap()
    }

    #[test]
    fn long_arguments_are_shortened_and_the_question_says_so() {
        let whole = shown(json!({"path": "a.md", "n": 3}));
        assert!(!whole.args_cut && whole.args["path"] == "a.md");
        let long = shown(json!({"content": "é".repeat(MAX_TEXT_BYTES), "items": vec![1; MAX_ITEMS + 7]}));
        assert!(long.args_cut);
        assert!(long.args["content"].as_str().unwrap().ends_with(&format!("({MAX_TEXT_BYTES} more bytes)")));
        assert_eq!(long.args["items"][MAX_ITEMS], "(7 more)");
        let many: Map<String, Value> =
            (0..20).map(|n| (format!("k{n}"), Value::from("x".repeat(MAX_TEXT_BYTES)))).collect();
        let many = shown(Value::Object(many));
        assert!(many.args_cut && Value::Object(many.args).to_string().len() < 2 * MAX_ARGS_BYTES);
    }

    #[test]
    fn the_hash_covers_arguments_prediction_policy_and_rule() {
        let of = |args_hash: &str, diff: &str, policy: &str, rule: &str| {
            let prediction = Prediction { state: PreviewState::Made, diff: diff.to_owned(), ..Prediction::default() };
            Shown::new(&Map::new(), args_hash, &prediction, None, policy, rule).unwrap().hash
        };
        let base = of("a", "d", "p", "r");
        assert_eq!(base, of("a", "d", "p", "r"));
        for other in [of("b", "d", "p", "r"), of("a", "e", "p", "r"), of("a", "d", "q", "r"), of("a", "d", "p", "s")] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn questions_of_earlier_versions_are_read() {
        let old = json!({"request": {"id": "policy:1", "kind": "policy", "title": "t", "description": "d",
            "severity": "warning", "tool": "x", "argsHash": "sha256:a", "agent": "main", "rule": "r",
            "createdAt": "2026-01-01T00:00:00Z", "expiresAt": "2026-01-01T00:02:00Z"},
            "decision": {"allow-always": {}}, "resolvedBy": "ada"});
        let read: Approval = serde_json::from_value(old).unwrap();
        assert_eq!(read.decision, Some(ApprovalDecision::AllowAlways { until: None, scope: GrantScope::Tool }));
        assert!(read.request.shown.is_none() && !read.request.is_kept && read.resolved_door.is_none());
    }
}
