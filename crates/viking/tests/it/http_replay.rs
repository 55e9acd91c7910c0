//! Every exchange recorded on the original server is made again: status, error code and the keys of the result must be
//! the same. What differs on purpose stands in [`DIFFERENCES`], with its reason.

use crate::place::{Store, WIDGET, keys, lines, recordings};
use bytes::Bytes;
use serde_json::Value;
use std::collections::HashMap;

/// The exchange, the status here, the keys of the result here, and why.
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
    let Some(recorded) = recordings("openviking-http") else { return };
    let store = Store::new();
    // What was there before the recording began.
    let (status, _) = store
        .post("/api/v1/fs/mkdir", serde_json::json!({"uri": "viking://resources/newdir2", "description": "# newdir"}))
        .await;
    assert_eq!(status, 200);
    let mut names: HashMap<String, String> = HashMap::new();
    let mut wrong = Vec::new();
    for (name, exchange) in &recorded {
        let (request, response) = (&exchange["request"], &exchange["response"]);
        let method = request["method"].as_str().unwrap();
        let mut path = request["path"].as_str().unwrap().to_owned();
        let mut body = match &request["body"] {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        for (theirs, ours) in &names {
            path = path.replace(theirs, ours);
            body = body.replace(theirs, ours);
        }
        if name == "051_msg_tool_big" {
            let mut whole = request["body"].clone();
            whole["parts"][0]["tool_output"] = lines().into();
            body = whole.to_string();
        }
        let (status, answer) = if path.ends_with("/temp_upload") {
            let id = store
                .upload(
                    "widget.md",
                    &WIDGET.replace("Widget", if name.starts_with("008") { "Gadget" } else { "Widget" }),
                )
                .await;
            names.insert(response["body"]["result"]["temp_file_id"].as_str().unwrap().to_owned(), id.clone());
            (200, serde_json::json!({"status": "ok", "result": {"temp_file_id": id}}))
        } else {
            store.request(method, &path, Bytes::from(body), &[]).await
        };
        if let (Some(theirs), Some(ours)) =
            (response["body"]["result"]["task_id"].as_str(), answer["result"]["task_id"].as_str())
        {
            names.insert(theirs.to_owned(), ours.to_owned());
        }
        let expected = response["status"].as_u64().unwrap() as u16;
        let known = DIFFERENCES.iter().find(|(known, ..)| known == name);
        match known {
            Some((_, expected, expected_keys, _)) => {
                if status != *expected || keys(&answer["result"]) != *expected_keys {
                    wrong.push(format!("{name}: {status} {answer}"));
                }
            }
            None => {
                let (theirs, ours) = (&response["body"], &answer);
                if status != expected {
                    wrong.push(format!("{name}: {status}, not {expected}: {answer}"));
                }
                if theirs["error"]["code"] != ours["error"]["code"] {
                    wrong.push(format!("{name}: {} not {}", ours["error"], theirs["error"]["code"]));
                }
                let (expected, here) = (keys(&theirs["result"]), keys(&ours["result"]));
                if expected != here && !(theirs["result"].as_array().is_some_and(Vec::is_empty)) {
                    wrong.push(format!("{name}: keys {here:?}, not {expected:?}"));
                }
                if keys(theirs) != keys(ours) {
                    wrong.push(format!("{name}: envelope {:?}, not {:?}", keys(ours), keys(theirs)));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_are_worded_as_the_original_words_them() {
    let Some(recorded) = recordings("openviking-http") else { return };
    let store = Store::new();
    let exact = ["010_", "011_", "012_", "022_", "023_", "024_", "035_", "036_", "043_", "047_", "074_"];
    for (name, exchange) in recorded.iter().filter(|(name, _)| exact.iter().any(|start| name.starts_with(start))) {
        let request = &exchange["request"];
        let body = if request["body"].is_null() { Bytes::new() } else { Bytes::from(request["body"].to_string()) };
        let (_, answer) =
            store.request(request["method"].as_str().unwrap(), request["path"].as_str().unwrap(), body, &[]).await;
        assert_eq!(answer["error"], exchange["response"]["body"]["error"], "{name}");
    }
}
