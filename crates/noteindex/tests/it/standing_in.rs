//! Serving while the index program is not installed.

use crate::{
    index_suite::{chunk, file, spec},
    remote_index::{Threads, complete, remote},
};
use toolyard_noteindex::{
    IndexError, NoteIndex, ProgramError, WriteBatch, WriterStart,
    fallback::{FallbackIndex, MAX_CHUNKS},
    remote::IDLE_STOP,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_answers_until_the_program_has_a_version_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let threads = Threads::new(dir.path());
    threads.uninstall();
    let index = FallbackIndex::new(remote(&threads, IDLE_STOP));
    index.set_serving();
    assert!(index.program_problem().is_some() && index.current().await.unwrap().is_none());
    complete(&index, "a.md", "apple pie").await.unwrap();
    let before = index.generation().await.unwrap().unwrap();
    assert!(!index.wants_move().await, "there is nowhere to move to");

    threads.install();
    assert_eq!(index.program_problem(), None);
    assert!(index.wants_move().await);
    assert_eq!(index.generation().await.unwrap(), Some(before), "memory answers on");
    complete(&index, "a.md", "apple pie").await.unwrap();
    let after = index.generation().await.unwrap().unwrap();
    assert!(after != before && !index.wants_move().await);
    assert_eq!(index.current().await.unwrap().unwrap().info().files, 1);
    threads.uninstall();
    assert!(index.current().await.is_ok(), "a program that runs goes on");
}

/// An index built in memory by a short-lived command would be lost silently when the command exits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_server_indexes_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let threads = Threads::new(dir.path());
    threads.uninstall();
    let index = FallbackIndex::new(remote(&threads, IDLE_STOP));
    let refused = complete(&index, "a.md", "apple pie").await;
    assert!(matches!(refused, Err(IndexError::Program(ProgramError::Missing(_)))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installed_program_is_used_from_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let index = FallbackIndex::new(remote(&Threads::new(dir.path()), IDLE_STOP));
    complete(&index, "a.md", "apple pie").await.unwrap();
    assert_eq!(index.program_problem(), None);
    let again = FallbackIndex::new(remote(&Threads::new(dir.path()), IDLE_STOP));
    assert_eq!(again.current().await.unwrap().unwrap().info().files, 1, "it is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_notes_than_fit_are_refused_and_removed_ones_make_room() {
    let dir = tempfile::tempdir().unwrap();
    let threads = Threads::new(dir.path());
    threads.uninstall();
    let index = FallbackIndex::new(remote(&threads, IDLE_STOP));
    index.set_serving();
    let most = u32::try_from(MAX_CHUNKS).unwrap();
    let full = |path: &str, count: u32| WriteBatch {
        files: vec![file(path, count)],
        chunks: (0..count).map(|number| chunk(path, number, "word", None)).collect(),
        ..WriteBatch::default()
    };
    let mut writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
    writer.put(full("a.md", most)).await.unwrap();
    let over = writer.put(full("b.md", 1)).await;
    assert!(matches!(over, Err(IndexError::Program(ProgramError::TooMany(_)))), "{over:?}");
    drop(writer);
    let mut writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
    writer.put(WriteBatch { removed: vec!["a.md".to_owned()], ..full("b.md", 1) }).await.unwrap();
    writer.complete().await.unwrap();
    assert_eq!(index.current().await.unwrap().unwrap().info().chunks, 1);
}
