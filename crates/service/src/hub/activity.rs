//! [`LastActivity`]: the time at which a peer last sent a byte.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

/// When a peer was last heard. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LastActivity(Arc<AtomicU64>);

impl Default for LastActivity {
    /// A peer that was heard just now.
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(Self::now())))
    }
}

impl LastActivity {
    fn now() -> u64 {
        BEGINNING.elapsed().as_millis() as u64
    }

    /// The peer was heard just now.
    pub fn note(&self) {
        self.0.store(Self::now(), Ordering::Relaxed);
    }

    /// Whether nothing was heard since a moment.
    pub(crate) fn is_before(&self, moment: Instant) -> bool {
        let moment = moment.saturating_duration_since(*BEGINNING).as_millis() as u64;
        self.0.load(Ordering::Relaxed) < moment
    }
}
