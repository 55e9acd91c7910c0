//! A running Toolyard: health, the command line through its socket, recovery at start, clean stop.

use crate::harness::{Place, until};
use serde_json::{Value, json};

#[test]
fn up_serves_health_and_the_command_line_uses_it() {
    let place = Place::new();
    let server = place.up();
    assert_eq!(server.ready["ready"], true);
    assert!(server.ready["pid"].is_u64());
    let (status, body) = server.get("/health");
    assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()), (200, json!({"ok":true,"status":"live"})));
    assert_eq!(server.get("/readyz").0, 200);
    assert_eq!(server.get("/nope").0, 404);

    let made = place.call("vault.createFile", json!({"path":"a.md","content":"x"}));
    assert_eq!(made["ok"], true, "{made}");
    let doctor = place.run(&["doctor", "--json"]).json();
    assert!(
        doctor["checks"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["check"] == "running" && c["message"].as_str().unwrap().starts_with("yes"))
    );
    let is_told = |what: &str, said: &str| {
        let checks = doctor["checks"].as_array().unwrap();
        checks.iter().any(|c| c["check"] == what && c["message"].as_str().unwrap().contains(said))
    };
    assert!(is_told("code mode", "the running process runs scripts under Landlock"), "{doctor}");
    // In process at the same time: both write to the same store.
    let beside =
        place.run(&["--in-process", "call", "vault.readFile", "--args", r#"{"path":"a.md"}"#, "--json"]).json();
    assert_eq!(beside["data"]["content"], "x");
    // The calls of `doctor` passed the pipeline as well.
    let runs = place.run(&["runs", "list", "--json"]).json();
    let mut tools: Vec<&str> =
        runs["runs"].as_array().unwrap().iter().filter_map(|run| run["title"].as_str()).collect();
    tools.sort_unstable();
    assert_eq!(tools, ["obsidian_rag_status", "tool_search", "vault.createFile", "vault.readFile"], "{runs}");
    assert_eq!(server.stop(), 0, "a clean stop");
    assert!(!place.home.join("state/toolyard.sock").exists());
    assert_eq!(place.run(&["runs", "verify", "--json"]).json()["ok"], true);
}

#[test]
fn a_second_server_on_one_home_is_refused() {
    let place = Place::new();
    let _server = place.up();
    let ran = place.run(&["up", "--port", "0", "--json"]);
    assert_eq!(ran.error_code(), "UNAVAILABLE", "{ran:?}");
}

#[test]
fn beyond_loopback_needs_a_token() {
    let place = Place::new();
    let ran = place.run(&["up", "--host", "0.0.0.0", "--port", "0", "--json"]);
    assert_eq!(ran.error_code(), "CONFIG_INVALID", "{ran:?}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ran = place.run(&["up", "--port", &port, "--json"]);
    assert_eq!(ran.error_code(), "UNAVAILABLE", "{ran:?}");
    assert!(ran.json()["error"]["suggestion"].as_str().unwrap().contains("--port"));
}

#[test]
fn a_killed_server_leaves_a_run_that_the_next_one_finishes() {
    let place = Place::new();
    let server = place.up();
    let steps: Vec<Value> = (0..150)
        .map(|i| json!({"id": format!("s{i}"), "tool":"vault.writeFile", "args":{"path":"log.md","content":format!("line {i}\n"),"mode":"append"}}))
        .collect();
    let plan = json!({"version":"1.0","goal":"many lines","riskLevel":"writes","steps":steps});
    let started = place.run(&["plan", "run", &place.plan(&plan), "--yes", "--detach", "--json"]);
    assert_eq!(started.code, 0, "{started:?}");
    let run = started.json()["runId"].as_str().unwrap().to_owned();
    until("the first line is written", || place.exists("log.md"));
    drop(server); // SIGKILL
    let server = place.up();
    until("the run is finished", || place.run(&["runs", "show", &run, "--json"]).json()["run"]["status"] == "finished");
    let expected: String = (0..150).map(|i| format!("line {i}\n")).collect();
    assert_eq!(place.read("log.md"), expected, "every line once, in order");
    assert_eq!(place.run(&["runs", "verify", &run, "--json"]).json()["ok"], true);
    server.stop();
}

/// An MCP server whose tool notes each call in a file, and does not answer while there is a second file.
const HOLDING: &str = r#"
import json, os, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    result = {}
    if m["method"] == "initialize":
        result = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "holding", "version": "1"}}
    elif m["method"] == "tools/list":
        result = {"tools": [{"name": "t", "description": "Does a thing.", "inputSchema": {"type": "object"}}]}
    elif m["method"] == "tools/call":
        open(sys.argv[1], "a").write("called\n")
        if os.path.exists(sys.argv[2]):
            continue
        result = {"content": [{"type": "text", "text": "done"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
"#;

#[test]
fn a_run_killed_in_the_call_of_a_servers_tool_is_taken_up_in_doubt_and_settled() {
    let place = Place::new();
    let [script, log, hold] = ["server.py", "log.txt", "hold"].map(|name| place.vault.with_file_name(name));
    std::fs::write(&script, HOLDING).unwrap();
    std::fs::write(&hold, "").unwrap();
    let args = [&script, &log, &hold].map(|path| format!("{:?}", path.display().to_string())).join(", ");
    place.config(&format!("[mcp.servers.py]\ncommand = \"python3\"\nargs = [{args}]\n"));
    let server = place.up();
    assert_eq!(place.run(&["mcp", "start", "py", "--json"]).json()["tools"], 1);
    let steps = json!([
        {"id": "first", "tool": "py__t", "args": {}},
        {"id": "second", "tool": "py__t", "args": {}, "dependsOn": ["first"]},
    ]);
    let plan = json!({"version": "1.0", "goal": "twice", "riskLevel": "writes", "steps": steps});
    let started = place.run(&["plan", "run", &place.plan(&plan), "--yes", "--detach", "--json"]);
    assert_eq!(started.code, 0, "{started:?}");
    let run = started.json()["runId"].as_str().unwrap().to_owned();
    let calls = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    let is = |wanted: &str| place.run(&["runs", "show", &run, "--json"]).json()["run"]["status"] == wanted;
    until("the call is made", || calls() == 1);
    drop(server); // SIGKILL
    std::fs::remove_file(&hold).unwrap();
    // The tools of servers are in the catalog before runs are taken up, though no server has been started yet.
    let server = place.up();
    until("the run is paused", || is("paused"));
    assert_eq!(calls(), 1, "nothing goes on by itself");
    assert_eq!(place.run(&["runs", "resume", &run, "--assume-done", "--json"]).code, 0);
    until("the run goes on", || is("finished"));
    assert_eq!(calls(), 2, "the first call is not repeated");
    server.stop();
}

#[test]
fn a_running_plan_can_be_cancelled_from_another_terminal() {
    let place = Place::new();
    let server = place.up();
    let steps: Vec<Value> = (0..3000)
        .map(|i| json!({"id": format!("s{i}"), "tool":"vault.createFile", "args":{"path":format!("n/{i}.md"),"content":"x"}}))
        .collect();
    let plan = json!({"version":"1.0","goal":"too much","riskLevel":"writes","steps":steps});
    let started = place.run(&["plan", "run", &place.plan(&plan), "--yes", "--detach", "--json"]);
    let run = started.json()["runId"].as_str().unwrap().to_owned();
    until("the first file is made", || place.exists("n/0.md"));
    let stopped = place.run(&["runs", "cancel", &run, "--json"]);
    assert_eq!(stopped.code, 0, "{stopped:?}");
    let mut shown = Value::Null;
    until("the run is cancelled", || {
        shown = place.run(&["runs", "show", &run, "--json"]).json();
        shown["run"]["status"] == "cancelled"
    });
    let calls = shown["calls"].as_array().unwrap().len();
    assert!(calls < 3000, "{calls}");
    let made = std::fs::read_dir(place.vault.join("n")).map_or(0, Iterator::count);
    let created: usize = shown["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["effects"]["created"].as_array().map_or(0, |c| c.iter().filter(|e| e["kind"] == "file").count()))
        .sum();
    assert_eq!(made, created, "the record tells exactly what was done");
    server.stop();
}

/// One line to a local socket and the first line of the answer; empty where the server hangs up.
fn ask_socket(socket: &std::path::Path, lines: &str) -> String {
    use std::io::{BufRead, BufReader, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    stream.write_all(lines.as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer
}

#[test]
fn a_process_of_the_owner_without_the_secret_is_refused_at_both_local_sockets() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let server = place.up();
    let state = place.home.join("state");
    let status = "{\"id\":1,\"method\":\"status\",\"params\":{}}\n";
    let initialize = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"#,
        r#""clientInfo":{"name":"x","version":"1"}}}"#,
        "\n"
    );
    let secret_file = state.join("local.secret");
    assert_eq!(std::fs::metadata(&secret_file).unwrap().permissions().mode() & 0o777, 0o600);
    let secret = std::fs::read_to_string(&secret_file).unwrap();
    let first = format!("{{\"secret\":\"{secret}\"}}\n");
    for (socket, request, admitted) in
        [("toolyard.sock", status, "\"ok\":true"), ("mcp.sock", initialize, "\"serverInfo\"")]
    {
        let socket = state.join(socket);
        for wrong in ["", "{\"secret\":\"\"}\n", "{\"secret\":\"0000\"}\n"] {
            let answer = ask_socket(&socket, &format!("{wrong}{request}"));
            assert!(answer.contains("POLICY_DENIED") && !answer.contains(admitted), "{socket:?} {wrong:?}: {answer}");
        }
        let answer = ask_socket(&socket, &format!("{first}{request}"));
        assert!(answer.contains(admitted), "{answer}");
    }
    // The command line reads the secret by itself; if it cannot, it fails instead of working beside the server.
    assert_eq!(place.run(&["tools", "list", "--json"]).code, 0);
    std::fs::rename(&secret_file, state.join("elsewhere")).unwrap();
    let ran = place.run(&["tools", "list", "--json"]);
    assert_eq!(ran.error_code(), "POLICY_DENIED", "{ran:?}");
    assert!(ran.json()["error"]["message"].as_str().unwrap().contains("local.secret"), "{ran:?}");
    std::fs::rename(state.join("elsewhere"), &secret_file).unwrap();
    assert_eq!(server.stop(), 0);
}
