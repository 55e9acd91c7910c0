//! `toolyard plugins`: installs, lists, updates and removes plugins.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{Global, PluginsCommand},
    output::{self, Paint},
    plugins::{
        BuiltIn, EnableParams, InstallParams, Installed, PluginList, PluginParams, PluginsDisable, PluginsDoctor,
        PluginsEnable, PluginsInfo, PluginsInstall, PluginsList, PluginsRemove, PluginsUpdate, RemoveParams,
    },
    terminal::counted,
    wiring::RequiredParts,
};
use serde::Serialize;
use std::process::ExitCode;
use toolyard_mcp::client::Health;
use toolyard_plugins::{Installation, PluginInfo, SCHEMES};
use toolyard_protocol::Failure;
use toolyard_service::NoParams;

pub(super) async fn run(global: &Global, command: PluginsCommand) -> Outcome {
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let outcome = answer(global, &mut backend, command).await;
    backend.close().await;
    outcome
}

async fn answer(global: &Global, backend: &mut Backend, command: PluginsCommand) -> Outcome {
    match command {
        PluginsCommand::List => {
            let answer = backend.call::<PluginsList>(&NoParams {}, None).await;
            show(global, answer, list)?;
        }
        PluginsCommand::Doctor => {
            let answer = backend.call::<PluginsDoctor>(&NoParams {}, None).await?;
            let is_sick = |plugin: &PluginInfo| plugin.enabled && plugin.status != Health::Healthy;
            let sick = answer.plugins.iter().any(is_sick);
            show(global, Ok(answer), list)?;
            return Ok(if sick { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
        PluginsCommand::Info { id } => {
            show(global, backend.call::<PluginsInfo>(&PluginParams { id }, None).await, details)?;
        }
        PluginsCommand::Install { source, grant } => {
            let params = InstallParams { source: full(&source), grant };
            show(global, backend.call::<PluginsInstall>(&params, None).await, installed)?;
        }
        PluginsCommand::Update { id } => {
            show(global, backend.call::<PluginsUpdate>(&PluginParams { id }, None).await, added)?;
        }
        PluginsCommand::Enable { id, grant } => {
            show(global, backend.call::<PluginsEnable>(&EnableParams { id, grant }, None).await, line)?;
        }
        PluginsCommand::Disable { id } => {
            show(global, backend.call::<PluginsDisable>(&PluginParams { id }, None).await, line)?;
        }
        PluginsCommand::Remove { id, data } => {
            let answer = backend.call::<PluginsRemove>(&RemoveParams { id, data }, None).await;
            show(global, answer, |removed| output::data(&format!("removed {}", removed.removed)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Resolves a path against this process's working directory: a running Toolyard may have another.
fn full(source: &str) -> String {
    match std::path::absolute(source) {
        Ok(path) if !SCHEMES.iter().any(|scheme| source.starts_with(scheme)) => path.display().to_string(),
        _ => source.to_owned(),
    }
}

fn show<T: Serialize>(global: &Global, answer: Result<T, Failure>, print: impl FnOnce(&T)) -> Result<(), Failure> {
    let answer = answer?;
    if global.json {
        output::json(&answer);
    } else {
        print(&answer);
    }
    Ok(())
}

fn list(answer: &PluginList) {
    if answer.plugins.is_empty() {
        output::note("no plugin is installed");
    }
    answer.plugins.iter().for_each(line);
}

fn installed(answer: &Installed) {
    match answer {
        Installed::Plugin(plugin) => added(plugin),
        Installed::BuiltIn(set) => built_in(set),
    }
}

/// Prints a built-in set of tools, which needs no installation.
fn built_in(set: &BuiltIn) {
    let paint = Paint::stdout();
    let shown = if set.status == "healthy" { paint.green(&set.status) } else { paint.yellow(&set.status) };
    output::data(&format!("{:<24} part of Toolyard, {shown}: {}", set.built_in, set.tools.join(", ")));
    for step in &set.next {
        output::note(&format!("  next: {step}"));
    }
}

fn added(answer: &Installation) {
    line(&answer.plugin);
    let id = &answer.plugin.id;
    for word in &answer.not_granted {
        output::note(&format!("  it asks for {word}: `toolyard plugins enable {id} --grant {word}` grants it"));
    }
}

fn line(plugin: &PluginInfo) {
    let paint = Paint::stdout();
    let state = match (plugin.enabled, plugin.status) {
        (false, Health::Unavailable) => paint.red("cannot be used"),
        (false, _) => "disabled".to_owned(),
        (true, Health::Healthy) => paint.green("healthy"),
        (true, other) => paint.red(other.as_str()),
    };
    let tools = counted(plugin.tools, "tool");
    output::data(&format!("{:<24} {:<12} {state}, {tools}", plugin.id, plugin.version));
    for problem in &plugin.problems {
        output::data(&format!("  {problem}"));
    }
    for left in &plugin.left_out {
        output::data(&format!("  left out: {}: {}", left.tool, left.reason));
    }
}

fn details(plugin: &PluginInfo) {
    line(plugin);
    let folder = plugin.folder.display().to_string();
    for (key, text) in
        [("name", &plugin.name), ("description", &plugin.description), ("source", &plugin.source), ("folder", &folder)]
    {
        output::data(&format!("  {key:<12} {text}"));
    }
    for (key, words) in [("declared", &plugin.declared), ("hooks", &plugin.hooks), ("skills", &plugin.skills)] {
        output::data(&format!("  {key:<12} {}", words.join(", ")));
    }
    output::data(&format!("  {:<12} {}", "asks", written(&plugin.asks)));
    output::data(&format!("  {:<12} {}", "granted", written(&plugin.grant)));
    let confined = if plugin.confined { "on" } else { "off (plugins.sandbox)" };
    output::data(&format!("  {:<12} {confined}", "sandbox"));
    for missing in &plugin.missing_walls {
        output::data(&format!("  {:<12} {}: {}", "no wall", missing.wall, missing.consequence));
    }
}

/// A value as JSON on one line.
fn written(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("cannot be shown: {error}"))
}
