//! The queue of frames for a plugin, and the functions that its door calls.

use crate::{Hub, hub::lock};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::mpsc;
use toolyard_bridge::{frames::close, server::ConnectionId};

/// How many bytes may wait for one plugin; a plugin with more is considered stuck.
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// An element of a plugin's queue.
#[derive(Debug)]
pub enum BridgeOut {
    /// A frame.
    Frame {
        /// Its text.
        text: String,
        /// The receipt to report when the frame has been written.
        receipt: Option<String>,
    },
    /// Closes the connection with a code and a reason.
    Close(u16, &'static str),
}

/// The queue of one plugin.
#[derive(Clone)]
pub(super) struct Queue {
    sender: mpsc::UnboundedSender<BridgeOut>,
    bytes: Arc<AtomicUsize>,
}

impl Queue {
    pub(super) fn put(&self, out: BridgeOut) {
        let out = match out {
            BridgeOut::Frame { text, receipt } => {
                let waiting = self.bytes.fetch_add(text.len(), Ordering::AcqRel) + text.len();
                match waiting > MAX_QUEUED_BYTES {
                    true => BridgeOut::Close(close::SLOW, "the plugin does not read"),
                    false => BridgeOut::Frame { text, receipt },
                }
            }
            close => close,
        };
        if self.sender.send(out).is_err() {
            tracing::debug!("a frame for a disconnected plugin was dropped");
        }
    }
}

/// The writing end of a plugin's queue.
pub struct BridgeOutgoing {
    /// What is to be written.
    pub receiver: mpsc::UnboundedReceiver<BridgeOut>,
    bytes: Arc<AtomicUsize>,
}

impl BridgeOutgoing {
    /// Reports that this number of bytes has been written.
    pub fn written(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl Hub {
    /// Registers a connected plugin. Returns its connection id and the queue to write from.
    pub fn bridge_connected(&self) -> (ConnectionId, BridgeOutgoing) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let bytes = Arc::<AtomicUsize>::default();
        let mut rules = lock(&self.inner.bridge.rules);
        let id = rules.connected(self.inner.bridge.now());
        lock(&self.inner.bridge.queues).insert(id, Queue { sender, bytes: bytes.clone() });
        (id, BridgeOutgoing { receiver, bytes })
    }

    /// Removes a disconnected plugin.
    pub fn bridge_disconnected(&self, id: ConnectionId) {
        lock(&self.inner.bridge.queues).remove(&id);
        self.with_bridge(|rules| ((), rules.disconnected(id)));
    }

    /// Whether a plugin has shown its session's secret.
    pub fn bridge_is_bound(&self, id: ConnectionId) -> bool {
        self.see_bridge(|rules| rules.is_bound(id))
    }

    /// Handles a text frame from a plugin.
    pub fn bridge_text(&self, id: ConnectionId, text: &str) {
        let now = self.inner.bridge.now();
        self.with_bridge(|rules| ((), rules.text(id, text, now)));
    }

    /// Lets the hub check its timeouts.
    pub fn bridge_tick(&self, id: ConnectionId) {
        let now = self.inner.bridge.now();
        self.with_bridge(|rules| ((), rules.tick(id, now)));
    }

    /// Reports that a frame with a receipt has been written.
    pub fn bridge_written(&self, id: ConnectionId, receipt: &str) {
        self.with_bridge(|rules| ((), rules.written(id, receipt)));
    }
}
