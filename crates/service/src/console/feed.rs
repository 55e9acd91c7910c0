//! The feed: what happens to runs, questions and devices, as one numbered list for every console that is connected.
//!
//! The newest items are kept, so that a browser that reconnects continues after the last item it received. Runs are
//! watched only while a console is connected, and for a while afterwards: without a subscriber no events are built.

use crate::{
    Hub, Service, approvals,
    devices::DeviceEvent,
    hub::{Connection, EventBody, lock},
    runs::RunSummary,
    service::blocking,
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use toolyard_engine::{Events, Subscription, approvals::ApprovalEvent};
use toolyard_protocol::{ExecutionEvent, RunId, WorkspaceId};

/// Number of items that are kept for browsers that reconnect.
const MAX_KEPT: usize = 2048;
/// How long runs are watched after the last console has gone.
const LINGER: Duration = Duration::from_secs(600);
/// How often the call counts of running runs are sent.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of running runs whose counts are sent.
const MAX_PROGRESS: usize = 50;

/// Who is sent an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audience {
    Readers,
    Approvers,
    Owners,
}

impl Audience {
    fn includes(self, connection: &Connection) -> bool {
        connection.has(match self {
            Self::Readers => "operator.read",
            Self::Approvers => "operator.approvals",
            Self::Owners => "operator.admin",
        })
    }
}

/// An item of the feed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    /// Its number; absent for progress, which is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    at: Timestamp,
    #[serde(flatten)]
    news: &'a FeedEvent,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
enum FeedEvent {
    Run {
        event: &'static str,
        run_id: RunId,
        #[serde(skip_serializing_if = "Option::is_none")]
        run: Option<Box<RunSummary>>,
    },
    Approval {
        event: &'static str,
        id: String,
        approval: Box<RawValue>,
    },
    Device {
        event: &'static str,
        device_id: String,
    },
    /// Something was missed: what is shown must be fetched again.
    Lost,
}

struct StoredItem {
    seq: u64,
    body: Arc<EventBody>,
    audience: Audience,
    workspace: Option<WorkspaceId>,
}

#[derive(Default)]
struct State {
    seq: u64,
    kept: VecDeque<StoredItem>,
    subscribers: Vec<Weak<Connection>>,
    is_watching: bool,
}

/// Where a subscriber is.
pub(super) struct Position {
    pub(super) seq: u64,
    pub(super) resumed: bool,
}

/// The newest items, and who is sent the next.
#[derive(Default)]
pub(crate) struct Feed(Mutex<State>);

impl State {
    /// Sends an item to the audience in one workspace, or in all where none is named.
    fn send(&mut self, body: &Arc<EventBody>, audience: Audience, workspace: Option<&WorkspaceId>) {
        self.subscribers.retain(|subscriber| {
            let Some(connection) = subscriber.upgrade().filter(|c| !c.stop.is_cancelled()) else { return false };
            if audience.includes(&connection) && workspace.is_none_or(|of| *of == connection.workspace) {
                connection.outbox.event(body);
            }
            true
        });
    }
}

impl Feed {
    fn push(&self, news: &FeedEvent, audience: Audience, workspace: Option<WorkspaceId>, at: Timestamp) {
        let mut state = lock(&self.0);
        state.seq += 1;
        let seq = state.seq;
        let body = Arc::new(EventBody::new("feed", &Item { seq: Some(seq), at, news }));
        state.send(&body, audience, workspace.as_ref());
        state.kept.push_back(StoredItem { seq, body, audience, workspace });
        if state.kept.len() > MAX_KEPT {
            state.kept.pop_front();
        }
    }

    /// Sends progress. A lost progress event does no harm: the event at the end of a run has the final counts.
    fn tell(&self, news: &FeedEvent, workspace: &WorkspaceId, at: Timestamp) {
        let body = Arc::new(EventBody::new("feed", &Item { seq: None, at, news }).droppable());
        lock(&self.0).send(&body, Audience::Readers, Some(workspace));
    }

    fn has_subscribers(&self) -> bool {
        let mut state = lock(&self.0);
        state.subscribers.retain(|subscriber| subscriber.upgrade().is_some_and(|c| !c.stop.is_cancelled()));
        !state.subscribers.is_empty()
    }

    /// Stops watching, unless somebody has subscribed. Later events are not kept, so a browser cannot continue from its
    /// last position.
    fn rest(&self) -> bool {
        if self.has_subscribers() {
            return false;
        }
        let mut state = lock(&self.0);
        state.is_watching = false;
        state.kept.clear();
        state.seq += 1;
        true
    }
}

impl Hub {
    /// Sends a connection the feed from now on, and first what it missed, if that is still known.
    pub(super) fn subscribe_to_feed(&self, connection: &Arc<Connection>, after: Option<u64>) -> Position {
        let feed = &self.inner.feed;
        let mut state = lock(&feed.0);
        if !state.is_watching {
            state.is_watching = true;
            let sources = Sources::of(self);
            tokio::spawn(self.clone().follow(sources));
        }
        let oldest = state.kept.front().map_or(state.seq + 1, |kept| kept.seq);
        let resumed = after.is_some_and(|after| after + 1 >= oldest && after <= state.seq);
        if resumed {
            for kept in state.kept.iter().filter(|kept| after.is_some_and(|after| kept.seq > after)) {
                let is_own = kept.workspace.as_ref().is_none_or(|of| *of == connection.workspace);
                if is_own && kept.audience.includes(connection) {
                    connection.outbox.event(&kept.body);
                }
            }
        }
        state.subscribers.retain(|known| known.upgrade().is_some_and(|known| known.id != connection.id));
        state.subscribers.push(Arc::downgrade(connection));
        Position { seq: state.seq, resumed }
    }

    async fn follow(self, mut sources: Sources) {
        let (mut told, mut alone_since) = (HashMap::new(), None);
        let mut tick = tokio::time::interval(PROGRESS_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = sources.runs.next() => match event {
                    Some(event) => self.tell_run(&event, &mut told).await,
                    None => return,
                },
                event = sources.approvals.recv() => self.tell_approval(event),
                event = sources.devices.recv() => self.tell_device(event),
                _ = tick.tick() => {
                    if sources.runs.take_lost() > 0 {
                        self.inner.feed.push(&FeedEvent::Lost, Audience::Readers, None, Timestamp::now());
                    }
                    if self.inner.feed.has_subscribers() {
                        alone_since = None;
                        self.tell_progress(&mut told).await;
                    } else if alone_since.get_or_insert_with(Instant::now).elapsed() > LINGER && self.inner.feed.rest() {
                        return;
                    }
                }
                () = self.inner.stop.cancelled() => return,
            }
        }
    }

    async fn tell_run(&self, event: &ExecutionEvent, told: &mut HashMap<RunId, u64>) {
        told.remove(&event.run_id);
        let run = counted(self.service(), event.run_id).await.map(Box::new);
        let workspace = workspace_of(run.as_deref());
        let news = FeedEvent::Run { event: event.event_type.as_str(), run_id: event.run_id, run };
        self.inner.feed.push(&news, Audience::Readers, Some(workspace), event.timestamp);
    }

    /// Sends the counts of running runs that have made calls since the last time.
    async fn tell_progress(&self, told: &mut HashMap<RunId, u64>) {
        for run_id in self.service().engine().active_runs().into_iter().take(MAX_PROGRESS) {
            let Some(run) = counted(self.service(), run_id).await else { continue };
            let calls = run.counts.as_ref().map_or(0, |counts| counts.calls);
            if told.insert(run_id, calls).is_some_and(|before| before != calls) {
                let workspace = workspace_of(Some(&run));
                let news = FeedEvent::Run { event: "run.progress", run_id, run: Some(Box::new(run)) };
                self.inner.feed.tell(&news, &workspace, Timestamp::now());
            }
        }
    }

    fn tell_approval(&self, event: Result<ApprovalEvent, RecvError>) {
        let (event, approval, body) = match event {
            Ok(ApprovalEvent::Requested(approval)) => {
                let body = serde_json::value::to_raw_value(&approvals::Requested::from(&*approval));
                ("requested", approval, body)
            }
            Ok(ApprovalEvent::Resolved(approval)) => {
                let body = serde_json::value::to_raw_value(&approvals::Resolved::from(&*approval));
                ("resolved", approval, body)
            }
            Err(RecvError::Lagged(_)) => {
                return self.inner.feed.push(&FeedEvent::Lost, Audience::Readers, None, Timestamp::now());
            }
            Err(RecvError::Closed) => return,
        };
        match body {
            Ok(body) => {
                let workspace = Some(approval.request.workspace());
                let news = FeedEvent::Approval { event, id: approval.request.id.clone(), approval: body };
                self.inner.feed.push(&news, Audience::Approvers, workspace, Timestamp::now());
            }
            Err(error) => tracing::error!(%error, "a question cannot be written"),
        }
    }

    fn tell_device(&self, event: Result<DeviceEvent, RecvError>) {
        let (event, device_id, workspace) = match event {
            Ok(DeviceEvent::Paired { device_id, workspace }) => ("paired", device_id, workspace),
            Ok(DeviceEvent::Requested(request)) => ("requested", request.device.device_id, request.device.workspace),
            Ok(DeviceEvent::Resolved { device_id, workspace, .. }) => ("resolved", device_id, workspace),
            Ok(DeviceEvent::Revoked { device_id, workspace }) => ("revoked", device_id, workspace),
            Err(_) => return,
        };
        self.inner.feed.push(
            &FeedEvent::Device { event, device_id },
            Audience::Owners,
            Some(workspace),
            Timestamp::now(),
        );
    }
}

/// What the feed is made from. Taken before the subscription is answered, so that nothing is missed in between.
struct Sources {
    runs: Events,
    approvals: Receiver<ApprovalEvent>,
    devices: Receiver<DeviceEvent>,
}

impl Sources {
    fn of(hub: &Hub) -> Self {
        let engine = hub.service().engine();
        Self {
            runs: engine.watch_events_soon(Subscription { runs_only: true, ..Subscription::default() }),
            approvals: engine.approvals().subscribe(),
            devices: hub.service().devices().subscribe(),
        }
    }
}

/// The workspace of a run, which its session names. Runs that are not listed are the default one's.
fn workspace_of(run: Option<&RunSummary>) -> WorkspaceId {
    let session = run.and_then(|run| run.session.as_deref());
    session.map_or_else(WorkspaceId::default, |session| WorkspaceId::of(session).0)
}

/// A run's row as it is now.
async fn counted(service: &Service, run_id: RunId) -> Option<RunSummary> {
    let service = service.clone();
    let read = blocking(move || {
        let store = service.engine().store();
        store.settle()?;
        let row = store.run(run_id)?;
        Ok::<_, crate::MethodError>(row.map(|row| service.counted(row)).transpose()?)
    });
    read.await.unwrap_or_else(|error| {
        tracing::debug!(error = error.message(), %run_id, "the event of a run could not be built");
        None
    })
}
