//! An index counts as stale when the last sync is long ago and the vault has changed since, regardless of which tool
//! checks.

use crate::support::{Lab, code, files};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use toolyard_knowledge::indexer::{JobFile, JobRecord};

/// Sets the last sync to two hours ago.
fn age(lab: &Lab) {
    let file = JobFile::new(&lab.dir.path().join("index"));
    let last_sync = Some(Timestamp::now() - SignedDuration::from_hours(2));
    file.write(&JobRecord { last_sync, ..file.read() }).unwrap();
}

async fn indexed() -> Lab {
    let lab = Lab::new();
    lab.note("a.md", "the blue bicycle");
    lab.note("back\\slash.md", "a name that is no path");
    lab.index("full").await;
    lab
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_alone_sees_that_the_index_is_stale() {
    let lab = indexed().await;
    lab.note("later.md", "written after the last sync");
    assert_eq!(lab.search("bicycle").await["status"], "healthy", "not an hour ago");
    age(&lab);
    let answer = lab.search("bicycle").await;
    assert_eq!((answer["status"].as_str(), code(&answer)), (Some("degraded"), "INDEX_STALE"));
    assert_eq!(files(&answer), ["a.md"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_vault_is_never_stale_whatever_is_unreadable_in_it() {
    let lab = indexed().await;
    age(&lab);
    assert_eq!(code(&lab.search("bicycle").await), "none");
    assert_eq!(code(&lab.call("obsidian_rag_status", json!({})).await), "none");
}

/// A restored note is older than the last sync but still a change.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_note_that_was_put_back_makes_the_index_stale() {
    let lab = indexed().await;
    lab.note("a.md", "put back");
    let file = std::fs::File::options().write(true).open(lab.path("a.md")).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    age(&lab);
    assert_eq!(code(&lab.search("bicycle").await), "INDEX_STALE");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_rollback_the_last_sync_is_that_of_the_version() {
    let lab = indexed().await;
    let first = lab.knowledge.library().await.unwrap().info().completed_at;
    lab.note("a.md", "another telling");
    lab.index("sync").await;
    assert!(lab.knowledge.jobs.record().last_sync.unwrap() > first);
    lab.call("obsidian_rag_index", json!({"mode": "rollback"})).await;
    assert_eq!(lab.knowledge.jobs.record().last_sync, Some(first));
    let status = lab.call("obsidian_rag_status", json!({})).await;
    assert_eq!(status["data"]["last_sync"], first.to_string());
}

/// The index answers without its notes and reports that the vault is unavailable.
#[tokio::test(flavor = "multi_thread")]
async fn a_vault_that_is_gone_leaves_the_index_answering_degraded() {
    let lab = indexed().await;
    std::fs::rename(lab.dir.path().join("vault"), lab.dir.path().join("elsewhere")).unwrap();
    let answer = lab.search("bicycle").await;
    assert_eq!((answer["status"].as_str(), code(&answer)), (Some("degraded"), "VAULT_UNAVAILABLE"));
    assert_eq!(files(&answer), ["a.md"]);
}
