//! What keeps installed hooks from running: settings that switch hooks off, in the user's files or in a repository's, and
//! entries that the client cannot read.

use super::{json::JsonFile, kept, places};
use serde_json::Value;
use std::path::{Path, PathBuf};
use toolyard_hooks::Client;

/// The kinds of hooks that Claude Code knows.
const CLAUDE_KINDS: [&str; 5] = ["command", "prompt", "agent", "http", "mcp_tool"];

/// Looks at a client's settings and at those of the repository around a folder.
pub(crate) fn problems(client: Client, path: &Path, settings: &Value, folder: &Path) -> Vec<String> {
    let mut found = Vec::from_iter(switched_off(client, path, settings));
    if client == Client::Claude {
        found.extend(invalid_entries(path, settings));
    }
    for path in repository_files(client, folder) {
        let Some(settings) = read(&path) else { continue };
        found.extend(switched_off(client, &path, &settings));
        if client == Client::Claude {
            found.extend(invalid_entries(&path, &settings));
        }
    }
    if client == Client::Codex
        && let Ok(path) = places::codex_config()
        && let Some(settings) = read(&path)
    {
        found.extend(switched_off(client, &path, &settings));
    }
    found
}

/// Settings that a repository brings along, from a folder upwards to the root of its repository.
fn repository_files(client: Client, folder: &Path) -> Vec<PathBuf> {
    let names: &[&str] = match client {
        Client::Claude => &[".claude/settings.json", ".claude/settings.local.json"],
        Client::Codex => &[".codex/config.toml"],
        Client::Gemini => &[".gemini/settings.json"],
        Client::Opencode => &[],
    };
    let mut files = Vec::new();
    // The user's own folder has the same name as a repository's, and is looked at as the user's.
    let user = places::user_home().ok();
    for folder in folder.ancestors().take_while(|folder| Some(*folder) != user.as_deref()) {
        files.extend(names.iter().map(|name| folder.join(name)));
        if folder.join(".git").exists() {
            break;
        }
    }
    files
}

/// A file's settings; `None` for a file that is not there or cannot be read, which its client reports itself.
fn read(path: &Path) -> Option<Value> {
    let text = kept::read(path).ok()??;
    if path.extension().is_some_and(|extension| extension == "toml") {
        return ::toml::from_str(&text).ok();
    }
    JsonFile::read(&text).ok().map(|file| file.value())
}

fn switched_off(client: Client, path: &Path, settings: &Value) -> Option<String> {
    let (pointer, off, words) = match client {
        Client::Claude => ("/disableAllHooks", true, "disableAllHooks = true"),
        Client::Codex => ("/features/hooks", false, "features.hooks = false"),
        Client::Gemini => ("/hooksConfig/enabled", false, "hooksConfig.enabled = false"),
        Client::Opencode => return None,
    };
    let is_off = settings.pointer(pointer).and_then(Value::as_bool) == Some(off);
    let named = settings.pointer("/hooksConfig/disabled").and_then(Value::as_array);
    let is_named = client == Client::Gemini && named.is_some_and(|names| names.iter().any(|name| name == "toolyard"));
    if is_off {
        return Some(format!("{} says {words}: no hook runs. Remove that setting.", path.display()));
    }
    is_named.then(|| {
        format!("{} lists toolyard in hooksConfig.disabled: no hook of it runs. Remove the name.", path.display())
    })
}

/// Entries that Claude Code cannot read. One of them, by anybody, disables every hook of the file in print mode.
fn invalid_entries(path: &Path, settings: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut wrong = |place: String, why: &str| {
        let file = path.display();
        found.push(format!("{file}: {place} {why}. Claude Code ignores every hook of this file then; correct it."));
    };
    let Some(hooks) = settings.get("hooks") else { return found };
    let Some(events) = hooks.as_object() else {
        wrong("hooks".to_owned(), "is not an object");
        return found;
    };
    for (event, groups) in events {
        let Some(groups) = groups.as_array() else {
            wrong(format!("hooks.{event}"), "is not a list");
            continue;
        };
        for (number, group) in groups.iter().enumerate() {
            let place = format!("hooks.{event}[{number}]");
            if group.get("matcher").is_some_and(|matcher| !matcher.is_string()) {
                wrong(format!("{place}.matcher"), "is not a text");
            }
            match group.get("hooks").and_then(Value::as_array) {
                Some(entries) => {
                    for entry in entries {
                        if let Some(why) = invalid_entry(entry) {
                            wrong(place.clone(), why);
                        }
                    }
                }
                None => wrong(place, "has no list of hooks"),
            }
        }
    }
    found
}

fn invalid_entry(entry: &Value) -> Option<&'static str> {
    let is_text = |key: &str| entry.get(key).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    let is_number = |key: &str| entry.get(key).is_none_or(Value::is_number);
    match entry.get("type").and_then(Value::as_str) {
        None => Some("has a hook without a type"),
        Some(kind) if !CLAUDE_KINDS.contains(&kind) => Some("has a hook of a kind that Claude Code does not know"),
        Some("command") if !is_text("command") => Some("has a hook without a command"),
        Some(_) if !is_number("timeout") => Some("has a timeout that is not a number"),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_entry_that_claude_code_cannot_read_is_named() {
        let path = Path::new("/s.json");
        let good = json!({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x", "timeout": 3}]}]}});
        assert!(invalid_entries(path, &good).is_empty());
        for bad in [
            json!({"hooks": []}),
            json!({"hooks": {"Stop": {}}}),
            json!({"hooks": {"Stop": [{"command": "x"}]}}),
            json!({"hooks": {"Stop": [{"matcher": 1, "hooks": []}]}}),
            json!({"hooks": {"Stop": [{"hooks": [{"command": "x"}]}]}}),
            json!({"hooks": {"Stop": [{"hooks": [{"type": "command"}]}]}}),
            json!({"hooks": {"Stop": [{"hooks": [{"type": "shout", "command": "x"}]}]}}),
            json!({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x", "timeout": "3"}]}]}}),
        ] {
            assert_eq!(invalid_entries(path, &bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_repository_that_switches_hooks_off_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("src");
        for name in [".git", ".claude", ".codex", ".gemini", "src"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let none = json!({});
        for (client, file, text) in [
            (Client::Claude, ".claude/settings.local.json", "{\"disableAllHooks\": true}"),
            (Client::Codex, ".codex/config.toml", "[features]\nhooks = false\n"),
            (Client::Gemini, ".gemini/settings.json", "{\"hooksConfig\": {\"disabled\": [\"toolyard\"]}}"),
        ] {
            assert!(problems(client, Path::new("/s"), &none, &inner).is_empty(), "{client}");
            std::fs::write(folder.path().join(file), text).unwrap();
            let found = problems(client, Path::new("/s"), &none, &inner);
            assert!(found.len() == 1 && found[0].contains(file), "{client}: {found:?}");
        }
    }
}
