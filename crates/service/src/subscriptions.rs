//! Events of runs: recorded ones page by page, and new ones for subscribers.

use crate::{
    Call, Handle, Hub, Lane, MethodError, RpcError, Service, Terms,
    hub::{Connection, EventBody, lock},
    logs, methods,
    params::{Count, Text},
    sessions::Key,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use toolyard_engine::{Events, Subscription};
use toolyard_protocol::{ExecutionEvent, RunId};

/// Subscriptions of one connection.
const MAX_WATCHES: usize = 64;
/// The number of events in one page, by default.
const DEFAULT_EVENTS: u64 = 1000;
/// Log lines in one event, and their bytes.
const LOG_LINES: usize = 200;
const LOG_BYTES: usize = 64 << 10;
/// The most events in one page.
const MAX_EVENTS: u64 = 10_000;

methods! {
    /// Shows the recorded events of a run, page by page.
    RunsEvents = "runs.events", Terms::read(), EventsParams => EventPage;
    /// Sends the events of a run, or of a session's runs, until the connection ends or unsubscribes.
    RunsSubscribe = "runs.subscribe", Terms::read(), SubscribeParams => Subscribed;
    /// Sends log lines as they are written, until the connection ends or unsubscribes with `runs.unsubscribe`.
    LogsSubscribe = "logs.subscribe", Terms::read().of_installation(), LogsParams => LogsSubscribed;
    /// Ends a subscription.
    RunsUnsubscribe = "runs.unsubscribe", Terms::read().lane(Lane::Express), UnsubscribeParams => Unsubscribed;
}

/// Which events are shown.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventsParams {
    run_id: RunId,
    after: Option<Count>,
    limit: Option<Count>,
}

/// Events of a run.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventPage {
    run_id: RunId,
    events: Vec<ExecutionEvent>,
    has_more: bool,
}

impl Handle<RunsEvents> for Service {
    async fn handle(&self, _: &Call<'_>, params: EventsParams) -> Result<EventPage, MethodError> {
        let after = params.after.unwrap_or_default().0;
        let limit = params.limit.map_or(DEFAULT_EVENTS, |limit| limit.0).clamp(1, MAX_EVENTS) as usize;
        let all = self.export(params.run_id).await?.events;
        let mut events: Vec<_> = all.into_iter().filter(|event| event.seq > after).take(limit + 1).collect();
        let has_more = events.len() > limit;
        events.truncate(limit);
        Ok(EventPage { run_id: params.run_id, events, has_more })
    }
}

/// A run, or a session.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubscribeParams {
    run_id: Option<RunId>,
    session_key: Option<Text>,
}

/// A subscription.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subscribed {
    ok: bool,
    subscription_id: String,
}

/// Begins a subscription of a connection: its id, and the token that ends it.
fn begin_watch(connection: &Connection) -> Result<(String, CancellationToken), RpcError> {
    let subscription_id = uuid::Uuid::now_v7().to_string();
    let stop = connection.stop.child_token();
    let mut watches = lock(&connection.watches);
    if watches.len() >= MAX_WATCHES {
        return Err(RpcError::invalid(format!("this connection has {MAX_WATCHES} subscriptions already")));
    }
    watches.insert(subscription_id.clone(), stop.clone());
    Ok((subscription_id, stop))
}

impl Handle<RunsSubscribe> for Hub {
    async fn handle(&self, call: &Call<'_>, params: SubscribeParams) -> Result<Subscribed, MethodError> {
        let subscription = match (params.run_id, params.session_key) {
            (Some(run_id), None) => Subscription { run_id: Some(run_id), ..Subscription::default() },
            (None, Some(key)) => {
                let session = Some(Key::read(&call.caller.workspace, &key, None)?.full);
                Subscription { session, ..Subscription::default() }
            }
            _ => {
                let problem = "invalid runs.subscribe params: must have either runId or sessionKey";
                return Err(RpcError::invalid(problem).into());
            }
        };
        let subscription = Subscription { workspace: Some(call.caller.workspace.clone()), ..subscription };
        let connection = call.connection()?;
        let (subscription_id, stop) = begin_watch(connection)?;
        let mut events: Events = self.service().engine().watch_events(subscription).await;
        let (hub, connection) = (self.clone(), Arc::clone(connection));
        tokio::spawn(async move {
            loop {
                let event = tokio::select! {
                    event = events.next() => event,
                    () = stop.cancelled() => return,
                };
                let Some(event) = event else { return };
                let body = Arc::new(EventBody::new(event.event_type.as_str(), &*event).droppable());
                if !connection.outbox.event(&body) {
                    hub.metrics().event_dropped();
                }
            }
        });
        Ok(Subscribed { ok: true, subscription_id })
    }
}

/// Where log lines begin.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LogsParams {
    /// Only lines after this cursor, which `logs.tail` and the event `logs` give.
    cursor: Option<Count>,
}

/// A subscription to log lines.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogsSubscribed {
    subscription_id: String,
    /// Where the first event begins.
    cursor: u64,
}

/// The event `logs`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LogLines {
    lines: Vec<String>,
    /// Where the next event begins.
    cursor: u64,
    /// Whether lines were lost before these.
    lost: bool,
}

impl Handle<LogsSubscribe> for Hub {
    async fn handle(&self, call: &Call<'_>, params: LogsParams) -> Result<LogsSubscribed, MethodError> {
        let connection = Arc::clone(call.connection()?);
        let (subscription_id, stop) = begin_watch(&connection)?;
        let mut news = logs::ring().watch();
        let mut cursor = params.cursor.map_or_else(|| *news.borrow_and_update(), |cursor| cursor.0);
        let answer = LogsSubscribed { subscription_id, cursor };
        tokio::spawn(async move {
            loop {
                let (lines, end, lost) = logs::ring().tail(Some(cursor), LOG_LINES, LOG_BYTES);
                if !lines.is_empty() {
                    cursor = end;
                    connection.outbox.event(&Arc::new(EventBody::new("logs", &LogLines { lines, cursor, lost })));
                    continue;
                }
                tokio::select! {
                    changed = news.changed() => if changed.is_err() { return },
                    () = stop.cancelled() => return,
                }
            }
        });
        Ok(answer)
    }
}

/// A subscription by id.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnsubscribeParams {
    subscription_id: Text,
}

/// Whether there was such a subscription.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Unsubscribed {
    ok: bool,
    removed: bool,
}

impl Handle<RunsUnsubscribe> for Hub {
    async fn handle(&self, call: &Call<'_>, params: UnsubscribeParams) -> Result<Unsubscribed, MethodError> {
        let watch = lock(&call.connection()?.watches).remove(&*params.subscription_id);
        if let Some(stop) = &watch {
            stop.cancel();
        }
        Ok(Unsubscribed { ok: true, removed: watch.is_some() })
    }
}
