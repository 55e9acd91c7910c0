//! Limits how many requests an upstream server may have open with Toolyard.
//!
//! Each request is kept in memory until it is answered and the server has read the answer. The server has a memory
//! limit, Toolyard does not: without this limit, a server that sends requests and never reads answers would fill
//! Toolyard's memory.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Questions of one server that wait for an answer.
const MAX_QUESTIONS: usize = 256;
/// Maximum total size of a server's open requests.
const MAX_QUESTION_BYTES: usize = 16 << 20;

/// The account of one connection's questions.
#[derive(Default)]
pub(crate) struct Questions {
    count: AtomicUsize,
    bytes: AtomicUsize,
}

/// A pending question. Its slot is released when this value is dropped.
pub(crate) struct Question {
    questions: Arc<Questions>,
    bytes: usize,
}

impl Questions {
    /// The reason for closing a connection when there is no room for a request.
    pub(crate) const TOO_MANY: &str = "it asked for more than Toolyard answers at once";

    /// Takes one more question of this size, if there is room for it.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<Question> {
        // Dropping the question releases its share of the account.
        let question = Question { questions: self.clone(), bytes };
        let count = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        let all = self.bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        (count <= MAX_QUESTIONS && (all <= MAX_QUESTION_BYTES || count == 1)).then_some(question)
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.questions.count.fetch_sub(1, Ordering::AcqRel);
        self.questions.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_bytes_are_bounded_and_places_come_back() {
        let questions = Arc::new(Questions::default());
        let held: Vec<Question> = (0..MAX_QUESTIONS).map(|_| questions.take(10).unwrap()).collect();
        assert!(questions.take(10).is_none());
        drop(held);
        let large = questions.take(MAX_QUESTION_BYTES - 1).unwrap();
        assert!(questions.take(2).is_none());
        drop(large);
        assert!(questions.take(2 * MAX_QUESTION_BYTES).is_some(), "one alone is bounded by the limit on messages");
        assert_eq!((questions.count.load(Ordering::Acquire), questions.bytes.load(Ordering::Acquire)), (0, 0));
    }
}
