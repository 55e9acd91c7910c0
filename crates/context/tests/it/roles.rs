//! The role of the speaker is stored with every captured message and with the memories made from it, through every
//! interface: OpenViking's HTTP interface, `context.capture` and `memory_store`.

use crate::place::{Store, session};
use serde_json::{Value, json};
use std::{collections::HashMap, path::Path};
use toolyard_context::wire::turns::{self, TurnMessage};

/// Role and peer of each live message of a session.
async fn speakers(store: &Store, id: &str) -> Vec<(String, Option<String>)> {
    let (status, answer) = store.get(&format!("/api/v1/sessions/{id}/context?token_budget=10000")).await;
    assert_eq!(status, 200, "{answer}");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let messages = answer["result"]["messages"].as_array().unwrap();
    messages.iter().map(|message| (text(&message["role"]).unwrap(), text(&message["peer_id"]))).collect()
}

/// The role stored in the first memory that a query finds.
async fn remembered_role(store: &Store, query: &str) -> Value {
    let ask = json!({"query": query, "context_type": "memory", "level": 2, "limit": 1});
    let found = store.post("/api/v1/search/find", ask).await.1;
    let uri = found["result"]["memories"][0]["uri"].as_str().unwrap_or_else(|| panic!("{found}")).to_owned();
    // Responses do not contain the metadata of a memory, so the file is read.
    let text =
        memory_files(store.dir.path()).remove(uri.rsplit('/').next().unwrap()).unwrap_or_else(|| panic!("{uri}"));
    let noted = text.split("MEMORY_FIELDS").nth(1).unwrap_or_else(|| panic!("{text}"));
    let fields: Value = serde_json::from_str(noted.trim().trim_end_matches("-->").trim()).unwrap();
    fields["role"].clone()
}

/// The memory files of a store, by name.
fn memory_files(dir: &Path) -> HashMap<String, String> {
    let mut files = HashMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(memory_files(&path));
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            files.insert(path.file_name().unwrap().to_string_lossy().into_owned(), text);
        }
    }
    files
}

fn some(role: &str, peer: Option<&str>) -> (String, Option<String>) {
    (role.to_owned(), peer.map(str::to_owned))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_http_interface_keeps_role_and_peer() {
    let store = Store::new();
    for body in [
        json!({"role": "user", "content": "I prefer green tea.", "peer_id": "ada"}),
        json!({"role": "assistant", "content": "Noted: green tea."}),
    ] {
        assert_eq!(store.post("/api/v1/sessions/s/messages", body).await.0, 200);
    }
    assert_eq!(speakers(&store, "s").await, [some("user", Some("ada")), some("assistant", None)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_from_the_http_interface_keeps_the_role() {
    let store = Store::new();
    let body = json!({"role": "user", "content": "I prefer green tea."});
    assert_eq!(store.post("/api/v1/sessions/s/messages", body).await.0, 200);
    assert_eq!(store.post("/api/v1/sessions/s/commit?wait=true", json!({})).await.0, 200);
    assert_eq!(remembered_role(&store, "which tea do I prefer").await, "user");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn captured_turns_keep_role_and_peer() {
    let store = Store::new();
    let (context, me) = (store.context.clone(), session());
    let id = me.ov_id().unwrap();
    tokio::task::spawn_blocking(move || {
        let turn = |role: &str, text: &str| -> TurnMessage {
            serde_json::from_value(json!({"role": role, "text": text})).unwrap()
        };
        let messages = [turn("user", "I prefer TypeScript."), turn("assistant", "TypeScript it is.")];
        turns::capture(&context, &me, &messages, None).unwrap();
    })
    .await
    .unwrap();
    assert_eq!(speakers(&store, &id).await, [some("user", None), some("assistant", Some("main"))]);
    assert_eq!(store.post(&format!("/api/v1/sessions/{id}/commit?wait=true"), json!({})).await.0, 200);
    assert_eq!(remembered_role(&store, "which language do I prefer, TypeScript?").await, "user");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_store_keeps_the_role() {
    let store = Store::new();
    for (args, query, role) in [
        (json!({"text": "The office plant needs water on Mondays."}), "when does the office plant need water", "user"),
        (
            json!({"text": "The release was moved to Thursday.", "role": "assistant", "sessionId": "s"}),
            "when is the release",
            "assistant",
        ),
    ] {
        store.tool(&session(), "memory_store", args).await.unwrap();
        assert_eq!(remembered_role(&store, query).await, role);
    }
}
