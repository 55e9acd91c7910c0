//! Decides whether a JSON Schema allows a path. References are checked with it before anything runs.

use super::reference::Hop;
use serde_json::{Map, Value};

/// Whether a schema allows a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathVerdict {
    /// The schema allows the field.
    Possible,
    /// It cannot; the names that could be.
    Impossible {
        /// Declared fields at that place.
        fields: Vec<String>,
    },
}

/// How deep `$ref`, `allOf` and similar keywords are followed.
const MAX_DEPTH: usize = 32;

/// Follows a path through a schema.
pub(crate) fn check_path(schema: &Map<String, Value>, path: &[Hop]) -> PathVerdict {
    let root = Value::Object(schema.clone());
    walk(&root, &root, path, 0)
}

fn walk(root: &Value, schema: &Value, path: &[Hop], depth: usize) -> PathVerdict {
    let Some((hop, rest)) = path.split_first() else { return PathVerdict::Possible };
    let Value::Object(map) = schema else {
        // `true` allows anything, `false` nothing.
        return if schema == &Value::Bool(false) {
            PathVerdict::Impossible { fields: Vec::new() }
        } else {
            PathVerdict::Possible
        };
    };
    if depth > MAX_DEPTH {
        return PathVerdict::Possible;
    }
    if let Some(target) = map.get("$ref").and_then(Value::as_str) {
        return match target.strip_prefix('#').and_then(|p| root.pointer(p)) {
            Some(target) => walk(root, target, path, depth + 1),
            None => PathVerdict::Possible,
        };
    }
    for combinator in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(options)) = map.get(combinator) {
            let verdicts: Vec<PathVerdict> = options.iter().map(|o| walk(root, o, path, depth + 1)).collect();
            return if combinator != "allOf" && !verdicts.is_empty() && !verdicts.contains(&PathVerdict::Possible) {
                verdicts.into_iter().next().unwrap_or(PathVerdict::Possible)
            } else {
                PathVerdict::Possible
            };
        }
    }
    match hop {
        Hop::Key(key) => {
            if !allows_type(map, "object") {
                return PathVerdict::Impossible { fields: Vec::new() };
            }
            let properties = map.get("properties").and_then(Value::as_object);
            if let Some(next) = properties.and_then(|p| p.get(key)) {
                return walk(root, next, rest, depth + 1);
            }
            if map.contains_key("patternProperties") {
                return PathVerdict::Possible;
            }
            match map.get("additionalProperties") {
                Some(Value::Bool(false)) => PathVerdict::Impossible {
                    fields: properties.map(|p| p.keys().cloned().collect()).unwrap_or_default(),
                },
                Some(other) => walk(root, other, rest, depth + 1),
                None => PathVerdict::Possible,
            }
        }
        Hop::Index(i) => {
            if !allows_type(map, "array") {
                return PathVerdict::Impossible { fields: Vec::new() };
            }
            let prefix = map.get("prefixItems").and_then(Value::as_array).and_then(|items| items.get(*i));
            match prefix.or(map.get("items")) {
                Some(next) => walk(root, next, rest, depth + 1),
                None => PathVerdict::Possible,
            }
        }
    }
}

fn allows_type(schema: &Map<String, Value>, wanted: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(t)) => t == wanted,
        Some(Value::Array(types)) => types.iter().any(|t| t == wanted),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[toolyard_shows::shows("002-4-08")]
    #[test]
    fn strict_schemas_refuse_and_open_ones_allow() {
        let schema = json!({
            "type":"object","additionalProperties":false,
            "properties":{
                "items":{"type":"array","items":{"$ref":"#/$defs/entry"}},
                "open":{"type":"object"},
                "maybe":{"anyOf":[{"type":"null"},{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}]}
            },
            "$defs":{"entry":{"type":"object","properties":{"path":{"type":"string"}},"additionalProperties":false}}
        });
        let schema = schema.as_object().unwrap();
        let key = |k: &str| Hop::Key(k.into());
        let possible = |path: &[Hop]| check_path(schema, path) == PathVerdict::Possible;
        assert!(possible(&[key("items"), Hop::Index(3), key("path")]));
        assert!(!possible(&[key("items"), Hop::Index(3), key("name")]));
        assert!(!possible(&[key("items"), key("path")]));
        assert!(possible(&[key("open"), key("anything")]));
        assert!(possible(&[key("maybe"), key("a")]));
        assert!(!possible(&[key("maybe"), key("b")]));
        assert_eq!(
            check_path(schema, &[key("nope")]),
            PathVerdict::Impossible { fields: vec!["items".into(), "open".into(), "maybe".into()] }
        );
    }
}
