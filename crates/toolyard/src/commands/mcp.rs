//! `toolyard mcp`: an MCP server on standard input and output; `toolyard mcp servers` and the rest: upstream servers.

use super::{Outcome, approve_tools};
use crate::{
    backend::Backend,
    cli::{Global, McpArgs, McpCommand},
    config, home, mcp,
    output::{self, Paint},
    wiring::{Needs, Yard},
};
use serde_json::{Value, json};
use std::process::ExitCode;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::UnixStream,
};
use tokio_util::sync::CancellationToken;
use toolyard_gateway::local;
use toolyard_mcp::server::Client;
use toolyard_protocol::{ErrorCode, Failure};

pub(super) async fn run(global: &Global, args: McpArgs) -> Outcome {
    match args.command {
        None => serve(global).await,
        Some(command) => manage(global, command).await,
    }
}

async fn serve(global: &Global) -> Outcome {
    let resolved = config::resolve(global)?;
    if !global.in_process
        && crate::backend::running(&resolved, global).await?.is_some()
        && let Some(stream) = local::connect(&resolved.home.mcp_socket()).await?
    {
        return relay(stream).await;
    }
    let yard = Yard::open(resolved, Needs::Store)?;
    let server = mcp::server(&yard);
    let _meeting = yard.connect();
    yard.watch_notes();
    let stop = CancellationToken::new();
    let client = Client::owner(home::user_name()).with_approvals(yard.mcp.client_approvals);
    let (input, output) = crate::stdio::streams();
    let served = tokio::select! {
        served = server.serve_stdio(client, input, output, stop.clone()) => served,
        ended = super::up::wait_for_signal() => ended.map(|()| Ok(()))?,
    };
    yard.close().await;
    served.map_err(|e| Failure::new(ErrorCode::Unavailable, format!("the client cannot be read: {e}")))?;
    Ok(ExitCode::SUCCESS)
}

/// Passes lines to a running Toolyard and back, until either side ends.
async fn relay(stream: UnixStream) -> Outcome {
    let (mut input, mut output) = crate::stdio::streams();
    let (mut from, mut to) = stream.into_split();
    let sending = async {
        let sent = tokio::io::copy(&mut input, &mut to).await;
        // The client is done; what it asked for is still answered.
        if let Err(error) = sent.and(to.shutdown().await) {
            tracing::debug!(%error, "the running Toolyard takes no more lines");
        }
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        () = sending => Ok(0),
        passed = pass(&mut from, &mut output) => passed,
        ended = super::up::wait_for_signal() => ended.map(|()| Ok(0))?,
    };
    ended.map_err(|e| Failure::new(ErrorCode::Unavailable, format!("the connection broke: {e}")))?;
    Ok(ExitCode::SUCCESS)
}

/// Passes bytes on as they come.
async fn pass(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<u64> {
    let mut buffer = vec![0; 64 << 10];
    let mut passed = 0;
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(passed);
        }
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
        passed += count as u64;
    }
}

async fn manage(global: &Global, command: McpCommand) -> Outcome {
    let (method, params) = match &command {
        McpCommand::Servers => ("mcp.servers", json!({})),
        McpCommand::Start { server } => ("mcp.start", json!({"server": server})),
        McpCommand::Stop { server } => ("mcp.stop", json!({"server": server})),
        McpCommand::Approve { server, tools, hash } => {
            return approve_tools::run(global, server, tools, hash).await;
        }
        McpCommand::Forget { server } => ("mcp.forget", json!({"server": server})),
        McpCommand::Add(add) => return super::mcp_add::run(global, add),
        McpCommand::Login { server, wait } => return super::login::login(global, server, *wait).await,
        McpCommand::Logout { server } => return super::login::logout(global, server).await,
    };
    let mut backend = Backend::open(global, Needs::Store).await?;
    let answer = backend.call(method, params, None).await;
    backend.close().await;
    let answer = answer?;
    match command {
        _ if global.json => output::json(&answer),
        McpCommand::Servers => {
            for server in answer["servers"].as_array().into_iter().flatten() {
                show(server);
            }
        }
        McpCommand::Start { .. } | McpCommand::Stop { .. } => show(&answer),
        McpCommand::Forget { server } => output::data(&format!("forgot {server}")),
        // These have gone another way.
        McpCommand::Add(_) | McpCommand::Approve { .. } | McpCommand::Login { .. } | McpCommand::Logout { .. } => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn show(server: &Value) {
    let paint = Paint::stdout();
    let text = |key: &str| server[key].as_str().unwrap_or_default();
    let status = match text("status") {
        "healthy" => paint.green("healthy"),
        other => paint.red(other),
    };
    let state = if server["running"] == true { "running" } else { "not running" };
    output::data(&format!(
        "{:<20} {status}, {state}, {} tools, {} prompts, {} resources",
        text("name"),
        server["tools"],
        server["prompts"],
        server["resources"]
    ));
    if let Some(error) = server["error"].as_str() {
        output::data(&format!("  error: {error}"));
    }
    match server["walls"].as_str() {
        Some("unset") => output::data(&format!(
            "  {} it runs without walls: set mcp.servers.{}.sandbox in config.toml",
            paint.red("warning:"),
            text("name")
        )),
        Some("off") => output::data("  it runs without walls, as configured"),
        _ => {}
    }
    for held in server["withheld"].as_array().into_iter().flatten() {
        let why = held["why"].as_str().unwrap_or_default();
        output::data(&format!("  held back ({why}): {}", held["tool"].as_str().unwrap_or_default()));
        if let Some(before) = held["approvedDescription"].as_str() {
            output::data(&format!("    was: {}", first_line(before)));
        }
        output::data(&format!("    is:  {}", first_line(held["description"].as_str().unwrap_or_default())));
    }
    for left in server["leftOut"].as_array().into_iter().flatten() {
        let (tool, reason) = (left["tool"].as_str().unwrap_or_default(), left["reason"].as_str().unwrap_or_default());
        output::data(&format!("  left out: {tool}: {reason}"));
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(160).collect()
}
