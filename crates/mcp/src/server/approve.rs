//! Approvals by the client: whether and how a client's own user may answer approval questions about the client's calls.
//!
//! A client that reports "my user agreed" may not have asked anybody, and Toolyard cannot verify it. The owner
//! therefore decides with a setting whether such a report counts ([`ClientApprovals`]); it is valid for one call and
//! recorded as the client's report. Other approvers (the console, another client) may still answer; the first answer
//! counts.

use crate::{
    RpcError,
    wire::{self, answers::ElicitationForm},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use toolyard_engine::{
    Caller, Door, Engine,
    approvals::{Approval, ClientAnswer, DenialCause},
};
use toolyard_protocol::{ErrorCode, Failure};

/// The name of the question in an `InputRequiredResult`.
pub(crate) const KEY: &str = "approval";
/// The answer that means yes.
const ALLOW_ONCE: &str = "allow-once";
/// Characters of the description, of the arguments and of the diff that are shown.
const MAX_SHOWN: usize = 2000;
/// The shortest time in which a person can read and decline a form: a client that is faster has not asked anybody.
const FASTER_THAN_A_PERSON: Duration = Duration::from_millis(500);
/// The advice to an owner whose client does not ask anybody.
const ADVICE: &str = "Nothing ran. Run `toolyard console` (a browser) or `toolyard approvals watch` (a terminal) \
                      and answer there; or let the policy allow the tool (details.rule is the rule that asked); or, if this \
                      client asks its own user before it calls a tool (Claude Code does), set mcp.approvals = \"client\" \
                      in config.toml, as `toolyard connect CLIENT --approvals client` does. See docs/guide/mcp.md.";

/// Whether the user of an MCP client on standard input and output may approve what that client calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientApprovals {
    /// No. A connected client with the right to approve must answer.
    #[default]
    Off,
    /// A client that can show forms is asked (elicitation), and its answer counts for that call.
    Ask,
    /// The client asks its own user before it calls a tool, so its call counts as approved. A plugin hook's question is
    /// not answered in this way.
    Trust,
    /// Nobody is asked: what the policy asks about is refused.
    Refuse,
}

/// Whether the user of an MCP client over HTTP may approve that client's calls. Such a client is never trusted without
/// being asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HttpClientApprovals {
    /// The client's user cannot approve.
    #[default]
    Off,
    /// A client that can show forms is asked (elicitation), and its answer counts for that call.
    Ask,
}

impl From<HttpClientApprovals> for ClientApprovals {
    fn from(setting: HttpClientApprovals) -> Self {
        match setting {
            HttpClientApprovals::Off => Self::Off,
            HttpClientApprovals::Ask => Self::Ask,
        }
    }
}

/// The form a person is shown.
pub(crate) fn form(approval: &Approval) -> Result<Value, RpcError> {
    let request = &approval.request;
    let description: String = request.description.chars().take(MAX_SHOWN).collect();
    let mut message = format!("{}\n\n{description}\n\nTool: {}", request.title, request.tool);
    if let Some(shown) = &request.shown {
        let cut = |text: &str| text.chars().take(MAX_SHOWN).collect::<String>();
        message.push_str(&format!("\nArguments: {}", cut(&wire::value(&shown.args)?.to_string())));
        if let Some(diff) = &shown.diff {
            message.push_str(&format!("\n\n{}", cut(diff)));
        }
    }
    let requested_schema = json!({"type": "object", "required": ["decision"], "properties": {"decision": {
        "type": "string", "title": "Decision", "enum": [ALLOW_ONCE, "deny"],
        "description": "allow-once: this call only. deny: do not run it.",
    }}});
    wire::value(&ElicitationForm { mode: "form", message, requested_schema })
}

/// A client's answer to the form. One that cannot be read is no answer.
#[derive(Default, Deserialize)]
struct FormAnswer {
    action: Option<String>,
    content: Option<FormContent>,
}

#[derive(Deserialize)]
struct FormContent {
    decision: Option<String>,
}

/// The meaning of a client's answer to the form. Anything except a clear yes is a no. `None` if the client did not
/// answer. `is_headless` means that the client has reported that nobody is at its terminal.
pub(crate) fn read(answer: Option<&Value>, after: Duration, is_headless: bool) -> ClientAnswer {
    let nobody = |why: String| ClientAnswer::NobodyAsked(format!("The client cannot ask anybody: {why}."));
    let Some(answer) = answer else { return nobody("it did not answer the question".to_owned()) };
    let answer = FormAnswer::deserialize(answer).unwrap_or_default();
    let word = answer.content.as_ref().and_then(|content| content.decision.as_deref());
    match answer.action.as_deref() {
        Some("accept") if word == Some(ALLOW_ONCE) => ClientAnswer::AllowOnce,
        Some("accept") => ClientAnswer::Deny,
        // A person who denies declines the form; a client without a terminal cancels it, as Claude Code does in print
        // mode.
        Some("cancel") => nobody("it cancelled the question, as clients without a terminal do".to_owned()),
        Some("decline") if is_headless => nobody("it runs without a terminal and declines every question".to_owned()),
        Some("decline") if after < FASTER_THAN_A_PERSON => {
            let ms = after.as_millis();
            nobody(format!("it answered \"decline\" by itself after {ms} ms, as clients without a terminal do"))
        }
        Some("decline") => ClientAnswer::Deny,
        _ => nobody("it sent no answer to the question".to_owned()),
    }
}

/// Whether the client may answer this question: it concerns the client's own call, and no plugin asks it.
pub(crate) fn is_for_client(approval: &Approval, setting: ClientApprovals) -> bool {
    let request = &approval.request;
    request.call_id.is_some()
        && match setting {
            ClientApprovals::Off | ClientApprovals::Refuse => false,
            ClientApprovals::Ask => true,
            ClientApprovals::Trust => request.kind == "policy",
        }
}

/// Records the answer. One that came too late changes nothing.
pub(crate) async fn resolve(engine: Engine, approval: Arc<Approval>, client: Arc<Caller>, answer: ClientAnswer) {
    match engine.approvals().answer_by_client(&approval.request.id, answer, &client).await {
        Ok(true) => {}
        Ok(false) => tracing::info!("a client's answer to an approval was not needed any more"),
        Err(failure) => tracing::warn!(%failure, "a client's answer to an approval could not be recorded"),
    }
}

/// Adds advice if an MCP client's call was refused because nobody was asked.
pub(crate) fn advise(caller: &Caller, failure: Failure) -> Failure {
    let cause = failure.details.as_ref().and_then(|details| details.get("cause")).and_then(Value::as_str);
    let asked_nobody = [DenialCause::NobodyAsked, DenialCause::NoRoute].iter().any(|c| cause == Some(c.as_str()));
    let is_ours = caller.door == Door::Mcp && failure.code == ErrorCode::ApprovalDenied && asked_nobody;
    if is_ours { failure.suggest(ADVICE) } else { failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_a_yes_and_it_is_for_one_call() {
        let slow = Duration::from_secs(2);
        let yes = json!({"action": "accept", "content": {"decision": "allow-once"}});
        assert_eq!(read(Some(&yes), slow, false), ClientAnswer::AllowOnce);
        for no in [
            json!({"action": "decline", "content": {"decision": "allow-once"}}),
            json!({"action": "accept"}),
            json!({"action": "accept", "content": {"decision": "allow-always"}}),
            json!({"action": "accept", "content": {"decision": "yes"}}),
        ] {
            assert_eq!(read(Some(&no), slow, false), ClientAnswer::Deny, "{no}");
        }
    }

    #[test]
    fn a_client_that_asked_nobody_is_not_a_user_who_said_no() {
        let at_once = Duration::from_millis(3);
        for answer in [Some(json!({"action": "decline"})), Some(json!({"action": "cancel"})), Some(json!(null)), None] {
            let ClientAnswer::NobodyAsked(why) = read(answer.as_ref(), at_once, false) else { panic!("{answer:?}") };
            assert!(why.starts_with("The client cannot ask anybody: "), "{why}");
        }
        let late = read(Some(&json!({"action": "cancel"})), Duration::from_secs(9), false);
        assert!(matches!(late, ClientAnswer::NobodyAsked(_)), "{late:?}");
        let exec = read(Some(&json!({"action": "decline"})), Duration::from_secs(9), true);
        assert!(matches!(exec, ClientAnswer::NobodyAsked(_)), "{exec:?}");
        let chosen = json!({"action": "accept", "content": {"decision": "deny"}});
        assert_eq!(read(Some(&chosen), at_once, false), ClientAnswer::Deny);
    }

    #[test]
    fn a_client_over_http_is_never_trusted_unasked() {
        assert_eq!(ClientApprovals::from(HttpClientApprovals::default()), ClientApprovals::Off);
        assert!(serde_json::from_value::<HttpClientApprovals>(json!("trust")).is_err());
    }
}
