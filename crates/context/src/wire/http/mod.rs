//! The OpenViking server's HTTP interface, as far as its plugin and its client use it. [`HttpDoor`] answers requests that
//! somebody else received and let in; it knows no sockets and no credentials.

mod params;
mod routes;
mod sessions;
mod traces;
pub(crate) mod upload;

pub(crate) use params::decode;

use crate::{
    error::{ApiError, Result},
    service::ContextStore,
    store::uri::Identity,
    wire::shapes,
};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use serde::Serialize;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// A body is at most this long.
pub const MAX_BODY_BYTES: usize = 64 << 20;
/// A body must have come within this time: uploads of the largest size over a slow line.
pub const BODY_WITHIN: Duration = Duration::from_secs(120);
/// What a client may put before every path.
pub const PREFIX: &str = "/openviking";

/// Answers the interface's requests.
#[derive(Clone)]
pub struct HttpDoor {
    store: Arc<ContextStore>,
}

/// What a route answers.
pub(crate) enum Answer {
    /// With all of the envelope's keys.
    Full(Value),
    /// With `status` and `result` alone.
    Short(Value),
    /// A list, and whether there is more.
    Listed(Value, bool),
    /// Without the envelope.
    Plain(StatusCode, Value),
    /// A file as it is.
    File(String),
}

impl Answer {
    /// With all of the envelope's keys.
    pub(crate) fn full(result: impl Serialize) -> Result<Self> {
        shapes::value(result).map(Self::Full)
    }

    /// With `status` and `result` alone.
    pub(crate) fn short(result: impl Serialize) -> Result<Self> {
        shapes::value(result).map(Self::Short)
    }

    /// Without the envelope.
    pub(crate) fn plain(status: StatusCode, body: impl Serialize) -> Result<Self> {
        shapes::value(body).map(|body| Self::Plain(status, body))
    }
}

/// An answer around its result.
#[derive(Serialize)]
struct Envelope<'a> {
    status: &'static str,
    result: Option<&'a Value>,
    error: Option<&'a ApiError>,
    telemetry: Option<()>,
    profile: Option<()>,
    #[serde(skip_serializing_if = "Option::is_none")]
    has_more: Option<bool>,
}

impl<'a> Envelope<'a> {
    fn done(result: &'a Value, has_more: Option<bool>) -> Self {
        Self { status: "ok", result: Some(result), error: None, telemetry: None, profile: None, has_more }
    }
}

#[derive(Serialize)]
struct ShortEnvelope<'a> {
    status: &'static str,
    result: &'a Value,
}

#[derive(Serialize)]
struct BareError<'a> {
    status: &'static str,
    error: &'a ApiError,
}

/// What a route is asked.
pub(crate) struct Ask<'a> {
    pub(crate) store: &'a Arc<ContextStore>,
    pub(crate) who: Identity,
    pub(crate) method: Method,
    pub(crate) path: Vec<String>,
    pub(crate) query: Option<&'a str>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Bytes,
}

impl HttpDoor {
    /// On this store.
    pub fn new(store: Arc<ContextStore>) -> Self {
        Self { store }
    }

    /// Answers one request. The work is done where it may block.
    pub async fn handle(&self, request: Request<Bytes>) -> Response<Bytes> {
        if routes::is_probe(&request) {
            // Whether the store is up is told without waiting for a thread: all of them may be busy.
            return answer(&self.store, &request);
        }
        let store = self.store.clone();
        let work = tokio::task::spawn_blocking(move || answer(&store, &request));
        work.await.unwrap_or_else(|_| {
            let error =
                ApiError { details: None, ..ApiError::new(crate::error::Code::Internal, "Internal server error") };
            refusal(&error)
        })
    }
}

fn identity(store: &ContextStore, headers: &HeaderMap) -> Result<Identity> {
    let named = |name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim).filter(|text| !text.is_empty())
    };
    let config = store.config();
    Identity::new(
        named("x-openviking-account").unwrap_or(&config.account_id),
        named("x-openviking-user").unwrap_or(&config.user_id),
        named("x-openviking-actor-peer"),
    )
}

fn answer(store: &Arc<ContextStore>, request: &Request<Bytes>) -> Response<Bytes> {
    let path = request.uri().path();
    let path = path.strip_prefix(PREFIX).unwrap_or(path);
    let segments: Vec<String> = path.split('/').filter(|s| !s.is_empty()).map(decode).collect();
    let asked = identity(store, request.headers()).and_then(|who| {
        let ask = Ask {
            store,
            who,
            method: request.method().clone(),
            path: segments,
            query: request.uri().query(),
            headers: request.headers(),
            body: request.body(),
        };
        routes::answer(&ask)
    });
    match asked {
        Ok(Answer::Full(result)) => json_response(StatusCode::OK, &Envelope::done(&result, None)),
        Ok(Answer::Short(result)) => json_response(StatusCode::OK, &ShortEnvelope { status: "ok", result: &result }),
        Ok(Answer::Listed(result, more)) => json_response(StatusCode::OK, &Envelope::done(&result, Some(more))),
        Ok(Answer::Plain(status, value)) => json_response(status, &value),
        Ok(Answer::File(text)) => {
            let mut response = Response::new(Bytes::from(text));
            let plain = header::HeaderValue::from_static("application/octet-stream");
            response.headers_mut().insert(header::CONTENT_TYPE, plain);
            response
        }
        Err(error) => refusal(&error),
    }
}

/// An error as an answer.
pub fn refusal(error: &ApiError) -> Response<Bytes> {
    let status = StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if error.bare {
        json_response(status, &BareError { status: "error", error })
    } else {
        let body = Envelope {
            status: "error",
            result: None,
            error: Some(error),
            telemetry: None,
            profile: None,
            has_more: None,
        };
        json_response(status, &body)
    }
}

/// What is sent when an answer cannot be written.
const BROKEN: &str = r#"{"status":"error","error":{"code":"INTERNAL","message":"Internal server error"}}"#;

fn json_response(status: StatusCode, body: &impl Serialize) -> Response<Bytes> {
    let (status, body) = match serde_json::to_vec(body) {
        Ok(body) => (status, Bytes::from(body)),
        Err(error) => {
            tracing::error!(%error, "an answer of the context store could not be written as JSON");
            (StatusCode::INTERNAL_SERVER_ERROR, Bytes::from_static(BROKEN.as_bytes()))
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}
