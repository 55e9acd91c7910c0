//! The hooks' door, as a coding agent uses it: the real program with the payloads of the real clients.

use crate::harness::{Place, Ran, until};
use serde_json::{Value, json};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};
use toolyard_engine::{Caller, Door};

const RECORDED: &str = include_str!("../../../../tests/recordings/hooks.json");

/// A project beside the home.
fn project(place: &Place) -> PathBuf {
    let root = place.home.parent().unwrap().join("project");
    fs::create_dir_all(root.join("src")).unwrap();
    fs::write(root.join("a.txt"), "one\r\n").unwrap();
    fs::write(root.join("src/b.rs"), "fn b() {}\n").unwrap();
    root
}

/// Runs the hook with an event on its standard input.
fn hook_with(place: &Place, client: &str, event: &str, variables: &[(&str, &str)]) -> Ran {
    let mut command = place.command(&["hooks", "run", "--client", client]);
    let mut child = command.envs(variables.iter().copied()).stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(event.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) fn hook(place: &Place, client: &str, event: &Value) -> Ran {
    // Pretty: clients may send more than one line.
    hook_with(place, client, &serde_json::to_string_pretty(event).unwrap(), &[])
}

pub(crate) fn event(root: &Path, name: &str, id: &str, tool: &str, input: &Value) -> Value {
    json!({
        "session_id": "s1", "cwd": root, "hook_event_name": name, "tool_name": tool, "tool_input": input,
        "tool_use_id": id, "prompt_id": "p1", "agent_id": "sub", "agent_type": "worker", "tool_response": "ok",
    })
}

/// Makes a call as Claude Code does: asks before it, does the work if allowed, and reports the end.
fn call(place: &Place, root: &Path, id: &str, tool: &str, input: &Value, work: impl FnOnce()) {
    let before = hook(place, "claude", &event(root, "PreToolUse", id, tool, input));
    assert_eq!((before.code, before.stdout.as_str()), (0, ""), "{before:?}");
    work();
    let after = hook(place, "claude", &event(root, "PostToolUse", id, tool, input));
    assert_eq!((after.code, after.stdout.as_str()), (0, ""), "{after:?}");
}

/// The newest run.
fn newest(place: &Place) -> Value {
    place.run(&["runs", "list", "--limit", "1", "--json"]).json()["runs"][0].clone()
}

fn undo(place: &Place) -> Ran {
    let run = newest(place)["runId"].as_str().unwrap().to_owned();
    place.run(&["plan", "undo", &run, "--yes", "--json"])
}

#[test]
fn without_a_running_toolyard_nothing_runs_and_nothing_hangs() {
    let place = Place::new();
    let root = project(&place);
    for client in ["claude", "codex", "gemini"] {
        let name = if client == "gemini" { "BeforeTool" } else { "PreToolUse" };
        let refused = hook(&place, client, &event(&root, name, "1", "Bash", &json!({"command": "ls"})));
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{refused:?}");
        assert!(refused.stderr.contains("toolyard up"), "{refused:?}");
        let garbage = hook_with(&place, client, "{\"hook_event_name\": ", &[]);
        assert_eq!(garbage.code, 2, "{garbage:?}");
        assert!(!garbage.stderr.is_empty());
        // A refusal of these events would stop the agent instead of a tool.
        let end = hook(&place, client, &json!({"session_id": "s", "cwd": root, "hook_event_name": "Stop"}));
        assert_eq!(end.code, 0, "{end:?}");
    }
}

#[test]
fn a_written_file_is_recorded_and_taken_back() {
    let place = Place::new();
    place.config("[hooks]\npreset = \"observe\"\n");
    let root = project(&place);
    let _server = place.up();
    let path = root.join("a.txt");
    let input = json!({"file_path": path, "content": "two"});
    call(&place, &root, "t1", "Write", &input, || fs::write(&path, "two").unwrap());
    let run = newest(&place);
    assert_eq!(run["title"], format!("claude Write: {}", path.display()), "{run}");
    let shown = place.run(&["runs", "show", run["runId"].as_str().unwrap(), "--json"]).json();
    let text = shown.to_string();
    for fact in
        ["\"session\":\"s1\"", "\"prompt\":\"p1\"", "\"subagent\":\"sub\"", "\"subagentKind\":\"worker\"", "hooks"]
    {
        assert!(text.contains(fact), "{fact}: {text}");
    }
    let undone = undo(&place);
    assert_eq!(undone.code, 0, "{undone:?}");
    assert_eq!(fs::read(&path).unwrap(), b"one\r\n");
    // Undo removes a new file, but only if the file has not been changed since.
    let new = root.join("new.txt");
    let input = json!({"file_path": new, "content": "n"});
    call(&place, &root, "t2", "Write", &input, || fs::write(&new, "n").unwrap());
    fs::write(&new, "changed by a person").unwrap();
    assert_ne!(undo(&place).code, 0);
    assert_eq!(fs::read_to_string(&new).unwrap(), "changed by a person");
}

/// A caller at the console or at the gateway.
fn caller(door: Door, scope: &str, is_person: bool) -> Arc<Caller> {
    Arc::new(Caller { door, scopes: vec![scope.to_owned()], is_person, ..Caller::cli("somebody") })
}

#[tokio::test]
async fn the_owners_browser_takes_back_what_the_record_holds_and_names_no_path_itself() {
    let place = Place::new();
    place.config("[hooks]\npreset = \"observe\"\n");
    let root = project(&place);
    let path = root.join("a.txt");
    let server = place.up();
    let input = json!({"file_path": path, "content": "two"});
    call(&place, &root, "t1", "Write", &input, || fs::write(&path, "two").unwrap());
    let run = newest(&place)["runId"].clone();
    assert_eq!(server.stop(), 0);
    let home = Some(place.home.clone());
    let global = toolyard::cli::Global {
        home,
        vault: Some(place.vault.clone()),
        json: true,
        quiet: true,
        in_process: true,
        workspace: None,
    };
    let resolved = toolyard::config::resolve(&global).unwrap();
    let app = toolyard::wiring::App::open(resolved, toolyard::wiring::RequiredParts::Store).unwrap();
    let undo = json!({"runId": run, "consent": {"approved": true}});
    for (who, code) in [
        (caller(Door::Gateway, "operator.admin", false), "HOST_PATH_DENIED"),
        (caller(Door::Mcp, "operator.admin", false), "HOST_PATH_DENIED"),
        (caller(Door::Console, "operator.read", false), "MISSING_SCOPE"),
        (caller(Door::Console, "operator.approvals", true), "MISSING_SCOPE"),
    ] {
        let refused = app.service.call(who.clone(), "plans.undo", undo.clone(), None).await;
        let told = serde_json::to_string(&refused.unwrap_err()).unwrap();
        assert!(told.contains(code), "{who:?}: {told}");
    }
    let owner = caller(Door::Console, "operator.admin", true);
    let args = json!({"path": path, "expect": {"kind": "absent"}, "restore": {"kind": "absent"}});
    let named = json!({"name": "native.restore", "args": args});
    let answer = app.service.call(owner.clone(), "tools.call", named, None).await.unwrap();
    assert!(answer.get().contains("HOST_PATH_DENIED"), "a path that the browser names: {answer}");
    assert_eq!(fs::read(&path).unwrap(), b"two");
    let unknown = json!({"runId": run, "only": ["undo9"], "consent": {"approved": true}});
    assert!(app.service.call(owner.clone(), "plans.undo", unknown, None).await.is_err());
    let only = json!({"runId": run, "only": ["undo1"], "consent": {"approved": true}});
    let undone = app.service.call(owner, "plans.undo", only, None).await.unwrap();
    assert!(undone.get().contains("\"finished\""), "{undone}");
    assert_eq!(fs::read(&path).unwrap(), b"one\r\n");
    app.close().await;
}

#[test]
fn a_patch_of_codex_is_taken_back() {
    let place = Place::new();
    place.config("[hooks]\npreset = \"observe\"\n");
    let root = project(&place);
    let _server = place.up();
    let patch = "*** Begin Patch\n*** Add File: new.txt\n+n\n*** Update File: a.txt\n*** Move to: moved.txt\n@@\n-one\n+x\n\
                 *** Delete File: src/b.rs\n*** End Patch\n";
    let input = json!({"command": patch});
    assert_eq!(hook(&place, "codex", &event(&root, "PreToolUse", "c1", "apply_patch", &input)).code, 0);
    fs::write(root.join("new.txt"), "n\n").unwrap();
    fs::rename(root.join("a.txt"), root.join("moved.txt")).unwrap();
    fs::write(root.join("moved.txt"), "x\r\n").unwrap();
    fs::remove_file(root.join("src/b.rs")).unwrap();
    assert_eq!(hook(&place, "codex", &event(&root, "PostToolUse", "c1", "apply_patch", &input)).code, 0);
    assert_eq!(undo(&place).code, 0);
    assert!(!root.join("new.txt").exists() && !root.join("moved.txt").exists());
    assert_eq!(fs::read(root.join("a.txt")).unwrap(), b"one\r\n");
    assert_eq!(fs::read(root.join("src/b.rs")).unwrap(), b"fn b() {}\n");
}

#[test]
fn a_command_is_taken_back_by_the_snapshot_of_the_project() {
    let place = Place::new();
    place.config("[hooks]\npreset = \"observe\"\n");
    let root = project(&place);
    let _server = place.up();
    let input = json!({"command": "rm -r src; echo x > a.txt"});
    call(&place, &root, "t1", "Bash", &input, || {
        fs::remove_dir_all(root.join("src")).unwrap();
        fs::write(root.join("a.txt"), "x\n").unwrap();
    });
    let undone = undo(&place);
    assert_eq!(undone.code, 0, "{undone:?}");
    assert_eq!(fs::read(root.join("a.txt")).unwrap(), b"one\r\n");
    assert_eq!(fs::read(root.join("src/b.rs")).unwrap(), b"fn b() {}\n");
}

#[test]
fn careful_asks_and_locked_refuses() {
    let place = Place::new();
    let root = project(&place);
    let removal = json!({"command": "rm -r src"});
    for (preset, write_runs) in [("careful", true), ("locked", false)] {
        place.config(&format!("[hooks]\npreset = \"{preset}\"\n"));
        let server = place.up();
        let before = |client: &str, name: &str, tool: &str, input: &Value| {
            hook(&place, client, &event(&root, name, "1", tool, input))
        };
        // Nobody who could be asked is connected.
        for (client, name, tool) in [
            ("claude", "PreToolUse", "Bash"),
            ("codex", "PreToolUse", "Bash"),
            ("gemini", "BeforeTool", "run_shell_command"),
        ] {
            let refused = before(client, name, tool, &removal);
            assert_eq!(refused.code, 0, "{refused:?}");
            let answer = refused.json();
            let word = answer["decision"].as_str().or(answer["hookSpecificOutput"]["permissionDecision"].as_str());
            assert_eq!(word, Some("deny"), "{preset} {client}: {answer}");
            assert_eq!(newest(&place)["status"], "failed");
        }
        let write = json!({"file_path": root.join("a.txt"), "content": "x"});
        let written = before("claude", "PreToolUse", "Write", &write);
        assert_eq!(written.stdout.is_empty(), write_runs, "{preset}: {written:?}");
        let read = before("claude", "PreToolUse", "Read", &json!({"file_path": root.join("a.txt")}));
        assert_eq!((read.code, read.stdout.as_str()), (0, ""), "{preset}: {read:?}");
        assert_eq!(server.stop(), 0);
    }
}

#[test]
fn an_attended_claude_asks_its_own_user_and_a_declined_call_is_closed() {
    let place = Place::new();
    let root = project(&place);
    let _server = place.up();
    let asked = event(&root, "PreToolUse", "1", "Bash", &json!({"command": "rm -r src"}));
    let answer = hook_with(&place, "claude", &asked.to_string(), &[("CLAUDE_CODE_SESSION_ATTENDED", "1")]);
    assert_eq!(answer.json()["hookSpecificOutput"]["permissionDecision"], "ask", "{answer:?}");
    assert_eq!(newest(&place)["status"], "running");
    // The user declines: no event follows until the turn ends.
    let stop = json!({"session_id": "s1", "cwd": root, "hook_event_name": "Stop"});
    assert_eq!(hook(&place, "claude", &stop).code, 0);
    let run = newest(&place);
    assert_eq!(run["status"], "finished", "{run}");
    let shown = place.run(&["runs", "show", run["runId"].as_str().unwrap(), "--json"]).json().to_string();
    assert!(shown.contains("did not report the end of Bash; no file changed"), "{shown}");
    assert!(shown.contains("client"), "the consent is the client's report: {shown}");
}

#[test]
fn settings_that_switch_hooks_off_are_not_taken_over() {
    let place = Place::new();
    let root = project(&place);
    let _server = place.up();
    let file = root.join("settings.json");
    let change = json!({"session_id": "s1", "cwd": root, "hook_event_name": "ConfigChange", "file_path": file});
    for (text, code) in [("{}", 0), ("{\"disableAllHooks\": true}", 2), ("{", 2)] {
        fs::write(&file, text).unwrap();
        assert_eq!(hook(&place, "claude", &change).code, code, "{text}");
    }
}

#[test]
fn a_call_whose_toolyard_was_killed_is_closed_from_the_disk_and_taken_back() {
    let place = Place::new();
    place.config("[hooks]\npreset = \"observe\"\n");
    let root = project(&place);
    let mut server = place.up();
    let path = root.join("a.txt");
    let input = json!({"file_path": path, "content": "two"});
    assert_eq!(hook(&place, "claude", &event(&root, "PreToolUse", "t1", "Write", &input)).code, 0);
    let run = newest(&place)["runId"].as_str().unwrap().to_owned();
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    fs::write(&path, "two").unwrap();
    let _server = place.up();
    until("the call is closed", || newest(&place)["status"] != "running");
    let undone = place.run(&["plan", "undo", &run, "--yes", "--json"]);
    assert_eq!(undone.code, 0, "{undone:?}");
    assert_eq!(fs::read(&path).unwrap(), b"one\r\n");
}

#[test]
fn native_tools_are_not_for_other_doors() {
    let place = Place::new();
    let _server = place.up();
    let listed = place.run(&["tools", "list", "--json"]).stdout;
    assert!(!listed.contains("native.shell"), "{listed}");
    let called = place.call("native.destroy", json!({}));
    assert_eq!(called["error"]["code"], "NOT_FOUND", "{called}");
}

fn settings_of(place: &Place, client: &str) -> PathBuf {
    place.home.join(match client {
        "claude" => ".claude/settings.json",
        "codex" => ".codex/hooks.json",
        _ => ".gemini/settings.json",
    })
}

#[test]
fn hooks_are_installed_once_and_taken_out_byte_for_byte() {
    let recorded: Value = serde_json::from_str(RECORDED).unwrap();
    for client in ["claude", "codex", "gemini"] {
        for existing in [
            None,
            Some("{}"),
            Some("{\"hooks\": {\"Stop\": []}}\n"),
            Some(
                "{\n    \"theme\" : \"dark\", // mine\n    \"hooks\": {\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"mine\"}]}]}\n}",
            ),
        ] {
            let place = Place::new();
            let file = settings_of(&place, client);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            if let Some(text) = existing {
                fs::write(&file, text).unwrap();
            }
            let first = place.run_bare(&["hooks", "install", client, "--json"]);
            assert_eq!(
                (first.code, &first.json()["installed"], &first.json()["changed"]),
                (0, &json!(true), &json!(true))
            );
            let text = fs::read_to_string(&file).unwrap();
            let again = place.run_bare(&["hooks", "install", client, "--json"]).json();
            assert_eq!((&again["installed"], &again["changed"]), (&json!(true), &json!(false)));
            assert_eq!(fs::read_to_string(&file).unwrap(), text, "a second time changes nothing");
            if existing.is_none() {
                check_like_recorded(&place, client, &text, &recorded["installs"][client]);
            } else if existing.is_some_and(|text| text.contains("mine")) {
                assert!(text.contains("// mine") && text.contains("\"command\": \"mine\""), "{text}");
            }
            let gone = place.run_bare(&["hooks", "uninstall", client, "--json"]).json();
            assert_eq!((&gone["installed"], &gone["changed"]), (&json!(false), &json!(true)));
            assert_eq!(fs::read_to_string(&file).ok().as_deref(), existing, "{client}");
            let nothing = place.run_bare(&["hooks", "uninstall", client, "--json"]).json();
            assert_eq!(nothing["changed"], false);
        }
    }
}

/// The same as the installation that the real client accepted, apart from the home that the test names.
fn check_like_recorded(place: &Place, client: &str, text: &str, recorded: &Value) {
    let program = env!("CARGO_BIN_EXE_toolyard");
    let home = format!(" --home {}", place.home.display());
    let mut installed: Value = serde_json::from_str(text).unwrap();
    for groups in installed["hooks"].as_object_mut().unwrap().values_mut() {
        if let Some(args) = groups.pointer_mut("/0/hooks/0/args").and_then(Value::as_array_mut) {
            assert_eq!(args.pop(), Some(json!(place.home)));
            assert_eq!(args.pop(), Some(json!("--home")));
        }
    }
    let text = installed.to_string().replace(program, "{{PATH}}").replace(&home, "");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), *recorded, "{client}");
}

#[test]
fn uninstalling_leaves_what_others_changed_since() {
    for client in ["claude", "codex", "gemini"] {
        let place = Place::new();
        let file = settings_of(&place, client);
        assert_eq!(place.run_bare(&["hooks", "install", client, "--json"]).code, 0);
        let mut settings: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        settings["theirs"] = json!(1);
        settings["hooks"]["SessionStart"]
            .as_array_mut()
            .unwrap()
            .push(json!({"hooks": [{"type": "command", "command": "x"}]}));
        fs::write(&file, serde_json::to_string_pretty(&settings).unwrap()).unwrap();
        assert_eq!(place.run_bare(&["hooks", "uninstall", client, "--json"]).code, 0);
        let left: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(
            left,
            json!({"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "x"}]}]}, "theirs": 1})
        );
    }
}

#[test]
fn codex_trusts_the_hooks_only_when_told_to() {
    let place = Place::new();
    let config = place.home.join(".codex/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    let before = "# mine\nmodel = \"x\"\n";
    fs::write(&config, before).unwrap();
    let plain = place.run_bare(&["hooks", "install", "codex", "--json"]).json();
    assert_eq!(plain["trusted"], false);
    assert_eq!(fs::read_to_string(&config).unwrap(), before);
    let trusted = place.run_bare(&["hooks", "install", "codex", "--trust", "--json"]).json();
    assert_eq!((&trusted["trusted"], &trusted["changed"]), (&json!(true), &json!(true)));
    let text = fs::read_to_string(&config).unwrap();
    let key = format!("[hooks.state.\"{}:pre_tool_use:0:0\"]", settings_of(&place, "codex").display());
    assert!(text.starts_with(before) && text.contains(&key) && text.contains("sha256:"), "{text}");
    assert_eq!(place.run_bare(&["hooks", "install", "codex", "--trust", "--json"]).json()["changed"], false);
    assert_eq!(place.run_bare(&["hooks", "uninstall", "codex", "--json"]).code, 0);
    assert_eq!(fs::read_to_string(&config).unwrap(), before);
    let wrong = place.run_bare(&["hooks", "install", "claude", "--trust", "--json"]);
    assert_eq!(wrong.error_code(), "USAGE_ERROR");
}

#[test]
fn settings_that_cannot_be_read_are_left_alone() {
    let place = Place::new();
    let file = settings_of(&place, "claude");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    for text in ["{\"hooks\": [", "[]", "{\"hooks\": 1}", "{\"hooks\": {\"PreToolUse\": {}}}"] {
        fs::write(&file, text).unwrap();
        let refused = place.run_bare(&["hooks", "install", "claude", "--json"]);
        assert_eq!(refused.error_code(), "CONFIG_INVALID", "{text}: {refused:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
}

#[test]
fn an_asked_call_waits_for_a_person_and_runs_once() {
    let place = Place::new();
    let root = project(&place);
    let _server = place.up();
    // While somebody watches, questions are asked.
    let mut watch = place.command(&["approvals", "watch", "--json"]).spawn().unwrap();
    let input = json!({"command": "rm -r src"});
    for (id, word, verdict) in [("1", "allow", "allow"), ("2", "deny", "deny")] {
        let before = event(&root, "PreToolUse", id, "Bash", &input);
        let answer = std::thread::scope(|scope| {
            let hook = scope.spawn(|| {
                loop {
                    // The watching command may not be connected at first.
                    let ran = hook(&place, "claude", &before);
                    if !ran.stdout.contains("no approval route") {
                        return ran;
                    }
                }
            });
            let question = loop {
                let open = place.run(&["approvals", "list", "--json"]).json();
                let text = open.to_string();
                if text.contains("native.destroy") {
                    assert!(text.contains("rm -r src"), "the question shows the command: {text}");
                    break open;
                }
                assert!(!hook.is_finished(), "{:?}", hook.join().unwrap());
                std::thread::sleep(std::time::Duration::from_millis(50));
            };
            let asked = question["approvals"].as_array().or(question.as_array()).unwrap()[0]["id"].clone();
            let answered = place.run(&["approvals", word, asked.as_str().unwrap(), "--json"]);
            assert_eq!(answered.code, 0, "{answered:?}");
            hook.join().unwrap()
        });
        assert_eq!(answer.json()["hookSpecificOutput"]["permissionDecision"], verdict, "{answer:?}");
        // The client need not ask about what a person has approved.
        let mut permission = event(&root, "PermissionRequest", id, "Bash", &input);
        permission.as_object_mut().unwrap().remove("tool_use_id");
        let asks = hook(&place, "claude", &permission);
        assert_eq!(asks.stdout.contains("\"behavior\":\"allow\""), word == "allow", "{asks:?}");
        if word == "allow" {
            fs::remove_dir_all(root.join("src")).unwrap();
            assert_eq!(hook(&place, "claude", &event(&root, "PostToolUse", id, "Bash", &input)).code, 0);
            let undone = undo(&place);
            assert_eq!(undone.code, 0, "{undone:?}");
            assert!(root.join("src/b.rs").exists());
        }
    }
    watch.kill().unwrap();
    watch.wait().unwrap();
}
