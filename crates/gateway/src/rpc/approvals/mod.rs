//! Approvals over the Gateway: questions of policy and hooks, and those that clients put themselves (`exec.*`,
//! `plugin.*`). The engine keeps questions and answers; here they are shown, and it is checked who may answer.

mod asker;
mod put;
mod show;

pub(crate) use asker::Asker;
pub(crate) use show::{kind, requested, resolved};

use super::{Ask, RpcError, from_failure, promptly};
use crate::ws::params::{Field, Kind, check, count, text};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use toolyard_engine::approvals::{Approval, ApprovalDecision, Verdict};

/// Where a client's own words about its question are kept.
const REQUEST: &str = "request";
/// History in one page.
const MAX_PAGE: u64 = 100;
/// The longest life of an allow-always, in days and in milliseconds.
const MAX_GRANT_DAYS: u64 = 3650;
const MAX_GRANT_MS: u64 = MAX_GRANT_DAYS * 86_400_000;
const KINDS: &[&str] = &["exec", "plugin", "system-agent"];

const ID: &[Field] = &[Field::required("id", Kind::Text)];
const NOTHING: &[Field] = &[];
/// A person behind a messaging channel, in whose name a channel answers.
const REVIEWER: &[Field] = &[
    Field::required("channel", Kind::Text),
    Field::required("accountId", Kind::Text),
    Field::required("senderId", Kind::Text),
];
const RESOLVE: &[Field] = &[
    Field::required("id", Kind::Text),
    Field::required("decision", Kind::Text),
    Field::optional("kind", Kind::OneOf(KINDS)),
    Field::optional("reviewer", Kind::Fields(REVIEWER)),
    Field::optional("grantExpiresInDays", Kind::Between(1, MAX_GRANT_DAYS)),
    Field::optional("grantExpiresInMs", Kind::Between(1, MAX_GRANT_MS)),
];
const HISTORY: &[Field] = &[
    Field::optional("cursor", Kind::TextUpTo(512)),
    Field::optional("limit", Kind::Between(1, MAX_PAGE)),
    Field::optional("kind", Kind::OneOf(KINDS)),
];

pub(super) async fn answer(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    match ask.method {
        "plugin.approval.request" => put::plugin(ask, params).await,
        "exec.approval.request" => put::exec(ask, params).await,
        "plugin.approval.list" => list(ask, params, "plugin"),
        "exec.approval.list" => list(ask, params, "exec"),
        "plugin.approval.waitDecision" => wait(ask, params, "plugin").await,
        "exec.approval.waitDecision" => wait(ask, params, "exec").await,
        "plugin.approval.resolve" => resolve(ask, params, Some("plugin")).await,
        "exec.approval.resolve" => resolve(ask, params, Some("exec")).await,
        "approval.resolve" => resolve(ask, params, None).await,
        "approval.history" => history(ask, params).await,
        "exec.approval.get" => get(ask, params, Some("exec")).await,
        _ => get(ask, params, None).await,
    }
}

fn not_found(method: &str) -> RpcError {
    // The methods that take any kind speak more briefly, as the real gateway's do.
    if method.starts_with("approval.") {
        return RpcError::invalid("approval not found").details(json!({"reason": "APPROVAL_NOT_FOUND"}));
    }
    RpcError::invalid("unknown or expired approval id").details(json!({
        "reason": "APPROVAL_NOT_FOUND",
        "remediation": "List what waits with plugin.approval.list or exec.approval.list, or see approval.history.",
    }))
}

fn is_visible(ask: &Ask<'_>, approval: &Approval) -> bool {
    Asker::of(&approval.request).may_be_answered_by(ask.connection)
}

async fn find(ask: &Ask<'_>, id: &str, wanted: Option<&'static str>) -> Result<Approval, RpcError> {
    let (approvals, id) = (ask.gateway.service().engine().approvals().clone(), id.to_owned());
    let found = promptly(move || Ok(approvals.get(&id)?)).await?;
    found
        .filter(|a| wanted.is_none_or(|wanted| kind(&a.request) == wanted) && is_visible(ask, a))
        .ok_or_else(|| not_found(ask.method))
}

fn list(ask: &Ask<'_>, params: Option<Value>, wanted: &str) -> Result<Value, RpcError> {
    check(ask.method, params, NOTHING)?;
    let pending = ask.gateway.service().engine().approvals().pending();
    let fits = |a: &Approval| kind(&a.request) == wanted && is_visible(ask, a);
    Ok(pending.iter().filter(|a| fits(a)).map(|a| requested(a)).collect())
}

async fn get(ask: &Ask<'_>, params: Option<Value>, wanted: Option<&'static str>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, ID)?;
    let approval = find(ask, text(&params, "id").unwrap_or_default(), wanted).await?;
    if wanted == Some("exec") {
        return match approval.decision {
            None => Ok(show::command(&approval)),
            Some(_) => Err(not_found(ask.method)),
        };
    }
    Ok(json!({"approval": show::snapshot(&approval, now(ask))}))
}

fn now(ask: &Ask<'_>) -> Timestamp {
    ask.gateway.service().engine().clock().now()
}

async fn resolve(ask: &Ask<'_>, params: Option<Value>, wanted: Option<&'static str>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, RESOLVE)?;
    let wanted = wanted.or(match text(&params, "kind") {
        Some("exec") => Some("exec"),
        Some("plugin") => Some("plugin"),
        Some(_) => return Err(not_found(ask.method)),
        None => None,
    });
    let word = text(&params, "decision").unwrap_or_default();
    let decision = match word {
        "allow-once" => ApprovalDecision::AllowOnce,
        "allow-always" => ApprovalDecision::AllowAlways { until: grant_end(&params)? },
        "deny" => ApprovalDecision::Deny,
        _ => return Err(RpcError::invalid("invalid decision")),
    };
    if params.contains_key("reviewer") {
        // Only a channel can vouch for somebody behind it, and there is none here that could.
        return Err(not_found(ask.method));
    }
    let id = text(&params, "id").unwrap_or_default();
    let approval = find(ask, id, wanted).await?;
    let was_open = approval.decision.is_none();
    let client = Some(ask.connection.client.label().to_owned());
    let mut verdict = Verdict { decision, client, reason: "user" };
    let allowed = show::allowed(&approval.request);
    if was_open && !allowed.contains(&word) {
        if ask.method != "approval.resolve" {
            return Err(unavailable(word, &approval, &allowed));
        }
        // Whoever answers something that was not offered did not understand the question: that is a no.
        verdict = Verdict { decision: ApprovalDecision::Deny, reason: "malformed-verdict", ..verdict };
    }
    let approvals = ask.gateway.service().engine().approvals();
    let by = ask.connection.caller("main", None);
    let outcome = approvals.resolve(id, verdict, &by).await;
    if ask.method == "approval.resolve" {
        let settled = find(ask, id, wanted).await?;
        let shown = show::snapshot(&settled, now(ask));
        return match outcome {
            Ok(()) => Ok(json!({"applied": was_open, "approval": shown})),
            Err(_) if settled.decision.is_some() => Ok(json!({"applied": false, "approval": shown})),
            Err(failure) => Err(plain(ask.method, failure)),
        };
    }
    outcome.map(|()| json!({"ok": true})).map_err(|failure| plain(ask.method, failure))
}

/// The refusal of an answer that was not offered.
fn unavailable(word: &str, approval: &Approval, allowed: &[&str]) -> RpcError {
    if kind(&approval.request) == "exec" {
        return RpcError::invalid(format!("{word} is unavailable for this command"))
            .details(json!({"reason": "APPROVAL_ALLOW_ALWAYS_UNAVAILABLE"}));
    }
    RpcError::invalid(format!("{word} is unavailable for this plugin approval"))
        .details(json!({"allowedDecisions": allowed}))
}

/// In the real gateway's words: the reason alone, no code.
fn plain(method: &str, failure: toolyard_protocol::Failure) -> RpcError {
    match failure.details.as_ref().and_then(|d| d.get("reason")).and_then(Value::as_str) {
        Some("APPROVAL_NOT_FOUND") => not_found(method),
        Some(reason) => RpcError::invalid(failure.message.clone()).details(json!({"reason": reason})),
        None => from_failure(failure),
    }
}

/// When an allow-always ends; never, unless it was said.
fn grant_end(params: &Map<String, Value>) -> Result<Option<Timestamp>, RpcError> {
    let days = count(params, "grantExpiresInDays").map(|days| days.saturating_mul(86_400_000));
    let Some(ms) = count(params, "grantExpiresInMs").or(days) else { return Ok(None) };
    let far = || RpcError::invalid("grantExpiresIn lies too far ahead");
    let span = SignedDuration::from_millis(i64::try_from(ms).map_err(|_| far())?);
    Timestamp::now().checked_add(span).map(Some).map_err(|_| far())
}

async fn history(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, HISTORY)?;
    let approvals = ask.gateway.service().engine().approvals().clone();
    let all = promptly(move || Ok(approvals.history()?)).await?;
    let (wanted, now) = (text(&params, "kind"), now(ask));
    let limit = count(&params, "limit").unwrap_or(50) as usize;
    let skip: usize = match text(&params, "cursor") {
        Some(cursor) => cursor.parse().map_err(|_| RpcError::invalid("invalid approval.history cursor"))?,
        None => 0,
    };
    let fits = |a: &&Approval| wanted.is_none_or(|w| w == kind(&a.request)) && is_visible(ask, a);
    let fits: Vec<&Approval> = all.iter().filter(fits).collect();
    let items: Vec<Value> = fits.iter().skip(skip).take(limit).map(|a| show::snapshot(a, now)).collect();
    let mut page = json!({"items": items});
    if skip.saturating_add(limit) < fits.len() {
        page["nextCursor"] = (skip + limit).to_string().into();
    }
    Ok(page)
}

async fn wait(ask: &Ask<'_>, params: Option<Value>, wanted: &'static str) -> Result<Value, RpcError> {
    let params = check(ask.method, params, ID)?;
    let id = text(&params, "id").unwrap_or_default();
    let gone = || RpcError::invalid("approval expired or not found");
    find(ask, id, Some(wanted)).await.map_err(|error| if error.code == "INVALID_REQUEST" { gone() } else { error })?;
    let settled = ask.gateway.service().engine().approvals().settled(id).await?.ok_or_else(gone)?;
    let mut value = show::decided(&settled);
    value["terminalReason"] = settled.terminal_reason.clone().map_or(Value::Null, Value::String);
    Ok(value)
}
