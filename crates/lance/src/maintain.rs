//! Maintenance: indexes new rows, compacts small files and removes old versions.

use crate::{
    errors::index_error,
    index::LanceOptions,
    reader::has_whole_indexes,
    table::Table,
    tables::{TableLocation, drop_tag, tags},
    writer::Tables,
};
use lance::index::vector::VectorIndexParams;
use lance_index::{
    IndexType,
    scalar::InvertedIndexParams,
    vector::{ivf::IvfBuildParams, sq::builder::SQBuildParams},
};
use lance_linalg::distance::DistanceType;
use toolyard_noteindex::{IndexResult, IndexSpec, search::vectors::VectorSet};

/// Rows that full text may scan without an index before they are added to the index.
const MAX_UNINDEXED_ROWS: u64 = 1_000;
/// A fragment with fewer rows counts as small.
const SMALL_FRAGMENT_ROWS: usize = 2_048;
/// Number of small fragments from which on a table is compacted.
const MAX_SMALL_FRAGMENTS: usize = 24;
/// Memory limit for building the full-text index, in megabytes.
const FTS_BUILD_MB: u64 = 128;
/// Younger versions are never pruned, because another process may be reading them.
const KEEP_MINUTES: i64 = 10;
/// Minimum time between two searches for old versions.
const PRUNE_EVERY: std::time::Duration = std::time::Duration::from_secs(600);
/// Number of versions of the chunks table, complete or not, from which on old ones are removed.
const MAX_VERSIONS: u64 = 64;
/// Approximate number of vectors per partition of the vector index.
const ROWS_PER_PARTITION: usize = 1_000;
/// Number of vectors per partition with which the partition centres are trained.
const SAMPLES_PER_PARTITION: usize = 64;
/// Maximum number of training iterations.
const TRAINING_ROUNDS: usize = 12;
/// Minimum number of chunks for a vector index; with fewer there is nothing to cluster.
const MIN_VECTOR_INDEX_ROWS: usize = 4_096;

/// Creates the indexes that a version needs before it is tagged, if they are missing or incomplete.
pub(crate) async fn before_tagging(options: &LanceOptions, spec: &IndexSpec, tables: &Tables) -> IndexResult<()> {
    let chunks = &tables.chunks;
    let rows = chunks.count_rows().await?;
    if rows == 0 {
        return Ok(());
    }
    let (for_terms, for_vectors) = (chunks.is_indexed("terms").await?, chunks.is_indexed("vector").await?);
    let whole = has_whole_indexes(&chunks.dataset()).await?;
    if !for_terms || !whole {
        index_terms(chunks).await?;
    }
    match (wants_vector_index(options, spec, rows), for_vectors) {
        (true, false) => index_vectors(chunks, rows).await,
        (true, true) if !whole => index_vectors(chunks, rows).await,
        (false, true) if !whole => chunks.drop_index("vector").await,
        _ => Ok(()),
    }
}

/// Whether the vectors exceed the memory limit.
fn wants_vector_index(options: &LanceOptions, spec: &IndexSpec, rows: usize) -> bool {
    let is_too_much = VectorSet::bytes(rows as u64, spec.dimensions) > options.vector_memory_bytes;
    spec.dimensions > 0 && is_too_much && rows >= MIN_VECTOR_INDEX_ROWS
}

/// Whether a required index is missing although no note changed: it was damaged, or the configuration now gives vectors
/// less memory.
pub(crate) async fn lacks_indexes(options: &LanceOptions, spec: &IndexSpec, tables: &Tables) -> IndexResult<bool> {
    let chunks = &tables.chunks;
    let rows = chunks.count_rows().await?;
    Ok(rows > 0
        && (!chunks.is_indexed("terms").await?
            || !has_whole_indexes(&chunks.dataset()).await?
            || (wants_vector_index(options, spec, rows) && !chunks.is_indexed("vector").await?)))
}

/// Optional work that makes searches faster and may take a while: it indexes uncovered rows and compacts small files.
/// It runs when the version is already searchable, and returns whether it created a new version.
pub(crate) async fn upkeep(tables: &Tables) -> IndexResult<bool> {
    let mut changed = false;
    for column in ["terms", "vector"] {
        if tables.chunks.unindexed(column).await?.is_some_and(|rows| rows > MAX_UNINDEXED_ROWS) {
            tables.chunks.index_the_rest().await?;
            changed = true;
            break; // One call covers both columns.
        }
    }
    for table in [&tables.chunks, &tables.files] {
        let data = table.dataset();
        let is_small = |rows: Option<usize>| rows.is_none_or(|rows| rows < SMALL_FRAGMENT_ROWS);
        let small = data.fragments().iter().filter(|fragment| is_small(fragment.physical_rows)).count();
        if small > MAX_SMALL_FRAGMENTS {
            table.compact(SMALL_FRAGMENT_ROWS).await?;
            changed = true;
        }
    }
    Ok(changed)
}

async fn index_terms(table: &Table) -> IndexResult<()> {
    // The terms are already tokenized and stemmed, for all scripts, so the index only counts them.
    let params = InvertedIndexParams::default()
        .base_tokenizer("whitespace".to_owned())
        .with_position(false)
        .lower_case(false)
        .stem(false)
        .remove_stop_words(false)
        .ascii_folding(false)
        .max_token_length(None)
        .memory_limit_mb(FTS_BUILD_MB);
    table.index("terms", IndexType::Inverted, &params).await
}

async fn index_vectors(table: &Table, rows: usize) -> IndexResult<()> {
    // Scalar quantisation with 8 bits per dimension needs no codebook. Only the partitions are trained, and the
    // precision equals that of the vectors in memory.
    let mut partitions = IvfBuildParams::new((rows / ROWS_PER_PARTITION).clamp(16, 8_192));
    partitions.sample_rate = SAMPLES_PER_PARTITION;
    partitions.max_iters = TRAINING_ROUNDS;
    let bits = SQBuildParams { sample_rate: SAMPLES_PER_PARTITION, ..SQBuildParams::default() };
    let params = VectorIndexParams::with_ivf_sq_params(DistanceType::Cosine, partitions, bits);
    table.index("vector", IndexType::Vector, &params).await
}

/// Removes the tags of surplus versions, and deletes data that no version needs.
pub(crate) async fn after_tagging(place: &TableLocation, tables: &Tables) -> IndexResult<()> {
    let complete = tags(&tables.chunks).await?;
    let surplus = complete.len().saturating_sub(place.options.keep_versions.max(2));
    for old in complete.keys().take(surplus) {
        drop_tag(&tables.chunks, *old).await?;
        drop_tag(&tables.files, *old).await?;
    }
    let versions = tables.chunks.dataset().count_versions().await.map_err(index_error)?;
    if versions <= MAX_VERSIONS || !place.is_time_to_prune(PRUNE_EVERY) {
        return Ok(());
    }
    for table in [&tables.chunks, &tables.files] {
        table.prune(KEEP_MINUTES).await?;
    }
    Ok(())
}
