//! A home, a vault and the binary.

use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// How long an event may take on a busy machine. An event that never happens fails the test after this time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}: it never happened");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A home and a vault of their own, removed afterwards.
pub(crate) struct Place {
    _dir: TempDir,
    pub(crate) home: PathBuf,
    pub(crate) vault: PathBuf,
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.stdout.trim()).unwrap_or_else(|e| panic!("not JSON ({e}): {self:?}"))
    }
    /// The error code of a failed command under --json.
    pub(crate) fn error_code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (home, vault) = (dir.path().join("home"), dir.path().join("vault"));
        std::fs::create_dir(&vault).unwrap();
        Self { _dir: dir, home, vault }
    }

    pub(crate) fn note(&self, path: &str, text: &str) {
        let path = self.vault.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.vault.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.vault.join(path).exists()
    }

    pub(crate) fn config(&self, text: &str) {
        std::fs::create_dir_all(&self.home).unwrap();
        std::fs::write(self.home.join("config.toml"), text).unwrap();
    }

    /// The program, with a home of its own. `TOOLYARD_PROGRAM` names another build of it: the crash tests have a
    /// thousand points for an optimised one.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        Self::command_at(&self.home, args)
    }

    /// The program with another home.
    pub(crate) fn command_at(home: &Path, args: &[&str]) -> Command {
        let program = std::env::var_os("TOOLYARD_PROGRAM");
        let mut command = Command::new(program.as_deref().unwrap_or(env!("CARGO_BIN_EXE_toolyard").as_ref()));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("USER", "tester")
            .env("HOME", home)
            .env("TOOLYARD_INDEX_PROGRAM", index_program())
            .arg("--home")
            .arg(home);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command on this place's vault.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        let vault = self.vault.display().to_string();
        let mut all = vec!["--vault", &vault];
        all.extend(args);
        self.run_bare(&all)
    }

    /// Runs a command without naming the vault.
    pub(crate) fn run_bare(&self, args: &[&str]) -> Ran {
        let output = self.command(args).output().unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Calls a tool and gives the ToolResult.
    pub(crate) fn call(&self, tool: &str, args: Value) -> Value {
        self.run(&["call", tool, "--args", &args.to_string(), "--json"]).json()
    }

    /// Writes a plan file and gives its path.
    pub(crate) fn plan(&self, plan: &Value) -> String {
        std::fs::create_dir_all(&self.home).unwrap();
        let path = self.home.join(format!(
            "plan-{}.json",
            toolyard_protocol::canonical::hash(plan).unwrap().split_at(23).0.replace(':', "-")
        ));
        std::fs::write(&path, plan.to_string()).unwrap();
        path.display().to_string()
    }

    /// Starts `toolyard up` on a free port and waits until it is ready.
    pub(crate) fn up(&self) -> Server {
        self.up_on("0")
    }

    /// The same with the index program that the configuration names.
    pub(crate) fn up_without_index_program(&self) -> Server {
        let mut command = self.up_command("0");
        command.env_remove("TOOLYARD_INDEX_PROGRAM");
        Self::ready(command)
    }

    /// The same on a given port, such as that of an earlier start.
    pub(crate) fn up_on(&self, port: &str) -> Server {
        Self::ready(self.up_command(port))
    }

    fn up_command(&self, port: &str) -> Command {
        let vault = self.vault.display().to_string();
        self.command(&["--vault", &vault, "up", "--port", port, "--token", "test-token-of-16-chars", "--json"])
    }

    fn ready(mut command: Command) -> Server {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|e| {
            let mut err = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut err);
            panic!("not ready ({e}): {line:?} {err}")
        });
        Server { child, ready }
    }
}

/// A connection to the local socket of a running server, for many calls: a command for each would be a process for each.
pub(crate) struct LocalConnection {
    out: std::os::unix::net::UnixStream,
    lines: BufReader<std::os::unix::net::UnixStream>,
    calls: u64,
}

impl LocalConnection {
    pub(crate) fn new(place: &Place) -> Self {
        use std::io::Write;
        let state = place.home.join("state");
        let secret = std::fs::read_to_string(state.join("local.secret")).unwrap();
        let mut out = std::os::unix::net::UnixStream::connect(state.join("toolyard.sock")).unwrap();
        writeln!(out, "{}", serde_json::json!({"secret": secret})).unwrap();
        let lines = BufReader::new(out.try_clone().unwrap());
        Self { out, lines, calls: 0 }
    }

    /// Calls a tool as the command line does and gives the ToolResult.
    pub(crate) fn call(&mut self, tool: &str, args: &Value) -> Value {
        use std::io::Write;
        self.calls += 1;
        let params = serde_json::json!({"name": tool, "args": args});
        let request = serde_json::json!({"id": self.calls, "method": "tools.call", "params": params});
        writeln!(self.out, "{request}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the server hung up on {tool} {args}");
            let mut message: Value = serde_json::from_str(&line).unwrap();
            // The events of the run come first.
            if message.get("event").is_none() {
                let result = message["result"]["result"].take();
                assert!(result.is_object(), "{tool} {args}: {message}");
                return result;
            }
        }
    }
}

/// A running `toolyard up`, killed when dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) ready: Value,
}

impl Server {
    /// A GET, by hand: status and body.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        use std::io::Write;
        let url = self.ready["url"].as_str().unwrap();
        let address = url.strip_prefix("http://").unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    /// Asks it to stop and waits for it.
    pub(crate) fn stop(mut self) -> i32 {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The index program of the scenarios: the one that `TOOLYARD_INDEX_PROGRAM` names, else the index in memory, which
/// `cargo test` builds with these tests.
pub(crate) fn index_program() -> PathBuf {
    let fixture = || PathBuf::from(env!("CARGO_BIN_EXE_index-fixture"));
    std::env::var_os("TOOLYARD_INDEX_PROGRAM").map_or_else(fixture, PathBuf::from)
}

/// Whether the index program is LanceDB's; what looks at its files is tested with it alone.
pub(crate) fn is_lancedb() -> bool {
    index_program().file_name().is_some_and(|name| name == "toolyard-index")
}
