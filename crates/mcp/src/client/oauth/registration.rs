//! Our identity at an authorisation server: a client that the operator registered, one described by a metadata
//! document, or one that registers itself (RFC 7591).

use super::{
    discovery::AuthServer,
    fetch::{Fetcher, shorten},
    store::{Record, Secret},
};
use crate::client::config::OauthConfig;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a client authenticates at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Proof {
    #[serde(rename = "client_secret_basic")]
    Basic,
    #[serde(rename = "client_secret_post")]
    Post,
    #[serde(rename = "none")]
    None,
}

impl Proof {
    fn as_str(self) -> &'static str {
        match self {
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
            Self::None => "none",
        }
    }

    /// The one to use with a secret, of those a server takes.
    fn with_secret(server: &AuthServer) -> Result<Self, String> {
        let Some(supported) = &server.token_endpoint_auth_methods_supported else { return Ok(Self::Basic) };
        let known = [Self::Basic, Self::Post, Self::None];
        known.into_iter().find(|proof| supported.iter().any(|name| name == proof.as_str())).ok_or_else(|| {
            let names = supported.iter().take(8).map(|name| shorten(name)).collect::<Vec<_>>();
            format!("the authorisation server takes only {}, which is not spoken here", names.join(", "))
        })
    }

    /// The authentication method to register: none if that is possible, because a program on a person's machine cannot
    /// keep a secret.
    fn to_register(server: &AuthServer) -> Result<Self, String> {
        match &server.token_endpoint_auth_methods_supported {
            Some(supported) if supported.iter().any(|name| name == "none") => Ok(Self::None),
            _ => Self::with_secret(server),
        }
    }
}

/// Where a client comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Origin {
    /// The configuration, which holds its secret.
    Configured,
    /// A document that its id points to.
    Document,
    /// It registered itself.
    Registered,
}

/// Our client at one authorisation server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Client {
    pub(super) id: String,
    /// Set only if the client registered itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<Secret>,
    pub(super) proof: Proof,
    pub(super) origin: Origin,
    /// The redirect address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) redirect: String,
    /// When its secret ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
}

impl Client {
    /// The operator's own, for the one authorisation server it was registered with.
    pub(super) fn configured(
        config: &OauthConfig,
        server: &AuthServer,
        record: &Record,
    ) -> Result<Option<Self>, String> {
        let Some(id) = &config.client_id else { return Ok(None) };
        if let Some(bound) = record.bound.as_ref().filter(|bound| **bound != server.issuer) {
            return Err(format!(
                "the client {id} was registered with {bound}, and tokens now come from {}; register it there, set \
                 oauth.clientId and oauth.issuer, and log out first",
                shorten(&server.issuer)
            ));
        }
        let proof = if config.has_secret() { Proof::with_secret(server)? } else { Proof::None };
        Ok(Some(Self::new(id.clone(), proof, Origin::Configured, "")))
    }

    fn new(id: String, proof: Proof, origin: Origin, redirect: &str) -> Self {
        Self { id, secret: None, proof, origin, redirect: redirect.to_owned(), until: None }
    }

    /// The client's secret, if it has one.
    pub(super) fn secret(&self, config: &OauthConfig) -> Result<Option<String>, String> {
        match self.origin {
            Origin::Configured => config.secret(),
            Origin::Document => Ok(None),
            Origin::Registered => Ok(self.secret.as_ref().map(|secret| secret.reveal().to_owned())),
        }
    }
}

/// The client to use with a server: configured, described by a document, registered before, registered now.
pub(super) async fn choose(
    fetcher: &Fetcher<'_>,
    server: &AuthServer,
    config: &OauthConfig,
    record: &Record,
    redirect: &str,
) -> Result<Client, String> {
    if let Some(client) = Client::configured(config, server, record)? {
        return Ok(client);
    }
    if let Some(document) = config.client_metadata_url.as_ref().filter(|_| server.client_id_metadata_document_supported)
    {
        return Ok(Client::new(document.clone(), Proof::None, Origin::Document, redirect));
    }
    if let Some(known) = record.clients.get(&server.issuer) {
        let holds = known.until.is_none_or(|until| until > Timestamp::now());
        if holds && known.redirect == redirect {
            return Ok(known.clone());
        }
    }
    match &server.registration_endpoint {
        Some(endpoint) => register(fetcher, server, endpoint, redirect).await,
        None => Err(format!(
            "{} lets no client register itself; register one there and set oauth.clientId",
            shorten(&server.issuer)
        )),
    }
}

/// The request to register a client (RFC 7591).
#[derive(Serialize)]
struct Registration<'a> {
    client_name: &'static str,
    redirect_uris: [&'a str; 1],
    grant_types: [&'static str; 2],
    response_types: [&'static str; 1],
    application_type: &'static str,
    token_endpoint_auth_method: Proof,
}

#[derive(Deserialize)]
struct Registered {
    client_id: String,
    client_secret: Option<String>,
    #[serde(default)]
    client_secret_expires_at: i64,
    token_endpoint_auth_method: Option<Value>,
}

async fn register(
    fetcher: &Fetcher<'_>,
    server: &AuthServer,
    endpoint: &str,
    redirect: &str,
) -> Result<Client, String> {
    let asked = Proof::to_register(server)?;
    let wanted = Registration {
        client_name: "Toolyard",
        redirect_uris: [redirect],
        grant_types: ["authorization_code", "refresh_token"],
        response_types: ["code"],
        application_type: "native",
        token_endpoint_auth_method: asked,
    };
    let body = serde_json::to_string(&wanted).map_err(|e| e.to_string())?;
    let answer = fetcher.post(endpoint, "application/json", None, body).await?;
    if !answer.status.is_success() {
        return Err(format!(
            "{} refused to register a client: {}",
            shorten(&server.issuer),
            super::token::said(answer.status, answer.body.as_ref())
        ));
    }
    let registered: Registered = serde_json::from_value(answer.body.unwrap_or_default())
        .map_err(|_| format!("{} registered a client and does not say its id", shorten(&server.issuer)))?;
    let proof = match registered.token_endpoint_auth_method {
        Some(method) => serde_json::from_value(method.clone())
            .map_err(|_| format!("the client was registered for {method}, which is not spoken here"))?,
        None => asked,
    };
    let secret = registered.client_secret.filter(|_| proof != Proof::None);
    if secret.is_none() && proof != Proof::None {
        return Err(format!("{} registered a client and gave it no secret", shorten(&server.issuer)));
    }
    let until = Some(registered.client_secret_expires_at).filter(|at| *at > 0 && secret.is_some());
    Ok(Client {
        secret: secret.map(Secret::new),
        until: until.and_then(|at| Timestamp::from_second(at).ok()),
        ..Client::new(registered.client_id, proof, Origin::Registered, redirect)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(methods: Option<&[&str]>) -> AuthServer {
        AuthServer {
            issuer: "https://login.example.org".into(),
            token_endpoint_auth_methods_supported: methods.map(|m| m.iter().map(|m| (*m).to_owned()).collect()),
            ..AuthServer::default()
        }
    }

    #[test]
    fn a_client_shows_itself_as_the_server_takes_it() {
        assert_eq!(Proof::with_secret(&server(None)), Ok(Proof::Basic));
        assert_eq!(Proof::with_secret(&server(Some(&["client_secret_post"]))), Ok(Proof::Post));
        assert_eq!(Proof::to_register(&server(Some(&["client_secret_post", "none"]))), Ok(Proof::None));
        assert_eq!(Proof::to_register(&server(None)), Ok(Proof::Basic));
        assert!(Proof::with_secret(&server(Some(&["private_key_jwt"]))).is_err());
    }

    #[test]
    fn a_configured_client_is_for_one_authorisation_server() {
        let config = OauthConfig { client_id: Some("me".into()), ..OauthConfig::default() };
        let mut record = Record::default();
        assert_eq!(Client::configured(&config, &server(None), &record).unwrap().unwrap().proof, Proof::None);
        record.bound = Some("https://login.example.org".into());
        assert!(Client::configured(&config, &server(None), &record).is_ok());
        record.bound = Some("https://before.example.org".into());
        assert!(Client::configured(&config, &server(None), &record).unwrap_err().contains("before.example.org"));
    }
}
