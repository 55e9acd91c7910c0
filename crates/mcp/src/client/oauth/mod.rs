//! OAuth towards upstream servers, as in the MCP specification: a server that answers 401 names its authorisation
//! server, a person logs in once ([`Login`]), and from then on tokens are sent, renewed and, if their scopes are not
//! enough, requested again.
//!
//! [`Authorizer`] does this for one server. It never waits for a person: without a token a request fails at once and
//! names the command to run.

mod challenge;
mod discovery;
mod fetch;
mod login;
mod registration;
mod store;
mod token;

pub(crate) use challenge::{Challenge, is_scope};
pub use login::{Login, PendingLogin, logout};

use super::{
    config::{GrantKind, OauthConfig, ServerConfig},
    http::HttpClient,
};
use fetch::Fetcher;
use jiff::{SignedDuration, Timestamp};
use registration::{Client, Origin};
use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use store::{FileVersion, Grant, LoginRequest, Record, TokenFile};
use token::{Credential, IssuedToken, Refusal, TokenRequest};

/// A token that ends sooner than this is renewed before it is used.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_secs(30);
/// The delay before the next renewal if a renewal failed and the token is still valid.
const RENEW_AGAIN: Duration = Duration::from_secs(30);
/// How often more scopes are requested for one operation.
const MAX_STEP_UPS: u32 = 3;
/// Maximum number of operations whose attempts are counted.
const MAX_OPERATIONS: usize = 256;
/// Authorisation servers at which we stay registered.
const MAX_CLIENTS: usize = 8;
/// The scope that grants a refresh token.
const OFFLINE_ACCESS: &str = "offline_access";

/// Tokens for one server.
pub(crate) struct Authorizer {
    server: String,
    url: String,
    config: OauthConfig,
    file: TokenFile,
    known: Mutex<CachedRecord>,
    /// Held while a token is renewed, so that it is done once.
    renewing: tokio::sync::Mutex<()>,
}

/// The content of the file when it was last read.
#[derive(Default)]
struct CachedRecord {
    /// Unset before the first reading.
    stamp: Option<Option<FileVersion>>,
    record: Arc<Record>,
    /// Grows with every other token.
    version: u64,
    /// What a person must do, and the version of the token with which this was found.
    need: Option<(String, u64)>,
    renewal_failed: Option<Instant>,
}

/// Why a request cannot be sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RequestBlocked {
    /// A person must do something, or nothing can be done.
    Person(String),
    /// A temporary failure.
    TemporaryFailure(String),
}

/// A failure to read or fetch something.
impl From<String> for RequestBlocked {
    fn from(why: String) -> Self {
        Self::TemporaryFailure(why)
    }
}

/// A request that was refused.
pub(crate) struct RefusedRequest<'a> {
    pub(crate) challenge: Challenge,
    /// The token it carried.
    pub(crate) used: Option<&'a str>,
    /// The operation that was refused.
    pub(crate) operation: String,
    /// Whether the token had only just been given out.
    pub(crate) was_new: bool,
}

impl Authorizer {
    /// For a server over HTTP that has no configured credential.
    pub(crate) fn new(server: &str, config: &ServerConfig, folder: &Path) -> Option<Arc<Self>> {
        let url = config.url.as_ref().filter(|_| config.oauth.enabled && !config.has_credential())?;
        Some(Arc::new(Self {
            server: server.to_owned(),
            url: url.clone(),
            config: config.oauth.clone(),
            file: TokenFile::new(folder, server),
            known: Mutex::default(),
            renewing: tokio::sync::Mutex::new(()),
        }))
    }

    /// The stored record, read again if the file has changed because of a login, a logout or a renewal.
    fn record(&self) -> Result<Arc<Record>, String> {
        let stamp = self.file.stamp();
        let mut known = self.known();
        if known.stamp != Some(stamp) {
            let record = self.file.read()?;
            known.take(self.own(record), stamp);
        }
        Ok(known.record.clone())
    }

    /// A record with another address belongs to another server and is not used.
    fn own(&self, record: Record) -> Record {
        if record.url == self.url { record } else { Record { url: self.url.clone(), ..Record::default() } }
    }

    /// Changes the stored record under a lock, so that other processes wait.
    async fn change<T>(&self, change: impl FnOnce(&mut Record) -> T) -> Result<T, String> {
        let _alone = self.file.lock().await?;
        self.change_locked(change)
    }

    fn change_locked<T>(&self, change: impl FnOnce(&mut Record) -> T) -> Result<T, String> {
        let before = self.own(self.file.read()?);
        let mut after = before.clone();
        let outcome = change(&mut after);
        if after != before {
            self.file.write(&after)?;
        }
        self.known().take(after, self.file.stamp());
        Ok(outcome)
    }

    /// The token to send, renewed if it expires soon. `None` if there is none.
    pub(crate) async fn bearer(&self, client: &HttpClient) -> Result<Option<String>, RequestBlocked> {
        let record = self.record()?;
        let Some(grant) = &record.grant else { return Ok(None) };
        let ends_soon = grant.until.is_some_and(|until| until <= Timestamp::now() + RENEW_BEFORE);
        let waits = self.known().renewal_failed.is_some_and(|at| at.elapsed() < RENEW_AGAIN);
        if ends_soon && grant.refresh.is_some() && !waits {
            match self.renew(client, grant.access.reveal()).await {
                Ok(token) => return Ok(Some(token)),
                Err(refusal) => {
                    let why = refusal.into_message();
                    tracing::info!(server = self.server, why, "a token could not be renewed");
                    self.known().renewal_failed = Some(Instant::now());
                }
            }
        }
        Ok(Some(grant.access.reveal().to_owned()))
    }

    /// Another token after a request was refused. `Err` says what a person must do, or that nothing can be done.
    pub(crate) async fn refused(
        &self,
        client: &HttpClient,
        refused: RefusedRequest<'_>,
    ) -> Result<String, RequestBlocked> {
        let record = self.record()?;
        if let Some(grant) = record.grant.as_ref().filter(|grant| Some(grant.access.reveal()) != refused.used) {
            return Ok(grant.access.reveal().to_owned());
        }
        let outcome = match &record.grant {
            Some(grant) if refused.challenge.wants_more() => self.step_up(client, &record, grant, &refused).await,
            _ => self.unauthorised(client, &record, &refused).await,
        };
        if let Err(RequestBlocked::Person(why)) = &outcome {
            let mut known = self.known();
            // Unless there is another token by now.
            if known.record.grant.as_ref().map(|grant| grant.access.reveal()) == refused.used {
                known.need = Some((why.clone(), known.version));
            }
        }
        outcome
    }

    /// Handles a request that was refused because of a missing or invalid token.
    async fn unauthorised(
        &self,
        client: &HttpClient,
        record: &Record,
        refused: &RefusedRequest<'_>,
    ) -> Result<String, RequestBlocked> {
        if self.config.grant == GrantKind::ClientCredentials {
            if refused.was_new {
                return Err(RequestBlocked::TemporaryFailure(
                    "the server refuses the token that was given out for it".to_owned(),
                ));
            }
            return Ok(self.obtain(client, record, &refused.challenge, None).await?);
        }
        let named = refused.challenge.resource_metadata.as_deref();
        if let Some(grant) = record.grant.as_ref().filter(|grant| grant.refresh.is_some() && !refused.was_new)
            && self.is_still_of(client, named, &grant.issuer).await
        {
            match self.renew(client, grant.access.reveal()).await {
                Ok(token) => return Ok(token),
                Err(Refusal::TemporaryFailure(why)) => {
                    return Err(RequestBlocked::TemporaryFailure(format!(
                        "the token ended and cannot be renewed now: {why}"
                    )));
                }
                Err(Refusal::Invalid(why)) => tracing::info!(server = self.server, why, "a refresh token ended"),
            }
        }
        self.want(LoginRequest {
            scopes: refused.challenge.scopes.clone(),
            resource_metadata: refused.challenge.resource_metadata.clone(),
            operation: None,
        })
        .await;
        Err(RequestBlocked::Person(format!("authorisation needed: run `toolyard mcp login {}`", self.server)))
    }

    /// Handles a request that was refused because the token's scopes are not enough.
    async fn step_up(
        &self,
        client: &HttpClient,
        record: &Record,
        grant: &Grant,
        refused: &RefusedRequest<'_>,
    ) -> Result<String, RequestBlocked> {
        let asked = refused.challenge.scopes.clone().unwrap_or_default();
        let scopes = union(&grant.requested, &asked);
        let operation = &refused.operation;
        let tries = record.tries.get(operation).copied().unwrap_or_default();
        if scopes == grant.requested || tries >= MAX_STEP_UPS {
            let named = if asked.is_empty() { String::new() } else { format!(" ({})", asked.join(" ")) };
            return Err(RequestBlocked::Person(format!(
                "the server does not allow {operation} and wants scopes{named} that were asked for already; it is not \
                 asked again"
            )));
        }
        if self.config.grant == GrantKind::ClientCredentials {
            let operation = operation.clone();
            self.change(move |record| record.count(operation)).await?;
            return Ok(self.obtain(client, record, &refused.challenge, Some(scopes)).await?);
        }
        self.want(LoginRequest {
            scopes: Some(scopes),
            resource_metadata: refused.challenge.resource_metadata.clone(),
            operation: Some(operation.clone()),
        })
        .await;
        Err(RequestBlocked::Person(format!(
            "more authorisation needed for {operation} ({}): run `toolyard mcp login {}`",
            asked.join(" "),
            self.server
        )))
    }

    /// Stores the scopes that the next login must request.
    async fn want(&self, wanted: LoginRequest) {
        if let Err(why) = self.change(move |record| record.wanted = Some(wanted)).await {
            tracing::warn!(server = self.server, why, "what a server wants could not be noted");
        }
    }

    /// Whether this authorisation server is still the server's. If that cannot be determined, it is.
    async fn is_still_of(&self, client: &HttpClient, named: Option<&str>, issuer: &str) -> bool {
        let Ok(fetcher) = Fetcher::new(client, &self.url) else { return false };
        match discovery::resource(&fetcher, &self.url, named).await {
            Ok(Some(found)) => found.authorization_servers.iter().any(|server| server == issuer),
            Ok(None) | Err(_) => true,
        }
    }

    /// Uses the refresh token to get a new token, unless another process was faster.
    async fn renew(&self, client: &HttpClient, used: &str) -> Result<String, Refusal> {
        let _one = self.renewing.lock().await;
        let _alone = self.file.lock().await.map_err(Refusal::TemporaryFailure)?;
        let record = self.record().map_err(Refusal::TemporaryFailure)?;
        let unavailable = || Refusal::Invalid("there is no refresh token".to_owned());
        let grant = record.grant.as_ref().ok_or_else(unavailable)?;
        if grant.access.reveal() != used {
            return Ok(grant.access.reveal().to_owned());
        }
        let refresh = grant.refresh.as_ref().ok_or_else(unavailable)?;
        let fetcher = Fetcher::new(client, &self.url).map_err(Refusal::TemporaryFailure)?;
        let asked = TokenRequest {
            endpoint: &grant.token_endpoint,
            client: &grant.client,
            resource: &grant.resource,
            scopes: &grant.requested,
        };
        let issued = token::ask(&fetcher, &self.config, &asked, Credential::Refresh(refresh.reveal())).await;
        match issued {
            Ok(issued) => {
                let token = issued.access.reveal().to_owned();
                let renewed = Grant {
                    access: issued.access,
                    refresh: issued.refresh.or_else(|| grant.refresh.clone()),
                    until: issued.until,
                    ..grant.clone()
                };
                self.change_locked(|record| record.grant = Some(renewed)).map_err(Refusal::TemporaryFailure)?;
                self.known().renewal_failed = None;
                Ok(token)
            }
            Err(Refusal::Invalid(why)) => {
                // A retry with the same refresh token would fail too.
                let forgotten = self.change_locked(|record| {
                    if let Some(grant) = &mut record.grant {
                        grant.refresh = None;
                    }
                });
                if let Err(error) = forgotten {
                    tracing::warn!(server = self.server, error, "a refresh token that does not count is still kept");
                }
                Err(Refusal::Invalid(why))
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// A token for the configured client itself, without a person.
    async fn obtain(
        &self,
        client: &HttpClient,
        record: &Record,
        challenge: &Challenge,
        scopes: Option<Vec<String>>,
    ) -> Result<String, String> {
        let _one = self.renewing.lock().await;
        let fetcher = Fetcher::new(client, &self.url)?;
        let named = challenge.resource_metadata.as_deref();
        let (resource, server) = discovery::discover(&fetcher, &self.url, named, self.config.issuer.as_deref()).await?;
        let ourselves = Client::configured(&self.config, &server, record)?;
        let ourselves = ourselves.ok_or("client credentials need oauth.clientId")?;
        let scopes = scopes.unwrap_or_else(|| self.scopes(challenge.scopes.as_ref(), &resource));
        let asked = TokenRequest {
            endpoint: &server.token_endpoint,
            client: &ourselves,
            resource: &resource.resource,
            scopes: &scopes,
        };
        let issued =
            token::ask(&fetcher, &self.config, &asked, Credential::Itself).await.map_err(Refusal::into_message)?;
        let token = issued.access.reveal().to_owned();
        let grant = granted(issued, &server, &resource.resource, ourselves, &scopes);
        self.change(move |record| record.accept(grant)).await?;
        Ok(token)
    }

    /// The scopes to request first: the configured ones, otherwise those of the refusal, otherwise those that the
    /// server supports.
    fn scopes(&self, challenged: Option<&Vec<String>>, resource: &discovery::Resource) -> Vec<String> {
        if !self.config.scopes.is_empty() {
            return self.config.scopes.clone();
        }
        challenged.or(resource.scopes_supported.as_ref()).cloned().unwrap_or_default()
    }

    /// What a person must do, if anything, and the version of the token with which this was found.
    pub(crate) fn need(&self) -> Option<(String, u64)> {
        self.known().need.clone()
    }

    /// Increases with every new token, whichever process obtained it.
    pub(crate) fn version(&self) -> u64 {
        if let Err(error) = self.record() {
            tracing::warn!(server = self.server, error, "the tokens of a server cannot be read");
        }
        self.known().version
    }

    fn known(&self) -> MutexGuard<'_, CachedRecord> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedRecord {
    fn take(&mut self, record: Record, stamp: Option<FileVersion>) {
        let token = |record: &Record| record.grant.as_ref().map(|grant| grant.access.clone());
        if token(&record) != token(&self.record) {
            self.version += 1;
            self.need = None;
            self.renewal_failed = None;
        }
        self.record = Arc::new(record);
        self.stamp = Some(stamp);
    }
}

impl Record {
    /// Counts that more scopes were asked for.
    fn count(&mut self, operation: String) {
        if self.tries.len() >= MAX_OPERATIONS {
            self.tries.clear();
        }
        *self.tries.entry(operation).or_default() += 1;
    }

    /// Remembers a client that registered itself.
    fn remember(&mut self, issuer: String, client: Client) {
        if client.origin == Origin::Registered {
            if self.clients.len() >= MAX_CLIENTS {
                self.clients.clear();
            }
            self.clients.insert(issuer, client);
        }
    }

    /// Takes a new token in.
    fn accept(&mut self, grant: Grant) {
        if grant.client.origin == Origin::Configured {
            self.bound = Some(grant.issuer.clone());
        }
        self.wanted = None;
        self.grant = Some(grant);
    }
}

/// A token that was given out, with all that is needed to renew it.
fn granted(
    issued: IssuedToken,
    server: &discovery::AuthServer,
    resource: &str,
    client: Client,
    requested: &[String],
) -> Grant {
    Grant {
        issuer: server.issuer.clone(),
        token_endpoint: server.token_endpoint.clone(),
        resource: resource.to_owned(),
        client,
        access: issued.access,
        refresh: issued.refresh,
        until: issued.until,
        requested: union(requested, &issued.scopes.unwrap_or_default()),
    }
}

/// The union of both lists, in order.
fn union(first: &[String], second: &[String]) -> Vec<String> {
    let mut all = first.to_vec();
    for scope in second {
        if !all.contains(scope) {
            all.push(scope.clone());
        }
    }
    all
}
