//! [`LanceIndex`]: the index trait on LanceDB.

use crate::{
    errors::{guarded, index_error},
    reader::LanceReader,
    table::Table,
    tables::{self, CHUNKS, FILES, Opened, Place, drop_tag, tags},
    writer::{LanceWriter, Tables, tag},
};
use lance::Dataset;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use toolyard_engine::BoxFuture;
use toolyard_knowledge::index::{
    IndexError, IndexReader, IndexResult, IndexSpec, IndexWriter, NoteIndex, Start, VersionInfo,
};

/// How an index is opened.
#[derive(Debug, Clone)]
pub struct LanceOptions {
    /// A folder or an object store.
    pub uri: String,
    /// Options of the object store.
    pub storage_options: HashMap<String, String>,
    /// Bytes of LanceDB's caches.
    pub cache_bytes: u64,
    /// Complete versions that are kept.
    pub keep_versions: usize,
    /// Bytes that vectors may take in memory, at 8 bits a dimension. A version whose vectors take more gets a vector
    /// index.
    pub vector_memory_bytes: u64,
}

impl LanceOptions {
    /// The usual choices, in this place.
    pub fn new(uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            storage_options: HashMap::new(),
            cache_bytes: 64 << 20,
            keep_versions: 5,
            vector_memory_bytes: 128 << 20,
        }
    }
}

/// The index trait on LanceDB.
pub struct LanceIndex {
    place: Arc<Place>,
    writing: Arc<AtomicBool>,
}

impl LanceIndex {
    /// In this place. Nothing is opened yet.
    pub fn new(options: LanceOptions) -> Self {
        Self { place: Arc::new(Place::new(options)), writing: Arc::default() }
    }
}

/// Both tables, if there are both.
async fn open_both(place: &Place) -> IndexResult<Option<(Table, Table)>> {
    let Opened::There(chunks) = place.open(CHUNKS).await? else { return Ok(None) };
    match place.open(FILES).await? {
        Opened::There(files) => Ok(Some((chunks, files))),
        // Where a version was completed there were two tables.
        Opened::Missing if tags(&chunks).await?.is_empty() => Ok(None),
        Opened::Missing => Err(IndexError::Corrupted(format!("the table {FILES} is missing"))),
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

async fn current(place: Arc<Place>) -> IndexResult<Option<Arc<dyn IndexReader>>> {
    let Some((chunks, files)) = open_both(&place).await? else { return Ok(None) };
    let Some((generation, version)) = tags(&chunks).await?.pop_last() else { return Ok(None) };
    let (chunks, files) = at_generation(&chunks, &files, generation, version).await?;
    let info = tables::info(generation, &chunks, &files).await?;
    let reader = LanceReader::new(info, chunks, files);
    reader.probe().await?;
    Ok(Some(Arc::new(reader)))
}

async fn versions(place: Arc<Place>) -> IndexResult<Vec<VersionInfo>> {
    let Some((chunks, files)) = open_both(&place).await? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for (generation, version) in tags(&chunks).await? {
        let (chunks, files) = at_generation(&chunks, &files, generation, version).await?;
        all.push(tables::info(generation, &chunks, &files).await?);
    }
    Ok(all)
}

/// Makes the tables again what they were at the version before, as new versions, and takes the tags off the two that they
/// stand for. A crash on the way leaves the current version current, or the restored one.
async fn rollback(place: Arc<Place>) -> IndexResult<VersionInfo> {
    let Some((chunks, files)) = open_both(&place).await? else { return Err(IndexError::NoEarlierVersion) };
    let mut generations: BTreeMap<u64, u64> = tags(&chunks).await?;
    let Some((newest, _)) = generations.pop_last() else { return Err(IndexError::NoEarlierVersion) };
    let Some((generation, version)) = generations.pop_last() else { return Err(IndexError::NoEarlierVersion) };
    let file_version = tags(&files).await?.get(&generation).copied().ok_or(IndexError::NoEarlierVersion)?;
    for (table, version) in [(&chunks, version), (&files, file_version)] {
        table.restore(version).await?;
    }
    let info = tag(&Tables { chunks: chunks.clone(), files: files.clone() }).await?;
    for old in [newest, generation] {
        drop_tag(&chunks, old).await?;
        drop_tag(&files, old).await?;
    }
    Ok(info)
}

impl NoteIndex for LanceIndex {
    fn current(&self) -> BoxFuture<'_, IndexResult<Option<Arc<dyn IndexReader>>>> {
        Box::pin(guarded(current(self.place.clone())))
    }

    fn generation(&self) -> BoxFuture<'_, IndexResult<Option<u64>>> {
        let place = self.place.clone();
        Box::pin(guarded(async move { place.generation().await }))
    }

    fn write<'a>(&'a self, spec: &'a IndexSpec, start: Start) -> BoxFuture<'a, IndexResult<Box<dyn IndexWriter>>> {
        Box::pin(async move {
            if self.writing.swap(true, Ordering::SeqCst) {
                return Err(IndexError::Busy);
            }
            let turn = Turn(self.writing.clone());
            // Where everything is made anew, nothing damaged need be kept: what is left of it would be read again.
            if start == Start::Fresh
                && let Err(IndexError::Corrupted(reason)) = guarded(current(self.place.clone())).await
            {
                tracing::warn!(reason, "a damaged index is thrown away");
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
            let _turn = Turn(self.writing.clone());
            guarded(rollback(self.place.clone())).await
        })
    }
}

/// The right to write, given back when dropped.
pub(crate) struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}
