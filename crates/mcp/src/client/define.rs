//! Turns an upstream server's tool into a catalog entry: a name with a prefix, a checkable schema, and a risk level
//! that the operator's settings allow.

use super::{
    config::{ServerConfig, Trust},
    definition::Definition,
    terms::{PluginTerms, ToolTerms},
};
use crate::{
    headers::{self, Mirrored},
    wire::{Payload, upstream::ToolDetails},
};
use serde::Deserialize;
use serde_json::{Value, json};
use toolyard_catalog::{ToolEntry, ToolSource};
use toolyard_protocol::{
    Availability, Idempotency, MAX_TOOL_NAME_BYTES, RiskLevel, ToolDefinition, ToolName, Undo, canonical,
};

/// The longest description, in characters; descriptions are sent to models with every list.
const MAX_DESCRIPTION: usize = 8 << 10;
/// A title is cut here.
const MAX_TITLE: usize = 200;
/// Hex digits of the hash that makes shortened names unique.
const HASH_DIGITS: usize = 8;

/// A tool of an upstream server, ready for the catalog.
pub(crate) struct CatalogTool {
    pub(crate) entry: ToolEntry,
    /// The name the server knows it by.
    pub(crate) original: String,
    /// The parts of the definition that are not in the catalog.
    pub(crate) extras: ToolDetails,
    /// Arguments mirrored into headers.
    pub(crate) mirrored: Vec<Mirrored>,
}

/// The parts of a definition that the catalog uses. A value of the wrong type counts as missing.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfferedDefinition {
    title: Option<Value>,
    /// A plugin's word for the title.
    label: Option<Value>,
    input_schema: Option<Value>,
    optional: Option<Value>,
}

/// The annotations that the catalog may trust.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hints {
    title: Option<Value>,
    read_only_hint: Option<Value>,
    idempotent_hint: Option<Value>,
}

/// Builds a tool from a server's definition. `Err` says why it is left out.
pub(crate) fn define(
    source: ToolSource,
    config: &ServerConfig,
    terms: Option<&PluginTerms>,
    tool: &Definition,
) -> Result<CatalogTool, String> {
    let original = tool.name();
    let prefix = if terms.is_some() { String::new() } else { config.prefix(&source.name) };
    let name = tool_name(&prefix, original).ok_or_else(|| format!("{original:?} cannot be a name"))?;
    let offered: OfferedDefinition = tool.view()?;
    let details: ToolDetails = tool.view()?;
    let hints = match &details.annotations {
        Some(said @ Value::Object(_)) => Hints::deserialize(said).map_err(|e| e.to_string())?,
        _ => Hints::default(),
    };
    let hint = |said: &Option<Value>| config.trust == Trust::Annotations && *said == Some(Value::Bool(true));
    let mut input = match &offered.input_schema {
        Some(Value::Object(schema)) => compact(schema, usize::from(!schema.contains_key("type"))),
        None => Payload::new(),
        Some(_) => return Err("its inputSchema is not an object".to_owned()),
    };
    input.entry("type").or_insert_with(|| "object".into());
    let mirrored = headers::mirrored(&input)?;
    let title = offered.title.as_ref().or(offered.label.as_ref()).or(hints.title.as_ref()).and_then(Value::as_str);
    let title = title.map(str::trim).filter(|t| !t.is_empty()).unwrap_or(original);
    let description = tool.text("description").map(str::trim).filter(|d| !d.is_empty());
    let own = terms.map(|terms| terms.tools.get(original).cloned().unwrap_or_default());
    let own_terms = own.as_ref();
    let reads = match own_terms {
        // A manifest was installed by an operator, so its statement is trusted. Without a statement, the tool counts as
        // writing.
        Some(own) => own.side_effecting.map_or_else(|| hint(&hints.read_only_hint), |changes| !changes),
        None => hint(&hints.read_only_hint),
    };
    let again = hint(&hints.idempotent_hint) || own_terms.is_some_and(|own| own.replay_safe);
    let definition = ToolDefinition {
        name,
        title: title.chars().take(MAX_TITLE).collect(),
        description: cut(description.unwrap_or("No description."), MAX_DESCRIPTION),
        category: if terms.is_some() { "plugin" } else { "mcp" }.into(),
        risk_level: if reads { RiskLevel::ReadOnly } else { RiskLevel::Writes },
        version: "1.0.0".into(),
        input_schema: input.into(),
        output_schema: details
            .output_schema
            .as_ref()
            .and_then(Value::as_object)
            .and_then(wrapped)
            .map(|s| compact(&s, 0).into()),
        side_effects: if reads { Vec::new() } else { vec!["external".into()] },
        idempotency: match (reads, again) {
            (true, _) => Idempotency::Pure,
            (false, true) => Idempotency::Idempotent,
            (false, false) => Idempotency::None,
        },
        required_permissions: permissions(terms, own_terms, reads),
        availability: Availability::default(),
        cancellable: true,
        supports_dry_run: false,
        default_timeout_ms: config.timeout_ms,
        max_timeout_ms: None,
        undo: Undo::None,
    };
    let mut entry = ToolEntry::new(definition, source).map_err(|e| e.to_string())?;
    if let Some(own) = own {
        let optional = own.optional || offered.optional == Some(Value::Bool(true));
        entry = entry.with_optional(optional).with_profiles(own.profiles);
    }
    Ok(CatalogTool { entry, original: original.to_owned(), extras: details, mirrored })
}

/// A plugin's tool always needs a permission: those in its manifest, otherwise to read from or write to the plugin.
fn permissions(terms: Option<&PluginTerms>, own: Option<&ToolTerms>, reads: bool) -> Vec<String> {
    let Some(terms) = terms else { return Vec::new() };
    match own {
        Some(own) if !own.permissions.is_empty() => own.permissions.clone(),
        _ => vec![format!("{}:{}", terms.plugin, if reads { "read" } else { "write" })],
    }
}

/// Prefix and name in the catalog's alphabet; too long is cut and ends in a hash of the whole.
pub(crate) fn tool_name(prefix: &str, original: &str) -> Option<ToolName> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '_' };
    let spelled: String = original.chars().map(plain).collect();
    let differs = spelled != original;
    let full = format!("{prefix}{spelled}");
    let full = full.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned();
    if full.is_empty() {
        return None;
    }
    if full.len() <= MAX_TOOL_NAME_BYTES && !differs {
        return ToolName::parse(&full).ok();
    }
    let hash = canonical::sha256_hex(original.as_bytes());
    let room = MAX_TOOL_NAME_BYTES - HASH_DIGITS - 1;
    let kept = &full[..full.len().min(room)]; // ASCII by now
    ToolName::parse(&format!("{kept}_{}", &hash[..HASH_DIGITS])).ok()
}

/// The schema of `{content, structuredContent}`, if the server has one for the latter. References must still work one
/// level deeper; if they cannot, nothing is checked.
fn wrapped(schema: &Payload) -> Option<Payload> {
    let mut defs = Payload::new();
    for key in ["$defs", "definitions"] {
        if let Some(inner) = schema.get(key) {
            defs.insert(key.to_owned(), inner.clone());
        }
    }
    if !references(&Value::Object(schema.clone())) {
        return None;
    }
    let outer = json!({
        "type": "object", "required": ["content"],
        "properties": {"content": {"type": "array"}, "structuredContent": schema},
    });
    let Value::Object(mut outer) = outer else { return None };
    outer.extend(defs);
    Some(outer)
}

/// Whether every reference still works when the schema is nested one level deeper.
fn references(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().all(|(key, value)| match (key.as_str(), value) {
            ("$ref" | "$dynamicRef", Value::String(to)) => {
                to.starts_with("#/$defs/") || to.starts_with("#/definitions/")
            }
            ("$id" | "$anchor" | "$dynamicAnchor", _) => false,
            (_, value) => references(value),
        }),
        Value::Array(list) => list.iter().all(references),
        _ => true,
    }
}

/// The same without spare capacity, except for `more` keys at the top: there may be thousands of schemas, and they are
/// kept.
fn compact(map: &Payload, more: usize) -> Payload {
    let mut small = Payload::with_capacity(map.len() + more);
    for (key, value) in map {
        small.insert(key.clone(), compact_value(value));
    }
    small
}

fn compact_value(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(compact(map, 0)),
        Value::Array(list) => Value::Array(list.iter().map(compact_value).collect()),
        other => other.clone(),
    }
}

fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(value: Value) -> Payload {
        value.as_object().unwrap().clone()
    }

    fn definition(value: Value) -> Definition {
        Definition::of(&tool(value)).unwrap()
    }

    #[test]
    fn names_are_namespaced_and_never_collide() {
        let name = |original: &str| tool_name("cal__", original).unwrap().to_string();
        assert_eq!(name("create_event"), "cal__create_event");
        assert_ne!(name("a b"), name("a_b"));
        assert_ne!(name("a b"), name("a/b"));
        let (x, y) = (name(&format!("{}x", "n".repeat(200))), name(&format!("{}y", "n".repeat(200))));
        assert!(x != y && x.len() <= 128);
        assert!(tool_name("", "///").is_none());
    }

    #[test]
    fn a_server_is_not_believed_unless_told_to() {
        let reads = definition(json!({"name": "t", "inputSchema": {}, "annotations": {"readOnlyHint": true}}));
        let config = ServerConfig::default();
        let doubted = define(ToolSource::mcp("s"), &config, None, &reads).unwrap();
        assert_eq!(doubted.entry.definition().risk_level, RiskLevel::Writes);
        assert_eq!(doubted.entry.id(), "mcp:s:t");
        let trusted =
            define(ToolSource::mcp("s"), &ServerConfig { trust: Trust::Annotations, ..config }, None, &reads).unwrap();
        assert_eq!(trusted.entry.definition().risk_level, RiskLevel::ReadOnly);
    }

    #[test]
    fn an_output_schema_is_checked_where_its_references_allow() {
        let plain = tool(
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string"}}}),
        );
        let outer = wrapped(&plain).unwrap();
        assert_eq!(outer["$defs"]["x"]["type"], "string");
        assert!(wrapped(&tool(json!({"type": "object", "properties": {"a": {"$ref": "#"}}}))).is_none());
    }
}
