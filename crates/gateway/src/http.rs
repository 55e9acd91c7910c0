//! The HTTP door: liveness and readiness, `POST /tools/invoke`, a run's events as they happen, and `/metrics`. On any
//! other path a WebSocket upgrade leads to the Gateway's RPC.

use crate::{
    auth::{self, Origin, same_secret},
    bridge,
    hub::Gateway,
    pulse,
    rpc::{
        self,
        sessions::{self, Key},
        tools::{self, Invocation, Refused},
    },
    settings::{BODY_WITHIN, MAX_HTTP_BODY},
    ws::upgrade,
};
use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{ConnectInfo, Path, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
    routing::any,
};
use serde_json::{Map, Value, json};
use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use toolyard_bridge::server::Standing;
use toolyard_engine::{Caller, Door, Subscription};
use toolyard_protocol::{EventType, RunId};

/// The routes.
pub fn router(gateway: Gateway) -> Router {
    Router::new()
        .route("/health", any(live))
        .route("/healthz", any(live))
        .route("/ready", any(ready))
        .route("/readyz", any(ready))
        .route("/metrics", any(metrics))
        .route("/tools/invoke", any(invoke))
        .route("/bridge", any(bridge_socket))
        .route("/bridge/inbound", any(bridge_inbound))
        .route("/runs/{run}/events", any(run_events))
        .fallback(anything_else)
        .layer(middleware::from_fn(safe_headers))
        .with_state(gateway)
}

/// The address at the other end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

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

pub(crate) fn json_response(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn wrong_method(allowed: &'static str) -> Response {
    let mut response = (StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed").into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

fn is_look(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

async fn live(method: Method) -> Response {
    if !is_look(&method) {
        return wrong_method("GET, HEAD");
    }
    fresh(json_response(StatusCode::OK, &json!({"ok": true, "status": "live"})))
}

async fn ready(State(gateway): State<Gateway>, method: Method) -> Response {
    if !is_look(&method) {
        return wrong_method("GET, HEAD");
    }
    let stopping = gateway.inner.stop.is_cancelled();
    let status = if stopping { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let failing: Vec<&str> = if stopping { vec!["stopping"] } else { vec![] };
    fresh(json_response(
        status,
        &json!({
            "ready": !stopping, "failing": failing, "uptimeMs": gateway.service().uptime_ms(),
            "eventLoop": gateway.inner.pulse.report(),
        }),
    ))
}

fn fresh(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Upgrades anywhere; beside that, what others mounted.
async fn anything_else(
    State(gateway): State<Gateway>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    request: Request,
) -> Response {
    if upgrade::is_wanted(request.method(), request.headers()) {
        return upgrade::accept(&gateway, peer.ip(), request);
    }
    if let Some(mount) = gateway.mounted(request.uri().path()) {
        return crate::mount::serve(mount, &gateway, peer, request).await;
    }
    (StatusCode::NOT_FOUND, "Not Found").into_response()
}

/// Lets a request in that shows the shared credential. A bearer is the owner.
pub(crate) fn admit(gateway: &Gateway, peer: SocketAddr, headers: &HeaderMap) -> Result<Origin, Response> {
    let settings = gateway.settings();
    let origin = auth::origin(settings, peer.ip(), headers).map_err(|refused| upgrade::unattributed(&refused))?;
    if !origin.browser_allowed {
        let error = json!({"error": {"message": "Origin not allowed", "type": "forbidden"}});
        return Err(json_response(StatusCode::FORBIDDEN, &error));
    }
    if let Some(wait) = gateway.inner.guesses.locked(&origin) {
        let error = json!({"error": {"message": "Too many failed authentication attempts. Please try again later.", "type": "rate_limited"}});
        let mut response = json_response(StatusCode::TOO_MANY_REQUESTS, &error);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        return Err(response);
    }
    let shown = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    let bearer = shown.and_then(|v| v.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    match bearer {
        Some((_, token)) if same_secret(token.trim(), &settings.token) => {
            gateway.inner.guesses.right(&origin);
            Ok(origin)
        }
        other => {
            if other.is_some() {
                gateway.inner.guesses.wrong(&origin);
            }
            let error = json!({"error": {"message": "Unauthorized", "type": "unauthorized"}});
            Err(json_response(StatusCode::UNAUTHORIZED, &error))
        }
    }
}

fn bad_request(kind: &str, message: impl Into<String>) -> Response {
    let error = json!({"ok": false, "error": {"type": kind, "message": message.into()}});
    json_response(StatusCode::BAD_REQUEST, &error)
}

/// What somebody who may do so has posted.
async fn posted(gateway: &Gateway, peer: SocketAddr, request: Request) -> Result<Bytes, Response> {
    if request.method() != Method::POST {
        return Err(wrong_method("POST"));
    }
    admit(gateway, peer, request.headers())?;
    read_body(request).await
}

/// A request's body, within its limits.
async fn read_body(request: Request) -> Result<Bytes, Response> {
    match tokio::time::timeout(BODY_WITHIN, to_bytes(request.into_body(), MAX_HTTP_BODY)).await {
        Ok(Ok(body)) => Ok(body),
        Err(_) => {
            let error = json!({"error": {"message": "Request body timeout", "type": "invalid_request_error"}});
            Err(json_response(StatusCode::REQUEST_TIMEOUT, &error))
        }
        Ok(Err(_)) => {
            let error = json!({"error": {"message": "Payload too large", "type": "invalid_request_error"}});
            Err(json_response(StatusCode::PAYLOAD_TOO_LARGE, &error))
        }
    }
}

/// Where Claude Code's plugin connects. It shows its session's secret in its first frame.
async fn bridge_socket(
    State(gateway): State<Gateway>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    request: Request,
) -> Response {
    if !upgrade::is_wanted(request.method(), request.headers()) {
        return bridge::not_a_socket().into_response();
    }
    bridge::accept(&gateway, peer.ip(), request)
}

/// A message for Claude, as `bridge.inbound` takes it. A bearer is the owner, who may pass on verdicts as well.
async fn bridge_inbound(
    State(gateway): State<Gateway>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    request: Request,
) -> Response {
    let body = match posted(&gateway, peer, request).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let params = match serde_json::from_slice::<Value>(&body) {
        Ok(params) => params,
        Err(error) => return bad_request("invalid_request", error.to_string()),
    };
    match rpc::bridge::receive(&gateway, "bridge.inbound", Some(params), Standing::Approver).await {
        Ok(accepted) => json_response(StatusCode::OK, &accepted),
        Err(error) => bad_request("invalid_request", error.message),
    }
}

async fn invoke(
    State(gateway): State<Gateway>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    request: Request,
) -> Response {
    let body = match posted(&gateway, peer, request).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    match read_invocation(&gateway, &body) {
        Ok(invocation) => {
            // The call goes on when the client goes away; its result is recorded either way.
            let task = tokio::spawn(async move { tools::run(&gateway, invocation).await });
            match task.await {
                Ok(invoked) => invoked_response(invoked),
                Err(_) => json_response(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    &json!({"ok": false, "error": {"type": "tool_error", "message": "tool execution failed"}}),
                ),
            }
        }
        Err(response) => response,
    }
}

fn read_invocation(gateway: &Gateway, body: &Bytes) -> Result<Invocation, Response> {
    let empty = || Value::Object(Map::new());
    let value: Value = if body.is_empty() {
        empty()
    } else {
        serde_json::from_slice(body).map_err(|e| {
            let error = json!({"error": {"message": e.to_string(), "type": "invalid_request_error"}});
            json_response(StatusCode::BAD_REQUEST, &error)
        })?
    };
    let Value::Object(mut map) = value else {
        return Err(bad_request("invalid_request", "the body must be an object"));
    };
    let text = |map: &Map<String, Value>, key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
    let name = text(&map, "tool").or_else(|| text(&map, "name")).filter(|n| !n.is_empty());
    let Some(name) = name else {
        return Err(bad_request("invalid_request", "tools.invoke requires name"));
    };
    let mut args = match map.remove("args") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(args)) => args,
        Some(_) => return Err(bad_request("invalid_request", "tools.invoke args must be an object")),
    };
    if let Some(action) = text(&map, "action").filter(|a| !a.is_empty())
        && !args.contains_key("action")
        && takes_action(gateway, &name)
    {
        args.insert("action".to_owned(), action.into());
    }
    let agent = text(&map, "agentId");
    let key = Key::read(text(&map, "sessionKey").as_deref().unwrap_or("main"), agent.as_deref())
        .map_err(|e| bad_request("invalid_request", e.message))?;
    if !sessions::knows_agent(gateway, &key.agent) {
        return Err(bad_request("invalid_request", format!("Unknown agent id \"{}\"", key.agent)));
    }
    let caller = Caller {
        door: Door::Http,
        principal: "operator".to_owned(),
        agent: key.agent,
        session: Some(key.full),
        scopes: vec!["operator.admin".to_owned()],
        is_person: false,
    };
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or_default();
    Ok(Invocation {
        name,
        args,
        caller: Arc::new(caller),
        asking: tools::route(gateway, None),
        timeout_ms: map.get("timeoutMs").and_then(Value::as_u64),
        idempotency_key: text(&map, "idempotencyKey").filter(|k| !k.is_empty()),
        dry_run: flag("dryRun"),
        cancel: None,
    })
}

/// Whether a tool has an argument `action`: only then may it be given beside the arguments.
fn takes_action(gateway: &Gateway, name: &str) -> bool {
    let tools = gateway.service().engine().tools();
    let schema = tools.snapshot.get(name).map(|entry| entry.definition().input_schema.parse());
    let properties = schema.as_ref().and_then(|s| s.get("properties"));
    properties.and_then(Value::as_object).is_some_and(|p| p.contains_key("action"))
}

fn invoked_response(invoked: tools::Invoked) -> Response {
    match invoked.outcome {
        Ok(output) => {
            let mut body = json!({"ok": true, "result": output});
            if invoked.deduplicated {
                body["deduplicated"] = true.into();
            }
            json_response(StatusCode::OK, &body)
        }
        Err(refused) => {
            let (status, kind) = http_status(&refused);
            let mut error = json!({"type": kind, "message": refused.message});
            if kind == "tool_call_blocked" {
                error["requiresApproval"] = refused.requires_approval.into();
            }
            error["code"] = refused.code.into();
            if !refused.details.is_empty() {
                error["details"] = Value::Object(refused.details);
            }
            json_response(status, &json!({"ok": false, "error": error}))
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

async fn metrics(
    State(gateway): State<Gateway>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    request: Request,
) -> Response {
    if !is_look(request.method()) {
        return wrong_method("GET, HEAD");
    }
    if let Err(response) = admit(&gateway, peer, request.headers()) {
        return response;
    }
    let engine = gateway.service().engine();
    let mut page = gateway.inner.metrics.page(&[
        ("toolyard_connections", "WebSocket clients connected now.", gateway.count() as f64),
        ("toolyard_active_runs", "Runs and calls under way.", engine.active_runs().len() as f64),
        ("toolyard_pending_approvals", "Approvals that wait.", engine.approvals().pending().len() as f64),
        ("toolyard_tools", "Tools in the catalog.", engine.tools().snapshot.len() as f64),
        ("toolyard_uptime_seconds", "Seconds since the start.", gateway.service().uptime_ms() as f64 / 1000.0),
        ("process_resident_memory_bytes", "Memory in RAM.", pulse::rss_bytes() as f64),
        ("process_cpu_seconds_total", "CPU time so far.", pulse::cpu_seconds()),
    ]);
    if let Some(models) = gateway.service().models() {
        page.push_str(&models.metrics());
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page).into_response()
}

/// A run's events: those on record first, then new ones as they happen, until the run ends.
async fn run_events(
    State(gateway): State<Gateway>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    Path(run): Path<String>,
    request: Request,
) -> Response {
    if request.method() != Method::GET {
        return wrong_method("GET");
    }
    if let Err(response) = admit(&gateway, peer, request.headers()) {
        return response;
    }
    let Ok(run_id) = RunId::parse(&run) else {
        return bad_request("invalid_request", "that is not a run id");
    };
    // A client that lost the connection says where it was.
    let seen: u64 = request
        .headers()
        .get("last-event-id")
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse().ok())
        .unwrap_or_default();
    // Subscribed before the record is read, so that nothing falls between; what comes twice is told once.
    let live = gateway.service().engine().bus().subscribe(Subscription { run_id: Some(run_id), session: None });
    let recorded = match tools::recorded_events(&gateway, run_id).await {
        Ok(recorded) => recorded,
        Err(error) => {
            let body = json!({"ok": false, "error": {"type": "not_found", "message": error.message}});
            return json_response(StatusCode::NOT_FOUND, &body);
        }
    };
    let state =
        Stream { recorded: recorded.into_iter(), live, last: seen, done: false, stop: gateway.inner.stop.clone() };
    let stream = futures_util::stream::unfold(state, |mut state| async move {
        let event = state.next().await?;
        Some((Ok::<_, Infallible>(event), state))
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

struct Stream {
    recorded: std::vec::IntoIter<Value>,
    live: toolyard_engine::Events,
    last: u64,
    done: bool,
    stop: CancellationToken,
}

impl Stream {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.done {
                return None;
            }
            if let Some(event) = self.recorded.next() {
                let seq = event.get("seq").and_then(Value::as_u64).unwrap_or_default();
                let kind = event.get("type").and_then(Value::as_str).unwrap_or("message").to_owned();
                self.done = kind == EventType::RunFinished.as_str();
                if seq > self.last {
                    self.last = seq;
                    return Some(Event::default().id(seq.to_string()).event(kind).data(event.to_string()));
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
            let data = serde_json::to_string(&*event).unwrap_or_default();
            return Some(Event::default().id(event.seq.to_string()).event(event.event_type.as_str()).data(data));
        }
    }
}
