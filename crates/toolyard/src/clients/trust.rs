//! Codex's trust in hooks: a hash for each of them in its `config.toml`. Writing it takes the place of the review that
//! Codex asks its user for, so it is done only when a person says `--trust`.

use super::{Program, hook_entries, toml};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use toml_edit::{DocumentMut, value};
use toolyard_hooks::Client;
use toolyard_protocol::canonical;

/// Where Codex keeps it.
const STATE: [&str; 2] = ["hooks", "state"];

/// What Codex hashes of a hook. The members are in the order of their names, as Codex sorts them.
#[derive(Serialize)]
struct Identity<'a> {
    event_name: &'a str,
    hooks: [Handler<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    matcher: Option<&'a str>,
}

#[derive(Serialize)]
struct Handler<'a> {
    r#async: bool,
    command: &'a str,
    timeout: u64,
    r#type: &'a str,
}

/// The key and the hash of each of our hooks, as they stand in a hooks file.
pub(crate) fn entries(program: &Program, file: &Path, settings: &Value) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    for (event, group) in hook_entries::wanted(Client::Codex, program) {
        let groups = settings.pointer(&format!("/hooks/{event}")).and_then(Value::as_array);
        let Some(position) = groups.and_then(|groups| groups.iter().position(|other| *other == group)) else {
            continue;
        };
        let name = snake(event);
        let key = format!("{}:{name}:{position}:0", file.display());
        entries.extend(hash(&name, &group).map(|hash| (key, hash)));
    }
    entries
}

fn hash(event: &str, group: &Value) -> Option<String> {
    let identity = Identity {
        event_name: event,
        hooks: [Handler {
            r#async: false,
            command: group.pointer("/hooks/0/command")?.as_str()?,
            timeout: group.pointer("/hooks/0/timeout")?.as_u64()?,
            r#type: "command",
        }],
        matcher: group.get("matcher").and_then(Value::as_str),
    };
    let text = serde_json::to_vec(&identity).ok()?;
    Some(format!("sha256:{}", canonical::sha256_hex(&text)))
}

/// `PreToolUse` as Codex writes it here: `pre_tool_use`.
fn snake(event: &str) -> String {
    let mut name = String::new();
    for c in event.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// Writes the hashes.
pub(crate) fn add(document: &mut DocumentMut, entries: &[(String, String)]) -> Result<(), String> {
    for (key, hash) in entries {
        toml::table(document, &[STATE[0], STATE[1], key])?.insert("trusted_hash", value(hash.as_str()));
    }
    Ok(())
}

/// Takes out the hashes of a hooks file that were not there before.
pub(crate) fn remove(document: &mut DocumentMut, file: &Path, before: &DocumentMut) {
    let prefix = format!("{}:", file.display());
    let known = |document: &DocumentMut, key: &str| state_entry(document, key).is_some();
    let state = document.get(STATE[0]).and_then(|hooks| hooks.get(STATE[1])).and_then(toml_edit::Item::as_table);
    let keys = state.into_iter().flat_map(|state| state.iter().map(|(key, _)| key.to_owned()));
    let ours: Vec<String> = keys.filter(|key| key.starts_with(&prefix) && !known(before, key)).collect();
    for key in ours {
        toml::remove(document, &STATE, &key);
    }
}

fn state_entry<'a>(document: &'a DocumentMut, key: &str) -> Option<&'a toml_edit::Item> {
    document.get(STATE[0])?.get(STATE[1])?.get(key)
}

/// Whether every hash is there.
pub(crate) fn is_there(text: &str, entries: &[(String, String)]) -> bool {
    let Ok(document) = toml::read(text) else { return false };
    entries.iter().all(|(key, hash)| {
        let entry = state_entry(&document, key).and_then(|entry| entry.get("trusted_hash"));
        entry.and_then(toml_edit::Item::as_str) == Some(hash)
    })
}
