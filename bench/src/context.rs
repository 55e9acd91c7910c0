//! The context store: importing 500 Markdown files, searching them, and querying 100,000 recall traces.

use crate::{
    Setup,
    random::Random,
    report::{Good, Report},
    stats::{median, quantile},
    usage::{Whose, cpu_micros},
};
use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use std::{path::Path, time::Instant};
use toolyard_context::{
    ContextConfig, ContextStore,
    find::{
        query_config::ResourceType,
        search::{self, Find},
        trace::{Hit, Search, Selected, Speaker, Stats, Trace, TraceQuery, Traces, Trigger},
    },
    store::resources::NewResource,
};

/// The number and total size of the imported files.
const FILES: usize = 500;
const TOTAL_BYTES: usize = 3_300_000;
/// Number of words of a snippet that should find its own file.
const SNIPPET_WORDS: usize = 14;
const TRACES: usize = 100_000;

fn below(random: &mut Random, n: usize) -> usize {
    random.below(n as u64) as usize
}

/// Paragraphs for the files: those of a labelled corpus (`--data`), or generated ones with common and rare words.
fn paragraphs(setup: &Setup, random: &mut Random) -> Result<Vec<String>> {
    if let Some(folder) = &setup.data {
        let text = std::fs::read_to_string(folder.join("corpus.jsonl"))?;
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        return Ok(lines.filter_map(|line| line["text"].as_str().map(str::to_owned)).collect());
    }
    const SYLLABLES: [&str; 24] = [
        "ba", "cor", "del", "fin", "gra", "hol", "in", "jen", "kal", "lor", "mis", "nor", "or", "pal", "qui", "ras",
        "sol", "tem", "un", "ver", "wil", "xan", "yor", "zet",
    ];
    let words: Vec<String> = (0..8000)
        .map(|_| (0..2 + below(random, 3)).map(|_| SYLLABLES[below(random, SYLLABLES.len())]).collect())
        .collect();
    Ok((0..4000)
        .map(|_| {
            let count = 60 + below(random, 120);
            let text: Vec<&str> = (0..count)
                .map(|_| {
                    // The minimum of three draws: a few words are frequent, most are rare.
                    let at = below(random, words.len()).min(below(random, words.len())).min(below(random, words.len()));
                    words[at].as_str()
                })
                .collect();
            format!("{}.", text.join(" "))
        })
        .collect())
}

/// Writes the files; returns the name and a snippet of each.
fn corpus(setup: &Setup, folder: &Path) -> Result<Vec<(String, String)>> {
    let mut random = Random(7);
    let paragraphs = paragraphs(setup, &mut random)?;
    let mut snippets = Vec::new();
    let mut at = 0;
    for n in 0..FILES {
        let mut text = format!("# Document {n}\n\n");
        let mut own = Vec::new();
        while text.len() < TOTAL_BYTES / FILES {
            let paragraph = paragraphs.get(at % paragraphs.len()).ok_or_else(|| anyhow!("the corpus is empty"))?;
            at += 1;
            if own.len() % 3 == 0 {
                text.push_str(&format!("## Part {}\n\n", own.len() / 3 + 1));
            }
            text.push_str(paragraph);
            text.push_str("\n\n");
            own.push(paragraph);
        }
        let words: Vec<&str> = own[below(&mut random, own.len())].split_whitespace().collect();
        let start = below(&mut random, words.len().saturating_sub(SNIPPET_WORDS));
        let snippet = words[start..(start + SNIPPET_WORDS).min(words.len())].join(" ");
        let name = format!("document_{n:03}");
        std::fs::write(folder.join(format!("{name}.md")), text)?;
        snippets.push((name, snippet));
    }
    Ok(snippets)
}

pub(crate) fn import(setup: &Setup) -> Result<Report> {
    let dir = tempfile::tempdir_in(&setup.dir)?;
    let source = dir.path().join("source");
    std::fs::create_dir(&source)?;
    let snippets = corpus(setup, &source)?;
    let failed = |error: toolyard_context::error::ApiError| anyhow!(error.message);
    let store = ContextStore::open(dir.path().join("context"), ContextConfig::default()).map_err(failed)?;
    let who = store.identity(None);
    let account = store.account(&who).map_err(failed)?;
    // The index is built before the import, as in a server that has served a query.
    let ask = |query: &str, limit: usize| {
        let asked =
            Find { query: query.to_owned(), targets: vec!["viking://resources".to_owned()], limit, ..Find::default() };
        search::find(&account, &who, &asked).map_err(failed)
    };
    ask("anything", 1)?;
    let (cpu, began) = (cpu_micros(Whose::Ours)?, Instant::now());
    let new = NewResource {
        path: Some(source.display().to_string()),
        to: Some("viking://resources/corpus".to_owned()),
        describe: true,
        host_paths: true,
        ..NewResource::default()
    };
    let imported = store.import(&account, &who, &new).map_err(failed)?;
    // The descriptions of the parent folders are built by the first query.
    ask("anything", 1)?;
    let (cpu, wall) = ((cpu_micros(Whose::Ours)? - cpu) / 1e6, began.elapsed().as_secs_f64());
    let mut times = Vec::new();
    let mut hits = 0usize;
    for (name, snippet) in &snippets {
        let began = Instant::now();
        let found = ask(snippet, 10)?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        let first = found.first().map(|hit| hit.uri.as_str()).unwrap_or_default();
        hits += usize::from(first.contains(&format!("/{name}/")));
    }
    Ok(Report::new("ctx-import", "cpu_s", Good::Below, 4.0)
        .also("find_p50_ms", Good::Below, 8.0)
        .also("hit1", Good::AtLeast, 0.90)
        .figure("cpu_s", cpu)
        .figure("wall_s", wall)
        .figure("find_p50_ms", median(&times))
        .figure("find_p99_ms", quantile(&times, 0.99))
        .figure("hit1", hits as f64 / snippets.len() as f64)
        .value("contexts", (imported.files + 2 * imported.folders).into())
        .value("files", FILES.into()))
}

pub(crate) fn traces(setup: &Setup) -> Result<Report> {
    let dir = tempfile::tempdir_in(&setup.dir)?;
    let config = ContextConfig { trace_recall_dir: Some(dir.path().to_owned()), ..ContextConfig::default() };
    let now = jiff::Timestamp::now().as_millisecond();
    let kept = Traces::open(&config, dir.path());
    let uri = "viking://resources/a/b.md";
    let hit = Hit {
        uri: uri.to_owned(),
        resource_type: ResourceType::Resource,
        category: None,
        score: Some(0.7),
        parts: None,
        level: Some(2),
        abstract_preview: String::new(),
        result_type: "resource".to_owned(),
    };
    let selected: Selected = serde_json::from_value(json!({
        "uri": uri, "resourceType": "resource", "score": 0.7, "displayed": true,
    }))?;
    let search = Search { duration_ms: 3, total: 1, results: vec![hit], ..Search::new(ResourceType::Resource, 10) };
    let trace = |n: usize| Trace {
        schema_version: "1.0".to_owned(),
        trace_id: format!("ov_search-{n}"),
        ts: now - (TRACES - n) as i64,
        speaker: Speaker { session_key: Some(format!("agent:main:s{}", n % 500)), ..Speaker::default() },
        source: if n.is_multiple_of(3) { "memory_recall" } else { "ov_search" }.to_owned(),
        operation_type: "semantic_find".to_owned(),
        resource_types: vec![ResourceType::Resource, ResourceType::Agent],
        trigger: Trigger {
            query: format!("question number {n} about something that was said before"),
            ..Trigger::default()
        },
        searches: vec![search.clone()],
        selected: vec![selected.clone()],
        stats: Stats { candidate_count: 1, selected_count: 1, ..Stats::default() },
    };
    for n in 0..TRACES {
        kept.record("default/default", trace(n));
    }
    let mut random = Random(3);
    let wanted = |n: usize, random: &mut Random| {
        let number = below(random, TRACES);
        match n % 4 {
            0 => TraceQuery { trace_id: Some(format!("ov_search-{number}")), limit: 1, ..TraceQuery::default() },
            1 => TraceQuery {
                session_key: Some(format!("agent:main:s{}", number % 500)),
                limit: 20,
                ..TraceQuery::default()
            },
            2 => TraceQuery {
                source: Some("memory_recall".to_owned()),
                since: Some(now - number as i64),
                limit: 20,
                ..TraceQuery::default()
            },
            _ => TraceQuery { trace_id: Some("none".to_owned()), limit: 1, ..TraceQuery::default() },
        }
    };
    // The first query of the files builds the cache of line keys, so it is not measured.
    kept.query(&TraceQuery { trace_id: Some("none".to_owned()), limit: 1, ..TraceQuery::default() });
    let mut times = Vec::new();
    let mut found = 0usize;
    for n in 0..1000 {
        let wanted = wanted(n, &mut random);
        let began = Instant::now();
        found += kept.query(&wanted).entries.len();
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Report::new("ctx-trace", "p50_ms", Good::Below, 5.0)
        .figure("p50_ms", median(&times))
        .figure("p99_ms", quantile(&times, 0.99))
        .value("traces", TRACES.into())
        .value("found", found.into()))
}
