//! [`PostgresStore`]: checks its input, and passes it to the queue or to a query.

use crate::{
    large_blobs::{InDatabase, LargeBlobs},
    lease::{self, Lease},
    limits,
    queue::{Append, Fact, Op, Queue},
    reads::{Reads, ttl_ms},
    rows::{self, column, micros},
    schema,
    server::{Pool, Server, ServerReport, Trouble},
    statements::{FactSwap, MOVED},
    waiting::{blocking, random, wait_for},
    writer::{self, Writer},
};
use jiff::Timestamp;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, TryLockError, mpsc},
};
use tokio::{runtime::Runtime, sync::oneshot};
use tokio_postgres::types::Type;
use toolyard_engine::{
    Blob, BoxFuture, Store,
    store::{
        Batch, FrameVisitor, Head, Hints, LedgerEntry, LedgerMaker, LeftBehind, NewFact, NodeRow, Owner, Position,
        RemovedBlobs, RunFilter, RunRow, StoreError, StoredFact, Swap,
        checks::{MAX_LEDGER_BYTES, check_size},
    },
};
use toolyard_protocol::{RunId, canonical};

/// The key of the cluster's secret in the table `meta`.
const SECRET: &str = "secret";

/// How a [`PostgresStore`] is opened.
#[derive(Clone)]
pub struct PostgresOptions {
    /// `postgres://…`; `sslmode` and `sslrootcert` as libpq has them.
    pub url: String,
    /// The node's name. Two nodes that serve have different names.
    pub node: String,
    /// Identifies the home: a serving process of the same home replaces an earlier one at once.
    pub home: String,
    /// Whether this process serves, or is a command beside a process that does.
    pub serves: bool,
    /// Whether a server that replicates asynchronously is used all the same.
    pub allow_async_replication: bool,
    /// The cluster's secret, if the operator keeps it outside the database.
    pub secret: Option<[u8; 32]>,
    /// Whether a store that was moved elsewhere is opened all the same, to move it back.
    pub is_moved: bool,
    /// Where large blobs are kept; `None` for the database.
    pub large_blobs: Option<Arc<dyn LargeBlobs>>,
}

/// A store in PostgreSQL that several nodes share.
///
/// Everything that is queued becomes one statement, which also checks that this owner was not fenced. While the server
/// cannot be reached, queued changes wait; [`Store::writable`] says so.
pub struct PostgresStore {
    queue: Arc<Queue>,
    reads: Reads,
    pub(crate) pool: Arc<Pool>,
    lease: Arc<Lease>,
    pub(crate) owner: Owner,
    pub(crate) secret: [u8; 32],
    is_secret_in_database: bool,
    /// Held while an entry of the ledger is made: its maker reads the store.
    ledger_turn: Mutex<()>,
    /// Had by the thread that commits.
    writer: Arc<Mutex<Writer>>,
    /// Hung up when the writer's thread has ended.
    writing: Mutex<mpsc::Receiver<()>>,
    runtime: Option<Runtime>,
}

impl PostgresStore {
    /// Opens the store: makes or migrates the tables, and registers an owner. Blocks.
    pub fn open(options: PostgresOptions) -> Result<Self, StoreError> {
        let server = Server::parse(&options.url)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("store-postgres")
            .enable_all()
            .build()
            .map_err(|e| StoreError::failed(format!("no thread for the database: {e}")))?;
        let pool = Arc::new(Pool::new(server.clone()));
        let opening = {
            let (server, options) = (server.clone(), options.clone());
            async move {
                let mut client = server.connect().await?;
                let report = ServerReport::ask(&client).await?;
                if let Some(problem) = report.problem(options.allow_async_replication) {
                    return Err(StoreError::failed(problem));
                }
                schema::migrate(&mut client).await?;
                if !options.is_moved
                    && let Some(to) = schema::meta(&client, MOVED).await?
                {
                    let to = String::from_utf8_lossy(&to).into_owned();
                    return Err(StoreError::failed(format!("this store was moved to {to}: it is not used any more")));
                }
                let secret = match options.secret {
                    Some(secret) => secret,
                    None => {
                        let kept = schema::meta_once(&client, SECRET, &random()?).await?;
                        kept.try_into().map_err(|_| StoreError::failed("the cluster's secret is damaged"))?
                    }
                };
                let owner = lease::register(&client, &options.node, &options.home, options.serves).await?;
                Ok((owner, secret))
            }
        };
        let (owner, secret) = match wait_for(runtime.handle(), opening) {
            Ok(opened) => opened,
            Err(error) => {
                // Dropping a runtime waits for its threads, which is not allowed on another runtime's.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let (queue, lease) = (Arc::new(Queue::default()), Arc::new(Lease::new()));
        let large = options.large_blobs.unwrap_or_else(|| Arc::new(InDatabase(pool.clone())));
        let wrote = {
            let lease = lease.clone();
            Box::new(move || lease.changed())
        };
        let writer = Writer::new(server, queue.clone(), owner.clone(), lease.commits.clone(), wrote);
        let writer = Arc::new(Mutex::new(writer));
        let writing = match writer::start(writer.clone(), queue.clone()) {
            Ok(writing) => writing,
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        runtime.spawn(lease::beat(lease.clone(), pool.clone(), queue.clone(), owner.clone()));
        runtime.spawn(lease::tell(lease.clone(), pool.clone()));
        runtime.spawn(lease::listen(lease.clone(), pool.clone()));
        runtime.spawn(lease::maintain(lease.clone(), pool.clone()));
        Ok(Self {
            queue,
            reads: Reads { pool: pool.clone(), large },
            pool,
            lease,
            owner,
            secret,
            is_secret_in_database: options.secret.is_none(),
            ledger_turn: Mutex::default(),
            writer,
            writing: Mutex::new(writing),
            runtime: Some(runtime),
        })
    }

    /// Whether the cluster's secret is in the database: then anybody who can read the database can forge tags and seals.
    pub fn is_secret_in_database(&self) -> bool {
        self.is_secret_in_database
    }

    pub(crate) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.runtime {
            Some(runtime) => wait_for(runtime.handle(), work),
            None => Err(StoreError::failed("the store is closed")),
        }
    }

    /// Runs a query on the store's thread.
    pub(crate) fn read<T: Send + 'static, F: Future<Output = Result<T, StoreError>> + Send + 'static>(
        &self,
        query: impl FnOnce(Reads) -> F,
    ) -> Result<T, StoreError> {
        self.wait(query(self.reads.clone()))
    }

    fn push(&self, mut op: Op, bytes: usize) -> Result<Position, StoreError> {
        loop {
            match self.queue.push(op, bytes) {
                Ok(answer) => return answer,
                Err((back, room)) => {
                    op = back;
                    // The sender answers or goes away; in both cases the queue is asked again.
                    blocking(|| drop(room.blocking_recv()));
                }
            }
        }
    }

    /// Starts keeping large blobs.
    fn uploads(&self, blobs: &[Blob]) -> Vec<oneshot::Receiver<Result<(), StoreError>>> {
        let Some(runtime) = &self.runtime else { return Vec::new() };
        let large = blobs.iter().filter(|blob| blob.bytes.len() > limits::BLOB_INLINE_BYTES);
        large
            .map(|blob| {
                let (done, kept) = oneshot::channel();
                let keeping = self.reads.large.put(&blob.sha256, blob.bytes.clone());
                runtime.spawn(async move { drop(done.send(keeping.await)) });
                kept
            })
            .collect()
    }

    fn fenced(&self) -> StoreError {
        self.queue.fence(&self.owner);
        StoreError::Fenced(self.owner.clone())
    }

    fn check_fenced(&self) -> Result<(), StoreError> {
        self.queue.is_fenced().map_or(Ok(()), Err)
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.queue.close();
        self.lease.close();
        let Some(runtime) = self.runtime.take() else { return };
        let is_fenced = self.queue.is_fenced().is_some();
        let writing = self.writing.get_mut().unwrap_or_else(PoisonError::into_inner);
        if blocking(|| writing.recv_timeout(limits::AWAY_PATIENCE)) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::error!("the database is away: what is queued could not be written");
            // Ends the thread as well.
            self.queue.fence(&self.owner);
        }
        let signing_off = lease::sign_off(self.pool.clone(), self.owner.clone());
        if !is_fenced && let Err(error) = wait_for(runtime.handle(), signing_off) {
            tracing::warn!(%error, "this node could not be signed off; its lease runs out by itself");
        }
        runtime.shutdown_background();
    }
}

impl Store for PostgresStore {
    fn append(&self, batch: Batch) -> Result<Position, StoreError> {
        if batch.epoch != self.owner.epoch {
            return Err(StoreError::Fenced(Owner { epoch: batch.epoch, ..self.owner.clone() }));
        }
        let run_id = batch.run_id;
        let bytes = match limits::CHANGES.check_batch(&batch) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.queue.stop_run(run_id, error.clone());
                return Err(error);
            }
        };
        let uploads = self.uploads(&batch.blobs);
        // A caller who needs the batch to be durable says so with `durable`, which does not wait for others to ride along.
        let Batch { frames, blobs, row, release, .. } = batch;
        let op = Op::Append(Append { run_id, frames, blobs, row, release, uploads });
        self.push(op, bytes)
    }

    fn durable(&self, position: Position) -> BoxFuture<'static, Result<(), StoreError>> {
        self.queue.written(position.0)
    }

    fn durable_here(&self, position: Position) -> BoxFuture<'static, Result<(), StoreError>> {
        match self.writer.try_lock() {
            Ok(mut writer) => writer.lead(position.0),
            Err(TryLockError::Poisoned(writer)) => writer.into_inner().lead(position.0),
            // It is committing already.
            Err(TryLockError::WouldBlock) => {}
        }
        self.durable(position)
    }

    fn writable(&self) -> Result<(), StoreError> {
        self.queue.writable()?;
        if self.lease.is_good() {
            return Ok(());
        }
        Err(StoreError::failed("the database has not renewed this node's lease"))
    }

    fn settle(&self) -> Result<(), StoreError> {
        let written = self.queue.written(self.queue.last());
        match self.wait(written) {
            // A change that was refused is settled as well.
            Err(error) => {
                self.check_fenced()?;
                self.queue.writable().map_err(|_| error)
            }
            Ok(()) => Ok(()),
        }
    }

    fn run(&self, run_id: RunId) -> Result<Option<RunRow>, StoreError> {
        self.read(|reads| async move { reads.run(run_id).await })
    }

    fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        let filter = filter.clone();
        self.read(|reads| async move { reads.runs(&filter).await })
    }

    fn count_runs(&self, filter: &RunFilter) -> Result<u64, StoreError> {
        let filter = filter.clone();
        self.read(|reads| async move { reads.count_runs(&filter).await })
    }

    fn unlisted_runs(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        self.read(|reads| async move { reads.unlisted_runs(limit).await })
    }

    fn frames(&self, run_id: RunId, from_seq: u64, visit: FrameVisitor<'_>) -> Result<(), StoreError> {
        let mut from = from_seq;
        loop {
            let page = self.read(|reads| async move { reads.frames(run_id, from).await })?;
            let is_last = (page.len() as i64) < limits::FRAMES_PER_READ;
            for frame in page {
                from = frame.seq.saturating_add(1);
                if visit(frame).is_break() {
                    return Ok(());
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }

    fn head(&self, run_id: RunId) -> Result<Option<Head>, StoreError> {
        self.read(|reads| async move { reads.head(run_id).await })
    }

    fn owner(&self) -> Owner {
        self.owner.clone()
    }

    fn is_alive(&self, owner: &Owner) -> Result<bool, StoreError> {
        let owner = owner.clone();
        self.read(|reads| async move { reads.is_alive(&owner).await })
    }

    fn fence(&self, owner: &Owner) -> Result<(), StoreError> {
        let owner = owner.clone();
        self.read(|reads| async move { reads.fence(&owner).await })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        self.read(|reads| async move { reads.nodes().await })
    }

    fn set_address(&self, address: &str) -> Result<(), StoreError> {
        self.set_node("UPDATE toolyard.nodes SET address = $3 WHERE node = $1 AND epoch = $2", address)
    }

    fn set_draining(&self) -> Result<(), StoreError> {
        let sql = "UPDATE toolyard.nodes SET draining = ($3 = 'draining') WHERE node = $1 AND epoch = $2";
        self.set_node(sql, "draining")
    }

    fn shared_secret(&self) -> Option<[u8; 32]> {
        Some(self.secret)
    }

    fn may_dispatch(&self) -> Result<(), StoreError> {
        if self.lease.is_good() {
            return Ok(());
        }
        self.check_fenced()?;
        Err(StoreError::failed("this node's lease may have run out: the database did not renew it in time"))
    }

    fn holder(&self, run_id: RunId) -> Result<Option<Owner>, StoreError> {
        self.read(|reads| async move { reads.holder(run_id).await })
    }

    fn left_behind(&self, limit: usize) -> Result<Vec<LeftBehind>, StoreError> {
        self.check_fenced()?;
        self.read(|reads| async move { reads.left_behind(limit).await })
    }

    fn claim(&self, run_id: RunId, from: Option<&Owner>) -> Result<bool, StoreError> {
        self.settle()?;
        let (pool, owner, from) = (self.pool.clone(), self.owner.clone(), from.cloned());
        let claimed: Option<bool> = self.wait(async move {
            let from_node = from.as_ref().map(|from| from.node.as_str());
            let from_epoch = from.as_ref().map(|from| from.epoch.cast_signed());
            let rows = pool
                .retry(
                    "SELECT toolyard.claim_1($1, $2, $3, $4, $5, $6)",
                    &[
                        (&owner.node, Type::TEXT),
                        (&owner.epoch.cast_signed(), Type::INT8),
                        (run_id.as_uuid(), Type::UUID),
                        (&from_node, Type::TEXT),
                        (&from_epoch, Type::INT8),
                        (&ttl_ms(), Type::INT4),
                    ],
                )
                .await?;
            rows.first().map_or(Ok(None), |row| column(row, 0))
        })?;
        match claimed {
            None => Err(self.fenced()),
            Some(claimed) => {
                if claimed {
                    self.queue.resume_run(run_id);
                }
                Ok(claimed)
            }
        }
    }

    fn blob(&self, sha256: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let sha256 = sha256.to_owned();
        self.read(|reads| async move { reads.blob(&sha256).await })
    }

    fn blob_hashes(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let after = after.to_owned();
        self.read(|reads| async move { reads.blob_hashes(&after, limit).await })
    }

    fn put(
        &self,
        space: &str,
        key: &str,
        value: Vec<u8>,
        expires_at: Option<Timestamp>,
    ) -> Result<Position, StoreError> {
        let bytes = limits::CHANGES.check_fact(space, key, Some(&value))?;
        let until = expires_at.map(micros);
        let fact = Fact { space: space.to_owned(), key: key.to_owned(), value: Some(value), until };
        self.push(Op::Fact(fact), bytes)
    }

    fn compare_and_set(
        &self,
        space: &str,
        key: &str,
        expected: Option<&[u8]>,
        wanted: NewFact,
    ) -> Result<Swap, StoreError> {
        self.check_fenced()?;
        limits::CHANGES.check_fact(space, key, wanted.as_ref().map(|(value, _)| value.as_slice()))?;
        if self.queue.pending(space, key, 0).is_some() {
            self.settle()?;
        }
        let (wanted, until) = wanted.map_or((None, None), |(value, at)| (Some(value), at.map(micros)));
        let expected = expected.map(<[u8]>::to_vec);
        let swap = Arc::new(FactSwap { space: space.to_owned(), key: key.to_owned(), expected, wanted, until });
        let began = std::time::Instant::now();
        let mut is_unknown = false;
        loop {
            match self.try_swap(&swap) {
                Ok(None) => return Err(self.fenced()),
                // The current value may have been written by an earlier attempt whose answer was lost.
                Ok(Some(Swap::Differs(found))) if is_unknown && found == swap.wanted => break,
                Ok(Some(Swap::Done)) => break,
                Ok(Some(differs)) => return Ok(differs),
                Err(Trouble::Away(_)) if began.elapsed() < limits::READ_PATIENCE => is_unknown = true,
                Err(Trouble::Again(_)) if began.elapsed() < limits::READ_PATIENCE => {}
                Err(trouble) => return Err(trouble.into()),
            }
            blocking(|| std::thread::sleep(limits::RETRY));
        }
        self.lease.commits.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.lease.changed();
        Ok(Swap::Done)
    }

    fn get(&self, space: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(value) = self.queue.pending(space, key, micros(Timestamp::now())) {
            return Ok(value);
        }
        let (space, key) = (space.to_owned(), key.to_owned());
        self.read(|reads| async move { reads.fact(&space, &key).await })
    }

    fn remove(&self, space: &str, key: &str) -> Result<Position, StoreError> {
        let bytes = limits::CHANGES.check_fact(space, key, None)?;
        let fact = Fact { space: space.to_owned(), key: key.to_owned(), value: None, until: None };
        self.push(Op::Fact(fact), bytes)
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
        let pending = self.queue.pending_space(space, micros(Timestamp::now()));
        let is_here = |key: &str| key.starts_with(prefix) && after.is_none_or(|after| key > after);
        // A pending removal hides the stored fact.
        let removed = pending.iter().filter(|(key, value)| value.is_none() && is_here(key)).count();
        let wanted = limit.saturating_add(removed);
        let (in_space, of_prefix, after_key) = (space.to_owned(), prefix.to_owned(), after.map(str::to_owned));
        let found =
            self.read(|reads| async move { reads.facts(&in_space, &of_prefix, after_key.as_deref(), wanted).await })?;
        let mut facts: BTreeMap<String, Vec<u8>> = found.into_iter().map(|fact| (fact.key, fact.value)).collect();
        for (key, value) in pending.into_iter().filter(|(key, _)| is_here(key)) {
            match value {
                Some(value) => facts.insert(key, value),
                None => facts.remove(&key),
            };
        }
        Ok(facts.into_iter().take(limit).collect())
    }

    fn fact_spaces(&self) -> Result<Vec<String>, StoreError> {
        self.read(|reads| async move { reads.fact_spaces().await })
    }

    fn stored_facts(&self, space: &str, after: Option<&str>, limit: usize) -> Result<Vec<StoredFact>, StoreError> {
        let (space, after) = (space.to_owned(), after.map(str::to_owned));
        self.read(|reads| async move { reads.facts(&space, "", after.as_deref(), limit).await })
    }

    fn remove_runs(&self, runs: &[RunId]) -> Result<u64, StoreError> {
        let runs: Vec<uuid::Uuid> = runs.iter().map(|run_id| *run_id.as_uuid()).collect();
        let (pool, owner) = (self.pool.clone(), self.owner.clone());
        let removed: Option<i64> = self.wait(async move {
            let epoch = owner.epoch.cast_signed();
            let rows = pool
                .retry(
                    "SELECT toolyard.remove_runs_1($1, $2, $3)",
                    &[(&owner.node, Type::TEXT), (&epoch, Type::INT8), (&runs, Type::UUID_ARRAY)],
                )
                .await?;
            rows.first().map_or(Ok(None), |row| column(row, 0))
        })?;
        removed.map(i64::cast_unsigned).ok_or_else(|| self.fenced())
    }

    fn remove_unused_blobs(&self, keep: &[String]) -> Result<RemovedBlobs, StoreError> {
        self.check_fenced()?;
        let (keep, pool) = (keep.to_vec(), self.pool.clone());
        self.read(|reads| async move {
            let mut removed = RemovedBlobs::default();
            for (sha256, is_large) in reads.unused_blobs(&keep).await? {
                let hash = canonical::unhex(&sha256).map(Vec::from).unwrap_or_default();
                // A batch that used it meanwhile has noted so.
                let sql = "DELETE FROM toolyard.blobs WHERE sha256 = $1 AND used_at < now() - interval '1 hour' RETURNING len";
                let rows = pool
                    .retry(sql, &[(&hash, Type::BYTEA)])
                    .await?;
                if let Some(row) = rows.first() {
                    removed.blobs += 1;
                    removed.bytes += rows::column::<i64>(row, 0)?.cast_unsigned();
                    if is_large {
                        reads.large.remove(&sha256).await?;
                    }
                }
            }
            Ok(removed)
        })
    }

    fn used_bytes(&self) -> Result<Option<u64>, StoreError> {
        self.read(|reads| async move { reads.used_bytes("ledger").await })
    }

    fn watch(&self) -> Hints {
        self.lease.hints.subscribe()
    }

    fn ledger_append(&self, make: LedgerMaker<'_>) -> Result<LedgerEntry, StoreError> {
        self.check_fenced()?;
        // An entry names the heads of runs. It uses another connection than their records, so it could be written although
        // they are not: if this node were then fenced, the node that takes over would record another end than the sealed one.
        self.settle()?;
        let _turn = self.ledger_turn.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..limits::LEDGER_TRIES {
            let last = self.read(|reads| async move { reads.last_entry().await })?;
            let (payload, chain) = make(last.as_ref())?;
            check_size("a ledger entry", payload.len(), MAX_LEDGER_BYTES)?;
            let entry = LedgerEntry { seq: last.map_or(1, |last| last.seq + 1), payload, chain };
            match self.write_entry(entry.clone())? {
                0 => return Err(self.fenced()),
                1 => return Ok(entry),
                // Another node was faster, or this very entry was written by a connection that was lost.
                _ => {
                    let seq = entry.seq;
                    if self.ledger(seq, 1)?.first() == Some(&entry) {
                        return Ok(entry);
                    }
                }
            }
        }
        Err(StoreError::failed("the ledger entry could not be appended: other nodes appended an entry first each time"))
    }

    fn ledger(&self, from_seq: u64, limit: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        self.read(|reads| async move { reads.ledger(from_seq, limit).await })
    }
}
