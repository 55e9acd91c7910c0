//! One file a command.

mod call;
mod config;
mod doctor;
mod eval;
mod explain;
mod input;
mod plan;
mod runs;
mod tools;
mod up;

use crate::{
    cli::{Cli, Command, Global},
    output,
};
use std::process::ExitCode;
use toolyard_protocol::Failure;

/// How a command ends when it does not fail.
type Outcome = Result<ExitCode, Failure>;

/// Runs what was typed.
pub async fn run(cli: Cli) -> ExitCode {
    let global = cli.global.clone();
    start_logging(&global);
    let outcome = match cli.command {
        Command::Up(args) => up::run(&global, args).await,
        Command::Call(args) => call::run(&global, args).await,
        Command::Tools(command) => tools::run(&global, command).await,
        Command::Plan(command) => plan::run(&global, command).await,
        Command::Runs(command) => runs::run(&global, command).await,
        Command::Config(command) => config::run(&global, command),
        Command::Eval(command) => eval::run(&global, command),
        Command::Explain(args) => explain::run(&global, args),
        Command::Doctor => doctor::run(&global).await,
        Command::Completions { shell } => completions(shell),
    };
    outcome.unwrap_or_else(|failure| output::failure(&global, &failure))
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut command = <Cli as clap::CommandFactory>::command();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "toolyard", &mut script);
    output::data(String::from_utf8_lossy(&script).trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Logs go to standard error. A configuration that cannot be read is reported by the command itself.
fn start_logging(global: &Global) {
    use crate::config::{LogConfig, LogFormat};
    let log = crate::home::Home::resolve(global.home.as_deref())
        .ok()
        .and_then(|home| crate::config::load(&home).ok())
        .map_or_else(LogConfig::default, |c| c.log);
    let filter = std::env::var("TOOLYARD_LOG").unwrap_or(log.level);
    let filter =
        tracing_subscriber::EnvFilter::try_new(&filter).unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = match log.format {
        LogFormat::Json => builder.json().try_init(),
        LogFormat::Text => builder.try_init(),
    };
}
