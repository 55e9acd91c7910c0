//! The lease of this owner: registration, beats, and hints that something changed.

use crate::{
    limits,
    queue::Queue,
    rows,
    server::{Pool, Trouble},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Notify, watch};
use tokio_postgres::{AsyncMessage, Client, types::Type};
use toolyard_engine::store::{Owner, StoreError};

/// Tells the nodes that listen that something changed. A hint need not survive a crash, so its commit waits neither for the
/// server's disk nor for a standby: the hint comes sooner, and appends do not share the disk with it.
const NOTIFY: &str = "SELECT set_config('synchronous_commit', 'off', true), pg_notify('toolyard', '')";
const LISTEN: &str = "LISTEN toolyard";

/// Nanoseconds since the machine started, including the time that it slept.
fn now_nanos() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// What beats and callers share.
pub(crate) struct Lease {
    /// When the last beat that succeeded was sent.
    sent: AtomicI64,
    pub(crate) commits: Arc<AtomicU64>,
    pub(crate) hints: watch::Sender<u64>,
    /// Whether a node elsewhere watches.
    others_watch: AtomicBool,
    /// There is something to tell nodes that watch.
    pub(crate) to_tell: Notify,
    is_closing: AtomicBool,
}

impl Lease {
    pub(crate) fn new() -> Self {
        Self {
            sent: AtomicI64::new(now_nanos()),
            commits: Arc::default(),
            hints: watch::Sender::default(),
            others_watch: AtomicBool::new(false),
            to_tell: Notify::new(),
            is_closing: AtomicBool::new(false),
        }
    }

    /// Whether the last good beat is recent enough to begin an effect.
    pub(crate) fn is_good(&self) -> bool {
        let age = now_nanos().saturating_sub(self.sent.load(Ordering::Acquire));
        u128::try_from(age).is_ok_and(|age| age < limits::DISPATCH_WITHIN.as_nanos())
    }

    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.to_tell.notify_one();
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    pub(crate) fn changed(&self) {
        self.hints.send_modify(|number| *number += 1);
        if self.others_watch.load(Ordering::Relaxed) {
            self.to_tell.notify_one();
        }
    }
}

/// Registers an owner. A node that serves waits until a node of the same name that stopped without a word counts as dead.
pub(crate) async fn register(client: &Client, node: &str, home: &str, serves: bool) -> Result<Owner, StoreError> {
    let ttl = crate::reads::ttl_ms();
    let program = env!("CARGO_PKG_VERSION");
    let began = Instant::now();
    loop {
        let answer = client
            .query_typed(
                "SELECT toolyard.register_1($1, $2, $3, $4, $5)",
                &[
                    (&node, Type::TEXT),
                    (&home, Type::TEXT),
                    (&serves, Type::BOOL),
                    (&program, Type::TEXT),
                    (&ttl, Type::INT4),
                ],
            )
            .await
            .map_err(Trouble::from);
        match answer {
            Ok(rows) => {
                let Some(row) = rows.first() else { return Err(StoreError::failed("the database gave no epoch")) };
                return Ok(Owner { node: node.to_owned(), epoch: rows::column::<i64>(row, 0)?.cast_unsigned() });
            }
            Err(Trouble::Refused { state, message, .. }) if state.code() == "TY002" => {
                if began.elapsed() > limits::TIME_TO_LIVE + limits::BEAT {
                    return Err(StoreError::failed(format!(
                        "{message}, and it is alive: give this node another name with node.name"
                    )));
                }
                tokio::time::sleep(limits::BEAT).await;
            }
            Err(trouble) => return Err(trouble.into()),
        }
    }
}

/// Removes the owner of a process that ends.
pub(crate) async fn sign_off(pool: Arc<Pool>, owner: Owner) -> Result<(), StoreError> {
    let epoch = owner.epoch.cast_signed();
    let sql = "DELETE FROM toolyard.nodes WHERE node = $1 AND epoch = $2";
    pool.once(sql, &[(&owner.node, Type::TEXT), (&epoch, Type::INT8)]).await.map(drop).map_err(StoreError::from)
}

/// Renews the lease until the store is closed or the owner fenced.
pub(crate) async fn beat(lease: Arc<Lease>, pool: Arc<Pool>, queue: Arc<Queue>, owner: Owner) {
    let calm = i32::try_from(limits::CALM.as_millis()).unwrap_or(i32::MAX);
    let epoch = owner.epoch.cast_signed();
    let mut client: Option<Client> = None;
    let mut others: Option<i64> = None;
    let mut next = tokio::time::interval(limits::BEAT);
    next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        next.tick().await;
        if lease.is_closing() || queue.is_fenced().is_some() {
            return;
        }
        let sent = now_nanos();
        let watches = lease.hints.receiver_count() > 0;
        let commits = lease.commits.load(Ordering::Relaxed).cast_signed();
        let beating = async {
            let client = match client.take().filter(|client| !client.is_closed()) {
                Some(known) => client.insert(known),
                None => client.insert(pool.server.connect().await?),
            };
            let sql = "SELECT alive, others_watch, others_commits FROM toolyard.beat_1($1, $2, $3, $4, $5)";
            let rows = client
                .query_typed(
                    sql,
                    &[
                        (&owner.node, Type::TEXT),
                        (&epoch, Type::INT8),
                        (&commits, Type::INT8),
                        (&watches, Type::BOOL),
                        (&calm, Type::INT4),
                    ],
                )
                .await?;
            let Some(row) = rows.first() else { return Err(Trouble::Away("no answer to a beat".to_owned())) };
            Ok::<(bool, bool, i64), Trouble>((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
        };
        match tokio::time::timeout(limits::TIME_TO_LIVE, beating).await {
            // The row is gone because this handle signed off while the beat was on its way.
            Ok(Ok((false, ..))) if lease.is_closing() => return,
            Ok(Ok((false, ..))) => {
                tracing::error!(%owner, "this node was fenced: another node has taken over its runs");
                queue.fence(&owner);
                return;
            }
            Ok(Ok((true, others_watch, others_commits))) => {
                lease.sent.fetch_max(sent, Ordering::AcqRel);
                lease.others_watch.store(others_watch, Ordering::Relaxed);
                // Behind a pooler there is no LISTEN: then this is how a change elsewhere is noticed.
                if others.replace(others_commits).is_some_and(|known| known != others_commits) && watches {
                    lease.hints.send_modify(|number| *number += 1);
                }
            }
            Ok(Err(trouble)) => {
                tracing::debug!(?trouble, "a beat failed");
                client = None;
            }
            Err(_) => client = None,
        }
    }
}

/// Tells other nodes that something changed, at most every [`limits::NOTIFY_EVERY`], and only while one of them watches.
pub(crate) async fn tell(lease: Arc<Lease>, pool: Arc<Pool>) {
    while !lease.is_closing() {
        lease.to_tell.notified().await;
        let told = pool.once(NOTIFY, &[]).await;
        if let Err(trouble) = told {
            tracing::debug!(?trouble, "other nodes were not told of a change; their next beat notices it");
        }
        tokio::time::sleep(limits::NOTIFY_EVERY).await;
    }
}

/// Listens for what other nodes tell, while somebody watches here.
pub(crate) async fn listen(lease: Arc<Lease>, pool: Arc<Pool>) {
    while !lease.is_closing() {
        if lease.hints.receiver_count() > 0
            && let Err(trouble) = listen_once(&lease, &pool).await
        {
            tracing::debug!(?trouble, "nothing is heard from other nodes now");
        }
        tokio::time::sleep(limits::RETRY).await;
    }
}

async fn listen_once(lease: &Lease, pool: &Pool) -> Result<(), Trouble> {
    let (client, mut connection) = pool.server.open().await?;
    let (heard, mut hearing) = tokio::sync::mpsc::channel::<()>(1);
    let reading = tokio::spawn(async move {
        loop {
            match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                // One pending hint is enough for all changes.
                Some(Ok(AsyncMessage::Notification(_))) => drop(heard.try_send(())),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
    });
    client.batch_execute(LISTEN).await?;
    while !lease.is_closing() && lease.hints.receiver_count() > 0 && !reading.is_finished() {
        match tokio::time::timeout(limits::BEAT, hearing.recv()).await {
            Ok(Some(())) => lease.hints.send_modify(|number| *number += 1),
            Ok(None) => break,
            Err(_) => {}
        }
    }
    reading.abort();
    Ok(())
}

/// Removes expired facts, and makes and drops partitions.
pub(crate) async fn maintain(lease: Arc<Lease>, pool: Arc<Pool>) {
    let mut partitions_at = Instant::now();
    let mut facts_at = Instant::now() + limits::PRUNE_EVERY;
    while !lease.is_closing() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let is_due = |at: &mut Instant, every| {
            let due = Instant::now() >= *at;
            if due {
                *at = Instant::now() + every;
            }
            due
        };
        let mut work: Vec<String> = Vec::new();
        if is_due(&mut facts_at, limits::PRUNE_EVERY) {
            work.push(format!(
                "DELETE FROM toolyard.facts WHERE ctid IN (SELECT ctid FROM toolyard.facts WHERE expires_at IS NOT NULL
                    AND expires_at <= toolyard.micros_1() LIMIT {} FOR UPDATE SKIP LOCKED)",
                limits::PRUNE_ROWS
            ));
        }
        if is_due(&mut partitions_at, limits::PARTITIONS_EVERY) {
            work.push("SELECT toolyard.partitions_1()".to_owned());
        }
        for sql in work {
            let done = pool.once(&sql, &[]).await;
            if let Err(trouble) = done {
                tracing::warn!(?trouble, "the database could not be tidied now");
            }
        }
    }
}
