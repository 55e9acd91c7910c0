//! Adds ended runs to the ledger: periodically, on demand, and at start for runs of dead processes.

use super::Engine;
use crate::{ledger::Sealer, scope::RunScope};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{ErrorCode, Failure, RunId, RunStatus};

/// Seals ended runs at every tick, until the engine stops.
pub(super) async fn seal_in_background(sealer: Arc<Sealer>, every: Duration, shutdown: CancellationToken) {
    let mut tick = tokio::time::interval(every);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = shutdown.cancelled() => return,
        }
        if sealer.is_idle() {
            continue;
        }
        let sealer = sealer.clone();
        match tokio::task::spawn_blocking(move || sealer.seal()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "ended runs could not be sealed"),
            Err(_) => return,
        }
    }
}

impl Engine {
    /// Adds the ended runs of a dead process to the ledger, as far as that process is known to have written their ends.
    pub(crate) async fn seal_left_behind(&self) -> Result<(), Failure> {
        let (sealer, facts) = (self.inner.sealer.clone(), self.inner.facts.clone());
        let seal = move || {
            // Before the ledger grows: its last entry says which facts it may not name yet.
            facts.note_unnamed()?;
            sealer.seal_found()
        };
        let found = tokio::task::spawn_blocking(seal)
            .await
            .map_err(|_| Failure::new(ErrorCode::InternalError, "the sealing task failed"))??;
        if found.sealed > 0 {
            tracing::info!(runs = found.sealed, "sealed runs that ended before the last process died");
        }
        for run_id in found.unsigned {
            tracing::warn!(%run_id, "a run ended without a signature and is not sealed; see `toolyard runs verify`");
        }
        Ok(())
    }

    /// Hands the end of a run that another process recorded to the ledger.
    pub(crate) async fn seal_found_end(&self, run_id: RunId) -> Result<(), Failure> {
        let sealer = self.inner.sealer.clone();
        tokio::task::spawn_blocking(move || sealer.note_found_end(run_id))
            .await
            .map_err(|_| Failure::new(ErrorCode::InternalError, "the sealing task failed"))??;
        Ok(())
    }

    /// Hands the record of a run to the ledger if it waits for a person: it may wait for long.
    pub(crate) fn seal_paused(&self, scope: &RunScope, status: RunStatus) {
        if status == RunStatus::Paused {
            let (seq, chain) = scope.recorder.head();
            self.inner.sealer.run_paused(scope.run_id, seq, &chain);
        }
    }

    /// Seals into the ledger, reads its head, replaces keys.
    pub fn sealer(&self) -> &Arc<Sealer> {
        &self.inner.sealer
    }

    /// Seals ended runs now rather than with the next tick.
    pub async fn seal(&self) -> Result<(), Failure> {
        let sealer = self.inner.sealer.clone();
        match tokio::task::spawn_blocking(move || sealer.seal()).await {
            Ok(sealed) => Ok(sealed?),
            Err(_) => Err(Failure::new(ErrorCode::InternalError, "the sealing task failed")),
        }
    }
}
