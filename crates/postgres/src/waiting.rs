//! Waiting on a caller's thread for work on the store's own runtime.

use std::{sync::mpsc, time::Duration};
use tokio::runtime::{Handle, RuntimeFlavor};
use toolyard_engine::store::StoreError;

/// How long a caller waits for an answer beyond what the query itself may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// Waits without keeping the other tasks of a runtime from running.
pub(crate) fn blocking<T>(wait: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}

/// Runs work on the store's runtime, and waits for it on the caller's thread.
pub(crate) fn wait_for<T: Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let (done, answer) = mpsc::sync_channel(1);
    // A caller that stopped waiting needs no answer.
    runtime.spawn(async move { drop(done.send(work.await)) });
    blocking(|| answer.recv_timeout(ANSWER_PATIENCE))
        .unwrap_or_else(|_| Err(StoreError::failed("the database did not answer in time")))
}

pub(crate) fn random() -> Result<[u8; 32], StoreError> {
    let mut bytes = [0_u8; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(|e| StoreError::failed(format!("the system has no randomness: {e}")))?;
    }
    Ok(bytes)
}
