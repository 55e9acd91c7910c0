//! Streamable HTTP. The sender of a request has been checked before (credential, `Host`, `Origin`).
//!
//! A response is plain JSON unless another message must be sent before it; the first such message turns it into an
//! event stream. Revisions with a handshake have sessions; 2026-07-28 has none.

use super::{
    Client, Exchange, Inner, McpServer, forward_changes, listen,
    session::{self, ClientOutput, Session, lock},
    stdio::{modern, opening, unsupported},
};
use crate::{
    Revision, RpcError, headers,
    jsonrpc::{
        self, HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, Incoming, METHOD_NOT_FOUND, MISSING_CAPABILITY,
        UNSUPPORTED_REVISION,
    },
    revision::META_VERSION,
    wire::{
        Payload,
        requests::{CallOrigin, Request, RequestMeta},
    },
};
use bytes::Bytes;
use futures_util::{Stream, future::BoxFuture, stream};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde_json::Value;
use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A body is at most this long.
pub const MAX_BODY_BYTES: usize = 16 << 20;
/// A body must have come within this time.
pub const BODY_WITHIN: Duration = Duration::from_secs(30);
/// The largest number of sessions; beyond that, the one that is idle longest ends.
const MAX_SESSIONS: usize = 10_000;
/// How long a session may be unused before it ends.
const SESSION_IDLE: Duration = Duration::from_secs(3600);
/// How often a keep-alive is sent on an idle stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

const SESSION_HEADER: &str = "mcp-session-id";
const VERSION_HEADER: &str = "mcp-protocol-version";

/// What is answered.
pub enum HttpBody {
    /// The complete body.
    Whole(Bytes),
    /// A body that is sent in pieces.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

/// The purpose of a request, which determines its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// A request that wants an answer.
    Call,
    /// A notification, such as a cancellation, or the answer to a question of the server; processed at once.
    Notice,
    /// A stream that lasts, or the end of a session.
    Listen,
}

/// The MCP endpoint. Cheap to clone.
#[derive(Clone)]
pub struct HttpDoor {
    inner: Arc<Inner>,
    sessions: Arc<Mutex<HashMap<String, HttpSession>>>,
    stop: CancellationToken,
    /// Makes the id of a session from a random one.
    name: Option<Arc<SessionName>>,
}

/// Makes the id of a session from a random text.
type SessionName = dyn Fn(&str) -> String + Send + Sync;

#[derive(Clone)]
struct HttpSession {
    session: Arc<Session>,
    principal: String,
}

impl McpServer {
    /// The endpoint; `stop` ends its streams.
    pub fn http(&self, stop: CancellationToken) -> HttpDoor {
        HttpDoor { inner: self.inner.clone(), sessions: Arc::default(), stop, name: None }
    }
}

impl HttpDoor {
    /// The session that a request names.
    pub fn session_id(request: &http::Request<Bytes>) -> Option<&str> {
        text_of(request.headers(), SESSION_HEADER)
    }

    /// The answer to a request for a session that has ended with the node that had it.
    pub fn session_gone(message: &str) -> Response<HttpBody> {
        error(StatusCode::NOT_FOUND, &Value::Null, &RpcError::new(INVALID_REQUEST, message))
    }

    /// Has the ids of sessions made from random ones, so that they say which node has the session.
    pub fn naming(self, name: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self { name: Some(Arc::new(name)), ..self }
    }

    /// The purpose of a request. An unreadable request counts as a call, and is refused there.
    pub fn kind(request: &http::Request<Bytes>) -> RequestKind {
        /// The members that distinguish messages.
        #[derive(serde::Deserialize)]
        struct Shape {
            id: Option<serde::de::IgnoredAny>,
            method: Option<String>,
        }
        if request.method() != Method::POST {
            return RequestKind::Listen;
        }
        match serde_json::from_slice::<Shape>(request.body()) {
            Ok(Shape { id: None, method: Some(_) } | Shape { id: Some(_), method: None }) => RequestKind::Notice,
            Ok(Shape { method: Some(method), .. }) if method == "subscriptions/listen" => RequestKind::Listen,
            _ => RequestKind::Call,
        }
    }

    /// Answers one request.
    pub async fn handle(&self, client: Client, request: http::Request<Bytes>) -> Response<HttpBody> {
        match *request.method() {
            Method::POST => self.post(client, request).await,
            Method::GET => self.listen(&client, request.headers()),
            Method::DELETE => self.delete(&client, request.headers()),
            _ => {
                let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
                response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
                response
            }
        }
    }

    async fn post(&self, client: Client, request: http::Request<Bytes>) -> Response<HttpBody> {
        let (parts, body) = request.into_parts();
        let is_json = text_of(&parts.headers, header::CONTENT_TYPE.as_str()).is_some_and(|kind| {
            kind.split(';').next().is_some_and(|k| k.trim().eq_ignore_ascii_case("application/json"))
        });
        if !is_json {
            return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content type must be application/json");
        }
        let accepted = text_of(&parts.headers, header::ACCEPT.as_str());
        if accepted
            .is_some_and(|accept| !["application/json", "text/event-stream", "*/*"].iter().any(|k| accept.contains(k)))
        {
            return plain(StatusCode::NOT_ACCEPTABLE, "Accept must list application/json and text/event-stream");
        }
        match Incoming::read(&body) {
            Err(bad) => error(StatusCode::BAD_REQUEST, &bad.id, &bad.error),
            Ok(Incoming::Request { id, method, params }) => {
                let request = Request::new(id, method, params);
                // A handshake belongs to an older revision, unless its body names another one.
                let modern = if request.method == "initialize" {
                    request.meta.says_modern()
                } else {
                    is_modern(&parts.headers, &request.meta)
                };
                if modern {
                    self.modern_request(client, &parts.headers, request).await
                } else {
                    self.legacy_request(client, &parts.headers, request).await
                }
            }
            Ok(Incoming::Notification { method, mut params }) => {
                if is_modern(&parts.headers, &RequestMeta::take(&mut params)) {
                    return accepted_empty();
                }
                match self.session(&client, &parts.headers) {
                    Ok(session) => {
                        session.notified(&method, params);
                        accepted_empty()
                    }
                    Err(response) => response,
                }
            }
            Ok(Incoming::Response { id, outcome }) => match self.session(&client, &parts.headers) {
                Ok(session) => {
                    session.answered(&id, outcome);
                    accepted_empty()
                }
                Err(response) => response,
            },
        }
    }

    async fn modern_request(&self, client: Client, headers: &HeaderMap, request: Request) -> Response<HttpBody> {
        let known = match checked(headers, &request) {
            Ok(known) => known,
            Err(bad) => return error(StatusCode::BAD_REQUEST, &request.id, &bad),
        };
        if request.method == "tools/call"
            && let Err(bad) = self.mirrored(headers, &request.params)
        {
            return error(StatusCode::BAD_REQUEST, &request.id, &bad);
        }
        let (outlet, messages) = ClientOutput::new();
        let exchange = Exchange {
            revision: Revision::V20260728,
            capabilities: Arc::new(known.capabilities),
            caller: self.inner.caller(&client, None),
            approvals: client.approvals,
            outlet,
            cancel: self.stop.child_token(),
            session: None,
            log_level: known.log_level,
            origin: request.meta.origin(),
            progress_token: request.meta.progress_token,
            id: request.id.clone(),
        };
        self.respond(exchange, request.method, request.params, messages, None).await
    }

    /// Checks that arguments which the schema copies to headers have the same value there and in the body.
    fn mirrored(&self, headers: &HeaderMap, params: &Payload) -> Result<(), RpcError> {
        let Some(name) = params.get("name").and_then(Value::as_str) else { return Ok(()) };
        let tools = self.inner.engine.tools();
        let Some(entry) = tools.snapshot.get(name) else { return Ok(()) };
        let Ok(mirrored) = headers::mirrored_in(&entry.definition().input_schema) else { return Ok(()) };
        let empty = Payload::new();
        let arguments = params.get("arguments").and_then(Value::as_object).unwrap_or(&empty);
        for argument in mirrored {
            let name = argument.name();
            let shown = headers.get(&name);
            match (argument.value(arguments), shown) {
                (None, _) => {}
                (Some(_), None) => return Err(mismatch(format!("the header {name} is missing"))),
                (Some(value), Some(header)) => {
                    let header = header.to_str().ok().and_then(headers::decode);
                    let header = header.ok_or_else(|| mismatch(format!("the header {name} cannot be read")))?;
                    if !headers::same(&header, &value, argument.is_integer) {
                        return Err(mismatch(format!("the header {name} does not say what the body says")));
                    }
                }
            }
        }
        Ok(())
    }

    async fn legacy_request(&self, client: Client, headers: &HeaderMap, request: Request) -> Response<HttpBody> {
        let Request { id, method, meta, params } = request;
        if method == "initialize" {
            return self.initialize(client, id, params).await;
        }
        let session = match self.session(&client, headers) {
            Ok(session) => session,
            Err(response) => return response,
        };
        let token = session.ended.child_token();
        let Some(in_flight) = session.begin(&id, token.clone()) else {
            let bad = RpcError::new(INVALID_REQUEST, format!("more than {} requests at once", session::MAX_IN_FLIGHT));
            return error(StatusCode::TOO_MANY_REQUESTS, &id, &bad);
        };
        let (outlet, messages) = ClientOutput::new();
        let origin = meta.origin();
        let exchange = Exchange {
            origin,
            progress_token: meta.progress_token,
            ..self.exchange(&client, &session, outlet, token, &id)
        };
        self.respond(exchange, method, params, messages, Some(in_flight)).await
    }

    fn exchange(
        &self,
        client: &Client,
        session: &Arc<Session>,
        outlet: ClientOutput,
        cancel: CancellationToken,
        id: &Value,
    ) -> Exchange {
        Exchange {
            revision: session.revision(),
            capabilities: session.capabilities(),
            caller: self.inner.caller(client, Some(format!("mcp:{}", session.id))),
            approvals: client.approvals,
            outlet,
            cancel,
            session: Some(session.clone()),
            log_level: None,
            progress_token: None,
            origin: CallOrigin::default(),
            id: id.clone(),
        }
    }

    async fn initialize(&self, client: Client, id: Value, params: Payload) -> Response<HttpBody> {
        let (revision, capabilities) = match opening(params) {
            Ok(opening) => opening,
            Err(bad) => return error(StatusCode::BAD_REQUEST, &id, &bad),
        };
        let random = uuid::Uuid::new_v4().simple().to_string();
        let session_id = self.name.as_ref().map_or(random.clone(), |name| name(&random));
        let session = Arc::new(Session::new(session_id.clone(), revision, capabilities));
        let (outlet, _messages) = ClientOutput::new();
        let exchange = self.exchange(&client, &session, outlet, session.ended.child_token(), &id);
        match self.inner.initialize(&exchange).await {
            Err(bad) => error(StatusCode::INTERNAL_SERVER_ERROR, &id, &bad),
            Ok(result) => {
                self.keep(HttpSession { session, principal: client.principal });
                let mut response = json_text(StatusCode::OK, jsonrpc::result_text(&id, &result));
                if let Ok(value) = HeaderValue::from_str(&session_id) {
                    response.headers_mut().insert(SESSION_HEADER, value);
                }
                response
            }
        }
    }

    fn keep(&self, held: HttpSession) {
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= MAX_SESSIONS {
            let idle = |held: &HttpSession| held.session.idle_for();
            let oldest = sessions.iter().max_by_key(|(_, held)| idle(held)).map(|(id, _)| id.clone());
            if let Some(held) = oldest.and_then(|id| sessions.remove(&id)) {
                held.session.end();
            }
        }
        sessions.retain(|_, held| {
            let lives = held.session.idle_for() < SESSION_IDLE;
            if !lives {
                held.session.end();
            }
            lives
        });
        sessions.insert(held.session.id.clone(), held);
    }

    /// The session a request belongs to.
    fn session(&self, client: &Client, headers: &HeaderMap) -> Result<Arc<Session>, Response<HttpBody>> {
        let Some(id) = text_of(headers, SESSION_HEADER) else {
            let bad = RpcError::new(INVALID_REQUEST, "the header Mcp-Session-Id is missing; initialize comes first");
            return Err(error(StatusCode::BAD_REQUEST, &Value::Null, &bad));
        };
        let held = lock(&self.sessions).get(id).cloned();
        // A session of another client looks like a missing one.
        let Some(held) = held.filter(|held| held.principal == client.principal) else {
            let bad = RpcError::new(INVALID_REQUEST, "there is no such session; initialize again");
            return Err(error(StatusCode::NOT_FOUND, &Value::Null, &bad));
        };
        if let Some(version) = text_of(headers, VERSION_HEADER)
            && Revision::parse(version).is_none_or(|r| !r.has_handshake())
        {
            let bad =
                RpcError::new(INVALID_REQUEST, "the header MCP-Protocol-Version names no revision of this session");
            return Err(error(StatusCode::BAD_REQUEST, &Value::Null, &bad));
        }
        held.session.touch();
        Ok(held.session)
    }

    async fn respond(
        &self,
        exchange: Exchange,
        method: String,
        params: Payload,
        mut messages: mpsc::Receiver<String>,
        in_flight: Option<session::InFlight>,
    ) -> Response<HttpBody> {
        let handshake = exchange.revision.has_handshake();
        let inner = self.inner.clone();
        let mut work: BoxFuture<'static, (Option<i64>, String)> = Box::pin(async move {
            let answer = inner.answer(&exchange, &method, params).await;
            drop(in_flight);
            (answer.as_ref().err().map(|e| e.code), jsonrpc::answer_text(&exchange.id, answer))
        });
        let mut first = VecDeque::new();
        tokio::select! {
            biased;
            (code, text) = &mut work => {
                while let Ok(message) = messages.try_recv() {
                    first.push_back(message);
                }
                if first.is_empty() {
                    return json_text(status_of(code, handshake), text);
                }
                first.push_back(text);
                return events(Events { queued: first, work: None, messages: None, stop: self.stop.clone() });
            }
            Some(message) = messages.recv() => first.push_back(message),
        }
        events(Events { queued: first, work: Some(work), messages: Some(messages), stop: self.stop.clone() })
    }

    /// The stream of what belongs to no request.
    fn listen(&self, client: &Client, headers: &HeaderMap) -> Response<HttpBody> {
        if !text_of(headers, header::ACCEPT.as_str()).is_some_and(|a| a.contains("text/event-stream")) {
            return plain(StatusCode::NOT_ACCEPTABLE, "Accept must list text/event-stream");
        }
        if text_of(headers, SESSION_HEADER).is_none() {
            // Only sessions have such a stream; 2026-07-28 listens with a request.
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "there is no stream without a session");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        let session = match self.session(client, headers) {
            Ok(session) => session,
            Err(response) => return response,
        };
        let (outlet, messages) = ClientOutput::new();
        let is_first = lock(&session.listener).is_none();
        listen(&session, outlet);
        if is_first {
            tokio::spawn(forward_changes(self.inner.clone(), session.clone()));
        }
        let stop = session.ended.clone();
        events(Events { queued: VecDeque::new(), work: None, messages: Some(messages), stop })
    }

    fn delete(&self, client: &Client, headers: &HeaderMap) -> Response<HttpBody> {
        match self.session(client, headers) {
            Ok(session) => {
                lock(&self.sessions).remove(&session.id);
                session.end();
                let mut response = plain(StatusCode::NO_CONTENT, "");
                response.headers_mut().remove(header::CONTENT_TYPE);
                response
            }
            Err(response) => response,
        }
    }
}

/// Whether a request uses a revision without a handshake: its body says so, or a header that names no other revision.
fn is_modern(headers: &HeaderMap, meta: &RequestMeta) -> bool {
    let header = text_of(headers, VERSION_HEADER);
    let has_session = headers.contains_key(SESSION_HEADER);
    // An older revision than the supported ones, whose clients begin with a handshake too.
    let is_old = |version: &str| Revision::parse(version).is_some_and(Revision::has_handshake) || version < "2026";
    meta.says_modern() || header.is_some_and(|version| !is_old(version) && !has_session)
}

/// Checks what 2026-07-28 wants of headers and `_meta`.
fn checked(headers: &HeaderMap, request: &Request) -> Result<super::stdio::Modern, RpcError> {
    let Request { method, meta, params, .. } = request;
    let body_version = meta.version.as_ref().and_then(Value::as_str);
    let header_version = text_of(headers, VERSION_HEADER);
    match (header_version, body_version) {
        (None, _) => return Err(mismatch("the header MCP-Protocol-Version is missing".to_owned())),
        (Some(header), Some(body)) if header != body => {
            return Err(mismatch("MCP-Protocol-Version does not say what _meta says".to_owned()));
        }
        _ => {}
    }
    if body_version.is_none()
        && let Some(requested) = header_version
        && Revision::parse(requested).is_none()
    {
        return Err(unsupported(requested));
    }
    let known = modern(meta)?.ok_or_else(|| RpcError::params(format!("_meta lacks {META_VERSION}")))?;
    match text_of(headers, "mcp-method") {
        None => return Err(mismatch("the header Mcp-Method is missing".to_owned())),
        Some(header) if header != method.as_str() => {
            return Err(mismatch(format!("Mcp-Method says {header:?}, the body {method:?}")));
        }
        Some(_) => {}
    }
    let key = match method.as_str() {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return Ok(known),
    };
    let body = params.get(key).and_then(Value::as_str).unwrap_or_default();
    let header = headers.get("mcp-name").ok_or_else(|| mismatch("the header Mcp-Name is missing".to_owned()))?;
    let header = header.to_str().ok().and_then(headers::decode);
    if header.as_deref() != Some(body) {
        return Err(mismatch(format!("Mcp-Name does not say what {key} in the body says")));
    }
    Ok(known)
}

fn mismatch(message: String) -> RpcError {
    RpcError::new(HEADER_MISMATCH, message)
}

fn status_of(code: Option<i64>, handshake: bool) -> StatusCode {
    match code {
        Some(METHOD_NOT_FOUND) if !handshake => StatusCode::NOT_FOUND,
        Some(HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_REVISION) if !handshake => StatusCode::BAD_REQUEST,
        Some(INVALID_PARAMS | INVALID_REQUEST) if !handshake => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

/// A stream of events, as far as it has come.
struct Events {
    queued: VecDeque<String>,
    work: Option<BoxFuture<'static, (Option<i64>, String)>>,
    messages: Option<mpsc::Receiver<String>>,
    stop: CancellationToken,
}

impl Events {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(message) = self.queued.pop_front() {
            return Some(event(&message));
        }
        let Some(messages) = &mut self.messages else { return None };
        let Some(work) = &mut self.work else {
            return tokio::select! {
                message = messages.recv() => Some(event(&message?)),
                () = tokio::time::sleep(KEEP_ALIVE) => Some(Bytes::from_static(b": still here\n\n")),
                () = self.stop.cancelled() => None,
            };
        };
        tokio::select! {
            biased;
            Some(message) = messages.recv() => Some(event(&message)),
            (_, text) = work => {
                // Messages that were sent before the answer are written before it.
                let mut out = Vec::new();
                while let Ok(message) = messages.try_recv() {
                    out.extend_from_slice(&event(&message));
                }
                out.extend_from_slice(&event(&text));
                self.work = None;
                self.messages = None;
                Some(out.into())
            }
            () = tokio::time::sleep(KEEP_ALIVE) => Some(Bytes::from_static(b": still here\n\n")),
        }
    }
}

fn event(message: &str) -> Bytes {
    Bytes::from(format!("event: message\ndata: {message}\n\n"))
}

fn events(events: Events) -> Response<HttpBody> {
    let stream = stream::unfold(events, |mut events| async move { Some((events.next().await?, events)) });
    let mut response = Response::new(HttpBody::Stream(Box::pin(stream)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn json_text(status: StatusCode, text: String) -> Response<HttpBody> {
    let mut response = Response::new(HttpBody::Whole(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn error(status: StatusCode, id: &Value, error: &RpcError) -> Response<HttpBody> {
    json_text(status, jsonrpc::error_text(id, error))
}

fn plain(status: StatusCode, text: &'static str) -> Response<HttpBody> {
    let mut response = Response::new(HttpBody::Whole(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn accepted_empty() -> Response<HttpBody> {
    let mut response = Response::new(HttpBody::Whole(Bytes::new()));
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}
