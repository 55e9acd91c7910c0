//! Finds the arguments that an input schema marks: vault paths (`"format":"vault-path"`) and secrets (`"writeOnly":true`,
//! `"format":"password"`, `"x-toolyard-secret":true`). The marked places of the schema are computed once, as a small graph
//! in which a `$ref` is an edge, so that recursive schemas need no special case.
//!
//! Does not decide which paths are allowed; the policy's path rules and the vault do.

use serde_json::{Map, Value};
use std::collections::HashMap;

/// The format that marks a property as a vault path.
const PATH_FORMAT: &str = "vault-path";
/// The format with which JSON Schema and OpenAPI mark a secret.
const SECRET_FORMAT: &str = "password";
/// Toolyard's own mark of a secret.
const SECRET_MARK: &str = "x-toolyard-secret";
/// Maximum number of subschemas in a schema with marks. Each is combined with those that apply to the same value,
/// and an untrusted schema must not make that expensive.
const MAX_NODES: usize = 2_000;
/// Keywords whose subschemas apply to the same value.
const SAME_VALUE: [&str; 7] = ["allOf", "anyOf", "oneOf", "if", "then", "else", "$ref"];

/// What a subschema says about its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// A path in the vault.
    VaultPath,
    /// A value that nobody but the tool may see.
    Secret,
}

impl Mark {
    fn is_on(self, schema: &Map<String, Value>) -> bool {
        let format = schema.get("format").and_then(Value::as_str);
        let is_set = |name| schema.get(name).and_then(Value::as_bool) == Some(true);
        match self {
            Self::VaultPath => format == Some(PATH_FORMAT),
            Self::Secret => format == Some(SECRET_FORMAT) || is_set("writeOnly") || is_set(SECRET_MARK),
        }
    }

    fn takes(self, value: &Value) -> bool {
        match self {
            Self::VaultPath => value.is_string(),
            Self::Secret => !value.is_null(),
        }
    }

    fn is_in(self, schema: &Map<String, Value>) -> bool {
        fn walk(mark: Mark, value: &Value) -> bool {
            match value {
                Value::Object(map) => mark.is_in(map),
                Value::Array(items) => items.iter().any(|item| walk(mark, item)),
                _ => false,
            }
        }
        self.is_on(schema) || schema.values().any(|value| walk(self, value))
    }

    /// The plural, for error messages.
    fn name(self) -> &'static str {
        match self {
            Self::VaultPath => "vault paths",
            Self::Secret => "secret arguments",
        }
    }
}

/// A subschema in the graph.
#[derive(Debug, Default)]
struct Node {
    is_marked: bool,
    properties: HashMap<String, usize>,
    other_properties: Vec<usize>,
    prefix_items: Vec<usize>,
    items: Vec<usize>,
    /// Other subschemas that apply to the same value; transitively closed when the graph is complete.
    same: Vec<usize>,
}

/// Finds the marked arguments of one input schema.
#[derive(Debug)]
pub(super) struct MarkFinder {
    mark: Mark,
    /// Empty when the schema has no marks; otherwise the root is node 0.
    nodes: Vec<Node>,
}

impl MarkFinder {
    pub(super) fn new(mark: Mark, schema: &Map<String, Value>) -> Result<Self, String> {
        if !mark.is_in(schema) {
            return Ok(Self { mark, nodes: Vec::new() });
        }
        let mut builder = Builder { mark, root: schema, nodes: Vec::new(), by_ref: HashMap::new(), lost: None };
        builder.by_ref.insert("#".to_owned(), 0);
        builder.add(schema);
        let what = mark.name();
        // A path behind such a reference would go unchecked. A secret behind it is still looked for by name and looks.
        if let Some(reference) = builder.lost.filter(|_| mark == Mark::VaultPath) {
            let shown: String = reference.chars().take(80).collect();
            return Err(format!("has {what} and a reference that cannot be followed to them: {shown:?}"));
        }
        let mut nodes = builder.nodes;
        if nodes.len() > MAX_NODES {
            return Err(format!("has {what} and more than {MAX_NODES} subschemas"));
        }
        let closures: Vec<Vec<usize>> = (0..nodes.len()).map(|start| closure(&nodes, start)).collect();
        for (node, same) in nodes.iter_mut().zip(closures) {
            node.same = same;
        }
        Ok(Self { mark, nodes })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn find<'a>(&self, args: &'a Map<String, Value>) -> Vec<(String, &'a Value)> {
        let mut found = Vec::new();
        if !self.nodes.is_empty() {
            self.object(&self.nodes[0].same, args, &mut String::new(), &mut found);
        }
        found
    }

    fn value<'a>(&self, at: &[usize], value: &'a Value, pointer: &mut String, found: &mut Vec<(String, &'a Value)>) {
        if self.mark.takes(value) && at.iter().any(|&n| self.nodes[n].is_marked) {
            found.push((pointer.clone(), value));
            return;
        }
        match value {
            Value::Object(map) => self.object(at, map, pointer, found),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let next = self.closed(at.iter().flat_map(|&n| {
                        let node = &self.nodes[n];
                        match node.prefix_items.get(index) {
                            Some(prefix) => std::slice::from_ref(prefix),
                            None => &node.items[..],
                        }
                    }));
                    self.step(&next, item, &index.to_string(), pointer, found);
                }
            }
            _ => {}
        }
    }

    fn object<'a>(
        &self,
        at: &[usize],
        map: &'a Map<String, Value>,
        pointer: &mut String,
        found: &mut Vec<(String, &'a Value)>,
    ) {
        for (key, item) in map {
            let next = self.closed(at.iter().flat_map(|&n| {
                let node = &self.nodes[n];
                match node.properties.get(key) {
                    Some(property) => std::slice::from_ref(property),
                    None => &node.other_properties[..],
                }
            }));
            self.step(&next, item, key, pointer, found);
        }
    }

    fn step<'a>(
        &self,
        next: &[usize],
        item: &'a Value,
        key: &str,
        pointer: &mut String,
        found: &mut Vec<(String, &'a Value)>,
    ) {
        if next.is_empty() {
            return;
        }
        let length = pointer.len();
        super::schema::push_segment(pointer, key);
        self.value(next, item, pointer, found);
        pointer.truncate(length);
    }

    fn closed<'n>(&self, nodes: impl Iterator<Item = &'n usize>) -> Vec<usize> {
        let mut all: Vec<usize> = nodes.flat_map(|&n| self.nodes[n].same.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

fn closure(nodes: &[Node], start: usize) -> Vec<usize> {
    let mut seen = vec![false; nodes.len()];
    let mut todo = vec![start];
    while let Some(node) = todo.pop() {
        if !std::mem::replace(&mut seen[node], true) {
            todo.extend(&nodes[node].same);
        }
    }
    seen.iter().enumerate().filter(|(_, seen)| **seen).map(|(node, _)| node).collect()
}

struct Builder<'s> {
    mark: Mark,
    root: &'s Map<String, Value>,
    nodes: Vec<Node>,
    by_ref: HashMap<String, usize>,
    /// A reference that leads nowhere we can see.
    lost: Option<String>,
}

impl Builder<'_> {
    fn add(&mut self, schema: &Map<String, Value>) -> usize {
        let index = self.nodes.len();
        self.nodes.push(Node { is_marked: self.mark.is_on(schema), ..Node::default() });
        if let Some(Value::Object(properties)) = schema.get("properties") {
            for (name, property) in properties {
                if let Some(child) = self.add_value(property) {
                    self.nodes[index].properties.insert(name.clone(), child);
                }
            }
        }
        // Which pattern a key matches is not looked at: taking one string too many for a path is the safe side.
        if let Some(Value::Object(patterns)) = schema.get("patternProperties") {
            for property in patterns.values() {
                let child = self.add_value(property);
                self.nodes[index].other_properties.extend(child);
            }
        }
        for keyword in ["additionalProperties", "unevaluatedProperties"] {
            let child = schema.get(keyword).and_then(|s| self.add_value(s));
            self.nodes[index].other_properties.extend(child);
        }
        for keyword in ["items", "contains", "unevaluatedItems"] {
            match schema.get(keyword) {
                // Before draft 2020-12, `items` could be a list by position.
                Some(Value::Array(list)) => self.prefix(index, list),
                Some(schema) => {
                    let child = self.add_value(schema);
                    self.nodes[index].items.extend(child);
                }
                None => {}
            }
        }
        if let Some(Value::Array(list)) = schema.get("prefixItems") {
            self.prefix(index, list);
        }
        if let Some(Value::Object(dependents)) = schema.get("dependentSchemas") {
            for branch in dependents.values() {
                let child = self.add_value(branch);
                self.nodes[index].same.extend(child);
            }
        }
        if let Some(Value::String(reference)) = schema.get("$dynamicRef") {
            self.lost.get_or_insert_with(|| reference.clone());
        }
        for keyword in SAME_VALUE {
            match schema.get(keyword) {
                Some(Value::Array(list)) => {
                    for branch in list {
                        let child = self.add_value(branch);
                        self.nodes[index].same.extend(child);
                    }
                }
                Some(Value::String(reference)) if keyword == "$ref" => {
                    let child = self.add_reference(reference);
                    self.nodes[index].same.extend(child);
                }
                Some(branch @ Value::Object(_)) => {
                    let child = self.add_value(branch);
                    self.nodes[index].same.extend(child);
                }
                _ => {}
            }
        }
        index
    }

    fn add_value(&mut self, schema: &Value) -> Option<usize> {
        schema.as_object().map(|map| self.add(map))
    }

    fn prefix(&mut self, index: usize, list: &[Value]) {
        for schema in list {
            // A position without an object schema still counts, so that the ones after it stay in place.
            let child = self.add_value(schema).unwrap_or_else(|| self.add(&Map::new()));
            self.nodes[index].prefix_items.push(child);
        }
    }

    fn add_reference(&mut self, reference: &str) -> Option<usize> {
        if let Some(&known) = self.by_ref.get(reference) {
            return Some(known);
        }
        let Some(target) = resolve_local(self.root, reference) else {
            self.lost.get_or_insert_with(|| reference.to_owned());
            return None;
        };
        self.by_ref.insert(reference.to_owned(), self.nodes.len()); // before the walk: it may come back here
        Some(self.add(target))
    }
}

/// What a `#/...` reference points at within the same schema.
pub(super) fn resolve_local<'s>(root: &'s Map<String, Value>, reference: &str) -> Option<&'s Map<String, Value>> {
    let pointer = reference.strip_prefix('#')?;
    if pointer.is_empty() {
        return Some(root);
    }
    let mut segments = pointer.strip_prefix('/')?.split('/').map(|s| s.replace("~1", "/").replace("~0", "~"));
    let first = root.get(&segments.next()?)?;
    segments
        .try_fold(first, |value, segment| match value {
            Value::Object(map) => map.get(&segment),
            Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
            _ => None,
        })?
        .as_object()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn find(schema: Value, args: Value) -> Vec<(String, String)> {
        let finder = MarkFinder::new(Mark::VaultPath, schema.as_object().unwrap()).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        finder.find(args.as_object().unwrap()).into_iter().map(|(p, v)| (p, text(v))).collect()
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(p, v)| ((*p).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn paths_are_found_wherever_the_schema_puts_them() {
        let path = json!({"type":"string","format":"vault-path"});
        let schema = json!({"type":"object","properties":{
            "path": path, "text": {"type":"string"}, "paths": {"type":"array","items":path},
            "deep": {"type":"object","properties":{"a/b": path}},
            "either": {"anyOf":[path,{"type":"object","properties":{"to":path}}]},
            "pair": {"prefixItems":[{"type":"string"},path]},
            "by": {"type":"object","additionalProperties":{"$ref":"#/$defs/p"}}},
            "$defs":{"p":path}});
        let args = json!({"path":"a.md","text":"no","paths":["b.md",7,"c.md"],"deep":{"a/b":"d.md"},"either":{"to":"e.md"},
            "pair":["no","f.md"],"by":{"k":"g.md"},"unknown":"no"});
        let expected = pairs(&[
            ("/path", "a.md"),
            ("/paths/0", "b.md"),
            ("/paths/2", "c.md"),
            ("/deep/a~1b", "d.md"),
            ("/either/to", "e.md"),
            ("/pair/1", "f.md"),
            ("/by/k", "g.md"),
        ]);
        assert_eq!(find(schema, args), expected);
    }

    #[test]
    fn a_recursive_schema_is_followed_as_deep_as_the_arguments_go() {
        let schema = json!({"type":"object","$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{
            "path":{"type":"string","format":"vault-path"},"children":{"type":"array","items":{"$ref":"#/$defs/node"}}}}}});
        let mut args = json!({"path":"0"});
        for depth in 1..20 {
            args = json!({"path":depth.to_string(),"children":[args]});
        }
        assert_eq!(find(schema, args).len(), 20);
    }

    #[test]
    fn references_that_lead_in_circles_end_and_those_that_lead_nowhere_are_refused() {
        let path = json!({"type":"string","format":"vault-path"});
        let schema = json!({"type":"object","$ref":"#","allOf":[{"$ref":"#/allOf/0"}],"properties":{"p":path},
            "dependentSchemas":{"p":{"properties":{"q":path}}}});
        assert_eq!(find(schema, json!({"p":"a","q":"b"})), pairs(&[("/p", "a"), ("/q", "b")]));
        for lost in [
            json!({"$ref":"#/nowhere"}),
            json!({"$ref":"http://x/y"}),
            json!({"$ref":"#anchor"}),
            json!({"$dynamicRef":"#x"}),
        ] {
            let schema = json!({"type":"object","properties":{"p":path,"other":lost}});
            assert!(MarkFinder::new(Mark::VaultPath, schema.as_object().unwrap()).is_err(), "{schema}");
        }
    }

    #[test]
    fn a_schema_without_paths_costs_nothing_and_a_huge_one_with_paths_is_refused() {
        let finder = |schema: Value| MarkFinder::new(Mark::VaultPath, schema.as_object().unwrap());
        assert!(finder(json!({"type":"object","properties":{"path":{"type":"string"}}})).unwrap().is_empty());
        let many = vec![json!({"$ref":"#"}); MAX_NODES];
        assert!(finder(json!({"type":"object","format":"vault-path","allOf":many})).is_err());
    }

    #[test]
    fn secrets_are_found_by_each_of_their_marks_and_whatever_their_type() {
        let schema = json!({"type":"object","properties":{
            "password": {"type":"string","format":"password"}, "pin": {"type":"integer","writeOnly":true},
            "login": {"type":"object","x-toolyard-secret":true}, "name": {"type":"string"},
            "keys": {"type":"array","items":{"$ref":"#/$defs/key"}}, "far": {"$ref":"https://x.org/schema"}},
            "$defs":{"key":{"type":"string","writeOnly":true}}});
        let finder = MarkFinder::new(Mark::Secret, schema.as_object().unwrap()).unwrap();
        let args = json!({"password":"a","pin":7,"login":{"user":"u"},"name":"n","keys":["b","c"],"far":"d"});
        let found: Vec<String> = finder.find(args.as_object().unwrap()).into_iter().map(|(p, _)| p).collect();
        assert_eq!(found, ["/password", "/pin", "/login", "/keys/0", "/keys/1"]);
    }
}
