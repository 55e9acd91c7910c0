//! Plugins: `openclaw.plugin.json` manifests, where packages come from, and what runs them.
//!
//! A plugin is one or more processes. Each speaks MCP, or the line protocol of docs/guide/plugins.md; plugins written against
//! OpenClaw's `api.registerTool` run in a Node host that speaks the latter. Processes are started, watched and stopped
//! like upstream MCP servers (`toolyard-mcp`), within walls (`toolyard-sandbox`), and their tools are called down the
//! engine's road.
//!
//! Nothing of a plugin runs before its manifest and its configuration have been found good. Knows no transport, no command
//! line and no configuration file.

mod hooks;
mod host;
mod install;
mod manager;
mod manifest;
mod settings;
mod state;
pub mod walled;

pub use install::{SCHEMES, Source};
pub use manager::{Added, NoWall, PluginInfo, Plugins, PluginsParts};
pub use manifest::{MANIFEST_FILE, Manifest, Permissions};
pub use settings::{Entry, Grant, PluginsConfig, SandboxMode};
