//! Parses bodies and query strings, and reports all errors in the format that the original server's clients expect.

use crate::error::{ApiError, Code, Details, Result, ValidationError};
use serde_json::{Map, Value};

/// The parameters, and the errors found so far.
pub(super) struct Params {
    place: &'static str,
    map: Map<String, Value>,
    known: Vec<&'static str>,
    wrong: Vec<(Option<String>, String, &'static str)>,
}

impl Params {
    /// Parses a JSON body; an empty body is an empty object.
    pub(super) fn body(bytes: &[u8]) -> Result<Self> {
        let new = |map| Self { place: "body", map, known: Vec::new(), wrong: Vec::new() };
        if bytes.is_empty() {
            return Ok(new(Map::new()));
        }
        let mut params = new(Map::new());
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(map)) => return Ok(new(map)),
            Ok(_) => params.fault(
                None,
                "Input should be a valid dictionary or object to extract fields from".to_owned(),
                "model_attributes_type",
            ),
            Err(error) => {
                params.fault(Some(&error.column().to_string()), "JSON decode error".to_owned(), "json_invalid")
            }
        }
        params.finish().map(|()| new(Map::new()))
    }

    /// Parses a query string. Numbers and booleans stay text until they are read.
    pub(super) fn query(query: Option<&str>) -> Self {
        let mut map = Map::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(&value.replace('+', " "));
            let key = decode(key);
            match map.get_mut(&key) {
                Some(Value::Array(all)) => all.push(value.into()),
                Some(one) => *one = Value::Array(vec![one.take(), value.into()]),
                None => {
                    map.insert(key, value.into());
                }
            }
        }
        Self { place: "query", map, known: Vec::new(), wrong: Vec::new() }
    }

    fn fault(&mut self, field: Option<&str>, message: String, kind: &'static str) {
        self.wrong.push((field.map(str::to_owned), message, kind));
    }

    /// Reports an error about the whole body.
    pub(super) fn whole(&mut self, message: &str) {
        self.fault(None, format!("Value error, {message}"), "value_error");
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|value| !value.is_null())
    }

    /// Whether a field is present and null.
    pub(super) fn is_null(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(Value::is_null)
    }

    /// The value of a field.
    pub(super) fn any(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.map.get(name).filter(|value| !value.is_null()).cloned()
    }

    /// Fields that are accepted but have no effect here.
    pub(super) fn accept(&mut self, names: &[&'static str]) {
        self.known.extend(names);
    }

    /// Fields that request an unsupported feature. They are rejected, because silently ignoring them would be worse.
    /// Empty values are allowed.
    pub(super) fn refuse(&mut self, names: &[&'static str]) {
        self.known.extend(names);
        for name in names {
            if self.map.get(*name).is_some_and(asks) {
                self.fault(Some(name), "Not supported by this server; leave it out".to_owned(), "not_supported");
            }
        }
    }

    /// A flag that supports only one value.
    pub(super) fn only(&mut self, name: &'static str, value: bool) {
        if self.flag(name).is_some_and(|given| given != value) {
            self.fault(Some(name), format!("Not supported by this server: only {value}"), "not_supported");
        }
    }

    pub(super) fn object(&mut self, name: &'static str) -> Option<Map<String, Value>> {
        match self.any(name)? {
            Value::Object(fields) => Some(fields),
            _ => {
                self.fault(Some(name), "Input should be a valid dictionary".to_owned(), "dict_type");
                None
            }
        }
    }

    pub(super) fn text(&mut self, name: &'static str) -> Option<String> {
        match self.any(name)? {
            Value::String(text) => Some(text),
            Value::Array(mut all) if self.place == "query" => all.pop().and_then(|v| v.as_str().map(str::to_owned)),
            _ => {
                self.fault(Some(name), "Input should be a valid string".to_owned(), "string_type");
                None
            }
        }
    }

    pub(super) fn required(&mut self, name: &'static str) -> String {
        if !self.has(name) {
            self.known.push(name);
            self.fault(Some(name), "Field required".to_owned(), "missing");
            return String::new();
        }
        self.text(name).unwrap_or_default()
    }

    pub(super) fn integer(&mut self, name: &'static str, least: i64) -> Option<i64> {
        let value = self.any(name)?;
        let read = match &value {
            Value::Number(n) if n.as_f64().is_some_and(|f| f.fract() == 0.0) => {
                n.as_i64().or(n.as_f64().map(|f| f as i64))
            }
            Value::Number(_) => {
                let message = "Input should be a valid integer, got a number with a fractional part";
                self.fault(Some(name), message.to_owned(), "int_from_float");
                return None;
            }
            Value::String(text) => match text.trim().parse() {
                Ok(n) => Some(n),
                Err(_) => {
                    let message = "Input should be a valid integer, unable to parse string as an integer";
                    self.fault(Some(name), message.to_owned(), "int_parsing");
                    return None;
                }
            },
            _ => None,
        };
        match read {
            None => self.fault(Some(name), "Input should be a valid integer".to_owned(), "int_type"),
            Some(n) if n < least => {
                self.fault(
                    Some(name),
                    format!("Input should be greater than or equal to {least}"),
                    "greater_than_equal",
                );
                return None;
            }
            Some(_) => {}
        }
        read
    }

    pub(super) fn number(&mut self, name: &'static str) -> Option<f64> {
        let value = self.any(name)?;
        let read = match &value {
            Value::Number(n) => n.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        if read.is_none() {
            self.fault(Some(name), "Input should be a valid number".to_owned(), "float_type");
        }
        read
    }

    pub(super) fn flag(&mut self, name: &'static str) -> Option<bool> {
        let value = self.any(name)?;
        let read = match &value {
            Value::Bool(flag) => Some(*flag),
            Value::Number(n) if n.as_i64() == Some(1) => Some(true),
            Value::Number(n) if n.as_i64() == Some(0) => Some(false),
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" | "t" | "y" => Some(true),
                "false" | "0" | "no" | "off" | "f" | "n" => Some(false),
                _ => None,
            },
            _ => None,
        };
        if read.is_none() {
            let message = "Input should be a valid boolean, unable to interpret input";
            self.fault(Some(name), message.to_owned(), "bool_parsing");
        }
        read
    }

    pub(super) fn one_of(&mut self, name: &'static str, words: &[&'static str]) -> Option<&'static str> {
        let text = self.text(name)?;
        let found = words.iter().find(|word| **word == text).copied();
        if found.is_none() {
            let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
            let listed = match quoted.split_last() {
                Some((last, [])) => last.clone(),
                Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
                None => String::new(),
            };
            self.fault(Some(name), format!("Input should be {listed}"), "literal_error");
        }
        found
    }

    /// A text or a list of texts.
    pub(super) fn texts(&mut self, name: &'static str) -> Option<Vec<String>> {
        match self.any(name)? {
            Value::String(text) => Some(vec![text]),
            Value::Array(all) if all.iter().all(Value::is_string) => {
                Some(all.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect())
            }
            _ => {
                self.fault(Some(name), "Input should be a valid list".to_owned(), "list_type");
                None
            }
        }
    }

    pub(super) fn list(&mut self, name: &'static str) -> Option<Vec<Value>> {
        match self.any(name)? {
            Value::Array(all) => Some(all),
            _ => {
                self.fault(Some(name), "Input should be a valid list".to_owned(), "list_type");
                None
            }
        }
    }

    /// Reports all errors at once, including unknown fields of a body.
    pub(super) fn finish(&mut self) -> Result<()> {
        if self.place == "body" {
            let extra: Vec<String> = self
                .map
                .keys()
                .filter(|key| !self.known.contains(&key.as_str()))
                .map(|k| k.chars().take(80).collect())
                .collect();
            if self.wrong.iter().all(|(field, ..)| field.is_some()) {
                for key in extra {
                    self.fault(Some(&key), "Extra inputs are not permitted".to_owned(), "extra_forbidden");
                }
            }
        }
        if self.wrong.is_empty() {
            return Ok(());
        }
        let given: Vec<String> = self
            .wrong
            .iter()
            .map(|(field, message, _)| match field {
                Some(field) => format!("{}.{field}: {message}", self.place),
                None => format!("{}: {message}", self.place),
            })
            .collect();
        let errors = self.wrong.iter().map(|(field, message, kind)| ValidationError {
            loc: std::iter::once(self.place.to_owned()).chain(field.clone()).collect(),
            message: message.clone(),
            kind,
        });
        let details = Details { validation_errors: errors.collect(), ..Details::default() };
        let message = format!("Invalid request parameters: {}", given.join("; "));
        let error = ApiError::new(Code::InvalidArgument, message).with(details);
        Err(ApiError { bare: true, ..error })
    }
}

/// Whether a value contains anything that is not empty.
fn asks(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Object(fields) => fields.values().any(asks),
        Value::Array(items) => items.iter().any(asks),
        Value::String(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// Decodes percent-encoding. Invalid sequences are kept.
pub(crate) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_wrong_is_told_at_once_as_clients_know_it() {
        let mut params = Params::body(br#"{"limit": 0, "timeout": 60}"#).unwrap();
        params.integer("limit", 1);
        params.required("query");
        let error = params.finish().unwrap_err();
        assert_eq!(
            error.message,
            "Invalid request parameters: body.limit: Input should be greater than or equal to 1; body.query: Field required; \
             body.timeout: Extra inputs are not permitted"
        );
        let extra = &error.details.unwrap().validation_errors[2];
        assert_eq!((extra.loc.join("."), extra.kind), ("body.timeout".to_owned(), "extra_forbidden"));
        assert_eq!(Params::body(b"[1]").err().unwrap().code, Code::InvalidArgument);
        assert!(Params::body(b"{").is_err());
    }

    #[test]
    fn queries_are_decoded() {
        let mut params = Params::query(Some("uri=viking%3A//resources/a%20b&recursive=true&limit=5&q=a+b%2Bc&x=%zz"));
        assert_eq!(params.text("uri").as_deref(), Some("viking://resources/a b"));
        assert_eq!(params.flag("recursive"), Some(true));
        assert_eq!(params.integer("limit", 1), Some(5));
        assert_eq!(params.text("q").as_deref(), Some("a b+c"));
        assert_eq!(params.text("x").as_deref(), Some("%zz"));
        assert!(params.finish().is_ok());
    }
}
