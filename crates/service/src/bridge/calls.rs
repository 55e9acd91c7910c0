//! The tools of bridged sessions: their callers and their approvals. [`SessionTools`] lists tools and renders results.
//! It is a trait because a bridged session must see what an MCP client sees, and this crate does not know MCP.

use super::{BRIDGED_CALL, agent_of};
use crate::Hub;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch;
use toolyard_bridge::server::{CallFailure, Offer, ToolCallRequest};
use toolyard_engine::{BoxFuture, CallRequest, Caller, Door, authority, redact::redactor};
use toolyard_protocol::WorkspaceId;

/// Lists and runs the tools of bridged sessions, in MCP's format.
pub trait SessionTools: Send + Sync + 'static {
    /// The tools that a caller is offered.
    fn offer(&self, caller: Arc<Caller>) -> BoxFuture<'_, Offer>;

    /// Runs a call through the pipeline. Returns a `CallToolResult`, also for a failure.
    fn call(&self, caller: Arc<Caller>, request: CallRequest) -> BoxFuture<'_, Value>;
}

/// The caller of a bridged session: it may call the tools that the policy allows for its door, agent and session, and
/// nothing else.
fn caller(session: &str) -> Arc<Caller> {
    let caller = Caller {
        door: Door::Bridge,
        principal: format!("bridge:{session}"),
        agent: agent_of(session),
        session: Some(session.to_owned()),
        scopes: vec!["operator.read".to_owned(), "operator.write".to_owned()],
        is_person: false,
        workspace: WorkspaceId::default(),
    };
    Arc::new(caller.in_workspace(WorkspaceId::of(session).0))
}

impl Hub {
    /// Sets the implementation that lists and runs the tools of bridged sessions. Without it they have no tools.
    pub fn set_bridge_tools(&self, tools: Arc<dyn SessionTools>) {
        if self.inner.bridge.tools.set(tools).is_err() {
            tracing::error!("bridged sessions have their tools already");
        }
    }

    /// The tools that a session is offered.
    pub(super) async fn bridged_offer(&self, session: &str) -> Offer {
        match self.inner.bridge.tools.get() {
            Some(tools) => tools.offer(caller(session)).await,
            None => Offer::default(),
        }
    }

    /// Runs a session's call. `stop` fires when the result is not needed any more.
    pub(super) async fn bridged_call(
        &self,
        order: ToolCallRequest,
        mut stop: watch::Receiver<bool>,
    ) -> Result<Value, CallFailure> {
        let Some(tools) = self.inner.bridge.tools.get() else {
            return Err("this gateway has no tools for bridged sessions".into());
        };
        let caller = caller(&order.session);
        authority::decide(&caller, &BRIDGED_CALL).map_err(|refusal| CallFailure::from(refusal.message().as_str()))?;
        let cancel = self.service().engine().call_token();
        let request = CallRequest {
            tool: order.tool,
            args: order.args,
            // Claude Code's timeout is short, so a call fails at once if nobody can be asked.
            asking: self.route(&caller, None, false),
            idempotency_key: Some(order.once),
            cancel: Some(cancel.clone()),
            ..CallRequest::default()
        };
        let call = tools.call(caller, request);
        tokio::pin!(call);
        let result = tokio::select! {
            result = &mut call => result,
            () = stopped(&mut stop) => {
                cancel.cancel();
                call.await
            }
        };
        let failed = Rendered::of(&result).is_error;
        self.inner.metrics.tool(if failed { "error" } else { "ok" });
        if !failed {
            return Ok(result);
        }
        let mut result = result;
        redactor().value(&mut result);
        Err(CallFailure { text: words(&result), result: Some(result) })
    }
}

/// Returns when a stop is requested; never returns if the sender is dropped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The fields of a rendered result that the bridge reads; the rest is passed on unchanged.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rendered {
    is_error: bool,
    content: Vec<RenderedPart>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RenderedPart {
    text: Option<String>,
}

impl Rendered {
    fn of(result: &Value) -> Self {
        Self::deserialize(result).unwrap_or_default()
    }
}

/// The text of a result.
fn words(result: &Value) -> String {
    let texts: Vec<String> = Rendered::of(result).content.into_iter().filter_map(|part| part.text).collect();
    if texts.is_empty() { "the tool failed".to_owned() } else { texts.join("\n") }
}
