//! [`MemoryIndex`]: an in-process index. It serves while the index program is missing, and in evaluations and tests.
//! The contract suite checks that it behaves like the LanceDB index.

use crate::{
    BoxFuture, ChunkFilter, ChunkRow, FileRow, IndexError, IndexReader, IndexResult, IndexSpec, IndexWriter, NoteIndex,
    RowScore, VectorColumns, VectorRow, VectorSink, VersionInfo, WriteBatch, WriterStart,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

/// BM25's term saturation parameter.
const K1: f32 = 1.2;
/// BM25's length normalisation parameter.
const B: f32 = 0.75;

/// Number of complete versions that are kept.
const KEEP_VERSIONS: usize = 5;
/// First generation number of a stand-in index, so that its generations are never confused with those of the index
/// program.
const STAND_IN_GENERATIONS: u64 = 1 << 63;
/// The file of an index that is persisted in a folder.
const FILE: &str = "notes.memory/versions.bin";

/// An in-process index.
#[derive(Default)]
pub struct MemoryIndex(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    /// The file of complete versions, and its modification time when it was last read.
    file: Option<(PathBuf, Option<SystemTime>)>,
    versions: Vec<Arc<MemoryVersion>>,
    /// The state of the last writer: files by path, with their chunks.
    draft: Draft,
    writing: bool,
    last_generation: u64,
}

/// The persisted versions, oldest first, with generation and time.
type StoredVersions = Vec<(u64, Timestamp, Draft)>;

#[derive(Clone, Default, Serialize, Deserialize)]
struct Draft {
    spec: Option<IndexSpec>,
    files: BTreeMap<String, (FileRow, Vec<Arc<ChunkRow>>)>,
    changed: bool,
}

struct MemoryVersion {
    info: VersionInfo,
    draft: Draft,
    rows: Vec<Arc<ChunkRow>>,
    postings: HashMap<String, Vec<(u32, f32)>>,
    lengths: Vec<f32>,
    average: f32,
}

impl MemoryIndex {
    /// An empty index.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty index that stands in for another one.
    pub(crate) fn standing_in() -> Self {
        Self(Arc::new(Mutex::new(Shared { last_generation: STAND_IN_GENERATIONS, ..Shared::default() })))
    }

    /// An index whose complete versions are persisted in a folder, for tests that stop and restart programs. The file
    /// is read and written as a whole.
    pub fn kept_in(folder: &Path) -> Self {
        Self(Arc::new(Mutex::new(Shared { file: Some((folder.join(FILE), None)), ..Shared::default() })))
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shared.catch_up();
        shared
    }
}

impl Shared {
    /// Reads the file again if another process has written it.
    fn catch_up(&mut self) {
        let Some((path, read)) = self.file.as_mut().filter(|_| !self.writing) else { return };
        let written = std::fs::metadata(&*path).and_then(|meta| meta.modified()).ok();
        if written == *read {
            return;
        }
        *read = written;
        let kept = std::fs::read(&*path).ok().and_then(|bytes| postcard::from_bytes::<StoredVersions>(&bytes).ok());
        let version = |(generation, time, draft)| Arc::new(MemoryVersion::new(draft, generation, time));
        self.versions = kept.unwrap_or_default().into_iter().map(version).collect();
        self.last_generation = self.versions.last().map_or(0, |version| version.info.generation);
        self.draft = self.versions.last().map(|version| version.draft.clone()).unwrap_or_default();
    }

    /// Writes the versions to the file atomically.
    fn keep(&mut self) -> IndexResult<()> {
        let Some((path, read)) = &mut self.file else { return Ok(()) };
        let unavailable = |e: &dyn std::fmt::Display| IndexError::Unavailable(e.to_string());
        let kept: StoredVersions = self
            .versions
            .iter()
            .map(|version| (version.info.generation, version.info.completed_at, version.draft.clone()))
            .collect();
        let bytes = postcard::to_allocvec(&kept).map_err(|e| unavailable(&e))?;
        let new = path.with_extension(format!("{}.new", std::process::id()));
        std::fs::create_dir_all(path.parent().unwrap_or(path)).map_err(|e| unavailable(&e))?;
        toolyard_faults::write(&new, bytes).map_err(|e| unavailable(&e))?;
        toolyard_faults::rename(&new, path).map_err(|e| unavailable(&e))?;
        *read = std::fs::metadata(&*path).and_then(|meta| meta.modified()).ok();
        Ok(())
    }
}

impl NoteIndex for MemoryIndex {
    fn current(&self) -> BoxFuture<'_, IndexResult<Option<Arc<dyn IndexReader>>>> {
        let current = self.shared().versions.last().cloned();
        Box::pin(async move { Ok(current.map(|version| version as Arc<dyn IndexReader>)) })
    }

    fn generation(&self) -> BoxFuture<'_, IndexResult<Option<u64>>> {
        let current = self.shared().versions.last().map(|version| version.info.generation);
        Box::pin(async move { Ok(current) })
    }

    fn write<'a>(
        &'a self,
        spec: &'a IndexSpec,
        start: WriterStart,
    ) -> BoxFuture<'a, IndexResult<Box<dyn IndexWriter>>> {
        Box::pin(async move {
            let mut shared = self.shared();
            if shared.writing {
                return Err(IndexError::Busy);
            }
            let goes_on =
                start == WriterStart::Continue && shared.draft.spec.as_ref().is_some_and(|s| s.shares_table(spec));
            if !goes_on {
                shared.draft = Draft { changed: true, ..Draft::default() };
            }
            shared.draft.spec = Some(spec.clone());
            shared.writing = true;
            let before = shared.draft.files.values().flat_map(|(_, rows)| rows.iter().cloned()).collect();
            Ok(Box::new(MemoryWriter(self.0.clone(), before)) as Box<dyn IndexWriter>)
        })
    }

    fn versions(&self) -> BoxFuture<'_, IndexResult<Vec<VersionInfo>>> {
        let versions = self.shared().versions.iter().map(|version| version.info.clone()).collect();
        Box::pin(async move { Ok(versions) })
    }

    fn rollback(&self) -> BoxFuture<'_, IndexResult<VersionInfo>> {
        Box::pin(async move {
            let mut shared = self.shared();
            if shared.writing {
                return Err(IndexError::Busy);
            }
            if shared.versions.len() < 2 {
                return Err(IndexError::NoEarlierVersion);
            }
            shared.versions.pop();
            let Some(current) = shared.versions.last().cloned() else { return Err(IndexError::NoEarlierVersion) };
            shared.draft = Draft { changed: false, ..current.draft.clone() };
            shared.keep()?;
            Ok(current.info.clone())
        })
    }
}

/// The index, and the chunks as they were when the writer was opened.
struct MemoryWriter(Arc<Mutex<Shared>>, Vec<Arc<ChunkRow>>);

impl MemoryWriter {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        self.shared().writing = false;
    }
}

impl IndexWriter for MemoryWriter {
    fn files(&self) -> BoxFuture<'_, IndexResult<Vec<FileRow>>> {
        let files = self.shared().draft.files.values().map(|(file, _)| file.clone()).collect();
        Box::pin(async move { Ok(files) })
    }

    fn known_vectors<'a>(&'a self, hashes: &'a [u64]) -> BoxFuture<'a, IndexResult<HashMap<u64, Vec<f32>>>> {
        let wanted: std::collections::HashSet<u64> = hashes.iter().copied().collect();
        let rows = self.1.iter().filter(|row| wanted.contains(&row.hash));
        let found = rows.filter_map(|row| Some((row.hash, row.vector.clone()?))).collect();
        Box::pin(async move { Ok(found) })
    }

    fn put(&mut self, batch: WriteBatch) -> BoxFuture<'_, IndexResult<()>> {
        let mut shared = self.shared();
        let draft = &mut shared.draft;
        draft.changed |= !batch.is_empty();
        for path in &batch.removed {
            draft.files.remove(path);
        }
        for file in batch.touched {
            let chunks = draft.files.remove(&file.path).map(|(_, chunks)| chunks).unwrap_or_default();
            draft.files.insert(file.path.clone(), (file, chunks));
        }
        for file in batch.files {
            draft.files.insert(file.path.clone(), (file, Vec::new()));
        }
        for chunk in batch.chunks {
            if let Some((_, chunks)) = draft.files.get_mut(&chunk.source_file) {
                chunks.push(Arc::new(chunk));
            }
        }
        Box::pin(async { Ok(()) })
    }

    fn is_changed(&self) -> bool {
        self.shared().draft.changed
    }

    fn complete(self: Box<Self>) -> BoxFuture<'static, IndexResult<VersionInfo>> {
        Box::pin(async move {
            let mut shared = self.shared();
            shared.last_generation += 1;
            shared.draft.changed = false;
            let version = MemoryVersion::new(shared.draft.clone(), shared.last_generation, Timestamp::now());
            let info = version.info.clone();
            shared.versions.push(Arc::new(version));
            let surplus = shared.versions.len().saturating_sub(KEEP_VERSIONS);
            shared.versions.drain(..surplus);
            shared.keep()?;
            Ok(info)
        })
    }
}

impl MemoryVersion {
    fn new(draft: Draft, generation: u64, completed_at: Timestamp) -> Self {
        let rows: Vec<Arc<ChunkRow>> = draft.files.values().flat_map(|(_, rows)| rows.iter().cloned()).collect();
        let mut postings: HashMap<String, Vec<(u32, f32)>> = HashMap::new();
        let mut lengths = Vec::with_capacity(rows.len());
        for (number, row) in rows.iter().enumerate() {
            let mut counts: HashMap<&str, f32> = HashMap::new();
            let mut length = 0.0;
            for term in row.terms.split_ascii_whitespace() {
                *counts.entry(term).or_default() += 1.0;
                length += 1.0;
            }
            lengths.push(length);
            for (term, count) in counts {
                postings.entry(term.to_owned()).or_default().push((number as u32, count));
            }
        }
        let average = (lengths.iter().sum::<f32>() / lengths.len().max(1) as f32).max(1.0);
        let spec =
            draft.spec.clone().unwrap_or(IndexSpec { embedder: String::new(), dimensions: 0, recipe: String::new() });
        let info = VersionInfo {
            generation,
            version: generation.to_string(),
            spec,
            chunks: rows.len() as u64,
            files: draft.files.len() as u64,
            completed_at,
        };
        Self { info, draft, rows, postings, lengths, average }
    }

    fn admits(&self, filter: &ChunkFilter, row: usize) -> bool {
        self.rows.get(row).is_some_and(|row| filter.admits(&row.source_file, &row.tags, row.day))
    }
}

impl IndexReader for MemoryVersion {
    fn info(&self) -> &VersionInfo {
        &self.info
    }

    fn files(&self) -> BoxFuture<'_, IndexResult<Vec<FileRow>>> {
        Box::pin(async { Ok(self.draft.files.values().map(|(file, _)| file.clone()).collect()) })
    }

    fn full_text<'a>(
        &'a self,
        terms: &'a [String],
        filter: &'a ChunkFilter,
        limit: usize,
    ) -> BoxFuture<'a, IndexResult<Vec<RowScore>>> {
        let total = self.rows.len() as f32;
        let mut scores = vec![0.0f32; self.rows.len()];
        for postings in terms.iter().filter_map(|term| self.postings.get(term)) {
            let count = postings.len() as f32;
            let idf = (1.0 + (total - count + 0.5) / (count + 0.5)).ln();
            for &(row, frequency) in postings {
                let length = self.lengths[row as usize] / self.average;
                scores[row as usize] += idf * frequency * (K1 + 1.0) / (frequency + K1 * (1.0 - B + B * length));
            }
        }
        let found = scores.iter().enumerate().filter(|&(row, score)| *score > 0.0 && self.admits(filter, row));
        let found = found.map(|(row, score)| RowScore { row: row as u64, score: *score });
        let found = best(found.collect(), limit);
        Box::pin(async move { Ok(found) })
    }

    fn files_of<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<u64>>> {
        let gone = || IndexError::Corrupted("rows are missing".to_owned());
        let file = |row: &u64| self.rows.get(*row as usize).map(|chunk| chunk.file_id()).ok_or_else(gone);
        let files = rows.iter().map(file).collect();
        Box::pin(async move { files })
    }

    fn nearest<'a>(
        &'a self,
        vector: &'a [f32],
        filter: &'a ChunkFilter,
        limit: usize,
    ) -> BoxFuture<'a, IndexResult<Vec<RowScore>>> {
        let rows = self.rows.iter().enumerate().filter(|(row, _)| self.admits(filter, *row));
        let found = rows.filter_map(|(row, chunk)| {
            let score = cosine(vector, chunk.vector.as_deref()?);
            Some(RowScore { row: row as u64, score })
        });
        let found = best(found.collect(), limit);
        Box::pin(async move { Ok(found) })
    }

    fn vectors<'a>(&'a self, columns: VectorColumns, sink: VectorSink<'a>) -> BoxFuture<'a, IndexResult<()>> {
        Box::pin(async move {
            for (row, chunk) in self.rows.iter().enumerate() {
                let (row, file) = (row as u64, chunk.file_id());
                match (columns, &chunk.vector) {
                    (VectorColumns::FilesOnly, _) => sink(VectorRow { row, file, hash: 0, vector: None }),
                    (VectorColumns::KeysOnly, Some(_)) => sink(VectorRow { row, file, hash: chunk.hash, vector: None }),
                    (VectorColumns::All, Some(vector)) => {
                        sink(VectorRow { row, file, hash: chunk.hash, vector: Some(vector) });
                    }
                    (_, None) => {}
                }
            }
            Ok(())
        })
    }

    fn vectors_of<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<Option<Vec<f32>>>>> {
        Box::pin(async move {
            let chunk = |row: &u64| self.rows.get(*row as usize).ok_or_else(|| no_such(*row));
            rows.iter().map(|row| chunk(row).map(|chunk| chunk.vector.clone())).collect()
        })
    }

    fn sample(&self, count: usize) -> BoxFuture<'_, IndexResult<Vec<String>>> {
        let step = self.rows.len().div_ceil(count.max(1)).max(1);
        Box::pin(async move { Ok(self.rows.iter().step_by(step).map(|row| row.text.clone()).collect()) })
    }

    fn fetch<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<ChunkRow>>> {
        Box::pin(async move {
            let chunk = |row: &u64| self.rows.get(*row as usize).ok_or_else(|| no_such(*row));
            rows.iter().map(|row| chunk(row).map(|chunk| ChunkRow { vector: None, ..(**chunk).clone() })).collect()
        })
    }
}

fn no_such(row: u64) -> IndexError {
    IndexError::Corrupted(format!("row {row} is missing"))
}

fn best(mut found: Vec<RowScore>, limit: usize) -> Vec<RowScore> {
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)));
    found.truncate(limit);
    found
}

/// The cosine similarity of two vectors.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let (mut dot, mut left, mut right) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        dot += x * y;
        left += x * x;
        right += y * y;
    }
    if left == 0.0 || right == 0.0 { 0.0 } else { dot / (left * right).sqrt() }
}
