//! Finds the authorisation server of an MCP server: the metadata of the protected resource (RFC 9728), then that of its
//! authorisation server (RFC 8414 and OpenID Connect Discovery).

use super::{
    challenge::is_scope,
    fetch::{Fetcher, shorten},
};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

/// Authorisation servers of one resource that are tried.
const MAX_SERVERS: usize = 4;

/// A protected resource.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Resource {
    /// Its identifier, exactly as it was published.
    pub(super) resource: String,
    pub(super) authorization_servers: Vec<String>,
    pub(super) scopes_supported: Option<Vec<String>>,
}

/// An authorisation server.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct AuthServer {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: Option<String>,
    pub(super) token_endpoint: String,
    pub(super) registration_endpoint: Option<String>,
    pub(super) scopes_supported: Option<Vec<String>>,
    pub(super) code_challenge_methods_supported: Option<Vec<String>>,
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    pub(super) client_id_metadata_document_supported: bool,
    pub(super) authorization_response_iss_parameter_supported: bool,
}

/// The addresses where the metadata of a resource may be, in order. If the server named one, only that.
fn resource_places(server: &Url, named: Option<&str>) -> Vec<String> {
    if let Some(named) = named {
        return vec![named.to_owned()];
    }
    let origin = server.origin().ascii_serialization();
    let root = format!("{origin}/.well-known/oauth-protected-resource");
    let path = server.path().trim_end_matches('/');
    if path.is_empty() { vec![root] } else { vec![format!("{root}{path}"), root] }
}

/// Where the metadata of an authorisation server may be, in order.
fn issuer_places(issuer: &Url) -> Vec<String> {
    let origin = issuer.origin().ascii_serialization();
    let path = issuer.path().trim_end_matches('/');
    let mut places = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{origin}{path}/.well-known/openid-configuration"));
    }
    places
}

/// Whether a published identifier is that of the server: the same origin, and its path or one above it.
fn is_of(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let (above, path) = (resource.path().trim_end_matches('/'), server.path().trim_end_matches('/'));
    let within = path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    resource.origin() == server.origin()
        && within
        && resource.fragment().is_none()
        && resource.query().is_none_or(|query| Some(query) == server.query())
}

/// The metadata of the server at `address`. `None` if there is none.
pub(super) async fn resource(
    fetcher: &Fetcher<'_>,
    address: &str,
    named: Option<&str>,
) -> Result<Option<Resource>, String> {
    let server = Url::parse(address).map_err(|e| format!("{address:?}: {e}"))?;
    let mut trouble = None;
    for place in resource_places(&server, named) {
        let answer = match fetcher.get(&place).await {
            Ok(answer) => answer,
            Err(why) => {
                trouble.get_or_insert(why);
                continue;
            }
        };
        let Some(body) = answer.body.filter(|body| answer.status.is_success() && body.is_object()) else { continue };
        let mut found: Resource = read(&place, body)?;
        if !is_of(&found.resource, &server) {
            return Err(format!(
                "the metadata at {place} is about {}, not about {address}; no token is asked for",
                shorten(&found.resource)
            ));
        }
        if let Some(scopes) = &mut found.scopes_supported {
            scopes.retain(|scope| is_scope(scope));
        }
        return Ok(Some(found));
    }
    trouble.map_or(Ok(None), Err)
}

/// The metadata of an authorisation server, whose issuer must equal the expected one.
async fn issuer(fetcher: &Fetcher<'_>, issuer: &str) -> Result<AuthServer, String> {
    let url = fetcher.check(issuer)?;
    let mut last = "it publishes no metadata".to_owned();
    for place in issuer_places(&url) {
        let answer = match fetcher.get(&place).await {
            Ok(answer) => answer,
            Err(why) => {
                last = why;
                continue;
            }
        };
        let Some(body) = answer.body.filter(|body| answer.status.is_success() && body.is_object()) else { continue };
        let found: AuthServer = read(&place, body)?;
        if found.issuer != issuer {
            last = format!("the metadata at {place} is that of {}", shorten(&found.issuer));
            continue;
        }
        fetcher.check(&found.token_endpoint)?;
        return Ok(found);
    }
    Err(format!("the authorisation server {} cannot be used: {last}", shorten(issuer)))
}

fn read<T: serde::de::DeserializeOwned>(place: &str, body: Value) -> Result<T, String> {
    serde_json::from_value(body).map_err(|e| format!("the metadata at {place} cannot be read: {e}"))
}

/// Both: the server's own metadata, and that of the authorisation server to use. `wanted` is the one that is configured.
pub(super) async fn discover(
    fetcher: &Fetcher<'_>,
    address: &str,
    named: Option<&str>,
    wanted: Option<&str>,
) -> Result<(Resource, AuthServer), String> {
    let found = match (resource(fetcher, address, named).await?, wanted) {
        (Some(found), _) => found,
        (None, Some(issuer)) => Resource {
            resource: address.to_owned(),
            authorization_servers: vec![issuer.to_owned()],
            scopes_supported: None,
        },
        (None, None) => {
            return Err(
                "the server does not say who gives out tokens for it (no protected resource metadata)".to_owned()
            );
        }
    };
    let mut last = "the server names no authorisation server".to_owned();
    if let Some(wanted) = wanted {
        if !found.authorization_servers.iter().any(|server| server == wanted) {
            let named = found.authorization_servers.iter().take(MAX_SERVERS).map(|s| shorten(s));
            return Err(format!(
                "the server's tokens are given out by {}, not by the configured {wanted}",
                named.collect::<Vec<_>>().join(", ")
            ));
        }
        return Ok((found, issuer(fetcher, wanted).await?));
    }
    for server in found.authorization_servers.iter().take(MAX_SERVERS) {
        match issuer(fetcher, server).await {
            Ok(server) => return Ok((found, server)),
            Err(why) => last = why,
        }
    }
    Err(last)
}

impl AuthServer {
    /// Whether it takes part in PKCE with S256. One that does not say so is not used.
    pub(super) fn has_pkce(&self) -> bool {
        self.code_challenge_methods_supported.as_ref().is_some_and(|methods| methods.iter().any(|m| m == "S256"))
    }

    /// Whether it gives out refresh tokens to those who ask for `offline_access`.
    pub(super) fn has_offline_access(&self) -> bool {
        self.scopes_supported.as_ref().is_some_and(|scopes| scopes.iter().any(|s| s == super::OFFLINE_ACCESS))
    }

    /// Whether an answer that came by the browser is this server's, by RFC 9207: texts are compared as they are.
    pub(super) fn is_answer_of(&self, iss: Option<&str>) -> bool {
        match iss {
            Some(iss) => iss == self.issuer,
            None => !self.authorization_response_iss_parameter_supported,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn metadata_is_looked_for_in_the_order_of_the_specification() {
        let root = "https://x.org/.well-known/oauth-protected-resource";
        assert_eq!(resource_places(&url("https://x.org/a/mcp"), None), [format!("{root}/a/mcp"), root.to_owned()]);
        assert_eq!(resource_places(&url("https://x.org/"), None), [root]);
        assert_eq!(resource_places(&url("https://x.org/mcp"), Some("https://y.org/z")), ["https://y.org/z"]);
        assert_eq!(
            issuer_places(&url("https://x.org/tenant")),
            [
                "https://x.org/.well-known/oauth-authorization-server/tenant",
                "https://x.org/.well-known/openid-configuration/tenant",
                "https://x.org/tenant/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            issuer_places(&url("https://x.org")),
            ["https://x.org/.well-known/oauth-authorization-server", "https://x.org/.well-known/openid-configuration"]
        );
    }

    #[test]
    fn a_resource_is_the_servers_own_or_above_it() {
        let server = url("https://x.org/a/mcp");
        for good in
            ["https://x.org/a/mcp", "https://x.org/a", "https://x.org/", "https://x.org", "https://X.org:443/a/mcp/"]
        {
            assert!(is_of(good, &server), "{good}");
        }
        for bad in [
            "https://evil.org/a/mcp",
            "http://x.org/a/mcp",
            "https://x.org:8443/a",
            "https://x.org/a/mc",
            "https://x.org/a/mcp/more",
            "https://x.org/a#b",
            "",
        ] {
            assert!(!is_of(bad, &server), "{bad}");
        }
    }

    #[test]
    fn the_issuer_of_an_answer_is_compared_letter_by_letter() {
        let says = |supported| AuthServer {
            issuer: "https://x.org".into(),
            authorization_response_iss_parameter_supported: supported,
            ..AuthServer::default()
        };
        for supported in [true, false] {
            assert!(says(supported).is_answer_of(Some("https://x.org")));
            for other in ["https://x.org/", "https://X.org", "https://x.org:443", "https://evil.org", ""] {
                assert!(!says(supported).is_answer_of(Some(other)), "{other}");
            }
        }
        assert!(!says(true).is_answer_of(None), "it said that it would say");
        assert!(says(false).is_answer_of(None));
    }

    #[test]
    fn who_does_not_say_that_pkce_is_known_does_not_know_it() {
        let says = |methods: Option<Vec<String>>| AuthServer {
            code_challenge_methods_supported: methods,
            ..AuthServer::default()
        };
        assert!(says(Some(vec!["plain".into(), "S256".into()])).has_pkce());
        assert!(!says(Some(vec!["plain".into()])).has_pkce());
        assert!(!says(None).has_pkce());
    }
}
