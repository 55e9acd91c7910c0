//! `toolyard tools`: what there is.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{Global, SearchMode, ToolsCommand},
    output::{self, Paint},
    wiring::Needs,
};
use serde_json::{Map, Value, json};
use std::process::ExitCode;
use toolyard_protocol::{ErrorCode, Failure, ToolResult};

pub(super) async fn run(global: &Global, command: ToolsCommand) -> Outcome {
    if let ToolsCommand::Search { query, mode, limit, explain } = &command {
        return search(global, query, *mode, *limit, *explain).await;
    }
    let mut backend = Backend::open(global, Needs::Catalog).await?;
    let (method, params) = match &command {
        ToolsCommand::List { category, schemas } => ("tools.list", json!({"category": category, "schemas": schemas})),
        ToolsCommand::Describe { name } => ("tools.describe", json!({"name": name})),
        ToolsCommand::Search { .. } => return Ok(ExitCode::SUCCESS),
    };
    let answer = backend.call(method, params, None).await;
    backend.close().await;
    let answer = answer?;
    match command {
        _ if global.json => output::json(&answer),
        ToolsCommand::List { .. } => list(&answer),
        ToolsCommand::Describe { .. } => describe(&answer),
        ToolsCommand::Search { .. } => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// The same tool that models search with, so that people see what models see.
async fn search(
    global: &Global,
    queries: &[String],
    mode: Option<SearchMode>,
    limit: Option<u32>,
    explain: bool,
) -> Outcome {
    let mut args = Map::new();
    match queries {
        [query] => {
            args.insert("query".to_owned(), query.as_str().into());
            args.extend(limit.map(|limit| ("limit".to_owned(), limit.into())));
        }
        several => {
            let entries = several.iter().map(|query| json!({"query": query, "limit": limit})).collect();
            args.insert("queries".to_owned(), Value::Array(entries));
        }
    }
    args.insert("explain".to_owned(), explain.into());
    let word = mode.map(|mode| match mode {
        SearchMode::Code => "code",
        SearchMode::Tools => "tools",
        SearchMode::Directory => "directory",
    });
    args.extend(word.map(|word| ("mode".to_owned(), word.into())));
    let mut backend = Backend::open(global, Needs::Catalog).await?;
    let answer = backend.call("tools.call", json!({"name": "tool_search", "args": args}), None).await;
    backend.close().await;
    let mut answer = answer?;
    let result: ToolResult = serde_json::from_value(answer["result"].take())
        .map_err(|e| Failure::new(ErrorCode::InternalError, format!("the answer cannot be read: {e}")))?;
    if let Some(failure) = result.error.clone() {
        return Err(failure);
    }
    let data = Value::Object(result.data.clone().unwrap_or_default());
    if global.json {
        output::json(&data);
    } else {
        match data["results"].as_array() {
            Some(results) => {
                let paint = Paint::stdout();
                for result in results {
                    output::data(&paint.bold(result["query"].as_str().unwrap_or_default()));
                    hits(&result["candidates"], explain);
                }
            }
            None => hits(&data["tools"], explain),
        }
        surface(&data["surface"]);
    }
    Ok(ExitCode::SUCCESS)
}

fn hits(found: &Value, explain: bool) {
    let text = |hit: &Value, key: &str| hit[key].as_str().unwrap_or_default().to_owned();
    let found: Vec<&Value> = found.as_array().into_iter().flatten().collect();
    if found.is_empty() {
        output::note("no tool fits; try other words, one short query per step");
    }
    if !explain {
        let rows: Vec<Vec<String>> = found
            .iter()
            .map(|hit| vec![text(hit, "id"), text(hit, "description").chars().take(100).collect()])
            .collect();
        output::data(&output::table(&rows));
        return;
    }
    for (rank, hit) in found.iter().enumerate() {
        let exact = if hit["exact"] == true { "  (named in the query)" } else { "" };
        output::data(&format!("{}. {}  {:.3}{exact}", rank + 1, text(hit, "id"), hit["score"].as_f64().unwrap_or(0.0)));
        let reasons = &hit["explain"];
        for word in reasons["words"].as_array().into_iter().flatten() {
            let from = word["from"].as_str().map(|from| format!(" (for {from:?})")).unwrap_or_default();
            output::data(&format!(
                "     {:<22} {:<24} {:+.3}{from}",
                text(word, "term"),
                text(word, "field"),
                word["score"].as_f64().unwrap_or(0.0)
            ));
        }
        for (label, key) in
            [("name covered", "coverage"), ("words side by side", "neighbours"), ("meaning", "similarity")]
        {
            if let Some(value) = reasons[key].as_f64().filter(|value| *value != 0.0) {
                output::data(&format!("     {label:<47} {value:+.3}"));
            }
        }
    }
}

fn surface(surface: &Value) {
    if !surface.is_object() {
        return;
    }
    let names: Vec<&str> = surface["tools"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    output::data(&format!(
        "\na model in {} mode is shown {} tools and {} bytes, instead of {} tools and {} bytes: {}",
        surface["mode"].as_str().unwrap_or_default(),
        names.len(),
        surface["bytes"],
        surface["catalogSize"],
        surface["directBytes"],
        names.join(", ")
    ));
    if let Some(notice) = surface["notice"].as_str() {
        output::note(notice);
    }
    if let Some(directory) = surface["directory"].as_str() {
        output::data(&format!("\n{directory}"));
    }
}

fn list(answer: &Value) {
    let text = |tool: &Value, key: &str| tool[key].as_str().unwrap_or_default().to_owned();
    let rows: Vec<Vec<String>> = answer["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|tool| {
            let first = text(tool, "description").split(['\n', '.']).next().unwrap_or_default().to_owned();
            let asks = if tool["needsApproval"] == true { "asks" } else { "" };
            vec![text(tool, "name"), text(tool, "riskLevel"), asks.to_owned(), first]
        })
        .collect();
    output::data(&output::table(&rows));
}

fn describe(tool: &Value) {
    let paint = Paint::stdout();
    let text = |key: &str| tool[key].as_str().unwrap_or_default();
    output::data(&format!("{}  {}", paint.bold(text("name")), text("title")));
    output::data(&format!("{}\n", text("description")));
    for (label, value) in [
        ("id", text("id").to_owned()),
        ("risk", text("riskLevel").to_owned()),
        ("idempotency", text("idempotency").to_owned()),
        (
            "needs",
            tool["requiredPermissions"]
                .as_array()
                .map(|p| p.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "))
                .unwrap_or_default(),
        ),
        ("policy", text("policy").to_owned() + tool["policy"]["decision"].as_str().unwrap_or_default()),
    ] {
        if !value.is_empty() {
            output::data(&format!("{label:12} {value}"));
        }
    }
    for (label, key) in [("input", "inputSchema"), ("output", "outputSchema")] {
        if !tool[key].is_null() {
            output::data(&format!("\n{}\n{:#}", paint.bold(label), tool[key]));
        }
    }
}
