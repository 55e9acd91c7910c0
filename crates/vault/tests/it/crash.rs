//! What happens when the process dies between `prepare` and the end of `execute`.
//!
//! A crash after k steps is made by hand: prepare the call, keep its staged files, let go of it (which cleans up and
//! unlocks, as a death does not), put the staged files back, do the first k steps as the commit would, then open the
//! folder anew and ask `reconcile`.

use crate::support::{TestVault, tool_call, under_heading};
use serde_json::{Value, json};
use std::process::Command;
use toolyard_engine::{Intent, Reconciled};
use toolyard_protocol::{ErrorCode, ToolCall};

struct Crashed {
    call: ToolCall,
    intent: Intent,
}

fn steps(intent: &Intent) -> Vec<Value> {
    intent.state["steps"].as_array().unwrap().clone()
}

async fn crash_after(vault: &TestVault, call: ToolCall, done: usize) -> Crashed {
    let prepared = vault.prepare(&call).await.unwrap();
    // The intent must survive being written down.
    let intent: Intent =
        serde_json::from_str(&serde_json::to_string(&prepared.intent.clone().unwrap()).unwrap()).unwrap();
    let staged: Vec<(String, Vec<u8>)> = steps(&intent)
        .iter()
        .filter_map(|s| s["tmp"].as_str())
        .map(|tmp| (tmp.to_owned(), std::fs::read(vault.path(tmp)).unwrap()))
        .collect();
    drop(prepared);
    assert_eq!(vault.leftovers(), Vec::<String>::new(), "an abandoned call leaves nothing");
    for (tmp, bytes) in &staged {
        std::fs::write(vault.path(tmp), bytes).unwrap();
    }
    for step in steps(&intent).iter().take(done) {
        let path = |key: &str| vault.path(step[key].as_str().unwrap());
        match step["do"].as_str().unwrap() {
            "makeFolder" => std::fs::create_dir(path("path")).unwrap(),
            "put" => std::fs::rename(path("tmp"), path("path")).unwrap(),
            "move" => std::fs::rename(path("from"), path("to")).unwrap(),
            "remove" => std::fs::remove_file(path("path")).unwrap(),
            other => panic!("{other}"),
        }
    }
    Crashed { call, intent }
}

async fn reconcile(vault: &TestVault, crashed: &Crashed) -> Reconciled {
    let after = vault.reopened();
    let answer = after.provider.reconcile(&after.context(), &crashed.call, &crashed.intent).await.unwrap();
    assert_eq!(vault.leftovers(), Vec::<String>::new(), "reconcile cleans up");
    answer
}

fn visible(vault: &TestVault) -> Vec<(String, Option<Vec<u8>>)> {
    vault.snapshot().into_iter().filter(|(name, _)| !name.starts_with(".trash")).collect()
}

#[tokio::test]
async fn an_append_happens_exactly_once() {
    for done in [0, 1] {
        let vault = TestVault::new();
        vault.write("n.md", "a\n");
        let crashed = crash_after(
            &vault,
            tool_call("vault.writeFile", json!({"path":"n.md","content":"b","mode":"append"})),
            done,
        )
        .await;
        match (done, reconcile(&vault, &crashed).await) {
            (0, Reconciled::NotDone) => {
                vault.unchecked(crashed.call).await.unwrap();
            }
            (1, Reconciled::Done(output)) => {
                assert_eq!(output.effects.modified.len(), 1);
                assert_eq!(output.data["etag"], toolyard_vault::etag(b"a\nb\n"));
                assert!(output.data["mtimeMs"].is_i64());
            }
            (_, other) => panic!("{other:?}"),
        }
        assert_eq!(vault.read("n.md"), "a\nb\n");
    }
}

#[tokio::test]
async fn somebody_elses_content_is_a_conflict() {
    let vault = TestVault::new();
    vault.write("n.md", "# A\n");
    let call = tool_call("vault.patchFile", json!({"path":"n.md","patch":under_heading(&["A"], "x")}));
    let crashed = crash_after(&vault, call, 0).await;
    vault.write("n.md", "# A\nsomebody else\n");
    match reconcile(&vault, &crashed).await {
        Reconciled::Conflict(failed) => {
            assert_eq!(failed.failure.code, ErrorCode::Conflict);
            assert!(failed.failure.details.unwrap().contains_key("currentEtag"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(vault.read("n.md"), "# A\nsomebody else\n");
}

/// However far a rename with rewritten notes came, the end is the same.
#[tokio::test]
async fn a_half_done_rename_is_completed() {
    let setup = || {
        let vault = TestVault::new();
        vault.write("a/Old.md", "me [m](M.md) [[Old]]\n");
        vault.write("a/M.md", "[[Old]]\n");
        vault.write("x.md", "[[a/Old|alias]]\n");
        vault
    };
    let call = || tool_call("vault.rename", json!({"fromPath":"a/Old.md","toPath":"b/c/New.md"}));
    let whole = setup();
    let expected_output = whole.unchecked(call()).await.unwrap();
    let expected = visible(&whole);
    let total = steps(&expected_output.intent.unwrap()).len();
    assert_eq!(total, 6, "two folders, the move, three notes");
    for done in 0..=total {
        let vault = setup();
        let crashed = crash_after(&vault, call(), done).await;
        match reconcile(&vault, &crashed).await {
            Reconciled::NotDone => {
                assert_eq!(done, 0);
                vault.unchecked(crashed.call).await.unwrap();
            }
            Reconciled::Done(output) => {
                assert!(done > 0);
                assert_eq!(output.effects, expected_output.output.effects, "after {done}");
                assert_eq!(output.data["etag"], expected_output.output.data["etag"]);
            }
            Reconciled::Conflict(failed) => panic!("after {done}: {}", failed.failure),
        }
        assert_eq!(visible(&vault), expected, "after {done}");
    }
}

#[toolyard_shows::shows("002-3.2-22")]
#[tokio::test]
async fn creates_trashes_restores_and_removals_are_recognised() {
    type Setup = fn(&TestVault);
    let cases: Vec<(Setup, &str, Value)> = vec![
        (|_| {}, "vault.createFile", json!({"path":"d/n.md","content":"x"})),
        (|v| v.write("n.md", "x"), "vault.delete", json!({"path":"n.md"})),
        (|v| v.write("n.md", "x"), "vault.delete", json!({"path":"n.md","trash":false})),
        (|v| v.write("d/n.md", "x"), "vault.delete", json!({"path":"d","recursive":true})),
        (|v| v.write(".trash/n.md", "x"), "vault.restoreFile", json!({"path":"q/n.md","trashPath":".trash/n.md"})),
        (|v| v.write("d/n.md", "x"), "vault.rename", json!({"fromPath":"d","toPath":"D"})),
    ];
    for (setup, tool, args) in cases {
        let whole = TestVault::new();
        setup(&whole);
        let done = whole.unchecked(tool_call(tool, args.clone())).await.unwrap();
        let total = steps(done.intent.as_ref().unwrap()).len();
        for k in 0..=total {
            let vault = TestVault::new();
            setup(&vault);
            let crashed = crash_after(&vault, tool_call(tool, args.clone()), k).await;
            match reconcile(&vault, &crashed).await {
                Reconciled::NotDone => {
                    vault.unchecked(crashed.call).await.unwrap();
                }
                Reconciled::Done(output) => assert_eq!(output.effects, done.output.effects, "{tool} {k}"),
                Reconciled::Conflict(failed) => panic!("{tool} {args} after {k}: {}", failed.failure),
            }
            assert_eq!(vault.snapshot(), whole.snapshot(), "{tool} {args} after {k}");
        }
    }
}

#[tokio::test]
async fn a_call_that_changed_nothing_reconciles_as_done() {
    let vault = TestVault::new();
    vault.write("n.md", "same");
    let call = tool_call("vault.writeFile", json!({"path":"n.md","content":"same","collisionStrategy":"overwrite"}));
    let crashed = crash_after(&vault, call, 0).await;
    match reconcile(&vault, &crashed).await {
        Reconciled::Done(output) => assert!(output.effects.is_empty()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_intent_that_cannot_be_read_is_an_error_not_a_guess() {
    let vault = TestVault::new();
    let call = tool_call("vault.delete", json!({"path":"n.md"}));
    for state in [
        json!({}),
        json!({"version":99,"steps":[],"data":{},"message":""}),
        json!({"version":1,"steps":[{"do":"put","path":"../x","after":"0","tmp":"t"}],"data":{},"message":""}),
    ] {
        let intent = Intent { state: state.as_object().unwrap().clone(), ..Intent::default() };
        let failed = vault.provider.reconcile(&vault.context(), &call, &intent).await.unwrap_err();
        assert_eq!(failed.failure.code, ErrorCode::RecordCorrupted, "{state}");
    }
}

/// A real death: a child prepares an append, writes its intent down, and is killed.
#[tokio::test]
async fn a_killed_process_leaves_what_reconcile_needs_and_nothing_locked() {
    let vault = TestVault::new();
    vault.write("n.md", "a\n");
    let intent_file = vault.locks.path().join("intent.json");
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_that_dies", "--ignored", "--nocapture"])
        .env("VAULT_DIR", vault.dir.path())
        .env("LOCK_DIR", vault.locks.path())
        .env("INTENT_FILE", &intent_file)
        .output()
        .unwrap();
    assert!(!status.status.success(), "the child must have died");
    assert_eq!(vault.leftovers().len(), 1, "its staged file is still there");
    let call = tool_call("vault.writeFile", json!({"path":"n.md","content":"b","mode":"append"}));
    let intent: Intent = serde_json::from_slice(&std::fs::read(&intent_file).unwrap()).unwrap();
    let crashed = Crashed { call, intent };
    assert!(matches!(reconcile(&vault, &crashed).await, Reconciled::NotDone));
    vault.unchecked(crashed.call).await.unwrap();
    assert_eq!(vault.read("n.md"), "a\nb\n");
}

#[test]
#[ignore = "run by a_killed_process_leaves_what_reconcile_needs_and_nothing_locked in a process of its own"]
fn child_that_dies() {
    let (Ok(dir), Ok(locks)) = (std::env::var("VAULT_DIR"), std::env::var("LOCK_DIR")) else { return };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let vault = TestVault::at(dir.as_ref(), locks.as_ref());
        let call = tool_call("vault.writeFile", json!({"path":"n.md","content":"b","mode":"append"}));
        let prepared = vault.prepare(&call).await.unwrap();
        let intent = serde_json::to_vec(&prepared.intent).unwrap();
        std::fs::write(std::env::var("INTENT_FILE").unwrap(), intent).unwrap();
        std::process::abort();
    });
}

#[tokio::test]
async fn staged_files_of_the_dead_are_swept_by_their_journal_and_nothing_else_is() {
    let vault = TestVault::new();
    let running = tool_call("vault.createFile", json!({"path":"n.md","content":"x"}));
    let prepared = vault.prepare(&running).await.unwrap();
    let folder = std::fs::read_dir(vault.locks.path()).unwrap().flatten().next().unwrap().path();
    // Process ids end at 4194304, so this one never runs; the second has this process's id but started at another time.
    vault.write("a/.toolyard-tmp-99999999.1-call-0", "x");
    vault.write(&format!(".toolyard-tmp-{}.1-call-0", std::process::id()), "x");
    vault.write(".toolyard-tmp-99999999.1-call-1", "the user's own file in the middle of a move");
    vault.write("innocent.md", "x");
    std::fs::write(folder.join("staged.99999999.1"), "a/.toolyard-tmp-99999999.1-call-0\ninnocent.md\n../x\ngone")
        .unwrap();
    std::fs::write(
        folder.join(format!("staged.{}.1", std::process::id())),
        format!(".toolyard-tmp-{}.1-call-0\n", std::process::id()),
    )
    .unwrap();
    let other = vault.reopened();
    assert_eq!(vault.leftovers().len(), 4, "opening removes nothing: reconcile may need it");
    let opened =
        toolyard_vault::Vault::open(vault.dir.path(), toolyard_vault::VaultOptions::new(vault.locks.path())).unwrap();
    assert!(opened.has_leftovers());
    assert_eq!(opened.sweep_leftovers(), 2);
    assert!(!opened.has_leftovers());
    drop(other);
    assert_eq!(vault.leftovers().len(), 2, "what runs, and what holds the user's own file, stays");
    assert_eq!(vault.read("innocent.md"), "x");
    vault.provider.execute(&vault.context(), &running, prepared).await.unwrap();
    assert_eq!(vault.read("n.md"), "x");
}
