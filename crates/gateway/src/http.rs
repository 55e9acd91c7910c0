//! The HTTP door: liveness and readiness, `POST /tools/invoke`, live events of a run, `/metrics`, and the console's
//! pages. On any other path a WebSocket upgrade starts the Gateway's RPC.

use crate::{
    admission::{Admitted, Peer, Rule, admit, refusal, turn_away},
    bridge, console,
    gateway::Gateway,
    http_methods::HttpMethods::{self, Any, Form, Get, Post, Read},
    request_slots::Permit,
    settings::{BODY_WITHIN, MAX_HTTP_BODY},
    ws::upgrade,
};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::{ConnectInfo, Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{convert::Infallible, sync::Arc, sync::LazyLock, time::Duration};
use tokio_util::sync::CancellationToken;
use toolyard_bridge::server::ApprovalRole;
use toolyard_engine::{BoxFuture, Caller, Door, Subscription};
use toolyard_protocol::{EventType, ExecutionEvent, RunId, WorkspaceId};
use toolyard_service::{
    Lane, Message, Object,
    cluster::envelope::NODE_PATH,
    load_monitor::{self, EventLoop},
    params::{self, Checker},
    sessions::Key,
    tools::{Invocation, Invoked, Output, Refused},
    workspaces::held_scopes,
};

/// A path, what it demands of a request, and what answers it.
struct Route {
    path: &'static str,
    methods: HttpMethods,
    rule: Rule,
    answer: fn(Gateway, Admitted) -> BoxFuture<'static, Response>,
}

/// Every path of the gateway itself. `*` matches one segment.
const ROUTES: &[Route] = &[
    Route { path: "/health", methods: Read, rule: Rule::open(), answer: |_, _| Box::pin(live()) },
    Route { path: "/healthz", methods: Read, rule: Rule::open(), answer: |_, _| Box::pin(live()) },
    Route { path: "/ready", methods: Read, rule: Rule::open(), answer: |g, _| Box::pin(ready(g)) },
    Route { path: "/readyz", methods: Read, rule: Rule::open(), answer: |g, _| Box::pin(ready(g)) },
    Route { path: "/metrics", methods: Read, rule: WITHOUT_BODY, answer: |g, r| Box::pin(metrics(g, r)) },
    Route { path: "/tools/invoke", methods: Post, rule: WITH_BODY, answer: |g, r| Box::pin(invoke(g, r)) },
    Route { path: "/bridge", methods: Any, rule: Rule::first_frame(), answer: |g, r| Box::pin(bridge_socket(g, r)) },
    Route { path: "/bridge/inbound", methods: Post, rule: WITH_BODY, answer: |g, r| Box::pin(bridge_inbound(g, r)) },
    Route {
        path: "/console/session",
        methods: Get,
        rule: Rule::open(),
        answer: |g, r| Box::pin(console::session(g, r)),
    },
    Route { path: "/pair", methods: Post, rule: console::FORM, answer: |g, r| Box::pin(console::pair(g, r)) },
    Route { path: "/logout", methods: Post, rule: console::FORM, answer: |g, r| Box::pin(console::logout(g, r)) },
    Route {
        path: "/console/socket",
        methods: Any,
        rule: Rule::first_frame(),
        answer: |g, r| Box::pin(console::socket(g, r)),
    },
    Route { path: "/download/*", methods: Get, rule: Rule::open(), answer: |g, r| Box::pin(console::download(g, r)) },
    Route { path: "/deny/*", methods: Form, rule: Rule::open(), answer: |g, r| Box::pin(console::deny(g, r)) },
    Route { path: "/runs/*/events", methods: Get, rule: WITHOUT_BODY, answer: |g, r| Box::pin(run_events(g, r)) },
];

const WITH_BODY: Rule = Rule::credential(MAX_HTTP_BODY, BODY_WITHIN);
const WITHOUT_BODY: Rule = Rule::credential(0, BODY_WITHIN);

impl Route {
    fn find(path: &str) -> Option<&'static Self> {
        ROUTES.iter().find(|route| {
            let (mut own, mut asked) = (route.path.split('/'), path.split('/'));
            loop {
                match (own.next(), asked.next()) {
                    (None, None) => return true,
                    (Some("*"), Some(segment)) if !segment.is_empty() => {}
                    (Some(own), Some(asked)) if own == asked => {}
                    _ => return false,
                }
            }
        })
    }
}

/// One service for every path: a request goes through admission or gets no further.
pub fn router(gateway: Gateway) -> Router {
    Router::new().fallback(entrance).layer(middleware::from_fn(safe_headers)).with_state(gateway)
}

async fn entrance(State(gateway): State<Gateway>, ConnectInfo(peer): ConnectInfo<Peer>, request: Request) -> Response {
    if request.uri().path() == NODE_PATH
        && let Some(cluster) = gateway.service().cluster()
    {
        return crate::node::serve(&gateway, cluster, &peer, request).await;
    }
    // `/pair` is both a page and the target of its form.
    let is_page = Read.accept(request.method()) && request.uri().path() == "/pair";
    if let Some(route) = Route::find(request.uri().path()).filter(|_| !is_page) {
        if !route.methods.accept(request.method()) {
            return turn_away(&gateway, &peer, &request, wrong_method(route.methods));
        }
        return match admit(&gateway, &peer, route.rule, request) {
            Ok(admitted) => (route.answer)(gateway, admitted).await,
            Err(refused) => refused,
        };
    }
    if upgrade::is_wanted(request.method(), request.headers()) {
        return match admit(&gateway, &peer, Rule::first_frame(), request) {
            Ok(admitted) => upgrade::accept(&gateway, admitted),
            Err(refused) => refused,
        };
    }
    if let Some(mount) = gateway.mounted(request.uri().path()) {
        return crate::mount::serve(mount, &gateway, &peer, request).await;
    }
    if let Some(asset) = console::asset(request.method(), request.uri().path()) {
        return match admit(&gateway, &peer, Rule::open(), request) {
            Ok(admitted) => console::serve_asset(asset, &admitted.parts),
            Err(refused) => refused,
        };
    }
    turn_away(&gateway, &peer, &request, (StatusCode::NOT_FOUND, "Not Found").into_response())
}

async fn safe_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let headers = response.headers_mut();
        headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
        headers.insert("permissions-policy", HeaderValue::from_static("camera=(), microphone=(), geolocation=()"));
    }
    response
}

pub(crate) fn json_response(status: StatusCode, value: &impl Serialize) -> Response {
    let mut response = match serde_json::to_vec(value) {
        Ok(bytes) => Response::new(Body::from(bytes)),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

pub(crate) fn wrong_method(allowed: HttpMethods) -> Response {
    let mut response = (StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed").into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed.names()));
    response
}

/// What `/health` answers.
#[derive(Serialize)]
struct HealthReport {
    ok: bool,
    status: &'static str,
}

async fn live() -> Response {
    fresh(json_response(StatusCode::OK, &HealthReport { ok: true, status: "live" }))
}

/// What `/ready` answers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Readiness {
    ready: bool,
    /// The parts that do not work, by name: `stopping`, `draining`, `store`. Why is in the log, not on an open path.
    failing: Vec<&'static str>,
    uptime_ms: u64,
    event_loop: EventLoop,
}

async fn ready(gateway: Gateway) -> Response {
    let mut failing = Vec::new();
    if gateway.stop().is_cancelled() {
        failing.push("stopping");
    }
    if gateway.service().engine().is_draining() {
        failing.push("draining");
    }
    if let Err(error) = gateway.service().engine().store().writable() {
        tracing::debug!(%error, "not ready: the store cannot write");
        failing.push("store");
    }
    let status = if failing.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let readiness = Readiness {
        ready: failing.is_empty(),
        failing,
        uptime_ms: gateway.service().uptime_ms(),
        event_loop: gateway.hub().load_monitor().report(),
    };
    fresh(json_response(status, &readiness))
}

pub(crate) fn fresh(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A refusal or a failure.
#[derive(Serialize)]
struct Failed<'a> {
    ok: bool,
    error: Problem<'a>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Problem<'a> {
    r#type: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    requires_approval: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Object>,
}

fn failed(status: StatusCode, kind: &str, message: &str) -> Response {
    let error = Problem { r#type: kind, message, ..Problem::default() };
    json_response(status, &Failed { ok: false, error })
}

fn bad_request(message: &str) -> Response {
    failed(StatusCode::BAD_REQUEST, "invalid_request", message)
}

/// Where Claude Code's plugin connects. It shows its session's secret in its first frame.
async fn bridge_socket(gateway: Gateway, request: Admitted) -> Response {
    if !upgrade::is_wanted(&request.parts.method, &request.parts.headers) {
        return bridge::not_a_socket().into_response();
    }
    bridge::accept(&gateway, request)
}

/// A message for Claude, as `bridge.inbound` takes it. Agents use this door, so no message counts as a verdict.
async fn bridge_inbound(gateway: Gateway, request: Admitted) -> Response {
    let received = match request.read(&gateway).await {
        Ok(received) => received,
        Err(response) => return response,
    };
    static CHECKER: LazyLock<Checker> = LazyLock::new(Checker::of::<Message>);
    let message = match serde_json::from_slice::<Value>(&received.bytes) {
        Ok(message) => params::read::<Message>("bridge.inbound params", &CHECKER, message),
        Err(error) => return bad_request(&error.to_string()),
    };
    let _permit = match gateway.http_place(&received.origin, Lane::Ordinary, received.bytes.len()).await {
        Ok(permit) => permit,
        Err(response) => return response,
    };
    let message = match message {
        Ok(message) => message,
        Err(error) => return bad_request(&error.message),
    };
    let caller = Caller { door: Door::Http, scopes: Vec::new(), is_person: false, ..Caller::cli("http") };
    let caller = caller.in_workspace(received.workspace.clone());
    match gateway.hub().received_elsewhere(&received.workspace, &message).await {
        Some(Ok(accepted)) => return json_response(StatusCode::OK, &accepted),
        Some(Err(failure)) => return bad_request(&failure.message),
        None => {}
    }
    match gateway.hub().receive(&caller, message, ApprovalRole::Messenger).await {
        Ok(accepted) => json_response(StatusCode::OK, &accepted),
        Err(error) => bad_request(error.message()),
    }
}

async fn invoke(gateway: Gateway, request: Admitted) -> Response {
    let received = match request.read(&gateway).await {
        Ok(received) => received,
        Err(response) => return response,
    };
    let invocation = match read_invocation(&gateway, &received.workspace, &received.bytes) {
        Ok(invocation) => invocation,
        Err(response) => return response,
    };
    let permit = match gateway.http_place(&received.origin, Lane::Ordinary, received.bytes.len()).await {
        Ok(permit) => permit,
        Err(response) => return response,
    };
    // The call continues if the client disconnects; its result is recorded either way.
    let task = tokio::spawn(async move {
        let _permit = permit;
        gateway.hub().run_call(invocation).await
    });
    match task.await {
        Ok(invoked) => invoked_response(invoked),
        Err(_) => failed(StatusCode::INTERNAL_SERVER_ERROR, "tool_error", "tool execution failed"),
    }
}

/// The body of `POST /tools/invoke`. A field of another kind than expected is left aside, as the real gateway does;
/// only the tool and its arguments must be right.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct InvokeBody {
    tool: Lenient<String>,
    name: Lenient<String>,
    args: Value,
    action: Lenient<String>,
    session_key: Lenient<String>,
    agent_id: Lenient<String>,
    timeout_ms: Lenient<u64>,
    idempotency_key: Lenient<String>,
    dry_run: Lenient<bool>,
}

/// A value of the expected type, or any other value.
#[derive(Deserialize)]
#[serde(untagged)]
enum Lenient<T> {
    Right(T),
    Other(serde::de::IgnoredAny),
}

impl<T> Default for Lenient<T> {
    fn default() -> Self {
        Self::Other(serde::de::IgnoredAny)
    }
}

impl<T> Lenient<T> {
    fn get(self) -> Option<T> {
        match self {
            Self::Right(value) => Some(value),
            Self::Other(_) => None,
        }
    }
}

fn read_invocation(gateway: &Gateway, workspace: &WorkspaceId, body: &Bytes) -> Result<Invocation, Response> {
    let value: Value = if body.is_empty() {
        Value::Object(Object::new())
    } else {
        serde_json::from_slice(body)
            .map_err(|error| refusal(StatusCode::BAD_REQUEST, &error.to_string(), "invalid_request_error"))?
    };
    if !value.is_object() {
        return Err(bad_request("the body must be an object"));
    }
    let body = InvokeBody::deserialize(value).map_err(|error| bad_request(&error.to_string()))?;
    let Some(name) = body.tool.get().or(body.name.get()).filter(|name| !name.is_empty()) else {
        return Err(bad_request("tools.invoke requires name"));
    };
    let mut args = match body.args {
        Value::Null => Object::new(),
        Value::Object(args) => args,
        _ => return Err(bad_request("tools.invoke args must be an object")),
    };
    if let Some(action) = body.action.get().filter(|action| !action.is_empty())
        && !args.contains_key("action")
        && takes_action(gateway, &name)
    {
        args.insert("action".to_owned(), action.into());
    }
    let (session, agent) = (body.session_key.get(), body.agent_id.get());
    let key = Key::read(workspace, session.as_deref().unwrap_or("main"), agent.as_deref())
        .map_err(|error| bad_request(&error.message))?;
    if !gateway.hub().knows_agent(&key.agent) {
        return Err(bad_request(&format!("Unknown agent id \"{}\"", key.agent)));
    }
    let caller = Caller {
        door: Door::Http,
        agent: key.agent,
        session: Some(key.full),
        scopes: held_scopes(workspace, vec!["operator.admin".to_owned()]),
        is_person: false,
        ..Caller::cli("operator")
    };
    let caller = caller.in_workspace(workspace.clone());
    let idempotency_key = body.idempotency_key.get().filter(|key| !key.is_empty());
    let dry_run = body.dry_run.get().unwrap_or_default();
    Ok(Invocation {
        name,
        args,
        asking: gateway.hub().route(&caller, None, idempotency_key.is_some() && !dry_run),
        caller: Arc::new(caller),
        timeout_ms: body.timeout_ms.get(),
        idempotency_key,
        dry_run,
        cancel: None,
    })
}

/// Whether a tool has an argument `action`: only then may it be given outside the arguments.
fn takes_action(gateway: &Gateway, name: &str) -> bool {
    let tools = gateway.service().engine().tools();
    let schema = tools.snapshot.get(name).map(|entry| entry.definition().input_schema.value());
    let properties = schema.and_then(|schema| ObjectSchema::deserialize(schema).ok());
    properties.is_some_and(|schema| schema.properties.contains_key("action"))
}

/// The part of a schema that lists the arguments.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectSchema {
    properties: Object,
}

/// The response of `POST /tools/invoke` if the call succeeded.
#[derive(Serialize)]
struct InvokeSuccess {
    ok: bool,
    result: Output,
    #[serde(skip_serializing_if = "Option::is_none")]
    deduplicated: Option<bool>,
}

fn invoked_response(invoked: Invoked) -> Response {
    match invoked.outcome {
        Ok(result) => {
            let deduplicated = invoked.deduplicated.then_some(true);
            json_response(StatusCode::OK, &InvokeSuccess { ok: true, result, deduplicated })
        }
        Err(refused) => {
            let (status, kind) = http_status(&refused);
            let error = Problem {
                r#type: kind,
                message: &refused.message,
                requires_approval: (kind == "tool_call_blocked").then_some(refused.requires_approval),
                code: Some(&refused.code),
                details: (!refused.details.is_empty()).then_some(&refused.details),
            };
            json_response(status, &Failed { ok: false, error })
        }
    }
}

fn http_status(refused: &Refused) -> (StatusCode, &'static str) {
    match refused.code.as_str() {
        "not_found" if !refused.known => (StatusCode::NOT_FOUND, "not_found"),
        "forbidden" | "requires_approval" => (StatusCode::FORBIDDEN, "tool_call_blocked"),
        "validation_error" => (StatusCode::BAD_REQUEST, "tool_error"),
        "conflict" | "precondition_failed" => (StatusCode::CONFLICT, "tool_error"),
        "limit_exceeded" => (StatusCode::BAD_REQUEST, "tool_error"),
        "timeout" => (StatusCode::GATEWAY_TIMEOUT, "tool_error"),
        "unavailable" | "store_unavailable" => (StatusCode::SERVICE_UNAVAILABLE, "tool_error"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "tool_error"),
    }
}

async fn metrics(gateway: Gateway, request: Admitted) -> Response {
    // The figures are those of all workspaces together.
    if !request.workspace.is_default() {
        return refusal(StatusCode::NOT_FOUND, "Not found", "not_found");
    }
    let engine = gateway.service().engine();
    let mut page = gateway.hub().metrics().page(&[
        ("toolyard_connections", "WebSocket clients connected now.", gateway.hub().count() as f64),
        (
            "toolyard_unproven_connections",
            "Open sockets that have not shown a credential.",
            gateway.inner.connection_slots.unproven() as f64,
        ),
        ("toolyard_active_runs", "Runs and calls under way.", engine.active_runs().len() as f64),
        ("toolyard_pending_approvals", "Approvals that wait.", engine.approvals().pending().len() as f64),
        ("toolyard_tools", "Tools in the catalog.", engine.tools().snapshot.len() as f64),
        ("toolyard_uptime_seconds", "Seconds since the start.", gateway.service().uptime_ms() as f64 / 1000.0),
        ("process_resident_memory_bytes", "Memory in RAM.", load_monitor::rss_bytes() as f64),
        ("process_cpu_seconds_total", "CPU time so far.", load_monitor::cpu_seconds()),
    ]);
    if let Some(models) = gateway.service().models() {
        page.push_str(&models.metrics());
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page).into_response()
}

/// A run's events: those on record first, then new ones as they happen, until the run ends.
async fn run_events(gateway: Gateway, request: Admitted) -> Response {
    let run = request.parts.uri.path().split('/').nth(2).unwrap_or_default();
    let Ok(run_id) = RunId::parse(run) else {
        return bad_request("that is not a run id");
    };
    let permit = match gateway.http_place(&request.origin, Lane::Waiting, 0).await {
        Ok(permit) => permit,
        Err(response) => return response,
    };
    // A client that reconnects sends the number of the last event that it received.
    let seen: u64 = request
        .parts
        .headers
        .get("last-event-id")
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse().ok())
        .unwrap_or_default();
    // Subscribed before the record is read, so that no event is missed; duplicates are dropped.
    let caller = Caller::cli("http").in_workspace(request.workspace.clone());
    let engine = gateway.service().engine().clone();
    let checked = tokio::task::spawn_blocking(move || engine.check_run(&caller, run_id)).await;
    if let Ok(Err(failure)) = checked {
        return failed(StatusCode::NOT_FOUND, "not_found", &failure.message);
    }
    let workspace = Some(request.workspace.clone());
    let subscription = Subscription { run_id: Some(run_id), workspace, ..Subscription::default() };
    let live = gateway.service().engine().watch_events(subscription).await;
    let recorded = match gateway.service().export(run_id).await {
        Ok(export) => export.events,
        Err(error) => return failed(StatusCode::NOT_FOUND, "not_found", error.message()),
    };
    let stop = gateway.stop().clone();
    let state = Stream { recorded: recorded.into_iter(), live, last: seen, done: false, stop, _permit: permit };
    let stream = futures_util::stream::unfold(state, |mut state| async move {
        let event = state.next().await?;
        Some((Ok::<_, Infallible>(event), state))
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

struct Stream {
    recorded: std::vec::IntoIter<ExecutionEvent>,
    live: toolyard_engine::Events,
    last: u64,
    done: bool,
    stop: CancellationToken,
    _permit: Permit,
}

impl Stream {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.done {
                return None;
            }
            if let Some(event) = self.recorded.next() {
                self.done = event.event_type == EventType::RunFinished;
                if event.seq > self.last {
                    self.last = event.seq;
                    return Some(sse_event(&event));
                }
                continue;
            }
            let event = tokio::select! {
                event = self.live.next() => event?,
                () = self.stop.cancelled() => return None,
            };
            let is_progress = event.event_type == EventType::StepProgress;
            if event.seq <= self.last && !is_progress {
                continue;
            }
            self.last = self.last.max(event.seq);
            self.done = event.event_type == EventType::RunFinished;
            return Some(sse_event(&event));
        }
    }
}

/// An event in the form of server-sent events.
fn sse_event(event: &ExecutionEvent) -> Event {
    let head = || Event::default().id(event.seq.to_string()).event(event.event_type.as_str());
    head().json_data(event).unwrap_or_else(|error| head().comment(format!("the event cannot be written: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_paths_are_open_and_segments_match_whole() {
        let open: Vec<&str> = ROUTES.iter().filter(|route| route.rule.is_open()).map(|route| route.path).collect();
        assert_eq!(open, ["/health", "/healthz", "/ready", "/readyz", "/console/session", "/download/*", "/deny/*"]);
        let found = |path: &str| Route::find(path).map(|route| route.path);
        assert_eq!(found("/runs/x/events"), Some("/runs/*/events"));
        for other in ["/runs//events", "/runs/x/y/events", "/runs/x/events/", "/health/", "//health", "/healthy", ""] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
