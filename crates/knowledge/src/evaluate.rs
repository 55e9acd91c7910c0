//! Measures search on a labelled corpus: documents as notes, queries, and the relevant documents. The measurement uses
//! the same splitting, terms, vectors and fusion as searches.

use crate::{
    config::KnowledgeConfig,
    embed::{EmbedError, Embedder, Purpose},
    index::{ChunkFilter, IndexError, IndexSpec, NoteIndex, WriteBatch, WriterStart},
    indexer::{Prepared, Stat},
    note::{Note, stem},
    search::{Detail, Library, Query, Weights, answer},
    sensitive::Guard,
};
use serde::Serialize;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

/// Number of chunks in one write.
const BATCH: usize = 4_096;
/// How many positions of a ranking are considered.
const DEPTH: usize = 100;
/// Number of chunks ranked, so that enough documents are among them.
const CHUNKS: usize = 400;
/// Number of chunks with which the embedder is adapted.
const SAMPLES: usize = 2_000;

/// A document of the corpus.
#[derive(Debug, Clone)]
pub struct Document {
    /// The id used in the judgements.
    pub id: String,
    /// The title.
    pub title: String,
    /// The text.
    pub text: String,
}

/// A query with its relevant documents and their grades.
#[derive(Debug, Clone)]
pub struct JudgedQuery {
    /// The id of the query. Where queries were taken from the corpus, a document with the same id is the query itself;
    /// it does not count unless it is judged as relevant.
    pub id: String,
    /// The text of the query.
    pub text: String,
    /// Grades above 0, by document.
    pub grades: HashMap<String, f64>,
}

impl JudgedQuery {
    fn may_answer(&self, document: &str) -> bool {
        document != self.id || self.grades.contains_key(document)
    }
}

/// The scores of one search method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Scores {
    /// Normalised discounted cumulative gain of the first ten results.
    pub ndcg10: f64,
    /// Share of the relevant documents among the first ten results.
    pub recall10: f64,
    /// Share of the relevant documents among the first hundred results.
    pub recall100: f64,
    /// Mean reciprocal rank of the first relevant document.
    pub mrr: f64,
    /// Median latency of a query.
    pub p50_ms: f64,
    /// 99th percentile of the latency of a query.
    pub p99_ms: f64,
}

/// The result of an evaluation.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The scores of full text only.
    pub full_text: Scores,
    /// The scores of vectors only.
    pub vector: Scores,
    /// The scores of both combined, as searches use them.
    pub fused: Scores,
    /// The parameters of the measurement.
    pub config: EvaluationSettings,
}

/// The parameters of the measurement.
#[derive(Debug, Clone, Serialize)]
pub struct EvaluationSettings {
    /// Number of documents.
    pub documents: usize,
    /// Number of chunks.
    pub chunks: u64,
    /// Number of queries with at least one relevant document.
    pub queries: usize,
    /// The embedder.
    pub embedder: String,
    /// The weight of vectors.
    pub vector_weight: f32,
    /// Time taken to index.
    pub index_ms: f64,
}

/// Why an evaluation failed.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The embedder failed.
    #[error(transparent)]
    Embed(#[from] EmbedError),
}

/// Indexes the documents and runs the queries with all three methods.
pub async fn evaluate(
    index: &dyn NoteIndex,
    embedder: &Arc<dyn Embedder>,
    config: &KnowledgeConfig,
    documents: &[Document],
    questions: &[JudgedQuery],
    vector_weight: f32,
) -> Result<Report, EvaluateError> {
    let info = embedder.describe().await?;
    let spec = IndexSpec { embedder: info.id.clone(), dimensions: info.dimensions, recipe: "evaluation".to_owned() };
    let started = Instant::now();
    // Sensitive text is not sent to another machine for a measurement either.
    let guard = Guard::new(config.sensitive.matching, &config.sensitive.sections);
    let guard = (!embedder.is_local()).then_some(&guard);
    fill(index, &**embedder, config, documents, &spec, guard).await?;
    let reader = index.current().await?.ok_or_else(|| IndexError::Corrupted("nothing was written".to_owned()))?;
    let library = Library::load(reader, None, config.index.vector_memory_mb << 20).await?;
    let index_ms = started.elapsed().as_secs_f64() * 1e3;
    let samples = library.reader.sample(SAMPLES).await?;
    let attuned = embedder.attuned(&samples).unwrap_or_else(|| embedder.clone());
    let judged: Vec<&JudgedQuery> = questions.iter().filter(|question| !question.grades.is_empty()).collect();
    let mut tallies = [ScoreTotals::default(), ScoreTotals::default(), ScoreTotals::default()];
    for question in &judged {
        for (way, tally) in tallies.iter_mut().enumerate() {
            let start = Instant::now();
            let is_kept = guard.is_some_and(|guard| !guard.categories(&question.text, None, &[]).is_empty());
            let vector = match way {
                0 => None,
                _ if is_kept => None,
                _ => attuned
                    .embed(std::slice::from_ref(&question.text), Purpose::Query)
                    .await?
                    .into_iter()
                    .next()
                    .flatten(),
            };
            let asked = Query {
                text: if way == 1 { "" } else { &question.text },
                vector,
                filter: ChunkFilter::default(),
                allowed: None,
                limit: CHUNKS,
                weights: Weights { vector: vector_weight, links: 0.0 },
            };
            let found = answer(&library, &asked.question(Detail::Scores)).await?;
            tally.times.push(start.elapsed().as_secs_f64() * 1e3);
            let mut seen = HashSet::new();
            let documents: Vec<&str> = found
                .hits
                .iter()
                .map(|hit| &hit.fused)
                .filter(|fused| seen.insert(fused.file))
                .filter_map(|fused| library.file(fused.file))
                .map(|file| file.path.as_str())
                .filter(|document| question.may_answer(document))
                .take(DEPTH)
                .collect();
            tally.add(&documents, &question.grades);
        }
    }
    let [full_text, vector, fused] = tallies.map(|tally| tally.scores());
    let config = EvaluationSettings {
        documents: documents.len(),
        chunks: library.info().chunks,
        queries: judged.len(),
        embedder: info.id,
        vector_weight,
        index_ms: round(index_ms),
    };
    Ok(Report { full_text, vector, fused, config })
}

async fn fill(
    index: &dyn NoteIndex,
    embedder: &dyn Embedder,
    config: &KnowledgeConfig,
    documents: &[Document],
    spec: &IndexSpec,
    guard: Option<&Guard>,
) -> Result<(), EvaluateError> {
    let mut writer = index.write(spec, WriterStart::Fresh).await?;
    let mut batch = WriteBatch::default();
    for (number, document) in documents.iter().enumerate() {
        let (text, note) = as_note(document, config);
        let stat = Stat { hash: number as u64, size: text.len() as u64, mtime_ms: 0, recipe: 0 };
        let mut prepared = Prepared::new(&document.id, &note, stat, guard);
        let (places, inputs): (Vec<usize>, Vec<String>) =
            prepared.inputs.into_iter().enumerate().filter_map(|(place, input)| Some((place, input?))).unzip();
        for (place, vector) in places.into_iter().zip(embedder.embed(&inputs, Purpose::Passage).await?) {
            prepared.chunks[place].vector = vector;
        }
        batch.files.push(prepared.file);
        batch.chunks.extend(prepared.chunks);
        if batch.chunks.len() >= BATCH {
            writer.put(std::mem::take(&mut batch)).await?;
        }
    }
    writer.put(batch).await?;
    writer.complete().await?;
    Ok(())
}

/// A document as a note with its title in front matter. If it has no title, the note has none, because an id says
/// nothing.
fn as_note(document: &Document, config: &KnowledgeConfig) -> (String, Note) {
    let title = document.title.trim();
    let text = if title.is_empty() {
        document.text.clone()
    } else {
        let title = title.replace(['\n', '\r'], " ").replace('\\', "\\\\").replace('"', "\\\"");
        format!("---\ntitle: \"{title}\"\n---\n{}", document.text)
    };
    let mut note = Note::parse(&document.id, &text, config.indexing.sizes());
    if note.title == stem(&document.id) {
        note.title = title.to_owned();
    }
    (text, note)
}

#[derive(Default)]
struct ScoreTotals {
    ndcg: f64,
    recall10: f64,
    recall100: f64,
    reciprocal: f64,
    times: Vec<f64>,
}

impl ScoreTotals {
    fn add(&mut self, ranked: &[&str], grades: &HashMap<String, f64>) {
        let discount = |rank: usize| 1.0 / ((rank + 2) as f64).log2();
        let grade = |id: &&str| grades.get(*id).copied().unwrap_or(0.0);
        let gained: f64 = ranked.iter().take(10).enumerate().map(|(rank, id)| grade(id) * discount(rank)).sum();
        let mut best: Vec<f64> = grades.values().copied().collect();
        best.sort_by(|a, b| b.total_cmp(a));
        let ideal: f64 = best.iter().take(10).enumerate().map(|(rank, grade)| grade * discount(rank)).sum();
        let recall =
            |depth: usize| ranked.iter().take(depth).filter(|id| grade(id) > 0.0).count() as f64 / grades.len() as f64;
        self.ndcg += if ideal > 0.0 { gained / ideal } else { 0.0 };
        self.recall10 += recall(10);
        self.recall100 += recall(100);
        self.reciprocal += ranked.iter().position(|id| grade(id) > 0.0).map_or(0.0, |rank| 1.0 / (rank + 1) as f64);
    }

    fn scores(mut self) -> Scores {
        self.times.sort_by(f64::total_cmp);
        let count = self.times.len().max(1) as f64;
        let at =
            |part: f64| self.times.get(((self.times.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or(0.0);
        Scores {
            ndcg10: round(self.ndcg / count),
            recall10: round(self.recall10 / count),
            recall100: round(self.recall100 / count),
            mrr: round(self.reciprocal / count),
            p50_ms: round(at(0.5)),
            p99_ms: round(at(0.99)),
        }
    }
}

fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_without_a_title_is_not_named_after_its_id() {
        let config = KnowledgeConfig::default();
        let title = |title: &str, text: &str| {
            let document = Document { id: "doc.7".to_owned(), title: title.to_owned(), text: text.to_owned() };
            as_note(&document, &config).1.title
        };
        assert_eq!(title("", "Words"), "");
        assert_eq!(title("A \"quoted\" \\ title", "Words"), "A \"quoted\" \\ title");
        assert_eq!(title("", "---\ntitle: Its own\n---\nWords"), "Its own");
    }

    #[test]
    fn a_question_that_is_a_document_does_not_answer_itself() {
        let judged = |grades: &[&str]| JudgedQuery {
            id: "q".to_owned(),
            text: String::new(),
            grades: grades.iter().map(|id| ((*id).to_owned(), 1.0)).collect(),
        };
        assert!(!judged(&["a"]).may_answer("q") && judged(&["a"]).may_answer("b"));
        assert!(judged(&["q"]).may_answer("q"));
    }

    #[test]
    fn scores_are_as_the_textbook_says() {
        let grades = HashMap::from([("a".to_owned(), 1.0), ("b".to_owned(), 1.0)]);
        let mut tally = ScoreTotals { times: vec![1.0], ..ScoreTotals::default() };
        tally.add(&["x", "a", "y"], &grades);
        let scores = tally.scores();
        let ideal = 1.0 + 1.0 / 3f64.log2();
        assert!((scores.ndcg10 - (1.0 / 3f64.log2()) / ideal).abs() < 1e-3);
        assert_eq!((scores.recall10, scores.recall100, scores.mrr), (0.5, 0.5, 0.5));
    }
}
