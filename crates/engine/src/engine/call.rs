//! A direct call: a run of one step, from its request to its answer.

use super::{Engine, once::KeyedRun};
use crate::{
    Caller,
    ledger::TITLE_CHARS,
    pipeline::{self, StepCall},
    record::{Record, RunStarted},
    scope::RunScope,
    store::RunKind,
};
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{CallId, Failure, PolicySnapshot, ResultStatus, RunId, RunStatus, StepId, ToolResult};

/// A direct call.
#[derive(Debug, Clone, Default)]
pub struct CallRequest {
    /// Name or id.
    pub tool: String,
    /// The arguments.
    pub args: Map<String, Value>,
    /// How long it may take.
    pub timeout_ms: Option<u64>,
    /// One line for people.
    pub preview: Option<String>,
    /// The run's title; without one, the tool's name.
    pub title: Option<String>,
    /// The same key with the same arguments within 24 hours gives the recorded result again.
    pub idempotency_key: Option<String>,
    /// Predict instead of doing.
    pub dry_run: bool,
    /// The run's id, from [`Engine::new_run_id`], for callers that want to subscribe before the first event.
    pub run_id: Option<RunId>,
    /// What to do when a person must be asked.
    pub asking: Asking,
    /// The client's own id of the call, by which an answer that was given ahead of it is found.
    pub client_call: Option<String>,
    /// Stops the call when it fires; made by [`Engine::call_token`].
    pub cancel: Option<CancellationToken>,
}

/// What a direct call does when the policy or a hook requires approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asking {
    /// Ask, and wait for the answer. `requester` names the connection that waits, so that a door can keep it from
    /// answering its own question.
    Wait {
        /// The connection that made the call.
        requester: Option<String>,
    },
    /// Do not ask: refuse with `CONFIRMATION_REQUIRED`, so that the caller can decide to ask.
    Report,
    /// Nobody who could answer can be reached: the question is recorded as denied at once.
    Unreachable,
}

impl Default for Asking {
    fn default() -> Self {
        Self::Wait { requester: None }
    }
}

/// The answer to a direct call.
#[derive(Debug, Clone)]
pub struct CallAnswer {
    /// The result of the call.
    pub result: ToolResult,
    /// True when it is the recorded result of an earlier call with the same idempotency key.
    pub deduplicated: bool,
}

impl Engine {
    /// Calls one tool. Always answers with a result; it is durable when this returns if the call had side effects.
    pub async fn call(&self, caller: Arc<Caller>, request: CallRequest) -> CallAnswer {
        let (caller, is_person) = (caller.clone().settled(), caller.is_person);
        if let Err(failure) = self.check_not_draining() {
            return self.refuse_direct(caller, &request, failure);
        }
        let answer = match request.idempotency_key.clone() {
            Some(key) if !request.dry_run => self.call_keyed(caller, request, key).await,
            _ => {
                let run_id = request.run_id.unwrap_or_else(|| self.new_run_id());
                CallAnswer { result: self.call_in_run(caller, request, run_id, None).await, deduplicated: false }
            }
        };
        if is_person {
            return answer;
        }
        // The debug message quotes other programs' output. A model gets the error; the record keeps both.
        CallAnswer { result: answer.result.without_debug_message(), ..answer }
    }

    /// A token with which a door can stop a call it is about to make. Stopping the engine fires it as well.
    pub fn call_token(&self) -> CancellationToken {
        self.inner.shutdown.child_token()
    }

    pub(super) async fn call_in_run(
        &self,
        caller: Arc<Caller>,
        request: CallRequest,
        run_id: RunId,
        keyed: Option<KeyedRun>,
    ) -> ToolResult {
        let previews = request.dry_run.then(Default::default);
        let cancel = request.cancel.unwrap_or_else(|| self.call_token());
        let (origin, retry_key) = keyed.map_or((run_id, None), |keyed| (keyed.origin, Some(keyed.retry_key)));
        let client_call = request.client_call;
        let scope = self.scope(run_id, caller, cancel, previews);
        let scope = RunScope { is_one_call: true, origin, retry_key, client_call, ..scope };
        let _registered = self.register_run(&scope);
        self.show_others(&scope);
        let title = request.title.unwrap_or_else(|| request.tool.clone());
        let started_at = self.begin_direct(&scope, &title);
        let call = StepCall {
            step_id: StepId::direct(),
            tool: request.tool.clone(),
            args: request.args,
            iteration: None,
            attempt: 1,
            timeout_ms: request.timeout_ms,
            preview: request.preview,
            never_ran: false,
            is_alone: false,
            recovered: None,
            cancel: scope.cancel.child_token(),
            asking: request.asking,
        };
        let settled = pipeline::run_call(self, &scope, call).await;
        let status = match settled.result.status {
            ResultStatus::Ok => RunStatus::Finished,
            ResultStatus::Cancelled => RunStatus::Cancelled,
            _ => RunStatus::Failed,
        };
        let message = settled.result.user_message.clone().unwrap_or_else(|| status.as_str().to_owned());
        let ended =
            self.finish_run(&scope, RunKind::Call, &title, started_at, status, settled.result.error.clone(), message);
        if let Err(error) = ended
            && settled.result.ok
        {
            // The result was to be recorded with the run's end; an unrecorded result is not reported as success.
            return pipeline::with_store_failure(settled.result, error.into());
        }
        if settled.side_effects
            && scope.previews.is_none()
            && let Err(error) = scope.recorder.sync().await
        {
            // The effect may have happened, but its record did not reach the disk: the caller must know.
            tracing::error!(%error, %run_id, "a result could not be made durable");
            return pipeline::with_store_failure(settled.result, error.into());
        }
        settled.result
    }

    pub(super) fn refuse_direct(&self, caller: Arc<Caller>, request: &CallRequest, failure: Failure) -> CallAnswer {
        let run_id = self.new_run_id();
        let scope = self.scope(run_id, caller, self.inner.shutdown.child_token(), None);
        let started_at = self.begin_direct(&scope, &request.tool);
        let call = StepCall {
            step_id: StepId::direct(),
            tool: request.tool.clone(),
            args: request.args.clone(),
            iteration: None,
            attempt: 1,
            timeout_ms: None,
            preview: None,
            never_ran: false,
            is_alone: false,
            recovered: None,
            cancel: scope.cancel.clone(),
            asking: Asking::Report,
        };
        let call_id = CallId::from_uuid(self.inner.clock.new_id());
        let settled = pipeline::refuse(self, &scope, call_id, &call, failure.clone());
        let message = failure.to_string();
        let status = RunStatus::Failed;
        let ended = self.finish_run(&scope, RunKind::Call, &request.tool, started_at, status, Some(failure), message);
        if let Err(error) = ended {
            // A refusal is returned even if it could not be recorded.
            tracing::error!(%error, run = %scope.run_id, "the run of a refused call could not be recorded");
        }
        CallAnswer { result: settled.result, deduplicated: false }
    }

    fn begin_direct(&self, scope: &RunScope, title: &str) -> Timestamp {
        let started_at = self.inner.clock.now();
        let policy_blob = self.policy_blob(scope);
        scope.recorder.push(&Record::RunStarted(RunStarted {
            run_id: scope.run_id,
            kind: RunKind::Call,
            plan: None,
            plan_hash: None,
            policy_hash: scope.policy.hash().to_owned(),
            policy: policy_blob.is_none().then(|| PolicySnapshot::clone(scope.policy.snapshot())),
            policy_blob,
            registry_version: scope.tools.snapshot.version().to_owned(),
            executor_version: crate::EXECUTOR_VERSION.to_owned(),
            planner_version: None,
            caller: scope.caller.to_map(),
            context: Map::new(),
            started_at,
            parent_run_id: None,
            imported_steps: Vec::new(),
            preview_hash: None,
            title: Some(title.chars().take(TITLE_CHARS).collect()),
        }));
        scope.recorder.set_row(self.row(scope, RunKind::Call, title, started_at, RunStatus::Running, None));
        started_at
    }
}
