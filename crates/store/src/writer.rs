//! The one thread that writes. It writes all queued changes in one transaction, and SQLite syncs its log with the
//! commit if a caller waits for the disk; meanwhile the next group accumulates. There is no timer, except for changes
//! that no caller waits for.
//!
//! A transaction is first tried as a whole. If one batch in it cannot be written, the transaction is rolled back and
//! repeated batch by batch with savepoints, so that the cost of separating them arises only in this case.

use crate::{
    apply::{self, ApplyError, DeferredReply, RunNumbers},
    failed,
    hints::Hints,
    journal::{self, Journal, format::EntryPosition},
    journaler, limits, owners,
    queue::{Append, Blobs, Op, Queue, Queued, TransactionOutcome, Work},
    schema::{self, Opened},
};
use rusqlite::{Connection, ErrorCode, OptionalExtension};
use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    thread::JoinHandle,
    time::Instant,
};
use toolyard_engine::store::{Owner, StoreError};
use toolyard_protocol::RunId;

pub(crate) struct Writer {
    db: Connection,
    owner: Owner,
    /// Commits are synced.
    syncs: bool,
    hints: Arc<Hints>,
    queue: Arc<Queue>,
    numbers: RunNumbers,
    /// Runs that lost a batch. Their later batches are refused until the run is claimed.
    stopped: HashMap<RunId, StoreError>,
    /// Pages in the log after the last commit, as SQLite reports them.
    log_pages: Arc<AtomicI32>,
    /// Number of pages at which the next checkpoint between commits is tried.
    checkpoint_at: i32,
    /// An idle checkpoint was tried since the last write: trying again at once would change nothing.
    rested: bool,
    last_prune: Option<Instant>,
    /// Blobs in batches since a search for unused blobs began.
    brought_blobs: Option<HashSet<[u8; 32]>>,
    /// The journal, if there is one.
    journal: Option<Arc<Journal>>,
    /// The last of its entries that is in the database.
    moved: Option<EntryPosition>,
    dir: PathBuf,
}

type Outcome = Result<DeferredReply, StoreError>;

/// The result of an attempted transaction.
enum Attempt {
    All(Vec<Outcome>),
    /// A change was refused; nothing was committed.
    OneRefused,
    /// This process may not write any more; nothing was committed.
    Fenced,
}

/// Starts the thread, and the journal's.
pub(crate) fn start(
    opened: Opened,
    dir: &Path,
    queue: &Arc<Queue>,
    hints: &Arc<Hints>,
) -> Result<(JoinHandle<()>, Option<JoinHandle<()>>), StoreError> {
    let Opened { mut connection, journal, owner, life: _ } = opened;
    let log_pages = Arc::new(AtomicI32::new(0));
    let seen = Arc::clone(&log_pages);
    connection
        .wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            seen.store(pages, Ordering::Relaxed);
            Ok(())
        }))
        .map_err(|e| failed("cannot watch the log", e))?;
    let writer = Writer {
        db: connection,
        owner: owner.clone(),
        syncs: false,
        hints: Arc::clone(hints),
        queue: Arc::clone(queue),
        numbers: RunNumbers::default(),
        stopped: HashMap::new(),
        log_pages,
        checkpoint_at: limits::WAL_PAGES_HARD,
        rested: false,
        last_prune: None,
        brought_blobs: None,
        journal: journal.clone(),
        moved: None,
        dir: dir.to_owned(),
    };
    let writer = std::thread::Builder::new()
        .name("store-writer".into())
        .stack_size(512 << 10)
        .spawn(move || writer.run())
        .map_err(|e| failed("cannot start the store's writer", e))?;
    let journaler = journal.map(|journal| journaler::start(journal, Arc::clone(queue), owner)).transpose()?;
    Ok((writer, journaler))
}

/// Poisons the queue if the writer ends without being closed, so that no caller waits forever.
struct Guard(Arc<Queue>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.poison(StoreError::failed("the store is closed"));
    }
}

impl Writer {
    fn run(mut self) {
        let guard = Guard(Arc::clone(&self.queue));
        if let Err(error) = self.work() {
            tracing::error!(%error, "the store cannot go on");
            guard.0.poison(error);
        }
    }

    fn work(&mut self) -> Result<(), StoreError> {
        loop {
            match self.queue.next(!self.rested) {
                Work::Write { ops, sync } => {
                    self.rested = false;
                    self.write(ops, sync)?;
                    if self.log_pages.load(Ordering::Relaxed) >= self.checkpoint_at {
                        self.checkpoint()?;
                    }
                }
                Work::Sync { upto } => self.sync(upto)?,
                Work::Probe => self.write(Vec::new(), true)?,
                Work::Rest => {
                    self.rested = true;
                    if self.log_pages.load(Ordering::Relaxed) >= limits::WAL_PAGES_IDLE {
                        self.checkpoint()?;
                    }
                    // Pages come back from the system's cache when they are needed again.
                    if let Err(error) = self.execute("PRAGMA shrink_memory") {
                        tracing::warn!(%error, "the store keeps its pages");
                    }
                }
                Work::Close => return self.close(),
                Work::Stop => return Ok(()),
            }
        }
    }

    /// Closes the store after everything is committed: syncs it, marks the journal as retired, and removes this process
    /// from the list of owners.
    fn close(&mut self) -> Result<(), StoreError> {
        if self.queue.is_poisoned() {
            return Ok(());
        }
        self.sync(self.queue.visible())?;
        if !self.queue.is_writing() {
            // The disk is full: the journal keeps its entries, and this process stays in the list of owners for the
            // next start.
            return Ok(());
        }
        if let (Some(journal), Some(moved)) = (&self.journal, self.moved) {
            journal.retire(moved);
        }
        // An owner with open runs stays in the list, so that the process that resumes them finds it dead.
        let epoch = self.owner.epoch.cast_signed();
        let holds: i64 = self
            .db
            .query_row("SELECT count(*) FROM runs WHERE status < 3 AND owner = ?1", [epoch], |row| row.get(0))
            .map_err(|e| failed("cannot close the store", e))?;
        if holds == 0 {
            owners::forget(&self.dir, &self.db, epoch)?;
        }
        self.checkpoint()
    }

    /// What has to happen before the transaction begins.
    fn prepare(&mut self, ops: &mut [Queued]) -> Result<(), StoreError> {
        // Other processes need not wait for a large file.
        for queued in ops.iter_mut() {
            if let Op::Append(append) = &mut queued.op
                && let Blobs::Pending(prepared) = &append.blobs
            {
                append.blobs = match prepared.recv() {
                    Ok(Ok(blobs)) => Blobs::Ready(blobs),
                    Ok(Err(error)) => Blobs::Failed(error),
                    Err(_) => Blobs::Failed(StoreError::failed("the thread that writes blobs stopped")),
                };
            }
        }
        if ops.iter().any(|queued| matches!(queued.op, Op::Claim { .. })) {
            // The previous holder is dead, and may have left the end of the run's record in its journal.
            journal::adopt(&self.dir, &mut self.db, false)?;
        }
        for queued in ops.iter_mut() {
            match &mut queued.op {
                Op::Fence { epoch, .. } => {
                    journal::fence(&self.dir, &mut self.db, *epoch)?;
                    owners::forget(&self.dir, &self.db, *epoch)?;
                }
                Op::WatchBlobs { on, .. } => self.brought_blobs = on.then(HashSet::new),
                Op::Append(Append { blobs: Blobs::Ready(blobs), .. }) => {
                    if let Some(brought) = &mut self.brought_blobs {
                        brought.extend(blobs.iter().map(|blob| blob.sha256));
                    }
                }
                Op::RemoveBlobs { hashes, .. } => {
                    hashes.retain(|hash| !self.brought_blobs.as_ref().is_some_and(|brought| brought.contains(hash)));
                }
                _ => {}
            }
        }
        if ops.iter().any(|queued| matches!(queued.op, Op::Claim { .. } | Op::Fence { .. })) {
            // Moving a journal ends with commits that are not synced.
            self.syncs = false;
        }
        Ok(())
    }

    fn write(&mut self, mut ops: Vec<Queued>, sync: bool) -> Result<(), StoreError> {
        self.prepare(&mut ops)?;
        let committed = self.set_sync(sync).and_then(|()| self.commit(&ops, sync));
        let outcomes = match committed {
            Ok(Some(outcomes)) => outcomes,
            Ok(None) => {
                let error = StoreError::Fenced(self.owner.clone());
                ops.into_iter().for_each(|queued| queued.op.refuse(&error));
                return Err(error);
            }
            Err(error) if is_full(&error) => {
                return self.wait_for_room(ops, failed_full(&error));
            }
            Err(error) => {
                let error = failed("cannot write to the store", error);
                ops.into_iter().for_each(|queued| queued.op.refuse(&error));
                return Err(error);
            }
        };
        self.hints.changed();
        self.answer(ops, outcomes, sync)
    }

    /// Handles a full disk; nothing was committed. Waiting callers are answered; records and facts are kept and
    /// retried, unless the store closes.
    fn wait_for_room(&mut self, ops: Vec<Queued>, error: StoreError) -> Result<(), StoreError> {
        tracing::error!(%error, "the store waits for room");
        let (asked, kept): (Vec<_>, Vec<_>) = ops.into_iter().partition(|queued| queued.op.has_reply());
        asked.into_iter().for_each(|queued| queued.op.refuse(&error));
        let is_closing = self.queue.disk_full(kept, error.clone());
        if is_closing { Err(error) } else { Ok(()) }
    }

    fn set_sync(&mut self, sync: bool) -> rusqlite::Result<()> {
        if self.syncs != sync {
            schema::set_sync(&self.db, sync)?;
            self.syncs = sync;
        }
        Ok(())
    }

    /// Makes everything that is committed durable, with a commit of its own that SQLite syncs.
    fn sync(&mut self, upto: u64) -> Result<(), StoreError> {
        self.write(Vec::new(), true)?;
        if self.queue.is_writing() {
            self.queue.synced(upto);
        }
        Ok(())
    }

    /// Notifies callers: of committed changes at once, of changes that must be synced after the sync.
    fn answer(&mut self, ops: Vec<Queued>, outcomes: Vec<Outcome>, sync: bool) -> Result<(), StoreError> {
        let mut written = TransactionOutcome { sync, upto: self.queue.visible(), ..TransactionOutcome::default() };
        let mut pledges = Vec::new();
        for (queued, outcome) in ops.into_iter().zip(outcomes) {
            written.upto = queued.position;
            written.bytes += queued.bytes;
            match outcome {
                Ok(DeferredReply::Nothing) => {
                    if queued.place.is_none()
                        && let Op::Append(append) = &queued.op
                        && let Some(frame) = append.frames.last()
                    {
                        written.heads.push((append.run_id, frame.seq));
                    }
                }
                Ok(pledge) => {
                    if let DeferredReply::Claimed(Some(run_id)) = &pledge {
                        self.stopped.remove(run_id);
                        written.claimed.push(*run_id);
                    }
                    pledges.push((queued.op, pledge));
                }
                Err(error) if queued.place.is_some() => {
                    // A caller was already notified that it is durable. Only another process that writes to the same
                    // run can cause this.
                    return Err(failed("the database refuses what the journal holds", error));
                }
                Err(error) => {
                    if let Op::Append(append) = &queued.op {
                        self.stopped.insert(append.run_id, error.clone());
                        written.rejected.push((queued.position, append.run_id, error.clone()));
                    }
                    queued.op.refuse(&error);
                }
            }
        }
        let upto = written.upto;
        let any_rejected = !written.rejected.is_empty();
        self.queue.written(written);
        if sync {
            self.queue.synced(upto);
        }
        pledges.into_iter().for_each(|(op, pledge)| apply::keep(op, pledge));
        if any_rejected && self.queue.rejected() > limits::MAX_REJECTED {
            return Err(StoreError::failed(format!("the store refused more than {} batches", limits::MAX_REJECTED)));
        }
        Ok(())
    }

    /// `None` when this process was fenced.
    fn commit(&mut self, ops: &[Queued], sync: bool) -> rusqlite::Result<Option<Vec<Outcome>>> {
        for one_by_one in [false, true] {
            match self.try_commit(ops, one_by_one, sync)? {
                Attempt::All(outcomes) => return Ok(Some(outcomes)),
                Attempt::Fenced => return Ok(None),
                Attempt::OneRefused => {}
            }
        }
        // Under savepoints a refusal is an outcome.
        Err(rusqlite::Error::InvalidQuery)
    }

    fn try_commit(&mut self, ops: &[Queued], one_by_one: bool, sync: bool) -> rusqlite::Result<Attempt> {
        self.begin()?;
        let tried = if self.is_registered()? { self.apply_all(ops, one_by_one, sync) } else { Ok(Attempt::Fenced) };
        match tried {
            Ok(Attempt::All(outcomes)) => {
                match schema::before_commit(&self.dir).and_then(|()| self.execute("COMMIT")) {
                    Ok(()) => {
                        self.moved = ops.iter().rev().find_map(|queued| queued.place).or(self.moved);
                        Ok(Attempt::All(outcomes))
                    }
                    Err(error) => {
                        self.roll_back();
                        Err(error)
                    }
                }
            }
            other => {
                self.roll_back();
                other
            }
        }
    }

    /// Whether this process may still write: a process that takes over its runs removes it from the list of owners
    /// first.
    fn is_registered(&self) -> rusqlite::Result<bool> {
        self.db
            .prepare_cached("SELECT 1 FROM owners WHERE epoch = ?1")?
            .query_row([self.owner.epoch.cast_signed()], |_| Ok(()))
            .optional()
            .map(|found| found.is_some())
    }

    fn apply_all(&mut self, ops: &[Queued], one_by_one: bool, sync: bool) -> rusqlite::Result<Attempt> {
        let mut outcomes = Vec::with_capacity(ops.len());
        // Runs that lose a batch in this very transaction; they count only if it is committed.
        let mut stopped_now: HashMap<RunId, StoreError> = HashMap::new();
        for Queued { op, .. } in ops {
            if let Op::Append(append) = op
                && let Some(error) = self.stopped.get(&append.run_id).or_else(|| stopped_now.get(&append.run_id))
            {
                outcomes.push(Err(error.clone()));
                continue;
            }
            if one_by_one {
                self.execute("SAVEPOINT one")?;
            }
            let outcome = match apply::apply(&self.db, &mut self.numbers, op, Some(self.owner.epoch.cast_signed())) {
                Ok(pledge) => Ok(pledge),
                Err(ApplyError::Database(error)) => return Err(error),
                Err(ApplyError::Rejected(error)) => Err(error),
            };
            if let Err(error) = &outcome {
                if one_by_one {
                    self.execute("ROLLBACK TO one")?;
                    self.numbers.forget();
                } else if !matches!(op, Op::Ledger(_)) {
                    // A ledger entry is refused before anything is written, and its maker should not be asked twice.
                    return Ok(Attempt::OneRefused);
                }
                if let Op::Append(append) = op {
                    stopped_now.insert(append.run_id, error.clone());
                }
            }
            if let Ok(DeferredReply::Claimed(Some(run_id))) = &outcome {
                stopped_now.remove(run_id);
            }
            if one_by_one {
                self.execute("RELEASE one")?;
            }
            outcomes.push(outcome);
        }
        if let (Some(journal), Some(place)) = (&self.journal, ops.iter().rev().find_map(|queued| queued.place)) {
            journal::mark(&self.db, &journal.name, place)?;
        }
        if self.last_prune.is_none_or(|at| at.elapsed() >= limits::PRUNE_EVERY) {
            apply::prune(&self.db)?;
            self.last_prune = Some(Instant::now());
        }
        if sync {
            // A commit that changes nothing is not synced.
            schema::touch(&self.db)?;
        }
        Ok(Attempt::All(outcomes))
    }

    /// Begins a transaction; retries for up to `BUSY_PATIENCE` while other processes keep the database busy.
    fn begin(&self) -> rusqlite::Result<()> {
        let started = Instant::now();
        loop {
            match self.execute("BEGIN IMMEDIATE") {
                Err(error)
                    if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                        && started.elapsed() < limits::BUSY_PATIENCE =>
                {
                    tracing::warn!("another process keeps the store busy");
                }
                result => return result,
            }
        }
    }

    fn roll_back(&mut self) {
        self.numbers.forget();
        // SQLite has often rolled back by itself after an error; then there is nothing left to do.
        if !self.db.is_autocommit()
            && let Err(error) = self.execute("ROLLBACK")
        {
            tracing::warn!(%error, "cannot roll back");
        }
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.db.prepare_cached(sql)?.execute([]).map(|_| ())
    }

    /// Moves the log into the database, as far as readers allow; the next commit then restarts the log.
    fn checkpoint(&mut self) -> Result<(), StoreError> {
        let result = self.db.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)").and_then(|mut statement| {
            statement.query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i32>(1)?, row.get::<_, i32>(2)?)))
        });
        match result {
            Ok((0, in_log, moved)) if in_log <= moved => {
                self.log_pages.store(0, Ordering::Relaxed);
                self.checkpoint_at = limits::WAL_PAGES_HARD;
                Ok(())
            }
            // A reader or another process prevents the checkpoint; it is tried again when the log has grown by the same
            // amount.
            Ok((_, in_log, _)) => {
                self.checkpoint_at = in_log.max(0).saturating_add(limits::WAL_PAGES_HARD);
                Ok(())
            }
            Err(error)
                if matches!(
                    error.sqlite_error_code(),
                    Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull)
                ) =>
            {
                // Nothing is lost: the log still holds everything, and a full disk will stop the next commit.
                tracing::warn!(%error, "cannot shorten the store's log");
                self.checkpoint_at = self.log_pages.load(Ordering::Relaxed).saturating_add(limits::WAL_PAGES_HARD);
                Ok(())
            }
            Err(error) => Err(failed("cannot move the store's log into the database", error)),
        }
    }
}

/// Whether there is no room for what was to be written. SQLite has rolled the transaction back.
fn is_full(error: &rusqlite::Error) -> bool {
    let extended = error.sqlite_error().map_or(0, |error| error.extended_code);
    error.sqlite_error_code() == Some(ErrorCode::DiskFull) || extended == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
}

fn failed_full(error: &rusqlite::Error) -> StoreError {
    StoreError::DiskFull(format!("the store's disk is full: {error}"))
}
