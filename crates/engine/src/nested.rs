//! [`NestedCalls`]: lets a provider call other tools, through the same pipeline, in the same run, for the same caller.
//!
//! A provider gets no right that its caller does not have. Policy, hooks, approval, limits and record apply to each
//! nested call as if the caller had made it. A nested call cannot make nested calls.

use crate::{
    Asking, Caller, Door, Engine,
    pipeline::{self, StepCall},
    scope::RunScope,
};
use serde_json::{Map, Value};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolyard_catalog::{EffectivePolicy, Snapshot};
use toolyard_protocol::{CallId, ErrorCode, Failure, StepId, ToolCall, ToolName, ToolResult};

/// Characters of a tool's name in a nested step id: the whole must stay within a step id's length.
const MAX_NAME_IN_STEP: usize = 80;

/// Makes calls on behalf of a call. Cheap to clone; clones count together.
#[derive(Clone)]
pub struct NestedCalls(Option<Arc<NestedContext>>);

struct NestedContext {
    engine: Engine,
    scope: RunScope,
    parent: CallId,
    parent_tool: ToolName,
    second_door: Option<Door>,
    cancel: CancellationToken,
    /// What the parent call does when approval is required; its nested calls do the same.
    asking: Asking,
    /// How many nested calls were made; shared with narrowed clones.
    made: Arc<AtomicU32>,
    permits: Arc<Semaphore>,
}

/// A nested call's outcome.
#[derive(Debug, Clone)]
pub struct NestedAnswer {
    /// `<parent tool>:<parent call>:<tool>:<number>`, the preview in the record.
    pub nested_id: String,
    /// The result of the nested call.
    pub result: ToolResult,
}

impl NestedCalls {
    /// For calls that may not make others.
    pub fn none() -> Self {
        Self(None)
    }

    pub(crate) fn of(
        engine: &Engine,
        scope: &RunScope,
        call: &ToolCall,
        cancel: CancellationToken,
        asking: Asking,
    ) -> Self {
        if scope.is_nested() {
            return Self::none();
        }
        let at_once = scope.policy.limits().max_concurrency.max(1) as usize;
        Self(Some(Arc::new(NestedContext {
            engine: engine.clone(),
            scope: scope.nested(call.call_id, scope.tools.clone(), scope.policy.clone()),
            parent: call.call_id,
            parent_tool: call.tool.clone(),
            second_door: None,
            cancel,
            asking,
            made: Arc::default(),
            permits: Arc::new(Semaphore::new(at_once)),
        })))
    }

    /// The same for a request that passes a second door: the rules of that door apply in addition to those of the
    /// caller's own door.
    #[must_use]
    pub fn through(&self, door: Door) -> Self {
        Self(self.0.as_ref().map(|nest| {
            let policy = nest.engine.policy_through(&nest.scope.caller, Some(door));
            let mut scope = nest.scope.nested(nest.parent, nest.scope.tools.clone(), policy);
            // A path that a script names is the script's own, even if a person started the script.
            scope.acting = Arc::new(Caller { door, ..Caller::clone(&scope.caller) });
            Arc::new(NestedContext {
                engine: nest.engine.clone(),
                scope,
                parent: nest.parent,
                parent_tool: nest.parent_tool.clone(),
                second_door: Some(door),
                cancel: nest.cancel.clone(),
                asking: nest.asking.clone(),
                made: nest.made.clone(),
                permits: nest.permits.clone(),
            })
        }))
    }

    /// The tools of this moment and the policy that nested calls run under; `None` where calls cannot nest.
    pub fn catalog(&self) -> Option<(Arc<Snapshot>, Arc<EffectivePolicy>)> {
        self.0.as_ref().map(|nest| (nest.engine.tools().snapshot.clone(), nest.scope.policy.clone()))
    }

    /// Who the calls are made for.
    pub fn caller(&self) -> Option<&Arc<Caller>> {
        self.0.as_ref().map(|nest| &nest.scope.caller)
    }

    /// The door that nested calls pass in addition to the caller's own.
    pub fn second_door(&self) -> Option<Door> {
        self.0.as_ref().and_then(|nest| nest.second_door)
    }

    /// Calls a tool by name or id. Always answers with a result, unless calls cannot nest here.
    pub async fn call(
        &self,
        tool: &str,
        args: Map<String, Value>,
        cancel: &CancellationToken,
    ) -> Result<NestedAnswer, Failure> {
        let Some(nest) = &self.0 else {
            return Err(Failure::new(
                ErrorCode::PreconditionFailed,
                "a call that another call made cannot call further",
            )
            .retryable(false));
        };
        let number = nest.made.fetch_add(1, Ordering::Relaxed) + 1;
        // A tool that has been removed must not be called through an older snapshot.
        let tools = nest.engine.tools();
        let name = tools.snapshot.get(tool).map_or(tool, |entry| entry.name().as_str());
        let nested_id = nested_id(&nest.parent_tool, nest.parent, name, number);
        let step_id = step_id(name, number);
        let scope = nest.scope.nested(nest.parent, tools.clone(), nest.scope.policy.clone());
        let stop = nest.cancel.child_token();
        let call = StepCall {
            step_id,
            tool: tool.to_owned(),
            args,
            iteration: None,
            attempt: 1,
            timeout_ms: None,
            preview: Some(nested_id.clone()),
            never_ran: false,
            is_alone: false,
            recovered: None,
            cancel: stop.clone(),
            asking: nest.asking.clone(),
        };
        let road = async {
            // Waiting for a place ends with the call; the pipeline itself answers for the cancellation.
            let _place = tokio::select! {
                place = nest.permits.acquire() => place.ok(),
                () = stop.cancelled() => None,
            };
            pipeline::run_call(&nest.engine, &scope, call).await
        };
        let mut road = std::pin::pin!(road);
        let settled = tokio::select! {
            settled = &mut road => settled,
            () = cancel.cancelled() => {
                stop.cancel();
                road.await
            }
        };
        if settled.side_effects
            && scope.previews.is_none()
            && let Err(error) = scope.recorder.sync().await
        {
            tracing::error!(%error, run_id = %scope.run_id, "a nested result could not be made durable");
        }
        Ok(NestedAnswer { nested_id, result: settled.result })
    }
}

/// `<parent tool>:<parent call>:<tool>:<number>`.
fn nested_id(parent_tool: &ToolName, parent: CallId, tool: &str, number: u32) -> String {
    let safe = |text: &str| -> String {
        let safe = |c: char| if c.is_ascii_alphanumeric() || "_.:-".contains(c) { c } else { '_' };
        text.chars().take(120).map(safe).collect()
    };
    format!("{parent_tool}:{}:{}:{number}", safe(&parent.to_string()), safe(tool))
}

/// `call-<tool>-<number>`: a separate step id for each nested call.
fn step_id(tool: &str, number: u32) -> StepId {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = tool.chars().take(MAX_NAME_IN_STEP).map(safe).collect();
    StepId::parse(&format!("call-{name}-{number}")).unwrap_or_else(|_| StepId::direct())
}
