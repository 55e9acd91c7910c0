//! What a plugin's manifest says about its process and its tools. A configured server has no terms: all of its tools
//! are accepted, with its prefix.

use crate::wire::Payload;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use toolyard_catalog::Profile;

/// How a plugin's process speaks.
#[derive(Debug, Clone, PartialEq)]
pub enum Dialect {
    /// The process speaks MCP.
    Mcp,
    /// The process speaks the line protocol for plugins; this is the content of `start`.
    Line {
        /// The parameters of `start`.
        start: Payload,
    },
}

/// A manifest's statements about one tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolTerms {
    /// Whether it changes anything; unknown counts as yes.
    pub side_effecting: Option<bool>,
    /// Whether the same call may be made twice.
    pub replay_safe: bool,
    /// Whether it is off until an allow list names it.
    pub optional: bool,
    /// The profiles it belongs to.
    pub profiles: Vec<Profile>,
    /// Permissions a caller needs.
    pub permissions: Vec<String>,
}

/// A manifest's statements about a process and its tools.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginTerms {
    /// The id of the plugin.
    pub plugin: String,
    /// Tools it may have; any other is refused.
    pub declared: BTreeSet<String>,
    /// Declared tools that this process must register; another process of the plugin may register the rest.
    pub expected: BTreeSet<String>,
    /// Further statements about single tools.
    pub tools: BTreeMap<String, ToolTerms>,
    /// The protocol of the process.
    pub dialect: Dialect,
    /// Whether it is started with Toolyard rather than with the first call.
    pub on_startup: bool,
}

/// A hook that a plugin's process registered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HookInterest {
    /// The event, `before_tool_call`.
    pub event: String,
    /// Tools it is about; all when empty.
    pub matcher: Vec<String>,
}
