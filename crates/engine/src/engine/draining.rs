//! Draining: a node of a cluster refuses new work before it stops. On a single machine these functions are not called.

use super::Engine;
use std::sync::atomic::{AtomicU8, Ordering};
use toolyard_protocol::{ErrorCode, Failure};

const SERVING: u8 = 0;
const ANNOUNCED: u8 = 1;
const REFUSING: u8 = 2;

/// How far a node is with stopping.
#[derive(Default)]
pub(super) struct Draining(AtomicU8);

impl Engine {
    /// Says that this node is about to stop: balancers should send new work elsewhere. Work that still arrives is done.
    pub fn announce_drain(&self) {
        self.inner.draining.0.fetch_max(ANNOUNCED, Ordering::AcqRel);
    }

    /// Starts no new runs and resumes no runs of other nodes. Runs in progress continue.
    pub fn refuse_new_runs(&self) {
        self.inner.draining.0.store(REFUSING, Ordering::Release);
    }

    /// Whether this node has said that it is about to stop.
    pub fn is_draining(&self) -> bool {
        self.inner.draining.0.load(Ordering::Acquire) != SERVING
    }

    /// Whether a run may begin here.
    pub(crate) fn check_not_draining(&self) -> Result<(), Failure> {
        if self.inner.draining.0.load(Ordering::Acquire) != REFUSING {
            return Ok(());
        }
        Err(Failure::new(ErrorCode::Unavailable, "this node is stopping and begins nothing new")
            .suggest("Send the request again: another node of the cluster accepts it.")
            .retryable(true))
    }
}
