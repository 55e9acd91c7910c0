//! `toolyard tools`: what there is.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{Global, ToolsCommand},
    output::{self, Paint},
    wiring::Needs,
};
use serde_json::{Value, json};
use std::process::ExitCode;

pub(super) async fn run(global: &Global, command: ToolsCommand) -> Outcome {
    let mut backend = Backend::open(global, Needs::Catalog).await?;
    let (method, params) = match &command {
        ToolsCommand::List { category, schemas } => ("tools.list", json!({"category": category, "schemas": schemas})),
        ToolsCommand::Describe { name } => ("tools.describe", json!({"name": name})),
    };
    let answer = backend.call(method, params, None).await;
    backend.close().await;
    let answer = answer?;
    match command {
        _ if global.json => output::json(&answer),
        ToolsCommand::List { .. } => list(&answer),
        ToolsCommand::Describe { .. } => describe(&answer),
    }
    Ok(ExitCode::SUCCESS)
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
            output::data(&format!(
                "\n{}\n{}",
                paint.bold(label),
                serde_json::to_string_pretty(&tool[key]).unwrap_or_default()
            ));
        }
    }
}
