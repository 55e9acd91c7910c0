//! Every write, sync and rename of the index fails once, in three ways: a job that ended well is found by a search, also after
//! a restart; one that failed leaves the index as it was; the next job works.

use crate::fault_plan::plan;
use crate::support::{Lab, Trigrams};
use serde_json::json;
use std::sync::Arc;
use toolyard_faults::Failure;
use toolyard_knowledge::{FactStore, KnowledgeConfig, index::memory::MemoryIndex};

fn lab() -> Lab {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("vault")).unwrap();
    std::fs::create_dir(dir.path().join("index")).unwrap();
    let index = Arc::new(MemoryIndex::kept_in(&dir.path().join("index")));
    let lab = Lab::over(dir, index, KnowledgeConfig::default(), Some(Arc::new(Trigrams(64))), json!({}));
    lab.note("a.md", "the kettle is on the third shelf");
    lab
}

/// The same folders as another process sees them.
fn restarted(lab: Lab) -> Lab {
    let Lab { dir, index, knowledge, engine, .. } = lab;
    drop((index, knowledge, engine));
    let index = Arc::new(MemoryIndex::kept_in(&dir.path().join("index")));
    Lab::over(dir, index, KnowledgeConfig::default(), Some(Arc::new(Trigrams(64))), json!({}))
}

async fn finds(lab: &Lab, query: &str) -> Vec<String> {
    let answer = lab.search(query).await;
    answer["data"]["results"].as_array().map_or_else(Vec::new, |results| {
        results.iter().map(|result| result["source_file"].as_str().unwrap_or_default().to_owned()).collect()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_fails_once_the_index_is_as_before_or_as_wanted() {
    let honest = lab();
    honest.index("full").await;
    honest.note("b.md", "the lantern hangs beside the door");
    let counted = toolyard_faults::arm(&honest.dir.path().join("index"), None);
    honest.index("sync").await;
    let operations = counted.operations();
    drop(counted);
    assert!(operations >= 4, "{operations}");
    for (number, failure) in plan(operations) {
        let lab = lab();
        lab.index("full").await;
        lab.note("b.md", "the lantern hangs beside the door");
        let armed = toolyard_faults::arm(&lab.dir.path().join("index"), Some((number, failure)));
        let answer = lab.try_call("obsidian_rag_index", json!({"mode": "sync", "wait_ms": 20_000})).await;
        let Some(failed) = armed.failed() else { continue };
        drop(armed);
        let fault = format!("{failure:?} at operation {number}, {failed}");
        let is_done = answer.as_ref().is_ok_and(|answer| answer["data"]["state"] == "done");
        let lab = restarted(lab);
        assert!(finds(&lab, "kettle on the third shelf").await.contains(&"a.md".to_owned()), "{fault}: lost");
        if is_done {
            assert!(finds(&lab, "lantern beside the door").await.contains(&"b.md".to_owned()), "{fault}: not kept");
        }
        lab.index("sync").await;
        assert!(finds(&lab, "lantern beside the door").await.contains(&"b.md".to_owned()), "{fault}");
    }
}

#[test]
fn whatever_fails_once_a_fact_about_notes_is_kept_or_refused() {
    for failure in Failure::ALL {
        for number in 1..=2 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("facts.jsonl");
            let store = FactStore::new(path.clone());
            store.store("a", "1", "x.md").unwrap();
            let armed = toolyard_faults::arm(dir.path(), Some((number, failure)));
            let answer = store.store("b", "2", "x.md");
            let fault = format!("{failure:?} at operation {number}, {:?}", armed.failed());
            assert!(armed.failed().is_some(), "{fault}");
            drop(armed);
            assert!(answer.is_err(), "{fault}: a fact that is not durable was taken for stored");
            let again = FactStore::new(path);
            assert_eq!(again.history("a").unwrap().len(), 1, "{fault}");
            again.store("b", "3", "x.md").unwrap();
            assert_eq!(again.history("b").unwrap().last().unwrap().value, "3", "{fault}");
        }
    }
}
