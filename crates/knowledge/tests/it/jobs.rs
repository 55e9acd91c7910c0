//! Indexing: incremental, cancelled, resumed, one bad file among good ones, private files.

use crate::support::{Lab, Trigrams, code, eventually, watched};
use serde_json::json;
use std::{
    os::unix::fs::PermissionsExt,
    sync::{Arc, atomic::Ordering},
};
use toolyard_knowledge::{
    KnowledgeConfig,
    indexer::{Job, JobFile, JobMode, JobRecord},
};

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_chunks_are_never_embedded_again() {
    let (lab, embedder) = watched();
    lab.note("a.md", "# One\nfirst section\n\n# Two\nsecond section\n");
    lab.note("b.md", "another note");
    lab.index("full").await;
    assert_eq!(embedder.passages.swap(0, Ordering::SeqCst), 3);
    let nothing = lab.index("sync").await;
    assert_eq!(nothing["data"]["indexed_files"], 0);
    lab.index("full").await;
    assert_eq!(embedder.passages.load(Ordering::SeqCst), 0, "nothing changed");
    lab.note("a.md", "# One\nfirst section\n\n# Two\nsecond section, changed\n");
    let changed = lab.index("sync").await;
    assert_eq!(embedder.passages.swap(0, Ordering::SeqCst), 1, "one section changed");
    assert_eq!(changed["data"]["indexed_files"], 1);
    std::fs::rename(lab.path("b.md"), lab.path("c.md")).unwrap();
    lab.note("c.md", "another note");
    let moved = lab.index("sync").await;
    assert_eq!((moved["data"]["indexed_files"].as_u64(), moved["data"]["removed_files"].as_u64()), (Some(1), Some(1)));
    assert_eq!(lab.found("another note").await[0], "c.md");
    // The title is part of the embedded text, and the file name is the title.
    assert_eq!(embedder.passages.swap(0, Ordering::SeqCst), 1);
    let before = lab.knowledge.library().await.unwrap().info().generation;
    lab.index("sync").await;
    assert_eq!(lab.knowledge.library().await.unwrap().info().generation, before, "no change, no new version");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_polled_cancelled_and_continued() {
    let (lab, embedder) = watched();
    // More notes than the first batch, so that something is written before the job is cancelled.
    for i in 0..600 {
        lab.note(&format!("n{i:04}.md"), format!("note number {i}"));
    }
    // The first batch is embedded; the second one hangs.
    embedder.hold_from(1);
    let started = lab.call("obsidian_rag_index", json!({"mode": "full"})).await;
    let id = started["data"]["job_id"].as_str().unwrap().to_owned();
    assert_eq!(
        (started["data"]["state"].as_str(), started["data"]["started"].as_bool()),
        (Some("running"), Some(true))
    );
    eventually("the first batch is written", || async {
        lab.knowledge.jobs.record().last.is_some_and(|job| job.written_chunks > 0)
    })
    .await;
    let again = lab.call("obsidian_rag_index", json!({"mode": "sync"})).await;
    assert_eq!(
        (again["data"]["job_id"].as_str(), again["data"]["started"].as_bool()),
        (Some(id.as_str()), Some(false))
    );
    let status = lab.call("obsidian_rag_status", json!({})).await;
    assert_eq!(status["data"]["active_job"]["id"], id.as_str());
    let progress = status["data"]["active_job"]["progress"].as_f64().unwrap();
    assert!(progress > 0.0 && progress < 1.0, "what is written counts, not what is read: {progress}");
    // The embedder never responds again.
    let cancelled = lab.call("obsidian_rag_index", json!({"mode": "cancel"})).await;
    assert_eq!(cancelled["data"]["state"], "cancelled", "{cancelled:#}");
    assert_eq!(code(&lab.search("note number 7").await), "INDEX_NOT_FOUND", "nothing half done is seen");
    let embedded = embedder.passages.load(Ordering::SeqCst);
    assert!(embedded > 0 && embedded < 600);
    embedder.hold_from(usize::MAX);
    let done = lab.index("sync").await;
    assert_eq!(done["data"]["total_chunks"], 600);
    assert_eq!(embedder.passages.load(Ordering::SeqCst), 600, "it went on where it stopped");
    assert_eq!(lab.found("note number 222").await[0], "n0222.md");
}

/// Error matrix: the indexer panics. The last complete version still answers.
#[toolyard_shows::shows("000-3-06")]
#[tokio::test(flavor = "multi_thread")]
async fn an_indexer_that_goes_down_is_told_and_retried() {
    let (lab, embedder) = watched();
    lab.note("a.md", "the blue bicycle");
    embedder.panic.store(true, Ordering::SeqCst);
    let answer = lab.call("obsidian_rag_index", json!({"mode": "full", "wait_ms": 20_000})).await;
    assert_eq!((answer["status"].as_str(), code(&answer)), (Some("unavailable"), "INDEXER_FAILED"), "{answer:#}");
    assert_eq!(answer["error"]["recoverable"], true);
    let answer = lab.search("bicycle").await;
    assert_eq!((answer["status"].as_str(), code(&answer)), (Some("unavailable"), "INDEXER_FAILED"));
    embedder.panic.store(false, Ordering::SeqCst);
    lab.index("sync").await;
    assert_eq!(lab.search("bicycle").await["status"], "healthy");
    embedder.panic.store(true, Ordering::SeqCst);
    lab.note("b.md", "a red car");
    lab.call("obsidian_rag_index", json!({"mode": "sync", "wait_ms": 20_000})).await;
    let answer = lab.search("bicycle").await;
    assert_eq!(
        (answer["status"].as_str(), code(&answer)),
        (Some("degraded"), "INDEXER_FAILED"),
        "the last complete version answers"
    );
    assert_eq!(answer["data"]["results"][0]["source_file"], "a.md");
}

/// A killed process left its record; the next process resumes the job once.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_job_is_taken_up_once() {
    let (lab, embedder) = watched();
    lab.note("a.md", "the blue bicycle");
    let folder = lab.dir.path().join("index");
    toolyard_knowledge::indexer::private_folder(&folder).unwrap();
    let killed = Job { pid: u32::MAX, ..Job::new(JobMode::Full, 0) };
    JobFile::new(&folder).write(&JobRecord { last: Some(killed.clone()), ..JobRecord::default() }).unwrap();
    let answer = lab.search("bicycle").await;
    assert_eq!((answer["status"].as_str(), code(&answer)), (Some("unavailable"), "INDEXER_FAILED"));
    assert!(lab.knowledge.resume().is_some());
    lab.knowledge.jobs.idle().await;
    assert_eq!(lab.search("bicycle").await["status"], "healthy");
    let twice = Job { attempt: 1, ..killed };
    JobFile::new(&folder).write(&JobRecord { last: Some(twice), ..JobRecord::default() }).unwrap();
    let lab = lab.restarted(KnowledgeConfig::default(), Some(embedder));
    assert!(lab.knowledge.resume().is_none(), "not again and again");
    let status = lab.call("obsidian_rag_status", json!({})).await;
    assert_eq!((status["status"].as_str(), code(&status)), (Some("degraded"), "INDEXER_FAILED"));
    assert_eq!(status["error"]["recoverable"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_file_does_not_stop_the_rest() {
    let lab = Lab::new();
    lab.note("good.md", "a good note");
    lab.note("latin1.md", b"caf\xe9");
    lab.note("huge.md", vec![b'x'; 9 << 20]);
    lab.note("back\\slash.md", "a name that is no path");
    lab.note("unclosed.md", "---\nfront: matter\nnever: closed\n```\ncode");
    std::os::unix::fs::symlink("loop.md", lab.path("loop.md")).unwrap();
    let done = lab.index("full").await;
    let mut troubled: Vec<&str> =
        done["data"]["errors"].as_array().unwrap().iter().map(|e| e["file"].as_str().unwrap()).collect();
    troubled.sort_unstable();
    assert_eq!(troubled, ["back\\slash.md", "huge.md", "latin1.md"]);
    assert_eq!(lab.found("good note").await[0], "good.md");
    assert_eq!(lab.found("matter never closed").await[0], "unclosed.md");
    let again = lab.index("sync").await;
    assert_eq!(again["data"]["indexed_files"], 0);
    assert_eq!(again["data"]["error_count"], 1, "only what might be readable now is tried again: {again:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ignored_and_denied_folders_stay_out() {
    let lab = Lab::new();
    lab.note(".obsidian-ragignore", "Templates/\n*.secret.md\n");
    for name in ["Templates/t.md", "zzz-Archive/a.md", "x.secret.md", ".obsidian/o.md", "kept.md"] {
        lab.note(name, "findable words");
    }
    lab.index("full").await;
    assert_eq!(lab.found("findable words").await, ["kept.md"]);
    lab.note(".obsidian-ragignore", "");
    lab.index("sync").await;
    assert_eq!(lab.found("findable words").await.len(), 3);
    lab.note(".obsidian-ragignore", "kept.md\n");
    lab.index("sync").await;
    assert!(!lab.found("findable words").await.contains(&"kept.md".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_returns_to_the_version_before() {
    let lab = Lab::new();
    lab.note("a.md", "the first wording");
    lab.index("full").await;
    lab.note("a.md", "another telling");
    lab.index("sync").await;
    assert!(
        lab.search("first wording").await["data"]["results"][0]["chunk_text"].as_str().unwrap().contains("telling")
    );
    let back = lab.call("obsidian_rag_index", json!({"mode": "rollback"})).await;
    assert_eq!(back["data"]["state"], "rolled-back");
    assert!(lab.search("first wording").await["data"]["results"][0]["chunk_text"].as_str().unwrap().contains("first"));
    let none = lab.call("obsidian_rag_index", json!({"mode": "rollback"})).await;
    assert_eq!(code(&none), "INDEX_NOT_FOUND");
    assert_eq!(none["status"], "healthy", "nothing is wrong with the version that is there");
    assert!(none["data"].is_null() && lab.search("first wording").await["status"] == "healthy");
    lab.index("full").await;
    assert!(lab.search("telling").await["data"]["results"][0]["chunk_text"].as_str().unwrap().contains("telling"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_private() {
    let lab = Lab::new();
    lab.note("a.md", "text");
    lab.index("full").await;
    lab.call("obsidian_rag_memory_store", json!({"key": "k", "value": "v", "source": "a.md"})).await;
    let folder = lab.dir.path().join("index");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_recipe_cuts_the_notes_again_without_embedding_what_is_the_same() {
    let (lab, embedder) = watched();
    let long = (0..120).map(|i| format!("Sentence number {i} of a long section. ")).collect::<String>();
    lab.note("short.md", "a short note");
    lab.note("long.md", &long);
    lab.index("full").await;
    let before = embedder.passages.swap(0, Ordering::SeqCst);
    let mut config = KnowledgeConfig::default();
    config.indexing.chunk_chars = 500;
    let lab = lab.restarted(config, Some(embedder.clone()));
    let done = lab.index("sync").await;
    assert_eq!(done["data"]["indexed_files"], 2);
    assert!(done["data"]["total_chunks"].as_u64().unwrap() > before as u64 + 2);
    let again = embedder.passages.load(Ordering::SeqCst);
    assert_eq!(again as u64, done["data"]["total_chunks"].as_u64().unwrap() - 1, "the short note's vector was known");
}

/// Errors contain no text of the notes.
#[tokio::test(flavor = "multi_thread")]
async fn errors_hold_nothing_of_the_notes() {
    let lab = Lab::with(KnowledgeConfig::default(), Some(Arc::new(Trigrams(16))));
    lab.note("secret plan.md", b"the secret wording \xff");
    let done = lab.index("full").await;
    assert!(!done.to_string().contains("secret wording"));
}
