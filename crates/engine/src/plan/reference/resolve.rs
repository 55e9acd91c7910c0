//! Resolves a template with the outputs of steps into a value.

use super::{BindingPath, Hop, Reference, ReferenceError, Root, Template, TextPart, pointer};
use serde_json::{Map, Value};
use std::{borrow::Cow, collections::HashMap};
use toolyard_protocol::canonical;

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
            None => match loop_count(env.steps.get(name), &reference.path) {
                Some(count) => return Ok(Cow::Owned(Value::from(count))),
                None => return Err(format!("{reference}: no step captures {name}")),
            },
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

/// The value of `$vars.<loop>.<count>`; `None` if the path names none of the counts.
fn loop_count(output: Option<&Value>, path: &[Hop]) -> Option<u64> {
    let [Hop::Key(name)] = path else { return None };
    let output = output?;
    let of = |field: &str| output.get(field)?.as_u64();
    match name.as_str() {
        "count" | "okCount" => of(name),
        "failedCount" => of("count")?.checked_sub(of("okCount")?),
        _ => None,
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
