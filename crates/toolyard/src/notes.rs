//! Connects the parts of the notes: vault, index, embedder, tools.

use crate::{config::Resolved, home::Home, index_program::IndexProgram};
use std::{
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use toolyard_engine::{Engine, Provider};
use toolyard_knowledge::{
    Knowledge, KnowledgeConfig, KnowledgeParts, KnowledgeProvider,
    config::{EmbedderKind, EmbeddingConfig},
    embed::{EmbedError, Embedder, OllamaEmbedder, OpenAiEmbedder, StaticTable},
    index::{
        NoteIndex,
        fallback::FallbackIndex,
        hash64,
        remote::{ProgramLocator, RemoteIndex},
        storage::ENVIRONMENT_PREFIX,
        wire::OpenIndex,
    },
};
use toolyard_protocol::Failure;
use toolyard_vault::Vault;

/// The environment variable that names the index program; it takes precedence over the configuration.
pub(crate) const PROGRAM_VARIABLE: &str = "TOOLYARD_INDEX_PROGRAM";

/// The notes of a vault, as configured. Nothing is opened before it is needed.
pub(crate) fn open(config: &KnowledgeConfig, home: &Home, vault_path: &Path, vault: Arc<Vault>) -> Arc<Knowledge> {
    let config = config.clone();
    let folder = folder(home, vault_path);
    let fallback: Arc<dyn Embedder> = Arc::new(StaticTable::new());
    let (embedder, embedder_problem) = match embedder(&config.embedding, &fallback) {
        Ok(embedder) => (embedder, None),
        Err(error) => (None, Some(error)),
    };
    let index = index(&config, home, vault_path);
    Arc::new(Knowledge::new(KnowledgeParts {
        vault,
        index,
        embedder,
        fallback: Some(fallback),
        embedder_problem,
        config,
        folder,
    }))
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

/// Whether the vault has an index, without starting the index program. An index in an object store is assumed to exist.
pub(crate) fn has_index(config: &KnowledgeConfig, resolved: &Resolved) -> bool {
    let place = IndexLocation::new(config, &resolved.home, &resolved.vault);
    let is_filled = |folder: PathBuf| {
        std::fs::read_dir(folder).is_ok_and(|mut found| found.any(|e| e.is_ok_and(|e| e.path().is_dir())))
    };
    place.folder.is_none_or(is_filled)
}

fn vault_id(vault: &Path) -> String {
    format!("{:016x}", hash64(&[vault.as_os_str().as_encoded_bytes()]))
}

/// The index of notes: kept by the index program, in the folder of the vault or where the configuration says.
fn index(config: &KnowledgeConfig, home: &Home, vault: &Path) -> Arc<dyn NoteIndex> {
    let place = IndexLocation::new(config, home, vault);
    Arc::new(FallbackIndex::new(remote(config, home, place)))
}

/// An index that is filled, measured and thrown away.
pub(crate) fn scratch_index(config: &KnowledgeConfig, home: &Home, folder: &Path) -> Arc<dyn NoteIndex> {
    let place = IndexLocation { uri: folder.display().to_string(), folder: Some(folder.to_owned()) };
    Arc::new(remote(config, home, place))
}

fn remote(config: &KnowledgeConfig, home: &Home, place: IndexLocation) -> RemoteIndex {
    let named = std::env::var(PROGRAM_VARIABLE).ok().or_else(|| config.index.program.clone());
    let program = named.map(|path| home.path().join(crate::config::expand(Path::new(&path))));
    let launch =
        IndexProgram::new(ProgramLocator::new(program), place.folder.clone(), home.path().join("tmp").join("index"));
    let environment = if place.folder.is_some() { Vec::new() } else { object_store_environment() };
    let open = OpenIndex {
        storage_options: config.index.storage_options.clone().into_iter().collect(),
        environment,
        cache_bytes: config.index.cache_mb << 20,
        keep_versions: u32::try_from(config.index.keep_versions).unwrap_or(u32::MAX),
        vector_memory_bytes: config.index.vector_memory_mb << 20,
        ..OpenIndex::new(place.uri)
    };
    let remote = RemoteIndex::new(launch, open, Duration::from_secs(config.index.idle_secs));
    match place.folder {
        Some(folder) => remote.in_folder(folder),
        None => remote,
    }
}

/// The variables of this process's environment that configure the object store. The index program does not inherit the
/// environment.
fn object_store_environment() -> Vec<(String, String)> {
    std::env::vars().filter(|(name, _)| name.starts_with(ENVIRONMENT_PREFIX)).collect()
}

/// The place of an index.
struct IndexLocation {
    uri: String,
    /// The folder, where it is one of this machine.
    folder: Option<PathBuf>,
}

impl IndexLocation {
    fn new(config: &KnowledgeConfig, home: &Home, vault: &Path) -> Self {
        let local = |folder: PathBuf| Self { uri: folder.display().to_string(), folder: Some(folder) };
        match &config.index.uri {
            Some(uri) if uri.contains("://") => {
                let uri = format!("{}/{}", uri.trim_end_matches('/'), vault_id(vault));
                let folder = uri.strip_prefix("file://").map(unescaped);
                Self { uri, folder }
            }
            // Relative paths are resolved against the home, so that the working directory does not matter.
            Some(path) => local(home.path().join(crate::config::expand(Path::new(path))).join(vault_id(vault))),
            None => local(folder(home, vault)),
        }
    }
}

/// The path in a `file://` address, whose odd characters are written as `%20` and so on.
fn unescaped(path: &str) -> PathBuf {
    let bytes = path.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.filter(|_| bytes[at] == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(plain))
}

/// Registers the four tools with their provider, which is a placeholder when tools are only listed.
pub(crate) fn register(engine: &Engine, provider: Arc<dyn Provider>) -> Result<(), Failure> {
    let entries = toolyard_knowledge::entries().map_err(crate::wiring::refused)?;
    engine.register(entries, provider).map_err(crate::wiring::refused)
}

/// The tools' provider.
pub(crate) fn provider(knowledge: &Arc<Knowledge>) -> Arc<dyn Provider> {
    Arc::new(KnowledgeProvider::new(knowledge.clone()))
}

#[cfg(test)]
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
            IndexLocation::new(&config, &home, vault).uri
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

    /// The sandbox grants this folder, so it must be the one that the index program opens.
    #[test]
    fn the_folder_of_a_file_address_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::resolve(Some(dir.path())).unwrap();
        let vault = Path::new("/notes");
        let mut config = KnowledgeConfig::default();
        config.index.uri = Some("file:///var/an%20index/100%".to_owned());
        let folder = IndexLocation::new(&config, &home, vault).folder;
        assert_eq!(folder, Some(Path::new("/var/an index/100%").join(vault_id(vault))));
        config.index.uri = Some("s3://bucket/prefix".to_owned());
        assert_eq!(IndexLocation::new(&config, &home, vault).folder, None);
    }
}
