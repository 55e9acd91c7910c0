//! The script child alone: starts faster than Toolyard itself, which is its own child where this is not beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    if toolyard_sandbox::launch::is_launch() {
        return toolyard_sandbox::launch::run();
    }
    toolyard_sandbox::child::run()
}
