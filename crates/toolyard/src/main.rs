//! `toolyard`: parse what was typed, do it, end with a code that says how it went.

use clap::Parser;
use std::process::ExitCode;
use toolyard::{cli::Cli, commands, output};

fn main() -> ExitCode {
    // A script's child is this program again. It must not get any further.
    if toolyard_sandbox::child::is_child() {
        return toolyard_sandbox::child::run();
    }
    // So is what becomes a plugin.
    if toolyard_sandbox::launch::is_launch() {
        return toolyard_sandbox::launch::run();
    }
    // A coding agent's hook starts with each of its calls: nothing may come before the answer.
    if let Some(code) = commands::hooks::run::typed() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::usage_error(&error),
    };
    let workers = toolyard_gateway::listen::worker_threads();
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return output::startup_error(&cli.global, &error),
    };
    let code = runtime.block_on(commands::run(cli));
    // Blocking work that was abandoned (a hung file system) must not keep the process from ending.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    code
}
