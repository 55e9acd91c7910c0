//! What a model is shown of a catalog, directly and in each mode: `context_bytes CATALOG.jsonl`, each line
//! `{"name","description","parameters"}`, taken as the tools of one plugin. Prints one JSON object.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::unwrap_used, clippy::panic)]

use serde_json::{Map, Value, json};
use std::collections::HashSet;
use toolyard_catalog::{Policy, PolicyConfig, Registry, Subject, ToolEntry, ToolSource};
use toolyard_protocol::ToolName;
use toolyard_toolsearch::{Effectives, Mode, Surface, SurfaceRequest, ToolSearchConfig};

fn main() {
    let path = std::env::args().nth(1).expect("usage: context_bytes CATALOG.jsonl");
    let text = std::fs::read_to_string(path).expect("the catalog");
    let mut registry = Registry::new();
    let mut names = HashSet::new();
    for (number, line) in text.lines().filter(|line| !line.trim().is_empty()).enumerate() {
        let tool: Value = serde_json::from_str(line).expect("a tool");
        let spelled: String = tool["name"]
            .as_str()
            .unwrap()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "_.:-".contains(c) { c } else { '_' })
            .collect();
        let usable = ToolName::parse(&spelled).is_ok() && names.insert(spelled.clone());
        let name = if usable { spelled } else { format!("tool_{number}") };
        let mut schema: Map<String, Value> = tool["parameters"].as_object().cloned().unwrap_or_default();
        schema.insert("type".to_owned(), "object".into());
        let description = tool["description"].as_str().filter(|text| !text.trim().is_empty()).unwrap_or("-");
        let definition = serde_json::from_value(json!({
            "name": name, "title": name, "description": description, "category": "plugin", "riskLevel": "read-only",
            "idempotency": "pure", "inputSchema": schema,
        }))
        .expect("a definition");
        registry.add(ToolEntry::new(definition, ToolSource::plugin("catalog")).expect("an entry")).expect("a new tool");
    }
    let policy = Policy::compile(&PolicyConfig::default()).expect("a policy");
    let subject = Subject { agent: "main", session: None, door: "gateway", scopes: &[] };
    let catalog = Effectives::new(None).of(&registry.snapshot(), &policy.effective(&subject), &[]);
    let settings = ToolSearchConfig::Switch(true).settings();
    let direct = Surface::direct(&catalog).bytes;
    let bytes = |mode| Surface::of(&catalog, &settings, mode, &SurfaceRequest::default()).expect("a surface").bytes;
    let (code, tools, directory) = (bytes(Mode::Code), bytes(Mode::Tools), bytes(Mode::Directory));
    let percent = |bytes: usize| (bytes as f64 / direct as f64 * 1e4).round() / 1e2;
    println!(
        "{}",
        json!({
            "tools": catalog.len(), "direct_bytes": direct, "code_bytes": code, "tools_bytes": tools,
            "directory_bytes": directory, "code_percent": percent(code), "tools_percent": percent(tools),
            "directory_percent": percent(directory),
        })
    );
}
