//! `toolyard doctor`: look at everything Toolyard needs and say what to do about what is wrong.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::Global,
    config, home,
    output::{self, Paint},
    wiring::Needs,
};
use serde_json::{Value, json};
use std::process::ExitCode;
use toolyard_engine::redact::redactor;
use toolyard_gateway::local::Client;
use toolyard_protocol::ErrorCode;
use toolyard_sandbox::launch::{Walls, hide, is_hidden};

/// The check whether scripts can be isolated.
const CODE_MODE: &str = "code mode";

struct Finding {
    what: &'static str,
    ok: bool,
    message: String,
}

pub(super) async fn run(global: &Global) -> Outcome {
    let mut findings = Vec::new();
    let mut add = |what, outcome: Result<String, String>| {
        let (ok, message) = match outcome {
            Ok(message) => (true, message),
            Err(message) => (false, message),
        };
        let message = redactor().text(&message).into_owned();
        findings.push(Finding { what, ok, message });
    };
    match config::resolve(global) {
        Err(failure) => add("configuration", Err(failure.message)),
        Ok(resolved) => {
            let file = resolved.home.config();
            add(
                "configuration",
                Ok(if file.exists() { file.display().to_string() } else { "defaults (no config.toml)".to_owned() }),
            );
            add(
                "home",
                resolved
                    .home
                    .create()
                    .map(|()| resolved.home.path().display().to_string())
                    .map_err(|e| format!("{e:#}")),
            );
            add("signing key", resolved.home.signer().map(|s| s.verifier().to_text()).map_err(|e| format!("{e:#}")));
            let vault = resolved.vault.clone();
            add(
                "vault",
                match std::fs::metadata(&vault) {
                    Ok(m) if m.is_dir() => Ok(vault.display().to_string()),
                    Ok(_) => Err(format!("{} is not a folder", vault.display())),
                    Err(_) if vault == resolved.home.default_vault() => {
                        Ok(format!("{} (made at first use)", vault.display()))
                    }
                    Err(e) => Err(format!("{}: {e}; pass --vault DIR or set vault.path", vault.display())),
                },
            );
            match Client::connect(&resolved.home.socket()).await {
                Ok(Some(mut client)) => add(
                    "running",
                    match client.call("status", json!({}), None).await {
                        Ok(status) => Ok(format!("yes, pid {}", status["pid"])),
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
            let sandbox = rustix::fs::open(
                "/",
                rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY,
                rustix::fs::Mode::empty(),
            )
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
            for (what, result) in wall_findings(&resolved) {
                add(what, result);
            }
            add("user", Ok(home::user_name()));
        }
    }
    let healthy = findings.iter().all(|f| f.ok);
    if global.json {
        let all: Vec<Value> =
            findings.iter().map(|f| json!({"check": f.what, "ok": f.ok, "message": f.message})).collect();
        output::json(&json!({"ok": healthy, "checks": all}));
    } else {
        let paint = Paint::stdout();
        for f in &findings {
            let mark = if f.ok { paint.green("ok") } else { paint.red("bad") };
            output::data(&format!("{mark:4} {:14} {}", f.what, f.message));
        }
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::from(output::FAILED) })
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
    match backend.call("runs.list", json!({"limit": 10_000, "status": ["running", "paused"]}), None).await {
        Ok(answer) => {
            let open = answer["runs"].as_array().cloned().unwrap_or_default();
            let paused = open.iter().filter(|r| r["status"] == "paused").count();
            findings.push(("store", Ok(format!("{} runs not ended, {paused} waiting for a person", open.len()))));
        }
        Err(failure) => findings.push(("store", Err(failure.message))),
    }
    findings.push((
        "ledger",
        match backend.call("runs.verify", json!({}), None).await {
            Ok(report) if report["ok"] == true => Ok(format!("{} entries, {} runs", report["entries"], report["runs"])),
            Ok(report) => Err(format!("does not verify: {report}")),
            Err(failure) => Err(failure.message),
        },
    ));
    findings.extend(isolation(&mut backend).await.map(|found| (CODE_MODE, Ok(found))));
    for (method, what, key) in [("mcp.servers", "mcp servers", "servers"), ("plugins.list", "plugins", "plugins")] {
        if let Ok(answer) = backend.call(method, json!({}), None).await {
            findings.extend(others(what, answer[key].as_array().map(Vec::as_slice).unwrap_or_default()));
        }
    }
    if has_notes {
        let asked = json!({"name": "obsidian_rag_status", "args": {}});
        match backend.call("tools.call", asked, None).await {
            Ok(answer) => findings.extend(notes(&answer["result"])),
            Err(failure) => findings.push(("notes", Err(failure.message))),
        }
    }
    backend.close().await;
    findings
}

/// What the process that runs scripts found about isolating them; `None` where the policy lets nobody ask. A service may be
/// confined in ways that this command is not, so the running process is asked, and not this one.
async fn isolation(backend: &mut Backend) -> Option<String> {
    let whose = if backend.is_remote() { "the running process" } else { "this process" };
    let asked = json!({"name": "tool_search", "args": {"query": "isolation", "mode": "code"}});
    let answer = backend.call("tools.call", asked, None).await.ok()?;
    let surface = answer["result"]["data"]["surface"].as_object()?;
    Some(code_mode(surface.get("notice").and_then(Value::as_str), whose))
}

fn code_mode(problem: Option<&str>, whose: &str) -> String {
    match problem {
        None => format!("available: {whose} runs scripts under Landlock, seccomp and resource limits"),
        Some(problem) => format!("off, tools mode is used instead; {whose} found: {problem}"),
    }
}

/// The notes' index, which is opened and looked through, the embedder and the vault, as the status tool tells them.
fn notes(result: &Value) -> Vec<(&'static str, Result<String, String>)> {
    let envelope = &result["data"];
    if envelope.is_null() {
        let why = result["error"]["message"].as_str().unwrap_or("no answer").to_owned();
        // What a policy keeps from being asked is not broken.
        let is_denied = result["error"]["code"] == ErrorCode::PolicyDenied.as_str();
        return vec![("notes", if is_denied { Ok(why) } else { Err(why) })];
    }
    let (data, error) = (&envelope["data"], &envelope["error"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let problem = format!("{} {}", text(&error["message"]), text(&error["suggestion"]));
    let index = match (envelope["status"].as_str(), error["code"].as_str()) {
        (Some("healthy"), _) => {
            Ok(format!("{} notes in {} chunks can be searched", data["total_docs"], data["total_chunks"]))
        }
        // Nobody has to have an index.
        (_, Some("INDEX_NOT_FOUND")) | (Some("degraded"), _) => Ok(problem),
        _ => Err(problem),
    };
    let embedder = &data["embedder"];
    let embedder = match embedder["status"].as_str() {
        Some("up") => Ok(text(&embedder["id"])),
        Some("none") => Ok("none: notes are found by words".to_owned()),
        _ => Err("does not answer; until it does notes are found by words. See knowledge.embedding".to_owned()),
    };
    vec![("notes", index), ("embedder", embedder)]
}

/// What others bring: how many work, and what is wrong with those that do not.
fn others(what: &'static str, all: &[Value]) -> Vec<(&'static str, Result<String, String>)> {
    let is_used = |one: &&Value| one["enabled"] != false || one["status"] == "unavailable";
    let used: Vec<&Value> = all.iter().filter(is_used).collect();
    if used.is_empty() {
        return Vec::new();
    }
    let well = used.iter().filter(|one| one["status"] == "healthy").count();
    let mut findings = vec![(what, Ok(format!("{well} of {} healthy", used.len())))];
    for one in used.iter().filter(|one| one["status"] != "healthy") {
        let name = one["id"].as_str().or(one["name"].as_str()).unwrap_or_default();
        let why = one["error"].as_str().or(one["problems"][0].as_str()).or(one["leftOut"][0]["reason"].as_str());
        let text = format!("{name}: {}, {}", one["status"].as_str().unwrap_or_default(), why.unwrap_or("see its list"));
        findings.push((what, if one["status"] == "unavailable" { Err(text) } else { Ok(text) }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: &str, code: &str, embedder: &str) -> Vec<bool> {
        let error = json!({"code": code, "message": "It is so.", "suggestion": "Do that."});
        let data = json!({"total_docs": 3, "total_chunks": 9, "embedder": {"id": "static/x", "status": embedder}});
        let result = json!({"data": {"status": status, "data": data, "error": error}});
        notes(&result).iter().map(|(_, found)| found.is_ok()).collect()
    }

    #[test]
    fn a_damaged_index_and_a_silent_embedder_are_bad_and_a_missing_index_is_not() {
        assert_eq!(told("healthy", "", "up"), [true, true]);
        assert_eq!(told("unavailable", "INDEX_NOT_FOUND", "none"), [true, true]);
        assert_eq!(told("unavailable", "INDEX_CORRUPTED", "up"), [false, true]);
        assert_eq!(told("unavailable", "VAULT_UNAVAILABLE", "up"), [false, true]);
        assert_eq!(told("degraded", "OLLAMA_UNREACHABLE", "down"), [true, false]);
        let failed = notes(&json!({"error": {"code": "INTERNAL_ERROR", "message": "why"}}));
        assert_eq!(failed, [("notes", Err("why".to_owned()))]);
        let denied = notes(&json!({"error": {"code": "POLICY_DENIED", "message": "why"}}));
        assert_eq!(denied, [("notes", Ok("why".to_owned()))]);
    }
}
