//! Approvals by elicitation: where the client can show a form, whoever sits there is asked, and the answer counts.
//!
//! Anybody else who can approve (the console, another client) still may; the first answer wins.

use serde_json::{Value, json};
use std::sync::Arc;
use toolyard_engine::{
    Caller, Door, Engine,
    approvals::{Approval, ApprovalDecision},
};

/// The name of the question in an `InputRequiredResult`.
pub(crate) const KEY: &str = "approval";
/// Characters of the description that are shown.
const MAX_SHOWN: usize = 2000;

/// The form a person is shown.
pub(crate) fn form(approval: &Approval) -> Value {
    let request = &approval.request;
    let description: String = request.description.chars().take(MAX_SHOWN).collect();
    let message = format!("{}\n\n{description}\n\nTool: {}", request.title, request.tool);
    json!({
        "mode": "form", "message": message,
        "requestedSchema": {"type": "object", "required": ["decision"], "properties": {"decision": {
            "type": "string", "title": "Decision", "enum": ["allow-once", "allow-always", "deny"],
            "description": "allow-once: this call only. allow-always: this tool from now on. deny: do not run it.",
        }}},
    })
}

/// What a person's answer means. Anything but a clear yes is a no.
fn decision(answer: &Value) -> ApprovalDecision {
    let accepted = answer.get("action").and_then(Value::as_str) == Some("accept");
    let word = answer.get("content").and_then(|c| c.get("decision")).and_then(Value::as_str);
    match word {
        Some("allow-once") if accepted => ApprovalDecision::AllowOnce,
        Some("allow-always") if accepted => ApprovalDecision::AllowAlways { until: None },
        _ => ApprovalDecision::Deny,
    }
}

/// Notes the answer. One that came too late changes nothing.
pub(crate) async fn resolve(engine: Engine, approval: Arc<Approval>, asked_for: Arc<Caller>, answer: Value) {
    let by = Caller {
        door: Door::Mcp,
        principal: format!("{} (asked by the MCP client)", asked_for.principal),
        scopes: vec!["operator.approvals".to_owned()],
        is_person: true,
        ..Caller::clone(&asked_for)
    };
    if let Err(failure) = engine.approvals().resolve(&approval.request.id, decision(&answer), &by).await {
        tracing::info!(%failure, "an answer to an approval was not needed any more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        let yes = json!({"action": "accept", "content": {"decision": "allow-once"}});
        assert_eq!(decision(&yes), ApprovalDecision::AllowOnce);
        for no in [
            json!({"action": "decline", "content": {"decision": "allow-once"}}),
            json!({"action": "accept"}),
            json!({"action": "accept", "content": {"decision": "yes"}}),
            json!({"action": "cancel"}),
            json!(null),
        ] {
            assert_eq!(decision(&no), ApprovalDecision::Deny, "{no}");
        }
    }
}
