//! Hooks in the settings of the whole machine, which a repository's own settings cannot switch off. Writing them needs
//! the rights of the machine's administrator.

use super::{Program, hook_entries, json::JsonFile, toml, unusable};
use serde_json::Value;
use std::path::{Path, PathBuf};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, value};
use toolyard_hooks::Client;
use toolyard_protocol::Failure;

/// The file with a client's settings for the whole machine, below a root folder.
pub(crate) fn file(client: Client, root: &Path) -> PathBuf {
    root.join(match client {
        Client::Claude => "etc/claude-code/managed-settings.json",
        Client::Codex => "etc/codex/requirements.toml",
        Client::Gemini => "etc/gemini-cli/settings.json",
        Client::Opencode => "etc/opencode/opencode.json",
    })
}

/// The file's text with our hooks in it.
pub(crate) fn with_hooks(client: Client, program: &Program, path: &Path, text: &str) -> Result<String, Failure> {
    let wrong = |why: String| unusable(path, why);
    if client == Client::Codex {
        let mut document = toml::read(text).map_err(wrong)?;
        remove_codex(&mut document, program);
        add_codex(&mut document, program).map_err(wrong)?;
        return Ok(document.to_string());
    }
    let file = JsonFile::read(text).map_err(wrong)?;
    hook_entries::remove(client, program, &file);
    hook_entries::add(client, program, &file).map_err(wrong)?;
    Ok(file.text())
}

/// The file's text without our hooks.
pub(crate) fn without_hooks(client: Client, program: &Program, path: &Path, text: &str) -> Result<String, Failure> {
    let wrong = |why: String| unusable(path, why);
    if client == Client::Codex {
        let mut document = toml::read(text).map_err(wrong)?;
        remove_codex(&mut document, program);
        return Ok(document.to_string());
    }
    let file = JsonFile::read(text).map_err(wrong)?;
    hook_entries::remove(client, program, &file);
    Ok(file.text())
}

/// Whether the file has our hooks as they should be.
pub(crate) fn has_hooks(client: Client, program: &Program, path: &Path, text: &str) -> Result<bool, Failure> {
    let wrong = |why: String| unusable(path, why);
    let settings: Value = if client == Client::Codex {
        ::toml::from_str(text).map_err(|error| wrong(error.message().to_owned()))?
    } else {
        JsonFile::read(text).map_err(wrong)?.value()
    };
    Ok(hook_entries::installed(client, program, &settings) == hook_entries::Installed::Yes)
}

fn add_codex(document: &mut DocumentMut, program: &Program) -> Result<(), String> {
    let features = toml::table(document, &["features"])?;
    features.set_implicit(false);
    features.insert("hooks", value(true));
    let hooks = toml::table(document, &["hooks"])?;
    hooks.set_implicit(false);
    // Codex requires the folder of the programs of managed hooks.
    if !hooks.contains_key("managed_dir") {
        let folder = program.path.parent().unwrap_or(Path::new("/"));
        hooks.insert("managed_dir", value(folder.display().to_string()));
    }
    for (event, group) in hook_entries::wanted(Client::Codex, program) {
        let groups = hooks.entry(event).or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        let groups = groups.as_array_of_tables_mut().ok_or_else(|| format!("hooks.{event} is not a list of tables"))?;
        groups.push(group_table(&group));
    }
    Ok(())
}

/// A group of hooks as a TOML table. Codex's groups hold texts, numbers and one list of hooks.
fn group_table(group: &Value) -> Table {
    let mut table = Table::new();
    if let Some(matcher) = group.get("matcher").and_then(Value::as_str) {
        table.insert("matcher", value(matcher));
    }
    let mut hooks = Array::new();
    for hook in group.get("hooks").and_then(Value::as_array).into_iter().flatten() {
        let mut entry = InlineTable::new();
        for (name, field) in hook.as_object().into_iter().flatten() {
            match field {
                Value::String(text) => drop(entry.insert(name, text.as_str().into())),
                Value::Number(number) => drop(entry.insert(name, number.as_i64().unwrap_or_default().into())),
                _ => {}
            }
        }
        hooks.push(entry);
    }
    table.insert("hooks", value(hooks));
    table
}

/// Removes our groups. Groups of others stay, and so do the switches that they need.
fn remove_codex(document: &mut DocumentMut, program: &Program) {
    let Some(hooks) = document.get_mut("hooks").and_then(Item::as_table_mut) else { return };
    let events: Vec<String> = hooks.iter().map(|(name, _)| name.to_owned()).collect();
    for event in events {
        let Some(groups) = hooks.get_mut(&event).and_then(Item::as_array_of_tables_mut) else { continue };
        let is_ours = |group: &Table| {
            let entries = group.get("hooks").and_then(Item::as_array).into_iter().flatten();
            let commands = entries.filter_map(|entry| entry.as_inline_table()?.get("command")?.as_str());
            commands.into_iter().any(|command| hook_entries::is_our_line(command, Client::Codex, program))
        };
        groups.retain(|group| !is_ours(group));
        if groups.is_empty() {
            hooks.remove(&event);
        }
    }
}
