//! A stand-in for embedding servers. Ollama itself is in no package registry, so this speaks its interface, and OpenAI's,
//! over real HTTP with real vectors (hashed trigrams) and the servers' own error shapes. It is not Ollama.

use crate::support::trigrams;
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

#[derive(Default)]
pub(crate) struct Behaviour {
    pub(crate) dimensions: AtomicUsize,
    /// Texts embedded so far.
    pub(crate) embedded: AtomicUsize,
    /// Requests answered so far.
    pub(crate) requests: AtomicUsize,
    /// The next so many embedding requests get HTTP 500.
    pub(crate) failures: AtomicUsize,
    /// The model is not there.
    pub(crate) no_model: AtomicBool,
    /// Only `/api/embeddings`, as in old versions.
    pub(crate) is_old: AtomicBool,
    /// Texts longer than this many characters are refused; 0 takes any.
    pub(crate) max_chars: AtomicUsize,
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

    /// Nobody listens any more.
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
    /// The same server on the same port.
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
    let (status, answer) = respond(&path, &body, behaviour);
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
    let vector = |text: &str| {
        b.embedded.fetch_add(1, Ordering::Relaxed);
        trigrams(text, b.dimensions.load(Ordering::Relaxed)).unwrap_or_default()
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
            (200, json!({"model_info": {"bert.embedding_length": b.dimensions.load(Ordering::Relaxed)}, "details": {}}))
        }
        "/api/embed" if b.is_old.load(Ordering::Relaxed) => (404, json!("404 page not found")),
        "/api/embed" | "/v1/embeddings" if fails() => (500, json!({"error": "it broke"})),
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
