//! The queue between callers and the writer thread: the order of changes, waiting callers, back-pressure, and facts
//! that are set but not written. Contains no SQL.

mod changes;
mod journal_side;
mod writer_side;

use crate::{journal::format::EntryPosition, journaling::Journaling, limits};
pub(crate) use changes::{Answer, Append, Blobs, Fact, FactSwap, LedgerOp, Op, RemovedBlob, Reply, StoredFrame};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::oneshot;
use toolyard_engine::{
    BoxFuture,
    store::{Position, StoreError},
};
use toolyard_protocol::RunId;
pub(crate) use writer_side::{TransactionOutcome, Work};

pub(crate) struct Queued {
    pub(crate) position: u64,
    pub(crate) op: Op,
    pub(crate) bytes: usize,
    pub(crate) urgency: Urgency,
    /// The position in the journal, if the change is there.
    pub(crate) place: Option<EntryPosition>,
    at: Instant,
}

/// How soon a change must be written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Together with other changes, or when it has waited long enough.
    Deferred,
    /// At once, without a sync.
    Commit,
    /// At once, with a sync.
    Sync,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    Working,
    /// Asleep until something happens.
    Parked,
    /// The writer sleeps until the oldest change has waited long enough. Just after some work it sleeps no longer than
    /// a change may wait, even if there is none, so that a change for which nobody waits need not wake it.
    Gathering,
}

struct State {
    queue: VecDeque<Queued>,
    /// The size of everything that is not yet committed, including the changes that the writer holds.
    bytes: usize,
    last: u64,
    visible: u64,
    durable: u64,
    /// The position that the database has synced; the journal may be ahead.
    database_durable: u64,
    journaling: Journaling,
    /// The journal's thread sleeps.
    journal_parked: bool,
    /// The position up to which a sync is in progress or done.
    sync_begun: u64,
    wanted_visible: u64,
    wanted_durable: u64,
    most_urgent: Urgency,
    writer: Writer,
    waiters: Vec<(u64, oneshot::Sender<Answer<()>>)>,
    pending: BTreeMap<String, BTreeMap<String, Pending>>,
    rejected: HashMap<u64, StoreError>,
    stopped_runs: HashMap<RunId, StoreError>,
    poisoned: Option<StoreError>,
    /// The disk is full. Queued changes are retried; new ones are refused.
    full: Option<Full>,
    closing: bool,
    /// When a caller was last notified of a sync.
    synced_at: Option<Instant>,
    /// The last change that had to be synced came within [`limits::SPIN`] of that.
    follows_closely: bool,
    /// Number of threads that wait for progress: a wake-up without waiters would still cost a system call.
    watchers: usize,
}

struct Full {
    error: StoreError,
    retry_at: Instant,
}

struct Pending {
    position: u64,
    value: Option<Vec<u8>>,
    expires_at: Option<i64>,
}

/// A fact that is not written yet: set, or removed (`None`).
pub(crate) type PendingValue = Option<Vec<u8>>;

pub(crate) struct Queue {
    state: Mutex<State>,
    work: Condvar,
    progress: Condvar,
    /// Work for the journal's thread.
    journal_work: Condvar,
    /// The journal's bell.
    journal_bell: AtomicBool,
    /// Set with every change that is due: lets the writer look for one without taking the lock.
    bell: AtomicBool,
    capacity: usize,
    ride_delay: Duration,
}

impl Queue {
    pub(crate) fn new(capacity: usize, ride_delay: Duration, journaling: Journaling) -> Self {
        Self {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                bytes: 0,
                last: 0,
                visible: 0,
                durable: 0,
                database_durable: 0,
                journaling,
                journal_parked: false,
                sync_begun: 0,
                wanted_visible: 0,
                wanted_durable: 0,
                most_urgent: Urgency::Deferred,
                writer: Writer::Working,
                waiters: Vec::new(),
                pending: BTreeMap::new(),
                rejected: HashMap::new(),
                stopped_runs: HashMap::new(),
                poisoned: None,
                full: None,
                closing: false,
                synced_at: None,
                follows_closely: false,
                watchers: 0,
            }),
            work: Condvar::new(),
            progress: Condvar::new(),
            journal_work: Condvar::new(),
            journal_bell: AtomicBool::new(false),
            bell: AtomicBool::new(false),
            capacity,
            ride_delay,
        }
    }

    // Nothing panics while the state is half-changed, so a poisoned lock is simply taken.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change at the end. Waits while the queue is full; a change that is larger than the queue is accepted when
    /// the queue is empty.
    pub(crate) fn push(&self, op: Op, bytes: usize, mut urgency: Urgency) -> Answer<Position> {
        let mut state = self.lock();
        loop {
            if let Err(error) = state.check() {
                // The run's record would have a hole if it went on when there is room again.
                if let Op::Append(append) = &op
                    && state.stopped_runs.len() < limits::MAX_REJECTED
                {
                    state.stopped_runs.insert(append.run_id, error.clone());
                }
                return Err(error);
            }
            if state.bytes == 0 || state.bytes.saturating_add(bytes) <= self.capacity {
                break;
            }
            self.wake_writer(&mut state);
            state = self.wait_for_progress(state);
        }
        if let Op::Append(append) = &op
            && let Some(error) = state.stopped_runs.get(&append.run_id)
        {
            return Err(error.clone());
        }
        state.last += 1;
        let position = state.last;
        match &op {
            Op::Put(fact) => {
                let pending = Pending { position, value: Some(fact.value.clone()), expires_at: fact.expires_at };
                state.pending.entry(fact.space.clone()).or_default().insert(fact.key.clone(), pending);
            }
            Op::Remove { space, key } => {
                let pending = Pending { position, value: None, expires_at: None };
                state.pending.entry(space.clone()).or_default().insert(key.clone(), pending);
            }
            _ => {}
        }
        let at = Instant::now();
        let database_durable = state.database_durable;
        let place = match &op {
            Op::Append(append) => state.journaling.offer(position, append, database_durable),
            _ => {
                state.journaling.pass(position);
                None
            }
        };
        if place.is_some() && urgency == Urgency::Sync {
            // The journal makes the change durable, so the database need not sync at once.
            urgency = Urgency::Deferred;
            state.journaling.hurried(at);
        }
        state.bytes += bytes;
        state.most_urgent = state.most_urgent.max(urgency);
        state.queue.push_back(Queued { position, op, bytes, urgency, place, at });
        if urgency == Urgency::Sync
            && let Some(synced_at) = state.synced_at.take()
        {
            state.follows_closely = at.saturating_duration_since(synced_at) < limits::SPIN;
        }
        let is_due = urgency > Urgency::Deferred || state.bytes >= limits::EARLY_COMMIT_BYTES;
        if is_due {
            self.bell.store(true, Ordering::Release);
        }
        let wake = match state.writer {
            Writer::Parked => true,
            Writer::Gathering => is_due,
            Writer::Working => false,
        };
        if wake {
            state.writer = Writer::Working;
            drop(state);
            // Outside the lock, because the writer takes it at once.
            self.work.notify_one();
        }
        Ok(Position(position))
    }

    fn wait_for_progress<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.watchers += 1;
        state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.watchers -= 1;
        state
    }

    fn wake_writer(&self, state: &mut State) {
        self.bell.store(true, Ordering::Release);
        if state.writer != Writer::Working {
            state.writer = Writer::Working;
            self.work.notify_one();
        }
    }

    /// Waits until everything that is durable can be read.
    pub(crate) fn catch_up(&self) -> Answer<()> {
        let state = self.lock();
        // A stopped store can still be read up to what the database has; the next start reads the journal.
        if state.visible >= state.durable || !state.is_writing() {
            return Ok(());
        }
        let caught_up = self.wait_visible(state.durable, state);
        if self.lock().is_writing() { caught_up } else { Ok(()) }
    }

    /// Records a batch that was refused before it was queued: later batches of the run would leave a gap in its record.
    pub(crate) fn stop_run(&self, run_id: RunId, error: StoreError) {
        self.lock().stopped_runs.insert(run_id, error);
    }

    pub(crate) fn durable(&self, position: Position) -> BoxFuture<'static, Answer<()>> {
        let mut state = self.lock();
        let position = position.0;
        if let Some(answer) = state.settled(position) {
            return Box::pin(std::future::ready(answer));
        }
        let (sender, receiver) = oneshot::channel();
        state.waiters.push((position, sender));
        let mut wake = false;
        if !self.wake_journal(&mut state, position) && state.wanted_durable < position {
            state.wanted_durable = position;
            self.bell.store(true, Ordering::Release);
            wake = state.writer != Writer::Working;
            state.writer = Writer::Working;
        }
        drop(state);
        if wake {
            self.work.notify_one();
        }
        Box::pin(async move {
            receiver.await.unwrap_or_else(|_| Err(StoreError::failed("the store was closed before it answered")))
        })
    }

    /// Waits until everything pushed so far is committed.
    pub(crate) fn settle(&self) -> Answer<()> {
        let state = self.lock();
        self.wait_visible(state.last, state)
    }

    fn wait_visible(&self, target: u64, mut state: MutexGuard<'_, State>) -> Answer<()> {
        while state.visible < target {
            state.check()?;
            if state.wanted_visible < target {
                state.wanted_visible = target;
                self.wake_writer(&mut state);
            }
            state = self.wait_for_progress(state);
        }
        state.check()
    }

    /// A fact that is not written yet.
    pub(crate) fn pending(&self, space: &str, key: &str, now: i64) -> Option<PendingValue> {
        let state = self.lock();
        state.pending.get(space)?.get(key).map(|pending| pending.live(now))
    }

    /// All facts of a space that are not written yet.
    pub(crate) fn pending_space(&self, space: &str, now: i64) -> Vec<(String, PendingValue)> {
        let state = self.lock();
        let Some(facts) = state.pending.get(space) else { return Vec::new() };
        facts.iter().map(|(key, pending)| (key.clone(), pending.live(now))).collect()
    }

    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        self.wake_writer(&mut state);
        self.journal_bell.store(true, Ordering::Release);
        self.journal_work.notify_one();
    }

    /// Stops the store: all waiters receive the reason, and queued changes are dropped.
    pub(crate) fn poison(&self, error: StoreError) {
        let mut state = self.lock();
        let error = state.poisoned.get_or_insert(error).clone();
        let waiters = std::mem::take(&mut state.waiters);
        let queue = std::mem::take(&mut state.queue);
        state.bytes = 0;
        // `get` must not return a value that will never be written.
        state.pending.clear();
        self.progress.notify_all();
        self.wake_writer(&mut state);
        self.journal_bell.store(true, Ordering::Release);
        self.journal_work.notify_one();
        drop(state);
        for queued in queue {
            queued.op.refuse(&error);
        }
        for (_, waiter) in waiters {
            // The caller may have stopped waiting.
            drop(waiter.send(Err(error.clone())));
        }
    }

    /// Handles a full disk: queues retryable changes again and notifies all waiters. Returns whether the store is
    /// closing, in which case nothing is retried.
    pub(crate) fn disk_full(&self, ops: Vec<Queued>, error: StoreError) -> bool {
        let mut state = self.lock();
        for queued in ops.into_iter().rev() {
            state.most_urgent = state.most_urgent.max(queued.urgency);
            state.queue.push_front(queued);
        }
        state.full = Some(Full { error: error.clone(), retry_at: Instant::now() + limits::RETRY_FULL });
        let waiters = std::mem::take(&mut state.waiters);
        let is_closing = state.closing;
        self.progress.notify_all();
        drop(state);
        for (_, waiter) in waiters {
            drop(waiter.send(Err(error.clone())));
        }
        is_closing
    }

    /// How many rejected batches are remembered.
    pub(crate) fn rejected(&self) -> usize {
        self.lock().rejected.len()
    }

    /// Up to where everything is committed.
    pub(crate) fn visible(&self) -> u64 {
        self.lock().visible
    }

    /// Whether changes are being written: the store is not poisoned, and the first queued change has not waited long.
    pub(crate) fn writable(&self) -> Answer<()> {
        let state = self.lock();
        state.check()?;
        match state.queue.front().map(|oldest| oldest.at.elapsed()) {
            Some(waited) if waited >= limits::STALLED => {
                Err(StoreError::failed(format!("a change has waited for {} ms to be written", waited.as_millis())))
            }
            _ => Ok(()),
        }
    }

    /// Neither poisoned nor out of room.
    pub(crate) fn is_writing(&self) -> bool {
        self.lock().is_writing()
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.lock().poisoned.is_some()
    }

    fn tell_durable(&self, mut state: MutexGuard<'_, State>, upto: u64, by_journal: bool) {
        state.durable = state.durable.max(upto);
        if state.waiters.is_empty() {
            return;
        }
        let now = Some(Instant::now());
        if by_journal {
            state.journaling.synced_at = now;
        } else {
            state.synced_at = now;
        }
        let waiters = std::mem::take(&mut state.waiters);
        let mut answers = Vec::with_capacity(waiters.len());
        for (position, waiter) in waiters {
            match state.settled(position) {
                Some(answer) => answers.push((waiter, answer)),
                None => state.waiters.push((position, waiter)),
            }
        }
        let durable = state.durable;
        let more = by_journal && state.journal_parked && state.journaling.is_wanted(durable);
        drop(state);
        if more {
            self.journal_work.notify_one();
        }
        // Outside the lock, because the woken threads will take it.
        for (waiter, answer) in answers {
            // The caller may have stopped waiting; the written change stays.
            drop(waiter.send(answer));
        }
    }
}

impl State {
    fn check(&self) -> Answer<()> {
        let full = || self.full.as_ref().map(|full| full.error.clone());
        self.poisoned.clone().or_else(full).map_or(Ok(()), Err)
    }

    fn is_writing(&self) -> bool {
        self.poisoned.is_none() && self.full.is_none()
    }

    /// The answer of `durable`, if it is known.
    fn settled(&self, position: u64) -> Option<Answer<()>> {
        if let Some(error) = &self.poisoned {
            return Some(Err(error.clone()));
        }
        if position > self.last {
            return Some(Err(StoreError::failed(format!("nothing was appended at position {position}"))));
        }
        if position > self.durable {
            return self.full.as_ref().map(|full| Err(full.error.clone()));
        }
        Some(self.rejected.get(&position).cloned().map_or(Ok(()), Err))
    }
}

impl Pending {
    fn live(&self, now: i64) -> PendingValue {
        if self.expires_at.is_some_and(|at| at <= now) { None } else { self.value.clone() }
    }
}
