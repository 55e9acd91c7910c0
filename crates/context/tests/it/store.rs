//! Stored content stays, removed content is gone, and no user sees another user's content.

use crate::place::{Store, lines, message, session};
use serde_json::{Value, json};
use toolyard_context::wire::turns;

async fn remember(store: &Store, text: &str) -> Value {
    store.tool(&session(), "memory_store", json!({"text": text})).await.unwrap().details
}

async fn recalled(store: &Store, query: &str) -> String {
    store.tool(&session(), "memory_recall", json!({"query": query})).await.unwrap().text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memories_survive_a_restart_and_forgotten_ones_do_not_come_back() {
    let store = Store::new();
    let stored = remember(&store, "My dog Rex is a border collie.").await;
    assert!(stored["memoriesCount"].as_u64().unwrap() >= 1, "{stored}");
    remember(&store, "I prefer TypeScript for plugins.").await;
    let store = store.reopened();
    assert!(recalled(&store, "which dog do I have").await.contains("Rex"));
    let found = store
        .post(
            "/api/v1/search/find",
            json!({"query": "dog Rex border collie", "context_type": "memory", "level": 2, "limit": 1}),
        )
        .await
        .1;
    let uri = found["result"]["memories"][0]["uri"].as_str().unwrap().to_owned();
    // The overview that mentions the memory is built first; it must be deleted with the memory.
    store.get("/api/v1/content/overview?uri=viking://~/memories").await;
    let forgotten = store.tool(&session(), "memory_forget", json!({"uri": uri})).await.unwrap();
    assert_eq!(forgotten.details["action"], "deleted");
    for store in [store.reopened()] {
        assert!(!recalled(&store, "which dog do I have").await.contains("Rex"));
        let tree = store.get("/api/v1/fs/ls?uri=viking://~/memories&recursive=true&show_all_hidden=true").await.1;
        assert!(!tree.to_string().contains("rex"), "{tree}");
        let overview = store.get("/api/v1/content/overview?uri=viking://~/memories").await.1;
        assert!(!overview.to_string().contains("Rex"), "{overview}");
        assert!(recalled(&store, "which language do I prefer").await.contains("TypeScript"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_correction_replaces_and_a_repetition_adds_nothing() {
    let store = Store::new();
    for text in ["I live in Berlin.", "I live in Berlin.", "I live in Lisbon."] {
        store.post("/api/v1/sessions/s/messages", message("user", text)).await;
        assert_eq!(store.post("/api/v1/sessions/s/commit?wait=true", json!({})).await.0, 200);
    }
    let all = store
        .post("/api/v1/search/find", json!({"query": "where do I live", "context_type": "memory", "level": 2}))
        .await
        .1;
    let told = all["result"]["memories"].to_string();
    assert!(told.contains("Lisbon") && !told.contains("Berlin"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_called_a_memory_is_replaced_by_nothing_that_is_extracted() {
    let store = Store::new();
    remember(&store, "I live in Berlin.").await;
    remember(&store, "I live in Berlin.").await;
    store.post("/api/v1/sessions/s/messages", message("user", "I live in Lisbon.")).await;
    store.post("/api/v1/sessions/s/commit?wait=true", json!({})).await;
    let find = json!({"query": "where do I live", "context_type": "memory", "level": 2});
    let memories = store.post("/api/v1/search/find", find).await.1["result"]["memories"].clone();
    let told = memories.to_string();
    assert!(told.contains("Lisbon") && told.contains("Berlin"), "{told}");
    assert_eq!(memories.as_array().unwrap().len(), 2, "a repetition adds nothing: {told}");
}

#[toolyard_shows::shows("003-11-06")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_accounts_and_peers_are_kept_apart() {
    let store = Store::new();
    let write = json!({"uri": "viking://~/memories/entities/secret.md", "content": "Anna's door code is 4711.", "mode": "create"});
    assert_eq!(store.as_user("anna", "POST", "/api/v1/content/write", write).await.0, 200);
    let find = json!({"query": "door code", "limit": 50});
    let own = store.as_user("anna", "POST", "/api/v1/search/find", find.clone()).await.1;
    assert!(own.to_string().contains("4711"), "{own}");
    let other = store.as_user("bob", "POST", "/api/v1/search/find", find.clone()).await.1;
    assert!(!other.to_string().contains("4711"), "{other}");
    for path in [
        "/api/v1/content/read?uri=viking://user/anna/memories/entities/secret.md",
        "/api/v1/fs/ls?uri=viking://user/anna",
        "/api/v1/fs/stat?uri=viking://user/anna/memories",
    ] {
        assert_eq!(store.as_user("bob", "GET", path, Value::Null).await.0, 403, "{path}");
    }
    let listed = store.as_user("bob", "GET", "/api/v1/fs/ls?uri=viking://user&recursive=true", Value::Null).await.1;
    assert!(!listed.to_string().contains("anna"), "{listed}");
    let grep =
        store.as_user("bob", "POST", "/api/v1/search/grep", json!({"uri": "viking://", "pattern": "4711"})).await.1;
    assert_eq!(grep["result"]["count"], 0);
    let elsewhere = store
        .request(
            "POST",
            "/api/v1/search/find",
            find.to_string().into(),
            &[("x-openviking-account", "acme"), ("x-openviking-user", "anna")],
        )
        .await
        .1;
    assert!(!elsewhere.to_string().contains("4711"));
    let peer = json!({"uri": "viking://~/peers/ops/memories/entities/x.md", "content": "The ops peer likes tea.", "mode": "create"});
    assert_eq!(store.post("/api/v1/content/write", peer).await.0, 200);
    let tea = json!({"query": "who likes tea", "context_type": "memory"}).to_string();
    let as_ops =
        store.request("POST", "/api/v1/search/find", tea.clone().into(), &[("x-openviking-actor-peer", "ops")]).await.1;
    assert!(as_ops.to_string().contains("likes tea"));
    let as_main =
        store.request("POST", "/api/v1/search/find", tea.into(), &[("x-openviking-actor-peer", "main")]).await.1;
    assert!(!as_main.to_string().contains("likes tea"), "{as_main}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_listed_read_moved_and_removed() {
    let store = Store::new();
    let write = |uri: &str, content: &str, mode: &str| json!({"uri": uri, "content": content, "mode": mode});
    let deep = "viking://resources/a/b/c/d/e/deep.md";
    assert_eq!(store.post("/api/v1/content/write", write(deep, "one\ntwo\nthree\n", "create")).await.0, 200);
    assert_eq!(store.post("/api/v1/content/write", write(deep, "x", "create")).await.0, 409);
    assert_eq!(store.post("/api/v1/content/write", write("viking://resources/no.md", "x", "replace")).await.0, 404);
    assert_eq!(store.post("/api/v1/content/write", write(deep, "four\n", "append")).await.0, 200);
    let part = store.get(&format!("/api/v1/content/read?uri={deep}&offset=1&limit=2")).await.1;
    assert_eq!(part["result"], "two\nthree\n");
    let all = store.get("/api/v1/fs/ls?uri=viking://resources&recursive=true&simple=true").await.1;
    assert_eq!(all["result"].as_array().unwrap().last().unwrap(), deep, "depth is not cut (contract 7j)");
    let some = store.get("/api/v1/fs/ls?uri=viking://resources&recursive=true&node_limit=2").await.1;
    assert_eq!((some["result"].as_array().unwrap().len(), &some["has_more"]), (2, &json!(true)));
    assert_eq!(
        store
            .post("/api/v1/fs/mv", json!({"from_uri": "viking://resources/a", "to_uri": "viking://resources/z"}))
            .await
            .0,
        200
    );
    let found = store.post("/api/v1/search/find", json!({"query": "one two three four", "level": 2})).await.1;
    assert_eq!(found["result"]["resources"][0]["uri"], "viking://resources/z/b/c/d/e/deep.md", "{found}");
    let glob = store.post("/api/v1/search/glob", json!({"pattern": "**/*.md", "uri": "viking://resources"})).await.1;
    assert_eq!(glob["result"]["count"], 1);
    let rm = |recursive: bool| {
        store.as_user(
            "default",
            "DELETE",
            if recursive {
                "/api/v1/fs?uri=viking://resources/z&recursive=true"
            } else {
                "/api/v1/fs?uri=viking://resources/z"
            },
            Value::Null,
        )
    };
    assert_eq!(rm(false).await.1["error"]["message"], "Cannot remove directory without --recursive");
    assert_eq!(rm(true).await.1["result"]["estimated_deleted_count"], 1);
    assert_eq!(rm(true).await.1["result"]["estimated_deleted_count"], 0);
    let after = store.post("/api/v1/search/find", json!({"query": "one two three four", "level": 2})).await.1;
    assert_eq!(after["result"]["total"], 0, "{after}");
    assert_eq!(
        store.as_user("default", "DELETE", "/api/v1/fs?uri=viking://resources&recursive=true", Value::Null).await.0,
        403
    );
    assert_eq!(store.get("/api/v1/sessions/a%2Fb%3Ac").await.0, 400, "contract 7m");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_archives_summarises_and_keeps_the_recent_messages() {
    let store = Store::new();
    for n in 0..6 {
        let text = if n == 0 {
            "My name is Anna and I work at Acme as a pilot.".to_owned()
        } else {
            format!("message number {n}")
        };
        store.post("/api/v1/sessions/s1/messages", message("user", &text)).await;
    }
    let done = store.post("/api/v1/sessions/s1/commit?wait=true", json!({"keep_recent_count": 2})).await.1;
    assert_eq!(done["result"]["status"], "accepted", "{done}");
    let task = store.get(&format!("/api/v1/tasks/{}", done["result"]["task_id"].as_str().unwrap())).await.1;
    assert_eq!(task["result"]["status"], "completed", "{task}");
    let store = store.reopened();
    let kept = store.get("/api/v1/sessions/s1").await.1;
    assert_eq!(
        (&kept["result"]["message_count"], &kept["result"]["total_message_count"]),
        (&json!(2), &json!(6)),
        "{kept}"
    );
    let archive = store.get("/api/v1/sessions/s1/archives/archive_001").await.1;
    assert_eq!(archive["result"]["messages"].as_array().unwrap().len(), 4);
    assert!(
        !archive["result"]["abstract"].as_str().unwrap().is_empty()
            && archive["result"]["overview"].as_str().unwrap().starts_with('#')
    );
    let context = store.get("/api/v1/sessions/s1/context?token_budget=4000").await.1;
    assert!(!context["result"]["latest_archive_overview"].as_str().unwrap().is_empty(), "{context}");
    assert!(recalled(&store, "where does Anna work").await.contains("Acme"));
    assert_eq!(store.post("/api/v1/sessions/s2/commit", json!({})).await.0, 404);
    let empty = store.post("/api/v1/sessions/s1/commit", json!({"keep_recent_count": 10})).await.1;
    assert_eq!((&empty["result"]["status"], &empty["result"]["archived"]), (&json!("skipped"), &json!(false)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_crash_left_unfinished_is_finished_before_anything_is_answered() {
    let store = Store::new();
    store.post("/api/v1/sessions/s1/messages", message("user", "I prefer tea over coffee.")).await;
    store.post("/api/v1/sessions/s1/commit?wait=true", json!({})).await;
    let root = store.dir.path().join("context/default");
    let archive = root.join("user/default/sessions/s1/history/archive_001");
    // Simulates a kill right after the archive was moved into place: the marker exists, the later files do not, and the
    // live messages were not cleared.
    let pending =
        json!({"user": "default", "session": "s1", "archive": "archive_001", "task": "t1", "keep_all": false});
    std::fs::write(root.join("_system/pending/t1.json"), pending.to_string()).unwrap();
    std::fs::copy(archive.join("messages.jsonl"), root.join("user/default/sessions/s1/messages.jsonl")).unwrap();
    for name in [".done", ".abstract.md", ".overview.md", "memory_diff.json"] {
        std::fs::remove_file(archive.join(name)).unwrap();
    }
    std::fs::remove_dir_all(root.join("user/default/memories")).unwrap();
    let store = store.reopened();
    assert!(!root.join("_system/pending/t1.json").exists() && archive.join(".done").exists());
    assert!(recalled(&store, "tea or coffee").await.contains("tea"));
    let kept = store.get("/api/v1/sessions/s1").await.1;
    assert_eq!(kept["result"]["message_count"], 0, "archived messages are not live as well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_are_captured_assembled_and_compacted() {
    let store = Store::new();
    let context = store.context.clone();
    tokio::task::spawn_blocking(move || {
        let me = session();
        let big = json!({"role": "assistant", "parts": [{"type": "tool", "tool_id": "c1", "tool_name": "Run", "tool_output": lines()}]});
        let captured = value(turns::capture(&context, &me, &[turn(message("user", "I prefer TypeScript.")), turn(big)], None).unwrap());
        assert_eq!(captured["captured"], 2);
        let assembled = value(turns::assemble(&context, &me, Some("hello again"), Some(50_000)).unwrap());
        let all = assembled["messages"].as_array().unwrap();
        assert_eq!(all.len(), 3);
        assert!(all[2]["content"].as_str().unwrap().contains("[tool-result-ref] viking://session/"));
        let compacted = value(turns::compact(&context, &me).unwrap());
        assert_eq!(compacted["reason"], "commit_completed", "{compacted}");
        let after = value(turns::assemble(&context, &me, Some("which language do I prefer?"), None).unwrap());
        assert!(after["messages"][0]["content"].as_str().unwrap().starts_with("[Session History Summary]\n"), "{after}");
        assert!(after["prompt"].as_str().unwrap().contains("TypeScript"), "{after}");
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_is_split_described_and_found_and_a_second_one_replaces_it() {
    let store = Store::new();
    let source = tempfile::tempdir().unwrap();
    std::fs::create_dir(source.path().join("guide")).unwrap();
    std::fs::write(source.path().join("guide/install.md"), "# Install\n\nRun the installer on Linux.\n").unwrap();
    std::fs::write(source.path().join("readme.md"), "# Readme\n\nA tool for bees.\n").unwrap();
    let context = store.context.clone();
    let path = source.path().display().to_string();
    let import = move || {
        let who = context.identity(None);
        let account = context.account(&who).unwrap();
        let new = toolyard_context::store::resources::NewResource {
            path: Some(path),
            to: Some("viking://resources/bees".into()),
            describe: true,
            host_paths: true,
            ..Default::default()
        };
        context.import(&account, &who, &new).unwrap()
    };
    let told = tokio::task::spawn_blocking(import.clone()).await.unwrap();
    assert_eq!((told.processed.len(), told.root.to_string().as_str()), (2, "viking://resources/bees"));
    let found = store.post("/api/v1/search/find", json!({"query": "installer on Linux", "level": 2})).await.1;
    assert!(found["result"]["resources"][0]["uri"].as_str().unwrap().contains("/bees/guide/install"), "{found}");
    let overview = store.get("/api/v1/content/overview?uri=viking://resources/bees").await.1;
    assert!(overview["result"].as_str().unwrap().starts_with("# bees\n"), "{overview}");
    std::fs::write(source.path().join("readme.md"), "# Readme\n\nA tool for wasps.\n").unwrap();
    tokio::task::spawn_blocking(import).await.unwrap();
    let old = store.post("/api/v1/search/grep", json!({"uri": "viking://resources", "pattern": "bees\\."})).await.1;
    assert_eq!(old["result"]["count"], 0, "{old}");
    let host = store.post("/api/v1/resources", json!({"path": "/etc/passwd"})).await;
    assert_eq!((host.0, &host.1["error"]["code"]), (403, &json!("PERMISSION_DENIED")));
}

/// A message as an agent's host sends it.
fn turn(message: Value) -> turns::TurnMessage {
    serde_json::from_value(message).unwrap()
}

/// A response as its callers see it.
fn value(answer: impl serde::Serialize) -> Value {
    serde_json::to_value(answer).unwrap()
}
