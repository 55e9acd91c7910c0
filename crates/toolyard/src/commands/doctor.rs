//! `toolyard doctor`: checks what Toolyard needs and says how to fix what is wrong.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::Global,
    config, home,
    notify::NotifyState,
    output::{self, Paint},
    plugins::PluginsList,
    shared_config::{self, VersionInfo},
    stores::{self, Opened},
    terminal::counted,
    upstreams::McpServers,
    wiring::RequiredParts,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::process::ExitCode;
use toolyard_client::local::LocalClient;
use toolyard_engine::{
    redact::redactor,
    store::{NodeRow, NodeState},
};
use toolyard_mcp::client::Health;
use toolyard_notify::{NotifyStatus, PUSH_CHANNEL};
use toolyard_protocol::{ErrorCode, Failure, RunStatus, ToolResult};
use toolyard_sandbox::launch::{KernelFeatures, hide, is_hidden};
use toolyard_service::{
    NoParams,
    cluster::DifferingNode,
    local::{ToolsCall, ToolsCallParams, YardStatus, YardStatusParams},
    proof::Verified,
    runs::{RunsList, RunsListParams, RunsVerify, VerifyParams},
};

/// The check whether scripts can be isolated.
const CODE_MODE: &str = "code mode";
/// The check of coding agents' hooks.
const HOOKS: &str = "hooks";
/// Runs that are counted.
const MAX_OPEN_RUNS: usize = 10_000;

/// Checks by name, each with what was found or what is wrong.
type Outcomes = Vec<(&'static str, Result<String, String>)>;

/// The results of all checks.
#[derive(Serialize)]
struct Checked<'a> {
    ok: bool,
    checks: &'a [Finding],
}

#[derive(Serialize)]
struct Finding {
    #[serde(rename = "check")]
    what: &'static str,
    ok: bool,
    message: String,
}

impl Finding {
    fn new(what: &'static str, outcome: Result<String, String>) -> Self {
        let (ok, message) = match outcome {
            Ok(message) => (true, message),
            Err(message) => (false, message),
        };
        Self { what, ok, message: redactor().text(&message).into_owned() }
    }
}

pub(super) async fn run(global: &Global) -> Outcome {
    let findings = match config::resolve(global) {
        Err(failure) => vec![Finding::new("configuration", Err(failure.message))],
        Ok(resolved) => look(global, &resolved).await,
    };
    let healthy = findings.iter().all(|f| f.ok);
    if global.json {
        output::json(&Checked { ok: healthy, checks: &findings });
    } else {
        let paint = Paint::stdout();
        for f in &findings {
            let mark = if f.ok { paint.green("ok") } else { paint.red("bad") };
            output::data(&format!("{mark:4} {:14} {}", f.what, f.message));
        }
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::from(output::FAILED) })
}

/// Checks everything that Toolyard needs.
async fn look(global: &Global, resolved: &config::Resolved) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |what, outcome| findings.push(Finding::new(what, outcome));
    let file = resolved.home.config();
    add(
        "configuration",
        Ok(if file.exists() { file.display().to_string() } else { "defaults (no config.toml)".to_owned() }),
    );
    add(
        "home",
        resolved.home.create().map(|()| resolved.home.path().display().to_string()).map_err(|e| format!("{e:#}")),
    );
    add("signing key", resolved.home.signer().map(|s| s.verifier().to_text()).map_err(|e| format!("{e:#}")));
    for (what, outcome) in database_findings(resolved) {
        add(what, outcome);
    }
    let vault = resolved.vault.clone();
    add(
        "vault",
        match std::fs::metadata(&vault) {
            Ok(m) if m.is_dir() => Ok(vault.display().to_string()),
            Ok(_) => Err(format!("{} is not a folder", vault.display())),
            Err(_) if vault == resolved.home.default_vault() => Ok(format!("{} (made at first use)", vault.display())),
            Err(e) => Err(format!("{}: {e}; pass --vault DIR or set vault.path", vault.display())),
        },
    );
    match LocalClient::connect(&resolved.home.socket()).await {
        Ok(Some(mut client)) => match client.call::<YardStatus>(&YardStatusParams::default(), None).await {
            Ok(status) => {
                add("running", Ok(format!("yes, pid {}", status.process.pid)));
                for DifferingNode { node, differs } in status.differing_nodes {
                    let differs = differs.join(" and ");
                    add("cluster", Err(format!("node {node} works with another {differs}: give all nodes the same")));
                }
            }
            Err(failure) => add("running", Err(failure.message)),
        },
        Ok(None) => add("running", Ok("no".to_owned())),
        Err(failure) => add("running", Err(failure.message)),
    }
    let found = store_findings(global, resolved.config.knowledge.enabled).await;
    let is_code_mode_known = found.iter().any(|(what, _)| *what == CODE_MODE);
    for (what, result) in found {
        add(what, result);
    }
    let sandbox =
        rustix::fs::open("/", rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty())
            .and_then(|root| {
                rustix::fs::openat2(
                    &root,
                    ".",
                    rustix::fs::OFlags::PATH,
                    rustix::fs::Mode::empty(),
                    rustix::fs::ResolveFlags::BENEATH,
                )
            });
    add(
        "openat2",
        match sandbox {
            Ok(_) => Ok("available: paths are confined by the kernel".to_owned()),
            Err(e) => Ok(format!("not available ({e}): paths are confined step by step")),
        },
    );
    if !is_code_mode_known {
        let probed = toolyard_sandbox::ScriptRunner::new().probe().await;
        add(CODE_MODE, Ok(code_mode(probed.err().as_deref(), "this process")));
    }
    for (what, result) in wall_findings(resolved) {
        add(what, result);
    }
    for (what, result) in hook_findings(global) {
        add(what, result);
    }
    add("user", Ok(home::user_name()));
    findings
}

/// The database that several nodes share, if there is one: whether it keeps its promises, and who works on it.
fn database_findings(resolved: &config::Resolved) -> Vec<(&'static str, Result<String, String>)> {
    let Some(url) = stores::url(resolved) else { return Vec::new() };
    let at = toolyard_postgres::describe_url(&url);
    let server = match toolyard_postgres::check_server(&url) {
        Ok(server) => server,
        Err(error) => return vec![("database", Err(format!("{at}: {error}")))],
    };
    if let Some(problem) = server.problem(resolved.config.store.allow_async_replication) {
        return vec![("database", Err(format!("{at}: {problem}")))];
    }
    let replicated = match (server.standbys, server.is_synchronous) {
        (0, _) => "no standby is connected".to_owned(),
        (standbys, true) => format!("{standbys} standbys, synchronous"),
        (standbys, false) => format!("warning: {standbys} standbys, asynchronous: a failover loses acknowledged calls"),
    };
    let mut findings = vec![("database", Ok(format!("{at}: PostgreSQL {}, {replicated}", server.version)))];
    findings.push((
        "cluster secret",
        Ok(match &resolved.config.store.secret_file {
            Some(file) => format!("in {}, apart from the database", file.display()),
            None => "warning: in the database, so anybody who can read the database can sign as this cluster; set \
                     store.secretFile on every node before the first start to keep it outside the database"
                .to_owned(),
        }),
    ));
    match stores::open(resolved).and_then(|opened| cluster_findings(resolved, &opened)) {
        Err(failure) => findings.push(("nodes", Err(failure.message))),
        Ok(found) => findings.extend(found),
    }
    findings
}

/// The nodes of a cluster, and the configuration that they share.
fn cluster_findings(resolved: &config::Resolved, opened: &Opened) -> Result<Outcomes, Failure> {
    let nodes = opened.store.nodes()?;
    let count = |state| nodes.iter().filter(|node| node.state == state).count();
    let (live, draining, dead) = (count(NodeState::Live), count(NodeState::Draining), count(NodeState::Dead));
    let mut findings = vec![("nodes", Ok(format!("{live} live, {draining} draining, {dead} dead")))];
    let Some(facts) = &opened.facts else { return Ok(findings) };
    let Some((newest, ignored)) = shared_config::compared(resolved, facts.clone())? else { return Ok(findings) };
    let VersionInfo { version, at, by, .. } = newest;
    findings.push(("shared config", Ok(format!("version {version}, made {at} by {by}"))));
    if !ignored.is_empty() {
        let keys = ignored.join(", ");
        let what = format!(
            "warning: config.toml sets these differently than version {version}, which is used: {keys}; remove them, or \
             make them the cluster's with `toolyard config push`"
        );
        findings.push(("shared config", Ok(what)));
    }
    for (node, in_use) in shared_config::of_nodes(&**facts)? {
        let is_this = |row: &NodeRow| row.owner.node == node && row.owner.epoch == in_use.epoch;
        if !nodes.iter().any(|row| is_this(row) && row.state != NodeState::Dead) {
            continue;
        }
        if let Some(problem) = in_use.problem {
            findings
                .push(("shared config", Err(format!("node {node} works with version {}: {problem}", in_use.version))));
        } else if !in_use.needs_restart.is_empty() {
            let keys = in_use.needs_restart.join(", ");
            findings.push(("shared config", Ok(format!("warning: node {node} uses these after a restart: {keys}"))));
        }
    }
    Ok(findings)
}

/// Hooks of coding agents that are installed and do not work, with what to do about it.
fn hook_findings(global: &Global) -> Vec<(&'static str, Result<String, String>)> {
    let mut findings = Vec::new();
    for client in toolyard_hooks::Client::WITH_SETTINGS {
        match super::hooks::status(global, client, true) {
            // A client without our hooks is none of Toolyard's business.
            Ok(report) if !report.installed && report.problems.is_empty() => {}
            Ok(report) if report.problems.is_empty() => findings.push((HOOKS, Ok(format!("{client}: installed")))),
            Ok(report) => {
                findings.extend(report.problems.into_iter().map(|problem| (HOOKS, Err(format!("{client}: {problem}")))))
            }
            Err(failure) => findings.push((HOOKS, Err(failure.message))),
        }
    }
    findings
}

/// The sandbox features that this kernel has, those it lacks, and the programs that run without a sandbox.
fn wall_findings(resolved: &config::Resolved) -> Vec<(&'static str, Result<String, String>)> {
    hide(resolved.home.hidden_from_programs());
    let walls = KernelFeatures::here();
    let mut findings = vec![("walls", if walls.suffice() { Ok(walls.summary()) } else { Err(walls.summary()) })];
    for missing in &walls.missing {
        findings.push(("missing wall", Ok(format!("{}: {}", missing.wall, missing.consequence))));
    }
    if resolved.config.plugins.sandbox == toolyard_plugins::SandboxMode::Off {
        findings.push(("plugins", Ok("warning: plugins.sandbox is off, plugins run without a sandbox".to_owned())));
    }
    for (name, server) in resolved.config.mcp.servers.iter().filter(|(_, server)| server.enabled) {
        let grants = server.confinement().into_iter().flat_map(|walls| walls.read.iter().chain(&walls.write));
        for path in grants.map(|path| config::expand(path)).filter(|path| is_hidden(path)) {
            let what = format!("{name}: {} is granted, and belongs to Toolyard's own keys", path.display());
            findings.push(("mcp servers", Err(what)));
        }
        if server.command.is_some() && server.sandbox.is_none() {
            let what = format!("warning: {name} runs without a sandbox; set mcp.servers.{name}.sandbox");
            findings.push(("mcp servers", Ok(what)));
        }
    }
    findings
}

/// Opens the store for real, reads from it, checks the ledger, and asks for the status of the notes' index.
async fn store_findings(global: &Global, has_notes: bool) -> Vec<(&'static str, Result<String, String>)> {
    let mut backend = match Backend::open(global, RequiredParts::Store).await {
        Ok(backend) => backend,
        Err(failure) => return vec![("store", Err(failure.message))],
    };
    let mut findings = Vec::new();
    let open = RunsListParams {
        status: vec![RunStatus::Running, RunStatus::Paused],
        limit: Some(MAX_OPEN_RUNS),
        ..RunsListParams::default()
    };
    match backend.call::<RunsList>(&open, None).await {
        Ok(answer) => {
            let paused = answer.runs.iter().filter(|run| run.status == RunStatus::Paused).count();
            let open = answer.runs.len();
            findings.push(("store", Ok(format!("{} not ended, {paused} waiting for a person", counted(open, "run")))));
        }
        Err(failure) => findings.push(("store", Err(failure.message))),
    }
    findings.push((
        "ledger",
        match backend.call::<RunsVerify>(&VerifyParams::default(), None).await {
            Ok(Verified::Ledger(report)) if report.ok => {
                Ok(format!("{} entries, {} runs", report.entries, report.runs))
            }
            Ok(report) => Err(match serde_json::to_string(&report) {
                Ok(report) => format!("does not verify: {report}"),
                Err(error) => format!("does not verify, and the report cannot be written: {error}"),
            }),
            Err(failure) => Err(failure.message),
        },
    ));
    findings.extend(isolation(&mut backend).await.map(|found| (CODE_MODE, Ok(found))));
    if let Ok(answer) = backend.call::<McpServers>(&NoParams {}, None).await {
        let states = answer.servers.into_iter().map(|server| State {
            why: server.error.or(server.left_out.into_iter().next().map(|left| left.reason)),
            name: server.name,
            status: server.status,
        });
        findings.extend(others("mcp servers", states.collect()));
    }
    if let Ok(answer) = backend.call::<PluginsList>(&NoParams {}, None).await {
        let used = answer.plugins.into_iter().filter(|p| p.enabled || p.status == Health::Unavailable);
        let states = used.map(|plugin| State {
            why: plugin.problems.into_iter().next().or(plugin.left_out.into_iter().next().map(|left| left.reason)),
            name: plugin.id,
            status: plugin.status,
        });
        findings.extend(others("plugins", states.collect()));
    }
    if let Ok(status) = backend.call::<NotifyState>(&NoParams {}, None).await {
        findings.extend(notifications(&status));
    }
    if has_notes {
        let asked = ToolsCallParams { name: "obsidian_rag_status".to_owned(), ..ToolsCallParams::default() };
        match backend.call::<ToolsCall>(&asked, None).await {
            Ok(answer) => findings.extend(notes(&answer.result)),
            Err(failure) => findings.push(("notes", Err(failure.message))),
        }
    }
    backend.close().await;
    findings
}

/// The channels that work, and what is wrong with those that do not.
fn notifications(status: &NotifyStatus) -> Vec<(&'static str, Result<String, String>)> {
    let used = status.channels.iter().filter(|channel| channel.name != PUSH_CHANNEL || status.subscriptions > 0);
    let mut findings = Vec::new();
    for channel in used {
        let trouble = channel.problem.clone().or(channel.last_error.as_ref().map(|error| error.message.clone()));
        let name = &channel.name;
        findings.push(match trouble {
            None => ("notify", Ok(format!("{name}: {} sent to {}", channel.sent, channel.to))),
            Some(why) => {
                ("notify", Err(format!("{name}: {why}; {} failed. Try `toolyard notify test {name}`", channel.failed)))
            }
        });
    }
    findings
}

/// The fields of the search tool's answer that are used here.
#[derive(Deserialize)]
struct Searched {
    surface: SearchedSurface,
}

#[derive(Deserialize)]
struct SearchedSurface {
    notice: Option<String>,
}

/// What the process that runs scripts found about isolating them; `None` where the policy lets nobody ask. A service may be
/// confined in ways that this command is not, so the running process is asked, and not this one.
async fn isolation(backend: &mut Backend) -> Option<String> {
    let whose = if backend.is_remote() { "the running process" } else { "this process" };
    let args = [("query", "isolation"), ("mode", "code")].map(|(name, word)| (name.to_owned(), Value::from(word)));
    let asked = ToolsCallParams {
        name: "tool_search".to_owned(),
        args: args.into_iter().collect(),
        ..ToolsCallParams::default()
    };
    let data = backend.call::<ToolsCall>(&asked, None).await.ok()?.result.into_parts().data?;
    let searched = Searched::deserialize(Value::Object(data)).ok()?;
    Some(code_mode(searched.surface.notice.as_deref(), whose))
}

fn code_mode(problem: Option<&str>, whose: &str) -> String {
    match problem {
        None => format!("available: {whose} runs scripts under Landlock, seccomp and resource limits"),
        Some(problem) => format!("off, tools mode is used instead; {whose} found: {problem}"),
    }
}

/// The fields of the notes' status answer that are used here.
#[derive(Deserialize)]
struct NotesEnvelope {
    status: String,
    data: Option<NotesState>,
    error: Option<NotesProblem>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NotesState {
    total_docs: u64,
    total_chunks: u64,
    embedder: EmbedderState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EmbedderState {
    id: Option<String>,
    status: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NotesProblem {
    code: String,
    message: String,
    suggestion: String,
}

/// The notes' index, which is opened and looked through, the embedder and the vault, as the status tool reports them.
fn notes(result: &ToolResult) -> Vec<(&'static str, Result<String, String>)> {
    let envelope = result.data.clone().map(|data| NotesEnvelope::deserialize(Value::Object(data)));
    let envelope = match envelope {
        Some(Ok(envelope)) => envelope,
        Some(Err(error)) => return vec![("notes", Err(format!("the answer cannot be read: {error}")))],
        None => {
            let error = result.error.as_ref();
            let why = error.map_or_else(|| "no answer".to_owned(), |error| error.message.clone());
            // A status call that the policy denies is not a fault of the index.
            let is_denied = error.is_some_and(|error| error.code == ErrorCode::PolicyDenied);
            return vec![("notes", if is_denied { Ok(why) } else { Err(why) })];
        }
    };
    let (data, error) = (envelope.data.unwrap_or_default(), envelope.error.unwrap_or_default());
    let problem = format!("{} {}", error.message, error.suggestion);
    let index = match (envelope.status.as_str(), error.code.as_str()) {
        ("healthy", _) => Ok(format!(
            "{} in {} can be searched",
            counted(data.total_docs, "note"),
            counted(data.total_chunks, "chunk")
        )),
        // An index is optional.
        (_, "INDEX_NOT_FOUND") | ("degraded", _) => Ok(problem),
        _ => Err(problem),
    };
    let embedder = match data.embedder.status.as_str() {
        "up" => Ok(data.embedder.id.unwrap_or_default()),
        "none" => Ok("none: notes are found by words".to_owned()),
        _ => Err("does not answer; until it does notes are found by words. See knowledge.embedding".to_owned()),
    };
    vec![("notes", index), ("embedder", embedder)]
}

/// The state of a plugin or an upstream server.
struct State {
    name: String,
    status: Health,
    why: Option<String>,
}

/// Plugins or upstream servers: how many work, and the problems of the others.
fn others(what: &'static str, used: Vec<State>) -> Vec<(&'static str, Result<String, String>)> {
    if used.is_empty() {
        return Vec::new();
    }
    let well = used.iter().filter(|one| one.status == Health::Healthy).count();
    let mut findings = vec![(what, Ok(format!("{well} of {} healthy", used.len())))];
    for one in used.iter().filter(|one| one.status != Health::Healthy) {
        let why = one.why.as_deref().unwrap_or("see its list");
        let text = format!("{}: {}, {why}", one.name, one.status.as_str());
        findings.push((what, if one.status == Health::Unavailable { Err(text) } else { Ok(text) }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result(outcome: Value) -> ToolResult {
        let mut result = json!({
            "callId": "0193cf0e-0000-7000-8000-000000000001", "runId": "0193cf0e-0000-7000-8000-000000000002",
            "stepId": "s", "tool": "obsidian_rag_status", "attempt": 1, "startedAt": "2025-12-16T18:12:01Z",
            "endedAt": "2025-12-16T18:12:01Z", "durationMs": 1,
        });
        for (name, value) in outcome.as_object().unwrap() {
            result[name] = value.clone();
        }
        serde_json::from_value(result).unwrap()
    }

    fn told(status: &str, code: &str, embedder: &str) -> Vec<bool> {
        let error = json!({"code": code, "message": "It is so.", "suggestion": "Do that."});
        let data = json!({"total_docs": 3, "total_chunks": 9, "embedder": {"id": "static/x", "status": embedder}});
        let data = json!({"status": status, "data": data, "error": error});
        notes(&result(json!({"status": "ok", "ok": true, "data": data})))
            .iter()
            .map(|(_, found)| found.is_ok())
            .collect()
    }

    fn failed(code: &str) -> Vec<(&'static str, Result<String, String>)> {
        notes(&result(json!({"status": "error", "ok": false, "error": {"code": code, "message": "why"}})))
    }

    #[test]
    fn a_damaged_index_and_a_silent_embedder_are_bad_and_a_missing_index_is_not() {
        assert_eq!(told("healthy", "", "up"), [true, true]);
        assert_eq!(told("unavailable", "INDEX_NOT_FOUND", "none"), [true, true]);
        assert_eq!(told("unavailable", "INDEX_CORRUPTED", "up"), [false, true]);
        assert_eq!(told("unavailable", "VAULT_UNAVAILABLE", "up"), [false, true]);
        assert_eq!(told("degraded", "OLLAMA_UNREACHABLE", "down"), [true, false]);
        assert_eq!(failed("INTERNAL_ERROR"), [("notes", Err("why".to_owned()))]);
        assert_eq!(failed("POLICY_DENIED"), [("notes", Ok("why".to_owned()))]);
    }
}
