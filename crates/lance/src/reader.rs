//! [`LanceReader`]: a reader of one complete version.

use crate::{
    errors::{guarded, index_error},
    filter::sql,
    rows::{Columns, chunk_columns, chunks_from, files_from, has_details, vector_at},
};
use arrow_array::{Float32Array, RecordBatch};
use futures_util::{StreamExt, TryStreamExt};
use lance::{
    Dataset,
    dataset::{ProjectionRequest, scanner::Scanner},
    index::DatasetIndexExt,
    table::format::Fragment,
};
use lance_index::scalar::FullTextSearchQuery;
use lance_linalg::distance::DistanceType;
use object_store::path::Path;
use std::{collections::HashMap, sync::Arc};
use toolyard_noteindex::{
    BoxFuture, ChunkFilter, ChunkRow, FileRow, IndexError, IndexReader, IndexResult, RowScore, VectorColumns,
    VectorRow, VectorSink, VersionInfo,
};

/// Rows per scan batch: small, to limit memory.
const SCAN_ROWS: usize = 2_048;
/// Number of batches and fragments read ahead.
const READ_AHEAD: usize = 2;
/// Maximum size of data that is read but not yet decoded, in bytes.
const IO_BUFFER: u64 = 32 << 20;
/// Maximum number of files that a probe checks.
const MAX_PROBED_FILES: usize = 1_000;
/// Number of files that a probe checks concurrently.
const PROBES_AT_ONCE: usize = 8;
/// Minimum number of partitions of the vector index that a search visits.
const MIN_PROBES: usize = 40;

/// A reader of one complete version.
pub(crate) struct LanceReader {
    info: VersionInfo,
    chunks: Arc<Dataset>,
    files: Arc<Dataset>,
}

impl LanceReader {
    pub(crate) fn new(info: VersionInfo, chunks: Arc<Dataset>, files: Arc<Dataset>) -> Self {
        Self { info, chunks, files }
    }

    /// Checks the size of every file, reads a row of the first and of the last fragment, and searches for one word.
    /// This takes a few milliseconds and detects missing or truncated files before a query does. The probe opens the
    /// same files that the next query needs, so that query starts warm.
    pub(crate) async fn probe(&self) -> IndexResult<()> {
        let mut word = None;
        for data in [&self.chunks, &self.files] {
            are_whole(data, data_files(data)).await?;
            are_whole(data, index_files(data).await?).await?;
            let fragments = data.get_fragments();
            let last = fragments.last().filter(|_| fragments.len() > 1);
            for fragment in fragments.first().into_iter().chain(last) {
                let mut scan = data.scan();
                scan.with_fragments(vec![fragment.metadata().clone()]).batch_size(1);
                scan.limit(Some(1), None).map_err(index_error)?;
                let row = scan.try_into_batch().await.map_err(index_error)?;
                if word.is_none() && row.column_by_name("terms").is_some() {
                    word = rarest(&Columns(&row))?;
                }
            }
        }
        if let Some(word) = word {
            self.full_text(&[word], &ChunkFilter::default(), 1).await?;
        }
        Ok(())
    }
}

/// The longest word of a row: it is probably rare, so its lookup is fast.
fn rarest(row: &Columns<'_>) -> IndexResult<Option<String>> {
    let terms = row.text("terms")?.iter().flatten().next().unwrap_or_default();
    Ok(terms.split_ascii_whitespace().max_by_key(|term| term.len()).map(str::to_owned))
}

/// Files and the sizes recorded in the manifest.
type Sizes = Vec<(Path, u64)>;

fn data_files(data: &Dataset) -> Sizes {
    let folder = data.data_dir();
    let files = data.fragments().iter().flat_map(|fragment| &fragment.files);
    files.filter_map(|f| Some((folder.clone().join(f.path.as_str()), f.file_size_bytes.get()?.get()))).collect()
}

async fn index_files(data: &Dataset) -> IndexResult<Sizes> {
    let mut all = Vec::new();
    for index in data.load_indices().await.map_err(index_error)?.iter() {
        let folder = data.indices_dir().join(index.uuid.to_string().as_str());
        all.extend(index.files.iter().flatten().map(|f| (folder.clone().join(f.path.as_str()), f.size_bytes)));
    }
    Ok(all)
}

/// Checks that the files exist and have their recorded sizes.
async fn are_whole(data: &Dataset, files: Sizes) -> IndexResult<()> {
    let store = data.object_store(None).await.map_err(index_error)?;
    let looks = files.into_iter().take(MAX_PROBED_FILES).map(|(path, size)| {
        let store = store.clone();
        async move { Ok::<_, IndexError>(store.size(&path).await.map_err(index_error)? == size) }
    });
    let mut looks = futures_util::stream::iter(looks).buffer_unordered(PROBES_AT_ONCE);
    while let Some(same) = looks.try_next().await? {
        if !same {
            return Err(IndexError::Corrupted("a file has another size than when it was written".to_owned()));
        }
    }
    Ok(())
}

/// Whether the index files of a table exist and have their recorded sizes.
pub(crate) async fn has_whole_indexes(data: &Dataset) -> IndexResult<bool> {
    match are_whole(data, index_files(data).await?).await {
        Ok(()) => Ok(true),
        Err(IndexError::Corrupted(_)) => Ok(false),
        Err(other) => Err(other),
    }
}

fn small(mut scan: Scanner) -> Scanner {
    scan.batch_size(SCAN_ROWS).batch_readahead(READ_AHEAD).fragment_readahead(READ_AHEAD).io_buffer_size(IO_BUFFER);
    scan
}

pub(crate) async fn read_files(files: Arc<Dataset>) -> IndexResult<Vec<FileRow>> {
    let mut stream = small(files.scan()).try_into_stream().await.map_err(index_error)?;
    let mut all = Vec::new();
    while let Some(batch) = stream.try_next().await.map_err(index_error)? {
        all.extend(files_from(&batch)?);
    }
    Ok(all)
}

/// Scans some columns of a table, batch by batch.
pub(crate) async fn scan_columns(
    data: Arc<Dataset>,
    columns: &[&str],
    filter: Option<&str>,
    visit: &mut (dyn FnMut(&RecordBatch) -> IndexResult<()> + Send),
) -> IndexResult<()> {
    let mut scan = data.scan();
    scan.project(columns).map_err(index_error)?;
    scan.with_row_id();
    if let Some(filter) = filter {
        scan.filter(filter).map_err(index_error)?;
    }
    let mut stream = small(scan).try_into_stream().await.map_err(index_error)?;
    while let Some(batch) = stream.next().await {
        visit(&batch.map_err(index_error)?)?;
    }
    Ok(())
}

/// Reads the given rows, in the same order.
pub(crate) async fn take(data: &Arc<Dataset>, rows: &[u64], columns: &[&str]) -> IndexResult<RecordBatch> {
    // A row that is requested twice is read once.
    let mut distinct = rows.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let projection = ProjectionRequest::from_columns(columns.iter().copied(), data.schema());
    let batch = data.take_rows(&distinct, projection).await.map_err(index_error)?;
    if batch.num_rows() != distinct.len() {
        return Err(IndexError::Corrupted("rows are missing".to_owned()));
    }
    let place: HashMap<u64, u32> = distinct.iter().enumerate().map(|(at, row)| (*row, at as u32)).collect();
    let order: Vec<u32> = rows.iter().filter_map(|row| place.get(row).copied()).collect();
    let order = arrow_array::UInt32Array::from(order);
    arrow_select::take::take_record_batch(&batch, &order).map_err(index_error)
}

/// The rows of a search and their scores.
async fn found(scan: Scanner, score: &str, of: fn(f32) -> f32) -> IndexResult<Vec<RowScore>> {
    let batch = scan.try_into_batch().await.map_err(index_error)?;
    if batch.num_rows() == 0 {
        return Ok(Vec::new());
    }
    let columns = Columns(&batch);
    let (rows, scores) = (columns.row_ids()?, columns.float(score)?);
    let mut found: Vec<RowScore> = (0..batch.num_rows())
        .map(|at| RowScore { row: rows.value(at), score: of(scores.value(at)) })
        .filter(|found| found.score.is_finite())
        .collect();
    sort_best_first(&mut found);
    Ok(found)
}

fn sort_best_first(found: &mut [RowScore]) {
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)));
}

/// The cosine index stores unit vectors and returns the squared distance between them.
fn cosine_of_index(distance: f32) -> f32 {
    1.0 - distance / 2.0
}

/// The fragments that the vector index does not cover; `None` when there is no vector index.
async fn beyond_vector_index(data: &Dataset) -> IndexResult<Option<Vec<Fragment>>> {
    let Some(field) = data.schema().field("vector") else { return Ok(None) };
    let indexes = data.load_indices().await.map_err(index_error)?;
    let parts: Vec<_> = indexes.iter().filter(|index| index.fields == [field.id]).collect();
    if parts.is_empty() {
        return Ok(None);
    }
    let is_covered = |fragment: &Fragment| {
        let id = u32::try_from(fragment.id).unwrap_or(u32::MAX);
        parts.iter().any(|part| part.fragment_bitmap.as_ref().is_some_and(|covered| covered.contains(id)))
    };
    Ok(Some(data.fragments().iter().filter(|fragment| !is_covered(fragment)).cloned().collect()))
}

impl IndexReader for LanceReader {
    fn info(&self) -> &VersionInfo {
        &self.info
    }

    fn files(&self) -> BoxFuture<'_, IndexResult<Vec<FileRow>>> {
        Box::pin(guarded(read_files(self.files.clone())))
    }

    fn full_text<'a>(
        &'a self,
        terms: &'a [String],
        filter: &'a ChunkFilter,
        limit: usize,
    ) -> BoxFuture<'a, IndexResult<Vec<RowScore>>> {
        if terms.is_empty() || self.info.chunks == 0 || limit == 0 {
            return Box::pin(async { Ok(Vec::new()) });
        }
        let (chunks, filter, terms) = (self.chunks.clone(), sql(filter), terms.join(" "));
        Box::pin(guarded(async move {
            let query = FullTextSearchQuery::new(terms).with_column("terms".to_owned()).map_err(index_error)?;
            let mut scan = chunks.scan();
            scan.full_text_search(query.limit(Some(limit as i64))).map_err(index_error)?;
            if let Some(filter) = filter {
                scan.filter(&filter).map_err(index_error)?.prefilter(true);
            }
            scan.project(&["_score"]).map_err(index_error)?;
            scan.with_row_id().limit(Some(limit as i64), None).map_err(index_error)?;
            found(scan, "_score", |score| score).await
        }))
    }

    fn files_of<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<u64>>> {
        let (chunks, rows) = (self.chunks.clone(), rows.to_vec());
        Box::pin(guarded(async move {
            if rows.is_empty() {
                return Ok(Vec::new());
            }
            let batch = take(&chunks, &rows, &["file_id"]).await?;
            Ok(Columns(&batch).long("file_id")?.values().iter().map(|id| id.cast_unsigned()).collect())
        }))
    }

    fn nearest<'a>(
        &'a self,
        vector: &'a [f32],
        filter: &'a ChunkFilter,
        limit: usize,
    ) -> BoxFuture<'a, IndexResult<Vec<RowScore>>> {
        if self.info.spec.dimensions != vector.len() || self.info.chunks == 0 || limit == 0 {
            return Box::pin(async { Ok(Vec::new()) });
        }
        let (chunks, filter, vector) = (self.chunks.clone(), sql(filter), Float32Array::from(vector.to_vec()));
        Box::pin(guarded(async move {
            let nearest = || {
                let mut scan = chunks.scan();
                scan.nearest("vector", &vector, limit).map_err(index_error)?;
                scan.distance_metric(DistanceType::Cosine);
                if let Some(filter) = &filter {
                    scan.filter(filter).map_err(index_error)?.prefilter(true);
                }
                scan.project(&["_distance"]).map_err(index_error)?;
                scan.with_row_id();
                Ok::<_, IndexError>(scan)
            };
            let Some(rest) = beyond_vector_index(&chunks).await? else {
                return found(nearest()?, "_distance", |distance| 1.0 - distance).await;
            };
            // The 8 bits per dimension in the index are exact enough for ranking. Reading the full vectors of a few
            // hundred candidates would take longer than the search.
            let mut indexed = nearest()?;
            indexed.minimum_nprobes(MIN_PROBES).fast_search();
            let mut all = found(indexed, "_distance", cosine_of_index).await?;
            if !rest.is_empty() {
                let mut scan = nearest()?;
                scan.use_index(false).with_fragments(rest);
                all.extend(found(scan, "_distance", |distance| 1.0 - distance).await?);
                sort_best_first(&mut all);
                all.truncate(limit);
            }
            Ok(all)
        }))
    }

    fn vectors<'a>(&'a self, columns: VectorColumns, sink: VectorSink<'a>) -> BoxFuture<'a, IndexResult<()>> {
        let chunks = self.chunks.clone();
        if self.info.spec.dimensions == 0 && columns != VectorColumns::FilesOnly {
            return Box::pin(async { Ok(()) });
        }
        Box::pin(async move {
            // `KeysOnly` reads no vectors but returns only rows that have one.
            let (names, filter): (&[&str], _) = match columns {
                VectorColumns::All => (&["file_id", "hash", "vector"], None),
                VectorColumns::KeysOnly => (&["file_id", "hash"], Some("vector IS NOT NULL")),
                VectorColumns::FilesOnly => (&["file_id"], None),
            };
            let mut visit = |batch: &RecordBatch| {
                let columns = Columns(batch);
                let (rows, files) = (columns.row_ids()?, columns.long("file_id")?);
                let hashes = if names.len() > 1 { Some(columns.long("hash")?) } else { None };
                let vectors = if names.len() > 2 { Some(columns.vectors()?) } else { None };
                for at in 0..batch.num_rows() {
                    let vector = match vectors {
                        Some(vectors) => match vector_at(vectors, at) {
                            Some(vector) => Some(vector),
                            None => continue,
                        },
                        None => None,
                    };
                    sink(VectorRow {
                        row: rows.value(at),
                        file: files.value(at).cast_unsigned(),
                        hash: hashes.map_or(0, |hashes| hashes.value(at).cast_unsigned()),
                        vector,
                    });
                }
                Ok(())
            };
            scan_columns(chunks, names, filter, &mut visit).await
        })
    }

    fn vectors_of<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<Option<Vec<f32>>>>> {
        let (chunks, rows) = (self.chunks.clone(), rows.to_vec());
        if self.info.spec.dimensions == 0 || rows.is_empty() {
            return Box::pin(async move { Ok(vec![None; rows.len()]) });
        }
        Box::pin(guarded(async move {
            let batch = take(&chunks, &rows, &["vector"]).await?;
            let vectors = Columns(&batch).vectors()?;
            Ok((0..batch.num_rows()).map(|at| vector_at(vectors, at).map(<[f32]>::to_vec)).collect())
        }))
    }

    fn sample(&self, count: usize) -> BoxFuture<'_, IndexResult<Vec<String>>> {
        let chunks = self.chunks.clone();
        let step = self.info.chunks.div_ceil(count.max(1) as u64).max(1);
        let places: Vec<u64> = (0..self.info.chunks).step_by(step as usize).collect();
        Box::pin(guarded(async move {
            if places.is_empty() {
                return Ok(Vec::new());
            }
            let projection = ProjectionRequest::from_columns(["chunk_text"], chunks.schema());
            let batch = chunks.take(&places, projection).await.map_err(index_error)?;
            let texts = Columns(&batch).text("chunk_text")?;
            Ok(texts.iter().flatten().map(str::to_owned).collect())
        }))
    }

    fn fetch<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<ChunkRow>>> {
        let (chunks, rows) = (self.chunks.clone(), rows.to_vec());
        Box::pin(guarded(async move {
            if rows.is_empty() {
                return Ok(Vec::new());
            }
            chunks_from(&take(&chunks, &rows, chunk_columns(has_details(&chunks))).await?)
        }))
    }
}
