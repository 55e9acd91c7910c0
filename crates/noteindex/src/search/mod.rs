//! Search: full text and vectors, merged by weighted score, with every component of a score available for explanation.
//!
//! The search is pure except for the reader it is given. Tokenization, permissions and sensitivity are decided
//! elsewhere.

mod fuse;
mod library;
mod row_files;
pub mod vectors;

pub use fuse::{Fused, Weights, fuse};
pub use library::{Library, LibraryFile, Totals, fingerprint};

use crate::{ChunkFilter, ChunkRow, IndexResult, RowScore, memory::cosine};
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};
use vectors::{Neighbour, QuantisedQuery, VectorSet};

/// Minimum number of candidates from each search.
const DEPTH: usize = 200;
/// Maximum number of full-text candidates, when a filter removes too many.
const MAX_DEPTH: usize = 20_000;
/// Number of best full-text candidates whose vectors are fetched when vectors are not in memory. Vectors cannot lift
/// the remaining candidates to the top, and each fetch is a read.
const MAX_FETCHED_VECTORS: usize = 64;
/// From this size on, comparing the vectors takes longer than handing them to another thread.
const LARGE_SET: usize = 4_096;

/// A search query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchQuery {
    /// The full-text terms. A repeated term counts repeatedly.
    pub terms: Vec<String>,
    /// The unit-length query vector, if there is one.
    pub vector: Option<Vec<f32>>,
    /// Which chunks may be returned.
    pub filter: ChunkFilter,
    /// Which files of the library the caller may see, by file number; `None` means all.
    pub allowed: Option<Arc<Vec<bool>>>,
    /// Maximum number of hits.
    pub limit: usize,
    /// The weights of the score components.
    pub weights: Weights,
    /// What is returned for each chunk.
    pub detail: Detail,
}

/// What is returned for each chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Detail {
    /// Row, file and scores.
    Scores,
    /// Row, file, scores and content.
    Chunks,
}

/// A search hit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// The components of the score.
    pub fused: Fused,
    /// The chunk without terms and vector, if chunks were requested.
    pub chunk: Option<ChunkRow>,
    /// The distinct query terms that the chunk contains, if chunks were requested.
    pub matched: Vec<String>,
}

/// The result of a query.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// Best first.
    pub hits: Vec<Ranked>,
    /// Number of chunks searched.
    pub scanned: u64,
}

/// Runs a query on a version: in the reader if it runs queries itself, otherwise here.
pub async fn answer(library: &Library, question: &SearchQuery) -> IndexResult<SearchResult> {
    if let Some(answered) = library.reader.ask(question) {
        return answered.await;
    }
    let (ranked, scanned) = rank(library, question).await?;
    let mut chunks = Vec::new();
    if question.detail == Detail::Chunks && !ranked.is_empty() {
        let rows: Vec<u64> = ranked.iter().map(|fused| fused.row).collect();
        chunks = library.reader.fetch(&rows).await?;
    }
    let mut chunks = chunks.into_iter();
    let hits = ranked.into_iter().map(|fused| hit(fused, chunks.next(), &question.terms)).collect();
    Ok(SearchResult { hits, scanned })
}

/// The terms of a chunk are larger than its text and are never displayed, so they stay in the index program.
fn hit(fused: Fused, chunk: Option<ChunkRow>, terms: &[String]) -> Ranked {
    let Some(mut chunk) = chunk else { return Ranked { fused, chunk: None, matched: Vec::new() } };
    let own: HashSet<&str> = chunk.terms.split_ascii_whitespace().collect();
    let mut matched: Vec<String> = Vec::new();
    for term in terms.iter().filter(|term| own.contains(term.as_str())) {
        if !matched.contains(term) {
            matched.push(term.clone());
        }
    }
    chunk.terms = String::new();
    Ranked { fused, chunk: Some(chunk), matched }
}

async fn rank(library: &Library, question: &SearchQuery) -> IndexResult<(Vec<Fused>, u64)> {
    let admitted = Arc::new(library.admitted(&question.filter, question.allowed.as_ref().map(|list| list.as_slice())));
    let admits = |file: u32| admits(&admitted, file);
    let depth = DEPTH.max(question.limit.saturating_mul(4));
    let vector = question.vector.as_deref();
    let probe = vector.map(|vector| Arc::new(QuantisedQuery::new(vector)));
    let near = async {
        match (&probe, vector, &library.vectors) {
            (Some(probe), _, Some(set)) => Ok(nearest_in_memory(set, probe, &admitted, depth).await),
            (Some(_), Some(vector), None) if library.info().spec.dimensions == vector.len() => {
                nearest_on_disk(library, vector, &question.filter, depth, &admits).await
            }
            _ => Ok(Vec::new()),
        }
    };
    // The vectors of full-text hits are fetched while the vector search is still running.
    let text = async {
        let text = full_text(library, &question.terms, &question.filter, depth, &admits).await?;
        let fetched = match (&library.vectors, vector) {
            (None, Some(vector)) if library.info().spec.dimensions == vector.len() => {
                fetched_likeness(library, vector, &text).await?
            }
            _ => HashMap::new(),
        };
        Ok((text, fetched))
    };
    let ((text, fetched), near) = tokio::try_join!(text, near)?;
    let likeness = |row: u64| match &library.vectors {
        Some(set) => set.likeness(probe.as_ref()?, row),
        None => fetched.get(&row).copied(),
    };
    let mut ranked = fuse(&text, &near, likeness, |file| library.link_share(file), &question.weights);
    ranked.truncate(question.limit);
    let scanned = match &library.vectors {
        Some(set) if probe.is_some() => set.len() as u64,
        _ => library.info().chunks,
    };
    Ok((ranked, scanned))
}

/// Which files may be returned, by file number; `None` means all.
type Admitted = Option<Vec<bool>>;

fn admits(admitted: &Admitted, file: u32) -> bool {
    admitted.as_ref().is_none_or(|list| list.get(file as usize) == Some(&true))
}

/// A large set is searched on another thread, while the full-text search runs.
async fn nearest_in_memory(
    set: &Arc<VectorSet>,
    probe: &Arc<QuantisedQuery>,
    admitted: &Arc<Admitted>,
    depth: usize,
) -> Vec<Neighbour> {
    if set.len() < LARGE_SET {
        return set.nearest(probe, |file| admits(admitted, file), depth);
    }
    let (set, probe, admitted) = (set.clone(), probe.clone(), admitted.clone());
    let work = move || set.nearest(&probe, |file| admits(&admitted, file), depth);
    match tokio::task::spawn_blocking(work).await {
        Ok(near) => near,
        Err(error) => error.try_into_panic().map_or_else(|_| Vec::new(), |panic| std::panic::resume_unwind(panic)),
    }
}

/// The full-text search applies the filter but not the caller's path rules. If those remove too many hits, it is
/// repeated with a higher limit.
async fn full_text(
    library: &Library,
    terms: &[String],
    filter: &ChunkFilter,
    depth: usize,
    admits: &(impl Fn(u32) -> bool + Sync),
) -> IndexResult<Vec<Neighbour>> {
    if terms.is_empty() {
        return Ok(Vec::new());
    }
    let mut asked = depth;
    loop {
        let found = library.reader.full_text(terms, filter, asked).await?;
        let was_cut = found.len() == asked;
        let kept = known(library, &found, admits).await?;
        if kept.len() * 2 >= depth || !was_cut || asked >= MAX_DEPTH {
            return Ok(kept);
        }
        asked = (asked * 8).min(MAX_DEPTH);
    }
}

async fn nearest_on_disk(
    library: &Library,
    vector: &[f32],
    filter: &ChunkFilter,
    depth: usize,
    admits: &(impl Fn(u32) -> bool + Sync),
) -> IndexResult<Vec<Neighbour>> {
    let mut asked = depth;
    loop {
        let found = library.reader.nearest(vector, filter, asked).await?;
        let was_cut = found.len() == asked;
        let kept = known(library, &found, admits).await?;
        if kept.len() * 2 >= depth || !was_cut || asked >= MAX_DEPTH {
            return Ok(kept);
        }
        asked = (asked * 8).min(MAX_DEPTH);
    }
}

/// The cosine of the best full-text candidates.
async fn fetched_likeness(library: &Library, vector: &[f32], text: &[Neighbour]) -> IndexResult<HashMap<u64, f32>> {
    let rows: Vec<u64> = text.iter().take(MAX_FETCHED_VECTORS).map(|near| near.row).collect();
    if rows.is_empty() {
        return Ok(HashMap::new());
    }
    let vectors = library.reader.vectors_of(&rows).await?;
    Ok(rows.iter().zip(vectors).filter_map(|(row, own)| Some((*row, cosine(vector, &own?)))).collect())
}

/// The hits in known files that the caller may see.
async fn known(
    library: &Library,
    found: &[RowScore],
    admits: &(impl Fn(u32) -> bool + Sync),
) -> IndexResult<Vec<Neighbour>> {
    let rows: Vec<u64> = found.iter().map(|found| found.row).collect();
    let files = library.files_of(&rows).await?;
    let known =
        found.iter().zip(files).filter_map(|(f, file)| Some(Neighbour { row: f.row, file: file?, score: f.score }));
    Ok(known.filter(|near| admits(near.file)).collect())
}
