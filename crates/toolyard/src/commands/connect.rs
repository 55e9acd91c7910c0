//! `toolyard connect`: enters Toolyard into a client's settings, and takes it out again.

mod plugin;

use super::{Outcome, hooks};
use crate::{
    backend::Backend,
    cli::{ConnectArgs, Global},
    clients::{
        Program,
        kept::{self, InstallStore},
        servers::McpClient,
        toml, unusable,
    },
    config::{self, ApprovalsBy},
    home::Home,
    output, stores,
    wiring::RequiredParts,
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use std::{
    io::{BufRead, IsTerminal},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{
    Object,
    runs::{RunParams, RunsGet, RunsList, RunsListParams},
};

/// How long the first call is waited for.
const WAIT: Duration = Duration::from_secs(600);
/// How often it is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Runs that are looked at each time.
const LOOKED_AT: usize = 20;

/// What was done.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Connected {
    client: McpClient,
    /// Whether the client has Toolyard's server now.
    connected: bool,
    /// Whether a file was changed.
    changed: bool,
    /// The file with the client's servers.
    file: PathBuf,
    /// Where its earlier text is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<PathBuf>,
    /// Whether the client's hooks are there; absent where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    hooks: Option<bool>,
    /// Who approves what the policy asks about.
    #[serde(skip_serializing_if = "Option::is_none")]
    approvals: Option<ApprovalsBy>,
    /// The first call that came, if it was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_call: Option<String>,
    /// What is left to do.
    next: Vec<String>,
}

/// The file that would be written, and its new text.
#[derive(Debug, Serialize)]
struct PrintedConfig {
    client: McpClient,
    file: PathBuf,
    text: String,
}

pub(super) async fn run(global: &Global, args: ConnectArgs) -> Outcome {
    let client = args.client;
    let home = Home::resolve(global.home.as_deref())
        .map_err(|error| Failure::new(ErrorCode::ConfigInvalid, format!("{error:#}")))?;
    if args.plugin {
        return plugin::run(global, &home, client, args.undo);
    }
    let keeper = InstallStore::new(home.path(), &format!("{}-connect", client.as_str()));
    if args.undo {
        return show(global, disconnect(global, client, &keeper)?);
    }
    let program = Program::this(global.home.as_deref())?;
    let (path, entry) = (client.file()?, client.entry(&program));
    let before = kept::read(&path)?;
    let text = before.clone().unwrap_or_default();
    let is_there = client.has(&path, &text, &entry)?;
    let edited = if is_there { text } else { client.edited(&path, &text, Some(&entry))? };
    if args.print {
        let printed = PrintedConfig { client, file: path, text: edited };
        if global.json {
            output::json(&printed);
        } else {
            output::note(&format!("{} would hold:", printed.file.display()));
            output::data(printed.text.trim_end());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let approvals = match args.approvals {
        None if !global.json && std::io::stdin().is_terminal() => ask_who_approves()?,
        given => given,
    };
    let mut changed = !is_there;
    if !is_there {
        keeper.change(&path, before, &edited)?;
    }
    if let Some(by) = approvals {
        changed |= match stores::url(&config::resolve(global)?) {
            Some(_) => !super::config::change_shared(global, approvals_patch(by)).await?.changed.is_empty(),
            None => set_approvals(&home, &keeper, by)?,
        };
    }
    let mut installed = None;
    if let Some(client) = client.hooks() {
        let report = hooks::install(global, client, false)?;
        changed |= report.changed;
        if report.changed {
            keeper.mark_hooks()?;
        }
        installed = Some(report);
    }
    let mut connected = Connected {
        client,
        connected: true,
        changed,
        file: path,
        backup: keeper.load()?.map(|_| keeper.path().to_owned()),
        hooks: installed.as_ref().map(|report| report.installed),
        approvals,
        first_call: None,
        next: installed.map(|report| report.problems).unwrap_or_default(),
    };
    if !args.no_wait {
        if !global.json {
            output::note(&format!("waiting for the first call from {}; Ctrl-C ends the wait", client.as_str()));
        }
        connected.first_call = first_call(global, client).await?;
    }
    show(global, connected)
}

fn show(global: &Global, connected: Connected) -> Outcome {
    if global.json {
        output::json(&connected);
        return Ok(ExitCode::SUCCESS);
    }
    let (name, file) = (connected.client.as_str(), connected.file.display());
    match (connected.connected, connected.changed) {
        (true, true) => output::data(&format!("{name} is connected ({file})")),
        (true, false) => output::data(&format!("{name} was connected already ({file})")),
        (false, true) => output::data(&format!("{name} is no longer connected ({file})")),
        (false, false) => output::data(&format!("{name} was not connected ({file})")),
    }
    if let Some(call) = &connected.first_call {
        output::data(&format!("the first call came: {call}"));
    }
    connected.next.iter().for_each(|line| output::note(line));
    Ok(ExitCode::SUCCESS)
}

fn disconnect(global: &Global, client: McpClient, keeper: &InstallStore) -> Result<Connected, Failure> {
    let kept = keeper.load()?;
    let mut changed = false;
    // In the reverse order of the installation: both may have changed the same file.
    if let Some(hooked) = client.hooks()
        && kept.as_ref().is_some_and(|kept| kept.hooks)
    {
        changed |= hooks::uninstall(global, hooked)?.changed;
    }
    let path = client.file()?;
    let put_back = keeper.put_back(|file, now| {
        if file.path == path {
            return client.edited(&file.path, now, None);
        }
        let mut document = toml::read(now).map_err(|why| unusable(&file.path, why))?;
        toml::remove(&mut document, &["mcp"], "approvals");
        Ok(document.to_string())
    })?;
    changed |= !put_back.is_empty();
    Ok(Connected {
        client,
        connected: false,
        changed,
        file: path,
        backup: None,
        hooks: client.hooks().map(|_| false),
        approvals: None,
        first_call: None,
        next: Vec::new(),
    })
}

fn ask_who_approves() -> Result<Option<ApprovalsBy>, Failure> {
    output::note(
        "Who approves what the policy asks about? client: the client's own prompt; toolyard: the console, phone or \
         channel; policy: nobody, it is refused. Enter keeps what is configured.",
    );
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| Failure::new(ErrorCode::UsageError, format!("the answer cannot be read: {error}")))?;
    match line.trim() {
        "" => Ok(None),
        word => super::input::word("approvals", word).map(Some),
    }
}

/// Who approves, as a patch of the configuration that the nodes of a cluster share.
fn approvals_patch(by: ApprovalsBy) -> Object {
    let approvals = Object::from_iter([("approvals".to_owned(), output::word(&by).into())]);
    Object::from_iter([("mcp".to_owned(), approvals.into())])
}

/// Writes who approves into `config.toml`. False where it is there already.
fn set_approvals(home: &Home, keeper: &InstallStore, by: ApprovalsBy) -> Result<bool, Failure> {
    if config::load(home)?.mcp.approvals == Some(by) {
        return Ok(false);
    }
    let path = home.config();
    let before = kept::read(&path)?;
    let wrong = |why: String| unusable(&path, why);
    let mut document = toml::read(before.as_deref().unwrap_or_default()).map_err(wrong)?;
    let table = toml::table(&mut document, &["mcp"]).map_err(wrong)?;
    table.set_implicit(false);
    table.insert("approvals", toml_edit::value(output::word(&by)));
    keeper.change(&path, before, &document.to_string())?;
    Ok(true)
}

/// Waits for a call that comes from the client: through MCP, or through its hooks.
async fn first_call(global: &Global, client: McpClient) -> Result<Option<String>, Failure> {
    let since = Timestamp::now();
    let look = async {
        loop {
            if let Some(title) = came(global, client, since).await? {
                return Ok::<_, Failure>(Some(title));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        found = look => found,
        () = tokio::time::sleep(WAIT) => Ok(None),
        ended = super::up::wait_for_signal() => ended.map(|()| None),
    }
}

async fn came(global: &Global, client: McpClient, since: Timestamp) -> Result<Option<String>, Failure> {
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let listed = RunsListParams { limit: Some(LOOKED_AT), ..RunsListParams::default() };
    let mut found = None;
    for run in backend.call::<RunsList>(&listed, None).await?.runs {
        if run.started_at < since {
            break;
        }
        let detail = backend.call::<RunsGet>(&RunParams { run_id: run.run_id }, None).await?;
        let caller = |key: &str| detail.run.caller.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_theirs = caller("door") == "mcp" || caller("door") == "hooks" && caller("agent") == client.as_str();
        if is_theirs {
            found = Some(run.title);
            break;
        }
    }
    backend.close().await;
    Ok(found)
}
