//! Backup, restore, retention, a full disk, and a process that dies beside a running Toolyard.

use crate::harness::{LocalConnection, PATIENCE, Place, until};
use serde_json::{Value, json};
use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

fn at(home: &Path, args: &[&str]) -> (i32, Value) {
    let output = Place::command_at(home, args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let answer = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap_or(-1), answer)
}

fn restored_at(home: &Path, backup: &str) -> (i32, Value) {
    at(home, &["restore", backup, "--json"])
}

#[test]
fn a_backup_taken_while_it_runs_is_restored_whole() {
    let place = Place::new();
    let server = place.up();
    let mut local = LocalConnection::new(&place);
    for n in 0..20 {
        let made = local.call("vault.createFile", &json!({"path": format!("Notes/{n}.md"), "content": "x"}));
        assert_eq!(made["ok"], true, "{made}");
    }
    let stored = local.call("memory_store", &json!({"text": "The kettle is on the third shelf"}));
    assert_eq!(stored["ok"], true, "{stored}");
    let out = place.home.parent().unwrap().join("backup");
    let out = out.display().to_string();
    let report = place.run(&["backup", "--out", &out, "--json"]).json();
    assert!(report["files"].as_u64().unwrap() >= 3 && report["keys"] == true, "{report}");
    assert!(place.run(&["backup", "--out", &out, "--json"]).code != 0, "a backup is never written over another");
    server.stop();

    let there = place.home.parent().unwrap().join("restored");
    let (code, report) = restored_at(&there, &out);
    assert_eq!(code, 0, "{report}");
    let (code, report) = restored_at(&there, &out);
    assert!(code != 0, "only into an empty home: {report}");
    let runs = |home: &Path| at(home, &["runs", "list", "--limit", "100", "--json"]).1["runs"].clone();
    let (mine, theirs) = (runs(&place.home), runs(&there));
    assert!(mine.as_array().unwrap().len() >= 21);
    assert_eq!(mine, theirs);
    for args in [&["runs", "verify", "--json"][..], &["store", "check", "--json"]] {
        let (code, answer) = at(&there, args);
        assert_eq!((code, &answer["ok"]), (0, &json!(true)), "{args:?}: {answer}");
    }
    let recalled = at(&there, &["call", "memory_recall", "--args", "{\"query\": \"kettle\"}", "--json"]).1;
    assert!(recalled.to_string().contains("third shelf"), "{recalled}");

    // A changed or missing file is detected before anything is written.
    std::fs::write(Path::new(&out).join("store/toolyard.db"), b"no database").unwrap();
    let elsewhere = place.home.parent().unwrap().join("elsewhere");
    let (code, failure) = restored_at(&elsewhere, &out);
    assert!(code != 0 && failure.to_string().contains("RECORD_CORRUPTED"), "{failure}");
    assert!(!elsewhere.exists());
}

#[test]
fn a_backup_or_a_restore_that_was_killed_begins_anew_and_is_not_used_before() {
    let place = Place::new();
    let made = place.call("vault.createFile", json!({"path": "n.md", "content": "x"}));
    assert_eq!(made["status"], "ok", "{made}");
    let beside = |name: &str| place.home.with_file_name(name);
    let (out, there) = (beside("backup"), beside("restored"));
    let backup = |out: &Path| place.run(&["backup", "--out", out.to_str().unwrap(), "--json"]);
    let restore = |out: &Path| restored_at(&there, out.to_str().unwrap());
    let code = |failure: &Value| failure["error"]["code"].as_str().unwrap_or_default().to_owned();
    // What a killed backup leaves: the mark, and some files.
    std::fs::create_dir_all(out.join("store")).unwrap();
    std::fs::write(out.join("backup.unfinished"), "").unwrap();
    std::fs::write(out.join("store/toolyard.db"), "half").unwrap();
    assert_eq!(code(&restore(&out).1), "PRECONDITION_FAILED");
    let report = backup(&out);
    assert_eq!(report.code, 0, "{report:?}");
    assert!(!out.join("backup.unfinished").exists());
    // The same of a restore: no command works in such a home.
    std::fs::create_dir_all(there.join("state")).unwrap();
    std::fs::write(there.join("restore.unfinished"), "").unwrap();
    std::fs::copy(out.join("store/toolyard.db"), there.join("state/toolyard.db")).unwrap();
    let (exit, failure) = at(&there, &["runs", "list", "--json"]);
    assert!(exit != 0 && failure.to_string().contains("not restored completely"), "{failure}");
    assert!(!there.join("state/signing.key").exists(), "nothing is made in it");
    let (exit, report) = restore(&out);
    assert_eq!(exit, 0, "{report}");
    let (exit, report) = at(&there, &["runs", "verify", "--json"]);
    assert_eq!((exit, &report["ok"]), (0, &json!(true)), "{report}");
    // A backup has no links: one would be left out of the home without a word.
    for name in ["keys/signing.key", "heads.jsonl", "store/toolyard.db"] {
        let linked = beside("linked");
        let kept = beside("kept");
        assert_eq!(backup(&linked).code, 0);
        std::fs::rename(linked.join(name), &kept).unwrap();
        std::os::unix::fs::symlink(&kept, linked.join(name)).unwrap();
        let (exit, failure) = restored_at(&beside("other"), linked.to_str().unwrap());
        assert!(exit != 0 && code(&failure) == "RECORD_CORRUPTED", "{name}: {failure}");
        assert!(!beside("other").exists());
        std::fs::remove_dir_all(&linked).unwrap();
    }
    let (exit, failure) = restored_at(&beside("other"), place.vault.to_str().unwrap());
    assert!(exit != 0 && code(&failure) == "NOT_FOUND", "{failure}");
    // A backup in what is copied would contain itself, and its keys would be in later ones.
    for inside in ["context/backup", "state/backup"] {
        let refused = backup(&place.home.join(inside));
        assert!(refused.code != 0 && code(&refused.json()) == "VALIDATION_ERROR", "{refused:?}");
    }
}

#[test]
fn pruned_runs_are_gone_and_the_ledger_says_so() {
    let place = Place::new();
    let server = place.up();
    let mut local = LocalConnection::new(&place);
    for n in 0..30 {
        local.call("util.slugifyTitle", &json!({"title": format!("Title {n}")}));
    }
    let kept = place.run(&["prune", "--older-than", "1h", "--json"]).json();
    assert_eq!(kept["runs"], 0, "{kept}");
    assert!(place.run(&["prune", "--older-than", "soon", "--json"]).code != 0);
    std::thread::sleep(Duration::from_millis(20));
    let runs = place.run(&["runs", "list", "--json"]).json();
    let gone = runs["runs"][3]["runId"].as_str().unwrap().to_owned();
    let removed = place.run(&["prune", "--older-than", "0m", "--json"]).json();
    assert_eq!(removed["runs"], 30, "{removed}");
    let runs = place.run(&["runs", "list", "--json"]).json();
    assert_eq!(runs["runs"], json!([]), "{runs}");
    assert_eq!(local.call("util.slugifyTitle", &json!({"title": "After"}))["ok"], true);
    let verified = place.run(&["runs", "verify", "--json"]);
    assert_eq!(verified.json()["ok"], true, "{}", verified.stdout);
    // A run that was removed is still proven, to others as well.
    let receipt = place.home.with_file_name("gone.json").display().to_string();
    let proved = place.run(&["runs", "prove", &gone, "--out", &receipt, "--json"]);
    assert_eq!((proved.code, proved.json()["runId"].as_str()), (0, Some(&*gone)), "{proved:?}");
    let checked = place.run(&["runs", "verify", "--receipt", &receipt, "--json"]);
    assert_eq!((checked.code, checked.json()["ok"].as_bool()), (0, Some(true)), "{checked:?}");
    let stats = place.run(&["store", "stats", "--json"]).json();
    assert_eq!(stats["runs"], 1, "{stats}");
    server.stop();
}

#[test]
fn a_run_whose_process_dies_is_taken_up_by_one_that_runs() {
    let place = Place::new();
    let server = place.up();
    let steps: Vec<Value> = (0..400)
        .map(|n| {
            let args = json!({"path": format!("Made/{n}.md"), "content": "x"});
            let before = if n == 0 { json!([]) } else { json!([format!("s{}", n - 1)]) };
            json!({"id": format!("s{n}"), "tool": "vault.createFile", "args": args, "dependsOn": before})
        })
        .collect();
    let plan = json!({"version": "1.0", "goal": "make many", "riskLevel": "writes", "steps": steps});
    let file = place.plan(&plan);
    let vault = place.vault.display().to_string();
    let mut other =
        place.command(&["--vault", &vault, "--in-process", "plan", "run", &file, "--yes", "--json"]).spawn().unwrap();
    until("the other process makes something", || place.vault.join("Made/5.md").exists());
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(!place.vault.join("Made/399.md").exists(), "it was killed in the middle");
    until("the run ends", || {
        let runs = place.run(&["runs", "list", "--kind", "plan", "--json"]).json();
        runs["runs"][0]["status"] == "finished"
    });
    assert!(place.vault.join("Made/399.md").exists());
    let verified = place.run(&["runs", "verify", "--json"]).json();
    assert_eq!(verified["ok"], true, "{verified}");
    server.stop();
}

/// Unmounts what the test mounted, however it ends.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

#[test]
#[ignore = "mounts a tmpfs, which needs root: make disk-full"]
fn a_full_disk_is_refused_and_served_again_when_there_is_room() {
    let mut place = Place::new();
    let small = place.home.parent().unwrap().join("small");
    std::fs::create_dir_all(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "none"]).arg(&small).status().unwrap();
    assert!(mounted.success(), "the test needs root");
    let _mounted = Mounted(small.clone());
    place.home = small.join("home");
    let server = place.up();
    let mut local = LocalConnection::new(&place);
    let mut call = |n: u32| local.call("util.slugifyTitle", &json!({"title": format!("Title {n}")}));
    assert_eq!(call(0)["ok"], true);
    assert_eq!(server.get("/ready").0, 200);

    // Fill it to the last byte.
    let filler = small.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    let block = vec![1; 64 << 10];
    while std::io::Write::write_all(&mut file, &block).is_ok() {}
    while std::io::Write::write_all(&mut file, &block[..512]).is_ok() {}
    let full = Instant::now();
    let mut refused = None;
    while refused.is_none() && full.elapsed() < PATIENCE {
        let result = call(1);
        refused = (result["ok"] == false).then_some(result);
    }
    let refused = refused.unwrap();
    assert_eq!(refused["error"]["code"], "STORE_UNAVAILABLE", "{refused}");
    assert_eq!(server.get("/ready").0, 503);

    drop(file);
    std::fs::remove_file(&filler).unwrap();
    until("the store serves again by itself", || server.get("/ready").0 == 200 && call(2)["ok"] == true);
    let verified = place.run(&["runs", "verify", "--json"]);
    assert_eq!(verified.json()["ok"], true, "{}", verified.stdout);
    until("what was interrupted is settled", || {
        place.run(&["runs", "list", "--status", "running", "--json"]).json()["runs"] == json!([])
    });
    assert_eq!(place.run(&["store", "check", "--json"]).json()["ok"], true);
    assert_eq!(server.stop(), 0);
}
