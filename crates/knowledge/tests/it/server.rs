//! A stand-in for embedding servers. Ollama is not available in any package registry, so this server implements its
//! interface and OpenAI's over real HTTP, with real vectors (hashed trigrams) and the servers' own error formats. It is
//! not Ollama.

use crate::support::trigrams;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

#[derive(Default)]
pub(crate) struct Behaviour {
    pub(crate) dimensions: AtomicUsize,
    /// Number of texts embedded so far.
    pub(crate) embedded: AtomicUsize,
    /// Number of requests answered so far.
    pub(crate) requests: AtomicUsize,
    /// Number of following embedding requests that get HTTP 500.
    pub(crate) failures: AtomicUsize,
    /// The server does not have the model.
    pub(crate) no_model: AtomicBool,
    /// The server has only `/api/embeddings`, like old versions.
    pub(crate) is_old: AtomicBool,
    /// Texts longer than this many characters are rejected; 0 means no limit.
    pub(crate) max_chars: AtomicUsize,
    /// Every text received for embedding.
    pub(crate) texts: Mutex<Vec<String>>,
    /// Paths that get this status and no content; with 0 they never get a response.
    pub(crate) refused: Mutex<HashMap<&'static str, u16>>,
    /// Requests with several texts get HTTP 500.
    pub(crate) no_batches: AtomicBool,
    /// A text that cannot be embedded, even as a part of a longer one: the model produces a value that is not a number,
    /// which some servers report as HTTP 500 and others as null.
    pub(crate) poison: Mutex<Option<(&'static str, Poison)>>,
    /// A wrong vector length that `/api/show` reports.
    pub(crate) shown_length: AtomicUsize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Poison {
    Fails,
    GivesNull,
}

impl Behaviour {
    /// Sets the status of a path; 0 for no response, 200 for normal operation.
    pub(crate) fn refuse(&self, path: &'static str, status: u16) {
        let mut refused = self.refused.lock().unwrap();
        if status == 200 {
            refused.remove(path);
        } else {
            refused.insert(path, status);
        }
    }

    /// Whether a text with these words was ever received.
    pub(crate) fn has_seen(&self, words: &str) -> bool {
        self.texts.lock().unwrap().iter().any(|text| text.contains(words))
    }
}

pub(crate) struct StandIn {
    pub(crate) url: String,
    pub(crate) behaviour: Arc<Behaviour>,
    port: u16,
    stop: CancellationToken,
    done: tokio::task::JoinHandle<()>,
}

impl StandIn {
    pub(crate) async fn start(dimensions: usize) -> Self {
        let behaviour = Arc::new(Behaviour::default());
        behaviour.dimensions.store(dimensions, Ordering::Relaxed);
        Self::listen(0, behaviour).await
    }

    async fn listen(port: u16, behaviour: Arc<Behaviour>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = CancellationToken::new();
        let (stopped, shared) = (stop.clone(), behaviour.clone());
        let done = tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = stopped.cancelled() => return,
                    Ok((stream, _)) = listener.accept() => {
                        let (shared, stopped) = (shared.clone(), stopped.clone());
                        tokio::spawn(async move {
                            tokio::select! {
                                _ = serve(stream, &shared) => {}
                                () = stopped.cancelled() => {}
                            }
                        });
                    }
                }
            }
        });
        Self { url: format!("http://127.0.0.1:{port}"), behaviour, port, stop, done }
    }

    /// Stops the server; the port is closed.
    pub(crate) async fn stop(self) -> Stopped {
        self.stop.cancel();
        let _ = self.done.await;
        Stopped { port: self.port, behaviour: self.behaviour }
    }
}

pub(crate) struct Stopped {
    port: u16,
    behaviour: Arc<Behaviour>,
}

impl Stopped {
    /// Starts the same server on the same port.
    pub(crate) async fn start_again(self) -> StandIn {
        StandIn::listen(self.port, self.behaviour).await
    }
}

async fn serve(mut stream: TcpStream, behaviour: &Behaviour) -> std::io::Result<()> {
    let mut received = Vec::new();
    let (head, body) = loop {
        let mut part = [0; 8192];
        let count = stream.read(&mut part).await?;
        if count == 0 {
            return Ok(());
        }
        received.extend_from_slice(&part[..count]);
        let Some(end) = received.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&received[..end]).to_lowercase();
        let length =
            head.lines().find_map(|l| l.strip_prefix("content-length:")).map_or(0, |l| l.trim().parse().unwrap());
        if received.len() >= end + 4 + length {
            break (head, received[end + 4..end + 4 + length].to_vec());
        }
    };
    behaviour.requests.fetch_add(1, Ordering::Relaxed);
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let path = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let refused = behaviour.refused.lock().unwrap().get(path.as_str()).copied();
    let (status, answer) = match refused {
        Some(0) => return std::future::pending().await,
        Some(status) => (status, json!({"error": "no"})),
        None => respond(&path, &body, behaviour),
    };
    let text = answer.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

fn respond(path: &str, body: &Value, b: &Behaviour) -> (u16, Value) {
    let model = body["model"].as_str().unwrap_or_default();
    let missing = (404, json!({"error": format!("model '{model}' not found")}));
    let poison = *b.poison.lock().unwrap();
    let poisoned = |text: &str, how: Poison| poison.is_some_and(|(words, kind)| kind == how && text.contains(words));
    let vector = |text: &str| {
        b.embedded.fetch_add(1, Ordering::Relaxed);
        b.texts.lock().unwrap().push(text.to_owned());
        let vector = trigrams(text, b.dimensions.load(Ordering::Relaxed)).unwrap_or_default();
        if poisoned(text, Poison::GivesNull) {
            vec![Value::Null; vector.len()]
        } else {
            vector.into_iter().map(Value::from).collect()
        }
    };
    let too_long = |text: &str| {
        let most = b.max_chars.load(Ordering::Relaxed);
        most > 0 && text.chars().count() > most
    };
    let fails = || b.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok();
    let inputs: Vec<String> = match &body["input"] {
        Value::String(text) => vec![text.clone()],
        Value::Array(texts) => texts.iter().filter_map(|t| t.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    };
    let is_too_much = inputs.len() > 1 && b.no_batches.load(Ordering::Relaxed);
    match path {
        "/api/version" => (200, json!({"version": "0.5.1"})),
        "/api/tags" if b.no_model.load(Ordering::Relaxed) => (200, json!({"models": []})),
        "/api/tags" => (
            200,
            json!({"models": [{"name": "test-model:latest", "model": "test-model:latest",
            "digest": "sha256:0123456789abcdef", "size": 1, "details": {}}]}),
        ),
        "/api/show" if b.no_model.load(Ordering::Relaxed) => missing,
        "/api/show" => {
            let length = match b.shown_length.load(Ordering::Relaxed) {
                0 => b.dimensions.load(Ordering::Relaxed),
                other => other,
            };
            (200, json!({"model_info": {"bert.embedding_length": length}, "details": {}}))
        }
        "/api/embed" if b.is_old.load(Ordering::Relaxed) => (404, json!("404 page not found")),
        "/api/embed" | "/v1/embeddings"
            if fails() || is_too_much || inputs.iter().any(|t| poisoned(t, Poison::Fails)) =>
        {
            (500, json!({"error": "it broke"}))
        }
        "/api/embed" if b.no_model.load(Ordering::Relaxed) => missing,
        "/api/embed" if inputs.iter().any(|t| too_long(t)) => {
            (400, json!({"error": "the input length exceeds the context length"}))
        }
        "/api/embed" => {
            let vectors: Vec<_> = inputs.iter().map(|t| vector(t)).collect();
            (200, json!({"model": model, "embeddings": vectors, "total_duration": 1, "prompt_eval_count": 1}))
        }
        "/api/embeddings" => (200, json!({"embedding": vector(body["prompt"].as_str().unwrap_or_default())})),
        "/v1/embeddings" if b.no_model.load(Ordering::Relaxed) => {
            (404, json!({"error": {"message": "The model does not exist", "type": "invalid_request_error"}}))
        }
        "/v1/embeddings" if inputs.iter().any(|t| too_long(t)) => {
            (400, json!({"error": {"message": "This model's maximum context length is 512 tokens"}}))
        }
        "/v1/models" => (200, json!({"object": "list", "data": [{"id": "m", "object": "model"}]})),
        "/v1/embeddings" => {
            // Out of order, as the interface allows.
            let data: Vec<Value> = inputs
                .iter()
                .enumerate()
                .rev()
                .map(|(i, t)| json!({"object": "embedding", "index": i, "embedding": vector(t)}))
                .collect();
            (200, json!({"object": "list", "data": data, "model": model}))
        }
        _ => (404, json!("404 page not found")),
    }
}
