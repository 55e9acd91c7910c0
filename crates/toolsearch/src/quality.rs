//! Measures the quality of a ranking on labelled queries, for `toolyard eval tools` and the benchmarks.
//!
//! A catalog line is `{"name", "description", "parameters", "category"}`, a query line
//! `{"query", "gold": [names], "steps": [queries]}`.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use std::{collections::HashMap, time::Instant};
use toolyard_catalog::{
    Registry, ToolEntry, ToolSource,
    search::{MAX_BATCH_QUERIES, SearchIndex, SearchOptions},
};
use toolyard_protocol::{ErrorCode, Failure, ToolDefinition, ToolName};

/// Ranks that count.
pub const DEPTH: usize = 10;

/// A tool of a labelled set.
#[derive(Debug, Clone, Deserialize)]
pub struct LabelledTool {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
    #[serde(default)]
    category: Option<String>,
}

/// A query with the tools that answer it.
#[derive(Debug, Clone, Deserialize)]
pub struct LabelledQuery {
    query: String,
    gold: Vec<String>,
    #[serde(default)]
    steps: Vec<String>,
}

/// Means over all queries of a set.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Quality {
    /// Normalised discounted cumulative gain of the first ten.
    pub ndcg10: f64,
    /// Share of the relevant tools in the first position.
    pub recall1: f64,
    /// Part of them among the first five.
    pub recall5: f64,
    /// Part of them among the first ten.
    pub recall10: f64,
    /// One over the rank of the first right tool.
    pub mrr: f64,
    /// Median time of a search, in milliseconds.
    pub p50_ms: f64,
    /// The time 99 of 100 searches stay below.
    pub p99_ms: f64,
}

/// Reads lines of JSON. `origin` is what a failure calls them by.
pub fn read_lines<T: DeserializeOwned>(bytes: &[u8], origin: &str) -> Result<Vec<T>, Failure> {
    let mut items = Vec::new();
    for (number, line) in bytes.split(|b| *b == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        items.push(read_line(line, origin, number + 1)?);
    }
    if items.is_empty() {
        return Err(Failure::new(ErrorCode::UsageError, format!("{origin} is empty")));
    }
    Ok(items)
}

/// Reads one of them.
pub fn read_line<T: DeserializeOwned>(line: &[u8], origin: &str, number: usize) -> Result<T, Failure> {
    serde_json::from_slice(line)
        .map_err(|e| Failure::new(ErrorCode::ValidationError, format!("{origin}, line {number}: {e}")))
}

/// A labelled catalog as the registry takes it.
pub struct LabelledCatalog {
    /// The tools.
    pub registry: Registry,
    /// By id, the names the labels use.
    names: HashMap<String, String>,
}

impl LabelledCatalog {
    /// Registers the tools of a set.
    pub fn new(tools: &[LabelledTool]) -> Result<Self, Failure> {
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
            // Names of labelled sets may hold anything; one that cannot be a tool's name, or is spelled like another,
            // becomes the title of a numbered tool.
            let mut entry = make(spelled(&tool.name).unwrap_or_else(|| format!("t{number}")))?;
            if names.contains_key(entry.id()) {
                entry = make(format!("t{number}"))?;
            }
            names.insert(entry.id().to_owned(), tool.name.clone());
            registry.add(entry).map_err(|e| refused(&e))?;
        }
        Ok(Self { registry, names })
    }

    /// Searches every query and compares the results with its labels. With `steps`, a query with steps is searched as a
    /// batch; the second result is the number of such queries.
    pub fn measure(&self, index: &SearchIndex, queries: &[LabelledQuery], steps: bool) -> (Quality, usize) {
        let mut sum = Quality::default();
        let mut times = Vec::with_capacity(queries.len());
        let mut with_steps = 0;
        let options = SearchOptions::limit(DEPTH);
        for item in queries {
            let start = Instant::now();
            let found: Vec<String> = if steps && !item.steps.is_empty() {
                with_steps += 1;
                let batch: Vec<&str> = item.steps.iter().map(String::as_str).take(MAX_BATCH_QUERIES).collect();
                let hits = index.search_batch(&batch, &options, |_| true);
                hits.into_iter().map(|(hit, _)| hit.entry.id().to_owned()).collect()
            } else {
                let hits = index.search(&item.query, &options, |_| true);
                hits.into_iter().map(|hit| hit.entry.id().to_owned()).collect()
            };
            times.push(start.elapsed().as_secs_f64() * 1e3);
            let right = |id: &String| self.names.get(id).is_some_and(|name| item.gold.contains(name));
            sum.add(&found.iter().map(right).collect::<Vec<bool>>(), item.gold.len());
        }
        times.sort_by(f64::total_cmp);
        let at = |part: f64| times.get(((times.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or(0.0);
        let mean = |sum: f64| (sum / queries.len().max(1) as f64 * 1e4).round() / 1e4;
        let quality = Quality {
            ndcg10: mean(sum.ndcg10),
            recall1: mean(sum.recall1),
            recall5: mean(sum.recall5),
            recall10: mean(sum.recall10),
            mrr: mean(sum.mrr),
            p50_ms: (at(0.5) * 1e3).round() / 1e3,
            p99_ms: (at(0.99) * 1e3).round() / 1e3,
        };
        (quality, with_steps)
    }
}

impl LabelledQuery {
    /// What is asked.
    pub fn text(&self) -> &str {
        &self.query
    }
}

impl Quality {
    /// Adds one query's figures: which of the tools found are right, and how many there are.
    fn add(&mut self, relevant: &[bool], gold: usize) {
        if gold == 0 {
            return;
        }
        let gain = |rank: usize| 1.0 / ((rank + 2) as f64).log2();
        let ideal: f64 = (0..gold.min(DEPTH)).map(gain).sum();
        let reached: f64 = relevant.iter().enumerate().filter(|(_, r)| **r).map(|(rank, _)| gain(rank)).sum();
        let recall = |k: usize| relevant.iter().take(k).filter(|r| **r).count() as f64 / gold as f64;
        self.ndcg10 += reached / ideal;
        self.recall1 += recall(1);
        self.recall5 += recall(5);
        self.recall10 += recall(10);
        self.mrr += relevant.iter().position(|r| *r).map_or(0.0, |rank| 1.0 / (rank + 1) as f64);
    }
}

/// A name that the registry accepts, derived from the name in the dataset.
fn spelled(name: &str) -> Option<String> {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "_.:/-".contains(c) { c } else { '_' };
    let spelled: String = name.chars().map(safe).collect();
    let spelled = spelled.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    ToolName::parse(spelled).ok().map(|_| spelled.to_owned())
}

fn definition(tool: &LabelledTool, name: String) -> Result<ToolDefinition, serde_json::Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_follow_the_ranks_of_the_right_tools() {
        let mut one = Quality::default();
        one.add(&[false, true, false], 1);
        assert!((one.ndcg10 - 1.0 / 3f64.log2()).abs() < 1e-9);
        assert_eq!((one.recall1, one.recall5, one.mrr), (0.0, 1.0, 0.5));
        let mut two = Quality::default();
        two.add(&[true, true], 2);
        assert_eq!((two.ndcg10, two.recall1, two.recall10), (1.0, 0.5, 1.0));
        let mut none = Quality::default();
        none.add(&[], 3);
        none.add(&[true], 0);
        assert_eq!((none.ndcg10, none.mrr), (0.0, 0.0));
    }

    #[test]
    fn names_that_no_tool_can_have_are_ranked_all_the_same() {
        let lines = br#"{"name":"Weather & More.today","description":"The weather of today."}
            {"name":"weather___More.today","description":"Another spelled alike."}
            {"name":"   ","description":"No name."}"#;
        let tools: Vec<LabelledTool> = read_lines(lines, "catalog").unwrap();
        let catalog = LabelledCatalog::new(&tools).unwrap();
        assert_eq!(catalog.registry.snapshot().len(), 3);
        let index = SearchIndex::build(&catalog.registry.snapshot());
        let queries =
            read_lines(br#"{"query":"weather of today","gold":["Weather & More.today"]}"#, "queries").unwrap();
        let (quality, with_steps) = catalog.measure(&index, &queries, true);
        assert_eq!((quality.recall1, with_steps), (1.0, 0));
        assert!(read_lines::<LabelledTool>(b"\n \n", "x").is_err() && read_lines::<LabelledTool>(b"{", "x").is_err());
    }
}
