//! The tools of bridged sessions, straight from the engine: listed by the predicate that decides calls, called down the
//! one road.

use super::agent_of;
use crate::{
    hub::{Gateway, Inner},
    rpc::tools::{self, Invocation, Refused},
};
use serde_json::{Map, Value, json};
use std::sync::{Arc, Weak};
use tokio::sync::watch;
use toolyard_bridge::server::{BoxFuture, ToolRequest, Tools};
use toolyard_engine::{Caller, Door, Engine};
use toolyard_protocol::{Idempotency, RiskLevel};

/// The engine's tools.
pub struct EngineTools {
    engine: Engine,
    /// Weak: the gateway holds this.
    gateway: Weak<Inner>,
}

impl EngineTools {
    /// Of a gateway's engine.
    pub fn new(gateway: &Gateway) -> Self {
        Self { engine: gateway.service().engine().clone(), gateway: Arc::downgrade(&gateway.inner) }
    }
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

impl Tools for EngineTools {
    fn list<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let snapshot = self.engine.tools().snapshot.clone();
            let visible = self.engine.visible_tools(&caller(session));
            let shown = visible.iter().map(|entry| {
                let d = entry.definition();
                let mut tool = json!({
                    "name": snapshot.safe_name(entry), "title": d.title, "description": d.description,
                    "inputSchema": d.input_schema,
                    "annotations": {
                        "title": d.title, "readOnlyHint": d.risk_level == RiskLevel::ReadOnly,
                        "idempotentHint": matches!(d.idempotency, Idempotency::Pure | Idempotency::Idempotent),
                    },
                });
                if let Some(schema) = &d.output_schema {
                    tool["outputSchema"] = Value::Object(schema.clone());
                }
                tool
            });
            shown.collect()
        })
    }

    fn call(&self, request: ToolRequest, mut stop: watch::Receiver<bool>) -> BoxFuture<'_, Result<Value, String>> {
        Box::pin(async move {
            let Some(inner) = self.gateway.upgrade() else { return Err("Toolyard is stopping".to_owned()) };
            let gateway = Gateway { inner };
            let cancel = self.engine.call_token();
            let invocation = Invocation {
                name: request.tool,
                args: request.args,
                caller: caller(&request.session),
                asking: tools::route(&gateway, None),
                timeout_ms: None,
                idempotency_key: Some(request.once),
                dry_run: false,
                cancel: Some(cancel.clone()),
            };
            let call = tools::run(&gateway, invocation);
            tokio::pin!(call);
            let invoked = tokio::select! {
                invoked = &mut call => invoked,
                () = stopped(&mut stop) => {
                    cancel.cancel();
                    call.await
                }
            };
            invoked.outcome.map(|output| rendered(output.into_value())).map_err(|refused| told(&refused))
        })
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.engine.watch_tools()
    }
}

/// Answers when somebody says stop; not when nobody can any more.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// `{content, details, meta}` as CallToolResult.
fn rendered(output: Value) -> Value {
    let Value::Object(mut output) = output else { return output };
    let mut result = Map::new();
    result.insert("content".to_owned(), output.remove("content").unwrap_or_else(|| json!([])));
    let structured = output.remove("structuredContent").or_else(|| output.remove("details"));
    if let Some(structured) = structured.filter(|s| s.as_object().is_some_and(|map| !map.is_empty())) {
        result.insert("structuredContent".to_owned(), structured);
    }
    Value::Object(result)
}

/// A refusal in words: the code, the message, what would help.
fn told(refused: &Refused) -> String {
    let mut text = format!("{}: {}", refused.code, refused.message);
    for key in ["suggestion", "errors"] {
        match refused.details.get(key) {
            Some(Value::String(line)) => text.extend(["\n", line]),
            Some(other) => text.extend(["\n", &other.to_string()]),
            None => {}
        }
    }
    text
}
