//! Times what every call does: look a tool up, decide, check arguments. Prints one JSON object, in microseconds.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use serde_json::json;
use std::{hint::black_box, time::Instant};
use toolyard_catalog::{Policy, PolicyConfig, Registry, Subject, ToolEntry, ToolSource};

/// Tools in the catalog.
const TOOLS: usize = 2_500;
/// Repetitions of each operation.
const ROUNDS: usize = 200_000;

fn main() {
    let schema = json!({"type":"object","additionalProperties":false,"required":["path","content"],"properties":{
        "path":{"type":"string","format":"vault-path"},"content":{"type":"string"},"mode":{"enum":["overwrite","append"]}}});
    let start = Instant::now();
    let mut registry = Registry::new();
    for i in 0..TOOLS {
        let definition = serde_json::from_value(json!({
            "name": format!("vault.tool{i}"), "title": format!("Tool {i}"), "description": "Writes a file.", "category": "vault",
            "riskLevel": "writes", "idempotency": "etag", "inputSchema": schema, "requiredPermissions": ["vault:write"],
        }));
        registry.add(ToolEntry::new(definition.unwrap(), ToolSource::core()).unwrap()).unwrap();
    }
    let register = start.elapsed().as_secs_f64() * 1e6;
    let start = Instant::now();
    let snapshot = registry.snapshot();
    let build = start.elapsed().as_secs_f64() * 1e6;
    let config: PolicyConfig = serde_json::from_value(json!({
        "deny": ["exec", "group:runtime", "bad_*"], "approval": { "allowedPaths": ["Inbox/**"] },
        "agents": { "main": { "deny": ["vault.delete"] } }, "sessions": { "agent:main:sub*": { "profile": "coding" } },
    }))
    .unwrap();
    let policy = Policy::compile(&config).unwrap();
    let scopes = vec!["operator.write".to_owned()];
    let subject = Subject { agent: "main", session: Some("agent:main:sub:1"), door: "gateway", scopes: &scopes };
    let effective = policy.effective(&subject);
    let args = json!({"path":"Inbox/today.md","content":"text ".repeat(200)});
    let entry = snapshot.get("vault.tool77").unwrap();
    let report = json!({
        "tools": TOOLS, "registerAll": register, "snapshot": build,
        "get": time(|| { black_box(snapshot.get(black_box("vault.tool77"))); }),
        "getBySafeName": time(|| { black_box(snapshot.get(black_box("vault_tool77"))); }),
        "effective": time(|| { black_box(policy.effective(black_box(&subject))); }),
        "decideForList": time(|| { black_box(effective.decide(entry, None)); }),
        "decideForCall": time(|| { black_box(effective.decide(entry, args.as_object())); }),
        "checkInput": time(|| { let _ = black_box(entry.check_input(&args)); }),
    });
    println!("{report}");
}

/// Microseconds for one round.
fn time(mut operation: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..ROUNDS).for_each(|_| operation());
    (start.elapsed().as_secs_f64() * 1e6 / ROUNDS as f64 * 1e3).round() / 1e3
}
