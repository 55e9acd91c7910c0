//! The tools of bridged sessions: who they are and how they ask. [`SessionTools`] lists and renders; it stands behind a
//! trait because a bridged session is to see what an MCP client sees, and the gateway knows no MCP.

use super::{BRIDGED_CALL, agent_of};
use crate::Hub;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch;
use toolyard_bridge::server::{CallFailure, CallOrder, Offer};
use toolyard_engine::{BoxFuture, CallRequest, Caller, Door, authority, redact::redactor};

/// Lists and runs the tools of bridged sessions, in MCP's words.
pub trait SessionTools: Send + Sync + 'static {
    /// What a caller is shown.
    fn offer(&self, caller: Arc<Caller>) -> BoxFuture<'_, Offer>;

    /// Runs a call down the one road: a `CallToolResult`, whether it went well or not.
    fn call(&self, caller: Arc<Caller>, request: CallRequest) -> BoxFuture<'_, Value>;
}

/// Who a bridged session is: it may call tools as policy allows for its door, agent and session, and nothing else.
fn caller(session: &str) -> Arc<Caller> {
    Arc::new(Caller {
        door: Door::Bridge,
        principal: format!("bridge:{session}"),
        agent: agent_of(session),
        session: Some(session.to_owned()),
        scopes: vec!["operator.read".to_owned(), "operator.write".to_owned()],
        is_person: false,
    })
}

impl Hub {
    /// Sets who lists and runs the tools of bridged sessions. Without it they have none.
    pub fn set_bridge_tools(&self, tools: Arc<dyn SessionTools>) {
        if self.inner.bridge.tools.set(tools).is_err() {
            tracing::error!("bridged sessions have their tools already");
        }
    }

    /// What a session is shown.
    pub(super) async fn bridged_offer(&self, session: &str) -> Offer {
        match self.inner.bridge.tools.get() {
            Some(tools) => tools.offer(caller(session)).await,
            None => Offer::default(),
        }
    }

    /// Runs a session's call. `stop` fires when nobody wants the result any more.
    pub(super) async fn bridged_call(
        &self,
        order: CallOrder,
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
            // Claude Code's own wait is short: it is told at once that nobody can be asked.
            asking: self.route(None, false),
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

/// Answers when somebody says stop; not when nobody can any more.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// What the bridge needs to know of a rendered result; the rest is passed on as it is.
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
