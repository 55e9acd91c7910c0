//! Events of runs at other nodes. This module reads the records that other nodes have stored, and makes events of them.
//!
//! A hint of the store says that something changed, but not what. After a hint, the module therefore reads every run
//! that is open or has begun recently, starting after the last record that it knows. A record that one read misses is
//! found by the next one; without hints, a timer reads once a second. If there is no subscriber, nothing is read.
//!
//! In the other direction, the records of a slow call are stored before the call ends, so that other nodes see which
//! node owns its run. A store that one machine uses alone stores the records of a call without side effects with its
//! result.

use super::{Engine, lock};
use crate::{
    EventBus, Events, Recorder, Store, Subscription,
    record::Record,
    scope::RunScope,
    store::{Durability, Hints, RunFilter, RunRow, StoreError},
    view::RunView,
};
use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{RunId, RunStatus};

/// The shortest time between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// How often the store is read while no hints come.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A run that began and ended between two looks is found if its id is not older than this.
const RECENT: Duration = Duration::from_secs(15);
/// Runs that are read by one look: the newest of those that are open, and as many that began just now.
const MAX_RUNS: usize = 500;
/// Records that wait to be stored with a call's result are stored at this interval: then other nodes see the run.
const SHOW_EVERY: Duration = Duration::from_millis(50);
/// How long a subscriber waits for the first look. If the store does not answer in time, the subscriber receives only
/// later events.
const FIRST_LOOK_WITHIN: Duration = Duration::from_secs(2);

/// What is needed to follow the runs of other nodes.
#[derive(Default)]
pub(super) struct OtherRuns {
    /// Subscribers that asked for a look, and the number of those that have had it.
    asked: AtomicU64,
    served: watch::Sender<u64>,
    wake: Notify,
    /// Runs that began at this node since the last look: their events come from their recorders.
    own: Mutex<Vec<RunId>>,
    /// The recorders of runs under way here.
    recorders: Mutex<Vec<Weak<Recorder>>>,
}

/// A run that is followed.
enum FollowedRun {
    /// The run belongs to this node.
    Own,
    Other(Box<RemoteRun>),
    /// The run has ended, and all of its records were read.
    Over,
}

struct RemoteRun {
    view: RunView,
    session: Option<String>,
    /// The number of the next record.
    next: u64,
}

impl Engine {
    /// Subscribes to events of runs at this node and at all others. When this returns, nothing that is recorded from now
    /// on is missed.
    pub async fn watch_events(&self, subscription: Subscription) -> Events {
        let others = &self.inner.others;
        let mut served = others.served.subscribe();
        let events = self.watch_events_soon(subscription);
        if self.inner.store.is_shared() {
            let mine = others.asked.load(Ordering::Acquire);
            let looked = tokio::time::timeout(FIRST_LOOK_WITHIN, served.wait_for(|served| *served >= mine)).await;
            if looked.is_err() {
                tracing::warn!(
                    "the runs of other nodes could not be read yet; a subscriber may miss their first events"
                );
            }
        }
        events
    }

    /// The same without the promise: what other nodes record within the next moments may be missed.
    pub fn watch_events_soon(&self, subscription: Subscription) -> Events {
        let events = self.inner.bus.subscribe(Subscription { everywhere: true, ..subscription });
        if self.inner.store.is_shared() {
            self.inner.others.asked.fetch_add(1, Ordering::AcqRel);
            self.inner.others.wake.notify_one();
        }
        events
    }

    /// Has the records of a run stored soon, whatever it waits for.
    pub(crate) fn show_others(&self, scope: &RunScope) {
        if self.inner.store.is_shared() && scope.previews.is_none() {
            lock(&self.inner.others.recorders).push(Arc::downgrade(&scope.recorder));
        }
    }

    /// Notes a run that begins at this node, while somebody here watches the runs of all nodes.
    pub(super) fn note_own_run(&self, run_id: RunId) {
        if self.inner.bus.is_watched_everywhere() {
            lock(&self.inner.others.own).push(run_id);
        }
    }
}

/// Publishes what other nodes record for as long as somebody watches, until stopped.
pub(super) async fn follow(engine: Engine, stop: CancellationToken) {
    // Hints cost the other nodes work, so they are requested only while somebody watches.
    let mut watching: Option<Hints> = None;
    let mut followed = HashMap::new();
    loop {
        if !engine.inner.bus.is_watched_everywhere() {
            watching = None;
            followed = HashMap::new();
            lock(&engine.inner.others.own).clear();
            tokio::select! {
                () = engine.inner.others.wake.notified() => {}
                () = stop.cancelled() => return,
            }
        }
        let hints = watching.get_or_insert_with(|| engine.inner.store.watch());
        let asked = engine.inner.others.asked.load(Ordering::Acquire);
        let began = tokio::time::Instant::now();
        followed = look(&engine, followed).await;
        engine.inner.others.served.send_replace(asked);
        // A look that takes long is not repeated at once: half of the time is left for others.
        let pause = began.elapsed().max(LOOK_PAUSE);
        tokio::select! {
            _ = hints.changed() => {}
            () = engine.inner.others.wake.notified() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = stop.cancelled() => return,
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = engine.inner.others.wake.notified() => {}
            () = stop.cancelled() => return,
        }
    }
}

async fn look(engine: &Engine, followed: HashMap<RunId, FollowedRun>) -> HashMap<RunId, FollowedRun> {
    let (store, bus) = (engine.inner.store.clone(), engine.inner.bus.clone());
    // Taken before the store is read: a run that is seen there began before.
    let mut own = std::mem::take(&mut *lock(&engine.inner.others.own));
    own.extend(engine.active_runs());
    let recent = engine.inner.clock.now().checked_sub(RECENT).ok();
    let looked = tokio::task::spawn_blocking(move || {
        let mut followed = followed;
        // Nothing that was recorded before somebody watched is published.
        let is_first = followed.is_empty();
        followed.extend(own.into_iter().map(|run_id| (run_id, FollowedRun::Own)));
        let read = recent.map_or(Ok(()), |recent| read_all(&*store, &bus, recent, is_first, &mut followed));
        (followed, read)
    });
    match looked.await {
        Ok((followed, read)) => {
            if let Err(error) = read {
                tracing::warn!(%error, "the runs of other nodes cannot be read");
            }
            followed
        }
        Err(error) => {
            tracing::error!(%error, "reading the runs of other nodes failed unexpectedly");
            HashMap::new()
        }
    }
}

fn read_all(
    store: &dyn Store,
    bus: &EventBus,
    recent: jiff::Timestamp,
    is_first: bool,
    followed: &mut HashMap<RunId, FollowedRun>,
) -> Result<(), StoreError> {
    let open = vec![RunStatus::Pending, RunStatus::Running];
    let mut rows = store.runs(&RunFilter { statuses: open, limit: MAX_RUNS, ..RunFilter::default() })?;
    let after = Some(first_id_at(recent));
    rows.extend(store.runs(&RunFilter { after, limit: MAX_RUNS, ..RunFilter::default() })?);
    let mut seen: HashSet<RunId> = HashSet::with_capacity(rows.len());
    for row in rows {
        if seen.insert(row.run_id) {
            let run = followed.entry(row.run_id).or_insert_with(|| FollowedRun::Other(Box::new(RemoteRun::of(&row))));
            advance(store, bus, &row, is_first, run)?;
        }
    }
    // Runs that are neither open nor young any more have ended since, or are forgotten.
    let unseen: Vec<RunId> = followed.keys().filter(|run_id| !seen.contains(run_id)).copied().collect();
    for run_id in unseen {
        if let Some(run @ FollowedRun::Other(_)) = followed.get_mut(&run_id)
            && let Some(row) = store.run(run_id)?
        {
            advance(store, bus, &row, is_first, run)?;
        }
        followed.remove(&run_id);
    }
    // An empty map means that nobody watched before.
    followed.entry(RunId::from_uuid(uuid::Uuid::nil())).or_insert(FollowedRun::Over);
    Ok(())
}

/// The smallest id of runs that begin at a time.
fn first_id_at(time: jiff::Timestamp) -> RunId {
    let millis = u64::try_from(time.as_millisecond()).unwrap_or(0);
    RunId::from_uuid(uuid::Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid())
}

/// Publishes what was recorded of a run since it was last read.
fn advance(
    store: &dyn Store,
    bus: &EventBus,
    row: &RunRow,
    is_first: bool,
    run: &mut FollowedRun,
) -> Result<(), StoreError> {
    let FollowedRun::Other(other) = run else { return Ok(()) };
    let RemoteRun { view, session, next } = &mut **other;
    store.frames(row.run_id, *next, &mut |frame| {
        *next = frame.seq + 1;
        let Ok(record) = Record::decode(frame.kind, &frame.payload) else {
            return ControlFlow::Continue(());
        };
        view.note(&record);
        match is_first {
            true => view.skip_events(&record),
            false => view.events(&record).into_iter().for_each(|event| bus.publish_others(session.as_deref(), event)),
        }
        if let Record::Result(result) = &record {
            view.forget(result.call_id);
        }
        ControlFlow::Continue(())
    })?;
    if row.status.is_final() {
        *run = FollowedRun::Over;
    }
    Ok(())
}

impl RemoteRun {
    fn of(row: &RunRow) -> Self {
        Self { view: RunView::new(row.run_id), session: row.session.clone(), next: 1 }
    }
}

/// Repeatedly stores the queued records of this node's runs, until stopped.
async fn show(engine: Engine, stop: CancellationToken) {
    let mut tick = tokio::time::interval(SHOW_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = stop.cancelled() => return,
        }
        let recorders: Vec<Arc<Recorder>> = {
            let mut known = lock(&engine.inner.others.recorders);
            known.retain(|recorder| recorder.strong_count() > 0);
            known.iter().filter_map(Weak::upgrade).collect()
        };
        if recorders.is_empty() {
            continue;
        }
        let stored = tokio::task::spawn_blocking(move || {
            for recorder in recorders {
                if let Err(error) = recorder.flush(Durability::Deferred) {
                    // The run learns it itself, with its next record.
                    tracing::debug!(%error, run = %recorder.run_id(), "records could not be stored ahead of a result");
                }
            }
        });
        if let Err(error) = stored.await {
            tracing::error!(%error, "storing records ahead of results failed unexpectedly");
        }
    }
}

/// Starts following the runs of other nodes, and showing this node's to them.
pub(super) fn start(engine: &Engine) {
    tokio::spawn(follow(engine.clone(), engine.inner.shutdown.clone()));
    tokio::spawn(show(engine.clone(), engine.inner.shutdown.clone()));
    tokio::spawn(Arc::clone(engine.approvals()).follow_others(engine.inner.shutdown.clone()));
}
