//! A client's outgoing queue, bounded in bytes, so that a client that does not read cannot fill memory.

use super::EventBody;
use crate::settings::{MAX_BUFFERED_BYTES, SLOW_BYTES};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// An element of a client's queue.
pub enum OutboxItem {
    /// A complete frame in the format of the client's door.
    Frame(String),
    /// An event; it is numbered when it is written.
    Event(Arc<EventBody>),
    /// A WebSocket ping.
    Ping,
    /// Closes the connection with a code and a reason.
    Close(u16, String),
}

/// A client's queue, bounded in bytes.
pub struct Outbox {
    sender: mpsc::UnboundedSender<OutboxItem>,
    queued: Arc<AtomicUsize>,
    /// Fires when the client's queue is full.
    pub overflow: CancellationToken,
}

/// The writing end's view of a queue.
pub struct Outgoing {
    /// What is to be written.
    pub receiver: mpsc::UnboundedReceiver<OutboxItem>,
    queued: Arc<AtomicUsize>,
}

impl Outbox {
    pub(super) fn new() -> (Self, Outgoing) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        (Self { sender, queued: queued.clone(), overflow: CancellationToken::new() }, Outgoing { receiver, queued })
    }

    /// Queues something. A client whose queue is full is closed.
    pub fn send(&self, out: OutboxItem) {
        let weight = out.weight();
        if self.queued.fetch_add(weight, Ordering::AcqRel) + weight > MAX_BUFFERED_BYTES {
            self.queued.fetch_sub(weight, Ordering::AcqRel);
            self.overflow.cancel();
            return;
        }
        if self.sender.send(out).is_err() {
            self.queued.fetch_sub(weight, Ordering::AcqRel);
        }
    }

    /// Queues an event. Returns false if it was dropped because too much is unread.
    pub fn event(&self, body: &Arc<EventBody>) -> bool {
        if body.drop_if_slow && self.queued.load(Ordering::Acquire) > SLOW_BYTES {
            return false;
        }
        self.send(OutboxItem::Event(body.clone()));
        true
    }
}

impl Outgoing {
    /// Reports that frames of this weight have been written.
    pub fn written(&self, weight: usize) {
        self.queued.fetch_sub(weight, Ordering::AcqRel);
    }
}

impl OutboxItem {
    /// Bytes it takes in the queue.
    pub fn weight(&self) -> usize {
        match self {
            Self::Frame(text) => text.len(),
            Self::Event(body) => body.weight(),
            Self::Ping => 8,
            Self::Close(_, reason) => reason.len() + 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_queue_that_is_not_read_overflows_and_drops_what_can_be_missed() {
        let (outbox, _outgoing) = Outbox::new();
        let tick = Arc::new(EventBody::new("tick", &json!({})).droppable());
        assert!(outbox.event(&tick));
        for _ in 0..2 {
            outbox.send(OutboxItem::Frame("x".repeat(SLOW_BYTES)));
        }
        assert!(!outbox.event(&tick));
        for _ in 0..47 {
            outbox.send(OutboxItem::Frame("x".repeat(1 << 20)));
        }
        assert!(!outbox.overflow.is_cancelled());
        for _ in 0..3 {
            outbox.send(OutboxItem::Frame("x".repeat(1 << 20)));
        }
        assert!(outbox.overflow.is_cancelled());
    }
}
