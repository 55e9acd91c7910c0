//! [`SqliteStore`]: checks its input, and passes it to the writer thread or to a reader.

use crate::{
    blob_files,
    hints::Hints,
    journal::{self, Journal},
    journaler,
    journaling::Journaling,
    limits,
    owners::OwnerLock,
    queue::{Append, Blobs, Fact, FactSwap, LedgerOp, Op, Queue, RemovedBlob, StoredFrame, Urgency},
    reader::Reader,
    rows, schema, writer,
};
use jiff::Timestamp;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, SyncSender},
    },
    thread::JoinHandle,
    time::Duration,
};
use toolyard_engine::{
    Blob, BoxFuture, Store,
    store::{
        Batch, Durability, Frame, FrameVisitor, Head, LedgerEntry, LedgerMaker, LeftBehind, NewFact, Owner, Position,
        RemovedBlobs, RunFilter, RunRow, StoreError, StoredFact, Swap,
    },
};
use toolyard_protocol::RunId;

/// How a [`SqliteStore`] behaves. The defaults suit one machine.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Bytes that may be queued before `append` waits.
    pub queue_bytes: usize,
    /// How long a `Deferred` batch waits for further batches; at most 50 ms.
    pub ride_delay: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { queue_bytes: limits::QUEUE_BYTES, ride_delay: limits::RIDE_DELAY }
    }
}

/// A store in one SQLite database (`toolyard.db`) with a directory of large blobs.
///
/// Several processes may have the same store open. Dropping it writes everything that is queued.
///
/// When a batch is refused because one of its frames exists already, `durable` fails for that batch's position with the
/// reason, and so does everything appended to the same run afterwards: its record would have a hole. A successful
/// [`Store::claim`] of the run lifts this. Other runs are not concerned.
pub struct SqliteStore {
    dir: PathBuf,
    reader: Reader,
    owner: Owner,
    hints: Arc<Hints>,
    writing: Option<Writing>,
    /// Dropped last: the threads have ended then.
    _life: Option<OwnerLock>,
}

struct Writing {
    queue: Arc<Queue>,
    journal: Option<Arc<Journal>>,
    threads: Vec<JoinHandle<()>>,
    /// Started with the first large blob.
    blob_thread: Mutex<Option<SyncSender<BlobJob>>>,
}

struct BlobJob {
    blobs: Vec<Blob>,
    done: SyncSender<Result<Vec<blob_files::StoredBlob>, StoreError>>,
}

impl SqliteStore {
    /// Opens the store in this directory. Creates it if it does not exist, and migrates an older version.
    pub fn open(dir: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let mut opened = schema::open_writer(dir)?;
        let (owner, life) = (opened.owner.clone(), opened.life.take());
        let hints = Arc::new(Hints::default());
        let journaling = Journaling::new(opened.journal.as_ref().map(|journal| journal.generation));
        let ride_delay = options.ride_delay.min(limits::MAX_RIDE_DELAY);
        let queue = Arc::new(Queue::new(options.queue_bytes, ride_delay, journaling));
        let journal = opened.journal.clone();
        let (writer, journaler) = writer::start(opened, dir, &queue, &hints)?;
        let threads = std::iter::once(writer).chain(journaler).collect();
        let writing = Writing { queue, journal, threads, blob_thread: Mutex::new(None) };
        let (dir, reader, writing) = (dir.to_owned(), Reader::new(dir), Some(writing));
        Ok(Self { dir, reader, owner, hints, writing, _life: life })
    }

    /// Opens an existing store read-only. Every change fails.
    pub fn open_read_only(dir: &Path) -> Result<Self, StoreError> {
        // A dead process may have left the end of its records in its journal. If the directory cannot be written, only
        // what the database has is shown.
        let reader = Reader::new(dir);
        reader.check()?;
        if journal::is_any_left(dir).map_err(|e| crate::failed("cannot look for journals", e))? {
            match rustix::fs::access(dir, rustix::fs::Access::WRITE_OK) {
                Ok(()) => drop(Self::open(dir, StoreOptions::default())?),
                Err(error) => tracing::warn!(%error, "a journal was left behind and cannot be taken up"),
            }
        }
        let owner = Owner { node: reader.node()?, epoch: 0 };
        Ok(Self { dir: dir.to_owned(), reader, owner, hints: Arc::default(), writing: None, _life: None })
    }

    /// The directory of the store.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes durable records readable, although the database applies the journal a little later.
    fn catch_up(&self) -> Result<(), StoreError> {
        self.writing.as_ref().map_or(Ok(()), |writing| writing.queue.catch_up())
    }

    fn watch_blobs(&self, on: bool) -> Result<(), StoreError> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.writing()?.queue.push(Op::WatchBlobs { on, reply }, limits::CHANGE_BYTES, Urgency::Commit)?;
        wait(&answer)
    }

    fn remove_blobs_except(&self, keep: &[String]) -> Result<RemovedBlobs, StoreError> {
        let queue = &self.writing()?.queue;
        let mut removed = RemovedBlobs::default();
        for some in self.reader.unused_blobs(keep)?.chunks(limits::BLOBS_PER_REMOVAL) {
            let (reply, answer) = mpsc::sync_channel(1);
            let op = Op::RemoveBlobs { hashes: some.to_vec(), reply };
            queue.push(op, limits::CHANGE_BYTES + 32 * some.len(), Urgency::Sync)?;
            for RemovedBlob { hash, bytes, file } in wait(&answer)? {
                removed.blobs += 1;
                removed.bytes += bytes;
                if let Some(is_zstd) = file {
                    let path = blob_files::file_path(&self.dir, &hash, is_zstd);
                    std::fs::remove_file(&path)
                        .map_err(|e| crate::failed(&format!("cannot remove {}", path.display()), e))?;
                }
            }
        }
        Ok(removed)
    }

    fn of_this_node(&self, epoch: i64) -> Owner {
        Owner { node: self.owner.node.clone(), epoch: epoch.cast_unsigned() }
    }

    /// Pending and running runs whose holder is gone, or that nobody holds.
    fn not_held(&self) -> Result<Vec<LeftBehind>, StoreError> {
        let mut alive: BTreeMap<i64, bool> = BTreeMap::new();
        let mut left = Vec::new();
        for (row, holder) in self.reader.open_runs()? {
            let is_held = match holder {
                None => false,
                Some(epoch) => match alive.get(&epoch) {
                    Some(known) => *known,
                    None => *alive.entry(epoch).or_insert(self.reader.is_alive(epoch.cast_unsigned())?),
                },
            };
            if !is_held {
                left.push(LeftBehind { row, holder: holder.map(|epoch| self.of_this_node(epoch)) });
            }
        }
        Ok(left)
    }

    fn writing(&self) -> Result<&Writing, StoreError> {
        self.writing.as_ref().ok_or_else(|| {
            StoreError::failed(format!("the store in {} was opened for reading only", self.dir.display()))
        })
    }

    /// Compresses blobs and writes large ones: on the calling thread if that is fast, otherwise on a separate thread.
    fn blobs(&self, writing: &Writing, blobs: Vec<Blob>) -> Result<Blobs, StoreError> {
        let prepare = |dir: &Path, blobs: &[Blob]| {
            blobs.iter().map(|blob| blob_files::prepare(dir, blob)).collect::<Result<Vec<_>, _>>()
        };
        if blobs.iter().map(|blob| blob.bytes.len()).sum::<usize>() <= limits::BLOB_INLINE_BYTES {
            return Ok(Blobs::Ready(prepare(&self.dir, &blobs)?));
        }
        let (done, prepared) = mpsc::sync_channel(1);
        let mut sender = writing.blob_thread.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = match &*sender {
            Some(jobs) => jobs.clone(),
            None => {
                let (jobs, queue) = mpsc::sync_channel::<BlobJob>(1024);
                let dir = self.dir.clone();
                std::thread::Builder::new()
                    .name("store-blobs".into())
                    .spawn(move || {
                        for BlobJob { blobs, done } in queue {
                            // The writer may have stopped meanwhile.
                            drop(done.send(prepare(&dir, &blobs)));
                        }
                    })
                    .map_err(|e| crate::failed("cannot start the store's blob thread", e))?;
                *sender = Some(jobs.clone());
                jobs
            }
        };
        drop(sender);
        jobs.send(BlobJob { blobs, done }).map_err(|_| StoreError::failed("the thread that writes blobs stopped"))?;
        Ok(Blobs::Pending(prepared))
    }

    fn fact(&self, space: &str, key: &str, value: Vec<u8>, expires_at: Option<Timestamp>) -> Result<Fact, StoreError> {
        limits::CHANGES.check_fact(space, key, Some(&value))?;
        Ok(Fact { space: space.to_owned(), key: key.to_owned(), value, expires_at: expires_at.map(rows::micros) })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.hints.close();
        if let Some(writing) = &mut self.writing {
            writing.queue.close();
            for thread in writing.threads.drain(..) {
                if thread.join().is_err() {
                    tracing::error!("a thread of the store panicked");
                }
            }
        }
    }
}

impl Store for SqliteStore {
    fn append(&self, batch: Batch) -> Result<Position, StoreError> {
        let writing = self.writing()?;
        let run_id = batch.run_id;
        if batch.epoch != self.owner.epoch {
            return Err(StoreError::Fenced(Owner { epoch: batch.epoch, ..self.owner.clone() }));
        }
        let prepared = limits::CHANGES.check_batch(&batch).and_then(|bytes| {
            let Batch { frames, blobs, row, release, durability, .. } = batch;
            let frames = frames.into_iter().map(stored_frame).collect::<Result<Vec<_>, _>>()?;
            let blobs = self.blobs(writing, blobs)?;
            let urgency = match durability {
                Durability::Deferred => Urgency::Deferred,
                Durability::Sync => Urgency::Sync,
            };
            Ok((Op::Append(Append { run_id, frames, blobs, row, release }), bytes, urgency))
        });
        match prepared {
            Ok((op, bytes, urgency)) => writing.queue.push(op, bytes, urgency),
            Err(error) => {
                writing.queue.stop_run(run_id, error.clone());
                Err(error)
            }
        }
    }

    fn writable(&self) -> Result<(), StoreError> {
        self.writing()?.queue.writable()?;
        let disk = rustix::fs::statvfs(&self.dir).map_err(|e| crate::failed("cannot look at the store's disk", e))?;
        // Some file systems do not count their blocks.
        if disk.f_blocks > 0 && disk.f_bavail.saturating_mul(disk.f_frsize) < limits::MIN_FREE_BYTES {
            return Err(StoreError::DiskFull("the store's disk is full".into()));
        }
        Ok(())
    }

    fn durable(&self, position: Position) -> BoxFuture<'static, Result<(), StoreError>> {
        match self.writing() {
            Ok(writing) => writing.queue.durable(position),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn durable_here(&self, position: Position) -> BoxFuture<'static, Result<(), StoreError>> {
        if let Some(Writing { queue, journal: Some(journal), .. }) = &self.writing
            && let Some(piece) = queue.lead(position)
        {
            // The queue has the result; the buffer is not needed again.
            drop(journaler::write(journal, queue, piece, &self.owner));
        }
        self.durable(position)
    }

    fn settle(&self) -> Result<(), StoreError> {
        // Nothing was ever appended to a store that is only read.
        self.writing.as_ref().map_or(Ok(()), |writing| writing.queue.settle())
    }

    fn run(&self, run_id: RunId) -> Result<Option<RunRow>, StoreError> {
        self.catch_up()?;
        self.reader.run(run_id)
    }

    fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.catch_up()?;
        self.reader.runs(filter)
    }

    fn count_runs(&self, filter: &RunFilter) -> Result<u64, StoreError> {
        self.catch_up()?;
        self.reader.count_runs(filter)
    }

    fn unlisted_runs(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        self.reader.unlisted_runs(limit)
    }

    fn frames(&self, run_id: RunId, from_seq: u64, visit: FrameVisitor<'_>) -> Result<(), StoreError> {
        self.catch_up()?;
        self.reader.frames(run_id, from_seq, visit)
    }

    fn head(&self, run_id: RunId) -> Result<Option<Head>, StoreError> {
        self.catch_up()?;
        self.reader.head(run_id)
    }

    fn owner(&self) -> Owner {
        self.owner.clone()
    }

    fn epoch(&self) -> u64 {
        self.owner.epoch
    }

    fn is_alive(&self, owner: &Owner) -> Result<bool, StoreError> {
        if owner.node != self.owner.node {
            return Ok(false);
        }
        self.reader.is_alive(owner.epoch)
    }

    fn fence(&self, owner: &Owner) -> Result<(), StoreError> {
        if owner.node != self.owner.node {
            return Ok(());
        }
        let (reply, answer) = mpsc::sync_channel(1);
        let op = Op::Fence { epoch: owner.epoch.cast_signed(), reply };
        self.writing()?.queue.push(op, limits::CHANGE_BYTES, Urgency::Commit)?;
        wait(&answer)
    }

    fn holder(&self, run_id: RunId) -> Result<Option<Owner>, StoreError> {
        self.catch_up()?;
        Ok(self.reader.holder(run_id)?.map(|epoch| self.of_this_node(epoch)))
    }

    fn left_behind(&self, limit: usize) -> Result<Vec<LeftBehind>, StoreError> {
        self.catch_up()?;
        let mut left = self.not_held()?;
        let gone: BTreeSet<u64> =
            left.iter().filter_map(|left| left.holder.as_ref()).map(|holder| holder.epoch).collect();
        if self.writing.is_some() && !gone.is_empty() {
            // The journals of dead processes may contain the ends of these runs.
            for epoch in gone {
                self.fence(&self.of_this_node(epoch.cast_signed()))?;
            }
            left = self.not_held()?;
        }
        left.truncate(limit);
        Ok(left)
    }

    fn claim(&self, run_id: RunId, from: Option<&Owner>) -> Result<bool, StoreError> {
        let mut expected = None;
        if let Some(from) = from.filter(|from| from.node == self.owner.node) {
            let is_mine = *from == self.owner;
            if !is_mine && self.is_alive(from)? {
                return Ok(false);
            }
            if !is_mine {
                self.fence(from)?;
            }
            expected = Some(from.epoch.cast_signed());
        }
        let (reply, answer) = mpsc::sync_channel(1);
        // A claim that is lost in a power cut belonged to a process that is dead too, so it needs no sync.
        self.writing()?.queue.push(
            Op::Claim { run_id, from: expected, reply },
            limits::CHANGE_BYTES,
            Urgency::Commit,
        )?;
        wait(&answer)
    }

    fn blob(&self, sha256: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.catch_up()?;
        self.reader.blob(sha256)
    }

    fn put(
        &self,
        space: &str,
        key: &str,
        value: Vec<u8>,
        expires_at: Option<Timestamp>,
    ) -> Result<Position, StoreError> {
        let writing = self.writing()?;
        let fact = self.fact(space, key, value, expires_at)?;
        let bytes = fact_bytes(&fact);
        writing.queue.push(Op::Put(fact), bytes, Urgency::Deferred)
    }

    fn compare_and_set(
        &self,
        space: &str,
        key: &str,
        expected: Option<&[u8]>,
        wanted: NewFact,
    ) -> Result<Swap, StoreError> {
        let writing = self.writing()?;
        limits::CHANGES.check_fact(space, key, None)?;
        let new = wanted.map(|(value, expires_at)| self.fact(space, key, value, expires_at)).transpose()?;
        let bytes = limits::CHANGE_BYTES
            + space.len()
            + key.len()
            + expected.map_or(0, <[u8]>::len)
            + new.as_ref().map_or(0, fact_bytes);
        let swap =
            FactSwap { space: space.to_owned(), key: key.to_owned(), expected: expected.map(<[u8]>::to_vec), new };
        let (reply, answer) = mpsc::sync_channel(1);
        // There is no position to wait for, so it is durable when this returns.
        writing.queue.push(Op::Swap { swap, reply }, bytes, Urgency::Sync)?;
        wait(&answer)
    }

    fn get(&self, space: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let pending =
            self.writing.as_ref().and_then(|writing| writing.queue.pending(space, key, rows::micros(Timestamp::now())));
        match pending {
            Some(value) => Ok(value),
            None => self.reader.fact(space, key),
        }
    }

    fn remove(&self, space: &str, key: &str) -> Result<Position, StoreError> {
        let writing = self.writing()?;
        let bytes = limits::CHANGES.check_fact(space, key, None)?;
        writing.queue.push(Op::Remove { space: space.to_owned(), key: key.to_owned() }, bytes, Urgency::Deferred)
    }

    fn list_page(
        &self,
        space: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        // Pending facts are read first: a fact that is written between the two reads is then seen twice instead of not
        // at all.
        let pending = self
            .writing
            .as_ref()
            .map_or_else(Vec::new, |writing| writing.queue.pending_space(space, rows::micros(Timestamp::now())));
        let is_here = |key: &str| key.starts_with(prefix) && after.is_none_or(|after| key > after);
        // A pending removal hides the stored fact.
        let removed = pending.iter().filter(|(key, value)| value.is_none() && is_here(key)).count();
        let found = self.reader.facts(space, prefix, after, limit.saturating_add(removed))?;
        let mut facts: BTreeMap<String, Vec<u8>> = found.into_iter().collect();
        for (key, value) in pending.into_iter().filter(|(key, _)| is_here(key)) {
            match value {
                Some(value) => facts.insert(key, value),
                None => facts.remove(&key),
            };
        }
        Ok(facts.into_iter().take(limit).collect())
    }

    fn fact_spaces(&self) -> Result<Vec<String>, StoreError> {
        self.reader.fact_spaces()
    }

    fn stored_facts(&self, space: &str, after: Option<&str>, limit: usize) -> Result<Vec<StoredFact>, StoreError> {
        self.reader.stored_facts(space, after, limit)
    }

    fn watch(&self) -> toolyard_engine::store::Hints {
        self.hints.watch(&self.dir)
    }

    fn blob_hashes(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        self.reader.blob_hashes(after, limit)
    }

    fn ledger_append(&self, make: LedgerMaker<'_>) -> Result<LedgerEntry, StoreError> {
        let (ask, asked) = mpsc::sync_channel::<Option<LedgerEntry>>(1);
        let (made, answer) = mpsc::sync_channel(1);
        let (reply, done) = mpsc::sync_channel(1);
        self.writing()?.queue.push(Op::Ledger(LedgerOp { ask, answer, reply }), limits::CHANGE_BYTES, Urgency::Sync)?;
        // The writer asks, usually once, and drops the request when the outcome is known.
        while let Ok(last) = asked.recv() {
            match make(last.as_ref()) {
                Ok(entry) => {
                    if made.send(entry).is_err() {
                        break;
                    }
                }
                Err(error) => {
                    // The writer refuses the entry if its maker is gone.
                    drop(made);
                    let refused = wait(&done);
                    debug_assert!(refused.is_err());
                    return Err(error);
                }
            }
        }
        wait(&done)
    }

    fn remove_runs(&self, runs: &[RunId]) -> Result<u64, StoreError> {
        let (reply, answer) = mpsc::sync_channel(1);
        let op = Op::RemoveRuns { runs: runs.to_vec(), reply };
        self.writing()?.queue.push(op, limits::CHANGE_BYTES + 16 * runs.len(), Urgency::Sync)?;
        wait(&answer)
    }

    fn remove_unused_blobs(&self, keep: &[String]) -> Result<RemovedBlobs, StoreError> {
        // From here on the writer records which blobs are used, so that none of them is considered unused.
        self.watch_blobs(true)?;
        let removed = self.remove_blobs_except(keep);
        self.watch_blobs(false)?;
        removed
    }

    fn used_bytes(&self) -> Result<Option<u64>, StoreError> {
        self.used().map(Some)
    }

    fn ledger(&self, from_seq: u64, limit: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        self.reader.ledger(from_seq, limit)
    }
}

fn wait<T>(answer: &Receiver<Result<T, StoreError>>) -> Result<T, StoreError> {
    answer.recv().unwrap_or_else(|_| Err(StoreError::failed("the store was closed before it answered")))
}

fn fact_bytes(fact: &Fact) -> usize {
    limits::CHANGE_BYTES + fact.space.len() + fact.key.len() + 2 * fact.value.len()
}

fn stored_frame(frame: Frame) -> Result<StoredFrame, StoreError> {
    let Frame { seq, kind, payload, chain } = frame;
    let seq = u32::try_from(seq).map_err(|e| crate::failed("a frame's number is too large", e))?;
    Ok(StoredFrame { seq, kind: i64::from(kind), payload, chain })
}
