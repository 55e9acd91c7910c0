//! [`Checker`]: the compiled schema of a parameter type. It lists all problems of a value, worded as the real gateway
//! words them.
//!
//! It supports the part of JSON Schema that our parameter types use. Everything else is left to the type's
//! deserialisation.

use crate::{Method, stored};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

/// The largest number of problems that are reported at a time.
const MAX_PROBLEMS: usize = 8;
/// How deep nested definitions are followed; recursive types are not checked deeper than this.
const MAX_DEPTH: usize = 16;
/// How many characters of a caller's name are repeated in an error.
const MAX_SHOWN: usize = 80;

/// A compiled schema.
#[derive(Debug, PartialEq)]
pub struct Checker(Node);

#[derive(Debug, PartialEq)]
enum Node {
    Any,
    Null,
    Boolean,
    Text { least: usize, most: usize, is_uuid: bool },
    Number { is_integer: bool, least: Option<i64>, most: Option<u64> },
    OneOf(Vec<Value>),
    List { items: Box<Node>, least: usize, most: usize },
    Object(Fields),
    Either(Vec<Node>),
}

#[derive(Debug, PartialEq)]
struct Fields {
    known: Vec<Field>,
    /// The schema of other fields; `None` if no other fields are allowed.
    others: Option<Box<Node>>,
}

#[derive(Debug, PartialEq)]
struct Field {
    name: String,
    node: Node,
    is_required: bool,
}

impl Checker {
    /// Compiles the schema of a type.
    pub fn of<T: JsonSchema>() -> Self {
        let schema = schema_of::<T>();
        Self(compile(&schema, &schema["$defs"], MAX_DEPTH))
    }

    /// The checker of a method's parameters, from its type or, in a released program, from the stored schema.
    pub(crate) fn of_method<M: Method>() -> Option<Self> {
        if stored::FROM_TYPES { Some(Self::of::<M::Params>()) } else { Self::stored(M::NAME) }
    }

    /// Compiles the stored schema of a method's parameters.
    pub fn stored(method: &str) -> Option<Self> {
        let (schema, definitions) = stored::params(method)?;
        let schema: Value = serde_json::from_str(schema.get()).ok()?;
        let definitions = serde_json::from_str(definitions.get()).ok()?;
        Some(Self(compile(&schema, &definitions, MAX_DEPTH)))
    }

    /// Everything wrong with a value, in order.
    pub fn problems(&self, value: &Value) -> Vec<String> {
        let mut found = Vec::new();
        walk(value, &self.0, &ValuePath::Root, &mut found);
        found.truncate(MAX_PROBLEMS);
        found
    }
}

/// The JSON Schema of a parameter type, as a client writes it.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().for_deserialize().into_generator().into_root_schema_for::<T>().to_value()
}

/// The path of a value, which is built only if the value has a problem.
enum ValuePath<'a> {
    Root,
    Field(&'a ValuePath<'a>, &'a str),
    Item(&'a ValuePath<'a>, usize),
}

impl ValuePath<'_> {
    fn path(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Field(parent, name) => format!("{}/{name}", parent.path()),
            Self::Item(parent, at) => format!("{}/{at}", parent.path()),
        }
    }

    fn wrong(&self, problem: &str) -> String {
        match self {
            Self::Root => problem.to_owned(),
            _ => format!("at {}: {problem}", self.path()),
        }
    }
}

fn compile(schema: &Value, definitions: &Value, depth: usize) -> Node {
    let Some(depth) = depth.checked_sub(1) else { return Node::Any };
    let get = |name: &str| schema.get(name);
    // The definitions of one type are in `#/$defs/`, those of all methods together in `#/$defs/params/`.
    if let Some(name) = get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next()) {
        let target = definitions.get(name);
        return target.map_or(Node::Any, |target| compile(target, definitions, depth));
    }
    if let Some(words) = get("enum").and_then(Value::as_array) {
        return Node::OneOf(words.clone());
    }
    if let Some(word) = get("const") {
        return Node::OneOf(vec![word.clone()]);
    }
    if let Some(options) = get("anyOf").or(get("oneOf")).and_then(Value::as_array) {
        return either(options.iter().map(|option| compile(option, definitions, depth)).collect());
    }
    match get("type") {
        Some(Value::String(kind)) => typed(kind, schema, definitions, depth),
        Some(Value::Array(kinds)) => {
            either(kinds.iter().filter_map(Value::as_str).map(|kind| typed(kind, schema, definitions, depth)).collect())
        }
        _ => Node::Any,
    }
}

/// Options as one node; words of several options are one list of words.
fn either(options: Vec<Node>) -> Node {
    let mut words = Vec::new();
    let mut rest = Vec::new();
    for option in options {
        match option {
            Node::OneOf(more) => words.extend(more),
            Node::Any => return Node::Any,
            other => rest.push(other),
        }
    }
    if rest.is_empty() {
        return Node::OneOf(words);
    }
    if !words.is_empty() {
        rest.push(Node::OneOf(words));
    }
    if rest.len() == 1 { rest.pop().unwrap_or(Node::Any) } else { Node::Either(rest) }
}

fn typed(kind: &str, schema: &Value, definitions: &Value, depth: usize) -> Node {
    let number = |name: &str| schema.get(name).and_then(Value::as_f64);
    let size = |name: &str| number(name).map(|n| n as usize);
    match kind {
        "null" => Node::Null,
        "boolean" => Node::Boolean,
        "string" => Node::Text {
            least: size("minLength").unwrap_or(0),
            most: size("maxLength").unwrap_or(usize::MAX),
            is_uuid: schema.get("format").is_some_and(|format| format == "uuid"),
        },
        "integer" | "number" => Node::Number {
            is_integer: kind == "integer",
            least: number("minimum").map(|n| n as i64),
            most: number("maximum").map(|n| n as u64),
        },
        "array" => Node::List {
            items: Box::new(schema.get("items").map_or(Node::Any, |items| compile(items, definitions, depth))),
            least: size("minItems").unwrap_or(0),
            most: size("maxItems").unwrap_or(usize::MAX),
        },
        "object" => Node::Object(fields(schema, definitions, depth)),
        _ => Node::Any,
    }
}

fn fields(schema: &Value, definitions: &Value, depth: usize) -> Fields {
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let known = schema.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(name, property)| {
        let is_required = required.contains(&name.as_str());
        let node = compile(property, definitions, depth);
        // An optional field must be left out instead of null, unless its schema gives null a meaning.
        let is_nullable = is_required || property.get("nullable").is_some_and(|nullable| nullable == true);
        Field { name: name.clone(), node: if is_nullable { node } else { without_null(node) }, is_required }
    });
    let others = match schema.get("additionalProperties") {
        Some(Value::Bool(false)) => None,
        Some(other @ Value::Object(_)) => Some(Box::new(compile(other, definitions, depth))),
        _ => Some(Box::new(Node::Any)),
    };
    Fields { known: known.collect(), others }
}

fn without_null(node: Node) -> Node {
    match node {
        Node::Either(options) => either(options.into_iter().filter(|option| !matches!(option, Node::Null)).collect()),
        other => other,
    }
}

fn walk(value: &Value, node: &Node, place: &ValuePath<'_>, found: &mut Vec<String>) {
    if found.len() >= MAX_PROBLEMS {
        return;
    }
    let wrong = match node {
        Node::Any => None,
        Node::Null => (!value.is_null()).then(|| "must be null".to_owned()),
        Node::Boolean => (!value.is_boolean()).then(|| "must be boolean".to_owned()),
        Node::Text { least, most, is_uuid } => match value.as_str() {
            None => Some("must be string".to_owned()),
            Some(text) => text_problem(text, *least, *most, *is_uuid),
        },
        Node::Number { is_integer, least, most } => number_problem(value, *is_integer, *least, *most),
        Node::OneOf(words) => (!words.contains(value)).then(|| "must be equal to one of the allowed values".to_owned()),
        Node::List { items, least, most } => match value.as_array() {
            None => Some("must be array".to_owned()),
            Some(list) if list.len() < *least => Some(format!("must not have fewer than {least} items")),
            Some(list) if list.len() > *most => Some(format!("must not have more than {most} items")),
            Some(list) => {
                list.iter().enumerate().for_each(|(at, item)| walk(item, items, &ValuePath::Item(place, at), found));
                None
            }
        },
        Node::Object(fields) => match value.as_object() {
            None => Some("must be object".to_owned()),
            Some(map) => {
                walk_object(map, fields, place, found);
                None
            }
        },
        Node::Either(options) => return walk_either(value, options, place, found),
    };
    found.extend(wrong.map(|problem| place.wrong(&problem)));
}

fn walk_object(map: &crate::Object, fields: &Fields, place: &ValuePath<'_>, found: &mut Vec<String>) {
    for field in fields.known.iter().filter(|field| field.is_required && !map.contains_key(&field.name)) {
        found.push(place.wrong(&format!("must have required property '{}'", field.name)));
    }
    for (name, held) in map {
        match (fields.known.iter().find(|field| field.name == *name), &fields.others) {
            (Some(field), _) => walk(held, &field.node, &ValuePath::Field(place, name), found),
            (None, Some(others)) => walk(held, others, &ValuePath::Field(place, name), found),
            (None, None) => {
                let shown: String = name.chars().take(MAX_SHOWN).collect();
                let path = place.path();
                let path = if path.is_empty() { "root" } else { &path };
                found.push(format!("at {path}: unexpected property '{shown}'"));
            }
        }
        if found.len() >= MAX_PROBLEMS {
            return;
        }
    }
}

/// The option with the value's type reports the problems; if there is none, all options are named.
fn walk_either(value: &Value, options: &[Node], place: &ValuePath<'_>, found: &mut Vec<String>) {
    let mut first = None;
    for option in options {
        let mut problems = Vec::new();
        walk(value, option, place, &mut problems);
        if problems.is_empty() {
            return;
        }
        if is_of_kind(value, option) {
            first.get_or_insert(problems);
        }
    }
    match first {
        Some(problems) => found.extend(problems),
        None => {
            let kinds: Vec<String> =
                options.iter().filter(|option| !matches!(option, Node::Null)).map(kind_of).collect();
            found.push(place.wrong(&format!("must be {}", kinds.join(" or "))));
        }
    }
}

fn is_of_kind(value: &Value, node: &Node) -> bool {
    match node {
        Node::Text { .. } => value.is_string(),
        Node::Number { .. } => value.is_number(),
        Node::List { .. } => value.is_array(),
        Node::Object(_) => value.is_object(),
        _ => false,
    }
}

fn kind_of(node: &Node) -> String {
    match node {
        Node::Any | Node::Either(_) => "something else".to_owned(),
        Node::Null => "null".to_owned(),
        Node::Boolean => "boolean".to_owned(),
        Node::Text { .. } => "string".to_owned(),
        Node::Number { is_integer: true, .. } => "integer".to_owned(),
        Node::Number { .. } => "number".to_owned(),
        Node::OneOf(words) => match words.as_slice() {
            [word] => word.to_string(),
            _ => "equal to one of the allowed values".to_owned(),
        },
        Node::List { .. } => "array".to_owned(),
        Node::Object(_) => "object".to_owned(),
    }
}

fn text_problem(text: &str, least: usize, most: usize, is_uuid: bool) -> Option<String> {
    let length = text.chars().count();
    if length < least {
        return Some(format!("must not have fewer than {least} characters"));
    }
    if length > most {
        return Some(format!("must not have more than {most} characters"));
    }
    (is_uuid && uuid::Uuid::try_parse(text).is_err()).then(|| "must match format \"uuid\"".to_owned())
}

fn number_problem(value: &Value, is_integer: bool, least: Option<i64>, most: Option<u64>) -> Option<String> {
    let kind = if is_integer { "must be integer" } else { "must be number" };
    let Some(number) = value.as_f64() else { return Some(kind.to_owned()) };
    if is_integer && number.fract() != 0.0 {
        return Some(kind.to_owned());
    }
    if let Some(least) = least.filter(|least| number < *least as f64) {
        return Some(format!("must be >= {least}"));
    }
    most.filter(|most| number > *most as f64).map(|most| format!("must be <= {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Count, FlagOrAll, Patch, Text, read};
    use serde::Deserialize;
    use serde_json::json;
    use toolyard_protocol::RunId;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        /// The word `yes`.
        Yes,
        /// The word `no`.
        No,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[expect(dead_code, reason = "only their reading is tested")]
    struct Client {
        id: Text,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[expect(dead_code, reason = "only their reading is tested")]
    struct Params {
        name: Text,
        args: Option<crate::Object>,
        n: Option<Count>,
        #[schemars(range(min = 1, max = 9))]
        few: Option<Count>,
        client: Option<Client>,
        #[schemars(length(min = 1))]
        words: Option<Vec<Word>>,
        shown: Option<FlagOrAll>,
        run: Option<RunId>,
        #[serde(default)]
        label: Patch<Text>,
    }

    fn given(params: Value) -> Result<Params, String> {
        read("m params", &Checker::of::<Params>(), params).map_err(|error| error.message)
    }

    #[test]
    fn refusals_use_the_real_gateways_words() {
        for (params, text) in [
            (json!({}), "must have required property 'name'"),
            (json!(null), "must have required property 'name'"),
            (json!({"name": "a", "bogus": 1}), "at root: unexpected property 'bogus'"),
            (json!({"name": "a", "args": "str"}), "at /args: must be object"),
            (json!({"name": "a", "args": null}), "at /args: must be object"),
            (json!({"name": ""}), "at /name: must not have fewer than 1 characters"),
            (json!({"name": "a", "client": {}}), "at /client: must have required property 'id'"),
            (json!({"name": "a", "client": {"id": "x", "y": 1}}), "at /client: unexpected property 'y'"),
            (json!({"name": "a", "n": -1}), "at /n: must be >= 0"),
            (json!({"name": "a", "n": 1.5}), "at /n: must be integer"),
            (json!({"name": "a", "few": 10}), "at /few: must be <= 9"),
            (json!({"name": "a", "few": 0}), "at /few: must be >= 1"),
            (json!({"name": "a", "words": []}), "at /words: must not have fewer than 1 items"),
            (json!({"name": "a", "words": ["maybe"]}), "at /words/0: must be equal to one of the allowed values"),
            (json!({"name": "a", "shown": "some"}), "at /shown: must be boolean or \"all\""),
            (json!({"name": "a", "run": "x"}), "at /run: must match format \"uuid\""),
            (json!({"name": "a", "label": 5}), "at /label: must be string"),
            (json!([]), "must be object"),
            (
                json!({"n": "x", "few": 0}),
                "must have required property 'name'; at /n: must be integer; at /few: must be >= 1",
            ),
        ] {
            assert_eq!(given(params.clone()).unwrap_err(), format!("invalid m params: {text}"), "{params}");
        }
    }

    #[test]
    fn what_is_right_is_read() {
        let read =
            given(json!({"name": "a", "n": 3.0, "words": ["yes", "no"], "shown": "all", "label": null})).unwrap();
        assert_eq!((read.n, read.label), (Some(Count(3)), Patch::Clear));
        assert_eq!(given(json!({"name": "a", "label": "x"})).unwrap().label, Patch::Set(Text::from("x")));
        assert_eq!(given(json!({"name": "a"})).unwrap().label, Patch::Keep);
    }
}
