//! `toolyard connect --plugin`: writes a plugin package, which the client installs with its own command.

use super::super::Outcome;
use crate::{
    cli::Global,
    clients::{Program, kept, packages, servers::McpClient, unusable},
    home::Home,
    output,
};
use serde::Serialize;
use std::{path::PathBuf, process::ExitCode};
use toolyard_hooks::Client;
use toolyard_protocol::{ErrorCode, Failure};

/// What was written or removed.
#[derive(Debug, Serialize)]
struct Packaged {
    client: McpClient,
    /// The package's folder.
    folder: PathBuf,
    /// Whether the package is there now.
    written: bool,
    /// Whether a file was changed.
    changed: bool,
    /// What to type so that the client installs it.
    next: Vec<String>,
}

/// The folder of a client's package. Claude Code and Codex share one.
fn folder(home: &Home, client: Client) -> PathBuf {
    home.path().join("packages").join(match client {
        Client::Claude | Client::Codex => "marketplace",
        Client::Gemini => "gemini",
        Client::Opencode => "opencode",
    })
}

pub(super) fn run(global: &Global, home: &Home, client: McpClient, removes: bool) -> Outcome {
    let packaged = client.hooks().or((client == McpClient::Opencode).then_some(Client::Opencode));
    let Some(hooked) = packaged else {
        let message = format!("{} takes no plugin packages", client.as_str());
        return Err(Failure::new(ErrorCode::UsageError, message)
            .suggest(format!("Run `toolyard connect {}` without --plugin.", client.as_str())));
    };
    let folder = folder(home, hooked);
    let packaged = if removes {
        let was_there = folder.exists();
        if was_there {
            std::fs::remove_dir_all(&folder).map_err(|error| unusable(&folder, error))?;
        }
        Packaged { client, folder, written: false, changed: was_there, next: Vec::new() }
    } else {
        let program = Program::this(global)?;
        let files = packages::files(hooked, &program).map_err(|error| unusable(&folder, error))?;
        let mut changed = false;
        for file in files {
            let path = folder.join(&file.path);
            if kept::read(&path)?.as_deref() != Some(&file.text) {
                kept::write(&path, &file.text)?;
                changed = true;
            }
        }
        let next = packages::steps(hooked, &folder);
        Packaged { client, folder, written: true, changed, next }
    };
    if global.json {
        output::json(&packaged);
        return Ok(ExitCode::SUCCESS);
    }
    let (name, folder) = (client.as_str(), packaged.folder.display());
    match (packaged.written, packaged.changed) {
        (true, _) => output::data(&format!("the plugin for {name} is in {folder}")),
        (false, true) => output::data(&format!("removed {folder}")),
        (false, false) => output::data(&format!("there was no plugin in {folder}")),
    }
    packaged.next.iter().for_each(|line| output::note(line));
    Ok(ExitCode::SUCCESS)
}
