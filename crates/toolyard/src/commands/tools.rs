//! `toolyard tools`: lists, describes and searches tools.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{Global, SearchMode, ToolsCommand},
    output::{self, Paint},
    tool_methods::{SavingsParams, SearchParams, ToolsSavings, ToolsSearch},
    wiring::RequiredParts,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::process::ExitCode;
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{
    Object,
    local::{
        ToolDescription, ToolList, ToolNameParams, ToolRow, ToolsCall, ToolsCallParams, ToolsDescribe, ToolsList,
        ToolsListParams,
    },
    policy::{ExplainParams, PolicyExplain},
};
use toolyard_toolsearch::{Savings, SavingsHistory};

/// Characters of a description in a list of hits.
const SHOWN_DESCRIPTION: usize = 100;

pub(super) async fn run(global: &Global, command: ToolsCommand) -> Outcome {
    if let ToolsCommand::Search { query, mode: None, limit, explain: true } = &command
        && let [query] = query.as_slice()
        && !global.json
    {
        return explained(global, query, *limit).await;
    }
    if let ToolsCommand::Search { query, mode, limit, explain } = &command {
        return search(global, query, *mode, *limit, *explain).await;
    }
    // What was saved is kept in the store.
    let needs =
        if matches!(command, ToolsCommand::Savings { .. }) { RequiredParts::Store } else { RequiredParts::Catalog };
    let mut backend = Backend::open(global, needs).await?;
    let outcome = show(global, &mut backend, command).await;
    backend.close().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn show(global: &Global, backend: &mut Backend, command: ToolsCommand) -> Result<(), Failure> {
    match command {
        ToolsCommand::List { category, schemas } => {
            let answer = backend.call::<ToolsList>(&ToolsListParams { category, schemas }, None).await?;
            if global.json { output::json(&answer) } else { list(&answer) }
        }
        ToolsCommand::Describe { name } => {
            let answer = backend.call::<ToolsDescribe>(&ToolNameParams { name }, None).await?;
            if global.json { output::json(&answer) } else { describe(&answer) }
        }
        ToolsCommand::Policy { name, args, agent, door } => {
            let args = args.as_deref().map(super::input::json_object).transpose()?;
            let params = ExplainParams { tool: name, args, agent, door, session: None };
            let answer = backend.call::<PolicyExplain>(&params, None).await?;
            if global.json {
                output::json(&answer);
            } else {
                let (reason, rule) = (answer.reason.as_deref().unwrap_or_default(), answer.rule.as_deref());
                let rule = rule.map(|rule| format!(" ({rule})")).unwrap_or_default();
                output::data(&format!("{} {}: {reason}{rule}", answer.decision, answer.tool));
            }
        }
        ToolsCommand::Savings { days } => {
            let answer = backend.call::<ToolsSavings>(&SavingsParams { days: Some(days) }, None).await?;
            if global.json { output::json(&answer) } else { savings(&answer) }
        }
        ToolsCommand::Search { .. } => {}
    }
    Ok(())
}

/// One query, with the parts of each score and what the policy decides about each tool.
async fn explained(global: &Global, query: &str, limit: Option<u32>) -> Outcome {
    let limit = limit.map(|limit| limit as usize);
    let params = SearchParams { query: query.to_owned(), limit, ..SearchParams::default() };
    let mut backend = Backend::open(global, RequiredParts::Catalog).await?;
    let answer = backend.call::<ToolsSearch>(&params, None).await;
    backend.close().await;
    let found = answer?;
    if found.hits.is_empty() {
        output::note("no tool fits; try other words, one short query per step");
    }
    for hit in &found.hits {
        let exact = if hit.exact { "  (named in the query)" } else { "" };
        output::data(&format!("{}. {}  {:.3}{exact}", hit.rank, hit.id, hit.score));
        for word in &hit.words {
            let from = word.from.as_ref().map(|from| format!(" (for {from:?})")).unwrap_or_default();
            output::data(&format!("     {:<22} {:<24} {:+.3}{from}", word.term, word.field, word.score));
        }
        for part in hit.parts.iter().filter(|part| part.name != "words") {
            output::data(&format!("     {:<47} {:+.3}", part.name, part.value));
        }
        let why = hit.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let rule = hit.rule.as_deref().map(|rule| format!(" ({rule})")).unwrap_or_default();
        output::data(&format!("     policy: {}{why}{rule}", hit.decision));
    }
    Ok(ExitCode::SUCCESS)
}

fn savings(answer: &SavingsHistory) {
    if answer.days.is_empty() {
        return output::note("no tools were listed for a model in this time");
    }
    let row = |date: &str, door: &str, savings: &Savings| {
        vec![
            date.to_owned(),
            door.to_owned(),
            format!("{} lists", savings.lists),
            format!("{} of {} bytes shown", savings.shown_bytes, savings.direct_bytes),
            format!("about {} tokens saved", savings.saved_tokens),
        ]
    };
    let mut rows = Vec::new();
    for day in &answer.days {
        rows.extend(day.doors.iter().map(|door| row(&day.date, &door.door, &door.savings)));
    }
    rows.push(row("total", "", &answer.total));
    output::data(&output::table(&rows));
}

/// One of several queries.
#[derive(Serialize)]
struct Query<'a> {
    query: &'a str,
    limit: Option<u32>,
}

/// The same tool that models search with, so that people see what models see.
async fn search(
    global: &Global,
    queries: &[String],
    mode: Option<SearchMode>,
    limit: Option<u32>,
    explain: bool,
) -> Outcome {
    let mut args = Object::new();
    match queries {
        [query] => {
            args.insert("query".to_owned(), query.as_str().into());
            args.extend(limit.map(|limit| ("limit".to_owned(), limit.into())));
        }
        several => {
            let queries: Vec<Query<'_>> = several.iter().map(|query| Query { query, limit }).collect();
            let queries = serde_json::to_value(queries)
                .map_err(|e| Failure::new(ErrorCode::InternalError, format!("the queries cannot be written: {e}")))?;
            args.insert("queries".to_owned(), queries);
        }
    }
    args.insert("explain".to_owned(), explain.into());
    let word = mode.map(|mode| match mode {
        SearchMode::Code => "code",
        SearchMode::Tools => "tools",
        SearchMode::Directory => "directory",
    });
    args.extend(word.map(|word| ("mode".to_owned(), word.into())));
    let params = ToolsCallParams { name: "tool_search".to_owned(), args, ..ToolsCallParams::default() };
    let mut backend = Backend::open(global, RequiredParts::Catalog).await?;
    let answer = backend.call::<ToolsCall>(&params, None).await;
    backend.close().await;
    let result = answer?.result;
    if let Some(failure) = result.error.clone() {
        return Err(failure);
    }
    let data = result.into_parts().data.unwrap_or_default();
    if global.json {
        output::json(&data);
        return Ok(ExitCode::SUCCESS);
    }
    let found = SearchHits::deserialize(Value::Object(data))
        .map_err(|e| Failure::new(ErrorCode::InternalError, format!("the answer cannot be read: {e}")))?;
    match &found.results {
        Some(results) => {
            let paint = Paint::stdout();
            for result in results {
                output::data(&paint.bold(&result.query));
                hits(&result.candidates, explain);
            }
        }
        None => hits(&found.tools, explain),
    }
    if let Some(shown) = &found.surface {
        surface(shown);
    }
    Ok(ExitCode::SUCCESS)
}

/// What the search tool answers, as far as people are shown it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SearchHits {
    results: Option<Vec<QueryHits>>,
    #[serde(default)]
    tools: Vec<Hit>,
    surface: Option<SurfaceView>,
}

#[derive(Deserialize)]
struct QueryHits {
    query: String,
    #[serde(default)]
    candidates: Vec<Hit>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Hit {
    id: String,
    description: String,
    exact: bool,
    score: f64,
    explain: Reasons,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reasons {
    words: Vec<WordReason>,
    coverage: f64,
    neighbours: f64,
    similarity: f64,
}

#[derive(Deserialize)]
struct WordReason {
    term: String,
    field: String,
    score: f64,
    from: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SurfaceView {
    tools: Vec<String>,
    mode: String,
    bytes: u64,
    catalog_size: u64,
    direct_bytes: u64,
    notice: Option<String>,
    directory: Option<String>,
}

fn hits(found: &[Hit], explain: bool) {
    if found.is_empty() {
        output::note("no tool fits; try other words, one short query per step");
    }
    if !explain {
        let row = |hit: &Hit| vec![hit.id.clone(), hit.description.chars().take(SHOWN_DESCRIPTION).collect()];
        output::data(&output::table(&found.iter().map(row).collect::<Vec<_>>()));
        return;
    }
    for (rank, hit) in found.iter().enumerate() {
        let exact = if hit.exact { "  (named in the query)" } else { "" };
        output::data(&format!("{}. {}  {:.3}{exact}", rank + 1, hit.id, hit.score));
        for word in &hit.explain.words {
            let from = word.from.as_ref().map(|from| format!(" (for {from:?})")).unwrap_or_default();
            output::data(&format!("     {:<22} {:<24} {:+.3}{from}", word.term, word.field, word.score));
        }
        for (label, value) in [
            ("name covered", hit.explain.coverage),
            ("words side by side", hit.explain.neighbours),
            ("meaning", hit.explain.similarity),
        ] {
            if value != 0.0 {
                output::data(&format!("     {label:<47} {value:+.3}"));
            }
        }
    }
}

fn surface(shown: &SurfaceView) {
    output::data(&format!(
        "\na model in {} mode is shown {} tools and {} bytes, instead of {} tools and {} bytes: {}",
        shown.mode,
        shown.tools.len(),
        shown.bytes,
        shown.catalog_size,
        shown.direct_bytes,
        shown.tools.join(", ")
    ));
    if let Some(notice) = &shown.notice {
        output::note(notice);
    }
    if let Some(directory) = &shown.directory {
        output::data(&format!("\n{directory}"));
    }
}

fn list(answer: &ToolList) {
    let row = |tool: &ToolRow| {
        let first = tool.description.split(['\n', '.']).next().unwrap_or_default().to_owned();
        let asks = if tool.needs_approval { "asks" } else { "" };
        vec![tool.name.clone(), output::word(&tool.risk_level), asks.to_owned(), first]
    };
    output::data(&output::table(&answer.tools.iter().map(row).collect::<Vec<_>>()));
}

fn describe(tool: &ToolDescription) {
    let paint = Paint::stdout();
    let definition = &tool.definition;
    output::data(&format!("{}  {}", paint.bold(definition.name.as_str()), definition.title));
    output::data(&format!("{}\n", definition.description));
    for (label, value) in [
        ("id", tool.id.clone()),
        ("risk", output::word(&definition.risk_level)),
        ("idempotency", output::word(&definition.idempotency)),
        ("needs", definition.required_permissions.join(", ")),
        ("policy", tool.policy.decision.clone()),
    ] {
        if !value.is_empty() {
            output::data(&format!("{label:12} {value}"));
        }
    }
    let schemas = [("input", Some(&definition.input_schema)), ("output", definition.output_schema.as_ref())];
    for (label, schema) in schemas.into_iter().filter_map(|(label, schema)| Some((label, schema?))) {
        output::data(&format!("\n{}\n{:#}", paint.bold(label), schema.value()));
    }
}
