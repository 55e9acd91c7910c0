//! `toolyard hooks run`: hands an event to the running Toolyard and writes its answer. It starts with every call of an
//! agent, so it reads no configuration, starts no runtime and loads nothing.
//!
//! A client runs the tool on every exit code but 2, on a timeout and on output it cannot read. Therefore the answer is
//! written at once and whole, and every doubt about an event that decides ends with exit code 2 and a text on standard
//! error. Events that decide nothing end with 0: a refusal of those would stop the agent, not a tool.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};
use toolyard_hooks::{Client, HookAnswer};

/// Less than the ten minutes after which clients cut a hook off and run the tool, more than the server holds a hook.
const DEADLINE: Duration = Duration::from_secs(585);
/// The same for events that decide nothing.
const NOTING_DEADLINE: Duration = Duration::from_secs(25);
/// A longer payload is refused.
const MAX_PAYLOAD: u64 = 16 << 20;
/// Claude Code sets it where somebody sits at the terminal.
const ATTENDED: &str = "CLAUDE_CODE_SESSION_ATTENDED";
/// Events that decide whether something happens.
const DECIDING: [&str; 3] = ["PreToolUse", "BeforeTool", "ConfigChange"];

#[derive(Serialize)]
struct Secret<'a> {
    secret: &'a str,
}

#[derive(Serialize)]
struct Request<'a> {
    id: u64,
    method: &'static str,
    params: Params<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<&'a str>,
}

#[derive(Serialize)]
struct Params<'a> {
    client: Client,
    attended: bool,
    payload: &'a RawValue,
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    ok: Option<bool>,
    result: Option<HookAnswer>,
    error: Option<ReplyError>,
}

#[derive(Deserialize)]
struct ReplyError {
    message: String,
}

/// The command, if that is what was typed and nothing else: then the command line need not be parsed.
pub fn typed() -> Option<ExitCode> {
    let Typed { home, client, workspace } = parse(std::env::args_os().skip(1))?;
    let home = home.or_else(|| std::env::var_os("TOOLYARD_HOME").filter(|home| !home.is_empty()).map(PathBuf::from));
    Some(run(home.as_deref(), client, workspace.as_deref()))
}

/// What the command line of an installed hook says.
struct Typed {
    home: Option<PathBuf>,
    client: Client,
    workspace: Option<String>,
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Option<Typed> {
    let (mut home, mut client, mut workspace, mut words) = (None, None, None, 0);
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        match (argument.to_str()?, words) {
            ("hooks", 0) | ("run", 1) => words += 1,
            ("--home", _) => home = Some(PathBuf::from(arguments.next()?)),
            ("--workspace", _) => workspace = Some(arguments.next()?.into_string().ok()?),
            ("--client", 2) => client = Some(Client::parse(arguments.next()?.to_str()?)?),
            _ => return None,
        }
    }
    Some(Typed { home, client: client?, workspace })
}

/// Answers one event from standard input, in the workspace that the hook was installed for.
pub fn run(home: Option<&Path>, client: Client, workspace: Option<&str>) -> ExitCode {
    let mut payload = Vec::new();
    let read = std::io::stdin().lock().take(MAX_PAYLOAD + 1).read_to_end(&mut payload);
    let decides = event(&payload).is_none_or(|event| DECIDING.contains(&event.as_str()));
    let answer = match read {
        Err(error) => Err(format!("the event cannot be read: {error}")),
        Ok(_) if payload.len() as u64 > MAX_PAYLOAD => Err("the event is too large".to_owned()),
        Ok(_) => answer(home, client, workspace, &mut payload, decides),
    };
    let answer = answer.unwrap_or_else(|why| {
        if decides {
            return HookAnswer::refuse(&format!("Toolyard refused this call: {why}"));
        }
        let stdout = if client == Client::Gemini { "{}" } else { "" };
        HookAnswer { stdout: stdout.to_owned(), ..HookAnswer::default() }
    });
    write(&answer)
}

fn event(payload: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        hook_event_name: String,
    }
    serde_json::from_slice::<Named>(payload).ok().map(|named| named.hook_event_name)
}

fn answer(
    home: Option<&Path>,
    client: Client,
    workspace: Option<&str>,
    payload: &mut [u8],
    decides: bool,
) -> Result<HookAnswer, String> {
    // A request is one line. Line ends of JSON are white space: inside of texts they are escaped.
    payload.iter_mut().filter(|byte| matches!(**byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    let payload: &RawValue =
        serde_json::from_slice(payload).map_err(|error| format!("the event is no JSON: {error}"))?;
    let state = match home {
        Some(home) => home.join("state"),
        None => PathBuf::from(std::env::var_os("HOME").ok_or("HOME is not set")?).join(".toolyard/state"),
    };
    let down = |what: &dyn std::fmt::Display| format!("Toolyard does not answer ({what}); start it with `toolyard up`");
    let mut stream = UnixStream::connect(state.join("toolyard.sock")).map_err(|error| down(&error))?;
    let deadline = if decides { DEADLINE } else { NOTING_DEADLINE };
    stream.set_read_timeout(Some(deadline)).map_err(|error| down(&error))?;
    stream.set_write_timeout(Some(NOTING_DEADLINE)).map_err(|error| down(&error))?;
    let secret = std::fs::read_to_string(state.join("local.secret")).map_err(|error| down(&error))?;
    let attended = std::env::var_os(ATTENDED).is_some_and(|value| value == "1");
    let request = Request { id: 1, method: "hooks.event", params: Params { client, attended, payload }, workspace };
    let mut lines = serde_json::to_vec(&Secret { secret: secret.trim() }).map_err(|error| error.to_string())?;
    lines.push(b'\n');
    serde_json::to_writer(&mut lines, &request).map_err(|error| error.to_string())?;
    lines.push(b'\n');
    stream.write_all(&lines).map_err(|error| down(&error))?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line).map_err(|error| down(&error))? == 0 {
            return Err(down(&"it closed the connection"));
        }
        let reply: Reply = serde_json::from_str(&line).map_err(|error| down(&error))?;
        match reply {
            // Events of the run come before the answer.
            Reply { ok: None, .. } => {}
            Reply { result: Some(answer), .. } => return Ok(answer),
            Reply { error, .. } => return Err(error.map_or_else(|| "no answer came".to_owned(), |error| error.message)),
        }
    }
}

/// Writes the answer. One that cannot be written is a refusal.
fn write(answer: &HookAnswer) -> ExitCode {
    let mut stdout = std::io::stdout().lock();
    if !answer.stdout.is_empty() && stdout.write_all(answer.stdout.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        return ExitCode::from(2);
    }
    let mut stderr = std::io::stderr().lock();
    if !answer.stderr.is_empty() && stderr.write_all(answer.stderr.as_bytes()).and_then(|()| stderr.flush()).is_err() {
        return ExitCode::from(2);
    }
    ExitCode::from(answer.exit)
}
