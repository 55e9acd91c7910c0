//! Damaged tables are reported as damaged and can be rebuilt.

use crate::index_suite::{note, spec};
use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use toolyard_lance::{LanceIndex, LanceOptions};
use toolyard_noteindex::{ChunkFilter, IndexError, NoteIndex, WriterStart};

const X: [f32; 4] = [1.0, 0.0, 0.0, 0.0];

fn open(dir: &Path) -> LanceIndex {
    LanceIndex::new(LanceOptions::new(dir.display().to_string()))
}

async fn complete(index: &LanceIndex, path: &str, start: WriterStart) {
    let mut writer = index.write(&spec(), start).await.unwrap();
    writer.put(note(path, &[("apple pie", X), ("banana bread", X)])).await.unwrap();
    writer.complete().await.unwrap();
}

fn files_below(dir: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().contains(part) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no {part} below {}", dir.display());
    found
}

fn shorten(path: &Path) {
    let length = std::fs::metadata(path).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length / 2).unwrap();
}

/// Asserts that the index reports the damage and that a rebuild repairs it.
async fn is_told_and_mended(dir: &Path, what: &str) {
    let index = open(dir);
    let reader = match index.current().await {
        Err(IndexError::Corrupted(_)) => None,
        Err(other) => panic!("{what}: {other:?}"),
        Ok(reader) => reader,
    };
    if let Some(reader) = reader {
        let found = reader.full_text(&["apple".to_owned()], &ChunkFilter::default(), 5).await;
        assert!(matches!(found, Err(IndexError::Corrupted(_))), "{what}: {found:?}");
    }
    complete(&index, "new.md", WriterStart::Fresh).await;
    let files = index.current().await.unwrap().unwrap().files().await.unwrap();
    assert_eq!(files.iter().map(|f| f.path.as_str()).collect::<Vec<_>>(), ["new.md"], "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shortened_or_missing_file_is_damage() {
    for (what, part) in [
        ("data of chunks", "obsidian_chunks.lance/data"),
        ("data of files", "obsidian_files.lance/data"),
        ("manifests of chunks", "obsidian_chunks.lance/_versions"),
        ("manifests of files", "obsidian_files.lance/_versions"),
        ("the full-text index", "obsidian_chunks.lance/_indices"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        complete(&open(dir.path()), "a.md", WriterStart::Continue).await;
        files_below(dir.path(), part).iter().for_each(|path| shorten(path));
        is_told_and_mended(dir.path(), &format!("{what}, shortened")).await;

        let dir = tempfile::tempdir().unwrap();
        complete(&open(dir.path()), "a.md", WriterStart::Continue).await;
        files_below(dir.path(), part).iter().for_each(|path| std::fs::remove_file(path).unwrap());
        is_told_and_mended(dir.path(), &format!("{what}, removed")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overwritten_bytes_never_bring_the_process_down() {
    for (round, part) in
        ["obsidian_chunks.lance/data", "obsidian_chunks.lance/_versions", "_indices"].iter().enumerate()
    {
        let dir = tempfile::tempdir().unwrap();
        complete(&open(dir.path()), "a.md", WriterStart::Continue).await;
        for path in files_below(dir.path(), part) {
            let mut bytes = std::fs::read(&path).unwrap();
            let length = bytes.len();
            for (at, byte) in bytes.iter_mut().enumerate().skip(length / 4).take(length / 2) {
                *byte = byte.wrapping_mul(31).wrapping_add((at + round) as u8);
            }
            std::fs::write(&path, bytes).unwrap();
        }
        let index = open(dir.path());
        if let Ok(Some(reader)) = index.current().await {
            let _ = reader.full_text(&["apple".to_owned()], &ChunkFilter::default(), 5).await;
            let _ = reader.nearest(&X, &ChunkFilter::default(), 5).await;
            let _ = reader.files().await;
        }
        complete(&index, "new.md", WriterStart::Fresh).await;
        assert_eq!(index.current().await.unwrap().unwrap().files().await.unwrap().len(), 1, "{part}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_survive_a_restart_and_surplus_ones_go() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..9 {
        complete(&open(dir.path()), &format!("n{number}.md"), WriterStart::Continue).await;
    }
    let index = open(dir.path());
    let versions = index.versions().await.unwrap();
    assert_eq!(versions.iter().map(|v| v.files).collect::<Vec<_>>(), [5, 6, 7, 8, 9]);
    index.rollback().await.unwrap();
    let files = open(dir.path()).current().await.unwrap().unwrap().files().await.unwrap();
    assert_eq!(files.len(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_an_older_make_are_read_and_written() {
    let dir = tempfile::tempdir().unwrap();
    complete(&open(dir.path()), "a.md", WriterStart::Continue).await;
    let table = dir.path().join("obsidian_chunks.lance").display().to_string();
    lance::Dataset::open(&table).await.unwrap().drop_columns(&["details"]).await.unwrap();
    let index = open(dir.path());
    complete(&index, "b.md", WriterStart::Continue).await;
    let schema = lance::Dataset::open(&table).await.unwrap();
    assert!(schema.schema().field("details").is_none());
    let reader = index.current().await.unwrap().unwrap();
    let found = reader.full_text(&["apple".to_owned()], &ChunkFilter::default(), 5).await.unwrap();
    let rows: Vec<u64> = found.iter().map(|found| found.row).collect();
    let mut files: Vec<String> = reader.fetch(&rows).await.unwrap().into_iter().map(|c| c.source_file).collect();
    files.sort();
    assert_eq!(files, ["a.md", "b.md"]);
}

/// A missing full-text index is detected when the index is opened, and a sync recreates it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_index_files_are_seen_at_once_and_mended_by_a_sync() {
    for harm in [shorten as fn(&Path), |path| std::fs::remove_file(path).unwrap()] {
        let dir = tempfile::tempdir().unwrap();
        complete(&open(dir.path()), "a.md", WriterStart::Continue).await;
        files_below(dir.path(), "obsidian_chunks.lance/_indices").iter().for_each(|path| harm(path));
        let index = open(dir.path());
        assert!(matches!(index.current().await, Err(IndexError::Corrupted(_))));
        let writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
        assert!(writer.is_changed(), "though no note did");
        writer.complete().await.unwrap();
        let reader = open(dir.path()).current().await.unwrap().unwrap();
        let found = reader.full_text(&["apple".to_owned()], &ChunkFilter::default(), 5).await.unwrap();
        assert_eq!((found.len(), reader.info().files), (1, 1));
    }
}

/// A folder name may contain words that look like other errors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_damage_whatever_the_folder_is_called() {
    let dir = tempfile::tempdir().unwrap();
    let odd = dir.path().join("connection timed out").join("forbidden timeout").join("permission denied");
    for part in ["obsidian_chunks.lance/data", "obsidian_chunks.lance/_versions", "obsidian_files.lance/data"] {
        complete(&open(&odd), "a.md", WriterStart::Fresh).await;
        files_below(&odd, part).iter().for_each(|path| shorten(path));
        is_told_and_mended(&odd, part).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_given_as_a_uri_is_private_and_looked_at_as_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("an index");
    let uri = format!("file://{}/an%20index", dir.path().display());
    let index = LanceIndex::new(LanceOptions::new(uri));
    assert_eq!(index.generation().await.unwrap(), None);
    complete(&index, "a.md", WriterStart::Continue).await;
    assert!(folder.join("obsidian_chunks.lance").is_dir());
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(index.generation().await.unwrap().is_some());
    assert_eq!(open(&folder).current().await.unwrap().unwrap().info().files, 1, "and by its path");
}
