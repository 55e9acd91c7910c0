//! The token endpoint: exchanges a code, a refresh token or client credentials for an access token.

use super::{
    fetch::{Fetcher, shorten},
    registration::{Client, Proof},
    store::Secret,
};
use crate::client::config::OauthConfig;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderValue, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use url::form_urlencoded::{Serializer, byte_serialize};

/// A longer token is refused: it would not fit into a header.
const MAX_TOKEN: usize = 16 << 10;
/// A lifetime longer than this is cut.
const MAX_LIFETIME: i64 = 10 * 365 * 24 * 3600;

/// What is shown for a token.
pub(super) enum Credential<'a> {
    Code { code: &'a str, verifier: &'a str, redirect: &'a str },
    Refresh(&'a str),
    Itself,
}

/// Why there is no token.
#[derive(Debug, PartialEq)]
pub(super) enum Refusal {
    /// The credential is not valid, or expired.
    Invalid(String),
    /// Any other failure, which may be temporary.
    TemporaryFailure(String),
}

impl Refusal {
    pub(super) fn into_message(self) -> String {
        match self {
            Self::Invalid(why) | Self::TemporaryFailure(why) => why,
        }
    }
}

/// A token that was given out.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct IssuedToken {
    pub(super) access: Secret,
    pub(super) refresh: Option<Secret>,
    pub(super) until: Option<Timestamp>,
    /// The scopes of the token, if the server reports them.
    pub(super) scopes: Option<Vec<String>>,
}

/// The parameters of a token request.
pub(super) struct TokenRequest<'a> {
    pub(super) endpoint: &'a str,
    pub(super) client: &'a Client,
    pub(super) resource: &'a str,
    pub(super) scopes: &'a [String],
}

pub(super) async fn ask(
    fetcher: &Fetcher<'_>,
    config: &OauthConfig,
    asked: &TokenRequest<'_>,
    given: Credential<'_>,
) -> Result<IssuedToken, Refusal> {
    let secret = asked.client.secret(config).map_err(Refusal::TemporaryFailure)?;
    let (authorization, body) = request(asked, secret.as_deref(), &given);
    let authorization = authorization.map(HeaderValue::try_from).transpose();
    let authorization =
        authorization.map_err(|_| Refusal::TemporaryFailure("the client's secret cannot be sent".to_owned()))?;
    let form = "application/x-www-form-urlencoded";
    let answer = fetcher.post(asked.endpoint, form, authorization, body).await.map_err(Refusal::TemporaryFailure)?;
    if !answer.status.is_success() {
        let refused = TokenErrorResponse::read(answer.body.as_ref());
        let is_final = matches!(
            refused.error.as_deref(),
            Some("invalid_grant" | "invalid_client" | "unauthorized_client" | "invalid_scope")
        );
        let why = format!("no token was given out: {}", said(answer.status, answer.body.as_ref()));
        return Err(if is_final { Refusal::Invalid(why) } else { Refusal::TemporaryFailure(why) });
    }
    issued(answer.body.unwrap_or_default()).map_err(Refusal::TemporaryFailure)
}

/// The header and the form of a request.
fn request(asked: &TokenRequest<'_>, secret: Option<&str>, given: &Credential<'_>) -> (Option<String>, String) {
    let mut form = Serializer::new(String::new());
    match given {
        Credential::Code { code, verifier, redirect } => {
            form.append_pair("grant_type", "authorization_code").append_pair("code", code);
            form.append_pair("code_verifier", verifier).append_pair("redirect_uri", redirect);
        }
        Credential::Refresh(token) => {
            form.append_pair("grant_type", "refresh_token").append_pair("refresh_token", token);
        }
        Credential::Itself => {
            form.append_pair("grant_type", "client_credentials");
            if !asked.scopes.is_empty() {
                form.append_pair("scope", &asked.scopes.join(" "));
            }
        }
    }
    form.append_pair("resource", asked.resource);
    let id = &asked.client.id;
    let mut authorization = None;
    match (asked.client.proof, secret) {
        (Proof::Basic, Some(secret)) => {
            let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", encode(id), encode(secret));
            authorization = Some(format!("Basic {}", BASE64_STANDARD.encode(pair)));
        }
        (Proof::Post, Some(secret)) => {
            form.append_pair("client_id", id).append_pair("client_secret", secret);
        }
        _ => {
            form.append_pair("client_id", id);
        }
    }
    (authorization, form.finish())
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    token_type: String,
    expires_in: Option<Value>,
    refresh_token: Option<String>,
    scope: Option<String>,
}

fn issued(body: Value) -> Result<IssuedToken, String> {
    // serde's message could contain a part of the token.
    let answered: TokenResponse =
        serde_json::from_value(body).map_err(|_| "the answer of the token endpoint holds no token".to_owned())?;
    if !answered.token_type.eq_ignore_ascii_case("bearer") {
        return Err(format!(
            "a token of the kind {} was given out, which is not spoken here",
            shorten(&answered.token_type)
        ));
    }
    let can_be_sent =
        |token: &str| (1..=MAX_TOKEN).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !can_be_sent(&answered.access_token) {
        return Err("the token that was given out cannot be sent".to_owned());
    }
    // Some servers write the number as text.
    let seconds = answered.expires_in.as_ref().and_then(|v| v.as_i64().or_else(|| v.as_str()?.parse().ok()));
    let lifetime = seconds.map(|seconds| SignedDuration::from_secs(seconds.clamp(0, MAX_LIFETIME)));
    Ok(IssuedToken {
        access: Secret::new(answered.access_token),
        refresh: answered.refresh_token.filter(|token| token.len() <= MAX_TOKEN && !token.is_empty()).map(Secret::new),
        until: lifetime.map(|lifetime| Timestamp::now() + lifetime),
        scopes: answered.scope.map(|scope| super::challenge::scopes(&scope)),
    })
}

/// An error answer (RFC 6749).
#[derive(Default, Deserialize)]
struct TokenErrorResponse {
    error: Option<String>,
    error_description: Option<String>,
}

impl TokenErrorResponse {
    /// A value in another form counts as missing.
    fn read(body: Option<&Value>) -> Self {
        body.and_then(|body| Self::deserialize(body).ok()).unwrap_or_default()
    }
}

/// An authorisation server's error message, shortened.
pub(super) fn said(status: StatusCode, body: Option<&Value>) -> String {
    let TokenErrorResponse { error, error_description } = TokenErrorResponse::read(body);
    match (error.as_deref().map(shorten), error_description.as_deref().map(shorten)) {
        (Some(error), Some(description)) => format!("{error} ({description})"),
        (Some(error), None) => error,
        _ => format!("it answered {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::oauth::registration::Origin;
    use serde_json::json;

    fn client(proof: Proof) -> Client {
        Client {
            id: "a b".into(),
            secret: None,
            proof,
            origin: Origin::Registered,
            redirect: String::new(),
            until: None,
        }
    }

    fn form(proof: Proof, given: &Credential<'_>) -> (Option<String>, String) {
        let scopes = ["x".to_owned(), "y".to_owned()];
        let client = client(proof);
        let asked = TokenRequest { endpoint: "", client: &client, resource: "https://x.org/mcp", scopes: &scopes };
        request(&asked, Some("s:e+c"), given)
    }

    #[test]
    fn every_request_names_the_resource_and_shows_the_client_once() {
        let code = Credential::Code { code: "c", verifier: "v", redirect: "http://127.0.0.1:1/callback" };
        let (header, body) = form(Proof::Basic, &code);
        let pair = BASE64_STANDARD.decode(header.unwrap().strip_prefix("Basic ").unwrap()).unwrap();
        assert_eq!(pair, b"a+b:s%3Ae%2Bc", "encoded before they are joined, as RFC 6749 has it");
        assert!(body.contains("resource=https%3A%2F%2Fx.org%2Fmcp") && !body.contains("client_"), "{body}");
        let (header, body) = form(Proof::Post, &Credential::Refresh("r"));
        assert!(header.is_none() && body.contains("client_id=a+b&client_secret=s%3Ae%2Bc"), "{body}");
        let (header, body) = form(Proof::None, &Credential::Itself);
        assert!(header.is_none() && body.contains("client_id=a+b") && !body.contains("secret"), "{body}");
        assert!(body.contains("scope=x+y") && body.contains("resource="), "{body}");
    }

    #[test]
    fn only_bearer_tokens_that_can_be_sent_are_taken() {
        let good =
            issued(json!({"access_token": "t", "token_type": "bearer", "expires_in": "60", "scope": "a b"})).unwrap();
        assert!(good.until.unwrap() > Timestamp::now());
        assert_eq!(good.scopes.unwrap(), ["a", "b"]);
        for bad in [
            json!({"access_token": "t", "token_type": "DPoP"}),
            json!({"access_token": "a\nb", "token_type": "Bearer"}),
            json!({"access_token": "", "token_type": "Bearer"}),
            json!({"access_token": "x".repeat(MAX_TOKEN + 1), "token_type": "Bearer"}),
            json!({"token_type": "Bearer"}),
            json!(null),
        ] {
            assert!(issued(bad.clone()).is_err(), "{bad}");
        }
        let secret = format!("{:?}", issued(json!({"access_token": "hush", "token_type": "Bearer"})).unwrap());
        assert!(!secret.contains("hush"), "{secret}");
    }
}
