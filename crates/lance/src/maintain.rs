//! Upkeep: indexes for what was added, few large files instead of many small ones, no versions that nobody needs.

use crate::{
    errors::index_error,
    index::LanceOptions,
    reader::has_whole_indexes,
    table::Table,
    tables::{Place, drop_tag, tags},
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

/// Rows that full text may look through without an index before they are added to it.
const MAX_UNINDEXED_ROWS: u64 = 1_000;
/// A file of a table with fewer rows is small,
const SMALL_FRAGMENT_ROWS: usize = 2_048;
/// and a table may have this many of them before they are put together.
const MAX_SMALL_FRAGMENTS: usize = 24;
/// Megabytes that building the full-text index may take.
const FTS_BUILD_MB: u64 = 128;
/// Versions younger than this stay, whatever is pruned: another process may be reading them.
const KEEP_MINUTES: i64 = 10;
/// How often old versions are looked for, at most.
const PRUNE_EVERY: std::time::Duration = std::time::Duration::from_secs(600);
/// Versions of the chunks, complete or not, before old ones are removed.
const MAX_VERSIONS: u64 = 64;
/// Vectors in a partition of the vector index, about.
const ROWS_PER_PARTITION: usize = 1_000;
/// Vectors that each partition's centre is found with,
const SAMPLES_PER_PARTITION: usize = 64;
/// and how often they are gone through, at most.
const TRAINING_ROUNDS: usize = 12;
/// A vector index is made from this many chunks on: with fewer there is nothing to cluster.
const MIN_VECTOR_INDEX_ROWS: usize = 4_096;

/// What a version must have before it is tagged: the indexes, where there are none yet, or none that are whole.
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

/// Whether vectors are more than may be in memory.
fn wants_vector_index(options: &LanceOptions, spec: &IndexSpec, rows: usize) -> bool {
    let is_too_much = VectorSet::bytes(rows as u64, spec.dimensions) > options.vector_memory_bytes;
    spec.dimensions > 0 && is_too_much && rows >= MIN_VECTOR_INDEX_ROWS
}

/// Whether a version must have an index that is not there though nothing changed: it was damaged, or the configuration
/// gives vectors less memory now.
pub(crate) async fn lacks_indexes(options: &LanceOptions, spec: &IndexSpec, tables: &Tables) -> IndexResult<bool> {
    let chunks = &tables.chunks;
    let rows = chunks.count_rows().await?;
    Ok(rows > 0
        && (!chunks.is_indexed("terms").await?
            || !has_whole_indexes(&chunks.dataset()).await?
            || (wants_vector_index(options, spec, rows) && !chunks.is_indexed("vector").await?)))
}

/// What makes searches quicker and may take a while: rows that no index covers are indexed, small files are put together.
/// Done when the version can be searched already; whether it made another one.
pub(crate) async fn upkeep(tables: &Tables) -> IndexResult<bool> {
    let mut changed = false;
    for column in ["terms", "vector"] {
        if tables.chunks.unindexed(column).await?.is_some_and(|rows| rows > MAX_UNINDEXED_ROWS) {
            tables.chunks.index_the_rest().await?;
            changed = true;
            break; // Both at once.
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
    // The terms are made already, in any script; they are only counted here.
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
    // Eight bits a dimension and no codebook: nothing to train but the partitions, and as exact as the vectors in memory
    // are.
    let mut partitions = IvfBuildParams::new((rows / ROWS_PER_PARTITION).clamp(16, 8_192));
    partitions.sample_rate = SAMPLES_PER_PARTITION;
    partitions.max_iters = TRAINING_ROUNDS;
    let bits = SQBuildParams { sample_rate: SAMPLES_PER_PARTITION, ..SQBuildParams::default() };
    let params = VectorIndexParams::with_ivf_sq_params(DistanceType::Cosine, partitions, bits);
    table.index("vector", IndexType::Vector, &params).await
}

/// Takes the tags off versions beyond those that are kept, and removes what no version needs.
pub(crate) async fn after_tagging(place: &Place, tables: &Tables) -> IndexResult<()> {
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
