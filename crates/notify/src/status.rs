//! The state of notifications, as methods and `doctor` show it.

use crate::{ChannelKind, Severity};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_protocol::Failure;

/// How notifications are doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotifyStatus {
    /// The channels.
    pub channels: Vec<ChannelStatus>,
    /// Quiet hours, if they are set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<QuietStatus>,
    /// Seconds during which a channel gathers further notifications.
    pub coalesce_seconds: u32,
    /// A question is sent if it is open for longer than this many seconds.
    pub asked_after_seconds: u32,
    /// Browsers with Web Push.
    pub subscriptions: usize,
    /// Whether this process sends notifications by itself, as `toolyard up` does.
    pub running: bool,
    /// Notices that came while too many were waiting, and were dropped.
    pub dropped: u64,
}

/// Quiet hours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuietStatus {
    /// When they begin.
    pub from: String,
    /// When they end.
    pub to: String,
    /// The time zone; absent where the machine's has no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Whether it is quiet now.
    pub now: bool,
    /// Whether critical questions are sent nevertheless.
    pub urgent: bool,
}

/// The state of a channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChannelStatus {
    /// Its name.
    pub name: String,
    /// The kind of the channel.
    pub kind: ChannelKindWord,
    /// The address, without its secret parts.
    pub to: String,
    /// The lowest severity that it receives.
    pub min_severity: Severity,
    /// Whether messages name the agent and the tool.
    pub details: bool,
    /// Messages that were delivered.
    pub sent: u64,
    /// Messages that could not be delivered.
    pub failed: u64,
    /// Notices that wait.
    pub waiting: usize,
    /// When a message was last delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sent_at: Option<Timestamp>,
    /// What went wrong last; absent when a message was delivered since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// Why it cannot work as it is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The word for a kind of channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelKindWord {
    /// Web Push.
    Push,
    /// ntfy.
    Ntfy,
    /// A plain webhook.
    Webhook,
    /// A webhook in Slack's form.
    Slack,
    /// The desktop.
    Desktop,
}

impl From<ChannelKind> for ChannelKindWord {
    fn from(kind: ChannelKind) -> Self {
        match kind {
            ChannelKind::Ntfy => Self::Ntfy,
            ChannelKind::Webhook => Self::Webhook,
            ChannelKind::Slack => Self::Slack,
            ChannelKind::Desktop => Self::Desktop,
        }
    }
}

/// What went wrong with a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastError {
    /// The time of the failure.
    pub at: Timestamp,
    /// The message, without secrets.
    pub message: String,
}

/// How the test of a channel went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TestResult {
    /// The channel.
    pub channel: String,
    /// The kind of the channel.
    pub kind: ChannelKindWord,
    /// Whether the message was accepted.
    pub ok: bool,
    /// How long it took.
    pub took_ms: u64,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}
