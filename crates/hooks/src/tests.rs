//! Tests with recorded events of the real clients.

use crate::{
    Client, Verdict,
    classify::classify,
    image::{self, FileState},
    patch::{self, PatchedFile},
    payload::{Event, NativeCall},
    shadow::Shadows,
    shell,
};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command};
use toolyard_catalog::native::NativeClass::{self, Destroy, Leave, Read, Shell, Write};

const RECORDED: &str = include_str!("../../../tests/recordings/hooks.json");

fn recorded(client: Client, name: &str) -> Value {
    let facts: Value = serde_json::from_str(RECORDED).unwrap();
    let events = facts["events"].as_array().unwrap();
    let event = events.iter().find(|event| event["client"] == client.as_str() && event["name"] == name);
    let text = event.unwrap_or_else(|| panic!("{client} {name} is not recorded"))["payload"].to_string();
    serde_json::from_str(&text.replace("{{WORK}}", "/work/project").replace("{{HOME}}", "/home/somebody")).unwrap()
}

fn call(client: Client, name: &str) -> NativeCall {
    match Event::read(client, recorded(client, name)).unwrap() {
        Event::Before(call) | Event::Permission(call) => call,
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn every_recorded_event_is_read() {
    let facts: Value = serde_json::from_str(RECORDED).unwrap();
    for event in facts["events"].as_array().unwrap() {
        let client = Client::parse(event["client"].as_str().unwrap()).unwrap();
        let name = event["name"].as_str().unwrap();
        let read = Event::read(client, recorded(client, name)).unwrap_or_else(|why| panic!("{client} {name}: {why}"));
        let is_before = name.starts_with("PreToolUse") || name.starts_with("BeforeTool");
        let is_after = name.starts_with("PostToolUse") || name.starts_with("AfterTool");
        assert_eq!(matches!(read, Event::Before(_)), is_before, "{name}");
        let is_batch = name.starts_with("PostToolBatch");
        assert_eq!(matches!(read, Event::After(_)), is_after && !is_batch, "{name}");
    }
}

#[test]
fn the_end_of_a_call_is_matched_with_its_beginning() {
    for (client, before, after) in [
        (Client::Claude, "PreToolUse-Write", "PostToolUse-Write"),
        (Client::Claude, "PreToolUse-Bash-subagent", "PostToolUse-Bash-subagent"),
        (Client::Codex, "PreToolUse-apply_patch", "PostToolUse-apply_patch"),
        (Client::Gemini, "BeforeTool-write_file", "AfterTool-write_file"),
        (Client::Gemini, "BeforeTool-run_shell_command", "AfterTool-run_shell_command"),
    ] {
        let Event::After(end) = Event::read(client, recorded(client, after)).unwrap() else { panic!("{after}") };
        assert_eq!(call(client, before).key(), end.key, "{client} {before}");
        assert!(end.response.is_some_and(|text| !text.is_empty()), "{after}");
    }
}

#[test]
fn subagents_prompts_and_own_tools_are_told() {
    let sub = call(Client::Claude, "PreToolUse-Bash-subagent");
    assert_eq!(sub.subagent_kind.as_deref(), Some("general-purpose"));
    assert!(sub.subagent.is_some() && sub.prompt.is_some());
    assert!(call(Client::Codex, "PreToolUse-Bash-subagent").prompt.is_some());
    let own = call(Client::Claude, "PreToolUse-mcp__toolyard__vault_createFile").own_tool;
    assert_eq!(own.as_deref(), Some("vault_createFile"));
    assert_eq!(call(Client::Claude, "PreToolUse-mcp__echo__echo").own_tool, None);
}

#[test]
fn recorded_calls_have_the_class_of_what_they_do() {
    for (client, name, class) in [
        (Client::Claude, "PreToolUse-Write", Write),
        (Client::Claude, "PreToolUse-Edit", Write),
        (Client::Claude, "PreToolUse-NotebookEdit", Write),
        (Client::Claude, "PreToolUse-Read", Read),
        (Client::Claude, "PreToolUse-Grep", Read),
        (Client::Claude, "PreToolUse-Bash", Shell),
        (Client::Claude, "PreToolUse-mcp__echo__echo", Leave),
        (Client::Codex, "PreToolUse-apply_patch", Destroy),
        (Client::Codex, "PreToolUse-Bash", Shell),
        (Client::Gemini, "BeforeTool-write_file", Write),
        (Client::Gemini, "BeforeTool-replace", Write),
        (Client::Gemini, "BeforeTool-read_file", Read),
        (Client::Gemini, "BeforeTool-run_shell_command", Shell),
    ] {
        let classified = classify(&call(client, name));
        assert_eq!(classified.class, class, "{client} {name}: {}", classified.reason);
    }
    let mut odd = call(Client::Claude, "PreToolUse-Write");
    for (path, class) in [
        ("/work/project/.claude/settings.json", Destroy),
        ("/work/project/.git/hooks/post-commit", Destroy),
        ("/work/project/../elsewhere.txt", Leave),
        ("/etc/hosts", Leave),
    ] {
        odd.input.insert("file_path".to_owned(), json!(path));
        assert_eq!(classify(&odd).class, class, "{path}");
    }
    odd.tool = "SomethingNew".to_owned();
    assert_eq!(classify(&odd).class, Destroy);
}

fn class(command: &str) -> NativeClass {
    shell::classify(command, Path::new("/work/project"), Path::new("/work/project/sub")).class
}

#[rustfmt::skip]
const READ: &[&str] = &[
    "ls -la", "cat a.txt | grep x | sort", "git status && git diff", "echo \"$HOME\"", "find . -name '*.rs'",
    "test -f x || echo no", "cat < a.txt", "sed -n 1,5p a.txt", "echo hi > /dev/null 2>&1",
    "for f in a b; do echo $f; done", "timeout 5 ls", "bash -c 'ls'", "xargs grep x", "while read x; do echo $x; done", "uniq a", "# rm -rf /",
];
#[rustfmt::skip]
const CHANGES: &[&str] = &[
    "touch ran; echo ok", "mkdir -p a/b", "echo x > a.txt", "git add -A && git commit -m 'rm -rf /'",
    "cargo test", "make", "npm test", "sed -i s/a/b/ x", "X=1 make", "cp a b", "mv a b", "uniq a b", "cd .. && touch x", "find . -exec touch {} ;", "sed -i s/a/b/ x y",
];
#[rustfmt::skip]
const DESTROY: &[&str] = &[
    "rm -r build", "ls; rm x", "echo $(rm x)", "echo `rm x`", "find . -delete", "find . -exec rm {} ;",
    "git reset --hard", "git clean -fdx", "git checkout -- .", "rg --pre x y", "export PATH=/tmp", "sed -e s/a/b/ -e p x", "sed -i s/a/b/e x", "git branch -fd x", "sort --compress-program=x a", "bash -c 'rm x'",
    "python3 -c 'x'", "./script.sh", "cat <<EOF\nx\nEOF", "$CMD", "PATH=/tmp ls", "eval ls", "echo 'a",
    "if true; then rm x; fi", "git -c core.pager=x log", "cargo clean", "sudo_like", "echo x > .git/config",
    "kill 1", "case x in x) ls;; esac", "perl -e 1", "a() { ls; }", "echo $((1+1))", "echo ${X:=y}",
];
#[rustfmt::skip]
const LEAVE: &[&str] = &[
    "curl http://x", "git push", "npm install", "sudo ls", "rm -rf /", "rm -rf ~", "rm $X",
    "echo x > /etc/hosts", "echo x > ~/.bashrc", "cp a ../../b", "cat ~/.ssh/id_rsa", "echo x > $F",
    "cd /etc && touch x", "cd $X && touch y", "pip install x", "ssh host ls", "toolyard prune",
    "ls | xargs rm", "find / -exec touch {} ;", "xargs touch", "touch {a,/etc/x}", "ln -s /etc/x y", "make -C /etc",
    "cd /etc; cd /work/project; touch x", "npm --prefix a install", "yarn", "cargo add x",
];

#[test]
fn a_command_is_as_dangerous_as_its_most_dangerous_part() {
    for (expected, commands) in [(Read, READ), (Shell, CHANGES), (Destroy, DESTROY), (Leave, LEAVE)] {
        for command in commands {
            assert_eq!(class(command), expected, "{command}");
        }
    }
}

#[test]
fn a_patch_names_every_file_it_touches() {
    let text = "*** Begin Patch\n*** Add File: a b.txt\n+*** Delete File: not-a-header\n*** Update File: c.txt\n\
                *** Move to: d.txt\n@@\n-x\n+y\n*** Delete File: e.txt\n*** End Patch\n";
    let file = |name: &str| name.to_owned();
    let expected = [
        PatchedFile::Add(file("a b.txt")),
        PatchedFile::Move { from: file("c.txt"), to: file("d.txt") },
        PatchedFile::Delete(file("e.txt")),
    ];
    assert_eq!(patch::read(text).unwrap(), expected);
    for wrong in ["", "diff --git a b", "*** Begin Patch\n*** End Patch", "*** Begin Patch\n*** Rename: x\n"] {
        assert!(patch::read(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn verdicts_have_the_words_of_each_client() {
    let deny = Verdict::Deny("no".to_owned());
    let shape = |client, verdict: &Verdict| -> Value {
        let answer = verdict.before(client);
        assert_eq!((answer.exit, answer.stderr.as_str()), (0, ""));
        serde_json::from_str(&answer.stdout).unwrap_or(Value::Null)
    };
    let claude = json!({"hookSpecificOutput": {
        "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no",
    }});
    assert_eq!(shape(Client::Claude, &deny), claude);
    assert_eq!(shape(Client::Codex, &deny), claude);
    assert_eq!(shape(Client::Gemini, &deny), json!({"decision": "deny", "reason": "no"}));
    // "ask" runs the tool in Codex and hangs Gemini.
    let ask = Verdict::Ask("may I".to_owned());
    assert_eq!(shape(Client::Claude, &ask)["hookSpecificOutput"]["permissionDecision"], "ask");
    assert_eq!(shape(Client::Codex, &ask)["hookSpecificOutput"]["permissionDecision"], "deny");
    assert_eq!(shape(Client::Gemini, &ask)["decision"], "deny");
    // An empty reason runs the tool in Codex.
    let empty = shape(Client::Codex, &Verdict::Deny(" ".to_owned()));
    assert_ne!(empty["hookSpecificOutput"]["permissionDecisionReason"], " ");
    assert_eq!(shape(Client::Gemini, &Verdict::NoOpinion), json!({}));
    assert_eq!(Verdict::NoOpinion.before(Client::Codex).stdout, "");
}

fn git(folder: &Path, arguments: &[&str]) {
    let settings = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"];
    let status = Command::new("git").current_dir(folder).args(settings).args(arguments).output().unwrap();
    assert!(status.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&status.stderr));
}

fn project(is_repository: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("project");
    fs::create_dir_all(root.join("src")).unwrap();
    fs::write(root.join("a.txt"), b"one\r\ntwo\n").unwrap();
    fs::write(root.join("src/b.bin"), [0, 159, 146, 150]).unwrap();
    std::os::unix::fs::symlink("a.txt", root.join("link")).unwrap();
    fs::write(root.join(".gitignore"), "ignored\n").unwrap();
    if is_repository {
        git(&root, &["init", "-q"]);
        git(&root, &["add", "-A"]);
        git(&root, &["commit", "-q", "-m", "x"]);
    }
    fs::write(root.join("untracked"), "u").unwrap();
    fs::write(root.join("ignored"), "i").unwrap();
    folder
}

#[test]
fn a_snapshot_finds_every_change_and_keeps_the_bytes_before() {
    for is_repository in [true, false] {
        let folder = project(is_repository);
        let root = folder.path().join("project");
        let shadows = Shadows::new(folder.path().join("shadows"), crate::SnapshotLimits::default());
        let before = shadows.take(&root).unwrap();
        assert_eq!(shadows.changes(&root, &before).unwrap().0, [], "nothing changed");
        fs::write(root.join("a.txt"), "changed").unwrap();
        fs::remove_dir_all(root.join("src")).unwrap();
        fs::remove_file(root.join("link")).unwrap();
        fs::remove_file(root.join("untracked")).unwrap();
        fs::write(root.join("new file"), "n").unwrap();
        fs::write(root.join("ignored"), "not seen").unwrap();
        let (changes, blobs) = shadows.changes(&root, &before).unwrap();
        let names: Vec<String> =
            changes.iter().map(|c| c.path.strip_prefix(&root).unwrap().display().to_string()).collect();
        assert_eq!(names, ["a.txt", "link", "new file", "src/b.bin", "untracked"]);
        for change in changes.iter().rev() {
            let content = blobs.iter().find(|blob| change.before.etag() == Some(format!("sha256:{}", blob.sha256)));
            image::put(&change.path, &change.before, content.map(|blob| &*blob.bytes)).unwrap();
        }
        assert_eq!(fs::read(root.join("a.txt")).unwrap(), b"one\r\ntwo\n");
        assert_eq!(fs::read(root.join("src/b.bin")).unwrap(), [0, 159, 146, 150]);
        assert_eq!(fs::read_link(root.join("link")).unwrap(), Path::new("a.txt"));
        assert!(!root.join("new file").exists() && root.join("untracked").exists());
        assert_eq!(shadows.take(&root).unwrap(), before, "everything is as it was");
        if is_repository {
            git(&root, &["diff", "--quiet"]);
        }
    }
}

#[test]
fn an_image_keeps_bytes_mode_and_absence() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    assert_eq!(image::take(&path).0, FileState::Absent);
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    let (taken, blob) = image::take(&path);
    fs::remove_file(&path).unwrap();
    let blob = blob.unwrap();
    image::put(&path, &taken, Some(&blob.bytes)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"x");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o750);
    assert!(image::put(&path, &taken, Some(b"other")).is_err(), "other bytes are not what was kept");
    image::put(&path, &FileState::Absent, None).unwrap();
    assert!(!path.exists());
}
