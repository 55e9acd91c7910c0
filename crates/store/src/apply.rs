//! One queued change as SQL, inside the writer's transaction.
//!
//! Distinguishes a change that cannot be made (a frame that already exists), which affects one batch, from a database
//! failure, which affects all.

use crate::{
    failed, limits,
    queue::{Append, Blobs, Fact, LedgerOp, Op, Reply, StoredFrame},
    rows::{kind_code, micros, run_bytes, status_code},
};
use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use std::collections::HashMap;
use toolyard_engine::store::{Lease, LedgerEntry, RunRow, StoreError};
use toolyard_protocol::RunId;

/// Why a change was not made.
pub(crate) enum Trouble {
    /// Only this one: the others go on.
    Rejected(StoreError),
    /// The transaction as a whole.
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for Trouble {
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
pub(crate) enum Pledge {
    Nothing,
    Absent(Option<Vec<u8>>),
    Claimed(Option<RunId>),
    Ledger(LedgerEntry),
}

/// The writer's memory of run numbers. Forgotten whenever something is rolled back.
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

    fn find(&mut self, db: &Connection, run_id: RunId) -> rusqlite::Result<Option<i64>> {
        if let Some(number) = self.0.get(&run_id) {
            return Ok(Some(*number));
        }
        let mut select = db.prepare_cached("SELECT no FROM runs WHERE run_id = ?1")?;
        let number = select.query_row([run_bytes(run_id)], |row| row.get(0)).optional()?;
        if let Some(number) = number {
            self.remember(run_id, number);
        }
        Ok(number)
    }
}

/// The first key of a run's frames.
pub(crate) fn first_key(run_number: i64) -> i64 {
    run_number << 32
}

/// Makes one change.
pub(crate) fn apply(db: &Connection, numbers: &mut RunNumbers, op: &Op) -> Result<Pledge, Trouble> {
    match op {
        Op::Append(append) => apply_append(db, numbers, append).map(|()| Pledge::Nothing),
        Op::Put(fact) => put(db, fact).map(|()| Pledge::Nothing),
        Op::Remove { space, key } => {
            db.prepare_cached("DELETE FROM facts WHERE space = ?1 AND key = ?2")?.execute([space, key])?;
            Ok(Pledge::Nothing)
        }
        Op::PutIfAbsent { fact, .. } => put_if_absent(db, fact).map(Pledge::Absent),
        Op::Claim { run_id, expected, new, .. } => {
            Ok(Pledge::Claimed(claim(db, *run_id, expected.as_ref(), new)?.then_some(*run_id)))
        }
        Op::Ledger(ledger) => ledger_append(db, ledger).map(Pledge::Ledger),
    }
}

/// Sends the answer of a committed change (and of a synced one, if a sync was requested).
pub(crate) fn keep(op: Op, pledge: Pledge) {
    fn answer<T>(reply: &Reply<T>, value: T) {
        // The caller may have gone away; the change is made in any case.
        drop(reply.send(Ok(value)));
    }
    match (op, pledge) {
        (Op::PutIfAbsent { reply, .. }, Pledge::Absent(found)) => answer(&reply, found),
        (Op::Claim { reply, .. }, Pledge::Claimed(run)) => answer(&reply, run.is_some()),
        (Op::Ledger(LedgerOp { reply, .. }), Pledge::Ledger(entry)) => answer(&reply, entry),
        _ => {}
    }
}

fn apply_append(db: &Connection, numbers: &mut RunNumbers, append: &Append) -> Result<(), Trouble> {
    let blobs = match &append.blobs {
        Blobs::Ready(blobs) => blobs,
        Blobs::Failed(error) => return Err(Trouble::Rejected(error.clone())),
        Blobs::Pending(_) => return Err(Trouble::Rejected(StoreError("the batch's blobs were not prepared".into()))),
    };
    for blob in blobs {
        db.prepare_cached("INSERT OR IGNORE INTO blobs (sha256, len, zstd, bytes) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![blob.sha256.as_slice(), blob.len as i64, blob.is_zstd, blob.bytes.as_deref()])?;
    }
    let number = run_number(db, numbers, append.run_id, append.row.as_ref())?;
    let mut insert = db.prepare_cached("INSERT INTO frames (id, kind, payload, chain) VALUES (?1, ?2, ?3, ?4)")?;
    for StoredFrame { seq, kind, payload, chain } in &append.frames {
        let key = first_key(number) | i64::from(*seq);
        insert.execute(params![key, kind, payload.as_slice(), chain.as_slice()]).map_err(
            |error| match Trouble::from(error) {
                Trouble::Rejected(StoreError(reason)) if reason.contains("UNIQUE") => {
                    Trouble::Rejected(StoreError(format!("run {} already has a frame {seq}", append.run_id)))
                }
                trouble => trouble,
            },
        )?;
    }
    Ok(())
}

/// The run's number; makes one, and writes the row, as needed.
fn run_number(
    db: &Connection,
    numbers: &mut RunNumbers,
    run_id: RunId,
    row: Option<&RunRow>,
) -> Result<i64, rusqlite::Error> {
    let known = numbers.find(db, run_id)?;
    let Some(row) = row else {
        if let Some(number) = known {
            return Ok(number);
        }
        db.prepare_cached("INSERT INTO runs (run_id) VALUES (?1)")?.execute([run_bytes(run_id)])?;
        let number = db.last_insert_rowid();
        numbers.remember(run_id, number);
        return Ok(number);
    };
    let sql = if known.is_some() {
        "UPDATE runs SET kind = ?2, status = ?3, title = ?4, session = ?5, started_at = ?6, ended_at = ?7,
             lease_boot = ?8, lease_pid = ?9, lease_started = ?10 WHERE run_id = ?1"
    } else {
        "INSERT INTO runs (run_id, kind, status, title, session, started_at, ended_at, lease_boot, lease_pid,
             lease_started) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
    };
    let lease = row.lease.as_ref();
    db.prepare_cached(sql)?.execute(params![
        run_bytes(run_id),
        kind_code(row.kind),
        status_code(row.status),
        row.title,
        row.session,
        row.started_at.to_string(),
        row.ended_at.map(|at| at.to_string()),
        lease.map(|lease| &lease.boot_id),
        lease.map(|lease| lease.pid),
        lease.map(|lease| lease.started.cast_signed()),
    ])?;
    let number = known.unwrap_or_else(|| db.last_insert_rowid());
    numbers.remember(run_id, number);
    Ok(number)
}

fn put(db: &Connection, fact: &Fact) -> Result<(), Trouble> {
    db.prepare_cached(
        "INSERT INTO facts (space, key, value, expires_at) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at",
    )?
    .execute(params![fact.space, fact.key, fact.value, fact.expires_at])?;
    Ok(())
}

fn put_if_absent(db: &Connection, fact: &Fact) -> Result<Option<Vec<u8>>, Trouble> {
    let found = db
        .prepare_cached(
            "SELECT value FROM facts WHERE space = ?1 AND key = ?2 AND (expires_at IS NULL OR expires_at > ?3)",
        )?
        .query_row(params![fact.space, fact.key, micros(Timestamp::now())], |row| row.get(0))
        .optional()?;
    if found.is_none() {
        put(db, fact)?;
    }
    Ok(found)
}

fn claim(db: &Connection, run_id: RunId, expected: Option<&Lease>, new: &Lease) -> Result<bool, Trouble> {
    let changed = db
        .prepare_cached(
            "UPDATE runs SET lease_boot = ?2, lease_pid = ?3, lease_started = ?4
             WHERE run_id = ?1 AND kind IS NOT NULL
               AND (lease_boot IS NULL OR (lease_boot = ?5 AND lease_pid = ?6 AND lease_started = ?7))",
        )?
        .execute(params![
            run_bytes(run_id),
            new.boot_id,
            new.pid,
            new.started.cast_signed(),
            expected.map(|lease| &lease.boot_id),
            expected.map(|lease| lease.pid),
            expected.map(|lease| lease.started.cast_signed()),
        ])?;
    Ok(changed == 1)
}

fn ledger_append(db: &Connection, op: &LedgerOp) -> Result<LedgerEntry, Trouble> {
    let rejected = |reason: &str| Trouble::Rejected(StoreError(reason.to_owned()));
    let last = db
        .prepare_cached("SELECT seq, payload, chain FROM ledger ORDER BY seq DESC LIMIT 1")?
        .query_row([], |row| {
            Ok(LedgerEntry { seq: row.get::<_, i64>(0)?.cast_unsigned(), payload: row.get(1)?, chain: row.get(2)? })
        })
        .optional()?;
    let seq = last.as_ref().map_or(1, |entry| entry.seq + 1);
    op.ask.send(last).map_err(|_| rejected("whoever wanted a ledger entry has gone"))?;
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
