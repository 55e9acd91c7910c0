//! The configuration of plugins. Doc comments here are the configuration reference.

use crate::manifest::Permissions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use toolyard_mcp::client::LimitsConfig;

/// Whether plugins may run without the sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxMode {
    /// Plugins run in the sandbox only. If it cannot be set up, they do not run.
    #[default]
    Require,
    /// Always. Only for plugins you wrote yourself.
    Off,
}

/// The configuration of plugins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PluginsConfig {
    /// Whether plugins are used at all.
    pub enabled: bool,
    /// If set, only these plugins are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// These plugins are not used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Folders of plugins that are used in place, in addition to installed plugins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathBuf>,
    /// The Node program that runs plugins written for OpenClaw. Unset: `node` in PATH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<PathBuf>,
    /// The registry that `toolyard plugins install npm:NAME` and plugins' dependencies come from, as an https or http
    /// address. Unset: npm's own. npm's configuration files are not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "url"))]
    pub npm_registry: Option<String>,
    /// Where `toolyard plugins install clawhub:NAME` finds packages: the https or http address of ClawHub, OpenClaw's
    /// registry, or a folder that holds each as `NAME`, `NAME.tgz` or `NAME-VERSION.tgz`. Unset: nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "url"))]
    pub clawhub: Option<String>,
    /// `require`: plugins run in the sandbox or not at all. `off`: plugins run without the sandbox.
    pub sandbox: SandboxMode,
    /// Each plugin's own settings, by id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub entries: BTreeMap<String, Entry>,
}

impl Default for PluginsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            allow: None,
            deny: Vec::new(),
            paths: Vec::new(),
            node: None,
            npm_registry: None,
            clawhub: None,
            sandbox: SandboxMode::Require,
            entries: BTreeMap::new(),
        }
    }
}

impl PluginsConfig {
    /// Whether the operator's lists let a plugin be used.
    pub fn admits(&self, id: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|name| name == id);
        self.enabled && self.allow.as_deref().is_none_or(named) && !named(&self.deny)
    }
}

/// One plugin's settings.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Entry {
    /// Whether the plugin is used. Unset: as set by `toolyard plugins enable` and `disable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Its configuration, checked against the manifest's configSchema.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schemars(extend("x-secret" = "value"))]
    pub config: Map<String, Value>,
    /// What the plugin may access in addition to its own folder. `toolyard plugins install --grant` adds to it.
    pub grant: Grant,
    /// Limits for the plugin and every process that it starts.
    #[serde(skip_serializing_if = "LimitsConfig::is_default")]
    pub limits: LimitsConfig,
}

impl std::fmt::Debug for Entry {
    /// Without what may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("enabled", &self.enabled).field("grant", &self.grant).finish_non_exhaustive()
    }
}

/// What a plugin may touch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Grant {
    /// Whether the network is granted.
    pub network: bool,
    /// Files and folders it may read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<PathBuf>,
    /// Files and folders it may change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<PathBuf>,
    /// Variables of Toolyard's environment that are passed to the plugin.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-secret" = "variable"))]
    pub env: Vec<String>,
}

impl Grant {
    /// Reads `network`, `read:PATH`, `write:PATH` or `env:NAME`.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut grant = Self::default();
        for word in words {
            let path = |text: &str| std::path::absolute(text).map_err(|e| format!("{text}: {e}"));
            match word.split_once(':') {
                None if word == "network" => grant.network = true,
                Some(("read", text)) if !text.is_empty() => grant.read.push(path(text)?),
                Some(("write", text)) if !text.is_empty() => grant.write.push(path(text)?),
                Some(("env", name)) if !name.is_empty() => grant.env.push(name.to_owned()),
                _ => return Err(format!("{word:?} is none of network, read:PATH, write:PATH, env:NAME")),
            }
        }
        Ok(grant)
    }

    /// The union of this grant and another.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let both = |a: &[PathBuf], b: &[PathBuf]| {
            let mut all: Vec<PathBuf> = a.iter().chain(b).cloned().collect();
            all.sort();
            all.dedup();
            all
        };
        let mut env: Vec<String> = self.env.iter().chain(&other.env).cloned().collect();
        env.sort();
        env.dedup();
        Self {
            network: self.network || other.network,
            read: both(&self.read, &other.read),
            write: both(&self.write, &other.write),
            env,
        }
    }

    /// The part of the grant that the manifest's permissions allow.
    #[must_use]
    pub fn within(&self, asked: Option<&Permissions>) -> Self {
        let Some(asked) = asked else { return self.clone() };
        let under = |path: &PathBuf, asked: &[PathBuf]| {
            asked.iter().any(|folder| path.starts_with(folder) || folder == Path::new("*"))
        };
        Self {
            network: self.network && asked.network,
            read: self
                .read
                .iter()
                .filter(|path| under(path, &asked.read) || under(path, &asked.write))
                .cloned()
                .collect(),
            write: self.write.iter().filter(|path| under(path, &asked.write)).cloned().collect(),
            env: self.env.iter().filter(|name| asked.env.contains(name)).cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_gives_no_more_than_the_manifest_asks_for() {
        let words: Vec<String> = ["network", "read:/data", "write:/out", "env:KEY"].map(str::to_owned).into();
        let grant = Grant::parse(&words).unwrap();
        assert_eq!(grant.within(None), grant, "a manifest that says nothing is held by the grant alone");
        let asked = Permissions { network: false, read: vec!["/data".into()], ..Permissions::default() };
        let left = grant.within(Some(&asked));
        assert_eq!(left, Grant { read: vec!["/data".into()], ..Grant::default() });
        let anywhere = Permissions { read: vec!["*".into()], ..Permissions::default() };
        assert_eq!(grant.within(Some(&anywhere)).read, grant.read);
        assert!(Grant::parse(&["everything".to_owned()]).is_err());
    }

    #[test]
    fn lists_decide_before_anything_else() {
        let mut config = PluginsConfig {
            allow: Some(vec!["a".into(), "b".into()]),
            deny: vec!["b".into()],
            ..PluginsConfig::default()
        };
        assert!(config.admits("a") && !config.admits("b") && !config.admits("c"));
        config.enabled = false;
        assert!(!config.admits("a"));
    }
}
