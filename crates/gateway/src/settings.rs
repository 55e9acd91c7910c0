//! The settings of the doors, and fixed limits.

use std::{net::IpAddr, sync::Arc, time::Duration};
use toolyard_service::{ConfigAnswer, HubSettings};

/// A frame before the handshake is done.
pub const MAX_PREAUTH_BYTES: usize = 64 << 10;
/// A frame afterwards.
pub const MAX_PAYLOAD_BYTES: usize = 25 << 20;
/// Time for the handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// Sockets of one address that have not shown a credential; beyond it the oldest of them is closed.
pub const MAX_UNPROVEN_PER_ADDRESS: usize = 256;
/// Sockets of all addresses that have not shown a credential; fewer where this process may open few files.
pub const MAX_UNPROVEN: usize = 4096 + 64;
/// An unproven connection is not closed to make room for another one before it is this old.
pub const YOUNG: Duration = Duration::from_millis(50);
/// Control frames (pings, pongs) that an unproven WebSocket may send: the answers to them are queued.
pub const MAX_UNPROVEN_CONTROL_FRAMES: usize = 16;
/// Control frames that a WebSocket may send within [`CONTROL_FRAMES_WITHIN`] once it has shown a credential. The answers are
/// queued inside the socket where no limit on what waits to be sent sees them.
pub const MAX_CONTROL_FRAMES: usize = 256;
/// The window for [`MAX_CONTROL_FRAMES`].
pub const CONTROL_FRAMES_WITHIN: Duration = Duration::from_secs(10);
/// WebSocket connections at once.
pub const MAX_CONNECTIONS: usize = 20_000;
/// Maximum number of requests in flight in the ordinary lane, over all connections.
pub const MAX_RUNNING_REQUESTS: usize = 1024;
/// Maximum number of requests in flight in the express lane (health, approvals, cancel), over all connections.
pub const MAX_EXPRESS_REQUESTS: usize = 512;
/// Requests at once that wait for a person's decision, over all connections.
pub const MAX_WAITING_FOR_PEOPLE: usize = 4096;
/// Slots of each lane that are kept for sources that hold few.
pub const RESERVED_SLOTS: usize = 1024;
/// How many slots of the reserve one source may hold.
pub const RESERVED_SLOTS_PER_SOURCE: usize = 4;
/// Requests waiting to start in the ordinary lane, over all connections.
pub const MAX_WAITING_REQUESTS: usize = 4096;
/// Bytes of requests waiting to start, over all connections.
pub const MAX_WAITING_BYTES: usize = 50 << 20;
/// Requests of one connection, running or waiting, in the ordinary and the waiting lane.
pub const MAX_REQUESTS_PER_CONNECTION: usize = 512;
/// Requests of one connection in the express lane.
pub const MAX_EXPRESS_PER_CONNECTION: usize = 64;
/// A write that makes no progress for this long means a client that does not read.
pub const WRITE_STALL: Duration = Duration::from_secs(60);
/// HTTP connections at once that have shown the credential and are not WebSockets.
pub const MAX_HTTP_CONNECTIONS: usize = 4096;
/// Bytes of HTTP bodies in memory, of one address.
pub const MAX_BODIES_BYTES_PER_ADDRESS: usize = 128 << 20;
/// Bytes of HTTP bodies in memory, over all addresses.
pub const MAX_BODIES_BYTES: usize = 256 << 20;
/// How long the rest of a refused request is read and discarded, so that the peer can read the refusal.
pub const LINGER: Duration = Duration::from_secs(1);
/// How much of it is discarded.
pub const MAX_LINGER_BYTES: usize = 8 << 20;
/// A TLS handshake takes at most this long.
pub const TLS_WITHIN: Duration = Duration::from_secs(10);
/// The head of an HTTP request must have come within this time.
pub const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// The head of an HTTP request.
pub const MAX_HTTP_HEAD: usize = 64 << 10;
/// The body of an HTTP request must have come within this time.
pub const BODY_WITHIN: Duration = Duration::from_secs(30);
/// The body of an HTTP request.
pub const MAX_HTTP_BODY: usize = 2 << 20;
/// The default interval between two ticks.
pub const TICK: Duration = Duration::from_secs(30);
/// The default interval between two health events.
pub const HEALTH_EVERY: Duration = Duration::from_secs(60);
/// How far a device's clock may be off.
pub const SIGNATURE_SKEW_MS: i64 = 120_000;

/// Rate limit for wrong credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// Number of wrong credentials from one address within the window after which it is locked out.
    pub max_attempts: u32,
    /// The length of the window.
    pub window: Duration,
    /// How long the lockout lasts.
    pub lockout: Duration,
    /// Whether connections from this machine are exempt (never those of a browser).
    pub exempt_loopback: bool,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self {
            max_attempts: 10,
            window: Duration::from_secs(60),
            lockout: Duration::from_secs(300),
            exempt_loopback: true,
        }
    }
}

/// What an operator can set.
#[derive(Clone)]
pub struct Settings {
    /// The shared credential.
    pub token: String,
    /// Whether the listener is on loopback only: then the `Host` header must name this machine.
    pub loopback_only: bool,
    /// Browser origins that may connect in addition to the gateway's own.
    pub allowed_origins: Vec<String>,
    /// Host names that clients may use in addition to this machine's.
    pub allowed_hosts: Vec<String>,
    /// Proxies whose forwarding headers are trusted.
    pub trusted_proxies: Vec<IpAddr>,
    /// Whether a client on another machine needs a paired device in addition to the token.
    pub require_device: bool,
    /// Rate limit for wrong credentials.
    pub rate_limit: RateLimit,
    /// How often `tick` comes.
    pub tick: Duration,
    /// How often the health event comes.
    pub health_every: Duration,
    /// Agents in the policy, in addition to `main`.
    pub agents: Vec<String>,
    /// The profile that policy sets, for `tools.effective`.
    pub profile: Option<String>,
    /// The path of the configuration file, for administrators.
    pub config_path: Option<String>,
    /// The configuration, secrets hidden, for `config.get`: made when asked for, since it grows with the servers in it.
    pub config: Arc<dyn Fn() -> ConfigAnswer + Send + Sync>,
    /// The path of the state, for `health`.
    pub state_path: String,
    /// Where the gateway listens, for presence.
    pub address: Option<IpAddr>,
    /// Where Claude Code's plugin connects, `ws://HOST:PORT/bridge`.
    pub bridge_url: Option<String>,
    /// How many messages for Claude wait in each session.
    pub bridge_buffer: toolyard_bridge::mailbox::MailboxLimits,
    /// Users who may answer permission questions in words, in every session.
    pub bridge_senders: Vec<String>,
    /// The program that Claude Code starts as its plugin.
    pub program: String,
}

impl Settings {
    /// Defaults with a credential.
    pub fn new(token: impl Into<String>) -> Self {
        Self {
            token: token.into(),
            loopback_only: true,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            require_device: true,
            rate_limit: RateLimit::default(),
            tick: TICK,
            health_every: HEALTH_EVERY,
            agents: Vec::new(),
            profile: None,
            config_path: None,
            config: Arc::new(ConfigAnswer::default),
            state_path: String::new(),
            address: None,
            bridge_url: None,
            bridge_buffer: toolyard_bridge::mailbox::MailboxLimits::default(),
            bridge_senders: Vec::new(),
            program: "toolyard".to_owned(),
        }
    }
}

impl Settings {
    /// The part of the settings that concerns the [`Hub`](toolyard_service::Hub).
    pub(crate) fn hub(&self) -> HubSettings {
        HubSettings {
            tick: self.tick,
            health_every: self.health_every,
            agents: self.agents.clone(),
            profile: self.profile.clone(),
            config: self.config.clone(),
            state_path: self.state_path.clone(),
            address: self.address,
            bridge_url: self.bridge_url.clone(),
            bridge_buffer: self.bridge_buffer,
            bridge_senders: self.bridge_senders.clone(),
            program: self.program.clone(),
        }
    }
}

impl std::fmt::Debug for Settings {
    /// Without the credential.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("loopback_only", &self.loopback_only).finish_non_exhaustive()
    }
}
