//! `docs/reference/configuration.md`: every key with its type, default and meaning, from the types alone.
//!
//! A released program has no code that makes the schema from the types; it has the text of `schema/config.schema.json`.

use super::{Config, secrets};
use serde_json::{Value, json};
use toolyard_service::stored;

static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/config.schema.json.z"));

/// The schema of the configuration.
pub(super) fn schema() -> Value {
    if stored::FROM_TYPES {
        return from_types();
    }
    stored_schema().unwrap_or_else(|error| {
        tracing::error!(%error, "the schema of the configuration cannot be read");
        // Nothing says which settings are secret, so all are.
        json!({ secrets::MARK: "value" })
    })
}

/// The schema, as `schema/config.schema.json` has it.
pub fn schema_text() -> String {
    format!("{:#}\n", schema())
}

fn stored_schema() -> std::io::Result<Value> {
    Ok(serde_json::from_str(&stored::unpack(PACKED)?)?)
}

fn from_types() -> Value {
    schemars::generate::SchemaSettings::draft2020_12()
        .with(|s| s.inline_subschemas = true)
        .into_generator()
        .into_root_schema_for::<Config>()
        .into()
}

/// The reference of every key, in Markdown, from the types.
pub fn reference() -> String {
    let schema = schema();
    let defaults = super::secrets::as_value(&Config::default());
    let mut out = String::from(
        "# Configuration\n\n<!-- Written by `make docs` from the types in crates/toolyard/src/config. -->\n\n\
         These are the keys of `TOOLYARD_HOME/config.toml`. Every key is optional, and an unknown key is an error. `toolyard config check` checks the \
         file; `toolyard config show` prints the resolved configuration. The values of settings that may hold a secret are hidden there, in \
         `config.get`, in logs and errors, and in the output of upstream servers and plugins.\n\n\
         | key | type | default | meaning |\n| --- | --- | --- | --- |\n",
    );
    rows(&schema, &defaults, "", &mut out);
    out
}

fn rows(schema: &Value, defaults: &Value, prefix: &str, out: &mut String) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (key, property) in properties {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let default = defaults.get(key);
        let meaning = property
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .replace('\n', " ")
            .replace('|', "\\|");
        let meaning = meaning + how_shown(property);
        if property.get("properties").is_some() {
            out.push_str(&format!("| `[{path}]` | table | | {meaning} |\n"));
            rows(property, default.unwrap_or(&Value::Null), &path, out);
            continue;
        }
        let shown = default.map_or_else(|| "unset".to_owned(), |d| format!("`{d}`")).replace('|', "\\|");
        out.push_str(&format!("| `{path}` | {} | {shown} | {meaning} |\n", type_of(property)));
        if let Some(layer) = property.get("additionalProperties").filter(|l| l.get("properties").is_some()) {
            rows(layer, &Value::Null, &format!("{path}.<name>"), out);
        }
        if let Some(item) = property.get("items").filter(|i| i.get("properties").is_some()) {
            rows(item, &Value::Null, &format!("{path}[]"), out);
        }
    }
}

/// A sentence about what is hidden of a setting when the configuration is shown.
fn how_shown(property: &Value) -> &'static str {
    match property.get("x-secret").and_then(Value::as_str) {
        Some("value") => " Shown as `(hidden)`.",
        Some("url") => " Shown without user, password and query.",
        Some("argument") => " Shown without their values.",
        _ => "",
    }
}

fn type_of(property: &Value) -> String {
    let words = |v: &Value| {
        v.as_array()
            .map(|a| a.iter().filter_map(Value::as_str).filter(|t| *t != "null").map(str::to_owned).collect::<Vec<_>>())
    };
    if let Some(options) = property.get("oneOf").or(property.get("anyOf")).and_then(Value::as_array) {
        let mut all: Vec<String> = options.iter().map(type_of).filter(|t| t != "null").collect();
        all.dedup();
        return all.join(" or ");
    }
    if let Some(word) = property.get("const") {
        return format!("`{word}`");
    }
    if let Some(options) = property.get("enum").and_then(words) {
        return options.iter().map(|o| format!("`\"{o}\"`")).collect::<Vec<_>>().join(" or ");
    }
    match property.get("type") {
        Some(Value::String(t)) if t == "array" => {
            format!("list of {}", property.get("items").map_or("any".to_owned(), type_of))
        }
        Some(Value::String(t)) => t.clone(),
        Some(list) => words(list).unwrap_or_default().join(" or "),
        None => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_program_has_the_schema_of_the_types() {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/config.schema.json");
        let committed = std::fs::read_to_string(file).unwrap_or_default();
        assert!(committed == schema_text(), "schema/config.schema.json is out of date: run `make docs`");
        assert_eq!(stored_schema().unwrap(), from_types());
    }

    #[test]
    fn the_reference_names_every_key_of_the_default() {
        let page = reference();
        for key in [
            "gateway.port",
            "policy.limits.maxConcurrency",
            "policy.sandbox.allowedRoots",
            "tools.toolSearch",
            "engine.graceMs",
            "record.files",
            "log.level",
            "knowledge.embedding.kind",
        ] {
            assert!(page.contains(&format!("`{key}`")), "{key}");
        }
    }

    #[toolyard_shows::shows("001-3-10")]
    #[test]
    fn the_page_says_that_tool_search_is_experimental_and_off_unless_set() {
        let row = reference().lines().find(|l| l.starts_with("| `tools.toolSearch`")).unwrap_or_default().to_owned();
        assert!(row.contains("| unset | Experimental."), "{row}");
        assert!(!Config::default().tool_search().unwrap().is_searching());
    }
}
