//! Ollama and OpenAI-compatible servers, through the stand-in.

use crate::{
    server::StandIn,
    support::{Lab, code, eventually, files},
};
use serde_json::json;
use std::sync::{Arc, atomic::Ordering};
use toolyard_knowledge::{
    KnowledgeConfig,
    config::{EmbedderKind, EmbeddingConfig},
    embed::{EmbedError, Embedder, OllamaEmbedder, OpenAiEmbedder, Purpose},
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
    let config = EmbeddingConfig {
        kind: EmbedderKind::Openai,
        url: Some(format!("{}/v1", server.url)),
        model: Some("m".to_owned()),
        ..EmbeddingConfig::default()
    };
    let embedder = OpenAiEmbedder::new(&config).unwrap();
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

/// The matrix: Ollama down. The server is really stopped; words still answer.
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

/// Indexing goes on without vectors, and the vectors are made up for once the server is back.
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

/// The vectors change their length under the same model name: answered by words, told, and mended by a reindex.
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

/// Another embedder in the configuration: the old index answers, by words, until the new one is built.
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

/// Notes do not go to another machine unless allowed, and what is sensitive not even then.
#[tokio::test(flavor = "multi_thread")]
async fn sensitive_chunks_are_not_sent_away() {
    // Another loopback address plays the other machine: what is tested is what is sent, not how far.
    let server = StandIn::start(32).await;
    struct Remote(OllamaEmbedder);
    impl Embedder for Remote {
        fn is_local(&self) -> bool {
            false
        }
        fn describe(
            &self,
        ) -> toolyard_engine::BoxFuture<'_, Result<toolyard_knowledge::embed::EmbedderInfo, EmbedError>> {
            self.0.describe()
        }
        fn embed<'a>(
            &'a self,
            texts: &'a [String],
            purpose: Purpose,
        ) -> toolyard_engine::BoxFuture<'a, toolyard_knowledge::embed::Vectors> {
            self.0.embed(texts, purpose)
        }
    }
    let config = ollama_config(&server.url);
    let embedder = Arc::new(Remote(OllamaEmbedder::new(&config.embedding).unwrap()));
    let lab = Lab::with(config, Some(embedder));
    lab.note("a.md", "the blue bicycle");
    lab.note("b.md", "my therapy notes");
    lab.index("full").await;
    assert_eq!(server.behaviour.embedded.load(Ordering::Relaxed), 1);
    assert_eq!(lab.found("therapy").await, ["b.md"], "found by words, and the question was not sent either");
    assert_eq!(server.behaviour.embedded.load(Ordering::Relaxed), 1);
}
