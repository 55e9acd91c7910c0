//! Credentials and the origin of a connection: comparison in constant time, lockout after wrong credentials, `Host`,
//! `Origin` and forwarding headers. Does not decide what a caller may do.

use crate::{
    gateway::Gateway,
    settings::{RateLimit, Settings},
};
use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use subtle::ConstantTimeEq;
use toolyard_engine::store::StoreError;
use toolyard_protocol::WorkspaceId;

/// Maximum number of addresses whose wrong credentials are remembered; beyond it, the oldest are forgotten.
const MAX_REMEMBERED: usize = 10_000;
/// Headers with which a proxy names its client.
const FORWARDING: [&str; 5] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

/// A credential that is compared often: hashed once.
pub(crate) struct Secret([u8; 32]);

impl Secret {
    pub(crate) fn new(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    /// Whether the presented token is this one, compared in constant time.
    pub(crate) fn is(&self, shown: &str) -> bool {
        let shown: [u8; 32] = Sha256::digest(shown.as_bytes()).into();
        self.0.ct_eq(&shown).into()
    }
}

/// What a shared token gives access to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    /// The workspace that the token names.
    pub(crate) workspace: WorkspaceId,
    /// Which token of the workspace it is; absent for the gateway's own.
    pub(crate) generation: Option<u64>,
}

impl Gateway {
    /// What a token gives access to: the gateway's own to the default workspace, another one to the workspace that it was
    /// made for. `None` for a wrong one.
    pub(crate) fn access(&self, shown: &str) -> Result<Option<Access>, StoreError> {
        if self.inner.secret.is(shown) {
            return Ok(Some(Access { workspace: WorkspaceId::default(), generation: None }));
        }
        let owner = self.service().workspaces().with_token(shown)?;
        Ok(owner.map(|owner| Access { workspace: owner.workspace, generation: Some(owner.generation) }))
    }
}

/// Where a connection comes from.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// The client's address: the peer's, or the one that a trusted proxy reports.
    pub(crate) address: IpAddr,
    /// From this machine itself, with no proxy between.
    pub(crate) is_local: bool,
    /// The browser origin, if there is one.
    pub(crate) browser: Option<String>,
    /// Whether the browser origin may connect.
    pub(crate) browser_allowed: bool,
    /// The origin of the pages that this gateway serves, as this client reaches it: `http://127.0.0.1:18789`.
    pub(crate) own: String,
    /// Whether nobody between the client and this gateway can read the traffic: TLS, or a connection inside this
    /// machine to a name of this machine.
    pub(crate) is_private: bool,
}

impl Origin {
    /// Whether the request comes from a page that this gateway served: the console, and no page of anybody else.
    pub(crate) fn is_own_page(&self) -> bool {
        self.browser.as_deref().is_some_and(|page| page.eq_ignore_ascii_case(&self.own))
    }

    /// The origin of another node's request, which its envelope vouches for.
    pub(crate) fn of_node(address: IpAddr) -> Self {
        let address = address.to_canonical();
        let (browser, own) = (None, String::new());
        Self { address, is_local: false, browser, browser_allowed: true, own, is_private: false }
    }

    /// Whether the client reaches this gateway over TLS.
    pub(crate) fn is_https(&self) -> bool {
        self.own.starts_with("https:")
    }
}

/// Why a connection is refused before its first frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OriginError {
    /// Forwarding headers from an address that is not a trusted proxy.
    Proxy,
    /// A `Host` that is not this gateway's: the page of a site whose DNS name points to this machine.
    Host,
}

/// Determines where a request comes from.
pub(crate) fn origin(
    settings: &Settings,
    peer: IpAddr,
    is_tls: bool,
    headers: &HeaderMap,
) -> Result<Origin, OriginError> {
    let peer = peer.to_canonical();
    let trusted = settings.trusted_proxies.contains(&peer);
    let forwarded = FORWARDING.iter().any(|name| headers.contains_key(*name));
    if forwarded && !trusted {
        return Err(OriginError::Proxy);
    }
    let host = headers.get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    if settings.loopback_only && !trusted && !names_this_machine(settings, host) {
        return Err(OriginError::Host);
    }
    let address = if forwarded { client_behind(settings, headers).ok_or(OriginError::Proxy)? } else { peer };
    let browser = headers.get(header::ORIGIN).map(|o| String::from_utf8_lossy(o.as_bytes()).into_owned());
    let browser_allowed = browser.as_deref().is_none_or(|origin| allowed_origin(settings, origin, host));
    let is_local = address.is_loopback() && !forwarded;
    let proxied_tls = trusted && headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    let is_https = is_tls || proxied_tls;
    let own = format!("{}://{host}", if is_https { "https" } else { "http" });
    let is_private = is_https || (is_local && is_loopback_name(host_name(host)));
    Ok(Origin { address, is_local, browser, browser_allowed, own, is_private })
}

fn is_loopback_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The last address in the chain that is not one of our proxies.
fn client_behind(settings: &Settings, headers: &HeaderMap) -> Option<IpAddr> {
    let chain: Vec<&str> = headers
        .get_all("x-forwarded-for")
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(str::trim)
        .collect();
    let mut last = None;
    for text in chain.iter().rev() {
        let address: IpAddr = text.parse().ok()?;
        last = Some(address.to_canonical());
        if !settings.trusted_proxies.contains(&address.to_canonical()) {
            break;
        }
    }
    last
}

fn names_this_machine(settings: &Settings, host: &str) -> bool {
    let name = host_name(host);
    name.is_empty()
        || is_loopback_name(name)
        || settings.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

/// `example.org:80` and `[::1]:80` without the port and the brackets. Any other text is returned unchanged and matches
/// no host.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inside, port)) if port.is_empty() || port.starts_with(':') => inside,
        Some(_) => host,
        None => host.rsplit_once(':').filter(|(name, _)| !name.contains(':')).map_or(host, |(name, _)| name),
    }
}

/// A page may connect when the gateway itself served it, or when it is on the list.
fn allowed_origin(settings: &Settings, origin: &str, host: &str) -> bool {
    let own = origin.split_once("://").is_some_and(|(_, rest)| !host.is_empty() && rest.eq_ignore_ascii_case(host));
    own || settings.allowed_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
}

/// Counts failed authentications by address.
pub(crate) struct AuthFailures {
    rules: RateLimit,
    addresses: Mutex<HashMap<IpAddr, AddressFailures>>,
    /// Counts that have not been sent to the other nodes of the cluster; `None` on a single machine.
    pending: Option<Mutex<HashMap<IpAddr, Pending>>>,
}

/// What happened at this node since the counts were last sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Wrong credentials.
    pub(crate) wrong: u32,
    /// The client sent the right credential, so its earlier wrong ones do not count any more.
    pub(crate) is_forgotten: bool,
}

struct AddressFailures {
    wrong: Vec<Instant>,
    locked_until: Option<Instant>,
}

impl AuthFailures {
    pub(crate) fn new(rules: RateLimit) -> Self {
        Self { rules, addresses: Mutex::default(), pending: None }
    }

    /// Also collects the counts that are sent to other nodes.
    pub(crate) fn shared(self) -> Self {
        Self { pending: Some(Mutex::default()), ..self }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.pending.is_some()
    }

    pub(crate) fn rules(&self) -> &RateLimit {
        &self.rules
    }

    /// What happened since the last call.
    pub(crate) fn take_pending(&self) -> HashMap<IpAddr, Pending> {
        let Some(pending) = &self.pending else { return HashMap::new() };
        std::mem::take(&mut *pending.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, address: IpAddr, change: impl FnOnce(&mut Pending)) {
        let Some(pending) = &self.pending else { return };
        let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.len() < MAX_REMEMBERED || pending.contains_key(&address) {
            change(pending.entry(address).or_default());
        }
    }

    /// Locks an address out that guessed at other nodes, too.
    pub(crate) fn lock_out(&self, address: IpAddr, how_long: Duration) {
        let until = Instant::now() + how_long;
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= MAX_REMEMBERED && !addresses.contains_key(&address) {
            return;
        }
        let tries =
            addresses.entry(address).or_insert_with(|| AddressFailures { wrong: Vec::new(), locked_until: None });
        if tries.locked_until.is_none_or(|known| known < until) {
            tries.locked_until = Some(until);
        }
    }

    fn exempt(&self, origin: &Origin) -> bool {
        self.rules.exempt_loopback && origin.is_local && origin.browser.is_none()
    }

    /// How long the address must wait, when it is locked out.
    pub(crate) fn locked(&self, origin: &Origin) -> Option<Duration> {
        if self.exempt(origin) {
            return None;
        }
        let now = Instant::now();
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let until = addresses.get(&origin.address)?.locked_until?;
        (until > now).then(|| until - now)
    }

    /// Notes a wrong credential.
    pub(crate) fn wrong(&self, origin: &Origin) {
        if self.exempt(origin) {
            return;
        }
        self.note(origin.address, |pending| pending.wrong = pending.wrong.saturating_add(1));
        let now = Instant::now();
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= MAX_REMEMBERED && !addresses.contains_key(&origin.address) {
            addresses.retain(|_, t| {
                t.locked_until.is_some_and(|until| until > now)
                    || t.wrong.last().is_some_and(|at| now.duration_since(*at) < self.rules.window)
            });
            if addresses.len() >= MAX_REMEMBERED {
                // With wrong credentials from very many addresses, forgetting some is better than unbounded memory.
                let some: Vec<IpAddr> = addresses.keys().take(MAX_REMEMBERED / 10).copied().collect();
                for address in some {
                    addresses.remove(&address);
                }
            }
        }
        let tries = addresses
            .entry(origin.address)
            .or_insert_with(|| AddressFailures { wrong: Vec::new(), locked_until: None });
        tries.wrong.retain(|at| now.duration_since(*at) < self.rules.window);
        tries.wrong.push(now);
        if tries.wrong.len() >= self.rules.max_attempts.max(1) as usize {
            tries.locked_until = Some(now + self.rules.lockout);
            tries.wrong.clear();
            tracing::warn!(address = %origin.address, "locked out after too many wrong credentials");
        }
    }

    /// Forgets an address that has shown the right credential.
    pub(crate) fn right(&self, origin: &Origin) {
        let known = self.addresses.lock().unwrap_or_else(PoisonError::into_inner).remove(&origin.address);
        if known.is_some() {
            self.note(origin.address, |pending| *pending = Pending { wrong: 0, is_forgotten: true });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| ((*k).parse().unwrap(), v.parse().unwrap())).collect()
    }

    #[test]
    fn secrets_are_compared_whole() {
        assert!(Secret::new("abc").is("abc"));
        assert!(!Secret::new("abc").is("abcd"));
        assert!(!Secret::new("").is("a"));
    }

    #[test]
    fn forwarding_headers_count_only_from_configured_proxies() {
        let mut settings = Settings::new("t");
        let peer: IpAddr = "127.0.0.1".parse().unwrap();
        let forwarded = headers(&[("host", "localhost"), ("x-forwarded-for", "203.0.113.9, 127.0.0.1")]);
        assert_eq!(origin(&settings, peer, false, &forwarded).unwrap_err(), OriginError::Proxy);
        settings.trusted_proxies = vec![peer];
        let found = origin(&settings, peer, false, &forwarded).unwrap();
        assert_eq!((found.address.to_string().as_str(), found.is_local), ("203.0.113.9", false));
        let forged = headers(&[("x-forwarded-for", "not an address")]);
        assert_eq!(origin(&settings, peer, false, &forged).unwrap_err(), OriginError::Proxy);
    }

    #[test]
    fn a_foreign_host_or_page_is_told_apart() {
        let settings = Settings::new("t");
        let peer: IpAddr = "127.0.0.1".parse().unwrap();
        let rebound = headers(&[("host", "evil.example:18789")]);
        assert_eq!(origin(&settings, peer, false, &rebound).unwrap_err(), OriginError::Host);
        let own = headers(&[("host", "127.0.0.1:18789"), ("origin", "http://127.0.0.1:18789")]);
        assert!(origin(&settings, peer, false, &own).unwrap().browser_allowed);
        let evil = headers(&[("host", "[::1]:18789"), ("origin", "https://evil.example")]);
        assert!(!origin(&settings, peer, false, &evil).unwrap().browser_allowed);
    }

    #[test]
    fn a_host_that_only_looks_like_this_machine_is_foreign() {
        let settings = Settings::new("t");
        let peer: IpAddr = "127.0.0.1".parse().unwrap();
        for own in ["localhost", "LOCALHOST:1", "127.0.0.1:1", "127.8.9.10", "[::1]", "[::1]:18789"] {
            assert!(origin(&settings, peer, false, &headers(&[("host", own)])).is_ok(), "{own}");
        }
        for foreign in [
            "localhost.evil.example",
            "localhost.",
            "evil.example#localhost",
            "localhost@evil.example",
            "evil@localhost",
            "[::1].evil.example",
            "[::1]evil.example:80",
            "[::1%25eth0]",
            "127.0.0.1.evil.example",
            "127.1",
            "0.0.0.0",
            "[::]",
            "2130706433",
            "10.0.0.1",
            "localhost:1:2",
        ] {
            let refused = origin(&settings, peer, false, &headers(&[("host", foreign)]));
            assert_eq!(refused.unwrap_err(), OriginError::Host, "{foreign}");
        }
        for page in ["null", "file://", "http://localhost.evil.example", "http://evil.example/127.0.0.1:1"] {
            let found = origin(&settings, peer, false, &headers(&[("host", "127.0.0.1:1"), ("origin", page)]));
            assert!(!found.unwrap().browser_allowed, "{page}");
        }
    }

    #[test]
    fn only_tls_and_this_machine_by_its_own_name_are_private_and_only_the_served_page_is_our_own() {
        let mut settings = Settings::new("t");
        settings.loopback_only = false;
        let (here, far): (IpAddr, IpAddr) = ("127.0.0.1".parse().unwrap(), "203.0.113.9".parse().unwrap());
        let seen =
            |peer, is_tls, pairs: &[(&'static str, &str)]| origin(&settings, peer, is_tls, &headers(pairs)).unwrap();
        assert!(seen(here, false, &[("host", "localhost:1")]).is_private);
        assert!(!seen(here, false, &[("host", "rebound.example:1")]).is_private, "a name that was made to point here");
        assert!(!seen(far, false, &[("host", "127.0.0.1:1")]).is_private);
        assert!(seen(far, true, &[("host", "yard.example")]).is_private);
        let page = |origin| seen(far, true, &[("host", "yard.example"), ("origin", origin)]).is_own_page();
        assert!(page("https://yard.example"));
        for foreign in ["http://yard.example", "https://yard.example:8443", "https://other.example", "null"] {
            assert!(!page(foreign), "{foreign}");
        }
        assert!(!seen(here, false, &[("host", "localhost:1")]).is_own_page(), "no origin at all");
        settings.trusted_proxies = vec![here];
        settings.allowed_origins = vec!["https://other.example".to_owned()];
        let behind = [("host", "yard.example"), ("x-forwarded-for", "203.0.113.9"), ("x-forwarded-proto", "https")];
        let found = origin(&settings, here, false, &headers(&behind)).unwrap();
        assert!(found.is_private && found.own == "https://yard.example");
        let other = [("host", "yard.example"), ("origin", "https://other.example")];
        assert!(!origin(&settings, far, true, &headers(&other)).unwrap().is_own_page(), "allowed elsewhere, not here");
    }

    #[test]
    fn ten_wrong_guesses_lock_an_address_out_and_no_other() {
        let guesses = AuthFailures::new(RateLimit::default());
        let from = |ip: &str, browser: Option<&str>| Origin {
            address: ip.parse().unwrap(),
            is_local: ip == "127.0.0.1",
            browser: browser.map(str::to_owned),
            browser_allowed: true,
            own: "http://localhost".to_owned(),
            is_private: true,
        };
        let far = from("203.0.113.9", None);
        for _ in 0..9 {
            guesses.wrong(&far);
        }
        assert!(guesses.locked(&far).is_none());
        guesses.wrong(&far);
        assert!(guesses.locked(&far).unwrap() > Duration::from_secs(240));
        assert!(guesses.locked(&from("203.0.113.10", None)).is_none());
        let (here, page) = (from("127.0.0.1", None), from("127.0.0.1", Some("http://localhost")));
        for _ in 0..20 {
            guesses.wrong(&here);
        }
        assert!(guesses.locked(&here).is_none(), "this machine is exempt");
        for _ in 0..10 {
            guesses.wrong(&page);
        }
        assert!(guesses.locked(&page).is_some(), "a browser never is");
    }
}
