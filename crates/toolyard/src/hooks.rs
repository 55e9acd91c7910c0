//! The hooks' door in the method table: what a hook process hands on, and its answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolyard_hooks::{Client, HookAnswer, HookRequest, HooksDoor};
use toolyard_service::{Call, Handle, Lane, MethodError, Methods, Terms, methods};

methods! {
    /// Decides about an event of a coding agent's hook: whether a call of its own tools may run, and what came of it.
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
pub(crate) struct HookMethods(pub(crate) HooksDoor);

impl Handle<HooksEvent> for HookMethods {
    async fn handle(&self, _: &Call<'_>, params: HooksEventParams) -> Result<HookAnswer, MethodError> {
        let HooksEventParams { client, attended, payload } = params;
        Ok(self.0.event(HookRequest { client, payload, is_attended: attended }).await)
    }
}
