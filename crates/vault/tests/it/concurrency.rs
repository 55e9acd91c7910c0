//! Several calls at once, in this process and in others.

use crate::support::{TestVault, tool_call, under_heading};
use serde_json::json;
use std::{process::Command, sync::Arc, time::Duration};
use toolyard_protocol::ErrorCode;

const WRITERS: usize = 8;
const ROUNDS: usize = 5;

fn note() -> String {
    (0..WRITERS).map(|w| format!("# H{w}\n\n")).collect()
}

fn check_all_landed(text: &str) {
    for writer in 0..WRITERS {
        for round in 0..ROUNDS {
            assert_eq!(
                text.matches(&format!("writer {writer} round {round}\n")).count(),
                1,
                "{writer}/{round} in\n{text}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_patches_all_land() {
    let vault = Arc::new(TestVault::new());
    vault.write("n.md", note());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let vault = vault.clone();
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let patch = under_heading(&[&format!("H{writer}")], &format!("writer {writer} round {round}"));
                    vault.ok("vault.patchFile", json!({"path":"n.md","patch":patch})).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    check_all_landed(&vault.read("n.md"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_do_not_lose_each_others_edits() {
    let vault = TestVault::new();
    vault.write("n.md", note());
    let mut children: Vec<_> = (0..WRITERS)
        .map(|writer| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "concurrency::child_that_patches", "--ignored"])
                .env("VAULT_DIR", vault.dir.path())
                .env("LOCK_DIR", vault.locks.path())
                .env("WRITER", writer.to_string())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    check_all_landed(&vault.read("n.md"));
}

#[test]
#[ignore = "run by processes_do_not_lose_each_others_edits in processes of its own"]
fn child_that_patches() {
    let (Ok(dir), Ok(locks)) = (std::env::var("VAULT_DIR"), std::env::var("LOCK_DIR")) else { return };
    let writer = std::env::var("WRITER").unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let vault = TestVault::at(dir.as_ref(), locks.as_ref());
        for round in 0..ROUNDS {
            let patch = under_heading(&[&format!("H{writer}")], &format!("writer {writer} round {round}"));
            vault.ok("vault.patchFile", json!({"path":"n.md","patch":patch})).await;
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn only_one_of_many_creates_wins_and_unique_names_are_unique() {
    let vault = Arc::new(TestVault::new());
    let create = |strategy: &'static str| {
        let vault = vault.clone();
        tokio::spawn(async move {
            vault.call("vault.createFile", json!({"path":"d/n.md","content":"x","collisionStrategy":strategy})).await
        })
    };
    let mut wins = 0;
    for attempt in (0..6).map(|_| create("error")).collect::<Vec<_>>() {
        match attempt.await.unwrap() {
            Ok(_) => wins += 1,
            Err(failed) => assert_eq!(failed.failure.code, ErrorCode::Conflict),
        }
    }
    assert_eq!(wins, 1);
    for attempt in (0..6).map(|_| create("create-unique")).collect::<Vec<_>>() {
        attempt.await.unwrap().unwrap();
    }
    assert_eq!(std::fs::read_dir(vault.path("d")).unwrap().count(), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn renames_and_edits_mix_without_deadlock_or_loss() {
    let vault = Arc::new(TestVault::new());
    vault.write("a.md", "# A\n");
    for i in 0..5 {
        vault.write(&format!("n{i}.md"), "# N\n[[a]]\n");
    }
    let editor = |i: usize| {
        let vault = vault.clone();
        tokio::spawn(async move {
            for round in 0..4 {
                let patch = under_heading(&["N"], &format!("round {round}"));
                vault.ok("vault.patchFile", json!({"path":format!("n{i}.md"),"patch":patch})).await;
            }
        })
    };
    let editors: Vec<_> = (0..5).map(editor).collect();
    let mover = vault.clone();
    let mover = tokio::spawn(async move {
        for (from, to) in [("a.md", "b.md"), ("b.md", "c.md"), ("c.md", "d.md")] {
            mover.ok("vault.rename", json!({"fromPath":from,"toPath":to})).await;
        }
    });
    let all = async {
        for editor in editors {
            editor.await.unwrap();
        }
        mover.await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(120), all).await.expect("no deadlock");
    for i in 0..5 {
        let text = vault.read(&format!("n{i}.md"));
        assert!(text.contains("[[d]]") && (0..4).all(|r| text.contains(&format!("round {r}"))), "{text}");
    }
}

#[tokio::test]
async fn a_cancelled_call_changes_nothing() {
    let vault = TestVault::new();
    vault.write("n.md", "x");
    let call = tool_call("vault.delete", json!({"path":"n.md"}));
    let prepared = vault.prepare(&call).await.unwrap();
    vault.cancel.cancel();
    let failed = vault.provider.execute(&vault.context(), &call, prepared).await.unwrap_err();
    assert_eq!(failed.failure.code, ErrorCode::Cancelled);
    assert!(failed.effects.is_empty() && vault.exists("n.md"));
    vault.fails("vault.searchText", json!({"query":"x"}), ErrorCode::Cancelled).await;
}

#[tokio::test]
async fn a_change_between_prepare_and_execute_is_noticed() {
    let vault = TestVault::new();
    vault.write("n.md", "a");
    for (tool, args) in [
        ("vault.writeFile", json!({"path":"n.md","content":"b","mode":"append"})),
        ("vault.delete", json!({"path":"n.md","trash":false})),
    ] {
        vault.write("n.md", "a");
        let call = tool_call(tool, args);
        let prepared = vault.prepare(&call).await.unwrap();
        vault.write("n.md", "typed meanwhile");
        let failed = vault.provider.execute(&vault.context(), &call, prepared).await.unwrap_err();
        assert_eq!(failed.failure.code, ErrorCode::Conflict, "{tool}");
        assert_eq!(vault.read("n.md"), "typed meanwhile");
    }
    let call = tool_call("vault.createFile", json!({"path":"new.md","content":"mine"}));
    let prepared = vault.prepare(&call).await.unwrap();
    vault.write("new.md", "theirs");
    let failed = vault.provider.execute(&vault.context(), &call, prepared).await.unwrap_err();
    assert_eq!(failed.failure.code, ErrorCode::Conflict);
    assert_eq!((vault.read("new.md"), vault.leftovers().len()), ("theirs".into(), 0));
}
