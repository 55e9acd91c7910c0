//! Requests of the WebSocket door: checks whether the client may make the request, and finds the method that answers
//! it.

use crate::{gateway::Gateway, writes, ws::frame::Request};
use serde_json::value::RawValue;
use std::{sync::Arc, time::Duration, time::Instant};
use toolyard_service::{ClientRequest, MethodError, Role, RpcError, hub::Connection};

/// How many characters of a client's method name are repeated in an error.
const MAX_SHOWN: usize = 80;

/// Whether the role does not fit the method. Nodes may only call `health` and answer requests, and only nodes may
/// answer requests.
pub(crate) fn wrong_role(gateway: &Gateway, connection: &Connection, method: &str) -> Option<RpcError> {
    let role = gateway.service().methods().find(method).map_or(Role::Operator, |known| known.terms.role);
    let may = match connection.role.as_str() {
        "operator" => role != Role::Node,
        _ => role != Role::Operator,
    };
    (!may).then(|| RpcError::invalid(format!("unauthorized role: {}", connection.role)))
}

/// Answers a request. Returns the declared name of the method, for counting.
pub(crate) async fn dispatch(
    gateway: &Gateway,
    connection: &Arc<Connection>,
    request: Request,
    early: &(dyn Fn(Box<RawValue>) + Send + Sync),
) -> (&'static str, Result<Box<RawValue>, RpcError>) {
    let methods = gateway.service().methods();
    let known = methods.find(&request.method).filter(|method| connection.carries(&method.terms));
    // The list of methods is public (`hello` contains it), so an unknown method is reported as such regardless of
    // scopes.
    let Some(method) = known else {
        let shown: String = request.method.chars().take(MAX_SHOWN).collect();
        return ("unknown", Err(RpcError::invalid(format!("unknown method: {shown}"))));
    };
    if let Err(refusal) = connection.may(&method.terms.demand) {
        return (method.name, Err(refusal.into()));
    }
    if request.expected_profile_id.is_some() {
        let error = RpcError::invalid("expected profile does not match")
            .detail("reason", "EXPECTED_PROFILE_MISMATCH")
            .detail("execution", "not_started");
        return (method.name, Err(error));
    }
    if method.terms.is_limited {
        let (device, now) = (connection.device.as_deref(), Instant::now());
        if let Err(wait) = gateway.inner.writes.take(method.name, device, connection.address, now) {
            return (method.name, Err(too_many_writes(method.name, wait)));
        }
    }
    let client = ClientRequest { connection, id: &request.id, early };
    let answer = gateway.hub().answer(method, client, request.params).await;
    (method.name, answer.map_err(MethodError::into_rpc))
}

fn too_many_writes(method: &str, wait: Duration) -> RpcError {
    let seconds = wait.as_secs_f64().ceil();
    let message = format!("rate limit exceeded for {method}; retry after {seconds}s");
    RpcError::busy(message, wait.as_millis() as u64)
        .detail("method", method)
        .detail("limit", format!("{} per {}s", writes::MAX_WRITES, writes::WINDOW.as_secs()))
}
