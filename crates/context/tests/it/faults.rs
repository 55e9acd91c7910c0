//! Every write, sync and rename of the context store fails once, in three ways: what was answered as done is there after a
//! restart, what was refused is as before or as wanted, and the same request works afterwards.

use crate::fault_plan::plan;
use crate::place::{Store, message};
use serde_json::{Value, json};

const FILE: &str = "viking://resources/a.md";
const MOVED: &str = "viking://resources/b.md";

/// One request: what it does, its path and its body.
struct Step {
    name: &'static str,
    path: &'static str,
    body: Value,
}

fn steps() -> Vec<Step> {
    let write = |content: &str, mode: &str| json!({"uri": FILE, "content": content, "mode": mode});
    vec![
        Step { name: "create", path: "/api/v1/content/write", body: write("one\n", "create") },
        Step { name: "replace", path: "/api/v1/content/write", body: write("two\n", "replace") },
        Step { name: "append", path: "/api/v1/content/write", body: write("three\n", "append") },
        Step { name: "move", path: "/api/v1/fs/mv", body: json!({"from_uri": FILE, "to_uri": MOVED}) },
        Step { name: "message", path: "/api/v1/sessions/s/messages", body: message("user", "I live in Lisbon.") },
        Step { name: "commit", path: "/api/v1/sessions/s/commit?wait=true", body: json!({}) },
    ]
}

async fn read(store: &Store, uri: &str) -> Option<String> {
    let (status, answer) = store.get(&format!("/api/v1/content/read?uri={uri}")).await;
    (status == 200).then(|| answer["result"].as_str().unwrap_or_default().to_owned())
}

/// The contents that the file and its copy may have after this many steps.
fn contents(done: usize) -> (Option<&'static str>, Option<&'static str>) {
    match done {
        0 => (None, None),
        1 => (Some("one\n"), None),
        2 => (Some("two\n"), None),
        3 => (Some("two\nthree\n"), None),
        _ => (None, Some("two\nthree\n")),
    }
}

async fn looks_as_after(store: &Store, done: usize) -> bool {
    let (file, moved) = (read(store, FILE).await, read(store, MOVED).await);
    (file.as_deref(), moved.as_deref()) == contents(done)
}

async fn memories(store: &Store) -> String {
    let find = json!({"query": "where do I live", "context_type": "memory", "level": 2});
    store.post("/api/v1/search/find", find).await.1["result"]["memories"].to_string()
}

/// A store in which the first steps were done.
async fn after(done: usize) -> Store {
    let store = Store::new();
    for step in steps().iter().take(done) {
        assert_eq!(store.post(step.path, step.body.clone()).await.0, 200, "{}", step.name);
    }
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_fails_once_nothing_answered_is_lost_and_nothing_is_half_there() {
    let mut faults = 0;
    for (place, step) in steps().iter().enumerate() {
        let honest = after(place).await;
        let counted = toolyard_faults::arm(honest.dir.path(), None);
        assert_eq!(honest.post(step.path, step.body.clone()).await.0, 200, "{}", step.name);
        let operations = counted.operations();
        drop(counted);
        assert!(operations >= 1, "{}: {operations}", step.name);
        for (number, failure) in plan(operations) {
            let store = after(place).await;
            let armed = toolyard_faults::arm(store.dir.path(), Some((number, failure)));
            let (status, answer) = store.post(step.path, step.body.clone()).await;
            // Background work makes the last operations depend on time.
            let Some(failed) = armed.failed() else { continue };
            drop(armed);
            faults += 1;
            let fault = format!("{}: {failure:?} at operation {number}, {failed}", step.name);
            assert!(status == 200 || answer["error"]["code"].is_string(), "{fault}: {status} {answer}");
            check(store.reopened(), place, status == 200, &fault).await;
        }
    }
    assert!(faults > 20, "only {faults} faults");
}

async fn check(store: Store, place: usize, is_done: bool, fault: &str) {
    let steps = steps();
    let step = &steps[place];
    let as_wanted = looks_as_after(&store, place + 1).await;
    if step.name == "message" {
        if is_done {
            assert_eq!(store.post(steps[place + 1].path, steps[place + 1].body.clone()).await.0, 200, "{fault}");
            assert!(memories(&store).await.contains("Lisbon"), "{fault}: the message is lost");
        }
        return;
    }
    if step.name == "commit" {
        // What a commit did not finish is finished by a later one: the messages are not lost on the way.
        let (status, answer) = store.post(step.path, step.body.clone()).await;
        assert_eq!(status, 200, "{fault}: {answer}");
        for _ in 0..200 {
            if memories(&store).await.contains("Lisbon") {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        panic!("{fault}: what the session said is lost");
    }
    assert!(as_wanted || (!is_done && looks_as_after(&store, place).await), "{fault}: half visible");
    if !as_wanted {
        assert_eq!(store.post(step.path, step.body.clone()).await.0, 200, "{fault}: it works afterwards");
        assert!(looks_as_after(&store, place + 1).await, "{fault}");
    }
}
