//! `toolyard mcp approve`: shows what changed in the definitions that are held back, and approves those that a person has
//! seen, each by its hash.

use super::{Outcome, input};
use crate::{
    backend::Backend,
    cli::Global,
    output::{self, Paint},
    wiring::Needs,
};
use serde_json::{Value, json};
use std::process::ExitCode;
use toolyard_protocol::{ErrorCode, Failure};

/// Digits of a hash that tell it from others.
const MIN_DIGITS: usize = 12;

pub(super) async fn run(global: &Global, server: &str, tools: &[String], hashes: &[String]) -> Outcome {
    let mut backend = Backend::open(global, Needs::Store).await?;
    let outcome = approve(global, &mut backend, server, tools, hashes).await;
    backend.close().await;
    outcome
}

async fn approve(global: &Global, backend: &mut Backend, server: &str, tools: &[String], hashes: &[String]) -> Outcome {
    let held = held_back(backend, server, tools).await?;
    let chosen = if hashes.is_empty() { held.clone() } else { named(&held, hashes, server)? };
    if !global.json {
        chosen.iter().for_each(show);
    }
    if hashes.is_empty() && !chosen.is_empty() && (global.json || !input::can_ask()) {
        if global.json {
            output::json(&json!({"approved": [], "withheld": chosen}));
        } else {
            output::note(&format!(
                "nothing is approved; run `toolyard mcp approve {server} --hash HASH` for each of these"
            ));
        }
        return Ok(ExitCode::FAILURE);
    }
    let is_seen = !hashes.is_empty() || chosen.is_empty();
    if !is_seen && !input::ask(&format!("Approve these {} definitions of {server}?", chosen.len())) {
        output::note("nothing is approved");
        return Ok(ExitCode::FAILURE);
    }
    let approved = if chosen.is_empty() {
        json!({"approved": []})
    } else {
        let definitions: Vec<Value> = chosen.iter().map(|w| json!({"tool": w["tool"], "hash": w["hash"]})).collect();
        backend.call("mcp.approve", json!({"server": server, "definitions": definitions}), None).await?
    };
    if global.json {
        output::json(&approved);
        return Ok(ExitCode::SUCCESS);
    }
    if chosen.is_empty() {
        output::data(&format!("{server} holds nothing back"));
    }
    for tool in approved["approved"].as_array().into_iter().flatten() {
        let text = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
        output::data(&format!("approved {} {}", text("tool"), text("hash")));
    }
    Ok(ExitCode::SUCCESS)
}

/// What a server holds back, of the tools that are named or of all.
async fn held_back(backend: &mut Backend, server: &str, tools: &[String]) -> Result<Vec<Value>, Failure> {
    let answer = backend.call("mcp.servers", json!({}), None).await?;
    let servers = answer["servers"].as_array().cloned().unwrap_or_default();
    let Some(found) = servers.iter().find(|s| s["name"] == server) else {
        return Err(Failure::new(ErrorCode::NotFound, format!("there is no MCP server {server:?}"))
            .suggest("`toolyard mcp servers` lists them."));
    };
    let held = found["withheld"].as_array().cloned().unwrap_or_default();
    if let Some(missing) = tools.iter().find(|tool| !held.iter().any(|w| w["tool"] == tool.as_str())) {
        return Err(Failure::new(ErrorCode::NotFound, format!("{server} holds back no tool {missing:?}"))
            .suggest("`toolyard mcp servers` lists what is held back."));
    }
    let is_named = |w: &Value| tools.is_empty() || tools.iter().any(|tool| w["tool"] == tool.as_str());
    Ok(held.into_iter().filter(is_named).collect())
}

/// The definitions whose hashes were named. All must be there: one that is not has changed since it was shown.
fn named(held: &[Value], hashes: &[String], server: &str) -> Result<Vec<Value>, Failure> {
    hashes
        .iter()
        .map(|hash| {
            let digits = hash.strip_prefix("sha256:").unwrap_or(hash);
            if digits.len() < MIN_DIGITS {
                let message = format!("--hash {hash} is too short; give {MIN_DIGITS} digits or more");
                return Err(Failure::new(ErrorCode::UsageError, message));
            }
            let fits = |w: &&Value| {
                w["hash"].as_str().and_then(|h| h.strip_prefix("sha256:")).is_some_and(|h| h.starts_with(digits))
            };
            held.iter().find(fits).cloned().ok_or_else(|| {
                let message = format!("{server} holds back no definition with the hash {hash}");
                Failure::new(ErrorCode::PreconditionFailed, message).suggest(format!(
                    "It may have changed since it was shown. Look again with `toolyard mcp approve {server}`."
                ))
            })
        })
        .collect()
}

fn show(held: &Value) {
    let paint = Paint::stdout();
    let text = |key: &str| held[key].as_str().unwrap_or_default();
    let why = match text("why") {
        "approved-in-part" => "approved by an earlier version, whose hash did not cover all of it",
        other => other,
    };
    output::data(&format!("{} ({why})\n{}", text("tool"), text("hash")));
    for line in text("diff").lines() {
        output::data(&match line.as_bytes().first() {
            Some(b'+') => paint.green(line),
            Some(b'-') => paint.red(line),
            _ => line.to_owned(),
        });
    }
}
