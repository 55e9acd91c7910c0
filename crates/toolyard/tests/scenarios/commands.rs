//! Every command once, with its shape.

use crate::harness::Place;
use serde_json::json;

#[test]
fn call_prints_the_tool_result_and_exits_by_its_outcome() {
    let place = Place::new();
    let ran =
        place.run(&["call", "vault.createFile", "--args", r##"{"path":"a/b/Note.md","content":"# Hi\n"}"##, "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let result = ran.json();
    for key in [
        "callId",
        "runId",
        "stepId",
        "tool",
        "attempt",
        "status",
        "ok",
        "data",
        "startedAt",
        "endedAt",
        "durationMs",
        "effects",
    ] {
        assert!(!result[key].is_null(), "{key} is there: {result}");
    }
    assert_eq!(result["effects"]["created"].as_array().unwrap().len(), 3, "two folders and a file");
    assert_eq!(place.read("a/b/Note.md"), "# Hi\n");

    let again =
        place.run(&["call", "vault.createFile", "--args", r#"{"path":"a/b/Note.md","content":"other"}"#, "--json"]);
    assert_eq!(again.code, 1);
    assert_eq!(again.json()["error"]["code"], "CONFLICT");
    assert!(again.json()["error"]["details"]["currentEtag"].is_string());
    assert_eq!(place.read("a/b/Note.md"), "# Hi\n", "nothing was lost");
}

#[toolyard_shows::shows("002-7-05", "002-7-06", "002-7-07", "002-7-08")]
#[test]
fn every_run_has_its_four_files_and_can_be_verified() {
    let place = Place::new();
    let result = place.call("vault.createFile", json!({"path":"x.md","content":"x"}));
    let run = result["runId"].as_str().unwrap();
    for file in ["run.json", "calls.jsonl", "results.jsonl", "events.jsonl"] {
        assert!(place.home.join("runs").join(run).join(file).exists(), "{file}");
    }
    let out = place.home.join("exported");
    let ran = place.run(&["runs", "export", run, "--out", out.to_str().unwrap(), "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for file in ["run.json", "calls.jsonl", "results.jsonl", "events.jsonl"] {
        assert_eq!(
            std::fs::read_to_string(out.join(file)).unwrap(),
            std::fs::read_to_string(place.home.join("runs").join(run).join(file)).unwrap(),
            "{file} is the same by both ways"
        );
    }
    let call: serde_json::Value =
        serde_json::from_str(std::fs::read_to_string(out.join("calls.jsonl")).unwrap().trim()).unwrap();
    assert_eq!(call["policy"]["confirmationsRequired"], true, "the policy snapshot is on the call");
    assert!(call["confirmationId"].is_string(), "a typed command is a recorded approval");
    let verified = place.run(&["runs", "verify", run, "--json"]);
    assert_eq!((verified.code, verified.json()["ok"].clone()), (0, json!(true)), "{verified:?}");
    assert!(verified.json()["ledgerEntry"].is_u64());
    assert_eq!(place.run(&["runs", "verify", "--json"]).json()["runs"], 1);
    let listed = place.run(&["runs", "list", "--json"]).json();
    assert_eq!(listed["runs"][0]["runId"], run);
    let shown = place.run(&["runs", "show", run, "--json"]).json();
    assert_eq!(shown["results"][0]["runId"], run);
}

#[test]
fn tools_are_listed_and_described() {
    let place = Place::new();
    let list = place.run(&["tools", "list", "--json"]).json();
    let names: Vec<&str> = list["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    for name in [
        "vault.ensureFolder",
        "vault.listFiles",
        "vault.readFile",
        "vault.createFile",
        "vault.writeFile",
        "vault.patchFile",
        "vault.rename",
        "vault.delete",
        "vault.searchText",
        "workspace.getContext",
        "editor.getSelection",
        "commands.list",
        "util.parseMarkdownBullets",
        "util.slugifyTitle",
    ] {
        assert!(names.contains(&name), "{name}");
    }
    assert!(!names.contains(&"commands.run"), "what policy denies is not listed");
    let one = place.run(&["tools", "describe", "vault.writeFile", "--json"]).json();
    for key in [
        "name",
        "title",
        "description",
        "category",
        "riskLevel",
        "inputSchema",
        "outputSchema",
        "sideEffects",
        "idempotency",
        "requiredPermissions",
    ] {
        assert!(!one[key].is_null(), "{key}");
    }
    assert!(
        !place.home.exists() || !place.home.join("state/toolyard.db").exists(),
        "looking at tools makes no database"
    );
}

#[test]
fn explain_config_doctor_and_completions_answer() {
    let place = Place::new();
    let page = place.run(&["explain", "policy_denied"]);
    assert_eq!(page.code, 0);
    assert!(page.stdout.starts_with("# POLICY_DENIED"));
    assert_eq!(place.run(&["explain", "nope", "--json"]).error_code(), "NOT_FOUND");
    assert!(place.run(&["explain", "--json"]).json()["codes"].as_array().unwrap().len() >= 18);

    place.config("[gateway]\ntoken = \"a-secret-token-of-mine\"\n[policy.limits]\nmaxDeletes = 3\n");
    let shown = place.run(&["config", "show", "--json"]);
    assert_eq!(shown.json()["config"]["policy"]["limits"]["maxDeletes"], 3);
    assert!(!shown.stdout.contains("a-secret-token-of-mine"), "secrets are hidden");
    assert_eq!(place.run(&["config", "check", "--json"]).json()["ok"], true);
    place.config("[gateway]\nprot = 1\n");
    let bad = place.run(&["config", "check", "--json"]);
    assert_eq!((bad.code, bad.error_code()), (1, "CONFIG_INVALID".into()));
    assert!(bad.json()["error"]["message"].as_str().unwrap().contains("prot"));
    place.config("");
    let doctor = place.run(&["doctor", "--json"]);
    assert_eq!(doctor.json()["ok"], true, "{doctor:?}");
    assert!(place.run(&["completions", "bash"]).stdout.contains("toolyard"));
}

#[test]
fn an_idempotency_key_gives_the_recorded_result_again() {
    let place = Place::new();
    let args = [
        "call",
        "vault.writeFile",
        "--args",
        r#"{"path":"log.md","content":"line\n","mode":"append"}"#,
        "--idempotency-key",
        "k1",
        "--json",
    ];
    let first = place.run(&args).json();
    let second = place.run(&args).json();
    assert_eq!(first["callId"], second["callId"]);
    assert_eq!(place.read("log.md"), "line\n", "appended once");
    let other = place.run(&[
        "call",
        "vault.writeFile",
        "--args",
        r#"{"path":"log.md","content":"other\n","mode":"append"}"#,
        "--idempotency-key",
        "k1",
        "--json",
    ]);
    assert_eq!(other.error_code(), "CONFLICT");
}

#[test]
fn a_dry_run_of_a_call_changes_nothing() {
    let place = Place::new();
    let ran =
        place.run(&["call", "vault.createFile", "--args", r#"{"path":"new.md","content":"x"}"#, "--dry-run", "--json"]);
    assert_eq!(ran.json()["status"], "ok", "{ran:?}");
    assert!(!place.exists("new.md"));
}

#[test]
fn runs_are_counted_found_by_path_and_summed_up_by_agent() {
    let place = Place::new();
    place.call("vault.createFile", json!({"path":"Garden/Beds.md","content":"# Beds\n"}));
    place.call("vault.writeFile", json!({"path":"Garden/Beds.md","content":"# Beds\nleeks\n","mode":"append"}));
    place.call("util.slugifyTitle", json!({"title":"Winter rest"}));
    let missing = place.run(&["call", "vault.readFile", "--args", r#"{"path":"Gone.md"}"#, "--json"]);
    assert_ne!(missing.code, 0, "{missing:?}");
    let list = |more: &[&str]| place.run(&[&["runs", "list", "--counts", "--json"], more].concat()).json();
    let all = list(&["--limit", "2"]);
    assert_eq!((all["total"].as_u64(), all["runs"].as_array().unwrap().len()), (Some(4), 2), "{all}");
    assert_eq!(list(&["--status", "failed"])["total"], 1);
    let found = list(&["--text", "garden/beds"]);
    let subjects: Vec<&str> =
        found["runs"].as_array().unwrap().iter().map(|run| run["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects, ["Garden/Beds.md", "Garden/Beds.md"]);
    assert!(found["total"].is_null(), "a text is looked for in each run");
    assert_eq!(list(&["--text", "slugify"])["runs"][0]["subject"], "Winter rest", "a tool's name is found");
    assert_eq!(list(&["--from", "2000-01-01T00:00:00Z"])["total"], 4);
    assert_eq!(list(&["--to", "2000-01-01T00:00:00Z"])["total"], 0);
    let digest = place.run(&["runs", "digest", "--since", "2000-01-01T00:00:00Z", "--json"]).json();
    let agent = &digest["agents"][0];
    assert_eq!(digest["agents"].as_array().unwrap().len(), 1, "{digest}");
    let counted =
        ["runs", "failed", "created", "modified", "deleted", "renamed", "changingRuns"].map(|key| agent[key].as_u64());
    // The note was created and then changed: it counts once, by its last change. Its folder was created.
    assert_eq!(counted, [4, 1, 1, 1, 0, 0, 2].map(Some), "{agent}");
    assert!(agent["lastChange"].is_string());
}
