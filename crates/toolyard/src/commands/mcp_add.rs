//! `toolyard mcp add`: writes an upstream server and its sandbox settings into config.toml.

use super::Outcome;
use crate::{
    cli::{Global, McpAdd},
    config, output, server_file, stores,
};
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};
use toolyard_mcp::client::{SandboxConfig, ServerConfig};
use toolyard_plugins::sandboxed;
use toolyard_protocol::{ErrorCode, Failure};

/// What the command answers under `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Added<'a> {
    server: &'a str,
    sandbox: Option<SandboxConfig>,
    hints: Vec<String>,
}

pub(super) async fn run(global: &Global, add: &McpAdd) -> Outcome {
    let mut resolved = config::resolve(global)?;
    let is_shared = stores::url(&resolved).is_some();
    if is_shared {
        drop(stores::open_agreed(&mut resolved)?);
    }
    if resolved.config.mcp.servers.contains_key(&add.name) {
        return Err(Failure::new(ErrorCode::Conflict, format!("the server {} is configured already", add.name))
            .suggest(format!("Change [mcp.servers.{}] in {}.", add.name, resolved.home.config().display())));
    }
    let sandbox = sandbox(add)?;
    let config = ServerConfig {
        command: add.command.first().cloned(),
        args: add.command.iter().skip(1).cloned().collect(),
        url: add.url.clone(),
        sandbox: sandbox.clone(),
        ..ServerConfig::default()
    };
    config.check(&add.name).map_err(|why| Failure::new(ErrorCode::UsageError, why))?;
    resolved.home.create().map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{e:#}")))?;
    if is_shared {
        super::config::change_shared(global, server_file::patch_adding(&add.name, &config)?).await?;
    } else {
        server_file::add(&resolved.home.config(), &add.name, &config)?;
    }
    let hints = hints(add, sandbox.as_ref());
    if global.json {
        output::json(&serde_json::json!(Added { server: &add.name, sandbox, hints }));
    } else {
        output::data(&format!("added {}", add.name));
        for hint in hints {
            output::note(&hint);
        }
        output::note(match is_shared {
            true => "Every node of the cluster takes it in.",
            false => "A running Toolyard takes it in when it is restarted.",
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// The sandbox settings. They are always written for a program, so that the file shows what the program may do.
fn sandbox(add: &McpAdd) -> Result<Option<SandboxConfig>, Failure> {
    if add.url.is_some() {
        return Ok(None);
    }
    let full = |paths: &[PathBuf]| {
        let full = |path: &PathBuf| {
            std::path::absolute(path)
                .map_err(|e| Failure::new(ErrorCode::UsageError, format!("{}: {e}", path.display())))
        };
        paths.iter().map(full).collect::<Result<Vec<_>, _>>()
    };
    Ok(Some(SandboxConfig {
        enabled: !add.no_sandbox,
        read: full(&add.read)?,
        write: full(&add.write)?,
        network: add.network,
        env: add.env.clone(),
        ..SandboxConfig::default()
    }))
}

/// What the sandboxed program probably needs in addition.
fn hints(add: &McpAdd, sandbox: Option<&SandboxConfig>) -> Vec<String> {
    let Some(sandbox) = sandbox.filter(|sandbox| sandbox.enabled) else { return Vec::new() };
    let mut hints = Vec::new();
    let Some((command, args)) = add.command.split_first() else { return hints };
    match sandboxed::find(command) {
        None => hints.push(format!("warning: the program {command} is not in PATH")),
        Some(program) => {
            for tree in sandboxed::prefix(&program) {
                hints.push(format!("it may also read {}, where its program lies", tree.display()));
            }
        }
    }
    let granted: Vec<&PathBuf> = sandbox.read.iter().chain(&sandbox.write).collect();
    for arg in args.iter().filter(|arg| arg.contains('/')) {
        let path = PathBuf::from(arg);
        if path.is_absolute() && path.exists() && !granted.iter().any(|grant| path.starts_with(grant)) {
            hints.push(format!("hint: it cannot read {arg}; grant it with --read or --write if it needs it"));
        }
    }
    let name = Path::new(command).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if matches!(name, "npx" | "uvx" | "bunx") && !sandbox.network {
        hints.push(format!("hint: {name} downloads packages: it needs --network and a --write folder for its cache"));
    }
    hints
}
