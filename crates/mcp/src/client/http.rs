//! A server over streamable HTTP: every message is a separate request, answered with JSON or with events. The older
//! transport with one event stream for all answers is in `old_sse.rs`.

use super::{
    config::ServerConfig,
    mux::{Inbox, LinkError, ServerUnavailable, TAKEN_BACK},
    oauth::{Authorizer, Challenge, RefusedRequest, RequestBlocked},
    questions::Questions,
    retry_after,
    sse::SseReader,
};
use crate::{
    Revision, RpcError, headers,
    jsonrpc::{self, Incoming},
    wire::{Cancelled, Payload},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_util::sync::CancellationToken;
use toolyard_engine::{
    Clock, RETRY_AFTER,
    redact::{self, redactor},
};
use toolyard_protocol::cause_chain;

/// How long a connection may take to open.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Connections kept open and unused, to one host.
const IDLE_CONNECTIONS: usize = 32;
/// How long they are kept. Many servers close connections that were unused for five seconds, and a request that is sent
/// at that moment is lost.
const IDLE_FOR: Duration = Duration::from_secs(4);
/// How many times in a row a broken stream is resumed.
const MAX_RESUMES: u32 = 5;
/// The delay before that, unless the server sets one.
const RESUME_AFTER: Duration = Duration::from_millis(1000);
/// The longest delay before a broken stream is resumed.
const MAX_RESUME_AFTER: Duration = Duration::from_secs(30);
/// The longest delay before the stream for messages without a request is opened again.
const LISTEN_BACKOFF: Duration = Duration::from_secs(60);

/// How long a start waits until the server knows that the client listens: requests during the first call may come on
/// this stream, and would be lost. Some servers respond only with their first event.
pub(crate) const LISTEN_WITHIN: Duration = Duration::from_millis(500);

/// How long the request that ends a session may take.
const FAREWELL_WITHIN: Duration = Duration::from_secs(2);

/// A request that is refused for its token is sent again at most so often, each time with another token.
const MAX_TOKENS: usize = 2;

/// The one HTTP client all servers share.
pub(crate) type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;
type Body = hyper::body::Incoming;

/// Makes the client. The system's certificates are read once.
pub(crate) fn client() -> Result<HttpClient, String> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_WITHIN));
    // The provider is named explicitly: if another crate adds a second provider, there is no default.
    let builder = HttpsConnectorBuilder::new().with_provider_and_native_roots(ring::default_provider());
    let https = builder.map_err(|e| format!("the system's certificates cannot be read: {e}"))?;
    let connector = https.https_or_http().enable_http1().wrap_connector(connector);
    let mut builder = Client::builder(TokioExecutor::new());
    Ok(builder.pool_max_idle_per_host(IDLE_CONNECTIONS).pool_idle_timeout(IDLE_FOR).build(connector))
}

/// Where a server is and what every request to it carries.
pub(crate) struct Target {
    pub(crate) client: HttpClient,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) max_message: usize,
    /// Obtains tokens if no credential is configured.
    auth: Option<Arc<Authorizer>>,
    clock: Arc<dyn Clock>,
}

impl Target {
    pub(crate) fn new(
        config: &ServerConfig,
        client: HttpClient,
        auth: Option<Arc<Authorizer>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let url = config.url.as_deref().unwrap_or_default();
        let uri: Uri = url.parse().map_err(|e| format!("{:?}: {e}", redact::url(url)))?;
        let mut headers = HeaderMap::new();
        for (name, value) in config.all_headers()? {
            let name = HeaderName::try_from(name.as_str()).map_err(|e| e.to_string())?;
            headers.insert(name, HeaderValue::try_from(value.as_str()).map_err(|e| e.to_string())?);
        }
        if let Some(token) = config.bearer()? {
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|e| e.to_string())?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        Ok(Self { client, uri, headers, max_message: config.max_message_bytes, auth, clock })
    }

    /// Sends a request, with a token if one is needed.
    pub(crate) async fn send(
        &self,
        method: Method,
        uri: &Uri,
        extra: HeaderMap,
        body: Option<String>,
    ) -> Result<Response<Body>, LinkError> {
        let body = body.map(Bytes::from);
        let Some(auth) = &self.auth else { return self.send_once(method, uri, extra, body, None).await };
        let mut token = auth.bearer(&self.client).await.map_err(LinkError::Unauthorised)?;
        for tries in 0.. {
            let response = self.send_once(method.clone(), uri, extra.clone(), body.clone(), token.as_deref()).await?;
            let challenge = Challenge::of(response.headers()).unwrap_or_default();
            let is_refused = match response.status() {
                StatusCode::UNAUTHORIZED => true,
                StatusCode::FORBIDDEN => challenge.wants_more(),
                _ => false,
            };
            if !is_refused {
                return Ok(response);
            }
            let refused = RefusedRequest {
                challenge,
                used: token.as_deref(),
                operation: operation(body.as_deref()),
                was_new: tries > 0,
            };
            let another = auth.refused(&self.client, refused).await.map_err(LinkError::Unauthorised)?;
            if tries >= MAX_TOKENS {
                break;
            }
            token = Some(another);
        }
        let why = "the server refuses one token after the other".to_owned();
        Err(LinkError::Unauthorised(RequestBlocked::TemporaryFailure(why)))
    }

    async fn send_once(
        &self,
        method: Method,
        uri: &Uri,
        extra: HeaderMap,
        body: Option<Bytes>,
        token: Option<&str>,
    ) -> Result<Response<Body>, LinkError> {
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(headers) = request.headers_mut() {
            *headers = self.headers.clone();
            if body.is_some() {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
            headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
            headers.extend(extra);
            if let Some(token) = token {
                let unsendable = |_| LinkError::unavailable("the token cannot be sent".to_owned());
                let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(unsendable)?;
                value.set_sensitive(true);
                headers.insert(header::AUTHORIZATION, value);
            }
        }
        let body = Full::new(body.unwrap_or_default());
        let request = request.body(body).map_err(|e| LinkError::unavailable(e.to_string()))?;
        self.client.request(request).await.map_err(|e| {
            let why = format!("{uri} cannot be reached: {}", deepest(&e));
            LinkError::Unavailable(ServerUnavailable { causes: cause_chain(&e, &why), ..why.into() })
        })
    }

    /// The delay that a refusal asks for.
    pub(crate) fn asked_wait(&self, response: &Response<Body>) -> Option<Duration> {
        if response.status().is_success() {
            return None;
        }
        retry_after::asked_wait(response.headers(), self.clock.now())
    }

    /// A body that must be short.
    pub(crate) async fn whole(&self, body: Body) -> Result<Bytes, LinkError> {
        let limited = http_body_util::Limited::new(body, self.max_message);
        let collected =
            limited.collect().await.map_err(|e| LinkError::unavailable(format!("the answer cannot be read: {e}")))?;
        Ok(collected.to_bytes())
    }
}

/// The subject of a message.
#[derive(Deserialize)]
struct Operation {
    method: Option<String>,
    params: Option<OperationParams>,
}

#[derive(Deserialize)]
struct OperationParams {
    name: Option<String>,
}

/// An error answer, with an id or without one.
#[derive(Deserialize)]
struct ErrorResponse {
    error: RpcError,
}

/// The values of the headers of revision 2026-07-28.
#[derive(Clone, Copy, Default)]
pub(crate) struct Address<'a> {
    /// The tool, prompt or resource that it is about.
    pub(crate) subject: Option<&'a str>,
    /// Arguments that are mirrored, with the names of their headers.
    pub(crate) mirrored: &'a [(String, String)],
}

/// The subject of a message, for counting refusals.
fn operation(body: Option<&[u8]>) -> String {
    let message: Option<Operation> = body.and_then(|body| serde_json::from_slice(body).ok());
    let (method, name) = match message {
        Some(Operation { method: Some(method), params }) => (method, params.and_then(|params| params.name)),
        _ => ("listening".to_owned(), None),
    };
    let name = name.map(|name| format!(" {name}"));
    format!("{method}{}", name.unwrap_or_default()).chars().filter(|c| !c.is_control()).take(200).collect()
}

pub(super) fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// A connection to a server over streamable HTTP.
pub(crate) struct HttpLink {
    target: Target,
    revision: Mutex<Option<Revision>>,
    session: Mutex<Option<String>>,
    next: AtomicU64,
    inbox: Arc<dyn Inbox>,
    questions: Arc<Questions>,
    /// Fires when the server has responded to the request to listen.
    pub(crate) listening: CancellationToken,
    pub(crate) closed: CancellationToken,
}

/// The outcome of one HTTP request.
enum ExchangeOutcome {
    Answer(Result<Value, RpcError>),
    /// Not a modern error and not an answer.
    Refused(Refusal),
}

/// An HTTP response that is not an MCP message.
struct Refusal {
    status: StatusCode,
    said: String,
    retry_after: Option<Duration>,
}

impl HttpLink {
    pub(crate) fn new(target: Target, inbox: Arc<dyn Inbox>) -> Arc<Self> {
        Arc::new(Self {
            target,
            revision: Mutex::default(),
            session: Mutex::default(),
            next: AtomicU64::new(1),
            inbox,
            questions: Arc::default(),
            listening: CancellationToken::new(),
            closed: CancellationToken::new(),
        })
    }

    /// Sets the revision of all further requests.
    pub(crate) fn agree(&self, revision: Revision) {
        *lock(&self.revision) = Some(revision);
    }

    fn is_modern(&self) -> bool {
        lock(&self.revision).is_some_and(|r| !r.has_handshake())
    }

    fn extra(&self, method: &str, address: Address<'_>) -> HeaderMap {
        let mut extra = HeaderMap::new();
        let mut add = |name: &str, value: &str| {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                extra.insert(name, value);
            }
        };
        if let Some(revision) = *lock(&self.revision) {
            add("mcp-protocol-version", revision.as_str());
        }
        if let Some(session) = &*lock(&self.session) {
            add("mcp-session-id", session);
        }
        if self.is_modern() {
            add("mcp-method", method);
            if let Some(subject) = address.subject {
                add("mcp-name", &headers::encode(subject));
            }
            for (name, value) in address.mirrored {
                add(name, &headers::encode(value));
            }
        }
        extra
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn request(
        self: &Arc<Self>,
        method: &str,
        params: &Value,
        address: Address<'_>,
        cancel: &CancellationToken,
    ) -> Result<Value, LinkError> {
        let id = Value::from(self.next.fetch_add(1, Ordering::Relaxed));
        tokio::select! {
            biased;
            answer = self.exchange(&id, method, params, address) => match answer? {
                ExchangeOutcome::Answer(outcome) => outcome.map_err(LinkError::Rpc),
                ExchangeOutcome::Refused(Refusal { status, said, retry_after }) => {
                    if status == StatusCode::NOT_FOUND && lock(&self.session).is_some() {
                        return Err(LinkError::Forgotten);
                    }
                    let why = format!("the server answered {status}{said}");
                    Err(LinkError::Unavailable(ServerUnavailable { status: Some(status), retry_after, ..why.into() }))
                }
            },
            () = cancel.cancelled() => {
                if !self.is_modern() {
                    let link = self.clone();
                    tokio::spawn(async move {
                        let cancelled = Cancelled { request_id: &id, reason: TAKEN_BACK };
                        if let Err(error) = link.notify("notifications/cancelled", &cancelled).await {
                            tracing::debug!(?error, "an upstream server was not notified of a cancelled request");
                        }
                    });
                }
                Err(LinkError::Cancelled)
            }
            () = self.closed.cancelled() => Err(LinkError::unavailable("the connection was closed".to_owned())),
        }
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, method: &str, params: &impl Serialize) -> Result<(), LinkError> {
        let extra = self.extra(method, Address::default());
        let text = jsonrpc::notification(method, Some(params));
        self.target.send(Method::POST, &self.target.uri, extra, Some(text)).await.map(drop)
    }

    async fn exchange(
        self: &Arc<Self>,
        id: &Value,
        method: &str,
        params: &Value,
        address: Address<'_>,
    ) -> Result<ExchangeOutcome, LinkError> {
        let extra = self.extra(method, address);
        let text = jsonrpc::request(id, method, params);
        let response = self.target.send(Method::POST, &self.target.uri, extra, Some(text)).await?;
        if method == "initialize"
            && let Some(session) = response.headers().get("mcp-session-id").and_then(|v| v.to_str().ok())
        {
            *lock(&self.session) = Some(session.to_owned());
        }
        let (status, retry_after) = (response.status(), self.target.asked_wait(&response));
        if is_events(&response) && status.is_success() {
            return self.events(id, response.into_body()).await.map(ExchangeOutcome::Answer);
        }
        let body = self.target.whole(response.into_body()).await?;
        if status == StatusCode::NOT_FOUND && !self.is_modern() && lock(&self.session).is_some() {
            // The session is unknown, whatever else the body says of it.
            return Ok(ExchangeOutcome::Refused(Refusal { status, said: error_text(&body), retry_after }));
        }
        let body = redactor().known_bytes(&body);
        match Incoming::read(&body) {
            Ok(Incoming::Response { id: answered, outcome }) if answered == *id => {
                Ok(ExchangeOutcome::Answer(outcome.map_err(|error| with_wait(error, retry_after))))
            }
            // An error about the request as a whole may lack its id.
            _ => match serde_json::from_slice::<ErrorResponse>(&body) {
                Ok(ErrorResponse { error }) => Ok(ExchangeOutcome::Answer(Err(with_wait(error, retry_after)))),
                Err(_) => Ok(ExchangeOutcome::Refused(Refusal { status, said: error_text(&body), retry_after })),
            },
        }
    }

    /// Reads events until the answer arrives, and resumes the stream if it breaks.
    async fn events(self: &Arc<Self>, id: &Value, body: Body) -> Result<Result<Value, RpcError>, LinkError> {
        let mut body = body;
        let mut last = None;
        let mut wait = RESUME_AFTER;
        let mut resumes = 0;
        loop {
            let seen = last.clone();
            if let Some(outcome) = self.read_events(&mut body, Some(id), &mut last, &mut wait).await? {
                return Ok(outcome);
            }
            if last != seen {
                resumes = 0;
            }
            resumes += 1;
            let Some(from) = last.clone().filter(|_| resumes <= MAX_RESUMES && !self.is_modern()) else {
                return Err(LinkError::unavailable("the stream ended before the answer".to_owned()));
            };
            tokio::time::sleep(wait.min(MAX_RESUME_AFTER)).await;
            let mut extra = self.extra("", Address::default());
            if let Ok(value) = HeaderValue::try_from(from) {
                extra.insert("last-event-id", value);
            }
            extra.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
            let response = self.target.send(Method::GET, &self.target.uri, extra, None).await?;
            if !is_events(&response) {
                return Err(LinkError::unavailable(format!(
                    "the stream cannot be taken up again: {}",
                    response.status()
                )));
            }
            body = response.into_body();
        }
    }

    /// Reads events to the end of a stream, or to the answer to `id`.
    async fn read_events(
        self: &Arc<Self>,
        body: &mut Body,
        id: Option<&Value>,
        last: &mut Option<String>,
        wait: &mut Duration,
    ) -> Result<Option<Result<Value, RpcError>>, LinkError> {
        let mut reader = SseReader::new(self.target.max_message);
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return Ok(None) };
            let Some(data) = frame.data_ref() else { continue };
            for event in reader.take(data).map_err(LinkError::unavailable)? {
                if event.id.is_some() {
                    *last = event.id;
                }
                if let Some(ms) = event.retry_ms {
                    *wait = Duration::from_millis(ms);
                }
                if event.data.is_empty() || !(event.name.is_empty() || event.name == "message") {
                    continue;
                }
                match Incoming::read(&redactor().known_bytes(event.data.as_bytes())) {
                    Ok(Incoming::Response { id: answered, outcome }) if Some(&answered) == id => {
                        return Ok(Some(outcome));
                    }
                    Ok(Incoming::Notification { method, params }) => self.inbox.notified(&method, params),
                    Ok(Incoming::Request { id, method, params }) => {
                        let question = self.questions.take(event.data.len());
                        let question =
                            question.ok_or_else(|| LinkError::unavailable(Questions::TOO_MANY.to_owned()))?;
                        let link = self.clone();
                        tokio::spawn(async move {
                            let _question = question;
                            let answer = link.inbox.asked(&method, params).await;
                            let text = jsonrpc::answer(&id, answer);
                            let extra = link.extra("", Address::default());
                            if let Err(error) =
                                link.target.send(Method::POST, &link.target.uri, extra, Some(text)).await
                            {
                                tracing::warn!(?error, method, "an upstream server's question could not be answered");
                            }
                        });
                    }
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    /// Listens for messages that belong to no request, until closed. Servers need not offer this stream.
    pub(crate) async fn listen(self: Arc<Self>, params: Option<Value>) {
        let mut backoff = RESUME_AFTER;
        let mut last = None;
        loop {
            let opened = async {
                let response = match &params {
                    // 2026-07-28: a request that is answered as long as it lasts.
                    Some(params) => {
                        let id = Value::from(self.next.fetch_add(1, Ordering::Relaxed));
                        let extra = self.extra("subscriptions/listen", Address::default());
                        let text = jsonrpc::request(&id, "subscriptions/listen", params);
                        self.target.send(Method::POST, &self.target.uri, extra, Some(text)).await?
                    }
                    None => {
                        let mut extra = self.extra("", Address::default());
                        extra.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
                        if let Some(Ok(value)) = last.clone().map(|id: String| HeaderValue::try_from(id)) {
                            extra.insert("last-event-id", value);
                        }
                        self.target.send(Method::GET, &self.target.uri, extra, None).await?
                    }
                };
                self.listening.cancel();
                if !is_events(&response) {
                    return Ok(false);
                }
                let mut body = response.into_body();
                self.read_events(&mut body, None, &mut last, &mut backoff).await?;
                Ok::<_, LinkError>(true)
            };
            let again = tokio::select! { opened = opened => opened, () = self.closed.cancelled() => return };
            match again {
                Ok(false) => return,
                Ok(true) => {}
                Err(_) => {
                    self.listening.cancel();
                    backoff = (backoff * 2).min(LISTEN_BACKOFF);
                }
            }
            let pause = backoff.clamp(Duration::from_millis(100), LISTEN_BACKOFF);
            tokio::select! { () = tokio::time::sleep(pause) => {}, () = self.closed.cancelled() => return }
        }
    }

    /// Ends the session.
    pub(crate) async fn stop(&self) {
        self.closed.cancel();
        if lock(&self.session).is_some() && !self.is_modern() {
            let extra = self.extra("", Address::default());
            let farewell = self.target.send(Method::DELETE, &self.target.uri, extra, None);
            match tokio::time::timeout(FAREWELL_WITHIN, farewell).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::debug!(?error, "an upstream server was not notified that its session ends"),
                Err(_) => tracing::debug!("an upstream server did not take the end of its session in time"),
            }
        }
    }
}

pub(crate) fn is_events(response: &Response<Body>) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"))
}

/// An error with the wait that the answer's header asks for, unless the error itself names one.
fn with_wait(mut error: RpcError, wait: Option<Duration>) -> RpcError {
    let Some(wait) = wait else { return error };
    let data = error.data.get_or_insert_with(|| Value::Object(Payload::new()));
    if let Some(facts) = data.as_object_mut() {
        facts.entry(RETRY_AFTER).or_insert_with(|| retry_after::as_ms(wait).into());
    }
    error
}

/// A server's plain text, for an error message.
fn error_text(body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).trim().chars().take(200).collect();
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
