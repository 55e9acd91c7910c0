//! What a running server does by itself: probe every 30 seconds, watch the vault and index what changes, look at all of
//! it now and then, take up an interrupted job, and mend an index that does not fit the embedder.

use crate::{
    indexer::{Backoff, JobMode, Started},
    scope::Scope,
    service::Knowledge,
};
use notify::{EventKind, RecursiveMode, Watcher};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};
use tokio_util::sync::CancellationToken;
use toolyard_vault::VaultPath;

/// How often everything is probed.
pub const PROBE_EVERY: Duration = Duration::from_secs(30);
/// Events that wait; when there are more, one that says "something changed" is enough.
const QUEUE: usize = 1_024;

/// Serves until told to stop.
pub async fn serve(knowledge: Arc<Knowledge>, stop: CancellationToken) {
    let watches = knowledge.config.indexing.watch;
    serve_and(knowledge, stop, watches).await;
}

/// The same, and watches the vault whatever the configuration says: for who asked for just that.
pub async fn serve_watching(knowledge: Arc<Knowledge>, stop: CancellationToken) {
    serve_and(knowledge, stop, true).await;
}

async fn serve_and(knowledge: Arc<Knowledge>, stop: CancellationToken, watches: bool) {
    knowledge.set_serving();
    let config = knowledge.config.indexing.clone();
    let (sender, mut events) = mpsc::channel::<PathBuf>(QUEUE);
    let watching = watches.then(|| watch(&knowledge, sender)).flatten();
    knowledge.observe().await;
    if let Some(job) = knowledge.resume() {
        tracing::info!(job = %job.id, "an interrupted indexing job is taken up again");
    }
    let mut probe = interval_at(Instant::now() + PROBE_EVERY, PROBE_EVERY);
    probe.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let rescan_every = Duration::from_secs(config.rescan_secs);
    // The first look comes soon: notes may have changed while nothing watched.
    let mut rescan = interval_at(Instant::now() + Duration::from_millis(config.debounce_ms), rescan_every);
    rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ended = knowledge.jobs.ended();
    let mut due: Option<Due> = None;
    let mut mending = Backoff::new(PROBE_EVERY);
    loop {
        let wake = due.map(|due| due.at());
        tokio::select! {
            () = stop.cancelled() => break,
            Some(path) = events.recv() => {
                if is_note(&knowledge, &path) {
                    due = Some(Due::again(due, &config));
                }
            }
            () = async { match wake { Some(at) => sleep_until(at).await, None => std::future::pending().await } } => {
                due = if sync(&knowledge).await { None } else { Some(Due::again(None, &config)) };
            }
            _ = rescan.tick(), if watches => {
                // Who stopped a job does not want it back as long as nothing changes.
                if !knowledge.jobs.rests() {
                    sync(&knowledge).await;
                }
            }
            Ok(()) = ended.changed() => {
                // What was just indexed is loaded before somebody asks for it.
                let _ = knowledge.refresh().await;
            }
            _ = probe.tick() => {
                knowledge.observe().await;
                match knowledge.mending().await {
                    None => mending.reset(),
                    Some(mode) if mending.is_due(Instant::now()) => {
                        if matches!(knowledge.start(mode), Ok(Started::New(_))) {
                            mending.tried(Instant::now());
                        }
                    }
                    Some(_) => {}
                }
            }
        }
    }
    drop(watching);
}

/// When the changes seen so far are indexed.
#[derive(Clone, Copy)]
struct Due {
    quiet: Instant,
    latest: Instant,
}

impl Due {
    fn again(before: Option<Due>, config: &crate::config::IndexingConfig) -> Due {
        let now = Instant::now();
        let latest = before.map_or(now + Duration::from_millis(config.window_ms), |due| due.latest);
        Due { quiet: now + Duration::from_millis(config.debounce_ms), latest }
    }
    fn at(self) -> Instant {
        self.quiet.min(self.latest)
    }
}

/// Starts a sync if there is an index. `false` when another job runs, here or in another process: it may have passed the
/// changed note already, so the changes wait for its end.
async fn sync(knowledge: &Arc<Knowledge>) -> bool {
    match knowledge.library().await {
        Err(_) => true,
        Ok(_) => matches!(knowledge.start(JobMode::Sync), Ok(Started::New(_))),
    }
}

fn watch(knowledge: &Knowledge, sender: mpsc::Sender<PathBuf>) -> Option<notify::RecommendedWatcher> {
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else { return };
        if matches!(event.kind, EventKind::Access(_)) {
            return;
        }
        for path in event.paths {
            // A full queue has news enough; nothing is lost, as a sync looks at the whole vault.
            let _ = sender.try_send(path);
        }
    });
    let root = knowledge.vault.root().to_owned();
    match watcher.and_then(|mut watcher| watcher.watch(&root, RecursiveMode::Recursive).map(|()| watcher)) {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::warn!(%error, "the vault cannot be watched; it is looked at every knowledge.indexing.rescanSecs instead");
            None
        }
    }
}

/// Whether a changed path can matter: a note, a folder, or the ignore file; not what editors keep in hidden folders.
fn is_note(knowledge: &Knowledge, path: &Path) -> bool {
    let Ok(relative) = path.strip_prefix(knowledge.vault.root()) else { return false };
    let Some(text) = relative.to_str() else { return false };
    let indexing = &knowledge.config.indexing;
    if text == indexing.ignore_file {
        return true;
    }
    let Ok(vault_path) = VaultPath::parse(text) else { return false };
    let scope = Scope::read(knowledge.vault.root(), indexing);
    // Whatever has no extension may be a folder that came or went.
    scope.takes(&vault_path) || (vault_path.extension().is_none() && scope.enters(&vault_path))
}
