//! A vault in a temporary folder with all services, called through the engine.

use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tempfile::TempDir;
use toolyard_catalog::Policy;
use toolyard_engine::{
    BoxFuture, CallRequest, Caller, Engine, EngineOptions, EngineParts, chain::Signer, memory_store::MemoryStore,
    system_clock,
};
use toolyard_knowledge::{
    Knowledge, KnowledgeConfig, KnowledgeParts, KnowledgeProvider,
    embed::{EmbedError, Embedder, EmbedderInfo, Purpose, Vectors, unit},
    index::{NoteIndex, hash64, memory::MemoryIndex},
};
use toolyard_vault::{Vault, VaultOptions};

/// Timeout of every wait, longer than needed even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Compiled output schemas, against which every response of every test is validated.
static OUTPUT_SCHEMAS: LazyLock<HashMap<String, jsonschema::Validator>> = LazyLock::new(|| {
    toolyard_knowledge::definitions()
        .unwrap()
        .into_iter()
        .map(|d| (d.name.to_string(), jsonschema::validator_for(&d.output_schema.unwrap().value()).unwrap()))
        .collect()
});

/// A real embedder without a model: hashed character trigrams. Texts that share words have similar vectors.
pub(crate) struct Trigrams(pub(crate) usize);

pub(crate) fn trigrams(text: &str, dimensions: usize) -> Option<Vec<f32>> {
    let chars: Vec<char> = format!(" {} ", text.to_lowercase()).chars().collect();
    let mut vector = vec![0.0f32; dimensions];
    for gram in chars.windows(3) {
        let hash = hash64(&[gram.iter().collect::<String>().as_bytes()]);
        let sign = if hash & 1 == 0 { 1.0 } else { -1.0 };
        vector[(hash >> 1) as usize % dimensions] += sign;
    }
    unit(vector)
}

impl Embedder for Trigrams {
    fn is_local(&self) -> bool {
        true
    }
    fn describe(&self) -> BoxFuture<'_, Result<EmbedderInfo, EmbedError>> {
        Box::pin(async { Ok(EmbedderInfo { id: format!("trigrams/{}", self.0), dimensions: self.0 }) })
    }
    fn embed<'a>(&'a self, texts: &'a [String], _: Purpose) -> BoxFuture<'a, Vectors> {
        Box::pin(async move { Ok(texts.iter().map(|text| trigrams(text, self.0)).collect()) })
    }
}

/// An embedder that counts its texts and can be made to hang, reject a text, or panic.
pub(crate) struct Watched {
    pub(crate) passages: AtomicUsize,
    pub(crate) panic: AtomicBool,
    hold_from: AtomicUsize,
}

impl Watched {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            passages: AtomicUsize::new(0),
            panic: AtomicBool::new(false),
            hold_from: AtomicUsize::new(usize::MAX),
        })
    }

    /// Hangs after this many embedded passages.
    pub(crate) fn hold_from(&self, passages: usize) {
        self.hold_from.store(passages, Ordering::SeqCst);
    }
}

/// A text that [`Watched`] rejects.
pub(crate) const POISON: &str = "poison";

impl Embedder for Watched {
    fn is_local(&self) -> bool {
        true
    }
    fn describe(&self) -> BoxFuture<'_, Result<EmbedderInfo, EmbedError>> {
        Box::pin(async { Ok(EmbedderInfo { id: "watched".to_owned(), dimensions: 32 }) })
    }
    fn embed<'a>(&'a self, texts: &'a [String], purpose: Purpose) -> BoxFuture<'a, Vectors> {
        Box::pin(async move {
            if purpose == Purpose::Passage {
                assert!(!self.panic.load(Ordering::SeqCst), "told to go down");
                while self.passages.load(Ordering::SeqCst) >= self.hold_from.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                if texts.iter().any(|text| text.contains(POISON)) {
                    return Err(EmbedError::Refused { service: "Watched", reason: "it cannot".to_owned() });
                }
                self.passages.fetch_add(texts.len(), Ordering::SeqCst);
            }
            Ok(texts.iter().map(|text| trigrams(text, 32)).collect())
        })
    }
}

/// A lab with a [`Watched`] embedder.
pub(crate) fn watched() -> (Lab, Arc<Watched>) {
    let embedder = Watched::new();
    (Lab::with(KnowledgeConfig::default(), Some(embedder.clone())), embedder)
}

pub(crate) struct Lab {
    pub(crate) dir: TempDir,
    pub(crate) index: Arc<dyn NoteIndex>,
    pub(crate) knowledge: Arc<Knowledge>,
    pub(crate) engine: Engine,
    pub(crate) policy: Value,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::with(KnowledgeConfig::default(), Some(Arc::new(Trigrams(64))))
    }

    pub(crate) fn with(config: KnowledgeConfig, embedder: Option<Arc<dyn Embedder>>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("vault")).unwrap();
        Self::over(dir, Arc::new(MemoryIndex::new()), config, embedder, json!({}))
    }

    pub(crate) fn over(
        dir: TempDir,
        index: Arc<dyn NoteIndex>,
        config: KnowledgeConfig,
        embedder: Option<Arc<dyn Embedder>>,
        policy: Value,
    ) -> Self {
        let knowledge = knowledge(dir.path(), index.clone(), config, embedder, None);
        Self::around(dir, index, knowledge, policy)
    }

    /// The same vault and index with an embedder that cannot be created.
    pub(crate) fn misconfigured(self, problem: EmbedError) -> Self {
        let config = KnowledgeConfig::default();
        let knowledge = knowledge(self.dir.path(), self.index.clone(), config, None, Some(problem));
        Self::around(self.dir, self.index, knowledge, self.policy)
    }

    /// The same vault and index, opened concurrently as by another process.
    pub(crate) fn beside(&self, embedder: Arc<dyn Embedder>) -> Arc<Knowledge> {
        knowledge(self.dir.path(), self.index.clone(), KnowledgeConfig::default(), Some(embedder), None)
    }

    fn around(dir: TempDir, index: Arc<dyn NoteIndex>, knowledge: Arc<Knowledge>, policy: Value) -> Self {
        let engine = Engine::new(EngineParts {
            store: Arc::new(MemoryStore::new()),
            signer: Signer::from_secret("test", &[7; 32]),
            policy: Policy::compile(&serde_json::from_value(policy.clone()).unwrap()).unwrap(),
            clock: system_clock(),
            options: EngineOptions::default(),
        });
        let entries = toolyard_knowledge::entries().unwrap();
        engine.register(entries, Arc::new(KnowledgeProvider::new(knowledge.clone()))).unwrap();
        Self { dir, index, knowledge, engine, policy }
    }

    /// The same vault and index, reopened with another configuration as by another process.
    pub(crate) fn restarted(self, config: KnowledgeConfig, embedder: Option<Arc<dyn Embedder>>) -> Self {
        Self::over(self.dir, self.index, config, embedder, self.policy)
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("vault").join(name)
    }

    pub(crate) fn note(&self, name: &str, text: impl AsRef<[u8]>) {
        write(&self.path(name), text.as_ref());
    }

    /// Calls a tool as the person at the command line; returns the envelope after validating it against its schema.
    pub(crate) async fn call(&self, tool: &str, args: Value) -> Value {
        let answer = self.try_call(tool, args).await;
        answer.unwrap_or_else(|failure| panic!("{tool}: {failure}"))
    }

    pub(crate) async fn try_call(&self, tool: &str, args: Value) -> Result<Value, String> {
        let request = CallRequest { tool: tool.to_owned(), args: map(args), ..request() };
        let result = self.engine.call(Arc::new(Caller::cli("ada")), request).await.result;
        match (&result.data, &result.error) {
            (Some(data), None) => {
                let data = Value::Object(data.clone());
                if let Err(error) = OUTPUT_SCHEMAS[tool].validate(&data) {
                    panic!("{tool} does not fit its schema: {error}\n{data:#}");
                }
                Ok(data)
            }
            (_, error) => Err(format!("{:?}", error.as_ref().map(|e| (e.code, e.message.clone())))),
        }
    }

    /// Runs an indexing job and waits for it.
    pub(crate) async fn index(&self, mode: &str) -> Value {
        let answer = self.call("obsidian_rag_index", json!({"mode": mode, "wait_ms": 20_000})).await;
        assert_eq!(answer["data"]["state"], "done", "{answer:#}");
        answer
    }

    pub(crate) async fn search(&self, query: &str) -> Value {
        self.call("obsidian_rag_search", json!({"query": query})).await
    }

    /// The files that a search returns, in order.
    pub(crate) async fn found(&self, query: &str) -> Vec<String> {
        files(&self.search(query).await)
    }
}

fn knowledge(
    dir: &Path,
    index: Arc<dyn NoteIndex>,
    config: KnowledgeConfig,
    embedder: Option<Arc<dyn Embedder>>,
    embedder_problem: Option<EmbedError>,
) -> Arc<Knowledge> {
    let vault = Vault::open(&dir.join("vault"), VaultOptions::new(dir.join("locks"))).unwrap();
    Arc::new(Knowledge::new(KnowledgeParts {
        vault: Arc::new(vault),
        index,
        embedder,
        fallback: None,
        embedder_problem,
        config,
        folder: dir.join("index"),
    }))
}

pub(crate) fn files(answer: &Value) -> Vec<String> {
    let results = answer["data"]["results"].as_array().unwrap_or_else(|| panic!("no results: {answer:#}"));
    results.iter().map(|r| r["source_file"].as_str().unwrap().to_owned()).collect()
}

pub(crate) fn code(answer: &Value) -> &str {
    answer["error"]["code"].as_str().unwrap_or("none")
}

pub(crate) fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn request() -> CallRequest {
    CallRequest { timeout_ms: Some(60_000), ..CallRequest::default() }
}

pub(crate) fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is no object"),
    }
}

/// Polls until the condition holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> F) {
    let start = Instant::now();
    while !look().await {
        assert!(start.elapsed() < PATIENCE, "it never happened: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
