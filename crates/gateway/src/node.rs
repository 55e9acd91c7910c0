//! The node door: requests of other nodes of a cluster, and the client that sends them.
//!
//! A request is admitted by its signed envelope alone, before its body is read; see [`toolyard_service::cluster`]. It
//! carries the caller on whose behalf another node asks, and is decided on with that caller's rights. Where the store is
//! this machine's alone, the path does not exist.

use crate::{
    admission::{Peer, coded, read_node_body, refuse_unread, turn_away},
    gateway::Gateway,
    http::wrong_method,
    http_methods::HttpMethods,
    mount::MountBody,
};
use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header},
};
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::rustls::crypto::ring;
use toolyard_engine::BoxFuture;
use toolyard_protocol::{ErrorCode, Failure, WorkspaceId, cause_chain};
use toolyard_service::cluster::{
    AnswerBytes, Ask, Cluster, ForwardedHead, ForwardedRequest, NodeRequest, NodeTransport, Reply,
    envelope::{ENVELOPE_HEADER, MAC_HEADER, NODE_PATH, SignedRequest},
};

/// The body of a request of another node, in bytes.
const MAX_NODE_BODY: usize = 32 << 20;
/// It must have come within this time.
const NODE_BODY_WITHIN: Duration = Duration::from_secs(30);
/// Requests of other nodes at once.
const MAX_NODE_REQUESTS: usize = 1024;
/// How long a connection to another node may take to open.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Connections to one node that are kept open and unused, and for how long.
const IDLE_CONNECTIONS: usize = 64;
const IDLE_FOR: Duration = Duration::from_secs(30);
/// Parts of an answer that wait to be read.
const WAITING_PARTS: usize = 64;
/// The endpoints whose requests may be passed on by another node: those that check no more than the shared credential.
const FORWARDED_PATHS: [&str; 1] = ["/mcp"];

/// Places for the requests of other nodes.
pub(crate) struct NodeSlots(Arc<Semaphore>);

impl Default for NodeSlots {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_NODE_REQUESTS)))
    }
}

/// Answers a request of another node.
pub(crate) async fn serve(gateway: &Gateway, cluster: &Cluster, peer: &Peer, request: Request) -> Response<Body> {
    if request.method() != Method::POST {
        return turn_away(gateway, peer, &request, wrong_method(HttpMethods::Post));
    }
    let (envelope, mac) = (text(request.headers(), ENVELOPE_HEADER), text(request.headers(), MAC_HEADER));
    let envelope = match cluster.admit(&envelope, &mac).await {
        Ok(envelope) => envelope,
        Err(failure) => return refuse_unread(peer, request.body(), refused(&failure)),
    };
    let Ok(slot) = gateway.inner.node_slots.0.clone().try_acquire_owned() else {
        let failure = Failure::new(ErrorCode::LimitExceeded, "too many requests of other nodes at once");
        return refuse_unread(peer, request.body(), refused(&failure));
    };
    let (body, held) = match read_node_body(gateway, peer, request, MAX_NODE_BODY, NODE_BODY_WITHIN).await {
        Ok(read) => read,
        Err(response) => return response,
    };
    let request = match cluster.read(&envelope, &body) {
        Ok(request) => request,
        Err(failure) => return refused(&failure),
    };
    let within = Duration::from_millis(envelope.within_ms);
    let NodeRequest { caller, ask } = request;
    let response = match ask {
        Ask::Http(forwarded) => pass_on(gateway, cluster, mac, caller.workspace, forwarded).await,
        ask => {
            let answer = gateway.hub().answer_node(NodeRequest { caller, ask });
            let answer = tokio::time::timeout(within, answer).await.unwrap_or_else(|_| {
                let late = Failure::new(ErrorCode::Timeout, "the other node did not finish in time").retryable(false);
                Reply::<()>::write(Err(late))
            });
            Response::new(Body::from(cluster.key().frame(&mac, 0, &answer, true)))
        }
    };
    drop((held, slot));
    response
}

fn text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn refused(failure: &Failure) -> Response<Body> {
    let suggestion = failure.suggestion.as_deref();
    coded(StatusCode::FORBIDDEN, failure.code.as_str(), &failure.message, suggestion)
}

/// Answers a request that another node received for a session of this one, as if it had come here. The other node has
/// checked the shared credential, which is all that these endpoints demand.
async fn pass_on(
    gateway: &Gateway,
    cluster: &Cluster,
    mac: String,
    workspace: WorkspaceId,
    forwarded: ForwardedRequest,
) -> Response<Body> {
    let answer = match answer_here(gateway, workspace, forwarded).await {
        Ok(answer) => answer,
        Err(failure) => {
            let head = ForwardedHead { error: Some(Box::new(failure)), ..ForwardedHead::default() };
            return match head_bytes(&head) {
                Ok(head) => Response::new(Body::from(cluster.key().frame(&mac, 0, &head, true))),
                Err(response) => *response,
            };
        }
    };
    let (parts, body) = answer.into_parts();
    let text = |(name, value): (&HeaderName, &HeaderValue)| Some((name.to_string(), value.to_str().ok()?.to_owned()));
    let headers = parts.headers.iter().filter_map(text).collect();
    let head = match head_bytes(&ForwardedHead { status: parts.status.as_u16(), headers, error: None }) {
        Ok(head) => head,
        Err(response) => return *response,
    };
    let key = cluster.key().clone();
    match body {
        MountBody::Whole(bytes) => {
            let mut frames = key.frame(&mac, 0, &head, false);
            frames.extend(key.frame(&mac, 1, &bytes, true));
            Response::new(Body::from(frames))
        }
        MountBody::Stream(stream) => {
            let first = futures_util::stream::once(std::future::ready((head, false)));
            let rest = stream.map(|bytes| (bytes.to_vec(), false));
            let last = futures_util::stream::once(std::future::ready((Vec::new(), true)));
            let frames = first.chain(rest).chain(last).enumerate().map(move |(index, (chunk, is_last))| {
                Ok::<_, Infallible>(Bytes::from(key.frame(&mac, index as u64, &chunk, is_last)))
            });
            Response::new(Body::from_stream(frames))
        }
    }
}

/// The head of an answer as bytes. If it cannot be serialised, the other node gets an HTTP error instead of an answer
/// with an empty head.
fn head_bytes(head: &ForwardedHead) -> Result<Vec<u8>, Box<Response<Body>>> {
    serde_json::to_vec(head).map_err(|error| {
        tracing::error!(%error, "the head of an answer to another node cannot be serialised");
        let (code, message) = (ErrorCode::InternalError.as_str(), "the answer cannot be serialised");
        Box::new(coded(StatusCode::INTERNAL_SERVER_ERROR, code, message, None))
    })
}

async fn answer_here(
    gateway: &Gateway,
    workspace: WorkspaceId,
    forwarded: ForwardedRequest,
) -> Result<Response<MountBody>, Failure> {
    let unknown =
        |what: &str| Failure::new(ErrorCode::ValidationError, format!("the {what} of a request is not known"));
    let mount = FORWARDED_PATHS.contains(&forwarded.path.as_str()).then(|| gateway.mounted(&forwarded.path)).flatten();
    let mount = mount.ok_or_else(|| unknown("path"))?;
    let method = Method::from_bytes(forwarded.method.as_bytes()).map_err(|_| unknown("method"))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &forwarded.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unknown("header"))?;
        headers.insert(name, HeaderValue::from_str(value).map_err(|_| unknown("header"))?);
    }
    let mut request = axum::http::Request::new(Bytes::from(forwarded.body()?));
    *request.method_mut() = method;
    *request.uri_mut() = forwarded.path.parse().map_err(|_| unknown("path"))?;
    *request.headers_mut() = headers;
    Ok(mount.endpoint.handle(workspace, request).await)
}

/// An error with its causes.
fn told(error: &dyn std::error::Error) -> String {
    cause_chain(error, "").unwrap_or_default().replace("\ncaused by: ", ": ")
}

/// Sends requests to other nodes.
pub struct HttpNodes(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

impl HttpNodes {
    /// Makes the client. The system's certificates are read once.
    pub fn new() -> Result<Self, String> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_WITHIN));
        let builder = HttpsConnectorBuilder::new().with_provider_and_native_roots(ring::default_provider());
        let https = builder.map_err(|e| format!("the system's certificates cannot be read: {e}"))?;
        let connector = https.https_or_http().enable_http1().wrap_connector(connector);
        let mut builder = Client::builder(TokioExecutor::new());
        Ok(Self(builder.pool_max_idle_per_host(IDLE_CONNECTIONS).pool_idle_timeout(IDLE_FOR).build(connector)))
    }

    async fn post(&self, address: &str, request: SignedRequest) -> Result<AnswerBytes, String> {
        let SignedRequest { envelope, mac, body } = request;
        let request = axum::http::Request::post(format!("{}{NODE_PATH}", address.trim_end_matches('/')))
            .header(ENVELOPE_HEADER, envelope)
            .header(MAC_HEADER, mac)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| format!("its address {address:?} cannot be used: {e}"))?;
        let response = self.0.request(request).await.map_err(|e| told(&e))?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(format!("it answered {status}"));
        }
        let (parts, waiting) = mpsc::channel(WAITING_PARTS);
        let mut body = response.into_body();
        tokio::spawn(async move {
            while let Some(frame) = body.frame().await {
                let part = match frame {
                    Ok(frame) => match frame.into_data() {
                        Ok(data) => Ok(data.to_vec()),
                        Err(_) => continue,
                    },
                    Err(error) => Err(told(&error)),
                };
                // Nobody reads the answer any more.
                if parts.send(part).await.is_err() {
                    return;
                }
            }
        });
        Ok(waiting)
    }
}

impl NodeTransport for HttpNodes {
    fn send<'a>(&'a self, address: &'a str, request: SignedRequest) -> BoxFuture<'a, Result<AnswerBytes, String>> {
        Box::pin(self.post(address, request))
    }
}
