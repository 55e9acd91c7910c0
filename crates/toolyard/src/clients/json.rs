//! Edits JSON files, with comments or without, so that everything else in them stays as it was written.

use jsonc_parser::{
    ParseOptions,
    cst::{CstInputValue, CstObject, CstRootNode},
};
use serde_json::Value;

/// A JSON file that is being edited.
pub(crate) struct JsonFile(CstRootNode);

impl JsonFile {
    /// Reads a file's text. An empty one is an empty object.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let root =
            CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| format!("it is no JSON: {error}"))?;
        if root.value().is_some_and(|value| value.as_object().is_none()) {
            return Err("it holds something other than an object".to_owned());
        }
        Ok(Self(root))
    }

    /// The current text.
    pub(crate) fn text(&self) -> String {
        let text = self.0.to_string();
        if text.ends_with('\n') { text } else { format!("{text}\n") }
    }

    /// The object at the top.
    pub(crate) fn top(&self) -> CstObject {
        self.0.object_value_or_set()
    }

    /// What the file means.
    pub(crate) fn value(&self) -> Value {
        self.0.to_serde_value().unwrap_or_else(|| Value::Object(serde_json::Map::new()))
    }

    /// An object at a path, made where it is missing.
    pub(crate) fn object(&self, path: &[&str]) -> Result<CstObject, String> {
        let mut object = self.top();
        for name in path {
            object = object.object_value_or_create(name).ok_or_else(|| format!("{name:?} is not an object"))?;
        }
        Ok(object)
    }

    /// Sets a member of the object at a path.
    pub(crate) fn set(&self, path: &[&str], name: &str, value: &Value) -> Result<(), String> {
        let object = self.object(path)?;
        match object.get(name) {
            Some(member) => member.set_value(input(value)),
            None => {
                object.append(name, input(value));
            }
        }
        Ok(())
    }

    /// Removes a member of the object at a path, and the objects above it that are empty then.
    pub(crate) fn remove(&self, path: &[&str], name: &str) {
        let mut objects = vec![self.top()];
        for part in path {
            let Some(next) = objects.last().and_then(|object| object.object_value(part)) else { return };
            objects.push(next);
        }
        let mut gone = name;
        let mut parts = path.iter().rev();
        while let Some(object) = objects.pop() {
            if let Some(member) = object.get(gone) {
                member.remove();
            }
            match parts.next() {
                Some(part) if object.properties().is_empty() => gone = part,
                _ => return,
            }
        }
    }
}

/// A value as the editor takes it.
pub(crate) fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(members) => {
            CstInputValue::Object(members.iter().map(|(name, value)| (name.clone(), input(value))).collect())
        }
    }
}
