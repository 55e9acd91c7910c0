//! Delivers the messages of one channel, in order, with a limited number of retries.

use crate::{
    ChannelConfig, Notice, NotifyConfig, PushConfig, PushSubscription, Severity, Subject, channel,
    message::Message,
    notifier::Shared,
    outgoing::{DeliveryError, Retry, post},
    push,
    status::ChannelKindWord,
};
use jiff::{SignedDuration, Timestamp};
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::Serialize;
use std::{sync::Arc, time::Duration};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How long a push service keeps a message for a browser that is not connected.
const MAX_TTL: SignedDuration = SignedDuration::from_hours(24);
/// The owner's address in a statement to a push service if none is configured.
const NO_CONTACT: &str = "mailto:toolyard@localhost";

/// The delays of deliveries; tests use shorter ones.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// A question is sent if it is still open after this time: most questions are answered sooner by a person at the
    /// console.
    pub asked_after: SignedDuration,
    /// Maximum number of attempts to deliver a message.
    pub attempts: u32,
    /// The pause before the second attempt; each further pause is four times as long.
    pub first_pause: Duration,
    /// The longest pause between two attempts.
    pub longest_pause: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            asked_after: SignedDuration::from_secs(2),
            attempts: 5,
            first_pause: Duration::from_secs(2),
            longest_pause: Duration::from_secs(120),
        }
    }
}

/// The destination of one channel.
#[derive(Clone)]
pub(crate) enum Destination {
    Push(PushConfig),
    Channel(ChannelConfig),
}

/// A configured channel, with what is needed to send by it.
#[derive(Clone)]
pub(crate) struct ChannelSender {
    pub(crate) name: String,
    pub(crate) destination: Destination,
    pub(crate) config: Arc<NotifyConfig>,
    pub(crate) shared: Arc<Shared>,
}

/// A recipient of a message.
enum Target {
    Channel,
    Browser(Box<PushSubscription>),
}

/// What a browser's service worker reads.
#[derive(Serialize)]
struct PushBody<'a> {
    title: &'a str,
    body: &'a str,
    url: &'a str,
    tag: &'a str,
}

impl ChannelSender {
    pub(crate) fn kind(&self) -> ChannelKindWord {
        match &self.destination {
            Destination::Push(_) => ChannelKindWord::Push,
            Destination::Channel(channel) => channel.kind.into(),
        }
    }

    pub(crate) fn min_severity(&self) -> Severity {
        match &self.destination {
            Destination::Push(push) => push.min_severity,
            Destination::Channel(channel) => channel.min_severity,
        }
    }

    pub(crate) fn with_details(&self) -> bool {
        match &self.destination {
            Destination::Push(push) => push.details,
            Destination::Channel(channel) => channel.details,
        }
    }

    /// Delivers batches until no more can come.
    pub(crate) async fn run(self, mut batches: mpsc::Receiver<Vec<Notice>>, stop: CancellationToken) {
        while let Some(batch) = batches.recv().await {
            tokio::select! {
                () = self.deliver(batch) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Delivers one batch, with retries. Notices that have become obsolete in the meantime are left out.
    async fn deliver(&self, mut batch: Vec<Notice>) {
        let timing = self.shared.timing;
        let mut targets = self.targets();
        let mut pause = timing.first_pause;
        let mut was_sent = false;
        let mut deny_page = None;
        for attempt in 1..=timing.attempts {
            batch.retain(|notice| self.shared.is_current(notice));
            if batch.is_empty() || targets.is_empty() {
                break;
            }
            let message = self.message(&batch, &mut deny_page).await;
            let (mut left, mut wait) = (Vec::new(), pause);
            for target in targets {
                let Err(error) = self.send(&message, &target).await else {
                    was_sent = true;
                    continue;
                };
                let is_last = attempt == timing.attempts;
                match (error.retry, &target) {
                    (Retry::Gone, Target::Browser(gone)) => self.forget(gone).await,
                    (Retry::Later(at_least), _) if !is_last => {
                        wait = wait.max(at_least.unwrap_or_default());
                        tracing::debug!(channel = self.name, attempt, why = error.message, "a notification is retried");
                        left.push(target);
                    }
                    _ => self.shared.failed(&self.name, &error),
                }
            }
            targets = left;
            if targets.is_empty() {
                break;
            }
            tokio::time::sleep(wait).await;
            pause = (pause * 4).min(timing.longest_pause);
        }
        if was_sent {
            self.shared.sent(&self.name);
        }
    }

    /// Sends one message at once and returns the result.
    pub(crate) async fn try_once(&self, notice: Notice) -> Result<(), DeliveryError> {
        let targets = self.targets();
        if targets.is_empty() {
            return Err(DeliveryError::never("no browser has switched notifications on")
                .suggest("Open the console, then Settings, Notifications."));
        }
        let message = self.message(&[notice], &mut None).await;
        let mut outcome = Err(DeliveryError::never("nothing was sent"));
        for target in targets {
            let sent = self.send(&message, &target).await;
            if let (Err(DeliveryError { retry: Retry::Gone, .. }), Target::Browser(gone)) = (&sent, &target) {
                self.forget(gone).await;
            }
            outcome = match (outcome, sent) {
                (Ok(()), _) => Ok(()),
                (Err(_), sent) => sent,
            };
        }
        match &outcome {
            Ok(()) => self.shared.sent(&self.name),
            Err(error) => self.shared.failed(&self.name, error),
        }
        outcome
    }

    fn targets(&self) -> Vec<Target> {
        match &self.destination {
            Destination::Channel(_) => vec![Target::Channel],
            Destination::Push(_) => {
                let all = self.shared.host.subscriptions();
                all.into_iter().map(|subscription| Target::Browser(Box::new(subscription))).collect()
            }
        }
    }

    /// A browser that has thrown its subscription away.
    async fn forget(&self, gone: &PushSubscription) {
        tracing::info!(device = gone.device, "a browser's push subscription has ended and is removed");
        self.shared.host.forget(gone).await;
    }

    /// The message about a batch. `deny_page` is the link to deny that an earlier attempt at this batch made: the same
    /// link is sent again, so that one question has one code a channel.
    async fn message(&self, batch: &[Notice], deny_page: &mut Option<String>) -> Message {
        let address = self.shared.host.address();
        let mut message = Message::of(batch, self.with_details(), address.as_deref());
        // The links are made last, so that one is stored only if it is sent.
        if let (Destination::Channel(channel), [one], Some(address)) = (&self.destination, batch, &address)
            && channel.deny_link
            && let Subject::Question { id, .. } = &one.subject
        {
            if deny_page.is_none() {
                match self.shared.host.deny_link(id, &self.name).await {
                    Ok(page) => *deny_page = Some(page),
                    Err(failure) => {
                        tracing::warn!(channel = self.name, error = failure.message, "a message has no link to deny");
                    }
                }
            }
            message.deny_url = deny_page.as_ref().map(|page| format!("{address}{page}"));
        }
        message
    }

    async fn send(&self, message: &Message, target: &Target) -> Result<(), DeliveryError> {
        let now = Timestamp::now();
        match (&self.destination, target) {
            (Destination::Channel(channel), _) => channel::send(channel, &self.config, message, now).await,
            (Destination::Push(push), Target::Browser(browser)) => self.push(push, message, browser, now).await,
            (Destination::Push(_), Target::Channel) => Err(DeliveryError::never("Web Push needs a browser")),
        }
    }

    async fn push(
        &self,
        config: &PushConfig,
        message: &Message,
        browser: &PushSubscription,
        now: Timestamp,
    ) -> Result<(), DeliveryError> {
        let endpoint = self.config.address(&browser.endpoint).map_err(DeliveryError::never)?;
        let (public, auth) =
            browser.keys.decode().ok_or_else(|| DeliveryError::never("the browser's keys are damaged"))?;
        let body = PushBody { title: &message.title, body: &message.text, url: &message.page, tag: &message.tag };
        let body = serde_json::to_vec(&body).map_err(|error| DeliveryError::never(error.to_string()))?;
        let sealed = push::encrypt(&body, &public, &auth).map_err(|error| DeliveryError::never(error.to_string()))?;
        let key = self.shared.host.key().map_err(|failure| DeliveryError::never(failure.message))?;
        let contact = config.contact.as_deref().unwrap_or(NO_CONTACT);
        let statement =
            key.authorization(&endpoint, contact, now).map_err(|error| DeliveryError::never(error.to_string()))?;
        let left =
            message.expires_at.map_or(MAX_TTL, |end| end.duration_since(now)).clamp(SignedDuration::ZERO, MAX_TTL);
        let urgency = if message.severity == Severity::Ask { "high" } else { "normal" };
        let mut headers = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
            (CONTENT_ENCODING, HeaderValue::from_static("aes128gcm")),
        ]);
        headers.insert("ttl", HeaderValue::from(left.as_secs().unsigned_abs()));
        headers.insert("urgency", HeaderValue::from_static(urgency));
        let mut statement = HeaderValue::from_str(&statement)
            .map_err(|_| DeliveryError::never("notify.push.contact cannot be sent"))?;
        statement.set_sensitive(true);
        headers.insert(AUTHORIZATION, statement);
        post(&endpoint, &self.config.rules(), headers, sealed.body).await
    }
}
