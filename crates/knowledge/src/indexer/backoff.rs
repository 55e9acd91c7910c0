//! [`Backoff`]: growing delays between attempts that did not help.

use std::time::Duration;
use tokio::time::Instant;

/// Maximum delay between two attempts.
const LONGEST: Duration = Duration::from_secs(3_600);

/// When to try again. The delay doubles with every attempt until one succeeds.
pub(crate) struct Backoff {
    first: Duration,
    pause: Duration,
    next: Option<Instant>,
}

impl Backoff {
    /// The first attempt is due at once, the second after twice `first`.
    pub(crate) fn new(first: Duration) -> Self {
        Self { first, pause: first, next: None }
    }

    /// Whether the next attempt is due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// Records an attempt.
    pub(crate) fn tried(&mut self, now: Instant) {
        self.pause = (self.pause * 2).min(LONGEST);
        self.next = Some(now + self.pause);
    }

    /// Resets the delay after a success, or when no attempt is needed any more.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_help_is_tried_later_and_later() {
        let mut backoff = Backoff::new(Duration::from_secs(30));
        let start = Instant::now();
        let mut tried = Vec::new();
        for seconds in (0..6 * 3_600).step_by(30) {
            let now = start + Duration::from_secs(seconds);
            if backoff.is_due(now) {
                backoff.tried(now);
                tried.push(seconds);
            }
        }
        assert_eq!(tried[..5], [0, 60, 180, 420, 900]);
        assert!(tried.windows(2).all(|pair| pair[1] - pair[0] <= LONGEST.as_secs()), "but not never");
        backoff.reset();
        assert!(backoff.is_due(start));
    }
}
