//! Templates: an argument value with its parsed references, and the escaping of values that must not contain any.

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
    /// Text that is copied unchanged.
    Text(String),
    /// A loop binding, which is replaced.
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

/// `{name}` or `{name.path}` in a text, where no loop of the step binds the name. It stays in the text as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unbound<'a> {
    /// As written, with its braces.
    pub text: &'a str,
    /// The name before the first dot or bracket.
    pub name: &'a str,
    /// What follows the name.
    pub path: UnboundPath,
}

/// What follows the name in an [`Unbound`] binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnboundPath {
    /// No format: `{name}`.
    None,
    /// Fields or elements: `{name.a[0]}`.
    Fields,
    /// A dot or a bracket, but no path: `{name.}` or `{name[key]}`.
    Malformed,
}

/// Calls `visit` for every unbound binding in the texts of an argument value.
pub fn each_unbound<'a>(value: &'a Value, bindings: Option<BindingNames<'_>>, visit: &mut impl FnMut(Unbound<'a>)) {
    match value {
        Value::String(text) => Pieces::of(text, bindings).for_each(|piece| {
            if let Piece::Unbound(unbound) = piece {
                visit(unbound);
            }
        }),
        Value::Array(items) => items.iter().for_each(|item| each_unbound(item, bindings, visit)),
        Value::Object(map) => map.values().for_each(|item| each_unbound(item, bindings, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
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
    for piece in Pieces::of(text, bindings) {
        match piece {
            Piece::Text(text) => plain.push_str(text),
            Piece::Unbound(unbound) => plain.push_str(unbound.text),
            Piece::Binding(binding) => {
                if !plain.is_empty() {
                    parts.push(TextPart::Text(std::mem::take(&mut plain)));
                }
                parts.push(TextPart::Binding(binding));
            }
        }
    }
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

/// What a text with braces consists of.
enum Piece<'a> {
    Text(&'a str),
    Binding(BindingPath),
    Unbound(Unbound<'a>),
}

/// Cuts a text at its braces.
struct Pieces<'a, 'n> {
    rest: &'a str,
    bindings: Option<BindingNames<'n>>,
    /// How many `{{` have no `}}` so far.
    open_escapes: u32,
}

impl<'a, 'n> Pieces<'a, 'n> {
    fn of(text: &'a str, bindings: Option<BindingNames<'n>>) -> Self {
        Self { rest: text, bindings, open_escapes: 0 }
    }

    /// Removes this many bytes from the text and returns them.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }
}

impl<'a> Iterator for Pieces<'a, '_> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let at = self.rest.find(['{', '}']).unwrap_or(self.rest.len());
        if at > 0 {
            return Some(Piece::Text(self.take(at)));
        }
        if self.rest.is_empty() {
            return None;
        }
        if self.rest.starts_with("{{") {
            self.open_escapes += 1;
            return Some(Piece::Text(&self.take(2)[..1]));
        }
        if self.open_escapes > 0 && self.rest.starts_with("}}") {
            self.open_escapes -= 1;
            return Some(Piece::Text(&self.take(2)[..1]));
        }
        if let Some((binding, after)) = self.bindings.and_then(|names| parse_binding(self.rest, names)) {
            self.rest = after;
            return Some(Piece::Binding(binding));
        }
        if let Some(unbound) = parse_unbound(self.rest) {
            self.take(unbound.text.len());
            return Some(Piece::Unbound(unbound));
        }
        Some(Piece::Text(self.take(1)))
    }
}

/// Reads `{name}` or `{name.a[0]}` at the start of the text, whatever the name.
fn parse_unbound(text: &str) -> Option<Unbound<'_>> {
    let end = text.find('}')?;
    let inside = text.get(1..end)?;
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name = &inside[..inside.find(|c| !is_inner(c)).unwrap_or(inside.len())];
    if !text.starts_with('{') || !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    let tail = &inside[name.len()..];
    let plain = |hop: &Hop| match hop {
        Hop::Key(key) => key.chars().all(is_inner),
        Hop::Index(_) => true,
    };
    let path = match parse_path(tail) {
        Some(path) if path.is_empty() => UnboundPath::None,
        Some(path) if path.iter().all(plain) => UnboundPath::Fields,
        _ if tail.starts_with(['.', '[']) => UnboundPath::Malformed,
        _ => return None,
    };
    Some(Unbound { text: &text[..=end], name, path })
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

/// Calls `visit` for every loop binding in a template.
pub fn each_binding<'a>(template: &'a Template, visit: &mut impl FnMut(&'a BindingPath)) {
    match template {
        Template::Binding(binding) => visit(binding),
        Template::Text(parts) => parts.iter().for_each(|part| {
            if let TextPart::Binding(binding) = part {
                visit(binding);
            }
        }),
        Template::Array(parts) => parts.iter().for_each(|p| each_binding(p, visit)),
        Template::Object(parts) => parts.iter().for_each(|(_, p)| each_binding(p, visit)),
        Template::Literal(_) | Template::Reference(_) => {}
    }
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
