//! What `toolyard store stats`, `store check` and `doctor` ask of a shared store.

use crate::{limits, rows::column, schema, server::ServerReport, store::PostgresStore};
use jiff::Timestamp;
use std::ops::ControlFlow;
use toolyard_engine::{
    Store,
    store::{RunFilter, StoreError},
};
use toolyard_protocol::RunId;

/// Frames are counted up to this number. Of more, PostgreSQL's own estimate is told, because counting would take minutes.
const COUNTED_FRAMES: i64 = 5_000_000;
/// Rows and hashes that are read at a time.
const PAGE: usize = 500;
/// Problems that are named.
const MAX_PROBLEMS: usize = 100;

/// How large a shared store is and what it holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// The version of the tables.
    pub version: i64,
    /// The number of runs.
    pub runs: u64,
    /// Runs that have not ended.
    pub open_runs: u64,
    /// Frames of all runs; an estimate if there are many.
    pub frames: u64,
    /// The number of facts.
    pub facts: u64,
    /// Ledger entries.
    pub ledger_entries: u64,
    /// The number of blobs.
    pub blobs: u64,
    /// Bytes of blobs that lie apart from the records: in a table of their own, or in the bucket.
    pub large_blob_bytes: u64,
    /// Processes that have the store open.
    pub processes: u64,
    /// Bytes of all tables and indexes.
    pub database_bytes: u64,
    /// When the oldest run began.
    pub oldest_run: Option<Timestamp>,
}

/// What a look at everything found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Check {
    /// The version of the tables.
    pub version: i64,
    /// Runs looked at.
    pub runs: u64,
    /// Frames looked at.
    pub frames: u64,
    /// Blobs whose content was compared with their hash.
    pub blobs: u64,
    /// What is wrong, the first hundred.
    pub problems: Vec<String>,
    /// How many problems there are.
    pub problem_count: u64,
}

impl Check {
    fn problem(&mut self, what: String) {
        self.problem_count += 1;
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(what);
        }
    }
}

impl PostgresStore {
    /// What the server is, for `toolyard doctor`.
    pub fn server(&self) -> Result<ServerReport, StoreError> {
        let pool = self.pool.clone();
        self.wait(async move {
            let client = pool.server.connect().await?;
            Ok(ServerReport::ask(&client).await?)
        })
    }

    /// Counts what the store holds. Blocks.
    pub fn stats(&self) -> Result<Stats, StoreError> {
        let pool = self.pool.clone();
        self.wait(async move {
            let sql = "SELECT (SELECT count(*) FROM toolyard.runs WHERE kind IS NOT NULL),
                    (SELECT count(*) FROM toolyard.runs WHERE status < 3 AND kind IS NOT NULL),
                    (SELECT count(*) FROM (SELECT 1 FROM toolyard.frames LIMIT $1) counted),
                    (SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::int8 FROM pg_inherits i
                        JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'toolyard.frames'::regclass),
                    (SELECT count(*) FROM toolyard.facts),
                    (SELECT count(*) FROM toolyard.ledger),
                    (SELECT count(*) FROM toolyard.blobs),
                    (SELECT coalesce(sum(len), 0)::int8 FROM toolyard.blobs WHERE bytes IS NULL),
                    (SELECT count(*) FROM toolyard.nodes),
                    (SELECT min(started_at) FROM toolyard.runs)";
            let rows = pool.retry(sql, &[(&COUNTED_FRAMES, tokio_postgres::types::Type::INT8)]).await?;
            let Some(row) = rows.first() else { return Err(StoreError::failed("the database answered nothing")) };
            let number = |at: usize| Ok::<_, StoreError>(column::<i64>(row, at)?.max(0).cast_unsigned());
            let (counted, estimated) = (number(2)?, number(3)?);
            let is_exact = counted < COUNTED_FRAMES.cast_unsigned();
            let oldest = column::<Option<i64>>(row, 9)?;
            Ok(Stats {
                version: schema::newest(),
                runs: number(0)?,
                open_runs: number(1)?,
                frames: if is_exact { counted } else { estimated.max(counted) },
                facts: number(4)?,
                ledger_entries: number(5)?,
                blobs: number(6)?,
                large_blob_bytes: number(7)?,
                processes: number(8)?,
                database_bytes: 0,
                oldest_run: oldest.and_then(|at| Timestamp::from_nanosecond(i128::from(at)).ok()),
            })
        })
        .and_then(|stats| {
            let bytes = self.read(|reads| async move { reads.used_bytes("").await })?;
            Ok(Stats { database_bytes: bytes.unwrap_or(0), ..stats })
        })
    }

    /// Looks at everything: whether the frames of each run are numbered without gaps, whether every run has a row, and
    /// whether every blob has the bytes that its name promises. Other nodes go on working meanwhile. Blocks.
    pub fn check(&self) -> Result<Check, StoreError> {
        let mut check = Check { version: schema::newest(), ..Check::default() };
        let mut after = RunId::from_uuid(uuid::Uuid::nil());
        loop {
            let rows = self.runs(&RunFilter { after: Some(after), limit: PAGE, ..RunFilter::default() })?;
            let Some(last) = rows.last() else { break };
            after = last.run_id;
            for row in rows {
                check.runs += 1;
                self.check_frames(row.run_id, &mut check)?;
            }
        }
        for run_id in self.unlisted_runs(limits::MAX_RUN_LIMIT)? {
            // A run whose row is written with the batch that is on its way is listed by now.
            if self.run(run_id)?.is_none() {
                check.problem(format!("run {run_id} has records and no row"));
            }
        }
        let mut hash = String::new();
        loop {
            let hashes = self.blob_hashes(&hash, PAGE)?;
            let Some(last) = hashes.last() else { return Ok(check) };
            hash = last.clone();
            for name in hashes {
                check.blobs += 1;
                match self.blob(&name) {
                    // Retention has removed it meanwhile.
                    Ok(_) => {}
                    Err(StoreError::Failed(why)) => check.problem(why),
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn check_frames(&self, run_id: RunId, check: &mut Check) -> Result<(), StoreError> {
        let mut expected = 1;
        let mut gap = None;
        self.frames(run_id, 1, &mut |frame| {
            check.frames += 1;
            if frame.seq != expected && gap.is_none() {
                gap = Some((expected, frame.seq));
            }
            expected = frame.seq + 1;
            ControlFlow::Continue(())
        })?;
        if let Some((expected, found)) = gap {
            check.problem(format!("run {run_id}: record {expected} is missing, {found} follows"));
        } else if expected == 1 && self.run(run_id)?.is_some() {
            check.problem(format!("run {run_id} has no records"));
        }
        Ok(())
    }
}
