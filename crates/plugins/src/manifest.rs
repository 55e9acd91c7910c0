//! `openclaw.plugin.json`: a plugin's manifest, read and checked before any of its code runs.

use crate::install::is_invisible;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};
use toolyard_beneath::{Folder, Links, explained};
use toolyard_catalog::Profile;
use toolyard_protocol::{ErrorCode, Failure, ToolName};

/// The manifest's file.
pub const MANIFEST_FILE: &str = "openclaw.plugin.json";
/// A manifest is at most this long.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;
/// An id is at most this long.
const MAX_ID: usize = 64;
/// Tools one plugin may declare.
const MAX_TOOLS: usize = 1000;

/// When a plugin is started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Activation {
    /// With Toolyard, rather than with the first call.
    pub on_startup: bool,
}

/// The tools that a plugin declares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Contracts {
    /// Its tools. Any other it registers is refused.
    pub tools: Vec<String>,
}

/// Metadata of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolMetadata {
    /// The profiles it belongs to.
    pub profiles: Vec<Profile>,
    /// Whether it is off until an allow list names it.
    pub optional: bool,
    /// Whether the same call may be made twice.
    pub replay_safe: bool,
    /// Whether it changes anything. Unset counts as yes.
    pub side_effecting: Option<bool>,
    /// Permissions a caller needs. Unset: `<plugin>:read` or `<plugin>:write`.
    pub required_permissions: Vec<String>,
}

/// A process of the plugin that speaks MCP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct McpProcess {
    /// The program; a path that begins with `./` is in the plugin's folder.
    pub command: String,
    /// Its arguments; a path that begins with `./` is in the plugin's folder.
    pub args: Vec<String>,
    /// Variables set for it.
    pub env: BTreeMap<String, String>,
}

/// A process of the plugin that speaks the line protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LineProcess {
    /// The program; a path that begins with `./` is in the plugin's folder.
    pub command: String,
    /// Its arguments; a path that begins with `./` is in the plugin's folder.
    pub args: Vec<String>,
}

/// The permissions that a plugin asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Permissions {
    /// Whether it needs the network.
    pub network: bool,
    /// Files and folders to read; `*` for any the user grants.
    pub read: Vec<PathBuf>,
    /// Files and folders to change; `*` for any that the user grants.
    pub write: Vec<PathBuf>,
    /// Variables of the environment.
    pub env: Vec<String>,
}

/// A plugin's manifest. Unknown keys are ignored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Manifest {
    /// The unique id.
    pub id: String,
    /// The name for people.
    pub name: String,
    /// The description for people.
    pub description: String,
    /// The version; if it is missing, the package's.
    pub version: String,
    /// Whether it is used as soon as it is installed; unset counts as yes.
    pub enabled_by_default: Option<bool>,
    /// Plugins that must be there as well.
    pub requires_plugins: Vec<String>,
    /// When it is started.
    pub activation: Activation,
    /// The tools that it declares.
    pub contracts: Contracts,
    /// More about its tools, by name.
    pub tool_metadata: BTreeMap<String, ToolMetadata>,
    /// JSON Schema of its configuration.
    pub config_schema: Map<String, Value>,
    /// Processes that speak MCP, by name.
    pub mcp_servers: BTreeMap<String, McpProcess>,
    /// Folders of skills.
    pub skills: Vec<String>,
    /// What it needs access to; unset in manifests that do not have this key.
    pub permissions: Option<Permissions>,
    /// The process that speaks the line protocol. Unset: the package's `openclaw.extensions`, in the Node host.
    pub process: Option<LineProcess>,
    /// Modules for the Node host, from `package.json`.
    #[serde(skip)]
    pub extensions: Vec<String>,
}

fn invalid(place: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::ValidationError, format!("{}: {why}", place.display()))
        .suggest("Ask the plugin's author; nothing of it has been run.")
        .retryable(false)
}

/// The part of `package.json` that matters here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Package {
    version: String,
    openclaw: Option<PackageEntry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PackageEntry {
    extensions: Vec<String>,
}

impl Manifest {
    /// Reads and checks the manifest in a folder.
    pub fn read(folder: &Path) -> Result<Self, Failure> {
        let file = folder.join(MANIFEST_FILE);
        let opened = Folder::open(folder).map_err(|e| invalid(folder, explained(e)))?;
        let text = opened.read(MANIFEST_FILE, Links::Refuse, MAX_MANIFEST_BYTES).map_err(|e| invalid(&file, e))?;
        let value: Value = serde_json::from_slice(&text).map_err(|e| invalid(&file, e))?;
        // These two keys must be present, so they have no default.
        const SCHEMA: &str = "configSchema";
        for key in ["id", SCHEMA] {
            if value.get(key).is_none() {
                return Err(invalid(&file, format_args!("{key} is missing")));
            }
        }
        if !value.get(SCHEMA).is_some_and(Value::is_object) {
            return Err(invalid(&file, "configSchema must be a JSON Schema, an object"));
        }
        // Parsed from the text instead of a JSON value, because a duplicate key must be an error: two readers could see
        // different values.
        let mut manifest: Self = serde_json::from_slice(&text).map_err(|e| invalid(&file, e))?;
        let package = folder.join("package.json");
        let text = match opened.read("package.json", Links::Refuse, MAX_MANIFEST_BYTES) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(invalid(&package, error)),
        };
        if let Some(text) = text {
            let package: Package = serde_json::from_slice(&text).map_err(|e| invalid(&package, e))?;
            manifest.extensions = package.openclaw.unwrap_or_default().extensions;
            if manifest.version.is_empty() {
                manifest.version = package.version;
            }
        }
        manifest.check(folder).map_err(|why| invalid(&file, why))?;
        Ok(manifest)
    }

    fn check(&self, folder: &Path) -> Result<(), String> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let begins = self.id.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !begins || self.id.len() > MAX_ID || !self.id.bytes().all(plain) || self.id.contains("__") {
            return Err(format!("id {:?} must be 1 to {MAX_ID} letters, digits, '-', '_' or '.'", self.id));
        }
        if self.id.eq_ignore_ascii_case("core") {
            return Err("a plugin cannot be called core".to_owned());
        }
        self.check_words()?;
        if self.config_schema.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "object") {
            return Err("configSchema must describe an object".to_owned());
        }
        // An invalid schema is reported here instead of at the first configuration.
        if let Err(violations) = toolyard_catalog::check_once(&self.config_schema, &Map::new())
            && let Some(broken) = violations.iter().find(|v| v.message.contains("schema is broken"))
        {
            return Err(format!("configSchema: {}", broken.message));
        }
        if self.contracts.tools.len() > MAX_TOOLS {
            return Err(format!("contracts.tools has more than {MAX_TOOLS} names"));
        }
        let mut seen = BTreeSet::new();
        for tool in &self.contracts.tools {
            ToolName::parse(tool).map_err(|e| format!("contracts.tools: {e}"))?;
            if !seen.insert(tool) {
                return Err(format!("contracts.tools names {tool} twice"));
            }
        }
        if let Some(stray) = self.tool_metadata.keys().find(|name| !seen.contains(name)) {
            return Err(format!("toolMetadata speaks of {stray}, which contracts.tools does not name"));
        }
        for path in self.skills.iter().chain(&self.extensions) {
            inside(folder, path)?;
        }
        for (name, process) in &self.mcp_servers {
            check_command(folder, &process.command).map_err(|why| format!("mcpServers.{name}: {why}"))?;
        }
        if let Some(process) = &self.process {
            check_command(folder, &process.command).map_err(|why| format!("process: {why}"))?;
        }
        if self.process.is_none() && self.extensions.is_empty() && self.mcp_servers.is_empty() && self.skills.is_empty()
        {
            return Err(
                "there is nothing to run: no openclaw.extensions in package.json, no process, no mcpServers, no skills"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Refuses texts with characters that hide or move text, and permissions that name no place, so that people are
    /// shown what the manifest says.
    fn check_words(&self) -> Result<(), String> {
        let asked = self.permissions.clone().unwrap_or_default();
        for path in asked.read.iter().chain(&asked.write) {
            let text = path.to_str().ok_or("permissions: a path is not UTF-8")?;
            let is_place = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
            if text != "*" && !is_place {
                return Err(format!("permissions: {text:?} is neither an absolute path without '..' nor \"*\""));
            }
        }
        let is_variable =
            |name: &&String| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if let Some(name) = asked.env.iter().find(|name| !is_variable(name)) {
            return Err(format!("permissions: {name:?} is no name of a variable"));
        }
        let paths = asked.read.iter().chain(&asked.write).filter_map(|path| path.to_str());
        let words = [self.name.as_str(), &self.version, &self.description].into_iter().chain(paths);
        for word in words.chain(self.skills.iter().chain(&self.extensions).map(String::as_str)) {
            if word.chars().any(|c| (c.is_control() && !matches!(c, '\n' | '\t')) || is_invisible(c)) {
                return Err(format!("{word:?} has a character that is not shown or changes the direction of writing"));
            }
        }
        Ok(())
    }

    /// Checks a configuration against the manifest's schema.
    pub fn check_config(&self, config: &Map<String, Value>) -> Result<(), Failure> {
        toolyard_catalog::check_once(&self.config_schema, config).map_err(|violations| {
            let errors = serde_json::to_value(&violations).unwrap_or_else(|error| error.to_string().into());
            let first = violations.first().map(|v| format!("{} {}", v.path, v.message)).unwrap_or_default();
            Failure::new(
                ErrorCode::ConfigInvalid,
                format!("the configuration of the plugin {} does not fit its configSchema: {}", self.id, first.trim()),
            )
            .suggest(format!("Correct [plugins.entries.{}.config] in config.toml.", self.id))
            .detail("errors", errors)
        })
    }

    /// Whether it is enabled by default.
    pub fn starts_enabled(&self) -> bool {
        self.enabled_by_default.unwrap_or(true)
    }
}

/// A program's name, a path in the plugin's folder that begins with `./`, or an absolute path. Another relative path would
/// depend on where Toolyard was started.
fn check_command(folder: &Path, command: &str) -> Result<(), String> {
    if command.trim().is_empty() {
        return Err("it has no command".to_owned());
    }
    if command.starts_with("./") {
        return inside(folder, command).map(drop);
    }
    if command.contains('/') && !Path::new(command).is_absolute() {
        return Err(format!(
            "the command {command:?} is neither a name nor an absolute path, nor does it begin with ./"
        ));
    }
    Ok(())
}

/// A path in the plugin's folder that stays there.
pub(crate) fn inside(folder: &Path, path: &str) -> Result<PathBuf, String> {
    let relative = Path::new(path);
    let plain = relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !plain {
        return Err(format!("{path:?} leads out of the plugin's folder"));
    }
    let full = folder.join(relative);
    match (full.canonicalize(), folder.canonicalize()) {
        (Ok(real), Ok(root)) if !real.starts_with(&root) => Err(format!("{path:?} leads out of the plugin's folder")),
        _ => Ok(full),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(manifest: Value) -> Result<Manifest, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(MANIFEST_FILE), manifest.to_string()).unwrap();
        let package = json!({"version": "1.2.3", "openclaw": {"extensions": ["./index.js"]}});
        std::fs::write(dir.path().join("package.json"), package.to_string()).unwrap();
        Manifest::read(dir.path()).map_err(|failure| failure.message)
    }

    #[toolyard_shows::shows("000-1-02")]
    #[test]
    fn a_manifest_with_what_openclaw_knows_is_read() {
        let manifest = read(json!({
            "id": "weather", "configSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": false},
            "contracts": {"tools": ["weather_now"], "trustedToolPolicies": []}, "uiHints": {"city": {"label": "City"}},
            "toolMetadata": {"weather_now": {"profiles": ["full"], "optional": true, "sideEffecting": false}},
            "activation": {"onStartup": true, "onCommands": []},
        }))
        .unwrap();
        assert_eq!(
            (manifest.version.as_str(), manifest.extensions.as_slice()),
            ("1.2.3", &["./index.js".to_owned()][..])
        );
        assert!(manifest.activation.on_startup && manifest.tool_metadata["weather_now"].optional);
        assert!(manifest.check_config(&json!({"city": "Oslo"}).as_object().unwrap().clone()).is_ok());
        let wrong = manifest.check_config(&json!({"town": "Oslo"}).as_object().unwrap().clone()).unwrap_err();
        assert_eq!(wrong.code, ErrorCode::ConfigInvalid);
        assert!(wrong.message.contains("town"), "{}", wrong.message);
    }

    #[test]
    fn what_is_wrong_is_said_before_anything_runs() {
        let schema = json!({"type": "object"});
        for (manifest, why) in [
            (json!({"configSchema": schema}), "id is missing"),
            (json!({"id": "a"}), "configSchema is missing"),
            (json!({"id": "a b", "configSchema": schema}), "id"),
            (json!({"id": "core", "configSchema": schema}), "core"),
            (json!({"id": "a", "configSchema": "file.json"}), "configSchema"),
            (json!({"id": "a", "configSchema": {"type": "string"}}), "configSchema"),
            (json!({"id": "a", "configSchema": {"type": 7}}), "configSchema"),
            (json!({"id": "a", "configSchema": schema, "contracts": {"tools": ["x", "x"]}}), "twice"),
            (json!({"id": "a", "configSchema": schema, "contracts": {"tools": ["not a name"]}}), "contracts.tools"),
            (json!({"id": "a", "configSchema": schema, "toolMetadata": {"y": {}}}), "does not name"),
            (json!({"id": "a", "configSchema": schema, "skills": ["../secrets"]}), "leads out"),
            (json!({"id": "a", "configSchema": schema, "mcpServers": {"m": {}}}), "no command"),
            (json!({"id": "a", "configSchema": schema, "process": {"command": "./../x"}}), "leads out"),
            (json!({"id": "a", "configSchema": schema, "permissions": {"read": [""]}}), "absolute"),
            (json!({"id": "a", "configSchema": schema, "permissions": {"write": ["data"]}}), "absolute"),
            (json!({"id": "a", "configSchema": schema, "permissions": {"read": ["/data/../etc"]}}), "absolute"),
            (json!({"id": "a", "configSchema": schema, "permissions": {"env": ["A,B"]}}), "variable"),
            (json!({"id": "a", "configSchema": schema, "name": "x\u{1b}[2J"}), "not shown"),
            (json!({"id": "a", "configSchema": schema, "permissions": {"read": ["/a\u{202e}"]}}), "not shown"),
        ] {
            let error = read(manifest.clone()).unwrap_err();
            assert!(error.contains(why), "{manifest}: {error}");
        }
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let text =
            r#"{"id": "a", "configSchema": {}, "skills": ["s"], "permissions": {}, "permissions": {"network": true}}"#;
        std::fs::write(dir.path().join(MANIFEST_FILE), text).unwrap();
        assert!(Manifest::read(dir.path()).unwrap_err().message.contains("duplicate"));
    }

    #[test]
    fn neither_file_is_read_through_a_link() {
        for name in [MANIFEST_FILE, "package.json"] {
            let (dir, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let manifest = json!({"id": "a", "configSchema": {}, "skills": ["s"]}).to_string();
            std::fs::write(dir.path().join(MANIFEST_FILE), &manifest).unwrap();
            std::fs::write(host.path().join("file"), &manifest).unwrap();
            assert!(Manifest::read(dir.path()).is_ok());
            let place = dir.path().join(name);
            if place.exists() {
                std::fs::remove_file(&place).unwrap();
            }
            std::os::unix::fs::symlink(host.path().join("file"), &place).unwrap();
            assert!(Manifest::read(dir.path()).unwrap_err().message.contains("symbolic link"), "{name}");
        }
    }
}
