//! `toolyard-index`: keeps the index of notes for `toolyard`, which starts it, asks it over a pipe and stops it. It opens
//! the one index that it is told to open, and nothing else; `toolyard` puts walls around it.

use reqwest as _; // gives object_store its TLS
use std::{
    io::{IsTerminal, Write, stderr, stdin, stdout},
    process::ExitCode,
    sync::Arc,
};
use toolyard_lance::{LanceIndex, LanceOptions};
use toolyard_noteindex::{NoteIndex, serve::serve, wire::PROGRAM};

/// What is written to standard error, from where `toolyard` takes it into its log, unless TOOLYARD_LOG says otherwise.
/// LanceDB warns with every opening that it guesses the name of a bucket whose provider is ours; the guess is right.
const LOG: &str = "warn,lance_io::object_store=error";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        None if !stdin().is_terminal() => {}
        Some("--version" | "-V") => return say(&mut stdout(), &version(), ExitCode::SUCCESS),
        _ => {
            let text = format!("{}: started by toolyard, which asks it over a pipe; see `toolyard doctor`", version());
            return say(&mut stderr(), &text, ExitCode::from(2));
        }
    }
    let filter = std::env::var("TOOLYARD_LOG").unwrap_or_else(|_| LOG.to_owned());
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(stderr)
        .without_time()
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return say(&mut stderr(), &format!("no threads: {error}"), ExitCode::FAILURE),
    };
    let open = |options| Ok(Arc::new(LanceIndex::new(LanceOptions::of(options))) as Arc<dyn NoteIndex>);
    let served = serve(stdin().lock(), stdout(), runtime.handle(), Box::new(open));
    // Nobody reads an answer any more. What was being written is left as a version without a tag.
    runtime.shutdown_background();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => say(&mut stderr(), &error.to_string(), ExitCode::FAILURE),
    }
}

fn version() -> String {
    format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION"))
}

/// Where nobody reads it there is nothing more to do.
fn say(to: &mut impl Write, text: &str, code: ExitCode) -> ExitCode {
    if writeln!(to, "{text}").is_err() { ExitCode::FAILURE } else { code }
}
