//! A running Toolyard: health, the command line through its socket, recovery at start, clean stop.

use crate::harness::Place;
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
    // The doctor's questions to the notes and about scripts took the road as well.
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
    std::thread::sleep(std::time::Duration::from_millis(60));
    drop(server); // SIGKILL
    let server = place.up();
    let mut status = String::new();
    for _ in 0..1_200 {
        status = place.run(&["runs", "show", &run, "--json"]).json()["run"]["status"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if status == "finished" {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(status, "finished");
    let expected: String = (0..150).map(|i| format!("line {i}\n")).collect();
    assert_eq!(place.read("log.md"), expected, "every line once, in order");
    assert_eq!(place.run(&["runs", "verify", &run, "--json"]).json()["ok"], true);
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
    std::thread::sleep(std::time::Duration::from_millis(50));
    let stopped = place.run(&["runs", "cancel", &run, "--json"]);
    assert_eq!(stopped.code, 0, "{stopped:?}");
    let mut shown = Value::Null;
    for _ in 0..1_200 {
        shown = place.run(&["runs", "show", &run, "--json"]).json();
        if shown["run"]["status"] == "cancelled" {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(shown["run"]["status"], "cancelled");
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
    // The command line reads the secret by itself; where it cannot, it says so and does not work beside the server.
    assert_eq!(place.run(&["tools", "list", "--json"]).code, 0);
    std::fs::rename(&secret_file, state.join("elsewhere")).unwrap();
    let ran = place.run(&["tools", "list", "--json"]);
    assert_eq!(ran.error_code(), "POLICY_DENIED", "{ran:?}");
    assert!(ran.json()["error"]["message"].as_str().unwrap().contains("local.secret"), "{ran:?}");
    std::fs::rename(state.join("elsewhere"), &secret_file).unwrap();
    assert_eq!(server.stop(), 0);
}
