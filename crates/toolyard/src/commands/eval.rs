//! `toolyard eval`: how good the search is on a labelled set of one's own.

use super::{Outcome, input};
use crate::{
    cli::{EvalCommand, Global},
    output,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{collections::HashMap, path::Path, process::ExitCode, time::Instant};
use toolyard_catalog::{
    Registry, ToolEntry, ToolSource,
    search::{MAX_BATCH_QUERIES, SearchIndex, SearchOptions},
};
use toolyard_protocol::{ErrorCode, Failure, ToolDefinition, ToolName};
use toolyard_toolsearch::StaticMeaning;

/// Ranks that count.
const DEPTH: usize = 10;

#[derive(Deserialize)]
struct Tool {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
    #[serde(default)]
    category: Option<String>,
}

#[derive(Deserialize)]
struct Labelled {
    query: String,
    gold: Vec<String>,
    #[serde(default)]
    steps: Vec<String>,
}

pub(super) fn run(global: &Global, command: EvalCommand) -> Outcome {
    let EvalCommand::Tools { catalog, queries, steps, words_only } = command;
    let tools: Vec<Tool> = lines(&catalog)?;
    let labelled: Vec<Labelled> = lines(&queries)?;
    if tools.is_empty() || labelled.is_empty() {
        let empty = if tools.is_empty() { &catalog } else { &queries };
        return Err(Failure::new(ErrorCode::UsageError, format!("{} is empty", empty.display())));
    }
    let start = Instant::now();
    let (registry, names) = register(&tools)?;
    let mut index = SearchIndex::build(&registry.snapshot());
    if !words_only {
        index = index.with_meaning(&StaticMeaning);
    }
    let build_ms = start.elapsed().as_secs_f64() * 1e3;
    let mut sums = Sums::default();
    let mut times = Vec::with_capacity(labelled.len());
    let mut with_steps = 0usize;
    for item in &labelled {
        let start = Instant::now();
        let options = SearchOptions::limit(DEPTH);
        let found: Vec<String> = if steps && !item.steps.is_empty() {
            with_steps += 1;
            let queries: Vec<&str> = item.steps.iter().map(String::as_str).take(MAX_BATCH_QUERIES).collect();
            index
                .search_batch(&queries, &options, |_| true)
                .into_iter()
                .map(|(hit, _)| hit.entry.id().to_owned())
                .collect()
        } else {
            index.search(&item.query, &options, |_| true).into_iter().map(|hit| hit.entry.id().to_owned()).collect()
        };
        times.push(start.elapsed().as_secs_f64() * 1e3);
        let relevant: Vec<bool> =
            found.iter().map(|id| names.get(id).is_some_and(|name| item.gold.contains(name))).collect();
        sums.add(&relevant, item.gold.len());
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times.get(((times.len() - 1) as f64 * part) as usize).copied().unwrap_or(0.0);
    let mean = |sum: f64| (sum / labelled.len() as f64 * 1e4).round() / 1e4;
    let report = json!({
        "ndcg10": mean(sums.ndcg), "recall1": mean(sums.recall1), "recall5": mean(sums.recall5),
        "recall10": mean(sums.recall10), "mrr": mean(sums.reciprocal),
        "p50_ms": (at(0.5) * 1e3).round() / 1e3, "p99_ms": (at(0.99) * 1e3).round() / 1e3,
        "config": {
            "tools": tools.len(), "queries": labelled.len(), "steps": steps, "queriesWithSteps": with_steps,
            "ranking": if words_only { "words" } else { "words+meaning" }, "depth": DEPTH, "build_ms": (build_ms * 10.0).round() / 10.0,
            "version": env!("CARGO_PKG_VERSION"),
        },
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

/// What is added up over all queries.
#[derive(Default)]
struct Sums {
    ndcg: f64,
    recall1: f64,
    recall5: f64,
    recall10: f64,
    reciprocal: f64,
}

impl Sums {
    fn add(&mut self, relevant: &[bool], gold: usize) {
        if gold == 0 {
            return;
        }
        let gain = |rank: usize| 1.0 / ((rank + 2) as f64).log2();
        let ideal: f64 = (0..gold.min(DEPTH)).map(gain).sum();
        let reached: f64 = relevant.iter().enumerate().filter(|(_, r)| **r).map(|(rank, _)| gain(rank)).sum();
        let recall = |k: usize| relevant.iter().take(k).filter(|r| **r).count() as f64 / gold as f64;
        self.ndcg += reached / ideal;
        self.recall1 += recall(1);
        self.recall5 += recall(5);
        self.recall10 += recall(10);
        self.reciprocal += relevant.iter().position(|r| *r).map_or(0.0, |rank| 1.0 / (rank + 1) as f64);
    }
}

fn lines<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>, Failure> {
    let bytes = input::read_source(&path.display().to_string())?;
    let mut items = Vec::new();
    for (number, line) in bytes.split(|b| *b == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        items.push(serde_json::from_slice(line).map_err(|e| {
            Failure::new(ErrorCode::ValidationError, format!("{}, line {}: {e}", path.display(), number + 1))
        })?);
    }
    Ok(items)
}

/// The catalog as the registry takes it; by id, the names the labels use.
fn register(tools: &[Tool]) -> Result<(Registry, HashMap<String, String>), Failure> {
    let mut registry = Registry::new();
    let mut names = HashMap::new();
    for (number, tool) in tools.iter().enumerate() {
        let refused = |e: &dyn std::fmt::Display| {
            Failure::new(ErrorCode::ValidationError, format!("the tool {:?} cannot be used: {e}", tool.name))
        };
        let make = |name: String| {
            let definition = definition(tool, name).map_err(|e| refused(&e))?;
            ToolEntry::new(definition, ToolSource::core()).map_err(|e| refused(&e))
        };
        // Names of labelled sets may hold anything; one that cannot be a tool's name, or is spelled like another, becomes
        // the title of a numbered tool.
        let mut entry = make(spelled(&tool.name).unwrap_or_else(|| format!("t{number}")))?;
        if names.contains_key(entry.id()) {
            entry = make(format!("t{number}"))?;
        }
        names.insert(entry.id().to_owned(), tool.name.clone());
        registry.add(entry).map_err(|e| refused(&e))?;
    }
    Ok((registry, names))
}

/// A name the registry takes, made of what the set's name is made of.
fn spelled(name: &str) -> Option<String> {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "_.:/-".contains(c) { c } else { '_' };
    let spelled: String = name.chars().map(safe).collect();
    let spelled = spelled.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    ToolName::parse(spelled).ok().map(|_| spelled.to_owned())
}

fn definition(tool: &Tool, name: String) -> Result<ToolDefinition, serde_json::Error> {
    let mut schema: Map<String, Value> = match &tool.parameters {
        Some(Value::Object(schema)) => schema.clone(),
        _ => Map::new(),
    };
    schema.insert("type".to_owned(), "object".into());
    let description = tool.description.as_deref().map(str::trim).filter(|text| !text.is_empty()).unwrap_or("-");
    let title = if tool.name.trim().is_empty() { "-" } else { tool.name.trim() };
    serde_json::from_value(json!({
        "name": name, "title": title, "description": description, "category": tool.category.as_deref().unwrap_or("util"),
        "riskLevel": "read-only", "idempotency": "pure", "inputSchema": schema,
    }))
}
