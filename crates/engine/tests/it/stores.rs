//! Stores that watch: [`Tap`] remembers every batch and every sync in order, can fail on demand, and can give a copy of
//! a run's first records, as a crash would have left them.

use jiff::Timestamp;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};
use toolyard_engine::{
    Blob, BoxFuture, Store,
    chain::{ChainWalker, Signer, genesis, link},
    memory_store::MemoryStore,
    record::RecordKind,
    store::{
        Batch, Durability, Frame, FrameVisitor, Head, Hints, LedgerEntry, LedgerMaker, LeftBehind, NewFact, Owner,
        Position, RemovedBlobs, RunFilter, RunRow, StoreError, StoredFact, Swap,
    },
};
use toolyard_protocol::{RunId, RunStatus};

#[derive(Default)]
pub(crate) struct Tap {
    inner: MemoryStore,
    /// What happened, in order: `append call,result`, `durable`, and whatever tests add.
    pub(crate) log: Arc<Mutex<Vec<String>>>,
    batches: Mutex<Vec<Kept>>,
    sync_fails: AtomicBool,
    append_fails: AtomicBool,
}

struct Kept {
    run_id: RunId,
    frames: Vec<Frame>,
    blobs: Vec<Blob>,
    row: Option<RunRow>,
}

impl Tap {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn fail_syncs(&self, fail: bool) {
        self.sync_fails.store(fail, Ordering::SeqCst);
    }

    pub(crate) fn fail_appends(&self, fail: bool) {
        self.append_fails.store(fail, Ordering::SeqCst);
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn batch(&self, run_id: RunId, frames: Vec<Frame>, blobs: Vec<Blob>, row: Option<RunRow>) -> Batch {
        Batch { run_id, frames, blobs, row, epoch: self.epoch(), release: false, durability: Durability::Sync }
    }

    fn keep(&self, batch: &Batch) {
        let Batch { run_id, frames, blobs, row, .. } = batch;
        let kept = Kept { run_id: *run_id, frames: frames.clone(), blobs: blobs.clone(), row: row.clone() };
        self.batches.lock().unwrap().push(kept);
    }

    pub(crate) fn kept_frames(&self, run_id: RunId) -> Vec<Frame> {
        let batches = self.batches.lock().unwrap();
        batches.iter().filter(|b| b.run_id == run_id).flat_map(|b| b.frames.clone()).collect()
    }

    /// A new store with the first `n` records of a run: what a crash at that place leaves. The lease is a dead process's.
    pub(crate) fn crashed_at(&self, run_id: RunId, n: usize) -> Self {
        let cut = |frames: &mut Vec<Frame>| {
            frames.truncate(n);
            end_batch(run_id, frames);
        };
        self.with_frames(run_id, cut, true)
    }

    /// A new store with the run's records changed by `edit`, and everything else as it was.
    pub(crate) fn with_frames(&self, run_id: RunId, edit: impl FnOnce(&mut Vec<Frame>), crashed: bool) -> Self {
        let copy = Self::new();
        let batches = self.batches.lock().unwrap();
        let mut frames: Vec<Frame> = Vec::new();
        let mut row = None;
        let mut blobs = Vec::new();
        for kept in batches.iter() {
            if kept.run_id == run_id {
                frames.extend(kept.frames.clone());
                blobs.extend(kept.blobs.clone());
                row = kept.row.clone().or(row);
            } else {
                let (frames, blobs) = (kept.frames.clone(), kept.blobs.clone());
                copy.append(copy.batch(kept.run_id, frames, blobs, kept.row.clone())).unwrap();
            }
        }
        edit(&mut frames);
        if crashed {
            row = row.map(|r| RunRow { status: RunStatus::Running, ended_at: None, ..r });
        }
        // Whoever recorded it is gone.
        let gone = copy.inner.another();
        let batch = Batch { epoch: gone.epoch(), ..copy.batch(run_id, frames, blobs, row) };
        copy.keep(&batch);
        gone.append(batch).unwrap();
        drop(gone);
        if crashed {
            return copy; // a run that had not ended was not sealed
        }
        for entry in self.inner.ledger(1, usize::MAX).unwrap() {
            copy.inner.ledger_append(&mut |_| Ok((entry.payload.clone(), entry.chain))).unwrap();
        }
        copy
    }

    /// A new store with the run's records changed by `edit` and an empty ledger: what somebody who can write the
    /// database and has no key leaves. `crashed` makes the run look as if its process had died.
    pub(crate) fn rewritten(&self, run_id: RunId, edit: impl FnOnce(&mut Vec<Frame>), crashed: bool) -> Self {
        let edited = self.with_frames(run_id, edit, crashed);
        let copy = Self::new();
        for kept in edited.batches.into_inner().unwrap() {
            let Kept { run_id, frames, blobs, row } = kept;
            copy.append(copy.batch(run_id, frames, blobs, row)).unwrap();
        }
        copy
    }

    /// A new store without a run, with the ledger as it was.
    pub(crate) fn without_run(&self, run_id: RunId) -> Self {
        let copy = Self::new();
        for kept in self.batches.lock().unwrap().iter().filter(|k| k.run_id != run_id) {
            let (frames, blobs) = (kept.frames.clone(), kept.blobs.clone());
            copy.append(copy.batch(kept.run_id, frames, blobs, kept.row.clone())).unwrap();
        }
        for entry in self.inner.ledger(1, usize::MAX).unwrap() {
            copy.inner.ledger_append(&mut |_| Ok((entry.payload.clone(), entry.chain))).unwrap();
        }
        copy
    }
}

/// Proves the last frame as the last one of a batch, if it is not proven yet: a crash never cuts a batch in two.
fn end_batch(run_id: RunId, frames: &mut [Frame]) {
    let signer = Signer::from_secret("test", &crate::support::SECRET);
    let verifier = signer.verifier();
    let mut walker = ChainWalker::new(run_id, Some(&verifier));
    frames.iter().for_each(|frame| walker.step(frame).unwrap());
    if walker.unproven_tail().is_none() {
        return;
    }
    let previous = frames.iter().rev().nth(1).map_or_else(|| genesis(run_id), |frame| frame.chain);
    if let Some(last) = frames.last_mut() {
        signer.tag(run_id, last.seq, &previous, &mut last.payload);
        last.chain = link(&previous, last.seq, last.kind, &last.payload);
    }
}

fn kind_word(kind: u8) -> String {
    RecordKind::from_u8(kind).map_or_else(|| "?".to_owned(), |k| format!("{k:?}"))
}

impl Store for Tap {
    fn append(&self, batch: Batch) -> Result<Position, StoreError> {
        if self.append_fails.load(Ordering::SeqCst) {
            return Err(StoreError::failed("the disk is full"));
        }
        let words: Vec<String> = batch.frames.iter().map(|f| kind_word(f.kind)).collect();
        let Batch { run_id, frames, blobs, row, .. } = &batch;
        let kept = Kept { run_id: *run_id, frames: frames.clone(), blobs: blobs.clone(), row: row.clone() };
        let position = self.inner.append(batch)?;
        self.log.lock().unwrap().push(format!("append {}", words.join(",")));
        self.batches.lock().unwrap().push(kept);
        Ok(position)
    }
    fn durable(&self, position: Position) -> BoxFuture<'static, Result<(), StoreError>> {
        if self.sync_fails.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(StoreError::failed("the disk said no"))));
        }
        let (log, answer) = (self.log.clone(), self.inner.durable(position));
        Box::pin(async move {
            // A sync takes a while, so that code that does not wait for it fails the test.
            tokio::task::yield_now().await;
            log.lock().unwrap().push("durable".to_owned());
            answer.await
        })
    }
    fn settle(&self) -> Result<(), StoreError> {
        self.inner.settle()
    }
    fn run(&self, run_id: RunId) -> Result<Option<RunRow>, StoreError> {
        self.inner.run(run_id)
    }
    fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.inner.runs(filter)
    }
    fn frames(&self, run_id: RunId, from_seq: u64, visit: FrameVisitor<'_>) -> Result<(), StoreError> {
        self.inner.frames(run_id, from_seq, visit)
    }
    fn unlisted_runs(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        self.inner.unlisted_runs(limit)
    }
    fn head(&self, run_id: RunId) -> Result<Option<Head>, StoreError> {
        self.inner.head(run_id)
    }
    fn owner(&self) -> Owner {
        self.inner.owner()
    }
    fn is_alive(&self, owner: &Owner) -> Result<bool, StoreError> {
        self.inner.is_alive(owner)
    }
    fn fence(&self, owner: &Owner) -> Result<(), StoreError> {
        self.inner.fence(owner)
    }
    fn holder(&self, run_id: RunId) -> Result<Option<Owner>, StoreError> {
        self.inner.holder(run_id)
    }
    fn left_behind(&self, limit: usize) -> Result<Vec<LeftBehind>, StoreError> {
        self.inner.left_behind(limit)
    }
    fn claim(&self, run_id: RunId, from: Option<&Owner>) -> Result<bool, StoreError> {
        self.inner.claim(run_id, from)
    }
    fn blob(&self, sha256: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.blob(sha256)
    }
    fn put(
        &self,
        space: &str,
        key: &str,
        value: Vec<u8>,
        expires_at: Option<Timestamp>,
    ) -> Result<Position, StoreError> {
        self.inner.put(space, key, value, expires_at)
    }
    fn compare_and_set(
        &self,
        space: &str,
        key: &str,
        expected: Option<&[u8]>,
        wanted: NewFact,
    ) -> Result<Swap, StoreError> {
        self.inner.compare_and_set(space, key, expected, wanted)
    }
    fn get(&self, space: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.get(space, key)
    }
    fn remove(&self, space: &str, key: &str) -> Result<Position, StoreError> {
        self.inner.remove(space, key)
    }
    fn list_page(
        &self,
        space: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.inner.list_page(space, prefix, after, limit)
    }
    fn fact_spaces(&self) -> Result<Vec<String>, StoreError> {
        self.inner.fact_spaces()
    }
    fn stored_facts(&self, space: &str, after: Option<&str>, limit: usize) -> Result<Vec<StoredFact>, StoreError> {
        self.inner.stored_facts(space, after, limit)
    }
    fn remove_runs(&self, runs: &[RunId]) -> Result<u64, StoreError> {
        self.inner.remove_runs(runs)
    }
    fn remove_unused_blobs(&self, keep: &[String]) -> Result<RemovedBlobs, StoreError> {
        self.inner.remove_unused_blobs(keep)
    }
    fn used_bytes(&self) -> Result<Option<u64>, StoreError> {
        self.inner.used_bytes()
    }
    fn watch(&self) -> Hints {
        self.inner.watch()
    }
    fn blob_hashes(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        self.inner.blob_hashes(after, limit)
    }
    fn ledger_append(&self, make: LedgerMaker<'_>) -> Result<LedgerEntry, StoreError> {
        self.inner.ledger_append(make)
    }
    fn ledger(&self, from_seq: u64, limit: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        self.inner.ledger(from_seq, limit)
    }
}
