//! [`MemoryStore`]: a [`Store`] in memory, for dry runs, replays and tests.
//!
//! It gives the same guarantees as other stores, except durability, and passes the same test suite. It has no files,
//! other processes or size limits.

use crate::{
    Blob, BoxFuture,
    store::{
        Batch, Frame, FrameVisitor, Head, Hints, LedgerEntry, LedgerMaker, LeftBehind, NewFact, NodeRow, NodeState,
        Owner, Position, RemovedBlobs, RunFilter, RunRow, Store, StoreError, StoredFact, Swap,
    },
};
use jiff::Timestamp;
use std::{
    collections::{BTreeMap, HashMap},
    ops::{Bound, ControlFlow},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;
use toolyard_protocol::{RunId, RunStatus};

/// The node of handles that are no nodes of their own.
const NODE: &str = "memory";
/// The secret of nodes that share a store in memory. It guards nothing that leaves the process.
const SHARED_SECRET: [u8; 32] = [77; 32];

/// How many rows [`Store::runs`] answers when the filter names no limit.
const DEFAULT_RUN_LIMIT: usize = 100;
/// The most rows [`Store::runs`] answers.
const MAX_RUN_LIMIT: usize = 10_000;

/// A store in memory: every batch is visible when `append` returns, and nothing is durable.
///
/// A handle is an owner of its own; [`MemoryStore::another`] opens a second one on the same contents, as another process
/// of the same node would, and [`MemoryStore::another_node`] one of another node.
pub struct MemoryStore {
    shared: Arc<Shared>,
    owner: Owner,
    is_node: bool,
}

struct Life {
    node: String,
    /// Whether it is a separate node, and the address that it announced.
    is_node: bool,
    address: Option<String>,
    state: NodeState,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ledger: Mutex<Vec<LedgerEntry>>,
    // Held while an entry is made, instead of the ledger itself: its maker may read the store, the ledger included.
    ledger_turn: Mutex<()>,
    hints: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    last: u64,
    poisoned: Option<StoreError>,
    frames: HashMap<RunId, BTreeMap<u64, Frame>>,
    rows: BTreeMap<RunId, RunRow>,
    /// The epoch that holds each run.
    holders: HashMap<RunId, u64>,
    /// Every handle there was, by its epoch. Epochs are given out once, whichever node asks.
    lives: BTreeMap<u64, Life>,
    // Runs that lost a batch: they take no more until somebody claims them, because their record would have a hole.
    rejected: HashMap<RunId, StoreError>,
    blobs: HashMap<String, Blob>,
    facts: BTreeMap<String, BTreeMap<String, Fact>>,
}

struct Fact {
    value: Vec<u8>,
    expires_at: Option<Timestamp>,
}

impl Fact {
    fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| at > now)
    }
}

impl State {
    fn check(&self) -> Result<(), StoreError> {
        self.poisoned.clone().map_or(Ok(()), Err)
    }

    fn advance(&mut self) -> Position {
        self.last += 1;
        Position(self.last)
    }

    fn fact(&self, space: &str, key: &str) -> Option<&Fact> {
        self.facts.get(space)?.get(key).filter(|fact| fact.is_live(Timestamp::now()))
    }

    fn set(&mut self, space: &str, key: &str, fact: Fact) {
        self.facts.entry(space.to_owned()).or_default().insert(key.to_owned(), fact);
    }

    /// Refuses writes of a fenced owner.
    fn check_owner(&self, epoch: u64) -> Result<(), StoreError> {
        self.check()?;
        if self.is_alive(epoch) { Ok(()) } else { Err(StoreError::Fenced(self.owner(epoch))) }
    }

    /// Whether an epoch may write.
    fn is_alive(&self, epoch: u64) -> bool {
        self.lives.get(&epoch).is_some_and(|life| life.state != NodeState::Dead)
    }

    fn owner(&self, epoch: u64) -> Owner {
        let node = self.lives.get(&epoch).map_or_else(|| NODE.to_owned(), |life| life.node.clone());
        Owner { node, epoch }
    }

    fn end(&mut self, owner: &Owner) {
        if let Some(life) = self.lives.get_mut(&owner.epoch)
            && life.node == owner.node
        {
            life.state = NodeState::Dead;
        }
    }

    fn apply(&mut self, batch: Batch) -> Result<(), StoreError> {
        let Batch { run_id, frames, blobs, row, epoch, release, durability: _ } = batch;
        if let Some(holder) = self.holders.get(&run_id)
            && *holder != epoch
        {
            return Err(StoreError::failed(format!("run {run_id} is held by {}", self.owner(*holder))));
        }
        let is_new = !self.frames.contains_key(&run_id) && !self.rows.contains_key(&run_id);
        if let Some(row) = &row
            && row.run_id != run_id
        {
            return Err(StoreError::failed(format!("a batch of run {run_id} carries the row of run {}", row.run_id)));
        }
        let known = self.frames.entry(run_id).or_default();
        let mut new = BTreeMap::new();
        for frame in frames {
            let seq = frame.seq;
            if seq == 0 {
                return Err(StoreError::failed(format!("run {run_id}: frames are counted from 1, not from 0")));
            }
            if known.contains_key(&seq) || new.insert(seq, frame).is_some() {
                return Err(StoreError::failed(format!("run {run_id} already has a frame {seq}")));
            }
        }
        known.append(&mut new);
        for blob in blobs {
            self.blobs.entry(blob.sha256.clone()).or_insert(blob);
        }
        if is_new {
            self.holders.insert(run_id, epoch);
        }
        if release || row.as_ref().is_some_and(|row| row.status.is_final()) {
            self.holders.remove(&run_id);
        }
        if let Some(row) = row {
            self.rows.insert(run_id, row);
        }
        Ok(())
    }

    fn swap(&mut self, space: &str, key: &str, expected: Option<&[u8]>, wanted: NewFact) -> Swap {
        let found = self.fact(space, key).map(|fact| fact.value.clone());
        if found.as_deref() != expected {
            return Swap::Differs(found);
        }
        match wanted {
            Some((value, expires_at)) => self.set(space, key, Fact { value, expires_at }),
            None => {
                if let Some(facts) = self.facts.get_mut(space) {
                    facts.remove(key);
                }
            }
        }
        self.advance();
        Swap::Done
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::on(Arc::default(), NODE, false)
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A second handle on the same contents, as another process would have: an owner of its own.
    pub fn another(&self) -> Self {
        Self::on(self.shared.clone(), &self.owner.node, self.is_node)
    }

    /// The first node of a cluster in memory: an empty store that says it is shared.
    pub fn node(name: &str) -> Self {
        Self::on(Arc::default(), name, true)
    }

    /// Another node on the same contents. Both say that the store is shared only if both were opened as nodes.
    pub fn another_node(&self, name: &str) -> Self {
        Self::on(self.shared.clone(), name, true)
    }

    fn on(shared: Arc<Shared>, node: &str, is_node: bool) -> Self {
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = state.lives.last_key_value().map_or(1, |(epoch, _)| epoch + 1);
        let life = Life { node: node.to_owned(), is_node, address: None, state: NodeState::Live };
        state.lives.insert(epoch, life);
        drop(state);
        Self { shared, owner: Owner { node: node.to_owned(), epoch }, is_node }
    }

    fn own_life(&self, change: impl FnOnce(&mut Life)) -> Result<(), StoreError> {
        let mut state = self.state();
        state.check_owner(self.owner.epoch)?;
        state.lives.get_mut(&self.owner.epoch).map(change);
        drop(state);
        self.changed();
        Ok(())
    }

    /// Makes the store behave as after a failed sync: every later `append` and `durable` fails with this message.
    pub fn poison(&self, message: impl Into<String>) {
        self.state().poisoned = Some(StoreError::failed(message));
    }

    // A panic under the lock leaves the maps consistent, so a poisoned lock is taken again.
    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries(&self) -> MutexGuard<'_, Vec<LedgerEntry>> {
        self.shared.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.shared.hints.send_modify(|number| *number += 1);
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.state().end(&self.owner);
    }
}

impl Store for MemoryStore {
    fn append(&self, batch: Batch) -> Result<Position, StoreError> {
        let mut state = self.state();
        state.check_owner(self.owner.epoch)?;
        state.check_owner(batch.epoch)?;
        let run_id = batch.run_id;
        if let Some(error) = state.rejected.get(&run_id) {
            return Err(error.clone());
        }
        if let Err(error) = state.apply(batch) {
            state.rejected.insert(run_id, error.clone());
            return Err(error);
        }
        let position = state.advance();
        drop(state);
        self.changed();
        Ok(position)
    }

    fn writable(&self) -> Result<(), StoreError> {
        self.state().check()
    }

    fn durable(&self, position: Position) -> BoxFuture<'static, Result<(), StoreError>> {
        let state = self.state();
        let answer = state.check().and_then(|()| {
            if position.0 <= state.last {
                Ok(())
            } else {
                Err(StoreError::failed(format!("nothing was appended at position {}", position.0)))
            }
        });
        Box::pin(std::future::ready(answer))
    }

    fn settle(&self) -> Result<(), StoreError> {
        self.state().check()
    }

    fn run(&self, run_id: RunId) -> Result<Option<RunRow>, StoreError> {
        Ok(self.state().rows.get(&run_id).cloned())
    }

    fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        let limit = if filter.limit == 0 { DEFAULT_RUN_LIMIT } else { filter.limit.min(MAX_RUN_LIMIT) };
        let wanted = |row: &&RunRow| {
            (filter.statuses.is_empty() || filter.statuses.contains(&row.status))
                && filter.kind.is_none_or(|kind| kind == row.kind)
                && filter.session.as_ref().is_none_or(|session| row.session.as_ref() == Some(session))
                && filter
                    .workspace
                    .as_ref()
                    .is_none_or(|workspace| workspace.owns(row.session.as_deref().unwrap_or_default()))
                && filter.before.is_none_or(|before| row.run_id < before)
                && filter.after.is_none_or(|after| row.run_id > after)
        };
        let state = self.state();
        let rows = state.rows.values();
        Ok(match filter.after {
            Some(_) => rows.filter(wanted).take(limit).cloned().collect(),
            None => rows.rev().filter(wanted).take(limit).cloned().collect(),
        })
    }

    fn unlisted_runs(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let state = self.state();
        Ok(state.frames.keys().filter(|run_id| !state.rows.contains_key(run_id)).take(limit).copied().collect())
    }

    fn frames(&self, run_id: RunId, from_seq: u64, visit: FrameVisitor<'_>) -> Result<(), StoreError> {
        // Copied out first: the visitor may use the store.
        let frames: Vec<Frame> = match self.state().frames.get(&run_id) {
            Some(frames) => frames.range(from_seq..).map(|(_, frame)| frame.clone()).collect(),
            None => Vec::new(),
        };
        for frame in frames {
            if let ControlFlow::Break(()) = visit(frame) {
                break;
            }
        }
        Ok(())
    }

    fn head(&self, run_id: RunId) -> Result<Option<Head>, StoreError> {
        let state = self.state();
        let last = state.frames.get(&run_id).and_then(|frames| frames.last_key_value());
        Ok(last.map(|(seq, frame)| Head { seq: *seq, chain: frame.chain }))
    }

    fn owner(&self) -> Owner {
        self.owner.clone()
    }

    fn epoch(&self) -> u64 {
        self.owner.epoch
    }

    fn is_shared(&self) -> bool {
        self.is_node
    }

    fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        let state = self.state();
        let mut nodes: Vec<NodeRow> = state
            .lives
            .iter()
            .filter(|(_, life)| life.is_node && life.state != NodeState::Dead)
            .map(|(epoch, life)| NodeRow {
                owner: Owner { node: life.node.clone(), epoch: *epoch },
                address: life.address.clone(),
                state: life.state,
            })
            .collect();
        nodes.sort_by(|a, b| a.owner.cmp(&b.owner));
        Ok(nodes)
    }

    fn set_address(&self, address: &str) -> Result<(), StoreError> {
        self.own_life(|life| life.address = Some(address.to_owned()))
    }

    fn set_draining(&self) -> Result<(), StoreError> {
        self.own_life(|life| life.state = NodeState::Draining)
    }

    fn shared_secret(&self) -> Option<[u8; 32]> {
        self.is_node.then_some(SHARED_SECRET)
    }

    fn may_dispatch(&self) -> Result<(), StoreError> {
        if self.is_node { self.state().check_owner(self.owner.epoch) } else { Ok(()) }
    }

    fn is_alive(&self, owner: &Owner) -> Result<bool, StoreError> {
        let state = self.state();
        Ok(state.is_alive(owner.epoch) && state.owner(owner.epoch) == *owner)
    }

    fn fence(&self, owner: &Owner) -> Result<(), StoreError> {
        let mut state = self.state();
        state.check()?;
        state.end(owner);
        drop(state);
        self.changed();
        Ok(())
    }

    fn holder(&self, run_id: RunId) -> Result<Option<Owner>, StoreError> {
        let state = self.state();
        Ok(state.holders.get(&run_id).map(|epoch| state.owner(*epoch)))
    }

    fn left_behind(&self, limit: usize) -> Result<Vec<LeftBehind>, StoreError> {
        let state = self.state();
        let is_open = |row: &&RunRow| matches!(row.status, RunStatus::Pending | RunStatus::Running);
        let left = state.rows.values().rev().filter(is_open).filter_map(|row| {
            let holder = state.holders.get(&row.run_id);
            let is_held = holder.is_some_and(|epoch| state.is_alive(*epoch));
            (!is_held).then(|| LeftBehind { row: row.clone(), holder: holder.map(|epoch| state.owner(*epoch)) })
        });
        Ok(left.take(limit).collect())
    }

    fn claim(&self, run_id: RunId, from: Option<&Owner>) -> Result<bool, StoreError> {
        let mut state = self.state();
        state.check_owner(self.owner.epoch)?;
        if !state.rows.contains_key(&run_id) {
            return Ok(false);
        }
        let holder = state.holders.get(&run_id).copied();
        if let Some(holder) = holder {
            let is_working = holder != self.owner.epoch && state.is_alive(holder);
            if from != Some(&state.owner(holder)) || is_working {
                return Ok(false);
            }
        }
        state.holders.insert(run_id, self.owner.epoch);
        state.rejected.remove(&run_id);
        Ok(true)
    }

    fn blob(&self, sha256: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.state().blobs.get(sha256).map(|blob| blob.bytes.to_vec()))
    }

    fn put(
        &self,
        space: &str,
        key: &str,
        value: Vec<u8>,
        expires_at: Option<Timestamp>,
    ) -> Result<Position, StoreError> {
        let mut state = self.state();
        state.check_owner(self.owner.epoch)?;
        state.set(space, key, Fact { value, expires_at });
        let position = state.advance();
        drop(state);
        self.changed();
        Ok(position)
    }

    fn compare_and_set(
        &self,
        space: &str,
        key: &str,
        expected: Option<&[u8]>,
        wanted: NewFact,
    ) -> Result<Swap, StoreError> {
        let mut state = self.state();
        state.check_owner(self.owner.epoch)?;
        let swap = state.swap(space, key, expected, wanted);
        drop(state);
        if swap == Swap::Done {
            self.changed();
        }
        Ok(swap)
    }

    fn get(&self, space: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.state().fact(space, key).map(|fact| fact.value.clone()))
    }

    fn remove(&self, space: &str, key: &str) -> Result<Position, StoreError> {
        let mut state = self.state();
        state.check_owner(self.owner.epoch)?;
        if let Some(facts) = state.facts.get_mut(space) {
            facts.remove(key);
        }
        let position = state.advance();
        drop(state);
        self.changed();
        Ok(position)
    }

    fn list_page(
        &self,
        space: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let now = Timestamp::now();
        let mut state = self.state();
        let Some(facts) = state.facts.get_mut(space) else { return Ok(Vec::new()) };
        facts.retain(|_, fact| fact.is_live(now));
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let found = facts.range::<str, _>((from, Bound::Unbounded)).take_while(|(key, _)| key.starts_with(prefix));
        Ok(found.take(limit).map(|(key, fact)| (key.clone(), fact.value.clone())).collect())
    }

    fn fact_spaces(&self) -> Result<Vec<String>, StoreError> {
        let state = self.state();
        Ok(state.facts.iter().filter(|(_, facts)| !facts.is_empty()).map(|(space, _)| space.clone()).collect())
    }

    fn stored_facts(&self, space: &str, after: Option<&str>, limit: usize) -> Result<Vec<StoredFact>, StoreError> {
        let now = Timestamp::now();
        let state = self.state();
        let Some(facts) = state.facts.get(space) else { return Ok(Vec::new()) };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let live = facts.range::<str, _>((from, Bound::Unbounded)).filter(|(_, fact)| fact.is_live(now));
        let stored = live.map(|(key, fact)| StoredFact {
            key: key.clone(),
            value: fact.value.clone(),
            expires_at: fact.expires_at,
        });
        Ok(stored.take(limit).collect())
    }

    fn remove_runs(&self, runs: &[RunId]) -> Result<u64, StoreError> {
        let mut state = self.state();
        state.check_owner(self.owner.epoch)?;
        let mut removed = 0;
        for run_id in runs {
            if state.rows.get(run_id).is_some_and(|row| row.status.is_final()) {
                state.rows.remove(run_id);
                state.frames.remove(run_id);
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn remove_unused_blobs(&self, keep: &[String]) -> Result<RemovedBlobs, StoreError> {
        let mut state = self.state();
        state.check_owner(self.owner.epoch)?;
        let State { frames, blobs, .. } = &mut *state;
        let is_named = |hash: &str| {
            let finder = memchr::memmem::Finder::new(hash.as_bytes());
            frames.values().flat_map(BTreeMap::values).any(|frame| finder.find(&frame.payload).is_some())
        };
        let mut removed = RemovedBlobs::default();
        blobs.retain(|hash, blob| {
            let stays = keep.contains(hash) || is_named(hash);
            if !stays {
                removed.blobs += 1;
                removed.bytes += blob.bytes.len() as u64;
            }
            stays
        });
        Ok(removed)
    }

    fn used_bytes(&self) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    fn watch(&self) -> Hints {
        self.shared.hints.subscribe()
    }

    fn blob_hashes(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let state = self.state();
        let mut hashes: Vec<String> = state.blobs.keys().filter(|hash| hash.as_str() > after).cloned().collect();
        hashes.sort();
        hashes.truncate(limit);
        Ok(hashes)
    }

    fn ledger_append(&self, make: LedgerMaker<'_>) -> Result<LedgerEntry, StoreError> {
        self.state().check_owner(self.owner.epoch)?;
        let _turn = self.shared.ledger_turn.lock().unwrap_or_else(PoisonError::into_inner);
        let last = self.entries().last().cloned();
        let (payload, chain) = make(last.as_ref())?;
        let entry = LedgerEntry { seq: last.map_or(1, |last| last.seq + 1), payload, chain };
        self.entries().push(entry.clone());
        Ok(entry)
    }

    fn ledger(&self, from_seq: u64, limit: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        Ok(self.entries().iter().skip_while(|entry| entry.seq < from_seq).take(limit).cloned().collect())
    }
}

#[cfg(test)]
mod tests;
