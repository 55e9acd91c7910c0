//! [`LanceIndex`]: the index trait implemented with LanceDB.

use crate::{
    errors::{guarded, index_error},
    reader::LanceReader,
    rows::file_schema,
    table::Table,
    tables::{self, CHUNKS, FILES, OpenOutcome, TableLocation, completed_at, drop_tag, set_completed, tags},
    writer::{LanceWriter, Tables, tag},
};
use arrow_array::RecordBatch;
use lance::Dataset;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use toolyard_noteindex::{
    BoxFuture, IndexError, IndexReader, IndexResult, IndexSpec, IndexWriter, NoteIndex, VersionInfo, WriterStart,
    wire::OpenIndex,
};

/// How to open an index.
#[derive(Clone)]
pub struct LanceOptions {
    /// A folder or an object store URL.
    pub uri: String,
    /// Options of the object store.
    pub storage_options: HashMap<String, String>,
    /// Size of LanceDB's caches, in bytes.
    pub cache_bytes: u64,
    /// Number of complete versions to keep.
    pub keep_versions: usize,
    /// Memory for vectors in bytes, at 8 bits per dimension. A version whose vectors need more gets a vector index.
    pub vector_memory_bytes: u64,
}

impl LanceOptions {
    /// Default options for this location.
    pub fn new(uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            storage_options: HashMap::new(),
            cache_bytes: 64 << 20,
            keep_versions: 5,
            vector_memory_bytes: 128 << 20,
        }
    }

    /// Converts the options from the protocol. Storage options take precedence over environment variables.
    pub fn of(open: OpenIndex) -> Self {
        let mut storage_options = HashMap::new();
        for (name, value) in open.environment.into_iter().chain(open.storage_options) {
            storage_options.insert(crate::s3::canonical(&name), value);
        }
        Self {
            uri: open.uri,
            storage_options,
            cache_bytes: open.cache_bytes,
            keep_versions: open.keep_versions as usize,
            vector_memory_bytes: open.vector_memory_bytes,
        }
    }
}

/// The index trait implemented with LanceDB.
pub struct LanceIndex {
    place: Arc<TableLocation>,
    writing: Arc<AtomicBool>,
}

impl LanceIndex {
    /// Creates an index at this location without opening it.
    pub fn new(options: LanceOptions) -> Self {
        Self { place: Arc::new(TableLocation::new(options)), writing: Arc::default() }
    }
}

/// Opens both tables, if both exist.
async fn open_both(place: &TableLocation) -> IndexResult<Option<(Table, Table)>> {
    let OpenOutcome::There(chunks) = place.open(CHUNKS).await? else { return Ok(None) };
    match place.open(FILES).await? {
        OpenOutcome::There(files) => Ok(Some((chunks, files))),
        // A completed version always has both tables, so a missing one means damage.
        OpenOutcome::Missing if tags(&chunks).await?.is_empty() => Ok(None),
        OpenOutcome::Missing => Err(IndexError::Corrupted(format!("the table {FILES} is missing"))),
    }
}

/// Both tables at a generation.
async fn at_generation(
    chunks: &Table,
    files: &Table,
    generation: u64,
    version: u64,
) -> IndexResult<(Arc<Dataset>, Arc<Dataset>)> {
    let file_version = tags(files)
        .await?
        .get(&generation)
        .copied()
        .ok_or_else(|| IndexError::Corrupted("a version of the files is missing".to_owned()))?;
    let chunks = chunks.dataset().checkout_version(version).await.map_err(index_error)?;
    let files = files.dataset().checkout_version(file_version).await.map_err(index_error)?;
    Ok((Arc::new(chunks), Arc::new(files)))
}

async fn current(place: Arc<TableLocation>) -> IndexResult<Option<Arc<dyn IndexReader>>> {
    place.steadily(|| newest(&place)).await
}

async fn newest(place: &TableLocation) -> IndexResult<Option<Arc<dyn IndexReader>>> {
    let Some((chunks, files)) = open_both(place).await? else { return Ok(None) };
    let Some((generation, version)) = tags(&chunks).await?.pop_last() else { return Ok(None) };
    let (chunks, files) = at_generation(&chunks, &files, generation, version).await?;
    let info = tables::info(generation, &chunks, &files).await?;
    let reader = LanceReader::new(info, chunks, files);
    reader.probe().await?;
    Ok(Some(Arc::new(reader)))
}

async fn versions(place: Arc<TableLocation>) -> IndexResult<Vec<VersionInfo>> {
    place.steadily(|| kept(&place)).await
}

async fn kept(place: &TableLocation) -> IndexResult<Vec<VersionInfo>> {
    let Some((chunks, files)) = open_both(place).await? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for (generation, version) in tags(&chunks).await? {
        let (chunks, files) = at_generation(&chunks, &files, generation, version).await?;
        all.push(tables::info(generation, &chunks, &files).await?);
    }
    Ok(all)
}

/// Rolls back: the previous version of both tables is written as a new version and tagged, and the tags of the newest
/// generation and of the restored one are removed. A crash on the way leaves either the current version or the restored
/// one current.
async fn rollback(place: Arc<TableLocation>) -> IndexResult<VersionInfo> {
    let Some((chunks, files)) = open_both(&place).await? else { return Err(IndexError::NoEarlierVersion) };
    let mut generations: BTreeMap<u64, u64> = tags(&chunks).await?;
    let Some((newest, _)) = generations.pop_last() else { return Err(IndexError::NoEarlierVersion) };
    let Some((generation, version)) = generations.pop_last() else { return Err(IndexError::NoEarlierVersion) };
    let file_version = tags(&files).await?.get(&generation).copied().ok_or(IndexError::NoEarlierVersion)?;
    restore_chunks(&chunks, &files, version).await?;
    files.restore(file_version).await?;
    let info = tag(&Tables { chunks: chunks.clone(), files: files.clone() }).await?;
    for old in [newest, generation] {
        drop_tag(&chunks, old).await?;
        drop_tag(&files, old).await?;
    }
    Ok(info)
}

/// Restores the chunks of an old version and empties the table of files. If the process is killed before the files are
/// restored, no file refers to the chunks, and the next job indexes every file again. Old chunks together with new file
/// records would pass for indexed.
async fn restore_chunks(chunks: &Table, files: &Table, version: u64) -> IndexResult<()> {
    files.overwrite(RecordBatch::new_empty(file_schema())).await?;
    let old = chunks.dataset().checkout_version(version).await.map_err(index_error)?;
    chunks.restore(version).await?;
    set_completed(chunks, completed_at(&old)).await
}

impl NoteIndex for LanceIndex {
    fn current(&self) -> BoxFuture<'_, IndexResult<Option<Arc<dyn IndexReader>>>> {
        Box::pin(guarded(current(self.place.clone())))
    }

    fn generation(&self) -> BoxFuture<'_, IndexResult<Option<u64>>> {
        let place = self.place.clone();
        Box::pin(guarded(async move { place.generation().await }))
    }

    fn write<'a>(
        &'a self,
        spec: &'a IndexSpec,
        start: WriterStart,
    ) -> BoxFuture<'a, IndexResult<Box<dyn IndexWriter>>> {
        Box::pin(async move {
            if self.writing.swap(true, Ordering::SeqCst) {
                return Err(IndexError::Busy);
            }
            let turn = WriteLock(self.writing.clone());
            self.place.make_private()?;
            // A rebuild from nothing discards a damaged index first; otherwise its remains would be read again.
            if start == WriterStart::Fresh
                && let Err(IndexError::Corrupted(reason)) = guarded(current(self.place.clone())).await
            {
                tracing::warn!(reason, "a damaged index is deleted before the rebuild");
                let place = self.place.clone();
                guarded(async move { place.discard().await }).await?;
            }
            let writer = guarded(LanceWriter::begin(self.place.clone(), spec.clone(), start, turn)).await?;
            Ok(Box::new(writer) as Box<dyn IndexWriter>)
        })
    }

    fn versions(&self) -> BoxFuture<'_, IndexResult<Vec<VersionInfo>>> {
        Box::pin(guarded(versions(self.place.clone())))
    }

    fn rollback(&self) -> BoxFuture<'_, IndexResult<VersionInfo>> {
        Box::pin(async {
            if self.writing.swap(true, Ordering::SeqCst) {
                return Err(IndexError::Busy);
            }
            let _turn = WriteLock(self.writing.clone());
            guarded(rollback(self.place.clone())).await
        })
    }
}

/// The right to write, released on drop.
pub(crate) struct WriteLock(Arc<AtomicBool>);

impl Drop for WriteLock {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolyard_noteindex::{ChunkFilter, ChunkRow, FileRow, FileState, WriteBatch, hash64};

    fn spec() -> IndexSpec {
        IndexSpec { embedder: String::new(), dimensions: 0, recipe: "r".to_owned() }
    }

    fn note(path: &str, word: &str, mtime_ms: i64) -> WriteBatch {
        let file = FileRow {
            path: path.to_owned(),
            state: FileState::Indexed,
            reason: String::new(),
            hash: hash64(&[word.as_bytes()]),
            size: 5,
            mtime_ms,
            recipe: 1,
            chunks: 1,
            unembedded: 0,
            title: path.to_owned(),
            aliases: Vec::new(),
            tags: Vec::new(),
            links: Vec::new(),
            day: 0,
        };
        let chunk = ChunkRow {
            source_file: path.to_owned(),
            chunk_index: 0,
            section: None,
            start: 0,
            end: 5,
            text: word.to_owned(),
            opaque: String::new(),
            terms: format!("{word} "),
            tags: Vec::new(),
            date: None,
            day: 0,
            hash: hash64(&[word.as_bytes()]),
            vector: None,
        };
        WriteBatch { files: vec![file], chunks: vec![chunk], ..WriteBatch::default() }
    }

    async fn complete(index: &LanceIndex, batch: WriteBatch) -> VersionInfo {
        let mut writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
        writer.put(batch).await.unwrap();
        writer.complete().await.unwrap()
    }

    async fn found(index: &LanceIndex, word: &str) -> usize {
        let reader = index.current().await.unwrap().unwrap();
        reader.full_text(&[word.to_owned()], &ChunkFilter::default(), 5).await.unwrap().len()
    }

    /// A kill between the two tables leaves the current version unchanged, and no restored chunk passes for indexed.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_rollback_that_is_killed_half_way_never_becomes_a_mixed_version() {
        let dir = tempfile::tempdir().unwrap();
        let open = || LanceIndex::new(LanceOptions::new(dir.path().display().to_string()));
        let index = open();
        complete(&index, note("a.md", "first", 1)).await;
        complete(&index, note("a.md", "second", 2)).await;
        let (chunks, files) = open_both(&index.place).await.unwrap().unwrap();
        let oldest = tags(&chunks).await.unwrap().pop_first().unwrap().1;
        restore_chunks(&chunks, &files, oldest).await.unwrap();
        drop(index);

        let index = open();
        assert_eq!((found(&index, "second").await, found(&index, "first").await), (1, 0), "the newest still answers");
        let writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
        assert!(writer.files().await.unwrap().is_empty(), "no file counts as indexed");
        assert!(writer.is_changed());
        drop(writer);
        complete(&index, note("a.md", "second", 2)).await;
        assert_eq!((found(&index, "second").await, found(&index, "first").await), (1, 0));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_version_that_was_gone_back_to_keeps_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let index = LanceIndex::new(LanceOptions::new(dir.path().display().to_string()));
        let first = complete(&index, note("a.md", "first", 1)).await;
        let second = complete(&index, note("a.md", "second", 2)).await;
        let back = index.rollback().await.unwrap();
        assert_eq!(back.completed_at, first.completed_at);
        let current = index.current().await.unwrap().unwrap();
        assert_eq!(current.info().completed_at, first.completed_at);
        let third = complete(&index, note("b.md", "third", 3)).await;
        assert!(third.completed_at > second.completed_at, "and what is written on top of it has its own");
    }
}
