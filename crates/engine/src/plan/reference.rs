//! References and templates: how the arguments of a step are computed. Pure: no clock, store or tools.
//!
//! ```text
//! "$steps.<id><path>"  "$vars.<name><path>"  "$run.id"  "$run.startedAt"  "$ctx.<kind><path>"   the whole string: typed value
//! "$vars.run.id"  "$vars.run.startedAt"  "$vars.<loop>.count|okCount|failedCount"                 the executor's own values
//! "{item.a[0].b}"                                                                                the whole string: typed value
//! "text {item.a} text {index}"                                                                   text; objects as canonical JSON
//! "$$steps.x" -> "$steps.x"     "{{" -> "{"     "}}" that closes a "{{" -> "}"
//! ```
//!
//! `{x}` stays unchanged if `x` is not a loop binding, because notes and JSON often contain braces. The plan's check
//! refuses those that look like a binding. For the same reason `}}` is an escape only where a `{{` is open, so that
//! `{"a":{"b":1}}` stays unchanged.

mod resolve;
mod template;
#[cfg(test)]
mod tests;

pub use resolve::{Env, look_up, resolve};
pub use template::{
    BindingNames, BindingPath, Template, TextPart, Unbound, UnboundPath, compile, each_binding, each_reference,
    each_unbound, escape,
};

use serde_json::Value;
use std::fmt;
use toolyard_protocol::ContextKind;

/// What `$vars.<loop>` has of a finished loop.
pub const LOOP_COUNTS: [&str; 3] = ["count", "okCount", "failedCount"];

/// Where a reference begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// Output of a step.
    Step(String),
    /// A captured variable, or a finished loop with its counts.
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
        f.write_str(&path_text(&self.path))
    }
}

/// A loop binding as it is written in a plan.
pub fn written(name: &str, path: &[Hop]) -> String {
    format!("{{{name}{}}}", path_text(path))
}

fn path_text(path: &[Hop]) -> String {
    path.iter()
        .map(|hop| match hop {
            Hop::Key(key) => format!(".{key}"),
            Hop::Index(i) => format!("[{i}]"),
        })
        .collect()
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
                // The executor's own values; a captured name hides them.
                None if rest == "run.id" => (Root::RunId, ""),
                None if rest == "run.startedAt" => (Root::RunStartedAt, ""),
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

fn pointer(at: &[String]) -> String {
    at.iter().fold(String::new(), |p, key| p + "/" + &key.replace('~', "~0").replace('/', "~1"))
}
