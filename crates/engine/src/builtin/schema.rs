//! JSON Schemas from Rust types: strict, self-contained, without `null` (an optional argument is left out, not null).

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

/// The schema of a tool's arguments, from their type.
pub fn argument_schema<T: JsonSchema>() -> Map<String, Value> {
    generate::<T>(SchemaSettings::draft2020_12().for_deserialize())
}

/// The schema of the data a tool answers with, from its type.
pub fn answer_schema<T: JsonSchema>() -> Map<String, Value> {
    generate::<T>(SchemaSettings::draft2020_12().for_serialize())
}

fn generate<T: JsonSchema>(mut settings: SchemaSettings) -> Map<String, Value> {
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut value: Value = settings.into_generator().into_root_schema_for::<T>().into();
    tidy(&mut value);
    match value {
        Value::Object(mut map) => {
            map.remove("title");
            map.entry("properties").or_insert_with(|| Value::Object(Map::new()));
            map
        }
        _ => Map::new(),
    }
}

/// Takes `null` out of types and enumerations, and drops Rust's integer formats.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::Array(types)) = map.get_mut("type") {
                types.retain(|t| t != "null");
                if types.len() == 1 {
                    let only = types.remove(0);
                    map.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(options)) = map.get_mut("anyOf") {
                options.retain(|option| option.get("type").is_none_or(|t| t != "null"));
                if options.len() == 1
                    && let Value::Object(only) = options.remove(0)
                {
                    map.remove("anyOf");
                    for (key, inner) in only {
                        map.entry(key).or_insert(inner);
                    }
                }
            }
            if let Some(Value::Array(values)) = map.get_mut("enum") {
                values.retain(|v| !v.is_null());
            }
            if map.get("default").is_some_and(Value::is_null) {
                map.remove("default");
            }
            let rust_integer = |f: &Value| f.as_str().is_some_and(|f| f.starts_with("uint") || f.starts_with("int"));
            if map.get("format").is_some_and(rust_integer) {
                map.remove("format");
            }
            map.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}
