//! Every write can be taken back to the same bytes, and is not taken back over somebody else's work.

use crate::support::{Done, TestVault, under_heading};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use toolyard_engine::InverseCall;
use toolyard_protocol::ErrorCode;

fn inverse(vault: &TestVault, done: &Done) -> Vec<InverseCall> {
    vault.provider.inverse(&done.call, &done.result(), done.intent.as_ref()).unwrap()
}

async fn undo(vault: &TestVault, done: &Done) {
    for call in inverse(vault, done) {
        assert!(call.preview.starts_with(|c: char| c.is_uppercase()), "{}", call.preview);
        vault.ok(&call.tool, Value::Object(call.args)).await;
    }
}

fn visible(vault: &TestVault) -> Vec<(String, Option<Vec<u8>>)> {
    vault.snapshot().into_iter().filter(|(name, _)| !name.starts_with(".trash")).collect()
}

#[tokio::test]
async fn every_write_can_be_undone() {
    for (tool, args) in [
        ("vault.ensureFolder", json!({"path":"new/deep"})),
        ("vault.createFile", json!({"path":"new/deep/n.md","content":"x"})),
        ("vault.createFile", json!({"path":"n.md","content":"x","collisionStrategy":"create-unique"})),
        ("vault.createFile", json!({"path":"n.md","content":"x","collisionStrategy":"overwrite"})),
        ("vault.writeFile", json!({"path":"n.md","content":"x","mode":"append"})),
        ("vault.patchFile", json!({"path":"n.md","patch":under_heading(&["A"], "x")})),
        ("vault.delete", json!({"path":"n.md"})),
        ("vault.delete", json!({"path":"n.md","trash":false})),
        ("vault.delete", json!({"path":"dir","recursive":true})),
        ("vault.delete", json!({"path":"dir","recursive":true,"trash":false})),
        ("vault.delete", json!({"path":"empty"})),
        ("vault.rename", json!({"fromPath":"n.md","toPath":"q/r/m.md"})),
        ("vault.rename", json!({"fromPath":"dir","toPath":"moved/dir"})),
        ("vault.rename", json!({"fromPath":"n.md","toPath":"link.md","collisionStrategy":"overwrite"})),
        ("vault.restoreFile", json!({"path":"back.md","trashPath":".trash/gone.md"})),
    ] {
        let vault = TestVault::new();
        vault.write("n.md", "# A\r\n[d](dir/a.md)\r\n");
        vault.write("link.md", "[[n]] [[dir/a]] [x](n.md)\n");
        vault.write("dir/a.md", "a [[n]]");
        vault.write("dir/sub/b.md", "b [up](../a.md)");
        vault.write(".trash/gone.md", "gone");
        std::fs::create_dir(vault.path("empty")).unwrap();
        let before = visible(&vault);
        let done = vault.ok(tool, args.clone()).await;
        assert_ne!(visible(&vault), before, "{tool} {args}");
        assert!(!done.output.effects.is_empty());
        undo(&vault, &done).await;
        let names = |list: &[(String, Option<Vec<u8>>)]| list.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>();
        assert_eq!(names(&visible(&vault)), names(&before), "{tool} {args}");
        assert!(visible(&vault) == before, "{tool} {args}: content differs");
    }
}

#[tokio::test]
async fn undo_stops_at_somebody_elses_work() {
    let vault = TestVault::new();
    vault.write("n.md", "old");
    let done =
        vault.ok("vault.writeFile", json!({"path":"n.md","content":"new","collisionStrategy":"overwrite"})).await;
    vault.write("n.md", "edited since");
    let calls = inverse(&vault, &done);
    assert_eq!(calls.len(), 1);
    let failure = vault.fails(&calls[0].tool, Value::Object(calls[0].args.clone()), ErrorCode::Conflict).await;
    assert!(failure.details.unwrap().contains_key("currentEtag"));
    assert_eq!(vault.read("n.md"), "edited since");

    let created = vault.ok("vault.createFile", json!({"path":"f/c.md","content":"x"})).await;
    vault.write("f/other.md", "mine");
    undo(&vault, &created).await;
    assert!(vault.exists("f/other.md") && !vault.exists("f/c.md"), "a folder with something else in it stays");
}

#[tokio::test]
async fn nothing_done_is_nothing_to_undo_and_lost_records_are_said() {
    let vault = TestVault::new();
    vault.write("n.md", "x");
    let same = vault.ok("vault.writeFile", json!({"path":"n.md","content":"x","collisionStrategy":"overwrite"})).await;
    assert!(inverse(&vault, &same).is_empty());
    // A file whose name cannot be kept must not be promised back.
    vault.write("odd/n.md", "x");
    std::fs::write(vault.path("odd").join(std::ffi::OsStr::from_bytes(b"\xff")), "x").unwrap();
    let odd = vault.ok("vault.delete", json!({"path":"odd","recursive":true,"trash":false})).await;
    let failure = vault.provider.inverse(&odd.call, &odd.result(), odd.intent.as_ref()).unwrap_err();
    assert_eq!(failure.code, ErrorCode::PreconditionFailed);
    let done = vault.ok("vault.delete", json!({"path":"n.md"})).await;
    let failure = vault.provider.inverse(&done.call, &done.result(), None).unwrap_err();
    assert_eq!(failure.code, ErrorCode::PreconditionFailed);
}

/// Random calls, then all of them taken back, last first: every visible byte is as it was.
#[tokio::test]
async fn random_runs_can_be_undone() {
    let mut seed = 0x0dd_ba11_5eed_u64;
    let mut next = move |bound: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % bound
    };
    let names = ["a.md", "b.md", "dir/a.md", "dir/b.md", "dir", "x/y", "x/y/c.md", "x", "q/r.md"];
    let mut undone = 0;
    for round in 0..15 {
        let vault = TestVault::new();
        vault.write("a.md", "# A\n[[b]] [c](dir/a.md)\n");
        vault.write("b.md", "[[a|x]]\r\n");
        vault.write("dir/a.md", "[up](../a.md) [[dir/b]]");
        vault.write("dir/b.md", "");
        let before = visible(&vault);
        let mut run = Vec::new();
        for i in 0..8 {
            let (one, two) = (names[next(9) as usize], names[next(9) as usize]);
            let (tool, args) = match next(6) {
                0 => (
                    "vault.createFile",
                    json!({"path":one,"content":format!("{i} [[a]]"),"collisionStrategy":"create-unique"}),
                ),
                1 => ("vault.writeFile", json!({"path":one,"content":format!("{i}"),"mode":"append"})),
                2 => ("vault.delete", json!({"path":one,"recursive":true})),
                3 => ("vault.delete", json!({"path":one,"recursive":true,"trash":false})),
                4 => ("vault.rename", json!({"fromPath":one,"toPath":two,"collisionStrategy":"overwrite"})),
                _ => ("vault.ensureFolder", json!({"path":one})),
            };
            if let Ok(done) = vault.call(tool, args).await {
                run.push(done);
            }
        }
        undone += run.len();
        for done in run.iter().rev() {
            undo(&vault, done).await;
        }
        assert_eq!(visible(&vault), before, "round {round}");
    }
    assert!(undone > 40, "the runs did something: {undone}");
}
