//! The HTTP headers into which revision 2026-07-28 copies parts of a request's body: names, values that need encoding,
//! and tool arguments marked with `x-mcp-header`. Used in both directions.

use crate::wire::{Arguments, Payload};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use std::collections::HashSet;
use toolyard_protocol::Schema;

/// Before a value that is encoded.
const PREFIX: &str = "=?base64?";
/// The suffix of an encoded value.
const SUFFIX: &str = "?=";
/// Larger integers are not exact in every language.
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;
/// The keyword that marks such an argument.
const KEYWORD: &str = "x-mcp-header";
/// How deep schemas are looked into.
const MAX_DEPTH: usize = 32;

/// A tool argument that is mirrored into a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirrored {
    /// The keys that lead to it.
    pub path: Vec<String>,
    /// The name after `Mcp-Param-`.
    pub header: String,
    /// Whether it is a whole number, which is compared as one.
    pub is_integer: bool,
}

impl Mirrored {
    /// The header's full name.
    pub fn name(&self) -> String {
        format!("mcp-param-{}", self.header.to_ascii_lowercase())
    }

    /// The argument's value as a header value; `None` if there is none.
    pub fn value(&self, arguments: &Arguments) -> Option<String> {
        let (first, rest) = self.path.split_first()?;
        let mut value = arguments.get(first)?;
        for key in rest {
            value = value.get(key)?;
        }
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Bool(flag) => Some(flag.to_string()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

/// The arguments of a tool that are copied to headers. `Err` says why the schema is invalid in this respect.
pub fn mirrored_in(schema: &Schema) -> Result<Vec<Mirrored>, String> {
    // A quick check for every call: hardly any schema has such a keyword.
    if schema.text().contains(KEYWORD) { mirrored(&schema.parse()) } else { Ok(Vec::new()) }
}

/// The same of a parsed schema.
pub fn mirrored(schema: &Payload) -> Result<Vec<Mirrored>, String> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    visit(schema, &mut Vec::new(), true, 0, &mut |path, header, property| {
        let header = header.as_str().ok_or("x-mcp-header must be a string")?;
        if header.is_empty() || !header.bytes().all(is_token) {
            return Err(format!("x-mcp-header {header:?} is not a header name"));
        }
        let Some(path) = path else {
            return Err(format!("x-mcp-header {header:?} is at a place where no argument has a path"));
        };
        if !seen.insert(header.to_ascii_lowercase()) {
            return Err(format!("x-mcp-header {header:?} is there twice"));
        }
        let kind = property.get("type").and_then(Value::as_str);
        if !matches!(kind, Some("string" | "integer" | "boolean")) {
            return Err(format!("x-mcp-header {header:?} is on something other than a string, integer or boolean"));
        }
        found.push(Mirrored { path, header: header.to_owned(), is_integer: kind == Some("integer") });
        Ok(())
    })?;
    Ok(found)
}

type Visitor<'a> = dyn FnMut(Option<Vec<String>>, &Value, &Payload) -> Result<(), String> + 'a;

fn visit(
    schema: &Payload,
    path: &mut Vec<String>,
    reachable: bool,
    depth: usize,
    found: &mut Visitor<'_>,
) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    if let Some(header) = schema.get(KEYWORD) {
        found((reachable && !path.is_empty()).then(|| path.clone()), header, schema)?;
    }
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    if let Value::Object(property) = property {
                        path.push(name.clone());
                        visit(property, path, reachable, depth + 1, found)?;
                        path.pop();
                    }
                }
            }
            // Data, not schemas.
            ("enum" | "const" | "default" | "examples", _) => {}
            (_, Value::Object(inner)) => look_anywhere(inner, path, depth, found)?,
            (_, Value::Array(list)) => {
                for inner in list.iter().filter_map(Value::as_object) {
                    visit(inner, path, false, depth + 1, found)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// A keyword's value that is a schema (`items`) or a map of them (`$defs`).
fn look_anywhere(inner: &Payload, path: &mut Vec<String>, depth: usize, found: &mut Visitor<'_>) -> Result<(), String> {
    visit(inner, path, false, depth + 1, found)
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A value as it is written into a header.
pub fn encode(value: &str) -> String {
    let plain = value.bytes().all(|b| matches!(b, 0x20..=0x7e | b'\t'))
        && value.trim() == value
        && !(value.starts_with(PREFIX) && value.ends_with(SUFFIX));
    if plain { value.to_owned() } else { format!("{PREFIX}{}{SUFFIX}", STANDARD.encode(value)) }
}

/// A value as it was before it was written into a header.
pub fn decode(header: &str) -> Option<String> {
    let header = header.trim_matches([' ', '\t']);
    match header.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)) {
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
        None => header.bytes().all(|b| matches!(b, 0x20..=0x7e | b'\t')).then(|| header.to_owned()),
    }
}

/// Whether a header has the same value as the body.
pub fn same(header: &str, body: &str, is_integer: bool) -> bool {
    if header == body {
        return true;
    }
    let number =
        |text: &str| text.parse::<f64>().ok().filter(|n| n.fract() == 0.0 && n.abs() <= MAX_SAFE_INTEGER as f64);
    is_integer && number(header).is_some_and(|header| number(body) == Some(header))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(schema: Value) -> Result<Vec<Mirrored>, String> {
        mirrored(schema.as_object().unwrap())
    }

    #[test]
    fn values_survive_being_headers() {
        for value in ["us-west1", "Hello, 世界", " padded ", "line1\nline2", "=?base64?literal?=", ""] {
            let header = encode(value);
            assert!(header.bytes().all(|b| (0x20..=0x7e).contains(&b)), "{header}");
            assert_eq!(decode(&header).as_deref(), Some(value));
        }
        assert_eq!(decode("=?base64?!!!?="), None);
        assert!(same("42.0", "42", true) && !same("42.0", "42", false));
    }

    #[test]
    fn only_arguments_with_a_plain_path_can_be_mirrored() {
        let ok = of(json!({"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},
            "deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}))
        .unwrap();
        assert_eq!(ok.len(), 2);
        assert_eq!(ok[1].value(json!({"deep":{"n":7}}).as_object().unwrap()).as_deref(), Some("7"));
        for bad in [
            json!({"properties":{"a":{"type":"string","x-mcp-header":""}}}),
            json!({"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}),
            json!({"properties":{"a":{"type":"number","x-mcp-header":"A"}}}),
            json!({"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}),
            json!({"properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}),
            json!({"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}),
            json!({"$defs":{"d":{"type":"string","x-mcp-header":"A"}}}),
        ] {
            assert!(of(bad.clone()).is_err(), "{bad}");
        }
    }
}
