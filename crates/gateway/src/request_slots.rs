//! Request slots: how many requests run at the same time and which wait, in three lanes with separate limits.
//!
//! The *ordinary* lane is for calls. The *express* lane is for requests that must work while calls hang: health,
//! approvals, cancellation, and the answers that running calls wait for. The *waiting* lane is for requests that wait
//! for a person.
//!
//! Within a lane, a source (a connection, or the HTTP requests of one address) may hold at most as many slots as are
//! still free, and a principal at most three times as many. One source alone gets half of a lane, the next one half of
//! the rest, so that nobody can take all of it. When no shared slots are left, a source that holds few gets one of the
//! reserve. Waiting requests are served in turns of their sources, not by arrival.

use crate::{
    admission::busy,
    auth::Origin,
    gateway::Gateway,
    settings::{
        MAX_EXPRESS_REQUESTS, MAX_RUNNING_REQUESTS, MAX_WAITING_BYTES, MAX_WAITING_FOR_PEOPLE, MAX_WAITING_REQUESTS,
        RESERVED_SLOTS, RESERVED_SLOTS_PER_SOURCE,
    },
};
use axum::response::Response;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::oneshot;
use toolyard_service::Lane;

/// How many times as much as is still free a principal may hold.
const PRINCIPAL_SHARE: usize = 3;

/// The slots of all lanes.
pub(crate) struct RequestSlots {
    express: Arc<Pool>,
    ordinary: Arc<Pool>,
    waiting: Arc<Pool>,
}

impl Default for RequestSlots {
    fn default() -> Self {
        let pool = |running, waiting| Pool::new(Limits { running, waiting, reserve: RESERVED_SLOTS });
        Self {
            express: pool(MAX_EXPRESS_REQUESTS, MAX_EXPRESS_REQUESTS),
            ordinary: pool(MAX_RUNNING_REQUESTS, MAX_WAITING_REQUESTS),
            waiting: pool(MAX_WAITING_FOR_PEOPLE, 0),
        }
    }
}

/// Identifies requests that are counted together. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RequestGroup {
    principal: Arc<str>,
    source: Arc<str>,
}

impl RequestGroup {
    pub(crate) fn new(principal: &str, source: &str) -> Self {
        Self { principal: principal.into(), source: source.into() }
    }
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    running: usize,
    waiting: usize,
    reserve: usize,
}

/// The slots of one lane.
struct Pool {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Requests on shared slots, and on slots of the reserve.
    running: usize,
    reserved: usize,
    waiting: usize,
    waiting_bytes: usize,
    next_ticket: u64,
    principals: HashMap<Arc<str>, usize>,
    sources: HashMap<Arc<str>, Source>,
    /// Sources with waiting requests, in the order of their turns.
    turns: VecDeque<Arc<str>>,
}

struct Source {
    principal: Arc<str>,
    running: usize,
    waiting_bytes: usize,
    queue: VecDeque<Waiter>,
}

struct Waiter {
    ticket: u64,
    bytes: usize,
    go: oneshot::Sender<Permit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Shared,
    Reserved,
}

/// A slot of a request in flight; released when dropped.
pub(crate) struct Permit {
    pool: Arc<Pool>,
    share: RequestGroup,
    kind: Kind,
    /// Set once the slot was released under the lock.
    is_void: bool,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.is_void {
            self.pool.give_back(&self.share, self.kind);
        }
    }
}

/// The slot of a request.
pub(crate) enum RequestSlot {
    /// The request may start.
    Now(Permit),
    /// The request is queued.
    Queued(QueuedSlot),
}

/// A position in the queue, released on drop.
pub(crate) struct QueuedSlot {
    pool: Arc<Pool>,
    source: Arc<str>,
    ticket: u64,
    turn: Option<oneshot::Receiver<Permit>>,
}

impl QueuedSlot {
    pub(crate) async fn turn(mut self) -> Option<Permit> {
        let permit = self.turn.as_mut()?.await.ok();
        self.turn = None;
        permit
    }
}

impl Drop for QueuedSlot {
    fn drop(&mut self) {
        if self.turn.is_some() {
            self.pool.leave_queue(&self.source, self.ticket);
        }
    }
}

impl Pool {
    fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn permit(self: &Arc<Self>, share: RequestGroup, kind: Kind) -> Permit {
        Permit { pool: self.clone(), share, kind, is_void: false }
    }

    /// A slot, or `None` when too much waits already.
    fn take(self: &Arc<Self>, share: &RequestGroup, bytes: usize) -> Option<RequestSlot> {
        let mut state = self.lock();
        let has_queue = state.sources.get(&share.source).is_some_and(|source| !source.queue.is_empty());
        if !has_queue && let Some(kind) = state.start(self.limits, share) {
            return Some(RequestSlot::Now(self.permit(share.clone(), kind)));
        }
        let (free, free_bytes) =
            (self.limits.waiting.saturating_sub(state.waiting), MAX_WAITING_BYTES.saturating_sub(state.waiting_bytes));
        let own = state.sources.get(&share.source);
        let (own_waiting, own_bytes) = own.map_or((0, 0), |own| (own.queue.len(), own.waiting_bytes));
        if own_waiting >= free || own_bytes.saturating_add(bytes) > free_bytes {
            return None;
        }
        let (go, turn) = oneshot::channel();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting += 1;
        state.waiting_bytes += bytes;
        let own = state.source(share);
        own.waiting_bytes += bytes;
        own.queue.push_back(Waiter { ticket, bytes, go });
        if own.queue.len() == 1 {
            state.turns.push_back(share.source.clone());
        }
        Some(RequestSlot::Queued(QueuedSlot {
            pool: self.clone(),
            source: share.source.clone(),
            ticket,
            turn: Some(turn),
        }))
    }

    fn give_back(self: &Arc<Self>, share: &RequestGroup, kind: Kind) {
        let mut undelivered = Vec::new();
        {
            let mut state = self.lock();
            state.end(share, kind);
            self.serve(&mut state, &mut undelivered);
        }
        // Dropped outside the lock.
        drop(undelivered);
    }

    /// Starts waiting requests in turns of their sources, while slots are free.
    fn serve(self: &Arc<Self>, state: &mut State, undelivered: &mut Vec<Permit>) {
        let mut passed = 0;
        while passed < state.turns.len() {
            let Some(name) = state.turns.pop_front() else { return };
            let Some(principal) = state.sources.get(&name).map(|source| source.principal.clone()) else { continue };
            let share = RequestGroup { principal, source: name.clone() };
            let Some(kind) = state.start(self.limits, &share) else {
                state.turns.push_back(name);
                passed += 1;
                continue;
            };
            let Some(waiter) = state.next_waiter(&name) else {
                state.end(&share, kind);
                continue;
            };
            if let Err(mut permit) = waiter.go.send(self.permit(share.clone(), kind)) {
                // The waiting request was cancelled.
                permit.is_void = true;
                undelivered.push(permit);
                state.end(&share, kind);
            }
            if state.sources.get(&name).is_some_and(|source| !source.queue.is_empty()) {
                state.turns.push_back(name);
            }
        }
    }

    fn leave_queue(&self, source: &Arc<str>, ticket: u64) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(own) = state.sources.get_mut(source) else { return };
        let Some(at) = own.queue.iter().position(|waiter| waiter.ticket == ticket) else { return };
        if let Some(waiter) = own.queue.remove(at) {
            own.waiting_bytes -= waiter.bytes;
            state.waiting -= 1;
            state.waiting_bytes -= waiter.bytes;
        }
        if own.queue.is_empty() {
            state.turns.retain(|name| name != source);
        }
        state.forget_if_idle(source);
    }
}

impl State {
    fn source(&mut self, share: &RequestGroup) -> &mut Source {
        self.sources.entry(share.source.clone()).or_insert_with(|| Source {
            principal: share.principal.clone(),
            running: 0,
            waiting_bytes: 0,
            queue: VecDeque::new(),
        })
    }

    /// Takes a slot, if the shares allow it.
    fn start(&mut self, limits: Limits, share: &RequestGroup) -> Option<Kind> {
        let free = limits.running.saturating_sub(self.running);
        let of_principal = self.principals.get(&share.principal).copied().unwrap_or_default();
        let of_source = self.sources.get(&share.source).map_or(0, |source| source.running);
        let kind = if of_source < free && of_principal < free.saturating_mul(PRINCIPAL_SHARE) {
            Kind::Shared
        } else if of_source < RESERVED_SLOTS_PER_SOURCE && self.reserved < limits.reserve {
            Kind::Reserved
        } else {
            return None;
        };
        match kind {
            Kind::Shared => self.running += 1,
            Kind::Reserved => self.reserved += 1,
        }
        *self.principals.entry(share.principal.clone()).or_default() += 1;
        self.source(share).running += 1;
        Some(kind)
    }

    fn end(&mut self, share: &RequestGroup, kind: Kind) {
        match kind {
            Kind::Shared => self.running -= 1,
            Kind::Reserved => self.reserved -= 1,
        }
        if let Some(count) = self.principals.get_mut(&share.principal) {
            *count -= 1;
            if *count == 0 {
                self.principals.remove(&share.principal);
            }
        }
        if let Some(source) = self.sources.get_mut(&share.source) {
            source.running -= 1;
        }
        self.forget_if_idle(&share.source);
    }

    fn next_waiter(&mut self, source: &Arc<str>) -> Option<Waiter> {
        let own = self.sources.get_mut(source)?;
        let waiter = own.queue.pop_front()?;
        own.waiting_bytes -= waiter.bytes;
        self.waiting -= 1;
        self.waiting_bytes -= waiter.bytes;
        Some(waiter)
    }

    fn forget_if_idle(&mut self, source: &Arc<str>) {
        if self.sources.get(source).is_some_and(|own| own.running == 0 && own.queue.is_empty()) {
            self.sources.remove(source);
        }
    }
}

impl Gateway {
    /// A slot for a request, or `None` when too much waits already.
    pub(crate) fn slot(&self, share: &RequestGroup, lane: Lane, bytes: usize) -> Option<RequestSlot> {
        let request_slots = &self.inner.request_slots;
        let pool = match lane {
            Lane::Express => &request_slots.express,
            Lane::Ordinary => &request_slots.ordinary,
            Lane::Waiting => &request_slots.waiting,
        };
        pool.take(share, bytes)
    }

    /// A slot for an HTTP request that has shown the shared credential; waits its turn.
    pub(crate) async fn http_place(&self, origin: &Origin, lane: Lane, bytes: usize) -> Result<Permit, Response> {
        let share = RequestGroup::new("operator", &format!("http:{}", origin.address));
        match self.slot(&share, lane, bytes) {
            Some(RequestSlot::Now(permit)) => Ok(permit),
            Some(RequestSlot::Queued(slot)) => slot.turn().await.ok_or_else(|| busy("the gateway is stopping")),
            None => Err(busy("too many requests are waiting to start; try again")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(running: usize, waiting: usize) -> Arc<Pool> {
        Pool::new(Limits { running, waiting, reserve: 8 })
    }

    /// Takes slots at once until there are no more.
    fn hang(pool: &Arc<Pool>, share: &RequestGroup) -> Vec<Permit> {
        let mut held = Vec::new();
        while let Some(RequestSlot::Now(permit)) = pool.take(share, 1) {
            held.push(permit);
        }
        held
    }

    #[test]
    fn no_source_takes_everything_and_the_reserve_is_for_those_that_hold_little() {
        let pool = pool(1024, 0);
        let mut held = Vec::new();
        let mut counts = Vec::new();
        for n in 0..4 {
            let mine = hang(&pool, &RequestGroup::new("operator", &format!("c{n}")));
            counts.push(mine.len());
            held.extend(mine);
        }
        assert_eq!(counts[0], 512, "one source alone gets half");
        assert!(counts.iter().all(|count| *count >= 1), "{counts:?}");
        assert!(held.len() <= 768 + 8, "a principal leaves request_slots for others: {counts:?}");
        let other = hang(&pool, &RequestGroup::new("device:d", "c9"));
        assert!(other.len() >= 64, "{}", other.len());
        drop((held, other));
        let state = pool.lock();
        assert_eq!((state.running, state.reserved, state.sources.len(), state.principals.len()), (0, 0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_wait_are_served_by_turns() {
        let pool = Pool::new(Limits { running: 1, waiting: 100, reserve: 0 });
        let (loud, quiet) = (RequestGroup::new("a", "loud"), RequestGroup::new("b", "quiet"));
        let mut held = hang(&pool, &loud);
        let mut queued = Vec::new();
        for share in [&loud, &loud, &loud, &quiet] {
            match pool.take(share, 1) {
                Some(RequestSlot::Queued(slot)) => queued.push(slot),
                Some(RequestSlot::Now(permit)) => held.push(permit),
                None => panic!("there is room to wait"),
            }
        }
        let last = queued.pop().unwrap();
        let first = queued.remove(0);
        held.clear();
        drop(first.turn().await.unwrap());
        let other = tokio::time::timeout(std::time::Duration::from_secs(1), last.turn()).await;
        assert!(other.is_ok_and(|permit| permit.is_some()), "the quiet one does not wait for all of the loud one's");
        drop(queued);
        let state = pool.lock();
        assert_eq!((state.running, state.waiting, state.turns.len()), (0, 0, 0));
    }

    #[test]
    fn what_waits_is_bounded_for_each_source() {
        let pool = Pool::new(Limits { running: 2, waiting: 100, reserve: 0 });
        let loud = RequestGroup::new("a", "loud");
        let mut waiting = Vec::new();
        while let Some(slot) = pool.take(&loud, 1) {
            waiting.push(slot);
        }
        assert_eq!(pool.lock().waiting, 50, "half of all request_slots to wait");
        assert!(pool.take(&RequestGroup::new("b", "quiet"), 1).is_some());
        drop(waiting);
        assert_eq!(pool.lock().waiting_bytes, 0);
    }

    #[test]
    fn a_place_nobody_waits_for_any_more_is_passed_on() {
        let pool = pool(1, 100);
        let (a, b) = (RequestGroup::new("a", "a"), RequestGroup::new("b", "b"));
        let held = hang(&pool, &a);
        let gone = pool.take(&a, 1);
        drop(gone);
        assert_eq!(pool.lock().waiting, 0);
        drop(held);
        assert!(matches!(pool.take(&b, 1), Some(RequestSlot::Now(_))));
    }
}
