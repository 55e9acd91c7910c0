//! Reads the input of commands: JSON arguments, plan files, run ids, confirmations.

use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use toolyard_protocol::{ErrorCode, Failure, RunId};
use toolyard_service::Object;

/// The largest input that is read whole, from a file or from standard input.
const MAX_INPUT: u64 = 32 << 20;
/// The longest line of a file that is read line by line; the file itself may have any size.
const MAX_LINE: u64 = 32 << 20;

fn usage(message: String) -> Failure {
    Failure::new(ErrorCode::UsageError, message)
}

fn open(source: &str) -> Result<Box<dyn Read>, Failure> {
    if source == "-" {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let file = std::fs::File::open(source).map_err(|e| {
        let code = if e.kind() == std::io::ErrorKind::NotFound { ErrorCode::NotFound } else { ErrorCode::UsageError };
        Failure::new(code, format!("{source} cannot be read: {e}")).suggest("Check the path of the file.")
    })?;
    Ok(Box::new(file))
}

/// Reads a file, or standard input for `-`.
pub(super) fn read_source(source: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = open(source)?.take(MAX_INPUT + 1).read_to_end(&mut bytes);
    read.map_err(|e| usage(format!("{source} cannot be read: {e}")))?;
    if bytes.len() as u64 > MAX_INPUT {
        return Err(Failure::new(ErrorCode::LimitExceeded, format!("{source} is larger than {MAX_INPUT} bytes")));
    }
    Ok(bytes)
}

/// Reads a text file, or standard input for `-`.
pub(super) fn text_file(path: &std::path::Path) -> Result<String, Failure> {
    let source = path.display().to_string();
    String::from_utf8(read_source(&source)?).map_err(|_| usage(format!("{source} is not text")))
}

/// An absolute path, because a running Toolyard may have another working directory.
pub(super) fn absolute(path: &std::path::Path) -> Result<std::path::PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| usage(format!("{}: {error}", path.display())))
}

/// Reads a file, or standard input for `-`, line by line: a file of any size, of which one line at a time is held. Blank
/// lines are passed over; lines are numbered from 1.
pub(super) fn each_line(
    source: &str,
    mut visit: impl FnMut(usize, &[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut reader = BufReader::new(open(source)?);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = (&mut reader).take(MAX_LINE + 1).read_until(b'\n', &mut line);
        if read.map_err(|e| usage(format!("{source} cannot be read: {e}")))? == 0 {
            break;
        }
        if line.len() as u64 > MAX_LINE {
            let text = format!("{source}, line {number} is longer than {MAX_LINE} bytes");
            return Err(Failure::new(ErrorCode::LimitExceeded, text));
        }
        if !line.iter().all(u8::is_ascii_whitespace) {
            visit(number, &line)?;
        }
    }
    Ok(())
}

/// A JSON object from the command line, a file (`@FILE`) or standard input (`-`).
pub(super) fn json_object(text: &str) -> Result<Object, Failure> {
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

/// Reads a plan as JSON; the engine checks its content.
pub(super) fn plan(source: &str) -> Result<Value, Failure> {
    let bytes = read_source(source)?;
    // Parsed as a plan first: its errors name line, column and key.
    let plan = toolyard_engine::plan::parse_plan(&bytes)?;
    serde_json::to_value(plan).map_err(|e| Failure::new(ErrorCode::ValidationError, e.to_string()))
}

/// `KIND=JSON` pairs; text that is not JSON is taken as a string.
pub(super) fn context(pairs: &[String]) -> Result<Object, Failure> {
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

/// A word of a fixed set, such as a status.
pub(super) fn word<T: DeserializeOwned>(option: &str, text: &str) -> Result<T, Failure> {
    serde_json::from_value(Value::from(text))
        .map_err(|e| Failure::new(ErrorCode::ValidationError, format!("{option} {text:?} is not known: {e}")))
}

/// Whether a person can be asked.
pub(super) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks on the terminal. Anything but yes is no.
pub(super) fn ask(question: &str) -> bool {
    let mut err = std::io::stderr().lock();
    // A question that could not be written counts as declined.
    if write!(err, "{question} [y/N] ").and_then(|()| err.flush()).is_err() {
        return false;
    }
    let mut answer = String::new();
    if std::io::stdin().read_line(&mut answer).is_err() {
        return false;
    }
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_any_size_is_read_line_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let mut file = std::fs::File::create(&path).unwrap();
        let line = vec![b'x'; 1 << 20];
        for _ in 0..33 {
            file.write_all(&line).and_then(|()| file.write_all(b"\n\r\n")).unwrap();
        }
        drop(file);
        let source = path.to_str().unwrap();
        let mut seen = Vec::new();
        each_line(source, |number, line| {
            seen.push((number, line.len()));
            Ok(())
        })
        .unwrap();
        assert_eq!((seen.len(), seen[0], seen[32]), (33, (1, (1 << 20) + 1), (65, (1 << 20) + 1)));
        assert_eq!(read_source(source).unwrap_err().code, ErrorCode::LimitExceeded);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("line");
        std::fs::File::create(&path).and_then(|file| file.set_len(MAX_LINE + 1)).unwrap();
        let refused = each_line(path.to_str().unwrap(), |_, _| Ok(())).unwrap_err();
        assert_eq!(refused.code, ErrorCode::LimitExceeded);
        let missing = each_line("/nowhere/at/all", |_, _| Ok(())).unwrap_err();
        assert_eq!(missing.code, ErrorCode::NotFound);
    }
}
