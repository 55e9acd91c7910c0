//! `before_tool_call` hooks of plugins, as one hook of the engine. A plugin that does not answer lets nothing through.

use crate::{host::line_name, manager::Inner};
use serde_json::{Map, Value, json};
use std::sync::Weak;
use toolyard_engine::{BoxFuture, Hook, HookCall, HookVerdict};

/// How long a person has to answer when the plugin does not say,
const APPROVAL_MS: u64 = 120_000;
/// and at most.
const MAX_APPROVAL_MS: u64 = 600_000;

/// All plugins' hooks.
pub(crate) struct PluginHooks(pub(crate) Weak<Inner>);

/// What has been said so far.
#[derive(Default)]
struct Said {
    params: Option<Map<String, Value>>,
    approval: Option<(String, String, u64)>,
}

impl Hook for PluginHooks {
    fn name(&self) -> &str {
        "plugins"
    }

    fn before<'a>(&'a self, call: HookCall<'a>) -> BoxFuture<'a, HookVerdict> {
        Box::pin(async move {
            let Some(inner) = self.0.upgrade() else { return HookVerdict::Proceed };
            let tool = call.tool.name().as_str();
            let mut said = Said::default();
            for plugin in inner.hooked(tool) {
                let params = said.params.as_ref().unwrap_or(call.args);
                let event = json!({
                    "toolName": tool, "params": params, "agentId": call.caller.agent,
                    "sessionKey": call.caller.session,
                });
                match inner.upstreams.line(&line_name(&plugin), "before_tool_call", event).await {
                    Ok(verdict) => {
                        if let Some(reason) = take(&mut said, &verdict) {
                            let reason =
                                if reason.is_empty() { format!("blocked by the plugin {plugin}") } else { reason };
                            return HookVerdict::Block { reason };
                        }
                    }
                    Err(failure) => {
                        tracing::warn!(plugin, %failure, "a plugin's hook did not answer");
                        return HookVerdict::Block {
                            reason: format!(
                                "the plugin {plugin} checks this tool and did not answer ({}); `toolyard plugins disable {plugin}` turns it off",
                                failure.message
                            ),
                        };
                    }
                }
            }
            verdict(said)
        })
    }
}

/// Adds one verdict to what was said. `Some` with a reason when the call must not be made.
fn take(said: &mut Said, verdict: &Value) -> Option<String> {
    if verdict.get("block") == Some(&Value::Bool(true)) {
        return Some(verdict.get("blockReason").and_then(Value::as_str).unwrap_or_default().to_owned());
    }
    // Once somebody has been asked about them, parameters stay as they are.
    if let (Some(Value::Object(params)), None) = (verdict.get("params"), &said.approval) {
        said.params = Some(params.clone());
    }
    if let (Some(approval), None) = (verdict.get("requireApproval").filter(|a| a.is_object()), &said.approval) {
        let text = |key: &str, most: usize| -> String {
            approval.get(key).and_then(Value::as_str).unwrap_or_default().chars().take(most).collect()
        };
        let timeout =
            approval.get("timeoutMs").and_then(Value::as_u64).unwrap_or(APPROVAL_MS).clamp(1, MAX_APPROVAL_MS);
        said.approval = Some((text("title", 80), text("description", 512), timeout));
    }
    None
}

fn verdict(said: Said) -> HookVerdict {
    match (said.params, said.approval) {
        (None, None) => HookVerdict::Proceed,
        (Some(params), None) => HookVerdict::Rewrite(params),
        (None, Some((title, description, timeout_ms))) => HookVerdict::Ask { title, description, timeout_ms },
        (Some(args), Some((title, description, timeout_ms))) => {
            HookVerdict::RewriteAndAsk { args, title, description, timeout_ms }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(verdicts: &[Value]) -> HookVerdict {
        let mut said = Said::default();
        for one in verdicts {
            if let Some(reason) = take(&mut said, one) {
                return HookVerdict::Block { reason };
            }
        }
        verdict(said)
    }

    #[test]
    fn verdicts_of_several_hooks_become_one() {
        assert_eq!(all(&[json!({}), json!(null)]), HookVerdict::Proceed);
        let (a, b) = (json!({"params": {"x": 1}}), json!({"params": {"x": 2}}));
        let rewritten = |x: i64| json!({"x": x}).as_object().unwrap().clone();
        assert_eq!(all(&[a.clone(), b.clone()]), HookVerdict::Rewrite(rewritten(2)), "the last wins");
        let ask = json!({"requireApproval": {"title": "Sure?", "description": "It writes.", "timeoutMs": 9_999_999}});
        let asked = all(&[a.clone(), ask.clone(), b]);
        let HookVerdict::RewriteAndAsk { args, title, timeout_ms, .. } = asked else { panic!("{asked:?}") };
        assert_eq!((args, title.as_str(), timeout_ms), (rewritten(1), "Sure?", 600_000), "frozen by the question");
        let block = json!({"block": true, "blockReason": "no"});
        assert_eq!(all(&[ask, a, block]), HookVerdict::Block { reason: "no".into() }, "a later hook may still block");
    }
}
