//! The parent's side of confined parsing: it starts a new child process for each document, enforces a timeout and
//! validates the responses.

use crate::{
    formats::{Converted, Format, ParseFailure},
    limits::Limits,
    wire::{MARK, MAX_HEADER_BYTES, PROGRAM, ParseResponse, Request, VERSION},
};
use std::{
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdout, Command},
};

/// How long to wait for a child beyond its own timeout.
const GRACE: Duration = Duration::from_millis(500);

/// The files of an archive, and the skipped ones with the reason.
#[derive(Debug, Default)]
pub struct Archive {
    /// Path and content.
    pub files: Vec<(String, Vec<u8>)>,
    /// Path and reason.
    pub skipped: Vec<(String, String)>,
}

/// Parses documents in confined child processes.
#[derive(Debug, Clone, Default)]
pub struct ConfinedParser {
    program: Option<PathBuf>,
}

impl ConfinedParser {
    /// The child program is `toolyard-parse`, found beside this program or in `PATH`.
    pub fn new() -> Self {
        Self::default()
    }

    /// The child program is `program`.
    pub fn with_program(program: impl Into<PathBuf>) -> Self {
        Self { program: Some(program.into()) }
    }

    /// Converts a document to Markdown.
    pub async fn document(&self, format: Format, bytes: &[u8], limits: &Limits) -> Result<Converted, ParseFailure> {
        let mut found = None;
        self.run(format, bytes, limits, &mut |answer, body| {
            if let ParseResponse::Text { title, .. } = answer {
                let markdown =
                    String::from_utf8(body).map_err(|_| ParseFailure::new("its parser did not answer with text"))?;
                found = Some(Converted { title, markdown });
            }
            Ok(())
        })
        .await?;
        found.ok_or_else(|| ParseFailure::new("its parser said nothing"))
    }

    /// Unpacks a zip archive.
    pub async fn archive(&self, bytes: &[u8], limits: &Limits) -> Result<Archive, ParseFailure> {
        let mut archive = Archive::default();
        let mut total = 0u64;
        self.run(Format::Zip, bytes, limits, &mut |answer, body| {
            match answer {
                ParseResponse::File { path, .. } => {
                    total += body.len() as u64;
                    // The child enforces the same limits, but the parent does not trust it.
                    let path = crate::names::safe_path(&path)
                        .ok_or_else(|| ParseFailure::new("its parser named a bad path"))?;
                    if total > limits.unpacked_bytes || archive.files.len() >= limits.files {
                        return Err(ParseFailure::new("it unpacks to more than is allowed"));
                    }
                    archive.files.push((path, body));
                }
                ParseResponse::Skipped { path, why } => archive.skipped.push((path, why)),
                _ => {}
            }
            Ok(())
        })
        .await?;
        Ok(archive)
    }

    async fn run(
        &self,
        format: Format,
        bytes: &[u8],
        limits: &Limits,
        take: &mut (dyn FnMut(ParseResponse, Vec<u8>) -> Result<(), ParseFailure> + Send),
    ) -> Result<(), ParseFailure> {
        let mut child = self.start()?;
        let time = Duration::from_millis(limits.parse_ms) + GRACE;
        let spoken = tokio::time::timeout(time, converse(&mut child, format, bytes, limits, take)).await;
        match spoken {
            Ok(Ok(true)) => Ok(()),
            Ok(Err(failure)) => Err(failure),
            Ok(Ok(false)) => {
                let status = tokio::time::timeout(GRACE, child.wait()).await.ok().and_then(Result::ok);
                Err(ParseFailure::new(how_it_ended(status)))
            }
            Err(_) => Err(ParseFailure::new(format!("parsing took longer than {} ms", limits.parse_ms))),
        }
        // Dropping the child kills it.
    }

    fn start(&self) -> Result<Child, ParseFailure> {
        let program = self.program.clone().or_else(installed).ok_or_else(|| {
            ParseFailure::new(format!("{PROGRAM}, which parses it, is neither beside toolyard nor in PATH"))
        })?;
        Command::new(program)
            .arg0(PROGRAM)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| ParseFailure::new(format!("its parser could not be started: {e}")))
    }
}

/// The program in the folder of this executable or in its parent folder (cargo puts test executables one folder deeper
/// than programs); otherwise in `PATH`.
fn installed() -> Option<PathBuf> {
    let this = std::env::current_exe().ok();
    let beside = this.iter().flat_map(|program| program.ancestors().skip(1).take(2)).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside
        .chain(std::env::split_paths(&path).filter(|folder| folder.is_absolute()))
        .find_map(|folder| in_folder(&folder))
}

fn in_folder(folder: &Path) -> Option<PathBuf> {
    Some(folder.join(PROGRAM)).filter(|program| program.is_file())
}

/// Sends the document and handles the responses. Returns whether the child reported completion.
async fn converse(
    child: &mut Child,
    format: Format,
    bytes: &[u8],
    limits: &Limits,
    take: &mut (dyn FnMut(ParseResponse, Vec<u8>) -> Result<(), ParseFailure> + Send),
) -> Result<bool, ParseFailure> {
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { return Ok(false) };
    let request = Request { version: VERSION.to_owned(), format, bytes: bytes.len(), limits: limits.clone() };
    let mut line = serde_json::to_vec(&request).map_err(|e| ParseFailure::new(e.to_string()))?;
    line.push(b'\n');
    let send = async {
        // A child that exits early has reported a reason, or its exit status is the reason.
        if let Err(error) = async {
            input.write_all(&line).await?;
            input.write_all(bytes).await
        }
        .await
        {
            tracing::debug!(%error, "a parser ended before it had read its document");
        }
        drop(input);
    };
    let (_, received) = tokio::join!(send, receive(output, limits, take));
    received
}

async fn receive(
    output: ChildStdout,
    limits: &Limits,
    take: &mut (dyn FnMut(ParseResponse, Vec<u8>) -> Result<(), ParseFailure> + Send),
) -> Result<bool, ParseFailure> {
    let mut output = BufReader::new(output);
    let misbehaved = || ParseFailure::new("its parser misbehaved and was stopped");
    loop {
        let mut line = Vec::new();
        let read = (&mut output).take(MAX_HEADER_BYTES as u64).read_until(b'\n', &mut line).await;
        if read.map_err(|_| misbehaved())? == 0 {
            return Ok(false);
        }
        let Some(json) = line.strip_prefix(&[MARK]) else { continue };
        let answer: ParseResponse = serde_json::from_slice(json).map_err(|_| misbehaved())?;
        let (length, most) = match &answer {
            ParseResponse::Text { bytes, .. } => (*bytes, limits.text_bytes as u64),
            ParseResponse::File { bytes, .. } => (*bytes, limits.file_bytes),
            ParseResponse::Failed { why } => return Err(ParseFailure::new(why.clone())),
            ParseResponse::Unavailable { why } => {
                return Err(ParseFailure::new(format!("nothing can be parsed here: {why}")));
            }
            ParseResponse::Done => return Ok(true),
            ParseResponse::Skipped { .. } => (0, 0),
        };
        if length as u64 > most {
            return Err(misbehaved());
        }
        let mut body = Vec::with_capacity(length);
        (&mut output).take(length as u64).read_to_end(&mut body).await.map_err(|_| misbehaved())?;
        if body.len() != length {
            return Ok(false);
        }
        let last = matches!(answer, ParseResponse::Text { .. });
        take(answer, body)?;
        if last {
            return Ok(true);
        }
    }
}

fn how_it_ended(status: Option<ExitStatus>) -> String {
    match status.and_then(|status| status.signal()) {
        Some(6) => "its parser ran out of memory or gave up".to_owned(),
        Some(9 | 24) => "its parser used more memory or time than it may".to_owned(),
        Some(11 | 7) => "its parser crashed".to_owned(),
        Some(31) => "its parser tried something it may not do and was stopped".to_owned(),
        _ => "its parser ended without an answer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_where_it_is_a_file() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(in_folder(folder.path()), None);
        std::fs::create_dir(folder.path().join(PROGRAM)).unwrap();
        assert_eq!(in_folder(folder.path()), None);
        std::fs::remove_dir(folder.path().join(PROGRAM)).unwrap();
        std::fs::write(folder.path().join(PROGRAM), "").unwrap();
        assert_eq!(in_folder(folder.path()), Some(folder.path().join(PROGRAM)));
    }

    #[tokio::test]
    async fn a_program_that_cannot_be_started_is_said() {
        let parser = ConfinedParser::with_program("/nowhere/toolyard-parse");
        let failed = parser.document(Format::Html, b"<p>x</p>", &Limits::default()).await.unwrap_err();
        assert!(failed.0.contains("could not be started"), "{failed}");
    }
}
