//! Puts the notes together: vault, index, embedder, tools.

use crate::home::Home;
use std::{path::Path, sync::Arc};
use toolyard_engine::{Engine, Provider};
use toolyard_knowledge::{
    Knowledge, KnowledgeConfig, KnowledgeParts, KnowledgeProvider,
    config::{EmbedderKind, EmbeddingConfig},
    embed::{EmbedError, Embedder, OllamaEmbedder, OpenAiEmbedder, StaticTable},
    index::{NoteIndex, hash64},
};
#[cfg(feature = "lance")]
use toolyard_lance::{LanceIndex, LanceOptions};
#[cfg(feature = "lance")]
use toolyard_protocol::ErrorCode;
use toolyard_protocol::Failure;
use toolyard_vault::Vault;

/// The notes of a vault, as configured. Nothing is opened before it is needed.
pub(crate) fn open(
    config: &KnowledgeConfig,
    home: &Home,
    vault_path: &Path,
    vault: Arc<Vault>,
) -> Result<Arc<Knowledge>, Failure> {
    #[cfg(feature = "lance")]
    if let Some(name) = toolyard_lance::unknown_storage_option(config.index.storage_options.keys().map(String::as_str))
    {
        return Err(Failure::new(
            ErrorCode::ConfigInvalid,
            format!("knowledge.index.storageOptions has no option {name:?}"),
        )
        .suggest("Use for example endpoint, region, allow_http or virtual_hosted_style_request."));
    }
    let config = config.clone();
    let folder = folder(home, vault_path);
    let fallback: Arc<dyn Embedder> = Arc::new(StaticTable::new());
    let (embedder, embedder_problem) = match embedder(&config.embedding, &fallback) {
        Ok(embedder) => (embedder, None),
        Err(error) => (None, Some(error)),
    };
    let index = index(&config, home, vault_path);
    Ok(Arc::new(Knowledge::new(KnowledgeParts {
        vault,
        index,
        embedder,
        fallback: Some(fallback),
        embedder_problem,
        config,
        folder,
    })))
}

/// The configured embedder; `None` for full text only.
pub(crate) fn embedder(
    config: &EmbeddingConfig,
    fallback: &Arc<dyn Embedder>,
) -> Result<Option<Arc<dyn Embedder>>, EmbedError> {
    Ok(match config.kind {
        EmbedderKind::Static => Some(fallback.clone()),
        EmbedderKind::Ollama => Some(Arc::new(OllamaEmbedder::new(config)?)),
        EmbedderKind::Openai => Some(Arc::new(OpenAiEmbedder::new(config)?)),
        EmbedderKind::None => None,
    })
}

/// One folder for each vault: two vaults under one home do not share an index.
fn folder(home: &Home, vault: &Path) -> std::path::PathBuf {
    home.index().join(vault_id(vault))
}

fn vault_id(vault: &Path) -> String {
    format!("{:016x}", hash64(&[vault.as_os_str().as_encoded_bytes()]))
}

/// The index of notes: LanceDB, in the folder of the vault or where the configuration says.
#[cfg(feature = "lance")]
fn index(config: &KnowledgeConfig, home: &Home, vault: &Path) -> Arc<dyn NoteIndex> {
    Arc::new(LanceIndex::new(lance_options(config, home, vault)))
}

/// Built without LanceDB, for the daily loop: an index that ends with the process.
#[cfg(not(feature = "lance"))]
fn index(_: &KnowledgeConfig, _: &Home, _: &Path) -> Arc<dyn NoteIndex> {
    Arc::new(toolyard_knowledge::index::memory::MemoryIndex::new())
}

/// An index that is filled, measured and thrown away.
pub(crate) fn scratch_index(folder: &Path) -> Arc<dyn NoteIndex> {
    #[cfg(feature = "lance")]
    return Arc::new(LanceIndex::new(LanceOptions::new(folder.display().to_string())));
    #[cfg(not(feature = "lance"))]
    return {
        let _ = folder;
        Arc::new(toolyard_knowledge::index::memory::MemoryIndex::new())
    };
}

#[cfg(feature = "lance")]
fn lance_options(config: &KnowledgeConfig, home: &Home, vault: &Path) -> LanceOptions {
    let uri = match &config.index.uri {
        Some(uri) if uri.contains("://") => format!("{}/{}", uri.trim_end_matches('/'), vault_id(vault)),
        // The same folder wherever the program is started from.
        Some(path) => {
            let path = home.path().join(crate::config::expand(Path::new(path)));
            path.join(vault_id(vault)).display().to_string()
        }
        None => folder(home, vault).display().to_string(),
    };
    LanceOptions {
        storage_options: config.index.storage_options.clone().into_iter().collect(),
        cache_bytes: config.index.cache_mb << 20,
        keep_versions: config.index.keep_versions,
        vector_memory_bytes: config.index.vector_memory_mb << 20,
        ..LanceOptions::new(uri)
    }
}

/// Adds the four tools, run by the notes, or by nobody while tools are only looked at.
pub(crate) fn register(engine: &Engine, provider: Arc<dyn Provider>) -> Result<(), Failure> {
    crate::wiring::register(engine, toolyard_knowledge::definitions(), provider)
}

/// The tools' provider.
pub(crate) fn provider(knowledge: &Arc<Knowledge>) -> Arc<dyn Provider> {
    Arc::new(KnowledgeProvider::new(knowledge.clone()))
}

#[cfg(all(test, feature = "lance"))]
mod tests {
    use super::*;

    #[test]
    fn an_index_in_a_folder_is_in_the_same_one_wherever_the_program_starts() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::resolve(Some(dir.path())).unwrap();
        let vault = Path::new("/notes");
        let place = |uri: Option<&str>| {
            let mut config = KnowledgeConfig::default();
            config.index.uri = uri.map(str::to_owned);
            lance_options(&config, &home, vault).uri
        };
        let below = |folder: &str| format!("{folder}/{}", vault_id(vault));
        let user = std::env::var("HOME").unwrap();
        assert_eq!(place(None), below(&home.index().display().to_string()));
        assert_eq!(place(Some("/var/idx/")), below("/var/idx"));
        assert_eq!(place(Some("~/idx")), below(&format!("{user}/idx")));
        assert_eq!(place(Some("some/idx")), below(&format!("{}/some/idx", dir.path().display())));
        assert_eq!(place(Some("s3://bucket/prefix/")), below("s3://bucket/prefix"));
        assert_eq!(place(Some("file:///var/idx")), below("file:///var/idx"));
    }
}
