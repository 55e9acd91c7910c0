//! Journals of killed processes, complete and damaged, and operations on a store that has them.

use crate::support::*;
use std::{os::unix::fs::FileExt, path::PathBuf, time::Duration};
use toolyard_engine::{
    Store,
    store::{Durability::*, RunFilter, RunRow},
};
use toolyard_protocol::RunStatus;
use toolyard_store::{SqliteStore, StoreOptions};

fn journal_of(home: &SqliteHome) -> PathBuf {
    let names = std::fs::read_dir(home.0.path()).unwrap().map(|entry| entry.unwrap().path());
    let mut journals = names.filter(|path| path.to_string_lossy().contains("toolyard.jnl-"));
    let journal = journals.next().unwrap();
    assert!(journals.next().is_none());
    journal
}

/// A store whose process was killed before its journal was moved into the database.
fn killed() -> SqliteHome {
    let home = SqliteHome::new();
    run_and_kill(&home, "append", Duration::from_millis(30), 30);
    home
}

#[test]
fn a_journal_that_cannot_be_read_stops_the_start_and_stays() {
    let home = killed();
    let journal = journal_of(&home);
    let whole = std::fs::read(&journal).unwrap();
    // A journal that cannot be read, because it is a directory.
    std::fs::remove_file(&journal).unwrap();
    std::fs::create_dir(&journal).unwrap();
    assert!(SqliteStore::open(home.0.path(), StoreOptions::default()).is_err());
    assert!(journal.exists(), "it is neither used nor removed");
    std::fs::remove_dir(&journal).unwrap();
    // A shortened file has lost data.
    std::fs::write(&journal, &whole[..whole.len() / 2]).unwrap();
    let error = SqliteStore::open(home.0.path(), StoreOptions::default()).err().unwrap().to_string();
    assert!(error.contains("damaged") && error.contains(&journal.display().to_string()), "{error}");
    assert!(SqliteStore::open_read_only(home.0.path()).is_err(), "looking does not hide it");
    assert_eq!(std::fs::metadata(&journal).unwrap().len(), whole.len() as u64 / 2, "it stays as it is");
    std::fs::write(&journal, &whole).unwrap();
    drop(home.open());
}

#[test]
fn nothing_of_ours_is_written_into_sqlites_files() {
    let home = SqliteHome::new();
    let store = home.open();
    let log = home.0.path().join("toolyard.db-wal");
    // SQLite's log begins with its magic number and is exactly as long as its frames.
    let bytes = std::fs::read(&log).unwrap();
    assert!(bytes.is_empty() || bytes[..3] == [0x37, 0x7f, 0x06]);
    assert_eq!(bytes.len().saturating_sub(32) % (24 + 4096), 0, "{} bytes", bytes.len());
    drop(store);
}

#[tokio::test]
async fn a_journal_whose_name_was_taken_away_acknowledges_nothing() {
    let home = SqliteHome::new();
    let store = home.open();
    let run = new_run();
    let mut first = batch(&store, run, 1..=1, Sync);
    first.row = Some(row(run));
    let position = store.append(first).unwrap();
    store.durable(position).await.unwrap();
    let journal = journal_of(&home);
    std::fs::rename(&journal, home.0.path().join("elsewhere")).unwrap();
    let appended = store.append(batch(&store, run, 2..=2, Sync));
    assert!(outcome(&store, appended).await.is_err(), "nobody would find it again");
}

#[tokio::test]
async fn ended_runs_and_what_only_they_used_can_be_removed() {
    let home = SqliteHome::new();
    let store = home.open();
    let (old, kept, open) = (new_run(), new_run(), new_run());
    let blob = |text: &str| toolyard_engine::Blob::new(text.repeat(1000).into_bytes());
    let large = toolyard_engine::Blob::new(noise(toolyard_store::limits::BLOB_FILE_BYTES + 1, 9));
    for (run, status, blobs) in [
        (old, RunStatus::Finished, vec![blob("old"), blob("shared"), large.clone()]),
        (kept, RunStatus::Failed, vec![blob("shared")]),
        (open, RunStatus::Running, vec![blob("open")]),
    ] {
        let names: Vec<_> = blobs.iter().map(|blob| blob.sha256.clone()).collect();
        let payload = serde_json::to_vec(&serde_json::json!({"blobs": names})).unwrap();
        let mut whole = batch_of(&store, run, vec![frame(1, 1, payload)], Sync);
        whole.row = Some(RunRow { status, ..row(run) });
        whole.blobs = blobs;
        let position = store.append(whole).unwrap();
        store.durable(position).await.unwrap();
    }
    assert_eq!(store.remove_runs(&[old, open, new_run()]).unwrap(), 1, "a run that has not ended stays");
    assert_eq!(store.run(old).unwrap(), None);
    assert!(frames_of(&store, old, 0).is_empty());
    assert_eq!(store.runs(&RunFilter::default()).unwrap().len(), 2);
    let removed = store.remove_unused_blobs(&[blob("policy").sha256]).unwrap();
    assert_eq!(removed.blobs, 2);
    assert_eq!(store.blob(&blob("old").sha256).unwrap(), None);
    assert_eq!(store.blob(&large.sha256).unwrap(), None);
    assert!(store.blob(&blob("shared").sha256).unwrap().is_some());
    assert!(store.blob(&blob("open").sha256).unwrap().is_some());
    let shelves = std::fs::read_dir(home.0.path().join("blobs")).unwrap();
    assert_eq!(shelves.flat_map(|shelf| std::fs::read_dir(shelf.unwrap().path()).unwrap()).count(), 0);
    assert!(store.check().unwrap().ok);
    assert!(store.used_bytes().unwrap().unwrap() > 0);
}

#[tokio::test]
async fn a_copy_made_while_the_store_is_used_is_a_store() {
    let home = SqliteHome::new();
    let store = std::sync::Arc::new(home.open());
    let large = toolyard_engine::Blob::new(noise(toolyard_store::limits::BLOB_FILE_BYTES + 1, 4));
    let run = new_run();
    let mut first = batch(&*store, run, 1..=1, Sync);
    first.row = Some(row(run));
    first.blobs = vec![large.clone()];
    let position = store.append(first).unwrap();
    store.durable(position).await.unwrap();
    let writing = {
        let store = store.clone();
        tokio::spawn(async move {
            for seq in 2..=300 {
                let position = store.append(batch(&*store, run, seq..=seq, Sync)).unwrap();
                store.durable(position).await.unwrap();
            }
        })
    };
    let copy = SqliteHome::new();
    let target = copy.0.path().join("copy");
    let before = store.head(run).unwrap().unwrap().seq;
    let copied = {
        let (store, target) = (store.clone(), target.clone());
        tokio::task::spawn_blocking(move || store.copy_to(&target)).await.unwrap().unwrap()
    };
    writing.await.unwrap();
    assert_eq!((copied.blob_files, copied.blob_bytes), (1, large.bytes.len() as u64));
    let restored = SqliteStore::open(&target, StoreOptions::default()).unwrap();
    let seqs: Vec<u64> = frames_of(&restored, run, 0).iter().map(|frame| frame.seq).collect();
    assert!(seqs.len() as u64 >= before, "what was acknowledged before is in it");
    assert!(seqs.iter().copied().eq(1..=seqs.len() as u64));
    assert_eq!(restored.blob(&large.sha256).unwrap().as_deref(), Some(&*large.bytes));
    assert!(restored.check().unwrap().ok);
    assert_eq!(restored.left_behind(10).unwrap().len(), 1, "its process is not here");
    assert!(store.copy_to(&target).is_err(), "a copy is never written over another");
}

#[test]
fn a_check_names_what_is_damaged() {
    let home = SqliteHome::new();
    let store = home.open();
    store.append(batch_of(&store, new_run(), vec![frame(1, 1, b"{\"kind\":\"call\"}".repeat(20))], Deferred)).unwrap();
    store.settle().unwrap();
    assert!(store.check().unwrap().ok);
    let db = rusqlite::Connection::open(home.0.path().join("toolyard.db")).unwrap();
    db.execute("UPDATE frames SET payload = x'0102'", []).unwrap();
    db.execute("INSERT INTO frames (id, kind, payload, chain) VALUES (99 << 32, 1, x'', zeroblob(32))", []).unwrap();
    let journal = std::fs::OpenOptions::new().write(true).open(journal_of(&home)).unwrap();
    journal.write_all_at(b"X", 3).unwrap();
    let checked = store.check().unwrap();
    assert_eq!((checked.ok, checked.problem_count), (false, 3), "{checked:?}");
}
