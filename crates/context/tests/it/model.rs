//! The configured language model is tried first. If it fails, the result is the same as without one, with a notice.

use crate::place::{Store, message, session};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use toolyard_context::{
    ContextConfig,
    config::{LlmConfig, LlmKind},
};

/// How the fake server responds to every request.
#[derive(Clone, Copy)]
enum Does {
    /// With this text as the model's output.
    Says(&'static str),
    /// With this status.
    Refuses(&'static str),
    /// With this text instead of the interface's JSON.
    Babbles(&'static str),
    /// It reads the request and never responds.
    Hangs,
    /// It starts a response and closes the connection.
    BreaksOff,
}

/// A fake model server on loopback: its URL, and the requests it received (path, head, body).
struct StandIn {
    url: String,
    asked: Arc<Mutex<Vec<(String, String, Value)>>>,
}

fn question(stream: &mut TcpStream) -> Option<(String, String, Value)> {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).ok()?;
        seen.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&seen).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let length =
                lower.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            if body.len() >= length.unwrap_or(0) {
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                return Some((path, lower, serde_json::from_str(body).ok()?));
            }
        }
        if read == 0 {
            return None;
        }
    }
}

impl StandIn {
    fn new(kind: LlmKind, does: Does) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(got) = question(&mut stream) else { continue };
                seen.lock().unwrap().push(got);
                let words = |content: &str| match kind {
                    LlmKind::Ollama => json!({"message": {"role": "assistant", "content": content}, "done": true}),
                    LlmKind::Openai => json!({"choices": [{"message": {"content": content}}]}),
                };
                let (status, body) = match does {
                    Does::Says(content) => ("200 OK", words(content).to_string()),
                    Does::Refuses(status) => (status, json!({"error": "no"}).to_string()),
                    Does::Babbles(text) => ("200 OK", text.to_owned()),
                    Does::Hangs => {
                        open.push(stream);
                        continue;
                    }
                    Does::BreaksOff => {
                        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{{\"mess");
                        continue;
                    }
                };
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
            }
        });
        Self { url, asked }
    }
}

fn config(kind: LlmKind, url: &str) -> ContextConfig {
    let llm = LlmConfig { kind, url: url.to_owned(), model: "m".to_owned(), api_key_env: None, timeout_ms: 1000 };
    ContextConfig { llm: Some(llm), ..ContextConfig::default() }
}

async fn committed(kind: LlmKind, url: &str) -> (Store, Value) {
    let store = Store::with(config(kind, url));
    store.post("/api/v1/sessions/s/messages", message("user", "I prefer tea over coffee.")).await;
    let done = store.post("/api/v1/sessions/s/commit?wait=true", json!({})).await.1;
    let task = store.get(&format!("/api/v1/tasks/{}", done["result"]["task_id"].as_str().unwrap())).await.1;
    (store, task["result"].clone())
}

const GOOD: &str = "{\"abstract\": \"Tea was chosen.\", \"overview\": \"# Tea\\n\\nTea was chosen over coffee.\", \"memories\": [{\"category\": \"preferences\", \"text\": \"The user drinks green tea.\"}, {\"category\": \"nonsense\", \"text\": \"Left out.\"}]}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_writes_what_it_can_on_either_interface() {
    for (kind, path) in [(LlmKind::Ollama, "/api/chat"), (LlmKind::Openai, "/chat/completions")] {
        let model = StandIn::new(kind, Does::Says(GOOD));
        let (store, task) = committed(kind, &model.url).await;
        assert!(task["status"] == "completed" && task["result"].get("notices").is_none(), "{task}");
        let archive = store.get("/api/v1/sessions/s/archives/archive_001").await.1;
        assert_eq!(archive["result"]["abstract"], "Tea was chosen.");
        assert_eq!(archive["result"]["overview"], "# Tea\n\nTea was chosen over coffee.");
        let found = store.post("/api/v1/search/find", json!({"query": "green tea", "context_type": "memory"})).await.1;
        assert!(found.to_string().contains("drinks green tea") && !found.to_string().contains("Left out"), "{found}");
        let asked = model.asked.lock().unwrap();
        assert_eq!(asked.len(), 2, "one question for the summary, one for the memories");
        for (at, head, body) in asked.iter() {
            assert_eq!((at.as_str(), &body["model"]), (path, &json!("m")));
            assert!(body["messages"][1]["content"].as_str().unwrap().contains("I prefer tea over coffee."), "{body}");
            assert!(!head.contains("authorization"), "no key was configured");
            match kind {
                LlmKind::Ollama => assert!(body["stream"] == false && body["format"] == "json"),
                LlmKind::Openai => assert_eq!(body["response_format"]["type"], "json_object"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_fails_loses_nothing() {
    let failures = [
        Does::Refuses("500 Oops"),
        Does::Refuses("429 Too Many Requests"),
        Does::Says("I would rather not answer in JSON."),
        Does::Says("{\"abstract\": 7}"),
        Does::Says(""),
        Does::Babbles("<html>"),
        Does::Babbles("{}"),
        Does::BreaksOff,
        Does::Hangs,
    ];
    for kind in [LlmKind::Ollama, LlmKind::Openai] {
        for does in failures {
            let model = StandIn::new(kind, does);
            falls_back(kind, &model.url).await;
        }
        falls_back(kind, "http://127.0.0.1:1").await;
    }
}

async fn falls_back(kind: LlmKind, url: &str) {
    let began = Instant::now();
    let (store, task) = committed(kind, url).await;
    assert!(began.elapsed() < Duration::from_secs(60), "it waits no longer than it is told to");
    assert_eq!(task["status"], "completed", "{task}");
    let notices = task["result"]["notices"].as_array().unwrap();
    assert_eq!(notices.len(), 2, "{task}");
    assert!(notices[0].as_str().unwrap().starts_with("the summary was extracted: "), "{task}");
    assert!(notices[1].as_str().unwrap().starts_with("memories were extracted by rules: "), "{task}");
    let archive = store.get("/api/v1/sessions/s/archives/archive_001").await.1;
    assert_eq!(archive["result"]["messages"].as_array().unwrap().len(), 1);
    assert!(archive["result"]["overview"].as_str().unwrap().contains("tea over coffee"), "{archive}");
    let found = store.post("/api/v1/search/find", json!({"query": "tea or coffee", "context_type": "memory"})).await.1;
    assert!(found.to_string().contains("I prefer tea"), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_good_answer_is_used_by_halves() {
    let model = StandIn::new(
        LlmKind::Ollama,
        Does::Says("Sure! {\"memories\": [{\"category\": \"events\", \"text\": \"Tea was had.\"}]} Done."),
    );
    let (store, task) = committed(LlmKind::Ollama, &model.url).await;
    assert_eq!(task["result"]["notices"], json!(["the summary was extracted: the model gave no abstract"]), "{task}");
    let found = store.post("/api/v1/search/find", json!({"query": "tea was had", "context_type": "memory"})).await.1;
    assert!(found.to_string().contains("Tea was had."), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_stores_says_that_the_model_failed() {
    let model = StandIn::new(LlmKind::Openai, Does::Refuses("503 Busy"));
    let store = Store::with(config(LlmKind::Openai, &model.url));
    let stored = store.tool(&session(), "memory_store", json!({"text": "I prefer tea over coffee."})).await.unwrap();
    assert_eq!((&stored.details["action"], &stored.details["memoriesCount"]), (&json!("stored"), &json!(1)));
    assert_eq!(stored.details["notices"].as_array().unwrap().len(), 2, "{}", stored.details);
    let recalled = store.tool(&session(), "memory_recall", json!({"query": "tea or coffee?"})).await.unwrap();
    assert!(recalled.text.contains("I prefer tea over coffee."), "{}", recalled.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_safe_while_the_model_thinks() {
    let model = StandIn::new(LlmKind::Ollama, Does::Hangs);
    let store = Store::with(ContextConfig {
        llm: Some(LlmConfig { timeout_ms: 60_000, ..config(LlmKind::Ollama, &model.url).llm.unwrap() }),
        ..ContextConfig::default()
    });
    store.post("/api/v1/sessions/s/messages", message("user", "I prefer tea over coffee.")).await;
    let began = Instant::now();
    let done = store.post("/api/v1/sessions/s/commit", json!({})).await.1;
    assert!(began.elapsed() < Duration::from_secs(30) && done["result"]["archived"] == true, "{done}");
    // The next message does not wait for the model, and the archived messages are readable.
    store.post("/api/v1/sessions/s/messages", message("user", "And cake.")).await;
    let archive = store.get("/api/v1/sessions/s/archives/archive_001").await.1;
    assert!(archive.to_string().contains("I prefer tea over coffee."), "{archive}");
}
