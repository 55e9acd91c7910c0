//! Endpoints of other crates, which the binary mounts at a path. Each states a [`Rule`] for every request, and receives
//! only requests that passed the gateway's admission, with their bodies read under the rule's limits.

use crate::{
    admission::{Admitted, Peer, Rule, admit, body::Received, turn_away},
    gateway::Gateway,
    http::wrong_method,
    http_methods::HttpMethods,
    request_slots::Permit,
};
use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderValue, Response, StatusCode, header},
};
use futures_util::{Stream, StreamExt};
use std::{convert::Infallible, pin::Pin, sync::Arc};
use toolyard_engine::BoxFuture;
use toolyard_protocol::WorkspaceId;
use toolyard_service::Lane;

/// What an endpoint answers with.
pub enum MountBody {
    /// The complete body.
    Whole(Bytes),
    /// A body that is sent in pieces.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

/// Answers the requests of an endpoint. The sender of a request to a path that is not open has presented the shared
/// credential, or the token of a workspace.
pub trait Endpoint: Send + Sync + 'static {
    /// What a path demands of a request: who may ask, how large a body may be, within which time it must come.
    fn rule(&self, path: &str) -> Rule;
    /// Which requests a request competes with; called once its body was read.
    fn lane(&self, request: &axum::http::Request<Bytes>) -> Lane;
    /// The refusal in the endpoint's own format, if it has one.
    fn refuse(&self, _status: StatusCode) -> Option<Response<MountBody>> {
        None
    }
    /// Answers one request, for the workspace that its credential names.
    fn handle(&self, workspace: WorkspaceId, request: axum::http::Request<Bytes>)
    -> BoxFuture<'_, Response<MountBody>>;
}

/// An endpoint with its path.
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

pub(crate) async fn serve(mount: Mount, gateway: &Gateway, peer: &Peer, request: Request) -> axum::response::Response {
    let rule = mount.endpoint.rule(request.uri().path());
    if rule.is_open() && !HttpMethods::Read.accept(request.method()) {
        return turn_away(gateway, peer, &request, wrong_method(HttpMethods::Read));
    }
    match admit(gateway, peer, rule, request) {
        Ok(admitted) => answer(&mount, gateway, rule, admitted).await.unwrap_or_else(|refused| refused),
        Err(refused) => translate_refusal(&mount, refused),
    }
}

/// A refusal in the endpoint's own format. The connection is closed if the gateway's refusal says so.
fn translate_refusal(mount: &Mount, mut refused: axum::response::Response) -> axum::response::Response {
    if let Some(own) = mount.endpoint.refuse(refused.status()) {
        let mut own = own.map(|body| into_body(body, None));
        if let Some(closing) = refused.headers_mut().remove(header::CONNECTION) {
            own.headers_mut().insert(header::CONNECTION, closing);
        }
        return own;
    }
    if refused.status() == StatusCode::UNAUTHORIZED {
        let realm = HeaderValue::from_static("Bearer realm=\"toolyard\"");
        refused.headers_mut().insert(header::WWW_AUTHENTICATE, realm);
    }
    refused
}

async fn answer(
    mount: &Mount,
    gateway: &Gateway,
    rule: Rule,
    admitted: Admitted,
) -> Result<axum::response::Response, axum::response::Response> {
    let Received { parts, bytes, origin, workspace, held } = admitted.read(gateway).await?;
    let size = bytes.len();
    let request = axum::http::Request::from_parts(parts, bytes);
    // Liveness can be queried at any time, so its answer waits for no slot.
    let permit = match rule.is_open() {
        true => None,
        false => Some(gateway.http_place(&origin, mount.endpoint.lane(&request), size).await?),
    };
    let response = mount.endpoint.handle(workspace, request).await;
    drop(held);
    Ok(response.map(|body| into_body(body, permit)))
}

/// The slot is held until the answer is complete.
fn into_body(body: MountBody, permit: Option<Permit>) -> Body {
    match body {
        MountBody::Whole(bytes) => Body::from(bytes),
        MountBody::Stream(stream) => Body::from_stream(stream.map(move |bytes| {
            let _held = &permit;
            Ok::<_, Infallible>(bytes)
        })),
    }
}
