//! Templates: an argument value with its references found, and how a value is written so that none are.

use super::{Hop, ROOTS, Reference, ReferenceError, parse_path, parse_reference, pointer};
use serde_json::Value;

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
