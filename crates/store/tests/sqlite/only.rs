//! Tests of the SQLite store alone: read-only opening, limits, files, a full disk.

use crate::support::*;
use std::{
    process::{Command, Stdio},
    time::Instant,
};
use toolyard_engine::{Blob, Store, store::Durability::*};
use toolyard_store::{SqliteStore, StoreOptions, limits};

#[tokio::test]
async fn read_only_looks_and_changes_nothing() {
    let home = SqliteHome::new();
    let error = SqliteStore::open_read_only(home.0.path()).err().unwrap();
    assert!(error.to_string().contains("toolyard.db"), "{error}");
    assert_eq!(std::fs::read_dir(home.0.path()).unwrap().count(), 0, "looking created something");

    let run = new_run();
    let writer = home.open();
    writer.append(batch(&writer, run, 1..=5, Deferred)).unwrap();
    writer.put("s", "k", vec![1], None).unwrap();
    writer.settle().unwrap();
    for beside_a_writer in [true, false] {
        let store = SqliteStore::open_read_only(home.0.path()).unwrap();
        assert_eq!(frames_of(&store, run, 0).len(), 5);
        assert_eq!(store.get("s", "k").unwrap(), Some(vec![1]));
        store.settle().unwrap();
        let error = store.append(batch(&store, run, 6..=6, Deferred)).unwrap_err();
        assert!(error.to_string().contains("reading only"), "{error}");
        assert!(store.put("s", "k", vec![2], None).is_err());
        assert!(store.ledger_append(&mut |last| link(last, vec![1])).is_err());
        assert!(store.durable(Default::default()).await.is_err());
        if beside_a_writer {
            writer.append(batch(&writer, run, 6..=6, Deferred)).unwrap();
            writer.settle().unwrap();
            assert_eq!(frames_of(&store, run, 0).len(), 6, "it sees what is committed later");
            break;
        }
    }
    drop(writer);
    let store = SqliteStore::open_read_only(home.0.path()).unwrap();
    assert_eq!(frames_of(&store, run, 0).len(), 6);
}

#[test]
fn what_is_too_large_is_refused_with_a_number() {
    let home = SqliteHome::new();
    let store = home.open();
    let run = new_run();
    let huge = vec![frame(1, 1, vec![b' '; limits::MAX_FRAME_BYTES + 1])];
    let error = store.append(batch_of(&store, run, huge, Deferred)).unwrap_err();
    assert!(error.to_string().contains(&limits::MAX_FRAME_BYTES.to_string()), "{error}");
    assert!(store.append(batch(&store, run, 1..=1, Deferred)).is_err(), "the run has lost a batch");
    let far = limits::MAX_SEQ + 1;
    assert!(store.append(batch(&store, new_run(), far..=far, Deferred)).is_err());
    assert!(store.put("s", "k", vec![0; limits::MAX_FACT_BYTES + 1], None).is_err());
    assert!(store.put("s", &"k".repeat(limits::MAX_FACT_NAME_BYTES + 1), vec![], None).is_err());
    let mut forged = batch(&store, new_run(), 1..=1, Deferred);
    forged.blobs = vec![Blob { sha256: "../../../etc/passwd".into(), bytes: vec![1].into() }];
    assert!(store.append(forged).is_err());
    let last = limits::MAX_SEQ;
    let edge = new_run();
    store.append(batch(&store, edge, last..=last, Deferred)).unwrap();
    store.append(batch(&store, new_run(), 1..=1, Deferred)).unwrap();
    store.settle().unwrap();
    assert_eq!(frames_of(&store, edge, 0).len(), 1);
}

#[test]
fn a_full_queue_waits_and_loses_nothing() {
    let home = SqliteHome::new();
    let options = StoreOptions { queue_bytes: 10_000, ..Default::default() };
    let store = SqliteStore::open(home.0.path(), options).unwrap();
    let run = new_run();
    for seq in 1..=500 {
        // Every hundredth is larger than the whole queue.
        let size = if seq % 100 == 0 { 50_000 } else { 1000 };
        store.append(batch_of(&store, run, vec![frame(seq, 1, noise(size, seq))], Deferred)).unwrap();
    }
    store.settle().unwrap();
    assert_eq!(frames_of(&store, run, 0).len(), 500);
}

#[test]
fn damaged_blobs_are_not_handed_out() {
    let home = SqliteHome::new();
    let store = home.open();
    let blob = Blob::new(noise(limits::BLOB_FILE_BYTES + 1, 5));
    let mut with_blob = batch(&store, new_run(), 1..=1, Sync);
    with_blob.blobs = vec![blob.clone()];
    store.append(with_blob).unwrap();
    store.settle().unwrap();
    let file = home.0.path().join("blobs").join(&blob.sha256[..2]).join(&blob.sha256);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[77] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let error = store.blob(&blob.sha256).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    std::fs::remove_file(&file).unwrap();
    assert!(store.blob(&blob.sha256).is_err(), "lost is not the same as never there");
}

#[test]
fn expired_facts_leave_the_database() {
    let home = SqliteHome::new();
    let store = home.open();
    for n in 0..50 {
        store.put("s", &n.to_string(), vec![0; 100], Some(jiff::Timestamp::UNIX_EPOCH)).unwrap();
    }
    store.put("s", "kept", vec![1], None).unwrap();
    drop(store);
    let count = || -> i64 {
        let db = rusqlite::Connection::open(home.0.path().join("toolyard.db")).unwrap();
        db.query_row("SELECT count(*) FROM facts", [], |row| row.get(0)).unwrap()
    };
    let store = home.open();
    store.put("other", "k", vec![1], None).unwrap();
    store.settle().unwrap();
    assert_eq!(count(), 2);
}

/// Promise 4 with a real write failure: the child has a limit on the size of its files.
#[test]
fn after_a_failed_write_the_store_stays_shut() {
    let home = SqliteHome::new();
    // 12,288 blocks of 512 bytes. Without the trap the kernel would kill the child instead of refusing the write.
    let script = "trap '' XFSZ; ulimit -f 12288; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(std::env::current_exe().unwrap()).args(CHILD_ARGUMENTS);
    child_environment(&mut command, &home, "fill");
    let acknowledged = finish(command.stderr(Stdio::inherit()).spawn().unwrap());
    let (run, seq) = last_of_each(&acknowledged)[0];
    assert!(seq > 50, "only {seq} frames fitted in");
    let store = home.open();
    let seqs: Vec<u64> = frames_of(&store, run, 0).iter().map(|frame| frame.seq).collect();
    assert!(seqs.len() as u64 >= seq);
    assert!(seqs == (1..=seqs.len() as u64).collect::<Vec<_>>());
    // With free space again, a new process continues.
    assert!(store.claim(run, store.holder(run).unwrap().as_ref()).unwrap());
    let next = seqs.len() as u64 + 1;
    store.append(batch(&store, run, next..=next, Sync)).unwrap();
    store.settle().unwrap();
}

#[test]
fn the_log_stays_short() {
    let home = SqliteHome::new();
    let store = home.open();
    let run = new_run();
    let log = home.0.path().join("toolyard.db-wal");
    for seq in 1..=3000 {
        store.append(batch_of(&store, run, vec![frame(seq, 1, noise(20_000, seq))], Deferred)).unwrap();
    }
    store.settle().unwrap();
    let bytes = std::fs::metadata(&log).unwrap().len();
    assert!(bytes <= 16 << 20, "60 MB went through a log of {bytes} bytes");
    drop(store);
    // Everything is in the database itself after a clean end: a copy without the log is complete.
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(home.0.path().join("toolyard.db"), copy.path().join("toolyard.db")).unwrap();
    let store = SqliteStore::open_read_only(copy.path()).unwrap();
    assert_eq!(frames_of(&store, run, 0).len(), 3000);
}

#[test]
fn two_processes_may_create_the_store_at_once() {
    for _ in 0..3 {
        let home = SqliteHome::new();
        let children: Vec<_> = (0..3).map(|_| spawn(&home, "batches")).collect();
        let runs: Vec<_> = children.into_iter().flat_map(finish).collect();
        let store = home.open();
        assert_eq!(runs.len(), 3);
        assert!(runs.iter().all(|(run, _)| frames_of(&store, *run, 0).len() == 100));
    }
}

#[test]
fn opening_again_is_quick() {
    let home = SqliteHome::new();
    drop(home.open());
    let started = Instant::now();
    drop(home.open());
    // Nothing holds a lock that would have to time out.
    assert!(started.elapsed() < limits::BUSY_TIMEOUT);
}
