//! Readers that run concurrently with a writer, and a sync after only the settings changed.

use crate::index_suite::{chunk, file, note, spec};
use lance::index::DatasetIndexExt;
use std::{path::Path, sync::Arc};
use toolyard_lance::{LanceIndex, LanceOptions};
use toolyard_noteindex::{ChunkFilter, NoteIndex, WriteBatch, WriterStart};

const X: [f32; 4] = [1.0, 0.0, 0.0, 0.0];
/// Number of versions completed while readers run.
const JOBS: usize = 25;

fn open(dir: &Path, change: impl FnOnce(&mut LanceOptions)) -> LanceIndex {
    let mut options = LanceOptions::new(dir.display().to_string());
    change(&mut options);
    LanceIndex::new(options)
}

/// Old versions lose their tags as soon as a new version is complete; a concurrent reader must not report damage.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_looks_while_jobs_complete_sees_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let few = |options: &mut LanceOptions| options.keep_versions = 2;
    let writer = Arc::new(open(dir.path(), few));
    let job = move |number: usize| {
        let writer = writer.clone();
        async move {
            let mut turn = writer.write(&spec(), WriterStart::Continue).await.unwrap();
            turn.put(note("a.md", &[(&format!("apple {number}"), X)])).await.unwrap();
            turn.complete().await.unwrap();
        }
    };
    job(0).await;
    let work = tokio::spawn(async move {
        for number in 1..=JOBS {
            job(number).await;
        }
    });
    let mut lookers = Vec::new();
    for _ in 0..3 {
        // Each reader opens the index separately, as another process would.
        let index = open(dir.path(), few);
        let done = work.abort_handle();
        lookers.push(tokio::spawn(async move {
            let mut looks = 0;
            while !done.is_finished() || looks == 0 {
                let reader = index.current().await.unwrap().expect("a complete version");
                let found = reader.full_text(&["apple".to_owned()], &ChunkFilter::default(), 5).await.unwrap();
                assert_eq!(found.len(), 1);
                assert!(!index.versions().await.unwrap().is_empty());
                looks += 1;
            }
        }));
    }
    work.await.unwrap();
    for looker in lookers {
        looker.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn less_memory_for_vectors_builds_their_index_though_no_note_changed() {
    /// Just enough chunks for a vector index.
    const CHUNKS: u32 = 4_200;
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path(), |_| {});
    let direction = |number: u32| {
        let angle = number as f32 / CHUNKS as f32 * std::f32::consts::TAU;
        Some([angle.cos(), angle.sin(), 0.0, 0.0])
    };
    let chunks = (0..CHUNKS).map(|number| chunk("a.md", number, &format!("word{number}"), direction(number))).collect();
    let mut writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
    writer.put(WriteBatch { files: vec![file("a.md", CHUNKS)], chunks, ..WriteBatch::default() }).await.unwrap();
    writer.complete().await.unwrap();
    assert!(!index.write(&spec(), WriterStart::Continue).await.unwrap().is_changed());

    let tight = open(dir.path(), |options| options.vector_memory_bytes = 0);
    let writer = tight.write(&spec(), WriterStart::Continue).await.unwrap();
    assert!(writer.is_changed());
    writer.complete().await.unwrap();
    assert!(!tight.write(&spec(), WriterStart::Continue).await.unwrap().is_changed(), "once is enough");
    let nearest = tight.current().await.unwrap().unwrap().nearest(&X, &ChunkFilter::default(), 3).await.unwrap();
    assert!(nearest.len() == 3 && nearest[0].score > 0.99);
    let table = lance::Dataset::open(&dir.path().join("obsidian_chunks.lance").display().to_string()).await.unwrap();
    let vector = table.schema().field("vector").unwrap().id;
    assert!(table.load_indices().await.unwrap().iter().any(|index| index.fields == [vector]));

    // A note that the vector index does not cover is found together with covered ones, and all have comparable scores.
    let mut writer = tight.write(&spec(), WriterStart::Continue).await.unwrap();
    writer.put(note("b.md", &[("late", [0.6, 0.0, 0.8, 0.0])])).await.unwrap();
    writer.complete().await.unwrap();
    let reader = tight.current().await.unwrap().unwrap();
    let asked = [0.8, 0.0, 0.6, 0.0];
    let found = reader.nearest(&asked, &ChunkFilter::default(), 50).await.unwrap();
    let rows: Vec<u64> = found.iter().map(|found| found.row).collect();
    assert_eq!(reader.fetch(&rows[..1]).await.unwrap()[0].source_file, "b.md");
    assert_eq!(found.len(), 50);
    for (found, vector) in found.iter().zip(reader.vectors_of(&rows).await.unwrap()) {
        let cosine: f32 = vector.unwrap().iter().zip(&asked).map(|(a, b)| a * b).sum();
        assert!((found.score - cosine).abs() < 0.01, "{} {cosine}", found.score);
    }
}
