//! The one way in which a message leaves this machine: a POST to an address whose host has been checked, without proxy and
//! without redirect.

use reqwest::{
    Client, StatusCode, Url,
    header::{HeaderMap, RETRY_AFTER},
    redirect,
};
use std::time::Duration;
use toolyard_import::fetch::{NetworkRules, settle_cryptography};

/// How long a connection, and a whole request, may take.
const CONNECT: Duration = Duration::from_secs(5);
const REQUEST: Duration = Duration::from_secs(15);
/// A server that asks for more time than this is not waited for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);
const AGENT: &str = concat!("toolyard/", env!("CARGO_PKG_VERSION"));

/// Why a message was not delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeliveryError {
    /// The reason, without secrets.
    pub(crate) message: String,
    /// What the owner can do about it.
    pub(crate) suggestion: Option<String>,
    pub(crate) retry: Retry,
}

/// Whether a failed delivery is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Later; not before the time that the server named, if it did.
    Later(Option<Duration>),
    /// A retry would fail as well.
    Never,
    /// The address does not exist any more.
    Gone,
}

impl DeliveryError {
    pub(crate) fn never(message: impl Into<String>) -> Self {
        Self { message: message.into(), suggestion: None, retry: Retry::Never }
    }

    pub(crate) fn later(message: impl Into<String>) -> Self {
        Self { message: message.into(), suggestion: None, retry: Retry::Later(None) }
    }

    pub(crate) fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }
}

/// Sends a body to an address.
pub(crate) async fn post(
    url: &Url,
    rules: &NetworkRules,
    headers: HeaderMap,
    body: Vec<u8>,
) -> Result<(), DeliveryError> {
    let host = url.host_str().ok_or_else(|| DeliveryError::never("the address names no host"))?;
    let port = url.port_or_known_default().unwrap_or(443);
    let addresses = rules.resolve(host, port).await.map_err(|error| {
        let is_private = matches!(error, toolyard_import::ImportError::NotPublic { .. });
        match is_private {
            true => DeliveryError::never(format!("{host} has a private address"))
                .suggest("Add the host to notify.privateHosts if messages may go there."),
            false => DeliveryError::later(error.to_string()),
        }
    })?;
    settle_cryptography();
    // Connects to the checked addresses: a second lookup, a proxy or a redirect could lead elsewhere.
    let client = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .resolve_to_addrs(host, &addresses)
        .connect_timeout(CONNECT)
        .timeout(REQUEST)
        .user_agent(AGENT)
        .build()
        .map_err(|_| DeliveryError::never("no HTTP client can be made on this system"))?;
    let sent = client.post(url.clone()).headers(headers).body(body).send().await;
    let response = sent.map_err(|error| {
        let why = if error.is_timeout() { "did not answer in time" } else { "could not be reached" };
        DeliveryError::later(format!("{host} {why}"))
    })?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Err(refused(host, status, wait.map(Duration::from_secs)))
}

fn refused(host: &str, status: StatusCode, wait: Option<Duration>) -> DeliveryError {
    let retry = match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Retry::Gone,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Retry::Later(wait),
        status if status.is_server_error() => Retry::Later(wait),
        _ => Retry::Never,
    };
    let retry = match wait {
        Some(wait) if wait > MAX_RETRY_AFTER => Retry::Never,
        _ => retry,
    };
    let error = DeliveryError { message: format!("{host} answered {}", status.as_u16()), suggestion: None, retry };
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => error.suggest("Check the token of the channel."),
        status if status.is_redirection() => error.suggest("Configure the address that it redirects to."),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_tried_again_and_what_will_not_is_given_up() {
        let retry = |status, wait: Option<u64>| refused("h", status, wait.map(Duration::from_secs)).retry;
        assert_eq!(retry(StatusCode::GONE, None), Retry::Gone);
        assert_eq!(retry(StatusCode::NOT_FOUND, None), Retry::Gone);
        assert_eq!(retry(StatusCode::BAD_REQUEST, None), Retry::Never);
        assert_eq!(retry(StatusCode::FOUND, None), Retry::Never);
        assert_eq!(retry(StatusCode::TOO_MANY_REQUESTS, Some(30)), Retry::Later(Some(Duration::from_secs(30))));
        assert_eq!(retry(StatusCode::BAD_GATEWAY, None), Retry::Later(None));
        assert_eq!(retry(StatusCode::SERVICE_UNAVAILABLE, Some(86_400)), Retry::Never);
    }

    #[tokio::test]
    async fn an_address_of_this_network_is_refused_unless_it_is_configured() {
        let url = Url::parse("https://127.0.0.1:9/x").unwrap();
        let error = post(&url, &NetworkRules::default(), HeaderMap::new(), Vec::new()).await.unwrap_err();
        assert_eq!(error.retry, Retry::Never);
        assert!(error.suggestion.unwrap().contains("notify.privateHosts"));
    }
}
