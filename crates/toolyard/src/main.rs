//! The program `toolyard`: parses the command line, runs the command, and ends with its exit code.

use clap::Parser;
use std::process::ExitCode;
use toolyard::{cli::Cli, commands, output};

fn main() -> ExitCode {
    // The process that runs a script is this program started again; it must do nothing else.
    if toolyard_sandbox::child::is_child() {
        return toolyard_sandbox::child::run();
    }
    // The same holds for the process that sandboxes itself and then executes a plugin.
    if toolyard_sandbox::launch::is_launch() {
        return toolyard_sandbox::launch::run();
    }
    // A coding agent starts its hook with every call, so the hook is answered before anything else is initialised.
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
