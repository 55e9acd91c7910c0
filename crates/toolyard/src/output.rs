//! Output and exit codes: data goes to standard output, everything else to standard error.
#![allow(clippy::print_stdout, clippy::print_stderr)] // the one place that prints

use crate::cli::Global;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{io::IsTerminal, process::ExitCode};
use toolyard_engine::redact::redactor;
use toolyard_protocol::{ErrorCode, Failure};

/// The command failed.
pub const FAILED: u8 = 1;
/// The command line was wrong.
pub const USAGE: u8 = 2;
/// A person's approval is needed.
pub const NEEDS_APPROVAL: u8 = 3;
/// A run waits for a person to settle a call.
pub const PAUSED: u8 = 4;

/// The person interrupted it.
pub const INTERRUPTED: u8 = 130;

/// Prints a value as JSON, on one line, or prettily for a terminal.
pub fn json(value: &impl Serialize) {
    let text = if std::io::stdout().is_terminal() {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    };
    match text {
        Ok(text) => data(&text),
        Err(error) => note(&format!("error: the answer cannot be written as JSON: {error}")),
    }
}

/// Prints a value as indented JSON, for people.
pub fn pretty(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => data(&text),
        Err(error) => note(&format!("the answer cannot be written: {error}")),
    }
}

/// The word of a value that is written as one: a status, a risk, a kind.
pub fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Prints data. A reader that has gone away is no error.
pub fn data(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    report(out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()));
}

/// Says on standard error that printing failed, unless the reader has gone away.
fn report(printed: std::io::Result<()>) {
    if let Err(error) = printed
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        note(&format!("error: the output cannot be written: {error}"));
    }
}

/// Writes a line to standard error. If standard error has been closed, a server must continue; `eprintln!` would panic.
pub fn note(text: &str) {
    use std::io::Write;
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}

/// A failure as a command prints it with `--json`.
#[derive(Serialize)]
struct FailureAnswer<'a> {
    error: &'a Failure,
}

/// The part of a failure's details that says what is wrong where.
#[derive(Deserialize)]
struct Details {
    errors: Vec<InvalidArgument>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct InvalidArgument {
    path: String,
    message: String,
}

/// Prints a failure and gives its exit code.
pub fn failure(global: &Global, failure: &Failure) -> ExitCode {
    let failure = &redactor().failure(failure.clone());
    if global.json {
        json(&FailureAnswer { error: failure });
    } else {
        let paint = Paint::stderr();
        note(&format!("{} {} [{}]", paint.red("error:"), failure.message, failure.code));
        if let Some(suggestion) = &failure.suggestion {
            note(&format!("{} {suggestion}", paint.bold("hint:")));
        }
        // The format of details is open; those of invalid arguments list the places.
        let details = failure.details.clone().map(Value::Object).unwrap_or_default();
        for error in Details::deserialize(details).map(|details| details.errors).unwrap_or_default().iter().take(20) {
            note(&format!("  {}: {}", error.path, error.message));
        }
    }
    ExitCode::from(code_of(failure.code))
}

/// The exit code of a failure.
pub fn code_of(code: ErrorCode) -> u8 {
    match code {
        ErrorCode::UsageError => USAGE,
        ErrorCode::ConfirmationRequired => NEEDS_APPROVAL,
        ErrorCode::InDoubt => PAUSED,
        _ => FAILED,
    }
}

/// Prints what clap says; help and version are data.
pub fn usage_error(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayVersion) {
        report(error.print());
        return ExitCode::SUCCESS;
    }
    if std::env::args_os().any(|a| a == "--json") {
        let text = error.render().to_string();
        let message = usage_message(&text);
        json(&FailureAnswer { error: &Failure::new(ErrorCode::UsageError, message) });
    } else {
        report(error.print());
    }
    ExitCode::from(USAGE)
}

/// The first paragraph of clap's text on one line: what is wrong, with the arguments that are missing.
fn usage_message(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

/// The runtime could not be started.
pub fn startup_error(global: &Global, error: &std::io::Error) -> ExitCode {
    failure(global, &Failure::new(ErrorCode::InternalError, format!("cannot start: {error}")))
}

/// Whether standard error is a terminal that shows colours.
pub(crate) fn colours_on_stderr() -> bool {
    std::io::stderr().is_terminal() && colours()
}

/// Colours, used on a terminal unless NO_COLOR is set.
#[derive(Clone, Copy)]
pub struct Paint(bool);

impl Paint {
    /// For standard output.
    pub fn stdout() -> Self {
        Self(std::io::stdout().is_terminal() && colours())
    }
    /// For standard error.
    pub fn stderr() -> Self {
        Self(colours_on_stderr())
    }
    /// Without colours.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self(false)
    }
    fn code(self, code: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
    /// Red.
    pub fn red(self, text: &str) -> String {
        self.code("31", text)
    }
    /// Green.
    pub fn green(self, text: &str) -> String {
        self.code("32", text)
    }
    /// Yellow.
    pub fn yellow(self, text: &str) -> String {
        self.code("33", text)
    }
    /// Bold.
    pub fn bold(self, text: &str) -> String {
        self.code("1", text)
    }
    /// Dim.
    pub fn dim(self, text: &str) -> String {
        self.code("2", text)
    }
    /// A status word in its colour.
    pub fn status(self, word: &str) -> String {
        match word {
            "ok" | "finished" => self.green(word),
            "error" | "failed" | "timeout" => self.red(word),
            _ => self.yellow(word),
        }
    }
}

fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) && std::env::var("TERM").map_or(true, |t| t != "dumb")
}

/// Prints the content of a whole screen, without a line break at its end.
pub fn screen(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    report(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Characters that reorder a line: with them a text could be read as something else than it is.
fn reorders(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text of an agent, of one or more lines, as a person must see it before answering: nothing in it commands the terminal
/// or reorders a line. Such characters are shown by their numbers.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c if c.is_control() || reorders(c) => shown.push_str(&format!("<U+{:04X}>", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown
}

/// Text from notes and files that is safe to print on one line of a terminal: control characters are replaced by
/// spaces.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Columns, aligned; the last one is not padded.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|t| t.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, text) in row.iter().enumerate() {
            line.push_str(text);
            if c + 1 < row.len() {
                line.push_str(&" ".repeat(widths[c].saturating_sub(text.chars().count()) + 2));
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::{plain, usage_message, visible};

    #[test]
    fn a_usage_error_names_the_arguments_that_are_missing() {
        let text =
            "error: the following required arguments were not provided:\n  --out <DIR>\n\nUsage: toolyard backup\n";
        assert_eq!(usage_message(text), "the following required arguments were not provided: --out <DIR>");
        assert_eq!(
            usage_message("error: unexpected argument '-x' found\n\nUsage: y"),
            "unexpected argument '-x' found"
        );
    }

    #[test]
    fn what_an_agent_asks_neither_commands_the_terminal_nor_reorders_a_line() {
        let text = "+rm \u{1b}[2K\u{1b}[1A notes\r\n+\u{202e}dm.xt\u{2066}\u{9b}m\tend";
        let shown = visible(text);
        assert_eq!(shown, "+rm <U+001B>[2K<U+001B>[1A notes<U+000D>\n+<U+202E>dm.xt<U+2066><U+009B>m\tend");
    }

    #[test]
    fn what_a_note_says_does_not_command_the_terminal() {
        let text = "a\u{1b}[2J\u{1b}]0;title\u{7}b\r\nc\u{9b}31m\u{7f}d \u{65e5}\u{1f642}";
        let shown = plain(text);
        assert!(!shown.contains(char::is_control), "{shown:?}");
        assert_eq!(shown, "a [2J ]0;title b  c 31m d \u{65e5}\u{1f642}");
    }
}
