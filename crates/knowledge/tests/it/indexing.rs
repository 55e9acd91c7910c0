//! Indexing under load and with failures: large notes, misconfigured or failing embedders, other processes, records
//! that cannot be written.

use crate::support::{Lab, POISON, Trigrams, Watched, code, eventually, map, watched};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, SystemTime},
};
use tokio_util::sync::CancellationToken;
use toolyard_engine::{BoxFuture, CallRequest, Caller};
use toolyard_knowledge::{
    KnowledgeConfig,
    embed::EmbedError,
    index::{
        FileRow, FileState, IndexReader, IndexResult, IndexSpec, IndexWriter, NoteIndex, VersionInfo, WriteBatch,
        WriterStart, memory::MemoryIndex,
    },
    indexer::{JobMode, JobStart, JobState},
};

/// One write: the number of chunks, and the files that it marks as indexed.
type Put = (usize, Vec<String>);

/// An in-memory index that records its writes.
#[derive(Clone, Default)]
struct Ledger {
    index: Arc<MemoryIndex>,
    puts: Arc<Mutex<Vec<Put>>>,
}

impl NoteIndex for Ledger {
    fn current(&self) -> BoxFuture<'_, IndexResult<Option<Arc<dyn IndexReader>>>> {
        self.index.current()
    }
    fn generation(&self) -> BoxFuture<'_, IndexResult<Option<u64>>> {
        self.index.generation()
    }
    fn write<'a>(
        &'a self,
        spec: &'a IndexSpec,
        start: WriterStart,
    ) -> BoxFuture<'a, IndexResult<Box<dyn IndexWriter>>> {
        Box::pin(async move {
            let writer = self.index.write(spec, start).await?;
            Ok(Box::new(LedgerWriter(writer, self.puts.clone())) as Box<dyn IndexWriter>)
        })
    }
    fn versions(&self) -> BoxFuture<'_, IndexResult<Vec<VersionInfo>>> {
        self.index.versions()
    }
    fn rollback(&self) -> BoxFuture<'_, IndexResult<VersionInfo>> {
        self.index.rollback()
    }
}

struct LedgerWriter(Box<dyn IndexWriter>, Arc<Mutex<Vec<Put>>>);

impl IndexWriter for LedgerWriter {
    fn files(&self) -> BoxFuture<'_, IndexResult<Vec<FileRow>>> {
        self.0.files()
    }
    fn known_vectors<'a>(&'a self, hashes: &'a [u64]) -> BoxFuture<'a, IndexResult<HashMap<u64, Vec<f32>>>> {
        self.0.known_vectors(hashes)
    }
    fn put(&mut self, batch: WriteBatch) -> BoxFuture<'_, IndexResult<()>> {
        let indexed = batch.files.iter().chain(&batch.touched).filter(|file| file.state == FileState::Indexed);
        let put = (batch.chunks.len(), indexed.map(|file| file.path.clone()).collect());
        self.1.lock().unwrap().push(put);
        self.0.put(batch)
    }
    fn is_changed(&self) -> bool {
        self.0.is_changed()
    }
    fn complete(self: Box<Self>) -> BoxFuture<'static, IndexResult<VersionInfo>> {
        self.0.complete()
    }
}

fn sections(count: usize) -> String {
    (0..count).map(|i| format!("# Heading {i}\nsection number {i}\n")).collect()
}

async fn generation(lab: &Lab) -> Option<u64> {
    lab.index.generation().await.unwrap()
}

async fn row(lab: &Lab, path: &str) -> FileRow {
    let files = lab.index.current().await.unwrap().unwrap().files().await.unwrap();
    files.into_iter().find(|file| file.path == path).unwrap()
}

/// The batch size bounds the memory: neither many notes nor one note with many sections makes a larger write.
#[tokio::test(flavor = "multi_thread")]
async fn writes_stay_small_whatever_the_notes() {
    let ledger = Ledger::default();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("vault")).unwrap();
    let lab = Lab::over(dir, Arc::new(ledger.clone()), KnowledgeConfig::default(), None, json!({}));
    lab.note("large.md", sections(4_900));
    for i in 0..20 {
        lab.note(&format!("many/{i}.md"), sections(1_000));
    }
    let done = lab.index("full").await;
    assert_eq!(
        (done["data"]["total_chunks"].as_u64(), done["data"]["indexed_files"].as_u64()),
        (Some(24_900), Some(21))
    );
    let puts = ledger.puts.lock().unwrap().clone();
    assert_eq!(puts.iter().map(|(chunks, _)| chunks).sum::<usize>(), 24_900);
    assert!(puts.iter().all(|(chunks, _)| *chunks <= 2 * 4_096), "{puts:?}");
    let names = |path: &str| puts.iter().position(|(_, files)| files.iter().any(|file| file == path)).unwrap();
    let before: usize = puts[..=names("large.md")].iter().map(|(chunks, _)| chunks).sum();
    assert!(names("large.md") >= 1 && before >= 4_900, "it is not called indexed before all of it is written");
    assert_eq!(row(&lab, "large.md").await.chunks, 4_900);
    for (query, file) in [("\"section number 4899\"", "large.md"), ("\"section number 0\"", "large.md")] {
        assert!(lab.found(query).await.contains(&file.to_owned()), "{query}");
    }
    let again = lab.index("sync").await;
    assert_eq!(again["data"]["indexed_files"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_stopped_within_a_large_note_goes_on_with_its_vectors() {
    let (lab, embedder) = watched();
    lab.note("large.md", sections(700));
    embedder.hold_from(1);
    lab.call("obsidian_rag_index", json!({"mode": "full"})).await;
    eventually("the first part is written", || async {
        lab.knowledge.jobs.record().last.is_some_and(|job| job.written_chunks > 0)
    })
    .await;
    let cancelled = lab.call("obsidian_rag_index", json!({"mode": "cancel"})).await;
    assert_eq!(
        (cancelled["data"]["state"].as_str(), cancelled["data"]["indexed_files"].as_u64()),
        (Some("cancelled"), Some(0))
    );
    embedder.hold_from(usize::MAX);
    let done = lab.index("sync").await;
    assert_eq!((done["data"]["total_chunks"].as_u64(), done["data"]["indexed_files"].as_u64()), (Some(700), Some(1)));
    assert_eq!(embedder.passages.load(Ordering::SeqCst), 700, "what was embedded is not embedded again");
    let file = row(&lab, "large.md").await;
    assert_eq!((file.state, file.chunks, file.unembedded), (FileState::Indexed, 700, 0));
    // The job is stopped once more, and then the note is deleted: none of its chunks remain.
    lab.note("large.md", sections(900).replace("section", "part"));
    embedder.hold_from(701);
    lab.call("obsidian_rag_index", json!({"mode": "sync"})).await;
    eventually("a part is written again", || async {
        lab.knowledge.jobs.record().running().is_some_and(|job| job.written_chunks > 0)
    })
    .await;
    lab.call("obsidian_rag_index", json!({"mode": "cancel"})).await;
    std::fs::remove_file(lab.path("large.md")).unwrap();
    lab.note("b.md", "something else");
    embedder.hold_from(usize::MAX);
    assert_eq!(lab.index("sync").await["data"]["total_chunks"], 1);
}

/// A missing key in the environment must not discard the vectors.
#[tokio::test(flavor = "multi_thread")]
async fn a_misconfigured_embedder_keeps_the_vectors() {
    let (lab, embedder) = watched();
    lab.note("a.md", "the blue bicycle");
    lab.index("full").await;
    let lab = lab.misconfigured(EmbedError::NotAllowed("apiKeyEnv names a variable that is not set".to_owned()));
    lab.note("b.md", "a red car");
    let done = lab.index("sync").await;
    assert_eq!((done["status"].as_str(), code(&done)), (Some("degraded"), "EMBEDDER_UNREACHABLE"));
    let status = lab.call("obsidian_rag_status", json!({})).await;
    assert_eq!(status["data"]["index"]["embedder"], "watched", "{status:#}");
    assert_eq!(
        (status["data"]["index"]["dimensions"].as_u64(), status["data"]["files"]["unembedded_chunks"].as_u64()),
        (Some(32), Some(1))
    );
    assert_eq!(lab.found("red car").await, ["b.md"], "found by words meanwhile");
    let lab = lab.restarted(KnowledgeConfig::default(), Some(embedder.clone()));
    lab.index("sync").await;
    assert_eq!(embedder.passages.load(Ordering::SeqCst), 2, "only what was missing is embedded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_found_by_its_id_after_others_ran() {
    let (lab, embedder) = watched();
    lab.note("a.md", "the blue bicycle");
    let first = lab.index("full").await["data"]["job_id"].clone();
    lab.note("b.md", "a red car");
    lab.index("sync").await;
    let status = lab.call("obsidian_rag_status", json!({"job_id": first})).await;
    assert_eq!((&status["data"]["job"]["id"], status["data"]["job"]["indexed_files"].as_u64()), (&first, Some(1)));
    assert_ne!(status["data"]["last_job"]["id"], first);
    // While a job is running, the last ended job is still reported.
    let last = status["data"]["last_job"]["id"].clone();
    lab.note("c.md", "a green boat");
    embedder.hold_from(0);
    let running = lab.call("obsidian_rag_index", json!({"mode": "sync"})).await["data"]["job_id"].clone();
    let status = lab.call("obsidian_rag_status", json!({"job_id": running})).await;
    assert_eq!((status["data"]["job"]["state"].as_str(), &status["data"]["last_job"]["id"]), (Some("running"), &last));
    embedder.hold_from(usize::MAX);
    let status = lab.call("obsidian_rag_status", json!({"job_id": running, "wait_ms": 20_000})).await;
    assert_eq!((status["data"]["job"]["state"].as_str(), &status["data"]["active_job"]), (Some("done"), &Value::Null));
    let unknown = lab.call("obsidian_rag_status", json!({"job_id": "nobody's"})).await;
    assert_eq!(unknown["data"]["job"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_did_not_change_makes_no_version() {
    let (lab, embedder) = watched();
    lab.note("a.md", "the blue bicycle");
    lab.note("2024-03-05.md", "a day");
    lab.note("empty.md", "");
    lab.note("binary.md", b"a\0b");
    lab.index("full").await;
    let before = generation(&lab).await;
    let again = lab.index("full").await;
    assert_eq!(generation(&lab).await, before, "every note is as it was");
    let status = lab.call("obsidian_rag_status", json!({"job_id": again["data"]["job_id"]})).await;
    assert_eq!(status["data"]["job"]["total_chunks"], 3, "what is there counts, new version or not");

    // A text that the embedder keeps rejecting is not written again each time.
    lab.note("bad.md", POISON);
    lab.index("sync").await;
    let before = generation(&lab).await;
    assert_eq!(row(&lab, "bad.md").await.unembedded, 1);
    lab.knowledge.refresh().await.unwrap();
    assert_eq!(lab.knowledge.mending().await, Some(JobMode::Sync));
    lab.index("sync").await;
    assert_eq!(generation(&lab).await, before);
    assert_eq!(embedder.passages.load(Ordering::SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_touched_note_without_a_date_counts_by_its_new_day() {
    let (lab, embedder) = watched();
    lab.note("undated.md", "the blue bicycle");
    lab.note("2024-03-05 dated.md", "a red car");
    let day = |days: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400);
    let touch = |name: &str, days: u64| {
        std::fs::OpenOptions::new().write(true).open(lab.path(name)).unwrap().set_modified(day(days)).unwrap();
    };
    touch("undated.md", 19_000);
    lab.index("full").await;
    let dated = row(&lab, "2024-03-05 dated.md").await;
    assert_eq!(row(&lab, "undated.md").await.day, 19_000);
    touch("undated.md", 19_500);
    touch("2024-03-05 dated.md", 19_500);
    lab.index("sync").await;
    let now = row(&lab, "undated.md").await;
    assert_eq!((now.day, now.mtime_ms), (19_500, 19_500 * 86_400_000));
    let still = row(&lab, "2024-03-05 dated.md").await;
    assert_eq!((still.day, still.mtime_ms), (dated.day, 19_500 * 86_400_000));
    let day = "2023-05-23";
    let asked = json!({"query": "blue bicycle", "date_range": {"from": day, "to": day}});
    let found = lab.call("obsidian_rag_search", asked).await;
    assert_eq!(found["data"]["results"][0]["source_file"], "undated.md", "its chunks know it too: {found:#}");
    assert_eq!(embedder.passages.load(Ordering::SeqCst), 2, "nothing is embedded again");
}

/// With another embedder, a sync rebuilds the index, and a cancelled rebuild is continued.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_rebuild_rests_and_is_gone_on_with() {
    let lab = Lab::new();
    for i in 0..400 {
        lab.note(&format!("{i}.md"), format!("note number {i}"));
    }
    lab.index("full").await;
    let embedder = Watched::new();
    let lab = lab.restarted(KnowledgeConfig::default(), Some(embedder.clone()));
    lab.knowledge.refresh().await.unwrap();
    assert_eq!(lab.knowledge.mending().await, Some(JobMode::Sync));
    embedder.hold_from(1);
    lab.knowledge.start(JobMode::Sync).unwrap();
    eventually("the first batch is written", || async {
        lab.knowledge.jobs.record().last.is_some_and(|job| job.written_chunks > 0)
    })
    .await;
    lab.call("obsidian_rag_index", json!({"mode": "cancel"})).await;
    assert!(lab.knowledge.jobs.rests());
    assert_eq!(lab.knowledge.mending().await, None, "who stopped it does not want it back");
    embedder.hold_from(usize::MAX);
    lab.index("sync").await;
    assert!(!lab.knowledge.jobs.rests());
    assert_eq!(embedder.passages.load(Ordering::SeqCst), 400, "it went on where it was stopped");
    assert_eq!(lab.search("note number 7").await["status"], "healthy");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_job_does_not_come_back_before_a_note_changes() {
    let mut config = KnowledgeConfig::default();
    (config.indexing.debounce_ms, config.indexing.window_ms) = (20, 200);
    let embedder = Watched::new();
    let lab = Lab::with(config, Some(embedder.clone()));
    lab.note("a.md", "the blue bicycle");
    lab.index("full").await;
    lab.note("b.md", "a red car");
    embedder.hold_from(0);
    lab.call("obsidian_rag_index", json!({"mode": "sync"})).await;
    let cancelled = lab.call("obsidian_rag_index", json!({"mode": "cancel"})).await["data"]["job_id"].clone();
    embedder.hold_from(usize::MAX);
    let stop = CancellationToken::new();
    let serving = tokio::spawn(toolyard_knowledge::serve(lab.knowledge.clone(), stop.clone()));
    // Long enough for the first scan of the vault, which would find the new note.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(lab.knowledge.jobs.record().last.map(|job| job.id), cancelled.as_str().map(str::to_owned));
    eventually("a change is indexed, and what was left with it", || async {
        lab.note("c.md", "a green boat");
        lab.found("red car").await.first().is_some_and(|file| file == "b.md")
    })
    .await;
    stop.cancel();
    serving.await.unwrap();
    lab.knowledge.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_another_process_is_cancelled() {
    let (lab, embedder) = watched();
    lab.note("a.md", "the blue bicycle");
    let other = lab.beside(embedder.clone());
    assert!(other.jobs.cancel_elsewhere().unwrap().is_none(), "nothing runs");
    embedder.hold_from(0);
    let id = lab.call("obsidian_rag_index", json!({"mode": "full"})).await["data"]["job_id"].clone();
    assert!(matches!(other.start(JobMode::Sync), Ok(JobStart::Running(job)) if id == job.id.as_str()));
    assert!(other.jobs.cancel().is_none(), "it is not ours");
    assert!(other.jobs.cancel_elsewhere().unwrap().is_some_and(|job| id == job.id.as_str()));
    eventually("it stops", || async { other.jobs.record().last.is_some_and(|job| job.state == JobState::Cancelled) })
        .await;
    embedder.hold_from(usize::MAX);
    lab.index("sync").await;
    assert!(!lab.dir.path().join("index/job.cancel").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_written_does_not_keep_a_job_running() {
    let (lab, embedder) = watched();
    lab.note("a.md", "the blue bicycle");
    embedder.hold_from(0);
    let id = lab.call("obsidian_rag_index", json!({"mode": "full"})).await["data"]["job_id"].clone();
    // A folder with content cannot be replaced by a file, so writing the record fails.
    let record = lab.dir.path().join("index/job.json");
    std::fs::remove_file(&record).unwrap();
    std::fs::create_dir_all(record.join("in the way")).unwrap();
    embedder.hold_from(usize::MAX);
    lab.knowledge.jobs.idle().await;
    let status = lab.call("obsidian_rag_status", json!({"job_id": id})).await;
    assert_eq!((status["data"]["job"]["state"].as_str(), &status["data"]["active_job"]), (Some("done"), &Value::Null));
    assert!(status["data"]["last_sync"].is_string());
    std::fs::remove_dir_all(&record).unwrap();
    lab.index("sync").await;
    let status = lab.call("obsidian_rag_status", json!({"job_id": id})).await;
    assert_eq!(status["data"]["job"]["state"], "done", "it is written with the next one");
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_is_over_when_another_process_did_better() {
    let (lab, embedder) = watched();
    lab.note("a.md", "the blue bicycle");
    lab.index("full").await;
    embedder.panic.store(true, Ordering::SeqCst);
    lab.note("b.md", "a red car");
    lab.call("obsidian_rag_index", json!({"mode": "sync", "wait_ms": 20_000})).await;
    assert_eq!(code(&lab.call("obsidian_rag_status", json!({})).await), "INDEXER_FAILED");
    embedder.panic.store(false, Ordering::SeqCst);
    let other = lab.beside(embedder);
    assert!(matches!(other.start(JobMode::Sync), Ok(JobStart::New(_))));
    other.jobs.idle().await;
    assert_eq!(lab.call("obsidian_rag_status", json!({})).await["status"], "healthy");
}

/// Images and ignored files are not reported; a folder that cannot be listed is.
#[tokio::test(flavor = "multi_thread")]
async fn only_what_may_be_a_note_is_told_as_unreadable() {
    let lab = Lab::new();
    lab.note(".obsidian-ragignore", "*.draft.md\n");
    lab.note("good.md", "a good note");
    for name in
        ["back\\slash.png", "back\\slash.draft.md", "back\\slash.md", "zzz-Archive/back\\slash.md", "fol\\der/a.md"]
    {
        lab.note(name, "text");
    }
    lab.index("full").await;
    let status = lab.call("obsidian_rag_status", json!({"files": "failed"})).await;
    let listed: Vec<&str> = status["data"]["file_list"]["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    assert_eq!(listed, ["back\\slash.md", "fol\\der"]);
}

/// A call that would wait beyond its deadline responds in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_call_answers_before_its_time_is_over() {
    let (lab, embedder) = watched();
    lab.note("a.md", "the blue bicycle");
    embedder.hold_from(0);
    let request = CallRequest {
        tool: "obsidian_rag_index".to_owned(),
        args: map(json!({"mode": "full", "wait_ms": 300_000})),
        timeout_ms: Some(4_000),
        ..CallRequest::default()
    };
    let result = lab.engine.call(Arc::new(Caller::cli("ada")), request).await.result;
    assert!(result.error.is_none(), "{:?}", result.error);
    assert_eq!(result.data.as_ref().unwrap()["data"]["state"], "running");
    embedder.hold_from(usize::MAX);
    lab.knowledge.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_watching_gets_it_whatever_the_configuration_says() {
    let mut config = KnowledgeConfig::default();
    (config.indexing.debounce_ms, config.indexing.window_ms, config.indexing.watch) = (20, 200, false);
    let lab = Lab::with(config, Some(Arc::new(Trigrams(32))));
    lab.note("a.md", "the blue bicycle");
    lab.index("full").await;
    let stop = CancellationToken::new();
    let serving = tokio::spawn(toolyard_knowledge::serve_watching(lab.knowledge.clone(), stop.clone()));
    eventually("a new note is found", || async {
        lab.note("b.md", "a yellow submarine");
        lab.found("yellow submarine").await.first().is_some_and(|file| file == "b.md")
    })
    .await;
    stop.cancel();
    serving.await.unwrap();
    lab.knowledge.close().await;
}
