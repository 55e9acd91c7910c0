//! [`MemoryStore`]: a [`Store`] in memory, for dry runs, replays and tests.
//!
//! It gives the same guarantees as other stores, except durability, and passes the same test suite. It has no files,
//! other processes or size limits.

use crate::{
    Blob, BoxFuture,
    store::{
        Batch, Frame, FrameVisitor, Lease, LedgerEntry, LedgerMaker, Position, RunFilter, RunRow, Store, StoreError,
    },
};
use jiff::Timestamp;
use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
    sync::{Mutex, MutexGuard, PoisonError},
};
use toolyard_protocol::RunId;

/// How many rows [`Store::runs`] answers when the filter names no limit.
const DEFAULT_RUN_LIMIT: usize = 100;
/// The most rows [`Store::runs`] answers.
const MAX_RUN_LIMIT: usize = 10_000;

/// A store in memory: every batch is visible, and as durable as it will ever be, when `append` returns.
#[derive(Default)]
pub struct MemoryStore {
    state: Mutex<State>,
    ledger: Mutex<Vec<LedgerEntry>>,
    // Held while an entry is made, instead of the ledger itself: its maker may read the store, the ledger included.
    ledger_turn: Mutex<()>,
}

#[derive(Default)]
struct State {
    last: u64,
    poisoned: Option<StoreError>,
    frames: HashMap<RunId, BTreeMap<u64, Frame>>,
    rows: BTreeMap<RunId, RunRow>,
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

    fn apply(&mut self, batch: Batch) -> Result<(), StoreError> {
        let Batch { run_id, frames, blobs, row, durability: _ } = batch;
        if let Some(row) = &row
            && row.run_id != run_id
        {
            return Err(StoreError(format!("a batch of run {run_id} carries the row of run {}", row.run_id)));
        }
        let known = self.frames.entry(run_id).or_default();
        let mut new = BTreeMap::new();
        for frame in frames {
            let seq = frame.seq;
            if seq == 0 {
                return Err(StoreError(format!("run {run_id}: frames are counted from 1, not from 0")));
            }
            if known.contains_key(&seq) || new.insert(seq, frame).is_some() {
                return Err(StoreError(format!("run {run_id} already has a frame {seq}")));
            }
        }
        known.append(&mut new);
        for blob in blobs {
            self.blobs.entry(blob.sha256.clone()).or_insert(blob);
        }
        if let Some(row) = row {
            self.rows.insert(run_id, row);
        }
        Ok(())
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the store behave as after a failed sync: every later `append` and `durable` fails with this message.
    pub fn poison(&self, message: impl Into<String>) {
        self.state().poisoned = Some(StoreError(message.into()));
    }

    // A panic under the lock leaves the maps whole (nothing here is half-changed), so the lock is simply taken again.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries(&self) -> MutexGuard<'_, Vec<LedgerEntry>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn append(&self, batch: Batch) -> Result<Position, StoreError> {
        let mut state = self.state();
        state.check()?;
        let run_id = batch.run_id;
        if let Some(error) = state.rejected.get(&run_id) {
            return Err(error.clone());
        }
        if let Err(error) = state.apply(batch) {
            state.rejected.insert(run_id, error.clone());
            return Err(error);
        }
        Ok(state.advance())
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
                Err(StoreError(format!("nothing was appended at position {}", position.0)))
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
        };
        Ok(self.state().rows.values().rev().filter(wanted).take(limit).cloned().collect())
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

    fn claim(&self, run_id: RunId, expected: Option<&Lease>, new: &Lease) -> Result<bool, StoreError> {
        let mut state = self.state();
        state.check()?;
        let Some(row) = state.rows.get_mut(&run_id) else { return Ok(false) };
        if row.lease.is_some() && row.lease.as_ref() != expected {
            return Ok(false);
        }
        row.lease = Some(new.clone());
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
        state.check()?;
        state.set(space, key, Fact { value, expires_at });
        Ok(state.advance())
    }

    fn put_if_absent(
        &self,
        space: &str,
        key: &str,
        value: Vec<u8>,
        expires_at: Option<Timestamp>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let mut state = self.state();
        state.check()?;
        if let Some(fact) = state.fact(space, key) {
            return Ok(Some(fact.value.clone()));
        }
        state.set(space, key, Fact { value, expires_at });
        state.advance();
        Ok(None)
    }

    fn get(&self, space: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.state().fact(space, key).map(|fact| fact.value.clone()))
    }

    fn remove(&self, space: &str, key: &str) -> Result<Position, StoreError> {
        let mut state = self.state();
        state.check()?;
        if let Some(facts) = state.facts.get_mut(space) {
            facts.remove(key);
        }
        Ok(state.advance())
    }

    fn list(&self, space: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let now = Timestamp::now();
        let mut state = self.state();
        let Some(facts) = state.facts.get_mut(space) else { return Ok(Vec::new()) };
        facts.retain(|_, fact| fact.is_live(now));
        Ok(facts.iter().map(|(key, fact)| (key.clone(), fact.value.clone())).collect())
    }

    fn blob_hashes(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let state = self.state();
        let mut hashes: Vec<String> = state.blobs.keys().filter(|hash| hash.as_str() > after).cloned().collect();
        hashes.sort();
        hashes.truncate(limit);
        Ok(hashes)
    }

    fn ledger_append(&self, make: LedgerMaker<'_>) -> Result<LedgerEntry, StoreError> {
        self.state().check()?;
        let _turn = self.ledger_turn.lock().unwrap_or_else(PoisonError::into_inner);
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
        Batch { run_id, frames, blobs: Vec::new(), row: None, durability: Durability::Sync }
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
            lease: None,
        });
        store.append(first).unwrap();
        assert!(store.append(batch(run_id, &[2, 1])).is_err());
        assert!(store.append(batch(run_id, &[2])).is_err(), "the record would have a hole");
        let lease = Lease { boot_id: "b".into(), pid: 1, started: 1 };
        assert!(store.claim(run_id, None, &lease).unwrap());
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
        assert_eq!(store.append(batch(run_id, &[2])).unwrap_err().0, "the disk said no");
        assert!(store.put("s", "k", vec![1], None).is_err());
    }
}
