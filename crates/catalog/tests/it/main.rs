//! What the catalog promises to the rest of Toolyard, tested from outside.

#![allow(clippy::unwrap_used, clippy::panic)] // the exemption for tests does not reach their helpers

mod policy;
mod policy_properties;
mod registry;
mod search;

use serde_json::{Map, Value, json};
use toolyard_catalog::{ToolEntry, ToolSource};
use toolyard_protocol::ToolDefinition;

/// The arguments of a call.
pub(crate) fn args(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

/// A definition whose risk fits its other fields, changed by `overrides`.
pub(crate) fn definition(name: &str, risk: &str, overrides: Value) -> ToolDefinition {
    let mut value = json!({
        "name": name, "title": name, "description": format!("Does {name}."), "category": "util", "riskLevel": risk,
        "inputSchema": { "type": "object" }, "idempotency": if risk == "read-only" { "pure" } else { "none" },
    });
    for (key, item) in args(overrides) {
        value[key] = item;
    }
    serde_json::from_value(value).unwrap()
}

/// A core tool.
pub(crate) fn core(name: &str, risk: &str, overrides: Value) -> ToolEntry {
    ToolEntry::new(definition(name, risk, overrides), ToolSource::core()).unwrap()
}

/// A tool of some source.
pub(crate) fn from(source: ToolSource, name: &str, risk: &str) -> ToolEntry {
    ToolEntry::new(definition(name, risk, json!({})), source).unwrap()
}
