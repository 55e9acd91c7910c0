//! Several nodes with one context store: what one node acknowledged, every other node has.

use crate::place::{Store, message, session};
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path, sync::Arc};
use toolyard_context::error::{ApiError, Code};
use toolyard_engine::{Store as _, memory_store::MemoryStore};

fn cluster(nodes: usize) -> (Arc<MemoryStore>, Vec<Store>) {
    let first = Arc::new(MemoryStore::new());
    let nodes = (0..nodes).map(|_| Store::node(Arc::new(first.another()))).collect();
    (first, nodes)
}

async fn write(node: &Store, uri: &str, content: &str, mode: &str) -> u16 {
    node.post("/api/v1/content/write", json!({"uri": uri, "content": content, "mode": mode})).await.0
}

async fn read(node: &Store, uri: &str) -> Option<String> {
    let (status, answer) = node.get(&format!("/api/v1/content/read?uri={uri}")).await;
    (status == 200).then(|| answer["result"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_sessions_and_memories_written_on_one_node_are_read_on_another() {
    let (_shared, nodes) = cluster(2);
    let (a, b) = (&nodes[0], &nodes[1]);
    assert_eq!(write(a, "viking://resources/docs/one.md", "The first document.", "create").await, 200);
    assert_eq!(read(b, "viking://resources/docs/one.md").await.unwrap(), "The first document.");
    assert_eq!(write(b, "viking://resources/docs/one.md", " More.", "append").await, 200);
    assert_eq!(read(a, "viking://resources/docs/one.md").await.unwrap(), "The first document. More.");

    a.tool(&session(), "memory_store", json!({"text": "My dog Rex is a border collie."})).await.unwrap();
    let recalled = b.tool(&session(), "memory_recall", json!({"query": "which dog do I have"})).await.unwrap();
    assert!(recalled.text.contains("Rex"), "{}", recalled.text);

    a.post("/api/v1/sessions/s/messages", message("user", "I live in Lisbon.")).await;
    b.post("/api/v1/sessions/s/messages", message("assistant", "Noted.")).await;
    for node in [a, b] {
        let (_, context) = node.get("/api/v1/sessions/s/context").await;
        let text = context.to_string();
        assert!(text.find("Lisbon").unwrap() < text.find("Noted").unwrap(), "{text}");
    }
    assert_eq!(b.post("/api/v1/sessions/s/commit?wait=true", json!({})).await.0, 200);
    let recalled = a.tool(&session(), "memory_recall", json!({"query": "where do I live"})).await.unwrap();
    assert!(recalled.text.contains("Lisbon"), "{}", recalled.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_removed_or_moved_on_one_node_is_gone_on_another() {
    let (_shared, nodes) = cluster(2);
    let (a, b) = (&nodes[0], &nodes[1]);
    write(a, "viking://resources/old/x.md", "Alpha.", "create").await;
    write(a, "viking://resources/old/deep/y.md", "Beta.", "create").await;
    assert!(read(b, "viking://resources/old/deep/y.md").await.is_some());
    let moved = json!({"from_uri": "viking://resources/old", "to_uri": "viking://resources/new"});
    assert_eq!(b.post("/api/v1/fs/mv", moved).await.0, 200);
    assert_eq!(read(a, "viking://resources/old/x.md").await, None);
    assert_eq!(read(a, "viking://resources/new/deep/y.md").await.unwrap(), "Beta.");
    let removed = a.request("DELETE", "/api/v1/fs?uri=viking://resources/new&recursive=true", "".into(), &[]).await;
    assert_eq!(removed.0, 200, "{}", removed.1);
    assert_eq!(read(b, "viking://resources/new/x.md").await, None);
    let found = b.post("/api/v1/search/find", json!({"query": "Alpha Beta", "limit": 10})).await.1;
    assert!(!found.to_string().contains("x.md"), "{found}");
    a.post("/api/v1/sessions/gone/messages", message("user", "hello")).await;
    assert_eq!(b.request("DELETE", "/api/v1/sessions/gone", "".into(), &[]).await.0, 200);
    assert_eq!(a.get("/api/v1/sessions/gone").await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn messages_added_on_three_nodes_at_once_are_all_kept_once() {
    let (shared, nodes) = cluster(3);
    const EACH: usize = 15;
    let adding = nodes.iter().enumerate().flat_map(|(node, store)| {
        (0..2).map(move |thread| async move {
            for number in 0..EACH {
                let text = format!("message {node}-{thread}-{number}");
                let (status, answer) = store.post("/api/v1/sessions/busy/messages", message("user", &text)).await;
                assert_eq!(status, 200, "{answer}");
            }
        })
    });
    futures_util::future::join_all(adding).await;
    let late = Store::node(Arc::new(shared.another()));
    for node in nodes.iter().chain([&late]) {
        let (_, context) = node.get("/api/v1/sessions/busy/context?token_budget=1000000").await;
        let text = context.to_string();
        for (from, thread) in (0..3).flat_map(|node| (0..2).map(move |thread| (node, thread))) {
            let at: Vec<usize> = (0..EACH)
                .map(|number| {
                    let said = format!("\"message {from}-{thread}-{number}\"");
                    assert_eq!(text.matches(&said).count(), 1, "{said}");
                    text.find(&said).unwrap()
                })
                .collect();
            assert!(at.is_sorted(), "messages of one writer keep their order");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_fenced_during_a_request_shares_nothing_of_it() {
    let shared = Arc::new(MemoryStore::new());
    let (handle_a, handle_b) = (Arc::new(shared.another()), Arc::new(shared.another()));
    let (a, b) = (Store::node(handle_a.clone()), Store::node(handle_b.clone()));
    assert_eq!(write(&a, "viking://resources/kept.md", "Before.", "create").await, 200);
    let (context, who) = (a.context.clone(), a.context.identity(None));
    let done = tokio::task::spawn_blocking(move || {
        context.own_request(|| {
            let account = context.account(&who)?;
            let place = toolyard_context::store::uri::StorePath::parse("viking://resources/lost.md", &who)?;
            toolyard_context::store::fs::write(&account, &place, "Never.", toolyard_context::store::fs::Mode::Create)?;
            // Another node finds this one dead and takes over while the request is under way.
            handle_b.fence(&handle_a.owner()).map_err(|e| ApiError::new(Code::Internal, e.to_string()))
        })
    });
    let error = done.await.unwrap().unwrap_err();
    assert_eq!(error.code, Code::Unavailable, "{error:?}");
    assert_eq!(read(&b, "viking://resources/lost.md").await, None);
    assert_eq!(write(&b, "viking://resources/kept.md", "After.", "replace").await, 200);
    assert_eq!(
        write(&a, "viking://resources/kept.md", "Zombie.", "replace").await,
        503,
        "a fenced node writes nothing"
    );
    assert_eq!(read(&b, "viking://resources/kept.md").await.unwrap(), "After.");
}

/// Every file that nodes share, with its content.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(root: &Path, at: &Path, into: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if name.starts_with('_') || name.ends_with(".abstract.md") || name.ends_with(".overview.md") {
                continue;
            }
            if path.is_dir() {
                walk(root, &path, into);
            } else {
                into.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(folder, folder, &mut all);
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_changes_on_random_nodes_leave_the_same_tree_everywhere() {
    let (shared, nodes) = cluster(3);
    let mut state = 24_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for number in 0..150 {
        let node = &nodes[random(3) as usize];
        let uri = format!("viking://resources/f{}/d{}/n{}.md", random(2), random(2), random(3));
        let folder = format!("viking://resources/f{}", random(2));
        match random(8) {
            0..=3 => {
                let size = if random(10) == 0 { 200_000 } else { 20 };
                let text = format!("{number} ").repeat(size / 4);
                write(node, &uri, &text, "create").await;
                write(node, &uri, &text, "replace").await;
            }
            4 | 5 => drop(write(node, &uri, "and more\n", "append").await),
            6 => {
                let moved = json!({"from_uri": uri, "to_uri": format!("viking://resources/moved{number}.md")});
                node.post("/api/v1/fs/mv", moved).await;
            }
            _ => {
                let path = format!("/api/v1/fs?uri={folder}&recursive=true");
                node.request("DELETE", &path, "".into(), &[]).await;
            }
        }
    }
    let late = Store::node(Arc::new(shared.another()));
    let mut trees = Vec::new();
    for node in nodes.iter().chain([&late]) {
        let listed: (u16, Value) = node.get("/api/v1/fs/ls?uri=viking://resources").await;
        assert_eq!(listed.0, 200, "{}", listed.1);
        let account = node.context.identity(None).account;
        trees.push(files(&node.dir.path().join("context-copy").join(account)));
    }
    assert!(trees[0].len() > 3, "{:?}", trees[0].keys());
    for tree in &trees[1..] {
        assert_eq!(tree.keys().collect::<Vec<_>>(), trees[0].keys().collect::<Vec<_>>());
        assert!(*tree == trees[0], "contents differ");
    }
}
