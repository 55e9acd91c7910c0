//! The parent's side: starts a child, measures time, answers the script's requests, and reports the outcome.

use crate::{
    child::CHILD_NAME,
    limits::{Limits, MAX_SCRIPT_BYTES},
    program::program,
    wire::{FromChild, Method, ScriptException, ToChild, frame, frame_length},
};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, value::RawValue};
use std::{
    future::Future,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    pin::Pin,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::{Semaphore, mpsc},
    task::{JoinHandle, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// How long a child may take to exit after it has sent its result.
const EXIT_GRACE: Duration = Duration::from_millis(250);
/// Bytes of the child's standard error that are kept.
const MAX_STDERR_BYTES: usize = 2_048;
/// Characters of it that are shown.
const SHOWN_STDERR_CHARS: usize = 500;
/// Messages read ahead from a child.
const READ_AHEAD: usize = 16;
/// Nesting of a value that crosses.
const MAX_VALUE_DEPTH: usize = 100;

/// A boxed future that can cross threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Answers a script's requests.
pub trait Bridge: Send + Sync + 'static {
    /// One request. An error becomes an exception in the script.
    fn ask(&self, method: Method, args: Vec<Value>) -> BoxFuture<'_, Result<Value, ScriptException>>;

    /// The script was stopped: requests in flight should end soon. They are waited for.
    fn stop(&self) {}
}

/// A script that ran to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// What it returned.
    pub value: Value,
    /// What it wrote to the console, at most as much as the limits keep.
    pub logs: Vec<String>,
    /// Requests it made.
    pub requests: u32,
}

/// Why a script did not run to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// It threw, or could not be compiled.
    #[error("{}: {}", .0.name, .0.message)]
    Threw(ScriptException),
    /// Its time was up.
    #[error("tool_search_code timed out after {0} ms")]
    TimedOut(u64),
    /// The caller cancelled the script.
    #[error("tool_search_code aborted")]
    Aborted,
    /// The child ended without a result.
    #[error("tool_search_code child exited with {how}{}{stderr}", if .stderr.is_empty() { "" } else { ": " })]
    Died {
        /// The signal or exit code, in words.
        how: String,
        /// The beginning of what it wrote to standard error.
        stderr: String,
    },
    /// The child violated the protocol and was killed.
    #[error("tool_search_code child was stopped: {0}")]
    Misbehaved(String),
    /// A script cannot be isolated on this machine; nothing ran.
    #[error("scripts cannot be isolated here: {0}")]
    Unavailable(String),
    /// The script was refused before it ran.
    #[error("{0}")]
    Refused(String),
}

/// A script that did not run to its end, with what it had written by then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptFailure {
    /// The cause.
    pub cause: Cause,
    /// What it wrote to the console.
    pub logs: Vec<String>,
    /// Requests it made.
    pub requests: u32,
}

/// Starts script children.
#[derive(Debug, Clone)]
pub struct ScriptRunner {
    program: Option<PathBuf>,
}

impl Default for ScriptRunner {
    fn default() -> Self {
        Self::new()
    }
}

impl ScriptRunner {
    /// Uses this program as the child, or the small script child beside it if it was built from the same sources.
    pub fn new() -> Self {
        Self { program: None }
    }

    /// Children are another program that hands over to [`crate::child::run`].
    pub fn with_program(program: impl Into<PathBuf>) -> Self {
        Self { program: Some(program.into()) }
    }

    /// Whether scripts can be isolated here: starts a child, which confines itself for real and runs an empty script.
    pub async fn probe(&self) -> Result<(), String> {
        struct NoBridge;
        impl Bridge for NoBridge {
            fn ask(&self, _: Method, _: Vec<Value>) -> BoxFuture<'_, Result<Value, ScriptException>> {
                Box::pin(async { Err(ScriptException::new("Error", "nothing is served")) })
            }
        }
        let ran = self.run("", Limits::default(), Arc::new(NoBridge), CancellationToken::new()).await;
        ran.map(|_| ()).map_err(|failure| failure.cause.to_string())
    }

    /// Runs a script to its end, whichever it is. When this returns, the child is gone and every request it made has
    /// been answered.
    pub async fn run(
        &self,
        code: &str,
        limits: Limits,
        bridge: Arc<dyn Bridge>,
        cancel: CancellationToken,
    ) -> Result<Finished, ScriptFailure> {
        let refused = |cause| ScriptFailure { cause, logs: Vec::new(), requests: 0 };
        if code.len() > MAX_SCRIPT_BYTES {
            let message = format!("the script is {} bytes; at most {MAX_SCRIPT_BYTES} are run", code.len());
            return Err(refused(Cause::Refused(message)));
        }
        if code.contains('\0') {
            return Err(refused(Cause::Refused("the script contains a NUL character".to_owned())));
        }
        let deadline = Instant::now() + Duration::from_millis(limits.time_ms);
        let hello = frame(&ToChild::Run { code: code.to_owned(), limits: limits.clone() })
            .map_err(|e| refused(Cause::Refused(e.to_string())))?;
        let mut child = self.spawn().map_err(|e| refused(Cause::Unavailable(format!("no child process: {e}"))))?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            kill(&mut child);
            return Err(refused(Cause::Unavailable("the child has no pipes".to_owned())));
        };
        let (to_child, outgoing) = mpsc::unbounded_channel();
        let (incoming, from_child) = mpsc::channel(READ_AHEAD);
        let mut pipes = JoinSet::new();
        pipes.spawn(write_all(stdin, outgoing));
        pipes.spawn(read_all(stdout, incoming));
        let errors = tokio::spawn(read_errors(stderr));
        if to_child.send(hello).is_err() {
            kill(&mut child);
            return Err(refused(Cause::Unavailable("the child's input is closed".to_owned())));
        }
        let mut talk = ChildSession {
            at_once: Arc::new(Semaphore::new(limits.bridge_at_once.max(1))),
            limits,
            bridge,
            to_child,
            from_child,
            requests: JoinSet::new(),
            waits: JoinSet::new(),
            open: 0,
            made: 0,
            waits_made: 0,
            logs: Vec::new(),
            log_bytes: 0,
        };
        let said = tokio::select! {
            said = talk.listen() => said,
            () = tokio::time::sleep_until(deadline) => Err(Cause::TimedOut(talk.limits.time_ms)),
            () = cancel.cancelled() => Err(Cause::Aborted),
        };
        let outcome = end(&mut child, said, errors).await;
        if let Err(error) = child.wait().await {
            tracing::warn!(%error, "a script's process could not be waited for");
        }
        pipes.abort_all();
        talk.close(outcome.is_err()).await;
        let ChildSession { logs, made: requests, .. } = talk;
        match outcome {
            Ok(value) => Ok(Finished { value, logs, requests }),
            Err(cause) => Err(ScriptFailure { cause, logs, requests }),
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        Command::new(self.program.as_ref().unwrap_or_else(|| program()))
            .arg0(CHILD_NAME)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }
}

/// The exchange of messages with one child process.
struct ChildSession {
    limits: Limits,
    bridge: Arc<dyn Bridge>,
    at_once: Arc<Semaphore>,
    to_child: mpsc::UnboundedSender<Vec<u8>>,
    from_child: mpsc::Receiver<Result<FromChild, String>>,
    requests: JoinSet<()>,
    /// The script's timers. They end with the script.
    waits: JoinSet<()>,
    /// Requests without an answer.
    open: u32,
    made: u32,
    waits_made: u32,
    logs: Vec<String>,
    log_bytes: usize,
}

impl ChildSession {
    /// Until the result (`Some`), the end of the pipe (`None`), or a message that must not be.
    async fn listen(&mut self) -> Result<Option<Value>, Cause> {
        loop {
            let message = tokio::select! {
                biased;
                Some(_) = self.requests.join_next() => {
                    self.open = self.open.saturating_sub(1);
                    continue;
                }
                Some(_) = self.waits.join_next() => continue,
                message = self.from_child.recv() => message,
            };
            match message {
                None => return Ok(None),
                Some(Err(problem)) => return Err(Cause::Misbehaved(problem)),
                Some(Ok(FromChild::Log { line })) => self.log(line),
                Some(Ok(FromChild::Bridge { id, method, args })) => self.request(id, method, &args)?,
                Some(Ok(FromChild::Wait { id, ms })) => self.wait(id, ms)?,
                Some(Ok(FromChild::Unavailable { reason })) => return Err(Cause::Unavailable(reason)),
                Some(Ok(FromChild::Returned { value })) => {
                    return match parsed(&value, self.limits.value_bytes) {
                        Ok(value) => Ok(Some(value)),
                        Err(problem) => {
                            Err(Cause::Threw(ScriptException::new("TypeError", format!("the result {problem}"))))
                        }
                    };
                }
                Some(Ok(FromChild::Threw { error })) => return Err(Cause::Threw(error)),
            }
        }
    }

    fn log(&mut self, line: String) {
        // The child stops by itself a little later than this; what it sends on top is dropped here.
        let full = self.logs.len() >= self.limits.log_lines || self.log_bytes + line.len() > self.limits.log_bytes;
        if !full {
            self.log_bytes += line.len();
            self.logs.push(line);
        } else if self.log_bytes < usize::MAX {
            self.logs.push("(further output was dropped)".to_owned());
            self.log_bytes = usize::MAX;
        }
    }

    fn request(&mut self, id: u32, method: Method, args: &[Box<RawValue>]) -> Result<(), Cause> {
        // Ids count up; anything else was not sent by our own half of the protocol.
        if id != self.made + 1 {
            return Err(Cause::Misbehaved(format!("request {id} after request {}", self.made)));
        }
        if self.made >= self.limits.bridge_calls {
            return Err(Cause::Misbehaved(format!("more than {} requests", self.limits.bridge_calls)));
        }
        self.made += 1;
        self.open += 1;
        let most = self.limits.value_bytes;
        let args: Result<Vec<Value>, String> = args.iter().map(|arg| parsed(arg, most)).collect();
        let (bridge, at_once, to_child) = (self.bridge.clone(), self.at_once.clone(), self.to_child.clone());
        self.requests.spawn(async move {
            let answer = match args {
                Ok(args) => {
                    let _permit = at_once.acquire().await;
                    bridge.ask(method, args).await
                }
                Err(problem) => Err(ScriptException::new("TypeError", format!("an argument {problem}"))),
            };
            let answer = answer.and_then(|value| {
                let json = value.to_string();
                if json.len() > most {
                    let message = format!("the answer is {} bytes; at most {most} reach a script", json.len());
                    return Err(ScriptException::new("RangeError", message));
                }
                RawValue::from_string(json).map_err(|e| ScriptException::new("TypeError", e.to_string()))
            });
            let message = match answer {
                Ok(value) => ToChild::Answer { id, value },
                Err(error) => ToChild::Failure { id, error },
            };
            let bytes = match frame(&message) {
                Ok(bytes) => bytes,
                Err(error) => return tracing::warn!(%error, "an answer to a script could not be written"),
            };
            if to_child.send(bytes).is_err() {
                tracing::debug!("a script ended before its request was answered");
            }
        });
        Ok(())
    }

    /// Notifies the child when a time has passed. A time beyond the script's own limit is not measured exactly.
    fn wait(&mut self, id: u32, ms: u32) -> Result<(), Cause> {
        if id != self.waits_made + 1 {
            return Err(Cause::Misbehaved(format!("wait {id} after wait {}", self.waits_made)));
        }
        if self.waits.len() >= self.limits.timers {
            return Err(Cause::Misbehaved(format!("more than {} timers", self.limits.timers)));
        }
        self.waits_made += 1;
        let elapsed = frame(&ToChild::Elapsed { id }).map_err(|e| Cause::Misbehaved(e.to_string()))?;
        let time = Duration::from_millis(u64::from(ms).min(self.limits.time_ms));
        let to_child = self.to_child.clone();
        self.waits.spawn(async move {
            tokio::time::sleep(time).await;
            // A child that is gone has no timers.
            drop(to_child.send(elapsed));
        });
        Ok(())
    }

    /// Waits for requests in flight; after a stop, they are cancelled first.
    async fn close(&mut self, stopped: bool) {
        self.waits.abort_all();
        if self.requests.is_empty() {
            return;
        }
        if stopped {
            self.bridge.stop();
            // Requests that wait for their turn need not begin any more.
            self.at_once.close();
        }
        while self.requests.join_next().await.is_some() {}
    }
}

fn kill(child: &mut Child) {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id as i32)) {
        // A group whose last process has just ended is not an error.
        if let Err(error) = kill_process_group(pid, Signal::KILL)
            && error != rustix::io::Errno::SRCH
        {
            tracing::warn!(%error, "a script's processes could not be ended");
        }
    }
    if let Err(error) = child.start_kill() {
        tracing::debug!(%error, "a script's process had ended already");
    }
}

fn parsed(raw: &RawValue, most: usize) -> Result<Value, String> {
    if raw.get().len() > most {
        return Err(format!("is {} bytes as JSON; at most {most} cross", raw.get().len()));
    }
    let value: Value = serde_json::from_str(raw.get()).map_err(|e| format!("is not JSON that can be read: {e}"))?;
    if depth(&value) > MAX_VALUE_DEPTH {
        return Err(format!("is nested more than {MAX_VALUE_DEPTH} deep"));
    }
    Ok(value)
}

/// How deep a value is nested. The parser bounds it, so recursion is safe.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

async fn write_all(mut stdin: ChildStdin, mut outgoing: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(bytes) = outgoing.recv().await {
        if stdin.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

async fn read_all(mut stdout: ChildStdout, incoming: mpsc::Sender<Result<FromChild, String>>) {
    loop {
        let message = match read_frame(&mut stdout).await {
            Ok(None) => return,
            Ok(Some(bytes)) => serde_json::from_slice(&bytes).map_err(|e| format!("a message cannot be read: {e}")),
            Err(e) if e.kind() == std::io::ErrorKind::InvalidData => Err(e.to_string()),
            // The pipe broke in the middle of a message: the child died.
            Err(_) => return,
        };
        let last = message.is_err();
        if incoming.send(message).await.is_err() || last {
            return;
        }
    }
}

async fn read_frame(stdout: &mut ChildStdout) -> std::io::Result<Option<Vec<u8>>> {
    let mut header = [0; 4];
    if stdout.read(&mut header[..1]).await? == 0 {
        return Ok(None);
    }
    stdout.read_exact(&mut header[1..]).await?;
    let mut bytes = vec![0; frame_length(header)?];
    stdout.read_exact(&mut bytes).await?;
    Ok(Some(bytes))
}

/// What became of a script, from what its child said. The child has ended, or is killed.
async fn end(
    child: &mut Child,
    said: Result<Option<Value>, Cause>,
    errors: JoinHandle<String>,
) -> Result<Value, Cause> {
    match said {
        Ok(Some(value)) => {
            // A child that has said its result and does not end by itself is ended.
            if tokio::time::timeout(EXIT_GRACE, child.wait()).await.is_err() {
                kill(child);
            }
            Ok(value)
        }
        // The pipe closed without a result: the child is gone, or about to be.
        Ok(None) => {
            let status = match tokio::time::timeout(EXIT_GRACE, child.wait()).await {
                Ok(Ok(status)) => Some(status),
                _ => None,
            };
            kill(child);
            let stderr = tokio::time::timeout(EXIT_GRACE, errors).await.ok().and_then(Result::ok);
            Err(died(status, &stderr.unwrap_or_default()))
        }
        Err(cause) => {
            kill(child);
            Err(cause)
        }
    }
}

/// Keeps the beginning and reads the rest away, so that the child never waits for a reader.
async fn read_errors(mut stderr: tokio::process::ChildStderr) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(read) = stderr.read(&mut buffer).await {
        if read == 0 {
            break;
        }
        let room = MAX_STDERR_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..read.min(room)]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

fn died(status: Option<ExitStatus>, stderr: &str) -> Cause {
    let how = match status {
        None => "no status: it closed its pipe and stayed".to_owned(),
        Some(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => signal_in_words(signal),
            (None, Some(code)) => format!("code {code}"),
            (None, None) => "an unknown status".to_owned(),
        },
    };
    let stderr: String = stderr.trim().chars().take(SHOWN_STDERR_CHARS).collect();
    Cause::Died { how, stderr }
}

fn signal_in_words(signal: i32) -> String {
    let meaning = match signal {
        libc::SIGSYS => "SIGSYS (it made a system call that scripts may not make)",
        libc::SIGXCPU => "SIGXCPU (its processor time was used up)",
        libc::SIGKILL => "SIGKILL (the system killed it, perhaps for lack of memory)",
        libc::SIGSEGV => "SIGSEGV (the interpreter crashed)",
        libc::SIGABRT => "SIGABRT (it gave up, usually for lack of memory)",
        libc::SIGBUS => "SIGBUS (the interpreter crashed)",
        other => return format!("signal {other}"),
    };
    meaning.to_owned()
}
