//! Every query.

use crate::{
    large_blobs::LargeBlobs,
    limits,
    rows::{self, RUN_COLUMNS, column},
    server::{Param, Pool},
};
use jiff::Timestamp;
use std::{collections::HashSet, sync::Arc};
use tokio_postgres::{Row, types::Type};
use toolyard_engine::store::{
    Frame, Head, LedgerEntry, LeftBehind, NodeRow, NodeState, Owner, RunFilter, RunRow, StoreError, StoredFact,
};
use toolyard_protocol::{RunId, WorkspaceId, canonical};
use uuid::Uuid;

/// The conditions of a query for runs, and the values of its parameters `$1` to `$7`.
struct RunQuery {
    conditions: String,
    statuses: Option<Vec<i16>>,
    kind: Option<i16>,
    session: Option<Vec<u8>>,
    before: Option<Uuid>,
    after: Option<Uuid>,
    /// The first key of the filter's workspace, and the first key after it.
    keys: (Option<Vec<u8>>, Option<Vec<u8>>),
}

impl RunQuery {
    fn new(filter: &RunFilter) -> Self {
        let statuses: Vec<i16> = filter.statuses.iter().map(|status| rows::status_code(*status)).collect();
        let range = filter.workspace.as_ref().and_then(WorkspaceId::key_range);
        let keys = range.map(|(from, to)| (from.into_bytes(), to.into_bytes())).unzip();
        let mut conditions = String::from(
            "kind IS NOT NULL AND ($1 IS NULL OR status = ANY ($1)) AND ($2 IS NULL OR kind = $2)
            AND ($3 IS NULL OR session = $3) AND ($4 IS NULL OR run < $4) AND ($5 IS NULL OR run > $5)
            AND ($6 IS NULL OR session >= $6) AND ($7 IS NULL OR session < $7)",
        );
        if filter.workspace.is_some() && keys.0.is_none() {
            // The default workspace has the keys that no other workspace has.
            let (marked, unmarked) = WorkspaceId::all_keys();
            conditions += &format!(" AND (session IS NULL OR session < '{marked}' OR session >= '{unmarked}')");
        }
        Self {
            conditions,
            statuses: (!statuses.is_empty()).then_some(statuses),
            kind: filter.kind.map(rows::kind_code),
            session: filter.session.as_ref().map(|session| session.as_bytes().to_vec()),
            before: filter.before.as_ref().map(|run| *run.as_uuid()),
            after: filter.after.as_ref().map(|run| *run.as_uuid()),
            keys,
        }
    }

    fn params(&self) -> [Param<'_>; 7] {
        [
            (&self.statuses, Type::INT2_ARRAY),
            (&self.kind, Type::INT2),
            (&self.session, Type::BYTEA),
            (&self.before, Type::UUID),
            (&self.after, Type::UUID),
            (&self.keys.0, Type::BYTEA),
            (&self.keys.1, Type::BYTEA),
        ]
    }
}

/// Milliseconds, as the functions in `sql/` take them.
pub(crate) fn ttl_ms() -> i32 {
    i32::try_from(limits::TIME_TO_LIVE.as_millis()).unwrap_or(i32::MAX)
}

/// Queries on the pool's connections.
#[derive(Clone)]
pub(crate) struct Reads {
    pub(crate) pool: Arc<Pool>,
    pub(crate) large: Arc<dyn LargeBlobs>,
}

fn owner_of(node: Option<String>, epoch: Option<i64>) -> Option<Owner> {
    Some(Owner { node: node?, epoch: epoch?.cast_unsigned() })
}

impl Reads {
    async fn rows(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        self.pool.retry(sql, params).await
    }

    async fn one<T: for<'a> tokio_postgres::types::FromSql<'a>>(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Option<T>, StoreError> {
        self.rows(sql, params).await?.first().map(|row| column(row, 0)).transpose()
    }

    pub(crate) async fn run(&self, run_id: RunId) -> Result<Option<RunRow>, StoreError> {
        let sql = format!("SELECT {RUN_COLUMNS} FROM toolyard.runs WHERE run = $1 AND kind IS NOT NULL");
        self.rows(&sql, &[(run_id.as_uuid(), Type::UUID)]).await?.first().map(rows::read_run).transpose()
    }

    pub(crate) async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        let query = RunQuery::new(filter);
        let limit = if filter.limit == 0 { limits::DEFAULT_RUN_LIMIT } else { filter.limit.min(limits::MAX_RUN_LIMIT) };
        let limit = limit as i64;
        let order = if filter.after.is_some() { "ASC" } else { "DESC" };
        let conditions = &query.conditions;
        let sql = format!("SELECT {RUN_COLUMNS} FROM toolyard.runs WHERE {conditions} ORDER BY run {order} LIMIT $8");
        let mut params = query.params().to_vec();
        params.push((&limit, Type::INT8));
        self.rows(&sql, &params).await?.iter().map(rows::read_run).collect()
    }

    pub(crate) async fn count_runs(&self, filter: &RunFilter) -> Result<u64, StoreError> {
        let query = RunQuery::new(filter);
        let sql = format!("SELECT count(*) FROM toolyard.runs WHERE {}", query.conditions);
        Ok(self.one::<i64>(&sql, &query.params()).await?.unwrap_or_default().cast_unsigned())
    }

    pub(crate) async fn unlisted_runs(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let sql = "SELECT run FROM toolyard.runs WHERE kind IS NULL LIMIT $1";
        let rows = self.rows(sql, &[(&clamp(limit), Type::INT8)]).await?;
        rows.iter().map(|row| Ok(RunId::from_uuid(column::<Uuid>(row, 0)?))).collect()
    }

    /// At most [`limits::FRAMES_PER_READ`] frames.
    pub(crate) async fn frames(&self, run_id: RunId, from: u64) -> Result<Vec<Frame>, StoreError> {
        let Ok(from) = i64::try_from(from) else { return Ok(Vec::new()) };
        let sql = "SELECT seq, kind, payload, chain FROM toolyard.frames WHERE run = $1 AND seq >= $2
            ORDER BY seq LIMIT $3";
        let limit = limits::FRAMES_PER_READ;
        let params: &[Param<'_>] = &[(run_id.as_uuid(), Type::UUID), (&from, Type::INT8), (&limit, Type::INT8)];
        let read = |row: &Row| {
            let kind: i16 = column(row, 1)?;
            Ok(Frame {
                seq: column::<i64>(row, 0)?.cast_unsigned(),
                kind: u8::try_from(kind).map_err(|_| StoreError::failed(format!("a frame has the kind {kind}")))?,
                payload: column(row, 2)?,
                chain: rows::chain_of(&column::<Vec<u8>>(row, 3)?)?,
            })
        };
        self.rows(sql, params).await?.iter().map(read).collect()
    }

    pub(crate) async fn head(&self, run_id: RunId) -> Result<Option<Head>, StoreError> {
        let sql = "SELECT seq, chain FROM toolyard.frames WHERE run = $1 ORDER BY seq DESC LIMIT 1";
        let rows = self.rows(sql, &[(run_id.as_uuid(), Type::UUID)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let chain = rows::chain_of(&column::<Vec<u8>>(row, 1)?)?;
        Ok(Some(Head { seq: column::<i64>(row, 0)?.cast_unsigned(), chain }))
    }

    pub(crate) async fn is_alive(&self, owner: &Owner) -> Result<bool, StoreError> {
        let params: &[Param<'_>] =
            &[(&owner.node, Type::TEXT), (&owner.epoch.cast_signed(), Type::INT8), (&ttl_ms(), Type::INT4)];
        Ok(self.one("SELECT toolyard.is_alive_1($1, $2, $3)", params).await?.unwrap_or(false))
    }

    pub(crate) async fn fence(&self, owner: &Owner) -> Result<(), StoreError> {
        let params: &[Param<'_>] = &[(&owner.node, Type::TEXT), (&owner.epoch.cast_signed(), Type::INT8)];
        self.rows("DELETE FROM toolyard.nodes WHERE node = $1 AND epoch = $2", params).await.map(drop)
    }

    pub(crate) async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        let sql = "SELECT node, epoch, address, draining, toolyard.is_alive_1(node, epoch, $1) FROM toolyard.nodes
            WHERE serves ORDER BY node, epoch";
        let read = |row: &Row| {
            let state = match (column::<bool>(row, 4)?, column::<bool>(row, 3)?) {
                (false, _) => NodeState::Dead,
                (true, true) => NodeState::Draining,
                (true, false) => NodeState::Live,
            };
            let owner = Owner { node: column(row, 0)?, epoch: column::<i64>(row, 1)?.cast_unsigned() };
            Ok(NodeRow { owner, address: column(row, 2)?, state })
        };
        self.rows(sql, &[(&ttl_ms(), Type::INT4)]).await?.iter().map(read).collect()
    }

    pub(crate) async fn holder(&self, run_id: RunId) -> Result<Option<Owner>, StoreError> {
        let sql = "SELECT holder_node, holder_epoch FROM toolyard.runs WHERE run = $1";
        let rows = self.rows(sql, &[(run_id.as_uuid(), Type::UUID)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(owner_of(column(row, 0)?, column(row, 1)?))
    }

    pub(crate) async fn left_behind(&self, limit: usize) -> Result<Vec<LeftBehind>, StoreError> {
        let sql = format!(
            "SELECT {RUN_COLUMNS}, holder_node, holder_epoch FROM toolyard.runs
             WHERE status < 3 AND status IN (0, 1) AND kind IS NOT NULL
                 AND (holder_epoch IS NULL OR (holder_node, holder_epoch) IN (
                     SELECT h.node, h.epoch FROM (SELECT DISTINCT holder_node AS node, holder_epoch AS epoch
                         FROM toolyard.runs WHERE status < 3 AND status IN (0, 1) AND holder_epoch IS NOT NULL) h
                     WHERE NOT toolyard.is_alive_1(h.node, h.epoch, $2)))
             ORDER BY run DESC LIMIT $1"
        );
        let rows = self.rows(&sql, &[(&clamp(limit), Type::INT8), (&ttl_ms(), Type::INT4)]).await?;
        let read = |row: &Row| {
            Ok(LeftBehind { row: rows::read_run(row)?, holder: owner_of(column(row, 7)?, column(row, 8)?) })
        };
        rows.iter().map(read).collect()
    }

    pub(crate) async fn blob(&self, sha256: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(hash) = canonical::unhex(sha256) else { return Ok(None) };
        let sql = "SELECT bytes FROM toolyard.blobs WHERE sha256 = $1";
        let rows = self.rows(sql, &[(&hash.as_slice(), Type::BYTEA)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let bytes = match column::<Option<Vec<u8>>>(row, 0)? {
            Some(bytes) => bytes,
            None => {
                let missing = || StoreError::failed(format!("blob {sha256} is damaged: its bytes are missing"));
                self.large.get(sha256).await?.ok_or_else(missing)?
            }
        };
        if canonical::sha256_hex(&bytes) != sha256 {
            return Err(StoreError::failed(format!("blob {sha256} is damaged: its bytes have another hash")));
        }
        Ok(Some(bytes))
    }

    pub(crate) async fn blob_hashes(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let after: Vec<u8> = canonical::unhex(after).map_or_else(Vec::new, Vec::from);
        let sql = "SELECT sha256 FROM toolyard.blobs WHERE sha256 > $1 ORDER BY sha256 LIMIT $2";
        let rows = self.rows(sql, &[(&after, Type::BYTEA), (&clamp(limit), Type::INT8)]).await?;
        rows.iter().map(|row| Ok(canonical::hex(&column::<Vec<u8>>(row, 0)?))).collect()
    }

    /// Blobs that were not used lately, that no frame names and that are not to be kept; with whether they are large.
    pub(crate) async fn unused_blobs(&self, keep: &[String]) -> Result<Vec<(String, bool)>, StoreError> {
        let sql = "SELECT sha256, bytes IS NULL FROM toolyard.blobs WHERE used_at < now() - interval '1 hour'";
        let mut unused: std::collections::BTreeMap<String, bool> = std::collections::BTreeMap::new();
        for row in self.rows(sql, &[]).await? {
            unused.insert(canonical::hex(&column::<Vec<u8>>(&row, 0)?), column(&row, 1)?);
        }
        unused.retain(|hash, _| !keep.contains(hash));
        let (mut run, mut seq) = (Uuid::nil(), 0_i64);
        while !unused.is_empty() {
            let sql =
                "SELECT run, seq, payload FROM toolyard.frames WHERE (run, seq) > ($1, $2) ORDER BY run, seq LIMIT $3";
            let limit = limits::FRAMES_PER_READ;
            let params: &[Param<'_>] = &[(&run, Type::UUID), (&seq, Type::INT8), (&limit, Type::INT8)];
            let rows = self.rows(sql, params).await?;
            let Some(last) = rows.last() else { break };
            (run, seq) = (column(last, 0)?, column(last, 1)?);
            for row in &rows {
                for hash in hashes_in(&column::<Vec<u8>>(row, 2)?) {
                    unused.remove(hash);
                }
            }
        }
        Ok(unused.into_iter().collect())
    }

    pub(crate) async fn fact(&self, space: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT value FROM toolyard.facts WHERE workspace = '' AND space = $1 AND key = $2
            AND (expires_at IS NULL OR expires_at > toolyard.micros_1())";
        self.one(sql, &[(&space.as_bytes(), Type::BYTEA), (&key.as_bytes(), Type::BYTEA)]).await
    }

    /// Facts after a key (from the first one on without), whose key begins with a prefix.
    pub(crate) async fn facts(
        &self,
        space: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<StoredFact>, StoreError> {
        let (from, is_first) = match after {
            Some(after) if after >= prefix => (after, false),
            _ => (prefix, true),
        };
        let sql = "SELECT key, value, expires_at FROM toolyard.facts WHERE workspace = '' AND space = $1
                AND key >= $2 AND ($3 OR key > $2) AND substring(key FROM 1 FOR $6) = $7
                AND (expires_at IS NULL OR expires_at > $4) ORDER BY key LIMIT $5";
        let now = rows::micros(Timestamp::now());
        let length = i32::try_from(prefix.len()).unwrap_or(i32::MAX);
        let params: &[Param<'_>] = &[
            (&space.as_bytes(), Type::BYTEA),
            (&from.as_bytes(), Type::BYTEA),
            (&is_first, Type::BOOL),
            (&now, Type::INT8),
            (&clamp(limit), Type::INT8),
            (&length, Type::INT4),
            (&prefix.as_bytes(), Type::BYTEA),
        ];
        let read = |row: &Row| {
            let until: Option<i64> = column(row, 2)?;
            // An end beyond what a timestamp can say was not written by this program.
            let expires_at = until.map(|at| Timestamp::from_microsecond(at).unwrap_or(Timestamp::MAX));
            Ok(StoredFact { key: rows::text_of(column(row, 0)?)?, value: column(row, 1)?, expires_at })
        };
        self.rows(sql, params).await?.iter().map(read).collect()
    }

    pub(crate) async fn fact_spaces(&self) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT DISTINCT space FROM toolyard.facts WHERE workspace = '' ORDER BY space";
        self.rows(sql, &[]).await?.iter().map(|row| rows::text_of(column(row, 0)?)).collect()
    }

    pub(crate) async fn ledger(&self, from: u64, limit: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        let sql = "SELECT seq, payload, chain FROM toolyard.ledger WHERE seq >= $1 ORDER BY seq LIMIT $2";
        let rows = self.rows(sql, &[(&from, Type::INT8), (&clamp(limit), Type::INT8)]).await?;
        rows.iter().map(read_entry).collect()
    }

    pub(crate) async fn last_entry(&self) -> Result<Option<LedgerEntry>, StoreError> {
        let sql = "SELECT seq, payload, chain FROM toolyard.ledger ORDER BY seq DESC LIMIT 1";
        self.rows(sql, &[]).await?.first().map(read_entry).transpose()
    }

    /// The size of all tables but one; `without` is empty for all of them.
    pub(crate) async fn used_bytes(&self, without: &str) -> Result<Option<u64>, StoreError> {
        let sql = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8 FROM pg_class c
            JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'toolyard' AND c.relkind = 'r' AND c.relname <> $1";
        Ok(self.one::<i64>(sql, &[(&without, Type::TEXT)]).await?.map(i64::cast_unsigned))
    }
}

fn read_entry(row: &Row) -> Result<LedgerEntry, StoreError> {
    Ok(LedgerEntry {
        seq: column::<i64>(row, 0)?.cast_unsigned(),
        payload: column(row, 1)?,
        chain: rows::chain_of(&column::<Vec<u8>>(row, 2)?)?,
    })
}

fn clamp(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Everything in a payload that looks like a SHA-256 in lowercase hexadecimal.
fn hashes_in(payload: &[u8]) -> HashSet<&str> {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    payload
        .split(|byte| !is_digit(byte))
        .filter(|run| run.len() == 64)
        .filter_map(|run| std::str::from_utf8(run).ok())
        .collect()
}
