//! The hooks' door in the method table: the event that a hook process sends, and the answer.

use crate::config::McpConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use toolyard_engine::{Engine, authority::Scope};
use toolyard_hooks::{Client, HookAnswer, HookRequest, HooksDoor, NativeProvider, OwnToolApproval, OwnTools};
use toolyard_mcp::server::ClientApprovals;
use toolyard_service::{Call, Handle, Lane, MethodError, Methods, Terms, methods, workspaces::held_scopes};

methods! {
    /// Handles an event of a coding agent's hook: decides whether a call of its own tools may run, or records the
    /// outcome of the call.
    HooksEvent = "hooks.event", Terms::run().local().person().lane(Lane::Waiting), HooksEventParams => HookAnswer;
}

/// An event of a hook.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HooksEventParams {
    /// The client whose hook it is.
    pub client: Client,
    /// Whether the client says that its user is there to answer its own questions.
    #[serde(default)]
    pub attended: bool,
    /// What the client wrote to the hook.
    pub payload: Value,
}

/// Declares the method; without a store it cannot be called.
pub(crate) fn declare(methods: &mut Methods, door: Option<&HookMethods>) {
    methods.add::<HooksEvent, _>(door);
}

/// Answers the method.
#[derive(Clone)]
pub(crate) struct HookMethods(HooksDoor);

impl HookMethods {
    /// The door for the calls of this user's clients. `mcp` says who is asked about calls of Toolyard's own tools.
    pub(crate) fn new(engine: Engine, provider: Arc<NativeProvider>, mcp: &McpConfig) -> Self {
        let asked_by = match mcp.client_approvals() {
            ClientApprovals::Off => OwnToolApproval::People,
            ClientApprovals::Ask => OwnToolApproval::ClientOrPeople,
            ClientApprovals::Trust | ClientApprovals::Refuse => OwnToolApproval::McpDoor,
        };
        let own = OwnTools { agent: mcp.agent.clone(), asked_by };
        Self(HooksDoor::new(engine, provider, crate::home::user_name(), own))
    }
}

impl Handle<HooksEvent> for HookMethods {
    async fn handle(&self, call: &Call<'_>, params: HooksEventParams) -> Result<HookAnswer, MethodError> {
        let HooksEventParams { client, attended, payload } = params;
        let workspace = call.service.workspace_in_use(call.caller.workspace.to_string()).await?;
        let own_tool_scopes = held_scopes(&workspace, vec![Scope::Admin.as_str().to_owned()]);
        let request = HookRequest { client, payload, is_attended: attended, workspace, own_tool_scopes };
        Ok(self.0.event(request).await)
    }
}
