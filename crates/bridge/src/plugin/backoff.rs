//! The delay before reconnecting: 1, 2, 4 … at most 30 seconds, each reduced by up to a quarter, so that many plugins
//! that lost one server do not reconnect at the same time.

/// The first pause.
const FIRST_MS: u64 = 1_000;
/// The longest delay.
pub(super) const MAX_MS: u64 = 30_000;

/// The pauses, one after another.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    next_ms: u64,
    random: u64,
}

impl Backoff {
    pub(super) fn new(seed: u64) -> Self {
        Self { next_ms: FIRST_MS, random: seed }
    }

    /// The next pause.
    pub(super) fn pause(&mut self) -> u64 {
        let whole = self.next_ms;
        self.next_ms = (whole * 2).min(MAX_MS);
        whole - self.draw() % (whole / 4)
    }

    /// The connection succeeded: start again with the shortest delay.
    pub(super) fn reset(&mut self) {
        self.next_ms = FIRST_MS;
    }

    /// The longest pause from now on.
    pub(super) fn exhaust(&mut self) {
        self.next_ms = MAX_MS;
    }

    /// SplitMix64: short, and good enough to spread pauses.
    pub(super) fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[toolyard_shows::shows("004-7-01")]
    #[test]
    fn pauses_double_up_to_thirty_seconds_and_begin_anew() {
        let mut backoff = Backoff::new(7);
        for whole in [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            let pause = backoff.pause();
            assert!(pause <= whole && pause > whole * 3 / 4, "{pause} for {whole}");
        }
        backoff.reset();
        assert!(backoff.pause() <= 1_000);
        assert_ne!(Backoff::new(1).pause(), Backoff::new(2).pause());
    }
}
