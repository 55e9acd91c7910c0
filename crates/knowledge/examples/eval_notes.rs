//! Evaluates a corpus in memory, without LanceDB, for tuning: `eval_notes FOLDER [WEIGHT]...`. Users run `toolyard eval
//! notes`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use serde_json::Value;
use std::{collections::HashMap, path::Path, sync::Arc};
use toolyard_knowledge::{
    KnowledgeConfig,
    embed::{Embedder, StaticTable},
    evaluate::{Document, JudgedQuery, evaluate},
    index::memory::MemoryIndex,
};

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap();
    let weights: Vec<f32> = args.map(|w| w.parse().unwrap()).collect();
    let lines = |name: &str| std::fs::read_to_string(Path::new(&folder).join(name)).unwrap();
    let text = |v: &Value, key: &str| v[key].as_str().unwrap_or_default().to_owned();
    let documents: Vec<Document> = lines("corpus.jsonl")
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap())
        .map(|v| Document { id: text(&v, "_id"), title: text(&v, "title"), text: text(&v, "text") })
        .collect();
    let mut grades: HashMap<String, HashMap<String, f64>> = HashMap::new();
    for line in lines("qrels.tsv").lines().skip(1) {
        let parts: Vec<&str> = line.split('\t').collect();
        grades.entry(parts[0].to_owned()).or_default().insert(parts[1].to_owned(), parts[2].parse().unwrap());
    }
    let questions: Vec<JudgedQuery> = lines("queries.jsonl")
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap())
        .map(|v| (text(&v, "_id"), text(&v, "text")))
        .map(|(id, text)| JudgedQuery { text, grades: grades.remove(&id).unwrap_or_default(), id })
        .collect();
    let embedder: Arc<dyn Embedder> = Arc::new(StaticTable::new());
    for weight in weights {
        let index = MemoryIndex::new();
        let config = KnowledgeConfig::default();
        let report = evaluate(&index, &embedder, &config, &documents, &questions, weight).await.unwrap();
        println!("{}", serde_json::to_string(&report).unwrap());
    }
}
