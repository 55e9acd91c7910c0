//! `POST /pair`, `POST /logout` and `GET /console/session`: the only requests of the console beside its files, its socket
//! and its downloads.

use super::{assets, cookie};
use crate::{
    admission::{Admitted, Rule, coded},
    auth::Origin,
    gateway::Gateway,
    http::{fresh, json_response},
};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use toolyard_engine::{Caller, store::StoreError};
use toolyard_service::{
    console::{CodeProblem, Pairing, ShownConsole},
    devices::Device,
};

/// The body of a form has at most this many bytes and comes within this time.
const MAX_FORM: usize = 4096;
const FORM_WITHIN: Duration = Duration::from_secs(10);
/// What a form of the console demands.
pub(crate) const FORM: Rule = Rule::own_page(MAX_FORM, FORM_WITHIN);
/// What to do about a code that does not work.
const NEW_CODE: &str = "Run `toolyard console` again; a code works once, for two minutes.";
const TLS_ADVICE: &str = "Set gateway.tls.certFile and gateway.tls.keyFile, or put a proxy with a certificate in front and name it in gateway.trustedProxies; or open the console on the machine itself, or through `ssh -L 18789:127.0.0.1:18789`.";

/// Why a browser cannot be paired here.
#[derive(Serialize)]
struct PairingRefusal {
    code: &'static str,
    message: &'static str,
    suggestion: &'static str,
}

const TLS_REQUIRED: PairingRefusal = PairingRefusal {
    code: "TLS_REQUIRED",
    message: "This address is neither encrypted nor on this machine: anybody on the network between could read and change everything",
    suggestion: TLS_ADVICE,
};

/// What `GET /console/session` answers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Session<'a> {
    paired: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<ShownConsole>,
    can_pair: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<PairingRefusal>,
    version: &'static str,
    instance: &'a str,
    /// The hash of the console's files.
    console: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
}

/// The device whose cookie a request shows, if it is still paired.
pub(super) fn device(gateway: &Gateway, origin: &Origin, headers: &HeaderMap) -> Result<Option<Device>, StoreError> {
    let console = gateway.service().console();
    let Some(shown) = cookie::shown(gateway, origin, headers) else { return Ok(None) };
    Ok(console.browser_with(&shown)?.filter(|device| !console.is_expired(device)))
}

/// The key that verifies the record.
pub(super) fn public_key(gateway: &Gateway) -> String {
    gateway.service().engine().signer().verifier().to_text()
}

/// Says whether the browser is paired, and whether it can be.
pub(crate) async fn session(gateway: Gateway, request: Admitted) -> Response {
    let device = match device(&gateway, &request.origin, &request.parts.headers) {
        Ok(device) => device.as_ref().and_then(ShownConsole::of),
        Err(error) => return broken(&error),
    };
    let can_pair = request.origin.is_private;
    let session = Session {
        paired: device.is_some(),
        public_key: device.is_some().then(|| public_key(&gateway)),
        device,
        can_pair,
        why: (!can_pair).then_some(TLS_REQUIRED),
        version: env!("CARGO_PKG_VERSION"),
        instance: gateway.service().console().instance(),
        console: toolyard_console::version(),
    };
    fresh(protected(json_response(StatusCode::OK, &session)))
}

/// The body of `POST /pair`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PairForm {
    code: Option<String>,
    token: Option<String>,
    public_key: String,
    signature: String,
    name: Option<String>,
}

/// What `POST /pair` answers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Paired<'a> {
    ok: bool,
    device: ShownConsole,
    public_key: String,
    instance: &'a str,
}

/// Pairs a browser.
pub(crate) async fn pair(gateway: Gateway, request: Admitted) -> Response {
    protected(try_pair(gateway, request).await.unwrap_or_else(|refused| refused))
}

async fn try_pair(gateway: Gateway, request: Admitted) -> Result<Response, Response> {
    let origin = request.origin.clone();
    if !origin.is_private {
        return Err(coded(
            StatusCode::FORBIDDEN,
            TLS_REQUIRED.code,
            TLS_REQUIRED.message,
            Some(TLS_REQUIRED.suggestion),
        ));
    }
    if let Some(wait) = gateway.inner.auth_failures.locked(&origin) {
        return Err(rate_limited(wait));
    }
    let is_json = request.parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if is_json.is_none_or(|kind| !kind.to_ascii_lowercase().starts_with("application/json")) {
        return Err(coded(StatusCode::BAD_REQUEST, "BAD_REQUEST", "The body must be JSON", None));
    }
    let received = request.read(&gateway).await?;
    let form: PairForm = serde_json::from_slice(&received.bytes)
        .map_err(|error| coded(StatusCode::BAD_REQUEST, "BAD_REQUEST", &error.to_string(), None))?;
    let pairing = Pairing {
        public_key: &form.public_key,
        signature: &form.signature,
        origin: &origin.own,
        name: form.name.as_deref(),
    };
    let secret = match (&form.code, &form.token) {
        (Some(secret), None) | (None, Some(secret)) => secret,
        _ => return Err(coded(StatusCode::BAD_REQUEST, "BAD_REQUEST", "Send a code or a token", None)),
    };
    // Checked first: a code that comes with a wrong signature is not used up.
    if !pairing.is_signed(secret) {
        return Err(coded(
            StatusCode::BAD_REQUEST,
            "BAD_SIGNATURE",
            "The signature does not fit the key and the code",
            None,
        ));
    }
    let console = gateway.service().console();
    let paired = match form.code.is_some() {
        true => console.pair(secret, &pairing).await.map_err(|problem| refused_code(&gateway, &origin, &problem))?,
        false => match gateway.access(secret).map_err(|error| broken(&error))? {
            Some(access) => console.pair_viewer(&pairing, access.workspace).await.map_err(|error| broken(&error))?,
            None => {
                gateway.inner.auth_failures.wrong(&origin);
                let advice = "Run `toolyard console` on the machine itself; it needs no token.";
                return Err(coded(
                    StatusCode::FORBIDDEN,
                    "TOKEN_WRONG",
                    "This is not the gateway's token",
                    Some(advice),
                ));
            }
        },
    };
    let (device, cookie) = paired;
    gateway.inner.auth_failures.right(&origin);
    let Some(shown) = ShownConsole::of(&device) else {
        return Err(coded(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", "The device was not kept", None));
    };
    tracing::info!(device = %shown.id, rights = shown.rights.as_str(), address = %origin.address, "a browser was paired");
    let body = Paired { ok: true, device: shown, public_key: public_key(&gateway), instance: console.instance() };
    let mut response = fresh(json_response(StatusCode::OK, &body));
    response.headers_mut().extend(cookie::set(&gateway, &origin, Some(&cookie)).map(|v| (header::SET_COOKIE, v)));
    Ok(response)
}

fn refused_code(gateway: &Gateway, origin: &Origin, problem: &CodeProblem) -> Response {
    let (code, message) = match problem {
        CodeProblem::Unknown => ("CODE_UNKNOWN", "This code was never made here"),
        CodeProblem::Used => ("CODE_USED", "This code was used already"),
        CodeProblem::Expired => ("CODE_EXPIRED", "This code is too old"),
        CodeProblem::Store(error) => return broken(error),
    };
    gateway.inner.auth_failures.wrong(origin);
    coded(StatusCode::FORBIDDEN, code, message, Some(NEW_CODE))
}

/// Forgets the browser: its device, its cookie, its connections.
pub(crate) async fn logout(gateway: Gateway, request: Admitted) -> Response {
    let device = match device(&gateway, &request.origin, &request.parts.headers) {
        Ok(device) => device,
        Err(error) => return protected(broken(&error)),
    };
    if let Some(device) = device {
        let by =
            Caller { is_person: false, scopes: Vec::new(), ..Caller::cli(format!("console:{}", device.device_id)) };
        let by = by.in_workspace(device.workspace.clone());
        let own = device.device_id.as_str();
        if let Err(failure) = gateway.service().devices().revoke(own, &by, Some(own)).await {
            let refused = coded(StatusCode::SERVICE_UNAVAILABLE, "STORE_UNAVAILABLE", &failure.message, None);
            return protected(refused);
        }
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().extend(cookie::set(&gateway, &request.origin, None).map(|v| (header::SET_COOKIE, v)));
    fresh(protected(response))
}

fn rate_limited(wait: Duration) -> Response {
    let message = "Too many wrong codes or tokens came from this address";
    let mut response =
        coded(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", message, Some("Wait, then run `toolyard console` again."));
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
    response
}

pub(super) fn broken(error: &StoreError) -> Response {
    tracing::error!(%error, "the store did not answer the console");
    coded(StatusCode::SERVICE_UNAVAILABLE, "STORE_UNAVAILABLE", "The store does not answer", Some("Try again."))
}

pub(super) fn protected(mut response: Response) -> Response {
    assets::protect(response.headers_mut());
    response
}
