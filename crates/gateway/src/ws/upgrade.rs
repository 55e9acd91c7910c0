//! From an HTTP request to a WebSocket: RFC 6455's opening handshake, and who may try it.

use super::{connection, heard::Heard};
use crate::{
    auth::{self, Origin, Unattributed},
    hub::{Gateway, Unproven},
    settings::{MAX_BUFFERED_BYTES, MAX_CONNECTIONS, MAX_PREAUTH_BYTES},
};
use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, Method, StatusCode, header},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::net::IpAddr;
use tokio_websockets::{Config, Limits, ServerBuilder, WebSocketStream};

/// RFC 6455, section 1.3.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Whether a request asks for a WebSocket.
pub(crate) fn is_wanted(method: &Method, headers: &HeaderMap) -> bool {
    let names = |key: header::HeaderName, word: &str| {
        headers
            .get_all(key)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .any(|v| v.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
    };
    method == Method::GET && names(header::UPGRADE, "websocket") && names(header::CONNECTION, "upgrade")
}

/// A WebSocket that was handed over.
pub(crate) type Socket = WebSocketStream<Heard<TokioIo<Upgraded>>>;

/// Answers a request for the Gateway's WebSocket and serves it once the connection has been handed over.
pub(crate) fn accept(gateway: &Gateway, peer: IpAddr, request: Request) -> Response {
    let own = gateway.clone();
    open(gateway, peer, request, MAX_PREAUTH_BYTES, move |socket, origin, unproven| {
        connection::serve(socket, own, origin, unproven)
    })
}

/// Answers a request for a WebSocket, and hands it over once the connection is ours. Messages are at most `most` bytes
/// long until whoever serves it says otherwise.
pub(crate) fn open<F>(
    gateway: &Gateway,
    peer: IpAddr,
    mut request: Request,
    most: usize,
    serve: impl FnOnce(Socket, Origin, Unproven) -> F + Send + 'static,
) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let origin = match auth::origin(gateway.settings(), peer, request.headers()) {
        Ok(origin) => origin,
        Err(refused) => return unattributed(&refused),
    };
    if gateway.count() >= MAX_CONNECTIONS {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many connections");
    }
    let Some(unproven) = gateway.unproven(origin.address) else {
        return plain(StatusCode::TOO_MANY_REQUESTS, "too many connections without a handshake from this address");
    };
    let (response, upgrade) = match shake_hands(&mut request) {
        Ok(agreed) => agreed,
        Err(refused) => return refused,
    };
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            serve(socket(upgraded, most), origin, unproven).await;
        }
    });
    response
}

/// The socket behind an upgrade, with the longest message it takes.
pub(crate) fn socket(upgraded: Upgraded, most: usize) -> Socket {
    // One frame a message: some small clients do not put pieces together.
    let config = Config::default().frame_size(MAX_BUFFERED_BYTES);
    let limits = Limits::default().max_payload_len(Some(most));
    ServerBuilder::new().config(config).limits(limits).serve(Heard::new(TokioIo::new(upgraded)))
}

/// RFC 6455's opening handshake: the answer, and the connection to come; or the refusal.
pub(crate) fn shake_hands(request: &mut Request) -> Result<(Response, OnUpgrade), Response> {
    if request.headers().get(header::SEC_WEBSOCKET_VERSION).is_none_or(|v| v != "13") {
        let mut response = plain(StatusCode::UPGRADE_REQUIRED, "WebSocket version 13 is needed");
        response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, header::HeaderValue::from_static("13"));
        return Err(response);
    }
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY).and_then(|k| k.to_str().ok()).unwrap_or_default();
    if BASE64.decode(key).ok().is_none_or(|k| k.len() != 16) {
        return Err(plain(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key is missing or wrong"));
    }
    let mut hash = sha1_smol::Sha1::new();
    hash.update(key.as_bytes());
    hash.update(MAGIC.as_bytes());
    let answer = BASE64.encode(hash.digest().bytes());
    let upgrade = hyper::upgrade::on(request);
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::UPGRADE, "websocket")
        .header(header::CONNECTION, "Upgrade")
        .header(header::SEC_WEBSOCKET_ACCEPT, answer)
        .body(Body::empty());
    match response {
        Ok(response) => Ok((response, upgrade)),
        Err(_) => Err(plain(StatusCode::INTERNAL_SERVER_ERROR, "the upgrade failed")),
    }
}

/// The refusal of a connection that cannot be told where it comes from.
pub(crate) fn unattributed(refused: &Unattributed) -> Response {
    let (message, kind) = match refused {
        Unattributed::Proxy => (
            "Proxy client attribution is required. Add the proxy's address to gateway.trustedProxies, and have it send \
             X-Forwarded-For.",
            "proxy_attribution_required",
        ),
        Unattributed::Host => {
            ("The Host header does not name this gateway. Add the name to gateway.allowedHosts.", "host_not_allowed")
        }
    };
    let body = json!({"error": {"message": message, "type": kind}}).to_string();
    let response = Response::builder()
        .status(StatusCode::FORBIDDEN)
        .header(header::CONTENT_TYPE, "application/json; charset=utf-8")
        .body(Body::from(body));
    response.unwrap_or_else(|_| plain(StatusCode::FORBIDDEN, message))
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}
