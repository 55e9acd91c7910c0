//! Reading what commands are given: JSON arguments, plan files, run ids, a yes.

use serde_json::{Map, Value};
use std::io::{IsTerminal, Read, Write};
use toolyard_protocol::{ErrorCode, Failure, RunId};

/// Nothing larger than this is read from a file or from standard input.
const MAX_INPUT: u64 = 32 << 20;

fn usage(message: String) -> Failure {
    Failure::new(ErrorCode::UsageError, message)
}

/// Reads a file, or standard input for `-`.
pub(super) fn read_source(source: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if source == "-" {
        std::io::stdin().lock().take(MAX_INPUT + 1).read_to_end(&mut bytes)
    } else {
        let file = std::fs::File::open(source).map_err(|e| {
            let code =
                if e.kind() == std::io::ErrorKind::NotFound { ErrorCode::NotFound } else { ErrorCode::UsageError };
            Failure::new(code, format!("{source} cannot be read: {e}")).suggest("Check the path of the file.")
        })?;
        file.take(MAX_INPUT + 1).read_to_end(&mut bytes)
    };
    read.map_err(|e| usage(format!("{source} cannot be read: {e}")))?;
    if bytes.len() as u64 > MAX_INPUT {
        return Err(Failure::new(ErrorCode::LimitExceeded, format!("{source} is larger than {MAX_INPUT} bytes")));
    }
    Ok(bytes)
}

/// A JSON object from the command line, a file (`@FILE`) or standard input (`-`).
pub(super) fn json_object(text: &str) -> Result<Map<String, Value>, Failure> {
    let bytes = match text.strip_prefix('@') {
        Some(path) => read_source(path)?,
        None if text == "-" => read_source("-")?,
        None => text.as_bytes().to_vec(),
    };
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => {
            Err(usage("the arguments must be a JSON object".into())
                .suggest("For example: --args '{\"path\":\"Note.md\"}'"))
        }
        Err(e) => {
            Err(usage(format!("the arguments are not JSON: {e}"))
                .suggest("For example: --args '{\"path\":\"Note.md\"}'"))
        }
    }
}

/// A plan as JSON; the engine checks what it says.
pub(super) fn plan(source: &str) -> Result<Value, Failure> {
    let bytes = read_source(source)?;
    // Parsed as a plan first: its errors name line, column and key.
    let plan = toolyard_engine::plan::parse_plan(&bytes)?;
    serde_json::to_value(plan).map_err(|e| Failure::new(ErrorCode::ValidationError, e.to_string()))
}

/// `KIND=JSON` pairs; text that is not JSON is taken as a string.
pub(super) fn context(pairs: &[String]) -> Result<Map<String, Value>, Failure> {
    pairs
        .iter()
        .map(|pair| {
            let (kind, text) =
                pair.split_once('=').ok_or_else(|| usage(format!("--context {pair:?} must look like KIND=JSON")))?;
            let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
            Ok((kind.to_owned(), value))
        })
        .collect()
}

/// A run id.
pub(super) fn run_id(text: &str) -> Result<RunId, Failure> {
    RunId::parse(text).map_err(|e| usage(e.to_string()).suggest("List runs with `toolyard runs list`."))
}

/// Whether a person can be asked.
pub(super) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks on the terminal. Anything but yes is no.
pub(super) fn ask(question: &str) -> bool {
    let mut err = std::io::stderr().lock();
    let _ = write!(err, "{question} [y/N] ").and_then(|()| err.flush());
    let mut answer = String::new();
    if std::io::stdin().read_line(&mut answer).is_err() {
        return false;
    }
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
