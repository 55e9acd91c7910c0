//! Reads: a few read-only connections and every query. A read sees what was committed when it began, and never waits
//! for the writer.

use crate::{apply::first_key, blob_files, failed, failed_read, limits, owners, packing, rows, schema};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params, types::Value};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};
use toolyard_engine::store::{Frame, FrameVisitor, Head, LedgerEntry, RunFilter, RunRow, StoreError, StoredFact};
use toolyard_protocol::{RunId, WorkspaceId, canonical};

pub(crate) struct Reader {
    dir: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Reader {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), idle: Mutex::new(Vec::new()) }
    }

    /// Opens one connection at once, to check that the store can be read.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let connection = schema::open_reader(&self.dir)?;
        schema::check_readable(&connection, &self.dir)?;
        self.give_back(connection);
        Ok(())
    }

    fn give_back(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < limits::IDLE_READERS {
            idle.push(connection);
        }
    }

    /// Runs a query on a separate connection. A connection on which a query failed is not used again.
    fn with<T>(&self, query: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => schema::open_reader(&self.dir)?,
        };
        let answer = query(&connection)?;
        self.give_back(connection);
        Ok(answer)
    }

    pub(crate) fn run(&self, run_id: RunId) -> Result<Option<RunRow>, StoreError> {
        self.with(|db| {
            let sql = format!("SELECT {} FROM runs WHERE run_id = ?1 AND kind IS NOT NULL", rows::RUN_COLUMNS);
            let mut statement = db.prepare_cached(&sql).map_err(reading)?;
            let mut found = statement.query([rows::run_bytes(run_id)]).map_err(reading)?;
            found.next().map_err(reading)?.map(rows::read_run).transpose()
        })
    }

    pub(crate) fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        let (sql, values) = runs_query(filter);
        self.with(|db| {
            let mut statement = db.prepare_cached(&sql).map_err(reading)?;
            let mut found = statement.query(rusqlite::params_from_iter(values)).map_err(reading)?;
            let mut list = Vec::new();
            while let Some(row) = found.next().map_err(reading)? {
                list.push(rows::read_run(row)?);
            }
            Ok(list)
        })
    }

    /// How many runs fit; the limit does not count.
    pub(crate) fn count_runs(&self, filter: &RunFilter) -> Result<u64, StoreError> {
        let (conditions, values) = run_conditions(filter);
        let sql = format!("SELECT count(*) FROM runs WHERE {conditions}");
        self.with(|db| {
            let mut statement = db.prepare_cached(&sql).map_err(reading)?;
            let number: i64 =
                statement.query_row(rusqlite::params_from_iter(values), |row| row.get(0)).map_err(reading)?;
            Ok(number.cast_unsigned())
        })
    }

    /// Runs that have no row.
    pub(crate) fn unlisted_runs(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.with(|db| {
            let mut statement =
                db.prepare_cached("SELECT run_id FROM runs WHERE kind IS NULL LIMIT ?1").map_err(reading)?;
            let found = statement
                .query_map([limit], |row| Ok(RunId::from_uuid(uuid::Uuid::from_bytes(row.get(0)?))))
                .map_err(reading)?;
            found.collect::<Result<_, _>>().map_err(reading)
        })
    }

    pub(crate) fn frames(&self, run_id: RunId, from_seq: u64, visit: FrameVisitor<'_>) -> Result<(), StoreError> {
        let Ok(mut from) = u32::try_from(from_seq) else { return Ok(()) };
        self.with(|db| {
            let number: Option<i64> = db
                .prepare_cached("SELECT no FROM runs WHERE run_id = ?1")
                .and_then(|mut select| select.query_row([rows::run_bytes(run_id)], |row| row.get(0)).optional())
                .map_err(reading)?;
            let Some(number) = number else { return Ok(()) };
            check_number(number)?;
            let mut statement = db
                .prepare_cached(
                    "SELECT id, kind, payload, chain FROM frames WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3",
                )
                .map_err(reading)?;
            loop {
                let first = first_key(number) | i64::from(from);
                let last = first_key(number) | i64::from(u32::MAX);
                let mut found = statement.query(params![first, last, limits::FRAMES_PER_READ]).map_err(reading)?;
                let mut count = 0;
                while let Some(row) = found.next().map_err(reading)? {
                    let frame = read_frame(row)?;
                    count += 1;
                    // The last sequence number there is has no successor.
                    let next = u32::try_from(frame.seq).ok().and_then(|seq| seq.checked_add(1));
                    if visit(frame).is_break() {
                        return Ok(());
                    }
                    match next {
                        Some(next) => from = next,
                        None => return Ok(()),
                    }
                }
                if count < limits::FRAMES_PER_READ {
                    return Ok(());
                }
            }
        })
    }

    pub(crate) fn head(&self, run_id: RunId) -> Result<Option<Head>, StoreError> {
        self.with(|db| {
            db.prepare_cached(
                "SELECT frames.id, frames.chain FROM runs JOIN frames
                     ON frames.id BETWEEN runs.no << 32 AND (runs.no << 32 | 4294967295)
                 WHERE runs.run_id = ?1 ORDER BY frames.id DESC LIMIT 1",
            )
            .and_then(|mut select| {
                select
                    .query_row([rows::run_bytes(run_id)], |row| {
                        let id: i64 = row.get(0)?;
                        Ok(Head { seq: id.cast_unsigned() & u64::from(u32::MAX), chain: row.get(1)? })
                    })
                    .optional()
            })
            .map_err(reading)
        })
    }

    pub(crate) fn holder(&self, run_id: RunId) -> Result<Option<i64>, StoreError> {
        self.with(|db| {
            db.prepare_cached("SELECT owner FROM runs WHERE run_id = ?1")
                .and_then(|mut select| select.query_row([rows::run_bytes(run_id)], |row| row.get(0)).optional())
                .map_err(reading)
        })
        .map(Option::flatten)
    }

    pub(crate) fn node(&self) -> Result<String, StoreError> {
        self.with(owners::node)
    }

    pub(crate) fn is_alive(&self, epoch: u64) -> Result<bool, StoreError> {
        self.with(|db| owners::is_alive(&self.dir, db, epoch))
    }

    /// Pending and running runs with who holds them, newest first.
    pub(crate) fn open_runs(&self) -> Result<Vec<(RunRow, Option<i64>)>, StoreError> {
        self.with(|db| {
            let sql = format!(
                "SELECT {}, owner FROM runs WHERE kind IS NOT NULL AND status < 3 AND status IN (0, 1)
                 ORDER BY run_id DESC",
                rows::RUN_COLUMNS
            );
            let mut statement = db.prepare_cached(&sql).map_err(reading)?;
            let mut found = statement.query([]).map_err(reading)?;
            let mut list = Vec::new();
            while let Some(row) = found.next().map_err(reading)? {
                list.push((rows::read_run(row)?, row.get(7).map_err(reading)?));
            }
            Ok(list)
        })
    }

    pub(crate) fn blob(&self, sha256: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(hash) = blob_files::parse_hash(sha256) else { return Ok(None) };
        let found = self.with(|db| {
            db.prepare_cached("SELECT len, zstd, bytes FROM blobs WHERE sha256 = ?1")
                .and_then(|mut select| {
                    select
                        .query_row([hash.as_slice()], |row| {
                            Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?, row.get::<_, Option<Vec<u8>>>(2)?))
                        })
                        .optional()
                })
                .map_err(reading)
        })?;
        let Some((len, is_zstd, bytes)) = found else { return Ok(None) };
        let stored = match bytes {
            Some(bytes) => bytes,
            None => {
                let path = blob_files::file_path(&self.dir, sha256, is_zstd);
                std::fs::read(&path).map_err(|e| failed(&format!("cannot read blob {}", path.display()), e))?
            }
        };
        let len = usize::try_from(len).map_err(|e| failed("the store holds damaged data", e))?;
        let bytes = if is_zstd { blob_files::expand(&stored, len)? } else { stored };
        if bytes.len() != len || canonical::sha256_hex(&bytes) != sha256 {
            return Err(StoreError::failed(format!("blob {sha256} is damaged: its bytes have another hash")));
        }
        Ok(Some(bytes))
    }

    /// Blobs that no frame names and that are not to be kept.
    pub(crate) fn unused_blobs(&self, keep: &[String]) -> Result<Vec<[u8; 32]>, StoreError> {
        self.with(|db| {
            let mut unused: HashSet<[u8; 32]> = HashSet::new();
            let mut select = db.prepare("SELECT sha256 FROM blobs").map_err(reading)?;
            for hash in select.query_map([], |row| row.get(0)).map_err(reading)? {
                unused.insert(hash.map_err(reading)?);
            }
            for hash in keep {
                blob_files::parse_hash(hash).map(|hash| unused.remove(&hash));
            }
            let mut select = db.prepare("SELECT id, kind, payload, chain FROM frames").map_err(reading)?;
            let mut found = select.query([]).map_err(reading)?;
            while let Some(row) = found.next().map_err(reading)? {
                if unused.is_empty() {
                    break;
                }
                for hash in hashes_in(&read_frame(row)?.payload) {
                    unused.remove(&hash);
                }
            }
            Ok(unused.into_iter().collect())
        })
    }

    pub(crate) fn blob_hashes(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let after: Vec<u8> = blob_files::parse_hash(after).map_or_else(Vec::new, Vec::from);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.with(|db| {
            let mut statement = db
                .prepare_cached("SELECT sha256 FROM blobs WHERE sha256 > ?1 ORDER BY sha256 LIMIT ?2")
                .map_err(reading)?;
            let found = statement
                .query_map(params![after, limit], |row| Ok(canonical::hex(&row.get::<_, Vec<u8>>(0)?)))
                .map_err(reading)?;
            found.collect::<Result<_, _>>().map_err(reading)
        })
    }

    pub(crate) fn fact(&self, space: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.with(|db| {
            db.prepare_cached(
                "SELECT value FROM facts WHERE space = ?1 AND key = ?2 AND (expires_at IS NULL OR expires_at > ?3)",
            )
            .and_then(|mut select| {
                select.query_row(params![space, key, rows::micros(Timestamp::now())], |row| row.get(0)).optional()
            })
            .map_err(reading)
        })
    }

    /// Facts from a key on, as long as they begin with the prefix. `after` is left out itself.
    pub(crate) fn facts(
        &self,
        space: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let (from, is_first) = match after {
            Some(after) if after >= prefix => (after, false),
            _ => (prefix, true),
        };
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.with(|db| {
            let mut statement = db
                .prepare_cached(
                    "SELECT key, value FROM facts WHERE space = ?1 AND key >= ?2 AND (?3 OR key > ?2)
                         AND (expires_at IS NULL OR expires_at > ?4)
                     ORDER BY key LIMIT ?5",
                )
                .map_err(reading)?;
            let now = rows::micros(Timestamp::now());
            let mut found = statement.query(params![space, from, is_first, now, limit]).map_err(reading)?;
            let mut facts = Vec::new();
            while let Some(row) = found.next().map_err(reading)? {
                let key: String = row.get(0).map_err(reading)?;
                if !key.starts_with(prefix) {
                    break;
                }
                facts.push((key, row.get(1).map_err(reading)?));
            }
            Ok(facts)
        })
    }

    /// The spaces that hold facts. Each step jumps to the next space, however many facts lie between.
    pub(crate) fn fact_spaces(&self) -> Result<Vec<String>, StoreError> {
        self.with(|db| {
            let mut statement = db
                .prepare_cached(
                    "WITH RECURSIVE found (space) AS (
                         SELECT min(space) FROM facts
                         UNION ALL SELECT (SELECT min(space) FROM facts WHERE space > found.space)
                             FROM found WHERE found.space IS NOT NULL)
                     SELECT space FROM found WHERE space IS NOT NULL",
                )
                .map_err(reading)?;
            statement.query_map([], |row| row.get(0)).and_then(Iterator::collect).map_err(reading)
        })
    }

    /// Facts of a space with their ends, after a key.
    pub(crate) fn stored_facts(
        &self,
        space: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<StoredFact>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.with(|db| {
            let mut statement = db
                .prepare_cached(
                    "SELECT key, value, expires_at FROM facts WHERE space = ?1 AND key >= ?2 AND (?3 OR key > ?2)
                         AND (expires_at IS NULL OR expires_at > ?4)
                     ORDER BY key LIMIT ?5",
                )
                .map_err(reading)?;
            let now = rows::micros(Timestamp::now());
            let found = statement
                .query_map(params![space, after.unwrap_or_default(), after.is_none(), now, limit], |row| {
                    let expires_at: Option<i64> = row.get(2)?;
                    // An end beyond what a timestamp can say was not written by this program.
                    let expires_at = expires_at.map(|at| Timestamp::from_microsecond(at).unwrap_or(Timestamp::MAX));
                    Ok(StoredFact { key: row.get(0)?, value: row.get(1)?, expires_at })
                })
                .map_err(reading)?;
            found.collect::<Result<_, _>>().map_err(reading)
        })
    }

    pub(crate) fn ledger(&self, from_seq: u64, limit: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        let from = i64::try_from(from_seq).unwrap_or(i64::MAX);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.with(|db| {
            let mut statement = db
                .prepare_cached("SELECT seq, payload, chain FROM ledger WHERE seq >= ?1 ORDER BY seq LIMIT ?2")
                .map_err(reading)?;
            let found = statement
                .query_map([from, limit], |row| {
                    let seq: i64 = row.get(0)?;
                    Ok(LedgerEntry { seq: seq.cast_unsigned(), payload: row.get(1)?, chain: row.get(2)? })
                })
                .map_err(reading)?;
            found.collect::<Result<_, _>>().map_err(reading)
        })
    }
}

/// All substrings of a record that look like a SHA-256: 64 lowercase hexadecimal digits in a row. A record is JSON, and
/// it names blobs in this form.
fn hashes_in(payload: &[u8]) -> Vec<[u8; 32]> {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let runs = payload.split(|byte| !is_digit(byte)).filter(|digits| digits.len() == 64);
    runs.filter_map(|digits| std::str::from_utf8(digits).ok().and_then(blob_files::parse_hash)).collect()
}

/// Whether a run's number leaves room for the numbers of its frames. Toolyard gives no other.
pub(crate) fn check_number(number: i64) -> Result<(), StoreError> {
    if (1..=limits::LAST_RUN_NUMBER).contains(&number) {
        return Ok(());
    }
    Err(StoreError::Tampered(format!("the database holds the run number {number}, which Toolyard does not give")))
}

fn reading(error: rusqlite::Error) -> StoreError {
    failed_read("cannot read the store", &error)
}

pub(crate) fn read_frame(row: &rusqlite::Row<'_>) -> Result<Frame, StoreError> {
    let id: i64 = row.get(0).map_err(reading)?;
    let flagged: i64 = row.get(1).map_err(reading)?;
    let payload = row.get_ref(2).map_err(reading)?.as_blob().map_err(|e| reading(e.into()))?;
    let chain = row.get_ref(3).map_err(reading)?.as_blob().map_err(|e| reading(e.into()))?;
    if flagged >> packing::KIND_BITS != 0 {
        return Err(StoreError::Tampered(format!("the store holds a frame of the unknown kind {flagged}")));
    }
    // A damaged payload is returned as it is stored; the record's chain identifies the damaged record.
    let payload = packing::unpack(flagged, payload).unwrap_or_else(|_| payload.to_vec());
    Ok(Frame {
        seq: id.cast_unsigned() & u64::from(u32::MAX),
        kind: (flagged & 0xff) as u8,
        payload,
        chain: chain.try_into().map_err(|e| StoreError::Tampered(format!("the store holds a damaged frame: {e}")))?,
    })
}

/// Builds the listing's SQL so that the small indexes over open runs and sessions can serve it.
fn runs_query(filter: &RunFilter) -> (String, Vec<Value>) {
    let (conditions, values) = run_conditions(filter);
    let limit = if filter.limit == 0 { limits::DEFAULT_RUN_LIMIT } else { filter.limit.min(limits::MAX_RUN_LIMIT) };
    let order = if filter.after.is_some() { "ASC" } else { "DESC" };
    let columns = rows::RUN_COLUMNS;
    (format!("SELECT {columns} FROM runs WHERE {conditions} ORDER BY run_id {order} LIMIT {limit}"), values)
}

/// The condition of a query for runs, and its values.
fn run_conditions(filter: &RunFilter) -> (String, Vec<Value>) {
    let mut sql = "kind IS NOT NULL".to_owned();
    let mut values = Vec::new();
    let mut add = |sql: &mut String, condition: &str, value: Value| {
        values.push(value);
        sql.push_str(&format!(" AND {condition} ?{}", values.len()));
    };
    if !filter.statuses.is_empty() {
        let codes: Vec<i64> = filter.statuses.iter().map(|status| rows::status_code(*status)).collect();
        let list: Vec<String> = codes.iter().map(i64::to_string).collect();
        sql.push_str(&format!(" AND status IN ({})", list.join(", ")));
        if codes.iter().all(|code| *code < 3) {
            sql.push_str(" AND status < 3");
        }
    }
    if let Some(kind) = filter.kind {
        add(&mut sql, "kind =", Value::Integer(rows::kind_code(kind)));
    }
    if let Some(session) = &filter.session {
        add(&mut sql, "session =", Value::Text(session.clone()));
    }
    match filter.workspace.as_ref().map(WorkspaceId::key_range) {
        None => {}
        Some(Some((from, to))) => {
            add(&mut sql, "session >=", Value::Text(from));
            add(&mut sql, "session <", Value::Text(to));
        }
        Some(None) => {
            let (from, to) = WorkspaceId::all_keys();
            sql.push_str(&format!(" AND (session IS NULL OR session < '{from}' OR session >= '{to}')"));
        }
    }
    if let Some(before) = filter.before {
        add(&mut sql, "run_id <", Value::Blob(rows::run_bytes(before).to_vec()));
    }
    if let Some(after) = filter.after {
        add(&mut sql, "run_id >", Value::Blob(rows::run_bytes(after).to_vec()));
    }
    (sql, values)
}
