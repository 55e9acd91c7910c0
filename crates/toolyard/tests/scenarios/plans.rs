//! Plans through the command line: run, predict, replay, fork, undo, pause.

use crate::harness::Place;
use serde_json::{Value, json};

fn plan(steps: Value) -> Value {
    json!({"version":"1.0","goal":"test","riskLevel":"writes","steps":steps})
}

fn bullets_plan() -> Value {
    plan(json!([
        {"id":"read","tool":"vault.readFile","args":{"path":"Ideas.md"}},
        {"id":"parse","tool":"util.parseMarkdownBullets","args":{"text":"$steps.read.content"}},
        {"id":"make","tool":"vault.createFile","args":{"path":"Ideas/{item.text}.md","content":"# {item.text}\n\nnumber {index}\n"},
         "foreach":{"from":"$steps.parse.items","itemName":"item","concurrency":4},"captureAs":"made","preview":"Create note {item.text}"},
        {"id":"log","tool":"vault.writeFile","args":{"path":"Log.md","content":"made some\n","mode":"append"},"dependsOn":["make"]},
        {"id":"first","tool":"vault.readFile","args":{"path":"$vars.made.items[0].path"}}
    ]))
}

fn place() -> Place {
    let place = Place::new();
    place.note("Ideas.md", "# Ideas\n\n- Alpha\n- Beta\n- Gamma\n");
    place
}

#[toolyard_shows::shows("002-1-03", "002-1-09", "002-2-04", "002-3.1-15", "002-3.1-18")]
#[test]
fn a_plan_runs_and_reports_steps_and_effects() {
    let place = place();
    let file = place.plan(&bullets_plan());
    let refused = place.run(&["plan", "run", &file, "--json"]);
    assert_eq!((refused.code, refused.error_code()), (3, "CONFIRMATION_REQUIRED".into()), "{refused:?}");
    assert!(!place.exists("Ideas"));

    let ran = place.run(&["plan", "run", &file, "--yes", "--planner-version", "planner 2.1", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let report = ran.json();
    let shown = place.run(&["runs", "show", report["runId"].as_str().unwrap(), "--json"]).json();
    assert_eq!(shown["calls"][0]["plannerVersion"], "planner 2.1");
    assert_eq!(
        shown["calls"][0]["preview"], "Read note: Ideas.md",
        "a line for people is made where the plan has none"
    );
    let first = shown["calls"].as_array().unwrap().iter().find(|c| c["iteration"]["index"] == 0).unwrap();
    assert_eq!(first["preview"], "Create note Alpha", "and the plan's own is filled in");
    assert_eq!(report["status"], "finished");
    let states: Vec<&str> = report["steps"].as_array().unwrap().iter().map(|s| s["status"].as_str().unwrap()).collect();
    assert_eq!(states, ["ok"; 5]);
    assert_eq!(report["steps"][2]["iterations"].as_array().unwrap().len(), 3);
    assert_eq!(report["effects"]["created"].as_array().unwrap().len(), 5, "{}", report["effects"]);
    assert_eq!(place.read("Ideas/Beta.md"), "# Beta\n\nnumber 1\n");
    assert_eq!(report["steps"][4]["data"]["content"], "# Alpha\n\nnumber 0\n");

    let run = report["runId"].as_str().unwrap();
    assert_eq!(place.run(&["runs", "verify", run, "--json"]).json()["ok"], true);
    let replay = place.run(&["plan", "replay", run, "--json"]).json();
    assert_eq!((replay["ok"].clone(), replay["callsChecked"].clone()), (json!(true), json!(7)));

    let undo = place.run(&["plan", "undo", run, "--yes", "--json"]);
    assert_eq!(undo.code, 0, "{undo:?}");
    assert!(!place.exists("Ideas"), "made folders are gone again");
    assert!(!place.exists("Log.md"));
    assert_eq!(place.read("Ideas.md"), "# Ideas\n\n- Alpha\n- Beta\n- Gamma\n");
}

#[test]
fn undo_removes_shared_folders_whichever_call_made_them() {
    let place = Place::new();
    let paths: String = (0..48).map(|n| format!("- A/B{}/C/{n}.md\n", n % 3)).collect();
    for round in 0..4 {
        let file = place.plan(&plan(json!([
            {"id":"parse","tool":"util.parseMarkdownBullets","args":{"text":paths}},
            {"id":"make","tool":"vault.createFile","args":{"path":"{item.text}","content":"number {index}"},
             "foreach":{"from":"$steps.parse.items","itemName":"item","concurrency":16}}
        ])));
        let ran = place.run(&["plan", "run", &file, "--yes", "--json"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let undo = place.run(&["plan", "undo", ran.json()["runId"].as_str().unwrap(), "--yes", "--json"]);
        assert_eq!(undo.code, 0, "{undo:?}");
        assert!(!place.exists("A"), "round {round}: folders stayed behind");
    }
}

#[test]
fn undo_is_guarded_and_restores_bytes() {
    let place = place();
    place.note("A.md", "one\r\ntwo\r\n");
    let file = place.plan(&plan(json!([
        {"id":"w","tool":"vault.writeFile","args":{"path":"A.md","content":"three","collisionStrategy":"overwrite"}},
        {"id":"r","tool":"vault.rename","args":{"fromPath":"Ideas.md","toPath":"Old/Ideas.md"}},
        {"id":"d","tool":"vault.delete","args":{"path":"A.md"},"dependsOn":["w"]}
    ])));
    let report = place.run(&["plan", "run", &file, "--yes", "--json"]).json();
    assert_eq!(report["status"], "finished", "{report}");
    let run = report["runId"].as_str().unwrap().to_owned();
    assert!(!place.exists("A.md") && place.exists("Old/Ideas.md"));
    let shown = place.run(&["plan", "undo", &run, "--dry-run", "--json"]).json();
    assert!(shown["preview"]["diff"].as_str().unwrap().contains("A.md"), "{shown}");
    let undo = place.run(&["plan", "undo", &run, "--yes", "--json"]);
    assert_eq!(undo.code, 0, "{undo:?}");
    assert_eq!(place.read("A.md"), "one\r\ntwo\r\n");
    assert!(place.exists("Ideas.md") && !place.exists("Old"));

    let report = place.run(&["plan", "run", &place.plan(&plan(json!([{"id":"w","tool":"vault.writeFile","args":{"path":"A.md","content":"mine","collisionStrategy":"overwrite"}}]))), "--yes", "--json"]).json();
    place.note("A.md", "somebody else's");
    let undo = place.run(&["plan", "undo", report["runId"].as_str().unwrap(), "--yes", "--json"]);
    assert_ne!(undo.code, 0);
    assert_eq!(undo.json()["error"]["code"], "CONFLICT", "{undo:?}");
    assert_eq!(place.read("A.md"), "somebody else's");
}

#[test]
fn a_dry_run_predicts_on_an_overlay_and_binds_the_approval() {
    let place = place();
    let file = place.plan(&plan(json!([
        {"id":"make","tool":"vault.createFile","args":{"path":"New.md","content":"one\n"}},
        {"id":"add","tool":"vault.writeFile","args":{"path":"$steps.make.path","content":"two\n","mode":"append"}},
        {"id":"see","tool":"vault.readFile","args":{"path":"New.md"},"dependsOn":["add"]}
    ])));
    let dry = place.run(&["plan", "dry-run", &file, "--json"]);
    assert_eq!(dry.code, 0, "{dry:?}");
    let dry = dry.json();
    assert_eq!(dry["steps"][2]["data"]["content"], "one\ntwo\n", "later steps see earlier writes");
    assert!(dry["diff"].as_str().unwrap().contains("+two"), "{dry}");
    assert!(!place.exists("New.md"), "nothing was written");
    let hash = dry["previewHash"].as_str().unwrap().to_owned();
    assert_eq!(place.run(&["plan", "dry-run", &file, "--json"]).json()["previewHash"], hash.as_str(), "the same twice");

    place.note("New.md", "in the way");
    let refused = place.run(&["plan", "run", &file, "--yes", "--preview-hash", &hash, "--json"]);
    assert_eq!(refused.error_code(), "CONFIRMATION_REQUIRED", "{refused:?}");
    std::fs::remove_file(place.vault.join("New.md")).unwrap();
    let ran = place.run(&["plan", "run", &file, "--yes", "--preview-hash", &hash, "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.json()["deviation"].is_null(), "{ran:?}");
    let run = ran.json()["runId"].as_str().unwrap().to_owned();
    let shown = place.run(&["runs", "show", &run, "--json"]).json();
    assert_eq!(shown["run"]["confirmation"]["previewHash"], hash.as_str());
    assert_eq!(shown["run"]["confirmation"]["by"], "tester");
    assert_eq!(shown["calls"][0]["confirmationId"], shown["run"]["confirmation"]["confirmationId"]);
}

#[toolyard_shows::shows("002-0-08", "002-3.2-08")]
#[test]
fn a_failed_run_can_be_forked_from_the_step_that_failed() {
    let place = place();
    place.note("taken.md", "x");
    let steps = |path: &str| {
        plan(json!([
            {"id":"log","tool":"vault.writeFile","args":{"path":"Log.md","content":"once\n","mode":"append"}},
            {"id":"make","tool":"vault.createFile","args":{"path":path,"content":"y"},"dependsOn":["log"]},
            {"id":"after","tool":"vault.readFile","args":{"path":"$steps.make.path"}}
        ]))
    };
    let failed = place.run(&["plan", "run", &place.plan(&steps("taken.md")), "--yes", "--json"]);
    assert_eq!(failed.code, 1);
    let report = failed.json();
    assert_eq!((report["status"].as_str(), report["error"]["code"].as_str()), (Some("failed"), Some("CONFLICT")));
    assert_eq!(report["steps"][2]["status"], "skipped");
    let run = report["runId"].as_str().unwrap();
    let edited = place.plan(&steps("free.md"));
    let forked = place.run(&["plan", "fork", run, "--from", "make", "--edit", &edited, "--yes", "--json"]);
    assert_eq!(forked.code, 0, "{forked:?}");
    assert_eq!(place.read("Log.md"), "once\n", "the step before the fork was not done again");
    assert_eq!(place.read("free.md"), "y");
    let child = forked.json()["runId"].as_str().unwrap().to_owned();
    let shown = place.run(&["runs", "show", &child, "--json"]).json();
    assert_eq!(shown["run"]["parentRunId"], run);
    assert_eq!(place.run(&["runs", "verify", &child, "--json"]).json()["ok"], true);
}

#[test]
fn context_requests_are_answered_or_refused() {
    let place = place();
    let mut wanted = plan(json!([{"id":"a","tool":"util.slugifyTitle","args":{"title":"$ctx.selection.text"}}]));
    wanted["riskLevel"] = "read-only".into();
    wanted["contextRequests"] = json!([{"kind":"selection"}]);
    let file = place.plan(&wanted);
    assert_eq!(place.run(&["plan", "run", &file, "--json"]).error_code(), "PRECONDITION_FAILED");
    let ran = place.run(&["plan", "run", &file, "--context", r#"selection={"text":"Ein schöner Tag"}"#, "--json"]);
    assert_eq!(ran.json()["steps"][0]["data"]["slug"], "ein-schoner-tag", "{ran:?}");
    wanted["contextRequests"] = json!([{"kind":"vaultFileList"}]);
    wanted["steps"] =
        json!([{"id":"a","tool":"util.slugifyTitle","args":{"title":"$ctx.vaultFileList.items[0].path"}}]);
    let ran = place.run(&["plan", "run", &place.plan(&wanted), "--json"]);
    assert_eq!(ran.code, 0, "Toolyard answers the file list itself: {ran:?}");
}

#[toolyard_shows::shows("002-5-05")]
#[test]
fn editor_tools_without_a_client_say_what_is_missing() {
    let place = place();
    for (tool, args) in
        [("workspace.getContext", json!({})), ("editor.getSelection", json!({})), ("commands.list", json!({}))]
    {
        let result = place.call(tool, args);
        assert_eq!(result["error"]["code"], "PRECONDITION_FAILED", "{tool}: {result}");
    }
    let denied = place.call("commands.run", json!({"id":"app:reload"}));
    assert_eq!(denied["error"]["code"], "POLICY_DENIED", "{denied}");
}

#[test]
fn the_policy_is_obeyed_and_named() {
    let place = place();
    place.config("[policy]\ndeny = [\"vault.delete\"]\n[policy.sandbox]\nallowedRoots = [\"/Ideas\"]\n[policy.limits]\nmaxBytesWritten = 100\n");
    let denied = place.call("vault.delete", json!({"path":"Ideas.md"}));
    assert_eq!(denied["error"]["code"], "POLICY_DENIED");
    assert!(denied["error"]["details"]["rule"].is_string());
    assert_eq!(
        place.call("vault.createFile", json!({"path":"Other/x.md","content":"x"}))["error"]["code"],
        "POLICY_DENIED"
    );
    assert_eq!(place.call("vault.createFile", json!({"path":"Ideas/x.md","content":"x"}))["ok"], true);
    assert_eq!(
        place.call("vault.createFile", json!({"path":"Ideas/y.md","content":"y".repeat(101)}))["error"]["code"],
        "LIMIT_EXCEEDED"
    );
    assert_eq!(
        place.call("vault.delete", json!({"path":"Ideas/x.md","trash":false}))["error"]["code"],
        "POLICY_DENIED"
    );
    let names = place.run(&["tools", "list"]).stdout;
    assert!(!names.contains("vault.delete"), "what may not be called is not listed");
    let listed = place.call("vault.listFiles", json!({"recursive":true}));
    let paths: Vec<&str> =
        listed["data"]["items"].as_array().unwrap().iter().map(|i| i["path"].as_str().unwrap()).collect();
    assert!(
        paths.iter().all(|p| p.starts_with("Ideas/") || *p == "Ideas"),
        "the sandbox holds for lists too: {paths:?}"
    );
    let found = place.call("vault.searchText", json!({"query":"Alpha"}));
    assert_eq!(found["data"]["matches"], json!([]), "and for searches: {found}");
}

#[toolyard_shows::shows("002-4-06")]
#[test]
fn a_binding_of_another_loop_is_found_before_anything_is_written() {
    let place = place();
    let wrong = |args: Value| {
        place.plan(&plan(json!([
            {"id":"read","tool":"vault.readFile","args":{"path":"Ideas.md"}},
            {"id":"parse","tool":"util.parseMarkdownBullets","args":{"text":"$steps.read.content"}},
            {"id":"make","tool":"vault.createFile","args":args,
             "foreach":{"from":"$steps.parse.items","itemName":"idea","indexName":"n"}}])))
    };
    for (path, content) in [("Ideas/{item.text}.md", ""), ("Ideas/{idea.text}.md", "{index}"), ("{idea.txet}.md", "")] {
        let file = wrong(json!({"path": path, "content": content}));
        let checked = place.run(&["plan", "check", &file, "--json"]).json();
        assert_eq!(
            (&checked["ok"], &checked["errors"][0]["type"]),
            (&json!(false), &json!("path")),
            "{path}: {checked}"
        );
        let ran = place.run(&["plan", "run", &file, "--yes", "--json"]);
        assert_eq!((ran.code, ran.error_code().as_str()), (1, "VALIDATION_ERROR"), "{ran:?}");
        assert!(!place.exists("Ideas"), "nothing was written");
    }
    let file = wrong(json!({"path": "Ideas/{idea.text} {n}.md", "content": "{{item.text}} and {idx}"}));
    let checked = place.run(&["plan", "check", &file, "--json"]).json();
    assert_eq!((&checked["ok"], &checked["warnings"][0]["type"]), (&json!(true), &json!("placeholder")), "{checked}");
    assert_eq!(place.run(&["plan", "run", &file, "--yes", "--json"]).code, 0);
    assert_eq!(place.read("Ideas/Alpha 0.md"), "{item.text} and {idx}");
}

#[toolyard_shows::shows("002-4-04")]
#[test]
fn a_plan_uses_the_executors_own_values() {
    let place = place();
    let mut steps = bullets_plan();
    steps["steps"].as_array_mut().unwrap().push(json!({"id":"sum","tool":"vault.createFile",
        "args":{"path":"Sum.md","content":"$vars.run.id","frontmatter":{"made":"$vars.make.okCount","all":"$vars.make.count",
            "failed":"$vars.make.failedCount","began":"$vars.run.startedAt"}}}));
    let report = place.run(&["plan", "run", &place.plan(&steps), "--yes", "--json"]).json();
    assert_eq!(report["status"], "finished", "{report}");
    let text = place.read("Sum.md");
    assert!(text.contains(report["runId"].as_str().unwrap()) && text.contains("made: 3"), "{text}");
    assert!(text.contains("all: 3") && text.contains("failed: 0") && text.contains("began:"), "{text}");
}
