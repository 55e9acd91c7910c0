//! OAuth towards upstream servers: our own server behind a token, and an authorisation server of ours beside it, both
//! on loopback. The test simulates the person's browser by following the address.

use crate::{
    harness::Lab,
    upstream::TestHost,
    upstream_http::{answer_of, serve, whole},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;
use toolyard_mcp::{
    ServerConfig,
    client::{GrantKind, Health, Login, OauthConfig, Trust, logout},
    server::http::HttpDoor,
};
use url::{Url, form_urlencoded};

/// What the authorisation server knows and has seen.
#[derive(Default)]
struct Books {
    /// Tokens that count, with what they allow.
    tokens: BTreeMap<String, String>,
    refresh: Option<String>,
    /// The challenge and scope of the code that was given out.
    code: Option<(String, String)>,
    /// Every request to the token endpoint.
    asked: Vec<BTreeMap<String, String>>,
    registrations: usize,
    given: usize,
    refuses_refresh: bool,
    /// The lifetime that is told.
    lifetime: i64,
    /// The scope without which nothing may be called.
    to_call: Option<&'static str>,
    metadata: Value,
}

#[derive(Clone)]
struct World {
    books: Arc<Mutex<Books>>,
    server: String,
    issuer: String,
}

fn pairs(text: &str) -> BTreeMap<String, String> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

fn sends(status: StatusCode, body: &Value) -> Response<crate::upstream_http::Body> {
    let mut response = whole(status, body.to_string());
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

impl World {
    async fn new(lab: &Lab) -> Self {
        let books = Arc::new(Mutex::new(Books { lifetime: 3600, metadata: json!({}), ..Books::default() }));
        let seen = books.clone();
        let issuer = serve(move |request| {
            let books = seen.clone();
            async move { authorisation_server(&books, request).await }
        })
        .await;
        let (seen, door, who) = (books.clone(), lab.server.http(CancellationToken::new()), issuer.clone());
        let server = serve(move |request| {
            let (books, door, who) = (seen.clone(), door.clone(), who.clone());
            async move { resource_server(&books, &door, &who, request).await }
        })
        .await;
        Self { books, server, issuer }
    }

    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books.lock().unwrap()
    }

    fn config(&self) -> ServerConfig {
        ServerConfig { url: Some(format!("{}/mcp", self.server)), trust: Trust::Annotations, ..ServerConfig::default() }
    }

    /// A person who agrees.
    async fn agree(&self, folder: &Path) -> Result<Vec<String>, String> {
        let login = Login::new("far", &self.config(), folder).map_err(|f| f.message)?;
        let probed = login.probe().await;
        if !login.is_wanted() {
            return Err(format!("no login is wanted: {probed:?}"));
        }
        let begun = login.begin("http://127.0.0.1:7/callback").await.map_err(|f| f.message)?;
        let scopes = begun.scopes().to_vec();
        let query = self.browse(begun.url()).await;
        login.finish(begun, &query).await.map_err(|f| f.message)?;
        Ok(scopes)
    }

    /// The redirect that a browser would return. The authorisation server agrees to everything.
    async fn browse(&self, url: &str) -> String {
        let url = Url::parse(url).unwrap();
        assert!(url.as_str().starts_with(&self.issuer), "{url}");
        let asked = pairs(url.query().unwrap());
        assert_eq!(asked["code_challenge_method"], "S256");
        assert_eq!(asked["resource"], format!("{}/mcp", self.server));
        let scope = asked.get("scope").cloned().unwrap_or_default();
        self.books().code = Some((asked["code_challenge"].clone(), scope));
        let iss: String = form_urlencoded::byte_serialize(self.issuer.as_bytes()).collect();
        format!("code=the-code&state={}&iss={iss}", asked["state"])
    }
}

async fn authorisation_server(
    books: &Mutex<Books>,
    request: Request<Incoming>,
) -> Response<crate::upstream_http::Body> {
    let host = request.headers()["host"].to_str().unwrap().to_owned();
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut books = books.lock().unwrap();
    match path.as_str() {
        "/.well-known/oauth-authorization-server" => {
            let at = |path: &str| format!("http://{host}{path}");
            let mut says = json!({
                "issuer": format!("http://{host}"), "authorization_endpoint": at("/authorize"),
                "token_endpoint": at("/token"), "registration_endpoint": at("/register"),
                "code_challenge_methods_supported": ["S256"], "authorization_response_iss_parameter_supported": true,
                "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
                "scopes_supported": ["read", "write", "offline_access"],
            });
            says.as_object_mut().unwrap().extend(books.metadata.as_object().cloned().unwrap());
            sends(StatusCode::OK, &says)
        }
        "/register" => {
            let asked: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(asked["application_type"], "native");
            books.registrations += 1;
            sends(StatusCode::CREATED, &json!({"client_id": "us"}))
        }
        "/token" => {
            let asked = pairs(std::str::from_utf8(&body).unwrap());
            books.asked.push(asked.clone());
            let no = |error: &str| sends(StatusCode::BAD_REQUEST, &json!({"error": error}));
            let scope = match asked["grant_type"].as_str() {
                "authorization_code" => {
                    let Some((challenge, scope)) = books.code.take() else { return no("invalid_grant") };
                    let verified = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&asked["code_verifier"]));
                    assert_eq!(verified, challenge);
                    scope
                }
                "refresh_token" if books.refuses_refresh => return no("invalid_grant"),
                "refresh_token" if books.refresh.as_ref() == asked.get("refresh_token") => "read".to_owned(),
                "client_credentials" => asked.get("scope").cloned().unwrap_or_default(),
                _ => return no("invalid_grant"),
            };
            books.given += 1;
            let token = format!("token-{}", books.given);
            books.refresh = Some(format!("refresh-{}", books.given));
            books.tokens.insert(token.clone(), scope);
            let says = json!({"access_token": token, "token_type": "Bearer", "expires_in": books.lifetime, "refresh_token": books.refresh});
            sends(StatusCode::OK, &says)
        }
        _ => whole(StatusCode::NOT_FOUND, "nothing here"),
    }
}

async fn resource_server(
    books: &Mutex<Books>,
    door: &HttpDoor,
    issuer: &str,
    request: Request<Incoming>,
) -> Response<crate::upstream_http::Body> {
    let host = request.headers()["host"].to_str().unwrap().to_owned();
    let place = "/.well-known/oauth-protected-resource/mcp";
    if request.uri().path() == place {
        let resource = format!("http://{host}/mcp");
        return sends(StatusCode::OK, &json!({"resource": resource, "authorization_servers": [issuer]}));
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let token = parts.headers.get("authorization").and_then(|v| v.to_str().ok()?.strip_prefix("Bearer "));
    let refusal = {
        let books = books.lock().unwrap();
        let scope = token.and_then(|token| books.tokens.get(token));
        let is_call = String::from_utf8_lossy(&body).contains("tools/call");
        match (scope, books.to_call) {
            (None, _) => Some((StatusCode::UNAUTHORIZED, r#"scope="read""#.to_owned())),
            (Some(scope), Some(needed)) if is_call && !scope.split(' ').any(|s| s == needed) => {
                Some((StatusCode::FORBIDDEN, format!(r#"error="insufficient_scope", scope="{needed}""#)))
            }
            _ => None,
        }
    };
    if let Some((status, says)) = refusal {
        let mut response = whole(status, "no");
        let value = format!(r#"Bearer resource_metadata="http://{host}{place}", {says}"#);
        response.headers_mut().insert("www-authenticate", value.parse().unwrap());
        return response;
    }
    answer_of(door, Request::from_parts(parts, body)).await
}

/// An engine with the server, and the folder of its tokens.
async fn host(config: ServerConfig) -> (TestHost, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let host = TestHost::new();
    host.upstreams.keep_tokens(folder.path().to_owned());
    host.add(vec![("far", config)]).await;
    (host, folder)
}

/// Waits until something holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_login_is_asked_for_used_renewed_and_forgotten() {
    let lab = Lab::new();
    let world = World::new(&lab).await;
    let (host, folder) = host(world.config()).await;
    let status = host.status("far");
    assert_eq!(status.status, Health::Unavailable);
    assert_eq!(status.error.as_deref(), Some("authorisation needed: run `toolyard mcp login far`"));
    assert!(world.books().asked.is_empty() && world.books().registrations == 0, "nobody is asked before a person is");

    let scopes = world.agree(folder.path()).await.unwrap();
    assert_eq!(scopes, ["read", "offline_access"]);
    until("the tools appear by themselves after a login", || host.status("far").tools > 0).await;
    assert_eq!(host.status("far").error, None);
    assert!(host.call("far__test_echo", json!({"text": "a"})).await.ok);

    // The token is revoked early: it is renewed within the call, and the call succeeds.
    world.books().tokens.clear();
    let after = host.call("far__test_echo", json!({"text": "b"})).await;
    assert!(after.ok, "{after:?}");
    let asked = world.books().asked.clone();
    assert_eq!(
        asked.iter().map(|a| a["grant_type"].as_str()).collect::<Vec<_>>(),
        ["authorization_code", "refresh_token"]
    );
    assert!(asked.iter().all(|a| a["resource"] == format!("{}/mcp", world.server)), "{asked:?}");

    // If the renewal is refused, the person must log in again, with the same client.
    world.books().tokens.clear();
    world.books().refuses_refresh = true;
    let refused = host.call("far__test_echo", json!({"text": "c"})).await;
    let error = refused.error.as_ref().unwrap();
    assert!(error.message.contains("toolyard mcp login far"), "{error:?}");
    assert_eq!(error.details.as_ref().unwrap()["authorisation"], "needed");
    world.agree(folder.path()).await.unwrap();
    assert_eq!(world.books().registrations, 1);
    assert!(host.call("far__test_echo", json!({"text": "d"})).await.ok);

    assert!(logout("far", folder.path()).await.unwrap());
    let refused = host.call("far__test_echo", json!({"text": "e"})).await;
    assert!(refused.error.as_ref().unwrap().message.contains("toolyard mcp login far"));
    assert!(!logout("far", folder.path()).await.unwrap());
    host.upstreams.shutdown().await;
}

#[tokio::test]
async fn a_token_that_ends_soon_is_renewed_once_before_it_is_used() {
    let lab = Lab::new();
    let world = World::new(&lab).await;
    world.books().lifetime = 1;
    let (host, folder) = host(world.config()).await;
    world.agree(folder.path()).await.unwrap();
    world.books().lifetime = 3600;
    until("the tools appear", || host.status("far").tools > 0).await;
    let calls = (0..8).map(|_| host.call("far__test_echo", json!({"text": "a"})));
    for called in futures_util::future::join_all(calls).await {
        assert!(called.ok, "{called:?}");
    }
    let renewed = world.books().asked.iter().filter(|asked| asked["grant_type"] == "refresh_token").count();
    assert_eq!(renewed, 1, "a refresh token counts once");
    host.upstreams.shutdown().await;
}

#[tokio::test]
async fn more_is_asked_for_when_it_is_needed_and_not_for_ever() {
    let lab = Lab::new();
    let world = World::new(&lab).await;
    let (host, folder) = host(world.config()).await;
    world.agree(folder.path()).await.unwrap();
    until("the tools appear", || host.status("far").tools > 0).await;
    world.books().to_call = Some("write");
    let refused = host.call("far__test_echo", json!({"text": "a"})).await;
    let message = refused.error.as_ref().unwrap().message.clone();
    assert!(message.contains("more authorisation needed for tools/call") && message.contains("write"), "{message}");
    assert_eq!(host.status("far").status, Health::Degraded);
    assert_eq!(world.agree(folder.path()).await.unwrap(), ["read", "write", "offline_access"], "nothing is given up");
    let called = host.call("far__test_echo", json!({"text": "b"})).await;
    assert!(called.ok, "{called:?}");
    assert_eq!(host.status("far").status, Health::Healthy);

    // The person agreed, and the scopes are still not enough: no further login is requested.
    for token in world.books().tokens.values_mut() {
        *token = "read".to_owned();
    }
    let refused = host.call("far__test_echo", json!({"text": "c"})).await;
    assert!(refused.error.as_ref().unwrap().message.contains("not asked again"));
    let again = world.agree(folder.path()).await.unwrap_err();
    assert!(again.contains("no login is wanted"), "{again}");
    host.upstreams.shutdown().await;
}

#[tokio::test]
async fn a_client_with_rights_of_its_own_needs_no_person() {
    let lab = Lab::new();
    let world = World::new(&lab).await;
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "hush\n").unwrap();
    let oauth = OauthConfig {
        grant: GrantKind::ClientCredentials,
        client_id: Some("robot".into()),
        client_secret_file: Some(secret.path().to_owned()),
        ..OauthConfig::default()
    };
    let (host, _folder) = host(ServerConfig { oauth, ..world.config() }).await;
    assert!(host.call("far__test_echo", json!({"text": "a"})).await.ok);
    world.books().tokens.clear();
    assert!(host.call("far__test_echo", json!({"text": "b"})).await.ok);
    assert_eq!(world.books().asked.len(), 2);
    host.upstreams.shutdown().await;
}

#[tokio::test]
async fn an_authorisation_server_that_cannot_be_trusted_is_not_used() {
    let lab = Lab::new();
    for (says, expected) in [
        (json!({"code_challenge_methods_supported": ["plain"]}), "PKCE"),
        (json!({"code_challenge_methods_supported": null}), "PKCE"),
        (json!({"issuer": "https://evil.example"}), "evil.example"),
        (json!({"authorization_endpoint": "javascript:alert(1)"}), "not https"),
        (json!({"token_endpoint": "http://far.example/token"}), "not https"),
    ] {
        let world = World::new(&lab).await;
        world.books().metadata = says;
        let folder = tempfile::tempdir().unwrap();
        let why = world.agree(folder.path()).await.unwrap_err();
        assert!(why.contains(expected), "{why}");
        assert!(world.books().asked.is_empty() && world.books().registrations == 0);
    }
}

#[tokio::test]
async fn a_token_is_for_the_address_it_was_given_out_for() {
    let lab = Lab::new();
    let (world, other) = (World::new(&lab).await, World::new(&lab).await);
    let folder = tempfile::tempdir().unwrap();
    world.agree(folder.path()).await.unwrap();
    assert!(Login::new("far", &world.config(), folder.path()).unwrap().probe().await.is_ok());
    // The same name with another address: the token is not sent there.
    let moved = Login::new("far", &other.config(), folder.path()).unwrap();
    assert!(moved.probe().await.unwrap_err().message.contains("authorisation needed"));
    assert!(moved.is_wanted());
}
