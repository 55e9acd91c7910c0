//! The writer thread. It takes all queued changes, writes them in one transaction, and syncs the log once for all
//! callers that asked; meanwhile the next group collects. There is no timer, except for changes that nobody waits for.
//!
//! A transaction is first tried as a whole. If one batch in it cannot be written, the transaction is rolled back and
//! repeated batch by batch with savepoints, so that the cost of separating them arises only in this case.

use crate::{
    apply::{self, Pledge, RunNumbers, Trouble},
    failed,
    journal::{self, Journal},
    journaler, limits,
    queue::{Blobs, Op, Queue, Queued, Urgency, Work, Written},
    schema::Opened,
    sync::{PendingSync, SyncHelper},
};
use rusqlite::{Connection, ErrorCode};
use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    thread::JoinHandle,
    time::Instant,
};
use toolyard_engine::store::StoreError;
use toolyard_protocol::RunId;

pub(crate) struct Writer {
    db: Connection,
    log: File,
    helper: Option<SyncHelper>,
    queue: Arc<Queue>,
    numbers: RunNumbers,
    /// Runs that lost a batch. Their later batches are refused until somebody claims the run.
    stopped: HashMap<RunId, StoreError>,
    /// Pages in the log after the last commit, as SQLite reports them.
    log_pages: Arc<AtomicI32>,
    /// Number of pages at which the next checkpoint between commits is tried.
    checkpoint_at: i32,
    /// An idle checkpoint was tried since the last write: trying again at once would change nothing.
    rested: bool,
    last_prune: Option<Instant>,
    /// The journal, if there is one.
    journal: Option<Arc<Journal>>,
    dir: PathBuf,
}

type Outcome = Result<Pledge, StoreError>;

/// The result of an attempted transaction.
enum Attempt {
    All(Vec<Outcome>),
    /// Somebody's change was refused; nothing was committed.
    OneRefused,
}

/// Starts the thread, and the journal's.
pub(crate) fn start(
    opened: Opened,
    dir: &Path,
    queue: &Arc<Queue>,
) -> Result<(JoinHandle<()>, Option<JoinHandle<()>>), StoreError> {
    let Opened { mut connection, log, journal } = opened;
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
        log,
        helper: None,
        queue: Arc::clone(queue),
        numbers: RunNumbers::default(),
        stopped: HashMap::new(),
        log_pages,
        checkpoint_at: limits::WAL_PAGES_HARD,
        rested: false,
        last_prune: None,
        journal: journal.clone(),
        dir: dir.to_owned(),
    };
    let writer = std::thread::Builder::new()
        .name("store-writer".into())
        .stack_size(512 << 10)
        .spawn(move || writer.run())
        .map_err(|e| failed("cannot start the store's writer", e))?;
    let journaler = journal.map(|journal| journaler::start(journal, Arc::clone(queue))).transpose()?;
    Ok((writer, journaler))
}

/// Poisons the queue if the writer ends in any other way than by being closed, so that nobody waits forever.
struct Guard(Arc<Queue>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.poison(StoreError("the store is closed".into()));
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
                Work::Sync { upto } => self.sync(PendingSync { upto, replies: Vec::new() })?,
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
                Work::Close => {
                    self.helper = None;
                    if self.queue.is_poisoned() {
                        return Ok(());
                    }
                    self.sync(PendingSync { upto: self.queue.visible(), replies: Vec::new() })?;
                    if let Some(journal) = &self.journal {
                        journal::retire(&journal.file);
                    }
                    return self.checkpoint();
                }
                Work::Stop => return Ok(()),
            }
        }
    }

    fn write(&mut self, mut ops: Vec<Queued>, sync: bool) -> Result<(), StoreError> {
        // Before the transaction begins: other processes need not wait for a large file.
        for queued in &mut ops {
            if let Op::Append(append) = &mut queued.op
                && let Blobs::Pending(prepared) = &append.blobs
            {
                append.blobs = match prepared.recv() {
                    Ok(Ok(blobs)) => Blobs::Ready(blobs),
                    Ok(Err(error)) => Blobs::Failed(error),
                    Err(_) => Blobs::Failed(StoreError("the thread that writes blobs stopped".into())),
                };
            }
        }
        if ops.iter().any(|queued| matches!(queued.op, Op::Claim { .. })) {
            // The previous holder is dead and may have left the end of the run's record in its journal.
            journal::adopt(&self.dir, &mut self.db, &self.log, false)?;
        }
        let outcomes = match self.commit(&ops) {
            Ok(outcomes) => outcomes,
            Err(error) => {
                let error = failed("cannot write to the store", error);
                for queued in ops {
                    queued.op.refuse(&error);
                }
                return Err(error);
            }
        };
        self.answer(ops, outcomes, sync)
    }

    /// Makes the outcomes known: what is committed at once, what must be synced after the sync.
    fn answer(&mut self, ops: Vec<Queued>, outcomes: Vec<Outcome>, sync: bool) -> Result<(), StoreError> {
        let mut written = Written { sync, ..Written::default() };
        let mut committed = Vec::new();
        let mut after_sync = Vec::new();
        for (queued, outcome) in ops.into_iter().zip(outcomes) {
            written.upto = queued.position;
            written.bytes += queued.bytes;
            match outcome {
                Ok(Pledge::Nothing) => {
                    if queued.place.is_none()
                        && let Op::Append(append) = &queued.op
                        && let Some(frame) = append.frames.last()
                    {
                        written.heads.push((append.run_id, frame.seq));
                    }
                }
                Ok(pledge) => {
                    if let Pledge::Claimed(Some(run_id)) = &pledge {
                        self.stopped.remove(run_id);
                        written.claimed.push(*run_id);
                    }
                    let list = if queued.urgency == Urgency::Sync { &mut after_sync } else { &mut committed };
                    list.push((queued.op, pledge));
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
        committed.into_iter().for_each(|(op, pledge)| apply::keep(op, pledge));
        if sync {
            self.sync(PendingSync { upto, replies: after_sync })?;
        }
        if any_rejected && self.queue.rejected() > limits::MAX_REJECTED {
            return Err(StoreError(format!("the store refused more than {} batches", limits::MAX_REJECTED)));
        }
        Ok(())
    }

    fn commit(&mut self, ops: &[Queued]) -> rusqlite::Result<Vec<Outcome>> {
        match self.try_commit(ops, false)? {
            Attempt::All(outcomes) => Ok(outcomes),
            Attempt::OneRefused => match self.try_commit(ops, true)? {
                Attempt::All(outcomes) => Ok(outcomes),
                // Under savepoints a refusal is an outcome.
                Attempt::OneRefused => Err(rusqlite::Error::InvalidQuery),
            },
        }
    }

    fn try_commit(&mut self, ops: &[Queued], one_by_one: bool) -> rusqlite::Result<Attempt> {
        self.begin()?;
        let tried = self.apply_all(ops, one_by_one);
        match tried {
            Ok(Attempt::All(outcomes)) => match self.execute("COMMIT") {
                Ok(()) => Ok(Attempt::All(outcomes)),
                Err(error) => {
                    self.roll_back();
                    Err(error)
                }
            },
            other => {
                self.roll_back();
                other
            }
        }
    }

    fn apply_all(&mut self, ops: &[Queued], one_by_one: bool) -> rusqlite::Result<Attempt> {
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
            let outcome = match apply::apply(&self.db, &mut self.numbers, op) {
                Ok(pledge) => Ok(pledge),
                Err(Trouble::Database(error)) => return Err(error),
                Err(Trouble::Rejected(error)) => Err(error),
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
            if let Ok(Pledge::Claimed(Some(run_id))) = &outcome {
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
        Ok(Attempt::All(outcomes))
    }

    /// Begins, however long other processes keep the database busy, within reason.
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

    /// Syncs the log: on this thread if there is nothing else to do (waking another thread would take longer),
    /// otherwise on the helper's thread, while the next transaction is made here.
    fn sync(&mut self, owed: PendingSync) -> Result<(), StoreError> {
        if self.helper.as_ref().is_some_and(SyncHelper::is_busy) || self.queue.has_more() {
            let helper = match &self.helper {
                Some(helper) => helper,
                None => self.helper.insert(SyncHelper::start(&self.log, &self.queue)?),
            };
            helper.take_over(owed);
            return Ok(());
        }
        owed.pay(&self.log, &self.queue)
    }

    /// Moves the content of the log into the database, as far as readers allow; the next commit then starts the log
    /// again.
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
            // A reader or another process is in the way: again when the log has grown as much once more.
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
