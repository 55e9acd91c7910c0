//! The child's side of confined parsing: it reads one document from standard input, gives up all its rights, parses the
//! document, writes the result and exits ([`toolyard_import::wire`]).

use crate::formats::{self, Unpacked};
use std::{
    io::{self, BufRead, Read, Write},
    process::ExitCode,
};
use toolyard_import::{
    Format,
    wire::{MARK, MAX_HEADER_BYTES, PROGRAM, ParseResponse, Request, VERSION},
};

/// Exit code: the parent violated the protocol.
const EXIT_PROTOCOL: u8 = 64;
/// Exit code: the child could not confine itself, or has another version than its parent.
const EXIT_UNAVAILABLE: u8 = 65;
/// Exit code: the parent has closed standard output.
const EXIT_NO_ANSWER: i32 = 66;

/// Parses the document from standard input. The process confines itself before it looks at any byte of the document.
pub fn run() -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let mut input = io::stdin().lock();
    let Some((request, bytes)) = read_request(&mut input) else { return ExitCode::from(EXIT_PROTOCOL) };
    if request.version != VERSION {
        let why = format!(
            "{PROGRAM} is of version {VERSION} and toolyard of version {}; install both programs from one release",
            shortened(request.version)
        );
        say(&ParseResponse::Unavailable { why }, &[]);
        return ExitCode::from(EXIT_UNAVAILABLE);
    }
    let limits = toolyard_sandbox::Limits { time_ms: request.limits.parse_ms, ..toolyard_sandbox::Limits::default() };
    if let Err(why) = toolyard_sandbox::child::confine_to_pipes(&limits) {
        say(&ParseResponse::Unavailable { why }, &[]);
        return ExitCode::from(EXIT_UNAVAILABLE);
    }
    answer(&request, &bytes);
    ExitCode::SUCCESS
}

fn answer(request: &Request, bytes: &[u8]) {
    if request.format == Format::Zip {
        let unpacked = formats::unpack(bytes, &request.limits, |one| match one {
            Unpacked::File(path, bytes) => say(&ParseResponse::File { path, bytes: bytes.len() }, &bytes),
            Unpacked::Skipped(path, why) => say(&ParseResponse::Skipped { path: shortened(path), why }, &[]),
        });
        match unpacked {
            Ok(()) => say(&ParseResponse::Done, &[]),
            Err(failure) => say(&ParseResponse::Failed { why: shortened(failure.0) }, &[]),
        }
        return;
    }
    match formats::convert(request.format, bytes, &request.limits) {
        Ok(converted) => {
            let title = converted.title.map(shortened);
            say(&ParseResponse::Text { title, bytes: converted.markdown.len() }, converted.markdown.as_bytes());
        }
        Err(failure) => say(&ParseResponse::Failed { why: shortened(failure.0) }, &[]),
    }
}

/// Truncates a text, because the protocol limits the length of a line.
fn shortened(text: String) -> String {
    text.chars().take(500).collect()
}

fn read_request(input: &mut impl BufRead) -> Option<(Request, Vec<u8>)> {
    let mut line = Vec::new();
    input.take(MAX_HEADER_BYTES as u64).read_until(b'\n', &mut line).ok()?;
    let request: Request = serde_json::from_slice(&line).ok()?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(request.bytes).ok()?;
    input.take(request.bytes as u64).read_to_end(&mut bytes).ok()?;
    (bytes.len() == request.bytes).then_some((request, bytes))
}

/// Writes a response. If that fails, the child exits at once, and the parent reports that its parser ended without an
/// answer.
fn say(answer: &ParseResponse, body: &[u8]) {
    let written = serde_json::to_vec(answer).map_err(io::Error::from).and_then(|mut line| {
        line.insert(0, MARK);
        line.push(b'\n');
        let mut out = io::stdout().lock();
        out.write_all(&line).and_then(|()| out.write_all(body)).and_then(|()| out.flush())
    });
    if written.is_err() {
        std::process::exit(EXIT_NO_ANSWER);
    }
}
