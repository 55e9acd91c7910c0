//! Questions and grants for people: at the console and at the command line, with everything that a question shows.
//! OpenClaw's clients use the `approval.*`, `plugin.approval.*` and `exec.approval.*` methods instead.

use super::{Asker, question::DecisionWord, show};
use crate::{Call, Handle, Lane, MethodError, Service, Terms, express::promptly, methods, registry, service::blocking};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use tokio::sync::broadcast::error::RecvError;
use toolyard_engine::{
    approvals::{Approval, ApprovalDecision, Grant, GrantScope, PreviewState, Verdict},
    authority::{Effect, Power, Scope},
};
use toolyard_protocol::{CallId, Effects, ErrorCode, Failure, RunId};

/// The longest wait for a change of the list, in milliseconds.
const MAX_LIST_WAIT_MS: u64 = 30_000;
/// The longest life of a grant with an end, in milliseconds: ten years.
const MAX_GRANT_MS: u64 = 315_360_000_000;

methods! {
    /// Lists the open questions with arguments, diff and rule, oldest first; can wait until the list changes.
    ApprovalsList = "approvals.list", question().lane(Lane::Waiting), ListParams => Questions;
    /// Shows one question with arguments, diff and rule, and its answer.
    ApprovalsShow = "approvals.show", question(), ShowParams => ShownQuestion;
    /// Answers a question; the answer is bound to what was shown.
    ApprovalsAnswer = "approvals.answer", Terms::consent().everywhere(), AnswerParams => Answered;
    /// Lists the lasting permissions that have not ended, oldest first.
    GrantsList = "grants.list", Terms::read().everywhere(), GrantsListParams => Grants;
    /// Revokes a lasting permission.
    GrantsRevoke = "grants.revoke", Terms::new(Some(Scope::Approvals), Effect::State).uses(&[Power::Approve]).everywhere(), RevokeParams => Revoked;
}

const fn question() -> Terms {
    Terms::question().everywhere()
}

/// Which state of the list the caller knows.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ListParams {
    /// The ids of the open questions that the caller knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<Vec<String>>,
    /// How long to wait for other questions than the known ones to be open, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 30_000))]
    pub wait_ms: Option<u64>,
}

/// Open questions.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Questions {
    /// The questions, oldest first.
    pub approvals: Vec<Question>,
}

/// A question by id.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowParams {
    /// The question.
    pub id: String,
}

/// One question.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ShownQuestion {
    /// The question.
    pub approval: Question,
}

/// Everything that a person needs to answer a question.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// Its id.
    pub id: String,
    /// `policy`, `plugin` or `exec`.
    pub kind: String,
    /// A short title.
    pub title: String,
    /// Why it is asked.
    pub description: String,
    /// `info`, `warning` or `critical`.
    pub severity: String,
    /// The tool; `plans.run` for a plan.
    pub tool: String,
    /// The arguments with secrets hidden and long values shortened; the plan, for a plan.
    pub args: crate::Object,
    /// Set if some of the arguments are too long to be shown whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub args_cut: bool,
    /// The hash of the arguments.
    pub args_hash: String,
    /// Whether a dry run has predicted what the call would do.
    pub preview: PreviewState,
    /// The unified diff of everything that would change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Set if the diff is too long to be shown whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub diff_cut: bool,
    /// The predicted effects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<Effects>,
    /// Why the dry run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The configuration key or the hook that asked.
    pub rule: String,
    /// The hash of the policy that asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_hash: Option<String>,
    /// The hash of everything that is shown; an answer refers to it.
    pub shown: String,
    /// The agent that made the call.
    pub agent: String,
    /// The session of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The run of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When the question expires.
    pub expires_at: Timestamp,
    /// Whether a caller waits for the answer now. If not, the caller can ask for the result later.
    pub waiting: bool,
    /// The path arguments of the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The possible answers.
    pub decisions: Vec<String>,
    /// The scopes that a grant may have here.
    pub scopes: Vec<ScopeWord>,
    /// The answer, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<GivenAnswer>,
}

/// The scopes of grants, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScopeWord {
    /// Calls with the same arguments.
    Arguments,
    /// Calls of the tool in the same run.
    Run,
    /// Calls of the tool whose paths lie in a folder.
    Folder,
    /// All calls of the tool.
    Tool,
}

/// The answer to a question.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GivenAnswer {
    /// `allow-once`, `allow-always` or `deny`.
    pub decision: String,
    /// Who answered; absent when nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What the answering client calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The door by which the answer came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<String>,
    /// The time of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// `user`, `client-user`, `timeout`, `no-route`, `cancelled`, `superseded` or `restart`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the person wrote about a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The grant that came with the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_id: Option<String>,
}

impl Question {
    fn new(approval: &Approval, waiting: bool) -> Self {
        let request = &approval.request;
        let shown = request.shown.clone().unwrap_or_default();
        let decisions = show::allowed(request).iter().map(|word| word.as_str().to_owned()).collect();
        Self {
            id: request.id.clone(),
            kind: request.kind.clone(),
            title: request.title.clone(),
            description: request.description.clone(),
            severity: request.severity.clone(),
            tool: request.tool.clone(),
            args: shown.args,
            args_cut: shown.args_cut,
            args_hash: request.args_hash.clone(),
            preview: shown.preview,
            diff: shown.diff,
            diff_cut: shown.diff_cut,
            effects: shown.effects,
            problem: shown.problem,
            rule: request.rule.clone(),
            policy_hash: request.shown.is_some().then_some(shown.policy_hash),
            shown: request.shown_hash().to_owned(),
            agent: request.agent.clone(),
            session: request.session.clone(),
            run_id: request.run_id,
            call_id: request.call_id,
            asked_at: request.created_at,
            expires_at: request.expires_at,
            waiting,
            paths: request.paths.clone(),
            decisions,
            scopes: scopes(approval),
            answer: approval.decision.as_ref().map(|decision| GivenAnswer {
                decision: show::word(decision).as_str().to_owned(),
                by: approval.resolved_by.clone(),
                client: approval.resolved_with.clone(),
                door: approval.resolved_door.map(|door| door.as_str().to_owned()),
                at: approval.resolved_at,
                reason: approval.terminal_reason.clone(),
                note: approval.note.clone(),
                grant_id: approval.grant_id.clone(),
            }),
        }
    }
}

/// The scopes that a grant may have; none if the question does not offer allow-always. For a question that is not about
/// a call, a grant covers the same arguments alone.
fn scopes(approval: &Approval) -> Vec<ScopeWord> {
    let request = &approval.request;
    if !show::allowed(&approval.request).contains(&DecisionWord::AllowAlways) {
        return Vec::new();
    }
    match (request.call_id, request.run_id) {
        (Some(_), _) if request.paths.is_empty() => vec![ScopeWord::Arguments, ScopeWord::Run, ScopeWord::Tool],
        (Some(_), _) => vec![ScopeWord::Arguments, ScopeWord::Run, ScopeWord::Folder, ScopeWord::Tool],
        (None, _) => vec![ScopeWord::Arguments],
    }
}

/// An answer to a question.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnswerParams {
    /// The question.
    pub id: String,
    /// The answer.
    pub decision: Decision,
    /// The hash of what the person was shown; the answer is refused if the question shows something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// The reason that the caller receives with a denial; at most 500 characters are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What an `allow-always` covers; if it is absent, the whole tool without an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantParams>,
}

/// The possible answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// This call only.
    AllowOnce,
    /// This call, and those that the grant covers.
    AllowAlways,
    /// The call is denied.
    Deny,
}

/// What a lasting permission covers, and for how long.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GrantParams {
    /// Which calls.
    pub scope: GrantScope,
    /// The duration in milliseconds; unlimited if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 315_360_000_000u64))]
    pub expires_in_ms: Option<u64>,
}

/// Whether an answer was accepted, and the current state of the question.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Answered {
    /// False if the question had another answer already: see `approval.answer`.
    pub applied: bool,
    /// The question.
    pub approval: Question,
}

/// Which grants are listed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GrantsListParams {
    /// Only grants of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only grants for this tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

/// Lasting permissions.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Grants {
    /// The grants, oldest first.
    pub grants: Vec<Grant>,
}

/// A grant by id.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeParams {
    /// The grant.
    pub id: String,
}

/// A grant that was revoked.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    /// The grant.
    pub id: String,
    /// Always true.
    pub revoked: bool,
}

/// Whether the caller may see a question: the owner of this machine sees all, a client those that it may answer.
fn is_visible(call: &Call<'_>, approval: &Approval) -> bool {
    let client = call.client.as_ref();
    client.is_none_or(|client| Asker::of(&approval.request).may_be_answered_by(client.connection))
}

fn unknown(id: &str) -> MethodError {
    Failure::new(ErrorCode::NotFound, format!("there is no question {id:?}"))
        .suggest("List the open questions with `toolyard approvals list`.")
        .detail("reason", "APPROVAL_NOT_FOUND")
        .into()
}

impl Service {
    fn open_questions(&self, call: &Call<'_>) -> Vec<Arc<Approval>> {
        let pending = self.engine().approvals().pending_for(&call.caller);
        pending.into_iter().filter(|approval| is_visible(call, approval)).collect()
    }

    fn question(&self, approval: &Approval) -> Question {
        Question::new(approval, self.engine().approvals().is_awaited(&approval.request.id))
    }

    async fn visible_question(&self, call: &Call<'_>, id: &str) -> Result<Approval, MethodError> {
        let (approvals, wanted) = (self.engine().approvals().clone(), id.to_owned());
        let caller = call.caller.clone();
        let found = promptly(move || Ok(approvals.get_for(&caller, &wanted)?)).await?;
        found.filter(|approval| is_visible(call, approval)).ok_or_else(|| unknown(id))
    }

    /// The end of a grant that is given now.
    fn grant_end(&self, expires_in_ms: Option<u64>) -> Result<Option<Timestamp>, Failure> {
        let Some(ms) = expires_in_ms else { return Ok(None) };
        let out_of_range = || {
            Failure::new(ErrorCode::ValidationError, format!("grant.expiresInMs must lie between 1 and {MAX_GRANT_MS}"))
        };
        let ms = i64::try_from(ms).ok().filter(|ms| (1..=MAX_GRANT_MS.cast_signed()).contains(ms));
        let span = SignedDuration::from_millis(ms.ok_or_else(out_of_range)?);
        self.engine().clock().now().checked_add(span).map(Some).map_err(|_| out_of_range())
    }
}

impl Handle<ApprovalsList> for Service {
    async fn handle(&self, call: &Call<'_>, params: ListParams) -> Result<Questions, MethodError> {
        let approvals = self.engine().approvals();
        let mut events = approvals.subscribe();
        let wait = Duration::from_millis(params.wait_ms.unwrap_or_default().min(MAX_LIST_WAIT_MS));
        let end = tokio::time::Instant::now() + wait;
        // A person who watches the list on this machine can answer questions that are asked meanwhile.
        let is_watched = params.wait_ms.is_some() && call.client.is_none();
        let _watching = is_watched.then(|| approvals.person_reachable(&call.caller.workspace));
        loop {
            let open = self.open_questions(call);
            let ids: Vec<&str> = open.iter().map(|approval| approval.request.id.as_str()).collect();
            let is_known = |known: &Vec<String>| {
                known.len() == ids.len() && ids.iter().all(|id| known.iter().any(|other| other == id))
            };
            if !params.known.as_ref().is_some_and(is_known) || tokio::time::Instant::now() >= end {
                return Ok(Questions { approvals: open.iter().map(|approval| self.question(approval)).collect() });
            }
            tokio::select! {
                event = events.recv() => match event {
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => tokio::time::sleep_until(end).await,
                },
                () = tokio::time::sleep_until(end) => {}
            }
        }
    }
}

impl Handle<ApprovalsShow> for Service {
    async fn handle(&self, call: &Call<'_>, params: ShowParams) -> Result<ShownQuestion, MethodError> {
        let approval = self.visible_question(call, &params.id).await?;
        Ok(ShownQuestion { approval: self.question(&approval) })
    }
}

impl Handle<ApprovalsAnswer> for Service {
    async fn handle(&self, call: &Call<'_>, params: AnswerParams) -> Result<Answered, MethodError> {
        registry::decide_power(call, Power::Approve)?;
        let approval = self.visible_question(call, &params.id).await?;
        let decision = match (params.decision, params.grant) {
            (Decision::AllowOnce, None) => ApprovalDecision::AllowOnce,
            (Decision::Deny, None) => ApprovalDecision::Deny,
            (Decision::AllowAlways, grant) => {
                let grant = grant.unwrap_or_default();
                ApprovalDecision::AllowAlways { until: self.grant_end(grant.expires_in_ms)?, scope: grant.scope }
            }
            (_, Some(_)) => {
                return Err(Failure::new(ErrorCode::ValidationError, "only allow-always takes a grant").into());
            }
        };
        let allowed = show::allowed(&approval.request);
        if approval.decision.is_none() && !allowed.contains(&show::word(&decision)) {
            let words: Vec<&str> = allowed.iter().map(|word| word.as_str()).collect();
            return Err(Failure::new(ErrorCode::ValidationError, "this question does not take that answer")
                .suggest(format!("It takes: {}.", words.join(", ")))
                .into());
        }
        let client = call.client.as_ref().map(|client| client.connection.client.label().to_owned());
        let verdict = Verdict { client, shown: params.shown, note: params.note, ..Verdict::from(decision) };
        let was_open = approval.decision.is_none();
        let outcome = self.engine().approvals().resolve(&params.id, verdict, &call.caller).await;
        let settled = self.visible_question(call, &params.id).await?;
        match outcome {
            Ok(()) => Ok(Answered { applied: was_open, approval: self.question(&settled) }),
            // Somebody else was first: the question says who.
            Err(failure) if settled.decision.is_some() && is_lost(&failure) => {
                Ok(Answered { applied: false, approval: self.question(&settled) })
            }
            Err(failure) => Err(failure.into()),
        }
    }
}

fn is_lost(failure: &Failure) -> bool {
    let reason = failure.details.as_ref().and_then(|details| details.get("reason"));
    reason.is_some_and(|reason| reason == "APPROVAL_ALREADY_RESOLVED")
}

impl Handle<GrantsList> for Service {
    async fn handle(&self, call: &Call<'_>, params: GrantsListParams) -> Result<Grants, MethodError> {
        let (approvals, caller) = (self.engine().approvals().clone(), call.caller.clone());
        let mut grants = blocking(move || Ok::<_, MethodError>(approvals.grants(&caller)?)).await?;
        grants.retain(|grant| {
            params.agent.as_ref().is_none_or(|agent| *agent == grant.agent)
                && params.tool.as_ref().is_none_or(|tool| *tool == grant.tool)
        });
        Ok(Grants { grants })
    }
}

impl Handle<GrantsRevoke> for Service {
    async fn handle(&self, call: &Call<'_>, params: RevokeParams) -> Result<Revoked, MethodError> {
        registry::decide_power(call, Power::Approve)?;
        let grant = self.engine().approvals().revoke_grant(&params.id, &call.caller).await?;
        Ok(Revoked { id: grant.id, revoked: true })
    }
}
