//! Helpers of the suite: a home for each implementation, data to store, and child processes to kill.

pub mod postgres;

use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    ops::{ControlFlow, RangeInclusive},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Barrier},
    time::Duration,
};
use toolyard_engine::{
    Store,
    memory_store::MemoryStore,
    store::{Batch, Durability, Frame, LedgerEntry, Position, RunKind, RunRow, StoreError},
};
use toolyard_protocol::{RunId, RunStatus};
use toolyard_store::{SqliteStore, StoreOptions};
use uuid::Uuid;

/// Frames in each batch of a child that will be killed.
pub const CHILD_BATCH: u64 = 3;
/// Races run between children.
pub const CHILD_RACES: u64 = 25;

/// Where a store lives, however often it is opened.
pub trait Home: Sized {
    type Store: Store;
    const NAME: &'static str;
    fn new() -> Self;
    fn open(&self) -> Self::Store;
    /// What a child process needs to open the same store.
    fn address(&self) -> PathBuf;
}

pub struct MemoryHome(MemoryStore);

impl Home for MemoryHome {
    type Store = MemoryStore;
    const NAME: &'static str = "memory";
    fn new() -> Self {
        Self(MemoryStore::new())
    }
    fn open(&self) -> MemoryStore {
        self.0.another()
    }
    fn address(&self) -> PathBuf {
        PathBuf::new()
    }
}

pub struct SqliteHome(pub tempfile::TempDir);

impl Home for SqliteHome {
    type Store = SqliteStore;
    const NAME: &'static str = "sqlite";
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn open(&self) -> SqliteStore {
        SqliteStore::open(self.0.path(), StoreOptions::default()).unwrap()
    }
    fn address(&self) -> PathBuf {
        self.0.path().to_owned()
    }
}

fn open_in_child(name: &str, address: &Path) -> Arc<dyn Store> {
    match name {
        SqliteHome::NAME => Arc::new(SqliteStore::open(address, StoreOptions::default()).unwrap()),
        postgres::PostgresHome::NAME | postgres::PooledHome::NAME => {
            Arc::new(postgres::open(address.to_str().unwrap(), &format!("child-{}", std::process::id())))
        }
        other => panic!("no store called {other:?} outlives its process"),
    }
}

pub fn new_run() -> RunId {
    RunId::from_uuid(Uuid::now_v7())
}

/// A run id that sorts by a number.
pub fn run_at(n: u64) -> RunId {
    RunId::from_uuid(Uuid::from_u128(u128::from(n) << 64 | 1))
}

/// Bytes that do not compress.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

pub fn frame(seq: u64, kind: u8, payload: Vec<u8>) -> Frame {
    let chain = Sha256::digest([seq.to_be_bytes().as_slice(), &payload].concat()).into();
    Frame { seq, kind, payload, chain }
}

pub fn batch_of(store: &(impl Store + ?Sized), run_id: RunId, frames: Vec<Frame>, durability: Durability) -> Batch {
    Batch { run_id, frames, blobs: Vec::new(), row: None, epoch: store.epoch(), release: false, durability }
}

pub fn batch(store: &(impl Store + ?Sized), run_id: RunId, seqs: RangeInclusive<u64>, durability: Durability) -> Batch {
    let frames = seqs.map(|seq| frame(seq, 1, format!("{{\"run\":\"{run_id}\",\"seq\":{seq}}}").into_bytes()));
    batch_of(store, run_id, frames.collect(), durability)
}

pub fn row(run_id: RunId) -> RunRow {
    RunRow {
        run_id,
        kind: RunKind::Plan,
        status: RunStatus::Running,
        title: "Tidy the notes".into(),
        session: None,
        started_at: "2026-11-15T00:00:00.000000001Z".parse().unwrap(),
        ended_at: None,
    }
}

pub fn frames_of(store: &(impl Store + ?Sized), run_id: RunId, from: u64) -> Vec<Frame> {
    let mut frames = Vec::new();
    store
        .frames(run_id, from, &mut |frame| {
            frames.push(frame);
            ControlFlow::Continue(())
        })
        .unwrap();
    frames
}

/// The result of a batch: a store may refuse it when it is appended or when a caller waits for it.
pub async fn outcome(store: &impl Store, appended: Result<Position, StoreError>) -> Result<(), StoreError> {
    store.durable(appended?).await
}

/// The next link of a chain.
pub fn link(last: Option<&LedgerEntry>, payload: Vec<u8>) -> Result<(Vec<u8>, [u8; 32]), StoreError> {
    let before = last.map_or([0; 32], |entry| entry.chain);
    let chain = Sha256::digest([before.as_slice(), &payload].concat()).into();
    Ok((payload, chain))
}

pub fn check_chain(entries: &[LedgerEntry]) {
    let mut last: Option<&LedgerEntry> = None;
    for entry in entries {
        assert_eq!(entry.seq, last.map_or(1, |last| last.seq + 1));
        assert_eq!(entry.chain, link(last, entry.payload.clone()).unwrap().1, "the chain forked at {}", entry.seq);
        last = Some(entry);
    }
}

/// What a child says: this run is durable up to this frame (or, in a race, this prize is won).
pub type Acknowledged = Vec<(RunId, u64)>;

pub fn last_of_each(acknowledged: &[(RunId, u64)]) -> Vec<(RunId, u64)> {
    let mut last = BTreeMap::new();
    for (run, seq) in acknowledged {
        let entry = last.entry(*run).or_insert(0);
        *entry = (*seq).max(*entry);
    }
    last.into_iter().collect()
}

fn command<H: Home>(home: &H, task: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    child_environment(&mut command, home, task);
    command.args(CHILD_ARGUMENTS);
    command
}

/// How long an event may take on a busy machine. An event that never happens fails the test after this time.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const CHILD_ARGUMENTS: [&str; 4] = ["--exact", "child", "--ignored", "--nocapture"];

pub fn child_environment<H: Home>(command: &mut Command, home: &H, task: &str) {
    command.env("CHILD_STORE", H::NAME).env("CHILD_ADDRESS", home.address()).env("CHILD_TASK", task);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
}

/// Starts this very program as a child with a task.
pub fn spawn<H: Home>(home: &H, task: &str) -> Child {
    command(home, task).spawn().unwrap()
}

/// Waits until a child has ended, and returns its acknowledgements.
pub fn finish(mut child: Child) -> Acknowledged {
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let acknowledged = said.filter_map(|line| parse(&line)).collect();
    assert!(child.wait().unwrap().success());
    acknowledged
}

/// Starts a child, kills it some time after enough acknowledgements, and returns those that it had made.
pub fn run_and_kill<H: Home>(home: &H, task: &str, after: Duration, enough: usize) -> Acknowledged {
    let mut child = spawn(home, task);
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut acknowledged: Acknowledged = said.by_ref().filter_map(|line| parse(&line)).take(enough).collect();
    std::thread::sleep(after);
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "the child ended by itself");
    acknowledged.extend(said.filter_map(|line| parse(&line)));
    acknowledged
}

fn parse(line: &str) -> Option<(RunId, u64)> {
    let (run, seq) = line.strip_prefix("ack ")?.split_once(' ')?;
    Some((RunId::parse(run).ok()?, seq.parse().ok()?))
}

/// One write, so that lines of several tasks do not mix, and flushed, so that a kill loses nothing that was said.
fn acknowledge(run: RunId, seq: u64) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("ack {run} {seq}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// What a child does.
pub fn child() {
    let name = std::env::var("CHILD_STORE").unwrap();
    let address = PathBuf::from(std::env::var_os("CHILD_ADDRESS").unwrap());
    let task = std::env::var("CHILD_TASK").unwrap();
    let store = open_in_child(&name, &address);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // The harness has begun a line of its own.
    println!();
    match task.as_str() {
        "append" => runtime.block_on(append_until_killed(store)),
        "ride" => {
            let run = new_run();
            store.append(batch(&*store, run, 1..=1, Durability::Deferred)).unwrap();
            acknowledge(run, 1);
            // Nothing else may make it durable: the parent kills 100 ms after it has heard of it.
            std::thread::sleep(Duration::from_secs(30));
        }
        "batches" => {
            let run = new_run();
            for seq in 1..=100 {
                let position = store.append(batch(&*store, run, seq..=seq, Durability::Sync)).unwrap();
                runtime.block_on(store.durable(position)).unwrap();
            }
            acknowledge(run, 100);
        }
        "ledger" => {
            for n in 0..40 {
                let payload = format!("{} {n}", std::process::id()).into_bytes();
                store.ledger_append(&mut |last| link(last, payload.clone())).unwrap();
            }
        }
        "race" => {
            for n in 0..CHILD_RACES {
                let run = run_at(n);
                if store.claim(run, None).unwrap() {
                    acknowledge(run, 1);
                }
                if store.put_if_absent("race", &n.to_string(), vec![1], None).unwrap().is_none() {
                    acknowledge(run, 2);
                }
            }
        }
        "fill" => runtime.block_on(fill_until_refused(store)),
        other => panic!("no task {other:?}"),
    }
}

async fn append_until_killed(store: Arc<dyn Store>) {
    let mut tasks = Vec::new();
    for n in 0..4 {
        let store = Arc::clone(&store);
        tasks.push(tokio::spawn(async move {
            let run = new_run();
            let mut seq = 0;
            // Long before this the parent has killed it.
            while seq < 1_000_000 {
                // Some ride and are made durable by the one after them.
                let durability = if n % 2 == 0 { Durability::Sync } else { Durability::Deferred };
                let mut batch = batch(&*store, run, seq + 1..=seq + CHILD_BATCH, durability);
                batch.row = Some(row(run));
                let position = store.append(batch).unwrap();
                seq += CHILD_BATCH;
                if n % 2 == 0 || seq % (4 * CHILD_BATCH) == 0 {
                    store.durable(position).await.unwrap();
                    acknowledge(run, seq);
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// Appends until the disk refuses, then makes sure that the store takes nothing while there is no room (promise 6).
async fn fill_until_refused(store: Arc<dyn Store>) {
    let run = new_run();
    let mut seq = 0;
    store.writable().unwrap();
    let error = loop {
        let frames = vec![frame(seq + 1, 1, noise(20_000, seq))];
        let mut next = batch_of(&*store, run, frames, Durability::Sync);
        next.row = (seq == 0).then(|| row(run));
        let appended = store.append(next);
        let outcome = match appended {
            Ok(position) => store.durable(position).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => seq += 1,
            Err(error) => break error,
        }
        acknowledge(run, seq);
        assert!(seq < 100_000, "the disk never filled");
    };
    assert!(store.append(batch(&*store, run, seq + 1..=seq + 1, Durability::Sync)).is_err(), "{error}");
    assert!(store.append(batch(&*store, new_run(), 1..=1, Durability::Deferred)).is_err());
    assert!(store.writable().is_err(), "whoever asks is told so without trying");
    assert!(store.put("s", "k", vec![1], None).is_err());
    assert!(store.put_if_absent("s", "k", vec![1], None).is_err());
    assert!(store.claim(run, None).is_err());
    assert!(store.ledger_append(&mut |last| link(last, vec![1])).is_err());
    assert!(store.settle().is_err());
    assert_eq!(store.get("s", "k").unwrap(), None);
    // What the journal holds comes to the database with the next start; the parent looks. The one that was refused may have
    // come to the database before the disk said no elsewhere: nobody was promised it, and nobody is harmed by it.
    let read = frames_of(&*store, run, 0).len() as u64;
    assert!((1..=seq + 1).contains(&read), "reading goes on: {read} of {seq}");
}

/// Starts several threads at the same moment.
pub fn race<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
    runners: u64,
    runner: impl Fn(u64) -> F,
) -> Vec<(u64, T)> {
    let barrier = Arc::new(Barrier::new(runners as usize));
    let threads: Vec<_> = (0..runners)
        .map(|n| {
            let (run, barrier) = (runner(n), Arc::clone(&barrier));
            std::thread::spawn(move || {
                barrier.wait();
                (n, run())
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}
