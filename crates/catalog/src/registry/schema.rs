//! JSON Schema checks. An error says where the problem is and what was expected, so that an agent can correct it.
//!
//! Nothing is fetched: a schema with a `$ref` to another document does not compile.

use crate::suggest::closest;
use jsonschema::{
    JsonType, ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind as Kind},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use toolyard_protocol::{ErrorCode, Failure};

/// At most this many violations are reported for one value.
pub const MAX_VIOLATIONS: usize = 16;
/// A violation's message is at most this many characters.
const MAX_MESSAGE_CHARS: usize = 300;
/// A violation's path is at most this many characters.
const MAX_PATH_CHARS: usize = 300;
/// A property's name is shown up to this many characters.
const MAX_NAME_CHARS: usize = 60;
/// Values listed for an `enum`, at most.
const MAX_ENUM_VALUES: usize = 20;

/// One way in which a value does not fit its schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// JSON Pointer to the place; empty for the whole value.
    pub path: String,
    /// What was expected there.
    pub message: String,
}

impl Violation {
    /// The error for arguments that do not fit a tool, found by the schema or by the tool itself.
    pub fn refusal(tool: &str, violations: &[Violation]) -> Failure {
        let place = |v: &Violation| if v.path.is_empty() { "arguments".to_owned() } else { v.path.clone() };
        let first = violations.first().map(|v| format!("{}: {}", place(v), v.message)).unwrap_or_default();
        let errors: Vec<Value> = violations.iter().map(|v| json!({"path": v.path, "message": v.message})).collect();
        Failure::new(ErrorCode::ValidationError, format!("the arguments do not fit {tool}: {first}"))
            .detail("errors", errors)
            .retryable(false)
    }

    fn new(path: String, message: String) -> Self {
        Self { path: cut(path, MAX_PATH_CHARS), message: cut(message, MAX_MESSAGE_CHARS) }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.path.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.path, self.message) }
    }
}

/// Faults that are cheap to see without compiling the schema.
pub(super) fn check_shape(schema: &Map<String, Value>) -> Result<(), String> {
    if schema.get("properties").is_some_and(|p| !p.is_object()) {
        return Err("has \"properties\" that are not an object".to_owned());
    }
    match schema.get("required") {
        Some(Value::Array(names)) if names.iter().all(Value::is_string) => {}
        None => {}
        Some(_) => return Err("has a \"required\" that is not a list of names".to_owned()),
    }
    Ok(())
}

/// Checks a value against a schema that is used once, such as a plugin's configuration. `Err` lists what does not fit,
/// or says that the schema is invalid.
pub fn check_once(schema: &Map<String, Value>, value: &Map<String, Value>) -> Result<(), Vec<Violation>> {
    CompiledSchema::new("config", Value::Object(schema.clone())).check(&Value::Object(value.clone()))
}

/// A schema ready to check with, or why it is not.
#[derive(Debug)]
pub(super) struct CompiledSchema {
    validator: Result<Validator, String>,
    schema: Value,
}

impl CompiledSchema {
    /// Compiles. `what` is `input` or `output`.
    pub(super) fn new(what: &str, schema: Value) -> Self {
        let compiled = jsonschema::options().offline().build(&schema);
        let validator = compiled.map_err(|error| format!("the tool's own {what} schema is broken: {error}"));
        Self { validator, schema }
    }

    pub(super) fn check(&self, value: &Value) -> Result<(), Vec<Violation>> {
        let validator = match &self.validator {
            Ok(validator) => validator,
            Err(problem) => return Err(vec![Violation::new(String::new(), problem.clone())]),
        };
        if validator.is_valid(value) {
            return Ok(());
        }
        let mut violations = Vec::new();
        for error in validator.iter_errors(value) {
            self.describe(&error, &mut violations);
            if violations.len() >= MAX_VIOLATIONS {
                break;
            }
        }
        violations.truncate(MAX_VIOLATIONS);
        if violations.is_empty() {
            violations.push(Violation::new(String::new(), "does not fit the schema".to_owned()));
        }
        Err(violations)
    }

    fn describe(&self, error: &ValidationError<'_>, out: &mut Vec<Violation>) {
        let path = error.instance_path().to_string();
        let below = |name: &str| {
            let mut path = path.clone();
            push_segment(&mut path, &cut(name.to_owned(), MAX_NAME_CHARS));
            path
        };
        match error.kind() {
            Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
                let known = self.properties_beside(error);
                for name in unexpected.iter().take(MAX_VIOLATIONS) {
                    let mut message = "no such property".to_owned();
                    if let Some(meant) = closest(name, known.iter().copied()) {
                        let _ = write!(message, "; did you mean {}?", quoted(meant));
                    } else if known.is_empty() {
                        message.push_str("; none are accepted here");
                    } else {
                        let _ = write!(message, "; expected {}", listed(known.iter().map(|name| quoted(name))));
                    }
                    out.push(Violation::new(below(name), message));
                }
            }
            Kind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                out.push(Violation::new(below(name), "required, but missing".to_owned()));
            }
            kind => out.push(Violation::new(path, expectation(kind, error.instance()))),
        }
    }

    /// The properties declared next to the keyword that failed.
    fn properties_beside(&self, error: &ValidationError<'_>) -> Vec<&str> {
        let location = error.schema_path().to_string();
        let parent = location.rsplit_once('/').map_or("", |(parent, _)| parent);
        let properties = self.schema.pointer(parent).and_then(|schema| schema.get("properties"));
        properties.and_then(Value::as_object).map(|map| map.keys().map(String::as_str).collect()).unwrap_or_default()
    }
}

/// What was expected, without the given value.
fn expectation(kind: &Kind, instance: &Value) -> String {
    match kind {
        Kind::Type { kind } => format!("expected {}, got {}", expected_types(kind), type_name(instance)),
        Kind::Enum { options } => {
            let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
            let mut text = format!("expected one of {}", listed(options.iter().map(shown)));
            if let Some(given) = instance.as_str()
                && let Some(meant) = closest(given, options.iter().filter_map(Value::as_str))
            {
                let _ = write!(text, "; did you mean {}?", quoted(meant));
            }
            text
        }
        Kind::Constant { expected_value } => format!("expected {}", shown(expected_value)),
        Kind::Minimum { limit } => format!("expected at least {limit}"),
        Kind::Maximum { limit } => format!("expected at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("expected more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("expected less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("expected a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("expected at least {limit} characters"),
        Kind::MaxLength { limit } => format!("expected at most {limit} characters"),
        Kind::MinItems { limit } => format!("expected at least {limit} items"),
        Kind::MaxItems { limit } => format!("expected at most {limit} items"),
        Kind::AdditionalItems { limit } => format!("expected at most {limit} items"),
        Kind::UnevaluatedItems { .. } => "has items that are not accepted here".to_owned(),
        Kind::UniqueItems => "expected items that differ from one another".to_owned(),
        Kind::Contains => "expected an item of the required form".to_owned(),
        Kind::MinProperties { limit } => format!("expected at least {limit} properties"),
        Kind::MaxProperties { limit } => format!("expected at most {limit} properties"),
        Kind::Pattern { pattern } => format!("expected text that matches {}", cut(pattern.clone(), 160)),
        Kind::Format { format } => format!("expected the format {format}"),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            let mut text = "fits none of the accepted forms".to_owned();
            // The branch with the fewest complaints is most likely the one that was meant.
            if let Some(nearest) = context.iter().filter(|errors| !errors.is_empty()).min_by_key(|errors| errors.len())
                && let Some(error) = nearest.first()
            {
                let _ = match error.kind() {
                    Kind::Required { property } => write!(text, "; the nearest lacks {}", shown(property)),
                    Kind::AdditionalProperties { unexpected } => {
                        let names = unexpected.iter().map(|name| quoted(name));
                        write!(text, "; the nearest does not accept {}", listed(names))
                    }
                    kind => write!(
                        text,
                        "; the nearest: {}: {}",
                        error.instance_path(),
                        expectation(kind, error.instance())
                    ),
                };
            }
            text
        }
        Kind::OneOfMultipleValid { .. } => "fits several forms of which exactly one is accepted".to_owned(),
        Kind::Not { .. } => "has a form that is excluded".to_owned(),
        Kind::FalseSchema => "nothing is accepted here".to_owned(),
        Kind::PropertyNames { error } => {
            format!("has a property whose name is not accepted: {}", expectation(error.kind(), error.instance()))
        }
        Kind::Required { property } => format!("lacks {}", shown(property)),
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            "the schema's pattern could not be evaluated on this value".to_owned()
        }
        Kind::Referencing(_) => "the schema refers to something that is not there".to_owned(),
        other => format!("does not satisfy \"{}\"", other.keyword()),
    }
}

fn expected_types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => kind.to_string(),
        TypeKind::Multiple(kinds) => {
            let names: Vec<String> = kinds.iter().map(|kind: JsonType| kind.to_string()).collect();
            names.join(" or ")
        }
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn listed(items: impl Iterator<Item = String>) -> String {
    let mut items: Vec<String> = items.take(MAX_ENUM_VALUES + 1).collect();
    if items.len() > MAX_ENUM_VALUES {
        items.truncate(MAX_ENUM_VALUES);
        items.push("...".to_owned());
    }
    items.join(", ")
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", cut(name.to_owned(), MAX_NAME_CHARS))
}

fn shown(value: &Value) -> String {
    cut(value.to_string(), MAX_NAME_CHARS)
}

fn cut(text: String, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text,
        Some(_) => text.chars().take(chars.saturating_sub(3)).chain("...".chars()).collect(),
    }
}

/// Appends one segment to a JSON Pointer.
pub(crate) fn push_segment(pointer: &mut String, segment: &str) {
    pointer.push('/');
    for c in segment.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}
