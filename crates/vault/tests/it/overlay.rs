//! Dry runs: later calls see earlier ones, predictions are what then happens, the disk stays as it is.

use crate::support::{TestVault, under_heading};
use serde_json::{Value, json};
use toolyard_protocol::{Effects, ErrorCode};

fn setup(vault: &TestVault) {
    vault.write("a.md", "# A\n[[b]]\n");
    vault.write("b.md", "old b\n");
    vault.write("dir/c.md", "c [a](../a.md)\n");
    vault.write("dir/d.md", "d\n");
}

fn plan() -> Vec<(&'static str, Value)> {
    vec![
        ("vault.createFile", json!({"path":"new/n.md","content":"# N\n","frontmatter":{"k":"v"}})),
        ("vault.patchFile", json!({"path":"new/n.md","patch":under_heading(&["N"], "line")})),
        ("vault.rename", json!({"fromPath":"b.md","toPath":"dir/B2.md"})),
        ("vault.patchFile", json!({"path":"a.md","patch":under_heading(&["A"], "[[B2]] again")})),
        ("vault.delete", json!({"path":"dir/d.md"})),
        ("vault.createFile", json!({"path":"dir/d.md","content":"d reborn\n"})),
        ("vault.rename", json!({"fromPath":"dir","toPath":"moved"})),
        ("vault.restoreFile", json!({"path":"d-old.md","trashPath":".trash/dir/d.md"})),
        ("vault.writeFile", json!({"path":"moved/c.md","content":"tail","mode":"append"})),
        ("vault.delete", json!({"path":"new","recursive":true,"trash":false})),
        ("vault.ensureFolder", json!({"path":"x/y"})),
    ]
}

#[tokio::test]
async fn predictions_are_what_then_happens() {
    let vault = TestVault::new();
    setup(&vault);
    let untouched = vault.snapshot();
    let (twin, diff) = vault.previewed();
    let mut predicted: Vec<(Effects, Value)> = Vec::new();
    for (tool, args) in plan() {
        let done = twin.ok(tool, args).await;
        predicted.push((done.output.effects.clone(), done.data()));
    }
    let listed_there = twin.ok("vault.listFiles", json!({"recursive":true,"withEtags":true})).await.data();
    let diff = diff.diff();
    assert_eq!(vault.snapshot(), untouched, "a dry run changes nothing");

    for ((tool, args), (effects, data)) in plan().into_iter().zip(predicted) {
        let done = vault.ok(tool, args.clone()).await;
        assert_eq!(done.output.effects, effects, "{tool} {args}");
        for (key, value) in data.as_object().unwrap() {
            if !key.starts_with("mtime") {
                assert_eq!(&done.output.data[key], value, "{tool} {args} {key}");
            }
        }
    }
    let listed_here = vault.ok("vault.listFiles", json!({"recursive":true,"withEtags":true})).await.data();
    let names = |list: &Value| -> Vec<(String, Value)> {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|i| (i["path"].as_str().unwrap().to_owned(), i["etag"].clone()))
            .collect()
    };
    assert_eq!(names(&listed_there), names(&listed_here));
    for part in [
        "diff --git a/a.md b/a.md\n--- a/a.md\n+++ b/a.md\n@@ -1,2 +1,3 @@\n # A\n-[[b]]\n+[[B2]]\n+[[B2]] again\n",
        "diff --git a/b.md b/moved/B2.md\nrename from b.md\nrename to moved/B2.md\n",
        "diff --git a/dir/c.md b/moved/c.md\nrename from dir/c.md\nrename to moved/c.md\n",
        "new folder x\n",
        "deleted folder dir\n",
    ] {
        assert!(diff.contains(part), "{part:?} is not in\n{diff}");
    }
    assert!(!diff.contains("new/n.md"), "what came and went again does not show:\n{diff}");
}

#[tokio::test]
async fn reads_and_searches_see_the_overlay() {
    let vault = TestVault::new();
    setup(&vault);
    let (twin, _) = vault.previewed();
    twin.ok("vault.writeFile", json!({"path":"b.md","content":"needle\n","collisionStrategy":"overwrite"})).await;
    twin.ok("vault.delete", json!({"path":"dir/d.md"})).await;
    assert_eq!(twin.ok("vault.readFile", json!({"path":"b.md"})).await.output.data["content"], "needle\n");
    assert_eq!(
        twin.ok("vault.searchText", json!({"query":"needle"})).await.output.data["matches"].as_array().unwrap().len(),
        1
    );
    twin.fails("vault.readFile", json!({"path":"dir/d.md"}), ErrorCode::NotFound).await;
    twin.fails("vault.createFile", json!({"path":"b.md","content":""}), ErrorCode::Conflict).await;
    twin.fails("vault.rename", json!({"fromPath":"a.md","toPath":"b.md"}), ErrorCode::Conflict).await;
    assert_eq!(vault.read("b.md"), "old b\n");
    let (fresh, diff) = vault.previewed();
    assert_eq!(fresh.ok("vault.readFile", json!({"path":"b.md"})).await.output.data["content"], "old b\n");
    assert_eq!(diff.diff(), "");
}

#[tokio::test]
async fn a_single_call_can_be_tried_dry() {
    let vault = TestVault::new();
    setup(&vault);
    let before = vault.snapshot();
    for (tool, mut args) in plan().into_iter().filter(|(_, args)| {
        !args.to_string().contains("new/n.md\",\"patch")
            && !args.to_string().contains("moved/c.md")
            && !args.to_string().contains(".trash")
    }) {
        args["dryRun"] = true.into();
        match vault.call(tool, args.clone()).await {
            Ok(done) => {
                assert!(done.output.effects.is_empty() && done.intent.is_none(), "{tool}");
                assert!(done.message().starts_with("Dry run"), "{}", done.message());
            }
            Err(failed) => assert!(
                matches!(failed.failure.code, ErrorCode::Conflict | ErrorCode::NotFound),
                "{tool} {args}: {}",
                failed.failure
            ),
        }
    }
    assert_eq!(vault.snapshot(), before);
    vault.fails("commands.run", json!({"id":"x","dryRun":true}), ErrorCode::ValidationError).await;
}

#[tokio::test]
async fn what_cannot_be_predicted_says_so() {
    let vault = TestVault::new();
    let (twin, _) = vault.previewed();
    twin.fails("commands.run", json!({"id":"x"}), ErrorCode::PreconditionFailed).await;
    twin.fails("editor.insertAtCursor", json!({"text":"x"}), ErrorCode::PreconditionFailed).await;
}

/// Random calls on the twin, then for real: the same answers, the same effects, the same failures.
#[tokio::test]
async fn random_plans_are_predicted() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |bound: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % bound
    };
    let names = ["a.md", "b.md", "A.md", "dir/a.md", "dir/b.md", "dir", "x/y", "x/y/c.md", "x"];
    for round in 0..20 {
        let vault = TestVault::new();
        setup(&vault);
        let untouched = vault.snapshot();
        let calls: Vec<(&str, Value)> = (0..10)
            .map(|i| {
                let mut name = || names[next(names.len() as u64) as usize];
                let (one, two) = (name(), name());
                match next(8) {
                    0 => ("vault.createFile", json!({"path":one,"content":format!("# A\n{i} [[a]] [x](b.md)\n"),"collisionStrategy":"create-unique"})),
                    1 => ("vault.createFile", json!({"path":one,"content":format!("{i}")})),
                    2 => ("vault.writeFile", json!({"path":one,"content":format!("{i} [[b]]"),"mode":"append"})),
                    3 => ("vault.delete", json!({"path":one,"recursive":true})),
                    4 => ("vault.delete", json!({"path":one,"recursive":true,"trash":false,"requireExists":false})),
                    5 => ("vault.rename", json!({"fromPath":one,"toPath":two})),
                    6 => ("vault.rename", json!({"fromPath":one,"toPath":two,"collisionStrategy":"overwrite"})),
                    _ => ("vault.ensureFolder", json!({"path":one})),
                }
            })
            .collect();
        let (twin, _) = vault.previewed();
        let mut predictions = Vec::new();
        for (tool, args) in &calls {
            predictions.push(twin.call(tool, args.clone()).await);
        }
        assert_eq!(vault.snapshot(), untouched);
        for ((tool, args), predicted) in calls.iter().zip(predictions) {
            match (predicted, vault.call(tool, args.clone()).await) {
                (Ok(predicted), Ok(observed)) => {
                    assert_eq!(
                        predicted.output.effects, observed.output.effects,
                        "round {round}: {tool} {args} of {calls:?}"
                    );
                    assert_eq!(predicted.output.user_message, observed.output.user_message);
                }
                (Err(predicted), Err(observed)) => {
                    assert_eq!(predicted.failure, observed.failure, "round {round}: {tool} {args} of {calls:?}");
                }
                (predicted, observed) => panic!(
                    "round {round}: {tool} {args} of {calls:?}: predicted {:?}, observed {:?}",
                    predicted.map(|d| d.output).map_err(|f| f.failure),
                    observed.map(|d| d.output).map_err(|f| f.failure)
                ),
            }
        }
        assert_eq!(vault.leftovers(), Vec::<String>::new());
    }
}
