//! Approvals over the Gateway: questions of policy and hooks, and those that clients ask themselves (`exec.*`,
//! `plugin.*`). The engine stores questions and answers; this module shows them and checks who may answer.

mod asker;
pub mod people;
mod put;
mod question;
mod show;

pub(crate) use asker::{Answerer, Asker};
use question::{DecisionWord, ExecQuestion, PluginQuestion};
use show::{CommandQuestion, Decided, Snapshot};
pub(crate) use show::{Requested, Resolved, kind};

use crate::{
    Call, Handle, Hub, Lane, MethodError, NoParams, RpcError, Terms,
    express::promptly,
    methods,
    params::{Count, Text},
};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolyard_engine::approvals::{Approval, ApprovalDecision, GrantScope, Verdict};
use toolyard_protocol::Failure;

/// The number of questions in one page of the history, by default.
const DEFAULT_PAGE: usize = 50;
/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

methods! {
    /// Asks a plugin's question and waits for the answer.
    PluginApprovalRequest = "plugin.approval.request", Terms::question().lane(Lane::Waiting), PluginQuestion => Decided;
    /// Waits for the answer to a plugin's question.
    PluginApprovalWait = "plugin.approval.waitDecision", Terms::question().lane(Lane::Waiting), IdParams => AwaitedDecision;
    /// Lists the open questions of plugins, policy and hooks.
    PluginApprovalList = "plugin.approval.list", Terms::question(), NoParams => Vec<Requested>;
    /// Answers a question of a plugin, a policy or a hook.
    PluginApprovalResolve = "plugin.approval.resolve", Terms::consent(), ResolveParams => Accepted;
    /// Asks whether a command may run, and waits for the answer.
    ExecApprovalRequest = "exec.approval.request", Terms::question().lane(Lane::Waiting), ExecQuestion => Decided;
    /// Waits for the answer to a command's question.
    ExecApprovalWait = "exec.approval.waitDecision", Terms::question().lane(Lane::Waiting), IdParams => AwaitedDecision;
    /// Lists the open questions about commands.
    ExecApprovalList = "exec.approval.list", Terms::question(), NoParams => Vec<Requested>;
    /// Shows an open question about a command.
    ExecApprovalGet = "exec.approval.get", Terms::question(), IdParams => CommandQuestion;
    /// Answers a question about a command.
    ExecApprovalResolve = "exec.approval.resolve", Terms::consent(), ResolveParams => Accepted;
    /// Shows a question of any kind with its outcome.
    ApprovalGet = "approval.get", Terms::question(), IdParams => ApprovalView;
    /// Answers a question of any kind.
    ApprovalResolve = "approval.resolve", Terms::consent(), ResolveParams => Applied;
    /// Lists questions of any kind with their outcomes, newest first.
    ApprovalHistory = "approval.history", Terms::question(), HistoryParams => History;
}

/// A question by id.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdParams {
    id: Text,
}

/// Kinds of question that clients name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// A question about a command.
    Exec,
    /// A question of a plugin, a policy or a hook.
    Plugin,
    /// A question of a system agent; Toolyard has none.
    SystemAgent,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Plugin => "plugin",
            Self::SystemAgent => "system-agent",
        }
    }
}

/// An answer to a question.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolveParams {
    id: Text,
    decision: Text,
    kind: Option<Kind>,
    reviewer: Option<Reviewer>,
    #[schemars(range(min = 1, max = 3650))]
    grant_expires_in_days: Option<Count>,
    #[schemars(range(min = 1, max = 315_360_000_000u64))]
    grant_expires_in_ms: Option<Count>,
    /// Which calls an allow-always covers; the whole tool where it is absent.
    grant_scope: Option<GrantScope>,
    /// The hash of what the person was shown; the answer is refused if the question shows something else.
    shown: Option<Text>,
}

/// A person behind a messaging channel, in whose name a channel answers.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "no channel can vouch for anybody here: an answer with a reviewer is refused")]
pub(crate) struct Reviewer {
    channel: Text,
    account_id: Text,
    sender_id: Text,
}

/// Which part of the history is shown.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HistoryParams {
    #[schemars(length(max = 512))]
    cursor: Option<Text>,
    #[schemars(range(min = 1, max = 100))]
    limit: Option<Count>,
    kind: Option<Kind>,
}

/// The confirmation that an answer was accepted.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Accepted {
    ok: bool,
}

/// Whether an answer was accepted, and the current state of the question.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Applied {
    applied: bool,
    approval: Snapshot,
}

/// A question with its outcome.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ApprovalView {
    approval: Snapshot,
}

/// The decision that a request waited for.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwaitedDecision {
    #[serde(flatten)]
    decided: Decided,
    terminal_reason: Option<String>,
}

/// Questions with their outcomes.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct History {
    items: Vec<Snapshot>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

fn not_found(method: &str) -> RpcError {
    // The methods for all kinds have shorter messages, as in the real gateway.
    if method.starts_with("approval.") {
        return RpcError::invalid("approval not found").detail("reason", "APPROVAL_NOT_FOUND");
    }
    RpcError::invalid("unknown or expired approval id").detail("reason", "APPROVAL_NOT_FOUND").detail(
        "remediation",
        "List what waits with plugin.approval.list or exec.approval.list, or see approval.history.",
    )
}

fn is_visible(call: &Call<'_>, approval: &Approval) -> Result<bool, MethodError> {
    Ok(Asker::of(&approval.request).may_be_answered_by(call.connection()?))
}

impl Hub {
    async fn approval(&self, call: &Call<'_>, id: &str, wanted: Option<&str>) -> Result<Approval, MethodError> {
        let (approvals, id) = (self.service().engine().approvals().clone(), id.to_owned());
        let caller = call.caller.clone();
        let found = promptly(move || Ok(approvals.get_for(&caller, &id)?)).await?;
        match found.filter(|approval| wanted.is_none_or(|wanted| kind(&approval.request) == wanted)) {
            Some(approval) if is_visible(call, &approval)? => Ok(approval),
            _ => Err(not_found(call.method).into()),
        }
    }

    fn pending(&self, call: &Call<'_>, wanted: &str) -> Result<Vec<Requested>, MethodError> {
        let mut shown = Vec::new();
        for approval in self.service().engine().approvals().pending_for(&call.caller) {
            if kind(&approval.request) == wanted && is_visible(call, &approval)? {
                shown.push(Requested::from(&*approval));
            }
        }
        Ok(shown)
    }

    fn now(&self) -> Timestamp {
        self.service().engine().clock().now()
    }

    async fn wait(&self, call: &Call<'_>, params: IdParams, wanted: &str) -> Result<AwaitedDecision, MethodError> {
        let gone = || MethodError::from(RpcError::invalid("approval expired or not found"));
        self.approval(call, &params.id, Some(wanted)).await.map_err(|error| match error {
            MethodError::Rpc(refused) if refused.code == "INVALID_REQUEST" => gone(),
            other => other,
        })?;
        let settled = self.service().engine().approvals().settled(&params.id).await?.ok_or_else(gone)?;
        Ok(AwaitedDecision { decided: Decided::from(&settled), terminal_reason: settled.terminal_reason.clone() })
    }

    /// Answers a question. Returns whether it was open, and its state.
    async fn resolve(
        &self,
        call: &Call<'_>,
        params: &ResolveParams,
        wanted: Option<&str>,
    ) -> Result<(bool, Result<(), Failure>), MethodError> {
        let decision = match &*params.decision {
            "allow-once" => ApprovalDecision::AllowOnce,
            "allow-always" => {
                let scope = params.grant_scope.clone().unwrap_or_default();
                ApprovalDecision::AllowAlways { until: params.grant_end()?, scope }
            }
            "deny" => ApprovalDecision::Deny,
            _ => return Err(RpcError::invalid("invalid decision").into()),
        };
        if params.reviewer.is_some() {
            // Only a messaging channel can answer in the name of a person behind it, and Toolyard has no channels.
            return Err(not_found(call.method).into());
        }
        let approval = self.approval(call, &params.id, wanted).await?;
        let was_open = approval.decision.is_none();
        let connection = call.connection()?;
        let word = show::word(&decision);
        let client = Some(connection.client.label().to_owned());
        let shown = params.shown.as_deref().map(str::to_owned);
        let mut verdict = Verdict { client, shown, ..Verdict::from(decision) };
        let allowed = show::allowed(&approval.request);
        if was_open && !allowed.contains(&word) {
            if call.method != "approval.resolve" {
                return Err(unavailable(word, &approval, &allowed).into());
            }
            // An answer that the question did not offer counts as a denial.
            verdict = Verdict { decision: ApprovalDecision::Deny, reason: "malformed-verdict", ..verdict };
        }
        let by = connection.caller("main", None);
        Ok((was_open, self.service().engine().approvals().resolve(&params.id, verdict, &by).await))
    }

    /// Answers a question of one kind.
    async fn resolve_kind(
        &self,
        call: &Call<'_>,
        params: ResolveParams,
        wanted: &'static str,
    ) -> Result<Accepted, MethodError> {
        let (_, outcome) = self.resolve(call, &params, Some(wanted)).await?;
        outcome.map(|()| Accepted { ok: true }).map_err(|failure| plain(call.method, failure))
    }
}

impl ResolveParams {
    /// When an allow-always ends; never by default.
    fn grant_end(&self) -> Result<Option<Timestamp>, RpcError> {
        let days = self.grant_expires_in_days.map(|days| days.0.saturating_mul(DAY_MS));
        let Some(ms) = self.grant_expires_in_ms.map(|ms| ms.0).or(days) else { return Ok(None) };
        let far = || RpcError::invalid("grantExpiresIn lies too far ahead");
        let span = SignedDuration::from_millis(i64::try_from(ms).map_err(|_| far())?);
        Timestamp::now().checked_add(span).map(Some).map_err(|_| far())
    }
}

/// The error for an answer that the question does not offer.
fn unavailable(word: DecisionWord, approval: &Approval, allowed: &[DecisionWord]) -> RpcError {
    let word = word.as_str();
    if kind(&approval.request) == "exec" {
        return RpcError::invalid(format!("{word} is unavailable for this command"))
            .detail("reason", "APPROVAL_ALLOW_ALWAYS_UNAVAILABLE");
    }
    let allowed: Vec<&str> = allowed.iter().map(|word| word.as_str()).collect();
    RpcError::invalid(format!("{word} is unavailable for this plugin approval")).detail("allowedDecisions", allowed)
}

/// The failure in the real gateway's format: the reason without a code.
fn plain(method: &str, failure: Failure) -> MethodError {
    match failure.details.as_ref().and_then(|details| details.get("reason")).and_then(Value::as_str) {
        Some("APPROVAL_NOT_FOUND") => not_found(method).into(),
        Some(reason) => {
            let refused = RpcError::invalid(failure.message.clone()).detail("reason", reason);
            let by = failure.details.as_ref().and_then(|details| details.get("resolvedBy"));
            by.cloned().into_iter().fold(refused, |refused, by| refused.detail("resolvedBy", by)).into()
        }
        None => failure.into(),
    }
}

impl Handle<PluginApprovalList> for Hub {
    async fn handle(&self, call: &Call<'_>, _: NoParams) -> Result<Vec<Requested>, MethodError> {
        self.pending(call, "plugin")
    }
}

impl Handle<ExecApprovalList> for Hub {
    async fn handle(&self, call: &Call<'_>, _: NoParams) -> Result<Vec<Requested>, MethodError> {
        self.pending(call, "exec")
    }
}

impl Handle<PluginApprovalWait> for Hub {
    async fn handle(&self, call: &Call<'_>, params: IdParams) -> Result<AwaitedDecision, MethodError> {
        self.wait(call, params, "plugin").await
    }
}

impl Handle<ExecApprovalWait> for Hub {
    async fn handle(&self, call: &Call<'_>, params: IdParams) -> Result<AwaitedDecision, MethodError> {
        self.wait(call, params, "exec").await
    }
}

impl Handle<PluginApprovalResolve> for Hub {
    async fn handle(&self, call: &Call<'_>, params: ResolveParams) -> Result<Accepted, MethodError> {
        self.resolve_kind(call, params, "plugin").await
    }
}

impl Handle<ExecApprovalResolve> for Hub {
    async fn handle(&self, call: &Call<'_>, params: ResolveParams) -> Result<Accepted, MethodError> {
        self.resolve_kind(call, params, "exec").await
    }
}

impl Handle<ExecApprovalGet> for Hub {
    async fn handle(&self, call: &Call<'_>, params: IdParams) -> Result<CommandQuestion, MethodError> {
        let approval = self.approval(call, &params.id, Some("exec")).await?;
        match approval.decision {
            None => Ok(CommandQuestion::from(&approval.request)),
            Some(_) => Err(not_found(call.method).into()),
        }
    }
}

impl Handle<ApprovalGet> for Hub {
    async fn handle(&self, call: &Call<'_>, params: IdParams) -> Result<ApprovalView, MethodError> {
        let approval = self.approval(call, &params.id, None).await?;
        Ok(ApprovalView { approval: Snapshot::of(&approval, self.now()) })
    }
}

impl Handle<ApprovalResolve> for Hub {
    async fn handle(&self, call: &Call<'_>, params: ResolveParams) -> Result<Applied, MethodError> {
        let wanted = params.kind.map(Kind::as_str);
        let (was_open, outcome) = self.resolve(call, &params, wanted).await?;
        let settled = self.approval(call, &params.id, wanted).await?;
        let approval = Snapshot::of(&settled, self.now());
        match outcome {
            Ok(()) => Ok(Applied { applied: was_open, approval }),
            Err(_) if settled.decision.is_some() => Ok(Applied { applied: false, approval }),
            Err(failure) => Err(plain(call.method, failure)),
        }
    }
}

impl Handle<ApprovalHistory> for Hub {
    async fn handle(&self, call: &Call<'_>, params: HistoryParams) -> Result<History, MethodError> {
        let (approvals, caller) = (self.service().engine().approvals().clone(), call.caller.clone());
        let all = promptly(move || Ok(approvals.history(&caller)?)).await?;
        let limit = params.limit.map_or(DEFAULT_PAGE, Count::as_usize);
        let skip: usize = match params.cursor {
            Some(cursor) => cursor.parse().map_err(|_| RpcError::invalid("invalid approval.history cursor"))?,
            None => 0,
        };
        let mut fits = Vec::new();
        for approval in &all {
            let is_wanted = params.kind.is_none_or(|wanted| wanted.as_str() == kind(&approval.request));
            if is_wanted && is_visible(call, approval)? {
                fits.push(approval);
            }
        }
        let now = self.now();
        let items = fits.iter().skip(skip).take(limit).map(|approval| Snapshot::of(approval, now)).collect();
        let has_more = skip.saturating_add(limit) < fits.len();
        Ok(History { items, next_cursor: has_more.then(|| (skip + limit).to_string()) })
    }
}
