//! One queued change as SQL, inside the writer's transaction.
//!
//! Distinguishes a change that cannot be made (a frame that already exists), which affects one batch, from a database
//! failure, which affects all.

use crate::{
    failed, limits, packing,
    queue::{Append, Blobs, Fact, FactSwap, LedgerOp, Op, RemovedBlob, Reply, StoredFrame},
    reader::check_number,
    rows::{kind_code, micros, nanos, run_bytes, status_code},
};
use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use std::collections::HashMap;
use toolyard_engine::store::{LedgerEntry, RunRow, StoreError, Swap};
use toolyard_protocol::{RunId, canonical};

/// Why a change was not made.
pub(crate) enum ApplyError {
    /// Only this change failed; the others of the transaction continue.
    Rejected(StoreError),
    /// The transaction as a whole.
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for ApplyError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig) => {
                Self::Rejected(failed("the store refuses this", error))
            }
            _ => Self::Database(error),
        }
    }
}

/// An answer that is sent once the transaction is committed.
pub(crate) enum DeferredReply {
    Nothing,
    Swapped(Swap),
    Claimed(Option<RunId>),
    Ledger(LedgerEntry),
    Done,
    Removed(u64),
    RemovedBlobs(Vec<RemovedBlob>),
}

/// The writer's cache of run numbers, which is cleared when a transaction is rolled back.
#[derive(Default)]
pub(crate) struct RunNumbers(HashMap<RunId, i64>);

impl RunNumbers {
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    fn remember(&mut self, run_id: RunId, number: i64) {
        if self.0.len() >= limits::RUN_NUMBERS {
            self.0.clear();
        }
        self.0.insert(run_id, number);
    }

    fn forget_run(&mut self, run_id: RunId) {
        self.0.remove(&run_id);
    }

    /// The number of a run that `me` may write: a run that it holds or that nobody holds. Cached entries stay valid,
    /// because another process that claims the run fences this process first.
    fn find(&mut self, db: &Connection, run_id: RunId, me: Option<i64>) -> Result<Option<i64>, ApplyError> {
        if let Some(number) = self.0.get(&run_id) {
            return Ok(Some(*number));
        }
        let mut select = db.prepare_cached("SELECT no, owner FROM runs WHERE run_id = ?1")?;
        let found = select
            .query_row([run_bytes(run_id)], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?)))
            .optional()?;
        let Some((number, owner)) = found else { return Ok(None) };
        if let (Some(owner), Some(me)) = (owner, me)
            && owner != me
        {
            return Err(ApplyError::Rejected(StoreError::failed(format!("run {run_id} is held by another process"))));
        }
        self.remember(run_id, number);
        Ok(Some(number))
    }
}

/// The first key of a run's frames.
pub(crate) fn first_key(run_number: i64) -> i64 {
    run_number << 32
}

/// Makes one change for the owner `me`; `None` when entries of another process's journal are applied.
pub(crate) fn apply(
    db: &Connection,
    numbers: &mut RunNumbers,
    op: &Op,
    me: Option<i64>,
) -> Result<DeferredReply, ApplyError> {
    match op {
        Op::Append(append) => apply_append(db, numbers, append, me).map(|()| DeferredReply::Nothing),
        Op::Put(fact) => put(db, fact).map(|()| DeferredReply::Nothing),
        Op::Remove { space, key } => {
            db.prepare_cached("DELETE FROM facts WHERE space = ?1 AND key = ?2")?.execute([space, key])?;
            Ok(DeferredReply::Nothing)
        }
        Op::Swap { swap: wanted, .. } => swap(db, wanted).map(DeferredReply::Swapped),
        Op::Claim { run_id, from, .. } => {
            numbers.forget_run(*run_id);
            Ok(DeferredReply::Claimed(claim(db, *run_id, *from, me)?.then_some(*run_id)))
        }
        Op::Ledger(ledger) => ledger_append(db, ledger).map(DeferredReply::Ledger),
        // Done before the transaction begins.
        Op::Fence { .. } | Op::WatchBlobs { .. } => Ok(DeferredReply::Done),
        Op::RemoveRuns { runs, .. } => remove_runs(db, numbers, runs).map(DeferredReply::Removed),
        Op::RemoveBlobs { hashes, .. } => remove_blobs(db, hashes).map(DeferredReply::RemovedBlobs),
    }
}

/// Sends the answer of a committed change (and of a synced one, if a sync was requested).
pub(crate) fn keep(op: Op, pledge: DeferredReply) {
    fn answer<T>(reply: &Reply<T>, value: T) {
        // The caller may have stopped waiting; the change is made in any case.
        drop(reply.send(Ok(value)));
    }
    match (op, pledge) {
        (Op::Swap { reply, .. }, DeferredReply::Swapped(swap)) => answer(&reply, swap),
        (Op::Fence { reply, .. } | Op::WatchBlobs { reply, .. }, DeferredReply::Done) => answer(&reply, ()),
        (Op::RemoveRuns { reply, .. }, DeferredReply::Removed(count)) => answer(&reply, count),
        (Op::RemoveBlobs { reply, .. }, DeferredReply::RemovedBlobs(blobs)) => answer(&reply, blobs),
        (Op::Claim { reply, .. }, DeferredReply::Claimed(run)) => answer(&reply, run.is_some()),
        (Op::Ledger(LedgerOp { reply, .. }), DeferredReply::Ledger(entry)) => answer(&reply, entry),
        _ => {}
    }
}

fn apply_append(db: &Connection, numbers: &mut RunNumbers, append: &Append, me: Option<i64>) -> Result<(), ApplyError> {
    let blobs = match &append.blobs {
        Blobs::Ready(blobs) => blobs,
        Blobs::Failed(error) => return Err(ApplyError::Rejected(error.clone())),
        Blobs::Pending(_) => {
            return Err(ApplyError::Rejected(StoreError::failed("the batch's blobs were not prepared")));
        }
    };
    for blob in blobs {
        db.prepare_cached("INSERT OR IGNORE INTO blobs (sha256, len, zstd, bytes) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![blob.sha256.as_slice(), blob.len as i64, blob.is_zstd, blob.bytes.as_deref()])?;
    }
    let number = run_number(db, numbers, append.run_id, append.row.as_ref(), me)?;
    let mut insert = db.prepare_cached("INSERT INTO frames (id, kind, payload, chain) VALUES (?1, ?2, ?3, ?4)")?;
    for StoredFrame { seq, kind, payload, chain } in &append.frames {
        let key = first_key(number) | i64::from(*seq);
        let (kind, payload) = packing::pack(*kind, payload);
        insert.execute(params![key, kind, payload.as_ref(), chain.as_slice()]).map_err(
            |error| match ApplyError::from(error) {
                ApplyError::Rejected(StoreError::Failed(reason)) if reason.contains("UNIQUE") => {
                    ApplyError::Rejected(StoreError::failed(format!("run {} already has a frame {seq}", append.run_id)))
                }
                trouble => trouble,
            },
        )?;
    }
    if append.release && append.row.as_ref().is_none_or(|row| !row.status.is_final()) {
        db.prepare_cached("UPDATE runs SET owner = NULL WHERE no = ?1")?.execute([number])?;
    }
    if append.ends_hold() {
        numbers.forget_run(append.run_id);
    }
    Ok(())
}

/// The run's number. Creates it and writes the row as needed; the process that creates it holds the run.
fn run_number(
    db: &Connection,
    numbers: &mut RunNumbers,
    run_id: RunId,
    row: Option<&RunRow>,
    me: Option<i64>,
) -> Result<i64, ApplyError> {
    let known = numbers.find(db, run_id, me)?;
    let Some(row) = row else {
        if let Some(number) = known {
            return Ok(number);
        }
        db.prepare_cached("INSERT INTO runs (run_id, owner) VALUES (?1, ?2)")?
            .execute(params![run_bytes(run_id), me])?;
        let number = db.last_insert_rowid();
        check_number(number).map_err(ApplyError::Rejected)?;
        numbers.remember(run_id, number);
        return Ok(number);
    };
    // One statement for new and existing runs: only a new run gets the owner, and a final state removes the owner.
    let sql = "INSERT INTO runs (run_id, kind, status, title, session, started_at, ended_at, owner)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, CASE WHEN ?3 < 3 THEN ?8 END)
         ON CONFLICT (run_id) DO UPDATE SET kind = ?2, status = ?3, title = ?4, session = ?5, started_at = ?6,
             ended_at = ?7, owner = CASE WHEN ?3 < 3 THEN owner END";
    db.prepare_cached(sql)?.execute(params![
        run_bytes(run_id),
        kind_code(row.kind),
        status_code(row.status),
        row.title,
        row.session,
        nanos(row.started_at),
        row.ended_at.map(nanos),
        me,
    ])?;
    let number = known.unwrap_or_else(|| db.last_insert_rowid());
    check_number(number).map_err(ApplyError::Rejected)?;
    numbers.remember(run_id, number);
    Ok(number)
}

fn put(db: &Connection, fact: &Fact) -> Result<(), ApplyError> {
    db.prepare_cached(
        "INSERT INTO facts (space, key, value, expires_at) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at",
    )?
    .execute(params![fact.space, fact.key, fact.value, fact.expires_at])?;
    Ok(())
}

fn swap(db: &Connection, wanted: &FactSwap) -> Result<Swap, ApplyError> {
    let FactSwap { space, key, expected, new } = wanted;
    let found: Option<Vec<u8>> = db
        .prepare_cached(
            "SELECT value FROM facts WHERE space = ?1 AND key = ?2 AND (expires_at IS NULL OR expires_at > ?3)",
        )?
        .query_row(params![space, key, micros(Timestamp::now())], |row| row.get(0))
        .optional()?;
    if found != *expected {
        return Ok(Swap::Differs(found));
    }
    match new {
        Some(fact) => put(db, fact)?,
        None => {
            db.prepare_cached("DELETE FROM facts WHERE space = ?1 AND key = ?2")?.execute([space, key])?;
        }
    }
    Ok(Swap::Done)
}

fn claim(db: &Connection, run_id: RunId, from: Option<i64>, me: Option<i64>) -> Result<bool, ApplyError> {
    let changed = db
        .prepare_cached(
            "UPDATE runs SET owner = ?2
             WHERE run_id = ?1 AND kind IS NOT NULL AND (owner IS NULL OR owner = ?3)",
        )?
        .execute(params![run_bytes(run_id), me, from])?;
    Ok(changed == 1)
}

/// Removes runs that have ended. Other and unknown runs are skipped.
fn remove_runs(db: &Connection, numbers: &mut RunNumbers, runs: &[RunId]) -> Result<u64, ApplyError> {
    let mut removed = 0;
    for run_id in runs {
        let number: Option<i64> = db
            .prepare_cached("SELECT no FROM runs WHERE run_id = ?1 AND status >= 3")?
            .query_row([run_bytes(*run_id)], |row| row.get(0))
            .optional()?;
        let Some(number) = number else { continue };
        let (first, last) = (first_key(number), first_key(number) | i64::from(u32::MAX));
        db.prepare_cached("DELETE FROM frames WHERE id BETWEEN ?1 AND ?2")?.execute([first, last])?;
        db.prepare_cached("DELETE FROM runs WHERE no = ?1")?.execute([number])?;
        numbers.forget_run(*run_id);
        removed += 1;
    }
    Ok(removed)
}

fn remove_blobs(db: &Connection, hashes: &[[u8; 32]]) -> Result<Vec<RemovedBlob>, ApplyError> {
    let mut removed = Vec::new();
    for hash in hashes {
        let found = db
            .prepare_cached("DELETE FROM blobs WHERE sha256 = ?1 RETURNING len, zstd, bytes IS NULL")?
            .query_row([hash.as_slice()], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?, row.get::<_, bool>(2)?))
            })
            .optional()?;
        if let Some((len, is_zstd, is_file)) = found {
            let (hash, bytes) = (canonical::hex(hash), len.cast_unsigned());
            removed.push(RemovedBlob { hash, bytes, file: is_file.then_some(is_zstd) });
        }
    }
    Ok(removed)
}

fn ledger_append(db: &Connection, op: &LedgerOp) -> Result<LedgerEntry, ApplyError> {
    let rejected = |reason: &str| ApplyError::Rejected(StoreError::failed(reason));
    let last = db
        .prepare_cached("SELECT seq, payload, chain FROM ledger ORDER BY seq DESC LIMIT 1")?
        .query_row([], |row| {
            Ok(LedgerEntry { seq: row.get::<_, i64>(0)?.cast_unsigned(), payload: row.get(1)?, chain: row.get(2)? })
        })
        .optional()?;
    let seq = last.as_ref().map_or(1, |entry| entry.seq + 1);
    op.ask.send(last).map_err(|_| rejected("the caller that makes the ledger entry has stopped waiting"))?;
    let (payload, chain) = op
        .answer
        .recv_timeout(limits::LEDGER_MAKER_PATIENCE)
        .map_err(|_| rejected("the ledger entry was not made in time"))?;
    if payload.len() > limits::MAX_LEDGER_BYTES {
        return Err(rejected("the ledger entry is too large"));
    }
    db.prepare_cached("INSERT INTO ledger (seq, payload, chain) VALUES (?1, ?2, ?3)")?.execute(params![
        seq.cast_signed(),
        payload,
        chain.as_slice()
    ])?;
    Ok(LedgerEntry { seq, payload, chain })
}

/// Removes some expired facts.
pub(crate) fn prune(db: &Connection) -> rusqlite::Result<()> {
    db.prepare_cached(
        "DELETE FROM facts WHERE (space, key) IN
             (SELECT space, key FROM facts WHERE expires_at IS NOT NULL AND expires_at <= ?1 LIMIT ?2)",
    )?
    .execute(params![micros(Timestamp::now()), limits::PRUNE_ROWS])?;
    Ok(())
}
