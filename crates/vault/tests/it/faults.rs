//! Every write, sync and rename of the vault fails once, in three ways: a call that answered is done, one that failed left
//! each file as it was or as it was to become, and the same call works afterwards.

use crate::fault_plan::plan;
use crate::support::TestVault;
use serde_json::{Value, json};
use toolyard_protocol::ErrorCode;

const BEFORE: &str = "before\n";

/// One call, with the file it changes: its content before and after, where it exists.
struct Step {
    tool: &'static str,
    args: Value,
    file: &'static str,
    before: Option<&'static str>,
    after: Option<&'static str>,
}

fn steps() -> Vec<Step> {
    let write = |path: &str, content: &str| json!({"path": path, "content": content, "collisionStrategy": "overwrite"});
    vec![
        Step {
            tool: "vault.writeFile",
            args: write("a.md", "after\n"),
            file: "a.md",
            before: Some(BEFORE),
            after: Some("after\n"),
        },
        Step {
            tool: "vault.writeFile",
            args: write("new/folder/b.md", "new\n"),
            file: "new/folder/b.md",
            before: None,
            after: Some("new\n"),
        },
        Step {
            tool: "vault.rename",
            args: json!({"fromPath": "c.md", "toPath": "moved/c.md"}),
            file: "moved/c.md",
            before: None,
            after: Some(BEFORE),
        },
        Step { tool: "vault.delete", args: json!({"path": "d.md"}), file: "d.md", before: Some(BEFORE), after: None },
    ]
}

fn prepared() -> TestVault {
    let vault = TestVault::new();
    ["a.md", "c.md", "d.md"].iter().for_each(|name| vault.write(name, BEFORE));
    vault
}

fn content(vault: &TestVault, name: &str) -> Option<String> {
    vault.exists(name).then(|| vault.read(name))
}

#[tokio::test]
async fn whatever_fails_once_a_file_is_as_before_or_as_wanted() {
    let mut faults = 0;
    for step in steps() {
        let honest = prepared();
        let counted = toolyard_faults::arm(honest.dir.path(), None);
        honest.ok(step.tool, step.args.clone()).await;
        let operations = counted.operations();
        drop(counted);
        assert!(operations >= 2, "{}: {operations}", step.tool);
        assert_eq!(content(&honest, step.file).as_deref(), step.after);
        for (number, failure) in plan(operations) {
            let vault = prepared();
            let armed = toolyard_faults::arm(vault.dir.path(), Some((number, failure)));
            let answer = vault.call(step.tool, step.args.clone()).await;
            let failed = armed.failed().unwrap();
            drop(armed);
            faults += 1;
            let fault = format!("{}: {failure:?} at operation {number}, {failed}", step.tool);
            let found = content(&vault, step.file);
            match answer {
                Ok(_) => assert_eq!(found.as_deref(), step.after, "{fault}"),
                Err(refused) => {
                    let is_known = [step.before, step.after].contains(&found.as_deref());
                    assert!(is_known, "{fault}: half visible: {found:?}");
                    let codes = [ErrorCode::PreconditionFailed, ErrorCode::InternalError];
                    assert!(codes.contains(&refused.failure.code), "{fault}: {}", refused.failure);
                }
            }
            assert!(step.tool != "vault.rename" || found.is_some() || vault.exists("c.md"), "{fault}: lost");
            let again = vault.reopened();
            if found.as_deref() != step.after {
                again.ok(step.tool, step.args.clone()).await;
                assert_eq!(content(&again, step.file).as_deref(), step.after, "{fault}: it works afterwards");
            }
            assert_eq!(again.leftovers(), Vec::<String>::new(), "{fault}: nothing is left behind");
        }
    }
    assert!(faults > 10, "only {faults} faults");
}
