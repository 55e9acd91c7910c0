//! Fetches web resources with protection against server-side request forgery: every host is resolved first, all of its
//! addresses must be public, the connection goes to one of the checked addresses, and every redirect is checked the
//! same way.

use crate::{formats::Format, importer::ImportError, limits::Limits};
use reqwest::{Client, Url, header, redirect};
use std::{
    error::Error,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

/// Connect timeout.
const CONNECT: Duration = Duration::from_secs(10);
/// The `User-Agent` header.
const AGENT: &str = concat!("toolyard/", env!("CARGO_PKG_VERSION"));

/// Which hosts and addresses imports may connect to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkRules {
    /// Also allow private, loopback and link-local addresses.
    pub allow_private: bool,
    /// Hosts that may have private addresses, by exact name.
    pub private_hosts: Vec<String>,
}

impl NetworkRules {
    fn allows(&self, host: &str, address: IpAddr) -> bool {
        is_public(address)
            || self.allow_private
            || self.private_hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    }

    /// Resolves a host; fails unless all its addresses are allowed.
    pub async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, ImportError> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let found: Vec<SocketAddr> = match bare.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => tokio::net::lookup_host((bare, port))
                .await
                .map_err(|e| ImportError::Fetch(format!("host '{bare}' cannot be resolved: {e}")))?
                .collect(),
        };
        if let Some(refused) = found.iter().find(|address| !self.allows(bare, address.ip())) {
            return Err(ImportError::NotPublic { host: bare.to_owned(), address: refused.ip().to_string() });
        }
        if found.is_empty() {
            return Err(ImportError::Fetch(format!("host '{bare}' has no address")));
        }
        Ok(found)
    }
}

/// A fetched resource.
#[derive(Debug)]
pub struct Fetched {
    /// The URL after redirects.
    pub url: Url,
    /// The format by the `Content-Type` header, if it is a known one.
    pub format: Option<Format>,
    /// The response body.
    pub bytes: Vec<u8>,
}

/// Fetches a page or file and follows redirects.
pub async fn fetch(url: &str, rules: &NetworkRules, limits: &Limits) -> Result<Fetched, ImportError> {
    let time = Duration::from_millis(limits.fetch_ms);
    tokio::time::timeout(time, follow(url, rules, limits))
        .await
        .map_err(|_| ImportError::Fetch(format!("{url} did not answer within {} ms", limits.fetch_ms)))?
}

async fn follow(url: &str, rules: &NetworkRules, limits: &Limits) -> Result<Fetched, ImportError> {
    let mut url = Url::parse(url).map_err(|e| ImportError::Invalid(format!("{url} is no address: {e}")))?;
    for _ in 0..=limits.redirects {
        let response = get(&url, rules, limits).await?;
        if response.status().is_redirection() {
            let target = response.headers().get(header::LOCATION).and_then(|target| target.to_str().ok());
            let target = target.and_then(|target| url.join(target).ok());
            url = target.ok_or_else(|| ImportError::Fetch(format!("{url} redirects to nowhere")))?;
            continue;
        }
        if !response.status().is_success() {
            return Err(ImportError::Fetch(format!("{url} answered {}", response.status())));
        }
        let format = response
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .and_then(Format::of_media_type);
        let bytes = read(response, &url, limits.fetch_bytes).await?;
        return Ok(Fetched { url, format, bytes });
    }
    Err(ImportError::Fetch(format!("more than {} redirects", limits.redirects)))
}

/// Installs a default cryptography provider unless the process has one. HTTP clients use the process-wide provider and
/// panic when there is none.
pub fn settle_cryptography() {
    if tokio_rustls::rustls::crypto::ring::default_provider().install_default().is_err() {
        tracing::debug!("the process already has a cryptography provider");
    }
}

async fn get(url: &Url, rules: &NetworkRules, limits: &Limits) -> Result<reqwest::Response, ImportError> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(ImportError::Invalid(format!("{} addresses cannot be fetched", url.scheme())));
    }
    let host = url.host_str().ok_or_else(|| ImportError::Invalid(format!("{url} names no host")))?;
    let port = url.port_or_known_default().unwrap_or(443);
    let addresses = rules.resolve(host, port).await?;
    // The client connects to the checked addresses and does not resolve the name again, because a second lookup could
    // return other addresses. Proxies are disabled because a proxy would resolve the name itself.
    settle_cryptography();
    let client = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .resolve_to_addrs(host, &addresses)
        .connect_timeout(CONNECT)
        .timeout(Duration::from_millis(limits.fetch_ms))
        .user_agent(AGENT)
        .build()
        .map_err(|_| ImportError::Fetch("no HTTP client can be made on this system".to_owned()))?;
    let accepted = "text/html,application/xhtml+xml,text/markdown,text/plain;q=0.9,*/*;q=0.5";
    client.get(url.clone()).header(header::ACCEPT, accepted).send().await.map_err(|e| {
        let why = if e.is_timeout() { "did not answer in time" } else { "could not be reached" };
        unreachable(format!("{host} {why}"), e)
    })
}

fn unreachable(why: String, error: reqwest::Error) -> ImportError {
    // The message of a reqwest error contains little more than the URL; the causes are in its source chain.
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    let causes: Vec<String> = causes.map(ToString::to_string).collect();
    ImportError::Unreachable { why, causes: (!causes.is_empty()).then(|| causes.join("\ncaused by: ")) }
}

async fn read(mut response: reqwest::Response, url: &Url, most: u64) -> Result<Vec<u8>, ImportError> {
    let too_large = || ImportError::TooLarge(format!("{url} is larger than {most} bytes"));
    if response.content_length().is_some_and(|length| length > most) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    loop {
        let chunk = response.chunk().await.map_err(|e| unreachable(format!("{url} broke off"), e))?;
        let Some(chunk) = chunk else { return Ok(bytes) };
        if bytes.len() as u64 + chunk.len() as u64 > most {
            return Err(too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
}

/// Whether an address is globally reachable, and not local to this machine or network.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    !(v4.is_loopback()
        || v4.is_private()
        || v4.is_link_local()
        || v4.is_unspecified()
        || v4.is_multicast()
        || v4.is_broadcast()
        || v4.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (18..20).contains(&b)))
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    // An IPv6 address that embeds an IPv4 address is checked by the IPv4 address.
    if let Some(v4) = v6.to_ipv4_mapped() {
        return is_public_v4(v4);
    }
    let parts = v6.segments();
    let embedded = |high: u16, low: u16| is_public_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match parts {
        [0, 0, 0, 0, 0, 0, high, low] => !(high == 0 && low <= 1) && embedded(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x64, 0xff9b, 1, ..] => false,
        [0x2002, high, low, ..] => embedded(high, low),
        // Only 2000::/3 is allocated. Its documentation, Teredo and benchmarking ranges are not globally reachable.
        [first, second, ..] => {
            (0x2000..0x4000).contains(&first)
                && !(first == 0x2001 && (second == 0x0db8 || second < 0x0200))
                && !(first == 0x3fff && second < 0x1000)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "0.1.2.3",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "192.0.0.8",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001:db8::1",
            "ff02::1",
            "2001:0:1::",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:1.1.1.1", "2a00:1450::1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[tokio::test]
    async fn a_private_address_is_refused_in_any_spelling() {
        let rules = NetworkRules::default();
        for url in [
            "http://127.0.0.1/",
            "http://[::1]:8080/",
            "http://0x7f000001/",
            "http://2130706433/",
            "http://127.1/",
            "http://localhost/",
        ] {
            let refused = fetch(url, &rules, &Limits::default()).await;
            assert!(matches!(refused, Err(ImportError::NotPublic { .. })), "{url}: {refused:?}");
        }
        assert!(matches!(fetch("ftp://e.org/", &rules, &Limits::default()).await, Err(ImportError::Invalid(_))));
    }
}
