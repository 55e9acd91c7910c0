//! How a tool is told to a model: short in a search, whole in a description.

use serde_json::{Map, Value, json};
use toolyard_catalog::{SourceKind, ToolEntry, safe_name};

/// Characters of a description in a search result.
const MAX_DESCRIPTION_CHARS: usize = 300;
/// Characters of a signature.
const MAX_SIGNATURE_CHARS: usize = 240;
/// Parameters named in a signature.
const MAX_SIGNATURE_PARAMETERS: usize = 12;

/// The compact form: enough to choose by.
pub(crate) fn compact(entry: &ToolEntry) -> Map<String, Value> {
    let definition = entry.definition();
    let mut map = Map::new();
    map.insert("id".to_owned(), entry.id().into());
    map.insert("source".to_owned(), entry.source().catalog_source().into());
    map.insert("sourceName".to_owned(), (*entry.source().name).into());
    if entry.source().kind == SourceKind::Mcp {
        let server = &*entry.source().name;
        let safe: String =
            server.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect();
        let meta = json!({"serverName": server, "safeServerName": safe, "toolName": entry.name(), "operation": "tool"});
        map.insert("mcp".to_owned(), meta);
    }
    map.insert("name".to_owned(), entry.name().as_str().into());
    map.insert("label".to_owned(), one_line(&definition.title, 80).into());
    map.insert("description".to_owned(), one_line(&definition.description, MAX_DESCRIPTION_CHARS).into());
    map
}

/// The compact form as a search shows it, with a signature where the schema can be trusted.
pub(crate) fn found(entry: &ToolEntry) -> Map<String, Value> {
    let mut map = compact(entry);
    map.insert("input".to_owned(), signature(entry).into());
    map
}

/// Cuts a found tool down to what it is chosen and called by: id, and a description of so many characters. Signatures
/// go with the last of the description: by then `tool_describe` is needed anyway.
pub(crate) fn shorten(found: &mut Value, chars: usize) {
    let Value::Object(map) = found else { return };
    for key in ["label", "sourceName", "mcp"] {
        map.remove(key);
    }
    if chars == 0 {
        map.retain(|key, _| key == "id");
    } else if let Some(Value::String(text)) = map.get_mut("description") {
        *text = one_line(text, chars);
    }
}

/// Everything, with the exact schema.
pub(crate) fn described(entry: &ToolEntry) -> Map<String, Value> {
    let mut map = compact(entry);
    map.insert("description".to_owned(), entry.definition().description.as_str().into());
    map.insert("parameters".to_owned(), entry.definition().input_schema.value());
    if let Some(schema) = &entry.definition().output_schema
        && entry.source().is_trusted()
    {
        map.insert("outputSchema".to_owned(), schema.value());
    }
    map
}

/// A signature in the manner of TypeScript. Names in a stranger's schema are a stranger's text: they are not shown.
fn signature(entry: &ToolEntry) -> String {
    if !entry.source().is_trusted() {
        return "unknown".to_owned();
    }
    let schema = entry.definition().input_schema.parse();
    let Some(Value::Object(properties)) = schema.get("properties") else { return "{}".to_owned() };
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let mut parts: Vec<String> = Vec::new();
    // What must be given comes first, so that it survives the cut.
    let mut names: Vec<&String> = properties.keys().collect();
    names.sort_by_key(|name| !required.contains(&name.as_str()));
    for name in names.iter().take(MAX_SIGNATURE_PARAMETERS) {
        let mark = if required.contains(&name.as_str()) { "" } else { "?" };
        let kind = properties.get(name.as_str()).map_or("any", type_word);
        parts.push(format!("{name}{mark}: {kind}"));
    }
    if names.len() > MAX_SIGNATURE_PARAMETERS {
        parts.push("...".to_owned());
    }
    one_line(&format!("{{ {} }}", parts.join(", ")), MAX_SIGNATURE_CHARS)
}

fn type_word(property: &Value) -> &'static str {
    match property.get("type").and_then(Value::as_str) {
        Some("string") => "string",
        Some("integer" | "number" | "float") => "number",
        Some("boolean") => "boolean",
        Some("array") => "array",
        Some("object" | "dict") => "object",
        Some("null") => "null",
        _ => "any",
    }
}

/// White space collapsed, and cut with three dots.
pub(crate) fn one_line(text: &str, chars: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > chars * 4 {
            break;
        }
    }
    if line.chars().count() <= chars {
        return line;
    }
    line.chars().take(chars.saturating_sub(3)).chain("...".chars()).collect()
}

/// A name as models may be shown it.
pub(crate) fn shown_name(catalog: &toolyard_catalog::Snapshot, entry: &ToolEntry) -> String {
    let known = catalog.safe_name(entry);
    if known.is_empty() { safe_name(entry.name()) } else { known }
}
