//! Runs a query: its terms and its vector go to the index, and the results come back with a title and a snippet.
//!
//! Permissions, sensitivity and the format of the answer are handled elsewhere.

pub use toolyard_noteindex::search::{
    Detail, Fused, Library, LibraryFile, Ranked, SearchQuery, SearchResult, Totals, Weights, answer, fingerprint, fuse,
    vectors,
};

use crate::{
    index::{ChunkFilter, ChunkRow, IndexResult},
    text::{counted_terms, query_terms, snippet, term_set},
};
use std::sync::Arc;

/// Length of a snippet, in characters.
const SNIPPET_CHARS: usize = 240;

/// A search query.
#[derive(Clone)]
pub struct Query<'a> {
    /// The text of the query.
    pub text: &'a str,
    /// The vector of the query, with unit length, if there is one.
    pub vector: Option<Vec<f32>>,
    /// Which chunks may be returned.
    pub filter: ChunkFilter,
    /// Which files of the library the caller may see; `None` means all.
    pub allowed: Option<Arc<Vec<bool>>>,
    /// Maximum number of results.
    pub limit: usize,
    /// The weights of the score components.
    pub weights: Weights,
}

impl Query<'_> {
    /// The query in the form of the index.
    pub fn question(self, detail: Detail) -> SearchQuery {
        SearchQuery {
            terms: counted_terms(self.text),
            vector: self.vector,
            filter: self.filter,
            allowed: self.allowed,
            limit: self.limit,
            weights: self.weights,
            detail,
        }
    }
}

/// A search hit.
#[derive(Debug, Clone)]
pub struct Hit {
    /// The chunk.
    pub chunk: ChunkRow,
    /// The title of its note.
    pub title: String,
    /// The components of its score.
    pub fused: Fused,
    /// The distinct terms of the query that the chunk contains.
    pub matched: Vec<String>,
    /// The terms among them that the query repeats, which count repeatedly.
    pub repeated: Vec<String>,
    /// The part of the chunk that shows the match.
    pub snippet: String,
}

/// The result of a search.
#[derive(Debug, Clone, Default)]
pub struct Hits {
    /// The results, best first.
    pub hits: Vec<Hit>,
    /// Number of chunks that were searched.
    pub scanned: u64,
}

/// Searches a version.
pub async fn search(library: &Library, query: Query<'_>) -> IndexResult<Hits> {
    let terms = query_terms(query.text);
    let question = query.question(Detail::Chunks);
    let found = answer(library, &question).await?;
    let repeated = |term: &String| question.terms.iter().filter(|other| *other == term).count() > 1;
    let hits = found.hits.into_iter().filter_map(|ranked| hit(library, ranked, &terms, &repeated)).collect();
    Ok(Hits { hits, scanned: found.scanned })
}

fn hit(library: &Library, ranked: Ranked, terms: &[String], repeated: &dyn Fn(&String) -> bool) -> Option<Hit> {
    let Ranked { fused, chunk, matched } = ranked;
    let chunk = chunk?;
    let in_text = |text: &str| {
        let words = term_set(text);
        matched.iter().filter(|term| words.contains(*term)).count()
    };
    // Code is shown only if the match is in the code.
    let from_code = !chunk.opaque.is_empty() && in_text(&chunk.text) == 0 && in_text(&chunk.opaque) > 0;
    let source = if from_code || chunk.text.is_empty() { &chunk.opaque } else { &chunk.text };
    let snippet = snippet(source, terms, SNIPPET_CHARS);
    let title = library.file(fused.file).map(|file| file.title.clone()).unwrap_or_default();
    let repeated = matched.iter().filter(|term| repeated(term)).cloned().collect();
    Some(Hit { title, fused, matched, repeated, snippet, chunk })
}
