//! The files of a single machine in the store of a cluster and back, and pieces of files in a bucket.

use crate::place::{Store, session};
use serde_json::json;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use toolyard_context::{
    ContextConfig,
    store::shared::{PieceStore, SharedParts, from_shared, to_shared},
};
use toolyard_engine::{Store as _, memory_store::MemoryStore};

/// Size of the pieces into which files are cut.
const PIECE: usize = 64 << 10;

/// A bucket in memory, which fails after a number of writes if it is told to.
#[derive(Default)]
struct Pieces {
    kept: Mutex<BTreeMap<String, Vec<u8>>>,
    writes_left: Mutex<Option<usize>>,
}

impl Pieces {
    fn count(&self) -> usize {
        self.kept.lock().unwrap().len()
    }
}

impl PieceStore for Pieces {
    fn put(&self, account: &str, pieces: Vec<(String, Vec<u8>)>) -> Result<(), String> {
        for (hash, bytes) in pieces {
            let mut left = self.writes_left.lock().unwrap();
            if let Some(left) = left.as_mut() {
                *left = left.checked_sub(1).ok_or("the bucket is away")?;
            }
            self.kept.lock().unwrap().insert(format!("{account}/{hash}"), bytes);
        }
        Ok(())
    }

    fn get(&self, account: &str, sha256: &str) -> Result<Option<Vec<u8>>, String> {
        Ok(self.kept.lock().unwrap().get(&format!("{account}/{sha256}")).cloned())
    }

    fn hashes(&self, account: &str, after: &str, limit: usize) -> Result<Vec<String>, String> {
        let prefix = format!("{account}/");
        let kept = self.kept.lock().unwrap();
        let hashes = kept.keys().filter_map(|key| key.strip_prefix(&prefix)).filter(|hash| *hash > after);
        Ok(hashes.take(limit).map(str::to_owned).collect())
    }

    fn remove(&self, account: &str, sha256: &str) -> Result<bool, String> {
        Ok(self.kept.lock().unwrap().remove(&format!("{account}/{sha256}")).is_some())
    }
}

/// A text of several pieces, no two of them equal.
fn long_text(pieces: usize) -> String {
    (0..pieces * PIECE / 16).map(|number| format!("{number:015}\n")).collect()
}

async fn write(node: &Store, uri: &str, content: &str, mode: &str) {
    let (status, answer) =
        node.post("/api/v1/content/write", json!({"uri": uri, "content": content, "mode": mode})).await;
    assert_eq!(status, 200, "{answer}");
}

async fn read(node: &Store, uri: &str) -> String {
    let (status, answer) = node.get(&format!("/api/v1/content/read?uri={uri}")).await;
    assert_eq!(status, 200, "{answer}");
    answer["result"].as_str().unwrap().to_owned()
}

fn node(store: &MemoryStore, pieces: Option<Arc<Pieces>>) -> Store {
    let pieces = pieces.map(|pieces| pieces as Arc<dyn PieceStore>);
    Store::node_with(tempfile::tempdir().unwrap(), SharedParts { store: Arc::new(store.another()), pieces })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_pieces_lie_in_the_bucket_and_small_ones_beside_the_facts() {
    let (store, bucket) = (MemoryStore::new(), Arc::new(Pieces::default()));
    let (a, b) = (node(&store, Some(bucket.clone())), node(&store, Some(bucket.clone())));
    write(&a, "viking://resources/small.md", "A short note.", "create").await;
    assert_eq!(bucket.count(), 0);
    let text = long_text(3);
    write(&a, "viking://resources/large.md", &text, "create").await;
    assert_eq!(bucket.count(), 3);
    assert_eq!(read(&b, "viking://resources/large.md").await, text);
    write(&b, "viking://resources/large.md", "end", "append").await;
    assert_eq!(bucket.count(), 3, "the appended piece is a small one");
    assert_eq!(read(&a, "viking://resources/large.md").await, format!("{text}end"));
    let facts: usize = store.list("context").unwrap().iter().map(|(_, value)| value.len()).sum();
    assert!(facts < PIECE, "{facts} bytes of facts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_fails_fails_the_request_and_leaves_what_was_there() {
    let (store, bucket) = (MemoryStore::new(), Arc::new(Pieces::default()));
    let a = node(&store, Some(bucket.clone()));
    write(&a, "viking://resources/x.md", "Before.", "create").await;
    *bucket.writes_left.lock().unwrap() = Some(1);
    let body = json!({"uri": "viking://resources/x.md", "content": long_text(3), "mode": "replace"});
    let (status, answer) = a.post("/api/v1/content/write", body).await;
    assert_eq!(status, 503, "{answer}");
    *bucket.writes_left.lock().unwrap() = None;
    assert_eq!(read(&a, "viking://resources/x.md").await, "Before.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_that_no_file_uses_are_swept() {
    let (store, bucket) = (MemoryStore::new(), Arc::new(Pieces::default()));
    let a = node(&store, Some(bucket.clone()));
    let (kept, gone) = (long_text(2), long_text(4).replace('\n', "."));
    write(&a, "viking://resources/kept.md", &kept, "create").await;
    write(&a, "viking://resources/gone.md", &gone, "create").await;
    assert_eq!(bucket.count(), 6);
    let removed = a.request("DELETE", "/api/v1/fs?uri=viking://resources/gone.md", "".into(), &[]).await;
    assert_eq!(removed.0, 200, "{}", removed.1);
    let context = a.context.clone();
    let swept = tokio::task::spawn_blocking(move || context.sweep_pieces().unwrap()).await.unwrap();
    assert_eq!((swept, bucket.count()), (4, 2));
    assert_eq!(read(&node(&store, Some(bucket.clone())), "viking://resources/kept.md").await, kept);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_machine_moves_to_a_cluster_and_back_and_an_interrupted_move_goes_on() {
    let single = Store::new();
    let text = long_text(3);
    write(&single, "viking://resources/docs/large.md", &text, "create").await;
    write(&single, "viking://resources/docs/small.md", "Small.", "create").await;
    single.tool(&session(), "memory_store", json!({"text": "My dog Rex is a border collie."})).await.unwrap();
    let folder = single.dir.path().join("context");
    let Store { dir, context, door } = single;
    drop((context, door));

    let (store, bucket) = (MemoryStore::new(), Arc::new(Pieces::default()));
    let parts = SharedParts { store: Arc::new(store.another()), pieces: Some(bucket.clone()) };
    let to = |parts: SharedParts| {
        let folder = folder.clone();
        tokio::task::spawn_blocking(move || to_shared(&folder, ContextConfig::default(), &parts))
    };
    // The bucket goes away in the middle.
    *bucket.writes_left.lock().unwrap() = Some(2);
    assert!(to(parts.clone()).await.unwrap().is_err());
    *bucket.writes_left.lock().unwrap() = None;
    let moved = to(parts.clone()).await.unwrap().unwrap();
    assert!(moved.accounts == 1 && moved.files > 2 && moved.bytes > text.len() as u64, "{moved:?}");
    let again = to(parts.clone()).await.unwrap().unwrap();
    assert_eq!((again.files, again.there_already), (moved.files, moved.files));

    let a = node(&store, Some(bucket.clone()));
    assert_eq!(read(&a, "viking://resources/docs/large.md").await, text);
    let recalled = a.tool(&session(), "memory_recall", json!({"query": "which dog do I have"})).await.unwrap();
    assert!(recalled.text.contains("Rex"), "{}", recalled.text);
    write(&a, "viking://resources/docs/later.md", "Written in the cluster.", "create").await;
    let removed = a.request("DELETE", "/api/v1/fs?uri=viking://resources/docs/small.md", "".into(), &[]).await;
    assert_eq!(removed.0, 200);
    drop(a);

    // Back: the folder has what it had when it was moved.
    let back = folder.clone();
    let moved = tokio::task::spawn_blocking(move || from_shared(&back, &parts).unwrap()).await.unwrap();
    assert!(moved.there_already > 0 && moved.there_already < moved.files, "{moved:?}");
    let single = Store::at(dir, ContextConfig::default());
    assert_eq!(read(&single, "viking://resources/docs/large.md").await, text);
    assert_eq!(read(&single, "viking://resources/docs/later.md").await, "Written in the cluster.");
    assert_eq!(single.get("/api/v1/content/read?uri=viking://resources/docs/small.md").await.0, 404);
    let recalled = single.tool(&session(), "memory_recall", json!({"query": "which dog do I have"})).await.unwrap();
    assert!(recalled.text.contains("Rex"), "{}", recalled.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_piece_is_found_when_files_are_moved_back() {
    let (store, bucket) = (MemoryStore::new(), Arc::new(Pieces::default()));
    let a = node(&store, Some(bucket.clone()));
    write(&a, "viking://resources/large.md", &long_text(2), "create").await;
    drop(a);
    bucket.kept.lock().unwrap().values_mut().next().unwrap()[0] ^= 1;
    let folder = tempfile::tempdir().unwrap();
    let parts = SharedParts { store: Arc::new(store.another()), pieces: Some(bucket) };
    let moved = tokio::task::spawn_blocking(move || from_shared(folder.path(), &parts)).await.unwrap();
    assert!(moved.unwrap_err().message.contains("damaged"));
}
