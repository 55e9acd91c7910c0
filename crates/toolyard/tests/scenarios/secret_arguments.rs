//! A canary in a secret argument by every door of the real binary, looked for in everything that is kept: records, blobs
//! and facts of the store, every file of the home, events, exports, transcripts and logs. Then proven from the record.

use crate::{
    bridge::Host,
    harness::{Place, Ran},
};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    ops::ControlFlow,
    path::Path,
    process::Stdio,
};
use toolyard_engine::{Store, store::RunFilter};
use toolyard_store::{SqliteStore, StoreOptions};

/// The text in every canary: lower-case words, which do not look like a credential.
const CANARY: &str = "quiet-heron";
const TOKEN: &str = "test-token-of-16-chars";

/// An MCP server with a secret argument that it repeats in its answers, errors and log.
const ECHO: &str = r#"
import json, sys
schema = {"type": "object", "properties": {
    "user": {"type": "string"}, "phrase": {"type": "string", "writeOnly": True},
    "word": {"type": "string", "format": "password"}, "count": {"type": "integer"}, "ruled": {"type": "string"}}}
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    method, result = m.get("method"), {}
    if method == "initialize":
        result = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "echo", "version": "1"}}
    elif method == "tools/list":
        note = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
        result = {"tools": [{"name": "login", "description": "Logs in", "inputSchema": schema, "annotations": note}]}
    elif method == "tools/call":
        args = m["params"]["arguments"]
        said = json.dumps(args)
        print("called with " + said, file=sys.stderr, flush=True)
        long = said * 2000 if args.get("user") == "long" else said
        result = {"content": [{"type": "text", "text": long}], "isError": args.get("user") == "nobody"}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
"#;

fn prepare() -> Place {
    let place = Place::new();
    let script = place.vault.join("echo.py");
    std::fs::write(&script, ECHO).unwrap();
    place.config(&format!(
        r#"
[log]
level = "debug"
[tools]
toolSearch = true
[policy.approval]
mode = "yolo"
[[policy.secrets]]
tools = ["echo__*"]
arguments = ["ruled"]
[mcp.servers.echo]
command = "python3"
args = ["{}"]
startTimeoutMs = 20000
"#,
        script.display()
    ));
    place
}

/// The same arguments with their own canary, marked by the schema, by the policy's rule and by its name.
fn args(door: &str) -> Value {
    json!({"user": "ada", "phrase": format!("{CANARY} {door} one"), "word": format!("{CANARY}-{door}-two"),
        "ruled": format!("{CANARY}-{door}-three"), "extra": {"dbPassword": format!("{CANARY}-{door}-four")}})
}

fn http(url: &str, path: &str, headers: &str, body: &Value) -> (String, String) {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nAuthorization: Bearer {TOKEN}\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn assert_hidden(what: &str, text: &str) {
    if let Some(at) = text.find(CANARY) {
        let from = text[..at].char_indices().rev().nth(200).map_or(0, |(at, _)| at);
        let to = text[at..].char_indices().nth(60).map_or(text.len(), |(end, _)| at + end);
        panic!("{what} shows a secret argument: …{}…", &text[from..to]);
    }
}

/// Everything in the store, as it was before it was compressed.
fn search_store(home: &Path) -> usize {
    let store = SqliteStore::open(&home.join("state"), StoreOptions::default()).unwrap();
    let rows = store.runs(&RunFilter { limit: 10_000, ..RunFilter::default() }).unwrap();
    for row in &rows {
        assert_hidden("a run's row", &format!("{row:?}"));
        store
            .frames(row.run_id, 1, &mut |frame| {
                assert_hidden(
                    &format!("record {} of {}", frame.seq, row.title),
                    &String::from_utf8_lossy(&frame.payload),
                );
                ControlFlow::Continue(())
            })
            .unwrap();
    }
    for hash in store.blob_hashes("", 100_000).unwrap() {
        let bytes = store.blob(&hash).unwrap().unwrap();
        assert_hidden("a blob", &String::from_utf8_lossy(&bytes));
    }
    for space in ["approvals", "approval", "grants", "idempotency", "sessions", "devices"] {
        for (key, value) in store.list(space).unwrap() {
            assert_hidden(&format!("fact {space}/{key}"), &(key.clone() + &String::from_utf8_lossy(&value)));
        }
    }
    for entry in store.ledger(1, 100_000).unwrap() {
        assert_hidden("the ledger", &String::from_utf8_lossy(&entry.payload));
    }
    rows.len()
}

fn search_files(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            search_files(&path);
        } else if entry.file_type().unwrap().is_file() && !path.to_string_lossy().contains("/plan-") {
            let bytes = std::fs::read(&path).unwrap_or_default();
            assert_hidden(&path.display().to_string(), &String::from_utf8_lossy(&bytes));
        }
    }
}

/// Calls by every door. Answers how many.
fn call_by_every_door(place: &Place, url: &str) -> usize {
    let asked = |answer: &str, door: &str| assert!(answer.contains(CANARY), "{door} reached the tool: {answer}");
    // Only the caller receives the answer, and the caller knows the secret.
    let cli = place.run(&["call", "echo__login", "--args", &args("cli").to_string(), "--json"]);
    asked(&cli.stdout, "cli");
    let (_, body) = http(url, "/tools/invoke", "", &json!({"tool": "echo__login", "args": args("http")}));
    asked(&body, "http");
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let (head, _) = http(url, "/mcp", "", &hello);
    let session = head.lines().find_map(|line| line.to_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned));
    let headers = format!("MCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: {}\r\n", session.unwrap());
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "tool_call", "arguments": {"id": "echo__login", "args": args("mcp")}}});
    asked(&http(url, "/mcp", &headers, &call).1, "mcp");
    let gateway = |method: &str, params: Value| -> Ran {
        place.run(&["gateway", "call", method, "--params", &params.to_string(), "--url", url, "--token", TOKEN])
    };
    let keyed = json!({"name": "echo__login", "args": args("websocket"), "idempotencyKey": "once"});
    asked(&gateway("tools.invoke", keyed.clone()).stdout, "websocket");
    // The same key again: the recorded answer, which does not hold the secret any more.
    assert_hidden("a recorded answer", &gateway("tools.invoke", keyed).stdout);
    // An answer that is too large for a record, an error that quotes the arguments, arguments that do not fit, no tool.
    let mut long = args("long");
    long["user"] = json!("long");
    gateway("tools.invoke", json!({"name": "echo__login", "args": long}));
    let mut failed = args("failed");
    failed["user"] = json!("nobody");
    gateway("tools.invoke", json!({"name": "echo__login", "args": failed}));
    let mut misfit = args("misfit");
    misfit["word"] = json!([format!("{CANARY} misfit")]);
    misfit["count"] = json!(format!("{CANARY} misfit"));
    gateway("tools.invoke", json!({"name": "echo__login", "args": misfit}));
    gateway("tools.invoke", json!({"name": "echo__nothing", "args": {"password": format!("{CANARY}-no-tool")}}));
    let step = |id: &str, mut args: Value| {
        args["user"] = json!(format!("{CANARY} plan-{id} one"));
        json!({"id": id, "tool": "echo__login", "args": args, "preview": format!("log in with {CANARY} plan-{id} one")})
    };
    let mut plan_args = args("plan-a");
    plan_args["phrase"] = json!(format!("{CANARY} plan-a one"));
    let plan = json!({"version": "1.0", "goal": format!("say {CANARY}-plan-a-two"), "riskLevel": "writes",
        "steps": [step("a", plan_args)]});
    let ran = place.run(&["plan", "run", &place.plan(&plan), "--yes", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    15
}

/// Calls by the bridge, by MCP on standard input, and by a script that makes its secrets at run time and repeats them.
fn call_by_bridge_stdio_and_script(place: &Place, url: &str) {
    let opened =
        place.run_bare(&["bridge", "open", "--session", "claude", "--url", url, "--token", TOKEN, "--json"]).json();
    let mut bridge = Host::start(&opened);
    bridge.initialize();
    let nested = |door: &str| json!({"id": "echo__login", "args": args(door)});
    for (tool, arguments) in [("echo__login", args("bridge")), ("tool_call", nested("bridged"))] {
        let (answer, _) = bridge.call_until_up(tool, arguments);
        assert!(answer.to_string().contains(CANARY), "the bridge reached the tool: {answer}");
    }
    let mut stdio = Host::start_mcp(place);
    stdio.initialize();
    let (answer, _) = stdio.call_until_up("tool_call", nested("stdio"));
    assert!(answer.to_string().contains(CANARY), "MCP reached the tool: {answer}");
    // The text of a program is kept. What it computes is not in it.
    let secrets = r#"const c = ["quiet", "heron"].join("-"); const a = {user: "ada", phrase: c + " script one",
        word: c + "-script-two", ruled: c + "-script-three", extra: {dbPassword: c + "-script-four"}};"#;
    let says = r#"console.log("said " + a.word); return {of: await openclaw.tools.call("echo__login", a), a};"#;
    let fails = r#"await openclaw.tools.call("echo__login", a); throw new Error("no: " + a.phrase + a.ruled);"#;
    for (end, reached) in [(says, true), (fails, false)] {
        let params = json!({"name": "tool_search_code", "args": {"code": format!("{secrets} {end}")}}).to_string();
        let words = ["gateway", "call", "tools.invoke", "--params", &params, "--url", url, "--token", TOKEN];
        let answer = place.run(&words).stdout;
        assert!(!reached || answer.contains(CANARY), "the script reached the tool: {answer}");
        assert!(answer.contains("echo__login"), "{answer}");
    }
}

#[toolyard_shows::shows("002-4-11")]
#[test]
fn a_secret_argument_is_kept_nowhere_and_can_be_proven() {
    let place = prepare();
    let approved = place.run(&["mcp", "approve", "echo", "--json"]);
    assert!(approved.code == 0 || approved.stdout.contains("echo"), "{approved:?}");
    let log = place.vault.with_file_name("log");
    let vault = place.vault.display().to_string();
    let mut up = place.command(&["--vault", &vault, "up", "--port", "0", "--token", TOKEN, "--json"]);
    up.stderr(Stdio::from(File::create(&log).unwrap()));
    let mut child = up.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let url = ready["url"].as_str().unwrap().to_owned();
    let started = place.run(&["mcp", "start", "echo", "--json"]);
    assert_eq!(started.code, 0, "{started:?}");

    let watched = place.vault.with_file_name("watched");
    let mut watch = place.command(&["runs", "watch", "--json"]);
    let mut watch = watch.stdout(File::create(&watched).unwrap()).spawn().unwrap();
    call_by_every_door(&place, &url);
    call_by_bridge_stdio_and_script(&place, &url);
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert_hidden("runs watch", &std::fs::read_to_string(&watched).unwrap());

    let listed = place.run(&["runs", "list", "--limit", "1000", "--json"]);
    assert_hidden("runs list", &listed.stdout);
    let runs = listed.json();
    let runs = runs["runs"].as_array().unwrap();
    let mut logins = 0;
    for run in runs {
        let id = run["runId"].as_str().unwrap();
        for words in [&["runs", "show", id, "--json"][..], &["runs", "transcript", id, "--json"]] {
            assert_hidden(&words.join(" "), &place.run(words).stdout);
        }
        let out = place.vault.with_file_name("export").join(id);
        place.run(&["runs", "export", id, "--out", out.to_str().unwrap()]);
        logins += usize::from(run["title"].as_str().unwrap().contains("echo__login"));
        let verified = place.run(&["runs", "verify", id, "--json"]);
        assert_eq!(verified.code, 0, "{verified:?}");
    }
    assert!(logins >= 6, "every door left a record: {runs:?}");
    for method in ["logs.tail", "approval.history"] {
        let said = place.run(&["gateway", "call", method, "--params", "{}", "--url", &url, "--token", TOKEN]);
        assert_hidden(method, &said.stdout);
    }

    prove(&place, runs);
    let rotated = place.run(&["keys", "rotate", "--json"]);
    assert_eq!(rotated.code, 0, "{rotated:?}");
    prove(&place, runs);

    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    child.wait().unwrap();
    assert_hidden("the log", &std::fs::read_to_string(&log).unwrap());
    search_files(&place.home);
    search_files(&place.vault.with_file_name("export"));
    assert!(search_store(&place.home) >= logins);
}

/// A person who knows the secret of the first call can prove it from the record; another secret is not found.
fn prove(place: &Place, runs: &[Value]) {
    let file = place.vault.with_file_name("guess");
    let ask = |id: &str, secret: &str| {
        std::fs::write(&file, format!("{secret}\n")).unwrap();
        place.run(&["runs", "verify", id, "--secret", file.to_str().unwrap(), "--json"])
    };
    let held = |secret: &str| -> Vec<String> {
        let found = runs.iter().flat_map(|run| {
            let ran = ask(run["runId"].as_str().unwrap(), secret);
            let report = ran.json();
            let paths = report["secretArguments"].as_array().cloned().unwrap_or_default();
            assert_eq!(ran.code == 0, !paths.is_empty(), "{report}");
            paths.into_iter().map(|held| held["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        });
        found.collect()
    };
    assert_eq!(held(&format!("{CANARY} cli one")), ["/phrase"]);
    assert_eq!(held(&format!("{CANARY}-cli-three")), ["/ruled"]);
    assert!(held("something else").is_empty());
}
