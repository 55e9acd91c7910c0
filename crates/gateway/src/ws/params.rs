//! Checks parameters against short tables of fields, and says what is wrong in the words the real gateway uses.

use super::frame::RpcError;
use serde_json::{Map, Value};

/// What a field may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A string of at least one character.
    Text,
    /// A string of 1 to so many bytes.
    TextUpTo(usize),
    /// A string of at least one character, or null.
    TextOrNull,
    /// A string, possibly empty.
    AnyText,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// One of these words, or null.
    OneOfOrNull(&'static [&'static str]),
    /// A list of at least one of these words, or null.
    WordsOrNull(&'static [&'static str]),
    /// A whole number from 0 on.
    Count,
    /// A whole number between two.
    Between(u64, u64),
    /// True or false.
    Flag,
    /// True, false, or this word.
    FlagOr(&'static str),
    /// An object of any content.
    Object,
    /// An object of any content, or null.
    ObjectOrNull,
    /// An object whose values are true or false.
    Flags,
    /// A list of strings.
    Texts,
    /// An object with these fields and no others.
    Fields(&'static [Field]),
    /// Whatever.
    Any,
}

/// One field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    name: &'static str,
    kind: Kind,
    required: bool,
}

impl Field {
    pub(crate) const fn required(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, required: true }
    }
    pub(crate) const fn optional(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, required: false }
    }
}

/// At most this many problems are told; the rest follow once these are mended.
const MAX_PROBLEMS: usize = 8;

/// Everything wrong with a value, in order.
pub(crate) fn problems(value: &Value, fields: &[Field]) -> Vec<String> {
    let mut found = Vec::new();
    walk(value, fields, "", &mut found);
    found.truncate(MAX_PROBLEMS);
    found
}

/// A method's parameters as an object, or the real gateway's refusal.
pub(crate) fn check(method: &str, params: Option<Value>, fields: &[Field]) -> Result<Map<String, Value>, RpcError> {
    let value = match params {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(value) => value,
    };
    let found = problems(&value, fields);
    match value {
        Value::Object(map) if found.is_empty() => Ok(map),
        _ => Err(RpcError::invalid(format!("invalid {method} params: {}", found.join("; ")))),
    }
}

fn walk(value: &Value, fields: &[Field], path: &str, found: &mut Vec<String>) {
    let at = |text: String| if path.is_empty() { text } else { format!("at {path}: {text}") };
    let Some(map) = value.as_object() else {
        found.push(at("must be object".to_owned()));
        return;
    };
    for field in fields.iter().filter(|f| f.required && !map.contains_key(f.name)) {
        found.push(at(format!("must have required property '{}'", field.name)));
    }
    for (key, held) in map {
        match fields.iter().find(|f| f.name == key) {
            Some(field) => one(held, field.kind, (path, key), found),
            None => {
                let shown: String = key.chars().take(80).collect();
                let place = if path.is_empty() { "root" } else { path };
                found.push(format!("at {place}: unexpected property '{shown}'"));
            }
        }
        if found.len() >= MAX_PROBLEMS {
            return;
        }
    }
}

/// Its place is its parent's path and its own name; they are put together only where something is wrong.
fn one(value: &Value, kind: Kind, (parent, key): (&str, &str), found: &mut Vec<String>) {
    let wrong = match (kind, value) {
        (Kind::Any, _) | (Kind::AnyText, Value::String(_)) => None,
        (Kind::TextOrNull | Kind::OneOfOrNull(_) | Kind::WordsOrNull(_) | Kind::ObjectOrNull, Value::Null) => None,
        (Kind::Text | Kind::TextOrNull, Value::String(text)) => {
            text.is_empty().then(|| "must not have fewer than 1 characters".to_owned())
        }
        (Kind::TextUpTo(most), Value::String(text)) => match text.len() {
            0 => Some("must not have fewer than 1 characters".to_owned()),
            n if n > most => Some(format!("must not have more than {most} characters")),
            _ => None,
        },
        (Kind::Text | Kind::TextUpTo(_) | Kind::AnyText | Kind::TextOrNull, _) => Some("must be string".to_owned()),
        (Kind::OneOf(words) | Kind::OneOfOrNull(words), held) => {
            (!is_one_of(held, words)).then(|| "must be equal to one of the allowed values".to_owned())
        }
        (Kind::WordsOrNull(words), Value::Array(items)) if !items.is_empty() => {
            let fits = items.iter().all(|item| is_one_of(item, words));
            (!fits).then(|| "must hold only allowed values".to_owned())
        }
        (Kind::WordsOrNull(_), Value::Array(_)) => Some("must not have fewer than 1 items".to_owned()),
        (Kind::WordsOrNull(_), _) => Some("must be array".to_owned()),
        (Kind::Count, held) => match (held.as_u64(), held.as_i64(), held.as_f64()) {
            (Some(_), _, _) => None,
            (_, Some(_), _) => Some("must be >= 0".to_owned()),
            (_, _, Some(number)) if number.fract() == 0.0 && number >= 0.0 => None,
            _ => Some("must be integer".to_owned()),
        },
        (Kind::Between(least, most), held) => match held.as_u64() {
            Some(n) if n < least => Some(format!("must be >= {least}")),
            Some(n) if n > most => Some(format!("must be <= {most}")),
            Some(_) => None,
            None => Some("must be integer".to_owned()),
        },
        (Kind::Flag, held) => (!held.is_boolean()).then(|| "must be boolean".to_owned()),
        (Kind::FlagOr(word), held) => {
            (!held.is_boolean() && held != word).then(|| format!("must be boolean or \"{word}\""))
        }
        (Kind::Object | Kind::ObjectOrNull, held) => (!held.is_object()).then(|| "must be object".to_owned()),
        (Kind::Flags, held) => match held.as_object() {
            None => Some("must be object".to_owned()),
            Some(map) => map.values().any(|v| !v.is_boolean()).then(|| "must hold only true and false".to_owned()),
        },
        (Kind::Texts, Value::Array(items)) => {
            items.iter().any(|item| !item.is_string()).then(|| "must hold only strings".to_owned())
        }
        (Kind::Texts, _) => Some("must be array".to_owned()),
        (Kind::Fields(fields), held) => {
            walk(held, fields, &format!("{parent}/{key}"), found);
            None
        }
    };
    if let Some(text) = wrong {
        found.push(format!("at {parent}/{key}: {text}"));
    }
}

fn is_one_of(value: &Value, words: &[&str]) -> bool {
    value.as_str().is_some_and(|text| words.contains(&text))
}

/// A string field.
pub(crate) fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key).and_then(Value::as_str)
}

/// A whole number; also one written as `5.0`.
pub(crate) fn count(map: &Map<String, Value>, key: &str) -> Option<u64> {
    map.get(key).and_then(|v| v.as_u64().or_else(|| v.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64)))
}

/// True or false; false when absent.
pub(crate) fn flag(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).and_then(Value::as_bool).unwrap_or_default()
}

/// A list of strings; empty when absent.
pub(crate) fn texts(map: &Map<String, Value>, key: &str) -> Vec<String> {
    let items = map.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FIELDS: &[Field] = &[
        Field::required("name", Kind::Text),
        Field::optional("args", Kind::Object),
        Field::optional("n", Kind::Count),
        Field::optional("client", Kind::Fields(&[Field::required("id", Kind::Text)])),
    ];

    #[test]
    fn refusals_use_the_real_gateways_words() {
        for (params, text) in [
            (json!({}), "invalid m params: must have required property 'name'"),
            (json!({"name":"a","bogus":1}), "invalid m params: at root: unexpected property 'bogus'"),
            (json!({"name":"a","args":"str"}), "invalid m params: at /args: must be object"),
            (json!({"name":"a","client":{}}), "invalid m params: at /client: must have required property 'id'"),
            (json!({"name":"a","n":-1}), "invalid m params: at /n: must be >= 0"),
            (json!([]), "invalid m params: must be object"),
        ] {
            assert_eq!(check("m", Some(params), FIELDS).unwrap_err().message, text);
        }
        assert!(check("m", Some(json!({"name":"a","n":3.0})), FIELDS).is_ok());
    }
}
