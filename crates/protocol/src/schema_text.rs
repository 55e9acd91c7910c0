//! [`Schema`]: a tool's JSON Schema, kept as text.
//!
//! A parsed schema takes about five times the memory of its text, and most tools of a large catalog are never called.
//! Therefore only the text is kept, and code that needs the content parses it.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::{borrow::Cow, fmt, sync::Arc};

/// A JSON Schema that is an object. Its copies share one text.
#[derive(Clone)]
pub struct Schema(Arc<str>);

impl Schema {
    /// From its parsed form.
    pub fn new(schema: &Map<String, Value>) -> Self {
        // A map of JSON values always has a text.
        Self(serde_json::to_string(schema).unwrap_or_else(|_| "{}".to_owned()).into())
    }

    /// Its text, without spaces.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Its parsed form.
    pub fn parse(&self) -> Map<String, Value> {
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// Its parsed form as a value.
    pub fn value(&self) -> Value {
        Value::Object(self.parse())
    }
}

impl From<Map<String, Value>> for Schema {
    fn from(schema: Map<String, Value>) -> Self {
        Self::new(&schema)
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The order of its keys does not matter.
impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.parse() == other.parse()
    }
}

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.parse().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(|map| Self::new(&map))
    }
}

impl JsonSchema for Schema {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        <Map<String, Value>>::schema_name()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        <Map<String, Value>>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_reads_back_as_it_was_given() {
        let given = json!({"type": "object", "properties": {"b": {"type": "string"}, "a": {"enum": [1, 2.5, null]}}});
        let schema: Schema = serde_json::from_value(given.clone()).unwrap();
        assert_eq!(schema.value(), given);
        assert_eq!(serde_json::to_value(&schema).unwrap(), given);
        assert_eq!(serde_json::to_string(&schema).unwrap(), schema.text());
        let keys: Vec<String> = schema.parse()["properties"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["b", "a"], "the order an author chose is shown to models");
    }

    #[test]
    fn the_order_of_keys_makes_no_difference() {
        let one: Schema = serde_json::from_str(r#"{"type":"object","title":"t"}"#).unwrap();
        let other: Schema = serde_json::from_str(r#"{"title": "t", "type": "object"}"#).unwrap();
        assert_eq!(one, other);
        assert_ne!(one, Schema::new(&Map::new()));
    }

    #[test]
    fn only_an_object_is_a_schema() {
        assert!(serde_json::from_str::<Schema>("true").is_err());
        assert!(serde_json::from_str::<Schema>("[]").is_err());
    }
}
