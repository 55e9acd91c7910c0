//! A person's login: the address for the browser, and the redirect that comes back.
//!
//! The caller listens for the redirect; this module opens no sockets.

use super::{
    Authorizer, LoginRequest, OFFLINE_ACCESS, discovery,
    discovery::AuthServer,
    fetch::{Fetcher, shorten},
    granted,
    registration::{self, Client},
    store::TokenFile,
    token::{self, Credential, Refusal, TokenRequest},
    union,
};
use crate::client::{
    child::PlainLauncher,
    config::{GrantKind, ServerConfig},
    http::{self, HttpClient},
    live::{ConnectContext, LiveServer},
    mux::{Inbox, unknown},
    terms::Dialect,
};
use crate::{RpcError, wire::Payload};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use futures_util::future::BoxFuture;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::{fmt, path::Path, sync::Arc};
use toolyard_engine::system_clock;
use toolyard_protocol::{ErrorCode, Failure};
use url::{Url, form_urlencoded};

/// Authorises with one upstream server, for a person who waits.
pub struct Login {
    name: String,
    config: ServerConfig,
    client: HttpClient,
    auth: Arc<Authorizer>,
}

/// A login that waits for its redirect. It can be completed once.
pub struct PendingLogin {
    url: String,
    state: String,
    verifier: String,
    redirect: String,
    server: AuthServer,
    resource: String,
    client: Client,
    scopes: Vec<String>,
    operation: Option<String>,
}

impl fmt::Debug for PendingLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begun").field("issuer", &self.server.issuer).finish_non_exhaustive()
    }
}

impl PendingLogin {
    /// The address a person opens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Who is asked.
    pub fn issuer(&self) -> &str {
        &self.server.issuer
    }

    /// The requested scopes.
    pub fn scopes(&self) -> &[String] {
        &self.scopes
    }

    /// Whether a redirect belongs to this login. Any other is ignored.
    pub fn is_answer(&self, query: &str) -> bool {
        matches!(only(query, "state"), Ok(Some(state)) if state == self.state)
    }
}

impl Login {
    /// For a configured server. `folder` is where tokens are kept.
    pub fn new(name: &str, config: &ServerConfig, folder: &Path) -> Result<Self, Failure> {
        let refuse = |why: &str| Failure::new(ErrorCode::PreconditionFailed, format!("{name}: {why}"));
        if config.url.is_none() {
            return Err(
                refuse("a server that is started here is not logged in to").suggest("Give it credentials in env.")
            );
        }
        let auth = Authorizer::new(name, config, folder).ok_or_else(|| {
            refuse("its credential is configured, or oauth.enabled is false")
                .suggest("Remove bearerTokenEnv, bearerTokenFile or the Authorization header first.")
        })?;
        let client = http::client().map_err(|why| Failure::new(ErrorCode::Unavailable, why))?;
        Ok(Self { name: name.to_owned(), config: config.clone(), client, auth })
    }

    fn failed(&self, why: impl fmt::Display) -> Failure {
        Failure::new(ErrorCode::Unavailable, format!("{}: {why}", self.name)).detail("server", self.name.as_str())
    }

    /// Connects as any call would. Gives the number of tools.
    pub async fn probe(&self) -> Result<usize, Failure> {
        let looking = async {
            let live = LiveServer::open(ConnectContext {
                name: &self.name,
                config: &self.config,
                launcher: &PlainLauncher,
                client: Some(self.client.clone()),
                auth: Some(self.auth.clone()),
                inbox: Arc::new(NoQuestions),
                dialect: &Dialect::Mcp,
                children: Arc::default(),
                errors: Arc::default(),
                clock: system_clock(),
            })
            .await
            .map_err(|unavailable| unavailable.why)?;
            let tools = live.tools().await.map_err(|error| RpcError::from(error).message);
            live.stop().await;
            tools.map(|tools| tools.len())
        };
        match tokio::time::timeout(self.config.start_timeout(), looking).await {
            Ok(outcome) => outcome.map_err(|why| self.failed(why)),
            Err(_) => Err(self.failed(format!("it did not answer within {} ms", self.config.start_timeout_ms))),
        }
    }

    /// Whether a login would help.
    pub fn is_wanted(&self) -> bool {
        self.config.oauth.grant == GrantKind::AuthorizationCode
            && self.auth.record().is_ok_and(|record| record.wanted.is_some())
    }

    /// The port to listen on for the answer; 0 for any. The one a client was registered with is the best.
    pub fn port(&self) -> u16 {
        if self.config.oauth.redirect_port != 0 {
            return self.config.oauth.redirect_port;
        }
        let Ok(record) = self.auth.record() else { return 0 };
        let known = record.grant.as_ref().map(|grant| &grant.client).or_else(|| record.clients.values().next());
        known.and_then(|client| Url::parse(&client.redirect).ok()?.port()).unwrap_or_default()
    }

    /// Finds the authorisation server, registers this client there, and returns the address for a person's browser. The
    /// answer comes back to `redirect`.
    pub async fn begin(&self, redirect: &str) -> Result<PendingLogin, Failure> {
        self.begin_or_say_why(redirect).await.map_err(|why| {
            self.failed(why).suggest("Nothing was sent to anybody but the addresses that the server named.")
        })
    }

    async fn begin_or_say_why(&self, redirect: &str) -> Result<PendingLogin, String> {
        let auth = &self.auth;
        let record = auth.record()?;
        let LoginRequest { scopes: wanted, resource_metadata, operation } = record.wanted.clone().unwrap_or_default();
        let fetcher = Fetcher::new(&self.client, &auth.url)?;
        let configured = auth.config.issuer.as_deref();
        let (resource, server) =
            discovery::discover(&fetcher, &auth.url, resource_metadata.as_deref(), configured).await?;
        if !server.has_pkce() {
            return Err(format!("{} does not say that it knows PKCE with S256", shorten(&server.issuer)));
        }
        let endpoint =
            server.authorization_endpoint.as_deref().ok_or("the authorisation server has no authorization endpoint")?;
        let mut url = fetcher.check(endpoint)?;
        let client = registration::choose(&fetcher, &server, &auth.config, &record, redirect).await?;
        // Stored even if the person does not agree: the next login uses the same client.
        let (issuer, ours) = (server.issuer.clone(), client.clone());
        auth.change(move |record| record.remember(issuer, ours)).await?;
        let scopes = match record.grant.as_ref().filter(|grant| grant.issuer == server.issuer) {
            // The scopes that were granted before are requested again.
            Some(grant) if wanted.is_some() => union(&grant.requested, &wanted.unwrap_or_default()),
            _ => auth.scopes(wanted.as_ref(), &resource),
        };
        let scopes = with_offline_access(scopes, &server);
        let (state, verifier) = (random()?, random()?);
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("response_type", "code").append_pair("client_id", &client.id);
            query.append_pair("redirect_uri", redirect).append_pair("state", &state);
            query
                .append_pair("code_challenge", &code_challenge(&verifier))
                .append_pair("code_challenge_method", "S256");
            query.append_pair("resource", &resource.resource);
            if !scopes.is_empty() {
                query.append_pair("scope", &scopes.join(" "));
            }
        }
        Ok(PendingLogin {
            url: url.into(),
            state,
            verifier,
            redirect: redirect.to_owned(),
            server,
            resource: resource.resource,
            client,
            scopes,
            operation,
        })
    }

    /// Takes the answer, the query of the address that was called, and exchanges it for a token, which is kept.
    pub async fn finish(&self, begun: PendingLogin, query: &str) -> Result<(), Failure> {
        let code = code(&begun, query).map_err(|why| self.failed(why))?;
        let fetcher = Fetcher::new(&self.client, &self.auth.url).map_err(|why| self.failed(why))?;
        let asked = TokenRequest {
            endpoint: &begun.server.token_endpoint,
            client: &begun.client,
            resource: &begun.resource,
            scopes: &begun.scopes,
        };
        let given = Credential::Code { code: &code, verifier: &begun.verifier, redirect: &begun.redirect };
        let issued = token::ask(&fetcher, &self.auth.config, &asked, given).await;
        let issued = issued.map_err(|refusal: Refusal| self.failed(refusal.into_message()))?;
        let grant = granted(issued, &begun.server, &begun.resource, begun.client, &begun.scopes);
        let kept = self.auth.change(move |record| {
            match begun.operation {
                Some(operation) => record.count(operation),
                None => record.tries.clear(),
            }
            record.accept(grant);
        });
        kept.await.map_err(|why| Failure::new(ErrorCode::StoreUnavailable, why))
    }
}

/// Deletes the token of a server and everything else that is stored about its authorisation, configured or not. False
/// if there was no token.
pub async fn logout(name: &str, folder: &Path) -> Result<bool, Failure> {
    let broken = |why: String| Failure::new(ErrorCode::StoreUnavailable, why);
    let file = TokenFile::new(folder, name);
    if file.stamp().is_none() {
        return Ok(false);
    }
    let _alone = file.lock().await.map_err(broken)?;
    // A record that cannot be read is deleted as well.
    let was_there = file.read().map_or(true, |record| record.grant.is_some());
    file.remove().map_err(broken)?;
    Ok(was_there)
}

/// The code of an answer, after all checks of the answer.
fn code(begun: &PendingLogin, query: &str) -> Result<String, String> {
    if !begun.is_answer(query) {
        return Err("the answer does not belong to this login".to_owned());
    }
    // The sender is checked first: an error from another sender is not shown.
    let iss = only(query, "iss")?;
    if !begun.server.is_answer_of(iss.as_deref()) {
        return Err(format!("the answer does not come from {}; it is not used", shorten(&begun.server.issuer)));
    }
    if let Some(error) = only(query, "error")? {
        let more = only(query, "error_description")?.map(|text| format!(" ({})", shorten(&text)));
        return Err(format!("authorisation was refused: {}{}", shorten(&error), more.unwrap_or_default()));
    }
    only(query, "code")?.filter(|code| !code.is_empty()).ok_or_else(|| "the answer holds no code".to_owned())
}

/// The value of a parameter that may be there once.
fn only(query: &str, name: &str) -> Result<Option<String>, String> {
    let mut values = form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == name).map(|(_, value)| value);
    let first = values.next();
    match values.next() {
        Some(_) => Err(format!("the answer says {name} twice")),
        None => Ok(first.map(std::borrow::Cow::into_owned)),
    }
}

/// Adds the scope for a refresh token, if the authorisation server supports it. An empty list means the server's
/// default and stays empty.
fn with_offline_access(mut scopes: Vec<String>, server: &AuthServer) -> Vec<String> {
    scopes.retain(|scope| scope != OFFLINE_ACCESS);
    if server.has_offline_access() && !scopes.is_empty() {
        scopes.push(OFFLINE_ACCESS.to_owned());
    }
    scopes
}

/// 256 random bits.
fn random() -> Result<String, String> {
    let mut bytes = [0u8; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(|e| format!("the system has no randomness: {e}"))?;
    }
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

fn code_challenge(verifier: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier))
}

/// An asker that answers no questions.
struct NoQuestions;

impl Inbox for NoQuestions {
    fn notified(&self, _: &str, _: Payload) {}

    fn asked<'a>(&'a self, method: &'a str, _: Payload) -> BoxFuture<'a, Result<Value, RpcError>> {
        Box::pin(async move { Err(unknown(method)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::oauth::registration::{Origin, Proof};

    fn begun(says_iss: bool) -> PendingLogin {
        PendingLogin {
            url: String::new(),
            state: "s".into(),
            verifier: "hush".into(),
            redirect: String::new(),
            server: AuthServer {
                issuer: "https://x.org".into(),
                authorization_response_iss_parameter_supported: says_iss,
                ..AuthServer::default()
            },
            resource: String::new(),
            client: Client {
                id: "me".into(),
                secret: None,
                proof: Proof::None,
                origin: Origin::Registered,
                redirect: String::new(),
                until: None,
            },
            scopes: Vec::new(),
            operation: None,
        }
    }

    #[test]
    fn an_answer_must_be_ours_and_its_servers_before_it_is_read() {
        assert_eq!(code(&begun(false), "code=c&state=s"), Ok("c".to_owned()));
        assert_eq!(code(&begun(true), "code=c&state=s&iss=https%3A%2F%2Fx.org"), Ok("c".to_owned()));
        let refused = |says_iss, query: &str| code(&begun(says_iss), query).unwrap_err();
        assert!(refused(false, "code=c&state=other").contains("does not belong"));
        assert!(refused(false, "code=c").contains("does not belong"));
        assert!(refused(false, "code=c&state=s&state=s").contains("does not belong"));
        assert!(refused(true, "code=c&state=s").contains("does not come from"));
        for wrong in ["https%3A%2F%2Fx.org%2F", "https%3A%2F%2Fevil.org"] {
            let why = refused(false, &format!("error=e&error_description=lies&state=s&iss={wrong}"));
            assert!(why.contains("does not come from") && !why.contains("lies"), "{why}");
        }
        assert!(refused(false, "error=access_denied&error_description=No&state=s").contains("access_denied (No)"));
        assert!(refused(false, "code=a&code=b&state=s").contains("twice"));
        assert!(refused(false, "state=s").contains("no code"));
        assert!(!format!("{:?}", begun(false)).contains("hush"));
    }

    #[test]
    fn the_challenge_is_the_one_of_the_standard() {
        // The example of RFC 7636, appendix B.
        let challenge = code_challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        assert_eq!(challenge, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        let (a, b) = (random().unwrap(), random().unwrap());
        assert!(a != b && a.len() == 43);
    }

    #[test]
    fn offline_access_is_asked_for_where_it_is_known_and_only_there() {
        let knows = |scopes: &[&str]| AuthServer {
            scopes_supported: Some(scopes.iter().map(|s| (*s).to_owned()).collect()),
            ..AuthServer::default()
        };
        let some = vec!["a".to_owned()];
        assert_eq!(with_offline_access(some.clone(), &knows(&["offline_access"])), ["a", "offline_access"]);
        assert_eq!(with_offline_access(some.clone(), &knows(&["a"])), ["a"]);
        assert_eq!(with_offline_access(vec!["offline_access".into(), "a".into()], &AuthServer::default()), ["a"]);
        assert!(with_offline_access(Vec::new(), &knows(&["offline_access"])).is_empty());
    }
}
