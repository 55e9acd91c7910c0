//! [`MemoryStore`]: a [`Store`] in memory, for dry runs, replays and tests.
//!
//! It gives the same guarantees as other stores, except durability, and passes the same test suite. It has no files,
//! other processes or size limits.

use crate::{
    Blob, BoxFuture,
    store::{
        Batch, Frame, FrameVisitor, Head, Hints, LedgerEntry, LedgerMaker, LeftBehind, NewFact, Owner, Position,
        RemovedBlobs, RunFilter, RunRow, Store, StoreError, Swap,
    },
};
use jiff::Timestamp;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::{Bound, ControlFlow},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;
use toolyard_protocol::{RunId, RunStatus};

/// The one node that a store in memory knows.
const NODE: &str = "memory";

/// How many rows [`Store::runs`] answers when the filter names no limit.
const DEFAULT_RUN_LIMIT: usize = 100;
/// The most rows [`Store::runs`] answers.
const MAX_RUN_LIMIT: usize = 10_000;

/// A store in memory: every batch is visible, and as durable as it will ever be, when `append` returns.
///
/// A handle is an owner of its own; [`MemoryStore::another`] opens a second one on the same contents.
pub struct MemoryStore {
    shared: Arc<Shared>,
    epoch: u64,
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
    /// Epochs that may write.
    alive: BTreeSet<u64>,
    last_epoch: u64,
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

    /// Refuses what an owner that was fenced wants to write.
    fn check_owner(&self, epoch: u64) -> Result<(), StoreError> {
        self.check()?;
        if self.alive.contains(&epoch) { Ok(()) } else { Err(StoreError::Fenced(owner(epoch))) }
    }

    fn apply(&mut self, batch: Batch) -> Result<(), StoreError> {
        let Batch { run_id, frames, blobs, row, epoch, release, durability: _ } = batch;
        if let Some(holder) = self.holders.get(&run_id)
            && *holder != epoch
        {
            return Err(StoreError::failed(format!("run {run_id} is held by {}", owner(*holder))));
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

fn owner(epoch: u64) -> Owner {
    Owner { node: NODE.to_owned(), epoch }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::on(Arc::default())
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A second handle on the same contents, as another process would have: an owner of its own.
    pub fn another(&self) -> Self {
        Self::on(self.shared.clone())
    }

    fn on(shared: Arc<Shared>) -> Self {
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last_epoch += 1;
        let epoch = state.last_epoch;
        state.alive.insert(epoch);
        drop(state);
        Self { shared, epoch }
    }

    /// Makes the store behave as after a failed sync: every later `append` and `durable` fails with this message.
    pub fn poison(&self, message: impl Into<String>) {
        self.state().poisoned = Some(StoreError::failed(message));
    }

    // A panic under the lock leaves the maps whole (nothing here is half-changed), so the lock is simply taken again.
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
        self.state().alive.remove(&self.epoch);
    }
}

impl Store for MemoryStore {
    fn append(&self, batch: Batch) -> Result<Position, StoreError> {
        let mut state = self.state();
        state.check_owner(self.epoch)?;
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
        owner(self.epoch)
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn is_alive(&self, owner: &Owner) -> Result<bool, StoreError> {
        Ok(owner.node == NODE && self.state().alive.contains(&owner.epoch))
    }

    fn fence(&self, owner: &Owner) -> Result<(), StoreError> {
        let mut state = self.state();
        state.check()?;
        if owner.node == NODE {
            state.alive.remove(&owner.epoch);
        }
        Ok(())
    }

    fn holder(&self, run_id: RunId) -> Result<Option<Owner>, StoreError> {
        Ok(self.state().holders.get(&run_id).copied().map(owner))
    }

    fn left_behind(&self, limit: usize) -> Result<Vec<LeftBehind>, StoreError> {
        let state = self.state();
        let is_open = |row: &&RunRow| matches!(row.status, RunStatus::Pending | RunStatus::Running);
        let left = state.rows.values().rev().filter(is_open).filter_map(|row| {
            let holder = state.holders.get(&row.run_id);
            let is_held = holder.is_some_and(|epoch| state.alive.contains(epoch));
            (!is_held).then(|| LeftBehind { row: row.clone(), holder: holder.copied().map(owner) })
        });
        Ok(left.take(limit).collect())
    }

    fn claim(&self, run_id: RunId, from: Option<&Owner>) -> Result<bool, StoreError> {
        let mut state = self.state();
        state.check_owner(self.epoch)?;
        if !state.rows.contains_key(&run_id) {
            return Ok(false);
        }
        let holder = state.holders.get(&run_id).copied();
        if let Some(holder) = holder {
            let is_working = holder != self.epoch && state.alive.contains(&holder);
            if from != Some(&owner(holder)) || is_working {
                return Ok(false);
            }
        }
        state.holders.insert(run_id, self.epoch);
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
        state.check_owner(self.epoch)?;
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
        state.check_owner(self.epoch)?;
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
        state.check_owner(self.epoch)?;
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

    fn remove_runs(&self, runs: &[RunId]) -> Result<u64, StoreError> {
        let mut state = self.state();
        state.check_owner(self.epoch)?;
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
        state.check_owner(self.epoch)?;
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
        self.state().check_owner(self.epoch)?;
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
mod tests {
    use super::*;
    use crate::store::Durability;
    use toolyard_protocol::RunStatus;
    use uuid::Uuid;

    fn batch(run_id: RunId, seqs: &[u64]) -> Batch {
        let frames =
            seqs.iter().map(|&seq| Frame { seq, kind: 1, payload: b"{}".to_vec(), chain: [seq as u8; 32] }).collect();
        Batch { run_id, frames, blobs: Vec::new(), row: None, epoch: 1, release: false, durability: Durability::Sync }
    }

    #[test]
    fn a_run_that_lost_a_batch_waits_for_a_claim() {
        let store = MemoryStore::new();
        let run_id = RunId::from_uuid(Uuid::now_v7());
        let mut first = batch(run_id, &[1]);
        first.row = Some(RunRow {
            run_id,
            kind: crate::store::RunKind::Call,
            status: RunStatus::Running,
            title: "t".into(),
            session: None,
            started_at: Timestamp::now(),
            ended_at: None,
        });
        store.append(first).unwrap();
        assert!(store.append(batch(run_id, &[2, 1])).is_err());
        assert!(store.append(batch(run_id, &[2])).is_err(), "the record would have a hole");
        assert!(!store.claim(run_id, None).unwrap(), "it is held");
        assert!(store.claim(run_id, Some(&store.owner())).unwrap());
        store.append(batch(run_id, &[2])).unwrap();
        let mut seqs = Vec::new();
        store
            .frames(run_id, 0, &mut |frame| {
                seqs.push(frame.seq);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(seqs, [1, 2]);
    }

    #[test]
    fn a_poisoned_store_takes_nothing_more() {
        let store = MemoryStore::new();
        let run_id = RunId::from_uuid(Uuid::now_v7());
        store.append(batch(run_id, &[1])).unwrap();
        store.poison("the disk said no");
        assert_eq!(store.append(batch(run_id, &[2])).unwrap_err().to_string(), "the disk said no");
        assert!(store.put("s", "k", vec![1], None).is_err());
    }
}
