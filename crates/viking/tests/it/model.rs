//! A language model that is asked first, and what happens when it fails: the same as without one, with a notice.

use crate::place::{Store, message};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpListener,
};
use toolyard_viking::{
    ContextConfig,
    config::{LlmConfig, LlmKind},
};

/// A server that gives every question the same answer.
fn server(status: &'static str, content: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut seen = Vec::new();
            let mut buffer = [0; 4096];
            // The head says how long the body is.
            loop {
                let read = stream.read(&mut buffer).unwrap();
                seen.extend_from_slice(&buffer[..read]);
                let text = String::from_utf8_lossy(&seen);
                let whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
                    let length = head.lines().find_map(|l| {
                        l.to_ascii_lowercase()
                            .strip_prefix("content-length:")
                            .map(|n| n.trim().parse::<usize>().unwrap())
                    });
                    body.len() >= length.unwrap_or(0)
                });
                if read == 0 || whole {
                    break;
                }
            }
            let body = json!({"choices": [{"message": {"content": content}}]}).to_string();
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    url
}

async fn committed(url: String) -> (Store, Value) {
    let llm = LlmConfig { kind: LlmKind::Openai, url, model: "m".to_owned(), api_key_env: None, timeout_ms: 5000 };
    let store = Store::with(ContextConfig { llm: Some(llm), ..ContextConfig::default() });
    store.post("/api/v1/sessions/s/messages", message("user", "I prefer tea over coffee.")).await;
    let done = store.post("/api/v1/sessions/s/commit?wait=true", json!({})).await.1;
    let task = store.get(&format!("/api/v1/tasks/{}", done["result"]["task_id"].as_str().unwrap())).await.1;
    (store, task["result"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_writes_what_it_can() {
    let answer = "{\"abstract\": \"Tea was chosen.\", \"overview\": \"# Tea\\n\\nTea was chosen over coffee.\", \"memories\": [{\"category\": \"preferences\", \"text\": \"The user drinks green tea.\"}]}";
    let (store, task) = committed(server("200 OK", answer)).await;
    assert!(task["status"] == "completed" && task["result"].get("notices").is_none(), "{task}");
    let archive = store.get("/api/v1/sessions/s/archives/archive_001").await.1;
    assert_eq!(archive["result"]["abstract"], "Tea was chosen.");
    let found =
        store.post("/api/v1/search/find", json!({"query": "green tea", "context_type": "memory", "level": 2})).await.1;
    assert!(found.to_string().contains("drinks green tea"), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_fails_loses_nothing() {
    for url in [server("500 Oops", ""), server("200 OK", "no json"), "http://127.0.0.1:1".to_owned()] {
        let (store, task) = committed(url).await;
        assert_eq!(task["status"], "completed", "{task}");
        assert_eq!(task["result"]["notices"].as_array().unwrap().len(), 2, "{task}");
        let archive = store.get("/api/v1/sessions/s/archives/archive_001").await.1;
        assert_eq!(archive["result"]["messages"].as_array().unwrap().len(), 1);
        let found = store
            .post("/api/v1/search/find", json!({"query": "tea or coffee", "context_type": "memory", "level": 2}))
            .await
            .1;
        assert!(found.to_string().contains("tea"), "{found}");
    }
}
