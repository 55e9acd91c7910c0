//! The console's files, with headers that restrict in the browser what the console's pages may load and connect to.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::Response,
};
use toolyard_console::{Asset, CONTENT_SECURITY_POLICY, Content, is_page};

/// How long a browser keeps a file whose name contains its hash: a year.
const FOREVER: &str = "public, max-age=31536000, immutable";
/// Cached, and revalidated with each request.
const COMPARED: &str = "no-cache";

/// The file that answers a request: by its path, or the first page for a page of the console.
pub(crate) fn asset(method: &Method, path: &str) -> Option<&'static Asset> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    Asset::find(path).or_else(|| is_page(path).then(Asset::page).flatten())
}

/// Answers with a file.
pub(crate) fn serve_asset(asset: &'static Asset, request: &Parts) -> Response {
    let is_known =
        request.headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok()).any(|tags| {
            tags.split(',').any(|tag| {
                let tag = tag.trim();
                tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == asset.etag
            })
        });
    let (coding, length, body) = match asset.content {
        Content::Packed { brotli, .. } if takes(&request.headers, "br") => (Some("br"), brotli.len(), Some(brotli)),
        Content::Packed { gzip, .. } if takes(&request.headers, "gzip") => (Some("gzip"), gzip.len(), Some(gzip)),
        Content::Packed { length, .. } => (None, length, None),
        Content::Plain(bytes) => (None, bytes.len(), Some(bytes)),
    };
    let mut response = match (is_known || request.method == Method::HEAD, body) {
        (true, _) => Response::new(Body::empty()),
        (false, Some(bytes)) => Response::new(Body::from(bytes)),
        (false, None) => match asset.content.plain() {
            Ok(bytes) => Response::new(Body::from(bytes.into_owned())),
            Err(error) => {
                tracing::error!(%error, path = asset.path, "a file of the console cannot be unpacked");
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                return response;
            }
        },
    };
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type()));
    headers.insert(header::ETAG, HeaderValue::from_static(asset.etag));
    let caching = if asset.is_immutable() { FOREVER } else { COMPARED };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    if matches!(asset.content, Content::Packed { .. }) {
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    if let Some(coding) = coding.filter(|_| !is_known) {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    if request.method == Method::HEAD && !is_known {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    protect(headers);
    response
}

/// The headers of everything that the console serves. `X-Content-Type-Options`, `Referrer-Policy` and
/// `Permissions-Policy` are on every response of the gateway.
pub(super) fn protect(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
}

/// Whether the client takes a coding of the content.
fn takes(headers: &HeaderMap, coding: &str) -> bool {
    let listed = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    listed.flat_map(|value| value.split(',')).any(|offer| {
        let mut parts = offer.split(';').map(str::trim);
        let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(coding));
        is_named && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}
