//! Explains the policy: its decision about a call, for an agent and a door, and the configuration key that decided.

use crate::{Call, Handle, MethodError, Service, Terms, methods};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_catalog::{Decision, Resolution, did_you_mean};
use toolyard_engine::{
    Caller, Door,
    authority::{self, Scope},
};
use toolyard_protocol::{ErrorCode, Failure, RiskLevel};

methods! {
    /// Explains what the policy decides about a call, for an agent and a door, and which rule decides it.
    PolicyExplain = "policy.explain", Terms::read().everywhere(), ExplainParams => Explained;
}

/// The call and its caller.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExplainParams {
    /// The tool.
    pub tool: String,
    /// Its arguments. Without them, rules about paths are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<crate::Object>,
    /// The agent; `main` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The door of the call; `gateway` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub door: Option<String>,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// What the policy decides, and why.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// The tool.
    pub tool: String,
    /// The agent.
    pub agent: String,
    /// The door.
    pub door: String,
    /// `allow`, `ask` or `deny`.
    pub decision: String,
    /// Why; absent where the call is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The key of the configuration that decided; absent where the call is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// How much harm the tool can do.
    pub risk_level: RiskLevel,
    /// Whether an argument names a path of this machine, which only the person at the command line may.
    pub host_path: bool,
}

fn read_door(word: Option<&str>) -> Result<Door, Failure> {
    let word = word.unwrap_or("gateway");
    serde_json::from_value(word.into()).map_err(|_| {
        Failure::new(ErrorCode::ValidationError, format!("there is no door {word:?}"))
            .suggest("Doors are cli, gateway, http, mcp, bridge, script, console, hooks and internal.")
    })
}

impl Handle<PolicyExplain> for Service {
    async fn handle(&self, call: &Call<'_>, params: ExplainParams) -> Result<Explained, MethodError> {
        let door = read_door(params.door.as_deref())?;
        let agent = params.agent.unwrap_or_else(|| "main".to_owned());
        let caller = Caller {
            door,
            agent: agent.clone(),
            session: params.session,
            scopes: vec![Scope::Write.as_str().to_owned()],
            is_person: false,
            ..Caller::cli("policy.explain")
        };
        let caller = caller.in_workspace(call.caller.workspace.clone());
        let tools = self.engine().tools();
        let workspace = &caller.workspace;
        let Some(entry) = tools.snapshot.get_in(workspace, &params.tool) else {
            let near = match tools.snapshot.resolve_visible(&params.tool, |entry| entry.is_in(workspace)) {
                Resolution::Unknown(suggestions) => suggestions.names(),
                _ => Vec::new(),
            };
            let failure = Failure::new(ErrorCode::NotFound, "there is no such tool");
            let advice = did_you_mean(&near).unwrap_or_else(|| "List the tools with `toolyard tools list`.".to_owned());
            return Err(failure.suggest(advice).into());
        };
        let (decision, reason, rule) = match self.engine().policy_for(&caller).decide(entry, params.args.as_ref()) {
            Decision::Allow => ("allow", None, None),
            Decision::Ask { reason, rule, .. } => ("ask", Some(reason), Some(rule)),
            Decision::Deny { reason, rule } => ("deny", Some(reason), Some(rule)),
        };
        let args = params.args.unwrap_or_default();
        let host_path = authority::decide_arguments(&caller, entry, &args, &args).is_err();
        Ok(Explained {
            tool: entry.name().to_string(),
            agent,
            door: door.as_str().to_owned(),
            decision: decision.to_owned(),
            reason,
            rule,
            risk_level: entry.definition().risk_level,
            host_path,
        })
    }
}
