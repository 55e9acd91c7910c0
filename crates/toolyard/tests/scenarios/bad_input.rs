//! Bad input: a clear error with a code, nothing dispatched, nothing written.

use crate::harness::{LocalConnection, Place};
use serde_json::{Value, json};

fn untouched(place: &Place) {
    let left: Vec<_> = std::fs::read_dir(&place.vault).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["seed.md"], "the vault is as it was");
    assert_eq!(place.read("seed.md"), "seed");
}

fn place() -> Place {
    let place = Place::new();
    place.note("seed.md", "seed");
    place
}

#[test]
fn traversal_in_every_spelling_is_refused() {
    let place = place();
    std::fs::write(place.vault.parent().unwrap().join("outside.md"), "outside").unwrap();
    let refused = place.call("vault.readFile", json!({"path": "../outside.md"}));
    assert_eq!(refused["error"]["code"], "POLICY_DENIED", "{refused}");
    let server = place.up();
    let mut connection = LocalConnection::new(&place);
    for path in [
        "../outside.md",
        "a/../../outside.md",
        "/etc/passwd",
        "..",
        ".",
        "./x.md",
        "a//b.md",
        "..\\outside.md",
        "a\\b.md",
        "C:\\x.md",
        "c:/x.md",
        "%2e%2e/outside.md",
        "..%2foutside.md",
        "%2E%2E%2Foutside.md",
        "x\u{0}.md",
        "x\n.md",
        "file:///etc/passwd",
        "~/x.md/../../y",
        "",
        ".obsidian/app.json",
        ".git/config",
        ".trash/x.md",
        ".hidden.md",
        "CON.md",
        "nul",
        "trailing. ",
        "trailing.",
        "a/ .md/..",
        "...//...//x",
    ] {
        for (tool, args) in [
            ("vault.createFile", json!({"path": path, "content": "x"})),
            ("vault.readFile", json!({"path": path})),
            ("vault.delete", json!({"path": path})),
            ("vault.rename", json!({"fromPath": "seed.md", "toPath": path})),
        ] {
            if tool == "vault.readFile" && matches!(path, "CON.md" | "nul" | "trailing. " | "trailing.") {
                continue; // reading an odd name that another program made is allowed
            }
            let result = connection.call(tool, &args);
            assert_eq!(result["ok"], false, "{tool} {path:?}: {result}");
            let code = result["error"]["code"].as_str().unwrap();
            assert!(["VALIDATION_ERROR", "POLICY_DENIED", "NOT_FOUND"].contains(&code), "{tool} {path:?}: {code}");
        }
    }
    server.stop();
    untouched(&place);
}

#[test]
fn symlinks_out_of_the_vault_are_not_followed() {
    let place = place();
    let outside = place.vault.parent().unwrap().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret.md"), "secret").unwrap();
    std::os::unix::fs::symlink(&outside, place.vault.join("door")).unwrap();
    std::os::unix::fs::symlink(outside.join("secret.md"), place.vault.join("link.md")).unwrap();
    for (tool, args) in [
        ("vault.readFile", json!({"path":"door/secret.md"})),
        ("vault.readFile", json!({"path":"link.md"})),
        ("vault.writeFile", json!({"path":"link.md","content":"x","collisionStrategy":"overwrite"})),
        ("vault.createFile", json!({"path":"door/new.md","content":"x"})),
        ("vault.delete", json!({"path":"door/secret.md"})),
    ] {
        let result = place.call(tool, args);
        assert_eq!(result["ok"], false, "{tool}: {result}");
    }
    assert_eq!(std::fs::read_to_string(outside.join("secret.md")).unwrap(), "secret");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn wrong_arguments_are_named_with_their_place() {
    let place = place();
    for (args, pointer) in [
        (json!({"content":"x"}), "path"),
        (json!({"path":5,"content":"x"}), "/path"),
        (json!({"path":"a.md","content":"x","contnet":"y"}), "contnet"),
        (json!({"path":"a.md","content":"x","collisionStrategy":"maybe"}), "/collisionStrategy"),
        (json!({"path":"a.md","content":9007199254740993u64}), "content"),
    ] {
        let result = place.call("vault.createFile", args);
        assert_eq!(result["error"]["code"], "VALIDATION_ERROR", "{result}");
        assert!(result["error"].to_string().contains(pointer), "{pointer}: {result}");
    }
    for (argv, code) in [
        (vec!["call", "vault.createFile", "--args", "{not json", "--json"], "USAGE_ERROR"),
        (vec!["call", "vault.createFile", "--args", "[1]", "--json"], "USAGE_ERROR"),
        (vec!["call", "vault.createFile", "--args", "@/no/such/file", "--json"], "NOT_FOUND"),
        (vec!["call", "vault.creatFile", "--json"], "NOT_FOUND"),
        (vec!["call", "no such tool \u{7}", "--json"], "NOT_FOUND"),
        (vec!["nonsense", "--json"], "USAGE_ERROR"),
        (vec!["runs", "show", "not-a-uuid", "--json"], "USAGE_ERROR"),
        (vec!["runs", "show", "00000000-0000-7000-8000-000000000000", "--json"], "NOT_FOUND"),
        (vec!["runs", "verify", "00000000-0000-7000-8000-000000000000", "--json"], "NOT_FOUND"),
        (vec!["plan", "run", "/no/such/plan.json", "--json"], "NOT_FOUND"),
    ] {
        let ran = place.run(&argv);
        assert_ne!(ran.code, 0, "{argv:?}");
        assert_eq!(ran.error_code(), code, "{argv:?}: {ran:?}");
        assert!(ran.json()["error"]["message"].as_str().unwrap().len() > 10);
        assert!(ran.json()["error"]["suggestion"].is_string(), "{ran:?}");
    }
    let hint = place.run(&["call", "vault.creatFile", "--json"]).stdout;
    assert!(hint.contains("vault.createFile"), "a near name is offered: {hint}");
    untouched(&place);
}

fn step(id: &str, tool: &str, args: Value) -> Value {
    json!({"id": id, "tool": tool, "args": args})
}

#[test]
fn malformed_plans_are_refused_before_anything_runs() {
    let place = place();
    let write = step("w", "vault.createFile", json!({"path":"new.md","content":"x"}));
    let plan = |steps: Value| json!({"version":"1.0","goal":"g","riskLevel":"writes","steps":steps}).to_string();
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let cases: Vec<(String, &str)> = vec![
        ("{".into(), "VALIDATION_ERROR"),
        ("[]".into(), "VALIDATION_ERROR"),
        ("null".into(), "VALIDATION_ERROR"),
        (plan(json!([])), "VALIDATION_ERROR"),
        (plan(json!([write, {"id":"w","tool":"vault.readFile","args":{"path":"seed.md"}}])), "VALIDATION_ERROR"),
        (plan(json!([write, step("b", "no.such.tool", json!({}))])), "VALIDATION_ERROR"),
        (plan(json!([write, step("b", "vault.readFile", json!({"path":"$steps.gone.path"}))])), "VALIDATION_ERROR"),
        (plan(json!([write, step("b", "vault.readFile", json!({"path":"$steps.w.nope"}))])), "VALIDATION_ERROR"),
        (plan(json!([write, step("b", "vault.readFile", json!({"path":"$vars.x"}))])), "VALIDATION_ERROR"),
        (plan(json!([write, step("b", "vault.readFile", json!({"path":5}))])), "VALIDATION_ERROR"),
        (
            plan(json!([{"id":"a","tool":"vault.createFile","args":{"path":"a.md","content":"x"},"dependsOn":["b"]},
                     {"id":"b","tool":"vault.createFile","args":{"path":"b.md","content":"x"},"dependsOn":["a"]}])),
            "VALIDATION_ERROR",
        ),
        (
            plan(json!([{"id":"a","tool":"vault.createFile","args":{"path":"a.md","content":"x"},"when":"always"}])),
            "VALIDATION_ERROR",
        ),
        (plan(json!([write])).replace("\"writes\"", "\"read-only\""), "VALIDATION_ERROR"),
        (plan(json!([write])).replace("\"1.0\"", "\"9.0\""), "VALIDATION_ERROR"),
        (
            plan(json!([step("a", "vault.createFile", json!({"path":"a.md","content":"DEEP"}))]))
                .replace("\"DEEP\"", &deep),
            "VALIDATION_ERROR",
        ),
    ];
    for (text, code) in cases {
        let file = place.home.join("bad.json");
        std::fs::create_dir_all(&place.home).unwrap();
        std::fs::write(&file, &text).unwrap();
        let file = file.display().to_string();
        let ran = place.run(&["plan", "run", &file, "--yes", "--json"]);
        assert_ne!(ran.code, 0, "{text}");
        assert_eq!(ran.error_code(), code, "{text}: {ran:?}");
        let checked = place.run(&["plan", "check", &file, "--json"]);
        assert_ne!(checked.code, 0, "{text}");
    }
    untouched(&place);
    assert_eq!(place.run(&["runs", "list", "--json"]).json()["runs"], json!([]), "no run was started");
}

#[test]
fn huge_input_is_refused_not_swallowed() {
    let place = place();
    let file = place.home.join("huge.json");
    std::fs::create_dir_all(&place.home).unwrap();
    std::fs::write(&file, format!("{{\"path\":\"big.md\",\"content\":\"{}\"}}", "x".repeat(9 << 20))).unwrap();
    let ran = place.run(&["call", "vault.createFile", "--args", &format!("@{}", file.display()), "--json"]);
    assert_eq!(ran.error_code(), "LIMIT_EXCEEDED", "{}", ran.stderr);
    std::fs::write(&file, "[".repeat(40 << 20)).unwrap();
    let ran = place.run(&["plan", "check", file.to_str().unwrap(), "--json"]);
    assert_eq!(ran.error_code(), "LIMIT_EXCEEDED");
    untouched(&place);
}
