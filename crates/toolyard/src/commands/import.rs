//! `toolyard import mcp`: imports the MCP servers of other clients' settings. Each imported server runs in a sandbox
//! and its tool definitions are pinned.

use super::Outcome;
use crate::{
    cli::{Global, ImportMcpArgs},
    clients::{
        kept,
        servers::{ListedServer, McpClient},
        toml, unusable,
    },
    config,
    home::Home,
    output, stores,
};
use serde::Serialize;
use serde_json::Value;
use std::{collections::BTreeMap, path::PathBuf, process::ExitCode};
use toml_edit::{Item, Table, value};
use toolyard_mcp::client::{SandboxConfig, ServerConfig};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::Object;

/// A server of a client, and whether it was imported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ImportedServer {
    server: String,
    client: McpClient,
    /// Whether the server is imported; in a dry run, whether it would be.
    imported: bool,
    /// Why it was left out, or what it may need.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Everything that was found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Imported {
    /// Nothing was changed.
    dry_run: bool,
    servers: Vec<ImportedServer>,
}

/// A patch of the configuration with the servers that were imported into the text of a file.
fn servers_patch(text: &str, servers: &[ImportedServer]) -> Result<Object, Failure> {
    let mut patch: Object = ::toml::from_str(text)
        .map_err(|error| Failure::new(ErrorCode::ConfigInvalid, format!("the servers cannot be read back: {error}")))?;
    patch.retain(|key, _| key == "mcp");
    if let Some(mcp) = patch.get_mut("mcp").and_then(Value::as_object_mut) {
        mcp.retain(|key, _| key == "servers");
        if let Some(listed) = mcp.get_mut("servers").and_then(Value::as_object_mut) {
            listed.retain(|name, _| servers.iter().any(|server| server.imported && server.server == *name));
        }
    }
    Ok(patch)
}

pub(super) async fn run(global: &Global, args: &ImportMcpArgs) -> Outcome {
    let mut resolved = config::resolve(global)?;
    let is_shared = stores::url(&resolved).is_some();
    if is_shared {
        drop(stores::open_agreed(&mut resolved)?);
    }
    let path = resolved.home.config();
    let before = kept::read(&path)?.unwrap_or_default();
    let mut document = toml::read(&before).map_err(|why| unusable(&path, why))?;
    let mut known: Vec<String> = resolved.config.mcp.servers.keys().cloned().collect();
    let mut servers = Vec::new();
    let mut secrets = Vec::new();
    let clients = if args.from.is_empty() { McpClient::ALL.to_vec() } else { args.from.clone() };
    for client in clients {
        let file = client.file()?;
        let Some(text) = kept::read(&file)? else { continue };
        for listed in client.listed(&file, &text)? {
            let row =
                |imported, note: Option<String>| ImportedServer { server: listed.name.clone(), client, imported, note };
            let kept = SecretFiles::of(&listed, &resolved.home);
            let server = server(&listed, &kept);
            if known.contains(&listed.name) {
                servers.push(row(false, Some("a server of this name is configured already".to_owned())));
            } else if let Err(why) = server.check(&listed.name) {
                servers.push(row(false, Some(why)));
            } else {
                add(&mut document, &listed, &kept).map_err(|why| unusable(&path, why))?;
                secrets.push(kept);
                known.push(listed.name.clone());
                servers.push(row(true, walls_note(&listed)));
            }
        }
    }
    if servers.iter().any(|server| server.imported) && !args.dry_run {
        let text = document.to_string();
        // The complete new text is parsed before it replaces the file.
        ::toml::from_str::<config::Config>(&text)
            .map_err(|error| Failure::new(ErrorCode::ConfigInvalid, format!("{}: {error}", path.display())))?;
        resolved.home.create().map_err(|error| Failure::new(ErrorCode::StoreUnavailable, format!("{error:#}")))?;
        for file in secrets.iter().flat_map(|kept| kept.env.iter().chain(&kept.headers)) {
            kept::write(&file.path, &file.value)?;
        }
        match is_shared {
            true => drop(super::config::change_shared(global, servers_patch(&text, &servers)?).await?),
            false => kept::write(&path, &text)?,
        }
    }
    if global.json {
        output::json(&Imported { dry_run: args.dry_run, servers });
        return Ok(ExitCode::SUCCESS);
    }
    let rows = servers.iter().map(|server| {
        let state = match (server.imported, args.dry_run) {
            (true, false) => "imported",
            (true, true) => "would be imported",
            (false, _) => "left out",
        };
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
        output::note(match args.dry_run {
            true => "Nothing was changed. Without --dry-run they are imported; the clients keep their own settings.",
            false if is_shared => {
                "Every node of the cluster takes them in. Copy the files that they name in this home's state/mcp-secrets to \
                 the other nodes. The clients keep theirs until you remove them."
            }
            false => {
                "A running Toolyard takes them in when it is restarted. The clients keep theirs until you remove them."
            }
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// A variable or header of a client, whose value goes into a file of its own.
struct SecretFile {
    name: String,
    value: String,
    path: PathBuf,
}

/// Values that a client's settings hold in clear text. They may be credentials, so they are not written into
/// `config.toml`, which people show to others.
struct SecretFiles {
    env: Vec<SecretFile>,
    headers: Vec<SecretFile>,
}

impl SecretFiles {
    fn of(listed: &ListedServer, home: &Home) -> Self {
        let folder = home.mcp_secrets().join(&listed.name);
        let files = |kind: &str, pairs: &[(String, String)]| {
            let file = |(name, value): &(String, String)| SecretFile {
                name: name.clone(),
                value: value.clone(),
                path: folder.join(format!("{kind}-{}", name.replace(['/', '\0'], "_"))),
            };
            pairs.iter().map(file).collect()
        };
        Self { env: files("env", &listed.env), headers: files("header", &listed.headers) }
    }
}

fn paths(files: &[SecretFile]) -> BTreeMap<String, PathBuf> {
    files.iter().map(|file| (file.name.clone(), file.path.clone())).collect()
}

fn server(listed: &ListedServer, kept: &SecretFiles) -> ServerConfig {
    ServerConfig {
        command: listed.command.clone(),
        args: listed.args.clone(),
        env_files: paths(&kept.env),
        header_files: paths(&kept.headers),
        url: if listed.command.is_some() { None } else { listed.url.clone() },
        sandbox: listed.command.as_ref().map(|_| SandboxConfig::default()),
        ..ServerConfig::default()
    }
}

/// What a sandboxed server probably needs in addition, such as the network.
fn walls_note(listed: &ListedServer) -> Option<String> {
    let command = listed.command.as_deref()?;
    let name = command.rsplit('/').next().unwrap_or(command);
    let note = if matches!(name, "npx" | "uvx" | "bunx" | "docker") {
        "in a sandbox, without network: it needs sandbox.network and a folder in sandbox.write"
    } else {
        "in a sandbox, without network; grant what it needs in its sandbox table"
    };
    Some(note.to_owned())
}

fn add(document: &mut toml_edit::DocumentMut, listed: &ListedServer, kept: &SecretFiles) -> Result<(), String> {
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
    for (name, files) in [("envFiles", &kept.env), ("headerFiles", &kept.headers)] {
        if !files.is_empty() {
            let inner: Table =
                files.iter().map(|file| (file.name.as_str(), value(file.path.display().to_string()))).collect();
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
