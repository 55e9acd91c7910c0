//! Every write, sync, rename, allocation and commit of the store and its journal fails once, in three ways. Whatever fails:
//! nothing that was acknowledged is lost, nothing is half there, and the store works when it is opened again.

use crate::{fault_plan::plan, support::*};
use std::{collections::BTreeMap, path::Path};
use toolyard_engine::{
    Blob, Store,
    store::{Durability::*, StoreError, Swap},
};
use toolyard_faults::Failure;
use toolyard_protocol::RunId;
use toolyard_store::{SqliteStore, StoreOptions};

/// Large enough for a file of its own.
fn large(n: u64) -> Blob {
    Blob::new(noise(toolyard_store::limits::BLOB_FILE_BYTES + 1, n))
}

/// What the store said was done.
#[derive(Default)]
struct Acknowledged {
    frames: BTreeMap<RunId, u64>,
    facts: BTreeMap<String, Vec<u8>>,
    blobs: Vec<String>,
    entries: usize,
}

/// What was tried, done or not.
struct Tried {
    done: Acknowledged,
    errors: Vec<StoreError>,
}

impl Tried {
    fn take<T>(&mut self, outcome: Result<T, StoreError>) -> Option<T> {
        outcome.map_err(|error| self.errors.push(error)).ok()
    }
}

/// Two runs, a large blob, facts and the ledger. Goes on after an error, as a program with other callers does.
async fn work(dir: &Path) -> Tried {
    let mut tried = Tried { done: Acknowledged::default(), errors: Vec::new() };
    let opened = SqliteStore::open(dir, StoreOptions::default());
    let Some(store) = tried.take(opened) else { return tried };
    for n in 0..2 {
        let run = run_at(n + 1);
        for seq in 1..=3 {
            let mut next = batch(&store, run, seq..=seq, if seq == 2 { Deferred } else { Sync });
            next.row = (seq == 1).then(|| row(run));
            next.blobs = if seq == 3 { vec![large(n)] } else { Vec::new() };
            let appended = store.append(next);
            if tried.take(outcome(&store, appended).await).is_some() {
                tried.done.frames.insert(run, seq);
                tried.done.blobs.extend((seq == 3).then(|| large(n).sha256));
            }
        }
        let (key, value) = (format!("put-{n}"), vec![n as u8 + 1]);
        let put = store.put("s", &key, value.clone(), None);
        if tried.take(outcome(&store, put).await).is_some() {
            tried.done.facts.insert(key, value);
        }
        let (key, value) = (format!("swap-{n}"), vec![n as u8 + 11]);
        let swap = store.compare_and_set("s", &key, None, Some((value.clone(), None)));
        if tried.take(swap) == Some(Swap::Done) {
            tried.done.facts.insert(key, value);
        }
        if tried.take(store.ledger_append(&mut |last| link(last, vec![n as u8]))).is_some() {
            tried.done.entries += 1;
        }
        tried.take(store.settle());
    }
    tried
}

/// Looks at the store without faults: everything acknowledged is there, whole, and it takes more.
async fn check(dir: &Path, tried: &Tried, fault: &str) {
    let store = SqliteStore::open(dir, StoreOptions::default()).unwrap_or_else(|e| panic!("{fault}: {e}"));
    for n in 0..2 {
        let run = run_at(n + 1);
        let seqs: Vec<u64> = frames_of(&store, run, 0).iter().map(|frame| frame.seq).collect();
        let acknowledged = tried.done.frames.get(&run).copied().unwrap_or(0);
        assert!(seqs.len() as u64 >= acknowledged, "{fault}: {acknowledged} acknowledged, {seqs:?} there");
        assert!(seqs.iter().copied().eq(1..=seqs.len() as u64), "{fault}: a hole in {seqs:?}");
        if seqs.len() == 3 {
            assert!(store.blob(&large(n).sha256).unwrap().is_some(), "{fault}: a record without its blob");
        }
    }
    for (key, value) in &tried.done.facts {
        assert_eq!(store.get("s", key).unwrap().as_ref(), Some(value), "{fault}: {key}");
    }
    for blob in &tried.done.blobs {
        assert!(store.blob(blob).unwrap().is_some(), "{fault}: blob {blob}");
    }
    let entries = store.ledger(1, 100).unwrap();
    assert!(entries.len() >= tried.done.entries, "{fault}: {} of {} entries", entries.len(), tried.done.entries);
    check_chain(&entries);
    let checked = store.check().unwrap();
    assert!(checked.ok, "{fault}: {checked:?}");
    let run = new_run();
    let mut next = batch(&store, run, 1..=1, Sync);
    next.row = Some(row(run));
    let appended = store.append(next);
    outcome(&store, appended).await.unwrap_or_else(|e| panic!("{fault}: the store does not work again: {e}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_fails_once_nothing_acknowledged_is_lost() {
    let honest = tempfile::tempdir().unwrap();
    let counted = toolyard_faults::arm(honest.path(), None);
    let tried = work(honest.path()).await;
    let operations = counted.operations();
    drop(counted);
    assert!(tried.errors.is_empty() && operations > 20, "{operations} operations, {:?}", tried.errors);
    check(honest.path(), &tried, "no fault").await;
    let (mut refused, mut faults) = (0, 0);
    for (number, failure) in plan(operations) {
        let dir = tempfile::tempdir().unwrap();
        let armed = toolyard_faults::arm(dir.path(), Some((number, failure)));
        let tried = tokio::time::timeout(PATIENCE, work(dir.path())).await;
        // Group commit makes the last few operations depend on time: one that did not come cannot fail.
        let Some(failed) = armed.failed() else { continue };
        drop(armed);
        let fault = format!("{failure:?} at operation {number}, {failed}");
        let tried = tried.unwrap_or_else(|_| panic!("{fault}: somebody waits for ever"));
        faults += 1;
        refused += u64::from(!tried.errors.is_empty());
        for error in &tried.errors {
            let failure = toolyard_protocol::Failure::from(error.clone());
            assert_eq!(failure.code, toolyard_protocol::ErrorCode::StoreUnavailable, "{fault}: {failure}");
        }
        check(dir.path(), &tried, &fault).await;
    }
    println!("{operations} operations, {faults} faults, {refused} of them refused something");
    assert!(refused > 0, "no fault was ever noticed");
}

/// A full disk that has room again: the same store goes on without being opened again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_found_no_room_once_does_not_stop_the_store() {
    let home = SqliteHome::new();
    let store = home.open();
    let first = store.put("s", "before", vec![1], None).unwrap();
    store.durable(first).await.unwrap();
    let armed = toolyard_faults::arm(home.0.path(), Some((1, Failure::NoSpace)));
    let refused = store.compare_and_set("s", "k", None, Some((vec![1], None)));
    assert!(matches!(refused, Err(StoreError::DiskFull(_))), "{refused:?}");
    assert!(armed.failed().is_some());
    drop(armed);
    let again = tokio::time::timeout(PATIENCE, async {
        loop {
            match store.compare_and_set("s", "k", None, Some((vec![2], None))) {
                Ok(swap) => return swap,
                Err(StoreError::DiskFull(_)) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                Err(other) => panic!("{other}"),
            }
        }
    });
    assert_eq!(again.await.unwrap(), Swap::Done);
    assert_eq!(store.get("s", "k").unwrap(), Some(vec![2]));
}
