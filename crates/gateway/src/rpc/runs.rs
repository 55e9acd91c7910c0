//! Plans and runs: the shared method table under the Gateway's rules, and events of runs for whoever subscribes.

use super::{Ask, RpcError, from_failure, sessions::Key, tools};
use crate::{
    hub::lock,
    ws::{
        frame::EventBody,
        params::{Field, Kind, check, count, text},
    },
};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use toolyard_engine::{Events, Subscription};
use toolyard_protocol::RunId;

/// Subscriptions of one connection.
const MAX_WATCHES: usize = 64;
/// Events in one page.
const MAX_EVENTS: u64 = 10_000;

/// Methods that every door shares. `sessionKey` and `agentId` say for whom; the rest is the method's own.
pub(super) async fn shared(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let mut params = match params {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(map)) => map,
        Some(_) => return Err(RpcError::invalid(format!("invalid {} params: must be object", ask.method))),
    };
    let given = |value: Option<Value>| value.and_then(|v| v.as_str().map(str::to_owned));
    let (session, agent) = (given(params.remove("sessionKey")), given(params.remove("agentId")));
    let key = Key::read(session.as_deref().unwrap_or("main"), agent.as_deref())?;
    if !super::sessions::knows_agent(ask.gateway, &key.agent) {
        return Err(RpcError::invalid(format!("unknown agent id \"{}\"", key.agent)));
    }
    let caller = ask.connection.caller(&key.agent, Some(key.full));
    let method = if ask.method == "plans.cancel" { "runs.cancel" } else { ask.method };
    let service = ask.gateway.service();
    service.call(caller, method, Value::Object(params), None).await.map_err(from_failure)
}

const EVENTS: &[Field] = &[
    Field::required("runId", Kind::Text),
    Field::optional("after", Kind::Count),
    Field::optional("limit", Kind::Count),
];

fn run_id(method: &str, given: &str) -> Result<RunId, RpcError> {
    RunId::parse(given).map_err(|_| RpcError::invalid(format!("invalid {method} params: at /runId: must be a run id")))
}

pub(super) async fn events(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, EVENTS)?;
    let run_id = run_id(ask.method, text(&params, "runId").unwrap_or_default())?;
    let after = count(&params, "after").unwrap_or_default();
    let limit = count(&params, "limit").unwrap_or(1000).clamp(1, MAX_EVENTS) as usize;
    let all = tools::recorded_events(ask.gateway, run_id).await?;
    let newer = all.into_iter().filter(|e| e.get("seq").and_then(Value::as_u64).unwrap_or_default() > after);
    let mut page: Vec<Value> = newer.take(limit + 1).collect();
    let more = page.len() > limit;
    page.truncate(limit);
    Ok(json!({"runId": run_id, "events": page, "hasMore": more}))
}

const SUBSCRIBE: &[Field] = &[Field::optional("runId", Kind::Text), Field::optional("sessionKey", Kind::Text)];

/// Sends the events of a run, or of a session's runs, until the connection ends or unsubscribes.
pub(super) fn subscribe(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, SUBSCRIBE)?;
    let subscription = match (text(&params, "runId"), text(&params, "sessionKey")) {
        (Some(run), None) => Subscription { run_id: Some(run_id(ask.method, run)?), session: None },
        (None, Some(key)) => Subscription { run_id: None, session: Some(Key::read(key, None)?.full) },
        _ => return Err(RpcError::invalid("invalid runs.subscribe params: must have either runId or sessionKey")),
    };
    let id = uuid::Uuid::now_v7().to_string();
    let stop = ask.connection.stop.child_token();
    {
        let mut watches = lock(&ask.connection.watches);
        if watches.len() >= MAX_WATCHES {
            return Err(RpcError::invalid(format!("this connection has {MAX_WATCHES} subscriptions already")));
        }
        watches.insert(id.clone(), stop.clone());
    }
    let mut events: Events = ask.gateway.service().engine().bus().subscribe(subscription);
    let connection = Arc::clone(ask.connection);
    let gateway = ask.gateway.clone();
    tokio::spawn(async move {
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = stop.cancelled() => return,
            };
            let Some(event) = event else { return };
            let payload = serde_json::to_value(&*event).unwrap_or_default();
            let body = Arc::new(EventBody::new(event.event_type.as_str(), &payload).droppable());
            if !connection.outbox.event(&body) {
                gateway.inner.metrics.event_dropped();
            }
        }
    });
    Ok(json!({"ok": true, "subscriptionId": id}))
}

const UNSUBSCRIBE: &[Field] = &[Field::required("subscriptionId", Kind::Text)];

pub(super) fn unsubscribe(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, UNSUBSCRIBE)?;
    let watch = lock(&ask.connection.watches).remove(text(&params, "subscriptionId").unwrap_or_default());
    if let Some(stop) = &watch {
        stop.cancel();
    }
    Ok(json!({"ok": true, "removed": watch.is_some()}))
}
