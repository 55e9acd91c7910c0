//! Stores of earlier versions, in `tests/stores/`: each is opened and migrated, and keeps its content.

use crate::support::*;
use std::path::PathBuf;
use toolyard_engine::{
    Store,
    chain::{genesis, link},
    store::{Durability::*, RunFilter, RunKind},
};
use toolyard_protocol::RunStatus;
use toolyard_store::{SqliteStore, StoreOptions};

fn kept(name: &str) -> SqliteHome {
    let home = SqliteHome::new();
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/stores").join(name);
    std::fs::copy(&file, home.0.path().join("toolyard.db")).unwrap();
    home
}

fn version(home: &SqliteHome) -> i64 {
    let db = rusqlite::Connection::open(home.0.path().join("toolyard.db")).unwrap();
    db.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

/// Every frame's chain value follows from the one before it, over the payload as it is read.
fn assert_chains_hold(store: &SqliteStore) -> usize {
    let mut frames = 0;
    for row in store.runs(&RunFilter::default()).unwrap() {
        let mut chain = genesis(row.run_id);
        for frame in frames_of(store, row.run_id, 0) {
            chain = link(&chain, frame.seq, frame.kind, &frame.payload);
            assert_eq!(chain, frame.chain, "frame {} of {}", frame.seq, row.run_id);
            frames += 1;
        }
        assert_eq!(store.head(row.run_id).unwrap().map(|head| head.chain), Some(chain));
    }
    frames
}

#[tokio::test]
async fn a_store_of_version_2_becomes_one_of_this_version() {
    let home = kept("version-2.db");
    assert_eq!(version(&home), 2);
    let store = home.open();
    assert!(version(&home) > 2);
    let rows = store.runs(&RunFilter::default()).unwrap();
    let titles: Vec<_> = rows.iter().map(|row| (row.title.as_str(), row.kind, row.status)).collect();
    assert_eq!(
        titles,
        [
            ("vault.readFile", RunKind::Call, RunStatus::Failed),
            ("Look at every note and find the open tasks", RunKind::Plan, RunStatus::Finished),
            ("util.slugifyTitle", RunKind::Call, RunStatus::Finished),
            ("vault.readFile", RunKind::Call, RunStatus::Finished),
        ]
    );
    assert_eq!(rows[3].started_at, "2026-11-18T04:47:01.933256Z".parse().unwrap());
    assert_eq!(rows[3].ended_at, Some("2026-11-18T04:47:01.982274Z".parse().unwrap()));
    assert_eq!(assert_chains_hold(&store), 34);
    assert_eq!(store.ledger(1, 10).unwrap().len(), 4);
    assert!(store.left_behind(10).unwrap().is_empty());
    assert!(store.check().unwrap().ok);
    // It is used like any other.
    let position = store.append(batch(&store, new_run(), 1..=1, Sync)).unwrap();
    store.durable(position).await.unwrap();
}

#[test]
fn a_store_is_not_taken_from_an_older_version_that_did_not_end_cleanly() {
    let home = kept("version-2.db");
    let journal = home.0.path().join("toolyard.journal-0123");
    std::fs::write(&journal, [7; 4096]).unwrap();
    let error = SqliteStore::open(home.0.path(), StoreOptions::default()).err().unwrap().to_string();
    assert!(error.contains("toolyard.journal-0123") && error.contains("earlier version"), "{error}");
    assert_eq!(version(&home), 2, "nothing was changed");
    // The journal of a process that ended cleanly is empty and is removed.
    std::fs::write(&journal, [0; 4096]).unwrap();
    drop(home.open());
    assert!(!journal.exists());
}
