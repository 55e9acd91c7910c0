//! Watched sources: changes in the source are imported.

use crate::place::Store;
use bytes::Bytes;
use serde_json::{Value, json};
use std::path::Path;
use toolyard_context::store::{
    resources::{Imported, NewResource},
    uri::Identity,
};

async fn watch(store: &Store, path: &Path, new: NewResource) -> Imported {
    let (context, path) = (store.context.clone(), path.display().to_string());
    tokio::task::spawn_blocking(move || {
        let who = Identity::default();
        let account = context.account(&who).unwrap();
        let new = NewResource { path: Some(path), describe: true, host_paths: true, watch_minutes: Some(1.0), ..new };
        context.import(&account, &who, &new).unwrap()
    })
    .await
    .unwrap()
}

/// Makes all watches due, by setting their last run to the past.
fn let_time_pass(store: &Store) {
    let file = store.dir.path().join("context/default/resources/.watch_tasks.json");
    let mut all: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    for watch in all.as_array_mut().unwrap() {
        watch["last_run"] = "2020-01-01T00:00:00Z".into();
    }
    std::fs::write(&file, all.to_string()).unwrap();
}

async fn look(store: &Store) {
    let context = store.context.clone();
    tokio::task::spawn_blocking(move || context.run_watches()).await.unwrap();
}

async fn read(store: &Store, uri: &str) -> (u16, String) {
    let (status, told) = store.get(&format!("/api/v1/content/read?uri={uri}")).await;
    (status, told["result"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_folder_is_followed_with_what_was_asked_of_it() {
    let store = Store::new();
    let docs = tempfile::tempdir().unwrap();
    let docs = docs.path().join("docs");
    std::fs::create_dir(&docs).unwrap();
    std::fs::write(docs.join("a.md"), "# A\n\nThe first zebra.\n").unwrap();
    std::fs::write(docs.join("b.md"), "# B\n\nWill go.\n").unwrap();
    std::fs::write(docs.join("secret.md"), "# S\n\nNot for here.\n").unwrap();
    let new = NewResource {
        exclude: vec!["secret*".to_owned()],
        tags: vec!["env=test".to_owned()],
        ..NewResource::default()
    };
    let made = watch(&store, &docs, new).await;
    assert_eq!(made.root.to_string(), "viking://resources/docs");
    assert_eq!(read(&store, "viking://resources/docs/secret/secret.md").await.0, 404);

    std::fs::write(docs.join("a.md"), "# A\n\nThe second zebra.\n").unwrap();
    std::fs::remove_file(docs.join("b.md")).unwrap();
    std::fs::write(docs.join("c.md"), "# C\n\nA new giraffe.\n").unwrap();
    look(&store).await;
    assert!(read(&store, "viking://resources/docs/a/a.md").await.1.contains("first"), "its time has not come");
    let_time_pass(&store);
    // Also after a restart, before any request.
    let store = store.reopened();
    look(&store).await;
    assert!(read(&store, "viking://resources/docs/a/a.md").await.1.contains("second zebra"));
    assert_eq!(read(&store, "viking://resources/docs/b/b.md").await.0, 404);
    assert_eq!(read(&store, "viking://resources/docs/secret/secret.md").await.0, 404, "what was left out stays out");
    let found =
        store.post("/api/v1/search/find", json!({"query": "new giraffe", "tags": ["env=test"], "level": 2})).await.1;
    assert_eq!(found["result"]["resources"][0]["uri"], "viking://resources/docs/c/c.md", "{found}");
    let gone = store.post("/api/v1/search/find", json!({"query": "first zebra will go", "level": 2})).await.1;
    assert!(!gone.to_string().contains("first zebra"), "{gone}");
    assert!(store.get("/api/v1/content/overview?uri=viking://resources/docs").await.1.to_string().contains("giraffe"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_file_is_triggered_paused_and_let_go() {
    let store = Store::new();
    let docs = tempfile::tempdir().unwrap();
    let file = docs.path().join("note.md");
    std::fs::write(&file, "# Note\n\nOne.\n").unwrap();
    let made = watch(&store, &file, NewResource::default()).await;
    let id = made.watch.unwrap().task_id;
    let uri = "viking://resources/note/note.md";
    std::fs::write(&file, "# Note\n\nTwo.\n").unwrap();
    assert_eq!(store.post(&format!("/api/v1/watches/{id}/trigger"), json!({})).await.0, 200);
    assert!(read(&store, uri).await.1.contains("Two."));
    let patch = |body: Value| store.request("PATCH", "/api/v1/watches", Bytes::from(body.to_string()), &[]);
    let told = patch(json!({"to_uri": "viking://resources/note", "is_active": false, "watch_interval": 30})).await.1;
    assert_eq!(
        (&told["result"]["is_active"], &told["result"]["interval_minutes"]),
        (&json!(false), &json!(30.0)),
        "{told}"
    );
    std::fs::write(&file, "# Note\n\nThree.\n").unwrap();
    let_time_pass(&store);
    look(&store).await;
    assert!(read(&store, uri).await.1.contains("Two."), "a paused watch is not looked at");
    patch(json!({"to_uri": "viking://resources/note", "is_active": true})).await;
    look(&store).await;
    assert!(read(&store, uri).await.1.contains("Three."));
    // A missing source is reported in the status and removes nothing.
    std::fs::remove_file(&file).unwrap();
    let_time_pass(&store);
    look(&store).await;
    let told = store.get(&format!("/api/v1/watches/{id}")).await.1;
    assert_ne!(told["result"]["last_status"], "ok", "{told}");
    assert!(read(&store, uri).await.1.contains("Three."));
    let gone = store.request("DELETE", "/api/v1/watches?to_uri=viking://resources/note", Bytes::new(), &[]).await;
    assert_eq!(gone.0, 200, "{}", gone.1);
    assert_eq!(store.get("/api/v1/watches").await.1["result"]["watches"], json!([]));
}
