//! The script child alone: starts faster than Toolyard itself, which is its own child where this is not beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolyard_sandbox::child::run()
}
