//! Which settings the nodes of a cluster share, and which each node has for itself in its `config.toml`.

use crate::config::{Change, Config, differences, is_within, parsed};
use serde_json::{Map, Value};
use toml_edit::{DocumentMut, TableLike};
use toolyard_protocol::Failure;

/// Tables and keys that a node reads from its own file: its name, where state is kept, where it listens, and folders and
/// programs of its machine. Every other setting is shared.
const OF_NODE: &[&str] = &[
    "node",
    "store",
    "vault",
    "knowledge",
    "index",
    "record",
    "log",
    "gateway.host",
    "gateway.port",
    "gateway.tls",
    "context.path",
    "context.traceRecallDir",
    "mcp.skills",
    "plugins.paths",
    "plugins.node",
];

/// Whether each node has a setting for itself.
pub(crate) fn is_of_node(key: &str) -> bool {
    is_within(key, OF_NODE)
}

/// The shared part of a file, as people wrote it.
pub(crate) fn shared_text(text: &str) -> Result<String, Failure> {
    // The whole file must be valid: a wrong key in a node's own part is reported now and not at the next start.
    parsed(text, "config.toml")?;
    let mut document: DocumentMut =
        text.parse().map_err(|_| crate::config::invalid("config.toml is not TOML".to_owned()))?;
    for key in OF_NODE {
        match key.split_once('.') {
            None => drop(document.as_table_mut().remove(key)),
            Some((table, key)) => {
                if let Some(table) = document.get_mut(table).and_then(toml_edit::Item::as_table_like_mut) {
                    TableLike::remove(table, key);
                }
            }
        }
    }
    Ok(document.to_string())
}

/// The text of a file with the shared settings of a cluster in place of its own.
pub(crate) fn with_shared(file: &str, shared: &str) -> Result<String, Failure> {
    let not_toml = || crate::config::invalid("config.toml is not TOML".to_owned());
    let mut document: DocumentMut = file.parse().map_err(|_| not_toml())?;
    let tables: Vec<String> =
        document.iter().map(|(name, _)| name.to_owned()).filter(|name| !is_of_node(name)).collect();
    for name in tables {
        let Some(table) = document.get_mut(&name).and_then(toml_edit::Item::as_table_like_mut) else { continue };
        let keys: Vec<String> = table.iter().map(|(key, _)| key.to_owned()).collect();
        for key in keys.iter().filter(|key| !is_of_node(&format!("{name}.{key}"))) {
            TableLike::remove(table, key);
        }
        if table.is_empty() {
            document.as_table_mut().remove(&name);
        }
    }
    let shared: Map<String, Value> = toml::from_str(shared).map_err(|_| not_toml())?;
    Ok(Change::make(&document.to_string(), &shared)?.text)
}

/// A node's configuration: the shared part of one configuration, and the node's own part of another.
pub(crate) fn combined(mut shared: Config, own: &Config) -> Config {
    let own = own.clone();
    shared.node = own.node;
    shared.store = own.store;
    shared.vault = own.vault;
    shared.knowledge = own.knowledge;
    shared.index = own.index;
    shared.record = own.record;
    shared.log = own.log;
    shared.gateway.host = own.gateway.host;
    shared.gateway.port = own.gateway.port;
    shared.gateway.tls = own.gateway.tls;
    shared.context.path = own.context.path;
    shared.context.trace_recall_dir = own.context.trace_recall_dir;
    shared.mcp.skills = own.mcp.skills;
    shared.plugins.paths = own.plugins.paths;
    shared.plugins.node = own.plugins.node;
    shared
}

/// The shared settings of a configuration, for showing.
pub(crate) fn shown(config: &Config) -> Map<String, Value> {
    let mut shown = match crate::config::as_value(config) {
        Value::Object(shown) => shown,
        _ => Map::new(),
    };
    for key in OF_NODE {
        match key.split_once('.') {
            None => drop(shown.remove(*key)),
            Some((table, key)) => {
                if let Some(table) = shown.get_mut(table).and_then(Value::as_object_mut) {
                    table.remove(key);
                }
            }
        }
    }
    shown
}

/// The shared settings in which two configurations differ.
pub(crate) fn changed(before: &Config, after: &Config) -> Vec<String> {
    differences(before, after).into_iter().filter(|key| !is_of_node(key)).collect()
}

/// The shared settings that a file sets to something else than the nodes use. What the file does not mention is no
/// difference: it follows the cluster.
pub(crate) fn ignored(text: &str, in_use: &Config) -> Result<Vec<String>, Failure> {
    let file = parsed(text, "config.toml")?;
    let written: Map<String, Value> =
        toml::from_str(text).map_err(|_| crate::config::invalid("config.toml is not TOML".to_owned()))?;
    let is_written = |key: &String| {
        let mut keys = key.split('.');
        let mut value = keys.next().and_then(|key| written.get(key));
        for key in keys {
            // A value that is not a table here is compared as a whole.
            value = match value.map(|value| value.get(key)) {
                Some(None) if !value.is_some_and(Value::is_object) => return true,
                Some(below) => below,
                None => return false,
            };
        }
        value.is_some()
    };
    Ok(changed(&file, in_use).into_iter().filter(is_written).collect())
}

/// A patch in two: what changes the shared settings, and what changes the node's own.
pub(crate) fn divided(patch: &Map<String, Value>) -> (Map<String, Value>, Map<String, Value>) {
    let (mut shared, mut own) = (Map::new(), Map::new());
    for (table, value) in patch {
        if is_of_node(table) {
            own.insert(table.clone(), value.clone());
            continue;
        }
        let has_own = OF_NODE.iter().any(|key| key.split_once('.').is_some_and(|(first, _)| first == table));
        match value {
            Value::Object(keys) if has_own => {
                let (of_node, of_all): (Map<_, _>, Map<_, _>) =
                    keys.clone().into_iter().partition(|(key, _)| is_of_node(&format!("{table}.{key}")));
                for (part, keys) in [(&mut own, of_node), (&mut shared, of_all)] {
                    if !keys.is_empty() {
                        part.insert(table.clone(), Value::Object(keys));
                    }
                }
            }
            // A table that is removed as a whole leaves the node's own part of it alone.
            value => drop(shared.insert(table.clone(), value.clone())),
        }
    }
    (shared, own)
}

/// Applies the two parts of a patch to the shared text and to the file's.
pub(crate) fn change(shared: &str, file: &str, patch: &Map<String, Value>) -> Result<(Change, Change), Failure> {
    let (of_all, of_node) = divided(patch);
    Ok((Change::make(shared, &of_all)?, Change::make(file, &of_node)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FILE: &str = "# a node\n[node]\nname = \"a\"\n\n[gateway]\nport = 7 # its own\nallowedOrigins = [\"https://x\"]\n\n\
                        [policy]\n# why\ndeny = [\"vault.deleteFile\"]\n";

    #[test]
    fn a_file_is_divided_and_comments_stay() {
        let shared = shared_text(FILE).unwrap();
        assert!(!shared.contains("name") && !shared.contains("port"), "{shared}");
        assert!(shared.contains("# why\ndeny = [\"vault.deleteFile\"]"), "{shared}");
        let (before, after) = (parsed(FILE, "f").unwrap(), parsed(&shared, "v").unwrap());
        assert_eq!(changed(&before, &after), Vec::<String>::new());
        assert_eq!(combined(after, &before), before);
    }

    #[test]
    fn a_file_takes_over_the_shared_settings_of_a_cluster() {
        let shared = "[policy]\nprofile = \"full\"\n[gateway]\nallowedHosts = [\"h\"]\n";
        let text = with_shared(FILE, shared).unwrap();
        let config = parsed(&text, "f").unwrap();
        assert_eq!(config, combined(parsed(shared, "s").unwrap(), &parsed(FILE, "f").unwrap()), "{text}");
        assert!(text.contains("port = 7 # its own") && !text.contains("deleteFile"), "{text}");
    }

    #[test]
    fn every_setting_of_a_node_comes_from_its_file_and_every_other_from_the_cluster() {
        let own = "node.name = \"a\"\nstore.bucket = \"s3://x\"\nvault.path = \"/v\"\nknowledge.enabled = false\n\
                   index.program = \"/p\"\nrecord.heads = [\"/h\"]\nlog.level = \"debug\"\ngateway.host = \"10.0.0.1\"\n\
                   gateway.port = 9\ngateway.tls.certFile = \"/c\"\ngateway.tls.keyFile = \"/k\"\ncontext.path = \"/x\"\n\
                   context.traceRecallDir = \"/t\"\nmcp.skills = [\"/s\"]\nplugins.paths = [\"/p\"]\nplugins.node = \"/n\"\n";
        let own = parsed(own, "f").unwrap();
        assert_eq!(combined(Config::default(), &own), own);
        let keys = differences(&Config::default(), &own);
        assert!(keys.iter().all(|key| is_of_node(key)), "{keys:?}");
        for key in OF_NODE {
            assert!(keys.iter().any(|set| is_within(set, &[key])), "{key} is not in this test");
        }
    }

    #[test]
    fn only_what_the_file_says_differently_is_ignored() {
        let in_use =
            parsed("[policy]\ndeny = [\"x\"]\n[mcp.servers.s]\ncommand = \"cat\"\nargs = [\"-n\"]\n", "v").unwrap();
        let ignored = |text: &str| ignored(text, &in_use).unwrap();
        assert_eq!(ignored("[node]\nname = \"a\"\n"), Vec::<String>::new());
        assert_eq!(ignored("[policy]\ndeny = [\"x\"]\n"), Vec::<String>::new());
        assert_eq!(ignored("[policy]\ndeny = [\"y\"]\n"), ["policy.deny"]);
        assert_eq!(ignored("[mcp.servers.s]\ncommand = \"cat\"\n"), Vec::<String>::new());
        assert_eq!(ignored("[mcp.servers.t]\ncommand = \"cat\"\n"), ["mcp.servers.t.command"]);
    }

    #[test]
    fn a_patch_goes_to_the_file_and_to_the_cluster() {
        let patch = json!({"gateway": {"port": 8, "allowedOrigins": []}, "log": {"level": "debug"}, "policy": null});
        let (shared, own) = divided(patch.as_object().unwrap());
        assert_eq!(json!(shared), json!({"gateway": {"allowedOrigins": []}, "policy": null}));
        assert_eq!(json!(own), json!({"gateway": {"port": 8}, "log": {"level": "debug"}}));
        let (shared, own) = change(&shared_text(FILE).unwrap(), FILE, patch.as_object().unwrap()).unwrap();
        assert_eq!(shared.keys, ["gateway.allowedOrigins", "policy.deny"]);
        assert_eq!(own.keys, ["gateway.port", "log.level"]);
        assert!(own.text.contains("port = 8 # its own"), "{}", own.text);
    }
}
