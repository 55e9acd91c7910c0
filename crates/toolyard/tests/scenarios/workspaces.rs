//! Workspaces with the real program: hooks of coding agents, `toolyard mcp` on standard input and output, what is entered
//! into clients, and the context store.

use crate::{
    harness::{Place, Ran, until},
    hooks::event,
    mcp::Stdio2,
};
use serde_json::{Value, json};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
};

/// Makes a home with the workspaces `bob` and `eve`.
pub(crate) fn with_workspaces(place: &Place) {
    for name in ["bob", "eve"] {
        let added = place.run(&["workspaces", "add", name, "--json"]);
        assert_eq!(added.code, 0, "{added:?}");
    }
}

fn project(place: &Place) -> PathBuf {
    let root = place.home.parent().unwrap().join("project");
    fs::create_dir_all(&root).unwrap();
    fs::write(root.join("a.txt"), "one\n").unwrap();
    root
}

/// Runs the hook of Claude Code that was installed with these options.
fn hook(place: &Place, options: &[&str], event: &Value) -> Ran {
    let mut command = place.command(&[&["hooks", "run", "--client", "claude"], options].concat());
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(event.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

const BOB: [&str; 2] = ["--workspace", "bob"];
const EVE: [&str; 2] = ["--workspace", "eve"];

fn list(place: &Place, options: &[&str], what: &[&str], member: &str) -> Vec<Value> {
    let ran = place.run(&[options, what, &["--json"]].concat());
    assert_eq!(ran.code, 0, "{options:?} {what:?}: {ran:?}");
    ran.json()[member].as_array().unwrap_or_else(|| panic!("{ran:?}")).clone()
}

fn runs(place: &Place, options: &[&str]) -> Vec<Value> {
    list(place, options, &["runs", "list"], "runs")
}

fn write_event(root: &Path, name: &str, id: &str) -> Value {
    event(root, name, id, "Write", &json!({"file_path": root.join("a.txt"), "content": "two"}))
}

#[test]
fn the_hooks_of_a_workspace_record_and_take_back_in_it() {
    let place = Place::new();
    place.config("[hooks]\npreset = \"observe\"\n");
    let (root, server) = (project(&place), place.up());
    with_workspaces(&place);
    let before = hook(&place, &BOB, &write_event(&root, "PreToolUse", "1"));
    assert_eq!((before.code, before.stdout.as_str()), (0, ""), "{before:?}");
    fs::write(root.join("a.txt"), "two").unwrap();
    // The same session and call, but of others.
    for options in [&[][..], &EVE] {
        for name in ["PostToolUse", "Stop"] {
            let other = hook(&place, options, &write_event(&root, name, "1"));
            assert_eq!(other.code, 0, "{other:?}");
        }
        assert_eq!(runs(&place, options), Vec::<Value>::new());
    }
    assert_eq!(runs(&place, &BOB)[0]["status"], "running", "nobody else ended the call");
    assert_eq!(hook(&place, &BOB, &write_event(&root, "PostToolUse", "1")).code, 0);
    let own = runs(&place, &BOB);
    assert_eq!((own.len(), own[0]["status"].as_str()), (1, Some("finished")), "{own:?}");
    let run = own[0]["runId"].as_str().unwrap();
    for options in [&[][..], &EVE] {
        for command in [["plan", "undo", run, "--yes"].as_slice(), &["runs", "show", run]] {
            let refused = place.run(&[options, command, &["--json"]].concat());
            assert_eq!(refused.error_code(), "NOT_FOUND", "{refused:?}");
        }
    }
    assert_eq!(fs::read_to_string(root.join("a.txt")).unwrap(), "two");
    let undone = place.run(&[&BOB, ["plan", "undo", run, "--yes", "--json"].as_slice()].concat());
    assert_eq!(undone.code, 0, "{undone:?}");
    assert_eq!(fs::read_to_string(root.join("a.txt")).unwrap(), "one\n");
    // Hooks that name a workspace which is not there, or not any more, let no call run.
    assert_eq!(place.run(&["workspaces", "remove", "eve"]).code, 0);
    for (name, words) in [("eve", "was removed"), ("carol", "there is no workspace"), ("No", "lower-case")] {
        let refused = hook(&place, &["--workspace", name], &write_event(&root, "PreToolUse", "2"));
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{refused:?}");
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
    server.stop();
}

#[test]
fn a_question_of_a_hook_and_its_answer_belong_to_its_workspace() {
    let place = Place::new();
    place.config("[hooks]\npreset = \"locked\"\n");
    let (root, server) = (project(&place), place.up());
    with_workspaces(&place);
    let watched =
        |options: &[&str]| place.command(&[options, &["approvals", "watch", "--json"]].concat()).spawn().unwrap();
    // Somebody of another workspace could answer there, and nobody here.
    let mut others = watched(&EVE);
    let refused = hook(&place, &BOB, &write_event(&root, "PreToolUse", "1"));
    assert_eq!(refused.json()["hookSpecificOutput"]["permissionDecision"], "deny", "{refused:?}");
    let mut own = watched(&BOB);
    let answer = std::thread::scope(|scope| {
        let hook = scope.spawn(|| {
            loop {
                // The watching command may not be connected at first.
                let ran = hook(&place, &BOB, &write_event(&root, "PreToolUse", "2"));
                if !ran.stdout.contains("no approval route") {
                    return ran;
                }
            }
        });
        let mut open = Vec::new();
        until("the question is asked", || {
            open = list(&place, &BOB, &["approvals", "list"], "approvals");
            assert!(!hook.is_finished(), "the hook ended without a question");
            !open.is_empty()
        });
        let id = open[0]["id"].as_str().unwrap();
        for options in [&[][..], &EVE] {
            assert_eq!(list(&place, options, &["approvals", "list"], "approvals"), Vec::<Value>::new());
            let refused = place.run(&[options, &["approvals", "allow", id, "--json"]].concat());
            assert_eq!(refused.error_code(), "NOT_FOUND", "{refused:?}");
        }
        let answered = place.run(&[BOB.as_slice(), &["approvals", "allow", id, "--scope", "tool", "--json"]].concat());
        assert_eq!(answered.code, 0, "{answered:?}");
        hook.join().unwrap()
    });
    assert_eq!(answer.json()["hookSpecificOutput"]["permissionDecision"], "allow", "{answer:?}");
    // The lasting permission is that workspace's.
    assert_eq!(list(&place, &BOB, &["grants", "list"], "grants").len(), 1);
    let again = hook(&place, &BOB, &write_event(&root, "PreToolUse", "3"));
    assert_eq!((again.code, again.stdout.as_str()), (0, ""), "{again:?}");
    for options in [&[][..], &EVE] {
        assert_eq!(list(&place, options, &["grants", "list"], "grants"), Vec::<Value>::new());
    }
    for watching in [&mut others, &mut own] {
        watching.kill().unwrap();
        watching.wait().unwrap();
    }
    let refused = hook(&place, &[], &write_event(&root, "PreToolUse", "3"));
    assert_eq!(refused.json()["hookSpecificOutput"]["permissionDecision"], "deny", "{refused:?}");
    server.stop();
}

fn tool(client: &mut Stdio2, name: &str, args: &Value) -> String {
    client.ask("tools/call", json!({"name": name, "arguments": args})).to_string()
}

fn names(client: &mut Stdio2) -> String {
    client.ask("tools/list", json!({})).to_string()
}

#[test]
fn standard_input_and_output_of_a_workspace_are_kept_apart() {
    let place = Place::new();
    place.config("[mcp]\nexposure = \"direct\"\n");
    place.note("secret.md", "the vault is the owner's");
    let server = place.up();
    with_workspaces(&place);
    let (mut owner, mut bob, mut eve) =
        (Stdio2::start(&place), Stdio2::start_with(&place, &BOB), Stdio2::start_with(&place, &EVE));
    assert!(names(&mut owner).contains("vault_readFile"));
    assert!(!names(&mut bob).contains("vault_readFile") && names(&mut bob).contains("memory_store"));
    let stored = tool(&mut bob, "memory_store", &json!({"text": "Bob keeps the blue bicycle in the shed."}));
    assert!(!stored.contains("\"isError\":true"), "{stored}");
    let question = json!({"query": "Where is the blue bicycle?"});
    assert!(tool(&mut bob, "memory_recall", &question).contains("shed"));
    for other in [&mut owner, &mut eve] {
        let answer = tool(other, "memory_recall", &question);
        assert!(!answer.contains("shed"), "{answer}");
    }
    let own = runs(&place, &BOB);
    assert_eq!(own.len(), 2, "{own:?}");
    for options in [&[][..], &EVE] {
        let theirs = runs(&place, options);
        assert!(theirs.len() == 1 && own.iter().all(|run| run["runId"] != theirs[0]["runId"]), "{theirs:?}");
    }
    // The end of the workspace ends its connections.
    assert_eq!(place.run(&["workspaces", "remove", "eve"]).code, 0);
    eve.ended();
    assert_eq!(eve.end(), 0);
    assert!(tool(&mut bob, "memory_recall", &question).contains("shed"));
    assert_eq!((owner.end(), bob.end()), (0, 0));
    for (name, words) in [("eve", "was removed"), ("carol", "there is no workspace"), ("No", "lower-case")] {
        for more in [&[][..], &["--in-process"]] {
            let refused = place.run(&[&["--workspace", name, "mcp"], more].concat());
            assert!(refused.code == 1 && refused.stdout.is_empty(), "{refused:?}");
            assert!(refused.stderr.contains(words) || refused.stderr.contains("store"), "{refused:?}");
        }
    }
    assert_eq!(server.stop(), 0);
    // Without a running Toolyard, too.
    let mut bob = Stdio2::start_with(&place, &BOB);
    assert!(!names(&mut bob).contains("vault_readFile"));
    assert!(tool(&mut bob, "memory_recall", &question).contains("shed"));
    assert_eq!(bob.end(), 0);
    let refused = place.run(&["--workspace", "eve", "mcp"]);
    assert!(refused.code == 1 && refused.stderr.contains("was removed"), "{refused:?}");
}

#[test]
fn the_entries_of_a_client_keep_the_workspace() {
    let place = Place::new();
    with_workspaces(&place);
    let files = |client: &str| -> Vec<PathBuf> {
        let names: &[&str] = match client {
            "claude" => &[".claude.json", ".claude/settings.json"],
            "codex" => &[".codex/config.toml", ".codex/hooks.json"],
            "gemini" => &[".gemini/settings.json"],
            _ => &[".cursor/mcp.json"],
        };
        names.iter().map(|name| place.home.join(name)).collect()
    };
    for client in ["claude", "codex", "gemini", "cursor"] {
        let run = |args: &[&str]| place.run_bare(&[args, &["--json"]].concat());
        let connected = run(&[&BOB, ["connect", client, "--no-wait"].as_slice()].concat());
        assert_eq!((connected.code, connected.json()["workspace"].as_str()), (0, Some("bob")), "{connected:?}");
        let read = || -> Vec<String> { files(client).iter().map(|file| fs::read_to_string(file).unwrap()).collect() };
        let written = read();
        for text in &written {
            assert!(text.contains("--workspace") && text.contains("bob"), "{client}: {text}");
        }
        let again = run(&[&BOB, ["connect", client, "--no-wait"].as_slice()].concat());
        assert_eq!((again.json()["changed"].as_bool(), read()), (Some(false), written), "{client}");
        if client != "cursor" {
            // Whoever looks without naming the workspace is told it.
            let status = run(&["hooks", "status", client]).json();
            assert_eq!((&status["installed"], &status["workspace"]), (&json!(true), &json!("bob")), "{status}");
            let other = run(&[&EVE, ["hooks", "status", client].as_slice()].concat()).json();
            assert_eq!(other["installed"], false, "{other}");
        }
        // Another workspace takes the place of the first one, and the file is as it was afterwards.
        let moved = run(&[&EVE, ["connect", client, "--no-wait"].as_slice()].concat());
        assert_eq!(moved.code, 0, "{moved:?}");
        assert!(read().iter().all(|text| text.contains("eve") && !text.contains("bob")), "{client}: {:?}", read());
        assert_eq!(run(&["connect", client, "--undo"]).json()["changed"], true);
        for file in files(client) {
            // Gemini CLI has server and hooks in one file, which is left without them.
            let text = fs::read_to_string(file).unwrap_or_default();
            assert!((client == "gemini" || text.is_empty()) && !text.contains("toolyard"), "{client}: {text}");
        }
    }
    let managed = place.run_bare(&[BOB.as_slice(), &["hooks", "install", "claude", "--managed", "--json"]].concat());
    assert_eq!(managed.error_code(), "USAGE_ERROR", "{managed:?}");
    for wrong in ["carol", "No"] {
        for args in [&["connect", "claude", "--no-wait"][..], &["hooks", "install", "claude"]] {
            let refused = place.run_bare(&[&["--workspace", wrong], args, &["--json"]].concat());
            assert!(["NOT_FOUND", "VALIDATION_ERROR"].contains(&refused.error_code().as_str()), "{refused:?}");
            assert!(files("claude").iter().all(|file| !file.exists()), "nothing was written");
        }
    }
}

#[test]
fn the_commands_of_the_context_store_act_in_the_chosen_workspace() {
    let place = Place::new();
    let server = place.up();
    with_workspaces(&place);
    let note = place.home.join("note.md");
    fs::write(&note, "# Bicycle\nBob keeps the blue bicycle in the shed.\n").unwrap();
    let ctx = |options: &[&str], args: &[&str]| {
        let ran = place.run(&[options, &["ctx"], args, &["--json"]].concat());
        assert_eq!(ran.code, 0, "{options:?} {args:?}: {ran:?}");
        ran.stdout
    };
    ctx(&BOB, &["add", note.to_str().unwrap(), "--to", "viking://resources/bicycle"]);
    assert!(ctx(&BOB, &["ls", "viking://resources"]).contains("bicycle"));
    assert!(ctx(&BOB, &["find", "Where is the blue bicycle?"]).contains("bicycle"));
    for options in [&[][..], &EVE] {
        assert!(!ctx(options, &["ls", "viking://resources"]).contains("bicycle"));
        assert!(!ctx(options, &["find", "Where is the blue bicycle?"]).contains("viking://resources/bicycle"));
    }
    // What is set for an agent holds for that agent of the same workspace.
    let limit = |options: &[&str]| {
        let shown: Value = serde_json::from_str(&ctx(options, &["command", "/ov-query-config get"])).unwrap();
        shown.to_string()
    };
    let (owners, eves) = (limit(&[]), limit(&EVE));
    ctx(&BOB, &["command", "/ov-query-config set --recallLimit 3 --scope claw"]);
    assert!(limit(&BOB).contains("\"recallLimit\":\"claw\""), "{}", limit(&BOB));
    assert_eq!((limit(&[]), limit(&EVE)), (owners, eves));
    server.stop();
}
