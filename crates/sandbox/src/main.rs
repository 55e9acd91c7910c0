//! The script child as a separate program. It starts faster than Toolyard itself, which is used as the child if this
//! program is missing.

use std::process::ExitCode;

fn main() -> ExitCode {
    if toolyard_sandbox::launch::is_launch() {
        return toolyard_sandbox::launch::run();
    }
    toolyard_sandbox::child::run()
}
