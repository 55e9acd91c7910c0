//! Measures Tool Search on a labelled set: `eval_search CATALOG.jsonl QUERIES.jsonl [key=value ...]`.
//!
//! Each line of the catalog is `{"name","description","parameters",..}`, each line of the queries `{"query","gold":[..]}`.
//! Prints one JSON object: ndcg10, recall1, recall5, recall10, mrr, and times in milliseconds. `key=value` changes a
//! weight (for experiments); `copies=N` adds N renamed copies of the catalog, to see how time grows.

#![allow(clippy::print_stdout, clippy::expect_used, clippy::unwrap_used, clippy::panic)]

use serde_json::{Map, Value, json};
use std::{collections::HashMap, fs, time::Instant};
use toolyard_catalog::{
    Registry, ToolEntry, ToolSource,
    search::{Meaning, MeaningModel, SearchIndex, SearchOptions, Weights},
};
use toolyard_embed::{Quantised, StaticEmbedder, VectorTable};
use toolyard_protocol::{ToolDefinition, ToolName};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let catalog = arguments.next().expect("usage: eval_search CATALOG.jsonl QUERIES.jsonl [key=value ...]");
    let queries = arguments.next().expect("usage: eval_search CATALOG.jsonl QUERIES.jsonl [key=value ...]");
    let mut weights = Weights::default();
    let mut copies = 0;
    for argument in arguments {
        let (key, value) = argument.split_once('=').expect("key=value");
        let number: f32 = value.parse().expect("a number");
        match key {
            "name" => weights.fields[0] = number,
            "description" => weights.fields[1] = number,
            "parameters" => weights.fields[2] = number,
            "parameterDescriptions" => weights.fields[3] = number,
            "length0" => weights.length[0] = number,
            "length1" => weights.length[1] = number,
            "length2" => weights.length[2] = number,
            "length3" => weights.length[3] = number,
            "saturation" => weights.saturation = number,
            "thesaurus" => weights.thesaurus = number,
            "fuzzy" => weights.fuzzy = number,
            "coverage" => weights.coverage = number,
            "neighbours" => weights.neighbours = number,
            "meaning" => weights.meaning = number,
            "copies" => copies = number as usize,
            other => panic!("no weight {other}"),
        }
    }
    let lines = |path: &str| -> Vec<Value> {
        let text = fs::read_to_string(path).expect("the file");
        text.lines().filter(|line| !line.trim().is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let tools = lines(&catalog);
    let mut registry = Registry::new();
    let mut names: HashMap<String, String> = HashMap::new();
    for copy in 0..=copies {
        for (number, tool) in tools.iter().enumerate() {
            let entry = ToolEntry::new(definition(tool, number, copy), ToolSource::core()).unwrap();
            // A copy is never the answer: with copies, only the times mean anything.
            let name = if copy == 0 { tool["name"].as_str().unwrap() } else { "" };
            names.insert(entry.id().to_owned(), name.to_owned());
            registry.add(entry).unwrap();
        }
    }
    let start = Instant::now();
    let snapshot = registry.snapshot();
    let snapshot_ms = start.elapsed().as_secs_f64() * 1e3;
    let start = Instant::now();
    let mut index = SearchIndex::build_with(&snapshot, weights);
    if weights.meaning > 0.0 {
        index = index.with_meaning(&Static);
    }
    let build_ms = start.elapsed().as_secs_f64() * 1e3;

    let queries = lines(&queries);
    let mut times = Vec::new();
    let mut sums = [0.0f64; 5];
    for item in &queries {
        let query = item["query"].as_str().unwrap();
        let gold: Vec<&str> = item["gold"].as_array().unwrap().iter().map(|g| g.as_str().unwrap()).collect();
        let start = Instant::now();
        let hits = index.search(query, &SearchOptions::limit(10), |_| true);
        times.push(start.elapsed().as_secs_f64() * 1e3);
        let relevant: Vec<bool> = hits.iter().map(|hit| gold.contains(&names[hit.entry.id()].as_str())).collect();
        let gain = |rank: usize| 1.0 / ((rank + 2) as f64).log2();
        let ideal: f64 = (0..gold.len().min(10)).map(gain).sum();
        let reached: f64 = relevant.iter().enumerate().filter(|(_, r)| **r).map(|(rank, _)| gain(rank)).sum();
        let recall = |k: usize| relevant.iter().take(k).filter(|r| **r).count() as f64 / gold.len() as f64;
        let reciprocal = relevant.iter().position(|r| *r).map_or(0.0, |rank| 1.0 / (rank + 1) as f64);
        for (sum, value) in sums.iter_mut().zip([reached / ideal, recall(1), recall(5), recall(10), reciprocal]) {
            *sum += value;
        }
    }
    times.sort_by(f64::total_cmp);
    let mean = |i: usize| (sums[i] / queries.len() as f64 * 1e4).round() / 1e4;
    let at = |part: f64| (times[((times.len() - 1) as f64 * part) as usize] * 1e3).round() / 1e3;
    let report = json!({
        "tools": snapshot.len(), "queries": queries.len(), "ndcg10": mean(0), "recall1": mean(1), "recall5": mean(2),
        "recall10": mean(3), "mrr": mean(4), "p50_ms": at(0.5), "p99_ms": at(0.99), "snapshot_ms": snapshot_ms,
        "build_ms": build_ms, "vocabulary": index.vocabulary(),
    });
    println!("{report}");
}

/// The embedding that is part of the program, as Tool Search uses it.
struct Static;

impl MeaningModel for Static {
    fn read(&self, texts: &[String]) -> Option<Box<dyn Meaning>> {
        let mut table = VectorTable::with_capacity(texts.len());
        texts.iter().for_each(|text| table.push(StaticEmbedder::shared().embed(text, None).as_ref()));
        Some(Box::new(Read(table)))
    }
}

struct Read(VectorTable);

impl Meaning for Read {
    fn similarities(&self, query: &str) -> Option<Vec<f32>> {
        let query = StaticEmbedder::shared().embed(query, None)?;
        let mut all = Vec::with_capacity(self.0.len());
        self.0.scan(&Quantised::new(&query), |_, likeness| all.push(likeness));
        Some(all)
    }
}

/// A definition the registry accepts, with a name made of what the set's name is made of.
fn definition(tool: &Value, number: usize, copy: usize) -> ToolDefinition {
    let original = tool["name"].as_str().unwrap();
    let spelled: String =
        original.chars().map(|c| if c.is_ascii_alphanumeric() || "_.:/-".contains(c) { c } else { '_' }).collect();
    let spelled = spelled.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let name =
        if copy == 0 && ToolName::parse(spelled).is_ok() { spelled.to_owned() } else { format!("t{number}x{copy}") };
    let mut schema: Map<String, Value> = tool["parameters"].as_object().cloned().unwrap_or_default();
    schema.insert("type".to_owned(), "object".into());
    let description = tool["description"].as_str().map(str::trim).filter(|text| !text.is_empty());
    serde_json::from_value(json!({
        "name": name, "title": original.trim(), "description": description.unwrap_or("-"),
        "category": tool["category"].as_str().unwrap_or("util"), "riskLevel": "read-only", "idempotency": "pure", "inputSchema": schema,
    }))
    .unwrap()
}
