//! The policy's rules about secret arguments (`[[policy.secrets]]`).

use super::{config::PolicyConfig, decide::EffectivePolicy, layers::PolicyError, selector::Selectors};
use crate::registry::{ToolEntry, push_segment};
use serde_json::{Map, Value};

/// A rule, ready to match.
#[derive(Debug)]
pub(super) struct SecretArguments {
    tools: Selectors,
    /// Each argument as the names that lead to it.
    arguments: Vec<Vec<String>>,
}

pub(super) fn compile(config: &PolicyConfig) -> Result<Vec<SecretArguments>, PolicyError> {
    let rules = config.secrets.iter().enumerate().map(|(index, rule)| {
        let key = format!("policy.secrets[{index}]");
        if rule.tools.is_empty() || rule.arguments.is_empty() {
            return Err(PolicyError::new(key, "a rule needs tools and arguments"));
        }
        let arguments: Vec<Vec<String>> =
            rule.arguments.iter().map(|name| name.split('.').map(str::to_owned).collect()).collect();
        if arguments.iter().flatten().any(String::is_empty) {
            return Err(PolicyError::new(format!("{key}.arguments"), "an empty name; write `login.pin` or `keys.*`"));
        }
        Ok(SecretArguments {
            tools: Selectors::parse(&format!("{key}.tools"), &rule.tools, &config.groups)?,
            arguments,
        })
    });
    rules.collect()
}

impl EffectivePolicy {
    /// The JSON Pointers of every argument that a rule calls secret.
    pub fn secret_arguments(&self, tool: &ToolEntry, args: &Map<String, Value>) -> Vec<String> {
        let mut found = Vec::new();
        for rule in self.secret_rules().iter().filter(|rule| rule.tools.contains(tool)) {
            for names in &rule.arguments {
                if let Some((first, rest)) = names.split_first() {
                    fields(args, first, rest, &mut String::new(), &mut found);
                }
            }
        }
        found
    }
}

fn fields(map: &Map<String, Value>, name: &str, rest: &[String], pointer: &mut String, found: &mut Vec<String>) {
    for (key, value) in map.iter().filter(|(key, _)| name == "*" || *key == name) {
        step(value, key, rest, pointer, found);
    }
}

fn step(value: &Value, key: &str, rest: &[String], pointer: &mut String, found: &mut Vec<String>) {
    let length = pointer.len();
    push_segment(pointer, key);
    match (rest.split_first(), value) {
        (None, Value::Null) => {}
        (None, _) => found.push(pointer.clone()),
        (Some((name, rest)), Value::Object(map)) => fields(map, name, rest, pointer, found),
        (Some((name, rest)), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                let index = index.to_string();
                if name == "*" || *name == index {
                    step(item, &index, rest, pointer, found);
                }
            }
        }
        _ => {}
    }
    pointer.truncate(length);
}
