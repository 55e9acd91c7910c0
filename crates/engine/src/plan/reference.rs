//! References and templates: how a step's arguments become concrete. Pure: no clock, no store, no tools.
//!
//! ```text
//! "$steps.<id><path>"  "$vars.<name><path>"  "$run.id"  "$run.startedAt"  "$ctx.<kind><path>"   the whole string: typed value
//! "{item.a[0].b}"                                                                                the whole string: typed value
//! "text {item.a} text {index}"                                                                   text; objects as canonical JSON
//! "$$steps.x" -> "$steps.x"     "{{" -> "{"     "}}" that closes a "{{" -> "}"
//! ```
//!
//! `{x}` where `x` is not a loop binding stays as it is: notes and JSON bodies are full of braces. For the same reason
//! `}}` is only an escape where a `{{` is open, so that `{"a":{"b":1}}` survives.

use serde_json::{Map, Value};
use std::{borrow::Cow, collections::HashMap, fmt};
use toolyard_protocol::{ContextKind, canonical};

/// Where a reference begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// Output of a step.
    Step(String),
    /// A captured variable.
    Var(String),
    /// The run's id.
    RunId,
    /// When the run began.
    RunStartedAt,
    /// An answered context request.
    Context(ContextKind),
}

/// One hop of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hop {
    /// A field.
    Key(String),
    /// An element.
    Index(usize),
}

/// A whole-string reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Where it begins.
    pub root: Root,
    /// Where it goes from there.
    pub path: Vec<Hop>,
}

/// An argument value with its references found.
#[derive(Debug, Clone, PartialEq)]
pub enum Template {
    /// Nothing to resolve.
    Literal(Value),
    /// A typed reference.
    Reference(Reference),
    /// A typed loop binding.
    Binding(BindingPath),
    /// Text with bindings inside.
    Text(Vec<TextPart>),
    /// A list with something to resolve in it.
    Array(Vec<Template>),
    /// An object with something to resolve in it.
    Object(Vec<(String, Template)>),
}

/// A piece of a text template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextPart {
    /// As it is.
    Text(String),
    /// Filled in.
    Binding(BindingPath),
}

/// `{item.a.b}` or `{index}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingPath {
    /// True for the index.
    pub is_index: bool,
    /// Fields of the item.
    pub path: Vec<Hop>,
}

/// The names a foreach binds.
#[derive(Debug, Clone, Copy)]
pub struct BindingNames<'a> {
    /// The item's name.
    pub item: &'a str,
    /// The index's name.
    pub index: &'a str,
}

/// Why a reference cannot be used. `path` is a JSON Pointer into the arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ReferenceError {
    /// Where in the arguments.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.root {
            Root::Step(id) => write!(f, "$steps.{id}")?,
            Root::Var(name) => write!(f, "$vars.{name}")?,
            Root::RunId => f.write_str("$run.id")?,
            Root::RunStartedAt => f.write_str("$run.startedAt")?,
            Root::Context(kind) => write!(f, "$ctx.{}", kind.as_str())?,
        }
        write_path(f, &self.path)
    }
}

fn write_path(f: &mut fmt::Formatter<'_>, path: &[Hop]) -> fmt::Result {
    path.iter().try_for_each(|hop| match hop {
        Hop::Key(key) => write!(f, ".{key}"),
        Hop::Index(i) => write!(f, "[{i}]"),
    })
}

const ROOTS: [&str; 4] = ["$steps.", "$vars.", "$run.", "$ctx."];

/// Reads a whole-string reference. `None` when the text is not one; `Err` when it tries to be and fails.
/// `vars` are the captured names, which may hold dots: the longest one that fits is meant.
pub fn parse_reference(text: &str, vars: &[&str]) -> Result<Option<Reference>, String> {
    if !ROOTS.iter().any(|root| text.starts_with(root)) {
        return Ok(None);
    }
    if text.contains(char::is_whitespace) {
        return Ok(None); // prose that happens to begin like a reference
    }
    let malformed = || format!("{text:?} is not a well-formed reference; the form is $steps.<id>.field[0]");
    let (root, rest) = text.split_once('.').ok_or_else(malformed)?;
    let end = |rest: &str| rest.find(['.', '[']).unwrap_or(rest.len());
    let (root, tail) = match root {
        "$steps" => {
            let at = end(rest);
            toolyard_protocol::StepId::parse(&rest[..at]).map_err(|_| malformed())?;
            (Root::Step(rest[..at].to_owned()), &rest[at..])
        }
        "$vars" => {
            let fits =
                |name: &&&str| rest.strip_prefix(**name).is_some_and(|t| t.is_empty() || t.starts_with(['.', '[']));
            match vars.iter().filter(fits).max_by_key(|name| name.len()) {
                Some(name) => (Root::Var((*name).to_owned()), &rest[name.len()..]),
                None => {
                    let at = end(rest);
                    if at == 0 {
                        return Err(malformed());
                    }
                    (Root::Var(rest[..at].to_owned()), &rest[at..])
                }
            }
        }
        "$run" => match rest {
            "id" => (Root::RunId, ""),
            "startedAt" => (Root::RunStartedAt, ""),
            _ => return Err(format!("{text:?}: only $run.id and $run.startedAt exist")),
        },
        _ => {
            let at = end(rest);
            let kind: ContextKind = serde_json::from_value(Value::from(&rest[..at]))
                .map_err(|_| format!("{text:?}: there is no context called {:?}", &rest[..at]))?;
            (Root::Context(kind), &rest[at..])
        }
    };
    let path = parse_path(tail).ok_or_else(malformed)?;
    Ok(Some(Reference { root, path }))
}

/// Reads `.a.b[0]`.
fn parse_path(mut text: &str) -> Option<Vec<Hop>> {
    let mut path = Vec::new();
    while !text.is_empty() {
        if let Some(rest) = text.strip_prefix('.') {
            let at = rest.find(['.', '[']).unwrap_or(rest.len());
            let key = &rest[..at];
            if key.is_empty() || key.contains([']', '{', '}', '"', '$']) {
                return None;
            }
            path.push(Hop::Key(key.to_owned()));
            text = &rest[at..];
        } else {
            let rest = text.strip_prefix('[')?;
            let (digits, rest) = rest.split_once(']')?;
            if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            path.push(Hop::Index(digits.parse().ok()?));
            text = rest;
        }
    }
    Some(path)
}

/// Finds the references in an argument value.
pub fn compile(value: &Value, vars: &[&str], bindings: Option<BindingNames<'_>>) -> Result<Template, ReferenceError> {
    compile_at(value, vars, bindings, &mut Vec::new())
}

fn compile_at(
    value: &Value,
    vars: &[&str],
    bindings: Option<BindingNames<'_>>,
    at: &mut Vec<String>,
) -> Result<Template, ReferenceError> {
    match value {
        Value::String(text) => {
            compile_text(text, vars, bindings).map_err(|message| ReferenceError { path: pointer(at), message })
        }
        Value::Array(items) => {
            let mut parts = Vec::with_capacity(items.len());
            for (i, item) in items.iter().enumerate() {
                at.push(i.to_string());
                parts.push(compile_at(item, vars, bindings, at)?);
                at.pop();
            }
            if parts.iter().all(|p| matches!(p, Template::Literal(_))) {
                return Ok(Template::Literal(parts.into_iter().map(literal).collect()));
            }
            Ok(Template::Array(parts))
        }
        Value::Object(map) => {
            let mut parts = Vec::with_capacity(map.len());
            for (key, item) in map {
                at.push(key.clone());
                parts.push((key.clone(), compile_at(item, vars, bindings, at)?));
                at.pop();
            }
            if parts.iter().all(|(_, p)| matches!(p, Template::Literal(_))) {
                return Ok(Template::Literal(Value::Object(parts.into_iter().map(|(k, p)| (k, literal(p))).collect())));
            }
            Ok(Template::Object(parts))
        }
        other => Ok(Template::Literal(other.clone())),
    }
}

fn literal(template: Template) -> Value {
    match template {
        Template::Literal(value) => value,
        _ => Value::Null, // only called on literals
    }
}

fn pointer(at: &[String]) -> String {
    at.iter().fold(String::new(), |p, key| p + "/" + &key.replace('~', "~0").replace('/', "~1"))
}

fn compile_text(text: &str, vars: &[&str], bindings: Option<BindingNames<'_>>) -> Result<Template, String> {
    if let Some(reference) = parse_reference(text, vars)? {
        return Ok(Template::Reference(reference));
    }
    let text = if text.starts_with("$$") && has_root(text) { &text[1..] } else { text };
    if !text.contains(['{', '}']) {
        return Ok(Template::Literal(Value::from(text)));
    }
    let mut parts: Vec<TextPart> = Vec::new();
    let mut plain = String::new();
    let mut open_escapes = 0u32;
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("{{") {
            plain.push('{');
            open_escapes += 1;
            rest = after;
        } else if open_escapes > 0
            && let Some(after) = rest.strip_prefix("}}")
        {
            plain.push('}');
            open_escapes -= 1;
            rest = after;
        } else if let Some((binding, after)) = bindings.and_then(|names| parse_binding(rest, names)) {
            if !plain.is_empty() {
                parts.push(TextPart::Text(std::mem::take(&mut plain)));
            }
            parts.push(TextPart::Binding(binding));
            rest = after;
        } else {
            plain.push_str(&rest[..1]);
            rest = &rest[1..];
        }
    }
    plain.push_str(rest);
    if parts.is_empty() {
        return Ok(Template::Literal(Value::from(plain)));
    }
    if plain.is_empty()
        && let [TextPart::Binding(binding)] = &parts[..]
    {
        return Ok(Template::Binding(binding.clone()));
    }
    if !plain.is_empty() {
        parts.push(TextPart::Text(plain));
    }
    Ok(Template::Text(parts))
}

/// Whether a text, after its dollar signs, goes on like a reference: such a text is escaped with one more dollar sign.
fn has_root(text: &str) -> bool {
    let name = text.trim_start_matches('$');
    ROOTS
        .iter()
        .map(|root| root.trim_start_matches('$'))
        .any(|root| name.starts_with(root) || name == root.trim_end_matches('.'))
}

/// Reads `{item.a}` at the start of the text.
fn parse_binding<'a>(text: &'a str, names: BindingNames<'_>) -> Option<(BindingPath, &'a str)> {
    let (inside, after) = text.strip_prefix('{')?.split_once('}')?;
    if inside == names.index {
        return Some((BindingPath { is_index: true, path: Vec::new() }, after));
    }
    let tail = inside.strip_prefix(names.item)?;
    if !tail.is_empty() && !tail.starts_with(['.', '[']) {
        return None;
    }
    Some((BindingPath { is_index: false, path: parse_path(tail)? }, after))
}

/// Writes a value so that [`compile`] gives it back unchanged: for plans made by programs.
pub fn escape(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(escape_text(&text)),
        Value::Array(items) => items.into_iter().map(escape).collect(),
        Value::Object(map) => Value::Object(map.into_iter().map(|(k, v)| (k, escape(v))).collect()),
        other => other,
    }
}

fn escape_text(text: &str) -> String {
    let mut out = if text.starts_with('$') && has_root(text) { "$".to_owned() } else { String::new() };
    let mut open = 0u32;
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix('{') {
            out.push_str("{{");
            open += 1;
            rest = after;
        } else {
            // With an escape open, `}}` means one brace; with none open, one brace means itself.
            out.push_str(if open > 0 { "}}" } else { "}" });
            open = open.saturating_sub(1);
            rest = &rest[1..];
        }
    }
    out + rest
}

/// Calls `visit` for every reference in a template.
pub fn each_reference<'a>(template: &'a Template, visit: &mut impl FnMut(&'a Reference)) {
    match template {
        Template::Reference(reference) => visit(reference),
        Template::Array(parts) => parts.iter().for_each(|p| each_reference(p, visit)),
        Template::Object(parts) => parts.iter().for_each(|(_, p)| each_reference(p, visit)),
        Template::Literal(_) | Template::Binding(_) | Template::Text(_) => {}
    }
}

/// What references resolve against.
pub struct Env<'a> {
    /// Outputs of ended steps, with the aliases of foreach iterations.
    pub steps: &'a HashMap<String, Value>,
    /// Captured variables: name to step.
    pub vars: &'a HashMap<String, String>,
    /// The run's id.
    pub run_id: &'a str,
    /// When it began.
    pub started_at: &'a str,
    /// Answered context requests.
    pub context: &'a Map<String, Value>,
    /// The item and its index, inside a foreach.
    pub item: Option<(&'a Value, u64)>,
}

/// Resolves a template. Missing references are errors, never `null`.
pub fn resolve(template: &Template, env: &Env<'_>) -> Result<Value, ReferenceError> {
    resolve_at(template, env, &mut Vec::new())
}

fn resolve_at(template: &Template, env: &Env<'_>, at: &mut Vec<String>) -> Result<Value, ReferenceError> {
    let located = |message: String, at: &[String]| ReferenceError { path: pointer(at), message };
    match template {
        Template::Literal(value) => Ok(value.clone()),
        Template::Reference(reference) => look_up(reference, env).map(Cow::into_owned).map_err(|m| located(m, at)),
        Template::Binding(binding) => bound(binding, env).map(Cow::into_owned).map_err(|m| located(m, at)),
        Template::Text(parts) => {
            let mut out = String::new();
            for part in parts {
                match part {
                    TextPart::Text(text) => out.push_str(text),
                    TextPart::Binding(binding) => {
                        let value = bound(binding, env).map_err(|m| located(m, at))?;
                        match &*value {
                            Value::String(text) => out.push_str(text),
                            other => {
                                out.push_str(&canonical::to_string(other).map_err(|e| located(e.to_string(), at))?)
                            }
                        }
                    }
                }
            }
            Ok(Value::String(out))
        }
        Template::Array(parts) => {
            let mut out = Vec::with_capacity(parts.len());
            for (i, part) in parts.iter().enumerate() {
                at.push(i.to_string());
                out.push(resolve_at(part, env, at)?);
                at.pop();
            }
            Ok(Value::Array(out))
        }
        Template::Object(parts) => {
            let mut out = Map::with_capacity(parts.len());
            for (key, part) in parts {
                at.push(key.clone());
                out.insert(key.clone(), resolve_at(part, env, at)?);
                at.pop();
            }
            Ok(Value::Object(out))
        }
    }
}

/// Follows a reference.
pub fn look_up<'a>(reference: &Reference, env: &Env<'a>) -> Result<Cow<'a, Value>, String> {
    let of_step = |id: &str| {
        env.steps
            .get(id)
            .ok_or_else(|| format!("{reference}: step {id} has no output (it has not run, or it did not succeed)"))
    };
    let base: Cow<'a, Value> = match &reference.root {
        Root::Step(id) => Cow::Borrowed(of_step(id)?),
        Root::Var(name) => match env.vars.get(name) {
            Some(step) => Cow::Borrowed(of_step(step)?),
            None => return Err(format!("{reference}: no step captures {name}")),
        },
        Root::RunId => Cow::Owned(Value::from(env.run_id)),
        Root::RunStartedAt => Cow::Owned(Value::from(env.started_at)),
        Root::Context(kind) => Cow::Borrowed(
            env.context
                .get(kind.as_str())
                .ok_or_else(|| format!("{reference}: the plan did not ask for this context"))?,
        ),
    };
    match base {
        Cow::Borrowed(value) => follow(value, &reference.path, &reference.to_string()).map(Cow::Borrowed),
        Cow::Owned(value) if reference.path.is_empty() => Ok(Cow::Owned(value)),
        Cow::Owned(_) => Err(format!("{reference}: has no fields")),
    }
}

fn bound<'a>(binding: &BindingPath, env: &Env<'a>) -> Result<Cow<'a, Value>, String> {
    let (item, index) = env.item.ok_or("a loop binding outside a loop")?;
    if binding.is_index {
        return Ok(Cow::Owned(Value::from(index)));
    }
    follow(item, &binding.path, "item").map(Cow::Borrowed)
}

fn follow<'a>(mut value: &'a Value, path: &[Hop], whole: &str) -> Result<&'a Value, String> {
    for hop in path {
        let next = match hop {
            Hop::Key(key) => value.get(key.as_str()),
            Hop::Index(i) => value.get(*i),
        };
        value = next.ok_or_else(|| {
            let hop = match hop {
                Hop::Key(key) => format!("field {key:?}"),
                Hop::Index(i) => format!("element [{i}]"),
            };
            let has = match value {
                Value::Object(map) => format!("it has {}", map.keys().take(12).cloned().collect::<Vec<_>>().join(", ")),
                Value::Array(items) => format!("it is a list of {}", items.len()),
                _ => "it is not an object or a list".to_owned(),
            };
            format!("{whole}: there is no {hop}; {has}")
        })?;
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const NAMES: BindingNames<'_> = BindingNames { item: "item", index: "index" };

    fn run(template: &Value, item: Option<(&Value, u64)>) -> Result<Value, ReferenceError> {
        let steps =
            HashMap::from([("read".to_owned(), json!({"items":[{"path":"a.md"},7],"n":null,"deep":{"x-y":[1,[2]]}}))]);
        let vars = HashMap::from([("found.files".to_owned(), "read".to_owned())]);
        let context = Map::from_iter([("selection".to_owned(), json!({"text":"hi"}))]);
        let env = Env { steps: &steps, vars: &vars, run_id: "R", started_at: "T", context: &context, item };
        resolve(&compile(template, &["found.files"], item.map(|_| NAMES))?, &env)
    }

    #[test]
    fn whole_string_references_keep_their_type() {
        for (text, value) in [
            ("$steps.read.items[0]", json!({"path":"a.md"})),
            ("$steps.read.items[1]", json!(7)),
            ("$steps.read.n", json!(null)),
            ("$steps.read.deep.x-y[1][0]", json!(2)),
            ("$vars.found.files.items[0].path", json!("a.md")),
            ("$ctx.selection.text", json!("hi")),
            ("$run.id", json!("R")),
            ("$run.startedAt", json!("T")),
        ] {
            assert_eq!(run(&json!({"v":[text]}), None).unwrap(), json!({"v":[value]}), "{text}");
        }
    }

    #[test]
    fn missing_and_malformed_references_are_errors_with_a_place() {
        for (text, why) in [
            ("$steps.gone", "has no output"),
            ("$steps.read.nope", "no field \"nope\"; it has items, n, deep"),
            ("$steps.read.items[9]", "no element [9]; it is a list of 2"),
            ("$steps.read.n.x", "not an object or a list"),
            ("$vars.other", "no step captures other"),
            ("$ctx.cursor", "did not ask"),
            ("$ctx.weather", "no context called"),
            ("$run.user", "only $run.id"),
            ("$steps.", "well-formed"),
            ("$steps.read.", "well-formed"),
            ("$steps.read[x]", "well-formed"),
            ("$steps.read..a", "well-formed"),
        ] {
            let err = run(&json!({"a":{"b":[1, text]}}), None).unwrap_err();
            assert_eq!(err.path, "/a/b/1", "{text}");
            assert!(err.message.contains(why), "{text}: {}", err.message);
        }
    }

    #[test]
    fn loop_bindings_and_escapes() {
        let item = json!({"path":"x.md","n":3,"o":{"b":1,"a":[true]},"list":["p","q"]});
        for (text, value) in [
            ("{item.path}", json!("x.md")),
            ("{item.n}", json!(3)),
            ("{item}", item.clone()),
            ("{index}", json!(4)),
            ("{item.list[1]}", json!("q")),
            ("notes/{item.path}#{index}", json!("notes/x.md#4")),
            ("n={item.n} o={item.o}", json!("n=3 o={\"a\":[true],\"b\":1}")),
            ("{items} {other.x} {}", json!("{items} {other.x} {}")),
            ("{{item.path}}", json!("{item.path}")),
            ("{{literal}} {item.n}", json!("{literal} 3")),
            (r#"{"a":{"b":"{item.n}"}}"#, json!(r#"{"a":{"b":"3"}}"#)),
            ("$$steps.read", json!("$steps.read")),
            ("$$x^2$$", json!("$$x^2$$")),
            ("$5 and $HOME", json!("$5 and $HOME")),
            ("$steps.read is prose", json!("$steps.read is prose")),
        ] {
            assert_eq!(run(&json!(text), Some((&item, 4))).unwrap(), value, "{text}");
        }
        assert!(run(&json!("{item.nope}"), Some((&item, 0))).unwrap_err().message.contains("no field"));
        assert_eq!(run(&json!("{item.path} {index}"), None).unwrap(), json!("{item.path} {index}"), "outside a loop");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[a-z]{1,4}", inner), 0..4).prop_map(|p| Value::Object(p.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_value_comes_through_a_typed_reference_unchanged(value in any_json()) {
            let steps = HashMap::from([("s".to_owned(), json!({"v": value}))]);
            let (vars, context) = (HashMap::new(), Map::new());
            let env = Env { steps: &steps, vars: &vars, run_id: "", started_at: "", context: &context, item: Some((&value, 0)) };
            prop_assert_eq!(&resolve(&compile(&json!("$steps.s.v"), &[], None).unwrap(), &env).unwrap(), &value);
            prop_assert_eq!(&resolve(&compile(&json!("{item}"), &[], Some(NAMES)).unwrap(), &env).unwrap(), &value);
        }

        #[test]
        fn text_without_dollar_or_brace_is_left_alone(text in "[^$\\{\\}]{0,40}") {
            prop_assert_eq!(compile(&json!(text), &[], Some(NAMES)).unwrap(), Template::Literal(json!(text)));
        }

        #[test]
        fn no_text_makes_it_panic_and_resolution_is_pure(text in "[$a-z.\\[\\]0-9\\{\\} é]{0,40}") {
            let item = json!({"a":1});
            let once = run(&json!(text), Some((&item, 1)));
            prop_assert_eq!(once, run(&json!(text), Some((&item, 1))));
        }

        #[test]
        fn escaped_values_come_back_unchanged(text in "[$stepvar.\\{\\} a]{0,24}") {
            for text in [text.clone(), format!("$steps.{text}"), format!("$$run.{text}")] {
                prop_assert_eq!(compile(&escape(json!(text)), &[], Some(NAMES)).unwrap(), Template::Literal(json!(text)));
            }
        }

        #[test]
        fn doubled_braces_always_come_back_single(inner in "[a-z. ]{0,12}") {
            let item = json!({});
            prop_assert_eq!(run(&json!(format!("{{{{{inner}}}}}")), Some((&item, 0))).unwrap(), json!(format!("{{{inner}}}")));
        }
    }
}
