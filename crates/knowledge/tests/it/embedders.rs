//! Ollama and OpenAI-compatible servers, simulated by the stand-in server.

use crate::{
    server::{Poison, StandIn},
    support::{Lab, code, eventually, files},
};
use serde_json::json;
use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};
use toolyard_engine::BoxFuture;
use toolyard_knowledge::{
    KnowledgeConfig,
    config::{EmbedderKind, EmbeddingConfig},
    embed::{EmbedError, Embedder, EmbedderInfo, OllamaEmbedder, OpenAiEmbedder, Purpose, Vectors},
    evaluate::{Document, JudgedQuery, evaluate},
    index::memory::MemoryIndex,
};

fn ollama_config(url: &str) -> KnowledgeConfig {
    let embedding = EmbeddingConfig {
        kind: EmbedderKind::Ollama,
        url: Some(url.to_owned()),
        model: Some("test-model".to_owned()),
        batch: 8,
        timeout_ms: 20_000,
        ..EmbeddingConfig::default()
    };
    KnowledgeConfig { embedding, ..KnowledgeConfig::default() }
}

fn ollama(url: &str) -> (KnowledgeConfig, Option<Arc<dyn Embedder>>) {
    let config = ollama_config(url);
    let embedder: Arc<dyn Embedder> = Arc::new(OllamaEmbedder::new(&config.embedding).unwrap());
    (config, Some(embedder))
}

fn openai_config(url: &str) -> KnowledgeConfig {
    let embedding = EmbeddingConfig {
        kind: EmbedderKind::Openai,
        url: Some(format!("{url}/v1")),
        model: Some("m".to_owned()),
        ..EmbeddingConfig::default()
    };
    KnowledgeConfig { embedding, ..KnowledgeConfig::default() }
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|t| (*t).to_owned()).collect()
}

#[tokio::test]
async fn ollama_is_asked_in_batches_and_says_what_it_is() {
    let server = StandIn::start(48).await;
    let embedder = OllamaEmbedder::new(&ollama_config(&server.url).embedding).unwrap();
    let info = embedder.describe().await.unwrap();
    assert_eq!((info.id.as_str(), info.dimensions), ("ollama/test-model@0123456789ab", 48));
    let before = server.behaviour.requests.load(Ordering::Relaxed);
    let many: Vec<String> = (0..20).map(|i| format!("text number {i}")).collect();
    let vectors = embedder.embed(&many, Purpose::Passage).await.unwrap();
    assert_eq!(vectors.len(), 20);
    assert!(vectors.iter().all(|v| v.as_ref().is_some_and(|v| v.len() == 48)));
    assert_eq!(server.behaviour.requests.load(Ordering::Relaxed) - before, 3, "20 texts in batches of 8");
}

#[tokio::test]
async fn trouble_that_passes_is_waited_out_and_a_long_text_is_shortened() {
    let server = StandIn::start(16).await;
    let embedder = OllamaEmbedder::new(&ollama_config(&server.url).embedding).unwrap();
    server.behaviour.failures.store(2, Ordering::Relaxed);
    assert!(embedder.embed(&texts(&["a text"]), Purpose::Passage).await.unwrap()[0].is_some());
    server.behaviour.max_chars.store(100, Ordering::Relaxed);
    let long = "word ".repeat(60);
    let vectors = embedder.embed(&texts(&["short", &long, "also short"]), Purpose::Passage).await.unwrap();
    assert!(vectors.iter().all(Option::is_some), "one long text does not spoil the batch");
}

#[tokio::test]
async fn an_old_ollama_is_spoken_to_in_its_own_way() {
    let server = StandIn::start(16).await;
    server.behaviour.is_old.store(true, Ordering::Relaxed);
    let embedder = OllamaEmbedder::new(&ollama_config(&server.url).embedding).unwrap();
    let vectors = embedder.embed(&texts(&["one", "two"]), Purpose::Passage).await.unwrap();
    assert_eq!(vectors.iter().flatten().count(), 2);
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let server = StandIn::start(16).await;
    server.behaviour.no_model.store(true, Ordering::Relaxed);
    let embedder = OllamaEmbedder::new(&ollama_config(&server.url).embedding).unwrap();
    assert!(matches!(embedder.describe().await, Err(EmbedError::ModelMissing { .. })));
    let url = server.url.clone();
    server.stop().await;
    let embedder = OllamaEmbedder::new(&ollama_config(&url).embedding).unwrap();
    assert!(matches!(embedder.describe().await, Err(EmbedError::Unreachable { .. })));
}

#[tokio::test]
async fn an_openai_server_may_answer_out_of_order() {
    let server = StandIn::start(24).await;
    let embedder = OpenAiEmbedder::new(&openai_config(&server.url).embedding).unwrap();
    assert_eq!(embedder.describe().await.unwrap().dimensions, 24);
    let vectors = embedder.embed(&texts(&["first text", "second text"]), Purpose::Passage).await.unwrap();
    let alone = embedder.embed(&texts(&["first text"]), Purpose::Query).await.unwrap();
    assert_eq!(vectors[0], alone[0]);
    assert_ne!(vectors[0], vectors[1]);
    server.behaviour.no_model.store(true, Ordering::Relaxed);
    assert!(matches!(
        embedder.embed(&texts(&["x"]), Purpose::Query).await,
        Err(EmbedError::ModelMissing { service: "the embedding server", .. })
    ));
}

/// Error matrix: Ollama down. The server is really stopped; full text still works.
#[toolyard_shows::shows("000-1-11", "000-3-01")]
#[tokio::test(flavor = "multi_thread")]
async fn ollama_down_is_degraded_with_data() {
    let server = StandIn::start(32).await;
    let (config, embedder) = ollama(&server.url);
    let lab = Lab::with(config, embedder);
    lab.note("a.md", "the blue bicycle");
    lab.note("b.md", "a red car");
    lab.index("full").await;
    let answer = lab.search("blue bicycle").await;
    assert_eq!((answer["status"].as_str(), code(&answer)), (Some("healthy"), "none"), "{answer:#}");
    let stopped = server.stop().await;
    let answer = lab.search("blue bicycle").await;
    assert_eq!((answer["status"].as_str(), code(&answer)), (Some("degraded"), "OLLAMA_UNREACHABLE"));
    assert_eq!(answer["error"]["recoverable"], true);
    assert!(answer["error"]["suggestion"].as_str().unwrap().contains("ollama serve"));
    assert_eq!(files(&answer), ["a.md"]);
    let status = lab.call("obsidian_rag_status", json!({})).await;
    assert_eq!(
        (status["data"]["plugin_health"].as_str(), status["data"]["ollama_status"].as_str()),
        (Some("degraded"), Some("down"))
    );
    let _server = stopped.start_again().await;
    eventually("healthy again", || async {
        lab.call("obsidian_rag_status", json!({})).await["data"]["plugin_health"] == "healthy"
    })
    .await;
    assert_eq!(lab.search("blue bicycle").await["status"], "healthy");
}

#[toolyard_shows::shows("000-2-06", "000-2-08")]
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_model_says_what_to_pull() {
    let server = StandIn::start(32).await;
    let (config, embedder) = ollama(&server.url);
    let lab = Lab::with(config, embedder);
    lab.note("a.md", "the blue bicycle");
    server.behaviour.no_model.store(true, Ordering::Relaxed);
    lab.index("full").await;
    let answer = lab.search("bicycle").await;
    assert_eq!((answer["status"].as_str(), code(&answer)), (Some("degraded"), "OLLAMA_UNREACHABLE"));
    assert!(answer["error"]["suggestion"].as_str().unwrap().contains("ollama pull test-model"));
    assert_eq!(files(&answer), ["a.md"]);
}

/// Indexing continues without vectors, and the missing vectors are added when the server is back.
#[tokio::test(flavor = "multi_thread")]
async fn vectors_are_made_up_for_when_the_server_is_back() {
    let server = StandIn::start(32).await;
    let (config, embedder) = ollama(&server.url);
    let lab = Lab::with(config, embedder);
    lab.note("a.md", "the blue bicycle");
    lab.index("full").await;
    let stopped = server.stop().await;
    lab.note("b.md", "a yellow submarine");
    lab.index("sync").await;
    assert_eq!(lab.found("yellow submarine").await, ["b.md"]);
    let status = lab.call("obsidian_rag_status", json!({"files": "all"})).await;
    assert_eq!(status["data"]["files"]["unembedded_chunks"], 1);
    assert!(
        status["data"]["file_list"]["files"][1]["reason"].as_str().unwrap().contains("wait for the embedding server")
    );
    let server = stopped.start_again().await;
    let before = server.behaviour.embedded.load(Ordering::Relaxed);
    lab.index("sync").await;
    assert_eq!(server.behaviour.embedded.load(Ordering::Relaxed) - before, 1, "only what was missing");
    assert_eq!(lab.call("obsidian_rag_status", json!({})).await["data"]["files"]["unembedded_chunks"], 0);
}

/// The length of the vectors changes under the same model name: searches use full text and report the problem, and a
/// reindex repairs the index.
#[tokio::test(flavor = "multi_thread")]
async fn another_length_of_vectors_is_noticed_and_reindexed() {
    let server = StandIn::start(32).await;
    let (config, embedder) = ollama(&server.url);
    let lab = Lab::with(config, embedder);
    lab.note("a.md", "the blue bicycle");
    lab.index("full").await;
    server.behaviour.dimensions.store(48, Ordering::Relaxed);
    let answer = lab.search("blue bicycle").await;
    assert_eq!((answer["status"].as_str(), code(&answer)), (Some("degraded"), "INDEX_CORRUPTED"));
    assert_eq!(files(&answer), ["a.md"]);
    lab.note("b.md", "new and to be embedded");
    lab.index("sync").await;
    let answer = lab.search("blue bicycle").await;
    assert_eq!(answer["status"], "healthy", "{answer:#}");
    let status = lab.call("obsidian_rag_status", json!({})).await;
    assert_eq!(status["data"]["index"]["dimensions"], 48);
    assert_eq!(status["data"]["total_docs"], 2);
}

/// Another embedder is configured: the old index serves by full text until the new one is built.
#[tokio::test(flavor = "multi_thread")]
async fn switching_embedders_rebuilds_while_search_goes_on() {
    let lab = Lab::new();
    lab.note("a.md", "the blue bicycle");
    lab.index("full").await;
    let server = StandIn::start(32).await;
    let (config, embedder) = ollama(&server.url);
    let lab = lab.restarted(config, embedder);
    let answer = lab.search("blue bicycle").await;
    assert_eq!((answer["status"].as_str(), code(&answer)), (Some("degraded"), "INDEX_CORRUPTED"));
    assert_eq!(files(&answer), ["a.md"]);
    lab.index("sync").await;
    let answer = lab.search("blue bicycle").await;
    assert_eq!(answer["status"], "healthy");
    let status = lab.call("obsidian_rag_status", json!({})).await;
    assert_eq!(status["data"]["index"]["embedder"], "ollama/test-model@0123456789ab");
}

/// Another loopback address simulates the other machine: the test checks what is sent, not where to.
struct Remote(OllamaEmbedder);

impl Embedder for Remote {
    fn is_local(&self) -> bool {
        false
    }
    fn describe(&self) -> BoxFuture<'_, Result<EmbedderInfo, EmbedError>> {
        self.0.describe()
    }
    fn embed<'a>(&'a self, texts: &'a [String], purpose: Purpose) -> BoxFuture<'a, Vectors> {
        self.0.embed(texts, purpose)
    }
}

/// Notes are sent to another machine only if allowed, and sensitive text never.
#[tokio::test(flavor = "multi_thread")]
async fn sensitive_chunks_are_not_sent_away() {
    let server = StandIn::start(32).await;
    let config = ollama_config(&server.url);
    let embedder = Arc::new(Remote(OllamaEmbedder::new(&config.embedding).unwrap()));
    let lab = Lab::with(config, Some(embedder));
    lab.note("a.md", "the blue bicycle");
    lab.note("b.md", "my therapy notes");
    lab.note("Therapies in May.md", "a title goes along with every chunk");
    lab.note("c.md", "# Medications\na heading goes along too");
    lab.note("d.md", "a green boat #debt");
    lab.note("e.md", "---\ntags: [health/therapy]\n---\na tag says what a note is about");
    lab.index("full").await;
    let seen = |words: &str| server.behaviour.has_seen(words);
    assert!(seen("the blue bicycle"));
    for words in ["therapy", "Therapies", "goes along", "Medications", "green boat", "a tag says"] {
        assert!(!seen(words), "{words}");
    }
    assert!(lab.found("my therapy").await.iter().any(|path| path == "b.md"), "found by words");
    lab.search("how large is my #debt").await;
    lab.search("a yellow boat").await;
    assert!(!seen("my therapy") && !seen("how large") && seen("a yellow boat"), "nor are questions of that kind sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evaluation_sends_nothing_sensitive_away_either() {
    let server = StandIn::start(32).await;
    let config = ollama_config(&server.url);
    let embedder: Arc<dyn Embedder> = Arc::new(Remote(OllamaEmbedder::new(&config.embedding).unwrap()));
    let document = |id: &str, text: &str| Document { id: id.to_owned(), title: String::new(), text: text.to_owned() };
    let documents = [document("1", "the blue bicycle"), document("2", "Anna owes me 500")];
    let judged = |text: &str, id: &str| JudgedQuery {
        id: "q".to_owned(),
        text: text.to_owned(),
        grades: HashMap::from([(id.to_owned(), 1.0)]),
    };
    let questions = [judged("which bicycle", "1"), judged("who owes me money", "2")];
    let report = evaluate(&MemoryIndex::new(), &embedder, &config, &documents, &questions, 0.5).await.unwrap();
    assert!(server.behaviour.has_seen("the blue bicycle") && server.behaviour.has_seen("which bicycle"));
    assert!(!server.behaviour.has_seen("owes me"), "{:?}", server.behaviour.texts.lock().unwrap());
    assert_eq!(report.fused.mrr, 1.0, "words find it all the same");
}

/// A temporary failure does not mark texts as unembeddable: they wait, and the next job embeds them.
#[tokio::test(flavor = "multi_thread")]
async fn chunks_wait_while_the_server_only_fails() {
    for status in [500, 503, 429, 401, 400] {
        let server = StandIn::start(32).await;
        let (config, embedder) = ollama(&server.url);
        let lab = Lab::with(config, embedder);
        lab.note("a.md", "the blue bicycle");
        lab.index("full").await;
        server.behaviour.refuse("/api/embed", status);
        for number in 0..3 {
            lab.note(&format!("new {number}.md"), format!("a red car, number {number}"));
        }
        lab.index("sync").await;
        let told = lab.call("obsidian_rag_status", json!({})).await;
        assert_eq!(told["data"]["files"]["unembedded_chunks"], 3, "HTTP {status}");
        assert_eq!(told["data"]["plugin_health"], "degraded", "HTTP {status}: what fails is asked again, and fails");
        server.behaviour.refuse("/api/embed", 200);
        lab.index("sync").await;
        let told = lab.call("obsidian_rag_status", json!({})).await;
        assert_eq!(told["data"]["files"]["unembedded_chunks"], 0, "HTTP {status}");
        assert_eq!(told["data"]["plugin_health"], "healthy", "HTTP {status}");
        assert!(server.behaviour.has_seen("a red car, number 2"));
    }
}

#[tokio::test]
async fn old_and_openai_servers_that_refuse_everything_give_an_error_and_no_missing_vectors() {
    for status in [500, 429, 401, 400] {
        let server = StandIn::start(16).await;
        server.behaviour.is_old.store(true, Ordering::Relaxed);
        server.behaviour.refuse("/api/embeddings", status);
        server.behaviour.refuse("/v1/embeddings", status);
        let old = OllamaEmbedder::new(&ollama_config(&server.url).embedding).unwrap();
        let openai = OpenAiEmbedder::new(&openai_config(&server.url).embedding).unwrap();
        for list in [texts(&["one", "two"]), texts(&["one"])] {
            assert!(old.embed(&list, Purpose::Passage).await.is_err(), "HTTP {status}");
            assert!(openai.embed(&list, Purpose::Passage).await.is_err(), "HTTP {status}");
        }
    }
}

#[tokio::test]
async fn one_text_that_cannot_be_embedded_does_not_keep_the_others_from_their_vectors() {
    for how in [Poison::Fails, Poison::GivesNull] {
        let server = StandIn::start(16).await;
        *server.behaviour.poison.lock().unwrap() = Some(("q", how));
        let ollama = OllamaEmbedder::new(&ollama_config(&server.url).embedding).unwrap();
        let openai = OpenAiEmbedder::new(&openai_config(&server.url).embedding).unwrap();
        for embedder in [&ollama as &dyn Embedder, &openai] {
            let list = texts(&["one", &"q".repeat(99), "three", "only the second half of this is qq"]);
            let vectors = embedder.embed(&list, Purpose::Passage).await.unwrap();
            let has: Vec<bool> = vectors.iter().map(Option::is_some).collect();
            assert_eq!(has, [true, false, true, true]);
        }
    }
    let server = StandIn::start(16).await;
    server.behaviour.no_batches.store(true, Ordering::Relaxed);
    let embedder = OllamaEmbedder::new(&ollama_config(&server.url).embedding).unwrap();
    let vectors = embedder.embed(&texts(&["one", "two"]), Purpose::Passage).await.unwrap();
    assert_eq!(vectors.iter().flatten().count(), 2, "a server that only takes one text at a time");
}

#[tokio::test]
async fn an_openai_server_gets_long_texts_shortened_in_a_batch_and_alone() {
    let server = StandIn::start(16).await;
    server.behaviour.max_chars.store(100, Ordering::Relaxed);
    let embedder = OpenAiEmbedder::new(&openai_config(&server.url).embedding).unwrap();
    let long = "word ".repeat(60);
    for list in [texts(&[&long]), texts(&["short", &long])] {
        let vectors = embedder.embed(&list, Purpose::Passage).await.unwrap();
        assert!(vectors.iter().all(Option::is_some));
    }
    assert!(embedder.embed(&texts(&[&long]), Purpose::Query).await.unwrap()[0].is_some());
}

/// A server that accepts a connection and never responds must not prevent full-text results.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_degraded_with_data() {
    let server = StandIn::start(32).await;
    let (mut config, _) = ollama(&server.url);
    config.embedding.timeout_ms = 500;
    let embedder: Arc<dyn Embedder> = Arc::new(OllamaEmbedder::new(&config.embedding).unwrap());
    let lab = Lab::with(config.clone(), Some(embedder));
    lab.note("a.md", "the blue bicycle");
    lab.index("full").await;
    server.behaviour.refuse("/api/show", 0);
    let lab = lab.restarted(config.clone(), Some(Arc::new(OllamaEmbedder::new(&config.embedding).unwrap())));
    assert_eq!(lab.search("blue bicycle").await["status"], "healthy", "nothing is asked of /api/show");
    for path in ["/api/embed", "/api/tags", "/api/version"] {
        server.behaviour.refuse(path, 0);
        // Simulates another process that has not contacted the server yet.
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("vault")).unwrap();
        let fresh: Arc<dyn Embedder> = Arc::new(OllamaEmbedder::new(&config.embedding).unwrap());
        let other = Lab::over(dir, lab.index.clone(), config.clone(), Some(fresh), json!({}));
        let answer = other.search("blue bicycle").await;
        assert_eq!((answer["status"].as_str(), code(&answer)), (Some("degraded"), "OLLAMA_UNREACHABLE"), "{path}");
        assert_eq!(files(&answer), ["a.md"], "{path}");
        server.behaviour.refuse(path, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_length_of_vectors_is_theirs_whatever_the_server_says_of_its_model() {
    let server = StandIn::start(32).await;
    server.behaviour.shown_length.store(1024, Ordering::Relaxed);
    let (config, embedder) = ollama(&server.url);
    let lab = Lab::with(config.clone(), embedder);
    lab.note("a.md", "the blue bicycle");
    lab.index("full").await;
    let status = lab.call("obsidian_rag_status", json!({})).await;
    assert_eq!(
        (&status["data"]["index"]["dimensions"], &status["data"]["plugin_health"]),
        (&json!(32), &json!("healthy"))
    );
    let lab = lab.restarted(config.clone(), Some(Arc::new(OllamaEmbedder::new(&config.embedding).unwrap())));
    assert_eq!(lab.search("blue bicycle").await["status"], "healthy");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_list_of_models_does_not_make_it_another_model() {
    let server = StandIn::start(32).await;
    let (config, embedder) = ollama(&server.url);
    let lab = Lab::with(config.clone(), embedder);
    lab.note("a.md", "the blue bicycle");
    lab.index("full").await;
    for status in [500, 429, 403] {
        server.behaviour.refuse("/api/tags", status);
        let embedder = OllamaEmbedder::new(&config.embedding).unwrap();
        assert!(matches!(embedder.describe().await, Err(EmbedError::Refused { .. })), "HTTP {status}");
    }
    let lab = lab.restarted(config.clone(), Some(Arc::new(OllamaEmbedder::new(&config.embedding).unwrap())));
    let answer = lab.search("blue bicycle").await;
    assert_eq!((answer["status"].as_str(), code(&answer)), (Some("degraded"), "OLLAMA_UNREACHABLE"));
    server.behaviour.refuse("/api/tags", 404);
    let embedder = OllamaEmbedder::new(&config.embedding).unwrap();
    assert_eq!(embedder.describe().await.unwrap().id, "ollama/test-model@", "a server that never tells");
}

/// A stopped OpenAI server is detected, although the length of its vectors is known.
#[tokio::test(flavor = "multi_thread")]
async fn an_openai_server_that_stopped_is_degraded_until_it_is_back() {
    let server = StandIn::start(32).await;
    let config = openai_config(&server.url);
    let embedder: Arc<dyn Embedder> = Arc::new(OpenAiEmbedder::new(&config.embedding).unwrap());
    let lab = Lab::with(config, Some(embedder.clone()));
    lab.note("a.md", "the blue bicycle");
    lab.index("full").await;
    let health = || async { lab.call("obsidian_rag_status", json!({})).await["data"]["plugin_health"].clone() };
    assert_eq!(health().await, "healthy");
    server.behaviour.refuse("/v1/models", 404);
    assert_eq!(health().await, "healthy", "not every server lists its models");
    server.behaviour.refuse("/v1/embeddings", 500);
    assert_eq!(health().await, "degraded");
    server.behaviour.refuse("/v1/models", 200);
    assert_eq!(health().await, "degraded", "a list of models is no vector: what failed is asked again");
    server.behaviour.refuse("/v1/embeddings", 200);
    assert_eq!(health().await, "healthy");
    let stopped = server.stop().await;
    assert_eq!(health().await, "degraded");
    let answer = lab.search("blue bicycle").await;
    assert_eq!((answer["status"].as_str(), code(&answer)), (Some("degraded"), "EMBEDDER_UNREACHABLE"));
    assert_eq!(files(&answer), ["a.md"]);
    let _server = stopped.start_again().await;
    assert_eq!(health().await, "healthy");
}
