//! TypeScript types from JSON Schemas, for the console. Handles what schemars makes of our types; anything else is `Json`.

use serde_json::Value;
use std::fmt::Write as _;

/// Writes a schema as an exported type, after the types that it refers to.
pub(crate) fn declare(text: &mut String, name: &str, schema: &Value, about: &str) {
    for (key, definition) in schema.get("$defs").and_then(Value::as_object).into_iter().flatten() {
        write_type(text, &format!("{name}{}", type_name(key)), definition, name, "");
    }
    write_type(text, name, schema, name, about);
}

/// `tools.list` as `ToolsList`.
pub(crate) fn type_name(wire: &str) -> String {
    wire.split(|c: char| !c.is_ascii_alphanumeric())
        .map(|word| {
            let mut letters = word.chars();
            letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
        })
        .collect()
}

fn write_type(text: &mut String, name: &str, schema: &Value, owner: &str, about: &str) {
    let about =
        if about.is_empty() { schema.get("description").and_then(Value::as_str).unwrap_or_default() } else { about };
    // Writing to a String cannot fail.
    if !about.is_empty() {
        _ = writeln!(text, "/** {} */", about.replace('\n', " ").replace("*/", "* /"));
    }
    _ = write!(text, "export type {name} = {};\n\n", expression(schema, owner));
}

/// The type that a schema describes. `owner` is the name before the types of its definitions.
fn expression(schema: &Value, owner: &str) -> String {
    let Some(object) = schema.as_object() else { return "Json".to_owned() };
    if let Some(target) = object.get("$ref").and_then(Value::as_str) {
        let definition = target.rsplit('/').next().unwrap_or_default();
        return format!("{owner}{}", type_name(definition));
    }
    if let Some(value) = object.get("const") {
        return value.to_string();
    }
    if let Some(values) = object.get("enum").and_then(Value::as_array) {
        return union(values.iter().map(Value::to_string));
    }
    let one_of = ["anyOf", "oneOf"].iter().find_map(|key| object.get(*key)?.as_array());
    let own = object.contains_key("properties").then(|| object_type(schema, owner));
    match (one_of, own) {
        (Some(choices), None) => union(choices.iter().map(|choice| expression(choice, owner))),
        (Some(choices), Some(own)) => {
            format!("{own} & ({})", union(choices.iter().map(|choice| expression(choice, owner))))
        }
        (None, Some(own)) => own,
        (None, None) => named(schema, owner),
    }
}

/// The type of a schema that has a `type` and no properties.
fn named(schema: &Value, owner: &str) -> String {
    match schema.get("type") {
        Some(Value::Array(types)) => {
            union(types.iter().filter_map(Value::as_str).map(|one| simple(one, schema, owner)))
        }
        Some(Value::String(one)) => simple(one, schema, owner),
        _ => match schema.get("allOf").and_then(Value::as_array) {
            Some(parts) => parts.iter().map(|part| expression(part, owner)).collect::<Vec<_>>().join(" & "),
            None => "Json".to_owned(),
        },
    }
}

fn simple(name: &str, schema: &Value, owner: &str) -> String {
    match name {
        "string" | "boolean" | "null" => name.to_owned(),
        "integer" | "number" => "number".to_owned(),
        "array" => {
            let items = schema.get("items").map_or_else(|| "Json".to_owned(), |items| expression(items, owner));
            format!("Array<{items}>")
        }
        "object" => match schema.get("additionalProperties") {
            Some(values @ Value::Object(_)) => format!("Record<string, {}>", expression(values, owner)),
            Some(Value::Bool(false)) => "Record<string, never>".to_owned(),
            _ => "{ [key: string]: Json }".to_owned(),
        },
        _ => "Json".to_owned(),
    }
}

fn object_type(schema: &Value, owner: &str) -> String {
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let fields = properties.map(|(name, property)| {
        let mark = if required.contains(&name.as_str()) { "" } else { "?" };
        format!("{}{mark}: {}", Value::from(name.as_str()), expression(property, owner))
    });
    format!("{{ {} }}", fields.collect::<Vec<_>>().join("; "))
}

/// The choices without repetition.
fn union(choices: impl Iterator<Item = String>) -> String {
    let mut seen: Vec<String> = Vec::new();
    for choice in choices {
        if !seen.contains(&choice) {
            seen.push(choice);
        }
    }
    if seen.is_empty() { "never".to_owned() } else { seen.join(" | ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schemas_become_types() {
        for (schema, expected) in [
            (json!({"type": ["string", "null"]}), "string | null"),
            (json!({"enum": ["a", "b"]}), "\"a\" | \"b\""),
            (json!({"type": "array", "items": {"$ref": "#/$defs/Run"}}), "Array<XRun>"),
            (json!({"type": "object", "additionalProperties": {"type": "integer"}}), "Record<string, number>"),
            (
                json!({"properties": {"a": {"type": "boolean"}, "b": true}, "required": ["a"]}),
                "{ \"a\": boolean; \"b\"?: Json }",
            ),
            (json!({"anyOf": [{"type": "null"}, {"const": 1}]}), "null | 1"),
            (json!(true), "Json"),
        ] {
            assert_eq!(expression(&schema, "X"), expected, "{schema}");
        }
        assert_eq!(type_name("device.pair.list"), "DevicePairList");
    }
}
