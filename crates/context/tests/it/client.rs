//! Requests of the plugin and the `ov` client beyond the recordings, observed on the wire (`make openviking-plugin`).

use crate::place::{Store, message};
use bytes::Bytes;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_keeps_the_archives_and_begins_an_empty_context() {
    let store = Store::new();
    store.post("/api/v1/sessions/s/messages", message("user", "I live in Lisbon.")).await;
    store.post("/api/v1/sessions/s/commit?wait=true", json!({"enable_working_memory": true})).await;
    store.post("/api/v1/sessions/s/messages", message("user", "It rains.")).await;
    let done = store.post("/api/v1/sessions/s/commit?wait=true", json!({"reset_context": true})).await.1;
    assert_eq!((&done["result"]["reset_context"], &done["result"]["archived"]), (&json!(true), &json!(true)), "{done}");
    let again = store.post("/api/v1/sessions/s/commit?wait=true", json!({"reset_context": true})).await.1;
    assert_eq!(again["result"]["reset_context"], true, "also where there is nothing to archive: {again}");
    let store = store.reopened();
    let context = store.get("/api/v1/sessions/s/context").await.1;
    assert_eq!(context["result"]["latest_archive_overview"], "");
    assert_eq!(context["result"]["pre_archive_abstracts"], json!([]));
    assert!(store.get("/api/v1/sessions/s/archives/archive_002").await.1.to_string().contains("It rains."));
    store.post("/api/v1/sessions/s/messages", message("user", "The sun is out.")).await;
    store.post("/api/v1/sessions/s/commit?wait=true", json!({})).await;
    let context = store.get("/api/v1/sessions/s/context").await.1;
    let overview = context["result"]["latest_archive_overview"].as_str().unwrap();
    assert!(overview.contains("The sun is out.") && !overview.contains("Lisbon"), "{overview}");
    assert_eq!(context["result"]["stats"]["totalArchives"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_of_turns_keeps_whole_turns() {
    let store = Store::new();
    for n in 0..5 {
        store.post("/api/v1/sessions/s/messages", message("user", &format!("question {n}"))).await;
        store.post("/api/v1/sessions/s/messages", message("assistant", &format!("answer {n}"))).await;
        store.post("/api/v1/sessions/s/messages", message("assistant", &format!("more of {n}"))).await;
    }
    store.post("/api/v1/sessions/s/commit?wait=true", json!({"keep_recent_turn_count": 2})).await;
    let told = store.get("/api/v1/sessions/s").await.1["result"].clone();
    assert_eq!((&told["message_count"], &told["retention_mode"]), (&json!(6), &json!("turn_budget")), "{told}");
    store.post("/api/v1/sessions/s/messages", message("user", &"long ".repeat(20_000))).await;
    store.post("/api/v1/sessions/s/commit?wait=true", json!({"retention_mode": "turn_budget"})).await;
    assert_eq!(
        store.get("/api/v1/sessions/s").await.1["result"]["message_count"],
        1,
        "the newest stays whatever its length"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_archived_when_their_policy_says_so() {
    let store = Store::new();
    let policy = json!({"message_count_threshold": 2, "keep_recent_count": 1});
    let made = store.post("/api/v1/sessions", json!({"session_id": "s", "auto_commit_policy": policy})).await.1;
    assert_eq!(made["result"]["auto_commit_policy"]["pending_token_threshold"], 150_000, "{made}");
    for n in 0..3 {
        store.post("/api/v1/sessions/s/messages", message("user", &format!("message {n}"))).await;
    }
    let told = store.get("/api/v1/sessions/s").await.1["result"].clone();
    assert_eq!((&told["commit_count"], &told["message_count"]), (&json!(1), &json!(1)), "{told}");
    let patch = |body: Value| store.request("PATCH", "/api/v1/sessions/s/config", Bytes::from(body.to_string()), &[]);
    let off = patch(json!({"auto_commit_policy": null})).await.1;
    assert_eq!(off["result"]["auto_commit_policy"], Value::Null);
    for n in 0..5 {
        store.post("/api/v1/sessions/s/messages", message("user", &format!("later {n}"))).await;
    }
    assert_eq!(store.get("/api/v1/sessions/s").await.1["result"]["message_count"], 6);
    assert_eq!(patch(json!({"auto_commit_policy": {"unknown": 1}})).await.0, 400);
    assert_eq!(store.post("/api/v1/sessions", json!({"auto_commit_policy": {"idle_timeout_seconds": 5}})).await.0, 400);
    assert_eq!(store.post("/api/v1/sessions", json!({"memory_policy": {"self": {"enabled": false}}})).await.0, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_messages_come_at_once_or_not_at_all() {
    let store = Store::new();
    let bad = json!({"messages": [{"role": "user", "content": "a"}, {"role": "robot", "content": "b"}]});
    assert_eq!(store.post("/api/v1/sessions/s/messages/batch", bad).await.0, 400);
    assert_eq!(store.get("/api/v1/sessions/s").await.0, 404);
    let good = json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]});
    let (_, told) = store.post("/api/v1/sessions/s/messages/batch", good).await;
    assert_eq!((&told["result"]["added"], &told["result"]["message_count"]), (&json!(2), &json!(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn context_is_recalled_within_quotas_thresholds_and_peers() {
    let store = Store::new();
    for (place, text) in [
        ("~/memories/preferences/a.md", "Ada prefers green tea in the morning."),
        ("~/memories/preferences/b.md", "Ada prefers black tea in the evening."),
        ("~/memories/events/c.md", "Ada bought a tea pot on Monday."),
        ("~/peers/other/memories/events/d.md", "Tea was served to the other peer."),
    ] {
        let body = json!({"uri": format!("viking://{place}"), "content": text, "mode": "create"});
        assert_eq!(store.post("/api/v1/content/write", body).await.0, 200);
    }
    let ask = |extra: Value| {
        let mut body = json!({"query": "Ada's tea", "mode": "context", "purpose": "coding", "query_expansion": "auto", "dedup_turns": 5});
        for (key, value) in extra.as_object().unwrap() {
            body[key] = value.clone();
        }
        let store = &store;
        async move {
            let headers = [("x-openviking-actor-peer", "main")];
            let (status, told) =
                store.request("POST", "/api/v1/search/search", Bytes::from(body.to_string()), &headers).await;
            assert_eq!(status, 200, "{told}");
            told["result"].clone()
        }
    };
    let all = ask(json!({"score_threshold": 0.0})).await;
    assert_eq!(all["entries"].as_array().unwrap().len(), 3, "{all}");
    assert!(all["rendered"].as_str().unwrap().contains("tea pot") && all["stats"].get("deprecated").is_none());
    let one = ask(json!({"score_threshold": 0.0, "quotas": {"preferences": 1, "events": 0}})).await;
    assert_eq!(one["entries"].as_array().unwrap().len(), 1, "{one}");
    assert_eq!(ask(json!({"score_threshold": 0.0, "limit": 2})).await["entries"].as_array().unwrap().len(), 2);
    let peers = ask(json!({"score_threshold": 0.0, "peer_scope": "all"})).await;
    assert_eq!(peers["stats"]["origins"]["other_peer"], 1, "{peers}");
    let few = ask(json!({"max_tokens": 12, "score_threshold": 0.0})).await;
    assert_eq!(few["entries"].as_array().unwrap().len(), 1, "{few}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_memories_gets_memories_and_a_quotation_is_certain() {
    let store = Store::new();
    store.post("/api/v1/sessions/memory-store-1/messages", message("user", "I prefer green tea over coffee.")).await;
    store.post("/api/v1/sessions/memory-store-1/commit?wait=true", json!({})).await;
    let find = |body: Value| store.post("/api/v1/search/find", body);
    let found = find(json!({"query": "I prefer green tea over coffee.", "context_type": "memory"})).await.1;
    let memories = found["result"]["memories"].as_array().unwrap();
    assert!(memories.iter().all(|m| m["level"] == 2), "{found}");
    assert!(memories[0]["score"].as_f64().unwrap() >= 0.85, "{found}");
    let folders = find(json!({"query": "green tea", "context_type": ["memory"], "level": [0, 1]})).await.1;
    assert!(!folders["result"]["memories"].as_array().unwrap().is_empty(), "{folders}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_profile_is_read_as_one_file() {
    let store = Store::new();
    assert_eq!(store.get("/api/v1/content/read?uri=viking://~/memories/profile.md").await.0, 404);
    store.post("/api/v1/sessions/s/messages", message("user", "My name is Ada and I live in Lisbon.")).await;
    store.post("/api/v1/sessions/s/commit?wait=true", json!({})).await;
    let (status, told) = store.get("/api/v1/content/read?uri=viking://~/memories/profile.md").await;
    let text = told["result"].as_str().unwrap();
    assert!(status == 200 && text.contains("Lisbon") && !text.contains("MEMORY_FIELDS"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_is_read_with_its_origin() {
    let store = Store::new();
    store.post("/api/v1/sessions/s/messages", message("user", "I prefer green tea in the morning.")).await;
    store.post("/api/v1/sessions/s/commit?wait=true", json!({})).await;
    let rows = store.get("/api/v1/fs/ls?uri=viking://~/memories/preferences").await.1;
    let uri = rows["result"][0]["uri"].as_str().unwrap();
    let (status, read) = store.get(&format!("/api/v1/content/memory?uri={uri}")).await;
    let memory = &read["result"];
    assert_eq!((status, &memory["role"], &memory["category"]), (200, &json!("user"), &json!("preferences")), "{read}");
    assert!(memory["text"].as_str().unwrap().contains("green tea"), "{read}");
    assert!(memory["source"].as_str().unwrap().contains("/sessions/s/"), "{read}");
    assert!(memory["created_at"].as_str().unwrap().starts_with("20"), "{read}");
    assert_eq!(store.get("/api/v1/content/memory?uri=viking://~/memories/preferences/none.md").await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_keeps_the_name_it_was_sent_with() {
    let store = Store::new();
    let id = store.upload("limits.md", "# Limits\n\nForty.\n").await;
    let made = store.post("/api/v1/resources", json!({"temp_file_id": id})).await.1;
    assert_eq!(made["result"]["root_uri"], "viking://resources/limits", "{made}");
    let id = store.upload("../../etc/evil.md", "# E\n\nEvil.\n").await;
    let made = store.post("/api/v1/resources", json!({"temp_file_id": id})).await.1;
    assert_eq!(made["result"]["root_uri"], "viking://resources/evil", "{made}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_have_tags_and_are_found_by_them() {
    let store = Store::new();
    for (name, tags) in [("red", json!(["team=a", "env=prod"])), ("blue", json!(["team=b"]))] {
        let id =
            store.upload(&format!("{name}.md"), &format!("# {name}\n\nThe deployment of the {name} service.\n")).await;
        let body = json!({"temp_file_id": id, "to": format!("viking://resources/{name}"), "tags": tags});
        assert_eq!(store.post("/api/v1/resources", body).await.0, 200);
    }
    let tags = |store: Store, tags: Value| async move {
        let found = store
            .post("/api/v1/search/find", json!({"query": "deployment of the service", "tags": tags, "level": 2}))
            .await
            .1;
        let uris: Vec<String> = found["result"]["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["uri"].as_str().unwrap().to_owned())
            .collect();
        (store, uris, found)
    };
    let (store, uris, found) = tags(store, json!(["team=a"])).await;
    assert_eq!(uris, ["viking://resources/red/red.md"], "{found}");
    assert_eq!(found["result"]["resources"][0]["tags"], json!(["team=a", "env=prod"]));
    let (store, none, _) = tags(store, json!(["team=a", "env=test"])).await;
    assert!(none.is_empty());
    // Tags survive a restart, a move and a new import; they change only on request.
    let store = store.reopened();
    store
        .post("/api/v1/fs/mv", json!({"from_uri": "viking://resources/red", "to_uri": "viking://resources/crimson"}))
        .await;
    let id = store.upload("red.md", "# red\n\nThe deployment of the service, anew.\n").await;
    store
        .post(
            "/api/v1/resources",
            json!({"temp_file_id": id, "to": "viking://resources/crimson", "tags": ["env=test"], "tag_mode": "append"}),
        )
        .await;
    let (store, uris, _) = tags(store, json!(["team=a", "env=test"])).await;
    assert_eq!(uris, ["viking://resources/crimson/red.md"]);
    let set = store
        .post(
            "/api/v1/fs/attrs/set_tags",
            json!({"uri": "viking://resources/blue", "tags": ["team=a"], "mode": "append", "recursive": true}),
        )
        .await
        .1;
    assert_eq!(set["result"]["tags"], json!(["team=a"]), "a key has one value: {set}");
    let attrs = store.get("/api/v1/fs/attrs?uri=viking://resources/blue/blue.md").await.1;
    assert_eq!(attrs["result"]["attrs"]["tags"], json!(["team=a"]));
    store.post("/api/v1/content/set_tags", json!({"uri": "viking://resources/crimson", "mode": "clear"})).await;
    let (_, uris, _) = tags(store, json!(["team=a"])).await;
    assert_eq!(uris, ["viking://resources/blue/blue.md"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skills_are_shown_inspected_and_removed() {
    let store = Store::new();
    let text = "---\nname: brew\ndescription: Brews tea\ntags: [kitchen]\n---\n\n# Brew\n\nBoil water.\n";
    let id = store.upload("SKILL.md", text).await;
    let listed = store
        .post("/api/v1/skills", json!({"temp_file_id": id, "list_only": true, "source_metadata": {"type": "local"}}))
        .await
        .1;
    assert_eq!(
        (&listed["result"]["total"], &listed["result"]["skills"][0]["name"]),
        (&json!(1), &json!("brew")),
        "{listed}"
    );
    assert_eq!(store.get("/api/v1/skills/brew").await.0, 404, "nothing was installed");
    assert_eq!(store.post("/api/v1/skills", json!({"temp_file_id": id, "wait": true})).await.0, 200);
    let shown = store.get("/api/v1/skills/brew?include_content=true&include_files=true").await.1;
    assert_eq!(
        (&shown["result"]["description"], &shown["result"]["content"]),
        (&json!("Brews tea"), &json!(text)),
        "{shown}"
    );
    let found = store
        .post("/api/v1/search/find", json!({"query": "tea", "tags": ["kitchen"], "context_type": "skill"}))
        .await
        .1;
    assert!(found["result"]["total"].as_u64().unwrap() > 0, "{found}");
    assert_eq!(store.request("DELETE", "/api/v1/skills/brew", Bytes::new(), &[]).await.0, 200);
    assert_eq!(store.get("/api/v1/skills/brew").await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_are_found_and_leave_the_original_alone() {
    let store = Store::new();
    let id = store.upload("w.md", "# W\n\nThe zebra crosses the road.\n").await;
    store.post("/api/v1/resources", json!({"temp_file_id": id, "to": "viking://resources/w"})).await;
    let copy = |recursive: bool| json!({"from_uri": "viking://resources/w", "to_uri": "viking://resources/copy", "recursive": recursive});
    assert_eq!(store.post("/api/v1/fs/cp", copy(false)).await.0, 400);
    assert_eq!(store.post("/api/v1/fs/cp", copy(true)).await.0, 200);
    assert_eq!(store.post("/api/v1/fs/cp", copy(true)).await.0, 409);
    let found = store.post("/api/v1/search/find", json!({"query": "zebra crosses the road", "level": 2})).await.1;
    assert_eq!(found["result"]["total"], 2, "{found}");
    let file = json!({"from_uri": "viking://resources/w/w.md", "to_uri": "viking://resources/w/x.md"});
    assert_eq!(store.post("/api/v1/fs/cp", file).await.0, 200);
    assert_eq!(
        store.get("/api/v1/content/read?uri=viking://resources/w/x.md").await.1["result"],
        "# W\n\nThe zebra crosses the road.\n"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nothing_here_does_is_refused() {
    let store = Store::new();
    let id = store.upload("w.md", "# W\n").await;
    for (field, value) in [
        ("args", json!({"depth": 2})),
        ("acl", json!({"acl_mode": "restricted"})),
        ("preserve_structure", json!(false)),
    ] {
        let mut body = json!({"temp_file_id": id});
        body[field] = value;
        let (status, told) = store.post("/api/v1/resources", body).await;
        assert!(status == 400 && told["error"]["message"].as_str().unwrap().contains(field), "{field}: {told}");
    }
    let body = json!({"temp_file_id": id, "args": {}, "acl": null, "preserve_structure": true, "parent": "viking://resources/none", "create_parent": false});
    assert_eq!(store.post("/api/v1/resources", body).await.0, 404, "the parent must be there");
    assert_eq!(store.post("/api/v1/search/find", json!({"query": "x", "image_url": "http://x/y.png"})).await.0, 400);
}
