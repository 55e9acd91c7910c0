//! Coding agents and the real program: one question for a call of our own tools, settings of the whole machine, what keeps
//! hooks from running, plugin packages, snapshots that are not needed any more.

use crate::{harness::Place, hooks, mcp::Stdio2};
use serde_json::{Value, json};
use std::{fs, thread, time::Duration};

/// The question that is open, once there is one; `is_over` says that none will come.
fn question(place: &Place, is_over: impl Fn() -> bool) -> Option<Value> {
    loop {
        let open = place.run(&["approvals", "list", "--json"]).json();
        if let Some(question) = open["approvals"].as_array().and_then(|all| all.first()) {
            return Some(question.clone());
        }
        if is_over() {
            return None;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn before(place: &Place, id: &str, input: &Value) -> Value {
    hooks::event(&place.vault, "PreToolUse", id, "mcp__toolyard__vault_createFile", input)
}

/// Runs the hook before a call of our own tool while somebody watches, and answers the question.
fn asked(place: &Place, id: &str, input: &Value, word: &str) -> Value {
    let mut watch = place.command(&["approvals", "watch", "--json"]).spawn().unwrap();
    let event = before(place, id, input);
    let answer = thread::scope(|scope| {
        let hook = scope.spawn(|| {
            loop {
                // The watching command may not be connected at first.
                let ran = hooks::hook(place, "claude", &event);
                if !ran.stdout.contains("no approval route") {
                    return ran;
                }
            }
        });
        let asked = question(place, || hook.is_finished()).expect("a question");
        assert_eq!(asked["tool"], "vault.createFile", "{asked}");
        let answered = place.run(&["approvals", word, asked["id"].as_str().unwrap(), "--json"]);
        assert_eq!(answered.code, 0, "{answered:?}");
        hook.join().unwrap()
    });
    watch.kill().unwrap();
    watch.wait().unwrap();
    answer.json()
}

fn call(client: &mut Stdio2, id: &str, input: &Value) -> Value {
    let params =
        json!({"name": "vault_createFile", "arguments": input, "_meta": {"claudecode/toolUseId": id, "callId": 7}});
    client.ask("tools/call", params)["result"].clone()
}

/// A call that must be asked about: its question is denied. Without anybody who could answer it is refused at once.
fn denied(place: &Place, client: &mut Stdio2, id: &str, input: &Value) -> Value {
    thread::scope(|scope| {
        let calling = scope.spawn(|| call(client, id, input));
        if let Some(asked) = question(place, || calling.is_finished()) {
            place.run(&["approvals", "deny", asked["id"].as_str().unwrap(), "--json"]);
        }
        calling.join().unwrap()
    })
}

#[test]
fn a_call_that_its_hook_asked_about_is_not_asked_about_again() {
    let place = Place::new();
    let _server = place.up();
    let mut client = Stdio2::start(&place);
    let input = json!({"path": "a.md", "content": "one"});
    let verdict = asked(&place, "toolu_1", &input, "allow");
    assert_eq!(verdict["hookSpecificOutput"]["permissionDecision"], "allow", "{verdict}");
    let other = json!({"path": "b.md", "content": "one"});
    let refused = denied(&place, &mut client, "toolu_2", &other);
    assert_eq!(refused["isError"], true, "an id that no hook named: {refused}");
    let made = denied(&place, &mut client, "toolu_1", &input);
    assert_ne!(made["isError"], true, "{made}");
    assert_eq!(place.read("a.md"), "one");
    let shown = place.run(&["runs", "list", "--limit", "1", "--json"]).json();
    let run = place.run(&["runs", "show", shown["runs"][0]["runId"].as_str().unwrap(), "--json"]);
    let answer = run.json()["approvals"][0].clone();
    assert_eq!((&answer["by"], &answer["door"]), (&json!("tester"), &json!("cli")), "a person's answer: {answer}");

    fs::remove_file(place.vault.join("a.md")).unwrap();
    let again = denied(&place, &mut client, "toolu_1", &input);
    assert_eq!(again["isError"], true, "an answer is used once: {again}");
    assert!(!place.exists("a.md"));
}

#[test]
fn an_answer_holds_for_the_arguments_that_were_shown() {
    let place = Place::new();
    let _server = place.up();
    let mut client = Stdio2::start(&place);
    asked(&place, "toolu_1", &json!({"path": "a.md", "content": "one"}), "allow");
    let other = denied(&place, &mut client, "toolu_1", &json!({"path": "a.md", "content": "another"}));
    assert_eq!(other["isError"], true, "{other}");
    assert!(!place.exists("a.md"));
    let rule = other["_meta"]["dev.toolyard/error"]["details"]["rule"].as_str();
    assert!(rule.is_some_and(|rule| !rule.is_empty()), "the refusal names the rule that asked: {other}");
}

#[test]
fn a_call_that_is_denied_at_its_hook_is_on_record() {
    let place = Place::new();
    let _server = place.up();
    let verdict = asked(&place, "toolu_1", &json!({"path": "a.md", "content": "one"}), "deny");
    assert_eq!(verdict["hookSpecificOutput"]["permissionDecision"], "deny", "{verdict}");
    let newest = place.run(&["runs", "list", "--limit", "1", "--json"]).json()["runs"][0].clone();
    assert_eq!((&newest["status"], &newest["title"]), (&json!("failed"), &json!("vault_createFile")), "{newest}");
}

#[test]
fn with_approvals_by_the_client_the_hook_has_no_opinion_about_our_own_tools() {
    let place = Place::new();
    place.config("[mcp]\napprovals = \"client\"\n");
    let _server = place.up();
    let input = json!({"path": "a.md", "content": "one"});
    let ran = hooks::hook(&place, "claude", &before(&place, "toolu_1", &input));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{ran:?}");
    let made = call(&mut Stdio2::start(&place), "toolu_1", &input);
    assert_ne!(made["isError"], true, "{made}");
}

#[test]
fn hooks_of_the_whole_machine_are_put_in_and_taken_out_byte_for_byte() {
    for (client, file, existing) in [
        ("claude", "etc/claude-code/managed-settings.json", "{\n  \"model\": \"x\" // theirs\n}"),
        ("codex", "etc/codex/requirements.toml", "# theirs\nallowed_sandbox_modes = [\"read-only\"]\n"),
        ("gemini", "etc/gemini-cli/settings.json", "{\"ui\": {}}\n"),
    ] {
        for existing in [None, Some(existing)] {
            let place = Place::new();
            let root = place.home.join("root");
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if let Some(text) = existing {
                fs::write(&path, text).unwrap();
            }
            let root = root.display().to_string();
            let run = |word: &str| place.run_bare(&["hooks", word, client, "--managed", "--root", &root, "--json"]);
            let first = run("install");
            assert_eq!((first.code, &first.json()["installed"]), (0, &json!(true)), "{first:?}");
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains("hooks run --client") || text.contains("\"--client\""), "{text}");
            assert!(existing.is_none() || text.contains("theirs") || client == "gemini", "{text}");
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
            assert_eq!(run("install").json()["changed"], false, "{client}");
            assert_eq!(run("status").json()["installed"], true, "{client}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            let gone = run("uninstall");
            assert_eq!((gone.code, &gone.json()["installed"]), (0, &json!(false)), "{gone:?}");
            assert_eq!(fs::read_to_string(&path).ok().as_deref(), existing, "{client}");
        }
    }
}

#[test]
fn hooks_of_the_whole_machine_leave_what_others_changed_since() {
    let place = Place::new();
    let root = place.home.join("root");
    let shown = root.display().to_string();
    let run = |word: &str| place.run_bare(&["hooks", word, "codex", "--managed", "--root", &shown, "--json"]);
    assert_eq!(run("install").code, 0);
    let path = root.join("etc/codex/requirements.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("allow_appshots = false\n{text}")).unwrap();
    assert_eq!(run("uninstall").json()["installed"], false);
    let left = fs::read_to_string(&path).unwrap();
    assert!(left.contains("allow_appshots = false") && !left.contains("hooks run"), "{left}");
}

#[test]
fn doctor_names_what_keeps_hooks_from_running() {
    let place = Place::new();
    let _server = place.up();
    let found = |place: &Place| {
        let report = place.run(&["doctor", "--json"]).json();
        let all = report["checks"].as_array().unwrap().clone();
        all.into_iter().filter(|check| check["check"] == "hooks").collect::<Vec<Value>>()
    };
    assert!(found(&place).is_empty(), "nothing is said of clients without our hooks");
    for client in ["claude", "codex"] {
        assert_eq!(place.run_bare(&["hooks", "install", client, "--json"]).code, 0);
    }
    let checks = found(&place);
    assert!(checks.iter().any(|check| check["ok"] == true && check["message"] == "claude: installed"), "{checks:?}");
    let untrusted = checks.iter().any(|check| check["ok"] == false && check.to_string().contains("does not trust"));
    assert!(untrusted, "{checks:?}");
    let file = place.home.join(".claude/settings.json");
    let mut settings: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    settings["hooks"]["Stop"].as_array_mut().unwrap().push(json!({"hooks": [{"command": "theirs"}]}));
    fs::write(&file, settings.to_string()).unwrap();
    let checks = found(&place);
    assert!(checks.iter().any(|check| check.to_string().contains("without a type")), "{checks:?}");
}

#[test]
fn plugin_packages_are_written_once_and_removed() {
    let place = Place::new();
    for (client, manifest) in [
        ("claude", "plugins/toolyard/.claude-plugin/plugin.json"),
        ("codex", "plugins/toolyard/.codex-plugin/plugin.json"),
        ("gemini", "gemini-extension.json"),
    ] {
        let first = place.run_bare(&["connect", client, "--plugin", "--json"]).json();
        assert_eq!(first["written"], true, "{first}");
        let folder = std::path::PathBuf::from(first["folder"].as_str().unwrap());
        let manifest: Value = serde_json::from_str(&fs::read_to_string(folder.join(manifest)).unwrap()).unwrap();
        assert_eq!((&manifest["name"], &manifest["version"]), (&json!("toolyard"), &json!(env!("CARGO_PKG_VERSION"))));
        let again = place.run_bare(&["connect", client, "--plugin", "--json"]).json();
        assert_eq!((&again["written"], &again["changed"]), (&json!(true), &json!(false)));
        let gone = place.run_bare(&["connect", client, "--plugin", "--undo", "--json"]).json();
        assert_eq!((&gone["written"], &gone["changed"]), (&json!(false), &json!(true)), "{gone}");
        assert!(!folder.exists());
    }
    assert_eq!(place.run_bare(&["connect", "zed", "--plugin", "--json"]).error_code(), "USAGE_ERROR");
}

#[test]
fn pruning_removes_snapshots_of_projects_that_nobody_works_in() {
    let place = Place::new();
    let snapshots = place.home.join("state/snapshots");
    for name in ["old", "new"] {
        fs::create_dir_all(snapshots.join(name)).unwrap();
        fs::write(snapshots.join(name).join("HEAD"), "ref: refs/heads/main\n").unwrap();
    }
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(30 * 86_400);
    for path in ["old/HEAD", "old"] {
        fs::File::open(snapshots.join(path)).unwrap().set_modified(long_ago).unwrap();
    }
    let pruned = place.run(&["prune", "--json"]).json();
    assert_eq!(pruned["snapshots"]["projects"], 1, "{pruned}");
    assert!(!snapshots.join("old").exists() && snapshots.join("new").exists());
}

/// Runs the plugin as opencode does: its hooks before and after a call of a tool.
const OPENCODE: &str = r#"
import { pathToFileURL } from 'node:url';
const [file, directory] = process.argv.slice(2);
const { Toolyard } = await import(pathToFileURL(file));
const hooks = await Toolyard({ directory });
const call = { tool: 'bash', sessionID: 's', callID: '1' };
for (const command of ['echo hi', 'rm -r /']) {
  try {
    await hooks['tool.execute.before'](call, { args: { command } });
    await hooks['tool.execute.after']({ ...call, args: { command } }, { output: 'hi' });
    console.log(`${command}: ran`);
  } catch (error) {
    console.log(`${command}: ${error.message}`);
  }
}
"#;

#[test]
fn the_plugin_for_opencode_throws_for_a_call_that_is_refused() {
    let place = Place::new();
    place.config("[hooks]\npreset = \"locked\"\n");
    let written = place.run_bare(&["connect", "opencode", "--plugin", "--json"]).json();
    let plugin = std::path::Path::new(written["folder"].as_str().unwrap()).join("toolyard.js");
    // A module, as opencode loads it.
    let (module, script) = (place.home.join("plugin.mjs"), place.home.join("run.mjs"));
    fs::copy(&plugin, &module).unwrap();
    fs::write(&script, OPENCODE).unwrap();
    let run = || {
        let mut node = std::process::Command::new("node");
        let output = node.args([&script, &module, &place.vault]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let alone = run();
    assert_eq!(alone.matches("start it with `toolyard up`").count(), 2, "{alone}");
    let _server = place.up();
    let decided = run();
    assert!(decided.contains("echo hi: ran\n") && decided.contains("rm -r /: Toolyard: "), "{decided}");
    let newest = place.run(&["runs", "list", "--limit", "5", "--json"]).json();
    assert!(newest.to_string().contains("opencode bash: echo hi"), "{newest}");
}
