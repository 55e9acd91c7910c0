//! Settings of the state that network clients share, and the limits of their queues.

use crate::ConfigAnswer;
use std::{net::IpAddr, sync::Arc, time::Duration};
use toolyard_bridge::mailbox::MailboxLimits;

/// Bytes waiting to be sent on one connection; beyond it the client is too slow and is closed.
pub const MAX_BUFFERED_BYTES: usize = 50 << 20;
/// With more unread bytes than this, droppable events are not sent.
pub(crate) const SLOW_BYTES: usize = 1 << 20;
/// A peer that sends nothing for this long after a ping is considered disconnected.
pub(crate) const PONG_WITHIN: Duration = Duration::from_secs(25);

/// Settings of the state that network clients share.
#[derive(Clone)]
pub struct HubSettings {
    /// The interval between two `tick` events.
    pub tick: Duration,
    /// The interval between two health events.
    pub health_every: Duration,
    /// Agents that policy knows, beside `main`.
    pub agents: Vec<String>,
    /// The profile that policy sets, for `tools.effective`.
    pub profile: Option<String>,
    /// The configuration, secrets hidden, for `config.get`: made when asked for, since it grows with the servers in it.
    pub config: Arc<dyn Fn() -> ConfigAnswer + Send + Sync>,
    /// The folder of the state, for `health`.
    pub state_path: String,
    /// Where the gateway listens, for presence.
    pub address: Option<IpAddr>,
    /// Where Claude Code's plugin connects, `ws://HOST:PORT/bridge`.
    pub bridge_url: Option<String>,
    /// How many messages for Claude wait in each session.
    pub bridge_buffer: MailboxLimits,
    /// Who may answer permission questions in words, in every session.
    pub bridge_senders: Vec<String>,
    /// The program that Claude Code starts as its plugin.
    pub program: String,
}
