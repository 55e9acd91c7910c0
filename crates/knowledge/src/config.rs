//! The `[knowledge]` table of the configuration. Doc comments here are the configuration reference.

use crate::{
    note::{ChunkSizes, MAX_CHUNK_CHARS, MIN_CHUNK_CHARS},
    sensitive::{Category, Matching},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The searchable index of the notes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KnowledgeConfig {
    /// Whether the `obsidian_rag_*` tools exist.
    pub enabled: bool,
    /// Which notes are indexed, and how.
    pub indexing: IndexingConfig,
    /// The location of the index, and how much memory it may use.
    pub index: IndexConfig,
    /// The embedder, which turns text into vectors.
    pub embedding: EmbeddingConfig,
    /// How results are ranked.
    pub search: SearchConfig,
    /// Which results are withheld until the user confirms.
    pub sensitive: SensitiveConfig,
}

impl Default for KnowledgeConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            indexing: IndexingConfig::default(),
            index: IndexConfig::default(),
            embedding: EmbeddingConfig::default(),
            search: SearchConfig::default(),
            sensitive: SensitiveConfig::default(),
        }
    }
}

/// Which notes are indexed, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IndexingConfig {
    /// Files with these extensions are notes.
    pub extensions: Vec<String>,
    /// If set, only these folders are indexed.
    pub allow_folders: Vec<String>,
    /// Folders that are not indexed. Hidden folders are never indexed.
    pub deny_folders: Vec<String>,
    /// A file in the root of the vault in the format of `.gitignore`. Matching files are not indexed.
    pub ignore_file: String,
    /// Maximum size of a file in bytes. Larger files are skipped.
    #[schemars(range(min = 1024, max = 67_108_864))]
    pub max_file_bytes: u64,
    /// Maximum number of characters in a chunk; 200 to 2000. A longer section is split.
    #[schemars(range(min = 200, max = 2000))]
    pub chunk_chars: usize,
    /// Number of characters that a chunk repeats from the previous one when a section is split.
    #[schemars(range(max = 500))]
    pub chunk_overlap: usize,
    /// Whether a running Toolyard builds the first index, watches the vault, and indexes changes.
    pub watch: bool,
    /// Milliseconds without a further change before changes are indexed.
    #[schemars(range(min = 10, max = 60_000))]
    pub debounce_ms: u64,
    /// Milliseconds after which changes are indexed even if more changes follow.
    #[schemars(range(min = 100, max = 600_000))]
    pub window_ms: u64,
    /// Seconds between two scans of the whole vault, which find changes that the watcher missed.
    #[schemars(range(min = 10, max = 86_400))]
    pub rescan_secs: u64,
}

impl Default for IndexingConfig {
    fn default() -> Self {
        let list = |items: &[&str]| items.iter().map(|i| (*i).to_owned()).collect();
        Self {
            extensions: list(&["md", "markdown", "txt"]),
            allow_folders: Vec::new(),
            deny_folders: list(&[".obsidian", ".trash", ".git", "zzz-Archive"]),
            ignore_file: ".obsidian-ragignore".to_owned(),
            max_file_bytes: 8 << 20,
            chunk_chars: 1_500,
            chunk_overlap: 100,
            watch: true,
            debounce_ms: 250,
            window_ms: 5_000,
            rescan_secs: 600,
        }
    }
}

impl IndexingConfig {
    /// The chunk sizes.
    pub fn sizes(&self) -> ChunkSizes {
        ChunkSizes { chars: self.chunk_chars, overlap: self.chunk_overlap }
    }
}

/// The location of the index, and how much memory it may use.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IndexConfig {
    /// A folder or an object store (`s3://bucket/prefix`). `~/` is the user's home; a relative folder is inside
    /// TOOLYARD_HOME. Unset: `index` inside TOOLYARD_HOME.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "url"))]
    pub uri: Option<String>,
    /// Options for the object store, for example `endpoint` and `region`. Credentials come from the environment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-secret" = "value"))]
    pub storage_options: BTreeMap<String, String>,
    /// Megabytes of memory for vectors, with 8 bits for each dimension. While the vectors fit, they are searched
    /// exactly; otherwise LanceDB's vector index is used.
    #[schemars(range(max = 1_048_576))]
    pub vector_memory_mb: u64,
    /// Megabytes of LanceDB's own caches.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub cache_mb: u64,
    /// Number of complete versions that are kept for `toolyard vault rollback`.
    #[schemars(range(min = 2, max = 1000))]
    pub keep_versions: usize,
    /// The program that keeps the index. Unset: `toolyard-index` beside `toolyard`, otherwise in `PATH`.
    /// `index.program` is an alias for this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Seconds without a search or an indexing job after which the index program is stopped. It is started again when
    /// it is needed.
    #[schemars(range(min = 1, max = 86_400))]
    pub idle_secs: u64,
}

impl std::fmt::Debug for IndexConfig {
    /// Omits fields that may contain secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexConfig")
            .field("vector_memory_mb", &self.vector_memory_mb)
            .field("cache_mb", &self.cache_mb)
            .finish_non_exhaustive()
    }
}

impl Default for IndexConfig {
    fn default() -> Self {
        Self {
            uri: None,
            storage_options: BTreeMap::new(),
            vector_memory_mb: 128,
            cache_mb: 64,
            keep_versions: 5,
            program: None,
            idle_secs: toolyard_noteindex::remote::IDLE_STOP.as_secs(),
        }
    }
}

/// The kind of embedder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EmbedderKind {
    /// The built-in static table: no server, and no text leaves the process.
    #[default]
    Static,
    /// An Ollama server.
    Ollama,
    /// Any server with OpenAI's `/embeddings` interface.
    Openai,
    /// Full text only.
    None,
}

/// The embedder, which turns text into vectors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EmbeddingConfig {
    /// `static` (the default), `ollama`, `openai` or `none`.
    pub kind: EmbedderKind,
    /// The server's address. Required for `openai`; unset for Ollama: `http://127.0.0.1:11434`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "url"))]
    pub url: Option<String>,
    /// The model. Required for `openai`; unset for Ollama: `mxbai-embed-large`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The environment variable that holds the key for an `openai` server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "variable"))]
    pub api_key_env: Option<String>,
    /// Whether the server may be on another machine. Sensitive text is never sent to another machine.
    pub allow_remote: bool,
    /// Number of texts in one request.
    #[schemars(range(min = 1, max = 1024))]
    pub batch: usize,
    /// Milliseconds that one request may take.
    #[schemars(range(min = 100, max = 600_000))]
    pub timeout_ms: u64,
}

impl Default for EmbeddingConfig {
    fn default() -> Self {
        Self {
            kind: EmbedderKind::Static,
            url: None,
            model: None,
            api_key_env: None,
            allow_remote: false,
            batch: 32,
            timeout_ms: 60_000,
        }
    }
}

/// How results are ranked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SearchConfig {
    /// The weight of vector similarity compared with full text; 0 to 1. Unset: a value that suits the embedder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub vector_weight: Option<f32>,
    /// The weight of links from other notes; 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub link_weight: f32,
    /// Seconds after the last sync when the index counts as stale, if the vault has changed since.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub stale_after_secs: u64,
}

impl Default for SearchConfig {
    fn default() -> Self {
        Self { vector_weight: None, link_weight: 0.02, stale_after_secs: 3_600 }
    }
}

/// Which results are withheld until the user confirms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SensitiveConfig {
    /// Results of these categories are withheld unless the search sets `confirm_sensitive`. The default is `secrets`:
    /// keys, tokens, passwords and card numbers. With an empty list, everything is flagged and nothing is withheld.
    pub require_confirmation_for: Vec<Category>,
    /// `words` (default) or `strict`, which also matches parts of words.
    pub matching: Matching,
    /// Headings whose sections belong to the category `relations`.
    pub sections: Vec<String>,
}

impl Default for SensitiveConfig {
    fn default() -> Self {
        Self { require_confirmation_for: vec![Category::Secrets], matching: Matching::default(), sections: Vec::new() }
    }
}

/// Supported URI schemes of locations that are not plain folders.
const SCHEMES: [&str; 2] = ["file", "s3"];

impl IndexConfig {
    fn check(&self) -> Result<(), String> {
        let options = self.storage_options.keys().map(String::as_str);
        if let Some(name) = toolyard_noteindex::storage::unknown_option(options) {
            return Err(format!(
                "knowledge.index.storageOptions has no option {name:?}; use for example endpoint, region, allow_http or \
                 virtual_hosted_style_request"
            ));
        }
        let Some(uri) = &self.uri else { return Ok(()) };
        let known = "it must be a folder, file:///FOLDER or s3://BUCKET/PREFIX";
        match uri.split_once("://") {
            None if uri.trim().is_empty() => Err(format!("knowledge.index.uri is empty; {known}")),
            Some((scheme, _)) if !SCHEMES.contains(&scheme) => {
                Err(format!("knowledge.index.uri begins with {scheme}://, which is not supported; {known}"))
            }
            Some((_, "" | "/")) => Err(format!("knowledge.index.uri names no place; {known}")),
            Some(("file", path)) if !path.starts_with('/') => {
                Err(format!("knowledge.index.uri names a folder on another machine; {known}"))
            }
            _ => Ok(()),
        }
    }
}

impl KnowledgeConfig {
    /// Validates the configuration.
    pub fn check(&self) -> Result<(), String> {
        let range = |key: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("knowledge.{key} is {value}; it must be {least} to {most}"))
            }
        };
        let i = &self.indexing;
        range("indexing.maxFileBytes", i.max_file_bytes, 1024, 64 << 20)?;
        range("indexing.chunkChars", i.chunk_chars as u64, MIN_CHUNK_CHARS as u64, MAX_CHUNK_CHARS as u64)?;
        range("indexing.chunkOverlap", i.chunk_overlap as u64, 0, 500)?;
        range("indexing.debounceMs", i.debounce_ms, 10, 60_000)?;
        range("indexing.windowMs", i.window_ms, 100, 600_000)?;
        range("indexing.rescanSecs", i.rescan_secs, 10, 86_400)?;
        range("index.vectorMemoryMb", self.index.vector_memory_mb, 0, 1 << 20)?;
        range("index.cacheMb", self.index.cache_mb, 1, 1 << 20)?;
        range("index.idleSecs", self.index.idle_secs, 1, 86_400)?;
        range("index.keepVersions", self.index.keep_versions as u64, 2, 1000)?;
        self.index.check()?;
        range("embedding.batch", self.embedding.batch as u64, 1, 1024)?;
        range("embedding.timeoutMs", self.embedding.timeout_ms, 100, 600_000)?;
        range("search.staleAfterSecs", self.search.stale_after_secs, 1, 31_536_000)?;
        for (key, value) in
            [("vectorWeight", self.search.vector_weight.unwrap_or(0.0)), ("linkWeight", self.search.link_weight)]
        {
            if !(0.0..=1.0).contains(&value) {
                return Err(format!("knowledge.search.{key} is {value}; it must be 0 to 1"));
            }
        }
        if self.embedding.kind == EmbedderKind::Openai
            && (self.embedding.url.is_none() || self.embedding.model.is_none())
        {
            return Err("knowledge.embedding needs url and model for kind \"openai\"".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_cannot_be_reached_are_refused_by_their_scheme() {
        let check = |uri: &str| {
            let index = IndexConfig { uri: Some(uri.to_owned()), ..IndexConfig::default() };
            KnowledgeConfig { index, ..KnowledgeConfig::default() }.check()
        };
        for good in ["/var/idx", "~/idx", "idx", "file:///var/idx", "s3://bucket", "s3://bucket/some/prefix"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["gs://bucket", "az://x", "http://host/x", "S4://x", "", "  ", "s3://", "file://", "file://host/x"] {
            let why = check(bad).unwrap_err();
            assert!(why.starts_with("knowledge.index.uri") && why.contains("s3://BUCKET"), "{bad}: {why}");
        }
    }
}
