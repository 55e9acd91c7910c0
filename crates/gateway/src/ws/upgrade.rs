//! Upgrades an HTTP request to a WebSocket: the opening handshake of RFC 6455, and the checks before it.

use super::{connection, tracked_stream::TrackedStream};
use crate::{
    admission::{Admitted, busy, connection_slots::ConnectionSlot},
    auth::Origin,
    gateway::Gateway,
    settings::{MAX_CONNECTIONS, MAX_PREAUTH_BYTES},
};
use axum::{
    body::Body,
    http::{HeaderMap, Method, Request, StatusCode, header},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio_websockets::{Config, Limits, ServerBuilder, WebSocketStream};
use toolyard_service::hub::MAX_BUFFERED_BYTES;

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
pub(crate) type Socket = WebSocketStream<TrackedStream<TokioIo<Upgraded>>>;

/// Answers a request for the Gateway's WebSocket and serves it once the connection has been handed over.
pub(crate) fn accept(gateway: &Gateway, request: Admitted) -> Response {
    let own = gateway.clone();
    open(gateway, request, MAX_PREAUTH_BYTES, move |socket, origin, slot| {
        connection::serve(socket, own, origin, slot, connection::SocketPath::Gateway)
    })
}

/// Answers a WebSocket upgrade, and passes the connection on when it is established. Messages are limited to `most`
/// bytes until the handler sets another limit, and the connection stays unproven until then.
pub(crate) fn open<F>(
    gateway: &Gateway,
    request: Admitted,
    most: usize,
    serve: impl FnOnce(Socket, Origin, Arc<ConnectionSlot>) -> F + Send + 'static,
) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    if gateway.hub().count() >= MAX_CONNECTIONS {
        return busy("too many connections; try again later");
    }
    let (mut request, origin, slot) = request.into_upgrade();
    let (response, upgrade) = match shake_hands(&mut request) {
        Ok(agreed) => agreed,
        Err(refused) => return refused,
    };
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            serve(socket(upgraded, most), origin, slot).await;
        }
    });
    response
}

/// The socket behind an upgrade, with the longest message it takes.
pub(crate) fn socket(upgraded: Upgraded, most: usize) -> Socket {
    server(most).serve(TrackedStream::new(TokioIo::new(upgraded)))
}

/// How frames are read and written once the handshake is done.
pub(crate) fn server(most: usize) -> ServerBuilder {
    // One frame a message: some small clients do not put pieces together.
    let config = Config::default().frame_size(MAX_BUFFERED_BYTES);
    let limits = Limits::default().max_payload_len(Some(most));
    ServerBuilder::new().config(config).limits(limits)
}

/// RFC 6455's opening handshake: the answer, and the connection to come; or the refusal.
pub(crate) fn shake_hands<B>(request: &mut Request<B>) -> Result<(Response, OnUpgrade), Response> {
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

fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}
