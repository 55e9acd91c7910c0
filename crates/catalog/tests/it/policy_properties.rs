//! What holds for every policy, tool and call.

use crate::{args, core, from};
use proptest::prelude::*;
use serde_json::{Value, json};
use toolyard_catalog::{Decision, Policy, PolicyConfig, Subject, ToolEntry, ToolSource};

fn tools() -> Vec<ToolEntry> {
    let path = json!({"type":"object","properties":{"path":{"type":"string","format":"vault-path"},"trash":{"type":"boolean"}}});
    vec![
        core(
            "vault.readFile",
            "read-only",
            json!({"category":"vault","inputSchema":path,"requiredPermissions":["vault:read"]}),
        ),
        core(
            "vault.delete",
            "writes",
            json!({"category":"vault","inputSchema":path,"requiredPermissions":["vault:write"]}),
        ),
        core("util.slug", "read-only", json!({})),
        core("commands.run", "commands", json!({"category":"commands"})),
        from(ToolSource::plugin("bench"), "bench_echo", "writes").with_optional(true),
        from(ToolSource::mcp("cal"), "create_event", "writes"),
    ]
}

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "*",
        "vault.*",
        "vault.delete",
        "group:vault",
        "group:util",
        "group:runtime",
        "bench",
        "bundle-mcp",
        "cal__*",
        "create*",
        "nope",
        "group:openclaw",
        "*e*",
    ])
    .prop_map(str::to_owned)
}

fn words() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(word(), 0..4)
}

/// A layer that is always accepted: nothing in it could widen.
fn layer() -> impl Strategy<Value = Value> {
    let profile = prop::option::of(prop::sample::select(vec!["minimal", "coding", "messaging", "full"]));
    let ask = prop::collection::vec((prop::collection::vec(word(), 1..3), prop::option::of(Just("a/**"))), 0..2);
    let risk = prop::option::of(prop::sample::select(vec!["ask", "deny"]));
    let roots = prop::option::of(prop::sample::select(vec![vec!["a"], vec!["/"], vec!["b", "a/c"]]));
    (profile, prop::option::of(words()), words(), words(), ask, risk, roots, any::<(bool, bool, bool)>()).prop_map(
        |(profile, allow, also, deny, ask, risk, roots, (paranoid, no_commands, no_delete))| {
            let mut value = json!({"deny":deny});
            if let Some(profile) = profile {
                value["profile"] = profile.into();
            }
            match allow {
                Some(allow) => value["allow"] = json!(allow),
                None => value["alsoAllow"] = json!(also),
            }
            value["ask"] = ask
                .into_iter()
                .map(|(tools, path)| json!({"tools":tools,"paths":path.into_iter().collect::<Vec<_>>()}))
                .collect();
            if let Some(risk) = risk {
                value["risk"] = json!({"writes":risk});
            }
            if let Some(roots) = roots {
                value["allowedRoots"] = json!(roots);
            }
            if paranoid {
                value["approvalMode"] = "paranoid".into();
            }
            if no_commands {
                value["allowCommands"] = false.into();
            }
            if no_delete {
                value["allowDelete"] = false.into();
            }
            value
        },
    )
}

/// A global policy: a layer's lists, and what only the global policy has.
fn global() -> impl Strategy<Value = Value> {
    let mode = prop::sample::select(vec!["ask", "yolo", "paranoid"]);
    (layer(), mode, words(), any::<(bool, bool, bool)>()).prop_map(|(layer, mode, exempt, (commands, delete, paths))| {
        let mut value = json!({"approval":{"mode":mode,"allowedTools":exempt,"allowedPaths":if paths { vec!["a/**"] } else { vec![] }},
            "allowCommands":commands,"allowDelete":delete,"deny":layer["deny"],"ask":layer["ask"]});
        for key in ["profile", "allow", "alsoAllow"] {
            if let Some(item) = layer.get(key) {
                value[key] = item.clone();
            }
        }
        value
    })
}

fn call() -> impl Strategy<Value = Value> {
    let path = prop::sample::select(vec!["a/x.md", "b/x.md", "A/x.md", "../x", ".git/config", "a/../b", ""]);
    (path, prop::option::of(any::<bool>())).prop_map(|(path, trash)| match trash {
        Some(trash) => json!({"path":path,"trash":trash}),
        None => json!({"path":path}),
    })
}

fn scopes() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(
        prop::sample::select(vec!["operator.admin", "operator.write", "operator.read"]).prop_map(str::to_owned),
        0..2,
    )
}

fn compile(global: &Value, layers: &[&Value]) -> Policy {
    let mut value = global.clone();
    for (index, layer) in layers.iter().enumerate() {
        let mut layer = (*layer).clone();
        // In a paranoid policy every mode but paranoid would be a widening; leave it out.
        if global["approval"]["mode"] == "paranoid" {
            layer.as_object_mut().unwrap().remove("approvalMode");
        }
        // Keys of three tables, so that the order of layers and their kinds vary.
        let (table, name) = [("agents", "main"), ("sessions", "s*"), ("doors", "mcp"), ("agents", "m*")][index % 4];
        value[table][name] = layer;
    }
    Policy::compile(&serde_json::from_value::<PolicyConfig>(value).unwrap()).unwrap()
}

fn decide(policy: &Policy, scopes: &[String], tool: &ToolEntry, call: Option<&Value>) -> Decision {
    let subject = Subject { agent: "main", session: Some("s1"), door: "mcp", scopes };
    let call = call.map(|call| args(call.clone()));
    policy.effective(&subject).decide(tool, call.as_ref())
}

/// Allow, Ask, Deny as 0, 1, 2.
fn strictness(decision: &Decision) -> u8 {
    match decision {
        Decision::Allow => 0,
        Decision::Ask { .. } => 1,
        Decision::Deny { .. } => 2,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_layer_never_loosens_any_answer(global in global(), layers in prop::collection::vec(layer(), 1..5), call in call(), scopes in scopes()) {
        let with: Vec<&Value> = layers.iter().collect();
        let narrow = compile(&global, &with);
        let wide = compile(&global, &with[..with.len() - 1]);
        for tool in tools() {
            for call in [None, Some(&call)] {
                let (before, after) = (decide(&wide, &scopes, &tool, call), decide(&narrow, &scopes, &tool, call));
                prop_assert!(strictness(&after) >= strictness(&before), "{}: {before:?} became {after:?}", tool.id());
            }
        }
    }

    #[test]
    fn a_denied_tool_is_denied_wherever_the_deny_stands(global in global(), layers in prop::collection::vec(layer(), 0..3), call in call(), at in 0usize..4) {
        let mut global = global;
        let mut layers = layers;
        match layers.get_mut(at) {
            Some(layer) => layer["deny"] = json!(["vault.delete"]),
            None => global["deny"] = json!(["vault.delete"]),
        }
        let policy = compile(&global, &layers.iter().collect::<Vec<_>>());
        let admin = ["operator.admin".to_owned()];
        let tool = &tools()[1];
        prop_assert!(decide(&policy, &admin, tool, None).is_denied());
        prop_assert!(decide(&policy, &admin, tool, Some(&call)).is_denied());
    }

    #[toolyard_shows::shows("001-2-02")]
    #[test]
    fn what_a_list_hides_a_call_refuses(global in global(), layers in prop::collection::vec(layer(), 0..4), call in call(), scopes in scopes()) {
        let policy = compile(&global, &layers.iter().collect::<Vec<_>>());
        for tool in tools() {
            if decide(&policy, &scopes, &tool, None).is_denied() {
                prop_assert!(decide(&policy, &scopes, &tool, Some(&call)).is_denied(), "{}", tool.id());
            }
        }
    }

    #[test]
    fn more_scopes_never_deny_more(global in global(), scopes in scopes(), more in scopes()) {
        let policy = compile(&global, &[]);
        let all: Vec<String> = scopes.iter().chain(&more).cloned().collect();
        for tool in tools() {
            let (few, many) = (decide(&policy, &scopes, &tool, None), decide(&policy, &all, &tool, None));
            prop_assert!(strictness(&many) <= strictness(&few));
        }
    }

    #[test]
    fn any_words_are_refused_or_work(words in prop::collection::vec(any::<String>(), 0..4)) {
        let config = PolicyConfig { deny: words.clone(), also_allow: words, ..PolicyConfig::default() };
        if let Ok(policy) = Policy::compile(&config) {
            for tool in tools() {
                let _ = decide(&policy, &[], &tool, None);
            }
        }
    }
}
