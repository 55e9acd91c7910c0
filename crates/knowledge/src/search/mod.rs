//! Search: full text and vectors together, fused by weighted score, with every part of a score to be explained.
//!
//! Pure but for the reader and the embedder it is given. Who may ask, what is sensitive and how it is told is not
//! decided here.

mod fuse;
mod library;
pub mod vectors;

pub use fuse::{Fused, Weights, fuse};
pub use library::{Library, LibraryFile, Totals, fingerprint};

use crate::{
    index::{ChunkFilter, ChunkRow, Found, IndexResult, memory::cosine},
    text::{query_terms, snippet, term_set},
};
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
/// Characters of a snippet.
const SNIPPET_CHARS: usize = 240;

/// A question.
pub struct Question<'a> {
    /// In words.
    pub text: &'a str,
    /// As a vector of unit length, where there is one.
    pub vector: Option<&'a [f32]>,
    /// Which chunks may be found.
    pub filter: &'a ChunkFilter,
    /// Which files of the library the caller may see; `None` means all.
    pub allowed: Option<&'a [bool]>,
    /// At most this many results.
    pub limit: usize,
}

/// A chunk that was found.
#[derive(Debug, Clone)]
pub struct Hit {
    /// The chunk.
    pub chunk: ChunkRow,
    /// The title of its note.
    pub title: String,
    /// Why it stands where it stands.
    pub fused: Fused,
    /// The terms of the question that it has.
    pub matched: Vec<String>,
    /// The part that shows why.
    pub snippet: String,
}

/// What a search found.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// Best first.
    pub hits: Vec<Hit>,
    /// Chunks that were looked at.
    pub scanned: u64,
}

/// Searches a version.
pub async fn search(library: &Library, question: &Question<'_>, weights: &Weights) -> IndexResult<Answer> {
    let (ranked, scanned) = rank(library, question, weights).await?;
    let terms = query_terms(question.text);
    let rows: Vec<u64> = ranked.iter().map(|fused| fused.row).collect();
    let chunks = if rows.is_empty() { Vec::new() } else { library.reader.fetch(&rows).await? };
    let hits = ranked.into_iter().zip(chunks).map(|(fused, chunk)| hit(library, fused, chunk, &terms)).collect();
    Ok(Answer { hits, scanned })
}

/// Searches a version and answers rows only, for evaluations.
pub async fn rank(library: &Library, question: &Question<'_>, weights: &Weights) -> IndexResult<(Vec<Fused>, u64)> {
    let admitted = Arc::new(library.admitted(question.filter, question.allowed));
    let admits = |file: u32| admits(&admitted, file);
    let depth = DEPTH.max(question.limit.saturating_mul(4));
    let terms = query_terms(question.text);
    let probe = question.vector.map(|vector| Arc::new(Probe::new(vector)));
    let near = async {
        match (&probe, question.vector, &library.vectors) {
            (Some(probe), _, Some(set)) => Ok(nearest_in_memory(set, probe, &admitted, depth).await),
            (Some(_), Some(vector), None) if library.info().spec.dimensions == vector.len() => {
                nearest_on_disk(library, vector, question.filter, depth, &admits).await
            }
            _ => Ok(Vec::new()),
        }
    };
    let text = full_text(library, &terms, question.filter, depth, &admits);
    let (text, near) = tokio::try_join!(text, near)?;
    let fetched = match (&library.vectors, question.vector) {
        (None, Some(vector)) if !near.is_empty() => fetched_likeness(library, vector, &text, &near).await?,
        _ => HashMap::new(),
    };
    let likeness = |row: u64| match &library.vectors {
        Some(set) => set.likeness(probe.as_ref()?, row),
        None => fetched.get(&row).copied(),
    };
    let mut ranked = fuse(&text, &near, likeness, |file| library.link_share(file), weights);
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

/// How like the question the best candidates of full text are that the vectors did not bring up themselves.
async fn fetched_likeness(
    library: &Library,
    vector: &[f32],
    text: &[Near],
    near: &[Near],
) -> IndexResult<HashMap<u64, f32>> {
    let known: HashSet<u64> = near.iter().map(|near| near.row).collect();
    let unknown = text.iter().take(MAX_FETCHED_VECTORS).map(|near| near.row).filter(|row| !known.contains(row));
    let rows: Vec<u64> = unknown.collect();
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

fn hit(library: &Library, fused: Fused, chunk: ChunkRow, terms: &[String]) -> Hit {
    let own: std::collections::HashSet<&str> = chunk.terms.split_ascii_whitespace().collect();
    let matched: Vec<String> = terms.iter().filter(|term| own.contains(term.as_str())).cloned().collect();
    let in_text = |text: &str| {
        let words = term_set(text);
        matched.iter().filter(|term| words.contains(*term)).count()
    };
    // Code is shown only where it is the reason.
    let from_code = !chunk.opaque.is_empty() && in_text(&chunk.text) == 0 && in_text(&chunk.opaque) > 0;
    let source = if from_code || chunk.text.is_empty() { &chunk.opaque } else { &chunk.text };
    let snippet = snippet(source, terms, SNIPPET_CHARS);
    let title = library.file(fused.file).map(|file| file.title.clone()).unwrap_or_default();
    Hit { title, fused, matched, snippet, chunk }
}
