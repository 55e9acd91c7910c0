//! `toolyard import mcp`: takes over the MCP servers that clients already have, each within walls and pinned.

use super::Outcome;
use crate::{
    cli::{Global, ImportMcpArgs},
    clients::{
        kept,
        servers::{ListedServer, McpClient},
        toml, unusable,
    },
    config, output,
};
use serde::Serialize;
use std::{collections::BTreeMap, process::ExitCode};
use toml_edit::{Item, Table, value};
use toolyard_mcp::client::{SandboxConfig, ServerConfig};
use toolyard_protocol::{ErrorCode, Failure};

/// A server of a client, and what became of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ImportedServer {
    server: String,
    client: McpClient,
    imported: bool,
    /// Why it was left out, or what it may need.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Everything that was found.
#[derive(Debug, Serialize)]
struct Imported {
    servers: Vec<ImportedServer>,
}

pub(super) fn run(global: &Global, args: &ImportMcpArgs) -> Outcome {
    let resolved = config::resolve(global)?;
    let path = resolved.home.config();
    let before = kept::read(&path)?.unwrap_or_default();
    let mut document = toml::read(&before).map_err(|why| unusable(&path, why))?;
    let mut known: Vec<String> = resolved.config.mcp.servers.keys().cloned().collect();
    let mut servers = Vec::new();
    let clients = if args.from.is_empty() { McpClient::ALL.to_vec() } else { args.from.clone() };
    for client in clients {
        let file = client.file()?;
        let Some(text) = kept::read(&file)? else { continue };
        for listed in client.listed(&file, &text)? {
            let row =
                |imported, note: Option<String>| ImportedServer { server: listed.name.clone(), client, imported, note };
            let server = server(&listed);
            if known.contains(&listed.name) {
                servers.push(row(false, Some("a server of this name is configured already".to_owned())));
            } else if let Err(why) = server.check(&listed.name) {
                servers.push(row(false, Some(why)));
            } else {
                add(&mut document, &listed).map_err(|why| unusable(&path, why))?;
                known.push(listed.name.clone());
                servers.push(row(true, walls_note(&listed)));
            }
        }
    }
    if servers.iter().any(|server| server.imported) && !args.dry_run {
        let text = document.to_string();
        // The whole is read back before it is kept.
        ::toml::from_str::<config::Config>(&text)
            .map_err(|error| Failure::new(ErrorCode::ConfigInvalid, format!("{}: {error}", path.display())))?;
        resolved.home.create().map_err(|error| Failure::new(ErrorCode::StoreUnavailable, format!("{error:#}")))?;
        kept::write(&path, &text)?;
    }
    if global.json {
        output::json(&Imported { servers });
        return Ok(ExitCode::SUCCESS);
    }
    let rows = servers.iter().map(|server| {
        let state = if server.imported { "taken over" } else { "left out" };
        vec![
            server.server.clone(),
            server.client.as_str().to_owned(),
            state.to_owned(),
            server.note.clone().unwrap_or_default(),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        output::note("no client has MCP servers of its own");
    } else {
        output::data(&output::table(&rows));
        output::note(
            "A running Toolyard takes them in when it is restarted. The clients keep theirs until you remove them.",
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn server(listed: &ListedServer) -> ServerConfig {
    ServerConfig {
        command: listed.command.clone(),
        args: listed.args.clone(),
        env: listed.env.iter().cloned().collect::<BTreeMap<_, _>>(),
        headers: listed.headers.iter().cloned().collect(),
        url: if listed.command.is_some() { None } else { listed.url.clone() },
        sandbox: listed.command.as_ref().map(|_| SandboxConfig::default()),
        ..ServerConfig::default()
    }
}

/// What a server within walls will probably miss.
fn walls_note(listed: &ListedServer) -> Option<String> {
    let command = listed.command.as_deref()?;
    let name = command.rsplit('/').next().unwrap_or(command);
    let note = if matches!(name, "npx" | "uvx" | "bunx" | "docker") {
        "within walls, without network: it needs sandbox.network and a folder in sandbox.write"
    } else {
        "within walls, without network; grant what it needs in its sandbox table"
    };
    Some(note.to_owned())
}

fn add(document: &mut toml_edit::DocumentMut, listed: &ListedServer) -> Result<(), String> {
    let table = toml::table(document, &["mcp", "servers", &listed.name])?;
    table.set_implicit(false);
    match &listed.command {
        Some(command) => {
            table.insert("command", value(command.as_str()));
            if !listed.args.is_empty() {
                table.insert("args", toml::texts(&listed.args));
            }
        }
        None => {
            table.insert("url", value(listed.url.clone().unwrap_or_default()));
        }
    }
    for (name, pairs) in [("env", &listed.env), ("headers", &listed.headers)] {
        if !pairs.is_empty() {
            let inner: Table = pairs.iter().map(|(key, text)| (key.as_str(), value(text.as_str()))).collect();
            table.insert(name, Item::Table(inner));
        }
    }
    if listed.command.is_some() {
        let mut sandbox = Table::new();
        sandbox.insert("enabled", value(true));
        sandbox.insert("network", value(false));
        table.insert("sandbox", Item::Table(sandbox));
    }
    // New tools need a person's approval as well as changed ones.
    table.insert("pin", value("all"));
    Ok(())
}
