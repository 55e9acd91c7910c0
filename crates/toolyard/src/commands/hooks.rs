//! `toolyard hooks`: puts Toolyard's hooks into the settings of coding agents, and answers them.

mod managed;
pub mod run;

use super::{Outcome, workspaces};
use crate::{
    cli::{Global, HooksClientArgs, HooksCommand, HooksInstallArgs},
    clients::{
        Program,
        hook_entries::{self, Installed},
        json::JsonFile,
        kept::{self, ChangedFile, InstallStore},
        places, problems, toml, trust, unusable,
    },
    home::Home,
    output,
};
use serde::Serialize;
use std::{path::PathBuf, process::ExitCode};
use toolyard_hooks::Client;
use toolyard_protocol::{ErrorCode, Failure, WorkspaceId};

/// The state of a client's hooks.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HooksReport {
    /// The client.
    pub(crate) client: Client,
    /// Whether all hooks are there.
    pub(crate) installed: bool,
    /// The workspace in which calls are decided about and recorded, where it is not the default one.
    #[serde(skip_serializing_if = "WorkspaceId::is_default")]
    pub(crate) workspace: WorkspaceId,
    /// Whether this command changed a file.
    pub(crate) changed: bool,
    /// The file with the hooks.
    pub(crate) file: PathBuf,
    /// Where the file's earlier text is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backup: Option<PathBuf>,
    /// For Codex: whether its trust in the hooks is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trusted: Option<bool>,
    /// Whether a Toolyard of this home is running to answer.
    pub(crate) running: bool,
    /// What keeps the hooks from working.
    pub(crate) problems: Vec<String>,
}

pub(super) async fn run(global: &Global, command: HooksCommand) -> Outcome {
    let report = match command {
        HooksCommand::Run(args) => {
            return Ok(run::run(global.home.as_deref(), args.client.into(), global.workspace.as_deref()));
        }
        HooksCommand::Install(HooksInstallArgs { managed, .. })
        | HooksCommand::Uninstall(HooksClientArgs { managed, .. })
        | HooksCommand::Status(HooksClientArgs { managed, .. })
            if managed.managed && global.workspace.is_some() =>
        {
            let message = "the settings of the whole machine are for everybody on it, and name no workspace";
            return Err(Failure::new(ErrorCode::UsageError, message)
                .suggest("Leave --managed out: each person installs the hooks of their own workspace."));
        }
        HooksCommand::Install(args) if args.managed.managed => {
            managed::install(global, args.client.into(), &args.managed)?
        }
        HooksCommand::Uninstall(args) if args.managed.managed => {
            managed::uninstall(global, args.client.into(), &args.managed)?
        }
        HooksCommand::Status(args) if args.managed.managed => {
            managed::status(global, args.client.into(), &args.managed)?
        }
        HooksCommand::Install(args) => {
            workspaces::in_use(global).await?;
            install(global, args.client.into(), args.trust)?
        }
        HooksCommand::Uninstall(args) => uninstall(global, args.client.into())?,
        HooksCommand::Status(args) => status(global, args.client.into(), false)?,
    };
    if global.json {
        output::json(&report);
    } else {
        show(&report);
    }
    Ok(ExitCode::SUCCESS)
}

fn show(report: &HooksReport) {
    let state = if report.installed { "installed" } else { "not installed" };
    let workspace = match report.workspace.is_default() {
        true => String::new(),
        false => format!(", in the workspace {}", report.workspace),
    };
    output::data(&format!("{}: hooks are {state}{workspace} ({})", report.client, report.file.display()));
    for problem in &report.problems {
        output::note(problem);
    }
}

fn home(global: &Global) -> Result<Home, Failure> {
    Home::resolve(global.home.as_deref()).map_err(|error| Failure::new(ErrorCode::ConfigInvalid, format!("{error:#}")))
}

fn keeper(home: &Home, client: Client) -> InstallStore {
    InstallStore::new(home.path(), &format!("{client}-hooks"))
}

/// Puts the hooks in. A second time changes nothing.
pub(crate) fn install(global: &Global, client: Client, trusts: bool) -> Result<HooksReport, Failure> {
    if trusts && client != Client::Codex {
        let message = format!("{client} has no trust in hooks to write");
        return Err(Failure::new(ErrorCode::UsageError, message).suggest("Leave out --trust; it is for Codex."));
    }
    let (home, program) = (home(global)?, Program::this(global)?);
    let (path, keeper) = (places::hooks_file(client)?, keeper(&home, client));
    let text = kept::read(&path)?;
    let file = JsonFile::read(text.as_deref().unwrap_or_default()).map_err(|why| unusable(&path, why))?;
    let mut changed = false;
    if hook_entries::installed(client, &program, &file.value()) != Installed::Yes {
        hook_entries::remove(client, &program, &file);
        let before =
            text.as_ref().map(|text| if file.value() == read_value(text) { text.clone() } else { file.text() });
        hook_entries::add(client, &program, &file).map_err(|why| unusable(&path, why))?;
        keeper.change(&path, before, &file.text())?;
        changed = true;
    }
    if trusts {
        changed |= trust_codex(&keeper, &program)?;
    }
    Ok(HooksReport { changed, ..status(global, client, true)? })
}

fn read_value(text: &str) -> serde_json::Value {
    JsonFile::read(text).map(|file| file.value()).unwrap_or_default()
}

fn trust_codex(keeper: &InstallStore, program: &Program) -> Result<bool, Failure> {
    let (hooks, config) = (places::hooks_file(Client::Codex)?, places::codex_config()?);
    let settings = read_value(&kept::read(&hooks)?.unwrap_or_default());
    let entries = trust::entries(program, &hooks, &settings);
    let before = kept::read(&config)?;
    let text = before.clone().unwrap_or_default();
    if trust::is_there(&text, &entries) {
        return Ok(false);
    }
    let mut document = toml::read(&text).map_err(|why| unusable(&config, why))?;
    trust::add(&mut document, &entries).map_err(|why| unusable(&config, why))?;
    keeper.change(&config, before, &document.to_string())?;
    Ok(true)
}

/// Removes the hooks. A file that nobody has changed since is restored byte for byte.
pub(crate) fn uninstall(global: &Global, client: Client) -> Result<HooksReport, Failure> {
    let (home, path) = (home(global)?, places::hooks_file(client)?);
    let (keeper, program) = (keeper(&home, client), Program::this(global)?);
    let mut changed = !keeper.put_back(|file, now| without_ours(client, &program, file, now))?.is_empty();
    // Hooks that another home, or a Toolyard whose record is gone, put in.
    if let Some(text) = kept::read(&path)? {
        let file = JsonFile::read(&text).map_err(|why| unusable(&path, why))?;
        let before = file.value();
        hook_entries::remove(client, &program, &file);
        if file.value() != before {
            keeper.change(&path, None, &file.text())?;
            std::fs::remove_file(keeper.path()).map_err(|error| unusable(keeper.path(), error))?;
            changed = true;
        }
    }
    Ok(HooksReport { changed, ..status(global, client, true)? })
}

/// The text of a changed file without Toolyard's entries.
fn without_ours(client: Client, program: &Program, kept: &ChangedFile, now: &str) -> Result<String, Failure> {
    let wrong = |why: String| unusable(&kept.path, why);
    let before = kept.before.as_deref().unwrap_or_default();
    if kept.path.extension().is_some_and(|extension| extension == "toml") {
        let mut document = toml::read(now).map_err(wrong)?;
        let before = toml::read(before).map_err(wrong)?;
        trust::remove(&mut document, &places::hooks_file(Client::Codex)?, &before);
        return Ok(document.to_string());
    }
    let file = JsonFile::read(now).map_err(wrong)?;
    hook_entries::remove(client, program, &file);
    if client == Client::Gemini && read_value(before).get("hooksConfig").is_none() {
        file.remove(&["hooksConfig"], "enabled");
    }
    Ok(file.text())
}

/// Looks at the hooks. `is_quiet` leaves out what a person has just been told.
pub(crate) fn status(global: &Global, client: Client, is_quiet: bool) -> Result<HooksReport, Failure> {
    let (home, program) = (home(global)?, Program::this(global)?);
    let path = places::hooks_file(client)?;
    let text = kept::read(&path)?.unwrap_or_default();
    let file = JsonFile::read(&text).map_err(|why| unusable(&path, why))?;
    let settings = file.value();
    let program = match global.workspace {
        Some(_) => program,
        None => Program { workspace: hook_entries::workspace(client, &program, &settings), ..program },
    };
    let state = hook_entries::installed(client, &program, &settings);
    let mut problems = Vec::new();
    if state == Installed::Partly {
        problems.push("some hooks are missing or are those of another Toolyard; install them again".to_owned());
    }
    let here = std::env::current_dir().unwrap_or_default();
    problems.extend(problems::problems(client, &path, &settings, &here));
    let trusted = (client == Client::Codex).then(|| {
        let config = places::codex_config().and_then(|config| kept::read(&config)).ok().flatten().unwrap_or_default();
        let entries = trust::entries(&program, &path, &settings);
        !entries.is_empty() && trust::is_there(&config, &entries)
    });
    if trusted == Some(false) && state == Installed::Yes {
        problems.push(
            "Codex skips hooks that it does not trust: accept them in its terminal, or run \
             `toolyard hooks install codex --trust`"
                .to_owned(),
        );
    }
    let running = std::os::unix::net::UnixStream::connect(home.socket()).is_ok();
    if !running && state != Installed::No {
        problems.push("no Toolyard is running for this home: every call is refused until `toolyard up`".to_owned());
    }
    if is_quiet && state == Installed::No {
        problems.clear();
    }
    let keeper = keeper(&home, client);
    let backup = keeper.load()?.map(|_| keeper.path().to_owned());
    Ok(HooksReport {
        client,
        installed: state == Installed::Yes,
        workspace: if state == Installed::Yes { program.workspace } else { WorkspaceId::default() },
        changed: false,
        file: path,
        backup,
        trusted,
        running,
        problems,
    })
}
