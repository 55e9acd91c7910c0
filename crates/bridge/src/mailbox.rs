//! [`Mailbox`]: the messages of one session that Claude has not acknowledged, first in, first out. Limited in number
//! and bytes: the oldest are dropped, and the caller learns which.

use crate::frames::InboundMessage;
use std::collections::VecDeque;

/// How much a mailbox holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailboxLimits {
    /// Maximum number of messages.
    pub messages: usize,
    /// Bytes of content and description.
    pub bytes: usize,
}

impl Default for MailboxLimits {
    fn default() -> Self {
        Self { messages: 100, bytes: 4 << 20 }
    }
}

/// Messages that wait for Claude.
#[derive(Debug, Default)]
pub struct Mailbox {
    waiting: VecDeque<StoredMessage>,
    bytes: usize,
    limits: MailboxLimits,
}

#[derive(Debug)]
struct StoredMessage {
    message: InboundMessage,
    bytes: usize,
    is_sent: bool,
}

fn weight(message: &InboundMessage) -> usize {
    let meta: usize = message.meta.iter().map(|(key, value)| key.len() + value.to_string().len()).sum();
    message.request_id.len() + message.content.len() + meta
}

impl Mailbox {
    /// An empty mailbox.
    pub fn new(limits: MailboxLimits) -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, limits }
    }

    /// Adds a message at the end. Returns the ids of the messages that were dropped for it, oldest first.
    pub fn put(&mut self, message: InboundMessage) -> Vec<String> {
        let bytes = weight(&message);
        self.bytes += bytes;
        self.waiting.push_back(StoredMessage { message, bytes, is_sent: false });
        let mut dropped = Vec::new();
        while self.waiting.len() > self.limits.messages.max(1)
            || (self.bytes > self.limits.bytes && self.waiting.len() > 1)
        {
            let Some(oldest) = self.waiting.pop_front() else { break };
            self.bytes -= oldest.bytes;
            dropped.push(oldest.message.request_id);
        }
        dropped
    }

    /// The messages that have not been sent on this connection, in order; they are marked as sent.
    pub fn take_unsent(&mut self) -> Vec<InboundMessage> {
        let unsent = self.waiting.iter_mut().filter(|held| !held.is_sent);
        unsent
            .map(|held| {
                held.is_sent = true;
                held.message.clone()
            })
            .collect()
    }

    /// Marks unconfirmed messages as unsent, because the connection was lost: they are sent again on the next one.
    pub fn rewind(&mut self) {
        for held in &mut self.waiting {
            held.is_sent = false;
        }
    }

    /// Removes a message that Claude has received. Returns whether it was still in the mailbox.
    pub fn confirm(&mut self, request_id: &str) -> bool {
        let Some(at) = self.waiting.iter().position(|held| held.message.request_id == request_id) else { return false };
        if let Some(held) = self.waiting.remove(at) {
            self.bytes -= held.bytes;
        }
        true
    }

    /// Number of queued messages.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no message is queued.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Total size of the queued messages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    fn message(id: &str, bytes: usize) -> InboundMessage {
        InboundMessage { request_id: id.to_owned(), content: "x".repeat(bytes), meta: Map::new() }
    }
    fn ids(messages: &[InboundMessage]) -> Vec<&str> {
        messages.iter().map(|m| m.request_id.as_str()).collect()
    }

    #[toolyard_shows::shows("004-7-03")]
    #[test]
    fn the_oldest_give_way_and_are_named() {
        let mut by_number = Mailbox::new(MailboxLimits { messages: 2, bytes: 1000 });
        assert!(by_number.put(message("a", 1)).is_empty());
        assert!(by_number.put(message("b", 1)).is_empty());
        assert_eq!(by_number.put(message("c", 1)), ["a"]);
        assert_eq!(ids(&by_number.take_unsent()), ["b", "c"]);
        let mut by_bytes = Mailbox::new(MailboxLimits { messages: 10, bytes: 100 });
        by_bytes.put(message("a", 40));
        by_bytes.put(message("b", 40));
        assert_eq!(by_bytes.put(message("c", 90)), ["a", "b"]);
        assert_eq!(by_bytes.len(), 1);
        assert_eq!(by_bytes.bytes(), 91);
        assert_eq!(by_bytes.put(message("d", 500)), ["c"], "one that is too big alone is kept: it is the newest");
    }

    #[test]
    fn what_is_not_confirmed_is_sent_again_in_order_and_nothing_else() {
        let mut mailbox = Mailbox::default();
        for id in ["a", "b", "c"] {
            mailbox.put(message(id, 1));
        }
        assert_eq!(ids(&mailbox.take_unsent()), ["a", "b", "c"]);
        assert!(mailbox.take_unsent().is_empty());
        assert!(mailbox.confirm("b") && !mailbox.confirm("b"));
        mailbox.put(message("d", 1));
        assert_eq!(ids(&mailbox.take_unsent()), ["d"]);
        mailbox.rewind();
        assert_eq!(ids(&mailbox.take_unsent()), ["a", "c", "d"]);
        for id in ["a", "c", "d"] {
            mailbox.confirm(id);
        }
        assert!(mailbox.is_empty() && mailbox.bytes() == 0);
    }
}
