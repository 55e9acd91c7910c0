//! Endpoints that others bring: the binary mounts them at a path, the gateway lets in only who shows the credential.

use crate::{
    http::{admit, json_response},
    hub::Gateway,
};
use axum::{
    body::{Body, Bytes, to_bytes},
    extract::Request,
    http::{HeaderValue, Response, StatusCode, header},
};
use futures_util::{Stream, StreamExt};
use serde_json::json;
use std::{convert::Infallible, net::SocketAddr, pin::Pin, sync::Arc};
use toolyard_engine::BoxFuture;

/// What an endpoint answers with.
pub enum MountBody {
    /// All of it.
    Whole(Bytes),
    /// As it comes.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

/// Answers the requests of an endpoint. Whoever sent one has shown the shared credential and is the owner.
pub trait Endpoint: Send + Sync + 'static {
    /// A body is at most this long.
    fn max_body(&self) -> usize;
    /// Whether the credential may also come as `X-API-Key`.
    fn takes_api_key(&self) -> bool {
        false
    }
    /// Whether a path may be asked by anybody: whether it is up, nothing else.
    fn is_open(&self, path: &str) -> bool {
        let _ = path;
        false
    }
    /// How it tells somebody who may not come in, if it has words of its own.
    fn refuse(&self, status: StatusCode) -> Option<Response<MountBody>> {
        let _ = status;
        None
    }
    /// Answers one request.
    fn handle(&self, request: axum::http::Request<Bytes>) -> BoxFuture<'_, Response<MountBody>>;
}

/// An endpoint and where it is.
#[derive(Clone)]
pub(crate) struct Mount {
    pub(crate) path: &'static str,
    pub(crate) endpoint: Arc<dyn Endpoint>,
    /// Whether everything below the path is its own.
    pub(crate) tree: bool,
}

impl Mount {
    pub(crate) fn serves(&self, path: &str) -> bool {
        match path.strip_prefix(self.path) {
            Some(rest) => rest.is_empty() || (self.tree && rest.starts_with('/')),
            None => false,
        }
    }
}

pub(crate) async fn serve(
    mount: Mount,
    gateway: &Gateway,
    peer: SocketAddr,
    mut request: Request,
) -> axum::response::Response {
    let headers = request.headers();
    if mount.endpoint.takes_api_key()
        && !headers.contains_key(header::AUTHORIZATION)
        && let Some(key) = headers.get("x-api-key").and_then(|key| key.to_str().ok())
        && let Ok(bearer) = HeaderValue::from_str(&format!("Bearer {key}"))
    {
        request.headers_mut().insert(header::AUTHORIZATION, bearer);
    }
    let open = mount.endpoint.is_open(request.uri().path());
    if !open && let Err(mut refused) = admit(gateway, peer, request.headers()) {
        if let Some(own) = mount.endpoint.refuse(refused.status()) {
            return own.map(into_body);
        }
        if refused.status() == StatusCode::UNAUTHORIZED {
            refused
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"toolyard\""));
        }
        return refused;
    }
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, mount.endpoint.max_body()).await else {
        let error = json!({"error": {"message": "Payload too large", "type": "invalid_request_error"}});
        return json_response(StatusCode::PAYLOAD_TOO_LARGE, &error);
    };
    mount.endpoint.handle(axum::http::Request::from_parts(parts, body)).await.map(into_body)
}

fn into_body(body: MountBody) -> Body {
    match body {
        MountBody::Whole(bytes) => Body::from(bytes),
        MountBody::Stream(stream) => Body::from_stream(stream.map(Ok::<_, Infallible>)),
    }
}
