//! Sends events to any number of subscribers. A slow subscriber loses events; a call never waits for a subscriber.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::mpsc;
use toolyard_protocol::{ExecutionEvent, RunId, WorkspaceId};

/// Events a watcher may leave unread before it starts losing them.
pub(crate) const WATCHER_BUFFER: usize = 1024;

/// Hands events to watchers.
#[derive(Default)]
pub struct EventBus {
    watchers: Mutex<Vec<Watcher>>,
    count: AtomicUsize,
    /// Watchers that want the events of other nodes as well.
    everywhere: AtomicUsize,
}

struct Watcher {
    run_id: Option<RunId>,
    session: Option<String>,
    workspace: Option<WorkspaceId>,
    runs_only: bool,
    everywhere: bool,
    sender: mpsc::Sender<Arc<ExecutionEvent>>,
    lost: Arc<AtomicUsize>,
}

/// Which events a watcher wants.
#[derive(Debug, Clone, Default)]
pub struct Subscription {
    /// Only this run.
    pub run_id: Option<RunId>,
    /// Only runs of this session.
    pub session: Option<String>,
    /// Only runs of this workspace; those of all where it is absent, for the program's own use.
    pub workspace: Option<WorkspaceId>,
    /// Only the events of runs themselves, not those of their steps.
    pub runs_only: bool,
    /// Also the events of runs at other nodes; see [`Engine::watch_events`](crate::Engine::watch_events).
    pub everywhere: bool,
}

/// The receiving end. Dropping it ends the subscription.
pub struct Events {
    receiver: mpsc::Receiver<Arc<ExecutionEvent>>,
    lost: Arc<AtomicUsize>,
}

impl Events {
    /// The next event; `None` after the bus was dropped.
    pub async fn next(&mut self) -> Option<Arc<ExecutionEvent>> {
        self.receiver.recv().await
    }

    /// The next event if one is waiting.
    pub fn try_next(&mut self) -> Option<Arc<ExecutionEvent>> {
        self.receiver.try_recv().ok()
    }

    /// The number of events lost since the last call. The record has all of them.
    pub fn take_lost(&self) -> usize {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

impl EventBus {
    /// Subscribes to events.
    pub fn subscribe(&self, subscription: Subscription) -> Events {
        let (sender, receiver) = mpsc::channel(WATCHER_BUFFER);
        let lost = Arc::new(AtomicUsize::new(0));
        let Subscription { run_id, session, workspace, runs_only, everywhere } = subscription;
        let watcher = Watcher { run_id, session, workspace, runs_only, everywhere, sender, lost: lost.clone() };
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.push(watcher);
        self.recount(&watchers);
        Events { receiver, lost }
    }

    /// Whether anybody watches; when not, events need not even be built.
    pub fn is_watched(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Whether anybody watches the runs of all nodes. A watcher that has gone is not counted.
    pub(crate) fn is_watched_everywhere(&self) -> bool {
        if self.everywhere.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|watcher| !watcher.sender.is_closed());
        self.recount(&watchers);
        watchers.iter().any(|watcher| watcher.everywhere)
    }

    /// Sends an event to all matching subscribers.
    pub fn publish(&self, session: Option<&str>, event: ExecutionEvent) {
        self.send(session, event, |_| true);
    }

    /// Sends an event of another node's run to the subscribers that want those.
    pub(crate) fn publish_others(&self, session: Option<&str>, event: ExecutionEvent) {
        self.send(session, event, |watcher| watcher.everywhere);
    }

    fn send(&self, session: Option<&str>, event: ExecutionEvent, is_for: impl Fn(&Watcher) -> bool) {
        let event = Arc::new(event);
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|w| {
            if w.sender.is_closed() {
                return false;
            }
            let wanted = is_for(w)
                && w.run_id.is_none_or(|id| id == event.run_id)
                && (!w.runs_only || event.event_type.is_of_run())
                && w.session.as_deref().is_none_or(|s| Some(s) == session)
                && w.workspace.as_ref().is_none_or(|workspace| workspace.owns(session.unwrap_or_default()));
            if wanted && w.sender.try_send(event.clone()).is_err() {
                w.lost.fetch_add(1, Ordering::Relaxed);
            }
            true
        });
        self.recount(&watchers);
    }

    fn recount(&self, watchers: &[Watcher]) {
        self.count.store(watchers.len(), Ordering::Release);
        self.everywhere.store(watchers.iter().filter(|watcher| watcher.everywhere).count(), Ordering::Release);
    }
}
