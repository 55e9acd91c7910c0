//! The group commit: everything queued becomes one statement. What became of a commit whose answer was lost is read from
//! the heads of the runs concerned.

use crate::{
    limits,
    queue::{Append, Fact, Op, Queue, Queued},
    rows,
    server::{Server, Trouble},
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio_postgres::{Client, error::SqlState, types::Type};
use toolyard_engine::store::{Head, Owner, StoreError};
use toolyard_protocol::{RunId, canonical};
use uuid::Uuid;

/// The statement; see `sql/001.sql`.
const APPEND: &str = "SELECT toolyard.append_1($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20,\
    $21,$22,$23,$24,$25)";

/// What a group of changes became.
enum Written {
    Done,
    Fenced,
}

pub(crate) struct Writer {
    server: Server,
    queue: Arc<Queue>,
    owner: Owner,
    commits: Arc<AtomicU64>,
    client: Option<Client>,
    /// Runs that this node is known to hold. Nobody takes one without fencing this node first, so this stays true.
    held: HashSet<RunId>,
    /// Numbers the groups that only set facts.
    mark: i64,
    /// Called after every commit.
    wrote: Box<dyn Fn() + Send + Sync>,
}

impl Writer {
    pub(crate) fn new(
        server: Server,
        queue: Arc<Queue>,
        owner: Owner,
        commits: Arc<AtomicU64>,
        wrote: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self { server, queue, owner, commits, client: None, held: HashSet::new(), mark: 0, wrote }
    }

    /// Writes what is queued until the store is closed or the owner fenced.
    pub(crate) async fn run(mut self) {
        while let Some(mut group) = self.queue.next().await {
            let mut refused = self.uploads(&mut group).await;
            let whole: Vec<&Queued> = group.iter().filter(|queued| !refused.contains_key(&queued.position)).collect();
            match self.write(&whole).await {
                Ok(Written::Done) => {}
                Ok(Written::Fenced) => {
                    self.queue.fence(&self.owner);
                    return;
                }
                Err(error) if whole.len() <= 1 => {
                    whole.first().into_iter().for_each(|queued| drop(refused.insert(queued.position, error.clone())));
                }
                // One of them cannot be written. Each by itself shows which.
                Err(_) => {
                    let mut stopped: HashSet<RunId> = HashSet::new();
                    for queued in whole {
                        let run_id = match &queued.op {
                            Op::Append(append) => Some(append.run_id),
                            Op::Fact(_) => None,
                        };
                        let after_a_hole = run_id.is_some_and(|run_id| stopped.contains(&run_id));
                        let written = match after_a_hole {
                            true => Err(StoreError::failed("an earlier batch of the run was refused")),
                            false => self.write(&[queued]).await,
                        };
                        match written {
                            Ok(Written::Done) => {}
                            Ok(Written::Fenced) => {
                                self.queue.fence(&self.owner);
                                return;
                            }
                            Err(error) => {
                                stopped.extend(run_id);
                                refused.insert(queued.position, error);
                            }
                        }
                    }
                }
            }
            for position in refused.keys() {
                let run = group.iter().find(|queued| queued.position == *position);
                if let Some(Queued { op: Op::Append(append), .. }) = run {
                    self.held.remove(&append.run_id);
                }
            }
            self.queue.wrote(&group, refused);
            self.commits.fetch_add(1, Ordering::Relaxed);
            (self.wrote)();
        }
    }

    /// Waits until the large blobs of a group are kept. Batches whose blobs could not be kept are refused.
    async fn uploads(&self, group: &mut [Queued]) -> BTreeMap<u64, StoreError> {
        let mut refused = BTreeMap::new();
        for Queued { position, op, .. } in group {
            let Op::Append(append) = op else { continue };
            for upload in append.uploads.drain(..) {
                let kept = upload.await.unwrap_or_else(|_| Err(StoreError::failed("a large blob was not kept")));
                if let Err(error) = kept {
                    refused.insert(*position, error);
                }
            }
        }
        refused
    }

    /// Writes changes in one statement, however often the server goes away meanwhile. An error: one of them is refused.
    async fn write(&mut self, group: &[&Queued]) -> Result<Written, StoreError> {
        if group.is_empty() {
            return Ok(Written::Done);
        }
        let columns = Columns::of(group, &self.held);
        // Frames show by themselves whether they were written. A group without any needs a mark.
        let mark = columns.f_run.is_empty().then(|| {
            self.mark += 1;
            self.mark
        });
        let mut is_unknown = false;
        loop {
            let trouble = match self.try_write(&columns, mark).await {
                Ok(0) => return Ok(Written::Fenced),
                Ok(_) => break,
                Err(trouble) => trouble,
            };
            match trouble {
                Trouble::Again(_) => {}
                Trouble::Refused { state, message, detail } => {
                    // The same group may have been written by a connection that was lost.
                    if is_unknown && state == SqlState::UNIQUE_VIOLATION && self.is_written(group).await? {
                        break;
                    }
                    return Err(refusal(group, &state, &message, &detail));
                }
                Trouble::Away(why) => {
                    tracing::warn!(error = why, "the database cannot be used; trying again");
                    self.queue.set_away(Some(why));
                    self.client = None;
                    is_unknown = true;
                    tokio::time::sleep(limits::RETRY).await;
                    if self.queue.is_fenced().is_some() {
                        return Ok(Written::Fenced);
                    }
                }
            }
        }
        self.queue.set_away(None);
        self.remember(group);
        Ok(Written::Done)
    }

    fn remember(&mut self, group: &[&Queued]) {
        if self.held.len() >= limits::HELD_RUNS {
            self.held.clear();
        }
        for queued in group {
            if let Op::Append(append) = &queued.op {
                match append.ends_hold() {
                    true => self.held.remove(&append.run_id),
                    false => self.held.insert(append.run_id),
                };
            }
        }
    }

    async fn try_write(&mut self, columns: &Columns<'_>, mark: Option<i64>) -> Result<i32, Trouble> {
        let client = match &self.client {
            Some(client) if !client.is_closed() => client,
            _ => self.client.insert(self.server.connect().await?),
        };
        let sent = columns.send(client, &self.owner, mark);
        match tokio::time::timeout(limits::STATEMENT_TIMEOUT, sent).await {
            Ok(answer) => answer,
            Err(_) => Err(Trouble::Away("the server does not answer".to_owned())),
        }
    }

    /// Whether the last frames of every batch are the heads of their runs: then the group was written.
    async fn is_written(&self, group: &[&Queued]) -> Result<bool, StoreError> {
        let mut last: BTreeMap<RunId, Head> = BTreeMap::new();
        for queued in group {
            if let Op::Append(Append { run_id, frames, .. }) = &queued.op
                && let Some(frame) = frames.last()
            {
                last.insert(*run_id, Head { seq: frame.seq, chain: frame.chain });
            }
        }
        let client = self.server.connect().await?;
        for (run_id, head) in last {
            let sql = "SELECT seq, chain FROM toolyard.frames WHERE run = $1 ORDER BY seq DESC LIMIT 1";
            let rows = client.query_typed(sql, &[(run_id.as_uuid(), Type::UUID)]).await.map_err(Trouble::from)?;
            let Some(row) = rows.first() else { return Ok(false) };
            let (seq, chain): (i64, Vec<u8>) = (rows::column(row, 0)?, rows::column(row, 1)?);
            if seq.cast_unsigned() != head.seq || chain != head.chain {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The error that a caller receives for a batch that the server refuses.
fn refusal(group: &[&Queued], state: &SqlState, message: &str, detail: &str) -> StoreError {
    if let (true, [Queued { op: Op::Append(append), .. }]) = (*state == SqlState::UNIQUE_VIOLATION, group) {
        // "Key (run, seq)=(UUID, NUMBER) already exists."
        let seq = detail.rsplit_once(", ").and_then(|(_, rest)| rest.split_once(')')).map_or("?", |(seq, _)| seq);
        return StoreError::failed(format!("run {} already has a frame {seq}", append.run_id));
    }
    StoreError::failed(format!("the database refuses this: {message}"))
}

/// A group as the arguments of the statement.
#[derive(Default)]
struct Columns<'a> {
    new_runs: Vec<Uuid>,
    f_run: Vec<Uuid>,
    f_seq: Vec<i64>,
    f_kind: Vec<i16>,
    f_payload: Vec<&'a [u8]>,
    f_chain: Vec<&'a [u8]>,
    rows: BTreeMap<Uuid, (&'a toolyard_engine::store::RunRow, bool)>,
    let_go: Vec<Uuid>,
    blobs: BTreeMap<Vec<u8>, &'a [u8]>,
    /// The last change of each fact, by space and key.
    facts: BTreeMap<(&'a str, &'a str), &'a Fact>,
}

impl<'a> Columns<'a> {
    fn of(group: &[&'a Queued], held: &HashSet<RunId>) -> Self {
        let mut columns = Self::default();
        let mut seen: HashSet<Uuid> = HashSet::new();
        for queued in group {
            match &queued.op {
                Op::Fact(fact) => drop(columns.facts.insert((&fact.space, &fact.key), fact)),
                Op::Append(append) => {
                    let run = *append.run_id.as_uuid();
                    columns.append(run, append);
                    if !held.contains(&append.run_id) {
                        seen.insert(run);
                    }
                }
            }
        }
        let rows = &columns.rows;
        columns.new_runs = seen.into_iter().filter(|run| !rows.contains_key(run)).collect();
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

    async fn send(&self, client: &Client, owner: &Owner, mark: Option<i64>) -> Result<i32, Trouble> {
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
        let answer = client
            .query_typed(
                APPEND,
                &[
                    (&owner.node, Type::TEXT),
                    (&epoch, Type::INT8),
                    (&mark, Type::INT8),
                    (&self.new_runs, Type::UUID_ARRAY),
                    (&self.f_run, Type::UUID_ARRAY),
                    (&self.f_seq, Type::INT8_ARRAY),
                    (&self.f_kind, Type::INT2_ARRAY),
                    (&self.f_payload, Type::BYTEA_ARRAY),
                    (&self.f_chain, Type::BYTEA_ARRAY),
                    (&r_run, Type::UUID_ARRAY),
                    (&r_kind, Type::INT2_ARRAY),
                    (&r_status, Type::INT2_ARRAY),
                    (&r_title, Type::BYTEA_ARRAY),
                    (&r_session, Type::BYTEA_ARRAY),
                    (&r_started, Type::INT8_ARRAY),
                    (&r_ended, Type::INT8_ARRAY),
                    (&r_ends, Type::BOOL_ARRAY),
                    (&self.let_go, Type::UUID_ARRAY),
                    (&b_sha256, Type::BYTEA_ARRAY),
                    (&b_len, Type::INT8_ARRAY),
                    (&b_bytes, Type::BYTEA_ARRAY),
                    (&k_space, Type::BYTEA_ARRAY),
                    (&k_key, Type::BYTEA_ARRAY),
                    (&k_value, Type::BYTEA_ARRAY),
                    (&k_until, Type::INT8_ARRAY),
                ],
            )
            .await?;
        answer.first().map_or(Ok(0), |row| Ok(row.try_get(0)?))
    }
}
