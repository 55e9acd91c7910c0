//! Vectors from any server with OpenAI's `/embeddings`.

use super::{
    EmbedError, Embedder, EmbedderInfo, Purpose, Vectors,
    http::{HttpOutcome, PROBE, Server, numbers},
    remote::{Attempt, Interface, RemoteEmbedder, without_vectors},
};
use crate::config::EmbeddingConfig;
use reqwest::StatusCode;
use serde_json::json;
use toolyard_engine::BoxFuture;

/// Vectors from any server with OpenAI's `/embeddings`.
pub struct OpenAiEmbedder {
    asked: RemoteEmbedder<Api>,
    model: String,
}

struct Api {
    model: String,
}

impl OpenAiEmbedder {
    /// For this configuration. The key is read from the environment variable, if one is named.
    pub fn new(config: &EmbeddingConfig) -> Result<Self, EmbedError> {
        let (Some(url), Some(model)) = (&config.url, &config.model) else {
            return Err(EmbedError::NotAllowed("knowledge.embedding needs url and model".to_owned()));
        };
        let key = match &config.api_key_env {
            Some(name) => Some(std::env::var(name).map_err(|_| {
                EmbedError::NotAllowed(format!(
                    "the environment variable {name} (knowledge.embedding.apiKeyEnv) is not set"
                ))
            })?),
            None => None,
        };
        let api = Api { model: model.clone() };
        Ok(Self { asked: RemoteEmbedder::new("the embedding server", url, config, key, api)?, model: model.clone() })
    }

    /// The length of the vectors, which also checks that the server answers. The interface reports the length only by
    /// embedding something; when it is known, the list of models is requested instead, which costs nothing. If the
    /// server has no such list, a word is embedded.
    async fn length(&self) -> Result<usize, EmbedError> {
        match self.asked.length() {
            Some(length) if matches!(self.asked.quick.get("models", PROBE).await, Ok(HttpOutcome::Ok(_))) => Ok(length),
            _ => self.asked.measure().await,
        }
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
            let body = json!({"model": self.model, "input": texts, "encoding_format": "float"});
            match server.post("embeddings", &body, patient).await? {
                HttpOutcome::Ok(answer) => {
                    let items = answer["data"].as_array().map(Vec::as_slice).unwrap_or_default();
                    if items.len() != texts.len() {
                        let reason = format!("it gave {} vectors for {} texts", items.len(), texts.len());
                        return Ok(Attempt::Refused(server.refused(reason)));
                    }
                    let mut out: Vec<Option<Vec<f32>>> = vec![None; texts.len()];
                    for (place, item) in items.iter().enumerate() {
                        let index = item["index"].as_u64().map_or(place, |index| index as usize);
                        if let Some(slot) = out.get_mut(index) {
                            *slot = numbers(&item["embedding"]);
                        }
                    }
                    Ok(Attempt::Vectors(out))
                }
                HttpOutcome::Refused(StatusCode::NOT_FOUND, _) => {
                    Err(EmbedError::ModelMissing { service: server.service, model: self.model.clone() })
                }
                HttpOutcome::Refused(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                    Err(server.refused("the key is missing or wrong (knowledge.embedding.apiKeyEnv)"))
                }
                other => without_vectors(server, &other),
            }
        })
    }
}

impl Embedder for OpenAiEmbedder {
    fn is_local(&self) -> bool {
        self.asked.server.is_local()
    }

    fn describe(&self) -> BoxFuture<'_, Result<EmbedderInfo, EmbedError>> {
        Box::pin(async {
            let dimensions = self.length().await?;
            Ok(EmbedderInfo { id: format!("openai/{}/{}", self.asked.server.url(), self.model), dimensions })
        })
    }

    fn embed<'a>(&'a self, texts: &'a [String], purpose: Purpose) -> BoxFuture<'a, Vectors> {
        Box::pin(self.asked.embed(texts, purpose))
    }
}
