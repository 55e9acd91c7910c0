//! How [`Knowledge`] creates query vectors: which embedder matches the index, how it is cached, and what happens while
//! it does not respond.

use super::{
    EMBEDDER_KNOWN_FOR, Embedded, Knowledge, MODEL_VECTOR_WEIGHT, SAMPLES, STATIC_VECTOR_WEIGHT, TunedEmbedder,
};
use crate::{
    config::SearchConfig,
    embed::{EmbedError, Embedder, EmbedderInfo, Purpose},
    envelope::Problem,
    index::{IndexReader, IndexSpec},
    search::{Library, Weights},
};
use std::{sync::Arc, time::Instant};

impl Knowledge {
    /// The weights of the score components.
    pub fn weights(&self, spec: &IndexSpec) -> Weights {
        Weights { vector: vector_weight(&self.config.search, &spec.embedder), links: self.config.search.link_weight }
    }

    /// The identity of the embedder, or why it cannot be determined. Cached for a while.
    pub async fn embedder_info(&self) -> Option<Result<EmbedderInfo, EmbedError>> {
        if let Some(problem) = &self.embedder_problem {
            return Some(Err(problem.clone()));
        }
        let embedder = self.embedder.as_ref()?;
        let known = self.with_cache(|cache| cache.embedder.clone());
        if let Some((at, known)) = known
            && at.elapsed() < EMBEDDER_KNOWN_FOR
        {
            return Some(known);
        }
        Some(self.ask_embedder(&**embedder).await)
    }

    pub(super) async fn ask_embedder(&self, embedder: &dyn Embedder) -> Result<EmbedderInfo, EmbedError> {
        let info = embedder.describe().await;
        self.with_cache(|cache| cache.embedder = Some((Instant::now(), info.clone())));
        info
    }

    /// The vector of a query, created with the embedder that built the index.
    pub(crate) async fn embed_question(&self, library: &Library, text: &str) -> Embedded {
        let spec = &library.info().spec;
        let none = |problem: Option<Problem>| Embedded { vector: None, problem };
        let configured = self.embedder_info().await;
        let is_down = match &configured {
            Some(Err(error)) => Some(Problem::of_embedder(error)),
            _ => None,
        };
        if spec.dimensions == 0 {
            // An index without vectors is complete if no embedder is configured.
            return none(match configured {
                None => None,
                Some(Ok(_)) => Some(Problem::other_embedder(self.jobs.active().is_some())),
                Some(Err(_)) => is_down,
            });
        }
        let embedder = match (&configured, &self.embedder) {
            (Some(Ok(info)), Some(embedder)) if fits(info, spec) => embedder,
            _ => match self.fallback_for(spec).await {
                Some(fallback) => fallback,
                None if is_down.is_some() => return none(is_down),
                None => return none(Some(Problem::other_embedder(self.jobs.active().is_some()))),
            },
        };
        if !embedder.is_local() && !self.guard.categories(text, None, &[]).is_empty() {
            // Sensitive text must not leave the machine, so the query uses full text only. This is not a problem to
            // report.
            return none(None);
        }
        let embedder = self.attuned(embedder, &library.reader).await;
        match embedder.embed(&[text.to_owned()], Purpose::Query).await {
            Ok(vectors) => match vectors.into_iter().next().flatten() {
                Some(vector) if vector.len() != spec.dimensions => {
                    // The model behind the name has changed, so the cached information is invalid.
                    self.with_cache(|cache| cache.embedder = None);
                    none(Some(Problem::other_embedder(self.jobs.active().is_some())))
                }
                vector => Embedded { vector, problem: is_down },
            },
            Err(error) => {
                self.with_cache(|cache| cache.embedder = Some((Instant::now(), Err(error.clone()))));
                none(Some(Problem::of_embedder(&error)))
            }
        }
    }

    /// The embedder adapted to the notes, if it supports that. It is adapted again when their number has changed by
    /// more than a tenth.
    async fn attuned(&self, embedder: &Arc<dyn Embedder>, reader: &Arc<dyn IndexReader>) -> Arc<dyn Embedder> {
        let info = reader.info();
        let known = self.with_cache(|cache| match &cache.attuned {
            Some(known)
                if known.embedder == info.spec.embedder && known.chunks.abs_diff(info.chunks) * 10 <= info.chunks =>
            {
                Some(known.to.clone())
            }
            _ => None,
        });
        if let Some(known) = known {
            return known;
        }
        let to = match reader.sample(SAMPLES).await {
            Ok(samples) => {
                let embedder = embedder.clone();
                tokio::task::spawn_blocking(move || embedder.attuned(&samples)).await.ok().flatten()
            }
            Err(_) => None,
        };
        let to = to.unwrap_or_else(|| embedder.clone());
        let attuned = TunedEmbedder { embedder: info.spec.embedder.clone(), chunks: info.chunks, to: to.clone() };
        self.with_cache(|cache| cache.attuned = Some(attuned));
        to
    }

    /// Adapts the embedder in advance for searches of this version, if it is a local one.
    pub(super) async fn attune_ahead(&self, reader: &Arc<dyn IndexReader>) {
        let Some(embedder) = self.embedder.as_ref().filter(|embedder| embedder.is_local()) else { return };
        if let Some(Ok(info)) = self.embedder_info().await
            && fits(&info, &reader.info().spec)
        {
            self.attuned(embedder, reader).await;
        }
    }

    async fn fallback_for(&self, spec: &IndexSpec) -> Option<&Arc<dyn Embedder>> {
        let fallback = self.fallback.as_ref()?;
        let info = fallback.describe().await.ok()?;
        fits(&info, spec).then_some(fallback)
    }
}

/// The weight of an embedder's vectors relative to full text.
pub fn vector_weight(config: &SearchConfig, embedder: &str) -> f32 {
    let usual = if embedder.starts_with("static/") { STATIC_VECTOR_WEIGHT } else { MODEL_VECTOR_WEIGHT };
    config.vector_weight.unwrap_or(usual)
}

/// Whether an embedder's vectors can be compared with those of an index.
pub(super) fn fits(info: &EmbedderInfo, spec: &IndexSpec) -> bool {
    info.id == spec.embedder && info.dimensions == spec.dimensions
}
