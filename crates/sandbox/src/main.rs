//! The script child alone, for tests and for measuring; Toolyard itself is its own child.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolyard_sandbox::child::run()
}
