//! `toolyard mcp approve`: shows what changed in the definitions that are held back, and approves those that a person has
//! seen, each by its hash.

use super::{Outcome, input};
use crate::{
    backend::Backend,
    cli::Global,
    output::{self, Paint},
    upstreams::{ApproveParams, ApprovedDefinitions, McpApprove, McpServers},
    wiring::RequiredParts,
};
use serde::Serialize;
use std::process::ExitCode;
use toolyard_mcp::client::{ShownDefinition, WithheldReason, WithheldTool};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::NoParams;

/// Number of digits of a hash that are enough to identify it.
const MIN_DIGITS: usize = 12;

pub(super) async fn run(global: &Global, server: &str, tools: &[String], hashes: &[String]) -> Outcome {
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
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
            output::json(&NothingApproved { approved: [], withheld: &chosen });
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
        ApprovedDefinitions::default()
    } else {
        let shown = |held: &WithheldTool| ShownDefinition { tool: held.tool.clone(), hash: held.hash.clone() };
        let params = ApproveParams { server: server.to_owned(), definitions: chosen.iter().map(shown).collect() };
        backend.call::<McpApprove>(&params, None).await?
    };
    if global.json {
        output::json(&approved);
        return Ok(ExitCode::SUCCESS);
    }
    if chosen.is_empty() {
        output::data(&format!("{server} holds nothing back"));
    }
    for definition in &approved.approved {
        output::data(&format!("approved {} {}", definition.tool, definition.hash));
    }
    Ok(ExitCode::SUCCESS)
}

/// The answer where a person must look first.
#[derive(Serialize)]
struct NothingApproved<'a> {
    approved: [&'a str; 0],
    withheld: &'a [WithheldTool],
}

/// What a server holds back, of the tools that are named or of all.
async fn held_back(backend: &mut Backend, server: &str, tools: &[String]) -> Result<Vec<WithheldTool>, Failure> {
    let servers = backend.call::<McpServers>(&NoParams {}, None).await?.servers;
    let Some(found) = servers.into_iter().find(|status| status.name == server) else {
        return Err(Failure::new(ErrorCode::NotFound, format!("there is no MCP server {server:?}"))
            .suggest("`toolyard mcp servers` lists them."));
    };
    let held = found.withheld;
    if let Some(missing) = tools.iter().find(|tool| !held.iter().any(|held| held.tool == **tool)) {
        return Err(Failure::new(ErrorCode::NotFound, format!("{server} has no withheld tool {missing:?}"))
            .suggest("`toolyard mcp servers` lists the withheld tools."));
    }
    Ok(held.into_iter().filter(|held| tools.is_empty() || tools.contains(&held.tool)).collect())
}

/// The definitions whose hashes were named. All must be there: one that is not has changed since it was shown.
fn named(held: &[WithheldTool], hashes: &[String], server: &str) -> Result<Vec<WithheldTool>, Failure> {
    hashes
        .iter()
        .map(|hash| {
            let digits = hash.strip_prefix("sha256:").unwrap_or(hash);
            if digits.len() < MIN_DIGITS {
                let message = format!("--hash {hash} is too short; give {MIN_DIGITS} digits or more");
                return Err(Failure::new(ErrorCode::UsageError, message));
            }
            let fits =
                |held: &&WithheldTool| held.hash.strip_prefix("sha256:").is_some_and(|own| own.starts_with(digits));
            held.iter().find(fits).cloned().ok_or_else(|| {
                let message = format!("{server} holds back no definition with the hash {hash}");
                Failure::new(ErrorCode::PreconditionFailed, message).suggest(format!(
                    "It may have changed since it was shown. Look again with `toolyard mcp approve {server}`."
                ))
            })
        })
        .collect()
}

fn show(held: &WithheldTool) {
    let paint = Paint::stdout();
    let why = match held.why {
        WithheldReason::ApprovedInPart => "approved by an earlier version, whose hash did not cover all of it",
        other => other.as_str(),
    };
    output::data(&format!("{} ({why})\n{}", held.tool, held.hash));
    for line in held.diff.lines() {
        output::data(&match line.as_bytes().first() {
            Some(b'+') => paint.green(line),
            Some(b'-') => paint.red(line),
            _ => line.to_owned(),
        });
    }
}
