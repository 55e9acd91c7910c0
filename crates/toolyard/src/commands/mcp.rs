//! `toolyard mcp`: an MCP server on standard input and output.

use super::Outcome;
use crate::{
    cli::{Global, McpArgs},
    config, home, mcp,
    wiring::{Needs, Yard},
};
use std::process::ExitCode;
use tokio_util::sync::CancellationToken;
use toolyard_mcp::server::Client;
use toolyard_protocol::{ErrorCode, Failure};

pub(super) async fn run(global: &Global, _: McpArgs) -> Outcome {
    let resolved = config::resolve(global)?;
    let home = resolved.home.clone();
    let yard = Yard::open(resolved, Needs::Store)?;
    let server = mcp::server(&yard, &home);
    let stop = CancellationToken::new();
    let served = tokio::select! {
        served = server.serve_stdio(
            Client::owner(home::user_name()),
            tokio::io::stdin(),
            tokio::io::stdout(),
            stop.clone(),
        ) => served,
        ended = super::up::wait_for_signal() => ended.map(|()| Ok(()))?,
    };
    yard.close().await;
    served.map_err(|e| Failure::new(ErrorCode::Unavailable, format!("the client cannot be read: {e}")))?;
    Ok(ExitCode::SUCCESS)
}
