//! A running server finds and indexes changes automatically.

use crate::support::{Lab, Trigrams, eventually};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use toolyard_knowledge::KnowledgeConfig;

fn quick() -> KnowledgeConfig {
    let mut config = KnowledgeConfig::default();
    config.indexing.debounce_ms = 20;
    config.indexing.window_ms = 200;
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_note_is_found_soon() {
    let lab = Lab::with(quick(), Some(Arc::new(Trigrams(32))));
    lab.note("a.md", "the blue bicycle");
    lab.index("full").await;
    let stop = CancellationToken::new();
    let serving = tokio::spawn(toolyard_knowledge::serve(lab.knowledge.clone(), stop.clone()));
    eventually("the watcher is there and sees a new note", || async {
        // The note is written repeatedly until the watcher is running; after that one write is enough.
        lab.note("new/b.md", "a yellow submarine");
        lab.found("yellow submarine").await.first().is_some_and(|f| f == "new/b.md")
    })
    .await;
    lab.note("a.md", "an orange tractor");
    eventually("a changed note is found", || async {
        lab.found("orange tractor").await.first().is_some_and(|f| f == "a.md")
    })
    .await;
    std::fs::remove_dir_all(lab.path("new")).unwrap();
    eventually("a removed folder is gone", || async {
        !lab.found("yellow submarine").await.contains(&"new/b.md".to_owned())
    })
    .await;
    // A folder name may look like a file with an extension, and the event contains only the folder's own name.
    let elsewhere = lab.dir.path().join("elsewhere.v1");
    crate::support::write(&elsewhere.join("c.md"), b"a purple zeppelin");
    std::fs::rename(&elsewhere, lab.path("2024.05")).unwrap();
    eventually("a folder moved in is found", || async {
        lab.found("purple zeppelin").await.first().is_some_and(|f| f == "2024.05/c.md")
    })
    .await;
    std::fs::rename(lab.path("2024.05"), lab.path("2024.06")).unwrap();
    eventually("a renamed folder is found", || async {
        lab.found("purple zeppelin").await.first().is_some_and(|f| f == "2024.06/c.md")
    })
    .await;
    stop.cancel();
    serving.await.unwrap();
    lab.knowledge.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_index_is_made_by_itself() {
    let lab = Lab::with(quick(), Some(Arc::new(Trigrams(32))));
    lab.note("a.md", "the blue bicycle");
    let stop = CancellationToken::new();
    let serving = tokio::spawn(toolyard_knowledge::serve(lab.knowledge.clone(), stop.clone()));
    eventually("the note is found", || async {
        lab.knowledge.library().await.is_ok() && lab.found("blue bicycle").await.first().is_some_and(|f| f == "a.md")
    })
    .await;
    stop.cancel();
    serving.await.unwrap();
    lab.knowledge.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_watching_and_without_notes_nothing_is_indexed_by_itself() {
    let mut still = quick();
    still.indexing.watch = false;
    for (config, has_note) in [(still, true), (quick(), false)] {
        let lab = Lab::with(config, Some(Arc::new(Trigrams(32))));
        if has_note {
            lab.note("a.md", "the blue bicycle");
        }
        let stop = CancellationToken::new();
        let serving = tokio::spawn(toolyard_knowledge::serve(lab.knowledge.clone(), stop.clone()));
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        assert!(lab.knowledge.library().await.is_err());
        assert!(lab.knowledge.jobs.record().last.is_none());
        stop.cancel();
        serving.await.unwrap();
    }
}
