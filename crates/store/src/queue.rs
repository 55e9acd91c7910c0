//! What lies between callers and the writer thread: the order of changes, who waits for what, back-pressure, and the
//! facts that are already set but not yet written. Knows no SQL.

use crate::{
    blob_files::StoredBlob,
    journal::Place,
    journaling::{Journaling, Piece},
    limits,
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender},
    },
    time::{Duration, Instant},
};
use tokio::sync::oneshot;
use toolyard_engine::{
    BoxFuture,
    store::{Lease, LedgerEntry, Position, RunRow, StoreError},
};
use toolyard_protocol::RunId;

pub(crate) type Answer<T> = Result<T, StoreError>;
pub(crate) type Reply<T> = SyncSender<Answer<T>>;

/// One change, waiting to be written.
pub(crate) enum Op {
    Append(Append),
    Put(Fact),
    Remove { space: String, key: String },
    PutIfAbsent { fact: Fact, reply: Reply<Option<Vec<u8>>> },
    Claim { run_id: RunId, expected: Option<Lease>, new: Lease, reply: Reply<bool> },
    Ledger(LedgerOp),
}

pub(crate) struct Append {
    pub(crate) run_id: RunId,
    pub(crate) frames: Vec<StoredFrame>,
    pub(crate) blobs: Blobs,
    pub(crate) row: Option<RunRow>,
}

/// A frame as it goes into the database.
pub(crate) struct StoredFrame {
    pub(crate) seq: u32,
    pub(crate) kind: i64,
    pub(crate) payload: Vec<u8>,
    pub(crate) chain: [u8; 32],
}

/// A batch's blobs: ready, or still being compressed and written elsewhere.
pub(crate) enum Blobs {
    Ready(Vec<StoredBlob>),
    Pending(Receiver<Answer<Vec<StoredBlob>>>),
    Failed(StoreError),
}

pub(crate) struct Fact {
    pub(crate) space: String,
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
    /// Microseconds since 1970.
    pub(crate) expires_at: Option<i64>,
}

/// The entry is made on the caller's thread, between a question and an answer, because the maker cannot travel.
pub(crate) struct LedgerOp {
    pub(crate) ask: SyncSender<Option<LedgerEntry>>,
    pub(crate) answer: Receiver<(Vec<u8>, [u8; 32])>,
    pub(crate) reply: Reply<LedgerEntry>,
}

pub(crate) struct Queued {
    pub(crate) position: u64,
    pub(crate) op: Op,
    pub(crate) bytes: usize,
    pub(crate) urgency: Urgency,
    /// Where it stands in the journal, if it does.
    pub(crate) place: Option<Place>,
    at: Instant,
}

/// How soon a change must be written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// With others, or when it has waited long enough.
    Ride,
    /// At once, without a sync.
    Commit,
    /// At once, with a sync.
    Sync,
}

/// What the writer does next.
pub(crate) enum Work {
    Write {
        ops: Vec<Queued>,
        sync: bool,
    },
    Sync {
        upto: u64,
    },
    /// There has been nothing to do for a while.
    Rest,
    Close,
    /// The store was poisoned by somebody else: no more writing.
    Stop,
}

/// What became of a transaction.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) upto: u64,
    /// Whether a sync follows at once.
    pub(crate) sync: bool,
    pub(crate) bytes: usize,
    pub(crate) rejected: Vec<(u64, RunId, StoreError)>,
    pub(crate) claimed: Vec<RunId>,
    /// The last frames of runs whose record came to the database without the journal.
    pub(crate) heads: Vec<(RunId, u32)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    Working,
    /// Asleep until something happens.
    Parked,
    /// Asleep until the oldest change has waited long enough. Also when there is none yet: just after some work the
    /// writer sleeps no longer than a change may wait, so that a change nobody waits for need not wake it.
    Gathering,
}

struct State {
    queue: VecDeque<Queued>,
    /// Of everything not yet committed, including what the writer holds.
    bytes: usize,
    last: u64,
    visible: u64,
    durable: u64,
    /// What the database has synced; the journal may be further.
    database_durable: u64,
    journaling: Journaling,
    /// The journal's thread sleeps.
    journal_parked: bool,
    /// Up to where a sync is under way or done.
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
    closing: bool,
    /// When somebody was last told that a sync is done.
    synced_at: Option<Instant>,
    /// The last change that had to be synced came within [`limits::SPIN`] of that.
    follows_closely: bool,
    /// How many threads wait for progress: waking nobody costs a system call as well.
    watchers: usize,
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
                most_urgent: Urgency::Ride,
                writer: Writer::Working,
                waiters: Vec::new(),
                pending: BTreeMap::new(),
                rejected: HashMap::new(),
                stopped_runs: HashMap::new(),
                poisoned: None,
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

    /// Puts a change at the end. Waits while the queue is full; one that is larger than the queue goes in alone.
    pub(crate) fn push(&self, op: Op, bytes: usize, mut urgency: Urgency) -> Answer<Position> {
        let mut state = self.lock();
        loop {
            state.check()?;
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
            // The journal keeps that promise; the database has time.
            urgency = Urgency::Ride;
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
        let is_due = urgency > Urgency::Ride || state.bytes >= limits::EARLY_COMMIT_BYTES;
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
            // Outside the lock: the writer wants it at once.
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

    /// Has the journal synced up to a position; `false` if it cannot.
    fn wake_journal(&self, state: &mut State, position: u64) -> bool {
        if !state.journaling.want(position) {
            return false;
        }
        self.journal_bell.store(true, Ordering::Release);
        if state.journal_parked {
            state.journal_parked = false;
            self.journal_work.notify_one();
        }
        true
    }

    /// What the journal's thread writes next; sleeps until there is something. `None` when the store closes.
    pub(crate) fn next_piece(&self, mut spare: Vec<u8>) -> Option<Piece> {
        let mut state = self.lock();
        let mut spun = false;
        loop {
            state.journal_parked = false;
            // When the store closes the database is synced, which answers everybody.
            if state.poisoned.is_some() || state.closing {
                return None;
            }
            let durable = state.durable;
            if let Some(piece) = state.journaling.take(durable, &mut spare) {
                return Some(piece);
            }
            if !spun && let Some(until) = state.journaling.spin_until() {
                spun = true;
                self.journal_bell.store(false, Ordering::Release);
                drop(state);
                while !self.journal_bell.load(Ordering::Acquire) && Instant::now() < until {
                    std::hint::spin_loop();
                }
                state = self.lock();
                continue;
            }
            state.journal_parked = true;
            state = self.journal_work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Everything up to a position is on the disk, in the journal or in the database.
    pub(crate) fn journaled(&self, upto: u64, took: Duration) {
        let mut state = self.lock();
        state.journaling.rest(took);
        self.tell_durable(state, upto, true);
    }

    /// Hands a piece to the caller instead of the journal's thread: when nobody else waits, and a sync is quick here.
    pub(crate) fn lead(&self, position: Position) -> Option<Piece> {
        let mut state = self.lock();
        let durable = state.durable;
        let alone = state.waiters.is_empty() && state.poisoned.is_none() && !state.closing;
        if !alone || position.0 <= durable || !state.journaling.is_quick() || !state.journaling.want(position.0) {
            return None;
        }
        state.journaling.take(durable, &mut Vec::new())
    }

    /// Waits until everything that is durable can be read.
    pub(crate) fn catch_up(&self) -> Answer<()> {
        let state = self.lock();
        // A store that stopped can still be read, as far as the database goes; the journal waits for the next start.
        if state.visible >= state.durable || state.poisoned.is_some() {
            return Ok(());
        }
        let caught_up = self.wait_visible(state.durable, state);
        if self.is_poisoned() { Ok(()) } else { caught_up }
    }

    /// A batch that was refused before it was queued: the run's record would have a hole if it went on.
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
            receiver.await.unwrap_or_else(|_| Err(StoreError("the store was closed before it answered".into())))
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

    /// Nothing more will be written: everybody who waits hears why, and everything queued is dropped.
    pub(crate) fn poison(&self, error: StoreError) {
        let mut state = self.lock();
        let error = state.poisoned.get_or_insert(error).clone();
        let waiters = std::mem::take(&mut state.waiters);
        let queue = std::mem::take(&mut state.queue);
        state.bytes = 0;
        // `get` must not answer what will never be written.
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
            let _ = waiter.send(Err(error.clone()));
        }
    }

    /// The writer's next piece of work; sleeps until there is some. With `may_rest`, it is told when there is none for a
    /// while.
    pub(crate) fn next(&self, may_rest: bool) -> Work {
        let mut state = self.lock();
        let (mut spun, mut dozed) = (false, false);
        loop {
            state.writer = Writer::Working;
            if state.poisoned.is_some() {
                return Work::Stop;
            }
            let waited = state.queue.front().map(|oldest| oldest.at.elapsed());
            if let Some(waited) = waited
                && (state.is_due() || waited >= self.ride_delay)
            {
                return state.take();
            }
            if waited.is_none() && state.wanted_durable > state.sync_begun {
                state.sync_begun = state.visible;
                return Work::Sync { upto: state.visible };
            }
            if waited.is_none() && state.closing {
                return Work::Close;
            }
            if !spun && let Some(until) = state.spin_until() {
                spun = true;
                self.bell.store(false, Ordering::Release);
                drop(state);
                while !self.bell.load(Ordering::Acquire) && Instant::now() < until {
                    std::hint::spin_loop();
                }
                state = self.lock();
                continue;
            }
            if let Some(waited) = waited {
                state.writer = Writer::Gathering;
                let left = self.ride_delay - waited;
                state = self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            if !dozed {
                dozed = true;
                state.writer = Writer::Gathering;
                state = self.work.wait_timeout(state, self.ride_delay).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            state.writer = Writer::Parked;
            if may_rest {
                let (woken, timeout) =
                    self.work.wait_timeout(state, limits::IDLE_AFTER).unwrap_or_else(PoisonError::into_inner);
                state = woken;
                if timeout.timed_out() && state.writer == Writer::Parked {
                    state.writer = Writer::Working;
                    return Work::Rest;
                }
            } else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Everything up to a position is committed.
    pub(crate) fn written(&self, written: Written) {
        let mut state = self.lock();
        state.visible = state.visible.max(written.upto);
        if written.sync {
            state.sync_begun = state.sync_begun.max(written.upto);
        }
        state.bytes = state.bytes.saturating_sub(written.bytes);
        for (position, run_id, error) in written.rejected {
            state.rejected.insert(position, error.clone());
            state.stopped_runs.insert(run_id, error);
            state.journaling.forget(run_id);
        }
        for (run_id, seq) in written.heads {
            state.journaling.learn(run_id, seq);
        }
        for run_id in written.claimed {
            state.stopped_runs.remove(&run_id);
            state.journaling.forget(run_id);
        }
        if !state.pending.is_empty() {
            state.pending.retain(|_, facts| {
                facts.retain(|_, pending| pending.position > written.upto);
                !facts.is_empty()
            });
        }
        if state.watchers > 0 {
            self.progress.notify_all();
        }
    }

    /// How many rejected batches are remembered.
    pub(crate) fn rejected(&self) -> usize {
        self.lock().rejected.len()
    }

    /// Up to where everything is committed.
    pub(crate) fn visible(&self) -> u64 {
        self.lock().visible
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.lock().poisoned.is_some()
    }

    /// Whether the writer should write rather than sync.
    pub(crate) fn has_more(&self) -> bool {
        let state = self.lock();
        !state.queue.is_empty() && state.is_due()
    }

    /// The database has synced everything up to a position.
    pub(crate) fn synced(&self, upto: u64) {
        let mut state = self.lock();
        state.database_durable = state.database_durable.max(upto);
        self.tell_durable(state, upto, false);
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
        // Outside the lock: whoever wakes up here will want it.
        for (waiter, answer) in answers {
            let _ = waiter.send(answer);
        }
    }
}

impl State {
    fn check(&self) -> Answer<()> {
        self.poisoned.clone().map_or(Ok(()), Err)
    }

    /// What `durable` answers, if that is known already.
    fn settled(&self, position: u64) -> Option<Answer<()>> {
        if let Some(error) = &self.poisoned {
            return Some(Err(error.clone()));
        }
        if position > self.last {
            return Some(Err(StoreError(format!("nothing was appended at position {position}"))));
        }
        if position > self.durable {
            return None;
        }
        Some(self.rejected.get(&position).cloned().map_or(Ok(()), Err))
    }

    /// Until when it is worth looking for a change that follows closely on the last sync.
    fn spin_until(&self) -> Option<Instant> {
        self.synced_at.filter(|_| self.follows_closely).map(|at| at + limits::SPIN)
    }

    fn is_due(&self) -> bool {
        self.closing
            || self.most_urgent > Urgency::Ride
            || self.wanted_durable > self.sync_begun
            || self.wanted_visible > self.visible
            || self.bytes >= limits::EARLY_COMMIT_BYTES
    }

    fn take(&mut self) -> Work {
        let mut bytes = 0;
        let mut count = 0;
        for queued in &self.queue {
            if count > 0 && bytes + queued.bytes > limits::TRANSACTION_BYTES {
                break;
            }
            bytes += queued.bytes;
            count += 1;
        }
        let ops: Vec<Queued> = self.queue.drain(..count).collect();
        let sync = self.wanted_durable > self.sync_begun || ops.iter().any(|queued| queued.urgency == Urgency::Sync);
        self.most_urgent = self.queue.iter().map(|queued| queued.urgency).max().unwrap_or(Urgency::Ride);
        Work::Write { ops, sync }
    }
}

impl Pending {
    fn live(&self, now: i64) -> PendingValue {
        if self.expires_at.is_some_and(|at| at <= now) { None } else { self.value.clone() }
    }
}

impl Op {
    /// Tells whoever waits for this change that it will not happen.
    pub(crate) fn refuse(self, error: &StoreError) {
        match self {
            Self::PutIfAbsent { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Claim { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Ledger(LedgerOp { reply, .. }) => drop(reply.send(Err(error.clone()))),
            Self::Append(_) | Self::Put(_) | Self::Remove { .. } => {}
        }
    }
}
