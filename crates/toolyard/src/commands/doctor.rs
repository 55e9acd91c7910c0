//! `toolyard doctor`: look at everything Toolyard needs and say what to do about what is wrong.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::Global,
    config, home,
    output::{self, Paint},
    plugins::PluginsList,
    upstreams::McpServers,
    wiring::Needs,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::process::ExitCode;
use toolyard_client::local::LocalClient;
use toolyard_engine::redact::redactor;
use toolyard_mcp::client::Health;
use toolyard_protocol::{ErrorCode, RunStatus, ToolResult};
use toolyard_sandbox::launch::{Walls, hide, is_hidden};
use toolyard_service::{
    NoParams,
    local::{ToolsCall, ToolsCallParams, YardStatus, YardStatusParams},
    proof::Verified,
    runs::{RunsList, RunsListParams, RunsVerify, VerifyParams},
};

/// The check whether scripts can be isolated.
const CODE_MODE: &str = "code mode";
/// Runs that are counted.
const MAX_OPEN_RUNS: usize = 10_000;

/// Everything that was looked at.
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

/// Looks at everything that a Toolyard needs.
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
        Ok(Some(mut client)) => add(
            "running",
            match client.call::<YardStatus>(&YardStatusParams::default(), None).await {
                Ok(status) => Ok(format!("yes, pid {}", status.process.pid)),
                Err(failure) => Err(failure.message),
            },
        ),
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
    add("user", Ok(home::user_name()));
    findings
}

/// The walls that this kernel has, those it lacks, and what runs without any.
fn wall_findings(resolved: &config::Resolved) -> Vec<(&'static str, Result<String, String>)> {
    hide(resolved.home.hidden_from_programs());
    let walls = Walls::here();
    let mut findings = vec![("walls", if walls.suffice() { Ok(walls.summary()) } else { Err(walls.summary()) })];
    for missing in &walls.missing {
        findings.push(("missing wall", Ok(format!("{}: {}", missing.wall, missing.consequence))));
    }
    if resolved.config.plugins.sandbox == toolyard_plugins::SandboxMode::Off {
        findings.push(("plugins", Ok("warning: plugins.sandbox is off, plugins run without walls".to_owned())));
    }
    for (name, server) in resolved.config.mcp.servers.iter().filter(|(_, server)| server.enabled) {
        let grants = server.confinement().into_iter().flat_map(|walls| walls.read.iter().chain(&walls.write));
        for path in grants.map(|path| config::expand(path)).filter(|path| is_hidden(path)) {
            let what = format!("{name}: {} is granted, and belongs to Toolyard's own keys", path.display());
            findings.push(("mcp servers", Err(what)));
        }
        if server.command.is_some() && server.sandbox.is_none() {
            let what = format!("warning: {name} runs without walls; set mcp.servers.{name}.sandbox");
            findings.push(("mcp servers", Ok(what)));
        }
    }
    findings
}

/// Opens the store for real, reads from it, checks the ledger, and asks the notes how they stand.
async fn store_findings(global: &Global, has_notes: bool) -> Vec<(&'static str, Result<String, String>)> {
    let mut backend = match Backend::open(global, Needs::Store).await {
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
            findings.push(("store", Ok(format!("{open} runs not ended, {paused} waiting for a person"))));
        }
        Err(failure) => findings.push(("store", Err(failure.message))),
    }
    findings.push((
        "ledger",
        match backend.call::<RunsVerify>(&VerifyParams::default(), None).await {
            Ok(Verified::Ledger(report)) if report.ok => {
                Ok(format!("{} entries, {} runs", report.entries, report.runs))
            }
            Ok(report) => Err(format!("does not verify: {}", serde_json::to_string(&report).unwrap_or_default())),
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

/// What the search tool answers, as far as it is looked at here.
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

/// What the status tool of the notes answers, as far as it is looked at here.
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

/// The notes' index, which is opened and looked through, the embedder and the vault, as the status tool tells them.
fn notes(result: &ToolResult) -> Vec<(&'static str, Result<String, String>)> {
    let envelope = result.data.clone().map(|data| NotesEnvelope::deserialize(Value::Object(data)));
    let envelope = match envelope {
        Some(Ok(envelope)) => envelope,
        Some(Err(error)) => return vec![("notes", Err(format!("the answer cannot be read: {error}")))],
        None => {
            let error = result.error.as_ref();
            let why = error.map_or_else(|| "no answer".to_owned(), |error| error.message.clone());
            // What a policy keeps from being asked is not broken.
            let is_denied = error.is_some_and(|error| error.code == ErrorCode::PolicyDenied);
            return vec![("notes", if is_denied { Ok(why) } else { Err(why) })];
        }
    };
    let (data, error) = (envelope.data.unwrap_or_default(), envelope.error.unwrap_or_default());
    let problem = format!("{} {}", error.message, error.suggestion);
    let index = match (envelope.status.as_str(), error.code.as_str()) {
        ("healthy", _) => Ok(format!("{} notes in {} chunks can be searched", data.total_docs, data.total_chunks)),
        // Nobody has to have an index.
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

/// How a plugin or an upstream server is.
struct State {
    name: String,
    status: Health,
    why: Option<String>,
}

/// What others bring: how many work, and what is wrong with those that do not.
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
