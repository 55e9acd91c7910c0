//! `toolyard claude-plugin`: the MCP server that Claude Code starts, connected to the bridge. `toolyard claude start`:
//! starts Claude Code connected to a session; the session is closed when Claude Code ends.

use super::{Outcome, gateway};
use crate::{
    cli::{ClaudeCommand, ClaudePluginArgs, ClaudeStart, Global},
    config, home, output, stdio,
};
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus},
    time::Duration,
};
use tokio::{
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};
use toolyard_bridge::plugin::{APPROVE, Identity, drive};
use toolyard_client::{BridgeConnector, local::unread};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{
    Method,
    bridge::{BridgeClose, BridgeOpen, SessionParams},
    params::Text,
};

/// How long Claude Code may take to end once it was asked to.
const GRACE: Duration = Duration::from_secs(10);

pub(super) async fn plugin(args: ClaudePluginArgs) -> Outcome {
    let needed = |name: &str| {
        std::env::var(name).ok().filter(|value| !value.is_empty()).ok_or_else(|| {
            Failure::new(ErrorCode::UsageError, format!("{name} is not set")).suggest(
                "Claude Code starts this command; `toolyard claude start` or bridge.open make its environment.",
            )
        })
    };
    let identity = Identity {
        url: needed("SYNTHESIS_BRIDGE_URL")?,
        token: needed("SYNTHESIS_BRIDGE_TOKEN")?,
        openclaw_session: needed("SYNTHESIS_OPENCLAW_SESSION")?,
        claude_session: std::env::var("SYNTHESIS_CLAUDE_SESSION").unwrap_or_default(),
        pid: std::process::id(),
    };
    let dialler = BridgeConnector { url: identity.url.clone(), ca_file: args.ca_file };
    let seed = u64::from(identity.pid) ^ uuid::Uuid::new_v4().as_u64_pair().0;
    let (input, output) = stdio::streams();
    drive::run(identity, seed, &dialler, input, output)
        .await
        .map_err(|e| Failure::new(ErrorCode::Unavailable, format!("Claude Code cannot be reached: {e}")))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn run(global: &Global, command: ClaudeCommand) -> Outcome {
    let ClaudeCommand::Start(start) = command;
    let mut params = start.opening.params(&start.session);
    params.claude_session = named_session(&start.args).map(Text);
    let more: &[&str] = if start.opening.names_senders() { &[super::bridge::APPROVALS] } else { &[] };
    let opened = gateway::ask::<BridgeOpen>(global, &start.target, &params, more).await?.map_err(|error| {
        Failure::new(ErrorCode::Unavailable, format!("the session cannot be opened: {}", error.message))
    })?;
    let opened: OpenedSession = serde_json::from_value(opened).map_err(|error| unread(BridgeOpen::NAME, &error))?;
    let home = config::resolve(global)?.home;
    home.create().map_err(trouble)?;
    let file = ConfigFile::write(&home, &opened.mcp_config)?;
    let outcome = supervise(&start, &opened, &file.0).await;
    // The session is closed whether Claude Code succeeded or failed, so that its secret cannot be used any more.
    let closed = SessionParams { session_key: Text(opened.session_key), agent_id: None };
    if gateway::ask::<BridgeClose>(global, &start.target, &closed, &[]).await.is_err() && !global.quiet {
        output::note("the gateway could not be notified that Claude Code has ended");
    }
    outcome
}

/// The fields of an opened session with which Claude Code is started.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OpenedSession {
    session_key: String,
    claude_session: String,
    env: BTreeMap<String, String>,
    /// Claude Code's file, written as the gateway made it.
    mcp_config: Value,
}

fn trouble(error: anyhow::Error) -> Failure {
    Failure::new(ErrorCode::StoreUnavailable, format!("{error:#}"))
}

/// The MCP configuration, readable by its owner alone and removed with this.
struct ConfigFile(PathBuf);

impl ConfigFile {
    fn write(home: &home::Home, config: &Value) -> Result<Self, Failure> {
        let path = home.state().join(format!("claude-{}.json", uuid::Uuid::new_v4().simple()));
        home::write_private(&path, &config.to_string()).map_err(trouble)?;
        Ok(Self(path))
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(file = %self.0.display(), %error, "a private file could not be removed");
        }
    }
}

/// Starts Claude Code and waits for it. Signals that this process receives are passed on to Claude Code.
async fn supervise(start: &ClaudeStart, opened: &OpenedSession, file: &Path) -> Outcome {
    let mut command = Command::new(&start.claude);
    command.arg("--mcp-config").arg(file).arg("--strict-mcp-config");
    for channel in &start.channel {
        if channel.starts_with("plugin:") {
            command.arg("--channels").arg(channel);
        } else if channel.starts_with("server:") {
            command.arg("--dangerously-load-development-channels").arg(channel);
        } else if channel != "none" {
            return Err(Failure::new(ErrorCode::UsageError, format!("--channel {channel:?} is not known"))
                .suggest("Write server:toolyard, plugin:NAME@MARKETPLACE, or none."));
        }
    }
    if let Some(tool) = permission_tool(&start.args) {
        command.arg("--permission-prompt-tool").arg(tool);
    }
    if !chooses_session(&start.args) {
        command.arg("--session-id").arg(&opened.claude_session);
    }
    command.args(&start.args).kill_on_drop(true).envs(&opened.env);
    let mut child = command.spawn().map_err(|e| {
        Failure::new(ErrorCode::Unavailable, format!("{} cannot be started: {e}", start.claude.display()))
            .suggest("Install Claude Code, or say where it is with --claude PATH.")
    })?;
    let broken = |e: std::io::Error| Failure::new(ErrorCode::InternalError, format!("signals cannot be awaited: {e}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(broken)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(broken)?;
    // A terminal sends Ctrl-C to Claude Code as well, and Claude Code handles it.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(broken)?;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => break stop(&mut child).await,
            _ = hangup.recv() => break stop(&mut child).await,
        }
    };
    let status =
        status.map_err(|e| Failure::new(ErrorCode::InternalError, format!("waiting for Claude Code failed: {e}")))?;
    Ok(match status.code() {
        Some(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        None => ExitCode::FAILURE,
    })
}

/// Options of Claude Code that say which conversation it goes on with. `--session-id` contradicts them.
const SESSION_OPTIONS: [&str; 6] = ["--session-id", "--resume", "-r", "--continue", "-c", "--from-pr"];

/// Whether the arguments choose Claude Code's session themselves.
fn chooses_session(args: &[String]) -> bool {
    args.iter().any(|arg| SESSION_OPTIONS.contains(&arg.split('=').next().unwrap_or_default()))
}

/// The UUID that the arguments give Claude Code's session, if they name one.
fn named_session(args: &[String]) -> Option<String> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (name, value) = arg.split_once('=').map_or((arg.as_str(), None), |(name, value)| (name, Some(value)));
        if ["--session-id", "--resume", "-r"].contains(&name) {
            let value = value.or_else(|| args.next().map(String::as_str))?;
            return uuid::Uuid::parse_str(value).ok().map(|uuid| uuid.to_string());
        }
    }
    None
}

/// In print mode nobody can answer Claude Code's dialogue, so its permission questions go to the bridge, unless the
/// arguments name another permission tool.
fn permission_tool(args: &[String]) -> Option<String> {
    let has = |names: &[&str]| {
        args.iter().any(|arg| names.iter().any(|name| arg == name || arg.starts_with(&format!("{name}="))))
    };
    let decided = ["--permission-prompt-tool", "--permission-mode", "--dangerously-skip-permissions"];
    (has(&["-p", "--print"]) && !has(&decided)).then(|| format!("mcp__toolyard__{APPROVE}"))
}

async fn stop(child: &mut Child) -> std::io::Result<ExitStatus> {
    let pid = child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(pid) = pid
        && let Err(error) = rustix::process::kill_process(pid, rustix::process::Signal::TERM)
    {
        tracing::debug!(%error, "Claude Code had ended already");
    }
    if let Ok(status) = tokio::time::timeout(GRACE, child.wait()).await {
        return status;
    }
    child.kill().await?;
    child.wait().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_that_the_arguments_choose_is_the_bridges() {
        let args = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        let id = "6f1c2f0e-1f0a-4c61-9d9e-0e5a4a8a7a10";
        for text in [format!("-p hi --session-id {id}"), format!("--resume={id} -p hi"), format!("-r {id}")] {
            assert_eq!(named_session(&args(&text)).as_deref(), Some(id), "{text}");
            assert!(chooses_session(&args(&text)), "{text}");
        }
        assert!(chooses_session(&args("--continue")) && named_session(&args("--continue")).is_none());
        assert!(!chooses_session(&args("-p hi --model opus")));
        assert_eq!(named_session(&args("--resume latest")), None);
    }
}
