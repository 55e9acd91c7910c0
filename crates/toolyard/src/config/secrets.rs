//! Which settings are secret. A field of the configuration that may hold a secret carries `x-secret` in its schema,
//! with how it is shown. `config show` and `config.get` hide these fields, and the process's redactor learns their
//! values. A test walks the schema, so that a new text must be classified.

use super::Config;
use serde_json::Value;
use std::{path::Path, sync::OnceLock};
use toolyard_engine::redact::{self, HIDDEN, redactor};

/// The key in a field's schema.
pub(super) const MARK: &str = "x-secret";
/// A file of a secret is not larger than this.
const MAX_SECRET_FILE: u64 = 64 << 10;

/// How a setting is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// All of it, with everything below it.
    Value,
    /// An address: user, password, query, and what looks random in its path.
    Url,
    /// An argument of a command: all but the names of flags.
    Argument,
    /// The name of a variable of the environment, which holds the secret. The name is shown.
    Variable,
    /// The name of a file that holds the secret. The name is shown.
    File,
}

impl Kind {
    fn read(schema: &Value) -> Option<Self> {
        match schema.get(MARK)?.as_str()? {
            "url" => Some(Self::Url),
            "argument" => Some(Self::Argument),
            "variable" => Some(Self::Variable),
            "file" => Some(Self::File),
            // An unknown mark hides the whole value.
            _ => Some(Self::Value),
        }
    }
}

fn schema() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(super::page::schema)
}

/// The schema of the value under a key.
fn below<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    let own = schema.get("properties").and_then(|p| p.get(key));
    let own = own.or_else(|| schema.get("additionalProperties").filter(|s| s.is_object()));
    own.or_else(|| {
        let choices = ["anyOf", "oneOf", "allOf"].iter().filter_map(|word| schema.get(*word)?.as_array()).flatten();
        choices.into_iter().find_map(|choice| below(choice, key))
    })
}

/// Shows every setting that is marked to a visitor, with its name: texts, and lists of arguments as a whole.
fn walk(
    schema: &Value,
    name: &str,
    above: Option<Kind>,
    value: &mut Value,
    visit: &mut dyn FnMut(Kind, &str, &mut Value),
) {
    let kind = Kind::read(schema).or(above);
    match (value, kind) {
        (value @ Value::Array(_), Some(Kind::Argument)) => visit(Kind::Argument, name, value),
        (Value::Array(items), kind) => {
            let inner = schema.get("items").unwrap_or(&Value::Null);
            items.iter_mut().for_each(|item| walk(inner, name, kind, item, visit));
        }
        (Value::Object(map), kind) => {
            for (key, item) in map.iter_mut() {
                walk(below(schema, key).unwrap_or(&Value::Null), key, kind, item, visit);
            }
        }
        (Value::Null, _) | (_, None) => {}
        (value, Some(kind)) => visit(kind, name, value),
    }
}

/// The configuration as JSON, to be walked beside its schema.
pub(super) fn as_value(config: &Config) -> Value {
    serde_json::to_value(config).unwrap_or_else(|error| {
        tracing::error!(%error, "the configuration cannot be looked through for secrets");
        Value::Null
    })
}

/// The configuration for showing.
pub(super) fn redacted(config: &Config) -> Config {
    let mut shown = as_value(config);
    walk(schema(), "", None, &mut shown, &mut |kind, _, value| match (kind, value) {
        (Kind::Variable | Kind::File, _) => {}
        (Kind::Url, Value::String(text)) => *text = redact::url(text),
        (Kind::Argument, Value::Array(arguments)) => {
            for argument in arguments.iter_mut() {
                *argument = argument.as_str().map_or_else(|| HIDDEN.into(), |text| redact::argument(text).into());
            }
        }
        (_, value) => *value = HIDDEN.into(),
    });
    // A redacted configuration that cannot be parsed is not shown at all.
    serde_json::from_value(shown).unwrap_or_else(|error| {
        tracing::error!(%error, "the configuration is not shown: it cannot be read back without its secrets");
        Config::default()
    })
}

/// Tells the process's redactor what is secret in a configuration, and what it refers to.
pub(super) fn learn(config: &Config) {
    let mut all = as_value(config);
    walk(schema(), "", None, &mut all, &mut |kind, name, value| match (kind, value) {
        (Kind::Value, Value::String(text)) => redactor().learn_named(name, text),
        (Kind::Url, Value::String(text)) => redactor().learn_url(text),
        (Kind::Argument, Value::Array(arguments)) => {
            let texts: Vec<&str> = arguments.iter().filter_map(Value::as_str).collect();
            redactor().learn_arguments(&texts);
        }
        (Kind::Variable, Value::String(variable)) => {
            let is_meant = name.ends_with("Env") && name != "passEnv" || redact::is_telling(variable);
            if let Some(secret) = std::env::var(&*variable).ok().filter(|_| is_meant) {
                redactor().learn(&secret);
            }
        }
        (Kind::File, Value::String(file)) => {
            let path = super::expand(Path::new(file));
            let is_small = std::fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() <= MAX_SECRET_FILE);
            if let Some(secret) = is_small.then(|| std::fs::read_to_string(&path).ok()).flatten() {
                redactor().learn(&secret);
            }
        }
        _ => {}
    });
}

/// Every text of the configuration, by its path (`*` for any key or place), with how it is marked.
#[doc(hidden)]
pub fn texts() -> Vec<(String, Option<String>)> {
    fn list(schema: &Value, path: &str, above: Option<&str>, out: &mut Vec<(String, Option<String>)>) {
        let mark = schema.get(MARK).and_then(Value::as_str).or(above);
        let is = |word: &str| match schema.get("type") {
            Some(Value::String(t)) => t == word,
            Some(Value::Array(all)) => all.iter().any(|t| t == word),
            _ => false,
        };
        for choice in ["anyOf", "oneOf", "allOf"].iter().filter_map(|word| schema.get(*word)?.as_array()).flatten() {
            list(choice, path, mark, out);
        }
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (key, inner) in properties {
                list(inner, &format!("{path}.{key}"), mark, out);
            }
        }
        if let Some(inner) = schema.get("additionalProperties").filter(|s| s.is_object() || **s == Value::Bool(true)) {
            list(inner, &format!("{path}.*"), mark, out);
        }
        if let Some(inner) = schema.get("items") {
            list(inner, &format!("{path}.*"), mark, out);
        }
        let is_closed = schema.get("properties").is_some() || schema.get("additionalProperties").is_some();
        let is_open = *schema == Value::Bool(true) || (is("object") && !is_closed);
        let is_text = is("string") && schema.get("enum").is_none() && schema.get("const").is_none();
        if is_text || is_open {
            out.push((path.trim_start_matches('.').to_owned(), mark.map(str::to_owned)));
        }
    }
    let mut out = Vec::new();
    list(schema(), "", None, &mut out);
    out.sort();
    out.dedup();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Texts that hold no secret. A new text is either marked in its type or named here, with a reason if it is not plain.
    const PUBLIC: &str = include_str!("public_texts.txt");

    #[test]
    fn every_text_of_the_configuration_is_classified() {
        let public: Vec<&str> = PUBLIC.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
        let unmarked: Vec<String> =
            texts().into_iter().filter(|(_, mark)| mark.is_none()).map(|(path, _)| path).collect();
        let new: Vec<&String> = unmarked.iter().filter(|path| !public.contains(&path.as_str())).collect();
        assert!(
            new.is_empty(),
            "mark these with #[schemars(extend(\"x-secret\" = ...))] or name them in public_texts.txt: {new:#?}"
        );
    }

    #[test]
    fn a_canary_in_every_secret_setting_is_shown_nowhere() {
        let marked: Vec<(String, String)> =
            texts().into_iter().filter_map(|(path, mark)| Some((path, mark?))).collect();
        assert!(marked.len() >= 10, "{marked:?}");
        for (n, (path, mark)) in marked.iter().enumerate() {
            let canary = format!("CANARY{n}x7f3a9c2e");
            let text = match mark.as_str() {
                "url" => format!("https://ada:{canary}@x.org/{canary}/y?key={canary}#{canary}"),
                "variable" | "file" => continue,
                _ => canary.clone(),
            };
            let mut value = json!(text);
            for (depth, part) in path.split('.').rev().enumerate() {
                value = match part {
                    "*" if depth == 0 && (mark == "argument" || path == "record.heads.*") => json!([value]),
                    "*" => json!({"some-name": value}),
                    key => json!({key: value}),
                };
            }
            if path.starts_with("context.llm") {
                value["context"]["llm"]["kind"] = "ollama".into();
                value["context"]["llm"]["model"] = "m".into();
            }
            let config: Config =
                serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{path}: {e} {value}"));
            let shown = redacted(&config);
            assert_ne!(shown, Config::default(), "{path}: something is shown");
            let (json, toml) = (serde_json::to_string(&shown).unwrap(), toml::to_string(&shown).unwrap());
            assert!(!json.contains(&canary) && !toml.contains(&canary), "{path}: {json}");
            learn(&config);
            let said = redactor().text(&format!("it failed: {text}")).into_owned();
            assert!(!said.contains(&canary), "{path}: {said}");
        }
    }
}
