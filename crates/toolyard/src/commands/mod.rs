//! The commands, one file for each.

mod about;
mod approvals;
mod approve_tools;
mod bridge;
mod call;
mod claude;
mod config;
mod connect;
mod console;
mod ctx;
mod devices;
mod doctor;
mod eval;
mod eval_memory;
mod eval_notes;
mod explain;
mod gateway;
pub mod hooks;
mod import;
mod init;
mod input;
mod keys;
mod login;
mod mcp;
mod mcp_add;
mod migrate;
mod nodes;
mod notify;
mod plan;
mod plugins;
mod report;
mod runs;
mod status;
mod tools;
mod up;
mod upkeep;
mod vault;
mod verify;
mod watch;
mod watch_lines;
mod why;
mod workspaces;

use crate::{
    cli::{Cli, Command, Global, LazyArgs},
    output,
};
use std::process::ExitCode;
use toolyard_engine::redact::redactor;
use toolyard_protocol::{ErrorCode, Failure};

/// How a command ends when it does not fail.
type Outcome = Result<ExitCode, Failure>;

/// Runs the command that the command line names.
pub async fn run(cli: Cli) -> ExitCode {
    let global = cli.global.clone();
    start_logging(&global);
    let command = cli.command.unwrap_or(Command::Status);
    if let Err(failure) = check_workspace(&global, &command) {
        return output::failure(&global, &failure);
    }
    let outcome = match command {
        Command::Status => status::run(&global).await,
        Command::Up(LazyArgs(args)) => up::run(&global, args).await,
        Command::Console(LazyArgs(args)) => console::run(&global, &args).await,
        Command::Call(LazyArgs(args)) => call::run(&global, args).await,
        Command::Tools(LazyArgs(command)) => tools::run(&global, command).await,
        Command::Plan(LazyArgs(command)) => plan::run(&global, command).await,
        Command::Runs(LazyArgs(command)) => runs::run(&global, command).await,
        Command::Logs(LazyArgs(args)) => watch::logs(&global, &args).await,
        Command::Top => watch::top(&global).await,
        Command::Approvals(LazyArgs(command)) => approvals::run(&global, command).await,
        Command::Grants(LazyArgs(command)) => approvals::grants(&global, command).await,
        Command::Notify(LazyArgs(command)) => notify::run(&global, command).await,
        Command::Backup(LazyArgs(args)) => upkeep::backup(&global, args).await,
        Command::Restore(LazyArgs(args)) => upkeep::restore(&global, &args),
        Command::Prune(LazyArgs(args)) => upkeep::prune(&global, args).await,
        Command::Store(LazyArgs(command)) => upkeep::store(&global, command).await,
        Command::Keys(LazyArgs(command)) => keys::run(&global, command).await,
        Command::Workspaces(LazyArgs(command)) => workspaces::run(&global, command).await,
        Command::Nodes(LazyArgs(command)) => nodes::run(&global, command).await,
        Command::Migrate(LazyArgs(args)) => migrate::run(&global, args).await,
        Command::Gateway(LazyArgs(command)) => gateway::run(&global, command).await,
        Command::Bridge(LazyArgs(command)) => bridge::run(&global, command).await,
        Command::Claude(LazyArgs(command)) => claude::run(&global, command).await,
        Command::ClaudePlugin(LazyArgs(args)) => claude::plugin(args).await,
        Command::Mcp(LazyArgs(args)) => mcp::run(&global, args).await,
        Command::Plugins(LazyArgs(command)) => plugins::run(&global, command).await,
        Command::Init(LazyArgs(args)) => init::run(&global, args).await,
        Command::Report(LazyArgs(args)) => report::run(&global, args).await,
        Command::Version => about::version(&global),
        Command::SelfCommand(LazyArgs(crate::cli::SelfCommand::Check)) => about::self_check(&global),
        Command::Connect(LazyArgs(args)) => connect::run(&global, args).await,
        Command::Import(LazyArgs(crate::cli::ImportCommand::Mcp(args))) => import::run(&global, &args).await,
        Command::Hooks(LazyArgs(command)) => hooks::run(&global, command).await,
        Command::Devices(LazyArgs(command)) => devices::run(&global, command).await,
        Command::Config(LazyArgs(command)) => config::run(&global, command).await,
        Command::Vault(LazyArgs(command)) => vault::run(&global, command).await,
        Command::Ctx(LazyArgs(command)) => ctx::run(&global, command).await,
        Command::Why(LazyArgs(args)) => why::run(&global, args).await,
        Command::Eval(LazyArgs(command)) => eval::run(&global, command).await,
        Command::Explain(LazyArgs(args)) => explain::run(&global, args),
        Command::Doctor => doctor::run(&global).await,
        Command::Completions { shell } => completions(shell),
    };
    outcome.unwrap_or_else(|failure| output::failure(&global, &failure))
}

/// Refuses `--workspace` with a command that does not act in a workspace, instead of ignoring it.
fn check_workspace(global: &Global, command: &Command) -> Result<(), Failure> {
    let acts_in_one = matches!(
        command,
        Command::Call(_)
            | Command::Tools(_)
            | Command::Plan(_)
            | Command::Runs(_)
            | Command::Top
            | Command::Approvals(_)
            | Command::Grants(_)
            | Command::Report(_)
            | Command::Devices(_)
            | Command::Console(_)
            | Command::Ctx(_)
            | Command::Why(_)
    );
    match &global.workspace {
        Some(_) if !acts_in_one => {
            Err(Failure::new(ErrorCode::ValidationError, "this command does not act in a workspace")
                .suggest("Leave --workspace out. Commands that take --token act in the workspace of the token."))
        }
        _ => Ok(()),
    }
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut command = <Cli as clap::CommandFactory>::command();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "toolyard", &mut script);
    output::data(String::from_utf8_lossy(&script).trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Standard error without secrets, for log lines.
#[derive(Default)]
struct RedactedStderr;

impl std::io::Write for RedactedStderr {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        std::io::stderr().lock().write_all(redactor().text(&text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().lock().flush()
    }
}

/// Logs go to standard error. A configuration that cannot be read is reported by the command itself.
fn start_logging(global: &Global) {
    use crate::config::{LogConfig, LogFormat};
    use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};
    let log = crate::home::Home::resolve(global.home.as_deref())
        .ok()
        .and_then(|home| crate::config::load(&home).ok())
        .map_or_else(LogConfig::default, |c| c.log);
    let filter = std::env::var("TOOLYARD_LOG").unwrap_or(log.level);
    let filter = EnvFilter::try_new(&filter).unwrap_or_else(|_| EnvFilter::new("warn"));
    let lines =
        tracing_subscriber::fmt::layer().with_ansi(output::colours_on_stderr()).with_writer(RedactedStderr::default);
    let lines = match log.format {
        LogFormat::Json => lines.json().with_filter(filter).boxed(),
        LogFormat::Text => lines.with_filter(filter).boxed(),
    };
    // The lines for `logs.tail` are kept independently of the level that is printed.
    let kept = toolyard_service::logs::RingLayer
        .with_filter(EnvFilter::new("warn,toolyard_gateway=info,toolyard_service=info"));
    if let Err(error) = tracing_subscriber::registry().with(lines).with(kept).try_init() {
        output::note(&format!("warning: nothing is logged: {error}"));
    }
}
