//! Counts the pings and pongs of a connection.

use crate::settings::{CONTROL_FRAMES_WITHIN, MAX_CONTROL_FRAMES};
use tokio::time::Instant;

/// The control frames of the present span of time.
pub(crate) struct ControlFrames {
    since: Instant,
    count: usize,
}

impl ControlFrames {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), count: 0 }
    }

    /// Counts a frame. False if the peer sends more than any client needs to.
    pub(crate) fn take(&mut self) -> bool {
        if self.since.elapsed() > CONTROL_FRAMES_WITHIN {
            *self = Self::new();
        }
        self.count += 1;
        self.count <= MAX_CONTROL_FRAMES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_ends_and_a_steady_peer_goes_on() {
        let mut frames = ControlFrames::new();
        assert!((0..MAX_CONTROL_FRAMES).all(|_| frames.take()));
        assert!(!frames.take());
        let mut frames = ControlFrames::new();
        for _ in 0..10 * MAX_CONTROL_FRAMES {
            assert!(frames.take());
            tokio::time::advance(CONTROL_FRAMES_WITHIN / 200).await;
        }
    }
}
