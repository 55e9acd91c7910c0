//! Events: what a connected client is sent without a request.

use serde::Serialize;
use serde_json::value::RawValue;

/// The content of an event; its sequence number belongs to the connection and is added when it is written.
#[derive(Debug)]
pub struct EventBody {
    /// The event's name.
    pub name: String,
    /// What it says.
    pub payload: Box<RawValue>,
    /// The versions of presence and health.
    pub versions: Option<Versions>,
    /// Whether it is left out for a connection that has much unread.
    pub drop_if_slow: bool,
}

/// The versions of presence and health.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Versions {
    /// Of the presence list.
    pub presence: u64,
    /// Of the health summary.
    pub health: u64,
}

impl EventBody {
    /// An event that is not dropped for slow connections.
    pub fn new(name: impl Into<String>, payload: &impl Serialize) -> Self {
        let name = name.into();
        let payload = serde_json::value::to_raw_value(payload).unwrap_or_else(|error| {
            tracing::error!(%error, event = name, "the payload of an event cannot be serialised");
            RawValue::NULL.to_owned()
        });
        Self { name, payload, versions: None, drop_if_slow: false }
    }

    /// The same, left out for a connection that has much unread.
    pub fn droppable(mut self) -> Self {
        self.drop_if_slow = true;
        self
    }

    /// The same with the versions of presence and health.
    pub fn with_versions(mut self, versions: Versions) -> Self {
        self.versions = Some(versions);
        self
    }

    /// Its approximate size in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.payload.get().len() + self.name.len() + 96
    }
}

/// The event `tick`, with the time at which it was sent.
#[derive(Serialize)]
pub(crate) struct TimestampEvent {
    pub(crate) ts: i64,
}
