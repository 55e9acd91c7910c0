//! Vectors from an Ollama server: `/api/embed`, or the older `/api/embeddings` if the server has no other.

use super::{
    EmbedError, Embedder, EmbedderInfo, Purpose, Vectors,
    http::{HttpOutcome, PROBE, Server, numbers},
    remote::{Attempt, Interface, RemoteEmbedder, without_vectors},
};
use crate::config::EmbeddingConfig;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use toolyard_engine::BoxFuture;

/// Ollama's default address.
pub const DEFAULT_OLLAMA_URL: &str = "http://127.0.0.1:11434";
/// The default model.
pub const DEFAULT_OLLAMA_MODEL: &str = "mxbai-embed-large";

/// How long the server keeps the model loaded after a request.
const KEEP_ALIVE: &str = "5m";
/// Digests are truncated to this many characters.
const DIGEST_CHARS: usize = 12;

/// Vectors from an Ollama server.
pub struct OllamaEmbedder {
    asked: RemoteEmbedder<Api>,
    model: String,
    /// The model's digest at the last request. Another model's vectors may have another length.
    digest: Mutex<Option<String>>,
}

struct Api {
    model: String,
    /// Set when the server reported that it has no `/api/embed`.
    is_old: AtomicBool,
}

/// Checks whether an Ollama server responds, whether or not it is configured as the embedder.
#[derive(Debug, Clone)]
pub struct OllamaProbe(Option<Server>);

impl OllamaProbe {
    /// A probe of the configured server; only on this machine, unless the configuration allows another.
    pub fn new(config: &EmbeddingConfig) -> Self {
        let url = match config.kind {
            crate::config::EmbedderKind::Ollama => config.url.as_deref().unwrap_or(DEFAULT_OLLAMA_URL),
            _ => DEFAULT_OLLAMA_URL,
        };
        Self(Server::new("Ollama", url, config.allow_remote, PROBE, None).ok())
    }

    /// Whether the server responds.
    pub async fn is_up(&self) -> bool {
        match &self.0 {
            Some(server) => matches!(server.get("api/version", PROBE).await, Ok(HttpOutcome::Ok(_))),
            None => false,
        }
    }
}

impl OllamaEmbedder {
    /// Creates an embedder from the configuration.
    pub fn new(config: &EmbeddingConfig) -> Result<Self, EmbedError> {
        let url = config.url.as_deref().unwrap_or(DEFAULT_OLLAMA_URL);
        let model = config.model.clone().unwrap_or_else(|| DEFAULT_OLLAMA_MODEL.to_owned());
        let api = Api { model: model.clone(), is_old: AtomicBool::new(false) };
        Ok(Self { asked: RemoteEmbedder::new("Ollama", url, config, None, api)?, model, digest: Mutex::default() })
    }

    /// The digest of the model in the server's list: names have a tag, `:latest` if none is given. `None` only if the
    /// server never reports one: a temporary failure must not look like another model.
    async fn digest(&self) -> Result<Option<String>, EmbedError> {
        let server = &self.asked.quick;
        let tags = match server.get("api/tags", PROBE).await? {
            HttpOutcome::Ok(tags) => tags,
            HttpOutcome::Refused(StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _) => return Ok(None),
            HttpOutcome::Refused(status, _) => return Err(server.refused(format!("HTTP {}", status.as_u16()))),
            HttpOutcome::Unusable(reason) => return Err(server.refused(reason)),
        };
        let Some(models) = tags["models"].as_array() else {
            return Err(server.refused("it does not list its models"));
        };
        let wanted = if self.model.contains(':') { self.model.clone() } else { format!("{}:latest", self.model) };
        let named = |model: &&Value| {
            [&model["name"], &model["model"]]
                .iter()
                .any(|name| name.as_str().is_some_and(|n| n == wanted || n == self.model))
        };
        let model = models.iter().find(named).ok_or_else(|| missing(&self.model))?;
        let digest = model["digest"].as_str().unwrap_or_default();
        let digest = digest.strip_prefix("sha256:").unwrap_or(digest);
        Ok((!digest.is_empty()).then(|| digest.chars().take(DIGEST_CHARS).collect()))
    }

    /// The length of the model's vectors. Determined by embedding a text, because the value of `/api/show` is not right
    /// for every model.
    async fn length(&self, digest: &str) -> Result<usize, EmbedError> {
        {
            let mut known = self.digest.lock().unwrap_or_else(PoisonError::into_inner);
            if known.as_deref().is_some_and(|known| known != digest) {
                self.asked.forget_length();
            }
            *known = Some(digest.to_owned());
        }
        match self.asked.length() {
            Some(length) => Ok(length),
            None => self.asked.measure().await,
        }
    }
}

fn missing(model: &str) -> EmbedError {
    EmbedError::ModelMissing { service: "Ollama", model: model.to_owned() }
}

impl Api {
    async fn ask_new(&self, server: &Server, texts: &[String], patient: bool) -> Result<Attempt, EmbedError> {
        let body = json!({"model": self.model, "input": texts, "truncate": true, "keep_alive": KEEP_ALIVE});
        match server.post("api/embed", &body, patient).await? {
            HttpOutcome::Ok(answer) => {
                let vectors = answer["embeddings"].as_array().map(Vec::as_slice).unwrap_or_default();
                if vectors.len() != texts.len() {
                    let reason = format!("it gave {} vectors for {} texts", vectors.len(), texts.len());
                    return Ok(Attempt::Refused(server.refused(reason)));
                }
                Ok(Attempt::Vectors(vectors.iter().map(numbers).collect()))
            }
            HttpOutcome::Refused(StatusCode::NOT_FOUND, said) if said.contains("model") => Err(missing(&self.model)),
            HttpOutcome::Refused(StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _) => {
                self.is_old.store(true, Ordering::Relaxed);
                self.ask_old(server, texts, patient).await
            }
            other => without_vectors(server, &other),
        }
    }

    /// The older interface takes one text at a time.
    async fn ask_old(&self, server: &Server, texts: &[String], patient: bool) -> Result<Attempt, EmbedError> {
        let mut out = Vec::with_capacity(texts.len());
        for text in texts {
            let body = json!({"model": self.model, "prompt": text, "keep_alive": KEEP_ALIVE});
            match server.post("api/embeddings", &body, patient).await? {
                HttpOutcome::Ok(answer) => out.push(numbers(&answer["embedding"])),
                HttpOutcome::Refused(StatusCode::NOT_FOUND, _) => return Err(missing(&self.model)),
                other => return without_vectors(server, &other),
            }
        }
        Ok(Attempt::Vectors(out))
    }
}

impl Interface for Api {
    fn ask<'a>(
        &'a self,
        server: &'a Server,
        texts: &'a [String],
        patient: bool,
    ) -> BoxFuture<'a, Result<Attempt, EmbedError>> {
        Box::pin(async move {
            if self.is_old.load(Ordering::Relaxed) {
                self.ask_old(server, texts, patient).await
            } else {
                self.ask_new(server, texts, patient).await
            }
        })
    }
}

impl Embedder for OllamaEmbedder {
    fn is_local(&self) -> bool {
        self.asked.server.is_local()
    }

    fn describe(&self) -> BoxFuture<'_, Result<EmbedderInfo, EmbedError>> {
        Box::pin(async {
            // Both requests run concurrently, because a caller may be waiting.
            let (version, digest) = tokio::join!(self.asked.quick.get("api/version", PROBE), self.digest());
            if !matches!(version?, HttpOutcome::Ok(_)) {
                return Err(self.asked.server.unreachable(None));
            }
            let digest = digest?.unwrap_or_default();
            let dimensions = self.length(&digest).await?;
            Ok(EmbedderInfo { id: format!("ollama/{}@{digest}", self.model), dimensions })
        })
    }

    fn embed<'a>(&'a self, texts: &'a [String], purpose: Purpose) -> BoxFuture<'a, Vectors> {
        Box::pin(self.asked.embed(texts, purpose))
    }
}
