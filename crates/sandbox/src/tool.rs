//! Runs a system program (git, npm) to its end on untrusted files: in the sandbox of [`crate::launch`], with one
//! writable folder, a time limit, and a size limit for that folder.
//!
//! Does not know git or npm; the caller chooses the arguments that prevent them from running what they fetch.

use crate::launch::{ConfinedLauncher, Confinement, ProcessLimits, Program};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::sync::CancellationToken;

/// Processes and memory of one call: npm holds the tree of all dependencies in memory.
const LIMITS: ProcessLimits = ProcessLimits { processes: 64, memory_mb: 2048 };
/// How often the size of the folder is measured.
const MEASURE_EVERY: Duration = Duration::from_millis(250);
/// Bytes of each output stream that are kept; the rest is read and dropped.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;
/// Maximum number of lines of an error message that are shown.
const SHOWN_LINES: usize = 6;
/// Maximum number of characters of an error message that are shown.
const SHOWN_CHARS: usize = 600;

/// A program to run, and what it may touch and use.
#[derive(Debug)]
pub struct Tool<'a> {
    /// Its name or path.
    pub program: &'a str,
    /// The arguments.
    pub args: &'a [String],
    /// All of its environment.
    pub env: &'a [(String, String)],
    /// Where it starts.
    pub cwd: &'a Path,
    /// The only folder that the program can write to; it contains only this program's files.
    pub folder: &'a Path,
    /// Files and folders that the program may read, in addition to the system's.
    pub read: Vec<PathBuf>,
    /// Whether it may use the network.
    pub network: bool,
    /// It is ended after this time.
    pub time_limit: Duration,
    /// It is ended when its folder takes more bytes than this.
    pub byte_limit: u64,
}

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It could not be started or confined.
    #[error("{0}")]
    NotStarted(String),
    /// It ended with an error; what it wrote to standard error.
    #[error("{0}")]
    Failed(String),
    /// It took too long.
    #[error("it took longer than {} s", .0.as_secs())]
    TimeLimit(Duration),
    /// It wrote too much.
    #[error("it wrote more than {0} bytes")]
    ByteLimit(u64),
    /// The caller gave up.
    #[error("cancelled")]
    Cancelled,
}

impl Tool<'_> {
    /// Runs it. The program and everything it started are gone when this returns.
    pub async fn run(&self, launcher: &ConfinedLauncher, cancel: &CancellationToken) -> Result<(), ToolError> {
        let walls = Confinement { read: self.read.clone(), write: vec![self.folder.to_owned()], network: self.network };
        let program = Program { program: self.program, args: self.args, cwd: Some(self.cwd), env: self.env };
        let mut command = launcher.limited(LIMITS).command(&walls, &program).map_err(ToolError::NotStarted)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).process_group(0);
        let mut child = command.spawn().map_err(|e| ToolError::NotStarted(format!("it cannot be started: {e}")))?;
        // Also when this future is dropped.
        let _group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).map(Group);
        let stderr = child.stderr.take();
        let finished = async {
            let message = read_tail(stderr).await;
            (child.wait().await, message)
        };
        tokio::pin!(finished);
        let deadline = tokio::time::sleep(self.time_limit);
        tokio::pin!(deadline);
        let mut measure = tokio::time::interval(MEASURE_EVERY);
        loop {
            tokio::select! {
                (status, message) = &mut finished => {
                    let status = status.map_err(|e| ToolError::NotStarted(e.to_string()))?;
                    self.check_size().await?;
                    return if status.success() { Ok(()) } else { Err(ToolError::Failed(shown(&message))) };
                }
                () = &mut deadline => return Err(ToolError::TimeLimit(self.time_limit)),
                () = cancel.cancelled() => return Err(ToolError::Cancelled),
                _ = measure.tick() => self.check_size().await?,
            }
        }
    }

    async fn check_size(&self) -> Result<(), ToolError> {
        let (folder, limit) = (self.folder.to_owned(), self.byte_limit);
        let size = tokio::task::spawn_blocking(move || size_of(&folder, limit)).await.unwrap_or(0);
        if size > limit { Err(ToolError::ByteLimit(limit)) } else { Ok(()) }
    }
}

/// A process group that is ended with this value: helpers of git outlive git itself otherwise.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // An error means that no process of the group is left.
        let _gone = kill_process_group(self.0, Signal::KILL);
    }
}

/// Reads a stream to its end and keeps the beginning.
async fn read_tail(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        let read = (&mut stream).take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes).await;
        let rest = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        if let Err(error) = read.and(rest.map(|_| 0)) {
            bytes.extend(format!("\n(its messages could not be read: {error})").into_bytes());
        }
    }
    bytes
}

/// A program's output for one line of an error message: short and without control characters.
fn shown(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(SHOWN_LINES).collect();
    if lines.is_empty() {
        return "it failed and did not say why".to_owned();
    }
    lines.join(" | ").chars().filter(|c| !c.is_control()).take(SHOWN_CHARS).collect()
}

/// Bytes of the files in a folder; counting stops above `limit`. Links are not followed.
fn size_of(folder: &Path, limit: u64) -> u64 {
    let mut total = 0;
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() {
                open.push(entry.path());
            } else {
                total += about.len();
            }
            if total > limit {
                return total;
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_short_and_cannot_write_to_a_terminal() {
        assert_eq!(shown(b"\n  fatal: no \x1b[2Jsuch\n\nrepository\n"), "fatal: no [2Jsuch | repository");
        assert_eq!(shown(b""), "it failed and did not say why");
        assert!(shown(&[b'x'; 10_000]).len() <= SHOWN_CHARS);
    }

    #[test]
    fn counting_stops_above_the_limit_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), [0; 100]).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("usr")).unwrap();
        assert!(size_of(dir.path(), 1 << 20) < 1 << 12);
        assert!(size_of(dir.path(), 10) > 10);
    }
}
