//! What is queued for the group commit: order, waiting callers, back-pressure, and facts that are set but not written.
//! Contains no SQL.

use crate::limits;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};
use tokio::sync::oneshot;
use toolyard_engine::{
    Blob, BoxFuture,
    store::{Frame, Owner, Position, RunRow, StoreError},
};
use toolyard_protocol::RunId;

pub(crate) type Answer<T> = Result<T, StoreError>;

/// One change, waiting to be written.
pub(crate) enum Op {
    Append(Append),
    /// `value` is `None` for a fact that is removed.
    Fact(Fact),
}

pub(crate) struct Append {
    pub(crate) run_id: RunId,
    pub(crate) frames: Vec<Frame>,
    pub(crate) blobs: Vec<Blob>,
    pub(crate) row: Option<RunRow>,
    pub(crate) release: bool,
    /// Large blobs on their way to where they are kept.
    pub(crate) uploads: Vec<oneshot::Receiver<Answer<()>>>,
}

impl Append {
    /// Whether the run has no holder afterwards.
    pub(crate) fn ends_hold(&self) -> bool {
        self.release || self.row.as_ref().is_some_and(|row| row.status.is_final())
    }
}

pub(crate) struct Fact {
    pub(crate) space: String,
    pub(crate) key: String,
    pub(crate) value: Option<Vec<u8>>,
    /// Microseconds since 1970.
    pub(crate) until: Option<i64>,
}

pub(crate) struct Queued {
    pub(crate) position: u64,
    pub(crate) op: Op,
    pub(crate) bytes: usize,
    at: Instant,
}

/// Changes that are written together.
pub(crate) type Part = Vec<Arc<Queued>>;

struct Pending {
    position: u64,
    value: Option<Vec<u8>>,
    until: Option<i64>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Queued>,
    /// Of everything that is not written, including what the writer holds.
    bytes: usize,
    last: u64,
    /// Everything up to here is written, and so visible and durable, or was refused.
    done: u64,
    /// Somebody waits for everything up to here.
    wanted: u64,
    waiters: Vec<(u64, oneshot::Sender<Answer<()>>)>,
    /// Wait for room.
    crowd: Vec<oneshot::Sender<()>>,
    pending: BTreeMap<String, BTreeMap<String, Pending>>,
    rejected: BTreeMap<u64, StoreError>,
    stopped_runs: HashMap<RunId, StoreError>,
    /// This owner was fenced.
    fenced: Option<StoreError>,
    /// Since when the server cannot be used, and why.
    away: Option<(Instant, String)>,
    is_closing: bool,
    /// The writer's thread sleeps until it is woken.
    is_resting: bool,
    /// A caller's thread sent a group, and the writer's is to wait for the answer.
    is_handed_over: bool,
}

impl State {
    fn check(&self) -> Answer<()> {
        if let Some(error) = &self.fenced {
            return Err(error.clone());
        }
        match &self.away {
            Some((since, why)) if since.elapsed() >= limits::AWAY_PATIENCE => Err(away(since, why)),
            _ => Ok(()),
        }
    }
}

fn away(since: &Instant, why: &str) -> StoreError {
    StoreError::failed(format!("the database could not be reached for {} s: {why}", since.elapsed().as_secs()))
}

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Wakes the writer's thread.
    work: Condvar,
}

impl Queue {
    // Nothing panics while the state is half-changed, so a poisoned lock is simply taken.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change at the end. `Err(receiver)` when there is no room: wait for it and try again.
    #[allow(clippy::type_complexity)]
    pub(crate) fn push(&self, op: Op, bytes: usize) -> Result<Answer<Position>, (Op, oneshot::Receiver<()>)> {
        let mut state = self.lock();
        if let Err(error) = state.check() {
            return Ok(Err(error));
        }
        if let Op::Append(append) = &op
            && let Some(error) = state.stopped_runs.get(&append.run_id)
        {
            return Ok(Err(error.clone()));
        }
        if state.bytes > 0 && state.bytes.saturating_add(bytes) > limits::QUEUE_BYTES {
            let (sender, receiver) = oneshot::channel();
            state.crowd.push(sender);
            return Err((op, receiver));
        }
        state.last += 1;
        let position = state.last;
        if let Op::Fact(fact) = &op {
            let pending = Pending { position, value: fact.value.clone(), until: fact.until };
            state.pending.entry(fact.space.clone()).or_default().insert(fact.key.clone(), pending);
        }
        state.bytes += bytes;
        state.queue.push_back(Queued { position, op, bytes, at: Instant::now() });
        // What somebody waits for is announced by `written`, or that caller commits it. Everything else the writer's
        // thread finds when it next looks.
        let wakes = state.is_resting || state.bytes >= limits::EARLY_COMMIT_BYTES;
        drop(state);
        if wakes {
            self.work.notify_one();
        }
        Ok(Ok(Position(position)))
    }

    /// Records a batch that was refused before it was queued: later batches of the run would leave a gap in its record.
    pub(crate) fn stop_run(&self, run_id: RunId, error: StoreError) {
        self.lock().stopped_runs.insert(run_id, error);
    }

    /// A run that was claimed goes on.
    pub(crate) fn resume_run(&self, run_id: RunId) {
        self.lock().stopped_runs.remove(&run_id);
    }

    /// Answers when everything up to a position is written.
    pub(crate) fn written(&self, position: u64) -> BoxFuture<'static, Answer<()>> {
        let mut state = self.lock();
        let known = if let Some(error) = state.rejected.get(&position) {
            Some(Err(error.clone()))
        } else if position <= state.done {
            Some(Ok(()))
        } else if position > state.last {
            Some(Err(StoreError::failed(format!("nothing was appended at position {position}"))))
        } else {
            state.check().err().map(Err)
        };
        if let Some(answer) = known {
            return Box::pin(std::future::ready(answer));
        }
        let (sender, receiver) = oneshot::channel();
        state.waiters.push((position, sender));
        state.wanted = state.wanted.max(position);
        drop(state);
        self.work.notify_one();
        Box::pin(async move {
            receiver.await.unwrap_or_else(|_| Err(StoreError::failed("the store was closed before it answered")))
        })
    }

    /// The position of the newest change.
    pub(crate) fn last(&self) -> u64 {
        self.lock().last
    }

    /// The value of a fact that is set and not written; the inner `None` means removed.
    pub(crate) fn pending(&self, space: &str, key: &str, now: i64) -> Option<Option<Vec<u8>>> {
        let state = self.lock();
        let pending = state.pending.get(space)?.get(key)?;
        Some(pending.value.clone().filter(|_| pending.until.is_none_or(|until| until > now)))
    }

    /// All facts of a space that are set and not written.
    pub(crate) fn pending_space(&self, space: &str, now: i64) -> Vec<(String, Option<Vec<u8>>)> {
        let state = self.lock();
        let Some(pending) = state.pending.get(space) else { return Vec::new() };
        let live = |fact: &Pending| fact.value.clone().filter(|_| fact.until.is_none_or(|until| until > now));
        pending.iter().map(|(key, fact)| (key.clone(), live(fact))).collect()
    }

    pub(crate) fn writable(&self) -> Answer<()> {
        let state = self.lock();
        state.check()?;
        match &state.away {
            Some((since, why)) => Err(away(since, why)),
            None => Ok(()),
        }
    }

    pub(crate) fn close(&self) {
        self.lock().is_closing = true;
        self.work.notify_one();
    }

    /// Ends the owner: nothing of it is written any more.
    pub(crate) fn fence(&self, owner: &Owner) {
        let error = StoreError::Fenced(owner.clone());
        let mut state = self.lock();
        state.fenced = Some(error.clone());
        state.queue.clear();
        state.bytes = 0;
        let (waiters, crowd) = (std::mem::take(&mut state.waiters), std::mem::take(&mut state.crowd));
        drop(state);
        // A caller that stopped waiting needs no answer.
        waiters.into_iter().for_each(|(_, waiter)| drop(waiter.send(Err(error.clone()))));
        wake(crowd);
        self.work.notify_one();
    }

    pub(crate) fn is_fenced(&self) -> Option<StoreError> {
        self.lock().fenced.clone()
    }
}

/// The writer's side.
impl Queue {
    /// Waits until there is something to write. `false` when the store is closed or fenced.
    pub(crate) fn wait_for_work(&self) -> bool {
        let mut state = self.lock();
        let mut active_at = Instant::now();
        loop {
            if state.fenced.is_some() {
                return false;
            }
            if std::mem::take(&mut state.is_handed_over) {
                return true;
            }
            let wait = match state.queue.front() {
                None if state.is_closing => return false,
                None if active_at.elapsed() >= limits::REST_AFTER => {
                    state.is_resting = true;
                    state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.is_resting = false;
                    active_at = Instant::now();
                    continue;
                }
                None => limits::RIDE_DELAY,
                Some(oldest) => {
                    let is_due = state.is_closing
                        || oldest.position <= state.wanted
                        || state.bytes >= limits::EARLY_COMMIT_BYTES;
                    let waited = oldest.at.elapsed();
                    if is_due || waited >= limits::RIDE_DELAY {
                        return true;
                    }
                    limits::RIDE_DELAY - waited
                }
            };
            (state, _) = self.work.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next changes to be written together. Called by the thread that has the writer, so that groups are written in
    /// order.
    pub(crate) fn take(&self) -> Vec<Queued> {
        take_group(&mut self.lock())
    }

    /// The same for a caller who is alone in waiting for a position.
    pub(crate) fn take_for(&self, position: u64) -> Option<Vec<Queued>> {
        let mut state = self.lock();
        let is_ready = state.waiters.is_empty() && !state.is_closing && state.fenced.is_none() && state.away.is_none();
        let has_upload = |queued: &Queued| matches!(&queued.op, Op::Append(append) if !append.uploads.is_empty());
        if !is_ready || position <= state.done || state.queue.is_empty() || state.queue.iter().any(has_upload) {
            return None;
        }
        Some(take_group(&mut state))
    }

    /// The writer's thread waits for the answer of what a caller's thread sent.
    pub(crate) fn hand_over(&self) {
        self.lock().is_handed_over = true;
        self.work.notify_one();
    }

    /// A group was written, except for changes that were refused.
    pub(crate) fn wrote(&self, group: &Part, mut refused: BTreeMap<u64, StoreError>) {
        let mut state = self.lock();
        for Queued { position, op, bytes, .. } in group.iter().map(Arc::as_ref) {
            state.done = state.done.max(*position);
            state.bytes = state.bytes.saturating_sub(*bytes);
            match op {
                Op::Append(append) => {
                    if let Some(error) = refused.get(position) {
                        state.stopped_runs.insert(append.run_id, error.clone());
                    }
                }
                Op::Fact(fact) => state.forget(fact, *position),
            }
        }
        // What is queued of a run whose batch was refused is refused as well: its record would have a hole.
        if !refused.is_empty() {
            let State { queue, stopped_runs, .. } = &mut *state;
            let mut skipped = Vec::new();
            queue.retain(|queued| match &queued.op {
                Op::Append(append) => match stopped_runs.get(&append.run_id) {
                    Some(error) => {
                        skipped.push((queued.position, queued.bytes, error.clone()));
                        false
                    }
                    None => true,
                },
                Op::Fact(_) => true,
            });
            for (position, bytes, error) in skipped {
                state.bytes = state.bytes.saturating_sub(bytes);
                refused.insert(position, error);
            }
        }
        state.rejected.append(&mut refused);
        while state.rejected.len() > limits::MAX_REJECTED {
            state.rejected.pop_first();
        }
        // Positions are written in order. One that was skipped lies behind the others only if it was refused.
        if state.queue.is_empty() && group.last().is_some() {
            let newest = state.rejected.last_key_value().map_or(0, |(position, _)| *position);
            state.done = state.done.max(newest.min(state.last));
        }
        state.answer();
    }

    /// The server went away, or came back.
    pub(crate) fn set_away(&self, why: Option<String>) {
        let mut state = self.lock();
        match (why, &mut state.away) {
            (None, away) => *away = None,
            (Some(why), Some((_, known))) => *known = why,
            (Some(why), away @ None) => *away = Some((Instant::now(), why)),
        }
        if let Err(error) = state.check() {
            // What is queued stays queued, in order, and is written once the server is back.
            let waiters = std::mem::take(&mut state.waiters);
            waiters.into_iter().for_each(|(_, waiter)| drop(waiter.send(Err(error.clone()))));
        }
    }
}

impl State {
    /// The written fact is no longer pending, unless it was set again meanwhile.
    fn forget(&mut self, fact: &Fact, position: u64) {
        if let Some(space) = self.pending.get_mut(&fact.space) {
            if space.get(&fact.key).is_some_and(|pending| pending.position <= position) {
                space.remove(&fact.key);
            }
            if space.is_empty() {
                self.pending.remove(&fact.space);
            }
        }
    }

    /// Answers callers whose position is settled.
    fn answer(&mut self) {
        let (done, rejected) = (self.done, &self.rejected);
        let mut waiting = Vec::new();
        for (position, waiter) in self.waiters.drain(..) {
            match rejected.get(&position) {
                Some(error) => drop(waiter.send(Err(error.clone()))),
                None if position <= done => drop(waiter.send(Ok(()))),
                None => waiting.push((position, waiter)),
            }
        }
        self.waiters = waiting;
        wake(std::mem::take(&mut self.crowd));
    }
}

/// Lets callers that wait for room try again. One that stopped waiting is no longer there.
fn wake(crowd: Vec<oneshot::Sender<()>>) {
    for waiter in crowd {
        if waiter.send(()).is_err() {
            tracing::trace!("a caller stopped waiting for room");
        }
    }
}

fn take_group(state: &mut State) -> Vec<Queued> {
    let mut group = Vec::new();
    let mut bytes = 0;
    while let Some(next) = state.queue.pop_front() {
        if bytes > 0 && bytes + next.bytes > limits::GROUP_BYTES {
            state.queue.push_front(next);
            break;
        }
        bytes += next.bytes;
        group.push(next);
    }
    group
}
