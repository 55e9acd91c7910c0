//! What a policy says, case by case.

use crate::{args, core, from};
use serde_json::{Value, json};
use toolyard_catalog::{Decision, EffectivePolicy, Policy, PolicyConfig, Profile, Subject, ToolEntry, ToolSource};

fn config(value: Value) -> PolicyConfig {
    serde_json::from_value(value).unwrap()
}

fn admin() -> Vec<String> {
    vec!["operator.admin".to_owned()]
}

fn effective(value: Value) -> std::sync::Arc<EffectivePolicy> {
    effective_for(value, "main", None, "gateway", &admin())
}

fn effective_for(
    value: Value,
    agent: &str,
    session: Option<&str>,
    door: &str,
    scopes: &[String],
) -> std::sync::Arc<EffectivePolicy> {
    Policy::compile(&config(value)).unwrap().effective(&Subject { agent, session, door, scopes })
}

fn read(name: &str) -> ToolEntry {
    core(name, "read-only", json!({"category":"vault"}))
}

fn write(name: &str) -> ToolEntry {
    let path = json!({"type":"object","properties":{"path":{"type":"string","format":"vault-path"}}});
    core(name, "writes", json!({"category":"vault","inputSchema":path}))
}

fn rule(decision: Decision) -> String {
    match decision {
        Decision::Allow => "allow".to_owned(),
        Decision::Deny { rule, .. } => format!("deny {rule}"),
        Decision::Ask { rule, .. } => format!("ask {rule}"),
    }
}

#[track_caller]
fn check(policy: Value, tool: &ToolEntry, expected: &str) {
    assert_eq!(rule(effective(policy.clone()).decide(tool, None)), expected, "{policy}");
}

#[track_caller]
fn check_call(policy: Value, tool: &ToolEntry, call: Value, expected: &str) {
    assert_eq!(rule(effective(policy.clone()).decide(tool, Some(&args(call)))), expected, "{policy}");
}

#[test]
fn the_default_reads_asks_for_writes_and_denies_commands() {
    check(json!({}), &read("vault.readFile"), "allow");
    check(json!({}), &write("vault.writeFile"), "ask policy.risk.writes");
    check(json!({}), &core("commands.run", "commands", json!({})), "deny policy.allowCommands");
    check(json!({"allowCommands":true}), &core("commands.run", "commands", json!({})), "ask policy.risk.commands");
}

#[toolyard_shows::shows("001-6-11")]
#[test]
fn deny_wins_in_every_mode() {
    for mode in ["ask", "yolo", "paranoid"] {
        let policy = json!({"deny":["vault.*"],"allow":["*"],"approval":{"mode":mode,"allowedTools":["*"]}});
        check(policy, &read("vault.readFile"), "deny policy.deny");
    }
}

#[test]
fn modes_differ_in_whom_they_ask_about() {
    let (reads, writes) = (read("vault.readFile"), write("vault.writeFile"));
    check(json!({"approval":{"mode":"yolo"}}), &writes, "allow");
    check(json!({"approval":{"mode":"paranoid"}}), &reads, "ask policy.approval.mode");
    check(json!({"approval":{"mode":"paranoid","allowedTools":["vault.read*"]}}), &reads, "allow");
    check(json!({"approval":{"mode":"paranoid","allowedTools":["vault.read*"]}}), &writes, "ask policy.approval.mode");
    check(json!({"approval":{"allowedTools":["vault.writeFile"]}}), &writes, "allow");
}

#[test]
fn risk_rules_decide_by_level() {
    check(json!({"risk":{"writes":"allow"}}), &write("w"), "allow");
    check(json!({"risk":{"writes":"deny"},"approval":{"mode":"yolo"}}), &write("w"), "deny policy.risk.writes");
    check(json!({"risk":{"readOnly":"ask"}}), &read("r"), "ask policy.risk.readOnly");
    check(json!({"risk":{"read-only":"deny"}}), &read("r"), "deny policy.risk.readOnly");
}

#[test]
fn lists_take_names_globs_groups_plugins_and_servers() {
    let vault = read("vault.readFile");
    let plugin = from(ToolSource::plugin("bench"), "bench_echo", "read-only");
    let mcp = from(ToolSource::mcp("calendar"), "create_event", "read-only");
    let client = from(ToolSource::client(), "pick", "read-only");
    for (word, hits) in [
        ("vault.readFile", [true, false, false, false]),
        ("VAULT.readfile", [true, false, false, false]),
        ("vault_readFile", [true, false, false, false]),
        ("openclaw:core:*", [true, false, false, false]),
        ("group:vault", [true, false, false, false]),
        ("group:fs", [true, false, false, false]),
        ("group:web", [false, false, false, false]),
        ("group:openclaw", [true, false, false, false]),
        ("group:plugins", [false, true, false, false]),
        ("bench", [false, true, false, false]),
        ("calendar__*", [false, false, true, false]),
        ("calendar__create_event", [false, false, true, false]),
        ("mcp:calendar:*", [false, false, true, false]),
        ("bundle-mcp", [false, false, true, false]),
        ("group:client", [false, false, false, true]),
        ("group:mine", [true, true, false, false]),
        ("*", [true, true, true, true]),
    ] {
        let policy = json!({"deny":[word],"groups":{"mine":["group:vault","group:inner"],"inner":["bench"]}});
        for (tool, hit) in [&vault, &plugin, &mcp, &client].into_iter().zip(hits) {
            check(policy.clone(), tool, if hit { "deny policy.deny" } else { "allow" });
        }
        let policy = json!({"allow":[word],"groups":{"mine":["group:vault","group:inner"],"inner":["bench"]}});
        for (tool, hit) in [&vault, &plugin, &mcp, &client].into_iter().zip(hits) {
            check(policy.clone(), tool, if hit { "allow" } else { "deny policy.allow" });
        }
    }
}

#[test]
fn a_stranger_cannot_talk_itself_into_a_group() {
    let mcp = ToolEntry::new(
        crate::definition("vault.readFile", "read-only", json!({"category":"vault"})),
        ToolSource::mcp("evil"),
    );
    check(json!({"allow":["group:vault","group:openclaw"]}), &mcp.unwrap(), "deny policy.allow");
}

#[test]
fn an_empty_allow_list_admits_nothing() {
    check(json!({"allow":[]}), &read("r"), "deny policy.allow");
}

#[test]
fn profiles_select_and_also_allow_adds() {
    let util = core("util.slugifyTitle", "read-only", json!({}));
    check(json!({"profile":"minimal"}), &util, "allow");
    check(json!({"profile":"minimal"}), &read("vault.readFile"), "deny policy.profile");
    check(json!({"profile":"minimal","alsoAllow":["vault.read*"]}), &read("vault.readFile"), "allow");
    check(json!({"profile":"coding"}), &read("vault.readFile"), "allow");
    check(json!({"profile":"messaging"}), &read("vault.readFile"), "deny policy.profile");
    check(json!({"profile":"minimal"}), &from(ToolSource::mcp("m"), "x", "read-only"), "deny policy.profile");
    check(json!({"profile":"coding"}), &from(ToolSource::mcp("m"), "x", "read-only"), "allow");
    let declared = from(ToolSource::plugin("p"), "x", "read-only").with_profiles(vec![Profile::Messaging]);
    check(json!({"profile":"messaging"}), &declared, "allow");
    check(json!({"profile":"coding"}), &declared, "deny policy.profile");
    check(json!({"profile":"full"}), &declared, "allow");
}

#[test]
fn optional_tools_wait_to_be_named() {
    let optional = || from(ToolSource::plugin("p"), "x", "read-only").with_optional(true);
    check(json!({}), &optional(), "deny policy.alsoAllow");
    for policy in [json!({"alsoAllow":["x"]}), json!({"allow":["p"]}), json!({"profile":"full"})] {
        check(policy, &optional(), "allow");
    }
    check(json!({"agents":{"main":{"alsoAllow":["x"]}}}), &optional(), "deny policy.alsoAllow");
}

#[toolyard_shows::shows("001-2-01", "001-6-12")]
#[test]
fn layers_hold_for_their_agent_session_and_door() {
    let policy = json!({"agents":{"guest":{"deny":["vault.*"]}},"sessions":{"agent:main:sub*":{"allow":["util.*"]}},
        "doors":{"mcp":{"risk":{"writes":"deny"}}}});
    let tool = write("vault.writeFile");
    for (agent, session, door, expected) in [
        ("main", None, "gateway", "ask policy.risk.writes"),
        ("guest", None, "gateway", "deny policy.agents.guest.deny"),
        ("main", Some("agent:main:subagent:7"), "gateway", "deny policy.sessions.agent:main:sub*.allow"),
        ("main", Some("agent:main:main"), "gateway", "ask policy.risk.writes"),
        ("main", None, "mcp", "deny policy.risk.writes"),
    ] {
        let effective = effective_for(policy.clone(), agent, session, door, &admin());
        assert_eq!(rule(effective.decide(&tool, None)), expected, "{agent} {session:?} {door}");
    }
}

#[test]
fn a_layer_that_would_widen_is_refused_by_name() {
    for (layer, key) in [
        (json!({"approvalMode":"yolo"}), "policy.agents.x.approvalMode"),
        (json!({"risk":{"writes":"allow"}}), "policy.agents.x.risk.writes"),
        (json!({"allowCommands":true}), "policy.agents.x.allowCommands"),
        (json!({"allowDelete":true}), "policy.agents.x.allowDelete"),
        (json!({"allow":["a"],"alsoAllow":["b"]}), "policy.agents.x.alsoAllow"),
        (json!({"deny":["group:nope"]}), "policy.agents.x.deny"),
        (json!({"deny":[" "]}), "policy.agents.x.deny"),
        (json!({"ask":[{"tools":["*"],"timeoutMs":600001}]}), "policy.agents.x.ask.0.timeoutMs"),
        (json!({"ask":[{"tools":[]}]}), "policy.agents.x.ask.0.tools"),
        (json!({"denyGlobs":["a["]}), "policy.agents.x.denyGlobs"),
    ] {
        let error = Policy::compile(&config(json!({"agents":{"x":layer}}))).unwrap_err();
        assert_eq!(error.key, key, "{error}");
    }
}

#[test]
fn a_wrong_global_setting_is_refused_by_name() {
    for (value, key) in [
        (json!({"allow":["a"],"alsoAllow":["b"]}), "policy.alsoAllow"),
        (json!({"approval":{"timeoutMs":0}}), "policy.approval.timeoutMs"),
        (json!({"approval":{"timeoutMs":600001}}), "policy.approval.timeoutMs"),
        (json!({"groups":{"vault":["x"]}}), "policy.groups.vault"),
        (json!({"groups":{"a":["group:b"],"b":["group:a"]}}), "policy.groups.a"),
        (json!({"groups":{"a b":[]}}), "policy.groups.a b"),
        (json!({"doors":{"windw":{}}}), "policy.doors.windw"),
        (json!({"limits":{"maxConcurrency":0}}), "policy.limits.maxConcurrency"),
        (json!({"sandbox":{"denyGlobs":["{a"]}}), "policy.sandbox.denyGlobs"),
        (json!({"approval":{"allowedPaths":["["]}}), "policy.approval.allowedPaths"),
    ] {
        let error = Policy::compile(&config(value)).unwrap_err();
        assert_eq!(error.key, key, "{error}");
    }
    assert!(serde_json::from_value::<PolicyConfig>(json!({"denny":[]})).is_err());
}

#[test]
fn ask_rules_ask_even_in_yolo_mode_with_their_own_time() {
    let policy = json!({"approval":{"mode":"yolo","allowedTools":["*"],"timeoutMs":5000},"ask":[
        {"tools":["vault.delete"],"reason":"Deletes notes","timeoutMs":30000},{"tools":["vault.*"],"paths":["Private/**"]}]});
    let effective = effective(policy);
    let delete = write("vault.delete");
    let expected = Decision::Ask { reason: "Deletes notes".into(), rule: "policy.ask.0".into(), timeout_ms: 30_000 };
    assert_eq!(effective.decide(&delete, None), expected);
    let tool = write("vault.writeFile");
    assert_eq!(rule(effective.decide(&tool, None)), "allow");
    assert_eq!(rule(effective.decide(&tool, Some(&args(json!({"path":"Open/a.md"}))))), "allow");
    match effective.decide(&tool, Some(&args(json!({"path":"private/a.md"})))) {
        Decision::Ask { rule, timeout_ms, .. } => assert_eq!((rule.as_str(), timeout_ms), ("policy.ask.1", 5000)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn allowed_paths_spare_the_question_but_no_denial() {
    let policy = json!({"approval":{"allowedPaths":["Inbox/**"]}});
    let tool = write("vault.writeFile");
    check(policy.clone(), &tool, "ask policy.risk.writes");
    check_call(policy.clone(), &tool, json!({"path":"Inbox/a.md"}), "allow");
    check_call(policy.clone(), &tool, json!({"path":"inbox/a.md"}), "ask policy.risk.writes");
    check_call(policy.clone(), &tool, json!({"path":"Else/a.md"}), "ask policy.risk.writes");
    check_call(policy.clone(), &tool, json!({}), "ask policy.risk.writes");
    check_call(policy, &tool, json!({"path":"Inbox/../Else/a.md"}), "deny policy.sandbox.denyPatterns");
    let paranoid = json!({"approval":{"mode":"paranoid","allowedPaths":["Inbox/**"]}});
    check_call(paranoid, &tool, json!({"path":"Inbox/a.md"}), "ask policy.approval.mode");
    let open = json!({"approval":{"allowedPaths":["Inbox/**"]},"sandbox":{"enabled":false}});
    check_call(open, &tool, json!({"path":"Inbox/../Else/a.md"}), "ask policy.risk.writes");
}

#[test]
fn the_sandbox_holds_for_reads_and_in_yolo_mode_too() {
    let schema = json!({"type":"object","properties":{"path":{"type":"string","format":"vault-path"}}});
    let tool = core("vault.readFile", "read-only", json!({"inputSchema":schema}));
    for mode in ["ask", "yolo"] {
        let policy =
            json!({"approval":{"mode":mode},"agents":{"main":{"allowedRoots":["Work"],"denyGlobs":["Work/hr/**"]}}});
        check_call(policy.clone(), &tool, json!({"path":"Work/a.md"}), "allow");
        check_call(policy.clone(), &tool, json!({"path":".git/config"}), "deny policy.sandbox.denyGlobs");
        check_call(policy.clone(), &tool, json!({"path":"Home/a.md"}), "deny policy.agents.main.allowedRoots");
        check_call(policy.clone(), &tool, json!({"path":"Work/hr/a.md"}), "deny policy.agents.main.denyGlobs");
        let sandbox = effective(policy).snapshot().sandbox.clone();
        assert_eq!(sandbox.allowed_roots, ["/Work"]);
        assert!(
            sandbox.deny_globs.contains(&"Work/hr/**".to_owned()) && sandbox.deny_globs.contains(&".git/**".to_owned())
        );
    }
}

#[test]
fn deleting_for_good_needs_the_word() {
    let delete = write("vault.delete");
    let plugin = core("x", "writes", json!({"sideEffects":["delete-file"]}));
    for tool in [&delete, &plugin] {
        check_call(json!({}), tool, json!({"path":"a","trash":false}), "deny policy.allowDelete");
        check_call(json!({}), tool, json!({"path":"a","trash":true}), "ask policy.risk.writes");
        check_call(json!({}), tool, json!({"path":"a"}), "ask policy.risk.writes");
        check_call(json!({"allowDelete":true}), tool, json!({"path":"a","trash":false}), "ask policy.risk.writes");
        let layered = json!({"allowDelete":true,"agents":{"main":{"allowDelete":false}}});
        check_call(layered, tool, json!({"path":"a","trash":false}), "deny policy.allowDelete");
    }
    check_call(json!({}), &write("mail.send"), json!({"trash":false}), "ask policy.risk.writes");
}

#[toolyard_shows::shows("000-1-08")]
#[test]
fn scopes_give_permissions() {
    let needs = |permission: &str| core("t", "read-only", json!({"requiredPermissions":[permission]}));
    for (scopes, permission, granted) in [
        (vec!["operator.admin"], "anything:at-all", true),
        (vec!["operator.write"], "vault:write", true),
        (vec!["operator.write"], "vault:read", true),
        (vec!["operator.write"], "vault:admin", false),
        (vec!["operator.read"], "vault:read", true),
        (vec!["operator.read"], "vault:write", false),
        (vec!["crm:export"], "crm:export", true),
        (vec!["operator.approvals"], "vault:read", false),
        (vec![], "vault:read", false),
    ] {
        let scopes: Vec<String> = scopes.into_iter().map(str::to_owned).collect();
        let decision = effective_for(json!({}), "main", None, "gateway", &scopes).decide(&needs(permission), None);
        assert_eq!(rule(decision), if granted { "allow" } else { "deny scopes" }, "{scopes:?} {permission}");
    }
}

#[test]
fn the_hash_changes_with_the_rules_and_with_nothing_else() {
    let base = effective(json!({}));
    assert!(base.hash().starts_with("sha256:") && base.hash().len() == 71);
    assert_eq!(base.hash(), effective(json!({})).hash());
    assert_eq!(base.hash(), effective_for(json!({}), "other", Some("s"), "mcp", &[]).hash());
    for changed in [
        json!({"deny":["x"]}),
        json!({"ask":[{"tools":["x"]}]}),
        json!({"approval":{"allowedTools":["x"]}}),
        json!({"agents":{"main":{"deny":["x"]}}}),
        json!({"limits":{"maxSteps":5}}),
    ] {
        assert_ne!(base.hash(), effective(changed.clone()).hash(), "{changed}");
    }
    let elsewhere = json!({"agents":{"other":{"deny":["x"]}}});
    assert_eq!(base.hash(), effective(elsewhere).hash());
}

#[test]
fn subjects_under_the_same_layers_share_one_effective_policy() {
    let policy = Policy::compile(&config(json!({"agents":{"a":{"deny":["x"]}}}))).unwrap();
    let scopes = admin();
    let of = |agent| policy.effective(&Subject { agent, session: None, door: "cli", scopes: &scopes });
    assert!(std::sync::Arc::ptr_eq(&of("b"), &of("c")));
    assert!(!std::sync::Arc::ptr_eq(&of("a"), &of("b")));
}

#[test]
fn a_replaced_tool_is_judged_anew() {
    let policy = effective(json!({}));
    assert_eq!(rule(policy.decide(&core("x", "read-only", json!({})), None)), "allow");
    assert_eq!(rule(policy.decide(&core("x", "commands", json!({})), None)), "deny policy.allowCommands");
}

#[toolyard_shows::shows("002-3.1-21", "002-3.1-22", "002-3.1-23", "002-6-03")]
#[test]
fn the_snapshot_says_what_holds() {
    let policy = json!({"profile":"coding","deny":["a"],"agents":{"main":{"deny":["b"]}},"limits":{"maxDeletes":3}});
    let effective = effective(policy);
    let snapshot = effective.snapshot();
    assert!(snapshot.confirmations_required);
    assert_eq!(snapshot.allowed_tools, ["profile:coding"]);
    assert_eq!(snapshot.denied_tools, ["a", "b"]);
    assert_eq!(effective.limits().max_deletes, 3);
    assert_eq!(effective.limits().max_concurrency, toolyard_protocol::PolicyLimits::default().max_concurrency);
}

#[test]
fn the_configuration_reference_is_complete() {
    let schema: Value = schemars::schema_for!(PolicyConfig).into();
    let properties = schema["properties"].as_object().unwrap();
    for (name, property) in properties {
        assert!(property["description"].as_str().is_some_and(|text| text.len() > 10), "{name} needs a description");
    }
}
