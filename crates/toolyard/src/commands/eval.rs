//! `toolyard eval`: measures search quality on the user's own labelled data.

use super::{Outcome, input};
use crate::{
    cli::{EvalCommand, Global},
    output,
};
use serde_json::json;
use std::{path::Path, process::ExitCode, time::Instant};
use toolyard_catalog::search::SearchIndex;
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_toolsearch::{
    StaticMeaning,
    quality::{DEPTH, LabelledCatalog, LabelledQuery, LabelledTool, read_line},
};

pub(super) async fn run(global: &Global, command: EvalCommand) -> Outcome {
    match command {
        EvalCommand::Tools { catalog, queries, steps, words_only } => {
            tools(global, &catalog, &queries, steps, words_only)
        }
        EvalCommand::Notes { corpus, queries, qrels } => {
            super::eval_notes::run(global, &corpus, &queries, &qrels).await
        }
        EvalCommand::Memory { turns, questions } => super::eval_memory::run(global, &turns, &questions),
    }
}

fn tools(global: &Global, catalog: &Path, queries: &Path, steps: bool, words_only: bool) -> Outcome {
    let tools: Vec<LabelledTool> = lines(catalog)?;
    let labelled: Vec<LabelledQuery> = lines(queries)?;
    let start = Instant::now();
    let labels = LabelledCatalog::new(&tools)?;
    let mut index = SearchIndex::build(&labels.registry.snapshot());
    if !words_only {
        index = index.with_meaning(&StaticMeaning);
    }
    let build_ms = start.elapsed().as_secs_f64() * 1e3;
    let (quality, with_steps) = labels.measure(&index, &labelled, steps);
    let mut report = serde_json::to_value(quality)
        .map_err(|e| Failure::new(ErrorCode::InternalError, format!("the figures cannot be written: {e}")))?;
    report["config"] = json!({
        "tools": tools.len(), "queries": labelled.len(), "steps": steps, "queriesWithSteps": with_steps,
        "ranking": if words_only { "words" } else { "words+meaning" }, "depth": DEPTH,
        "build_ms": (build_ms * 10.0).round() / 10.0, "version": env!("CARGO_PKG_VERSION"),
    });
    if global.json {
        output::json(&report);
    } else {
        let row = |key: &str| vec![key.to_owned(), report[key].to_string()];
        let keys = ["ndcg10", "recall1", "recall5", "recall10", "mrr", "p50_ms", "p99_ms"];
        output::data(&output::table(&keys.map(row)));
        output::note(&format!("{} queries over {} tools", labelled.len(), tools.len()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The JSON values of a file, one a line.
pub(super) fn lines<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>, Failure> {
    let origin = path.display().to_string();
    let mut items = Vec::new();
    input::each_line(&origin, |number, line| {
        items.push(read_line(line, &origin, number)?);
        Ok(())
    })?;
    if items.is_empty() {
        return Err(Failure::new(ErrorCode::UsageError, format!("{origin} is empty")));
    }
    Ok(items)
}
