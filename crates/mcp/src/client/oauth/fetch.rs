//! Requests to addresses that an untrusted server named: which addresses are allowed, and limits on time and size.

use super::super::http::HttpClient;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::Value;
use std::{net::IpAddr, time::Duration};
use url::{Host, Url};

/// The longest answer that is read.
const MAX_ANSWER: usize = 256 << 10;
/// How long one request may take, with its answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Redirects that are followed, all of them within one origin.
const MAX_REDIRECTS: usize = 3;
/// An address longer than this is not used.
const MAX_URL: usize = 4096;

/// Fetches on behalf of one upstream server.
pub(super) struct Fetcher<'a> {
    client: &'a HttpClient,
    /// The server's own address.
    server: Url,
}

/// A response: its status, and its body if that is JSON.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Option<Value>,
}

impl<'a> Fetcher<'a> {
    /// For the server at this address. Credentials go over https, or stay on this machine.
    pub(super) fn new(client: &'a HttpClient, server: &str) -> Result<Self, String> {
        let server = Url::parse(server).map_err(|e| format!("{server:?}: {e}"))?;
        if server.scheme() != "https" && !is_here(&server) {
            return Err("a server beyond this machine is authorised with over https only".to_owned());
        }
        Ok(Self { client, server })
    }

    /// Checks an address: it must use https, or http on this machine if the server itself is on this machine. An
    /// address of a private network is allowed only if the server has the same one.
    pub(super) fn check(&self, address: &str) -> Result<Url, String> {
        let refuse = |why: &str| Err(format!("the address {} is not used: {why}", shorten(address)));
        if address.len() > MAX_URL {
            return refuse("it is too long");
        }
        let url = match Url::parse(address) {
            Ok(url) => url,
            Err(error) => return refuse(&error.to_string()),
        };
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return refuse("it holds a name, a password or a fragment");
        }
        let here = is_here(&url);
        match url.scheme() {
            "https" => {}
            "http" if here => {}
            _ => return refuse("it is not https"),
        }
        if here && !is_here(&self.server) {
            return refuse("a server elsewhere does not choose addresses on this machine");
        }
        if !here && is_private(&url) && url.host() != self.server.host() {
            return refuse("it is in a private network, and the server is not at the same address");
        }
        Ok(url)
    }

    pub(super) async fn get(&self, address: &str) -> Result<Answer, String> {
        let mut url = self.check(address)?;
        for _ in 0..=MAX_REDIRECTS {
            let (answer, onward) = self.exchange(Method::GET, &url, HeaderMap::new(), Bytes::new()).await?;
            let Some(onward) = onward else { return Ok(answer) };
            let next = url.join(&onward).map_err(|e| format!("{url} points to nowhere: {e}"))?;
            if next.origin() != url.origin() {
                return Err(format!("{url} points elsewhere, to {}; that is not followed", shorten(next.as_str())));
            }
            url = self.check(next.as_str())?;
        }
        Err(format!("{url} points on and on"))
    }

    pub(super) async fn post(
        &self,
        address: &str,
        kind: &'static str,
        authorization: Option<HeaderValue>,
        body: String,
    ) -> Result<Answer, String> {
        let url = self.check(address)?;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Some(mut value) = authorization {
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        // What is posted is secret: it is never sent on to where an answer points.
        let (answer, onward) = self.exchange(Method::POST, &url, headers, body.into()).await?;
        if onward.is_some() { Err(format!("{url} points elsewhere; that is not followed")) } else { Ok(answer) }
    }

    async fn exchange(
        &self,
        method: Method,
        url: &Url,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<(Answer, Option<String>), String> {
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = url.as_str().parse().map_err(|e| format!("{url}: {e}"))?;
        *request.headers_mut() = headers;
        let exchanged = async {
            let response = self
                .client
                .request(request)
                .await
                .map_err(|e| format!("{url} cannot be reached: {}", super::super::http::deepest(&e)))?;
            let status = response.status();
            let onward = response.headers().get(header::LOCATION).and_then(|v| v.to_str().ok()).map(str::to_owned);
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|e| format!("the answer of {url} cannot be read: {e}"))?.to_bytes();
            let onward = onward.filter(|_| status.is_redirection());
            Ok((Answer { status, body: serde_json::from_slice(&body).ok() }, onward))
        };
        match tokio::time::timeout(ANSWER_WITHIN, exchanged).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("{url} did not answer within {} s", ANSWER_WITHIN.as_secs())),
        }
    }
}

/// Whether an address is on this machine.
pub(super) fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

fn is_private(url: &Url) -> bool {
    let ip = match url.host() {
        Some(Host::Ipv4(ip)) => IpAddr::V4(ip),
        Some(Host::Ipv6(ip)) => ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4),
        _ => return false,
    };
    match ip {
        IpAddr::V4(ip) => {
            let shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
            ip.is_private()
                || ip.is_link_local()
                || ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_broadcast()
                || shared
        }
        IpAddr::V6(ip) => {
            let first = ip.segments()[0];
            ip.is_loopback() || ip.is_unspecified() || first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80
        }
    }
}

/// Text of another program, shortened to one line.
pub(super) fn shorten(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(server: &str, address: &str) -> bool {
        let client = super::super::super::http::client().unwrap();
        Fetcher::new(&client, server).unwrap().check(address).is_ok()
    }

    #[test]
    fn a_server_elsewhere_cannot_send_us_into_this_machine_or_its_network() {
        let far = "https://mcp.example.org/mcp";
        assert!(allowed(far, "https://login.example.org/x"));
        for bad in [
            "http://login.example.org/x",
            "http://127.0.0.1:8080/x",
            "https://localhost/x",
            "https://a.localhost/x",
            "https://[::1]/x",
            "https://10.0.0.1/x",
            "https://169.254.169.254/latest",
            "https://[::ffff:10.0.0.1]/x",
            "https://[fd00::1]/x",
            "https://100.64.0.1/x",
            "https://0.0.0.0/x",
            "https://user:pass@login.example.org/x",
            "https://login.example.org/x#y",
            "javascript:alert(1)",
            "file:///etc/passwd",
            "no address",
        ] {
            assert!(!allowed(far, bad), "{bad}");
        }
        assert!(!allowed(far, &format!("https://x/{}", "y".repeat(MAX_URL))));
    }

    #[test]
    fn what_is_here_may_stay_here() {
        assert!(allowed("http://127.0.0.1:1/mcp", "http://localhost:2/x"));
        assert!(allowed("http://localhost:1/mcp", "https://login.example.org/x"));
        assert!(allowed("https://10.0.0.7/mcp", "https://10.0.0.7:9/x"));
        assert!(!allowed("https://10.0.0.7/mcp", "https://10.0.0.8/x"));
        let client = super::super::super::http::client().unwrap();
        assert!(Fetcher::new(&client, "http://mcp.example.org/mcp").is_err(), "no credentials over http");
    }
}
