//! The parser's child alone, for programs that are not Toolyard itself: tests and tools beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    if toolyard_sandbox::launch::is_launch() {
        return toolyard_sandbox::launch::run();
    }
    toolyard_import::child::run()
}
