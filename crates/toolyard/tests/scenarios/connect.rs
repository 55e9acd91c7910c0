//! Entering Toolyard into clients, taking over their servers, and the commands of a first hour.

use crate::harness::Place;
use serde_json::{Value, json};
use std::{fs, path::PathBuf};

const CLIENTS: [(&str, &str); 9] = [
    ("claude", ".claude.json"),
    ("codex", ".codex/config.toml"),
    ("gemini", ".gemini/settings.json"),
    ("openclaw", ".openclaw/openclaw.json"),
    ("cursor", ".cursor/mcp.json"),
    ("vscode", ".config/Code/User/mcp.json"),
    ("zed", ".config/zed/settings.json"),
    ("opencode", ".config/opencode/opencode.json"),
    ("claude-desktop", ".config/Claude/claude_desktop_config.json"),
];

fn connect(place: &Place, client: &str, more: &[&str]) -> Value {
    let mut args = vec!["connect", client, "--no-wait", "--json"];
    args.extend(more);
    let ran = place.run_bare(&args);
    assert_eq!(ran.code, 0, "{client} {more:?}: {ran:?}");
    ran.json()
}

/// Every file below the home that a client reads, with its text.
fn files(place: &Place) -> Vec<(PathBuf, String)> {
    let names =
        CLIENTS.iter().map(|(_, file)| *file).chain([".claude/settings.json", ".codex/hooks.json", "config.toml"]);
    names
        .map(|name| place.home.join(name))
        .filter_map(|path| Some((path.clone(), fs::read_to_string(&path).ok()?)))
        .collect()
}

#[test]
fn a_client_is_connected_once_and_left_as_it_was_byte_for_byte() {
    for (client, file) in CLIENTS {
        let texts = if file.ends_with(".toml") {
            ["", "# mine\nmodel   = \"x\" # why\n\n[mcp_servers.other]\ncommand = \"o\"\n"]
        } else {
            ["", "{\n  // mine\n  \"a\" : [1,2],\n}\n"]
        };
        for existing in texts {
            let place = Place::new();
            let path = place.home.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            place.config("# mine\n[log]\nlevel = \"warn\"\n");
            if !existing.is_empty() {
                fs::write(&path, existing).unwrap();
            }
            let before = files(&place);
            let printed = connect(&place, client, &["--print"]);
            assert_eq!(files(&place), before, "--print changes nothing");
            let first = connect(&place, client, &["--approvals", "client"]);
            assert_eq!((&first["connected"], &first["changed"]), (&json!(true), &json!(true)), "{first}");
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains("toolyard") && text.contains(env!("CARGO_BIN_EXE_toolyard")), "{text}");
            assert!(existing.is_empty() || text.contains("mine"), "{text}");
            if client != "gemini" {
                // Gemini's hooks are in the same file.
                assert_eq!(printed["text"], text.as_str());
            }
            let config = fs::read_to_string(place.home.join("config.toml")).unwrap();
            assert!(config.starts_with("# mine") && config.contains("approvals = \"client\""), "{config}");
            let connected = files(&place);
            let again = connect(&place, client, &["--approvals", "client"]);
            assert_eq!(again["changed"], false, "{again}");
            assert_eq!(files(&place), connected, "a second time changes nothing");
            let undone = connect(&place, client, &["--undo"]);
            assert_eq!((&undone["connected"], &undone["changed"]), (&json!(false), &json!(true)), "{undone}");
            assert_eq!(files(&place), before, "{client}");
            assert_eq!(connect(&place, client, &["--undo"])["changed"], false);
        }
    }
}

#[test]
fn what_others_changed_since_stays() {
    for (client, file) in
        [("cursor", ".cursor/mcp.json"), ("claude", ".claude.json"), ("opencode", ".config/opencode/opencode.json")]
    {
        let place = Place::new();
        connect(&place, client, &[]);
        let path = place.home.join(file);
        let mut settings: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        settings["theirs"] = json!(true);
        fs::write(&path, settings.to_string()).unwrap();
        connect(&place, client, &["--undo"]);
        let left: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(left, json!({"theirs": true}), "{client}");
    }
}

#[test]
fn the_first_call_is_waited_for_and_told() {
    let place = Place::new();
    place.config("[hooks]\npreset = \"observe\"\n");
    let _server = place.up();
    let waiting = place.command(&["connect", "claude", "--json"]).spawn().unwrap();
    let event = json!({
        "session_id": "s", "cwd": place.vault, "hook_event_name": "PreToolUse", "tool_name": "Read",
        "tool_input": {"file_path": place.vault.join("a.md")}, "tool_use_id": "1",
    });
    // The wait begins some time after the start, so calls are repeated until one is seen.
    let mut waiting = waiting;
    while waiting.try_wait().unwrap().is_none() {
        for name in ["PreToolUse", "PostToolUse"] {
            let mut event = event.clone();
            event["hook_event_name"] = json!(name);
            let mut hook = place.command(&["hooks", "run", "--client", "claude"]);
            let mut child = hook.stdin(std::process::Stdio::piped()).spawn().unwrap();
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), event.to_string().as_bytes()).unwrap();
            assert!(child.wait().unwrap().success());
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let output = waiting.wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let title = told["firstCall"].as_str().unwrap_or_default();
    assert!(title.starts_with("claude Read: "), "{told}");
}

#[test]
fn servers_of_clients_are_taken_over_within_walls_and_pinned() {
    let place = Place::new();
    fs::create_dir_all(place.home.join(".cursor")).unwrap();
    fs::create_dir_all(place.home.join(".codex")).unwrap();
    let servers = json!({"mcpServers": {
        "files": {"command": "/bin/cat", "args": ["-"], "env": {"A": "b"}},
        "far": {"url": "https://example.org/mcp", "headers": {"X-A": "the-value-of-x"}},
        "toolyard": {"command": "toolyard", "args": ["mcp"]},
        "not a name!": {"command": "x"},
    }});
    fs::write(place.home.join(".cursor/mcp.json"), servers.to_string()).unwrap();
    let codex = "[mcp_servers.files]\ncommand = \"other\"\nenv = {A = \"the-value-of-a\"}\n";
    fs::write(place.home.join(".codex/config.toml"), codex).unwrap();
    place.config("# mine\n");
    let looked = place.run_bare(&["import", "mcp", "--dry-run", "--json"]).json();
    let read = place.run_bare(&["import", "mcp", "--dry-run"]);
    assert!(read.stdout.contains("would be imported") && read.stderr.contains("Nothing was changed"), "{read:?}");
    assert_eq!(fs::read_to_string(place.home.join("config.toml")).unwrap(), "# mine\n");
    let done = place.run_bare(&["import", "mcp", "--json"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!((&looked["dryRun"], &done.json()["dryRun"]), (&json!(true), &json!(false)));
    assert_eq!(done.json()["servers"], looked["servers"]);
    let taken = |name: &str| {
        let all = looked["servers"].as_array().unwrap();
        all.iter().filter(|server| server["server"] == name && server["imported"] == true).count()
    };
    assert_eq!((taken("files"), taken("far"), taken("toolyard"), taken("not a name!")), (1, 1, 0, 0), "{looked}");
    let config = fs::read_to_string(place.home.join("config.toml")).unwrap();
    assert!(config.contains("# mine\n"), "{config}");
    assert_eq!(config.matches("pin = \"all\"").count(), 2, "{config}");
    assert!(config.contains("[mcp.servers.files.sandbox]") && config.contains("network = false"), "{config}");
    // What clients keep in clear text may be credentials: it goes into private files.
    assert!(!config.contains("the-value-of") && !done.stdout.contains("the-value-of"), "{config}");
    let secrets = place.home.join("state/mcp-secrets");
    for (file, value) in [("files/env-A", "the-value-of-a"), ("far/header-X-A", "the-value-of-x")] {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::read_to_string(secrets.join(file)).unwrap(), value);
        assert_eq!(fs::metadata(secrets.join(file)).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(place.run_bare(&["config", "check", "--json"]).code, 0);
    let again = place.run_bare(&["import", "mcp", "--json"]).json();
    assert!(again["servers"].as_array().unwrap().iter().all(|server| server["imported"] == false), "{again}");
}

#[test]
fn a_report_says_what_every_agent_did() {
    let place = Place::new();
    place.note("a.md", "x");
    place.call("vault.writeFile", json!({"path": "b.md", "content": "<b>"}));
    place.call("vault.readFile", json!({"path": "missing.md"}));
    let report = place.run(&["report", "--since", "1h", "--json"]).json();
    assert_eq!(report["totals"]["runs"], 2, "{report}");
    assert_eq!(report["totals"]["failed"], 1, "{report}");
    let agent = &report["agents"][0];
    assert_eq!((&agent["door"], &agent["agent"]), (&json!("cli"), &json!("main")));
    assert_eq!(agent["files"], json!(["b.md"]));
    assert_eq!(agent["tools"]["vault.writeFile"], 1);
    for since in ["today", "yesterday", "2020-01-01", "2020-01-01T00:00:00Z"] {
        assert_eq!(place.run(&["report", "--since", since, "--json"]).json()["totals"]["runs"], 2, "{since}");
    }
    assert!(place.run(&["report", "--since", "1h"]).stdout.contains("## main (cli)"));
    let html = place.run(&["report", "--since", "1h", "--html"]).stdout;
    assert!(html.starts_with("<!doctype html>") && !html.contains("<b>"), "{html}");
    assert_eq!(place.run(&["report", "--since", "soon", "--json"]).error_code(), "USAGE_ERROR");
}

#[test]
fn init_writes_a_configuration_that_works_and_keeps_an_old_one() {
    let place = Place::new();
    let vault = place.vault.display().to_string();
    let init =
        ["--vault", &vault, "init", "--yes", "--no-index", "--approvals", "client", "--start-at-login", "--json"];
    let done = place.run_bare(&init);
    assert_eq!(done.code, 0, "{done:?}");
    let done = done.json();
    assert_eq!(done["vault"], vault.as_str());
    assert!(fs::read_to_string(done["unit"].as_str().unwrap()).unwrap().contains("ExecStart="));
    let text = fs::read_to_string(place.home.join("config.toml")).unwrap();
    assert!(text.starts_with("# Toolyard's configuration") && text.contains("approvals = \"client\""), "{text}");
    assert_eq!(place.run_bare(&["config", "check", "--json"]).code, 0);
    assert_eq!(place.run_bare(&init).error_code(), "CONFLICT");
    let forced: Vec<&str> = init.into_iter().chain(["--force"]).collect();
    assert_eq!(place.run_bare(&forced).code, 0);
    assert_eq!(fs::read_to_string(place.home.join("config.toml.before-init")).unwrap(), text);
}

#[test]
fn the_program_says_what_it_is_and_whether_it_is_whole() {
    let place = Place::new();
    let version = place.run_bare(&["version", "--json"]).json();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version["program"], env!("CARGO_BIN_EXE_toolyard"));
    let check = place.run_bare(&["self", "check", "--json"]);
    assert_eq!((check.code, &check.json()["ok"]), (0, &json!(true)), "{check:?}");
    let without =
        place.command(&["self", "check", "--json"]).env("TOOLYARD_INDEX_PROGRAM", "/nowhere").output().unwrap();
    let said: Value = serde_json::from_slice(&without.stdout).unwrap();
    assert_eq!((without.status.code(), &said["ok"]), (Some(1), &json!(false)), "{said}");
    let index = said["checks"].as_array().unwrap().iter().find(|check| check["name"] == "the index program").unwrap();
    assert_eq!((&index["ok"], &index["required"]), (&json!(false), &json!(true)));
    assert!(index["detail"].as_str().unwrap().contains("without it, notes are indexed"), "{index}");
}
