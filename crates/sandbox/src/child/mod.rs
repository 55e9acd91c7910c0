//! The child process: gives up its rights, runs one script, reports the outcome, exits.
//!
//! The child is a program that is started with the name [`CHILD_NAME`]: this program or the small one of this crate. A
//! program that uses this crate calls [`is_child`] at the start of `main` and passes control to [`run`].

mod confine;
mod descriptors;
mod globals;
mod script;

use crate::wire::{FromChild, ToChild, read_message, write_message};
use std::{io, process::ExitCode};

pub(crate) use descriptors::close_all_but_standard;

#[doc(hidden)]
pub use confine::{restrict_calls, restrict_files, restrict_resources};

/// `argv[0]` of a child.
pub const CHILD_NAME: &str = "toolyard-script";
/// The parent broke the protocol.
const EXIT_PROTOCOL: u8 = 64;
/// The child could not confine itself.
const EXIT_UNAVAILABLE: u8 = 65;

/// Whether this process was started to run a script.
pub fn is_child() -> bool {
    std::env::args_os().next().is_some_and(|name| name == CHILD_NAME)
}

/// Gives everything up but the three pipes, as a script's child does: for other children that read what we did not
/// write. First thing in a process with one thread, or nearly so: descriptors above the pipes are closed.
pub fn confine_to_pipes(limits: &crate::Limits) -> Result<(), String> {
    descriptors::close_all_but_standard();
    confine::confine(limits)
}

/// Runs the one script that arrives on standard input. Nothing of it is read before the process is confined, and a
/// process that cannot be confined runs nothing.
pub fn run() -> ExitCode {
    descriptors::close_all_but_standard();
    // Keeps the stamp in the program.
    std::hint::black_box(crate::program::STAMP);
    let Ok(ToChild::Run { code, limits }) = read_message(&mut io::stdin().lock()) else {
        return ExitCode::from(EXIT_PROTOCOL);
    };
    if let Err(reason) = confine::confine(&limits) {
        return match write_message(&mut io::stdout().lock(), &FromChild::Unavailable { reason }) {
            Ok(()) => ExitCode::from(EXIT_UNAVAILABLE),
            Err(_) => ExitCode::from(EXIT_PROTOCOL),
        };
    }
    script::run(&code, limits)
}
