//! Tool Search: the latency of a search, the time to build an index, the bytes that a model is spared, and the quality
//! of the ranking on labelled data sets.

use crate::{
    Setup,
    report::{Good, Report},
    stats::{median, quantile},
    usage::{Whose, cpu_micros},
};
use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use serde_json::{Value, json};
use std::{path::Path, sync::Arc, time::Instant};
use toolyard_catalog::{
    Policy, PolicyConfig, Registry, Snapshot, Subject, ToolEntry, ToolSource,
    search::{SearchIndex, SearchOptions},
    surface::{EffectiveCatalogCache, Mode, Surface, SurfaceSettings, Turn},
};
use toolyard_context::ContextConfig;
use toolyard_toolsearch::{
    StaticMeaning,
    quality::{LabelledCatalog, LabelledQuery, LabelledTool, read_lines},
};

/// Sizes of the searched catalogs.
const SMALL: usize = 2_500;
const LARGE: usize = 20_000;
/// Number of tools of a few plugins together.
const PLUGINS: usize = 300;
/// Searches measured per size and round.
const SEARCHES: usize = 200;

const VERBS: [&str; 20] = [
    "create",
    "delete",
    "list",
    "update",
    "search",
    "convert",
    "send",
    "schedule",
    "translate",
    "calculate",
    "fetch",
    "upload",
    "compare",
    "book",
    "cancel",
    "summarize",
    "validate",
    "export",
    "share",
    "monitor",
];
const THINGS: [&str; 40] = [
    "invoice",
    "calendar event",
    "flight",
    "hotel room",
    "weather forecast",
    "exchange rate",
    "email",
    "contact",
    "customer order",
    "shipment",
    "stock price",
    "news article",
    "recipe",
    "workout plan",
    "song",
    "playlist",
    "movie",
    "photo album",
    "database table",
    "server log",
    "container image",
    "pull request",
    "support ticket",
    "chat channel",
    "tax return",
    "mortgage payment",
    "clinical trial",
    "protein sequence",
    "bus route",
    "parking space",
    "job posting",
    "resume",
    "course lesson",
    "exam result",
    "football match",
    "lottery number",
    "horoscope",
    "translation memory",
    "sensor reading",
    "payment card",
];
const PLACES: [&str; 25] = [
    "in the cloud",
    "for a team",
    "by identifier",
    "within a date range",
    "from a spreadsheet",
    "with attachments",
    "near a location",
    "for the current user",
    "across regions",
    "in batches",
    "as a draft",
    "with a discount code",
    "by keyword",
    "for a given city",
    "on behalf of a client",
    "with pagination",
    "in another language",
    "before a deadline",
    "with approval",
    "from an archive",
    "per department",
    "as a chart",
    "in real time",
    "with encryption",
    "for beginners",
];

/// Deterministic tools, as varied as those of a real catalog: each description has a verb, a thing and a circumstance.
fn generated(count: usize) -> Result<Arc<Snapshot>> {
    let mut registry = Registry::new();
    for number in 0..count {
        let pick = |list: &[&'static str], step: usize| list[(number / step) % list.len()];
        let (verb, thing, place) =
            (pick(&VERBS, 1), pick(&THINGS, VERBS.len()), pick(&PLACES, VERBS.len() * THINGS.len()));
        let name = format!("{verb}_{}_{number}", thing.replace(' ', "_"));
        let description = format!(
            "{verb} a {thing} {place}. Takes the {thing}'s details and returns the result with its identifier and status."
        );
        let definition = serde_json::from_value(json!({
            "name": name, "title": format!("{verb} {thing}"), "description": description, "category": "generated",
            "riskLevel": "read-only", "idempotency": "pure",
            "inputSchema": {"type": "object", "properties": {
                format!("{}_id", thing.replace(' ', "_")): {"type": "string", "description": format!("Which {thing}.")},
                "options": {"type": "object", "description": format!("How to {verb} it {place}.")},
            }},
        }))?;
        registry.add(ToolEntry::new(definition, ToolSource::plugin("generated"))?)?;
    }
    Ok(registry.snapshot())
}

/// Questions as agents ask them, of different lengths.
fn question(number: usize) -> String {
    let thing = THINGS[(number * 7) % THINGS.len()];
    let verb = VERBS[(number * 3) % VERBS.len()];
    let place = PLACES[(number * 11) % PLACES.len()];
    match number % 3 {
        0 => format!("{verb} {thing}"),
        1 => format!("Can you {verb} a {thing} {place} for me?"),
        _ => format!(
            "I have a {thing} that I want to {verb} {place}, please find the right way and tell me the status afterwards"
        ),
    }
}

/// Wall-clock times of searches and the mean CPU time of one, in milliseconds.
fn searched(index: &SearchIndex, rounds: usize) -> Result<(Vec<f64>, f64)> {
    let options = SearchOptions::limit(10);
    index.search(&question(0), &options, |_| true);
    let mut times = Vec::with_capacity(rounds * SEARCHES);
    let before = cpu_micros(Whose::Ours)?;
    for number in 0..rounds * SEARCHES {
        let question = question(number);
        let start = Instant::now();
        std::hint::black_box(index.search(&question, &options, |_| true));
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let cpu = (cpu_micros(Whose::Ours)? - before) / 1e3 / times.len() as f64;
    Ok((times, cpu))
}

/// Searches by words and meaning over catalogs of two sizes.
pub(crate) fn search(setup: &Setup) -> Result<Report> {
    let mut report = Report::new("tools-search", "p50Ms2500", Good::Below, 1.0).also("p50Ms20000", Good::Below, 3.0);
    for (size, count) in [("2500", SMALL), ("20000", LARGE)] {
        let index = SearchIndex::build(&generated(count)?).with_meaning(&StaticMeaning);
        let (times, cpu) = searched(&index, setup.rounds)?;
        report = report
            .figure(&format!("p50Ms{size}"), median(&times))
            .figure(&format!("p99Ms{size}"), quantile(&times, 0.99))
            .figure(&format!("cpuMs{size}"), cpu);
    }
    Ok(report)
}

/// CPU time from registered tools to the first search, including the first use of the embedding.
pub(crate) fn build(setup: &Setup) -> Result<Report> {
    let load = cpu_micros(Whose::Ours)?;
    let embedder = toolyard_text::embedding::StaticEmbedder::shared();
    let load = (cpu_micros(Whose::Ours)? - load) / 1e3;
    let cold = cpu_micros(Whose::Ours)?;
    embedder.embed("the first text that is embedded", None);
    let cold = (cpu_micros(Whose::Ours)? - cold) / 1e3;
    let snapshot = generated(SMALL)?;
    let (mut words, mut meaning) = (Vec::new(), Vec::new());
    for _ in 0..setup.rounds {
        let start = cpu_micros(Whose::Ours)?;
        let index = SearchIndex::build(&snapshot);
        let middle = cpu_micros(Whose::Ours)?;
        std::hint::black_box(index.with_meaning(&StaticMeaning));
        let end = cpu_micros(Whose::Ours)?;
        words.push((middle - start) / 1e3);
        meaning.push((end - middle) / 1e3);
    }
    Ok(Report::new("tools-build", "cpuMs", Good::Below, 100.0)
        .also("embedderLoadMs", Good::Below, 50.0)
        .figure("cpuMs", median(&words) + median(&meaning))
        .figure("wordsMs", median(&words))
        .figure("meaningMs", median(&meaning))
        .figure("embedderLoadMs", load)
        .figure("firstEmbedMs", cold)
        .figure("tools", SMALL as f64))
}

fn labelled_catalog(path: &Path) -> Result<LabelledCatalog> {
    let bytes = std::fs::read(path).with_context(|| format!("{}", path.display()))?;
    let tools: Vec<LabelledTool> = read_lines(&bytes, &path.display().to_string()).map_err(|e| anyhow!(e.message))?;
    LabelledCatalog::new(&tools).map_err(|e| anyhow!(e.message))
}

/// Bytes that a model receives for a catalog, directly and in each mode.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ContextBytes {
    tools: usize,
    direct: usize,
    code: usize,
    tools_mode: usize,
    directory: usize,
}

/// The bytes for these tools, with the control tools of this build.
fn context_bytes(entries: impl IntoIterator<Item = ToolEntry>) -> Result<ContextBytes> {
    let mut registry = Registry::new();
    for entry in entries {
        registry.add(entry)?;
    }
    for definition in toolyard_toolsearch::definitions()? {
        registry.add(ToolEntry::new(definition, ToolSource::core())?)?;
    }
    let policy = Policy::compile(&PolicyConfig::default())?;
    let scopes = ["operator.read".to_owned(), "operator.write".to_owned()];
    let subject = Subject { agent: "main", session: None, door: "mcp", scopes: &scopes };
    let catalog = EffectiveCatalogCache::new(None).of(&registry.snapshot(), &policy.effective(&subject), &scopes);
    let bytes = |mode: Mode| {
        let settings = SurfaceSettings { mode, ..SurfaceSettings::default() };
        Surface::of(&catalog, &settings, &Turn::default()).bytes()
    };
    Ok(ContextBytes {
        tools: catalog.len(),
        direct: bytes(Mode::Direct),
        code: bytes(Mode::Code),
        tools_mode: bytes(Mode::Tools),
        directory: bytes(Mode::Directory),
    })
}

/// The tools of a snapshot, as tools of a plugin.
fn as_plugin(snapshot: &Arc<Snapshot>) -> Result<Vec<ToolEntry>> {
    let entry = |entry: &Arc<ToolEntry>| {
        Ok(ToolEntry::new(entry.definition().as_ref().clone(), ToolSource::plugin("generated"))?)
    };
    snapshot.iter().map(entry).collect()
}

/// The built-in tools of Toolyard.
fn shipped() -> Result<Vec<ToolEntry>> {
    let core = [toolyard_vault::definitions()?, toolyard_knowledge::definitions()?];
    let core = core.into_iter().flatten().map(|definition| ToolEntry::new(definition, ToolSource::core()));
    let context = toolyard_context::definitions(&ContextConfig::default())?;
    let context = context.into_iter().map(|definition| ToolEntry::new(definition, ToolSource::plugin("openviking")));
    Ok(core.chain(context).collect::<Result<_, _>>()?)
}

/// Bytes that a model receives in each mode: for the built-in tools, for 300 plugin tools and for 2,500.
pub(crate) fn context(setup: &Setup) -> Result<Report> {
    let mut report = Report::new("tools-context", "ratio", Good::AtMost, 0.01);
    let large = context_bytes(as_plugin(&generated(SMALL)?)?)?;
    let (mut compact, mut direct) = (large.code, large.direct);
    for (name, bytes) in [
        ("shipped", context_bytes(shipped()?)?),
        ("plugins300", context_bytes(as_plugin(&generated(PLUGINS)?)?)?),
        ("plugins2500", large),
    ] {
        report = report.value(name, serde_json::to_value(bytes)?);
    }
    if let Some(path) = &setup.catalog {
        let bytes = context_bytes(as_plugin(&labelled_catalog(path)?.registry.snapshot())?)?;
        (compact, direct) = (bytes.code, bytes.direct);
        report = report.value("catalog", serde_json::to_value(bytes)?);
    }
    Ok(report
        .figure("ratio", compact as f64 / direct as f64)
        .figure("codeBytes", compact as f64)
        .figure("directBytes", direct as f64))
}

/// nDCG and recall on labelled data sets, by words alone and with meaning. Meaning must not make any of them worse.
pub(crate) fn quality(setup: &Setup) -> Result<Report> {
    let mut report = Report::new("tools-quality", "leastGain", Good::AtLeast, 0.0);
    if setup.sets.is_empty() {
        return Ok(report.skipped("name folders with catalog.jsonl and queries.jsonl with --sets".to_owned()));
    }
    let mut least = f64::INFINITY;
    for folder in &setup.sets {
        let catalog = labelled_catalog(&folder.join("catalog.jsonl"))?;
        let path = folder.join("queries.jsonl");
        let bytes = std::fs::read(&path).with_context(|| format!("{}", path.display()))?;
        let queries: Vec<LabelledQuery> =
            read_lines(&bytes, &path.display().to_string()).map_err(|e| anyhow!(e.message))?;
        let words = SearchIndex::build(&catalog.registry.snapshot());
        let (before, _) = catalog.measure(&words, &queries, false);
        let (after, _) = catalog.measure(&words.with_meaning(&StaticMeaning), &queries, false);
        least = least.min(after.ndcg10 - before.ndcg10);
        let name = folder.file_name().map_or_else(|| "set".to_owned(), |name| name.to_string_lossy().into_owned());
        let mut value = serde_json::to_value(after)?;
        value["ndcg10Words"] = Value::from(before.ndcg10);
        report = report.value(&name, value);
    }
    Ok(report.figure("leastGain", least))
}
