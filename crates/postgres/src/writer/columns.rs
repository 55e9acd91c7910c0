//! A group of changes as the arguments of a statement.

use crate::{
    limits,
    queue::{Append, Fact, Op, Queued},
    rows,
    server::{Line, Trouble},
};
use std::{
    collections::{BTreeMap, HashSet},
    pin::pin,
    sync::Arc,
    time::Instant,
};
use tokio_postgres::{
    Client, Statement,
    types::{ToSql, Type},
};
use toolyard_engine::store::{Owner, RunRow};
use toolyard_protocol::{RunId, canonical};
use uuid::Uuid;

/// Writes any group; see `sql/001.sql`.
const APPEND: &str = "SELECT toolyard.append_1($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20,\
    $21,$22,$23,$24,$25)";
const APPEND_TYPES: [Type; 25] = [
    Type::TEXT,
    Type::INT8,
    Type::INT8,
    Type::UUID_ARRAY,
    Type::UUID_ARRAY,
    Type::INT8_ARRAY,
    Type::INT2_ARRAY,
    Type::BYTEA_ARRAY,
    Type::BYTEA_ARRAY,
    Type::UUID_ARRAY,
    Type::INT2_ARRAY,
    Type::INT2_ARRAY,
    Type::BYTEA_ARRAY,
    Type::BYTEA_ARRAY,
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
    Type::BOOL_ARRAY,
    Type::UUID_ARRAY,
    Type::BYTEA_ARRAY,
    Type::INT8_ARRAY,
    Type::BYTEA_ARRAY,
    Type::BYTEA_ARRAY,
    Type::BYTEA_ARRAY,
    Type::BYTEA_ARRAY,
    Type::INT8_ARRAY,
];

/// Writes a group that has nothing but frames of runs that this node holds: what almost every step of a run is. No row is
/// written when the node was fenced. Only used with a name: the server would need longer to plan it than `append_1`, whose
/// plans a session keeps.
const FRAMES: &str = "WITH me AS MATERIALIZED (
        SELECT FROM toolyard.nodes WHERE node = $1 AND epoch = $2 FOR KEY SHARE)
    INSERT INTO toolyard.frames (run, seq, kind, payload, chain)
    SELECT run, seq, kind, payload, chain FROM me, unnest($3, $4, $5, $6, $7) AS n(run, seq, kind, payload, chain)";
const FRAMES_TYPES: [Type; 7] = [
    Type::TEXT,
    Type::INT8,
    Type::UUID_ARRAY,
    Type::INT8_ARRAY,
    Type::INT2_ARRAY,
    Type::BYTEA_ARRAY,
    Type::BYTEA_ARRAY,
];

/// The statements by name, which a connection has that no pooler shares with others.
#[derive(Clone)]
pub(super) struct Named {
    append: Statement,
    frames: Statement,
}

impl Named {
    pub(super) fn prepare(line: &mut Line, until: Instant) -> Result<Self, Trouble> {
        let client = line.client().ok_or_else(crate::server::no_answer)?;
        let preparing = async {
            let append = client.prepare_typed(APPEND, &APPEND_TYPES).await?;
            let frames = client.prepare_typed(FRAMES, &FRAMES_TYPES).await?;
            Ok::<_, tokio_postgres::Error>(Self { append, frames })
        };
        let prepared = line.call(pin!(preparing), until).ok_or_else(crate::server::no_answer)?;
        Ok(prepared?)
    }
}

/// A group as the arguments of the statement.
#[derive(Default)]
pub(super) struct Columns<'a> {
    new_runs: Vec<Uuid>,
    f_run: Vec<Uuid>,
    f_seq: Vec<i64>,
    f_kind: Vec<i16>,
    f_payload: Vec<&'a [u8]>,
    f_chain: Vec<&'a [u8]>,
    rows: BTreeMap<Uuid, (&'a RunRow, bool)>,
    let_go: Vec<Uuid>,
    blobs: BTreeMap<Vec<u8>, &'a [u8]>,
    /// The last change of each fact, by space and key.
    facts: BTreeMap<(&'a str, &'a str), &'a Fact>,
}

/// Runs of a group that this node is not known to hold.
pub(super) fn not_held(group: &[Arc<Queued>], held: &HashSet<RunId>) -> HashSet<RunId> {
    let run = |queued: &Arc<Queued>| match &queued.op {
        Op::Append(append) => Some(append.run_id),
        Op::Fact(_) => None,
    };
    group.iter().filter_map(run).filter(|run_id| !held.contains(run_id)).collect()
}

impl<'a> Columns<'a> {
    pub(super) fn of(group: &'a [Arc<Queued>], not_held: &HashSet<RunId>) -> Self {
        let mut columns = Self::default();
        for queued in group {
            match &queued.op {
                Op::Fact(fact) => drop(columns.facts.insert((&fact.space, &fact.key), fact)),
                Op::Append(append) => columns.append(*append.run_id.as_uuid(), append),
            }
        }
        let rows = &columns.rows;
        let new_runs = not_held.iter().map(|run_id| *run_id.as_uuid()).filter(|run| !rows.contains_key(run)).collect();
        columns.new_runs = new_runs;
        // In one order on all nodes, so that no two wait for each other.
        columns.new_runs.sort();
        columns.let_go.sort();
        columns
    }

    fn append(&mut self, run: Uuid, append: &'a Append) {
        for frame in &append.frames {
            self.f_run.push(run);
            self.f_seq.push(frame.seq.cast_signed());
            self.f_kind.push(i16::from(frame.kind));
            self.f_payload.push(&frame.payload);
            self.f_chain.push(&frame.chain);
        }
        for blob in &append.blobs {
            if let Some(hash) = canonical::unhex(&blob.sha256) {
                self.blobs.insert(Vec::from(hash), &blob.bytes);
            }
        }
        if let Some(row) = &append.row {
            let ended = self.rows.get(&run).is_some_and(|(_, ends)| *ends);
            self.rows.insert(run, (row, ended || append.ends_hold()));
        } else if append.release {
            self.let_go.push(run);
        }
    }

    fn is_frames_only(&self) -> bool {
        let Self { new_runs, f_run, rows, let_go, blobs, facts, .. } = self;
        let is_more =
            !new_runs.is_empty() || !rows.is_empty() || !let_go.is_empty() || !blobs.is_empty() || !facts.is_empty();
        !f_run.is_empty() && !is_more
    }

    /// Sends the group: 0 when the node was fenced.
    pub(super) async fn send(
        &self,
        client: &Client,
        named: Option<&Named>,
        owner: &Owner,
        mark: Option<i64>,
    ) -> Result<i32, Trouble> {
        match named {
            Some(named) if self.is_frames_only() => self.send_frames(client, &named.frames, owner).await,
            named => self.send_all(client, named.map(|named| &named.append), owner, mark).await,
        }
    }

    async fn send_frames(&self, client: &Client, statement: &Statement, owner: &Owner) -> Result<i32, Trouble> {
        let epoch = owner.epoch.cast_signed();
        let params: [&(dyn ToSql + Sync); 7] =
            [&owner.node, &epoch, &self.f_run, &self.f_seq, &self.f_kind, &self.f_payload, &self.f_chain];
        let written = client.execute(statement, &params).await?;
        Ok(i32::from(written > 0))
    }

    async fn send_all(
        &self,
        client: &Client,
        statement: Option<&Statement>,
        owner: &Owner,
        mark: Option<i64>,
    ) -> Result<i32, Trouble> {
        let epoch = owner.epoch.cast_signed();
        let rows = || self.rows.values().map(|(row, _)| row);
        let r_run: Vec<Uuid> = self.rows.keys().copied().collect();
        let r_kind: Vec<i16> = rows().map(|row| rows::kind_code(row.kind)).collect();
        let r_status: Vec<i16> = rows().map(|row| rows::status_code(row.status)).collect();
        let r_title: Vec<&[u8]> = rows().map(|row| row.title.as_bytes()).collect();
        let r_session: Vec<Option<&[u8]>> = rows().map(|row| row.session.as_deref().map(str::as_bytes)).collect();
        let r_started: Vec<i64> = rows().map(|row| rows::nanos(row.started_at)).collect();
        let r_ended: Vec<Option<i64>> = rows().map(|row| row.ended_at.map(rows::nanos)).collect();
        let r_ends: Vec<bool> = self.rows.values().map(|(_, ends)| *ends).collect();
        let b_sha256: Vec<&[u8]> = self.blobs.keys().map(Vec::as_slice).collect();
        let b_len: Vec<i64> = self.blobs.values().map(|bytes| bytes.len() as i64).collect();
        let inline = |bytes: &&'a [u8]| Some(*bytes).filter(|bytes| bytes.len() <= limits::BLOB_INLINE_BYTES);
        let b_bytes: Vec<Option<&[u8]>> = self.blobs.values().map(inline).collect();
        let k_space: Vec<&[u8]> = self.facts.keys().map(|(space, _)| space.as_bytes()).collect();
        let k_key: Vec<&[u8]> = self.facts.keys().map(|(_, key)| key.as_bytes()).collect();
        let k_value: Vec<Option<&[u8]>> = self.facts.values().map(|fact| fact.value.as_deref()).collect();
        let k_until: Vec<Option<i64>> = self.facts.values().map(|fact| fact.until).collect();
        let params: [&(dyn ToSql + Sync); APPEND_TYPES.len()] = [
            &owner.node,
            &epoch,
            &mark,
            &self.new_runs,
            &self.f_run,
            &self.f_seq,
            &self.f_kind,
            &self.f_payload,
            &self.f_chain,
            &r_run,
            &r_kind,
            &r_status,
            &r_title,
            &r_session,
            &r_started,
            &r_ended,
            &r_ends,
            &self.let_go,
            &b_sha256,
            &b_len,
            &b_bytes,
            &k_space,
            &k_key,
            &k_value,
            &k_until,
        ];
        let answer = match statement {
            Some(statement) => client.query(statement, &params).await?,
            None => {
                let typed: Vec<_> = params.into_iter().zip(APPEND_TYPES).collect();
                client.query_typed(APPEND, &typed).await?
            }
        };
        answer.first().map_or(Ok(0), |row| Ok(row.try_get(0)?))
    }
}
