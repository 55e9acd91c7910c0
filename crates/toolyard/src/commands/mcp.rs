//! `toolyard mcp`: an MCP server on standard input and output; `toolyard mcp servers` and the rest: upstream servers.

use super::{Outcome, approve_tools};
use crate::{
    backend::Backend,
    cli::{Global, McpArgs, McpCommand},
    config, home, mcp,
    output::{self, Paint},
    terminal::counted,
    upstreams::{McpForget, McpLog, McpRemove, McpServers, McpStart, McpStop, McpTest, ServerParams},
    wiring::{App, RequiredParts},
};
use std::process::ExitCode;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::UnixStream,
};
use tokio_util::sync::CancellationToken;
use toolyard_client::local;
use toolyard_mcp::{
    client::{Health, ServerSandbox, ServerStatus},
    server::Client,
};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::NoParams;

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
    let app = App::open(resolved, RequiredParts::Store)?;
    let server = mcp::server(&app);
    let _meeting = app.connect();
    app.watch_notes();
    let stop = CancellationToken::new();
    let client = Client::owner(home::user_name()).with_approvals(app.mcp.client_approvals());
    let (input, output) = crate::stdio::streams();
    let served = tokio::select! {
        served = server.serve_stdio(client, input, output, stop.clone()) => served,
        ended = super::up::wait_for_signal() => ended.map(|()| Ok(()))?,
    };
    app.close().await;
    served.map_err(|e| Failure::new(ErrorCode::Unavailable, format!("reading from the client failed: {e}")))?;
    Ok(ExitCode::SUCCESS)
}

/// Passes lines to a running Toolyard and back, until either side ends.
async fn relay(stream: UnixStream) -> Outcome {
    let (mut input, mut output) = crate::stdio::streams();
    let (mut from, mut to) = stream.into_split();
    let sending = async {
        let sent = tokio::io::copy(&mut input, &mut to).await;
        // The client has closed its side; the requests that it sent are still answered.
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
    match command {
        McpCommand::Approve { server, tools, hash } => approve_tools::run(global, &server, &tools, &hash).await,
        McpCommand::Add(add) => super::mcp_add::run(global, &add).await,
        McpCommand::Login { server, wait } => super::login::login(global, &server, wait).await,
        McpCommand::Logout { server } => super::login::logout(global, &server).await,
        McpCommand::Servers
        | McpCommand::Start { .. }
        | McpCommand::Stop { .. }
        | McpCommand::Test { .. }
        | McpCommand::Log { .. }
        | McpCommand::Remove { .. }
        | McpCommand::Forget { .. } => {
            let mut backend = Backend::open(global, RequiredParts::Store).await?;
            let outcome = operate(global, &mut backend, command).await;
            backend.close().await;
            outcome.map(|()| ExitCode::SUCCESS)
        }
    }
}

async fn operate(global: &Global, backend: &mut Backend, command: McpCommand) -> Result<(), Failure> {
    match command {
        McpCommand::Servers => {
            let answer = backend.call::<McpServers>(&NoParams {}, None).await?;
            if global.json { output::json(&answer) } else { answer.servers.iter().for_each(show) }
        }
        McpCommand::Start { server } => {
            let status = backend.call::<McpStart>(&ServerParams { server }, None).await?;
            if global.json { output::json(&status) } else { show(&status) }
        }
        McpCommand::Stop { server } => {
            let status = backend.call::<McpStop>(&ServerParams { server }, None).await?;
            if global.json { output::json(&status) } else { show(&status) }
        }
        McpCommand::Forget { server } => {
            let answer = backend.call::<McpForget>(&ServerParams { server }, None).await?;
            if global.json { output::json(&answer) } else { output::data(&format!("forgot {}", answer.forgotten)) }
        }
        McpCommand::Test { server } => {
            let tested = backend.call::<McpTest>(&ServerParams { server }, None).await?;
            if global.json {
                output::json(&tested);
            } else {
                show(&tested.status);
                if let Some(log) = tested.log.filter(|_| !tested.ok) {
                    log.lines().for_each(|line| output::data(&format!("  {}", output::plain(line))));
                }
            }
        }
        McpCommand::Log { server } => {
            let answer = backend.call::<McpLog>(&ServerParams { server }, None).await?;
            if global.json {
                output::json(&answer);
            } else {
                answer.log.lines().for_each(|line| output::data(&output::plain(line)));
            }
        }
        McpCommand::Remove { server } => {
            let answer = backend.call::<McpRemove>(&ServerParams { server }, None).await?;
            if global.json { output::json(&answer) } else { output::data(&format!("removed {}", answer.removed)) }
        }
        // `manage` handles these commands before it opens a backend.
        McpCommand::Add(_) | McpCommand::Approve { .. } | McpCommand::Login { .. } | McpCommand::Logout { .. } => {}
    }
    Ok(())
}

fn show(server: &ServerStatus) {
    let paint = Paint::stdout();
    let status = match server.status {
        Health::Healthy => paint.green("healthy"),
        other => paint.red(other.as_str()),
    };
    let state = if server.running { "running" } else { "not running" };
    output::data(&format!(
        "{:<20} {status}, {state}, {}, {}, {}",
        server.name,
        counted(server.tools, "tool"),
        counted(server.prompts, "prompt"),
        counted(server.resources, "resource"),
    ));
    if let Some(error) = &server.error {
        output::data(&format!("  error: {error}"));
    }
    match server.walls {
        Some(ServerSandbox::Unset) => output::data(&format!(
            "  {} it runs without a sandbox: set mcp.servers.{}.sandbox in config.toml",
            paint.red("warning:"),
            server.name
        )),
        Some(ServerSandbox::Off) => output::data("  it runs without a sandbox, as configured"),
        Some(ServerSandbox::On) | None => {}
    }
    for held in &server.withheld {
        output::data(&format!("  withheld ({}): {}", held.why.as_str(), held.tool));
        if let Some(before) = &held.approved_description {
            output::data(&format!("    was: {}", first_line(before)));
        }
        output::data(&format!("    is:  {}", first_line(&held.description)));
    }
    for left in &server.left_out {
        output::data(&format!("  left out: {}: {}", left.tool, left.reason));
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(160).collect()
}
