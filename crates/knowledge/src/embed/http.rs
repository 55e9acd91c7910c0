//! Requests to embedding servers: one client, no proxies, no redirects, retries for temporary failures, and our own
//! error messages.

use super::EmbedError;
use reqwest::{Client, StatusCode, Url};
use serde_json::Value;
use std::{net::IpAddr, time::Duration};
use tokio_rustls::rustls::crypto::ring;
use toolyard_protocol::cause_chain;

/// Connect timeout.
const CONNECT: Duration = Duration::from_secs(3);
/// Timeout of a probe.
pub(super) const PROBE: Duration = Duration::from_secs(2);
/// Maximum number of attempts of a request.
const TRIES: u32 = 3;
/// Delay before the second attempt; it grows fourfold with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Maximum size of a response. 1,024 vectors of 16,384 numbers as text would be larger, but such a request is never
/// made.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// An embedding server.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) service: &'static str,
    base: Url,
    client: Client,
    key: Option<String>,
}

/// The result of a request.
pub(super) enum HttpOutcome {
    Ok(Value),
    /// The status and the server's message, which is inspected but not passed on.
    Refused(StatusCode, String),
    /// A success status with an unusable body, and our own description of the problem.
    Unusable(&'static str),
}

/// Omits the key and any password in the URL.
impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("service", &self.service).field("url", &self.url()).finish_non_exhaustive()
    }
}

impl Server {
    pub(super) fn new(
        service: &'static str,
        url: &str,
        allow_remote: bool,
        timeout: Duration,
        key: Option<String>,
    ) -> Result<Self, EmbedError> {
        let mut base = Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some())
            // The error does not repeat the URL, which may contain a password.
            .ok_or_else(|| EmbedError::NotAllowed("knowledge.embedding.url is no http address".to_owned()))?;
        if !base.path().ends_with('/') {
            let path = format!("{}/", base.path());
            base.set_path(&path);
        }
        if !allow_remote && !is_loopback(&base) {
            return Err(EmbedError::NotAllowed(format!(
                "{} is not on this machine; set knowledge.embedding.allowRemote to send notes there",
                base.host_str().unwrap_or_default()
            )));
        }
        // The client uses the process-wide cryptography provider; an existing one is kept.
        drop(ring::default_provider().install_default());
        // Notes are private, so neither a proxy nor a redirect may send them elsewhere.
        let mut builder = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .timeout(timeout);
        if base.scheme() == "http" {
            // Plain HTTP needs no certificates, and loading the system's certificates would take a large part of a
            // short command's time.
            builder = builder.tls_certs_only([]);
        }
        let client = builder
            .build()
            .map_err(|_| EmbedError::NotAllowed("no HTTP client can be made on this system".to_owned()))?;
        Ok(Self { service, base, client, key })
    }

    pub(super) fn is_local(&self) -> bool {
        is_loopback(&self.base)
    }

    pub(super) fn url(&self) -> String {
        // Everything before the host and after the path is hidden, because it may contain keys.
        let mut shown = self.base.clone();
        shown.set_query(None);
        shown.set_fragment(None);
        // The calls fail only for a URL that cannot have credentials, so there is nothing to hide.
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        shown.as_str().trim_end_matches('/').to_owned()
    }

    pub(super) fn unreachable(&self, causes: Option<String>) -> EmbedError {
        EmbedError::Unreachable { service: self.service, url: self.url(), causes }
    }

    pub(super) fn refused(&self, reason: impl Into<String>) -> EmbedError {
        EmbedError::Refused { service: self.service, reason: reason.into() }
    }

    pub(super) async fn get(&self, path: &str, limit: Duration) -> Result<HttpOutcome, EmbedError> {
        self.once(path, None, Some(limit)).await.map_err(|causes| self.unreachable(causes))
    }

    /// Sends a request, with retries after temporary failures: no response, too many requests, server errors.
    pub(super) async fn post(&self, path: &str, body: &Value, patient: bool) -> Result<HttpOutcome, EmbedError> {
        let mut pause = FIRST_PAUSE;
        let tries = if patient { TRIES } else { 1 };
        for attempt in 1..=tries {
            match self.once(path, Some(body), None).await {
                Ok(HttpOutcome::Refused(status, _)) if attempt < tries && may_pass(status) => {}
                Err(_) if attempt < tries => {}
                Ok(answer) => return Ok(answer),
                Err(causes) => return Err(self.unreachable(causes)),
            }
            tokio::time::sleep(pause).await;
            pause *= 4;
        }
        Err(self.unreachable(None))
    }

    /// Sends one request; the error contains the causes, for logs.
    async fn once(
        &self,
        path: &str,
        body: Option<&Value>,
        limit: Option<Duration>,
    ) -> Result<HttpOutcome, Option<String>> {
        // The URL is removed from the error, because it may contain a key.
        let causes = |error: reqwest::Error| cause_chain(&error.without_url(), "");
        let url = self.base.join(path).map_err(|error| Some(error.to_string()))?;
        let mut request = match body {
            Some(body) => self.client.post(url).json(body),
            None => self.client.get(url),
        };
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        if let Some(limit) = limit {
            request = request.timeout(limit);
        }
        let mut response = request.send().await.map_err(causes)?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(causes)? {
            if bytes.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Ok(HttpOutcome::Unusable("its answer is too large"));
            }
            bytes.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return Ok(match serde_json::from_slice(&bytes) {
                Ok(value) => HttpOutcome::Ok(value),
                Err(_) => HttpOutcome::Unusable("its answer is no JSON"),
            });
        }
        // The body of an error may be anything; only a JSON body has a message to look at.
        let body = serde_json::from_slice::<Value>(&bytes).unwrap_or(Value::Null);
        let message = body["error"].as_str().or_else(|| body["error"]["message"].as_str()).unwrap_or_default();
        Ok(HttpOutcome::Refused(status, message.to_lowercase()))
    }
}

fn may_pass(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The numbers of a JSON array; `None` when an element is not a number.
pub(super) fn numbers(value: &Value) -> Option<Vec<f32>> {
    let list = value.as_array().filter(|list| !list.is_empty() && list.len() <= super::MAX_DIMENSIONS)?;
    list.iter().map(|number| number.as_f64().map(|n| n as f32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_unless_allowed() {
        let server = |url: &str, remote: bool| Server::new("x", url, remote, Duration::from_secs(1), None);
        for local in ["http://127.0.0.1:1", "http://localhost:2/v1", "http://[::1]:3/"] {
            assert!(server(local, false).is_ok(), "{local}");
        }
        for remote in ["http://10.0.0.1", "https://api.example.org/v1", "http://127.0.0.1.example.org"] {
            assert!(matches!(server(remote, false), Err(EmbedError::NotAllowed(_))), "{remote}");
            assert!(!server(remote, true).unwrap().is_local());
        }
        assert!(matches!(server("file:///etc/passwd", true), Err(EmbedError::NotAllowed(_))));
    }

    #[test]
    fn no_error_repeats_what_may_be_a_password() {
        let server = |url: &str| Server::new("x", url, false, Duration::from_secs(1), Some("secret".to_owned()));
        for url in ["http://user:secret@localhost:5/v1/", "http://localhost:5/v1?api-key=secret#secret"] {
            let server = server(url).unwrap();
            assert_eq!(server.unreachable(None).to_string(), "x at http://localhost:5/v1 does not answer");
            assert!(!format!("{server:?}").contains("secret"));
        }
        for url in ["user:secret@localhost", "htp://user:secret@localhost", "https://user:secret@example.org/secret"] {
            let error = server(url).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
