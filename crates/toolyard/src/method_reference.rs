//! What is generated from the one list of methods: the page `docs/reference/methods.md`, the JSON Schemas of parameters
//! and answers in `schema/methods.schema.json`, and the console's types in `console/src/types/methods.ts`. Does not
//! know how methods are implemented.
//!
//! A released program has no code that makes schemas from types; it prints the files as they were when it was built.

use crate::{typescript, wiring};
use serde::Serialize;
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Write as _, io};
use toolyard_service::{Definitions, Entry, MethodSchemas, Methods, SharedSchemas, TypeSchemas, stored};

static PAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/methods.md.z"));
static TYPES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/methods.ts.z"));

const HEAD: &str = "# Methods\n\n\
    <!-- Written by `make docs` from the list of methods in crates/service. -->\n\n\
    This page lists every method. Methods with the door `gateway` are available over the WebSocket; methods with the door `local` over\n\
    the local socket, which the command line uses. [schema/methods.schema.json](../../schema/methods.schema.json) has the JSON Schemas of\n\
    parameters and results, and [authority](authority.md) says who may call which method.\n";

/// The schemas of all methods. Each definition is included once, however many methods refer to it.
#[derive(Serialize)]
struct AllSchemas {
    #[serde(rename = "$schema")]
    dialect: &'static str,
    methods: BTreeMap<&'static str, MethodSchemas>,
    #[serde(rename = "$defs")]
    definitions: Definitions,
}

/// The page, in Markdown.
pub fn page() -> io::Result<String> {
    if stored::FROM_TYPES { Ok(page_from_types()) } else { stored::unpack(PAGE) }
}

/// The schemas of all methods, as one JSON document.
pub fn schemas() -> io::Result<String> {
    if stored::FROM_TYPES { Ok(schemas_from_types()?) } else { stored::methods() }
}

/// The types of all methods, in TypeScript.
pub fn types() -> io::Result<String> {
    if stored::FROM_TYPES { Ok(types_from_types()) } else { stored::unpack(TYPES) }
}

fn page_from_types() -> String {
    let methods = wiring::all_methods();
    let mut text = HEAD.to_owned();
    for (family, entries) in families(&methods) {
        // Writing to a String cannot fail.
        _ = write!(text, "\n## {family}\n\n| method | doors | scope | person | parameters | what it does |\n");
        text.push_str("| --- | --- | --- | --- | --- | --- |\n");
        for (entry, types) in entries.into_iter().filter_map(with_types) {
            text.push_str(&row(entry, types));
        }
    }
    text
}

fn schemas_from_types() -> serde_json::Result<String> {
    let mut shared = SharedSchemas::default();
    let methods = wiring::all_methods();
    let methods = methods.iter().filter_map(with_types).map(|(entry, types)| (entry.name, types.shared(&mut shared)));
    let methods = methods.collect();
    let dialect = "https://json-schema.org/draft/2020-12/schema";
    let all = AllSchemas { dialect, methods, definitions: shared.into_definitions() };
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

fn with_types(entry: &Entry) -> Option<(&Entry, &TypeSchemas)> {
    Some((entry, entry.types()?))
}

fn types_from_types() -> String {
    let methods = wiring::all_methods();
    let mut entries: Vec<&Entry> = methods.iter().collect();
    entries.sort_by_key(|entry| entry.name);
    let mut text = "// Written by `make docs` from the list of methods in crates/service.\n\n/** JSON without a type of its own. */\n\
        export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };\n\n"
        .to_owned();
    let mut table = "/** Every method with its parameters and its answer. */\nexport interface Methods {\n".to_owned();
    for (entry, types) in entries.into_iter().filter_map(with_types) {
        let name = typescript::type_name(entry.name);
        typescript::declare(&mut text, &format!("{name}Params"), &types.params(), "");
        typescript::declare(&mut text, &format!("{name}Answer"), &types.answer(), entry.about);
        _ = writeln!(table, "  \"{}\": {{ params: {name}Params; answer: {name}Answer }};", entry.name);
    }
    text + &table + "}\n"
}

/// The methods by the first word of their names, in the order of the list.
fn families(methods: &Methods) -> Vec<(&'static str, Vec<&Entry>)> {
    let mut families: Vec<(&'static str, Vec<&Entry>)> = Vec::new();
    for entry in methods.iter() {
        let family = entry.name.split('.').next().unwrap_or(entry.name);
        match families.iter_mut().find(|(name, _)| *name == family) {
            Some((_, entries)) => entries.push(entry),
            None => families.push((family, vec![entry])),
        }
    }
    families
}

fn row(entry: &Entry, types: &TypeSchemas) -> String {
    let scope = entry.scope().map(|scope| format!("`{scope}`")).unwrap_or_default();
    let person = if entry.terms.demand.person { "yes" } else { "" };
    let doors = entry.terms.reach.as_str();
    let about = entry.about.replace('|', "\\|");
    format!("| `{}` | {doors} | {scope} | {person} | {} | {about} |\n", entry.name, parameters(&types.params()))
}

/// The names of the parameters; `?` marks what may be left out.
fn parameters(schema: &Value) -> String {
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let names =
        schema.get("properties").and_then(Value::as_object).into_iter().flat_map(|properties| properties.keys());
    names
        .map(|name| if required.contains(&name.as_str()) { format!("`{name}`") } else { format!("`{name}?`") })
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::stored;
    use std::path::Path;
    use toolyard_service::params::Checker;

    #[test]
    fn what_is_generated_from_the_methods_is_current() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (file, text) in [
            ("docs/reference/methods.md", super::page().unwrap()),
            ("schema/methods.schema.json", super::schemas().unwrap()),
            ("console/src/types/methods.ts", super::types().unwrap()),
        ] {
            let committed = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            assert!(committed == text, "{file} is out of date: run `make docs`");
        }
    }

    #[test]
    fn a_released_program_checks_parameters_as_their_types_demand() {
        let methods = crate::wiring::all_methods();
        assert!(methods.iter().count() > 100);
        for entry in methods.iter() {
            let stored = Checker::stored(entry.name).unwrap_or_else(|| panic!("{} has no stored schema", entry.name));
            assert_eq!(stored, entry.types().unwrap().checker(), "{} is out of date: run `make docs`", entry.name);
        }
    }

    #[test]
    fn a_released_program_prints_the_committed_files() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (file, text) in [
            ("docs/reference/methods.md", stored::unpack(super::PAGE).unwrap()),
            ("schema/methods.schema.json", stored::methods().unwrap()),
            ("console/src/types/methods.ts", stored::unpack(super::TYPES).unwrap()),
        ] {
            assert!(std::fs::read_to_string(root.join(file)).unwrap() == text, "{file} was not packed again");
        }
    }
}
