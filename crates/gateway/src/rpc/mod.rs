//! The Gateway's methods by name and what answers each. What a method demands of its caller stands in
//! [`crate::registry`], which is consulted before anything is answered.
//!
//! Methods of the engine (`plans.*`, `runs.*`) are the shared table's; the rest turn it into the shapes that clients of
//! the real gateway know.

pub(crate) mod approvals;
pub(crate) mod bridge;
mod express;
pub(crate) mod health;
pub(crate) mod nodes;
pub(crate) mod offers;
pub(crate) mod operate;
pub(crate) mod runs;
pub(crate) mod sessions;
pub(crate) mod tools;

use crate::{
    hub::{Connection, Gateway},
    registry::{self, NODE_RESULT, Role},
    writes,
    ws::frame::{Payload, Request, RpcError},
};
use serde_json::{Map, Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use toolyard_engine::{authority::Refusal, redact::redactor};
use toolyard_protocol::{ErrorCode, Failure};

/// Everything that is sent without being asked for.
pub(crate) const EVENTS: &[&str] = &[
    "connect.challenge",
    "tick",
    "health",
    "presence",
    "shutdown",
    "exec.approval.requested",
    "exec.approval.resolved",
    "plugin.approval.requested",
    "plugin.approval.resolved",
    "device.pair.requested",
    "device.pair.resolved",
    "node.invoke.request",
    "tools.call",
    "run.started",
    "run.confirmationRequested",
    "run.confirmed",
    "run.cancelled",
    "run.finished",
    "step.scheduled",
    "step.started",
    "step.progress",
    "step.finished",
    "step.failed",
    "bridge.connection",
    "bridge.dropped",
    "bridge.outbound",
    "bridge.permission.requested",
    "bridge.permission.resolved",
];

/// Nodes may ask for health and answer what they were asked, and nothing else; answering is for nobody else.
pub(crate) fn wrong_role(connection: &Connection, method: &str) -> Option<RpcError> {
    let role = registry::find(method).map_or(Role::Operator, |known| known.role);
    let may = match connection.role.as_str() {
        "operator" => role != Role::Node,
        _ => role != Role::Operator,
    };
    (!may).then(|| RpcError::invalid(format!("unauthorized role: {}", connection.role)))
}

/// Answers a request. The name given back is one of the table's, for counting.
pub(crate) async fn dispatch(
    gateway: &Gateway,
    connection: &Arc<Connection>,
    id: &Value,
    request: Request,
) -> (&'static str, Result<Payload, RpcError>) {
    let known = registry::find(&request.method).filter(|method| method.is_on_gateway());
    // Which methods there are is documented, and `hello` lists them: whoever misspells one is told so, whatever their scopes.
    let Some(method) = known else {
        let shown: String = request.method.chars().take(80).collect();
        return ("unknown", Err(RpcError::invalid(format!("unknown method: {shown}"))));
    };
    if let Err(refusal) = connection.may(&method.demand) {
        return (method.name, Err(refusal.into()));
    }
    if request.expected_profile_id.is_some() {
        let error = RpcError::invalid("expected profile does not match")
            .details(json!({"reason": "EXPECTED_PROFILE_MISMATCH", "execution": "not_started"}));
        return (method.name, Err(error));
    }
    if method.is_limited {
        let taken =
            gateway.inner.writes.take(method.name, connection.device.as_deref(), connection.address, Instant::now());
        if let Err(wait) = taken {
            return (method.name, Err(too_many_writes(method.name, wait)));
        }
    }
    let ask = Ask { gateway, connection, id, method: method.name };
    (method.name, answer(&ask, request.params).await)
}

fn too_many_writes(method: &str, wait: Duration) -> RpcError {
    let seconds = wait.as_secs_f64().ceil();
    let message = format!("rate limit exceeded for {method}; retry after {seconds}s");
    RpcError::unavailable(message, wait.as_millis() as u64).details(json!({
        "method": method, "limit": format!("{} per {}s", writes::MAX_WRITES, writes::WINDOW.as_secs()),
    }))
}

/// One request, as methods see it.
pub(crate) struct Ask<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) id: &'a Value,
    pub(crate) method: &'static str,
}

async fn answer(ask: &Ask<'_>, params: Option<Value>) -> Result<Payload, RpcError> {
    // The one that is asked for all the time. The others are boxed, so that it need not carry their size about.
    if ask.method == "tools.invoke" {
        return tools::invoke(ask, params).await;
    }
    Box::pin(seldom(ask, params)).await.map(Payload::Value)
}

async fn seldom(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    match ask.method {
        "health" => health::answer(ask, params).await,
        "status" => health::status(ask, params).await,
        "system-presence" => health::presence(ask, params),
        "tools.catalog" => tools::catalog(ask, params),
        "tools.effective" => tools::effective(ask, params).await,
        "tools.cancel" => tools::cancel(ask, params),
        "tools.offer" => offers::offer(ask, params).await,
        "tools.result" => offers::result(ask, params),
        "sessions.create" => sessions::create(ask, params).await,
        "sessions.list" => sessions::list(ask, params).await,
        "sessions.get" => sessions::get(ask, params).await,
        "sessions.patch" => sessions::patch(ask, params).await,
        "sessions.delete" => sessions::delete(ask, params).await,
        "config.get" => operate::config(ask, params),
        "node.list" | "node.describe" => nodes::answer(ask, params),
        NODE_RESULT => nodes::result(ask, params),
        "logs.tail" => operate::logs(ask, params),
        "runs.events" => runs::events(ask, params).await,
        "runs.subscribe" => runs::subscribe(ask, params),
        "runs.unsubscribe" => runs::unsubscribe(ask, params),
        name if name.starts_with("bridge.") => bridge::answer(ask, params).await,
        name if name.starts_with("device.") => operate::devices(ask, params).await,
        name if name.contains("approval.") => approvals::answer(ask, params).await,
        _ => runs::shared(ask, params).await,
    }
}

/// A failure of the engine in the words of a response.
pub(crate) fn from_failure(failure: Failure) -> RpcError {
    let failure = redactor().failure(failure);
    let code = match failure.code {
        ErrorCode::Unavailable | ErrorCode::StoreUnavailable | ErrorCode::LimitExceeded | ErrorCode::InternalError => {
            "UNAVAILABLE"
        }
        ErrorCode::PolicyDenied => "FORBIDDEN",
        _ => "INVALID_REQUEST",
    };
    let mut details = failure.details.unwrap_or_default();
    // A refusal of the authority has a code of its own, which clients of the real gateway know.
    if !details.contains_key("missingScope") {
        details.insert("code".to_owned(), failure.code.as_str().into());
    }
    if let Some(suggestion) = failure.suggestion {
        details.insert("suggestion".to_owned(), suggestion.into());
    }
    RpcError { retryable: failure.retryable, ..RpcError::new(code, failure.message) }.details(Value::Object(details))
}

impl From<Refusal> for RpcError {
    fn from(refusal: Refusal) -> Self {
        RpcError::new("FORBIDDEN", refusal.message()).details(refusal.details())
    }
}

impl From<toolyard_engine::store::StoreError> for RpcError {
    fn from(error: toolyard_engine::store::StoreError) -> Self {
        from_failure(error.into())
    }
}

/// Runs what may block on the store.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RpcError> + Send + 'static,
) -> Result<T, RpcError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(RpcError::new("UNAVAILABLE", "reading the store failed unexpectedly")))
}

/// As [`blocking`], for the express lane: on threads that tool calls do not share, so that calls that hang on a file
/// cannot hold up health and approvals.
pub(crate) async fn promptly<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RpcError> + Send + 'static,
) -> Result<T, RpcError> {
    let failed = || RpcError::new("UNAVAILABLE", "reading the store failed unexpectedly");
    let (done, answer) = tokio::sync::oneshot::channel();
    let job = move || {
        // Nobody waits any more for the answer to a request that was given up.
        drop(done.send(work()));
    };
    if !express::submit(Box::new(job)).await {
        return Err(failed());
    }
    answer.await.unwrap_or_else(|_| Err(failed()))
}

/// An object without its nulls.
pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(map.into_iter().filter(|(_, v)| !v.is_null()).collect::<Map<_, _>>()),
        other => other,
    }
}
