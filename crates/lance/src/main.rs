//! `toolyard-index`: manages the note index for `toolyard`, which starts it, sends requests over a pipe and stops it.
//! It opens only the index that it is told to open, and `toolyard` runs it in a sandbox.

use reqwest as _; // enables TLS in object_store
use std::{
    io::{IsTerminal, Write, stderr, stdin, stdout},
    process::ExitCode,
    sync::Arc,
};
use toolyard_lance::{LanceIndex, LanceOptions};
use toolyard_noteindex::{NoteIndex, serve::serve, wire::PROGRAM};

/// Default log filter for standard error, which `toolyard` copies to its log; TOOLYARD_LOG overrides it. LanceDB warns
/// on every open that it guesses the bucket name for a custom provider; the guess is right.
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
    // No client is left to read a reply. An unfinished write remains as an untagged version.
    runtime.shutdown_background();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => say(&mut stderr(), &error.to_string(), ExitCode::FAILURE),
    }
}

fn version() -> String {
    format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION"))
}

/// A failed write needs no report, because nobody reads the output.
fn say(to: &mut impl Write, text: &str, code: ExitCode) -> ExitCode {
    if writeln!(to, "{text}").is_err() { ExitCode::FAILURE } else { code }
}
