//! What a running server does by itself: builds the first index, probes every 30 seconds, watches the vault and indexes
//! changes, scans everything periodically, continues an interrupted job, and rebuilds an index that does not fit the
//! embedder.

use crate::{
    changes::{ChangeEvent, Changes},
    envelope::ProblemCode,
    indexer::{Backoff, JobMode, JobStart},
    service::Knowledge,
};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use tokio_util::sync::CancellationToken;

/// Interval of probes.
pub const PROBE_EVERY: Duration = Duration::from_secs(30);
/// How long the vault is not scanned again after events were lost: a scan causes events too, and in a huge vault those
/// could be lost next.
const LOST_EVERY: Duration = Duration::from_secs(10);

/// Serves until `stop` is cancelled.
pub async fn serve(knowledge: Arc<Knowledge>, stop: CancellationToken) {
    let watches = knowledge.config.indexing.watch;
    serve_and(knowledge, stop, watches).await;
}

/// The same, and watches the vault regardless of the configuration, for a person who asked for it.
pub async fn serve_watching(knowledge: Arc<Knowledge>, stop: CancellationToken) {
    serve_and(knowledge, stop, true).await;
}

async fn serve_and(knowledge: Arc<Knowledge>, stop: CancellationToken, watches: bool) {
    knowledge.set_serving();
    let config = knowledge.config.indexing.clone();
    let changes = watches.then(|| watch(&knowledge)).flatten();
    knowledge.observe().await;
    if let Some(job) = knowledge.resume() {
        tracing::info!(job = %job.id, "an interrupted indexing job is resumed");
    } else if watches {
        index_first(&knowledge).await;
    }
    let mut probe = interval_at(Instant::now() + PROBE_EVERY, PROBE_EVERY);
    probe.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let rescan_every = Duration::from_secs(config.rescan_secs);
    // The first scan comes soon, because notes may have changed while no server was watching.
    let mut rescan = interval_at(Instant::now() + Duration::from_millis(config.debounce_ms), rescan_every);
    rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ended = knowledge.jobs.ended();
    let mut due: Option<SyncSchedule> = None;
    let mut lost_before: Option<Instant> = None;
    let mut mending = Backoff::new(PROBE_EVERY);
    loop {
        let wake = due.map(|due| due.at());
        tokio::select! {
            () = stop.cancelled() => break,
            news = next(changes.as_ref()) => {
                due = Some(match news {
                    ChangeEvent::Changed => SyncSchedule::again(due, &config),
                    ChangeEvent::Lost => SyncSchedule::after_loss(due, lost_before.replace(Instant::now()), &config),
                });
            }
            () = async { match wake { Some(at) => sleep_until(at).await, None => std::future::pending().await } } => {
                due = if sync(&knowledge).await { None } else { Some(SyncSchedule::again(None, &config)) };
            }
            _ = rescan.tick(), if watches => {
                // After a user cancelled a job, no rescan starts a new one; only a change does.
                if !knowledge.jobs.rests() && !is_unchanged(&knowledge).await && !sync(&knowledge).await {
                    due = Some(SyncSchedule::again(due, &config));
                }
            }
            Ok(()) = ended.changed() => {
                // The new version is loaded before the first query needs it.
                if let Err(problem) = knowledge.refresh().await {
                    tracing::warn!(problem = problem.message, "the new version of the index could not be loaded");
                }
            }
            _ = probe.tick() => {
                knowledge.probe().await;
                match knowledge.mending().await {
                    None => mending.reset(),
                    Some(mode) if mending.is_due(Instant::now()) => {
                        if matches!(knowledge.start(mode), Ok(JobStart::New(_))) {
                            mending.tried(Instant::now());
                        }
                    }
                    Some(_) => {}
                }
            }
        }
    }
    drop(changes);
}

/// Builds the first index of a vault that has notes. If somebody has indexed before, and cancelled the job or deleted
/// the index, nothing is started.
async fn index_first(knowledge: &Arc<Knowledge>) {
    let is_new = knowledge.jobs.record().last_ended().is_none()
        && matches!(knowledge.library().await, Err(problem) if problem.code == ProblemCode::IndexNotFound);
    if !is_new || knowledge.scan().await.is_none_or(|scan| scan.notes == 0) {
        return;
    }
    match knowledge.start(JobMode::Full) {
        Ok(started) => tracing::info!(job = %started.job().id, "the first index is being built"),
        Err(problem) => tracing::warn!(problem = problem.message, "the first index cannot be built"),
    }
}

/// When the changes seen so far are indexed.
#[derive(Clone, Copy)]
struct SyncSchedule {
    quiet: Instant,
    latest: Instant,
}

impl SyncSchedule {
    fn again(before: Option<SyncSchedule>, config: &crate::config::IndexingConfig) -> SyncSchedule {
        let now = Instant::now();
        let latest = before.map_or(now + Duration::from_millis(config.window_ms), |due| due.latest);
        SyncSchedule { quiet: now + Duration::from_millis(config.debounce_ms), latest }
    }
    /// Soon, unless events were already lost a moment ago.
    fn after_loss(
        before: Option<SyncSchedule>,
        lost_before: Option<Instant>,
        config: &crate::config::IndexingConfig,
    ) -> SyncSchedule {
        let due = SyncSchedule::again(before, config);
        match lost_before.map(|at| at + LOST_EVERY) {
            Some(earliest) if before.is_none() && earliest > due.quiet => {
                SyncSchedule { quiet: earliest, latest: earliest }
            }
            _ => due,
        }
    }
    fn at(self) -> Instant {
        self.quiet.min(self.latest)
    }
}

/// Whether the vault is unchanged since it was indexed, as far as that can be determined without starting an idle index
/// program.
async fn is_unchanged(knowledge: &Arc<Knowledge>) -> bool {
    knowledge.index.is_resting() && knowledge.equals_vault().await
}

/// Starts a sync if there is an index. `false` when another job runs, here or in another process: it may have passed the
/// changed note already, so the changes wait for its end.
async fn sync(knowledge: &Arc<Knowledge>) -> bool {
    match knowledge.library().await {
        Err(_) => true,
        Ok(_) => matches!(knowledge.start(JobMode::Sync), Ok(JobStart::New(_))),
    }
}

async fn next(changes: Option<&Changes>) -> ChangeEvent {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

fn watch(knowledge: &Knowledge) -> Option<Changes> {
    match Changes::watch(knowledge.vault.root(), &knowledge.config.indexing) {
        Ok(changes) => Some(changes),
        Err(error) => {
            tracing::warn!(%error, "the vault cannot be watched; it is scanned every knowledge.indexing.rescanSecs instead");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_made_up_for_soon_but_not_in_a_circle() {
        let config = crate::config::IndexingConfig::default();
        let lost = Instant::now();
        let waits = lost + LOST_EVERY;
        assert!(SyncSchedule::after_loss(None, None, &config).at() < waits);
        let again = SyncSchedule::after_loss(None, Some(lost), &config);
        assert_eq!(again.at(), waits);
        assert!(SyncSchedule::again(Some(again), &config).at() < waits, "a change that was seen does not wait");
    }
}
