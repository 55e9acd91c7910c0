//! Notifications: tells a person who is not looking that a question waits, a plan failed, or a server is broken.
//!
//! [`Notifier`] takes [`Notice`]s, decides with [`NotifyConfig`] which channels are told and when, and delivers messages by
//! Web Push, ntfy, webhooks or the desktop. A source never waits for a delivery: queues are bounded, and what does not fit is
//! counted and logged. A message carries a link and at most a link with which the question can be denied once; nothing that a
//! third party receives can allow a call.
//!
//! *Does not know* approvals, runs, browsers or HTTP servers: [`NotifyHost`] is what it asks of the process around it.

mod channel;
mod config;
mod deliver;
mod message;
mod notice;
mod notifier;
mod outgoing;
pub mod push;
mod quiet;
mod schedule;
mod status;

pub use config::{ChannelConfig, ChannelKind, NotifyConfig, PushConfig, QuietConfig, Severity};
pub use deliver::Timing;
pub use notice::{Notice, Subject};
pub use notifier::{Notifier, NotifyHost, NotifyParts};
pub use push::{PushSubscription, SubscriptionKeys, VapidKey};
pub use status::{ChannelKindWord, ChannelStatus, LastError, NotifyStatus, QuietStatus, TestResult};

/// The name of the channel for all browsers with Web Push.
pub const PUSH_CHANNEL: &str = "push";
