//! A server as a child process, with its own process group, a restricted environment, and the last lines of its
//! standard error. Nothing is left behind when it ends.

use super::{
    lines::{LineSplitter, TooLong, read_once},
    mux::{Inbox, Mux},
    pipe::Pipe,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    collections::VecDeque,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::AsyncRead,
    process::{Child, Command},
};
use tokio_util::sync::CancellationToken;
use toolyard_engine::redact::redactor;

/// Bytes of a server's errors that are kept.
const KEPT_ERRORS: usize = 4096;
/// How long a server has to end by itself after its input was closed.
const EOF_GRACE: Duration = Duration::from_millis(1500);
/// How long a server has to end after SIGTERM.
const TERM_GRACE: Duration = Duration::from_millis(1500);
/// How long the last output of an ended server may take to arrive.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What to start.
#[derive(Debug, Clone)]
pub struct ChildSpec {
    /// A name for logs.
    pub name: String,
    /// The program.
    pub program: String,
    /// The arguments.
    pub args: Vec<String>,
    /// Where it starts.
    pub cwd: Option<PathBuf>,
    /// All of its environment.
    pub env: Vec<(String, String)>,
}

/// Builds the command that starts a child; an implementation may add a sandbox.
pub trait Launcher: Send + Sync + 'static {
    /// The command, without streams.
    fn command(&self, spec: &ChildSpec) -> Result<Command, String>;
}

/// Starts child processes without a sandbox.
pub struct PlainLauncher;

impl Launcher for PlainLauncher {
    fn command(&self, spec: &ChildSpec) -> Result<Command, String> {
        let mut command = Command::new(&spec.program);
        command.args(&spec.args).env_clear().envs(spec.env.iter().map(|(k, v)| (k, v)));
        if let Some(cwd) = &spec.cwd {
            command.current_dir(cwd);
        }
        Ok(command)
    }
}

/// A running child with requests over its streams.
pub(crate) struct ChildLink {
    pub(crate) mux: Arc<Mux>,
    stop: CancellationToken,
    ended: CancellationToken,
    errors: Arc<StderrTail>,
    pub(crate) pid: u32,
}

impl ChildLink {
    /// Starts a child. Fails at once when the program cannot be started.
    pub(crate) fn start(
        spec: &ChildSpec,
        launcher: &dyn Launcher,
        max_message: usize,
        inbox: Arc<dyn Inbox>,
        counted: Arc<()>,
        errors: Arc<StderrTail>,
    ) -> Result<Self, String> {
        let mut command = launcher.command(spec)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(|e| format!("{} cannot be started: {e}", spec.program))?;
        let pid = child.id().unwrap_or_default();
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
            return Err(format!("{} has no streams", spec.program));
        };
        let pipe = Pipe::new(stdin).map_err(|e| format!("{} cannot be written to: {e}", spec.program))?;
        let mux = Mux::into_child(pipe.clone());
        tokio::spawn(keep_errors(spec.name.clone(), stderr, errors.clone()));
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let eof = CancellationToken::new();
        tokio::spawn(pipe.drain(eof.clone()));
        let reading = tokio::spawn(read(stdout, max_message, mux.clone(), inbox));
        let watched = WatchedChild {
            child,
            pid,
            mux: mux.clone(),
            errors: errors.clone(),
            stop: stop.clone(),
            eof,
            ended: ended.clone(),
            _counted: counted,
        };
        tokio::spawn(watch(watched, reading));
        Ok(Self { mux, stop, ended, errors, pid })
    }

    /// What the child wrote to its standard error last, without secrets.
    pub(crate) fn last_errors(&self) -> Option<String> {
        self.errors.last()
    }

    /// Ends it and everything it started.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.ended.cancelled().await;
    }
}

impl Drop for ChildLink {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct WatchedChild {
    child: Child,
    pid: u32,
    mux: Arc<Mux>,
    errors: Arc<StderrTail>,
    stop: CancellationToken,
    eof: CancellationToken,
    ended: CancellationToken,
    /// Held until nothing is left of the child.
    _counted: Arc<()>,
}

/// Waits for a child's end, or ends it, and reaps the whole group.
async fn watch(mut watched: WatchedChild, reading: tokio::task::JoinHandle<String>) {
    let mut reading = reading;
    let why = tokio::select! {
        status = watched.child.wait() => {
            // Its last output may not have been read yet.
            if tokio::time::timeout(LAST_WORDS, &mut reading).await.is_err() {
                tracing::debug!("an upstream server ended, and its output stays open");
            }
            let status = status.map_or_else(|e| e.to_string(), |s| s.to_string());
            format!("the server ended ({status}){}", watched.errors.tail())
        }
        why = &mut reading => {
            let why = why.unwrap_or_else(|_| "its output could not be read".to_owned());
            // A server that closes its output usually exits; its exit status is more specific.
            match tokio::time::timeout(Duration::from_millis(300), watched.child.wait()).await {
                Ok(Ok(status)) => format!("the server ended ({status}){}", watched.errors.tail()),
                _ => format!("{why}{}", watched.errors.tail()),
            }
        }
        () = watched.stop.cancelled() => "the server was stopped".to_owned(),
    };
    watched.mux.close(&why);
    watched.eof.cancel();
    let WatchedChild { mut child, pid, ended, _counted, .. } = watched;
    let group = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let signal = |signal| {
        // A group whose last process has ended is not an error.
        if let Some(Err(error)) = group.map(|group| kill_process_group(group, signal))
            && error != rustix::io::Errno::SRCH
        {
            tracing::warn!(pid, %error, "an upstream server's processes could not be signalled");
        }
    };
    if tokio::time::timeout(EOF_GRACE, child.wait()).await.is_err() {
        signal(Signal::TERM);
        if tokio::time::timeout(TERM_GRACE, child.wait()).await.is_err() {
            tracing::info!(pid, "an upstream server does not end when asked to, and is killed");
        }
    }
    // Processes that it started are ended too, also if it ended by itself.
    signal(Signal::KILL);
    if let Err(error) = child.wait().await {
        tracing::warn!(pid, %error, "an upstream server could not be waited for");
    }
    ended.cancel();
}

/// Reads messages until the stream ends; returns the reason.
async fn read(mut stdout: impl AsyncRead + Unpin, max_message: usize, mux: Arc<Mux>, inbox: Arc<dyn Inbox>) -> String {
    let take = |line: &[u8]| {
        let text = line.trim_ascii();
        if !text.is_empty() {
            mux.receive(text, &inbox);
        }
    };
    let mut lines = LineSplitter::new(max_message);
    loop {
        let added = read_once(&mut stdout, |bytes| (!bytes.is_empty()).then(|| lines.add(bytes, take)));
        match added.await {
            Ok(Some(Ok(()))) => {}
            Ok(Some(Err(TooLong))) => return format!("a message longer than {max_message} bytes"),
            Ok(None) => {
                take(lines.rest());
                return "the server closed its output".to_owned();
            }
            Err(e) => return format!("its output cannot be read: {e}"),
        }
    }
}

/// The end of what a child has written to its standard error.
#[derive(Default)]
pub(crate) struct StderrTail(Mutex<VecDeque<u8>>);

impl StderrTail {
    fn add(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let over = kept.len().saturating_sub(KEPT_ERRORS);
        kept.drain(..over);
    }

    /// The kept text, if there is any; without secrets.
    pub(crate) fn last(&self) -> Option<String> {
        Some(self.text()).filter(|text| !text.trim().is_empty())
    }

    /// All that is kept.
    fn text(&self) -> String {
        let kept: Vec<u8> = self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        redactor().text(&String::from_utf8_lossy(&kept)).into_owned()
    }

    /// The end of the text, to be appended to an error message.
    fn tail(&self) -> String {
        let text = self.text();
        let last: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).rev().take(3).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        if last.is_empty() { String::new() } else { format!(": {}", last.join(" | ")) }
    }
}

async fn keep_errors(name: String, mut stderr: impl AsyncRead + Unpin, errors: Arc<StderrTail>) {
    let keep = |bytes: &[u8]| {
        errors.add(bytes);
        tracing::debug!(server = name, "{}", String::from_utf8_lossy(bytes).trim_end());
        bytes.len()
    };
    while read_once(&mut stderr, keep).await.is_ok_and(|count| count > 0) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RpcError;
    use serde_json::{Map, Value};
    use tokio::io::AsyncWriteExt;
    use toolyard_engine::BoxFuture;

    /// Counts what comes, by the length of its text.
    #[derive(Default)]
    struct MessageLengths(Mutex<Vec<usize>>);

    impl Inbox for MessageLengths {
        fn notified(&self, _: &str, params: Map<String, Value>) {
            self.0.lock().unwrap().push(params["text"].as_str().unwrap().len());
        }
        fn asked<'a>(&'a self, _: &'a str, _: Map<String, Value>) -> BoxFuture<'a, Result<Value, RpcError>> {
            Box::pin(async { Ok(Value::Null) })
        }
    }

    fn note(length: usize) -> String {
        let text = "x".repeat(length);
        serde_json::json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"text": text}}).to_string()
    }

    async fn hear(bytes: Vec<u8>, piece: usize, max_message: usize) -> (Vec<usize>, String) {
        let (mut end, stdout) = tokio::io::duplex(piece);
        let heard = Arc::new(MessageLengths::default());
        let (mux, _outgoing) = Mux::new();
        let reading = tokio::spawn(read(stdout, max_message, mux, heard.clone()));
        // The reader may stop before the end.
        end.write_all(&bytes).await.ok();
        drop(end);
        let why = reading.await.unwrap();
        let lengths = heard.0.lock().unwrap().clone();
        (lengths, why)
    }

    #[tokio::test]
    async fn messages_are_read_however_they_are_cut() {
        let lengths = [0, 1, 5000, 3, 70_000, 4096, 2];
        let mut bytes = Vec::new();
        for length in lengths {
            bytes.extend_from_slice(b" \r\n\n");
            bytes.extend_from_slice(note(length).as_bytes());
            bytes.push(b'\n');
        }
        bytes.pop(); // the last one ends with the stream
        for piece in [1, 7, 64, 4096, 1 << 20] {
            let (heard, why) = hear(bytes.clone(), piece, 1 << 20).await;
            assert_eq!((heard.as_slice(), why.as_str()), (&lengths[..], "the server closed its output"), "{piece}");
        }
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_ends_it() {
        for rest in ["", "\n", "\n{}\n"] {
            let bytes = [note(10).as_bytes(), b"\n", note(3000).as_bytes(), rest.as_bytes()].concat();
            let (heard, why) = hear(bytes, 1 << 16, 2000).await;
            assert_eq!((heard.as_slice(), why.as_str()), (&[10][..], "a message longer than 2000 bytes"), "{rest:?}");
        }
    }
}
