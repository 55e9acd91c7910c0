//! Finds and starts the index program. Sandboxing is the caller's task: a [`Launch`] provides the confined command.

use crate::{ProgramError, wire};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};

/// Number of stderr lines kept to explain why the program exited.
const KEPT_LINES: usize = 4;
/// Maximum length of a kept line, in characters.
const LINE_CHARS: usize = 300;
/// How long to wait for the last stderr output of a program that exited.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Finds and starts the index program.
pub trait Launch: Send + Sync + 'static {
    /// Checks that the program is installed, without starting it.
    fn find(&self) -> Result<(), ProgramError>;

    /// Starts the program.
    fn start(&self) -> Result<RunningProgram, ProgramError>;
}

/// A started program and the pipes to it.
pub struct RunningProgram {
    pub(super) replies: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) requests: Box<dyn AsyncWrite + Send + Unpin>,
    pub(super) child: Child,
}

impl RunningProgram {
    /// Starts a command.
    pub fn spawn(mut command: tokio::process::Command) -> Result<Self, ProgramError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let failed = |why: &str| ProgramError::NotStarted(why.to_owned());
        let mut process = command.spawn().map_err(|e| ProgramError::NotStarted(e.to_string()))?;
        let requests = process.stdin.take().ok_or_else(|| failed("it has no standard input"))?;
        let replies = process.stdout.take().ok_or_else(|| failed("it has no standard output"))?;
        let messages = Messages::default();
        if let Some(stderr) = process.stderr.take() {
            tokio::spawn(messages.clone().collect(stderr));
        }
        Ok(Self {
            replies: Box::new(replies),
            requests: Box::new(requests),
            child: Child { process: Some(process), messages },
        })
    }

    /// The process id, if it is a running process.
    pub fn id(&self) -> Option<u32> {
        self.child.process.as_ref().and_then(tokio::process::Child::id)
    }

    /// Uses the given pipes without a process, for tests.
    pub fn over(
        replies: impl AsyncRead + Send + Unpin + 'static,
        requests: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let child = Child { process: None, messages: Messages::default() };
        Self { replies: Box::new(replies), requests: Box::new(requests), child }
    }
}

/// The process behind the pipes.
pub(super) struct Child {
    process: Option<tokio::process::Child>,
    messages: Messages,
}

impl Child {
    /// Waits at most `within` for the process to exit, then kills it; returns how it ended.
    pub(super) async fn end(&mut self, within: Duration) -> String {
        let Some(process) = &mut self.process else { return String::new() };
        let status = match tokio::time::timeout(within, process.wait()).await {
            Ok(status) => status,
            Err(_) => {
                if let Err(error) = process.start_kill() {
                    tracing::debug!(%error, "the index program could not be killed");
                }
                process.wait().await
            }
        };
        match status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Adds the program's own messages to the error of a failed start.
    pub(super) async fn explain(&mut self, error: ProgramError) -> ProgramError {
        let status = self.end(LAST_WORDS).await;
        if matches!(error, ProgramError::OtherVersion(_)) {
            return error;
        }
        // The task that reads stderr may lag behind.
        tokio::time::sleep(LAST_WORDS / 4).await;
        let stderr_text = self.messages.stderr_text();
        match (stderr_text.is_empty(), status.is_empty()) {
            (true, true) => error,
            (true, false) => ProgramError::NotStarted(status),
            (false, _) => ProgramError::NotStarted(stderr_text),
        }
    }
}

/// The program's stderr output, which goes to the log.
#[derive(Clone, Default)]
struct Messages(Arc<Mutex<VecDeque<String>>>);

impl Messages {
    async fn collect(self, stderr: impl AsyncRead + Unpin) {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let line: String = line.chars().take(LINE_CHARS).collect();
            tracing::info!(target: "toolyard_index", "{line}");
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_back(line);
            if kept.len() > KEPT_LINES {
                kept.pop_front();
            }
        }
    }

    fn stderr_text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }
}

/// Where the index program is searched: the configured path, otherwise the folder of this executable, otherwise the
/// folders of `PATH`.
#[derive(Debug, Clone, Default)]
pub struct ProgramLocator {
    /// The configured path; if it is set, nothing else is tried.
    pub configured: Option<PathBuf>,
    /// Folders to search, in order.
    pub folders: Vec<PathBuf>,
}

impl ProgramLocator {
    /// A finder for this process.
    pub fn new(configured: Option<PathBuf>) -> Self {
        let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned()));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = beside.into_iter().chain(std::env::split_paths(&path).filter(|folder| folder.is_absolute()));
        Self { configured, folders: folders.collect() }
    }

    /// The path of the program.
    pub fn find(&self) -> Result<PathBuf, ProgramError> {
        let missing = |what: String| Err(ProgramError::Missing(what));
        if let Some(program) = &self.configured {
            return if is_program(program) {
                Ok(program.clone())
            } else {
                missing(format!(
                    "{} is no program; knowledge.index.program, index.program or TOOLYARD_INDEX_PROGRAM names it",
                    program.display()
                ))
            };
        }
        let tried = self.folders.iter().map(|folder| folder.join(wire::PROGRAM)).find(|program| is_program(program));
        match tried {
            Some(program) => Ok(program),
            None => missing(format!("{} is neither beside toolyard nor in PATH", wire::PROGRAM)),
        }
    }
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_configured_program_comes_first_and_what_cannot_run_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("a"), dir.path().join("b"));
        for folder in [&first, &second] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join(wire::PROGRAM), "").unwrap();
        }
        let mut finder = ProgramLocator { configured: None, folders: vec![first, second.clone()] };
        assert!(matches!(finder.find(), Err(ProgramError::Missing(_))));
        let program = second.join(wire::PROGRAM);
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(finder.find(), Ok(program));
        finder.configured = Some(dir.path().join("none"));
        assert!(matches!(finder.find(), Err(ProgramError::Missing(why)) if why.contains("knowledge.index.program")));
    }
}
