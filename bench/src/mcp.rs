//! MCP calls through Toolyard to upstream servers: to an echo server, and to a hundred servers at once.
//!
//! The echo server itself, Toolyard over HTTP and over stdio, and another gateway (PyPI `mcp-proxy`, where it can be
//! installed) are measured alternately within one run.

use crate::{
    Setup,
    process::{self, Running},
    report::{Good, Report},
    stats::{median, micros},
    usage::Memory,
};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

const TOKEN: &str = "bench-token-0123456789";
/// Calls of one client per round.
const CALLS: usize = 400;
/// Number of concurrent clients.
const CLIENTS: usize = 16;
/// Number of upstream servers, and of tools of each.
const SERVERS: usize = 100;
const TOOLS_EACH: usize = 50;
/// An idle server releases memory that it does not need; memory is measured after this time.
const SETTLE: Duration = Duration::from_secs(15);
/// Maximum delay that a hundred servers may add to the start of the gateway: noise, and reading their configuration.
const MAX_DELAY_MS: f64 = 50.0;
/// Number of tools that the echo server always has in the catalog.
const OWN_TOOLS: usize = 11;

/// A client of a line-based protocol.
struct Lines {
    _child: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
    line: String,
}

impl Lines {
    fn start(mut command: Command) -> Result<Self> {
        let mut child: Child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let mut lines = Self { _child: Running(child), input, output, next: 0, line: String::new() };
        lines.ask("initialize", &hello())?;
        lines.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(lines)
    }

    fn write(&mut self, message: &Value) -> Result<()> {
        self.input.write_all(format!("{message}\n").as_bytes())?;
        Ok(self.input.flush()?)
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<u64> {
        self.next += 1;
        let id = self.next;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(id)
    }

    /// The next response; notifications are skipped.
    fn answer(&mut self) -> Result<Value> {
        loop {
            self.line.clear();
            ensure!(self.output.read_line(&mut self.line)? > 0, "the server hung up");
            let message: Value = serde_json::from_str(&self.line)?;
            if message.get("id").is_some() && message.get("method").is_none() {
                return Ok(message);
            }
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.send(method, params)?;
        self.answer()
    }

    /// Sequential calls: microseconds of each.
    fn one_by_one(&mut self, tool: &str, count: usize) -> Result<Vec<f64>> {
        (0..count)
            .map(|_| {
                let begun = Instant::now();
                let answer = self.ask("tools/call", &call(tool))?;
                check(&answer)?;
                Ok(micros(begun.elapsed()))
            })
            .collect()
    }

    /// Concurrent calls: calls per second.
    fn together(&mut self, tool: &str, count: usize, at_once: usize) -> Result<f64> {
        let begun = Instant::now();
        let mut sent = 0;
        let mut done = 0;
        while done < count {
            while sent < count && sent - done < at_once {
                self.send("tools/call", &call(tool))?;
                sent += 1;
            }
            check(&self.answer()?)?;
            done += 1;
        }
        Ok(count as f64 / begun.elapsed().as_secs_f64())
    }
}

fn hello() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}})
}

fn call(tool: &str) -> Value {
    json!({"name": tool, "arguments": {"text": "hello"}})
}

fn check(answer: &Value) -> Result<()> {
    ensure!(answer["result"]["content"][0]["text"] == "hello", "a call failed: {answer}");
    Ok(())
}

/// An HTTP client with one connection and one session.
struct Http {
    stream: BufReader<TcpStream>,
    address: String,
    path: String,
    session: Option<String>,
    next: u64,
}

impl Http {
    fn open(address: &str, path: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let (address, path) = (address.to_owned(), path.to_owned());
        let mut http = Self { stream: BufReader::new(stream), address, path, session: None, next: 0 };
        http.ask("initialize", &hello())?;
        http.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(http)
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.next += 1;
        self.post(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}))
    }

    fn post(&mut self, body: &Value) -> Result<Value> {
        let body = body.to_string();
        let session = self.session.as_ref().map(|id| format!("mcp-session-id: {id}\r\n")).unwrap_or_default();
        let request = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n{session}content-length: {}\r\n\r\n{body}",
            self.path,
            self.address,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let (mut length, mut chunked, mut events) = (None, false, false);
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse::<usize>().ok();
            }
            chunked |= header.starts_with("transfer-encoding:") && header.contains("chunked");
            events |= header.starts_with("content-type:") && header.contains("event-stream");
            if let Some(value) = header.strip_prefix("mcp-session-id:") {
                self.session = Some(value.trim().to_owned());
            }
        }
        let text = if chunked { self.chunks()? } else { self.bytes(length.unwrap_or_default())? };
        ensure!(status.starts_with('2'), "HTTP {status}: {text}");
        let text =
            if events { text.lines().rev().find_map(|l| l.strip_prefix("data: ")).unwrap_or_default() } else { &text };
        Ok(serde_json::from_str(text).unwrap_or_default())
    }

    fn bytes(&mut self, length: usize) -> Result<String> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(String::from_utf8(bytes)?)
    }

    fn chunks(&mut self) -> Result<String> {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let length = usize::from_str_radix(line.trim(), 16)?;
            let part = self.bytes(length + 2)?;
            if length == 0 {
                return Ok(text);
            }
            text.push_str(&part[..length]);
        }
    }

    fn one_by_one(&mut self, tool: &str, count: usize) -> Result<Vec<f64>> {
        (0..count)
            .map(|_| {
                let begun = Instant::now();
                let answer = self.ask("tools/call", &call(tool))?;
                check(&answer)?;
                Ok(micros(begun.elapsed()))
            })
            .collect()
    }
}

/// Calls of several concurrent clients: calls per second, and the microseconds of each call.
fn http_together(address: &str, path: &str, tool: &str, each: usize) -> Result<(f64, Vec<f64>)> {
    let mut clients = (0..CLIENTS).map(|_| Http::open(address, path)).collect::<Result<Vec<_>>>()?;
    let begun = Instant::now();
    let times = std::thread::scope(|scope| {
        let working: Vec<_> =
            clients.iter_mut().map(|client| scope.spawn(move || client.one_by_one(tool, each))).collect();
        let mut times = Vec::new();
        for worker in working {
            times.extend(worker.join().map_err(|_| anyhow::anyhow!("a client failed"))??);
        }
        Ok::<_, anyhow::Error>(times)
    })?;
    Ok((times.len() as f64 / begun.elapsed().as_secs_f64(), times))
}

/// The echo server, built beside this program.
fn fixture(setup: &Setup) -> Result<PathBuf, String> {
    let program = process::program(setup)?;
    let path = program.with_file_name("mcp-fixture");
    if path.is_file() { Ok(path) } else { Err(format!("there is no {}; build toolyard-mcp", path.display())) }
}

fn write_config(home: &TempDir, text: &str) -> Result<()> {
    std::fs::create_dir_all(home.path().join("home"))?;
    Ok(std::fs::write(home.path().join("home/config.toml"), text)?)
}

fn echo_config(fixture: &Path) -> String {
    format!(
        "[record]\nfiles = \"none\"\n[mcp.servers.echo]\ncommand = {:?}\ntrust = \"annotations\"\nidleSeconds = 0\n",
        fixture.display().to_string()
    )
}

/// A running Toolyard, its address, and the time of its start.
fn up(setup: &Setup, home: &TempDir) -> Result<(Running, String, Duration)> {
    let program = process::program(setup).map_err(anyhow::Error::msg)?;
    let begun = Instant::now();
    let mut command = process::command(&program, home);
    let mut child =
        Running(command.args(["up", "--port", "0", "--token", TOKEN, "--json"]).stdout(Stdio::piped()).spawn()?);
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().context("no output")?).read_line(&mut line)?;
    let took = begun.elapsed();
    let ready: Value = serde_json::from_str(&line).with_context(|| format!("not ready: {line:?}"))?;
    let address = ready["url"].as_str().unwrap_or_default().trim_start_matches("http://").to_owned();
    Ok((child, address, took))
}

/// Waits until a tool is listed.
fn wait_for(address: &str, tool: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut client = Http::open(address, "/mcp")?;
    while Instant::now() < deadline {
        let listed = client.ask("tools/list", &json!({}))?;
        let tools = listed["result"]["tools"].as_array();
        if tools.is_some_and(|tools| tools.iter().any(|t| t["name"] == tool)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("{tool} never came")
}

/// The version of PyPI's `mcp-proxy` that is measured.
const OTHER: &str = "mcp-proxy==0.13.0";

/// The path of `mcp-proxy`, which is installed into its own environment on first use. `None` if that fails: then its
/// figures are missing and the target is undecided.
fn other_program() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("HOME")?).join(".cache/toolyard/pypi").join(OTHER.replace("==", "-"));
    let program = folder.join("bin/mcp-proxy");
    if program.is_file() {
        return Some(program);
    }
    let run = |program: &Path, args: &[&str]| {
        let done = Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    let at = folder.to_str()?;
    let made = run(Path::new("python3"), &["-m", "venv", at])
        && run(&folder.join("bin/pip"), &["install", "--quiet", "--disable-pip-version-check", OTHER]);
    made.then_some(program)
}

/// Another gateway in front of the same echo server.
fn other_gateway(program: &Path, fixture: &Path) -> Option<(Running, String)> {
    let port = std::net::TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--host", "127.0.0.1", "--"]).arg(fixture);
    let child = Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?);
    let address = format!("127.0.0.1:{port}");
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if Http::open(&address, "/mcp/").is_ok() {
            return Some((child, address));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    None
}

/// `tools/call` through Toolyard to an echo server, against the echo server itself and another gateway.
pub(crate) fn proxy(setup: &Setup) -> Result<Report> {
    let report = Report::new("mcp-proxy", "httpCallsPerSecond16", Good::AtLeast, 5000.0)
        .also("stdioCallsPerSecond16", Good::AtLeast, 5000.0)
        .also("httpAddedP50Us", Good::Below, 300.0)
        .also("stdioAddedP50Us", Good::Below, 300.0)
        .also("timesMcpProxy", Good::AtLeast, 8.0);
    let fixture = match fixture(setup) {
        Ok(fixture) => fixture,
        Err(why) => return Ok(report.skipped(why)),
    };
    // Installed before any connection is opened, because a connection would time out during the installation.
    let other = other_program();
    let home = process::home(setup)?;
    write_config(&home, &echo_config(&fixture))?;
    let (_server, address, _) = up(setup, &home)?;
    wait_for(&address, "echo__echo")?;
    // A separate home folder, because two processes on one store would share its disk.
    let stdio_home = process::home(setup)?;
    write_config(&stdio_home, &echo_config(&fixture))?;
    let program = process::program(setup).map_err(anyhow::Error::msg)?;
    let mut command = process::command(&program, &stdio_home);
    command.arg("mcp");
    let mut stdio = Lines::start(command)?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while stdio.ask("tools/call", &call("echo__echo"))?["result"]["content"][0]["text"] != "hello" {
        ensure!(Instant::now() < deadline, "the echo server never came");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut direct = Lines::start(Command::new(&fixture))?;
    let mut http = Http::open(&address, "/mcp")?;
    let other = other.as_deref().and_then(|program| other_gateway(program, &fixture));
    let (mut direct_us, mut http_us, mut stdio_us) = (Vec::new(), Vec::new(), Vec::new());
    let (mut http_rates, mut stdio_rates, mut other_rates, mut direct_rates) = (vec![], vec![], vec![], vec![]);
    let mut http16_us = Vec::new();
    for _ in 0..setup.rounds {
        direct_us.extend(direct.one_by_one("echo", CALLS)?);
        http_us.extend(http.one_by_one("echo__echo", CALLS)?);
        stdio_us.extend(stdio.one_by_one("echo__echo", CALLS)?);
        direct_rates.push(direct.together("echo", CALLS * CLIENTS, CLIENTS)?);
        let (rate, times) = http_together(&address, "/mcp", "echo__echo", CALLS)?;
        http_rates.push(rate);
        http16_us.extend(times);
        stdio_rates.push(stdio.together("echo__echo", CALLS * CLIENTS, CLIENTS)?);
        if let Some((_, address)) = &other {
            other_rates.push(http_together(address, "/mcp/", "echo", CALLS / 10)?.0);
        }
    }
    let base = median(&direct_us);
    let mut report = report
        .figure("httpCallsPerSecond16", median(&http_rates))
        .figure("stdioCallsPerSecond16", median(&stdio_rates))
        .figure("directCallsPerSecond16", median(&direct_rates))
        .figure("directP50Us", base)
        .figure("httpAddedP50Us", median(&http_us) - base)
        .figure("stdioAddedP50Us", median(&stdio_us) - base)
        .figure("httpP50Us16", median(&http16_us));
    if !other_rates.is_empty() {
        report = report
            .figure("mcpProxyCallsPerSecond16", median(&other_rates))
            .figure("timesMcpProxy", median(&http_rates) / median(&other_rates));
    }
    Ok(report)
}

/// A hundred upstream servers with fifty tools each: their cost at start, in memory, and in a list.
pub(crate) fn many(setup: &Setup) -> Result<Report> {
    let report = Report::new("mcp-many", "toolsListMs", Good::Below, 50.0)
        .also("startDelayMs", Good::Below, MAX_DELAY_MS)
        .also("privateKilobytesPerServerRunning", Good::Below, 100.0);
    let fixture = match fixture(setup) {
        Ok(fixture) => fixture,
        Err(why) => return Ok(report.skipped(why)),
    };
    // The baseline without servers.
    let empty = process::home(setup)?;
    let (first, _, _) = up(setup, &empty)?;
    drop(first);
    let (alone, address, alone_took) = up(setup, &empty)?;
    let mut client = Http::open(&address, "/mcp")?;
    client.ask("tools/list", &json!({}))?;
    std::thread::sleep(SETTLE);
    drop(client);
    let alone_memory = Memory::of(alone.0.id())?;
    drop(alone);

    let home = process::home(setup)?;
    let mut config = String::from("[record]\nfiles = \"none\"\n");
    for number in 0..SERVERS {
        config.push_str(&format!(
            "[mcp.servers.s{number:03}]\ncommand = {:?}\nargs = [\"--tools\", \"{}\"]\ntrust = \"annotations\"\nidleSeconds = 0\n",
            fixture.display().to_string(),
            TOOLS_EACH - OWN_TOOLS
        ));
    }
    write_config(&home, &config)?;
    let begun = Instant::now();
    let (server, address, first_took) = up(setup, &home)?;
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut client = Http::open(&address, "/mcp")?;
    let wanted = SERVERS * TOOLS_EACH;
    let count = |client: &mut Http| -> Result<usize> {
        let listed = client.ask("tools/list", &json!({}))?;
        let tools = listed["result"]["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(tools.iter().filter(|t| t["name"].as_str().is_some_and(|n| n.contains("__"))).count())
    };
    while count(&mut client)? < wanted {
        ensure!(Instant::now() < deadline, "only {} of {wanted} tools came", count(&mut client)?);
        std::thread::sleep(Duration::from_millis(200));
    }
    let met = begun.elapsed();
    drop(client);
    std::thread::sleep(SETTLE);
    let running_memory = Memory::of(server.0.id())?;
    let mut client = Http::open(&address, "/mcp")?;
    let lists = (0..20)
        .map(|_| {
            let begun = Instant::now();
            let text = client.ask("tools/list", &json!({}))?;
            ensure!(text["result"]["tools"].is_array(), "no list");
            Ok(micros(begun.elapsed()) / 1000.0)
        })
        .collect::<Result<Vec<f64>>>()?;
    drop(client);
    drop(server);
    // The second start reads all tools from its cache and starts no server.
    let (again, address, again_took) = up(setup, &home)?;
    wait_for(&address, "s099__echo")?;
    std::thread::sleep(SETTLE);
    let remembered_memory = Memory::of(again.0.id())?;
    let mut client = Http::open(&address, "/mcp")?;
    let begun = Instant::now();
    check(&client.ask("tools/call", &call("s050__echo"))?)?;
    let lazy = begun.elapsed();
    drop(again);
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let each = |bytes: f64| bytes / SERVERS as f64 / 1000.0;
    Ok(report
        .figure("toolsListMs", median(&lists))
        .figure("tools", wanted as f64)
        .figure("startMsWithoutServers", ms(alone_took))
        .figure("startDelayMs", ms(first_took.min(again_took)) - ms(alone_took))
        .figure("startMsFirst", ms(first_took))
        .figure("startMsRemembered", ms(again_took))
        .figure("allMetMs", ms(met))
        .figure("privateKilobytesPerServerRunning", each(running_memory.private - alone_memory.private))
        .figure("privateKilobytesPerServerRemembered", each(remembered_memory.private - alone_memory.private))
        .figure("residentKilobytesPerServerRunning", each(running_memory.resident - alone_memory.resident))
        .figure("residentKilobytesPerServerRemembered", each(remembered_memory.resident - alone_memory.resident))
        .figure("firstCallMs", ms(lazy)))
}
