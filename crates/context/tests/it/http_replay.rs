//! Replays every recorded exchange of the original server: status, error code and the keys of the result must match.
//! [`DIFFERENCES`] lists intended differences with their reasons.

use crate::{
    facts::Exchange,
    place::{Store, WIDGET, keys, lines},
};
use bytes::Bytes;
use serde_json::Value;
use std::collections::HashMap;

/// Number of exchanges whose whole error is compared.
const EXACT_ERRORS: usize = 11;

/// The exchange, the status here, the keys of the result here, and the reason.
const DIFFERENCES: [(&str, u16, &[&str], &str); 4] = [
    (
        "041_add_skill_data",
        200,
        &["auxiliary_files", "name", "queue_status", "root_uri", "status", "task_id", "uri"],
        "no model is needed to describe a skill",
    ),
    (
        "042_add_skill_mcp",
        200,
        &["auxiliary_files", "name", "queue_status", "root_uri", "status", "task_id", "uri"],
        "no model is needed to describe a skill",
    ),
    ("053_msg_bad_role", 400, &[], "roles are checked"),
    (
        "071_archive_get",
        200,
        &["abstract", "archive_id", "messages", "overview"],
        "an archive can be read at once, and its summary is extracted",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exchanges_of_the_original_server_are_answered_alike() {
    let store = Store::new();
    // The state before the recording started.
    let (status, _) = store
        .post("/api/v1/fs/mkdir", serde_json::json!({"uri": "viking://resources/newdir2", "description": "# newdir"}))
        .await;
    assert_eq!(status, 200);
    let mut names: HashMap<String, String> = HashMap::new();
    let mut wrong = Vec::new();
    for exchange in Exchange::all() {
        let (status, answer) = again(&store, &exchange, &names).await;
        for (path, name) in &exchange.learn {
            match answer.pointer(path).and_then(Value::as_str) {
                Some(ours) => drop(names.insert(name.clone(), ours.to_owned())),
                None => wrong.push(format!("{}: the answer lacks {path}: {answer}", exchange.name)),
            }
        }
        wrong.extend(differences(&exchange, status, &answer).iter().map(|d| format!("{}: {d}", exchange.name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Replays an exchange, with this store's generated values in place of the original's.
async fn again(store: &Store, exchange: &Exchange, names: &HashMap<String, String>) -> (u16, Value) {
    if exchange.path.ends_with("/temp_upload") {
        let subject = if exchange.name.starts_with("008") { "Gadget" } else { "Widget" };
        let id = store.upload("widget.md", &WIDGET.replace("Widget", subject)).await;
        return (200, serde_json::json!({"status": "ok", "result": {"temp_file_id": id}}));
    }
    let mut path = exchange.path.clone();
    let mut body = exchange.body_text();
    if exchange.name == "051_msg_tool_big" {
        let mut whole = exchange.body.clone();
        whole["parts"][0]["tool_output"] = lines().into();
        body = whole.to_string();
    }
    for (theirs, ours) in names {
        path = path.replace(theirs, ours);
        body = body.replace(theirs, ours);
    }
    store.request(&exchange.method, &path, Bytes::from(body), &[]).await
}

/// The differences between a response and the recording.
fn differences(exchange: &Exchange, status: u16, ours: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let here = keys(&ours["result"]);
    if let Some((_, expected, expected_keys, _)) = DIFFERENCES.iter().find(|(known, ..)| *known == exchange.name) {
        if status != *expected || here != *expected_keys {
            wrong.push(format!("{status} {ours}"));
        }
        return wrong;
    }
    if status != exchange.status {
        wrong.push(format!("{status}, not {}: {ours}", exchange.status));
    }
    if exchange.code != ours["error"]["code"] {
        wrong.push(format!("{} not {}", ours["error"], exchange.code));
    }
    if exchange.result != here && !exchange.empty_list {
        wrong.push(format!("keys {here:?}, not {:?}", exchange.result));
    }
    if exchange.envelope != keys(ours) {
        wrong.push(format!("envelope {:?}, not {:?}", keys(ours), exchange.envelope));
    }
    wrong
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_are_worded_as_the_original_words_them() {
    let store = Store::new();
    let mut compared = 0;
    for exchange in Exchange::all() {
        let Some(error) = &exchange.error else { continue };
        let body = Bytes::from(exchange.body_text());
        let (_, answer) = store.request(&exchange.method, &exchange.path, body, &[]).await;
        assert_eq!(answer["error"], *error, "{}", exchange.name);
        compared += 1;
    }
    assert_eq!(compared, EXACT_ERRORS);
}
