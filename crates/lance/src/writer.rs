//! [`LanceWriter`]: writes the next version. Every write creates a version that no reader uses until it is tagged. The
//! order of writes within a batch ensures that after a crash a file is in its old state, in its new state, or unknown
//! and indexed again.

use crate::{
    errors::guarded,
    filter::id_list,
    index::WriteLock,
    maintain,
    reader::{read_files, scan_columns, take},
    rows::{Columns, chunk_batch, file_batch, has_details, vector_at},
    table::Table,
    tables::{self, CHUNKS, FILES, OpenOutcome, TableLocation, drop_tag, set_spec, set_tag, spec_of, tags},
};
use arrow_array::RecordBatch;
use lance::Dataset;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};
use tokio::sync::OnceCell;
use toolyard_noteindex::{
    BoxFuture, ChunkRow, FileRow, IndexResult, IndexSpec, IndexWriter, VersionInfo, WriteBatch, WriterStart, file_id,
};

/// Maximum number of ids in one delete: a longer list is slower to parse than two deletes.
const DELETE_IDS: usize = 1_000;
/// Number of vectors fetched at a time.
const FETCH: usize = 2_048;

/// Writes the next version.
pub(crate) struct LanceWriter {
    place: Arc<TableLocation>,
    spec: IndexSpec,
    tables: Tables,
    /// The chunks when the writer was opened. Chunks deleted since then still have their vectors here.
    before: Arc<Dataset>,
    /// Hashes and rows of the vectors of `before`, sorted by hash.
    hashes: OnceCell<Vec<(u64, u64)>>,
    /// The files when the writer was opened.
    files_before: Arc<Dataset>,
    /// Files that may have rows in one of the tables; loaded on the first write.
    present: Option<HashSet<u64>>,
    changed: bool,
    _turn: WriteLock,
}

#[derive(Clone)]
pub(crate) struct Tables {
    pub(crate) chunks: Table,
    pub(crate) files: Table,
}

impl LanceWriter {
    pub(crate) async fn begin(
        place: Arc<TableLocation>,
        spec: IndexSpec,
        start: WriterStart,
        turn: WriteLock,
    ) -> IndexResult<Self> {
        let (tables, changed) = match start {
            WriterStart::Continue => match continued(&place, &spec).await? {
                Some((tables, changed)) => {
                    let changed = changed || maintain::lacks_indexes(&place.options, &spec, &tables).await?;
                    (tables, changed)
                }
                None => (anew(&place, &spec).await?, true),
            },
            WriterStart::Fresh => (anew(&place, &spec).await?, true),
        };
        let before = tables.chunks.dataset();
        let files_before = tables.files.dataset();
        let hashes = OnceCell::new();
        Ok(Self { place, spec, tables, before, hashes, files_before, present: None, changed, _turn: turn })
    }

    async fn locations(&self) -> IndexResult<&Vec<(u64, u64)>> {
        self.hashes
            .get_or_try_init(|| async {
                let mut all: Vec<(u64, u64)> = Vec::new();
                let mut visit = |batch: &RecordBatch| {
                    let columns = Columns(batch);
                    let (rows, hashes) = (columns.row_ids()?, columns.long("hash")?);
                    all.extend((0..batch.num_rows()).map(|at| (hashes.value(at).cast_unsigned(), rows.value(at))));
                    Ok(())
                };
                scan_columns(self.before.clone(), &["hash"], Some("vector IS NOT NULL"), &mut visit).await?;
                all.sort_unstable();
                all.dedup_by_key(|(hash, _)| *hash);
                Ok(all)
            })
            .await
    }
}

/// The tables as the last writer left them, if the embedder is the same, and whether they contain changes that are not
/// part of a complete version.
async fn continued(place: &TableLocation, spec: &IndexSpec) -> IndexResult<Option<(Tables, bool)>> {
    let (OpenOutcome::There(chunks), OpenOutcome::There(files)) = (place.open(CHUNKS).await?, place.open(FILES).await?)
    else {
        return Ok(None);
    };
    let data = chunks.dataset();
    let Some(found) = spec_of(&data).filter(|found| found.shares_table(spec)) else { return Ok(None) };
    let version = |of: Option<&u64>, at: u64| of == Some(&at);
    let (chunk_tags, file_tags) = (tags(&chunks).await?, tags(&files).await?);
    let complete = version(chunk_tags.values().next_back(), chunks.version())
        && version(file_tags.values().next_back(), files.version());
    let tables = Tables { chunks, files };
    if found != *spec {
        set_spec(&tables.chunks, spec).await?;
    }
    Ok(Some((tables, !complete)))
}

/// Creates empty tables. The files are emptied first: chunks without a file record are removed when their file is
/// indexed, but file records without chunks would pass for indexed.
async fn anew(place: &TableLocation, spec: &IndexSpec) -> IndexResult<Tables> {
    let files = place.empty(FILES, None).await?;
    let chunks = place.empty(CHUNKS, Some(spec.dimensions)).await?;
    set_spec(&chunks, spec).await?;
    Ok(Tables { chunks, files })
}

/// The ids of the files that have rows in any of the tables.
async fn files_in(tables: [Arc<Dataset>; 2]) -> IndexResult<HashSet<u64>> {
    let mut present = HashSet::new();
    for data in tables {
        let mut visit = |batch: &RecordBatch| {
            let ids = Columns(batch).long("file_id")?;
            present.extend(ids.values().iter().map(|id| id.cast_unsigned()));
            Ok(())
        };
        scan_columns(data, &["file_id"], None, &mut visit).await?;
    }
    Ok(present)
}

/// Tags the current content of the tables as the newest complete version.
pub(crate) async fn tag(tables: &Tables) -> IndexResult<VersionInfo> {
    let Tables { chunks, files } = tables;
    // The table's version always grows, even across rollbacks. When only the files changed, it equals that of the
    // previous generation, so the next number is used.
    let newest = tags(chunks).await?.into_keys().next_back();
    let version = chunks.version();
    let generation = version.max(newest.map_or(0, |newest| newest + 1));
    set_tag(files, generation, files.version()).await?;
    // This tag makes the version current.
    set_tag(chunks, generation, version).await?;
    tables::info(generation, &chunks.dataset(), &files.dataset()).await
}

async fn delete(table: &Table, ids: &[u64]) -> IndexResult<()> {
    for part in ids.chunks(DELETE_IDS) {
        let predicate = format!("file_id IN ({})", id_list(part.iter().copied()));
        table.delete(&predicate).await?;
    }
    Ok(())
}

async fn put(tables: Tables, batch: WriteBatch, present: HashSet<u64>, dimensions: usize) -> IndexResult<()> {
    let known = |id: &u64| present.contains(id);
    let replaced: Vec<u64> = batch
        .files
        .iter()
        .map(|file| file_id(&file.path))
        .chain(batch.removed.iter().map(|path| file_id(path)))
        .filter(known)
        .collect();
    let mut rewritten = replaced.clone();
    rewritten.extend(batch.touched.iter().map(|file| file_id(&file.path)).filter(known));
    delete(&tables.files, &rewritten).await?;
    delete(&tables.chunks, &replaced).await?;
    if !batch.chunks.is_empty() {
        let rows: &[ChunkRow] = &batch.chunks;
        tables.chunks.append(chunk_batch(rows, dimensions, has_details(&tables.chunks.dataset()))?).await?;
    }
    let files: Vec<FileRow> = batch.files.into_iter().chain(batch.touched).collect();
    if !files.is_empty() {
        tables.files.append(file_batch(&files)?).await?;
    }
    Ok(())
}

impl IndexWriter for LanceWriter {
    fn files(&self) -> BoxFuture<'_, IndexResult<Vec<FileRow>>> {
        let table = self.tables.files.clone();
        Box::pin(guarded(async move { read_files(table.dataset()).await }))
    }

    fn known_vectors<'a>(&'a self, hashes: &'a [u64]) -> BoxFuture<'a, IndexResult<HashMap<u64, Vec<f32>>>> {
        Box::pin(async move {
            if self.spec.dimensions == 0 {
                return Ok(HashMap::new());
            }
            let locations = self.locations().await?;
            let place = |hash: &u64| locations.binary_search_by_key(hash, |(hash, _)| *hash).ok();
            let wanted: Vec<(u64, u64)> = hashes.iter().filter_map(|hash| Some(locations[place(hash)?])).collect();
            let mut found = HashMap::with_capacity(wanted.len());
            for part in wanted.chunks(FETCH) {
                let rows: Vec<u64> = part.iter().map(|(_, row)| *row).collect();
                let batch = take(&self.before, &rows, &["vector"]).await?;
                let vectors = Columns(&batch).vectors()?;
                for (at, (hash, _)) in part.iter().enumerate() {
                    if let Some(vector) = vector_at(vectors, at) {
                        found.insert(*hash, vector.to_vec());
                    }
                }
            }
            Ok(found)
        })
    }

    fn put(&mut self, batch: WriteBatch) -> BoxFuture<'_, IndexResult<()>> {
        Box::pin(async move {
            if batch.is_empty() {
                return Ok(());
            }
            self.changed = true;
            let mut present = match self.present.take() {
                Some(present) => present,
                None => guarded(files_in([self.before.clone(), self.files_before.clone()])).await?,
            };
            let named: Vec<u64> = batch.files.iter().chain(&batch.touched).map(|file| file_id(&file.path)).collect();
            // Only files that may have rows need a delete.
            let concerned: HashSet<u64> = named
                .iter()
                .copied()
                .chain(batch.removed.iter().map(|path| file_id(path)))
                .filter(|id| present.contains(id))
                .collect();
            // Even if the write fails, these files may have rows now.
            present.extend(named);
            self.present = Some(present);
            guarded(put(self.tables.clone(), batch, concerned, self.spec.dimensions)).await
        })
    }

    fn is_changed(&self) -> bool {
        self.changed
    }

    fn complete(self: Box<Self>) -> BoxFuture<'static, IndexResult<VersionInfo>> {
        Box::pin(guarded(async move {
            maintain::before_tagging(&self.place.options, &self.spec, &self.tables).await?;
            let mut info = tag(&self.tables).await?;
            match maintain::upkeep(&self.tables).await {
                Ok(false) => {}
                Ok(true) => {
                    // The compacted version has the same content, so it replaces the version that was just tagged.
                    let first = std::mem::replace(&mut info, tag(&self.tables).await?).generation;
                    drop_tag(&self.tables.chunks, first).await?;
                    drop_tag(&self.tables.files, first).await?;
                }
                Err(error) => tracing::warn!(%error, "the index could not be compacted; it is searched as it is"),
            }
            if let Err(error) = maintain::after_tagging(&self.place, &self.tables).await {
                // Old versions only take space.
                tracing::warn!(%error, "old versions of the index could not be removed");
            }
            Ok(info)
        }))
    }
}
