//! Vectors from any server with OpenAI's `/embeddings`.

use super::{
    EmbedError, Embedder, EmbedderInfo, Purpose, Vectors,
    http::{Answer, Asked, Server, numbers},
    unit,
};
use crate::config::EmbeddingConfig;
use reqwest::StatusCode;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use toolyard_engine::BoxFuture;

/// Vectors from any server with OpenAI's `/embeddings`.
pub struct OpenAiEmbedder {
    asked: Asked,
    model: String,
    /// Of the last vector seen, 0 before the first: the interface has no other way to tell than to embed something.
    dimensions: AtomicUsize,
}

impl OpenAiEmbedder {
    /// Of this configuration. The key is read from the environment, where a variable is named.
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
        Ok(Self {
            asked: Asked::new("the embedding server", url, config, key)?,
            model: model.clone(),
            dimensions: AtomicUsize::new(0),
        })
    }

    async fn request(&self, server: &Server, texts: &[String], patient: bool) -> Vectors {
        let body = json!({"model": self.model, "input": texts, "encoding_format": "float"});
        match server.post("embeddings", &body, patient).await? {
            Answer::Ok(answer) => {
                let items = answer["data"].as_array().map(Vec::as_slice).unwrap_or_default();
                let mut out: Vec<Option<Vec<f32>>> = vec![None; texts.len()];
                for (place, item) in items.iter().enumerate() {
                    let index = item["index"].as_u64().map_or(place, |index| index as usize);
                    if let Some(slot) = out.get_mut(index) {
                        *slot = numbers(&item["embedding"]).and_then(unit);
                    }
                }
                if items.len() != texts.len() {
                    return Err(server.refused(format!("it gave {} vectors for {} texts", items.len(), texts.len())));
                }
                if let Some(vector) = out.iter().flatten().next() {
                    self.dimensions.store(vector.len(), Ordering::Relaxed);
                }
                Ok(out)
            }
            Answer::Refused(StatusCode::NOT_FOUND, _) => {
                Err(EmbedError::ModelMissing { service: server.service, model: self.model.clone() })
            }
            Answer::Refused(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                Err(server.refused("the key is missing or wrong (knowledge.embedding.apiKeyEnv)"))
            }
            // One text may be too long for the model; the others are not at fault.
            Answer::Refused(StatusCode::BAD_REQUEST, _) if texts.len() > 1 => {
                let mut out = Vec::with_capacity(texts.len());
                for text in texts {
                    match Box::pin(self.request(server, std::slice::from_ref(text), patient)).await {
                        Ok(vectors) => out.extend(vectors),
                        Err(EmbedError::Refused { .. }) => out.push(None),
                        Err(other) => return Err(other),
                    }
                }
                Ok(out)
            }
            Answer::Refused(status, _) => Err(server.refused(format!("HTTP {}", status.as_u16()))),
        }
    }
}

impl Embedder for OpenAiEmbedder {
    fn is_local(&self) -> bool {
        self.asked.server.is_local()
    }

    fn describe(&self) -> BoxFuture<'_, Result<EmbedderInfo, EmbedError>> {
        Box::pin(async {
            if self.dimensions.load(Ordering::Relaxed) == 0 {
                self.request(&self.asked.quick, &["length".to_owned()], false).await?;
            }
            let dimensions = self.dimensions.load(Ordering::Relaxed);
            if dimensions == 0 {
                return Err(self.asked.server.refused("it gave no vector"));
            }
            Ok(EmbedderInfo { id: format!("openai/{}/{}", self.asked.server.url(), self.model), dimensions })
        })
    }

    fn embed<'a>(&'a self, texts: &'a [String], purpose: Purpose) -> BoxFuture<'a, Vectors> {
        let request =
            move |server, batch, patient| -> BoxFuture<'a, Vectors> { Box::pin(self.request(server, batch, patient)) };
        Box::pin(self.asked.embed(texts, purpose, request))
    }
}
