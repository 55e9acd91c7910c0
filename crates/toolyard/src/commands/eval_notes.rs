//! `toolyard eval notes`: how good note search is on a labelled corpus, with the configured embedder and LanceDB.

use super::{Outcome, eval::lines, input};
use crate::{cli::Global, config, notes, output};
use serde::Deserialize;
use serde_json::Value;
use std::{collections::HashMap, path::Path, process::ExitCode, sync::Arc};
use toolyard_knowledge::{
    embed::{Embedder, StaticTable},
    evaluate::{Document, EvaluateError, JudgedQuery, Report, Scores, evaluate},
    vector_weight,
};
use toolyard_protocol::{ErrorCode, Failure};

#[derive(Deserialize)]
struct Doc {
    #[serde(rename = "_id")]
    id: Value,
    #[serde(default)]
    title: Option<String>,
    text: String,
}

#[derive(Deserialize)]
struct Query {
    #[serde(rename = "_id")]
    id: Value,
    text: String,
}

pub(super) async fn run(global: &Global, corpus: &Path, queries: &Path, qrels: &Path) -> Outcome {
    let resolved = config::resolve(global)?;
    let settings = resolved.config.knowledge;
    let documents: Vec<Document> = lines::<Doc>(corpus)?
        .into_iter()
        .map(|doc| Document { id: name(&doc.id), title: doc.title.unwrap_or_default(), text: doc.text })
        .collect();
    let mut grades = judgements(qrels)?;
    let questions: Vec<JudgedQuery> = lines::<Query>(queries)?
        .into_iter()
        .map(|query| {
            let id = name(&query.id);
            JudgedQuery { text: query.text, grades: grades.remove(&id).unwrap_or_default(), id }
        })
        .collect();
    if documents.is_empty() || questions.iter().all(|question| question.grades.is_empty()) {
        return Err(Failure::new(ErrorCode::UsageError, "there is no question with an answer in the corpus"));
    }
    let unusable = |e: &dyn std::fmt::Display| Failure::new(ErrorCode::Unavailable, e.to_string());
    let fallback: Arc<dyn Embedder> = Arc::new(StaticTable::new());
    let embedder = notes::embedder(&settings.embedding, &fallback).map_err(|e| unusable(&e))?.ok_or_else(|| {
        Failure::new(ErrorCode::UsageError, "knowledge.embedding.kind is none: there are no vectors to measure")
    })?;
    let folder = TemporaryFolder::new()?;
    let index = crate::notes::scratch_index(&settings, &resolved.home, &folder.0);
    let info = embedder.describe().await.map_err(|e| unusable(&e))?;
    let weight = vector_weight(&settings.search, &info.id);
    let report = evaluate(index.as_ref(), &embedder, &settings, &documents, &questions, weight)
        .await
        .map_err(|e: EvaluateError| unusable(&e))?;
    if global.json {
        output::json(&report);
    } else {
        show(&report);
    }
    Ok(ExitCode::SUCCESS)
}

fn show(report: &Report) {
    let mut rows =
        vec![["", "nDCG@10", "recall@10", "recall@100", "MRR", "p50 ms", "p99 ms"].map(str::to_owned).to_vec()];
    for (name, scores) in [("full text", report.full_text), ("vectors", report.vector), ("both", report.fused)] {
        let Scores { ndcg10, recall10, recall100, mrr, p50_ms, p99_ms } = scores;
        let mut row = vec![name.to_owned()];
        row.extend([ndcg10, recall10, recall100, mrr].map(|value| format!("{value:.4}")));
        row.extend([p50_ms, p99_ms].map(|value| format!("{value:.2}")));
        rows.push(row);
    }
    output::data(&output::table(&rows));
    let config = &report.config;
    output::note(&format!(
        "{} questions over {} documents, {} chunks",
        config.queries, config.documents, config.chunks
    ));
}

/// An id may be written as a number.
fn name(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

/// By question, the grades of its documents that are above 0.
fn judgements(path: &Path) -> Result<HashMap<String, HashMap<String, f64>>, Failure> {
    let origin = path.display().to_string();
    let mut grades: HashMap<String, HashMap<String, f64>> = HashMap::new();
    let mut is_first = true;
    input::each_line(&origin, |number, line| {
        let line = String::from_utf8_lossy(line);
        let parts: Vec<&str> = line.split('\t').map(str::trim).collect();
        let grade = parts.get(2).and_then(|grade| grade.parse::<f64>().ok());
        let is_header = std::mem::take(&mut is_first);
        match (parts.as_slice(), grade) {
            ([query, document, _], Some(grade)) if grade > 0.0 => {
                grades.entry((*query).to_owned()).or_default().insert((*document).to_owned(), grade);
            }
            ([_, _, _], Some(_)) => {}
            _ if is_header => {}
            _ => {
                let text = format!("{origin}, line {number}: query, document and grade with tabs between");
                return Err(Failure::new(ErrorCode::ValidationError, text));
            }
        }
        Ok(())
    })?;
    Ok(grades)
}

/// A temporary folder that is removed when the evaluation has ended.
struct TemporaryFolder(std::path::PathBuf);

impl TemporaryFolder {
    fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("toolyard-eval-{}", uuid::Uuid::new_v4()));
        toolyard_knowledge::indexer::private_folder(&path)
            .map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{}: {e}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "the folder of a measurement could not be removed");
        }
    }
}
