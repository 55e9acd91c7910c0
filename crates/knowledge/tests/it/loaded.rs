//! The version that searches use: what it reuses from the previous one, and what happens when the index breaks, becomes
//! unreachable and recovers.

use crate::{
    index_suite::{note, spec},
    support::{Lab, Trigrams, code, eventually, files},
};
use serde_json::json;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use toolyard_engine::BoxFuture;
use toolyard_knowledge::{
    KnowledgeConfig,
    index::{
        ChunkFilter, ChunkRow, FileRow, IndexError, IndexReader, IndexResult, IndexSpec, IndexWriter, NoteIndex,
        RowScore, VectorColumns, VectorSink, VersionInfo, WriteBatch, WriterStart, memory::MemoryIndex,
    },
    search::{Detail, Library, SearchQuery, Weights, answer, vectors::QuantisedQuery},
};

const X: [f32; 4] = [1.0, 0.0, 0.0, 0.0];
const Y: [f32; 4] = [0.0, 1.0, 0.0, 0.0];
/// A budget for all vectors of these tests.
const ROOM: u64 = 1 << 20;

async fn write(index: &dyn NoteIndex, spec: &IndexSpec, batches: Vec<WriteBatch>) {
    let mut writer = index.write(spec, WriterStart::Continue).await.unwrap();
    for batch in batches {
        writer.put(batch).await.unwrap();
    }
    writer.complete().await.unwrap();
}

async fn load(index: &dyn NoteIndex, before: Option<&Library>, budget: u64) -> Library {
    Library::load(index.current().await.unwrap().unwrap(), before, budget).await.unwrap()
}

#[tokio::test]
async fn vectors_of_another_model_are_never_taken_over() {
    let index = MemoryIndex::new();
    let likeness = |library: &Library, to: &[f32]| {
        let found = library.vectors.as_ref().unwrap().nearest(&QuantisedQuery::new(to), |_| true, 1);
        found[0].score
    };
    write(&index, &spec(), vec![note("a.md", &[("apple", X)])]).await;
    let first = load(&index, None, ROOM).await;
    // The same text and vector length, but from another model.
    let other = IndexSpec { embedder: "test/b".to_owned(), ..spec() };
    write(&index, &other, vec![note("a.md", &[("apple", Y)])]).await;
    let second = load(&index, Some(&first), ROOM).await;
    assert!(likeness(&second, &Y) > 0.99 && likeness(&second, &X) < 0.01);
    index.rollback().await.unwrap();
    let back = load(&index, Some(&second), ROOM).await;
    assert!(likeness(&back, &X) > 0.99 && likeness(&back, &Y) < 0.01);
}

/// For a chunk found by words, the cosine counts although hundreds of other chunks are nearer.
#[tokio::test]
async fn ranking_is_the_same_whether_vectors_are_in_memory_or_not() {
    let index = MemoryIndex::new();
    let mut notes = vec![note("hit.md", &[("zebra crossing", [0.6, 0.8, 0.0, 0.0])])];
    notes.extend((0..400).map(|i| note(&format!("n{i}.md"), &[(&format!("filler {i}"), X)])));
    let mut unembedded = note("plain.md", &[("zebra", X)]);
    unembedded.chunks[0].vector = None;
    notes.push(unembedded);
    write(&index, &spec(), notes).await;
    let (in_memory, on_disk) = (load(&index, None, ROOM).await, load(&index, None, 0).await);
    assert!(in_memory.vectors.is_some() && on_disk.vectors.is_none());
    let question = SearchQuery {
        terms: vec!["zebra".to_owned()],
        vector: Some(X.to_vec()),
        filter: ChunkFilter::default(),
        allowed: None,
        limit: 5,
        weights: Weights { vector: 0.45, links: 0.0 },
        detail: Detail::Scores,
    };
    let scores = |library| {
        let question = &question;
        async move {
            let found = answer(library, question).await.unwrap();
            found.hits.into_iter().map(|hit| hit.fused).collect::<Vec<_>>()
        }
    };
    let (expected, found) = (scores(&in_memory).await, scores(&on_disk).await);
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(expected.row, found.row);
        assert_eq!(expected.likeness.is_some(), found.likeness.is_some(), "{found:?}");
        assert!((expected.score - found.score).abs() < 0.01, "{expected:?} {found:?}");
    }
    assert!(found.iter().any(|f| f.text_part > 0.0 && f.likeness.is_some_and(|like| (like - 0.6).abs() < 0.01)));
}

/// An index whose files can be damaged and restored, and whose location can become unreachable.
#[derive(Default)]
struct Breakable {
    inner: MemoryIndex,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// The index cannot be opened.
    unopenable: AtomicBool,
    /// An open index cannot be read.
    unreadable: AtomicBool,
    /// The location does not respond.
    away: AtomicBool,
}

impl State {
    fn check(&self, flag: &AtomicBool) -> IndexResult<()> {
        if flag.load(Ordering::SeqCst) { Err(IndexError::Corrupted("damaged".to_owned())) } else { Ok(()) }
    }
    fn reached(&self) -> IndexResult<()> {
        if self.away.load(Ordering::SeqCst) { Err(IndexError::Unavailable("away".to_owned())) } else { Ok(()) }
    }
}

impl NoteIndex for Breakable {
    fn current(&self) -> BoxFuture<'_, IndexResult<Option<Arc<dyn IndexReader>>>> {
        Box::pin(async {
            self.state.reached()?;
            self.state.check(&self.state.unopenable)?;
            let reader = self.inner.current().await?;
            Ok(reader.map(|reader| Arc::new(Reader(reader, self.state.clone())) as Arc<dyn IndexReader>))
        })
    }
    fn generation(&self) -> BoxFuture<'_, IndexResult<Option<u64>>> {
        Box::pin(async {
            self.state.reached()?;
            self.inner.generation().await
        })
    }
    fn write<'a>(
        &'a self,
        spec: &'a IndexSpec,
        start: WriterStart,
    ) -> BoxFuture<'a, IndexResult<Box<dyn IndexWriter>>> {
        self.inner.write(spec, start)
    }
    fn versions(&self) -> BoxFuture<'_, IndexResult<Vec<VersionInfo>>> {
        self.inner.versions()
    }
    fn rollback(&self) -> BoxFuture<'_, IndexResult<VersionInfo>> {
        self.inner.rollback()
    }
}

struct Reader(Arc<dyn IndexReader>, Arc<State>);

impl Reader {
    fn read<'a, T: Send + 'a>(&'a self, work: BoxFuture<'a, IndexResult<T>>) -> BoxFuture<'a, IndexResult<T>> {
        match self.1.check(&self.1.unreadable) {
            Ok(()) => work,
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}

impl IndexReader for Reader {
    fn info(&self) -> &VersionInfo {
        self.0.info()
    }
    fn files(&self) -> BoxFuture<'_, IndexResult<Vec<FileRow>>> {
        self.0.files()
    }
    fn full_text<'a>(
        &'a self,
        terms: &'a [String],
        filter: &'a ChunkFilter,
        limit: usize,
    ) -> BoxFuture<'a, IndexResult<Vec<RowScore>>> {
        self.read(self.0.full_text(terms, filter, limit))
    }
    fn files_of<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<u64>>> {
        self.0.files_of(rows)
    }
    fn nearest<'a>(
        &'a self,
        vector: &'a [f32],
        filter: &'a ChunkFilter,
        limit: usize,
    ) -> BoxFuture<'a, IndexResult<Vec<RowScore>>> {
        self.0.nearest(vector, filter, limit)
    }
    fn vectors<'a>(&'a self, columns: VectorColumns, sink: VectorSink<'a>) -> BoxFuture<'a, IndexResult<()>> {
        self.0.vectors(columns, sink)
    }
    fn vectors_of<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<Option<Vec<f32>>>>> {
        self.0.vectors_of(rows)
    }
    fn sample(&self, count: usize) -> BoxFuture<'_, IndexResult<Vec<String>>> {
        self.read(self.0.sample(count))
    }
    fn fetch<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<ChunkRow>>> {
        self.read(self.0.fetch(rows))
    }
}

async fn breakable() -> (Lab, Arc<State>) {
    let index = Breakable::default();
    let state = index.state.clone();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("vault")).unwrap();
    let embedder = Arc::new(Trigrams(64));
    let lab = Lab::over(dir, Arc::new(index), KnowledgeConfig::default(), Some(embedder), json!({}));
    lab.note("a.md", "the blue bicycle");
    lab.index("full").await;
    assert_eq!(lab.search("bicycle").await["status"], "healthy");
    (lab, state)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_whole_again_is_searched_again() {
    let (lab, state) = breakable().await;
    state.unreadable.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let answer = lab.search("bicycle").await;
        assert_eq!((answer["status"].as_str(), code(&answer)), (Some("unavailable"), "INDEX_CORRUPTED"));
        let status = lab.call("obsidian_rag_status", json!({})).await;
        assert_eq!(
            (status["status"].as_str(), code(&status)),
            (Some("unavailable"), "INDEX_CORRUPTED"),
            "what a question stumbled over is not forgotten because the index can be opened"
        );
    }
    state.unreadable.store(false, Ordering::SeqCst);
    let status = lab.call("obsidian_rag_status", json!({})).await;
    assert_eq!((status["status"].as_str(), code(&status)), (Some("healthy"), "none"));
    assert_eq!(lab.found("bicycle").await, ["a.md"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_and_status_agree_on_damage_and_searches_alone_find_the_end_of_it() {
    let (lab, state) = breakable().await;
    state.unopenable.store(true, Ordering::SeqCst);
    let status = lab.call("obsidian_rag_status", json!({})).await;
    assert_eq!(code(&status), "INDEX_CORRUPTED");
    for _ in 0..3 {
        assert_eq!(code(&lab.search("bicycle").await), "INDEX_CORRUPTED");
    }
    state.unopenable.store(false, Ordering::SeqCst);
    eventually("a search finds the index restored", || async { lab.search("bicycle").await["status"] == "healthy" })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loaded_version_answers_while_the_place_of_a_newer_one_does_not() {
    let (lab, state) = breakable().await;
    state.away.store(true, Ordering::SeqCst);
    assert!(lab.knowledge.refresh().await.is_ok());
    assert_eq!(files(&lab.search("bicycle").await), ["a.md"]);
    let status = lab.call("obsidian_rag_status", json!({})).await;
    assert_eq!(code(&status), "VAULT_UNAVAILABLE");
    state.away.store(false, Ordering::SeqCst);
    assert_eq!(lab.call("obsidian_rag_status", json!({})).await["status"], "healthy");
}
