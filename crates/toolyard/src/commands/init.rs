//! `toolyard init`: a configuration to begin with, from a few answers or from flags.

use super::{Outcome, vault};
use crate::{
    cli::{Global, IndexArgs, InitArgs, VaultCommand},
    clients::{Program, kept, places},
    config::{ApprovalsBy, Config},
    home::Home,
    output,
};
use serde::Serialize;
use std::{
    io::{BufRead, IsTerminal},
    path::PathBuf,
    process::ExitCode,
};
use toolyard_protocol::{ErrorCode, Failure};

/// What was set up.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Initialised {
    config: PathBuf,
    vault: PathBuf,
    approvals: ApprovalsBy,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<PathBuf>,
    indexed: bool,
    next: Vec<String>,
}

fn usage(message: String) -> Failure {
    Failure::new(ErrorCode::UsageError, message)
}

pub(super) async fn run(global: &Global, args: InitArgs) -> Outcome {
    let home = Home::resolve(global.home.as_deref())
        .map_err(|error| Failure::new(ErrorCode::ConfigInvalid, format!("{error:#}")))?;
    let config = home.config();
    if config.exists() && !args.force {
        return Err(Failure::new(ErrorCode::Conflict, format!("{} is there already", config.display()))
            .suggest("Change it by hand, or run `toolyard init --force`, which keeps a copy of it."));
    }
    let asks = !args.yes && !global.json && std::io::stdin().is_terminal();
    let folder = match (&global.vault, asks) {
        (Some(folder), _) => folder.clone(),
        (None, true) => match answer(&format!("The folder of your notes [{}]:", home.default_vault().display()))? {
            line if line.is_empty() => home.default_vault(),
            line => crate::config::expand(std::path::Path::new(&line)),
        },
        (None, false) => home.default_vault(),
    };
    let folder = std::path::absolute(&folder).map_err(|error| usage(format!("{}: {error}", folder.display())))?;
    if !folder.is_dir() && folder != home.default_vault() {
        return Err(
            usage(format!("{} is not a folder", folder.display())).suggest("Make it first, or name another one.")
        );
    }
    let approvals = match (args.approvals, asks) {
        (Some(by), _) => by,
        (None, true) => match answer("Who approves writes: client, toolyard or policy [toolyard]:")?.as_str() {
            "" => ApprovalsBy::Toolyard,
            word => super::input::word("approvals", word)?,
        },
        (None, false) => ApprovalsBy::Toolyard,
    };
    let at_login = args.start_at_login || asks && matches!(answer("Start at login [y/N]:")?.as_str(), "y" | "yes");
    home.create().map_err(|error| Failure::new(ErrorCode::StoreUnavailable, format!("{error:#}")))?;
    write_config(&config, &folder, approvals)?;
    let unit = at_login.then(|| write_unit(global)).transpose()?;
    let mut indexed = false;
    if !args.no_index && folder.is_dir() {
        let index = IndexArgs { full: false, rebuild: false, detach: false, cancel: false };
        let quiet = Global { json: false, ..global.clone() };
        // The index is optional here: without the index program, everything else works.
        match vault::run(&quiet, VaultCommand::Index(index)).await {
            Ok(code) => indexed = code == ExitCode::SUCCESS,
            Err(failure) => output::note(&format!("the notes were not indexed: {failure}")),
        }
    }
    show(global, Initialised { next: next(unit.is_some()), config, vault: folder, approvals, unit, indexed });
    Ok(ExitCode::SUCCESS)
}

fn show(global: &Global, done: Initialised) {
    if global.json {
        output::json(&done);
        return;
    }
    output::data(&format!("wrote {}", done.config.display()));
    done.next.iter().for_each(|line| output::note(line));
}

fn next(has_unit: bool) -> Vec<String> {
    let start = if has_unit { "systemctl --user enable --now toolyard" } else { "toolyard up" };
    vec![
        format!("Start it: {start}"),
        "Connect an agent: toolyard connect claude (or codex, gemini, cursor, vscode, zed, opencode)".to_owned(),
        "Look around: toolyard status, toolyard tools list".to_owned(),
    ]
}

fn answer(question: &str) -> Result<String, Failure> {
    output::note(question);
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| usage(format!("the answer cannot be read: {error}")))?;
    Ok(line.trim().to_owned())
}

fn write_config(path: &std::path::Path, vault: &std::path::Path, approvals: ApprovalsBy) -> Result<(), Failure> {
    if path.exists() {
        let copy = path.with_extension("toml.before-init");
        std::fs::copy(path, &copy).map_err(|error| usage(format!("{} cannot be copied: {error}", path.display())))?;
    }
    let vault = toml_edit::value(vault.display().to_string()).to_string();
    let text = format!(
        "# Toolyard's configuration. Every key is optional; docs/reference/configuration.md lists them all.\n\n\
         [vault]\n# The folder of notes that the vault tools read and write.\npath = {}\n\n\
         [policy.risk]\n# What happens to calls by their risk: allow, ask or deny.\nreadOnly = \"allow\"\nwrites = \"ask\"\n\n\
         [mcp]\n# Who approves what the policy asks about: client (the client's own prompt), toolyard (console, phone,\n\
         # channel) or policy (nobody; it is refused).\napprovals = \"{}\"\n\n\
         [hooks]\n# What happens to calls that coding agents make with their own tools: observe, careful or locked.\n\
         preset = \"careful\"\n",
        vault.trim(),
        output::word(&approvals),
    );
    toml::from_str::<Config>(&text)
        .map_err(|error| Failure::new(ErrorCode::InternalError, format!("the new configuration is wrong: {error}")))?;
    kept::write(path, &text)
}

/// A unit for the user's own systemd. It is written, not enabled.
fn write_unit(global: &Global) -> Result<PathBuf, Failure> {
    let program = Program::this(global)?;
    let path = places::config_home()?.join("systemd/user/toolyard.service");
    let text = format!(
        "[Unit]\nDescription=Toolyard\n\n[Service]\nExecStart={}\nRestart=on-failure\n\n[Install]\nWantedBy=default.target\n",
        program.line(&["up"])
    );
    kept::write(&path, &text)?;
    Ok(path)
}
