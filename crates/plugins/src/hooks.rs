//! The `before_tool_call` hooks of plugins, as one hook of the engine. While a plugin does not answer, the calls that
//! its hook matches fail.

use crate::{host::line_name, manager::Inner};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Weak;
use toolyard_engine::{BoxFuture, Hook, HookCall, HookVerdict};
use toolyard_mcp::wire::Arguments;
use toolyard_protocol::{ErrorCode, Failure};

/// How long a person has to answer if the plugin sets no time, in milliseconds.
const APPROVAL_MS: u64 = 120_000;
/// Maximum time that a person has to answer, in milliseconds.
const MAX_APPROVAL_MS: u64 = 600_000;
/// How many characters of a question's title are shown.
const MAX_TITLE: usize = 80;
/// Maximum number of characters of a question's description that are shown.
const MAX_DESCRIPTION: usize = 512;

/// All plugins' hooks.
pub(crate) struct PluginHooks(pub(crate) Weak<Inner>);

/// The notification of a call to a plugin's hook.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BeforeToolCall<'a> {
    tool_name: &'a str,
    params: &'a Arguments,
    agent_id: &'a str,
    session_key: Option<&'a str>,
}

/// A plugin's answer to a call. Null and an empty object mean no objection.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    block: Option<bool>,
    block_reason: Option<String>,
    params: Option<Arguments>,
    require_approval: Option<RequestedApproval>,
}

/// A question a plugin wants a person to be asked.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestedApproval {
    title: Option<String>,
    description: Option<String>,
    timeout_ms: Option<u64>,
}

/// The same within its limits.
struct Approval {
    title: String,
    description: String,
    timeout_ms: u64,
}

/// The combined answers so far.
#[derive(Default)]
struct CombinedVerdict {
    params: Option<Arguments>,
    approval: Option<Approval>,
}

impl Hook for PluginHooks {
    fn name(&self) -> &str {
        "plugins"
    }

    fn before<'a>(&'a self, call: HookCall<'a>) -> BoxFuture<'a, HookVerdict> {
        Box::pin(async move {
            let Some(inner) = self.0.upgrade() else { return HookVerdict::Proceed };
            let tool = call.tool.name().as_str();
            let mut combined = CombinedVerdict::default();
            for plugin in inner.hooked(tool) {
                let event = BeforeToolCall {
                    tool_name: tool,
                    params: combined.params.as_ref().unwrap_or(call.args),
                    agent_id: &call.caller.agent,
                    session_key: call.caller.session.as_deref(),
                };
                let answer = inner.upstreams.line(&line_name(&plugin), "before_tool_call", &event).await;
                match answer.and_then(parse_verdict) {
                    Ok(verdict) => {
                        if let Some(reason) = take(&mut combined, verdict) {
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
            verdict(combined)
        })
    }
}

/// Parses a plugin's answer.
fn parse_verdict(answer: Value) -> Result<Verdict, Failure> {
    let verdict: Result<Option<Verdict>, _> = serde_json::from_value(answer);
    let broken = |e| Failure::new(ErrorCode::ValidationError, format!("its answer cannot be read: {e}"));
    verdict.map(Option::unwrap_or_default).map_err(broken)
}

/// Combines one answer with the earlier ones. `Some` with a reason if the call must not be made.
fn take(combined: &mut CombinedVerdict, verdict: Verdict) -> Option<String> {
    if verdict.block == Some(true) {
        return Some(verdict.block_reason.unwrap_or_default());
    }
    // After a question about them, parameters cannot be changed any more.
    if let (Some(params), None) = (verdict.params, &combined.approval) {
        combined.params = Some(params);
    }
    if let (Some(asked), None) = (verdict.require_approval, &combined.approval) {
        let cut = |text: Option<String>, most: usize| text.unwrap_or_default().chars().take(most).collect();
        combined.approval = Some(Approval {
            title: cut(asked.title, MAX_TITLE),
            description: cut(asked.description, MAX_DESCRIPTION),
            timeout_ms: asked.timeout_ms.unwrap_or(APPROVAL_MS).clamp(1, MAX_APPROVAL_MS),
        });
    }
    None
}

fn verdict(combined: CombinedVerdict) -> HookVerdict {
    match (combined.params, combined.approval) {
        (None, None) => HookVerdict::Proceed,
        (Some(params), None) => HookVerdict::Rewrite(params),
        (None, Some(Approval { title, description, timeout_ms })) => {
            HookVerdict::Ask { title, description, timeout_ms }
        }
        (Some(args), Some(Approval { title, description, timeout_ms })) => {
            HookVerdict::RewriteAndAsk { args, title, description, timeout_ms }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn all(verdicts: &[Value]) -> HookVerdict {
        let mut combined = CombinedVerdict::default();
        for one in verdicts {
            if let Some(reason) = take(&mut combined, parse_verdict(one.clone()).unwrap()) {
                return HookVerdict::Block { reason };
            }
        }
        verdict(combined)
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
        for unreadable in [json!("fine"), json!({"block": "yes"}), json!({"params": [1]})] {
            assert!(
                parse_verdict(unreadable.clone()).is_err(),
                "{unreadable}: what cannot be read lets nothing through"
            );
        }
    }
}
