//! [`SqliteStore`]: checks its input, and passes it to the writer thread or to a reader.

use crate::{
    blob_files,
    journal::{self, Journal},
    journaler,
    journaling::Journaling,
    limits,
    queue::{Append, Blobs, Fact, LedgerOp, Op, Queue, StoredFrame, Urgency},
    reader::{Reader, ZSTD_FLAG},
    rows, schema, writer,
};
use jiff::Timestamp;
use std::{
    collections::BTreeMap,
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
        Batch, Durability, Frame, FrameVisitor, Lease, LedgerEntry, LedgerMaker, Position, RunFilter, RunRow,
        StoreError,
    },
};
use toolyard_protocol::RunId;

/// How a [`SqliteStore`] behaves. The defaults suit one machine.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Bytes that may be queued before `append` waits.
    pub queue_bytes: usize,
    /// How long a `Ride` batch waits for company; at most 50 ms, whatever is asked for.
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
    writing: Option<Writing>,
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
        let opened = schema::open_writer(dir)?;
        let journaling = Journaling::new(opened.journal.as_ref().map(|journal| journal.generation));
        let ride_delay = options.ride_delay.min(limits::MAX_RIDE_DELAY);
        let queue = Arc::new(Queue::new(options.queue_bytes, ride_delay, journaling));
        let journal = opened.journal.clone();
        let (writer, journaler) = writer::start(opened, dir, &queue)?;
        let threads = std::iter::once(writer).chain(journaler).collect();
        let writing = Writing { queue, journal, threads, blob_thread: Mutex::new(None) };
        Ok(Self { dir: dir.to_owned(), reader: Reader::new(dir), writing: Some(writing) })
    }

    /// Opens an existing store for looking only. Everything that would change it fails.
    pub fn open_read_only(dir: &Path) -> Result<Self, StoreError> {
        // A process that is gone may have left the end of its records in its journal. Where it cannot be taken up (the
        // directory cannot be written), what the database holds is shown.
        if journal::is_any_left(dir)
            && let Err(error) = schema::open_writer(dir)
        {
            tracing::warn!(%error, "a journal was left behind and cannot be taken up");
        }
        let reader = Reader::new(dir);
        reader.check()?;
        Ok(Self { dir: dir.to_owned(), reader, writing: None })
    }

    /// Makes durable records readable, although the database takes over the journal a little later.
    fn catch_up(&self) -> Result<(), StoreError> {
        self.writing.as_ref().map_or(Ok(()), |writing| writing.queue.catch_up())
    }

    fn writing(&self) -> Result<&Writing, StoreError> {
        self.writing
            .as_ref()
            .ok_or_else(|| StoreError(format!("the store in {} was opened for reading only", self.dir.display())))
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
        jobs.send(BlobJob { blobs, done }).map_err(|_| StoreError("the thread that writes blobs stopped".into()))?;
        Ok(Blobs::Pending(prepared))
    }

    fn fact(&self, space: &str, key: &str, value: Vec<u8>, expires_at: Option<Timestamp>) -> Result<Fact, StoreError> {
        check_fact_name(space, key)?;
        if value.len() > limits::MAX_FACT_BYTES {
            return Err(too_large("a fact", value.len(), limits::MAX_FACT_BYTES));
        }
        Ok(Fact { space: space.to_owned(), key: key.to_owned(), value, expires_at: expires_at.map(rows::micros) })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
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
        let prepared = check_batch(&batch).and_then(|bytes| {
            let Batch { frames, blobs, row, durability, .. } = batch;
            let frames = frames.into_iter().map(stored_frame).collect::<Result<Vec<_>, _>>()?;
            let blobs = self.blobs(writing, blobs)?;
            let urgency = match durability {
                Durability::Ride => Urgency::Ride,
                Durability::Sync => Urgency::Sync,
            };
            Ok((Op::Append(Append { run_id, frames, blobs, row }), bytes, urgency))
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
            return Err(StoreError("the store's disk is full".into()));
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
            // Whatever came of it, the queue knows.
            drop(journaler::write(journal, queue, piece));
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

    fn frames(&self, run_id: RunId, from_seq: u64, visit: FrameVisitor<'_>) -> Result<(), StoreError> {
        self.catch_up()?;
        self.reader.frames(run_id, from_seq, visit)
    }

    fn claim(&self, run_id: RunId, expected: Option<&Lease>, new: &Lease) -> Result<bool, StoreError> {
        let (reply, answer) = mpsc::sync_channel(1);
        let op = Op::Claim { run_id, expected: expected.cloned(), new: new.clone(), reply };
        // A claim lost to a power cut was made by a process of another boot, which is gone as well: no sync.
        self.writing()?.queue.push(op, OP_BYTES, Urgency::Commit)?;
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
        writing.queue.push(Op::Put(fact), bytes, Urgency::Ride)
    }

    fn put_if_absent(
        &self,
        space: &str,
        key: &str,
        value: Vec<u8>,
        expires_at: Option<Timestamp>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let writing = self.writing()?;
        let fact = self.fact(space, key, value, expires_at)?;
        let bytes = fact_bytes(&fact);
        let (reply, answer) = mpsc::sync_channel(1);
        // There is no position to wait for, so it is durable when this returns.
        writing.queue.push(Op::PutIfAbsent { fact, reply }, bytes, Urgency::Sync)?;
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
        check_fact_name(space, key)?;
        let op = Op::Remove { space: space.to_owned(), key: key.to_owned() };
        writing.queue.push(op, OP_BYTES + space.len() + key.len(), Urgency::Ride)
    }

    fn list(&self, space: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        // Pending first: what is written between the two reads is then seen twice rather than not at all.
        let pending = self
            .writing
            .as_ref()
            .map_or_else(Vec::new, |writing| writing.queue.pending_space(space, rows::micros(Timestamp::now())));
        let mut facts: BTreeMap<String, Vec<u8>> = self.reader.facts(space)?.into_iter().collect();
        for (key, value) in pending {
            match value {
                Some(value) => facts.insert(key, value),
                None => facts.remove(&key),
            };
        }
        Ok(facts.into_iter().collect())
    }

    fn blob_hashes(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        self.reader.blob_hashes(after, limit)
    }

    fn ledger_append(&self, make: LedgerMaker<'_>) -> Result<LedgerEntry, StoreError> {
        let (ask, asked) = mpsc::sync_channel::<Option<LedgerEntry>>(1);
        let (made, answer) = mpsc::sync_channel(1);
        let (reply, done) = mpsc::sync_channel(1);
        self.writing()?.queue.push(Op::Ledger(LedgerOp { ask, answer, reply }), OP_BYTES, Urgency::Sync)?;
        // The writer asks, usually once; it lets go of the question when the outcome is known.
        while let Ok(last) = asked.recv() {
            match make(last.as_ref()) {
                Ok(entry) => {
                    if made.send(entry).is_err() {
                        break;
                    }
                }
                Err(error) => {
                    // The writer refuses the entry when nobody can make it any more.
                    drop(made);
                    let refused = wait(&done);
                    debug_assert!(refused.is_err());
                    return Err(error);
                }
            }
        }
        wait(&done)
    }

    fn ledger(&self, from_seq: u64, limit: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        self.reader.ledger(from_seq, limit)
    }
}

/// What a queued change weighs beyond its contents.
const OP_BYTES: usize = 256;

fn wait<T>(answer: &Receiver<Result<T, StoreError>>) -> Result<T, StoreError> {
    answer.recv().unwrap_or_else(|_| Err(StoreError("the store was closed before it answered".into())))
}

fn too_large(what: &str, bytes: usize, most: usize) -> StoreError {
    StoreError(format!("{what} of {bytes} bytes is too large for the store: {most} is the most"))
}

fn fact_bytes(fact: &Fact) -> usize {
    OP_BYTES + fact.space.len() + fact.key.len() + 2 * fact.value.len()
}

fn check_fact_name(space: &str, key: &str) -> Result<(), StoreError> {
    match space.len().max(key.len()) {
        len if len > limits::MAX_FACT_NAME_BYTES => Err(too_large("a fact's name", len, limits::MAX_FACT_NAME_BYTES)),
        _ => Ok(()),
    }
}

/// Checks a batch before it is queued, and returns its size.
fn check_batch(batch: &Batch) -> Result<usize, StoreError> {
    let run_id = batch.run_id;
    let mut bytes = OP_BYTES;
    for frame in &batch.frames {
        if frame.seq == 0 || frame.seq > limits::MAX_SEQ {
            let most = limits::MAX_SEQ;
            return Err(StoreError(format!("run {run_id}: frame {} is outside 1 to {most}", frame.seq)));
        }
        if frame.payload.len() > limits::MAX_FRAME_BYTES {
            return Err(too_large("a frame", frame.payload.len(), limits::MAX_FRAME_BYTES));
        }
        bytes += frame.payload.len() + 96;
    }
    for blob in &batch.blobs {
        if blob.bytes.len() > limits::MAX_BLOB_BYTES {
            return Err(too_large("a blob", blob.bytes.len(), limits::MAX_BLOB_BYTES));
        }
        if blob_files::parse_hash(&blob.sha256).is_none() {
            return Err(StoreError(format!("{:?} is no SHA-256 in lowercase hexadecimal", blob.sha256)));
        }
        bytes += blob.bytes.len();
    }
    if let Some(row) = &batch.row {
        if row.run_id != run_id {
            return Err(StoreError(format!("a batch of run {run_id} carries the row of run {}", row.run_id)));
        }
        bytes += row.title.len();
    }
    Ok(bytes)
}

fn stored_frame(frame: Frame) -> Result<StoredFrame, StoreError> {
    let Frame { seq, kind, payload, chain } = frame;
    let seq = u32::try_from(seq).map_err(|e| crate::failed("a frame's number is too large", e))?;
    let packed = if payload.len() <= limits::COMPRESS_FRAME_TO { blob_files::compress(&payload) } else { None };
    let (kind, payload) = match packed {
        None => (i64::from(kind), payload),
        Some(packed) => {
            let mut stored = Vec::with_capacity(packed.len() + 4);
            // Lossless: what is compressed is far below four gigabytes.
            stored.extend_from_slice(&(payload.len() as u32).to_le_bytes());
            stored.extend_from_slice(&packed);
            (i64::from(kind) | ZSTD_FLAG, stored)
        }
    };
    Ok(StoredFrame { seq, kind, payload, chain })
}
