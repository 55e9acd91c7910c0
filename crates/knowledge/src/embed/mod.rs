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

/// The longest that a search waits for a server: it looks whether it is there, finds out the length of its vectors, and asks
/// for the question's.
pub(crate) const LONGEST_WAIT: Duration = http::PROBE.saturating_add(remote::QUERY).saturating_add(remote::QUERY);

/// A vector is at most this long: more is a mistake, not a model.
pub const MAX_DIMENSIONS: usize = 16_384;

/// The identity of an embedder, to decide whether two vectors can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedderInfo {
    /// Names kind, model and, where known, the model's digest.
    pub id: String,
    /// Length of its vectors.
    pub dimensions: usize,
}

/// The purpose of an embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be found: part of a job, so it may take its time.
    Passage,
    /// For a query: a caller waits.
    Query,
}

/// Why there are no vectors. Messages hold no text that was to be embedded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// The server does not answer, or not in time.
    #[error("{service} at {url} does not answer")]
    Unreachable {
        /// Ollama, or the embedding server.
        service: &'static str,
        /// Where it was looked for.
        url: String,
        /// What lies behind it, for logs.
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
        /// In our words.
        reason: String,
    },
    /// The server is on another machine and that was not allowed, or the text must not leave this one.
    #[error("{0}")]
    NotAllowed(String),
}

/// Vectors in the order of the texts; none for a text the embedder knows nothing of or cannot take.
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
    fn attuned(&self, samples: &[String]) -> Option<Arc<dyn Embedder>> {
        let _ = samples;
        None
    }
}

/// Scales to unit length; `None` for a vector without direction or with something that is no number.
pub fn unit(mut vector: Vec<f32>) -> Option<Vec<f32>> {
    let length = vector.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt();
    if !length.is_finite() || length < 1e-12 {
        return None;
    }
    vector.iter_mut().for_each(|v| *v = (f64::from(*v) / length) as f32);
    Some(vector)
}
