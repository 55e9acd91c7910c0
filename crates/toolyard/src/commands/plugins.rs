//! `toolyard plugins`: install, look after and remove plugins.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{Global, PluginsCommand},
    output::{self, Paint},
    wiring::Needs,
};
use serde_json::{Value, json};
use std::process::ExitCode;
use toolyard_plugins::SCHEMES;

pub(super) async fn run(global: &Global, command: PluginsCommand) -> Outcome {
    let mut backend = Backend::open(global, Needs::Store).await?;
    // A folder or file is meant from here, whoever does the work.
    let full = |source: &str| match std::path::absolute(source) {
        Ok(path) if !SCHEMES.iter().any(|scheme| source.starts_with(scheme)) => path.display().to_string(),
        _ => source.to_owned(),
    };
    let (method, params) = match &command {
        PluginsCommand::List => ("plugins.list", json!({})),
        PluginsCommand::Info { id } => ("plugins.info", json!({"id": id})),
        PluginsCommand::Install { source, grant } => {
            ("plugins.install", json!({"source": full(source), "grant": grant}))
        }
        PluginsCommand::Update { id } => ("plugins.update", json!({"id": id})),
        PluginsCommand::Enable { id, grant } => ("plugins.enable", json!({"id": id, "grant": grant})),
        PluginsCommand::Disable { id } => ("plugins.disable", json!({"id": id})),
        PluginsCommand::Remove { id, data } => ("plugins.remove", json!({"id": id, "data": data})),
        PluginsCommand::Doctor => ("plugins.doctor", json!({})),
    };
    let answer = backend.call(method, params, None).await;
    backend.close().await;
    let answer = answer?;
    if global.json {
        output::json(&answer);
    } else {
        print(&command, &answer);
    }
    let sick = matches!(command, PluginsCommand::Doctor)
        && answer["plugins"].as_array().into_iter().flatten().any(|p| p["enabled"] == true && p["status"] != "healthy");
    Ok(if sick { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(command: &PluginsCommand, answer: &Value) {
    match command {
        PluginsCommand::List | PluginsCommand::Doctor => {
            let plugins = answer["plugins"].as_array().cloned().unwrap_or_default();
            if plugins.is_empty() {
                output::note("no plugin is installed");
            }
            for plugin in &plugins {
                line(plugin);
            }
        }
        PluginsCommand::Info { .. } => details(answer),
        PluginsCommand::Install { .. } if answer.get("builtIn").is_some() => built_in(answer),
        PluginsCommand::Install { .. } | PluginsCommand::Update { .. } => {
            line(&answer["plugin"]);
            for word in answer["notGranted"].as_array().into_iter().flatten() {
                let (id, word) = (text(&answer["plugin"], "id"), word.as_str().unwrap_or_default());
                output::note(&format!("  it asks for {word}: `toolyard plugins enable {id} --grant {word}` grants it"));
            }
        }
        PluginsCommand::Enable { .. } | PluginsCommand::Disable { .. } => line(answer),
        PluginsCommand::Remove { id, .. } => output::data(&format!("removed {id}")),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn line(plugin: &Value) {
    let paint = Paint::stdout();
    let state = match (plugin["enabled"] == true, text(plugin, "status")) {
        (false, "unavailable") => paint.red("cannot be used"),
        (false, _) => "disabled".to_owned(),
        (true, "healthy") => paint.green("healthy"),
        (true, other) => paint.red(other),
    };
    let (id, version, tools) = (text(plugin, "id"), text(plugin, "version"), &plugin["tools"]);
    output::data(&format!("{id:<24} {version:<12} {state}, {tools} tools"));
    for problem in plugin["problems"].as_array().into_iter().flatten() {
        output::data(&format!("  {}", problem.as_str().unwrap_or_default()));
    }
    for left in plugin["leftOut"].as_array().into_iter().flatten() {
        output::data(&format!("  left out: {}: {}", text(left, "tool"), text(left, "reason")));
    }
}

/// What is part of Toolyard already.
fn built_in(answer: &Value) {
    let status = text(answer, "status");
    let paint = Paint::stdout();
    let shown = if status == "healthy" { paint.green(status) } else { paint.yellow(status) };
    let tools: Vec<&str> = answer["tools"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    output::data(&format!("{:<24} part of Toolyard, {shown}: {}", text(answer, "builtIn"), tools.join(", ")));
    for step in answer["next"].as_array().into_iter().flatten() {
        output::note(&format!("  next: {}", step.as_str().unwrap_or_default()));
    }
}

fn details(plugin: &Value) {
    line(plugin);
    for key in ["name", "description", "source", "folder"] {
        output::data(&format!("  {key:<12} {}", text(plugin, key)));
    }
    for key in ["declared", "hooks", "skills"] {
        let words: Vec<&str> = plugin[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        output::data(&format!("  {key:<12} {}", words.join(", ")));
    }
    output::data(&format!("  {:<12} {}", "asks", plugin["asks"]));
    output::data(&format!("  {:<12} {}", "granted", plugin["grant"]));
    let confined = if plugin["confined"] == true { "on" } else { "off (plugins.sandbox)" };
    output::data(&format!("  {:<12} {confined}", "walls"));
    for missing in plugin["missingWalls"].as_array().into_iter().flatten() {
        output::data(&format!("  {:<12} {}: {}", "no wall", text(missing, "wall"), text(missing, "consequence")));
    }
}
