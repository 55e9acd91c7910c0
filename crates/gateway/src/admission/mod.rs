//! Admission: the checks that every HTTP request passes before its handler runs or its body is read.
//!
//! Each route and each mount states a [`Rule`]: the required credential, the largest body, and the time within which
//! the body must arrive. [`admit`] checks, in this order, `Host` and forwarding headers, `Origin`, lockout, credential,
//! declared size. Handlers receive an [`Admitted`] request, which only this module can create; the body is read through
//! it, with the rule's limits and a memory limit ([`body`]). Sockets are counted for each address ([`connection_slots`]).
//!
//! What an admitted caller may do is decided elsewhere.

pub(crate) mod body;
pub(crate) mod connection_slots;

use crate::{
    auth::{self, Origin, OriginError},
    gateway::Gateway,
};
use axum::{
    body::{Body, HttpBody},
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::Response,
};
use body::{BodyError, Received};
use connection_slots::{ConnectionSlot, SlotError};
use serde::Serialize;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use toolyard_protocol::WorkspaceId;
use toolyard_service::Lane;

/// Who may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Open,
    Credential,
    CredentialOrApiKey,
    FirstFrame,
    OwnPage,
}

/// What a route requires of a request. There is no default: a route cannot be added without stating it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    access: Access,
    max_body: usize,
    within: Duration,
}

impl Rule {
    /// Anybody may ask, with `GET` or `HEAD`; no body is taken.
    pub const fn open() -> Self {
        Self { access: Access::Open, max_body: 0, within: Duration::ZERO }
    }

    /// The shared credential is needed as a bearer; a body has at most `max_body` bytes and comes within a time.
    pub const fn credential(max_body: usize, within: Duration) -> Self {
        Self { access: Access::Credential, max_body, within }
    }

    /// The credential may also come as `X-API-Key`.
    pub const fn or_api_key(self) -> Self {
        Self { access: Access::CredentialOrApiKey, ..self }
    }

    /// A WebSocket whose first frame carries the credential. It stays unproven until then; no body is accepted.
    pub(crate) const fn first_frame() -> Self {
        Self { access: Access::FirstFrame, max_body: 0, within: Duration::ZERO }
    }

    /// A page that this gateway served may ask, and nobody else; the route checks who uses it. A body has at most
    /// `max_body` bytes and comes within a time.
    pub(crate) const fn own_page(max_body: usize, within: Duration) -> Self {
        Self { access: Access::OwnPage, max_body, within }
    }

    pub(crate) fn is_open(self) -> bool {
        self.access == Access::Open
    }
}

/// The other end of a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Whether the connection is encrypted.
    pub(crate) is_tls: bool,
    pub(crate) slot: Arc<ConnectionSlot>,
}

/// A request that passed admission. Its body has not been read.
pub(crate) struct Admitted {
    pub(crate) parts: Parts,
    pub(crate) origin: Origin,
    /// The workspace that the credential names; the default one where none was needed.
    pub(crate) workspace: WorkspaceId,
    pub(crate) slot: Arc<ConnectionSlot>,
    body: Body,
    rule: Rule,
}

impl Admitted {
    /// Reads the body under the rule's limits.
    pub(crate) async fn read(self, gateway: &Gateway) -> Result<Received, Response> {
        let Self { parts, origin, workspace, slot, body, rule } = self;
        match body::read(&gateway.inner.bodies, origin.address, body, rule.max_body, rule.within).await {
            Ok((bytes, held)) => Ok(Received { parts, bytes, origin, workspace, held }),
            Err(unread) => {
                slot.leave_unread();
                Err(closing(match unread {
                    BodyError::TooLarge => too_large(),
                    BodyError::TooSlow => {
                        refusal(StatusCode::REQUEST_TIMEOUT, "Request body timeout", "invalid_request_error")
                    }
                    BodyError::NoMemory => busy("too many request bodies are being read; try again"),
                    BodyError::Broken => {
                        refusal(StatusCode::BAD_REQUEST, "The request body is broken", "invalid_request_error")
                    }
                }))
            }
        }
    }

    /// What an upgrade to a WebSocket needs.
    pub(crate) fn into_upgrade(self) -> (axum::http::Request<()>, Origin, Arc<ConnectionSlot>) {
        (axum::http::Request::from_parts(self.parts, ()), self.origin, self.slot)
    }
}

/// Admits a request, or returns the refusal. The body has not been read in either case.
pub(crate) fn admit(gateway: &Gateway, peer: &Peer, rule: Rule, request: Request) -> Result<Admitted, Response> {
    let (parts, body) = request.into_parts();
    let checked = check(gateway, peer, rule, &parts.headers).and_then(|shown| fits(rule, &body).map(|()| shown));
    match checked {
        Ok((origin, workspace)) => Ok(Admitted { parts, origin, workspace, slot: peer.slot.clone(), body, rule }),
        Err(refused) => Err(refuse_unread(peer, &body, refused)),
    }
}

/// Reads the body of a request whose envelope was checked: it is another node's.
pub(crate) async fn read_node_body(
    gateway: &Gateway,
    peer: &Peer,
    request: Request,
    max_body: usize,
    within: Duration,
) -> Result<(axum::body::Bytes, body::BodyMemory), Response> {
    let (parts, body) = request.into_parts();
    let rule = Rule { access: Access::Open, max_body, within };
    if let Err(refused) = fits(rule, &body) {
        return Err(refuse_unread(peer, &body, refused));
    }
    peer.slot.prove().map_err(|_| busy("there is no slot for a connection of another node; try again"))?;
    let origin = Origin::of_node(peer.address.ip());
    let workspace = WorkspaceId::default();
    let admitted = Admitted { parts, origin, workspace, slot: peer.slot.clone(), body, rule };
    admitted.read(gateway).await.map(|received| (received.bytes, received.held))
}

/// A refusal of a request whose body is not read: the connection is closed.
pub(crate) fn refuse_unread(peer: &Peer, body: &Body, refused: Response) -> Response {
    if body.is_end_stream() {
        return refused;
    }
    peer.slot.leave_unread();
    closing(refused)
}

/// Refuses a request before it has a rule: a path or a method that does not exist.
pub(crate) fn turn_away(gateway: &Gateway, peer: &Peer, request: &Request, answer: Response) -> Response {
    let checked = from_where(gateway, peer, request.headers());
    refuse_unread(peer, request.body(), checked.map_or_else(|refused| refused, |_| answer))
}

/// `Host`, forwarding headers and `Origin`.
fn from_where(gateway: &Gateway, peer: &Peer, headers: &HeaderMap) -> Result<Origin, Response> {
    let origin =
        auth::origin(gateway.settings(), peer.address.ip(), peer.is_tls, headers).map_err(|why| unattributed(&why))?;
    if origin.address != peer.address.ip().to_canonical() {
        peer.slot.attribute(origin.address);
    }
    Ok(origin)
}

fn check(gateway: &Gateway, peer: &Peer, rule: Rule, headers: &HeaderMap) -> Result<(Origin, WorkspaceId), Response> {
    let origin = from_where(gateway, peer, headers)?;
    let unnamed = |origin: Origin| Ok((origin, WorkspaceId::default()));
    if rule.access == Access::FirstFrame {
        // A page of a foreign origin learns from the answer to its first frame that it may not connect, as clients of the
        // real gateway expect.
        return unnamed(origin);
    }
    if !origin.browser_allowed {
        return Err(refusal(StatusCode::FORBIDDEN, "Origin not allowed", "forbidden"));
    }
    if rule.access == Access::OwnPage {
        return match origin.is_own_page() && is_same_origin(headers) {
            true => unnamed(origin),
            false => Err(coded(
                StatusCode::FORBIDDEN,
                "ORIGIN_NOT_ALLOWED",
                "Only a page that this Toolyard served may do this",
                Some("Open the address that `toolyard console` prints."),
            )),
        };
    }
    if rule.access == Access::Open {
        return unnamed(origin);
    }
    let guesses = &gateway.inner.auth_failures;
    if let Some(wait) = guesses.locked(&origin) {
        let message = "Too many failed authentication attempts. Please try again later.";
        let mut response = refusal(StatusCode::TOO_MANY_REQUESTS, message, "rate_limited");
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        return Err(response);
    }
    let secret = shown(headers, rule.access);
    let access = secret.map(|secret| gateway.access(secret)).transpose().map_err(|error| {
        tracing::error!(%error, "the store did not answer for a credential");
        busy("the store does not answer; try again")
    })?;
    match access.flatten() {
        Some(access) => {
            guesses.right(&origin);
            peer.slot.prove().map_err(|why| match why {
                SlotError::Evicted => busy("this connection was closed to make room; connect again"),
                SlotError::TooMany => busy("too many HTTP connections; try again"),
            })?;
            Ok((origin, access.workspace))
        }
        None => {
            if secret.is_some() {
                guesses.wrong(&origin);
            }
            Err(refusal(StatusCode::UNAUTHORIZED, "Unauthorized", "unauthorized"))
        }
    }
}

/// Whether the browser says that the page and the address have one origin. Every browser that can keep the console's key
/// says so, and no page can change what it says.
fn is_same_origin(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site == "same-origin")
}

/// The credential that a request shows, if it shows one.
fn shown(headers: &HeaderMap, access: Access) -> Option<&str> {
    match headers.get(header::AUTHORIZATION) {
        Some(value) => {
            let (scheme, secret) = value.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
        }
        None if access == Access::CredentialOrApiKey => {
            headers.get("x-api-key").and_then(|key| key.to_str().ok()).map(str::trim)
        }
        None => None,
    }
}

/// Whether the body, as far as it was declared, is within the rule.
fn fits(rule: Rule, body: &Body) -> Result<(), Response> {
    if body.is_end_stream() || (rule.max_body > 0 && body.size_hint().lower() <= rule.max_body as u64) {
        return Ok(());
    }
    if rule.max_body == 0 {
        return Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, "This path takes no body", "invalid_request_error"));
    }
    Err(too_large())
}

fn too_large() -> Response {
    refusal(StatusCode::PAYLOAD_TOO_LARGE, "Payload too large", "invalid_request_error")
}

/// The refusal of a request that there is no room for now.
pub(crate) fn busy(message: &str) -> Response {
    let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, message, "unavailable");
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A refusal with a code and what to do, for the console.
pub(crate) fn coded(status: StatusCode, code: &str, message: &str, suggestion: Option<&str>) -> Response {
    let body = CodedRefusal { error: CodedReason { code, message, suggestion } };
    json(status, &body)
}

#[derive(Serialize)]
struct CodedRefusal<'a> {
    error: CodedReason<'a>,
}

#[derive(Serialize)]
struct CodedReason<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<&'a str>,
}

#[derive(Serialize)]
struct Refusal<'a> {
    error: RefusalReason<'a>,
}

#[derive(Serialize)]
struct RefusalReason<'a> {
    message: &'a str,
    r#type: &'a str,
}

pub(crate) fn refusal(status: StatusCode, message: &str, kind: &str) -> Response {
    json(status, &Refusal { error: RefusalReason { message, r#type: kind } })
}

fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let (status, body) = match serde_json::to_vec(body) {
        Ok(body) => (status, body),
        Err(error) => {
            tracing::error!(%error, "a refusal cannot be written as JSON");
            (StatusCode::INTERNAL_SERVER_ERROR, Vec::new())
        }
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// The refusal of a request whose `Host`, `Origin` or forwarding headers are not acceptable.
fn unattributed(why: &OriginError) -> Response {
    let (message, kind) = match why {
        OriginError::Proxy => (
            "Proxy client attribution is required. Add the proxy's address to gateway.trustedProxies, and have it send \
             X-Forwarded-For.",
            "proxy_attribution_required",
        ),
        OriginError::Host => {
            ("The Host header does not name this gateway. Add the name to gateway.allowedHosts.", "host_not_allowed")
        }
    };
    refusal(StatusCode::FORBIDDEN, message, kind)
}

/// Admits a request with the credential this many times, to benchmark admission: checks the head, and takes and
/// releases a slot in the ordinary lane. Returns the number of admitted requests.
pub async fn exercise(gateway: &Gateway, peer: SocketAddr, headers: &HeaderMap, times: usize) -> usize {
    let Some(slot) = gateway.inner.connection_slots.take(peer.ip(), true).await else { return 0 };
    let (peer, rule) = (Peer { address: peer, is_tls: false, slot }, Rule::credential(1 << 20, Duration::from_secs(1)));
    let mut admitted = 0;
    for _ in 0..times {
        let Ok((origin, _)) = check(gateway, &peer, rule, headers) else { continue };
        if fits(rule, &Body::empty()).is_ok() && gateway.http_place(&origin, Lane::Ordinary, 0).await.is_ok() {
            admitted += 1;
        }
    }
    admitted
}
