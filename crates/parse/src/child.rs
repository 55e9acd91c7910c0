//! The child's side: read one document over standard input, give everything up, parse it, say what came of it, exit
//! ([`toolyard_import::wire`]).

use crate::formats::{self, Unpacked};
use std::{
    io::{self, BufRead, Read, Write},
    process::ExitCode,
};
use toolyard_import::{
    Format,
    wire::{Answer, MARK, MAX_HEADER_BYTES, PROGRAM, Request, VERSION},
};

/// The parent broke the protocol.
const EXIT_PROTOCOL: u8 = 64;
/// The child could not confine itself, or is of another version than its parent.
const EXIT_UNAVAILABLE: u8 = 65;
/// Standard output takes no answer: the parent has closed it.
const EXIT_NO_ANSWER: i32 = 66;

/// Parses the one document that comes over standard input. Nothing of it is looked at before the process is confined.
pub fn run() -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let mut input = io::stdin().lock();
    let Some((request, bytes)) = read_request(&mut input) else { return ExitCode::from(EXIT_PROTOCOL) };
    if request.version != VERSION {
        let why = format!(
            "{PROGRAM} is of version {VERSION} and toolyard of version {}; install both programs from one release",
            shortened(request.version)
        );
        say(&Answer::Unavailable { why }, &[]);
        return ExitCode::from(EXIT_UNAVAILABLE);
    }
    let limits = toolyard_sandbox::Limits { time_ms: request.limits.parse_ms, ..toolyard_sandbox::Limits::default() };
    if let Err(why) = toolyard_sandbox::child::confine_to_pipes(&limits) {
        say(&Answer::Unavailable { why }, &[]);
        return ExitCode::from(EXIT_UNAVAILABLE);
    }
    answer(&request, &bytes);
    ExitCode::SUCCESS
}

fn answer(request: &Request, bytes: &[u8]) {
    if request.format == Format::Zip {
        let unpacked = formats::unpack(bytes, &request.limits, |one| match one {
            Unpacked::File(path, bytes) => say(&Answer::File { path, bytes: bytes.len() }, &bytes),
            Unpacked::Skipped(path, why) => say(&Answer::Skipped { path: shortened(path), why }, &[]),
        });
        match unpacked {
            Ok(()) => say(&Answer::Done, &[]),
            Err(failure) => say(&Answer::Failed { why: shortened(failure.0) }, &[]),
        }
        return;
    }
    match formats::convert(request.format, bytes, &request.limits) {
        Ok(converted) => {
            let title = converted.title.map(shortened);
            say(&Answer::Text { title, bytes: converted.markdown.len() }, converted.markdown.as_bytes());
        }
        Err(failure) => say(&Answer::Failed { why: shortened(failure.0) }, &[]),
    }
}

/// A line of the protocol has a size.
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

/// A child that cannot answer ends at once: the parent reports that its parser ended without an answer.
fn say(answer: &Answer, body: &[u8]) {
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
