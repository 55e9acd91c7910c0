//! `toolyard-parse`: parses one document for `toolyard`, which starts it and communicates over its standard input and
//! output.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
};
use toolyard_import::wire::{PROGRAM, VERSION};

fn main() -> ExitCode {
    if toolyard_sandbox::launch::is_launch() {
        return toolyard_sandbox::launch::run();
    }
    match std::env::args().nth(1).as_deref() {
        None if !std::io::stdin().is_terminal() => toolyard_parse::child::run(),
        Some("--version" | "-V") => say(&mut std::io::stdout(), &format!("{PROGRAM} {VERSION}"), ExitCode::SUCCESS),
        _ => {
            let text = format!("{PROGRAM} {VERSION}: started by toolyard, which sends it a document over a pipe");
            say(&mut std::io::stderr(), &text, ExitCode::from(2))
        }
    }
}

/// A failed write needs no report, because nobody reads the output.
fn say(to: &mut impl Write, text: &str, code: ExitCode) -> ExitCode {
    if writeln!(to, "{text}").is_err() { ExitCode::FAILURE } else { code }
}
