//! Vectors from an Ollama server: `/api/embed`, or the older `/api/embeddings` where that is all there is.

use super::{
    EmbedError, Embedder, EmbedderInfo, Purpose, Vectors,
    http::{Answer, Asked, Server, numbers},
    unit,
};
use crate::config::EmbeddingConfig;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use toolyard_engine::BoxFuture;

/// Where Ollama listens unless told otherwise.
pub const DEFAULT_OLLAMA_URL: &str = "http://127.0.0.1:11434";
/// The model unless told otherwise.
pub const DEFAULT_OLLAMA_MODEL: &str = "mxbai-embed-large";

/// How long a probe may take.
const PROBE: Duration = Duration::from_secs(2);
/// How long the server keeps the model loaded after a request.
const KEEP_ALIVE: &str = "5m";
/// A text that is too long for the model is halved at most this often.
const MAX_HALVINGS: u32 = 4;

/// Vectors from an Ollama server.
pub struct OllamaEmbedder {
    asked: Asked,
    model: String,
    /// Set once the server said that it knows no `/api/embed`.
    is_old: AtomicBool,
}

/// Looks whether an Ollama server answers, whether or not it is used.
#[derive(Debug, Clone)]
pub struct OllamaProbe(Option<Server>);

impl OllamaProbe {
    /// Of the configured server; on this machine only, unless the configuration says otherwise.
    pub fn new(config: &EmbeddingConfig) -> Self {
        let url = match config.kind {
            crate::config::EmbedderKind::Ollama => config.url.as_deref().unwrap_or(DEFAULT_OLLAMA_URL),
            _ => DEFAULT_OLLAMA_URL,
        };
        Self(Server::new("Ollama", url, config.allow_remote, PROBE, None).ok())
    }

    /// Whether it answers.
    pub async fn is_up(&self) -> bool {
        match &self.0 {
            Some(server) => matches!(server.get("api/version", PROBE).await, Ok(Answer::Ok(_))),
            None => false,
        }
    }
}

impl OllamaEmbedder {
    /// Of this configuration.
    pub fn new(config: &EmbeddingConfig) -> Result<Self, EmbedError> {
        let url = config.url.as_deref().unwrap_or(DEFAULT_OLLAMA_URL);
        Ok(Self {
            asked: Asked::new("Ollama", url, config, None)?,
            model: config.model.clone().unwrap_or_else(|| DEFAULT_OLLAMA_MODEL.to_owned()),
            is_old: AtomicBool::new(false),
        })
    }

    fn missing(&self) -> EmbedError {
        EmbedError::ModelMissing { service: "Ollama", model: self.model.clone() }
    }

    /// The model as the server lists it: names carry a tag, `:latest` when none is given.
    async fn digest(&self) -> Result<Option<String>, EmbedError> {
        let Answer::Ok(tags) = self.asked.server.get("api/tags", PROBE).await? else { return Ok(None) };
        let Some(models) = tags["models"].as_array() else { return Ok(None) };
        let wanted = if self.model.contains(':') { self.model.clone() } else { format!("{}:latest", self.model) };
        let named = |model: &&Value| {
            [&model["name"], &model["model"]]
                .iter()
                .any(|name| name.as_str().is_some_and(|n| n == wanted || n == self.model))
        };
        let model = models.iter().find(named).ok_or_else(|| self.missing())?;
        let digest = model["digest"].as_str().unwrap_or_default();
        let digest = digest.strip_prefix("sha256:").unwrap_or(digest);
        Ok((!digest.is_empty()).then(|| digest.chars().take(12).collect()))
    }

    async fn length(&self) -> Result<usize, EmbedError> {
        if let Answer::Ok(shown) = self.asked.server.post("api/show", &json!({"model": self.model}), false).await?
            && let Some(info) = shown["model_info"].as_object()
            && let Some(length) =
                info.iter().find(|(key, _)| key.ends_with(".embedding_length")).and_then(|(_, v)| v.as_u64())
            && (1..=super::MAX_DIMENSIONS as u64).contains(&length)
        {
            return Ok(length as usize);
        }
        let probe = self.request(&self.asked.quick, &["length".to_owned()], false).await?;
        probe
            .into_iter()
            .flatten()
            .next()
            .map(|v| v.len())
            .ok_or_else(|| self.asked.server.refused("it gave no vector"))
    }

    /// One request for several texts.
    async fn request(&self, server: &Server, texts: &[String], patient: bool) -> Vectors {
        if self.is_old.load(Ordering::Relaxed) {
            return self.request_old(server, texts, patient).await;
        }
        let body = json!({"model": self.model, "input": texts, "truncate": true, "keep_alive": KEEP_ALIVE});
        match server.post("api/embed", &body, patient).await? {
            Answer::Ok(answer) => {
                let vectors = answer["embeddings"].as_array().map(Vec::as_slice).unwrap_or_default();
                if vectors.len() != texts.len() {
                    return Err(server.refused(format!("it gave {} vectors for {} texts", vectors.len(), texts.len())));
                }
                Ok(vectors.iter().map(|vector| numbers(vector).and_then(unit)).collect())
            }
            Answer::Refused(StatusCode::NOT_FOUND, said) if said.contains("model") => Err(self.missing()),
            Answer::Refused(StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _) => {
                self.is_old.store(true, Ordering::Relaxed);
                self.request_old(server, texts, patient).await
            }
            Answer::Refused(status, said) => self.one_by_one(server, texts, status, &said, patient).await,
        }
    }

    async fn request_old(&self, server: &Server, texts: &[String], patient: bool) -> Vectors {
        let mut out = Vec::with_capacity(texts.len());
        for text in texts {
            let body = json!({"model": self.model, "prompt": text, "keep_alive": KEEP_ALIVE});
            match server.post("api/embeddings", &body, patient).await? {
                Answer::Ok(answer) => out.push(numbers(&answer["embedding"]).and_then(unit)),
                Answer::Refused(StatusCode::NOT_FOUND, _) => return Err(self.missing()),
                Answer::Refused(status, _) if status.is_client_error() => out.push(None),
                Answer::Refused(status, _) => return Err(server.refused(format!("HTTP {}", status.as_u16()))),
            }
        }
        Ok(out)
    }

    /// A batch was refused. Each text goes alone, and shorter where its length is the trouble, so that one text cannot
    /// keep the others from being indexed; a text that is refused even so gets no vector.
    async fn one_by_one(
        &self,
        server: &Server,
        texts: &[String],
        status: StatusCode,
        said: &str,
        patient: bool,
    ) -> Vectors {
        let too_long = said.contains("context length") || said.contains("too long") || said.contains("input length");
        if !(too_long || status == StatusCode::BAD_REQUEST || status == StatusCode::INTERNAL_SERVER_ERROR) {
            return Err(server.refused(format!("HTTP {}", status.as_u16())));
        }
        let mut out = Vec::with_capacity(texts.len());
        for text in texts {
            let mut part = text.as_str();
            let mut vector = None;
            for _ in 0..=MAX_HALVINGS {
                let body = json!({"model": self.model, "input": [part], "truncate": true, "keep_alive": KEEP_ALIVE});
                match server.post("api/embed", &body, patient).await? {
                    Answer::Ok(answer) => {
                        vector = numbers(&answer["embeddings"][0]).and_then(unit);
                        break;
                    }
                    Answer::Refused(status, _) if status.is_server_error() && texts.len() == 1 => {
                        return Err(server.refused(format!("HTTP {}", status.as_u16())));
                    }
                    Answer::Refused(..) => {
                        let half = part.char_indices().nth(part.chars().count() / 2).map_or(0, |(at, _)| at);
                        part = &part[..half];
                        if part.is_empty() {
                            break;
                        }
                    }
                }
            }
            out.push(vector);
        }
        Ok(out)
    }
}

impl Embedder for OllamaEmbedder {
    fn is_local(&self) -> bool {
        self.asked.server.is_local()
    }

    fn describe(&self) -> BoxFuture<'_, Result<EmbedderInfo, EmbedError>> {
        Box::pin(async {
            if !matches!(self.asked.server.get("api/version", PROBE).await?, Answer::Ok(_)) {
                return Err(self.asked.server.unreachable());
            }
            let digest = self.digest().await?.unwrap_or_default();
            let dimensions = self.length().await?;
            Ok(EmbedderInfo { id: format!("ollama/{}@{digest}", self.model), dimensions })
        })
    }

    fn embed<'a>(&'a self, texts: &'a [String], purpose: Purpose) -> BoxFuture<'a, Vectors> {
        let request =
            move |server, batch, patient| -> BoxFuture<'a, Vectors> { Box::pin(self.request(server, batch, patient)) };
        Box::pin(self.asked.embed(texts, purpose, request))
    }
}
