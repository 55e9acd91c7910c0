//! The subset of OpenViking's HTTP interface that its plugin and its client use. [`HttpDoor`] handles requests that
//! another component received and authenticated; it knows no sockets and no credentials.

mod params;
mod routes;
mod sessions;
mod traces;
pub(crate) mod upload;

pub(crate) use params::decode;

use crate::{
    error::{ApiError, Result},
    service::ContextStore,
    store::uri::{Identity, WORKSPACE_ACCOUNT},
    wire::shapes,
};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use serde::Serialize;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// Maximum size of a request body, in bytes.
pub const MAX_BODY_BYTES: usize = 64 << 20;
/// Timeout of a request body, long enough for the largest upload over a slow connection.
pub const BODY_WITHIN: Duration = Duration::from_secs(120);
/// An optional prefix of every path.
pub const PREFIX: &str = "/openviking";

/// Handles the requests of the interface.
#[derive(Clone)]
pub struct HttpDoor {
    store: Arc<ContextStore>,
}

/// The response of a route.
pub(crate) enum Answer {
    /// With all keys of the envelope.
    Full(Value),
    /// With only `status` and `result`.
    Short(Value),
    /// A list, and whether there are more entries.
    Listed(Value, bool),
    /// Without the envelope.
    Plain(StatusCode, Value),
    /// The content of a file.
    File(String),
}

impl Answer {
    /// With all keys of the envelope.
    pub(crate) fn full(result: impl Serialize) -> Result<Self> {
        shapes::value(result).map(Self::Full)
    }

    /// With only `status` and `result`.
    pub(crate) fn short(result: impl Serialize) -> Result<Self> {
        shapes::value(result).map(Self::Short)
    }

    /// Without the envelope.
    pub(crate) fn plain(status: StatusCode, body: impl Serialize) -> Result<Self> {
        shapes::value(body).map(|body| Self::Plain(status, body))
    }
}

/// The envelope of a response.
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

/// A request to a route.
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
    /// Creates a handler for this store.
    pub fn new(store: Arc<ContextStore>) -> Self {
        Self { store }
    }

    /// Handles one request. The work runs on a blocking thread. With an account, the request is for that account, whatever
    /// its headers say.
    pub async fn handle(&self, account: Option<String>, request: Request<Bytes>) -> Response<Bytes> {
        if routes::is_probe(&request) {
            // Health checks do not wait for a blocking thread, because all of them may be busy.
            return answer(&self.store, account.as_deref(), &request);
        }
        let store = self.store.clone();
        let work = tokio::task::spawn_blocking(move || answer(&store, account.as_deref(), &request));
        work.await.unwrap_or_else(|_| {
            let error =
                ApiError { details: None, ..ApiError::new(crate::error::Code::Internal, "Internal server error") };
            refusal(&error)
        })
    }
}

fn identity(store: &ContextStore, account: Option<&str>, headers: &HeaderMap) -> Result<Identity> {
    let named = |name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim).filter(|text| !text.is_empty())
    };
    let config = store.config();
    let wanted = named("x-openviking-account").unwrap_or(&config.account_id);
    if account.is_none() && wanted.starts_with(WORKSPACE_ACCOUNT) {
        return Err(ApiError::argument(format!("Invalid account id: it may not begin with '{WORKSPACE_ACCOUNT}'")));
    }
    Identity::new(
        account.unwrap_or(wanted),
        named("x-openviking-user").unwrap_or(&config.user_id),
        named("x-openviking-actor-peer"),
    )
}

fn answer(store: &Arc<ContextStore>, account: Option<&str>, request: &Request<Bytes>) -> Response<Bytes> {
    let path = request.uri().path();
    let path = path.strip_prefix(PREFIX).unwrap_or(path);
    let segments: Vec<String> = path.split('/').filter(|s| !s.is_empty()).map(decode).collect();
    let asked = identity(store, account, request.headers()).and_then(|who| {
        let ask = Ask {
            store,
            who,
            method: request.method().clone(),
            path: segments,
            query: request.uri().query(),
            headers: request.headers(),
            body: request.body(),
        };
        if routes::is_probe(request) {
            return routes::answer(&ask);
        }
        store.request(&ask.who.account, || routes::answer(&ask))
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

/// Converts an error to a response.
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

/// The response when serialisation fails.
const BROKEN: &str = r#"{"status":"error","error":{"code":"INTERNAL","message":"Internal server error"}}"#;

fn json_response(status: StatusCode, body: &impl Serialize) -> Response<Bytes> {
    let (status, body) = match serde_json::to_vec(body) {
        Ok(body) => (status, Bytes::from(body)),
        Err(error) => {
            tracing::error!(%error, "a response of the context store could not be serialised as JSON");
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
