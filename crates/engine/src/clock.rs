//! Time and ids behind a trait, so that tests can control them.

use jiff::Timestamp;
use std::sync::Arc;
use uuid::Uuid;

/// The source of time and new ids.
pub trait Clock: Send + Sync + 'static {
    /// The current time, to the microsecond: a time that is read from a record must equal the one that was written.
    fn now(&self) -> Timestamp;
    /// A new UUID v7.
    fn new_id(&self) -> Uuid;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        to_micros(Timestamp::now())
    }
    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// The usual clock behind an `Arc`.
pub fn system_clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// Cuts a timestamp to whole microseconds.
pub(crate) fn to_micros(t: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(t.as_microsecond()).unwrap_or(t)
}
