//! The table `[notify]`: which channels exist, which events each receives, and the quiet hours.

use crate::{PUSH_CHANNEL, quiet::QuietHours};
use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, path::PathBuf};
use toolyard_import::fetch::NetworkRules;

/// The most channels.
const MAX_CHANNELS: usize = 32;
/// The longest window in which messages are gathered, in seconds.
const MAX_COALESCE_SECONDS: u32 = 3600;
/// The longest name of a channel.
const MAX_NAME: usize = 32;

/// How much a notification matters. A channel receives notifications that are at least as severe as its `minSeverity`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A plan has finished.
    Info,
    /// A plan has failed, or an MCP server does not answer.
    Warn,
    /// Something waits for a person.
    #[default]
    Ask,
}

/// Notifications to a person who is not looking at the console. See docs/guide/notify.md.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NotifyConfig {
    /// Seconds after a message during which a channel combines further notifications into one message with a count; 0
    /// to 3600.
    #[schemars(range(max = 3600))]
    pub coalesce_seconds: u32,
    /// Hosts of channels and of Web Push that may have private addresses, by exact name, for example an ntfy server in
    /// the local network. Only these may be addressed with `http://`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub private_hosts: Vec<String>,
    /// Hours in which nothing is sent. Questions that are still open are sent when the quiet hours end.
    pub quiet: QuietConfig,
    /// Web Push to paired browsers.
    pub push: PushConfig,
    /// Channels by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<String, ChannelConfig>,
}

impl Default for NotifyConfig {
    fn default() -> Self {
        Self {
            coalesce_seconds: 10,
            private_hosts: Vec::new(),
            quiet: QuietConfig::default(),
            push: PushConfig::default(),
            channels: BTreeMap::new(),
        }
    }
}

/// Hours in which nothing is sent. They are on if `from` and `to` are set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct QuietConfig {
    /// The beginning of the quiet hours, for example `22:00`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The end of the quiet hours, for example `07:00`. A time before `from` is on the next day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The time zone, for example `Europe/Berlin`. Unset: that of this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Whether questions of severity `critical` are sent nevertheless.
    pub urgent: bool,
}

impl Default for QuietConfig {
    fn default() -> Self {
        Self { from: None, to: None, time_zone: None, urgent: true }
    }
}

/// Web Push to paired browsers that have switched it on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PushConfig {
    /// Whether browsers may subscribe and are sent messages.
    pub enabled: bool,
    /// The lowest severity that is sent: `info`, `warn` or `ask`.
    pub min_severity: Severity,
    /// Whether a message names the agent and the tool. The push service cannot read messages, but the lock screen of a
    /// phone shows them.
    pub details: bool,
    /// `mailto:` or `https://` address of the owner, which push services may use to report problems. Apple's push
    /// service requires a real address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contact: Option<String>,
}

impl Default for PushConfig {
    fn default() -> Self {
        Self { enabled: true, min_severity: Severity::Ask, details: false, contact: None }
    }
}

/// How a channel delivers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelKind {
    /// A topic of an ntfy server.
    #[default]
    Ntfy,
    /// A POST with a JSON object, signed if a secret is set.
    Webhook,
    /// An incoming webhook of Slack, or of what understands the same form.
    Slack,
    /// This machine's desktop, through `notify-send`.
    Desktop,
}

/// A channel.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ChannelConfig {
    /// `ntfy`, `webhook`, `slack` or `desktop`.
    pub kind: ChannelKind,
    /// Whether it is used.
    pub enabled: bool,
    /// The address; for ntfy, the address of the topic. `desktop` has none.
    // Anybody who knows the topic of an ntfy server or the path of a Slack webhook can use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "value"))]
    pub url: Option<String>,
    /// The lowest severity that is sent: `info`, `warn` or `ask`.
    pub min_severity: Severity,
    /// Whether a message names the agent and the tool. Otherwise it says only that something waits.
    pub details: bool,
    /// Whether a message about one question has a link with which it can be denied, once, after a confirmation.
    pub deny_link: bool,
    /// The access token of an ntfy server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "value"))]
    pub token: Option<String>,
    /// The variable of Toolyard's environment that holds the access token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "variable"))]
    pub token_env: Option<String>,
    /// The file that holds the access token; read for each message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "file"))]
    pub token_file: Option<PathBuf>,
    /// The secret with which a webhook is signed, in the header `toolyard-signature`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "value"))]
    pub secret: Option<String>,
    /// The variable of Toolyard's environment that holds the secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "variable"))]
    pub secret_env: Option<String>,
    /// The file that holds the secret; read for each message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "file"))]
    pub secret_file: Option<PathBuf>,
    /// The priority of messages that wait for a person, in ntfy's numbers: 1 to 5.
    #[schemars(range(min = 1, max = 5))]
    pub priority: u8,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        Self {
            kind: ChannelKind::Ntfy,
            enabled: true,
            url: None,
            min_severity: Severity::Ask,
            details: false,
            deny_link: false,
            token: None,
            token_env: None,
            token_file: None,
            secret: None,
            secret_env: None,
            secret_file: None,
            priority: 4,
        }
    }
}

impl fmt::Debug for ChannelConfig {
    /// Without what may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelConfig")
            .field("kind", &self.kind)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

impl NotifyConfig {
    /// Describes the problem without quoting values that may be secret.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn check(&self) -> Result<(), String> {
        if self.coalesce_seconds > MAX_COALESCE_SECONDS {
            return Err(format!("notify.coalesceSeconds must be 0 to {MAX_COALESCE_SECONDS}"));
        }
        if self.channels.len() > MAX_CHANNELS {
            return Err(format!("notify.channels has more than {MAX_CHANNELS} channels"));
        }
        QuietHours::read(&self.quiet).map_err(|why| format!("notify.quiet: {why}"))?;
        if let Some(contact) = &self.push.contact
            && !contact.starts_with("mailto:")
            && !contact.starts_with("https://")
        {
            return Err("notify.push.contact must begin with mailto: or https://".to_owned());
        }
        for (name, channel) in &self.channels {
            let is_name = !name.is_empty()
                && name.len() <= MAX_NAME
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
            if !is_name || name == PUSH_CHANNEL {
                return Err(format!(
                    "notify.channels: a name has 1 to {MAX_NAME} letters, digits, '-' or '_', and is not \"{PUSH_CHANNEL}\""
                ));
            }
            channel.check(self).map_err(|why| format!("notify.channels.{name}: {why}"))?;
        }
        Ok(())
    }

    /// Which hosts and addresses messages may be sent to.
    pub(crate) fn rules(&self) -> NetworkRules {
        NetworkRules { allow_private: false, private_hosts: self.private_hosts.clone() }
    }

    /// Reads the address of a channel or of a push service.
    ///
    /// # Errors
    /// A sentence that does not quote the address.
    pub(crate) fn address(&self, text: &str) -> Result<Url, String> {
        let url = Url::parse(text).map_err(|error| format!("the address cannot be read: {error}"))?;
        let host = url.host_str().ok_or_else(|| "the address names no host".to_owned())?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is_private = self.private_hosts.iter().any(|known| known.eq_ignore_ascii_case(bare));
        match url.scheme() {
            "https" => Ok(url),
            "http" if is_private => Ok(url),
            "http" => Err("the address must begin with https://, unless its host is in notify.privateHosts".to_owned()),
            _ => Err("the address must begin with https://".to_owned()),
        }
    }
}

impl ChannelConfig {
    fn check(&self, config: &NotifyConfig) -> Result<(), String> {
        if !(1..=5).contains(&self.priority) {
            return Err("priority must be 1 to 5".to_owned());
        }
        match (self.kind, &self.url) {
            (ChannelKind::Desktop, None) => {}
            (ChannelKind::Desktop, Some(_)) => return Err("a desktop has no url".to_owned()),
            (_, None) => return Err("url is missing".to_owned()),
            (_, Some(url)) => {
                let url = config.address(url)?;
                if self.kind == ChannelKind::Ntfy && url.path().trim_matches('/').is_empty() {
                    return Err("url must end with the topic, for example https://ntfy.example/my-topic".to_owned());
                }
            }
        }
        let sources = |all: [bool; 3]| all.into_iter().filter(|is_set| *is_set).count();
        let tokens = sources([self.token.is_some(), self.token_env.is_some(), self.token_file.is_some()]);
        let secrets = sources([self.secret.is_some(), self.secret_env.is_some(), self.secret_file.is_some()]);
        if tokens > 1 || secrets > 1 {
            return Err("set only one of the keys that end in Env and File and the key itself".to_owned());
        }
        if tokens > 0 && self.kind != ChannelKind::Ntfy {
            return Err("only ntfy takes a token".to_owned());
        }
        if secrets > 0 && self.kind != ChannelKind::Webhook {
            return Err("only webhook takes a secret".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(kind: ChannelKind, url: Option<&str>) -> ChannelConfig {
        ChannelConfig { kind, url: url.map(str::to_owned), ..ChannelConfig::default() }
    }

    fn with(channel: ChannelConfig) -> NotifyConfig {
        NotifyConfig { channels: [("phone".to_owned(), channel)].into(), ..NotifyConfig::default() }
    }

    #[test]
    fn a_wrong_setting_is_named_and_its_value_is_not() {
        let secret = |config: ChannelConfig| ChannelConfig { secret: Some("CANARY".to_owned()), ..config };
        for (config, why) in [
            (with(channel(ChannelKind::Ntfy, None)), "notify.channels.phone: url is missing"),
            (with(channel(ChannelKind::Ntfy, Some("http://CANARY.example/t"))), "must begin with https://"),
            (with(channel(ChannelKind::Ntfy, Some("https://ntfy.example/"))), "must end with the topic"),
            (with(channel(ChannelKind::Slack, Some("ftp://CANARY"))), "must begin with https://"),
            (with(channel(ChannelKind::Desktop, Some("https://x.example"))), "a desktop has no url"),
            (with(secret(channel(ChannelKind::Slack, Some("https://x.example/h")))), "only webhook takes a secret"),
            (NotifyConfig { coalesce_seconds: 3601, ..NotifyConfig::default() }, "notify.coalesceSeconds"),
        ] {
            let told = config.check().unwrap_err();
            assert!(told.contains(why) && !told.contains("CANARY"), "{told}");
        }
        let local = NotifyConfig {
            private_hosts: vec!["127.0.0.1".to_owned()],
            ..with(channel(ChannelKind::Webhook, Some("http://127.0.0.1:9/h")))
        };
        assert_eq!(local.check(), Ok(()));
    }

    #[test]
    fn what_is_secret_is_not_in_the_debug_text() {
        let config = ChannelConfig {
            url: Some("https://CANARY.example".to_owned()),
            token: Some("CANARY".to_owned()),
            ..ChannelConfig::default()
        };
        assert!(!format!("{:?}", with(config)).contains("CANARY"));
    }
}
