//! Search: full text and vectors together, fused by weighted score, with every part of a score to be explained.
//!
//! Pure but for the reader it is given. Which words a question has, who may ask and what is sensitive is not decided here.

mod fuse;
mod library;
mod row_files;
pub mod vectors;

pub use fuse::{Fused, Weights, fuse};
pub use library::{Library, LibraryFile, Totals, fingerprint};

use crate::{ChunkFilter, ChunkRow, Found, IndexResult, memory::cosine};
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};
use vectors::{Near, Probe, VectorSet};

/// Candidates that each leg gives to the fusion, at least.
const DEPTH: usize = 200;
/// Candidates that full text gives at most, when a filter leaves too few of them.
const MAX_DEPTH: usize = 20_000;
/// Candidates of full text, the best of them, whose vectors are fetched where vectors are not in memory: the others are too
/// far behind for their vectors to bring them to the top, and each fetch is a read.
const MAX_FETCHED_VECTORS: usize = 64;
/// Vectors that take longer to compare than to hand to another thread.
const LARGE_SET: usize = 4_096;

/// A question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Its words as full text counts them. A word that stands there twice counts twice.
    pub terms: Vec<String>,
    /// Its vector of unit length, where there is one.
    pub vector: Option<Vec<f32>>,
    /// Which chunks may be found.
    pub filter: ChunkFilter,
    /// Which files of the library the caller may see, by number; `None` means all.
    pub allowed: Option<Arc<Vec<bool>>>,
    /// At most this many results.
    pub limit: usize,
    /// How much each part of a score counts.
    pub weights: Weights,
    /// What is answered for each chunk.
    pub detail: Detail,
}

/// What is answered for each chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Detail {
    /// Its row, file and scores.
    Scores,
    /// What it says too.
    Chunks,
}

/// A chunk that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// Why it stands where it stands.
    pub fused: Fused,
    /// What it says, where that was asked for; without its terms and vector.
    pub chunk: Option<ChunkRow>,
    /// The different terms of the question that it has, where chunks were asked for.
    pub matched: Vec<String>,
}

/// What a question found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Best first.
    pub hits: Vec<Ranked>,
    /// Chunks that were looked at.
    pub scanned: u64,
}

/// Answers a question over a version: by the reader where it answers questions itself, else here.
pub async fn answer(library: &Library, question: &Question) -> IndexResult<Answer> {
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
    Ok(Answer { hits, scanned })
}

/// The terms of a chunk are larger than its text and are not shown, so they do not leave the index program.
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

async fn rank(library: &Library, question: &Question) -> IndexResult<(Vec<Fused>, u64)> {
    let admitted = Arc::new(library.admitted(&question.filter, question.allowed.as_ref().map(|list| list.as_slice())));
    let admits = |file: u32| admits(&admitted, file);
    let depth = DEPTH.max(question.limit.saturating_mul(4));
    let vector = question.vector.as_deref();
    let probe = vector.map(|vector| Arc::new(Probe::new(vector)));
    let near = async {
        match (&probe, vector, &library.vectors) {
            (Some(probe), _, Some(set)) => Ok(nearest_in_memory(set, probe, &admitted, depth).await),
            (Some(_), Some(vector), None) if library.info().spec.dimensions == vector.len() => {
                nearest_on_disk(library, vector, &question.filter, depth, &admits).await
            }
            _ => Ok(Vec::new()),
        }
    };
    // The vectors of what full text finds are fetched while the index still looks for the nearest ones.
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

/// Which files may be found, by number; all of them where there is no list.
type Admitted = Option<Vec<bool>>;

fn admits(admitted: &Admitted, file: u32) -> bool {
    admitted.as_ref().is_none_or(|list| list.get(file as usize) == Some(&true))
}

/// On a thread of its own where the set is large: meanwhile the index looks for the words.
async fn nearest_in_memory(
    set: &Arc<VectorSet>,
    probe: &Arc<Probe>,
    admitted: &Arc<Admitted>,
    depth: usize,
) -> Vec<Near> {
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

/// Full text knows the filter but not the caller's path rules; where those leave too few, more are asked for.
async fn full_text(
    library: &Library,
    terms: &[String],
    filter: &ChunkFilter,
    depth: usize,
    admits: &(impl Fn(u32) -> bool + Sync),
) -> IndexResult<Vec<Near>> {
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
) -> IndexResult<Vec<Near>> {
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

/// How like the question the best candidates of full text are.
async fn fetched_likeness(library: &Library, vector: &[f32], text: &[Near]) -> IndexResult<HashMap<u64, f32>> {
    let rows: Vec<u64> = text.iter().take(MAX_FETCHED_VECTORS).map(|near| near.row).collect();
    if rows.is_empty() {
        return Ok(HashMap::new());
    }
    let vectors = library.reader.vectors_of(&rows).await?;
    Ok(rows.iter().zip(vectors).filter_map(|(row, own)| Some((*row, cosine(vector, &own?)))).collect())
}

/// What was found in files that are known and may be seen.
async fn known(library: &Library, found: &[Found], admits: &(impl Fn(u32) -> bool + Sync)) -> IndexResult<Vec<Near>> {
    let rows: Vec<u64> = found.iter().map(|found| found.row).collect();
    let files = library.files_of(&rows).await?;
    let known = found.iter().zip(files).filter_map(|(f, file)| Some(Near { row: f.row, file: file?, score: f.score }));
    Ok(known.filter(|near| admits(near.file)).collect())
}
