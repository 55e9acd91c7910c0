//! What only a store that several nodes share can be asked: leases, fences, a server that goes away.

use crate::support::{
    postgres::{PooledHome, PostgresHome, Server, open, try_open},
    *,
};
use std::time::{Duration, Instant};
use toolyard_engine::{
    Store,
    store::{Durability::*, NodeState, StoreError},
};

async fn begin(store: &impl Store) -> toolyard_protocol::RunId {
    let run = new_run();
    let mut first = batch(store, run, 1..=1, Sync);
    first.row = Some(row(run));
    let position = store.append(first).unwrap();
    store.durable(position).await.unwrap();
    run
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: make postgres"]
async fn nodes_say_where_they_are_and_how_they_do() {
    let home = PostgresHome::new();
    let (one, two) = (open(&home.url(), "one"), open(&home.url(), "two"));
    assert!(one.is_shared());
    assert_eq!(one.shared_secret(), two.shared_secret());
    one.set_address("127.0.0.1:7001").unwrap();
    two.set_draining().unwrap();
    let nodes = two.nodes().unwrap();
    let seen: Vec<_> = nodes.iter().map(|n| (n.owner.clone(), n.address.as_deref(), n.state)).collect();
    assert_eq!(
        seen,
        [(one.owner(), Some("127.0.0.1:7001"), NodeState::Live), (two.owner(), None, NodeState::Draining)]
    );
    drop(one);
    assert_eq!(two.nodes().unwrap().len(), 1, "a node that ends signs off");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: make postgres"]
async fn a_second_living_node_of_the_same_name_is_refused() {
    let home = PostgresHome::new();
    let one = open(&home.url(), "same");
    home.sql("UPDATE toolyard.nodes SET home = 'elsewhere'");
    let refused = try_open(&home.url(), "same").err().unwrap().to_string();
    assert!(refused.contains("node.name"), "{refused}");
    // A serving process of the same home takes the place of the one before.
    home.sql("UPDATE toolyard.nodes SET home = 'same'");
    let again = open(&home.url(), "same");
    assert!(!again.is_alive(&one.owner()).unwrap() && again.epoch() > one.epoch());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: make postgres"]
async fn a_node_that_was_fenced_dispatches_nothing() {
    let home = PostgresHome::new();
    let (zombie, heir) = (open(&home.url(), "zombie"), open(&home.url(), "heir"));
    let run = begin(&zombie).await;
    assert!(zombie.may_dispatch().is_ok());
    heir.fence(&zombie.owner()).unwrap();
    // Its next beat notices; until then the lease is what keeps others from working on its runs.
    let started = Instant::now();
    while zombie.left_behind(1) != Err(StoreError::Fenced(zombie.owner())) {
        assert!(started.elapsed() < PATIENCE, "it never noticed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    while zombie.may_dispatch() != Err(StoreError::Fenced(zombie.owner())) {
        assert!(started.elapsed() < PATIENCE, "its lease never ran out");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(heir.left_behind(10).unwrap()[0].row.run_id, run);
}

/// A crash of the server: nothing acknowledged is lost, what was under way is settled by the heads, the store goes on by
/// itself, and nobody is fenced although nobody could renew a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: make postgres"]
async fn a_crash_of_the_server_poisons_nothing() {
    let mut server = Server::start();
    let url = server.url(&server.database());
    let (one, two) = (std::sync::Arc::new(open(&url, "one")), open(&url, "two"));
    for _ in 0..3 {
        let run = begin(&*one).await;
        let writing = tokio::spawn({
            let one = one.clone();
            async move {
                for seq in 2..=400_u64 {
                    let position = one.append(batch(&*one, run, seq..=seq, Sync)).unwrap();
                    // On this thread, and on the store's own.
                    match seq % 2 {
                        0 => one.durable(position).await.unwrap(),
                        _ => one.durable_here(position).await.unwrap(),
                    }
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(150)).await;
        tokio::task::block_in_place(|| {
            server.kill();
            // Longer than a node's time to live.
            std::thread::sleep(Duration::from_millis(3500));
        });
        assert!(one.writable().is_err(), "a server that is away is reported");
        tokio::task::block_in_place(|| server.restart());
        tokio::time::timeout(PATIENCE, writing).await.unwrap().unwrap();
        let seqs: Vec<u64> = frames_of(&*one, run, 0).iter().map(|frame| frame.seq).collect();
        assert!(seqs == (1..=400).collect::<Vec<_>>());
        assert!(two.is_alive(&one.owner()).unwrap(), "nobody was fenced");
        assert!(two.left_behind(10).unwrap().is_empty());
        // The next beat renews the lease.
        let renewed = async {
            while one.writable().is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, renewed).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: make postgres"]
async fn frames_lie_in_the_partition_of_their_month() {
    let home = PostgresHome::new();
    let store = home.open();
    begin(&store).await;
    let tables = home.sql("SELECT tableoid::regclass FROM toolyard.frames");
    assert!(tables.contains("frames_2"), "{tables}");
    assert_eq!(home.sql("SELECT count(*) FROM pg_inherits WHERE inhparent = 'toolyard.frames'::regclass").trim(), "4");
}

/// How many of the group commits of a database wait for a lock.
const WAITS_FOR_LOCK: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND wait_event_type = 'Lock' AND query LIKE 'WITH me AS MATERIALIZED%'";

/// Records whose callers commit them on their own threads.
async fn step(store: &impl Store, run: toolyard_protocol::RunId, seq: u64) -> Result<(), StoreError> {
    let position = store.append(batch(store, run, seq..=seq, Sync))?;
    store.durable_here(position).await
}

/// A pooler gives every transaction another connection: a name would mean another client's statement there, or none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL and PgBouncer: make postgres"]
async fn statements_have_names_only_where_no_pooler_is_in_between() {
    let last = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND query LIKE 'WITH me AS MATERIALIZED%'";
    let (direct, pooled) = (PostgresHome::new(), PooledHome::new());
    let (one, two) = (direct.open(), pooled.open());
    let (of_one, of_two) = (begin(&one).await, begin(&two).await);
    for seq in 2..=20 {
        step(&one, of_one, seq).await.unwrap();
        step(&two, of_two, seq).await.unwrap();
    }
    assert_eq!(frames_of(&one, of_one, 0).len(), 20);
    assert_eq!(frames_of(&two, of_two, 0).len(), 20);
    assert_eq!(direct.sql(last).trim(), "1", "the direct connection used its named statement");
    assert_eq!(pooled.sql(last).trim(), "0", "the pooled one did not");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: make postgres"]
async fn a_commit_on_the_callers_thread_meets_the_fence() {
    let home = PostgresHome::new();
    let (zombie, heir) = (open(&home.url(), "zombie"), open(&home.url(), "heir"));
    let run = begin(&zombie).await;
    step(&zombie, run, 2).await.unwrap();
    heir.fence(&zombie.owner()).unwrap();
    assert_eq!(step(&zombie, run, 3).await, Err(StoreError::Fenced(zombie.owner())));
    assert_eq!(frames_of(&heir, run, 0).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: make postgres"]
async fn a_slow_commit_is_taken_over_from_its_callers_thread() {
    let home = PostgresHome::new();
    let store = std::sync::Arc::new(open(&home.url(), "one"));
    let run = begin(&*store).await;
    step(&*store, run, 2).await.unwrap();
    for seq in [3, 5] {
        let locked = std::thread::spawn({
            let home = PostgresHome { database: home.database.clone() };
            move || home.sql("BEGIN; SELECT FROM toolyard.nodes FOR UPDATE; SELECT pg_sleep(1); COMMIT")
        });
        let is_locked = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND wait_event = 'PgSleep'
            AND datname = current_database()";
        while home.sql(is_locked).trim() != "1" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { step(&*store, run, seq).await }
        });
        // The next record is queued behind it.
        while !home.sql(WAITS_FOR_LOCK).trim().starts_with('1') {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let next = store.append(batch(&*store, run, seq + 1..=seq + 1, Sync));
        tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();
        store.durable(next.unwrap()).await.unwrap();
        locked.join().unwrap();
    }
    let seqs: Vec<u64> = frames_of(&*store, run, 0).iter().map(|frame| frame.seq).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6]);
}

/// A commit under way learns at once that its server is gone, and does not wait for an answer that cannot come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: make postgres"]
async fn a_server_that_dies_during_a_commit_is_reported() {
    let server = Server::start();
    let database = server.database();
    let one = std::sync::Arc::new(open(&server.url(&database), "one"));
    let run = begin(&*one).await;
    let server = std::sync::Arc::new(server);
    let locking = std::thread::spawn({
        let (server, database) = (server.clone(), database.clone());
        move || server.try_sql(&database, "BEGIN; SELECT FROM toolyard.nodes FOR UPDATE; SELECT pg_sleep(60)")
    });
    let waiting = tokio::spawn({
        let one = one.clone();
        async move {
            for seq in 2..=100 {
                step(&*one, run, seq).await?;
            }
            Ok::<(), StoreError>(())
        }
    });
    while !server.sql(&database, WAITS_FOR_LOCK).trim().starts_with('1') {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::task::block_in_place(|| server.kill());
    let is_reported = async {
        while !one.writable().is_err_and(|error| error.to_string().contains("could not be reached")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // Less than a statement may take.
    tokio::time::timeout(Duration::from_secs(6), is_reported).await.unwrap();
    assert!(!locking.join().unwrap(), "the lock was held until the server died");
    waiting.abort();
}
