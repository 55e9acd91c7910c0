//! Changes to `config.toml` by method: a JSON merge patch (RFC 7396) is written into the file as people wrote it, with its
//! comments, and read back through the same types as at a start before it is kept.

use super::{Config, invalid, secrets};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike};
use toolyard_engine::redact::HIDDEN;
use toolyard_protocol::{ErrorCode, Failure};

/// Tables and keys whose changes a running Toolyard applies at once.
const APPLIED: &[&str] = &["policy", "hooks", "notify", "context.askBeforeWriting"];
/// Keys among them that are read at a start alone.
const READ_AT_START: &[&str] = &["policy.sandbox.followSymlinks", "policy.agents"];
/// Tables that a browser may change. It may be on another machine, so what names programs, folders or addresses to listen on
/// is left to the command line.
const FOR_BROWSERS: &[&str] =
    &["policy", "tools", "agents", "hooks", "notify", "engine", "retention", "log", "bridge.allowedSenders"];
/// Keys among them that a browser may not change: they open folders and the private network.
const NOT_FOR_BROWSERS: &[&str] = &["policy.sandbox", "notify.privateHosts"];

/// A change that was checked and not yet written.
#[derive(Debug)]
pub(crate) struct Change {
    /// The new text of the file.
    pub(crate) text: String,
    /// The new configuration.
    pub(crate) config: Config,
    /// The keys whose values differ.
    pub(crate) keys: Vec<String>,
}

/// Whether a key is one of these tables or keys, or lies below one.
pub(crate) fn is_within(key: &str, tables: &[&str]) -> bool {
    tables.iter().any(|table| key == *table || key.strip_prefix(table).is_some_and(|rest| rest.starts_with('.')))
}

/// Whether a running Toolyard takes a setting over at once.
fn is_applied(key: &str) -> bool {
    is_within(key, APPLIED) && !is_within(key, READ_AT_START)
}

/// Whether a running node takes a setting over at once when a new version of the shared configuration has it. MCP servers are
/// started and stopped as by `mcp.add` and `mcp.remove`.
pub(crate) fn is_applied_live(key: &str) -> bool {
    is_applied(key) || is_within(key, &["mcp.servers"])
}

impl Change {
    /// Applies a patch to the text of a file.
    pub(crate) fn make(text: &str, patch: &Map<String, Value>) -> Result<Self, Failure> {
        if has_hidden(&Value::Object(patch.clone())) {
            let what = format!("the patch contains the word {HIDDEN}, which stands for a secret");
            return Err(Failure::new(ErrorCode::ValidationError, what)
                .suggest("Send only the keys that change, with their real values."));
        }
        let mut document: DocumentMut = text
            .parse()
            .map_err(|_| invalid("config.toml is not TOML; `toolyard config check` names the line".to_owned()))?;
        merge(document.as_table_mut(), patch)?;
        let written = document.to_string();
        let before = read(text)?;
        let config = read(&written)?;
        let keys = differences(&secrets::as_value(&before), &secrets::as_value(&config));
        Ok(Self { text: written, config, keys })
    }

    /// The keys whose changes a running Toolyard applies at once, and those that are read only at a start.
    pub(crate) fn split(&self) -> (Vec<String>, Vec<String>) {
        self.keys.iter().cloned().partition(|key| is_applied(key))
    }

    /// The address of a channel that changes while its token stays: the token, which a browser cannot read, would be sent
    /// to the new address.
    fn redirected_token(&self) -> Option<&String> {
        self.keys.iter().find(|key| {
            let parts: Vec<&str> = key.split('.').collect();
            let ["notify", "channels", name, "url"] = parts[..] else { return false };
            let Some(channel) = self.config.notify.channels.get(name) else { return false };
            let is_new = self.keys.contains(&format!("notify.channels.{name}.token"));
            channel.token_env.is_some() || channel.token_file.is_some() || (channel.token.is_some() && !is_new)
        })
    }

    /// Refuses a change that a browser may not make.
    pub(crate) fn check_for_browser(&self) -> Result<(), Failure> {
        let texts = secrets::texts();
        let refers = |key: &str| {
            let marks = texts.iter().filter(|(pattern, _)| fits(key, pattern)).filter_map(|(_, mark)| mark.as_deref());
            marks.into_iter().any(|mark| matches!(mark, "variable" | "file"))
        };
        let refused = self
            .keys
            .iter()
            .find(|key| !is_within(key, FOR_BROWSERS) || is_within(key, NOT_FOR_BROWSERS) || refers(key));
        match refused.or_else(|| self.redirected_token()) {
            None => Ok(()),
            Some(key) => Err(Failure::new(ErrorCode::PolicyDenied, format!("{key} cannot be changed in a browser"))
                .suggest(format!("Run `toolyard config set {key} VALUE` on the machine itself."))),
        }
    }
}

/// Whether a key is one that a pattern with `*` stands for.
fn fits(key: &str, pattern: &str) -> bool {
    let (mut own, mut parts) = (key.split('.'), pattern.split('.'));
    loop {
        match (own.next(), parts.next()) {
            (None, None) => return true,
            // A list is compared as a whole, so its key ends before the pattern of its items.
            (None, Some("*")) => return parts.next().is_none(),
            (Some(own), Some(part)) if part == "*" || part == own => {}
            _ => return false,
        }
    }
}

fn read(text: &str) -> Result<Config, Failure> {
    toml::from_str(text).map_err(|error| invalid(format!("config.toml: {}", super::misread(text, &error))))
}

fn has_hidden(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(HIDDEN),
        Value::Array(items) => items.iter().any(has_hidden),
        Value::Object(map) => map.values().any(has_hidden),
        _ => false,
    }
}

/// Merges a patch into a table. `null` removes a key.
fn merge(table: &mut dyn TableLike, patch: &Map<String, Value>) -> Result<(), Failure> {
    for (key, value) in patch {
        match value {
            Value::Null => {
                table.remove(key);
            }
            Value::Object(inner) => {
                let is_table = table.get(key).is_some_and(Item::is_table_like);
                if !is_table {
                    let mut made = Table::new();
                    made.set_implicit(true);
                    table.insert(key, Item::Table(made));
                }
                let below = table.get_mut(key).and_then(Item::as_table_like_mut);
                let below = below.ok_or_else(|| invalid(format!("{key} is not a table in config.toml")))?;
                merge(below, inner)?;
            }
            value => {
                let mut new = written(value)?;
                match table.get_mut(key).and_then(Item::as_value_mut) {
                    Some(old) => {
                        // Comments beside the old value stay.
                        *new.decor_mut() = old.decor().clone();
                        *old = new;
                    }
                    None => {
                        table.insert(key, Item::Value(new));
                    }
                }
            }
        }
    }
    Ok(())
}

/// A value as TOML.
fn written(value: &Value) -> Result<toml_edit::Value, Failure> {
    let unwritable = |what: &str| Failure::new(ErrorCode::ValidationError, format!("{what} cannot be written in TOML"));
    Ok(match value {
        Value::Null => return Err(unwritable("null inside a list")),
        Value::Bool(value) => (*value).into(),
        Value::String(text) => text.as_str().into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(real)) if number.is_f64() => real.into(),
            _ => return Err(unwritable("this number")),
        },
        Value::Array(items) => toml_edit::Value::Array(items.iter().map(written).collect::<Result<Array, _>>()?),
        Value::Object(map) => {
            let mut table = InlineTable::new();
            for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
                table.insert(key, written(value)?);
            }
            toml_edit::Value::InlineTable(table)
        }
    })
}

/// The keys of leaves that differ. Lists are compared as a whole.
pub(super) fn differences(before: &Value, after: &Value) -> Vec<String> {
    fn walk(before: &Value, after: &Value, path: &str, out: &mut Vec<String>) {
        match (before.as_object(), after.as_object()) {
            (None, None) if before == after => {}
            (None, None) => out.push(path.to_owned()),
            (before, after) => {
                let empty = Map::new();
                let (before, after) = (before.unwrap_or(&empty), after.unwrap_or(&empty));
                for key in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
                    let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    let null = Value::Null;
                    walk(before.get(key).unwrap_or(&null), after.get(key).unwrap_or(&null), &below, out);
                }
            }
        }
    }
    let mut out = Vec::new();
    walk(before, after, "", &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patch(text: &str, patch: Value) -> Result<Change, Failure> {
        Change::make(text, patch.as_object().unwrap())
    }

    #[test]
    fn comments_and_order_stay_and_only_the_named_keys_change() {
        let text = "# mine\n[gateway]\nport = 1 # why\n\n[log]\n# loud\nlevel = \"info\"\n";
        let change = patch(text, json!({"log": {"level": "debug"}, "notify": {"coalesceSeconds": 5}})).unwrap();
        assert_eq!(change.text, text.replace("\"info\"", "\"debug\"") + "\n[notify]\ncoalesceSeconds = 5\n");
        assert_eq!(change.keys, ["log.level", "notify.coalesceSeconds"]);
        assert_eq!(change.split(), (vec!["notify.coalesceSeconds".to_owned()], vec!["log.level".to_owned()]));
    }

    #[test]
    fn null_removes_a_key_and_tables_are_made_where_they_are_needed() {
        let change = patch(
            "[log]\nlevel = \"info\"\n",
            json!({"log": {"level": null}, "notify": {"channels": {"phone": {"url": "https://n.example/t"}}}}),
        )
        .unwrap();
        assert_eq!(change.text, "[log]\n\n[notify.channels.phone]\nurl = \"https://n.example/t\"\n");
        assert_eq!(change.config.log.level, "warn");
    }

    #[test]
    fn inline_tables_are_changed_in_place() {
        let text = "mcp = { servers = { a = { command = \"cat\" } } }\n";
        let change = patch(text, json!({"mcp": {"servers": {"a": {"args": ["-n"]}}}})).unwrap();
        assert_eq!(change.keys, ["mcp.servers.a.args"]);
        assert_eq!(change.config.mcp.servers["a"].args, ["-n"]);
    }

    #[test]
    fn what_the_file_would_refuse_is_refused_with_its_place() {
        let failure = patch("", json!({"gateway": {"prot": 1}})).unwrap_err();
        assert_eq!(failure.code, ErrorCode::ConfigInvalid);
        assert!(failure.message.contains("prot"), "{}", failure.message);
        assert_eq!(patch("", json!({"gateway": {"port": "x"}})).unwrap_err().code, ErrorCode::ConfigInvalid);
        let hidden = patch("", json!({"gateway": {"token": HIDDEN}})).unwrap_err();
        assert_eq!(hidden.code, ErrorCode::ValidationError);
    }

    #[test]
    fn a_browser_changes_rules_and_no_programs_folders_or_references_to_secrets() {
        let may = |change: Value| patch("", change).unwrap().check_for_browser().is_ok();
        assert!(may(json!({"policy": {"deny": ["vault.deleteFile"]}})));
        assert!(may(json!({"notify": {"channels": {"phone": {"url": "https://n.example/t", "token": "abcdefgh"}}}})));
        for refused in [
            json!({"vault": {"path": "/etc"}}),
            json!({"index": {"program": "/bin/sh"}}),
            json!({"mcp": {"servers": {"x": {"command": "sh"}}}}),
            json!({"gateway": {"host": "0.0.0.0"}}),
            json!({"policy": {"sandbox": {"followSymlinks": true}}}),
            json!({"notify": {"privateHosts": ["127.0.0.1"]}}),
            json!({"notify": {"channels": {"phone": {"url": "https://n.example/t", "tokenEnv": "HOME"}}}}),
            json!({"notify": {"channels": {"phone": {"url": "https://n.example/t", "tokenFile": "/etc/passwd"}}}}),
            json!({"record": {"heads": ["/tmp/x"]}}),
        ] {
            assert!(!may(refused.clone()), "{refused}");
        }
    }

    #[test]
    fn a_browser_does_not_send_a_token_it_cannot_read_to_another_address() {
        let to = |token: &str, change: Value| {
            let text = format!("[notify.channels.phone]\nkind = \"ntfy\"\nurl = \"https://n.example/t\"\n{token}\n");
            patch(&text, json!({"notify": {"channels": {"phone": change}}})).unwrap().check_for_browser().is_ok()
        };
        let away = json!({"url": "https://elsewhere.example/t"});
        for token in ["token = \"abcdefgh\"", "tokenEnv = \"NTFY\"", "tokenFile = \"/etc/ntfy\""] {
            assert!(!to(token, away.clone()), "{token}");
            assert!(to(token, json!({"minSeverity": "info"})), "{token}");
        }
        assert!(to("", away));
        assert!(to("token = \"abcdefgh\"", json!({"url": "https://elsewhere.example/t", "token": "ijklmnop"})));
    }
}
