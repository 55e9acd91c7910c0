//! The Claude bridge through the real binary: a host that acts as Claude Code over real pipes, and a running gateway.

use crate::harness::{PATIENCE, Place, Ran, Server, until};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

const TOKEN: &str = "test-token-of-16-chars";
const SESSION: &str = "agent:main:claude";

/// Claude Code, as far as a channel plugin sees it.
pub(crate) struct Host {
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<Value>,
    /// Lines that were read while another was waited for.
    kept: Vec<Value>,
    next: u64,
}

impl Host {
    /// Starts `toolyard mcp`, which speaks with the same running Toolyard.
    pub(crate) fn start_mcp(place: &Place) -> Self {
        Self::spawn(place.command(&["mcp"]))
    }

    /// Starts what the MCP configuration names, as Claude Code does.
    pub(crate) fn start(opened: &Value) -> Self {
        let server = &opened["mcpConfig"]["mcpServers"]["toolyard"];
        let mut command = Command::new(server["command"].as_str().unwrap());
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/nonexistent").env("TOOLYARD_LOG", "warn");
        for (name, value) in server["env"].as_object().unwrap() {
            command.env(name, value.as_str().unwrap());
        }
        command.args(server["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()));
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Self { input: child.stdin.take(), child, lines, kept: Vec::new(), next: 0 }
    }

    fn write(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    fn wait_for(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.kept.iter().position(&wanted) {
            return self.kept.remove(at);
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if wanted(&line) => return line,
                Ok(line) => self.kept.push(line),
                Err(e) => panic!("{what}: {e}; kept {:?}", self.kept),
            }
        }
    }

    fn notification(&mut self, method: &str) -> Value {
        self.wait_for(method, |line| line["method"] == method)["params"].clone()
    }

    fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        id
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.wait_for(method, |line| line["id"] == id)
    }

    pub(crate) fn initialize(&mut self) -> Value {
        let client = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "claude-code", "version": "2.1.0"}});
        let hello = self.request("initialize", client);
        self.notify("notifications/initialized", json!({}));
        hello["result"].clone()
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))["result"].clone()
    }

    /// Repeats a call until the bridge is connected; also returns the failures before that.
    pub(crate) fn call_until_up(&mut self, tool: &str, arguments: Value) -> (Value, Vec<Value>) {
        let end = Instant::now() + PATIENCE;
        let mut refusals = Vec::new();
        loop {
            let result = self.call(tool, arguments.clone());
            let text = result["content"][0]["text"].as_str().unwrap_or_default();
            if !text.starts_with("The bridge to Toolyard") {
                return (result, refusals);
            }
            refusals.push(result);
            assert!(Instant::now() < end, "the bridge did not come back: {refusals:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(place: &Place, server: &Server, args: &[&str]) -> Ran {
    let url = server.ready["url"].as_str().unwrap();
    place.run_bare(&[args, &["--url", url, "--token", TOKEN, "--json"]].concat())
}

pub(crate) fn open(place: &Place, server: &Server) -> Value {
    let opened =
        run(place, server, &["bridge", "open", "--session", "claude", "--allow-sender", "u1", "--chat-id", "7"]);
    assert_eq!(opened.code, 0, "{opened:?}");
    opened.json()
}

fn say(place: &Place, server: &Server, text: &str, user: &str) -> Value {
    let meta =
        json!({"chat_id": "7", "user_id": user, "user": "alice", "attachments": [{"path": "/tmp/a.png"}]}).to_string();
    run(place, server, &["bridge", "inbound", "--session", "claude", text, "--meta", &meta]).json()
}

fn status(place: &Place, server: &Server) -> Value {
    run(place, server, &["bridge", "status"]).json()["sessions"][0].clone()
}

#[toolyard_shows::shows("004-1-01", "004-1-03", "004-1-05", "004-1-07", "004-2-03", "004-4-03")]
#[test]
fn claude_code_gets_messages_calls_tools_and_answers() {
    let place = Place::new();
    place.note("a.md", "hello");
    let server = place.up();
    let opened = open(&place, &server);
    let env = opened["env"].as_object().unwrap();
    assert_eq!(env["SYNTHESIS_OPENCLAW_SESSION"], SESSION);
    assert!(env["SYNTHESIS_BRIDGE_URL"].as_str().unwrap().ends_with("/bridge"));
    // Sent before Claude Code is connected: the message waits.
    assert_eq!(say(&place, &server, "first", "u1")["outcome"], "buffered");
    let mut host = Host::start(&opened);
    let hello = host.initialize();
    assert!(hello["capabilities"]["experimental"]["claude/channel"].is_object());
    let first = host.notification("notifications/claude/channel");
    assert_eq!((&first["content"], &first["meta"]["attachment_1_path"]), (&json!("first"), &json!("/tmp/a.png")));
    assert!(first["meta"].as_object().unwrap().values().all(Value::is_string));

    let tools = host.request("tools/list", json!({}));
    let names: Vec<&str> =
        tools["result"]["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"reply") && names.contains(&"vault_readFile"), "{names:?}");
    let read = host.call("vault_readFile", json!({"path": "a.md"}));
    assert_eq!(read["structuredContent"]["content"], "hello", "{read}");
    let dotted = host.call("vault.readFile", json!({"path": "a.md"}));
    assert_eq!(dotted["structuredContent"]["content"], "hello");
    let missing = host.call("vault_readFile", json!({"path": "nope.md"}));
    assert_eq!(missing["isError"], true, "{missing}");
    let unknown = host.call("not_a_tool", json!({}));
    assert!(
        unknown["isError"] == true && unknown["content"][0]["text"].as_str().unwrap().contains("Unknown tool"),
        "{unknown}"
    );
    // The policy asks before a write, and nobody can answer: the call is refused, as at every other door.
    let write = host.call("vault_createFile", json!({"path": "b.md", "content": "x"}));
    assert_eq!(write["isError"], true, "{write}");
    assert!(!place.exists("b.md"));

    let replied = host.call("reply", json!({"chat_id": "7", "text": "done"}));
    assert_ne!(replied["isError"], true, "{replied}");
    let said = run(&place, &server, &["bridge", "outbound", "--session", "claude"]).json();
    assert_eq!((&said["messages"][0]["text"], &said["messages"][0]["chatId"]), (&json!("done"), &json!("7")));
    assert_eq!(say(&place, &server, "second", "u1")["outcome"], "sent");
    assert_eq!(host.notification("notifications/claude/channel")["content"], "second");
    until("both are confirmed", || status(&place, &server)["waiting"] == 0);
    server.stop();
}

#[toolyard_shows::shows("004-2-02", "004-2-04", "004-2-05")]
#[test]
fn a_message_carries_what_the_session_knows_where_its_sender_says_nothing() {
    let place = Place::new();
    let server = place.up();
    let opened = run(
        &place,
        &server,
        &["bridge", "open", "--session", "claude", "--chat-id", "7", "--source-channel", "discord", "--user", "alice"],
    );
    assert_eq!(opened.code, 0, "{opened:?}");
    let mut host = Host::start(&opened.json());
    host.initialize();
    let sent = run(&place, &server, &["bridge", "inbound", "--session", "claude", "hello"]).json();
    let meta = host.notification("notifications/claude/channel")["meta"].clone();
    assert_eq!((&meta["chat_id"], &meta["source_channel"]), (&json!("7"), &json!("discord")), "{meta}");
    assert_eq!((&meta["user"], &meta["message_id"]), (&json!("alice"), &sent["request_id"]), "{meta}");
    assert!(meta["ts"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{meta}");
    assert!(meta.get("user_id").is_none(), "who may answer questions is never made up: {meta}");
    let own = json!({"chat_id": "8", "user": "bob", "ts": "2026-05-14T00:00:00Z", "message_id": "m1"}).to_string();
    run(&place, &server, &["bridge", "inbound", "--session", "claude", "again", "--meta", &own]);
    let meta = host.notification("notifications/claude/channel")["meta"].clone();
    assert_eq!(
        (&meta["chat_id"], &meta["user"], &meta["ts"], &meta["message_id"]),
        (&json!("8"), &json!("bob"), &json!("2026-05-14T00:00:00Z"), &json!("m1"))
    );
    let odd = json!({"attachments": "a.png"}).to_string();
    let refused = run(&place, &server, &["bridge", "inbound", "--session", "claude", "x", "--meta", &odd]);
    assert_eq!(refused.code, 1, "attachments are a list: {refused:?}");
    server.stop();
}

#[toolyard_shows::shows("004-3-02", "004-5-03", "004-5-04")]
#[test]
fn permission_questions_are_answered_once_by_whoever_may() {
    let place = Place::new();
    let server = place.up();
    let opened = open(&place, &server);
    let mut host = Host::start(&opened);
    host.initialize();
    until("connected", || status(&place, &server)["connected"] == true);
    let ask = |host: &mut Host, id: &str| {
        let params = json!({"request_id": id, "tool_name": "Bash", "description": "list files", "input_preview": "{\"command\":\"ls\"}"});
        host.notify("notifications/claude/channel/permission_request", params);
        until("the question is open", || {
            let open = status(&place, &server)["questions"].clone();
            open.as_array().unwrap().iter().any(|q| q["request_id"] == id && q["args"]["command"] == "ls")
        });
    };
    ask(&mut host, "abxyz");
    // The question is posted in the chat and can be answered there in words.
    until("the question is posted", || {
        let said = run(&place, &server, &["bridge", "outbound", "--session", "claude"]).json();
        let posted = &said["messages"][0];
        let text = posted["text"].as_str().unwrap_or_default();
        posted["requestId"] == "abxyz" && posted["chatId"] == "7" && text.contains("Approve? Reply `yes abxyz`")
    });
    let stranger = say(&place, &server, "yes abxyz", "u2");
    assert_eq!((&stranger["ok"], &stranger["outcome"]), (&json!(false), &json!("verdict")), "{stranger}");
    assert_eq!(say(&place, &server, "Yes abxyz", "u1")["behavior"], "allow");
    let told = host.notification("notifications/claude/channel/permission");
    assert_eq!(told, json!({"request_id": "abxyz", "behavior": "allow"}));
    ask(&mut host, "bcdef");
    let denied = run(&place, &server, &["bridge", "reply", "--session", "claude", "bcdef", "deny"]);
    assert_eq!(denied.code, 0, "{denied:?}");
    let told = host.notification("notifications/claude/channel/permission");
    assert_eq!(told, json!({"request_id": "bcdef", "behavior": "deny"}));
    let again = run(&place, &server, &["bridge", "reply", "--session", "claude", "bcdef", "allow"]);
    assert_eq!(again.code, 1, "it counts once: {again:?}");
    assert!(host.kept.iter().all(|line| line["method"] != "notifications/claude/channel"), "verdicts are no chat");
    server.stop();
}

#[toolyard_shows::shows("004-7-02")]
#[test]
fn the_bridge_may_go_and_come_back() {
    let place = Place::new();
    place.note("a.md", "hello");
    let server = place.up();
    let opened = open(&place, &server);
    let port = server.ready["url"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    let mut host = Host::start(&opened);
    host.initialize();
    let (read, _) = host.call_until_up("vault_readFile", json!({"path": "a.md"}));
    assert_eq!(read["structuredContent"]["content"], "hello");
    server.stop();
    until("calls say that the bridge is down", || {
        let down = host.call("vault_readFile", json!({"path": "a.md"}));
        down["isError"] == true && down["content"][0]["text"].as_str().unwrap().contains("is down")
    });
    let listed = host.request("tools/list", json!({}));
    assert!(listed.to_string().contains("vault_readFile"), "what was known stays listed");
    let server = place.up_on(&port);
    // The session and its secret outlive the gateway; messages wait while the plugin is on its way back.
    assert_ne!(say(&place, &server, "while away", "u1")["ok"], false);
    assert_eq!(host.notification("notifications/claude/channel")["content"], "while away");
    let (read, _) = host.call_until_up("vault_readFile", json!({"path": "a.md"}));
    assert_eq!(read["structuredContent"]["content"], "hello");
    server.stop();
    // A message that waits when the gateway stops is not lost either.
    let server = place.up_on(&port);
    drop(host);
    let opened = open(&place, &server);
    say(&place, &server, "over a restart", "u1");
    server.stop();
    let server = place.up_on(&port);
    let mut host = Host::start(&opened);
    host.initialize();
    assert_eq!(host.notification("notifications/claude/channel")["content"], "over a restart");
    server.stop();
}

#[test]
fn a_plugin_that_is_not_let_in_says_why_and_works_on() {
    let place = Place::new();
    let server = place.up();
    let mut opened = open(&place, &server);
    opened["mcpConfig"]["mcpServers"]["toolyard"]["env"]["SYNTHESIS_BRIDGE_TOKEN"] = json!("wrong");
    let mut host = Host::start(&opened);
    host.initialize();
    until("the refusal is told", || {
        let text = host.call("vault_readFile", json!({}))["content"][0]["text"].as_str().unwrap().to_owned();
        text.contains("refused the token")
    });
    assert_eq!(host.request("ping", json!({}))["result"], json!({}));
    host.write("this is not JSON");
    assert_eq!(host.wait_for("a refusal", |line| line["error"]["code"] == -32700)["id"], Value::Null);
    let bare = place.run_bare(&["claude-plugin"]);
    assert!(bare.code != 0 && bare.stderr.contains("SYNTHESIS_BRIDGE_URL"), "{bare:?}");
    let closed = run(&place, &server, &["bridge", "close", "--session", "claude"]);
    assert_eq!(closed.json()["closed"], true);
    let nobody = run(&place, &server, &["bridge", "inbound", "--session", "claude", "x"]);
    assert!(nobody.code == 1 && nobody.stdout.contains("bridge.open"), "{nobody:?}");
    server.stop();
}

#[toolyard_shows::shows("004-1-10")]
#[test]
fn a_bridged_session_sees_and_gets_what_an_mcp_client_does() {
    let place = Place::new();
    place.note("a.md", "hello");
    for (config, searched) in [("", false), ("[tools.toolSearch]\nmode = \"directory\"\n", true)] {
        place.config(config);
        let server = place.up();
        let mut bridged = Host::start(&open(&place, &server));
        let hello = bridged.initialize();
        let mut direct = Host::start_mcp(&place);
        let mcp_hello = direct.initialize();
        // The plugin's own two tools first, and then the same list. The client of `toolyard mcp` is the owner and may
        // do more.
        let tools = bridged.request("tools/list", json!({}))["result"]["tools"].as_array().unwrap().clone();
        assert_eq!((&tools[0]["name"], &tools[1]["name"]), (&json!("reply"), &json!("approve")));
        let listed = direct.request("tools/list", json!({}))["result"]["tools"].as_array().unwrap().clone();
        let seen = |tool: &&Value| tools.iter().any(|t| t["name"] == tool["name"]);
        assert!(tools[2..].iter().eq(listed.iter().filter(seen)), "{tools:?}");
        assert!(tools.len() > if searched { 3 } else { 20 }, "{tools:?}");
        assert_eq!(listed.iter().any(|t| t["name"] == "tool_search"), searched, "{listed:?}");
        if searched {
            // The owner's directory has all of the session's lines, and those of tools that only the owner may call.
            let lines = |hello: &Value| -> Vec<String> {
                let text = hello["instructions"].as_str().unwrap();
                text.lines().filter(|line| line.starts_with("- ")).map(str::to_owned).collect()
            };
            let (session, owner) = (lines(&hello), lines(&mcp_hello));
            assert!(session.iter().any(|line| line.starts_with("- vault.readFile (core): ")), "{session:?}");
            assert!(session.iter().all(|line| owner.contains(line)), "{session:?} {owner:?}");
        }
        for (tool, args) in [
            ("vault_readFile", json!({"path": "a.md"})),
            ("vault_readFile", json!({"path": "nope.md"})),
            ("vault_readFile", json!({"path": 5})),
        ] {
            let strip = |mut result: Value| {
                result.as_object_mut().unwrap().remove("_meta");
                result
            };
            let got = strip(bridged.call(tool, args.clone()));
            assert_eq!(got, strip(direct.call(tool, args.clone())), "{args}");
        }
        if searched {
            let found = bridged.call("tool_search", json!({"query": "read a note"}));
            assert!(found["content"][0]["text"].as_str().unwrap().contains("vault.readFile"), "{found}");
        }
        server.stop();
    }
}

#[test]
fn what_claude_said_outlives_the_gateway() {
    let place = Place::new();
    let server = place.up();
    let port = server.ready["url"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    let mut host = Host::start(&open(&place, &server));
    host.initialize();
    for text in ["one", "two"] {
        let (replied, _) = host.call_until_up("reply", json!({"chat_id": "7", "text": text}));
        assert_eq!(replied["structuredContent"], json!({"sent": true}), "{replied}");
    }
    drop(host);
    // After `kill -9`, the confirmed messages are on the disk.
    drop(server);
    let server = place.up_on(&port);
    let said = run(&place, &server, &["bridge", "outbound", "--session", "claude"]).json();
    let texts: Vec<(u64, &str)> = said["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| (m["seq"].as_u64().unwrap(), m["text"].as_str().unwrap()))
        .collect();
    assert_eq!(texts, [(1, "one"), (2, "two")]);
    server.stop();
}

#[test]
fn claude_codes_own_prompts_can_be_answered_by_people_elsewhere() {
    let place = Place::new();
    let server = place.up();
    let mut host = Host::start(&open(&place, &server));
    host.initialize();
    until("connected", || status(&place, &server)["connected"] == true);
    for (allowed, word) in [(true, "yes"), (false, "no")] {
        let args = json!({"tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "t1"});
        let asked = host.begin("tools/call", json!({"name": "approve", "arguments": args}));
        let mut id = String::new();
        until("the question is open", || {
            let open = status(&place, &server)["questions"].clone();
            id = open[0]["request_id"].as_str().unwrap_or_default().to_owned();
            open[0]["args"]["command"] == "ls"
        });
        assert_eq!(say(&place, &server, &format!("yes {id}"), "u2")["ok"], false, "a stranger");
        assert_eq!(say(&place, &server, &format!("{word} {id}"), "u1")["ok"], true);
        let told = host.wait_for("the answer", |line| line["id"] == asked)["result"].clone();
        let verdict: Value = serde_json::from_str(told["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(verdict["behavior"], if allowed { "allow" } else { "deny" });
        assert_eq!(verdict["updatedInput"].is_object(), allowed, "{verdict}");
    }
    server.stop();
}

/// A substitute for Claude Code: it starts its MCP server as configured and reports what it saw.
const CLAUDE: &str = r#"#!/usr/bin/env python3
import json, os, stat, subprocess, sys
args = sys.argv[1:]
path = args[args.index("--mcp-config") + 1]
server = json.load(open(path))["mcpServers"]["toolyard"]
plugin = subprocess.Popen([server["command"], *server["args"]], env={**os.environ, **server["env"]},
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def ask(n, method, params):
    print(json.dumps({"jsonrpc": "2.0", "id": n, "method": method, "params": params}), file=plugin.stdin, flush=True)
    while True:
        line = json.loads(plugin.stdout.readline())
        if line.get("id") == n:
            return line["result"]
ask(1, "initialize", {})
tools = [t["name"] for t in ask(2, "tools/list", {})["tools"]]
plugin.stdin.close()
print(json.dumps({"args": args, "mode": oct(stat.S_IMODE(os.stat(path).st_mode)), "tools": tools,
                  "session": os.environ["SYNTHESIS_OPENCLAW_SESSION"], "path": path,
                  "claude": os.environ["SYNTHESIS_CLAUDE_SESSION"]}))
sys.exit(7)
"#;

#[toolyard_shows::shows("004-1-06")]
#[test]
fn claude_start_gives_claude_code_all_it_needs_and_takes_it_back() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let server = place.up();
    let claude = place.home.join("claude");
    std::fs::write(&claude, CLAUDE).unwrap();
    std::fs::set_permissions(&claude, std::fs::Permissions::from_mode(0o755)).unwrap();
    let url = server.ready["url"].as_str().unwrap();
    let path = claude.display().to_string();
    let started = place.run_bare(&[
        "claude",
        "start",
        "--session",
        "claude",
        "--url",
        url,
        "--token",
        TOKEN,
        "--claude",
        &path,
        "--",
        "-p",
        "hi",
    ]);
    assert_eq!(started.code, 7, "its exit code is ours: {started:?}");
    let saw = started.json();
    let args: Vec<&str> = saw["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    assert!(args.contains(&"--strict-mcp-config") && args.ends_with(&["-p", "hi"]), "{args:?}");
    assert!(args.windows(2).any(|w| w == ["--dangerously-load-development-channels", "server:toolyard"]));
    assert_eq!((&saw["mode"], &saw["session"]), (&json!("0o600"), &json!(SESSION)));
    let claude_session = saw["claude"].as_str().unwrap();
    assert!(args.windows(2).any(|w| w == ["--session-id", claude_session]), "Claude Code's own session: {args:?}");
    assert!(saw["tools"].as_array().unwrap().contains(&json!("vault_readFile")), "{saw}");
    assert!(!std::path::Path::new(saw["path"].as_str().unwrap()).exists(), "the configuration is gone");
    assert_eq!(run(&place, &server, &["bridge", "status"]).json()["sessions"], json!([]), "and the session is closed");
    let none = place.run_bare(&[
        "claude",
        "start",
        "--session",
        "x",
        "--url",
        url,
        "--token",
        TOKEN,
        "--claude",
        "/nope",
        "--json",
    ]);
    assert!(none.code == 1 && none.stdout.contains("cannot be started"), "{none:?}");
    server.stop();
}
