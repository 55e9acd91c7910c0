//! [`Embedder`]: turns text into vectors. The static table, Ollama, and servers with OpenAI's interface implement this
//! trait.

mod http;
mod ollama;
mod openai;
mod remote;
mod table;

pub use ollama::{DEFAULT_OLLAMA_MODEL, DEFAULT_OLLAMA_URL, OllamaEmbedder, OllamaProbe};
pub use openai::OpenAiEmbedder;
pub use table::StaticTable;

use std::{sync::Arc, time::Duration};
use toolyard_engine::BoxFuture;

/// The longest time that a search waits for a server: a probe, a request for the vector length, and the request for the
/// query vector.
pub(crate) const LONGEST_WAIT: Duration = http::PROBE.saturating_add(remote::QUERY).saturating_add(remote::QUERY);

/// Maximum number of dimensions; a longer vector is a server error.
pub const MAX_DIMENSIONS: usize = 16_384;

/// The identity of an embedder, to decide whether two vectors can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedderInfo {
    /// Identifies kind, model and, where known, the model's digest.
    pub id: String,
    /// Number of dimensions of its vectors.
    pub dimensions: usize,
}

/// The purpose of an embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// For a passage that is indexed: part of a background job, so it may take long.
    Passage,
    /// For a query: a caller waits.
    Query,
}

/// Why embedding failed. Messages never contain the text to embed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// The server does not respond, or not in time.
    #[error("{service} at {url} does not answer")]
    Unreachable {
        /// Ollama, or the embedding server.
        service: &'static str,
        /// The URL of the server.
        url: String,
        /// The underlying causes, for logs.
        causes: Option<String>,
    },
    /// The server does not have the model.
    #[error("{service} does not have the model {model:?}")]
    ModelMissing {
        /// Ollama, or the embedding server.
        service: &'static str,
        /// The model.
        model: String,
    },
    /// The server's response contains no vectors.
    #[error("{service} refused: {reason}")]
    Refused {
        /// Ollama, or the embedding server.
        service: &'static str,
        /// Our own description of the problem.
        reason: String,
    },
    /// The server is on another machine without permission, or the text must not leave this machine.
    #[error("{0}")]
    NotAllowed(String),
}

/// Vectors in the order of the texts; `None` for a text that the embedder does not know or cannot process.
pub type Vectors = Result<Vec<Option<Vec<f32>>>, EmbedError>;

/// Turns text into vectors.
pub trait Embedder: Send + Sync + 'static {
    /// Whether text stays on this machine.
    fn is_local(&self) -> bool;

    /// The identity of the embedder. Asks the server, if there is one; fails if it cannot be reached.
    fn describe(&self) -> BoxFuture<'_, Result<EmbedderInfo, EmbedError>>;

    /// Embeds the texts.
    fn embed<'a>(&'a self, texts: &'a [String], purpose: Purpose) -> BoxFuture<'a, Vectors>;

    /// The same embedder, adapted to the notes, of which these are samples: its vectors for queries are better, those
    /// for passages are the same. `None` if the embedder does not support this.
    fn attuned(&self, _samples: &[String]) -> Option<Arc<dyn Embedder>> {
        None
    }
}

/// Normalises to unit length; `None` for a zero vector or one with values that are not finite.
pub fn unit(mut vector: Vec<f32>) -> Option<Vec<f32>> {
    let length = vector.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt();
    if !length.is_finite() || length < 1e-12 {
        return None;
    }
    vector.iter_mut().for_each(|v| *v = (f64::from(*v) / length) as f32);
    Some(vector)
}
